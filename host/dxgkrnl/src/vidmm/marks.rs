//! Places marks behind the work of a device, and destroys and offers memory behind them. See `after_work.rs` for the rules.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem::take;

use d3dkmt::{Handle, Reply};

use super::after_work::{Action, AfterWork, AfterWorkCall, Due, Parked, Round};
use super::allocation::{AllocationOpen, ResourceOpen};
use super::allocation_calls::NAMED_PER_UNIT;
use super::long_call::RestOfCall;
use crate::ProcessId;
use crate::effects::Effects;
use crate::error::Refusal;
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::vidsch::Packet;

impl Kernel {
    /// Places marks in the busy queues of the call's device, as far as the units of the step reach: `None` if that is not
    /// all. Then its action waits for the marks; without a busy queue, the call goes on with it.
    pub(super) fn advance_after_work(
        &mut self,
        process: ProcessId,
        rest: &mut RestOfCall,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Refusal> {
        let RestOfCall::AfterWork(call) = rest else { return Ok(Some(Reply::None)) };
        let Ok(device) = self.device(process, call.device) else { return Ok(Some(Reply::None)) };
        let under_way = self.processes.devices()[device].round;
        let is_next = call.round.is_none() && under_way.is_some();
        while !is_next && let Some(queue) = self.queue_from(device, call.from) {
            if self.is_spent() {
                return Ok(None);
            }
            self.spend(1);
            call.from = queue + 1;
            if self.has_work_to_await(queue) {
                let round = *call.round.get_or_insert_with(|| self.begin_round(process, device));
                if let Some(round) = self.vidmm.after_work.rounds.get_mut(&round) {
                    round.remaining += 1;
                }
                self.enqueue(queue, Packet::Mark(round));
            }
        }
        let action = core::mem::replace(&mut call.action, Action::NextRound);
        let Some(round) = call.round.or(under_way) else {
            *rest = match action {
                Action::Destroy { handles, .. } => RestOfCall::Destroy(handles),
                Action::Offer(opens) => RestOfCall::Offer(opens),
                Action::NextRound => return Ok(Some(Reply::None)),
            };
            return self.advance_call(process, rest, effects);
        };
        if let Some(handles) = self.await_marks(process, round, is_next, action) {
            *rest = RestOfCall::Parked(Parked { round, is_next, handles });
            return Ok(None);
        }
        if !is_next {
            self.reach_mark(round);
        }
        Ok(Some(Reply::None))
    }

    fn queue_from(&self, device: u32, from: u32) -> Option<u32> {
        self.processes.devices()[device].queues.range(from..).next().copied()
    }

    /// Whether a queue has packets or submissions of its process. Those of paging contexts and rings do not count.
    fn has_work_to_await(&self, queue: u32) -> bool {
        let state = &self.vidsch.queues()[queue];
        let is_paging = self.vidsch.contexts()[state.context].paging.is_some();
        let is_ring = state.hw_queue.is_some_and(|id| self.vidsch.hw_queues()[id].user_mode());
        !(is_paging || is_ring || state.packets.is_empty() && state.is_idle())
    }

    /// Begins a round with a mark that is not reached until all are placed.
    fn begin_round(&mut self, process: ProcessId, device: u32) -> u64 {
        let after_work = &mut self.vidmm.after_work;
        after_work.begun += 1;
        let id = after_work.begun;
        let (due, next) = (Due::default(), Due::default());
        after_work.rounds.insert(id, Round { process, device, remaining: 1, due, next });
        self.processes.device_mut(device).round = Some(id);
        id
    }

    /// Adds the action of a call to a round, or to the one after it. Returns the handles of a call that is parked.
    fn await_marks(
        &mut self,
        process: ProcessId,
        id: u64,
        is_next: bool,
        action: Action,
    ) -> Option<VecDeque<Handle>> {
        if let Action::Destroy { handles, .. } = &action {
            handles.iter().for_each(|handle| self.condemn(process, *handle));
        }
        let AfterWork { rounds, offers, offers_begun, .. } = &mut self.vidmm.after_work;
        let round = rounds.get_mut(&id)?;
        let due = if is_next { &mut round.next } else { &mut round.due };
        match action {
            Action::Destroy { handles, synchronous: true } if !handles.is_empty() => return Some(handles),
            Action::Destroy { handles, .. } => due.destroyed.extend(handles),
            Action::Offer(opens) => {
                for open in opens {
                    *offers_begun += 1;
                    offers.insert(open, *offers_begun);
                    due.offered.insert(open, *offers_begun);
                }
            }
            Action::NextRound => {}
        }
        None
    }

    /// Keeps a call until its round is over.
    pub(super) fn park_call(&mut self, request: u64, Parked { round: id, is_next, handles }: Parked) {
        if let Some(round) = self.vidmm.after_work.rounds.get_mut(&id) {
            let due = if is_next { &mut round.next } else { &mut round.due };
            due.synchronous.push_back((request, handles));
        }
        // All marks are placed, and the call is there if they are reached already.
        if !is_next {
            self.reach_mark(id);
        }
    }

    /// Destroys a handle for its process, with those of the resource that it names. Memory without another open or an NT
    /// handle cannot be opened from here on.
    fn condemn(&mut self, process: ProcessId, handle: Handle) {
        let target = self.process(process).handles.get(handle);
        if target.is_none() || !self.vidmm.after_work.condemned.insert((process, handle)) {
            return;
        }
        match target {
            Some(HandleTarget::Allocation(open)) => {
                let AllocationOpen { allocation, is_creators, .. } = self.vidmm.memory.allocation_opens[open];
                self.vidmm.memory.keep(allocation);
                if is_creators {
                    self.vidmm.memory.creator_leaves(allocation);
                }
                self.vidmm.memory.allocations[allocation].condemned += 1;
                self.leave_resource_if_condemned(allocation);
            }
            Some(HandleTarget::Resource(open)) => {
                let ResourceOpen { resource, ref allocations, .. } = self.vidmm.memory.resource_opens[open];
                let allocations = allocations.clone();
                self.spend((allocations.len() / NAMED_PER_UNIT) as u32);
                allocations.into_iter().for_each(|allocation| self.condemn(process, allocation));
                self.vidmm.memory.resources[resource].condemned += 1;
                self.end_global_if_condemned(resource);
            }
            _ => {}
        }
    }

    /// An allocation whose last handle was destroyed is none of its resource any more (W-257).
    pub(super) fn leave_resource_if_condemned(&mut self, allocation: u32) {
        let state = &self.vidmm.memory.allocations[allocation];
        if state.condemned == 0 || state.condemned < state.opens.len() || self.is_kept(state) {
            return;
        }
        if let Some(resource) = self.vidmm.memory.allocations[allocation].resource.take() {
            self.forget_in_resource(resource, allocation);
        }
        self.vidmm.memory.stop_sharing(allocation);
    }

    /// The global handle of a resource ends with its last handle.
    pub(super) fn end_global_if_condemned(&mut self, resource: u32) {
        let state = &mut self.vidmm.memory.resources[resource];
        if state.condemned == 0 || state.condemned < state.opens || state.shares > 0 {
            return;
        }
        if let Some(global) = state.global.take() {
            self.end_global(global);
        }
    }

    /// A queue passes a mark. The mark is reached once the work that runs before it is done.
    pub(crate) fn pass_mark(&mut self, queue: u32, round: u64) {
        self.vidsch.queue_mut(queue).pass_mark(round);
        self.reach_passed_mark(queue);
    }

    #[inline]
    pub(crate) fn reach_passed_mark(&mut self, queue: u32) {
        if let Some(round) = self.vidsch.queue_mut(queue).take_reached_mark() {
            self.reach_mark(round);
        }
    }

    /// The work before the mark that a queue has passed is dropped.
    pub(crate) fn drop_passed_mark(&mut self, queue: u32) {
        if let Some((round, _)) = self.vidsch.queue_mut(queue).passed_mark.take() {
            self.reach_mark(round);
        }
    }

    /// Passes the mark among packets that are dropped. The engine completes the work that it has of the queue.
    pub(crate) fn pass_dropped_mark(&mut self, queue: u32, packets: &mut VecDeque<Packet>) {
        let is_mark = |packet: &Packet| matches!(packet, Packet::Mark(_));
        let mark = packets.iter().position(is_mark).and_then(|at| packets.remove(at));
        if let Some(Packet::Mark(round)) = mark {
            let process = self.vidsch.queues()[queue].process;
            self.processes.unqueue_bytes(process, Packet::Mark(round).weight());
            self.vidsch.queue_mut(queue).pass_mark(round);
        }
        self.reach_passed_mark(queue);
    }

    /// A queue has reached a mark, or has ended before it. The last mark of a round lets its destroys and offers happen.
    pub(crate) fn reach_mark(&mut self, id: u64) {
        let Some(round) = self.vidmm.after_work.rounds.get_mut(&id) else { return };
        round.remaining -= 1;
        let (process, device) = (round.process, round.device);
        if round.remaining > 0 || self.vidsch.work().backlog().is_clearing(process, device) {
            return;
        }
        let due = take(&mut round.due);
        if round.next.is_empty() {
            self.vidmm.after_work.rounds.remove(&id);
            self.processes.device_mut(device).round = None;
        } else {
            (round.due, round.remaining) = (take(&mut round.next), 1);
            let device = self.processes.devices()[device].handle;
            let call = AfterWorkCall { device, from: 0, round: Some(id), action: Action::NextRound };
            self.leave_rest(process, 0, RestOfCall::AfterWork(Box::new(call)));
        }
        if !due.is_empty() {
            self.leave_rest(process, 0, RestOfCall::Due(Box::new(due)));
        }
    }

    /// Destroys and offers memory, as far as the units of the step reach: `None` if that is not all. Memory that has ended
    /// meanwhile, or was reclaimed, is left out.
    pub(super) fn advance_due(
        &mut self,
        process: ProcessId,
        due: &mut Due,
        effects: &mut Effects,
    ) -> Option<Reply> {
        while let Some((request, handles)) = due.synchronous.front_mut() {
            if !self.end_allocations(process, handles, true) {
                return None;
            }
            self.answer(process, *request, Ok(Reply::None), effects);
            due.synchronous.pop_front();
        }
        if !self.end_allocations(process, &mut due.destroyed, true) {
            return None;
        }
        while !self.is_spent() {
            let Some((open, offer)) = due.offered.pop_first() else { return Some(Reply::None) };
            if self.vidmm.after_work.offers.get(&open) == Some(&offer) {
                self.vidmm.after_work.offers.remove(&open);
                self.offer_open(open);
            }
            self.spend(1);
        }
        None
    }

    /// Whether a round has other marks left than the queues, or a handle is condemned that names no memory.
    pub(super) fn after_work_is_miscounted(&self) -> bool {
        let AfterWork { rounds, condemned, .. } = &self.vidmm.after_work;
        let mut marks: BTreeMap<u64, u32> = BTreeMap::new();
        let queues: Vec<_> = self.vidsch.queues().iter().map(|(_, queue)| queue).collect();
        let passed = queues.iter().filter_map(|queue| Some(queue.passed_mark?.0));
        let packets =
            queues.iter().flat_map(|queue| &queue.packets).chain(self.vidsch.work().backlog().packets());
        let queued = packets.filter_map(|packet| match packet {
            Packet::Mark(round) => Some(*round),
            _ => None,
        });
        for round in passed.chain(queued) {
            *marks.entry(round).or_default() += 1;
        }
        let is_counted = |(id, round): (&u64, &Round)| {
            let marks = marks.get(id).copied().unwrap_or(0);
            round.remaining == marks || round.remaining == marks + 1
        };
        let names_memory = |(process, handle): &(ProcessId, Handle)| {
            let owner = self.processes.get(*process);
            let target = owner.and_then(|owner| owner.handles.get(*handle));
            matches!(target, Some(HandleTarget::Allocation(_) | HandleTarget::Resource(_)))
        };
        !rounds.iter().all(is_counted) || !condemned.iter().all(names_memory)
    }

    /// Forgets the round of a device that has ended, and all its memory with it.
    pub(crate) fn end_round(&mut self, process: ProcessId, id: u64, effects: &mut Effects) {
        let Some(Round { due, next, .. }) = self.vidmm.after_work.rounds.remove(&id) else { return };
        if self.is_ending(process) {
            return;
        }
        for (request, _) in due.synchronous.into_iter().chain(next.synchronous) {
            self.answer(process, request, Ok(Reply::None), effects);
        }
    }
}
