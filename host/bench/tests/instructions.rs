//! How many instructions the kernel executes for one operation, held to a limit: wall-clock time says nothing on a shared
//! machine, and a scan, an allocation or a copy that a change adds is seen here at once.
//!
//! A child process executes the operations; this one lets it run one instruction at a time and counts them. What the
//! child does beside the operations is the same for few and for many, so the difference of two counts is theirs. The
//! limits are those of the tests' profile, with a quarter more, for other compilers; `cargo test --release` prints the
//! counts of that one.
//!
//! `unsafe`: forks, and traces the child with `ptrace`.

#[path = "../../dxgkrnl/tests/common/executed.rs"]
mod executed;

use executed::executed;
use gpupv_bench::kernel::{Walk, World};

/// Instructions of one operation, if `work` does as many as it is told.
fn of_one(few: usize, many: usize, mut work: impl FnMut(usize)) -> f64 {
    let [few_executed, many_executed] = [few, many].map(|count| executed(|| work(count)));
    (many_executed - few_executed) as f64 / (many - few) as f64
}

fn hold(what: &str, instructions: f64, limit: f64) {
    println!("{what}: {instructions:.0} instructions");
    let is_tests_profile = cfg!(debug_assertions);
    assert!(!is_tests_profile || instructions <= limit, "{what}: {instructions:.0}, the limit is {limit}");
    assert!(
        !is_tests_profile || instructions > limit / 2.0,
        "{what}: {instructions:.0}: lower the limit of {limit}"
    );
}

#[test]
fn signals_waits_and_wakes_execute_no_more_instructions_than_before() {
    let [mut few, mut many] = [100, 10_000].map(Walk::new);
    let [in_few, in_many] = [&mut few, &mut many].map(|walk| {
        of_one(0, 16, |count| {
            walk.signals(count);
        })
    });
    hold("a CPU signal, in turns of 16", in_many, 4300.0);
    assert!((in_many - in_few).abs() < 40.0, "{in_many:.0} among 10,000 fences, {in_few:.0} among 100");
    let pair = of_one(1, 9, |count| {
        many.pairs(count);
    });
    hold("a wait, and the signal that ends it", pair, 11_100.0);
    let mut world = World::new(1);
    let by_context = of_one(1, 9, |count| {
        for value in 1..=count {
            let signal = world.gpu_signal(0, value as u64);
            world.take(signal);
        }
    });
    hold("a one-way signal by a context", by_context, 2700.0);
    let mut world = World::new(1);
    for at in 1..=1000 {
        let wait = world.wait(0, at, at);
        world.take(wait);
    }
    let wake = of_one(1, 21, |count| {
        let signal = world.signal(0, count as u64);
        world.take(signal);
    });
    hold("one of a thousand waits that a signal ends", wake, 1000.0);
}
