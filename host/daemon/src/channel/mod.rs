//! One data channel: bytes of a client process become calls of the kernel.
//!
//! States: *fresh* (only Hello is allowed), *open* (a process), *closed*. A protocol violation closes this stream with
//! a logged reason and a Goodbye; other streams are not affected.

use std::collections::VecDeque;
use std::sync::Arc;

use d3dkmt::{AllocationInfo, Call, GpuVaOperation};
use dxgkrnl::{ProcessId, VmId};
use frame_ring::BadIndex;
use proto::channel::{Hello, Times, ToGuest, ToHost, to_guest, to_host};
use proto::convert::{ConvertError, call_from_body};
use proto::frame::{FrameError, decode, read_short_call};
use proto::session_frames::SessionFrames;
use proto::version::NoCommonVersion;
use proto::{Message as _, Versions};

use super::client_process::{ClientProcess, Sink, SinkStream};
use super::held_bytes::{HeldByProcess, OverLimit};
use super::kernel_host::{ClientTimestamps, FlushList, KernelHost, ReceivedCall, SessionHello};
use super::limits::{HELLO_BYTES_MAX, ONE_WAY_ACKNOWLEDGED_EVERY, RING_BYTES_PER_TURN_MAX};
use super::log_lines::Subject;
use super::peer::Peer;
use super::pending_connections::{PendingConnection, peer_at};
use super::rings::{RingInlet, RingWatch, Rings};
use super::timer::monotonic;

/// A client's violation of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("frame {frame}: {source}")]
    Frame { frame: u64, source: FrameError },
    #[error("frame {frame}: {source}")]
    Convert { frame: u64, source: ConvertError },
    #[error(
        "frame {frame}: the message has no body, or one of a kind unknown to this daemon, which speaks {}",
        Versions::OURS
    )]
    NoBody { frame: u64 },
    #[error("the stream does not begin with Hello: send it first, with the token that the broker gave")]
    NoHello,
    #[error("the first frame has more than {HELLO_BYTES_MAX} bytes, so it is no Hello")]
    LongHello,
    #[error(transparent)]
    Version(NoCommonVersion),
    #[error(
        "the process claims fence memory at {0:#x}, where no process can map it: give the page of slot 0, or 0"
    )]
    FenceAddress(u64),
    #[error(
        "the token of the stream is unknown or used up: the broker gives one of 16 bytes, for one stream"
    )]
    Token,
    #[error("the token belongs to a process of vm {of}, the stream comes from vm {from}")]
    WrongVm { of: u32, from: u32 },
    #[error("the token belongs to process {of}, the stream to process {stream}")]
    WrongProcess { of: u32, stream: u32 },
    #[error("the stream ended inside a frame, {0} bytes after its start")]
    CutOff(usize),
    #[error(transparent)]
    Ring(BadIndex),
    #[error("a frame is on the stream that the ring did not announce")]
    Unannounced,
    #[error(
        "the client sent {0} descriptors on the stream, which is for frames only: send them to the broker"
    )]
    Descriptors(usize),
    /// Its Goodbye, if any, was sent at the cut-off.
    #[error("the process was cut off")]
    WasCutOff,
    /// No violation: the broker has ended the process, and only its stream is left.
    #[error("the process is detached")]
    Detached,
    #[error("frame {frame} came before the Welcome: wait for that after Hello")]
    BeforeWelcome { frame: u64 },
    #[error("the session cannot be resumed: {0}")]
    NotResumed(String),
}

/// Returns the frame that says why a stream is closed.
pub fn goodbye(reason: &str) -> ToGuest {
    ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Goodbye(reason.into())) }
}

/// One data channel: the stream of one client process.
pub struct Channel {
    kernel_host: Arc<KernelHost>,
    vm: VmId,
    peer: Peer,
    /// The process of this stream, where it is known before Hello.
    process: Option<ProcessId>,
    frames: SessionFrames,
    /// The ring from the process, once its Hello says that it uses it.
    ring: Option<RingInlet>,
    count: u64,
    /// Moved to the client's outbox once Hello is accepted.
    sink: Option<Sink>,
    client: Option<Arc<ClientProcess>>,
    /// Until Hello is accepted.
    pending_connection: Option<PendingConnection>,
    /// Its Welcome is sent once the daemon has resumed. May be out of date: see [`Self::awaits_welcome`].
    may_await_welcome: bool,
    /// One-way calls since the client was last sent their number.
    one_way: u64,
    /// Calls of this turn. Between turns: calls that wait for the kernel's unfinished work of this process.
    calls: VecDeque<ReceivedCall>,
    /// Bytes that they were decoded from.
    calls_bytes: usize,
    /// The peer that has its unprocessed bytes, and those bytes once it has any.
    holder: Peer,
    unprocessed: Option<HeldByProcess>,
    /// Whether the last turn stopped before everything received was processed, as far as is known.
    has_more_calls: bool,
    /// The protocol violation that follows those calls.
    broken: Option<ProtocolError>,
    /// If the daemon asks for times: the timestamps of the next call.
    next_times: Option<Box<ClientTimestamps>>,
    /// The client's clock: 0 for the host's, else the number of its VM.
    clock: u32,
    /// When the thread that reads woke up, if that is known, and when it read last.
    awake_ns: u64,
    read_ns: u64,
    flush_list: FlushList,
}

impl Channel {
    pub fn new(kernel_host: Arc<KernelHost>, vm: VmId, process: Option<ProcessId>, sink: Sink) -> Self {
        let holder = sink.peer(vm);
        let peer = process.map_or(Peer::Vm(vm), Peer::Process);
        let (clock, pending_of) = match &sink.stream {
            SinkStream::Local { .. } => (0, peer),
            SinkStream::Vsock(connection) => (vm.0, peer_at(vm, connection.peer_port())),
        };
        let pending_connection = Some(kernel_host.pending_connections.accepted(pending_of, sink.closer()));
        Channel {
            kernel_host,
            vm,
            peer,
            process,
            pending_connection,
            frames: SessionFrames::default(),
            ring: None,
            count: 0,
            sink: Some(sink),
            client: None,
            may_await_welcome: false,
            one_way: 0,
            calls: VecDeque::new(),
            calls_bytes: 0,
            holder,
            unprocessed: None,
            has_more_calls: false,
            broken: None,
            next_times: None,
            clock,
            awake_ns: 0,
            read_ns: 0,
            flush_list: FlushList::default(),
        }
    }

    pub fn kernel_host(&self) -> &Arc<KernelHost> {
        &self.kernel_host
    }

    /// The process, once Hello is accepted.
    pub fn client(&self) -> Option<&Arc<ClientProcess>> {
        self.client.as_ref()
    }

    /// Buffers bytes of the stream; [`Channel::turn`] processes them.
    pub fn take_in(&mut self, bytes: &[u8]) {
        self.frames.stream().extend(bytes);
        self.was_read();
    }

    /// Records the time of a read.
    pub fn was_read(&mut self) {
        if self.kernel_host.times {
            self.read_ns = monotonic();
        }
    }

    /// Records when the reading thread woke up.
    pub fn awake_since(&mut self, awake_ns: u64) {
        self.awake_ns = awake_ns;
    }

    /// The buffer for the rest of a large frame that is incomplete, with room for it: see [`proto::frame::FrameBuffer::tail`].
    pub fn tail(&mut self) -> Option<&mut Vec<u8>> {
        const BIG_BYTES: usize = 4096;
        let frames = self.frames.stream();
        (frames.missing() > BIG_BYTES).then(|| frames.tail(0))
    }

    /// The ring from the process, if its session uses rings.
    pub fn ring(&mut self) -> Option<&mut RingInlet> {
        self.ring.as_mut()
    }

    /// Whether its session uses rings.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether the ring has bytes that a turn may take.
    pub fn ring_has_bytes(&self) -> bool {
        !self.awaits_stream() && self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }

    /// For looks at the ring until its next turn; `None` if its session has no rings.
    pub fn watch_ring(&self) -> Option<RingWatch> {
        self.ring.as_ref().map(|ring| ring.watch(!self.awaits_stream()))
    }

    /// Says that no thread looks at the ring. False if it has bytes that a turn may take.
    pub fn rest_ring(&mut self) -> bool {
        self.awaits_stream() || self.ring.as_mut().is_none_or(RingInlet::sleep)
    }

    /// Whether the stream has bytes whose announcement in the ring was not taken yet: no more of it is read until then.
    pub fn has_unannounced(&mut self) -> bool {
        self.frames.has_unannounced()
    }

    /// Whether the next bytes come by the stream.
    pub fn awaits_stream(&self) -> bool {
        self.frames.awaits_stream()
    }

    /// Takes what is published in the ring: what one turn may take, or all. Returns the number of bytes. What the stream
    /// had before must have been taken in.
    pub fn take_ring(&mut self, all: bool) -> Result<usize, ProtocolError> {
        // What follows in the ring waits there until the stream has led back to it.
        if self.awaits_stream() {
            return Ok(0);
        }
        let (Some(ring), Some(to)) = (&mut self.ring, self.frames.ring()) else { return Ok(0) };
        let all = all || to.missing() > RING_BYTES_PER_TURN_MAX;
        let taken = ring.take(to.tail(0), all).map_err(ProtocolError::Ring)?;
        if taken > 0 {
            self.was_read();
        }
        Ok(taken)
    }

    /// Whether the last turn stopped before everything received was processed. The next one needs no more bytes.
    pub fn has_more(&self) -> bool {
        self.has_more_calls
    }

    /// Bytes received and not processed.
    pub fn pending_bytes(&self) -> usize {
        self.frames.pending() + if self.calls.is_empty() { 0 } else { self.calls_bytes }
    }

    /// Bytes that they take here. Calls that wait are decoded, and take more memory than their frames: eight times as much
    /// if they list small numbers, and their lists of structures still more.
    fn held_bytes(&self) -> usize {
        let lists = || self.calls.iter().map(|call| list_bytes(&call.call)).sum::<usize>();
        self.frames.pending() + if self.calls.is_empty() { 0 } else { 8 * self.calls_bytes + lists() }
    }

    /// Counts its unprocessed bytes with those of its user or VM. If they are over the limit, cuts off the process that
    /// has had some the longest.
    pub fn count_unprocessed(&mut self) {
        let bytes = self.held_bytes();
        if bytes == 0 && self.unprocessed.is_none() {
            return;
        }
        // Before Hello a stream has few bytes, and not for long.
        let Some(client) = &self.client else { return };
        let unprocessed = self.unprocessed.get_or_insert_with(|| {
            HeldByProcess::new(&self.kernel_host.budgets.unprocessed, self.holder, client)
        });
        let over = unprocessed.set(bytes);
        over.into_iter().for_each(OverLimit::cut_off);
    }

    /// The stream has ended: what is unprocessed stays so.
    pub fn count_no_more(&mut self) {
        self.unprocessed = None;
    }

    /// Runs a turn: one step of the kernel's unfinished work of this process, or else at most `frames_max` whole frames.
    /// True if it stopped there and more may be at hand: other streams have their turns first. Answers may still be held
    /// back: [`Channel::idle`] sends them.
    pub fn turn(&mut self, frames_max: usize) -> Result<bool, ProtocolError> {
        self.kernel_host.yield_to_waiters();
        let has_more = self.work_off_frames(frames_max);
        self.frames.release();
        self.has_more_calls = *has_more.as_ref().unwrap_or(&false);
        let has_more = has_more?;
        let has_ended = self.client.as_ref().is_some_and(|client| !client.outbox.is_connected());
        if !has_ended || self.awaits_welcome() {
            return Ok(has_more);
        }
        let is_cut_off = self.client.as_ref().is_some_and(|client| client.outbox.is_cut_off());
        Err(if is_cut_off { ProtocolError::WasCutOff } else { ProtocolError::Detached })
    }

    fn work_off_frames(&mut self, frames_max: usize) -> Result<bool, ProtocolError> {
        // Unfinished work of earlier calls comes first and uses the turn.
        if self.client.as_ref().is_some_and(|client| self.kernel_host.continue_backlog(client.id)) {
            return Ok(true);
        }
        let mut calls = std::mem::take(&mut self.calls);
        let mut may_have_more = true;
        if calls.is_empty() {
            let (before, count) = (self.frames.pending(), self.count);
            let decoded = self.decode_frames(frames_max, &mut calls);
            self.kernel_host.counters.frames_received.add(self.count - count);
            self.calls_bytes = before - self.frames.pending();
            match decoded {
                Ok(has_more) => may_have_more = has_more,
                // Calls before a protocol violation are still made.
                Err(broken) => self.broken = Some(broken),
            }
            if let Some(client) = &self.client {
                self.kernel_host.prefetch(client.id, &calls);
                client.calls.add(calls.len() as u64);
                self.one_way += calls.iter().filter(|call| call.request == 0).count() as u64;
            }
        }
        if let Some(client) = &self.client {
            while !calls.is_empty() && self.kernel_host.calls(client.id, &mut calls, &mut self.flush_list) {
                // Wakes of other clients are never held back for the rest of this batch.
                self.flush_list.flush_others(client.id);
            }
        }
        self.calls = calls;
        if self.one_way >= ONE_WAY_ACKNOWLEDGED_EVERY {
            self.tell_one_way();
        }
        if !self.calls.is_empty() {
            return Ok(true);
        }
        self.broken.take().map_or(Ok(may_have_more), Err)
    }

    /// Sends the client the number of its applied one-way calls. With a journal, a client retains them until then.
    fn tell_one_way(&mut self) {
        self.one_way = 0;
        let Some(client) = &self.client else { return };
        if let Some(calls) = self.kernel_host.sessions().one_way_calls(client.id) {
            let body = Some(to_guest::Body::Applied(calls));
            // A client that does not read is detected at an answer or a wake.
            let _ = client.outbox.append(&ToGuest { request: 0, status: 0, body });
            client.outbox.flush();
        }
    }

    /// Decodes at most `frames_max` whole frames; true if there were as many.
    fn decode_frames(
        &mut self,
        frames_max: usize,
        calls: &mut VecDeque<ReceivedCall>,
    ) -> Result<bool, ProtocolError> {
        for _ in 0..frames_max {
            let awaits_welcome = self.may_await_welcome && self.awaits_welcome();
            let frame = self.count;
            if self.client.is_none() && self.frames.stream().missing() > HELLO_BYTES_MAX {
                return Err(ProtocolError::LongHello);
            }
            let message: Result<ToHost, _> = match self.frames.next_frame() {
                Ok(None) => return self.check_announced().map(|()| false),
                Ok(Some(bytes)) => {
                    if self.client.is_some()
                        && !awaits_welcome
                        && let Some((request, call)) = read_short_call(bytes)
                    {
                        self.count += 1;
                        let timestamps = self.next_times.take();
                        calls.push_back(ReceivedCall { request, call, timestamps });
                        continue;
                    }
                    decode(bytes)
                }
                Err(source) => Err(source),
            };
            let message = message.map_err(|source| ProtocolError::Frame { frame, source })?;
            self.count += 1;
            let body = message.body.ok_or(ProtocolError::NoBody { frame })?;
            match (&self.client, body) {
                (None, to_host::Body::Hello(hello)) => {
                    self.hello(&hello)?;
                }
                (None, _) => return Err(ProtocolError::NoHello),
                (Some(_), _) if awaits_welcome => return Err(ProtocolError::BeforeWelcome { frame }),
                (Some(client), to_host::Body::Received(received)) => {
                    self.kernel_host.sessions().acknowledge(client.id, received)
                }
                (Some(_), to_host::Body::Times(times)) => self.record_times(times),
                (Some(_), to_host::Body::InRing) if self.frames.return_to_ring() => {}
                (Some(_), body) => {
                    let call =
                        call_from_body(body).map_err(|source| ProtocolError::Convert { frame, source })?;
                    let (request, timestamps) = (message.request, self.next_times.take());
                    calls.push_back(ReceivedCall { request, call, timestamps });
                }
            }
        }
        Ok(true)
    }

    /// Checks that no frame is on the stream that the ring did not announce.
    fn check_announced(&mut self) -> Result<(), ProtocolError> {
        let is_drained = self.ring.as_ref().is_some_and(RingInlet::is_empty);
        if is_drained && self.frames.has_unannounced() { Err(ProtocolError::Unannounced) } else { Ok(()) }
    }

    /// Records the timestamps of the next call; ignored unless the daemon asks for them.
    fn record_times(&mut self, times: Times) {
        let Some(client) = self.client.as_ref().filter(|_| self.kernel_host.times) else { return };
        let (clock, awake_ns, read_ns) = (self.clock, self.awake_ns, self.read_ns);
        let about_a_call = times.called_ns != 0;
        let timestamps = ClientTimestamps { times, clock, awake_ns, read_ns };
        if about_a_call {
            // A second one before the call replaces the first.
            self.next_times = Some(Box::new(timestamps));
        } else {
            self.kernel_host.traces().record_times(client.id, timestamps);
        }
    }

    fn hello(&mut self, hello: &Hello) -> Result<(), ProtocolError> {
        let greeting = SessionHello::of(hello)?;
        let token = hello.token.as_slice().try_into().map_err(|_| ProtocolError::Token)?;
        let client = self.kernel_host.sessions().redeem(&token, |client| self.is_stream_of(client))?;
        let client = client.ok_or(ProtocolError::Token)?;
        let Some(mut sink) = self.sink.take() else { return Err(ProtocolError::Token) };
        let client = self.client.insert(client);
        let rings = client.outbox.take_offered_rings().filter(|_| hello.rings);
        if let Some((outlet, inlet)) = rings.and_then(Rings::ends) {
            sink.ring = Some(outlet);
            self.ring = Some(inlet);
            self.frames.begin_ring();
        }
        self.pending_connection = None;
        if self.kernel_host.resumption().is_resuming() {
            self.may_await_welcome = true;
            let returned = self.kernel_host.resumption().is_back(client, sink, greeting);
            returned.map_err(|error| ProtocolError::NotResumed(format!("{error:#}")))
        } else {
            let greeted = self.kernel_host.sessions().greet(client, sink, greeting);
            greeted.map_err(|error| ProtocolError::NotResumed(error.to_string()))
        }
    }

    /// Whether its Hello is accepted and its Welcome not yet sent.
    fn awaits_welcome(&mut self) -> bool {
        self.may_await_welcome &= self.client.as_ref().is_some_and(|client| !client.outbox.is_connected());
        self.may_await_welcome
    }

    fn is_stream_of(&self, client: &ClientProcess) -> Result<(), ProtocolError> {
        if client.vm != self.vm {
            return Err(ProtocolError::WrongVm { of: client.vm.0, from: self.vm.0 });
        }
        match self.process {
            Some(stream) if stream != client.id => {
                Err(ProtocolError::WrongProcess { of: client.id.0, stream: stream.0 })
            }
            _ => Ok(()),
        }
    }

    /// Sends what was held back during the batch.
    pub fn idle(&mut self) {
        self.flush_list.flush();
    }

    /// Checks the stream at its end. An incomplete frame is a protocol violation.
    pub fn end_of_stream(&self) -> Result<(), ProtocolError> {
        match self.frames.pending() {
            0 => Ok(()),
            pending => Err(ProtocolError::CutOff(pending)),
        }
    }

    /// Logs why the stream is closed, and sends the reason to the client.
    pub fn close_with(&mut self, error: &ProtocolError) {
        if matches!(error, ProtocolError::Detached) {
            return;
        }
        self.kernel_host.counters.protocol_errors.add(1);
        let process = self.client.as_ref().map_or("a stream without a process".into(), |client| {
            format!("process {} (pid {}, {})", client.id.0, client.pid, client.name)
        });
        let about = self.client.as_ref().map_or(self.peer.into(), Subject::of);
        self.kernel_host
            .log
            .warn(about, || format!("vm {}, {process}: {error}; the stream is closed", self.vm.0));
        let goodbye = goodbye(&error.to_string());
        match (&self.client, &self.sink) {
            (_, Some(sink)) => {
                let _ = sink.send(&goodbye.encode_length_delimited_to_vec());
            }
            (Some(client), None) => {
                self.flush_list.flush();
                client.outbox.send_last(&goodbye);
            }
            (None, None) => {}
        }
    }
}

/// Bytes of the structures that a call lists.
fn list_bytes(call: &Call) -> usize {
    match call {
        Call::CreateAllocation { create } => create.allocations.capacity() * size_of::<AllocationInfo>(),
        Call::UpdateGpuVirtualAddress { operations, .. } => {
            operations.capacity() * size_of::<GpuVaOperation>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
