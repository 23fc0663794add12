//! The guest's D3DKMT library. As a cdylib it is `libdxcore.so`, with the C names and layouts that
//! real clients use; as an rlib it is the same client core for programs of this tree.
//!
//! ```text
//!  C caller ──▶ abi (thunks: copy in, copy out, no panic leaves) ──▶ process (the one session,
//!     fork) ──▶ client::Session (local tables, fence memory, waits) ──▶ client::Channel (one stream,
//!     leader and followers) ──▶ host
//! ```
//!
//! The library lives in other people's processes: no runtime, no thread until an event is armed, no
//! signal, no exit handler but for a host that asks for times. What an object may do is judged by the host's kernel model alone; here
//! is checked only what cannot be sent.

mod abi;
pub mod client;
mod environment;
mod fork;
pub mod limits;
mod notice;
mod nt_handle;
mod process;
