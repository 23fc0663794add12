//! `gpupv trace show`: shows steps as lanes of text.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use drivers::Registry;
use timeline::lanes::{self, Selection};
use timeline::{Timeline, vmbus};
use trace::{Reader, Record};

use super::{process_of, timeline_of};
use crate::output::{OK, VERDICT_FAILED, say};

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
    if args.full
        && !args.vmbus
        && let Some(records) = records_without_state(args)?
    {
        records.iter().for_each(|record| say(format_args!("{record}")));
        let is_damaged = records.iter().any(|record| matches!(record, Record::Lost(_)));
        return Ok(if is_damaged { VERDICT_FAILED } else { OK });
    }
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

/// The chosen records of a trace without a state to replay from, which can be listed all the same, by their numbers. `None`
/// if it has a state, or if the choice needs a replay.
fn records_without_state(args: &ShowArgs) -> anyhow::Result<Option<VecDeque<Record>>> {
    let reader = Reader::open(&args.trace)?;
    let needs_replay = args.wait.is_some() || args.fence.is_some() || args.process.is_some();
    if reader.header().first_step <= 1 || needs_replay {
        return Ok(None);
    }
    let most = args.last.unwrap_or(60);
    let mut chosen = VecDeque::new();
    let mut is_first = true;
    for record in reader {
        let record = record?;
        match &record {
            Record::Step { .. } | Record::Lost(_) => {}
            Record::Snapshot { .. } if is_first => return Ok(None),
            Record::Snapshot { .. } | Record::Times(_) | Record::Unknown { .. } | Record::End { .. } => {
                continue;
            }
        }
        is_first = false;
        match args.around {
            Some(around) if record.sequence().abs_diff(around) > args.steps => {}
            Some(_) => chosen.push_back(record),
            None => {
                chosen.push_back(record);
                if chosen.len() > most {
                    chosen.pop_front();
                }
            }
        }
    }
    Ok(Some(chosen))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dxgkrnl::{Config, Effects, FenceStore, Input, ProcessId};
    use trace::{Recorder, Recording};

    use super::*;

    fn args(trace: &Path) -> ShowArgs {
        ShowArgs {
            trace: trace.into(),
            around: None,
            wait: None,
            fence: None,
            process: None,
            last: None,
            steps: 10,
            width: 120,
            full: true,
            vmbus: false,
        }
    }

    #[test]
    fn steps_without_a_state_to_replay_from_are_listed_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gvt");
        let recording = Recording { first_step: Some(101), ..Recording::default() };
        let mut recorder = Recorder::create_as(&path, &Config::default(), "a test", recording).unwrap();
        for now in 1..=200 {
            // A kernel without the state of step 101 would not store this.
            let mut effects = Effects::default();
            effects.stores.push(FenceStore { process: ProcessId(7), slot: 3, value: now });
            recorder.begin(now, &Input::Deadline).unwrap();
            recorder.end(&effects).unwrap();
        }
        recorder.finish(0).unwrap();
        assert_eq!(run(&args(&path), &Registry::default()).unwrap(), OK);
        let listed = |args: &ShowArgs| {
            let records = records_without_state(args).unwrap()?;
            Some(records.iter().map(Record::sequence).collect::<Vec<u64>>())
        };
        assert_eq!(listed(&args(&path)), Some((241..=300).collect()));
        let around = ShowArgs { around: Some(150), steps: 2, ..args(&path) };
        assert_eq!(listed(&around), Some((148..=152).collect()));
        // Which steps name a fence is known from a replay only.
        assert_eq!(listed(&ShowArgs { fence: Some("F0".into()), ..args(&path) }), None);
    }
}
