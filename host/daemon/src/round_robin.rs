//! Fair queue of streams with unprocessed data, and of broker connections with requests: VMs take turns, within a VM its
//! users, and within a user its streams and brokers. Both are called streams here.
//!
//! ```text
//!   join ──▶ its VM's queue ──▶ its user's queue ──▶ next_pass ──▶ a turn: one read, a few calls ──▶ nothing left
//!              ▲                                                                              └────▶ join again
//! ```
//! So a call waits for at most one turn of each other VM, of each other user of its own VM, and of each stream of its own
//! user, however much they send. Only the first call of a user may wait for a whole pass of another's, which was alone.
//!
//! The streams of a VM with a machine are served by that VM's own thread, where the vsock device has the same turns
//! ([`super::channel::Channel::turn`]): its worker calls the longest waiting endpoint with a backlog. The host cannot
//! tell apart the users of a guest.

use std::collections::{BTreeSet, VecDeque};

use dxgkrnl::VmId;
use fair_queue::{FairQueue, Queue as _};

use super::limits::TURNS_PER_PASS_MAX;
use super::peer::Peer;

/// The VM and the user whose turns a stream takes part in.
pub(super) type Owner = (VmId, Peer);

/// Fair queue of streams, by their keys.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    vms: FairQueue<VmId, FairQueue<Peer, VecDeque<u64>>>,
    waiting: BTreeSet<u64>,
}

impl RoundRobin {
    /// Whether no stream waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The owners of waiting streams.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        let users = |vm| self.vms.get(vm).map(|users| users.owners().map(move |user| (vm, user)));
        self.vms.owners().filter_map(users).flatten()
    }

    /// Queues a stream with unprocessed data; a queued stream keeps its place.
    pub fn join(&mut self, (vm, user): Owner, key: u64) {
        if self.waiting.insert(key) {
            self.vms.change(vm, |users| users.push(user, key));
        }
    }

    /// How many share the turns: VMs, or users of the only VM, or the only user.
    fn sharers(&self) -> usize {
        let mut vms = self.vms.owners();
        match (vms.len(), vms.next()) {
            (1, Some(only)) => self.vms.get(only).map_or(1, |users| users.owners().len()),
            (several, _) => several,
        }
    }

    /// Moves the streams of the next pass to `pass`: the longest waiting stream of each VM, or of each user of the only
    /// VM. While one user is alone, its next ones too, up to `turns_max`: what is looked at between passes then costs less
    /// for each turn.
    pub fn next_pass(&mut self, pass: &mut Vec<u64>, turns_max: usize) {
        pass.clear();
        let turns = match self.sharers() {
            1 => turns_max,
            sharers => sharers.min(TURNS_PER_PASS_MAX),
        };
        pass.extend((0..turns).map_while(|_| self.vms.pop()));
        for key in &*pass {
            self.waiting.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Peer = Peer::Uid(1000);
    const OTHER: Peer = Peer::Uid(1001);

    fn next_pass(turns: &mut RoundRobin) -> Vec<u64> {
        let mut pass = Vec::new();
        turns.next_pass(&mut pass, TURNS_PER_PASS_MAX);
        pass
    }

    #[test]
    fn a_vm_with_many_streams_has_no_more_turns_than_one_with_one() {
        let mut turns = RoundRobin::default();
        (0..50).for_each(|key| turns.join((VmId(1), USER), key));
        turns.join((VmId(2), USER), 100);
        assert_eq!(next_pass(&mut turns), [0, 100]);
        turns.join((VmId(2), USER), 100);
        turns.join((VmId(1), USER), 0);
        assert_eq!(next_pass(&mut turns), [1, 100]);
    }

    #[test]
    fn a_vm_that_is_alone_has_a_limited_number_of_turns_in_a_pass() {
        let mut turns = RoundRobin::default();
        let max = TURNS_PER_PASS_MAX as u64;
        (0..2 * max).for_each(|key| turns.join((VmId(1), USER), key));
        assert_eq!(next_pass(&mut turns), (0..max).collect::<Vec<_>>());
        turns.join((VmId(2), USER), 100);
        assert_eq!(next_pass(&mut turns), [max, 100]);
        assert_eq!(next_pass(&mut turns), (max + 1..2 * max).collect::<Vec<_>>());
        assert!(turns.is_empty());
    }

    #[test]
    fn a_stream_has_one_place() {
        let mut turns = RoundRobin::default();
        for key in [7, 8, 7] {
            turns.join((VmId(1), USER), key);
        }
        assert_eq!(next_pass(&mut turns), [7, 8]);
        assert!(turns.is_empty() && next_pass(&mut turns).is_empty());
    }

    #[test]
    fn a_user_with_many_streams_has_no_more_turns_than_one_with_one() {
        let mut turns = RoundRobin::default();
        (0..50).for_each(|key| turns.join((VmId::HOST, USER), key));
        turns.join((VmId::HOST, OTHER), 100);
        assert_eq!(next_pass(&mut turns), [0, 100]);
        turns.join((VmId::HOST, USER), 0);
        turns.join((VmId::HOST, OTHER), 100);
        assert_eq!(next_pass(&mut turns), [1, 100]);
    }

    #[test]
    fn a_vm_of_many_users_has_no_more_turns_than_one_of_one_and_each_of_them_has_its_own() {
        let mut turns = RoundRobin::default();
        for key in 0..40 {
            turns.join((VmId(1), Peer::Uid(key as u32 % 20)), key);
        }
        (100..102).for_each(|key| turns.join((VmId(2), USER), key));
        assert_eq!(next_pass(&mut turns), [0, 100]);
        assert_eq!(next_pass(&mut turns), [1, 101]);
        // Alone, its users take turns.
        assert_eq!(next_pass(&mut turns), (2..2 + TURNS_PER_PASS_MAX as u64).collect::<Vec<_>>());
    }
}
