//! What the model costs, each figure beside a peer of the same run: ours and the peer in turns, medians of the
//! rounds. `cargo bench -p dxgkrnl [-- --json] [-- --quick]`.
//!
//! - Fences are taken in one random order, the same for ours and for the peer (a permutation, so each once).
//! - "handle" is `Kernel::handle` alone, over calls that were built before; it frees the call's two lists.
//!   "build + handle" builds each call as well: two more allocations.
//! - Values of waits come in ascending or in random order; the names of their events ascend.

#[path = "../../tests/common/counting.rs"]
mod counting;
mod report;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::Instant;

use dxgkrnl::Input;
use report::{Report, median};
use world::World;

/// Calls that are built ahead: few enough to stay in the cache.
const BATCH: usize = 128;

/// Sizes of a run.
struct Scale {
    rounds: usize,
    ops: usize,
    waits: usize,
    fences_most: usize,
}

fn main() {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let scale = if given("--quick") {
        Scale { rounds: 3, ops: 4096, waits: 100_000, fences_most: 100_000 }
    } else {
        Scale { rounds: 21, ops: 16_384, waits: 1_000_000, fences_most: 1_000_000 }
    };
    let mut report = Report::new(given("--json"));
    signals(&scale, &mut report);
    pairs(&scale, &mut report);
    for (fences, random) in [(1, false), (1, true), (1000, false), (1000, true)] {
        waits(&scale, fences, random, &mut report);
    }
    wait_all(&scale, &mut report);
    report.end();
}

/// A permutation of `0..length`, always the same.
fn shuffled(length: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..length as u32).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (1..length).rev() {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

/// Nanoseconds of one of `count` calls, which `make` builds outside of the time that is taken.
fn handle_ns(world: &mut World, count: usize, mut make: impl FnMut(&World, usize) -> Input) -> f64 {
    let mut batch = Vec::with_capacity(BATCH);
    let mut nanos = 0;
    let mut at = 0;
    while at < count {
        batch.extend((at..count.min(at + BATCH)).map(|at| make(world, at)));
        at += batch.len();
        let begin = Instant::now();
        for input in batch.drain(..) {
            world.take(input);
        }
        nanos += begin.elapsed().as_nanos();
    }
    nanos as f64 / count as f64
}

fn ns(count: usize, mut each: impl FnMut(usize)) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(&mut each);
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// Fences and as many entries of a hash map, gone through in one order again and again.
struct Walk {
    world: World,
    map: HashMap<u32, u64>,
    order: Vec<u32>,
    value: u64,
}

impl Walk {
    fn new(fences: usize) -> Self {
        let map = (0..fences as u32).map(|key| (key, 0)).collect();
        let mut walk = Walk { world: World::new(fences), map, order: shuffled(fences), value: 0 };
        walk.signals(fences);
        walk
    }

    fn fence(&self, at: usize) -> usize {
        self.order[(self.value as usize + at) % self.order.len()] as usize
    }

    fn signals(&mut self, count: usize) -> f64 {
        let Walk { world, order, value, .. } = self;
        let fence = |at: usize| order[(*value as usize + at) % order.len()] as usize;
        let took = handle_ns(world, count, |world, at| world.signal(fence(at), *value + at as u64));
        self.value += count as u64;
        took
    }

    fn built_signals(&mut self, count: usize) -> f64 {
        let took = ns(count, |at| {
            let signal = self.world.signal(self.fence(at), self.value + at as u64);
            self.world.take(signal);
        });
        self.value += count as u64;
        took
    }

    /// Wait and signal: each wait is registered, each signal ends one.
    fn pairs(&mut self, count: usize) -> f64 {
        let Walk { world, order, value, .. } = self;
        let took = handle_ns(world, 2 * count, |world, at| {
            let value = *value + at as u64 / 2;
            let fence = order[value as usize % order.len()] as usize;
            if at % 2 == 0 { world.wait(fence, value, value + 1) } else { world.signal(fence, value) }
        });
        assert_eq!(world.effects.events.len(), 1, "the last signal woke");
        self.value += count as u64;
        2.0 * took
    }

    fn peer(&mut self, count: usize) -> f64 {
        ns(count, |at| {
            let key = self.order[(self.value as usize + at) % self.order.len()];
            *self.map.get_mut(black_box(&key)).expect("an entry") = at as u64;
        })
    }
}

fn sizes(most: usize) -> impl Iterator<Item = usize> {
    [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(move |size| *size <= most)
}

fn signals(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..scale.rounds {
            figures[0].push(walk.signals(scale.ops));
            figures[1].push(walk.peer(scale.ops));
            figures[2].push(walk.built_signals(scale.ops));
            figures[3].push(few.signals(scale.ops));
        }
        let [handle, peer, built, base] = &figures;
        report.line(&format!("signal, {fences} fences: handle / hash map"), handle, peer, Some(5.0));
        report.line(&format!("signal, {fences} fences: build + handle / hash map"), built, peer, None);
        let goal = if fences <= 100_000 { 1.5 } else { 3.0 };
        report.line(&format!("signal, {fences} fences / 100 fences"), handle, base, Some(goal));
    }
}

fn pairs(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        walk.pairs(fences);
        let (mut ours, mut base) = (Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            ours.push(walk.pairs(scale.ops));
            base.push(few.pairs(scale.ops));
        }
        report.line(&format!("wait + signal pair, {fences} fences / 100 fences"), &ours, &base, Some(3.0));
        report.rate(&format!("wait + signal pairs a second, {fences} fences"), 1e9 / median(&ours), 3e6);
    }
}

/// One batch of waits, their ends, and a B-tree of equal keys through the same.
fn waits(scale: &Scale, fences: usize, random: bool, report: &mut Report) {
    let count = scale.waits;
    let order = if random { shuffled(count) } else { (0..count as u32).collect() };
    // 1,000 waits end with each signal: of all fences in turn, or of the one.
    let (per_fence, per_signal) = (count / fences, 1000.min(count / fences));
    let place = |at: usize| (order[at] as usize / per_fence, (order[at] as usize % per_fence) as u64 + 1);
    let mut figures = [const { Vec::new() }; 7];
    let mut bytes = 0.0;
    for _ in 0..scale.rounds.div_ceil(7) {
        let mut world = World::new(fences);
        figures[4].push(handle_ns(&mut world, scale.ops, |world, at| world.signal(at % fences, 0)));
        let before = counting::live_bytes();
        figures[0].push(handle_ns(&mut world, count, |world, at| {
            let (fence, value) = place(at);
            world.wait(fence, value, at as u64 + 1)
        }));
        bytes = (counting::live_bytes() - before) as f64 / count as f64;
        let mut peer = BTreeMap::new();
        figures[1].push(ns(count, |at| {
            let (fence, value) = place(at);
            peer.insert((fence as u32, value), at as u32);
        }));
        figures[5].push(handle_ns(&mut world, scale.ops, |world, at| world.signal(at % fences, 0)));
        // A tenth is cancelled, all over the place.
        let cancelled = shuffled(count);
        figures[6]
            .push(handle_ns(&mut world, count / 10, |world, at| world.cancel(u64::from(cancelled[at]) + 1)));
        let left = count - count / 10;
        let signals = count / per_signal;
        let mut woken = 0;
        let took = handle_all(&mut world, signals, &mut woken, |world, at| {
            let end = (at + 1) * per_signal - 1;
            world.signal(end / per_fence, (end % per_fence) as u64 + 1)
        });
        assert_eq!(woken, left, "every wait that was not cancelled ended");
        figures[2].push(took / left as f64);
        figures[3].push(ns(count, |_| drop(black_box(peer.pop_first()))));
    }
    let [arm, insert, wake, pop, free, nobody, cancel] = &figures;
    let order = if random { "random" } else { "ascending" };
    let what = format!("{count} waits on {fences}, {order}");
    report.rate(&format!("{what}: bytes each"), bytes, -96.0);
    report.line(&format!("{what}: arm / B-tree insert"), arm, insert, Some(3.0));
    report.line(&format!("{what}: wake / pop_first"), wake, pop, Some(3.0));
    report.line(&format!("{what}: cancel / B-tree insert"), cancel, insert, None);
    report.line(&format!("{what}: signal that wakes nobody / none waits"), nobody, free, Some(1.5));
}

/// Nanoseconds of all calls together; counts the events set.
fn handle_all(
    world: &mut World,
    count: usize,
    woken: &mut usize,
    mut make: impl FnMut(&World, usize) -> Input,
) -> f64 {
    let mut nanos = 0;
    for at in 0..count {
        let input = make(world, at);
        let begin = Instant::now();
        world.take(input);
        nanos += begin.elapsed().as_nanos();
        *woken += world.effects.events.len();
    }
    nanos as f64
}

/// A wait for all of 1 to 64 fences - 64 in two waits, as a call takes 32 - and the signals that end it.
fn wait_all(scale: &Scale, report: &mut Report) {
    let mut world = World::new(64);
    let mut value = 0;
    let mut round = |fences: usize| {
        let calls = fences.div_ceil(32);
        let ops = scale.ops / fences;
        let took = handle_ns(&mut world, ops * (calls + fences), |world, at| {
            let (round, at) = (at / (calls + fences), at % (calls + fences));
            let value = value + round as u64 + 1;
            match at.checked_sub(calls) {
                None => world.wait_all(at * 32..fences.min((at + 1) * 32), value, at as u64 + 1),
                Some(fence) => world.signal(fence, value),
            }
        });
        value += ops as u64;
        took * (calls + fences) as f64 / fences as f64
    };
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..scale.rounds {
        for (figure, fences) in figures.iter_mut().zip([4, 8, 32, 64]) {
            figure.push(round(fences));
        }
    }
    let [base, others @ ..] = &figures;
    for (figure, fences) in others.iter().zip([8, 32, 64]) {
        report.line(&format!("wait-all of {fences}, per object / of 4"), figure, base, Some(1.5));
    }
}
