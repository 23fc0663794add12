//! The threads of a device: how they stop, and that none of them delays another.

mod services;
mod watch;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use front_end::GuestVm;
use services::{ECHO, Event, PANIC, RECORD, Rig};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vsock_device::{
    CloseReason, ConnectRequest, Connection, Device, DeviceConfig, Endpoint, GuestMemory, Services,
};
use watch::{sleeps_of_threads_named, threads_come_to};

const TRANSMIT: usize = 1;

fn assert_echoes(guest: &mut GuestVm, peer: u32, words: &[u8]) {
    guest.send_payload(peer, ECHO, words);
    assert_eq!(guest.receive().1, words);
}

#[test]
fn a_worker_that_dies_ends_its_session_in_order_and_no_other() {
    let (rig, neighbour) = (Rig::new(), Rig::new());
    let mut bystander = GuestVm::boot(&neighbour.socket);
    bystander.connect(1, ECHO);
    for _ in 0..3 {
        let mut guest = GuestVm::boot(&rig.socket);
        guest.connect(1, RECORD);
        guest.connect(2, PANIC);
        let (kept, _) = (rig.accepted(), rig.accepted());
        guest.send_payload(2, PANIC, b"x");
        let mut closed: Vec<u32> = (0..2)
            .map(|_| match rig.next() {
                Event::Closed(port, CloseReason::Disconnected) => port,
                other => panic!("not closed but {other:?}"),
            })
            .collect();
        closed.sort_unstable();
        assert_eq!(closed, [1, 2]);
        assert!(matches!(rig.next(), Event::Disconnected));
        assert!(kept.send(b"late").is_err());
        // QEMU was disconnected.
        assert!(guest.frontend.get_features().is_err());
        assert_echoes(&mut bystander, 1, b"unmoved");
    }
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, ECHO);
    assert_echoes(&mut guest, 1, b"as if nothing had happened");
}

#[test]
fn a_kick_that_is_replaced_while_packets_flow_loses_none() {
    let rig = Rig::with_cid(777_001);
    let mut guest = GuestVm::boot_as(&rig.socket, 777_001);
    guest.connect(1, ECHO);
    let mut old_kicks = Vec::new();
    for round in 0..300u32 {
        guest.post(guest.header(vsock_device::packet::Operation::RW, 1, ECHO), &round.to_le_bytes());
        guest.tx.kick_if_wanted();
        let new = EventFd::new(EFD_NONBLOCK).unwrap();
        let old = std::mem::replace(&mut guest.tx.kick, new);
        guest.frontend.set_vring_kick(TRANSMIT, &guest.tx.kick).unwrap();
        // The front-end still has the old one, and may use it.
        old.write(1).unwrap();
        old_kicks.push(old);
        assert_eq!(guest.receive().1, round.to_le_bytes());
    }
    assert_echoes(&mut guest, 1, b"after all that");
    // The old kicks are not watched: they are full, and the worker is still idle.
    assert_rests(&rig.device, "vsock-777001");
    assert!(old_kicks.iter().any(|kick| kick.read().is_ok()));
}

/// Asserts that the threads of an idle device neither wake up nor spin.
#[expect(clippy::disallowed_methods, reason = "nothing is to happen for a while")]
fn assert_rests(device: &Device, prefix: &str) {
    let settled = std::iter::repeat_with(|| {
        let before = (sleeps_of_threads_named(prefix), device.stats().wakeups);
        std::thread::sleep(std::time::Duration::from_millis(200));
        (sleeps_of_threads_named(prefix), device.stats().wakeups) == before
    });
    // On a busy machine the threads may take a while to fall asleep.
    assert!(settled.take(20).any(|is_at_rest| is_at_rest), "threads named {prefix} do not rest");
}

#[test]
fn threads_of_an_attached_vm_rest() {
    let rig = Rig::with_cid(777_002);
    let mut guest = GuestVm::boot_as(&rig.socket, 777_002);
    guest.connect(1, ECHO);
    assert_echoes(&mut guest, 1, b"x");
    // One for QEMUs, one for requests, one for kicks.
    assert!(threads_come_to("vsock-777002", 3));
    assert!(sleeps_of_threads_named("vsock-777002") > 0);
    assert_rests(&rig.device, "vsock-777002");
}

#[test]
fn a_kick_read_back_by_the_front_end_is_harmless() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, ECHO);
    for round in 0..2000u32 {
        // The worker wakes up for a kick that is gone when it is read.
        guest.tx.kick.write(1).unwrap();
        let _ = guest.tx.kick.read();
        if round % 100 == 0 {
            assert_echoes(&mut guest, 1, &round.to_le_bytes());
        }
    }
    assert_eq!(rig.device.stats().sessions, 1);
}

#[test]
fn an_incomplete_request_delays_no_other_device() {
    let (rig, neighbour) = (Rig::new(), Rig::new());
    let mut half = UnixStream::connect(&rig.socket).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    let mut bystander = GuestVm::boot(&neighbour.socket);
    bystander.connect(1, ECHO);
    assert_echoes(&mut bystander, 1, b"unmoved");
    wait_until(|| rig.device.stats().sessions == 1);
    drop(half);
    wait_until(|| !rig.device.stats().attached);
    drop(GuestVm::boot(&rig.socket));
    assert!(matches!(rig.next(), Event::Disconnected));
    let mut half = UnixStream::connect(&rig.socket).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    wait_until(|| rig.device.stats().sessions == 3);
    rig.device.shutdown();
}

fn wait_until(reached: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + front_end::PATIENCE;
    while !reached() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_of_impossible_size_does_not_run_and_a_restart_mends_it() {
    let rig = Rig::new();
    let mut guest = GuestVm::boot(&rig.socket);
    guest.connect(1, RECORD);
    rig.accepted();
    guest.stop();
    guest.frontend.set_vring_num(TRANSMIT, 100).unwrap();
    let base = guest.tx.position();
    guest.frontend.set_vring_base(TRANSMIT, base).unwrap();
    guest.frontend.set_vring_kick(TRANSMIT, &guest.tx.kick).unwrap();
    guest.frontend.set_vring_enable(TRANSMIT, true).unwrap();
    guest.post(guest.header(vsock_device::packet::Operation::RW, 1, RECORD), b"unheard");
    guest.tx.kick.write(1).unwrap();
    assert_eq!(guest.stop()[TRANSMIT], u32::from(base));
    guest.reset_driver();
    guest.start(0);
    rig.assert_closed(1, CloseReason::GuestRestarted);
    guest.connect(1, ECHO);
    assert_echoes(&mut guest, 1, b"mended");
}

/// Shuts its own device down from inside a call of the device.
struct Suicidal {
    device: Arc<Mutex<Option<Device>>>,
    at_memory: bool,
    done: Mutex<Sender<&'static str>>,
}

struct LastCall {
    device: Arc<Mutex<Option<Device>>>,
    done: Sender<&'static str>,
}

impl Services for Suicidal {
    fn accept(&self, _request: ConnectRequest, _connection: Connection) -> Option<Box<dyn Endpoint>> {
        Some(Box::new(LastCall { device: Arc::clone(&self.device), done: self.done.lock().unwrap().clone() }))
    }

    fn memory_changed(&self, _memory: GuestMemory) {
        if self.at_memory {
            drop(self.device.lock().unwrap().take());
            self.done.lock().unwrap().send("memory").unwrap();
        }
    }

    fn disconnected(&self) {
        let _ = self.done.lock().unwrap().send("disconnected");
    }
}

impl Endpoint for LastCall {
    fn received(&mut self, _bytes: &[u8]) {
        drop(self.device.lock().unwrap().take());
        self.done.send("received").unwrap();
    }

    fn closed(&mut self, reason: CloseReason) {
        assert_eq!(reason, CloseReason::Disconnected);
        self.done.send("closed").unwrap();
    }
}

fn serve_self_stopping(at_memory: bool) -> (tempfile::TempDir, std::path::PathBuf, Receiver<&'static str>) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("vsock");
    let (sender, steps) = channel();
    let device = Arc::new(Mutex::new(None));
    let services = Suicidal { device: Arc::clone(&device), at_memory, done: Mutex::new(sender) };
    let config = DeviceConfig { guest_cid: front_end::CID, socket: socket.clone(), connections_copy: None };
    *device.lock().unwrap() = Some(Device::serve(config, Arc::new(services)).unwrap());
    (directory, socket, steps)
}

#[test]
fn an_endpoint_may_shut_its_device_down() {
    let (_directory, socket, steps) = serve_self_stopping(false);
    let mut guest = GuestVm::boot(&socket);
    guest.connect(1, ECHO);
    guest.send_payload(1, ECHO, b"die");
    for expected in ["received", "closed", "disconnected"] {
        assert_eq!(steps.recv_timeout(front_end::PATIENCE), Ok(expected));
    }
    assert!(!socket.exists());
}

#[test]
fn a_service_may_shut_its_device_down() {
    let (_directory, socket, steps) = serve_self_stopping(true);
    // The front-end's request is interrupted.
    let _ = std::panic::catch_unwind(|| GuestVm::boot(&socket));
    for expected in ["memory", "disconnected"] {
        assert_eq!(steps.recv_timeout(front_end::PATIENCE), Ok(expected));
    }
    assert!(!socket.exists());
}
