//! Ranged barriers of the DDI: some bytes of a buffer, or a half of a barrier.

use covers::covers;

use crate::world::*;
use barriers::Rule;
use d3dkmt::isa::{BarrierGroup, LegacyState, Packet, RangedBarrier, RangedFlags, WorkKind};

const BOTH: RangedFlags = RangedFlags::ACQUIRE.union(RangedFlags::RELEASE);
const HALF: u64 = 2048;
const TO_COPY: (&str, &str) = ("COMPUTE_SHADING -> COPY", "UNORDERED_ACCESS -> COPY_SOURCE");

fn ranged(resource: u32, (syncs, accesses): (&str, &str), flags: RangedFlags, range: (u64, u64)) -> Packet {
    let barrier = words(syncs, accesses);
    let ranged = RangedBarrier { barrier, resource, flags, offset: range.0, bytes: range.1 };
    Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![ranged])] }
}

/// The rules that a use of the buffer breaks, which barriers separate from a dispatch that writes all of it.
fn after_a_dispatch(barriers: Vec<Packet>, later: Packet) -> Vec<Rule> {
    let dispatch = uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    rules(&World::new().submit(&[vec![dispatch], barriers, vec![later]].concat()))
}

fn copy_of(offset: u64, bytes: u64) -> Packet {
    work(WorkKind::Copy, vec![range(BUFFER, "COPY_SOURCE", offset, bytes)])
}

#[test]
fn a_ranged_barrier_is_of_a_resource_or_of_the_whole_cache() {
    covers!("BAR-013");
    let flags = BOTH | RangedFlags::ATOMIC_COPY;
    let copies = |resource| {
        let copy = |id| uses(WorkKind::Copy, id, "COPY_DEST");
        let draw = |id| uses(WorkKind::Draw, id, "VERTEX_BUFFER");
        let then = ranged(resource, ("COPY -> ALL", "COPY_DEST -> COMMON"), flags, (0, u64::MAX));
        rules(&World::new().submit(&[copy(BUFFER), copy(RTAS), then, draw(BUFFER), draw(RTAS)]))
    };
    assert_eq!(copies(0), [], "both are flushed");
    assert_eq!(copies(BUFFER), [Rule::R091], "the other one is not");
}

#[test]
fn a_ranged_barrier_shows_the_bytes_of_its_range_and_orders_all() {
    let of = |range| ranged(BUFFER, TO_COPY, RangedFlags::empty(), range);
    let (first, second) = (of((0, HALF)), of((HALF, u64::MAX)));
    let copies = |barriers: &[&Packet], offset, bytes| {
        after_a_dispatch(barriers.iter().copied().cloned().collect(), copy_of(offset, bytes))
    };
    assert_eq!(copies(&[&second], 0, 2 * HALF), [Rule::R091]);
    assert_eq!(copies(&[&second], HALF, HALF), []);
    assert_eq!(copies(&[&second], HALF - 4, HALF), [Rule::R091]);
    assert_eq!(copies(&[&second], 0, HALF), [Rule::R091]);
    assert_eq!(copies(&[&first, &second], 0, 2 * HALF), []);
    assert_eq!(copies(&[&second, &first], HALF - 4, 8), []);
    let rest = buffer(TO_COPY.0, TO_COPY.1);
    assert_eq!(copies(&[&second, &rest], 0, 2 * HALF), [], "a barrier of the buffer flushes the rest");
    // Writes of the second half alone need not see the first.
    let to_writes = ("COMPUTE_SHADING -> ALL", "UNORDERED_ACCESS -> UNORDERED_ACCESS | COPY_DEST");
    for (kind, access) in [(WorkKind::Dispatch, "UNORDERED_ACCESS"), (WorkKind::Copy, "COPY_DEST")] {
        let barrier = ranged(BUFFER, to_writes, RangedFlags::empty(), (HALF, HALF));
        let writes = work(kind, vec![range(BUFFER, access, HALF, HALF)]);
        assert_eq!(after_a_dispatch(vec![barrier], writes), [], "{access}");
    }
}

#[test]
fn an_acquire_writes_nothing_back_and_a_release_invalidates_nothing() {
    const ACQUIRE: RangedFlags = RangedFlags::ACQUIRE;
    const RELEASE: RangedFlags = RangedFlags::RELEASE;
    for (resource, bytes) in [(BUFFER, u64::MAX), (BUFFER, 2 * HALF), (BUFFER, HALF), (0, 0)] {
        let copies = |halves: &[RangedFlags]| {
            let barriers = halves.iter().map(|half| ranged(resource, TO_COPY, *half, (0, bytes)));
            after_a_dispatch(barriers.collect(), copy_of(0, HALF))
        };
        assert_eq!(copies(&[BOTH]), []);
        assert_eq!(copies(&[ACQUIRE]), [Rule::R091]);
        assert_eq!(copies(&[RELEASE]), [Rule::R091]);
        assert_eq!(copies(&[RELEASE, ACQUIRE]), []);
        assert_eq!(copies(&[ACQUIRE, RELEASE]), [Rule::R091]);
    }
    // Between a buffer barrier, whose AccessAfter they widen, and a use.
    let before = buffer("NONE -> COMPUTE_SHADING", "NO_ACCESS -> UNORDERED_ACCESS");
    let dispatch = uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    let halves = [RELEASE, ACQUIRE].map(|half| ranged(BUFFER, TO_COPY, half, (0, u64::MAX)));
    let packets = [&[before, dispatch], &halves[..], &[copy_of(0, HALF)]].concat();
    assert_eq!(rules(&World::new().submit(&packets)), []);
    // What nothing has written needs no flush.
    let acquire = ranged(BUFFER, TO_COPY, ACQUIRE, (0, HALF));
    assert_eq!(rules(&World::new().submit(&[acquire, copy_of(0, 2 * HALF)])), []);
}

#[test]
fn behind_a_part_of_a_barrier_the_one_before_limits_no_access() {
    let found = |packets: &[Packet]| rules(&World::new().submit(packets));
    let dispatch = || uses(WorkKind::Dispatch, BUFFER, "SHADER_RESOURCE");
    // An acquire of what was only read needs no release.
    let to_reads = || buffer("NONE -> COMPUTE_SHADING", "NO_ACCESS -> SHADER_RESOURCE");
    for resource in [BUFFER, 0] {
        let to_copy = ("COMPUTE_SHADING -> COPY", "SHADER_RESOURCE -> COPY_SOURCE");
        let acquire = ranged(resource, to_copy, RangedFlags::ACQUIRE, (0, u64::MAX));
        let copy = copy_of(0, HALF);
        assert_eq!(found(&[to_reads(), dispatch(), acquire, copy]), [], "{resource}");
    }
    // A half of a buffer that is deactivated is activated for writes, and the barrier after it names them.
    let off = buffer("COMPUTE_SHADING -> ALL", "SHADER_RESOURCE -> NO_ACCESS");
    let half = ranged(BUFFER, ("ALL -> COPY", "NO_ACCESS -> COPY_DEST"), BOTH, (0, HALF));
    let copy = work(WorkKind::Copy, vec![range(BUFFER, "COPY_DEST", 0, HALF)]);
    let to_draw = buffer("COPY -> DRAW", "COPY_DEST -> VERTEX_BUFFER");
    assert_eq!(found(&[dispatch(), off, half, copy, to_draw]), []);
}

#[test]
fn a_ranged_barrier_of_some_bytes_is_in_no_legacy_state_and_in_no_split() {
    let half = || ranged(BUFFER, TO_COPY, RangedFlags::empty(), (0, HALF));
    let to_copy = legacy(transition(BUFFER, LegacyState::COMMON, LegacyState::COPY_DEST));
    assert_eq!(rules(&World::new().submit(&[to_copy, half()])), [Rule::R070]);
    let dispatch = uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    let begin = buffer("COMPUTE_SHADING -> SPLIT", TO_COPY.1);
    assert_eq!(rules(&World::new().submit(&[dispatch, begin, half()])), [Rule::R053]);
}
