//! Lost interrupts, hangs and stopped adapters: which waiters wake, and that no waiter sleeps for ever.

use covers::covers;

use crate::common::{P, World, share};
use d3dkmt::isa::{self, Packet::*};
use d3dkmt::{
    Call, CreateContextFlags, EventId, GpuSignal, Handle, Luid, NtStatus, Reply, ShareToken, SignalFlags,
    SyncObjectFlags, SyncObjectInfo, SyncObjectType,
};
use dxgkrnl::ddi::EngineState;
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Input, ProcessId};

const OK: NtStatus = NtStatus::SUCCESS;
const REMOVED: NtStatus = NtStatus::DEVICE_REMOVED;
const ADVANCED: EngineId = EngineId { adapter: 0, node: 0 };
const BASIC: EngineId = EngineId { adapter: 0, node: 2 };
const OTHER: Luid = Luid { low: 0x6770_0002, high: 0 };

fn busy(duration_ns: u64) -> isa::Packet {
    Busy { duration_ns }
}

fn write(gpu_address: u64, value: u64) -> isa::Packet {
    FenceWrite { gpu_address, value }
}

fn fault(world: &mut World, fault: Fault) {
    world.input(Input::Fault(fault));
}

fn engine(world: &World, node: u32) -> EngineState {
    world.kernel.snapshot().engines[node as usize].state.clone()
}

fn unseen(world: &World) -> usize {
    let mut unseen = 0;
    world.kernel.unseen_writes(&mut |_| unseen += 1);
    unseen
}

fn notes(world: &mut World) -> Vec<String> {
    std::mem::take(&mut world.effects.notes).into_iter().map(|note| note.text).collect()
}

/// A world with two adapters and a device on the first.
fn two_adapters() -> (World, Handle) {
    let second = AdapterConfig { luid: OTHER, ..AdapterConfig::default() };
    let adapters = vec![AdapterConfig::default(), second];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let device = world.device_on(AdapterConfig::default().luid);
    (world, device)
}

#[test]
fn after_a_lost_interrupt_the_next_one_completes_the_work() {
    covers!("SCH-005", "SCH-007");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, BASIC.node);
    let other = world.context(device, BASIC.node);
    let fence = world.fence(device, 0);
    let behind = world.fence(device, 0).object;
    let event = world.pending(device, &[(fence.object, 1)], false);
    let queued = world.pending(device, &[(behind, 1)], false);
    world.submit(context, &[busy(100), write(fence.gpu_address, 1)]);
    world.gpu_signal(&[context], behind, 1);
    fault(&mut world, Fault::LoseInterrupt { engine: BASIC });
    assert_eq!(world.kernel.snapshot().engines[2].faults.interrupts_lost, 1);
    assert_eq!(unseen(&world), 0);
    world.advance(1000);
    assert_eq!(world.kernel.snapshot().engines[2].faults.interrupts_lost, 0);
    assert_eq!(unseen(&world), 1);
    assert_eq!(world.value(fence.object), 1, "the work is done");
    assert!(world.kernel.engines_idle());
    assert_eq!(world.woken(), [], "the kernel got no interrupt");
    assert!(world.kernel.snapshot().contexts[0].queue[0].contains("running submission 1"));
    world.submit(other, &[busy(100)]);
    world.advance(100);
    assert_eq!(world.woken(), [event, queued], "a later submission completes the earlier one");
    assert_eq!((world.kernel.belongings(P).waits, unseen(&world)), (0, 0));
}

#[test]
fn each_fault_loses_one_interrupt_of_its_engine_and_of_no_other() {
    let mut world = World::new();
    let device = world.device();
    let (advanced, basic) = (world.context(device, ADVANCED.node), world.context(device, BASIC.node));
    let fence = world.fence(device, 0);
    let event = world.pending(device, &[(fence.object, 2)], false);
    fault(&mut world, Fault::LoseInterrupt { engine: ADVANCED });
    world.submit(basic, &[write(fence.gpu_address, 1)]);
    world.submit(advanced, &[write(fence.gpu_address, 2), busy(50)]);
    assert_eq!(world.woken(), [], "interrupt 11 is lost");
    world.advance(50);
    assert_eq!(world.woken(), [event], "DMA_COMPLETED is not");
    fault(&mut world, Fault::LoseInterrupt { engine: ADVANCED });
    fault(&mut world, Fault::LoseInterrupt { engine: ADVANCED });
    let last = world.pending(device, &[(fence.object, 3)], false);
    world.submit(advanced, &[write(fence.gpu_address, 3)]);
    assert_eq!(world.woken(), []);
    world.submit(advanced, &[busy(1)]);
    world.advance(1);
    assert_eq!(world.woken(), [], "the context still counts as running");
    world.ok(Call::DestroyContext { context: advanced });
    assert_eq!(world.woken(), [last], "the context's writes are checked when it ends");
}

#[test]
fn a_hang_stops_the_running_packet_or_the_next_one() {
    let mut world = World::with_config(crate::common::without_timeouts());
    let device = world.device();
    let context = world.context(device, ADVANCED.node);
    let fence = world.fence(device, 0);
    world.submit(context, &[busy(100), write(fence.gpu_address, 1)]);
    world.advance(99);
    fault(&mut world, Fault::Hang { engine: ADVANCED });
    fault(&mut world, Fault::Hang { engine: ADVANCED });
    world.advance(1_000_000);
    assert_eq!(engine(&world, 0), EngineState::Hung { submission_fence_id: 1, queued: 0 });
    assert_eq!((world.kernel.next_deadline(), world.value(fence.object)), (None, 0));
    world.ok(Call::DestroyContext { context });
    assert_eq!(engine(&world, 0), EngineState::Idle);

    let context = world.context(device, ADVANCED.node);
    fault(&mut world, Fault::Hang { engine: ADVANCED });
    assert_eq!(engine(&world, 0), EngineState::Idle, "nothing runs yet");
    world.submit(context, &[]);
    assert_eq!(engine(&world, 0), EngineState::Idle, "an empty buffer has no packet");
    world.submit(context, &[write(fence.gpu_address, 1)]);
    assert_eq!(engine(&world, 0), EngineState::Hung { submission_fence_id: 3, queued: 0 });
    assert_eq!(world.value(fence.object), 0);
}

#[test]
fn a_stopped_adapter_ends_waits_drops_work_and_stops_devices() {
    covers!("FEN-095", "TDR-030", "TDR-031");
    let (mut world, device) = two_adapters();
    let context = world.context(device, ADVANCED.node);
    let [written, signaled] = [0, 0].map(|value| world.fence(device, value));
    let first = world.pending(device, &[(written.object, 1), (signaled.object, 1)], false);
    let second = world.pending(device, &[(signaled.object, 1)], true);
    world.submit(context, &[busy(100), write(written.gpu_address, 1)]);
    world.submit(context, &[busy(100)]);
    world.gpu_wait(context, written.object, 5);
    world.gpu_signal(&[context], signaled.object, 1);
    let other_device = world.device_on(OTHER);
    let other = world.fence(other_device, 0).object;
    let undisturbed = world.pending(other_device, &[(other, 1)], false);
    world.effects.clear();

    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    let ended: Vec<_> =
        world.effects.events.drain(..).map(|event| (event.target.event().unwrap(), event.status)).collect();
    assert_eq!(ended, [(first, REMOVED), (second, REMOVED)]);
    assert_eq!(notes(&mut world), ["adapter 0 is stopped: 2 waits ended, 1 queues emptied"]);
    assert!(world.kernel.engines_idle());
    assert_eq!(world.kernel.snapshot().contexts[0].queue, Vec::<String>::new());
    world.advance(1_000_000);
    assert_eq!((world.value(written.object), world.value(signaled.object)), (0, 0), "no work is done");
    assert_eq!(world.stores(), [(0, 1)], "values stay, and the status reports the stop");
    assert_eq!(world.ok(Call::GetDeviceState { device, state_type: 1 }), Reply::DeviceState(4));

    assert_eq!(world.signal(other_device, other, 1), OK);
    assert_eq!(world.woken(), [undisturbed], "the other adapter continues");
}

#[test]
fn calls_on_a_stopped_adapter_are_refused_and_destroys_are_not() {
    covers!("FEN-095");
    let (mut world, device) = two_adapters();
    let Reply::Adapters(adapters) = world.ok(Call::EnumAdapters { capacity: 2 }) else { panic!() };
    let adapter = adapters[0].handle;
    let context = world.context(device, 0);
    let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = world.fence_with(device, 0, shared).object;
    let token = ShareToken([7; 16]);
    world.ok(share(fence, token));
    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    notes(&mut world);

    let monitored =
        SyncObjectInfo { object_type: SyncObjectType::MONITORED_FENCE, ..SyncObjectInfo::default() };
    let luid = adapters[0].luid;
    let refused = [
        Call::OpenAdapterFromLuid { luid },
        Call::QueryAdapterInfo { adapter, kind: 15, data: vec![0; 4] },
        Call::CreateDevice { adapter, flags: 0 },
        Call::CreateSynchronizationObject { device, info: monitored, legacy: false },
        Call::OpenSyncObject {
            device,
            token,
            flags: SyncObjectFlags::empty(),
            engine_affinity: 0,
            legacy: false,
        },
        Call::SubmitCommand {
            contexts: vec![context].into(),
            commands: 0,
            length: 0,
            flags: 0,
            private_data: isa::encode(&[busy(1)]),
        },
        Call::CreateContextVirtual {
            device,
            node_ordinal: 0,
            engine_affinity: 0,
            flags: CreateContextFlags::empty(),
            client_hint: 0,
            private_data: vec![],
        },
    ];
    for call in refused {
        assert_eq!(world.status(call.clone()), REMOVED, "{call:?}");
    }
    assert_eq!(world.signal(device, fence, 1), REMOVED);
    assert_eq!(world.wait(device, &[(fence, 0)], false), Err(REMOVED));
    assert_eq!(world.gpu_signal(&[context], fence, 1), REMOVED);
    assert_eq!(world.gpu_wait(context, fence, 1), REMOVED);
    assert_eq!(notes(&mut world).len(), 11);

    let Reply::Adapters(left) = world.ok(Call::EnumAdapters { capacity: 1 }) else { panic!() };
    assert_eq!(left.iter().map(|adapter| adapter.luid).collect::<Vec<_>>(), [OTHER]);
    world.close_nt_handle(token);
    world.ok(Call::CancelWait { event: EventId(1) });
    world.ok(Call::DestroyContext { context });
    world.ok(Call::DestroySynchronizationObject { object: fence });
    world.ok(Call::DestroyDevice { device });
    world.ok(Call::CloseAdapter { adapter });
}

#[test]
fn queued_cpu_events_are_set_once_when_the_adapter_stops() {
    let mut world = World::new();
    let device = world.device();
    let contexts = [0, 1].map(|node| world.context(device, node));
    world.submit(contexts[0], &[Hang]);
    let flags = SignalFlags::ENQUEUE_CPU_EVENT;
    let mut enqueue = |contexts: &[Handle], event| {
        let signal = GpuSignal::CpuEvent { event };
        let status = world.status(Call::SignalFromGpu { contexts: contexts.into(), signal, flags });
        assert_eq!(status, OK);
    };
    enqueue(&contexts[..1], EventId(5));
    enqueue(&contexts, EventId(6));
    world.effects.clear();
    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    let mut set: Vec<_> =
        world.effects.events.iter().map(|event| (event.target.event().unwrap().0, event.status)).collect();
    set.sort();
    assert_eq!(set, [(5, REMOVED), (6, REMOVED)]);
}

#[test]
fn processes_of_a_stopped_adapter_leave_nothing() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let (fence, other_device, opened) =
        world.shared_fence(device, SyncObjectFlags::empty(), SyncObjectFlags::empty());
    world.submit(context, &[busy(100)]);
    world.gpu_wait(context, fence, 1);
    world.process = ProcessId(2);
    world.pending(other_device, &[(opened, 1)], false);
    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    for process in [P, ProcessId(2)] {
        world.input(Input::ProcessGone { process });
        assert_eq!(world.kernel.belongings(process), Default::default());
    }
    let snapshot = world.kernel.snapshot();
    assert!(snapshot.is_empty(), "{snapshot:?}");
    assert_eq!(snapshot.stopped_adapters, [0], "the adapter stays stopped");
}

#[test]
fn faults_that_cannot_happen_say_why() {
    let mut world = World::new();
    let nowhere = EngineId { adapter: 0, node: 9 };
    world.effects.clear();
    fault(&mut world, Fault::Hang { engine: nowhere });
    fault(&mut world, Fault::StopAdapter { adapter: 1 });
    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    fault(&mut world, Fault::StopAdapter { adapter: 0 });
    fault(&mut world, Fault::LoseInterrupt { engine: ADVANCED });
    let expected = [
        "engine 0.9 hangs: there is no such engine",
        "adapter 1 stops: there is no such adapter",
        "adapter 0 is stopped: 0 waits ended, 0 queues emptied",
        "adapter 0 stops: the adapter is stopped already",
        "engine 0.0 loses an interrupt: the adapter is stopped already",
    ];
    assert_eq!(notes(&mut world), expected);
}
