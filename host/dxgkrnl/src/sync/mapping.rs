//! How a fence's value is mapped: where the CPU and the engines find it, and who may write there.
//!
//! ```text
//!   the user's CPU code   reads its slot; never writes (FEN-004). The memory of a guest is always mapped cached, also
//!                         where FEN-006 wants it uncached: on an adapter without I/O coherency a process that polls
//!                         sees what an engine wrote only after the interrupt.
//!   an engine             GpuMmu: the GPU address; reads and writes, unless the open has NoSignal (reads only) or
//!                         NoGPUAccess (not mapped), or the display alone counts it up (FEN-085).
//!                         IoMmu:  the CPU address, mapped for reading and writing for this; there is nothing at
//!                         an address of a GpuMmu (FEN-008). A process reports the CPU address of slot 0; the
//!                         default is 0x7F00_0000_0000. Windows maps the value read-write for such an
//!                         engine; here the host stores for it, and the process's mapping stays read-only (FEN-004).
//!   of which adapters     the physical adapters of EngineAffinity, 0 = all of the link (FEN-059). An opener passes
//!                         its own.
//!   from when on          at once for its creator; for an opener, when the paging fence of its device has the
//!                         value that the open returned (FEN-062, F-10).
//! ```
//! LocalMemoryPreferred asks for a place in the GPU's memory (FEN-056). A value is in the client's memory, so the flag has
//! no effect.

use serde::{Deserialize, Serialize};

/// How an open is mapped for engines.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mapping {
    /// Bit n = physical adapter n; 0 = all.
    pub engine_affinity: u32,
    /// The mapping is not valid before the device's paging fence has this value.
    pub pending: Option<u64>,
    /// Set for the fence of a paging queue: that queue.
    pub paging_queue: Option<u32>,
}
