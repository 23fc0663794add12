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

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
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
}

impl From<SendError> for NtStatus {
    fn from(error: SendError) -> NtStatus {
        match error {
            SendError::TooLong { .. } => NtStatus::INVALID_PARAMETER,
            SendError::Lost => TRANSPORT_LOST,
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
    inbound: Mutex<FrameBuffer>,
    outbound: Mutex<Vec<u8>>,
    desk: Mutex<Desk>,
    /// Where the helper sleeps while it is not needed.
    helper_bell: Condvar,
    next_request: AtomicU64,
    messages_sent: AtomicU64,
    lost: AtomicBool,
}

/// The stream as a source of bytes.
struct Source<'a>(BorrowedFd<'a>, RecvFlags);

impl Read for Source<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::net::recv(self.0, &mut *bytes, self.1)).map(|(count, _)| count)?)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    pub fn new(stream: SessionDescriptor) -> Channel {
        Channel {
            stream,
            generation: generation(),
            inbound: Mutex::default(),
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
    pub fn post(&self, call: &Call, wakes: &Wakes) -> Result<(), SendError> {
        if !self.expect_wakes(wakes, None) {
            return Err(SendError::Lost);
        }
        self.send(&call_to_frame(0, call)).inspect_err(|_| self.forget_wakes(wakes))
    }

    /// Makes a call and waits for its answer; `wakes` are expected from before it is sent, and
    /// forgotten again if it is refused.
    pub fn call(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Answer {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bell = Bell::default();
        if self.is_lost() || !self.expect_wakes(wakes, Some((request, &bell))) {
            return Answer::refused(TRANSPORT_LOST);
        }
        if let Wakes::Once(..) | Wakes::EachTime(..) = wakes
            && let Err(error) = self.require_helper()
        {
            tell(format_args!("no thread can be made for an event: {error}"));
            self.forget_wakes(wakes);
            return Answer::refused(NtStatus::NO_MEMORY);
        }
        let answer = match self.send(&call_to_frame(request, call)) {
            Err(error @ SendError::TooLong { .. }) => {
                lock(&self.desk).forget_answer(request);
                Answer::refused(error.into())
            }
            // Lost: the desk has completed it already.
            Ok(()) | Err(SendError::Lost) => {
                self.wait_until(&bell, |desk| desk.collect_answer(request))
            }
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

    fn forget_wakes(&self, wakes: &Wakes) {
        match wakes {
            Wakes::None => {}
            Wakes::Thread(event) | Wakes::Once(event, _) | Wakes::EachTime(event, _) => self.forget_wake(*event),
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
                self.pass_on(&desk);
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
    fn pass_on(&self, desk: &Desk) {
        if desk.leading {
            return;
        }
        match desk.followers.last() {
            Some(follower) => follower.notify_one(),
            None if desk.armed > 0 => self.helper_bell.notify_one(),
            None => {}
        }
    }

    /// One read by whoever has the role, and everything that came with it.
    fn read_once(&self, flags: RecvFlags) {
        let mut inbound = lock(&self.inbound);
        let end = match inbound.read_from(&mut Source(self.stream.as_fd(), flags), READ_BYTES) {
            Ok(0) => Some("the host closed the stream".to_owned()),
            Ok(_) => None,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => Some(format!("reading from the host failed: {error}")),
        };
        let mut events = Vec::new();
        let end = self.dispatch_all(&mut inbound, &mut events).err().or(end);
        drop(inbound);
        for event in events {
            event.set();
        }
        if let Some(reason) = end {
            self.lose(&reason);
        }
    }

    fn dispatch_all(&self, inbound: &mut FrameBuffer, events: &mut Vec<Arc<Event>>) -> Result<(), String> {
        let mut desk = lock(&self.desk);
        while let Some(frame) = inbound.next_frame().map_err(|error| format!("the host sent nonsense: {error}"))? {
            let message = read_message(frame)?;
            desk.dispatch(message, events)?;
        }
        if inbound.pending() == 0 && desk.lost {
            inbound.release();
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
        let before = lock(&self.inbound).pending();
        self.read_once(RecvFlags::DONTWAIT);
        let _ = before;
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

    /// Sees to it that the helper thread runs while events are armed.
    fn require_helper(self: &Arc<Self>) -> std::io::Result<()> {
        {
            let mut desk = lock(&self.desk);
            if std::mem::replace(&mut desk.helper_started, true) {
                self.helper_bell.notify_one();
                return Ok(());
            }
        }
        let channel = self.clone();
        super::helper::start(move || channel.help()).inspect_err(|_| lock(&self.desk).helper_started = false)
    }

    /// The helper's life: sleeps while nothing is armed or a leader reads, else polls the stream
    /// without the role, and takes the role for one read when something is there.
    fn help(&self) {
        let mut desk = lock(&self.desk);
        while !desk.lost {
            if desk.armed == 0 || desk.leading {
                desk = self.helper_bell.wait(desk).unwrap_or_else(PoisonError::into_inner);
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

    /// Nothing is expected and nobody waits: what every test ends with.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.desk).is_idle()
    }
}

fn read_message(frame: &[u8]) -> Result<FromHost, String> {
    let message: ToGuest = decode(frame).map_err(|error| format!("the host sent nonsense: {error}"))?;
    from_host(message).map_err(|error| format!("the host sent nonsense: {error}"))
}
