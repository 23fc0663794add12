//! Messages with much data are written and read piece by piece.
//!
//! What is encoded lands a few bytes behind where it was within its page: its frame's header is before it. The C
//! library copies 4 KiB and more by `rep movsb`, and with a target 1 to 63 bytes ahead of its source, pages aside, Zen
//! 3 does that at 3 GB/s instead of 50 (glibc bug 30994). Smaller pieces it copies by vectors. An escape with 64 KiB
//! there and back took twice the time. So is what is decoded: its field is 12 bytes further on than the memory for it,
//! for two blocks of whole pages that are allocated one after the other are 16 bytes apart. Fields with much data are
//! `Bytes` (build.rs): prost copies those once, and a Vec twice.
#![expect(unsafe_code, reason = "BufMut is an unsafe trait")]

use prost::bytes::buf::UninitSlice;
use prost::bytes::{Buf, BufMut, Bytes};

/// Copies of so many bytes at once are below the size from which the C library goes that way.
pub const PIECE_BYTES: usize = 2048;

/// How many bytes to copy at once from one address to another.
#[inline]
pub fn piece_bytes(from: usize, to: usize) -> usize {
    if (1..64).contains(&(to.wrapping_sub(from) % 4096)) { PIECE_BYTES } else { usize::MAX }
}

/// What is left to be decoded.
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

// SAFETY: all that there is to promise is the Vec's own.
unsafe impl BufMut for Bulk<'_> {
    #[inline]
    fn remaining_mut(&self) -> usize {
        self.0.remaining_mut()
    }

    #[inline]
    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: as the caller promises.
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
