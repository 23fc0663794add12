//! One block's header, and blocks that are copied: docs/TRACE.md has the layout.

use std::io::{self, Write};

use crate::{FORMAT_VERSION, FORMAT_VERSION_MIN};

/// First bytes of every block of every version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"GPVTRACE";
/// Bytes before the content.
pub(crate) const HEADER_BYTES: usize = 68;
/// A block of data is closed when its content has reached this length.
pub(crate) const CONTENT_BYTES_FULL: usize = 64 * 1024;
/// The longest content of a block; a step that does not fit is not recorded, and a snapshot comes in pieces.
pub(crate) const CONTENT_BYTES_MAX: usize = 1 << 28;
/// A block's codec: a raw deflate stream (RFC 1951).
pub(crate) const DEFLATED: u8 = 1;

const CHECKED_BYTES: usize = 64;
/// Bytes that every version from 3 on has where version 3 has them.
const VERSION_AT: usize = 16;

/// What a block has. Numbers from 128 on are for kinds that replay need not know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Who recorded what kernel: the first block, and once more before each snapshot.
    Header,
    /// Steps.
    Data,
    /// The kernel's state.
    Snapshot,
    /// Where blocks are and what they have.
    Index,
    /// The last block of a trace that was ended in good order.
    End,
    /// A piece of the state, or of what is beside it, of a snapshot that does not fit one block.
    Piece,
    /// A kind that this program does not know.
    Other(u8),
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Kind {
        match number {
            1 => Kind::Header,
            2 => Kind::Data,
            3 => Kind::Snapshot,
            4 => Kind::Index,
            5 => Kind::End,
            6 => Kind::Piece,
            other => Kind::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Kind::Header => 1,
            Kind::Data => 2,
            Kind::Snapshot => 3,
            Kind::Index => 4,
            Kind::End => 5,
            Kind::Piece => 6,
            Kind::Other(number) => number,
        }
    }

    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Header => "header",
            Kind::Data => "data",
            Kind::Snapshot => "snapshot",
            Kind::Index => "index",
            Kind::End => "end",
            Kind::Piece => "piece",
            Kind::Other(_) => "other",
        }
    }

    /// A trace with a block of this kind cannot be replayed by who does not know it.
    pub(crate) fn is_semantic(self) -> bool {
        !matches!(self, Kind::Other(128..))
    }
}

/// What a block's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    /// Of this trace and no other: who writes into a trace cannot make a block of it.
    pub trace: u64,
    /// The oldest version of the format that has such a block.
    pub version: u16,
    pub kind: Kind,
    /// 0: the content is stored as it is; [`DEFLATED`].
    pub codec: u8,
    /// Bytes of the content as it is stored.
    pub length: u32,
    /// CRC32C of the content as it is stored.
    pub content_crc: u32,
    /// Steps in it.
    pub steps: u32,
    /// Number of its first step; of the next one if it has none.
    pub first_step: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// 0, 1, 2, .. through the file.
    pub number: u32,
    /// The checksum of the header before it: 0 in the first.
    pub link: u32,
}

/// Why there is no header where one was looked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// It does not begin as one.
    Other,
    /// It begins as one and is not what its checksum says, or beyond a limit.
    Damaged,
    /// It is sound and of another version of the format.
    Version(u32),
}

impl BlockHeader {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.trace.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.version.to_le_bytes());
        bytes[18] = self.kind.number();
        bytes[19] = self.codec;
        let words = [self.length, self.content_crc, self.steps];
        for (at, word) in (20..).step_by(4).zip(words) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, number) in (32..).step_by(8).zip([self.first_step, self.first_ns, self.last_ns]) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.number.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.link.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[64..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<BlockHeader, NoHeader> {
        if bytes[..8] != MAGIC {
            return Err(NoHeader::Other);
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        // Formats 1 and 2 had headers of 24 bytes.
        if word(20) == crc32c::crc32c(&bytes[..20]) {
            return Err(NoHeader::Version(2));
        }
        if word(64) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return Err(NoHeader::Damaged);
        }
        let version = u16::from_le_bytes([bytes[VERSION_AT], bytes[VERSION_AT + 1]]);
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version.into()) {
            return Err(NoHeader::Version(version.into()));
        }
        if word(20) as usize > CONTENT_BYTES_MAX {
            return Err(NoHeader::Damaged);
        }
        Ok(BlockHeader {
            trace: long(8),
            version,
            kind: Kind::from_number(bytes[18]),
            codec: bytes[19],
            length: word(20),
            content_crc: word(24),
            steps: word(28),
            first_step: long(32),
            first_ns: long(40),
            last_ns: long(48),
            number: word(56),
            link: word(60),
        })
    }

    /// What the next block links to.
    pub fn crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
        u32::from_le_bytes(bytes[64..].try_into().expect("four bytes"))
    }

    /// The number of the step after those in it.
    pub fn next_step(&self) -> u64 {
        self.first_step.saturating_add(self.steps.into())
    }
}

/// A file of blocks that had other places, and perhaps other numbers, before.
pub(crate) struct Written<W> {
    out: W,
    number: u32,
    link: u32,
    bytes: u64,
}

impl<W: Write> Written<W> {
    pub fn new(out: W) -> Self {
        Written { out, number: 0, link: 0, bytes: 0 }
    }

    /// So far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a block with this content as it is stored; its header.
    pub fn block(&mut self, header: BlockHeader, content: &[u8]) -> io::Result<[u8; HEADER_BYTES]> {
        let header = BlockHeader {
            number: self.number,
            link: self.link,
            length: u32::try_from(content.len()).map_err(io::Error::other)?,
            content_crc: crc32c::crc32c(content),
            ..header
        };
        let header = header.to_bytes();
        self.number += 1;
        self.link = BlockHeader::crc(&header);
        self.bytes += (HEADER_BYTES + content.len()) as u64;
        self.out.write_all(&header)?;
        self.out.write_all(content)?;
        Ok(header)
    }

    /// How many bytes there are.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.bytes)
    }
}
