//! Memory of processes for backends without real processes: the memory of allocations, by address. Engines' DMA
//! operations are executed on it, as the daemon does on pinned pages.

use std::collections::BTreeMap;

use d3dkmt::{Call, Handle, NtStatus, Reply, allocation_data, limits};
use dxgkrnl::{DmaExecutor, Effects, Input, Kernel, ProcessId, ProcessMemory, SharedMemory};

/// Bytes from an address on; bytes that were never written are 0 and not stored.
#[derive(Default)]
struct Piece {
    bytes: u64,
    written: Vec<u8>,
}

impl Piece {
    fn range(&self, offset: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.bytes)?;
        Some(offset as usize..end as usize)
    }
}

#[derive(Default)]
struct Pieces(BTreeMap<(ProcessId, u64), Piece>);

impl Pieces {
    /// Returns the piece that contains an address, and the offset in it.
    fn find(&mut self, process: ProcessId, address: u64) -> Option<(&mut Piece, u64)> {
        let ((of, first), piece) = self.0.range_mut(..=(process, address)).next_back()?;
        (*of == process && address - first < piece.bytes).then(|| (piece, address - first))
    }
}

impl ProcessMemory for Pieces {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        let Some((piece, offset)) = self.find(process, address) else { return false };
        let Some(range) = piece.range(offset, to.len()) else { return false };
        let end = piece.written.len().clamp(range.start, range.end);
        let there = end - range.start;
        to[..there].copy_from_slice(piece.written.get(range.start..end).unwrap_or_default());
        to[there..].fill(0);
        true
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        let Some((piece, offset)) = self.find(process, address) else { return false };
        let Some(range) = piece.range(offset, from.len()) else { return false };
        let length = piece.written.len().max(range.end);
        piece.written.resize(length, 0);
        piece.written[range].copy_from_slice(from);
        true
    }
}

/// The memory of all processes.
#[derive(Default)]
pub(crate) struct Memory {
    pieces: Pieces,
    dma_executor: DmaExecutor,
    /// Memory that processes can access, of each allocation: process, address, number of bytes. Memory of the device is
    /// here once it has been locked.
    allocations: BTreeMap<(ProcessId, Handle), (ProcessId, u64, u64)>,
}

/// What an input does to memory if it is accepted.
pub(crate) enum RequestedMemory {
    Nothing,
    /// It allocates memory of the process at this address, or of the device at 0.
    Allocated {
        process: ProcessId,
        address: u64,
        bytes: u64,
    },
    Locked {
        process: ProcessId,
        allocation: Handle,
    },
}

impl Memory {
    /// Returns what this input does to memory if it is accepted.
    pub fn requested(input: &Input) -> RequestedMemory {
        match input {
            Input::Call { process, call: Call::CreateAllocation { create }, .. } => {
                let [info] = &create.allocations[..] else { return RequestedMemory::Nothing };
                let bytes = match create.standard {
                    Some(standard) => Some(standard.size),
                    None => allocation_data::memory_bytes(&info.private_data),
                };
                let Some(bytes) = bytes else { return RequestedMemory::Nothing };
                RequestedMemory::Allocated { process: *process, address: info.system_memory, bytes }
            }
            Input::Call { process, call: Call::Lock { allocation, .. }, .. } => {
                RequestedMemory::Locked { process: *process, allocation: *allocation }
            }
            _ => RequestedMemory::Nothing,
        }
    }

    /// Applies the effects of an input. Returns the errors of DMA operations, which are bugs.
    pub fn step(&mut self, requested: RequestedMemory, effects: &Effects, kernel: &Kernel) -> Vec<String> {
        let answer = effects.answers.first().filter(|answer| answer.status == NtStatus::SUCCESS);
        if let Some(answer) = answer {
            self.accepted(requested, &answer.reply, kernel);
        }
        let mut wrong = Vec::new();
        self.dma_executor.perform_all(&effects.moves, &mut self.pieces, &mut |one, why| {
            wrong.push(format!("a move could not be done: {one}: {why}"));
        });
        for SharedMemory { owner, address, .. } in kernel.ended_shared_memory() {
            self.pieces.0.remove(&(owner, address));
        }
        wrong
    }

    /// Applies a call that succeeded.
    fn accepted(&mut self, requested: RequestedMemory, reply: &Reply, kernel: &Kernel) {
        match (requested, reply) {
            (
                RequestedMemory::Allocated { process, address: 0, .. },
                Reply::Allocations { sizes, addresses, .. },
            ) => {
                if let ([bytes], [address]) = (&sizes[..], &addresses[..]) {
                    self.pieces.0.entry((process, *address)).or_default().bytes = *bytes;
                }
            }
            (
                RequestedMemory::Allocated { process, address, bytes },
                Reply::Allocations { allocations, .. },
            ) => {
                let [allocation] = allocations[..] else { return };
                self.allocations.insert((process, allocation), (process, address, bytes));
                self.pieces.0.entry((process, address)).or_default().bytes = bytes;
            }
            (RequestedMemory::Locked { process, allocation }, Reply::Locked { address })
                if *address >= limits::DEVICE_MEMORY_START =>
            {
                let owner = kernel.shared_memory(process, allocation).map_or(process, |shared| shared.owner);
                if let Some(piece) = self.pieces.0.get(&(owner, *address)) {
                    self.allocations.insert((process, allocation), (owner, *address, piece.bytes));
                }
            }
            _ => {}
        }
    }

    /// Takes memory of the device from processes whose allocation has ended.
    pub fn forget_ended(&mut self, lives: impl Fn(ProcessId, Handle) -> bool) {
        self.allocations.retain(|(process, allocation), (_, address, _)| {
            *address < limits::DEVICE_MEMORY_START || lives(*process, *allocation)
        });
    }

    pub fn has_device_memory(&self) -> bool {
        self.allocations.values().any(|(_, address, _)| *address >= limits::DEVICE_MEMORY_START)
    }

    /// Removes the memory of an ended process, but what it shares with others.
    pub fn end(&mut self, process: ProcessId, is_shared: impl Fn(u64) -> bool) {
        self.allocations.retain(|(of, _), _| *of != process);
        self.pieces.0.retain(|(of, address), _| *of != process || is_shared(*address));
    }

    fn range(
        &self,
        process: ProcessId,
        allocation: Handle,
        (first, count): (u64, Option<u64>),
    ) -> Result<(ProcessId, u64, u64), NtStatus> {
        let (owner, address, bytes) =
            *self.allocations.get(&(process, allocation)).ok_or(NtStatus::INVALID_HANDLE)?;
        let count = count.unwrap_or_else(|| (bytes / 4).saturating_sub(first));
        let end = first.checked_add(count).filter(|end| *end <= bytes / 4);
        end.map(|_| (owner, address + first * 4, count)).ok_or(NtStatus::INVALID_PARAMETER)
    }

    pub fn store(
        &mut self,
        process: ProcessId,
        allocation: Handle,
        range: (u64, Option<u64>),
        word: u32,
    ) -> NtStatus {
        let (owner, address, count) = match self.range(process, allocation, range) {
            Ok(range) => range,
            Err(status) => return status,
        };
        let bytes: Vec<u8> = (0..count).flat_map(|_| word.to_le_bytes()).collect();
        match self.pieces.write(owner, address, &bytes) {
            true => NtStatus::SUCCESS,
            false => NtStatus::ACCESS_DENIED,
        }
    }

    pub fn find_other(
        &mut self,
        process: ProcessId,
        allocation: Handle,
        range: (u64, Option<u64>),
        word: u32,
    ) -> Result<Option<(u64, u32)>, NtStatus> {
        let (owner, address, count) = self.range(process, allocation, range)?;
        let mut bytes = vec![0; count as usize * 4];
        if !self.pieces.read(owner, address, &mut bytes) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let words =
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let other = (range.0..).zip(words).find(|(_, found)| *found != word);
        Ok(other)
    }
}
