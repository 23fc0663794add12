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
            if events.is_empty() && self.0.has_no_turns() && self.0.rest_rings() {
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
    use std::io::{IoSlice, Read as _, Write as _};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    use d3dkmt::Call;
    use d3dkmt::limits::REGISTERED_EVENTS_PER_PROCESS_MAX;
    use dxgkrnl::{Input, ProcessId};
    use frame_ring::{KICK, MappedArea, OwnMappedArea, Receiver, Sender};
    use proto::Message as _;
    use proto::attach::broker_request::{Attach, Body, Resume};
    use proto::attach::{BrokerReply, BrokerRequest};
    use proto::channel::{Hello, ToHost, to_host};
    use proto::convert::call_to_frame;
    use proto::frame::append;
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg};
    use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

    use super::super::Source;
    use super::super::returning_processes::ResumeWait;
    use super::*;
    use crate::Options;
    use crate::backing::LocalPages;
    use crate::closing::ClientFd;
    use crate::in_process::{RingReceiver, RingSender};
    use crate::kernel_host::{FlushList, ReceivedCall};
    use crate::limits::{HANDLES_CLOSED_AT_ONCE_MAX, PENDING_CONNECTIONS_PER_PEER_MAX};
    use crate::memory::FenceMemory;
    use crate::observer::{DaemonKernel, Observer};
    use crate::peer::Peer;
    use crate::receive::{Accepted, Received, receive};

    /// The loop of a new daemon, and the folder of its socket.
    fn new_loop() -> (DirectLoop, Arc<KernelHost>, tempfile::TempDir) {
        let kernel_host = KernelHost::new(&Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        (local, kernel_host, folder)
    }

    /// The loop of a daemon that waits for clients of the one before it.
    struct Returning {
        local: DirectLoop,
        kernel_host: Arc<KernelHost>,
        _folder: tempfile::TempDir,
    }

    impl Returning {
        fn new() -> Returning {
            let (mut local, kernel_host, _folder) = new_loop();
            local.0.returning = Some(ResumeWait::default());
            Returning { local, kernel_host, _folder }
        }

        /// Handles what clients have sent, and no end of the wait.
        fn handle(&mut self) {
            loop {
                let mut events = Vec::with_capacity(64);
                epoll::wait(&*self.local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default()))
                    .unwrap();
                if events.is_empty() && self.local.0.has_no_turns() {
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

    /// Ends a connection of a client. Closing it would not do: a child that another test starts has a copy until its exec.
    fn hang_up(connection: impl AsFd) {
        rustix::net::shutdown(connection, rustix::net::Shutdown::Both).unwrap();
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
        let (mut local, _, _folder) = new_loop();
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

    /// All are of one user, whose turns they share.
    #[test]
    fn a_call_waits_for_the_ends_of_a_few_processes_however_many_end_and_those_of_a_few_come_before_it() {
        const MANY: usize = 60;
        let (mut local, kernel_host, _folder) = new_loop();
        let mut caller = Process::new(&mut local);
        let left = || kernel_host.sessions().clients_of(VmId::HOST).len() - 1;
        for (count, left_at_least) in [(5, 0), (MANY, MANY - 30)] {
            let many: Vec<_> = (0..count).map(|_| Process::new(&mut local)).collect();
            for process in &many {
                hang_up(&process.broker);
                hang_up(&process.stream);
            }
            caller.call(1);
            let mut events = Vec::with_capacity(256);
            epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
            events.iter().for_each(|event| local.0.event(event.data.u64(), event.flags));
            events.clear();
            epoll::wait(&*local.0.epoll, spare_capacity(&mut events), Some(&Timespec::default())).unwrap();
            assert_eq!(events.len(), 1, "only the kick, which is not read");
            while caller.stream.read(&mut [0; 16]).is_err() {
                local.0.run_pass();
            }
            let left_then = left();
            assert!(
                (left_at_least..=count - 5).contains(&left_then),
                "{left_then} of {count} have not ended"
            );
            local.run_ready().unwrap();
            assert_eq!(left(), 0);
            let mut answer = Vec::new();
            caller.receiver.wake();
            assert!(caller.receiver.take(&mut answer, usize::MAX).unwrap() > 0);
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
        let (mut local, _, _folder) = new_loop();
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
        let (mut local, kernel_host, _folder) = new_loop();
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
            hang_up(returning.request(attach()));
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
        waiting.into_iter().for_each(hang_up);
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
        let (mut local, kernel_host, _folder) = new_loop();
        let (descriptors, own) = (&kernel_host.budgets.descriptors, Peer::Uid(geteuid().as_raw()));
        let total = descriptors.figures().0;
        let _most = descriptors.count(own, total / 4 * 3);
        assert!(local.connect().is_err());
        local.0.returning = Some(ResumeWait::default());
        let _connection = local.connect().unwrap();
        let _rest = descriptors.count(own, total);
        assert!(local.connect().is_err());
    }

    /// Sends a request with a descriptor, and returns the reason why it is refused.
    fn refusal_of(local: &mut DirectLoop, connection: &OwnedFd, body: Body, with: BorrowedFd<'_>) -> String {
        let bytes = BrokerRequest { body: Some(body) }.encode_to_vec();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut ancillary, rights) = (SendAncillaryBuffer::new(&mut space), [with]);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(connection, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        local.run_ready().unwrap();
        refusal(connection).expect("it is answered")
    }

    #[test]
    fn an_event_is_an_eventfd_and_an_nt_handle_is_presented_by_a_process_that_returns() {
        let (mut local, _, _folder) = new_loop();
        let process = Process::new(&mut local);
        let handle = local.0.make_nt_handle(VmId::HOST, Peer::Uid(geteuid().as_raw()), false).unwrap();
        let mut ask = |body, with| refusal_of(&mut local, &process.broker, body, with);
        let refused = ask(Body::RegisterEvent(1), handle.as_fd());
        assert!(refused.contains("event 1 is no eventfd"), "{refused}");
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(ask(Body::RegisterEvent(1), event.as_fd()), "");
        let refused = ask(Body::HaveNtHandle(true), handle.as_fd());
        assert!(refused.contains("only a returning process"), "{refused}");
    }

    #[test]
    fn what_a_process_has_at_the_daemon_is_charged_until_it_ends() {
        let (mut local, kernel_host, _folder) = new_loop();
        let budgets = &kernel_host.budgets;
        let charged = |local: &DirectLoop| {
            let processes = &local.0.budgets[&VmId::HOST].processes;
            (processes.figures().1, budgets.descriptors.figures().1, budgets.mappings.figures().1)
        };
        let process = Process::new(&mut local);
        // Its connection, its stream and its pidfd; its fence memory and two rings.
        assert_eq!(charged(&local), (1, 3, 3));
        drop(process);
        local.run_ready().unwrap();
        assert_eq!(charged(&local), (0, 0, 0));
    }

    /// A daemon that is restarted would not know what it owes to an event.
    #[test]
    fn a_daemon_with_a_journal_registers_no_events() {
        let folder = tempfile::tempdir().unwrap();
        let with_journal = Options::with_journal(folder.path());
        for (options, most) in
            [(Options::default(), REGISTERED_EVENTS_PER_PROCESS_MAX as u32), (with_journal, 0)]
        {
            let kernel_host = KernelHost::new(&options).unwrap();
            let mut local = DirectLoop::new(kernel_host, &folder.path().join("broker.sock")).unwrap();
            let connection = request_of(&mut local, geteuid().as_raw(), attach());
            local.run_ready().unwrap();
            let mut packet = [0; 4096];
            let length = recv(&connection, &mut packet, RecvFlags::DONTWAIT).unwrap().0;
            assert_eq!(BrokerReply::decode(&packet[..length]).unwrap().events_max, most);
        }
    }

    #[test]
    fn all_closed_nt_handles_are_closed_however_many() {
        let (mut local, kernel_host, _folder) = new_loop();
        let peer = Peer::Uid(7);
        let make = |_| local.0.make_nt_handle(VmId::HOST, peer, false).unwrap();
        let many: Vec<_> = (0..3 * HANDLES_CLOSED_AT_ONCE_MAX).map(make).collect();
        drop(many);
        local.run_ready().unwrap();
        assert_eq!(kernel_host.nt_handles().count(), 0);
        assert_eq!(local.0.budgets[&VmId::HOST].nt_handles.figures().1, 0);
    }

    #[test]
    fn memory_that_is_attached_again_is_charged() {
        let returning = Returning::new();
        let budgets = &returning.kernel_host.budgets;
        let charged = || (budgets.mappings.figures().1, budgets.backing_pages.figures().1);
        let (_, memory) = LocalPages::create(3).unwrap();
        let memory = ClientFd::foreign(memory, Peer::Uid(7), &budgets.closers);
        let mapped = returning.local.0.mapped_again(&memory, 3).unwrap();
        assert_eq!(charged(), (1, 3));
        drop(mapped);
        assert_eq!(charged(), (0, 0));
    }

    #[test]
    fn a_connection_that_waits_to_attach_a_new_process_resumes_none() {
        let mut returning = Returning::new();
        let connection = returning.request(attach());
        let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
        let resume = Resume { version, version_min, process: 1, ..Resume::default() };
        let request = BrokerRequest { body: Some(Body::Resume(resume)) };
        send(&connection, &request.encode_to_vec(), SendFlags::NOSIGNAL).unwrap();
        returning.handle();
        let refused = refusal(&connection).unwrap();
        assert!(refused.contains("a connection is for one process"), "{refused}");
    }

    /// The loop of a daemon whose predecessor with the same journal was killed, and the process that it waits for.
    struct Restarted {
        local: DirectLoop,
        kernel_host: Arc<KernelHost>,
        process: ProcessId,
        _folder: tempfile::TempDir,
    }

    impl Restarted {
        fn with_process(pid: u32) -> Restarted {
            let folder = tempfile::tempdir().unwrap();
            let options = Options::with_journal(folder.path());
            let before = KernelHost::new(&options).unwrap();
            let none = FenceMemory::Local(Vec::new());
            let process = before.sessions().attach(VmId::HOST, pid, String::new(), none).unwrap().0.id;
            let call = Call::EnumAdapters { capacity: 1 };
            let received = ReceivedCall { request: 1, call, timestamps: None };
            assert!(before.calls(process, &mut [received].into(), &mut FlushList::default()));
            drop(before);
            let kernel_host = KernelHost::new(&options).unwrap();
            let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
            local.0.begin_returning().unwrap();
            Restarted { local, kernel_host, process, _folder: folder }
        }

        /// Presents the process's right on a new connection; returns this, the stream and its token.
        fn resume(&mut self) -> (OwnedFd, UnixStream, Vec<u8>) {
            let (token, _) = self.kernel_host.sessions().resume_right(self.process).unwrap();
            let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
            let (process, token) = (self.process.0, token.to_vec());
            let resume = Resume { version, version_min, process, token, ..Resume::default() };
            let connection = self.local.connect().unwrap();
            let request = BrokerRequest { body: Some(Body::Resume(resume)) };
            send(&connection, &request.encode_to_vec(), SendFlags::NOSIGNAL).unwrap();
            self.local.run_ready().unwrap();
            let mut packet = [0; 4096];
            let Received { bytes, descriptors } =
                receive(connection.as_fd(), &mut packet, Accepted::Descriptors).unwrap();
            let reply = BrokerReply::decode(&packet[..bytes]).unwrap();
            let [stream] = descriptors.try_into().unwrap();
            let stream = UnixStream::from(stream);
            stream.set_nonblocking(true).unwrap();
            (connection, stream, reply.token)
        }

        fn greet(&mut self, mut stream: &UnixStream, token: Vec<u8>, received: u64) {
            let version = proto::PROTOCOL_VERSION;
            let hello = Hello { version, token, received, ..Hello::default() };
            let mut frame = Vec::new();
            append(&ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }, &mut frame);
            stream.write_all(&frame).unwrap();
            self.local.run_ready().unwrap();
        }

        fn is_attached(&self) -> bool {
            self.kernel_host.sessions().client(self.process).is_some()
        }
    }

    #[test]
    fn a_process_that_ended_before_its_daemon_was_back_is_not_waited_for() {
        let restarted = Restarted::with_process(i32::MAX as u32);
        assert!(!restarted.is_attached() && !restarted.kernel_host.resumption().is_resuming());
    }

    /// Its connections end, and it is awaited all the same, as it may try again.
    #[test]
    fn the_exit_of_a_process_is_watched_for_as_long_as_it_is_awaited() {
        let mut restarted = Restarted::with_process(std::process::id());
        let (connection, stream, _) = restarted.resume();
        // As at its exit, which is reported before its connections are handled.
        restarted.local.0.detach_after_calls(restarted.process);
        hang_up(&connection);
        hang_up(&stream);
        restarted.local.run_ready().unwrap();
        let Loop { sources, epoll, .. } = &restarted.local.0;
        let pidfd = sources.values().find(|source| matches!(source, Source::Pid { .. }));
        let pidfd = pidfd.and_then(Source::descriptor).expect("it is awaited");
        let data = epoll::EventData::new_u64(0);
        let added = epoll::add(&**epoll, pidfd, data, epoll::EventFlags::IN);
        assert_eq!(added, Err(Errno::EXIST), "epoll reports its exit");
    }

    #[test]
    fn a_process_that_has_read_more_than_the_daemon_knows_of_is_detached() {
        let mut restarted = Restarted::with_process(std::process::id());
        let (_connection, mut stream, token) = restarted.resume();
        restarted.greet(&stream, token, 7);
        assert!(!restarted.kernel_host.resumption().is_resuming() && !restarted.is_attached());
        let mut goodbye = Vec::new();
        stream.read_to_end(&mut goodbye).unwrap();
        assert!(String::from_utf8_lossy(&goodbye).contains("the session cannot be resumed"));
    }

    #[test]
    fn the_connections_of_a_return_end_with_the_next_return_of_its_process() {
        let mut restarted = Restarted::with_process(std::process::id());
        let (connection, mut stream, old) = restarted.resume();
        let (_again, next, token) = restarted.resume();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "it is hung up");
        assert_eq!(recv(&connection, &mut [0; 8], RecvFlags::DONTWAIT).unwrap().0, 0);
        restarted.greet(&next, token, 1);
        assert!(restarted.is_attached() && !restarted.kernel_host.resumption().is_resuming());
        let redeemed = restarted.kernel_host.sessions().redeem(&old.try_into().unwrap(), |_| Ok::<_, ()>(()));
        assert!(redeemed.unwrap().is_none(), "the token of the earlier return is not valid");
    }

    /// Publishes so many calls in the ring of a process, and kicks nobody.
    fn publish(process: &mut Process, calls: u64) {
        for request in 1..=calls {
            let mut frame = Vec::new();
            append(&call_to_frame(request, &Call::EnumAdapters { capacity: 1 }), &mut frame);
            process.sender.publish(&frame);
        }
    }

    #[test]
    fn all_calls_that_a_process_published_before_its_end_are_made() {
        // Several times what a turn takes.
        const CALLS: u64 = 500;
        let (mut local, kernel_host, _folder) = new_loop();
        let mut process = Process::new(&mut local);
        let client = kernel_host.sessions().clients().remove(0);
        publish(&mut process, CALLS);
        hang_up(&process.broker);
        hang_up(&process.stream);
        local.run_ready().unwrap();
        assert!(kernel_host.sessions().client(client.id).is_none());
        assert_eq!(client.calls.count(), CALLS);
        // A child has its connections open: only the system says that it has ended.
        let mut process = Process::new(&mut local);
        let client = kernel_host.sessions().clients().remove(0);
        publish(&mut process, CALLS);
        local.0.detach_after_calls(client.id);
        local.run_ready().unwrap();
        assert!(kernel_host.sessions().client(client.id).is_none());
        assert_eq!(client.calls.count(), CALLS);
    }

    #[test]
    fn a_connection_whose_message_is_held_and_whose_client_has_gone_ends() {
        let (mut local, kernel_host, _folder) = new_loop();
        let connections = |local: &DirectLoop| {
            local.0.sources.values().filter(|one| matches!(one, Source::Broker { .. })).count()
        };
        let descriptors = &kernel_host.budgets.descriptors;
        for is_gone_before in [false, true] {
            let connection = local.connect().unwrap();
            let all = descriptors.count(Peer::Uid(geteuid().as_raw()), descriptors.figures().0);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let (mut ancillary, rights) = (SendAncillaryBuffer::new(&mut space), [connection.as_fd()]);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
            sendmsg(&connection, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            if !is_gone_before {
                local.run_ready().unwrap();
                assert_eq!((connections(&local), local.0.deferred.is_empty()), (1, false), "it is held");
            }
            hang_up(&connection);
            local.run_ready().unwrap();
            assert_eq!(connections(&local), 0);
            drop(all);
        }
    }

    /// The inputs about NT handles and ends of processes.
    #[derive(Default)]
    struct Ends(std::sync::Mutex<Vec<Input>>);

    impl Observer for Ends {
        fn step(&self, _: dxgkrnl::Nanos, input: &Input, _: &dxgkrnl::Effects, _: &DaemonKernel) {
            if matches!(input, Input::NtHandleClosed { .. } | Input::ProcessGone { .. }) {
                self.0.lock().unwrap().push(input.clone());
            }
        }
    }

    #[test]
    fn nt_handles_that_a_process_has_closed_are_closed_before_it_is_gone() {
        let ends = Arc::new(Ends::default());
        let observer: Option<Arc<dyn Observer>> = Some(ends.clone());
        let kernel_host = KernelHost::new(&Options { observer, ..Options::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut local = DirectLoop::new(kernel_host.clone(), &folder.path().join("broker.sock")).unwrap();
        let _process = Process::new(&mut local);
        let process = kernel_host.sessions().clients()[0].id;
        let handle = local.0.make_nt_handle(VmId::HOST, Peer::Uid(7), false).unwrap();
        let token = nt_handle::token_of(handle.as_fd()).unwrap();
        // It names it, though there is no fence of this handle.
        let (device, fence) = (d3dkmt::Handle::NULL, d3dkmt::Handle::NULL);
        let call = Call::CreateSyncFile { device, fence, fence_value: 1, token };
        let received = ReceivedCall { request: 1, call, timestamps: None };
        assert!(kernel_host.calls(process, &mut [received].into(), &mut FlushList::default()));
        drop(handle);
        local.0.end_process(process);
        let vm = VmId::HOST;
        assert_eq!(
            *ends.0.lock().unwrap(),
            [Input::NtHandleClosed { vm, token }, Input::ProcessGone { process }]
        );
    }

    /// A sync file that a killed daemon left beside its socket, and the end that a process has open.
    fn sync_file_of_a_killed_daemon(socket: &Path) -> OwnedFd {
        let mut handles = nt_handle::NtHandles::new(nt_handle::SyncFileFolder::resumed(socket)).unwrap();
        let file = handles.make_sync_file(d3dkmt::ShareToken([7; 16])).unwrap();
        std::mem::forget(handles);
        file
    }

    fn is_readable(file: &OwnedFd) -> bool {
        let mut polled = [rustix::event::PollFd::new(file, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap();
        polled[0].revents().contains(rustix::event::PollFlags::IN)
    }

    #[test]
    fn a_sync_file_of_a_killed_daemon_is_charged_while_its_process_may_return_and_else_becomes_readable() {
        for resumes in [true, false] {
            let Restarted { mut local, kernel_host, _folder, .. } =
                Restarted::with_process(if resumes { std::process::id() } else { i32::MAX as u32 });
            assert_eq!(kernel_host.resumption().is_resuming(), resumes);
            let file = sync_file_of_a_killed_daemon(&_folder.path().join("broker.sock"));
            local.0.recover_sync_files(VmId::HOST);
            let charged = (
                kernel_host.budgets.descriptors.figures().1,
                local.0.budgets_of(VmId::HOST).nt_handles.figures().1,
            );
            let count = usize::from(resumes);
            assert_eq!((charged, is_readable(&file)), ((count, count), !resumes));
        }
    }
}
