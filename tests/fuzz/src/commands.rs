//! Command buffers on the simulated engines: valid by construction, then damaged, beside preemption, resets, page table
//! updates and the ends of resources.

use arbitrary::{Result, Unstructured};
use d3dkmt::isa::{
    self, Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, BufferBarrier, FenceValue,
    Kernel, LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType, RangedBarrier,
    RangedFlags, ResourceDesc, ResourceFlags, ResourceKind, SubresourceRange, TextureBarrier, TextureFlags,
    Use, UseFlags, WorkKind,
};
use dxgkrnl::Config;
use dxgkrnl::ddi::{EngineId, HwContext, Miniport as _, PageFaultFlags, PageTableEntry};

// One process on one adapter: that of the driver's tests.
#[allow(dead_code)]
#[path = "../../../host/kmd/tests/lists/gpu.rs"]
mod gpu;
use gpu::{DEVICE, GPU, Gpu, PAGE};

const PAGES: u64 = 4;
const BUFFERS: u64 = 3;
/// Steps of the engines for one advance of time: an engine that works for ever stops here.
const DEADLINES_MAX: usize = 200;
const PACKETS_MAX: usize = 24;

fn flags_of(input: &mut Unstructured<'_>) -> Result<u32> {
    // One bit, two, or any.
    let (first, second) = (1u32 << input.int_in_range(0..=31)?, 1u32 << input.int_in_range(0..=31)?);
    Ok(match input.int_in_range(0..=7)? {
        0 => input.arbitrary()?,
        1 | 2 => 0,
        3 => first | second,
        _ => first,
    })
}

fn sync(input: &mut Unstructured<'_>) -> Result<BarrierSync> {
    flags_of(input).map(BarrierSync::from_bits_retain)
}

fn access(input: &mut Unstructured<'_>) -> Result<BarrierAccess> {
    flags_of(input).map(BarrierAccess::from_bits_retain)
}

fn resource(input: &mut Unstructured<'_>) -> Result<u32> {
    input.int_in_range(0..=7)
}

/// An address near a border of memory, or any.
fn address(input: &mut Unstructured<'_>) -> Result<u64> {
    let offset = i64::from(input.arbitrary::<i8>()?) * 8;
    Ok(match input.int_in_range(0..=4)? {
        0 => input.arbitrary()?,
        1 => GPU + PAGES * PAGE,
        _ => GPU + PAGE * input.int_in_range(0..=PAGES)?,
    }
    .wrapping_add_signed(offset))
}

/// A length or offset in a resource.
fn bytes(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.int_in_range(0..=5)? {
        0 => input.arbitrary()?,
        1 => isa::WHOLE,
        2 => 0,
        _ => u64::from(input.arbitrary::<u16>()?) & !3,
    })
}

fn barrier(input: &mut Unstructured<'_>) -> Result<Barrier> {
    let (sync_before, sync_after) = (sync(input)?, sync(input)?);
    Ok(Barrier { sync_before, sync_after, access_before: access(input)?, access_after: access(input)? })
}

fn subresources(input: &mut Unstructured<'_>) -> Result<SubresourceRange> {
    if input.arbitrary()? {
        return Ok(SubresourceRange::ALL);
    }
    let mut number = || input.int_in_range(0..=5u32);
    Ok(SubresourceRange {
        first_mip: number()?,
        mips: number()?,
        first_slice: number()?,
        slices: number()?,
        first_plane: number()?,
        planes: number()?,
    })
}

fn layout(input: &mut Unstructured<'_>) -> Result<BarrierLayout> {
    Ok(BarrierLayout(match input.int_in_range(0..=4)? {
        0 => input.arbitrary()?,
        _ => input.int_in_range(0..=32)?,
    }))
}

fn several<T>(
    input: &mut Unstructured<'_>,
    most: usize,
    one: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = input.int_in_range(0..=most)?;
    (0..count).map(|_| one(input)).collect()
}

fn group(input: &mut Unstructured<'_>) -> Result<BarrierGroup> {
    Ok(match input.int_in_range(0..=8)? {
        0 => BarrierGroup::Unknown { kind: 4 + input.arbitrary::<u32>()? % 9, barriers: input.arbitrary()? },
        1 => BarrierGroup::Ranged(several(input, 3, |input| {
            let (barrier, resource) = (barrier(input)?, resource(input)?);
            let flags = RangedFlags::from_bits_retain(flags_of(input)?);
            Ok(RangedBarrier { barrier, resource, flags, offset: bytes(input)?, bytes: bytes(input)? })
        })?),
        2..=4 => BarrierGroup::Texture(several(input, 3, |input| {
            let (barrier, layout_before, layout_after) = (barrier(input)?, layout(input)?, layout(input)?);
            let (resource, flags) = (resource(input)?, TextureFlags::from_bits_retain(flags_of(input)?));
            let subresources = subresources(input)?;
            Ok(TextureBarrier { barrier, layout_before, layout_after, resource, flags, subresources })
        })?),
        5 | 6 => BarrierGroup::Buffer(several(input, 3, |input| {
            let (barrier, resource) = (barrier(input)?, resource(input)?);
            Ok(BufferBarrier { barrier, resource, offset: bytes(input)?, bytes: bytes(input)? })
        })?),
        _ => BarrierGroup::Global(several(input, 3, barrier)?),
    })
}

fn legacy(input: &mut Unstructured<'_>) -> Result<LegacyBarrier> {
    let flags = LegacyFlags::from_bits_retain(flags_of(input)? % 4);
    let (one, other) = (resource(input)?, resource(input)?);
    Ok(match input.int_in_range(0..=3)? {
        0 => LegacyBarrier::Aliasing { flags, before: one, after: other },
        1 => LegacyBarrier::UnorderedAccess { flags, resource: one },
        _ => LegacyBarrier::Transition {
            flags,
            resource: one,
            subresource: if input.arbitrary()? { isa::ALL_SUBRESOURCES } else { other },
            before: LegacyState::from_bits_retain(flags_of(input)?),
            after: LegacyState::from_bits_retain(flags_of(input)?),
        },
    })
}

fn usage(input: &mut Unstructured<'_>) -> Result<Use> {
    let (number, access) = (resource(input)?, access(input)?);
    Ok(match input.int_in_range(0..=3)? {
        0 => Use {
            resource: number,
            access,
            first_subresource: input.int_in_range(0..=9)?,
            count: input.int_in_range(0..=9)?,
            offset: bytes(input)?,
            bytes: bytes(input)?,
            flags: UseFlags::from_bits_retain(flags_of(input)?),
        },
        1 => Use::range(number, access, bytes(input)?, bytes(input)?),
        _ => Use::whole(number, access),
    })
}

fn fence(input: &mut Unstructured<'_>) -> Result<FenceValue> {
    Ok(FenceValue { gpu_address: address(input)?, value: input.int_in_range(0..=4)? })
}

fn work(input: &mut Unstructured<'_>) -> Result<Packet> {
    Ok(Packet::Work {
        kind: *input.choose(WorkKind::ALL)?,
        kernel: *input.choose(Kernel::ALL)?,
        operand: input.arbitrary()?,
        duration_ns: u64::from(input.arbitrary::<u16>()?),
        uses: several(input, 4, usage)?,
    })
}

fn packet(input: &mut Unstructured<'_>) -> Result<Packet> {
    Ok(match input.int_in_range(0..=20)? {
        0 => Packet::FenceWrite { gpu_address: address(input)?, value: input.arbitrary()? },
        1 => Packet::Busy { duration_ns: u64::from(input.arbitrary::<u32>()?) },
        2 => Packet::FenceWait { gpu_address: address(input)?, value: input.int_in_range(0..=3)? },
        3 => Packet::MarkerIn { gpu_address: address(input)?, value: input.arbitrary()? },
        4 => Packet::MarkerOut { gpu_address: address(input)?, value: input.arbitrary()? },
        5 => Packet::FenceRead { gpu_address: address(input)?, destination: address(input)? },
        6 => Packet::BeginList {
            queue: *input.choose(&QueueType::ALL)?,
            flags: ListFlags::from_bits_retain(flags_of(input)?),
            name: "n".repeat(input.int_in_range(0..=20)?),
        },
        7 => Packet::Timestamp { gpu_address: address(input)? },
        8 => Packet::AssertResourceAccess {
            resource: resource(input)?,
            subresource: input.arbitrary()?,
            access: access(input)?,
        },
        9 => Packet::AssertTextureLayout {
            resource: resource(input)?,
            subresource: input.int_in_range(0..=9)?,
            layout: layout(input)?,
        },
        10 => Packet::SignalBarrier { fence: fence(input)?, groups: several(input, 2, group)? },
        11 => Packet::WaitBarrier { fences: several(input, 2, fence)?, groups: several(input, 2, group)? },
        12 => Packet::LegacyBarrier { barriers: several(input, 3, legacy)? },
        13..=15 => Packet::Barrier { groups: several(input, 3, group)? },
        16 if input.ratio(1, 8)? => Packet::Hang,
        _ => work(input)?,
    })
}

/// Damages a buffer: a byte, a word, a cut, bytes behind it.
fn damage(input: &mut Unstructured<'_>, commands: &mut Vec<u8>) -> Result<()> {
    let at = usize::from(input.arbitrary::<u16>()?) % commands.len().max(1);
    match input.int_in_range(0..=4)? {
        0 => commands.truncate(at),
        1 => commands.extend_from_slice(input.arbitrary()?),
        2 => {
            let word = *input.choose(&[0, 1, 8, 0x7FFF_FFFF, u32::MAX, u32::MAX - 7])?;
            let to = commands.get_mut(at & !3..).and_then(|rest| rest.first_chunk_mut::<4>());
            to.into_iter().for_each(|to| *to = word.to_le_bytes());
        }
        _ => {
            let changed = input.arbitrary::<u8>()?;
            commands.get_mut(at).into_iter().for_each(|byte| *byte ^= changed);
        }
    }
    // The length in the header is right in most buffers: a wrong one is refused at once.
    if commands.len() >= 8 && input.ratio(7, 8)? {
        let length = commands.len() as u32;
        commands[4..8].copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

fn describe(input: &mut Unstructured<'_>, number: u64) -> Result<ResourceDesc> {
    let all = ResourceFlags::ALLOW_UNORDERED_ACCESS;
    let at = GPU + number * PAGE / 2;
    if number < BUFFERS {
        return Ok(ResourceDesc { flags: all, ..ResourceDesc::buffer("buffer", at, 0x1000) });
    }
    let mut size = || input.int_in_range(1..=8u32);
    Ok(ResourceDesc {
        kind: ResourceKind::Texture2D,
        width: size()?,
        height: size()?,
        depth: 1,
        mips: size()? % 4 + 1,
        array_size: size()? % 3 + 1,
        planes: size()? % 2 + 1,
        texel_bytes: 4,
        flags: all | ResourceFlags::from_bits_retain(u32::from(input.arbitrary::<u8>()?)),
        initial_layout: layout(input)?,
        ..ResourceDesc::buffer("texture", at, 0x2000)
    })
}

/// Advances time, a limited number of deadlines far.
fn advance(gpu: &mut Gpu, nanos: u64) {
    let end = gpu.now.saturating_add(nanos);
    for _ in 0..DEADLINES_MAX {
        let Some(due) = gpu.miniport.next_deadline().filter(|due| *due <= end) else { break };
        gpu.now = gpu.now.max(due);
        gpu.with_callbacks(|miniport, now, callbacks| miniport.deadline(now, callbacks));
    }
    gpu.now = end;
}

fn submit(input: &mut Unstructured<'_>, gpu: &mut Gpu, number: u64) -> Result<()> {
    let packets = several(input, PACKETS_MAX, packet)?;
    let mut commands = isa::encode(&packets);
    for _ in 0..input.int_in_range(0..=9u32)?.saturating_sub(6) {
        damage(input, &mut commands)?;
    }
    let engine = EngineId { adapter: 0, node: input.int_in_range(0..=2)? };
    let context = input.int_in_range(1..=2)?;
    // The kernel submits no buffer that the driver has refused.
    match gpu.miniport.validate(0, &commands) {
        Ok(()) => gpu.resubmit(engine, context, number, None, commands),
        Err(bad) => assert!(!bad.0.is_empty()),
    }
    Ok(())
}

fn step(input: &mut Unstructured<'_>, gpu: &mut Gpu, number: u64) -> Result<()> {
    let engine = EngineId { adapter: 0, node: input.int_in_range(0..=2)? };
    match input.int_in_range(0..=11)? {
        0 => gpu.with_callbacks(|miniport, now, callbacks| {
            let _ = miniport.preempt_command(now, engine, number, callbacks);
        }),
        1 => gpu.with_callbacks(|miniport, now, callbacks| {
            let _ = miniport.reset_engine(now, engine, callbacks);
        }),
        2 => {
            let (page, writable) = (input.int_in_range(0..=PAGES - 1)?, input.arbitrary()?);
            gpu.map(page, 1, writable);
        }
        3 => gpu.entry(input.int_in_range(0..=PAGES - 1)?, 1, PageTableEntry::NoAccess),
        4 => {
            let mut data =
                vec![*input.choose(&[5, 6, 7, 8, 10])?, 0, 0, 0, input.int_in_range(0..=7)?, 0, 0, 0];
            data.extend_from_slice(input.arbitrary()?);
            gpu.escape(Some(DEVICE), &mut data);
        }
        5 => gpu.with_callbacks(|miniport, now, callbacks| {
            miniport.destroy_context(now, HwContext(1), Some((engine, number - 1)), callbacks);
        }),
        6 => {
            let at = address(input)?;
            gpu.with_callbacks(|miniport, now, callbacks| {
                miniport.page_fault(now, engine, at, PageFaultFlags::empty(), callbacks);
            });
        }
        7..=9 => submit(input, gpu, number)?,
        _ => advance(gpu, 1 << input.int_in_range(0..=40)?),
    }
    Ok(())
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut config = Config::default();
    config.adapters[0].hazards = input.arbitrary()?;
    let overlap_seed = u64::from(input.arbitrary::<u8>()?);
    config.adapters[0].nodes.iter_mut().for_each(|node| node.overlap_seed = overlap_seed);
    let mut gpu = Gpu::with(PAGES, &config);
    // The debug layer, at one of its levels.
    let mut data = [7u32.to_le_bytes(), input.int_in_range(0..=3u32)?.to_le_bytes()].concat();
    gpu.escape(Some(DEVICE), &mut data);
    for number in 0..BUFFERS + 2 {
        // A description that is refused leaves its number unused.
        let _ = gpu.try_create(&describe(input, number)?.encode());
    }
    let mut number = 0;
    while !input.is_empty() {
        number += 1;
        step(input, &mut gpu, number)?;
    }
    advance(&mut gpu, 1 << 40);
    Ok(())
}

/// One input: what one process does on one adapter.
pub fn commands(data: &[u8]) {
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data));
}
