//! Queue order beyond FIFO: waits by policy, broadcasts whose context ends, and TopOfPipeline fences.

use covers::covers;

use crate::common::{OK, World};
use d3dkmt::{
    Call, GpuSignal, Handle, NtStatus, SignalFlags, SyncObjectFlags as F,
    isa::Packet::{Busy, FenceWrite, Hang},
};
use dxgkrnl::policy::GpuWait;
use dxgkrnl::{Config, Policy};

fn signal_many(world: &mut World, contexts: &[Handle], targets: &[(Handle, u64)]) -> NtStatus {
    let (objects, values) = targets.iter().copied().unzip();
    let signal = GpuSignal::Monitored { objects, values };
    world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags: SignalFlags::empty() })
}

#[test]
fn a_wait_that_was_not_reached_keeps_its_fence_and_goes_with_its_context() {
    let policy = Policy { gpu_wait: GpuWait::LooksAtHead, ..Policy::default() };
    let mut world = World::with_config(crate::common::dropping(Config { policy, ..Config::default() }));
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

/// Beside it stand signals by their values: an internal number would be read as one.
#[test]
fn a_wait_in_a_queue_is_shown_by_its_values() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let context = world.context(device, 0);
    let [gate, other] = [(); 2].map(|()| world.fence(device, 0).object);
    world.gpu_wait(context, gate, 7);
    let (objects, values) = (vec![gate, other].into(), vec![8, 9].into());
    world.ok(Call::WaitFromGpu { context, objects, values });
    world.gpu_signal(&[context], other, 3);
    let snapshot = world.kernel.snapshot();
    assert_eq!(snapshot.contexts[0].queue, ["wait for [7]", "wait for [8, 9]", "signal [3]"]);
}

#[test]
fn a_broadcast_whose_context_ends_before_it_keeps_no_fence() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let contexts = [0; 2].map(|_| world.context(device, 0));
    let (fence, gate) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(contexts[1], gate, 1);
    world.gpu_signal(&contexts, fence, 1);
    world.ok(Call::DestroySynchronizationObject { object: fence });
    assert_eq!(world.kernel.snapshot().objects_alive, 2);
    world.ok(Call::DestroyContext { context: contexts[1] });
    assert_eq!(world.kernel.snapshot().objects_alive, 1, "nothing references the fence");
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
fn a_signal_of_both_kinds_begins_with_top_of_pipeline_fences_on_an_idle_queue_too() {
    covers!("FEN-048");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let top = world.fence_with(device, 0, F::TOP_OF_PIPELINE).object;
    let bottom = world.fence(device, 0).object;
    let waits = [bottom, top].map(|fence| world.pending(device, &[(fence, 1)], false));
    assert_eq!(signal_many(&mut world, &[context], &[(bottom, 1), (top, 1)]), OK);
    assert_eq!(world.woken(), [waits[1], waits[0]]);
}

#[test]
fn a_top_of_pipeline_fence_does_not_wait_for_a_buffer_that_never_completes() {
    covers!("FEN-048");
    let mut world = World::with_config(crate::common::dropping(Config::default()));
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
    let mut world = World::with_config(crate::common::dropping(Config::default()));
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
