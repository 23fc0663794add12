//! Engines that cannot write a monitored fence by its GPU address, and engines that read one.

use covers::covers;

use crate::common::World;
use crate::common::hardware::{NONE, wait, write};
use d3dkmt::isa::Packet::{self, *};
use d3dkmt::{DeviceExecutionState, NtStatus, SyncObjectFlags};
use dxgkrnl::ddi::{Callback, EngineId};
use dxgkrnl::{AdapterConfig, Config, DmaOp, MemoryRef};

use crate::common::scripted::{inject, scripted};

const OK: NtStatus = NtStatus::SUCCESS;
const FAULTED: u32 = DeviceExecutionState::ERROR_DMA_PAGE_FAULT.0;

/// Node 0 cannot write monitored fences.
fn world() -> World {
    let mut adapter = AdapterConfig::default();
    adapter.nodes[0].writes_fences = false;
    World::with_config(Config { adapters: vec![adapter], ..Config::default() })
}

#[test]
fn an_engine_that_cannot_write_a_monitored_fence_faults_on_the_write() {
    covers!("FEN-015");
    let store = |packet: fn(u64, u64) -> Packet| packet;
    for packet in [
        store(|gpu_address, value| FenceWrite { gpu_address, value }),
        store(|gpu_address, value| MarkerIn { gpu_address, value }),
        store(|gpu_address, value| MarkerOut { gpu_address, value }),
    ] {
        for in_hardware in [false, true] {
            let mut world = world();
            let device = world.device();
            let fence = world.fence(device, 0);
            assert_ne!(fence.gpu_address, 0, "the fence has a GPU address for other engines");
            let packets = [Busy { duration_ns: 10 }, packet(fence.gpu_address, 1)];
            if in_hardware {
                let queue = world.queue_on(device, 0, NONE);
                assert_eq!(world.submit_hw(queue, 1, &packets), OK);
            } else {
                let context = world.context(device, 0);
                assert_eq!(world.submit(context, &packets), OK);
            }
            world.advance(10);
            let found = (world.value(fence.object), world.execution_state(device));
            assert_eq!(found, (0, FAULTED), "{packets:?} in hardware: {in_hardware}");
        }
    }
}

#[test]
fn packets_of_its_queues_signal_the_fences_of_such_an_engine() {
    covers!("FEN-015", "FEN-016");
    let mut world = world();
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    world.submit(context, &[Busy { duration_ns: 10 }]);
    world.gpu_signal(&[context], fence.object, 1);
    assert_eq!(world.value(fence.object), 0);
    world.advance(10);
    assert_eq!(world.value(fence.object), 1);
    // Another engine of the adapter can write it; native fences have storage of their own.
    let other = world.context(device, 1);
    world.submit(other, &[write(&fence, 2)]);
    let native = world.native(device);
    let queue = world.queue_on(device, 0, NONE);
    world.submit_hw(queue, 1, &[wait(&native, 0), write(&native, 3)]);
    assert_eq!((world.value(fence.object), world.value(native.object)), (2, 3));
    assert_eq!(world.execution_state(device), DeviceExecutionState::ACTIVE.0);
}

#[test]
fn an_engine_reads_fences_that_it_may_read_or_write() {
    covers!("FEN-007");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let to = MemoryRef::Memory { process: world.process, address: 0x1000 };
    let engine = EngineId { adapter: 0, node: 0 };
    for flags in [SyncObjectFlags::empty(), SyncObjectFlags::NO_SIGNAL, SyncObjectFlags::NO_GPU_ACCESS] {
        let fence = world.fence_with(device, 0x7_0000_0005, flags);
        world.effects.moves.clear();
        let (process, gpu_address) = (world.process, fence.gpu_address);
        inject(&mut world, &script, vec![Callback::GpuLoad { engine, process, gpu_address, to }]);
        let fill = |bytes, pattern| DmaOp::Fill { to: to.ahead(bytes), bytes: 4, pattern };
        match flags {
            SyncObjectFlags::NO_GPU_ACCESS => assert_eq!(world.effects.moves, []),
            _ => assert_eq!(world.effects.moves, [fill(0, 5), fill(4, 7)], "{flags:?}"),
        }
    }
}
