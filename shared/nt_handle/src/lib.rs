//! NT handles of shared objects: file descriptors that carry a token, and whose last close is seen.
//!
//! A handle is a memfd named after the kernel's object type (W-124), with a magic word and the 16 bytes of the token,
//! sealed so that nobody can change them. It travels between processes as any descriptor does, by fork and by
//! SCM_RIGHTS, and whoever holds it can read the token: without a message, without taking it from others. A broker makes
//! it ([`NtHandles::make`]) and keeps no descriptor of it; the host knows what the token stands for.
//!
//! ```text
//!   broker: memfd + token + seals ── inotify watch on its inode ──▶ handed out, our descriptor closed
//!   holders: dup, fork, SCM_RIGHTS, in flight in a socket, open of /proc/PID/fd/N, mmap
//!   the last of them ends, also by SIGKILL ──▶ the inode ends ──▶ IN_DELETE_SELF ──▶ NtHandles::closed
//! ```
//! A memfd is a file that was unlinked from its birth, so its inode ends with its last reference and no sooner: that
//! is what inotify tells. The event is queued before the close returns to the program that made it. One end of a socket
//! pair would tell as much, but any holder could read the token away from all others, and the broker would need a
//! descriptor for each handle; here it needs one for all.
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

/// The token that an NT handle carries; `None` for anything that is not one of ours, an unsealed memfd and a number
/// that is not open included. Never blocks, and the place where others read does not move.
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

/// A descriptor that carries the token.
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

/// Why there is no new NT handle, for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    #[error("no NT handle can be made: {0}")]
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

/// The NT handles that one broker has made and that somebody still holds.
#[derive(Debug)]
pub struct NtHandles {
    watch: OwnedFd,
    /// By the number of the watch, which the system does not use again soon.
    live: BTreeMap<i32, ShareToken>,
}

impl NtHandles {
    pub fn new() -> Result<Self, NotMade> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(NotMade::to_watch)?;
        Ok(NtHandles { watch, live: BTreeMap::new() })
    }

    /// Readable when [`NtHandles::closed`] has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// A new handle, not inherited over an exec. Once it is handed out the maker is to close its own descriptor.
    pub fn make(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let handle = carry(token).map_err(NotMade::Descriptor)?;
        self.watch(handle.as_fd(), token)?;
        Ok(handle)
    }

    /// Takes over a handle of a broker that was killed, from somebody who holds it: its last close is seen here from now
    /// on. Gives its token; `None` for what is no handle. The same handle may come any number of times.
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

    /// The handles whose last descriptor was closed since the last time, each once. Every close that was over when
    /// this was called is in it.
    pub fn closed(&mut self) -> Vec<ShareToken> {
        let mut space = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.watch, &mut space);
        let (mut closed, mut lost) = (Vec::new(), false);
        loop {
            match events.next() {
                // The watch ends right after its inode: one event may be lost, and the other one seen.
                Ok(event) if event.events().intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED) => {
                    closed.extend(self.live.remove(&event.wd()));
                }
                Ok(event) => lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if lost {
            closed.extend(self.lost());
        }
        closed
    }

    /// More was closed at once than the queue of events holds: what is watched no longer is closed.
    fn lost(&mut self) -> Vec<ShareToken> {
        // Without it a handle would stay until its VM ends; nothing worse.
        let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.watch.as_raw_fd()))
        else {
            return Vec::new();
        };
        let number =
            |line: &str| i32::from_str_radix(line.strip_prefix("inotify wd:")?.split(' ').next()?, 16).ok();
        let watched: BTreeSet<i32> = text.lines().filter_map(number).collect();
        let mut lost = Vec::new();
        self.live.retain(|number, token| {
            let alive = watched.contains(number);
            if !alive {
                lost.push(*token);
            }
            alive
        });
        lost
    }

    /// Handles that somebody holds, as far as is known.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

#[cfg(test)]
mod tests;
