//! `D3DKMTWaitForIdle` and what ends it.

use std::pin::Pin;

use d3dkmt::{CreateContextFlags, DeviceExecutionState, Handles, Values};

use super::*;
use crate::NewContext;

const CONTEXT: Handle = Handle(0x4000_0400);
const OTHER: Handle = Handle(0x4000_0440);
const FENCE: Handle = Handle::local(101, 1);

/// A device with a context, and a thread that waits for the context.
struct Idle {
    session: Session<SimulatedPort>,
}

impl Idle {
    fn new() -> Idle {
        let (session, _) = session_with_fences(welcome(), &[]);
        let idle = Idle { session };
        idle.create_context(CONTEXT);
        idle
    }

    fn create_context(&self, context: Handle) {
        let new = NewContext {
            device: DEVICE,
            node_ordinal: 0,
            engine_affinity: 0,
            flags: CreateContextFlags::empty(),
            client_hint: 0,
            private_data: vec![],
        };
        let creating = self.session.create_context(new);
        assert_eq!(serve(&self.session, creating, |_, _| Reply::Context(context)), Ok(context));
    }

    /// The operation makes this one call, and gets an answer.
    fn answered<T: PartialEq + std::fmt::Debug>(
        &self,
        operation: Pin<&mut impl Future<Output = T>>,
        (status, reply): (NtStatus, Reply),
    ) -> Call {
        assert!(poll_once(operation).is_pending());
        let (request, call) = one_call(self.session.port());
        self.session.port().receive(&answer(request, status, &reply));
        call
    }
}

const DONE: (NtStatus, Reply) = (NtStatus::SUCCESS, Reply::None);

fn signal_from_cpu() -> Call {
    let (objects, values) = (Handles::from_slice(&[FENCE]), Values::from_slice(&[1]));
    Call::SignalFromCpu { device: DEVICE, objects, values, flags: SignalFlags::empty() }
}

fn state(state: DeviceExecutionState) -> (NtStatus, Reply) {
    (NtStatus::SUCCESS, Reply::DeviceState(state.0))
}

/// Work that another thread queues while the first wait blocks is behind each signal.
#[test]
fn all_signals_are_queued_before_the_first_wait() {
    covers!("FEN-142");
    let idle = Idle::new();
    idle.create_context(OTHER);
    let mut waiting = pin!(idle.session.wait_for_idle(DEVICE));
    for slot in 1..3 {
        idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, created(slot)));
    }
    let mut signaled = [(); 2].map(|()| match idle.answered(waiting.as_mut(), DONE) {
        Call::SignalFromGpu { contexts, signal: GpuSignal::Monitored { objects, values }, .. } => {
            assert_eq!(values[..], [1]);
            (contexts[0], objects[0])
        }
        other => panic!("not a signal: {other:?}"),
    });
    let fences = signaled.map(|(_, fence)| fence);
    assert_eq!(fences, [FENCE, Handle::local(102, 1)]);
    signaled.sort();
    assert_eq!(signaled.map(|(context, _)| context), [CONTEXT, OTHER]);
    for fence in fences {
        let wait = idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, REGISTERED));
        let Call::WaitFromCpu { objects, values, event, .. } = wait else { panic!("{wait:?}") };
        assert_eq!((&objects[..], &values[..]), (&[fence][..], &[1][..]));
        assert!(poll_once(waiting.as_mut()).is_pending());
        idle.session.port().receive(&wake(event, NtStatus::SUCCESS));
    }
    for object in fences {
        assert_eq!(idle.answered(waiting.as_mut(), DONE), Call::DestroySynchronizationObject { object });
    }
    assert_eq!(idle.answered(waiting.as_mut(), state(DeviceExecutionState::ACTIVE)), STATE);
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
}

#[test]
fn a_context_that_another_thread_destroys_ends_the_wait_for_it() {
    covers!("FEN-142", "FEN-144");
    let idle = Idle::new();
    let session = &idle.session;
    let mut waiting = pin!(session.wait_for_idle(DEVICE));
    idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, created(1)));
    let signal = idle.answered(waiting.as_mut(), DONE);
    assert!(matches!(signal, Call::SignalFromGpu { .. }), "{signal:?}");
    let wait = idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, REGISTERED));
    let Call::WaitFromCpu { event, .. } = wait else { panic!("{wait:?}") };
    assert!(poll_once(waiting.as_mut()).is_pending());

    let mut destroying = pin!(session.destroy_context(CONTEXT));
    assert_eq!(idle.answered(destroying.as_mut(), DONE), Call::DestroyContext { context: CONTEXT });
    assert_eq!(idle.answered(destroying.as_mut(), DONE), signal_from_cpu());
    assert_eq!(finished(poll_once(destroying)), NtStatus::SUCCESS);

    session.port().receive(&wake(event, NtStatus::SUCCESS));
    assert_eq!(idle.answered(waiting.as_mut(), DONE), Call::DestroySynchronizationObject { object: FENCE });
    assert_eq!(idle.answered(waiting.as_mut(), state(DeviceExecutionState::ACTIVE)), STATE);
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
}

#[test]
fn a_context_that_is_destroyed_before_its_signal_is_idle() {
    covers!("FEN-144");
    let idle = Idle::new();
    let session = &idle.session;
    let mut waiting = pin!(session.wait_for_idle(DEVICE));
    idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, created(1)));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (signal, _) = one_call(session.port());
    let mut destroying = pin!(session.destroy_context(CONTEXT));
    idle.answered(destroying.as_mut(), DONE);
    session.port().receive(&answer(signal, NtStatus::INVALID_PARAMETER, &Reply::None));
    assert_eq!(idle.answered(waiting.as_mut(), DONE), Call::DestroySynchronizationObject { object: FENCE });
    idle.answered(waiting.as_mut(), state(DeviceExecutionState::ACTIVE));
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
}

/// As one that owns a mutex.
#[test]
fn a_context_that_the_host_does_not_destroy_is_waited_for_as_before() {
    covers!("FEN-142");
    let idle = Idle::new();
    let mut destroying = pin!(idle.session.destroy_context(CONTEXT));
    idle.answered(destroying.as_mut(), (NtStatus::INVALID_PARAMETER, Reply::None));
    assert_eq!(finished(poll_once(destroying)), NtStatus::INVALID_PARAMETER);
    let mut waiting = pin!(idle.session.wait_for_idle(DEVICE));
    idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, created(1)));
    let signal = idle.answered(waiting.as_mut(), DONE);
    assert!(matches!(signal, Call::SignalFromGpu { .. }), "{signal:?}");
}

#[test]
fn a_refused_signal_and_a_lost_device_are_told() {
    covers!("FEN-144");
    for (lost, expected) in [
        (DeviceExecutionState::ACTIVE, NtStatus::NO_MEMORY),
        (DeviceExecutionState::STOPPED, NtStatus::DEVICE_REMOVED),
    ] {
        let idle = Idle::new();
        let mut waiting = pin!(idle.session.wait_for_idle(DEVICE));
        idle.answered(waiting.as_mut(), (NtStatus::SUCCESS, created(1)));
        idle.answered(waiting.as_mut(), (NtStatus::NO_MEMORY, Reply::None));
        idle.answered(waiting.as_mut(), DONE);
        idle.answered(waiting.as_mut(), state(lost));
        assert_eq!(finished(poll_once(waiting)), expected);
        // Nothing is signaled for a wait that is over.
        let destroying = idle.session.destroy_context(CONTEXT);
        assert_eq!(serve(&idle.session, destroying, |_, _| Reply::None), NtStatus::SUCCESS);
    }
}

/// The host drops a queued event with its last context, and says nothing about it.
#[test]
fn an_event_in_the_queue_of_a_destroyed_context_is_forgotten() {
    covers!("FEN-036");
    let idle = Idle::new();
    idle.create_context(OTHER);
    let (port, event) = (idle.session.port(), SimulatedEvent::default());
    let queue = |contexts: &[Handle]| {
        let (contexts, flags) = (Handles::from_slice(contexts), SignalFlags::ENQUEUE_CPU_EVENT);
        let mut queuing = pin!(idle.session.signal_event_from_gpu(contexts, flags, event.clone()));
        idle.answered(queuing.as_mut(), DONE);
        assert_eq!(finished(poll_once(queuing)), NtStatus::SUCCESS);
    };
    let destroy = |context| {
        let mut destroying = pin!(idle.session.destroy_context(context));
        idle.answered(destroying.as_mut(), DONE);
        assert_eq!(finished(poll_once(destroying)), NtStatus::SUCCESS);
    };
    queue(&[CONTEXT]);
    queue(&[CONTEXT, OTHER]);
    destroy(CONTEXT);
    assert_eq!(port.pending(), 1, "the other context may still reach the broadcast");
    idle.create_context(CONTEXT);
    queue(&[CONTEXT]);
    let mut destroying = pin!(idle.session.destroy_device(DEVICE));
    idle.answered(destroying.as_mut(), DONE);
    assert_eq!(finished(poll_once(destroying)), NtStatus::SUCCESS);
    assert_eq!((port.pending(), event.take()), (0, 0));
}

/// Another thread's destruction says nothing about a context whose own is not answered.
#[test]
fn an_event_stays_until_the_destruction_of_its_own_context_is_answered() {
    covers!("FEN-036");
    let idle = Idle::new();
    idle.create_context(OTHER);
    let (port, event) = (idle.session.port(), SimulatedEvent::default());
    let (contexts, flags) = (Handles::from_slice(&[CONTEXT]), SignalFlags::ENQUEUE_CPU_EVENT);
    let mut queuing = pin!(idle.session.signal_event_from_gpu(contexts, flags, event.clone()));
    let queued = idle.answered(queuing.as_mut(), DONE);
    let Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event: name }, .. } = queued else {
        panic!("not the signal: {queued:?}")
    };
    assert_eq!(finished(poll_once(queuing)), NtStatus::SUCCESS);
    let mut destroying = pin!(idle.session.destroy_context(CONTEXT));
    assert!(poll_once(destroying.as_mut()).is_pending());
    let (request, _) = one_call(port);
    let mut other = pin!(idle.session.destroy_context(OTHER));
    idle.answered(other.as_mut(), DONE);
    assert_eq!(finished(poll_once(other)), NtStatus::SUCCESS);
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!(event.take(), 1);
    port.receive(&answer(request, NtStatus::SUCCESS, &Reply::None));
    assert_eq!(finished(poll_once(destroying)), NtStatus::SUCCESS);
    assert_eq!(port.pending(), 0);
}
