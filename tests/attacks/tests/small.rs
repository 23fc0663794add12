//! Every attack at a small scale, judged by counts: answers, descriptors, mappings, processes, bytes, units of work.

use std::path::PathBuf;

use attacks::run::{AttackTarget, Programs};
use attacks::table::{KNOWN, all};

#[test]
fn no_attack_at_a_small_scale_does_harm_beyond_what_is_known() {
    attacks::raise_file_limit();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_attacks"));
    let programs = Programs { daemon: program.clone(), suite: program };
    let mut attacks = all();
    attacks.retain(|attack| !attack.full_only);
    // Few daemons, many attacks each.
    attacks.sort_by_key(|attack| attack.setup);
    let mut place: Option<AttackTarget> = None;
    let mut surprises = Vec::new();
    for attack in &attacks {
        if !place.as_mut().is_some_and(|place| place.is_at(attack.setup)) {
            place = None;
        }
        let place = place.get_or_insert_with(|| AttackTarget::new(&programs, attack.setup));
        let mut outcome = place.run(attack, false);
        outcome.judge_counts();
        outcome.judge_rounds();
        if place.daemon.is_alive()
            && let Err(why) = place.victim_goes_on()
        {
            outcome.faults.push(format!("after it the victim: {why}"));
        }
        let known = KNOWN.iter().find(|(name, _)| *name == attack.name);
        match (known, outcome.faults.is_empty()) {
            (None, true) | (Some(_), false) => {}
            (None, false) => surprises.push(format!("{}: {}", attack.name, outcome.faults.join("; "))),
            (Some((name, why)), true) => {
                surprises.push(format!("{name} is withstood: take it out of KNOWN ({why})"));
            }
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn names_are_unique_and_what_is_known_is_an_attack() {
    let mut names: Vec<&str> = all().iter().map(|attack| attack.name).collect();
    for (known, _) in KNOWN {
        assert!(names.contains(known), "{known} is no attack");
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
