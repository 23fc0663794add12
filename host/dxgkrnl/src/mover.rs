//! Does what [`DataMove`] says: for whoever runs a kernel over memory that it can reach. The model itself sees no byte.
//!
//! Bytes go in pieces through a buffer of its own, which the cache holds, so a move of any size needs no more memory;
//! where source and target overlap, the pieces come in the order in which nothing is overwritten before it is read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use crate::ProcessId;
use crate::moves::{DataMove, MoveKernel, Place, Shadow};

/// Bytes of a piece: a multiple of a word.
const PIECE_BYTES: u64 = 64 * 1024;
/// Bytes that one shadow may have. Drivers bound what their engines hold; this keeps a wrong one from using up the host.
pub const SHADOW_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The memory of processes, by addresses of their own.
pub trait ProcessMemory {
    /// Why a range cannot be reached.
    type Error;

    /// Fills `bytes` with what is at the address and behind it.
    fn read(&self, process: ProcessId, address: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Stores all of `bytes` there, or as much as comes before the first that cannot be reached.
    fn write(&mut self, process: ProcessId, address: u64, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// Why a move was not done, or not to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MoveError<E> {
    Memory(E),
    /// A place is beyond all addresses, or a shadow beyond [`SHADOW_BYTES_MAX`].
    Beyond(Place),
}

impl<E: fmt::Display> fmt::Display for MoveError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::Memory(error) => error.fmt(f),
            MoveError::Beyond(place) => write!(f, "{place} is out of range"),
        }
    }
}

/// The shadows there are, and the room for a piece.
#[derive(Default, Debug)]
pub struct Mover {
    shadows: BTreeMap<Shadow, Vec<u8>>,
    piece: Vec<u8>,
    there: Vec<u8>,
}

impl Mover {
    /// Shadows that are not released.
    pub fn shadows(&self) -> usize {
        self.shadows.len()
    }

    /// Does one move.
    pub fn perform<P: ProcessMemory>(
        &mut self,
        memory: &mut P,
        one: &DataMove,
    ) -> Result<(), MoveError<P::Error>> {
        match *one {
            DataMove::Copy { from, to, bytes } => self.in_pieces(memory, from, to, bytes, None),
            DataMove::Compute { kernel, from, to, bytes, operand } => {
                self.in_pieces(memory, from, to, bytes, Some((kernel, operand)))
            }
            DataMove::Fill { to, bytes, pattern } => self.fill(memory, to, bytes, pattern),
            DataMove::Release { shadow } => {
                self.shadows.remove(&shadow);
                Ok(())
            }
            DataMove::ReleaseAll { adapter } => {
                self.shadows.retain(|shadow, _| shadow.adapter != adapter);
                Ok(())
            }
        }
    }

    fn in_pieces<P: ProcessMemory>(
        &mut self,
        memory: &mut P,
        from: Place,
        to: Place,
        bytes: u64,
        compute: Option<(MoveKernel, u32)>,
    ) -> Result<(), MoveError<P::Error>> {
        let (mut piece, mut there) = (core::mem::take(&mut self.piece), core::mem::take(&mut self.there));
        let backwards = is_behind(to, from);
        let mut moved = 0;
        let mut result = Ok(());
        while moved < bytes && result.is_ok() {
            let length = PIECE_BYTES.min(bytes - moved);
            let offset = if backwards { bytes - moved - length } else { moved };
            piece.resize(length as usize, 0);
            result = self.read(memory, from, offset, &mut piece).and_then(|()| {
                if let Some((kernel, operand)) = compute {
                    there.resize(length as usize, 0);
                    self.read(memory, to, offset, &mut there)?;
                    apply(kernel, operand, &mut piece, &there);
                }
                self.write(memory, to, offset, &piece)
            });
            moved += length;
        }
        (self.piece, self.there) = (piece, there);
        result
    }

    fn fill<P: ProcessMemory>(
        &mut self,
        memory: &mut P,
        to: Place,
        bytes: u64,
        pattern: u32,
    ) -> Result<(), MoveError<P::Error>> {
        let mut piece = core::mem::take(&mut self.piece);
        piece.clear();
        let words = PIECE_BYTES.min(bytes).div_ceil(4) as usize;
        piece.extend(core::iter::repeat_n(pattern.to_le_bytes(), words).flatten());
        let mut result = Ok(());
        for offset in (0..bytes).step_by(PIECE_BYTES as usize) {
            let length = PIECE_BYTES.min(bytes - offset) as usize;
            result = self.write(memory, to, offset, &piece[..length]);
            if result.is_err() {
                break;
            }
        }
        self.piece = piece;
        result
    }

    fn read<P: ProcessMemory>(
        &self,
        memory: &P,
        place: Place,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), MoveError<P::Error>> {
        match place {
            Place::Memory { process, address } => {
                let address = address.checked_add(offset).ok_or(MoveError::Beyond(place))?;
                memory.read(process, address, bytes).map_err(MoveError::Memory)
            }
            Place::Shadow { shadow, .. } => {
                let (start, end) = shadow_range(place, offset, bytes.len())?;
                let held = self.shadows.get(&shadow).map_or(&[][..], Vec::as_slice);
                let there = held.get(start.min(held.len())..end.min(held.len())).unwrap_or_default();
                bytes[..there.len()].copy_from_slice(there);
                bytes[there.len()..].fill(0);
                Ok(())
            }
        }
    }

    fn write<P: ProcessMemory>(
        &mut self,
        memory: &mut P,
        place: Place,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), MoveError<P::Error>> {
        match place {
            Place::Memory { process, address } => {
                let address = address.checked_add(offset).ok_or(MoveError::Beyond(place))?;
                memory.write(process, address, bytes).map_err(MoveError::Memory)
            }
            Place::Shadow { shadow, .. } => {
                let (start, end) = shadow_range(place, offset, bytes.len())?;
                let held = self.shadows.entry(shadow).or_default();
                if held.len() < end {
                    held.resize(end, 0);
                }
                held[start..end].copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}

/// The target begins inside of the source: what is last goes first.
fn is_behind(to: Place, from: Place) -> bool {
    match (to, from) {
        (Place::Memory { process, address }, Place::Memory { process: other, address: source }) => {
            process == other && address > source
        }
        (Place::Shadow { shadow, offset }, Place::Shadow { shadow: other, offset: source }) => {
            shadow == other && offset > source
        }
        (Place::Memory { .. }, Place::Shadow { .. }) | (Place::Shadow { .. }, Place::Memory { .. }) => false,
    }
}

fn shadow_range<E>(place: Place, offset: u64, length: usize) -> Result<(usize, usize), MoveError<E>> {
    let Place::Shadow { offset: start, .. } = place else { return Err(MoveError::Beyond(place)) };
    let start = start.checked_add(offset).ok_or(MoveError::Beyond(place))?;
    let end = start.checked_add(length as u64).filter(|end| *end <= SHADOW_BYTES_MAX);
    Ok((start as usize, end.ok_or(MoveError::Beyond(place))? as usize))
}

fn apply(kernel: MoveKernel, operand: u32, words: &mut [u8], there: &[u8]) {
    for (word, there) in words.chunks_exact_mut(4).zip(there.chunks_exact(4)) {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        word.copy_from_slice(&kernel.apply(number(word), number(there), operand).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const P: ProcessId = ProcessId(1);
    const BASE: u64 = 0x1000;
    const SHADOW: Shadow = Shadow { adapter: 0, number: 1 };

    /// One process's bytes, from [`BASE`] on.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn range(&self, process: ProcessId, address: u64, length: usize) -> Result<usize, &'static str> {
            let start = address.checked_sub(BASE).ok_or("below")? as usize;
            let inside = process == P && start + length <= self.0.len();
            inside.then_some(start).ok_or("not there")
        }
    }

    impl ProcessMemory for Bytes {
        type Error = &'static str;

        fn read(&self, process: ProcessId, address: u64, bytes: &mut [u8]) -> Result<(), Self::Error> {
            let start = self.range(process, address, bytes.len())?;
            bytes.copy_from_slice(&self.0[start..start + bytes.len()]);
            Ok(())
        }

        fn write(&mut self, process: ProcessId, address: u64, bytes: &[u8]) -> Result<(), Self::Error> {
            let start = self.range(process, address, bytes.len())?;
            self.0[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn at(offset: u64) -> Place {
        Place::Memory { process: P, address: BASE + offset }
    }

    fn shadow(offset: u64) -> Place {
        Place::Shadow { shadow: SHADOW, offset }
    }

    fn counted(length: usize) -> Bytes {
        Bytes((0..length).map(|at| (at * 7 + at / 256) as u8).collect())
    }

    #[test]
    fn a_copy_reads_all_before_it_writes_anything_however_the_two_overlap() {
        let length = 5 * PIECE_BYTES as usize / 2;
        for (from, to) in [(0, 100), (100, 0), (0, PIECE_BYTES + 4), (PIECE_BYTES + 4, 0), (7, 7)] {
            let (mut memory, mut mover) = (counted(length + 2 * PIECE_BYTES as usize), Mover::default());
            let source = memory.0[from as usize..from as usize + length].to_vec();
            let copy = DataMove::Copy { from: at(from), to: at(to), bytes: length as u64 };
            mover.perform(&mut memory, &copy).unwrap();
            assert_eq!(memory.0[to as usize..to as usize + length], source, "{from} to {to}");
        }
    }

    #[test]
    fn every_kernel_computes_word_by_word_from_what_was_there_before() {
        let words = 3 * PIECE_BYTES as usize / 4 + 5;
        for (kernel, shift) in MoveKernel::ALL.into_iter().flat_map(|kernel| [(kernel, 0), (kernel, 8)]) {
            let (mut memory, mut mover) = (counted(4 * words + 8), Mover::default());
            let before = memory.0.clone();
            let word = |at: usize| u32::from_le_bytes(before[at..at + 4].try_into().unwrap());
            let compute = DataMove::Compute {
                kernel,
                from: at(0),
                to: at(shift),
                bytes: 4 * words as u64,
                operand: 0x8000_0001,
            };
            mover.perform(&mut memory, &compute).unwrap();
            for index in 0..words {
                let target = 4 * index + shift as usize;
                let expected = kernel.apply(word(4 * index), word(target), 0x8000_0001);
                assert_eq!(memory.0[target..target + 4], expected.to_le_bytes(), "{kernel} word {index}");
            }
        }
    }

    #[test]
    fn a_shadow_begins_as_zeros_keeps_what_is_written_and_ends() {
        let (mut memory, mut mover) = (counted(64), Mover::default());
        let steps = [
            DataMove::Copy { from: at(0), to: shadow(8), bytes: 8 },
            DataMove::Copy { from: shadow(4), to: at(32), bytes: 16 },
        ];
        let first = memory.0[..8].to_vec();
        steps.iter().for_each(|one| mover.perform(&mut memory, one).unwrap());
        assert_eq!(memory.0[32..36], [0; 4]);
        assert_eq!(memory.0[36..44], first);
        assert_eq!(memory.0[44..48], [0; 4]);
        assert_eq!(mover.shadows(), 1);
        mover.perform(&mut memory, &DataMove::ReleaseAll { adapter: 1 }).unwrap();
        assert_eq!(mover.shadows(), 1, "another adapter's");
        mover.perform(&mut memory, &DataMove::Release { shadow: SHADOW }).unwrap();
        assert_eq!(mover.shadows(), 0);
    }

    #[test]
    fn a_fill_repeats_its_pattern_to_the_last_byte() {
        let (mut memory, mut mover) = (counted(3 * PIECE_BYTES as usize), Mover::default());
        let bytes = 2 * PIECE_BYTES + 12;
        mover.perform(&mut memory, &DataMove::Fill { to: at(4), bytes, pattern: 0x0403_0201 }).unwrap();
        let (filled, rest) = memory.0[4..].split_at(bytes as usize);
        assert!(filled.chunks_exact(4).all(|word| word == [1, 2, 3, 4]));
        assert_eq!(rest[0], counted(3 * PIECE_BYTES as usize).0[4 + bytes as usize]);
    }

    #[test]
    fn what_cannot_be_reached_is_an_error_and_not_a_panic() {
        let (mut memory, mut mover) = (counted(16), Mover::default());
        let copy = |from, to| DataMove::Copy { from, to, bytes: 8 };
        let mut errors = vec![];
        for one in [
            copy(at(12), at(0)),
            copy(at(0), at(12)),
            copy(Place::Memory { process: P, address: u64::MAX - 2 }, at(0)),
            copy(at(0), shadow(SHADOW_BYTES_MAX - 4)),
            copy(at(0), shadow(u64::MAX)),
        ] {
            errors.push(mover.perform(&mut memory, &one).unwrap_err());
        }
        assert_eq!(errors[..2], [MoveError::Memory("not there"), MoveError::Memory("not there")]);
        assert_eq!(errors[3], MoveError::Beyond(shadow(SHADOW_BYTES_MAX - 4)));
        assert_eq!(errors[4], MoveError::Beyond(shadow(u64::MAX)));
        assert_eq!(memory.0, counted(16).0);
    }
}
