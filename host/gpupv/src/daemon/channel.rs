//! One data channel: bytes of a guest process become calls of the kernel.
//!
//! States: *fresh* (only Hello is allowed), *open* (a process), *closed*. What breaks the protocol closes
//! this stream with a logged reason and a Goodbye; nobody else is disturbed.

use std::sync::Arc;

use d3dkmt::Call;
use dxgkrnl::{ProcessId, VmId};
use proto::channel::{ToGuest, ToHost, Welcome, to_guest, to_host};
use proto::convert::{ConvertError, call_from_body};
use proto::frame::{self, FrameBuffer, FrameError};
use proto::{Message as _, PROTOCOL_VERSION};

use super::guest::{Guest, Sink};
use super::limits::CALLS_PER_TURN_MAX;
use super::seat::{Dirty, Seat};

/// How a guest broke the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("frame {frame}: {source}")]
    Frame { frame: u64, source: FrameError },
    #[error("frame {frame}: {source}")]
    Convert { frame: u64, source: ConvertError },
    #[error("frame {frame}: the message has no body, or one of a kind unknown to version {PROTOCOL_VERSION}")]
    NoBody { frame: u64 },
    #[error("the stream begins with something else than Hello")]
    NoHello,
    #[error(
        "the guest speaks protocol version {0}, this daemon speaks {PROTOCOL_VERSION}: rebuild libdxcore.so and the daemon from one version"
    )]
    Version(u32),
    #[error("the token of the stream is unknown or used up")]
    Token,
    #[error("the token belongs to a process of vm {of}, the stream comes from vm {from}")]
    WrongVm { of: u32, from: u32 },
    #[error("the token belongs to process {of}, the stream to process {stream}")]
    WrongProcess { of: u32, stream: u32 },
    #[error("the stream ended inside a frame, {0} bytes after its start")]
    CutOff(usize),
    #[error("the stream is cut off: too much waits to be read by the guest")]
    NotReading,
}

/// The frame that says why a stream is closed.
pub fn goodbye(reason: &str) -> ToGuest {
    ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Goodbye(reason.into())) }
}

/// See the module.
pub struct Channel {
    seat: Arc<Seat>,
    vm: VmId,
    /// Whose stream this is, where that is known before Hello.
    process: Option<ProcessId>,
    frames: FrameBuffer,
    count: u64,
    /// Taken by the guest's outbox once Hello is accepted.
    sink: Option<Sink>,
    guest: Option<Arc<Guest>>,
    /// What a turn has, empty between turns: request and call.
    calls: Vec<(u64, Call)>,
    dirty: Dirty,
}

impl Channel {
    pub fn new(seat: Arc<Seat>, vm: VmId, process: Option<ProcessId>, sink: Sink) -> Self {
        Channel {
            seat,
            vm,
            process,
            frames: FrameBuffer::default(),
            count: 0,
            sink: Some(sink),
            guest: None,
            calls: Vec::new(),
            dirty: Dirty::default(),
        }
    }

    pub fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// The process, once Hello is accepted.
    pub fn guest(&self) -> Option<&Arc<Guest>> {
        self.guest.as_ref()
    }

    /// Takes bytes of the stream and works off every whole frame. Answers may still be held back:
    /// [`Channel::idle`] sends them.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.take_in(bytes);
        while self.work_off(CALLS_PER_TURN_MAX)? {}
        Ok(())
    }

    /// Takes bytes of the stream; [`Channel::work_off`] looks at them.
    pub fn take_in(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
    }

    /// Where the rest of a big frame under way is to be put, with room for it: see [`FrameBuffer::tail`].
    pub fn tail(&mut self) -> Option<&mut Vec<u8>> {
        const BIG_BYTES: usize = 4096;
        (self.frames.missing() > BIG_BYTES).then(|| self.frames.tail(0))
    }

    /// A turn: works off so many whole frames at most; true if it stopped there and more may be at hand.
    pub fn work_off(&mut self, frames_max: usize) -> Result<bool, ProtocolError> {
        self.seat.give_way();
        let result = self.work_off_frames(frames_max);
        self.frames.release();
        match result {
            Ok(_) if self.guest.as_ref().is_some_and(|guest| !guest.outbox.is_connected()) => {
                Err(ProtocolError::NotReading)
            }
            other => other,
        }
    }

    fn work_off_frames(&mut self, frames_max: usize) -> Result<bool, ProtocolError> {
        let mut calls = std::mem::take(&mut self.calls);
        let result = self.decode_frames(frames_max, &mut calls);
        // What came before a breach of the protocol is done like everything else.
        if let Some(guest) = &self.guest {
            self.seat.expect(guest.id, &calls);
            for (request, call) in calls.drain(..) {
                self.seat.call(guest.id, request, call, &mut self.dirty);
                // A wake of somebody else is never held back for the rest of this batch.
                self.dirty.flush_others(guest.id);
            }
        }
        self.calls = calls;
        result
    }

    /// Takes so many whole frames at most; true if there were as many.
    fn decode_frames(
        &mut self,
        frames_max: usize,
        calls: &mut Vec<(u64, Call)>,
    ) -> Result<bool, ProtocolError> {
        for _ in 0..frames_max {
            let frame = self.count;
            let message = match self.frames.next_frame() {
                Ok(None) => return Ok(false),
                Ok(Some(bytes)) => frame::decode::<ToHost>(bytes),
                Err(source) => Err(source),
            };
            let message = message.map_err(|source| ProtocolError::Frame { frame, source })?;
            self.count += 1;
            self.seat.counters.frames_received.add(1);
            let body = message.body.ok_or(ProtocolError::NoBody { frame })?;
            match (&self.guest, body) {
                (None, to_host::Body::Hello(hello)) => self.hello(hello.version, &hello.token)?,
                (None, _) => return Err(ProtocolError::NoHello),
                (Some(_), body) => {
                    let call =
                        call_from_body(body).map_err(|source| ProtocolError::Convert { frame, source })?;
                    calls.push((message.request, call));
                }
            }
        }
        Ok(true)
    }

    fn hello(&mut self, version: u32, token: &[u8]) -> Result<(), ProtocolError> {
        if version != PROTOCOL_VERSION {
            return Err(ProtocolError::Version(version));
        }
        let token = token.try_into().map_err(|_| ProtocolError::Token)?;
        let guest = self.seat.redeem(&token, |guest| self.is_stream_of(guest))?;
        let guest = guest.ok_or(ProtocolError::Token)?;
        if let Some(sink) = self.sink.take() {
            guest.outbox.connect(sink);
        }
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            process: guest.id.0,
            recording: self.seat.recording,
            async_submission: self.seat.async_submission(guest.vm),
            status_slot_plus_one: self.seat.status_slot(guest.id).map_or(0, |slot| slot + 1),
        };
        let frame = ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Welcome(welcome)) };
        // An outbox that was connected a line above has room.
        let _ = guest.outbox.append(&frame);
        guest.outbox.flush();
        tracing::debug!("process {} (pid {}, {}) connected", guest.id.0, guest.pid, guest.name);
        self.guest = Some(guest);
        Ok(())
    }

    fn is_stream_of(&self, guest: &Guest) -> Result<(), ProtocolError> {
        if guest.vm != self.vm {
            return Err(ProtocolError::WrongVm { of: guest.vm.0, from: self.vm.0 });
        }
        match self.process {
            Some(stream) if stream != guest.id => {
                Err(ProtocolError::WrongProcess { of: guest.id.0, stream: stream.0 })
            }
            _ => Ok(()),
        }
    }

    /// The batch is over: what was held back goes out.
    pub fn idle(&mut self) {
        self.dirty.flush();
        self.seat.flush_trace();
    }

    /// The guest will send no more. A frame that was cut off is a breach of the protocol.
    pub fn end_of_stream(&self) -> Result<(), ProtocolError> {
        match self.frames.pending() {
            0 => Ok(()),
            pending => Err(ProtocolError::CutOff(pending)),
        }
    }

    /// Says why the stream is closed: to the log, and to the guest if it still listens.
    pub fn close_with(&mut self, error: &ProtocolError) {
        self.seat.counters.protocol_errors.add(1);
        let process = self.guest.as_ref().map_or("a stream without a process".into(), |guest| {
            format!("process {} (pid {}, {})", guest.id.0, guest.pid, guest.name)
        });
        tracing::warn!("vm {}, {process}: {error}; the stream is closed", self.vm.0);
        let goodbye = goodbye(&error.to_string());
        match (&self.guest, &self.sink) {
            (Some(guest), _) => {
                self.dirty.flush();
                guest.outbox.send_last(&goodbye);
            }
            (None, Some(sink)) => {
                let _ = sink.send(&goodbye.encode_length_delimited_to_vec());
            }
            (None, None) => {}
        }
    }
}
