//! Whose turn it is among streams that have something: one of each VM, and within a VM who has waited longest.
//!
//! ```text
//!   join ──▶ its VM's queue ──▶ next_of_each ──▶ a turn: one read, CALLS_PER_TURN_MAX calls ──▶ nothing left
//!              ▲                                                                        └────▶ join again
//! ```
//! So what a call waits for is one turn of each other VM and of the streams of its own, however much they send.
//!
//! The streams of a VM with a machine are served by that VM's own thread, where the vsock device has the same turns
//! ([`super::channel::Channel::turn`]): its worker calls who has waited longest of those that have put something off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::VmId;

/// See the module. Streams have keys.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Of each VM that ever had any; empty ones stay, so that a call costs no memory.
    queues: BTreeMap<VmId, VecDeque<u64>>,
    waiting: BTreeSet<u64>,
}

impl RoundRobin {
    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A stream has something; it keeps the place that it has.
    pub fn join(&mut self, vm: VmId, key: u64) {
        if self.waiting.insert(key) {
            self.queues.entry(vm).or_default().push_back(key);
        }
    }

    /// Takes the one who has waited longest out of each VM's queue.
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
        assert_eq!(turns.next_of_each(), [2], "nobody of the other has anything");
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
