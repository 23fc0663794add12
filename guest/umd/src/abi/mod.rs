//! The C ABI: the exported `D3DKMT*` names.
//!
//! A thunk copies the caller's struct in, makes the call, and copies the outputs back on success
//! only. It checks what it must read (pointers, counts) and nothing else: whether a handle, a type,
//! a flag or a value is good is the host's affair, and its NTSTATUS goes to the caller unchanged.

mod adapter;
mod layout;
mod memory;
mod queue;
mod share;
mod sync;
mod thunk;
mod types;
mod wait;

#[cfg(test)]
mod layout_tests;
