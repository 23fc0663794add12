//! The recorder, which writes traces.

use std::io;
use std::path::Path;

use dxgkrnl::{Config, Effects, Input, Nanos, SEMANTIC_VERSION};
use prost::Message as _;
use proto::trace as wire;

use crate::block::{BlockHeader, CONTENT_BYTES_FULL, CONTENT_BYTES_MAX, HEADER_BYTES, Kind};
use crate::compact::{self, Context};
use crate::file::{Durable, TraceFile, io_error};
use crate::index::{BlockProcesses, Entries, Vms};
use crate::ring::{Dump, Ring};
use crate::sink::Sink;
use crate::staging::Staging;
use crate::times::Times;
use crate::writer::Writer;
use crate::{FORMAT_VERSION, FORMAT_VERSION_MIN, TraceError, encode, header};

/// Least distance of snapshots, in bytes and in multiples of the snapshot's own size.
const SNAPSHOT_BYTES_BETWEEN: u64 = 1 << 20;
const SNAPSHOT_TIMES_ITSELF: u64 = 16;

/// A snapshot with at most this many bytes of state and host data is one block. A larger one is split into pieces.
const ONE_BLOCK_BYTES_MAX: usize = CONTENT_BYTES_MAX - 64;
/// The longest piece of a snapshot. Each piece is copied in memory before it is written.
pub(crate) const PIECE_BYTES_MAX: usize = 16 << 20;

/// Most bytes after the last step: a full index with the most processes in each entry, and the end.
const ENDING_BYTES_MAX: u64 = 64 * 1024;
/// The smallest permitted limit of a file: enough for the header, the ending and some steps.
pub const RECORDED_BYTES_MIN: u64 = 1 << 20;

/// A flight recorder keeps a few full blocks at least.
const RING_BYTES_MIN: usize = 8 * CONTENT_BYTES_FULL;

/// Writes the trace of a kernel whose steps are known, from its first to its last. `digest` is that of the state after
/// them.
pub fn record_steps(
    path: &Path,
    config: &Config,
    program: &str,
    steps: &[(Nanos, Input, Effects)],
    digest: u64,
) -> Result<(), TraceError> {
    let mut recorder = Recorder::create(path, config, program)?;
    for (now, input, effects) in steps {
        recorder.begin(*now, input)?;
        recorder.end(effects)?;
    }
    recorder.finish(digest).map(drop)
}

/// How a trace is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    pub durable: Durable,
    /// The number in every block of this trace, which distinguishes them from blocks of other traces; random if `None`.
    pub trace: Option<u64>,
    /// Number of the first step, for a trace that continues another one. A snapshot precedes it, in this file or in
    /// [`crate::state_path`].
    pub first_step: Option<u64>,
    /// A larger snapshot is split into pieces of at most this size; `None` for the limit of a block.
    pub one_block_bytes_max: Option<usize>,
    /// Size limit of the file, see [`Recorder::is_at_limit`]; `None` for no limit.
    pub bytes_max: Option<u64>,
}

/// Append-only writer of a trace.
///
/// Each step is recorded in two halves, around the kernel's call:
///
/// ```text
///   recorder.begin(now, &input)?;           // the input is in the trace
///   kernel.handle(now, input, &mut effects);
///   recorder.end(&effects)?;                // the effects join it; a full block is written
/// ```
///
/// Neither half makes a system call unless the block is full. The open block is in memory shared with the file
/// `FILE.gvt.open`, so SIGKILL loses no record, and after a panic of the kernel the trace has the input that caused it.
///
/// If the disk is full or fails, recording stops: one call returns the error, and later calls only count the steps that
/// are not recorded. A reader reports that number.
pub struct Recorder {
    sink: Sink,
    block: OpenBlock,
    /// Buffer for a record that is encoded or a block that is written; empty in between.
    buffer: Vec<u8>,
    /// Number of the next block, and the checksum that it links to.
    number: u32,
    link: u32,
    trace: u64,
    entries: Entries,
    vms: Vms,
    /// The content of the header block, which is repeated before each snapshot.
    header: Vec<u8>,
    first_step: u64,
    /// Offset of the file from which a snapshot is due.
    snapshot_at: u64,
    /// Size limit of the file.
    bytes_max: u64,
    /// Most bytes of a snapshot in one block.
    one_block_bytes_max: usize,
    /// Records of times for the next block.
    times_due: Vec<u8>,
    /// Whether a step is between its two halves.
    within: bool,
    stopped: Option<Stopped>,
    finished: bool,
}

/// The block that steps are appended to.
struct OpenBlock {
    staging: Staging,
    context: Context,
    first_step: u64,
    steps: u32,
    first_ns: Nanos,
    processes: BlockProcesses,
}

struct Stopped {
    why: String,
    error: i32,
    dropped: u64,
}

impl OpenBlock {
    fn new(staging: Staging, first_step: u64) -> OpenBlock {
        let (context, processes) = (Context::new(0), BlockProcesses::default());
        OpenBlock { staging, context, first_step, steps: 0, first_ns: 0, processes }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.staging.length() == 0
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.staging.length() >= CONTENT_BYTES_FULL
    }

    /// Appends encoded records, all or none.
    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.staging.length() + records.len() > CONTENT_BYTES_MAX {
            return Err(rustix::io::Errno::FBIG.into());
        }
        let write = |writer: &mut Writer| {
            writer.slice(records);
            true
        };
        self.staging.record(records.len(), write).map(drop)
    }

    /// Appends an input if it has a compact form.
    #[inline]
    fn append_short_input(&mut self, now: Nanos, input: &Input) -> io::Result<bool> {
        let OpenBlock { staging, context, .. } = self;
        staging.record(compact::INPUT_BYTES_MAX, |writer| compact::write_input(context, now, input, writer))
    }

    /// Appends effects if they have a compact form.
    #[inline]
    fn append_short_effects(&mut self, effects: &Effects) -> io::Result<bool> {
        let OpenBlock { staging, context, .. } = self;
        let bytes_max = compact::effects_bytes_max(effects);
        staging.record(bytes_max, |writer| compact::write_effects(context, effects, writer))
    }

    fn clear(&mut self) {
        self.staging.forget();
        self.first_step += u64::from(self.steps);
        self.steps = 0;
        self.processes.clear();
    }
}

impl Recorder {
    /// Creates the file, or overwrites a trace, and writes the header.
    pub fn create(path: &Path, config: &Config, program: &str) -> Result<Recorder, TraceError> {
        Recorder::create_as(path, config, program, Recording::default())
    }

    /// As [`Recorder::create`], with options.
    pub fn create_as(
        path: &Path,
        config: &Config,
        program: &str,
        recording: Recording,
    ) -> Result<Recorder, TraceError> {
        let trace = match recording.trace {
            Some(trace) => trace,
            None => random().map_err(|source| io_error("name", path, source))?,
        };
        let (file, staging) = TraceFile::create(path, trace, recording.durable)?;
        let first_step = recording.first_step.unwrap_or(1);
        let mut recorder =
            Recorder::with_staging(Sink::File(file), staging, trace, config, program, first_step)?;
        recorder.bytes_max = recording.bytes_max.unwrap_or(u64::MAX);
        recorder.one_block_bytes_max =
            recording.one_block_bytes_max.unwrap_or(ONE_BLOCK_BYTES_MAX).clamp(1, ONE_BLOCK_BYTES_MAX);
        Ok(recorder)
    }

    /// A flight recorder: keeps the last `bytes_max` bytes of blocks in memory for [`Recorder::dump`].
    pub fn in_memory(config: &Config, program: &str, bytes_max: usize) -> Result<Recorder, TraceError> {
        let bytes_max = bytes_max.max(RING_BYTES_MIN);
        let sink = Sink::Ring(Ring::new(bytes_max));
        let staging = Staging::in_memory().map_err(|source| io_error("keep", sink.path(), source))?;
        // A dump gets its own trace number.
        Recorder::with_staging(sink, staging, 0, config, program, 1)
    }

    fn with_staging(
        sink: Sink,
        staging: Staging,
        trace: u64,
        config: &Config,
        program: &str,
        first_step: u64,
    ) -> Result<Recorder, TraceError> {
        let header = wire::Header {
            semantic_version: SEMANTIC_VERSION,
            program: program.to_owned(),
            kernel: Some(header::config_to_wire(config)),
            first_step,
        };
        let mut recorder = Recorder {
            sink,
            block: OpenBlock::new(staging, first_step),
            buffer: Vec::with_capacity(HEADER_BYTES + 2 * CONTENT_BYTES_FULL),
            number: 0,
            link: 0,
            trace,
            entries: Entries::default(),
            vms: Vms::default(),
            header: header.encode_to_vec(),
            first_step,
            snapshot_at: 0,
            bytes_max: u64::MAX,
            one_block_bytes_max: ONE_BLOCK_BYTES_MAX,
            times_due: Vec::new(),
            within: false,
            stopped: None,
            finished: false,
        };
        recorder.snapshot_at = recorder.bytes_between_snapshots(0);
        let header = recorder.header.clone();
        recorder.put(Kind::Header, &header)?;
        Ok(recorder)
    }

    /// Distance to the next snapshot after one of this size.
    fn bytes_between_snapshots(&self, bytes: u64) -> u64 {
        let between = SNAPSHOT_BYTES_BETWEEN.max(SNAPSHOT_TIMES_ITSELF * bytes);
        match &self.sink {
            Sink::File(_) => between,
            // Two must fit, or none is left when the older one is dropped.
            Sink::Ring(ring) => between.min(ring.bytes_max() as u64 / 4),
        }
    }

    /// First half of a step: records the input that the kernel is about to handle.
    ///
    /// # Panics
    ///
    /// Panics if the last step was not ended.
    #[inline]
    pub fn begin(&mut self, now: Nanos, input: &Input) -> Result<(), TraceError> {
        assert!(!self.within, "each begin is followed by one end");
        self.within = true;
        if self.stopped.is_some() {
            self.count_dropped();
            return Ok(());
        }
        if self.block.is_empty() {
            self.begin_block(now);
            if !self.times_due.is_empty() {
                self.append_times().inspect_err(|_| self.count_dropped())?;
            }
        }
        let entered = match self.block.append_short_input(now, input) {
            Ok(false) => self.append_input(now, input),
            entered => entered.map(drop),
        };
        self.block.processes.input(input);
        match entered {
            Ok(()) => {
                self.block.steps += 1;
                Ok(())
            }
            Err(error) => {
                let error = self.stop(&error);
                self.count_dropped();
                Err(error)
            }
        }
    }

    /// Appends an input that has no compact form.
    #[inline(never)]
    fn append_input(&mut self, now: Nanos, input: &Input) -> io::Result<()> {
        encode::entered(now, input, &mut self.buffer);
        self.block.context.message(now, input);
        self.vms.input(input);
        self.append_buffer()
    }

    /// Appends effects that have no compact form.
    #[inline(never)]
    fn append_effects(&mut self, effects: &Effects) -> io::Result<()> {
        encode::effects(effects, &mut self.buffer);
        self.append_buffer()
    }

    fn append_buffer(&mut self) -> io::Result<()> {
        let appended = self.block.append(&self.buffer);
        self.empty_buffer();
        appended
    }

    /// Empties the buffer and frees memory beyond its usual size.
    fn empty_buffer(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(HEADER_BYTES + 2 * CONTENT_BYTES_FULL);
    }

    /// Second half of a step: records the kernel's effects.
    ///
    /// # Panics
    ///
    /// Panics if no step was begun.
    #[inline]
    pub fn end(&mut self, effects: &Effects) -> Result<(), TraceError> {
        assert!(self.within, "each end follows one begin");
        self.within = false;
        if self.stopped.is_some() {
            return Ok(());
        }
        let appended = match self.block.append_short_effects(effects) {
            Ok(false) => self.append_effects(effects),
            appended => appended.map(drop),
        };
        self.block.processes.effects(effects);
        if let Err(error) = appended {
            return Err(self.stop(&error));
        }
        if self.block.is_full() { self.close_block() } else { Ok(()) }
    }

    /// Records the timestamps of a completed step, or those that a process reported. Without steps in between, at most
    /// a block's size of them is kept.
    ///
    /// # Panics
    ///
    /// Panics between the halves of a step.
    pub fn times(&mut self, times: &Times) -> Result<(), TraceError> {
        assert!(!self.within, "each begin is followed by one end");
        if self.stopped.is_some() || self.times_due.len() >= CONTENT_BYTES_FULL {
            return Ok(());
        }
        times.write(&mut self.times_due);
        if self.block.is_empty() {
            return Ok(());
        }
        self.append_times()?;
        if self.block.is_full() { self.close_block() } else { Ok(()) }
    }

    /// Appends pending records of times to the open block.
    fn append_times(&mut self) -> Result<(), TraceError> {
        let appended = self.block.append(&self.times_due);
        self.times_due.clear();
        appended.map_err(|error| self.stop(&error))
    }

    /// Records the kernel's saved state between two steps, from which a replay can begin, and its digest.
    ///
    /// # Panics
    ///
    /// Panics between the halves of a step.
    pub fn snapshot(&mut self, state: &[u8], digest: u64) -> Result<(), TraceError> {
        self.snapshot_with(state, digest, &[])
    }

    /// As [`Recorder::snapshot`], with the host's own data.
    ///
    /// # Panics
    ///
    /// Panics between the halves of a step.
    pub fn snapshot_with(&mut self, state: &[u8], digest: u64, host: &[u8]) -> Result<(), TraceError> {
        assert!(!self.within, "each begin is followed by one end");
        if self.stopped.is_some() {
            return Ok(());
        }
        self.close_block()?;
        let header = std::mem::take(&mut self.header);
        let written = self.put(Kind::Header, &header);
        self.header = header;
        written?;
        let bytes = state.len() + host.len();
        let fits_one_block = bytes <= self.one_block_bytes_max;
        // A flight recorder keeps two snapshots, and has no room for large ones.
        let is_too_big = matches!(self.sink, Sink::Ring(_)) && !fits_one_block;
        if is_too_big || !self.has_room(bytes as u64) {
            // The trace is complete without the snapshot.
            self.snapshot_at = u64::MAX;
            return Ok(());
        }
        self.entries.snapshot(self.sink.offset());
        if fits_one_block {
            let (state, host) = (state.to_vec(), host.to_vec());
            let snapshot = wire::Snapshot { state_digest: digest, state, host, ..wire::Snapshot::default() };
            self.put(Kind::Snapshot, &snapshot.encode_to_vec())?;
        } else {
            self.put_in_pieces(state, digest, host)?;
        }
        self.begins_with(bytes as u64);
        Ok(())
    }

    /// Writes a snapshot whose state and host data are in separate blocks.
    fn put_in_pieces(&mut self, state: &[u8], digest: u64, host: &[u8]) -> Result<(), TraceError> {
        let piece_bytes = self.one_block_bytes_max.min(PIECE_BYTES_MAX);
        let (of_state, of_host) = (state.chunks(piece_bytes), host.chunks(piece_bytes));
        let snapshot = wire::Snapshot {
            state_digest: digest,
            state_pieces: of_state.len() as u32,
            host_pieces: of_host.len() as u32,
            ..wire::Snapshot::default()
        };
        self.put_as(Kind::Snapshot, FORMAT_VERSION, &snapshot.encode_to_vec())?;
        of_state.chain(of_host).try_for_each(|piece| self.put_as(Kind::Piece, FORMAT_VERSION, piece))
    }

    /// Sets the distance to the next snapshot after a state of this size, which is in this trace or beside it.
    pub fn begins_with(&mut self, state_bytes: u64) {
        self.snapshot_at = self.sink.offset() + self.bytes_between_snapshots(state_bytes);
    }

    /// Postpones the due snapshot until `bytes` more are recorded, but at least by the least distance.
    pub fn postpone_snapshot(&mut self, bytes: u64) {
        self.snapshot_at = self.sink.offset() + bytes.max(SNAPSHOT_BYTES_BETWEEN);
    }

    /// Whether the file has reached its limit, less its ending: the caller must finish it before the next step. The
    /// file exceeds the limit by the last step at most.
    #[inline]
    pub fn is_at_limit(&self) -> bool {
        !self.has_room(0)
    }

    /// Whether `bytes` more are within the limit.
    #[inline]
    fn has_room(&self, bytes: u64) -> bool {
        let open = HEADER_BYTES as u64 + self.block.staging.length() as u64;
        self.sink.offset() + open + ENDING_BYTES_MAX + bytes < self.bytes_max
    }

    /// Whether a snapshot is due: the last one is at least 1 MiB and 16 times its own size back.
    pub fn snapshot_is_due(&self) -> bool {
        self.sink.offset() >= self.snapshot_at && self.stopped.is_none()
    }

    /// Closes the open block and writes it to the file. The block is safe from SIGKILL without this. Only a program
    /// that is about to die may call it within a step.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.stopped.is_some() { Ok(()) } else { self.close_block() }
    }

    /// Number of the next step.
    pub fn next_step(&self) -> u64 {
        self.block.first_step + u64::from(self.block.steps)
    }

    /// The file, for syncing it to the disk; `None` for a flight recorder.
    pub fn file(&self) -> Option<std::fs::File> {
        match &self.sink {
            Sink::File(file) => file.handle().ok(),
            Sink::Ring(_) => None,
        }
    }

    /// Number of steps that were not recorded since recording stopped.
    pub fn dropped(&self) -> u64 {
        self.stopped.as_ref().map_or(0, |stopped| stopped.dropped)
    }

    /// Ends the trace with the digest of the kernel's state. Returns its number of steps.
    ///
    /// # Panics
    ///
    /// Panics between the halves of a step.
    pub fn finish(mut self, digest: u64) -> Result<u64, TraceError> {
        assert!(!self.within, "each begin is followed by one end");
        self.finished = true;
        // The disk may have room again. If not, the open block and the count stay in `FILE.gvt.open`.
        let stopped = self.stopped.take();
        let ended = self.write_end(digest, stopped.as_ref());
        match stopped {
            Some(Stopped { why, dropped, .. }) => {
                Err(TraceError::Stopped { path: self.sink.path().to_owned(), dropped, why })
            }
            None => ended,
        }
    }

    fn write_end(&mut self, digest: u64, stopped: Option<&Stopped>) -> Result<u64, TraceError> {
        if self.block.is_empty() && !self.times_due.is_empty() && stopped.is_none() {
            self.begin_block(self.block.context.now);
            self.append_times()?;
        }
        self.close_block()?;
        self.put_index()?;
        let (dropped, why) = stopped.map_or((0, ""), |stopped| (stopped.dropped, &stopped.why));
        let steps = self.block.first_step - self.first_step;
        let last_index = self.entries.last_index();
        let end = wire::End { steps, state_digest: digest, dropped, why: why.to_owned(), last_index };
        self.put(Kind::End, &end.encode_to_vec())?;
        self.finish_sink()?;
        Ok(steps)
    }

    /// Finishes the file after the last block and removes the open block.
    fn finish_sink(&mut self) -> Result<(), TraceError> {
        self.sink.finish()?;
        self.block.staging.remove();
        Ok(())
    }

    /// The contents of a flight recorder now. With the state's digest, the trace of them has an end.
    ///
    /// # Panics
    ///
    /// Panics if the recorder writes to a file.
    pub fn dump(&self, digest: Option<u64>) -> Dump {
        let Sink::Ring(ring) = &self.sink else { panic!("only a flight recorder has something to dump") };
        let mut content = Vec::new();
        self.block.staging.copy_to(&mut content);
        let open = (!content.is_empty()).then(|| (self.open_header(&content), content));
        ring.dump(open, digest)
    }

    fn begin_block(&mut self, now: Nanos) {
        self.block.context = Context::new(now);
        self.block.first_ns = now;
        self.block.staging.begin(self.number, self.link, self.block.first_step, now);
    }

    /// Writes the open block.
    fn close_block(&mut self) -> Result<(), TraceError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut block = std::mem::take(&mut self.buffer);
        block.resize(HEADER_BYTES, 0);
        self.block.staging.copy_to(&mut block);
        let header = self.open_header(&block[HEADER_BYTES..]);
        let bytes = header.to_bytes();
        block[..HEADER_BYTES].copy_from_slice(&bytes);
        let written = self.sink.write(header, &block);
        self.buffer = block;
        self.empty_buffer();
        self.wrote(written, &bytes)?;
        self.vms.forget_ended();
        self.block.clear();
        if self.entries.are_full() { self.put_index() } else { Ok(()) }
    }

    /// Writes a block without steps.
    fn put(&mut self, kind: Kind, content: &[u8]) -> Result<(), TraceError> {
        self.put_as(kind, FORMAT_VERSION_MIN, content)
    }

    fn put_as(&mut self, kind: Kind, version: u32, content: &[u8]) -> Result<(), TraceError> {
        let header = BlockHeader {
            version: version as u16,
            content_crc: crc32c::crc32c(content),
            ..self.next_header(kind, content.len())
        };
        let bytes = header.to_bytes();
        let written = self.sink.write(header, &[&bytes, content].concat());
        self.wrote(written, &bytes)
    }

    /// Header of the open block, as if it were closed now.
    fn open_header(&self, content: &[u8]) -> BlockHeader {
        BlockHeader {
            content_crc: crc32c::crc32c(content),
            steps: self.block.steps,
            first_ns: self.block.first_ns,
            last_ns: self.block.context.now,
            ..self.next_header(Kind::Data, content.len())
        }
    }

    fn put_index(&mut self) -> Result<(), TraceError> {
        let content = self.entries.take(self.sink.offset());
        self.put(Kind::Index, &content)
    }

    fn next_header(&self, kind: Kind, length: usize) -> BlockHeader {
        let now = self.block.context.now;
        BlockHeader {
            trace: self.trace,
            version: FORMAT_VERSION_MIN as u16,
            kind,
            codec: 0,
            length: u32::try_from(length).expect("a block is far below 4 GiB"),
            content_crc: 0,
            steps: 0,
            first_step: self.block.first_step,
            first_ns: now,
            last_ns: now,
            number: self.number,
            link: self.link,
        }
    }

    /// Records that a block was written, or stops recording if it failed.
    fn wrote(
        &mut self,
        written: Result<u64, std::io::Error>,
        header: &[u8; HEADER_BYTES],
    ) -> Result<(), TraceError> {
        match written {
            Ok(offset) => {
                self.entries.block(offset, header, &self.block.processes, &self.vms);
                self.number += 1;
                self.link = BlockHeader::crc(header);
                Ok(())
            }
            Err(error) => Err(self.stop(&error)),
        }
    }

    /// For tests: stops recording as a full disk does.
    #[doc(hidden)]
    pub fn stop_as_on_a_full_disk(&mut self) -> TraceError {
        self.stop(&rustix::io::Errno::NOSPC.into())
    }

    fn stop(&mut self, error: &std::io::Error) -> TraceError {
        let why = error.to_string();
        self.stopped =
            Some(Stopped { why: why.clone(), error: error.raw_os_error().unwrap_or(0), dropped: 0 });
        TraceError::Stopped { path: self.sink.path().to_owned(), dropped: 0, why }
    }

    fn count_dropped(&mut self) {
        if let Some(stopped) = &mut self.stopped {
            stopped.dropped += 1;
            self.block.staging.dropped(stopped.dropped, stopped.error);
        }
    }
}

impl Drop for Recorder {
    /// Dropping a recorder without [`Recorder::finish`] leaves a trace without an end. With [`Durable::Flushed`] its caller
    /// syncs the file, which may take long.
    fn drop(&mut self) {
        if self.finished || self.stopped.is_some() || self.close_block().is_err() {
            return;
        }
        match self.sink.is_synced_by_caller() {
            true => self.block.staging.remove(),
            false => _ = self.finish_sink(),
        }
    }
}

pub(crate) fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(u64::from_le_bytes(bytes)) } else { Err(std::io::ErrorKind::Other.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Findings, Reader, verify};

    fn record(recorder: &mut Recorder, steps: u64) -> Vec<Result<(), TraceError>> {
        let record_step = |step| {
            let input = recorder.begin(step, &Input::Deadline);
            input.and(recorder.end(&Effects::default()))
        };
        (0..steps).map(record_step).collect()
    }

    fn fill_disk(recorder: &mut Recorder, full: bool) {
        let Sink::File(file) = &mut recorder.sink else { panic!("it records into a file") };
        file.fill_disk(full).unwrap();
    }

    fn findings(path: &Path) -> Findings {
        verify(Reader::open(path).unwrap()).unwrap()
    }

    /// A recorder whose disk is full, with ten steps in it and five that it dropped.
    fn stopped(path: &Path) -> Recorder {
        let mut recorder = Recorder::create(path, &Config::default(), "test").unwrap();
        record(&mut recorder, 10);
        fill_disk(&mut recorder, true);
        let error = recorder.flush().unwrap_err().to_string();
        assert!(error.contains("recording stopped: No space left on device"), "{error}");
        // The error is returned only once.
        assert!(record(&mut recorder, 5).iter().all(Result::is_ok) && recorder.flush().is_ok());
        assert_eq!(recorder.dropped(), 5);
        recorder
    }

    #[test]
    fn processes_that_have_ended_are_forgotten_with_their_block() {
        let mut recorder = Recorder::in_memory(&Config::default(), "test", RING_BYTES_MIN).unwrap();
        let mut step = |input: Input| {
            recorder.begin(1, &input).unwrap();
            recorder.end(&Effects::default()).unwrap();
            recorder.flush().unwrap();
            recorder.vms.count()
        };
        let attach = |number, vm| Input::ProcessAttached {
            process: dxgkrnl::ProcessId(number),
            vm: dxgkrnl::VmId(vm),
            pid: 1,
            name: String::new(),
        };
        assert_eq!([attach(1, 1), attach(2, 1), attach(3, 2)].map(&mut step), [1, 2, 3]);
        assert_eq!(step(Input::ProcessGone { process: dxgkrnl::ProcessId(3) }), 2);
        assert_eq!(step(Input::VmDetached { vm: dxgkrnl::VmId(1) }), 0);
    }

    #[test]
    fn a_full_disk_stops_the_recording_and_what_is_missing_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gvt");
        let recorder = stopped(&path);
        let expect = || {
            let found = findings(&path);
            assert_eq!((found.steps, found.lost_steps(), found.ended), (10, Some(5), false), "{found}");
            let why = "5 steps are lost, #11 to #15: recording stopped: No space left on device";
            assert!(found.to_string().contains(why), "{found}");
        };
        expect();
        let error = recorder.finish(0).unwrap_err();
        assert!(matches!(error, TraceError::Stopped { dropped: 5, .. }), "{error}");
        // The block that could not be written stays in the open block's file.
        expect();
    }

    #[test]
    fn a_dropped_recorder_does_not_wait_for_the_disk_if_its_caller_syncs_the_file() {
        let folder = tempfile::tempdir().unwrap();
        for (durable, is_synced) in [(Durable::No, false), (Durable::Block, true), (Durable::Flushed, false)]
        {
            let path = folder.path().join(format!("{durable:?}.gvt"));
            let recording = Recording { durable, ..Recording::default() };
            let mut recorder = Recorder::create_as(&path, &Config::default(), "test", recording).unwrap();
            let Sink::File(file) = &mut recorder.sink else { panic!("it records into a file") };
            file.fail_syncs().unwrap();
            drop(recorder);
            // It stays because the sync has failed.
            assert_eq!(crate::staging::path_of(&path).exists(), is_synced, "{durable:?}");
        }
    }

    #[test]
    fn a_disk_with_room_again_takes_the_end_and_the_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gvt");
        let mut recorder = stopped(&path);
        fill_disk(&mut recorder, false);
        let error = recorder.finish(7).unwrap_err();
        assert!(matches!(error, TraceError::Stopped { dropped: 5, .. }), "{error}");
        let found = findings(&path);
        assert_eq!((found.steps, found.lost_steps(), found.ended), (10, Some(5), true), "{found}");
        assert!(!crate::staging::path_of(&path).exists());
    }
}
