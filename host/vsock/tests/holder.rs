//! A daemon is killed or stopped and another one replaces it: QEMU does not notice, and its guest's connections are
//! reset.

mod services;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use front_end::{GuestVm, MEMORY_BYTES, MEMORY_START};
use rustix::fs::SealFlags;
use services::{ECHO, Rig};
use vhost::VhostBackend as _;
use vsock_device::VhostUserProxy;
use vsock_device::packet::Operation;

/// Environment variable with the socket of a device in a process of its own.
const SOCKET_ENV: &str = "VSOCK_TEST_SOCKET";

/// Not a test by itself: a device in its own process, started by other tests so that it can be killed.
#[test]
fn device_of_a_process_of_its_own() {
    let Some(socket) = std::env::var_os(SOCKET_ENV) else { return };
    let rig = Rig::at(PathBuf::from(socket));
    println!("serving");
    std::io::stdout().flush().unwrap();
    // Waits for the end of the test, or for a line; then shuts down in order.
    let _ = std::io::stdin().read(&mut [0]);
    rig.device.shutdown();
}

/// A device in its own process, killed on drop.
struct Daemon(Child);

impl Daemon {
    fn start(socket: &Path) -> Daemon {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program)
            .args(["--exact", "device_of_a_process_of_its_own", "--nocapture"])
            .env(SOCKET_ENV, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Daemon(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sockets() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (held, daemon) = (folder.path().join("held.sock"), folder.path().join("daemon.sock"));
    (folder, held, daemon)
}

fn connections_file(daemon: &Path) -> PathBuf {
    PathBuf::from(format!("{}.connections", daemon.display()))
}

fn echoes(guest: &mut GuestVm, peer: u32, text: &[u8]) {
    guest.send_payload(peer, ECHO, text);
    let (header, payload) = guest.receive();
    assert_eq!((header.operation, &payload[..]), (Operation::RW, text));
}

#[test]
fn a_guest_is_reset_and_served_after_each_kill() {
    let (_folder, held, socket) = sockets();
    let proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let mut daemon = Daemon::start(&socket);
    // Waits for the device, which may start later.
    let mut guest = GuestVm::boot(&held);
    for round in 0..5 {
        let peers = [1000 + round * 10, 1001 + round * 10];
        for peer in peers {
            guest.connect(peer, ECHO);
            echoes(&mut guest, peer, b"before");
        }
        daemon.kill();
        if round % 2 == 0 {
            // Sent while no daemon runs: its connection is reset by the next one.
            guest.send_payload(peers[0], ECHO, b"lost");
        }
        daemon = Daemon::start(&socket);
        let mut reset = Vec::new();
        while reset.len() < 2 {
            let (header, _) = guest.receive();
            assert_eq!(header.operation, Operation::RST, "{header:?}");
            reset.push(header.dst_port);
        }
        reset.sort_unstable();
        assert_eq!(reset, peers);
        if round % 2 == 0 {
            let (header, _) = guest.receive();
            assert_eq!(
                (header.operation, header.dst_port),
                (Operation::RST, peers[0]),
                "the lost packet is refused"
            );
        }
        assert_eq!(guest.config(), front_end::CID);
    }
    assert_eq!(proxy.replaced(), 5);
    assert!(connections_file(&socket).exists());
    daemon.stop();
    assert!(!connections_file(&socket).exists(), "no connection is left to be reset");
}

#[test]
fn a_request_of_qemu_that_comes_while_there_is_no_daemon_is_answered_once() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    daemon.kill();
    let asking = std::thread::spawn(move || {
        let cid = guest.config();
        let positions = guest.stop();
        guest.start_at(positions);
        (cid, guest)
    });
    let _daemon = Daemon::start(&socket);
    let (cid, mut guest) = asking.join().unwrap();
    assert_eq!(cid, front_end::CID);
    guest.connect(7, ECHO);
    echoes(&mut guest, 7, b"after");
}

#[test]
fn a_daemon_that_stops_in_order_ends_connections_and_not_the_machine() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    daemon.stop();
    assert_eq!(guest.receive_operation(), Operation::SHUTDOWN);
    assert!(!connections_file(&socket).exists());
    let _daemon = Daemon::start(&socket);
    guest.connect(8, ECHO);
    echoes(&mut guest, 8, b"after");
}

#[test]
fn a_daemon_whose_device_lacks_features_is_left_for_the_next() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    daemon.kill();
    std::fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    let (mut stream, _) = other.accept().unwrap();
    let mut request = [0; 12];
    stream.read_exact(&mut request).unwrap();
    // A reply of eight bytes, with no feature.
    let (flags, length) = (5u32.to_le_bytes(), 8u32.to_le_bytes());
    stream.write_all(&[&request[..4], &flags, &length, &[0; 8]].concat()).unwrap();
    assert_eq!(stream.read(&mut request).unwrap(), 0, "the proxy leaves");
    drop((stream, other));
    std::fs::remove_file(&socket).unwrap();
    let _daemon = Daemon::start(&socket);
    let (header, _) = guest.receive();
    assert_eq!((header.operation, header.dst_port), (Operation::RST, 7));
    guest.connect(8, ECHO);
    echoes(&mut guest, 8, b"after");
}

/// Runs what a request of QEMU must not hold up; fails after a while instead of waiting for ever.
fn in_time<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(front_end::PATIENCE).expect("QEMU stands, or the test has failed in its thread")
}

#[test]
fn a_guest_is_stopped_and_goes_on_while_there_is_no_daemon() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    echoes(&mut guest, 7, b"before");
    guest.config();
    daemon.kill();
    let (sent, mut guest) = in_time(move || {
        // QEMU stops the guest with packets in its ring, twice, and lets it go on.
        guest.send_payload(7, ECHO, b"lost");
        let mut positions = guest.stop();
        guest.start_at(positions);
        guest.send_payload(7, ECHO, b"lost too");
        positions = guest.stop();
        assert_eq!(guest.stop(), positions);
        guest.send_memory_table();
        assert_eq!(guest.config(), front_end::CID);
        guest.start_at(positions);
        guest.send(guest.header(Operation::REQUEST, 8, ECHO), &[]);
        (positions[1], guest)
    });
    assert_eq!(sent, 2, "the packets that the killed device had taken");
    let _daemon = Daemon::start(&socket);
    let mut received: Vec<_> = (0..4).map(|_| guest.receive().0).collect();
    received.retain(|header| (header.operation, header.dst_port) != (Operation::RST, 7));
    assert!(matches!(&received[..], [one] if (one.operation, one.dst_port) == (Operation::RESPONSE, 8)));
    echoes(&mut guest, 8, b"after");
}

#[test]
fn a_guest_is_reset_and_qemu_exits_while_there_is_no_daemon() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    daemon.kill();
    let mut guest = in_time(move || {
        guest.stop();
        guest.reset_driver();
        guest.start(0);
        guest.send(guest.header(Operation::REQUEST, 8, ECHO), &[]);
        guest
    });
    let daemon = Daemon::start(&socket);
    // To a kernel that does not know the connection the reset says nothing.
    let (reset, _) = guest.receive();
    assert_eq!((reset.operation, reset.dst_port), (Operation::RST, 7));
    let (response, _) = guest.receive();
    assert_eq!((response.operation, response.dst_port), (Operation::RESPONSE, 8));
    echoes(&mut guest, 8, b"after");
    daemon.kill();
    in_time(move || {
        guest.stop();
        drop(guest);
    });
    // The next QEMU waits for a device, because none has said yet what it offers.
    let next = std::thread::spawn(move || GuestVm::boot(&held).config());
    let _daemon = Daemon::start(&socket);
    assert_eq!(next.join().unwrap(), front_end::CID);
}

#[test]
fn a_memory_table_that_the_daemon_refuses_leaves_the_device_as_it_was() {
    let (_folder, held, socket) = sockets();
    let proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let _daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    let mut guest = in_time(move || {
        let unsealed = front_end::memory_sealed(MEMORY_START, MEMORY_BYTES, SealFlags::GROW);
        let own = std::mem::replace(&mut guest.memory, unsealed);
        assert!(guest.try_memory_table().is_err(), "QEMU is told");
        guest.memory = own;
        guest.config();
        guest
    });
    assert_eq!(proxy.replaced(), 1, "the device has ended the connection on which it refused");
    let (reset, _) = guest.receive();
    assert_eq!((reset.operation, reset.dst_port), (Operation::RST, 7), "the guest hears of that");
    guest.connect(8, ECHO);
    echoes(&mut guest, 8, b"after");
}

#[test]
fn a_refusal_that_qemu_cannot_be_told_ends_its_connection() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let _daemon = Daemon::start(&socket);
    let path = held.clone();
    let is_ended = in_time(move || {
        let frontend = vhost::vhost_user::Frontend::connect(&path, 3).unwrap();
        frontend.set_owner().unwrap();
        let packed = 1 << 34;
        frontend.set_features(front_end::FEATURES | packed).unwrap();
        frontend.get_features().is_err()
    });
    assert!(is_ended);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
}

#[test]
fn a_second_qemu_is_refused_and_the_first_one_goes_on() {
    let (_folder, held, socket) = sockets();
    let _proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    let refused = |path: PathBuf| {
        in_time(move || vhost::vhost_user::Frontend::connect(&path, 3).unwrap().get_features().is_err())
    };
    assert!(refused(held.clone()));
    guest.connect(7, ECHO);
    daemon.kill();
    assert!(refused(held));
    let _daemon = Daemon::start(&socket);
    assert_eq!(guest.receive_operation(), Operation::RST);
    guest.connect(8, ECHO);
}

#[test]
fn a_device_that_is_added_again_on_the_same_connection_is_claimed_again() {
    let (_folder, held, socket) = sockets();
    let proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let _daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.stop();
    guest.frontend.set_owner().unwrap();
    guest.reset_driver();
    guest.start(0);
    guest.connect(7, ECHO);
    echoes(&mut guest, 7, b"after");
    assert_eq!(proxy.replaced(), 0, "the device did not notice");
}

#[test]
fn the_end_of_a_proxy_is_the_end_of_the_device() {
    let (_folder, held, socket) = sockets();
    let proxy = VhostUserProxy::serve(&held, &socket).unwrap();
    let _daemon = Daemon::start(&socket);
    let mut guest = GuestVm::boot(&held);
    guest.connect(7, ECHO);
    drop(proxy);
    assert!(!held.exists());
    assert!(vhost::VhostBackend::get_features(&guest.frontend).is_err());
    // To the daemon QEMU has disconnected.
    let mut guest = GuestVm::boot(&socket);
    guest.connect(7, ECHO);
    // The call for the answer may be signaled after the answer was read.
    assert_eq!(guest.rx.take_used(), None, "no earlier connection is reset");
}
