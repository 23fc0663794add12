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
//! set or a thread woken; only `outbound` is held during a write, and only the leader's `inbound`
//! during a read. This file has the writing half; `reading` has the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use d3dkmt::{Call, EventId, NtStatus, Reply, WaitOutcome};
use proto::Message;
use proto::channel::ToHost;
use proto::convert::call_to_frame;
use proto::frame::{FrameBuffer, append};
use proto::limits::FRAME_BYTES_MAX;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::desk::{Answer, Bell, Desk, TRANSPORT_LOST};
use super::event::Event;
use super::helper::Watch;
use super::reading::Inbound;
use crate::fork::{SessionDescriptor, generation};
use crate::limits::WRITE_BUFFER_KEPT_BYTES;

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
    pub(super) stream: SessionDescriptor,
    /// Whose process this is; a forked child is another one.
    pub(super) generation: u32,
    pub(super) inbound: Mutex<Inbound>,
    outbound: Mutex<Vec<u8>>,
    pub(super) desk: Mutex<Desk>,
    /// Where the helper sleeps, once there is one.
    pub(super) watch: OnceLock<Watch>,
    next_request: AtomicU64,
    messages_sent: AtomicU64,
    pub(super) lost: AtomicBool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// `inbound` holds what came after the Welcome.
    pub fn new(stream: SessionDescriptor, frames: FrameBuffer) -> Channel {
        Channel {
            stream,
            generation: generation(),
            inbound: Mutex::new(Inbound::new(frames)),
            outbound: Mutex::default(),
            desk: Mutex::default(),
            watch: OnceLock::new(),
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
            Err(_) => {
                self.read_to_the_end();
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
            self.pass_on(lock(&self.desk));
        }
        sent
    }

    /// Makes a call and waits for its answer; `wakes` are expected from before it is sent, and
    /// forgotten again if it is refused.
    pub fn call(self: &Arc<Self>, call: &Call, wakes: &Wakes) -> Answer {
        let answer = self.exchange(call, wakes, |desk, request| desk.collect_answer(request));
        if !answer.status.is_success() {
            self.forget_wakes(wakes);
        }
        answer
    }

    /// Makes a call that registers a wait of the name `event`, and waits until that wait is over: as
    /// long as it takes. Anything but a registered wait is answered at once.
    pub fn call_and_wait(self: &Arc<Self>, call: &Call, event: EventId) -> Answer {
        const REGISTERED: Reply = Reply::Wait(WaitOutcome::Registered);
        let mut registered = false;
        let answer = self.exchange(call, &Wakes::Thread(event), |desk, request| {
            if !registered {
                let answer = desk.collect_answer(request)?;
                if !answer.status.is_success() || answer.reply != REGISTERED {
                    return Some(answer);
                }
                registered = true;
            }
            let reply = Reply::Wait(WaitOutcome::Satisfied);
            desk.collect_wake(event).map(|status| Answer { status, reply })
        });
        self.forget_wake(event);
        answer
    }

    fn exchange(
        self: &Arc<Self>,
        call: &Call,
        wakes: &Wakes,
        mut ready: impl FnMut(&mut Desk, u64) -> Option<Answer>,
    ) -> Answer {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bell = Bell::default();
        if self.is_lost() || !self.expect_wakes(wakes, Some((request, &bell))) {
            return Answer::refused(TRANSPORT_LOST);
        }
        let sent = self.require_helper(wakes).and_then(|()| self.send(&call_to_frame(request, call)));
        match sent {
            Err(error @ (SendError::TooLong { .. } | SendError::NoThread)) => {
                let mut desk = lock(&self.desk);
                desk.forget_answer(request);
                self.pass_on(desk);
                Answer::refused(error.into())
            }
            // Lost: the desk completes it.
            Ok(()) | Err(SendError::Lost) => self.wait_until(&bell, |desk| ready(desk, request)),
        }
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
            Wakes::Thread(event) => {
                desk.expect_wake(*event, answer.map_or_else(Bell::default, |(_, bell)| bell.clone()));
            }
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

    /// Answers and wakes that are expected and not there yet.
    pub fn pending(&self) -> usize {
        lock(&self.desk).pending()
    }
}
