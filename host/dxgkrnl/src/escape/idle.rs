//! Escapes with HardwareAccess wait until their GPU is idle: level two of synchronization (ESC-017).
//!
//! While an escape has its turn, the engines of its adapter get no new work. Running work continues to a boundary, or
//! hangs and is reset. Work that waits in hardware for a native fence does not count as running. When no engine runs
//! anything, the driver gets the escape, and the call is answered.
//!
//! VMs get turns by their share of each engine. A VM waits while another VM that has used less has work for an engine
//! of the adapter. The time for which a hold delays work of others counts as used, and such a hold is released after
//! [`HOLD_MAX_NS`]. A call that has waited for twice TdrDelay answers STATUS_DEVICE_BUSY.
//!
//! All checks are repeated when the escape is performed, because its device may be lost or destroyed by then.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Call, NtStatus};

use super::EscapeHandles;
use crate::ddi::{EngineId, RunningContext};
use crate::effects::Effects;
use crate::error::{Refusal, refuse};
use crate::ids::earliest;
use crate::kernel::Kernel;
use crate::vidsch::{HOLD_MAX_NS, Hold, IdleWait, Task, WAIT_DELAYS, WaitingEscape};
use crate::{Nanos, ProcessId, VmId};

/// An escape of so many bytes is one more unit of work.
const BYTES_PER_UNIT: usize = 4096;

/// Copy of the parameters of a call that may have to wait: an escape with HardwareAccess.
pub(crate) fn waiting(call: &Call) -> Option<WaitingEscape> {
    match call {
        Call::Escape { adapter, device, context, kind, flags, data }
            if flags.contains(d3dkmt::EscapeFlags::HARDWARE_ACCESS) =>
        {
            let (adapter, device, context) = (*adapter, *device, *context);
            let (kind, flags, data) = (*kind, *flags, data.clone());
            Some(WaitingEscape { adapter, device, context, kind, flags, data })
        }
        _ => None,
    }
}

impl Kernel {
    /// Refuses an escape that has to wait with STATUS_PENDING, which no caller sees.
    pub(super) fn require_idle_gpu(&self, adapter: u32) -> Result<(), Refusal> {
        let waits = self.vidsch.idle_waits();
        if waits.is_served() || !waits.has_any_for(adapter) && self.busy_engine(adapter).is_none() {
            return Ok(());
        }
        refuse(NtStatus::PENDING, "HardwareAccess waits for an idle GPU")
    }

    /// Registers a call that is answered once the GPU is idle.
    pub(crate) fn await_idle_gpu(
        &mut self,
        process: ProcessId,
        request: u64,
        escape: WaitingEscape,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let adapter = self.adapter(process, escape.adapter)?;
        let bytes = escape.weight();
        self.require_memory(process, bytes)?;
        self.processes.charge(process, bytes);
        let (vm, since) = (self.process(process).vm, self.now);
        let node = self.busy_engine(adapter).map_or(0, |engine| engine.node);
        let id =
            self.vidsch.idle_waits_mut().begin(IdleWait { process, vm, request, adapter, since, escape });
        self.process_mut(process).idle_waits.insert(id);
        let text = format!("the escape waits until adapter {adapter} is idle: node {node} has work");
        self.note(process, text, effects);
        Ok(())
    }

    /// An engine of the adapter that is not idle.
    fn busy_engine(&self, adapter: u32) -> Option<EngineId> {
        self.engines_of(adapter).find(|engine| !self.runs_nothing(*engine))
    }

    fn engines_of(&self, adapter: u32) -> impl Iterator<Item = EngineId> {
        self.vidsch.in_flight().engines.keys().copied().filter(move |engine| engine.adapter == adapter)
    }

    fn runs_nothing(&self, engine: EngineId) -> bool {
        let state = self.vidsch.in_flight().engines.get(&engine);
        state.is_none_or(|engine| engine.submitted.is_empty())
            && match self.miniport.running_context(engine) {
                RunningContext::None => true,
                RunningContext::Context(_) => false,
                RunningContext::Unknown => !self.has_work(engine),
            }
    }

    /// Serves calls that wait for an idle GPU; true if something was done.
    pub(crate) fn serve_idle_waits(&mut self, effects: &mut Effects) -> bool {
        if self.vidsch.idle_waits().is_empty() {
            return false;
        }
        self.vidsch.idle_waits().adapters().into_iter().any(|adapter| self.serve_adapter(adapter, effects))
    }

    fn serve_adapter(&mut self, adapter: u32, effects: &mut Effects) -> bool {
        let is_late = |id: &u64| self.wait_limit(*id) <= self.now;
        let late = self.vidsch.idle_waits().firsts(adapter).map(|(_, id)| id).find(is_late);
        if let Some(id) = late {
            let why = format!("HardwareAccess: adapter {adapter} did not become idle");
            self.end_idle_wait(id, Some(refuse(NtStatus::DEVICE_BUSY, why)), effects);
            return true;
        }
        let Some(hold) = self.vidsch.idle_waits().hold_of(adapter) else {
            return self.begin_hold(adapter, effects);
        };
        let Some(id) = self.vidsch.idle_waits().first_of(adapter, hold.vm) else {
            self.release_engines(adapter, None);
            return true;
        };
        if self.busy_engine(adapter).is_none() {
            return self.serve(id, effects);
        }
        let is_over = self.hold_limit(adapter, hold).is_some_and(|until| until <= self.now);
        if is_over {
            self.release_engines(adapter, Some(self.now.saturating_add(self.now - hold.since)));
        }
        is_over
    }

    fn begin_hold(&mut self, adapter: u32, effects: &mut Effects) -> bool {
        let vms: Vec<VmId> = self.vidsch.idle_waits().firsts(adapter).map(|(vm, _)| vm).collect();
        let Some(vm) = vms.into_iter().find(|vm| self.may_hold(adapter, *vm)) else { return false };
        let since = self.now;
        self.vidsch.idle_waits_mut().hold(adapter, Hold { vm, since });
        self.wake_for_first(adapter, vm, effects);
        true
    }

    /// Whether it is a VM's turn: no other VM that has used less of an engine has work for it.
    fn may_hold(&mut self, adapter: u32, vm: VmId) -> bool {
        if self.now < self.vidsch.idle_waits().paused_until(adapter, vm) {
            return false;
        }
        let engines: Vec<EngineId> = self.engines_of(adapter).collect();
        engines.into_iter().all(|id| {
            let is_backed_off = |vm: VmId| self.tdr.is_backed_off(vm, self.now);
            let engine = self.vidsch.engine_mut(id);
            if engine.context_vms().all(|other| other != vm) {
                engine.shares.join(vm);
            }
            let used = |vm: VmId| (is_backed_off(vm), engine.shares.used(vm));
            engine.context_vms().all(|other| other == vm || used(vm) <= used(other))
        })
    }

    /// Performs the first waiting call of a VM, now that the GPU is idle.
    fn serve(&mut self, id: u64, effects: &mut Effects) -> bool {
        let IdleWait { adapter, vm, process, .. } = self.vidsch.idle_waits().calls()[&id];
        if self.is_spent() {
            let turn = self.turn_of(process);
            if !self.vidsch.work_mut().backlog().has_other_tasks(turn) {
                self.leave(process, Task::IdleWait);
            }
            return false;
        }
        if self.wake_for_first(adapter, vm, effects) {
            // The work that the adapter had in hardware may run now.
            return true;
        }
        self.end_idle_wait(id, None, effects);
        true
    }

    /// Brings the adapter to D0 for the first call of a VM; true if it was in D3.
    fn wake_for_first(&mut self, adapter: u32, vm: VmId, effects: &mut Effects) -> bool {
        let waits = self.vidsch.idle_waits();
        let first = waits.first_of(adapter, vm).map(|id| waits.calls()[&id].escape.flags);
        let wakes =
            first.is_some_and(|flags| !flags.contains(d3dkmt::EscapeFlags::NO_ADAPTER_SYNCHRONIZATION));
        wakes && self.wake_adapter(adapter, effects)
    }

    /// Ends the wait of a call: answers it with `refused`, or performs it.
    fn end_idle_wait(
        &mut self,
        id: u64,
        refused: Option<Result<d3dkmt::Reply, Refusal>>,
        effects: &mut Effects,
    ) {
        let Some(IdleWait { process, request, escape, .. }) = self.take_idle_wait(id) else { return };
        self.spend(1 + (escape.data.len() / BYTES_PER_UNIT) as u32);
        let result = refused.unwrap_or_else(|| {
            let WaitingEscape { adapter, device, context, kind, flags, data } = escape;
            self.vidsch.idle_waits_mut().set_served(true);
            let handles = EscapeHandles { adapter, device, context };
            let result = self.escape(process, handles, kind, flags, data, effects);
            self.vidsch.idle_waits_mut().set_served(false);
            result
        });
        self.answer(process, request, result, effects);
    }

    fn take_idle_wait(&mut self, id: u64) -> Option<IdleWait> {
        let wait = self.vidsch.idle_waits_mut().end(id)?;
        self.process_mut(wait.process).idle_waits.remove(&id);
        self.processes.release(wait.process, wait.escape.weight());
        Some(wait)
    }

    /// Drops the waiting call of a process that is gone, without an answer.
    pub(crate) fn forget_idle_wait(&mut self, id: u64) {
        let _ = self.take_idle_wait(id);
    }

    /// Ends the waits of a VM for an adapter that was removed from it.
    pub(crate) fn end_idle_waits_of(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) {
        while let Some(id) = self.vidsch.idle_waits().first_of(adapter, vm) {
            let why = format!("adapter {adapter} is removed from the VM");
            self.end_idle_wait(id, Some(refuse(NtStatus::DEVICE_REMOVED, why)), effects);
        }
    }

    /// Gives the engines of an adapter work again. The time for which others had to wait counts as used by the VM.
    fn release_engines(&mut self, adapter: u32, not_before: Option<Nanos>) {
        let Some(hold) = self.vidsch.idle_waits().hold_of(adapter) else { return };
        let engines: Vec<EngineId> = self.engines_of(adapter).collect();
        for id in engines {
            let is_wanted = self.is_held_from_others(id, hold.vm);
            if is_wanted {
                let held_ns = self.now - hold.since;
                self.vidsch.engine_mut(id).shares.charge(hold.vm, held_ns, false);
            }
        }
        for queue in self.vidsch.idle_waits_mut().release(adapter, not_before) {
            self.vidsch.work_mut().run_queue(queue);
        }
        self.vidsch.dispatch_all_of(adapter);
    }

    /// Whether another VM has work that is held back from an engine.
    fn is_held_from_others(&self, id: EngineId, vm: VmId) -> bool {
        let engine = self.vidsch.in_flight().engines.get(&id);
        engine.is_some_and(|engine| engine.ready.vms().any(|other| other != vm))
            || self.vidsch.idle_waits().held_queues(id.adapter).any(|queue| {
                let queue = self.vidsch.queues().get(queue).filter(|queue| queue.engine == id);
                queue.is_some_and(|queue| {
                    self.processes.get(queue.process).is_some_and(|process| process.vm != vm)
                })
            })
    }

    /// Time at which a hold is released, whether the engines are idle or not.
    fn hold_limit(&self, adapter: u32, hold: Hold) -> Option<Nanos> {
        let is_wanted = self.engines_of(adapter).any(|engine| self.is_held_from_others(engine, hold.vm));
        is_wanted.then(|| hold.since.saturating_add(HOLD_MAX_NS))
    }

    fn wait_limit(&self, id: u64) -> Nanos {
        let since = self.vidsch.idle_waits().calls()[&id].since;
        since.saturating_add(self.config.tdr.delay_ns.saturating_mul(WAIT_DELAYS))
    }

    /// Time at which waiting calls are checked next.
    pub(crate) fn idle_wait_deadline(&self) -> Option<Nanos> {
        let waits = self.vidsch.idle_waits();
        let of_adapter = |adapter: u32| {
            let limit = waits.firsts(adapter).map(|(_, id)| self.wait_limit(id)).min();
            let turn = match waits.hold_of(adapter) {
                Some(hold) => self.hold_limit(adapter, hold),
                None => {
                    let paused = waits.firsts(adapter).map(|(vm, _)| waits.paused_until(adapter, vm));
                    paused.filter(|until| *until > self.now).min()
                }
            };
            earliest(limit, turn)
        };
        waits.adapters().into_iter().map(of_adapter).fold(None, earliest)
    }
}
