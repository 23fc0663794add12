//! Latencies as text and as JSON.

use serde_json::{Value, json};

use super::{DRIFT_PPM, Latency, Length, PART_NAMES, PARTS, Split, Wake};
use crate::format::duration;
use crate::lanes::{called_targets, gives_values};
use crate::timeline::Timeline;

/// A duration as `180.2 us`, or as `< 43 us` if it is not greater than its error: it is somewhere below that.
pub(super) fn length_words(length: Length) -> String {
    let Length { nanos, error } = length;
    let most = nanos.unsigned_abs();
    if error != 0 && (nanos < 0 || most <= error) {
        let below = u64::try_from(nanos.saturating_add_unsigned(error)).unwrap_or(0);
        return format!("< {}", duration(below));
    }
    format!("{}{}", if nanos < 0 { "-" } else { "" }, duration(most))
}

fn length_json(length: Length) -> Value {
    json!({ "ns": length.nanos, "error_ns": length.error })
}

/// The distribution of durations; each value is one of a real wake-up.
struct Distribution {
    count: usize,
    min: Length,
    p50: Length,
    p99: Length,
    max: Length,
    /// The greatest error.
    error: u64,
}

impl Distribution {
    fn of(lengths: impl Iterator<Item = Length>) -> Option<Distribution> {
        let mut all: Vec<Length> = lengths.collect();
        all.sort_unstable_by_key(|length| (length.nanos, length.error));
        let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
        let (min, max) = (*all.first()?, *all.last()?);
        let error = all.iter().map(|length| length.error).max()?;
        Some(Distribution { count: all.len(), min, p50: at(50), p99: at(99), max, error })
    }

    fn words(&self) -> String {
        let [min, p50, p99, max] = [self.min, self.p50, self.p99, self.max].map(length_words);
        let error = if self.error == 0 { "none".into() } else { duration(self.error) };
        format!("{:>9} {min:>14} {p50:>14} {p99:>14} {max:>14} {error:>14}", self.count)
    }

    fn json(&self) -> Value {
        json!({
            "count": self.count, "min": length_json(self.min), "p50": length_json(self.p50),
            "p99": length_json(self.p99), "max": length_json(self.max), "error_ns_max": self.error,
        })
    }
}

impl Latency {
    fn distributions(&self) -> impl Iterator<Item = (&'static str, Option<Distribution>)> + '_ {
        let part = |at: usize| Distribution::of(self.wakes.iter().filter_map(move |split| split.parts[at]));
        let parts = (0..PARTS).map(move |at| (PART_NAMES[at], part(at)));
        let total = Distribution::of(self.wakes.iter().filter_map(|split| split.total));
        parts.chain([("whole", total)])
    }

    /// The slowest wake-ups, of those that are known as a whole.
    fn slowest(&self, count: usize) -> Vec<(&Split, Length)> {
        let mut slowest: Vec<_> = self.wakes.iter().filter_map(|split| Some((split, split.total?))).collect();
        slowest.sort_by_key(|(split, total)| {
            (std::cmp::Reverse(total.nanos), split.wake.step, split.wake.event)
        });
        slowest.truncate(count);
        slowest
    }
}

impl Split {
    /// Texts of the known parts.
    pub(crate) fn parts_words(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let known = |(name, part): (&'static str, &Option<Length>)| Some((name, length_words((*part)?)));
        PART_NAMES.into_iter().zip(&self.parts).filter_map(known)
    }
}

impl Timeline {
    /// Latencies by part, and the slowest wake-ups. Empty if the trace has no times.
    pub fn latency_text(&self, slowest: usize) -> String {
        let Some(latency) = &self.latency else { return String::new() };
        let (all, total) =
            (latency.wakes.len(), latency.wakes.iter().filter(|split| split.total.is_some()).count());
        let mut out = format!(
            "wake-ups by part: {all}, {total} of them known from the signal to the waiter\n{:<12} {:>9} {:>14} {:>14} {:>14} {:>14} {:>14}\n",
            "part", "count", "min", "p50", "p99", "max", "clock error"
        );
        for (name, distribution) in latency.distributions() {
            let words = distribution.map_or_else(|| format!("{:>9}", 0), |distribution| distribution.words());
            out += &format!("{name:<12} {words}\n");
        }
        for (split, total) in latency.slowest(slowest) {
            out += &format!("\n{}  {}\n", length_words(total), self.wake_words(split));
            let parts: Vec<_> = split.parts_words().map(|(name, words)| format!("{name} {words}")).collect();
            out += &format!("    {}\n", parts.join(", "));
        }
        for words in &latency.unsteady {
            out += &format!("\n{words}: times between it and other clocks are unknown\n");
        }
        if latency.left_out > 0 {
            out += &format!("\n{} later wake-ups are not included\n", latency.left_out);
        }
        out
    }

    /// `#12 p1 writer SignalFromCpu F3 = 9 wakes p2 reader (event 4)`, with the signal behind it if that is another one.
    fn wake_words(&self, split: &Split) -> String {
        let Wake { step, by, call, named, signal, track, event, .. } = split.wake;
        let target = |named| format!(" {}", called_targets(self, self.word(call), &[named], false));
        let target = named.map_or_else(String::new, target);
        let other = signal.filter(|(track, fence, value)| (*track, Some((*fence, *value))) != (by, named));
        let other = other.map_or_else(String::new, |(track, fence, value)| {
            format!(": {} signals {}", self.path(track), self.targets(&[(fence, value)], "="))
        });
        let (by, call, to) = (self.path(by), self.word(call), self.path(track));
        format!("#{step} {by} {call}{target} wakes {to} (event {event}){other}")
    }

    /// As [`Timeline::latency_text`], in JSON; `null` if the trace has no times.
    pub fn latency_json(&self, slowest: usize) -> Value {
        let Some(latency) = &self.latency else { return Value::Null };
        let parts: serde_json::Map<String, Value> = latency
            .distributions()
            .map(|(name, distribution)| {
                (name.to_owned(), distribution.map_or(Value::Null, |distribution| distribution.json()))
            })
            .collect();
        let slowest = latency.slowest(slowest).into_iter().map(|(split, total)| {
            let wake = &split.wake;
            let part = |(name, part): (&&str, &Option<Length>)| {
                ((*name).to_owned(), part.map_or(Value::Null, length_json))
            };
            let parts: serde_json::Map<String, Value> =
                PART_NAMES.iter().zip(&split.parts).map(part).collect();
            let (fence, value) = wake.named.unzip();
            let value = value.filter(|_| gives_values(self.word(wake.call)));
            let cause = wake.signal.map(
                |(track, fence, value)| json!({ "by": self.path(track), "fence": fence, "value": value }),
            );
            json!({
                "step": wake.step, "by": self.path(wake.by), "call": self.word(wake.call), "fence": fence,
                "value": value, "cause": cause, "process": self.path(wake.track), "event": wake.event,
                "whole": length_json(total), "parts": parts,
            })
        });
        json!({
            "wakes": latency.wakes.len(), "left_out": latency.left_out, "unsteady": latency.unsteady,
            "drift_ppm": DRIFT_PPM, "parts": parts, "slowest": slowest.collect::<Vec<_>>(),
        })
    }
}
