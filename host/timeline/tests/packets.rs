//! Packets that leave queues: what they did, as the kernel reports it.

mod common;

use common::{ClientProcess, Session, busy};
use d3dkmt::{Call, CreateContextFlags, GpuSignal, Handle, NtStatus, SignalFlags, SyncObjectFlags, calls};
use dxgkrnl::policy::RefusedOneWay;
use dxgkrnl::{Config, EngineId, Fault, Input, Policy};
use timeline::lanes::{Selection, text};
use timeline::{Outcome, Packet, PacketKind, Timeline};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };

/// Records a session of a client, and reads it.
fn recorded(steps: impl FnOnce(&mut Session, ClientProcess)) -> Timeline {
    recorded_with(Policy::default(), steps)
}

fn recorded_with(policy: Policy, steps: impl FnOnce(&mut Session, ClientProcess)) -> Timeline {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut session = Session::with_config(file.path(), Config { policy, ..Config::default() });
    session.vm(1, "red");
    let client = session.guest(1, 1, "client");
    steps(&mut session, client);
    session.finish();
    common::timeline_of(file.path())
}

/// Steps in which packets of this kind left their queues, and their outcomes.
fn ended(timeline: &Timeline, kind: PacketKind) -> Vec<(u64, Outcome)> {
    let of_kind = |packet: &&Packet| packet.kind == kind;
    timeline.packets.iter().filter(of_kind).map(|one| (one.end.sequence, one.outcome)).collect()
}

fn lanes(timeline: &Timeline) -> String {
    text(timeline, &Selection::Last(1000), 140).unwrap()
}

/// A queue with a running command and a signal of a fence behind it. Returns the context and the fence.
fn signal_behind_work(session: &mut Session, client: ClientProcess) -> (Handle, Handle) {
    let context = session.context(client, 0, CreateContextFlags::empty());
    let fence = session.fence(client, SyncObjectFlags::empty()).object;
    session.submit(client, context, &[busy(1_000_000)]);
    session.gpu_signal(client, context, fence, 1);
    (context, fence)
}

#[test]
fn signal_of_a_lost_device_is_dropped_in_the_step_of_the_loss() {
    let mut lost_in = 0;
    let timeline = recorded(|session, client| {
        let (_, fence) = signal_behind_work(session, client);
        session.wait(client, &[(fence, 9)]);
        session.advance(10_000, 0);
        session.call(client.process, Call::MarkDeviceAsError { device: client.device, reason: 0 });
        lost_in = session.steps;
        session.advance(10_000_000, 0);
    });
    assert_eq!(ended(&timeline, PacketKind::Signal), [(lost_in, Outcome::Dropped)]);
    let lanes = lanes(&timeline);
    assert!(lanes.contains("queue signal dropped F0 = 1") && !lanes.contains("queue signals"), "{lanes}");
    assert!(!lanes.contains("queue wait"), "{lanes}");
    // Its command runs to its end.
    assert_eq!(ended(&timeline, PacketKind::Command)[0].1, Outcome::Done);
    assert_eq!(timeline.fences[0].signals, 0);
}

#[test]
fn signal_of_a_stopped_adapter_is_dropped() {
    let mut stopped_in = 0;
    let timeline = recorded(|session, client| {
        signal_behind_work(session, client);
        session.advance(10_000, 0);
        session.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
        stopped_in = session.steps;
    });
    assert_eq!(ended(&timeline, PacketKind::Signal), [(stopped_in, Outcome::Dropped)]);
    assert_eq!(ended(&timeline, PacketKind::Command), [(stopped_in, Outcome::Dropped)]);
}

/// A signal of two fences, of which one has a higher value already.
#[test]
fn each_fence_of_a_signal_is_judged_by_itself() {
    for lower_is_first in [true, false] {
        let timeline = recorded(|session, client| {
            let context = session.context(client, 0, CreateContextFlags::empty());
            let [high, fence] = [(); 2].map(|()| session.fence(client, SyncObjectFlags::empty()).object);
            session.signal(client, high, 10);
            session.wait(client, &[(fence, 7)]);
            session.submit(client, context, &[busy(1_000_000)]);
            let mut targets = [(high, 3), (fence, 7)];
            if !lower_is_first {
                targets.reverse();
            }
            let (objects, values) =
                (targets.map(|one| one.0).to_vec().into(), targets.map(|one| one.1).to_vec().into());
            let signal = GpuSignal::Monitored { objects, values };
            let (contexts, flags) = (vec![context].into(), SignalFlags::empty());
            session.call(client.process, Call::SignalFromGpu { contexts, signal, flags });
            session.advance(10_000_000, 0);
        });
        let [(_, outcome)] = ended(&timeline, PacketKind::Signal)[..] else { panic!("one signal") };
        let signals: Vec<_> = timeline.fences.iter().map(|fence| fence.signals).collect();
        assert_eq!((outcome, signals), (Outcome::Done, vec![1, 1]));
    }
}

/// The second report of the later wait is none of the earlier one.
#[test]
fn wait_of_two_fences_takes_its_own_reports() {
    let mut lost_in = 0;
    let timeline = recorded(|session, client| {
        let context = session.context(client, 0, CreateContextFlags::empty());
        let [first, both, third] = [(); 3].map(|()| session.fence(client, SyncObjectFlags::empty()).object);
        session.signal(client, both, 5);
        session.signal(client, third, 1);
        session.submit(client, context, &[busy(1_000_000)]);
        for fence in [first, third] {
            let (objects, values) = (vec![fence, both].into(), vec![1, 5].into());
            session.call(client.process, Call::WaitFromGpu { context, objects, values });
        }
        session.advance(10_000_000, 0);
        session.call(client.process, Call::MarkDeviceAsError { device: client.device, reason: 0 });
        lost_in = session.steps;
    });
    let waits = ended(&timeline, PacketKind::Wait);
    assert!(waits.contains(&(lost_in, Outcome::Dropped)), "the first one still waits: {waits:?}");
    assert_eq!(waits.len(), 2);
}

#[test]
fn refused_one_way_call_puts_nothing_into_its_queue() {
    // So that the refused call does not end the device.
    let policy = Policy { refused_one_way: RefusedOneWay::NoteOnly, ..Policy::default() };
    let timeline = recorded_with(policy, |session, client| {
        let (context, fence) = signal_behind_work(session, client);
        // A signal of a CPU event names no objects.
        let flags = SignalFlags::ENQUEUE_CPU_EVENT;
        let (objects, values) = (vec![fence].into(), vec![5].into());
        let signal = GpuSignal::Monitored { objects, values };
        let call = Call::SignalFromGpu { contexts: vec![context].into(), signal, flags };
        session.input(Input::Call { process: client.process, request: 0, call });
        session.input(Input::Call {
            process: client.process,
            request: 0,
            call: calls::gpu_signal(context, fence, 6),
        });
        session.advance(10_000_000, 0);
    });
    let signals: Vec<_> =
        timeline.packets.iter().filter(|packet| packet.kind == PacketKind::Signal).collect();
    let targets: Vec<_> = signals.iter().map(|packet| (packet.targets[0].1, packet.outcome)).collect();
    assert_eq!(targets, [(1, Outcome::Done), (6, Outcome::Done)]);
    assert_eq!(signals[0].end.at, 1_000_000, "the refused call does not end the one that waits");
    let refused = timeline.events.iter().find(|event| event.request == 0 && event.status.is_some()).unwrap();
    assert_eq!(refused.status, Some(NtStatus::INVALID_PARAMETER.0));
    let figures = timeline.stats.calls["SignalFromGpu"];
    assert_eq!((figures.one_way, figures.refused), (2, 1));
}

/// A broadcast by two contexts, of which the second waits for another fence before it.
fn broadcast(session: &mut Session, client: ClientProcess) -> [Handle; 2] {
    let contexts = [0, 1].map(|node| session.context(client, node, CreateContextFlags::empty()));
    let fence = session.fence(client, SyncObjectFlags::empty()).object;
    let gate = session.fence(client, SyncObjectFlags::empty()).object;
    session.gpu_wait(client, contexts[1], gate, 1);
    let (objects, values) = (vec![fence].into(), vec![1].into());
    let signal = GpuSignal::Monitored { objects, values };
    let (contexts_of_call, flags) = (contexts.to_vec().into(), SignalFlags::empty());
    session.call(client.process, Call::SignalFromGpu { contexts: contexts_of_call, signal, flags });
    [fence, gate]
}

#[test]
fn broadcast_signals_when_its_last_queue_reaches_it() {
    let [mut called_in, mut opened_in] = [0; 2];
    let timeline = recorded(|session, client| {
        let [fence, gate] = broadcast(session, client);
        called_in = session.steps;
        session.wait(client, &[(fence, 1)]);
        session.advance(10_000, 0);
        session.signal(client, gate, 1);
        opened_in = session.steps;
    });
    let expected = [(called_in, Outcome::Passed), (opened_in, Outcome::Done)];
    assert_eq!(ended(&timeline, PacketKind::Signal), expected);
    let (lanes, called) = (lanes(&timeline), format!("#{called_in} "));
    assert_eq!(lanes.matches("queue signals F0 = 1").count(), 1, "{lanes}");
    let early = lanes.lines().skip_while(|line| !line.contains(&called));
    let early: Vec<_> = early.skip(1).take_while(|line| !line.trim_start().starts_with('#')).collect();
    assert!(early.iter().any(|line| line.contains("queue reached broadcast F0 = 1")), "{lanes}");
    assert_eq!(timeline.fences[0].signals, 1);
    let second = timeline.packets.iter().rfind(|packet| packet.kind == PacketKind::Signal).unwrap();
    assert_eq!(timeline.waits[0].cause.unwrap().track, second.queue, "the queue that reached it last");
}

#[test]
fn broadcast_with_a_lost_packet_never_signals() {
    let timeline = recorded(|session, client| {
        broadcast(session, client);
        session.call(client.process, Call::MarkDeviceAsError { device: client.device, reason: 0 });
    });
    let outcomes: Vec<_> = ended(&timeline, PacketKind::Signal).iter().map(|one| one.1).collect();
    assert_eq!(outcomes, [Outcome::Passed, Outcome::Dropped]);
    assert_eq!(timeline.fences[0].signals, 0);
    assert!(!lanes(&timeline).contains("queue signals"));
}

#[test]
fn top_of_pipeline_signal_is_done() {
    let timeline = recorded(|session, client| {
        let context = session.context(client, 0, CreateContextFlags::empty());
        let fence = session.fence(client, SyncObjectFlags::TOP_OF_PIPELINE).object;
        session.submit(client, context, &[busy(1_000_000)]);
        session.gpu_signal(client, context, fence, 1);
        session.advance(10_000_000, 0);
    });
    assert_eq!(ended(&timeline, PacketKind::Signal)[0].1, Outcome::Done);
}

/// A reset of one process's work sets a fence to its largest value, which lets the queue of another one run.
#[test]
fn reset_drops_no_packet_of_a_healthy_queue() {
    let mut reset_in = 0;
    let timeline = recorded(|session, client| {
        session.vm(2, "blue");
        let healthy = session.guest(1, 2, "healthy");
        let (hung, of_healthy) = session.shared_fence(client, healthy, "hung");
        let done = session.fence(healthy, SyncObjectFlags::empty()).object;
        let (context, second) = (
            session.context(client, 0, CreateContextFlags::empty()),
            session.context(healthy, 1, CreateContextFlags::empty()),
        );
        session.gpu_wait(healthy, second, of_healthy, 1);
        session.gpu_signal(healthy, second, done, 1);
        session.wait(healthy, &[(done, 1)]);
        session.input(Input::Fault(Fault::Hang { engine: ENGINE }));
        session.submit(client, context, &[busy(5_000)]);
        session.gpu_signal(client, context, hung, 1);
        let before = session.steps;
        session.advance(5_000_000_000, 0);
        reset_in = before;
    });
    let wait = &timeline.waits[0];
    assert!(wait.outcome == Outcome::Done && wait.end.sequence > reset_in, "{wait:?}");
    assert_eq!(ended(&timeline, PacketKind::Wait), [(wait.end.sequence, Outcome::Done)]);
    let signals = ended(&timeline, PacketKind::Signal);
    assert_eq!(signals, [(wait.end.sequence, Outcome::Done), (wait.end.sequence, Outcome::Dropped)]);
    let commands = ended(&timeline, PacketKind::Command);
    assert_eq!(commands.last().unwrap().1, Outcome::Dropped);
    let lanes = lanes(&timeline);
    assert!(
        !lanes.contains("queue wait dropped") && lanes.contains("queue signal dropped F0 = 1"),
        "{lanes}"
    );
    assert!(lanes.contains("queue signals F1 = 1"), "{lanes}");
}

/// A wait for a fence that a reset sets to its largest value, and a signal behind that.
#[test]
fn fence_that_a_reset_sets_is_the_cause_of_the_wake_up() {
    let timeline = recorded(|session, client| {
        let context = session.context(client, 0, CreateContextFlags::empty());
        let other = session.guest(1, 2, "other");
        let (fence, of_other) = session.shared_fence(client, other, "shared");
        session.wait(other, &[(of_other, 1)]);
        session.input(Input::Fault(Fault::Hang { engine: ENGINE }));
        session.submit(client, context, &[busy(5_000)]);
        session.gpu_signal(client, context, fence, 1);
        session.advance(5_000_000_000, 0);
    });
    let cause = timeline.waits[0].cause.expect("the kernel's value");
    assert_eq!((timeline.path(cause.track).as_str(), cause.value), ("kernel", u64::MAX));
    assert_eq!((timeline.fences[0].signals, timeline.fences[0].wakes), (0, 1));
}

#[test]
fn queued_signal_below_the_value_is_no_signal() {
    let timeline = recorded(|session, client| {
        let context = session.context(client, 0, CreateContextFlags::empty());
        let fence = session.fence(client, SyncObjectFlags::empty()).object;
        session.submit(client, context, &[busy(1_000)]);
        session.gpu_signal(client, context, fence, 2);
        session.signal(client, fence, 3);
        session.advance(10_000, 0);
        session.gpu_signal(client, context, fence, 4);
    });
    let signals = ended(&timeline, PacketKind::Signal);
    assert_eq!(signals.iter().map(|one| one.1).collect::<Vec<_>>(), [Outcome::Dropped, Outcome::Done]);
    assert_eq!((timeline.fences[0].signals, timeline.fences[0].value), (2, 4));
    let lanes = lanes(&timeline);
    assert!(
        lanes.contains("queue signal dropped F0 = 2") && lanes.contains("queue signals F0 = 4"),
        "{lanes}"
    );
}
