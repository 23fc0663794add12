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
//! `unsafe` here: the flag page is shared with the kernel, handlers are registered with libc, and signals are blocked by a
//! system call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::in_call;
use crate::limits::SESSION_DESCRIPTORS_MAX;

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
/// Signals that the forking thread had blocked before it took the gate.
static BLOCKED_BEFORE_FORK: AtomicU64 = AtomicU64::new(0);
static DESCRIPTORS: [AtomicI32; SESSION_DESCRIPTORS_MAX] =
    [const { AtomicI32::new(NO_DESCRIPTOR) }; SESSION_DESCRIPTORS_MAX];

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

#[cold]
fn first_use() -> &'static AtomicU32 {
    static ONCE: OnceLock<&'static AtomicU32> = OnceLock::new();
    let flag = *ONCE.get_or_init(|| {
        let flag = wiped_page().unwrap_or(&FALLBACK_FLAG);
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
        };
        flag
    });
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
        let descriptor = slot.swap(NO_DESCRIPTOR, Ordering::AcqRel);
        if descriptor != NO_DESCRIPTOR {
            // SAFETY: the list owns the descriptor; a session of the parent's generation no longer closes or uses it.
            // Closing a copy sends nothing to the peer.
            unsafe { libc::close(descriptor) };
        }
    }
    GENERATION.fetch_add(1, Ordering::AcqRel);
    flag.store(ALIVE, Ordering::Release);
}

/// Signals of a thread, a bit for each.
type Signals = u64;

/// Blocks these signals in this thread, and no others. Returns those that were blocked before.
fn block_signals(signals: Signals) -> Signals {
    let mut before: Signals = 0;
    // SAFETY: the kernel reads one mask and writes the other, each of so many bytes. It cannot fail with them.
    unsafe {
        let (new, old) = (&raw const signals, &raw mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<Signals>());
    }
    before
}

/// Takes the gate, for a time in which the thread does not block. Returns what [`leave_gate`] needs.
fn enter_gate() -> Signals {
    let before = block_signals(Signals::MAX);
    while GATE.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    before
}

fn leave_gate(before: Signals) {
    GATE.store(false, Ordering::Release);
    block_signals(before);
}

extern "C" fn before_fork() {
    BLOCKED_BEFORE_FORK.store(enter_gate(), Ordering::Relaxed);
}

extern "C" fn after_fork_in_parent() {
    leave_gate(BLOCKED_BEFORE_FORK.load(Ordering::Relaxed));
}

extern "C" fn after_fork_in_child() {
    in_call::forget();
    // SAFETY: as in `generation`.
    if let Some(flag) = unsafe { FLAG.load(Ordering::Acquire).as_ref() } {
        flag.store(WIPED, Ordering::Release);
        generation();
    }
    leave_gate(BLOCKED_BEFORE_FORK.load(Ordering::Relaxed));
}

/// A descriptor of a session: closed when dropped, and in a forked child at once.
#[derive(Debug)]
pub struct SessionDescriptor {
    raw: RawFd,
    slot: usize,
    generation: u32,
}

impl SessionDescriptor {
    /// Makes descriptors with `make` and takes ownership of them, with no fork in between. `make` must not block.
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
        leave_gate(blocked_before);
        Ok(adopted?.try_into().expect("as many descriptors as were made"))
    }

    fn enlist(mut descriptor: OwnedFd, generation: u32) -> Result<SessionDescriptor, rustix::io::Errno> {
        // Without standard streams the program's output must not go into this stream.
        if descriptor.as_raw_fd() < ABOVE_STANDARD_STREAMS {
            descriptor = rustix::io::fcntl_dupfd_cloexec(&descriptor, ABOVE_STANDARD_STREAMS)?;
        }
        let raw = descriptor.as_raw_fd();
        let free = DESCRIPTORS.iter().position(|slot| {
            slot.compare_exchange(NO_DESCRIPTOR, raw, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let slot = free.ok_or(rustix::io::Errno::MFILE)?;
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
            _ => Ok(()),
        }
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
        if self.generation == generation()
            && DESCRIPTORS[self.slot].swap(NO_DESCRIPTOR, Ordering::AcqRel) == self.raw
        {
            // SAFETY: the list shows that this session still owns the descriptor.
            unsafe { libc::close(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests;
