//! One DDI: memory for its buffers, the call, and what changed.

use driver_host::abi::{DXGK_ALLOCATIONINFO, Ddi, STATUS_NOT_SUPPORTED};
use driver_host::messages::{Allocation, Answer, Request};

use crate::callbacks;
use crate::library::Library;

/// Memory for a driver, aligned to 8 bytes.
struct Memory {
    words: Vec<u64>,
    bytes: usize,
}

impl Memory {
    fn new(contents: &[u8]) -> Memory {
        let (whole, rest) = contents.as_chunks();
        let mut words: Vec<u64> = Vec::with_capacity(whole.len() + 1);
        words.extend(whole.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_ne_bytes(last));
        Memory { words, bytes: contents.len() }
    }

    /// NULL if it is empty.
    fn address(&mut self) -> usize {
        if self.bytes == 0 { 0 } else { self.words.as_mut_ptr() as usize }
    }

    /// The first bytes of it, at most as many as there are.
    fn contents(&self, bytes: u64) -> Vec<u8> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes);
        let mut contents = Vec::with_capacity(bytes + 8);
        self.words[..bytes.div_ceil(8)]
            .iter()
            .for_each(|word| contents.extend_from_slice(&word.to_ne_bytes()));
        contents.truncate(bytes);
        contents
    }
}

/// Calls the DDI of a request.
pub fn serve(library: &Library, request: Request) -> Answer {
    let Request { now, ddi: asked, buffer, allocations } = request;
    let mut memory = Memory::new(&buffer);
    let mut of_allocations: Vec<Memory> =
        allocations.iter().map(|allocation| Memory::new(&allocation.private_data)).collect();
    let mut infos: Vec<DXGK_ALLOCATIONINFO> = allocations.iter().map(|allocation| allocation.info).collect();
    for (info, memory) in infos.iter_mut().zip(&mut of_allocations) {
        info.pPrivateDriverData.0 = memory.address();
        info.PrivateDriverDataSize = memory.bytes as u64;
    }
    let mut ddi = asked;
    if let Some((pointer, size)) = ddi.buffer() {
        (pointer.0, *size) = (memory.address(), buffer.len() as u64);
    }
    if let Ddi::DxgkDdiCreateAllocation(create) = &mut ddi {
        create.pAllocationInfo.0 = infos.as_mut_ptr() as usize;
    }
    let (status, callbacks) = callbacks::collect(|| library.call(now, &mut ddi));
    let used = ddi.buffer().map_or(0, |(pointer, size)| {
        pointer.0 = 0;
        std::mem::take(size)
    });
    if let Ddi::DxgkDdiCreateAllocation(create) = &mut ddi {
        create.pAllocationInfo.0 = 0;
    }
    let after = memory.contents(used);
    let returned = |(info, memory): (&DXGK_ALLOCATIONINFO, &Memory)| {
        let private_data = memory.contents(info.PrivateDriverDataSize);
        let mut info = *info;
        (info.pPrivateDriverData.0, info.PrivateDriverDataSize) = (0, 0);
        Allocation { info, private_data }
    };
    Answer {
        row: asked.row() as u32,
        status: status.unwrap_or(STATUS_NOT_SUPPORTED),
        ddi: (ddi != asked).then_some(ddi),
        buffer: (after != buffer).then_some(after),
        allocations: infos.iter().zip(&of_allocations).map(returned).collect(),
        callbacks,
    }
}
