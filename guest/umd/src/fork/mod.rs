//! Handling of `fork` in a process that has a session.
//!
//! The child inherits the parent's stream and broker connection, locks that other threads held, and the fence memory.
//! It keeps the memory (reading fences is safe) and closes its copies of the two descriptors, so that the host notices
//! the parent's exit. It forgets the rest. (Copies of events that the parent had armed stay open in the child; nothing
//! sets them there.)
//!
//! ```text
//!   fork()       ─▶ child handler ─┐
//!                                  ├─▶ notice_fork: descriptors closed, generation + 1
//!   raw clone()  ─▶ next call ─────┘   (the flag page reads 0 in a child: MADV_WIPEONFORK)
//! ```
//!
//! Everything that belongs to a session remembers the *generation* it was made in; in another generation it is
//! unusable. Nothing here allocates or takes a lock that another thread may hold.
//!
//! A thread blocks its signals while it has the gate, because a signal handler may fork. That fork would wait for the gate,
//! and so for the code that its handler has interrupted.
//!
//! Other libraries have fork handlers, too, and hold their locks around calls. So the gate is the innermost of all locks: the
//! handlers are registered when the library is loaded, before those of the libraries that link it. Thus a fork takes the gate
//! last and releases it first. Where a library has registered its handlers earlier and loads this one later, a fork may hold
//! the gate while it waits for a thread that makes a call. That thread waits for a limited time.
//!
//! `unsafe` here: the flag page is shared with the kernel, handlers are registered with libc, and descriptors are
//! numbers.

mod areas;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::in_call;
use crate::limits::{GATE_WAIT_MAX, SESSION_DESCRIPTORS_MAX};
use crate::signals::{SENT, Signals, block};

pub use areas::ListedArea;

const WIPED: u32 = 0;
const NOTICING: u32 = 1;
const ALIVE: u32 = 2;
const NO_DESCRIPTOR: i32 = -1;
/// The first descriptor above stdin, stdout and stderr.
pub(crate) const ABOVE_STANDARD_STREAMS: RawFd = 3;

/// Points to the flag: `ALIVE`, or `WIPED` in a child that has not noticed yet.
static FLAG: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The flag where the kernel cannot wipe a page: then only `fork()` itself is noticed.
static FALLBACK_FLAG: AtomicU32 = AtomicU32::new(ALIVE);
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Held while a descriptor exists that is not in the list yet; `fork()` waits for it. Its thread has its signals blocked.
static GATE: AtomicBool = AtomicBool::new(false);
/// The thread that has the gate because it forks, or 0. The child's only thread has the same name.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// Signals that the forking thread had blocked before it took the gate.
static BLOCKED_BEFORE_FORK: AtomicU64 = AtomicU64::new(0);
static DESCRIPTORS: [ListedDescriptor; SESSION_DESCRIPTORS_MAX] =
    [const { ListedDescriptor::new() }; SESSION_DESCRIPTORS_MAX];

/// A descriptor that a child closes, and its file: a program may close descriptors that it has not opened, as daemons do, and
/// open others with their numbers. (Of an epoll, files of other kinds are known as such.)
#[derive(Debug)]
struct ListedDescriptor {
    raw: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl ListedDescriptor {
    const fn new() -> ListedDescriptor {
        let (device, inode) = (AtomicU64::new(0), AtomicU64::new(0));
        ListedDescriptor { raw: AtomicI32::new(NO_DESCRIPTOR), device, inode }
    }

    fn set_file(&self, (device, inode): (u64, u64)) {
        self.device.store(device, Ordering::Release);
        self.inode.store(inode, Ordering::Release);
    }

    /// Whether this number still is of the file.
    fn is_file_of(&self, raw: RawFd) -> bool {
        let file = (self.device.load(Ordering::Acquire), self.inode.load(Ordering::Acquire));
        file_of(raw) == Ok(file)
    }
}

/// Device and inode.
pub(crate) fn file_of(raw: RawFd) -> Result<(u64, u64), rustix::io::Errno> {
    // SAFETY: borrowed for one call, which answers EBADF if the number is not open.
    let of = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(raw) })?;
    Ok((of.st_dev, of.st_ino))
}

/// The same file with a number above the standard streams: without those, the program's output must not go into it.
pub(crate) fn above_standard_streams(descriptor: OwnedFd) -> Result<OwnedFd, rustix::io::Errno> {
    match descriptor.as_raw_fd() < ABOVE_STANDARD_STREAMS {
        true => rustix::io::fcntl_dupfd_cloexec(&descriptor, ABOVE_STANDARD_STREAMS),
        false => Ok(descriptor),
    }
}

/// The number of forks between the first process that used this library and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    let flag = match FLAG.load(Ordering::Acquire) {
        pointer if pointer.is_null() => first_use(),
        // SAFETY: only ever set to a page that is never unmapped, or to a static.
        pointer => unsafe { &*pointer },
    };
    if flag.load(Ordering::Acquire) != ALIVE {
        notice_fork(flag);
    }
    GENERATION.load(Ordering::Acquire)
}

/// Registers the handlers of `fork`, once.
extern "C" fn register_handlers() {
    static ONCE: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
    });
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER_HANDLERS: extern "C" fn() = register_handlers;

#[cold]
fn first_use() -> &'static AtomicU32 {
    static ONCE: OnceLock<&'static AtomicU32> = OnceLock::new();
    // A program that has this library linked in may have lost what runs at the load.
    register_handlers();
    let flag = *ONCE.get_or_init(|| wiped_page().unwrap_or(&FALLBACK_FLAG));
    FLAG.store(std::ptr::from_ref(flag).cast_mut(), Ordering::Release);
    flag
}

/// A page that reads as zero in every child, however it was made.
fn wiped_page() -> Option<&'static AtomicU32> {
    let bytes = fence_page::PAGE_BYTES;
    // SAFETY: a new private anonymous mapping touches nothing that exists.
    let page = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            .ok()?
    };
    // SAFETY: the page is private, mapped, zeroed, aligned, and stays for the life of the process.
    unsafe {
        madvise(page, bytes, Advice::LinuxWipeOnFork).ok()?;
        let flag = &*page.cast::<AtomicU32>();
        flag.store(ALIVE, Ordering::Release);
        Some(flag)
    }
}

#[cold]
fn notice_fork(flag: &AtomicU32) {
    if flag.compare_exchange(WIPED, NOTICING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        while flag.load(Ordering::Acquire) != ALIVE {
            std::thread::yield_now();
        }
        return;
    }
    GATE.store(false, Ordering::Release);
    for slot in &DESCRIPTORS {
        let descriptor = slot.raw.swap(NO_DESCRIPTOR, Ordering::AcqRel);
        if descriptor != NO_DESCRIPTOR && slot.is_file_of(descriptor) {
            // SAFETY: the list owns the descriptor; a session of the parent's generation no longer closes or uses it.
            // Closing a copy sends nothing to the peer.
            unsafe { libc::close(descriptor) };
        }
    }
    GENERATION.fetch_add(1, Ordering::AcqRel);
    flag.store(ALIVE, Ordering::Release);
}

/// Takes the gate, for a time in which the thread does not block. Returns what [`leave_gate`] needs; `None` if a fork has
/// the gate that may wait for this thread, or that runs a handler of another library in it. Without the gate a child may
/// inherit a descriptor that it does not know of.
fn enter_gate() -> Option<Signals> {
    let before = block(SENT);
    let mut began = None;
    while GATE.swap(true, Ordering::Acquire) {
        if is_forking() || began.get_or_insert_with(Instant::now).elapsed() > GATE_WAIT_MAX {
            block(before);
            return None;
        }
        std::thread::yield_now();
    }
    Some(before)
}

fn leave_gate(before: Signals) {
    GATE.store(false, Ordering::Release);
    block(before);
}

fn this_thread() -> usize {
    // SAFETY: no precondition.
    unsafe { libc::pthread_self() as usize }
}

/// Whether this thread has the gate because it forks.
fn is_forking() -> bool {
    FORKING.load(Ordering::Relaxed) == this_thread()
}

extern "C" fn before_fork() {
    if let Some(blocked_before) = enter_gate() {
        BLOCKED_BEFORE_FORK.store(blocked_before, Ordering::Relaxed);
        FORKING.store(this_thread(), Ordering::Relaxed);
    }
}

/// Leaves the gate, if the fork that this thread has made had it; false if not.
fn leave_gate_after_fork() -> bool {
    let had_gate = is_forking();
    if had_gate {
        FORKING.store(0, Ordering::Relaxed);
        leave_gate(BLOCKED_BEFORE_FORK.load(Ordering::Relaxed));
    }
    had_gate
}

extern "C" fn after_fork_in_parent() {
    leave_gate_after_fork();
}

extern "C" fn after_fork_in_child() {
    if in_call::forget() {
        areas::map_empty();
    }
    areas::forget();
    // SAFETY: as in `generation`.
    if let Some(flag) = unsafe { FLAG.load(Ordering::Acquire).as_ref() } {
        // The kernel has wiped the page. A handler of another library may have noticed that, and started a session.
        if std::ptr::eq(flag, &FALLBACK_FLAG) {
            flag.store(WIPED, Ordering::Release);
        }
        generation();
    }
    if !leave_gate_after_fork() {
        // A thread of the parent has the gate.
        FORKING.store(0, Ordering::Relaxed);
        GATE.store(false, Ordering::Release);
    }
}

/// A descriptor of a session: closed when dropped, and in a forked child at once.
#[derive(Debug)]
pub struct SessionDescriptor {
    raw: RawFd,
    slot: usize,
    generation: u32,
}

impl SessionDescriptor {
    /// Makes descriptors with `make` and takes ownership of them, with no fork in between unless [`enter_gate`] says
    /// otherwise. `make` must not block.
    pub(crate) fn adopt<const N: usize, E: From<rustix::io::Errno>>(
        make: impl FnOnce() -> Result<[OwnedFd; N], E>,
    ) -> Result<[SessionDescriptor; N], E> {
        let generation = generation();
        let blocked_before = enter_gate();
        let adopted = make().and_then(|descriptors| {
            let mut adopted = Vec::with_capacity(N);
            for descriptor in descriptors {
                adopted.push(SessionDescriptor::enlist(descriptor, generation)?);
            }
            Ok(adopted)
        });
        blocked_before.into_iter().for_each(leave_gate);
        Ok(adopted?.try_into().expect("as many descriptors as were made"))
    }

    fn enlist(descriptor: OwnedFd, generation: u32) -> Result<SessionDescriptor, rustix::io::Errno> {
        let descriptor = above_standard_streams(descriptor)?;
        let raw = descriptor.as_raw_fd();
        let file = file_of(raw)?;
        let free = DESCRIPTORS.iter().position(|slot| {
            slot.raw.compare_exchange(NO_DESCRIPTOR, raw, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let slot = free.ok_or(rustix::io::Errno::MFILE)?;
        DESCRIPTORS[slot].set_file(file);
        let raw = descriptor.into_raw_fd();
        Ok(SessionDescriptor { raw, slot, generation })
    }
}

impl SessionDescriptor {
    /// Makes its number refer to another file, at once for all threads that use it.
    pub(crate) fn replace(&self, source: &SessionDescriptor) -> Result<(), rustix::io::Errno> {
        // SAFETY: both are open and owned here; a concurrent user of the number gets one file or the other.
        match unsafe { libc::dup3(source.raw, self.raw, libc::O_CLOEXEC) } {
            -1 => Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::BADF)),
            _ => {
                DESCRIPTORS[self.slot].set_file(file_of(self.raw)?);
                Ok(())
            }
        }
    }

    /// Whether its number still is of its file: the program may have closed or replaced it.
    pub(crate) fn is_own(&self) -> bool {
        let listed = &DESCRIPTORS[self.slot];
        listed.raw.load(Ordering::Acquire) == self.raw && listed.is_file_of(self.raw)
    }
}

impl AsFd for SessionDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self` lives in its own generation; users check the generation.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }
}

impl Drop for SessionDescriptor {
    fn drop(&mut self) {
        let listed = &DESCRIPTORS[self.slot];
        if self.generation == generation()
            && listed.raw.swap(NO_DESCRIPTOR, Ordering::AcqRel) == self.raw
            && listed.is_file_of(self.raw)
        {
            // SAFETY: the list shows that this session still owns the descriptor.
            unsafe { libc::close(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests;
