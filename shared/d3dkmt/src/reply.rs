//! Every reply that a call can get: one row of this table for each, as for calls.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{Handle, Luid, NtStatus, ResourceInfo};

replies! {
    $
    6 Adapters[0: Vec<Adapter>];
    7 Adapter[0: Handle];
    8 AdapterInfo[0: Vec<u8>];
    9 Device[0: Handle];
    10 DeviceState[0: u32];
    11 Context[0: Handle];
    12 SyncObject[0: CreatedSyncObject];
    13 Wait[0: WaitOutcome];
    /// Nothing was done: the process has no free fence slot. The guest brings more fence memory
    /// and asks again; callers never see this.
    14 FenceMemoryExhausted;
    /// The global handle is NULL for a mutex that is shared by NT handle.
    15 KeyedMutex { 1 mutex: Handle, 2 shared_handle: Handle, 3 private_data: Vec<u8> };
    16 KeyedMutexAcquire { () outcome: AcquireOutcome, 5 private_data: Vec<u8> };
    17 KeyedMutexData { 1 fence_value: u64, 2 private_data: Vec<u8> };
    18 PagingQueue { 1 queue: Handle, 2 fence: CreatedSyncObject };
    /// 0 as fence value: nothing to wait for.
    19 GpuVirtualAddress { 1 address: u64, 2 paging_fence_value: u64 };
    20 HwQueue { 1 queue: Handle, 2 progress_fence: CreatedSyncObject };
    /// Where the guest reads the doorbell's status (SCH-027).
    21 Doorbell(status_slot: u32);
    22 PageFault[0: PageFaultState];
    23 Priority[0: i32];
    /// What the caller's buffer holds after it.
    24 Escape[0: Vec<u8>];
    25 Feature[0: FeatureResult];
    /// The resource is NULL without one, the global handle if it has none.
    30 Allocations { 1 resource: Handle, 2 shared_handle: Handle, 3 allocations: Vec<Handle> };
    31 ResourceInfo[0: ResourceInfo];
    /// The keyed mutex and the synchronization object are NULL unless they go with an NT handle.
    32 OpenedResource {
        1 resource: Handle,
        2 allocations: Vec<Handle>,
        3 runtime_data: Vec<u8>,
        4 keyed_mutex: Handle,
        5 sync_object: Handle,
    };
    /// The address in the caller's own address space.
    33 Locked(address: u64);
    /// `D3DDDI_ALLOCATIONPRIORITY` of each allocation.
    34 AllocationPriorities[0: Vec<u32>];
    /// 0 as fence value: nothing to wait for. Over budget nothing was done: STATUS_NO_MEMORY. `bytes_to_trim` is how many
    /// bytes the process has over its budget, or would have.
    35 Residency { 1 paging_fence_value: u64, 2 bytes_to_trim: u64, 3 over_budget: bool };
    36 VideoMemoryInfo[0: VideoMemoryInfo];
}

/// What a reply's field names.
trait NamesHandles {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle));
}

impl NamesHandles for Handle {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        each(self);
    }
}

impl NamesHandles for Vec<Handle> {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        self.iter_mut().for_each(each);
    }
}

impl NamesHandles for Vec<Adapter> {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        self.iter_mut().for_each(|adapter| each(&mut adapter.handle));
    }
}

impl NamesHandles for CreatedSyncObject {
    fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        each(&mut self.object);
        each(&mut self.shared_handle);
    }
}

macro_rules! names_no_handle {
    ($($type:ty),+ $(,)?) => {
        $(impl NamesHandles for $type {
            fn handles_mut(&mut self, _: &mut dyn FnMut(&mut Handle)) {}
        })+
    };
}

names_no_handle! {
    bool, u32, i32, u64, Vec<u8>, Vec<u32>, WaitOutcome, AcquireOutcome, PageFaultState, FeatureResult, ResourceInfo,
    VideoMemoryInfo,
}

/// What `D3DKMTQueryVideoMemoryInfo` answers, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct VideoMemoryInfo {
    pub budget: u64,
    pub current_usage: u64,
    pub current_reservation: u64,
    pub available_for_reservation: u64,
}

/// `D3DKMT_ADAPTERINFO`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Adapter {
    pub handle: Handle,
    pub luid: Luid,
    pub sources: u32,
}

/// What creating or opening a sync object gives back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CreatedSyncObject {
    pub object: Handle,
    /// Global handle, for legacy sharing only (FEN-063).
    pub shared_handle: Handle,
    /// Slot of the fence value in the process's fence memory; monitored fences only.
    pub slot: Option<u32>,
    /// GPU virtual address of the value; 0 with NoGPUAccess.
    pub gpu_address: u64,
    /// The GPU address holds once the device's paging fence has this value; 0: at once (FEN-062).
    pub paging_fence_value: u64,
}

/// `D3DKMT_DEVICEPAGEFAULT_STATE`, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PageFaultState {
    /// `DXGK_PAGE_FAULT_FLAGS`.
    pub flags: u32,
    pub gpu_address: u64,
}

/// How a keyed mutex was acquired, or not. The fence value is written whatever the outcome (W-192).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AcquireOutcome {
    /// It is the caller's: STATUS_SUCCESS.
    Acquired { fence_value: u64 },
    /// The time was up at once: STATUS_TIMEOUT.
    TimedOut { fence_value: u64 },
    /// Its owner died: STATUS_ABANDONED (FEN-080).
    Abandoned { fence_value: u64 },
    /// A wake-up of the given name will follow.
    Registered,
}

/// How a CPU wait was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitOutcome {
    /// The condition holds: no wake-up will follow.
    Satisfied,
    /// A wake-up of the given name will follow.
    Registered,
}

/// `DXGK_ISFEATUREENABLED_RESULT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FeatureResult {
    pub version: u16,
    pub enabled: bool,
    pub known: bool,
    pub supported_by_driver: bool,
    pub supported_on_current_config: bool,
}

impl FeatureResult {
    /// `Value`: Enabled, KnownFeature, SupportedByDriver, SupportedOnCurrentConfig from bit 0 on.
    pub const fn value(self) -> u16 {
        let FeatureResult { enabled, known, supported_by_driver, supported_on_current_config, .. } = self;
        enabled as u16
            | (known as u16) << 1
            | (supported_by_driver as u16) << 2
            | (supported_on_current_config as u16) << 3
    }

    pub const fn from_value(version: u16, value: u16) -> Self {
        FeatureResult {
            version,
            enabled: value & 1 != 0,
            known: value & 2 != 0,
            supported_by_driver: value & 4 != 0,
            supported_on_current_config: value & 8 != 0,
        }
    }
}

impl Reply {
    /// The status that goes with this reply: not always SUCCESS.
    pub const fn status(&self) -> NtStatus {
        match self {
            Reply::KeyedMutexAcquire { outcome: AcquireOutcome::TimedOut { .. }, .. } => NtStatus::TIMEOUT,
            Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Abandoned { .. }, .. } => NtStatus::ABANDONED,
            Reply::Residency { over_budget: true, .. } => NtStatus::NO_MEMORY,
            Reply::GpuVirtualAddress { paging_fence_value: 1.., .. }
            | Reply::Residency { paging_fence_value: 1.., .. } => NtStatus::PENDING,
            _ => NtStatus::SUCCESS,
        }
    }
}
