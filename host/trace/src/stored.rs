//! A block's content as the file stores it: plain, or deflated within a limit.
//!
//! Deflate makes a thousand bytes of one. A file is nobody's friend, so a deflated block has at most [`INFLATED_TIMES`] the
//! bytes that the file has of it, and a reader unpacks no more. A writer stores plain what would have more.

use std::io;

use miniz_oxide::inflate::decompress_to_vec_with_limit;

use crate::block::{CONTENT_BYTES_MAX, DEFLATED, HEADER_BYTES, Kind};
use crate::recorder::PIECE_BYTES_MAX;
use crate::scan::{BlockPosition, Source, read_at};

const DEFLATE_LEVEL: u8 = 6;

/// How many bytes a deflated block has at most for each byte in the file, header included.
const INFLATED_TIMES: usize = 64;
/// A block has so many in any case, because steps that repeat are small. Not a piece: a snapshot has any number of them, in
/// memory at one time.
const INFLATED_BYTES_FREE: usize = 1 << 20;

/// The most content of a deflated block with so many bytes in the file.
fn inflated_max(kind: Kind, stored: usize) -> usize {
    let by_times = (HEADER_BYTES + stored).saturating_mul(INFLATED_TIMES);
    match kind {
        Kind::Piece => by_times.min(PIECE_BYTES_MAX),
        Kind::Header
        | Kind::Data
        | Kind::Snapshot
        | Kind::Index
        | Kind::End
        | Kind::Complete
        | Kind::Other(_) => by_times.clamp(INFLATED_BYTES_FREE, CONTENT_BYTES_MAX),
    }
}

/// Deflates a block's content, if that makes it smaller and a reader may unpack it. Returns the codec and the stored bytes.
pub(crate) fn deflate(kind: Kind, content: Vec<u8>) -> (u8, Vec<u8>) {
    let small = miniz_oxide::deflate::compress_to_vec(&content, DEFLATE_LEVEL);
    let is_readable = content.len() <= inflated_max(kind, small.len());
    if is_readable && small.len() < content.len() { (DEFLATED, small) } else { (0, content) }
}

/// Reads a block's content; the inner error is a text that names the block.
pub(crate) fn read_content(
    source: &mut dyn Source,
    position: &BlockPosition,
) -> io::Result<Result<Vec<u8>, String>> {
    let mut content = vec![0; position.header.length as usize];
    read_at(source, position.offset + HEADER_BYTES as u64, &mut content)?;
    let (expected, actual) = (position.header.content_crc, crc32c::crc32c(&content));
    if expected != actual {
        return Ok(Err(format!("{} has checksum {actual:#010x}, not {expected:#010x}", position.name())));
    }
    if position.header.codec != DEFLATED {
        return Ok(Ok(content));
    }
    let most = inflated_max(position.header.kind, content.len());
    Ok(decompress_to_vec_with_limit(&content, most).map_err(|error| match error.status {
        miniz_oxide::inflate::TINFLStatus::HasMoreOutput => {
            let (name, stored) = (position.name(), content.len());
            format!("{name} inflates its {stored} bytes to more than the {most} that it may have")
        }
        _ => format!("{} cannot be inflated: {error}", position.name()),
    }))
}
