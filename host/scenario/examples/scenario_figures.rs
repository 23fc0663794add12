//! Measures how fast scenarios run on the backends without a daemon, on one core.
//!
//! `cargo run --release -p scenario --example scenario_figures` runs a 20-line scenario repeatedly, and random programs
//! by seed. The live backends print their rate themselves: `gpupv scenario run --backend local ..`.

use std::time::Instant;

use scenario::choose::{First, Random};
use scenario::explore::{LinkBackend, ModelBackend, chooser, failure, random, run_once};
use scenario::link::LinkWorld;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::parse;
use scenario::{Program, Verdict};

const TWENTY_LINES: &str = include_str!("../../../tests/scenarios/sharing/waits_in_both_processes.scn");
const ROUNDS: u32 = 20_000;

fn rate(what: &str, goal: &str, rounds: u32, mut round: impl FnMut(u64)) {
    let begin = Instant::now();
    (1..=u64::from(rounds)).for_each(&mut round);
    let each = begin.elapsed() / rounds;
    let rate = 1.0 / each.as_secs_f64();
    println!("{what:<44} {each:>10.1?} each {rate:>9.0}/s   goal {goal}");
}

fn passed(verdict: &Verdict) {
    assert_eq!(*verdict, Verdict::Passed);
}

fn main() {
    let program: Program = parse(TWENTY_LINES).expect("a scenario of the corpus").remove(0);
    println!("{}: {} lines", program.title, TWENTY_LINES.lines().count());
    rate("that scenario, model", "10,000/s", ROUNDS, |_| {
        passed(&run(&program, &mut ModelWorld::new(&program, None), &mut First).verdict);
    });
    rate("that scenario, link, a schedule for each seed", "1,000/s", ROUNDS, |seed| {
        let mut world = LinkWorld::new(&program, None, seed);
        passed(&run(&program, &mut world, &mut Random::new(seed)).verdict);
    });
    rate("random programs, model", "-", ROUNDS, |seed| {
        let program = random(seed);
        assert!(
            failure(&run_once(&ModelBackend::default(), &program, None, seed, &mut chooser(seed))).is_none()
        );
    });
    rate("random programs, link", "1,000/s", ROUNDS, |seed| {
        let program = random(seed);
        assert!(
            failure(&run_once(&LinkBackend::default(), &program, None, seed, &mut chooser(seed))).is_none()
        );
    });
}
