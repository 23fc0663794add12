//! Bytes that clients hold in the daemon's memory: of frames that are not processed, and of answers that are not read.
//!
//! A stream may have a window of unprocessed bytes and some MiB of unread ones, and a user or a VM has thousands of
//! streams. So all of one peer together have a limit. Beyond it, the processes that have had some the longest are cut off,
//! as many as it takes. The client library writes a frame at once and reads what it is sent, so bytes that stay are not a
//! working client's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use vsock_device::locks::{Rank, Ranked};

use super::client_process::ClientProcess;
use super::log_lines::LogLines;
use super::peer::Peer;

/// Counts one kind of bytes, by peer and process. `Owner` identifies the process.
#[derive(Debug)]
struct Table<Owner> {
    bytes_max: usize,
    bytes: BTreeMap<Peer, usize>,
    /// By peer and key; keys are in order of age. So the process of a peer that has had some the longest is its first.
    held: BTreeMap<(Peer, u64), (usize, Owner)>,
    next_key: u64,
}

impl<Owner: Clone> Table<Owner> {
    fn new(bytes_max: usize) -> Self {
        Table { bytes_max, bytes: BTreeMap::new(), held: BTreeMap::new(), next_key: 0 }
    }

    /// Sets the bytes of one process, by its key, which it keeps while it has any. If its peer is over the limit, removes
    /// the first processes of that peer until it is not, and returns them with the number of the peer's bytes.
    fn set(
        &mut self,
        peer: Peer,
        key: &mut Option<u64>,
        bytes: usize,
        owner: &Owner,
    ) -> Option<(Vec<Owner>, usize)> {
        if bytes == 0 {
            let removed = key.take().and_then(|key| self.held.remove(&(peer, key)));
            self.add(peer, removed.map_or(0, |(before, _)| before), 0);
            return None;
        }
        let number = *key.get_or_insert_with(|| {
            self.next_key += 1;
            self.held.insert((peer, self.next_key), (0, owner.clone()));
            self.next_key
        });
        // A process that was cut off may still have a key, whose entry is removed.
        let (held, _) = self.held.get_mut(&(peer, number))?;
        let before = std::mem::replace(held, bytes);
        let all = self.add(peer, before, bytes);
        if all <= self.bytes_max {
            return None;
        }
        let (mut removed, mut left) = (Vec::new(), all);
        while left > self.bytes_max {
            let first = *self.held.range((peer, 0)..=(peer, u64::MAX)).next()?.0;
            let (freed, owner) = self.held.remove(&first)?;
            left = self.add(peer, freed, 0);
            removed.push(owner);
        }
        Some((removed, all))
    }

    /// Replaces a part of a peer's bytes; returns the sum.
    fn add(&mut self, peer: Peer, before: usize, after: usize) -> usize {
        let sum = self.bytes.entry(peer).or_default();
        *sum = *sum - before + after;
        let sum = *sum;
        if sum == 0 {
            self.bytes.remove(&peer);
        }
        sum
    }
}

/// One kind of bytes that clients hold.
pub struct HeldBytes {
    /// What they are, and what a client does to have fewer, for the log and its Goodbye.
    kind: &'static str,
    remedy: &'static str,
    bytes_max: usize,
    table: Ranked<Table<Weak<ClientProcess>>>,
    log: Arc<LogLines>,
}

impl fmt::Debug for HeldBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBytes").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl HeldBytes {
    pub fn new(
        kind: &'static str,
        remedy: &'static str,
        bytes_max: usize,
        log: &Arc<LogLines>,
    ) -> Arc<HeldBytes> {
        let (log, table) = (Arc::clone(log), Ranked::new(Rank::Shares, Table::new(bytes_max)));
        Arc::new(HeldBytes { kind, remedy, bytes_max, log, table })
    }
}

/// The bytes of one kind that one process holds. Dropping it counts them no more.
#[derive(Debug)]
pub struct HeldByProcess {
    all: Arc<HeldBytes>,
    peer: Peer,
    client: Weak<ClientProcess>,
    /// `Some` while it holds any.
    key: Option<u64>,
}

/// Processes that are to be cut off, because their peer is over a limit.
#[derive(Debug)]
#[must_use]
pub struct OverLimit {
    clients: Vec<Arc<ClientProcess>>,
    all: Arc<HeldBytes>,
    peer: Peer,
    bytes: usize,
}

impl HeldByProcess {
    pub fn new(all: &Arc<HeldBytes>, peer: Peer, client: &Arc<ClientProcess>) -> HeldByProcess {
        HeldByProcess { all: Arc::clone(all), peer, client: Arc::downgrade(client), key: None }
    }

    /// Sets how many it holds. Nearly always none, as before, which takes no lock.
    pub fn set(&mut self, bytes: usize) -> Option<OverLimit> {
        if bytes == 0 && self.key.is_none() {
            return None;
        }
        let HeldByProcess { all, peer, client, key } = self;
        let (first, bytes) = all.table.lock_or_abort().set(*peer, key, bytes, client)?;
        // A process that is gone has nothing to be cut off.
        let clients = first.iter().filter_map(Weak::upgrade).collect();
        Some(OverLimit { clients, all: Arc::clone(all), peer: *peer, bytes })
    }
}

impl Drop for HeldByProcess {
    fn drop(&mut self) {
        // None of its bytes are over a limit.
        let _ = self.set(0);
    }
}

impl OverLimit {
    /// Cuts the processes off. Call this without the lock of any outbox.
    pub fn cut_off(self) {
        let OverLimit { clients, all, peer, bytes } = self;
        for client in clients {
            let why = format!(
                "the processes of {peer} have {bytes} bytes of {}, the limit is {}, and this one has had some for the \
                 longest time: {}",
                all.kind, all.bytes_max, all.remedy
            );
            let line = || format!("process {} of vm {} is cut off: {why}", client.id.0, client.vm.0);
            all.log.warn((peer, client.id), line);
            client.outbox.begin_cut_off(&why).cut_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer::Uid(1);

    #[test]
    fn over_the_limit_the_process_with_the_oldest_bytes_is_removed() {
        let mut held = Table::new(100);
        let mut keys = [None; 3];
        assert_eq!(held.set(PEER, &mut keys[0], 10, &"first"), None);
        assert_eq!(held.set(PEER, &mut keys[1], 40, &"second"), None);
        assert_eq!(held.set(PEER, &mut keys[0], 50, &"first"), None);
        assert_eq!(held.set(PEER, &mut keys[2], 11, &"third"), Some((vec!["first"], 101)));
        assert_eq!(held.set(PEER, &mut keys[0], 100, &"first"), None, "it counts no longer");
        assert_eq!(held.set(PEER, &mut keys[0], 0, &"first"), None);
        assert_eq!((held.bytes[&PEER], held.held.len()), (51, 2));
    }

    #[test]
    fn a_process_without_bytes_loses_its_place_and_later_gets_a_new_one() {
        let mut held = Table::new(100);
        let (mut early, mut late) = (None, None);
        held.set(PEER, &mut early, 60, &"early");
        held.set(PEER, &mut late, 40, &"late");
        held.set(PEER, &mut early, 0, &"early");
        assert_eq!(early, None);
        assert_eq!(held.set(PEER, &mut early, 60, &"early"), None);
        assert_eq!(held.set(PEER, &mut early, 61, &"early"), Some((vec!["late"], 101)));
        for (key, name) in [(&mut early, "early"), (&mut late, "late")] {
            held.set(PEER, key, 0, &name);
        }
        assert_eq!((held.bytes.len(), held.held.len()), (0, 0));
    }

    #[test]
    fn the_bytes_of_a_process_that_ends_do_not_count() {
        let all = HeldBytes::new("bytes", "", 100, &Arc::default());
        let client =
            |id| Arc::new(ClientProcess::new(dxgkrnl::ProcessId(id), dxgkrnl::VmId::HOST, 1, String::new()));
        let (ended, other) = (client(1), client(2));
        let mut held = HeldByProcess::new(&all, PEER, &ended);
        assert!(held.set(100).is_none());
        drop(held);
        let mut held = HeldByProcess::new(&all, PEER, &other);
        assert!(held.set(100).is_none());
        let over = held.set(101).unwrap();
        assert_eq!(over.clients.iter().map(|client| client.id.0).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn many_processes_with_few_bytes_are_cut_off_for_one_with_many() {
        let mut held = Table::new(100);
        let mut keys = [None; 11];
        for (at, key) in keys[..10].iter_mut().enumerate() {
            assert_eq!(held.set(PEER, key, 10, &at), None);
        }
        assert_eq!(held.set(PEER, &mut keys[10], 75, &10), Some(((0..8).collect(), 175)));
        assert_eq!((held.bytes[&PEER], held.held.len()), (95, 3));
        assert_eq!(held.set(PEER, &mut keys[10], 101, &10), Some((vec![8, 9, 10], 121)));
        assert_eq!((held.bytes.get(&PEER), held.held.len()), (None, 0));
    }

    #[test]
    fn no_peer_is_cut_off_for_the_bytes_of_another() {
        let mut held = Table::new(100);
        let mut keys = [None; 3];
        assert_eq!(held.set(Peer::Uid(2), &mut keys[0], 100, &"other"), None);
        assert_eq!(held.set(PEER, &mut keys[1], 100, &"own"), None);
        assert_eq!(
            held.set(Peer::Vm(dxgkrnl::VmId(1)), &mut keys[2], 101, &"guest"),
            Some((vec!["guest"], 101))
        );
        assert_eq!((held.bytes.len(), held.held.len()), (2, 2));
    }
}
