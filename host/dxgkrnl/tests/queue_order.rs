//! Queue order beyond FIFO: waits by policy, and TopOfPipeline fences.

use covers::covers;

use crate::common::World;
use d3dkmt::{
    Call, GpuSignal, Handle, NtStatus, SignalFlags, SyncObjectFlags as F,
    isa::Packet::{Busy, FenceWrite, Hang},
};
use dxgkrnl::policy::GpuWait;
use dxgkrnl::{Config, Policy};

const OK: NtStatus = NtStatus::SUCCESS;
const REWIND: SignalFlags = SignalFlags::ALLOW_FENCE_REWIND;

fn world(gpu_wait: GpuWait) -> World {
    let policy = Policy { gpu_wait, ..Policy::default() };
    World::with_config(Config { policy, ..Config::default() })
}

fn signal_many(world: &mut World, contexts: &[Handle], targets: &[(Handle, u64)]) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    let signal = GpuSignal::Monitored { objects, values };
    world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags: SignalFlags::empty() })
}

#[test]
fn whether_a_queued_wait_catches_a_pulse_before_its_turn_is_a_policy() {
    covers!("SCH-001");
    for (policy, caught) in [(GpuWait::LatchesWhenQueued, true), (GpuWait::LooksAtHead, false)] {
        let mut world = world(policy);
        let device = world.device();
        let context = world.context(device, 0);
        let (gate, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
        world.submit(context, &[Busy { duration_ns: 100 }]);
        assert_eq!(world.gpu_wait(context, gate, 5), OK);
        assert_eq!(world.gpu_signal(&[context], done, 1), OK);
        world.advance(50);
        world.signal(device, gate, 5);
        world.signal_flags(device, gate, 0, REWIND);
        world.advance(50);
        assert_eq!(world.value(done), u64::from(caught), "{policy:?}");
        // Once it is reached, it latches on any transition whatever the policy.
        world.signal(device, gate, 5);
        world.signal_flags(device, gate, 0, REWIND);
        assert_eq!(world.value(done), 1);
    }
}

#[test]
fn a_wait_unsatisfied_again_when_reached_blocks_only_under_looks_at_head() {
    covers!("SCH-001");
    for (policy, held) in [(GpuWait::LatchesWhenQueued, false), (GpuWait::LooksAtHead, true)] {
        let mut world = world(policy);
        let device = world.device();
        let context = world.context(device, 0);
        let (gate, done) = (world.fence(device, 5).object, world.fence(device, 0).object);
        world.submit(context, &[Busy { duration_ns: 100 }]);
        world.gpu_wait(context, gate, 5);
        world.gpu_signal(&[context], done, 1);
        world.signal_flags(device, gate, 4, REWIND);
        world.advance(100);
        assert_eq!(world.value(done), u64::from(!held), "{policy:?}");
        assert_eq!(world.kernel.snapshot().contexts[0].queue.len(), if held { 2 } else { 0 });
        world.signal(device, gate, 5);
        assert_eq!(world.value(done), 1);
    }
}

#[test]
fn a_wait_that_was_not_reached_keeps_its_fence_and_goes_with_its_context() {
    let mut world = world(GpuWait::LooksAtHead);
    let device = world.device();
    let context = world.context(device, 0);
    for end in [false, true] {
        let gate = world.fence(device, 0).object;
        world.submit(context, &[Busy { duration_ns: 100 }]);
        world.gpu_wait(context, gate, 0);
        assert_eq!(world.kernel.snapshot().contexts[0].queue[1], "wait for [0] when reached");
        world.ok(Call::DestroySynchronizationObject { object: gate });
        assert_eq!(world.kernel.snapshot().objects_alive, 1);
        if end {
            world.ok(Call::DestroyContext { context });
        } else {
            world.advance(100);
        }
        assert_eq!(world.kernel.snapshot().objects_alive, 0);
        assert_eq!(world.kernel.miscounted(), None);
    }
}

#[test]
fn a_top_of_pipeline_fence_is_signaled_when_the_engine_begins_the_buffer_before() {
    covers!("FEN-048");
    let mut world = World::new();
    let device = world.device();
    let (first, context) = (world.context(device, 0), world.context(device, 0));
    let top = world.fence_with(device, 0, F::TOP_OF_PIPELINE).object;
    let bottom = world.fence(device, 0).object;
    world.submit(first, &[Busy { duration_ns: 100 }]);
    world.submit(context, &[Busy { duration_ns: 50 }]);
    // One call signals both: neither fence delays the other.
    assert_eq!(signal_many(&mut world, &[context], &[(bottom, 1), (top, 1)]), OK);
    world.submit(context, &[Busy { duration_ns: 50 }]);
    world.gpu_signal(&[context], top, 2);
    let event = world.pending(device, &[(top, 1)], false);
    world.advance(99);
    assert_eq!((world.value(top), world.value(bottom)), (0, 0), "the buffer is behind another context's");
    world.advance(1);
    assert_eq!((world.value(top), world.value(bottom)), (1, 0), "begun, not completed");
    assert_eq!(world.woken(), [event]);
    world.advance(49);
    assert_eq!((world.value(top), world.value(bottom)), (1, 0));
    world.advance(1);
    assert_eq!((world.value(top), world.value(bottom)), (2, 1));
}

#[test]
fn a_top_of_pipeline_fence_does_not_wait_for_a_buffer_that_never_completes() {
    covers!("FEN-048");
    let mut world = World::new();
    let device = world.device();
    let contexts = [world.context(device, 0), world.context(device, 1)];
    let top = world.fence_with(device, 0, F::TOP_OF_PIPELINE);
    let gate = world.fence(device, 0).object;
    world.submit(contexts[0], &[Hang, FenceWrite { gpu_address: top.gpu_address, value: 9 }]);
    world.gpu_wait(contexts[1], gate, 1);
    world.submit(contexts[1], &[Hang]);
    assert_eq!(signal_many(&mut world, &contexts, &[(top.object, 1)]), OK);
    assert_eq!(world.value(top.object), 0, "a broadcast waits for each of its contexts");
    world.signal(device, gate, 1);
    assert_eq!(world.value(top.object), 1);
    world.ok(Call::DestroyContext { context: contexts[0] });
}

#[test]
fn a_queue_that_waits_for_its_engine_may_end() {
    let mut world = World::new();
    let device = world.device();
    let (first, context) = (world.context(device, 0), world.context(device, 0));
    let top = world.fence_with(device, 0, F::TOP_OF_PIPELINE).object;
    world.submit(first, &[Busy { duration_ns: 100 }]);
    world.submit(context, &[Busy { duration_ns: 50 }]);
    world.gpu_signal(&[context], top, 1);
    world.ok(Call::DestroyContext { context });
    world.advance(200);
    assert_eq!(world.value(top), 0);
}
