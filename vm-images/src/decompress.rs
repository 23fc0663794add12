//! Decompresses kernels and modules. The first bytes identify the compression.

use std::io::{self, Read};

use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use crate::limits::DECOMPRESSED_BYTES_MAX;

/// Kernels of Debian 12, in the legacy LZ4 frame, the only one that the kernel's build uses.
const LZ4_MAGIC: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
/// Modules of Debian 13.
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
/// Kernels of Debian 13 and Ubuntu 24.04, and modules of the latter.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// `bytes` decompressed; unchanged if they are not compressed.
pub(crate) fn decompressed(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let packed = bytes.as_slice();
    let decoder: Box<dyn Read> = if packed.starts_with(LZ4_MAGIC) {
        Box::new(FrameDecoder::new(packed))
    } else if packed.starts_with(XZ_MAGIC) {
        Box::new(XzReader::new(packed, false))
    } else if packed.starts_with(ZSTD_MAGIC) {
        Box::new(StreamingDecoder::new(packed).map_err(io::Error::other)?)
    } else {
        return Ok(bytes);
    };
    read_at_most(decoder, DECOMPRESSED_BYTES_MAX)
}

fn read_at_most(reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    reader.take(bytes_max + 1).read_to_end(&mut output)?;
    if output.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it holds more than {bytes_max} bytes")));
    }
    Ok(output)
}

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
