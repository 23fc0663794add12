//! Memory access of an engine: each access is translated by the process's page table, and bytes are moved by DMA
//! operations that are called back.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use dxgkrnl::ddi::{Callback, EngineId, PageTableEntry, Piece};
use dxgkrnl::{ComputeOp, DmaOp, MemoryRef, Nanos, StagingBuffer};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::bandwidth::{BYTES_PER_MOVE, BYTES_PER_PIECE, Bandwidth};
use crate::page_table::{Access, PageFault, PageTables};
use crate::resources::Space;

/// Pattern of discarded memory.
pub(super) const DISCARDED: u32 = 0xDEAD_C0DE;

/// The live staging buffers of one engine. Engines of one adapter use disjoint numbers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct StagingBuffers {
    live: BTreeSet<u32>,
}

/// Issues DMA operations in the address space `space` of the running work, and charges them to the bandwidth.
pub(crate) struct Mover<'a> {
    pub engine: EngineId,
    pub space: Space,
    pub tables: &'a PageTables,
    pub staging_buffers: &'a mut StagingBuffers,
    pub bandwidth: &'a mut Bandwidth,
    pub clock: Nanos,
    pub callbacks: &'a mut Vec<Callback>,
}

/// A run of contiguous bytes; `None` is the zero page.
pub(super) type ByteRun = (Option<MemoryRef>, u64);
/// The runs of a range: nearly always one.
pub(super) type ByteRuns = SmallVec<[ByteRun; 1]>;

pub(super) fn ahead(memory: MemoryRef, bytes: u64) -> MemoryRef {
    match memory {
        MemoryRef::Memory { process, address } => MemoryRef::Memory { process, address: address + bytes },
        MemoryRef::StagingBuffer { staging_buffer, offset } => {
            MemoryRef::StagingBuffer { staging_buffer, offset: offset + bytes }
        }
    }
}

impl StagingBuffers {
    /// Drops all without a callback: the kernel has stopped the adapter and freed them.
    pub fn forget(&mut self) {
        self.live.clear();
    }

    pub fn release_all(&mut self, engine: EngineId, callbacks: &mut Vec<Callback>) {
        for number in core::mem::take(&mut self.live) {
            let moved = DmaOp::Release { staging_buffer: staging_buffer(engine, number) };
            callbacks.push(Callback::Dma { engine, moved });
        }
    }
}

fn part(Piece { base, end, page }: Piece<PageTableEntry>) -> ByteRun {
    let memory = match page {
        PageTableEntry::Memory { owner, address, .. } => Some(MemoryRef::Memory { process: owner, address }),
        PageTableEntry::Zero | PageTableEntry::NoAccess => None,
    };
    (memory, end - base)
}

fn staging_buffer(engine: EngineId, number: u32) -> StagingBuffer {
    StagingBuffer { adapter: engine.adapter, number: u64::from(engine.node) << 32 | u64::from(number) }
}

impl Mover<'_> {
    /// Allocates a staging buffer with the lowest free number.
    pub fn new_staging_buffer(&mut self) -> u32 {
        let number = (0..).zip(self.staging_buffers.live.iter()).find(|(at, live)| at != *live);
        let number = number.map_or(self.staging_buffers.live.len() as u32, |(at, _)| at);
        self.staging_buffers.live.insert(number);
        number
    }

    pub fn staging_ref(&self, number: u32, offset: u64) -> MemoryRef {
        MemoryRef::StagingBuffer { staging_buffer: staging_buffer(self.engine, number), offset }
    }

    pub fn release(&mut self, number: u32) {
        if self.staging_buffers.live.remove(&number) {
            self.push(DmaOp::Release { staging_buffer: staging_buffer(self.engine, number) });
        }
    }

    /// Whether the engine has no bandwidth left at this time.
    pub fn is_spent(&self) -> bool {
        self.bandwidth.is_spent(self.clock)
    }

    /// When it has bandwidth.
    pub fn next(&self) -> Nanos {
        self.bandwidth.next(self.clock)
    }

    /// Charges the start of a command.
    pub fn begin_command(&mut self) {
        self.bandwidth.take(self.clock, BYTES_PER_MOVE);
    }

    fn push(&mut self, moved: DmaOp) {
        self.bandwidth.take(self.clock, moved.bytes().saturating_add(BYTES_PER_MOVE));
        self.callbacks.push(Callback::Dma { engine: self.engine, moved });
    }

    pub fn copy(&mut self, from: MemoryRef, to: MemoryRef, bytes: u64) {
        if bytes > 0 {
            self.push(DmaOp::Copy { from, to, bytes });
        }
    }

    pub fn fill(&mut self, to: MemoryRef, bytes: u64, pattern: u32) {
        if bytes > 0 {
            self.push(DmaOp::Fill { to, bytes, pattern });
        }
    }

    pub fn compute(&mut self, kernel: ComputeOp, from: MemoryRef, to: MemoryRef, bytes: u64, operand: u32) {
        if bytes > 0 {
            self.push(DmaOp::Compute { kernel, from, to, bytes, operand });
        }
    }

    /// Translates a range, if this access is permitted to all of it.
    pub fn parts(&self, address: u64, bytes: u64, access: Access) -> Result<ByteRuns, PageFault> {
        let pieces = self.tables.resolve(self.space, address, bytes, access)?;
        Ok(pieces.into_iter().map(part).collect())
    }

    /// Translates the first run of a range that is not empty.
    pub fn first_part(&self, address: u64, bytes: u64, access: Access) -> Result<ByteRun, PageFault> {
        self.tables.first(self.space, address, bytes, access).map(part)
    }

    /// Checks that this access is permitted to the whole range.
    pub fn check(&mut self, (begin, end): (u64, u64), access: Access) -> Result<(), PageFault> {
        let pieces = self.tables.resolve(self.space, begin, end - begin, access)?.len() as u64;
        self.bandwidth.take(self.clock, pieces.saturating_mul(BYTES_PER_PIECE));
        Ok(())
    }

    /// Copies memory into a staging buffer.
    pub fn load(&mut self, address: u64, bytes: u64, mut to: MemoryRef) -> Result<(), PageFault> {
        for (from, bytes) in self.parts(address, bytes, Access::Read)? {
            match from {
                Some(from) => self.copy(from, to, bytes),
                None => self.zero(to, bytes),
            }
            to = ahead(to, bytes);
        }
        Ok(())
    }

    /// Copies a staging buffer into memory.
    pub fn store(&mut self, mut from: MemoryRef, address: u64, bytes: u64) -> Result<(), PageFault> {
        for (to, bytes) in self.parts(address, bytes, Access::Write)? {
            if let Some(to) = to {
                self.copy(from, to, bytes);
            }
            from = ahead(from, bytes);
        }
        Ok(())
    }

    /// Writes zeros. A fill writes whole words; the remaining bytes are copied from a new staging buffer, which is all
    /// zeros.
    pub fn zero(&mut self, to: MemoryRef, bytes: u64) {
        let words = bytes & !3;
        self.fill(to, words, 0);
        if words < bytes {
            let zeros = self.new_staging_buffer();
            self.copy(self.staging_ref(zeros, 0), ahead(to, words), bytes - words);
            self.release(zeros);
        }
    }
}
