//! The file systems that programs expect, and the console.

use std::fs::OpenOptions;
use std::os::unix::fs::symlink;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Type, where, flags and options, in the order of mounting.
const MOUNTS: [(&str, &str, MountFlags, &std::ffi::CStr); 7] = [
    ("proc", "/proc", QUIET.union(MountFlags::NOEXEC), c""),
    ("sysfs", "/sys", QUIET.union(MountFlags::NOEXEC), c""),
    ("devtmpfs", "/dev", MountFlags::NOSUID, c"mode=0755"),
    ("devpts", "/dev/pts", MountFlags::NOSUID.union(MountFlags::NOEXEC), c"mode=0620,ptmxmode=0666"),
    ("tmpfs", "/dev/shm", QUIET, c"mode=1777"),
    ("tmpfs", "/run", QUIET, c"mode=0755"),
    ("tmpfs", "/tmp", QUIET, c"mode=1777"),
];

/// Links that a device manager would make.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts everything. Returns a line for each failure.
pub(super) fn mount_all() -> Vec<String> {
    let mut failures = Vec::new();
    for (kind, path, flags, options) in MOUNTS {
        // An existing folder is fine; if there is none, the mount reports it.
        let _ = std::fs::create_dir_all(path);
        match mount(kind, path, kind, flags, options) {
            // Busy: the kernel or an earlier init has mounted it.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => failures.push(format!("{path} is not mounted: {error}")),
        }
    }
    for (target, link) in LINKS {
        // A link that exists already is fine.
        let _ = symlink(target, link);
    }
    failures
}

/// Makes the console the standard input, output and error, if the kernel has not.
pub(super) fn open_console() {
    let Ok(console) = OpenOptions::new().read(true).write(true).open("/dev/console") else { return };
    // If this fails, the kernel's descriptors stay.
    let _ = rustix::stdio::dup2_stdin(&console);
    let _ = rustix::stdio::dup2_stdout(&console);
    let _ = rustix::stdio::dup2_stderr(&console);
}
