//! Timeouts, and the effects of a lost device.

use d3dkmt::{DeviceExecutionState, NtStatus, SyncObjectFlags as F};

use super::engines::QUANTUM_NS;
use super::{Context, Kind, Naive, Object};

/// `TdrDelay`: how long a preemption request may stay unanswered (TDR-001).
const TDR_DELAY_NS: u64 = 2_000_000_000;

/// Run time of a VM's work while another VM waits.
const SLICE_NS: u64 = 10_000_000;

/// How long a preemption of a VM that hung before may stay unanswered while another VM waits.
const PATIENCE_NS: u64 = 80_000_000;

impl Naive {
    /// When the quantum of the oldest context buffer ends.
    pub(super) fn end_of_turn(&self, engine: usize) -> Option<u64> {
        let state = &self.engines[engine];
        let is_preempting = state.is_wanted() || self.buffers_count_since(engine, state.since).is_some();
        let turn = if self.is_wanted_by_another(engine) { SLICE_NS } else { QUANTUM_NS };
        (state.submitted_of_contexts() > 0 && state.preempt_request.is_none() && is_preempting)
            .then(|| state.since + turn)
    }

    /// When timeout detection finds an engine without progress: it does not answer a preemption, or its hardware queue
    /// work makes no progress (TDR-001).
    pub(super) fn timeout_of(&self, engine: usize) -> Option<u64> {
        let any_in_hardware = self.unlimited_oldest(engine).or_else(|| self.unlimited_in_hardware(engine));
        let since = self.engines[engine].hw_since;
        let of_hardware = since.and_then(|since| self.counts_since(engine, since, any_in_hardware));
        let of_hardware = of_hardware.map(|since| since + TDR_DELAY_NS);
        self.refuses_until(engine).into_iter().chain(of_hardware).min()
    }

    /// Since when the time counts of an engine that makes no progress. Work without a limit has one only once another VM
    /// wants the engine, from its arrival. `without_work`: the VM of such work if the engine runs nothing.
    fn counts_since(&self, engine: usize, since: u64, without_work: Option<u32>) -> Option<u64> {
        let unlimited = match &self.engines[engine].running {
            Some(job) => self.unlimited_vm_of(engine, job.queue),
            None => without_work,
        };
        let counts_since = match unlimited {
            Some(vm) if self.vms_at(engine).into_iter().all(|other| other == vm) => return None,
            Some(_) => since.max(self.engines[engine].several_since),
            None => since,
        };
        self.rules.timeouts.then_some(counts_since)
    }

    fn buffers_count_since(&self, engine: usize, since: u64) -> Option<u64> {
        self.counts_since(engine, since, self.unlimited_oldest(engine))
    }

    /// The VM of a running queue, if its work has no time limit: its VM is paused, or a hardware queue of its context has
    /// none and has work (SCH-016). What waits for the engine does not matter.
    fn unlimited_vm_of(&self, engine: usize, queue: usize) -> Option<u32> {
        let context = self.contexts[queue].hardware.as_ref().map_or(queue, |hardware| hardware.of);
        let state = &self.engines[engine];
        let mut jobs = state.running.iter().chain(&state.submitted_jobs);
        let has_own = jobs.any(|job| job.queue == context && job.progress.is_none());
        let of_context = self.hw_queues_in(context).into_iter();
        let of_context: Vec<_> =
            of_context.filter_map(|queue| self.contexts[queue].hardware.as_ref()).collect();
        let is_known = has_own || of_context.iter().any(|queue| !queue.in_flight.is_empty());
        // What wrote its progress fence and runs on is not known to be work.
        let mut may_run = of_context.iter().filter(|queue| !is_known || !queue.in_flight.is_empty());
        let vm = self.vm_of(self.contexts[context].process);
        (self.is_paused(vm) || may_run.any(|queue| queue.takes_its_time)).then_some(vm)
    }

    /// A VM with hardware queue work, if some of that has no time limit.
    fn unlimited_in_hardware(&self, engine: usize) -> Option<u32> {
        let vms = self.hw_vms_on(engine);
        match self.hw_queues_on(engine).any(|queue| queue.takes_its_time) {
            true => vms.first().copied(),
            false => vms.into_iter().find(|vm| self.is_paused(*vm)),
        }
    }

    /// When its preemption request times out.
    fn refuses_until(&self, engine: usize) -> Option<u64> {
        let state = &self.engines[engine];
        let (since, _) = state.preempt_request.filter(|_| state.submitted_of_contexts() > 0)?;
        let limit = self.buffers_count_since(engine, since)? + TDR_DELAY_NS;
        Some(match self.is_in_the_way(engine) {
            true => limit.min(since.max(state.several_since) + PATIENCE_NS),
            false => limit,
        })
    }

    /// When submitted work that did not begin times out: as late as if it had begun and a preemption was requested.
    pub(super) fn unserved(&self, engine: usize) -> Option<u64> {
        let has_some = self.engines[engine].submitted_of_contexts() > 0;
        let since = self.engines[engine].idle_since.filter(|_| has_some)?;
        Some(self.buffers_count_since(engine, since)? + QUANTUM_NS + TDR_DELAY_NS)
    }

    /// Whether it runs the oldest submitted buffer, which has its own time limit.
    pub(super) fn is_at_the_oldest(&mut self, engine: usize) -> bool {
        let state = &mut self.engines[engine];
        let oldest = state.order.first().copied();
        let others = state.waiting.iter().chain(&state.submitted_jobs);
        let at_it =
            !others.filter(|job| job.progress.is_none()).any(|job| Some(job.queue) == oldest && !job.begun);
        if at_it {
            state.idle_since = None;
        }
        at_it
    }

    /// Whether the engine is at work: it waits in hardware for a store, or its running buffer began less than TdrDelay
    /// ago. It gets another TdrDelay then.
    pub(super) fn says_that_it_is_at_work(&mut self, engine: usize) -> bool {
        let refuses = self.refuses_until(engine).is_some_and(|due| due <= self.now);
        let unserved_for_long = self.unserved(engine).is_some_and(|due| due <= self.now);
        let now = self.now;
        let state = &mut self.engines[engine];
        if !state.runs() {
            state.hw_since = None;
            return true;
        }
        if refuses || now >= state.began + TDR_DELAY_NS {
            return false;
        }
        state.hw_since = state.hw_since.map(|_| now);
        if unserved_for_long {
            state.idle_since = Some(now);
        }
        true
    }

    /// Resets an engine (TDR-012): the device of the hung work is lost, work of others continues (TDR-019, TDR-021).
    pub(super) fn reset_engine(&mut self, engine: usize) {
        if !self.engines[engine].runs() {
            return;
        }
        let culprit = self.abort(engine);
        self.something_is_over(engine);
        self.resume(engine);
        self.contexts[culprit].on_engine = false;
        let device = self.contexts[culprit].device;
        for context in 0..self.contexts.len() {
            let of_device =
                self.contexts[context].device == device && self.contexts[context].engine == engine;
            if of_device && self.contexts[context].hardware.is_none() {
                self.forget_jobs_of(engine, context);
                self.contexts[context].on_engine = false;
            }
        }
        self.lose(device, DeviceExecutionState::HUNG, true);
        self.hung(self.vm_of(self.devices[device].process), TDR_DELAY_NS);
        self.something_is_over(engine);
        for queue in 0..self.contexts.len() {
            let Context { engine: of, hardware, ended, .. } = &self.contexts[queue];
            if *of == engine && hardware.is_some() && !ended {
                self.able.push(queue);
            }
        }
    }

    /// Loses the device: empties its queues (F-67), ends waits through its handles (TDR-031), and poisons its fences if a
    /// reset is the reason.
    pub(super) fn lose(&mut self, device: usize, state: DeviceExecutionState, poisons: bool) {
        self.lose_all(&[device], state, poisons);
    }

    /// The same for devices that are lost together: first the queues of all, then their waits, then their fences.
    pub(super) fn lose_all(&mut self, devices: &[usize], state: DeviceExecutionState, poisons: bool) {
        for device in devices {
            self.put_into(*device, state);
        }
        for device in devices {
            self.empty_queues_of(*device);
        }
        for device in devices {
            self.end_waits_of(*device);
        }
        // A device that has left signals nothing any more, so it poisons no fence that lives.
        let has_left = |device: &&usize| {
            self.dead_devices.contains(*device)
                || self.stopped_adapters.contains(&self.devices[**device].adapter)
        };
        let present: Vec<usize> = devices.iter().filter(|device| !has_left(device)).copied().collect();
        for device in &present {
            self.signal_native_fences_for_ever(*device);
        }
        for device in present.into_iter().filter(|_| poisons) {
            self.poison_fences_of(device);
        }
    }

    fn empty_queues_of(&mut self, device: usize) {
        for context in 0..self.contexts.len() {
            if !self.contexts[context].ended && self.contexts[context].device == device {
                if self.contexts[context].hardware.is_none() && !self.is_with_engine(context) {
                    self.take_from_engine(context);
                    self.contexts[context].on_engine = false;
                }
                self.drop_work(context, Some(NtStatus::DEVICE_REMOVED));
                self.evaluate_writes_of(self.contexts[context].process);
            }
        }
    }

    /// The device's opens, in the order of their handles.
    fn opens_of_device(&self, device: usize) -> Vec<usize> {
        let of_device = |open: usize| !self.opens[open].ended && self.opens[open].device == Some(device);
        let mut opens: Vec<usize> = (0..self.opens.len()).filter(|open| of_device(*open)).collect();
        opens.sort_by_key(|open| self.opens[*open].handle);
        opens
    }

    /// TDR-031: CPU waits whose call named the device, those for its own fences first; and its sync files.
    fn end_waits_of(&mut self, device: usize) {
        for open in self.opens_of_device(device) {
            self.end_waits_through(open, device);
        }
        for wait in 0..self.waits.len() {
            if !self.waits[wait].over && self.waits[wait].device == Some(device) {
                self.end_wait(wait, NtStatus::DEVICE_REMOVED);
            }
        }
    }

    fn poison_fences_of(&mut self, device: usize) {
        for open in self.opens_of_device(device) {
            // The device signals the fences of its paging queues.
            let may_signal = !self.opens[open].flags.contains(F::NO_SIGNAL) || self.is_paging_fence(open);
            if may_signal {
                self.poison(self.opens[open].object);
            }
        }
    }

    fn end_waits_through(&mut self, open: usize, device: usize) {
        let mut ended = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            let concerned = wait.items.iter().filter(|item| !item.reached && item.open == open);
            let least = concerned.map(|item| item.value).min();
            let is_of_call = wait.device.is_none_or(|of| of == device);
            if let (false, false, true, Some(value)) = (wait.owner.is_packet(), wait.over, is_of_call, least)
            {
                ended.push((value, number));
            }
        }
        ended.sort();
        for (_, wait) in ended {
            self.end_wait(wait, NtStatus::DEVICE_REMOVED);
        }
    }

    /// TDR-022 to TDR-025: the fence gets the largest value and satisfies all waits.
    pub(super) fn poison(&mut self, object: usize) {
        if !self.objects[object].flags.contains(F::NO_SIGNAL_MAX_VALUE_ON_TDR) {
            self.poison_now(object);
        }
    }

    pub(super) fn poison_now(&mut self, object: usize) {
        let Object { kind, poisoned, .. } = &self.objects[object];
        if *kind == Kind::Monitored && !poisoned {
            self.objects[object].poisoned = true;
            self.store_and_evaluate(object, u64::MAX);
        }
    }

    /// F-66: a signal of a poisoned fence does nothing, unless the policy lets it cure the fence. A native fence is
    /// signaled for ever (FEN-111).
    pub(super) fn is_beyond_signals(&self, object: usize) -> bool {
        let Object { poisoned, native_on, .. } = &self.objects[object];
        *poisoned
            && (self.rules.poison_is_sticky || !native_on.is_empty() || self.dead_objects.contains(&object))
    }
}
