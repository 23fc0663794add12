//! Appending bytes to the open block, up to eight at once by one store and one update of the checksum.

use crate::mapping::Window;

/// Longest varint.
pub(crate) const NUMBER_BYTES_MAX: usize = 10;

/// Numbers below this have eight bytes at most.
const EIGHT_BYTES_BELOW: u64 = 1 << 56;

/// Length and checksum of a block's content.
#[derive(Clone, Copy, Default)]
pub(crate) struct End {
    length: usize,
    /// The content as one little-endian number, modulo 2^64 - 1, so that it can be summed from pieces of any length. It
    /// detects content torn by a power failure. It is updated twice for each step, which would be too expensive with a
    /// CRC.
    residue: u64,
}

impl End {
    #[inline]
    pub fn length(self) -> usize {
        self.length
    }

    /// The checksum of the content, see docs/TRACE.md.
    #[inline]
    pub fn sum(self) -> u32 {
        (self.residue.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }

    /// Adds one to eight bytes; the rest of the word is 0.
    #[inline(always)]
    fn add(&mut self, bytes: u64, count: usize) {
        // 2^64 is 1 modulo 2^64 - 1.
        let (residue, carry) = self.residue.overflowing_add(bytes.rotate_left(8 * self.length as u32 % 64));
        self.residue = residue + u64::from(carry);
        self.length += count;
    }
}

/// The checksum of a block's content.
pub(crate) fn sum_of(content: &[u8]) -> u32 {
    let mut end = End::default();
    pieces(content, |bytes, count| end.add(bytes, count));
    end.sum()
}

/// Calls `piece` for each eight bytes, and for the shorter rest.
#[inline(always)]
fn pieces(bytes: &[u8], mut piece: impl FnMut(u64, usize)) {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| piece(u64::from_le_bytes(*word), 8));
    if !rest.is_empty() {
        piece(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), rest.len());
    }
}

/// Writes into the open block. The caller decides whether to commit the written bytes.
pub(crate) struct Writer<'a> {
    content: Window<'a>,
    end: End,
}

impl<'a> Writer<'a> {
    #[inline(always)]
    pub fn new(content: Window<'a>, end: End) -> Writer<'a> {
        Writer { content, end }
    }

    /// The end after the written bytes.
    #[inline(always)]
    pub fn end(&self) -> End {
        self.end
    }

    /// Appends one to eight bytes; the rest of the word is 0.
    #[inline(always)]
    pub fn bytes(&mut self, bytes: u64, count: usize) {
        self.content.write_word(self.end.length, bytes);
        self.end.add(bytes, count);
    }

    /// Appends any number of bytes.
    pub fn slice(&mut self, bytes: &[u8]) {
        pieces(bytes, |bytes, count| self.bytes(bytes, count));
    }

    /// Appends a varint.
    #[inline(always)]
    pub fn number(&mut self, value: u64) {
        if value < 0x80 {
            self.bytes(value, 1);
        } else if value < EIGHT_BYTES_BELOW {
            let (bytes, count) = varint(value);
            self.bytes(bytes, count);
        } else {
            let (bytes, rest) = (varint(value % EIGHT_BYTES_BELOW).0, value / EIGHT_BYTES_BELOW);
            self.bytes(bytes | GO_ON, 8);
            self.bytes(if rest < 0x80 { rest } else { rest | 0x80 | 1 << 8 }, 1 + usize::from(rest >= 0x80));
        }
    }

    /// Appends one or two bytes and a varint.
    #[inline(always)]
    pub fn bytes_and_number(&mut self, bytes: u64, count: usize, value: u64) {
        if value < 0x80 {
            self.bytes(bytes | value << (8 * count), count + 1);
        } else if value < 1 << 42 {
            let (number, length) = varint(value);
            self.bytes(bytes | number << (8 * count), count + length);
        } else {
            self.bytes(bytes, count);
            self.number(value);
        }
    }

    #[inline(always)]
    pub fn difference(&mut self, from: u64, to: u64) {
        self.number(zigzag(to.wrapping_sub(from)));
    }

    /// As `difference`, for numbers of 32 bits that may wrap.
    #[inline(always)]
    pub fn difference_32(&mut self, from: u32, to: u32) {
        self.number(zigzag(to.wrapping_sub(from) as i32 as u64));
    }
}

/// Bit 7 of each byte.
const GO_ON: u64 = 0x8080_8080_8080_8080;

/// A number of up to 56 bits as a varint, and its length in bytes.
#[inline(always)]
fn varint(value: u64) -> (u64, usize) {
    if value < 1 << 28 { varint_28(value as u32) } else { varint_56(value) }
}

/// As `varint`, for numbers of up to 28 bits, which almost all are.
#[inline(always)]
fn varint_28(value: u32) -> (u64, usize) {
    let bytes = value & 0x7F | (value & 0x3F80) << 1 | (value & 0x1F_C000) << 2 | (value & 0xFE0_0000) << 3;
    let last = (bytes | 1).ilog2() / 8;
    ((bytes | GO_ON as u32 & ((1 << (8 * last)) - 1)).into(), last as usize + 1)
}

#[inline(never)]
fn varint_56(value: u64) -> (u64, usize) {
    // Groups of 7 bits become bytes: halves of 28 bits first, then quarters, then eighths.
    let halves = value & 0x0FFF_FFFF | (value & 0x00FF_FFFF_F000_0000) << 4;
    let quarters = halves & 0x0000_3FFF_0000_3FFF | (halves & 0x0FFF_C000_0FFF_C000) << 2;
    let bytes = quarters & 0x007F_007F_007F_007F | (quarters & 0x3F80_3F80_3F80_3F80) << 1;
    let last = (bytes | 1).ilog2() / 8;
    (bytes | GO_ON & ((1 << (8 * last)) - 1), last as usize + 1)
}

#[inline(always)]
fn zigzag(value: u64) -> u64 {
    (value << 1) ^ ((value as i64) >> 63) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::encode_varint;

    use super::*;
    use crate::staging::Staging;

    /// The definition in docs/TRACE.md: the content is one little-endian number; its residue is 0 only if all bytes are
    /// 0.
    fn sum_by_definition(content: &[u8]) -> u32 {
        let modulus = u128::from(u64::MAX);
        let remainder =
            content.iter().rev().fold(0u128, |all, byte| (all << 8 | u128::from(*byte)) % modulus);
        let zero = if content.iter().all(|byte| *byte == 0) { 0 } else { u64::MAX };
        let residue = if remainder == 0 { zero } else { remainder as u64 };
        (residue.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }

    proptest! {
        #[test]
        fn numbers_stand_there_as_varints_and_the_sum_is_that_of_their_bytes(
            records in proptest::collection::vec(
                proptest::collection::vec((any::<u64>(), 0u32..64, 0usize..3), 0..10), 1..10)
        ) {
            let mut staging = Staging::in_memory().unwrap();
            staging.begin(0, 0, 0, 0);
            let (mut expected, mut copy, mut end) = (Vec::new(), Vec::new(), End::default());
            for numbers in records {
                for (number, shift, before) in &numbers {
                    expected.extend_from_slice(&[0xC3, 0xA5][..*before]);
                    encode_varint(number >> shift, &mut expected);
                }
                let write = |writer: &mut Writer| {
                    for (number, shift, before) in &numbers {
                        let first = 0xA5C3 & (0x100u64.pow(*before as u32) - 1);
                        match before {
                            0 => writer.number(number >> shift),
                            _ => writer.bytes_and_number(first, *before, number >> shift),
                        }
                    }
                    end = writer.end();
                    true
                };
                prop_assert!(staging.record(numbers.len() * (2 + NUMBER_BYTES_MAX), write).unwrap());
                prop_assert_eq!((staging.length(), end.length()), (expected.len(), expected.len()));
                let sum = sum_by_definition(&expected);
                prop_assert_eq!((end.sum(), sum_of(&expected)), (sum, sum));
            }
            staging.copy_to(&mut copy);
            prop_assert_eq!(copy, expected);
        }
    }

    #[test]
    fn the_sum_of_ones_alone_is_another_than_that_of_zeros() {
        for (byte, length) in [(0, 8), (0xFF, 8), (0xFF, 16), (0xFF, 24), (0xFF, 7)] {
            let content = vec![byte; length];
            assert_eq!(sum_of(&content), sum_by_definition(&content), "{byte} {length}");
        }
        assert_ne!(sum_of(&[0; 16]), sum_of(&[0xFF; 16]));
    }
}
