//! The bandwidth of an engine, which its commands share, and interruptions of a command that has moved a part of its
//! bytes.

use std::collections::BTreeMap;

use d3dkmt::isa::{BarrierAccess, Kernel, Packet, Use, WorkKind};
use d3dkmt::limits::{CACHED_BYTES_PER_USE_MAX, MOVED_BYTES_PER_STEP};
use dxgkrnl::ddi::{EngineState, HwContext, Interrupt, Miniport, PageFaultFlags, PageTableEntry};
use dxgkrnl::{Config, DmaOp, MemoryRef};
use kmd::SimulatedMiniport;

use crate::gpu::{COPY_ENGINE, CPU, ENGINE, GPU, Gpu, PAGE, copy, fill, full, work};

const UAV: BarrierAccess = BarrierAccess::UNORDERED_ACCESS;
const SRV: BarrierAccess = BarrierAccess::SHADER_RESOURCE;
const MIB: u64 = 1 << 20;
const BYTES_PER_NS: u64 = 16;

/// Bytes moved at each point in time.
fn by_moment(gpu: &Gpu) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    gpu.moved.iter().for_each(|(now, moved)| *bytes.entry(*now).or_default() += moved.bytes());
    bytes
}

/// Most bytes at one point in time: what an engine may be ahead, one more piece, and a use that passes through a cache
/// (in, out, to memory).
const MOMENT_MAX: u64 = 2 * MOVED_BYTES_PER_STEP + 3 * CACHED_BYTES_PER_USE_MAX;

/// Asserts that all moves took their time, and that no point in time had more than [`MOMENT_MAX`] bytes.
fn assert_paced(gpu: &Gpu, begin: u64, what: &str) {
    let moments = by_moment(gpu);
    let most = moments.values().max().copied().unwrap_or(0);
    assert!(most <= MOMENT_MAX, "{what}: {most} bytes at once");
    let bytes: u64 = moments.values().sum();
    let last = moments.last_key_value().map_or(begin, |(now, _)| *now);
    let least = bytes.saturating_sub(MOMENT_MAX + MOVED_BYTES_PER_STEP) / BYTES_PER_NS;
    assert!(last - begin >= least, "{what}: {bytes} bytes in {} ns", last - begin);
}

fn two_uses(kind: WorkKind, kernel: Kernel, from: u32, to: u32) -> Packet {
    work(kind, kernel, 3, 0, &[Use::whole(from, SRV), Use::whole(to, UAV)])
}

fn sum(from: u32, to: u32) -> Packet {
    two_uses(WorkKind::Dispatch, Kernel::Sum, from, to)
}

/// A memory of 64 MiB that is not allocated: moves are counted, not done.
fn counted() -> Gpu {
    let mut gpu = Gpu::new(4);
    gpu.performs = false;
    gpu.map(0, 64 * MIB / PAGE, true);
    gpu
}

#[test]
fn no_moment_of_an_engine_moves_more_than_a_little_over_a_steps_bytes() {
    type List = fn(&mut Gpu) -> Vec<Packet>;
    let cases: [(&str, List); 8] = [
        ("a copy", |gpu| vec![copy(gpu.buffer(0, 32 * MIB), gpu.buffer(32 * MIB, 32 * MIB), 0)]),
        ("a fill", |gpu| vec![fill(gpu.buffer(0, 64 * MIB), 7, 0)]),
        ("a sum", |gpu| vec![sum(gpu.buffer(0, 32 * MIB), gpu.buffer(32 * MIB, 4))]),
        ("sixteen sums at once", |gpu| {
            let from = gpu.buffer(0, 4 * MIB);
            (0..16).map(|to| sum(from, gpu.buffer(32 * MIB + to * 64, 4))).collect()
        }),
        ("one command with many uses", |gpu| {
            let all = gpu.buffer(0, 64 * MIB);
            let part = |at: u64| Use::range(all, UAV, at * 65536, 65536);
            vec![work(WorkKind::Dispatch, Kernel::Add, 1, 0, &(0..64).map(part).collect::<Vec<_>>())]
        }),
        ("many commands of no duration, with barriers", |gpu| {
            let part = |gpu: &mut Gpu, at: u64| gpu.buffer(at * 65536, 65536);
            (0..64).flat_map(|at| [copy(part(gpu, at), part(gpu, at + 64), 0), full()]).collect()
        }),
        ("many commands of no duration with few bytes", |gpu| {
            let words: Vec<_> = (0..16).map(|at| gpu.buffer(at * 64, 64)).collect();
            let one = |at: u32| copy(words[at as usize % 16], words[(at as usize + 1) % 16], 0);
            (0..20_000).map(one).collect()
        }),
        ("caches of many types at the end", |gpu| {
            let all = gpu.buffer(0, 64 * MIB);
            let types = [UAV, BarrierAccess::RENDER_TARGET, BarrierAccess::STREAM_OUTPUT];
            let uses = (0..8 * 3u64).map(|at| Use::range(all, types[at as usize % 3], at * 65536, 65536));
            let draw = |item| work(WorkKind::Draw, Kernel::Fill, 1, 0, &[item]);
            let mut list: Vec<_> = uses.map(draw).collect();
            list.push(Packet::FenceWrite { gpu_address: 0x9000, value: 1 });
            list
        }),
    ];
    for (what, list) in cases {
        let mut gpu = counted();
        let packets = list(&mut gpu);
        let submission_fence_id = gpu.submit(ENGINE, 1, &packets);
        gpu.advance(1 << 40);
        let done = Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id };
        assert_eq!(gpu.interrupts, [done], "{what}");
        assert_paced(&gpu, 0, what);
        let bytes: u64 = by_moment(&gpu).values().sum();
        assert!(bytes > 1 << 20, "{what}: only {bytes} bytes");
    }
}

/// A memory of zeros of 64 TiB costs what its first bytes do.
#[test]
fn zero_pages_are_not_walked() {
    const ZEROS: u64 = 1 << 46;
    let at = 1u64 << 30;
    let kernels = [
        (Kernel::Sum, 7, 12 + 2),
        (Kernel::Copy, 0, 12),
        (Kernel::Add, 0, 12),
        (Kernel::Xor, 0, 12),
        (Kernel::Fill, 0, 12),
    ];
    for (kernel, first, moves) in kernels {
        let mut gpu = Gpu::new(1);
        gpu.entry(at / PAGE, ZEROS / PAGE, PageTableEntry::Zero);
        let (zeros, to) = (gpu.buffer(at, ZEROS), gpu.buffer(0, 64));
        let target = if kernel == Kernel::Sum { to } else { zeros };
        let uses = [Use::whole(zeros, SRV), Use::whole(target, UAV)];
        gpu.submit(ENGINE, 1, &[work(WorkKind::Dispatch, kernel, 7, 0, &uses)]);
        gpu.advance(1 << 43);
        assert!(
            matches!(gpu.interrupts[..], [Interrupt::DmaCompleted { .. }]),
            "{kernel:?}: {:?}",
            gpu.interrupts
        );
        let last = gpu.moved.last().map_or(0, |(now, _)| *now);
        let expected = (ZEROS - CACHED_BYTES_PER_USE_MAX) / BYTES_PER_NS;
        assert_eq!(gpu.word(0), first, "{kernel:?}");
        // The fixed costs add next to nothing.
        assert!((expected..expected + 1000).contains(&last), "{kernel:?}: {last} ns");
        // Moves of the cached part, and of the final sum.
        assert!(gpu.moves <= moves + 20, "{kernel:?}: {} moves", gpu.moves);
        assert_eq!(gpu.dma_executor.staging_buffers(), 0);
    }
}

#[test]
fn zero_pages_between_others_are_zeros_of_a_sum_and_of_a_copy() {
    let bytes = 3 * MIB;
    let mut gpu = Gpu::new(2 * bytes / PAGE + 1);
    let byte = |at: u64| (at * 29 + at / 253) as u8;
    (0..bytes).for_each(|at| gpu.memory.0[at as usize] = byte(at));
    // Two of every five pages are zero pages, and words cross their borders.
    let is_zero = |at: u64| matches!(at / PAGE % 5, 2 | 3) && at < bytes;
    (0..bytes / PAGE)
        .filter(|page| is_zero(page * PAGE))
        .for_each(|page| gpu.entry(page, 1, PageTableEntry::Zero));
    let read = |at: u64| if is_zero(at) { 0 } else { byte(at) };
    let (begin, count) = (6, (bytes - 9) / 4 * 4);
    let word = |at: u64| u32::from_le_bytes([0, 1, 2, 3].map(|i| read(begin + at + i)));
    let (from, to) = (gpu.buffer(begin, count), gpu.buffer(bytes + 2, count));
    let result = gpu.buffer(2 * bytes + 64, 4);
    gpu.run(&[sum(from, result)]);
    let expected = (0..count).step_by(4).fold(3u32, |sum, at| sum.wrapping_add(word(at)));
    assert_eq!(gpu.word(2 * bytes + 64), expected);
    for (kernel, of) in [(Kernel::Copy, (|word| word) as fn(u32) -> u32), (Kernel::Xor, |word| word ^ 3)] {
        gpu.run(&[two_uses(WorkKind::Dispatch, kernel, from, to)]);
        for at in (0..count).step_by(4) {
            assert_eq!(gpu.word(bytes + 2 + at), of(word(at)), "{kernel:?} at {at}");
        }
    }
}

/// Time advances however many commands there are, even if they move nothing.
#[test]
fn commands_of_no_duration_take_time_when_there_are_many() {
    let mut gpu = counted();
    let none = work(WorkKind::Dispatch, Kernel::None, 0, 0, &[]);
    gpu.submit(ENGINE, 1, &vec![none.clone(); 1000]);
    assert_eq!(gpu.interrupts.len(), 1, "a step's bytes of them take none");
    gpu.submit(ENGINE, 1, &vec![none; 10_000]);
    let mut moments = 0;
    while let Some(due) = gpu.miniport.next_deadline() {
        gpu.advance(due - gpu.now);
        moments += 1;
    }
    assert_eq!(gpu.interrupts.len(), 2);
    assert!(moments > 100 && gpu.now > 100_000, "{moments} moments, {} ns", gpu.now);
}

#[test]
fn commands_that_run_at_once_share_the_bandwidth_of_their_engine_and_engines_do_not() {
    let time_of = |copies: u64, engines: &[dxgkrnl::EngineId]| {
        let mut gpu = counted();
        let list: Vec<_> = (0..copies)
            .map(|at| copy(gpu.buffer(at * 2 * MIB, MIB), gpu.buffer(at * 2 * MIB + MIB, MIB), 0))
            .collect();
        for engine in engines {
            gpu.submit(*engine, 1, &list);
        }
        gpu.advance(1 << 40);
        assert_eq!(gpu.interrupts.len(), engines.len());
        gpu.moved.last().unwrap().0
    };
    let one = time_of(1, &[ENGINE]);
    assert_eq!(one, (MIB - CACHED_BYTES_PER_USE_MAX) / BYTES_PER_NS);
    let sixteen = time_of(16, &[ENGINE]);
    assert!(sixteen >= 16 * one, "{sixteen} ns, one takes {one}");
    assert!(sixteen <= 21 * one, "each moves a quarter more by its caches: {sixteen} ns, one takes {one}");
    assert_eq!(time_of(1, &[ENGINE, COPY_ENGINE]), one);
}

/// A copy of 16 MiB, a millisecond after its start.
fn midway() -> (Gpu, u64) {
    let mut gpu = counted();
    let list = [copy(gpu.buffer(0, 16 * MIB), gpu.buffer(16 * MIB, 16 * MIB), 0)];
    let id = gpu.submit(ENGINE, 1, &list);
    gpu.advance(16 * MIB / BYTES_PER_NS / 2);
    let bytes: u64 = gpu.moved.iter().map(|(_, moved)| moved.bytes()).sum();
    assert!((7 * MIB..9 * MIB).contains(&bytes), "{bytes} bytes after half of the time");
    (gpu, id)
}

fn touches_memory(moved: &(u64, DmaOp)) -> bool {
    moved.1.memory_refs().any(|memory| matches!(memory, MemoryRef::Memory { .. }))
}

#[test]
fn memory_that_is_unmapped_midway_faults_at_its_piece_and_nothing_behind_it_is_touched() {
    let (mut gpu, id) = midway();
    gpu.moved.clear();
    gpu.entry((16 + 12) * MIB / PAGE, 4 * MIB / PAGE, PageTableEntry::NoAccess);
    gpu.advance(1 << 30);
    let (engine, gpu_address, flags) = (ENGINE, GPU + 28 * MIB, PageFaultFlags::WRITE);
    let fault = Interrupt::DmaPageFaulted { engine, faulted_fence_id: id, gpu_address, flags };
    assert_eq!(gpu.interrupts, [fault]);
    let beyond = |memory| matches!(memory, MemoryRef::Memory { address, .. } if address >= CPU + 28 * MIB);
    assert!(!gpu.moved.iter().any(|(_, moved)| moved.memory_refs().any(beyond)));
    assert!(gpu.moved.iter().any(touches_memory), "it went on until then");
}

/// A command that is aborted, dropped, stopped or hung accesses nothing from then on; the engine runs other work.
#[test]
fn command_that_ends_midway_accesses_nothing_more() {
    type End = fn(&mut Gpu, u64);
    let ends: [(&str, End); 3] = [
        ("reset", |gpu, id| {
            let reset =
                gpu.with_callbacks(|miniport, now, callbacks| miniport.reset_engine(now, ENGINE, callbacks));
            assert_eq!(reset, Ok(id));
        }),
        ("its context ends", |gpu, id| {
            gpu.with_callbacks(|miniport, now, callbacks| {
                miniport.destroy_context(now, HwContext(1), Some((ENGINE, id)), callbacks);
            });
        }),
        ("stopped", |gpu, _| gpu.with_callbacks(|miniport, _, callbacks| miniport.stop_device(0, callbacks))),
    ];
    for (what, end) in ends {
        let (mut gpu, id) = midway();
        gpu.moved.clear();
        end(&mut gpu, id);
        gpu.advance(1 << 30);
        assert!(!gpu.moved.iter().any(touches_memory), "{what}");
        assert_eq!(
            (gpu.miniport.engine_state(ENGINE), gpu.interrupts.len()),
            (EngineState::Idle, 0),
            "{what}"
        );
    }
    let (mut gpu, _) = midway();
    gpu.moved.clear();
    gpu.miniport.hang_engine(ENGINE);
    gpu.advance(1 << 30);
    assert_eq!(gpu.moved, []);
    assert!(matches!(gpu.miniport.engine_state(ENGINE), EngineState::Hung { .. }));
}

#[test]
fn a_preemption_midway_comes_when_the_command_has_all_its_bytes() {
    let (mut gpu, _) = midway();
    gpu.with_callbacks(|miniport, now, callbacks| {
        miniport.preempt_command(now, ENGINE, 7, callbacks).unwrap()
    });
    gpu.advance(1 << 30);
    assert!(matches!(gpu.interrupts[..], [Interrupt::DmaCompleted { .. }, Interrupt::DmaPreempted { .. }]));
    let written = gpu.moved.iter().map(|(_, moved)| match moved {
        DmaOp::Copy { to: MemoryRef::Memory { .. }, bytes, .. } => *bytes,
        _ => 0,
    });
    assert_eq!(written.sum::<u64>(), 16 * MIB);
}

/// Saving and restoring the driver at each point in time does not change the moves.
#[test]
fn a_driver_that_is_saved_midway_goes_on_with_the_rest() {
    let moves = |restores: bool| {
        let mut gpu = counted();
        let [a, b, c] = [0, 8, 16].map(|at| gpu.buffer(at * MIB, 3 * MIB));
        let words = [0, 64].map(|at| gpu.buffer(32 * MIB + at, 4));
        gpu.submit(ENGINE, 1, &[copy(a, b, 0), sum(c, words[0]), full(), sum(b, words[1]), fill(c, 9, 0)]);
        while let Some(due) = gpu.miniport.next_deadline() {
            if restores {
                let state = gpu.miniport.save().unwrap();
                let mut restored = SimulatedMiniport::default();
                restored.start(&Config::default());
                restored.restore(&state).unwrap();
                gpu.miniport = restored;
            }
            gpu.advance(due - gpu.now);
        }
        assert_eq!(gpu.interrupts.len(), 1);
        gpu.moved
    };
    assert_eq!(moves(true), moves(false));
}

/// At a time when several engines have bytes to move, one `deadline` call moves a step's bytes; the next call moves the
/// rest.
#[test]
fn engines_with_much_to_move_at_one_time_do_not_all_move_it_at_once() {
    let mut gpu = counted();
    let list = [copy(gpu.buffer(0, 8 * MIB), gpu.buffer(8 * MIB, 8 * MIB), 0)];
    let engines = [0, 1, 2].map(|node| dxgkrnl::EngineId { adapter: 0, node });
    for engine in engines {
        let id = gpu.submit(engine, 1, &list);
        assert!(id > 0);
    }
    let due = gpu.miniport.next_deadline().unwrap();
    gpu.now = due;
    for _ in engines {
        gpu.moved.clear();
        gpu.with_callbacks(|miniport, now, callbacks| miniport.deadline(now, callbacks));
        let bytes: u64 = gpu.moved.iter().map(|(_, moved)| moved.bytes()).sum();
        assert!((MOVED_BYTES_PER_STEP..=MOMENT_MAX).contains(&bytes), "{bytes} bytes");
    }
    assert!(gpu.miniport.next_deadline() > Some(due));
}
