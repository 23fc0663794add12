//! Bugs that random sequences found (`state_machine.rs`), each as a test of its shortest sequence.

use covers::covers;

use crate::common::{P, World, share};
use d3dkmt::isa::Packet::*;
use d3dkmt::{
    Call, CreatedSyncObject, Handle, HwQueueFlags, Luid, NtStatus, Reply, ShareToken, SyncObjectFlags,
};
use dxgkrnl::policy::CpuSignal;
use dxgkrnl::{AdapterConfig, Config, Policy, ProcessId, VidSchCaps};

/// An engine of the advanced kind and one of the basic kind.
const ADVANCED: u32 = 0;
const BASIC: u32 = 2;

#[test]
fn work_released_by_an_answered_signal_runs_before_the_next_input() {
    covers!("FEN-026");
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
    covers!("FEN-048");
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

const SHARED: SyncObjectFlags = SyncObjectFlags::SHARED.union(SyncObjectFlags::NT_SECURITY_SHARING);
const CROSS: SyncObjectFlags = SHARED.union(SyncObjectFlags::CROSS_ADAPTER);
const SECOND: Luid = Luid { low: 0x6770_0002, high: 0 };

/// Two adapters: the default one and the given one.
fn two_adapters(second: AdapterConfig) -> World {
    let second = AdapterConfig { luid: SECOND, ..second };
    World::with_config(Config { adapters: vec![AdapterConfig::default(), second], ..Config::default() })
}

/// Opens a shared fence: natively, or as a monitored fence.
fn open(world: &mut World, device: Handle, token: ShareToken, flags: SyncObjectFlags, native: bool) -> Reply {
    let engine_affinity = 0;
    world.ok(match native {
        true => Call::OpenNativeFence { device, token, flags, engine_affinity },
        false => Call::OpenSyncObject { device, token, flags, engine_affinity, legacy: false },
    })
}

fn opened(reply: Reply) -> CreatedSyncObject {
    let Reply::SyncObject(created) = reply else { panic!("{reply:?}") };
    created
}

#[test]
fn a_native_fence_is_not_opened_without_gpu_access() {
    let mut world = World::new();
    let device = world.device();
    let token = ShareToken([1; 16]);
    let fence = world.try_native(device, 0, SHARED).unwrap();
    world.ok(share(fence.object, token));
    let flags = SyncObjectFlags::NO_GPU_ACCESS;
    let call = Call::OpenNativeFence { device, token, flags, engine_affinity: 0 };
    assert_eq!(world.status(call), NtStatus::INVALID_PARAMETER);
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn engines_store_to_a_native_fence_if_one_of_its_process_may_and_else_not_even_in_memory() {
    covers!("FEN-050");
    let mut world = World::new();
    let token = ShareToken([1; 16]);
    let owner = world.device();
    let fence = world.try_native(owner, 0, SHARED).unwrap();
    world.ok(share(fence.object, token));
    let device = world.other(2);
    let [waits, writes] = [ADVANCED; 2].map(|node| world.queue_on(device, node, HwQueueFlags::empty()));
    let silent = opened(open(&mut world, device, token, SyncObjectFlags::NO_SIGNAL, true));
    let gpu_address = silent.gpu_address;
    let progress = FenceWrite { gpu_address: waits.fence.gpu_address, value: 1 };
    world.submit_hw(waits, 1, &[FenceWait { gpu_address, value: 3 }, progress]);
    world.submit_hw(writes, 1, &[FenceWrite { gpu_address, value: 3 }]);
    assert_eq!((world.value(silent.object), world.view(waits).progress), (0, 0), "NoSignal");
    // Another open at the same address may.
    let signals = opened(open(&mut world, device, token, SyncObjectFlags::empty(), true));
    assert_eq!(signals.gpu_address, gpu_address);
    world.submit_hw(writes, 2, &[FenceWrite { gpu_address, value: 2 }]);
    assert_eq!((world.value(silent.object), world.view(waits).progress), (2, 0));
    // When that open is destroyed, no store is allowed.
    world.ok(Call::DestroySynchronizationObject { object: signals.object });
    world.submit_hw(writes, 3, &[FenceWrite { gpu_address, value: 3 }]);
    assert_eq!((world.value(silent.object), world.view(waits).progress), (2, 0));
    world.process = P;
    world.signal(owner, fence.object, 3);
    world.process = ProcessId(2);
    assert_eq!(world.view(waits).progress, 1);
    world.process = P;
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn a_second_adapters_store_follows_the_first_adapters_stores() {
    covers!("FEN-115");
    let mut world = two_adapters(AdapterConfig::default());
    let [first, second] = [AdapterConfig::default().luid, SECOND].map(|luid| world.device_on(luid));
    let [f, g] = [1, 2].map(|number| {
        let fence = world.try_native(first, 0, CROSS).unwrap();
        let token = ShareToken([number; 16]);
        world.ok(share(fence.object, token));
        let opened_fence = opened(open(&mut world, second, token, SyncObjectFlags::empty(), true));
        world.close_nt_handle(token);
        (fence, opened_fence.gpu_address)
    });
    let none = HwQueueFlags::empty();
    let (writes, answers) = (world.queue_on(first, ADVANCED, none), world.queue_on(second, ADVANCED, none));
    let reads = world.queue_on(first, BASIC, none);
    world.submit_hw(
        answers,
        1,
        &[FenceWait { gpu_address: f.1, value: 5 }, FenceWrite { gpu_address: g.1, value: 2 }],
    );
    let store = |fence: &CreatedSyncObject, value| FenceWrite { gpu_address: fence.gpu_address, value };
    world.submit_hw(writes, 1, &[store(&f.0, 5), store(&g.0, 1)]);
    assert_eq!(world.value(g.0.object), 2);
    // A wait in hardware sees the same value.
    let wait = FenceWait { gpu_address: g.0.gpu_address, value: 2 };
    world.submit_hw(reads, 1, &[wait, store(&reads.fence, 1)]);
    assert_eq!(world.view(reads).progress, 1);
    world.finish();
}

#[test]
fn a_store_of_an_adapter_without_native_fences_is_in_the_memory_of_all_at_once() {
    covers!("FEN-114");
    let mut plain = AdapterConfig::default();
    plain.caps.remove(VidSchCaps::NATIVE_GPU_FENCE);
    let mut world = two_adapters(plain);
    let [first, second] = [AdapterConfig::default().luid, SECOND].map(|luid| world.device_on(luid));
    let (fence, token) = (world.try_native(first, 0, CROSS).unwrap(), ShareToken([1; 16]));
    world.ok(share(fence.object, token));
    let monitored = opened(open(&mut world, second, token, SyncObjectFlags::empty(), false));
    let writer = world.context(second, BASIC);
    let reads = world.queue_on(first, ADVANCED, HwQueueFlags::empty());
    let store = FenceWrite { gpu_address: monitored.gpu_address, value: 1 };
    world.submit(writer, &[store, Busy { duration_ns: 10 }]);
    // The engine interrupts at the end of the buffer; hardware that reads now sees the value.
    let wait = FenceWait { gpu_address: fence.gpu_address, value: 1 };
    let progress = FenceWrite { gpu_address: reads.fence.gpu_address, value: 1 };
    world.submit_hw(reads, 1, &[wait, progress]);
    assert_eq!(world.view(reads).progress, 1);
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn a_cross_adapter_fence_has_the_address_of_the_openers_adapter() {
    covers!("FEN-008");
    let mut world = two_adapters(AdapterConfig { iommu: true, ..AdapterConfig::default() });
    let [first, second] = [AdapterConfig::default().luid, SECOND].map(|luid| world.device_on(luid));
    let (fence, token) = (world.fence_with(first, 0, CROSS), ShareToken([1; 16]));
    world.ok(share(fence.object, token));
    let opened_fence = opened(open(&mut world, second, token, SyncObjectFlags::empty(), false));
    let context = world.context(second, ADVANCED);
    world.submit(context, &[FenceWrite { gpu_address: opened_fence.gpu_address, value: 1 }]);
    assert_eq!(world.value(fence.object), 1);
    world.close_nt_handle(token);
    world.finish();
}

#[test]
fn a_native_progress_fence_that_is_past_an_id_completes_it_at_its_submission() {
    covers!("FEN-101", "SCH-013");
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, HwQueueFlags::NATIVE_PROGRESS_FENCE);
    world.signal(device, queue.fence.object, 1);
    world.submit_hw(queue, 1, &[Busy { duration_ns: 10 }]);
    assert_eq!(world.view(queue).in_flight, 0);
    world.finish();
}
