//! The link to the broker: the connection, the fence memory and the backing pages, and how a process gets them again
//! from a restarted daemon.
//!
//! ```text
//!   the stream ends ─▶ connect, until a broker listens ─▶ Resume{process, token} ─▶ a stream and a one-time token
//!                        ├─ Regain: each region of fence memory
//!                        ├─ ReattachBacking: each piece of backing pages, with its bytes
//!                        ├─ ReshareBacking: each piece of shared memory that this process has mapped
//!                        └─ HaveNtHandle: each NT handle that this process has open
//!                   ─▶ Hello and Welcome on the stream (`resume.rs`) ─▶ new fence memory over the old: its address stays
//! ```
//! The new memory arrives with its values, so a thread that only reads fences notices nothing. The daemon sends Welcome
//! when it has moved the bytes that they stand for, so a thread that reads a value before sees the old memory.
//!
//! `unsafe` here: descriptors that belong to the program are borrowed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use d3dkmt::Handle;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::attach::{AttachError, Broker};
use super::backing::BackingFile;
use super::channel::lock;
use super::fence_memory::{FenceMemory, RegainedMemory};
use super::rings::Rings;
use crate::fork::SessionDescriptor;

/// The longest time between two attempts to connect, if inotify reports nothing.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The right to resume a session after its daemon was killed.
#[derive(Clone, Debug)]
pub struct ResumeRight {
    pub process: u32,
    pub token: Vec<u8>,
    /// How long the daemon may be away; `None`: no limit.
    pub limit: Option<Duration>,
}

/// What a process gets from a restarted daemon.
#[derive(Debug)]
pub struct Reattached {
    pub stream: SessionDescriptor,
    /// For Hello.
    pub token: Vec<u8>,
    pub rings: Option<Rings>,
    pub memory: RegainedMemory<SessionDescriptor>,
}

/// The link to the broker, and its replacement after the daemon was killed.
#[derive(Debug)]
pub struct Link {
    path: PathBuf,
    broker: Mutex<Broker>,
    pub memory: FenceMemory,
    pub right: Option<ResumeRight>,
    /// If the session can be resumed: page count and file of each piece, by its address.
    backing: Mutex<BTreeMap<u64, (u32, Arc<BackingFile>)>>,
    /// The same of shared memory that other processes have created: by handle here, and offset.
    shared: Mutex<BTreeMap<(Handle, u64), BackingFile>>,
}

impl Link {
    pub fn new(path: &Path, broker: Broker, memory: FenceMemory, right: Option<ResumeRight>) -> Link {
        let (backing, shared) = Default::default();
        // The program may change its folder.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Link { path, broker: Mutex::new(broker), memory, right, backing, shared }
    }

    /// Sends a request to the broker. Requests of other threads wait.
    pub fn ask<T>(&self, request: impl FnOnce(&Broker) -> Result<T, AttachError>) -> Result<T, AttachError> {
        request(&lock(&self.broker))
    }

    /// Ends the connection to the broker.
    pub fn shut_down(&self) {
        // A broker that is gone has noticed already.
        lock(&self.broker).shut_down();
        if let Ok(mut backing) = self.backing.try_lock() {
            backing.clear();
        }
    }

    /// Records backing pages that were attached at an address.
    pub fn backing(&self, address: u64, pages: u32, memory: &Arc<BackingFile>) {
        if self.right.is_some() {
            lock(&self.backing).insert(address, (pages, Arc::clone(memory)));
        }
    }

    /// Forgets backing pages that are or will be detached.
    pub fn forget_backing(&self, address: u64) {
        lock(&self.backing).remove(&address);
    }

    /// Records pages of shared memory that this process maps.
    pub fn shared(&self, allocation: Handle, offset: u64, memory: BorrowedFd<'_>) -> Result<(), AttachError> {
        if self.right.is_some() {
            let descriptor = rustix::io::fcntl_dupfd_cloexec(memory, crate::fork::ABOVE_STANDARD_STREAMS)?;
            lock(&self.shared).insert((allocation, offset), BackingFile::new(descriptor)?);
        }
        Ok(())
    }

    /// Forgets the pages of shared memory of a handle that has ended.
    pub fn forget_shared(&self, allocation: Handle) {
        lock(&self.shared).retain(|(of, _), _| *of != allocation);
    }

    /// Gets everything again. The new fence memory is not mapped yet.
    pub fn reattach(&self, right: &ResumeRight, reconnect: &Reconnect) -> Result<Reattached, AttachError> {
        let broker = reconnect.connect(&self.path)?;
        let (reply, stream, rings) = broker.resume(right.process, &right.token)?;
        // A thread that has an answer of the killed daemon uses it first, and then nobody asks that daemon any more.
        let mut current = lock(&self.broker);
        let memory = self.memory.regain(reply.slots, |first, slots| broker.regain(first, slots))?;
        for (address, (pages, memory)) in &*lock(&self.backing) {
            let memory = memory.kept().ok_or(AttachError::DescriptorTaken)?;
            broker.reattach_backing(*address, *pages, memory)?;
        }
        for ((allocation, offset), memory) in &*lock(&self.shared) {
            let memory = memory.kept().ok_or(AttachError::DescriptorTaken)?;
            broker.reshare_backing(*allocation, *offset, memory)?;
        }
        for handle in open_descriptors() {
            // SAFETY: borrowed for two calls, which answer EBADF if the program closes it meanwhile. If the program has
            // replaced it, the broker checks whether the new descriptor is an NT handle.
            let handle = unsafe { BorrowedFd::borrow_raw(handle) };
            if ::nt_handle::token_of(handle).is_some() {
                broker.have_nt_handle(handle)?;
            }
        }
        *current = broker;
        Ok(Reattached { stream, token: reply.token, rings, memory })
    }
}

fn open_descriptors() -> Vec<RawFd> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = std::fs::read_dir("/proc/thread-self/fd").into_iter().flatten();
    entries.flatten().filter_map(number).collect()
}

/// Waits until a daemon listens again.
#[derive(Debug)]
pub struct Reconnect {
    limit: Option<Duration>,
    until: Cell<Option<Instant>>,
    /// Reports new sockets; without it `wait` only polls.
    watch: Option<OwnedFd>,
}

impl Reconnect {
    pub fn new(limit: Option<Duration>) -> Reconnect {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let reconnect = Reconnect { limit, until: Cell::new(None), watch };
        reconnect.restart();
        reconnect
    }

    /// Waits for the whole limit from now on.
    pub fn restart(&self) {
        self.until.set(self.limit.map(|limit| Instant::now() + limit));
    }

    pub fn is_late(&self) -> bool {
        self.until.get().is_some_and(|until| Instant::now() >= until)
    }

    fn connect(&self, path: &Path) -> Result<Broker, AttachError> {
        // Watch before the attempt, so that a socket created right after it is reported.
        if let (Some(watch), Some(folder)) = (&self.watch, path.parent()) {
            // The broker sets the mode once it listens, hence ATTRIB.
            let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
            let _ = inotify::add_watch(watch, folder, events);
        }
        Broker::connect(path)
    }

    /// Waits until the watch reports something, or until the next attempt is due.
    pub fn wait(&self) {
        let remaining =
            self.until.get().map_or(RETRY_INTERVAL, |until| until.saturating_duration_since(Instant::now()));
        let nanos = remaining.min(RETRY_INTERVAL).as_nanos() as i64;
        let time = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let watch = self.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN));
        let _ = rustix::event::poll(&mut watch.into_iter().collect::<Vec<_>>(), Some(&time));
        if let Some(watch) = &self.watch {
            let mut events = [const { MaybeUninit::<u8>::uninit() }; 4096];
            while rustix::io::read(watch, &mut events).is_ok_and(|(events, _)| !events.is_empty()) {}
        }
    }
}
