//! The cases, in the order of their runs.

use covers::covers;
use d3dkmt::limits::{EVENT_CHANNELS_PER_VM_MAX, REGISTERED_EVENTS_PER_PROCESS_MAX};
use dxgkrnl::{Fault, VmId};
use e2e::machine;
use e2e::polling::{eventually, until};
use gpupv::daemon::control;
use gpupv::daemon::vm::VmState;
use proto::agent::exec_input;
use proto::control::Inspection;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Job, Lab};

/// Number of wakes of `tests/c/cpu_event_channel.c`.
const WAKES: u32 = 20;
const EVENT_CHANNEL_USAGE: u32 = 5;
const HELD_USAGE: u32 = 6;
const TOUR: &str = include_str!("../golden/fence_tour.txt");

fn inspection(lab: &Lab) -> Inspection {
    control::inspection(&lab.fleet.daemon.kernel_host, &lab.fleet.daemon.vms)
}

/// Runs the same programs in both guests at the same time.
pub fn same_output(lab: &mut Lab, local: &[(&str, String)]) {
    for (program, output) in local {
        let path = format!("/{program}");
        let jobs = [0, 1].map(|guest| lab.start(guest, &[&path]));
        for job in jobs {
            let (code, printed) = job.end();
            assert_eq!(&printed, output, "{program}");
            assert_eq!(code, 0, "{program}");
        }
        lab.wait_until_empty();
    }
    lab.files_are_as_after_boot();
}

pub fn leaves_everything(lab: &mut Lab) {
    for _ in 0..3 {
        let (code, output) = lab.run(0, &["/states", "leaves"]);
        assert_eq!(code, 0, "{output}");
        lab.wait_until_empty();
    }
}

/// State that the daemon must show of a program before the program is killed.
type Interesting = fn(&Inspection) -> bool;

fn waits(state: &Inspection) -> bool {
    state.waits.iter().any(|wait| wait.event != 0)
}

/// Kills programs in each state of `tests/c/states.c`.
pub fn killed_in_any_state(lab: &mut Lab) {
    let states: [(&str, Interesting); 4] = [
        ("blocked", waits),
        ("armed", waits),
        ("hung", |state| {
            state.engines.iter().any(|engine| engine.state.contains("hung")) && state.waits.len() == 2
        }),
        ("attached", |state| state.processes.iter().any(|process| !process.connected)),
    ];
    for (state, interesting) in states {
        let job = lab.start(1, &["/states", state]);
        job.says("ready");
        until(state, || interesting(&inspection(lab)));
        assert!(inspection(lab).processes.iter().all(|process| process.vm == 2));
        job.kill();
        lab.wait_until_empty();
    }
    lab.files_are_as_after_boot();
}

/// Kills programs at each point of an event's life in `tests/c/cpu_event_kill.c`.
pub fn killed_with_an_event(lab: &mut Lab) {
    covers!("EVT-029");
    const POINTS: u32 = 20;
    let connections = lab.entry(0).device.stats().connections;
    for point in 0..POINTS {
        let job = lab.start(0, &["/cpu_event_kill", &point.to_string()]);
        job.says("ready");
        job.kill();
        lab.wait_until_empty();
        until("the program's streams are closed", || lab.entry(0).device.stats().connections == connections);
    }
    lab.files_are_as_after_boot();
}

/// The guest's kernel wakes the waiter of a driver's event without an intermediate thread.
pub fn woken_by_the_kernel(lab: &mut Lab) {
    let job = lab.start(0, &["/cpu_event_channel", "waits"]);
    for wake in 0..WAKES {
        job.says(&format!("wake {wake}"));
        lab.fleet.daemon.kernel_host.fault(Fault::ObjectGoesBad { adapter: 0, usage: EVENT_CHANNEL_USAGE });
    }
    let (code, output) = job.end();
    assert!(code == 0 && output.ends_with("woken without an intermediate thread\n"), "{code}: {output}");
    lab.wait_until_empty();
}

/// Each VM loses its adapter and gets it back. The program in the other VM would fail if it were notified, too.
pub fn adapter_removed_and_added(lab: &mut Lab) {
    covers!("GPV-061", "GPV-062", "GPV-064", "GPV-065");
    let jobs = [0, 1].map(|guest| lab.start(guest, &["/dxcore", "watches"]));
    jobs.iter().for_each(|job| job.says("ready"));
    for (job, vm) in jobs.into_iter().zip(["1", "2"]) {
        let change = |added| lab.fleet.daemon.kernel_host.change_vm_adapter(vm, 0, added);
        assert_eq!(change(false), Ok(()));
        job.says("removed");
        assert_eq!(change(true), Ok(()));
        let (code, output) = job.end();
        let is_right = output.ends_with("arrived, and each notification came once\n");
        assert!(code == 0 && is_right, "{code}: {output}");
    }
    lab.wait_until_empty();
}

/// A stopped guestd delays signals after the first one, and nothing else.
pub fn without_the_broker(lab: &mut Lab) {
    let job = lab.start(0, &["/cpu_event_channel", "without"]);
    let (code, output) = job.end();
    assert_eq!((code, output.as_str()), (0, "set without the broker\n"));
    lab.wait_until_empty();
}

/// The broker keeps three capabilities: CAP_NET_BIND_SERVICE, CAP_IPC_LOCK and CAP_SYS_RESOURCE. A program of the agent has
/// all rights of root in its guest.
pub fn restricted_broker(lab: &mut Lab) {
    const KEPT: u64 = 1 << 10 | 1 << 14 | 1 << 24;
    let (code, output) = lab.run(0, &["/restricted"]);
    assert_eq!(code, 0, "{output}");
    let lines: Vec<&str> = output.lines().collect();
    let [oom, broker, own_oom, program] = lines[..] else { panic!("{output}") };
    // A guest without memory ends another process than the one that all sessions need.
    assert_eq!((oom, own_oom), ("broker: oom_score_adj -1000", "program: oom_score_adj 0"));
    // The order is that of the system's file.
    let kept = format!("CapPrm: {KEPT:016x} CapEff: {KEPT:016x} CapBnd: {:016x}", 0);
    assert_eq!(broker, format!("broker: {kept} NoNewPrivs: 1 Seccomp: 2"));
    assert!(program.starts_with("program:") && program.ends_with("NoNewPrivs: 0 Seccomp: 0"), "{program}");
    assert!(!program.contains("CapEff: 0000000000000000"), "{program}");
    lab.wait_until_empty();
}

/// The kernel's own root folder is everybody's.
pub fn root_folder(lab: &mut Lab) {
    let said = "mode 755, user 0, group 0\nmkdir: Permission denied\n";
    assert_eq!(lab.run(0, &["/root_folder"]), (0, said.into()));
}

/// Events beyond a VM's event channels arrive on the streams of their processes.
pub fn more_events_than_event_channels(lab: &mut Lab) {
    const JOBS: usize = EVENT_CHANNELS_PER_VM_MAX / REGISTERED_EVENTS_PER_PROCESS_MAX + 1;
    let connections = || lab.entry(0).device.stats().connections;
    let before = connections();
    let jobs = [(); JOBS].map(|()| lab.start(0, &["/cpu_event_channel", "holds"]));
    jobs.iter().for_each(|job| job.says("ready"));
    assert_eq!(connections(), before + JOBS + EVENT_CHANNELS_PER_VM_MAX);
    lab.fleet.daemon.kernel_host.fault(Fault::ObjectGoesBad { adapter: 0, usage: HELD_USAGE });
    for job in jobs {
        assert_eq!(job.end(), (0, "ready\neach was set once\n".into()));
    }
    lab.wait_until_empty();
    until("the programs' streams are closed", || connections() == before);
}

pub fn killed_while_calling(lab: &mut Lab) {
    let job = lab.start(0, &["/states", "calls"]);
    job.says("ready");
    let counters = &lab.fleet.daemon.kernel_host.counters;
    let before = counters.frames_received.count();
    until("the program makes calls", || counters.frames_received.count() > before + 100);
    job.kill();
    lab.wait_until_empty();
}

/// A QEMU that is stopped while its programs call and wait delays no program elsewhere, and they continue with it.
pub fn stopped_while_calling(lab: &mut Lab) {
    let calling = lab.start(0, &["/states", "calls"]);
    let blocked = lab.start(0, &["/states", "blocked"]);
    let steady = lab.start(1, &["/states", "steady"]);
    [&calling, &blocked, &steady].iter().for_each(|job| job.says("ready"));
    let qemu = Pid::from_raw(lab.fleet.guests[0].0.vm.pid() as i32).expect("a process");
    kill_process(qemu, Signal::STOP).expect("our QEMU");
    assert_eq!(lab.run(1, &["/fence_tour"]), (0, TOUR.into()));
    assert_eq!(steady.end(), (0, "ready\nsteady: undisturbed\n".into()));
    let counters = &lab.fleet.daemon.kernel_host.counters;
    let stopped = counters.frames_received.count();
    kill_process(qemu, Signal::CONT).expect("our QEMU");
    until("the program continues its calls", || counters.frames_received.count() > stopped + 100);
    [calling, blocked].into_iter().for_each(Job::kill);
    lab.wait_until_empty();
    lab.files_are_as_after_boot();
}

pub fn satisfied_waits(lab: &mut Lab) {
    let job = lab.start(0, &["/states", "satisfied"]);
    job.says("ready");
    let counters = &lab.fleet.daemon.kernel_host.counters;
    let before = counters.frames_received.count();
    job.send(exec_input::Body::Stdin(b"x".to_vec()));
    job.says("waited");
    assert_eq!(counters.frames_received.count(), before, "2000 waits for reached values");
    assert_eq!(job.end().0, 0);
    lab.wait_until_empty();
}

pub fn intruder(lab: &mut Lab) {
    let breaches = lab.fleet.daemon.kernel_host.counters.protocol_errors.count();
    assert_eq!(lab.run(0, &["/intruder"]), (0, "intruder: got nothing\n".into()));
    assert_eq!(
        lab.fleet.daemon.kernel_host.counters.protocol_errors.count(),
        breaches + 4,
        "four bad tokens"
    );
    lab.wait_until_empty();
}

/// A client in the other guest runs meanwhile.
pub fn guestd_killed(lab: &mut Lab) {
    let steady = lab.start(1, &["/states", "steady"]);
    steady.says("ready");
    let blocked = lab.start(0, &["/states", "blocked"]);
    blocked.says("ready");
    let processes = |vm| {
        let state = inspection(lab);
        state.processes.iter().filter(|process| process.vm == vm).count()
    };
    assert_eq!((processes(1), processes(2)), (1, 1));
    // The agent ends with it, so its exit status is unknown.
    let _ = lab.start(0, &["/kill_named", "serve", "--supervised"]).end_somehow();
    assert!(blocked.end_somehow().is_err(), "its agent has ended");
    until("the guest's process has ended", || processes(1) == 0);
    assert_eq!(processes(2), 1);
    until("the guest is ready again", || lab.entry(0).shared.state() == VmState::Ready);
    lab.reconnect(0);
    assert_eq!(lab.run(0, &["/fence_tour"]), (0, TOUR.into()));
    assert_eq!(steady.end(), (0, "ready\nsteady: undisturbed\n".into()));
    lab.wait_until_empty();
    lab.files_are_as_after_boot();
}

/// The pages that engines wrote are another process's once the guest has unbound its device.
pub fn device_unbound(lab: &mut Lab) {
    let _ = lab.start(0, &["/unbound_device"]).end_somehow();
    lab.reconnect(0);
    assert_eq!(lab.run(0, &["/unbound_device", "result"]), (0, "kept\n".into()));
    until("the guest is ready again", || lab.entry(0).shared.state() == VmState::Ready);
    assert_eq!(lab.run(0, &["/fence_tour"]), (0, TOUR.into()));
    lab.wait_until_empty();
    lab.files_are_as_after_boot();
}

/// A client in the other guest runs meanwhile, and starts after.
pub fn qemu_killed(lab: &mut Lab) {
    let steady = lab.start(1, &["/states", "steady"]);
    steady.says("ready");
    let victims = ["blocked", "hung", "calls", "attached"].map(|state| lab.start(0, &["/states", state]));
    victims.iter().for_each(|job| job.says("ready"));
    let mapped = machine::mappings_of("memfd:");
    let threads = machine::daemon_threads();
    assert!(threads.contains(&"vsock-3".to_owned()), "{threads:?}");

    lab.fleet.guests[0].0.vm.kill();
    until("the VM is gone", || lab.entry(0).shared.state() == VmState::Gone);
    for job in victims {
        assert!(job.end_somehow().is_err(), "its guest has ended");
    }
    eventually("nothing is left of the VM", || {
        let state = inspection(lab);
        let processes = state.processes.iter().filter(|process| process.vm != 2).count();
        let hung = state.engines.iter().any(|engine| engine.state.contains("hung"));
        let left = (processes, state.devices.len(), state.objects.len(), state.waits.len(), hung);
        if left == (0, 1, 1, 0, false) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    until("the VM's memory is unmapped", || machine::mappings_of("memfd:") < mapped);

    // The daemon removes the VM with its thread and its socket.
    let (guest, agent) = lab.fleet.guests.remove(0);
    let socket = guest.entry.socket.clone();
    drop((guest, agent));
    lab.fleet.daemon.vms.remove(VmId(1));
    until("the VM's thread has ended", || !machine::daemon_threads().contains(&"vsock-3".to_owned()));
    until("the VM's socket is removed", || !socket.exists());

    assert_eq!(lab.run(0, &["/fence_tour"]), (0, TOUR.into()));
    assert_eq!(steady.end(), (0, "ready\nsteady: undisturbed\n".into()));
    lab.wait_until_empty();
}
