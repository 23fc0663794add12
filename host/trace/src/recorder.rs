//! Writing a trace.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use dxgkrnl::{Config, Effects, Input, Nanos, SEMANTIC_VERSION};
use prost::Message;
use proto::trace as wire;

use crate::block::{BlockHeader, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_FULL};
use crate::encode::{self, Length};
use crate::{FORMAT_VERSION, TraceError, header};

/// Append-only writer of a trace.
///
/// Each step is told in two halves, around the kernel's call:
///
/// ```text
///   recorder.begin(now, &input)?;           // the input is in the open block
///   kernel.handle(now, input, &mut effects);
///   recorder.end(&effects)?;                // the effects join it; a full block is written
/// ```
///
/// Neither half makes a system call unless the block is full. If the kernel panics, dropping the recorder
/// while unwinding writes the open block, with the input of the call that crashed as its last record. A
/// recorder that outlives the panic behind a lock is not dropped: whoever finds the lock poisoned flushes
/// it before the program ends. Only what was told since the last flush is lost to SIGKILL, so flush when
/// idle.
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// The open block: room for its header, then the payload so far.
    block: Vec<u8>,
    block_number: u32,
    /// Sequence number of the last record.
    sequence: u64,
    /// The step between its two halves.
    open: Option<OpenStep>,
    /// No block is written any more: the trace is finished, or a write failed.
    closed: bool,
}

struct OpenStep {
    record: Length,
    step: Length,
}

impl Recorder {
    /// Creates the file, or overwrites a trace; the header is on its way to the disk when this returns.
    pub fn create(path: &Path, config: &Config, program: &str) -> Result<Recorder, TraceError> {
        refuse_to_overwrite(path)?;
        let file = File::create(path).map_err(|source| io_error("create", path, source))?;
        let mut block = Vec::with_capacity(HEADER_BYTES + PAYLOAD_BYTES_FULL + PAYLOAD_BYTES_FULL / 4);
        block.resize(HEADER_BYTES, 0);
        let header = wire::Header {
            format_version: FORMAT_VERSION,
            semantic_version: SEMANTIC_VERSION,
            program: program.to_owned(),
            kernel: Some(header::config_to_wire(config)),
        };
        let path = path.to_owned();
        let mut recorder =
            Recorder { path, file, block, block_number: 0, sequence: 0, open: None, closed: false };
        recorder.append(0, wire::record::Body::Header(header));
        recorder.flush()?;
        Ok(recorder)
    }

    /// First half of a step: what the kernel is about to be told.
    ///
    /// Panics if the last step was not ended.
    pub fn begin(&mut self, now: Nanos, input: &Input) -> Result<(), TraceError> {
        assert!(self.open.is_none(), "each begin is followed by one end");
        if self.closed {
            return Err(TraceError::Stopped(self.path.clone()));
        }
        self.sequence += 1;
        let out = &mut self.block;
        let mut record = Length::reserve(out);
        encode::number(1, self.sequence, out);
        encode::number(2, now, out);
        let mut step = encode::open(4, out);
        encode::input(input, out);
        step.set(out);
        step.shift(record.set(out));
        self.open = Some(OpenStep { record, step });
        Ok(())
    }

    /// Second half of a step: what the kernel asked for.
    ///
    /// Panics if no step was begun.
    pub fn end(&mut self, effects: &Effects) -> Result<(), TraceError> {
        let OpenStep { mut record, mut step } = self.open.take().expect("each end follows one begin");
        if self.closed {
            return Err(TraceError::Stopped(self.path.clone()));
        }
        let out = &mut self.block;
        encode::effects(effects, out);
        step.set(out);
        record.set(out);
        if out.len() >= HEADER_BYTES + PAYLOAD_BYTES_FULL { self.flush() } else { Ok(()) }
    }

    /// Closes the open block and writes it. Between the halves of a step this is for a dying program
    /// only: the step stays without effects, and nothing can be recorded after it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.block.len() == HEADER_BYTES {
            return Ok(());
        }
        if self.closed {
            self.block.truncate(HEADER_BYTES);
            return Err(TraceError::Stopped(self.path.clone()));
        }
        let payload = &self.block[HEADER_BYTES..];
        let header = BlockHeader {
            payload_length: u32::try_from(payload.len()).expect("a block is far below 4 GiB"),
            payload_crc: crc32c::crc32c(payload),
            number: self.block_number,
        };
        self.block[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        self.block_number += 1;
        self.closed = self.open.is_some();
        let written = self.file.write_all(&self.block);
        self.block.truncate(HEADER_BYTES);
        self.block.shrink_to(HEADER_BYTES + 2 * PAYLOAD_BYTES_FULL);
        written.map_err(|source| {
            self.closed = true;
            io_error("write", &self.path, source)
        })
    }

    /// Ends the trace with the digest of the kernel's state; the number of steps in it.
    ///
    /// Panics between the halves of a step.
    pub fn finish(mut self, digest: u64) -> Result<u64, TraceError> {
        assert!(self.open.is_none(), "each begin is followed by one end");
        let steps = self.sequence;
        self.sequence += 1;
        self.append(self.sequence, wire::record::Body::End(wire::End { steps, state_digest: digest }));
        self.flush()?;
        self.closed = true;
        Ok(steps)
    }

    fn append(&mut self, sequence: u64, body: wire::record::Body) {
        let record = wire::Record { sequence, now_ns: 0, body: Some(body) };
        record.encode_length_delimited(&mut self.block).expect("a Vec grows as needed");
    }
}

impl Drop for Recorder {
    /// A recorder that is dropped without [`Recorder::finish`] leaves a trace that was not ended.
    fn drop(&mut self) {
        if !self.closed {
            let _ = self.flush();
        }
    }
}

fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> TraceError {
    TraceError::Io { doing, path: path.to_owned(), source }
}

/// A slip of the command line must not cost somebody's file.
fn refuse_to_overwrite(path: &Path) -> Result<(), TraceError> {
    let Ok(file) = OpenOptions::new().read(true).open(path) else { return Ok(()) };
    let mut start = Vec::new();
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_file {
        file.take(MAGIC.len() as u64)
            .read_to_end(&mut start)
            .map_err(|source| io_error("read", path, source))?;
    }
    if start.is_empty() || start == MAGIC { Ok(()) } else { Err(TraceError::WouldOverwrite(path.to_owned())) }
}
