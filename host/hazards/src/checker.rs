//! The checker: records events and reports accesses that race.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::isa::{Barrier, BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::limits::{AGENTS_MAX, CLOCK_WORDS_MAX, FENCES_MAX, REPORTS_MAX};
use crate::queue::{DISCARD, Frontier, discard_scopes, effect};
use crate::report::{Accessed, Conflict, Missing, Report};
use crate::shadow::{Cells, Stamp};
use crate::signals::Signals;
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
    /// The synchronization scopes of the access; none for one that waits for all before it, and which all behind it see.
    pub scopes: BarrierSync,
    /// Alternative scopes: each represents the whole access, as `scopes` does (`d3dkmt::isa::other_scopes`).
    pub others: BarrierSync,
    pub access: BarrierAccess,
    pub writes: bool,
}

impl Access {
    /// The engine itself writes memory, when all commands before are complete.
    pub fn by_engine(range: Range) -> Self {
        let (scopes, others) = (BarrierSync::NONE, BarrierSync::NONE);
        Access { range, scopes, others, access: BarrierAccess::COMMON, writes: true }
    }
}

#[derive(Serialize, Deserialize)]
struct AgentState {
    agent: Agent,
    /// Where its count begins: accesses of its number up to this are those of a forgotten agent.
    since: u64,
    clock: Clock,
    /// Barrier state of a queue; for a process only its counter is used.
    frontier: Frontier,
}

/// The race detector; the crate describes its state.
#[derive(Default, Serialize, Deserialize)]
pub struct Checker {
    numbers: BTreeMap<Agent, u32>,
    agents: Vec<Option<AgentState>>,
    /// The last count of each number without an agent. The next agent of the number counts on from there, so that what
    /// cells and clocks have of the forgotten one is about none of its accesses, and nothing needs to be searched for it.
    last_counts: BTreeMap<u32, u64>,
    /// Clock that each submission starts with, until it begins.
    submitted: BTreeMap<(u64, u64), Clock>,
    fences: BTreeMap<u64, Signals>,
    /// For each lost device, the join of the clocks of its queues.
    devices: BTreeMap<u32, Clock>,
    /// Join of the clocks of all signals and agents over a limit. What may come after one of them comes after all.
    lost: Clock,
    /// Words of the clocks of `submitted`, `fences` and `devices`.
    words: usize,
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

    /// Number of commands, barriers, accesses, signals and agents that exceeded a limit and so count as ordered.
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
    pub(crate) fn words_known(&self) -> usize {
        self.words
    }

    /// As `words_known`, counted anew.
    #[cfg(test)]
    pub(crate) fn words_counted(&self) -> usize {
        let clocks = self.submitted.values().chain(self.devices.values());
        clocks.map(Clock::words).sum::<usize>() + self.fences.values().map(Signals::words).sum::<usize>()
    }

    #[cfg(test)]
    pub(crate) fn submissions_known(&self) -> usize {
        self.submitted.len()
    }

    #[cfg(test)]
    pub(crate) fn agents_known(&self) -> usize {
        self.numbers.len()
    }

    /// A process submits to a queue: its earlier accesses are ordered before the submission.
    pub fn submit(&mut self, process: u32, queue: u64, submission: u64) {
        let clock = self.published(Agent::Process(process));
        if self.words + clock.words() > CLOCK_WORDS_MAX {
            self.forgotten += 1;
            return self.order(Agent::Queue(queue), &clock);
        }
        self.words += clock.words();
        self.submitted.insert((queue, submission), clock);
    }

    /// A process submits to a queue whose submissions are not reported: its earlier accesses are ordered before all that
    /// the queue signals from now on.
    pub fn submit_unseen(&mut self, process: u32, queue: u64) {
        let clock = self.published(Agent::Process(process));
        self.order(Agent::Queue(queue), &clock);
    }

    /// A queue begins a submission. All its earlier accesses are complete (BAR-012).
    pub fn begin(&mut self, queue: u64, submission: u64) {
        let submitted = self.take_submitted(queue, submission);
        let Some(number) = self.number(Agent::Queue(queue)) else {
            return self.lost.join(&submitted);
        };
        let state = self.agent_state(number);
        state.frontier.begin();
        let begun = state.frontier.begun;
        state.clock.raise(number, begun);
        state.clock.join(&submitted);
        self.reported.clear();
    }

    fn take_submitted(&mut self, queue: u64, submission: u64) -> Clock {
        let clock = self.submitted.remove(&(queue, submission)).unwrap_or_default();
        self.words -= clock.words();
        clock
    }

    /// A submission was dropped before it began.
    pub fn drop_submission(&mut self, queue: u64, submission: u64) {
        self.take_submitted(queue, submission);
    }

    /// A barrier in the current submission of a queue. `named`: the addresses that it is on, by which the halves of a split
    /// barrier find each other; `None` for all memory. `memory`: what is there, piece by piece. It is taken as far as the
    /// submission may visit it; an empty piece counts, too.
    pub fn barrier(
        &mut self,
        queue: u64,
        barrier: &Barrier,
        named: Option<Range>,
        memory: impl IntoIterator<Item = Range>,
    ) {
        let Some(number) = self.number(Agent::Queue(queue)) else { return };
        let Checker { agents, cells, forgotten, .. } = self;
        let frontier =
            &mut agents[number as usize].as_mut().expect("each number belongs to an agent").frontier;
        if !frontier.visit(1) {
            return Self::give_up(frontier, forgotten);
        }
        let Some(waited) = frontier.barrier(barrier, named) else { return };
        let (before, after) = effect(barrier);
        for range in memory {
            let mut visits = 1;
            let own = |write: &&mut Stamp| write.agent == number && write.number > frontier.begun;
            let found = cells.in_range(range).inspect(|_| visits += 1);
            for write in found.filter_map(|cell| cell.write.as_mut()).filter(own) {
                (write.visible, write.globals_seen) = (frontier.seen_by(write), frontier.globals());
                if waited.shows(before, write, write.visible) {
                    write.visible |= after;
                }
            }
            if !frontier.visit(visits) {
                return Self::give_up(frontier, forgotten);
            }
        }
    }

    /// A barrier of a submission without visits left: all accesses before it count as ordered and visible.
    fn give_up(frontier: &mut Frontier, forgotten: &mut u64) {
        *forgotten += 1;
        frontier.finish_all();
    }

    /// The next command of a queue, with all its accesses. They are taken as far as the submission may visit them; an
    /// access to an empty range counts, too.
    pub fn command(&mut self, queue: u64, command: CommandId, accesses: impl IntoIterator<Item = Access>) {
        let Some(number) = self.number(Agent::Queue(queue)) else { return };
        self.agent_state(number).frontier.count += 1;
        let mut accesses = accesses.into_iter();
        loop {
            if !self.agent_state(number).frontier.visit(0) {
                self.forgotten += 1;
                return;
            }
            let Some(access) = accesses.next() else { return };
            self.access(number, command, &access);
        }
    }

    /// A barrier with DISCARD, which was applied, writes its memory: behind what it and earlier barriers with a scope of its
    /// SyncAfter have waited for, and before commands in its SyncAfter start. The memory is taken as that of a command.
    pub fn discard(
        &mut self,
        queue: u64,
        command: CommandId,
        (sync_after, named): (BarrierSync, Option<Range>),
        memory: impl IntoIterator<Item = Range>,
    ) {
        let scopes = discard_scopes(sync_after);
        let write = |range| Access { scopes, others: DISCARD, ..Access::by_engine(range) };
        self.command(queue, command, memory.into_iter().map(write));
        if let Some(number) = self.number(Agent::Queue(queue)) {
            self.agent_state(number).frontier.discard(sync_after, named);
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
        let clock = self.published(agent);
        self.signal_with(clock, fence, value);
    }

    /// A queue signals a fence in the middle of a submission, behind this many of its commands (see
    /// [`Checker::commands`]).
    pub fn signal_behind(&mut self, queue: u64, commands: u64, fence: u64, value: u64) {
        let Some(number) = self.number(Agent::Queue(queue)) else {
            return self.signal(Agent::Queue(queue), fence, value);
        };
        let mut clock = self.agent_state(number).clock.clone();
        clock.raise(number, commands);
        self.signal_with(clock, fence, value);
    }

    /// Number of the commands of a queue so far.
    pub fn commands(&self, queue: u64) -> u64 {
        let number = self.numbers.get(&Agent::Queue(queue));
        let state = number.and_then(|number| self.agents[*number as usize].as_ref());
        state.map_or(0, |state| state.frontier.count)
    }

    /// A queue of a lost device does nothing more.
    pub fn work_over(&mut self, queue: u64, device: u32) {
        let clock = self.published(Agent::Queue(queue));
        if self.words + clock.words() > CLOCK_WORDS_MAX {
            self.forgotten += 1;
            return self.lost.join(&clock);
        }
        let of_device = self.devices.entry(device).or_default();
        self.words -= of_device.words();
        of_device.join(&clock);
        self.words += of_device.words();
    }

    /// A fence of a lost device is signaled: all that its queues did is ordered before any wait for the value.
    pub fn signal_by_device(&mut self, device: u32, fence: u64, value: u64) {
        let mut clock = self.devices.get(&device).cloned().unwrap_or_default();
        clock.join(&self.lost);
        self.signal_with(clock, fence, value);
    }

    /// A fence is signaled by agents that are not known: all accesses so far are ordered before any wait for the value.
    pub fn signal_behind_all(&mut self, fence: u64, value: u64) {
        let mut clock = self.lost.clone();
        for (number, state) in self.agents.iter().enumerate() {
            if let Some(state) = state {
                clock.raise(number as u32, state.frontier.count);
            }
        }
        self.signal_with(clock, fence, value);
    }

    /// A lost device was destroyed.
    pub fn forget_device(&mut self, device: u32) {
        if let Some(clock) = self.devices.remove(&device) {
            self.words -= clock.words();
        }
    }

    /// A queue reaches a broadcast signal, and other queues of that have not.
    pub fn reach_broadcast(&mut self, agent: Agent, fence: u64, broadcast: u32) {
        let clock = self.published(agent);
        self.change_signals(clock, fence, |signals, clock| signals.reach(broadcast, clock));
    }

    /// The last queue reaches a broadcast signal: what all its queues did before it is ordered before any wait for the value.
    pub fn complete_broadcast(&mut self, agent: Agent, fence: u64, broadcast: u32, value: u64) {
        let clock = self.published(agent);
        self.change_signals(clock, fence, |signals, clock| signals.complete(broadcast, value, clock));
    }

    /// A broadcast is over, signaled or not: its number is another one's from now on.
    pub fn forget_broadcast(&mut self, fence: u64, broadcast: u32) {
        let Some(signals) = self.fences.get_mut(&fence) else { return };
        self.words -= signals.words();
        signals.forget_broadcast(broadcast);
        self.words += signals.words();
    }

    fn signal_with(&mut self, clock: Clock, fence: u64, value: u64) {
        self.change_signals(clock, fence, |signals, clock| signals.signal(value, clock));
    }

    fn change_signals(&mut self, clock: Clock, fence: u64, change: impl FnOnce(&mut Signals, Clock)) {
        self.make_room(fence, clock.words());
        if self.words + clock.words() > CLOCK_WORDS_MAX {
            self.forgotten += 1;
            if let Some(signals) = self.fences.remove(&fence) {
                self.lose(signals);
            }
            return self.lost.join(&clock);
        }
        let is_incomplete = !self.lost.is_empty();
        let signals = self.fences.entry(fence).or_insert_with(|| Signals::new(is_incomplete, None));
        self.words -= signals.words();
        change(signals, clock);
        self.words += signals.words();
    }

    /// Forgets signals of other fences until there is room for those of this one, and for a clock.
    fn make_room(&mut self, fence: u64, words: usize) {
        let is_known = self.fences.contains_key(&fence);
        let is_full = |checker: &Self| {
            checker.words + words > CLOCK_WORDS_MAX || !is_known && checker.fences.len() >= FENCES_MAX
        };
        while is_full(self) {
            let Some(other) = self.fences.keys().find(|other| **other != fence).copied() else { return };
            if let Some(signals) = self.fences.remove(&other) {
                self.forgotten += 1;
                self.lose(signals);
            }
        }
    }

    fn lose(&mut self, mut signals: Signals) {
        self.words -= signals.words();
        signals.all().for_each(|clock| self.lost.join(clock));
    }

    /// An agent's wait for a value was satisfied.
    pub fn wait(&mut self, agent: Agent, fence: u64, value: u64) {
        let Some(signals) = self.fences.get(&fence) else {
            let lost = self.lost.clone();
            return self.order(agent, &lost);
        };
        let mut clock = signals.of_wait(value);
        if signals.is_incomplete {
            clock.join(&self.lost);
        }
        self.order(agent, &clock);
    }

    /// A fence was created with this value.
    pub fn create_fence(&mut self, fence: u64, value: u64) {
        self.forget_fence(fence);
        self.make_room(fence, 0);
        self.fences.insert(fence, Signals::new(false, Some(value)));
    }

    /// A fence was destroyed.
    pub fn forget_fence(&mut self, fence: u64) {
        if let Some(signals) = self.fences.remove(&fence) {
            self.words -= signals.words();
        }
    }

    /// Memory is gone: its accesses are over, and later ones are to other memory.
    pub fn forget_memory(&mut self, range: Range) {
        self.cells.forget(range);
    }

    /// A process or a queue was destroyed.
    pub fn forget(&mut self, agent: Agent) {
        match agent {
            Agent::Process(space) => self.cells.forget(Range { space, start: 0, end: u64::MAX }),
            Agent::Queue(queue) => {
                let unbegun = self.submitted.range((queue, 0)..=(queue, u64::MAX));
                let submissions: Vec<u64> = unbegun.map(|((_, submission), _)| *submission).collect();
                submissions.into_iter().for_each(|submission| self.drop_submission(queue, submission));
            }
        }
        let Some(number) = self.numbers.remove(&agent) else { return };
        if let Some(state) = self.agents[number as usize].take() {
            self.last_counts.insert(number, state.frontier.count);
        }
    }

    fn number(&mut self, agent: Agent) -> Option<u32> {
        if let Some(number) = self.numbers.get(&agent) {
            return Some(*number);
        }
        let (at, since) = match self.last_counts.pop_first() {
            Some(free) => free,
            None if self.agents.len() < AGENTS_MAX => {
                self.agents.push(None);
                (self.agents.len() as u32 - 1, 0)
            }
            None => {
                self.forgotten += 1;
                return None;
            }
        };
        let frontier = Frontier::since(since);
        self.agents[at as usize] = Some(AgentState { agent, since, clock: Clock::default(), frontier });
        self.numbers.insert(agent, at);
        Some(at)
    }

    fn agent_state(&mut self, number: u32) -> &mut AgentState {
        self.agents[number as usize].as_mut().expect("each number belongs to an agent")
    }

    /// Clock of all accesses of an agent so far. Agents over the limit share one clock.
    fn published(&mut self, agent: Agent) -> Clock {
        let Some(number) = self.number(agent) else { return self.lost.clone() };
        let state = self.agent_state(number);
        let mut clock = state.clock.clone();
        clock.raise(number, state.frontier.count);
        clock
    }

    /// Orders what this clock covers before the next accesses of an agent.
    fn order(&mut self, agent: Agent, clock: &Clock) {
        match self.number(agent) {
            Some(number) => self.agent_state(number).clock.join(clock),
            None => self.lost.join(clock),
        }
    }

    fn access(&mut self, number: u32, command: CommandId, access: &Access) {
        let Access { range, scopes, others, access, writes } = *access;
        if range.start >= range.end {
            self.agent_state(number).frontier.visit(1);
            return;
        }
        let Checker { agents, cells, reports, reported, dropped, .. } = self;
        let state = agents[number as usize].as_ref().expect("each number belongs to an agent");
        let mut visits = 1;
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
            visits += 1;
            let reads = cell.reads.iter().filter(|_| writes);
            for earlier in cell.write.iter().chain(reads) {
                let by = agents[earlier.agent as usize].as_ref();
                if by.is_none_or(|by| earlier.number <= by.since) {
                    continue;
                }
                let Some(conflict) = state.conflict(number, earlier, (&stamp, scopes)) else { continue };
                let pair = (earlier.agent, earlier.command, number, command);
                let report = report(agents, cell_range, earlier, &stamp, conflict);
                add_report(reports, reported, dropped, pair, report);
            }
        });
        // A process has no submissions: it visits what it locks.
        if let Some(AgentState { agent: Agent::Queue(_), frontier, .. }) = &mut agents[number as usize] {
            frontier.visit(visits);
        }
    }
}

impl AgentState {
    /// The conflict between an earlier access and one of this agent, in `scopes`, if any.
    fn conflict(
        &self,
        number: u32,
        earlier: &Stamp,
        (later, scopes): (&Stamp, BarrierSync),
    ) -> Option<Conflict> {
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
        // Not the expanded scopes of the stamp: an umbrella is blocked as a whole.
        let later_sets = || core::iter::once(scopes).chain((later.others - DISCARD).iter());
        let before = |set| later_sets().any(|by| self.frontier.is_before(set, earlier.number, by));
        if !earlier.scope_sets().any(before) {
            return Some(Conflict::Unordered);
        }
        // COMMON accesses memory itself.
        let is_visible = !earlier.writes
            || [earlier.access, later.access].contains(&BarrierAccess::COMMON)
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
        agent: agents[stamp.agent as usize].as_ref().expect("it is not forgotten").agent,
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
