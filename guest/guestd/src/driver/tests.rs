//! The driver over real sockets: the host is a thread with a stream, the machine makes plain files.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use d3dkmt::ShareToken;
use proto::Message;
use proto::attach::{
    Attached, BrokerReply, BrokerRequest, GuestdToHost, GuestdWelcome, HostToGuestd, RegisteredEvent, Rung,
    broker_request, guestd_to_host, host_to_guestd, rung,
};
use proto::frame::{self, FrameBuffer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send,
    sendmsg, socket_with,
};

use super::*;
use crate::broker::{Config, MadeRegion, MadeStream, Purpose};
use crate::limits::{HOST_MESSAGES_PER_TURN_MAX, NT_HANDLES_CLOSED_PER_TURN_MAX};

/// Set in the process that a test starts as another client: names the socket to connect to.
const ROLE: &str = "GUESTD_TEST_BROKER";

struct Files;

impl Machine for Files {
    type Region = ();
    type Stream = OwnedFd;
    type Descriptor = OwnedFd;

    fn pages_total_max(&self) -> u32 {
        1000
    }

    fn make_region(&mut self, _: Purpose, pages: u32) -> Result<MadeRegion<Self>, String> {
        let descriptor = File::open("/dev/zero").unwrap().into();
        Ok(MadeRegion { region: (), addresses: vec![0x1000; pages as usize], descriptor })
    }

    fn share_region(&mut self, (): &()) -> Result<OwnedFd, String> {
        Err("not in this test".to_owned())
    }

    fn open_stream(&mut self) -> Result<MadeStream<Self>, String> {
        let (near, far) = UnixStream::pair().unwrap();
        Ok(MadeStream { stream: near.into(), descriptor: far.into() })
    }
}

/// The host's end of the link, and the broker's socket.
struct Host {
    stream: UnixStream,
    received: FrameBuffer,
    socket: PathBuf,
    /// The host's ends of event channels.
    event_channels: std::sync::mpsc::Receiver<UnixStream>,
    _folder: tempfile::TempDir,
}

impl Host {
    /// Starts a driver in a thread of its own, and welcomes it.
    fn start() -> Self {
        let (mut host, driver) = Self::prepare();
        std::thread::spawn(move || driver().run());
        host.welcome();
        host
    }

    /// A host, and what makes its driver on the thread that it is to belong to.
    fn prepare() -> (Self, impl FnOnce() -> Driver<Files> + Send) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("broker.sock");
        let listener = crate::serve::listen_at(&socket).unwrap();
        let (stream, guest) = UnixStream::pair().unwrap();
        let mut guest = Some(OwnedFd::from(guest));
        let (opened, event_channels) = std::sync::mpsc::channel();
        let sync_files = nt_handle::SyncFileFolder::fresh(&socket);
        let driver = move || {
            let config = Config { kernel: "test".to_owned(), unpin_time: None, events_max: 4 };
            let connect = Box::new(move || guest.take().ok_or_else(|| "it was there once".to_owned()));
            let connect_event_channel = Box::new(move || {
                let (near, far) = UnixStream::pair().unwrap();
                opened.send(far).unwrap();
                Ok(near.into())
            });
            let broker = Broker::new(config, Files);
            Driver::new(broker, listener, sync_files, connect, connect_event_channel).unwrap()
        };
        let host = Self { stream, received: FrameBuffer::default(), socket, event_channels, _folder: folder };
        (host, driver)
    }

    fn welcome(&mut self) {
        let hello = self.next();
        let welcome = GuestdWelcome {
            version: proto::PROTOCOL_VERSION,
            vm: 1,
            events_max: 4,
            resuming: false,
            ..GuestdWelcome::default()
        };
        self.answer(hello.request, host_to_guestd::Body::Welcome(welcome));
    }

    fn next(&mut self) -> GuestdToHost {
        loop {
            if let Some(bytes) = self.received.next_frame().unwrap() {
                return frame::decode(bytes).unwrap();
            }
            let mut bytes = [0; 1024];
            let count = self.stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "guestd closed the link");
            self.received.extend(&bytes[..count]);
        }
    }

    fn answer(&mut self, request: u64, body: host_to_guestd::Body) {
        let mut bytes = Vec::new();
        frame::append(&HostToGuestd { request, body: Some(body), ..HostToGuestd::default() }, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Answers an attach and its first page with process number 5. Returns the pid that asked.
    fn attach(&mut self) -> u32 {
        let request = self.next();
        let Some(guestd_to_host::Body::Attach(attach)) = request.body else { panic!("{request:?}") };
        self.answer(
            request.request,
            host_to_guestd::Body::Attached(Attached {
                process: 5,
                token: vec![1; 16],
                ..Attached::default()
            }),
        );
        let request = self.next();
        assert!(matches!(request.body, Some(guestd_to_host::Body::AddMemory(_))), "{request:?}");
        self.answer(request.request, host_to_guestd::Body::FirstSlot(0));
        attach.pid
    }

    /// Answers the request for an NT handle of process 5.
    fn name_nt_handle(&mut self, token: ShareToken) {
        let request = self.next();
        assert_eq!(request.body, Some(guestd_to_host::Body::MakeNtHandle(5)));
        self.answer(request.request, host_to_guestd::Body::NtHandle(token.0.to_vec()));
    }

    fn expect_closed(&mut self, token: ShareToken) {
        let request = self.next();
        assert_eq!(request.body, Some(guestd_to_host::Body::NtHandleClosed(token.0.to_vec())));
        self.answer(request.request, host_to_guestd::Body::NtHandleClosed(true));
    }

    /// Answers the next request with this, and returns the request.
    fn serve(&mut self, body: host_to_guestd::Body) -> guestd_to_host::Body {
        let request = self.next();
        self.answer(request.request, body);
        request.body.unwrap()
    }

    /// The host's end of a new event channel, after its token.
    fn event_channel(&mut self) -> UnixStream {
        let mut event_channel = self.event_channels.recv().unwrap();
        let mut token = [0; 16];
        event_channel.read_exact(&mut token).unwrap();
        assert_eq!(token, [3; 16]);
        event_channel
    }

    /// Waits for the detach of process 5.
    fn expect_detach(&mut self) {
        let request = self.next();
        assert_eq!(request.body, Some(guestd_to_host::Body::Detach(5)));
        self.answer(request.request, host_to_guestd::Body::Detached(true));
    }
}

struct Client(OwnedFd);

fn attach_bytes() -> Vec<u8> {
    let attach = broker_request::Attach {
        version: proto::PROTOCOL_VERSION,
        name: "test".to_owned(),
        ..broker_request::Attach::default()
    };
    BrokerRequest { body: Some(broker_request::Body::Attach(attach)) }.encode_to_vec()
}

impl Client {
    fn connect(socket: &Path) -> Self {
        let client =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
        connect(&client, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        Self(client)
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(send(&self.0, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }

    fn send_attach(&self) {
        self.send(&attach_bytes());
    }

    fn ask_for_nt_handle(&self) {
        let body = Some(broker_request::Body::MakeNtHandle(true));
        self.send(&BrokerRequest { body }.encode_to_vec());
    }

    /// Sends a request, with a descriptor if there is one.
    fn ask(&self, body: broker_request::Body, descriptor: Option<&OwnedFd>) {
        self.send_with(&BrokerRequest { body: Some(body) }.encode_to_vec(), descriptor);
    }

    fn send_with<'a>(&self, bytes: &[u8], descriptors: impl IntoIterator<Item = &'a OwnedFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let borrowed: Vec<_> = descriptors.into_iter().map(|descriptor| descriptor.as_fd()).collect();
        if !borrowed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    fn refusal(&self) -> String {
        self.reply().unwrap().0.refused
    }

    fn nt_handle(&self) -> OwnedFd {
        let (reply, mut descriptors) = self.reply().unwrap();
        assert_eq!((reply.refused.as_str(), descriptors.len()), ("", 1));
        descriptors.remove(0)
    }

    /// The next reply with its descriptors; nothing at the end of the connection.
    fn reply(&self) -> Option<(BrokerReply, Vec<OwnedFd>)> {
        let mut bytes = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let count = recvmsg(
            self.0.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
        .unwrap()
        .bytes;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        (count > 0).then(|| (BrokerReply::decode(&bytes[..count]).unwrap(), descriptors))
    }
}

#[test]
fn a_process_attaches_and_is_detached_when_its_connection_closes() {
    let mut host = Host::start();
    let client = Client::connect(&host.socket);
    client.send_attach();
    assert_eq!(host.attach(), std::process::id());
    let (reply, descriptors) = client.reply().unwrap();
    assert_eq!((reply.refused.as_str(), reply.process, reply.slots, descriptors.len()), ("", 5, 64, 2));
    assert_eq!(reply.token, [1; 16]);
    drop(client);
    host.expect_detach();
    // The stream was shut down for every copy of it.
    let mut stream = UnixStream::from(descriptors.into_iter().next().unwrap());
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn one_request_is_handled_for_each_wake_up_and_none_is_forgotten() {
    let (mut host, driver) = Host::prepare();
    let mut driver = driver();
    driver.run_ready().unwrap();
    host.welcome();
    let clients: Vec<_> = (0..3).map(|_| Client::connect(&host.socket)).collect();
    driver.run_ready().unwrap();
    clients.iter().for_each(Client::send_attach);
    host.stream.set_nonblocking(true).unwrap();
    let mut received = |driver: &mut Driver<Files>| {
        driver.turn(Some(Duration::ZERO)).unwrap();
        let mut bytes = [0; 4096];
        let count = host.stream.read(&mut bytes).unwrap_or(0);
        host.received.extend(&bytes[..count]);
        std::iter::from_fn(|| host.received.next_frame().unwrap().map(drop)).count()
    };
    assert_eq!([(); 4].map(|()| received(&mut driver)), [1, 1, 1, 0]);
}

#[test]
fn an_nt_handle_outlives_its_process_and_its_last_close_is_reported() {
    let mut host = Host::start();
    let client = Client::connect(&host.socket);
    client.send_attach();
    host.attach();
    client.reply().unwrap();
    let token = ShareToken([7; 16]);
    client.ask_for_nt_handle();
    host.name_nt_handle(token);
    let handle = client.nt_handle();
    assert_eq!(nt_handle::token_of(handle.as_fd()), Some(token));
    drop(client);
    host.expect_detach();
    let copy = rustix::io::dup(&handle).unwrap();
    drop(handle);
    drop(copy);
    host.expect_closed(token);
}

#[test]
fn closes_are_reported_before_a_later_request_for_an_nt_handle() {
    let mut host = Host::start();
    let client = Client::connect(&host.socket);
    client.send_attach();
    host.attach();
    client.reply().unwrap();
    for number in 0..50 {
        let token = ShareToken([number; 16]);
        client.ask_for_nt_handle();
        host.name_nt_handle(token);
        drop(client.nt_handle());
        client.ask_for_nt_handle();
        host.expect_closed(token);
        host.name_nt_handle(ShareToken([100 + number; 16]));
        let kept = client.nt_handle();
        drop(kept);
        host.expect_closed(ShareToken([100 + number; 16]));
    }
    drop(client);
    host.expect_detach();
}

/// Requests that the driver sends in one turn.
fn sent_in_a_turn(host: &mut Host, driver: &mut Driver<Files>) -> Vec<guestd_to_host::Body> {
    driver.turn(Some(Duration::ZERO)).unwrap();
    let mut bytes = [0; 1 << 16];
    let count = host.stream.read(&mut bytes).unwrap_or(0);
    host.received.extend(&bytes[..count]);
    let next = || host.received.next_frame().unwrap().map(frame::decode::<GuestdToHost>);
    std::iter::from_fn(next).map(|request| request.unwrap().body.unwrap()).collect()
}

/// A process of any user, without a connection: its NT handles are closed as soon as they are made.
struct Unconnected(ClientId);

impl Unconnected {
    fn attach(driver: &mut Driver<Files>, host: &mut Host, user: Uid) -> Self {
        let client = Unconnected(ClientId(1 << 32 | u64::from(user.0)));
        driver.feed(Input::ClientArrived { client: client.0, peer: crate::broker::Peer { pid: 1, user } });
        let attached = Attached { process: 1000 + user.0, token: vec![1; 16], ..Attached::default() };
        let answer = host_to_guestd::Body::Attached(attached);
        client.ask(driver, host, attach_bytes(), answer);
        let request = host.next().request;
        let body = Some(host_to_guestd::Body::FirstSlot(0));
        driver.feed(Input::FromHost(HostToGuestd { request, body, ..HostToGuestd::default() }));
        client
    }

    /// The driver handles a request, and the host's answer to it.
    fn ask(&self, driver: &mut Driver<Files>, host: &mut Host, bytes: Vec<u8>, answer: host_to_guestd::Body) {
        driver.feed(Input::Packet { client: self.0, bytes });
        let request = host.next().request;
        driver.feed(Input::FromHost(HostToGuestd { request, body: Some(answer), ..HostToGuestd::default() }));
    }

    fn make_and_close(&self, driver: &mut Driver<Files>, host: &mut Host, token: ShareToken) {
        let answer = host_to_guestd::Body::NtHandle(token.0.to_vec());
        let body = Some(broker_request::Body::MakeNtHandle(true));
        self.ask(driver, host, BrokerRequest { body }.encode_to_vec(), answer);
    }
}

/// A driver with a client that is attached as process 5.
fn with_a_client() -> (Driver<Files>, Host, Client) {
    let (mut host, driver) = Host::prepare();
    let mut driver = driver();
    driver.run_ready().unwrap();
    host.welcome();
    let client = Client::connect(&host.socket);
    client.send_attach();
    driver.run_ready().unwrap();
    let attached = Attached { process: 5, token: vec![1; 16], ..Attached::default() };
    host.serve(host_to_guestd::Body::Attached(attached));
    driver.run_ready().unwrap();
    host.serve(host_to_guestd::Body::FirstSlot(0));
    driver.run_ready().unwrap();
    client.reply().unwrap();
    host.stream.set_nonblocking(true).unwrap();
    (driver, host, client)
}

const REQUEST: guestd_to_host::Body = guestd_to_host::Body::MakeNtHandle(5);

#[test]
fn closes_of_a_user_hold_up_no_request_of_another_and_users_take_turns() {
    let (mut driver, mut host, client) = with_a_client();
    let own = rustix::process::geteuid().as_raw();
    let many = Unconnected::attach(&mut driver, &mut host, Uid(own + 1));
    let one = Unconnected::attach(&mut driver, &mut host, Uid(own + 2));
    for number in 0..2 * NT_HANDLES_CLOSED_PER_TURN_MAX as u8 {
        many.make_and_close(&mut driver, &mut host, ShareToken([number; 16]));
    }
    one.make_and_close(&mut driver, &mut host, ShareToken([200; 16]));
    client.ask_for_nt_handle();
    let first = sent_in_a_turn(&mut host, &mut driver);
    let requested = first.iter().position(|message| *message == REQUEST);
    let most = NT_HANDLES_CLOSED_PER_TURN_MAX;
    assert_eq!((first.len(), requested), (1 + 2 * most, Some(most)), "some closes come before it");
    let closed = guestd_to_host::Body::NtHandleClosed(vec![200; 16]);
    assert!(first[..2].contains(&closed), "it is the turn of the other user");
    let mut turn = || sent_in_a_turn(&mut host, &mut driver).len();
    assert_eq!([turn(), turn()], [1, 0]);
}

#[test]
fn answers_of_the_host_are_handled_some_at_a_time() {
    let (mut driver, mut host, _client) = with_a_client();
    let count = 2 * HOST_MESSAGES_PER_TURN_MAX as u32;
    for process in 0..count {
        let client = ClientId(1 << 32 | u64::from(process));
        driver.feed(Input::ClientArrived { client, peer: crate::broker::Peer { pid: 1, user: Uid(0) } });
        driver.feed(Input::Packet { client, bytes: attach_bytes() });
        let token = vec![1; 16];
        let attached = Attached { process: 1000 + process, token, ..Attached::default() };
        host.serve(host_to_guestd::Body::Attached(attached));
    }
    let mut turn = || sent_in_a_turn(&mut host, &mut driver).len();
    assert_eq!([turn(), turn()], [HOST_MESSAGES_PER_TURN_MAX; 2]);
    driver.run_ready().unwrap();
    assert_eq!(driver.process_count() as u32, count + 1);
}

#[test]
fn a_request_comes_after_all_closes_of_its_user() {
    let (mut driver, mut host, client) = with_a_client();
    let own = Unconnected::attach(&mut driver, &mut host, Uid(rustix::process::geteuid().as_raw()));
    for number in 0..2 * NT_HANDLES_CLOSED_PER_TURN_MAX as u8 + 1 {
        own.make_and_close(&mut driver, &mut host, ShareToken([number; 16]));
    }
    client.ask_for_nt_handle();
    let sent: Vec<_> = (0..4).flat_map(|_| sent_in_a_turn(&mut host, &mut driver)).collect();
    assert_eq!((sent.len(), sent.last()), (2 * NT_HANDLES_CLOSED_PER_TURN_MAX + 2, Some(&REQUEST)));
}

/// The host would close them itself otherwise, as those of a killed process.
#[test]
fn nt_handles_that_a_process_has_closed_are_closed_before_it_is_detached() {
    let (mut driver, mut host, client) = with_a_client();
    let token = ShareToken([1; 16]);
    client.ask_for_nt_handle();
    driver.run_ready().unwrap();
    host.name_nt_handle(token);
    driver.run_ready().unwrap();
    drop(client.nt_handle());
    drop(client);
    let closed = guestd_to_host::Body::NtHandleClosed(token.0.to_vec());
    assert_eq!(sent_in_a_turn(&mut host, &mut driver), [closed, guestd_to_host::Body::Detach(5)]);
}

fn count(event: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// A process with a registered event, and the host's end of its event channel.
fn with_an_event_channel() -> (Host, Client, OwnedFd, UnixStream) {
    let mut host = Host::start();
    let client = Client::connect(&host.socket);
    client.send_attach();
    host.attach();
    assert_eq!(client.reply().unwrap().0.events_max, 4);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    client.ask(broker_request::Body::RegisterEvent(9), Some(&event));
    let asked = host.serve(host_to_guestd::Body::EventChannel(vec![3; 16]));
    assert_eq!(asked, guestd_to_host::Body::RegisterEvent(RegisteredEvent { process: 5, event: 9 }));
    let event_channel = host.event_channel();
    assert_eq!(client.refusal(), "");
    (host, client, event, event_channel)
}

fn drain(host: &mut Host, client: &Client, wakes: u64) {
    client.ask(broker_request::Body::Settle(true), None);
    let event_channels = vec![rung::EventChannel { event: 9, wakes }];
    let asked = host.serve(host_to_guestd::Body::Rung(Rung { event_channels }));
    assert_eq!(asked, guestd_to_host::Body::Settle(5));
    assert_eq!(client.refusal(), "");
}

#[test]
fn each_byte_of_a_event_channel_sets_its_event_once() {
    let (mut host, client, event, mut event_channel) = with_an_event_channel();
    let mut sent = 0;
    for bytes in [1, 2, 300, 1, 1000] {
        event_channel.write_all(&vec![1; bytes]).unwrap();
        sent += bytes as u64;
        drain(&mut host, &client, sent);
        assert_eq!(count(&event), bytes as u64);
    }
    // Settle waits for the bytes that have not arrived yet.
    client.ask(broker_request::Body::Settle(true), None);
    let event_channels = vec![rung::EventChannel { event: 9, wakes: sent + 1 }];
    host.serve(host_to_guestd::Body::Rung(Rung { event_channels }));
    event_channel.write_all(&[1]).unwrap();
    assert_eq!(client.refusal(), "");
    assert_eq!(count(&event), 1);
}

#[test]
fn an_event_that_is_forgotten_is_not_set_by_the_end_of_its_event_channel() {
    let (mut host, client, event, mut event_channel) = with_an_event_channel();
    client.ask(broker_request::Body::UnregisterEvent(9), None);
    let asked = host.serve(host_to_guestd::Body::Forgotten(true));
    assert_eq!(asked, guestd_to_host::Body::UnregisterEvent(RegisteredEvent { process: 5, event: 9 }));
    assert_eq!(client.refusal(), "");
    assert_eq!(event_channel.read(&mut [0; 1]).unwrap(), 0, "the host sees the end");
    drop(event_channel);
    assert_eq!(count(&event), 0);
}

#[test]
fn the_end_of_a_process_ends_its_event_channels_and_sets_nothing() {
    let (mut host, client, event, mut event_channel) = with_an_event_channel();
    drop(client);
    host.expect_detach();
    assert_eq!(event_channel.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(count(&event), 0);
}

#[test]
fn an_event_without_an_eventfd_is_not_registered() {
    let (mut host, client, _event, _event_channel) = with_an_event_channel();
    let no_event = OwnedFd::from(File::open("/dev/null").unwrap());
    for (name, descriptor, why) in [(10, Some(&no_event), "no eventfd"), (11, None, "carries no eventfd")] {
        client.ask(broker_request::Body::RegisterEvent(name), descriptor);
        host.serve(host_to_guestd::Body::EventChannel(vec![3; 16]));
        let forgotten = host.serve(host_to_guestd::Body::Forgotten(true));
        assert_eq!(
            forgotten,
            guestd_to_host::Body::UnregisterEvent(RegisteredEvent { process: 5, event: name })
        );
        let refused = client.refusal();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_event_channel_that_the_host_ends_is_no_event_channel_and_nothing_waits_for_it() {
    let (mut host, client, _event, event_channel) = with_an_event_channel();
    drop(event_channel);
    // The bytes may arrive first.
    drain(&mut host, &client, 1);
}

#[test]
fn a_process_that_dies_is_detached_although_its_child_holds_the_connection() {
    if let Some(socket) = std::env::var_os(ROLE) {
        return connect_and_leave_a_child(Path::new(&socket));
    }
    let mut host = Host::start();
    let name = "driver::tests::a_process_that_dies_is_detached_although_its_child_holds_the_connection";
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ROLE, &host.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The grandchild lives as long as this pipe.
    let life = process.stdin.take();
    assert_eq!(host.attach(), process.id());
    assert!(process.wait().unwrap().success());
    host.expect_detach();
    drop(life);
}

fn connect_and_leave_a_child(socket: &Path) {
    let client = Client::connect(socket);
    client.send_attach();
    assert_eq!(client.reply().unwrap().0.process, 5);
    // It inherits the connection, which is not closed on exec, and waits on our standard input.
    let child = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
    drop(child);
}

#[test]
fn an_invalid_request_is_refused_with_the_reason_and_closed() {
    let mut host = Host::start();
    let good = Client::connect(&host.socket);
    good.send_attach();
    host.attach();
    assert!(good.reply().unwrap().0.refused.is_empty());
    let packets: [&[u8]; 2] = [&[0xff; 100], &[0; proto::limits::BROKER_PACKET_BYTES_MAX + 100]];
    for packet in packets {
        let client = Client::connect(&host.socket);
        client.send(packet);
        // Unread packets must not hide the reason.
        let _ = send(&client.0, packet, SendFlags::NOSIGNAL);
        let (reply, _) = client.reply().unwrap();
        assert!(!reply.refused.is_empty());
        assert!(client.reply().is_none());
    }
    drop(good);
    host.expect_detach();
}

#[test]
fn a_host_that_sends_garbage_or_goes_ends_its_processes() {
    for garbage in [None, Some([0xff; 16])] {
        let mut host = Host::start();
        let client = Client::connect(&host.socket);
        client.send_attach();
        host.attach();
        client.reply().unwrap();
        if let Some(garbage) = garbage {
            host.stream.write_all(&garbage).unwrap();
            // The broker closes its end and waits for the host's.
            assert_eq!(host.stream.read(&mut [0; 1]).unwrap(), 0);
        }
        host.stream.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(client.reply().is_none());
    }
}

#[test]
fn a_second_broker_at_the_same_path_names_the_first_and_a_left_over_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/broker.sock");
    let first = crate::serve::listen_at(&path).unwrap();
    let error = crate::serve::listen_at(&path).unwrap_err().to_string();
    assert!(error.contains("in use by process"), "{error}");
    drop(first);
    crate::serve::listen_at(&path).unwrap();
}

/// A socket whose close waits for its peer, which reads nothing; and the peer.
fn lingering() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(3600))).unwrap();
    (socket.into(), peer)
}

/// Whether the broker answers a new client.
fn is_served(host: &mut Host) -> bool {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    let client = Client::connect(&host.socket);
    // The timeout passes only if the broker is blocked.
    set_socket_timeout(&client.0, Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
    client.send(&[0xff; 8]);
    recvmsg(
        client.0.as_fd(),
        &mut [IoSliceMut::new(&mut [0; 256])],
        &mut RecvAncillaryBuffer::default(),
        RecvFlags::empty(),
    )
    .is_ok()
}

/// Sends each packet with this many lingering sockets, whose only descriptor it then has.
fn send_lingering(client: &Client, packets: &[(&[u8], usize)]) -> Vec<std::net::TcpStream> {
    let mut peers = Vec::new();
    for (bytes, descriptors) in packets {
        let sent: Vec<_> = (0..*descriptors).map(|_| lingering()).collect();
        client.send_with(bytes, sent.iter().map(|(socket, _)| socket));
        peers.extend(sent.into_iter().map(|(_, peer)| peer));
    }
    peers
}

#[test]
fn no_descriptor_that_is_received_holds_the_broker_up_when_it_is_closed() {
    let mut host = Host::start();
    let keep = BrokerRequest { body: Some(broker_request::Body::RegisterEvent(9)) }.encode_to_vec();
    for packet in [(&keep[..], 1), (&keep[..], 3), (&[][..], 1)] {
        let client = Client::connect(&host.socket);
        let _peers = send_lingering(&client, &[packet]);
        assert!(is_served(&mut host), "{packet:?} holds the broker up");
    }
}

#[test]
fn no_descriptor_that_is_left_in_a_connection_holds_the_broker_up_when_that_is_closed() {
    let mut host = Host::start();
    for packets in [&[(&[1][..], 1)][..], &[(&[1], 0), (&[], 0), (&[], 1)]] {
        let client = Client::connect(&host.socket);
        client.send_attach();
        // No other packet of this client is read before this one is answered.
        let request = host.next();
        let _peers = send_lingering(&client, packets);
        let refusal = HostToGuestd { request: request.request, refused: "no".to_owned(), body: None };
        let mut bytes = Vec::new();
        frame::append(&refusal, &mut bytes);
        host.stream.write_all(&bytes).unwrap();
        assert!(is_served(&mut host), "{packets:?} hold the broker up");
    }
}
