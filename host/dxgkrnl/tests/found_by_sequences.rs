//! What random sequences found (`state_machine.rs`): the shortest sequence of each, as a test of its own.

use crate::common::{P, World, share, without_timeouts};
use d3dkmt::isa::Packet::*;
use d3dkmt::{Call, HwQueueFlags, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType};
use dxgkrnl::policy::{CpuSignal, GpuWait};
use dxgkrnl::{Config, Policy, ProcessId};

/// An engine of the advanced kind and one of the basic kind.
const ADVANCED: u32 = 0;
const BASIC: u32 = 2;

#[test]
fn the_end_of_an_idle_context_tells_nobody_of_what_another_writes() {
    // covers: FEN-017
    let mut world = World::new();
    let device = world.device();
    let (writer, idle) = (world.context(device, BASIC), world.context(device, ADVANCED));
    let fence = world.fence(device, 0);
    let event = world.pending(device, &[(fence.object, 1)], false);
    world
        .submit(writer, &[FenceWrite { gpu_address: fence.gpu_address, value: 1 }, Busy { duration_ns: 10 }]);
    world.ok(Call::DestroyContext { context: idle });
    assert_eq!((world.value(fence.object), world.woken()), (1, vec![]), "the buffer is not done");
    world.advance(10);
    assert_eq!(world.woken(), [event]);
    world.finish();
}

#[test]
fn a_done_buffer_of_any_process_that_has_the_fence_lets_its_waiters_go() {
    // covers: FEN-017
    let mut world = World::new();
    let device = world.device();
    let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let created = world.fence_with(device, 0, shared);
    let (fence, gpu_address, token) = (created.object, created.gpu_address, ShareToken([1; 16]));
    world.ok(share(fence, token));
    let other_device = world.other(2);
    let flags = SyncObjectFlags::empty();
    world.ok(Call::OpenSyncObject { device: other_device, token, flags, engine_affinity: 0, legacy: false });
    world.process = P;
    let writer = world.context(device, BASIC);
    let event = world.pending(device, &[(fence, 1)], false);
    world.submit(writer, &[FenceWrite { gpu_address, value: 1 }, Hang]);
    // A process that has nothing to do with the fence is none of its processes.
    let stranger_device = world.other(3);
    let stranger = world.context(stranger_device, BASIC + 1);
    world.submit(stranger, &[Busy { duration_ns: 10 }]);
    world.advance(10);
    assert_eq!(world.woken(), []);
    world.process = ProcessId(2);
    let reader = world.context(other_device, BASIC + 1);
    world.submit(reader, &[Busy { duration_ns: 10 }]);
    world.advance(10);
    assert_eq!(world.woken(), [event], "all fences of the process whose buffer is done are looked at");
    world.process = P;
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn a_mutex_is_not_taken_while_the_buffer_before_it_waits_for_its_engine() {
    // covers: SCH-001
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let contexts = [0; 3].map(|_| world.context(device, ADVANCED));
    let info = SyncObjectInfo { object_type: SyncObjectType::MUTEX, ..SyncObjectInfo::default() };
    let mutex = world.object(device, info).object;
    for context in contexts {
        world.submit(context, &[Busy { duration_ns: 10 }]);
    }
    // The engine has room for two: the third buffer is not with it yet.
    world.ok(Call::WaitFromGpuLegacy { context: contexts[2], objects: vec![mutex], fence_value: 0 });
    for taken in [0, 0, 0, 1] {
        assert_eq!(world.value(mutex), taken, "at {} ns", world.now);
        world.advance(10);
    }
    world.finish();
}

#[test]
fn fences_that_are_waited_for_with_a_mutex_are_looked_at_at_the_head_too() {
    // covers: SCH-001
    for (gpu_wait, taken) in [(GpuWait::LatchesWhenQueued, 1), (GpuWait::LooksAtHead, 0)] {
        let policy = Policy { gpu_wait, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let device = world.device();
        let context = world.context(device, ADVANCED);
        let fence = world.fence(device, 0).object;
        let info = SyncObjectInfo { object_type: SyncObjectType::MUTEX, ..SyncObjectInfo::default() };
        let mutex = world.object(device, info).object;
        world.submit(context, &[Busy { duration_ns: 10 }]);
        world.ok(Call::WaitFromGpu { context, objects: vec![fence, mutex], values: vec![1, 0] });
        // A pulse, while what is before the wait still runs.
        world.signal(device, fence, 1);
        world.signal_flags(device, fence, 0, SignalFlags::ALLOW_FENCE_REWIND);
        world.advance(10);
        assert_eq!(world.value(mutex), taken, "{gpu_wait:?}");
        world.signal(device, fence, 1);
        assert_eq!(world.value(mutex), 1);
        world.finish();
    }
}

#[test]
fn what_an_answered_signal_releases_goes_on_before_anything_else_happens() {
    // covers: FEN-026
    let policy = Policy { cpu_signal: CpuSignal::AfterAnswer, ..Policy::default() };
    let mut world = World::with_config(Config { policy, ..Config::default() });
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let [gate, done] = [0; 2].map(|_| world.fence(device, 0).object);
    world.gpu_wait(context, gate, 1);
    world.gpu_signal(&[context], done, 1);
    world.signal(device, gate, 1);
    assert_eq!((world.value(gate), world.value(done)), (0, 0));
    world.ok(Call::DestroyContext { context });
    assert_eq!((world.value(gate), world.value(done)), (1, 1));
    world.finish();
}

#[test]
fn a_buffer_that_waits_in_hardware_has_begun() {
    // covers: FEN-048
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, HwQueueFlags::empty());
    let native = world.native(device);
    let early = world.fence_with(device, 0, SyncObjectFlags::TOP_OF_PIPELINE).object;
    let late = world.fence(device, 0).object;
    let wait = FenceWait { gpu_address: native.gpu_address, value: 1 };
    let progress = FenceWrite { gpu_address: queue.fence.gpu_address, value: 1 };
    world.submit_hw(queue, 1, &[wait, progress]);
    world.signal_hw(&[queue], early, 1);
    world.signal_hw(&[queue], late, 1);
    assert_eq!((world.value(early), world.value(late)), (1, 0));
    world.signal(device, native.object, 1);
    assert_eq!(world.value(late), 1);
    world.finish();
}
