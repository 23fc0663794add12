//! `gpupv trace reorder`: runs other legal orders of a recording.

use std::path::PathBuf;

use clap::Args;
use d3dkmt::Call;
use drivers::Registry;
use dxgkrnl::Input;
use scenario::explore::reorder::{Budget, Change, Found, Outcome, Reordered, reorder};
use serde_json::{Value, json};
use trace::Stop;

use super::recorded::{self, Recorded};
use crate::commands::output_file::{OutputFile, Replace};
use crate::output::{OK, Progress, VERDICT_FAILED, say};

/// Arguments of `gpupv trace reorder`.
#[derive(Args, Debug)]
#[command(
    after_help = "An order is legal if each process, VM and clock does what it does in its order, names are given \
                        before they are used, and a process continues after the waits that had ended have ended. A process is assumed not to \
                        have read its fence memory. The first half of the orders reverses one race each, \
                        the rest is drawn at random. Exit codes: 0 no order hangs or breaks a law, but those that open a name before its \
                        share (other final values are reported), 1 one does or the trace is damaged, 2 an error. Names such as F3 are those of the \
                        scenario; p1:0x40000100 behind one is its process and handle in the trace."
)]
pub struct ReorderArgs {
    /// The trace file (.gvt), from its first step on
    pub trace: PathBuf,
    /// Number of other orders to run
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub orders: u64,
    /// Seed of the randomly drawn orders
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Use only the steps before this place: seq=120, time=1.5ms, 'fence=p2:0x40000080>=5', wait=p2:7 or note=TEXT
    #[arg(long, value_name = "PLACE")]
    pub until: Option<Stop>,
    /// Write the first failure as a scenario (.scn) with the fewest steps that show it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub replace: Replace,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &ReorderArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (replace, read) = (args.replace, [&*args.trace]);
    let output =
        args.output.as_deref().map(|path| OutputFile { path, option: "--output", replace, read: &read });
    output.as_ref().map_or(Ok(()), OutputFile::check)?;
    let recorded = recorded::read(&args.trace, args.until.as_ref(), drivers)?;
    let progress = Progress::new("orders", args.orders);
    let budget = Budget { orders: args.orders, seed: args.seed };
    let reordered =
        reorder(&recorded.converted, budget, drivers, &mut |done| progress.set(done, args.orders, 0));
    progress.finish();
    let failure = reordered.found.iter().find(|found| found.outcome.is_failure());
    if let (Some(output), Some(Found { smallest: Some(text), .. })) = (&output, failure) {
        output.write(text.as_bytes())?;
    }
    if args.json {
        say(format_args!("{:#}", to_json(args, &recorded, &reordered)));
    } else {
        print_result(args, &recorded, &reordered);
    }
    let has_failed = failure.is_some_and(|found| !found.by_name);
    Ok(if has_failed || recorded.is_damaged { VERDICT_FAILED } else { OK })
}

const UNORDERED_NAME: &str = "\n  nothing in the trace orders this share and the open of its name; programs may do so by \
                              means of their own";

/// Whether the first step gives a name to an object that the second one opens by a name.
fn is_of_name(recorded: &Recorded, first: usize, second: usize) -> bool {
    let call = |step: usize| match recorded.steps.get(step) {
        Some((_, Input::Call { call, .. }, _)) => Some(call),
        _ => None,
    };
    matches!(call(first), Some(Call::ShareObjects { name: Some(_), .. }))
        && matches!(call(second), Some(Call::OpenNtHandleFromName { .. }))
}

/// Describes how an order differs from the recorded one.
fn change_in_words(recorded: &Recorded, change: &Change) -> String {
    let line = |step: usize| {
        let input = recorded.steps.get(step).map(|(_, input, _)| input.to_string()).unwrap_or_default();
        format!("#{} {input}", step + 1)
    };
    match *change {
        Change::None => "in the recorded order".into(),
        Change::Race { first, second } => {
            let note = if is_of_name(recorded, first, second) { UNORDERED_NAME } else { "" };
            format!("if {}\n  comes after {}{note}", line(first), line(second))
        }
        Change::Priorities { draw } => format!("in an order by priorities, draw {draw}"),
        Change::LongerWait => "in an order in which a process waits longer".into(),
    }
}

fn print_result(args: &ReorderArgs, recorded: &Recorded, reordered: &Reordered) {
    let Reordered { races, orders, found } = reordered;
    say(format_args!(
        "{races} pairs of steps on the same object are unordered; {orders} other orders were run"
    ));
    for found in found {
        let times = if found.orders == 1 { "one order".into() } else { format!("{} orders", found.orders) };
        let outcome = found.outcome.in_words(&recorded.converted);
        say(format_args!("{outcome} ({times})\n  {}", change_in_words(recorded, &found.change)));
        if let Some(answered) = &found.answered {
            say(format_args!(
                "  a call then has another answer, so its program may act differently: {answered}"
            ));
        }
        if found.outcome.is_failure()
            && args.output.is_none()
            && let Some(text) = &found.smallest
        {
            say(format_args!("  as a scenario (--output FILE writes it):\n\n{}\n", text.trim_end()));
        }
    }
    match &args.output {
        Some(path) if found.iter().any(|found| found.outcome.is_failure() && found.smallest.is_some()) => {
            say(format_args!("reproduce the first with: gpupv scenario run {}", path.display()));
        }
        _ if found.is_empty() && recorded.is_damaged => {
            say(format_args!("each has the recorded outcome, up to the damage of the trace"));
        }
        _ if found.is_empty() => say(format_args!("each has the recorded outcome")),
        _ => {}
    }
}

fn to_json(args: &ReorderArgs, recorded: &Recorded, reordered: &Reordered) -> Value {
    let one = |found: &Found| {
        let change = match found.change {
            Change::None | Change::LongerWait => Value::Null,
            Change::Race { first, second } => json!({ "step": first + 1, "behind": second + 1 }),
            Change::Priorities { draw } => json!({ "draw": draw }),
        };
        let kind = match found.outcome {
            Outcome::Waits(_) => "waits",
            Outcome::Broken { .. } => "broken",
            Outcome::OtherValues { .. } => "other-values",
        };
        json!({
            "kind": kind, "failure": found.outcome.is_failure(), "what": found.outcome.in_words(&recorded.converted),
            "orders": found.orders, "change": change, "answered": found.answered, "scenario": found.smallest,
        })
    };
    json!({
        "trace": args.trace, "steps": recorded.steps.len(), "races": reordered.races, "orders": reordered.orders,
        "seed": args.seed, "found": reordered.found.iter().map(one).collect::<Vec<_>>(),
    })
}
