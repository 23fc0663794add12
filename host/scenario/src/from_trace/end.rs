//! What a recording ended with: its pending CPU waits, and the values of its fences.

use std::collections::{BTreeMap, BTreeSet};

use d3dkmt::{Call, EventId, Reply, WaitOutcome};
use dxgkrnl::{Effects, Input, ProcessId};

use crate::program::{Binding, Process, Program};
use crate::run::AtEnd;

/// Differences that are named.
const NAMED_MAX: usize = 4;

/// The end of a recording, without the processes that had ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedEnd {
    values: BTreeMap<Binding, u64>,
    waits: BTreeMap<Process, usize>,
}

impl RecordedEnd {
    /// Returns how the end of a run of the program differs, if it does.
    pub fn difference(&self, program: &Program, at_end: &AtEnd) -> Option<String> {
        let mut found = Vec::new();
        let processes: BTreeSet<Process> =
            self.waits.keys().chain(at_end.cpu_waits.keys()).copied().collect();
        for process in processes {
            let of = |waits: &BTreeMap<Process, usize>| waits.get(&process).copied().unwrap_or(0);
            let (recorded, run) = (of(&self.waits), of(&at_end.cpu_waits));
            if recorded != run {
                let name = &program.processes[process.index()].name;
                found.push(format!("{name} has {run} pending waits instead of {recorded}"));
            }
        }
        for (fence, value) in &at_end.values {
            if let Some(recorded) = self.values.get(fence).filter(|recorded| *recorded != value) {
                found.push(format!("{} is {value} instead of {recorded}", program.name(*fence)));
            }
        }
        if found.len() > NAMED_MAX {
            let more = found.len() - NAMED_MAX;
            found.truncate(NAMED_MAX);
            found.push(format!("and {more} more"));
        }
        (!found.is_empty()).then(|| found.join(", "))
    }
}

/// The end so far.
#[derive(Default)]
pub(super) struct EndSoFar {
    /// Fence memory.
    memory: BTreeMap<(ProcessId, u32), u64>,
    /// Slot of each fence; `None` if two fences had it one after the other.
    slots: BTreeMap<(ProcessId, u32), Option<Binding>>,
    waits: BTreeSet<(ProcessId, EventId)>,
}

impl EndSoFar {
    /// Notes the effects of a step.
    pub fn step(&mut self, input: &Input, effects: &Effects) {
        for store in &effects.stores {
            self.memory.insert((store.process, store.slot), store.value);
        }
        if let Input::Call { process, request, call } = input {
            let answer = effects.answer_to(*process, *request).map(|answer| &answer.reply);
            match call {
                Call::WaitFromCpu { event, .. } if answer == Some(&Reply::Wait(WaitOutcome::Registered)) => {
                    self.waits.insert((*process, *event));
                }
                Call::CancelWait { event } => drop(self.waits.remove(&(*process, *event))),
                _ => {}
            }
        }
        for event in effects.events.iter() {
            if let Some(name) = event.target.event() {
                self.waits.remove(&(event.process, name));
            }
        }
    }

    /// Notes the slot of a fence.
    pub fn fence(&mut self, process: ProcessId, slot: Option<u32>, fence: Binding) {
        let Some(slot) = slot else { return };
        self.slots.entry((process, slot)).and_modify(|known| *known = None).or_insert(Some(fence));
    }

    /// Returns the end for the processes that are alive.
    pub fn end(self, alive: &BTreeMap<ProcessId, Process>) -> RecordedEnd {
        let mut end = RecordedEnd::default();
        for (slot, fence) in &self.slots {
            if let (Some(fence), Some(value), true) =
                (fence, self.memory.get(slot), alive.contains_key(&slot.0))
            {
                end.values.insert(*fence, *value);
            }
        }
        for process in self.waits.iter().filter_map(|(process, _)| alive.get(process)) {
            *end.waits.entry(*process).or_default() += 1;
        }
        end
    }
}
