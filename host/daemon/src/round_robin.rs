//! Fair queue of streams with unprocessed data: one turn for each VM, and within a VM the longest waiting stream first.
//!
//! ```text
//!   join ──▶ its VM's queue ──▶ next_of_each ──▶ a turn: one read, CALLS_PER_TURN_MAX calls ──▶ nothing left
//!              ▲                                                                        └────▶ join again
//! ```
//! So a call waits for at most one turn of each other VM and of each stream of its own VM, however much they send.
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

    /// Queues a stream with unprocessed data; a queued stream keeps its place.
    pub fn join(&mut self, vm: VmId, key: u64) {
        if self.waiting.insert(key) {
            self.queues.entry(vm).or_default().push_back(key);
        }
    }

    /// Removes and returns the longest waiting stream of each VM.
    pub fn next_of_each(&mut self) -> Vec<u64> {
        let next: Vec<u64> = self.queues.values_mut().filter_map(VecDeque::pop_front).collect();
        for key in &next {
            self.waiting.remove(key);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_with_many_streams_has_no_more_turns_than_one_with_one() {
        let mut turns = RoundRobin::default();
        (0..50).for_each(|key| turns.join(VmId(1), key));
        turns.join(VmId(2), 100);
        assert_eq!(turns.next_of_each(), [0, 100]);
        turns.join(VmId(2), 100);
        turns.join(VmId(1), 0);
        assert_eq!(turns.next_of_each(), [1, 100]);
        assert_eq!(turns.next_of_each(), [2], "the other VM has no stream left");
    }

    #[test]
    fn a_stream_has_one_place() {
        let mut turns = RoundRobin::default();
        for key in [7, 8, 7] {
            turns.join(VmId(1), key);
        }
        assert_eq!((turns.next_of_each(), turns.next_of_each()), (vec![7], vec![8]));
        assert!(turns.is_empty() && turns.next_of_each().is_empty());
    }
}
