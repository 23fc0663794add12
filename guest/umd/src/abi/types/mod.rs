//! The structs of the C ABI. Each begins its doc with the C name; sizes and offsets are asserted in
//! [`super::layout`]. Unions are their largest member's bytes or the one member that we use.

mod allocation;
mod display;
mod escape;
mod hw_queue;
mod keyed_mutex;
mod legacy;
mod paging;
mod residency;
mod scheduling;
mod share;

use std::ffi::c_void;

use d3dkmt::SyncObjectType;

pub(crate) use allocation::{
    AllocationInfo, AllocationInfo2, CreateAllocation, DestroyAllocation, DestroyAllocation2,
    OpenAllocationInfo, OpenAllocationInfo2, OpenResource, OpenResourceFromNtHandle, QueryResourceInfo,
    QueryResourceInfoFromNtHandle, StandardAllocation,
};
pub(crate) use display::{OpenAdapterFromDeviceName, OpenAdapterFromGdiDisplayName, OpenAdapterFromHdc};
pub(crate) use escape::{Escape, IsFeatureEnabled};
pub(crate) use hw_queue::{
    CreateHwQueue, CreateNativeFence, NativeFenceInfo, NativeFenceMapping, OpenNativeFenceFromNtHandle,
    SubmitCommandToHwQueue, SubmitSignalToHwQueue, SubmitWaitToHwQueue,
};
pub(crate) use keyed_mutex::{
    AcquireKeyedMutex, AcquireKeyedMutex2, CreateKeyedMutex, CreateKeyedMutex2, OpenKeyedMutex,
    OpenKeyedMutex2, OpenKeyedMutexFromNtHandle, ReleaseKeyedMutex, ReleaseKeyedMutex2,
};
pub(crate) use legacy::{
    OpenSynchronizationObject, SignalSynchronizationObject, SignalSynchronizationObject2,
    WaitForSynchronizationObject, WaitForSynchronizationObject2,
};
pub(crate) use paging::{
    CreatePagingQueue, FreeGpuVirtualAddress, GpuVaOperation, MapGpuVirtualAddress, ReserveGpuVirtualAddress,
    UpdateGpuVirtualAddress,
};
pub(crate) use residency::{AllocationPriority, Evict, Lock2, MakeResident, QueryVideoMemoryInfo, Unlock2};
pub(crate) use scheduling::{ContextPriority, MarkDeviceAsError};
pub(crate) use share::{
    CreateSyncFile, ObjectAttributes, OpenNtHandleFromName, OpenSyncObjectFromNtHandle,
    OpenSyncObjectFromSyncFile, UnicodeString, WaitSyncFile,
};

/// `D3DKMT_ADAPTERINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AdapterInfo {
    pub adapter: u32,
    pub luid_low: u32,
    pub luid_high: i32,
    pub sources: u32,
    pub precise_present_regions_preferred: u32,
}

/// `D3DKMT_ENUMADAPTERS2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EnumAdapters2 {
    pub count: u32,
    pub adapters: *mut AdapterInfo,
}

/// `D3DKMT_ENUMADAPTERS3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EnumAdapters3 {
    pub filter: u64,
    pub count: u32,
    pub adapters: *mut AdapterInfo,
}

/// `D3DKMT_OPENADAPTERFROMLUID`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAdapterFromLuid {
    pub luid_low: u32,
    pub luid_high: i32,
    pub adapter: u32,
}

/// `D3DKMT_CLOSEADAPTER`, `D3DKMT_DESTROYDEVICE`, `D3DKMT_DESTROYCONTEXT`,
/// `D3DKMT_DESTROYSYNCHRONIZATIONOBJECT`, `D3DKMT_DESTROYKEYEDMUTEX`, `D3DDDI_DESTROYPAGINGQUEUE` and
/// `D3DKMT_DESTROYHWQUEUE`: nothing but a handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OneHandle {
    pub handle: u32,
}

/// `D3DKMT_QUERYADAPTERINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueryAdapterInfo {
    pub adapter: u32,
    pub kind: u32,
    pub private_data: *mut c_void,
    pub private_data_size: u32,
}

/// `D3DKMT_CREATEDEVICE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateDevice {
    /// A union of the handle with a pointer that only kernel callers use.
    pub adapter: u32,
    pub adapter_high: u32,
    pub flags: u32,
    pub device: u32,
    pub command_buffer: *mut c_void,
    pub command_buffer_size: u32,
    pub allocation_list: *mut c_void,
    pub allocation_list_size: u32,
    pub patch_location_list: *mut c_void,
    pub patch_location_list_size: u32,
}

/// `D3DKMT_GETDEVICESTATE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GetDeviceState {
    pub device: u32,
    pub state_type: u32,
    /// A union; the states we answer stand in its first word.
    pub state: u32,
    pub second: u32,
    pub rest: [u64; 5],
}

/// `D3DKMT_CREATECONTEXTVIRTUAL`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateContextVirtual {
    pub device: u32,
    pub node_ordinal: u32,
    pub engine_affinity: u32,
    pub flags: u32,
    pub private_data: *mut c_void,
    pub private_data_size: u32,
    pub client_hint: u32,
    pub context: u32,
}

/// `D3DDDI_SYNCHRONIZATIONOBJECTINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SyncObjectInfo1 {
    pub object_type: u32,
    /// MUTEX: InitialState. SEMAPHORE: MaxCount, InitialCount.
    pub words: [u32; 16],
}

/// `D3DKMT_CREATESYNCHRONIZATIONOBJECT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateSynchronizationObject {
    pub device: u32,
    pub info: SyncObjectInfo1,
    pub object: u32,
}

/// The union of `D3DDDI_SYNCHRONIZATIONOBJECTINFO2`: what its bytes mean depends on the type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SyncObjectUnion {
    /// MONITORED_FENCE and FENCE: the initial value. CPU_NOTIFICATION: the event. MUTEX: the
    /// initial state. SEMAPHORE: maximum and initial count. PERIODIC_MONITORED_FENCE: adapter and target.
    pub first: u64,
    /// MONITORED_FENCE: CPU virtual address. PERIODIC_MONITORED_FENCE: the time.
    pub cpu_address: u64,
    /// MONITORED_FENCE: GPU virtual address. PERIODIC_MONITORED_FENCE: CPU virtual address.
    pub gpu_address: u64,
    /// MONITORED_FENCE. PERIODIC_MONITORED_FENCE, with the padding: GPU virtual address.
    pub engine_affinity: u32,
    pub padding: u32,
    /// PERIODIC_MONITORED_FENCE: the affinity, in the first half of the first.
    pub rest: [u64; 4],
}

impl SyncObjectUnion {
    /// Writes where the value of a fence of this type is to be read.
    pub fn place(&mut self, object_type: SyncObjectType, cpu_address: u64, gpu_address: u64) {
        if object_type == SyncObjectType::PERIODIC_MONITORED_FENCE {
            self.gpu_address = cpu_address;
            (self.engine_affinity, self.padding) = (gpu_address as u32, (gpu_address >> 32) as u32);
        } else {
            (self.cpu_address, self.gpu_address) = (cpu_address, gpu_address);
        }
    }
}

/// `D3DDDI_SYNCHRONIZATIONOBJECTINFO2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SyncObjectInfo2 {
    pub object_type: u32,
    pub flags: u32,
    pub union: SyncObjectUnion,
    pub shared_handle: u32,
}

/// `D3DKMT_CREATESYNCHRONIZATIONOBJECT2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateSynchronizationObject2 {
    pub device: u32,
    pub info: SyncObjectInfo2,
    pub object: u32,
}

/// `D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenSyncObjectFromNtHandle2 {
    pub nt_handle: u64,
    pub device: u32,
    pub flags: u32,
    pub object: u32,
    pub cpu_address: u64,
    pub gpu_address: u64,
    pub engine_affinity: u32,
    pub rest: [u32; 11],
}

/// `D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SignalFromCpu {
    pub device: u32,
    pub object_count: u32,
    pub objects: *const u32,
    pub values: *const u64,
    pub flags: u32,
}

/// `D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitFromCpu {
    pub device: u32,
    pub object_count: u32,
    pub objects: *const u32,
    pub values: *const u64,
    pub async_event: u64,
    pub flags: u32,
}

/// `D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU` and `D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FromGpu {
    pub context: u32,
    pub object_count: u32,
    pub objects: *const u32,
    /// A union: pointer to the values, or one value (legacy fences).
    pub values: u64,
    pub rest: [u64; 7],
}

/// `D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SignalFromGpu2 {
    pub object_count: u32,
    pub objects: *const u32,
    pub flags: u32,
    pub context_count: u32,
    pub contexts: *const u32,
    /// A union: pointer to the values, one value, or an event.
    pub values: u64,
    pub rest: [u64; 7],
}

/// `D3DKMT_SUBMITCOMMAND`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SubmitCommand {
    pub commands: u64,
    pub command_length: u32,
    pub flags: u32,
    pub present_history_token: u64,
    pub context_count: u32,
    pub contexts: [u32; 64],
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub primary_count: u32,
    pub written_primaries: [u32; 16],
    pub history_buffer_count: u32,
    pub history_buffers: *const u32,
}
