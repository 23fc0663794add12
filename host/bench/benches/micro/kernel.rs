//! The kernel alone, by number of fences; the rounds are those of `gpupv bench`.

use divan::Bencher;
use divan::counter::ItemsCount;
use gpupv_bench::kernel::lists::{COMMANDS, Lists};
use gpupv_bench::kernel::{WaitAll, Walk, operations};

const FENCES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
const OPERATIONS: usize = 2048;

fn walk(bencher: Bencher, fences: usize, mut round: impl FnMut(&mut Walk, usize) -> f64) {
    let (mut walk, count) = (Walk::new(fences), operations(fences, OPERATIONS));
    bencher.counter(ItemsCount::new(count)).bench_local(|| round(&mut walk, count));
}

#[divan::bench(args = FENCES)]
fn signals(bencher: Bencher, fences: usize) {
    walk(bencher, fences, Walk::signals);
}

#[divan::bench(args = FENCES)]
fn signals_alone(bencher: Bencher, fences: usize) {
    walk(bencher, fences, Walk::signals_alone);
}

/// The peer of signals.
#[divan::bench(args = FENCES)]
fn hash_map(bencher: Bencher, fences: usize) {
    walk(bencher, fences, Walk::peer);
}

#[divan::bench(args = FENCES)]
fn pairs_of_wait_and_signal(bencher: Bencher, fences: usize) {
    walk(bencher, fences, Walk::pairs);
}

/// Items are objects of the wait.
#[divan::bench(args = [4, 8, 32, 64])]
fn wait_all(bencher: Bencher, fences: usize) {
    let mut waits = WaitAll::default();
    bencher.counter(ItemsCount::new(OPERATIONS)).bench_local(|| waits.round(fences, OPERATIONS));
}

/// Commands with a barrier, from the call to their end, with and without the race detector.
#[divan::bench(args = [false, true])]
fn list_commands(bencher: Bencher, hazards: bool) {
    let mut lists = Lists::new(hazards);
    bencher.counter(ItemsCount::new(COMMANDS)).bench_local(|| lists.commands(1));
}
