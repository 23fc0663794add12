//! NT handles of shared objects: file descriptors that carry a token, and whose last close is reported.
//!
//! A handle is a memfd named after the kernel's object type (W-124). It holds a magic word and the 16 bytes of the
//! token, and is sealed against changes. Processes pass it on like any descriptor, by fork and by SCM_RIGHTS. Every
//! process that has it can read the token: this takes no message and consumes nothing. A broker creates the handle
//! ([`NtHandles::make`]) and keeps no descriptor of it; the host knows what the token stands for.
//!
//! ```text
//!   broker: memfd + token + seals ── inotify watch on its inode ──▶ passed on, the broker's descriptor closed
//!   references: dup, fork, SCM_RIGHTS, in flight in a socket, open of /proc/PID/fd/N, mmap
//!   the last one is dropped, also by SIGKILL ──▶ the inode is freed ──▶ IN_DELETE_SELF ──▶ NtHandles::closed
//! ```
//! A memfd is unlinked from its creation, so its inode is freed with its last reference and no sooner: inotify reports
//! that. The event is queued before the close returns in the closing process. One end of a socket pair would report as
//! much, but any process could read the token away from all others, and the broker would need a descriptor for each
//! handle; here it needs one for all.
//!
//! A *sync file* is such a handle that can be polled as well: see `sync_file.rs`.
#![forbid(unsafe_code)]

mod sync_file;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use d3dkmt::ShareToken;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

pub use sync_file::Signal;

const NAME: &str = "DxgkSharedSyncObject";
const MAGIC: [u8; 8] = *b"GPUPVNT1";
const BYTES: usize = MAGIC.len() + 16;
/// Bytes of events that are read at once.
const EVENTS_BYTES: usize = 4096;

fn seals() -> SealFlags {
    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

/// The token that an NT handle or a sync file carries; `None` for any other descriptor, an unsealed memfd and a number
/// that is not open included. Never blocks, and does not move the file position.
pub fn token_of(handle: BorrowedFd<'_>) -> Option<ShareToken> {
    token_of_memfd(handle).or_else(|| sync_file::token_of(handle))
}

fn token_of_memfd(handle: BorrowedFd<'_>) -> Option<ShareToken> {
    if !rustix::fs::fcntl_get_seals(handle).ok()?.contains(seals()) {
        return None;
    }
    if rustix::fs::fstat(handle).ok()?.st_size != BYTES as i64 {
        return None;
    }
    let mut content = [0; BYTES];
    if rustix::io::pread(handle, &mut content, 0).ok()? != BYTES {
        return None;
    }
    let (magic, token) = content.split_at(MAGIC.len());
    (magic == MAGIC).then(|| ShareToken(token.try_into().expect("16 bytes")))
}

/// Creates a sealed memfd that carries the token.
fn carry(token: ShareToken) -> Result<OwnedFd, Errno> {
    let handle = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&token.0);
    if rustix::io::write(&handle, &content)? != content.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::fcntl_add_seals(&handle, seals())?;
    Ok(handle)
}

/// Why an NT handle could not be created or watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    #[error("cannot create an NT handle: {0}")]
    Descriptor(Errno),
    #[error(
        "no more NT handles can be watched for their last close: \
         raise fs.inotify.max_user_watches and fs.inotify.max_user_instances (sysctl)"
    )]
    NoWatch,
    #[error("an NT handle cannot be watched for its last close: {0}")]
    Watch(Errno),
}

impl NotMade {
    fn to_watch(error: Errno) -> NotMade {
        match error {
            Errno::NOSPC | Errno::MFILE => NotMade::NoWatch,
            error => NotMade::Watch(error),
        }
    }
}

/// A handle that is open in some process.
#[derive(Debug)]
struct Live {
    token: ShareToken,
    /// Of a sync file: how many open files there are of it. Root can open it once more, by its number in `/proc`.
    open_files: Option<u32>,
}

/// The NT handles and sync files that one broker created and that are still open in some process.
///
/// The broker keeps a descriptor of a sync file, so its inode is not freed with its last close: the closes of its open
/// files are counted. A descriptor that is passed on, inherited or duplicated is the same open file.
#[derive(Debug)]
pub struct NtHandles {
    watch: OwnedFd,
    /// By inotify watch number, which the system does not reuse soon.
    live: BTreeMap<i32, Live>,
    sync_files: BTreeMap<ShareToken, Signal>,
}

impl NtHandles {
    pub fn new() -> Result<Self, NotMade> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(NotMade::to_watch)?;
        Ok(NtHandles { watch, live: BTreeMap::new(), sync_files: BTreeMap::new() })
    }

    /// Descriptor that is readable when [`NtHandles::closed`] has something to report.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Creates a handle, close-on-exec. The caller must close its own descriptor once it has passed the handle on.
    pub fn make(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let handle = carry(token).map_err(NotMade::Descriptor)?;
        self.watch(handle.as_fd(), token, false)?;
        Ok(handle)
    }

    /// Creates a sync file, close-on-exec, that is not ready. The caller must close its own descriptor once it has
    /// passed the sync file on.
    pub fn make_sync_file(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let (reader, signal) = sync_file::create(token).map_err(NotMade::Descriptor)?;
        self.watch(reader.as_fd(), token, true)?;
        sync_file::protect(reader.as_fd()).map_err(NotMade::Descriptor)?;
        self.sync_files.insert(token, signal);
        Ok(reader)
    }

    /// The signal of a sync file; `None` for an NT handle and an unknown token.
    pub fn signal_of(&self, token: ShareToken) -> Option<&Signal> {
        self.sync_files.get(&token)
    }

    /// Adopts a handle that a killed broker created, from a process that still has it open: reports its last close from
    /// now on. Returns its token; `None` if it is not an NT handle. The same handle may be adopted any number of times.
    pub fn adopt(&mut self, handle: BorrowedFd<'_>) -> Result<Option<ShareToken>, NotMade> {
        if let Some(token) = token_of_memfd(handle) {
            self.watch(handle, token, false)?;
            return Ok(Some(token));
        }
        let Some(token) = sync_file::token_of(handle) else { return Ok(None) };
        if !sync_file::is_of_broker(handle) {
            return Err(NotMade::Descriptor(Errno::PERM));
        }
        if !self.sync_files.contains_key(&token) {
            let signal = Signal::of(handle).map_err(NotMade::Descriptor)?;
            rustix::fs::fchmod(handle, sync_file::WATCHED_BY_OWNER).map_err(NotMade::Descriptor)?;
            let watched = self.watch(handle, token, true);
            sync_file::protect(handle).map_err(NotMade::Descriptor)?;
            watched?;
            self.sync_files.insert(token, signal);
        }
        Ok(Some(token))
    }

    fn watch(
        &mut self,
        handle: BorrowedFd<'_>,
        token: ShareToken,
        is_sync_file: bool,
    ) -> Result<(), NotMade> {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let (events, open_files) = match is_sync_file {
            false => (WatchFlags::DELETE_SELF, None),
            true => (WatchFlags::OPEN | WatchFlags::CLOSE, Some(1)),
        };
        let number = inotify::add_watch(&self.watch, path, events).map_err(NotMade::to_watch)?;
        self.live.insert(number, Live { token, open_files });
        Ok(())
    }

    /// Processes an event of a watch; returns the handle if its last descriptor is closed.
    fn seen(&mut self, number: i32, events: ReadFlags) -> Option<ShareToken> {
        let live = self.live.get_mut(&number)?;
        let is_closed = match &mut live.open_files {
            // The watch is removed right after its inode: one of the two events may be lost and the other seen.
            None => events.intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED),
            Some(open_files) => {
                if events.contains(ReadFlags::OPEN) {
                    *open_files += 1;
                }
                if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE) {
                    *open_files = open_files.saturating_sub(1);
                }
                *open_files == 0
            }
        };
        if !is_closed {
            return None;
        }
        let token = self.live.remove(&number)?.token;
        self.sync_files.remove(&token);
        Some(token)
    }

    /// The handles whose last descriptor was closed since the previous call, each once. Includes every close that was
    /// complete when this was called.
    pub fn closed(&mut self) -> Vec<ShareToken> {
        let mut space = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.watch, &mut space);
        let mut seen = Vec::new();
        loop {
            match events.next() {
                Ok(event) => seen.push((event.wd(), event.events())),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let mut closed: Vec<ShareToken> =
            seen.iter().filter_map(|(number, events)| self.seen(*number, *events)).collect();
        if seen.iter().any(|(_, events)| events.contains(ReadFlags::QUEUE_OVERFLOW)) {
            closed.extend(self.take_unwatched());
        }
        closed
    }

    /// The handles closed during an overflow of the event queue: every NT handle that is no longer watched. A sync file
    /// that was closed meanwhile stays until its VM is gone.
    fn take_unwatched(&mut self) -> Vec<ShareToken> {
        // Without fdinfo a handle stays until its VM is gone; nothing worse.
        let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.watch.as_raw_fd()))
        else {
            return Vec::new();
        };
        let number =
            |line: &str| i32::from_str_radix(line.strip_prefix("inotify wd:")?.split(' ').next()?, 16).ok();
        let watched: BTreeSet<i32> = text.lines().filter_map(number).collect();
        let mut unwatched = Vec::new();
        self.live.retain(|number, live| {
            let alive = watched.contains(number);
            if !alive {
                unwatched.push(live.token);
            }
            alive
        });
        unwatched
    }

    /// Number of handles that are open in some process, as far as is known.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

/// No signal is raised after this: sync files that are not ready become readable, so that no process polls
/// for ever.
impl Drop for NtHandles {
    fn drop(&mut self) {
        self.sync_files.values().for_each(Signal::raise);
    }
}

#[cfg(test)]
mod tests;
