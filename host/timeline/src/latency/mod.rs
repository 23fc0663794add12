//! The latency of each wake-up by part, for a trace that was recorded with times.
//!
//! ```text
//!   the signaling process                   the daemon                               the waiting process
//!   call ─guest─▶ written ─link─▶ thread awake ─host queue─▶ kernel begins
//!                                              ─model─▶ returns ─store─▶ stored ─link back─▶ read ─waiter─▶ resumes
//! ```
//! The parts of a wake-up add up to the whole, to the nanosecond. Parts between two clocks have an error (`clock`);
//! local processes have the host's clock. A wake-up without a call, such as after engine work or the end of a process,
//! begins in the daemon: at the time its timer was armed for, or when the kernel got the input.

mod clock;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use dxgkrnl::ProcessId;
use trace::{Times, Woken};

use crate::timeline::{FenceId, TrackId, Word};
pub use clock::DRIFT_PPM;
use clock::{Clock, Offset, aged};

/// Parts of a wake-up.
pub const PARTS: usize = 7;
/// Their names, in order.
pub const PART_NAMES: [&str; PARTS] =
    ["guest", "link", "host queue", "model", "store", "link back", "waiter"];

/// Most wake-ups that are kept: the first ones.
const WAKES_MAX: usize = 1 << 20;

/// A duration and its error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length {
    pub nanos: i64,
    pub error: u64,
}

/// A wake-up: its source and its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// The step that caused it.
    pub step: u64,
    /// The track of that step, and its call or other input.
    pub by: TrackId,
    pub call: Word,
    /// The first object that the call names, with the value.
    pub named: Option<(FenceId, u64)>,
    /// The signal that ended the wait, if it is known. It may be that of a queue, which the call released.
    pub signal: Option<(TrackId, FenceId, u64)>,
    pub process: ProcessId,
    pub track: TrackId,
    /// The wait's event.
    pub event: u64,
}

/// A wake-up and its parts; `None` for an unknown part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    pub wake: Wake,
    pub parts: [Option<Length>; PARTS],
    /// The sum of the parts, if begin and end are known.
    pub total: Option<Length>,
}

/// Latencies of a trace's wake-ups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// In step order.
    pub wakes: Vec<Split>,
    /// Number of further wake-ups.
    pub left_out: u64,
    /// VMs whose clocks drift too fast, and local processes with another clock than the host. Times across those clocks
    /// are unknown.
    pub unsteady: Vec<String>,
}

impl Latency {
    /// A wake-up by its step, process track and event.
    pub fn of(&self, step: u64, track: TrackId, event: u64) -> Option<&Split> {
        let from = self.wakes.partition_point(|split| split.wake.step < step);
        let mut of_step = self.wakes[from..].iter().take_while(|split| split.wake.step == step);
        of_step.find(|split| split.wake.track == track && split.wake.event == event)
    }
}

/// Key of a clock: the host's as seen by one process, or a VM's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Whose {
    Host(u32),
    Vm(u32),
}

impl Whose {
    fn of(times: &Times) -> Whose {
        if times.clock == 0 { Whose::Host(times.process) } else { Whose::Vm(times.clock) }
    }
}

/// Collects times and wake-ups while a trace is read.
#[derive(Default)]
pub(crate) struct Collector {
    has_times: bool,
    wakes: Vec<Wake>,
    left_out: u64,
    /// Times of the steps with wake-ups.
    steps: BTreeMap<u64, Times>,
    /// The waiter's timestamps, by process, event and the host's `stored_ns`.
    ends: BTreeMap<(u32, u64, u64), (Whose, Woken)>,
    clocks: BTreeMap<Whose, Clock>,
}

impl Collector {
    pub fn wake(&mut self, wake: Wake) {
        match self.wakes.len() < WAKES_MAX {
            true => self.wakes.push(wake),
            false => self.left_out += 1,
        }
    }

    /// Adds times; must follow the step that they belong to.
    pub fn times(&mut self, mut times: Times) {
        self.has_times = true;
        let whose = Whose::of(&times);
        let clock = self.clocks.entry(whose).or_default();
        if times.sent_ns != 0 && times.read_ns != 0 {
            clock.sent(times.sent_ns, times.read_ns);
        }
        if let Some((asked, read)) = times.received.take() {
            clock.received(asked, read);
        }
        for woken in std::mem::take(&mut times.woken) {
            clock.received(woken.host_ns, woken.read_ns);
            if self.ends.len() < 2 * WAKES_MAX {
                self.ends.insert((times.process, woken.event, woken.host_ns), (whose, woken));
            }
        }
        let at = self.wakes.partition_point(|wake| wake.step < times.step);
        if self.wakes.get(at).is_some_and(|wake| wake.step == times.step) {
            self.steps.insert(times.step, times);
        }
    }

    /// `None` if the trace has no times.
    pub fn finish(mut self) -> Option<Latency> {
        if !self.has_times {
            return None;
        }
        self.clocks.values_mut().for_each(Clock::prune);
        let mut unsteady = BTreeSet::new();
        let wakes = std::mem::take(&mut self.wakes);
        let wakes = wakes.into_iter().map(|wake| self.split(wake, &mut unsteady)).collect();
        let words = |whose: Whose| match whose {
            Whose::Host(process) => format!("p{process} does not use its host's clock"),
            Whose::Vm(vm) => format!("the clock of vm {vm} drifts by more than {DRIFT_PPM} ppm"),
        };
        Some(Latency { wakes, left_out: self.left_out, unsteady: unsteady.into_iter().map(words).collect() })
    }

    /// The offset of a clock at a time; `None` if unknown. Adds the clock to `unsteady` if it drifts too fast.
    fn offset(&self, whose: Whose, at: u64, unsteady: &mut BTreeSet<Whose>) -> Option<Offset> {
        let clock = self.clocks.get(&whose)?;
        match (whose, clock.may_be_the_hosts(), clock.at(at)) {
            // A message that arrives before it is sent shows that the process does not have the host's clock.
            (Whose::Host(_), true, _) => Some(Offset::default()),
            (Whose::Vm(_), _, Some(offset)) => Some(offset),
            _ => {
                if clock.has_both() || matches!(whose, Whose::Host(_)) {
                    unsteady.insert(whose);
                }
                None
            }
        }
    }

    fn split(&self, wake: Wake, unsteady: &mut BTreeSet<Whose>) -> Split {
        let mut parts = [None; PARTS];
        let Some(times) = self.steps.get(&wake.step) else { return Split { wake, parts, total: None } };
        let at = times.stored_ns;
        let [guest, link, queue, model, store, link_back, waiter] = &mut parts;
        let by_call = times.process != 0;
        let from = by_call.then(|| Whose::of(times));
        let from_offset = from.and_then(|from| self.offset(from, at, unsteady));
        let has_message = by_call && times.sent_ns != 0;
        let mut noticed = if times.read_ns != 0 { times.read_ns } else { times.recorded_ns };
        if has_message {
            *guest = Some(plain(times.called_ns, times.sent_ns));
            if let Some(offset) = from_offset {
                let sent = i128::from(times.sent_ns) + offset.nanos;
                // A thread that was awake at the send time was busy; a thread that slept was woken by the message.
                if times.awake_ns != 0 {
                    let sent = u64::try_from(sent).unwrap_or(0);
                    noticed = times.awake_ns.max(sent).min(noticed);
                }
                *link = Some(across(i128::from(noticed) - sent, offset, at, noticed));
            }
        }
        *queue = (times.read_ns != 0).then(|| plain(noticed, times.recorded_ns));
        *model = Some(plain(times.recorded_ns, times.handled_ns));
        *store = Some(plain(times.handled_ns, times.stored_ns));
        let end = self.ends.get(&(wake.process.0, wake.event, at));
        let mut to = None;
        if let Some((whose, woken)) = end {
            *waiter = Some(plain(woken.read_ns, woken.ran_ns));
            if let Some(offset) = self.offset(*whose, at, unsteady) {
                let read = i128::from(woken.read_ns) + offset.nanos;
                let host = u64::try_from(read).unwrap_or(0);
                *link_back = Some(across(read - i128::from(at), offset, at, host));
                to = Some(*whose);
            }
        }
        let has_begin = !by_call || parts[1].is_some();
        let total = to.filter(|_| has_begin).map(|to| sum(&parts, from == Some(to)));
        Split { wake, parts, total }
    }
}

fn nanos(length: i128) -> i64 {
    length.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The duration between two times of one clock.
fn plain(from: u64, to: u64) -> Length {
    Length { nanos: nanos(i128::from(to) - i128::from(from)), error: 0 }
}

/// A duration across two clocks, whose offset is known at one host time and used at another.
fn across(length: i128, offset: Offset, known: u64, used: u64) -> Length {
    // The host's own clock has no error.
    let age = if offset == Offset::default() { 0 } else { aged(known.abs_diff(used)) };
    Length { nanos: nanos(length), error: u64::try_from(offset.error + age).unwrap_or(u64::MAX) }
}

/// The whole of a wake-up. With both ends on one guest's clock it has no error, because the offset cancels out.
fn sum(parts: &[Option<Length>; PARTS], one_clock: bool) -> Length {
    let known = || parts.iter().flatten();
    let nanos = known().fold(0i64, |sum, part| sum.saturating_add(part.nanos));
    let error = known().fold(0u64, |sum, part| sum.saturating_add(part.error));
    Length { nanos, error: if one_clock { 0 } else { error } }
}

#[cfg(test)]
mod tests;
