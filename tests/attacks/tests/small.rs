//! Every attack at a small scale, judged by counts: answers, descriptors, mappings, processes, bytes, units of work.

use std::path::PathBuf;

use attacks::run::{AttackTarget, Programs};
use attacks::table::{KNOWN, all};

#[test]
fn small_scale_attacks_do_only_known_harm() {
    attacks::raise_file_limit();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_attacks"));
    let programs = Programs { daemon: program.clone(), suite: program };
    let mut attacks = all();
    attacks.retain(|attack| !attack.full_only);
    // Sorted by setup, so that few daemons serve many attacks.
    attacks.sort_by_key(|attack| attack.setup);
    let mut target: Option<AttackTarget> = None;
    let mut surprises = Vec::new();
    for attack in &attacks {
        if !target.as_mut().is_some_and(|target| target.is_at(attack.setup)) {
            target = None;
        }
        let target = target.get_or_insert_with(|| AttackTarget::new(&programs, attack.setup));
        let mut outcome = target.run(attack, false);
        outcome.judge_counts();
        outcome.judge_rounds();
        if target.daemon.is_alive()
            && let Err(why) = target.check_victim_progress()
        {
            outcome.faults.push(format!("the victim after the attack: {why}"));
        }
        let known = KNOWN.iter().find(|(name, _)| *name == attack.name);
        match (known, outcome.faults.is_empty()) {
            (None, true) | (Some(_), false) => {}
            (None, false) => surprises.push(format!("{}: {}", attack.name, outcome.faults.join("; "))),
            (Some((name, why)), true) => {
                surprises.push(format!("the daemon withstands {name} now: remove it from KNOWN ({why})"));
            }
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn names_are_unique_and_known_failures_name_attacks() {
    let mut names: Vec<&str> = all().iter().map(|attack| attack.name).collect();
    for (known, _) in KNOWN {
        assert!(names.contains(known), "KNOWN names {known}, which is no attack");
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
