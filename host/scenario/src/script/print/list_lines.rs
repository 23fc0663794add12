//! Writes resources, command lists and the debug layer's statements.

use std::fmt::Write as _;

use bitflags::Flags;
use d3dkmt::isa::{
    ALL_SUBRESOURCES, Barrier, BarrierAccess, BarrierGroup, BarrierLayout, HeapType, Kernel, LegacyBarrier,
    LegacyState, Packet, ResourceDesc, ResourceKind, SubresourceRange, Use, WHOLE, WorkKind,
};

use super::{Printer, quoted};
use crate::program::{HandleRef, ListCommand, Operation, WantedMessage, WriteMode};
use crate::script::words::{
    DEBUG_LEVELS, KERNELS, QUEUE_TYPES, RESOURCE_KINDS, WORK_KINDS, default_kernel, named_or_number,
    write_duration, write_flag_names, write_number,
};

/// Writes ` 0..16`, or nothing for all words.
pub(super) fn word_range(first: u64, count: Option<u64>) -> String {
    count.map_or_else(String::new, |count| format!(" {first}..{}", first + count))
}

/// Writes `A|B`, and bits without a name as a number.
fn names<F: Flags<Bits = u32>>(none: &str, flags: F) -> String {
    let (mut rest, mut words) = (flags.bits(), Vec::new());
    for (name, flag) in F::all().iter_names().filter(|(_, flag)| flag.bits().is_power_of_two()) {
        if rest & flag.bits() != 0 {
            words.push(name.to_owned());
            rest &= !flag.bits();
        }
    }
    if rest != 0 {
        words.push(format!("{rest:#x}"));
    }
    if words.is_empty() { none.into() } else { words.join("|") }
}

fn layouts(before: BarrierLayout, after: BarrierLayout) -> String {
    format!(" {before:?} -> {after:?}")
}

fn words(barrier: &Barrier) -> String {
    let (before, after) = (names("NONE", barrier.sync_before), names("NONE", barrier.sync_after));
    let access = |access: BarrierAccess| names("COMMON", access);
    format!("{before} -> {after} {} -> {}", access(barrier.access_before), access(barrier.access_after))
}

fn sub(subresource: u32) -> String {
    if subresource == ALL_SUBRESOURCES { String::new() } else { format!(" sub={subresource}") }
}

fn number(key: &str, number: u64, plain: u64) -> String {
    if number == plain { String::new() } else { format!(" {key}={}", write_number(number)) }
}

fn subresources(range: &SubresourceRange) -> String {
    if range.mips == 0 {
        return sub(range.first_mip);
    }
    let part = |key: &str, first: u32, count: u32| match (first, count) {
        (0, 1) if key != "mips" => String::new(),
        _ => format!(" {key}={first}..{}", u64::from(first) + u64::from(count)),
    };
    part("mips", range.first_mip, range.mips)
        + &part("slices", range.first_slice, range.slices)
        + &part("planes", range.first_plane, range.planes)
}

impl Printer<'_> {
    /// Writes an operation on resources, lists or the debug layer.
    pub(super) fn of_lists(&self, operation: &Operation) -> Option<String> {
        Some(match operation {
            Operation::CreateResource { device, at, desc } => {
                format!("resource {} {}", self.handle(*device), self.resource(*at, desc))
            }
            Operation::DestroyResource { device, resource } => {
                format!("destroy_resource {} {}", self.handle(*device), self.program.name(*resource))
            }
            Operation::DescribeFence { device, fence, flags: of } => {
                let others = of.difference(d3dkmt::list_escape::FenceFlags::all()).bits();
                let others = if others == 0 { String::new() } else { format!(" {others:#x}") };
                let of = write_flag_names(*of);
                format!("describe_fence {} {}{of}{others}", self.handle(*device), self.handle(*fence))
            }
            Operation::SetDebug { device, level } => {
                format!("debug {} {}", self.handle(*device), named_or_number(&DEBUG_LEVELS, *level))
            }
            Operation::ReadMessages { device } => format!("debug_messages {}", self.handle(*device)),
            Operation::Store { allocation, first, count, word } => {
                format!(
                    "store {} words{} = {word}",
                    self.program.name(*allocation),
                    word_range(*first, *count)
                )
            }
            Operation::NewList { queue, flags, label } => {
                let named = QUEUE_TYPES.iter().find(|(_, known)| *known == (*queue, *flags));
                let label = label.as_ref().map(|label| format!(" {}", quoted(label))).unwrap_or_default();
                format!("list {}{label}", named.map_or("DIRECT", |(name, _)| name))
            }
            _ => return None,
        })
    }

    fn resource(&self, at: crate::program::Address, desc: &ResourceDesc) -> String {
        let kind = RESOURCE_KINDS.iter().find(|(_, kind)| *kind == desc.kind).map_or("", |(name, _)| name);
        let mut text = format!("{kind} at={}", self.address(at));
        text += &number("offset", desc.gpu_address, 0);
        text += &number("bytes", desc.bytes, 0);
        let is_buffer = desc.kind == ResourceKind::Buffer;
        for (key, value, plain) in [
            ("width", desc.width, 1),
            ("height", desc.height, 1),
            ("depth", desc.depth, 1),
            ("mips", desc.mips, 1),
            ("slices", desc.array_size, 1),
            ("planes", desc.planes, 1),
            ("texel", desc.texel_bytes, if is_buffer { 1 } else { 4 }),
        ] {
            text += &number(key, value.into(), plain);
        }
        let plain = if is_buffer { BarrierLayout::UNDEFINED } else { BarrierLayout::COMMON };
        if desc.initial_layout != plain {
            let _ = write!(text, " layout={:?}", desc.initial_layout);
        }
        if desc.initial_state != LegacyState::COMMON {
            // In a race `|` separates columns.
            let _ = match desc.initial_state.bits() {
                one if one.is_power_of_two() => {
                    write!(text, " state={}", names("COMMON", desc.initial_state))
                }
                several => write!(text, " state={several:#x}"),
            };
        }
        text += match desc.heap {
            HeapType::Default => "",
            HeapType::Upload => " upload",
            HeapType::Readback => " readback",
        };
        text += &write_flag_names(desc.flags);
        if !desc.name.as_ref().is_empty() {
            let _ = write!(text, " name={}", quoted(desc.name.as_ref()));
        }
        text
    }

    pub(super) fn wanted_message(&self, wanted: &WantedMessage) -> String {
        let mut text = format!("{} message R-{:03}", self.program.name(wanted.messages), wanted.rule);
        for (key, value) in [("list", wanted.list), ("command", wanted.command), ("barrier", wanted.barrier)]
        {
            if let Some(value) = value {
                let _ = write!(text, " {key}={value}");
            }
        }
        if let Some(resource) = wanted.resource {
            let _ = write!(text, " resource={}", self.program.name(resource));
        }
        if let Some(words) = &wanted.text {
            let _ = write!(text, " {}", quoted(words));
        }
        text
    }

    /// Writes a line of a list, after its name.
    pub(super) fn list_command(&self, command: &ListCommand) -> String {
        let named = |position: u64| position.checked_sub(1).and_then(|at| command.names.get(at as usize));
        let name = |position: u64| named(position).map_or_else(|| "null".into(), |name| self.handle(*name));
        let resource = |number: u32| match named(number.into()) {
            Some(HandleRef::Raw(number)) => number.to_string(),
            _ => name(number.into()),
        };
        match &command.packet {
            Packet::Timestamp { gpu_address } => {
                format!("timestamp {}{}", name(1), number("offset", *gpu_address, 0))
            }
            Packet::FenceRead { destination, .. } => {
                format!("read_fence {} {}{}", name(1), name(2), number("offset", *destination, 0))
            }
            packet => write_packet(packet, &resource, &name),
        }
    }
}

/// Writes a packet as a line of a command list, with the names of resources and fences.
pub fn write_packet(
    packet: &Packet,
    resource: &dyn Fn(u32) -> String,
    fence: &dyn Fn(u64) -> String,
) -> String {
    match packet {
        Packet::Work { kind, kernel, operand, duration_ns, uses } => {
            let text = work(*kind, *kernel, *operand);
            let uses: String = uses.iter().map(|one| use_of(one, &resource(one.resource))).collect();
            let time = match duration_ns {
                1000 => String::new(),
                nanos => format!(" time={}", write_duration(*nanos)),
            };
            format!("{text}{uses}{time}")
        }
        Packet::Barrier { groups } => match &groups[..] {
            [BarrierGroup::Ranged(all)] if all.len() == 1 => ranged(&all[0], resource),
            groups => format!("barrier{}", barriers(groups, resource)),
        },
        Packet::LegacyBarrier { barriers } => {
            let all: Vec<String> = barriers.iter().map(|one| legacy(one, resource)).collect();
            all.join(", ")
        }
        Packet::SignalBarrier { fence: one, groups } => {
            let (name, value) = (fence(one.gpu_address), write_number(one.value));
            format!("signal_barrier {name}={value}{}", barriers(groups, resource))
        }
        Packet::WaitBarrier { fences, groups } => {
            let one = |one: &d3dkmt::isa::FenceValue| {
                format!(" {}>={}", fence(one.gpu_address), write_number(one.value))
            };
            let fences: String = fences.iter().map(one).collect();
            format!("wait_barrier{fences}{}", barriers(groups, resource))
        }
        Packet::Timestamp { gpu_address } => format!("timestamp {}", fence(*gpu_address)),
        Packet::FenceRead { gpu_address, destination } => {
            format!("read_fence {} {destination:#x}", fence(*gpu_address))
        }
        Packet::AssertResourceAccess { resource: one, subresource, access: wanted } => {
            format!("assert_access {} {}{}", resource(*one), names("COMMON", *wanted), sub(*subresource))
        }
        Packet::AssertTextureLayout { resource: one, subresource, layout } => {
            format!("assert_layout {} {layout:?}{}", resource(*one), sub(*subresource))
        }
        Packet::FenceWrite { gpu_address, value } => write(WriteMode::Default, fence(*gpu_address), *value),
        Packet::MarkerIn { gpu_address, value } => write(WriteMode::MarkerIn, fence(*gpu_address), *value),
        Packet::MarkerOut { gpu_address, value } => write(WriteMode::MarkerOut, fence(*gpu_address), *value),
        Packet::FenceWait { gpu_address, value } => {
            format!("wait {}>={}", fence(*gpu_address), write_number(*value))
        }
        Packet::Busy { duration_ns } => format!("busy({})", write_duration(*duration_ns)),
        Packet::Hang => "hang".into(),
        Packet::BeginList { queue, flags, name } => {
            let named = QUEUE_TYPES.iter().find(|(_, known)| *known == (*queue, *flags));
            format!("list {} {}", named.map_or("DIRECT", |(name, _)| name), quoted(name))
        }
    }
}

/// Writes a barrier of a resource, or of none, as in a line of a list.
pub fn write_barrier(barrier: &Barrier, resource: &str) -> String {
    let space = if resource.is_empty() { "" } else { " " };
    format!("barrier{space}{resource} {}", words(barrier))
}

fn write(mode: WriteMode, fence: String, value: u64) -> String {
    format!("{}({fence}, {})", mode.name(), write_number(value))
}

fn work(kind: WorkKind, kernel: Kernel, operand: u32) -> String {
    let mut text: String =
        WORK_KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name).into();
    let named = KERNELS.iter().find(|(_, known)| *known == kernel).map_or("", |(name, _)| name);
    match kernel {
        Kernel::None | Kernel::Copy => {
            if kernel != default_kernel(kind) {
                let _ = write!(text, " {named}");
            }
            text += &number("root", operand.into(), 0);
        }
        Kernel::Fill | Kernel::Add | Kernel::Xor | Kernel::Sum => _ = write!(text, " {named}={operand}"),
    }
    text
}

fn use_of(item: &Use, resource: &str) -> String {
    let mut options = Vec::new();
    let whole = Use::whole(item.resource, item.access);
    if item.offset != 0 {
        options.push(format!("offset={}", item.offset));
    }
    if item.bytes != WHOLE {
        options.push(format!("bytes={}", item.bytes));
    }
    let is_part = item.offset != 0 || item.bytes != WHOLE;
    if item.first_subresource != 0 || (item.count == 1 && !is_part) {
        options.push(format!("sub={}", item.first_subresource));
    }
    let implied = if options.is_empty() { whole.count } else { 1 };
    if item.count != implied {
        options.push(format!("count={}", item.count));
    }
    options.extend(item.flags.iter_names().map(|(name, _)| name.to_owned()));
    let options = if options.is_empty() { String::new() } else { format!("({})", options.join(" ")) };
    let access = match item.access.iter_names().next() {
        Some((name, _)) => name.to_owned(),
        None if item.access == BarrierAccess::COMMON => "COMMON".into(),
        None => format!("{:#x}", item.access.bits()),
    };
    format!(" {access}={resource}{options}")
}

fn barriers(groups: &[BarrierGroup], resource: &dyn Fn(u32) -> String) -> String {
    let of_group = |group: &BarrierGroup| -> Vec<String> {
        match group {
            BarrierGroup::Global(all) => all.iter().map(words).collect(),
            BarrierGroup::Buffer(all) => {
                let text_of = |barrier: &d3dkmt::isa::BufferBarrier| {
                    let range = number("offset", barrier.offset, 0) + &number("bytes", barrier.bytes, WHOLE);
                    format!("{} {}{range}", resource(barrier.resource), words(&barrier.barrier))
                };
                all.iter().map(text_of).collect()
            }
            BarrierGroup::Texture(all) => {
                let text_of = |barrier: &d3dkmt::isa::TextureBarrier| {
                    let of = write_flag_names(barrier.flags);
                    let layouts = layouts(barrier.layout_before, barrier.layout_after);
                    let (resource, words) = (resource(barrier.resource), words(&barrier.barrier));
                    format!("{resource} {words}{layouts}{of}{}", subresources(&barrier.subresources))
                };
                all.iter().map(text_of).collect()
            }
            BarrierGroup::Ranged(_) | BarrierGroup::Unknown { .. } => Vec::new(),
        }
    };
    let all: Vec<String> = groups.iter().flat_map(of_group).collect();
    if all.is_empty() { String::new() } else { format!(" {}", all.join(", ")) }
}

fn ranged(barrier: &d3dkmt::isa::RangedBarrier, resource: &dyn Fn(u32) -> String) -> String {
    let of = write_flag_names(barrier.flags);
    let range = number("offset", barrier.offset, 0) + &number("bytes", barrier.bytes, WHOLE);
    format!("ranged {} {}{of}{range}", resource(barrier.resource), words(&barrier.barrier))
}

fn legacy(one: &LegacyBarrier, resource: &dyn Fn(u32) -> String) -> String {
    match one {
        LegacyBarrier::Transition { flags: of, resource: one, subresource, before, after } => {
            let (one, of, part) = (resource(*one), write_flag_names(*of), sub(*subresource));
            format!("transition {one} {} -> {}{of}{part}", names("COMMON", *before), names("COMMON", *after))
        }
        LegacyBarrier::Aliasing { before, after, .. } => {
            format!("aliasing {} {}", resource(*before), resource(*after))
        }
        LegacyBarrier::UnorderedAccess { resource: one, .. } => format!("uav {}", resource(*one)),
    }
}
