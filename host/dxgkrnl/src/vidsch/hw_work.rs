//! An engine's work of hardware queues and in the rings of user-mode submission.
//!
//! Counts answer every query of the scheduler, so a client's work in flight does not make the steps of others longer.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use crate::{ProcessId, VmId};

/// Charge for a submission: its entries here and in its queue (`HwSubmission`).
const SUBMISSION_BYTES: usize = 128;

/// The process, context and VM that work is of, and whether it is exempt from timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Submitter {
    pub process: ProcessId,
    pub context: u32,
    pub vm: VmId,
    /// DisableGpuTimeout of its queue, context or device (SCH-016).
    pub is_exempt: bool,
}

/// Work of hardware queues and rings on one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct HwWork {
    /// Submissions by their id, which grows, and their queues.
    submissions: BTreeMap<u64, (u32, Submitter)>,
    /// Queues of user-mode submission that were rung and whose progress fence is below the last-queued value.
    rings: BTreeMap<u32, Submitter>,
    /// Number of submissions.
    of_process: BTreeMap<ProcessId, usize>,
    /// Number of submissions and rings.
    of_vm: BTreeMap<VmId, usize>,
    of_context: BTreeMap<u32, usize>,
    /// The same of those that are exempt from timeouts.
    exempt_of_context: BTreeMap<u32, usize>,
}

impl HwWork {
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && self.rings.is_empty()
    }

    pub fn begin(&mut self, submission_fence_id: u64, queue: u32, by: Submitter) {
        self.submissions.insert(submission_fence_id, (queue, by));
        *self.of_process.entry(by.process).or_default() += 1;
        self.count(by);
    }

    pub fn end(&mut self, submission_fence_id: u64) {
        if let Some((_, by)) = self.submissions.remove(&submission_fence_id) {
            less_one(&mut self.of_process, by.process);
            self.uncount(by);
        }
    }

    pub fn has(&self, submission_fence_id: u64) -> bool {
        self.submissions.contains_key(&submission_fence_id)
    }

    pub fn ring(&mut self, queue: u32, by: Submitter) {
        if let Entry::Vacant(ring) = self.rings.entry(queue) {
            ring.insert(by);
            self.count(by);
        }
    }

    pub fn has_ring(&self, queue: u32) -> bool {
        self.rings.contains_key(&queue)
    }

    pub fn end_ring(&mut self, queue: u32) {
        if let Some(by) = self.rings.remove(&queue) {
            self.uncount(by);
        }
    }

    /// Ids and queues, oldest first.
    pub fn submissions(&self) -> impl Iterator<Item = (u64, u32)> {
        self.submissions.iter().map(|(id, (queue, _))| (*id, *queue))
    }

    pub fn submissions_count(&self) -> usize {
        self.submissions.len()
    }

    /// Bytes charged to a process for its submissions.
    pub fn bytes_of(&self, process: ProcessId) -> usize {
        self.of_process.get(&process).map_or(0, |count| count * SUBMISSION_BYTES)
    }

    pub fn rings(&self) -> impl Iterator<Item = u32> {
        self.rings.keys().copied()
    }

    /// Queues with work: of submissions, oldest first, and then those with work in their rings.
    pub fn queues(&self) -> impl Iterator<Item = u32> {
        self.submissions().map(|(_, queue)| queue).chain(self.rings())
    }

    /// Whether some of it is exempt from timeouts.
    pub fn any_exempt(&self) -> bool {
        !self.exempt_of_context.is_empty()
    }

    /// Whether some of it is of this context.
    pub fn has_work_of(&self, context: u32) -> bool {
        self.of_context.contains_key(&context)
    }

    /// Whether some work of this context is exempt from timeouts.
    pub fn has_exempt_of(&self, context: u32) -> bool {
        self.exempt_of_context.contains_key(&context)
    }

    /// VMs with work here.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.of_vm.keys().copied()
    }

    fn count(&mut self, by: Submitter) {
        *self.of_vm.entry(by.vm).or_default() += 1;
        *self.of_context.entry(by.context).or_default() += 1;
        if by.is_exempt {
            *self.exempt_of_context.entry(by.context).or_default() += 1;
        }
    }

    fn uncount(&mut self, by: Submitter) {
        less_one(&mut self.of_vm, by.vm);
        less_one(&mut self.of_context, by.context);
        if by.is_exempt {
            less_one(&mut self.exempt_of_context, by.context);
        }
    }
}

/// Counts one less of this key, which has no entry at 0.
fn less_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
