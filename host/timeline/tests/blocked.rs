//! Waiters at the end of a trace, of all kinds that `why` knows.

mod common;

use common::{ClientProcess, Session, busy};
use d3dkmt::{
    Call, CreateContextFlags, EventId, GpuSignal, Handle, KeyedMutexFlags, Reply, SignalFlags,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType, isa,
};
use dxgkrnl::{Config, TdrConfig};
use timeline::{Options, Timeline};

/// The timelines of what a process does without timeout detection: of the whole trace, and of its last steps with the
/// state before them.
fn timelines(act: impl FnOnce(&mut Session, ClientProcess)) -> [Timeline; 2] {
    let [whole, late] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    let config = Config { tdr: TdrConfig { level: 0, ..TdrConfig::default() }, ..Config::default() };
    let mut session = Session::with_config(whole.path(), config);
    let client = session.guest(0, 1, "client");
    act(&mut session, client);
    session.now += 5_000_000;
    let first_step = session.steps + 1;
    session.input(dxgkrnl::Input::Deadline);
    session.finish();
    common::cut(whole.path(), late.path(), first_step);
    [&whole, &late].map(|file| common::timeline_with(file.path(), &Options::default()))
}

/// The verdicts of what is blocked.
fn verdicts(timeline: &Timeline) -> Vec<&str> {
    let reason = |wait: &timeline::Blocked| timeline.reasons[wait.why].verdict;
    timeline.blocked.iter().map(reason).collect()
}

const ANY: CreateContextFlags = CreateContextFlags::empty();

#[test]
fn a_hung_submission_is_blocked_although_nothing_waits_for_it() {
    for timeline in timelines(|session, client| {
        let context = session.context(client, 0, ANY);
        session.submit(client, context, &[isa::Packet::Hang]);
    }) {
        assert_eq!(verdicts(&timeline), ["hang"]);
        assert!(timeline.why_picture.contains("HANG"));
    }
}

#[test]
fn a_thread_in_a_call_that_waits_for_work_is_blocked() {
    for timeline in timelines(|session, client| {
        let context = session.context(client, 0, ANY);
        session.submit(client, context, &[busy(10_000_000_000)]);
        session.try_call(client.process, Call::DestroyContext { context });
    }) {
        assert_eq!(verdicts(&timeline), ["progressing"]);
    }
}

#[test]
fn a_trace_that_begins_with_a_state_has_its_acquires_and_its_waiting_queues() {
    let acquire = |session: &mut Session, client: ClientProcess| {
        let flags = KeyedMutexFlags::empty();
        let create = Call::CreateKeyedMutex { initial_value: 0, private_data: Vec::new(), flags };
        let Reply::KeyedMutex { mutex, .. } = session.call(client.process, create) else { panic!() };
        let call = Call::AcquireKeyedMutex { mutex, key: 1, timeout: None, event: EventId(900) };
        session.call(client.process, call);
        let (context, fence) =
            (session.context(client, 0, ANY), session.fence(client, SyncObjectFlags::empty()));
        session.now += 1_000_000;
        session.gpu_wait(client, context, fence.object, 5);
    };
    for timeline in timelines(acquire) {
        assert_eq!(verdicts(&timeline), ["waits-for", "waits-for"]);
        let kinds: Vec<_> = timeline.waits.iter().map(|wait| wait.kind).collect();
        assert!(matches!(kinds[..], [timeline::WaitKind::KeyedMutex { key: 1, .. }]), "{kinds:?}");
    }
}

/// The kernel's time stands still while more is due than fits a step, so these calls come later than it.
#[test]
fn a_wait_that_began_in_a_late_step_has_its_step() {
    let [whole, late] = timelines(|session, client| {
        let flags = KeyedMutexFlags::empty();
        let create = Call::CreateKeyedMutex { initial_value: 0, private_data: Vec::new(), flags };
        let Reply::KeyedMutex { mutex, .. } = session.call(client.process, create) else { panic!() };
        let awaited = session.fence(client, SyncObjectFlags::empty()).object;
        for event in 900..1_100 {
            let acquire =
                Call::AcquireKeyedMutex { mutex, key: 1, timeout: Some(-10), event: EventId(event) };
            session.call(client.process, acquire);
        }
        session.now += 1_000_000;
        session.wait(client, &[(awaited, 1)]);
        session.advance(0, 0);
    });
    let [whole, late] = [&whole, &late].map(|timeline| {
        let [wait] = &timeline.blocked[..] else { panic!("{:?}", timeline.blocked) };
        (wait.step, wait.since)
    });
    assert!(whole.0.is_some() && whole.1 < Some(1_000_000), "{whole:?}");
    // The state that this one begins with has the wait, and not its call.
    assert_eq!(late, (None, whole.1));
}

#[test]
fn what_a_queue_waits_for_has_the_kernels_value_and_a_mutex_or_semaphore_has_none() {
    let [timeline, late] = timelines(|session, client| {
        let mut object = |object_type| {
            let info = SyncObjectInfo { object_type, max_count: 3, ..SyncObjectInfo::default() };
            let create = Call::CreateSynchronizationObject { device: client.device, info, legacy: false };
            let Reply::SyncObject(created) = session.call(client.process, create) else { panic!() };
            created.object
        };
        let [semaphore, mutex, fence] =
            [SyncObjectType::SEMAPHORE, SyncObjectType::MUTEX, SyncObjectType::FENCE].map(&mut object);
        let contexts: Vec<Handle> = (0..4).map(|node| session.context(client, node, ANY)).collect();
        let wait = |context, object, value| Call::WaitFromGpuLegacy {
            context,
            objects: [object].as_slice().into(),
            fence_value: value,
        };
        session.call(client.process, wait(contexts[0], mutex, 0));
        for (context, object, value) in [(1, semaphore, 0), (2, mutex, 0), (3, fence, 9)] {
            session.now += 1_000;
            session.call(client.process, wait(contexts[context], object, value));
        }
        let (objects, fence_value) = ([fence].as_slice().into(), 3);
        let signal = GpuSignal::Legacy { objects, fence_value };
        let (contexts, flags) = ([contexts[0]].as_slice().into(), SignalFlags::empty());
        session.call(client.process, Call::SignalFromGpu { contexts, signal, flags });
    });
    let wants: Vec<&str> = timeline.blocked.iter().map(|wait| &*wait.wants[0]).collect();
    assert_eq!(wants, ["F0, count is 0", "F1 is owned", "F2 >= 9, is 3"]);
    assert_eq!(late.blocked.len(), 3);
    let lanes = timeline::lanes::text(&timeline, &timeline::lanes::Selection::Last(20), 120).unwrap();
    let calls: Vec<&str> =
        lanes.lines().filter_map(|line| line.split_once("GpuLegacy ")).map(|line| line.1).collect();
    assert_eq!(calls, ["F1", "F0", "F1", "F2 >= 9"], "{lanes}");
}
