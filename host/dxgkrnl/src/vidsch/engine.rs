//! What is with the miniport, and what it reports.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::SyncObjectFlags;

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
}

impl InFlight {
    /// The next `SubmissionFenceId` of an engine, for this queue.
    pub(super) fn begin(&mut self, engine: EngineId, queue: u32) -> u64 {
        let engine = self.engines.entry(engine).or_default();
        engine.last += 1;
        engine.submitted.push_back((engine.last, queue));
        engine.last
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
        if let Ok(at) = engine.submitted.binary_search_by_key(&submission_fence_id, |(id, _)| *id) {
            engine.submitted.remove(at);
        }
    }

    /// Nothing of this adapter will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.submitted.clear();
        }
    }
}

impl<M: Miniport> Kernel<M> {
    /// What a miniport asked for.
    pub(crate) fn callback(&mut self, callback: Callback, effects: &mut Effects) {
        match callback {
            Callback::GpuStore { engine, process, gpu_address, value } => {
                self.gpu_store(engine, process, gpu_address, value, effects);
            }
            Callback::NotifyInterrupt(Interrupt::DmaCompleted { engine, submission_fence_id }) => {
                while let Some(id) = self.in_flight.complete(engine, submission_fence_id) {
                    let queue = &mut self.queues[id];
                    queue.running = None;
                    let process = queue.process;
                    self.runnable.push_back(id);
                    self.evaluate_written(process, effects);
                    self.evaluate_written_by_others(process, effects);
                }
            }
            Callback::NotifyInterrupt(Interrupt::MonitoredFenceSignaled { .. }) => {
                // It names an engine, not a fence: whatever was written anywhere is looked at.
                let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
                for process in processes {
                    self.evaluate_written(process, effects);
                }
            }
        }
    }

    /// An engine wrote to memory: the value is visible at once; waits are looked at on an interrupt.
    fn gpu_store(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        value: u64,
        effects: &mut Effects,
    ) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        let open = owner.slots.owner_at(gpu_address).map(|open| &self.opens[open]);
        // An open with NoSignal is mapped for reading only, one with NoGPUAccess not at all; and a fence is
        // mapped on its own adapter.
        let unwritable = SyncObjectFlags::NO_GPU_ACCESS | SyncObjectFlags::NO_SIGNAL;
        match open {
            Some(open) if !open.flags.intersects(unwritable) && open.adapter == engine.adapter => {
                let object = open.object;
                owner.written.push(object);
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

    /// A buffer of this process is done: its fences are looked at, also those that the engines of others wrote and have
    /// not told of (FEN-017, F-29: the process that completes decides which fences, not the one that wrote).
    fn evaluate_written_by_others(&mut self, process: ProcessId, effects: &mut Effects) {
        let opened = |object: &u32| {
            // Nobody else has one that is not shared.
            let shared = self
                .objects
                .get(*object)
                .is_some_and(|object| object.flags.contains(SyncObjectFlags::SHARED));
            shared && self.opens.iter().any(|(_, open)| open.object == *object && open.process == process)
        };
        let others = self.processes.iter().filter(|(id, _)| **id != process);
        let written: Vec<u32> =
            others.flat_map(|(_, other)| &other.written).copied().filter(|object| opened(object)).collect();
        if written.is_empty() {
            return;
        }
        for (_, other) in self.processes.iter_mut().filter(|(id, _)| **id != process) {
            other.written.retain(|object| !written.contains(object));
        }
        for object in written {
            self.evaluate(object, effects);
        }
    }

    pub(super) fn evaluate_written(&mut self, process: ProcessId, effects: &mut Effects) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        for object in core::mem::take(&mut owner.written) {
            // It may be gone by now; whoever has its place loses nothing by being looked at.
            if self.objects.get(object).is_some() {
                self.evaluate(object, effects);
            }
        }
    }
}
