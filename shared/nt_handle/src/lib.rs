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
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use d3dkmt::ShareToken;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

const NAME: &str = "DxgkSharedSyncObject";
const MAGIC: [u8; 8] = *b"GPUPVNT1";
const BYTES: usize = MAGIC.len() + 16;
/// Bytes of events that are read at once.
const EVENTS_BYTES: usize = 4096;

fn seals() -> SealFlags {
    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

/// The token that an NT handle carries; `None` for any other descriptor, an unsealed memfd and a number that is not
/// open included. Never blocks, and does not move the file position.
pub fn token_of(handle: BorrowedFd<'_>) -> Option<ShareToken> {
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

/// The NT handles that one broker created and that are still open in some process.
#[derive(Debug)]
pub struct NtHandles {
    watch: OwnedFd,
    /// Token by inotify watch number, which the system does not reuse soon.
    live: BTreeMap<i32, ShareToken>,
}

impl NtHandles {
    pub fn new() -> Result<Self, NotMade> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(NotMade::to_watch)?;
        Ok(NtHandles { watch, live: BTreeMap::new() })
    }

    /// Descriptor that is readable when [`NtHandles::closed`] has something to report.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Creates a handle, close-on-exec. The caller must close its own descriptor once it has passed the handle on.
    pub fn make(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let handle = carry(token).map_err(NotMade::Descriptor)?;
        self.watch(handle.as_fd(), token)?;
        Ok(handle)
    }

    /// Adopts a handle that a killed broker created, from a process that still has it open: reports its last close from
    /// now on. Returns its token; `None` if it is not an NT handle. The same handle may be adopted any number of times.
    pub fn adopt(&mut self, handle: BorrowedFd<'_>) -> Result<Option<ShareToken>, NotMade> {
        let Some(token) = token_of(handle) else { return Ok(None) };
        self.watch(handle, token)?;
        Ok(Some(token))
    }

    fn watch(&mut self, handle: BorrowedFd<'_>, token: ShareToken) -> Result<(), NotMade> {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let number = inotify::add_watch(&self.watch, path, WatchFlags::DELETE_SELF);
        self.live.insert(number.map_err(NotMade::to_watch)?, token);
        Ok(())
    }

    /// The handles whose last descriptor was closed since the previous call, each once. Includes every close that was
    /// complete when this was called.
    pub fn closed(&mut self) -> Vec<ShareToken> {
        let mut space = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.watch, &mut space);
        let (mut closed, mut overflowed) = (Vec::new(), false);
        loop {
            match events.next() {
                // The watch is removed right after its inode: one of the two events may be lost and the other seen.
                Ok(event) if event.events().intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED) => {
                    closed.extend(self.live.remove(&event.wd()));
                }
                Ok(event) => overflowed |= event.events().contains(ReadFlags::QUEUE_OVERFLOW),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if overflowed {
            closed.extend(self.take_unwatched());
        }
        closed
    }

    /// The handles closed during an overflow of the event queue: every handle that is no longer watched.
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
        self.live.retain(|number, token| {
            let alive = watched.contains(number);
            if !alive {
                unwatched.push(*token);
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

#[cfg(test)]
mod tests;
