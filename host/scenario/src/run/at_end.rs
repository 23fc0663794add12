//! The state of a run when every step is done and no process has ended yet.

use std::collections::{BTreeMap, BTreeSet};

use dxgkrnl::ProcessId;
use dxgkrnl::why::{Missing, Verdict};

use crate::program::{Binding, Kind, Process, Program};
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
    /// Of each wait with this cause: the values that it lacks itself, or else the root.
    pub needs: Vec<Vec<(Binding, u64)>>,
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

    /// Returns this cause without the waits that another end has too, if any wait is left. The root of a cause is that
    /// of its oldest wait, and which wait is the oldest depends on the order of steps. So each wait counts by what it
    /// lacks itself.
    pub fn other_than(&self, end: &AtEnd, program: &Program) -> Option<Waiting> {
        // The wait for a hang is the same one, whether timeout detection checks that hang or not.
        let lasts = |other: &Waiting| !other.ends_by_itself() || other.verdict.name() == self.verdict.name();
        let known: Vec<&Waiting> =
            end.waiting.iter().filter(|other| other.process == self.process && lasts(other)).collect();
        let is_known = |needs: &Vec<(Binding, u64)>| {
            known.iter().any(|other| other.needs.iter().any(|other| is_same_wait(other, needs)))
        };
        let needs: Vec<_> = self.needs.iter().filter(|needs| !is_known(needs)).cloned().collect();
        let first = needs.first()?.first().copied();
        let mut other = self.clone();
        // The root may be that of a wait which the other end has.
        if needs.len() < self.needs.len()
            && let Some((object, _)) = first
        {
            let is_mutex = program.bindings[object.index()].kind == Kind::KeyedMutex;
            other.root = first.filter(|_| !is_mutex);
            other.mutex = first.filter(|_| is_mutex);
        }
        Some(Waiting { needs, ..other })
    }
}

/// Whether what two waits lack is that of one wait. It may lack less in another order.
fn is_same_wait(one: &[(Binding, u64)], other: &[(Binding, u64)]) -> bool {
    (one.is_empty() && other.is_empty()) || one.iter().any(|needed| other.contains(needed))
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
                let named = |kind: Kind| missing.and_then(|missing| self.named(kind, missing));
                let (root, mutex) = (named(Kind::Object), named(Kind::KeyedMutex));
                let needs = cause.waiters.iter().map(|waiter| self.needs(&waiter.missing, root.or(mutex)));
                let needs = needs.collect();
                let of_cycle = cause.back_to.and_then(|from| cause.chain.get(from..)).unwrap_or_default();
                let members = of_cycle.iter().filter_map(|step| self.process_of(step.process?)).collect();
                all.push(Waiting { process, verdict: cause.verdict, root, mutex, members, needs });
            }
        }
        all
    }

    /// Returns the name of the missing object, if it is of this kind, with the value that is needed.
    fn named(&self, kind: Kind, missing: &Missing) -> Option<(Binding, u64)> {
        let mut names = missing.object.handles.iter().filter_map(|open| self.name_of(kind, *open));
        names.next().map(|name| (name, missing.needed))
    }

    fn needs(&self, missing: &[Missing], root: Option<(Binding, u64)>) -> Vec<(Binding, u64)> {
        let named = |missing: &Missing| {
            self.named(Kind::Object, missing).or_else(|| self.named(Kind::KeyedMutex, missing))
        };
        let own: Vec<_> = missing.iter().filter_map(named).collect();
        if own.is_empty() { root.into_iter().collect() } else { own }
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
        let notes = self.notes.iter().map(|note| note.text.clone()).collect();
        Ok(AtEnd { waiting, values, cpu_waits, notes })
    }
}
