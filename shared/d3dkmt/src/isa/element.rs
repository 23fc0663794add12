//! Arrays of fixed-size elements inside a packet: read where they stand, without a copy.

use super::IsaError;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// Element of an array in a packet.
pub trait Element: Copy + PartialEq + Eq + fmt::Debug + 'static {
    /// A multiple of 8.
    const BYTES: usize;
    /// Decodes an element from exactly that many bytes.
    fn read(bytes: &[u8]) -> Self;
    fn write(&self, out: &mut Vec<u8>);
    /// Checks words that may not have every value; `offset` is the position of the bytes in the command buffer.
    fn check(_bytes: &[u8], _offset: usize) -> Result<(), IsaError> {
        Ok(())
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn push(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// An array in a command buffer.
pub struct Elements<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<'a, T: Element> Elements<'a, T> {
    /// Consecutive elements in `bytes`, which are at `offset` of the command buffer.
    pub(super) fn new(bytes: &'a [u8], offset: usize) -> Result<Self, IsaError> {
        for (number, element) in bytes.chunks_exact(T::BYTES).enumerate() {
            T::check(element, offset + number * T::BYTES)?;
        }
        Ok(Elements { bytes, of: PhantomData })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + Clone + use<'a, T> {
        self.bytes.chunks_exact(T::BYTES).map(T::read)
    }
}

impl<T> Clone for Elements<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<'_, T> {}

impl<T> PartialEq for Elements<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Elements<'_, T> {}

impl<T: Element> fmt::Debug for Elements<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
