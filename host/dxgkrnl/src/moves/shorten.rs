//! The same bytes at the end, by fewer copies: an engine's copy goes through the lines of two caches, and when those end
//! within the same step nobody will ever read them.
//!
//! ```text
//!   S1 <- M    S2 <- S1    T <- S2    release S1, S2        what the engine asks for
//!   S1 <- M    S2 <- M     T <- M     release S1, S2        each copy reads where the bytes came from   (forward)
//!                          T <- M     release S1, S2        nobody reads what was written to S1 and S2  (backward)
//! ```
//! Moves of one step are done with nothing between them, so that memory is what it was unless a move of the step writes it.
//! What a process writes at the same time is a race as before.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::perform::ahead;
use super::{DataMove, Place, Shadow};

/// Copies of fewer bytes are not worth the looking.
const BYTES_MIN: u64 = 32 * 1024;

/// Moves of a step that are looked at: more are done as they are.
const MOVES_MAX: usize = 256;

/// Whether there may be something to gain.
pub(super) fn is_worth_it(moves: &[DataMove]) -> bool {
    let long = |one: &DataMove| matches!(one, DataMove::Copy { bytes, .. } if *bytes >= BYTES_MIN);
    let release = |one: &DataMove| matches!(one, DataMove::Release { .. });
    moves.len() <= MOVES_MAX && moves.iter().any(release) && moves.iter().any(long)
}

/// These moves with fewer copies.
pub(super) fn shorten(moves: &[DataMove]) -> Vec<DataMove> {
    let mut moves = read_at_origins(moves);
    leave_out_unread(&mut moves);
    moves
}

/// So many bytes from here on have been copied from there, and both are as they were then.
struct Copied {
    to: Place,
    from: Place,
    bytes: u64,
}

fn read_at_origins(moves: &[DataMove]) -> Vec<DataMove> {
    // What lives on is kept for reading, and shares its bytes.
    let ended = |place| moves.iter().any(|one| ends(one, place));
    let mut known: Vec<Copied> = Vec::new();
    let mut made = Vec::with_capacity(moves.len());
    for one in moves {
        let mut one = *one;
        if let DataMove::Copy { from, bytes, .. } = &mut one {
            let origin = known.iter().find_map(|copied| origin(copied, *from, *bytes));
            *from = origin.unwrap_or(*from);
        }
        match one {
            DataMove::Copy { to, bytes, .. }
            | DataMove::Fill { to, bytes, .. }
            | DataMove::Compute { to, bytes, .. } => known.retain(|copied| {
                !overlap((copied.to, copied.bytes), (to, bytes))
                    && !overlap((copied.from, copied.bytes), (to, bytes))
            }),
            DataMove::Release { .. } | DataMove::ReleaseAll { .. } => {
                known.retain(|copied| ![copied.to, copied.from].iter().any(|place| ends(&one, *place)));
            }
        }
        match one {
            DataMove::Copy { from, to: to @ Place::Shadow { .. }, bytes }
                if bytes >= BYTES_MIN && ended(to) && !overlap((from, bytes), (to, bytes)) =>
            {
                known.push(Copied { to, from, bytes });
            }
            _ => {}
        }
        made.push(one);
    }
    made
}

/// Where the bytes that are read here came from.
fn origin(copied: &Copied, from: Place, bytes: u64) -> Option<Place> {
    let (Place::Shadow { shadow: a, offset: begin }, Place::Shadow { shadow: b, offset }) = (copied.to, from)
    else {
        return None;
    };
    let is_within = a == b && offset >= begin && offset + bytes <= begin + copied.bytes;
    is_within.then(|| ahead(copied.from, offset - begin))
}

fn overlap((a, a_bytes): (Place, u64), (b, b_bytes): (Place, u64)) -> bool {
    let meet = |a: u64, b: u64| a < b.saturating_add(b_bytes) && b < a.saturating_add(a_bytes);
    match (a, b) {
        (Place::Memory { process: p, address: a }, Place::Memory { process: q, address: b }) => {
            p == q && meet(a, b)
        }
        (Place::Shadow { shadow: s, offset: a }, Place::Shadow { shadow: t, offset: b }) => {
            s == t && meet(a, b)
        }
        _ => false,
    }
}

fn ends(one: &DataMove, place: Place) -> bool {
    let Place::Shadow { shadow, .. } = place else { return false };
    match one {
        DataMove::Release { shadow: ended } => *ended == shadow,
        DataMove::ReleaseAll { adapter } => *adapter == shadow.adapter,
        DataMove::Copy { .. } | DataMove::Fill { .. } | DataMove::Compute { .. } => false,
    }
}

/// From the last move on: what is written to a shadow that ends, with no read between.
fn leave_out_unread(moves: &mut Vec<DataMove>) {
    // Of each shadow that ends further on: what is read of it until then.
    let mut read: BTreeMap<Shadow, Vec<(Place, u64)>> = BTreeMap::new();
    let mut kept = Vec::with_capacity(moves.len());
    for one in moves.iter().rev() {
        let (from, to) = match *one {
            DataMove::Copy { from, to, bytes } => (Some((from, bytes)), Some((to, bytes))),
            DataMove::Fill { to, bytes, .. } => (None, Some((to, bytes))),
            // It reads what is there as well.
            DataMove::Compute { from, to, bytes, .. } => {
                note_read(&mut read, (to, bytes));
                (Some((from, bytes)), None)
            }
            DataMove::Release { shadow } => {
                read.insert(shadow, Vec::new());
                (None, None)
            }
            DataMove::ReleaseAll { .. } => (None, None),
        };
        if to.is_some_and(|to| is_unread(&read, to)) {
            continue;
        }
        if let Some(from) = from {
            note_read(&mut read, from);
        }
        kept.push(*one);
    }
    kept.reverse();
    *moves = kept;
}

fn note_read(read: &mut BTreeMap<Shadow, Vec<(Place, u64)>>, (place, bytes): (Place, u64)) {
    if let Place::Shadow { shadow, .. } = place
        && let Some(ranges) = read.get_mut(&shadow)
    {
        ranges.push((place, bytes));
    }
}

fn is_unread(read: &BTreeMap<Shadow, Vec<(Place, u64)>>, to: (Place, u64)) -> bool {
    let Place::Shadow { shadow, .. } = to.0 else { return false };
    read.get(&shadow).is_some_and(|ranges| !ranges.iter().any(|range| overlap(*range, to)))
}
