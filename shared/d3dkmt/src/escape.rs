//! Escapes: private requests of a user-mode driver to its kernel-mode driver, and the few kinds that the kernel itself
//! handles.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Handle;

bitflags::bitflags! {
    /// `D3DDDI_ESCAPEFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct EscapeFlags: u32 {
        /// Level two of synchronization: one thread in the driver, an idle GPU (ESC-017).
        const HARDWARE_ACCESS = 0x1;
        const DEVICE_STATUS_QUERY = 0x2;
        const CHANGE_FRAME_LATENCY = 0x4;
        /// The adapter is not woken from D3 (ESC-003).
        const NO_ADAPTER_SYNCHRONIZATION = 0x8;
        /// Set for an escape from a VM, by the kernel only (ESC-015).
        const VIRTUAL_MACHINE_DATA = 0x20;
        /// The data begin with a [`known`] type; with `DRIVERPRIVATE` only (ESC-014).
        const DRIVER_KNOWN_ESCAPE = 0x40;
        const DRIVER_COMMON_ESCAPE = 0x80;
    }
}

/// `D3DKMT_ESCAPETYPE`, the ones we name.
pub mod kind {
    pub const DRIVER_PRIVATE: u32 = 0;
    /// The data are an `int`, one of [`super::tdr_debug_control`].
    pub const TDR_DEBUG_CONTROL: u32 = 2;
}

/// `D3DKMT_TDRDBGCTRLTYPE`.
pub mod tdr_debug_control {
    pub const FORCE_TDR: u32 = 0;
    pub const DISABLE_BREAK: u32 = 1;
    pub const ENABLE_BREAK: u32 = 2;
    pub const UNCONDITIONAL: u32 = 3;
    pub const VSYNC_TDR: u32 = 4;
    pub const GPU_TDR: u32 = 5;
    pub const FORCE_DOD_TDR: u32 = 6;
    pub const FORCE_DOD_VSYNC_TDR: u32 = 7;
    pub const ENGINE_TDR: u32 = 8;
}

/// `D3DDDI_DRIVERESCAPETYPE`: the first 32 bits of a known escape's data.
pub mod known {
    /// The data: this, then `hAllocation`, in and out.
    pub const TRANSLATE_ALLOCATION_HANDLE: u32 = 0;
    /// The data: this, then `hResource`, in and out.
    pub const TRANSLATE_RESOURCE_HANDLE: u32 = 1;
    /// The data are a [`super::CpuEventUsage`].
    pub const CPU_EVENT_USAGE: u32 = 2;
    pub const BUILD_TEST_COMMAND_BUFFER: u32 = 3;
}

/// `D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE`, 48 bytes, little-endian:
///
/// ```text
///   0 u32 EscapeType = 2    4 u32 hSyncObject    8 u64 hKmdCpuEvent    16 u32 Usage[8]
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CpuEventUsage {
    /// `hSyncObject`: a CPU_NOTIFICATION object of the process, created with SignalByKmd.
    pub object: Handle,
    /// `hKmdCpuEvent`: filled by the kernel on the way to the driver and back to the user (ESC-006).
    pub kmd_cpu_event: u64,
    /// `Usage`: its meaning is private to the two drivers.
    pub usage: [u32; 8],
}

impl CpuEventUsage {
    /// Bytes of the structure.
    pub const SIZE: usize = 48;

    /// Decodes the structure; `None` for another size or another type.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let data: &[u8; Self::SIZE] = data.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        if word(0) != known::CPU_EVENT_USAGE {
            return None;
        }
        Some(CpuEventUsage {
            object: Handle(word(4)),
            kmd_cpu_event: u64::from(word(12)) << 32 | u64::from(word(8)),
            usage: core::array::from_fn(|at| word(16 + 4 * at)),
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let CpuEventUsage { object, kmd_cpu_event, usage } = self;
        let mut data = Vec::with_capacity(Self::SIZE);
        data.extend(known::CPU_EVENT_USAGE.to_le_bytes());
        data.extend(object.0.to_le_bytes());
        data.extend(kmd_cpu_event.to_le_bytes());
        data.extend(usage.iter().flat_map(|word| word.to_le_bytes()));
        data
    }
}
