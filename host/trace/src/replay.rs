//! Replay of a trace on a kernel.

use std::path::Path;

use drivers::Registry;
use dxgkrnl::Effects;

use crate::{Lost, Player, PlayerStep, Reader, Record, Report, Stop, TraceError, Verdict};

/// The part of a trace to replay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayRange {
    /// Starts at the last snapshot before this point; `None` for the beginning.
    pub from: Option<Stop>,
    /// Stops at this point; `None` for the end.
    pub until: Option<Stop>,
}

/// Replays a trace. `progress` is called for each block with the bytes read and the file's length. An error means that
/// the header could not be read; later problems are in the report's verdict.
pub fn replay(
    path: &Path,
    registry: &Registry,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, TraceError> {
    replay_from(Reader::open(path)?, registry, progress)
}

/// Replays a reader's trace, with the drivers that the trace names, from this registry.
pub fn replay_from(
    reader: Reader,
    registry: &Registry,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, TraceError> {
    let mut player = Player::new(reader, registry)?;
    replay_part(&mut player, &ReplayRange::default(), progress)
}

/// Replays a part of a trace with a new player, which stays at the end of that part. Fails if the trace does not reach
/// the part's beginning, or if its end is before that.
pub fn replay_part(
    player: &mut Player,
    part: &ReplayRange,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, TraceError> {
    let mut report = Report::new(player.reader().header().program.clone());
    let first_step = player.reader().header().first_step;
    let mut begin = first_step;
    if let Some(from) = &part.from {
        begin = player.begin_at(from)?.ok_or(TraceError::NoBeginning)?;
        report.from = (player.next() > first_step).then_some(player.next());
    }
    let until = part.until.as_ref().map(|stop| player.resolve(stop)).transpose()?;
    if matches!(until, Some(Stop::Sequence(stop)) if stop < begin) {
        return Err(TraceError::EndsFirst { begin });
    }
    let mut has_begun = false;
    let mut damage = None;
    let mut done = 0;
    loop {
        let (position, length) = player.reader().progress();
        if position != done {
            done = position;
            progress(position, length);
        }
        if !has_begun && player.is_in_place() && player.next() >= begin {
            has_begun = true;
            // A value that a fence has already.
            if until.as_ref().is_some_and(|stop| stop.is_behind(player.kernel(), &Effects::default())) {
                return Err(TraceError::EndsFirst { begin });
            }
        }
        // A stop counts only once the kernel has a state.
        if player.is_in_place() && until.as_ref().is_some_and(|stop| stop.is_before(player.next())) {
            return Ok(stopped(report, damage, player));
        }
        match player.play()? {
            PlayerStep::Step { sequence, finished, .. } => {
                report.count();
                report.unfinished = (!finished).then_some(sequence);
                let is_behind = |stop: &Stop| stop.is_behind(player.kernel(), player.effects());
                if has_begun && until.as_ref().is_some_and(is_behind) {
                    return Ok(stopped(report, damage, player));
                }
            }
            PlayerStep::Snapshot { sequence, restored: true, .. } if damage.is_some() => {
                report.resumed.push((sequence, 0))
            }
            PlayerStep::Snapshot { .. } => {}
            PlayerStep::Lost(lost) => worse(&mut damage, lost),
            PlayerStep::Stopped(verdict) => return explained(report, player, verdict),
            PlayerStep::End { recorded } => {
                report.ended = true;
                let replayed = player.digest();
                if player.is_in_place() && recorded != replayed {
                    report.agreed = player.agreed();
                    report.verdict = Verdict::StateDiffers { before: None, recorded, replayed };
                    return Ok(report);
                }
            }
            PlayerStep::Over if player.next() < begin && damage.is_none() => {
                return Err(TraceError::NoBeginning);
            }
            PlayerStep::Over => return Ok(agreed(report, damage, player)),
        }
    }
}

/// Keeps the first loss that loses steps, or else the first loss.
fn worse(damage: &mut Option<Lost>, lost: Lost) {
    let replaces = |known: &Lost| lost.loses_steps() && !known.loses_steps();
    if damage.as_ref().is_none_or(replaces) {
        *damage = Some(lost);
    }
}

fn stopped(report: Report, damage: Option<Lost>, player: &Player) -> Report {
    let stopped = Some(player.next());
    Report { stopped, ..agreed(report, damage, player) }
}

/// The verdict of a replay without differences.
fn agreed(mut report: Report, damage: Option<Lost>, player: &Player) -> Report {
    report.unchecked = player.unchecked();
    report.missing_open_block = player.reader().missing_open_block().cloned();
    report.verdict = match damage {
        Some(lost) => Verdict::Damaged { lost },
        None if !player.has_begun() => Verdict::NoState { first_step: player.reader().header().first_step },
        None => Verdict::Identical { digest: player.digest() },
    };
    report
}

/// A report about a verdict that stopped a player outside of [`replay`], with its possible causes.
pub fn explain(player: &mut Player, verdict: Verdict) -> Result<Report, TraceError> {
    let mut report = Report::new(player.reader().header().program.clone());
    report.steps = player.played();
    explained(report, player, verdict)
}

fn explained(mut report: Report, player: &mut Player, verdict: Verdict) -> Result<Report, TraceError> {
    report.agreed = player.agreed();
    report.verdict = verdict;
    report.unchecked = player.unchecked();
    let Some(sequence) = report.sequence() else { return Ok(report) };
    if let Some((Record::Step { input: recorded, effects, .. }, causes)) = player.causes(sequence)? {
        report.unfinished = effects.is_none().then_some(sequence);
        report.causes = Some(causes);
        if let Verdict::Diverged { input, .. } | Verdict::Panicked { input, .. } = &mut report.verdict {
            *input = recorded.to_string();
        }
    }
    Ok(report)
}
