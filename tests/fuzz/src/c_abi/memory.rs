//! Memory of a program: buffers of exact sizes on the heap, and pages for allocations.

use std::ptr::NonNull;

use abi::layout::Layout;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Bytes that allocations may be made of.
const PAGES_BYTES: usize = 16 << 20;

/// Memory of allocations, which the library maps other pages over.
pub struct Pages(usize);

impl Pages {
    pub fn new() -> Pages {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice. It is never unmapped.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGES_BYTES, protection, flags) };
        Pages(memory.expect("the system has memory left") as usize)
    }

    pub fn address(&self) -> u64 {
        self.0 as u64
    }
}

/// One heap allocation.
struct Buffer {
    memory: NonNull<[u8]>,
    /// Bytes before the part that is used.
    before: usize,
    layout: Option<&'static Layout>,
}

/// The buffers of a call.
#[derive(Default)]
pub struct Buffers(Vec<Buffer>);

impl Buffers {
    /// Adds a buffer that ends where its allocation does; at an odd address if asked. Returns its address.
    pub fn add(&mut self, contents: &[u8], is_odd: bool, layout: Option<&'static Layout>) -> u64 {
        let before = usize::from(is_odd);
        let mut bytes = Vec::with_capacity(before + contents.len());
        bytes.resize(before, 0);
        bytes.extend_from_slice(contents);
        let memory = NonNull::from(Box::leak(bytes.into_boxed_slice()));
        self.0.push(Buffer { memory, before, layout });
        memory.cast::<u8>().as_ptr().expose_provenance() as u64 + before as u64
    }

    /// A copy of the first bytes of the buffer at this address.
    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let buffer = self.0.iter().rev().find(|buffer| buffer.address() == address).expect("it was added");
        buffer.contents()[..length].to_vec()
    }

    /// The first four bytes of each element of buffers whose type has this in its name, but 0.
    pub fn first_words(&self, name: &str) -> Vec<u32> {
        let mut words = Vec::new();
        for buffer in &self.0 {
            let Some(layout) = buffer.layout.filter(|layout| layout.name.contains(name)) else { continue };
            for element in buffer.contents().chunks(layout.bytes) {
                words.extend(
                    element.first_chunk().map(|word| u32::from_le_bytes(*word)).filter(|word| *word != 0),
                );
            }
        }
        words
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Buffer {
    fn address(&self) -> u64 {
        self.memory.cast::<u8>().addr().get() as u64 + self.before as u64
    }

    fn contents(&self) -> &[u8] {
        // SAFETY: the allocation is this value's, and no call is in progress that writes it.
        let all = unsafe { self.memory.as_ref() };
        &all[self.before..]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box in `add`, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
