//! Operands of hardware queues, native fences, doorbells, paging queues and priorities.

use d3dkmt::{HwQueueFlags, SyncObjectFlags};

use crate::program::{Address, HandleRef, Kind, Operation, Space};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::names::Names;
use crate::script::operands::{
    check_count, commands, handle, handles, items, object_flag, object_flags, share, targets, value32,
    value64,
};
use crate::script::token::{Token, TokenKind};
use crate::script::words;

/// Reads the operands of a verb of queues; `None` if it is none.
pub(super) fn operation(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    let queue = |cursor: &mut Cursor<'_>| handle(names, cursor, Kind::HwQueue);
    Ok(Some(match verb {
        "hw_queue" => hw_queue(names, cursor)?,
        "destroy_hw_queue" => Operation::DestroyHwQueue { queue: queue(cursor)? },
        "submit_hw" => {
            let queue = queue(cursor)?;
            Operation::SubmitHw { queue, id: id(cursor)?, commands: commands(names, cursor)? }
        }
        "hw_signal" => {
            let queues = handles(names, cursor, Kind::HwQueue)?;
            let (targets, flags, _) = targets(names, cursor, "=", false)?;
            Operation::HwSignal { queues, targets, flags }
        }
        "hw_wait" => Operation::HwWait { queue: queue(cursor)?, items: items(names, cursor)? },
        "native_fence" => native_fence(names, cursor)?,
        "open_native" => {
            let device = handle(names, cursor, Kind::Device)?;
            let share = share(names, cursor)?;
            Operation::OpenNativeFence { device, share, flags: object_flags(cursor)? }
        }
        "doorbell" => Operation::CreateDoorbell { queue: queue(cursor)? },
        "connect" => Operation::ConnectDoorbell { queue: queue(cursor)? },
        "destroy_doorbell" => Operation::DestroyDoorbell { queue: queue(cursor)? },
        "ring" => {
            let queue = queue(cursor)?;
            Operation::RingDoorbell { queue, id: id(cursor)?, commands: commands(names, cursor)? }
        }
        "notify" => Operation::NotifyWork { queue: queue(cursor)? },
        _ => return paging(names, verb, cursor),
    }))
}

fn paging(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    Ok(Some(match verb {
        "paging_queue" => {
            let device = handle(names, cursor, Kind::Device)?;
            let priority = match cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
                Some(_) => cursor.choice("a priority", &words::PAGING_PRIORITIES)?,
                None => 0,
            };
            Operation::CreatePagingQueue { device, priority }
        }
        "destroy_paging_queue" => {
            Operation::DestroyPagingQueue { queue: handle(names, cursor, Kind::PagingQueue)? }
        }
        "reserve" => {
            let owner = handle(names, cursor, Kind::PagingQueue)?;
            let SpaceOptions { space, count: bytes, .. } = space(names, cursor, "bytes")?;
            Operation::Reserve { owner, space, bytes }
        }
        "map" => {
            let queue = handle(names, cursor, Kind::PagingQueue)?;
            let is_option =
                |cursor: &Cursor<'_>| cursor.peek_second().is_some_and(|next| next.is_symbol("="));
            let is_flag = |cursor: &Cursor<'_>| {
                let named = |token: &Token| words::PROTECTIONS.iter().any(|(name, _)| *name == token.text);
                cursor.peek().is_none_or(named)
            };
            let allocation = match is_option(cursor) || is_flag(cursor) {
                true => HandleRef::Raw(0),
                false => handle(names, cursor, Kind::Allocation)?,
            };
            let SpaceOptions { space, count: pages, protection, offset } = space(names, cursor, "pages")?;
            Operation::Map { queue, allocation, space, offset, pages, protection }
        }
        "free_address" => {
            let adapter = handle(names, cursor, Kind::Adapter)?;
            cursor.word("base")?;
            cursor.symbol("=")?;
            let base = address(names, cursor)?;
            cursor.word("bytes")?;
            Operation::FreeAddress { adapter, base, bytes: value64(cursor, "a size")? }
        }
        "update_address" => update_address(names, cursor)?,
        _ => return memory(names, verb, cursor),
    }))
}

fn memory(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    let device = |cursor: &mut Cursor<'_>| handle(names, cursor, Kind::Device);
    let allocation = |cursor: &mut Cursor<'_>| handle(names, cursor, Kind::Allocation);
    let allocations = |cursor: &mut Cursor<'_>| handles(names, cursor, Kind::Allocation);
    Ok(Some(match verb {
        "allocate" => {
            let device = device(cursor)?;
            cursor.word("bytes")?;
            let bytes = value64(cursor, "a size")?;
            Operation::Allocate { device, bytes, shared: cursor.take_word("shared") }
        }
        "open_allocation" => {
            let device = device(cursor)?;
            Operation::OpenAllocation { device, share: share(names, cursor)? }
        }
        "destroy_allocation" => {
            Operation::DestroyAllocation { device: device(cursor)?, allocation: allocation(cursor)? }
        }
        "make_resident" => {
            let queue = handle(names, cursor, Kind::PagingQueue)?;
            let (allocations, mut flags) = (allocations(cursor)?, 0);
            while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
                flags |= match token.text.as_str() {
                    "flags" => {
                        cursor.next();
                        value32(cursor, "flags")?
                    }
                    _ => cursor.choice("a flag of MakeResident", &words::RESIDENT_FLAGS)?,
                };
            }
            Operation::MakeResident { queue, allocations, flags }
        }
        "evict" => Operation::Evict { device: device(cursor)?, allocations: allocations(cursor)? },
        "lock" => Operation::Lock { device: device(cursor)?, allocation: allocation(cursor)? },
        "unlock" => Operation::Unlock { device: device(cursor)?, allocation: allocation(cursor)? },
        _ => return priorities(names, verb, cursor),
    }))
}

fn priorities(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    Ok(Some(match verb {
        "priority" => {
            let context = handle(names, cursor, Kind::Context)?;
            let is_number = |cursor: &Cursor<'_>| {
                cursor.is_symbol("-")
                    || cursor.peek().is_some_and(|token| words::number(&token.text).is_some())
            };
            let priority = if is_number(cursor) { Some(signed(cursor)?) } else { None };
            let in_process = cursor.take_word("in_process");
            match priority {
                Some(priority) => Operation::SetPriority { context, priority, in_process },
                None => Operation::Priority { context, in_process },
            }
        }
        "priority_class" => match cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
            None => Operation::PriorityClass,
            Some(token) if words::number(&token.text).is_some() => {
                Operation::SetPriorityClass { class: cursor.number32("a class")? }
            }
            Some(_) => {
                let class = cursor.choice("a priority class", &words::PRIORITY_CLASSES)?;
                Operation::SetPriorityClass { class }
            }
        },
        "mark_error" => {
            let device = handle(names, cursor, Kind::Device)?;
            let reason = match cursor.peek().and_then(|token| words::number(&token.text)) {
                Some(_) => cursor.number32("a reason")?,
                None => cursor.choice("a reason", &words::ERROR_REASONS)?,
            };
            Operation::MarkError { device, reason }
        }
        _ => return Ok(None),
    }))
}

/// A number that may stand below zero.
fn signed(cursor: &mut Cursor<'_>) -> Parsed<i32> {
    let place = cursor.place();
    let below_zero = cursor.take_symbol("-");
    let number = i64::from(cursor.number32("a priority")?);
    let number = if below_zero { -number } else { number };
    i32::try_from(number).map_err(|_| {
        crate::script::error::ScriptError::new(place, format!("{number} does not fit 32 bits with a sign"))
    })
}

fn id(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    cursor.word("id")?;
    value64(cursor, "a progress fence value")
}

fn hw_queue(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let context = handle(names, cursor, Kind::Context)?;
    let mut flags = HwQueueFlags::empty();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        flags |= match token.text.as_str() {
            "flags" => HwQueueFlags::from_bits_retain(value32(cursor, "flags")?),
            word => HwQueueFlags::from_name(word)
                .ok_or_else(|| unknown(token, "a flag of a hardware queue", words::hw_queue_flag_names()))?,
        };
    }
    Ok(Operation::CreateHwQueue { context, flags })
}

fn native_fence(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let (mut initial, mut native_type, mut engine_affinity) = (0, 0, 0);
    let mut flags = SyncObjectFlags::empty();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        match token.text.as_str() {
            "initial" => {
                cursor.next();
                initial = value64(cursor, "an initial value")?;
            }
            "affinity" => {
                cursor.next();
                engine_affinity = value32(cursor, "an affinity")?;
            }
            "INTRA_GPU" => {
                cursor.next();
                native_type = 1;
            }
            "type" => {
                cursor.next();
                native_type = value32(cursor, "a type of native fence")?;
            }
            _ => flags |= object_flag(cursor)?,
        }
    }
    Ok(Operation::CreateNativeFence { device, initial, native_type, flags, engine_affinity })
}

pub(super) fn address(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Address> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => Ok(Address::Number(cursor.number("an address")?)),
        None => {
            let token = cursor.atom("a GPU address")?;
            names.binding(token, "a GPU address", |kind| kind == Kind::Address).map(Address::Bound)
        }
    }
}

/// What [`space`] reads.
struct SpaceOptions {
    space: Space,
    count: u64,
    protection: u64,
    offset: u64,
}

/// `SIZE=N [offset=N] [base=V] [min=N] [max=N] [PROTECTION]`; the offset where the size is in pages.
fn space(names: &Names, cursor: &mut Cursor<'_>, size: &'static str) -> Parsed<SpaceOptions> {
    let (mut space, mut count, mut protection, mut offset) = (Space::default(), 0, 0, 0);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            word if word == size => count = value64(cursor, "a size")?,
            "offset" if size == "pages" => offset = value64(cursor, "a number of pages")?,
            "base" => {
                cursor.symbol("=")?;
                space.base = address(names, cursor)?;
            }
            "min" => space.minimum = value64(cursor, "an address")?,
            "max" => space.maximum = value64(cursor, "an address")?,
            "protection" => protection |= value64(cursor, "a protection")?,
            word => {
                let named = words::PROTECTIONS.into_iter().find(|(name, _)| *name == word);
                let (_, bit) = named.ok_or_else(|| {
                    unknown(
                        token,
                        "an option",
                        [size, "base", "min", "max", "protection", "WRITE", "EXECUTE", "ZERO", "NO_ACCESS"],
                    )
                })?;
                protection |= bit;
            }
        }
    }
    Ok(SpaceOptions { space, count, protection, offset })
}

fn update_address(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let context = handle(names, cursor, Kind::Context)?;
    cursor.word("fence")?;
    cursor.symbol("=")?;
    let fence = handle(names, cursor, Kind::Object)?;
    cursor.word("value")?;
    let value = value64(cursor, "a fence value")?;
    let mut operations = Vec::new();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        let operation = cursor.choice("an operation", &words::VA_OPERATIONS)?;
        cursor.symbol("(")?;
        let base = address(names, cursor)?;
        cursor.symbol(",")?;
        operations.push((operation, base, cursor.number("a size in bytes")?));
        cursor.symbol(")")?;
        check_count(token, operations.len())?;
    }
    Ok(Operation::UpdateAddress { device, context, fence, value, operations })
}
