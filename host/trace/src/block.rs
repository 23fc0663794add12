//! The header of a block, and copying of blocks. docs/TRACE.md has the layout.

use std::io::{self, Write};

use crate::{FORMAT_VERSION, FORMAT_VERSION_MIN};

/// First bytes of every block of every version of the format.
pub(crate) const MAGIC: [u8; 8] = *b"GPVTRACE";
/// Bytes of a block's header.
pub(crate) const HEADER_BYTES: usize = 68;
/// A block of data is closed when its content has reached this length.
pub(crate) const CONTENT_BYTES_FULL: usize = 64 * 1024;
/// The longest content of a block. A step that does not fit is not recorded; a snapshot is split into pieces.
pub(crate) const CONTENT_BYTES_MAX: usize = 1 << 28;
/// A block's codec: a raw deflate stream (RFC 1951).
pub(crate) const DEFLATED: u8 = 1;

const CHECKED_BYTES: usize = 64;
/// Offset of the version; the same in every version from 3 on.
const VERSION_AT: usize = 16;

/// Kind of a block. A replay can ignore unknown kinds with numbers from 128 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The recording program and the kernel's configuration: the first block, repeated before each snapshot.
    Header,
    /// Steps.
    Data,
    /// The kernel's state.
    Snapshot,
    /// Positions and contents of blocks.
    Index,
    /// The last block of a trace that was finished properly.
    End,
    /// A piece of the kernel's state or the host's data of a snapshot that does not fit one block.
    Piece,
    /// The mark of a trace without an end that has every step all the same, in no other file: a dump, or a copy.
    Complete,
    /// An unknown kind.
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
            128 => Kind::Complete,
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
            Kind::Complete => 128,
            Kind::Other(number) => number,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Header => "header",
            Kind::Data => "data",
            Kind::Snapshot => "snapshot",
            Kind::Index => "index",
            Kind::End => "end",
            Kind::Piece => "piece",
            Kind::Complete => "complete",
            Kind::Other(_) => "other",
        }
    }

    /// Whether a program that does not know this kind cannot replay the trace.
    pub(crate) fn is_semantic(self) -> bool {
        !matches!(self, Kind::Complete | Kind::Other(128..))
    }
}

/// The header of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    /// The trace's random number. Data that a guest sends into a trace cannot imitate a block, because it does not know
    /// the number.
    pub trace: u64,
    /// The oldest format version that has such a block.
    pub version: u16,
    pub kind: Kind,
    /// 0 if the content is stored unchanged, or [`DEFLATED`].
    pub codec: u8,
    /// Bytes of the stored content.
    pub length: u32,
    /// CRC32C of the stored content.
    pub content_crc: u32,
    /// Steps in it.
    pub steps: u32,
    /// Number of its first step, or of the next step if it has none.
    pub first_step: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Number of the block in the file: 0, 1, 2, ..
    pub number: u32,
    /// The checksum of the previous header; 0 in the first.
    pub link: u32,
}

/// Why bytes are not a valid header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// The magic is missing.
    Other,
    /// The magic is there, but the checksum or a limit does not hold.
    Damaged,
    /// A valid header of another format version.
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

    /// The header's checksum, which the next block links to.
    pub fn crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
        u32::from_le_bytes(bytes[64..].try_into().expect("four bytes"))
    }

    /// Number of the step after the block's last.
    pub fn next_step(&self) -> u64 {
        self.first_step.saturating_add(self.steps.into())
    }
}

/// Writes copied blocks into a new file, with new numbers and links.
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

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a block with this stored content. Returns its header.
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

    /// Flushes the file. Returns its length in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.bytes)
    }
}
