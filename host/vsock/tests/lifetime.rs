//! QEMU connects, disconnects, pauses and dies, and the guest reboots or is hostile.

mod services;
mod watch;

use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;

use front_end::queue::QUEUE_SIZE;
use front_end::{FREE_AREA, GuestVm, MEMORY_START};
use listening::ListenError;
use rustix::fs::{MemfdFlags, SealFlags};
use services::{ECHO, Event, RECORD, Rig};
use vm_memory::{Bytes as _, GuestMemoryBackend as _, GuestMemoryRegion as _};
use vsock_device::limits::QUEUE_SIZE_MAX;
use vsock_device::packet::{HEADER_BYTES, Operation};
use vsock_device::{CloseReason, Device, DeviceConfig, DeviceError, SendError};
use watch::threads_come_to;

const WRITABLE: u16 = 2;
const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

fn assert_still_works(guest: &mut GuestVm, peer: u32) {
    guest.connect(peer, ECHO);
    guest.send_payload(peer, ECHO, b"still here");
    assert_eq!(guest.receive().1, b"still here");
}

#[test]
fn a_killed_front_end_closes_everything_and_the_next_one_is_served() {
    let rig = Rig::new();
    for _ in 0..3 {
        let mut guest = GuestVm::boot(&rig.socket);
        let mut connections = Vec::new();
        for peer in 0..10 {
            guest.connect(peer, RECORD);
            connections.push(rig.accepted());
        }
        connections[0].send(&[0; 100_000]).unwrap();
        drop(guest);
        for _ in 0..10 {
            assert!(matches!(rig.next(), Event::Closed(_, CloseReason::Disconnected)));
        }
        assert!(matches!(rig.next(), Event::Disconnected));
        assert_eq!(connections[3].send(b"x"), Err(SendError::Closed));
        connections[3].finish();
        connections[3].reset();
    }
    let mut guest = GuestVm::boot(&rig.socket);
    assert_still_works(&mut guest, 1);
    assert_eq!(rig.device.stats().sessions, 4);
}

#[test]
fn a_front_end_that_comes_on_the_heels_of_a_dead_one_is_served() {
    let rig = Rig::new();
    for round in 0..100 {
        let mut guest = GuestVm::boot(&rig.socket);
        if round % 10 == 0 {
            assert_still_works(&mut guest, 1);
        }
    }
}

#[test]
fn sessions_leave_no_descriptor_or_thread_behind() {
    // A CID of its own, and so a thread name: tests share a process.
    let rig = Rig::with_cid(777_777);
    let descriptors = || {
        let links = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
        // Only what epoll sees of this device is private to this test.
        links.filter_map(|link| std::fs::read_to_string(link.path()).ok()).map(|info| watched(&info)).max()
    };
    for _ in 0..20 {
        drop(GuestVm::boot(&rig.socket));
        assert!(matches!(rig.next(), Event::Disconnected));
    }
    assert!(descriptors().unwrap_or(0) <= 8, "kicks of dead sessions are still watched");
    assert!(threads_come_to("vsock-777777", 1));
    let socket = rig.socket.clone();
    rig.device.shutdown();
    assert!(threads_come_to("vsock-777777", 0));
    assert!(!socket.exists());
}

/// Number of descriptors in an epoll set.
fn watched(fdinfo: &str) -> usize {
    fdinfo.lines().filter(|line| line.starts_with("tfd:")).count()
}

#[test]
fn shutdown_with_a_vm_attached_closes_endpoints_and_services() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    rig.accepted();
    rig.device.shutdown();
    let mut events: Vec<Event> = rig.events.try_iter().collect();
    assert!(matches!(events.pop(), Some(Event::Disconnected)));
    assert!(matches!(events.pop(), Some(Event::Closed(1, CloseReason::Disconnected))));
}

#[test]
fn a_second_front_end_is_turned_away() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    let second = vhost::vhost_user::Frontend::connect(&rig.socket, 3).unwrap();
    assert!(vhost::VhostBackend::get_features(&second).is_err());
    assert_still_works(&mut guest, 1);
}

#[test]
fn a_paused_guest_keeps_its_connections() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, ECHO);
    let connection = rig.accepted();
    let memory = rig.device.memory().unwrap();
    assert_eq!(memory.while_driver_runs(|| memory.store_u64(FREE_AREA, 1)), Some(Ok(())));
    let positions = guest.stop();
    assert_eq!(memory.while_driver_runs(|| memory.store_u64(FREE_AREA, 2)), None, "it may be saved now");
    connection.send(b"while you slept").unwrap();
    guest.send_memory_table();
    guest.start_at(positions);
    assert_eq!(guest.receive().1, b"while you slept");
    guest.send_payload(1, ECHO, b"awake");
    assert_eq!(guest.receive().1, b"awake");
    assert_eq!(memory.while_driver_runs(|| memory.load_u64(FREE_AREA)), Some(Ok(1)));
}

#[test]
fn a_rebooted_guest_starts_without_connections() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    guest.stop();
    guest.reset_driver();
    guest.start(0);
    rig.assert_closed(1, CloseReason::GuestRestarted);
    assert_eq!(connection.send(b"x"), Err(SendError::Closed));
    assert_still_works(&mut guest, 1);
}

#[test]
fn a_guest_with_connections_is_sent_a_transport_reset_by_a_new_device() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot_with(&rig.socket, front_end::FEATURES, 40_000);
    let event = guest.event.wait_used(front_end::PATIENCE).expect("a transport event");
    assert_eq!(event, 0u32.to_le_bytes());
    guest.send_payload(9, ECHO, b"old connection");
    assert_eq!(guest.receive_operation(), Operation::RST);
    guest.event.offer_buffer(1, 8);
    guest.event.kick_if_wanted();
    assert_still_works(&mut guest, 9);
    assert_eq!(guest.event.take_used(), None, "it is sent once");
}

#[test]
fn bad_addresses_from_the_front_end_end_only_that_session() {
    let rig = Rig::new();
    let guest = GuestVm::boot(&rig.socket);
    let bad = vhost::VringConfigData {
        queue_max_size: QUEUE_SIZE,
        queue_size: QUEUE_SIZE,
        desc_table_addr: 0x1000,
        used_ring_addr: 0x2000,
        avail_ring_addr: 0x3000,
        ..Default::default()
    };
    let _ = vhost::VhostBackend::set_vring_addr(&guest.frontend, 0, &bad);
    assert!(matches!(rig.next(), Event::Disconnected));
    let mut guest = GuestVm::boot(&rig.socket);
    assert_still_works(&mut guest, 1);
}

#[test]
fn a_ring_over_the_limit_ends_only_that_session() {
    let rig = Rig::new();
    let guest = GuestVm::boot(&rig.socket);
    assert!(vhost::VhostBackend::set_vring_num(&guest.frontend, 0, 2 * QUEUE_SIZE_MAX).is_err());
    assert!(matches!(rig.next(), Event::Disconnected));
    assert_still_works(&mut GuestVm::boot(&rig.socket), 1);
}

#[test]
fn hostile_transmit_chains_are_given_back_and_the_device_lives() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    let header = guest.header(Operation::RW, 1, ECHO);
    let long = vsock_device::packet::Header { len: u32::MAX, ..header };
    vm_memory::Bytes::write_slice(&guest.memory, &long.encode(), vm_memory::GuestAddress(FREE_AREA)).unwrap();
    let size = HEADER_BYTES as u32;
    type Chain<'a> = &'a [(u16, u64, u32, u16, u16)];
    let chains: [Chain; 12] = [
        &[(0, FREE_AREA, size, 0, 0)],                             // false payload length
        &[(0, FREE_AREA, size, WRITABLE, 0)],                      // wrong direction
        &[(0, FREE_AREA, 10, 0, 0)],                               // half a header
        &[(0, 0, size, 0, 0)],                                     // outside memory
        &[(0, u64::MAX - 10, size, 0, 0)],                         // address wraps
        &[(0, FREE_AREA, size, NEXT, 0)],                          // a loop
        &[(0, FREE_AREA, 0, NEXT, 1), (1, FREE_AREA, 0, NEXT, 0)], // an empty loop
        &[(0, FREE_AREA, size, NEXT, 9999)],                       // next outside the table
        &[(0, FREE_AREA, 48, INDIRECT, 0)],                        // indirect table of rubbish
        &[(0, FREE_AREA, 7, INDIRECT, 0)],                         // indirect table of odd size
        &[(0, 0, 1 << 30, INDIRECT, 0)],                           // indirect table outside memory
        &[(0, MEMORY_START, u32::MAX, NEXT, 1), (1, MEMORY_START, u32::MAX, 0, 0)],
    ];
    for chain in chains {
        for (index, address, len, flags, next) in chain {
            guest.tx.write_descriptor(*index, *address, *len, *flags, *next);
        }
        guest.tx.publish(0);
        guest.tx.kick_if_wanted();
        assert!(guest.tx.wait_used(front_end::PATIENCE).is_some(), "the chain was not given back");
    }
    assert_still_works(&mut guest, 1);
}

#[test]
fn hostile_receive_chains_lose_no_byte() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, ECHO);
    // Empty the ring of good buffers.
    let connection = rig.accepted();
    for _ in 0..QUEUE_SIZE {
        connection.send(b"x").unwrap();
        guest.receive_and_keep_buffer();
    }
    connection.send(b"the message").unwrap();
    let bad: [(u64, u32, u16); 5] = [
        (FREE_AREA, 4096, 0), // wrong direction
        (0, 4096, WRITABLE),  // outside memory
        (u64::MAX - 100, 4096, WRITABLE),
        (FREE_AREA, 20, WRITABLE), // no room for a header
        (FREE_AREA, 44, WRITABLE), // no room for payload
    ];
    for (address, len, flags) in bad {
        guest.rx.write_descriptor(0, address, len, flags, 0);
        guest.rx.publish(0);
        guest.rx.kick_if_wanted();
        assert_eq!(guest.rx.wait_used(front_end::PATIENCE), Some(Vec::new()));
    }
    guest.offer_buffers(1);
    assert_eq!(guest.receive().1, b"the message");
}

#[test]
fn a_ring_with_impossible_indices_stops_and_a_restart_mends_it() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    rig.accepted();
    guest.tx.write_u16(guest.tx.available() + 2, 0x7000);
    guest.tx.kick.write(1).unwrap();
    // The device still answers QEMU.
    guest.config();
    guest.stop();
    guest.reset_driver();
    guest.start(0);
    rig.assert_closed(1, CloseReason::GuestRestarted);
    assert_still_works(&mut guest, 1);
}

#[test]
fn memory_tables_are_looked_up_afresh() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    let memory = rig.device.memory().unwrap();
    guest.stop();
    guest.memory = front_end::memory(0x8000_0000, 1 << 20);
    guest.send_memory_table();
    assert!(memory.store_u64(FREE_AREA, 1).is_err());
    memory.store_u64(0x8000_0000, 7).unwrap();
    let tables = rig.events.try_iter().filter(|event| matches!(event, Event::Memory(_))).count();
    assert_eq!(tables, 2);
}

/// Attack H3: a store to a page beyond the end of its file raises SIGBUS, which kills the daemon and every VM with it.
#[test]
fn memory_that_can_be_shortened_is_refused_and_never_touched() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    let memory = rig.device.memory().unwrap();
    memory.store_u64(FREE_AREA, 1).unwrap();
    let old = std::mem::replace(
        &mut guest.memory,
        front_end::memory_sealed(MEMORY_START, front_end::MEMORY_BYTES, SealFlags::GROW),
    );
    let region = guest.memory.iter().next().unwrap();
    region.file_offset().unwrap().file().set_len(0).unwrap();
    assert!(guest.try_memory_table().is_err());
    // Whether or not the device still serves this QEMU, neither a store nor a packet accesses the new pages.
    let _ = connection.send(b"to a ring in the old memory or nowhere");
    guest.tx.kick.write(1).unwrap();
    let stored = memory.store_u64(FREE_AREA, 2).is_ok();
    let value = u64::from_le(old.load(vm_memory::GuestAddress(FREE_AREA), Ordering::Relaxed).unwrap());
    assert_eq!(value, if stored { 2 } else { 1 });
    // The device serves the next QEMU. If that is a proxy, whose guest goes on, the guest hears that its connection is over,
    // also when this side has closed it since.
    drop(guest);
    while !matches!(rig.next(), Event::Disconnected) {}
    connection.reset();
    let mut next = GuestVm::boot(&rig.socket);
    let (reset, _) = next.receive();
    assert_eq!((reset.operation, reset.dst_port), (Operation::RST, 1));
    assert_still_works(&mut next, 1);
}

/// A store to a hole in it that cannot be filled raises SIGBUS as well.
#[test]
fn memory_of_hugetlbfs_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let memfd = match rustix::fs::memfd_create("huge", flags) {
        Ok(memfd) => memfd,
        Err(error) => return eprintln!("this system makes no memory of hugetlbfs: {error}"),
    };
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    let seals = SealFlags::GROW | SealFlags::SHRINK;
    guest.memory = front_end::memory_of(memfd, 0x8000_0000, 4 << 20, seals);
    assert!(guest.try_memory_table().is_err());
    drop(guest);
    assert_still_works(&mut GuestVm::boot(&rig.socket), 1);
}

#[test]
fn rings_that_fall_out_of_the_memory_table_stop_without_a_crash() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    let connection = rig.accepted();
    let old = std::mem::replace(&mut guest.memory, front_end::memory(0x8000_0000, 1 << 20));
    guest.send_memory_table();
    connection.send(b"nowhere to go").unwrap();
    guest.tx.kick.write(1).unwrap();
    guest.config();
    guest.memory = old;
    guest.send_memory_table();
    assert_eq!(guest.receive().1, b"nowhere to go");
}

#[test]
fn a_failed_setup_reports_the_reason() {
    let rig = Rig::new();
    let serve = |guest_cid, socket: &std::path::Path| {
        let config = DeviceConfig { guest_cid, socket: socket.to_owned(), connections_copy: None };
        Device::serve(config, rig.daemon.clone())
    };
    for cid in [0, 1, 2, u64::from(u32::MAX), u64::MAX] {
        assert!(
            matches!(serve(cid, &rig.socket), Err(DeviceError::GuestCid(refused_cid)) if refused_cid == cid)
        );
    }
    let Err(DeviceError::Listen(ListenError::InUse { owner, .. })) = serve(9, &rig.socket) else { panic!() };
    assert!(owner.starts_with(&format!("process {}", std::process::id())), "{owner}");
    let nowhere = std::path::Path::new("/nonexistent/socket");
    assert!(matches!(serve(9, nowhere), Err(DeviceError::Listen(ListenError::Failed { .. }))));
    // A leftover socket of a killed daemon is replaced.
    let directory = tempfile::tempdir().unwrap();
    let leftover = directory.path().join("leftover");
    drop(UnixListener::bind(&leftover).unwrap());
    serve(9, &leftover).unwrap().shutdown();
}

/// A small generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len() as u64) as usize]
    }
}

#[test]
fn random_rings_and_packets_never_take_the_device_down() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    for seed in 1..40 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for _ in 0..100 {
            let mut packet = guest.header(Operation(dice.roll(9) as u16), dice.roll(3) as u32, RECORD);
            packet.len = dice.pick(&[0, 1, 100, 65536, 65537, u32::MAX]);
            (packet.fwd_cnt, packet.buf_alloc) = (dice.roll(1 << 32) as u32, dice.roll(1 << 32) as u32);
            let start = dice.pick(&[0, 64, 4000]) + FREE_AREA;
            let _ = vm_memory::Bytes::write_slice(
                &guest.memory,
                &packet.encode(),
                vm_memory::GuestAddress(start),
            );
            let queue = if dice.roll(4) == 0 { &mut guest.rx } else { &mut guest.tx };
            for _ in 0..4 {
                let address = dice.pick(&[start, start, start, FREE_AREA, 0, MEMORY_START - 8, u64::MAX]);
                let len = dice.pick(&[0, 16, 20, 44, 45, 4096, 65580, u32::MAX]);
                let flags = dice.pick(&[0, 0, NEXT, NEXT, WRITABLE, NEXT | WRITABLE, INDIRECT, 0xffff]);
                queue.write_descriptor(dice.roll(8) as u16, address, len, flags, dice.roll(10) as u16);
            }
            queue.publish(dice.pick(&[0, 1, 2, 3, 4, 5, 6, 7, QUEUE_SIZE, u16::MAX]));
            queue.kick.write(1).unwrap();
        }
        guest.stop();
        guest.reset_driver();
        guest.start(0);
        assert_still_works(&mut guest, 1000 + seed as u32);
        guest.send(guest.header(Operation::RST, 1000 + seed as u32, ECHO), &[]);
    }
}
