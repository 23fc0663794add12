//! Reduces the copies of one step without a change of the resulting bytes. An engine's copy goes through the lines of
//! two caches. If these are released within the same step, nothing reads them later.
//!
//! ```text
//!   S1 <- M    S2 <- S1    T <- S2    release S1, S2        what the engine asks for
//!   S1 <- M    S2 <- M     T <- M     release S1, S2        each copy reads where the bytes came from   (forward)
//!                          T <- M     release S1, S2        nothing reads S1 and S2 any more            (backward)
//! ```
//! Nothing runs between the operations of one step, so memory changes only by operations of the step. A process that
//! writes it at the same time races with the engine, as without this module.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::executor::ahead;
use super::{DmaOp, MemoryRef, StagingBuffer};

/// Copies of fewer bytes are not worth the search.
const BYTES_MIN: u64 = 32 * 1024;

/// A step with more operations is executed as it is.
const MOVES_MAX: usize = 256;

/// Whether [`shorten`] may remove a copy.
pub(super) fn is_worth_it(moves: &[DmaOp]) -> bool {
    let long = |op: &DmaOp| matches!(op, DmaOp::Copy { bytes, .. } if *bytes >= BYTES_MIN);
    let release = |op: &DmaOp| matches!(op, DmaOp::Release { .. });
    moves.len() <= MOVES_MAX && moves.iter().any(release) && moves.iter().any(long)
}

/// Operations with the same result and fewer copies.
pub(super) fn shorten(moves: &[DmaOp]) -> Vec<DmaOp> {
    let mut moves = read_at_origins(moves);
    leave_out_unread(&mut moves);
    moves
}

/// A copy of `bytes` bytes whose source and target were not written since.
struct Copied {
    to: MemoryRef,
    from: MemoryRef,
    bytes: u64,
}

fn read_at_origins(moves: &[DmaOp]) -> Vec<DmaOp> {
    // Only buffers that the step releases count: one that outlives it is read later, and shares the bytes of its
    // source.
    let is_released = |memory| moves.iter().any(|op| releases(op, memory));
    let mut copies: Vec<Copied> = Vec::new();
    let mut shortened = Vec::with_capacity(moves.len());
    for op in moves {
        let mut op = *op;
        if let DmaOp::Copy { from, bytes, .. } = &mut op {
            let origin = copies.iter().find_map(|copied| origin(copied, *from, *bytes));
            *from = origin.unwrap_or(*from);
        }
        match op {
            DmaOp::Copy { to, bytes, .. }
            | DmaOp::Fill { to, bytes, .. }
            | DmaOp::Compute { to, bytes, .. } => copies.retain(|copied| {
                !overlap((copied.to, copied.bytes), (to, bytes))
                    && !overlap((copied.from, copied.bytes), (to, bytes))
            }),
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => {
                copies.retain(|copied| ![copied.to, copied.from].iter().any(|memory| releases(&op, *memory)));
            }
        }
        match op {
            DmaOp::Copy { from, to: to @ MemoryRef::StagingBuffer { .. }, bytes }
                if bytes >= BYTES_MIN && is_released(to) && !overlap((from, bytes), (to, bytes)) =>
            {
                copies.push(Copied { to, from, bytes });
            }
            _ => {}
        }
        shortened.push(op);
    }
    shortened
}

/// The source of the bytes at `from`, if `copied` wrote all of them.
fn origin(copied: &Copied, from: MemoryRef, bytes: u64) -> Option<MemoryRef> {
    let (
        MemoryRef::StagingBuffer { staging_buffer: a, offset: begin },
        MemoryRef::StagingBuffer { staging_buffer: b, offset },
    ) = (copied.to, from)
    else {
        return None;
    };
    let is_within = a == b && offset >= begin && offset + bytes <= begin + copied.bytes;
    is_within.then(|| ahead(copied.from, offset - begin))
}

fn overlap((a, a_bytes): (MemoryRef, u64), (b, b_bytes): (MemoryRef, u64)) -> bool {
    let overlap = |a: u64, b: u64| a < b.saturating_add(b_bytes) && b < a.saturating_add(a_bytes);
    match (a, b) {
        (MemoryRef::Memory { process: p, address: a }, MemoryRef::Memory { process: q, address: b }) => {
            p == q && overlap(a, b)
        }
        (
            MemoryRef::StagingBuffer { staging_buffer: s, offset: a },
            MemoryRef::StagingBuffer { staging_buffer: t, offset: b },
        ) => s == t && overlap(a, b),
        _ => false,
    }
}

fn releases(op: &DmaOp, memory: MemoryRef) -> bool {
    let MemoryRef::StagingBuffer { staging_buffer, .. } = memory else { return false };
    match op {
        DmaOp::Release { staging_buffer: ended } => *ended == staging_buffer,
        DmaOp::ReleaseAll { adapter } => *adapter == staging_buffer.adapter,
        DmaOp::Copy { .. } | DmaOp::Fill { .. } | DmaOp::Compute { .. } => false,
    }
}

/// Removes writes to a staging buffer that is released with no read in between. Goes from the last operation to the
/// first.
fn leave_out_unread(moves: &mut Vec<DmaOp>) {
    // For each staging buffer that is released later: the ranges that are read before its release.
    let mut read: BTreeMap<StagingBuffer, Vec<(MemoryRef, u64)>> = BTreeMap::new();
    let mut kept = Vec::with_capacity(moves.len());
    for op in moves.iter().rev() {
        let (from, to) = match *op {
            DmaOp::Copy { from, to, bytes } => (Some((from, bytes)), Some((to, bytes))),
            DmaOp::Fill { to, bytes, .. } => (None, Some((to, bytes))),
            // It reads its target as well.
            DmaOp::Compute { from, to, bytes, .. } => {
                note_read(&mut read, (to, bytes));
                (Some((from, bytes)), None)
            }
            DmaOp::Release { staging_buffer } => {
                read.insert(staging_buffer, Vec::new());
                (None, None)
            }
            DmaOp::ReleaseAll { .. } => (None, None),
        };
        if to.is_some_and(|to| is_unread(&read, to)) {
            continue;
        }
        if let Some(from) = from {
            note_read(&mut read, from);
        }
        kept.push(*op);
    }
    kept.reverse();
    *moves = kept;
}

fn note_read(read: &mut BTreeMap<StagingBuffer, Vec<(MemoryRef, u64)>>, (memory, bytes): (MemoryRef, u64)) {
    if let MemoryRef::StagingBuffer { staging_buffer, .. } = memory
        && let Some(ranges) = read.get_mut(&staging_buffer)
    {
        ranges.push((memory, bytes));
    }
}

fn is_unread(read: &BTreeMap<StagingBuffer, Vec<(MemoryRef, u64)>>, to: (MemoryRef, u64)) -> bool {
    let MemoryRef::StagingBuffer { staging_buffer, .. } = to.0 else { return false };
    read.get(&staging_buffer).is_some_and(|ranges| !ranges.iter().any(|range| overlap(*range, to)))
}
