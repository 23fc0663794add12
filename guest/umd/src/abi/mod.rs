//! The C ABI: the exported `D3DKMT*` names.
//!
//! `types` declares every C struct, enum and flag word once, `calls` every function; `include/d3dkmthk.h` is made of the
//! two. A C function copies the caller's struct in, makes the call, and copies the outputs back on success
//! only. It checks what it must read (pointers, counts) and nothing else: whether a handle, a type,
//! a flag or a value is good is the host's affair, and its NTSTATUS goes to the caller unchanged.

mod adapter;
mod allocation;
mod calls;
mod display;
mod escape;
#[cfg(test)]
mod header;
mod hw_queue;
mod keyed_mutex;
mod legacy;
mod memory;
mod paging;
mod queue;
mod residency;
mod scheduling;
#[cfg(test)]
mod sdk_tests;
mod share;
mod sync;
mod sync_file;
mod thunk;
mod types;
mod wait;
