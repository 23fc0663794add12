//! `gpupv replay`: feeds a recorded trace to a new kernel and compares the effects.

mod live;
mod step;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use drivers::Registry;
use serde_json::{Value, json};
use timeline::duration;
use trace::{Player, Reader, ReplayRange, Report, Stop, TraceError, replay_part};

use crate::commands::inspect::render_kernel;
use crate::daemon::inspection::of_kernel;
use crate::daemon::naming::length_of_time;
use crate::output::{OK, SET_UP_FAILED, Steps, VERDICT_FAILED, complain, say};

/// Arguments of `gpupv replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// Start at the last snapshot before this place, instead of at the first step. Exit code 2 if the trace does not
    /// reach it
    #[arg(long, value_name = "PLACE")]
    pub from: Option<Stop>,
    /// Stop at this place: seq=120, time=1.5ms (of the daemon's clock, as in `gpupv trace show`),
    /// 'fence=p2:0x40000080>=5', wait=p2:7 or note=TEXT. Exit code 2 if the trace does not reach it,
    /// or if it is before that of --from. A time after the last step means the whole trace
    #[arg(long, value_name = "PLACE")]
    pub until: Option<Stop>,
    /// Print the whole state of the kernel where the replay stops
    #[arg(long)]
    pub state: bool,
    /// Step through the trace by hand, forwards and backwards: commands from standard input, `h` lists them
    #[arg(long, conflicts_with = "json")]
    pub step: bool,
    /// Replay against a running daemon, at the broker of this socket (`gpupv serve` prints it): new processes make the
    /// recorded calls through the C ABI
    #[arg(long, value_name = "BROKER", conflicts_with_all = ["from", "until", "state", "step"])]
    pub at: Option<PathBuf>,
    /// Replay only this VM; `host` means local processes. What other VMs did in the recording, their real counterparts
    /// must do now
    #[arg(long, value_name = "NAME", requires = "at")]
    pub vm: Option<String>,
    /// With --at: end the replay when a call or wait has not returned for this long that did in the recording: 500ms,
    /// 2s. By default 120s more than the recording took from its first process on; with --vm there is no limit
    #[arg(long, value_name = "TIME", requires = "at", value_parser = time)]
    pub wait_max: Option<Duration>,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    length_of_time(text).map(Duration::from_nanos)
}

pub fn run(args: &ReplayArgs, drivers: &Registry) -> anyhow::Result<u8> {
    if let Some(broker) = &args.at {
        return live::run(args, broker);
    }
    // Damage of the trace itself is reported below.
    if let Err(error) = crate::daemon::journal::complete(&args.trace, drivers) {
        complain(format_args!(
            "the state that {} starts from cannot be computed: {error:#}",
            args.trace.display()
        ));
    }
    let mut player = match Reader::open(&args.trace).and_then(|reader| Player::new(reader, drivers)) {
        Ok(player) => player,
        // Even the header is lost: still a finding about the trace, not an error of the caller.
        Err(error @ TraceError::Damaged { .. }) => {
            print(args, "damaged", None, &error.to_string(), None);
            return Ok(VERDICT_FAILED);
        }
        Err(error) => return Err(error.into()),
    };
    if args.step {
        player = player.that_goes_back();
        return step::run(args, &mut player, &mut std::io::stdin().lock());
    }
    let steps = Steps::new();
    let part = ReplayRange { from: args.from.clone(), until: args.until.clone() };
    let report = replay_part(&mut player, &part, &mut |done, all| {
        steps.step(format!("replaying {}: {}%", args.trace.display(), done * 100 / all.max(1)));
    });
    steps.finish();
    let report = report?;
    let mut text = report.to_string();
    if let Some(sequence) = report.sequence() {
        let trace = args.trace.display();
        text += &format!(
            "\n  to inspect it: gpupv replay {trace} --from seq={sequence} --until seq={sequence} --step"
        );
    }
    let missed = args.until.as_ref().filter(|_| report.agrees() && report.stopped.is_none());
    if let Some(place) = missed {
        let (last, time) = (player.next().saturating_sub(1), duration(player.now()));
        text += &match is_exact(place) {
            true => format!("\n  the place of --until is not in the trace: its last step is #{last}"),
            false => {
                format!("\n  the trace ends before the time of --until: its last step is #{last}, at {time}")
            }
        };
    }
    let is_missed = missed.is_some_and(is_exact);
    print(args, report.verdict.name(), Some(&report), &text, args.state.then_some(&player));
    Ok(match report.agrees() {
        true if is_missed => SET_UP_FAILED,
        true => OK,
        false => VERDICT_FAILED,
    })
}

/// Whether a place is one step. A time after the last step means the whole trace.
fn is_exact(place: &Stop) -> bool {
    match place {
        Stop::Time(_) => false,
        Stop::Sequence(_) | Stop::Fence { .. } | Stop::Wait { .. } | Stop::Note(_) => true,
    }
}

fn print(args: &ReplayArgs, verdict: &str, report: Option<&Report>, text: &str, state: Option<&Player>) {
    let state = state.map(|player| of_kernel(player.kernel()));
    if !args.json {
        say(format_args!("{text}"));
        if let Some(state) = state {
            say(format_args!("{}", render_kernel(&state).trim_end()));
        }
        return;
    }
    let mut value = json!({
        "trace": args.trace, "verdict": verdict, "steps": report.map(|report| report.steps),
        "ended": report.map(|report| report.ended), "report": text,
    });
    if let Some(report) = report {
        add(&mut value, report);
    }
    if let Some(state) = state {
        value["state"] = json!(state);
    }
    say(format_args!("{value}"));
}

fn add(value: &mut Value, report: &Report) {
    value["from"] = json!(report.from);
    value["stopped_before"] = json!(report.stopped);
    value["resumed_before"] = json!(report.resumed);
    value["diverged_at"] = json!(report.sequence());
    value["agreed"] =
        json!(report.agreed.map(|(sequence, digest)| json!({ "before": sequence, "digest": digest })));
    let causes = report.causes.iter().flat_map(|causes| &causes.last).map(|cause| {
        json!({ "sequence": cause.sequence, "now_ns": cause.now, "input": cause.input, "note": cause.note })
    });
    value["causes"] = causes.collect();
}
