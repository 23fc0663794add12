//! A test program of its own, because the umask belongs to the whole process.

use std::os::unix::fs::PermissionsExt as _;

use listening::{EVERY_USER, OWNER_ONLY, listen, make_folder};
use rustix::fs::Mode;
use rustix::net::SocketType;
use rustix::process::umask;

#[test]
fn no_umask_changes_the_mode_of_a_socket_or_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, mask) in [(OWNER_ONLY, 0), (EVERY_USER, 0o777)] {
        let path = folder.path().join(format!("{mode:o}"));
        let before = umask(Mode::from_raw_mode(mask));
        let socket = listen(&path, SocketType::STREAM, mode);
        umask(before);
        let _socket = socket.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
    }
    for mask in [0, 0o077, 0o777] {
        let parent = folder.path().join(format!("folders-{mask:o}"));
        let path = parent.join("of-sockets");
        let before = umask(Mode::from_raw_mode(mask));
        let made = make_folder(&path);
        umask(before);
        assert!(made.unwrap() && !make_folder(&path).unwrap());
        for path in [parent, path] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755, "{mask:o}");
        }
    }
}
