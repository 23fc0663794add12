//! Paused VMs and adapters that start again, where scenarios cannot see it: refusals, limits, drivers.

use crate::common::World;
use crate::common::scripted::scripted;
use covers::covers;
use d3dkmt::{AcquireOutcome, Call, EventId, Handle, KeyedMutexFlags, NtStatus, Reply, calls, limits};
use dxgkrnl::{AdapterConfig, Config, Fault, Input, ProcessId, VmId};

const G: ProcessId = ProcessId(21);
const H: ProcessId = ProcessId(22);
const RED: VmId = VmId(1);

fn pause(world: &mut World, vm: VmId, paused: bool) {
    world.input(Input::VmPaused { vm, paused });
}

fn wait(world: &mut World, device: Handle, object: Handle, value: u64, event: u64) {
    world.ok(calls::wait(device, object, value, EventId(event)));
}

fn woken(world: &mut World) -> Vec<(ProcessId, u64)> {
    let events = std::mem::take(&mut world.effects.events);
    events.into_iter().map(|wake| (wake.process, wake.target.event().expect("a wait").0)).collect()
}

fn notes(world: &mut World) -> Vec<String> {
    std::mem::take(&mut world.effects.notes).into_iter().map(|note| note.text).collect()
}

fn held(world: &World, process: ProcessId) -> Option<u32> {
    let processes = world.kernel.snapshot().processes;
    processes.into_iter().find(|one| one.process == process.0).expect("it is attached").held_wakes
}

#[test]
fn a_pause_that_cannot_be_is_refused_with_the_reason() {
    covers!("GPV-039");
    let mut world = World::new();
    world.guest(1, G);
    notes(&mut world);
    let state = |world: &World| world.kernel.snapshot().digest();
    let before = state(&world);
    for (vm, paused, why) in [
        (VmId(7), true, "VM 7 is not paused: there is no VM 7"),
        (VmId(7), false, "VM 7 is not resumed: there is no VM 7"),
        (VmId::HOST, true, "VM 0 is not paused: the host is no VM: its processes can be frozen"),
        (RED, false, "VM 1 is not resumed: VM 1 is not paused"),
    ] {
        assert!(world.kernel.pause_refusal(vm, paused).is_some_and(|reason| why.ends_with(&reason)), "{why}");
        pause(&mut world, vm, paused);
        assert_eq!(notes(&mut world), [why]);
    }
    assert_eq!(state(&world), before, "a refused pause changes nothing");
    pause(&mut world, RED, true);
    assert!(world.kernel.is_paused(RED) && notes(&mut world).is_empty());
    let paused = state(&world);
    pause(&mut world, RED, true);
    assert_eq!(notes(&mut world), ["VM 1 is not paused: VM 1 is paused already"]);
    assert_eq!(state(&world), paused);
    world.input(Input::VmDetached { vm: RED });
    assert!(!world.kernel.is_paused(RED));
    notes(&mut world);
    pause(&mut world, RED, false);
    assert_eq!(notes(&mut world), ["VM 1 is not resumed: there is no VM 1"]);
    assert_eq!(world.kernel.miscounted(), None);
    // Another VM of this number is not paused.
    world.guest(1, H);
    assert_eq!((world.kernel.is_paused(RED), held(&world, H)), (false, None));
}

#[test]
fn a_process_that_attaches_to_a_paused_vm_is_held_like_the_others() {
    covers!("GPV-039");
    let mut world = World::new();
    world.guest(1, G);
    pause(&mut world, RED, true);
    world.guest(1, H);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    wait(&mut world, device, fence, 1, 5);
    world.signal(device, fence, 1);
    assert_eq!((woken(&mut world), held(&world, G), held(&world, H)), (vec![], Some(0), Some(1)));
    pause(&mut world, RED, false);
    assert_eq!((woken(&mut world), held(&world, G), held(&world, H)), (vec![(H, 5)], None, None));
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn a_frozen_process_of_a_paused_vm_needs_both_ends_in_any_order() {
    covers!("GPV-039");
    for thaws_first in [false, true] {
        let mut world = World::new();
        world.guest(1, G);
        let device = world.device();
        let fence = world.fence(device, 0).object;
        wait(&mut world, device, fence, 1, 5);
        world.input(Input::ProcessFrozen { process: G, frozen: true });
        pause(&mut world, RED, true);
        world.signal(device, fence, 1);
        for ends_freeze in [thaws_first, !thaws_first] {
            assert_eq!((woken(&mut world), held(&world, G)), (vec![], Some(1)));
            match ends_freeze {
                true => world.input(Input::ProcessFrozen { process: G, frozen: false }),
                false => pause(&mut world, RED, false),
            }
        }
        assert_eq!((woken(&mut world), held(&world, G)), (vec![(G, 5)], None));
    }
}

/// A call that was under way when the VM was paused is handled during the pause.
#[test]
fn an_acquire_that_begins_in_a_pause_has_all_of_its_time_after_the_pause() {
    covers!("GPV-040");
    const MS: u64 = 1_000_000;
    let mut world = World::new();
    world.guest(1, G);
    let (initial_value, private_data, flags) = (0, vec![], KeyedMutexFlags::empty());
    let create = Call::CreateKeyedMutex { initial_value, private_data, flags };
    let Reply::KeyedMutex { mutex, .. } = world.ok(create) else { panic!("no mutex") };
    pause(&mut world, RED, true);
    world.advance(4 * MS);
    let (timeout, event) = (Some(-100_000), EventId(5));
    let begun = world.call(Call::AcquireKeyedMutex { mutex, key: 1, timeout, event }).1;
    assert!(
        matches!(begun, Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. }),
        "{begun:?}"
    );
    assert_eq!(world.kernel.next_deadline(), None, "its time does not run");
    world.advance(20 * MS);
    pause(&mut world, RED, false);
    world.advance(10 * MS - 1);
    assert_eq!(world.ended(), []);
    world.advance(1);
    assert_eq!(world.ended(), [(event, NtStatus::TIMEOUT)]);
}

#[test]
fn wakes_beyond_the_limit_are_delivered_to_a_paused_vm() {
    covers!("GPV-039");
    let most = limits::HELD_WAKES_PER_PROCESS_MAX as u64;
    let mut world = World::new();
    world.guest(1, G);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    world.filling(|world| (1..=most).for_each(|value| wait(world, device, fence, value, value)));
    pause(&mut world, RED, true);
    world.signal(device, fence, most - 1);
    assert_eq!((woken(&mut world).len(), held(&world, G)), (0, Some(most as u32 - 1)));
    world.signal(device, fence, most);
    assert_eq!((woken(&mut world).len() as u64, held(&world, G)), (most, None));
    assert_eq!(world.kernel.miscounted(), None);
    pause(&mut world, RED, false);
    assert_eq!(woken(&mut world), []);
}

#[test]
fn a_paused_vm_is_saved_and_restored() {
    covers!("GPV-040");
    let mut world = World::new();
    world.guest(1, G);
    let device = world.device();
    let fence = world.fence(device, 0).object;
    wait(&mut world, device, fence, 1, 5);
    pause(&mut world, RED, true);
    world.signal(device, fence, 1);
    let state = world.kernel.save().expect("the driver can be saved");
    let driver = kmd::SimulatedMiniport::default();
    world.kernel = dxgkrnl::Kernel::restore(Config::default(), driver, &state).expect("its own state");
    assert!(world.kernel.is_paused(RED));
    pause(&mut world, RED, false);
    assert_eq!(woken(&mut world), [(G, 5)]);
}

/// Why an adapter does not start; the adapter stays as it was.
#[test]
fn an_adapter_that_cannot_start_is_refused_with_the_reason() {
    covers!("GPV-042");
    let start = Fault::StartAdapter { adapter: 0 };
    let mut world = World::new();
    assert_eq!(world.kernel.fault_can_happen(start), Err("the adapter is not stopped"));
    let unknown = Fault::StartAdapter { adapter: 9 };
    assert_eq!(world.kernel.fault_can_happen(unknown), Err("there is no such adapter"));
    world.input(Input::Fault(start));
    assert_eq!(notes(&mut world), ["adapter 0 starts again: the adapter is not stopped"]);
    world.filling(|world| {
        for _ in 0..limits::ADAPTER_ARRIVALS_MAX {
            world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
            world.input(Input::Fault(start));
            world.effects = dxgkrnl::Effects::default();
        }
    });
    assert_eq!(world.kernel.snapshot().stopped_adapters, [0; 0]);
    let adapter = world.adapter();
    world.ok(Call::CreateDevice { adapter, flags: 0 });
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.kernel.fault_can_happen(start), Err("the adapter was started again too often"));
    assert_eq!(world.kernel.miscounted(), None);
}

#[test]
fn a_driver_may_refuse_to_start_again() {
    covers!("GPV-042");
    let (mut world, script) = scripted(Config::default());
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    notes(&mut world);
    script.borrow().failing = Some(("start_device", NtStatus::UNSUCCESSFUL));
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    let notes = notes(&mut world).concat();
    assert!(notes.contains("adapter 0 stays stopped: DxgkDdiStartDevice returned"), "{notes}");
    assert_eq!(world.kernel.snapshot().stopped_adapters, [0]);
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    assert_eq!(world.kernel.snapshot().stopped_adapters, [0; 0]);
    world.device();
}

/// A GPU that uses CPU addresses gets the fence memory of all processes again, and an adapter that was in D3 comes to D0.
#[test]
fn an_adapter_that_starts_is_told_of_memory_and_power() {
    covers!("GPV-042");
    let adapter = AdapterConfig { iommu: true, ..AdapterConfig::default() };
    let (mut world, script) = scripted(Config { adapters: vec![adapter], ..Config::default() });
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    world.attach(ProcessId(2));
    script.borrow().take();
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    let mapped = |process: u32, change: &str| format!("mapping of {process} changes: {change}");
    let log = script.borrow().take();
    let log: Vec<_> = log.iter().filter(|line| !line.contains("exclusive")).cloned().collect();
    let expected = [
        "start_device 0".to_owned(),
        "set_power_state 0 true".to_owned(),
        mapped(1, "None"),
        mapped(1, "Some(64)"),
        mapped(2, "None"),
        mapped(2, "Some(64)"),
    ];
    assert_eq!(log, expected);
}
