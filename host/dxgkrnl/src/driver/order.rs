//! Reports signals and waits to drivers in the order in which they take effect.

use alloc::vec::Vec;

use crate::ProcessId;
use crate::ddi::{Agent, EngineStore, HappensBefore, HwContext, HwQueueId, SignalEffect};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::sync::legacy::is_acquired;
use crate::sync::waits::{WaitId, WaitItem, WaitOwner};
use crate::vidsch::Packet;

/// Added to a keyed mutex's number, which keeps it apart from the numbers of fences.
const KEYED_MUTEXES: u64 = 1 << 32;

impl Kernel {
    #[inline]
    pub(crate) fn edge(&mut self, edge: HappensBefore) {
        if self.happens_before.on {
            let notes = self.miniport.happens_before(&edge);
            self.happens_before.notes.extend(notes);
        }
    }

    /// Adds the drivers' notes to the effects.
    #[inline]
    pub(crate) fn note_edges(&mut self, effects: &mut Effects) {
        if !self.happens_before.notes.is_empty() {
            for text in core::mem::take(&mut self.happens_before.notes) {
                self.note_host(text, effects);
            }
        }
    }

    /// The queue as drivers know it.
    pub(crate) fn agent(&self, queue: u32) -> Agent {
        match self.vidsch.queues()[queue].hw_queue {
            Some(hw_queue) => Agent::HwQueue(HwQueueId(hw_queue)),
            None => Agent::Context(HwContext(self.vidsch.queues()[queue].context)),
        }
    }

    #[inline]
    pub(crate) fn report_signal(&mut self, by: Agent, object: u32, value: u64) {
        self.report_signal_of(by, (object, value), SignalEffect::Applied, None);
    }

    pub(crate) fn report_signal_of(
        &mut self,
        by: Agent,
        (object, value): (u32, u64),
        effect: SignalEffect,
        stored: Option<EngineStore>,
    ) {
        if !self.happens_before.on {
            return;
        }
        // A mutex or semaphore orders by its ownership alone: it has no value.
        let value = if is_acquired(self.sync.objects()[object].object_type) { 0 } else { value };
        self.edge(HappensBefore::Signaled { by, fence: object.into(), value, effect, stored });
    }

    pub(crate) fn report_wait(&mut self, by: Agent, object: u32, value: u64) {
        self.edge(HappensBefore::Waited { by, fence: object.into(), value });
    }

    /// Reports the packet at the head of a queue, which is about to be removed.
    pub(crate) fn report_passed(&mut self, queue: u32) {
        if !self.happens_before.on {
            return;
        }
        let by = self.agent(queue);
        let (signal, effect) = match self.vidsch.queues()[queue].packets.front() {
            Some(Packet::Signal(signal)) => (signal, SignalEffect::Applied),
            Some(Packet::Broadcast(number)) => {
                let (state, broadcast) = (&self.vidsch.broadcasts()[*number], *number);
                let effect = match state.remaining == 1 && !state.broken {
                    true => SignalEffect::Completed { broadcast },
                    false => SignalEffect::Awaited { broadcast },
                };
                (&state.signal, effect)
            }
            Some(Packet::Wait(wait)) => {
                let wait = *wait;
                return self.report_ended_wait(by, wait);
            }
            _ => return,
        };
        let (targets, flags) = (signal.targets.clone(), signal.flags);
        for (object, value) in targets {
            let is_awaited = matches!(effect, SignalEffect::Awaited { .. });
            let effect = match !is_awaited && self.ignores_lower(flags, object, value) {
                true => SignalEffect::Ignored,
                false => effect,
            };
            if !self.signals_early(object) {
                self.report_signal_of(by, (object, value), effect, None);
            }
        }
    }

    /// Reports a completed wait that its queue has reached.
    pub(crate) fn report_ended_wait(&mut self, by: Agent, wait: WaitId) {
        for (object, value) in self.happens_before.ended.remove(&wait).unwrap_or_default() {
            self.report_wait(by, object, value);
        }
    }

    /// Reports a wait that completed, or that was satisfied at once.
    pub(crate) fn wait_is_over(&mut self, id: Option<WaitId>, owner: WaitOwner, items: &[WaitItem]) {
        let reached = items.iter().filter(|item| item.satisfied).map(|item| (item.object, item.value));
        match (owner, id) {
            (WaitOwner::Gpu { .. }, Some(id)) => {
                drop(self.happens_before.ended.insert(id, reached.collect()))
            }
            // The wait leaves no packet behind, so earlier work in its queue counts as ordered after it too.
            (WaitOwner::Gpu { queue }, None) => {
                let by = self.agent(queue);
                reached.for_each(|(object, value)| self.report_wait(by, object, value));
            }
            (WaitOwner::Cpu { process, .. }, _) => {
                reached.for_each(|(object, value)| self.report_wait(Agent::Process(process), object, value));
            }
            // Any process of its VM may have it and poll it from now on, without a call and by any way that a descriptor
            // takes. So all that are attached now count as ordered after the signal: a race of a process that does not
            // poll may be missed, and no race is reported that is none.
            (WaitOwner::SyncFile { sync_file }, _) => {
                let vm = self.sharing.sync_files()[sync_file].vm;
                let reached: Vec<(u32, u64)> = reached.collect();
                let of_vm = self.processes.by_id().iter().filter(|(_, process)| process.vm == vm);
                for process in of_vm.map(|(process, _)| *process).collect::<Vec<_>>() {
                    let by = Agent::Process(process);
                    reached.iter().for_each(|(object, value)| self.report_wait(by, *object, *value));
                }
            }
        }
    }

    pub(crate) fn keyed_mutex_taken(&mut self, process: ProcessId, mutex: u32) {
        let fence = KEYED_MUTEXES | u64::from(mutex);
        self.edge(HappensBefore::Waited { by: Agent::Process(process), fence, value: 0 });
    }

    pub(crate) fn keyed_mutex_given(&mut self, process: ProcessId, mutex: u32) {
        let fence = KEYED_MUTEXES | u64::from(mutex);
        let by = Agent::Process(process);
        let effect = SignalEffect::Applied;
        self.edge(HappensBefore::Signaled { by, fence, value: 0, effect, stored: None });
    }

    pub(crate) fn keyed_mutex_gone(&mut self, mutex: u32) {
        self.edge(HappensBefore::FenceGone { fence: KEYED_MUTEXES | u64::from(mutex) });
    }
}
