//! Finds when the calls of a recording were over, and when their waits ended.

use std::collections::BTreeMap;

use d3dkmt::{AcquireOutcome, Call, EventId, GpuSignal, Reply, WaitOutcome};
use dxgkrnl::{Effects, Input, ProcessId};

use crate::checker::may_wait;
use crate::program::{Action, Process, Program};

/// The end of a call, or of its wait: its process may have acted on it from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallEnd {
    pub process: Process,
    /// Index of the call in the program, from 0.
    pub call: usize,
    /// For a call with an event: number of times that the event was set, earlier calls with it included.
    pub times: u64,
    /// Index of the recorded step, from 0.
    pub step: usize,
}

/// The ends so far, and the calls that are not over.
#[derive(Default)]
pub(super) struct CallEnds {
    /// By event: the last call with it.
    events: BTreeMap<(ProcessId, EventId), CallEnd>,
    /// By request: calls that may be answered later.
    requests: BTreeMap<(ProcessId, u64), CallEnd>,
    pub found: Vec<CallEnd>,
}

impl CallEnds {
    /// Notes a call that may wait; it is the program's last step.
    pub fn call(&mut self, input: &Input, program: &Program) {
        let Input::Call { process: id, request, call } = input else { return };
        let Some(Action::Act(act)) = program.steps.last().map(|step| &step.action) else { return };
        let process = program.process_of(act.thread);
        let end = CallEnd { process, call: program.steps.len() - 1, times: 0, step: 0 };
        let event = match call {
            Call::WaitFromCpu { event, .. }
            | Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event }, .. } => Some(*event),
            Call::CreateSynchronizationObject { info, .. } => info.event,
            Call::AcquireKeyedMutex { event, .. } => {
                // Its thread returns once, whatever earlier acquires did.
                self.events.remove(&(*id, *event));
                Some(*event)
            }
            _ => None,
        };
        if let Some(event) = event {
            let known = self.events.entry((*id, event)).or_insert(end);
            *known = CallEnd { times: known.times, ..end };
        }
        if may_wait(call) || matches!(call, Call::AcquireKeyedMutex { .. }) {
            self.requests.insert((*id, *request), end);
        }
    }

    /// Finds the calls that are over with these effects of a recorded step.
    pub fn effects(&mut self, step: usize, input: &Input, effects: &Effects) {
        for answer in &effects.answers {
            match (&answer.reply, input) {
                (
                    Reply::Wait(WaitOutcome::Satisfied),
                    Input::Call { call: Call::WaitFromCpu { event, .. }, .. },
                ) => {
                    self.was_set(answer.process, *event, step);
                }
                (Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. }, _) => {
                    self.requests.remove(&(answer.process, answer.request));
                }
                _ => {
                    let over = self.requests.remove(&(answer.process, answer.request));
                    self.found.extend(over.map(|end| CallEnd { step, ..end }));
                }
            }
        }
        for woken in &effects.events {
            if let Some(event) = woken.target.event() {
                self.was_set(woken.process, event, step);
            }
        }
    }

    fn was_set(&mut self, process: ProcessId, event: EventId, step: usize) {
        if let Some(end) = self.events.get_mut(&(process, event)) {
            end.times += 1;
            self.found.push(CallEnd { step, ..*end });
        }
    }
}
