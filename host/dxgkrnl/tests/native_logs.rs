//! Native fence logs: which queues have them, how the kernel reads them, and what an overrun causes.

use covers::covers;

use crate::common::World;
use crate::common::hardware::*;
use crate::common::scripted::{calls, inject, scripted};
use dxgkrnl::ddi::{
    Callback, EngineId, HwQueueId, Interrupt, NATIVE_FENCE_LOG_ENTRIES, NativeFenceId, NativeFenceLogEntry,
    NativeFenceLogHeader, NativeFenceLogType, NativeFenceLogWrite, SignaledNativeFences,
};
use dxgkrnl::{AdapterConfig, Config, VidSchCaps};

const ENGINE: EngineId = EngineId { adapter: 0, node: ADVANCED };

/// An adapter with OptimizedNativeFenceSignaledInterrupt.
fn optimized() -> Config {
    let mut adapter = AdapterConfig::default();
    adapter.caps |= VidSchCaps::OPTIMIZED_NATIVE_FENCE_SIGNALED_INTERRUPT;
    Config { adapters: vec![adapter], ..Config::default() }
}

fn connected(world: &mut World, node: u32) -> Queue {
    let device = world.device();
    let queue = world.queue_on(device, node, USER_MODE);
    world.doorbell(queue);
    assert_eq!(world.connect(queue), OK);
    queue
}

fn entry(fence: NativeFenceId, fence_value: u64, end_gpu_timestamp: u64) -> NativeFenceLogEntry {
    NativeFenceLogEntry { fence_value, fence, observed_gpu_timestamp: 0, end_gpu_timestamp }
}

/// The log of signals with these entries, the first at index 0.
fn signal_log(hw_queue: HwQueueId, entries: &[NativeFenceLogEntry]) -> Vec<Callback> {
    let mut header = NativeFenceLogHeader::default();
    let mut writes = Vec::new();
    for entry in entries {
        let index = header.first_free_entry_index();
        header = header.next();
        let log = NativeFenceLogType::Signals;
        writes.push(Callback::NativeFenceLogWrite(NativeFenceLogWrite {
            hw_queue,
            log,
            index,
            entry: *entry,
            header,
        }));
    }
    writes
}

fn logged(hw_queue: Option<HwQueueId>) -> Callback {
    let signaled = SignaledNativeFences::Logged { hw_queue };
    Callback::NotifyInterrupt(Interrupt::NativeFenceSignaled { engine: ENGINE, signaled })
}

fn stored(queue: Queue, id: HwQueueId, value: u64) -> Callback {
    let gpu_address = queue.fence.gpu_address;
    Callback::HwQueueStore { engine: ENGINE, hw_queue: id, gpu_address, value }
}

#[test]
fn queues_of_user_mode_submission_have_two_logs_of_4_kib_and_others_none() {
    covers!("FEN-119");
    let (mut world, script) = scripted(optimized());
    let device = world.device();
    let kernel = world.queue_on(device, ADVANCED, NATIVE);
    assert_eq!((calls(&script, &["set_native"]), world.view(kernel).logged), (vec![], None));
    let user = world.queue_on(device, ADVANCED, USER_MODE);
    let id = world.view(user).hw_queue.0;
    assert_eq!(calls(&script, &["set_native"]), [format!("set_native_fence_log_buffers {id} 102")]);
    assert!(world.view(user).logged.is_some());
    assert_eq!(NATIVE_FENCE_LOG_ENTRIES, (4096 - 16) / 40, "the entries that fit beside the header");
    assert_eq!((NativeFenceLogType::Waits as u32, NativeFenceLogType::Signals as u32), (1, 2));
    world.finish();
}

#[test]
fn index_and_wraparound_count_are_one_word() {
    covers!("FEN-120");
    let header = NativeFenceLogHeader::new(7, 3);
    assert_eq!(header.0, 3 << 32 | 7);
    assert_eq!((header.first_free_entry_index(), header.wraparound_count()), (7, 3));
    let last = NativeFenceLogHeader::new(NATIVE_FENCE_LOG_ENTRIES - 1, u32::MAX);
    assert_eq!(last.next(), NativeFenceLogHeader::new(0, 0), "both change at once");
    assert_eq!(last.next().entries_since(last), 1);
    let entries = u64::from(NATIVE_FENCE_LOG_ENTRIES);
    assert_eq!(NativeFenceLogHeader::new(5, 2).entries_since(NativeFenceLogHeader::new(9, 1)), entries - 4);
    // The kernel reads the log as the engine wrote it.
    let (mut world, script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let id = world.view(queue).hw_queue;
    inject(&mut world, &script, signal_log(id, &[entry(NativeFenceId(1), 1, 0); 103]));
    assert_eq!(world.view(queue).logged.unwrap().1, NativeFenceLogHeader::new(1, 1));
    world.finish();
}

#[test]
fn both_signals_and_waits_are_logged_and_a_driver_that_does_not_log_has_no_user_mode_queues() {
    covers!("FEN-126");
    let (mut world, script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let device = world.device();
    let fence = world.native(device);
    world.ring(queue, 1, &[&[wait(&fence, 1), wait(&fence, 0), write(&queue.fence, 1)]]);
    assert_eq!(world.view(queue).logged, Some(Default::default()), "the wait is not over");
    assert_eq!(world.signal(device, fence.object, 1), OK);
    let (waits, signals) = world.view(queue).logged.unwrap();
    assert_eq!((waits.first_free_entry_index(), signals.first_free_entry_index()), (2, 1));
    script.borrow().failing = Some(("set_native_fence_log_buffers", UNSUPPORTED));
    let context = world.hw_context(device, ADVANCED);
    calls(&script, &[]);
    assert_eq!(world.try_hw_queue(context, USER_MODE).err(), Some(UNSUPPORTED));
    assert_eq!(calls(&script, &["destroy_hw_queue"]).len(), 1, "the driver's queue is destroyed again");
    assert!(world.try_hw_queue(context, NATIVE).is_ok());
    world.finish();
}

#[test]
fn a_log_entry_written_before_the_interrupt_wakes_its_waiter() {
    covers!("FEN-121");
    let (mut world, _script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let device = world.device();
    let fence = world.native(device);
    let event = world.pending(device, &[(fence.object, 5)], false);
    // The interrupt names the queue, so only value and entry - in memory by then - can tell which fence it was.
    world.ring(queue, 1, &[&[write(&fence, 4), write(&fence, 5)]]);
    assert_eq!((world.woken(), world.value(fence.object)), (vec![event], 5));
    assert_eq!(world.view(queue).logged.unwrap().1.first_free_entry_index(), 2);
    world.finish();
}

#[test]
fn the_driver_writes_its_caches_before_the_kernel_reads() {
    covers!("FEN-124");
    let (mut world, script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let device = world.device();
    let id = world.view(queue).hw_queue;
    let fence = world.native_view(queue.fence.object).fence;
    let event = world.pending(device, &[(queue.fence.object, 1)], false);
    script.borrow().call_back("update_native_fence_logs", signal_log(id, &[entry(fence, 1, 0)]));
    calls(&script, &[]);
    inject(&mut world, &script, vec![stored(queue, id, 1), logged(Some(id))]);
    assert_eq!(calls(&script, &["update_native_fence_logs"]), [format!("update_native_fence_logs {}", id.0)]);
    assert_eq!(world.woken(), [event]);
    world.finish();
}

#[test]
fn after_a_log_overrun_every_native_fence_is_checked() {
    covers!("FEN-122");
    for lost in [false, true] {
        let (mut world, script) = scripted(optimized());
        let queue = connected(&mut world, ADVANCED);
        let device = world.device();
        let id = world.view(queue).hw_queue;
        let quiet = world.native(device);
        let quiet_id = world.native_view(quiet.object).fence;
        let event = world.pending(device, &[(queue.fence.object, 1)], false);
        let mut callbacks = vec![stored(queue, id, 1)];
        // The log has no entry of the awaited fence, or the entry was overwritten.
        let count = NATIVE_FENCE_LOG_ENTRIES as usize + usize::from(lost);
        callbacks.extend(signal_log(id, &vec![entry(quiet_id, 1, 0); count]));
        callbacks.push(logged(Some(id)));
        inject(&mut world, &script, callbacks);
        assert_eq!(world.woken(), if lost { vec![event] } else { vec![] });
        assert_eq!(world.notes().iter().any(|note| note.contains("overrun")), lost);
        world.finish();
    }
}

#[test]
fn an_engine_that_writes_its_log_over_and_over_loses_no_waiter() {
    let (mut world, _script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let device = world.device();
    let (awaited, quiet) = (world.native(device), world.native(device));
    for round in 1..=5 {
        let event = world.pending(device, &[(awaited.object, round)], false);
        let mut packets: Vec<_> = (0..150).map(|value| write(&quiet, value)).collect();
        packets.push(write(&awaited, round));
        world.ring(queue, round, &[&packets]);
        // An engine fetches 64 packets in 16 us at most.
        world.advance(48_000);
        assert_eq!(world.woken(), [event]);
    }
    world.finish();
}

#[test]
fn timestamps_may_be_zero_or_equal_but_not_smaller() {
    covers!("FEN-123");
    let (mut world, script) = scripted(optimized());
    let queue = connected(&mut world, ADVANCED);
    let id = world.view(queue).hw_queue;
    let fence = world.native_view(queue.fence.object).fence;
    world.notes();
    let good = [10, 10, 0, 12].map(|timestamp| entry(fence, 1, timestamp));
    let mut callbacks = signal_log(id, &good);
    callbacks.push(logged(Some(id)));
    inject(&mut world, &script, callbacks);
    assert_eq!(world.notes(), Vec::<String>::new());
    let bad = [10, 10, 0, 12, 11].map(|timestamp| entry(fence, 1, timestamp));
    let mut callbacks = signal_log(id, &bad);
    callbacks.push(logged(Some(id)));
    inject(&mut world, &script, callbacks);
    assert!(world.notes()[0].contains("from 12 to 11"));
    world.finish();
}

#[test]
fn an_optimized_interrupt_reads_the_logs_of_its_queue_or_of_all_of_its_engine() {
    covers!("FEN-125");
    let (mut world, script) = scripted(optimized());
    let queues =
        [connected(&mut world, ADVANCED), connected(&mut world, ADVANCED), connected(&mut world, OTHER)];
    let device = world.device();
    let ids = queues.map(|queue| world.view(queue).hw_queue);
    let events = queues.map(|queue| world.pending(device, &[(queue.fence.object, 1)], false));
    let mut callbacks = Vec::new();
    for (queue, id) in queues.into_iter().zip(ids) {
        let fence = world.native_view(queue.fence.object).fence;
        callbacks.push(stored(queue, id, 1));
        callbacks.extend(signal_log(id, &[entry(fence, 1, 0)]));
    }
    inject(&mut world, &script, callbacks);
    assert_eq!(world.woken(), []);
    inject(&mut world, &script, vec![logged(Some(ids[1]))]);
    assert_eq!(world.woken(), [events[1]]);
    calls(&script, &[]);
    inject(&mut world, &script, vec![logged(None)]);
    assert_eq!(world.woken(), [events[0]], "the third is on another engine");
    assert_eq!(calls(&script, &["update_native_fence_logs"]).len(), 2);
    world.finish();
}
