//! Hardware queues: progress fences, order, and refused calls.

use covers::covers;

use crate::common::World;
use crate::common::hardware::*;
use d3dkmt::isa::Packet::Hang;
use d3dkmt::{Call, Handle, HwQueueFlags, NtStatus, SyncObjectType, limits};
use dxgkrnl::ddi::EngineState;
use dxgkrnl::{AdapterConfig, Config, Fault, Features, Input, NodeConfig};

/// The default adapter with all nodes changed.
fn config(change: impl Fn(&mut NodeConfig)) -> Config {
    let mut adapter = AdapterConfig::default();
    adapter.nodes.iter_mut().for_each(change);
    Config { adapters: vec![adapter], ..Config::default() }
}

fn state(world: &World, node: u32) -> EngineState {
    world.kernel.snapshot().engines[node as usize].state.clone()
}

#[test]
fn a_hw_queue_has_a_progress_fence_that_engines_write_and_users_only_read() {
    covers!("SCH-012");
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    let slot = queue.fence.slot.unwrap();
    assert_eq!(world.stores().last(), Some(&(slot, 0)), "the fence reads 0 before the answer");
    assert_ne!((queue.handle, queue.fence.object, queue.fence.gpu_address), (Handle::NULL, Handle::NULL, 0));
    let waiting = world.pending(device, &[(queue.fence.object, 1)], false);
    assert_eq!(world.submit_hw(queue, 1, &[write(&queue.fence, 1)]), OK);
    assert_eq!((world.stores(), world.woken()), (vec![(slot, 1)], vec![waiting]));
    // The queue owns the fence: its process cannot destroy it, and it ends with the queue.
    let destroy = Call::DestroySynchronizationObject { object: queue.fence.object };
    assert_eq!(world.status(destroy.clone()), IP);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), IP);
    assert!(world.wait(device, &[(queue.fence.object, 0)], false).is_err());
    assert_eq!(world.status(destroy), IP);
    world.finish();
}

#[test]
fn requirements_of_a_hw_queue_are_checked_at_creation() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    assert_eq!(world.try_hw_queue(context, NONE).err(), Some(IP), "the context lacks HwQueueSupported");
    let context = world.hw_context(device, ADVANCED);
    assert_eq!(world.try_hw_queue(context, HwQueueFlags::from_bits_retain(0x80)).err(), Some(IP));
    assert_eq!(world.try_hw_queue(device, NONE).err(), Some(IP));
    let all = HwQueueFlags::DISABLE_GPU_TIMEOUT | HwQueueFlags::NO_KMD_ACCESS | HwQueueFlags::TEST_QUEUE;
    let queue = world.hw_queue(context, all);
    assert_eq!(world.view(queue).flags, all);
    world.finish();
    for bad in [
        config(|node| node.hw_queues = false),
        Config { features: Features::NATIVE_FENCE, ..Config::default() },
    ] {
        let mut world = World::with_config(bad);
        let device = world.device();
        let context = world.hw_context(device, ADVANCED);
        assert_eq!(world.try_hw_queue(context, NONE).err(), Some(UNSUPPORTED));
        world.finish();
    }
}

#[test]
fn ring_buffer_fence_release_selects_the_writer_of_the_progress_fence() {
    covers!("SCH-017");
    for (releases, flags) in [(false, NONE), (true, NONE), (false, NATIVE), (true, NATIVE)] {
        for node in [ADVANCED, BASIC] {
            let mut world = World::with_config(config(|node| node.ring_buffer_fence_release = releases));
            let device = world.device();
            let queue = world.queue_on(device, node, flags);
            let event = world.pending(device, &[(queue.fence.object, 1)], false);
            assert_eq!(world.submit_hw(queue, 1, &[busy(50), busy(50)]), OK);
            world.advance(99);
            assert_eq!(world.value(queue.fence.object), 0, "the buffer is referenced");
            world.advance(1);
            let in_flight = world.view(queue).in_flight;
            let expected = if releases { (1, 0, vec![event]) } else { (0, 1, vec![]) };
            assert_eq!((world.value(queue.fence.object), in_flight, world.woken()), expected);
            world.finish();
        }
    }
}

#[test]
fn the_engine_has_no_more_buffers_of_a_queue_than_the_node_allows() {
    covers!("SCH-018");
    for (most, expected) in [(0, 3), (1, 1), (2, 2)] {
        let mut world = World::with_config(config(|node| node.max_in_flight_hw_queue_buffers = most));
        let device = world.device();
        let queue = world.queue_on(device, ADVANCED, NONE);
        for id in 1..=3 {
            assert_eq!(world.submit_hw(queue, id, &[busy(100), write(&queue.fence, id)]), OK);
        }
        assert_eq!(world.view(queue).in_flight, expected);
        // Another queue has its own in-flight limit.
        let other = world.queue_on(device, ADVANCED, NONE);
        assert_eq!(world.submit_hw(other, 1, &[write(&other.fence, 1)]), OK);
        assert_eq!(world.view(other).in_flight, 1);
        world.advance(100);
        assert_eq!((world.view(queue).progress, world.view(queue).in_flight), (1, expected.min(2)));
        world.advance(300);
        assert_eq!((world.view(queue).progress, world.view(queue).in_flight), (3, 0));
        world.finish();
    }
}

#[test]
fn one_queue_runs_in_order_and_queues_of_two_engines_beside_each_other() {
    let mut world = World::new();
    let device = world.device();
    let first = world.queue_on(device, ADVANCED, NONE);
    let second = world.queue_on(device, OTHER, NONE);
    for id in [1, 2] {
        assert_eq!(world.submit_hw(first, id, &[busy(100), write(&first.fence, id)]), OK);
        assert_eq!(world.submit_hw(second, id, &[busy(100), write(&second.fence, id)]), OK);
    }
    world.advance(100);
    assert_eq!((world.view(first).progress, world.view(second).progress), (1, 1));
    world.advance(99);
    assert_eq!((world.view(first).progress, world.view(second).progress), (1, 1));
    world.advance(1);
    assert_eq!((world.view(first).progress, world.view(second).progress), (2, 2));
    world.finish();
}

#[test]
fn a_wait_holds_what_follows_in_its_queue_and_nothing_else() {
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let (held, free) = (world.hw_queue(context, NONE), world.hw_queue(context, NONE));
    let gate = world.fence(device, 0).object;
    assert_eq!(world.wait_hw(held, gate, 1), OK);
    assert_eq!(world.submit_hw(held, 1, &[write(&held.fence, 1)]), OK);
    assert_eq!(world.submit_hw(free, 1, &[write(&free.fence, 1)]), OK);
    assert_eq!((world.view(held).progress, world.view(free).progress), (0, 1));
    assert_eq!(world.signal(device, gate, 1), OK);
    assert_eq!(world.view(held).progress, 1);
    world.finish();
}

#[test]
fn a_broadcast_signal_leaves_out_queues_with_no_broadcast_signal() {
    covers!("SCH-015");
    let mut world = World::new();
    let device = world.device();
    let queues =
        [NONE, HwQueueFlags::NO_BROADCAST_SIGNAL].map(|flags| world.queue_on(device, ADVANCED, flags));
    let [plain, left_out] = queues;
    let (gate, fence) = (world.fence(device, 0).object, world.fence(device, 0).object);
    assert_eq!(world.wait_hw(left_out, gate, 1), OK);
    assert_eq!(world.signal_hw(&queues, fence, 1), OK);
    assert_eq!(world.value(fence), 1, "the blocked NoBroadcastSignal queue does not delay the signal");
    assert_eq!(world.signal_hw(&[left_out], fence, 2), OK);
    assert_eq!(world.value(fence), 1, "a signal of one queue is no broadcast");
    assert_eq!(world.signal(device, gate, 1), OK);
    assert_eq!(world.value(fence), 2);
    assert_eq!(world.signal_hw(&[left_out, left_out], fence, 3), IP, "no queue is left to signal");
    assert_eq!(world.signal_hw(&[], fence, 3), IP);
    assert_eq!(world.signal_hw(&[plain; 65], fence, 3), IP);
    // A broadcast of two plain queues waits for both.
    let other = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.wait_hw(other, gate, 2), OK);
    assert_eq!(world.signal_hw(&[plain, other], fence, 4), OK);
    assert_eq!(world.value(fence), 2);
    assert_eq!(world.signal(device, gate, 2), OK);
    assert_eq!(world.value(fence), 4);
    world.finish();
}

#[test]
fn the_progress_fence_is_native_if_the_queue_asks_for_it() {
    covers!("FEN-127");
    let mut world = World::new();
    let device = world.device();
    let (native, monitored) =
        (world.queue_on(device, ADVANCED, NATIVE), world.queue_on(device, ADVANCED, NONE));
    let type_of = |world: &World, queue: Queue| {
        let snapshot = world.kernel.snapshot();
        snapshot.objects.iter().find(|one| one.handle == queue.fence.object).unwrap().object_type
    };
    assert_eq!(type_of(&world, native), SyncObjectType::NATIVE_FENCE);
    assert_eq!(type_of(&world, monitored), SyncObjectType::MONITORED_FENCE);
    // The kernel waits for the submitted id, so the engine interrupts for that value only.
    assert_eq!(world.native_view(native.fence.object).monitored_value, u64::MAX);
    for id in [3, 5] {
        assert_eq!(world.submit_hw(native, id, &[busy(100), write(&native.fence, id)]), OK);
    }
    assert_eq!(world.native_view(native.fence.object).monitored_value, 2);
    world.advance(100);
    assert_eq!(
        (world.view(native).in_flight, world.native_view(native.fence.object).monitored_value),
        (1, 4)
    );
    world.advance(100);
    assert_eq!(world.view(native).in_flight, 0);
    assert_eq!(world.native_view(native.fence.object).monitored_value, u64::MAX);
    world.finish();
}

#[test]
fn a_queue_is_destroyed_with_its_context_in_any_state() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    for flags in [NONE, NATIVE] {
        let context = world.hw_context(device, ADVANCED);
        let (queue, other) = (world.hw_queue(context, flags), world.queue_on(device, ADVANCED, flags));
        let fence = world.fence(device, 0).object;
        assert_eq!(world.submit_hw(queue, 1, &[busy(10), Hang]), OK);
        assert_eq!(world.submit_hw(queue, 2, &[]), OK);
        assert_eq!(world.signal_hw(&[queue], fence, 1), OK);
        assert_eq!(world.submit_hw(other, 1, &[busy(10), write(&other.fence, 1)]), OK);
        world.advance(10);
        assert!(matches!(state(&world, ADVANCED), EngineState::Hung { .. }));
        let waiting = world.pending(device, &[(queue.fence.object, 1)], false);
        assert_eq!(world.status(Call::DestroyContext { context }), OK);
        assert_eq!(world.woken(), [waiting], "the progress fence is destroyed");
        assert_eq!(world.kernel.miscounted(), None);
        world.advance(10);
        assert_eq!((world.view(other).progress, world.value(fence)), (1, 0));
        assert_eq!(world.submit_hw(queue, 3, &[]), IP);
    }
    assert_eq!(world.status(Call::DestroyDevice { device }), OK);
    world.finish();
}

#[test]
fn a_stopped_adapter_drops_the_work_of_its_hw_queues() {
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NATIVE);
    assert_eq!(world.submit_hw(queue, 1, &[busy(100), write(&queue.fence, 1)]), OK);
    let event = world.pending(device, &[(queue.fence.object, 1)], false);
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.woken(), [event]);
    world.advance(1000);
    assert_eq!((world.value(queue.fence.object), world.view(queue).in_flight), (0, 0), "values stay (R03)");
    assert_eq!(world.submit_hw(queue, 2, &[]), NtStatus::DEVICE_REMOVED);
    world.finish();
}

#[test]
fn a_process_has_a_limited_number_of_hw_queues() {
    let mut world = World::new();
    let slots = limits::HW_QUEUES_PER_PROCESS_MAX as u32;
    world.input(Input::FenceMemoryAdded { process: crate::common::P, slots });
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    world.filling(|world| {
        for _ in 0..limits::HW_QUEUES_PER_PROCESS_MAX {
            world.hw_queue(context, NONE);
        }
    });
    assert_eq!(world.try_hw_queue(context, NONE).err(), Some(NtStatus::NO_MEMORY));
    world.finish();
}

/// Attack H1: buffers in the engine were charged to no process when the progress fence ran ahead of them.
#[test]
fn buffers_in_an_engine_count_against_the_limit_of_their_process() {
    let mut world = World::with_config(Config {
        tdr: dxgkrnl::TdrConfig { level: 0, ..Default::default() },
        ..Config::default()
    });
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[write(&queue.fence, u64::MAX >> 1), Hang]), OK);
    let piece = vec![busy(1); 2000];
    let most = limits::QUEUED_BYTES_PER_PROCESS_MAX / (2000 * 16);
    // Submits at most twice that many.
    let refused =
        world.filling(|world| (0..2 * most).find(|at| world.submit_hw(queue, 2 + *at as u64, &piece) != OK));
    assert!(refused.is_some(), "{most} buffers of {} bytes are the limit", d3dkmt::isa::encode(&piece).len());
    let other = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(other, 1, &[]), NtStatus::NO_MEMORY);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
    assert_eq!(world.submit_hw(other, 1, &[]), OK);
    world.finish();
}
