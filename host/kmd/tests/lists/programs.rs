//! Random lists against an interpreter that runs one command after the other.

use d3dkmt::isa::{
    BarrierAccess as A, BarrierGroup, BarrierLayout, BarrierSync as S, Kernel, Packet, RangedBarrier,
    RangedFlags, SubresourceRange, TextureBarrier, TextureFlags, Use, UseFlags, WorkKind,
};
use d3dkmt::random::Random;
use dxgkrnl::ddi::{EngineState, Interrupt, Miniport, PageTableEntry};

use crate::gpu::{ENGINE, Gpu, PAGE, full, global, on_buffer, words, work};

const BUFFERS: u64 = 4;
const BYTES: u64 = 40;

/// A random command, with the access types that its kind has for reading and for writing.
const KINDS: [(WorkKind, A, A); 7] = [
    (WorkKind::Copy, A::COPY_SOURCE, A::COPY_DEST),
    (WorkKind::Dispatch, A::SHADER_RESOURCE, A::UNORDERED_ACCESS),
    (WorkKind::Draw, A::SHADER_RESOURCE, A::RENDER_TARGET),
    (WorkKind::Draw, A::VERTEX_BUFFER, A::STREAM_OUTPUT),
    (WorkKind::Resolve, A::RESOLVE_SOURCE, A::RESOLVE_DEST),
    (WorkKind::BuildRtas, A::RTAS_READ, A::RTAS_WRITE),
    (WorkKind::ClearUnorderedAccess, A::UNORDERED_ACCESS, A::UNORDERED_ACCESS),
];

fn some_range(chance: &mut Random, resource: u32, access: A) -> Use {
    let offset = chance.below(BYTES);
    Use::range(resource, access, offset, chance.below(BYTES - offset + 1))
}

fn command(chance: &mut Random) -> Packet {
    let (kind, reads, writes) = chance.one_of(&KINDS);
    let mut uses = Vec::new();
    let only_reads = |item: Use| match reads.writes() {
        true => Use { flags: UseFlags::ONLY_READS, ..item },
        false => item,
    };
    for _ in 0..chance.below(3) {
        let resource = 1 + chance.below(BUFFERS) as u32;
        uses.push(only_reads(some_range(chance, resource, reads)));
    }
    for _ in 0..1 + chance.below(2) {
        let resource = 1 + chance.below(BUFFERS) as u32;
        uses.push(some_range(chance, resource, writes));
    }
    let kernel = chance.one_of(Kernel::ALL);
    work(kind, kernel, chance.number() as u32, chance.below(50), &uses)
}

/// Applies one command to the memory. Sources are read before anything is written.
fn interpret(memory: &mut [u8], packet: &Packet) {
    let Packet::Work { kernel, operand, uses, .. } = packet else { return };
    let bytes_of = |item: &Use| {
        let begin = ((item.resource as u64 - 1) * 64 + item.offset) as usize;
        begin..begin + item.bytes as usize
    };
    let read = |memory: &[u8], item: &Use| -> Vec<u32> {
        memory[bytes_of(item)]
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    };
    let source = uses.iter().find(|item| item.reads());
    let targets: Vec<&Use> = uses.iter().filter(|item| item.writes()).collect();
    let sources: Vec<Vec<u32>> =
        targets.iter().map(|target| read(memory, source.unwrap_or(target))).collect();
    for (target, source) in targets.into_iter().zip(sources) {
        let room = read(memory, target).len();
        let result: Vec<u32> = match kernel {
            Kernel::None => Vec::new(),
            Kernel::Fill => vec![*operand; room],
            Kernel::Copy => source,
            Kernel::Add => source.iter().map(|word| word.wrapping_add(*operand)).collect(),
            Kernel::Xor => source.iter().map(|word| word ^ operand).collect(),
            Kernel::Sum => vec![source.iter().fold(*operand, |sum, word| sum.wrapping_add(*word))],
        };
        let to = &mut memory[bytes_of(target)];
        for (to, word) in to.chunks_exact_mut(4).zip(result) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn gpu(seed: u64) -> (Gpu, Random) {
    let mut gpu = Gpu::with_seed(2, seed % 3 * seed);
    let mut chance = Random::new(seed);
    for number in 0..BUFFERS {
        gpu.buffer(number * 64, BYTES);
    }
    gpu.memory.0[..512].iter_mut().for_each(|byte| *byte = chance.number() as u8);
    (gpu, chance)
}

#[test]
fn with_a_full_barrier_between_all_commands_the_bytes_are_those_of_the_order_of_the_list() {
    for seed in 0..10_000 {
        let (mut gpu, mut chance) = gpu(seed);
        let mut expected = gpu.memory.0.clone();
        let (mut packets, mut commands) = (Vec::new(), Vec::new());
        for _ in 0..1 + chance.below(8) {
            let command = command(&mut chance);
            interpret(&mut expected, &command);
            packets.extend([command.clone(), full()]);
            commands.push(command);
        }
        gpu.run(&packets);
        assert!(gpu.memory.0 == expected, "seed {seed}: {commands:#?}");
    }
}

fn barrier(chance: &mut Random) -> Packet {
    let syncs = [S::ALL, S::NONE, S::COPY, S::COMPUTE_SHADING, S::DRAW, S::SPLIT, S::RENDER_TARGET, S::all()];
    let accesses = [A::COMMON, A::NO_ACCESS, A::COPY_DEST, A::UNORDERED_ACCESS, A::RENDER_TARGET, A::all()];
    let sync = (chance.one_of(&syncs), chance.one_of(&syncs));
    let barrier = words(sync, (chance.one_of(&accesses), chance.one_of(&accesses)));
    let resource = chance.below(BUFFERS + 2) as u32;
    match chance.below(4) {
        0 => global(barrier),
        1 => on_buffer(resource, barrier),
        2 => {
            let (offset, bytes) = (chance.number() >> chance.below(64), chance.number() >> chance.below(64));
            let flags = RangedFlags::from_bits_retain(chance.below(8) as u32);
            let one = RangedBarrier { barrier, resource, flags, offset, bytes };
            Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![one; 3])] }
        }
        _ => {
            let number = |chance: &mut Random| (chance.number() >> chance.below(64)) as u32;
            let one = TextureBarrier {
                barrier,
                layout_before: BarrierLayout(number(chance)),
                layout_after: BarrierLayout(number(chance)),
                resource,
                flags: TextureFlags::from_bits_retain(chance.below(2) as u32),
                subresources: SubresourceRange {
                    first_mip: number(chance),
                    mips: number(chance),
                    first_slice: number(chance),
                    slices: number(chance),
                    first_plane: number(chance),
                    planes: number(chance),
                },
            };
            Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![one])] }
        }
    }
}

/// Commands that may be out of bounds, meaningless barriers, memory that is mapped and unmapped: each submission ends
/// and leaves nothing behind.
#[test]
fn any_list_ends_and_leaves_nothing_behind() {
    let mut outcomes = [0; 3];
    for seed in 0..3000 {
        let (mut gpu, mut chance) = gpu(seed);
        let mut packets = Vec::new();
        for _ in 0..chance.below(30) {
            packets.push(match chance.below(20) {
                0..8 => command(&mut chance),
                8..16 => barrier(&mut chance),
                16 => Packet::FenceWrite { gpu_address: 0x1000, value: 1 },
                17 => Packet::Timestamp { gpu_address: crate::gpu::GPU + chance.below(2 * PAGE) },
                18 => Packet::MarkerIn { gpu_address: 0x1000, value: 2 },
                _ if chance.below(20) == 0 => {
                    let bad = Use { bytes: chance.number(), ..some_range(&mut chance, 1, A::COPY_DEST) };
                    work(WorkKind::Copy, Kernel::Fill, 0, 3, &[bad])
                }
                _ => Packet::MarkerOut { gpu_address: 0x1000, value: 3 },
            });
        }
        gpu.submit(ENGINE, 1, &packets);
        for _ in 0..chance.below(4) {
            gpu.advance(chance.below(40));
            match chance.below(3) {
                0 => gpu.entry(chance.below(2), 1, PageTableEntry::Zero),
                1 if chance.below(4) == 0 => gpu.entry(chance.below(2), 1, PageTableEntry::NoAccess),
                _ => gpu.map(0, 2, true),
            }
        }
        gpu.advance(1 << 20);
        assert_eq!(gpu.miniport.engine_state(ENGINE), EngineState::Idle, "seed {seed}: {packets:#?}");
        assert_eq!(gpu.dma_executor.staging_buffers(), 0);
        let kind = match gpu.interrupts[..] {
            [Interrupt::DmaCompleted { .. }] => 0,
            [Interrupt::DmaPageFaulted { .. }] => 1,
            [Interrupt::DmaFaulted { .. }] => 2,
            ref other => panic!("seed {seed}: {other:?}"),
        };
        outcomes[kind] += 1;
    }
    assert!(outcomes[0] > 1000 && outcomes[1] > 100, "{outcomes:?}");
}
