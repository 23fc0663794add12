//! Computes the state with which a segment begins on a thread of its own, so that the daemon does not wait while it is
//! saved.
//!
//! ```text
//!   daemon   ─ segment 7 ─────────┬─ segment 8, which continues segment 7 ──▶
//!   keeper                        └─ replays 7 ─▶ segment 8's state ─▶ on the disk ─▶ 7 is removed
//! ```
//! Until the state is on the disk, the journal consists of both segments. A replay that gives another state than the
//! daemon's is a bug of the kernel or of a driver. The next segment then begins with a snapshot of the daemon's own
//! state.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use drivers::Registry;
use dxgkrnl::{Config, ProcessId};
use trace::{Durable, Recorder, Recording, beside, state_path};

use super::replayed::Replayed;
use super::{remove_segment_files, replay_before, segment_path};
use crate::thread_kind::ThreadKind;

/// The thread's nice value: clients come first.
const NICE: i32 = 10;

/// A segment that has begun.
pub(super) struct Begun {
    pub segment: u32,
    pub first: First,
}

/// The beginning of a segment.
pub(super) enum First {
    /// A snapshot of its own.
    Snapshot(File),
    /// The final state of the segment before it, before this step; and how many answers and wakes processes had read by
    /// then.
    StateBefore { step: u64, read: Vec<(ProcessId, u64)> },
}

/// The last state: its size, the segment that begins with it, and whether computing one since has failed.
#[derive(Default)]
struct Last {
    bytes: AtomicU64,
    segment: AtomicU32,
    failed: AtomicBool,
}

/// Replays the journal, apart from the daemon's kernel.
pub(super) struct Replays {
    pub folder: PathBuf,
    pub config: Config,
    pub drivers: Registry,
    pub program: &'static str,
}

/// The thread that computes the states of segments.
pub(super) struct Keeper {
    sender: Option<Sender<Begun>>,
    thread: Option<JoinHandle<()>>,
    last: Arc<Last>,
}

impl Keeper {
    pub fn start(
        folder: &Path,
        config: &Config,
        drivers: &Registry,
        program: &'static str,
    ) -> anyhow::Result<Keeper> {
        let (sender, segments) = channel();
        let (folder, config, drivers) = (folder.to_owned(), config.clone(), drivers.clone());
        let (replays, last) = (Replays { folder, config, drivers, program }, Arc::new(Last::default()));
        let segment_state = Arc::clone(&last);
        let thread = std::thread::Builder::new()
            .name("journal-keeper".into())
            .spawn(move || {
                sandbox::enter(ThreadKind::JournalKeeper);
                replays.keep(&segments, &segment_state);
            })
            .context("cannot start the journal's thread")?;
        Ok(Keeper { sender: Some(sender), thread: Some(thread), last })
    }

    /// Passes a new segment to the thread. Without it older segments stay, which does no harm.
    pub fn segment_begun(&self, segment: Begun) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(segment);
        }
    }

    /// Records that a segment begins with the daemon's own snapshot, of so many bytes.
    pub fn has_snapshot(&self, segment: u32, bytes: u64) {
        self.last.bytes.store(bytes, Ordering::Relaxed);
        self.last.segment.fetch_max(segment, Ordering::Relaxed);
        self.last.failed.store(false, Ordering::Relaxed);
    }

    /// Records that the next segment has to begin with a snapshot.
    pub fn require_snapshot(&self) {
        self.last.failed.store(true, Ordering::Relaxed);
    }

    /// The last segment that begins with a state.
    pub fn last_with_state(&self) -> u32 {
        self.last.segment.load(Ordering::Relaxed)
    }

    /// Bytes of the last state.
    pub fn state_bytes(&self) -> u64 {
        self.last.bytes.load(Ordering::Relaxed)
    }

    /// Whether the last state could not be computed.
    pub fn has_failed(&self) -> bool {
        self.last.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.sender.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Replays {
    fn keep(&self, segments: &Receiver<Begun>, last: &Last) {
        // `None` is this thread alone. If the priority cannot be set, it stays as it is.
        let _ = rustix::process::setpriority_process(None, NICE);
        while let Ok(mut newest) = segments.recv() {
            // Only the newest counts: all segments before it are removed at once.
            while let Ok(newer) = segments.try_recv() {
                newest = newer;
            }
            let Begun { segment, first } = newest;
            let stored = match first {
                First::Snapshot(file) => file.sync_data().map_err(Into::into),
                First::StateBefore { step, read } => self
                    .write_state(segment, step, &read)
                    .map(|bytes| last.bytes.store(bytes, Ordering::Relaxed)),
            };
            let on_disk = stored.and_then(|()| Ok(File::open(&self.folder)?.sync_all()?));
            match on_disk {
                Ok(()) => {
                    last.segment.fetch_max(segment, Ordering::Relaxed);
                    remove_segment_files(&self.folder, |number, _| number < segment);
                }
                Err(error) => {
                    last.failed.store(true, Ordering::Relaxed);
                    tracing::error!("the journal retains the segments before {segment}: {error:#}");
                }
            }
        }
    }

    /// Writes the state with which a segment begins, before this step; returns its bytes.
    pub fn write_state(&self, segment: u32, step: u64, read: &[(ProcessId, u64)]) -> anyhow::Result<u64> {
        let replayed = replay_before(&self.folder, segment, &self.config, &self.drivers)?;
        let Replayed { kernel, mut session_cursors, next_step, .. } =
            replayed.context("there is no segment before it")?;
        anyhow::ensure!(next_step == step, "what is before it ends before step #{next_step}, not #{step}");
        for (process, received) in read {
            session_cursors.read(*process, *received);
        }
        session_cursors.retain_of(&kernel);
        let state = kernel.save().map_err(|why| anyhow::anyhow!("its state cannot be saved: {why}"))?;
        let (digest, host) = (kernel.snapshot().digest(), session_cursors.to_bytes());
        drop((kernel, session_cursors));
        let path = state_path(&segment_path(&self.folder, segment));
        let part = Part::new(beside(&path, ".part"));
        let recording = Recording { durable: Durable::No, first_step: Some(step), ..Recording::default() };
        let mut recorder = Recorder::create_as(&part.0, &self.config, self.program, recording)?;
        recorder.snapshot_with(&state, digest, &host)?;
        recorder.finish(digest)?;
        File::open(&part.0)?.sync_data()?;
        std::fs::rename(&part.0, &path)?;
        Ok((state.len() + host.len()) as u64)
    }
}

/// The file of a state that is not complete. Dropping it removes the file and its open block, unless it has the state's
/// name by then: on a full disk the segment that the daemon records needs their room.
struct Part(PathBuf);

impl Part {
    /// Also removes what a killed `gpupv replay` left.
    fn new(path: PathBuf) -> Part {
        let part = Part(path);
        part.remove();
        part
    }

    fn remove(&self) {
        for left in [beside(&self.0, ".open"), self.0.clone()] {
            let _ = std::fs::remove_file(left);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.remove();
    }
}
