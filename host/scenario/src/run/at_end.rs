//! The state of a run when every step is done and no process has ended yet.

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
                let root = missing.and_then(|missing| {
                    let mut names = missing.object.handles.iter().filter_map(|open| self.name_of(*open));
                    names.next().map(|name| (name, missing.needed))
                });
                all.push(Waiting { process, verdict: cause.verdict, root });
            }
        }
        all
    }

    /// Returns the name of the synchronization object with this handle in a process.
    fn name_of(&self, (process, handle): (ProcessId, d3dkmt::Handle)) -> Option<Binding> {
        let named = self.program.bindings.iter().zip(&self.bound).position(|(named, bound)| {
            let owner = self.program.process_of(named.thread);
            named.kind == Kind::Object
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
        self.collect_notes();
        Ok(AtEnd { waiting, values, notes: self.notes.clone() })
    }
}
