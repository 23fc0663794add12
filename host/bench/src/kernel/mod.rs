//! Rounds of measurements of the model, ours and a peer alternately. `gpupv bench` and `cargo bench -p gpupv-bench`
//! print them.
//!
//! The clock is the thread's CPU time, so that other load on the machine does not count. What that load does to the
//! caches shows in both columns.
//! - Fences are used in one random order, the same for ours and for the peer (a permutation, so each once).
//! - Signals and pairs are handled in turns of 16, as the daemon reads them from a stream (`CALLS_PER_TURN_MAX`): the
//!   calls are built, the kernel prefetches for all of them, and handles one after the other. All of that is in the
//!   time. "By itself": each is built and handled before the next, without a prefetch.
//! - Waits, cancels and wake-ups are built before the clock is read.
//! - Values of waits come in random order; the names of their events ascend.

pub mod lists;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hint::black_box;

use dxgkrnl::Input;
use rustix::time::{ClockId, clock_gettime};
pub use world::World;

/// Calls that are built ahead: few enough to stay in the cache.
const BATCH: usize = 256;

/// Calls of a turn.
const TURN: usize = 16;

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

/// Nanoseconds of one of `count` calls, which `make` builds outside of the measured time.
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

fn take(world: &mut World, input: Input) -> Result<(), Infallible> {
    world.take(input);
    Ok(())
}

/// Nanoseconds that this thread had a processor.
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of one of `count` times.
pub fn ns(count: usize, mut each: impl FnMut(usize)) -> f64 {
    let begin = thread_ns();
    (0..count).for_each(&mut each);
    (thread_ns() - begin) as f64 / count as f64
}

/// Fences and as many entries of a hash map, visited in one order again and again.
pub struct Walk {
    world: World,
    map: HashMap<u32, u64>,
    order: Vec<u32>,
    value: u64,
}

/// Operations of a round over so many fences: it visits a good part of them, and what fits the cache is there then.
pub fn operations(fences: usize, least: usize) -> usize {
    fences.clamp(least, 8 * least)
}

impl Walk {
    pub fn new(fences: usize) -> Self {
        let map = (0..fences as u32).map(|key| (key, 0)).collect();
        let (mut world, order) = (World::new(fences), shuffled(fences));
        // Handles in the order of the walk: a caller has its handle, as the peer has its key.
        world.fences = order.iter().map(|at| world.fences[*at as usize]).collect();
        let mut walk = Walk { world, map, order, value: 0 };
        walk.signals(fences);
        walk
    }

    fn index_at(&self, at: usize) -> usize {
        (self.value as usize + at) % self.order.len()
    }

    /// Nanoseconds of one of `count` calls in turns, each built by `make` and passed to `step`.
    fn in_turns<E>(
        &mut self,
        count: usize,
        make: impl Fn(&Walk, usize) -> Input,
        mut step: impl FnMut(&mut World, Input) -> Result<(), E>,
    ) -> Result<f64, E> {
        let mut turn = Vec::with_capacity(TURN);
        let begin = thread_ns();
        for at in (0..count).step_by(TURN) {
            turn.extend((at..count.min(at + TURN)).map(|at| make(self, at)));
            self.world.expect(&turn);
            for input in turn.drain(..) {
                step(&mut self.world, input)?;
            }
        }
        Ok((thread_ns() - begin) as f64 / count as f64)
    }

    fn signal(&self, at: usize) -> Input {
        self.world.signal(self.index_at(at), self.value + at as u64)
    }

    pub fn signals(&mut self, count: usize) -> f64 {
        let Ok(nanos) = self.signals_to(count, take);
        nanos
    }

    /// The same signals, each passed to `step`.
    pub fn signals_to<E>(
        &mut self,
        count: usize,
        step: impl FnMut(&mut World, Input) -> Result<(), E>,
    ) -> Result<f64, E> {
        let nanos = self.in_turns(count, Walk::signal, step);
        self.value += count as u64;
        nanos
    }

    /// The same signals, each by itself.
    pub fn signals_alone(&mut self, count: usize) -> f64 {
        let nanos = ns(count, |at| {
            let signal = self.signal(at);
            self.world.take(signal);
        });
        self.value += count as u64;
        nanos
    }

    /// Wait and signal: each wait is registered, each signal ends one.
    pub fn pairs(&mut self, count: usize) -> f64 {
        let make = |walk: &Walk, at: usize| {
            let (fence, value) = (walk.index_at(at / 2), walk.value + (at / 2) as u64);
            match at % 2 {
                0 => walk.world.wait(fence, value, value + 1),
                _ => walk.world.signal(fence, value),
            }
        };
        let Ok(each) = self.in_turns(2 * count, make, take);
        let nanos = 2.0 * each;
        assert_eq!(self.world.effects.events.len(), 1, "the last signal woke");
        self.value += count as u64;
        nanos
    }

    pub fn peer(&mut self, count: usize) -> f64 {
        ns(count, |at| {
            let key = self.order[self.index_at(at)];
            *self.map.get_mut(black_box(&key)).expect("an entry") = at as u64;
        })
    }
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

/// Waits on some fences: how they are armed, cancelled and ended.
pub struct Waits {
    pub count: usize,
    pub fences: usize,
}

/// Nanoseconds of one operation each, beside what a B-tree of equal keys takes.
#[derive(Default, Debug)]
pub struct WaitRound {
    pub arm: f64,
    pub insert: f64,
    pub wake: f64,
    pub pop: f64,
    pub cancel: f64,
    /// Removing as many from the B-tree, in the same order.
    pub remove: f64,
    /// Bytes that the caller's meter counts for each pending wait.
    pub bytes: f64,
    /// Signals that wake nobody while all wait, and as many while none does.
    pub wakes_nobody: Vec<(f64, f64)>,
}

impl Waits {
    /// Arms them all, cancels a tenth of them in random order, and ends the rest, 1,000 with each signal: of all
    /// fences in turn, or of the one. `held` returns how many bytes are allocated.
    pub fn round(&self, signals: usize, held: impl Fn() -> f64) -> WaitRound {
        let Waits { count, fences } = *self;
        let order = shuffled(count);
        let (per_fence, per_signal) = (count / fences, 1000.min(count / fences));
        let fence_and_value =
            |at: usize| (order[at] as usize / per_fence, (order[at] as usize % per_fence) as u64 + 1);
        let (mut world, mut empty) = (World::new(fences), World::new(fences));
        let before = held();
        let arm = handle_ns(&mut world, count, |world, at| {
            let (fence, value) = fence_and_value(at);
            world.wait(fence, value, at as u64 + 1)
        });
        let bytes = (held() - before) / count as f64;
        let mut peer = BTreeMap::new();
        let insert = ns(count, |at| {
            let (fence, value) = fence_and_value(at);
            peer.insert((fence as u32, value), at as u32);
        });
        let without_waiters =
            |world: &mut World| handle_ns(world, signals, |world, at| world.signal(at % fences, 0));
        let wakes_nobody =
            (0..5).map(|_| (without_waiters(&mut world), without_waiters(&mut empty))).collect();
        let cancelled = shuffled(count);
        let cancel =
            handle_ns(&mut world, count / 10, |world, at| world.cancel(u64::from(cancelled[at]) + 1));
        let remove = ns(count / 10, |at| {
            let (fence, value) = fence_and_value(cancelled[at] as usize);
            black_box(peer.remove(&(fence as u32, value)));
        });
        let remaining = count - count / 10;
        let mut woken = 0;
        let took = handle_all(&mut world, count / per_signal, &mut woken, |world, at| {
            let end = (at + 1) * per_signal - 1;
            world.signal(end / per_fence, (end % per_fence) as u64 + 1)
        });
        assert_eq!(woken, remaining, "every wait that was not cancelled ended");
        let pop = ns(remaining, |_| {
            black_box(peer.pop_first());
        });
        let wake = took / remaining as f64;
        WaitRound { arm, insert, wake, pop, cancel, remove, bytes, wakes_nobody }
    }
}

/// Waits for all of some fences - 64 in two waits, as a call takes 32 - and the signals that end them.
pub struct WaitAll {
    world: World,
    value: u64,
}

impl Default for WaitAll {
    fn default() -> Self {
        WaitAll { world: World::new(64), value: 0 }
    }
}

impl WaitAll {
    /// Nanoseconds for each object.
    pub fn round(&mut self, fences: usize, operations: usize) -> f64 {
        let calls = fences.div_ceil(32);
        let (operations, value) = (operations / fences, self.value);
        let took = handle_ns(&mut self.world, operations * (calls + fences), |world, at| {
            let (round, at) = (at / (calls + fences), at % (calls + fences));
            let value = value + round as u64 + 1;
            match at.checked_sub(calls) {
                None => world.wait_all(at * 32..fences.min((at + 1) * 32), value, at as u64 + 1),
                Some(fence) => world.signal(fence, value),
            }
        });
        self.value += operations as u64;
        took * (calls + fences) as f64 / fences as f64
    }
}
