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
use std::path::Path;

use d3dkmt::ShareToken;
use rustix::event::{Timespec, epoll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use sync_file::Readers;
pub use sync_file::{Signal, SyncFileFolder};

const NAME: &str = "DxgkSharedSyncObject";
const MAGIC: [u8; 8] = *b"GPUPVNT1";
const BYTES: usize = MAGIC.len() + 16;
/// Events that are read at once: most are of an inode that is gone, whose handle is forgotten without a question to the system.
const EVENTS_AT_ONCE_MAX: usize = 1024;
/// Bytes of an event of a watch. It has no name.
const EVENT_BYTES: usize = 16;
/// Sync files that are examined at once: each takes a few calls of the system.
const EXAMINED_AT_ONCE_MAX: usize = 64;
/// The inotify descriptor in the epoll set. Writers of sync files have the number of their watch.
const WATCHES: u64 = u64::MAX;

fn seals() -> SealFlags {
    SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

/// The token that an NT handle or a sync file carries; `None` for any other descriptor, an unsealed memfd and a number
/// that is not open included. Never blocks, whoever serves the file, and does not move the file position.
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
    #[error("cannot create a sync file in the folder of the broker's sync files, beside its socket: {0}")]
    SyncFile(Errno),
    #[error("the sync file is not one of this broker's")]
    NotOwn,
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
    /// Of a sync file.
    signal: Option<Signal>,
}

/// A handle that was made elsewhere, as [`NtHandles::adopt`] found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    pub token: ShareToken,
    /// Number of the watch of its file.
    pub watch: i32,
    /// The file was not watched before.
    pub is_new: bool,
}

/// The NT handles and sync files that one broker created and that are still open in some process.
///
/// The last close of a handle frees its inode, and inotify reports that. The broker has a descriptor of a sync file
/// until it is raised, so its inode is not freed with its last close. Instead poll reports the end of its readers to the
/// broker's writer. A broker that may be resumed has no writer open. It asks the system at each close of the file, which
/// is the last one unless root has opened the file once more.
#[derive(Debug)]
pub struct NtHandles {
    folder: SyncFileFolder,
    watch: OwnedFd,
    /// The watch, and the writers of sync files.
    epoll: OwnedFd,
    /// By inotify watch number, which the system does not reuse soon.
    live: BTreeMap<i32, Live>,
    /// How many files of each token are watched: more than one if some are forged.
    files: BTreeMap<ShareToken, u32>,
    /// Watch number of each sync file.
    sync_files: BTreeMap<ShareToken, i32>,
    /// Watch numbers of sync files that may have no reader any more.
    unexamined: BTreeSet<i32>,
    /// The last [`NtHandles::closed`] has left something.
    has_more: bool,
    /// Sync files of a killed broker that no process has presented.
    unpresented: BTreeSet<ShareToken>,
    /// Sync files of a killed broker that could not be watched: descriptors or watches were used up.
    unwatched: BTreeMap<ShareToken, Signal>,
}

impl NtHandles {
    pub fn new(folder: SyncFileFolder) -> Result<Self, NotMade> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(NotMade::to_watch)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(NotMade::to_watch)?;
        let data = epoll::EventData::new_u64(WATCHES);
        epoll::add(&epoll, &watch, data, epoll::EventFlags::IN).map_err(NotMade::to_watch)?;
        Ok(NtHandles {
            folder,
            watch,
            epoll,
            live: BTreeMap::new(),
            files: BTreeMap::new(),
            sync_files: BTreeMap::new(),
            unexamined: BTreeSet::new(),
            has_more: false,
            unpresented: BTreeSet::new(),
            unwatched: BTreeMap::new(),
        })
    }

    /// Descriptor that is readable when [`NtHandles::closed`] has something new to report.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Creates a handle, close-on-exec. The caller must close its own descriptor once it has passed the handle on.
    pub fn make(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let handle = carry(token).map_err(NotMade::Descriptor)?;
        self.watch(handle.as_fd(), token)?;
        Ok(handle)
    }

    /// Creates a sync file, close-on-exec, that is not ready. The caller must close its own descriptor once it has
    /// passed the sync file on.
    pub fn make_sync_file(&mut self, token: ShareToken) -> Result<OwnedFd, NotMade> {
        let (reader, signal) = self.folder.create(token).map_err(NotMade::SyncFile)?;
        let watched = self.watch_sync_file(reader.as_fd(), token, signal.clone());
        watched.inspect_err(|_| signal.release())?;
        Ok(reader)
    }

    /// The signal of a sync file; `None` for an NT handle and an unknown token.
    pub fn signal_of(&self, token: ShareToken) -> Option<&Signal> {
        match self.sync_files.get(&token) {
            Some(number) => self.live.get(number)?.signal.as_ref(),
            None => self.unwatched.get(&token),
        }
    }

    /// Adopts a handle that a killed broker created, from a process that still has it open: reports its last close from
    /// now on. `None` if it is not an NT handle. The same handle may be adopted any number of times.
    ///
    /// A process that was given a handle can make another file with the same bytes. So the last close of a token is that
    /// of its last file: a forged one that is closed ends no handle. A process that keeps a forged one keeps the handle
    /// open, as it may anyway.
    pub fn adopt(&mut self, handle: BorrowedFd<'_>) -> Result<Option<Adopted>, NotMade> {
        let before = self.live.len();
        if let Some(token) = token_of_memfd(handle) {
            let watch = self.watch(handle, token)?;
            return Ok(Some(Adopted { token, watch, is_new: self.live.len() > before }));
        }
        let Some(token) = sync_file::token_of(handle) else { return Ok(None) };
        if !self.folder.is_of_broker(handle, token) {
            return Err(NotMade::NotOwn);
        }
        self.adopt_sync_file(handle, token)?;
        self.unpresented.remove(&token);
        let watch = self.sync_files.get(&token).copied().unwrap_or(-1);
        Ok(Some(Adopted { token, watch, is_new: self.live.len() > before }))
    }

    /// Forgets a file that was adopted and is refused. Its close is not reported.
    pub fn abandon(&mut self, watch: i32) {
        let Some(Live { token, signal }) = self.live.remove(&watch) else { return };
        self.files_of(token, false);
        let _ = inotify::remove_watch(&self.watch, watch);
        if signal.is_some() {
            self.sync_files.remove(&token);
        }
    }

    /// Counts a file of a token that is watched from now on, or no longer; returns how many are.
    fn files_of(&mut self, token: ShareToken, is_added: bool) -> u32 {
        let files = self.files.entry(token).or_default();
        *files = if is_added { *files + 1 } else { files.saturating_sub(1) };
        let left = *files;
        if left == 0 {
            self.files.remove(&token);
        }
        left
    }

    fn insert(&mut self, watch: i32, live: Live) {
        let token = live.token;
        if self.live.insert(watch, live).is_none() {
            self.files_of(token, true);
        }
    }

    fn adopt_sync_file(&mut self, file: BorrowedFd<'_>, token: ShareToken) -> Result<(), NotMade> {
        if self.sync_files.contains_key(&token) {
            return Ok(());
        }
        let signal = Signal::of_named(file, self.folder.path_of(token)).map_err(NotMade::Descriptor)?;
        self.watch_sync_file(file, token, signal)?;
        self.unwatched.remove(&token);
        Ok(())
    }

    /// Adopts every sync file that a killed broker left by name in the folder. Returns their tokens. Some may be open in
    /// processes that present nothing, because they only poll. [`NtHandles::unopened`] says later which are open nowhere.
    ///
    /// A file that cannot be watched for now is among them: it can be raised, and no wait for it ends early. Its last
    /// close is not reported before a later call has watched it. Such a call returns no file that is watched already.
    pub fn recover(&mut self) -> Vec<ShareToken> {
        let mut recovered = Vec::new();
        for (token, path) in self.folder.files() {
            if self.sync_files.contains_key(&token) {
                continue;
            }
            match self.recover_one(token, &path) {
                Ok(()) => _ = self.unpresented.insert(token),
                Err(NotMade::NotOwn) => {
                    sync_file::raise_left(&path);
                    continue;
                }
                Err(_) => _ = self.unwatched.entry(token).or_insert_with(|| Signal::of_left(path)),
            }
            recovered.push(token);
        }
        recovered
    }

    fn recover_one(&mut self, token: ShareToken, path: &Path) -> Result<(), NotMade> {
        let file = sync_file::open_left(path).map_err(NotMade::Descriptor)?;
        if !self.folder.made(file.as_fd()) {
            return Err(NotMade::NotOwn);
        }
        self.adopt_sync_file(file.as_fd(), token)
    }

    /// The recovered sync files that no process has open; they are forgotten. Called when all processes that may present
    /// sync files have done so. Files that are open, but in no process that presented them, become readable if this
    /// broker is killed too.
    pub fn unopened(&mut self) -> Vec<ShareToken> {
        let unpresented = std::mem::take(&mut self.unpresented);
        let numbers: Vec<i32> =
            unpresented.iter().filter_map(|token| self.sync_files.get(token)).copied().collect();
        numbers.into_iter().filter_map(|number| self.check_readers(number)).collect()
    }

    /// Returns the number of the watch. A descriptor that is watched already keeps its number.
    fn watch(&mut self, handle: BorrowedFd<'_>, token: ShareToken) -> Result<i32, NotMade> {
        let path = sync_file::path_of(handle);
        let number =
            inotify::add_watch(&self.watch, path, WatchFlags::DELETE_SELF).map_err(NotMade::to_watch)?;
        self.insert(number, Live { token, signal: None });
        Ok(number)
    }

    fn watch_sync_file(
        &mut self,
        file: BorrowedFd<'_>,
        token: ShareToken,
        signal: Signal,
    ) -> Result<(), NotMade> {
        let path = sync_file::path_of(file);
        let events = WatchFlags::DELETE_SELF | WatchFlags::CLOSE_NOWRITE;
        let add = || inotify::add_watch(&self.watch, path, events);
        let watched = sync_file::while_readable(file, add).map_err(NotMade::to_watch);
        let number = watched.and_then(|number| self.poll_writer(number, &signal).map(|()| number))?;
        self.insert(number, Live { token, signal: Some(signal) });
        self.sync_files.insert(token, number);
        Ok(())
    }

    /// Lets the end of a sync file's readers be reported, if this broker has a writer open.
    fn poll_writer(&self, number: i32, signal: &Signal) -> Result<(), NotMade> {
        let data = epoll::EventData::new_u64(number as u64);
        let add = |writer: BorrowedFd<'_>| epoll::add(&self.epoll, writer, data, epoll::EventFlags::empty());
        match signal.with_writer(add) {
            None | Some(Ok(()) | Err(Errno::EXIST)) => Ok(()),
            Some(Err(error)) => Err(NotMade::Watch(error)),
        }
    }

    /// Forgets a file that no process has open. Returns its token if it was the last file with it.
    fn forget(&mut self, number: i32) -> Option<ShareToken> {
        let Live { token, signal } = self.live.remove(&number)?;
        let left = self.files_of(token, false);
        if let Some(signal) = signal {
            // A child that examines a state may have a copy of the writer: a close alone would leave it in the set.
            let _ = signal.with_writer(|writer| epoll::delete(&self.epoll, writer));
            signal.release();
            self.sync_files.remove(&token);
            self.unpresented.remove(&token);
        }
        (left == 0).then_some(token)
    }

    /// Forgets a sync file that no process has open any more; returns its token then.
    fn check_readers(&mut self, number: i32) -> Option<ShareToken> {
        let signal = self.live.get(&number)?.signal.clone()?;
        match signal.readers() {
            Readers::None => self.forget(number),
            // A close is reported before it is complete. The writer that is open from now on reports the rest.
            Readers::Some => {
                let _ = self.poll_writer(number, &signal);
                None
            }
            Readers::SeenByInode => None,
        }
    }

    /// Processes an event of a watch; returns the handle if its inode is gone.
    fn seen(&mut self, number: i32, events: ReadFlags) -> Option<ShareToken> {
        // The watch is removed right after its inode: one of the two events may be lost and the other seen.
        if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED) {
            return self.forget(number);
        }
        if events.contains(ReadFlags::CLOSE_NOWRITE) {
            self.unexamined.insert(number);
        }
        None
    }

    /// Handles whose last descriptor was closed, each once. A call does a limited amount of work. Once
    /// [`NtHandles::has_more`] is false, every close was reported that was complete when this was called.
    pub fn closed(&mut self) -> Vec<ShareToken> {
        let (mut closed, has_more_events) = self.closed_by_watch();
        let before = self.live.len();
        let has_more_writers = self.read_writers();
        for _ in 0..EXAMINED_AT_ONCE_MAX {
            let Some(number) = self.unexamined.pop_first() else { break };
            closed.extend(self.check_readers(number));
        }
        // A file that is forgotten leaves the epoll set with its writer. Writers that stay are not waited for.
        let has_more_writers = has_more_writers && self.live.len() < before;
        self.has_more = has_more_events || has_more_writers || !self.unexamined.is_empty();
        closed
    }

    /// Whether the last [`NtHandles::closed`] has left something: it must be called again, also if the descriptor is not
    /// readable.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Notes the sync files whose writers report the end of their readers; true if there may be more.
    fn read_writers(&mut self) -> bool {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); EXAMINED_AT_ONCE_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut space, Some(&now)) else { return false };
        self.unexamined.extend(events.iter().filter_map(|event| i32::try_from(event.data.u64()).ok()));
        events.len() == EXAMINED_AT_ONCE_MAX
    }

    /// Handles that one read of the watches reports as closed, and whether there may be more.
    fn closed_by_watch(&mut self) -> (Vec<ShareToken>, bool) {
        let mut space = [MaybeUninit::uninit(); EVENTS_AT_ONCE_MAX * EVENT_BYTES];
        let mut events = Reader::new(&self.watch, &mut space);
        let mut seen = Vec::new();
        loop {
            match events.next() {
                Ok(event) => seen.push((event.wd(), event.events())),
                Err(Errno::INTR) => continue,
                Err(_) => break,
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        let mut closed: Vec<ShareToken> =
            seen.iter().filter_map(|(number, events)| self.seen(*number, *events)).collect();
        if seen.iter().any(|(_, events)| events.contains(ReadFlags::QUEUE_OVERFLOW)) {
            closed.extend(self.take_unwatched());
            self.unexamined.extend(self.sync_files.values());
        }
        (closed, seen.len() == EVENTS_AT_ONCE_MAX)
    }

    /// The handles closed during an overflow of the event queue: all whose inode is no longer watched.
    fn take_unwatched(&mut self) -> Vec<ShareToken> {
        // Without fdinfo a handle stays until its VM is gone; nothing worse.
        let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.watch.as_raw_fd()))
        else {
            return Vec::new();
        };
        let number =
            |line: &str| i32::from_str_radix(line.strip_prefix("inotify wd:")?.split(' ').next()?, 16).ok();
        let watched: BTreeSet<i32> = text.lines().filter_map(number).collect();
        let gone: Vec<i32> = self.live.keys().filter(|number| !watched.contains(number)).copied().collect();
        gone.into_iter().filter_map(|number| self.forget(number)).collect()
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
        let watched = self.live.values().filter_map(|live| live.signal.as_ref());
        watched.chain(self.unwatched.values()).for_each(Signal::raise);
        self.folder.remove();
    }
}

#[cfg(test)]
mod tests;
