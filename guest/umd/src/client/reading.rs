//! The reading half of the channel: the leader, its followers, the helper, and the loss of the stream.
//!
//! The thread that holds the role (`Reception::leading`) may read. The role is taken and released under the reception's
//! lock; the read itself is without it. A thread that leaves while no thread leads passes the role on: see
//! [`Channel::hand_over_role`](super::channel::Channel::hand_over_role).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ::client::{Delivery, PendingCalls, SendError, TRANSPORT_LOST};
use proto::channel::Woken;
use proto::frame::FrameBuffer;
use proto::session_frames::SessionFrames;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use super::channel::{Channel, DESCRIPTOR_TAKEN, Reception, lock};
use super::event::Event;
use super::helper::{self, Watch};
use super::parker::Parker;
use super::rings::RingInlet;
use super::times;
use crate::fork::{SessionDescriptor, generation};
use crate::limits::READ_BYTES;
use crate::notice::print;

/// Bytes that were read and not dispatched. The thread that holds the role locks it.
#[derive(Debug)]
pub(super) struct Inbound {
    frames: SessionFrames,
}

/// What one read brought.
enum Read {
    Bytes(usize),
    /// The stream has ended. All that the host published before is taken.
    End,
    /// The program has closed the stream's descriptor, or uses its number.
    DescriptorTaken,
}

impl Inbound {
    /// `frames` holds bytes of the stream that arrived behind the Welcome.
    pub fn new(frames: FrameBuffer, has_ring: bool) -> Inbound {
        Inbound { frames: SessionFrames::new(frames, has_ring) }
    }

    /// One read of the stream: the rest of an incomplete frame, if that is longer than usual. 0 bytes mean its end. An
    /// interrupted read is made again, but not in a child that the interrupting signal handler has forked.
    fn read_stream(&mut self, stream: &SessionDescriptor, flags: RecvFlags) -> Result<usize, Errno> {
        let tail = self.frames.stream().tail(READ_BYTES);
        let before = generation();
        loop {
            match rustix::net::recv(stream.as_fd(), spare_capacity(tail), flags) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) if generation() == before => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Appends what is published in the ring. Returns the number of bytes.
fn take(frames: &mut SessionFrames, ring: &mut RingInlet) -> Result<usize, String> {
    let Some(to) = frames.ring() else { return Ok(0) };
    ring.take(to.tail(0)).map_err(|bad_index| bad_index.to_string())
}

impl Channel {
    /// Reads once: the ring, if anything is published there or comes while this thread looks; else the stream, and then
    /// the ring again.
    fn read(&self, inbound: &mut Inbound, flags: RecvFlags) -> Result<Read, String> {
        let failed = |error: Errno| format!("cannot read from the host: {error}");
        let has_ring = inbound.frames.ring().is_some();
        if has_ring
            && !inbound.frames.awaits_stream()
            && let Some(bytes) = self.read_ring(inbound, flags)?
        {
            return Ok(Read::Bytes(bytes));
        }
        // A signal handler may have forked while this thread looked.
        if self.is_of_parent() {
            return Ok(Read::Bytes(0));
        }
        // A thread that has just written there knows that it is.
        let is_checked = flags.is_empty() && self.stream_checked.load(Ordering::Relaxed);
        if !is_checked && !self.stream.is_own() {
            return Ok(Read::DescriptorTaken);
        }
        let read = inbound.read_stream(&self.stream, flags);
        if self.is_of_parent() {
            return Ok(Read::Bytes(0));
        }
        let mut published = 0;
        if let Some(ring) = lock(&self.ring).as_mut() {
            ring.wake();
            published = take(&mut inbound.frames, ring)?;
        }
        match read {
            Ok(0) => Ok(Read::End),
            Ok(bytes) => Ok(Read::Bytes(bytes + published)),
            Err(Errno::AGAIN) => Ok(Read::Bytes(published)),
            // An error of a stream that has ended: what the host published before it counts.
            Err(_) if published > 0 => Ok(Read::Bytes(published)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Bytes of the ring. `None`: this thread reads the stream now, and the host knows that it sleeps there.
    fn read_ring(&self, inbound: &mut Inbound, flags: RecvFlags) -> Result<Option<usize>, String> {
        let mut ring = lock(&self.ring);
        let Some(ring) = ring.as_mut() else { return Ok(None) };
        let bytes = take(&mut inbound.frames, ring)?;
        if bytes > 0 {
            return Ok(Some(bytes));
        }
        let blocks = flags.is_empty();
        let may_look = blocks && !self.host_slept.load(Ordering::Relaxed);
        if may_look && ring.look() || blocks && !ring.sleep() {
            return take(&mut inbound.frames, ring).map(Some);
        }
        Ok(None)
    }

    /// Waits until `ready` returns a value: as the leader if no thread reads the stream, else asleep. `None`: a signal handler
    /// has forked meanwhile, and this is the child.
    pub(super) fn wait_until<T>(
        &self,
        parker: &Parker,
        mut ready: impl FnMut(&mut PendingCalls<Event, Parker>) -> Option<T>,
    ) -> Option<T> {
        let mut reception = self.lock_reception()?;
        loop {
            if let Some(value) = ready(&mut reception.pending_calls) {
                self.hand_over_role(reception);
                return Some(value);
            }
            if reception.leading {
                reception.followers.push(parker.clone());
                let count = parker.count();
                drop(reception);
                parker.sleep(count);
                reception = self.lock_reception()?;
                reception.followers.retain(|follower| !follower.is(parker));
            } else {
                reception = self.lead_once(reception, RecvFlags::empty())?;
            }
        }
    }

    /// `None` in a forked child.
    fn lock_reception(&self) -> Option<MutexGuard<'_, Reception>> {
        (!self.is_of_parent()).then(|| lock(&self.reception))
    }

    /// Takes the role, reads once and releases the role. `None`: a signal handler has forked meanwhile, and this is the
    /// child.
    fn lead_once<'a>(
        &'a self,
        mut reception: MutexGuard<'a, Reception>,
        flags: RecvFlags,
    ) -> Option<MutexGuard<'a, Reception>> {
        reception.leading = true;
        if std::mem::replace(&mut reception.watched, false) {
            self.watch.get().expect("there is a watch").switch_off(self.stream.as_fd());
            reception.guarded = true;
            // This thread looks at the ring.
            if let Some(ring) = lock(&self.ring).as_mut() {
                ring.wake();
            }
        }
        drop(reception);
        self.read_once(flags);
        self.release_role()
    }

    /// `None` in a forked child.
    fn release_role(&self) -> Option<MutexGuard<'_, Reception>> {
        let mut reception = self.lock_reception()?;
        reception.leading = false;
        Some(reception)
    }

    /// Returns once every event is set whose wake was read before.
    pub(super) fn settle(&self) {
        let parker = Parker::default();
        let count = parker.count();
        let Some(mut reception) = self.lock_reception() else { return };
        if !reception.delivering {
            return;
        }
        reception.settling.push(parker.clone());
        drop(reception);
        while parker.count() == count && !self.is_of_parent() {
            parker.sleep(count);
        }
    }

    /// Passes the role on: if no thread reads, to a follower, else to the helper if one is needed.
    pub(super) fn hand_over_role<'a>(&'a self, mut reception: MutexGuard<'a, Reception>) {
        // The host may have published frames before it learns that a thread sleeps: this thread reads them.
        while !reception.leading
            && reception.followers.is_empty()
            && reception.pending_calls.armed() > 0
            && !reception.watched
            && self.watch.get().is_some()
            && !self.may_sleep()
        {
            match self.lead_once(reception, RecvFlags::DONTWAIT) {
                Some(released) => reception = released,
                None => return,
            }
        }
        if reception.leading {
            return;
        }
        if let Some(follower) = reception.followers.last().cloned() {
            drop(reception);
            follower.wake();
        } else if reception.pending_calls.armed() > 0 && !reception.watched {
            // Without a watch yet, the thread that makes it passes the role on.
            if let Some(watch) = self.watch.get() {
                reception.watched = true;
                watch.switch_on(self.stream.as_fd());
            }
        } else if self.resumable.is_some()
            && !self.is_lost()
            && !(reception.watched || reception.guarded)
            && let Some(watch) = self.watch.get()
        {
            reception.guarded = true;
            watch.switch_off(self.stream.as_fd());
        }
    }

    /// Says that this side sleeps on the stream. False if something is published in the ring.
    fn may_sleep(&self) -> bool {
        self.is_lost() || lock(&self.ring).as_mut().is_none_or(RingInlet::sleep)
    }

    /// One read by the thread that holds the role, and the delivery of what was read. True if there was something and
    /// there may be more.
    fn read_once(&self, flags: RecvFlags) -> bool {
        let mut inbound = lock(&self.inbound);
        let read = self.read(&mut inbound, flags);
        if self.is_of_parent() {
            return false;
        }
        let (bytes, ended) = match read {
            Ok(Read::Bytes(0)) => return false,
            Ok(Read::Bytes(bytes)) => (bytes, None),
            Ok(Read::End) => (0, Some("the host closed the stream".to_owned())),
            // A resumed session would put its stream in place of the program's file.
            Ok(Read::DescriptorTaken) => {
                self.lose(DESCRIPTOR_TAKEN);
                return false;
            }
            Err(reason) => (0, Some(reason)),
        };
        match (self.deliver(inbound), ended) {
            (None, None) => {
                self.report_received(bytes);
                true
            }
            (None, Some(_)) if self.resume() => {
                // Deliver the bytes that arrived after the Welcome.
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

    /// Delivers every complete frame. Returns why nothing more can be read, if so.
    fn deliver(&self, mut inbound: MutexGuard<'_, Inbound>) -> Option<String> {
        let mut deliveries = Vec::new();
        let read_ns = self.times.as_ref().map(|_| times::now());
        let (dispatched, to_set) = self.dispatch(&mut inbound.frames, &mut deliveries, read_ns);
        let end = dispatched.err();
        drop(inbound);
        let sets = deliveries.iter().any(sets_event);
        deliveries.into_iter().for_each(perform);
        if sets {
            self.wake_settling();
        }
        if let Some(times) = self.times.as_ref().filter(|_| !to_set.is_empty()) {
            times.record_set(to_set);
        }
        end
    }

    /// The events that this thread has read are set.
    fn wake_settling(&self) {
        let Some(mut reception) = self.lock_reception() else { return };
        reception.delivering = false;
        let settling = std::mem::take(&mut reception.settling);
        drop(reception);
        settling.iter().for_each(Parker::wake);
    }

    /// Whether more can be read, and the events whose set times the host wants.
    fn dispatch(
        &self,
        frames: &mut SessionFrames,
        deliveries: &mut Vec<Due>,
        read_ns: Option<u64>,
    ) -> (Result<(), String>, Vec<Woken>) {
        let mut reception = lock(&self.reception);
        let Reception { pending_calls, followers, delivering, .. } = &mut *reception;
        // The leader does not sleep, and a futex call has a cost.
        let asleep = |parker: &Parker| followers.iter().any(|follower| follower.is(parker));
        let dispatched = pending_calls.dispatch(frames, asleep, deliveries);
        *delivering = deliveries.iter().any(sets_event);
        let to_set = match (&self.times, read_ns) {
            (Some(times), Some(read_ns)) => times.read(pending_calls.take_timed(), read_ns),
            _ => Vec::new(),
        };
        (dispatched, to_set)
    }

    /// A write failed: nothing more will arrive than what has arrived, above all a Goodbye. The leader reads that to
    /// the end and completes everything.
    pub(super) fn read_to_the_end(&self) {
        let Some(mut reception) = self.lock_reception() else { return };
        if !reception.leading && !reception.pending_calls.is_lost() {
            reception.leading = true;
            drop(reception);
            while self.read_once(RecvFlags::DONTWAIT) {}
            match self.release_role() {
                Some(released) => reception = released,
                None => return,
            }
        }
        // From here on every read returns end of stream at once, a blocked read included.
        self.shut_down_stream();
        while !reception.leading && !reception.pending_calls.is_lost() {
            match self.lead_once(reception, RecvFlags::empty()) {
                Some(released) => reception = released,
                None => return,
            }
        }
    }

    /// False if the stream's number is no longer the library's.
    fn shut_down_stream(&self) -> bool {
        let is_own = self.stream.is_own();
        if is_own {
            let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
        }
        is_own
    }

    /// The session is lost: everything pending completes with [`TRANSPORT_LOST`]. A forked child has nothing pending.
    pub(super) fn lose(&self, reason: &str) {
        let mut deliveries = Vec::new();
        let first = {
            let Some(mut reception) = self.lock_reception() else { return };
            let first = reception.pending_calls.lose(&mut deliveries);
            self.lost.store(true, Ordering::Release);
            first
        };
        if !first {
            return;
        }
        // Unblocks the read of another thread, and the helper.
        let is_own = self.shut_down_stream();
        if let Some(watch) = self.watch.get().filter(|_| is_own) {
            watch.switch_on(self.stream.as_fd());
        }
        let taken = !is_own || reason == DESCRIPTOR_TAKEN;
        for due in deliveries {
            match due {
                Delivery::Set(event) => event.set_at_loss(taken),
                Delivery::Wake(parker) => parker.wake(),
            }
        }
        if !reason.is_empty() {
            print(format_args!("{reason}; every call now answers {TRANSPORT_LOST}"));
        }
    }

    /// Closes the session on this side, without a message.
    pub fn close(&self) {
        self.lose("");
    }

    /// Starts the helper thread, if there is none, once an event is armed. A thread that arms another event meanwhile waits
    /// for the outcome.
    pub(super) fn require_helper(self: &Arc<Self>) -> Result<(), SendError> {
        let mut is_started = lock(&self.helper_started);
        if *is_started {
            return Ok(());
        }
        let started = self.start_helper();
        *is_started = started.is_ok();
        drop(is_started);
        // Printing may block.
        started.map_err(|error| {
            print(format_args!("cannot create the thread that delivers events: {error}"));
            SendError::NoThread
        })
    }

    fn start_helper(self: &Arc<Self>) -> std::io::Result<()> {
        if self.watch.get().is_none() {
            let _ = self.watch.set(Watch::new(self.stream.as_fd())?);
        }
        let channel = self.clone();
        helper::start(move || channel.run_helper())
    }

    /// The helper's loop: sleeps until its watch fires, reads if no other thread does, passes the role on.
    fn run_helper(&self) {
        let watch = self.watch.get().expect("made before the helper");
        loop {
            if !watch.sleep() {
                return self.lose(DESCRIPTOR_TAKEN);
            }
            let mut reception = lock(&self.reception);
            if reception.pending_calls.is_lost() {
                return;
            }
            // The watch is one-shot.
            (reception.watched, reception.guarded) = (false, false);
            if !reception.leading && (reception.pending_calls.armed() > 0 || self.resumable.is_some()) {
                match self.lead_once(reception, RecvFlags::DONTWAIT) {
                    Some(released) => reception = released,
                    None => return,
                }
            }
            self.hand_over_role(reception);
        }
    }
}

/// A delivery that is due once the lock is released.
type Due = Delivery<Event, Parker>;

fn sets_event(due: &Due) -> bool {
    matches!(due, Delivery::Set(_))
}

fn perform(due: Due) {
    match due {
        Delivery::Set(event) => event.set(),
        Delivery::Wake(parker) => parker.wake(),
    }
}
