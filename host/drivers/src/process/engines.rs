//! What the daemon knows of the engines of a driver outside without asking it: their work, injected faults, the timer,
//! and page tables. A query costs no message, and has the same answer in a replay.

use std::collections::{BTreeMap, BTreeSet};

use driver_host::abi::SIM_NEVER;
use driver_host::limits::{EXPIRY_BURST_NS, EXPIRY_DISTANCE_NS, EXPIRY_NS};
use dxgkrnl::ddi::{
    AllocationDescription, AllocationId, EngineState, HwContext, Invalidation, KmdProcess, PageMap,
    PageTableEntry, PendingFaults, RunningContext,
};
use dxgkrnl::{Nanos, ProcessId, VmId};
use serde::{Deserialize, Serialize};

use super::work::{Work, WorkLines};

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Engine {
    work: WorkLines,
    /// Refused work that a preemption or a reset gave back to the scheduler: the driver never had it. The
    /// `SubmissionFenceId`s, by context: the engine had at most one of its own queue.
    returned: BTreeMap<HwContext, u64>,
    /// It runs the work of this arrival for ever, by an injected fault.
    hung: Option<u64>,
    /// Hardware queues of which it reported something in a hang, which nobody heard, as the driver does not know of the hang.
    silenced: BTreeSet<u32>,
    hangs_next: bool,
    interrupts_lost: u32,
    resets_failing: u32,
}

impl Engine {
    pub fn submit(&mut self, work: Work) {
        let number = self.work.push(work);
        if std::mem::take(&mut self.hangs_next) {
            self.hung = Some(number);
        }
    }

    /// Removes the newest work, which the driver did not get.
    pub fn withdraw(&mut self) {
        self.work.pop_newest();
    }

    pub fn hang(&mut self) {
        match self.work.first() {
            Some((running, _)) => self.hung = Some(running),
            None => self.hangs_next = true,
        }
    }

    pub fn is_hung(&self) -> bool {
        self.hung.is_some()
    }

    /// Whether it hangs, or work waits for ever because of a report that was lost in a hang.
    pub fn is_stuck(&self) -> bool {
        self.is_hung() || !self.silenced.is_empty()
    }

    pub fn lose_interrupt(&mut self) {
        self.interrupts_lost += 1;
    }

    /// Whether the interrupt that happens now is lost.
    pub fn loses_interrupt(&mut self) -> bool {
        let loses = self.interrupts_lost > 0;
        self.interrupts_lost -= u32::from(loses);
        loses
    }

    pub fn fail_reset(&mut self) {
        self.resets_failing += 1;
    }

    /// Whether the reset that happens now fails.
    pub fn fails_reset(&mut self) -> bool {
        let fails = self.resets_failing > 0;
        self.resets_failing -= u32::from(fails);
        fails
    }

    /// Removes the work of contexts' own queues up to this submission.
    pub fn complete(&mut self, submission_fence_id: u64) {
        self.work.take_of_contexts(|work| work.submission_fence_id <= submission_fence_id);
    }

    /// Removes the oldest work of contexts' own queues if it was refused. Returns its number.
    pub fn take_refused(&mut self) -> Option<u64> {
        let is_hung = self.is_hung();
        let refused = self.work.pop_first(None, |work| work.is_refused && !is_hung);
        refused.map(|work| work.submission_fence_id)
    }

    /// The engine gives its work of contexts' own queues back to the scheduler.
    pub fn give_back(&mut self) {
        let returned = self.work.take_of_contexts(|_| true).into_iter().filter(|work| work.is_refused);
        self.returned.extend(returned.map(|work| (work.context, work.submission_fence_id)));
    }

    /// Whether this work of a context was refused before it was given back.
    pub fn take_returned(&mut self, context: HwContext, submission_fence_id: u64) -> bool {
        let returned = self.returned.get(&context) == Some(&submission_fence_id);
        if returned {
            self.returned.remove(&context);
        }
        returned
    }

    /// Removes the work of a context's own queue.
    pub fn drop_context(&mut self, context: HwContext) {
        self.work.take_of_contexts(|work| work.context == context);
        self.returned.remove(&context);
        self.end_hang();
    }

    /// Removes the work of a hardware queue.
    pub fn drop_hw_queue(&mut self, hw_queue: u32) {
        self.work.remove_line(hw_queue);
        self.silenced.remove(&hw_queue);
        self.end_hang();
    }

    /// Removes the buffers of a hardware queue up to this value of its progress fence.
    pub fn complete_buffers(&mut self, hw_queue: u32, value: u64) {
        let is_complete = |work: &Work| !work.is_ring && work.queue.is_some_and(|(_, id)| id <= value);
        while self.work.pop_first(Some(hw_queue), is_complete).is_some() {}
        // It stands for the lost ones as well.
        self.silenced.remove(&hw_queue);
        self.end_hang();
    }

    /// Removes the buffer of a hardware queue with this progress fence value.
    pub fn drop_buffer(&mut self, hw_queue: u32, progress_fence_id: u64) {
        self.work.remove_buffer(hw_queue, progress_fence_id);
        self.end_hang();
    }

    /// A hang of work that is gone ends.
    fn end_hang(&mut self) {
        self.hung = self.hung.filter(|hung| self.work.get(*hung).is_some());
    }

    /// Removes the oldest buffer of a queue's ring.
    pub fn complete_ring_buffer(&mut self, hw_queue: u32) {
        self.work.pop_first(Some(hw_queue), |work| work.is_ring);
    }

    pub fn reset(&mut self) {
        self.give_back();
        self.work = WorkLines::default();
        (self.hung, self.silenced) = Default::default();
    }

    /// A reset after which work of these contexts only is gone.
    pub fn reset_contexts(&mut self, gone: &BTreeSet<HwContext>) {
        self.give_back();
        self.work.remove_lines_of(gone);
        (self.hung, self.silenced) = Default::default();
    }

    fn state(&self, until: Nanos) -> EngineState {
        let Some((_, first)) = self.work.first() else { return EngineState::Idle };
        let queued = self.work.len() as u32 - 1;
        match self.hung.and_then(|hung| self.work.get(hung)) {
            Some(hung) => EngineState::Hung { submission_fence_id: hung.submission_fence_id, queued },
            None => EngineState::Running { submission_fence_id: first.submission_fence_id, until, queued },
        }
    }

    fn pending_faults(&self) -> PendingFaults {
        PendingFaults {
            interrupts_lost: self.interrupts_lost,
            hangs_next: self.hangs_next,
            page_fault: None,
            resets_failing: self.resets_failing,
        }
    }
}

/// A hardware queue: where its progress fence lies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct HwQueue {
    pub node: u32,
    pub context: HwContext,
    pub process: ProcessId,
    pub progress_fence_gpu_address: u64,
}

/// Bounds how often the timer expires, because each call takes the daemon's time: kernel time would fall behind the
/// clock, for all adapters.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct TimerBudget {
    /// Time of the calls so far, less the time that has passed since.
    debt: Nanos,
    at: Nanos,
    /// The timer expires no earlier.
    pub earliest: Nanos,
}

impl TimerBudget {
    pub fn expired(&mut self, now: Nanos) {
        self.debt = self.debt.saturating_sub(now.saturating_sub(self.at)) + EXPIRY_NS;
        self.at = now;
        // One that is due at once again would never let time go on.
        self.earliest = now.saturating_add(self.debt.saturating_sub(EXPIRY_BURST_NS).max(EXPIRY_DISTANCE_NS));
    }
}

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Engines {
    engines: BTreeMap<u32, Engine>,
    pub hw_queues: BTreeMap<u32, HwQueue>,
    /// When the driver wants `SimTimerExpired`.
    pub timer: Option<Nanos>,
    pub timer_budget: TimerBudget,
    page_tables: BTreeMap<ProcessId, PageMap<PageTableEntry>>,
    /// What the driver said of pictures.
    pub descriptions: BTreeMap<AllocationId, AllocationDescription>,
    /// Processes of VMs and of the host, by their address spaces.
    pub vms: BTreeMap<ProcessId, (KmdProcess, VmId)>,
}

impl Engines {
    pub fn engine(&mut self, node: u32) -> &mut Engine {
        self.engines.entry(node).or_default()
    }

    /// `SimSetTimer`.
    pub fn set_timer(&mut self, due: Nanos) {
        let due = (due != SIM_NEVER).then_some(due);
        self.timer = due.map(|due| due.max(self.timer_budget.earliest));
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Engine> {
        self.engines.values_mut()
    }

    pub fn state(&self, node: u32) -> EngineState {
        let until = self.timer.unwrap_or(Nanos::MAX);
        self.engines.get(&node).map_or(EngineState::Idle, |engine| engine.state(until))
    }

    pub fn pending_faults(&self, node: u32) -> PendingFaults {
        self.engines.get(&node).map(Engine::pending_faults).unwrap_or_default()
    }

    /// The VM of the oldest work.
    pub fn vm_at_work(&self) -> Option<VmId> {
        let (_, oldest) = self.engines.values().find_map(|engine| engine.work.first())?;
        let process = oldest.process;
        self.vms.get(&process).map(|(_, vm)| *vm)
    }

    /// Bytes charged to a process for its command buffers that have not completed.
    pub fn held_bytes(&self, process: ProcessId) -> usize {
        self.engines.values().map(|engine| engine.work.held_bytes(process)).sum()
    }

    /// Whether an engine runs nothing; if it has work, only the driver knows what it runs.
    pub fn running_context(&self, node: u32) -> RunningContext {
        match self.engines.get(&node).and_then(|engine| engine.work.first()) {
            Some(_) => RunningContext::Unknown,
            None => RunningContext::None,
        }
    }

    /// The oldest buffer of a queue's ring is complete, unless its engine is hung.
    pub fn ring_buffer_completed(&mut self, hw_queue: u32) {
        let Some(node) = self.hw_queues.get(&hw_queue).map(|queue| queue.node) else { return };
        if !self.silences(node, hw_queue) {
            self.engine(node).complete_ring_buffer(hw_queue);
        }
    }

    /// Whether an engine hangs. Then a report of this hardware queue is lost.
    pub fn silences(&mut self, node: u32, hw_queue: u32) -> bool {
        let is_hung = self.engine(node).is_hung();
        if is_hung && self.hw_queues.contains_key(&hw_queue) {
            self.engine(node).silenced.insert(hw_queue);
        }
        is_hung
    }

    /// Contexts of an engine whose hardware queues lose work by an injected hang: the one that hangs, and those of which
    /// reports were lost.
    pub fn silenced(&self, node: u32) -> BTreeMap<HwContext, Invalidation> {
        let Some(engine) = self.engines.get(&node) else { return BTreeMap::new() };
        let queues = engine.silenced.iter().filter_map(|queue| self.hw_queues.get(queue));
        let queues = queues.filter(|queue| queue.node == node);
        let mut contexts: BTreeMap<_, _> =
            queues.map(|queue| (queue.context, Invalidation::Collateral)).collect();
        let hung = engine.hung.and_then(|hung| engine.work.get(hung)).filter(|work| work.queue.is_some());
        contexts.extend(hung.map(|work| (work.context, Invalidation::Culprit)));
        contexts
    }

    /// Bytes of the buffers of a queue's ring that have not completed.
    pub fn ring_bytes(&self, hw_queue: u32) -> usize {
        let engine = self.hw_queues.get(&hw_queue).and_then(|queue| self.engines.get(&queue.node));
        engine.map_or(0, |engine| engine.work.ring_bytes(hw_queue))
    }

    /// A queue's command buffer stored a value: if that is its progress fence, the buffers up to it are complete.
    pub fn queue_stored(&mut self, hw_queue: u32, gpu_address: u64, value: u64) {
        let Some(queue) = self.hw_queues.get(&hw_queue) else { return };
        if queue.progress_fence_gpu_address != gpu_address {
            return;
        }
        let node = queue.node;
        self.engine(node).complete_buffers(hw_queue, value);
    }

    pub fn update_page_table(&mut self, process: ProcessId, base: u64, bytes: u64, entry: PageTableEntry) {
        let pages = self.page_tables.entry(process).or_default();
        let page = (entry != PageTableEntry::NoAccess).then_some(entry);
        pages.set(base, base.saturating_add(bytes), page);
        if pages.is_empty() {
            self.page_tables.remove(&process);
        }
    }

    /// Memory behind a range of GPU virtual addresses, in pieces: length and contents. `None` if a page has no access.
    pub fn memory(&self, process: ProcessId, base: u64, bytes: u64) -> Option<Vec<(u64, PageTableEntry)>> {
        let end = base.checked_add(bytes)?;
        let pages = self.page_tables.get(&process)?;
        let mut pieces = Vec::new();
        let mut at = base;
        for piece in pages.within(base, end) {
            if piece.base != at {
                return None;
            }
            pieces.push((piece.end - piece.base, piece.page));
            at = piece.end;
        }
        (at == end).then_some(pieces)
    }
}
