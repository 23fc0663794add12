//! Commands that an engine cannot run, and which bytes reach memory.

use covers::covers;
use d3dkmt::isa::{
    self, BarrierAccess as A, BarrierGroup, BarrierSync as S, BufferBarrier, Kernel, Packet, Use, WorkKind,
};
use dxgkrnl::Config;
use dxgkrnl::ddi::{
    EngineId, EngineState, FaultedWork, HwContext, HwQueueSubmission, Interrupt, Miniport, NewHwQueue,
    PageFaultFlags, PageTableEntry, PendingFaults, Suspend,
};
use dxgkrnl::policy::IllegalCommand;

use kmd::SimulatedMiniport;

use crate::gpu::{COPY_ENGINE, ENGINE, GPU, Gpu, HW_QUEUE, P, PAGE, copy, fill, full, words, work};

fn page_fault(engine: EngineId, id: u64, gpu_address: u64, flags: PageFaultFlags) -> Interrupt {
    Interrupt::DmaPageFaulted { engine, faulted_fence_id: id, gpu_address, flags }
}

fn faulted(engine: EngineId, faulted_fence_id: u64) -> Interrupt {
    Interrupt::DmaFaulted { engine, faulted_fence_id }
}

const WRITE: PageFaultFlags = PageFaultFlags::WRITE;
const READ: PageFaultFlags = PageFaultFlags::empty();

/// Interrupts of these commands on three pages: the first is mapped, the second is read-only, the third is not mapped.
fn outcome(packets: impl FnOnce(&mut Gpu) -> Vec<Packet>) -> (Vec<Interrupt>, u64) {
    let mut gpu = Gpu::new(3);
    gpu.map(1, 1, false);
    gpu.entry(2, 1, PageTableEntry::NoAccess);
    let packets = packets(&mut gpu);
    let id = gpu.submit(ENGINE, 1, &packets);
    gpu.advance(1000);
    assert_eq!(
        (gpu.miniport.engine_state(ENGINE), gpu.dma_executor.staging_buffers()),
        (EngineState::Idle, 0)
    );
    gpu.run(&[Packet::Busy { duration_ns: 1 }]);
    gpu.interrupts.pop();
    (gpu.interrupts, id)
}

#[test]
fn memory_that_is_not_there_faults_at_its_first_byte() {
    let read_third = outcome(|gpu| vec![copy(gpu.buffer(2 * PAGE - 8, 16), gpu.buffer(0, 64), 5)]);
    assert_eq!(read_third.0, [page_fault(ENGINE, read_third.1, GPU + 2 * PAGE, READ)]);
    let write_second = outcome(|gpu| vec![fill(gpu.buffer(PAGE - 8, 16), 1, 5)]);
    assert_eq!(write_second.0, [page_fault(ENGINE, write_second.1, GPU + PAGE, WRITE)]);
    let nothing = outcome(|gpu| vec![copy(gpu.buffer(PAGE, 16), gpu.buffer(0, 64), 5)]);
    assert_eq!(nothing.0, [Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id: nothing.1 }]);
    let stamp = outcome(|_| vec![Packet::Timestamp { gpu_address: GPU + 2 * PAGE }]);
    assert_eq!(stamp.0, [page_fault(ENGINE, stamp.1, GPU + 2 * PAGE, WRITE)]);
}

#[test]
fn use_beyond_a_resource_faults_at_the_first_byte_outside() {
    let cases = [
        (Use::range(1, A::UNORDERED_ACCESS, 60, 8), 64),
        (Use::range(1, A::UNORDERED_ACCESS, 65, 0), 64),
        (Use::range(1, A::UNORDERED_ACCESS, 8, u64::MAX - 4), 64),
        (Use::subresource(1, A::UNORDERED_ACCESS, 1), 64),
        (Use { count: 2, ..Use::whole(1, A::UNORDERED_ACCESS) }, 64),
    ];
    for (item, at) in cases {
        let (interrupts, id) = outcome(|gpu| {
            gpu.buffer(0, 64);
            vec![work(WorkKind::Dispatch, Kernel::Fill, 1, 5, &[item])]
        });
        assert_eq!(interrupts, [page_fault(ENGINE, id, GPU + at, WRITE)], "{item:?}");
    }
    let (interrupts, id) = outcome(|gpu| {
        gpu.buffer(0, 64);
        let none = Use { count: 0, ..Use::range(1, A::UNORDERED_ACCESS, 900, 0) };
        vec![work(WorkKind::Dispatch, Kernel::Fill, 1, 5, &[none, Use::range(1, A::UNORDERED_ACCESS, 64, 0)])]
    });
    assert_eq!(interrupts, [Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id: id }]);
}

/// After a fault, memory has the bytes that were written back before it, and no others.
#[test]
fn a_fault_loses_what_is_in_caches_and_the_engine_goes_on() {
    let mut gpu = Gpu::new(2);
    gpu.entry(1, 1, PageTableEntry::NoAccess);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let unmapped = gpu.buffer(PAGE, 64);
    let id = gpu.submit(
        ENGINE,
        1,
        &[fill(a, 5, 10), full(), fill(b, 6, 10), full(), fill(unmapped, 7, 10), fill(a, 8, 10)],
    );
    let next = gpu.submit(ENGINE, 2, &[copy(a, b, 10)]);
    gpu.advance(100);
    let done = Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id: next };
    assert_eq!(gpu.interrupts, [page_fault(ENGINE, id, GPU + PAGE, WRITE), done]);
    assert_eq!((gpu.word(0), gpu.word(64), gpu.dma_executor.staging_buffers()), (5, 5, 0));
}

#[test]
fn memory_that_goes_away_before_it_is_written_back_faults_then() {
    let mut gpu = Gpu::new(2);
    let [a, b] = [0, PAGE].map(|offset| gpu.buffer(offset, 64));
    let id = gpu.submit(ENGINE, 1, &[fill(a, 5, 10), fill(b, 6, 10), Packet::Busy { duration_ns: 50 }]);
    gpu.advance(20);
    gpu.entry(1, 1, PageTableEntry::NoAccess);
    gpu.advance(100);
    assert_eq!(gpu.interrupts, [page_fault(ENGINE, id, GPU + PAGE, WRITE)]);
    assert_eq!(
        (gpu.word(0), gpu.word(PAGE), gpu.dma_executor.staging_buffers()),
        (5, 0, 0),
        "the older line first"
    );
}

#[test]
fn a_command_of_another_kind_of_engine_or_without_its_resource_faults() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let unknown = |number| fill(number, 1, 5);
    let strange = work(WorkKind::Copy, Kernel::Fill, 1, 5, &[Use::whole(a, A::RENDER_TARGET)]);
    let two = work(WorkKind::Copy, Kernel::Fill, 1, 5, &[Use::whole(a, A::COPY_DEST | A::COPY_SOURCE)]);
    let illegal = [
        (COPY_ENGINE, fill(a, 1, 5)),
        (COPY_ENGINE, work(WorkKind::Draw, Kernel::None, 0, 5, &[])),
        (EngineId { adapter: 0, node: 1 }, work(WorkKind::Draw, Kernel::None, 0, 5, &[])),
        (EngineId { adapter: 0, node: 3 }, work(WorkKind::VideoEncode, Kernel::None, 0, 5, &[])),
        (ENGINE, work(WorkKind::VideoDecode, Kernel::None, 0, 5, &[])),
        (ENGINE, work(WorkKind::Dispatch, Kernel::Add, 1, 5, &[Use::whole(a, A::UNORDERED_ACCESS); 65])),
        (ENGINE, unknown(0)),
        (ENGINE, unknown(2)),
        (ENGINE, strange),
        (ENGINE, two),
    ];
    for (engine, packet) in illegal {
        let id = gpu.submit(engine, 1, &[packet.clone(), fill(a, 9, 0)]);
        assert_eq!(gpu.interrupts.pop(), Some(faulted(engine, id)), "{packet:?}");
        assert_eq!(
            (gpu.miniport.engine_state(engine), gpu.dma_executor.staging_buffers()),
            (EngineState::Idle, 0)
        );
    }
    let legal = [
        (COPY_ENGINE, copy(a, a, 5)),
        (EngineId { adapter: 0, node: 1 }, fill(a, 1, 5)),
        (EngineId { adapter: 0, node: 3 }, work(WorkKind::VideoDecode, Kernel::None, 0, 5, &[])),
        (EngineId { adapter: 0, node: 4 }, work(WorkKind::VideoProcess, Kernel::None, 0, 5, &[])),
        (EngineId { adapter: 0, node: 5 }, work(WorkKind::VideoEncode, Kernel::None, 0, 5, &[])),
    ];
    for (engine, packet) in legal {
        let submission_fence_id = gpu.submit(engine, 1, &[packet]);
        gpu.advance(10);
        assert_eq!(gpu.interrupts.pop(), Some(Interrupt::DmaCompleted { engine, submission_fence_id }));
    }
    assert_eq!(gpu.word(0), 1, "of the faulted ones nothing is written");
}

#[test]
fn or_the_engine_hangs_by_policy() {
    let mut config = Config::default();
    config.policy.illegal_command = IllegalCommand::Hangs;
    let mut gpu = Gpu::with(1, &config);
    let a = gpu.buffer(0, 64);
    let submission_fence_id = gpu.submit(COPY_ENGINE, 1, &[copy(a, a, 5), full(), fill(a, 1, 5)]);
    gpu.advance(10);
    let hung = EngineState::Hung { submission_fence_id, queued: 0 };
    assert_eq!((gpu.miniport.engine_state(COPY_ENGINE), gpu.interrupts.len()), (hung, 0));
    let aborted =
        gpu.with_callbacks(|miniport, now, callbacks| miniport.reset_engine(now, COPY_ENGINE, callbacks));
    assert_eq!((aborted, gpu.dma_executor.staging_buffers()), (Ok(submission_fence_id), 0));
}

#[test]
fn a_hang_stops_all_that_runs_and_a_reset_loses_it() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    gpu.submit(ENGINE, 1, &[fill(a, 5, 10), full(), copy(a, b, 50), fill(a, 6, 60)]);
    gpu.advance(20);
    gpu.miniport.hang_engine(ENGINE);
    gpu.advance(1000);
    assert!(matches!(gpu.miniport.engine_state(ENGINE), EngineState::Hung { .. }));
    assert!(gpu.dma_executor.staging_buffers() > 0);
    let aborted =
        gpu.with_callbacks(|miniport, now, callbacks| miniport.reset_engine(now, ENGINE, callbacks));
    assert_eq!((aborted, gpu.interrupts.len(), gpu.dma_executor.staging_buffers()), (Ok(1), 0, 0));
    assert_eq!((gpu.word(0), gpu.word(64)), (5, 0));
    gpu.run(&[copy(a, b, 10)]);
    assert_eq!(gpu.word(64), 5);
    // A Hang packet: all before it is complete, and nothing is written back.
    gpu.submit(ENGINE, 1, &[fill(a, 7, 10), Packet::Hang, fill(a, 8, 10)]);
    gpu.advance(100);
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.destroy_context(now, HwContext(1), Some((ENGINE, 3)), callbacks);
    });
    assert_eq!(
        (gpu.miniport.engine_state(ENGINE), gpu.dma_executor.staging_buffers()),
        (EngineState::Idle, 0)
    );
    assert_eq!(gpu.word(0), 5);
}

#[test]
fn an_injected_page_fault_or_hang_meets_commands_as_packets() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let id = gpu.submit(ENGINE, 1, &[fill(a, 5, 10), fill(a, 6, 20)]);
    gpu.advance(10);
    gpu.with_callbacks(|miniport, now, callbacks| miniport.page_fault(now, ENGINE, 0x5000, WRITE, callbacks));
    assert_eq!(gpu.interrupts, [page_fault(ENGINE, id, 0x5000, WRITE)]);
    assert_eq!((gpu.word(0), gpu.dma_executor.staging_buffers()), (0, 0));
    gpu.miniport.hang_engine(ENGINE);
    let submission_fence_id = gpu.submit(ENGINE, 1, &[fill(a, 5, 10)]);
    let hung = EngineState::Hung { submission_fence_id, queued: 0 };
    assert_eq!(gpu.miniport.engine_state(ENGINE), hung);
    gpu.with_callbacks(|miniport, _, callbacks| miniport.stop_device(0, callbacks));
    assert_eq!(gpu.miniport.pending_faults(ENGINE), PendingFaults::default());
}

/// Preemption waits for the running commands; no command starts, and written bytes are in memory.
#[test]
fn a_list_is_preempted_between_commands_with_its_caches_written_back() {
    covers!("SCH-011");
    let mut gpu = Gpu::new(1);
    let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
    let first = gpu.submit(
        ENGINE,
        1,
        &[fill(a, 5, 30), fill(b, 6, 50), full(), copy(a, c, 10), full(), fill(a, 7, 10)],
    );
    gpu.advance(10);
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.preempt_command(now, ENGINE, 77, callbacks).unwrap()
    });
    gpu.advance(30);
    assert_eq!((gpu.word(0), gpu.interrupts.len()), (0, 0), "one runs still");
    gpu.advance(10);
    let preempted =
        Interrupt::DmaPreempted { engine: ENGINE, preemption_fence_id: 77, last_completed_fence_id: 0 };
    assert_eq!(gpu.interrupts, [preempted]);
    assert_eq!((gpu.word(0), gpu.word(64), gpu.word(128), gpu.dma_executor.staging_buffers()), (5, 6, 0, 0));
    // Work of another context, then the rest.
    let other = gpu.submit(ENGINE, 2, &[fill(a, 9, 10)]);
    gpu.advance(100);
    gpu.resubmit(ENGINE, 1, other + 1, Some(first), Vec::new());
    gpu.advance(100);
    assert_eq!((gpu.word(0), gpu.word(64), gpu.word(128)), (7, 6, 9));
    assert!(matches!(gpu.interrupts[1..], [Interrupt::DmaCompleted { .. }, Interrupt::DmaCompleted { .. }]));
}

/// A buffer that is set aside keeps the barriers of a packet that was read, of which there are thousands. They outlast a
/// save of the driver.
#[test]
fn barriers_that_were_read_of_a_preempted_list_are_charged() {
    const BARRIERS: usize = 2_000;
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let to_copy = words((S::COMPUTE_SHADING, S::COPY), (A::UNORDERED_ACCESS, A::COPY_SOURCE));
    let one = BufferBarrier { barrier: to_copy, resource: a, offset: 0, bytes: u64::MAX };
    let barriers = Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![one; BARRIERS])] };
    let packets = [fill(a, 5, 1_000), barriers, copy(a, b, 0)];
    let bytes = isa::encode(&packets).len();
    let first = gpu.submit(ENGINE, 1, &packets);
    gpu.advance(10);
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.preempt_command(now, ENGINE, 77, callbacks).unwrap()
    });
    gpu.advance(2_000);
    assert!(matches!(gpu.interrupts[..], [Interrupt::DmaPreempted { .. }]));
    let held = gpu.miniport.held_bytes(0, P);
    assert!(held >= bytes + BARRIERS * size_of::<BufferBarrier>(), "{held} bytes are charged");
    let state = gpu.miniport.save().unwrap();
    gpu.miniport = SimulatedMiniport::default();
    gpu.miniport.start(&Config::default());
    gpu.miniport.restore(&state).unwrap();
    gpu.resubmit(ENGINE, 1, first + 1, Some(first), Vec::new());
    gpu.advance(1 << 30);
    assert!(matches!(gpu.interrupts[1..], [Interrupt::DmaCompleted { .. }]));
    assert_eq!((gpu.word(64), gpu.miniport.held_bytes(0, P)), (5, 0));
}

/// Lists on a hardware queue: a suspend at the boundary, a fault with interrupt 12, and an engine reset.
#[test]
fn a_hardware_queue_runs_lists_is_suspended_and_faults() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let new = NewHwQueue {
        hw_queue: HW_QUEUE,
        context: HwContext(1),
        engine: ENGINE,
        process: P,
        progress_fence_gpu_address: 0x9000,
        flags: d3dkmt::HwQueueFlags::empty(),
    };
    gpu.miniport.create_hw_queue(&new).unwrap();
    let submit = |gpu: &mut Gpu, id: u64, packets: &[Packet]| {
        let submission = HwQueueSubmission {
            engine: ENGINE,
            hw_queue: HW_QUEUE,
            context: HwContext(1),
            submission_fence_id: id,
            progress_fence_id: id,
            commands: isa::encode(packets),
        };
        gpu.with_callbacks(|miniport, now, callbacks| {
            miniport.submit_command_to_hw_queue(now, submission, callbacks);
        });
    };
    submit(&mut gpu, 1, &[fill(a, 5, 30), full(), copy(a, b, 30)]);
    gpu.advance(10);
    let answer = gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.suspend_context(now, HwContext(1), 40, callbacks)
    });
    assert_eq!(answer, Suspend::Pending);
    gpu.advance(1000);
    let engine = ENGINE;
    let suspended = Interrupt::SuspendContextCompleted { engine, context: HwContext(1), suspend_fence: 40 };
    assert_eq!(gpu.interrupts, [suspended]);
    assert_eq!((gpu.word(0), gpu.word(64), gpu.dma_executor.staging_buffers()), (5, 0, 0));
    gpu.with_callbacks(|miniport, now, callbacks| miniport.resume_context(now, HwContext(1), callbacks));
    gpu.advance(1 + 30);
    assert_eq!(gpu.word(64), 5);
    submit(&mut gpu, 2, &[fill(9, 1, 1)]);
    let work = FaultedWork::Queue { hw_queue: HW_QUEUE, progress_fence_id: 2 };
    let no_resource = Interrupt::HwQueuePageFaulted { engine, work, gpu_address: 0, flags: READ };
    assert_eq!(gpu.interrupts.pop(), Some(no_resource));
    submit(&mut gpu, 3, &[fill(a, 8, 30), Packet::Hang]);
    gpu.advance(100);
    let reset =
        gpu.with_callbacks(|miniport, now, callbacks| miniport.reset_hw_engine(now, ENGINE, callbacks));
    assert_eq!((reset, gpu.dma_executor.staging_buffers(), gpu.word(0)), (Ok(()), 0, 5));
}
