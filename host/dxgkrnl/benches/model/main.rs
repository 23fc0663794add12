//! What the model costs, each figure beside a peer of the same run: ours and the peer in turns, medians of the
//! rounds. `cargo bench -p dxgkrnl --bench model -- [--json] [--quick] [signals] [pairs] [waits] [wait-all]`.
//!
//! The clock is the thread's own time on a processor: a busy machine takes turns with us, which is no cost of ours.
//! What it does to the caches meanwhile shows in both columns.
//! - Fences are taken in one random order, the same for ours and for the peer (a permutation, so each once).
//! - Signals and pairs build their calls as they go, as a decoder would: two allocations each, freed by the kernel.
//!   What that costs is a line of its own. Waits, cancels and wake-ups are built before the clock is read.
//! - Values of waits come in ascending or in random order; the names of their events ascend.

#[path = "../../tests/common/counting.rs"]
mod counting;
mod report;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

use dxgkrnl::Input;
use report::{Report, median};
use rustix::time::{ClockId, clock_gettime};
use world::World;

/// Calls that are built ahead: few enough to stay in the cache.
const BATCH: usize = 256;

/// Sizes of a run.
struct Scale {
    rounds: usize,
    ops: usize,
    waits: usize,
    fences_most: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // `cargo test --all-targets` runs it too, without this flag.
    let scale = if given("--quick") || !given("--bench") {
        Scale { rounds: 5, ops: 2048, waits: 100_000, fences_most: 100_000 }
    } else {
        Scale { rounds: 101, ops: 2048, waits: 1_000_000, fences_most: 1_000_000 }
    };
    let mut sections = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    let all = sections.peek().is_none();
    let wanted = |section: &str| all || given(section);
    let mut report = Report::new(given("--json"));
    if wanted("signals") {
        signals(&scale, &mut report);
    }
    if wanted("pairs") {
        pairs(&scale, &mut report);
    }
    if wanted("waits") {
        for (fences, random) in [(1, false), (1, true), (1000, false), (1000, true)] {
            waits(&scale, fences, random, &mut report);
        }
    }
    if wanted("wait-all") {
        wait_all(&scale, &mut report);
    }
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
        let begin = thread_ns();
        for input in batch.drain(..) {
            world.take(input);
        }
        nanos += thread_ns() - begin;
    }
    nanos as f64 / count as f64
}

/// Nanoseconds that this thread had a processor.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ns(count: usize, mut each: impl FnMut(usize)) -> f64 {
    let begin = thread_ns();
    (0..count).for_each(&mut each);
    (thread_ns() - begin) as f64 / count as f64
}

/// Fences and as many entries of a hash map, gone through in one order again and again.
struct Walk {
    world: World,
    map: HashMap<u32, u64>,
    entries: Vec<(u64, u64)>,
    lines: Vec<[u64; 8]>,
    order: Vec<u32>,
    value: u64,
}

impl Walk {
    fn new(fences: usize) -> Self {
        let map = (0..fences as u32).map(|key| (key, 0)).collect();
        let entries = (0..fences as u64).map(|entry| (entry, 1)).collect();
        let (mut world, order) = (World::new(fences), shuffled(fences));
        // Handles in the order of the walk: a caller has its handle, as the peer has its key.
        world.fences = order.iter().map(|at| world.fences[*at as usize]).collect();
        let mut walk = Walk { world, map, entries, lines: vec![[1; 8]; fences], order, value: 0 };
        walk.signals(fences);
        walk
    }

    fn place(&self, at: usize) -> usize {
        (self.value as usize + at) % self.order.len()
    }

    fn signals(&mut self, count: usize) -> f64 {
        let took = ns(count, |at| {
            let signal = self.world.signal(self.place(at), self.value + at as u64);
            self.world.take(signal);
        });
        self.value += count as u64;
        took
    }

    /// What building and dropping such a call costs: it is part of each figure.
    fn calls(&mut self, count: usize) -> f64 {
        ns(count, |at| drop(black_box(self.world.signal(self.place(at), at as u64))))
    }

    /// Wait and signal: each wait is registered, each signal ends one.
    fn pairs(&mut self, count: usize) -> f64 {
        let took = ns(count, |at| {
            let (fence, value) = (self.place(at), self.value + at as u64);
            let wait = self.world.wait(fence, value, value + 1);
            self.world.take(wait);
            let signal = self.world.signal(fence, value);
            self.world.take(signal);
        });
        assert_eq!(self.world.effects.events.len(), 1, "the last signal woke");
        self.value += count as u64;
        took
    }

    /// The least that a handle and its object can cost: an entry of 16 bytes leads to a line of 64.
    fn chase(&mut self, count: usize) -> f64 {
        ns(count, |at| {
            let entry = self.entries[self.order[self.place(at)] as usize];
            self.lines[entry.0 as usize][0] += entry.1;
        })
    }

    fn peer(&mut self, count: usize) -> f64 {
        ns(count, |at| {
            let key = self.order[self.place(at)];
            *self.map.get_mut(black_box(&key)).expect("an entry") = at as u64;
        })
    }
}

fn sizes(most: usize) -> impl Iterator<Item = usize> {
    [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(move |size| *size <= most)
}

fn signals(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    let calls: Vec<f64> = (0..scale.rounds).map(|_| few.calls(scale.ops)).collect();
    report.line("of each signal: building and dropping the call", &calls, &calls, None);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        let mut figures = [const { Vec::new() }; 4];
        // A round goes through a good part of the fences: what fits the cache is there then.
        let ops = fences.clamp(scale.ops, 8 * scale.ops);
        for _ in 0..scale.rounds {
            figures[0].push(walk.signals(ops));
            figures[1].push(walk.peer(ops));
            figures[2].push(few.signals(ops));
            figures[3].push(walk.chase(ops));
        }
        let [ours, peer, base, chase] = &figures;
        report.line(&format!("signal, {fences} fences / hash map"), ours, peer, Some(5.0));
        let goal = if fences <= 100_000 { 1.5 } else { 3.0 };
        report.line(&format!("signal, {fences} fences / 100 fences"), ours, base, Some(goal));
        report.line(&format!("signal, {fences} fences / two dependent loads of its size"), ours, chase, None);
    }
}

fn pairs(scale: &Scale, report: &mut Report) {
    let mut few = Walk::new(100);
    for fences in sizes(scale.fences_most) {
        let mut walk = Walk::new(fences);
        walk.pairs(fences);
        let (mut ours, mut base) = (Vec::new(), Vec::new());
        let ops = fences.clamp(scale.ops, 8 * scale.ops);
        for _ in 0..scale.rounds {
            ours.push(walk.pairs(ops));
            base.push(few.pairs(ops));
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
    for _ in 0..scale.rounds.div_ceil(30) {
        let (mut world, mut empty) = (World::new(fences), World::new(fences));
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
        for _ in 0..5 {
            for (figure, world) in [(4, &mut empty), (5, &mut world)] {
                figures[figure].push(handle_ns(world, scale.ops, |world, at| world.signal(at % fences, 0)));
            }
        }
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
        figures[3].push(ns(count, |_| {
            black_box(peer.pop_first());
        }));
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
        let begin = thread_ns();
        world.take(input);
        nanos += thread_ns() - begin;
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
