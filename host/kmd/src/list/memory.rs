//! How an engine's work reaches bytes: addresses are looked up in the page table of the process at each touch, and what
//! is to be done with the bytes is called back as moves.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use dxgkrnl::ddi::{Callback, EngineId, PageTableEntry, Piece};
use dxgkrnl::{ComputeOp, DmaOp, MemoryRef, Nanos, StagingBuffer};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::bandwidth::{BYTES_PER_MOVE, BYTES_PER_PIECE, Bandwidth};
use crate::page_table::{Access, PageFault, PageTables};
use crate::resources::Space;

/// What is in memory that was discarded.
pub(super) const DISCARDED: u32 = 0xDEAD_C0DE;

/// The staging buffers of one engine: those that live. Numbers of an adapter's engines do not meet.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct StagingBuffers {
    live: BTreeSet<u32>,
}

/// What moves go through. `space` has the address space of the work that runs. What is moved is taken of the bandwidth.
pub(crate) struct Mover<'a> {
    pub engine: EngineId,
    pub space: Space,
    pub tables: &'a PageTables,
    pub staging_buffers: &'a mut StagingBuffers,
    pub bandwidth: &'a mut Bandwidth,
    pub clock: Nanos,
    pub callbacks: &'a mut Vec<Callback>,
}

/// Bytes that follow each other; `None` is the zero page.
pub(super) type ByteRun = (Option<MemoryRef>, u64);
/// Of a range: nearly always one.
pub(super) type ByteRuns = SmallVec<[ByteRun; 1]>;

pub(super) fn ahead(place: MemoryRef, bytes: u64) -> MemoryRef {
    match place {
        MemoryRef::Memory { process, address } => MemoryRef::Memory { process, address: address + bytes },
        MemoryRef::StagingBuffer { staging_buffer, offset } => {
            MemoryRef::StagingBuffer { staging_buffer, offset: offset + bytes }
        }
    }
}

impl StagingBuffers {
    /// All end, without a word: the kernel has said so.
    pub fn forget(&mut self) {
        self.live.clear();
    }

    pub fn release_all(&mut self, engine: EngineId, callbacks: &mut Vec<Callback>) {
        for number in core::mem::take(&mut self.live) {
            let moved = DmaOp::Release { staging_buffer: staging_buffer(engine, number) };
            callbacks.push(Callback::MoveData { engine, moved });
        }
    }
}

fn part(Piece { base, end, page }: Piece<PageTableEntry>) -> ByteRun {
    let place = match page {
        PageTableEntry::Memory { owner, address, .. } => Some(MemoryRef::Memory { process: owner, address }),
        PageTableEntry::Zero | PageTableEntry::NoAccess => None,
    };
    (place, end - base)
}

fn staging_buffer(engine: EngineId, number: u32) -> StagingBuffer {
    StagingBuffer { adapter: engine.adapter, number: u64::from(engine.node) << 32 | u64::from(number) }
}

impl Mover<'_> {
    /// A new staging buffer: the lowest number that is free.
    pub fn new_staging_buffer(&mut self) -> u32 {
        let number = (0..).zip(self.staging_buffers.live.iter()).find(|(at, live)| at != *live);
        let number = number.map_or(self.staging_buffers.live.len() as u32, |(at, _)| at);
        self.staging_buffers.live.insert(number);
        number
    }

    pub fn place(&self, number: u32, offset: u64) -> MemoryRef {
        MemoryRef::StagingBuffer { staging_buffer: staging_buffer(self.engine, number), offset }
    }

    pub fn release(&mut self, number: u32) {
        if self.staging_buffers.live.remove(&number) {
            self.push(DmaOp::Release { staging_buffer: staging_buffer(self.engine, number) });
        }
    }

    /// The engine has no bandwidth left at this time.
    pub fn is_spent(&self) -> bool {
        self.bandwidth.is_spent(self.clock)
    }

    /// When it has some.
    pub fn next(&self) -> Nanos {
        self.bandwidth.next(self.clock)
    }

    /// A command starts.
    pub fn begin_command(&mut self) {
        self.bandwidth.take(self.clock, BYTES_PER_MOVE);
    }

    fn push(&mut self, moved: DmaOp) {
        self.bandwidth.take(self.clock, moved.bytes().saturating_add(BYTES_PER_MOVE));
        self.callbacks.push(Callback::MoveData { engine: self.engine, moved });
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

    /// Where these addresses lead, if all of them may be touched so.
    pub fn parts(&self, address: u64, bytes: u64, access: Access) -> Result<ByteRuns, PageFault> {
        let pieces = self.tables.resolve(self.space, address, bytes, access)?;
        Ok(pieces.into_iter().map(part).collect())
    }

    /// The first of these parts: of a range that is not empty.
    pub fn first_part(&self, address: u64, bytes: u64, access: Access) -> Result<ByteRun, PageFault> {
        self.tables.first(self.space, address, bytes, access).map(part)
    }

    /// Whether all of these addresses may be touched so.
    pub fn check(&mut self, (begin, end): (u64, u64), access: Access) -> Result<(), PageFault> {
        let pieces = self.tables.resolve(self.space, begin, end - begin, access)?.len() as u64;
        self.bandwidth.take(self.clock, pieces.saturating_mul(BYTES_PER_PIECE));
        Ok(())
    }

    /// Memory is read into a staging buffer.
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

    /// A staging buffer is written into memory.
    pub fn store(&mut self, mut from: MemoryRef, address: u64, bytes: u64) -> Result<(), PageFault> {
        for (to, bytes) in self.parts(address, bytes, Access::Write)? {
            if let Some(to) = to {
                self.copy(from, to, bytes);
            }
            from = ahead(from, bytes);
        }
        Ok(())
    }

    /// A fill is of whole words: what is left of them comes from a staging buffer that has nothing but zeros.
    pub fn zero(&mut self, to: MemoryRef, bytes: u64) {
        let words = bytes & !3;
        self.fill(to, words, 0);
        if words < bytes {
            let zeros = self.new_staging_buffer();
            self.copy(self.place(zeros, 0), ahead(to, words), bytes - words);
            self.release(zeros);
        }
    }
}
