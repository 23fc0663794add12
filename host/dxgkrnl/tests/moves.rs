//! DMA operations of engines: when the kernel passes them on, and when it drops them.

use covers::covers;

use crate::common::scripted::{inject, scripted};
use crate::common::{P, World};
use dxgkrnl::ddi::Callback;
use dxgkrnl::{ComputeOp, Config, DmaOp, EngineId, Fault, Input, MemoryRef, ProcessId, StagingBuffer};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const STAGING_BUFFER: StagingBuffer = StagingBuffer { adapter: 0, number: 3 };

fn memory(process: ProcessId) -> MemoryRef {
    MemoryRef::Memory { process, address: 0x7F00_0000_1000 }
}

fn written_back() -> DmaOp {
    DmaOp::Copy {
        from: MemoryRef::StagingBuffer { staging_buffer: STAGING_BUFFER, offset: 8 },
        to: memory(P),
        bytes: 64,
    }
}

fn by_engine(moved: DmaOp) -> Callback {
    Callback::Dma { engine: ENGINE, moved }
}

fn moved(world: &mut World) -> Vec<DmaOp> {
    std::mem::take(&mut world.effects.moves)
}

#[test]
fn moves_of_a_step_keep_their_order_and_come_with_the_stores_of_the_step() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let fence = world.fence(device, 0);
    world.stores();
    let (fill, back) = (DmaOp::Fill { to: memory(P), bytes: 8, pattern: 7 }, written_back());
    let store = Callback::GpuStore { engine: ENGINE, process: P, gpu_address: fence.gpu_address, value: 5 };
    inject(&mut world, &script, vec![by_engine(fill), store, by_engine(back)]);
    assert_eq!(world.stores(), [(fence.slot.unwrap(), 5)]);
    assert_eq!(moved(&mut world), [fill, back]);
    let lines = [fill, back].map(|one| one.to_string());
    assert_eq!(
        lines,
        [
            "move 8 bytes of 0x7 -> p1 0x7f0000001000",
            "move 64 bytes staging buffer 0.3 +0x8 -> p1 0x7f0000001000"
        ]
    );
}

#[test]
fn memory_of_an_ended_process_is_not_touched() {
    let (mut world, script) = scripted(Config::default());
    world.device();
    inject(
        &mut world,
        &script,
        vec![by_engine(DmaOp::Fill { to: memory(ProcessId(77)), bytes: 4, pattern: 0 })],
    );
    assert_eq!(moved(&mut world), []);
    assert!(world.notes().iter().any(|note| note.contains("process 77, which is gone")));
    // In the step of the process's end: the staging buffer is released, and its memory is not written.
    let release = DmaOp::Release { staging_buffer: STAGING_BUFFER };
    script.borrow().call_back("destroy_device", vec![by_engine(written_back()), by_engine(release)]);
    world.input(Input::ProcessGone { process: P });
    assert_eq!(moved(&mut world), [release]);
}

#[test]
fn an_adapter_that_is_reset_or_stopped_touches_nothing_more_and_its_staging_buffers_end() {
    covers!("TDR-009");
    let reset = Fault::ResetFails { engine: ENGINE };
    for stops in [false, true] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let context = world.context(device, 0);
        inject(&mut world, &script, vec![by_engine(written_back())]);
        assert_eq!(moved(&mut world), [written_back()]);
        if stops {
            world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
        } else {
            script.borrow().call_back("memory_evicted", vec![by_engine(written_back())]);
            world.input(Input::Fault(reset));
            world.submit(context, &[d3dkmt::isa::Packet::Hang]);
            world.advance(3_000_000_000);
            let notes = world.notes();
            assert!(notes.iter().any(|note| note.contains("touched memory after its reset")), "{notes:?}");
        }
        assert_eq!(moved(&mut world), [DmaOp::ReleaseAll { adapter: 0 }], "once");
    }
}

#[test]
fn compute_ops_compute_what_their_names_say() {
    let results = ComputeOp::ALL.map(|kernel| kernel.apply(u32::MAX, 10, 3));
    assert_eq!(results, [2, u32::MAX - 2, u32::MAX - 3, 12]);
}
