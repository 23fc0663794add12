//! Compression of a trace: a copy with the same data and snapshots, stored deflated.
//!
//! A recorder does not compress, because deflating a block of 64 KiB takes as long as a thousand calls, which would
//! have to wait.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use prost::Message as _;
use proto::trace as wire;

use crate::block::{BlockHeader, DEFLATED, HEADER_BYTES, Kind, Written};
use crate::error::TraceError;
use crate::file::{io_error, owner_only};
use crate::index::ENTRY_FROM;
use crate::reader::Reader;
use crate::scan::BlockPosition;
use crate::stored::deflate;

/// Bytes of a trace, including its open block and the state beside it, and of its packed copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    pub before: u64,
    pub after: u64,
}

/// Offset and header of each block in the copy, by its offset in the original.
type BlockOffsets = BTreeMap<u64, (u64, [u8; HEADER_BYTES])>;

/// Writes a packed copy of a trace, including its open block and the state beside it, into a new file. Readers treat it
/// like the original.
///
/// # Errors
///
/// Fails if a part of the trace is lost, because the copy would not show it; if `to` exists; and on I/O errors.
pub fn pack(from: &Path, to: &Path) -> Result<Packed, TraceError> {
    let mut reader = Reader::open(from)?;
    let file = owner_only().create_new(true).open(to).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => TraceError::Exists(to.to_owned()),
        _ => io_error("create", to, source),
    })?;
    let packed = copy(&mut reader, BufWriter::new(file), |source| io_error("write", to, source));
    if packed.is_err() {
        // Remove the incomplete copy; the first error is returned.
        let _ = std::fs::remove_file(to);
    }
    packed
}

fn copy(
    reader: &mut Reader,
    out: BufWriter<File>,
    failed: impl Fn(io::Error) -> TraceError,
) -> Result<Packed, TraceError> {
    let mut written = Written::new(out);
    let (mut moved, mut before) = (BlockOffsets::new(), 0);
    let (mut state, has_end) = (reader.open_state()?, reader.has_end());
    let is_incomplete = reader.missing_open_block().is_some();
    let mut last = None;
    reader.each_block(|position, content| {
        if position.header.kind != Kind::Header
            && let Some(mut state) = state.take()
        {
            before += copy_state(&mut state, &mut written, position.header.trace, &failed)?;
        }
        last = Some(position.header);
        let offset = written.bytes();
        let header = block(&mut written, position, content, &moved).map_err(&failed)?;
        moved.insert(position.offset, (offset, header));
        before += position.bytes();
        Ok(())
    })?;
    if let (Some(mut state), Some(last)) = (state, last) {
        before += copy_state(&mut state, &mut written, last.trace, &failed)?;
    }
    if let Some(last) = last.filter(|_| !has_end && !is_incomplete) {
        let (first_step, first_ns) = (last.next_step(), last.last_ns);
        let mark = BlockHeader { kind: Kind::Complete, codec: 0, steps: 0, first_step, first_ns, ..last };
        written.block(mark, &[]).map_err(&failed)?;
    }
    let after = written.finish().map_err(&failed)?;
    Ok(Packed { before, after })
}

/// Writes the snapshot of a state file into the copy. Returns its bytes in that file.
fn copy_state(
    state: &mut Reader,
    written: &mut Written<BufWriter<File>>,
    trace: u64,
    failed: &impl Fn(io::Error) -> TraceError,
) -> Result<u64, TraceError> {
    let mut bytes = 0;
    state.each_block(|position, content| {
        if matches!(position.header.kind, Kind::Snapshot | Kind::Piece) {
            let position = BlockPosition { header: BlockHeader { trace, ..position.header }, ..*position };
            block(written, &position, content, &BlockOffsets::new()).map_err(failed)?;
            bytes += position.bytes();
        }
        Ok(())
    })?;
    Ok(bytes)
}

fn block(
    written: &mut Written<BufWriter<File>>,
    position: &BlockPosition,
    content: Vec<u8>,
    moved: &BlockOffsets,
) -> io::Result<[u8; HEADER_BYTES]> {
    let (codec, content) = match position.header.kind {
        Kind::Index => (0, index(&content, moved)?),
        Kind::Data | Kind::Snapshot | Kind::Piece if position.header.codec <= DEFLATED => {
            deflate(position.header.kind, content)
        }
        // `each_block` has inflated the content.
        _ => (if position.header.codec == DEFLATED { 0 } else { position.header.codec }, content),
    };
    written.block(BlockHeader { codec, ..position.header }, &content)
}

/// The index with the blocks' new offsets and headers.
fn index(content: &[u8], moved: &BlockOffsets) -> io::Result<Vec<u8>> {
    let wire::Index { entries, previous_index, last_snapshot } =
        wire::Index::decode(content).map_err(io::Error::other)?;
    let new_offset = |offset: u64| moved.get(&offset).map_or(0, |(offset, _)| *offset);
    let entry = |entry: wire::IndexEntry| {
        let (offset, header) = moved.get(&entry.offset)?;
        Some(wire::IndexEntry { offset: *offset, header: header[ENTRY_FROM..].to_vec(), ..entry })
    };
    let (previous_index, last_snapshot) = (new_offset(previous_index), new_offset(last_snapshot));
    let entries = entries.into_iter().filter_map(entry).collect();
    Ok(wire::Index { entries, previous_index, last_snapshot }.encode_to_vec())
}
