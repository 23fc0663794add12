//! User, capabilities and limits of the process.
//!
//! `unsafe`: calls that rustix has only for one thread, or not at all.

use std::ffi::{CString, c_int, c_ulong};
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;

/// Bytes for the strings of an entry of the user database.
const ENTRY_BYTES: usize = 16 << 10;

/// Groups that one user may be in (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

impl User {
    /// The user with this name.
    ///
    /// # Errors
    ///
    /// There is none, or the system cannot say.
    pub fn named(name: &str) -> Result<User, String> {
        let unknown = || format!("there is no user {name:?} on this machine");
        let c_name = CString::new(name).map_err(|_| unknown())?;
        let mut strings = vec![0; ENTRY_BYTES];
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are of values that live longer than the call; the length is that of the buffer.
        let status = unsafe {
            let (pointer, room) = (strings.as_mut_ptr(), strings.len());
            libc::getpwnam_r(c_name.as_ptr(), entry.as_mut_ptr(), pointer, room, &raw mut found)
        };
        if status != 0 {
            return Err(format!("user {name:?}: {}", io::Error::from_raw_os_error(status)));
        }
        if found.is_null() {
            return Err(unknown());
        }
        // SAFETY: `found` is not null, so the entry was stored.
        let entry = unsafe { entry.assume_init() };
        Ok(User { name: c_name, uid: entry.pw_uid, gid: entry.pw_gid })
    }

    /// Makes a folder theirs.
    ///
    /// # Errors
    ///
    /// This process may not, or the folder does not exist.
    pub fn own(&self, folder: &Path) -> io::Result<()> {
        // Where others can write, a link may stand there by now.
        std::os::unix::fs::lchown(folder, Some(self.uid), Some(self.gid)).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL) => {
                    io::Error::new(error.kind(), "this user namespace does not have the user")
                }
                _ => error,
            }
        })
    }

    /// Makes this process, with all threads, one of theirs, for ever, in their groups and no others.
    pub(crate) fn switch_to(&self) -> io::Result<()> {
        let done = |status: c_int| if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the name is a C string; the rest are numbers.
        let (is_theirs, switched) = unsafe {
            let is_theirs = libc::getuid() == self.uid && libc::geteuid() == self.uid;
            let switched = done(libc::initgroups(self.name.as_ptr(), self.gid))
                .and_then(|()| done(libc::setresgid(self.gid, self.gid, self.gid)))
                .and_then(|()| done(libc::setresuid(self.uid, self.uid, self.uid)));
            (is_theirs, switched)
        };
        match switched {
            // A process of that user may not change its groups: those that it has must be theirs.
            Err(error) if is_theirs && error.raw_os_error() == Some(libc::EPERM) => self.has_no_other_group(),
            Err(error) => Err(io::Error::new(error.kind(), format!("{error}; only root can, or that user"))),
            Ok(()) => Ok(()),
        }
    }

    /// An error if this process is in a group that is not theirs.
    fn has_no_other_group(&self) -> io::Result<()> {
        let theirs = self.groups()?;
        let gid = [rustix::process::getgid().as_raw(), rustix::process::getegid().as_raw()];
        let groups = rustix::process::getgroups()?;
        let mut held = groups.iter().map(|group| group.as_raw()).chain(gid);
        match held.find(|group| !theirs.contains(group)) {
            Some(group) => Err(io::Error::other(format!(
                "this process is in group {group}, in which that user is not: start it as root, or without that group"
            ))),
            None => Ok(()),
        }
    }

    /// The groups that the user database gives them.
    fn groups(&self) -> io::Result<Vec<libc::gid_t>> {
        let mut groups = vec![0; GROUPS_MAX];
        let mut count = GROUPS_MAX as c_int;
        // SAFETY: the name is a C string, and the array has as many elements as `count` says.
        let found =
            unsafe { libc::getgrouplist(self.name.as_ptr(), self.gid, groups.as_mut_ptr(), &raw mut count) };
        if found < 0 {
            return Err(io::Error::other("that user is in too many groups"));
        }
        groups.truncate(found as usize);
        Ok(groups)
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Capabilities have numbers below this.
const CAPABILITIES_MAX: c_ulong = 64;

/// No capability but those kept that this thread has, and none in programs that it starts.
pub(crate) fn drop_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let kept = (kept & rustix::thread::capabilities(None)?.permitted).bits();
    let halves = [kept as u32, (kept >> 32) as u32];
    let kept = halves.map(|half| CapabilityData { effective: half, permitted: half, inheritable: 0 });
    // SAFETY: `capset` reads a header and the two structures of version 3; the rest are numbers. Dropping from the
    // bounding set fails for a process that has no capabilities to begin with, and behind the last capability.
    unsafe {
        for capability in 0..CAPABILITIES_MAX {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        let (clear, zero): (c_ulong, c_ulong) = (libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, 0);
        libc::prctl(libc::PR_CAP_AMBIENT, clear, zero, zero, zero);
        match libc::syscall(libc::SYS_capset, &raw const header, kept.as_ptr()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// No program that this process starts gets more rights by its file.
pub(crate) fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// No core file: it would have what guests sent.
pub(crate) fn no_core_files() -> io::Result<()> {
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// Has the C library's allocator read its files now. It reads each once: the number of processors in whatever thread
/// needs its ninth arena, and whether memory is overcommitted in the first that shrinks an arena.
pub(crate) fn read_files_of_allocator() {
    #[cfg(target_env = "gnu")]
    {
        const M_ARENA_TEST: c_int = -7;
        // SAFETY: it changes a number of the allocator, under its own lock.
        unsafe { libc::mallopt(M_ARENA_TEST, 1) };
        let both = std::sync::Barrier::new(2);
        let arena = || {
            // Below the size that is mapped by itself. Freed from the last on, they leave several MiB at the end.
            let mut many: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 100 << 10]).collect();
            std::hint::black_box(&many);
            both.wait();
            while many.pop().is_some() {}
        };
        std::thread::scope(|scope| {
            // The end of the scope waits for the work, the join for the end of the thread as well: no thread is left that
            // could do more than the process.
            let threads = [scope.spawn(arena), scope.spawn(arena)];
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
    }
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const _: () = assert!(size_of::<CapabilityData>() == 12);

#[cfg(test)]
mod tests;
