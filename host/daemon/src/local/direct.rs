//! The loop of local processes without its thread and its listening socket: its owner connects processes, and calls its
//! turns. For fuzz targets, because one input then takes little time and always does the same.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use dxgkrnl::VmId;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{Loop, user_of};
use crate::eventfd::Setter;
use crate::kernel_host::KernelHost;

/// Turns of one call: a ring or a stream of a client can have something for ever.
const TURNS_MAX: usize = 64;
/// All loops have the same one, because its end takes the system tens of milliseconds.
static SETTER: LazyLock<Option<Arc<Setter>>> = LazyLock::new(Setter::if_supported);

/// The loop of the host's processes, on the thread of its owner.
pub struct DirectLoop(Loop);

impl DirectLoop {
    /// A loop without processes. Sync files are made in a folder beside `socket`, which need not exist.
    pub fn new(kernel_host: Arc<KernelHost>, socket: &Path) -> anyhow::Result<DirectLoop> {
        let event_channel = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (_, commands) = std::sync::mpsc::channel();
        let sockets = [(VmId::HOST, socket)];
        let mut inner = Loop::new(kernel_host, &sockets, event_channel, commands, SETTER.clone())?;
        inner.watch_own()?;
        Ok(DirectLoop(inner))
    }

    /// Connects a process to the broker, as its listener does. Returns the process's end.
    pub fn connect(&mut self) -> anyhow::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.context("cannot make a connection")?;
        let peer = user_of(&ours);
        self.0.accepted(VmId::HOST, peer, ours)?;
        Ok(theirs)
    }

    /// Handles all that is ready, as the thread does between two sleeps.
    pub fn run_ready(&mut self) -> anyhow::Result<()> {
        for _ in 0..TURNS_MAX {
            let mut events = Vec::with_capacity(64);
            self.0.resume_reads();
            self.0.look_at_rings();
            epoll::wait(&*self.0.epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
            if events.is_empty() && self.0.turns.is_empty() && self.0.rest_rings() {
                break;
            }
            for event in &events {
                self.0.event(event.data.u64(), event.flags);
            }
            self.0.run_pass();
            self.0.check_awaited();
        }
        Ok(())
    }
}

impl Drop for DirectLoop {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use d3dkmt::Call;
    use frame_ring::{KICK, MappedArea, OwnMappedArea, Receiver, Sender};
    use proto::Message as _;
    use proto::attach::broker_request::{Attach, Body, Resume};
    use proto::attach::{BrokerReply, BrokerRequest};
    use proto::channel::{Hello, ToHost, to_host};
    use proto::convert::call_to_frame;
    use proto::frame::append;
    use rustix::net::{RecvFlags, SendFlags, recv, send};
    use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

    use super::super::Source;
    use super::super::returning_processes::ResumeWait;
    use super::*;
    use crate::Options;
    use crate::in_process::{RingReceiver, RingSender};
    use crate::limits::{HANDLES_CLOSED_AT_ONCE_MAX, PENDING_CONNECTIONS_PER_PEER_MAX};
    use crate::peer::Peer;
    use crate::receive::{Accepted, Received, receive};

    /// The loop of a daemon that waits for clients of the one before it.
    struct Returning {
        local: DirectLoop,
        kernel_host: Arc<KernelHost>,
        _folder: tempfile::TempDir,
    }

    impl Returning {
        fn new() -> Returning {
            let kernel_host = KernelHost::new(&Options::default()).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
            local.0.returning = Some(ResumeWait::default());
            Returning { local, kernel_host, _folder: folder }
        }

        /// Handles what clients have sent, and no end of the wait.
        fn handle(&mut self) {
            loop {
                let mut events = Vec::with_capacity(64);
                epoll::wait(&*self.local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default()))
                    .unwrap();
                if events.is_empty() && self.local.0.turns.is_empty() {
                    return;
                }
                events.iter().for_each(|event| self.local.0.event(event.data.u64(), event.flags));
                self.local.0.run_pass();
            }
        }

        /// Connects a process that sends a request, which is handled.
        fn request(&mut self, body: Body) -> OwnedFd {
            let connection = self.local.connect().unwrap();
            let request = BrokerRequest { body: Some(body) };
            send(&connection, &request.encode_to_vec(), SendFlags::NOSIGNAL).unwrap();
            self.handle();
            connection
        }

        fn descriptors_taken(&self) -> usize {
            self.kernel_host.budgets.descriptors.figures().1
        }
    }

    fn attach() -> Body {
        let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
        Body::Attach(Attach { version, version_min, ..Attach::default() })
    }

    /// The reason why the daemon has refused a request; `None` if it has not answered.
    fn refusal(connection: &OwnedFd) -> Option<String> {
        let mut packet = [0; 4096];
        let (length, _) = recv(connection, &mut packet, RecvFlags::DONTWAIT).ok()?;
        Some(BrokerReply::decode(&packet[..length]).unwrap().refused)
    }

    /// A process with rings, and its ends of them.
    struct Process {
        broker: OwnedFd,
        stream: UnixStream,
        sender: RingSender,
        receiver: RingReceiver,
    }

    impl Process {
        fn new(local: &mut DirectLoop) -> Process {
            let broker = local.connect().unwrap();
            let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
            let body = Body::Attach(Attach { version, version_min, rings: true, ..Attach::default() });
            let request = BrokerRequest { body: Some(body) }.encode_to_vec();
            send(&broker, &request, SendFlags::NOSIGNAL).unwrap();
            local.run_ready().unwrap();
            let mut packet = [0; 4096];
            let Received { bytes, descriptors } =
                receive(broker.as_fd(), &mut packet, Accepted::Descriptors).unwrap();
            let reply = BrokerReply::decode(&packet[..bytes]).unwrap();
            let [stream, _, host, own] = descriptors.try_into().unwrap();
            let mut stream = UnixStream::from(stream);
            stream.set_nonblocking(true).unwrap();
            let hello = Hello { version, token: reply.token, rings: true, ..Hello::default() };
            let mut frame = Vec::new();
            append(&ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }, &mut frame);
            stream.write_all(&frame).unwrap();
            local.run_ready().unwrap();
            assert!(stream.read(&mut packet).unwrap() > 0, "the Welcome");
            let (host, own) =
                (MappedArea::map(host.as_fd()).unwrap(), OwnMappedArea::map(own.as_fd()).unwrap());
            let (sender, receiver) = (Sender::new(own.clone(), host.clone()), Receiver::new(own, host));
            Process { broker, stream, sender, receiver }
        }

        /// Makes a call through the ring, and waits for its answer in a sleep.
        fn call(&mut self, request: u64) {
            let mut frame = Vec::new();
            append(&call_to_frame(request, &Call::EnumAdapters { capacity: 1 }), &mut frame);
            assert!(self.receiver.sleep());
            self.sender.publish(&frame);
            assert!(self.sender.must_kick(), "the daemon sleeps");
            self.stream.write_all(KICK).unwrap();
        }
    }

    /// Bytes that the daemon has not read of the only stream.
    fn unread(local: &DirectLoop) -> u64 {
        let stream = |source: &Source| {
            let Source::Stream { stream, .. } = source else { return None };
            Some(rustix::io::ioctl_fionread(stream.as_fd()).unwrap())
        };
        local.0.sources.values().find_map(stream).unwrap()
    }

    #[test]
    fn calls_in_a_ring_are_answered_before_the_kick_is_read_and_the_kick_is_read_in_the_next_turn() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host, &folder.path().join("broker.sock")).unwrap();
        let mut process = Process::new(&mut local);
        for request in 1..=3 {
            process.call(request);
            let mut events = Vec::with_capacity(8);
            epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
            events.iter().for_each(|event| local.0.event(event.data.u64(), event.flags));
            local.0.run_pass();
            assert_eq!(process.stream.read(&mut [0; 16]).unwrap(), KICK.len(), "it is woken");
            assert_eq!(unread(&local), KICK.len() as u64);
            local.0.run_pass();
            assert_eq!((unread(&local), local.0.turns.is_empty()), (0, true));
            let mut answer = Vec::new();
            process.receiver.wake();
            assert!(process.receiver.take(&mut answer, usize::MAX).unwrap() > 0);
            local.run_ready().unwrap();
        }
    }

    /// Connects a process of this user that sends a request, which is not handled yet.
    fn request_of(local: &mut DirectLoop, user: u32, body: Body) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        local.0.accepted(VmId::HOST, Peer::Uid(user), ours).unwrap();
        send(&theirs, &BrokerRequest { body: Some(body) }.encode_to_vec(), SendFlags::NOSIGNAL).unwrap();
        theirs
    }

    #[test]
    fn a_request_waits_for_one_of_another_user_however_many_connections_that_one_has() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host, &folder.path().join("broker.sock")).unwrap();
        let many: Vec<_> = (0..32).map(|_| request_of(&mut local, 7, attach())).collect();
        let one = request_of(&mut local, 8, attach());
        let mut events = Vec::with_capacity(64);
        epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
        events.iter().for_each(|event| local.0.event(event.data.u64(), event.flags));
        events.clear();
        epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
        assert_eq!(events.len(), 0, "those that wait for their turn stand before nothing new");
        local.0.run_pass();
        assert_eq!(refusal(&one).as_deref(), Some(""), "it is answered");
        let (answered, waiting): (Vec<_>, Vec<_>) =
            many.into_iter().partition(|connection| refusal(connection).is_some());
        assert_eq!((answered.len(), waiting.len()), (1, 31));
        local.run_ready().unwrap();
        assert_eq!(waiting.iter().filter_map(refusal).collect::<Vec<_>>(), vec![""; 31], "all are answered");
    }

    #[test]
    fn closed_nt_handles_of_users_take_turns_and_a_request_for_one_comes_after_the_closes_of_its_user() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        let process = Process::new(&mut local);
        let make = |local: &mut DirectLoop, user| local.0.make_nt_handle(VmId::HOST, user, false).unwrap();
        let own = Peer::Uid(geteuid().as_raw());
        let many: Vec<_> = (0..2 * HANDLES_CLOSED_AT_ONCE_MAX).map(|_| make(&mut local, own)).collect();
        let other = make(&mut local, Peer::Uid(7));
        let token = nt_handle::token_of(other.as_fd()).unwrap();
        drop((many, other));
        local.0.close_nt_handles(VmId::HOST);
        assert_eq!(kernel_host.nt_handles().count(), HANDLES_CLOSED_AT_ONCE_MAX + 1);
        assert!(!kernel_host.nt_handles().is_open(VmId::HOST, token), "its turn is the second");
        let many: Vec<_> = (0..2 * HANDLES_CLOSED_AT_ONCE_MAX).map(|_| make(&mut local, own)).collect();
        drop(many);
        let request = BrokerRequest { body: Some(Body::MakeNtHandle(true)) };
        send(&process.broker, &request.encode_to_vec(), SendFlags::NOSIGNAL).unwrap();
        let mut events = Vec::with_capacity(64);
        epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
        events.iter().for_each(|event| local.0.event(event.data.u64(), event.flags));
        let mut passes = 0;
        while refusal(&process.broker).is_none() {
            local.0.run_pass();
            passes += 1;
        }
        assert!(passes > 1);
        assert_eq!(kernel_host.nt_handles().count(), 1, "only the new one is open");
    }

    #[test]
    fn a_process_that_closes_its_connection_while_others_return_keeps_no_descriptor_of_the_daemon() {
        let mut returning = Returning::new();
        for _ in 0..100 {
            drop(returning.request(attach()));
            returning.handle();
        }
        assert_eq!(returning.descriptors_taken(), 0);
    }

    #[test]
    fn so_many_new_processes_of_one_user_wait_while_others_return() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
        let mut returning = Returning::new();
        let waiting: Vec<_> =
            (0..PENDING_CONNECTIONS_PER_PEER_MAX).map(|_| returning.request(attach())).collect();
        assert!(waiting.iter().all(|connection| refusal(connection).is_none()));
        let refused = refusal(&returning.request(attach())).unwrap();
        assert!(refused.contains("try again"), "{refused}");
        assert_eq!(returning.descriptors_taken(), PENDING_CONNECTIONS_PER_PEER_MAX);
        drop(waiting);
        returning.handle();
        assert_eq!(refusal(&returning.request(attach())), None, "their places are free");
    }

    #[test]
    fn a_user_over_its_share_gets_no_new_process_while_others_return() {
        let mut returning = Returning::new();
        let (descriptors, own) =
            (returning.kernel_host.budgets.descriptors.clone(), Peer::Uid(geteuid().as_raw()));
        let most = descriptors.count(own, descriptors.figures().0 / 4 * 3);
        let before = returning.descriptors_taken();
        let refused = refusal(&returning.request(attach())).unwrap();
        assert!(refused.contains("no client may have more"), "{refused}");
        assert_eq!(returning.descriptors_taken(), before, "its connection is closed");
        // A process that returns is refused by its token alone.
        let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
        let resume = Resume { version, version_min, process: 1, ..Resume::default() };
        let refused = refusal(&returning.request(Body::Resume(resume))).unwrap();
        assert!(!refused.contains("no client may have more"), "{refused}");
        drop(most);
        assert_eq!(refusal(&returning.request(attach())), None);
    }

    #[test]
    fn a_connection_without_room_is_closed_without_a_refusal_while_processes_return() {
        let mut returning = Returning::new();
        let descriptors = returning.kernel_host.budgets.descriptors.clone();
        let _all = descriptors.count(Peer::Uid(7), descriptors.figures().0 + 1);
        let pair = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
        };
        let peer = Peer::Uid(geteuid().as_raw());
        for (is_returning, answered) in [(true, false), (false, true)] {
            let (ours, theirs) = pair();
            if !is_returning {
                returning.local.0.returning = None;
            }
            assert!(returning.local.0.accepted(VmId::HOST, peer, ours).is_err());
            let refusal = refusal(&theirs).unwrap();
            assert_eq!(!refusal.is_empty(), answered, "{refusal}");
        }
    }

    #[test]
    fn a_user_over_its_share_connects_while_clients_return_as_long_as_anything_is_left() {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        let (descriptors, own) = (&kernel_host.budgets.descriptors, Peer::Uid(geteuid().as_raw()));
        let total = descriptors.figures().0;
        let _most = descriptors.count(own, total / 4 * 3);
        assert!(local.connect().is_err());
        local.0.returning = Some(ResumeWait::default());
        let _connection = local.connect().unwrap();
        let _rest = descriptors.count(own, total);
        assert!(local.connect().is_err());
    }
}
