//! The status slot: a process reads in its memory, without a call, that one of its devices has stopped.

use covers::covers;

use crate::common::{P, World};
use d3dkmt::{Call, EventId, GpuSignal, Handle, NtStatus, Reply, SignalFlags};
use dxgkrnl::{Fault, FenceStore, Input, ProcessId, VmId};

const Q: ProcessId = ProcessId(2);
const STATUS: u32 = 0;
const STOP: Input = Input::Fault(Fault::StopAdapter { adapter: 0 });

fn stored(process: ProcessId, value: u64) -> FenceStore {
    FenceStore { process, slot: STATUS, value }
}

/// A one-way call that is refused: a wait without objects.
fn refused_one_way(world: &mut World, context: Handle) {
    let call = Call::WaitFromGpu { context, objects: vec![].into(), values: vec![].into() };
    world.input(Input::Call { process: P, request: 0, call });
}

#[test]
fn the_first_slot_is_the_status_and_counts_for_no_fence() {
    let mut world = World::new();
    assert_eq!(world.kernel.status_slot(P), Some(STATUS));
    assert_eq!(world.effects.stores, [stored(P, 0)], "the kernel clears the status slot first");
    let used = |world: &World| {
        let of_snapshot = world.kernel.snapshot().processes[0].fence_slots_used;
        (of_snapshot, world.kernel.belongings(P).slots_used)
    };
    assert_eq!(used(&world), (0, 0));
    let device = world.device();
    let fence = world.fence(device, 5);
    assert_eq!(fence.slot, Some(STATUS + 1));
    assert_eq!(used(&world), (1, 1));
    let mut slots = Vec::new();
    world.kernel.fences(&mut |fence| slots.push(fence.slot));
    assert_eq!(slots, [fence.slot]);
    world.stores();
    world.input(Input::FenceMemoryAdded { process: P, slots: 64 });
    assert_eq!(
        (world.kernel.status_slot(P), world.stores()),
        (Some(STATUS), vec![]),
        "the first memory only"
    );
}

#[test]
fn an_engine_cannot_write_the_status() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0);
    world.stores();
    let write = |gpu_address| d3dkmt::isa::Packet::FenceWrite { gpu_address, value: 9 };
    world.submit(context, &[write(fence.gpu_address - 64)]);
    assert_eq!(world.stores(), []);
    world.submit(context, &[write(fence.gpu_address)]);
    assert_eq!(world.stores(), [(STATUS + 1, 9)]);
}

#[test]
fn a_process_gets_its_status_when_it_adds_fence_memory() {
    let mut world = World::new();
    world.input(Input::ProcessAttached { process: Q, vm: VmId::HOST, pid: 2, name: "late".into() });
    world.process = Q;
    world.device();
    world.effects.clear();
    assert_eq!(world.kernel.status_slot(Q), None);
    world.input(STOP);
    assert_eq!(world.effects.stores, []);
    world.input(Input::FenceMemoryAdded { process: Q, slots: 0 });
    assert_eq!((world.kernel.status_slot(Q), &world.effects.stores[..]), (None, &[][..]));
    world.input(Input::FenceMemoryAdded { process: Q, slots: 1 });
    assert_eq!((world.kernel.status_slot(Q), &world.effects.stores[..]), (Some(STATUS), &[stored(Q, 1)][..]));
}

#[test]
fn a_stopped_adapter_updates_each_process_status_before_any_wake() {
    covers!("FEN-095", "GPV-026");
    let mut world = World::new();
    let device = world.device();
    let second = world.device();
    let fence = world.fence(device, 5).object;
    let waiting = world.pending(device, &[(fence, 6)], false);
    world.attach(Q);
    world.process = Q;
    world.device();
    world.attach(ProcessId(3));
    world.process = P;
    world.effects.clear();
    world.input(STOP);
    assert_eq!(world.effects.stores, [stored(P, 2), stored(Q, 1)], "a process without devices gets no store");
    assert_eq!(world.woken(), [waiting]);
    assert_eq!(world.wait(device, &[(fence, 5)], false), Err(NtStatus::DEVICE_REMOVED));
    world.effects.clear();
    world.input(Input::MemoryChanged { vm: VmId::HOST });
    let statuses: Vec<_> =
        world.effects.stores.iter().filter(|store| store.slot == STATUS).copied().collect();
    assert_eq!(statuses, [stored(P, 2), stored(Q, 1), stored(ProcessId(3), 0)]);
    world.effects.clear();
    world.ok(Call::DestroyDevice { device: second });
    world.ok(Call::DestroyDevice { device });
    assert_eq!(
        world.effects.stores,
        [stored(P, 1), stored(P, 0)],
        "a destroyed device no longer counts as stopped"
    );
    world.effects.clear();
    world.input(Input::ProcessGone { process: Q });
    assert_eq!((world.kernel.status_slot(Q), &world.effects.stores[..]), (None, &[][..]));
}

#[test]
fn a_device_that_a_one_way_call_stops_counts_once() {
    covers!("GPV-016");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let other = world.device();
    world.fence(other, 0);
    world.effects.clear();
    refused_one_way(&mut world, context);
    assert_eq!(world.effects.stores, [stored(P, 1)]);
    refused_one_way(&mut world, context);
    assert_eq!(world.effects.stores, [stored(P, 1)], "the device is already stopped");
    world.ok(Call::DestroyDevice { device: other });
    assert_eq!(world.effects.stores, [stored(P, 1)], "a working device does not count");
    let adapter = world.adapter();
    let Reply::Device(_) = world.ok(Call::CreateDevice { adapter, flags: 0 }) else { panic!() };
    world.input(STOP);
    assert_eq!(world.effects.stores, [stored(P, 1), stored(P, 2)]);
}

/// A signal of the GPU without an answer, that is refused.
fn refused_signal(world: &mut World, contexts: &[Handle], signal: GpuSignal, flags: SignalFlags) {
    let call = Call::SignalFromGpu { contexts: contexts.into(), signal, flags };
    world.input(Input::Call { process: P, request: 0, call });
}

#[test]
fn the_event_of_a_refused_one_way_call_is_set() {
    covers!("GPV-016");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    world.ok(Call::DestroyContext { context });
    world.effects.clear();
    let event = EventId(7);
    refused_signal(&mut world, &[context], GpuSignal::CpuEvent { event }, SignalFlags::ENQUEUE_CPU_EVENT);
    assert_eq!(world.woken(), [event]);
}

#[test]
fn a_refused_one_way_broadcast_stops_the_device_of_any_of_its_contexts() {
    covers!("GPV-016");
    for dead_is_first in [true, false] {
        let mut world = World::new();
        let device = world.device();
        let (dead, live) = (world.context(device, 0), world.context(device, 0));
        let fence = world.fence(device, 0).object;
        world.ok(Call::DestroyContext { context: dead });
        world.effects.clear();
        let contexts = if dead_is_first { [dead, live] } else { [live, dead] };
        let signal = GpuSignal::Monitored { objects: vec![fence].into(), values: vec![1].into() };
        refused_signal(&mut world, &contexts, signal, SignalFlags::empty());
        assert_eq!(world.effects.stores, [stored(P, 1)], "{contexts:?}");
    }
}
