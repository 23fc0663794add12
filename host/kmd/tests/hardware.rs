//! Hardware queues and native fences of the simulated GPU: its callbacks and their order.

use covers::covers;
use d3dkmt::HwQueueFlags;
use d3dkmt::isa::{self, Packet};
use dxgkrnl::ddi::*;
use dxgkrnl::{AdapterConfig, Config, ProcessId, VidSchCaps};
use kmd::SimulatedMiniport;

const ADVANCED: EngineId = EngineId { adapter: 0, node: 0 };
const ELSEWHERE: EngineId = EngineId { adapter: 1, node: 0 };
const P: ProcessId = ProcessId(1);
const QUEUE: HwQueueId = HwQueueId(0);
const CONTEXT: HwContext = HwContext(0);
const FENCE: NativeFenceId = NativeFenceId(1);
const ADDRESS: u64 = 0x1000;
const PROGRESS: u64 = 0x2000;

fn write(gpu_address: u64, value: u64) -> Packet {
    Packet::FenceWrite { gpu_address, value }
}

fn wait(value: u64) -> Packet {
    Packet::FenceWait { gpu_address: ADDRESS, value }
}

/// Two adapters, the first with optimized interrupts or not.
fn started(optimized: bool) -> SimulatedMiniport {
    let mut first = AdapterConfig::default();
    first.caps.set(VidSchCaps::OPTIMIZED_NATIVE_FENCE_SIGNALED_INTERRUPT, optimized);
    let mut miniport = SimulatedMiniport::default();
    miniport.start(&Config { adapters: vec![first, AdapterConfig::default()], ..Config::default() });
    miniport
}

fn queue(miniport: &mut SimulatedMiniport, hw_queue: HwQueueId, context: HwContext, engine: EngineId) {
    let new = NewHwQueue {
        hw_queue,
        context,
        engine,
        process: P,
        flags: HwQueueFlags::empty(),
        progress_fence_gpu_address: PROGRESS,
    };
    miniport.create_hw_queue(&new).unwrap();
}

/// A native fence on an adapter, mapped at [`ADDRESS`].
fn fence(miniport: &mut SimulatedMiniport, fence: NativeFenceId, adapter: u32, monitored_value: u64) {
    let storage = NativeFenceStorage { page: 1, offset_bytes: 0 };
    let new = NewNativeFence {
        fence,
        adapter,
        native_type: 0,
        current_value: 0,
        monitored_value,
        storage,
        number: fence.0,
    };
    miniport.create_native_fence(&new).unwrap();
    let local = LocalNativeFenceId(fence.0 + 100);
    let (process, gpu_address, writable) = (P, ADDRESS, true);
    miniport.open_native_fence(&OpenedNativeFence { local, fence, process, gpu_address, writable });
}

fn submit(
    miniport: &mut SimulatedMiniport,
    now: u64,
    (hw_queue, context, engine): (HwQueueId, HwContext, EngineId),
    id: u64,
    packets: &[Packet],
) -> Vec<Callback> {
    let commands = isa::encode(packets);
    let (submission_fence_id, progress_fence_id) = (id, id);
    let submission =
        HwQueueSubmission { engine, hw_queue, context, submission_fence_id, progress_fence_id, commands };
    let mut callbacks = Vec::new();
    miniport.submit_command_to_hw_queue(now, submission, &mut callbacks);
    callbacks
}

const FIRST: (HwQueueId, HwContext, EngineId) = (QUEUE, CONTEXT, ADVANCED);

fn stored(value: u64) -> Callback {
    Callback::HwQueueStore { engine: ADVANCED, hw_queue: QUEUE, gpu_address: ADDRESS, value }
}

fn signaled(signaled: SignaledNativeFences) -> Callback {
    Callback::NotifyInterrupt(Interrupt::NativeFenceSignaled { engine: ADVANCED, signaled })
}

fn these() -> Callback {
    signaled(SignaledNativeFences::These(vec![FENCE]))
}

fn monitor(miniport: &mut SimulatedMiniport, value: u64) -> Vec<Callback> {
    let mut callbacks = Vec::new();
    miniport.update_monitored_values(0, &[(FENCE, value)], &mut callbacks);
    callbacks
}

#[test]
fn a_store_interrupts_only_above_the_monitored_value() {
    covers!("FEN-099");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    assert_eq!(submit(&mut miniport, 0, FIRST, 1, &[write(ADDRESS, u64::MAX)]), [stored(u64::MAX)]);
    assert_eq!(submit(&mut miniport, 0, FIRST, 2, &[write(ADDRESS, 0)]), [stored(0)]);
    assert_eq!(monitor(&mut miniport, 4), []);
    let callbacks = submit(&mut miniport, 0, FIRST, 3, &[write(ADDRESS, 4), write(ADDRESS, 5)]);
    assert_eq!(callbacks, [stored(4), stored(5), these()]);
}

#[test]
fn a_new_monitored_value_is_compared_with_what_was_stored_before_it() {
    covers!("FEN-100");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    assert_eq!(submit(&mut miniport, 0, FIRST, 1, &[write(ADDRESS, 5)]), [stored(5)]);
    assert_eq!(monitor(&mut miniport, 5), [], "5 is not above 5");
    assert_eq!(monitor(&mut miniport, 4), [these()]);
    // The new value applies to later stores as well.
    assert_eq!(submit(&mut miniport, 0, FIRST, 2, &[write(ADDRESS, 5)]), [stored(5), these()]);
    assert_eq!(monitor(&mut miniport, u64::MAX), []);
}

#[test]
fn value_above_the_monitored_value_is_signaled_in_any_order() {
    covers!("FEN-102");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    let (mut current, mut monitored, mut random) = (0u64, u64::MAX, 1u64);
    for id in 1..5000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = random >> 60;
        let callbacks = if random >> 40 & 1 == 0 {
            monitored = if value == 15 { u64::MAX } else { value };
            monitor(&mut miniport, monitored)
        } else {
            current = value;
            // At the rate at which packets are fetched.
            submit(&mut miniport, id * 1000, FIRST, id, &[write(ADDRESS, value)])
        };
        assert_eq!(callbacks.contains(&these()), current > monitored, "{current} {monitored}");
    }
}

#[test]
fn the_value_comes_before_the_log_entry_and_that_before_the_interrupt() {
    covers!("FEN-121");
    for optimized in [false, true] {
        let mut miniport = started(optimized);
        queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
        miniport.set_native_fence_log_buffers(QUEUE, NATIVE_FENCE_LOG_ENTRIES).unwrap();
        fence(&mut miniport, FENCE, 0, 4);
        let callbacks = submit(&mut miniport, 7, FIRST, 1, &[write(ADDRESS, 5)]);
        let entry = NativeFenceLogEntry {
            fence_value: 5,
            fence: FENCE,
            observed_gpu_timestamp: 0,
            end_gpu_timestamp: 7,
        };
        let (log, header) = (NativeFenceLogType::Signals, NativeFenceLogHeader::new(1, 0));
        let logged = Callback::NativeFenceLogWrite(NativeFenceLogWrite {
            hw_queue: QUEUE,
            log,
            index: 0,
            entry,
            header,
        });
        // Without the cap the interrupt carries the fence, with it the queue whose log has it (FEN-125).
        let interrupt = if optimized {
            signaled(SignaledNativeFences::Logged { hw_queue: Some(QUEUE) })
        } else {
            these()
        };
        assert_eq!(callbacks, [stored(5), logged, interrupt]);
    }
}

#[test]
fn a_wait_log_has_when_the_queue_came_to_the_wait_and_when_it_was_over() {
    covers!("FEN-123");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    miniport.set_native_fence_log_buffers(QUEUE, NATIVE_FENCE_LOG_ENTRIES).unwrap();
    fence(&mut miniport, FENCE, 0, u64::MAX);
    assert_eq!(submit(&mut miniport, 10, FIRST, 1, &[wait(1), wait(0)]), []);
    let update =
        CurrentValueUpdate { fence: FENCE, value: 1, always_signaled: false, notification_only: false };
    let mut callbacks = Vec::new();
    miniport.update_current_values_from_cpu(30, &[update], &mut callbacks);
    let stamps: Vec<_> = callbacks
        .iter()
        .filter_map(|callback| match callback {
            Callback::NativeFenceLogWrite(NativeFenceLogWrite {
                log: NativeFenceLogType::Waits,
                entry,
                ..
            }) => Some((entry.observed_gpu_timestamp, entry.end_gpu_timestamp)),
            _ => None,
        })
        .collect();
    assert_eq!(stamps, [(10, 30), (30, 30)], "never below the one before");
}

#[test]
fn a_queue_that_waits_in_hardware_keeps_its_order_and_holds_up_no_other() {
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    let other = (HwQueueId(1), CONTEXT, ADVANCED);
    queue(&mut miniport, other.0, other.1, other.2);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    assert_eq!(submit(&mut miniport, 0, FIRST, 1, &[wait(2), write(0x5000, 1)]), []);
    assert_eq!(submit(&mut miniport, 0, FIRST, 2, &[write(0x5000, 2)]), []);
    let callbacks = submit(&mut miniport, 0, other, 3, &[write(ADDRESS, 2)]);
    let values: Vec<_> = callbacks
        .iter()
        .filter_map(|callback| match callback {
            Callback::HwQueueStore { hw_queue, value, .. } => Some((hw_queue.0, *value)),
            _ => None,
        })
        .collect();
    assert_eq!(values, [(1, 2), (0, 1), (0, 2)]);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Idle);
}

#[test]
fn a_store_of_another_adapter_is_seen_when_the_kernel_says_so() {
    covers!("FEN-112", "FEN-115");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    let elsewhere = (HwQueueId(1), HwContext(1), ELSEWHERE);
    queue(&mut miniport, elsewhere.0, elsewhere.1, elsewhere.2);
    // One CurrentValue in system memory, two global handles.
    fence(&mut miniport, FENCE, 0, 0);
    fence(&mut miniport, NativeFenceId(2), 1, 0);
    assert_eq!(submit(&mut miniport, 0, FIRST, 1, &[wait(3), write(ADDRESS, 4)]), []);
    let callbacks = submit(&mut miniport, 0, elsewhere, 1, &[write(ADDRESS, 3)]);
    assert_eq!(callbacks.len(), 2, "its store and its interrupt; the other GPU still waits");
    let update =
        CurrentValueUpdate { fence: FENCE, value: 3, always_signaled: false, notification_only: true };
    let mut callbacks = Vec::new();
    miniport.update_current_values_from_cpu(0, &[update], &mut callbacks);
    assert_eq!(callbacks, [stored(4), these()]);
}

#[test]
fn a_fence_that_is_signaled_for_ever_stays_so() {
    covers!("FEN-111");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    fence(&mut miniport, FENCE, 0, 0);
    let mut callbacks = Vec::new();
    for (always_signaled, value) in [(true, u64::MAX), (false, 0)] {
        let update = CurrentValueUpdate { fence: FENCE, value, always_signaled, notification_only: false };
        miniport.update_current_values_from_cpu(0, &[update], &mut callbacks);
    }
    let after = Callback::HwQueueStore { engine: ADVANCED, hw_queue: QUEUE, gpu_address: 0x5000, value: 1 };
    let passed = submit(&mut miniport, 0, FIRST, 1, &[write(ADDRESS, 3), wait(1000), write(0x5000, 1)]);
    assert_eq!(passed.first(), Some(&after), "its own store has no effect, and a wait passes");
}

/// A context may have a buffer without a queue beside those of its hardware queues.
#[test]
fn a_saved_buffer_of_a_culprit_ends_with_its_context() {
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    submit(&mut miniport, 0, FIRST, 1, &[Packet::Hang]);
    in_context(&mut miniport, (CONTEXT, 2, None), &[Packet::Busy { duration_ns: 10 }]);
    let mut callbacks = Vec::new();
    assert_eq!(miniport.reset_hw_engine(5, ADVANCED, &mut callbacks), Ok(()));
    assert_eq!(miniport.resume_hw_engine(5, ADVANCED, &mut callbacks), Ok(()));
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Idle);
    assert!(miniport.held_bytes(0, P) > 0, "it is kept until then");
    miniport.destroy_context(5, CONTEXT, None, &mut callbacks);
    assert_eq!(miniport.held_bytes(0, P), 0);
}

#[test]
fn a_suspend_is_pending_until_the_packet_that_runs_is_over() {
    covers!("SCH-020");
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    let mut callbacks = Vec::new();
    assert_eq!(miniport.suspend_context(0, CONTEXT, 1, &mut callbacks), Suspend::Suspended);
    miniport.resume_context(0, CONTEXT, &mut callbacks);
    let busy = Packet::Busy { duration_ns: 10 };
    assert_eq!(submit(&mut miniport, 0, FIRST, 1, &[busy, write(0x5000, 1)]), []);
    assert_eq!(miniport.suspend_context(5, CONTEXT, 2, &mut callbacks), Suspend::Pending);
    assert_eq!(callbacks, []);
    miniport.deadline(10, &mut callbacks);
    let acknowledged =
        Interrupt::SuspendContextCompleted { engine: ADVANCED, context: CONTEXT, suspend_fence: 2 };
    assert_eq!(callbacks, [Callback::NotifyInterrupt(acknowledged)]);
    assert_eq!(miniport.engine_state(ADVANCED), EngineState::Idle);
    callbacks.clear();
    miniport.resume_context(20, CONTEXT, &mut callbacks);
    assert!(matches!(callbacks[0], Callback::HwQueueStore { value: 1, .. }));
    // A context that hangs does not acknowledge.
    assert_eq!(submit(&mut miniport, 20, FIRST, 2, &[Packet::Hang]), []);
    callbacks.clear();
    assert_eq!(miniport.suspend_context(20, CONTEXT, 3, &mut callbacks), Suspend::Pending);
    miniport.deadline(u64::MAX, &mut callbacks);
    assert_eq!(callbacks, []);
}

#[test]
fn contexts_without_hw_queues_stay_in_the_order_of_their_submission_even_if_one_waits() {
    covers!("SCH-005");
    let mut miniport = started(false);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    let mut callbacks = Vec::new();
    for (id, packets) in [(1, [wait(1)]), (2, [write(0x5000, 1)])] {
        let (context, commands) = (HwContext(id as u32), isa::encode(&packets));
        let submission = Submission {
            engine: ADVANCED,
            context,
            process: P,
            submission_fence_id: id,
            resubmits: None,
            paging: false,
            commands,
        };
        assert_eq!(miniport.submit_command(0, submission, &mut callbacks), Ok(()));
    }
    assert_eq!(callbacks, [], "DMA_COMPLETED of the second would say that the first is done");
    let update =
        CurrentValueUpdate { fence: FENCE, value: 1, always_signaled: false, notification_only: false };
    miniport.update_current_values_from_cpu(0, &[update], &mut callbacks);
    let completed = callbacks.iter().filter_map(|callback| match callback {
        Callback::NotifyInterrupt(Interrupt::DmaCompleted { submission_fence_id, .. }) => {
            Some(*submission_fence_id)
        }
        _ => None,
    });
    assert_eq!(completed.collect::<Vec<_>>(), [1, 2]);
}

fn in_context(
    miniport: &mut SimulatedMiniport,
    (context, id, resubmits): (HwContext, u64, Option<u64>),
    packets: &[Packet],
) -> Vec<Callback> {
    let commands = isa::encode(packets);
    let submission = Submission {
        engine: ADVANCED,
        context,
        process: P,
        submission_fence_id: id,
        resubmits,
        paging: false,
        commands,
    };
    let mut callbacks = Vec::new();
    miniport.submit_command(0, submission, &mut callbacks).expect("a submission");
    callbacks
}

#[test]
fn a_preempted_buffer_goes_on_if_its_fence_has_the_value_meanwhile() {
    let mut miniport = started(false);
    fence(&mut miniport, FENCE, 0, 0);
    let mut callbacks = Vec::new();
    in_context(&mut miniport, (CONTEXT, 1, None), &[wait(1), write(0x5000, 7)]);
    miniport.preempt_command(0, ADVANCED, 1, &mut callbacks).expect("a preemption");
    let update =
        CurrentValueUpdate { fence: FENCE, value: 1, always_signaled: false, notification_only: false };
    miniport.update_current_values_from_cpu(0, &[update], &mut callbacks);
    let resumed = in_context(&mut miniport, (CONTEXT, 2, Some(1)), &[]);
    assert!(matches!(resumed.first(), Some(Callback::GpuStore { value: 7, .. })), "{resumed:?}");
}

/// A buffer that waits for a fence behind one of a suspended context: once the fence has its value, that context's
/// buffer is suspended still, and is listed once.
#[test]
fn a_wait_behind_a_suspended_buffer_leaves_that_suspended() {
    const SUSPENDED: HwContext = HwContext(8);
    const WAITS: HwContext = HwContext(9);
    let mut miniport = started(false);
    queue(&mut miniport, QUEUE, CONTEXT, ADVANCED);
    let other = (HwQueueId(1), HwContext(1), ADVANCED);
    queue(&mut miniport, other.0, other.1, ADVANCED);
    fence(&mut miniport, FENCE, 0, u64::MAX);
    let (busy, mut callbacks) = ([Packet::Busy { duration_ns: 100 }], Vec::new());
    // The buffer that waits is preempted.
    in_context(&mut miniport, (WAITS, 1, None), &[wait(1), write(0x5000, 1)]);
    miniport.preempt_command(0, ADVANCED, 1, &mut callbacks).expect("a preemption");
    submit(&mut miniport, 0, FIRST, 2, &busy);
    in_context(&mut miniport, (SUSPENDED, 3, None), &[write(0x5000, 2)]);
    miniport.suspend_context(0, SUSPENDED, 1, &mut callbacks);
    in_context(&mut miniport, (WAITS, 4, Some(1)), &[]);
    submit(&mut miniport, 0, FIRST, 5, &busy);
    miniport.deadline(100, &mut callbacks);
    // The second buffer of the hardware queue runs.
    let update =
        CurrentValueUpdate { fence: FENCE, value: 1, always_signaled: false, notification_only: false };
    miniport.update_current_values_from_cpu(100, &[update], &mut callbacks);
    miniport.preempt_command(100, ADVANCED, 2, &mut callbacks).expect("a preemption");
    miniport.resume_context(100, SUSPENDED, &mut callbacks);
    submit(&mut miniport, 100, other, 6, &[write(0x6000, 6)]);
    callbacks.clear();
    miniport.deadline(200, &mut callbacks);
    let is_its = |callback: &Callback| matches!(callback, Callback::HwQueueStore { value: 6, .. });
    assert!(callbacks.iter().any(is_its), "the other queue's buffer may start: {callbacks:?}");
}
