//! Fair queue of streams with unprocessed data: one turn for each VM, and within a VM the longest waiting stream first.
//!
//! ```text
//!   join ──▶ its VM's queue ──▶ next_pass ──▶ a turn: one read, a few calls ──▶ nothing left
//!              ▲                                                        └────▶ join again
//! ```
//! So a call waits for at most one turn of each other VM and of each stream of its own VM, however much they send. Only
//! the first call of a VM may wait for a whole pass of another VM's, which was alone.
//!
//! The streams of a VM with a machine are served by that VM's own thread, where the vsock device has the same turns
//! ([`super::channel::Channel::turn`]): its worker calls the longest waiting endpoint with a backlog.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::VmId;

/// Fair queue of streams, by their keys.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Queue of each VM that ever had one; empty ones stay, so that a call allocates nothing.
    queues: BTreeMap<VmId, VecDeque<u64>>,
    waiting: BTreeSet<u64>,
}

impl RoundRobin {
    /// Whether no stream waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The VMs with waiting streams.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(vm, _)| *vm)
    }

    /// Queues a stream with unprocessed data; a queued stream keeps its place.
    pub fn join(&mut self, vm: VmId, key: u64) {
        if self.waiting.insert(key) {
            self.queues.entry(vm).or_default().push_back(key);
        }
    }

    /// Moves the streams of the next pass to `pass`: the longest waiting stream of each VM. While one VM is alone, its
    /// next ones too, up to `turns_max`: what is looked at between passes then costs less for each turn.
    pub fn next_pass(&mut self, pass: &mut Vec<u64>, turns_max: usize) {
        pass.clear();
        pass.extend(self.queues.values_mut().filter_map(VecDeque::pop_front));
        for key in &*pass {
            self.waiting.remove(key);
        }
        if pass.len() == 1
            && let Some(queue) = self.queues.values_mut().find(|queue| !queue.is_empty())
        {
            for key in queue.drain(..queue.len().min(turns_max - 1)) {
                self.waiting.remove(&key);
                pass.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TURNS_PER_PASS_MAX;

    fn next_pass(turns: &mut RoundRobin) -> Vec<u64> {
        let mut pass = Vec::new();
        turns.next_pass(&mut pass, TURNS_PER_PASS_MAX);
        pass
    }

    #[test]
    fn a_vm_with_many_streams_has_no_more_turns_than_one_with_one() {
        let mut turns = RoundRobin::default();
        (0..50).for_each(|key| turns.join(VmId(1), key));
        turns.join(VmId(2), 100);
        assert_eq!(next_pass(&mut turns), [0, 100]);
        turns.join(VmId(2), 100);
        turns.join(VmId(1), 0);
        assert_eq!(next_pass(&mut turns), [1, 100]);
    }

    #[test]
    fn a_vm_that_is_alone_has_a_limited_number_of_turns_in_a_pass() {
        let mut turns = RoundRobin::default();
        let max = TURNS_PER_PASS_MAX as u64;
        (0..2 * max).for_each(|key| turns.join(VmId(1), key));
        assert_eq!(next_pass(&mut turns), (0..max).collect::<Vec<_>>());
        turns.join(VmId(2), 100);
        assert_eq!(next_pass(&mut turns), [max, 100]);
        assert_eq!(next_pass(&mut turns), (max + 1..2 * max).collect::<Vec<_>>());
        assert!(turns.is_empty());
    }

    #[test]
    fn a_stream_has_one_place() {
        let mut turns = RoundRobin::default();
        for key in [7, 8, 7] {
            turns.join(VmId(1), key);
        }
        assert_eq!(next_pass(&mut turns), [7, 8]);
        assert!(turns.is_empty() && next_pass(&mut turns).is_empty());
    }
}
