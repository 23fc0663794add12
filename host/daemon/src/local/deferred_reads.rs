//! Connections of users of whom too many descriptors wait to be closed: nothing is read of them until fewer do.

use std::collections::BTreeSet;

use dxgkrnl::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::{INTEREST, Loop, Source};
use crate::closing::ClientFd;
use crate::timer::monotonic;

/// How long they are left alone.
const PAUSE_NS: Nanos = 20_000_000;
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: PAUSE_NS as i64 };

/// The connections, by their keys.
#[derive(Default)]
pub(super) struct DeferredReads {
    keys: BTreeSet<u64>,
    /// When it is looked again whether fewer descriptors wait: it takes as long as there are connections.
    next: Nanos,
}

impl DeferredReads {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Whether a read was refused for that ([`ClientFd::receive`]). One whose other end has hung up is not worth waiting for.
pub(super) fn is_to_be_held(error: Errno, connection: &ClientFd) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::empty())];
    error == Errno::MFILE && poll(&mut ends, Some(&Timespec::default())) == Ok(0)
}

/// The same of an error of [`read_request`](crate::broker::read_request). What comes of a request that was read is no reason to
/// hold its connection: it is answered.
pub(super) fn is_read_later(error: &anyhow::Error, connection: &ClientFd) -> bool {
    error.downcast_ref().is_some_and(|error| is_to_be_held(*error, connection))
}

impl Loop {
    /// Its end is still noticed, and what it is sent is sent.
    pub(super) fn hold(&mut self, key: u64) {
        self.watch_for(key, epoll::EventFlags::empty());
        if self.held.is_empty() {
            self.held.next = monotonic() + PAUSE_NS;
        }
        self.held.keys.insert(key);
    }

    /// Those whose users may send again are read again.
    pub(super) fn let_go(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = monotonic();
        if now < self.held.next {
            return;
        }
        self.held.next = now + PAUSE_NS;
        let closers = &self.kernel_host.budgets.closers;
        let may_send = |key: &u64| match self.sources.get(key) {
            Some(Source::Stream { stream: connection, .. } | Source::Broker { connection, .. }) => {
                closers.may_send(connection.peer())
            }
            Some(_) | None => true,
        };
        let ready: Vec<u64> = self.held.keys.iter().copied().filter(may_send).collect();
        for key in ready {
            self.held.keys.remove(&key);
            self.watch_for(key, INTEREST);
        }
    }

    fn watch_for(&self, key: u64, interest: epoll::EventFlags) {
        if let Some(descriptor) = self.sources.get(&key).and_then(Source::descriptor) {
            // It is watched as long as it is a source.
            let _ = epoll::modify(&*self.epoll, descriptor, epoll::EventData::new_u64(key), interest);
        }
    }
}
