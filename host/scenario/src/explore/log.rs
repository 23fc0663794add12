//! The log of a run: all its events as text, identical for the same program and seed.
//!
//! ```text
//! > p  D = device -> anything          a step starts
//!   [0] p1 #1 OpenAdapterFromLuid ..   an input of the kernel, with its time
//!   [0] store p1 slot 0 = 5            its effects: moves, stores, answers, wakes, notes
//!   way 1 of 3                         a choice of the chooser
//! < p  D = device -> ok                an answer arrives
//! passed
//! ```

use std::fmt::Write as _;

use dxgkrnl::PlantedBug;

use super::{Make, chooser, failure, run_in};
use crate::choose::Choose;
use crate::program::Program;
use crate::run::Ended;
use crate::script;
use crate::world::World;

/// Returns the log of the program's run with this seed.
pub fn log<M: Make>(make: &M, program: &Program, planted: Option<PlantedBug>, seed: u64) -> String {
    logged(make, program, planted, seed, &mut chooser(seed)).1
}

/// Returns a run and its log.
pub(super) fn logged<M: Make>(
    make: &M,
    program: &Program,
    planted: Option<PlantedBug>,
    seed: u64,
    choose: &mut dyn Choose,
) -> (Ended, String) {
    let mut world = make.make(program, planted, seed);
    world.keep_log();
    let ended = run_in(&mut world, program, choose);
    let mut log = world.log().map(std::mem::take).unwrap_or_default();
    let race = program.race.as_ref();
    for outcome in ended.outcomes.iter().filter_map(|at| race?.allowed.get(*at)) {
        let _ = writeln!(log, "the race ended in {}", script::write_outcome(program, outcome));
    }
    let _ = match failure(&ended) {
        Some(failure) => writeln!(log, "failed: {failure}"),
        None => writeln!(log, "passed"),
    };
    (ended, log)
}
