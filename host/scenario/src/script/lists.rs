//! Parses resources, lines of command lists, the debug layer's statements, and words of memory.

use bitflags::Flags;
use d3dkmt::isa::{
    ALL_SUBRESOURCES, Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, BufferBarrier,
    FenceValue, HeapType, Kernel, LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType,
    RangedBarrier, RangedFlags, ResourceDesc, ResourceFlags, ResourceKind, ResourceName, SubresourceRange,
    TextureBarrier, TextureFlags, Use, UseFlags, WHOLE, WorkKind,
};
use d3dkmt::list_escape::FenceFlags;

use crate::program::{Address, Binding, HandleRef, Kind, ListCommand, Operation, WantedMessage};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::names::Names;
use crate::script::operands::{address, handle, value32, value64};
use crate::script::token::{Token, TokenKind};
use crate::script::words::{
    self, DEBUG_LEVELS, QUEUE_TYPES, RESOURCE_KINDS, WORK_KINDS, default_kernel, flag_names,
};

const RESOURCE_OPTIONS: &str =
    "at offset bytes width height depth mips slices planes texel layout state name upload readback flags";
/// Commands of a list that do no work.
pub(crate) const OTHERS: [&str; 11] = [
    "barrier",
    "ranged",
    "transition",
    "aliasing",
    "uav",
    "signal_barrier",
    "wait_barrier",
    "timestamp",
    "read_fence",
    "assert_access",
    "assert_layout",
];

/// Parses the operands of a verb about lists; `None` for another verb.
pub(super) fn operation(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    let device = |cursor: &mut Cursor<'_>| handle(names, cursor, Kind::Device);
    Ok(Some(match verb {
        "resource" => resource(names, cursor)?,
        "destroy_resource" => {
            let device = device(cursor)?;
            let token = cursor.atom("the name of a resource")?;
            let resource = names.binding(token, "a resource", |kind| kind == Kind::Resource)?;
            Operation::DestroyResource { device, resource }
        }
        "describe_fence" => {
            let (device, fence) = (device(cursor)?, handle(names, cursor, Kind::Object)?);
            let mut flags = FenceFlags::empty();
            while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
                cursor.next();
                if let Some(bits) = words::number(&token.text).and_then(|bits| u32::try_from(bits).ok()) {
                    flags |= FenceFlags::from_bits_retain(bits);
                    continue;
                }
                flags |= FenceFlags::from_name(&token.text)
                    .ok_or_else(|| unknown(token, "a flag of a fence", flag_names::<FenceFlags>()))?;
            }
            Operation::DescribeFence { device, fence, flags }
        }
        "debug" => {
            let device = device(cursor)?;
            Operation::SetDebug { device, level: cursor.choice("a level", &DEBUG_LEVELS)? }
        }
        "debug_messages" => Operation::ReadMessages { device: device(cursor)? },
        "store" => {
            let token = cursor.atom("the name of an allocation")?;
            let allocation = names.binding(token, "an allocation", |kind| kind == Kind::Allocation)?;
            cursor.word("words")?;
            let (first, count) = word_range(cursor)?;
            Operation::Store { allocation, first, count, word: value32(cursor, "a word of 32 bits")? }
        }
        "list" => {
            let queue = match cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
                Some(_) => cursor.choice("a type of command list", &QUEUE_TYPES)?,
                None => (QueueType::Direct, ListFlags::empty()),
            };
            let label = match cursor.peek().filter(|token| token.kind == TokenKind::Text) {
                Some(_) => Some(cursor.text("its name")?.text.clone()),
                None => None,
            };
            Operation::NewList { queue: queue.0, flags: queue.1, label }
        }
        _ => return Ok(None),
    }))
}

/// Parses `[FIRST..END]`, in words of 32 bits.
pub(super) fn word_range(cursor: &mut Cursor<'_>) -> Parsed<(u64, Option<u64>)> {
    let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) else {
        return Ok((0, None));
    };
    cursor.next();
    let read = token.text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (words::number(first)?, words::number(end)?);
        end.checked_sub(first).filter(|count| *count > 0).map(|count| (first, Some(count)))
    });
    read.ok_or_else(|| {
        let message = format!("`{}` is no range of words", token.text);
        ScriptError::new(token.span, message).help("write `0..16` for the first 16")
    })
}

fn resource(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let kind = cursor.choice("a kind of resource", &RESOURCE_KINDS)?;
    let plain = match kind {
        ResourceKind::Buffer => ResourceDesc::buffer("", 0, 0),
        _ => ResourceDesc { kind, bytes: 0, ..ResourceDesc::texture("", 0, (1, 1)) },
    };
    let (mut at, mut desc) = (Address::Number(0), plain);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "at" => {
                cursor.symbol("=")?;
                at = address(names, cursor)?;
            }
            "offset" => desc.gpu_address = value64(cursor, "an offset")?,
            "bytes" => desc.bytes = value64(cursor, "a size")?,
            "width" => desc.width = value32(cursor, "a width")?,
            "height" => desc.height = value32(cursor, "a height")?,
            "depth" => desc.depth = value32(cursor, "a depth")?,
            "mips" => desc.mips = value32(cursor, "a number of mips")?,
            "slices" => desc.array_size = value32(cursor, "a number of slices")?,
            "planes" => desc.planes = value32(cursor, "a number of planes")?,
            "texel" => desc.texel_bytes = value32(cursor, "bytes of a texel")?,
            "layout" => {
                cursor.symbol("=")?;
                desc.initial_layout = layout(cursor)?;
            }
            "state" => {
                cursor.symbol("=")?;
                desc.initial_state = state(cursor)?;
            }
            "name" => {
                cursor.symbol("=")?;
                let name = cursor.text("a name, in quotes")?;
                if name.text.len() > ResourceName::BYTES {
                    let message = format!("a resource's name has at most {} bytes", ResourceName::BYTES);
                    return Err(ScriptError::new(name.span, message));
                }
                desc.name = ResourceName::new(&name.text);
            }
            "upload" => desc.heap = HeapType::Upload,
            "readback" => desc.heap = HeapType::Readback,
            word => {
                desc.flags |= ResourceFlags::from_name(word).ok_or_else(|| {
                    let flags = flag_names::<ResourceFlags>().into_iter();
                    let known = flags.chain(RESOURCE_OPTIONS.split_ascii_whitespace()).collect::<Vec<_>>();
                    unknown(token, "an option or a flag of a resource", known)
                })?;
            }
        }
    }
    if desc.is_texture() && desc.bytes == 0 {
        desc = desc.with_packed_bytes();
    }
    Ok(Operation::CreateResource { device, at, desc })
}

/// Parses the expectation after `M message`.
pub(super) fn wanted_message(
    names: &Names,
    messages: Binding,
    cursor: &mut Cursor<'_>,
) -> Parsed<crate::program::Expectation> {
    if cursor.take_word("no") {
        cursor.word("message")?;
        return Ok(crate::program::Expectation::NoMessage { messages });
    }
    if !cursor.take_word("message") {
        return cursor.expected("`message R-041 ..` or `no message`");
    }
    let token = cursor.atom("a rule of barriers, as R-041")?;
    let number = token.text.strip_prefix("R-").filter(|digits| digits.len() == 3);
    let rule =
        number.and_then(|digits| digits.parse().ok()).filter(|rule| *rule <= 108).ok_or_else(|| {
            let message = format!("`{}` is no rule of barriers", token.text);
            ScriptError::new(token.span, message)
                .help("they are R-001 to R-108; R-000 is a command that cannot be")
        })?;
    let (list, command, barrier, resource, text) = (None, None, None, None, None);
    let mut expected_message = WantedMessage { messages, rule, list, command, barrier, resource, text };
    while let Some(token) = cursor.next() {
        match (token.kind, token.text.as_str()) {
            (TokenKind::Text, text) => expected_message.text = Some(text.into()),
            (_, "list") => expected_message.list = Some(value32(cursor, "a list's number")?),
            (_, "command") => expected_message.command = Some(value32(cursor, "a command's number")?),
            (_, "barrier") => expected_message.barrier = Some(value32(cursor, "a barrier's number")?),
            (_, "resource") => {
                cursor.symbol("=")?;
                let token = cursor.atom("the name of a resource")?;
                expected_message.resource =
                    Some(names.binding(token, "a resource", |kind| kind == Kind::Resource)?);
            }
            _ => {
                return Err(unknown(
                    token,
                    "a part of a message",
                    ["list", "command", "barrier", "resource"],
                ));
            }
        }
    }
    Ok(crate::program::Expectation::Message(expected_message))
}

/// A line of a list while it is parsed, with the names of its packet by position.
struct Line<'n> {
    names: &'n Names,
    named: Vec<HandleRef>,
}

impl Line<'_> {
    fn position_of(&mut self, name: HandleRef) -> u32 {
        if name == HandleRef::Raw(0) {
            return 0;
        }
        let at = self.named.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.named.push(name);
            self.named.len() - 1
        });
        at as u32 + 1
    }

    /// Parses a resource: its name, a number, or `null`.
    fn resource(&mut self, cursor: &mut Cursor<'_>) -> Parsed<u32> {
        let token = cursor.atom("the name of a resource")?;
        if token.text == "null" {
            return Ok(0);
        }
        let name = match words::number(&token.text).and_then(|number| u32::try_from(number).ok()) {
            Some(number) => HandleRef::Raw(number),
            None => {
                let is_one = |kind| kind == Kind::Resource;
                HandleRef::Bound(self.names.binding(token, "a resource", is_one)?)
            }
        };
        Ok(self.position_of(name))
    }

    /// Parses a named GPU address, and an offset from it.
    fn address(&mut self, cursor: &mut Cursor<'_>) -> Parsed<u64> {
        let token = cursor.atom("a GPU address")?;
        let base = self.names.binding(token, "a GPU address", |kind| kind == Kind::Address)?;
        self.named.push(HandleRef::Bound(base));
        if cursor.take_word("offset") { value64(cursor, "an offset") } else { Ok(0) }
    }

    fn fence(&mut self, cursor: &mut Cursor<'_>, relation: &str) -> Parsed<FenceValue> {
        let fence = handle(self.names, cursor, Kind::Object)?;
        cursor.symbol(relation)?;
        let value = cursor.number("a fence value")?;
        Ok(FenceValue { gpu_address: self.position_of(fence).into(), value })
    }
}

/// Parses a command after a list's name.
pub(super) fn list_command(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<ListCommand> {
    let verb = cursor.atom("a command")?;
    let mut line = Line { names, named: Vec::new() };
    let packet = match WORK_KINDS.iter().find(|(name, _)| *name == verb.text) {
        Some((_, kind)) => work(*kind, &mut line, cursor)?,
        None => other(verb, &mut line, cursor)?,
    };
    cursor.end()?;
    Ok(ListCommand { packet, names: line.named })
}

fn other(verb: &Token, line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<Packet> {
    Ok(match verb.text.as_str() {
        "barrier" => Packet::Barrier { groups: barriers(line, cursor)? },
        "ranged" => Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![ranged(line, cursor)?])] },
        "transition" => {
            let resource = line.resource(cursor)?;
            let before = state(cursor)?;
            cursor.symbol("->")?;
            let after = state(cursor)?;
            let (mut flags, mut subresource) = (LegacyFlags::empty(), ALL_SUBRESOURCES);
            while let Some(token) = cursor.peek() {
                match token.text.as_str() {
                    "sub" => {
                        cursor.next();
                        subresource = value32(cursor, "a subresource")?;
                    }
                    _ => flags |= flag(cursor, "`BEGIN_ONLY`, `END_ONLY` or `sub=N`")?,
                }
            }
            legacy(LegacyBarrier::Transition { flags, resource, subresource, before, after })
        }
        "aliasing" => {
            let (before, after) = (line.resource(cursor)?, line.resource(cursor)?);
            legacy(LegacyBarrier::Aliasing { flags: LegacyFlags::empty(), before, after })
        }
        "uav" => {
            let resource = line.resource(cursor)?;
            legacy(LegacyBarrier::UnorderedAccess { flags: LegacyFlags::empty(), resource })
        }
        "signal_barrier" => {
            let fence = line.fence(cursor, "=")?;
            Packet::SignalBarrier { fence, groups: barriers_if_any(line, cursor)? }
        }
        "wait_barrier" => {
            let mut fences = vec![line.fence(cursor, ">=")?];
            while cursor.peek_second().is_some_and(|next| next.is_symbol(">=")) {
                fences.push(line.fence(cursor, ">=")?);
            }
            Packet::WaitBarrier { fences, groups: barriers_if_any(line, cursor)? }
        }
        "timestamp" => Packet::Timestamp { gpu_address: line.address(cursor)? },
        "read_fence" => {
            let fence = handle(line.names, cursor, Kind::Object)?;
            line.named.push(fence);
            Packet::FenceRead { gpu_address: 0, destination: line.address(cursor)? }
        }
        "assert_access" => {
            let resource = line.resource(cursor)?;
            let access = access(cursor)?;
            Packet::AssertResourceAccess { resource, subresource: sub(cursor)?, access }
        }
        "assert_layout" => {
            let resource = line.resource(cursor)?;
            let layout = layout(cursor)?;
            Packet::AssertTextureLayout { resource, subresource: sub(cursor)?, layout }
        }
        _ => {
            let known = WORK_KINDS.iter().map(|(name, _)| *name).chain(OTHERS).collect::<Vec<_>>();
            return Err(unknown(verb, "a command of a list", known));
        }
    })
}

fn legacy(barrier: LegacyBarrier) -> Packet {
    Packet::LegacyBarrier { barriers: vec![barrier] }
}

fn sub(cursor: &mut Cursor<'_>) -> Parsed<u32> {
    if cursor.take_word("sub") { value32(cursor, "a subresource") } else { Ok(ALL_SUBRESOURCES) }
}

/// Parses `[KERNEL] ACCESS=R[(OPTION ..)] .. [time=DURATION]`.
fn work(kind: WorkKind, line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<Packet> {
    const PLAIN_DURATION_NS: u64 = 1000;
    let (mut kernel, mut operand, mut duration_ns) = (default_kernel(kind), 0, PLAIN_DURATION_NS);
    let mut uses = Vec::new();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        let named = words::KERNELS.into_iter().find(|(name, _)| *name == token.text);
        match (token.text.as_str(), named) {
            ("time", _) => {
                cursor.symbol("=")?;
                duration_ns = cursor.duration()?;
            }
            ("root", _) => operand = value32(cursor, "the index of a root parameter")?,
            (_, Some((_, named))) => {
                kernel = named;
                if !matches!(named, Kernel::None | Kernel::Copy) {
                    operand = value32(cursor, "an operand")?;
                }
            }
            (word, None) => {
                let access = one_access(word, token)?;
                cursor.symbol("=")?;
                let resource = line.resource(cursor)?;
                uses.push(use_options(Use::whole(resource, access), cursor)?);
            }
        }
    }
    Ok(Packet::Work { kind, kernel, operand, duration_ns, uses })
}

fn one_access(word: &str, token: &Token) -> Parsed<BarrierAccess> {
    let bits = words::number(word).and_then(|bits| u32::try_from(bits).ok());
    let named = if word == "COMMON" { Some(BarrierAccess::COMMON) } else { BarrierAccess::from_name(word) };
    named.or(bits.map(BarrierAccess::from_bits_retain)).ok_or_else(|| {
        let accesses = flag_names::<BarrierAccess>().into_iter();
        let kernels = words::KERNELS.into_iter().map(|(name, _)| name);
        let known = accesses.chain(kernels).chain(["COMMON", "time", "root"]).collect::<Vec<_>>();
        unknown(token, "an access or a setting of a command", known)
    })
}

fn use_options(mut item: Use, cursor: &mut Cursor<'_>) -> Parsed<Use> {
    if !cursor.take_symbol("(") {
        return Ok(item);
    }
    while !cursor.take_symbol(")") {
        let token = cursor.atom("an option of a use, or `)`")?;
        match token.text.as_str() {
            "offset" => {
                item.offset = value64(cursor, "an offset")?;
                item.count = 1;
            }
            "bytes" => {
                item.bytes = value64(cursor, "a size")?;
                item.count = 1;
            }
            "sub" => {
                item.first_subresource = value32(cursor, "a subresource")?;
                item.count = 1;
            }
            "count" => item.count = value32(cursor, "a number of subresources")?,
            word => {
                item.flags |= UseFlags::from_name(word).ok_or_else(|| {
                    let flags = flag_names::<UseFlags>().into_iter();
                    let known = flags.chain(["offset", "bytes", "sub", "count"]).collect::<Vec<_>>();
                    unknown(token, "an option of a use", known)
                })?;
            }
        }
    }
    debug_assert!(item.bytes != WHOLE || item.count != 0 || item.offset == 0 || item.count == 1);
    Ok(item)
}

fn barriers_if_any(line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<Vec<BarrierGroup>> {
    if cursor.peek().is_none() { Ok(Vec::new()) } else { barriers(line, cursor) }
}

/// Parses barriers, separated by commas; consecutive barriers of one type form a group.
fn barriers(line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<Vec<BarrierGroup>> {
    let mut groups: Vec<BarrierGroup> = Vec::new();
    loop {
        let group = barrier(line, cursor)?;
        match (groups.last_mut(), group) {
            (Some(BarrierGroup::Global(all)), BarrierGroup::Global(group)) => all.extend(group),
            (Some(BarrierGroup::Texture(all)), BarrierGroup::Texture(group)) => all.extend(group),
            (Some(BarrierGroup::Buffer(all)), BarrierGroup::Buffer(group)) => all.extend(group),
            (_, group) => groups.push(group),
        }
        if !cursor.take_symbol(",") {
            return Ok(groups);
        }
    }
}

/// Parses `[R] SYNC -> SYNC ACCESS -> ACCESS [LAYOUT -> LAYOUT ..]`: for a texture with layouts, for a buffer without.
fn barrier(line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<BarrierGroup> {
    // A scope is followed by an arrow, or by `|` and another scope.
    if cursor.peek_second().is_some_and(|next| next.is_symbol("->") || next.is_symbol("|")) {
        return Ok(BarrierGroup::Global(vec![words_of_barrier(cursor)?]));
    }
    let resource = line.resource(cursor)?;
    let barrier = words_of_barrier(cursor)?;
    if !cursor.peek().is_some_and(|token| token.kind == TokenKind::Atom) {
        return Ok(BarrierGroup::Buffer(vec![BufferBarrier { barrier, resource, offset: 0, bytes: WHOLE }]));
    }
    if cursor.peek_second().is_some_and(|next| next.is_symbol("=")) {
        let (offset, bytes) = byte_range(cursor)?;
        return Ok(BarrierGroup::Buffer(vec![BufferBarrier { barrier, resource, offset, bytes }]));
    }
    let layout_before = layout(cursor)?;
    cursor.symbol("->")?;
    let layout_after = layout(cursor)?;
    let (mut flags, mut subresources) = (TextureFlags::empty(), SubresourceRange::ALL);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        match token.text.as_str() {
            "sub" | "mips" | "slices" | "planes" => subresource_range(&mut subresources, cursor)?,
            _ => flags |= flag(cursor, "`DISCARD`, `sub=N`, `mips=A..B` or so")?,
        }
    }
    let texture = TextureBarrier { barrier, layout_before, layout_after, resource, flags, subresources };
    Ok(BarrierGroup::Texture(vec![texture]))
}

/// Parses `sub=N`, `mips=A..B`, `slices=A..B` or `planes=A..B`; each omitted range is the first element.
fn subresource_range(range: &mut SubresourceRange, cursor: &mut Cursor<'_>) -> Parsed<()> {
    let key = cursor.atom("a part of a texture")?;
    if key.text == "sub" {
        *range = SubresourceRange::one(value32(cursor, "a subresource")?);
        return Ok(());
    }
    if range.mips == 0 {
        let (first_mip, first_slice, first_plane) = (0, 0, 0);
        *range = SubresourceRange { first_mip, mips: 1, first_slice, slices: 1, first_plane, planes: 1 };
    }
    cursor.symbol("=")?;
    let token = cursor.atom("a range, as 0..2")?;
    let read = token.text.split_once("..").and_then(|(first, end)| {
        let number = |word| words::number(word).and_then(|number| u32::try_from(number).ok());
        let (first, end) = (number(first)?, number(end)?);
        Some((first, end.checked_sub(first)?))
    });
    let (first, count) =
        read.ok_or_else(|| ScriptError::new(token.span, format!("`{}` is no range, as 0..2", token.text)))?;
    match key.text.as_str() {
        "mips" => (range.first_mip, range.mips) = (first, count),
        "slices" => (range.first_slice, range.slices) = (first, count),
        _ => (range.first_plane, range.planes) = (first, count),
    }
    Ok(())
}

fn ranged(line: &mut Line<'_>, cursor: &mut Cursor<'_>) -> Parsed<RangedBarrier> {
    let resource = line.resource(cursor)?;
    let barrier = words_of_barrier(cursor)?;
    let (mut flags, mut range) = (RangedFlags::empty(), (0, WHOLE));
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        match token.text.as_str() {
            "offset" | "bytes" => range = byte_range(cursor)?,
            _ => flags |= flag(cursor, "`ATOMIC_COPY`, `ACQUIRE` or `RELEASE`")?,
        }
    }
    Ok(RangedBarrier { barrier, resource, flags, offset: range.0, bytes: range.1 })
}

fn byte_range(cursor: &mut Cursor<'_>) -> Parsed<(u64, u64)> {
    let offset = if cursor.take_word("offset") { value64(cursor, "an offset")? } else { 0 };
    let bytes = if cursor.take_word("bytes") { value64(cursor, "a size")? } else { WHOLE };
    Ok((offset, bytes))
}

fn words_of_barrier(cursor: &mut Cursor<'_>) -> Parsed<Barrier> {
    let sync_before = sync(cursor)?;
    cursor.symbol("->")?;
    let sync_after = sync(cursor)?;
    let access_before = access(cursor)?;
    cursor.symbol("->")?;
    Ok(Barrier { sync_before, sync_after, access_before, access_after: access(cursor)? })
}

/// Parses `A`, `A|B`, or bits as a number. `aliases` are names that are not of one bit.
fn bits<F: Flags<Bits = u32>>(
    cursor: &mut Cursor<'_>,
    what: &str,
    aliases: &[(&'static str, F)],
) -> Parsed<F> {
    let mut sum = 0;
    loop {
        let token = cursor.atom(what)?;
        let word = token.text.as_str();
        let raw = words::number(word).and_then(|bits| u32::try_from(bits).ok());
        let alias = aliases.iter().find(|(name, _)| *name == word);
        let named = alias.map(|(_, flags)| flags.bits()).or(F::from_name(word).map(|flag| flag.bits()));
        let Some(bits) = named.or(raw) else {
            let names = aliases.iter().map(|(name, _)| *name);
            return Err(unknown(token, what, flag_names::<F>().into_iter().chain(names).collect::<Vec<_>>()));
        };
        sum |= bits;
        if !cursor.take_symbol("|") {
            return Ok(F::from_bits_retain(sum));
        }
    }
}

fn sync(cursor: &mut Cursor<'_>) -> Parsed<BarrierSync> {
    type S = BarrierSync;
    let aliases =
        [("NONE", S::NONE), ("INPUT_ASSEMBLER", S::INPUT_ASSEMBLER), ("PREDICATION", S::PREDICATION)];
    bits(cursor, "a scope of synchronization", &aliases)
}

fn access(cursor: &mut Cursor<'_>) -> Parsed<BarrierAccess> {
    type A = BarrierAccess;
    bits(cursor, "an access", &[("COMMON", A::COMMON), ("PREDICATION", A::PREDICATION)])
}

fn state(cursor: &mut Cursor<'_>) -> Parsed<LegacyState> {
    type T = LegacyState;
    let aliases = [
        ("COMMON", T::COMMON),
        ("PRESENT", T::PRESENT),
        ("PREDICATION", T::PREDICATION),
        ("ALL_SHADER_RESOURCE", T::ALL_SHADER_RESOURCE),
        ("GENERIC_READ", T::GENERIC_READ),
    ];
    bits(cursor, "a resource state", &aliases)
}

fn layout(cursor: &mut Cursor<'_>) -> Parsed<BarrierLayout> {
    let token = cursor.atom("a layout")?;
    let names = || BarrierLayout::ALL.iter().copied().chain([(BarrierLayout::PRESENT, "PRESENT")]);
    let named = names().find(|(_, name)| *name == token.text).map(|(layout, _)| layout);
    let raw = words::number(&token.text).and_then(|raw| u32::try_from(raw).ok()).map(BarrierLayout);
    named.or(raw).ok_or_else(|| unknown(token, "a layout", names().map(|(_, name)| name).collect::<Vec<_>>()))
}

fn flag<F: Flags>(cursor: &mut Cursor<'_>, what: &str) -> Parsed<F> {
    let token = cursor.atom(what)?;
    F::from_name(&token.text)
        .ok_or_else(|| ScriptError::new(token.span, format!("`{}` is not {what}", token.text)))
}
