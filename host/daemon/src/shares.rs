//! Limited resources of the daemon's process, and each client's share of them.
//!
//! ```text
//!   all ──┬─ one client: at most twice what it leaves, two thirds of all
//!         ├─ the next client: two thirds of the rest
//!         └─ left
//! ```
//! So no client ever has all. One part in [`OWNER_PART`] is reserved for root and the daemon's own user, because a user may
//! have subordinate uids, enough of them to reduce the rest to nothing. Nothing else is reserved for absent clients. Half of [`SHARES_PER_VM_MAX`] would be too
//! little: a process may have 10,000 NT handles.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use d3dkmt::limits::{PROCESSES_PER_VM_MAX, SHARES_PER_VM_MAX, is_fair_share};
use fence_page::PAGE_BYTES;
use listening::administrators;
use rustix::process::{Resource, getrlimit};
use vsock_device::locks::{Rank, Ranked};

use super::closing::Closers;
use super::held_bytes::HeldBytes;
use super::limits::{
    DESCRIPTORS_RESERVED, MAPPINGS_ASSUMED_MAX, MAPPINGS_RESERVED, OWNER_PART,
    UNPROCESSED_BYTES_PER_PEER_MAX, UNREAD_BYTES_PER_PEER_MAX,
};
use super::log_lines::LogLines;
use super::peer::Peer;

/// One limited resource.
#[derive(Debug)]
pub struct Budget {
    /// Its name, and how the daemon gets more of it.
    name: &'static str,
    remedy: &'static str,
    total: usize,
    /// Users that may take what is reserved: root, and the daemon's own.
    owners: Vec<Peer>,
    /// What each client has.
    of_peer: Ranked<BTreeMap<Peer, usize>>,
    /// Their sum. Changed with the lock, readable without it.
    used: AtomicUsize,
}

/// A client's part of a budget. Dropping it returns it.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    peer: Peer,
    count: usize,
}

/// A client is over its share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{peer} has {held} {name}, {used} of {total} are taken: no client may have more than twice what it leaves; {remedy}"
)]
pub struct OverShare {
    peer: Peer,
    name: &'static str,
    remedy: &'static str,
    held: usize,
    used: usize,
    total: usize,
}

impl Budget {
    pub fn new(name: &'static str, remedy: &'static str, total: usize) -> Arc<Budget> {
        Budget::of_owners(&administrators(), name, remedy, total)
    }

    /// A budget of a daemon of these users.
    fn of_owners(users: &[u32], name: &'static str, remedy: &'static str, total: usize) -> Arc<Budget> {
        let owners = users.iter().copied().map(Peer::Uid).collect();
        let of_peer = Ranked::new(Rank::Shares, BTreeMap::new());
        Arc::new(Budget { name, remedy, total, owners, of_peer, used: AtomicUsize::new(0) })
    }

    /// Takes `count` for a client.
    pub fn take(self: &Arc<Self>, peer: Peer, count: usize) -> Result<Share, OverShare> {
        let mut of_peer = self.of_peer.lock_or_abort();
        self.check_more(&of_peer, peer, count)?;
        self.add(&mut of_peer, peer, count);
        Ok(Share { budget: Arc::clone(self), peer, count })
    }

    /// Counts `count` that a client has already, so they are not refused: the client may be over its share then, and gets
    /// no more.
    pub fn count(self: &Arc<Self>, peer: Peer, count: usize) -> Share {
        self.add(&mut self.of_peer.lock_or_abort(), peer, count);
        Share { budget: Arc::clone(self), peer, count }
    }

    /// Checks that a client is not over its share by what was only counted.
    pub fn check(&self, peer: Peer) -> Result<(), OverShare> {
        self.check_more(&self.of_peer.lock_or_abort(), peer, 0)
    }

    fn check_more(&self, of_peer: &BTreeMap<Peer, usize>, peer: Peer, count: usize) -> Result<(), OverShare> {
        let Budget { name, remedy, total, .. } = *self;
        let (held, used) = (of_peer.get(&peer).copied().unwrap_or(0), self.used.load(Ordering::Relaxed));
        let leaves = total.saturating_sub(used + count + self.reserved_from(peer));
        if is_fair_share((held + count) as u64, leaves as u64) {
            return Ok(());
        }
        Err(OverShare { peer, name, remedy, held, used, total })
    }

    fn add(&self, of_peer: &mut BTreeMap<Peer, usize>, peer: Peer, count: usize) {
        self.used.fetch_add(count, Ordering::Relaxed);
        *of_peer.entry(peer).or_default() += count;
    }

    fn reserved_from(&self, peer: Peer) -> usize {
        if self.owners.contains(&peer) { 0 } else { self.total / OWNER_PART }
    }

    /// Whether anything is left for a client, whatever it has. Takes no lock.
    pub fn has_room(&self, peer: Peer) -> bool {
        self.used.load(Ordering::Relaxed) + self.reserved_from(peer) <= self.total
    }

    /// Returns the number of all, and of those taken.
    pub fn figures(&self) -> (usize, usize) {
        (self.total, self.used.load(Ordering::Relaxed))
    }
}

impl Share {
    /// Checks that its client is not over its share.
    pub fn check(&self) -> Result<(), OverShare> {
        self.budget.check(self.peer)
    }

    fn give_back(&self, count: usize) {
        let mut of_peer = self.budget.of_peer.lock_or_abort();
        self.budget.used.fetch_sub(count, Ordering::Relaxed);
        if let Some(held) = of_peer.get_mut(&self.peer) {
            *held -= count;
            if *held == 0 {
                of_peer.remove(&self.peer);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.count > 0 {
            self.give_back(self.count);
        }
    }
}

/// All budgets of a daemon, within the limits that this machine sets for one process.
#[derive(Debug)]
pub struct Budgets {
    /// Open files: connections, streams, watched processes, events.
    pub descriptors: Arc<Budget>,
    /// Memory mappings: fence memory and backing pages.
    pub mappings: Arc<Budget>,
    /// Pages of backing memory: engine work touches them, so they are memory of this process.
    pub backing_pages: Arc<Budget>,
    pub closers: Arc<Closers>,
    /// Bytes of frames that are not processed.
    pub unprocessed: Arc<HeldBytes>,
    /// Bytes of answers and wakes that are not read.
    pub unread: Arc<HeldBytes>,
}

impl Budgets {
    /// The budgets of this process, whose limits must not change afterwards. `backing_bytes`: how many bytes local clients
    /// may attach; `None`: half of the machine's memory.
    pub fn of_this_process(backing_bytes: Option<u64>, log: &Arc<LogLines>) -> Budgets {
        let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let mappings =
            mappings.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_ASSUMED_MAX);
        let backing_bytes = backing_bytes.unwrap_or_else(|| {
            let memory = rustix::system::sysinfo();
            (memory.totalram as u64).saturating_mul(memory.mem_unit.into()) / 2
        });
        let backing_pages = usize::try_from(backing_bytes / PAGE_BYTES as u64).unwrap_or(usize::MAX);
        Budgets::from_limits(open_files, mappings, backing_pages, log)
    }

    fn from_limits(open_files: usize, mappings: usize, backing_pages: usize, log: &Arc<LogLines>) -> Budgets {
        let descriptors = Budget::new(
            "descriptors",
            "stop some of its processes, or start the daemon with a higher limit of open files (ulimit -Hn)",
            // A daemon with a small limit has few VMs itself.
            open_files.saturating_sub(DESCRIPTORS_RESERVED).max(open_files / 2),
        );
        Budgets {
            closers: Closers::new(&descriptors),
            descriptors,
            mappings: Budget::new(
                "mappings",
                "detach memory, or raise vm.max_map_count (sysctl)",
                mappings.saturating_sub(MAPPINGS_RESERVED).max(mappings / 2),
            ),
            backing_pages: Budget::new(
                "pages of backing memory",
                "detach memory, or start the daemon with more (--backing-memory)",
                backing_pages,
            ),
            unprocessed: HeldBytes::new(
                "unprocessed frames",
                "write whole frames",
                UNPROCESSED_BYTES_PER_PEER_MAX,
                log,
            ),
            unread: HeldBytes::new(
                "unread answers",
                "read them, and acknowledge what is read if there is a journal",
                UNREAD_BYTES_PER_PEER_MAX,
                log,
            ),
        }
    }
}

impl fmt::Display for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (descriptors, mappings) = (self.descriptors.total, self.mappings.total);
        let backing_mib = self.backing_pages.total / ((1 << 20) / PAGE_BYTES);
        write!(
            f,
            "local clients: {descriptors} descriptors, {mappings} mappings, {backing_mib} MiB of backing memory, \
             {PROCESSES_PER_VM_MAX} processes and {SHARES_PER_VM_MAX} NT handles; one user at most two thirds"
        )
    }
}

/// Budgets of the users of the host, or of a local VM.
#[derive(Debug)]
pub struct VmBudgets {
    pub processes: Arc<Budget>,
    pub nt_handles: Arc<Budget>,
}

impl Default for VmBudgets {
    fn default() -> Self {
        VmBudgets {
            processes: Budget::new("processes", "stop some", PROCESSES_PER_VM_MAX),
            nt_handles: Budget::new("NT handles", "close some", SHARES_PER_VM_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Peer = Peer::Uid(1);
    const OTHER: Peer = Peer::Uid(2);
    const THIRD: Peer = Peer::Uid(3);

    /// Everything that a client can take, one at a time.
    fn all(budget: &Arc<Budget>, peer: Peer) -> Vec<Share> {
        std::iter::from_fn(|| budget.take(peer, 1).ok()).collect()
    }

    #[test]
    fn a_client_gets_at_most_twice_what_it_leaves_and_others_get_what_it_returns() {
        let budget = Budget::new("things", "make more", 100);
        let of_one = all(&budget, ONE);
        let of_other = all(&budget, OTHER);
        assert_eq!((of_one.len(), of_other.len(), all(&budget, THIRD).len()), (62, 21, 7));
        let error = budget.take(ONE, 1).unwrap_err().to_string();
        assert!(
            error.contains("uid 1 has 62 things, 83 of 100 are taken") && error.contains("make more"),
            "{error}"
        );
        drop(of_one);
        assert_eq!(all(&budget, THIRD).len(), 48);
        drop(of_other);
        assert!(budget.of_peer.lock().is_empty() && budget.figures() == (100, 0));
    }

    #[test]
    fn users_of_many_uids_leave_a_part_to_root_and_to_the_user_of_the_daemon() {
        let budget = Budget::of_owners(&[0, 1000], "things", "make more", 4000);
        let taken: Vec<_> = (2000..2100).flat_map(|uid| all(&budget, Peer::Uid(uid))).collect();
        assert!(taken.len() > 3700, "{}", taken.len());
        let [of_root, of_user] = [0, 1000].map(|uid| all(&budget, Peer::Uid(uid)));
        assert!(of_root.len() > 160 && of_user.len() > 50, "{} {}", of_root.len(), of_user.len());
    }

    #[test]
    fn what_a_client_had_before_is_counted_above_its_share_and_it_gets_no_more() {
        let budget = Budget::new("things", "make more", 100);
        let had = budget.count(ONE, 90);
        assert!(budget.take(ONE, 1).is_err());
        assert_eq!(all(&budget, OTHER).len(), 2);
        let over = budget.count(THIRD, 20);
        assert!(budget.take(OTHER, 1).is_err(), "more than all are counted");
        drop((had, over));
        assert!(budget.of_peer.lock().is_empty() && budget.figures() == (100, 0));
    }

    #[test]
    fn reserved_descriptors_and_mappings_are_not_shared() {
        let budgets = Budgets::from_limits(100_000, 65_530, 1 << 20, &Arc::default());
        assert!(budgets.to_string().contains(", 4096 MiB of backing memory,"), "{budgets}");
        assert_eq!(budgets.descriptors.figures().0, 100_000 - DESCRIPTORS_RESERVED);
        assert_eq!(budgets.mappings.figures().0, 65_530 - MAPPINGS_RESERVED);
        let small = Budgets::from_limits(1024, 100, 1 << 20, &Arc::default());
        assert_eq!((small.descriptors.figures().0, small.mappings.figures().0), (512, 50));
    }
}
