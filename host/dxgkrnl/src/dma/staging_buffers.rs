//! The bytes of staging buffers. Two buffers share bytes until one is written, because an engine reads a line into its
//! cache and also keeps it for the command.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{DmaError, StagingBuffer};

/// Bytes of one staging buffer at most. No engine of crate `kmd` needs as many.
pub(super) const STAGING_BYTES_MAX: u64 = 4 << 20;

/// Staging buffers of all adapters together.
pub(super) const STAGING_BUFFERS_MAX: usize = 1 << 16;

/// Fewer bytes are copied, not shared.
const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Bytes kept of freed staging buffers for new ones: to allocate and clear memory takes longer than the copy.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// The bytes of one staging buffer.
#[derive(Debug, Default)]
pub struct StagedMemory {
    /// Bytes behind the end of the staging buffer have no meaning.
    memory: Arc<Vec<u8>>,
    /// Where the staging buffer begins in `memory`: 0 unless it shares.
    begin: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct StagingBuffers {
    buffers: BTreeMap<StagingBuffer, StagedMemory>,
    spare: Vec<Vec<u8>>,
}

impl StagedMemory {
    fn all(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.bytes]
    }

    /// The memory, shared with no other buffer, with room for `bytes` bytes.
    fn own(&mut self, bytes: usize, spare: &mut Vec<Vec<u8>>) -> &mut Vec<u8> {
        if self.begin > 0 || Arc::get_mut(&mut self.memory).is_none() {
            let mut copy = take_spare(spare, bytes);
            copy.resize(copy.len().max(bytes).max(self.bytes), 0);
            copy[..self.bytes].copy_from_slice(self.all());
            (self.memory, self.begin) = (Arc::new(copy), 0);
        }
        let memory = Arc::make_mut(&mut self.memory);
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        memory
    }
}

/// Memory of a freed staging buffer if one had `bytes` bytes, else an empty vector.
fn take_spare(spare: &mut Vec<Vec<u8>>, bytes: usize) -> Vec<u8> {
    let at = spare.iter().position(|memory| memory.len() >= bytes);
    at.map(|at| spare.swap_remove(at)).unwrap_or_default()
}

impl StagingBuffers {
    pub fn count(&self) -> usize {
        self.buffers.len()
    }

    pub fn take(&mut self, staging_buffer: StagingBuffer) -> Option<StagedMemory> {
        self.buffers.remove(&staging_buffer)
    }

    pub fn put(&mut self, staging_buffer: StagingBuffer, memory: StagedMemory) {
        self.buffers.insert(staging_buffer, memory);
    }

    pub fn end(&mut self, staging_buffer: StagingBuffer) {
        if let Some(buffer) = self.buffers.remove(&staging_buffer) {
            self.keep(buffer);
        }
    }

    pub fn release_all(&mut self, adapter: u32) {
        self.buffers.retain(|staging_buffer, _| staging_buffer.adapter != adapter);
    }

    fn keep(&mut self, buffer: StagedMemory) {
        let spare_bytes: usize = self.spare.iter().map(Vec::len).sum();
        if let Ok(memory) = Arc::try_unwrap(buffer.memory)
            && memory.len() >= SHARED_BYTES_MIN
            && spare_bytes + memory.len() <= SPARE_BYTES_MAX
        {
            self.spare.push(memory);
        }
    }

    /// The staging buffer, created if it is new, and the end of the range. Fails if a limit is exceeded.
    fn entry(
        &mut self,
        staging_buffer: StagingBuffer,
        offset: u64,
        bytes: usize,
    ) -> Result<(usize, &mut StagedMemory), DmaError> {
        let end = offset.saturating_add(bytes as u64);
        let is_new = !self.buffers.contains_key(&staging_buffer);
        if end > STAGING_BYTES_MAX || is_new && self.buffers.len() >= STAGING_BUFFERS_MAX {
            return Err(DmaError::StagingBuffer(staging_buffer));
        }
        Ok((end as usize, self.buffers.entry(staging_buffer).or_default()))
    }

    /// A range to read. The staging buffer grows to its end, by zeros.
    pub fn read(
        &mut self,
        staging_buffer: StagingBuffer,
        offset: u64,
        bytes: usize,
    ) -> Result<&[u8], DmaError> {
        let mut spare = core::mem::take(&mut self.spare);
        let grown = self.entry(staging_buffer, offset, bytes).map(|(end, buffer)| {
            if buffer.bytes < end {
                let had = buffer.bytes;
                buffer.own(end, &mut spare)[had..end].fill(0);
                buffer.bytes = end;
            }
        });
        self.spare = spare;
        grown?;
        Ok(&self.buffers[&staging_buffer].all()[offset as usize..][..bytes])
    }

    /// A range to overwrite completely: its present bytes have no meaning.
    pub fn write(
        &mut self,
        staging_buffer: StagingBuffer,
        offset: u64,
        bytes: usize,
    ) -> Result<&mut [u8], DmaError> {
        let mut spare = core::mem::take(&mut self.spare);
        let grown = self.entry(staging_buffer, offset, bytes);
        let grown = grown.map(|(end, buffer)| {
            if buffer.memory.is_empty() {
                buffer.memory = Arc::new(take_spare(&mut spare, end));
            }
            let (from, until) = (buffer.bytes, offset as usize);
            let memory = buffer.own(end, &mut spare);
            if from < until {
                memory[from..until].fill(0);
            }
            buffer.bytes = buffer.bytes.max(end);
        });
        self.spare = spare;
        grown?;
        let memory =
            self.buffers.get_mut(&staging_buffer).and_then(|buffer| Arc::get_mut(&mut buffer.memory));
        let Some(memory) = memory else { unreachable!("this staging buffer shares no memory") };
        Ok(&mut memory[offset as usize..offset as usize + bytes])
    }

    /// Makes a new staging buffer share a range of another one. `false`: the caller has to copy.
    pub fn share(
        &mut self,
        (from, offset): (StagingBuffer, u64),
        to: (StagingBuffer, u64),
        bytes: usize,
    ) -> bool {
        let end = offset.saturating_add(bytes as u64);
        let may = bytes >= SHARED_BYTES_MIN && to.1 == 0 && self.buffers.len() < STAGING_BUFFERS_MAX;
        let Some(buffer) = self.buffers.get(&from) else { return false };
        if !may || end > buffer.bytes as u64 || self.buffers.contains_key(&to.0) {
            return false;
        }
        let (memory, begin) = (buffer.memory.clone(), buffer.begin + offset as usize);
        self.buffers.insert(to.0, StagedMemory { memory, begin, bytes });
        true
    }
}
