//! Native fences: CurrentValue and MonitoredValue, lifetimes of their handles, and interrupts for monitored values.

use covers::covers;

use crate::common::hardware::*;
use crate::common::scripted::{ScriptRef, calls, inject, scripted};
use crate::common::{P, World, share};
use d3dkmt::{
    Call, CreatedSyncObject, Handle, Luid, NtStatus, Reply, ShareToken, SignalFlags, SyncObjectFlags, calls,
};
use dxgkrnl::ddi::{Callback, EngineId, Interrupt, NativeFenceId, SignaledNativeFences};
use dxgkrnl::{AdapterConfig, Config, Fault, Features, Input, ProcessId, VidSchCaps};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const SECOND: Luid = Luid { low: 0x6770_0002, high: 0 };
const SHARED: SyncObjectFlags = SyncObjectFlags::SHARED.union(SyncObjectFlags::NT_SECURITY_SHARING);
const CROSS: SyncObjectFlags = SHARED.union(SyncObjectFlags::CROSS_ADAPTER);
const Q: ProcessId = ProcessId(2);

/// Two adapters; the second supports native fences if `second_is_native`.
fn two_adapters(second_is_native: bool) -> (World, ScriptRef) {
    let mut second = AdapterConfig { luid: SECOND, ..AdapterConfig::default() };
    second.caps.set(VidSchCaps::NATIVE_GPU_FENCE, second_is_native);
    let config = Config { adapters: vec![AdapterConfig::default(), second], ..Config::default() };
    scripted(config)
}

fn signaled(signaled: SignaledNativeFences) -> Callback {
    Callback::NotifyInterrupt(Interrupt::NativeFenceSignaled { engine: ENGINE, signaled })
}

fn stored(fence: &CreatedSyncObject, value: u64) -> Callback {
    Callback::GpuStore { engine: ENGINE, process: P, gpu_address: fence.gpu_address, value }
}

fn open_native(world: &mut World, device: Handle, token: ShareToken) -> Result<CreatedSyncObject, NtStatus> {
    let flags = SyncObjectFlags::empty();
    match world.call(Call::OpenNativeFence { device, token, flags, engine_affinity: 0 }) {
        (OK, Reply::SyncObject(opened)) => Ok(opened),
        (status, _) => Err(status),
    }
}

fn open_monitored(
    world: &mut World,
    device: Handle,
    token: ShareToken,
) -> Result<CreatedSyncObject, NtStatus> {
    match world.call(calls::open(device, token)) {
        (OK, Reply::SyncObject(opened)) => Ok(opened),
        (status, _) => Err(status),
    }
}

fn shared(world: &mut World, object: Handle, number: u8) -> ShareToken {
    let token = ShareToken([number; 16]);
    world.ok(share(object, token));
    token
}

#[test]
fn current_value_is_read_by_users_written_by_kernel_and_gpu_and_never_torn() {
    covers!("FEN-096");
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NONE);
    world.stores();
    let fence = world.native(device);
    let slot = fence.slot.unwrap();
    assert_eq!(world.stores(), [(slot, 0)]);
    let value = 0x1234_5678_9ABC_DEF0;
    assert_eq!(world.signal(device, fence.object, 1), OK);
    assert_eq!(world.submit_hw(queue, 1, &[write(&fence, value)]), OK);
    assert_eq!(world.stores(), [(slot, 1), (slot, value)], "each change is one store of 64 bits");
    // There is no other way to write it: a store to any other address reaches no fence.
    let half = CreatedSyncObject { gpu_address: fence.gpu_address + 4, ..fence };
    assert_eq!(world.submit_hw(queue, 2, &[write(&half, 7)]), OK);
    assert_eq!((world.stores(), world.value(fence.object)), (vec![], value));
    world.finish();
}

#[test]
fn monitored_value_lies_where_no_process_or_engine_can_write() {
    covers!("FEN-097");
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NONE);
    let (fence, neighbour) = (world.native(device), world.native(device));
    world.stores();
    world.pending(device, &[(fence.object, 5)], false);
    assert_eq!(world.native_view(fence.object).monitored_value, 4);
    assert_eq!(world.stores(), [], "MonitoredValue changed, and the process's memory did not");
    let first_slot = fence.gpu_address - u64::from(fence.slot.unwrap()) * 64;
    let everywhere: Vec<_> = (0..64 * 8)
        .map(|index| first_slot + index * 8)
        .filter(|address| *address != fence.gpu_address)
        .map(|gpu_address| write(&CreatedSyncObject { gpu_address, ..fence }, 99))
        .collect();
    assert_eq!(world.submit_hw(queue, 1, &everywhere), OK);
    assert_eq!(world.native_view(fence.object).monitored_value, 4);
    assert_eq!((world.value(fence.object), world.value(neighbour.object)), (0, 99));
    world.finish();
}

#[test]
fn monitored_value_is_one_below_the_least_awaited_value() {
    covers!("FEN-098", "FEN-128");
    let (mut world, script) = scripted(crate::common::dropping(Config::default()));
    let device = world.device();
    let fence = world.native(device).object;
    let id = world.native_view(fence).fence.0;
    let update_line = |value: u64| vec![format!("update_monitored_value {id} {value}")];
    calls(&script, &[]);
    let nine = world.pending(device, &[(fence, 9)], false);
    assert_eq!(calls(&script, &["update_monitored"]), update_line(8));
    let five = world.pending(device, &[(fence, 5)], false);
    assert_eq!(calls(&script, &["update_monitored"]), update_line(4));
    world.pending(device, &[(fence, 7)], false);
    assert_eq!(calls(&script, &["update_monitored"]), Vec::<String>::new());
    // A wait for 0 is satisfied at once and monitors nothing: a MonitoredValue of 0 - 1 would mean no waiter.
    assert!(matches!(world.wait(device, &[(fence, 0)], false), Ok((_, d3dkmt::WaitOutcome::Satisfied))));
    assert_eq!(
        (calls(&script, &["update_monitored"]), world.native_view(fence).monitored_value),
        (vec![], 4)
    );
    world.ok(Call::CancelWait { event: five });
    assert_eq!(calls(&script, &["update_monitored"]), update_line(6));
    assert_eq!(world.signal(device, fence, 8), OK);
    assert_eq!(calls(&script, &["update_monitored"]), update_line(8));
    assert_eq!(world.signal(device, fence, 9), OK);
    assert!(world.woken().contains(&nine));
    assert_eq!(calls(&script, &["update_monitored"]), update_line(u64::MAX));
    // A software queue waits as a CPU does.
    let context = world.context(device, ADVANCED);
    assert_eq!(world.gpu_wait(context, fence, 20), OK);
    assert_eq!(calls(&script, &["update_monitored"]), update_line(19));
    world.ok(Call::DestroyContext { context });
    assert_eq!(calls(&script, &["update_monitored"]), update_line(u64::MAX));
    world.finish();
}

#[test]
fn an_engine_does_not_interrupt_for_unmonitored_values() {
    covers!("FEN-099");
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, BASIC);
    let queue = world.hw_queue(context, NATIVE);
    let fence = world.native(device);
    let event = world.pending(device, &[(fence.object, 5)], false);
    // If the write of 4 raised an interrupt, the fault would lose that one.
    world.input(Input::Fault(Fault::LoseInterrupt { engine: EngineId { adapter: 0, node: BASIC } }));
    assert_eq!(world.submit_hw(queue, 1, &[write(&fence, 4), write(&fence, 5), busy(10)]), OK);
    assert_eq!(
        (world.value(fence.object), world.woken()),
        (5, vec![]),
        "the interrupt of the write of 5 was lost"
    );
    let mut unseen = 0;
    world.kernel.unseen_writes(&mut |_| unseen += 1);
    assert_eq!(unseen, 1, "the view reports one pending write");
    assert_eq!(world.signal(device, fence.object, 5), OK);
    assert_eq!(world.woken(), [event]);
    world.finish();
}

#[test]
fn a_wait_that_is_added_while_the_gpu_writes_is_not_missed() {
    covers!("FEN-101", "FEN-103");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.native(device);
    // The engine compared with the old MonitoredValue and stored without an interrupt, while the kernel changed it.
    script.borrow().call_back("update_monitored_values", [stored(&fence, 5)]);
    let event = world.pending(device, &[(fence.object, 5)], false);
    assert_eq!(world.woken(), [event], "the kernel compared again after the update");
    assert_eq!(world.native_view(fence.object).monitored_value, u64::MAX);
    script.borrow().call_back("update_monitored_values", [stored(&fence, 6)]);
    world.pending(device, &[(fence.object, 7)], false);
    assert_eq!((world.woken(), world.value(fence.object)), (vec![], 6));
    world.finish();
}

#[test]
fn spurious_interrupts_do_nothing() {
    covers!("FEN-102");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.native(device);
    let id = world.native_view(fence.object).fence;
    world.pending(device, &[(fence.object, 5)], false);
    world.effects.clear();
    for which in [
        SignaledNativeFences::These(vec![id, id]),
        SignaledNativeFences::All { evaluate_legacy_monitored_fences: true },
        SignaledNativeFences::Logged { hw_queue: None },
    ] {
        inject(&mut world, &script, vec![signaled(which)]);
    }
    assert!(world.effects.is_empty() && world.kernel.bugchecked().is_none());
    world.finish();
}

#[test]
fn private_fences_share_pages_of_their_process_and_shareable_ones_have_their_own() {
    covers!("FEN-104");
    let mut world = World::new();
    let device = world.device();
    let storage_of = |world: &World, object| {
        let storage = world.native_view(object).storage;
        (storage.page, storage.offset_bytes)
    };
    let stride = dxgkrnl::ddi::NATIVE_FENCE_STRIDE_BYTES;
    let first = world.native(device).object;
    let shareable = world.try_native(device, 0, SHARED).unwrap().object;
    let second = world.native(device).object;
    let (page, offset) = storage_of(&world, first);
    assert_eq!((offset, storage_of(&world, second)), (0, (page, stride)));
    let (own_page, own_offset) = storage_of(&world, shareable);
    assert!(own_page != page && own_offset == 0);
    let other_shareable = world.try_native(device, 0, SHARED).unwrap().object;
    assert_ne!(storage_of(&world, other_shareable).0, own_page);
    // Freed storage is reused; a full page is followed by another.
    world.ok(Call::DestroySynchronizationObject { object: first });
    let again = world.native(device).object;
    assert_eq!(storage_of(&world, again), (page, 0));
    world.input(Input::FenceMemoryAdded { process: P, slots: 128 });
    let storages: Vec<_> = (0..63)
        .map(|_| {
            let fence = world.native(device).object;
            storage_of(&world, fence)
        })
        .collect();
    assert!(
        storages[..62].iter().all(|(at, _)| *at == page) && storages[62].0 != page && storages[62].1 == 0
    );
    // Private fences of two processes never share a page.
    world.process = Q;
    world.attach(Q);
    let device = world.device();
    let theirs = world.native(device).object;
    let theirs = storage_of(&world, theirs);
    assert!(theirs.1 == 0 && theirs.0 != page && theirs.0 != storages[62].0);
    world.finish();
}

#[test]
fn types_other_than_default_are_refused() {
    covers!("FEN-105", "FEN-113");
    let mut world = World::new();
    let device = world.device();
    let none = SyncObjectFlags::empty();
    assert!(world.try_native(device, 0, none).is_ok());
    assert_eq!(world.try_native(device, 1, none).err(), Some(UNSUPPORTED), "INTRA_GPU is not supported yet");
    assert_eq!(world.try_native(device, 2, none).err(), Some(IP));
    assert_eq!(world.try_native(device, 1, CROSS).err(), Some(IP), "cross-adapter is DEFAULT");
    assert!(world.try_native(device, 0, CROSS).is_ok());
    for bad in [SyncObjectFlags::SHARED, SyncObjectFlags::CROSS_ADAPTER, SyncObjectFlags::NO_GPU_ACCESS] {
        assert_eq!(world.try_native(device, 0, bad).err(), Some(IP), "{bad:?}");
    }
    world.finish();
}

#[test]
fn an_adapter_that_advertises_native_fences_to_a_system_without_them_does_not_start() {
    covers!("FEN-106");
    let features = Features::HARDWARE_SCHEDULING;
    let mut world = World::with_config(Config { features, ..Config::default() });
    assert!(world.kernel.start_failures()[&0].contains("FEN-106"));
    assert_eq!(world.ok(Call::EnumAdapters { capacity: 34 }), Reply::Adapters(vec![]));
    let luid = AdapterConfig::default().luid;
    assert!(!world.status(Call::OpenAdapterFromLuid { luid }).is_success());
    world.finish();
    // Without the cap the adapter starts, without native fences.
    let mut config = Config { features, ..Config::default() };
    config.adapters[0].caps.remove(VidSchCaps::NATIVE_GPU_FENCE);
    let mut world = World::with_config(config);
    assert!(world.kernel.start_failures().is_empty());
    let device = world.device();
    assert_eq!(world.try_native(device, 0, SyncObjectFlags::empty()).err(), Some(UNSUPPORTED));
    world.finish();
}

const NAMES: [&str; 4] = ["create_native", "open_native", "close_native", "destroy_native"];

#[test]
fn local_handles_close_one_by_one_and_the_global_one_goes_last() {
    covers!("FEN-107");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.try_native(device, 0, SHARED).unwrap();
    let created_lines = calls(&script, &NAMES);
    assert!(
        created_lines[0].starts_with("create_native_fence 1 ")
            && created_lines[1].starts_with("open_native_fence 2 of 1 for p1")
    );
    let token = shared(&mut world, fence.object, 1);
    world.process = Q;
    world.attach(Q);
    let other_device = world.device();
    let opened = open_native(&mut world, other_device, token).unwrap();
    assert!(calls(&script, &NAMES)[0].starts_with("open_native_fence 3 of 1 for p2"));
    world.process = P;
    world.close_nt_handle(token);
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
    assert_eq!(calls(&script, &NAMES), ["close_native_fence 2"]);
    world.process = Q;
    assert_eq!(world.signal(other_device, opened.object, 3), OK);
    world.ok(Call::DestroySynchronizationObject { object: opened.object });
    assert_eq!(calls(&script, &NAMES), ["close_native_fence 3", "destroy_native_fence 1"]);
    world.process = P;
    world.finish();
}

#[test]
fn a_process_has_a_native_fence_at_one_address_and_another_process_at_another() {
    covers!("FEN-108");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    world.fence(device, 0);
    let fence = world.try_native(device, 0, SHARED).unwrap();
    let token = shared(&mut world, fence.object, 1);
    let second_device = world.device();
    calls(&script, &NAMES);
    let again = open_native(&mut world, second_device, token).unwrap();
    assert_eq!((again.slot, again.gpu_address), (fence.slot, fence.gpu_address));
    assert_ne!(again.object, fence.object);
    assert_eq!(calls(&script, &NAMES), Vec::<String>::new(), "the fence was already mapped");
    world.process = Q;
    world.attach(Q);
    let their_device = world.device();
    let theirs = open_native(&mut world, their_device, token).unwrap();
    assert_ne!(theirs.gpu_address, fence.gpu_address);
    world.process = P;
    // The mapping lives until the last open is destroyed.
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
    assert_eq!(calls(&script, &["close"]), Vec::<String>::new());
    let context = world.context(second_device, ADVANCED);
    world.stores();
    assert_eq!(world.submit(context, &[write(&again, 4)]), OK);
    assert_eq!(world.stores(), [(again.slot.unwrap(), 4), (theirs.slot.unwrap(), 4)]);
    world.ok(Call::DestroySynchronizationObject { object: again.object });
    assert_eq!(calls(&script, &["close"]).len(), 1);
    let reuses = world.native(device);
    assert_eq!(world.kernel.miscounted(), None);
    assert_ne!(reuses.slot, None);
    world.finish();
}

#[test]
fn an_interrupt_that_names_a_destroyed_fence_is_a_bugcheck() {
    covers!("FEN-109");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (fence, other) = (world.native(device), world.native(device));
    let id = world.native_view(fence.object).fence;
    let event = world.pending(device, &[(fence.object, 5)], false);
    let these = |id| signaled(SignaledNativeFences::These(vec![id]));
    inject(&mut world, &script, vec![stored(&fence, 5), these(id)]);
    assert_eq!((world.woken(), world.kernel.bugchecked()), (vec![event], None));
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
    world.ok(Call::DestroySynchronizationObject { object: other.object });
    inject(&mut world, &script, vec![these(id)]);
    let bugcheck = world.kernel.bugchecked().expect("the interrupt is a bugcheck");
    assert_eq!((bugcheck.code, bugcheck.parameters[1]), (0x119, id.0));
    world.finish();
}

/// The driver reported it when it did not know of the end.
#[test]
fn a_fence_that_ends_between_its_interrupt_and_the_dpc_is_ignored() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.native(device);
    let id = world.native_view(fence.object).fence;
    script.borrow().forgets_dpc = true;
    inject(&mut world, &script, vec![signaled(SignaledNativeFences::These(vec![id]))]);
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
    script.borrow().forgets_dpc = false;
    inject(&mut world, &script, vec![signaled(SignaledNativeFences::These(vec![]))]);
    assert_eq!(world.kernel.bugchecked(), None);
    world.finish();
}

#[test]
fn a_null_array_scans_native_fences_and_with_a_flag_monitored_ones() {
    covers!("FEN-110");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (native, monitored) = (world.native(device), world.fence(device, 0));
    let native_event = world.pending(device, &[(native.object, 1)], false);
    let monitored_event = world.pending(device, &[(monitored.object, 1)], false);
    inject(&mut world, &script, vec![stored(&native, 1), stored(&monitored, 1)]);
    assert_eq!(world.woken(), [], "no interrupt reported the value");
    let all = |legacy| signaled(SignaledNativeFences::All { evaluate_legacy_monitored_fences: legacy });
    inject(&mut world, &script, vec![all(false)]);
    assert_eq!(world.woken(), [native_event]);
    inject(&mut world, &script, vec![all(true)]);
    assert_eq!(world.woken(), [monitored_event]);
    world.finish();
}

#[test]
fn the_fences_of_a_device_in_error_are_signaled_for_ever() {
    covers!("FEN-111");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let broken = world.device();
    let fence = world.try_native(broken, 0, SHARED).unwrap();
    let token = shared(&mut world, fence.object, 1);
    let opened = open_native(&mut world, device, token).unwrap();
    let kept = world.native(device).object;
    let id = world.native_view(opened.object).fence.0;
    let context = world.context(broken, ADVANCED);
    let event = world.pending(device, &[(opened.object, 1000)], false);
    let queue = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[wait(&opened, 77), write(&queue.fence, 1)]), OK);
    assert_eq!(world.view(queue).progress, 0);
    calls(&script, &[]);
    // A refused one-way call stops the device.
    let call = Call::WaitFromGpu { context, objects: vec![].into(), values: vec![].into() };
    world.input(Input::Call { process: P, request: 0, call });
    let expected = format!("update_current_value {id} {} always true notification false", u64::MAX);
    assert_eq!(calls(&script, &["update_current"]), [expected]);
    assert_eq!((world.woken(), world.value(opened.object)), (vec![event], u64::MAX));
    assert_eq!(world.view(queue).progress, 1, "hardware waits are satisfied");
    // Signals by the kernel or by an engine have no effect.
    world.stores();
    let rewind = SignalFlags::ALLOW_FENCE_REWIND;
    assert_eq!(world.signal_flags(device, opened.object, 3, rewind), OK);
    assert_eq!(world.submit_hw(queue, 2, &[write(&opened, 3), write(&queue.fence, 2)]), OK);
    assert_eq!(world.stores(), [(queue.fence.slot.unwrap(), 2)]);
    assert_eq!((world.value(opened.object), world.value(kept)), (u64::MAX, 0));
    // The hardware ignores its own store as well.
    assert_eq!(world.submit_hw(queue, 3, &[wait(&opened, 1000), write(&queue.fence, 3)]), OK);
    assert_eq!(world.view(queue).progress, 3);
    world.finish();
}

#[test]
fn a_cpu_signal_is_written_by_the_driver_and_a_notification_only_checks_waits() {
    covers!("FEN-112");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    let fence = world.native(device);
    let id = world.native_view(fence.object).fence.0;
    assert_eq!(world.submit_hw(queue, 1, &[wait(&fence, 5), write(&queue.fence, 1)]), OK);
    assert_eq!(world.view(queue).progress, 0);
    assert_eq!(world.signal(device, fence.object, 5), OK);
    let expected = format!("update_current_value {id} 5 always false notification false");
    assert_eq!(calls(&script, &["update_current"]), [expected]);
    assert_eq!(world.view(queue).progress, 1);
    // The kernel itself writes the memory of a cross-adapter fence.
    let cross = world.try_native(device, 0, CROSS).unwrap();
    let id = world.native_view(cross.object).fence.0;
    assert_eq!(world.submit_hw(queue, 2, &[wait(&cross, 5), write(&queue.fence, 2)]), OK);
    assert_eq!(world.signal(device, cross.object, 5), OK);
    let expected = format!("update_current_value {id} 5 always false notification true");
    assert_eq!(calls(&script, &["update_current"]), [expected]);
    assert_eq!(world.view(queue).progress, 2);
    // That a fence is signaled for ever is more than its value in memory: the driver writes it.
    world.ok(Call::MarkDeviceAsError { device, reason: 0 });
    let expected = format!("update_current_value {id} {} always true notification false", u64::MAX);
    assert!(calls(&script, &["update_current"]).contains(&expected));
    world.finish();
}

#[test]
fn a_cross_adapter_signal_always_interrupts_and_is_passed_to_the_other_gpu() {
    covers!("FEN-114", "FEN-115");
    let (mut world, script) = two_adapters(true);
    let device = world.device_on(AdapterConfig::default().luid);
    let fence = world.try_native(device, 0, CROSS).unwrap();
    let token = shared(&mut world, fence.object, 1);
    let second_device = world.device_on(SECOND);
    let opened = open_native(&mut world, second_device, token).unwrap();
    let created_lines = calls(&script, &["create_native"]);
    let storage = |line: &String| line.split_once(": ").unwrap().1.to_string();
    assert_eq!(created_lines.len(), 2, "a global handle on each adapter");
    assert_eq!(storage(&created_lines[0]), storage(&created_lines[1]), "both handles share one CurrentValue");
    assert!(created_lines.iter().all(|line| line.ends_with("monitored 0")));
    // Its MonitoredValue is pinned: waits do not change it.
    let event = world.pending(device, &[(fence.object, 9)], false);
    assert_eq!(calls(&script, &["update_monitored"]), Vec::<String>::new());
    // The first GPU waits in hardware for a signal of the second.
    let waits = world.queue_on(device, ADVANCED, NONE);
    let signals = world.queue_on(second_device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(waits, 1, &[wait(&fence, 3), write(&waits.fence, 1)]), OK);
    calls(&script, &[]);
    assert_eq!(world.submit_hw(signals, 1, &[write(&opened, 2)]), OK);
    assert_eq!(calls(&script, &["update_current"]).len(), 1, "2 has no waiter, and still interrupts");
    assert_eq!(world.view(waits).progress, 0);
    assert_eq!(world.submit_hw(signals, 2, &[write(&opened, 3)]), OK);
    let updates = calls(&script, &["update_current"]);
    assert_eq!(updates, ["update_current_value 1 3 always false notification true"]);
    assert_eq!((world.view(waits).progress, world.woken()), (1, vec![]));
    assert_eq!(world.submit_hw(signals, 3, &[write(&opened, 9)]), OK);
    assert_eq!(world.woken(), [event]);
    world.finish();
}

#[test]
fn a_cross_adapter_fence_is_native_where_that_is_supported_and_monitored_elsewhere() {
    covers!("FEN-116");
    let (mut world, script) = two_adapters(false);
    let native_device = world.device_on(AdapterConfig::default().luid);
    let plain_device = world.device_on(SECOND);
    // Created as native, opened as monitored.
    let native = world.try_native(native_device, 0, CROSS).unwrap();
    let token = shared(&mut world, native.object, 1);
    assert_eq!(open_native(&mut world, plain_device, token).err(), Some(UNSUPPORTED));
    assert_eq!(
        open_monitored(&mut world, native_device, token).err(),
        Some(IP),
        "the fence is native on this adapter"
    );
    calls(&script, &NAMES);
    let as_monitored = open_monitored(&mut world, plain_device, token).unwrap();
    assert_eq!(calls(&script, &NAMES), Vec::<String>::new(), "the driver gets no native fence");
    let event = world.pending(plain_device, &[(as_monitored.object, 1)], false);
    assert_eq!(world.signal(native_device, native.object, 1), OK);
    assert_eq!(world.woken(), [event]);
    // Created as monitored, opened as native.
    let monitored = world.fence_with(plain_device, 0, CROSS);
    let token = shared(&mut world, monitored.object, 2);
    let as_native = open_native(&mut world, native_device, token).unwrap();
    let created_lines = calls(&script, &NAMES);
    assert!(created_lines[0].contains(" on 0: ") && created_lines.len() == 2, "{created_lines:?}");
    let event = world.pending(plain_device, &[(monitored.object, 1)], false);
    let context = world.context(native_device, ADVANCED);
    assert_eq!(world.submit(context, &[write(&as_native, 1)]), OK);
    assert_eq!(world.woken(), [event]);
    // Without CrossAdapter neither opens on another adapter.
    let private = world.try_native(native_device, 0, SHARED).unwrap();
    let token = shared(&mut world, private.object, 3);
    assert_eq!(open_monitored(&mut world, plain_device, token).err(), Some(IP));
    let private = world.fence_with(plain_device, 0, SHARED);
    let token = shared(&mut world, private.object, 4);
    assert_eq!(open_native(&mut world, native_device, token).err(), Some(IP));
    world.finish();
}

#[test]
fn a_packet_signal_of_the_gpu_without_native_fences_is_the_kernels_write_and_is_passed_on() {
    covers!("FEN-117");
    let (mut world, script) = two_adapters(false);
    let native_device = world.device_on(AdapterConfig::default().luid);
    let plain_device = world.device_on(SECOND);
    let native = world.try_native(native_device, 0, CROSS).unwrap();
    let token = shared(&mut world, native.object, 1);
    let monitored = open_monitored(&mut world, plain_device, token).unwrap();
    let waits = world.queue_on(native_device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(waits, 1, &[wait(&native, 1), write(&waits.fence, 1)]), OK);
    let context = world.context(plain_device, ADVANCED);
    assert_eq!(world.submit(context, &[busy(100)]), OK);
    assert_eq!(world.gpu_signal(&[context], monitored.object, 1), OK);
    calls(&script, &[]);
    world.stores();
    world.advance(99);
    assert_eq!((world.value(native.object), world.view(waits).progress), (0, 0), "not at the head yet");
    world.advance(1);
    assert_eq!(world.value(native.object), 1);
    let updates = calls(&script, &["update_current"]);
    assert_eq!(updates, ["update_current_value 1 1 always false notification true"]);
    assert_eq!(world.view(waits).progress, 1);
    world.finish();
}

#[test]
fn a_native_fence_needs_a_fence_slot_and_a_working_device() {
    let mut world = World::new();
    let device = world.device();
    world.process = Q;
    world.attach(Q);
    let their_device = world.device();
    for _ in 0..63 {
        world.native(their_device);
    }
    let flags = SyncObjectFlags::empty();
    let call = calls::create_native_fence(their_device, flags);
    assert_eq!(world.ok(call), Reply::FenceMemoryExhausted);
    world.process = P;
    assert_eq!(world.try_native(Handle::NULL, 0, flags).err(), Some(IP));
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.try_native(device, 0, flags).err(), Some(NtStatus::DEVICE_REMOVED));
    assert_ne!(NativeFenceId(0), NativeFenceId(1));
    world.finish();
}

/// Found by review: the engine did not check a preempted, waiting buffer behind another buffer of its queue.
#[test]
fn a_hardware_wait_ends_at_any_position_of_its_buffer() {
    for first_runs_on in [false, true] {
        let mut world = World::new();
        let device = world.device();
        let (a, b) = (world.context(device, ADVANCED), world.context(device, ADVANCED));
        let [f, g, done] = [(); 3].map(|()| world.native(device));
        assert_eq!(world.submit(b, &[wait(&f, 1), write(&done, 1)]), OK);
        // The kernel preempts the waiting buffer at 100 ms; from then on it is behind this one.
        let long = [busy(50_000_000), wait(&g, if first_runs_on { 0 } else { 1 })];
        assert_eq!(world.submit(a, &long), OK);
        world.advance(160_000_000);
        assert_eq!(world.signal(device, f.object, 1), OK);
        assert_eq!(world.signal(device, g.object, 1), OK);
        world.advance(300_000_000);
        assert_eq!(world.value(done.object), 1);
        world.finish();
    }
}
