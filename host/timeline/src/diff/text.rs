//! Differences as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::{Diff, Divergence, Ended, EndedOtherwise, Longer};
use crate::format::duration;

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diff { steps, divergences, only, calls, ends, disruptions, wakes, .. } = self;
        let Diff { ended_otherwise, missing, extra, longer, left_out, stopped, .. } = self;
        let more = |f: &mut fmt::Formatter<'_>, what: &str, count: usize| match count {
            0 => Ok(()),
            _ => writeln!(f, "{what}: {count} more"),
        };
        if self.is_same() {
            writeln!(
                f,
                "the same, whatever their times: {} and {} steps, {} wake-ups",
                steps.0, steps.1, wakes.0
            )?;
        }
        for (at, divergence) in divergences.iter().enumerate() {
            let Divergence { process, call, steps, same_call, words } = divergence;
            let what = if *same_call { "got a different answer to" } else { "made a different" };
            let first = if at == 0 { "first difference: " } else { "also: " };
            writeln!(f, "{first}{process} {what} call {}", call + 1)?;
            let step = |step: &Option<u64>| step.map_or(String::new(), |step| format!(" #{step}"));
            writeln!(f, "  A{}: {}\n  B{}: {}", step(&steps.0), words.0, step(&steps.1), words.1)?;
        }
        more(f, "also different", left_out.divergences)?;
        only.0.iter().try_for_each(|name| writeln!(f, "only in A: {name}"))?;
        only.1.iter().try_for_each(|name| writeln!(f, "only in B: {name}"))?;
        for (name, one, other) in calls {
            writeln!(f, "{name}: {one} calls in A, {other} in B")?;
        }
        for Ended { process, words: (one, other) } in ends {
            writeln!(f, "{process}: {one} in A, {other} in B")?;
        }
        more(f, "ends of processes", left_out.ends)?;
        for (what, one, other) in disruptions {
            writeln!(f, "{what}: {one} times in A, {other} in B")?;
        }
        more(f, "faults, resets and pauses", left_out.disruptions)?;
        for EndedOtherwise { process, event, statuses: (one, other) } in ended_otherwise {
            writeln!(f, "ended differently: {process} event {event}, {one} in A, {other} in B")?;
        }
        more(f, "ended differently", left_out.ended_otherwise)?;
        if wakes.0 != wakes.1 {
            writeln!(f, "wake-ups: {} in A, {} in B", wakes.0, wakes.1)?;
        }
        missing.iter().try_for_each(|(name, event)| writeln!(f, "woken in A only: {name} event {event}"))?;
        more(f, "woken in A only", left_out.missing)?;
        extra.iter().try_for_each(|(name, event)| writeln!(f, "woken in B only: {name} event {event}"))?;
        more(f, "woken in B only", left_out.extra)?;
        for Longer { process, event, nanos } in longer {
            let (one, other) = (duration(nanos.0), duration(nanos.1));
            writeln!(f, "waited longer: {process} event {event}, {one} in A, {other} in B")?;
        }
        more(f, "waited longer", left_out.longer)?;
        stopped.0.iter().try_for_each(|why| writeln!(f, "A is read only up to its damage: {why}"))?;
        stopped.1.iter().try_for_each(|why| writeln!(f, "B is read only up to its damage: {why}"))
    }
}

impl Diff {
    /// The differences as JSON.
    pub fn json(&self) -> Value {
        let Diff { steps, divergences, only, calls, ends, disruptions, wakes, .. } = self;
        let Diff { ended_otherwise, missing, extra, longer, left_out, stopped, .. } = self;
        let count = |(name, a, b): &(String, u64, u64)| json!({ "name": name, "a": a, "b": b });
        let end = |end: &Ended| json!({ "process": end.process, "a": end.words.0, "b": end.words.1 });
        let ended = |wait: &EndedOtherwise| {
            let (a, b) = (wait.statuses.0.to_string(), wait.statuses.1.to_string());
            json!({ "process": wait.process, "event": wait.event, "a": a, "b": b })
        };
        let divergence = |difference: &Divergence| {
            json!({
                "process": difference.process, "call": difference.call + 1, "answered": difference.same_call,
                "a": { "sequence": difference.steps.0, "text": difference.words.0 },
                "b": { "sequence": difference.steps.1, "text": difference.words.1 },
            })
        };
        let wait = |(process, event): &(String, u64)| json!({ "process": process, "event": event });
        let longer = longer.iter().map(|difference| {
            json!({
                "process": difference.process, "event": difference.event,
                "a_ns": difference.nanos.0, "b_ns": difference.nanos.1,
            })
        });
        json!({
            "same": self.is_same(), "steps": steps, "only_a": only.0, "only_b": only.1, "wakes": wakes,
            "divergences": divergences.iter().map(divergence).collect::<Vec<_>>(),
            "calls": calls.iter().map(count).collect::<Vec<_>>(),
            "ends": ends.iter().map(end).collect::<Vec<_>>(),
            "disruptions": disruptions.iter().map(count).collect::<Vec<_>>(),
            "ended_otherwise": ended_otherwise.iter().map(ended).collect::<Vec<_>>(),
            "woken_a_only": missing.iter().map(wait).collect::<Vec<_>>(),
            "woken_b_only": extra.iter().map(wait).collect::<Vec<_>>(),
            "longer": longer.collect::<Vec<_>>(), "damage_a": stopped.0, "damage_b": stopped.1,
            "divergences_left_out": left_out.divergences, "ends_left_out": left_out.ends,
            "disruptions_left_out": left_out.disruptions, "ended_otherwise_left_out": left_out.ended_otherwise,
            "woken_a_only_left_out": left_out.missing, "woken_b_only_left_out": left_out.extra,
            "longer_left_out": left_out.longer,
        })
    }
}
