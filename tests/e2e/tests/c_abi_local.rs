//! The C programs of `tests/c` as local client processes of a daemon in this process.

use std::process::Output;

use covers::covers;
use dxgkrnl::{Fault, RegistryData, RegistryKey, RegistryValue};
use e2e::embedded::{Embedded, Running};
use e2e::polling::{eventually, until};
use e2e::programs::ROWS;
use gpupv::daemon::Options;

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the programs print text")
}

/// Runs a program to its end with a daemon of its own; returns its output.
fn check(program: &str) -> String {
    let daemon = Embedded::start();
    let output = daemon.run(program, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{}{errors}", output.status, text(&output));
    daemon.end();
    text(&output)
}

#[test]
fn fence_tour_matches_the_golden_output_and_leaks_nothing() {
    covers!(
        "FEN-001", "FEN-004", "FEN-005", "FEN-009", "FEN-023", "FEN-027", "FEN-028", "FEN-029", "FEN-031"
    );
    assert_eq!(check("fence_tour"), include_str!("golden/fence_tour.txt"));
}

#[test]
fn fork_tour_leaves_nothing() {
    assert!(check("fork_tour").ends_with("fork_tour: all as expected\n"));
}

#[test]
fn threads_lose_nothing_and_leave_nothing() {
    let output = check("threads");
    assert!(output.contains("messages of 1000 waits for what is reached: 0\n"), "{output}");
    assert!(output.ends_with("threads: all as expected\n"), "{output}");
}

#[test]
fn more_processes_than_busy_rings_lose_nothing() {
    assert!(check("many_processes").ends_with("many_processes: all as expected\n"));
}

#[test]
fn big_escapes_of_three_threads_return_to_their_callers() {
    covers!("ESC-022", "GPV-009");
    for program in ["big_escapes", "big_escapes-asan"] {
        let output = check(program);
        for thread in 0..3 {
            let line =
                format!("thread {thread}: 40 of 40 came back, 40 of 40 refused ones were left alone\n");
            assert!(output.contains(&line), "{output}");
        }
        assert!(output.ends_with("big_escapes: all as expected\n"), "{output}");
    }
}

#[test]
fn every_windows_row_is_ok() {
    for program in ROWS {
        let output = check(program);
        assert!(output.lines().any(|line| line.starts_with("ok W-")), "{output}");
        assert!(output.ends_with(&format!("{program}: 0 not ok\n")), "{output}");
    }
}

#[test]
fn bad_arguments_are_refused_and_nothing_is_written() {
    for program in ["bad_args", "bad_args-asan"] {
        let output = check(program);
        assert!(output.lines().filter(|line| line.ends_with(" refused")).count() > 50, "{output}");
        assert!(output.ends_with("bad_args: all as expected\n"), "{output}");
    }
}

#[test]
fn memory_tour_leaves_nothing() {
    assert!(check("memory_tour").ends_with("memory_tour: all as expected\n"));
}

#[test]
fn memory_of_destroyed_allocations_is_private_again() {
    assert!(check("forked_heap").ends_with("forked_heap: all as expected\n"));
}

#[test]
fn allocations_with_private_data_are_what_real_drivers_make() {
    covers!("MEM-001", "MEM-002", "MEM-003", "MEM-004", "MEM-006", "MEM-008");
    for program in ["private_data", "private_data-asan"] {
        let output = check(program);
        assert!(output.ends_with("private_data: all as expected\n"), "{output}");
    }
}

#[test]
fn memory_of_the_device_is_shared_by_cpu_and_engines() {
    covers!("MEM-030", "MEM-031", "MEM-032", "MEM-033", "MEM-034");
    for program in ["device_memory", "device_memory-asan"] {
        let output = check(program);
        assert!(output.ends_with("device_memory: all as expected\n"), "{output}");
    }
}

#[test]
fn shared_memory_of_the_device_is_the_same_bytes_for_two_processes() {
    covers!("MEM-035", "MEM-036", "MEM-037", "MEM-038", "MEM-039");
    for program in ["shared_device_memory", "shared_device_memory-asan"] {
        let daemon = Embedded::start();
        let output = daemon.run(program, &[]);
        assert!(text(&output).ends_with("shared_device_memory: all as expected\n"), "{}", text(&output));
        let budgets = &daemon.kernel_host().budgets;
        until("all kept pages are freed", || budgets.mappings.figures().1 == 0);
        until("their descriptors are closed", || budgets.descriptors.figures().1 == 0);
        daemon.end();
    }
}

#[test]
fn offered_memory_is_reclaimed_as_it_was() {
    for program in ["offers", "offers-asan"] {
        let output = check(program);
        assert!(output.ends_with("offers: all as expected\n"), "{output}");
    }
}

#[test]
fn sync_files_are_polled_passed_on_and_opened() {
    for program in ["sync_files", "sync_files-asan"] {
        let output = check(program);
        assert!(output.ends_with("sync_files: all as expected\n"), "{output}");
    }
}

#[test]
fn a_device_is_waited_for_until_it_is_idle() {
    for program in ["wait_for_idle", "wait_for_idle-asan"] {
        let output = check(program);
        assert!(output.ends_with("wait_for_idle: all as expected\n"), "{output}");
    }
}

#[test]
fn work_that_is_queued_later_is_not_waited_for() {
    for program in ["wait_for_idle", "wait_for_idle-asan"] {
        let daemon = Embedded::start();
        let mut child = daemon.spawn(program, &["later"]);
        child.says("waiting");
        // The calls wait for the contexts only once all of their signals are queued.
        until("the call waits", || WAITS(&daemon));
        child.write_input(b"x");
        assert!(child.end().ends_with("wait_for_idle: all as expected\n"));
        daemon.end();
    }
}

#[test]
fn a_killed_program_leaves_no_sync_file() {
    let daemon = Embedded::start();
    let mut child = daemon.spawn("sync_files", &["holds"]);
    child.says("ready");
    assert_eq!(daemon.kernel_host().nt_handles().count(), 1);
    child.kill();
    daemon.end();
}

#[test]
fn engines_run_lists_on_the_programs_own_memory() {
    let output = check("lists_tour");
    assert_eq!(output.lines().filter(|line| line.starts_with("without the barrier")).count(), 5, "{output}");
    assert!(output.ends_with("lists_tour: all as expected\n"), "{output}");
}

#[test]
fn exactly_the_missing_barriers_are_reported_as_races() {
    let mut options = Options::default();
    options.kernel.adapters[0].hazards = true;
    let daemon = Embedded::start_with(options);
    let mut notes = daemon.kernel_host().log.subscribe();
    let output = daemon.run("lists_tour", &[]);
    assert!(output.status.success(), "{}", text(&output));
    let mut races = Vec::new();
    while let Ok(note) = notes.try_recv() {
        races.extend(note.text.split_once("race on ").map(|(_, race)| race.to_owned()));
    }
    let on: Vec<&str> = races.iter().filter_map(|race| Some(race.split_once(':')?.0)).collect();
    assert_eq!(on, ["filled", "copied", "added", "copied again", "xored"], "{races:?}");
    daemon.end();
}

#[test]
fn a_program_killed_while_engines_write_its_memory_leaves_nothing() {
    let daemon = Embedded::start();
    for _ in 0..5 {
        let mut child = daemon.spawn("lists_tour", &["for-ever"]);
        child.says("ready");
        child.kill();
        daemon.wait_until_empty();
    }
    daemon.end();
}

#[test]
fn adapters_are_listed_by_the_interfaces_of_dxcore() {
    for program in ["dxcore", "dxcore-asan"] {
        let output = check(program);
        assert!(output.ends_with("dxcore: all as expected\n"), "{output}");
    }
    let daemon = Embedded::start_with(two_adapters());
    let output = daemon.run("dxcore", &[]);
    assert!(output.status.success(), "{}", text(&output));
    daemon.end();
}

/// Also by ioctls: a client's library has converted the query then.
#[test]
fn drivers_read_the_registry_in_wide_characters() {
    for program in ["registry", "registry-asan", "registry-dxg"] {
        let mut options = Options::default();
        let key = RegistryKey::Adapter;
        options.kernel.adapters[0].registry = vec![
            RegistryValue { key, name: "Text".into(), data: RegistryData::Text("gpü one".into()) },
            RegistryValue { key, name: "Number".into(), data: RegistryData::Dword(7) },
        ];
        let daemon = Embedded::start_with(options);
        let output = daemon.run(program, &[]);
        assert!(output.status.success(), "{program}: {}", text(&output));
        daemon.end();
    }
}

#[test]
fn a_list_is_stale_when_one_of_its_adapters_has_stopped() {
    covers!("MEM-023");
    let daemon = Embedded::start_with(two_adapters());
    let mut child = daemon.spawn("dxcore", &["stops"]);
    child.says("ready");
    daemon.kernel_host().fault(Fault::StopAdapter { adapter: 0 });
    child.write_input(b"x");
    let output = child.end();
    assert!(output.ends_with("stopped, and the list is stale\n"), "{output}");
    daemon.end();
}

#[test]
fn a_registration_without_a_session_is_armed_when_one_starts() {
    covers!("GPV-064");
    for program in ["dxcore", "dxcore-asan"] {
        let daemon = Embedded::start();
        let mut child = daemon.spawn(program, &["late"]);
        child.says("ready");
        daemon.kernel_host().fault(Fault::StopAdapter { adapter: 0 });
        let output = child.end();
        assert!(output.ends_with("notified of what came later\n"), "{output}");
        daemon.end();
    }
}

/// The program in the other VM would fail if it were notified, too.
#[test]
fn a_vm_is_notified_of_its_own_adapter_only() {
    covers!("GPV-061", "GPV-062", "GPV-064", "GPV-065");
    for program in ["dxcore", "dxcore-asan"] {
        let local_vms = vec!["a".into(), "b".into()];
        let daemon = Embedded::start_with(Options { local_vms, ..Options::default() });
        let mut children = ["a", "b"].map(|name| {
            let broker = daemon.daemon().local_vm(name).expect("the local VM exists").1;
            Running::start(Embedded::command_at(&broker, program, &["watches"]))
        });
        children.iter_mut().for_each(|child| child.says("ready"));
        for (child, name) in children.into_iter().zip(["a", "b"]) {
            let mut child = child;
            let change = |added| daemon.kernel_host().change_vm_adapter(name, 0, added);
            assert_eq!(change(false), Ok(()));
            child.says("removed");
            assert_eq!(change(true), Ok(()));
            let output = child.end();
            assert!(output.ends_with("arrived, and each notification came once\n"), "{output}");
        }
        daemon.end();
    }
}

fn two_adapters() -> Options {
    let mut options = Options::default();
    let mut second = options.kernel.adapters[0].clone();
    second.luid.low += 1;
    options.kernel.adapters.push(second);
    options
}

#[test]
fn every_documented_name_resolves_and_refuses_null() {
    let output = check("loader");
    for source in ["Windows SDK: 175 names\n", "libdxg: 101 names\n", "ROCm: 35 names\n"] {
        assert!(output.contains(source), "{output}");
    }
    assert!(output.ends_with("loader: all as expected\n"), "{output}");
}

#[test]
fn the_c_header_has_the_layout_of_the_interface() {
    check("abi_check");
}

#[test]
fn fence_memory_can_only_be_read() {
    covers!("FEN-004", "GPV-023");
    assert!(check("sealed").ends_with("sealed: all as expected\n"));
}

#[test]
fn a_user_mode_driver_flushes_pending_work() {
    covers!("FEN-015", "FEN-021");
    assert!(check("pending").ends_with("pending: all as expected\n"));
}

#[test]
fn an_open_under_paging_load_returns_when_engines_may_write() {
    covers!("FEN-062");
    let output = check("opened_under_paging");
    assert!(output.ends_with("opened_under_paging: all as expected\n"), "{output}");
}

#[test]
fn engines_of_an_iommu_adapter_use_the_programs_cpu_addresses() {
    covers!("FEN-008");
    let mut options = Options::default();
    options.kernel.adapters[0].iommu = true;
    let daemon = Embedded::start_with(options);
    let output = daemon.run("iommu", &[]);
    assert!(
        output.status.success() && text(&output).ends_with("iommu: all as expected\n"),
        "{}",
        text(&output)
    );
    daemon.end();
}

#[test]
fn a_program_that_destroys_nothing_leaves_nothing() {
    let daemon = Embedded::start();
    for _ in 0..3 {
        let output = daemon.run("states", &["leaves"]);
        assert!(output.status.success(), "{}", text(&output));
        daemon.wait_until_empty();
    }
    daemon.end();
}

#[test]
fn a_drivers_events_are_registered_as_real_clients_do_it() {
    covers!(
        "ESC-001", "ESC-002", "ESC-006", "ESC-022", "EVT-001", "EVT-007", "EVT-013", "EVT-022", "EVT-026",
        "GPV-010"
    );
    for program in ["cpu_event_l0", "cpu_event_rocr", "cpu_event_kill", "cpu_event_channel"] {
        let output = check(program);
        assert!(output.ends_with(&format!("{program}: all as expected\n")), "{output}");
    }
}

#[test]
fn ten_thousand_events_of_one_program_lose_no_signal() {
    covers!("EVT-007", "EVT-025", "EVT-026", "EVT-027");
    let output = check("cpu_event_many");
    assert!(output.ends_with("cpu_event_many: all as expected\n"), "{output}");
}

#[test]
fn a_drivers_event_wakes_its_waiter_without_an_intermediate_thread() {
    covers!("EVT-007");
    const WAKES: u32 = 20;
    let daemon = Embedded::start();
    let mut child = daemon.spawn("cpu_event_channel", &["waits"]);
    for wake in 0..WAKES {
        child.says(&format!("wake {wake}"));
        daemon.kernel_host().fault(Fault::ObjectGoesBad { adapter: 0, usage: 5 });
    }
    assert_eq!(child.end(), "woken without an intermediate thread\n");
    daemon.wait_until_empty();
    daemon.end();
}

#[test]
fn a_program_killed_at_any_point_of_an_events_life_leaves_nothing() {
    covers!("EVT-029");
    const POINTS: u32 = 20;
    let daemon = Embedded::start();
    for point in 0..POINTS {
        let mut child = daemon.spawn("cpu_event_kill", &[&point.to_string()]);
        child.says("ready");
        child.kill();
        daemon.wait_until_empty();
        let left = daemon.inspection();
        assert!(left.processes.is_empty() && left.objects.is_empty(), "killed at point {point}: {left:?}");
    }
    daemon.end();
}

/// State that the daemon must show of a program before the program is killed.
type Interesting = fn(&Embedded) -> bool;

const WAITS: Interesting = |daemon| daemon.inspection().waits.iter().any(|wait| wait.event != 0);

#[test]
fn a_program_killed_in_any_state_leaves_nothing() {
    let states: [(&str, Interesting); 4] = [
        ("blocked", WAITS),
        ("armed", WAITS),
        ("hung", |daemon| {
            let state = daemon.inspection();
            state.engines.iter().any(|engine| engine.state.contains("hung")) && state.waits.len() == 2
        }),
        ("attached", |daemon| daemon.inspection().processes.iter().any(|process| !process.connected)),
    ];
    let daemon = Embedded::start();
    for (state, interesting) in states {
        let mut child = daemon.spawn("states", &[state]);
        child.says("ready");
        until(state, || interesting(&daemon));
        child.kill();
        daemon.wait_until_empty();
    }
    daemon.end();
}

#[test]
fn a_program_killed_while_eight_threads_call_leaves_nothing() {
    let daemon = Embedded::start();
    for round in 0..5 {
        let mut child = daemon.spawn("states", &["calls"]);
        child.says("ready");
        let seen = daemon.counters().frames_received.count();
        until("the program makes calls", || daemon.counters().frames_received.count() > seen + 100 * round);
        child.kill();
        daemon.wait_until_empty();
    }
    daemon.end();
}

#[test]
fn a_killed_program_leaves_the_other_one_at_work() {
    let daemon = Embedded::start();
    let mut first = daemon.spawn("states", &["armed"]);
    first.says("ready");
    let mut steady = daemon.spawn("states", &["steady"]);
    steady.says("ready");
    assert_eq!(daemon.inspection().processes.len(), 2);
    first.kill();
    eventually("one of the two programs is left", || {
        let state = daemon.inspection();
        let left = (state.processes.len(), state.objects.len());
        if left == (1, 1) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    let output = steady.end();
    assert!(output.ends_with("steady: undisturbed\n"), "{output}");
    daemon.end();
}

#[test]
fn a_child_with_its_killed_parents_descriptors_keeps_nothing_alive() {
    let daemon = Embedded::start();
    let mut parent = daemon.spawn("states", &["forked"]);
    parent.says("ready");
    assert_eq!(daemon.inspection().processes.len(), 1);
    // The child ends with its input, which is dropped only after the daemon has forgotten the parent.
    let input = parent.kill();
    daemon.wait_until_forgotten();
    drop(input);
    daemon.end();
}

#[test]
fn two_programs_at_once_do_not_see_each_other() {
    let daemon = Embedded::start();
    let mut steady = daemon.spawn("states", &["steady"]);
    steady.says("ready");
    let tours = [(); 2].map(|()| daemon.spawn("fence_tour", &[]));
    for tour in tours {
        assert_eq!(tour.end(), include_str!("golden/fence_tour.txt"));
    }
    assert!(steady.end().ends_with("steady: undisturbed\n"));
    daemon.end();
}

#[test]
fn a_program_at_its_limit_of_descriptors_gets_no_memory_and_loses_nothing() {
    for program in ["few_descriptors", "few_descriptors-dxg"] {
        let output = check(program);
        assert!(output.ends_with("few_descriptors: all as expected\n"), "{output}");
    }
}

#[test]
fn a_program_that_closes_the_descriptors_of_the_library_keeps_its_own() {
    let output = check("taken_descriptors");
    assert!(output.ends_with("taken_descriptors: all as expected\n"), "{output}");
}

#[test]
fn notices_that_nobody_reads_end_no_program() {
    let output = check("closed_stderr");
    assert!(output.ends_with("closed_stderr: all as expected\n"), "{output}");
}

#[test]
fn fork_handlers_of_other_libraries_make_calls_and_wait_for_threads_that_do() {
    for program in ["fork_handlers", "fork_handlers_late"] {
        let output = check(program);
        assert!(output.ends_with("fork_handlers: all as expected\n"), "{output}");
    }
}

#[test]
fn a_call_is_no_cancellation_point() {
    for program in ["cancelled", "cancelled-dxg"] {
        let output = check(program);
        assert!(output.ends_with("cancelled: all as expected\n"), "{output}");
    }
}

#[test]
fn a_destroy_call_that_is_refused_changes_nothing() {
    let output = check("refused_destroys");
    assert!(output.ends_with("refused_destroys: all as expected\n"), "{output}");
}

#[test]
fn a_signal_handler_may_fork_in_a_wait_and_its_calls_are_refused() {
    let output = check("signal_handlers");
    assert!(output.ends_with("signal_handlers: all as expected\n"), "{output}");
}

#[test]
fn a_wait_for_a_reached_value_sends_no_message() {
    covers!("FEN-031");
    let daemon = Embedded::start();
    let mut child = daemon.spawn("states", &["satisfied"]);
    child.says("ready");
    let counts = || (daemon.counters().frames_received.count(), daemon.counters().frames_sent.count());
    let before = counts();
    child.write_input(b"x");
    child.says("waited");
    assert_eq!(counts(), before, "2000 waits for reached values");
    child.end();
    daemon.end();
}
