//! `gpupv-bench`, the program that `gpupv bench` starts: measures this machine's figures, most next to a raw peer in the
//! same run. It is the command line of gpupv with a `bench` that measures, so it can also be the daemon that is measured.
//!
//! ```text
//!   this process          daemon, raw peers (raw_peers.rs)  guest-bench      figures of a guest process (guest.rs)
//!     kernel_alone.rs     the kernel and the recorder       a `gpupv serve`  at_rest.rs
//!     command_lists.rs    lists and an engine's copy        guest-bench      the flood of another VM (requests.rs)
//!   with --vm             daemon with its bench ports       guest-bench in a QEMU guest
//! ```
//! Measurements are collected as rounds. [`figures`] defines the goal of each figure, and the peer of most. [`statistics`]
//! computes the intervals; a goal is met only if the whole 95% interval of the ratio is inside it.

mod at_rest;
mod at_rest_vm;
mod command_lists;
mod figures;
mod guest;
mod kernel_alone;
mod machine;
mod placement;
mod raw_peers;
mod report;
mod requests;
mod statistics;
mod watched;

use std::process::ExitCode;

use gpupv::commands::bench::{BenchArgs, GUEST_BENCH};
use live::artifacts::{self, Artifacts};
use live::output::{OK, Steps, VERDICT_FAILED, say};
use live::virtual_machine::image::Image;

use figures::Target;
use guest::Collected;
use placement::Cores;

/// Rounds of a full run: the fewest that give a useful interval.
const ROUNDS: u32 = 21;
const ROUNDS_QUICK: u32 = 5;

fn main() -> ExitCode {
    gpupv::cli::main_with_bench(&gpupv::drivers::Registry::default(), run)
}

/// Extent of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: u32,
    pub quick: bool,
    pub without_rings: bool,
    only: String,
}

impl Plan {
    /// Whether one of these figures is wanted.
    fn is_selected(&self, figures: &[&str]) -> bool {
        figures.iter().any(|figure| figure.contains(&self.only))
    }

    /// Returns those of these figures that are wanted.
    fn selected_of(&self, figures: &[&'static str]) -> Vec<&'static str> {
        figures.iter().copied().filter(|figure| self.is_selected(&[figure])).collect()
    }
}

fn run(args: &BenchArgs) -> anyhow::Result<u8> {
    let plan = Plan {
        rounds: args.rounds.unwrap_or(if args.quick { ROUNDS_QUICK } else { ROUNDS }),
        quick: args.quick,
        without_rings: args.without_rings,
        only: args.only.clone(),
    };
    anyhow::ensure!(plan.is_selected(&figures::names()), "no figure has {:?} in its name", plan.only);
    anyhow::ensure!(plan.rounds >= 1, "--rounds must be at least 1");
    let steps = Steps::new();
    let [guest_bench] = &artifacts::programs([GUEST_BENCH], &steps)?;
    if args.vm {
        // A build between two figures would slow the later one.
        Image::provide(&steps, &Artifacts::provide(&steps)?)?;
    }
    let before = machine::Baseline::measure();
    let mut measured = Vec::new();
    let mut local = Collected::default();
    kernel_alone::measure(&plan, &steps, &mut local)?;
    command_lists::measure(&plan, &steps, &mut local)?;
    at_rest::measure(&plan, &steps, guest_bench, &mut local)?;
    let cores = Cores::two()?;
    guest::measure_local(&plan, Target::Local, cores, &steps, guest_bench, &mut local)?;
    measured.push((Target::Local, local));
    if cores != cores.one() {
        let mut one = Collected::default();
        guest::measure_local(&plan, Target::LocalOneCore, cores.one(), &steps, guest_bench, &mut one)?;
        measured.push((Target::LocalOneCore, one));
    }
    if args.vm {
        let mut vm = Collected::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(guest::measure_vm(&plan, cores, &steps, guest_bench, &mut vm))?;
        measured.push((Target::Vm, vm));
    }
    steps.finish();
    let results: Vec<_> =
        measured.iter().flat_map(|(target, collected)| figures::results(*target, collected)).collect();
    let machine = machine::describe(&before, cores);
    if args.json {
        say(format_args!("{:#}", report::to_json(&machine, &plan, &results)));
    } else {
        report::print_table(&machine, &plan, &results);
    }
    let missed = results.iter().any(|result| result.met == Some(false));
    Ok(if missed { VERDICT_FAILED } else { OK })
}
