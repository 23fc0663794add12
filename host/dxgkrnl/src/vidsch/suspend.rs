//! Suspends and resumes hardware contexts. See `suspension.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::CreateContextFlags;

use super::suspension::Suspension;
use crate::ddi::{DisconnectReason, EngineId, HwContext, Suspend};
use crate::effects::{Effects, Note};
use crate::kernel::Kernel;
use crate::{Nanos, ProcessId};

impl Kernel {
    /// Suspends a context with hardware queues; nothing happens to one that is suspended or about to be, or whose adapter
    /// was stopped.
    pub(crate) fn suspend_context(&mut self, id: u32, effects: &mut Effects) {
        let deadline = self.now.saturating_add(self.config.tdr.delay_ns);
        let side = &mut self.vidsch.contexts[id].hardware;
        if side.suspension != Suspension::Resumed {
            return;
        }
        side.suspend_fence += 1;
        side.suspension = Suspension::Pending { deadline };
        let (context, suspend_fence) = (HwContext(id), side.suspend_fence);
        self.vidsch.suspend_deadlines.insert((deadline, id));
        let mut answer = Suspend::Pending;
        self.call_ddi(effects, |miniport, now, callbacks| {
            answer = miniport.suspend_context(now, context, suspend_fence, callbacks);
        });
        if answer == Suspend::Suspended {
            self.suspend_acknowledged(context, suspend_fence, effects);
        }
    }

    /// Handles the acknowledgement of a suspend: interrupt 17, or the DDI's own SUCCESS.
    pub(super) fn suspend_acknowledged(
        &mut self,
        context: HwContext,
        suspend_fence: u64,
        effects: &mut Effects,
    ) {
        let Some(state) = self.vidsch.contexts.get_mut(context.0) else { return };
        let side = &mut state.hardware;
        match side.suspension {
            Suspension::Pending { deadline } if side.suspend_fence == suspend_fence => {
                side.suspension = Suspension::Suspended;
                self.vidsch.suspend_deadlines.remove(&(deadline, context.0));
                self.suspension_completed(context.0, effects);
            }
            Suspension::Suspended if side.suspend_fence == suspend_fence => {}
            Suspension::AdapterStopped => {}
            Suspension::Resumed | Suspension::Pending { .. } | Suspension::Suspended => {
                let text = format!(
                    "context {}: the acknowledgement of suspend {suspend_fence} is late, the latest is {}",
                    state.handle, side.suspend_fence
                );
                self.note(self.vidsch.contexts[context.0].process, text, effects);
            }
        }
    }

    fn suspension_completed(&mut self, id: u32, effects: &mut Effects) {
        let adapter = self.vidsch.contexts[id].engine.adapter;
        if !self.vidsch.powered_down.contains_key(&adapter) {
            return;
        }
        for queue in self.vidsch.contexts[id].hardware.queues.clone() {
            self.disconnect_doorbell(queue, DisconnectReason::Retry, effects);
        }
        self.enter_d3_if_quiet(adapter);
    }

    pub(crate) fn resume_context(&mut self, id: u32, effects: &mut Effects) {
        match self.vidsch.contexts[id].hardware.suspension {
            Suspension::Resumed | Suspension::AdapterStopped => return,
            Suspension::Pending { .. } => self.forget_suspend(id),
            Suspension::Suspended => {}
        }
        self.vidsch.contexts[id].hardware.suspension = Suspension::Resumed;
        self.vidsch.in_flight.expect_hw_progress(self.vidsch.contexts[id].engine.adapter, self.now);
        self.call_ddi(effects, |miniport, now, callbacks| {
            miniport.resume_context(now, HwContext(id), callbacks);
        });
    }

    /// When the first suspend is overdue.
    pub(crate) fn suspend_deadline(&self) -> Option<Nanos> {
        self.vidsch.suspend_deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(crate) fn suspends_due(&mut self, effects: &mut Effects) {
        while let Some((_, context)) =
            self.vidsch.suspend_deadlines.first().copied().filter(|due| due.0 <= self.now)
        {
            self.vidsch.suspend_deadlines.pop_first();
            self.suspend_timed_out(context, effects);
        }
    }

    /// Resets the engine of a context whose suspend the driver did not acknowledge in time (SCH-021).
    fn suspend_timed_out(&mut self, id: u32, effects: &mut Effects) {
        let context = &self.vidsch.contexts[id];
        let (node, fence) = (context.engine.node, context.hardware.suspend_fence);
        let text =
            format!("node {node} did not acknowledge suspend {fence} of context {} in time", context.handle);
        let engine = context.engine;
        self.note(context.process, text, effects);
        self.suspend_is_overdue(id, engine);
    }

    /// Completes the pending suspends of an engine that was reset, because none of its contexts runs.
    pub(crate) fn reset_ends_suspends(&mut self, engine: EngineId, effects: &mut Effects) {
        let on_engine = self.vidsch.contexts.iter().filter(|(_, context)| context.engine == engine);
        let contexts: Vec<u32> = on_engine.map(|(id, _)| id).collect();
        for id in contexts {
            if let Suspension::Pending { deadline } = self.vidsch.contexts[id].hardware.suspension {
                self.vidsch.contexts[id].hardware.suspension = Suspension::Suspended;
                self.vidsch.suspend_deadlines.remove(&(deadline, id));
                self.suspension_completed(id, effects);
            }
        }
    }

    /// Forgets the deadline of a context's pending suspend.
    pub(super) fn forget_suspend(&mut self, id: u32) {
        if let Suspension::Pending { deadline } = self.vidsch.contexts[id].hardware.suspension {
            self.vidsch.suspend_deadlines.remove(&(deadline, id));
        }
    }

    /// Forgets the suspends of an adapter that stops, pending or not.
    pub(crate) fn forget_suspends(&mut self, adapter: u32) {
        for id in self.hw_contexts_of(adapter) {
            self.forget_suspend(id);
            self.vidsch.contexts[id].hardware.suspension = Suspension::AdapterStopped;
        }
    }

    /// The contexts with hardware queues of this arrival of an adapter.
    fn hw_contexts_of(&self, adapter: u32) -> Vec<u32> {
        let of_adapter = self.vidsch.contexts.iter().filter(|(_, context)| {
            context.engine.adapter == adapter
                && context.flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED)
                && context.hardware.suspension != Suspension::AdapterStopped
        });
        of_adapter.map(|(id, _)| id).collect()
    }

    /// Moves an adapter to D3 or back to D0. Work of software contexts keeps it in D0.
    pub(crate) fn set_power(&mut self, adapter: u32, on: bool, effects: &mut Effects) {
        if on {
            self.wake_adapter(adapter, effects);
            return;
        }
        if self.vidsch.in_flight.keeps_in_d0(adapter) {
            let text = format!("adapter {adapter} stays in D0: its engines have work of software contexts");
            effects.notes.push(Note { process: None, text });
            return;
        }
        if self.vidsch.powered_down.contains_key(&adapter) {
            return;
        }
        self.vidsch.powered_down.insert(adapter, false);
        for context in self.hw_contexts_of(adapter) {
            self.suspend_context(context, effects);
        }
        self.enter_d3_if_quiet(adapter);
    }

    /// Puts an adapter that is on its way to D3 into D3 once all of its contexts are suspended.
    pub(super) fn enter_d3_if_quiet(&mut self, adapter: u32) {
        let is_on_its_way = self.vidsch.powered_down.get(&adapter) == Some(&false);
        if !is_on_its_way || self.tdr.stopped_adapters().contains(&adapter) {
            return;
        }
        let suspended = |id: &u32| self.vidsch.contexts[*id].hardware.suspension == Suspension::Suspended;
        if self.hw_contexts_of(adapter).iter().all(suspended) {
            self.vidsch.powered_down.insert(adapter, true);
            self.miniport.set_power_state(adapter, false);
        }
    }

    /// Brings an adapter back to D0 for new work that may stand behind work that D3 suspended.
    pub(super) fn wake_suspended_work(&mut self, adapter: u32, effects: &mut Effects) {
        if self.vidsch.powered_down.contains_key(&adapter) && self.vidsch.in_flight.has_hw_work(adapter) {
            self.wake_adapter(adapter, effects);
        }
    }

    /// Brings an adapter that is in D3, or on its way there, back to D0; true if it was.
    pub(crate) fn wake_adapter(&mut self, adapter: u32, effects: &mut Effects) -> bool {
        if self.vidsch.powered_down.remove(&adapter).is_none() {
            return false;
        }
        self.miniport.set_power_state(adapter, true);
        for context in self.hw_contexts_of(adapter) {
            self.resume_context(context, effects);
        }
        true
    }

    /// Stops the queues of user-mode submission of a process that died: its devices go into error, contexts are
    /// suspended and doorbells disconnected, before all is destroyed (SCH-035).
    pub(crate) fn abandon_user_mode_queues(&mut self, process: ProcessId, effects: &mut Effects) {
        let own = self.hw_queues_of_process(process).into_iter().map(|id| &self.vidsch.hw_queues[id]);
        let contexts: BTreeSet<u32> =
            own.filter(|queue| queue.user_mode()).map(|queue| queue.context).collect();
        for context in contexts {
            let device = self.vidsch.contexts[context].device;
            self.stop_device_of_abandoned(device);
            self.suspend_context(context, effects);
            for queue in self.vidsch.contexts[context].hardware.queues.clone() {
                self.disconnect_doorbell(queue, DisconnectReason::Abort, effects);
            }
        }
    }

    fn stop_device_of_abandoned(&mut self, device: u32) {
        let device = self.processes.device_mut(device);
        if device.state == d3dkmt::DeviceExecutionState::ACTIVE {
            device.state = d3dkmt::DeviceExecutionState::STOPPED;
            let process = device.process;
            self.process_mut(process).devices_stopped += 1;
        }
    }
}
