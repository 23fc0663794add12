//! Messages with large data are written and read in pieces.
//!
//! Encoded data land a few bytes after their offset in the source page, because the frame's header precedes them. The C
//! library copies 4 KiB and more by `rep movsb`. If the target is 1 to 63 bytes ahead of its source within a page, Zen
//! 3 does that at 3 GB/s instead of 50 (glibc bug 30994). Smaller pieces it copies by vectors. An escape with 64 KiB
//! took twice the time. Decoded data have a similar offset: the target is 12 bytes ahead of the field,
//! because two consecutive blocks of whole pages are 16 bytes apart. Fields with large data are `Bytes` (build.rs):
//! prost copies those once, and a Vec twice.
#![expect(unsafe_code, reason = "BufMut is an unsafe trait")]

use prost::bytes::buf::UninitSlice;
use prost::bytes::{Buf, BufMut, Bytes};

/// The size of a piece: below the size at which the C library uses `rep movsb`.
pub const PIECE_BYTES: usize = 2048;

/// How many bytes to copy at once from one address to another.
#[inline]
pub fn piece_bytes(from: usize, to: usize) -> usize {
    if (1..64).contains(&(to.wrapping_sub(from) % 4096)) { PIECE_BYTES } else { usize::MAX }
}

/// The bytes that are left to be decoded.
pub(crate) struct Pieces<'a>(pub &'a [u8]);

impl Buf for Pieces<'_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.0
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }

    #[inline]
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        let mut copy = Vec::with_capacity(count);
        Bulk(&mut copy).put_slice(&self.0[..count]);
        self.advance(count);
        Bytes::from(copy)
    }
}

/// The end of a Vec.
pub(crate) struct Bulk<'a>(pub &'a mut Vec<u8>);

// SAFETY: every method forwards to the Vec's own implementation.
unsafe impl BufMut for Bulk<'_> {
    #[inline]
    fn remaining_mut(&self) -> usize {
        self.0.remaining_mut()
    }

    #[inline]
    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.advance_mut(count) }
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.0.chunk_mut()
    }

    #[inline]
    fn put<T: Buf>(&mut self, mut bytes: T) {
        while bytes.has_remaining() {
            let chunk = bytes.chunk();
            self.put_slice(chunk);
            let taken = chunk.len();
            bytes.advance(taken);
        }
    }

    #[inline]
    fn put_u8(&mut self, byte: u8) {
        self.0.push(byte);
    }

    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.0.extend_from_slice(piece);
        }
    }
}
