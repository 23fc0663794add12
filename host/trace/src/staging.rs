//! The open block of a trace, in `FILE.gvt.open`. It is shared memory, so that appended records survive a kill of the
//! recording program. A reader treats it as the last block of the trace.
//!
//! A reader ignores an open block that was written to the trace since, by its number, or that belongs to another trace.
//! docs/TRACE.md has the layout.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use crate::block::{BlockHeader, Kind};
use crate::file::{open_regular, owner_only};
use crate::mapping::Mapping;
use crate::writer::{self, End, Writer};

const MAGIC: [u8; 8] = *b"GPVTOPN2";
const CONTENT_AT: usize = 64;
const TRACE_AT: usize = 8;
/// Length and checksum of the content in one word, which is published by one store.
const COMMITTED_AT: usize = 16;
const DROPPED_AT: usize = 24;
/// The block's fields from here to [`BLOCK_CRC_AT`] are checked by the CRC32C there.
const BLOCK_AT: usize = 32;
const BLOCK_CRC_AT: usize = 56;
/// The errno that stopped the recording.
const ERROR_AT: usize = 60;

/// Initial room: a full block and the longest usual message.
const CONTENT_BYTES: usize = 256 * 1024 - CONTENT_AT;

/// Path of a trace's open block.
pub(crate) fn path_of(trace: &Path) -> PathBuf {
    crate::file::beside(trace, ".open")
}

/// The open block of a recorder; that of a flight recorder has no path.
pub(crate) struct Staging {
    path: Option<PathBuf>,
    file: File,
    mapping: Mapping,
    end: End,
}

impl Staging {
    pub fn create(trace_path: &Path, trace: u64) -> io::Result<Staging> {
        let path = path_of(trace_path);
        // Another program may still map an open block of this name. Removing the file leaves it its pages.
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = owner_only().create_new(true).open(&path)?;
        let mut staging = Staging::from_file(file, Some(path))?;
        staging.mapping.write(TRACE_AT, &trace.to_le_bytes());
        staging.mapping.write(0, &MAGIC);
        Ok(staging)
    }

    /// An open block without a file.
    pub fn in_memory() -> io::Result<Staging> {
        let memory = rustix::fs::memfd_create("gpupv-open-block", MemfdFlags::CLOEXEC)?;
        Staging::from_file(memory.into(), None)
    }

    fn from_file(file: File, path: Option<PathBuf>) -> io::Result<Staging> {
        let mapping = Mapping::new(&file, CONTENT_AT + CONTENT_BYTES)?;
        Ok(Staging { path, file, mapping, end: End::default() })
    }

    /// Begins a new block, after the last one was written.
    pub fn begin(&mut self, number: u32, link: u32, first_step: u64, first_ns: u64) {
        self.mapping.publish(COMMITTED_AT, 0);
        self.forget();
        let mut bytes = [0; BLOCK_CRC_AT - BLOCK_AT];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..8].copy_from_slice(&link.to_le_bytes());
        bytes[8..16].copy_from_slice(&first_step.to_le_bytes());
        bytes[16..].copy_from_slice(&first_ns.to_le_bytes());
        self.mapping.write(BLOCK_AT, &bytes);
        self.mapping.write(BLOCK_CRC_AT, &crc32c::crc32c(&bytes).to_le_bytes());
    }

    /// Bytes of the content.
    #[inline]
    pub fn length(&self) -> usize {
        self.end.length()
    }

    /// Appends the content to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        self.mapping.copy_to(CONTENT_AT..CONTENT_AT + self.length(), out);
    }

    /// Empties the block. A reader of the file still finds it until the next one begins.
    pub fn forget(&mut self) {
        self.end = End::default();
    }

    /// Appends what `write` writes, at most `bytes_max` bytes, if `write` returns true: all of it or nothing.
    #[inline(always)]
    pub fn record(&mut self, bytes_max: usize, write: impl FnOnce(&mut Writer) -> bool) -> io::Result<bool> {
        // The last store may exceed the record; bytes after the length are unused.
        let end = CONTENT_AT + self.length() + bytes_max + 8;
        if end > self.mapping.length() {
            self.grow(end)?;
        }
        let mut writer = Writer::new(self.mapping.window(CONTENT_AT), self.end);
        let is_kept = write(&mut writer);
        if is_kept {
            self.end = writer.end();
            let committed = u64::from(self.end.sum()) << 32 | self.length() as u64;
            self.mapping.publish(COMMITTED_AT, committed);
        }
        Ok(is_kept)
    }

    #[cold]
    fn grow(&mut self, end: usize) -> io::Result<()> {
        self.mapping = Mapping::new(&self.file, end.next_power_of_two())?;
        Ok(())
    }

    /// Publishes the number of steps that could not be recorded after the block, and the errno.
    pub fn dropped(&mut self, steps: u64, error: i32) {
        self.mapping.write(ERROR_AT, &error.to_le_bytes());
        self.mapping.publish(DROPPED_AT, steps);
    }

    /// Removes the file, when the trace has all blocks.
    pub fn remove(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The content of a trace's open block, as read.
pub(crate) struct OpenBlock {
    /// The header as if the block had been written, except for its number of steps and its last time, which are not
    /// known yet.
    pub header: BlockHeader,
    pub content: Vec<u8>,
    pub dropped: u64,
    pub error: i32,
}

/// Why the open block of a trace without an end is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoOpenBlock {
    /// There is no such file.
    Absent,
    /// The file cannot be read, for this reason.
    Unreadable(String),
    /// The file is too short to name its trace, as after a copy that failed.
    CutOff,
    OfAnotherTrace,
}

impl fmt::Display for NoOpenBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoOpenBlock::Absent => write!(f, "is not beside it"),
            NoOpenBlock::Unreadable(error) => write!(f, "cannot be read ({error})"),
            NoOpenBlock::CutOff => write!(f, "beside it is cut off"),
            NoOpenBlock::OfAnotherTrace => write!(f, "beside it belongs to another recording"),
        }
    }
}

/// The open block of a trace without an end, which is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingOpenBlock {
    /// `FILE.gvt.open`.
    pub path: PathBuf,
    pub why: NoOpenBlock,
    /// Whether the trace itself has no step.
    pub had_all_steps: bool,
}

impl fmt::Display for MissingOpenBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingOpenBlock { path, why, had_all_steps } = self;
        let path = path.display();
        if *had_all_steps {
            write!(f, "it has no steps, because {path} {why}: copy it with the trace")
        } else {
            write!(f, "the last steps may be missing: {path} {why}; copy it with the trace")
        }
    }
}

/// Result of reading a trace's open block.
pub(crate) enum SideFile {
    Open(OpenBlock),
    /// An open block without a record. The number of its trace is 0 if its recorder was killed before it wrote that.
    Empty {
        trace: u64,
    },
    /// An open block that cannot be read, with its trace's number, and its own number if that can be read.
    Unreadable {
        trace: u64,
        number: Option<u32>,
        why: &'static str,
    },
}

const DAMAGED: &str = "the open block (FILE.gvt.open) is damaged";
const OTHER_VERSION: &str = "the open block (FILE.gvt.open) is damaged, or of another version of gpupv";

/// Reads the open block of a trace. A recorder may be writing it.
pub(crate) fn read(trace_path: &Path) -> Result<SideFile, NoOpenBlock> {
    // A read can fail while a recorder writes the block, which is rare, so try again.
    const ATTEMPTS: u32 = 100;
    let path = path_of(trace_path);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NoOpenBlock::Absent,
        _ => NoOpenBlock::Unreadable(error.to_string()),
    };
    let mut found = Err(NoOpenBlock::Absent);
    for _ in 0..ATTEMPTS {
        let mut bytes = Vec::new();
        let read = open_regular(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(unreadable)?;
        found = parse(&bytes);
        if !matches!(found, Ok(SideFile::Unreadable { .. })) {
            break;
        }
    }
    found
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Parses an open block.
fn parse(bytes: &[u8]) -> Result<SideFile, NoOpenBlock> {
    let (Some(magic), Some(trace)) = (long(bytes, 0), long(bytes, TRACE_AT)) else {
        return Err(NoOpenBlock::CutOff);
    };
    let is_sound =
        |bytes: &&[u8]| word(bytes, BLOCK_CRC_AT) == Some(crc32c::crc32c(&bytes[BLOCK_AT..BLOCK_CRC_AT]));
    let checked = Some(bytes).filter(|bytes| bytes.len() >= CONTENT_AT).filter(is_sound);
    let unreadable = |why| {
        let number = checked.and_then(|bytes| word(bytes, BLOCK_AT));
        Ok(SideFile::Unreadable { trace, number, why })
    };
    match magic.to_le_bytes() {
        MAGIC => {}
        // The recorder was killed before the first block.
        [0, ..] => return Ok(SideFile::Empty { trace }),
        _ => return unreadable(OTHER_VERSION),
    }
    let (Some(committed), Some(dropped)) = (long(bytes, COMMITTED_AT), long(bytes, DROPPED_AT)) else {
        return unreadable(DAMAGED);
    };
    let (length, expected) = (committed as u32, (committed >> 32) as u32);
    if length == 0 && dropped == 0 {
        return Ok(SideFile::Empty { trace });
    }
    match checked.and_then(|bytes| open_block(bytes, trace, length)) {
        Some(open_block) if length == 0 || writer::sum_of(&open_block.content) == expected => {
            Ok(SideFile::Open(open_block))
        }
        _ => unreadable(DAMAGED),
    }
}

fn open_block(bytes: &[u8], trace: u64, length: u32) -> Option<OpenBlock> {
    let content = bytes.get(CONTENT_AT..)?.get(..length as usize)?;
    let first_ns = long(bytes, BLOCK_AT + 16)?;
    let header = BlockHeader {
        version: crate::FORMAT_VERSION_MIN as u16,
        trace,
        kind: Kind::Data,
        codec: 0,
        length,
        content_crc: crc32c::crc32c(content),
        steps: u32::MAX,
        first_step: long(bytes, BLOCK_AT + 8)?,
        first_ns,
        last_ns: first_ns,
        number: word(bytes, BLOCK_AT)?,
        link: word(bytes, BLOCK_AT + 4)?,
    };
    let (dropped, error) = (long(bytes, DROPPED_AT)?, word(bytes, ERROR_AT)? as i32);
    Some(OpenBlock { header, content: content.to_vec(), dropped, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_bytes_comes_to_its_place_and_what_is_not_committed_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.gvt");
        let mut staging = Staging::create(&path, 1).unwrap();
        staging.begin(1, 2, 3, 4);
        let bytes: Vec<u8> = (0..=255).collect();
        let (mut expected, mut copy) = (Vec::new(), Vec::new());
        for length in 1..60 {
            let record = &bytes[length..2 * length];
            for (count, is_kept) in [(length - 1, false), (length, true)] {
                let write = |writer: &mut Writer| {
                    writer.slice(&record[..count]);
                    is_kept
                };
                assert_eq!(staging.record(length, write).unwrap(), is_kept);
            }
            expected.extend_from_slice(record);
            let Ok(SideFile::Open(open_block)) = read(&path) else { panic!("it is there") };
            assert_eq!(open_block.content, expected);
        }
        staging.copy_to(&mut copy);
        assert_eq!((staging.length(), copy), (expected.len(), expected));
    }

    #[test]
    fn a_block_of_any_size_finds_room() {
        let mut staging = Staging::in_memory().unwrap();
        staging.begin(1, 2, 3, 4);
        let mut copy = Vec::new();
        for round in 1..=3u8 {
            let record = vec![round; 3 * CONTENT_BYTES];
            let write = |writer: &mut Writer| {
                writer.slice(&record);
                true
            };
            assert!(staging.record(record.len(), write).unwrap());
        }
        staging.copy_to(&mut copy);
        assert!(
            copy.chunks(3 * CONTENT_BYTES)
                .zip(1u8..)
                .all(|(part, round)| part.iter().all(|byte| *byte == round))
        );
        assert_eq!(copy.len(), 9 * CONTENT_BYTES);
    }
}
