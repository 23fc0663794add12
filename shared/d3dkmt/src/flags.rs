//! Flag words. Unknown bits are retained; the kernel model refuses them.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct SyncObjectFlags: u32 {
        const SHARED = 0x1;
        const NT_SECURITY_SHARING = 0x2;
        const CROSS_ADAPTER = 0x4;
        const TOP_OF_PIPELINE = 0x8;
        const NO_SIGNAL = 0x10;
        const NO_WAIT = 0x20;
        const NO_SIGNAL_MAX_VALUE_ON_TDR = 0x40;
        const NO_GPU_ACCESS = 0x80;
        const SIGNAL_BY_KMD = 0x100;
        const LOCAL_MEMORY_PREFERRED = 0x200;
        const UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY = 0x400;
    }

    /// `D3DDDICB_SIGNALFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct SignalFlags: u32 {
        const SIGNAL_AT_SUBMISSION = 0x1;
        const ENQUEUE_CPU_EVENT = 0x2;
        const ALLOW_FENCE_REWIND = 0x4;
    }

    /// `D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WaitFromCpuFlags: u32 {
        const WAIT_ANY = 0x1;
    }

    /// `D3DDDI_CREATECONTEXTFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct CreateContextFlags: u32 {
        const NULL_RENDERING = 0x1;
        const INITIAL_DATA = 0x2;
        const DISABLE_GPU_TIMEOUT = 0x4;
        const SYNCHRONIZATION_ONLY = 0x8;
        const HW_QUEUE_SUPPORTED = 0x10;
        const NO_KMD_ACCESS = 0x20;
        const TEST_CONTEXT = 0x40;
    }

    /// `D3DDDI_CREATEHWQUEUEFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct HwQueueFlags: u32 {
        const DISABLE_GPU_TIMEOUT = 0x1;
        const NO_BROADCAST_SIGNAL = 0x2;
        const NO_BROADCAST_WAIT = 0x4;
        const NO_KMD_ACCESS = 0x8;
        const USER_MODE_SUBMISSION = 0x10;
        const NATIVE_PROGRESS_FENCE = 0x20;
        const TEST_QUEUE = 0x40;
    }

    /// `D3DKMT_CREATEALLOCATIONFLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct CreateAllocationFlags: u32 {
        const CREATE_RESOURCE = 0x1;
        const CREATE_SHARED = 0x2;
        const NON_SECURE = 0x4;
        const CREATE_PROTECTED = 0x8;
        const RESTRICT_SHARED_ACCESS = 0x10;
        const EXISTING_SYS_MEM = 0x20;
        const NT_SECURITY_SHARING = 0x40;
        const READ_ONLY = 0x80;
        const CREATE_WRITE_COMBINED = 0x100;
        const CREATE_CACHED = 0x200;
        const SWAP_CHAIN_BACK_BUFFER = 0x400;
        const CROSS_ADAPTER = 0x800;
        const OPEN_CROSS_ADAPTER = 0x1000;
        const PARTIAL_SHARED_CREATION = 0x2000;
        const ZEROED = 0x4000;
        const WRITE_WATCH = 0x8000;
        const STANDARD_ALLOCATION = 0x1_0000;
        const EXISTING_SECTION = 0x2_0000;
        const ALLOW_NOT_ZEROED = 0x4_0000;
        const PHYSICALLY_CONTIGUOUS = 0x8_0000;
        const NO_KMD_ACCESS = 0x10_0000;
        const SHARED_DISPLAYABLE = 0x20_0000;
    }

    /// `D3DDDICB_DESTROYALLOCATION2FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct DestroyAllocationFlags: u32 {
        const ASSUME_NOT_IN_USE = 0x1;
        const SYNCHRONOUS_DESTROY = 0x2;
    }

    /// `D3DKMT_CREATEKEYEDMUTEX2_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct KeyedMutexFlags: u32 {
        const NT_SECURITY_SHARING = 0x1;
    }
}

/// Adds `unknown()` to flag words.
macro_rules! unknown_bits {
    ($($flags:ty),+) => {
        $(impl $flags {
            /// Bits that this interface version does not define.
            pub const fn unknown(self) -> u32 {
                self.bits() & !Self::all().bits()
            }
        })+
    };
}
unknown_bits!(
    SyncObjectFlags,
    SignalFlags,
    WaitFromCpuFlags,
    CreateContextFlags,
    HwQueueFlags,
    KeyedMutexFlags,
    CreateAllocationFlags,
    DestroyAllocationFlags,
    crate::EscapeFlags
);

/// Rights of an NT handle (`D3DKMTShareObjects`, F-71).
pub mod access {
    /// `D3DDDI_SYNC_OBJECT_WAIT`.
    pub const SYNC_OBJECT_WAIT: u32 = 0x1;
    /// `D3DDDI_SYNC_OBJECT_SIGNAL`.
    pub const SYNC_OBJECT_SIGNAL: u32 = 0x2;
    /// READ_CONTROL.
    pub const STANDARD_RIGHTS_READ: u32 = 0x2_0000;
    /// READ_CONTROL as well.
    pub const STANDARD_RIGHTS_WRITE: u32 = STANDARD_RIGHTS_READ;
    /// `D3DDDI_SYNC_OBJECT_ALL_ACCESS`.
    pub const SYNC_OBJECT_ALL_ACCESS: u32 = 0x1F_0003;
    /// `GENERIC_ALL`: every right of the object's type, as D3D12's CreateSharedHandle asks for.
    pub const GENERIC_ALL: u32 = 0x1000_0000;
    /// Read the object's state: wait.
    pub const GENERIC_READ: u32 = 0x8000_0000;
    /// Change the object's state: signal.
    pub const GENERIC_WRITE: u32 = 0x4000_0000;
}
