//! Where blocks go: a file, or memory that keeps the last of them.

use std::io;
use std::path::Path;

use crate::TraceError;
use crate::block::{BlockHeader, HEADER_BYTES};
use crate::file::TraceFile;
use crate::ring::Ring;

/// See the module.
pub(crate) enum Sink {
    File(TraceFile),
    Ring(Ring),
}

impl Sink {
    /// The file's; of a ring a word for errors, of which it has none.
    pub fn path(&self) -> &Path {
        match self {
            Sink::File(file) => file.path(),
            Sink::Ring(_) => Path::new("in memory"),
        }
    }

    /// Bytes of all blocks that were written.
    pub fn offset(&self) -> u64 {
        match self {
            Sink::File(file) => file.offset(),
            Sink::Ring(ring) => ring.offset(),
        }
    }

    /// Takes a block, header and content; where it begins.
    pub fn write(&mut self, header: BlockHeader, block: &[u8]) -> io::Result<u64> {
        match self {
            Sink::File(file) => file.write(block),
            Sink::Ring(ring) => Ok(ring.write(header, &block[HEADER_BYTES..])),
        }
    }

    /// Every block is written.
    pub fn finish(&mut self) -> Result<(), TraceError> {
        match self {
            Sink::File(file) => file.finish(),
            Sink::Ring(_) => Ok(()),
        }
    }
}
