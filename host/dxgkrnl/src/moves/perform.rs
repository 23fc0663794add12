//! Doing what the lane of moves says, for whoever runs the kernel: it brings the bytes of processes, this has the shadows.

use alloc::vec::Vec;
use core::fmt;

use super::shadows::Shadows;
use super::shorten::{is_worth_it, shorten};
use super::{DataMove, MoveKernel, Place, Shadow};
use crate::ProcessId;

/// Bytes that go through a buffer at once.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Memory of processes that moves may touch. `false`: not all of it is there; what is there may have been touched.
pub trait ProcessBytes {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool;
    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool;

    /// As `memmove`: the two may overlap. `None`: through a buffer, by the other two.
    fn copy(&mut self, from: (ProcessId, u64), to: (ProcessId, u64), bytes: u64) -> Option<bool> {
        let _ = (from, to, bytes);
        None
    }
}

/// Why a move was not done, or not to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMoved {
    /// Memory that is not there.
    Memory { process: ProcessId, address: u64 },
    /// No shadow is that long, or there are so many.
    Shadow(Shadow),
}

impl fmt::Display for NotMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotMoved::Memory { process, address } => {
                write!(f, "memory of process {} is not all there from {address:#x} on", process.0)
            }
            NotMoved::Shadow(shadow) => write!(f, "{shadow} would be too long, or one too many"),
        }
    }
}

/// The shadows of the adapters of one kernel.
#[derive(Debug, Default)]
pub struct Performer {
    shadows: Shadows,
    buffer: Vec<u8>,
    second: Vec<u8>,
}

impl Performer {
    /// How many shadows there are: none of an engine that rests.
    pub fn shadows(&self) -> usize {
        self.shadows.count()
    }

    /// Does the moves of one step, by fewer copies where that makes no difference to any byte of a process. Gives what
    /// could not be done; what moves behind that were to write is then undefined.
    pub fn perform_all(
        &mut self,
        moves: &[DataMove],
        memory: &mut impl ProcessBytes,
        failed: &mut dyn FnMut(&DataMove, NotMoved),
    ) {
        let fewer = is_worth_it(moves).then(|| shorten(moves));
        for one in fewer.as_deref().unwrap_or(moves) {
            if let Err(why) = self.perform(one, memory) {
                failed(one, why);
            }
        }
    }

    /// Does one move.
    pub fn perform(&mut self, moved: &DataMove, memory: &mut impl ProcessBytes) -> Result<(), NotMoved> {
        match *moved {
            DataMove::Release { shadow } => {
                self.shadows.end(shadow);
                Ok(())
            }
            DataMove::ReleaseAll { adapter } => {
                self.shadows.end_all(adapter);
                Ok(())
            }
            DataMove::Fill { to, bytes, pattern } => self.fill(to, bytes, pattern, memory),
            DataMove::Copy { from, to, bytes } => self.copy(from, to, bytes, memory),
            DataMove::Compute { kernel, from, to, bytes, operand } => {
                self.compute(kernel, operand, from, to, bytes, memory)
            }
        }
    }

    fn fill(
        &mut self,
        to: Place,
        bytes: u64,
        pattern: u32,
        memory: &mut impl ProcessBytes,
    ) -> Result<(), NotMoved> {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend((0..CHUNK_BYTES.min(bytes).div_ceil(4)).flat_map(|_| pattern.to_le_bytes()));
        let done = chunks(bytes, false)
            .try_for_each(|(at, length)| self.store(ahead(to, at), &buffer[..length as usize], memory));
        self.buffer = buffer;
        done
    }

    fn copy(
        &mut self,
        from: Place,
        to: Place,
        bytes: u64,
        memory: &mut impl ProcessBytes,
    ) -> Result<(), NotMoved> {
        let there = |done, process, address| match done {
            true => Ok(()),
            false => Err(NotMoved::Memory { process, address }),
        };
        // What can be moved without the buffer is.
        match (from, to) {
            (Place::Memory { process, address }, Place::Shadow { shadow, offset }) => {
                let to = self.shadows.write(shadow, offset, bytes as usize)?;
                let done = memory.read(process, address, to);
                if !done {
                    // Nothing of another process.
                    to.fill(0);
                }
                return there(done, process, address);
            }
            (Place::Shadow { shadow, offset }, Place::Memory { process, address }) => {
                let from = self.shadows.read(shadow, offset, bytes as usize)?;
                return there(memory.write(process, address, from), process, address);
            }
            (Place::Memory { process: owner, address: source }, Place::Memory { process, address }) => {
                if let Some(done) = memory.copy((owner, source), (process, address), bytes) {
                    return there(done, process, address);
                }
            }
            (Place::Shadow { shadow: from, offset }, Place::Shadow { shadow, offset: at }) => {
                if self.shadows.share((from, offset), (shadow, at), bytes as usize) {
                    return Ok(());
                }
            }
        }
        let mut buffer = core::mem::take(&mut self.buffer);
        let done = chunks(bytes, is_behind(from, to)).try_for_each(|(at, length)| {
            buffer.resize(length as usize, 0);
            self.load(ahead(from, at), &mut buffer, memory)?;
            self.store(ahead(to, at), &buffer, memory)
        });
        self.buffer = buffer;
        done
    }

    fn compute(
        &mut self,
        kernel: MoveKernel,
        operand: u32,
        from: Place,
        to: Place,
        bytes: u64,
        memory: &mut impl ProcessBytes,
    ) -> Result<(), NotMoved> {
        let mut source = core::mem::take(&mut self.buffer);
        let mut target = core::mem::take(&mut self.second);
        let done = chunks(bytes, is_behind(from, to)).try_for_each(|(at, length)| {
            source.resize(length as usize, 0);
            self.load(ahead(from, at), &mut source, memory)?;
            if let Place::Shadow { shadow, offset } = ahead(to, at) {
                // Where they are: what is there is not copied to and fro. The read has it grow by zeros.
                self.shadows.read(shadow, offset, source.len())?;
                let there = self.shadows.write(shadow, offset, source.len())?;
                apply_to_words(kernel, operand, &source, there);
                return Ok(());
            }
            target.resize(length as usize, 0);
            self.load(ahead(to, at), &mut target, memory)?;
            apply_to_words(kernel, operand, &source, &mut target);
            self.store(ahead(to, at), &target, memory)
        });
        (self.buffer, self.second) = (source, target);
        done
    }

    fn load(&mut self, from: Place, to: &mut [u8], memory: &mut impl ProcessBytes) -> Result<(), NotMoved> {
        match from {
            Place::Memory { process, address } => match memory.read(process, address, to) {
                true => Ok(()),
                false => Err(NotMoved::Memory { process, address }),
            },
            Place::Shadow { shadow, offset } => {
                to.copy_from_slice(self.shadows.read(shadow, offset, to.len())?);
                Ok(())
            }
        }
    }

    fn store(&mut self, to: Place, from: &[u8], memory: &mut impl ProcessBytes) -> Result<(), NotMoved> {
        match to {
            Place::Memory { process, address } => match memory.write(process, address, from) {
                true => Ok(()),
                false => Err(NotMoved::Memory { process, address }),
            },
            Place::Shadow { shadow, offset } => {
                self.shadows.write(shadow, offset, from.len())?.copy_from_slice(from);
                Ok(())
            }
        }
    }
}

/// [`MoveKernel::apply`] to each word of a source and a target that are as long. One loop for each kernel is what a compiler
/// makes vectors of.
fn apply_to_words(kernel: MoveKernel, operand: u32, source: &[u8], target: &mut [u8]) {
    fn each(source: &[u8], target: &mut [u8], apply: impl Fn(u32, u32) -> u32) {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for (source, target) in source.chunks_exact(4).zip(target.chunks_exact_mut(4)) {
            let made = apply(word(source), word(target));
            target.copy_from_slice(&made.to_le_bytes());
        }
    }
    match kernel {
        MoveKernel::Add => {
            each(source, target, |source, there| MoveKernel::Add.apply(source, there, operand))
        }
        MoveKernel::Multiply => {
            each(source, target, |source, there| MoveKernel::Multiply.apply(source, there, operand));
        }
        MoveKernel::Xor => {
            each(source, target, |source, there| MoveKernel::Xor.apply(source, there, operand))
        }
        MoveKernel::Accumulate => {
            each(source, target, |source, there| MoveKernel::Accumulate.apply(source, there, operand));
        }
    }
}

/// Where so many bytes further on is.
pub(super) fn ahead(place: Place, bytes: u64) -> Place {
    match place {
        Place::Memory { process, address } => {
            Place::Memory { process, address: address.saturating_add(bytes) }
        }
        Place::Shadow { shadow, offset } => Place::Shadow { shadow, offset: offset.saturating_add(bytes) },
    }
}

/// Whether the target may overlap the end of the source: all is read before it is written if the last bytes go first.
fn is_behind(from: Place, to: Place) -> bool {
    match (from, to) {
        (Place::Memory { process: a, address: from }, Place::Memory { process: b, address: to }) => {
            a == b && to > from
        }
        (Place::Shadow { shadow: a, offset: from }, Place::Shadow { shadow: b, offset: to }) => {
            a == b && to > from
        }
        (Place::Memory { .. }, Place::Shadow { .. }) | (Place::Shadow { .. }, Place::Memory { .. }) => false,
    }
}

/// Offset and length of each piece of so many bytes, from the last one on if `backwards`.
fn chunks(bytes: u64, backwards: bool) -> impl Iterator<Item = (u64, u64)> {
    let count = bytes.div_ceil(CHUNK_BYTES);
    (0..count).map(move |number| {
        let at = if backwards { count - 1 - number } else { number } * CHUNK_BYTES;
        (at, CHUNK_BYTES.min(bytes - at))
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::shadows::{SHADOW_BYTES_MAX, SHADOWS_MAX};
    use super::*;

    const P: ProcessId = ProcessId(1);
    const SHADOW: Shadow = Shadow { adapter: 0, number: 9 };

    /// One process's memory from address 0 on.
    struct Bytes(Vec<u8>);

    impl ProcessBytes for Bytes {
        fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
            let from = self.0.get(address as usize..address as usize + to.len()).filter(|_| process == P);
            from.map(|from| to.copy_from_slice(from)).is_some()
        }

        fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
            let to = self.0.get_mut(address as usize..address as usize + from.len());
            to.filter(|_| process == P).map(|to| to.copy_from_slice(from)).is_some()
        }
    }

    fn memory(address: u64) -> Place {
        Place::Memory { process: P, address }
    }

    fn shadow(offset: u64) -> Place {
        Place::Shadow { shadow: SHADOW, offset }
    }

    #[test]
    fn a_copy_that_overlaps_reads_all_before_it_writes() {
        let length = 3 * CHUNK_BYTES + 5;
        for (from, to) in [(0, 9), (9, 0), (0, CHUNK_BYTES + 1), (CHUNK_BYTES + 1, 0)] {
            let content: Vec<u8> = (0..6 * CHUNK_BYTES).map(|at| (at * 7 + at / 256) as u8).collect();
            let (mut performer, mut bytes) = (Performer::default(), Bytes(content.clone()));
            let mut expected = content;
            expected.copy_within(from as usize..(from + length) as usize, to as usize);
            let copy = DataMove::Copy { from: memory(from), to: memory(to), bytes: length };
            performer.perform(&copy, &mut bytes).unwrap();
            assert!(bytes.0 == expected, "{from} to {to}");
        }
    }

    #[test]
    fn a_shadow_begins_as_zeros_grows_and_ends() {
        let (mut performer, mut bytes) = (Performer::default(), Bytes(vec![0xEE; 16]));
        let mut perform = |moved| performer.perform(&moved, &mut bytes).unwrap();
        perform(DataMove::Fill { to: shadow(8), bytes: 4, pattern: 0x0403_0201 });
        perform(DataMove::Copy { from: shadow(4), to: memory(0), bytes: 8 });
        let (kernel, operand) = (MoveKernel::Accumulate, 1);
        perform(DataMove::Compute { kernel, from: memory(4), to: shadow(8), bytes: 4, operand });
        perform(DataMove::Copy { from: shadow(8), to: memory(12), bytes: 4 });
        assert_eq!(bytes.0, [0, 0, 0, 0, 1, 2, 3, 4, 0xEE, 0xEE, 0xEE, 0xEE, 3, 4, 6, 8]);
        for ends in [DataMove::Release { shadow: SHADOW }, DataMove::ReleaseAll { adapter: 0 }] {
            performer.perform(&DataMove::Fill { to: shadow(0), bytes: 4, pattern: 0 }, &mut bytes).unwrap();
            performer.perform(&DataMove::ReleaseAll { adapter: 1 }, &mut bytes).unwrap();
            assert_eq!(performer.shadows(), 1);
            performer.perform(&ends, &mut bytes).unwrap();
            assert_eq!(performer.shadows(), 0);
        }
    }

    #[test]
    fn a_computation_where_the_bytes_are_changes_no_shadow_that_shares_them() {
        let length = CHUNK_BYTES + 4;
        let other = Place::Shadow { shadow: Shadow { adapter: 0, number: 10 }, offset: 0 };
        let (mut performer, mut bytes) = (Performer::default(), Bytes(vec![1; 3 * length as usize]));
        let words = 0x0101_0101u32;
        let (kernel, operand) = (MoveKernel::Accumulate, 3);
        for moved in [
            DataMove::Copy { from: memory(0), to: shadow(0), bytes: length },
            DataMove::Copy { from: shadow(0), to: other, bytes: length },
            DataMove::Compute { kernel, from: memory(0), to: other, bytes: length, operand },
            // Onto itself, and beyond its end.
            DataMove::Compute { kernel, from: shadow(8), to: shadow(0), bytes: length, operand },
            DataMove::Copy { from: other, to: memory(length), bytes: length },
            DataMove::Copy { from: shadow(0), to: memory(2 * length), bytes: length },
        ] {
            performer.perform(&moved, &mut bytes).unwrap();
        }
        let word = |at: u64| u32::from_le_bytes(bytes.0[at as usize..][..4].try_into().unwrap());
        for at in (0..length).step_by(4) {
            assert_eq!(word(length + at), 2 * words + 3, "{at}");
            let source = if at + 8 < length { words } else { 0 };
            assert_eq!(word(2 * length + at), words + source + 3, "{at}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_and_no_shadow_is_endless() {
        let (mut performer, mut bytes) = (Performer::default(), Bytes(vec![0; 16]));
        let mut refused = |moved| performer.perform(&moved, &mut bytes).unwrap_err();
        let beyond = DataMove::Copy { from: memory(8), to: shadow(0), bytes: 12 };
        assert_eq!(refused(beyond), NotMoved::Memory { process: P, address: 8 });
        let long = DataMove::Fill { to: shadow(SHADOW_BYTES_MAX - 4), bytes: 8, pattern: 0 };
        assert_eq!(refused(long), NotMoved::Shadow(SHADOW));
        let last = DataMove::Fill { to: shadow(u64::MAX - 1), bytes: 4, pattern: 0 };
        assert_eq!(refused(last), NotMoved::Shadow(SHADOW));
        let mut performer = Performer::default();
        for number in 0..SHADOWS_MAX as u64 + 1 {
            let to = Place::Shadow { shadow: Shadow { adapter: 3, number }, offset: 0 };
            let done = performer.perform(&DataMove::Fill { to, bytes: 4, pattern: 0 }, &mut bytes);
            assert_eq!(done.is_ok(), number < SHADOWS_MAX as u64);
        }
    }
}
