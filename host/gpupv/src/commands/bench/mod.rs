//! `gpupv bench`: measures this machine's figures, each next to a raw peer in the same run.
//!
//! ```text
//!   this process          daemon, raw peers (peers.rs)      guest-bench      figures of a guest process
//!     model.rs            the kernel alone                  a `gpupv serve`  at_rest.rs
//!                                                           guest-bench      the flood of another VM: flood.rs
//!   with --vm             daemon with its bench ports       guest-bench in a QEMU guest
//! ```
//! Measurements are collected as rounds. [`figures`] defines the peer and the goal of each figure. [`statistics`]
//! computes the intervals; a goal is met only if the whole 95% interval of the ratio is inside it.

mod at_rest;
mod at_rest_vm;
mod figures;
mod flood;
mod guest;
mod lists;
mod machine;
mod model;
mod peers;
mod placement;
mod ports;
mod recorded;
mod report;
mod statistics;
mod watched;

use clap::Args;

use crate::artifacts::Artifacts;
use crate::output::{OK, Steps, VERDICT_FAILED, say};
use figures::Target;
use guest::Collected;
use placement::Cores;

/// Rounds of a full run: the fewest that give a useful interval.
const ROUNDS: u32 = 21;
const ROUNDS_QUICK: u32 = 5;

/// Arguments of `gpupv bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Measure in a QEMU guest as well
    #[arg(long)]
    pub vm: bool,
    /// Rounds of each figure; each round measures ours and the peer
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// A tenth of the operations and few rounds: a check that it works, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Only figures with this text in their name
    #[arg(long, value_name = "WORD", default_value = "")]
    pub only: String,
}

/// Extent of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: u32,
    pub quick: bool,
    only: String,
}

impl Plan {
    /// Whether one of these figures is wanted.
    fn wants(&self, figures: &[&str]) -> bool {
        figures.iter().any(|figure| figure.contains(&self.only))
    }

    /// Returns those of these figures that are wanted.
    fn wanted(&self, figures: &[&'static str]) -> Vec<&'static str> {
        figures.iter().copied().filter(|figure| self.wants(&[figure])).collect()
    }
}

pub fn run(args: &BenchArgs) -> anyhow::Result<u8> {
    let plan = Plan {
        rounds: args.rounds.unwrap_or(if args.quick { ROUNDS_QUICK } else { ROUNDS }),
        quick: args.quick,
        only: args.only.clone(),
    };
    anyhow::ensure!(plan.wants(&figures::names()), "no figure has {:?} in its name", plan.only);
    anyhow::ensure!(plan.rounds >= 1, "--rounds must be at least 1");
    let steps = Steps::new();
    let artifacts = Artifacts::provide(&steps)?;
    let before = machine::Baseline::measure();
    let mut measured = Vec::new();
    let mut local = Collected::default();
    model::measure(&plan, &steps, &mut local)?;
    lists::measure(&plan, &steps, &mut local)?;
    at_rest::measure(&plan, &steps, &artifacts, &mut local)?;
    let cores = Cores::two()?;
    guest::measure_local(&plan, Target::Local, cores, &steps, &artifacts, &mut local)?;
    measured.push((Target::Local, local));
    if cores != cores.one() {
        let mut one = Collected::default();
        guest::measure_local(&plan, Target::LocalOneCore, cores.one(), &steps, &artifacts, &mut one)?;
        measured.push((Target::LocalOneCore, one));
    }
    if args.vm {
        let mut vm = Collected::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(guest::measure_vm(&plan, cores, &steps, &artifacts, &mut vm))?;
        measured.push((Target::Vm, vm));
    }
    steps.finish();
    let results: Vec<_> =
        measured.iter().flat_map(|(place, collected)| figures::results(*place, collected)).collect();
    let machine = machine::describe(&before, cores);
    if args.json {
        say(format_args!("{:#}", report::to_json(&machine, &plan, &results)));
    } else {
        report::print_table(&machine, &plan, &results);
    }
    let missed = results.iter().any(|result| result.met == Some(false));
    Ok(if missed { VERDICT_FAILED } else { OK })
}
