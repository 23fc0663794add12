//! The buffers of an engine and the fence writes that they will make, for reports of why a wait does not end.

use alloc::vec::Vec;

use d3dkmt::isa::{FenceValue, Packet, Reader};
use dxgkrnl::ddi::{EngineWork, HwQueueId, PendingWrite, WorkState};

use super::{Engine, Job};

/// Fence stores and fence waits in these packets.
fn of_packets(packets: impl Iterator<Item = Packet>) -> Vec<PendingWrite> {
    let mut pending_writes = Vec::new();
    for packet in packets {
        match packet {
            Packet::FenceWrite { gpu_address, value }
            | Packet::MarkerIn { gpu_address, value }
            | Packet::MarkerOut { gpu_address, value } => {
                pending_writes.push(PendingWrite::Store { gpu_address, value });
            }
            Packet::SignalBarrier { fence, .. } => {
                pending_writes
                    .push(PendingWrite::Store { gpu_address: fence.gpu_address, value: fence.value });
            }
            Packet::FenceWait { gpu_address, value } => {
                pending_writes.push(PendingWrite::Wait { gpu_address, value });
            }
            Packet::WaitBarrier { fences, .. } => {
                let wait = |fence: FenceValue| PendingWrite::Wait {
                    gpu_address: fence.gpu_address,
                    value: fence.value,
                };
                pending_writes.extend(fences.into_iter().map(wait));
            }
            Packet::Hang | Packet::Busy { duration_ns: u64::MAX } => {
                pending_writes.push(PendingWrite::NeverEnds)
            }
            // The value of a timestamp is not known before its time.
            Packet::Timestamp { .. }
            | Packet::FenceRead { .. }
            | Packet::Busy { .. }
            | Packet::BeginList { .. }
            | Packet::Work { .. }
            | Packet::Barrier { .. }
            | Packet::LegacyBarrier { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. } => {}
        }
    }
    pending_writes
}

/// Fence stores and waits of a command buffer. A buffer in another KMD's format has none.
pub(crate) fn of_commands(commands: &[u8]) -> Vec<PendingWrite> {
    let packets = Reader::new(commands).ok().flatten().into_iter().flatten();
    of_packets(packets.map_while(Result::ok).map(|packet| packet.to_owned()))
}

impl Job {
    fn work(&self, state: WorkState) -> EngineWork {
        EngineWork {
            submission_fence_id: self.submission_fence_id,
            hw_queue: self.hw_queue(),
            context: self.context,
            process: self.process,
            state,
            pending_writes: self.pending_writes(),
        }
    }

    fn pending_writes(&self) -> Vec<PendingWrite> {
        let stored = self.scope.iter().flat_map(|scope| scope.stores());
        let stored =
            stored.map(|FenceValue { gpu_address, value }| PendingWrite::Store { gpu_address, value });
        stored.chain(of_packets(self.commands.remaining())).collect()
    }
}

impl Engine {
    /// See [`dxgkrnl::ddi::Miniport::pending_writes_of_submission`].
    pub fn pending_writes_of(
        &self,
        hw_queue: Option<HwQueueId>,
        submission_fence_id: u64,
    ) -> Option<Vec<PendingWrite>> {
        let is_it = |job: &&Job| (job.hw_queue(), job.submission_fence_id) == (hw_queue, submission_fence_id);
        let running = self.running.as_ref().filter(is_it);
        let elsewhere = || {
            let queued = self.queue.find(hw_queue, submission_fence_id);
            queued.or_else(|| self.saved.find(submission_fence_id))
        };
        Some(running.or_else(elsewhere)?.pending_writes())
    }

    /// See [`dxgkrnl::ddi::Miniport::work`].
    pub fn work(&self) -> Vec<EngineWork> {
        let running = self.running.iter().map(|job| {
            let state = job.until.map_or(WorkState::Hung, |until| WorkState::Running { until });
            job.work(state)
        });
        let queued = self.queue.iter().map(|job| {
            let state = match job.waits_for {
                Some((gpu_address, value, _)) => WorkState::Waiting { gpu_address, value },
                None if self.suspended.contains_key(&job.context) => WorkState::Suspended,
                None => WorkState::Queued,
            };
            job.work(state)
        });
        let saved = self.saved.values().map(|job| job.work(WorkState::Preempted));
        running.chain(queued).chain(saved).collect()
    }
}
