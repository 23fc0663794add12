//! The state of a run when every step is done and no process has ended yet.

use std::collections::{BTreeMap, BTreeSet};

use dxgkrnl::ProcessId;
use dxgkrnl::why::Verdict;

use crate::program::{Binding, Kind, Process};
use crate::world::World;

use super::{Checked, Run};

/// A wait of a process, in the terms of `expect why`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub process: Process,
    pub verdict: Verdict,
    /// Root of the wait: a value of a named fence.
    pub root: Option<(Binding, u64)>,
    /// Root of the wait: a keyed mutex and the key that is acquired.
    pub mutex: Option<(Binding, u64)>,
    /// The processes of a cycle.
    pub members: BTreeSet<Process>,
}

impl Waiting {
    /// Whether pending work or timeout detection may end it.
    pub(super) fn ends_by_itself(&self) -> bool {
        match self.verdict {
            Verdict::Progressing { .. } | Verdict::Unknown { .. } => true,
            Verdict::LostInterrupt { looked_at, .. } | Verdict::Hang { looked_at, .. } => looked_at.is_some(),
            Verdict::WaitsFor { .. }
            | Verdict::Cycle { .. }
            | Verdict::DeadEnd
            | Verdict::Frozen { .. }
            | Verdict::Suspended { .. }
            | Verdict::NotRung { .. }
            | Verdict::Removed { .. } => false,
        }
    }
}

/// The state at the end of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AtEnd {
    /// Waits by process, the longest first.
    pub waiting: Vec<Waiting>,
    /// Readable fences with their values.
    pub values: Vec<(Binding, u64)>,
    /// Number of pending CPU waits of each process that has any.
    pub cpu_waits: BTreeMap<Process, usize>,
    /// All notes.
    pub notes: Vec<String>,
}

impl AtEnd {
    /// Returns the waits that no pending work will end.
    pub fn lasting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|waiting| !waiting.ends_by_itself())
    }

    /// Returns the waits that neither pending work nor a process that is free to act will end.
    pub fn stuck(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|waiting| waiting.verdict.is_stuck())
    }
}

impl<W: World> Run<'_, W> {
    /// Returns the waits of all processes.
    pub(super) fn waiting(&mut self) -> Vec<Waiting> {
        let mut all = Vec::new();
        for at in 0..self.alive.len() {
            if !self.alive[at] {
                continue;
            }
            let process = Process(at as u32);
            for cause in self.world.why(process).causes {
                // Each wait of a cycle is a root; the first one is reported.
                let of_first = || cause.waiters.first().and_then(|waiter| waiter.missing.first());
                let missing = cause.root.as_ref().or_else(of_first);
                let named = |kind: Kind| {
                    let missing = missing?;
                    let mut names =
                        missing.object.handles.iter().filter_map(|open| self.name_of(kind, *open));
                    names.next().map(|name| (name, missing.needed))
                };
                let (root, mutex) = (named(Kind::Object), named(Kind::KeyedMutex));
                let of_cycle = cause.back_to.and_then(|from| cause.chain.get(from..)).unwrap_or_default();
                let members = of_cycle.iter().filter_map(|step| self.process_of(step.process?)).collect();
                all.push(Waiting { process, verdict: cause.verdict, root, mutex, members });
            }
        }
        all
    }

    /// Returns the process with this number in the kernel.
    fn process_of(&self, number: u32) -> Option<Process> {
        let mut processes = (0..self.alive.len() as u32).map(Process);
        processes.find(|process| self.world.process_number(*process) == number)
    }

    /// Returns the name of the object of this kind with this handle in a process.
    fn name_of(&self, kind: Kind, (process, handle): (ProcessId, d3dkmt::Handle)) -> Option<Binding> {
        let named = self.program.bindings.iter().zip(&self.bound).position(|(named, bound)| {
            let owner = self.program.process_of(named.thread);
            named.kind == kind
                && bound.handle == handle
                && ProcessId(self.world.process_number(owner)) == process
        });
        named.map(|at| Binding(at as u32))
    }

    /// Returns the state at the end.
    pub(super) fn at_end(&mut self) -> Checked<AtEnd> {
        let waiting = self.waiting();
        let mut values = Vec::new();
        for at in 0..self.bound.len() {
            let binding = Binding(at as u32);
            let owner = self.program.owner(binding);
            if self.program.bindings[at].kind != Kind::Object || !self.alive[owner.index()] {
                continue;
            }
            let value = self.world.value(owner, self.bound[at].handle)?;
            values.extend(value.map(|value| (binding, value)));
        }
        let mut cpu_waits = BTreeMap::new();
        for wait in self.world.snapshot().waits.iter().filter(|wait| wait.event.is_some()) {
            if let Some(process) = self.process_of(wait.process) {
                *cpu_waits.entry(process).or_default() += 1;
            }
        }
        self.collect_notes();
        Ok(AtEnd { waiting, values, cpu_waits, notes: self.notes.clone() })
    }
}
