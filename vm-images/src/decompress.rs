//! Decompresses kernels and modules. The first bytes identify the compression.
//!
//! LZ4 is implemented here, because Debian's kernel uses it and a fresh machine has no tool for it. It has tools for
//! the others.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::command::find_on_path;
use crate::error::{Error, Result};
use crate::limits::DECOMPRESSED_BYTES_MAX;
use crate::requirements::Mend;

/// The legacy LZ4 frame, the only one the kernel's build uses: this magic, then blocks of "u32 size, data".
const LZ4_MAGIC: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
/// Magic bytes, tool, and the tool's package.
const TOOLS: [(&[u8], &str, &str); 3] = [
    (&[0x1f, 0x8b], "gzip", "gzip"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz-utils"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd"),
];

/// `bytes` decompressed; unchanged if they are not compressed.
pub(crate) fn decompressed(bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.starts_with(LZ4_MAGIC) {
        return lz4_frame(&bytes).ok_or_else(|| Error::CommandFailed {
            command: "LZ4 decompression".to_owned(),
            status: "the data is damaged".to_owned(),
            output: String::new(),
        });
    }
    match TOOLS.iter().find(|(magic, _, _)| bytes.starts_with(magic)) {
        Some((_, tool, package)) => through_tool(&bytes, tool, package),
        None => Ok(bytes),
    }
}

fn through_tool(bytes: &[u8], tool: &str, package: &str) -> Result<Vec<u8>> {
    let path = find_on_path(tool).ok_or_else(|| Error::ProgramMissing {
        program: tool.to_owned(),
        mend: Mend::install(&[package]).to_string(),
    })?;
    let command = format!("{tool} -dc");
    let failed = |source| Error::CommandStart { command: command.clone(), source };
    let mut process = Command::new(path);
    process.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn().map_err(failed)?;
    let input = child.stdin.take();
    let done = std::thread::scope(|scope| {
        // A tool that stops reading prints the reason; the error of the broken pipe adds nothing.
        scope.spawn(move || input.map(|mut input| input.write_all(bytes)));
        child.wait_with_output()
    });
    let done = done.map_err(failed)?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let output = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(Error::CommandFailed { command, status: done.status.to_string(), output })
}

fn lz4_frame(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes.strip_prefix(LZ4_MAGIC)?;
    let mut output = Vec::new();
    while let Some((size, after)) = rest.split_first_chunk::<4>() {
        let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        lz4_block(after.get(..size)?, &mut output)?;
        rest = &after[size..];
    }
    rest.is_empty().then_some(output)
}

/// A block is sequences: a token (literal length, match length), literals, and a two-byte distance to copy from.
/// The last sequence has literals only. Distances do not reach before the block.
fn lz4_block(mut input: &[u8], output: &mut Vec<u8>) -> Option<()> {
    let block_start = output.len();
    while let Some((&token, after)) = input.split_first() {
        input = after;
        let literals = lz4_length(token >> 4, &mut input)?;
        if output.len().checked_add(literals)? > DECOMPRESSED_BYTES_MAX {
            return None;
        }
        output.extend_from_slice(input.get(..literals)?);
        input = &input[literals..];
        let Some((distance, after)) = input.split_first_chunk::<2>() else { break };
        input = after;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let length = lz4_length(token & 15, &mut input)?.checked_add(4)?;
        let from = output.len().checked_sub(distance).filter(|&from| from >= block_start && distance > 0)?;
        if output.len().checked_add(length)? > DECOMPRESSED_BYTES_MAX {
            return None;
        }
        copy_within(output, from, length);
    }
    input.is_empty().then_some(())
}

/// Fifteen means that further bytes are added, up to one below 255.
fn lz4_length(nibble: u8, input: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let (&byte, after) = input.split_first()?;
            *input = after;
            length = length.checked_add(usize::from(byte))?;
            if byte < 255 {
                break;
            }
        }
    }
    Some(length)
}

/// Source and destination may overlap: what was just copied is then copied again.
fn copy_within(output: &mut Vec<u8>, from: usize, length: usize) {
    let end = output.len() + length;
    while output.len() < end {
        let count = (output.len() - from).min(end - output.len());
        output.extend_from_within(from..from + count);
    }
}

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
