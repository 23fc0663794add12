//! Framing: a varint length, then that many bytes of one message.
//!
//! [`FrameBuffer`] collects bytes from a stream and yields whole frames without copying them out;
//! [`append`] writes one. A frame that is too long is known from its first bytes and refused there.

use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

use crate::bulk::{Bulk, Pieces};
use crate::limits::FRAME_BYTES_MAX;

/// Of a varint.
const LENGTH_BYTES_MAX: usize = 10;

/// Why a stream cannot be read on: the frame boundary is lost or the message is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {length} bytes is over the limit of {FRAME_BYTES_MAX}")]
    TooLong { length: u64 },
    #[error("frame length is not a varint")]
    BadLength,
    #[error("frame is not a message: {0}")]
    BadMessage(String),
}

/// Appends one message with its length to `bytes`.
pub fn append<M: Message>(message: &M, bytes: &mut Vec<u8>) {
    let length = message.encoded_len();
    bytes.reserve(length + LENGTH_BYTES_MAX);
    let mut bytes = Bulk(bytes);
    encode_varint(length as u64, &mut bytes);
    message.encode_raw(&mut bytes);
}

/// Decodes one message; `FrameError::BadMessage` says what is wrong with it.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, FrameError> {
    M::decode(Pieces(bytes)).map_err(|error| FrameError::BadMessage(error.to_string()))
}

/// Bytes of a stream on their way to being frames.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

/// The place of the next frame in `bytes`: how long its prefix is and how long it is.
fn next_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    // By far the commonest end of a batch, and an error of prost's is in memory of its own.
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

impl FrameBuffer {
    /// Takes more bytes of the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.tail(bytes.len()).extend_from_slice(bytes);
    }

    /// Bytes that are still to come of the frame under way; 0 if there is none, or its length is not known yet.
    pub fn missing(&self) -> usize {
        // What is wrong with a prefix is said when the frame is asked for.
        match next_length(&self.bytes[self.start..]) {
            Ok(Some((prefix, length))) => (prefix + length).saturating_sub(self.pending()),
            Ok(None) | Err(_) => 0,
        }
    }

    /// Where more bytes of the stream are to be put: at the end of it, without touching what is there. It has room for
    /// `bytes` at least, and for what is missing of a frame under way, so that a big one takes few reads and moves once.
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

    /// The next whole frame, without its length; `None` until more bytes come.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some((prefix, length)) = next_length(&self.bytes[self.start..])? else { return Ok(None) };
        let body = self.start + prefix;
        if self.bytes.len() < body + length {
            return Ok(None);
        }
        self.start = body + length;
        Ok(Some(&self.bytes[body..body + length]))
    }

    /// Bytes held that are not a whole frame yet.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Gives memory back when nothing is pending: an idle stream keeps a page at most.
    pub fn release(&mut self) {
        const KEPT_BYTES: usize = 4096;
        if self.pending() == 0 && self.bytes.capacity() > KEPT_BYTES {
            *self = FrameBuffer::default();
        }
    }
}
