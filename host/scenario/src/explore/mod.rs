//! Simulation by seed: draws programs, runs them, finds failures, shrinks them.
//!
//! ```text
//!            ┌─ random(seed) ───────┐                          ┌─ every_way: a litmus file, all interleavings
//!  seed ─────┤                      ├─▶ Program ─▶ run_once ───┼─ campaign:  many seeds ─▶ Report
//!            └─ a file, crashes(..) ┘      ▲           ▲       └─ log:       all one run did, as text
//!                                          │        Make: a backend
//!                          shrink ◀── the same class of failure
//! ```
//!
//! Everything here is a function of a program and a seed: no clock, thread or machine influences it. A backend
//! implements [`Make`].

mod campaign;
mod class;
mod crash;
mod draft;
mod exhaustive;
mod gen_faults;
mod gen_objects;
mod log;
mod merge;
mod orders;
mod parts;
mod random;
mod random_escapes;
mod random_lists;
mod random_memory;
pub mod recording;
pub mod reorder;
mod repair;
mod report;
mod shrink;
mod shrink_names;
mod shrink_values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use drivers::{Registry, panic_words};
use dxgkrnl::PlantedBug;

pub use campaign::{CANARY, Plan, Progress, Refused, campaign, canary, program_of};
pub use class::{Class, FailureMode};
pub use crash::crashes;
pub use exhaustive::{ExhaustiveReport, Unlike, every_way, every_way_up_to};
pub use log::log;
pub use random::random;
pub use report::{Found, Histogram, Report, merge};
pub use shrink::{StillFails, shrink};

use crate::choose::{Choose, Random};
use crate::link::LinkWorld;
use crate::model::ModelWorld;
use crate::program::Program;
use crate::run::{Ended, Failure, Verdict, run};
use crate::world::World;

/// A backend for the explorer: it makes a world for each run.
///
/// The world must be a function of its arguments: no clock, and no randomness but the seed's.
pub trait Make: Sync {
    type World<'a>: World
    where
        Self: 'a;

    /// Makes a world. The backend draws its own behaviour, such as delays, orders and faults of a link, from the seed.
    /// `planted` goes into the kernel.
    fn make<'a>(&'a self, program: &'a Program, planted: Option<PlantedBug>, seed: u64) -> Self::World<'a>;
}

/// The model backend. It draws nothing, because a call is one step there.
#[derive(Clone, Debug, Default)]
pub struct ModelBackend {
    /// Drivers that programs may name.
    pub drivers: Registry,
}

impl Make for ModelBackend {
    type World<'a> = ModelWorld<'a>;

    fn make<'a>(&'a self, program: &'a Program, planted: Option<PlantedBug>, _seed: u64) -> ModelWorld<'a> {
        ModelWorld::with_drivers(program, &self.drivers, planted)
    }
}

/// The link backend. It draws the sizes of the pieces in which bytes arrive; the chooser decides which stream is served
/// next.
#[derive(Clone, Debug, Default)]
pub struct LinkBackend {
    /// Drivers that programs may name.
    pub drivers: Registry,
}

impl Make for LinkBackend {
    type World<'a> = LinkWorld<'a>;

    fn make<'a>(&'a self, program: &'a Program, planted: Option<PlantedBug>, seed: u64) -> LinkWorld<'a> {
        LinkWorld::with_drivers(program, &self.drivers, planted, seed)
    }
}

/// Returns the chooser of a seed. Programs, worlds and choosers draw from one seed and share no numbers.
pub fn chooser(seed: u64) -> Random {
    Random::new(Random::new(!seed).number())
}

/// Runs a program in a new world. A panic is a failure too.
pub fn run_once<M: Make>(
    make: &M,
    program: &Program,
    planted: Option<PlantedBug>,
    seed: u64,
    choose: &mut dyn Choose,
) -> Ended {
    run_in(&mut make.make(program, planted, seed), program, choose)
}

fn run_in<W: World>(world: &mut W, program: &Program, choose: &mut dyn Choose) -> Ended {
    caught(|| run(program, world, choose))
}

/// Runs the closure; a panic becomes its failure. The world of a panic is discarded.
fn caught(run: impl FnOnce() -> Ended) -> Ended {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let failure = Failure { line: 0, what: format!("panic: {}", panic_words(&*panic)) };
        Ended::of(Verdict::Failed(failure))
    })
}

/// Returns the failure of a run, if it failed.
pub fn failure(ended: &Ended) -> Option<&Failure> {
    match &ended.verdict {
        Verdict::Failed(failure) => Some(failure),
        Verdict::Passed | Verdict::Skipped(_) | Verdict::Error(_) => None,
    }
}
