//! Framing: a varint length, then that many bytes of one message.
//!
//! [`FrameBuffer`] collects bytes from a stream and yields complete frames without copying them out; [`append`] writes
//! one. A frame that is too long is refused as soon as its length is known.

use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

use crate::bulk::{Bulk, Pieces};
use crate::limits::FRAME_BYTES_MAX;
pub use crate::wire::{append_call, read_short_call};

/// The longest varint.
pub const LENGTH_BYTES_MAX: usize = 10;

/// Why a stream cannot be read any further: the frame boundary is lost, or the message is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {length} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLong { length: u64 },
    #[error("frame length is not a varint")]
    BadLength,
    #[error("frame is not a message: {0}")]
    BadMessage(String),
}

/// A message is longer than its receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message of {bytes} bytes is over the limit of {FRAME_BYTES_MAX} (GPV-009)")]
pub struct TooLong {
    pub bytes: usize,
}

/// Appends one message with its length to `bytes`.
pub fn append<M: Message>(message: &M, bytes: &mut Vec<u8>) {
    append_encoded(message.encoded_len(), bytes, |bytes| message.encode_raw(bytes));
}

/// Appends the bytes that `encode` writes, behind their number.
pub(crate) fn append_encoded(length: usize, bytes: &mut Vec<u8>, encode: impl FnOnce(&mut Bulk<'_>)) {
    bytes.reserve(length + LENGTH_BYTES_MAX);
    let mut bytes = Bulk(bytes);
    encode_varint(length as u64, &mut bytes);
    encode(&mut bytes);
}

/// Decodes one message; `FrameError::BadMessage` says what is wrong with it.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, FrameError> {
    M::decode(Pieces(bytes)).map_err(|error| FrameError::BadMessage(error.to_string()))
}

/// Received bytes of a stream that are not read as frames yet.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

/// The lengths of the next frame's prefix and body in `bytes`; `None` if the prefix is incomplete.
fn next_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    // By far the most common end of a batch; prost would allocate an error for it.
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut rest = bytes;
    let Ok(length) = decode_varint(&mut rest) else {
        // Either cut off (wait for more) or no varint at all.
        return if bytes.len() >= LENGTH_BYTES_MAX || bytes.iter().any(|byte| byte & 0x80 == 0) {
            Err(FrameError::BadLength)
        } else {
            Ok(None)
        };
    };
    if length > FRAME_BYTES_MAX as u64 {
        return Err(FrameError::TooLong { length });
    }
    Ok(Some((bytes.len() - rest.len(), length as usize)))
}

/// The length of the first frame in `bytes`, with its prefix; `None` if the prefix is incomplete.
pub fn first_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    Ok(next_length(bytes)?.map(|(prefix, length)| prefix + length))
}

impl FrameBuffer {
    /// Appends received bytes of the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.tail(bytes.len()).extend_from_slice(bytes);
    }

    /// Bytes that the incomplete frame lacks; 0 if there is none, or its length is not known yet.
    pub fn missing(&self) -> usize {
        // A bad prefix is reported by `next_frame`.
        match next_length(&self.bytes[self.start..]) {
            Ok(Some((prefix, length))) => (prefix + length).saturating_sub(self.pending()),
            Ok(None) | Err(_) => 0,
        }
    }

    /// The buffer to append received bytes to, behind those that it holds. It has room for at least `bytes`, and for
    /// the rest of an incomplete frame, so that a big frame takes few reads and moves once.
    pub fn tail(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.reclaim();
        let room = bytes.max(self.missing());
        self.bytes.reserve(room);
        &mut self.bytes
    }

    fn reclaim(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > 64 * 1024 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// The next complete frame, without its length; `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some((prefix, length)) = next_length(&self.bytes[self.start..])? else { return Ok(None) };
        let body = self.start + prefix;
        if self.bytes.len() < body + length {
            return Ok(None);
        }
        self.start = body + length;
        Ok(Some(&self.bytes[body..body + length]))
    }

    /// Skips one empty frame, if it is next; true if it was.
    pub fn skip_empty(&mut self) -> bool {
        let is_empty = self.bytes.get(self.start) == Some(&0);
        self.start += usize::from(is_empty);
        is_empty
    }

    /// Bytes that were not returned as frames yet.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Frees memory that is far more than what is pending takes: an idle stream keeps at most a page.
    pub fn release(&mut self) {
        const KEPT_BYTES: usize = 4096;
        let pending = self.pending();
        if pending == 0 && self.bytes.capacity() > KEPT_BYTES {
            *self = FrameBuffer::default();
        } else if self.bytes.capacity() > 4 * pending.max(KEPT_BYTES) {
            self.bytes = Vec::from(&self.bytes[self.start..]);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FrameBuffer;

    #[test]
    fn a_large_frame_leaves_no_memory_behind_though_the_next_one_has_begun() {
        let mut buffer = FrameBuffer::default();
        let large = vec![7; 100_000];
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(large.len() as u64, &mut bytes);
        bytes.extend(&large);
        bytes.push(9);
        buffer.extend(&bytes[..60_000]);
        buffer.release();
        assert!(buffer.bytes.capacity() >= 60_000, "most of it is pending");
        buffer.extend(&bytes[60_000..]);
        assert_eq!(buffer.next_frame().unwrap(), Some(&large[..]));
        buffer.release();
        assert!(buffer.bytes.capacity() <= 16, "{} bytes for 1 that is pending", buffer.bytes.capacity());
        assert_eq!(buffer.next_frame(), Ok(None));
        assert_eq!(buffer.pending(), 1);
        buffer.extend(&[1; 9]);
        assert_eq!(buffer.next_frame().unwrap(), Some(&[1; 9][..]));
    }
}
