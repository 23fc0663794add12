//! What waits and signals cost in memory. Counted, not timed: `benches/model` takes the times.

#[path = "common/counting.rs"]
mod counting;
#[path = "../benches/model/measure/world.rs"]
mod world;

use counting::{allocations, live_bytes};
use d3dkmt::NtStatus;
use world::World;

/// Bytes that one pending wait may cost on the host.
const WAIT_BYTES_MAX: f64 = 96.0;

/// A permutation of `0..count` for a `count` that the factor does not divide.
fn scattered(at: usize, count: usize) -> usize {
    (at * 7_919) % count
}

#[test]
fn a_pending_wait_costs_little_on_one_fence_and_on_many_in_any_order() {
    const WAITS: usize = 200_000;
    for fences in [1, 1000] {
        for random in [false, true] {
            let mut world = World::new(fences);
            let before = live_bytes();
            for at in 0..WAITS {
                let place = if random { scattered(at, WAITS) } else { at };
                let wait = world.wait(place % fences, (place / fences) as u64 + 1, at as u64 + 1);
                world.take(wait);
            }
            let each = (live_bytes() - before) as f64 / WAITS as f64;
            assert!(each <= WAIT_BYTES_MAX, "{each} bytes: {fences} fences, random: {random}");
            // Nothing stays behind but what the next few waits need.
            for fence in 0..fences {
                let signal = world.signal(fence, u64::MAX);
                world.take(signal);
            }
            world.effects = Default::default();
            let left = live_bytes() - before;
            assert!(left <= 512 * fences as isize + 65_536, "{left} bytes stay: {fences} fences");
        }
    }
}

#[test]
fn waits_that_come_and_go_for_long_cost_no_more_than_those_that_stay() {
    const WAITS: usize = 50_000;
    let mut world = World::new(1);
    let before = live_bytes();
    let event = |round: u64, at: usize| (scattered(at * 3, WAITS) as u64) * 8 + round + 1;
    // Each round begins waits with names and values of all sizes, and cancels as many of those before.
    for round in 0..6_u64 {
        for at in 0..WAITS {
            let wait = world.wait(0, scattered(at * 7, WAITS) as u64 * 5 + round + 1, event(round, at));
            world.take(wait);
            if round > 0 {
                let cancel = world.cancel(event(round - 1, at * 11 % WAITS));
                world.take(cancel);
            }
        }
        let each = (live_bytes() - before) as f64 / WAITS as f64;
        assert!(each <= WAIT_BYTES_MAX, "{each} bytes in round {round}");
        assert_eq!(world.pending(), WAITS, "every name that was cancelled was found");
    }
    // The names of the last round are pending: none may be taken twice.
    for at in 0..100 {
        let again = world.wait(0, u64::MAX, event(5, at));
        world.take(again);
        assert_eq!(world.effects.answers[0].status, NtStatus::INVALID_PARAMETER);
        let free = world.wait(0, u64::MAX, event(4, at));
        world.take(free);
        assert_eq!(world.effects.answers[0].status, NtStatus::SUCCESS);
    }
    assert_eq!(world.pending(), WAITS + 100);
}

/// Allocations while such a call is made, and the kernel is told of it and takes it.
fn taking(world: &mut World, call: impl FnOnce(&World) -> dxgkrnl::Input) -> u64 {
    let before = allocations();
    let input = call(world);
    world.expect(std::slice::from_ref(&input));
    world.take(input);
    allocations() - before
}

#[test]
fn a_signal_allocates_nothing_whoever_waits() {
    let mut world = World::new(64);
    for value in 1..100_u64 {
        let warm = value > 2;
        let check = |what: &str, count: u64| assert!(!warm || count == 0, "{what}: {count} allocations");
        // Nobody waits for it.
        check("a signal", taking(&mut world, |world| world.signal(0, 10 * value)));
        // One waits, then a few.
        for waiters in [1, 5] {
            for event in 0..waiters {
                let wait = |world: &World| world.wait(0, 10 * value + waiters, 1 + event);
                check("a wait", taking(&mut world, wait));
            }
            let signal = |world: &World| world.signal(0, 10 * value + waiters);
            check("a signal that wakes", taking(&mut world, signal));
            assert_eq!(world.effects.events.len() as u64, waiters);
        }
        // Two waits for all of 32: the calls may allocate, the signals may not.
        for half in [0..32, 32..64] {
            let wait = world.wait_all(half.clone(), 10 * value + 9, 1 + half.start as u64);
            world.take(wait);
        }
        for fence in 0..64 {
            let signal = |world: &World| world.signal(fence, 10 * value + 9);
            check("a signal of a wait for all", taking(&mut world, signal));
            assert_eq!(world.effects.events.len(), usize::from(fence % 32 == 31));
        }
    }
}

#[test]
fn waking_many_allocates_nothing_in_whatever_order_they_came() {
    const WAITS: usize = 20_000;
    let mut world = World::new(1);
    // The lists of effects get their room.
    for input in [world.wait(0, 1, 1), world.signal(0, 1)] {
        world.take(input);
    }
    for round in 0..2_u64 {
        let base = round * WAITS as u64;
        for at in 0..WAITS {
            let wait = world.wait(0, base + scattered(at, WAITS) as u64 + 2, at as u64 + 1);
            world.take(wait);
        }
        let mut signalling = 0;
        for at in 0..WAITS {
            signalling += taking(&mut world, |world| world.signal(0, base + at as u64 + 2));
            assert_eq!(world.effects.events.len(), 1);
        }
        assert_eq!(signalling, 0);
    }
}
