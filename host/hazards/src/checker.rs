//! The checker: records events and reports accesses that race.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::isa::{Barrier, BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::limits::{AGENTS_MAX, FENCES_MAX, REPORTS_MAX, SIGNALS_PER_FENCE_MAX};
use crate::queue::{Frontier, types};
use crate::report::{Accessed, Conflict, Missing, Report};
use crate::shadow::{Cells, Stamp};
use crate::{Agent, CommandId};

/// Bytes in the address space of a process. Accesses through different GPU addresses of the same memory get the same
/// range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Range {
    pub space: u32,
    pub start: u64,
    pub end: u64,
}

/// A command's access to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    pub range: Range,
    /// The synchronization scopes of the access.
    pub scopes: BarrierSync,
    /// Alternative scopes: each represents the whole access, as `scopes` does (`d3dkmt::isa::other_scopes`).
    pub others: BarrierSync,
    pub access: BarrierAccess,
    pub writes: bool,
}

#[derive(Serialize, Deserialize)]
struct AgentState {
    agent: Agent,
    clock: Clock,
    /// Barrier state of a queue; for a process only its counter is used.
    frontier: Frontier,
}

/// The race detector; the crate describes its state.
#[derive(Default, Serialize, Deserialize)]
pub struct Checker {
    numbers: BTreeMap<Agent, u32>,
    agents: Vec<Option<AgentState>>,
    /// Clock that each submission starts with, until it begins.
    submitted: BTreeMap<(u64, u64), Clock>,
    /// Clock of each signaled value, by fence.
    fences: BTreeMap<u64, BTreeMap<u64, Clock>>,
    cells: Cells,
    reports: Vec<Report>,
    /// Pairs of commands that were reported already, for the current submissions.
    reported: BTreeSet<(u32, CommandId, u32, CommandId)>,
    dropped: u64,
    forgotten: u64,
}

impl Checker {
    /// Takes the reports so far, and the number of reports that exceeded the limit.
    pub fn take_reports(&mut self) -> (Vec<Report>, u64) {
        (core::mem::take(&mut self.reports), core::mem::take(&mut self.dropped))
    }

    /// Number of accesses, signals and agents that exceeded a limit and so count as ordered.
    pub fn forgotten(&self) -> u64 {
        self.forgotten + self.cells.forgotten
    }

    /// Number of ranges that are tracked.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    #[cfg(test)]
    pub(crate) fn fences_known(&self) -> usize {
        self.fences.len()
    }

    #[cfg(test)]
    pub(crate) fn agents_known(&self) -> usize {
        self.numbers.len()
    }

    /// A process submits to a queue: its earlier accesses are ordered before the submission.
    pub fn submit(&mut self, process: u32, queue: u64, submission: u64) {
        let Some(process) = self.number(Agent::Process(process)) else { return };
        let clock = self.published(process);
        self.submitted.insert((queue, submission), clock);
    }

    /// A queue begins a submission. All its earlier accesses are complete (BAR-012).
    pub fn begin(&mut self, queue: u64, submission: u64) {
        let Some(number) = self.number(Agent::Queue(queue)) else { return };
        let submitted = self.submitted.remove(&(queue, submission));
        let state = self.agent_state(number);
        state.frontier.begin();
        let begun = state.frontier.begun;
        state.clock.raise(number, begun);
        if let Some(submitted) = submitted {
            state.clock.join(&submitted);
        }
        self.reported.clear();
    }

    /// A submission was dropped before it began.
    pub fn drop_submission(&mut self, queue: u64, submission: u64) {
        self.submitted.remove(&(queue, submission));
    }

    /// A barrier in the current submission of a queue, for the memory of a resource or for all memory.
    pub fn barrier(&mut self, queue: u64, barrier: &Barrier, range: Option<Range>) {
        let Some(number) = self.number(Agent::Queue(queue)) else { return };
        let Checker { agents, cells, .. } = self;
        let frontier =
            &mut agents[number as usize].as_mut().expect("each number belongs to an agent").frontier;
        let (Some(waited), Some(range)) = (frontier.barrier(barrier, range), range) else { return };
        let (before, after) = (types(barrier.access_before), types(barrier.access_after));
        let own = |write: &&mut Stamp| write.agent == number && write.number > frontier.begun;
        for write in cells.in_range(range).filter_map(|cell| cell.write.as_mut()).filter(own) {
            (write.visible, write.globals_seen) = (frontier.seen_by(write), frontier.globals());
            if waited.shows(before, write, write.visible) {
                write.visible |= after;
            }
        }
    }

    /// The next command of a queue, with all its accesses.
    pub fn command(&mut self, queue: u64, command: CommandId, accesses: &[Access]) {
        let Some(number) = self.number(Agent::Queue(queue)) else { return };
        self.agent_state(number).frontier.count += 1;
        for access in accesses {
            self.access(number, command, access);
        }
    }

    /// A CPU access by a process, now.
    pub fn cpu_access(&mut self, process: u32, range: Range, writes: bool) {
        let Some(number) = self.number(Agent::Process(process)) else { return };
        self.agent_state(number).frontier.count += 1;
        let (scopes, others) = (BarrierSync::NONE, BarrierSync::NONE);
        let access = Access { range, scopes, others, access: BarrierAccess::COMMON, writes };
        self.access(number, CommandId::default(), &access);
    }

    /// An agent signals a fence: its earlier accesses are ordered before any wait for the value.
    pub fn signal(&mut self, agent: Agent, fence: u64, value: u64) {
        let Some(number) = self.number(agent) else { return };
        let clock = self.published(number);
        if self.fences.len() >= FENCES_MAX && !self.fences.contains_key(&fence) {
            self.forgotten += 1;
            return;
        }
        let signals = self.fences.entry(fence).or_default();
        // After a rewind, later waits match only later signals.
        signals.retain(|signaled, _| *signaled <= value);
        // The queues of a broadcast signal the value one after the other, and it is there when the last one has.
        if let Some(same) = signals.get_mut(&value) {
            return same.join(&clock);
        }
        if signals.len() >= SIGNALS_PER_FENCE_MAX {
            signals.pop_first();
        }
        signals.insert(value, clock);
    }

    /// An agent's wait for a value was satisfied.
    pub fn wait(&mut self, agent: Agent, fence: u64, value: u64) {
        let Some(number) = self.number(agent) else { return };
        let signals = self.fences.get(&fence);
        // The wait can rely only on the first signal that reached the value.
        let Some(clock) = signals.and_then(|signals| signals.range(value..).next()) else { return };
        let clock = clock.1.clone();
        self.agent_state(number).clock.join(&clock);
    }

    /// A fence was destroyed.
    pub fn forget_fence(&mut self, fence: u64) {
        self.fences.remove(&fence);
    }

    /// A process or a queue was destroyed.
    pub fn forget(&mut self, agent: Agent) {
        match agent {
            Agent::Process(process) => self.cells.forget_space(process),
            Agent::Queue(queue) => self.submitted.retain(|(of, _), _| *of != queue),
        }
        let Some(number) = self.numbers.remove(&agent) else { return };
        self.agents[number as usize] = None;
        self.cells.forget_agent(number);
        for state in self.agents.iter_mut().flatten() {
            state.clock.forget(number);
        }
        let signals = self.fences.values_mut().flat_map(BTreeMap::values_mut);
        signals.chain(self.submitted.values_mut()).for_each(|clock| clock.forget(number));
    }

    fn number(&mut self, agent: Agent) -> Option<u32> {
        if let Some(number) = self.numbers.get(&agent) {
            return Some(*number);
        }
        let state = AgentState { agent, clock: Clock::default(), frontier: Frontier::default() };
        let at = match self.agents.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.agents.len() < AGENTS_MAX => {
                self.agents.push(None);
                self.agents.len() - 1
            }
            None => {
                self.forgotten += 1;
                return None;
            }
        };
        self.agents[at] = Some(state);
        self.numbers.insert(agent, at as u32);
        Some(at as u32)
    }

    fn agent_state(&mut self, number: u32) -> &mut AgentState {
        self.agents[number as usize].as_mut().expect("each number belongs to an agent")
    }

    /// Clock of all accesses of an agent so far.
    fn published(&mut self, number: u32) -> Clock {
        let state = self.agent_state(number);
        let mut clock = state.clock.clone();
        clock.raise(number, state.frontier.count);
        clock
    }

    fn access(&mut self, number: u32, command: CommandId, access: &Access) {
        let Access { range, scopes, others, access, writes } = *access;
        if range.start >= range.end {
            return;
        }
        let Checker { agents, cells, reports, reported, dropped, .. } = self;
        let state = agents[number as usize].as_ref().expect("each number belongs to an agent");
        let stamp = Stamp {
            agent: number,
            number: state.frontier.count,
            scopes: scopes.expanded(),
            others,
            access,
            writes,
            command,
            visible: BarrierAccess::empty(),
            globals_seen: state.frontier.globals(),
        };
        cells.access(range, stamp, |cell_range, cell| {
            let reads = cell.reads.iter().filter(|_| writes);
            for earlier in cell.write.iter().chain(reads) {
                let Some(conflict) = state.conflict(number, earlier, &stamp) else { continue };
                let pair = (earlier.agent, earlier.command, number, command);
                let report = report(agents, cell_range, earlier, &stamp, conflict);
                add_report(reports, reported, dropped, pair, report);
            }
        });
    }
}

impl AgentState {
    /// The conflict between an earlier access and one of this agent, if any.
    fn conflict(&self, number: u32, earlier: &Stamp, later: &Stamp) -> Option<Conflict> {
        if earlier.agent != number {
            let ordered = self.clock.of(earlier.agent) >= earlier.number;
            return (!ordered).then_some(Conflict::Unordered);
        }
        // Accesses of one command never conflict, nor do those of one process on its CPUs.
        if earlier.number == later.number || matches!(self.agent, Agent::Process(_)) {
            return None;
        }
        if earlier.access.is_in_order_with(later.access) {
            return None;
        }
        let before =
            |scopes| later.scope_sets().any(|by| self.frontier.is_before(scopes, earlier.number, by));
        if !earlier.scope_sets().any(before) {
            return Some(Conflict::Unordered);
        }
        let is_visible = !earlier.writes
            || later.access == BarrierAccess::COMMON
            || earlier.access == later.access
            || self.frontier.seen_by(earlier).contains(later.access);
        (!is_visible).then_some(Conflict::NotVisible)
    }
}

fn report(
    agents: &[Option<AgentState>],
    range: Range,
    earlier: &Stamp,
    later: &Stamp,
    conflict: Conflict,
) -> Report {
    let accessed = |stamp: &Stamp| Accessed {
        agent: agents[stamp.agent as usize].as_ref().expect("a forgotten agent has no accesses").agent,
        command: stamp.command,
        scopes: stamp.scopes,
        access: stamp.access,
        writes: stamp.writes,
    };
    let (first, second) = (accessed(earlier), accessed(later));
    let missing = if earlier.agent == later.agent {
        let flush = earlier.writes && earlier.access != later.access;
        let (access_before, access_after) = match flush {
            true => (earlier.access & BarrierAccess::WRITES, later.access),
            // A read before a write, and two writes of one type, need order only.
            false => (earlier.access, later.access),
        };
        let (sync_before, sync_after) = (earlier.scopes, later.scopes);
        Missing::Barrier { sync_before, sync_after, access_before, access_after }
    } else {
        Missing::Fence { signals: first.agent, waits: second.agent }
    };
    Report { range, earlier: first, later: second, conflict, missing, times: 1 }
}

/// Adds a report. Two commands that conflict on several ranges are one report.
fn add_report(
    reports: &mut Vec<Report>,
    reported: &mut BTreeSet<(u32, CommandId, u32, CommandId)>,
    dropped: &mut u64,
    pair: (u32, CommandId, u32, CommandId),
    report: Report,
) {
    if !reported.insert(pair) {
        let same = |existing: &&mut Report| {
            (existing.earlier, existing.later, existing.conflict)
                == (report.earlier, report.later, report.conflict)
        };
        if let Some(existing) = reports.iter_mut().rev().find(same) {
            existing.times += 1;
        }
        return;
    }
    if reports.len() < REPORTS_MAX {
        reports.push(report);
    } else {
        *dropped += 1;
    }
}
