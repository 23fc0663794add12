//! What is with the miniport, and what it reports.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{SyncObjectFlags, SyncObjectType};

use super::HwQueue;
use crate::ProcessId;
use crate::ddi::{Callback, EngineId, Interrupt, Miniport};
use crate::effects::Effects;
use crate::kernel::Kernel;

/// Submissions that are with the miniport.
#[derive(Default)]
pub(crate) struct InFlight {
    engines: BTreeMap<EngineId, OnEngine>,
}

#[derive(Default)]
struct OnEngine {
    last: u64,
    /// Submission fence ids, which grow, and their queues.
    submitted: VecDeque<(u64, u32)>,
    /// The same for hardware queues: no DMA_COMPLETED tells of them.
    of_hw_queues: VecDeque<(u64, u32)>,
}

impl InFlight {
    /// The next `SubmissionFenceId` of an engine, for this queue.
    pub(super) fn begin(&mut self, engine: EngineId, queue: u32) -> u64 {
        let engine = self.engines.entry(engine).or_default();
        engine.last += 1;
        engine.submitted.push_back((engine.last, queue));
        engine.last
    }

    /// The same for the queue of a hardware queue.
    pub(super) fn begin_hw(&mut self, engine: EngineId, queue: u32) -> u64 {
        let engine = self.engines.entry(engine).or_default();
        engine.last += 1;
        engine.of_hw_queues.push_back((engine.last, queue));
        engine.last
    }

    /// Whether software contexts have work with an engine of this adapter.
    pub(super) fn is_busy(&self, adapter: u32) -> bool {
        self.engines.iter().any(|(id, engine)| id.adapter == adapter && !engine.submitted.is_empty())
    }

    /// Takes out the oldest submission of an engine up to this one; its queue.
    ///
    /// Ids grow on each engine (SCH-005) and there is one last completed id of it (SCH-007): the report of
    /// one is the report of all before it, should theirs have been lost.
    fn complete(&mut self, engine: EngineId, submission_fence_id: u64) -> Option<u32> {
        let submitted = &mut self.engines.get_mut(&engine)?.submitted;
        let oldest = submitted.front().filter(|(id, _)| *id <= submission_fence_id)?.1;
        submitted.pop_front();
        Some(oldest)
    }

    /// This one will not complete.
    pub(super) fn forget(&mut self, engine: EngineId, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        for list in [&mut engine.submitted, &mut engine.of_hw_queues] {
            if let Ok(at) = list.binary_search_by_key(&submission_fence_id, |(id, _)| *id) {
                list.remove(at);
            }
        }
    }

    /// Nothing of this adapter will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.submitted.clear();
            engine.of_hw_queues.clear();
        }
    }
}

impl<M: Miniport> Kernel<M> {
    /// What a miniport asked for.
    pub(crate) fn callback(&mut self, callback: Callback, effects: &mut Effects) {
        match callback {
            Callback::GpuStore { engine, process, gpu_address, value } => {
                self.gpu_store(engine, process, gpu_address, value, None, effects);
            }
            Callback::HwQueueStore { engine, hw_queue, gpu_address, value } => {
                let Some(HwQueue { process, .. }) = self.hw_queues.get(hw_queue.0) else { return };
                self.gpu_store(engine, *process, gpu_address, value, Some(hw_queue.0), effects);
            }
            Callback::NativeFenceLogWrite(write) => self.native_fence_log_written(&write),
            Callback::DisconnectDoorbell { hw_queue, reason } => {
                self.driver_disconnects(hw_queue, reason, effects);
            }
            Callback::NotifyInterrupt(Interrupt::SuspendContextCompleted { context, suspend_fence }) => {
                self.suspend_acknowledged(context, suspend_fence, effects);
            }
            Callback::NotifyInterrupt(Interrupt::NativeFenceSignaled { engine, signaled }) => {
                self.native_fences_signaled(engine, signaled, effects);
            }
            Callback::NotifyInterrupt(Interrupt::EngineToF1 { engine }) => {
                self.disconnect_engine(engine, effects);
            }
            Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id }) => {
                while let Some(id) = self.in_flight.complete(engine, submission_fence_id) {
                    let queue = &mut self.queues[id];
                    queue.running = None;
                    let process = queue.process;
                    self.runnable.push_back(id);
                    self.evaluate_written(process, effects);
                }
            }
            Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { .. }) => {
                self.evaluate_all_written(effects);
            }
        }
    }

    /// An interrupt named an engine, not a fence: whatever was written anywhere is looked at.
    pub(crate) fn evaluate_all_written(&mut self, effects: &mut Effects) {
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.evaluate_written(process, effects);
        }
    }

    /// An engine wrote to memory: the value is visible at once; waits are looked at on an interrupt. `hw_queue` is the
    /// hardware queue whose commands did.
    fn gpu_store(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        value: u64,
        hw_queue: Option<u32>,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.processes.get(&process) else { return };
        let open = owner.slots.owner_at(gpu_address);
        // An open with NoSignal is mapped for reading only, one with NoGPUAccess not at all; and a fence is
        // mapped on its own adapter.
        let unwritable = SyncObjectFlags::NO_GPU_ACCESS | SyncObjectFlags::NO_SIGNAL;
        let mapped = open.and_then(|open| self.mapped_on(open, engine.adapter));
        match mapped.map(|open| &self.opens[open]) {
            Some(open) if !open.flags.intersects(unwritable) && self.may_store(hw_queue, open.object) => {
                let (object, open) = (open.object, mapped.expect("it was found"));
                self.note_unannounced(hw_queue, object, value, effects);
                self.written_by_gpu(open, object, engine.adapter, value);
                self.store_value(object, value, effects);
            }
            _ => {
                let node = engine.node;
                let text = format!(
                    "node {node} stored to GPU address {gpu_address:#x}: nothing it may write is there"
                );
                self.note(process, text, effects);
            }
        }
    }

    /// Commands of a queue of user-mode submission reach native fences only (FEN-118).
    fn may_store(&self, hw_queue: Option<u32>, object: u32) -> bool {
        let user_mode = hw_queue.and_then(|id| self.hw_queues.get(id)).is_some_and(HwQueue::user_mode);
        !user_mode || self.objects[object].object_type == SyncObjectType::NATIVE_FENCE
    }

    /// The last-queued value comes before the buffer (SCH-030): progress beyond it was not announced.
    fn note_unannounced(&self, hw_queue: Option<u32>, object: u32, value: u64, effects: &mut Effects) {
        let Some(queue) = hw_queue.and_then(|id| self.hw_queues.get(id)) else { return };
        if queue.user_mode() && queue.progress == object && value > queue.last_queued {
            let (handle, last_queued) = (queue.handle, queue.last_queued);
            let text = format!(
                "hardware queue {handle} made progress {value}, the last-queued value is {last_queued}: store it before the buffer"
            );
            self.note(queue.process, text, effects);
        }
    }

    pub(super) fn evaluate_written(&mut self, process: ProcessId, effects: &mut Effects) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        for object in core::mem::take(&mut owner.written) {
            // It may be gone by now; whoever has its place loses nothing by being looked at.
            if self.objects.get(object).is_some() {
                self.propagate_current_value(object, None, effects);
                self.evaluate(object, effects);
            }
        }
    }
}
