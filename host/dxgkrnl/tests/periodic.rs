//! Periodic monitored fences: the display increments them, and they are waited on like any other.

use covers::covers;

use crate::common::scripted::{calls, inject, scripted};
use crate::common::{IP, OK, P, World, share};
use d3dkmt::{
    Call, CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F, SyncObjectInfo,
    SyncObjectType as T, limits,
};
use dxgkrnl::ddi::{Callback, Interrupt, NotificationRefused};
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Input, ProcessId, TargetConfig};

const VSYNC_NS: u64 = 10_000;

/// Two displays: target 7 with a vsync every 10 us, target 8 every 25 us.
fn config() -> Config {
    let targets = vec![TargetConfig { id: 7, vsync_ns: VSYNC_NS }, TargetConfig { id: 8, vsync_ns: 25_000 }];
    Config { adapters: vec![AdapterConfig { targets, ..AdapterConfig::default() }], ..Config::default() }
}

fn info(adapter: Handle, vidpn_target: u32, time_100ns: u64) -> SyncObjectInfo {
    let object_type = T::PERIODIC_MONITORED_FENCE;
    SyncObjectInfo { object_type, adapter, vidpn_target, time_100ns, ..SyncObjectInfo::default() }
}

fn device(world: &mut World) -> (Handle, Handle) {
    let adapter = world.adapter();
    let Reply::Device(device) = world.ok(Call::CreateDevice { adapter, flags: 0 }) else { panic!() };
    (adapter, device)
}

fn periodic(world: &mut World, target: u32, time_100ns: u64) -> (Handle, CreatedSyncObject) {
    let (adapter, device) = device(world);
    (device, world.object(device, info(adapter, target, time_100ns)))
}

#[test]
fn a_lead_time_beyond_64_bits_of_nanoseconds_is_refused() {
    covers!("FEN-083");
    let mut world = World::with_config(config());
    let (adapter, device) = device(&mut world);
    for time in [u64::MAX / 100 + 1, u64::MAX] {
        assert_eq!(world.try_create(device, info(adapter, 7, time), false).0, IP, "{time}");
    }
}

#[test]
fn a_periodic_fence_names_a_display_of_its_device_s_adapter() {
    let second = AdapterConfig { luid: d3dkmt::Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let mut config = config();
    config.adapters.push(second.clone());
    let mut world = World::with_config(config);
    let device = world.device_on(AdapterConfig::default().luid);
    let Reply::Adapter(default_adapter) =
        world.ok(Call::OpenAdapterFromLuid { luid: AdapterConfig::default().luid })
    else {
        panic!()
    };
    let Reply::Adapter(other) = world.ok(Call::OpenAdapterFromLuid { luid: second.luid }) else { panic!() };
    assert_eq!(world.try_create(device, info(default_adapter, 7, 0), false).0, OK);
    assert_eq!(world.try_create(device, info(default_adapter, 0, 0), false).0, IP, "no such target");
    assert_eq!(world.try_create(device, info(Handle::NULL, 7, 0), false).0, IP);
    assert_eq!(world.try_create(device, info(device, 7, 0), false).0, IP);
    assert_eq!(world.try_create(device, info(other, 0, 0), false).0, IP, "another adapter");
    assert_eq!(
        world.try_create(device, info(default_adapter, 7, 0), true).0,
        IP,
        "the first form of the call"
    );
    for flags in [F::SHARED, F::NO_SIGNAL, F::TOP_OF_PIPELINE] {
        let info = SyncObjectInfo { flags, ..info(default_adapter, 7, 0) };
        assert_eq!(world.try_create(device, info, false).0, IP, "{flags:?}");
    }
}

#[test]
fn cpu_and_gpu_wait_on_a_periodic_fence_in_every_process_with_a_handle() {
    let mut world = World::with_config(config());
    let (adapter, device) = device(&mut world);
    let flags = F::SHARED | F::NT_SECURITY_SHARING;
    let fence = world.object(device, SyncObjectInfo { flags, ..info(adapter, 7, 0) }).object;
    let token = ShareToken([1; 16]);
    world.ok(share(fence, token));
    let (context, done) = (world.context(device, 0), world.fence(device, 0).object);
    assert_eq!(world.gpu_wait(context, fence, 2), OK);
    world.gpu_signal(&[context], done, 1);
    let event = world.pending(device, &[(fence, 3)], false);
    world.process = ProcessId(2);
    world.attach(ProcessId(2));
    let device = world.device();
    let opened = world.open(device, token);
    let elsewhere = world.pending(device, &[(opened.object, 1)], false);
    world.advance(VSYNC_NS);
    assert_eq!((world.woken(), world.value(done)), (vec![elsewhere], 0));
    world.advance(VSYNC_NS);
    assert_eq!((world.woken(), world.value(done)), (vec![], 1));
    world.advance(VSYNC_NS);
    assert_eq!(world.woken(), [event]);
    // It ticks until its last handle is closed, NT handles included.
    world.input(Input::ProcessGone { process: P });
    world.advance(VSYNC_NS);
    assert_eq!(world.value(opened.object), 4);
    world.close_nt_handle(token);
    world.ok(Call::DestroySynchronizationObject { object: opened.object });
    assert_eq!(world.kernel.next_deadline(), None);
    assert!(world.kernel.snapshot().notifications.is_empty());
}

#[test]
fn a_kernel_without_periodic_fences_has_no_deadline() {
    let mut world = World::with_config(config());
    assert_eq!(world.kernel.next_deadline(), None);
    let (device, fence) = periodic(&mut world, 7, 10);
    let (_, another) = periodic(&mut world, 8, 0);
    assert_eq!(world.kernel.next_deadline(), Some(9_000));
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
    assert_eq!(world.kernel.next_deadline(), Some(25_000));
    world.ok(Call::DestroyDevice { device });
    assert_eq!(world.kernel.next_deadline(), Some(25_000));
    world.ok(Call::DestroySynchronizationObject { object: another.object });
    assert_eq!((world.kernel.next_deadline(), world.kernel.miscounted()), (None, None));
    periodic(&mut world, 7, 0);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(world.kernel.next_deadline(), None);
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_periodic_fence_advances_through_engine_faults_until_its_adapter_stops() {
    let mut world = World::with_config(config());
    let (device, fence) = periodic(&mut world, 7, 0);
    let context = world.context(device, 0);
    world.submit(context, &[d3dkmt::isa::Packet::Hang]);
    world.input(Input::Fault(Fault::LoseInterrupt { engine: EngineId { adapter: 0, node: 0 } }));
    world.advance(3 * VSYNC_NS);
    assert_eq!(world.value(fence.object), 3);
    let event = world.pending(device, &[(fence.object, 4)], false);
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!((world.woken(), world.kernel.next_deadline()), (vec![event], None));
    world.advance(3 * VSYNC_NS);
    assert_eq!((world.value(fence.object), world.kernel.miscounted()), (3, None));
    world.ok(Call::DestroySynchronizationObject { object: fence.object });
}

#[test]
fn each_notification_of_a_target_has_an_id_of_its_own() {
    covers!("FEN-086", "FEN-088");
    let (mut world, script) = scripted(config());
    let (_, first) = periodic(&mut world, 7, 0);
    let (_, second) = periodic(&mut world, 7, 0);
    let (_, elsewhere) = periodic(&mut world, 8, 5);
    let created = |target: u32, time: u64, id: u64| {
        format!(
            "create_periodic_frame_notification CreatePeriodicFrameNotification {{ adapter: 0, vidpn_target: {target}, time_100ns: {time}, \
             notification_id: {id} }}"
        )
    };
    assert_eq!(calls(&script, &["create_periodic"]), [created(7, 0, 1), created(7, 0, 2), created(8, 5, 3)]);
    let interrupt = |vidpn_target, notification_id| {
        let adapter = 0;
        let interrupt = Interrupt::PeriodicMonitoredFenceSignaled { adapter, vidpn_target, notification_id };
        Callback::NotifyInterrupt(interrupt)
    };
    // Only the right pair of ids names the fence; a wrong pair is noted.
    let interrupts = vec![interrupt(7, 2), interrupt(8, 1), interrupt(7, 9), interrupt(7, 2)];
    inject(&mut world, &script, interrupts);
    let values = [first, second, elsewhere].map(|fence| world.value(fence.object));
    assert_eq!(values, [0, 2, 0]);
    assert_eq!(world.effects.notes.len(), 2);
    assert!(world.effects.notes[0].text.contains("target 8 names the unknown notification 1"));
    world.ok(Call::DestroySynchronizationObject { object: second.object });
    assert_eq!(
        calls(&script, &["create_periodic", "destroy_periodic"]),
        ["destroy_periodic_frame_notification 2 of adapter 0"]
    );
}

#[test]
fn the_caller_gets_the_drivers_refusal_and_nothing_leaks() {
    covers!("FEN-087");
    let (mut world, script) = scripted(config());
    let (adapter, device) = device(&mut world);
    let refusals = [
        (NotificationRefused::NoMemory, NtStatus::NO_MEMORY),
        (NotificationRefused::InvalidParameter, NtStatus::INVALID_PARAMETER),
        (NotificationRefused::Unsuccessful, NtStatus::UNSUCCESSFUL),
    ];
    for (refused, status) in refusals {
        script.borrow().refuse_notification = Some(refused);
        assert_eq!(world.try_create(device, info(adapter, 7, 0), false).0, status);
        assert_eq!((world.kernel.snapshot().objects_alive, world.kernel.miscounted()), (0, None));
    }
    script.borrow().refuse_notification = None;
    let (status, Reply::SyncObject(created)) = world.try_create(device, info(adapter, 7, 0), false) else {
        panic!()
    };
    assert_eq!((status, created.object.0), (OK, device.0 + 0x40), "the refused calls used no handle");
}

#[test]
fn a_target_has_a_limited_number_of_periodic_fences() {
    covers!("FEN-087");
    let mut world = World::with_config(config());
    world.input(Input::FenceMemoryAdded { process: P, slots: 64 });
    let (adapter, device) = device(&mut world);
    // A VM may have at most two thirds of the limit.
    let share = 2 * limits::PERIODIC_FENCES_PER_TARGET_MAX / 3;
    let mut last = Handle::NULL;
    for _ in 0..share {
        last = world.object(device, info(adapter, 7, 0)).object;
    }
    assert_eq!(world.try_create(device, info(adapter, 7, 0), false).0, NtStatus::NO_MEMORY);
    assert_eq!(world.try_create(device, info(adapter, 8, 0), false).0, OK);
    world.ok(Call::DestroySynchronizationObject { object: last });
    assert_eq!(world.try_create(device, info(adapter, 7, 0), false).0, OK);
    world.guest(3, ProcessId(7));
    let (adapter, device) = self::device(&mut world);
    let of_other =
        (0..64).take_while(|_| world.try_create(device, info(adapter, 7, 0), false).0 == OK).count();
    assert!((10..share).contains(&of_other), "{of_other}");
}
