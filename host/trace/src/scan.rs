//! Location of the blocks of a file, and of the gaps between them.
//!
//! ```text
//!   scan      header by header through the file; without a header, search for the next valid one
//!   arrange   by number, each after the one it links to; missing, cut-off and foreign parts become Lost
//! ```
//! Contents are checked when they are read.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use crate::Lost;
use crate::block::{BlockHeader, HEADER_BYTES, Kind, MAGIC, NoHeader};

/// Bytes that are searched at a time for the next block: few at first, because a file may have a gap before each block.
const WINDOW_BYTES_FIRST: usize = 1 << 12;
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// A source of a trace: a file, or bytes with a cursor.
pub(crate) trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

/// A block with a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPosition {
    pub offset: u64,
    /// Where it ends; before the end of its content if it is cut off.
    pub end: u64,
    pub header: BlockHeader,
    /// The header's checksum, which the next block links to.
    pub crc: u32,
}

impl BlockPosition {
    pub fn bytes(&self) -> u64 {
        self.end - self.offset
    }

    fn is_whole(&self) -> bool {
        self.bytes() == HEADER_BYTES as u64 + u64::from(self.header.length)
    }

    /// The loss of the whole block.
    pub fn lost(&self, why: String) -> Lost {
        let BlockHeader { first_step, .. } = self.header;
        let to = Some(self.header.next_step());
        Lost { from: first_step, to, bytes: self.bytes(), offset: self.offset, why }
    }

    /// Its number and kind, for reports.
    pub fn name(&self) -> String {
        format!("block {} ({})", self.header.number, self.header.kind.name())
    }
}

/// Fills the buffer from an offset.
pub(crate) fn read_at(source: &mut dyn Source, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    source.seek(SeekFrom::Start(offset))?;
    source.read_exact(buffer)
}

/// Result of scanning a file.
#[derive(Default)]
pub(crate) struct Scan {
    /// Blocks in file order.
    pub positions: Vec<BlockPosition>,
    /// The version of the first block, if it has another format.
    pub other_version: Option<u32>,
}

pub(crate) fn scan(source: &mut dyn Source, length: u64) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let mut trace = None;
    let mut at = 0;
    while at + HEADER_BYTES as u64 <= length {
        let mut bytes = [0; HEADER_BYTES];
        read_at(source, at, &mut bytes)?;
        let sound = match BlockHeader::from_bytes(&bytes) {
            Ok(header) => Some(header).filter(|header| *trace.get_or_insert(header.trace) == header.trace),
            Err(NoHeader::Version(version)) if at == 0 => {
                scan.other_version = Some(version);
                return Ok(scan);
            }
            _ => None,
        };
        at = match sound {
            Some(header) => {
                let end = (at + HEADER_BYTES as u64 + u64::from(header.length)).min(length);
                scan.positions.push(BlockPosition { offset: at, end, header, crc: BlockHeader::crc(&bytes) });
                end
            }
            None => {
                // The last block may have lost bytes, so that its length points too far.
                let from = scan.positions.last().map_or(at + 1, |last| last.offset + HEADER_BYTES as u64);
                let found = next_block(source, from, length, trace)?.unwrap_or(length);
                if let Some(last) = scan.positions.last_mut() {
                    last.end = last.end.min(found);
                }
                found
            }
        };
    }
    Ok(scan)
}

/// Offset of the next valid header from an offset on.
fn next_block(
    source: &mut dyn Source,
    from: u64,
    length: u64,
    trace: Option<u64>,
) -> io::Result<Option<u64>> {
    let mut window = Vec::new();
    let (mut at, mut window_bytes) = (from, WINDOW_BYTES_FIRST);
    while at + HEADER_BYTES as u64 <= length {
        let bytes = usize::try_from(length - at).unwrap_or(usize::MAX).min(window_bytes);
        window.resize(bytes, 0);
        read_at(source, at, &mut window)?;
        for (position, candidate) in window.windows(HEADER_BYTES).enumerate() {
            if candidate[..MAGIC.len()] != MAGIC {
                continue;
            }
            let candidate = candidate.try_into().expect("a header's length");
            if BlockHeader::from_bytes(candidate)
                .is_ok_and(|header| trace.is_none_or(|trace| trace == header.trace))
            {
                return Ok(Some(at + position as u64));
            }
        }
        // The last bytes may be the beginning of a header.
        at += (bytes + 1 - HEADER_BYTES) as u64;
        window_bytes = WINDOW_BYTES_MAX.min(2 * window_bytes);
    }
    Ok(None)
}

/// A part of a file: a block or a loss.
#[derive(Clone, Debug)]
pub(crate) enum ScanPart {
    Block(BlockPosition),
    Lost(Lost),
}

impl ScanPart {
    /// Number of its first step.
    pub fn first_step(&self) -> u64 {
        match self {
            ScanPart::Block(position) => position.header.first_step,
            ScanPart::Lost(lost) => lost.from,
        }
    }
}

/// A file's parts, in the order of their numbers.
pub(crate) struct Arranged {
    pub parts: Vec<ScanPart>,
    /// Number of blocks that precede one with a lower number in the file; they are read in order.
    pub out_of_place: u32,
    /// Number of the next expected block.
    pub next_number: u32,
    pub next_step: u64,
    pub ended: bool,
}

/// Orders the blocks that were found in a file of `length` bytes. The first step has the number `first_step`.
pub(crate) fn arrange(positions: &[BlockPosition], length: u64, first_step: u64) -> Arranged {
    let out_of_place = positions.windows(2).filter(|two| two[1].header.number < two[0].header.number).count();
    let sorted = sequence(positions);
    let mut gaps = gaps(&sorted, length);
    let mut arranged = Arranged {
        parts: Vec::with_capacity(sorted.len()),
        out_of_place: out_of_place as u32,
        next_number: 0,
        next_step: first_step,
        ended: false,
    };
    for position in sorted {
        let gap = gaps.remove(&position.offset).map(|begin| (begin, position.offset));
        arranged.missing_before(&position, gap);
        arranged.block(position);
    }
    for (end, begin) in gaps {
        let (bytes, offset, from) = (end - begin, begin, arranged.next_step);
        let (to, why) = if arranged.ended {
            (Some(from), "bytes after the end of the trace".to_owned())
        } else if end == length {
            (None, format!("block {} is damaged or cut off", arranged.next_number))
        } else {
            (Some(from), "bytes that are no block of this trace".to_owned())
        };
        arranged.parts.push(ScanPart::Lost(Lost { from, to, bytes, offset, why }));
    }
    arranged
}

impl Arranged {
    /// Adds a loss for blocks or steps that are missing before a block.
    pub fn missing_before(&mut self, position: &BlockPosition, gap: Option<(u64, u64)>) {
        let BlockHeader { number, first_step, .. } = position.header;
        let blocks = match number.saturating_sub(self.next_number) {
            0 => None,
            1 => Some(format!("block {}", self.next_number)),
            _ => Some(format!("blocks {} to {}", self.next_number, number - 1)),
        };
        let why = match (blocks, gap) {
            (None, None) if first_step <= self.next_step => return,
            (None, None) => format!("steps are missing before block {number}"),
            (None, Some(_)) => format!("bytes before block {number} are no block"),
            (Some(blocks), None) => format!("{blocks} missing"),
            (Some(blocks), Some(_)) => format!("{blocks} damaged"),
        };
        let (begin, end) = gap.unwrap_or((position.offset, position.offset));
        let (from, to) = (self.next_step, Some(first_step.max(self.next_step)));
        self.parts.push(ScanPart::Lost(Lost { from, to, bytes: end - begin, offset: begin, why }));
        self.next_step = first_step.max(self.next_step);
    }

    fn block(&mut self, position: BlockPosition) {
        self.next_number = position.header.number.saturating_add(1);
        self.next_step = position.header.next_step();
        let is_whole = position.is_whole();
        self.ended |= position.header.kind == Kind::End && is_whole;
        self.parts.push(if is_whole {
            ScanPart::Block(position)
        } else {
            ScanPart::Lost(position.lost(format!("{} is cut off", position.name())))
        });
    }
}

/// The blocks of one recording, by number. Of two blocks with one number the first is kept. A block that does not link
/// to the previous one, or that repeats steps, is dropped.
fn sequence(positions: &[BlockPosition]) -> Vec<BlockPosition> {
    let mut sorted = positions.to_vec();
    // The sort is stable: of equal numbers, the first in the file comes first.
    sorted.sort_by_key(|position| position.header.number);
    let mut chain: Vec<BlockPosition> = Vec::with_capacity(sorted.len());
    for position in sorted {
        let follows = chain.last().is_none_or(|before| {
            let BlockHeader { number, link, first_step, .. } = position.header;
            let is_next = before.header.number.checked_add(1) == Some(number);
            number > before.header.number
                && (!is_next || link == before.crc)
                && first_step >= before.header.next_step()
        });
        if follows {
            chain.push(position);
        }
    }
    chain
}

/// Ranges of a file that belong to no block: their begins, by their ends.
fn gaps(positions: &[BlockPosition], length: u64) -> BTreeMap<u64, u64> {
    let mut known: Vec<(u64, u64)> =
        positions.iter().map(|position| (position.offset, position.end)).collect();
    known.sort_unstable();
    let mut gaps = BTreeMap::new();
    let mut at = 0;
    for (begin, end) in known {
        if begin > at {
            gaps.insert(begin, at);
        }
        at = at.max(end);
    }
    if length > at {
        gaps.insert(length, at);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the bytes that are read.
    struct Counting(io::Cursor<Vec<u8>>, u64);

    impl Read for Counting {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = self.0.read(to)?;
            self.1 += count as u64;
            Ok(count)
        }
    }

    impl Seek for Counting {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn a_file_with_a_gap_before_each_block_is_not_read_whole_for_each() {
        const BLOCKS: u32 = 2000;
        let (mut bytes, mut link) = (Vec::new(), 0);
        for number in 0..BLOCKS {
            let header = BlockHeader {
                trace: 7,
                version: crate::FORMAT_VERSION_MIN as u16,
                kind: Kind::Index,
                codec: 0,
                length: 0,
                content_crc: 0,
                steps: 0,
                first_step: 1,
                first_ns: 0,
                last_ns: 0,
                number,
                link,
            };
            let header = header.to_bytes();
            link = BlockHeader::crc(&header);
            bytes.extend_from_slice(&header);
            bytes.push(0);
        }
        let length = bytes.len() as u64;
        let mut source = Counting(io::Cursor::new(bytes), 0);
        let scan = scan(&mut source, length).unwrap();
        assert_eq!(scan.positions.len() as u32, BLOCKS);
        let read = source.1;
        assert!(read <= u64::from(BLOCKS) * 8192, "{read} bytes");
        let lost = arrange(&scan.positions, length, 1).parts.len();
        assert_eq!(lost as u32, 2 * BLOCKS, "a gap behind each");
    }
}
