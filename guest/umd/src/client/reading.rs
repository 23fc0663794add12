//! The reading half of the channel: the leader, its followers, the helper, and the end.
//!
//! Whoever holds the role (`Reception::leading`) may read. It is taken under the reception's lock, kept
//! during a read without it, and given up under it; whoever leaves while nobody leads sees to it
//! that somebody will: see [`Channel::pass_on`].

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use ::client::{Delivery, PendingCalls, SendError, TRANSPORT_LOST};
use proto::channel::Woken;
use proto::frame::FrameBuffer;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use super::channel::{Channel, Parker, Reception, lock};
use super::event::Event;
use super::helper::{self, Watch};
use super::times;
use crate::fork::{SessionDescriptor, generation};
use crate::limits::READ_BYTES;
use crate::notice::print;

/// What was read and not dispatched. Whoever has the role has this.
#[derive(Debug)]
pub(super) struct Inbound {
    frames: FrameBuffer,
}

impl Inbound {
    pub fn new(frames: FrameBuffer) -> Inbound {
        Inbound { frames }
    }

    /// One read, of the rest of a frame under way if that is more than usual. 0 bytes mean the end of the stream.
    fn read(&mut self, stream: &SessionDescriptor, flags: RecvFlags) -> Result<usize, Errno> {
        let tail = self.frames.tail(READ_BYTES);
        loop {
            match rustix::net::recv(stream.as_fd(), spare_capacity(tail), flags) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Channel {
    /// Waits until `ready` has something: as the leader if nobody reads the stream, else asleep.
    pub(super) fn wait_until<T>(
        &self,
        parker: &Parker,
        mut ready: impl FnMut(&mut PendingCalls<Event, Parker>) -> Option<T>,
    ) -> T {
        let mut reception = lock(&self.reception);
        loop {
            if let Some(value) = ready(&mut reception.pending_calls) {
                self.pass_on(reception);
                return value;
            }
            if reception.leading {
                reception.followers.push(parker.clone());
                reception = parker.wait(reception).unwrap_or_else(PoisonError::into_inner);
                reception.followers.retain(|follower| !Arc::ptr_eq(follower, parker));
            } else {
                reception = self.lead_once(reception, RecvFlags::empty());
            }
        }
    }

    /// Takes the role, reads once, gives the role up again.
    fn lead_once<'a>(
        &'a self,
        mut reception: MutexGuard<'a, Reception>,
        flags: RecvFlags,
    ) -> MutexGuard<'a, Reception> {
        reception.leading = true;
        if std::mem::replace(&mut reception.watched, false) {
            self.watch.get().expect("there is a watch").switch_off(self.stream.as_fd());
            reception.guarded = true;
        }
        drop(reception);
        self.read_once(flags);
        reception = lock(&self.reception);
        reception.leading = false;
        reception
    }

    /// Leaves the pending calls: if nobody reads, a follower will, else the helper if it must.
    pub(super) fn pass_on(&self, mut reception: MutexGuard<'_, Reception>) {
        if reception.leading {
            return;
        }
        if let Some(follower) = reception.followers.last().cloned() {
            drop(reception);
            follower.notify_one();
        } else if reception.pending_calls.armed() > 0 && !reception.watched {
            // No watch yet: its maker passes on once there is one.
            if let Some(watch) = self.watch.get() {
                reception.watched = true;
                watch.switch_on(self.stream.as_fd());
            }
        } else if self.resumable.is_some()
            && !(reception.watched || reception.guarded)
            && let Some(watch) = self.watch.get()
        {
            reception.guarded = true;
            watch.switch_off(self.stream.as_fd());
        }
    }

    /// One read by whoever has the role, and everything that came with it. True when there was
    /// something and there may be more.
    fn read_once(&self, flags: RecvFlags) -> bool {
        let mut inbound = lock(&self.inbound);
        let (bytes, ended) = match inbound.read(&self.stream, flags) {
            Ok(0) => (0, Some("the host closed the stream".to_owned())),
            Ok(bytes) => (bytes, None),
            Err(Errno::AGAIN) => return false,
            Err(error) => (0, Some(format!("reading from the host failed: {error}"))),
        };
        match (self.deliver(inbound), ended) {
            (None, None) => {
                self.tell_received(bytes);
                true
            }
            (None, Some(_)) if self.resume() => {
                // What came right behind the Welcome.
                if let Some(reason) = self.deliver(lock(&self.inbound)) {
                    self.lose(&reason);
                }
                false
            }
            (Some(reason), _) | (None, Some(reason)) => {
                self.lose(&reason);
                false
            }
        }
    }

    /// Gives every whole frame to whoever expects it; why nothing more can be read, if so.
    fn deliver(&self, mut inbound: MutexGuard<'_, Inbound>) -> Option<String> {
        let mut deliveries = Vec::new();
        let read_ns = self.times.as_ref().map(|_| times::now());
        let (dispatched, to_set) = self.dispatch(&mut inbound.frames, &mut deliveries, read_ns);
        let end = dispatched.err();
        drop(inbound);
        deliveries.into_iter().for_each(perform);
        if let Some(times) = self.times.as_ref().filter(|_| !to_set.is_empty()) {
            times.were_set(to_set);
        }
        end
    }

    /// Whether more can be read; and events of which the host wants to know when they are set.
    fn dispatch(
        &self,
        frames: &mut FrameBuffer,
        deliveries: &mut Vec<Due>,
        read_ns: Option<u64>,
    ) -> (Result<(), String>, Vec<Woken>) {
        let mut reception = lock(&self.reception);
        let Reception { pending_calls, followers, .. } = &mut *reception;
        // The leader does not sleep, and a futex call is not free.
        let asleep = |parker: &Parker| followers.iter().any(|follower| Arc::ptr_eq(follower, parker));
        let dispatched = pending_calls.dispatch(frames, asleep, deliveries);
        let to_set = match (&self.times, read_ns) {
            (Some(times), Some(read_ns)) => times.read(pending_calls.take_heard(), read_ns),
            _ => Vec::new(),
        };
        (dispatched, to_set)
    }

    /// A write failed: nothing more will come but what is here already, a Goodbye above all. Whoever
    /// leads reads that, to the end, and completes everything.
    pub(super) fn read_to_the_end(&self) {
        let mut reception = lock(&self.reception);
        if !reception.leading && !reception.pending_calls.is_lost() {
            reception.leading = true;
            drop(reception);
            while self.read_once(RecvFlags::DONTWAIT) {}
            reception = lock(&self.reception);
            reception.leading = false;
        }
        // From here on a read comes to the end at once, also one that blocks already.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
        while !reception.leading && !reception.pending_calls.is_lost() {
            reception = self.lead_once(reception, RecvFlags::empty());
        }
    }

    /// The end of this session: everything pending completes with [`TRANSPORT_LOST`].
    fn lose(&self, reason: &str) {
        let mut deliveries = Vec::new();
        let first = {
            let mut reception = lock(&self.reception);
            let first = reception.pending_calls.lose(&mut deliveries);
            self.lost.store(true, Ordering::Release);
            first
        };
        if !first {
            return;
        }
        // Ends a read of another thread, and the helper.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
        if let Some(watch) = self.watch.get() {
            watch.switch_on(self.stream.as_fd());
        }
        deliveries.into_iter().for_each(perform);
        if !reason.is_empty() {
            print(format_args!("{reason}; every call now answers {TRANSPORT_LOST}"));
        }
    }

    /// Ends the session on our side, silently.
    pub fn close(&self) {
        if self.generation == generation() {
            self.lose("");
        }
    }

    /// Sees to it that there is a helper thread, once an event is armed.
    pub(super) fn require_helper(self: &Arc<Self>) -> Result<(), SendError> {
        if std::mem::replace(&mut lock(&self.reception).helper_started, true) {
            return Ok(());
        }
        self.start_helper().map_err(|error| {
            print(format_args!("no thread can be made that delivers an event: {error}"));
            lock(&self.reception).helper_started = false;
            SendError::NoThread
        })
    }

    fn start_helper(self: &Arc<Self>) -> std::io::Result<()> {
        if self.watch.get().is_none() {
            let _ = self.watch.set(Watch::new(self.stream.as_fd())?);
        }
        let channel = self.clone();
        helper::start(move || channel.help())
    }

    /// The helper's life: sleeps until its watch fires, reads if nobody else does, passes on.
    fn help(&self) {
        let watch = self.watch.get().expect("made before the helper");
        loop {
            watch.sleep();
            let mut reception = lock(&self.reception);
            if reception.pending_calls.is_lost() {
                return;
            }
            // It is a one-shot.
            (reception.watched, reception.guarded) = (false, false);
            if !reception.leading && (reception.pending_calls.armed() > 0 || self.resumable.is_some()) {
                reception = self.lead_once(reception, RecvFlags::DONTWAIT);
            }
            self.pass_on(reception);
        }
    }
}

/// What is due once the lock is left.
type Due = Delivery<Event, Parker>;

fn perform(due: Due) {
    match due {
        Delivery::Set(event) => event.set(),
        Delivery::Ring(parker) => parker.notify_one(),
    }
}
