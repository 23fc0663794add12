//! The data channel of this process: one stream, shared by all its threads, with no thread of its own.
//!
//! The primer of the protocol is in `proto/channel.proto`. Here is who reads the stream:
//!
//! ```text
//!                    nobody reads                         its answer came: leave
//!   thread waits ─────────────────▶ LEADER: blocking read ─────────────────────▶ returns
//!        │                             │  ▲   dispatches what belongs to others        │
//!        │ somebody reads              └──┘                                            │ wakes one
//!        ▼                                                                             ▼
//!     FOLLOWER: sleeps on its bell ◀───── its answer came: returns ── or: becomes the leader
//! ```
//!
//! So a client with one thread pays one write and one read for a call. While events are armed and
//! no thread waits, a *helper* thread polls the stream without holding the role, and takes it only
//! for one read that cannot block.
//!
//! Lock order: `inbound`, then `desk`. `outbound` is taken alone. No lock is held while an event is
//! set; only `outbound` is held during a write, and only the leader's `inbound` during a read.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use d3dkmt::{Call, EventId, NtStatus};
use proto::Message;
use proto::channel::{ToGuest, ToHost};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use proto::limits::FRAME_BYTES_MAX;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::desk::{Answer, Bell, Desk, TRANSPORT_LOST};
use super::event::Event;
use crate::fork::{SessionDescriptor, generation};
use crate::limits::{READ_BYTES, WRITE_BUFFER_KEPT_BYTES};
use crate::notice::tell;

/// Why a frame did not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    #[error("the message of {bytes} bytes is over the limit of {FRAME_BYTES_MAX} (GPV-009)")]
    TooLong { bytes: usize },
    #[error("the transport is lost")]
    Lost,
    #[error("no thread can be made that delivers the event")]
    NoThread,
}

impl From<SendError> for NtStatus {
    fn from(error: SendError) -> NtStatus {
        match error {
            SendError::TooLong { .. } => NtStatus::INVALID_PARAMETER,
            SendError::Lost => TRANSPORT_LOST,
            SendError::NoThread => NtStatus::NO_MEMORY,
        }
    }
}

/// Wakes that a call may bring, registered before it is sent.
#[derive(Clone, Debug)]
pub enum Wakes {
    None,
    /// The calling thread waits for this one.
    Thread(EventId),
    /// Sets the event, once.
    Once(EventId, Arc<Event>),
    /// Sets the event each time.
    EachTime(EventId, Arc<Event>),
}

/// One stream and everybody who uses it.
#[derive(Debug)]
pub struct Channel {
    stream: SessionDescriptor,
    /// Whose process this is; a forked child is another one.
    generation: u32,
    inbound: Mutex<Inbound>,
    outbound: Mutex<Vec<u8>>,
    desk: Mutex<Desk>,
    /// Where the helper sleeps while it is not needed.
    helper_bell: Condvar,
    next_request: AtomicU64,
    messages_sent: AtomicU64,
    lost: AtomicBool,
}

/// What was read and not dispatched, and where reads land. Whoever has the role has this.
#[derive(Debug)]
struct Inbound {
    frames: FrameBuffer,
    landing: Box<[u8]>,
}

impl Inbound {
    /// One read. 0 bytes mean the end of the stream.
    fn read(&mut self, stream: &SessionDescriptor, flags: RecvFlags) -> Result<usize, Errno> {
        let landing = &mut *self.landing;
        let count = loop {
            match rustix::net::recv(stream.as_fd(), &mut *landing, flags) {
                Ok((count, _)) => break count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        };
        self.frames.extend(&self.landing[..count]);
        Ok(count)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// `inbound` holds what came after the Welcome.
    pub fn new(stream: SessionDescriptor, frames: FrameBuffer) -> Channel {
        let inbound = Inbound { frames, landing: vec![0; READ_BYTES].into_boxed_slice() };
        Channel {
            stream,
            generation: generation(),
            inbound: Mutex::new(inbound),
            outbound: Mutex::default(),
            desk: Mutex::default(),
            helper_bell: Condvar::new(),
            next_request: AtomicU64::new(1),
            messages_sent: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// Frames sent so far.
    pub fn messages_sent(&self) -> u64 {
        self.messages_sent.load(Ordering::Relaxed)
    }

    /// Nothing can be sent or will arrive: the stream is gone, or this is a forked child.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.generation != generation()
    }

    /// Writes one whole frame.
    pub fn send(&self, frame: &ToHost) -> Result<(), SendError> {
        let bytes = frame.encoded_len();
        if bytes > FRAME_BYTES_MAX {
            return Err(SendError::TooLong { bytes });
        }
        if self.is_lost() {
            return Err(SendError::Lost);
        }
        let written = {
            let mut outbound = lock(&self.outbound);
            outbound.clear();
            append(frame, &mut outbound);
            let written = self.write_all(&outbound);
            outbound.shrink_to(WRITE_BUFFER_KEPT_BYTES);
            written
        };
        match written {
            Ok(()) => {
                self.messages_sent.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.read_what_is_left();
                self.lose(&format!("writing to the host failed: {error}"));
                Err(SendError::Lost)
            }
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            // NOSIGNAL: SIGPIPE would end a process that is not ours.
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a call without an answer.
    pub fn post(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Result<(), SendError> {
        if !self.expect_wakes(wakes, None) {
            return Err(SendError::Lost);
        }
        self.require_helper(wakes)?;
        let sent = self.send(&call_to_frame(0, call)).inspect_err(|_| self.forget_wakes(wakes));
        if !matches!(wakes, Wakes::None) {
            self.pass_on(&mut lock(&self.desk));
        }
        sent
    }

    /// Makes a call and waits for its answer; `wakes` are expected from before it is sent, and
    /// forgotten again if it is refused.
    pub fn call(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Answer {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bell = Bell::default();
        if self.is_lost() || !self.expect_wakes(wakes, Some((request, &bell))) {
            return Answer::refused(TRANSPORT_LOST);
        }
        let sent = self.require_helper(wakes).and_then(|()| self.send(&call_to_frame(request, call)));
        let answer = match sent {
            Err(error @ (SendError::TooLong { .. } | SendError::NoThread)) => {
                lock(&self.desk).forget_answer(request);
                Answer::refused(error.into())
            }
            // Lost: the desk has completed it already.
            Ok(()) | Err(SendError::Lost) => self.wait_until(&bell, |desk| desk.collect_answer(request)),
        };
        if !answer.status.is_success() {
            self.forget_wakes(wakes);
        }
        answer
    }

    /// Waits for the wake that a call has registered. As long as it takes.
    pub fn wait_for_wake(&self, event: EventId) -> NtStatus {
        let bell = lock(&self.desk).bell_of(event);
        self.wait_until(&bell, |desk| desk.collect_wake(event))
    }

    fn expect_wakes(&self, wakes: &Wakes, answer: Option<(u64, &Bell)>) -> bool {
        let mut desk = lock(&self.desk);
        match answer {
            Some((request, bell)) if !desk.expect_answer(request, bell.clone()) => return false,
            None if desk.lost => return false,
            Some(_) | None => {}
        }
        match wakes {
            Wakes::None => {}
            Wakes::Thread(event) => desk.expect_wake(*event, Bell::default()),
            Wakes::Once(event, target) => desk.arm(*event, target.clone(), true),
            Wakes::EachTime(event, target) => desk.arm(*event, target.clone(), false),
        }
        true
    }

    pub(super) fn forget_wakes(&self, wakes: &Wakes) {
        match wakes {
            Wakes::None => {}
            Wakes::Thread(event) | Wakes::Once(event, _) | Wakes::EachTime(event, _) => {
                self.forget_wake(*event)
            }
        }
    }

    /// Wakes of this name mean nothing any more.
    pub fn forget_wake(&self, event: EventId) {
        lock(&self.desk).forget_wake(event);
    }

    /// Waits until `ready` has something: as the leader if nobody reads the stream, else asleep.
    fn wait_until<T>(&self, bell: &Bell, mut ready: impl FnMut(&mut Desk) -> Option<T>) -> T {
        let mut desk = lock(&self.desk);
        loop {
            if let Some(value) = ready(&mut desk) {
                self.pass_on(&mut desk);
                return value;
            }
            if desk.leading {
                desk.followers.push(bell.clone());
                desk = bell.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.followers.retain(|follower| !Arc::ptr_eq(follower, bell));
            } else {
                desk.leading = true;
                drop(desk);
                self.read_once(RecvFlags::empty());
                desk = lock(&self.desk);
                desk.leading = false;
            }
        }
    }

    /// Whoever leaves while nobody reads wakes one who will: a follower, else the helper.
    fn pass_on(&self, desk: &mut Desk) {
        if desk.leading {
            return;
        }
        match desk.followers.last() {
            Some(follower) => follower.notify_one(),
            None if desk.armed > 0 && desk.helper_asleep => {
                desk.helper_asleep = false;
                self.helper_bell.notify_one();
            }
            None => {}
        }
    }

    /// One read by whoever has the role, and everything that came with it. True when there may be more.
    fn read_once(&self, flags: RecvFlags) -> bool {
        let mut inbound = lock(&self.inbound);
        let end = match inbound.read(&self.stream, flags) {
            Ok(0) => Some("the host closed the stream".to_owned()),
            Ok(_) => None,
            Err(Errno::AGAIN) => return false,
            Err(error) => Some(format!("reading from the host failed: {error}")),
        };
        let mut events = Vec::new();
        let end = self.dispatch_all(&mut inbound.frames, &mut events).err().or(end);
        drop(inbound);
        for event in events {
            event.set();
        }
        match end {
            Some(reason) => self.lose(&reason),
            None => return true,
        }
        false
    }

    fn dispatch_all(&self, frames: &mut FrameBuffer, events: &mut Vec<Arc<Event>>) -> Result<(), String> {
        let mut desk = lock(&self.desk);
        while let Some(frame) =
            frames.next_frame().map_err(|error| format!("the host sent nonsense: {error}"))?
        {
            let message = read_message(frame)?;
            desk.dispatch(message, events)?;
        }
        Ok(())
    }

    /// After a failed write: what the host said before it went, a Goodbye above all.
    fn read_what_is_left(&self) {
        let mut desk = lock(&self.desk);
        if desk.leading || desk.lost {
            return;
        }
        desk.leading = true;
        drop(desk);
        while self.read_once(RecvFlags::DONTWAIT) {}
        lock(&self.desk).leading = false;
    }

    /// The end of this session: everything pending completes with [`TRANSPORT_LOST`].
    fn lose(&self, reason: &str) {
        let mut events = Vec::new();
        let first = {
            let mut desk = lock(&self.desk);
            let first = desk.lose(&mut events);
            self.lost.store(true, Ordering::Release);
            self.helper_bell.notify_one();
            first
        };
        if first {
            // Ends a read or poll of another thread.
            let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
            for event in events {
                event.set();
            }
            if !reason.is_empty() {
                tell(format_args!("{reason}; every call now answers {TRANSPORT_LOST}"));
            }
        }
    }

    /// Ends the session on our side, silently.
    pub fn close(&self) {
        if self.generation == generation() {
            self.lose("");
        }
    }

    /// Sees to it that there is a helper thread once an event is armed.
    fn require_helper(self: &Arc<Self>, wakes: &Wakes) -> Result<(), SendError> {
        match wakes {
            Wakes::None | Wakes::Thread(_) => return Ok(()),
            Wakes::Once(..) | Wakes::EachTime(..) => {}
        }
        if std::mem::replace(&mut lock(&self.desk).helper_started, true) {
            return Ok(());
        }
        let channel = self.clone();
        super::helper::start(move || channel.help()).map_err(|error| {
            tell(format_args!("no thread can be made that delivers an event: {error}"));
            lock(&self.desk).helper_started = false;
            self.forget_wakes(wakes);
            SendError::NoThread
        })
    }

    /// The helper's life: sleeps while nothing is armed or a leader reads, else polls the stream
    /// without the role, and takes the role for one read when something is there.
    fn help(&self) {
        let mut desk = lock(&self.desk);
        while !desk.lost {
            if desk.armed == 0 || desk.leading {
                desk.helper_asleep = true;
                desk = self.helper_bell.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.helper_asleep = false;
                continue;
            }
            drop(desk);
            super::helper::wait_readable(self.stream.as_fd());
            desk = lock(&self.desk);
            if !desk.lost && !desk.leading && desk.armed > 0 {
                desk.leading = true;
                drop(desk);
                self.read_once(RecvFlags::DONTWAIT);
                desk = lock(&self.desk);
                desk.leading = false;
                // Not to itself: it goes on polling if nobody else reads.
                if let Some(follower) = desk.followers.last() {
                    follower.notify_one();
                }
            }
        }
    }

    /// Answers and wakes that are expected and not there yet.
    pub fn pending(&self) -> usize {
        lock(&self.desk).pending()
    }
}

fn read_message(frame: &[u8]) -> Result<FromHost, String> {
    let message: ToGuest = decode(frame).map_err(|error| format!("the host sent nonsense: {error}"))?;
    from_host(message).map_err(|error| format!("the host sent nonsense: {error}"))
}
