//! Connections whose peer has not identified itself: a broker connection before Attach, a stream before Hello.
//!
//! ```text
//!   accepted ──Attach, Hello──▶ admitted: the PendingConnection is dropped
//!       │ INTRODUCTION_NS passed, or its peer has too many newer ones
//!       ▼
//!     closed
//! ```
//! Each takes a descriptor or a place in a VM's connection table. Without a limit a few thousand idle ones keep every
//! other client out (attacks H1, H6 and H8).
//!
//! guestd connects the streams of its processes from ports below 1024, and gives each user of the guest a share of processes.
//! So connections of any other program of the guest count apart, and close none of guestd's. The host cannot tell apart
//! the users behind either kind: among guestd's connections only guestd can, among the others nobody. Those of a guestd that
//! uses other ports, because it is older or has hundreds of processes, are among the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dxgkrnl::{Nanos, VmId};
use proto::limits::PRIVILEGED_PORT_END;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tracing::Level;
use vsock_device::Connection;
use vsock_device::locks::{Rank, Ranked};

use super::limits::{EXPIRED_AT_ONCE_MAX, INTRODUCTION_NS, PENDING_CONNECTIONS_PER_PEER_MAX};
use super::log_lines::LogLines;
use super::peer::Peer;
use super::timer::{NANOS_PER_SECOND, monotonic};
use super::vm::VmShared;

/// Closes a connection, for this reason; called without any lock of the daemon.
type Close = Box<dyn FnOnce(&str) + Send>;

struct Waiting {
    peer: Peer,
    deadline: Nanos,
    close: Close,
}

#[derive(Default)]
struct Table {
    /// By number: the oldest, with the first deadline, comes first.
    waiting: BTreeMap<u64, Waiting>,
    of_peer: BTreeMap<Peer, BTreeSet<u64>>,
    next: u64,
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        if let Some(numbers) = self.of_peer.get_mut(&waiting.peer) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_peer.remove(&waiting.peer);
            }
        }
        Some(waiting)
    }

    /// Removes the oldest of this peer, if it has too many.
    fn remove_excess(&mut self, peer: Peer) -> Option<Waiting> {
        let numbers =
            self.of_peer.get(&peer).filter(|numbers| numbers.len() > PENDING_CONNECTIONS_PER_PEER_MAX)?;
        let oldest = *numbers.first()?;
        self.remove(oldest)
    }
}

/// Every connection that is not admitted yet.
pub struct PendingConnections {
    table: Ranked<Table>,
    /// Armed for the first deadline, if there is one.
    timer: OwnedFd,
    log: Arc<LogLines>,
}

impl fmt::Debug for PendingConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingConnections").finish_non_exhaustive()
    }
}

/// One connection that is not admitted yet. Dropped when it is admitted or closed.
#[derive(Debug)]
pub struct PendingConnection {
    all: Arc<PendingConnections>,
    number: u64,
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        let mut table = self.all.table.lock_or_abort();
        if table.remove(self.number).is_some() && table.waiting.is_empty() {
            self.all.arm(None);
        }
    }
}

impl PendingConnections {
    pub fn new(log: &Arc<LogLines>) -> std::io::Result<Arc<PendingConnections>> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let (table, log) = (Ranked::new(Rank::PendingConnections, Table::default()), Arc::clone(log));
        Ok(Arc::new(PendingConnections { table, timer, log }))
    }

    /// Registers an accepted connection. `close` is called if its peer does not identify itself in time.
    pub fn accepted(
        self: &Arc<Self>,
        peer: Peer,
        close: impl FnOnce(&str) + Send + 'static,
    ) -> PendingConnection {
        self.accepted_at(monotonic(), peer, close)
    }

    fn accepted_at(
        self: &Arc<Self>,
        now: Nanos,
        peer: Peer,
        close: impl FnOnce(&str) + Send + 'static,
    ) -> PendingConnection {
        let mut table = self.table.lock_or_abort();
        let (number, is_first) = (table.next, table.waiting.is_empty());
        table.next += 1;
        let deadline = now + INTRODUCTION_NS;
        table.waiting.insert(number, Waiting { peer, deadline, close: Box::new(close) });
        table.of_peer.entry(peer).or_default().insert(number);
        let excess = table.remove_excess(peer);
        if is_first {
            self.arm(Some(deadline));
        }
        drop(table);
        if let Some(excess) = excess {
            let why = format!(
                "{PENDING_CONNECTIONS_PER_PEER_MAX} newer connections of {peer} have not identified themselves either, which \
                 is the limit: close some"
            );
            self.end(excess, &why);
        }
        PendingConnection { all: Arc::clone(self), number }
    }

    /// Readable when a deadline has passed: then call [`Self::expire`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Closes some of the connections whose deadline has passed: the close of a guest's fills its buffers. The descriptor is
    /// readable again if there are more.
    pub fn expire(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
        self.expire_at(monotonic());
    }

    fn expire_at(&self, now: Nanos) {
        for closed in 0.. {
            let mut table = self.table.lock_or_abort();
            let Some((number, waiting)) = table.waiting.first_key_value() else { return };
            if waiting.deadline > now || closed == EXPIRED_AT_ONCE_MAX {
                return self.arm(Some(waiting.deadline));
            }
            let number = *number;
            let expired = table.remove(number);
            drop(table);
            let seconds = INTRODUCTION_NS / NANOS_PER_SECOND;
            let why = format!(
                "it did not identify itself within {seconds} s: send Hello on a stream, Attach to a broker"
            );
            expired.into_iter().for_each(|expired| self.end(expired, &why));
        }
    }

    /// Arms the timer, or disarms it: a daemon whose clients are all admitted has no wake-ups.
    fn arm(&self, deadline: Option<Nanos>) {
        let it_value = deadline.map_or(Timespec::default(), |deadline| Timespec {
            tv_sec: (deadline / NANOS_PER_SECOND) as i64,
            tv_nsec: (deadline % NANOS_PER_SECOND) as _,
        });
        let spec = Itimerspec { it_interval: Timespec::default(), it_value };
        if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec) {
            self.log.push_daemon_line(
                Level::ERROR,
                format!("pending connections are not closed in time: cannot arm their timer: {error}"),
            );
        }
    }

    fn end(&self, Waiting { peer, close, .. }: Waiting, why: &str) {
        self.log.debug(peer, || format!("a connection of {peer} is closed: {why}"));
        close(why);
    }
}

/// Registers an accepted connection from a VM until it identifies itself.
pub fn accepted_from(vm: &VmShared, connection: &Connection) -> PendingConnection {
    let (connection, peer) = (connection.clone(), peer_at(vm.id, connection.peer_port()));
    vm.kernel_host.pending_connections.accepted(peer, move |_| connection.reset())
}

/// The peer whose connection comes from this port of a VM.
pub fn peer_at(vm: VmId, port: u32) -> Peer {
    if port < PRIVILEGED_PORT_END { Peer::Guestd(vm) } else { Peer::Vm(vm) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::timerfd_gettime;

    use super::*;

    const HOST: Peer = Peer::Uid(1000);

    fn log() -> (Arc<PendingConnections>, Arc<Mutex<Vec<usize>>>) {
        (PendingConnections::new(&Arc::default()).unwrap(), Arc::default())
    }

    fn connect(
        all: &Arc<PendingConnections>,
        now: Nanos,
        peer: Peer,
        id: usize,
        closed: &Arc<Mutex<Vec<usize>>>,
    ) -> PendingConnection {
        let closed = Arc::clone(closed);
        all.accepted_at(now, peer, move |_| closed.lock().unwrap().push(id))
    }

    #[test]
    fn a_silent_connection_is_closed_at_its_deadline_and_an_admitted_one_is_not() {
        let (all, closed) = log();
        let silent = connect(&all, 0, HOST, 1, &closed);
        let admitted = connect(&all, 0, HOST, 2, &closed);
        let later = connect(&all, 1, HOST, 3, &closed);
        drop(admitted);
        all.expire_at(INTRODUCTION_NS - 1);
        assert!(closed.lock().unwrap().is_empty());
        all.expire_at(INTRODUCTION_NS);
        assert_eq!(*closed.lock().unwrap(), [1]);
        all.expire_at(INTRODUCTION_NS + 1);
        assert_eq!(*closed.lock().unwrap(), [1, 3]);
        drop((silent, later));
        assert!(all.table.lock().waiting.is_empty() && all.table.lock().of_peer.is_empty());
    }

    #[test]
    fn the_timer_runs_only_while_a_connection_is_pending() {
        let (all, closed) = log();
        let is_armed = || {
            let remaining = timerfd_gettime(&all.timer).unwrap().it_value;
            (remaining.tv_sec, remaining.tv_nsec) != (0, 0)
        };
        let now = monotonic();
        let (first, second) = (connect(&all, now, HOST, 1, &closed), connect(&all, now, HOST, 2, &closed));
        drop(first);
        assert!(is_armed());
        drop(second);
        assert!(!is_armed());
        let _third = connect(&all, now, HOST, 3, &closed);
        assert!(is_armed());
    }

    #[test]
    fn so_many_connections_are_closed_at_once_and_the_rest_right_after() {
        let (all, closed) = log();
        let silent: Vec<_> =
            (0..EXPIRED_AT_ONCE_MAX + 1).map(|id| connect(&all, 0, HOST, id, &closed)).collect();
        let now = monotonic().max(INTRODUCTION_NS);
        // As before each expiration, so that it is armed anew.
        let _ = rustix::io::read(&all.timer, &mut [0u8; 8]);
        all.expire_at(now);
        assert_eq!(closed.lock().unwrap().len(), EXPIRED_AT_ONCE_MAX);
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&all.timer, PollFlags::IN)], Some(&second)), Ok(1));
        all.expire_at(now);
        assert_eq!(closed.lock().unwrap().len(), silent.len());
    }

    #[test]
    fn one_too_many_of_a_peer_closes_its_oldest_and_none_of_others() {
        let (all, closed) = log();
        let _other = connect(&all, 0, Peer::Uid(1), usize::MAX, &closed);
        let own: Vec<_> =
            (0..PENDING_CONNECTIONS_PER_PEER_MAX + 2).map(|id| connect(&all, 0, HOST, id, &closed)).collect();
        assert_eq!(*closed.lock().unwrap(), [0, 1]);
        drop(own);
        assert_eq!(all.table.lock().waiting.len(), 1);
    }

    #[test]
    fn connections_of_a_guests_programs_close_none_of_its_guestd() {
        let (all, closed) = log();
        let accept = |port, id| connect(&all, 0, peer_at(VmId(1), port), id, &closed);
        let _of_guestd = [accept(1, 1), accept(PRIVILEGED_PORT_END - 1, 2)];
        let _others: Vec<_> =
            (0..=PENDING_CONNECTIONS_PER_PEER_MAX).map(|id| accept(PRIVILEGED_PORT_END, 10 + id)).collect();
        assert_eq!(*closed.lock().unwrap(), [10]);
    }
}
