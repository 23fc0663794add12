//! A bad frame closes its own stream with a reason; all other clients continue.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use covers::covers;
use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::{AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, EventId, NtStatus, Reply};
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::machine;
use e2e::polling::{eventually, until};
use e2e::served::Served;
use e2e::wire::{Attached, Broker, Client, Steady, Stream, hello_frame, lingering};
use gpupv::daemon::Options;
use proto::PROTOCOL_VERSION;
use proto::attach::broker_request::{Attach, AttachBacking, Body, Grow, ShareBacking};
use proto::channel::{Hello, ToHost, to_host};
use proto::convert::call_to_frame;
use proto::frame::append;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

use super::fair::{Held, adapter_of, escape};

fn framed(frame: &ToHost) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(frame, &mut bytes);
    bytes
}

/// A frame of request 1 whose body is field `number`: a message with this content.
fn framed_message(number: u8, content: &[u8]) -> Vec<u8> {
    const LENGTH_DELIMITED: u16 = 2;
    let key = u16::from(number) << 3 | LENGTH_DELIMITED;
    let key = if key < 0x80 { vec![key as u8] } else { vec![key as u8 | 0x80, (key >> 7) as u8] };
    let frame = [&[8, 1], key.as_slice(), &[content.len() as u8], content].concat();
    [&[frame.len() as u8], frame.as_slice()].concat()
}

fn enumerate_adapters() -> Vec<u8> {
    framed(&call_to_frame(1, &Call::EnumAdapters { capacity: 1 }))
}

/// Checks that the stream ends with this reason and is counted, that its process has ended, and that others continue.
#[track_caller]
fn ends(daemon: &Embedded, steady: &mut Steady, case: &str, stream: &mut Stream, expected: &str) {
    let goodbye = stream.read_goodbye().unwrap_or_else(|| panic!("{case}: no Goodbye"));
    assert!(goodbye.contains(expected), "{case}: {goodbye}");
    steady.assert_works();
    until(case, || daemon.inspection().processes.len() == 1);
}

/// The Hello of a process that claims to map its fence memory here.
fn mapped_at(fence_address: u64) -> ToHost {
    let hello = Hello { version: PROTOCOL_VERSION, fence_address, token: vec![0; 16], ..Hello::default() };
    ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }
}

/// Frames to send on an open channel, each with the reason that its Goodbye must name.
fn bad_frames() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let cancel = call_to_frame(1, &Call::CancelWait { event: EventId(0) });
    let short_token = [&[0x1A, 15], [1; 15].as_slice()].concat();
    let hello = hello_frame(PROTOCOL_VERSION, &[0; 16]);
    vec![
        ("a second Hello", framed(&hello), "second Hello"),
        ("a frame over the limit", vec![0x81, 0x80, 0x08], "131073 bytes is over the limit"),
        ("a length beyond all bounds", [vec![0xFF; 9], vec![1]].concat(), "over the limit"),
        ("a length that is no varint", vec![0xFF; 11], "not a varint"),
        ("no message", vec![3, 0xFF, 0xFF, 0xFF], "not a message"),
        ("a wrong wire type", vec![2, 0x3D, 0x01], "not a message"),
        ("an empty frame", vec![0], "no body"),
        // Field 200, a varint.
        ("a body nobody knows", vec![3, 0xC0, 0x0C, 0x01], "kind unknown"),
        ("a wait without a name", framed_message(15, &[]), "event is 0"),
        ("a cancelled wait without a name", framed(&cancel), "event is 0"),
        ("a share token of 15 bytes", framed_message(20, &short_token), "token is 15"),
        ("an open without a token", framed_message(21, &[]), "token is 0"),
        // CloseShare of version 2: no process may close a handle that others may hold.
        ("a close of an NT handle", [vec![19, 0xB2, 0x01, 16], vec![7; 16]].concat(), "kind unknown"),
    ]
}

#[test]
fn a_bad_frame_closes_its_stream_with_a_reason_and_nothing_else() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    for (count, (case, bytes, expected)) in (1..).zip(bad_frames()) {
        let mut client = Client::new(&daemon.broker());
        let device = client.open_device();
        client.create_fence(device, 0);
        steady.assert_works();
        client.stream.send(&bytes);
        ends(&daemon, &mut steady, case, &mut client.stream, expected);
        assert_eq!(daemon.counters().protocol_errors.count(), count, "{case}");
    }
    drop(steady);
    daemon.end();
}

#[test]
fn frames_before_a_bad_one_are_answered_first() {
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let enumerate = enumerate_adapters();
    client.stream.send(&[enumerate.clone(), enumerate.clone(), vec![0], enumerate].concat());
    let mut answers = 0;
    let goodbye = loop {
        match client.stream.read() {
            Ok(proto::convert::FromHost::Answer { .. }) => answers += 1,
            other => break other,
        }
    };
    assert!(matches!(goodbye, Ok(proto::convert::FromHost::Goodbye(_))), "{goodbye:?}");
    assert_eq!(answers, 2, "nothing after the bad frame is executed");
    drop(client);
    daemon.end();
}

#[test]
fn a_stream_with_an_invalid_hello_is_closed_with_a_reason() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let enumerate = enumerate_adapters();
    let cases = [
        ("no Hello", enumerate, "does not begin with Hello"),
        ("a newer version", framed(&hello_frame(PROTOCOL_VERSION + 1, &[0; 16])), "protocol version"),
        (
            "two versions back",
            framed(&hello_frame(PROTOCOL_VERSION - 2, &[0; 16])),
            "this side speaks versions",
        ),
        (
            "fence memory that is in no process",
            framed(&mapped_at(1 << 47)),
            "claims fence memory at 0x800000000000",
        ),
        ("an unknown token", framed(&hello_frame(PROTOCOL_VERSION, &[0xAB; 16])), "token"),
        ("a short token", framed(&hello_frame(PROTOCOL_VERSION, &[0xAB; 15])), "token"),
        ("no token", framed(&hello_frame(PROTOCOL_VERSION, &[])), "token"),
        ("a frame over the limit", vec![0xFF, 0xFF, 0xFF, 0x7F], "over the limit"),
    ];
    for (count, (case, bytes, expected)) in (1..).zip(cases) {
        let mut attached = Attached::new(&daemon.broker());
        attached.stream.send(&bytes);
        ends(&daemon, &mut steady, case, &mut attached.stream, expected);
        assert_eq!(daemon.counters().protocol_errors.count(), count, "{case}");
    }
    drop(steady);
    daemon.end();
}

#[test]
fn a_token_opens_the_stream_it_came_with_once_and_no_other() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());

    // An already used token.
    let first = Attached::new(&daemon.broker());
    let token = first.token.clone();
    let first = first.hello();
    let mut second = Attached::new(&daemon.broker());
    second.stream.send_frame(&hello_frame(PROTOCOL_VERSION, &token));
    assert!(second.stream.read_goodbye().expect("a Goodbye").contains("token"));
    drop((first, second));

    // The token of a process that has not sent its Hello: the process keeps its token.
    let victim = Attached::new(&daemon.broker());
    let mut thief = Attached::new(&daemon.broker());
    thief.stream.send_frame(&hello_frame(PROTOCOL_VERSION, &victim.token));
    assert!(thief.stream.read_goodbye().expect("a Goodbye").contains("token"));
    steady.assert_works();
    let mut victim = victim.hello();
    victim.open_device();
    assert_eq!(daemon.counters().protocol_errors.count(), 2);
    drop((victim, thief, steady));
    daemon.end();
}

#[test]
fn a_stream_cut_off_inside_a_frame_is_a_breach_and_one_that_ends_between_frames_is_not() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let enumerate = enumerate_adapters();
    for length in 1..enumerate.len() {
        let mut client = Client::new(&daemon.broker());
        client.stream.send(&enumerate[..length]);
        client.stream.socket.shutdown(Shutdown::Write).expect("a connected socket");
        ends(&daemon, &mut steady, "cut off", &mut client.stream, "ended inside a frame");
        assert_eq!(daemon.counters().protocol_errors.count(), length as u64);
    }
    let before = daemon.counters().protocol_errors.count();
    let mut client = Client::new(&daemon.broker());
    client.stream.socket.shutdown(Shutdown::Write).expect("a connected socket");
    assert_eq!(client.stream.read_goodbye(), None);
    assert_eq!(daemon.counters().protocol_errors.count(), before);
    drop((client, steady));
    daemon.end();
}

/// Checks that the broker refuses with this text and closes the connection.
#[track_caller]
fn refuses(broker: &Broker, expected: &str) {
    let (reply, descriptors) = broker.reply().expect("a refusal");
    assert!(reply.refused.contains(expected), "{}", reply.refused);
    assert!(descriptors.is_empty());
    assert!(broker.reply().is_none(), "the connection is closed");
}

#[test]
fn the_broker_refuses_with_a_reason() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let packet = |body| proto::Message::encode_to_vec(&proto::attach::BrokerRequest { body: Some(body) });
    let cases = [
        (vec![0xFF; 10], "not a BrokerRequest"),
        (vec![0x0A, 0x7F], "not a BrokerRequest"),
        (vec![7; 5000], "over the limit"),
        (packet(Body::Grow(Grow { slots: 1 })), "no process is attached"),
        (packet(Body::MakeNtHandle(true)), "no process is attached"),
        (
            packet(Body::Attach(Attach { version: 99, name: String::new(), ..Attach::default() })),
            "protocol version 99",
        ),
        // An unknown field.
        (vec![0xC0, 0x0C, 0x01], "no body"),
    ];
    for (bytes, expected) in cases {
        let broker = Broker::connect(&daemon.broker());
        broker.send(&bytes);
        refuses(&broker, expected);
        steady.assert_works();
    }
    for slots in [0, u32::MAX, d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX] {
        let mut client = Client::new(&daemon.broker());
        let (reply, _) = client.broker.request(Body::Grow(Grow { slots }));
        assert!(reply.refused.contains("more fence slots"), "{}", reply.refused);
        client.grow(1);
    }
    let mut client = Client::new(&daemon.broker());
    let attach = Attach { version: PROTOCOL_VERSION, name: String::new(), ..Attach::default() };
    let (reply, _) = client.broker.request(Body::Attach(attach));
    assert!(reply.refused.contains("attached a process already"), "{}", reply.refused);
    client.grow(1);
    steady.assert_works();
    drop((client, steady));
    daemon.end();
}

/// Attacks H1 and H6: an idle connection holds a descriptor, and a partial long frame holds memory.
#[test]
fn a_connection_that_does_not_identify_itself_is_closed_and_no_other() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let mut long = Attached::new(&daemon.broker());
    // The length of the largest valid frame.
    assert!(long.stream.send(&[0x80, 0x80, 0x08]));
    let goodbye = long.stream.read_goodbye().expect("it is closed with a reason");
    assert!(goodbye.contains("so it is no Hello"), "{goodbye}");
    let silent = Broker::connect(&daemon.broker());
    let mut without_hello = Attached::new(&daemon.broker());
    until("the silent connection is closed", || !silent.is_silent());
    refuses(&silent, "did not identify itself within 5 s");
    let goodbye = without_hello.stream.read_goodbye().expect("the stream of the silent process is closed");
    assert!(goodbye.contains("send Hello"), "{goodbye}");
    until("the process is gone", || daemon.inspection().processes.len() == 1);
    steady.assert_works();
    drop((long, silent, without_hello, steady));
    daemon.end();
}

/// Attack backing_pieces: each piece uses one of the daemon's limited mappings.
#[test]
fn a_process_that_attaches_endlessly_is_refused_and_others_still_attach() {
    let daemon = Embedded::start();
    let attach_backing = |client: &Client, piece: u64| {
        let address = 0x10_0000 + piece * 0x1000;
        client.broker.request(Body::AttachBacking(AttachBacking { address, pages: 1 })).0.refused
    };
    let greedy = Client::new(&daemon.broker());
    let mut refusals = (0..).map(|piece| attach_backing(&greedy, piece)).enumerate();
    let (pieces, why) = refusals.find(|(_, refused)| !refused.is_empty()).expect("there is a limit");
    assert_eq!(pieces, gpupv::daemon::limits::MAPPINGS_PER_PROCESS_MAX, "{why}");
    assert!(why.contains("pieces of backing pages, the limit"), "{why}");
    let mut other = Client::new(&daemon.broker());
    assert_eq!(attach_backing(&other, 0), "");
    other.grow(1);
    // Detached backing pages free their mappings.
    let (reply, _) = greedy.broker.request(Body::DetachBacking(0x10_0000));
    assert_eq!((reply.refused.as_str(), attach_backing(&greedy, 0).as_str()), ("", ""));
    let (_, taken) = daemon.kernel_host().budgets.mappings.figures();
    // A page of fence memory each, one more of the other process, and the backing pages.
    assert_eq!(taken, pieces + 1 + 3);
    drop((greedy, other));
    until("all mappings are freed", || daemon.kernel_host().budgets.mappings.figures().1 == 0);
    until("all descriptors are closed", || daemon.kernel_host().budgets.descriptors.figures().1 == 0);
    daemon.end();
}

/// A broker gives pages of shared memory by a handle of the process that asks, and no others.
#[test]
fn pages_of_memory_that_is_not_shared_are_refused() {
    let daemon = Embedded::start();
    let (owner, other) = (Client::new(&daemon.broker()), Client::new(&daemon.broker()));
    let (address, pages) = (d3dkmt::limits::DEVICE_MEMORY_START, 1);
    let (reply, memory) = owner.broker.request(Body::AttachBacking(AttachBacking { address, pages }));
    assert_eq!((reply.refused.as_str(), memory.len()), ("", 1));
    for (client, allocation) in [(&other, 0x4000_0040), (&other, 0), (&owner, 0x4000_0040)] {
        for offset in [0, 0x1000, u64::MAX] {
            let (reply, memory) =
                client.broker.request(Body::ShareBacking(ShareBacking { allocation, offset }));
            let words = "is no shared memory of the device";
            assert!(reply.refused.contains(words) && memory.is_empty(), "{reply:?}");
        }
    }
    let (reply, _) = owner.broker.request(Body::DetachBacking(address));
    assert_eq!(reply.refused, "");
    drop((owner, other, memory));
    until("all mappings are freed", || daemon.kernel_host().budgets.mappings.figures().1 == 0);
    daemon.end();
}

/// Other processes map the pieces of shared memory, so each has the pages that its allocation says.
#[test]
fn pages_that_are_no_piece_of_shared_memory_are_refused() {
    covers!("MEM-035");
    const BYTES: u64 = 0x4000;
    let daemon = Embedded::start();
    let mut client = Client::new(&daemon.broker());
    let device = client.open_device();
    let flags = AllocationDataFlags::CPU_VISIBLE;
    let data = AllocationData { size: BYTES, flags, segment: SEGMENT_LOCAL, ..AllocationData::default() };
    let info = AllocationInfo { system_memory: 0, private_data: data.encode().to_vec(), flags: 0 };
    let mut address_of = |flags| {
        let create =
            CreateAllocation { device, flags, allocations: vec![info.clone()], ..Default::default() };
        match client.call(&Call::CreateAllocation { create: Box::new(create) }) {
            (NtStatus::SUCCESS, Reply::Allocations { addresses, .. }) => addresses[0],
            other => panic!("no allocation: {other:?}"),
        }
    };
    let own = address_of(CreateAllocationFlags::empty());
    let shared = address_of(CreateAllocationFlags::CREATE_RESOURCE | CreateAllocationFlags::CREATE_SHARED);
    let attach = |address, pages| {
        let (reply, memory) = client.broker.request(Body::AttachBacking(AttachBacking { address, pages }));
        (reply.refused, memory.len())
    };
    assert!(shared >= own + BYTES, "the shared one is behind the other");
    for (address, pages) in [(0, 3), (0, 5), (0, 1), (0x1000, 3), (0x3000, 1), (0x3000, 2)]
        .map(|(offset, pages)| (shared + offset, pages))
        .into_iter()
        .chain([(shared - 0x1000, 2), (shared - 0x1000, 5)])
    {
        let (refused, descriptors) = attach(address, pages);
        assert!(refused.contains("are no piece of shared memory"), "{pages} at {address:#x}: {refused}");
        assert_eq!(descriptors, 0);
    }
    assert_eq!(attach(shared, 4), (String::new(), 1));
    // Memory that is not shared is the process's own matter.
    assert_eq!(attach(own + 0x1000, 2), (String::new(), 1));
    drop(client);
    until("all mappings are freed", || daemon.kernel_host().budgets.mappings.figures().1 == 0);
    daemon.end();
}

/// Attack lingering_descriptor: closing a received socket blocks for the linger time that its owner has set.
#[test]
fn descriptors_on_a_stream_end_it() {
    let daemon = Embedded::start();
    let mut steady = Steady::new(&daemon.broker());
    let event = event();
    let many = vec![event.as_fd(); 253];
    let mut client = Client::new(&daemon.broker());
    send_with(&client.stream.socket, &enumerate_adapters(), &many);
    ends(&daemon, &mut steady, "on a stream", &mut client.stream, "the client sent 253 descriptors");
    // Close this program's own descriptors, which the daemon's check would count.
    drop((client, steady, event));
    daemon.end();
}

/// The daemon does not read further descriptors of a user with too many to close. Its messages without any are read.
#[test]
fn a_client_waits_for_a_lingering_descriptor_of_its_user_and_is_not_cut_off() {
    let (held, is_reached, resume) = Held::new();
    let daemon = Embedded::start_with(Options { observer: Some(held), ..Options::default() });
    let mut steady = Steady::new(&daemon.broker());
    let mut client = Client::new(&daemon.broker());
    let request = |body| proto::Message::encode_to_vec(&proto::attach::BrokerRequest { body: Some(body) });
    // The last close takes until the peer is closed. It is the daemon's, which reads the socket only after this call.
    let (socket, peer) = lingering(Duration::from_secs(600)).expect("a socket");
    let call = escape(adapter_of(&mut client), 32);
    assert!(client.stream.send(&framed(&call_to_frame(100, &call))));
    is_reached.recv().expect("the call is made");
    client.broker.send_with(&request(Body::RegisterEvent(1)), socket.as_fd());
    drop(socket);
    resume.send(()).expect("the kernel is blocked");
    assert_ne!(client.broker.reply().expect("an answer").0.refused, "", "a socket is no event");
    let event = event();
    let many = vec![event.as_fd(); 253];
    send_with(&client.broker, &request(Body::Settle(true)), &many);
    assert_eq!(client.broker.reply().expect("an answer").0.refused, "");
    // The other client's requests arrive later and are answered, so the daemon has seen this one by then.
    send_with(&client.broker, &request(Body::Settle(true)), &many);
    steady.assert_works();
    assert!(client.broker.is_silent(), "the daemon reads no further descriptors");
    drop(peer);
    assert_eq!(client.broker.reply().expect("it is read in the end").0.refused, "");
    steady.assert_works();
    drop((client, steady, many));
    drop(event);
    daemon.end();
}

/// The broker uses the first descriptor, and closes the others.
#[test]
fn excess_descriptors_of_a_broker_message_are_closed_by_another_thread() {
    // Runs alone, because other tests count this program's open files.
    let _alone = lock_exclusive();
    let event = event();
    let many = vec![event.as_fd(); 253];
    let served = Served::start(&[]);
    let client = Client::new(&served.broker());
    let files = machine::open_files(served.pid());
    let settle = proto::attach::BrokerRequest { body: Some(Body::Settle(true)) };
    for _ in 0..10 {
        send_with(&client.broker, &proto::Message::encode_to_vec(&settle), &many);
        assert_eq!(client.broker.reply().expect("an answer").0.refused, "");
        // The daemon does not read from a client with this many descriptors to close.
        eventually("all excess descriptors are closed", || {
            let now = machine::open_files(served.pid());
            // The earlier check of the daemon may still have had a connection open.
            if now.len() <= files.len() { Ok(()) } else { Err(format!("{now:?}, not {files:?}")) }
        });
    }
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd")
}

fn send_with(socket: &impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).expect("it is sent");
}

#[test]
fn a_name_is_cut_at_its_limit_and_stays_text() {
    let daemon = Embedded::start();
    let broker = Broker::connect(&daemon.broker());
    let name = "\u{1F980}".repeat(500);
    let (reply, _rights) =
        broker.request(Body::Attach(Attach { version: PROTOCOL_VERSION, name, ..Attach::default() }));
    assert_eq!(reply.refused, "");
    assert_eq!(daemon.inspection().processes[0].name, "\u{1F980}".repeat(65));
    drop((broker, _rights));
    daemon.end();
}

#[test]
fn a_full_daemon_refuses_processes_until_some_end() {
    let daemon = Embedded::start();
    // The limit of one user.
    let limit = d3dkmt::limits::PROCESSES_PER_VM_MAX * 2 / 3;
    // Four descriptors each on both sides: the limit of open files may come first, with its own message.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mut attached = Vec::new();
    let refusal = loop {
        if attached.len() as u64 * 8 + 100 > files && attached.len() < limit {
            eprintln!("only {files} files may be open: the limit of {limit} processes is not reached");
            break None;
        }
        match Attached::try_new(&daemon.broker()) {
            Ok(process) => attached.push(process),
            Err(why) => break Some(why),
        }
    };
    if let Some(why) = refusal {
        assert_eq!(attached.len(), limit);
        assert!(why.contains(&format!("has {limit} processes")), "{why}");
        attached.pop();
        until("there is room", || Attached::try_new(&daemon.broker()).is_ok());
    }
    drop(attached);
    daemon.end();
}
