//! Text lanes, statistics and differences.

mod common;

use std::cell::Cell;
use std::path::Path;

use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType, WaitFromCpuFlags,
};
use dxgkrnl::{EngineId, Fault, Input, ProcessId, VmId};
use timeline::Timeline;
use timeline::diff::{Diff, diff};
use timeline::lanes::{Selection, text};
use trace::Reader;

#[test]
fn lanes_of_the_small_trace_are_as_they_were() {
    let timeline = common::small_timeline();
    let lanes = text(&timeline, &Selection::Last(1000), 140).unwrap();
    common::golden("small.txt", lanes.as_bytes());
}

#[test]
fn figures_of_the_small_trace_are_as_they_were() {
    common::golden("small.stats", common::small_timeline().stats_text().as_bytes());
}

#[test]
fn figures_agree_with_the_rows() {
    let timeline = common::small_timeline();
    let stats = timeline.stats_json();
    assert_eq!(stats["steps"], timeline.events.len());
    assert_eq!(stats["calls"]["WaitFromCpu"]["count"], 4);
    assert_eq!(stats["calls"]["SignalFromCpu"]["refused"], 1);
    assert_eq!(stats["statuses"]["INVALID_PARAMETER"], 1);
    assert_eq!(stats["waits"]["registered"], 5);
    assert_eq!(stats["waits"]["pending"], 2);
    // 21.1, 25 and 90.7 us.
    let age = &stats["waits"]["age"];
    assert_eq!((age["count"].as_u64(), age["max_ns"].as_u64().map(|max| max / 1000)), (Some(3), Some(90)));
    let busy = stats["engines"][0]["busy_ns"].as_u64().unwrap();
    let ran: u64 = timeline
        .runs
        .iter()
        .filter(|run| timeline.tracks[run.engine as usize].name.starts_with("engine 0.0"))
        .map(|run| run.end - run.begin)
        .sum();
    assert_eq!(busy, ran);
}

/// The percentiles of a histogram are rounded up; the longest wait is known exactly.
#[test]
fn no_wait_is_longer_than_the_longest() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, server, [frames, theirs]| {
        session.wait(server, &[(theirs, 1)]);
        session.advance(4_000_000_000, 0);
        session.signal(client, frames, 1);
    });
    let timeline = common::timeline_of(file.path());
    let age = timeline.stats.wait_age_ns;
    assert_eq!((age.p50, age.p99, age.max), (4_000_000_000, 4_000_000_000, 4_000_000_000));
    let text = timeline.stats_text();
    assert!(text.contains("1: p50 4.00 s, p90 4.00 s, p99 4.00 s, max 4.000 s"), "{text}");
}

#[test]
fn call_is_shown_with_all_its_objects() {
    let file = tempfile::NamedTempFile::new().unwrap();
    common::pair(file.path(), |session, client, _, [frames, _]| {
        let second = session.fence(client, SyncObjectFlags::empty()).object;
        session.wait(client, &[(frames, 5), (second, 7)]);
        let (objects, values) = (vec![frames, second].into(), vec![6, 8].into());
        let flags = WaitFromCpuFlags::WAIT_ANY;
        let device = client.device;
        let any = Call::WaitFromCpu { device, objects, values, flags, event: EventId(900) };
        session.call(client.process, any);
        let context = session.context(client, 0, CreateContextFlags::empty());
        let token = ShareToken([3; 16]);
        session.call(client.process, Call::CreateSyncFile { device, fence: frames, fence_value: 9, token });
        session.call(client.process, Call::WaitSyncFile { context, token });
    });
    let timeline = common::timeline_of(file.path());
    let lanes = text(&timeline, &Selection::Last(1000), 200).unwrap();
    for call in ["WaitFromCpu F0 >= 5, F1 >= 7", "WaitFromCpu F0 >= 6, F1 >= 8 (any)", "WaitSyncFile F0 >= 9"]
    {
        assert!(lanes.contains(call), "{call}: {lanes}");
    }
    let of_second = text(&timeline, &Selection::Fence(1), 200).unwrap();
    assert_eq!(of_second.matches("WaitFromCpu").count(), 2, "{of_second}");
}

fn steps(timeline: &Timeline, selection: &Selection) -> Vec<u64> {
    let text = text(timeline, selection, 120).unwrap_or_default();
    let numbers =
        text.lines().filter_map(|line| line.trim_start().strip_prefix('#')?.split(' ').next()?.parse().ok());
    numbers.collect()
}

#[test]
fn selections_show_what_they_name() {
    let timeline = common::small_timeline();
    assert_eq!(steps(&timeline, &Selection::Near(24, 2)), [22, 23, 24, 25, 26]);
    assert_eq!(steps(&timeline, &Selection::Last(3)), [57, 58, 59]);
    // The wait for F1, its submission, its values and its wake-up.
    assert_eq!(steps(&timeline, &Selection::Wait(1, 2)), [26, 29, 32, 34]);
    let fence = steps(&timeline, &Selection::Fence(0));
    assert!(
        fence.contains(&23) && fence.contains(&24) && fence.contains(&54) && !fence.contains(&29),
        "{fence:?}"
    );
    let server = steps(&timeline, &Selection::Process(2));
    assert!(server.contains(&23) && server.contains(&24), "what it calls, and when it is woken: {server:?}");
    assert_eq!(text(&timeline, &Selection::Wait(9, 9), 120), None);
    assert_eq!(text(&timeline, &Selection::Near(1_000_000, 2), 120), None);
    for width in [0, 20, 40, 80, 200, 500] {
        let lanes = text(&timeline, &Selection::Last(100), width).unwrap();
        assert!(lanes.lines().count() > 59, "at {width}");
    }
}

/// What no call signals is in the lanes as well: the values of an engine and of a reset.
#[test]
fn lanes_have_the_values_that_an_engine_and_a_reset_store() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let steps_of = Cell::new([0; 3]);
    common::pair(file.path(), |session, client, server, [frames, theirs]| {
        let opened = session.steps;
        let context = session.context(client, 0, CreateContextFlags::empty());
        let done = session.fence(client, SyncObjectFlags::empty());
        session.submit(client, context, &[common::busy(1_000), common::write(&done, 4)]);
        let submitted = session.steps;
        session.wait(client, &[(done.object, 5)]);
        session.advance(10_000, 0);
        session.input(Input::Fault(Fault::Hang { engine: EngineId { adapter: 0, node: 0 } }));
        session.wait(server, &[(theirs, 3)]);
        session.submit(client, context, &[common::busy(1_000)]);
        session.gpu_signal(client, context, frames, 3);
        session.advance(5_000_000_000, 0);
        steps_of.set([opened, submitted, submitted + 2]);
    });
    let [opened, submitted, stored] = steps_of.get();
    let timeline = common::timeline_of(file.path());
    let of_engine = text(&timeline, &Selection::Fence(1), 200).unwrap();
    let step = |number: u64| {
        let line = of_engine.lines().find(|line| line.trim_start().starts_with(&format!("#{number} ")));
        line.unwrap_or_else(|| panic!("#{number}: {of_engine}")).to_owned()
    };
    assert!(step(submitted).contains("SubmitCommand"), "its work writes the fence: {of_engine}");
    assert!(of_engine.contains("F1 = 4") && of_engine.lines().count() < 15, "{of_engine}");
    assert!(step(stored).contains("1 ends"), "{of_engine}");
    let of_frames = text(&timeline, &Selection::Fence(0), 200).unwrap();
    assert!(of_frames.contains("! reset: F0 = MAX\n"), "{of_frames}");
    assert!(
        of_frames.contains(&format!("#{opened} ")) && of_frames.contains("OpenSyncObject F0"),
        "{of_frames}"
    );
    assert!(
        !of_frames.contains("F0 = 3 ") || of_frames.contains("queue signal dropped F0 = 3"),
        "{of_frames}"
    );
}

fn compare(one: &Path, other: &Path) -> Diff {
    diff(&|| Reader::open(one), &|| Reader::open(other)).unwrap()
}

#[test]
fn traces_that_differ_in_times_only_are_the_same() {
    let [one, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    common::small(one.path());
    common::pair(other.path(), |session, client, server, [frames, theirs]| {
        session.wait(server, &[(theirs, 1)]);
        session.advance(1000, 0);
        session.signal(client, frames, 1);
    });
    assert!(compare(one.path(), one.path()).is_same());
    let later = tempfile::NamedTempFile::new().unwrap();
    common::pair(later.path(), |session, client, server, [frames, theirs]| {
        session.wait(server, &[(theirs, 1)]);
        session.advance(5000, 0);
        session.signal(client, frames, 1);
    });
    let found = compare(other.path(), later.path());
    assert!(found.is_same(), "{found}");
    assert_eq!(found.longer.len(), 1);
    assert_eq!(found.longer[0].nanos, (1000, 5000));
    assert!(
        found.to_string().contains("waited longer: red/server#1 event 1, 1.000 us in A, 5.000 us in B"),
        "{found}"
    );
}

/// A wait for work of an engine, which ends as this fault leads to.
fn ends_with(path: &Path, fault: Option<Fault>) {
    let mut session = common::Session::new(path);
    let client = session.guest(0, 1, "client");
    let done = session.fence(client, SyncObjectFlags::empty());
    let context = session.context(client, 0, d3dkmt::CreateContextFlags::empty());
    session.submit(client, context, &[common::busy(1000), common::write(&done, 1)]);
    session.wait(client, &[(done.object, 1)]);
    fault.into_iter().for_each(|fault| drop(session.input(Input::Fault(fault))));
    session.advance(5_000_000_000, 0);
    session.finish();
}

#[test]
fn a_wait_that_ended_with_an_error_is_a_difference_and_so_are_faults_and_resets() {
    let [one, stopped, hung] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    ends_with(one.path(), None);
    ends_with(stopped.path(), Some(Fault::StopAdapter { adapter: 0 }));
    ends_with(hung.path(), Some(Fault::Hang { engine: EngineId { adapter: 0, node: 0 } }));
    let found = compare(one.path(), stopped.path());
    assert!(!found.is_same(), "{found}");
    let [ended] = &found.ended_otherwise[..] else { panic!("{found}") };
    assert_eq!(ended.statuses, (NtStatus::SUCCESS, NtStatus::DEVICE_REMOVED));
    let text = found.to_string();
    assert!(
        text.contains(
            "ended differently: host/client#1 event 1, STATUS_SUCCESS in A, STATUS_DEVICE_REMOVED in B"
        ),
        "{text}"
    );
    assert!(text.contains("fault: adapter 0 stops: 0 times in A, 1 in B"), "{text}");
    let found = compare(one.path(), hung.path());
    assert_eq!(found.json()["ended_otherwise"][0]["b"], "STATUS_DEVICE_REMOVED");
    assert!(
        found.to_string().contains("engine 0.0 is reset (0x141, timeout): 0 times in A, 1 in B"),
        "{found}"
    );
}

/// Two processes of one VM: the client shares two fences by these NT handles, the server opens one of them.
fn shares(path: &Path, tokens: [[u8; 16]; 2], opened: usize) {
    let mut session = common::Session::new(path);
    session.vm(1, "red");
    let (client, server) = (session.guest(1, 1, "client"), session.guest(1, 2, "server"));
    session.share_fence(client, "one", tokens[0]);
    session.share_fence(client, "two", tokens[1]);
    session.open_fence(server, tokens[opened]);
    session.finish();
}

#[test]
fn a_wake_up_is_listed_with_the_call_of_its_step_and_the_signal_that_it_led_to() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = common::Session::new(file.path());
    let client = session.guest(0, 1, "client");
    let [done, go] = [(); 2].map(|()| session.fence(client, SyncObjectFlags::empty()).object);
    let context = session.context(client, 0, CreateContextFlags::empty());
    session.gpu_wait(client, context, go, 1);
    session.gpu_signal(client, context, done, 6);
    let event = session.wait(client, &[(done, 6)]);
    session.signal(client, go, 1);
    session.times(client, client, event);
    let event = session.wait(client, &[(go, 2)]);
    session.signal(client, go, 2);
    session.times(client, client, event);
    session.finish();
    let timeline = common::timeline_of(file.path());
    let words = timeline.latency_text(9);
    let lines: Vec<&str> =
        words.lines().filter_map(|line| line.split_once("client ")).map(|line| line.1).collect();
    let by = format!("context {:#x} on 0.0 signals F0 = 6", context.0);
    assert_eq!(
        lines,
        [
            &format!("SignalFromCpu F1 = 1 wakes host / p1 client (event 1): host / p1 client / {by}"),
            "SignalFromCpu F1 = 2 wakes host / p1 client (event 2)",
        ],
        "{words}"
    );
    let json = timeline.latency_json(9);
    let [through, direct] = [0, 1].map(|at| &json["slowest"][at]);
    assert_eq!(
        (&through["fence"], &through["value"], &through["cause"]["fence"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!((&direct["value"], &direct["cause"]["value"]), (&2.into(), &2.into()));
}

#[test]
fn a_wake_up_by_a_call_without_a_value_is_listed_without_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = common::Session::new(file.path());
    let client = session.guest(0, 1, "client");
    let fence = session.fence(client, SyncObjectFlags::empty()).object;
    let event = session.wait(client, &[(fence, 6)]);
    session.call(client.process, Call::DestroySynchronizationObject { object: fence });
    session.times(client, client, event);
    session.finish();
    let timeline = common::timeline_of(file.path());
    let words = timeline.latency_text(9);
    assert!(words.contains("DestroySynchronizationObject F0 wakes host / p1 client (event 1)\n"), "{words}");
    let json = timeline.latency_json(9);
    assert_eq!(
        (&json["slowest"][0]["fence"], &json["slowest"][0]["value"]),
        (&0.into(), &serde_json::Value::Null)
    );
}

#[test]
fn differences_beyond_those_listed_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for (path, is_signaled) in [(&one, true), (&other, false)] {
        common::pair(path, |session, client, server, [frames, theirs]| {
            for value in 1..=30 {
                session.wait(server, &[(theirs, value)]);
            }
            session.signal(client, frames, if is_signaled { 30 } else { 5 });
        });
    }
    let found = compare(&one, &other);
    assert_eq!((found.missing.len(), found.json()["woken_a_only_left_out"].as_u64()), (20, Some(5)));
    let text = found.to_string();
    assert_eq!(text.matches("woken in A only: red/server#1 event").count(), 20, "{text}");
    assert!(text.contains("woken in A only: 5 more\n"), "{text}");
    assert_eq!(found.json()["longer_left_out"], 0);
}

/// A process of one VM waits for a process of another, to which this happens.
fn crossed(path: &Path, happens: &[Input]) {
    let mut session = common::Session::new(path);
    session.vm(1, "red");
    session.vm(2, "blue");
    let (client, server) = (session.guest(1, 1, "client"), session.guest(2, 2, "server"));
    let fence = session.fence(server, SyncObjectFlags::empty()).object;
    session.signal(server, fence, 1);
    let own = session.fence(client, SyncObjectFlags::empty()).object;
    session.wait(client, &[(own, 1)]);
    session.now += 1_000_000;
    happens.iter().for_each(|input| drop(session.input(input.clone())));
    session.finish();
}

#[test]
fn what_happens_to_a_vm_or_a_process_of_one_trace_only_is_a_difference() {
    let (vm, process) = (VmId(2), ProcessId(2));
    let cases: [(&[Input], &str); 5] = [
        (&[Input::VmDetached { vm }], "blue/server#1: goes on in A, ends with its VM in B"),
        (&[Input::ProcessGone { process }], "blue/server#1: goes on in A, ends in B"),
        (
            &[Input::ProcessGone { process: ProcessId(1) }],
            "red/client#1: goes on in A, ends with a pending wait in B",
        ),
        (&[Input::ProcessFrozen { process, frozen: true }], "blue/server#1 frozen: 0 times in A, 1 in B"),
        (&[Input::VmPaused { vm, paused: true }], "VM blue paused: 0 times in A, 1 in B"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    crossed(&one, &[]);
    for (happens, words) in cases {
        crossed(&other, happens);
        let found = compare(&one, &other);
        assert!(!found.is_same() && found.to_string().contains(words), "{words}: {found}");
        assert!(!compare(&other, &one).is_same());
        assert!(compare(&other, &other).is_same());
    }
}

#[test]
fn a_process_that_ends_with_its_vm_ends_otherwise_than_one_that_exits() {
    let (process, vm) = (ProcessId(2), VmId(2));
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    crossed(&one, &[Input::ProcessGone { process }]);
    crossed(&other, &[Input::VmDetached { vm }]);
    let found = compare(&one, &other);
    assert!(found.to_string().contains("blue/server#1: ends in A, ends with its VM in B"), "{found}");
    assert!(!found.is_same());
}

/// An event may be used again by a wait while none with it is pending.
#[test]
fn a_wake_up_ends_the_latest_wait_and_not_one_that_was_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for (path, value) in [(&one, 5), (&other, 4)] {
        common::pair(path, |session, client, server, [frames, theirs]| {
            let event = session.wait(server, &[(theirs, 5)]);
            session.call(server.process, Call::CancelWait { event });
            session.now += 1_000;
            let (objects, values) = (vec![theirs].into(), vec![5].into());
            let (device, flags) = (server.device, WaitFromCpuFlags::empty());
            session.call(server.process, Call::WaitFromCpu { device, objects, values, flags, event });
            session.signal(client, frames, value);
            session.input(Input::ProcessGone { process: server.process });
        });
    }
    let found = compare(&one, &other);
    assert!(found.to_string().contains("red/server#1: ends in A, ends with a pending wait in B"), "{found}");
    assert!(compare(&one, &one).is_same());
}

/// A recording may stop before the process that acted last has ended.
#[test]
fn the_end_of_the_last_process_is_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for (path, ends) in [(&one, false), (&other, true)] {
        let mut session = common::Session::new(path);
        let client = session.guest(0, 1, "client");
        session.fence(client, SyncObjectFlags::empty());
        if ends {
            session.input(Input::ProcessGone { process: client.process });
        }
        session.finish();
    }
    assert!(compare(&one, &other).is_same() && compare(&other, &one).is_same());
}

#[test]
fn the_random_values_of_nt_handles_are_no_difference_but_what_they_open_is() {
    let [one, same, other] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    shares(one.path(), [[7; 16], [9; 16]], 0);
    shares(same.path(), [[5; 16], [2; 16]], 0);
    shares(other.path(), [[5; 16], [2; 16]], 1);
    let found = compare(one.path(), same.path());
    assert!(found.is_same(), "{found}");
    let found = compare(one.path(), other.path());
    let [divergence] = &found.divergences[..] else { panic!("{found}") };
    assert_eq!((divergence.process.as_str(), divergence.same_call), ("red/server#1", false));
}

#[test]
fn other_order_between_processes_is_no_difference() {
    let [one, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    common::pair(one.path(), |session, client, server, [frames, theirs]| {
        session.signal(client, frames, 1);
        session.wait(server, &[(theirs, 9)]);
    });
    common::pair(other.path(), |session, client, server, [frames, theirs]| {
        session.wait(server, &[(theirs, 9)]);
        session.signal(client, frames, 1);
    });
    let found = compare(one.path(), other.path());
    assert!(found.is_same(), "{found}");
}

/// Two processes of one program, of which one waits and the other signals; `first` of them attaches first.
fn of_one_program(path: &Path, first: usize, value: u64) {
    let mut session = common::Session::new(path);
    session.vm(1, "red");
    let mut guests = [0, 1].map(|number| session.guest(1, number + 1, "drv"));
    guests.rotate_left(first);
    let [signaler, waiter] = guests;
    let (own, theirs) = session.shared_fence(signaler, waiter, "frames");
    session.wait(waiter, &[(theirs, 5)]);
    session.advance(1000, 0);
    session.signal(signaler, own, value);
    session.finish();
}

#[test]
fn processes_of_one_name_are_paired_by_their_calls() {
    let [one, other, lost] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    of_one_program(one.path(), 0, 5);
    of_one_program(other.path(), 1, 5);
    of_one_program(lost.path(), 1, 4);
    let found = compare(one.path(), other.path());
    assert!(found.is_same(), "{found}");
    // A call that differs does not lead to another pair.
    let found = compare(one.path(), lost.path());
    let [divergence] = &found.divergences[..] else { panic!("{found}") };
    assert!(divergence.words.0.contains("SignalFromCpu"), "{found}");
    assert_eq!((found.missing.len(), found.extra.len()), (1, 0), "{found}");
}

#[test]
fn first_difference_comes_first_and_its_consequences_after_it() {
    let [one, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    let calls = |value: u64| {
        move |session: &mut common::Session, client, server, [frames, theirs]: [d3dkmt::Handle; 2]| {
            session.wait(server, &[(theirs, 5)]);
            session.signal(client, frames, value);
            session.wait(server, &[(theirs, 5)]);
        }
    };
    common::pair(one.path(), calls(5));
    // One signal is too low: it wakes no wait, and the same wait gets a different answer.
    common::pair(other.path(), calls(4));
    let found = compare(one.path(), other.path());
    assert!(!found.is_same());
    let [other_call, other_answer] = &found.divergences[..] else { panic!("{found}") };
    assert_eq!((other_call.process.as_str(), other_call.same_call), ("red/client#1", false));
    assert!(
        other_call.words.0.contains("SignalFromCpu") && other_call.words.0.contains('5'),
        "{other_call:?}"
    );
    assert_eq!((other_answer.process.as_str(), other_answer.same_call), ("red/server#1", true));
    assert_eq!(found.wakes, (1, 0));
    assert_eq!(found.missing, [("red/server#1".to_owned(), 1)]);
    assert_eq!(found.json()["woken_a_only"][0]["event"], 1);
    let back = compare(other.path(), one.path());
    assert_eq!(back.extra, [("red/server#1".to_owned(), 1)]);
    let text = found.to_string();
    assert!(text.starts_with("first difference: red/client#1 made a different call "), "{text}");
}

#[test]
fn global_handles_are_compared_by_the_process_that_made_them() {
    let record = |path: &Path, order: [usize; 2], opened: usize| {
        let mut session = common::Session::new(path);
        let processes = [session.guest(0, 1, "one"), session.guest(0, 2, "two")];
        let mut handles = [Handle::NULL; 2];
        for at in order {
            let info = SyncObjectInfo {
                object_type: SyncObjectType::SEMAPHORE,
                flags: SyncObjectFlags::SHARED,
                max_count: 2,
                ..SyncObjectInfo::default()
            };
            let device = processes[at].device;
            let create = Call::CreateSynchronizationObject { device, info, legacy: false };
            let Reply::SyncObject(made) = session.call(processes[at].process, create) else { panic!() };
            handles[at] = made.shared_handle;
        }
        let open = Call::OpenSynchronizationObject { shared_handle: handles[opened] };
        session.call(processes[1].process, open);
        session.finish();
        handles
    };
    let [one, other, theirs] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    let [handles, swapped] = [record(one.path(), [0, 1], 0), record(other.path(), [1, 0], 0)];
    assert_ne!(handles, swapped);
    let found = compare(one.path(), other.path());
    assert!(found.is_same(), "{found}");
    record(theirs.path(), [0, 1], 1);
    assert!(!compare(one.path(), theirs.path()).is_same(), "another object");
}

/// A step may finish earlier work of its process, and answer that first.
#[test]
fn beside_a_call_that_differs_stands_its_own_answer() {
    let record = |path: &Path, status: NtStatus| {
        let mut recorder = trace::Recorder::create(path, &dxgkrnl::Config::default(), "a test").unwrap();
        let process = dxgkrnl::ProcessId(1);
        let call = Call::EnumAdapters { capacity: 1 };
        let answer = |request, status| dxgkrnl::Answer { process, request, status, reply: Reply::None };
        let answers = vec![answer(1, NtStatus::SUCCESS), answer(2, status)];
        recorder.begin(1, &Input::Call { process, request: 2, call }).unwrap();
        recorder.end(&dxgkrnl::Effects { answers, ..dxgkrnl::Effects::default() }).unwrap();
        recorder.finish(0).unwrap();
    };
    let [one, other] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    record(one.path(), NtStatus::SUCCESS);
    record(other.path(), NtStatus::DEVICE_REMOVED);
    let found = compare(one.path(), other.path());
    let [divergence] = &found.divergences[..] else { panic!("{found}") };
    assert!(divergence.words.1.contains("DEVICE_REMOVED"), "{found}");
    assert!(!divergence.words.1.contains("#1:"), "{found}");
}

/// An escape that waits for an idle GPU is answered in a later step.
#[test]
fn an_answer_of_a_later_step_is_compared_and_shown() {
    let record = |path: &Path, status: NtStatus| {
        let mut recorder = trace::Recorder::create(path, &dxgkrnl::Config::default(), "a test").unwrap();
        let process = dxgkrnl::ProcessId(1);
        let call = Call::EnumAdapters { capacity: 1 };
        recorder.begin(1, &Input::Call { process, request: 2, call }).unwrap();
        recorder.end(&dxgkrnl::Effects::default()).unwrap();
        recorder.begin(9, &Input::Deadline).unwrap();
        let answers = vec![dxgkrnl::Answer { process, request: 2, status, reply: Reply::None }];
        recorder.end(&dxgkrnl::Effects { answers, ..dxgkrnl::Effects::default() }).unwrap();
        recorder.finish(0).unwrap();
    };
    let [one, same, other] = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
    record(one.path(), NtStatus::SUCCESS);
    record(same.path(), NtStatus::SUCCESS);
    record(other.path(), NtStatus::DEVICE_BUSY);
    assert!(compare(one.path(), same.path()).is_same());
    let found = compare(one.path(), other.path());
    let [divergence] = &found.divergences[..] else { panic!("{found}") };
    assert!(divergence.same_call && divergence.words.1.contains("DEVICE_BUSY"), "{found}");
    assert!(divergence.words.1.contains("in step #2"), "{found}");
}

#[test]
fn a_call_that_a_later_step_refuses_is_counted_as_refused_and_not_as_one_way() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut config = dxgkrnl::Config::default();
    config.tdr.delay_ns = 100_000_000;
    config.tdr.level = 0;
    let mut session = common::Session::with_config(file.path(), config);
    let client = session.guest(0, 1, "client");
    let Reply::Adapters(adapters) = session.call(client.process, Call::EnumAdapters { capacity: 4 }) else {
        panic!()
    };
    let context = session.context(client, 0, d3dkmt::CreateContextFlags::empty());
    session.submit(client, context, &[d3dkmt::isa::Packet::Hang]);
    let (adapter, none) = (adapters[0].handle, Handle::NULL);
    let (kind, flags) = (d3dkmt::escape::kind::DRIVER_PRIVATE, d3dkmt::EscapeFlags::HARDWARE_ACCESS);
    let escape = Call::Escape { adapter, device: none, context: none, kind, flags, data: vec![0; 32] };
    let (effects, request) = session.try_call(client.process, escape);
    assert!(effects.answer_to(client.process, request).is_none());
    session.advance(1_000_000_000, 0);
    session.finish();
    let stats = common::timeline_of(file.path()).stats_json();
    let escapes = &stats["calls"]["Escape"];
    assert_eq!(
        (&escapes["count"], &escapes["one_way"], &escapes["refused"]),
        (&1.into(), &0.into(), &1.into())
    );
    assert_eq!(stats["statuses"]["DEVICE_BUSY"], 1);
    assert_eq!(stats["processes"][0]["refused"], 1);
}
