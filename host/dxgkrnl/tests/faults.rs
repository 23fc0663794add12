//! Lost interrupts, hangs and stopped adapters: which waiters wake, and that no waiter sleeps for ever.

use crate::common::hardware::busy;
use crate::common::{OK, P, World};
use d3dkmt::isa::{self, Packet::*};
use d3dkmt::{Call, EventId, GpuSignal, Handle, NtStatus, SignalFlags, SyncObjectFlags};
use dxgkrnl::ddi::EngineState;
use dxgkrnl::{Config, EngineId, Fault, Input, ProcessId};

const REMOVED: NtStatus = NtStatus::DEVICE_REMOVED;
const ADVANCED: EngineId = EngineId { adapter: 0, node: 0 };
const BASIC: EngineId = EngineId { adapter: 0, node: 2 };

fn write(gpu_address: u64, value: u64) -> isa::Packet {
    FenceWrite { gpu_address, value }
}

fn fault(world: &mut World, fault: Fault) {
    world.input(Input::Fault(fault));
}

fn engine(world: &World, node: u32) -> EngineState {
    world.kernel.snapshot().engines[node as usize].state.clone()
}

fn notes(world: &mut World) -> Vec<String> {
    std::mem::take(&mut world.effects.notes).into_iter().map(|note| note.text).collect()
}

#[test]
fn each_fault_loses_one_interrupt_of_its_engine_and_of_no_other() {
    let mut world = World::with_config(crate::common::dropping(Config::default()));
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
    let mut world = World::with_config(crate::common::dropping(crate::common::without_timeouts()));
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
