//! The open block beside its trace: `FILE.gvt.open`, which is shared memory, so that what was appended is there
//! whenever the recording program is killed. A reader takes it for the last block of the trace.
//!
//! Of a block that was written since, or of another trace, it says nothing any more: its block's number or its trace
//! tells. docs/TRACE.md has it byte by byte.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use crate::block::{BlockHeader, Kind};
use crate::file::owner_only;
use crate::mapping::Mapping;
use crate::writer::{self, End, Writer};

const MAGIC: [u8; 8] = *b"GPVTOPN2";
const CONTENT_AT: usize = 64;
const TRACE_AT: usize = 8;
/// Length of the content and its sum, in one word: it is published by one store.
const COMMITTED_AT: usize = 16;
const DROPPED_AT: usize = 24;
/// What is between is the block's own, and checked by the CRC32C behind it.
const BLOCK_AT: usize = 32;
const BLOCK_CRC_AT: usize = 56;
/// Why the recording stopped: an error number of the system.
const ERROR_AT: usize = 60;

/// At first: a full block and a message of the greatest length.
const CONTENT_BYTES: usize = 256 * 1024 - CONTENT_AT;

/// Where the open block of a trace is.
pub(crate) fn path_of(trace: &Path) -> PathBuf {
    crate::file::beside(trace, ".open")
}

/// See the module. A flight recorder's is nobody's but its own.
pub(crate) struct Staging {
    path: Option<PathBuf>,
    file: File,
    mapping: Mapping,
    end: End,
}

impl Staging {
    pub fn create(trace_path: &Path, trace: u64) -> io::Result<Staging> {
        let path = path_of(trace_path);
        // Another program may have one of this name mapped, of a trace that it lost: its pages are left to it.
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let file = owner_only().create_new(true).open(&path)?;
        let mut staging = Staging::over(file, Some(path))?;
        staging.mapping.write(TRACE_AT, &trace.to_le_bytes());
        staging.mapping.write(0, &MAGIC);
        Ok(staging)
    }

    /// In memory alone.
    pub fn in_memory() -> io::Result<Staging> {
        let memory = rustix::fs::memfd_create("gpupv-open-block", MemfdFlags::CLOEXEC)?;
        Staging::over(memory.into(), None)
    }

    fn over(file: File, path: Option<PathBuf>) -> io::Result<Staging> {
        let mapping = Mapping::new(&file, CONTENT_AT + CONTENT_BYTES)?;
        Ok(Staging { path, file, mapping, end: End::default() })
    }

    /// A new block begins. What the last one had is forgotten: it is written.
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

    /// Appends the content to what is there.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        self.mapping.copy_to(CONTENT_AT..CONTENT_AT + self.length(), out);
    }

    /// Nothing is in the block here; who reads the file has it until the next one begins.
    pub fn forget(&mut self) {
        self.end = End::default();
    }

    /// What `write` writes, so many bytes at most, becomes a part of the block if it says so: as a whole or not at all.
    #[inline(always)]
    pub fn record(&mut self, bytes_max: usize, write: impl FnOnce(&mut Writer) -> bool) -> io::Result<bool> {
        // The last store may be longer than the record: what is behind the length is nobody's.
        let end = CONTENT_AT + self.length() + bytes_max + 8;
        if end > self.mapping.length() {
            self.grow(end)?;
        }
        let mut pen = Writer::new(self.mapping.window(CONTENT_AT), self.end);
        let is_kept = write(&mut pen);
        if is_kept {
            self.end = pen.end();
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

    /// So many steps after the block could not be recorded, because of an error with this number.
    pub fn dropped(&mut self, steps: u64, error: i32) {
        self.mapping.write(ERROR_AT, &error.to_le_bytes());
        self.mapping.publish(DROPPED_AT, steps);
    }

    /// The trace has everything.
    pub fn remove(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What was in the open block of a trace when its recorder was killed, or is while it runs.
pub(crate) struct Staged {
    /// As it would be if the block had been written; how many steps it has, and its last time, nobody counted.
    pub header: BlockHeader,
    pub content: Vec<u8>,
    pub dropped: u64,
    pub error: i32,
}

/// What is beside a trace.
pub(crate) enum Beside {
    Open(Staged),
    /// An open block of a trace with this number that cannot be read, and the block's number if that can.
    Unreadable {
        trace: u64,
        number: Option<u32>,
        why: &'static str,
    },
}

const DAMAGED: &str = "the open block beside it is damaged";
const OTHER_VERSION: &str = "the open block beside it is damaged, or of another version of gpupv";

/// The open block beside a trace, if there is any. A recorder may be at work in it.
pub(crate) fn read(trace_path: &Path) -> Option<Beside> {
    // It changes while it is read only if a recorder is at work, and then seldom.
    const ATTEMPTS: u32 = 100;
    let path = path_of(trace_path);
    let mut found = None;
    for _ in 0..ATTEMPTS {
        found = parse(&std::fs::read(&path).ok()?);
        if !matches!(found, Some(Beside::Unreadable { .. })) {
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

/// Nothing, if it has nothing or is too short to be anything.
fn parse(bytes: &[u8]) -> Option<Beside> {
    let trace = long(bytes, TRACE_AT)?;
    let is_sound =
        |bytes: &&[u8]| word(bytes, BLOCK_CRC_AT) == Some(crc32c::crc32c(&bytes[BLOCK_AT..BLOCK_CRC_AT]));
    let checked = Some(bytes).filter(|bytes| bytes.len() >= CONTENT_AT).filter(is_sound);
    let unreadable = |why| {
        let number = checked.and_then(|bytes| word(bytes, BLOCK_AT));
        Some(Beside::Unreadable { trace, number, why })
    };
    match long(bytes, 0)?.to_le_bytes() {
        MAGIC => {}
        // Its recorder did not come to the first block.
        [0, ..] => return None,
        _ => return unreadable(OTHER_VERSION),
    }
    let (Some(committed), Some(dropped)) = (long(bytes, COMMITTED_AT), long(bytes, DROPPED_AT)) else {
        return unreadable(DAMAGED);
    };
    let (length, expected) = (committed as u32, (committed >> 32) as u32);
    if length == 0 && dropped == 0 {
        return None;
    }
    match checked.and_then(|bytes| staged(bytes, trace, length)) {
        Some(staged) if length == 0 || writer::sum_of(&staged.content) == expected => {
            Some(Beside::Open(staged))
        }
        _ => unreadable(DAMAGED),
    }
}

fn staged(bytes: &[u8], trace: u64, length: u32) -> Option<Staged> {
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
    Some(Staged { header, content: content.to_vec(), dropped, error })
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
                let write = |pen: &mut Writer| {
                    pen.slice(&record[..count]);
                    is_kept
                };
                assert_eq!(staging.record(length, write).unwrap(), is_kept);
            }
            expected.extend_from_slice(record);
            let Some(Beside::Open(staged)) = read(&path) else { panic!("it is there") };
            assert_eq!(staged.content, expected);
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
            let write = |pen: &mut Writer| {
                pen.slice(&record);
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
