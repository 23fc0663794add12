//! `gpupv scenario`: writes, checks, lists, runs and explores scenarios.
//!
//! ```text
//!  PATH.. ──files──▶ cases ──run──▶ backends (one runner for each job) ──▶ scenario::report ──▶ text, JSON, JUnit, TAP
//! ```

mod backends;
mod check;
mod explore;
mod explored;
mod files;
mod list;
mod merge;
mod new;
mod panics;
mod ranges;
mod report_file;
mod result_files;
mod run_files;
mod sink;
#[cfg(test)]
mod tests;
mod trace_folder;
mod work;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use drivers::Registry;
use scenario::Program;

use crate::cleanup;

pub use backends::BackendRunner;
pub(crate) use explored::shell_word;

/// Arguments of `gpupv scenario`.
#[derive(Args, Debug)]
pub struct ScenarioArgs {
    #[command(subcommand)]
    pub command: ScenarioCommand,
}

#[derive(Subcommand, Debug)]
pub enum ScenarioCommand {
    /// Write a template of a scenario
    New(new::NewArgs),
    /// Read scenarios and report all their errors
    Check(check::CheckArgs),
    /// List the cases of scenarios, the rules that they cover, and the backends that they skip
    List(list::ListArgs),
    /// Run every case on every backend; the backends must agree
    Run(run_files::RunArgs),
    /// Run interleavings, links, crashes and whole programs drawn by seed, and every interleaving of a race
    Explore(Box<explore::ExploreArgs>),
    /// Merge the reports of shards of `run` and `explore`
    Merge(merge::MergeArgs),
}

/// Files and folders to read.
#[derive(Args, Debug)]
pub struct PathArgs {
    /// Scenario files, or folders with .scn files at any depth
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

pub fn run(args: &ScenarioArgs, drivers: &Registry) -> anyhow::Result<u8> {
    match &args.command {
        ScenarioCommand::New(args) => new::run(args),
        ScenarioCommand::Check(args) => check::run(args, drivers),
        ScenarioCommand::List(args) => list::run(args),
        ScenarioCommand::Run(args) => {
            cleanup::on_signals()?;
            run_files::run(args, drivers)
        }
        ScenarioCommand::Explore(args) => {
            cleanup::on_signals()?;
            explore::run(args, drivers)
        }
        ScenarioCommand::Merge(args) => merge::run(args),
    }
}

/// The cases that `--case` chooses: the case of exactly that name, as `v=1` beside `v=10`, or else those with this text
/// in their name or title.
struct ChosenCases<'a> {
    text: Option<&'a str>,
    is_name: bool,
}

impl<'a> ChosenCases<'a> {
    fn new<'p>(text: Option<&'a str>, programs: impl IntoIterator<Item = &'p Program>) -> Self {
        let is_name = text
            .is_some_and(|text| !text.is_empty() && programs.into_iter().any(|program| program.case == text));
        ChosenCases { text, is_name }
    }

    fn has(&self, program: &Program) -> bool {
        match self.text {
            None => true,
            Some(text) if self.is_name => program.case == text,
            Some(text) => program.case.contains(text) || program.title.contains(text),
        }
    }
}

/// Parses `--jobs`.
fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it is a number of cases that run at the same time, from 1".into())
}
