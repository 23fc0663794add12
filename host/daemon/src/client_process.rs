//! A client process as the daemon serves it: its identity, and what waits to be sent to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use d3dkmt::text::printable;
use d3dkmt::{EventId, NtStatus, WakeTarget};
use dxgkrnl::{ProcessId, VmId};
use frame_ring::{BadIndex, KICK, Way};
use proto::Message as _;
use proto::channel::{ToGuest, to_guest};
use proto::convert::{host_time_to_frame, wake_to_frame};
use proto::limits::NAME_BYTES_MAX;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::Shutdown;
use vsock_device::locks::{Rank, Ranked, RankedGuard};
use vsock_device::{Connection, SendError};

use super::channel::goodbye;
use super::closing::ClientFd;
use super::counters::Counter;
use super::held_bytes::{HeldByProcess, OverLimit};
use super::limits::{OUTBOX_BYTES_MAX, UNREAD_BYTES_COUNTED};
use super::peer::Peer;
use super::registered_events::{EventSink, RegisterError, RegisteredEvents};
use super::rings::{RingLease, RingOutlet, Rings};

/// Returns a process's name without unprintable characters, cut to [`NAME_BYTES_MAX`].
pub fn kept_name(name: &str) -> String {
    let mut name = printable(name);
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    name.shrink_to_fit();
    name
}

/// One client process.
#[derive(Debug)]
pub struct ClientProcess {
    pub id: ProcessId,
    pub vm: VmId,
    pub pid: u32,
    pub name: String,
    pub outbox: Outbox,
    /// Calls of this process that were passed to the kernel.
    pub calls: Counter,
    /// guestd has asked to detach it.
    pub is_leaving: AtomicBool,
}

impl ClientProcess {
    /// A client process without a stream.
    pub fn new(id: ProcessId, vm: VmId, pid: u32, name: String) -> ClientProcess {
        let (outbox, calls, is_leaving) = Default::default();
        ClientProcess { id, vm, pid, name, outbox, calls, is_leaving }
    }
}

/// Where an outbox writes.
#[derive(Debug)]
pub struct Sink {
    pub stream: SinkStream,
    /// The ring to the process, if its session uses rings.
    pub ring: Option<RingOutlet>,
}

#[derive(Debug, Clone)]
pub enum SinkStream {
    /// A non-blocking Unix stream in the local loop's epoll set, under `key`.
    Local {
        stream: Arc<ClientFd>,
        epoll: Arc<OwnedFd>,
        key: u64,
    },
    Vsock(Connection),
}

impl From<SinkStream> for Sink {
    fn from(stream: SinkStream) -> Sink {
        Sink { stream, ring: None }
    }
}

impl Sink {
    /// The peer that is charged for what is sent to a process of this VM: its user, or the VM.
    pub fn peer(&self, vm: VmId) -> Peer {
        match &self.stream {
            SinkStream::Local { stream, .. } => stream.peer(),
            SinkStream::Vsock(_) => Peer::Vm(vm),
        }
    }

    /// Returns a function that sends a reason and closes the stream in both directions.
    pub fn closer(&self) -> impl FnOnce(&str) + Send + use<> {
        let sink = Sink::from(self.stream.clone());
        move |why| {
            let _ = sink.send(&goodbye(why).encode_length_delimited_to_vec());
            sink.cut_off();
        }
    }
}

/// Bytes and wakes for one client process. Both are appended under the kernel lock, so their order is the kernel's. The
/// appending thread sends them after it unlocks. Registered events are set before the bytes are sent.
#[derive(Debug)]
pub struct Outbox {
    state: Ranked<OutboxState>,
    connected: AtomicBool,
    /// It was ended because its process is over a limit or crashes, not because it is detached.
    is_cut_off: AtomicBool,
}

impl Default for Outbox {
    fn default() -> Self {
        let state = Ranked::new(Rank::Outbox, OutboxState::default());
        Outbox { state, connected: AtomicBool::new(false), is_cut_off: AtomicBool::new(false) }
    }
}

#[derive(Debug, Default)]
struct OutboxState {
    sink: Option<Sink>,
    registered: RegisteredEvents,
    /// Rings that the process was given, until its Hello.
    offered: Option<Rings>,
    /// The lease of their pages, if a guest lends them.
    lease: Option<RingLease>,
    /// The ring to the process, once its Welcome and what belongs to it are written.
    ring: Option<RingOutlet>,
    /// Frames that were not sent yet, of a session with rings.
    fresh: Vec<u8>,
    /// Bytes for the stream.
    bytes: Vec<u8>,
    /// Bytes at the head that are already sent.
    sent: usize,
    /// The sink reported that it is full; it reports when there is room.
    blocked: bool,
    /// Bytes of what it was sent that a journal retains, because it has not acknowledged them.
    retained: usize,
    /// Its unread bytes among those of its user or VM.
    unread: Option<HeldByProcess>,
    /// When the next appended item was requested, if the client is to receive that time.
    host_time_ns: Option<u64>,
}

/// How an item for a client process is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    Frame,
    /// A registered event will be set.
    Event,
    /// No stream is connected, so it is dropped.
    Nothing,
}

/// The client does not read, and its unread bytes are over the limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "{waiting} bytes wait to be read by the client, the limit is {OUTBOX_BYTES_MAX}: read the stream at all times"
)]
pub struct OutboxFull {
    waiting: usize,
}

impl Outbox {
    fn lock(&self) -> RankedGuard<'_, OutboxState> {
        self.state.lock_or_abort()
    }

    /// Connects the stream. `unread` counts what its client does not read.
    pub fn connect(&self, sink: Sink, unread: Option<HeldByProcess>) {
        let mut state = self.lock();
        (state.sink, state.unread) = (Some(sink), unread);
        drop(state);
        self.connected.store(true, Ordering::Release);
    }

    /// Keeps rings that the process was given, until it says whether it uses them.
    pub fn offer_rings(&self, rings: Rings) {
        let mut state = self.lock();
        state.end_lease();
        (state.lease, state.offered) = (rings.lease(), Some(rings));
    }

    /// Ends every access to pages that a guest lends for the rings. Called before the guest learns that the process is
    /// detached.
    pub fn end_lease(&self) {
        self.lock().end_lease();
    }

    pub fn take_offered_rings(&self) -> Option<Rings> {
        self.lock().offered.take()
    }

    /// Frames that are appended from here on go into the ring.
    pub fn begin_ring(&self, ring: RingOutlet) {
        self.lock().ring = Some(ring);
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether the client was cut off: see [`Outbox::cut_off`].
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Acquire)
    }

    /// Disconnects the stream. The client reads what was sent, then the end of the stream.
    pub fn disconnect(&self) {
        self.end(None).finish();
    }

    /// Closes the stream at once, without a reason, as a lost transport does.
    pub fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Release);
        self.end(None).cut_off();
    }

    /// The first part of a cut-off for a reason, which may be made under the kernel lock. The stream is still to be closed,
    /// which writes to it and may log. A client that reads gets the reason; one that does not would never reach its end.
    pub fn begin_cut_off(&self, why: &str) -> EndedOutbox {
        self.is_cut_off.store(true, Ordering::Release);
        self.end(Some(&goodbye(why)))
    }

    /// Appends nothing after `last`, and sends nothing from here on.
    fn end(&self, last: Option<&ToGuest>) -> EndedOutbox {
        self.connected.store(false, Ordering::Release);
        let mut state = self.lock();
        if let Some(last) = last {
            // While the ring's pages are still lent. An error of either is one more reason for the end.
            let _ = state.append(last);
            let _ = state.publish_fresh();
        }
        state.end_lease();
        EndedOutbox { state: std::mem::take(&mut *state), has_last: last.is_some() }
    }

    /// Registers an event: from here on it is set through `sink`.
    pub fn register_event(&self, name: EventId, sink: EventSink) -> Result<(), RegisterError> {
        self.lock().registered.register(name, sink)
    }

    pub fn has_registered(&self, name: EventId) -> bool {
        self.lock().registered.contains(name)
    }

    /// Registered events, and how often each was to be set.
    pub fn registered_events(&self) -> Vec<(EventId, u64)> {
        self.lock().registered.wakes().collect()
    }

    /// Connects the stream of a registered event's event channel. False if the event is no longer registered.
    pub fn connect_event_channel(&self, name: EventId, stream: Connection) -> bool {
        self.flush_after(|state| state.registered.connect(name, stream))
    }

    /// The event channel of a registered event has room again.
    pub fn event_channel_writable(&self, name: EventId) {
        self.flush_after(|state| state.registered.reported_room(name));
    }

    /// Unregisters an event; a wake that it was owed is sent as a frame. False if it was not registered.
    pub fn unregister_event(&self, name: EventId) -> bool {
        self.flush_after(|state| {
            let owed = state.registered.unregister(name);
            state.owed_by_stream(name, owed.unwrap_or(0));
            owed.is_some()
        })
    }

    /// The same, when the stream of its event channel is closed.
    pub fn event_channel_gone(&self, name: EventId, stream: &Connection) {
        self.flush_after(|state| {
            let owed = state.registered.event_channel_gone(name, stream);
            state.owed_by_stream(name, owed.unwrap_or(0));
        });
    }

    /// Adds one frame.
    pub fn append(&self, frame: &ToGuest) -> Result<Added, OutboxFull> {
        self.lock().append(frame)
    }

    /// The client receives `nanos` as the time at which the next appended item was requested.
    pub fn set_host_time(&self, nanos: u64) {
        self.lock().host_time_ns = Some(nanos);
    }

    /// Adds encoded frames, each with its length prefix. A frame may lie in two parts, so both are added at once. A client
    /// over its limit is detected at its next frame.
    pub fn append_frames(&self, parts: [&[u8]; 2]) {
        let mut state = self.lock();
        if state.sink.is_some() {
            parts.into_iter().for_each(|part| state.unsent().extend_from_slice(part));
        }
    }

    /// Adds a wake: a registered event will be set, any other is sent as a frame.
    pub fn wake(&self, target: WakeTarget, status: NtStatus) -> Result<Added, OutboxFull> {
        let mut state = self.lock();
        match target.event() {
            Some(name) if state.registered.wake(name) => Ok(Added::Event),
            _ => state.append(&wake_to_frame(target, status)),
        }
    }

    /// Adds the last frame of a stream and sends what it can. A disconnected client gets none.
    pub fn send_last(&self, frame: &ToGuest) {
        if self.append(frame).is_ok() {
            self.flush();
        }
    }

    /// Sends what it can without blocking.
    pub fn flush(&self) {
        self.flush_after(|_| {});
    }

    /// The sink has room again.
    pub fn writable(&self) {
        self.flush_after(|state| state.blocked = false);
    }

    /// Sets how many bytes a journal retains of what the client was sent.
    pub fn set_retained(&self, bytes: usize) -> Option<OverLimit> {
        let mut state = self.lock();
        state.retained = bytes;
        state.count_unread()
    }

    /// Sends what it can after a change. If what stays is too much for the client's user or VM, cuts off the one of its
    /// processes that has had some the longest.
    fn flush_after<R>(&self, change: impl FnOnce(&mut OutboxState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        state.flush();
        let over = state.count_unread();
        drop(state);
        over.into_iter().for_each(OverLimit::cut_off);
        result
    }
}

/// What an outbox had that has ended.
#[derive(Debug)]
#[must_use]
pub struct EndedOutbox {
    state: OutboxState,
    /// Its last frame is a Goodbye, which is still to be sent.
    has_last: bool,
}

impl EndedOutbox {
    fn finish(self) {
        self.close(Sink::finish);
    }

    pub fn cut_off(mut self) {
        if self.has_last && !self.state.blocked {
            self.state.send();
        }
        self.close(Sink::cut_off);
    }

    fn close(self, close: fn(&Sink)) {
        let OutboxState { sink, mut registered, .. } = self.state;
        registered.end();
        sink.iter().for_each(close);
    }
}

impl OutboxState {
    fn end_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.end();
        }
    }

    /// Counts the memory of what the client has not read.
    fn count_unread(&mut self) -> Option<OverLimit> {
        let bytes = self.fresh.len() + self.bytes.len() + self.retained;
        self.unread.as_mut()?.set(if bytes > UNREAD_BYTES_COUNTED { bytes } else { 0 })
    }

    /// Where frames are appended.
    fn unsent(&mut self) -> &mut Vec<u8> {
        if self.ring.is_some() { &mut self.fresh } else { &mut self.bytes }
    }

    fn append(&mut self, frame: &ToGuest) -> Result<Added, OutboxFull> {
        if self.sink.is_none() {
            return Ok(Added::Nothing);
        }
        if let Some(nanos) = self.host_time_ns.take() {
            proto::frame::append(&host_time_to_frame(nanos), self.unsent());
        }
        proto::frame::append(frame, self.unsent());
        let waiting = self.fresh.len() + self.bytes.len() - self.sent;
        if waiting > OUTBOX_BYTES_MAX { Err(OutboxFull { waiting }) } else { Ok(Added::Frame) }
    }

    /// Sends the wakes that an event was owed, as one frame: an event is set or not.
    fn owed_by_stream(&mut self, name: EventId, owed: u64) {
        if owed > 0 {
            // A client over its limit is detected at its next frame.
            let _ = self.append(&wake_to_frame(name, NtStatus::SUCCESS));
        }
    }

    fn flush(&mut self) {
        while let Some(name) = self.registered.ring() {
            self.owed_by_stream(name, 1);
        }
        self.send_fresh();
        if !self.blocked {
            self.send();
        }
    }

    /// Sends fresh frames. If the process broke its ring, its stream ends, which its reader sees.
    fn send_fresh(&mut self) {
        if self.publish_fresh().is_err()
            && let Some(sink) = self.sink.take()
        {
            sink.cut_off();
        }
    }

    /// Publishes fresh frames in the ring, or moves them to the bytes for the stream.
    fn publish_fresh(&mut self) -> Result<(), BadIndex> {
        let OutboxState { ring: Some(ring), fresh, bytes, .. } = self else { return Ok(()) };
        if fresh.is_empty() {
            return Ok(());
        }
        let way = match ring.send(fresh) {
            Some(sent) => sent,
            // The guest is stopped: they are sent once it goes on.
            None if !ring.is_over() => return Ok(()),
            None => Ok(Way::Ring { kick: false }),
        };
        match way {
            // Unsent bytes of the stream wake the process as well.
            Ok(Way::Ring { kick }) if kick && bytes.is_empty() => bytes.extend_from_slice(KICK),
            Ok(Way::Ring { .. }) | Err(_) => {}
            Ok(Way::Stream { back }) => {
                bytes.append(fresh);
                if back {
                    let in_ring = ToGuest { request: 0, status: 0, body: Some(to_guest::Body::InRing) };
                    proto::frame::append(&in_ring, bytes);
                }
            }
        }
        self.fresh.clear();
        if self.fresh.capacity() > 16 * 1024 {
            self.fresh = Vec::new();
        }
        way.map(|_| ())
    }

    /// Frees the sent bytes at the head once they are most, so that a client that reads, but never all, is not kept more
    /// than its unread bytes.
    fn free_sent(&mut self) {
        if self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends what there is room for, once: a client that makes room as fast would hold this thread, and whoever waits for
    /// this outbox with the kernel lock.
    fn send(&mut self) {
        if self.sent < self.bytes.len() {
            let Some(sink) = &self.sink else { return };
            match sink.send(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                // The stream's reader also sees the error and detaches the process.
                Err(_) => {
                    self.sink = None;
                    return;
                }
            }
        }
        if self.sent < self.bytes.len() {
            self.blocked = true;
            return self.free_sent();
        }
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > 16 * 1024 {
            self.bytes = Vec::new();
        }
    }
}

impl Sink {
    fn finish(&self) {
        match &self.stream {
            // The stream's reader has closed it or does so next; dropping it is enough.
            SinkStream::Local { .. } => {}
            SinkStream::Vsock(connection) => connection.finish(),
        }
    }

    fn cut_off(&self) {
        match &self.stream {
            // The loop that reads the stream then sees its end.
            SinkStream::Local { stream, .. } => {
                let _ = rustix::net::shutdown(stream, Shutdown::Both);
            }
            SinkStream::Vsock(connection) => connection.reset(),
        }
    }

    /// Sends what there is room for; returns how much. If it was not all, the stream's reader will call
    /// [`Outbox::writable`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stream {
            SinkStream::Local { stream, epoll, key } => {
                use rustix::net::SendFlags;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = match rustix::net::send(stream, bytes, flags) {
                    Ok(sent) => sent,
                    Err(Errno::AGAIN) => 0,
                    Err(error) => return Err(error.into()),
                };
                if sent < bytes.len() {
                    let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
                    epoll::modify(&**epoll, stream.as_fd(), epoll::EventData::new_u64(*key), interest)?;
                }
                Ok(sent)
            }
            SinkStream::Vsock(connection) => match connection.send_some(bytes) {
                Ok(sent) => Ok(sent),
                Err(SendError::Full) => Ok(0),
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use rustix::event::epoll;

    use vsock_device::limits::{
        BUFFERS_PER_PASS_MAX, PEER_WINDOW_BYTES_MAX, QUEUE_SIZE_MAX, QUEUED_BYTES_PER_CONNECTION_MAX,
    };
    use vsock_device::packet::{HEADER_BYTES, Operation};
    use vsock_device::{CloseReason, Endpoint};

    use super::*;
    use crate::closing::Closers;
    use crate::event_channels::ChannelCharge;
    use crate::held_bytes::HeldBytes;
    use crate::kernel_host::{FlushList, KernelHost, ReceivedCall};
    use crate::memory::FenceMemory;
    use crate::shares::Budget;
    use crate::test_guest::TestGuest;
    use crate::vm::VmShared;
    use crate::{Clock, Options};

    static FRAME: [u8; 64 << 10] = [0; 64 << 10];

    /// A process of a user, and its end of its stream.
    fn connected(user: u32, unread: &Arc<HeldBytes>) -> (Arc<ClientProcess>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let stream = Arc::new(ClientFd::socket(
            ours.into(),
            Peer::Uid(user),
            None,
            &Closers::new(&Budget::new("descriptors", "", 100)),
        ));
        epoll::add(&*epoll, stream.as_fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        let client = Arc::new(ClientProcess::new(ProcessId(user), VmId::HOST, 1, String::new()));
        let sink = Sink::from(SinkStream::Local { stream, epoll, key: 1 });
        let held_by = HeldByProcess::new(unread, sink.peer(VmId::HOST), &client);
        client.outbox.connect(sink, Some(held_by));
        (client, theirs)
    }

    fn unread(bytes_max: usize) -> Arc<HeldBytes> {
        HeldBytes::new("unread answers", "read them", bytes_max, &Arc::default())
    }

    fn send(client: &ClientProcess, frames: usize) {
        for _ in 0..frames {
            client.outbox.append_frames([&FRAME, &[]]);
            client.outbox.flush();
        }
    }

    #[test]
    fn a_client_that_reads_but_never_all_keeps_no_sent_bytes_in_memory() {
        let (client, mut theirs) = connected(1, &unread(usize::MAX));
        send(&client, 32);
        let mut read = FRAME;
        for _ in 0..200 {
            theirs.read_exact(&mut read).unwrap();
            client.outbox.writable();
            send(&client, 1);
        }
        let kept = client.outbox.lock().bytes.len();
        assert!(kept < 64 * FRAME.len(), "{kept} bytes of 32 frames are kept");
    }

    /// The endpoint of a process's stream, or of the event channel of an event of it.
    struct Stream(Arc<ClientProcess>, Option<EventId>);

    impl Endpoint for Stream {
        fn received(&mut self, _: &[u8]) {}

        fn writable(&mut self) {
            match self.1 {
                Some(event) => self.0.outbox.event_channel_writable(event),
                None => self.0.outbox.writable(),
            }
        }

        fn closed(&mut self, _: CloseReason) {}
    }

    /// A process, and a connection for its stream or an event, to a guest whose receive window has so many bytes.
    fn in_guest(event: Option<EventId>, window: u32) -> (Arc<ClientProcess>, TestGuest, Connection) {
        let options = Options { clock: Clock::Virtual, ..Options::default() };
        let vm = VmShared::new(VmId(1), "vm1", &KernelHost::new(&options).unwrap(), None);
        let client = Arc::new(ClientProcess::new(ProcessId(1), vm.id, 1, String::new()));
        let endpoint = Box::new(Stream(client.clone(), event));
        let (guest, connection) = TestGuest::connected(&vm, endpoint, window);
        (client, guest, connection)
    }

    /// The same, with its stream connected.
    fn with_stream(window: u32) -> (Arc<ClientProcess>, TestGuest) {
        let (client, guest, connection) = in_guest(None, window);
        client.outbox.connect(SinkStream::Vsock(connection).into(), None);
        (client, guest)
    }

    #[test]
    fn one_packet_with_credit_brings_all_that_waits_for_it() {
        let (client, mut guest) = with_stream(0);
        let frames: Vec<u8> = (0..OUTBOX_BYTES_MAX * 2).map(|at| (at / 3) as u8).collect();
        client.outbox.append_frames([&frames, &[]]);
        client.outbox.flush();
        guest.offer(QUEUE_SIZE_MAX - 1, 1 << 16);
        guest.send(Operation::CREDIT_UPDATE, PEER_WINDOW_BYTES_MAX);
        assert!(guest.take_received() == frames);
    }

    #[test]
    fn a_guest_that_adds_small_buffers_does_not_hold_the_thread_that_sends_and_all_arrives_in_order() {
        let (client, mut guest) = with_stream(PEER_WINDOW_BYTES_MAX);
        let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 3) as u8).collect();
        let (first, rest) = sent.split_at(sent.len() / 2);
        // A byte fits behind a header: more is freed than is asked for next, for ever.
        guest.offer(QUEUE_SIZE_MAX - 1, HEADER_BYTES as u32 + 1);
        let used = guest.used();
        client.outbox.append_frames([first, &[]]);
        client.outbox.flush();
        let filled = guest.used() - used;
        assert!(usize::from(filled) <= BUFFERS_PER_PASS_MAX + 1, "{filled} buffers are filled, in one pass");
        client.outbox.append_frames([rest, &[]]);
        client.outbox.flush();
        assert_eq!(guest.used() - used, filled, "it waits until there is room");
        assert!(guest.receive_all() == sent);
    }

    #[test]
    fn a_guest_that_adds_small_buffers_does_not_hold_the_thread_that_sets_an_event_and_every_wake_arrives() {
        let event = EventId(1);
        let (client, mut guest, connection) = in_guest(Some(event), PEER_WINDOW_BYTES_MAX);
        let sink = EventSink::EventChannel(None, ChannelCharge::uncounted());
        client.outbox.register_event(event, sink).unwrap();
        let wakes = 2 * QUEUED_BYTES_PER_CONNECTION_MAX;
        (0..wakes).for_each(|_| drop(client.outbox.wake(event.into(), NtStatus::SUCCESS)));
        guest.offer(QUEUE_SIZE_MAX - 1, HEADER_BYTES as u32 + 1);
        let used = guest.used();
        assert!(client.outbox.connect_event_channel(event, connection));
        let filled = guest.used() - used;
        assert!(usize::from(filled) <= BUFFERS_PER_PASS_MAX + 1, "{filled} buffers are filled, in one pass");
        client.outbox.flush();
        assert_eq!(guest.used() - used, filled, "it waits until there is room");
        assert_eq!(guest.receive_all().len(), wakes);
    }

    #[test]
    fn wakes_that_were_sent_before_their_event_channel_is_connected_arrive_once_it_is() {
        let event = EventId(1);
        let (client, mut guest, connection) = in_guest(Some(event), PEER_WINDOW_BYTES_MAX);
        let sink = EventSink::EventChannel(None, ChannelCharge::uncounted());
        client.outbox.register_event(event, sink).unwrap();
        for _ in 0..3 {
            assert_eq!(client.outbox.wake(event.into(), NtStatus::SUCCESS).unwrap(), Added::Event);
            client.outbox.flush();
        }
        assert!(client.outbox.connect_event_channel(event, connection));
        assert_eq!(guest.receive_all(), [1; 3]);
    }

    #[test]
    fn the_end_of_another_connection_leaves_an_event_and_the_end_of_its_own_unregisters_it() {
        let event = EventId(1);
        let (client, guest, connection) = in_guest(Some(event), PEER_WINDOW_BYTES_MAX);
        let other = guest.device.connect(1001, Box::new(Stream(client.clone(), None))).unwrap();
        let sink = EventSink::EventChannel(None, ChannelCharge::uncounted());
        client.outbox.register_event(event, sink).unwrap();
        client.outbox.event_channel_gone(event, &connection);
        assert!(client.outbox.has_registered(event), "it is not connected yet");
        assert!(client.outbox.connect_event_channel(event, connection.clone()));
        client.outbox.event_channel_gone(event, &other);
        assert!(client.outbox.has_registered(event));
        client.outbox.event_channel_gone(event, &connection);
        assert!(!client.outbox.has_registered(event));
    }

    #[test]
    fn wakes_that_an_event_was_owed_at_its_end_come_by_the_stream() {
        let event = EventId(1);
        let (client, mut theirs) = connected(1, &unread(usize::MAX));
        theirs.set_nonblocking(true).unwrap();
        for wakes in [0, 1, 3] {
            let sink = EventSink::EventChannel(None, ChannelCharge::uncounted());
            client.outbox.register_event(event, sink).unwrap();
            for _ in 0..wakes {
                client.outbox.wake(event.into(), NtStatus::SUCCESS).unwrap();
            }
            client.outbox.flush();
            assert!(theirs.read(&mut [0; 8]).is_err(), "they wait for the event channel");
            assert!(client.outbox.unregister_event(event));
            let mut wake = Vec::new();
            proto::frame::append(&wake_to_frame(event, NtStatus::SUCCESS), &mut wake);
            let mut read = vec![0; 64];
            let count = theirs.read(&mut read).unwrap_or(0);
            assert_eq!(&read[..count], if wakes > 0 { &wake[..] } else { &[] }, "{wakes} wakes");
        }
    }

    #[test]
    fn answers_that_a_process_has_acknowledged_do_not_count_as_unread() {
        let folder = tempfile::tempdir().unwrap();
        let kernel_host = KernelHost::new(&Options::with_journal(folder.path())).unwrap();
        let none = FenceMemory::Local(Vec::new());
        let (client, _) = kernel_host.sessions().attach(VmId::HOST, 1, String::new(), none).unwrap();
        let mut calls = 0;
        while client.outbox.lock().retained == 0 {
            let call = d3dkmt::Call::EnumAdapters { capacity: 1 };
            let received = ReceivedCall { request: 1, call, timestamps: None };
            assert!(kernel_host.calls(client.id, &mut [received].into(), &mut FlushList::default()));
            calls += 1;
            assert!(calls < 100_000);
        }
        kernel_host.sessions().acknowledge(client.id, calls);
        assert_eq!(client.outbox.lock().retained, 0);
    }

    #[test]
    fn the_event_channels_of_a_process_that_ends_are_finished() {
        let event = EventId(1);
        let (client, _guest, connection) = in_guest(Some(event), PEER_WINDOW_BYTES_MAX);
        let sink = EventSink::EventChannel(None, ChannelCharge::uncounted());
        client.outbox.register_event(event, sink).unwrap();
        assert!(client.outbox.connect_event_channel(event, connection.clone()));
        assert_eq!(connection.send_some(&[1]).ok(), Some(1));
        client.outbox.disconnect();
        assert!(connection.send_some(&[1]).is_err(), "guestd learns that no wake comes any more");
    }

    #[test]
    fn unread_bytes_of_a_user_have_a_limit_and_the_process_that_had_some_first_is_cut_off() {
        let unread = unread(32 * FRAME.len());
        let clients = [connected(1, &unread), connected(1, &unread), connected(2, &unread)];
        let are_connected = || clients.each_ref().map(|(client, _)| client.outbox.is_connected());
        for (client, _) in &clients {
            send(client, 24);
        }
        assert_eq!(are_connected(), [false, true, true]);
        // What a journal retains counts as well.
        clients[2].0.outbox.set_retained(32 * FRAME.len()).unwrap().cut_off();
        assert_eq!(are_connected(), [false, true, false]);
        assert_eq!(clients[0].0.outbox.lock().bytes.capacity(), 0, "its memory is free at once");
    }
}
