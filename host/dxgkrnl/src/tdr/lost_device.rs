//! A lost device: its state, its work and its fences. See `loss.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use d3dkmt::{DeviceExecutionState, Handle, NtStatus, Reply};

use super::Recovery;
use super::loss::{Loss, LossOfFences, LossOfMemory, LossOfQueues, LostDevice, LostFences};
use crate::ProcessId;
use crate::ddi::HappensBefore;
use crate::effects::Effects;
use crate::error::{CallResult, invalid};
use crate::history::Ending;
use crate::kernel::Kernel;
use crate::policy::FaultedDevicePoisons;
use crate::process::{Device, HandleTarget};
use crate::sync::written::Mark;
use crate::vidsch::{DroppedPackets, Task, commands};

impl Kernel {
    /// Whether a device that goes into error without a reset poisons its fences.
    pub(super) fn faults_poison(&self) -> bool {
        self.config.policy.faulted_device_poisons == FaultedDevicePoisons::Poisons
    }

    /// Loses devices. A device whose adapter was stopped or removed since poisons no fence: its work signals nothing any
    /// more, and the fences that live are those of other adapters (decision 57).
    pub(crate) fn lose(&mut self, loss: Loss, effects: &mut Effects) {
        let Loss { devices, state, page_fault, poisons } = loss;
        // A device that was destroyed since has no owner any more.
        let devices: BTreeSet<u32> =
            devices.into_iter().filter(|id| self.processes.devices().get(*id).is_some()).collect();
        if devices.is_empty() {
            return;
        }
        let ids: Vec<u32> = devices.iter().copied().collect();
        if let Some(fault) = page_fault {
            for id in &ids {
                let device = self.processes.device_mut(*id);
                // A device that was lost before keeps its reason.
                if device.state == DeviceExecutionState::ACTIVE {
                    device.page_fault = fault;
                }
            }
        }
        self.set_device_state(&ids, state, effects);
        for id in &ids {
            self.empty_queues(
                LossOfQueues { of: self.lost_device(*id), behind: None, is_left: false },
                effects,
            );
        }
        // Waits through a lost device end before fences that another one poisons would release them.
        for id in &ids {
            self.begin_loss(*id, LostFences::WaitsEnd, effects);
        }
        let signaled = [LostFences::NativeOnesAreSignaled, LostFences::AllAreSignaled];
        for kind in signaled.into_iter().take(if poisons { 2 } else { 1 }) {
            for id in &ids {
                if self.is_on_adapter(*id) {
                    self.begin_loss(*id, kind, effects);
                }
            }
        }
    }

    /// Loses a device once the signal or call under way is through.
    pub(crate) fn lose_soon(&mut self, device: u32, state: DeviceExecutionState, poisons: bool) {
        let loss = Loss { devices: alloc::vec![device], state, page_fault: None, poisons };
        self.vidsch.work_mut().recover(Recovery::Lose(loss));
    }

    /// Notes for people why active devices are about to be lost. A reset has a note of its own.
    pub(super) fn note_losses(&self, devices: &[u32], why: &str, effects: &mut Effects) {
        /// A fault of a process may hit all of its devices.
        const NOTED_MAX: usize = 8;
        let active = devices.iter().filter_map(|id| self.processes.devices().get(*id));
        let mut active = active.filter(|device| device.state == DeviceExecutionState::ACTIVE);
        for Device { handle, process, .. } in active.by_ref().take(NOTED_MAX) {
            self.note(*process, format!("device {handle} is lost: {why}"), effects);
        }
        let others = active.count();
        if others > 0 {
            self.note_host(format!("{others} more devices are lost: {why}"), effects);
        }
    }

    /// Begins an action on each fence of a lost device.
    pub(crate) fn begin_loss(&mut self, device: u32, kind: LostFences, effects: &mut Effects) {
        let loss = LossOfFences { of: self.lost_device(device), kind };
        self.vidsch.work_mut().backlog_mut().begin_loss_of_fences(loss);
        self.lose_fences(loss, effects);
    }

    fn lost_device(&self, device: u32) -> LostDevice {
        let Device { handle, process, .. } = self.processes.devices()[device];
        LostDevice { device, handle, process }
    }

    /// A lost device, unless it has been destroyed since.
    fn find_lost(&self, of: LostDevice) -> Option<&Device> {
        let device = self.processes.devices().get(of.device)?;
        ((device.process, device.handle) == (of.process, of.handle)).then_some(device)
    }

    /// Continues the action on the fences, in the order of their handles. The owner of the device pays for it.
    pub(crate) fn lose_fences(&mut self, loss: LossOfFences, effects: &mut Effects) {
        let before = self.vidsch.work_mut().backlog_mut().act_for(Some(loss.of.process));
        self.lose_next_fences(loss, effects);
        self.vidsch.work_mut().backlog_mut().act_for(before);
    }

    fn lose_next_fences(&mut self, loss: LossOfFences, effects: &mut Effects) {
        loop {
            let Some(device) = self.find_lost(loss.of) else { return };
            let Some(up_to) = self.vidsch.work().backlog().fences_lost_up_to(loss) else { return };
            let next = device.children.range((up_to.map_or(Unbounded, Excluded), Unbounded)).next();
            let Some(child) = next.copied() else {
                if loss.kind == LostFences::WaitsEnd && !self.end_foreign_waits(loss.of.device, effects) {
                    self.leave(loss.of.process, Task::LoseFences(loss));
                    return;
                }
                self.vidsch.work_mut().backlog_mut().fences_are_lost(loss);
                return;
            };
            if self.is_spent() {
                self.leave(loss.of.process, Task::LoseFences(loss));
                return;
            }
            self.spend(1);
            if self.vidsch.work_mut().backlog_mut().begin_child(loss, child)
                && let Some((open, object)) = self.open_of_child(loss.of.process, child)
            {
                self.lose_fence(loss, open, object, effects);
            }
            self.vidsch.work_mut().backlog_mut().end_child();
        }
    }

    fn lose_fence(&mut self, loss: LossOfFences, open: u32, object: u32, effects: &mut Effects) {
        if loss.kind == LostFences::WaitsEnd {
            self.end_waits_of_lost(object, open, effects);
        } else if self.is_poisoned_by(loss.kind, loss.of.device, object, open) {
            self.poison(object, loss.of.device, effects);
        }
    }

    /// Empties the queues of a lost device, in the order of their numbers. No queue of the device runs until all are
    /// empty.
    pub(crate) fn empty_queues(&mut self, mut loss: LossOfQueues, effects: &mut Effects) {
        loop {
            let Some(device) = self.find_lost(loss.of) else { return };
            let next = device.queues.range((loss.behind.map_or(Unbounded, Excluded), Unbounded)).next();
            let Some(queue) = next.copied() else { break };
            if self.is_spent() {
                if !loss.is_left {
                    self.vidsch.work_mut().backlog_mut().begin_loss_of_device(loss.of.device);
                    loss.is_left = true;
                }
                self.leave(loss.of.process, Task::EmptyQueues(loss));
                return;
            }
            self.spend(1);
            loss.behind = Some(queue);
            self.empty_queue(queue, effects);
            let by = self.agent(queue);
            self.edge(HappensBefore::WorkOver { by, device: loss.of.device });
        }
        if loss.is_left {
            self.vidsch.work_mut().backlog_mut().end_loss_of_device(loss.of.device);
        }
    }

    /// Drops the packets of a queue of a lost device without effect.
    pub(crate) fn empty_queue(&mut self, id: u32, effects: &mut Effects) {
        let before = self.history.begin(Ending::DeviceLost);
        self.remember_queue(id);
        let ready = self.unready(id);
        self.vidsch.ring_ended(id, self.now);
        let queue = self.vidsch.queue_mut(id);
        let (process, mut packets) = (queue.process, core::mem::take(&mut queue.packets));
        let (engine, context, running) = (queue.engine, queue.context, queue.running);
        // Work that still runs on the engine completes there.
        let runs = running.is_some_and(|id| self.vidsch.engine_mut(engine).has(id));
        if !runs {
            self.vidsch.queue_mut(id).running = None;
        }
        self.vidsch.forget_ended_submissions(id);
        let own = ready.iter().filter(|command| command.resubmits.is_none());
        let own = own.map(|command| &command.commands[..]);
        self.cancel_commands(engine, context, own.chain(commands(&packets)), effects);
        let status = Some(NtStatus::DEVICE_REMOVED);
        self.pass_dropped_mark(id, &mut packets);
        self.await_no_longer(id);
        self.drop_packets(process, DroppedPackets { packets, queue: None, status }, effects);
        self.evaluate_written(process, Mark::Wrote, effects);
        self.count_driver_bytes(process, engine.adapter);
        self.history.set_ending(before);
    }

    /// Begins to take what a lost device has in LOCAL.
    pub(super) fn lose_memory(&mut self, device: u32) {
        self.purge_memory(LossOfMemory { of: self.lost_device(device), behind: None, within: None });
    }

    /// Goes on with it, in the order of the handles.
    pub(crate) fn purge_memory(&mut self, mut loss: LossOfMemory) {
        let process = loss.of.process;
        loop {
            let Some(device) = self.find_lost(loss.of) else { return };
            let next = device.children.range((loss.behind.map_or(Unbounded, Excluded), Unbounded)).next();
            let Some(child) = next.copied() else { return };
            if self.is_spent() {
                self.leave(process, Task::PurgeMemory(loss));
                return;
            }
            self.spend(1);
            match self.process(process).handles.get(child) {
                Some(HandleTarget::Resource(open)) => {
                    let behind = loss.within.filter(|(resource, _)| *resource == child);
                    let allocations = &self.vidmm.memory().resource_opens[open].allocations;
                    let from = behind.map_or(Unbounded, |(_, allocation)| Excluded(allocation));
                    if let Some(allocation) = allocations.range((from, Unbounded)).next().copied() {
                        loss.within = Some((child, allocation));
                        self.purge(process, allocation);
                        continue;
                    }
                }
                Some(HandleTarget::Allocation(_)) => self.purge(process, child),
                _ => {}
            }
            loss.behind = Some(child);
        }
    }

    /// The open and the object of a child of a device. The fence of a paging queue is no child: the queue stands for
    /// it.
    fn open_of_child(&self, process: ProcessId, child: Handle) -> Option<(u32, u32)> {
        let handles = &self.process(process).handles;
        let open = |handle: Handle| match handles.get(handle)? {
            HandleTarget::Sync(named) => Some((named.open, named.object)),
            _ => None,
        };
        match handles.get(child)? {
            HandleTarget::PagingQueue(queue) => open(self.vidmm.paging_queues()[queue].fence),
            _ => open(child),
        }
    }

    /// The objects that an incomplete loss has yet to poison.
    pub(crate) fn fences_to_poison(&self, device: u32, loss: LostFences) -> impl Iterator<Item = u32> {
        let state = self.processes.devices().get(device);
        let children =
            state.into_iter().flat_map(|state| state.children.iter().map(|child| (state.process, *child)));
        children.filter_map(move |(process, child)| {
            let (open, object) = self.open_of_child(process, child)?;
            let is_left = self.vidsch.work().backlog().loses_fence(device, loss, child);
            (is_left && self.is_poisoned_by(loss, device, object, open)).then_some(object)
        })
    }

    /// `D3DKMTMarkDeviceAsError`: the device is lost as after a reset, at the request of its own process (TDR-037).
    pub(crate) fn mark_device_as_error(
        &mut self,
        process: ProcessId,
        device: Handle,
        reason: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.device(process, device)?;
        // `D3DKMT_DEVICE_ERROR_REASON`
        let name = match reason {
            0 => "GENERIC",
            1 => "DRIVER_ERROR",
            // The library sends a number of its own for a reason without a name, so the note has none.
            _ => {
                return invalid(
                    "the reason is neither D3DKMT_DEVICE_ERROR_REASON_GENERIC (0x80000000) nor .._DRIVER_ERROR (0x80000006)",
                );
            }
        };
        self.note_losses(&[id], &format!("its process marked it as in error ({name})"), effects);
        self.lose_soon(id, DeviceExecutionState::RESET, self.faults_poison());
        Ok(Reply::None)
    }
}
