//! `gpupv why TRACE`: replays the trace to its end, or to a place in it, and asks the kernel there.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::bail;
use drivers::Registry;
use dxgkrnl::Nanos;
use dxgkrnl::why::Question;
use proto::control::WhyReply;
use trace::{Player, PlayerStep, Reader, Stop};

use super::WhyArgs;
use crate::daemon::naming::{length_of_time, recorded_process_named};
use crate::daemon::why_reply::{no_such_wait, to_reply};
use crate::output::Steps;

/// A position in a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TracePosition {
    /// After the step of this number.
    Step(u64),
    /// After the last step before this time.
    Time(Nanos),
    /// A place in the words of `gpupv replay`.
    Stop(Stop),
}

impl FromStr for TracePosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('=') {
            return text.parse().map(TracePosition::Stop).map_err(|error: trace::NoStop| error.to_string());
        }
        match text.strip_prefix('#').unwrap_or(text).parse() {
            Ok(step) => Ok(TracePosition::Step(step)),
            Err(_) => length_of_time(text).map(TracePosition::Time).map_err(|why| {
                format!("neither the number of a step, as 120, nor a time, nor a place as seq=120 or wait=p2:7: {why}")
            }),
        }
    }
}

impl TracePosition {
    fn stop(&self) -> Stop {
        match self {
            TracePosition::Step(step) => Stop::Sequence(step.saturating_add(1)),
            TracePosition::Time(time) => Stop::Time(*time),
            TracePosition::Stop(stop) => stop.clone(),
        }
    }
}

/// The answer, and the position in the trace that it is about.
pub struct WaitReport {
    pub reply: WhyReply,
    pub upto: String,
}

/// Position up to which the trace was replayed.
struct Upto {
    /// The last step that was replayed; `None`: the state is that before the first step.
    step: Option<u64>,
    /// Whether the trace has no step after it.
    is_end: bool,
    /// Why the state is not certain, if it is not.
    cut: Option<String>,
}

impl Upto {
    /// The position of a player.
    fn of(player: &Player, is_end: bool, cut: Option<String>) -> Upto {
        let first = player.reader().header().first_step;
        let step = player.next().checked_sub(1).filter(|step| *step >= first);
        // After a loss, the state is that before the lost steps.
        Upto { step, is_end: is_end && player.is_in_place(), cut }
    }

    /// Whether the trace has a step behind the requested place, so that the state there is known.
    fn is_reached(&self) -> bool {
        !self.is_end && self.cut.is_none()
    }
}

impl fmt::Display for Upto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.is_end) {
            (Some(step), true) => write!(f, "at the end of the trace, after step #{step}")?,
            (Some(step), false) => write!(f, "after step #{step} of the trace")?,
            (None, true) => write!(f, "at the end of the trace, which has no steps")?,
            (None, false) => write!(f, "before the first step of the trace")?,
        }
        self.cut.as_ref().map_or(Ok(()), |cut| write!(f, "; what follows is not known: {cut}"))
    }
}

pub fn ask(path: &Path, args: &WhyArgs, registry: &Registry) -> anyhow::Result<WaitReport> {
    let mut player = Player::new(Reader::open(path)?, registry)?;
    let steps = Steps::new();
    steps.step(format!("replaying {}", path.display()));
    let upto = match &args.at {
        None => to_the_end(&mut player)?,
        Some(at) => go_to(&mut player, &at.stop(), path)?,
    };
    steps.finish();
    // The requested time may be later than the last step before it, but nobody knows what waits at a time in lost steps
    // or behind the end.
    let now = match args.at {
        Some(TracePosition::Time(time)) if upto.is_reached() => time,
        Some(TracePosition::Time(_) | TracePosition::Step(_) | TracePosition::Stop(_)) | None => 0,
    };
    let kernel = player.kernel();
    let process = args.process.as_deref().map(|wanted| {
        let processes = kernel.snapshot().processes;
        recorded_process_named(wanted, processes.iter().map(|one| (one.process, one.name.as_str())))
    });
    let process = process.transpose().map_err(anyhow::Error::msg)?;
    let defaults = Question::default();
    let most = args.most.map_or(defaults.most, |most| most as usize);
    let question = Question { process, event: args.wait, most, now, ..defaults };
    let why = kernel.why_and_what_if(&question, || if args.no_trials { None } else { player.copy().ok() });
    if let Some(error) = no_such_wait(&question, &why, |question| kernel.why(question)) {
        bail!("{}: {error}", path.display());
    }
    let mut upto = upto.to_string();
    if args.at.is_none()
        && why.causes.is_empty()
        && let Some(dropped) = last_dropped(path, registry)
    {
        upto += &format!("\n{dropped}");
    }
    Ok(WaitReport { reply: to_reply(&why, args.svg.is_some()), upto })
}

/// Names the last wait that ended because its process or device did.
fn last_dropped(path: &Path, registry: &Registry) -> Option<String> {
    let reader = Reader::open(path).ok()?;
    let timeline = timeline::read(reader, registry, &timeline::Options::default(), &mut |_, _| {}).ok()?;
    let dropped = timeline.waits.iter().filter(|wait| wait.outcome == timeline::Outcome::Dropped);
    let last = dropped.max_by_key(|wait| wait.end.sequence)?;
    let (step, before) = (last.end.sequence, last.end.sequence.saturating_sub(1));
    let path = path.display();
    Some(format!(
        "a wait was dropped in step #{step}, when its process or device ended: gpupv why {path} --at {before}"
    ))
}

/// Replays as much as possible.
fn to_the_end(player: &mut Player) -> anyhow::Result<Upto> {
    let mut cut = None;
    loop {
        match player.play()? {
            PlayerStep::Step { sequence, finished: false, .. } => {
                cut = Some(format!("the kernel did not return from step #{sequence}"));
            }
            // A snapshot after a loss makes the state certain again.
            PlayerStep::Snapshot { restored: true, .. } => cut = None,
            PlayerStep::Step { .. } | PlayerStep::Snapshot { .. } => {}
            PlayerStep::Lost(lost) if lost.loses_steps() => cut = Some(lost.to_string()),
            PlayerStep::Lost(_) => {}
            PlayerStep::Stopped(verdict) => return Ok(Upto::of(player, false, Some(stopped(&verdict)))),
            PlayerStep::End { .. } | PlayerStep::Over if !player.has_begun() => {
                let first = player.reader().header().first_step;
                bail!("the trace begins at step #{first} and has no snapshot: there is no state to examine");
            }
            PlayerStep::End { .. } => return Ok(Upto::of(player, true, cut)),
            PlayerStep::Over => {
                let missing = player.reader().missing_open_block();
                let missing = missing.map_or_else(String::new, |missing| format!("; {missing}"));
                let killed =
                    || format!("the trace has no end record, as after a kill of the daemon{missing}");
                return Ok(Upto::of(player, true, cut.or_else(|| Some(killed()))));
            }
        }
    }
}

fn go_to(player: &mut Player, stop: &Stop, path: &Path) -> anyhow::Result<Upto> {
    // A time after the end of the trace means the whole trace.
    let stop = player.resolve(stop)?;
    let (is_end, cut) = match player.go_to_stop(&stop)? {
        None | Some(PlayerStep::Step { .. } | PlayerStep::Snapshot { .. }) => (false, None),
        Some(PlayerStep::End { .. } | PlayerStep::Over) if stop == Stop::Sequence(u64::MAX) => (true, None),
        Some(PlayerStep::End { .. } | PlayerStep::Over) => {
            bail!(
                "{} ends before that: its last step is #{}",
                path.display(),
                player.next().saturating_sub(1)
            )
        }
        Some(PlayerStep::Lost(lost)) => (false, Some(lost.to_string())),
        Some(PlayerStep::Stopped(verdict)) => (false, Some(stopped(&verdict))),
    };
    Ok(Upto::of(player, is_end, cut))
}

fn stopped(verdict: &trace::Verdict) -> String {
    format!("the replay differs from the recording ({}): run `gpupv replay` for details", verdict.name())
}
