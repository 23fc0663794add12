//! Executes DMA operations for the host that runs the kernel. The host supplies the memory of processes, and the
//! executor holds the staging buffers.

use alloc::vec::Vec;
use core::fmt;

use super::coalesce::{is_worth_it, shorten};
use super::staging_buffers::{StagedMemory, StagingBuffers};
use super::{ComputeOp, DmaOp, MemoryRef, StagingBuffer, distance_behind};
use crate::ProcessId;

/// Bytes that are copied through a buffer at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Memory of processes that operations access. A method returns `false` if part of the range is not mapped; the rest
/// may have been accessed.
pub trait ProcessMemory {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool;
    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool;

    /// Copies like `memmove`: the two ranges may overlap. `None`: the executor copies through a buffer, with `read` and
    /// `write`.
    fn copy(&mut self, from: (ProcessId, u64), to: (ProcessId, u64), bytes: u64) -> Option<bool> {
        let _ = (from, to, bytes);
        None
    }
}

/// Why an operation failed, wholly or in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// Not all of the memory is mapped.
    Memory { process: ProcessId, address: u64 },
    /// The staging buffer would exceed the limit of bytes, or of staging buffers.
    StagingBuffer(StagingBuffer),
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DmaError::Memory { process, address } => {
                write!(f, "memory of process {} is not all mapped from {address:#x} on", process.0)
            }
            DmaError::StagingBuffer(staging_buffer) => {
                write!(f, "{staging_buffer} exceeds the limit of its bytes, or of staging buffers")
            }
        }
    }
}

/// Executes the operations of one kernel, and holds the staging buffers of its adapters.
#[derive(Debug, Default)]
pub struct DmaExecutor {
    staging_buffers: StagingBuffers,
    buffer: Vec<u8>,
    second: Vec<u8>,
}

impl DmaExecutor {
    /// Number of staging buffers. An idle engine has none.
    pub fn staging_buffers(&self) -> usize {
        self.staging_buffers.count()
    }

    /// Takes a staging buffer out, for another executor.
    pub fn take_staging_buffer(&mut self, staging_buffer: StagingBuffer) -> Option<StagedMemory> {
        self.staging_buffers.take(staging_buffer)
    }

    /// Puts a staging buffer in that was taken out of another executor.
    pub fn put_staging_buffer(&mut self, staging_buffer: StagingBuffer, memory: StagedMemory) {
        self.staging_buffers.put(staging_buffer, memory);
    }

    /// Executes the operations of one step, by fewer copies where that changes no byte of a process. Reports failures
    /// to `failed`; the targets of later operations are then undefined.
    pub fn perform_all(
        &mut self,
        moves: &[DmaOp],
        memory: &mut impl ProcessMemory,
        failed: &mut dyn FnMut(&DmaOp, DmaError),
    ) {
        let fewer = is_worth_it(moves).then(|| shorten(moves));
        for op in fewer.as_deref().unwrap_or(moves) {
            if let Err(why) = self.perform(op, memory) {
                failed(op, why);
            }
        }
    }

    /// Executes one operation.
    pub fn perform(&mut self, moved: &DmaOp, memory: &mut impl ProcessMemory) -> Result<(), DmaError> {
        match *moved {
            DmaOp::Release { staging_buffer } => {
                self.staging_buffers.end(staging_buffer);
                Ok(())
            }
            DmaOp::ReleaseAll { adapter } => {
                self.staging_buffers.release_all(adapter);
                Ok(())
            }
            DmaOp::Fill { to, bytes, pattern } => self.fill(to, bytes, pattern, memory),
            DmaOp::Copy { from, to, bytes } => self.copy(from, to, bytes, memory),
            DmaOp::Compute { kernel, from, to, bytes, operand } => {
                self.compute(kernel, operand, from, to, bytes, memory)
            }
        }
    }

    fn fill(
        &mut self,
        to: MemoryRef,
        bytes: u64,
        pattern: u32,
        memory: &mut impl ProcessMemory,
    ) -> Result<(), DmaError> {
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
        from: MemoryRef,
        to: MemoryRef,
        bytes: u64,
        memory: &mut impl ProcessMemory,
    ) -> Result<(), DmaError> {
        let check = |done, process, address| match done {
            true => Ok(()),
            false => Err(DmaError::Memory { process, address }),
        };
        // Most copies need no buffer.
        match (from, to) {
            (MemoryRef::Memory { process, address }, MemoryRef::StagingBuffer { staging_buffer, offset }) => {
                let to = self.staging_buffers.write(staging_buffer, offset, bytes as usize)?;
                let done = memory.read(process, address, to);
                if !done {
                    // No old bytes of another process stay there.
                    to.fill(0);
                }
                return check(done, process, address);
            }
            (MemoryRef::StagingBuffer { staging_buffer, offset }, MemoryRef::Memory { process, address }) => {
                let from = self.staging_buffers.read(staging_buffer, offset, bytes as usize)?;
                return check(memory.write(process, address, from), process, address);
            }
            (
                MemoryRef::Memory { process: owner, address: source },
                MemoryRef::Memory { process, address },
            ) => {
                if let Some(done) = memory.copy((owner, source), (process, address), bytes) {
                    return check(done, process, address);
                }
            }
            (
                MemoryRef::StagingBuffer { staging_buffer: from, offset },
                MemoryRef::StagingBuffer { staging_buffer, offset: at },
            ) => {
                if self.staging_buffers.share((from, offset), (staging_buffer, at), bytes as usize) {
                    return Ok(());
                }
            }
        }
        let mut buffer = core::mem::take(&mut self.buffer);
        let done = chunks(bytes, distance_behind(from, to).is_some()).try_for_each(|(at, length)| {
            buffer.resize(length as usize, 0);
            self.load(ahead(from, at), &mut buffer, memory)?;
            self.store(ahead(to, at), &buffer, memory)
        });
        self.buffer = buffer;
        done
    }

    fn compute(
        &mut self,
        kernel: ComputeOp,
        operand: u32,
        from: MemoryRef,
        to: MemoryRef,
        bytes: u64,
        memory: &mut impl ProcessMemory,
    ) -> Result<(), DmaError> {
        let mut source = core::mem::take(&mut self.buffer);
        let mut target = core::mem::take(&mut self.second);
        let done = chunks(bytes, distance_behind(from, to).is_some()).try_for_each(|(at, length)| {
            source.resize(length as usize, 0);
            self.load(ahead(from, at), &mut source, memory)?;
            if let MemoryRef::StagingBuffer { staging_buffer, offset } = ahead(to, at) {
                // In place, without a copy of the target. The read grows the buffer by zeros.
                self.staging_buffers.read(staging_buffer, offset, source.len())?;
                let target = self.staging_buffers.write(staging_buffer, offset, source.len())?;
                apply_to_words(kernel, operand, &source, target);
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

    fn load(
        &mut self,
        from: MemoryRef,
        to: &mut [u8],
        memory: &mut impl ProcessMemory,
    ) -> Result<(), DmaError> {
        match from {
            MemoryRef::Memory { process, address } => match memory.read(process, address, to) {
                true => Ok(()),
                false => Err(DmaError::Memory { process, address }),
            },
            MemoryRef::StagingBuffer { staging_buffer, offset } => {
                to.copy_from_slice(self.staging_buffers.read(staging_buffer, offset, to.len())?);
                Ok(())
            }
        }
    }

    fn store(&mut self, to: MemoryRef, from: &[u8], memory: &mut impl ProcessMemory) -> Result<(), DmaError> {
        match to {
            MemoryRef::Memory { process, address } => match memory.write(process, address, from) {
                true => Ok(()),
                false => Err(DmaError::Memory { process, address }),
            },
            MemoryRef::StagingBuffer { staging_buffer, offset } => {
                self.staging_buffers.write(staging_buffer, offset, from.len())?.copy_from_slice(from);
                Ok(())
            }
        }
    }
}

/// Applies [`ComputeOp::apply`] to each word of a source and a target of the same length. With one loop for each
/// operation, the compiler vectorizes it.
fn apply_to_words(kernel: ComputeOp, operand: u32, source: &[u8], target: &mut [u8]) {
    fn each(source: &[u8], target: &mut [u8], apply: impl Fn(u32, u32) -> u32) {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for (source, target) in source.chunks_exact(4).zip(target.chunks_exact_mut(4)) {
            let result = apply(word(source), word(target));
            target.copy_from_slice(&result.to_le_bytes());
        }
    }
    match kernel {
        ComputeOp::Add => each(source, target, |source, old| ComputeOp::Add.apply(source, old, operand)),
        ComputeOp::Multiply => {
            each(source, target, |source, old| ComputeOp::Multiply.apply(source, old, operand));
        }
        ComputeOp::Xor => each(source, target, |source, old| ComputeOp::Xor.apply(source, old, operand)),
        ComputeOp::Accumulate => {
            each(source, target, |source, old| ComputeOp::Accumulate.apply(source, old, operand));
        }
    }
}

/// The place `bytes` bytes further on.
pub(super) fn ahead(memory: MemoryRef, bytes: u64) -> MemoryRef {
    match memory {
        MemoryRef::Memory { process, address } => {
            MemoryRef::Memory { process, address: address.saturating_add(bytes) }
        }
        MemoryRef::StagingBuffer { staging_buffer, offset } => {
            MemoryRef::StagingBuffer { staging_buffer, offset: offset.saturating_add(bytes) }
        }
    }
}

/// Offset and length of each chunk of `bytes` bytes, from the last one on if `backwards`: where the target may overlap the
/// end of the source, all bytes are read before they are overwritten.
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

    use super::super::staging_buffers::{STAGING_BUFFERS_MAX, STAGING_BYTES_MAX};
    use super::*;

    const P: ProcessId = ProcessId(1);
    const STAGING_BUFFER: StagingBuffer = StagingBuffer { adapter: 0, number: 9 };

    /// One process's memory from address 0 on.
    struct Bytes(Vec<u8>);

    impl ProcessMemory for Bytes {
        fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
            let from = self.0.get(address as usize..address as usize + to.len()).filter(|_| process == P);
            from.map(|from| to.copy_from_slice(from)).is_some()
        }

        fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
            let to = self.0.get_mut(address as usize..address as usize + from.len());
            to.filter(|_| process == P).map(|to| to.copy_from_slice(from)).is_some()
        }
    }

    fn memory(address: u64) -> MemoryRef {
        MemoryRef::Memory { process: P, address }
    }

    fn staging_buffer(offset: u64) -> MemoryRef {
        MemoryRef::StagingBuffer { staging_buffer: STAGING_BUFFER, offset }
    }

    #[test]
    fn a_copy_that_overlaps_reads_all_before_it_writes() {
        let length = 3 * CHUNK_BYTES + 5;
        for (from, to) in [(0, 9), (9, 0), (0, CHUNK_BYTES + 1), (CHUNK_BYTES + 1, 0)] {
            let content: Vec<u8> = (0..6 * CHUNK_BYTES).map(|at| (at * 7 + at / 256) as u8).collect();
            let (mut dma_executor, mut bytes) = (DmaExecutor::default(), Bytes(content.clone()));
            let mut expected = content;
            expected.copy_within(from as usize..(from + length) as usize, to as usize);
            let copy = DmaOp::Copy { from: memory(from), to: memory(to), bytes: length };
            dma_executor.perform(&copy, &mut bytes).unwrap();
            assert!(bytes.0 == expected, "{from} to {to}");
        }
    }

    /// Pieces as an engine pushes them, against one operation made of them and split anew.
    #[test]
    fn an_operation_extended_by_its_pieces_does_what_they_do() {
        let (piece, pieces) = (64, 6);
        for (from, to) in [(0, 1000), (1000, 0), (40, 0), (0, 40), (0, 0), (500, 500 - 384), (500 - 384, 500)]
        {
            let copy = DmaOp::Copy { from: memory(from), to: memory(to), bytes: piece };
            let (kernel, operand) = (ComputeOp::Accumulate, 7);
            let compute =
                DmaOp::Compute { kernel, from: memory(from), to: memory(to), bytes: piece, operand };
            let fill = DmaOp::Fill { to: memory(to), bytes: piece, pattern: 3 };
            for first in [copy, compute, fill] {
                let content: Vec<u8> = (0..2000).map(|at: u32| (at * 7 + at / 256) as u8).collect();
                let (mut dma_executor, mut one, mut other) =
                    (DmaExecutor::default(), Bytes(content.clone()), Bytes(content));
                let mut extended: Vec<DmaOp> = vec![];
                for number in 0..pieces {
                    let next = first.after(number * piece);
                    dma_executor.perform(&next, &mut one).unwrap();
                    if !extended.last_mut().is_some_and(|last| last.extend_by(&next)) {
                        extended.push(next);
                    }
                }
                let reads_what_it_wrote = to > from && to < from + pieces * piece && first != fill;
                assert_eq!(extended.len() == 1, !reads_what_it_wrote, "{first}");
                for op in extended {
                    let mut left = Some(op);
                    while let Some(op) = left {
                        let (part, rest) = op.split(40);
                        assert_eq!(
                            part.bytes(),
                            if reads_what_it_wrote { piece } else { 40.min(op.bytes()) }
                        );
                        dma_executor.perform(&part, &mut other).unwrap();
                        left = rest;
                    }
                }
                assert!(one.0 == other.0, "{first}");
            }
        }
        let (mut fill, other) = (
            DmaOp::Fill { to: memory(0), bytes: 4, pattern: 1 },
            DmaOp::Fill { to: memory(4), bytes: 4, pattern: 2 },
        );
        assert!(!fill.extend_by(&other) && !fill.extend_by(&DmaOp::ReleaseAll { adapter: 0 }));
    }

    #[test]
    fn a_staging_buffer_begins_as_zeros_grows_and_ends() {
        let (mut dma_executor, mut bytes) = (DmaExecutor::default(), Bytes(vec![0xEE; 16]));
        let mut perform = |moved| dma_executor.perform(&moved, &mut bytes).unwrap();
        perform(DmaOp::Fill { to: staging_buffer(8), bytes: 4, pattern: 0x0403_0201 });
        perform(DmaOp::Copy { from: staging_buffer(4), to: memory(0), bytes: 8 });
        let (kernel, operand) = (ComputeOp::Accumulate, 1);
        perform(DmaOp::Compute { kernel, from: memory(4), to: staging_buffer(8), bytes: 4, operand });
        perform(DmaOp::Copy { from: staging_buffer(8), to: memory(12), bytes: 4 });
        assert_eq!(bytes.0, [0, 0, 0, 0, 1, 2, 3, 4, 0xEE, 0xEE, 0xEE, 0xEE, 3, 4, 6, 8]);
        for ends in [DmaOp::Release { staging_buffer: STAGING_BUFFER }, DmaOp::ReleaseAll { adapter: 0 }] {
            dma_executor
                .perform(&DmaOp::Fill { to: staging_buffer(0), bytes: 4, pattern: 0 }, &mut bytes)
                .unwrap();
            dma_executor.perform(&DmaOp::ReleaseAll { adapter: 1 }, &mut bytes).unwrap();
            assert_eq!(dma_executor.staging_buffers(), 1);
            dma_executor.perform(&ends, &mut bytes).unwrap();
            assert_eq!(dma_executor.staging_buffers(), 0);
        }
    }

    #[test]
    fn a_computation_where_the_bytes_are_changes_no_staging_buffer_that_shares_them() {
        let length = CHUNK_BYTES + 4;
        let other =
            MemoryRef::StagingBuffer { staging_buffer: StagingBuffer { adapter: 0, number: 10 }, offset: 0 };
        let (mut dma_executor, mut bytes) = (DmaExecutor::default(), Bytes(vec![1; 3 * length as usize]));
        let words = 0x0101_0101u32;
        let (kernel, operand) = (ComputeOp::Accumulate, 3);
        for moved in [
            DmaOp::Copy { from: memory(0), to: staging_buffer(0), bytes: length },
            DmaOp::Copy { from: staging_buffer(0), to: other, bytes: length },
            DmaOp::Compute { kernel, from: memory(0), to: other, bytes: length, operand },
            // Onto itself, and beyond its end.
            DmaOp::Compute { kernel, from: staging_buffer(8), to: staging_buffer(0), bytes: length, operand },
            DmaOp::Copy { from: other, to: memory(length), bytes: length },
            DmaOp::Copy { from: staging_buffer(0), to: memory(2 * length), bytes: length },
        ] {
            dma_executor.perform(&moved, &mut bytes).unwrap();
        }
        let word = |at: u64| u32::from_le_bytes(bytes.0[at as usize..][..4].try_into().unwrap());
        for at in (0..length).step_by(4) {
            assert_eq!(word(length + at), 2 * words + 3, "{at}");
            let source = if at + 8 < length { words } else { 0 };
            assert_eq!(word(2 * length + at), words + source + 3, "{at}");
        }
    }

    #[test]
    fn unmapped_memory_is_reported_and_staging_buffers_are_limited() {
        let (mut dma_executor, mut bytes) = (DmaExecutor::default(), Bytes(vec![0; 16]));
        let mut refused = |moved| dma_executor.perform(&moved, &mut bytes).unwrap_err();
        let beyond = DmaOp::Copy { from: memory(8), to: staging_buffer(0), bytes: 12 };
        assert_eq!(refused(beyond), DmaError::Memory { process: P, address: 8 });
        let long = DmaOp::Fill { to: staging_buffer(STAGING_BYTES_MAX - 4), bytes: 8, pattern: 0 };
        assert_eq!(refused(long), DmaError::StagingBuffer(STAGING_BUFFER));
        let last = DmaOp::Fill { to: staging_buffer(u64::MAX - 1), bytes: 4, pattern: 0 };
        assert_eq!(refused(last), DmaError::StagingBuffer(STAGING_BUFFER));
        let mut dma_executor = DmaExecutor::default();
        for number in 0..STAGING_BUFFERS_MAX as u64 + 1 {
            let to =
                MemoryRef::StagingBuffer { staging_buffer: StagingBuffer { adapter: 3, number }, offset: 0 };
            let done = dma_executor.perform(&DmaOp::Fill { to, bytes: 4, pattern: 0 }, &mut bytes);
            assert_eq!(done.is_ok(), number < STAGING_BUFFERS_MAX as u64);
        }
    }
}
