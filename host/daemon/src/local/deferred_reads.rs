//! Connections whose next message has descriptors, of users that may not send any for now: they are not read until it may be.

use std::collections::BTreeSet;

use dxgkrnl::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::{Loop, Source};
use crate::closing::ClientFd;
use crate::timer::monotonic;

/// Pause between two checks.
const PAUSE_NS: Nanos = 20_000_000;
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: PAUSE_NS as i64 };

/// Keys of the connections that are not read for now.
#[derive(Default)]
pub(super) struct DeferredReads {
    keys: BTreeSet<u64>,
    /// Time of the next check, whose cost grows with the number of connections.
    next: Nanos,
}

impl DeferredReads {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Whether [`ClientFd::receive`] refused a read for that reason. A connection whose other end has hung up is not worth
/// deferring.
pub(super) fn is_to_be_held(error: Errno, connection: &ClientFd) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::empty())];
    error == Errno::MFILE && poll(&mut ends, Some(&Timespec::default())) == Ok(0)
}

/// The same for an error of [`read_request`](crate::broker::read_request). An error after a request was read does not
/// defer its connection: the request is answered.
pub(super) fn is_read_later(error: &anyhow::Error, connection: &ClientFd) -> bool {
    error.downcast_ref().is_some_and(|error| is_to_be_held(*error, connection))
}

impl Loop {
    /// Stops reading a connection. Its hang-up is still detected, and data are still sent to it.
    pub(super) fn hold(&mut self, key: u64) {
        self.watch_for(key, |_| epoll::EventFlags::empty());
        if self.deferred.is_empty() {
            self.deferred.next = monotonic() + PAUSE_NS;
        }
        self.deferred.keys.insert(key);
    }

    /// Reads connections again whose users may send descriptors.
    pub(super) fn resume_reads(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let now = monotonic();
        if now < self.deferred.next {
            return;
        }
        self.deferred.next = now + PAUSE_NS;
        let closers = &self.kernel_host.budgets.closers;
        let may_be_read = |key: &u64| match self.sources.get(key) {
            Some(Source::Stream { stream: connection, .. } | Source::Broker { connection, .. }) => {
                closers.may_send_descriptors(connection.peer())
            }
            Some(_) | None => true,
        };
        let ready: Vec<u64> = self.deferred.keys.iter().copied().filter(may_be_read).collect();
        for key in ready {
            self.deferred.keys.remove(&key);
            self.watch_again(key);
            // The interest in room was lost with the others.
            if let Some(Source::Stream { channel, .. }) = self.sources.get(&key)
                && let Some(client) = channel.client()
            {
                client.outbox.writable();
            }
        }
    }

    /// Has epoll report a source again.
    pub(super) fn watch_again(&self, key: u64) {
        self.watch_for(key, Source::interest);
    }

    fn watch_for(&self, key: u64, interest: impl FnOnce(&Source) -> epoll::EventFlags) {
        let Some(source) = self.sources.get(&key) else { return };
        if let Some(descriptor) = source.descriptor() {
            // A source stays in the epoll set until it is removed.
            let _ = epoll::modify(&*self.epoll, descriptor, epoll::EventData::new_u64(key), interest(source));
        }
    }
}
