//! Rings of a local session, by a client process that writes them itself.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use covers::covers;
use d3dkmt::{Call, NtStatus, Reply};
use e2e::embedded::Embedded;
use e2e::ring_client::{RingClient, RingStream, echo};
use e2e::wire::{Broker, Client, Stream};
use frame_ring::{AREA_BYTES, KICK, MappedArea, OwnArea as _, OwnMappedArea, Word};
use proto::PROTOCOL_VERSION;
use proto::attach::broker_request;
use rustix::mm::{MapFlags, ProtFlags};

/// The stream of a local session. The broker connection keeps it alive.
pub(super) struct LocalStream {
    _broker: Broker,
    pub stream: Stream,
    host_area: OwnedFd,
}

impl RingStream for LocalStream {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.send(bytes);
    }

    fn receive(&mut self, mut ring_has_bytes: impl FnMut() -> bool) -> Option<Vec<u8>> {
        if ring_has_bytes() {
            return Some(Vec::new());
        }
        let mut bytes = vec![0; 4096];
        let count = self.stream.socket.read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        (count > 0).then_some(bytes)
    }
}

pub(super) fn attach(broker: &Path) -> RingClient<LocalStream> {
    let broker = Broker::connect(broker);
    let (version, version_min) = (PROTOCOL_VERSION, 0);
    let attach = broker_request::Attach { version, name: "rings".into(), version_min, rings: true };
    let (reply, descriptors) = broker.request(broker_request::Body::Attach(attach));
    assert!(reply.rings && reply.refused.is_empty(), "{reply:?}");
    let [stream, _, host_area, own] = <[OwnedFd; 4]>::try_from(descriptors).expect("four descriptors");
    let (host, own) = (MappedArea::map(host_area.as_fd()).unwrap(), OwnMappedArea::map(own.as_fd()).unwrap());
    let stream = LocalStream { _broker: broker, stream: Stream::new(stream), host_area };
    RingClient::begin(stream, &reply.token, host, own)
}

#[test]
fn short_and_long_frames_keep_their_order_in_both_directions() {
    covers!("GPV-009");
    let daemon = Embedded::start();
    let mut client = attach(&daemon.broker());
    let Reply::Adapters(adapters) = client.call(&Call::EnumAdapters { capacity: 1 }) else { panic!() };
    let adapter = adapters[0].handle;
    // Frames of 100 KiB do not fit any ring.
    let sizes = [64, 100 << 10, 64, 100 << 10, 100 << 10, 20 << 10, 20 << 10, 64];
    let first = client.requests + 1;
    for size in sizes {
        let bytes = client.frame(&echo(adapter, size));
        client.publish_or_send(&bytes);
    }
    for (request, size) in (first..).zip(sizes) {
        let (answered, status, reply) = client.answer();
        assert_eq!((answered, status), (request, NtStatus::SUCCESS));
        assert!(matches!(reply, Reply::Escape(data) if data.len() == size));
    }
    drop(client);
    daemon.end();
}

#[test]
fn nonsense_in_a_ring_ends_its_session_and_no_other() {
    let daemon = Embedded::start();
    let mut other = Client::new(&daemon.broker());
    type Attack = fn(&mut RingClient<LocalStream>);
    let attacks: [(Attack, &str); 4] = [
        (
            |client| client.own.store(Word::Published, u64::MAX),
            "the ring's index `published` is 18446744073709551615",
        ),
        (
            |client| client.own.store(Word::Published, 1 << 40),
            "the ring's index `published` is 1099511627776",
        ),
        (|client| client.publish(&[0x80; 20]), "frame length is not a varint"),
        (
            |client| {
                let bytes = client.frame(&Call::EnumAdapters { capacity: 1 });
                client.stream.send(&bytes);
            },
            "a frame is on the stream that the ring did not announce",
        ),
    ];
    for (attack, reason) in attacks {
        let mut client = attach(&daemon.broker());
        client.call(&Call::EnumAdapters { capacity: 1 });
        attack(&mut client);
        client.stream.send(KICK);
        let goodbye = client.goodbye();
        assert!(goodbye.contains(reason), "{goodbye}");
        assert_eq!(other.call(&Call::EnumAdapters { capacity: 1 }).0, NtStatus::SUCCESS);
    }
    // A false `taken` breaks the daemon's answers to this process alone.
    let mut client = attach(&daemon.broker());
    client.own.store(Word::Taken, u64::MAX);
    let bytes = client.frame(&Call::EnumAdapters { capacity: 1 });
    client.publish(&bytes);
    assert!(client.stream.stream.read().is_err());
    assert_eq!(other.call(&Call::EnumAdapters { capacity: 1 }).0, NtStatus::SUCCESS);
    drop((client, other));
    daemon.end();
}

#[test]
fn calls_published_before_a_process_ends_are_made_and_its_areas_are_not_others() {
    let daemon = Embedded::start();
    let mut client = attach(&daemon.broker());
    // The daemon's area cannot be mapped for writing, and neither can change its size.
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping that the system must refuse.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            AREA_BYTES,
            writable,
            MapFlags::SHARED,
            &client.stream.host_area,
            0,
        )
    };
    assert!(mapped.is_err());
    assert!(rustix::fs::ftruncate(&client.stream.host_area, 0).is_err());
    // Frames are counted before their calls are made, but its Hello only after the Welcome is sent.
    client.call(&Call::EnumAdapters { capacity: 1 });
    let before = daemon.counters().frames_received.count();
    let bytes: Vec<u8> = (0..100).flat_map(|_| client.frame(&Call::EnumAdapters { capacity: 1 })).collect();
    client.publish(&bytes);
    drop(client);
    e2e::polling::until("all calls are made", || daemon.counters().frames_received.count() == before + 100);
    daemon.end();
}

#[test]
fn what_follows_an_announced_frame_stays_in_the_ring_until_that_has_come() {
    let daemon = Embedded::start();
    let mut other = Client::new(&daemon.broker());
    let mut client = attach(&daemon.broker());
    client.call(&Call::EnumAdapters { capacity: 1 });
    // An announcement, and nothing on the stream: the rest of the ring is the process's own memory.
    client.publish(&[0]);
    while client.sender.room().unwrap() < frame_ring::RING_BYTES {
        std::thread::yield_now();
    }
    client.publish(&vec![1; frame_ring::RING_BYTES]);
    for _ in 0..100 {
        assert_eq!(other.call(&Call::EnumAdapters { capacity: 1 }).0, NtStatus::SUCCESS);
    }
    assert_eq!(client.sender.room(), Ok(0));
    drop((client, other));
    daemon.end();
}

#[test]
fn more_processes_than_rings_that_the_daemon_looks_at_are_all_served() {
    let daemon = Embedded::start();
    let mut clients: Vec<RingClient<LocalStream>> = (0..70).map(|_| attach(&daemon.broker())).collect();
    for _ in 0..20 {
        // All at once, so that the daemon does not sleep in between; then each after a rest of all.
        let call = Call::EnumAdapters { capacity: 1 };
        for client in &mut clients {
            let bytes = client.frame(&call);
            client.publish(&bytes);
        }
        for client in &mut clients {
            assert_eq!(client.answer().1, NtStatus::SUCCESS);
        }
    }
    for client in &mut clients {
        client.call(&Call::EnumAdapters { capacity: 1 });
    }
    drop(clients);
    daemon.end();
}
