//! The data channel of this process: one stream, shared by all its threads, with no thread of its own.
//!
//! The primer of the protocol is in `proto/channel.proto`. Here is who reads the stream:
//!
//! ```text
//!                    no reader                            its answer arrived: leave
//!   thread waits ─────────────────▶ LEADER: blocking read ─────────────────────▶ returns
//!        │                             │  ▲   dispatches frames of other threads       │
//!        │ another reads               └──┘                                            │ wakes one
//!        ▼                                                                             ▼
//!     FOLLOWER: sleeps on its parker ◀── its answer arrived: returns ──── or: becomes the leader
//! ```
//!
//! So a single-threaded client pays one write and one read for a call. While events are armed and no thread waits, a
//! *helper* thread polls the stream without holding the role. It takes the role only for one read that cannot block.
//!
//! The pending calls hold what each thread waits for; the simulated port uses them too (crate `client`).
//!
//! Lock order: `inbound`, then `reception`, then `ring`. `outbound` and `helper_started` are locked alone. No lock is held while an event is set or a
//! thread woken. Only `outbound` is held during a write, and only the leader's `inbound` during a read. This file has
//! the writing half, `reading` the other.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ::client::{Answer, Exchange, PendingCalls, SendError, TRANSPORT_LOST};
use d3dkmt::{Call, EventId, Handle};
use frame_ring::{Patience, Way};
use proto::channel::{ToHost, to_host};
use proto::frame::{FrameBuffer, append, append_call};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::event::Event;
use super::helper::Watch;
use super::parker::Parker;
use super::reading::Inbound;
use super::resume::Resumable;
use super::rings::{RingInlet, RingOutlet};
use super::times::{self, Times};
use crate::fork::{SessionDescriptor, generation};
use crate::limits::WRITE_BUFFER_KEPT_BYTES;
use crate::notice::print;

/// Wakes that set a caller's event.
pub type Wakes = ::client::Wakes<Event>;

/// The pending calls, and the state of the threads that read the stream.
#[derive(Debug, Default)]
pub(super) struct Reception {
    pub pending_calls: PendingCalls<Event, Parker>,
    /// A thread reads the stream.
    pub leading: bool,
    /// That thread has events to set.
    pub delivering: bool,
    /// Threads that wait until it has set them.
    pub settling: Vec<Parker>,
    /// Threads that wait until the leader leaves or dispatches their messages.
    pub followers: Vec<Parker>,
    /// The helper's watch is switched on.
    pub watched: bool,
    /// The helper is woken only if the stream ends.
    pub guarded: bool,
}

/// The frames that are being written, and the ring to the host, if the session has rings.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    pub bytes: Vec<u8>,
    pub ring: Option<RingOutlet>,
}

/// One stream and the threads that use it.
#[derive(Debug)]
pub struct Channel {
    pub(super) stream: SessionDescriptor,
    /// The process generation that made it; a forked child has another.
    pub(super) generation: u32,
    pub(super) inbound: Mutex<Inbound>,
    pub(super) outbound: Mutex<Outbound>,
    /// The ring from the host, if the session has rings: see `rings.rs`.
    pub(super) ring: Mutex<Option<RingInlet>>,
    /// Whether waits look at values before they register: in a session that began with rings.
    patience: Option<Mutex<Patience>>,
    /// The host slept when the last frame was written, so an answer takes a while.
    pub(super) host_slept: AtomicBool,
    /// The stream was the library's when the last frame was written, because it went into the stream.
    pub(super) stream_checked: AtomicBool,
    pub(super) reception: Mutex<Reception>,
    /// The helper's epoll, once there is a helper.
    pub(super) watch: OnceLock<Watch>,
    /// Whether there is a helper. Locked while it is started.
    pub(super) helper_started: Mutex<bool>,
    messages_sent: AtomicU64,
    pub(super) lost: AtomicBool,
    /// Present if the session can be resumed after the host was killed and restarted.
    pub(super) resumable: Option<Resumable>,
    /// Present if the host asks for times.
    pub(super) times: Option<Times>,
}

/// Why a session is lost whose stream is no longer the library's.
pub(super) const DESCRIPTOR_TAKEN: &str =
    "the program has closed a descriptor of this library, or uses its number for another file";

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// `frames` holds the bytes that arrived after the Welcome.
    pub(super) fn new(
        stream: SessionDescriptor,
        frames: FrameBuffer,
        rings: Option<(RingOutlet, RingInlet)>,
        resumable: Option<Resumable>,
        reports_times: bool,
    ) -> Channel {
        let (outlet, inlet) = rings.unzip();
        Channel {
            stream,
            generation: generation(),
            inbound: Mutex::new(Inbound::new(frames, inlet.is_some())),
            outbound: Mutex::new(Outbound { bytes: Vec::new(), ring: outlet }),
            patience: inlet.is_some().then(Mutex::default),
            ring: Mutex::new(inlet),
            host_slept: AtomicBool::new(false),
            stream_checked: AtomicBool::new(false),
            reception: Mutex::default(),
            watch: OnceLock::new(),
            helper_started: Mutex::default(),
            messages_sent: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            resumable,
            times: reports_times.then(Times::default),
        }
    }

    /// Frames sent so far.
    pub fn messages_sent(&self) -> u64 {
        self.messages_sent.load(Ordering::Relaxed)
    }

    /// Whether the host asks for times.
    pub fn reports_times(&self) -> bool {
        self.times.is_some()
    }

    /// Nothing can be sent or will arrive: the stream is lost, or this is a forked child.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.is_of_parent()
    }

    /// This is a forked child. A signal handler that interrupts a call may fork, so it is asked after each system call that
    /// blocks and each look at a ring: the child has no rings, and threads that it does not have may hold the locks.
    pub(super) fn is_of_parent(&self) -> bool {
        self.generation != generation()
    }

    pub(super) fn is_resumable(&self) -> bool {
        self.resumable.is_some()
    }

    /// The stream is lost, or the host has closed its end and no thread has read that yet.
    pub(super) fn may_be_lost(&self) -> bool {
        if self.is_lost() {
            return true;
        }
        let now = Timespec::default();
        let mut stream = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        // If poll fails, the state is unknown.
        rustix::event::poll(&mut stream, Some(&now)) != Ok(0)
    }

    /// The time at which the program makes a call, if the host asks for it.
    fn called(&self) -> Option<u64> {
        self.times.as_ref().map(|_| times::now())
    }

    /// Sends a call, which the program made at this time.
    fn send(&self, request: u64, call: &Call, called: Option<u64>) -> Result<(), SendError> {
        if self.is_lost() {
            return Err(SendError::Lost);
        }
        let mut outbound = lock(&self.outbound);
        let bytes = &mut outbound.bytes;
        bytes.clear();
        append_call(request, call, bytes)?;
        if let (Some(times), Some(called)) = (&self.times, called) {
            let mut before = Vec::new();
            times.append(called, &mut before);
            bytes.splice(..0, before);
        }
        if let Some(resumable) = &self.resumable {
            resumable.keep(request, bytes);
        }
        let written = self.write_out(&mut outbound);
        outbound.bytes.shrink_to(WRITE_BUFFER_KEPT_BYTES);
        if written.is_ok() {
            // Under the lock: an atomic addition takes as long as the frame does.
            let sent = self.messages_sent.load(Ordering::Relaxed);
            self.messages_sent.store(sent + 1, Ordering::Relaxed);
        }
        drop(outbound);
        match written {
            Ok(()) => Ok(()),
            Err(Errno::BADF) => {
                self.lose(DESCRIPTOR_TAKEN);
                Err(SendError::Lost)
            }
            // The frame is kept: the reading thread finds the end of the stream, and sends the frame over the next one.
            Err(_) if self.resumable.is_some() && !self.is_lost() => Ok(()),
            Err(_) => {
                self.read_to_the_end();
                Err(SendError::Lost)
            }
        }
    }

    /// Sends a frame that is no call. Each is sent once: it is not kept.
    pub(super) fn send_aside(&self, body: to_host::Body) -> Result<(), Errno> {
        let mut outbound = lock(&self.outbound);
        outbound.bytes.clear();
        append(&ToHost { request: 0, body: Some(body) }, &mut outbound.bytes);
        self.write_out(&mut outbound)
    }

    /// Writes the whole frames in `outbound.bytes`: into the ring, or to the stream.
    pub(super) fn write_out(&self, outbound: &mut Outbound) -> Result<(), Errno> {
        let Outbound { bytes, ring } = outbound;
        let Some(outlet) = ring else { return self.write_all(bytes) };
        let length = bytes.len();
        // A host that is awake makes room while this thread looks.
        if outlet.may_fit(length) && !self.host_slept.load(Ordering::Relaxed) {
            frame_ring::look_until(|| outlet.fits(length) != Ok(false));
        }
        match outlet.send(bytes) {
            Ok(Way::Ring { kick }) => {
                self.host_slept.store(kick, Ordering::Relaxed);
                self.stream_checked.store(false, Ordering::Relaxed);
                if kick { self.write_all(frame_ring::KICK) } else { Ok(()) }
            }
            Ok(Way::Stream { back }) => {
                self.host_slept.store(true, Ordering::Relaxed);
                if back {
                    append(&ToHost { request: 0, body: Some(to_host::Body::InRing) }, bytes);
                }
                self.write_all(bytes)
            }
            // A signal handler has forked while this thread looked.
            Err(_) if self.is_of_parent() => Err(Errno::NOTCONN),
            Err(bad_index) => {
                print(format_args!("the session ends: {bad_index}"));
                Err(Errno::PROTO)
            }
        }
    }

    /// BADF if the stream is no longer the library's: the program's file must not get these bytes.
    pub(super) fn write_all(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        if self.is_of_parent() {
            return Err(Errno::NOTCONN);
        }
        let is_own = self.stream.is_own();
        self.stream_checked.store(is_own, Ordering::Relaxed);
        if !is_own {
            return Err(Errno::BADF);
        }
        while !bytes.is_empty() {
            // A signal handler may have forked before the first write, or during one.
            if self.is_of_parent() {
                return Err(Errno::NOTCONN);
            }
            // NOSIGNAL: SIGPIPE would kill the host program.
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks for a while until `is_there`, in a session with rings, if that has brought something lately.
    pub(super) fn look(&self, is_there: impl FnMut() -> bool) -> bool {
        let Some(patience) = &self.patience else { return false };
        if !lock(patience).looks() {
            return false;
        }
        let found = frame_ring::look_until(is_there);
        lock(patience).looked(found);
        found
    }

    /// Makes a call without an answer.
    pub fn post(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Result<(), SendError> {
        let called = self.called();
        let sent = match wakes.name() {
            None => self.send(0, call, called),
            Some(event) => {
                if !lock(&self.reception).pending_calls.begin_post(wakes) {
                    return Err(SendError::Lost);
                }
                let sent = self.require_helper().and_then(|()| self.send(0, call, called));
                if sent.is_err() {
                    self.forget_wake(event);
                }
                if !self.is_of_parent() {
                    self.hand_over_role(lock(&self.reception));
                }
                sent
            }
        };
        if let Some(resumable) = self.resumable.as_ref().filter(|_| !self.is_of_parent()) {
            self.limit_unacknowledged(resumable);
        }
        sent
    }

    /// Makes a call and waits for its answer; `wakes` are armed before it is sent, and forgotten if it is refused.
    pub fn call(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Answer {
        self.exchange(call, wakes.name().is_some(), |pending_calls, parker| {
            pending_calls.begin_call(wakes, parker)
        })
    }

    /// The same for a call that arms nothing. Takes the call by value, so that its data are freed before the answer.
    pub fn call_with(self: &Arc<Self>, call: Call) -> Answer {
        self.exchange(call, false, |pending_calls, parker| pending_calls.begin_call(&Wakes::None, parker))
    }

    /// Makes a call that registers a wait named `event`, and waits until that wait completes, without a time limit.
    /// Anything but a registered wait is answered at once.
    pub fn call_and_wait(self: &Arc<Self>, call: &Call, event: EventId) -> Answer {
        let answer =
            self.exchange(call, false, |pending_calls, parker| pending_calls.begin_wait(event, parker));
        if let Some(times) = self.times.as_ref().filter(|_| !self.is_of_parent()) {
            times.resumed(event);
        }
        answer
    }

    fn exchange(
        self: &Arc<Self>,
        call: impl Borrow<Call>,
        arms: bool,
        begin: impl FnOnce(&mut PendingCalls<Event, Parker>, Parker) -> Option<Exchange>,
    ) -> Answer {
        let called = self.called();
        let parker = Parker::default();
        let begun = if self.is_lost() {
            None
        } else {
            begin(&mut lock(&self.reception).pending_calls, parker.clone())
        };
        let Some(mut exchange) = begun else { return Answer::refused(TRANSPORT_LOST) };
        let helper_ready = if arms { self.require_helper() } else { Ok(()) };
        let sent = helper_ready.and_then(|()| self.send(exchange.request(), call.borrow(), called));
        drop(call);
        match sent {
            Err(error @ (SendError::TooLong(_) | SendError::NoThread)) => {
                let mut reception = lock(&self.reception);
                reception.pending_calls.withdraw(&exchange);
                self.hand_over_role(reception);
                Answer::refused(error.into())
            }
            // If the stream is lost, `PendingCalls::lose` completes the call.
            Ok(()) | Err(SendError::Lost) => {
                let answer = self.wait_until(&parker, |pending_calls| pending_calls.collect(&mut exchange));
                let Some(answer) = answer else { return Answer::refused(TRANSPORT_LOST) };
                if let Some(resumable) = &self.resumable {
                    resumable.forget_answered(exchange.request());
                }
                answer
            }
        }
    }

    /// Sends the times that are still unreported when the program exits. Never blocks, because other threads may hold
    /// locks.
    pub fn send_last_times(&self) {
        let Some(times) = self.times.as_ref().filter(|times| times.has_woken() && !self.is_lost()) else {
            return;
        };
        let Ok(mut outbound) = self.outbound.try_lock() else { return };
        let Outbound { bytes, ring } = &mut *outbound;
        bytes.clear();
        times.append(0, bytes);
        let last = match ring {
            None => &bytes[..],
            // Times that do not fit are dropped.
            Some(outlet) if outlet.fits(bytes.len()) != Ok(true) => return,
            Some(outlet) => match outlet.send(bytes) {
                Ok(Way::Ring { kick: true }) => frame_ring::KICK,
                Ok(_) | Err(_) => return,
            },
        };
        if !self.stream.is_own() {
            return;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A full or lost stream may drop it: no thread reads this stream any more.
        let _ = rustix::net::send(&self.stream, last, flags);
    }

    /// Later wakes of this name are ignored.
    pub fn forget_wake(&self, event: EventId) {
        if !self.is_of_parent() {
            lock(&self.reception).pending_calls.forget_wake(event);
        }
    }

    /// See [`PendingCalls::contexts_ended`].
    pub fn contexts_ended(&self, ended: &[Handle]) {
        if !self.is_of_parent() {
            lock(&self.reception).pending_calls.contexts_ended(ended);
        }
    }

    /// Answers and wakes that are expected and have not arrived.
    pub fn pending(&self) -> usize {
        lock(&self.reception).pending_calls.pending()
    }
}
