//! A daemon is killed or stopped and another one replaces it: QEMU does not notice, and its guest's connections are
//! reset.

mod services;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use front_end::GuestVm;
use services::{ECHO, Rig};
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
