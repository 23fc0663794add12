//! CPU waits, from registration to wake-up, and their causes.

use std::collections::BTreeMap;

use d3dkmt::{EventId, NtStatus};
use dxgkrnl::ddi::EngineId;
use dxgkrnl::{Nanos, ProcessId};

use super::Options;
use super::rows::Rows;
use crate::timeline::{Cause, FenceId, Moment, Outcome, TrackId, Wait, WaitKind};

/// A signal in the current step.
#[derive(Clone, Copy)]
pub(super) struct Signaled {
    pub moment: Moment,
    pub track: TrackId,
    /// `None` for a keyed mutex.
    pub fence: Option<FenceId>,
    pub value: u64,
    pub submission: Option<(EngineId, u64)>,
}

pub(super) struct Waits {
    pub pending: BTreeMap<(ProcessId, EventId), Wait>,
    pub rows: Rows<Wait>,
}

impl Waits {
    pub fn new(options: &Options) -> Self {
        Waits { pending: BTreeMap::new(), rows: Rows::new(options) }
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
    }

    /// Ends a wait. Returns how long it took, and its cause.
    pub fn wake(
        &mut self,
        process: ProcessId,
        event: EventId,
        status: NtStatus,
        moment: Moment,
        signals: &[Signaled],
    ) -> Option<(Nanos, Option<Cause>)> {
        let mut wait = self.pending.remove(&(process, event))?;
        wait.outcome = if status == NtStatus::SUCCESS { Outcome::Done } else { Outcome::Status(status.0) };
        if status == NtStatus::SUCCESS {
            wait.cause = signals.iter().rev().find_map(|signal| cause(&wait, signal));
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
            wait.end = moment;
            self.push(wait);
        }
    }
}

/// Whether this signal may have released this wait.
fn cause(wait: &Wait, signal: &Signaled) -> Option<Cause> {
    let &Signaled { moment, track, fence, value, submission } = signal;
    let mutex = matches!(wait.kind, WaitKind::KeyedMutex { .. });
    let fence = match fence {
        Some(fence) if !mutex => fence,
        None if mutex => crate::timeline::NONE,
        _ => return None,
    };
    let reached = mutex || wait.targets.iter().any(|(target, wanted)| *target == fence && value >= *wanted);
    reached.then_some(Cause { moment, track, fence, value, submission })
}
