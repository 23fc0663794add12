//! A test program of its own, because it starts itself in another PID namespace.

use std::os::fd::OwnedFd;
use std::process::Command;

use listening::{OtherPidNamespace, PeerCredentials};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Set in the process that looks at a socket from another namespace.
const INSIDE: &str = "GPUPV_TEST_INSIDE";

/// The socket is the standard input of the inner process; its peer, the outer one, has no number there.
fn inside() {
    let credentials = PeerCredentials::of(std::io::stdin()).unwrap();
    assert_eq!(credentials.pid(), Err(OtherPidNamespace));
    assert!(OtherPidNamespace.to_string().contains("--pid=host"));
    // Root inside is the user outside.
    assert_eq!(credentials.uid, 0);
}

#[test]
fn a_peer_outside_the_pid_namespace_has_a_user_and_no_process_id() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let credentials = PeerCredentials::of(&ours).unwrap();
    assert_eq!(credentials.pid(), Ok(rustix::process::getpid()));
    assert_eq!(credentials.uid, rustix::process::getuid().as_raw());
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--pid", "--fork"]).arg(std::env::current_exe().unwrap());
    let theirs: OwnedFd = theirs;
    let inner = unshare.env(INSIDE, "1").stdin(theirs).output().unwrap();
    let said = String::from_utf8_lossy(&inner.stderr).into_owned();
    if said.starts_with("unshare:") {
        return println!("not tested: this system allows no namespaces: {said}");
    }
    assert!(inner.status.success(), "{said}{}", String::from_utf8_lossy(&inner.stdout));
}

#[test]
fn a_descriptor_that_is_no_socket_has_no_peer() {
    assert!(PeerCredentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
}
