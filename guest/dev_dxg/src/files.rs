//! Open files of the device. Each is a socket pair: the client has one end and does with it what it wants (dup, fork,
//! SCM_RIGHTS, close), the other end stays here. It hangs up when the last descriptor of the client's end is closed,
//! in whatever process: that is the file's release.
//!
//! ```text
//!   open: the first one starts the session ─▶ OPEN ─▶ last close, no ioctl in progress ─▶ released
//!                                                                     the last file: the session ends
//!   fork: the child's copies are files of another process: ENOTTY until it opens the device itself
//! ```
//!
//! A release is noticed by the call that causes it (close, close_range, dup2, dup3), or by the next of these. Nothing
//! here allocates, and the lock is one that a child of `fork` can take.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::cancellation::Uncancelled;

use crate::defects::defects;
use crate::library;
use crate::limits::{DESCRIPTORS_SEARCHED_MAX, HIDDEN_DESCRIPTORS_FROM, OPEN_FILES_MAX};
use crate::next;
use crate::status::Errno;

const NO_INODE: u64 = 0;
const NO_DESCRIPTOR: c_int = -1;
/// In place of the number of ioctls in progress: the file is released, or there is none. No ioctl can begin.
const RELEASED: u32 = u32::MAX;

/// One open file. Without an inode the entry is free.
struct File {
    /// Of the client's end; it names the file, whatever the descriptor's number.
    inode: AtomicU64,
    /// Our end, and its inode: the client may have closed it, and used its number again.
    hidden: AtomicI32,
    hidden_inode: AtomicU64,
    /// The process that opened it.
    process: AtomicI32,
    /// Ioctls in progress, or [`RELEASED`].
    users: AtomicU32,
    /// The last descriptor was closed while an ioctl was in progress.
    is_closed: AtomicBool,
}

impl File {
    const fn free() -> File {
        File {
            inode: AtomicU64::new(NO_INODE),
            hidden: AtomicI32::new(NO_DESCRIPTOR),
            hidden_inode: AtomicU64::new(NO_INODE),
            process: AtomicI32::new(0),
            users: AtomicU32::new(RELEASED),
            is_closed: AtomicBool::new(false),
        }
    }
}

static FILES: [File; OPEN_FILES_MAX] = [const { File::free() }; OPEN_FILES_MAX];

/// Entries in use, those of a parent process included: 0 in programs that do not use the device.
static USED: AtomicU32 = AtomicU32::new(0);
/// The last close ends the session.
static ENDS_SESSION: AtomicBool = AtomicBool::new(false);
/// The process that holds the lock, or 0. A child inherits the lock of a thread that it does not have, and ignores it.
static LOCK: AtomicI32 = AtomicI32::new(0);
/// A release was not looked for, because the lock was held.
static LOOK_AGAIN: AtomicBool = AtomicBool::new(false);

fn own_process() -> i32 {
    // SAFETY: no precondition.
    unsafe { libc::getpid() }
}

fn try_lock() -> bool {
    // A child of vfork shares this memory: it has no file of its own, so it comes here only to open one.
    let own = own_process();
    let holder = LOCK.load(Ordering::Acquire);
    holder != own && LOCK.compare_exchange(holder, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn lock() {
    while !try_lock() {
        std::thread::yield_now();
    }
}

fn unlock() {
    // Not if a process that shares this memory has taken it.
    let _ = LOCK.compare_exchange(own_process(), 0, Ordering::Release, Ordering::Relaxed);
    if LOOK_AGAIN.swap(false, Ordering::AcqRel) {
        release_closed();
    }
}

/// What a descriptor is.
pub enum Found {
    /// No file of the device.
    Other,
    /// A file that a parent process opened.
    Inherited,
    Own(User),
}

/// An ioctl in progress, during which its file is not released.
pub struct User(&'static File);

impl Drop for User {
    fn drop(&mut self) {
        let was_last = self.0.users.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_last && self.0.is_closed.load(Ordering::Acquire) {
            release_closed();
        }
    }
}

/// Begins an ioctl of the file with this inode. `None` if its last descriptor is closed meanwhile: then another file may
/// have taken its place.
fn begin(file: &'static File, inode: u64) -> Option<User> {
    let one_more = |users: u32| (users != RELEASED).then(|| users + 1);
    file.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
    let user = User(file);
    (file.inode.load(Ordering::Acquire) == inode).then_some(user)
}

/// Finds the file of a descriptor.
pub fn find(descriptor: c_int) -> Found {
    if USED.load(Ordering::Acquire) == 0 {
        return Found::Other;
    }
    let Some(inode) = socket_inode(descriptor) else { return Found::Other };
    let Some(file) = FILES.iter().find(|file| file.inode.load(Ordering::Acquire) == inode) else {
        return Found::Other;
    };
    if file.process.load(Ordering::Acquire) != own_process() {
        return Found::Inherited;
    }
    begin(file, inode).map_or(Found::Other, Found::Own)
}

/// The inode of a socket; `None` for any other descriptor.
fn socket_inode(descriptor: c_int) -> Option<u64> {
    // SAFETY: fstat writes to `status` only, and answers EBADF for a number that is not open.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some(status)
    };
    status.filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|status| status.st_ino)
}

/// Opens the device with the flags of `open`. The first open file of a process starts its session.
pub fn open(flags: c_int) -> Result<c_int, Errno> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Errno::EXIST);
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(Errno::NOTDIR);
    }
    let _uncancelled = Uncancelled::begin();
    lock();
    let opened = open_locked(flags);
    unlock();
    opened
}

fn open_locked(flags: c_int) -> Result<c_int, Errno> {
    forget_inherited();
    let free = FILES.iter().find(|file| file.inode.load(Ordering::Acquire) == NO_INODE);
    let file = free.ok_or(Errno::NFILE)?;
    library::load()?;
    if USED.load(Ordering::Acquire) == 0 {
        if defects().open_refused {
            return Err(Errno::BADF);
        }
        ENDS_SESSION.store(library::start_session()?, Ordering::Release);
    }
    let opened = socket_pair(flags).and_then(|(client, hidden)| {
        let inode = socket_inode(client).ok_or(Errno::BADF)?;
        Ok((client, hidden, inode))
    });
    match opened {
        Ok((client, hidden, inode)) => {
            file.hidden.store(hidden, Ordering::Release);
            file.hidden_inode.store(socket_inode(hidden).unwrap_or(NO_INODE), Ordering::Release);
            file.process.store(own_process(), Ordering::Release);
            file.is_closed.store(false, Ordering::Release);
            // From here on a thread that knew the entry's last file may count itself, and sees another inode.
            file.users.store(0, Ordering::Release);
            file.inode.store(inode, Ordering::Release);
            USED.fetch_add(1, Ordering::AcqRel);
            Ok(client)
        }
        Err(error) => {
            end_session_if_unused();
            Err(error)
        }
    }
}

/// The client's end, which has the lowest free number, and ours.
fn socket_pair(flags: c_int) -> Result<(c_int, c_int), Errno> {
    let kept = flags & libc::O_NONBLOCK;
    let mut pair = [NO_DESCRIPTOR; 2];
    // SAFETY: the kernel writes two numbers to `pair`; the calls below concern these descriptors only.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | if kept != 0 { libc::SOCK_NONBLOCK } else { 0 };
        if libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) != 0 {
            return Err(Errno::last());
        }
        let [client, second] = pair;
        let hidden = libc::fcntl(second, libc::F_DUPFD_CLOEXEC, HIDDEN_DESCRIPTORS_FROM);
        let hidden = if hidden < 0 { second } else { hidden };
        if hidden != second {
            next::close(second);
        }
        // A read by the client finds the end of the file instead of blocking.
        libc::shutdown(hidden, libc::SHUT_WR);
        if flags & libc::O_CLOEXEC == 0 {
            libc::fcntl(client, libc::F_SETFD, 0);
        }
        Ok((client, hidden))
    }
}

/// Forgets a parent's files, of which this process has copies.
fn forget_inherited() {
    let own = own_process();
    for file in &FILES {
        let is_inherited = file.process.load(Ordering::Acquire) != own;
        if is_inherited && file.inode.swap(NO_INODE, Ordering::AcqRel) != NO_INODE {
            file.users.store(RELEASED, Ordering::Release);
            let hidden = file.hidden.swap(NO_DESCRIPTOR, Ordering::AcqRel);
            // SAFETY: a copy of a descriptor that is only used here.
            unsafe { next::close(hidden) };
            USED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether a number is one that the client does not know of, and must not close.
pub fn is_hidden(descriptor: c_int) -> bool {
    let own = |file: &File| {
        file.inode.load(Ordering::Acquire) != NO_INODE
            && file.hidden.load(Ordering::Acquire) == descriptor
            && socket_inode(descriptor) == Some(file.hidden_inode.load(Ordering::Acquire))
    };
    USED.load(Ordering::Acquire) != 0 && FILES.iter().any(own)
}

/// Releases files whose last descriptor is closed. errno stays as it is.
pub fn release_closed() {
    if USED.load(Ordering::Acquire) == 0 || !FILES.iter().any(is_own) {
        return;
    }
    let _uncancelled = Uncancelled::begin();
    let before = Errno::last();
    if try_lock() {
        let mut was_released = false;
        for file in FILES.iter().filter(|file| is_own(file)) {
            was_released |= release_if_closed(file);
        }
        if was_released {
            end_session_if_unused();
        }
        unlock();
    } else {
        // The thread with the lock looks once more; it may be this one, inside of `open`.
        LOOK_AGAIN.store(true, Ordering::Release);
        // It may have unlocked before it could see that.
        if try_lock() {
            unlock();
        }
    }
    before.set();
}

/// Whether this process opened the file, and it is open.
fn is_own(file: &File) -> bool {
    file.inode.load(Ordering::Acquire) != NO_INODE && file.process.load(Ordering::Acquire) == own_process()
}

/// Whether a descriptor of the client's end is open in this process.
fn is_open(inode: u64) -> bool {
    // SAFETY: getrlimit writes to `limit` only.
    let most = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur.min(DESCRIPTORS_SEARCHED_MAX) as c_int
    };
    (0..most).any(|descriptor| socket_inode(descriptor) == Some(inode))
}

/// Whether the client has closed its last descriptor, of whatever process.
fn is_closed_by_client(file: &File) -> bool {
    let hidden = file.hidden.load(Ordering::Acquire);
    if hidden == NO_DESCRIPTOR {
        return false;
    }
    if socket_inode(hidden) != Some(file.hidden_inode.load(Ordering::Acquire)) {
        // close_range or a number that was taken over has closed our end, so no hang-up tells of the last close: the
        // file stays until the process ends, if the client has it still.
        file.hidden.store(NO_DESCRIPTOR, Ordering::Release);
        return !is_open(file.inode.load(Ordering::Acquire));
    }
    let mut poll = libc::pollfd { fd: hidden, events: 0, revents: 0 };
    // SAFETY: one entry, as the count says.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents & libc::POLLHUP != 0
}

/// Returns whether the file is released.
fn release_if_closed(file: &File) -> bool {
    if !file.is_closed.load(Ordering::Acquire) {
        if !is_closed_by_client(file) {
            return false;
        }
        file.is_closed.store(true, Ordering::Release);
    }
    if file.users.compare_exchange(0, RELEASED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    file.inode.store(NO_INODE, Ordering::Release);
    let hidden = file.hidden.swap(NO_DESCRIPTOR, Ordering::AcqRel);
    if hidden != NO_DESCRIPTOR {
        // SAFETY: our end, which nothing uses any more.
        unsafe { next::close(hidden) };
    }
    USED.fetch_sub(1, Ordering::AcqRel);
    true
}

fn end_session_if_unused() {
    if USED.load(Ordering::Acquire) == 0 && ENDS_SESSION.load(Ordering::Acquire) {
        library::end_session();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread has found the file, and another one closes its last descriptor before the first counts itself.
    #[test]
    fn an_ioctl_begins_only_while_its_file_is_not_released() {
        static FILE: File = File::free();
        const INODE: u64 = 7;
        let users = || FILE.users.load(Ordering::Acquire);
        assert!(begin(&FILE, INODE).is_none() && users() == RELEASED);
        USED.store(1, Ordering::Release);
        FILE.is_closed.store(true, Ordering::Release);
        FILE.inode.store(INODE, Ordering::Release);
        FILE.users.store(0, Ordering::Release);
        let user = begin(&FILE, INODE);
        assert!(user.is_some() && !release_if_closed(&FILE));
        drop(user);
        assert!(release_if_closed(&FILE));
        assert!(begin(&FILE, INODE).is_none() && users() == RELEASED);
        // The entry is another file's now.
        FILE.users.store(0, Ordering::Release);
        FILE.inode.store(INODE + 1, Ordering::Release);
        assert!(begin(&FILE, INODE).is_none() && users() == 0);
    }

    #[test]
    fn only_a_socket_has_the_inode_of_a_socket() {
        // SAFETY: new descriptors, closed below.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            assert_eq!(libc::fstat(socket, &raw mut status), 0);
            assert_eq!(socket_inode(socket), Some(status.st_ino));
            let folder = libc::open(c"/".as_ptr(), libc::O_RDONLY);
            let mut pipe = [NO_DESCRIPTOR; 2];
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let others = [folder, pipe[0], pipe[1], libc::eventfd(0, 0)];
            for other in others {
                assert_eq!((other >= 0, socket_inode(other)), (true, None));
            }
            for descriptor in [socket].into_iter().chain(others) {
                libc::close(descriptor);
            }
            for nothing in [1 << 20, NO_DESCRIPTOR] {
                assert_eq!(socket_inode(nothing), None);
            }
        }
    }
}
