//! The simulated miniport at its interface: what it calls back, in which order, and when it wants time.

use d3dkmt::isa::{self, Packet};
use dxgkrnl::ddi::{Callback, EngineId, EngineState, HwContext, Interrupt, Miniport, Submission};
use dxgkrnl::{Config, ProcessId};
use kmd::SimulatedMiniport;

/// Engines of the default adapter: one of the advanced kind, one of the basic kind.
const ADVANCED: EngineId = EngineId { adapter: 0, node: 0 };
const BASIC: EngineId = EngineId { adapter: 0, node: 2 };

const WRITE: Packet = Packet::FenceWrite { gpu_address: 0x1000, value: 7 };

fn busy(duration_ns: u64) -> Packet {
    Packet::Busy { duration_ns }
}

fn started() -> SimulatedMiniport {
    let mut miniport = SimulatedMiniport::default();
    miniport.start(&Config::default());
    miniport
}

/// Submits and gives what was called back at once.
fn submit(
    miniport: &mut SimulatedMiniport,
    now: u64,
    engine: EngineId,
    (context, submission_fence_id): (u32, u64),
    packets: &[Packet],
) -> Vec<Callback> {
    let (context, process, commands) = (HwContext(context), ProcessId(1), isa::encode(packets));
    let (resubmits, paging) = (None, false);
    let submission =
        Submission { engine, context, process, submission_fence_id, resubmits, paging, commands };
    let mut callbacks = Vec::new();
    let exists = engine.adapter == 0;
    assert_eq!(miniport.submit_command(now, submission, &mut callbacks).is_ok(), exists);
    callbacks
}

fn deadline(miniport: &mut SimulatedMiniport, now: u64) -> Vec<Callback> {
    let mut callbacks = Vec::new();
    miniport.deadline(now, &mut callbacks);
    callbacks
}

fn stored(engine: EngineId) -> Callback {
    Callback::GpuStore { engine, process: ProcessId(1), gpu_address: 0x1000, value: 7 }
}

fn signaled(engine: EngineId) -> Callback {
    Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { engine })
}

fn completed(engine: EngineId, submission_fence_id: u64) -> Callback {
    Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id })
}

#[test]
fn only_an_advanced_engine_interrupts_at_a_write() {
    // covers: FEN-019 FEN-020
    let mut miniport = started();
    let advanced = submit(&mut miniport, 0, ADVANCED, (1, 1), &[WRITE]);
    assert_eq!(advanced, [stored(ADVANCED), signaled(ADVANCED), completed(ADVANCED, 1)]);
    let basic = submit(&mut miniport, 0, BASIC, (2, 1), &[WRITE]);
    assert_eq!(basic, [stored(BASIC), completed(BASIC, 1)]);
}

#[test]
fn buffers_run_one_after_the_other_from_the_time_the_last_ended() {
    // covers: SCH-005
    let mut miniport = started();
    assert_eq!(submit(&mut miniport, 5, ADVANCED, (1, 1), &[busy(10)]), []);
    assert_eq!(submit(&mut miniport, 6, ADVANCED, (2, 2), &[busy(10), busy(10)]), []);
    assert_eq!(miniport.next_deadline(), Some(15));
    assert_eq!(deadline(&mut miniport, 14), []);
    // Told late: the second began at 15 all the same.
    assert_eq!(deadline(&mut miniport, 20), [completed(ADVANCED, 1)]);
    assert_eq!(miniport.next_deadline(), Some(25));
    assert_eq!(deadline(&mut miniport, 35), [completed(ADVANCED, 2)]);
    assert_eq!((miniport.next_deadline(), miniport.engine_state(ADVANCED)), (None, EngineState::Idle));
}

#[test]
fn engines_call_back_in_the_order_of_their_times() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[busy(30)]);
    submit(&mut miniport, 0, BASIC, (2, 1), &[busy(20), WRITE, busy(20)]);
    let expected = [stored(BASIC), completed(ADVANCED, 1), completed(BASIC, 1)];
    assert_eq!(deadline(&mut miniport, 100), expected);
}

#[test]
fn a_hung_engine_wants_no_time_and_is_freed_with_its_context() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[Packet::Hang, WRITE]);
    submit(&mut miniport, 0, ADVANCED, (2, 2), &[WRITE]);
    submit(&mut miniport, 0, ADVANCED, (3, 3), &[busy(10)]);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Hung { submission_fence_id: 1, queued: 2 });
    assert_eq!((miniport.next_deadline(), deadline(&mut miniport, 1000)), (None, vec![]));
    let mut callbacks = Vec::new();
    miniport.destroy_context(1000, HwContext(2), Some((ADVANCED, 2)), &mut callbacks);
    miniport.destroy_context(1000, HwContext(9), None, &mut callbacks);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Hung { submission_fence_id: 1, queued: 1 });
    miniport.destroy_context(1000, HwContext(1), Some((ADVANCED, 1)), &mut callbacks);
    assert_eq!(callbacks, [], "nothing of the dead contexts runs");
    let running = EngineState::Running { submission_fence_id: 3, until: 1010, queued: 0 };
    assert_eq!(miniport.engine_state(ADVANCED), running);
}

#[test]
fn time_does_not_overflow() {
    let mut miniport = started();
    submit(&mut miniport, u64::MAX - 1, ADVANCED, (1, 1), &[busy(u64::MAX), busy(u64::MAX)]);
    assert_eq!(miniport.next_deadline(), Some(u64::MAX));
    assert_eq!(deadline(&mut miniport, u64::MAX), [completed(ADVANCED, 1)]);
}

#[test]
fn an_engine_that_does_not_exist_is_idle_and_takes_nothing() {
    let mut miniport = started();
    let nowhere = EngineId { adapter: 3, node: 9 };
    assert_eq!(submit(&mut miniport, 0, nowhere, (1, 1), &[busy(10)]), []);
    assert_eq!((miniport.engine_state(nowhere), miniport.next_deadline()), (EngineState::Idle, None));
}

#[test]
fn a_lost_interrupt_is_the_only_thing_lost() {
    let mut miniport = started();
    miniport.lose_interrupt(ADVANCED);
    miniport.lose_interrupt(EngineId { adapter: 3, node: 9 });
    let called_back = submit(&mut miniport, 0, ADVANCED, (1, 1), &[WRITE]);
    assert_eq!(called_back, [stored(ADVANCED), completed(ADVANCED, 1)]);
    miniport.lose_interrupt(BASIC);
    assert_eq!(submit(&mut miniport, 0, BASIC, (2, 1), &[WRITE]), [stored(BASIC)]);
    assert_eq!(submit(&mut miniport, 0, BASIC, (2, 2), &[WRITE]), [stored(BASIC), completed(BASIC, 2)]);
}

#[test]
fn a_stopped_adapter_drops_what_it_has_and_forgets_its_faults() {
    let mut miniport = started();
    submit(&mut miniport, 0, ADVANCED, (1, 1), &[busy(10), WRITE]);
    submit(&mut miniport, 0, ADVANCED, (2, 2), &[WRITE]);
    miniport.hang_engine(BASIC);
    miniport.lose_interrupt(BASIC);
    let mut callbacks = Vec::new();
    miniport.stop_device(7, &mut callbacks);
    assert_eq!(miniport.next_deadline(), Some(10));
    miniport.stop_device(0, &mut callbacks);
    assert_eq!((callbacks, miniport.next_deadline()), (vec![], None));
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Idle);
    assert_eq!(submit(&mut miniport, 20, BASIC, (3, 1), &[WRITE]), [stored(BASIC), completed(BASIC, 1)]);
}
