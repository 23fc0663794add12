//! The C ABI: the exported `D3DKMT*` names.
//!
//! The crate `abi` declares every C struct, enum, flag word and function; `calls` exports the functions. A C function
//! copies the caller's struct in, makes the call, and copies the outputs back on success only. It checks only what it
//! must read (pointers, counts). The host checks handles, types, flags and values, and its NTSTATUS goes to the caller
//! unchanged.

mod adapter;
mod allocation;
mod calls;
mod display;
mod escape;
mod hw_queue;
mod keyed_mutex;
mod legacy;
mod memory;
mod notification;
mod offer;
mod paging;
mod queue;
mod refused;
mod residency;
mod scheduling;
mod share;
mod sync;
mod sync_file;
mod thunk;
mod wait;
