//! The memory of a flight recorder: the last blocks of a recording.
//!
//! ```text
//!   header  snapshot  data  data ..  header  snapshot  data ..      when full, all before the second header is
//!   '------ a stretch that can be replayed -------'                 dropped; a single stretch loses its oldest data
//! ```
//!
//! A snapshot counts for an eighth of the room at most, so that there always is a stretch to replay, however large
//! states are. Snapshots are a quarter of the room apart, so two stretches fit. Memory use is at most the room and
//! three states, and twice that while a dump is written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use prost::Message as _;
use proto::trace as wire;

use crate::TraceError;
use crate::block::{BlockHeader, HEADER_BYTES, Kind, Written};
use crate::file::{io_error, replace_trace};
use crate::recorder::random;

struct Block {
    header: BlockHeader,
    content: Vec<u8>,
}

/// The contents of a flight recorder at one time. Its blocks are shared with the recorder, which may drop its own
/// meanwhile: they stay in memory as long as this value.
pub struct Dump {
    blocks: Vec<Arc<Block>>,
    /// The block that was open.
    open: Option<(BlockHeader, Vec<u8>)>,
    digest: Option<u64>,
}

impl Block {
    /// Bytes of the room that it counts for.
    fn cost(&self, bytes_max: usize) -> usize {
        let bytes = self.content.len();
        if self.header.kind == Kind::Snapshot { bytes.min(bytes_max / 8) } else { bytes }
    }
}

/// The last blocks of a recording.
pub(crate) struct Ring {
    blocks: VecDeque<Arc<Block>>,
    /// Bytes of the room in use.
    cost: usize,
    bytes_max: usize,
    /// Bytes of all blocks ever written.
    offset: u64,
}

impl Ring {
    pub fn new(bytes_max: usize) -> Ring {
        Ring { blocks: VecDeque::new(), cost: 0, bytes_max, offset: 0 }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Adds a block. Returns the offset that it would have in a file of all blocks.
    pub fn write(&mut self, header: BlockHeader, content: &[u8]) -> u64 {
        let begin = self.offset;
        self.offset += (HEADER_BYTES + content.len()) as u64;
        // An index has offsets that do not apply to a dump.
        if header.kind != Kind::Index {
            let block = Arc::new(Block { header, content: content.to_vec() });
            self.cost += block.cost(self.bytes_max);
            self.blocks.push_back(block);
            while self.cost > self.bytes_max && self.forget() {}
        }
        begin
    }

    /// Drops the oldest blocks. False if only a header and the last block are left.
    fn forget(&mut self) -> bool {
        let is_header = |block: &Arc<Block>| block.header.kind == Kind::Header;
        let next = self.blocks.iter().skip(1).position(is_header).map(|at| at + 1);
        match next {
            // Keep the older stretch while the last one has nothing to replay yet.
            Some(next) if self.blocks.len() > next + 2 => {
                let bytes_max = self.bytes_max;
                let removed: usize = self.blocks.drain(..next).map(|block| block.cost(bytes_max)).sum();
                self.cost -= removed;
                true
            }
            None if self.blocks.len() > 2 => {
                let removed = self.blocks.remove(1).map_or(0, |block| block.cost(self.bytes_max));
                self.cost -= removed;
                true
            }
            _ => false,
        }
    }

    /// The blocks and the open block, with the digest of the state if there is to be an end.
    pub fn dump(&self, open: Option<(BlockHeader, Vec<u8>)>, digest: Option<u64>) -> Dump {
        Dump { blocks: self.blocks.iter().cloned().collect(), open, digest }
    }
}

impl Dump {
    /// Writes a trace; with an end if the digest of the state is known. Returns the number of steps. An older trace is
    /// replaced as a whole; another file is not, and neither is a trace that is being recorded.
    pub fn write(&self, path: &Path) -> Result<u64, TraceError> {
        let trace = random().map_err(|source| io_error("write", path, source))?;
        replace_trace(path, |file| self.write_blocks(file, trace))
    }

    fn write_blocks(&self, file: File, trace: u64) -> io::Result<u64> {
        let data = self.blocks.iter().filter(|block| block.header.kind == Kind::Data);
        let first = data.map(|block| block.header.first_step).next();
        let open = self.open.as_ref().map(|(header, content)| (*header, &content[..]));
        let next = open.as_ref().map(|(header, _)| header.next_step());
        let last = self.blocks.last().map_or(1, |block| block.header.next_step());
        let end = next.unwrap_or(last);
        let first = first.or(open.as_ref().map(|(header, _)| header.first_step)).unwrap_or(end);
        let mut written = Written::new(BufWriter::new(file));
        let mut write =
            |header, content: &[u8]| written.block(BlockHeader { trace, ..header }, content).map(drop);
        for block in &self.blocks {
            match block.header.kind {
                Kind::Header => {
                    let header = wire::Header::decode(&block.content[..]).map_err(io::Error::other)?;
                    let content = wire::Header { first_step: first, ..header }.encode_to_vec();
                    // Data after this header may have been dropped.
                    let first_step = block.header.first_step.max(first);
                    write(BlockHeader { first_step, ..block.header }, &content)?;
                }
                _ => write(block.header, &block.content)?,
            }
        }
        let mut last_header = self.blocks.last().map(|block| block.header);
        if let Some((header, content)) = open {
            write(header, content)?;
            last_header = Some(header);
        }
        if let Some(last) = last_header {
            let last = BlockHeader { steps: 0, first_step: end, first_ns: last.last_ns, ..last };
            match self.digest {
                Some(state_digest) => {
                    let content = wire::End { steps: end - first, state_digest, ..wire::End::default() };
                    write(BlockHeader { kind: Kind::End, ..last }, &content.encode_to_vec())?;
                }
                None => write(BlockHeader { kind: Kind::Complete, ..last }, &[])?,
            }
        }
        written.finish()?;
        Ok(end - first)
    }
}
