//! The C ABI: the exported `D3DKMT*` names.
//!
//! A thunk copies the caller's struct in, makes the call, and copies the outputs back on success
//! only. It checks what it must read (pointers, counts) and nothing else: whether a handle, a type,
//! a flag or a value is good is the host's affair, and its NTSTATUS goes to the caller unchanged.

mod adapter;
mod allocation;
mod display;
mod escape;
mod hw_queue;
mod keyed_mutex;
mod layout;
mod legacy;
mod memory;
mod paging;
mod queue;
mod residency;
mod scheduling;
mod share;
mod sync;
mod sync_file;
mod thunk;
mod types;
mod wait;

#[cfg(test)]
mod layout_tests;
