//! Writes of barriers with DISCARD.

use super::*;

#[test]
fn a_discard_writes_behind_what_its_barrier_waits_for_and_before_what_it_blocks() {
    let races = |steps: &[Step]| {
        let mut checker = Checker::default();
        submission(&mut checker, 1, steps);
        reports(&mut checker).len()
    };
    let discard =
        |before, after| Step::Discard(barrier(before, after, A::NO_ACCESS, A::RENDER_TARGET), buffer(1));
    let behind = |before, after, range: u64| {
        Step::Barrier(barrier(before, after, A::UNORDERED_ACCESS, A::NO_ACCESS), Some(buffer(range)))
    };
    let computes = |number| Step::Command(vec![write(number, A::UNORDERED_ACCESS, S::COMPUTE_SHADING)]);
    let draws = || Step::Command(vec![write(1, A::RENDER_TARGET, S::RENDER_TARGET)]);
    let (none, compute, target) = (S::NONE, S::COMPUTE_SHADING, S::RENDER_TARGET);
    assert_eq!(races(&[computes(1), discard(none, target), draws()]), 1);
    assert_eq!(races(&[draws(), discard(none, target), draws()]), 1, "it is no draw");
    assert_eq!(races(&[computes(1), discard(compute, target), draws()]), 0);
    // The barrier that deactivates the other resource of the memory, and the one that activates this one.
    assert_eq!(races(&[computes(1), behind(compute, target, 1), discard(none, target), draws()]), 0);
    assert_eq!(races(&[computes(1), behind(compute, S::COPY, 1), discard(none, target), draws()]), 1);
    assert_eq!(races(&[computes(1), discard(compute, S::ALL), computes(1)]), 0);
    assert_eq!(races(&[discard(none, target), computes(1)]), 1);
    assert_eq!(races(&[discard(none, target), behind(target, compute, 1), computes(1)]), 0);
    assert_eq!(races(&[discard(none, target), behind(S::COPY, compute, 1), computes(1)]), 1);
    // Without a scope behind it, it is behind barriers of that kind alone, and before the second half of a split one.
    let split = S::SPLIT;
    for nothing in [none, split] {
        assert_eq!(races(&[computes(1), discard(none, nothing)]), 1);
        assert_eq!(races(&[computes(1), discard(compute, nothing)]), 0);
        assert_eq!(races(&[computes(1), behind(compute, nothing, 1), discard(none, nothing)]), 0);
        assert_eq!(races(&[computes(1), behind(compute, target, 1), discard(none, nothing)]), 1);
        assert_eq!(races(&[discard(none, nothing), draws()]), 1);
        assert_eq!(races(&[discard(none, nothing), discard(none, nothing)]), 0);
    }
    assert_eq!(races(&[discard(none, split), behind(split, target, 1), draws()]), 0);
    assert_eq!(races(&[discard(none, split), discard(split, target), draws()]), 0);
    assert_eq!(races(&[discard(none, split), behind(split, S::COPY, 1), draws()]), 1);
    // One scope in common is enough, as for the engine.
    assert_eq!(races(&[computes(1), behind(compute, target, 1), discard(none, S::ALL), draws()]), 0);
    // It orders no commands that its barrier does not order.
    assert_eq!(races(&[computes(2), discard(none, compute), computes(2)]), 1);
    let mut checker = Checker::default();
    submission(&mut checker, 1, &[discard(none, target)]);
    submission(&mut checker, 2, &[computes(1), discard(compute, target)]);
    assert_eq!(reports(&mut checker), []);
    other_queue(&mut checker, read(1, A::COPY_SOURCE, S::COPY));
    assert_eq!(reports(&mut checker).len(), 1);
}
