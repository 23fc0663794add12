//! Destination of blocks: a file, or memory that keeps the last blocks.

use std::io;
use std::path::Path;

use crate::TraceError;
use crate::block::{BlockHeader, HEADER_BYTES};
use crate::file::{Durable, TraceFile};
use crate::ring::Ring;

/// Destination of a recorder's blocks.
pub(crate) enum Sink {
    File(TraceFile),
    Ring(Ring),
}

impl Sink {
    /// The path of the file; a placeholder for a ring.
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

    /// Writes a block, header and content. Returns its offset.
    pub fn write(&mut self, header: BlockHeader, block: &[u8]) -> io::Result<u64> {
        match self {
            Sink::File(file) => file.write(block),
            Sink::Ring(ring) => Ok(ring.write(header, &block[HEADER_BYTES..])),
        }
    }

    /// Whether the recorder's caller syncs the file to the disk.
    pub fn is_synced_by_caller(&self) -> bool {
        match self {
            Sink::File(file) => file.durable() == Durable::Flushed,
            Sink::Ring(_) => false,
        }
    }

    /// Finishes the file after the last block.
    pub fn finish(&mut self) -> Result<(), TraceError> {
        match self {
            Sink::File(file) => file.finish(),
            Sink::Ring(_) => Ok(()),
        }
    }
}
