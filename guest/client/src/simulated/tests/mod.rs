//! The session over the simulated port: what the threads of umd do, one step at a time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use covers::covers;
use d3dkmt::{
    CreatedSyncObject, GpuSignal, GuestEvent, Handle, Reply, SignalFlags, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType, WaitFromCpuFlags, WaitOutcome, WakeTarget,
};
use proto::channel::{ToGuest, ToHost, to_guest, to_host};
use proto::convert::{answer_to_frame, call_from_body, wake_to_frame};
use proto::frame::decode;

use super::*;
use crate::{CreatedFence, Location, Session, poll_once};

const ADAPTER: Handle = Handle(0x4000_0040);
const DEVICE: Handle = Handle(0x4000_0080);
const ALL: WaitFromCpuFlags = WaitFromCpuFlags::empty();
const REGISTERED: Reply = Reply::Wait(WaitOutcome::Registered);
const SATISFIED: Reply = Reply::Wait(WaitOutcome::Satisfied);
const STATE: Call = Call::GetDeviceState { device: DEVICE, state_type: 1 };

type Fence = CreatedFence<SimulatedLocation>;

fn welcome() -> Welcome {
    Welcome { version: proto::PROTOCOL_VERSION, process: 7, ..Welcome::default() }
}

fn new_session(welcome: Welcome) -> Session<SimulatedPort> {
    Session::new(SimulatedPort::new(SimulatedMemory::new(64)), welcome)
}

/// A session with a device, and a monitored fence of each value.
fn session_with_fences(welcome: Welcome, values: &[u64]) -> (Session<SimulatedPort>, Vec<Fence>) {
    let session = new_session(welcome);
    let creating = session.create_device(ADAPTER, 0);
    assert_eq!(serve(&session, creating, |_, _| Reply::Device(DEVICE)), Ok(DEVICE));
    let fences = (0..).zip(values).map(|(slot, value)| create_fence(&session, slot, *value, 0)).collect();
    (session, fences)
}

fn create_fence(session: &Session<SimulatedPort>, slot: u32, value: u64, flags: u32) -> Fence {
    let creating = session.create_sync_object(DEVICE, fence_info(value, flags), false, None);
    let created = serve(session, creating, |_, _| {
        session.port().memory().store(slot, value);
        let mut reply = created(slot);
        if let Reply::SyncObject(created) = &mut reply {
            created.no_wait = flags & SyncObjectFlags::NO_WAIT.bits() != 0;
        }
        reply
    });
    created.expect("creates")
}

fn fence_info(initial_value: u64, flags: u32) -> SyncObjectInfo {
    let object_type = SyncObjectType::MONITORED_FENCE;
    let flags = SyncObjectFlags::from_bits_retain(flags);
    SyncObjectInfo { object_type, flags, initial_value, ..SyncObjectInfo::default() }
}

fn created(slot: u32) -> Reply {
    let (object, slot) = (Handle::local(100 + slot, 1), Some(slot));
    Reply::SyncObject(CreatedSyncObject {
        object,
        shared_handle: Handle::NULL,
        slot,
        gpu_address: 0,
        paging_fence_value: 0,
        no_wait: false,
    })
}

/// Runs one operation whose one call `host` answers.
fn serve<T>(
    session: &Session<SimulatedPort>,
    operation: impl Future<Output = T>,
    host: impl FnOnce(u64, Call) -> Reply,
) -> T {
    let mut operation = pin!(operation);
    assert!(poll_once(operation.as_mut()).is_pending());
    let (request, call) = one_call(session.port());
    let reply = host(request, call);
    session.port().receive(&answer(request, NtStatus::SUCCESS, &reply));
    finished(poll_once(operation))
}

fn finished<T>(poll: Poll<T>) -> T {
    match poll {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the operation is over"),
    }
}

/// The calls that the guest has written since the last time, with their request numbers.
fn calls(port: &SimulatedPort) -> Vec<(u64, Call)> {
    let mut frames = proto::frame::FrameBuffer::default();
    frames.extend(&port.take_outbound());
    let mut calls = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        let frame: ToHost = decode(frame).unwrap();
        calls.push((frame.request, call_from_body(frame.body.unwrap()).unwrap()));
    }
    assert_eq!(frames.pending(), 0);
    calls
}

fn one_call(port: &SimulatedPort) -> (u64, Call) {
    let mut calls = calls(port);
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

/// The guest has written one CPU wait: its request and its event.
fn one_wait(port: &SimulatedPort) -> (u64, EventId) {
    match one_call(port) {
        (request, Call::WaitFromCpu { event, .. }) => (request, event),
        (_, other) => panic!("not a wait: {other:?}"),
    }
}

fn bytes(frame: &ToGuest) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(frame, &mut bytes);
    bytes
}

fn answer(request: u64, status: NtStatus, reply: &Reply) -> Vec<u8> {
    bytes(&answer_to_frame(request, status, reply))
}

fn wake(event: EventId, status: NtStatus) -> Vec<u8> {
    bytes(&wake_to_frame(event, status))
}

/// Counts how often a future's task was woken.
#[derive(Default)]
struct CountedWakes(AtomicU32);

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_call_is_pending_until_its_answer_comes() {
    let session = new_session(welcome());
    let port = session.port();
    let mut calling = pin!(session.call(&STATE));
    assert!(poll_once(calling.as_mut()).is_pending());
    assert!(poll_once(calling.as_mut()).is_pending(), "polled for nothing");
    let (request, call) = one_call(port);
    assert_eq!((request, call, port.messages_sent(), port.pending()), (1, STATE, 1, 1));
    port.receive(&answer(99, NtStatus::UNSUCCESSFUL, &Reply::None));
    assert!(poll_once(calling.as_mut()).is_pending(), "an unexpected answer");
    port.receive(&answer(request, NtStatus::SUCCESS, &Reply::DeviceState(3)));
    let expected = Answer { status: NtStatus::SUCCESS, reply: Reply::DeviceState(3) };
    assert_eq!(finished(poll_once(calling)), expected);
    assert_eq!((port.pending(), port.take_outbound()), (0, vec![]));
}

#[test]
fn a_future_is_woken_when_its_answer_comes_and_not_before() {
    let session = new_session(welcome());
    let counted = Arc::new(CountedWakes::default());
    let waker = Waker::from(counted.clone());
    let mut calling = pin!(session.call(&STATE));
    assert!(calling.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    session.port().receive(&answer(2, NtStatus::SUCCESS, &Reply::None));
    assert_eq!(counted.0.load(Ordering::Relaxed), 0);
    session.port().receive(&answer(1, NtStatus::SUCCESS, &Reply::None));
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    assert!(poll_once(calling).is_ready());
}

#[test]
fn a_blocking_wait_ends_with_its_wake_whatever_comes_first() {
    covers!("FEN-027");
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let port = session.port();
    let objects = [fences[0].object];
    for (wake_first, in_one) in [(false, true), (false, false), (true, true), (true, false)] {
        for status in [NtStatus::SUCCESS, NtStatus::ABANDONED, NtStatus::DEVICE_REMOVED] {
            let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
            assert!(poll_once(waiting.as_mut()).is_pending());
            let (request, event) = one_wait(port);
            let mut pieces = [answer(request, NtStatus::SUCCESS, &REGISTERED), wake(event, status)];
            if wake_first {
                pieces.reverse();
            }
            if in_one {
                port.receive(&pieces.concat());
            } else {
                port.receive(&pieces[0]);
                assert!(poll_once(waiting.as_mut()).is_pending());
                port.receive(&pieces[1]);
            }
            assert_eq!(finished(poll_once(waiting)), status);
            assert_eq!(port.pending(), 0);
        }
    }
}

#[test]
fn a_wait_that_is_not_registered_ends_with_its_answer() {
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let objects = [fences[0].object];
    for (status, reply, outcome) in [
        (NtStatus::SUCCESS, SATISFIED, NtStatus::SUCCESS),
        (NtStatus::ACCESS_DENIED, Reply::None, NtStatus::ACCESS_DENIED),
        (NtStatus::SUCCESS, Reply::None, NtStatus::INTERNAL_ERROR),
    ] {
        let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
        assert!(poll_once(waiting.as_mut()).is_pending());
        let (request, _) = one_wait(session.port());
        session.port().receive(&answer(request, status, &reply));
        assert_eq!(finished(poll_once(waiting)), outcome);
        assert_eq!(session.port().pending(), 0, "the wake is forgotten");
    }
    let lines = session.port().take_lines();
    assert!(matches!(&lines[..], [line] if line.contains("WaitFromCpu")), "{lines:?}");
}

#[test]
fn frames_may_come_one_byte_at_a_time() {
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let objects = [fences[0].object];
    let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (request, event) = one_wait(session.port());
    let frames = [answer(request, NtStatus::SUCCESS, &REGISTERED), wake(event, NtStatus::ABANDONED)].concat();
    let (last, before) = frames.split_last().unwrap();
    for byte in before {
        session.port().receive(&[*byte]);
        assert!(poll_once(waiting.as_mut()).is_pending());
    }
    session.port().receive(&[*last]);
    assert_eq!(finished(poll_once(waiting)), NtStatus::ABANDONED);
}

#[test]
fn an_event_is_set_once_and_only_for_its_own_wake() {
    covers!("W-105", "W-107", "EVT-026", "FEN-028");
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let port = session.port();
    let objects = [fences[0].object];
    let event = SimulatedEvent::default();
    let wait = || session.wait_from_cpu(DEVICE, &objects, &[1], ALL, Some(event.clone()));

    // The wake may overtake the end of the call, even its answer.
    let mut waiting = pin!(wait());
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (request, name) = one_wait(port);
    port.receive(&[wake(name, NtStatus::SUCCESS), answer(request, NtStatus::SUCCESS, &REGISTERED)].concat());
    assert_eq!(event.take(), 1);
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!((event.take(), port.pending()), (0, 0));

    assert_eq!(serve(&session, wait(), |_, _| REGISTERED), NtStatus::SUCCESS);
    assert_eq!((event.take(), port.pending()), (0, 1), "armed beyond the call");
    port.receive(&wake(EventId(name.0 + 1), NtStatus::SUCCESS));
    assert_eq!((event.take(), port.pending()), (1, 0));

    assert_eq!(serve(&session, wait(), |_, _| SATISFIED), NtStatus::SUCCESS);
    assert_eq!((event.take(), port.pending()), (1, 0), "satisfied meanwhile");

    let mut refused = pin!(wait());
    assert!(poll_once(refused.as_mut()).is_pending());
    let (request, name) = one_wait(port);
    port.receive(&answer(request, NtStatus::INVALID_HANDLE, &Reply::None));
    assert_eq!(finished(poll_once(refused)), NtStatus::INVALID_HANDLE);
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!((event.take(), port.pending()), (0, 0), "refused");
}

#[test]
fn a_guest_event_of_any_number_ends_no_wait_and_sets_no_event() {
    covers!("EVT-022", "EVT-027");
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let (port, objects, event) = (session.port(), [fences[0].object], SimulatedEvent::default());
    let armed = session.wait_from_cpu(DEVICE, &objects, &[1], ALL, Some(event.clone()));
    assert_eq!(serve(&session, armed, |_, _| REGISTERED), NtStatus::SUCCESS);
    let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (request, name) = one_wait(port);
    port.receive(&answer(request, NtStatus::SUCCESS, &REGISTERED));
    for number in 1..=name.0 + 1 {
        let target = WakeTarget::GuestEvent(GuestEvent(number));
        port.receive(&bytes(&wake_to_frame(target, NtStatus::SUCCESS)));
    }
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert_eq!((event.take(), port.pending()), (0, 2));
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
}

#[test]
fn a_notification_is_set_each_time_until_it_is_destroyed() {
    let (session, _) = session_with_fences(welcome(), &[]);
    let port = session.port();
    let event = SimulatedEvent::default();
    let info = SyncObjectInfo { object_type: SyncObjectType::CPU_NOTIFICATION, ..SyncObjectInfo::default() };
    let mut name = None;
    let object = Handle::local(50, 1);
    let creating = session.create_sync_object(DEVICE, info, false, Some(event.clone()));
    let made = serve(&session, creating, |_, call| {
        let Call::CreateSynchronizationObject { info, .. } = call else { panic!("{call:?}") };
        name = info.event;
        Reply::SyncObject(CreatedSyncObject { object, ..CreatedSyncObject::default() })
    });
    assert_eq!(made.unwrap().object, object);
    let name = name.expect("the host gets a name");
    port.receive(&[wake(name, NtStatus::SUCCESS), wake(name, NtStatus::SUCCESS)].concat());
    assert_eq!((event.take(), port.pending()), (2, 1));
    // The host sends it before it destroys the object.
    let destroyed = serve(&session, session.destroy_sync_object(object), |_, _| {
        port.receive(&wake(name, NtStatus::SUCCESS));
        Reply::None
    });
    assert_eq!((destroyed, event.take(), port.pending()), (NtStatus::SUCCESS, 1, 0));
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!(event.take(), 0);
}

#[test]
fn two_operations_of_one_session_end_in_the_order_of_the_host() {
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let port = session.port();
    let objects = [fences[0].object];
    let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[5], ALL, None));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (wait_request, event) = one_wait(port);
    port.receive(&answer(wait_request, NtStatus::SUCCESS, &REGISTERED));
    assert!(poll_once(waiting.as_mut()).is_pending());

    let mut first = pin!(session.signal_from_cpu(DEVICE, &objects, &[5], SignalFlags::empty()));
    let mut second = pin!(session.call(&STATE));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let sent = calls(port);
    assert_eq!(sent.len(), 2);
    port.receive(&answer(sent[1].0, NtStatus::SUCCESS, &Reply::DeviceState(1)));
    assert!(poll_once(first.as_mut()).is_pending());
    assert_eq!(finished(poll_once(second)).reply, Reply::DeviceState(1));
    port.memory().store(0, 5);
    port.receive(
        &[answer(sent[0].0, NtStatus::SUCCESS, &Reply::None), wake(event, NtStatus::SUCCESS)].concat(),
    );
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
    assert_eq!(finished(poll_once(first)), NtStatus::SUCCESS);
    assert_eq!(port.pending(), 0);
}

mod idle;
mod limits_and_ends;
