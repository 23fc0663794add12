//! Calls of other clients while the kernel has a backlog of work that did not fit one step.

use crate::common::{P, World, share};
use d3dkmt::{
    Call, CreatedSyncObject, EventId, GpuSignal, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer,
    ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, WaitOutcome, calls, isa,
    limits,
};
use dxgkrnl::{Config, Effects, Fault, HostEvent, Input, Kernel, Policy, ProcessId, VmId, ddi, policy};

const Q: ProcessId = ProcessId(2);

/// Handles one input, without its backlog.
fn step(world: &mut World, input: Input) -> Effects {
    let mut effects = Effects::default();
    world.kernel.handle(world.now, input, &mut effects);
    effects
}

fn call(world: &mut World, process: ProcessId, call: Call) -> Effects {
    step(world, Input::Call { process, request: 7, call })
}

/// Processes the whole backlog, in steps.
fn finish(world: &mut World) -> Effects {
    let mut effects = Effects::default();
    while world.kernel.has_backlog() {
        effects.append(step(world, Input::Deadline));
    }
    assert_eq!(world.kernel.miscounted(), None);
    effects
}

fn signal(device: Handle, fence: Handle, value: u64) -> Call {
    let (objects, values) = (vec![fence].into(), vec![value].into());
    Call::SignalFromCpu { device, objects, values, flags: SignalFlags::ALLOW_FENCE_REWIND }
}

fn wait(device: Handle, fence: Handle, value: u64, event: u64) -> Call {
    calls::wait(device, fence, value, EventId(event))
}

/// Twenty waits of P for 10, which was reached and then rewound, and twelve later waits of Q for 5. P's wakes are under
/// way.
struct GoneBack {
    world: World,
    others_device: Handle,
    others: Handle,
    woken: Vec<HostEvent>,
}

fn gone_back() -> GoneBack {
    let mut world = World::new();
    let device = world.device();
    let (fence, others_device, others) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.kernel.set_work_units_per_step(4, 4);
    (0..20).for_each(|event| _ = call(&mut world, P, wait(device, fence, 10, 1000 + event)));
    let mut woken = call(&mut world, P, signal(device, fence, 10)).events;
    woken.extend(call(&mut world, Q, signal(others_device, others, 0)).events);
    (0..12).for_each(|event| _ = call(&mut world, Q, wait(others_device, others, 5, 2000 + event)));
    GoneBack { world, others_device, others, woken }
}

#[test]
fn a_value_rewound_and_reached_again_wakes_every_waiter() {
    let GoneBack { mut world, others_device, others, mut woken } = gone_back();
    for _ in 0..2 {
        woken.extend(step(&mut world, Input::Deadline).events);
    }
    assert!(woken.len() < 20 && world.kernel.has_backlog(), "{woken:?}");
    woken.extend(call(&mut world, Q, signal(others_device, others, 10)).events);
    woken.extend(finish(&mut world).events);
    assert_eq!(woken.len(), 32);
}

#[test]
fn waits_registered_after_a_rewind_stay_pending() {
    let GoneBack { mut world, mut woken, .. } = gone_back();
    woken.extend(finish(&mut world).events);
    assert_eq!((woken.len(), woken.iter().all(|event| event.process == P)), (20, true));
}

#[test]
fn wake_ups_count_as_work_of_the_signaling_process() {
    let mut world = World::new();
    let device = world.device();
    let (_, others_device, others) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.kernel.set_work_units_per_step(4, 4);
    (0..20).for_each(|event| _ = call(&mut world, Q, wait(others_device, others, 10, 1000 + event)));
    call(&mut world, Q, signal(others_device, others, 10));
    assert_eq!((world.kernel.is_behind(P), world.kernel.is_behind(Q)), (false, true));
    finish(&mut world);
}

/// A fence of P that Q has open, and twenty waits for it of one of them. Then Q has its GPU do something. Returns the
/// wakes. P, which caused nothing, is never behind.
fn woken_by_work_of_q(
    waiting: ProcessId,
    work: impl FnOnce(&mut World, Handle, CreatedSyncObject),
) -> Vec<HostEvent> {
    let (mut world, token) = (World::new(), ShareToken([9; 16]));
    let device = world.device();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = world.fence_with(device, 0, flags).object;
    world.ok(calls::share(fence, token, None));
    world.attach(Q);
    world.process = Q;
    let others_device = world.device();
    let opened = world.open(others_device, token);
    let (device, fence) = if waiting == P { (device, fence) } else { (others_device, opened.object) };
    (0..20).for_each(|event| _ = call(&mut world, waiting, wait(device, fence, 10, 1000 + event)));
    work(&mut world, others_device, opened);
    world.kernel.set_work_units_per_step(4, 4);
    let mut events = vec![];
    while let Some(due) = world.kernel.next_deadline() {
        world.now = due;
        events.extend(step(&mut world, Input::Deadline).events);
        assert!(!world.kernel.is_behind(P), "after {} wakes", events.len());
    }
    assert_eq!(world.kernel.miscounted(), None);
    events
}

fn hang(world: &mut World, device: Handle, _: CreatedSyncObject) {
    let context = world.context(device, 0);
    world.submit(context, &[isa::Packet::Hang]);
}

#[test]
fn waits_of_a_lost_device_count_as_work_of_its_process() {
    let events = woken_by_work_of_q(Q, hang);
    assert!(events.iter().all(|event| event.status == NtStatus::DEVICE_REMOVED), "{events:?}");
    assert_eq!(events.len(), 20);
}

#[test]
fn waits_for_a_fence_that_a_lost_device_poisons_count_as_work_of_its_process() {
    let events = woken_by_work_of_q(P, hang);
    assert!(events.iter().all(|event| event.status == NtStatus::SUCCESS), "{events:?}");
    assert_eq!(events.len(), 20);
}

#[test]
fn waits_for_a_fence_that_an_engine_wrote_count_as_work_of_its_process() {
    const COPY: u32 = 2;
    let events = woken_by_work_of_q(P, |world, device, CreatedSyncObject { gpu_address, .. }| {
        let context = world.context(device, COPY);
        let busy = isa::Packet::Busy { duration_ns: 1000 };
        world.submit(context, &[isa::Packet::FenceWrite { gpu_address, value: 10 }, busy]);
    });
    assert_eq!(events.len(), 20);
}

/// The fence is the last of many that one buffer wrote, so its evaluation is left to a later step. Before that, it is
/// rewound.
#[test]
fn a_wait_sees_the_value_that_an_engine_wrote_although_it_was_rewound_since() {
    const COPY: u32 = 2;
    let (mut world, token) = (World::new(), ShareToken([9; 16]));
    let device = world.device();
    let mut addresses: Vec<u64> = (0..50).map(|_| world.fence(device, 0).gpu_address).collect();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let last = world.fence_with(device, 0, flags);
    addresses.push(last.gpu_address);
    world.ok(calls::share(last.object, token, None));
    world.attach(Q);
    world.process = Q;
    let others_device = world.device();
    let others = world.open(others_device, token).object;
    call(&mut world, Q, wait(others_device, others, 10, 1));
    world.process = P;
    let context = world.context(device, COPY);
    let writes =
        addresses.iter().map(|gpu_address| isa::Packet::FenceWrite { gpu_address: *gpu_address, value: 10 });
    let busy = isa::Packet::Busy { duration_ns: 1_000_000 };
    world.submit(context, &writes.chain([busy]).collect::<Vec<_>>());
    world.kernel.set_work_units_per_step(4, 4);
    loop {
        world.now = world.kernel.next_deadline().expect("the buffer runs");
        if world.now >= 1_000_000 {
            break;
        }
        let woken = step(&mut world, Input::Deadline).events;
        assert!(woken.is_empty(), "{woken:?}");
    }
    let woken = call(&mut world, Q, signal(others_device, others, 0)).events;
    assert_eq!((woken.len(), world.kernel.is_behind(P)), (1, true));
    assert!(finish(&mut world).events.is_empty());
}

#[test]
fn waits_that_an_ended_process_leaves_to_others_count_as_its_work() {
    let mut world = World::new();
    let device = world.device();
    let (fence, ..) = world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    (0..20).for_each(|event| _ = call(&mut world, P, wait(device, fence, 10, 1000 + event)));
    world.kernel.set_work_units_per_step(4, 4);
    step(&mut world, Input::ProcessGone { process: Q });
    while world.kernel.has_backlog() {
        assert!(!world.kernel.is_behind(P));
        step(&mut world, Input::Deadline);
    }
    assert_eq!(world.kernel.snapshot().waits.len(), 20);
}

#[test]
fn a_vm_is_under_cleanup_until_its_nt_handles_are_gone() {
    let mut world = World::new();
    let vm = VmId(3);
    world.guest(vm.0, ProcessId(5));
    let device = world.device();
    for number in 0..40 {
        let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let fence = world.fence_with(device, 0, flags).object;
        world.ok(calls::share(fence, ShareToken([number; 16]), None));
    }
    world.kernel.set_work_units_per_step(4, 4);
    step(&mut world, Input::ProcessGone { process: ProcessId(5) });
    finish(&mut world);
    assert_eq!(world.kernel.snapshot().objects_alive, 40);
    step(&mut world, Input::VmDetached { vm });
    assert!(world.kernel.is_clearing(vm) && world.kernel.snapshot().objects_alive > 30);
    step(&mut world, Input::NtHandleClosed { vm, token: ShareToken([39; 16]) });
    step(&mut world, Input::VmAttached { vm, name: "again".into() });
    assert!(!world.kernel.is_clearing(vm));
    assert_eq!(world.kernel.snapshot().objects_alive, 0);
    finish(&mut world);
    step(&mut world, Input::ProcessAttached { process: ProcessId(6), vm, pid: 1, name: "new".into() });
    assert!(world.kernel.processes().any(|process| process == ProcessId(6)));
}

/// A keyed mutex of P that is free with the key 0, and its global handle.
fn keyed_mutex(world: &mut World) -> (Handle, Handle) {
    let create =
        Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags: KeyedMutexFlags::empty() };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = world.ok(create) else { panic!("no mutex") };
    (mutex, shared_handle)
}

/// Attaches a process that opens it.
fn open(world: &mut World, process: ProcessId, shared_handle: Handle) -> Handle {
    world.attach(process);
    let buffer = RuntimeBuffer { size: 0, present: false, data: vec![] };
    let opened = call(world, process, Call::OpenKeyedMutex { shared_handle, buffer });
    let Reply::KeyedMutex { mutex, .. } = opened.answers[0].reply else { panic!("not opened") };
    mutex
}

fn acquire(mutex: Handle, key: u64, timeout: Option<i64>, event: u64) -> Call {
    Call::AcquireKeyedMutex { mutex, key, timeout, event: EventId(event) }
}

#[test]
fn acquires_of_an_abandoned_mutex_end_in_steps() {
    let mut world = World::new();
    let (mutex, shared_handle) = keyed_mutex(&mut world);
    world.ok(acquire(mutex, 0, None, 1));
    let opened = open(&mut world, Q, shared_handle);
    for event in 0..20 {
        call(&mut world, Q, acquire(opened, 0, Some(-10), 100 + event));
    }
    world.kernel.set_work_units_per_step(4, 4);
    let first = call(&mut world, P, Call::DestroyKeyedMutex { mutex }).events;
    assert!(first.len() < 8 && world.kernel.has_backlog(), "{first:?}");
    // Their handle ends meanwhile, and the time-outs of the others expire.
    world.now += 2_000;
    let mut ended = first;
    ended.extend(call(&mut world, Q, acquire(opened, 0, None, 900)).events);
    ended.extend(finish(&mut world).events);
    assert_eq!(ended.len(), 20);
    assert!(ended.iter().all(|event| event.status == NtStatus::ABANDONED), "{ended:?}");
}

#[test]
fn queued_waits_on_a_destroyed_fence_are_released_in_steps_in_their_order() {
    const QUEUES: u64 = 40;
    let mut world = World::new();
    let device = world.device();
    let (fence, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
    for value in 1..=QUEUES {
        let context = world.context(device, 0);
        assert_eq!(world.gpu_wait(context, fence, 100 + value), NtStatus::SUCCESS);
        assert_eq!(world.gpu_signal(&[context], done, value), NtStatus::SUCCESS);
    }
    world.kernel.set_work_units_per_step(4, 1000);
    let mut stores = call(&mut world, P, Call::DestroySynchronizationObject { object: fence }).stores;
    assert!(world.kernel.has_backlog() && stores.len() < 8, "{stores:?}");
    assert_eq!(world.kernel.snapshot().objects_alive, 2, "the backlog keeps the object");
    stores.extend(finish(&mut world).stores);
    let values: Vec<u64> = stores.iter().map(|store| store.value).collect();
    // The last store of a step is visible.
    assert!(values.len() >= 8 && values.is_sorted() && values.last() == Some(&QUEUES), "{values:?}");
    assert_eq!((world.kernel.snapshot().objects_alive, world.kernel.snapshot().waits.len()), (1, 0));
}

#[test]
fn no_process_attaches_to_a_vm_under_cleanup() {
    let mut world = World::new();
    let (vm, late) = (VmId(3), ProcessId(6));
    world.guest(vm.0, ProcessId(5));
    let device = world.device();
    (0..40).for_each(|_| _ = world.fence(device, 0));
    world.kernel.set_work_units_per_step(4, 4);
    step(&mut world, Input::VmDetached { vm });
    assert!(world.kernel.is_clearing(vm));
    step(&mut world, Input::ProcessAttached { process: late, vm, pid: 1, name: "late".into() });
    step(&mut world, Input::VmDetached { vm });
    finish(&mut world);
    assert!(world.kernel.processes().all(|process| process == P));
    assert!(!world.kernel.is_clearing(vm));
}

#[test]
fn a_vm_that_attaches_again_waits_for_its_cleanup() {
    let mut world = World::new();
    let vm = VmId(3);
    world.guest(vm.0, ProcessId(5));
    let device = world.device();
    (0..40).for_each(|_| _ = world.fence(device, 0));
    world.kernel.set_work_units_per_step(4, 4);
    step(&mut world, Input::VmDetached { vm });
    step(&mut world, Input::VmAttached { vm, name: "again".into() });
    assert!(!world.kernel.is_clearing(vm));
    finish(&mut world);
    step(&mut world, Input::ProcessAttached { process: ProcessId(6), vm, pid: 1, name: "new".into() });
    assert!(world.kernel.processes().any(|process| process == ProcessId(6)));
}

#[test]
fn an_ended_process_acquires_no_keyed_mutex() {
    let mut world = World::new();
    let (mutex, shared_handle) = keyed_mutex(&mut world);
    let device = world.device();
    let (ending, living) = (Q, ProcessId(3));
    let [by_ending, by_living] = [ending, living].map(|process| open(&mut world, process, shared_handle));
    (0..40).for_each(|_| _ = world.fence(device, 0));
    call(&mut world, P, acquire(mutex, 0, Some(0), 1));
    for event in 2..20 {
        call(&mut world, ending, acquire(by_ending, 5, None, event));
    }
    call(&mut world, living, acquire(by_living, 5, None, 30));
    world.kernel.set_work_units_per_step(4, 4);
    step(&mut world, Input::ProcessGone { process: ending });
    assert!(world.kernel.is_ending(ending));
    let release = Call::ReleaseKeyedMutex { mutex, key: 5, fence_value: 0, private_data: None };
    let mut events = call(&mut world, P, release).events;
    events.extend(finish(&mut world).events);
    let woken: Vec<_> =
        events.iter().map(|event| (event.process, event.target.event().unwrap().0, event.status)).collect();
    assert_eq!(woken, [(living, 30, NtStatus::SUCCESS)]);
}

/// A new device may reuse a destroyed device's index while the work of its loss is still in the backlog.
#[test]
fn no_other_device_loses_its_fences() {
    let faulted_device_poisons = policy::FaultedDevicePoisons::Poisons;
    for (units, fences) in (4..13_u32).flat_map(|units| (6..40_u64).map(move |fences| (units, fences))) {
        let policy = Policy { faulted_device_poisons, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        world.device();
        world.attach(Q);
        world.process = Q;
        let others_adapter = world.adapter();
        world.process = P;
        let device = world.device();
        (0..fences).for_each(|_| _ = world.fence(device, 0));
        let context = world.context(device, 0);
        world.submit(context, &[isa::Packet::Hang]);
        let flags = SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY;
        let awaited = world.fence_with(device, 0, flags).object;
        for event in 0..u64::from(units / 2) {
            call(&mut world, P, wait(device, awaited, 9, 7000 + event));
        }
        world.kernel.set_work_units_per_step(units, units);
        call(&mut world, P, Call::DestroyDevice { device });
        let engine = ddi::EngineId { adapter: 0, node: 0 };
        step(&mut world, Input::Fault(Fault::PageFault { engine, gpu_address: 0x1000, flags: 0 }));
        let is_live = |world: &World| {
            let devices = world.kernel.snapshot().devices;
            devices.iter().filter(|device| device.process == P.0).count() > 1
        };
        while world.kernel.has_backlog() && is_live(&world) {
            step(&mut world, Input::Deadline);
        }
        let created = call(&mut world, Q, Call::CreateDevice { adapter: others_adapter, flags: 0 });
        let Reply::Device(device) = created.answers[0].reply else { panic!("no device") };
        let mut effects = call(&mut world, Q, calls::create_fence(device, 0, SyncObjectFlags::empty()));
        let Reply::SyncObject(fence) = effects.answers[0].reply.clone() else { panic!("no fence") };
        effects.append(finish(&mut world));
        let stores =
            effects.stores.iter().filter(|store| store.process == Q && Some(store.slot) == fence.slot);
        assert!(stores.map(|store| store.value).eq([0]), "{units} units, {fences} fences");
    }
}

#[test]
fn a_fence_of_a_lost_device_that_was_signaled_since_is_not_poisoned_again() {
    let poisoned_fence = policy::PoisonedFence::Signalable;
    let faulted_device_poisons = policy::FaultedDevicePoisons::Poisons;
    let policy = Policy { poisoned_fence, faulted_device_poisons, ..Policy::default() };
    let mut world = World::with_config(Config { policy, ..Config::default() });
    let device = world.device();
    let (_, others_device, others) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.process = P;
    (0..40).for_each(|_| _ = world.fence(device, 0));
    world.kernel.set_work_units_per_step(4, 4);
    let mut stored = call(&mut world, P, Call::MarkDeviceAsError { device, reason: 0 }).stores;
    while !stored.iter().any(|store| store.process == Q && store.value == u64::MAX) {
        stored = step(&mut world, Input::Deadline).stores;
    }
    assert!(world.kernel.has_backlog(), "its other fences are still to be poisoned");
    call(&mut world, Q, signal(others_device, others, 5));
    let waiting = call(&mut world, Q, wait(others_device, others, 10, 1));
    assert_eq!(waiting.answers[0].reply, Reply::Wait(WaitOutcome::Registered));
    let again = call(&mut world, Q, signal(others_device, others, 6));
    assert!(again.events.is_empty() && again.stores.iter().all(|store| store.value == 6), "{again:?}");
    assert!(finish(&mut world).events.is_empty());
    assert_eq!(call(&mut world, Q, signal(others_device, others, 10)).events.len(), 1);
}

#[test]
fn a_fence_that_was_poisoned_before_its_turn_is_not_poisoned_again() {
    let poisoned_fence = policy::PoisonedFence::Signalable;
    let faulted_device_poisons = policy::FaultedDevicePoisons::Poisons;
    let policy = Policy { poisoned_fence, faulted_device_poisons, ..Policy::default() };
    let mut world = World::with_config(Config { policy, ..Config::default() });
    let device = world.device();
    (0..40).for_each(|_| _ = world.fence(device, 0));
    let (_, others_device, others) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    call(&mut world, Q, wait(others_device, others, 10, 1));
    world.kernel.set_work_units_per_step(4, 4);
    let lost = call(&mut world, P, Call::MarkDeviceAsError { device, reason: 0 });
    assert!(lost.events.is_empty() && world.kernel.has_backlog(), "the shared fence is the last");
    let signaled = call(&mut world, Q, signal(others_device, others, 5));
    assert_eq!(signaled.events.len(), 1, "the loss takes effect before the signal");
    assert!(signaled.stores.iter().all(|store| store.value == 5), "{:?}", signaled.stores);
    call(&mut world, Q, wait(others_device, others, 10, 2));
    let rest = finish(&mut world);
    assert!(rest.events.is_empty() && rest.stores.iter().all(|store| store.process != Q), "{rest:?}");
}

/// Both kinds of signals compare their value with the fence's value after the loss, not before it.
#[test]
fn a_signal_to_a_fence_awaiting_poison_is_checked_after_the_poison() {
    let faulted_device_poisons = policy::FaultedDevicePoisons::Poisons;
    let policy = Policy { faulted_device_poisons, ..Policy::default() };
    let statuses = [1, 1000].map(|units| {
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let device = world.device();
        (0..40).for_each(|_| _ = world.fence(device, 0));
        let (_, others_device, others) =
            world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
        let signal = |value| calls::signal(others_device, others, value);
        call(&mut world, Q, signal(5));
        world.kernel.set_work_units_per_step(units, units);
        call(&mut world, P, Call::MarkDeviceAsError { device, reason: 0 });
        assert_eq!(world.kernel.has_backlog(), units == 1);
        let lower = call(&mut world, Q, signal(3));
        finish(&mut world);
        lower.answers[0].status
    });
    assert_eq!(statuses, [NtStatus::SUCCESS; 2], "a signal of a poisoned fence is ignored, not refused");
}

/// Attack awaiting_begin: one step would submit all of an ended process's buffers to the engine.
#[test]
fn buffers_of_a_process_that_has_ended_leave_their_engine_in_steps() {
    let mut world = World::with_config(Config::default());
    let device = world.device();
    let contexts: Vec<Handle> = (0..3000).map(|_| world.context(device, 0)).collect();
    for context in contexts {
        world.submit(context, &[isa::Packet::Busy { duration_ns: 1_000_000 }]);
    }
    let before = world.kernel.longest_step();
    let mut effects = step(&mut world, Input::ProcessGone { process: P });
    effects.append(finish(&mut world));
    let longest = world.kernel.longest_step();
    assert!(
        before < longest && longest < 3 * u64::from(d3dkmt::limits::WORK_UNITS_PER_STEP) / 2,
        "{longest} units"
    );
    assert!(world.kernel.engines_idle());
}

/// The end of a device and its loss each look through the waits of others for its fences. The second look goes on when the
/// opens of the device are gone.
#[test]
fn a_device_that_is_lost_while_it_ends_leaves_the_waits_of_others() {
    let mut world = World::with_config(Config::default());
    let device = world.device();
    let all = [1, 2].map(|token| {
        world.process = P;
        let fence =
            world.fence_with(device, 0, SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING);
        let token = ShareToken([token; 16]);
        world.ok(share(fence.object, token));
        token
    });
    let context = world.context(device, 0);
    world.submit(context, &[isa::Packet::Hang]);
    world.attach(Q);
    world.process = Q;
    let others_device = world.device();
    let all = all.map(|token| world.open(others_device, token).object);
    for fence in all {
        for event in 0..60 {
            call(&mut world, Q, wait(others_device, fence, 9, u64::from(fence.0) << 8 | event));
        }
    }
    world.kernel.set_work_units_per_step(4, 4);
    call(&mut world, P, Call::DestroyDevice { device });
    let engine = ddi::EngineId { adapter: 0, node: 0 };
    step(&mut world, Input::Fault(Fault::PageFault { engine, gpu_address: 0x1000, flags: 0 }));
    let ended = finish(&mut world);
    assert!(ended.events.is_empty(), "{:?}", ended.events);
    for fence in all {
        let mut woken = call(&mut world, Q, signal(others_device, fence, 9));
        woken.append(finish(&mut world));
        assert_eq!(woken.events.len(), 60);
    }
}

/// A line for a semaphore of P that one count does not serve in one step: forty queues of P lack a mutex, too. Q has the
/// semaphore open, and two contexts.
struct LongLine {
    world: World,
    device: Handle,
    semaphore: Handle,
    signaler: Handle,
    others_device: Handle,
    others: Handle,
    others_contexts: [Handle; 2],
}

fn long_line() -> LongLine {
    let mut world = World::new();
    let device = world.device();
    let object_type = SyncObjectType::SEMAPHORE;
    let info =
        SyncObjectInfo { object_type, flags: SyncObjectFlags::SHARED, max_count: 9, ..Default::default() };
    let CreatedSyncObject { object: semaphore, shared_handle, .. } = world.object(device, info);
    let mutex =
        SyncObjectInfo { object_type: SyncObjectType::MUTEX, initial_state: true, ..Default::default() };
    let mutex = world.object(device, mutex).object;
    for _ in 0..40 {
        let context = world.context(device, 0);
        world.ok(calls::acquire(context, &[semaphore, mutex]));
    }
    let signaler = world.context(device, 0);
    let others_device = world.other(Q.0);
    let Reply::SyncObject(opened) = world.ok(Call::OpenSynchronizationObject { shared_handle }) else {
        panic!("not opened")
    };
    let others_contexts = [0; 2].map(|_| world.context(others_device, 0));
    world.process = P;
    LongLine { world, device, semaphore, signaler, others_device, others: opened.object, others_contexts }
}

fn count_up(context: Handle, semaphores: &[Handle]) -> Call {
    let signal = GpuSignal::Legacy { objects: semaphores.into(), fence_value: 0 };
    Call::SignalFromGpu { contexts: vec![context].into(), signal, flags: SignalFlags::empty() }
}

/// A context that acquires a semaphore, and then signals the returned fence.
fn taker(world: &mut World, device: Handle, context: Handle, semaphores: &[Handle]) -> Handle {
    let fence = world.fence(device, 0).object;
    world.ok(calls::acquire(context, semaphores));
    assert_eq!(world.gpu_signal(&[context], fence, 1), NtStatus::SUCCESS);
    fence
}

#[test]
fn nobody_overtakes_a_line_that_is_served_in_steps_and_later_signals_follow_it() {
    let LongLine { mut world, device, semaphore, signaler, others_device, others, others_contexts } =
        long_line();
    let last = world.context(device, 0);
    let last = taker(&mut world, device, last, &[semaphore]);
    let [late_context, later_signaler] = others_contexts;
    world.process = Q;
    let late = world.fence(others_device, 0).object;
    world.process = P;
    world.kernel.set_work_units_per_step(4, 1000);
    call(&mut world, P, count_up(signaler, &[semaphore]));
    assert!(world.kernel.has_backlog() && world.value(last) == 0);
    call(&mut world, Q, calls::acquire(late_context, &[others]));
    let (objects, values) = (vec![late].into(), vec![1].into());
    let signal = GpuSignal::Monitored { objects, values };
    let (contexts, flags) = (vec![late_context].into(), SignalFlags::empty());
    call(&mut world, Q, Call::SignalFromGpu { contexts, signal, flags });
    let value_of_late = |world: &World| {
        let objects = world.kernel.snapshot().objects;
        objects.iter().find(|one| (one.process, one.handle) == (Q.0, late)).expect("it lives").value
    };
    assert_eq!(value_of_late(&world), 0, "the line is served first");
    call(&mut world, Q, count_up(later_signaler, &[others]));
    assert!(world.kernel.has_backlog() && world.value(last) == 0 && value_of_late(&world) == 0);
    finish(&mut world);
    assert_eq!((world.value(last), value_of_late(&world)), (1, 1));
}

#[test]
fn a_signal_that_names_a_semaphore_twice_serves_its_line_twice() {
    for units in [4, limits::WORK_UNITS_PER_STEP] {
        let LongLine { mut world, device, semaphore, signaler, .. } = long_line();
        let [two, one] = [2, 1].map(|count| {
            let context = world.context(device, 0);
            taker(&mut world, device, context, &vec![semaphore; count])
        });
        world.kernel.set_work_units_per_step(units, 1000);
        call(&mut world, P, count_up(signaler, &[semaphore, semaphore]));
        assert_eq!(world.kernel.has_backlog(), units == 4);
        finish(&mut world);
        assert_eq!(
            (world.value(two), world.value(one)),
            (0, 1),
            "each count goes to the first that it suffices"
        );
    }
}

#[test]
fn an_ended_process_acquires_no_semaphore() {
    let LongLine { mut world, semaphore, device, others_device, others, others_contexts, .. } = long_line();
    (0..40).for_each(|_| _ = world.fence(device, 0));
    let context = world.context(device, 0);
    taker(&mut world, device, context, &[semaphore]);
    world.process = Q;
    let [behind, signaler] = others_contexts;
    let behind = taker(&mut world, others_device, behind, &[others]);
    world.kernel.set_work_units_per_step(4, 1000);
    step(&mut world, Input::ProcessGone { process: P });
    assert!(world.kernel.is_ending(P));
    call(&mut world, Q, count_up(signaler, &[others]));
    finish(&mut world);
    assert_eq!(world.value(behind), 1);
}

/// The scan of the waits through an open of a lost device goes on when that open is gone and another has its index.
#[test]
fn waits_through_a_later_open_do_not_end_with_those_of_a_lost_device() {
    const R: ProcessId = ProcessId(3);
    let tokens = [1, 2].map(|token| ShareToken([token; 16]));
    for steps in 0..80 {
        let mut world = World::new();
        let device = world.device();
        for token in tokens {
            let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
            let fence = world.fence_with(device, 0, flags).object;
            world.ok(share(fence, token));
        }
        let context = world.context(device, 0);
        world.submit(context, &[isa::Packet::Hang]);
        let others_device = world.other(Q.0);
        for token in tokens {
            let fence = world.open(others_device, token).object;
            for event in 0..60 {
                call(&mut world, Q, wait(others_device, fence, 9, u64::from(fence.0) << 8 | event));
            }
        }
        let late_device = world.other(R.0);
        world.kernel.set_work_units_per_step(4, 4);
        call(&mut world, P, Call::DestroyDevice { device });
        let engine = ddi::EngineId { adapter: 0, node: 0 };
        step(&mut world, Input::Fault(Fault::PageFault { engine, gpu_address: 0x1000, flags: 0 }));
        (0..steps).for_each(|_| _ = step(&mut world, Input::Deadline));
        let (token, flags) = (tokens[1], SyncObjectFlags::empty());
        let open =
            Call::OpenSyncObject { device: late_device, token, flags, engine_affinity: 0, legacy: false };
        let Reply::SyncObject(late) = call(&mut world, R, open).answers[0].reply.clone() else {
            panic!("not opened")
        };
        call(&mut world, R, wait(late_device, late.object, 9, 1));
        let ended = finish(&mut world);
        assert!(ended.events.is_empty(), "after {steps} steps: {:?}", ended.events);
    }
}

/// P's engine has work for 50 values of a fence, all of it is due, and one step of it is done.
fn late() -> (World, CreatedSyncObject) {
    const COUNT: u64 = 50;
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    let packets: Vec<_> = (1..=COUNT)
        .flat_map(|value| {
            let gpu_address = fence.gpu_address;
            [isa::Packet::Busy { duration_ns: 100 }, isa::Packet::FenceWrite { gpu_address, value }]
        })
        .collect();
    world.submit(context, &packets);
    world.attach(Q);
    world.now += 10_000 * COUNT;
    step(&mut world, Input::Deadline);
    assert!(world.kernel.is_late() && (1..COUNT).contains(&world.value(fence.object)));
    (world, fence)
}

fn catch_up(world: &mut World) -> Vec<HostEvent> {
    let mut events = Vec::new();
    while world.kernel.is_late() {
        events.extend(step(world, Input::Deadline).events);
    }
    events
}

/// A call of Q costs as much as if P's engines had nothing left, and time goes on with what is due.
#[test]
fn of_work_that_is_due_and_did_not_fit_a_step_calls_do_nothing() {
    let (mut world, fence) = late();
    let reached = world.value(fence.object);
    let state = world.kernel.save().unwrap();
    let restored = Kernel::restore(world.kernel.config().clone(), kmd::SimulatedMiniport::default(), &state);
    assert!(restored.unwrap().is_late());
    let units = world.kernel.work_units();
    let enumerated = call(&mut world, Q, Call::EnumAdapters { capacity: 1 });
    assert_eq!((enumerated.answers.len(), world.value(fence.object)), (1, reached));
    assert_eq!(world.kernel.work_units(), units);
    catch_up(&mut world);
    call(&mut world, Q, Call::EnumAdapters { capacity: 1 });
    assert_eq!((world.value(fence.object), world.kernel.next_deadline()), (50, None));
}

/// Their time is that of the call, not the one that the kernel has reached.
#[test]
fn timeouts_of_acquires_that_begin_while_the_kernel_is_late_end_no_earlier() {
    const AFTER: u64 = 50_000;
    let (mut world, _) = late();
    step(&mut world, Input::SystemTime { utc_100ns: 1_000_000 });
    let create =
        Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags: KeyedMutexFlags::empty() };
    let created = call(&mut world, P, create);
    let Reply::KeyedMutex { mutex, .. } = created.answers[0].reply else { panic!("no mutex") };
    let units = (AFTER / 100) as i64;
    for (event, timeout) in [(1, -units), (2, 1_000_000 + units)] {
        assert!(call(&mut world, P, acquire(mutex, 7, Some(timeout), event)).events.is_empty());
    }
    assert!(world.kernel.is_late());
    assert_eq!(catch_up(&mut world), []);
    world.now += AFTER - 100;
    assert_eq!(step(&mut world, Input::Deadline).events, []);
    world.now += 100;
    let ended = step(&mut world, Input::Deadline).events;
    assert!(ended.len() == 2 && ended.iter().all(|event| event.status == NtStatus::TIMEOUT), "{ended:?}");
}
