//! CPU waits, from registration to wake-up, and their causes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::{EventId, NtStatus};
use dxgkrnl::ddi::EngineId;
use dxgkrnl::{Nanos, ProcessId};

use super::Options;
use super::rows::Rows;
use crate::timeline::{Cause, FenceId, Moment, Outcome, StoredBy, TrackId, Wait, WaitKind};

/// A signal in the current step.
#[derive(Clone, Copy)]
pub(super) struct Signaled {
    pub moment: Moment,
    pub track: TrackId,
    /// `None` for a keyed mutex.
    pub fence: Option<FenceId>,
    pub value: u64,
    pub submission: Option<(EngineId, u64)>,
    pub by: StoredBy,
}

/// Signals of each fence that are kept, the latest.
const KEPT_PER_FENCE: usize = 8;

/// The latest signals of each fence: a wake-up may come in a later step than the signal.
#[derive(Default)]
pub(super) struct KeptSignals(BTreeMap<FenceId, VecDeque<Signaled>>);

impl KeptSignals {
    pub fn push(&mut self, signal: Signaled) {
        let Some(fence) = signal.fence else { return };
        let kept = self.0.entry(fence).or_default();
        if kept.len() >= KEPT_PER_FENCE {
            kept.pop_front();
        }
        kept.push_back(signal);
    }

    /// The signals of an earlier step that may have released a wait, in chronological order.
    fn of(&self, wait: &Wait) -> Vec<Signaled> {
        let mut of_wait: Vec<Signaled> = Vec::new();
        for (fence, value) in &wait.targets {
            let Some(kept) = self.0.get(fence) else { continue };
            let reaches = |signal: &&Signaled| signal.value >= *value;
            let since = |signal: &&Signaled| signal.moment.sequence >= wait.begin.sequence && reaches(signal);
            let known = of_wait.len();
            of_wait.extend(kept.iter().filter(since));
            // The kernel may not have known of a value that was there when the wait began.
            if of_wait.len() == known {
                of_wait.extend(kept.back().filter(reaches));
            }
        }
        of_wait.sort_by_key(|signal| (signal.moment.sequence, signal.moment.at));
        of_wait
    }
}

pub(super) struct Waits {
    /// The outcome is `FenceDestroyed` if only the wake-up is missing: it may be held.
    pub pending: BTreeMap<(ProcessId, EventId), Wait>,
    /// Waits of a trace's first state, which has no calls. Some may have ended.
    of_first_state: BTreeSet<(ProcessId, EventId)>,
    pub rows: Rows<Wait>,
}

impl Waits {
    pub fn new(options: &Options) -> Self {
        Waits { pending: BTreeMap::new(), of_first_state: BTreeSet::new(), rows: Rows::new(options) }
    }

    pub fn begin(
        &mut self,
        process: ProcessId,
        event: EventId,
        track: TrackId,
        kind: WaitKind,
        targets: Vec<(FenceId, u64)>,
        begin: Moment,
    ) {
        let outcome = Outcome::Pending;
        let wait =
            Wait { process: track, event: event.0, kind, targets, begin, end: begin, outcome, cause: None };
        self.pending.insert((process, event), wait);
        self.of_first_state.remove(&(process, event));
    }

    /// Marks all pending waits as those of the trace's first state.
    pub fn are_of_first_state(&mut self) {
        self.of_first_state.extend(self.pending.keys());
    }

    /// When a pending wait was registered, and in which step if that is in the trace.
    pub fn begun(&self, name: (ProcessId, EventId)) -> Option<(Nanos, Option<u64>)> {
        let begin = self.pending.get(&name)?.begin;
        Some((begin.at, (!self.of_first_state.contains(&name)).then_some(begin.sequence)))
    }

    /// Notes that a wait has ended without its value. Its wake-up may come in a later step.
    pub fn ended_early(&mut self, name: (ProcessId, EventId)) {
        if let Some(wait) = self.pending.get_mut(&name) {
            wait.outcome = Outcome::FenceDestroyed;
        }
    }

    /// Ends a wait, by a signal or with its fence. Returns how long it took, and its cause.
    pub fn wake(
        &mut self,
        name: (ProcessId, EventId),
        status: NtStatus,
        moment: Moment,
        signals: &[Signaled],
        kept: &KeptSignals,
    ) -> Option<(Nanos, Option<Cause>)> {
        let mut wait = self.pending.remove(&name)?;
        wait.outcome = match status {
            NtStatus::SUCCESS if wait.outcome == Outcome::FenceDestroyed => Outcome::FenceDestroyed,
            NtStatus::SUCCESS => Outcome::Done,
            NtStatus(status) => Outcome::Status(status),
        };
        if wait.outcome == Outcome::Done {
            wait.cause = cause(&wait, signals).or_else(|| cause(&wait, &kept.of(&wait)));
        }
        wait.end = moment;
        let ended = (moment.at.saturating_sub(wait.begin.at), wait.cause);
        self.push(wait);
        Some(ended)
    }

    pub fn cancel(&mut self, process: ProcessId, event: EventId, moment: Moment) {
        if let Some(mut wait) = self.pending.remove(&(process, event)) {
            (wait.outcome, wait.end) = (Outcome::Cancelled, moment);
            self.push(wait);
        }
    }

    pub fn process_gone(&mut self, process: ProcessId, moment: Moment) {
        let events = (process, EventId(0))..=(process, EventId(u64::MAX));
        let pending: Vec<_> = self.pending.range(events).map(|(key, _)| *key).collect();
        for key in pending {
            let mut wait = self.pending.remove(&key).expect("it was just there");
            (wait.outcome, wait.end) = (Outcome::Dropped, moment);
            self.push(wait);
        }
    }

    fn push(&mut self, wait: Wait) {
        let (begin, end) = (wait.begin.sequence, wait.end.sequence);
        self.rows.push(wait, begin, end);
    }

    /// Adds rows for waits that are pending at the end of the trace.
    pub fn finish(&mut self, moment: Moment) {
        for mut wait in std::mem::take(&mut self.pending).into_values() {
            (wait.outcome, wait.end) = (Outcome::Pending, moment);
            self.push(wait);
        }
    }
}

/// The signal that released a wait, of these in their order: for a wait for all its objects, the latest of the first
/// signals of each; otherwise the first that reaches one.
fn cause(wait: &Wait, signals: &[Signaled]) -> Option<Cause> {
    let first = |is_it: &dyn Fn(&Signaled) -> bool| signals.iter().position(is_it);
    let reaches = |target: &(FenceId, u64)| {
        let (fence, value) = *target;
        first(&|signal| signal.fence == Some(fence) && signal.value >= value)
    };
    let at = match wait.kind {
        WaitKind::KeyedMutex { .. } => first(&|signal| signal.fence.is_none()),
        WaitKind::Fences { any: true } => wait.targets.iter().filter_map(reaches).min(),
        WaitKind::Fences { any: false } => wait.targets.iter().filter_map(reaches).max(),
    }?;
    let Signaled { moment, track, fence, value, submission, by: _ } = signals[at];
    Some(Cause { moment, track, fence: fence.unwrap_or(crate::timeline::NONE), value, submission })
}
