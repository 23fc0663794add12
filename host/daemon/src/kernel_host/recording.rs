//! Recording of the kernel's steps: a trace into a file, or its last part in memory until something fails.
//!
//! A trace in a file loses nothing when the daemon exits or is killed: see [`trace::Recorder`]. So this module never
//! waits for a batch to end and never flushes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use dxgkrnl::{Input, Kernel, Nanos};
use trace::{Dump, Recorder, Times, TraceError};
use tracing::Level;

use super::HostState;
use crate::Options;
use crate::durable::WriterMessage;
use crate::journal::{Journal, JournalOptions, SessionCursors};
use crate::limits::{SNAPSHOT_DOUBLINGS_MAX, SNAPSHOT_RETRY_BYTES};
use crate::log_lines::LogLines;
use crate::tap::{Step, Tap};
use crate::timer::Timer;

/// Dumps on resets, at most: a machine that resets all day does not fill its disk.
const DUMPS_UNASKED_MAX: u32 = 16;
/// Steps between two tries to begin a journal's next segment after recording had stopped.
const RETRY_STEPS: u64 = 1 << 14;
/// Segments that have ended and wait for the disk writer. Each takes a descriptor.
const UNSYNCED_SEGMENTS_MAX: usize = 64;
const PROGRAM: &str = concat!("gpupv ", env!("CARGO_PKG_VERSION"));

/// The recorder of a daemon, with its journal or its flight recorder's dumps.
pub(super) struct Recording {
    recorder: Recorder,
    /// Directory for a flight recorder's dumps; `None`: it records into a file.
    dumps: Option<PathBuf>,
    dumped: u32,
    dumping: Option<DumpThread>,
    /// Resets of engines and adapters that were seen.
    resets: u64,
    /// Consecutive failed snapshots.
    snapshots_failed: u32,
    /// How many steps a stopped recorder has dropped when a journal's next segment is tried.
    retry_at_dropped: u64,
    /// The thread that writes the file to the disk; `unwritten` if it was notified and has not flushed since.
    writer: Option<Sender<WriterMessage>>,
    unwritten: bool,
    /// A reference more for each segment that the thread has not written to the disk.
    unsynced: Arc<()>,
    journal: Option<Journal>,
    log: Arc<LogLines>,
}

impl HostState {
    /// Begins a journal, or resumes from one.
    pub fn open_journal(
        &mut self,
        journal_options: &JournalOptions,
        options: &Options,
        timer: &Timer,
    ) -> anyhow::Result<()> {
        let (durable, config) = (options.durable.of_blocks(), &options.kernel);
        let (mut journal, replayed) =
            Journal::open(&journal_options.folder, durable, PROGRAM, config, &options.drivers)?;
        let first_step = replayed.as_ref().map_or(1, |replayed| replayed.next_step);
        match replayed {
            Some(replayed) => {
                timer.stop_at(replayed.now);
                self.resume(replayed)?;
            }
            None => self.taps.session_cursors = Some(SessionCursors::default()),
        }
        let session_cursors = self.taps.session_cursors.get_or_insert_default();
        let recorder = journal.begin(&self.kernel, session_cursors, first_step)?;
        let recording = Recording::with_recorder(recorder, None, &self.process_table.log);
        self.taps.recording = Some(Recording { journal: Some(journal), ..recording });
        Ok(())
    }

    pub fn journal(&self) -> Option<&Journal> {
        self.taps.recording.as_ref()?.journal.as_ref()
    }
}

impl Recording {
    /// The recording that the options request, if any.
    pub fn new(options: &Options, log: &Arc<LogLines>) -> Result<Option<Recording>, TraceError> {
        let (recorder, dumps) = match (&options.record, options.flight_recorder_bytes) {
            (Some(path), _) => {
                let durable = options.durable.of_blocks();
                let bytes_max = options.record_max.bytes(path);
                let recording = trace::Recording { durable, bytes_max, ..trace::Recording::default() };
                (Recorder::create_as(path, &options.kernel, PROGRAM, recording)?, None)
            }
            (None, Some(bytes)) => {
                let recorder = Recorder::in_memory(&options.kernel, PROGRAM, bytes)?;
                (recorder, Some(options.dumps.clone()))
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Recording::with_recorder(recorder, dumps, log)))
    }

    /// Records a kernel from its first step on.
    pub fn of_new_kernel(
        path: &Path,
        config: &dxgkrnl::Config,
        log: &Arc<LogLines>,
    ) -> Result<Recording, TraceError> {
        let recorder = Recorder::create(path, config, PROGRAM)?;
        Ok(Recording::with_recorder(recorder, None, log))
    }

    /// Records a kernel that is already running: its state comes first.
    pub fn from_here(path: &Path, kernel: &Kernel, log: &Arc<LogLines>) -> Result<Recording, TraceError> {
        let mut recording = Recording::of_new_kernel(path, kernel.config(), log)?;
        recording.snapshot(kernel.now(), kernel);
        Ok(recording)
    }

    fn with_recorder(recorder: Recorder, dumps: Option<PathBuf>, log: &Arc<LogLines>) -> Recording {
        Recording {
            recorder,
            dumps,
            dumped: 0,
            dumping: None,
            resets: 0,
            snapshots_failed: 0,
            retry_at_dropped: 1,
            writer: None,
            unwritten: false,
            unsynced: Arc::new(()),
            journal: None,
            log: Arc::clone(log),
        }
    }

    pub fn last_step(&self) -> u64 {
        self.recorder.next_step() - 1
    }

    pub fn times(&mut self, times: &Times) {
        log_error(&self.log, self.recorder.times(times));
    }

    /// Records that `moves` DMA operations of the last step are done.
    pub fn performed(&mut self, moves: usize) {
        let last_step = self.last_step();
        if let Some(journal) = &mut self.journal {
            journal.performed(last_step, moves);
        }
    }

    /// Records that so many of the DMA operations with which this daemon began are done.
    pub fn performed_earlier(&mut self, done: usize) {
        if let Some(journal) = &mut self.journal {
            journal.performed_earlier(done);
        }
    }

    /// Begins the journal's next segment, which replaces those before. The last step's DMA operations are done: a
    /// resuming daemon does not find them in the segment. `with_snapshot`: it does not continue the one before.
    #[cold]
    pub fn begin_segment(
        &mut self,
        now: Nanos,
        kernel: &Kernel,
        session_cursors: &SessionCursors,
        with_snapshot: bool,
    ) {
        let Some(journal) = &mut self.journal else { return };
        let next_step = self.recorder.next_step();
        let next = if with_snapshot || journal.needs_snapshot() {
            let mut session_cursors = session_cursors.clone();
            session_cursors.retain_of(kernel);
            journal.begin(kernel, &session_cursors, next_step)
        } else {
            // The keeper's thread reads the file.
            log_error(&self.log, self.recorder.flush());
            journal.begin_without_snapshot(kernel.config(), session_cursors, next_step)
        };
        match next {
            Ok(recorder) => {
                let ended = std::mem::replace(&mut self.recorder, recorder);
                self.end_segment(ended);
                self.retry_at_dropped = 1;
                if std::mem::take(&mut self.snapshots_failed) > 0 {
                    let line = "the journal has its next segment and no longer grows".to_owned();
                    self.log.announce(Level::WARN, now, line);
                }
            }
            Err(error) => self.snapshot_failed(
                now,
                &format!("the journal grows because its next segment cannot begin: {error:#}"),
            ),
        }
    }

    /// Writes the last block of a segment. The disk writer, if there is one, waits for the disk: here all clients would.
    fn end_segment(&self, ended: Recorder) {
        let Some(writer) = &self.writer else { return };
        let file = ended.file();
        drop(ended);
        let Some(file) = file else { return };
        let sync_here = |file: &File| {
            if let Err(error) = file.sync_data() {
                let line = format!("the journal could not be written to the disk: {error}");
                self.log.push_daemon_line(Level::ERROR, line);
            }
        };
        // A disk that is slower than the steps holds them up.
        if Arc::strong_count(&self.unsynced) > UNSYNCED_SEGMENTS_MAX {
            return sync_here(&file);
        }
        let ended = WriterMessage::Ended { file, unsynced: Arc::clone(&self.unsynced) };
        // The disk writer ends before the recorder does.
        if let Err(unsent) = writer.send(ended)
            && let WriterMessage::Ended { file, .. } = unsent.0
        {
            sync_here(&file);
        }
    }

    #[cold]
    fn snapshot(&mut self, now: Nanos, kernel: &Kernel) {
        match kernel.save() {
            Ok(state) => {
                log_error(&self.log, self.recorder.snapshot(&state, kernel.snapshot().digest()));
                self.snapshots_failed = 0;
            }
            Err(why) => self.snapshot_failed(now, &format!("the trace has no snapshot: {why}")),
        }
    }

    /// Postpones the snapshot until twice as many more bytes are recorded; logged only the first time.
    fn snapshot_failed(&mut self, now: Nanos, why: &str) {
        if self.snapshots_failed == 0 {
            let line = format!("{why}; gpupv tries again when more is recorded");
            self.log.announce(Level::ERROR, now, line);
        }
        self.recorder
            .postpone_snapshot(SNAPSHOT_RETRY_BYTES << self.snapshots_failed.min(SNAPSHOT_DOUBLINGS_MAX));
        self.snapshots_failed += 1;
    }

    /// Dumps the flight recorder after a panic of the kernel. Returns what the log says of the trace.
    pub fn panicked(&mut self) -> &'static str {
        if let Some(path) = self.failure_path("panic") {
            // The daemon aborts: no thread would come to it, and one that writes must have written.
            self.dumping = None;
            log_dump(&self.log, "panic", &path, self.recorder.dump(None).write(&path));
            "the flight recorder was dumped: gpupv replay repeats the call that led to it"
        } else if self.recorder.dropped() > 0 {
            "the trace ends before that call: recording had stopped"
        } else {
            "the trace has the call that led to it: gpupv replay repeats it"
        }
    }

    /// The path of the next unasked dump of a flight recorder.
    fn failure_path(&mut self, why: &str) -> Option<PathBuf> {
        let folder = self.dumps.as_ref()?;
        self.dumped += 1;
        Some(folder.join(format!("gpupv-{}-{}-{why}.gvt", std::process::id(), self.dumped)))
    }

    /// Dumps the flight recorder as it is after a reset. A thread of its own writes the file: here all clients would wait
    /// for the disk. One dump is written at a time, because its blocks stay in memory until then.
    #[cold]
    fn dump_reset(&mut self, kernel: &Kernel) {
        if self.dumping.as_ref().is_some_and(DumpThread::is_writing) {
            let line = "reset: it is not dumped: the flight recorder is being dumped after an earlier one";
            return self.log.push_daemon_line(Level::WARN, line.to_owned());
        }
        if self.dumped >= DUMPS_UNASKED_MAX {
            return;
        }
        let Some(path) = self.failure_path("reset") else { return };
        let (log, dump) = (Arc::clone(&self.log), self.recorder.dump(Some(kernel.snapshot().digest())));
        let write = move || log_dump(&log, "reset", &path, dump.write(&path));
        match std::thread::Builder::new().name("trace-dumping".into()).spawn(write) {
            Ok(thread) => self.dumping = Some(DumpThread(Some(thread))),
            Err(error) => {
                let line =
                    format!("reset: the flight recorder cannot be dumped: there is no thread: {error}");
                self.log.push_daemon_line(Level::ERROR, line);
            }
        }
    }

    /// A flight recorder's steps up to now, to be written without the kernel lock.
    pub fn dump(&self, kernel: &Kernel) -> Result<Dump, String> {
        if self.dumps.is_none() {
            return Err(
                "the daemon records into a file, which has everything: copy it, with its .open file".into()
            );
        }
        Ok(self.recorder.dump(Some(kernel.snapshot().digest())))
    }

    #[cfg(test)]
    pub fn recorder_mut(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// Steps that could not be recorded.
    pub fn dropped(&self) -> u64 {
        self.recorder.dropped()
    }

    /// Sets the channel that is notified when there is something to write to the disk.
    pub fn tell_when_recorded(&mut self, writer: Sender<WriterMessage>) {
        self.writer = Some(writer);
    }

    /// Flushes everything recorded into the file; returns the file, to be synced to the disk.
    pub fn flush(&mut self) -> Option<std::fs::File> {
        self.unwritten = false;
        log_error(&self.log, self.recorder.flush());
        self.recorder.file()
    }

    /// Whether the trace has reached its size limit.
    #[inline]
    pub fn is_at_limit(&self) -> bool {
        self.recorder.is_at_limit()
    }

    /// Finishes a trace that has reached its size limit: it is complete up to here. A thread of its own waits for the
    /// disk.
    #[cold]
    pub fn end_at_limit(self, Step { now, kernel, .. }: Step<'_>) {
        let (log, last_step, digest) = (Arc::clone(&self.log), self.last_step(), kernel.snapshot().digest());
        let end = move || {
            let ending = match self.recorder.finish(digest) {
                Ok(_) => "is complete up to that step".to_owned(),
                Err(error) => format!("could not be finished: {error}"),
            };
            let hint = "--record-max allows more, --flight-recorder keeps the last of it";
            let line = format!(
                "the recording has reached its size limit: it ends with step #{last_step} and {ending}. \
                 The daemon continues without recording ({hint})"
            );
            log.announce(Level::WARN, now, line);
        };
        // Without the thread the trace has no end record, as after a kill; its steps are complete.
        let _ = std::thread::Builder::new().name("trace-ending".into()).spawn(end);
    }

    /// Finishes the trace with the digest of the state.
    pub fn finish(self, kernel: &Kernel) -> Result<(), TraceError> {
        if self.dumps.is_some() {
            return Ok(());
        }
        self.recorder.finish(kernel.snapshot().digest()).map(drop)
    }
}

impl Tap for Recording {
    #[inline]
    fn begins(&mut self, now: Nanos, input: &Input) {
        log_error(&self.log, self.recorder.begin(now, input));
        if let Some(writer) = self.writer.as_ref().filter(|_| !self.unwritten) {
            self.unwritten = writer.send(WriterMessage::Recorded).is_ok();
        }
    }

    #[inline]
    fn handled(&mut self, Step { effects, kernel, .. }: Step<'_>) {
        log_error(&self.log, self.recorder.end(effects));
        if self.dumps.is_some() && kernel.resets() != self.resets {
            self.resets = kernel.resets();
            self.dump_reset(kernel);
        }
    }

    #[inline]
    fn performed(&mut self, Step { now, kernel, owed, .. }: Step<'_>) {
        if self.recorder.snapshot_is_due() {
            match owed {
                Some(session_cursors) => self.begin_segment(now, kernel, session_cursors, false),
                None => self.snapshot(now, kernel),
            }
        } else if self.recorder.dropped() >= self.retry_at_dropped
            && let Some(session_cursors) = owed
        {
            // The state has everything that the stopped segment lacks.
            self.retry_at_dropped += RETRY_STEPS;
            self.begin_segment(now, kernel, session_cursors, true);
        }
    }
}

/// Logs where a dump is, or why there is none.
fn log_dump(log: &LogLines, why: &str, path: &Path, written: Result<u64, TraceError>) {
    match written {
        Ok(steps) => {
            let line = format!("{why}: the last {steps} steps are in {}", path.display());
            log.push_daemon_line(Level::WARN, line);
        }
        Err(error) => {
            let line = format!("{why}: the flight recorder could not be dumped: {error}");
            log.push_daemon_line(Level::ERROR, line);
        }
    }
}

/// The thread that writes a dump. Dropping this waits for it.
struct DumpThread(Option<JoinHandle<()>>);

impl DumpThread {
    fn is_writing(&self) -> bool {
        self.0.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for DumpThread {
    fn drop(&mut self) {
        // A panic of it is in the log.
        self.0.take().map(JoinHandle::join);
    }
}

/// Logs a recording's error: a recording that stops does not stop the daemon.
#[inline]
fn log_error(log: &LogLines, result: Result<(), TraceError>) {
    if let Err(error) = result {
        log.push_daemon_line(Level::ERROR, format!("{error}; the daemon continues without recording"));
    }
}
