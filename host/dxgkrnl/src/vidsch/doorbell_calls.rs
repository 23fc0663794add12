//! The calls of doorbells, and the effect of a rung doorbell. See `doorbell.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, Reply, limits};

use super::HwQueue;
use super::doorbell::{Doorbell, DoorbellStatus};
use crate::ProcessId;
use crate::ddi::{
    Agent, BadCommands, DisconnectReason, DoorbellConnection, EngineId, HappensBefore, HwQueueId,
};
use crate::effects::{Effects, FenceStore};
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::Device;

/// Bytes that a buffer in a ring counts besides its commands.
const RING_BUFFER_BYTES: usize = 64;

fn aborted(handle: Handle) -> CallResult {
    invalid(format!(
        "the doorbell of queue {handle} was disconnected with ABORT: only a new one connects (F-101)"
    ))
}

impl Kernel {
    /// A live hardware queue of user-mode submission.
    fn user_mode_queue(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let id = self.hw_queue(process, handle)?;
        if !self.vidsch.hw_queues[id].user_mode() {
            return invalid(format!("hardware queue {handle} was created without UserModeSubmission"));
        }
        Ok(id)
    }

    fn doorbell(&self, process: ProcessId, handle: Handle) -> Result<(u32, DoorbellStatus), Refusal> {
        let id = self.user_mode_queue(process, handle)?;
        match &self.vidsch.hw_queues[id].doorbell {
            Some(doorbell) => Ok((id, doorbell.status)),
            None => invalid(format!("hardware queue {handle} has no doorbell")),
        }
    }

    /// `D3DKMTCreateDoorbell`: one for a queue, disconnected.
    pub(crate) fn create_doorbell(
        &mut self,
        process: ProcessId,
        handle: Handle,
        rings: &[Handle],
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.user_mode_queue(process, handle)?;
        let device = self.vidsch.contexts[self.vidsch.hw_queues[id].context].device;
        self.require_active(device)?;
        let rings = self.rings(process, device, rings)?;
        if self.vidsch.hw_queues[id].doorbell.is_some() {
            return invalid(format!("hardware queue {handle} has a doorbell already"));
        }
        if let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        if let Err(status) = self.miniport.create_doorbell(HwQueueId(id)) {
            return refuse(status, "the driver failed to create the doorbell");
        }
        let Some(slot) = self.process_mut(process).slots.allocate_for_kernel() else {
            self.miniport.destroy_doorbell(HwQueueId(id));
            return Ok(Reply::FenceMemoryExhausted);
        };
        let status = DoorbellStatus::DisconnectedRetry;
        let rings = rings.into_iter().map(|ring| self.hold_ring(process, device, ring)).collect();
        self.vidsch.hw_queues[id].doorbell = Some(Doorbell { status, slot, rings });
        self.store_doorbell(id, effects);
        Ok(Reply::Doorbell { status_slot: slot })
    }

    /// Stores a doorbell's status where its process reads it.
    pub(crate) fn store_doorbell(&self, id: u32, effects: &mut Effects) {
        let queue = &self.vidsch.hw_queues[id];
        if let Some(Doorbell { status, slot, .. }) = queue.doorbell {
            effects.stores.push(FenceStore { process: queue.process, slot, value: status as u64 });
        }
    }

    fn set_doorbell(&mut self, id: u32, status: DoorbellStatus, effects: &mut Effects) {
        if let Some(doorbell) = &mut self.vidsch.hw_queues[id].doorbell {
            doorbell.status = status;
            self.store_doorbell(id, effects);
        }
    }

    /// `D3DKMTConnectDoorbell`: wakes the adapter; takes a physical doorbell from another queue if it must (SCH-032).
    pub(crate) fn connect_doorbell(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        /// A driver that frees one at a time and then takes it needs two.
        const TRIES: u32 = 4;
        let (id, status) = self.doorbell(process, handle)?;
        self.require_active(self.vidsch.contexts[self.vidsch.hw_queues[id].context].device)?;
        if status.is_connected() {
            return Ok(Reply::None);
        }
        if status == DoorbellStatus::DisconnectedAbort {
            return aborted(handle);
        }
        self.wake_adapter(self.vidsch.contexts[self.vidsch.hw_queues[id].context].engine.adapter, effects);
        for _ in 0..TRIES {
            let mut connection = DoorbellConnection::Failed;
            self.run_ddi(effects, |miniport, now, callbacks| {
                connection = miniport.connect_doorbell(now, HwQueueId(id), callbacks);
            });
            let status = match connection {
                DoorbellConnection::Connected => DoorbellStatus::Connected,
                DoorbellConnection::ConnectedNotify => DoorbellStatus::ConnectedNotify,
                DoorbellConnection::Retry => continue,
                DoorbellConnection::Failed => break,
            };
            // ABORT is final, also inside of the DDI.
            if self.doorbell(process, handle)?.1 == DoorbellStatus::DisconnectedAbort {
                return aborted(handle);
            }
            self.set_doorbell(id, status, effects);
            return Ok(Reply::None);
        }
        refuse(NtStatus::NO_MEMORY, format!("the driver has no physical doorbell for queue {handle}"))
    }

    /// `D3DKMTDestroyDoorbell`.
    pub(crate) fn destroy_doorbell(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let (id, _) = self.doorbell(process, handle)?;
        self.drop_doorbell(id, effects);
        Ok(Reply::None)
    }

    pub(super) fn drop_doorbell(&mut self, id: u32, effects: &mut Effects) {
        self.disconnect_doorbell(id, DisconnectReason::Retry, effects);
        let queue = &mut self.vidsch.hw_queues[id];
        let process = queue.process;
        if let Some(doorbell) = queue.doorbell.take() {
            self.miniport.destroy_doorbell(HwQueueId(id));
            self.process_mut(process).slots.release(doorbell.slot);
            for ring in doorbell.rings {
                self.end_ring(process, ring);
            }
        }
    }

    /// `D3DKMTNotifyWorkSubmission`. Without need it does no harm (SCH-029).
    pub(crate) fn notify_work_submission(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let (id, status) = self.doorbell(process, handle)?;
        if status == DoorbellStatus::ConnectedNotify {
            self.call_ddi(effects, |miniport, now, callbacks| {
                miniport.notify_work_submission(now, HwQueueId(id), callbacks);
            });
            let adapter = self.vidsch.queues[self.vidsch.hw_queues[id].queue].engine.adapter;
            self.count_driver_bytes(process, adapter);
        }
        Ok(Reply::None)
    }

    /// Disconnects a doorbell by the kernel's decision: stores the status before it calls the driver.
    pub(crate) fn disconnect_doorbell(&mut self, id: u32, reason: DisconnectReason, effects: &mut Effects) {
        if self.store_disconnected(id, reason, effects) {
            self.miniport.disconnect_doorbell(HwQueueId(id));
        }
    }

    /// Stores the reason; true if it was connected. ABORT is final: RETRY does not replace it.
    fn store_disconnected(&mut self, id: u32, reason: DisconnectReason, effects: &mut Effects) -> bool {
        let Some(doorbell) = &self.vidsch.hw_queues[id].doorbell else { return false };
        let was_connected = doorbell.status.is_connected();
        match reason {
            DisconnectReason::Retry if was_connected => {
                self.set_doorbell(id, DoorbellStatus::DisconnectedRetry, effects);
            }
            DisconnectReason::Abort if doorbell.status != DoorbellStatus::DisconnectedAbort => {
                self.set_doorbell(id, DoorbellStatus::DisconnectedAbort, effects);
            }
            DisconnectReason::Retry | DisconnectReason::Abort => {}
        }
        was_connected
    }

    /// `DxgkCbDisconnectDoorbell` (SCH-031).
    pub(super) fn driver_disconnects(
        &mut self,
        hw_queue: HwQueueId,
        reason: DisconnectReason,
        effects: &mut Effects,
    ) {
        let has_one = self.vidsch.hw_queues.get(hw_queue.0).is_some_and(|queue| queue.doorbell.is_some());
        let status = if has_one {
            self.store_disconnected(hw_queue.0, reason, effects);
            NtStatus::SUCCESS
        } else {
            NtStatus::INVALID_PARAMETER
        };
        self.miniport.doorbell_disconnected(hw_queue, status);
    }

    /// Disconnects every doorbell of an engine.
    pub(super) fn disconnect_engine(&mut self, engine: EngineId, effects: &mut Effects) {
        let on_engine = self
            .vidsch
            .hw_queues
            .iter()
            .filter(|(_, queue)| self.vidsch.contexts[queue.context].engine == engine);
        let queues: Vec<u32> = on_engine.map(|(id, _)| id).collect();
        for queue in queues {
            self.disconnect_doorbell(queue, DisconnectReason::Retry, effects);
        }
    }

    /// Sets the doorbells of a lost device to ABORT (TDR-039).
    pub(crate) fn abort_doorbells(&mut self, device: u32, effects: &mut Effects) {
        for queue in self.hw_queues_of_device(device) {
            self.disconnect_doorbell(queue, DisconnectReason::Abort, effects);
        }
    }

    /// The hardware queues of a device, in the order of their numbers.
    fn hw_queues_of_device(&self, device: u32) -> BTreeSet<u32> {
        let Device { process, ref queues, .. } = self.processes.devices()[device];
        // A process that has none may have thousands of contexts.
        let queues = queues.iter().filter(|_| self.process(process).hw_queues > 0);
        queues.filter_map(|queue| self.vidsch.queues[*queue].hw_queue).collect()
    }

    /// The hardware queues of all devices of a process, in the order of their numbers.
    pub(crate) fn hw_queues_of_process(&self, process: ProcessId) -> BTreeSet<u32> {
        let owner = self.process(process);
        let devices = owner.devices.values().filter(|_| owner.hw_queues > 0);
        devices.flat_map(|device| self.hw_queues_of_device(*device)).collect()
    }

    /// [`crate::Input::DoorbellRung`]: a write to the doorbell's address. It has no answer.
    pub(crate) fn doorbell_rung(
        &mut self,
        process: ProcessId,
        handle: Handle,
        last_queued: u64,
        buffers: Vec<Vec<u8>>,
        effects: &mut Effects,
    ) {
        if !self.processes.by_id().contains_key(&process) {
            return;
        }
        if let Err(Refusal { why, .. }) = self.ring(process, handle, last_queued, buffers, effects) {
            self.note(process, format!("the ring of {handle} did nothing: {why}"), effects);
        }
    }

    fn ring(
        &mut self,
        process: ProcessId,
        handle: Handle,
        last_queued: u64,
        buffers: Vec<Vec<u8>>,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let id = self.user_mode_queue(process, handle)?;
        // The value is in memory, so it counts even if the ring fails.
        let before = core::mem::replace(&mut self.vidsch.hw_queues[id].last_queued, last_queued);
        if last_queued < before {
            self.note(
                process,
                format!("the last-queued value of {handle} went from {before} to {last_queued}"),
                effects,
            );
            let HwQueue { progress, queue, .. } = self.vidsch.hw_queues[id];
            self.mark_monitored(progress);
            self.vidsch.work.run_queue(queue);
        }
        let (_, status) = self.doorbell(process, handle)?;
        if !status.is_connected() {
            return invalid(format!("it hit the dummy page, the doorbell's status is {}", status as u64));
        }
        let adapter = self.vidsch.queues[self.vidsch.hw_queues[id].queue].engine.adapter;
        for buffer in &buffers {
            if let Err(BadCommands(why)) = self.miniport.validate(adapter, buffer) {
                return invalid(why);
            }
        }
        let bytes: usize = buffers.iter().map(|buffer| buffer.len() + RING_BUFFER_BYTES).sum();
        let of_process = self.hw_queues_of_process(process).into_iter();
        let ring_bytes: usize = of_process.map(|id| self.miniport.ring_bytes(HwQueueId(id))).sum();
        if ring_bytes + bytes > limits::QUEUED_BYTES_PER_PROCESS_MAX {
            return invalid(format!(
                "the rings of the process hold {ring_bytes} bytes, {bytes} more do not fit"
            ));
        }
        let HwQueue { queue, progress, .. } = self.vidsch.hw_queues[id];
        if self.sync.objects().value(progress) < last_queued {
            let by = self.submitter(queue);
            self.vidsch.in_flight.ring_has_work(self.vidsch.queues[queue].engine, self.now, queue, by);
        }
        for _ in &buffers {
            let (adapter, by) = (self.vidsch.queues[queue].engine.adapter, Agent::HwQueue(HwQueueId(id)));
            self.edge(HappensBefore::Submitted { process, adapter, queue: by });
        }
        self.call_ddi(effects, |miniport, now, callbacks| {
            miniport.ring_doorbell(now, HwQueueId(id), buffers, callbacks);
        });
        self.count_driver_bytes(process, adapter);
        Ok(())
    }
}
