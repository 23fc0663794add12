//! Random programs: they read as they print, pass on a right kernel, and find every planted bug.

use dxgkrnl::PlantedBug;
use scenario::explore::{Class, OnModel, chooser, failure, random, run_once};
use scenario::script::{parse, print};

/// The class and text of the seed's failure, if it fails.
fn found(seed: u64, planted: Option<PlantedBug>) -> Option<(Class, String)> {
    let ended = run_once(&OnModel, &random(seed), planted, seed, &mut chooser(seed));
    failure(&ended).map(|failure| (Class::of(failure), failure.to_string()))
}

#[test]
fn a_random_program_reads_as_it_prints() {
    for seed in 0..300 {
        let program = random(seed);
        let text = print(&program);
        let read =
            parse(&text).unwrap_or_else(|errors| panic!("{text}\n{}", errors[0].render("seed", &text)));
        assert_eq!(read, [program], "{text}");
    }
}

#[test]
fn random_programs_pass_on_a_right_kernel() {
    for seed in 0..2000 {
        if let Some((class, what)) = found(seed, None) {
            panic!("seed {seed}: {}: {what}\n{}", class.name(), print(&random(seed)));
        }
    }
}

#[test]
fn every_planted_bug_is_found_within_500_seeds() {
    let wanted = [Class::LostWake, Class::EarlyWake, Class::StaleValue, Class::Answers];
    for (bug, class) in PlantedBug::ALL.into_iter().zip(wanted) {
        let mut seeds = (0..500).filter_map(|seed| found(seed, Some(bug)).map(|found| (seed, found)));
        let (seed, (found, what)) = seeds.next().unwrap_or_else(|| panic!("{} is not found", bug.name()));
        println!("{}: seed {seed}: {what}; {} of 500 seeds", bug.name(), 1 + seeds.count());
        assert_eq!(found, class, "{what}");
    }
}
