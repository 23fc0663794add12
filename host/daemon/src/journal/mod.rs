//! The journal: a folder from which a daemon resumes after it was killed.
//!
//! ```text
//!   DIR/lock             held by the daemon that uses it
//!   DIR/secret           the key of resume tokens: never in a trace
//!   DIR/performed        how many of the last step's DMA operations are done, in shared memory
//!   DIR/vmN.connections  the open connections of guest N (vsock-device)
//!   DIR/segment-N.gvt    a trace (docs/TRACE.md) that begins with a snapshot, or continues segment N - 1
//!   DIR/segment-N.gvt.state    the state with which it begins, once computed: earlier segments are then obsolete
//! ```
//! A replay of it to its end gives the state of the killed daemon: the kernel's, and what the daemon owed its clients
//! ([`SessionCursors`]). A daemon that is stopped in order ends the trace and all sessions: the next one begins anew. At each start a segment begins with a snapshot. When another is due, the next segment
//! continues without one, and a thread computes its state (`keeper`). docs/RESTART.md describes what guests see.

mod keeper;
mod replayed;
mod session_cursors;
mod staging;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use drivers::Registry;
use dxgkrnl::{Config, Kernel, ProcessId, VmId};
use proto::limits::TOKEN_BYTES;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use trace::{Durable, Mapping, Reader, Recorder};

use self::keeper::{Begun, First, Keeper, Replays};
use self::replayed::{Beginning, NotReplayed};
use super::kernel_host::{Token, random};

pub use replayed::Replayed;
pub use session_cursors::{NotRetained, SessionCursors, UNREAD_BYTES_MAX};

const PREFIX: &str = "segment-";
const SEGMENT_DIGITS: usize = 8;
const SUFFIX: &str = ".gvt";
/// Suffixes of a segment's file and of the files beside it.
const SUFFIXES: [&str; 5] = [SUFFIX, ".gvt.open", ".gvt.state", PART_SUFFIXES[0], PART_SUFFIXES[1]];
/// Of a state that is not complete.
const PART_SUFFIXES: [&str; 2] = [".gvt.state.part", ".gvt.state.part.open"];
/// Suffix of the files with guests' connections.
const CONNECTIONS: &str = ".connections";
const SECRET_BYTES: usize = 32;
/// Segments in a row whose state the keeper has not computed.
const SEGMENTS_WITHOUT_STATE_MAX: u32 = 8;
/// Bits for the number of DMA operations in a word of `performed`; the others hold of what they are.
const MOVES_BITS: u32 = 24;

/// DMA operations that a daemon performs together. `performed` has a word for each kind, so that neither hides the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    OfStep(u64),
    /// Those of earlier daemons, with which a segment begins.
    OfSegment(u32),
}

/// The words of `performed`.
type PerformedWords = [u64; 2];

impl Moves {
    fn at(self) -> usize {
        match self {
            Moves::OfStep(_) => 0,
            Moves::OfSegment(_) => 1,
        }
    }

    /// The word when so many of them are done.
    fn word(self, done: usize) -> u64 {
        const DONE_MAX: u64 = (1 << MOVES_BITS) - 1;
        let of = match self {
            Moves::OfStep(step) => step,
            Moves::OfSegment(segment) => segment.into(),
        };
        of << MOVES_BITS | (done as u64).min(DONE_MAX)
    }

    /// How many of them are done.
    fn done(self, words: PerformedWords) -> usize {
        let (word, none) = (words[self.at()], self.word(0));
        if word >> MOVES_BITS == none >> MOVES_BITS { (word - none) as usize } else { 0 }
    }
}

/// How a daemon uses a journal.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    pub folder: PathBuf,
    /// How long the daemon waits for clients after a restart, and they for it; `None` is without limit.
    pub resume_within: Option<Duration>,
}

/// An open journal, locked for this daemon.
pub struct Journal {
    folder: PathBuf,
    secret: [u8; SECRET_BYTES],
    durable: Durable,
    program: &'static str,
    /// Number of the last segment.
    segment: u32,
    performed: Mapping,
    keeper: Keeper,
    /// Set by tests, for snapshots in small pieces.
    one_block_bytes_max: Option<usize>,
    _lock: File,
}

impl Journal {
    /// Opens the journal in a folder, which is created if missing. Also returns its replayed state, if it has one.
    pub fn open(
        folder: &Path,
        durable: Durable,
        program: &'static str,
        config: &Config,
        drivers: &Registry,
    ) -> anyhow::Result<(Journal, Option<Replayed>)> {
        let shown = folder.display();
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the journal's folder {shown}"))?;
        require_ours(folder)?;
        // It contains what guests sent, and the secret of their resume tokens.
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))
            .with_context(|| format!("cannot set the mode of {shown}"))?;
        let lock = lock(folder)?;
        // No process writes a state into a folder that is locked here.
        remove_segment_files(folder, |_, suffix| PART_SUFFIXES.contains(&suffix));
        let path = folder.join("performed");
        let options = &mut OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let mut words = PerformedWords::default();
        for word in &mut words {
            let mut bytes = [0; size_of::<u64>()];
            *word = file.read_exact(&mut bytes).map_or(0, |()| u64::from_le_bytes(bytes));
        }
        let mut mapped = Mapping::new(&file, size_of_val(&words))
            .with_context(|| format!("cannot map {}", path.display()))?;
        let segments = segments(folder)?;
        let segment = segments.last().copied().unwrap_or(0);
        let mut replayed = replay_last(folder, &segments, config, drivers)?;
        match &mut replayed {
            Some(replayed) => replayed.leave_out_done(words),
            // Numbers of processes and steps begin anew, so tokens and counts of an earlier daemon must not fit.
            None => {
                forget_secret(folder)?;
                for moves in [Moves::OfStep(0), Moves::OfSegment(0)] {
                    publish(&mut mapped, moves, 0);
                }
            }
        }
        let secret = secret(folder)?;
        let keeper = Keeper::start(folder, config, drivers, program)?;
        let journal = Journal {
            folder: folder.to_owned(),
            secret,
            durable,
            program,
            segment,
            performed: mapped,
            keeper,
            one_block_bytes_max: None,
            _lock: lock,
        };
        Ok((journal, replayed))
    }

    /// Begins the next segment with a snapshot of the current state, before step `first_step`.
    pub fn begin(
        &mut self,
        kernel: &Kernel,
        session_cursors: &SessionCursors,
        first_step: u64,
    ) -> anyhow::Result<Recorder> {
        // If this fails, the next try is no other.
        self.keeper.require_snapshot();
        // First what fails on a full disk: the state may be big.
        let mut recorder = self.create_next(kernel.config(), first_step)?;
        let bytes = match Self::write_snapshot(&mut recorder, kernel, session_cursors) {
            Ok(bytes) => bytes,
            Err(error) => {
                drop(recorder);
                self.remove_next();
                return Err(error);
            }
        };
        self.segment += 1;
        self.keeper.has_snapshot(self.segment, bytes);
        if let Some(file) = recorder.file() {
            self.keeper.segment_begun(Begun { segment: self.segment, first: First::Snapshot(file) });
        }
        Ok(recorder)
    }

    /// Writes the snapshot with which a segment begins; returns its bytes.
    fn write_snapshot(
        recorder: &mut Recorder,
        kernel: &Kernel,
        session_cursors: &SessionCursors,
    ) -> anyhow::Result<u64> {
        let state =
            kernel.save().map_err(|why| anyhow::anyhow!("the kernel's state cannot be saved: {why}"))?;
        let host = session_cursors.to_bytes();
        recorder.snapshot_with(&state, kernel.snapshot().digest(), &host)?;
        Ok((state.len() + host.len()) as u64)
    }

    /// Begins the next segment without a snapshot: it continues the one before it with step `first_step`.
    pub fn begin_without_snapshot(
        &mut self,
        config: &Config,
        session_cursors: &SessionCursors,
        first_step: u64,
    ) -> anyhow::Result<Recorder> {
        let mut recorder = self.create_next(config, first_step)?;
        recorder.begins_with(self.keeper.state_bytes());
        self.segment += 1;
        let first = First::StateBefore { step: first_step, read: session_cursors.acknowledged() };
        self.keeper.segment_begun(Begun { segment: self.segment, first });
        Ok(recorder)
    }

    fn create_next(&self, config: &Config, first_step: u64) -> Result<Recorder, trace::TraceError> {
        let path = segment_path(&self.folder, self.segment + 1);
        // Left by a try that failed.
        self.remove_next();
        let recording = trace::Recording {
            durable: self.durable,
            first_step: Some(first_step),
            one_block_bytes_max: self.one_block_bytes_max,
            ..trace::Recording::default()
        };
        Recorder::create_as(&path, config, self.program, recording)
    }

    /// Removes the next segment, which has not begun: without it another try, or another start, has the room.
    fn remove_next(&self) {
        let path = segment_path(&self.folder, self.segment + 1);
        for path in [trace::beside(&path, ".open"), path] {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Whether the next segment needs a snapshot: a replay of the journal did not give the daemon's state, or is so slow
    /// that the journal grows.
    pub fn needs_snapshot(&self) -> bool {
        self.keeper.has_failed() || self.segment >= self.keeper.last_with_state() + SEGMENTS_WITHOUT_STATE_MAX
    }

    /// Records that so many DMA operations of this step are done.
    pub fn performed(&mut self, step: u64, done: usize) {
        publish(&mut self.performed, Moves::OfStep(step), done);
    }

    /// Records that so many of the DMA operations with which this daemon began are done.
    pub fn performed_earlier(&mut self, done: usize) {
        publish(&mut self.performed, Moves::OfSegment(self.segment), done);
    }

    /// Returns the token with which a process resumes its session. It cannot be guessed without the secret.
    pub fn resume_token(&self, process: ProcessId) -> Token {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(b"gpupv resume");
        hash.update(process.0.to_le_bytes());
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&hash.finalize()[..TOKEN_BYTES]);
        token
    }
}

fn publish(performed: &mut Mapping, moves: Moves, done: usize) {
    performed.publish(moves.at() * size_of::<u64>(), moves.word(done));
}

fn segment_path(folder: &Path, segment: u32) -> PathBuf {
    folder.join(format!("{PREFIX}{segment:0SEGMENT_DIGITS$}{SUFFIX}"))
}

/// The number of the segment to which a file belongs, by the file's name.
fn segment_number(name: &str) -> Option<u32> {
    segment_file(name).map(|(number, _)| number)
}

/// The same, with the file's suffix.
fn segment_file(name: &str) -> Option<(u32, &str)> {
    let (number, suffix) = name.strip_prefix(PREFIX)?.split_at_checked(SEGMENT_DIGITS)?;
    Some((number.parse().ok()?, suffix)).filter(|(_, suffix)| SUFFIXES.contains(suffix))
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The file in a journal's folder that has the open connections of a VM's guest.
pub fn connections_file(folder: &Path, vm: VmId) -> PathBuf {
    folder.join(format!("vm{}{CONNECTIONS}", vm.0))
}

fn is_connections_file(name: &str) -> bool {
    let number = name.strip_prefix("vm").and_then(|rest| rest.strip_suffix(CONNECTIONS));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Refuses a folder that has other files than a journal's.
fn require_ours(folder: &Path) -> anyhow::Result<()> {
    let is_ours = |name: &String| {
        ["lock", "secret", "performed"].contains(&name.as_str())
            || segment_number(name).is_some()
            || is_connections_file(name)
    };
    match names(folder)?.into_iter().find(|name| !is_ours(name)) {
        Some(other) => anyhow::bail!(
            "{} is no journal: {other:?} is in it; give a folder that is empty or does not exist",
            folder.display()
        ),
        None => Ok(()),
    }
}

fn segments(folder: &Path) -> anyhow::Result<Vec<u32>> {
    let is_file = |name: &String| name.ends_with(SUFFIX);
    let mut segments: Vec<u32> =
        names(folder)?.iter().filter(|name| is_file(name)).filter_map(|name| segment_number(name)).collect();
    segments.sort_unstable();
    Ok(segments)
}

/// Removes the files of segments of which this is true, by number and suffix.
fn remove_segment_files(folder: &Path, is_obsolete: impl Fn(u32, &str) -> bool) {
    for name in names(folder).unwrap_or_default() {
        if segment_file(&name).is_some_and(|(number, suffix)| is_obsolete(number, suffix)) {
            let _ = std::fs::remove_file(folder.join(name));
        }
    }
}

fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let options = &mut OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
    if !try_lock(&file) {
        let mut owner = String::new();
        let _ = file.read_to_string(&mut owner);
        let (journal, owner) = (folder.display(), owner.trim());
        anyhow::ensure!(
            Path::new("/proc").join(owner).exists() && !owner.is_empty(),
            "the journal {journal} is locked, though not by the daemon that had it last: find the process that has {} \
             open and stop it, or give another folder",
            path.display()
        );
        anyhow::bail!(
            "the journal {journal} is in use by process {owner}: stop that daemon, or give another folder"
        );
    }
    file.set_len(0)
        .and_then(|()| write!(file, "{}", std::process::id()))
        .context("cannot write the lock's owner")?;
    Ok(file)
}

/// Locks a file; false if another process keeps it locked. A daemon that was killed may have a child for a moment still,
/// which has its descriptors.
#[expect(clippy::disallowed_methods, reason = "nothing reports that a lock was released")]
fn try_lock(file: &File) -> bool {
    const TRIES: u32 = 25;
    (0..TRIES).any(|tried| {
        if tried > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
    })
}

fn forget_secret(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("secret");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", path.display())),
    }
}

fn secret(folder: &Path) -> anyhow::Result<[u8; SECRET_BYTES]> {
    let path = folder.join("secret");
    match std::fs::read(&path) {
        Ok(bytes) => {
            if let Ok(secret) = bytes.try_into() {
                return Ok(secret);
            }
            // The file was incomplete, so no token was made from it.
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let secret = random()?;
    let options = &mut OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(&secret).and_then(|()| file.sync_all()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(secret)
}

/// Replays the last segment that begins with a state, and those after it. A segment that was only about to begin holds
/// nothing new. There is nothing to replay if the daemon was stopped in order. An error names the segment's file.
fn replay(
    folder: &Path,
    segments: &[u32],
    config: &Config,
    drivers: &Registry,
) -> Result<Option<Replayed>, (NotReplayed, PathBuf)> {
    let (mut last, mut first_segment) = (Vec::new(), 0);
    for (at, segment) in segments.iter().enumerate().rev() {
        let path = segment_path(folder, *segment);
        if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
            continue;
        }
        // Its daemon has ended all sessions, whatever version of gpupv it was, and no later one has begun.
        if last.is_empty() && trace::has_end(&path) {
            return Ok(None);
        }
        match replayed::beginning(&path, config) {
            // Its content was not on the disk when the power failed; the one before it was still retained. Before the
            // first there is none: its daemon was killed before any client attached.
            Err(error) if error.is_not_begun() && (at > 0 || *segment == 1) => continue,
            Err(error) => return Err((error, path)),
            // Killed before its first step: the segment before it has the state, or the end.
            Ok(Beginning::Nothing) => {}
            Ok(Beginning::Steps) => last.push(path),
            Ok(Beginning::State) => {
                last.push(path);
                first_segment = *segment;
                break;
            }
        }
    }
    last.reverse();
    let replayed = replayed::replay(&last, config, drivers)?;
    Ok(replayed.map(|replayed| Replayed { first_segment, ..replayed }))
}

/// Replays all segments.
fn replay_last(
    folder: &Path,
    segments: &[u32],
    config: &Config,
    drivers: &Registry,
) -> anyhow::Result<Option<Replayed>> {
    replay(folder, segments, config, drivers).map_err(|(error, path)| {
        anyhow::anyhow!(
            "the journal {} cannot be resumed: {error}; `gpupv trace verify {}` shows more. \
             To start without it, give another folder",
            folder.display(),
            path.display()
        )
    })
}

/// Writes the state with which a segment begins, if it has none because the daemon was killed before its thread wrote
/// it. Does nothing if a daemon uses the folder, because its thread will, or if the trace is not a journal's.
pub fn complete(trace: &Path, drivers: &Registry) -> anyhow::Result<()> {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let (Some(folder), Some(segment)) = (trace.parent(), segment_number(&name)) else { return Ok(()) };
    // A bare file name is relative to the working directory.
    let folder = if folder == Path::new("") { Path::new(".") } else { folder };
    let reader = Reader::open(trace)?;
    let trace::Header { config, first_step, .. } = reader.header().clone();
    if first_step == 1 || matches!(replayed::beginning(trace, &config)?, Beginning::State) {
        return Ok(());
    }
    let Ok(_lock) = lock(folder) else { return Ok(()) };
    let drivers = drivers.clone();
    let replays = Replays { folder: folder.to_owned(), config, drivers, program: "gpupv" };
    replays.write_state(segment, first_step, &[]).map(drop)
}

/// Replays the segments before one.
fn replay_before(
    folder: &Path,
    segment: u32,
    config: &Config,
    drivers: &Registry,
) -> anyhow::Result<Option<Replayed>> {
    let before: Vec<_> = segments(folder)?.into_iter().filter(|other| *other < segment).collect();
    let replayed = replay(folder, &before, config, drivers);
    replayed.map_err(|(error, path)| anyhow::anyhow!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
