//! Parameters of calls that have fields of their own.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{EventId, Handle, Handles, Values};

/// The caller's buffer for a keyed mutex's private runtime data.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RuntimeBuffer {
    pub size: u32,
    /// A size without a buffer is refused (W-174).
    pub present: bool,
    /// Content of the buffer. A mutex without data of its own adopts it (FEN-082).
    pub data: Vec<u8>,
}

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION`, one of [`operation`](crate::gpu_va::operation). Sizes and offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct GpuVaOperation {
    pub operation: u32,
    /// COPY: the source.
    pub base: u64,
    pub size: u64,
    /// MAP and MAP_PROTECT: what is mapped, repeated if the range is larger.
    pub allocation: Handle,
    pub allocation_offset: u64,
    /// 0: as much as `size`. See [`mapped_span`](Self::mapped_span).
    pub allocation_size: u64,
    /// MAP_PROTECT and UNMAP.
    pub protection: u64,
    /// COPY.
    pub destination: u64,
}

impl GpuVaOperation {
    /// Bytes of the allocation that MAP and MAP_PROTECT map.
    pub fn mapped_span(&self) -> u64 {
        if self.allocation_size == 0 { self.size } else { self.allocation_size }
    }
}

/// Effect of a GPU signal packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GpuSignal {
    /// One value for each object (`MonitoredFenceValueArray`).
    Monitored { objects: Handles, values: Values },
    /// The legacy types: a mutex is released, a semaphore counted up, a FENCE set to the one value.
    Legacy { objects: Handles, fence_value: u64 },
    /// `EnqueueCpuEvent`: no object, set this event (FEN-036).
    CpuEvent { event: EventId },
}
