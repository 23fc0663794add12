//! When sync files become ready, which processes see by their descriptors only.

use covers::covers;

use crate::common::{IP, P, World};
use d3dkmt::{Call, Handle, Luid, NtStatus, Reply, ShareToken, SyncObjectFlags as F, calls};
use dxgkrnl::{AdapterConfig, Config, Fault, Input, ProcessId, SyncFileReady, VidSchCaps, VmId};

const NT: F = F::SHARED.union(F::NT_SECURITY_SHARING);
/// More than the waits that one step ends.
const MANY: u32 = 2000;

fn token(number: u32) -> ShareToken {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    ShareToken(bytes)
}

fn create(device: Handle, fence: Handle, fence_value: u64, number: u32) -> Call {
    Call::CreateSyncFile { device, fence, fence_value, token: token(number) }
}

/// The sync files of the host's VM that became ready since the last call of this function.
fn ready(world: &mut World) -> Vec<ShareToken> {
    let ready = std::mem::take(&mut world.effects.sync_files);
    ready
        .into_iter()
        .map(|SyncFileReady { vm, token }| {
            assert_eq!(vm, VmId::HOST);
            token
        })
        .collect()
}

fn closed(world: &mut World, number: u32) {
    world.input(Input::NtHandleClosed { vm: VmId::HOST, token: token(number) });
}

/// A second process and a device of it; the first process and its device are those of the world.
fn with_a_second() -> (World, Handle, ProcessId, Handle) {
    let mut world = World::new();
    let device = world.device();
    let second = ProcessId(P.0 + 1);
    world.attach(second);
    world.process = second;
    let other = world.device();
    world.process = P;
    (world, device, second, other)
}

#[test]
fn each_sync_file_is_ready_once_at_its_value() {
    covers!("FEN-133", "FEN-134", "FEN-135");
    let (mut world, device, ..) = with_a_second();
    let fence = world.fence_with(device, 1, NT).object;
    for (number, value) in [(1, 5), (2, 6), (3, 5), (4, 7)] {
        world.ok(create(device, fence, value, number));
    }
    assert_eq!(world.signal(device, fence, 4), NtStatus::SUCCESS);
    assert_eq!(ready(&mut world), []);
    closed(&mut world, 4);
    world.signal(device, fence, 6);
    assert_eq!(ready(&mut world), [token(1), token(3), token(2)]);
    world.signal(device, fence, 9);
    assert_eq!(ready(&mut world), []);
    world.ok(create(device, fence, 9, 5));
    assert_eq!(ready(&mut world), [token(5)]);
    let before = world.kernel.memory_bytes(P);
    for number in [1, 2, 3, 5] {
        closed(&mut world, number);
    }
    assert_eq!((world.kernel.nt_handles(), world.kernel.memory_bytes(P)), (0, before), "charged to the VM");
}

#[test]
fn a_shared_fence_lives_by_its_sync_file_and_is_signaled_by_whoever_has_it() {
    covers!("FEN-141");
    let (mut world, device, second, other) = with_a_second();
    let fence = world.fence_with(device, 1, NT).object;
    world.ok(create(device, fence, 5, 1));
    world.ok(calls::share(fence, token(2), None));
    world.process = second;
    let open = calls::open(other, token(2));
    let Reply::SyncObject(opened) = world.ok(open) else { panic!() };
    world.input(Input::ProcessGone { process: P });
    closed(&mut world, 2);
    assert_eq!(ready(&mut world), [], "it is alive");
    world.signal(other, opened.object, 5);
    assert_eq!(ready(&mut world), [token(1)]);
    world.ok(Call::DestroySynchronizationObject { object: opened.object });
    assert_eq!(world.kernel.snapshot().objects_alive, 1);
    closed(&mut world, 1);
    assert_eq!((world.kernel.snapshot().objects_alive, world.kernel.nt_handles()), (0, 0));
}

#[test]
fn of_a_private_fence_it_is_ready_when_its_fence_ends() {
    covers!("FEN-136");
    let (mut world, device, ..) = with_a_second();
    let (first, second) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.ok(create(device, first, 1, 1));
    world.ok(create(device, second, 1, 2));
    world.ok(Call::DestroySynchronizationObject { object: first });
    assert_eq!(ready(&mut world), [token(1)]);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(ready(&mut world), [token(2)]);
    closed(&mut world, 1);
    closed(&mut world, 2);
    assert_eq!(world.kernel.nt_handles(), 0);
}

#[test]
fn a_lost_device_and_a_stopped_adapter_leave_no_sync_file_waiting() {
    let (mut world, device, _, _) = with_a_second();
    for (number, flags) in [(1, F::empty()), (2, NT)] {
        let fence = world.fence_with(device, 0, flags).object;
        world.ok(create(device, fence, 1, number));
    }
    world.ok(Call::MarkDeviceAsError { device, reason: 0 });
    assert_eq!(ready(&mut world), [token(1)], "another device may signal the shared fence");
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(ready(&mut world), [token(2)]);
}

#[test]
fn tokens_and_rights_are_checked_and_many_become_ready() {
    let (mut world, device, second, other) = with_a_second();
    let fence = world.fence_with(device, 0, NT).object;
    let deaf = world.fence_with(device, 0, NT | F::NO_WAIT).object;
    world.ok(create(device, fence, 1, 1));
    assert_eq!(world.status(create(device, fence, 1, 1)), IP, "the token is in use");
    assert_eq!(world.status(create(device, deaf, 1, 2)), NtStatus::ACCESS_DENIED);
    world.process = second;
    assert_eq!(world.status(create(other, fence, 1, 2)), IP, "a handle of another process");
    assert_eq!(world.status(create(device, fence, 1, 2)), IP, "a device of another process");
    world.process = P;
    for number in 2..=MANY {
        world.ok(create(device, fence, 1, number));
    }
    let saved = world.kernel.snapshot().nt_handles;
    assert!(saved.iter().all(|handle| handle.awaited == Some(1)));
    // One step cannot end all of them.
    world.signal(device, fence, 1);
    world.advance(1);
    assert_eq!(ready(&mut world).len(), MANY as usize);
}

/// A context of an adapter with No64BitAtomics waits for a sync file of a fence of another one.
#[test]
fn a_context_waits_for_a_sync_file_within_the_window_of_its_adapter() {
    covers!("FEN-012");
    const FAR: u64 = 0x8000_0000;
    let caps = AdapterConfig::default().caps | VidSchCaps::NO_64_BIT_ATOMICS;
    let luid = Luid { low: 2, high: 0 };
    let narrow = AdapterConfig { caps, luid, ..AdapterConfig::default() };
    let mut world =
        World::with_config(Config { adapters: vec![AdapterConfig::default(), narrow], ..Config::default() });
    let (device, other) = (world.device_on(AdapterConfig::default().luid), world.device_on(luid));
    let context = world.context(other, 0);
    let fence = world.fence_with(device, 0, NT | F::CROSS_ADAPTER).object;
    for (number, value) in [(1, FAR), (2, FAR - 1)] {
        world.ok(create(device, fence, value, number));
    }
    let wait = |number| Call::WaitSyncFile { context, token: token(number) };
    assert_eq!(world.status(wait(1)), IP, "an outstanding wait beyond the window");
    assert_eq!(world.status(wait(2)), NtStatus::SUCCESS);
    // The value comes nearer.
    assert_eq!(world.signal(device, fence, 1), NtStatus::SUCCESS);
    assert_eq!(world.status(wait(1)), NtStatus::SUCCESS);
}
