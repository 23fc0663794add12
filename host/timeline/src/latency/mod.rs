//! Where the time of each wake-up goes, of a trace that was recorded with times.
//!
//! ```text
//!   the signaling process                   the daemon                               the process that waits
//!   call ─guest─▶ written ─link─▶ thread awake ─host queue─▶ kernel told
//!                                              ─model─▶ back ─store─▶ stored ─link back─▶ read ─waiter─▶ goes on
//! ```
//! The parts of a wake-up add up to its whole, to the nanosecond. Those between two clocks are known up to an error
//! ([`clock`]); local processes have the host's clock. A wake-up that no call caused - an engine's work was done, a
//! process ended - begins in the daemon: at the time that its timer was armed for, or when the kernel was told.

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
/// Their names, in their order.
pub const PART_NAMES: [&str; PARTS] =
    ["guest", "link", "host queue", "model", "store", "link back", "waiter"];

/// Wake-ups that are kept: the first so many.
const WAKES_MAX: usize = 1 << 20;

/// A length of time, and how far it may be off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length {
    pub nanos: i64,
    pub error: u64,
}

/// Who woke whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// The step that asked for it.
    pub step: u64,
    /// Who signaled, or what happened.
    pub by: TrackId,
    pub call: Word,
    /// [`crate::NONE`] for what is no fence.
    pub fence: FenceId,
    pub value: u64,
    pub process: ProcessId,
    pub track: TrackId,
    /// The guest's name for the wait.
    pub event: u64,
}

/// A wake-up and its parts; `None` for what is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    pub wake: Wake,
    pub parts: [Option<Length>; PARTS],
    /// The sum of the parts, if its begin and its end are known.
    pub whole: Option<Length>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// In the order of the steps.
    pub wakes: Vec<Split>,
    /// Wake-ups beyond those.
    pub left_out: u64,
    /// Clocks, by VM, that drift by more than is allowed for, and processes that do not have the clock of the host that
    /// they are on: nothing across them is known.
    pub unsteady: Vec<String>,
}

impl Latency {
    /// A wake-up by its step, who was woken, and the name of the wait.
    pub fn of(&self, step: u64, track: TrackId, event: u64) -> Option<&Split> {
        let from = self.wakes.partition_point(|split| split.wake.step < step);
        let mut of_step = self.wakes[from..].iter().take_while(|split| split.wake.step == step);
        of_step.find(|split| split.wake.track == track && split.wake.event == event)
    }
}

/// Whose clock: the host's as one process has it, or that of a VM.
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

/// Takes in times and wake-ups while a trace is read.
#[derive(Default)]
pub(crate) struct Collector {
    has_times: bool,
    wakes: Vec<Wake>,
    left_out: u64,
    /// Of the steps that woke somebody.
    steps: BTreeMap<u64, Times>,
    /// The waiter's end, by process, event and the time at which the host asked for it.
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

    /// Comes after the step that it is about.
    pub fn times(&mut self, mut times: Times) {
        self.has_times = true;
        let whose = Whose::of(&times);
        let clock = self.clocks.entry(whose).or_default();
        if times.sent_ns != 0 && times.read_ns != 0 {
            clock.sent(times.sent_ns, times.read_ns);
        }
        if let Some((asked, read)) = times.heard.take() {
            clock.heard(asked, read);
        }
        for woken in std::mem::take(&mut times.woken) {
            clock.heard(woken.host_ns, woken.read_ns);
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
        self.clocks.values_mut().for_each(Clock::sift);
        let mut unsteady = BTreeSet::new();
        let wakes = std::mem::take(&mut self.wakes);
        let wakes = wakes.into_iter().map(|wake| self.split(wake, &mut unsteady)).collect();
        let words = |whose: Whose| match whose {
            Whose::Host(process) => format!("p{process} has another clock than its host"),
            Whose::Vm(vm) => format!("the clock of vm {vm} drifts by more than {DRIFT_PPM} ppm"),
        };
        Some(Latency { wakes, left_out: self.left_out, unsteady: unsteady.into_iter().map(words).collect() })
    }

    /// The offset of a clock at a time; `None` if nothing is known, and then it may be unsteady.
    fn offset(&self, whose: Whose, at: u64, unsteady: &mut BTreeSet<Whose>) -> Option<Offset> {
        let clock = self.clocks.get(&whose)?;
        match (whose, clock.may_be_the_hosts(), clock.at(at)) {
            // What is sent arrives later: else it has not the host's clock.
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
        let Some(times) = self.steps.get(&wake.step) else { return Split { wake, parts, whole: None } };
        let at = times.stored_ns;
        let [guest, link, queue, model, store, link_back, waiter] = &mut parts;
        let by_call = times.process != 0;
        let from = by_call.then(|| Whose::of(times));
        let from_offset = from.and_then(|from| self.offset(from, at, unsteady));
        let told_of = by_call && times.sent_ns != 0;
        let mut seen = if times.read_ns != 0 { times.read_ns } else { times.recorded_ns };
        if told_of {
            *guest = Some(plain(times.called_ns, times.sent_ns));
            if let Some(offset) = from_offset {
                let sent = i128::from(times.sent_ns) + offset.nanos;
                // A thread that was awake when it was sent had something else to do; one that slept was woken.
                if times.awake_ns != 0 {
                    let sent = u64::try_from(sent).unwrap_or(0);
                    seen = times.awake_ns.max(sent).min(seen);
                }
                *link = Some(across(i128::from(seen) - sent, offset, at, seen));
            }
        }
        *queue = (times.read_ns != 0).then(|| plain(seen, times.recorded_ns));
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
        let begun = !by_call || parts[1].is_some();
        let whole = to.filter(|_| begun).map(|to| sum(&parts, from == Some(to)));
        Split { wake, parts, whole }
    }
}

fn nanos(of: i128) -> i64 {
    of.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Between two times of one clock.
fn plain(from: u64, to: u64) -> Length {
    Length { nanos: nanos(i128::from(to) - i128::from(from)), error: 0 }
}

/// Between two clocks, whose offset is known at one time of the host's and used at another.
fn across(length: i128, offset: Offset, known: u64, used: u64) -> Length {
    // One clock has no error.
    let age = if offset == Offset::default() { 0 } else { aged(known.abs_diff(used)) };
    Length { nanos: nanos(length), error: u64::try_from(offset.error + age).unwrap_or(u64::MAX) }
}

/// The whole: between two times of one guest's clock its error is none, for the offset is gone again.
fn sum(parts: &[Option<Length>; PARTS], one_clock: bool) -> Length {
    let known = || parts.iter().flatten();
    let nanos = known().fold(0i64, |sum, part| sum.saturating_add(part.nanos));
    let error = known().fold(0u64, |sum, part| sum.saturating_add(part.error));
    Length { nanos, error: if one_clock { 0 } else { error } }
}

#[cfg(test)]
mod tests;
