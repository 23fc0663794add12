//! VMs as clients of an engine (GPV-032): the VM with the least use is next; VMs that hung come after all others.

use super::Naive;
use super::engines::{Engine, Job};

/// The engine time of one VM.
pub struct Used {
    vm: u32,
    nanos: u64,
}

/// A VM whose work has hung.
pub struct Hung {
    vm: u32,
    times: u32,
    until: u64,
}

impl Hung {
    pub(super) fn is_of(&self, vm: u32) -> bool {
        self.vm == vm
    }
}

/// Least charge for a buffer.
const LEAST_NS: u64 = 1_000;

impl Engine {
    fn used_by(&self, vm: u32) -> u64 {
        self.used.iter().find(|used| used.vm == vm).map_or(0, |used| used.nanos)
    }

    fn set_used(&mut self, vm: u32, nanos: u64) {
        self.used.retain(|used| used.vm != vm);
        self.used.push(Used { vm, nanos });
    }

    pub(super) fn forget_vm(&mut self, vm: u32) {
        self.used.retain(|used| used.vm != vm);
    }

    /// The context of the oldest submitted buffer.
    fn oldest(&self) -> Option<&Job> {
        let mut jobs = self.order.iter().filter_map(|queue| self.job_of(*queue));
        jobs.next()
    }

    fn job_of(&self, queue: usize) -> Option<&Job> {
        self.running
            .iter()
            .chain(&self.submitted_jobs)
            .find(|job| job.queue == queue && job.progress.is_none())
    }
}

impl Naive {
    fn vm_of_queue(&self, queue: usize) -> u32 {
        self.vm_of(self.contexts[queue].process)
    }

    /// VMs with submitted or waiting work on an engine.
    pub(super) fn vms_at(&self, engine: usize) -> Vec<u32> {
        let state = &self.engines[engine];
        let jobs = state.waiting.iter().chain(state.running.iter()).chain(&state.submitted_jobs);
        let of_contexts = jobs.filter(|job| job.progress.is_none()).map(|job| job.queue);
        of_contexts.map(|queue| self.vm_of_queue(queue)).chain(self.hw_vms_on(engine)).collect()
    }

    /// The VM of the oldest submitted context buffer.
    pub(super) fn oldest_vm(&self, engine: usize) -> Option<u32> {
        self.engines[engine].oldest().map(|job| self.vm_of_queue(job.queue))
    }

    /// VMs whose hardware queues have work on an engine.
    pub(super) fn hw_vms_on(&self, engine: usize) -> Vec<u32> {
        let has_work = |queue: &usize| {
            let context = &self.contexts[*queue];
            let has_some = context.hardware.as_ref().is_some_and(|hardware| !hardware.in_flight.is_empty());
            !context.ended && context.engine == engine && has_some
        };
        (0..self.contexts.len()).filter(has_work).map(|queue| self.vm_of_queue(queue)).collect()
    }

    /// Work of this queue's VM arrives at an engine.
    pub(super) fn arrives_at(&mut self, engine: usize, queue: usize) {
        let (vm, vms) = (self.vm_of_queue(queue), self.vms_at(engine));
        if vms.iter().all(|other| *other == vms[0]) && vms.iter().any(|other| *other != vm) {
            self.engines[engine].several_since = self.now;
        }
    }

    /// The same for a context. A VM without work there starts no earlier than the last submitted VM.
    pub(super) fn comes_to(&mut self, engine: usize, queue: usize) {
        self.arrives_at(engine, queue);
        let vm = self.vm_of_queue(queue);
        let state = &self.engines[engine];
        let jobs = state.waiting.iter().chain(state.running.iter()).chain(&state.submitted_jobs);
        let mut own = jobs.filter(|job| job.progress.is_none()).map(|job| self.vm_of_queue(job.queue));
        if !own.any(|other| other == vm) {
            let state = &mut self.engines[engine];
            state.set_used(vm, state.used_by(vm).max(state.floor));
        }
    }

    pub(super) fn note_submitted(&mut self, engine: usize, queue: usize) {
        let vm = self.vm_of_queue(queue);
        let state = &mut self.engines[engine];
        state.floor = state.floor.max(state.used_by(vm));
    }

    /// Whether the next waiting buffer is of a VM that hung and the oldest submitted one is not.
    pub(super) fn would_be_in_the_way(&self, engine: usize, next: usize) -> bool {
        let state = &self.engines[engine];
        let next = self.vm_of_queue(state.waiting[next].queue);
        state.oldest().is_some_and(|job| self.is_behind(next) && !self.is_behind(self.vm_of_queue(job.queue)))
    }

    /// Charges the oldest buffer's run time to its VM.
    pub(super) fn charge(&mut self, engine: usize, now: u64) {
        let state = &self.engines[engine];
        let Some(oldest) = state.oldest().map(|job| job.queue) else { return };
        self.charge_vm(engine, self.vm_of_queue(oldest), now);
    }

    pub(super) fn charge_vm(&mut self, engine: usize, vm: u32, now: u64) {
        let alone = self.vms_at(engine).into_iter().all(|other| other == vm);
        let state = &mut self.engines[engine];
        state.set_used(vm, state.used_by(vm) + (now - state.since).max(LEAST_NS));
        if alone {
            state.floor = state.floor.max(state.used_by(vm));
        }
    }

    pub(super) fn is_behind(&self, vm: u32) -> bool {
        self.hung.iter().any(|hung| hung.vm == vm && self.now < hung.until)
    }

    /// The next of the waiting buffers.
    pub(super) fn next_waiting(&self, engine: usize) -> Option<usize> {
        let state = &self.engines[engine];
        let vm_of = |at: usize| self.vm_of_queue(state.waiting[at].queue);
        // Within a VM, paging buffers go by priority (FEN-092) and all others by arrival.
        let system = |at: usize| self.contexts[state.waiting[at].queue].system;
        let first_of = |vm: u32| {
            let own = || (0..state.waiting.len()).filter(|at| vm_of(*at) == vm);
            let most = own().map(system).max()?;
            own().find(|at| system(*at) == most)
        };
        let firsts: Vec<usize> =
            (0..state.waiting.len()).filter(|at| first_of(vm_of(*at)) == Some(*at)).collect();
        let rank = |at: &usize| (self.is_behind(vm_of(*at)), state.used_by(vm_of(*at)), *at);
        firsts.into_iter().min_by_key(rank)
    }

    /// Whether a submitted buffer is of a VM that hung and the next waiting buffer is not.
    pub(super) fn must_make_way(&self, engine: usize, next: usize) -> bool {
        let state = &self.engines[engine];
        let next = self.vm_of_queue(state.waiting[next].queue);
        let submitted_jobs =
            state.running.iter().chain(&state.submitted_jobs).filter(|job| job.progress.is_none());
        let mut vms = submitted_jobs.map(|job| self.vm_of_queue(job.queue));
        !self.is_behind(next) && vms.any(|vm| self.is_behind(vm))
    }

    /// Whether a VM other than the oldest buffer's has work for the engine.
    pub(super) fn is_wanted_by_another(&self, engine: usize) -> bool {
        let Some(oldest) = self.engines[engine].oldest() else { return false };
        let vm = self.vm_of_queue(oldest.queue);
        self.vms_at(engine).into_iter().any(|other| other != vm)
    }

    /// Whether the oldest buffer is of a VM that hung and blocks another VM.
    pub(super) fn is_in_the_way(&self, engine: usize) -> bool {
        let oldest = self.engines[engine].oldest().map(|job| self.vm_of_queue(job.queue));
        self.is_wanted_by_another(engine) && oldest.is_some_and(|vm| self.is_behind(vm))
    }

    /// After a hang, other VMs come first for TdrDelay, doubled each time.
    pub(super) fn hung(&mut self, vm: u32, delay: u64) {
        let length = |times: u32| delay << times.min(5);
        let before = self.hung.iter().position(|hung| hung.vm == vm).map(|at| self.hung.remove(at));
        let again = before.filter(|hung| self.now <= hung.until + length(hung.times));
        let times = again.map_or(0, |hung| hung.times) + 1;
        self.hung.push(Hung { vm, times, until: self.now + length(times) });
    }
}
