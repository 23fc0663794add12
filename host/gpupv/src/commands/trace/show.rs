//! `gpupv trace show`: who did what, as lanes of text.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use drivers::Registry;
use timeline::Timeline;
use timeline::lanes::{self, Selection};
use trace::Reader;

use super::timeline_of;
use crate::output::say;

/// Arguments of `gpupv trace show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// Steps before and after this one
    #[arg(long, value_name = "SEQ", group = "what")]
    around: Option<u64>,
    /// A wait from its registration to its wake-up, by process and event: p2:17
    #[arg(long, value_name = "PROCESS:EVENT", group = "what")]
    wait: Option<String>,
    /// Everything that names a fence: F3, or a handle of a process, p2:0x40000080
    #[arg(long, value_name = "FENCE", group = "what")]
    fence: Option<String>,
    /// What a process does, and when it is woken: p2
    #[arg(long, value_name = "PROCESS", group = "what")]
    process: Option<String>,
    /// The last so many steps; 60 without any of these
    #[arg(long, value_name = "N", group = "what")]
    last: Option<usize>,
    /// With --around: how many steps on either side
    #[arg(long, value_name = "N", default_value_t = 10, requires = "around")]
    steps: u64,
    /// Columns of characters
    #[arg(long, default_value_t = 120)]
    width: usize,
    /// The records of these steps in full instead: inputs and all effects
    #[arg(long)]
    full: bool,
}

pub fn run(args: &ShowArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (timeline, code) = timeline_of(&args.trace, drivers, &timeline::Options::default())?;
    let selection = selection(args, &timeline)?;
    let nothing =
        || format!("{}: nothing of that is in it; gpupv trace stats lists what is", args.trace.display());
    if args.full {
        print_records(args, &lanes::steps(&timeline, &selection).with_context(nothing)?)?;
    } else {
        let text = lanes::text(&timeline, &selection, args.width).with_context(nothing)?;
        say(format_args!("{}", text.trim_end()));
    }
    Ok(code)
}

fn print_records(args: &ShowArgs, steps: &BTreeSet<u64>) -> anyhow::Result<()> {
    let last = steps.last().copied().unwrap_or(0);
    // What is damaged was told while the trace was read for the first time.
    for record in Reader::open(&args.trace)?.map_while(Result::ok) {
        if record.sequence() > last {
            break;
        }
        if steps.contains(&record.sequence()) {
            say(format_args!("{record}"));
        }
    }
    Ok(())
}

fn selection(args: &ShowArgs, timeline: &Timeline) -> anyhow::Result<Selection> {
    Ok(match args {
        ShowArgs { around: Some(sequence), .. } => Selection::Around(*sequence, args.steps),
        ShowArgs { wait: Some(wait), .. } => {
            let (process, event) = wait
                .split_once(':')
                .with_context(|| format!("{wait:?} is no wait: name process and event, as in p2:17"))?;
            let event = event.parse().with_context(|| format!("{event:?} is no event: it is a number"))?;
            Selection::Wait(number_of(process)?, event)
        }
        ShowArgs { fence: Some(fence), .. } => Selection::Fence(fence_of(fence, timeline)?),
        ShowArgs { process: Some(process), .. } => Selection::Process(number_of(process)?),
        ShowArgs { last, .. } => Selection::Last(last.unwrap_or(60)),
    })
}

fn number_of(process: &str) -> anyhow::Result<u32> {
    let digits = process.strip_prefix('p').unwrap_or(process);
    digits.parse().with_context(|| format!("{process:?} is no process: name it as in p2"))
}

fn fence_of(text: &str, timeline: &Timeline) -> anyhow::Result<u32> {
    if let Some((process, handle)) = text.split_once(':') {
        let process = dxgkrnl::ProcessId(number_of(process)?);
        let digits = handle.strip_prefix("0x").unwrap_or(handle);
        let handle = u32::from_str_radix(digits, 16)
            .with_context(|| format!("{handle:?} is no handle: it is a number as in 0x40000080"))?;
        // Handles are used again: the last object of that name is meant.
        let is_it = |fence: &timeline::Fence| fence.opens.contains(&(process, handle));
        let found = timeline.fences.iter().rposition(is_it);
        return found.map(|at| at as u32).with_context(|| {
            format!("p{} has no synchronization object {handle:#x} in this trace", process.0)
        });
    }
    let number = text.strip_prefix(['F', 'f']).unwrap_or(text);
    match number.parse::<u32>() {
        Ok(fence) if (fence as usize) < timeline.fences.len() => Ok(fence),
        Ok(fence) => {
            bail!("the trace has no F{fence}: it has F0 to F{}", timeline.fences.len().saturating_sub(1))
        }
        Err(_) => bail!("{text:?} is no fence: name it as in F3, or by a handle, as in p2:0x40000080"),
    }
}
