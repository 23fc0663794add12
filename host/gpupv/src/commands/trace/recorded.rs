//! Converts a recording to a scenario: the input of `shrink` and `reorder`.

use std::path::Path;

use anyhow::{Context as _, bail};
use drivers::Registry;
use dxgkrnl::{Config, Effects, Input, Nanos};
use scenario::explore::recording::difference_at_end;
use scenario::from_trace::{self, Converted};
use timeline::duration;
use trace::{Lost, Next, Player, Reader, Record, Step, Stop};

use crate::artifacts::provide_driver_host;
use crate::output::{Steps, complain};

/// The steps of a recording, up to a place if one is named.
pub struct Recorded {
    pub converted: Converted,
    pub steps: Vec<(Nanos, Input, Effects)>,
    /// Whether later steps are lost.
    pub is_damaged: bool,
}

/// What [`each_step`] read.
pub struct ReadSteps {
    pub config: Config,
    /// The damage after the last step that was read.
    pub lost: Option<Lost>,
    /// Whether the trace has the step at which reading had to stop.
    pub is_reached: bool,
}

impl ReadSteps {
    /// Reports the damage. Returns whether there is any.
    pub fn report_damage(&self, path: &Path) -> bool {
        if let Some(lost) = &self.lost {
            complain(format_args!("{}: only the steps before the damage are used: {lost}", path.display()));
        }
        self.lost.is_some()
    }
}

/// Reads a trace, and reports the steps that a scenario cannot express.
pub fn read(path: &Path, until: Option<&Stop>, drivers: &Registry) -> anyhow::Result<Recorded> {
    let before = until.map(|stop| step_of(path, stop, drivers)).transpose()?.unwrap_or(u64::MAX);
    let mut steps = Vec::new();
    let read = each_step(path, before, "a scenario", |step| {
        let Step { now, input, effects, .. } = std::mem::take(step);
        steps.push((now, input, effects));
        Ok(())
    })?;
    // Without its driver, an adapter would be lost in every order, and so in none.
    provide_driver_host(std::iter::once(&read.config), &Steps::new())?;
    drivers.check(&read.config).with_context(|| format!("cannot run what {} recorded", path.display()))?;
    let title =
        path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().replace(['"', '\\'], "_"));
    let inputs = steps.iter().map(|(now, input, effects)| (*now, input, effects));
    let converted = from_trace::program(&format!("recorded in {title}"), &read.config, inputs);
    let is_damaged = read.report_damage(path);
    if let Some(stop) = until.filter(|_| !read.is_reached) {
        report_missed(path, stop, &steps)?;
    }
    report_omitted(path, &converted);
    if let Some(difference) = difference_at_end(&converted, drivers) {
        complain(format_args!(
            "{}: the scenario of this recording does not end as the recording did, so it may not show what the \
             recording shows: {difference}",
            path.display()
        ));
    }
    Ok(Recorded { converted, steps, is_damaged })
}

/// Passes each step from the first one, up to but not including step `before`, to `take`. `what` names the use, for
/// errors: it needs every step.
pub fn each_step(
    path: &Path,
    before: u64,
    what: &str,
    mut take: impl FnMut(&mut Step) -> anyhow::Result<()>,
) -> anyhow::Result<ReadSteps> {
    let mut reader = Reader::open(path)?;
    let first = reader.header().first_step;
    if first > 1 {
        bail!(
            "{} begins at step #{first}, as flight recorder dumps do: {what} needs all steps from the first \
             on; record into a file (--record)",
            path.display()
        );
    }
    let mut step = Step::default();
    let (mut damage, mut is_reached) = (None, false);
    loop {
        match reader.next_into(&mut step)? {
            Next::Step if step.sequence >= before => {
                is_reached = true;
                break;
            }
            Next::Step => take(&mut step)?,
            Next::Other(Record::Lost(lost)) if lost.loses_steps() => {
                damage = Some(lost);
                break;
            }
            Next::Other(Record::Unknown { sequence, kind }) => {
                bail!(
                    "{}: before step #{sequence} is a record of the unknown kind {kind}: use a newer gpupv",
                    path.display()
                )
            }
            Next::Other(_) => {}
            Next::End => break,
        }
    }
    Ok(ReadSteps { config: reader.header().config.clone(), lost: damage, is_reached })
}

/// Reports that the trace ends before the place of `--until`. A time after the last step means the whole trace, as does
/// the step that would follow the last one; a step further on is an error.
fn report_missed(path: &Path, stop: &Stop, steps: &[(Nanos, Input, Effects)]) -> anyhow::Result<()> {
    let (last, path) = (steps.len() as u64, path.display());
    match stop {
        Stop::Time(_) => {
            let time = duration(steps.last().map_or(0, |(now, ..)| *now));
            complain(format_args!(
                "{path}: all steps are used, because the trace ends before the time of --until: its last step is \
                 #{last}, at {time}"
            ));
        }
        Stop::Sequence(step) if *step > last + 1 => {
            bail!("{path}: the place of --until is not in the trace: its last step is #{last}")
        }
        Stop::Sequence(_) | Stop::Fence { .. } | Stop::Wait { .. } | Stop::Note(_) => {}
    }
    Ok(())
}

/// Returns the number of the step that follows a place.
fn step_of(path: &Path, stop: &Stop, drivers: &Registry) -> anyhow::Result<u64> {
    let mut player = Player::new(Reader::open(path)?, drivers)?;
    match player.resolve(stop)? {
        Stop::Sequence(step) => Ok(step),
        stop => match player.go_to_stop(&stop).with_context(|| format!("cannot find {stop:?}"))? {
            None => Ok(player.next()),
            Some(_) => bail!("{} does not reach that place", path.display()),
        },
    }
}

/// Reports the omitted steps, each reason once.
fn report_omitted(path: &Path, converted: &Converted) {
    let mut printed: Vec<&str> = Vec::new();
    for omitted in &converted.omitted {
        if printed.contains(&omitted.why) {
            continue;
        }
        printed.push(omitted.why);
        let count = converted.omitted.iter().filter(|other| other.why == omitted.why).count();
        complain(format_args!(
            "{}: omitted, because scenarios cannot express it: step #{} ({}){}",
            path.display(),
            omitted.step + 1,
            omitted.why,
            if count > 1 { format!(", and {} more like it", count - 1) } else { String::new() }
        ));
    }
}
