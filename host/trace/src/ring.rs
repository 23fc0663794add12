//! The last blocks of a recording, in memory: what a flight recorder keeps.
//!
//! ```text
//!   header  snapshot  data  data ..  header  snapshot  data ..      when it is full, what is before the second
//!   '------ a stretch that can be replayed -------'                 header goes; a single stretch loses its oldest data
//! ```
//!
//! So that there always is such a stretch, however large states are, a snapshot counts for an eighth of the room at most:
//! snapshots come a quarter of it apart, and two stretches fit. What is kept is at most the room and three states.

use std::collections::VecDeque;
use std::io::{self, BufWriter};
use std::path::Path;

use prost::Message as _;
use proto::trace as wire;

use crate::block::{BlockHeader, HEADER_BYTES, Kind, Written};
use crate::file::owner_only;

struct Block {
    header: BlockHeader,
    content: Vec<u8>,
}

impl Block {
    /// How much of the room it takes.
    fn cost(&self, bytes_max: usize) -> usize {
        let bytes = self.content.len();
        if self.header.kind == Kind::Snapshot { bytes.min(bytes_max / 8) } else { bytes }
    }
}

/// See the module.
pub(crate) struct Ring {
    blocks: VecDeque<Block>,
    /// Of the room that there is, so much is taken.
    cost: usize,
    bytes_max: usize,
    /// Bytes of all blocks there ever were.
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

    /// Takes a block; where it would begin in a file of all.
    pub fn write(&mut self, header: BlockHeader, content: &[u8]) -> u64 {
        let begin = self.offset;
        self.offset += (HEADER_BYTES + content.len()) as u64;
        // An index is about offsets that no dump has.
        if header.kind != Kind::Index {
            let block = Block { header, content: content.to_vec() };
            self.cost += block.cost(self.bytes_max);
            self.blocks.push_back(block);
            while self.cost > self.bytes_max && self.forget() {}
        }
        begin
    }

    /// Makes room; false if there is nothing to forget but a header and what came last.
    fn forget(&mut self) -> bool {
        let is_header = |block: &Block| block.header.kind == Kind::Header;
        let next = self.blocks.iter().skip(1).position(is_header).map(|at| at + 1);
        match next {
            // The last stretch has nothing to replay yet, and what is before it still has.
            Some(next) if self.blocks.len() > next + 2 => {
                let bytes_max = self.bytes_max;
                let gone: usize = self.blocks.drain(..next).map(|block| block.cost(bytes_max)).sum();
                self.cost -= gone;
                true
            }
            None if self.blocks.len() > 2 => {
                let gone = self.blocks.remove(1).map_or(0, |block| block.cost(self.bytes_max));
                self.cost -= gone;
                true
            }
            _ => false,
        }
    }

    /// Writes what there is as a trace: the blocks, the open one, and an end if there is a digest. How many steps.
    pub fn dump(
        &self,
        path: &Path,
        trace: u64,
        open: Option<(BlockHeader, &[u8])>,
        digest: Option<u64>,
    ) -> io::Result<u64> {
        let data = self.blocks.iter().filter(|block| block.header.kind == Kind::Data);
        let first = data.map(|block| block.header.first_step).next();
        let next = open.as_ref().map(|(header, _)| header.next_step());
        let last = self.blocks.back().map_or(1, |block| block.header.next_step());
        let end = next.unwrap_or(last);
        let first = first.or(open.as_ref().map(|(header, _)| header.first_step)).unwrap_or(end);
        let mut written = Written::new(BufWriter::new(owner_only().create(true).truncate(true).open(path)?));
        let mut write =
            |header, content: &[u8]| written.block(BlockHeader { trace, ..header }, content).map(drop);
        for block in &self.blocks {
            match block.header.kind {
                Kind::Header => {
                    let header = wire::Header::decode(&block.content[..]).map_err(io::Error::other)?;
                    let content = wire::Header { first_step: first, ..header }.encode_to_vec();
                    // Data between it and what is left may be gone.
                    let first_step = block.header.first_step.max(first);
                    write(BlockHeader { first_step, ..block.header }, &content)?;
                }
                _ => write(block.header, &block.content)?,
            }
        }
        let mut like = self.blocks.back().map(|block| block.header);
        if let Some((header, content)) = open {
            write(header, content)?;
            like = Some(header);
        }
        if let (Some(state_digest), Some(like)) = (digest, like) {
            let content =
                wire::End { steps: end - first, state_digest, ..wire::End::default() }.encode_to_vec();
            let first_ns = like.last_ns;
            let header = BlockHeader { kind: Kind::End, steps: 0, first_step: end, first_ns, ..like };
            write(header, &content)?;
        }
        written.finish()?;
        Ok(end - first)
    }
}
