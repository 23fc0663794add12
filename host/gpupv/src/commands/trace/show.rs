//! `gpupv trace show`: shows steps as lanes of text.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use drivers::Registry;
use timeline::lanes::{self, Selection};
use timeline::{Timeline, vmbus};
use trace::Reader;

use super::{process_of, timeline_of};
use crate::output::say;

/// Arguments of `gpupv trace show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// The steps around this one
    #[arg(long, value_name = "SEQ", group = "what")]
    around: Option<u64>,
    /// A wait from its registration to its wake-up, by process and event: p2:17
    #[arg(long, value_name = "PROCESS:EVENT", group = "what")]
    wait: Option<String>,
    /// All steps that name a fence: F3, or a handle of a process, p2:0x40000080
    #[arg(long, value_name = "FENCE", group = "what")]
    fence: Option<String>,
    /// All steps of a process, and its wake-ups, by its name or its number: p2
    #[arg(long, value_name = "PROCESS", group = "what")]
    process: Option<String>,
    /// The last N steps; the default is 60
    #[arg(long, value_name = "N", group = "what")]
    last: Option<usize>,
    /// With --around: number of steps on either side
    #[arg(long, value_name = "N", default_value_t = 10, requires = "around")]
    steps: u64,
    /// Width of the output, in characters
    #[arg(long, default_value_t = 120)]
    width: usize,
    /// Print the full records of these steps instead: inputs and all effects
    #[arg(long)]
    full: bool,
    /// Print these steps as messages of the VM bus, as the Linux guest driver names them; with --full, below the records
    #[arg(long)]
    vmbus: bool,
}

pub fn run(args: &ShowArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (timeline, code) = timeline_of(&args.trace, drivers, &timeline::Options::default())?;
    let selection = selection(args, &timeline)?;
    let no_selection = || {
        format!("{}: no step matches; `gpupv trace stats` lists processes and fences", args.trace.display())
    };
    if args.full || args.vmbus {
        print_records(args, &timeline, &lanes::steps(&timeline, &selection).with_context(no_selection)?)?;
    } else {
        let text = lanes::text(&timeline, &selection, args.width).with_context(no_selection)?;
        say(format_args!("{}", text.trim_end()));
    }
    Ok(code)
}

fn print_records(args: &ShowArgs, timeline: &Timeline, steps: &BTreeSet<u64>) -> anyhow::Result<()> {
    let last = steps.last().copied().unwrap_or(0);
    if args.vmbus {
        say(format_args!("{}", vmbus::heading(args.width)));
    }
    // Damage was already reported by the first reading.
    for record in Reader::open(&args.trace)?.map_while(Result::ok) {
        if record.sequence() > last {
            break;
        }
        if !steps.contains(&record.sequence()) {
            continue;
        }
        if args.full {
            say(format_args!("{record}"));
        }
        if args.vmbus {
            for line in vmbus::lines(timeline, &record, args.width) {
                say(format_args!("{line}"));
            }
        }
    }
    Ok(())
}

fn selection(args: &ShowArgs, timeline: &Timeline) -> anyhow::Result<Selection> {
    Ok(match args {
        ShowArgs { around: Some(sequence), .. } => Selection::Near(*sequence, args.steps),
        ShowArgs { wait: Some(wait), .. } => {
            let (process, event) = wait.split_once(':').with_context(|| {
                format!("{wait:?} is no wait: name a process and an event, such as p2:17")
            })?;
            let event = event.parse().with_context(|| format!("{event:?} is no event: it is a number"))?;
            Selection::Wait(process_of(process, timeline)?, event)
        }
        ShowArgs { fence: Some(fence), .. } => Selection::Fence(fence_of(fence, timeline)?),
        ShowArgs { process: Some(process), .. } => Selection::Process(process_of(process, timeline)?),
        ShowArgs { last, .. } => Selection::Last(last.unwrap_or(60)),
    })
}

fn fence_of(text: &str, timeline: &Timeline) -> anyhow::Result<u32> {
    if let Some((process, handle)) = text.split_once(':') {
        let process = dxgkrnl::ProcessId(process_of(process, timeline)?);
        let digits = handle.strip_prefix("0x").unwrap_or(handle);
        let handle = u32::from_str_radix(digits, 16)
            .with_context(|| format!("{handle:?} is no handle: write it like 0x40000080"))?;
        // Handles are reused: the last object with this handle is meant.
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
        Err(_) => bail!("{text:?} is no fence: write it like F3, or as a handle, like p2:0x40000080"),
    }
}
