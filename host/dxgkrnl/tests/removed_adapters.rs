//! Adapters that one VM loses and gets while it runs, and drivers that are updated: each call in the step after, and
//! what was queued in the step before.

use covers::covers;

use crate::common::hardware::*;
use crate::common::one_of_each::{FENCE, LUID, NATIVE, NEW, NT, Things};
use crate::common::scripted::{calls, scripted};
use crate::common::{World, share};
use d3dkmt::query::DriverVersion;
use d3dkmt::{
    Call, CreatedSyncObject, EscapeFlags, EventId, Handle, Luid, NtStatus, Reply, SyncObjectFlags, calls,
    limits,
};
use dxgkrnl::{AdapterConfig, Config, Fault, Grant, Input, ProcessId, VmConfig, VmId};

const G: ProcessId = ProcessId(21);
const H: ProcessId = ProcessId(22);
const RED: VmId = VmId(1);
const BLUE: VmId = VmId(2);
const REMOVED: NtStatus = NtStatus::DEVICE_REMOVED;
const MS: u64 = 1_000_000;

fn change(world: &mut World, vm: VmId, added: bool) {
    world.input(Input::VmAdapter { vm, adapter: 0, added });
}

/// How an adapter goes, and whether it is there again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    Removal,
    RemovalAndArrival,
    Stop,
    StopAndStart,
    Update,
}

impl Event {
    fn happen(self, world: &mut World) {
        let stop = Input::Fault(Fault::StopAdapter { adapter: 0 });
        match self {
            Event::Nothing => {}
            Event::Removal => change(world, RED, false),
            Event::RemovalAndArrival => {
                change(world, RED, false);
                change(world, RED, true);
            }
            Event::Stop => world.input(stop),
            Event::StopAndStart => {
                world.input(stop);
                world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
            }
            Event::Update => {
                let version = DriverVersion(7);
                world.input(Input::Fault(Fault::UpdateDriver { adapter: 0, version }));
            }
        }
    }

    fn is_absent(self) -> bool {
        matches!(self, Event::Removal | Event::Stop)
    }
}

/// Calls that are about no adapter, give something back or only read: they work on an adapter that is gone. A doorbell
/// that was rung has no effect then; its status memory says ABORT.
const WORKS: [&str; 30] = [
    "WatchAdapters",
    "EnumAdapters",
    "CloseAdapter",
    "DestroyDevice",
    "GetDeviceState",
    "MarkDeviceAsError",
    "DestroyContext",
    "DestroySynchronizationObject",
    "CancelWait",
    "ShareObjects",
    "OpenNtHandleFromName",
    "CreateKeyedMutex",
    "OpenKeyedMutex",
    "OpenKeyedMutexFromNtHandle",
    "DestroyKeyedMutex",
    "AcquireKeyedMutex",
    "ReadKeyedMutex",
    "ReleaseKeyedMutex",
    "DestroyAllocation",
    "DestroyPagingQueue",
    "DestroyHwQueue",
    "DestroyDoorbell",
    "NotifyWorkSubmission",
    "SetProcessPriorityClass",
    "ProcessPriorityClass",
    "SetContextPriority",
    "ContextPriority",
    "Unlock",
    "Evict",
    "FreeGpuVirtualAddress",
];

/// Calls that name the adapter by its LUID.
const BY_LUID: [&str; 2] = ["OpenAdapterFromLuid", "QueryStatistics"];

/// Another VM with a wait, and with work on an engine.
struct Neighbour {
    device: Handle,
    fence: Handle,
    event: EventId,
    result: CreatedSyncObject,
}

impl Neighbour {
    fn new(world: &mut World) -> Neighbour {
        world.guest(BLUE.0, H);
        let device = world.device();
        let fence = world.fence(device, 0).object;
        let result = world.fence(device, 0);
        let context = world.context(device, OTHER);
        let event = world.pending(device, &[(fence, 1)], false);
        assert_eq!(world.submit(context, &[busy(MS), write(&result, 1)]), OK);
        Neighbour { device, fence, event, result }
    }

    fn is_not_disturbed(&self, world: &mut World) {
        world.process = H;
        assert_eq!(world.execution_state(self.device), 1);
        world.woken();
        assert_eq!(world.signal(self.device, self.fence, 1), OK);
        assert_eq!(world.woken(), [self.event]);
        world.advance(MS);
        assert_eq!(world.value(self.result.object), 1);
        assert_eq!(world.status(Call::OpenAdapterFromLuid { luid: LUID }), OK);
    }
}

/// A call after an event: its status, and whether a note says why it was refused.
fn call_after(event: Event, at: usize) -> (Call, NtStatus, bool) {
    let mut world = World::new();
    let neighbour = Neighbour::new(&mut world);
    world.guest(RED.0, G);
    let things = Things::new(&mut world);
    let call = things.calls().swap_remove(at);
    if matches!(call, Call::ReleaseKeyedMutex { .. }) {
        let (mutex, event) = (things.keyed, EventId(79));
        world.ok(Call::AcquireKeyedMutex { mutex, key: 0, timeout: Some(0), event });
    }
    if matches!(call, Call::Unlock { .. }) {
        world.ok(Call::Lock { device: things.device, allocation: things.allocation, flags: 0 });
    }
    if matches!(call, Call::Evict { .. }) {
        let (paging_queue, allocations) = (things.paging_queue, vec![things.allocation]);
        world.call(Call::MakeResident { paging_queue, allocations, priorities: vec![], flags: 0 });
    }
    event.happen(&mut world);
    world.notes();
    let (status, _) = world.call(call.clone());
    let has_note = world.effects.notes.iter().any(|note| note.process == Some(G));
    if matches!(event, Event::Nothing | Event::Removal | Event::RemovalAndArrival) {
        neighbour.is_not_disturbed(&mut world);
    }
    world.end_process(G);
    world.finish();
    (call, status, has_note)
}

/// The status of each call after each event, which the documents name: DEVICE_REMOVED of calls on what is gone. Without
/// the event all of them succeed.
#[test]
fn each_call_after_an_adapter_is_gone_answers_device_removed_or_gives_back() {
    covers!("GPV-061", "GPV-063");
    let count = Call::FORMS.len();
    let mut wrong = vec![];
    for event in [
        Event::Nothing,
        Event::Removal,
        Event::RemovalAndArrival,
        Event::Stop,
        Event::StopAndStart,
        Event::Update,
    ] {
        for at in 0..count {
            let (call, status, has_note) = call_after(event, at);
            let name = call.name();
            let works = event == Event::Nothing
                || WORKS.contains(&name)
                || BY_LUID.contains(&name) && !event.is_absent();
            let is_right = match works {
                true => status.is_success(),
                false => status == REMOVED && has_note,
            };
            if !is_right {
                wrong.push((event, name, status, has_note));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What waits when the adapter goes ends with it, in whole steps and in the smallest.
#[test]
fn what_waits_when_an_adapter_is_removed_ends_with_device_removed() {
    covers!("GPV-061");
    for small in [false, true] {
        let mut world = World::new();
        let neighbour = Neighbour::new(&mut world);
        world.guest(RED.0, G);
        let things = Things::new(&mut world);
        let Things { adapter, device, context, fence, progress, pending, queue, .. } = things;
        let of_progress = world.pending(device, &[(progress.object, 1)], false);
        assert_eq!(world.submit(context, &[busy(MS)]), OK);
        assert_eq!(world.gpu_wait(context, fence.object, 4), OK);
        assert_eq!(world.gpu_signal(&[context], fence.object, 6), OK);
        let hw = Queue { handle: queue, fence: progress };
        assert_eq!(world.wait_hw(hw, fence.object, 4), OK);
        assert_eq!(world.submit_hw(hw, 1, &[busy(1)]), OK);
        let mutex = things.keyed;
        world.ok(Call::AcquireKeyedMutex { mutex, key: 9, timeout: None, event: EventId(80) });
        let data = [vec![0; 32], vec![5, 6]].concat();
        let (kind, flags) = (d3dkmt::escape::kind::DRIVER_PRIVATE, EscapeFlags::HARDWARE_ACCESS);
        let (none, none_either) = (Handle::NULL, Handle::NULL);
        let escape =
            world.begin(Call::Escape { adapter, device: none, context: none_either, kind, flags, data });
        assert_eq!(world.answered(escape), None);
        if small {
            world.kernel.set_work_units_per_step(1, 1);
        }
        change(&mut world, RED, false);
        assert_eq!(world.answered(escape).map(|(status, _)| status), Some(REMOVED));
        let ended: Vec<_> = std::mem::take(&mut world.effects.events)
            .into_iter()
            .map(|wake| (wake.process, wake.target.event().expect("a wait"), wake.status))
            .collect();
        let expected = [(G, pending, REMOVED), (G, of_progress, REMOVED)];
        assert_eq!(ended.iter().filter(|wake| wake.0 == G).count(), 2, "{ended:?}");
        assert!(expected.iter().all(|wake| ended.contains(wake)), "{ended:?}");
        assert_eq!(std::mem::take(&mut world.effects.sync_files).len(), 1, "the sync file is readable");
        assert_eq!(world.kernel.snapshot().acquires.len(), 1, "a keyed mutex has no adapter");
        world.advance(2 * MS);
        assert_eq!(world.value(fence.object), 0, "queued work has no effect");
        neighbour.is_not_disturbed(&mut world);
        world.end_process(G);
        world.finish();
    }
}

fn visible(world: &mut World) -> Vec<u32> {
    let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 34 }) else { panic!() };
    list.iter().map(|adapter| adapter.arrival).collect()
}

fn note(world: &mut World) -> String {
    world.notes().join("; ")
}

#[test]
fn a_vm_loses_an_adapter_and_gets_it_back_while_another_keeps_it() {
    covers!("GPV-061", "GPV-062");
    let mut world = World::new();
    let neighbour = Neighbour::new(&mut world);
    world.guest(RED.0, G);
    let old = world.device();
    assert_eq!(visible(&mut world), [0]);
    world.notes();
    change(&mut world, RED, false);
    assert_eq!(note(&mut world), "adapter 0 is removed from VM 1: 0 waits ended");
    assert_eq!((visible(&mut world), world.execution_state(old)), (vec![], 4));
    // A process that attaches now has none either.
    let late = ProcessId(23);
    world.guest(RED.0, late);
    assert_eq!(visible(&mut world), [0; 0]);
    world.process = G;
    world.notes();
    change(&mut world, RED, true);
    assert_eq!(note(&mut world), "adapter 0 is added to VM 1");
    assert_eq!(visible(&mut world), [1], "the same adapter, of another arrival");
    let new = world.device();
    let fence = world.fence(new, 0).object;
    assert_eq!(world.signal(new, fence, 1), OK);
    assert_eq!(world.execution_state(old), 4);
    neighbour.is_not_disturbed(&mut world);
    assert_eq!(visible(&mut world), [0]);
    world.finish();
}

/// DXCore's notifications: a process that watches is woken when an adapter of its own VM comes or goes.
#[test]
fn a_process_that_watches_adapters_is_woken_for_its_own_vm() {
    covers!("GPV-064");
    let mut world = World::new();
    let (first, second, third) = (EventId(91), EventId(92), EventId(93));
    world.guest(BLUE.0, H);
    world.ok(Call::WatchAdapters { event: second });
    world.guest(RED.0, G);
    world.ok(Call::WatchAdapters { event: third });
    world.ok(Call::WatchAdapters { event: first });
    assert_eq!(world.woken(), []);
    change(&mut world, RED, false);
    assert_eq!(world.woken(), [first], "in place of the event that was named before");
    change(&mut world, BLUE, false);
    assert_eq!(world.woken(), [second]);
    change(&mut world, RED, true);
    assert_eq!(world.woken(), [first]);
    let version = DriverVersion(1);
    world.input(Input::Fault(Fault::UpdateDriver { adapter: 0, version }));
    assert_eq!(world.woken(), [first, first], "the other VM has no adapter");
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(world.woken(), [first]);
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    assert_eq!(world.woken(), [first]);
    world.end_process(G);
    change(&mut world, RED, false);
    assert_eq!(world.woken(), []);
    world.finish();
}

#[test]
fn a_change_that_cannot_be_is_refused_with_the_reason() {
    covers!("GPV-061", "GPV-062");
    let second = AdapterConfig { luid: Luid { low: 9, high: 0 }, ..AdapterConfig::default() };
    let first = AdapterConfig { virtual_functions: 1, ..AdapterConfig::default() };
    let only_second = VmConfig { name: "vm-2".into(), adapters: Some(vec![1]), ..VmConfig::default() };
    let config = Config { adapters: vec![first, second], vms: vec![only_second], ..Config::default() };
    let mut world = World::with_config(config);
    world.guest(RED.0, G);
    world.guest(BLUE.0, H);
    world.notes();
    let state = |world: &World| world.kernel.snapshot().digest();
    let refused = |world: &mut World, vm: VmId, adapter: u32, added: bool, why: &str| {
        let before = state(world);
        assert_eq!(world.kernel.vm_adapter_refusal(vm, adapter, added).as_deref(), Some(why));
        world.input(Input::VmAdapter { vm, adapter, added });
        let verb = if added { "get" } else { "lose" };
        assert_eq!(note(world), format!("VM {} does not {verb} adapter {adapter}: {why}", vm.0));
        assert_eq!(state(world), before, "a refused change changes nothing");
    };
    refused(&mut world, VmId::HOST, 0, false, "the host is no VM: it has every adapter");
    refused(&mut world, VmId(7), 0, false, "there is no VM 7");
    refused(&mut world, RED, 9, false, "there is no adapter 9");
    refused(&mut world, RED, 0, true, "VM 1 has adapter 0 already");
    refused(&mut world, BLUE, 0, false, "VM 2 has no adapter 0");
    let taken = "its 1 virtual functions (NumVirtualFunctions) are taken (GPV-008)";
    refused(&mut world, BLUE, 0, true, taken);
    // The virtual function of a removed adapter is for another VM, also one that is not configured for the adapter.
    change(&mut world, RED, false);
    world.notes();
    refused(&mut world, RED, 0, false, "VM 1 has no adapter 0");
    change(&mut world, BLUE, true);
    assert_eq!(note(&mut world), "adapter 0 is added to VM 2");
    refused(&mut world, RED, 0, true, taken);
    change(&mut world, BLUE, false);
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    world.notes();
    refused(&mut world, RED, 0, true, "adapter 0 is stopped");
    // A start does not give it to a VM that lost it.
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    assert!(world.kernel.vm_adapter_refusal(RED, 0, true).is_none());
    world.process = G;
    assert_eq!(visible(&mut world).len(), 1);
    world.finish();
}

/// Objects that another VM has by a grant live on there, and die in the VM that lost the adapter.
#[test]
fn an_object_of_two_vms_lives_on_in_the_one_that_keeps_the_adapter() {
    covers!("GPV-061");
    let grant = Grant { name: "frame".into(), vms: vec!["vm-1".into(), "vm-2".into()] };
    let mut world = World::with_config(Config { grants: vec![grant], ..Config::default() });
    let desired_access = d3dkmt::access::SYNC_OBJECT_ALL_ACCESS;
    world.guest(RED.0, G);
    let device = world.device();
    let fence = world.fence_with(device, 0, NT).object;
    let alone = world.fence_with(device, 0, NT).object;
    world.ok(share(alone, NATIVE));
    world.ok(calls::share(fence, FENCE, Some("frame")));
    world.guest(BLUE.0, H);
    let theirs = world.device();
    world.ok(Call::OpenNtHandleFromName {
        name: "frame".into(),
        desired_access,
        token: NEW,
        sync_object: true,
    });
    let opened = world.open(theirs, NEW).object;
    let waits = world.pending(theirs, &[(opened, 1)], false);
    change(&mut world, RED, false);
    change(&mut world, RED, true);
    world.woken();
    assert_eq!(world.signal(theirs, opened, 1), OK);
    assert_eq!(world.woken(), [waits]);
    world.process = G;
    let new = world.device();
    assert_eq!(world.signal(new, fence, 2), REMOVED, "the handle is of the old arrival");
    // Once the other VM has closed its handle, too.
    assert_eq!(world.status(calls::open(new, NATIVE)), REMOVED, "nobody else had it");
    let again = world.open(new, FENCE).object;
    assert_eq!(world.signal(new, again, 2), OK, "the object lives");
    world.process = H;
    assert_eq!(world.value(opened), 2);
    world.ok(Call::DestroySynchronizationObject { object: opened });
    world.process = G;
    world.ok(Call::DestroySynchronizationObject { object: again });
    assert_eq!(world.signal(new, fence, 3), REMOVED);
    world.finish();
}

/// The driver keeps the VM's worker process until it has no other process of the VM.
#[test]
fn a_driver_sees_the_worker_process_go_last_and_come_again() {
    covers!("GPV-061", "GPV-062");
    let (mut world, script) = scripted(Config::default());
    world.guest(RED.0, G);
    let device = world.device();
    let ddis = ["create_process", "set_virtual_machine_data", "destroy_process", "destroy_device"];
    calls(&script, &ddis);
    change(&mut world, RED, false);
    assert_eq!(calls(&script, &ddis), [""; 0], "its process is still there");
    world.ok(Call::DestroyDevice { device });
    world.end_process(G);
    let ends = calls(&script, &ddis);
    assert_eq!(ends.len(), 3, "{ends:?}");
    assert!(ends[0].starts_with("destroy_device") && ends[2] == "destroy_process 0 1", "{ends:?}");
    change(&mut world, RED, true);
    let begins = calls(&script, &ddis);
    assert!(begins[0].starts_with("create_process 0 1 VirtualMachineWorker"), "{begins:?}");
    assert!(begins[1].starts_with("set_virtual_machine_data 0 1"), "{begins:?}");
    // An unused worker goes at once.
    change(&mut world, RED, false);
    assert_eq!(calls(&script, &ddis), ["destroy_process 0 1"]);
    world.input(Input::VmDetached { vm: RED });
    assert_eq!(calls(&script, &ddis), [""; 0]);
    world.finish();
}

#[test]
fn an_adapter_is_removed_a_limited_number_of_times() {
    covers!("GPV-061");
    let mut world = World::new();
    world.guest(RED.0, G);
    world.filling(|world| {
        for _ in 0..limits::ADAPTER_ARRIVALS_MAX {
            change(world, RED, false);
            change(world, RED, true);
            world.effects = dxgkrnl::Effects::default();
        }
    });
    let why = Some("adapter 0 was removed or started too often".into());
    assert_eq!(world.kernel.vm_adapter_refusal(RED, 0, false), why);
    let update = Fault::UpdateDriver { adapter: 0, version: DriverVersion(1) };
    assert_eq!(world.kernel.fault_can_happen(update), Err("the adapter was started again too often"));
    let device = world.device();
    assert_eq!(world.execution_state(device), 1);
    world.finish();
}

fn version(world: &mut World, kind: u32) -> u64 {
    let adapter = world.adapter();
    let Reply::AdapterInfo(data) = world.ok(Call::QueryAdapterInfo { adapter, kind, data: vec![0; 8] })
    else {
        panic!()
    };
    u64::from_le_bytes(data.try_into().expect("eight bytes"))
}

#[test]
fn a_driver_update_is_a_removal_and_an_arrival_with_another_version() {
    covers!("GPV-063");
    let (mut world, script) = scripted(Config::default());
    world.guest(RED.0, G);
    let device = world.device();
    assert_eq!(version(&mut world, 18), DriverVersion::FIRST.0);
    script.borrow().take();
    let new = DriverVersion::parse("2.0.0.1").expect("a version");
    let update = Fault::UpdateDriver { adapter: 0, version: new };
    world.notes();
    world.input(Input::Fault(update));
    let texts = note(&mut world);
    assert_eq!(texts, "adapter 0 is stopped: 0 waits ended, 0 queues emptied; adapter 0 is started again");
    assert_eq!(calls(&script, &["stop_device", "start_device"]), ["stop_device 0", "start_device 0"]);
    assert_eq!((version(&mut world, 18), version(&mut world, 49)), (new.0, new.0));
    assert_eq!((visible(&mut world), world.execution_state(device)), (vec![1], 4));
    // A driver that does not start leaves the adapter stopped.
    script.borrow().failing = Some(("start_device", NtStatus::UNSUCCESSFUL));
    world.input(Input::Fault(update));
    assert!(note(&mut world).contains("adapter 0 stays stopped: DxgkDdiStartDevice returned"));
    assert_eq!(world.kernel.fault_can_happen(update), Err("the adapter is stopped already"));
    world.finish();
}

#[test]
fn removed_adapters_and_versions_are_saved_and_restored() {
    covers!("GPV-061", "GPV-063");
    let mut world = World::new();
    world.guest(RED.0, G);
    let old = world.adapter();
    let version_of = DriverVersion(3);
    world.input(Input::Fault(Fault::UpdateDriver { adapter: 0, version: version_of }));
    change(&mut world, RED, false);
    let state = world.kernel.save().expect("the driver can be saved");
    let driver = kmd::SimulatedMiniport::default();
    world.kernel = dxgkrnl::Kernel::restore(Config::default(), driver, &state).expect("its own state");
    assert_eq!(world.status(Call::OpenAdapterFromLuid { luid: LUID }), REMOVED);
    change(&mut world, RED, true);
    assert_eq!(visible(&mut world), [2]);
    assert_eq!(version(&mut world, 49), version_of.0);
    assert_eq!(world.status(Call::CreateDevice { adapter: old, flags: 0 }), REMOVED);
}

/// Values that a native fence got while an adapter was stopped are told to its hardware when the adapter starts.
#[test]
fn an_adapter_that_starts_gets_the_values_of_its_native_fences() {
    covers!("GPV-042");
    let second = Luid { low: 9, high: 0 };
    let adapters = vec![AdapterConfig::default(), AdapterConfig { luid: second, ..AdapterConfig::default() }];
    let (mut world, script) = scripted(Config { adapters, ..Config::default() });
    let (first, other) = (world.device_on(LUID), world.device_on(second));
    let cross = NT | SyncObjectFlags::CROSS_ADAPTER;
    let fence = world.try_native(first, 0, cross).expect("a native fence").object;
    world.ok(share(fence, NATIVE));
    let flags = SyncObjectFlags::empty();
    world.ok(Call::OpenNativeFence { device: other, token: NATIVE, flags, engine_affinity: 0 });
    world.input(Input::Fault(Fault::StopAdapter { adapter: 1 }));
    calls(&script, &[]);
    assert_eq!(world.signal(first, fence, 5), OK);
    assert_eq!(calls(&script, &["update_current_value"]).len(), 1, "only the adapter that is there");
    world.input(Input::Fault(Fault::StartAdapter { adapter: 1 }));
    let updates = calls(&script, &["update_current_value"]);
    assert_eq!(updates, ["update_current_value 3 5 always false notification false"]);
    world.finish();
}
