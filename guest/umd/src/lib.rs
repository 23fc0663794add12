//! The guest's D3DKMT library. As a cdylib it is `libdxcore.so`, with the C names and layouts that real clients use; as
//! an rlib it provides the same client core to programs of this repository.
//!
//! ```text
//!  C caller ──▶ abi (thunks: copy in, copy out, no panic leaves) ──▶ process (the one session,
//!     fork) ──▶ client::Session (local tables, fence memory, waits) ──▶ client::Channel (one stream,
//!     leader and followers) ──▶ host
//! ```
//!
//! `dxcore` has the COM interfaces of DXCore on the same session.
//!
//! The library runs in other programs' processes: no runtime, no signal, and no exit handler unless the host asks for
//! times. It registers fork handlers when it is loaded. It starts a thread when the first event is armed or the first
//! notification is registered, and at the attach to a daemon with a journal. Only the host's kernel model checks what an
//! object may do; the library checks only what cannot be sent.

mod abi;
pub mod client;
mod dxcore;
mod environment;
mod fork;
mod in_call;
pub mod limits;
mod notice;
mod nt_handle;
mod process;
mod signals;
