//! Rings of a session in a VM, whose pages the guest lends, by a guest without a VM that writes them itself.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attacks::calls;
use attacks::relay::Session;
use covers::covers;
use d3dkmt::{Call, EventId, NtStatus, Reply};
use e2e::embedded::Embedded;
use e2e::ring_client::{RingClient, RingStream, echo, hello_with_rings};
use fence_page::SLOT_BYTES;
use frame_ring::{
    AREA_BYTES, Area as _, HEAD_BYTES, KICK, MappedArea, OwnArea as _, OwnMappedArea, RING_BYTES, Word,
};
use front_end::{FREE_AREA, MEMORY_BYTES, MEMORY_START, memory};
use gpupv::daemon::Options;
use proto::attach::{AttachProcess, RingPages, guestd_to_host};
use proto::channel::ToGuest;
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use proto::limits::CHANNEL_PORT;
use vm_memory::{
    Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryRegion as _, GuestRegionMmap,
};

const PAGE: u64 = 4096;
const PAGES: u64 = AREA_BYTES as u64 / PAGE;
/// Guest-physical addresses of the areas, beyond the guest's other memory.
const HOST_AREA: u64 = 0x1000_0000;
const PROCESS_AREA: u64 = 0x2000_0000;

/// A guest with memory for the rings of one process. The pages of the process's area are not in order.
struct RingGuest {
    session: Session,
    host: File,
    process: File,
}

fn file_of(memory: &vm_memory::GuestMemoryMmap) -> File {
    let region = memory.iter().next().and_then(|region| region.file_offset());
    region.expect("it is a memfd").file().try_clone().expect("a descriptor")
}

impl RingGuest {
    fn boot(socket: &Path) -> RingGuest {
        let mut session = Session::boot(socket).expect("the daemon takes a guest");
        let [host, process] = [0, 1].map(|_| file_of(&memory(HOST_AREA, AREA_BYTES)));
        let mut add = |file: &File, address: u64, offset: u64, bytes: u64| {
            let file = FileOffset::new(file.try_clone().unwrap(), offset);
            let region =
                GuestRegionMmap::from_range(GuestAddress(address), bytes as usize, Some(file)).unwrap();
            session.guest.memory = session.guest.memory.insert_region(Arc::new(region)).unwrap();
        };
        add(&host, HOST_AREA, 0, AREA_BYTES as u64);
        for page in 0..PAGES {
            add(&process, process_page(page), page * PAGE, PAGE);
        }
        session.guest.send_memory_table();
        RingGuest { session, host, process }
    }

    /// Begins a session with rings.
    fn client(&mut self) -> RingClient<GuestStream<'_>> {
        let (process, token) = self.session.attach_with("rings", Some(pages())).expect("it is attached");
        let host = MappedArea::map(self.host.as_fd()).unwrap();
        let own = OwnMappedArea::map(self.process.as_fd()).unwrap();
        let port = self.session.connect(CHANNEL_PORT).expect("a stream");
        let stream = GuestStream { session: &mut self.session, port, process };
        RingClient::begin(stream, &token, host, own)
    }
}

fn process_page(page: u64) -> u64 {
    PROCESS_AREA + (PAGES - page) * 2 * PAGE
}

fn pages() -> RingPages {
    RingPages {
        host: (0..PAGES).map(|page| HOST_AREA + page * PAGE).collect(),
        process: (0..PAGES).map(process_page).collect(),
    }
}

/// The stream of a process of the guest.
struct GuestStream<'a> {
    session: &'a mut Session,
    port: u32,
    process: u32,
}

impl RingStream for GuestStream<'_> {
    fn send(&mut self, bytes: &[u8]) {
        let (port, mut sent) = (self.port, 0);
        self.session
            .until("the daemon takes bytes", |session| {
                sent += session.send(port, &bytes[sent..]);
                (sent == bytes.len()).then_some(())
            })
            .expect("it gives credit");
    }

    fn receive(&mut self, mut ring_has_bytes: impl FnMut() -> bool) -> Option<Vec<u8>> {
        let port = self.port;
        let answered = self.session.until("the daemon answers", |session| {
            let link = session.links.get_mut(&port)?;
            if !link.inbox.is_empty() || ring_has_bytes() {
                return Some(Some(std::mem::take(&mut link.inbox)));
            }
            link.closed.then_some(None)
        });
        answered.expect("the daemon lives")
    }
}

/// The reason with which the daemon ends the session of a process, which then ends.
fn goodbye(mut client: RingClient<GuestStream<'_>>) -> String {
    let reason = client.goodbye();
    assert_eq!(client.read(), None);
    assert!(client.sender.must_kick(), "what it still publishes would vanish");
    client.stream.session.detach(client.stream.process);
    reason
}

const ENUMERATE: Call = Call::EnumAdapters { capacity: 1 };

fn daemon_with_vm(options: Options) -> (Embedded, PathBuf) {
    let daemon = Embedded::start_with(options);
    let socket = daemon.file("vm1.sock");
    daemon.daemon().vms.add("vm1", &socket).expect("a VM is served");
    (daemon, socket)
}

#[test]
fn short_and_long_frames_keep_their_order_in_both_directions() {
    covers!("GPV-009");
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    let mut client = guest.client();
    let Reply::Adapters(adapters) = client.call(&ENUMERATE) else { panic!() };
    let adapter = adapters[0].handle;
    // Frames of 100 KiB do not fit any ring. More than a ring has goes through it, over its end and over each page.
    let sizes =
        [64, 100 << 10, 64, 9000, 100 << 10, 100 << 10, 20 << 10, 20 << 10, 64, 30 << 10, 30 << 10, 33];
    for size in sizes {
        let bytes = client.frame(&echo(adapter, size));
        client.publish_or_send(&bytes);
        let (answered, status, reply) = client.answer();
        assert_eq!((answered, status), (client.requests, NtStatus::SUCCESS));
        assert!(
            matches!(reply, Reply::Escape(data) if data.len() == size && data[32..].iter().all(|byte| *byte == 7))
        );
    }
    daemon.stop();
}

#[test]
fn while_both_sides_are_awake_nothing_is_on_the_stream() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    let mut client = guest.client();
    client.call(&ENUMERATE);
    let stats = || daemon.daemon().vms.list()[0].device.stats();
    let before = stats();
    // This side never sleeps. The daemon does whenever this thread does not run for a while, as on a busy machine.
    let mut quiet_rounds = 0;
    for _ in 0..20_000 {
        if quiet_rounds == 3 {
            break;
        }
        let (kicks, packets) = (client.kicks, (stats().packets_sent, stats().packets_received));
        for _ in 0..50 {
            let bytes = client.frame(&ENUMERATE);
            client.publish(&bytes);
        }
        for _ in 0..50 {
            while client.receiver.is_empty() && client.frames.ring().unwrap().pending() == 0 {
                std::hint::spin_loop();
            }
            client.answer();
        }
        let after = (client.kicks, (stats().packets_sent, stats().packets_received));
        quiet_rounds += u32::from(after == (kicks, packets));
    }
    assert_eq!(quiet_rounds, 3, "rounds without any packet");
    assert_eq!(stats().bytes_sent, before.bytes_sent, "a side that never sleeps is not kicked");
    // At rest nobody looks.
    at_rest(Duration::from_millis(50));
    let wakeups = stats().wakeups;
    at_rest(Duration::from_millis(100));
    assert_eq!(stats().wakeups, wakeups);
    daemon.stop();
}

#[expect(clippy::disallowed_methods, reason = "the daemon must stay idle for a while")]
fn at_rest(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn nonsense_in_a_ring_ends_its_session_and_no_other() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut local = e2e::wire::Client::new(&daemon.broker());
    let mut guest = RingGuest::boot(&socket);
    type Attack = fn(&mut RingClient<GuestStream<'_>>);
    let attacks: [(Attack, &str); 5] = [
        (
            |client| client.own.store(Word::Published, u64::MAX),
            "the ring's index `published` is 18446744073709551615",
        ),
        (|client| client.own.store(Word::Published, 0), "the ring's index `published` is 0"),
        (
            |client| client.own.store(Word::Published, 1 << 40),
            "the ring's index `published` is 1099511627776",
        ),
        (|client| client.publish(&[0x80; 20]), "frame length is not a varint"),
        (
            |client| {
                let bytes = client.frame(&ENUMERATE);
                client.stream.send(&bytes);
            },
            "a frame is on the stream that the ring did not announce",
        ),
    ];
    for (attack, reason) in attacks {
        let mut client = guest.client();
        client.call(&ENUMERATE);
        attack(&mut client);
        client.stream.send(KICK);
        let goodbye = goodbye(client);
        assert!(goodbye.contains(reason), "{goodbye}");
        assert_eq!(local.call(&ENUMERATE).0, NtStatus::SUCCESS);
    }
    // A false `taken` breaks the daemon's answers to this process alone.
    let mut client = guest.client();
    client.own.store(Word::Taken, u64::MAX);
    let bytes = client.frame(&ENUMERATE);
    client.publish(&bytes);
    assert!(client.read().is_none());
    let process = client.stream.process;
    guest.session.detach(process);
    // What the host has written itself is not read again.
    let host = guest.host.try_clone().unwrap();
    let mut client = guest.client();
    client.call(&ENUMERATE);
    host.write_all_at(&[0xFF; 72], Word::Taken.offset() as u64).unwrap();
    let bytes = client.frame(&ENUMERATE);
    client.call(&ENUMERATE);
    let area = MappedArea::map(host.as_fd()).unwrap();
    assert_eq!(area.load(Word::Taken), 2 * bytes.len() as u64);
    assert_eq!(local.call(&ENUMERATE).0, NtStatus::SUCCESS);
    daemon.stop();
}

#[test]
fn pages_are_not_accessed_once_a_detach_is_answered() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    for ends_first in [false, true] {
        let before = daemon.counters().frames_received.count();
        let mut client = guest.client();
        client.call(&ENUMERATE);
        // More than one turn takes, published and not answered yet.
        let bytes: Vec<u8> = (0..300).flat_map(|_| client.frame(&ENUMERATE)).collect();
        client.publish(&bytes);
        let (process, port) = (client.stream.process, client.stream.port);
        if ends_first {
            guest.session.reset(port);
        }
        guest.session.detach(process);
        let made = daemon.counters().frames_received.count() - before;
        assert_eq!(made, 302, "with Hello: what a process published before its end counts");
        let marks = [0xA5; AREA_BYTES];
        for area in [&guest.host, &guest.process] {
            area.write_all_at(&marks, 0).unwrap();
        }
        guest.session.reset(port);
        // The guest goes on with other processes.
        guest.session.attach("other").expect("it is attached");
        let mut area = [0; AREA_BYTES];
        guest.host.read_exact_at(&mut area, 0).unwrap();
        assert!(area == marks, "the daemon has written into pages that are the guest's own again");
    }
    daemon.stop();
}

/// What the daemon may not write of a guest that is stopped: fence memory, and the host's area of the rings.
fn written_memory(guest: &RingGuest) -> Vec<u8> {
    let mut bytes = vec![0; AREA_BYTES + (1 << 20)];
    guest.host.read_exact_at(&mut bytes[..AREA_BYTES], 0).unwrap();
    guest.session.guest.memory.read_slice(&mut bytes[AREA_BYTES..], GuestAddress(FREE_AREA)).unwrap();
    bytes
}

const WORK: Duration = Duration::from_millis(100);

#[test]
fn a_guest_that_qemu_has_stopped_is_not_written_and_goes_on_with_all_that_it_missed() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    let mut client = guest.client();
    let device = client.open_device();
    let (context, fence) = (client.create_context(device), client.create_fence(device));
    let work = |client: &mut RingClient<GuestStream<'_>>, value: u64| {
        client.call(&calls::wait(device, fence.object, value, EventId(value)));
        let packets = [calls::busy(WORK.as_nanos() as u64), calls::fence_write(fence.gpu_address, value)];
        client.call(&calls::submit(context, &packets));
    };
    work(&mut client, 1);
    let (process, port) = (client.stream.process, client.stream.port);
    let RingClient { sender, receiver, frames, own, requests, kicks, .. } = client;
    let positions = guest.session.guest.stop();
    let before = written_memory(&guest);
    at_rest(3 * WORK);
    assert!(written_memory(&guest) == before, "the daemon wrote into a guest that was stopped");
    guest.session.guest.start_at(positions);
    // An interrupt may have been lost with the eventfds of before.
    for queue in [&guest.session.guest.tx, &guest.session.guest.rx] {
        assert!(front_end::is_readable(&queue.call, WORK));
    }
    let stream = GuestStream { session: &mut guest.session, port, process };
    let mut client = RingClient { stream, sender, receiver, frames, own, requests, kicks };
    assert_eq!(client.read(), Some(FromHost::Wake { event: EventId(1), status: NtStatus::SUCCESS }));
    let value =
        MEMORY_START + MEMORY_BYTES as u64 - PAGE + u64::from(fence.slot.unwrap()) * SLOT_BYTES as u64;
    let stored: u64 = client.stream.session.guest.memory.read_obj(GuestAddress(value)).unwrap();
    assert_eq!(stored, 1);
    // It kicks for its next calls, as it did not see when the daemon last looked.
    for _ in 0..3 {
        at_rest(Duration::from_millis(5));
        client.call(&ENUMERATE);
    }
    // A reset: another kernel owns the pages, from the stop on.
    work(&mut client, 2);
    drop(client);
    guest.session.guest.stop();
    let before = written_memory(&guest);
    at_rest(2 * WORK);
    guest.session.guest.reset_driver();
    guest.session.guest.start(0);
    at_rest(WORK);
    assert!(written_memory(&guest) == before, "the daemon wrote into the memory of another kernel");
    daemon.stop();
}

#[test]
fn pages_that_leave_the_memory_of_the_vm_end_the_session_of_their_process_alone() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    let mut client = guest.client();
    client.call(&ENUMERATE);
    let process = client.stream.process;
    let (memory, _) =
        client.stream.session.guest.memory.remove_region(GuestAddress(process_page(0)), PAGE).unwrap();
    client.stream.session.guest.memory = memory;
    client.stream.session.guest.send_memory_table();
    client.sender.publish(&[0; RING_BYTES / 2]);
    client.stream.send(KICK);
    let goodbye = goodbye(client);
    assert!(goodbye.contains("the ring's index `published` is 0"), "{goodbye}");
    guest.session.detach(process);
    guest.session.attach("other").expect("the VM goes on");
    daemon.stop();
}

#[test]
fn only_pages_of_the_vm_become_rings() {
    let (daemon, socket) = daemon_with_vm(Options::default());
    let mut guest = RingGuest::boot(&socket);
    type Change = fn(&mut RingPages);
    let refused = |change: Change, guest: &mut RingGuest| {
        let mut rings = pages();
        change(&mut rings);
        let attach = AttachProcess { pid: 7, name: "rings".into(), rings: Some(rings) };
        guest.session.ask(guestd_to_host::Body::Attach(attach)).expect_err("it is refused")
    };
    let cases: [(Change, &str); 4] = [
        (|rings| rings.host[3] = 0x9000_0000, "outside the VM's memory"),
        (|rings| rings.process[8] += 8, "is not aligned"),
        (|rings| rings.process.truncate(8), "the area of a ring has 8 pages instead of 9"),
        (|rings| rings.host.clear(), "0 pages at once"),
    ];
    for (change, why) in cases {
        let refused = refused(change, &mut guest);
        assert!(refused.contains(why), "{refused}");
    }
    guest.client().call(&ENUMERATE);
    daemon.stop();
}

#[test]
fn a_daemon_without_rings_says_so_and_touches_no_pages() {
    let (daemon, socket) = daemon_with_vm(Options { without_rings: true, ..Options::default() });
    let mut guest = RingGuest::boot(&socket);
    let (_, token) = guest.session.attach_with("rings", Some(pages())).expect("it is attached");
    let port = guest.session.connect(CHANNEL_PORT).expect("a stream");
    let mut bytes = Vec::new();
    append(&hello_with_rings(&token), &mut bytes);
    append(&call_to_frame(1, &ENUMERATE), &mut bytes);
    guest.session.send(port, &bytes);
    let mut frames = FrameBuffer::default();
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let inbox = guest.session.until("it answers", |session| {
            let inbox = std::mem::take(&mut session.links.get_mut(&port)?.inbox);
            (!inbox.is_empty()).then_some(inbox)
        });
        frames.extend(&inbox.unwrap());
        while let Some(frame) = frames.next_frame().unwrap() {
            messages.push(from_host(decode::<ToGuest>(frame).unwrap()).unwrap());
        }
    }
    assert!(matches!(&messages[0], FromHost::Welcome(welcome) if !welcome.rings));
    assert!(matches!(&messages[1], FromHost::Answer { status: NtStatus::SUCCESS, .. }));
    let mut head = [0; HEAD_BYTES];
    guest.host.read_exact_at(&mut head, 0).unwrap();
    assert!(head == [0; HEAD_BYTES]);
    daemon.stop();
}
