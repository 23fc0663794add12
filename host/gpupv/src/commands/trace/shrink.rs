//! `gpupv trace shrink`: finds the smallest scenario that shows the failure at the end of a recording.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{anyhow, bail};
use clap::Args;
use drivers::Registry;
use scenario::explore::recording::{Kept, NotReduced, Smallest, reduce, wrong};
use scenario::from_trace::Converted;
use scenario::program::{Action, Fault};
use serde_json::json;
use trace::Stop;

use super::recorded;
use crate::commands::output_file::{OutputFile, Replace};
use crate::output::{OK, Steps, VERDICT_FAILED, complain, say};

/// Arguments of `gpupv trace shrink`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without --keep, the first wait that is stuck at the end must stay, or the broken law. With it, any \
                        wait with this verdict counts. A wait that was stuck and then killed is not stuck at the end: \
                        use --until. The scenario ends with what it shows, as `expect why p dead-end F>=4`, and passes \
                        on every backend for as long as that happens. Exit codes: 0 it is found, 1 it is found but the \
                        trace is damaged, 2 an error."
)]
pub struct ShrinkArgs {
    /// The trace file (.gvt), from its first step on
    pub trace: PathBuf,
    /// The failure that must stay: a verdict of `gpupv why`, such as cycle, or note=TEXT; may be given several times
    #[arg(long, value_name = "VERDICT")]
    pub keep: Vec<Kept>,
    /// Use only the steps before this place: seq=120, time=1.5ms, 'fence=p2:0x40000080>=5', wait=p2:7 or note=TEXT
    #[arg(long, value_name = "PLACE")]
    pub until: Option<Stop>,
    /// Write the scenario (.scn) here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub replace: Replace,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &ShrinkArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (replace, read) = (args.replace, [&*args.trace]);
    let output =
        args.output.as_deref().map(|path| OutputFile { path, option: "--output", replace, read: &read });
    output.as_ref().map_or(Ok(()), OutputFile::check)?;
    let steps = Steps::new();
    steps.step(format!("reading {}", args.trace.display()));
    let recorded = recorded::read(&args.trace, args.until.as_ref(), drivers)?;
    let converted = &recorded.converted;
    let kept =
        if args.keep.is_empty() { failures_to_keep(args, converted, drivers)? } else { args.keep.clone() };
    let words: Vec<String> = kept.iter().map(|kept| kept.in_words(converted)).collect();
    steps.step(format!("shrinking {} steps that show: {}", recorded.steps.len(), words.join(", ")));
    let begun = Instant::now();
    let smallest = reduce(&converted.program, &kept, drivers).map_err(|error| {
        let trace = args.trace.display();
        let hint = match &error {
            NotReduced::Otherwise(_) => format!("; `gpupv why {trace}` shows its waits"),
            NotReduced::NotSaid => String::new(),
        };
        anyhow!("cannot shrink {trace}: {error}{hint}")
    })?;
    steps.finish();
    if let Some(output) = output {
        output.write(smallest.text.as_bytes())?;
    }
    print_result(args, &recorded.steps.len(), &words, &smallest, begun);
    Ok(if recorded.is_damaged { VERDICT_FAILED } else { OK })
}

/// Returns the failures to keep: those of `--keep`, or the first one at the end.
fn failures_to_keep(
    args: &ShrinkArgs,
    converted: &Converted,
    drivers: &Registry,
) -> anyhow::Result<Vec<Kept>> {
    let mut wrong = wrong(&converted.program, drivers);
    if wrong.is_empty() {
        let trace = args.trace.display();
        let ends = || converted.origins.iter().zip(&converted.program.steps).skip(converted.last_ends);
        let kill = ends().find(|(_, step)| matches!(step.action, Action::Fault(Fault::Kill(_))));
        // A crash may be why processes of other VMs are stuck.
        let crash = || ends().find(|(_, step)| matches!(step.action, Action::Fault(Fault::CrashVm(_))));
        let hint = match kill.or_else(crash) {
            // Recorded steps are counted from 0 here.
            Some((before, _)) => {
                let end = before + 1;
                format!(
                    "if `gpupv why {trace} --at {before}` shows one, use --until seq={end}, where its processes begin to end"
                )
            }
            None => {
                format!("if `gpupv why {trace} --at N` shows one, use --until seq= with the number after N")
            }
        };
        bail!(
            "{trace}: nothing is stuck at its end and no law is broken, so there is nothing to shrink to; name the failure \
             with --keep, or with --until a place where a wait is stuck: {hint}"
        );
    }
    let verdict = |kept: &Kept| match kept {
        Kept::Wait(wait) => Some(wait.verdict),
        Kept::Verdict(_) | Kept::Note(_) | Kept::Broken(_) => None,
    };
    let first = verdict(&wrong[0]);
    if wrong.len() > 1 {
        complain(format_args!(
            "{} waits are stuck at the end of the trace; it is shrunk to the first: {}",
            wrong.len(),
            wrong[0].in_words(converted)
        ));
    }
    for other in &wrong[1..] {
        let hint = match verdict(other).filter(|verdict| Some(*verdict) != first) {
            Some(verdict) => format!("; --keep {verdict} shrinks to a wait with that verdict"),
            None => String::new(),
        };
        complain(format_args!("the trace also shows {}{hint}", other.in_words(converted)));
    }
    wrong.truncate(1);
    Ok(wrong)
}

fn print_result(args: &ShrinkArgs, before: &usize, kept: &[String], smallest: &Smallest, begun: Instant) {
    let steps = smallest.program.steps.len();
    if args.json {
        let value = json!({
            "trace": args.trace, "steps": before, "kept": kept, "steps_left": steps, "tried": smallest.tried,
            "scenario": smallest.text, "output": args.output,
        });
        return say(format_args!("{value:#}"));
    }
    complain(format_args!(
        "{before} steps became {steps}, in {} runs and {:.1} s: {}",
        smallest.tried,
        begun.elapsed().as_secs_f64(),
        kept.join(", ")
    ));
    match &args.output {
        Some(path) => {
            // By the names that the file has.
            let shown = smallest.kept.iter().map(Kept::to_string).collect::<Vec<_>>().join(", ");
            say(format_args!("{shown}: gpupv scenario run {}", path.display()));
        }
        None => say(format_args!("{}", smallest.text.trim_end())),
    }
}
