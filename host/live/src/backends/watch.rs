//! Observes the daemon's kernel for the runner: runs the checker after every step, and records wakes, attached and
//! ended processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use d3dkmt::{AcquireOutcome, Call, Reply, WaitOutcome};
use dxgkrnl::{Effects, Input, Nanos, Note, ProcessId};
use proto::scenario_client::BARRIER;
use scenario::checker::{Checker, InputSummary, may_wait};

use daemon::Observer;
use daemon::observer::DaemonKernel;

use super::SILENCE_MAX;

#[derive(Default)]
struct WatchState {
    checker: Checker,
    /// Attached processes, each with its pid at attach.
    attached: BTreeMap<ProcessId, u32>,
    wakes: BTreeMap<ProcessId, u64>,
    /// Number of CPU waits that each process has registered so far.
    registered: BTreeMap<ProcessId, u64>,
    /// Processes woken since [`Watch::take_woken`] was last called.
    woken: BTreeSet<ProcessId>,
    notes: Vec<Note>,
    /// Number of NT handles of shared objects.
    nt_handles: usize,
}

/// The observer of the daemon's kernel.
#[derive(Default)]
pub struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, because a new kernel starts.
    pub fn reset(&self) {
        *self.lock() = WatchState::default();
    }

    /// Returns the newest process that attached with this pid and is not in `known`; with `None` the newest of all.
    pub fn attached(&self, pid: Option<u32>, known: &[Option<ProcessId>]) -> Option<ProcessId> {
        let state = self.lock();
        let fits = |(id, other): &(&ProcessId, &u32)| {
            pid.is_none_or(|pid| pid == **other) && !known.contains(&Some(**id))
        };
        state.attached.iter().rev().find(fits).map(|(id, _)| *id)
    }

    pub fn wakes(&self, process: ProcessId) -> u64 {
        self.lock().wakes.get(&process).copied().unwrap_or(0)
    }

    pub fn registered(&self, process: ProcessId) -> u64 {
        self.lock().registered.get(&process).copied().unwrap_or(0)
    }

    pub fn take_woken(&self) -> BTreeSet<ProcessId> {
        std::mem::take(&mut self.lock().woken)
    }

    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut self.lock().notes)
    }

    pub fn take_violations(&self) -> Vec<String> {
        self.lock().checker.take_violations()
    }

    /// Waits until the kernel has nothing of the process; false on timeout.
    pub fn wait_until_gone(&self, process: ProcessId) -> bool {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, SILENCE_MAX, |state| state.attached.contains_key(&process));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until the kernel has no process; false on timeout.
    pub fn wait_until_all_gone(&self) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, SILENCE_MAX, |state| !state.attached.is_empty());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until the kernel has no more NT handles than `at_most`; false on timeout.
    pub fn wait_until_handles(&self, at_most: usize) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, SILENCE_MAX, |state| state.nt_handles > at_most);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Whether the caller now sleeps until a wake.
fn sleeps(reply: &Reply) -> bool {
    match reply {
        Reply::Wait(outcome) => *outcome == WaitOutcome::Registered,
        Reply::KeyedMutexAcquire { outcome, .. } => *outcome == AcquireOutcome::Registered,
        _ => false,
    }
}

/// Whether a thread may sleep in this call.
pub fn may_sleep(call: &Call) -> bool {
    match call {
        Call::WaitFromCpu { .. } | Call::AcquireKeyedMutex { .. } => true,
        other => may_wait(other),
    }
}

impl Observer for Watch {
    fn step(&self, _now: Nanos, input: &Input, effects: &Effects, kernel: &DaemonKernel) {
        let is_quiet = effects.events.is_empty() && effects.stores.is_empty() && effects.answers.len() <= 1;
        let barrier_of = match input {
            Input::Call { process, call: BARRIER, .. } => Some(*process),
            _ => None,
        };
        if barrier_of.is_some() && is_quiet {
            return;
        }
        let mut state = self.lock();
        let state = &mut *state;
        state.nt_handles = kernel.nt_handles();
        state.checker.step(&InputSummary::of(input), effects, kernel);
        for event in &effects.events {
            *state.wakes.entry(event.process).or_default() += 1;
            state.woken.insert(event.process);
        }
        let mut of_call = None;
        if let Input::Call { process, request, call } = input {
            of_call = Some((*process, *request));
            let is_late = effects.answer_to(*process, *request).is_none() && *request != 0;
            if is_late && may_sleep(call) {
                *state.registered.entry(*process).or_default() += 1;
            }
        }
        for answer in &effects.answers {
            if of_call != Some((answer.process, answer.request)) {
                state.woken.insert(answer.process);
            }
            if sleeps(&answer.reply) {
                *state.registered.entry(answer.process).or_default() += 1;
            }
        }
        let is_of_barrier = |note: &Note| {
            barrier_of.is_some() && note.process == barrier_of && note.text.contains("is no device handle")
        };
        let notes = effects.notes.iter().filter(|note| !is_of_barrier(note));
        state.notes.extend(notes.cloned());
        match input {
            Input::ProcessAttached { process, pid, .. } => {
                state.attached.insert(*process, *pid);
            }
            // An end takes several steps.
            Input::ProcessGone { .. } | Input::VmDetached { .. } | Input::Deadline => {
                let alive: BTreeSet<ProcessId> = kernel.processes().collect();
                state.attached.retain(|process, _| alive.contains(process));
                self.changed.notify_all();
            }
            Input::NtHandleClosed { .. } => self.changed.notify_all(),
            _ => {}
        }
    }
}
