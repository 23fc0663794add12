//! What is with the miniport, and what it reports.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use crate::ddi::{Callback, EngineId, Interrupt, Miniport};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::{AdapterConfig, ProcessId};

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

    /// Whether an engine has anything.
    pub fn is_busy(&self, engine: EngineId) -> bool {
        self.engines.get(&engine).is_some_and(|engine| !engine.submitted.is_empty())
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
                }
                if engine.node == AdapterConfig::PAGING_NODE {
                    self.offer_paging_engine(engine.adapter);
                }
            }
            Callback::NotifyInterrupt(Interrupt::PeriodicMonitoredFenceSignaled {
                adapter,
                vidpn_target,
                notification_id,
            }) => self.periodic_fence_signaled(adapter, vidpn_target, notification_id, effects),
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
        match self.open_to_write(engine, process, gpu_address) {
            Ok(open) => {
                let object = self.opens[open].object;
                if let Some(paging_queue) = self.opens[open].mapping.paging_queue {
                    self.paging_reached(paging_queue, value);
                }
                self.process_mut(process).written.push(object);
                let value = self.written_value(process, object, value, effects);
                self.store_value(object, value, effects);
            }
            Err(why) => {
                let node = engine.node;
                let text = format!(
                    "node {node} stored to GPU address {gpu_address:#x}: nothing it may write is there ({why})"
                );
                self.note(process, text, effects);
            }
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
