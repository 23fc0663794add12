//! Every call that a guest can make and every reply it can get. Both are closed: adding a call
//! makes the compiler lead through the wire, the kernel and the C ABI.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::{
    CreateAllocation, CreateContextFlags, DestroyAllocationFlags, EscapeFlags, EventId, Handle, Handles,
    HwQueueFlags, KeyedMutexFlags, Luid, NtStatus, ResourceInfo, ShareToken, SignalFlags, SyncObjectFlags,
    SyncObjectInfo, Values, WaitFromCpuFlags,
};

/// One D3DKMT call with its inputs. Each variant begins its doc with the C name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// `D3DKMTEnumAdapters2` / `3`: opens a handle for each adapter, `capacity` at most.
    EnumAdapters { capacity: u32 },
    /// `D3DKMTOpenAdapterFromLuid`.
    OpenAdapterFromLuid { luid: Luid },
    /// `D3DKMTCloseAdapter`.
    CloseAdapter { adapter: Handle },
    /// `D3DKMTQueryAdapterInfo`: `data` is the caller's buffer, in and out.
    QueryAdapterInfo { adapter: Handle, kind: u32, data: Vec<u8> },
    /// `D3DKMTCreateDevice`.
    CreateDevice { adapter: Handle, flags: u32 },
    /// `D3DKMTDestroyDevice`.
    DestroyDevice { device: Handle },
    /// `D3DKMTGetDeviceState`.
    GetDeviceState { device: Handle, state_type: u32 },
    /// `D3DKMTCreateContextVirtual`.
    CreateContextVirtual {
        device: Handle,
        node_ordinal: u32,
        engine_affinity: u32,
        flags: CreateContextFlags,
        client_hint: u32,
        private_data: Vec<u8>,
    },
    /// `D3DKMTDestroyContext`.
    DestroyContext { context: Handle },
    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `D3DKMTCreateSynchronizationObject2`.
    CreateSynchronizationObject { device: Handle, info: SyncObjectInfo, legacy: bool },
    /// `D3DKMTDestroySynchronizationObject`.
    DestroySynchronizationObject { object: Handle },
    /// `D3DKMTSignalSynchronizationObjectFromCpu`.
    SignalFromCpu { device: Handle, objects: Handles, values: Values, flags: SignalFlags },
    /// `D3DKMTWaitForSynchronizationObjectFromCpu`. `event` names the wake-up; whether the caller
    /// blocks or gave a handle of an event is the guest's own affair.
    WaitFromCpu { device: Handle, objects: Handles, values: Values, flags: WaitFromCpuFlags, event: EventId },
    /// The guest no longer waits (the thread was interrupted): forget the wait of this name.
    CancelWait { event: EventId },
    /// `D3DKMTSignalSynchronizationObjectFromGpu` and `..FromGpu2`: a packet in each context.
    SignalFromGpu { contexts: Handles, signal: GpuSignal, flags: SignalFlags },
    /// `D3DKMTWaitForSynchronizationObjectFromGpu`: a packet in the context's queue.
    WaitFromGpu { context: Handle, objects: Handles, values: Values },
    /// `D3DKMTSubmitCommand`. The command buffer travels in the private driver data.
    SubmitCommand { contexts: Handles, commands: u64, length: u32, flags: u32, private_data: Vec<u8> },
    /// `D3DKMTWaitForSynchronizationObject` and `..2`, and `..FromGpu` where the union is one value: the legacy
    /// types. A mutex is acquired, a semaphore counted down, a FENCE waited for at `fence_value` (F-77 to F-80).
    WaitFromGpuLegacy { context: Handle, objects: Handles, fence_value: u64 },
    /// `D3DKMTOpenSynchronizationObject`: by the global handle of a legacy object.
    OpenSynchronizationObject { shared_handle: Handle },
    /// `D3DKMTShareObjects`. The guest has the NT handle from its broker; the token is what it carries. `name` is the last part of
    /// the object's name, if it has one.
    ShareObjects { objects: Vec<Handle>, desired_access: u32, name: Option<String>, token: ShareToken },
    /// `D3DKMTOpenSyncObjectFromNtHandle2`, and the first form of it with a NULL device and `legacy`.
    OpenSyncObject {
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        legacy: bool,
    },
    /// `D3DKMTOpenSyncObjectNtHandleFromName`: `token` is what the guest's new NT handle will carry.
    OpenNtHandleFromName { name: String, desired_access: u32, token: ShareToken },

    /// `D3DKMTCreateKeyedMutex` (no data, no flags) and `..2`.
    CreateKeyedMutex { initial_value: u64, private_data: Vec<u8>, flags: KeyedMutexFlags },
    /// `D3DKMTOpenKeyedMutex` (no buffer) and `..2`: by global handle.
    OpenKeyedMutex { shared_handle: Handle, buffer: RuntimeBuffer },
    /// `D3DKMTOpenKeyedMutexFromNtHandle`.
    OpenKeyedMutexFromNtHandle { token: ShareToken, buffer: RuntimeBuffer },
    /// `D3DKMTDestroyKeyedMutex`.
    DestroyKeyedMutex { mutex: Handle },
    /// `D3DKMTAcquireKeyedMutex` and `..2`. `timeout` in units of 100 ns: positive = absolute since 1601, negative =
    /// relative, 0 = poll, `None` = for ever (FEN-077). The wake-up of a registered one says how it ended:
    /// SUCCESS, TIMEOUT or ABANDONED; after SUCCESS what the mutex holds is read with [`Call::ReadKeyedMutex`].
    AcquireKeyedMutex { mutex: Handle, key: u64, timeout: Option<i64>, event: EventId },
    /// What a keyed mutex holds: asked by the library behind a registered acquire that has ended with SUCCESS.
    ReadKeyedMutex { mutex: Handle },
    /// `D3DKMTReleaseKeyedMutex` (`None`: the data stays) and `..2`.
    ReleaseKeyedMutex { mutex: Handle, key: u64, fence_value: u64, private_data: Option<Vec<u8>> },

    /// `D3DKMTCreateAllocation` and `..2`.
    CreateAllocation(Box<CreateAllocation>),
    /// `D3DKMTDestroyAllocation` and `..2`: a resource with all it has, or allocations by their handles.
    DestroyAllocation {
        device: Handle,
        resource: Handle,
        allocations: Vec<Handle>,
        flags: DestroyAllocationFlags,
    },
    /// `D3DKMTQueryResourceInfo`: by global handle.
    QueryResourceInfo { device: Handle, shared_handle: Handle },
    /// `D3DKMTOpenResource` and `..2`: by global handle; the caller's buffers have the sizes of `info`.
    OpenResource { device: Handle, shared_handle: Handle, info: ResourceInfo },
    /// `D3DKMTQueryResourceInfoFromNtHandle`.
    QueryResourceInfoFromNtHandle { device: Handle, token: ShareToken },
    /// `D3DKMTOpenResourceFromNtHandle`: the caller's buffers have the sizes of `info`, and `mutex_buffer` is the one
    /// for the private runtime data of a keyed mutex that goes with it.
    OpenResourceFromNtHandle {
        device: Handle,
        token: ShareToken,
        info: ResourceInfo,
        mutex_buffer: RuntimeBuffer,
    },
    /// `D3DKMTLock2`: `flags` is reserved.
    Lock { device: Handle, allocation: Handle, flags: u32 },
    /// `D3DKMTUnlock2`.
    Unlock { device: Handle, allocation: Handle },
    /// `D3DKMTSetAllocationPriority`: one priority for all of a resource, or one for each allocation.
    SetAllocationPriority { device: Handle, resource: Handle, allocations: Vec<Handle>, priorities: Vec<u32> },
    /// `D3DKMTGetAllocationPriority`.
    AllocationPriority { device: Handle, resource: Handle, allocations: Vec<Handle> },
    /// `D3DKMTMakeResident`. `priorities` is empty or has one for each; `flags`: CantTrimFurther 1, MustSucceed 2.
    MakeResident { paging_queue: Handle, allocations: Vec<Handle>, priorities: Vec<u32>, flags: u32 },
    /// `D3DKMTEvict`. `flags`: EvictOnlyIfNecessary 1, NotWrittenTo 2.
    Evict { device: Handle, allocations: Vec<Handle>, flags: u32 },
    /// `D3DKMTQueryVideoMemoryInfo` for the caller itself. `segment_group`: LOCAL 0, NON_LOCAL 1.
    QueryVideoMemoryInfo { adapter: Handle, segment_group: u32, physical_adapter: u32 },
    /// `D3DKMTCreatePagingQueue`. `priority` is `D3DDDI_PAGINGQUEUE_PRIORITY`: -1, 0 or 1 (FEN-092).
    CreatePagingQueue { device: Handle, priority: i32, physical_adapter: u32 },
    /// `D3DKMTDestroyPagingQueue`.
    DestroyPagingQueue { queue: Handle },
    /// `D3DKMTReserveGpuVirtualAddress`. `owner` is a paging queue or an adapter; `base` 0 = anywhere.
    ReserveGpuVirtualAddress { owner: Handle, base: u64, minimum: u64, maximum: u64, size: u64 },
    /// `D3DKMTMapGpuVirtualAddress`. `allocation` NULL with a protection of Zero or NoAccess.
    MapGpuVirtualAddress {
        paging_queue: Handle,
        base: u64,
        minimum: u64,
        maximum: u64,
        allocation: Handle,
        offset_pages: u64,
        size_pages: u64,
        protection: u64,
    },
    /// `D3DKMTFreeGpuVirtualAddress`.
    FreeGpuVirtualAddress { adapter: Handle, base: u64, size: u64 },
    /// `D3DKMTUpdateGpuVirtualAddress`: waits for `fence_value` on `fence`, updates, signals the next (FEN-093).
    UpdateGpuVirtualAddress {
        device: Handle,
        context: Handle,
        fence: Handle,
        fence_value: u64,
        operations: Vec<GpuVaOperation>,
        flags: u32,
    },

    /// `D3DKMTCreateHwQueue`.
    CreateHwQueue { context: Handle, flags: HwQueueFlags, private_data: Vec<u8> },
    /// `D3DKMTDestroyHwQueue`.
    DestroyHwQueue { queue: Handle },
    /// `D3DKMTSubmitCommandToHwQueue`.
    SubmitCommandToHwQueue {
        queue: Handle,
        progress_fence_id: u64,
        commands: u64,
        length: u32,
        private_data: Vec<u8>,
    },
    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue`.
    SubmitSignalToHwQueue { queues: Handles, objects: Handles, values: Values, flags: SignalFlags },
    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue`.
    SubmitWaitToHwQueue { queue: Handle, objects: Handles, values: Values },

    /// `D3DKMTCreateNativeFence`. `native_type`: 0 DEFAULT, 1 INTRA_GPU (FEN-105).
    CreateNativeFence {
        device: Handle,
        initial_value: u64,
        native_type: u32,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    },
    /// `D3DKMTOpenNativeFenceFromNtHandle`.
    OpenNativeFence { device: Handle, token: ShareToken, flags: SyncObjectFlags, engine_affinity: u32 },
    /// `D3DKMTCreateDoorbell` for a hardware queue of user-mode submission. `rings`: `hRingBuffer` and
    /// `hRingBufferControl`, as far as they are given.
    CreateDoorbell { queue: Handle, rings: Vec<Handle> },
    /// `D3DKMTConnectDoorbell`.
    ConnectDoorbell { queue: Handle },
    /// `D3DKMTDestroyDoorbell`.
    DestroyDoorbell { queue: Handle },
    /// `D3DKMTNotifyWorkSubmission`: the doorbell was rung while its status is CONNECTED_NOTIFY (SCH-029).
    NotifyWorkSubmission { queue: Handle },

    /// `D3DKMTSetContextSchedulingPriority` and `D3DKMTSetContextInProcessSchedulingPriority`.
    SetContextPriority { context: Handle, priority: i32, in_process: bool },
    /// `D3DKMTGetContextSchedulingPriority` and `D3DKMTGetContextInProcessSchedulingPriority`.
    ContextPriority { context: Handle, in_process: bool },
    /// `D3DKMTSetProcessSchedulingPriorityClass` for the caller itself: IDLE 0 to REALTIME 5 (SCH-042).
    SetProcessPriorityClass { class: u32 },
    /// `D3DKMTGetProcessSchedulingPriorityClass` for the caller itself.
    ProcessPriorityClass,
    /// `D3DKMTMarkDeviceAsError`. `reason`: 0 GENERIC, 1 DRIVER_ERROR (TDR-037).
    MarkDeviceAsError { device: Handle, reason: u32 },
    /// `D3DKMTEscape`: `kind` is `D3DKMT_ESCAPETYPE` ([`crate::escape::kind`]), `data` the caller's buffer, in and out.
    Escape { adapter: Handle, device: Handle, context: Handle, kind: u32, flags: EscapeFlags, data: Vec<u8> },
    /// `D3DKMTIsFeatureEnabled`: `feature_id` is `DXGK_FEATURE_ID`.
    IsFeatureEnabled { adapter: Handle, feature_id: u32 },
}

/// The caller's buffer for a keyed mutex's private runtime data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuntimeBuffer {
    pub size: u32,
    /// A size without a buffer is refused (W-174).
    pub present: bool,
    /// What is in it: the mutex takes it if it has no data of its own (FEN-082).
    pub data: Vec<u8>,
}

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION`: MAP 0, UNMAP 1, COPY 2, MAP_PROTECT 3. Sizes and offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GpuVaOperation {
    pub operation: u32,
    /// COPY: the source.
    pub base: u64,
    pub size: u64,
    /// MAP and MAP_PROTECT: what is mapped, again and again if there is more room.
    pub allocation: Handle,
    pub allocation_offset: u64,
    pub allocation_size: u64,
    /// MAP_PROTECT and UNMAP.
    pub protection: u64,
    /// COPY.
    pub destination: u64,
}

/// What `D3DKMTQueryVideoMemoryInfo` answers, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VideoMemoryInfo {
    pub budget: u64,
    pub current_usage: u64,
    pub current_reservation: u64,
    pub available_for_reservation: u64,
}

/// What a GPU signal packet does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GpuSignal {
    /// One value for each object (`MonitoredFenceValueArray`).
    Monitored { objects: Handles, values: Values },
    /// The legacy types: a mutex is released, a semaphore counted up, a FENCE set to the one value.
    Legacy { objects: Handles, fence_value: u64 },
    /// `EnqueueCpuEvent`: no object, set this event (FEN-036).
    CpuEvent { event: EventId },
}

/// `D3DKMT_ADAPTERINFO`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adapter {
    pub handle: Handle,
    pub luid: Luid,
    pub sources: u32,
}

/// What creating or opening a sync object gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PageFaultState {
    /// `DXGK_PAGE_FAULT_FLAGS`.
    pub flags: u32,
    pub gpu_address: u64,
}

/// How a keyed mutex was acquired, or not. The fence value is written whatever the outcome (W-192).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOutcome {
    /// The condition holds: no wake-up will follow.
    Satisfied,
    /// A wake-up of the given name will follow.
    Registered,
}

/// What a call gives back beside its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Only the status.
    None,
    Adapters(Vec<Adapter>),
    Adapter(Handle),
    AdapterInfo(Vec<u8>),
    Device(Handle),
    DeviceState(u32),
    Context(Handle),
    SyncObject(CreatedSyncObject),
    Wait(WaitOutcome),
    /// The global handle is NULL for a mutex that is shared by NT handle.
    KeyedMutex {
        mutex: Handle,
        shared_handle: Handle,
        private_data: Vec<u8>,
    },
    KeyedMutexAcquire {
        outcome: AcquireOutcome,
        private_data: Vec<u8>,
    },
    KeyedMutexData {
        fence_value: u64,
        private_data: Vec<u8>,
    },
    /// The resource is NULL without one, the global handle if it has none.
    Allocations {
        resource: Handle,
        shared_handle: Handle,
        allocations: Vec<Handle>,
    },
    ResourceInfo(ResourceInfo),
    /// The keyed mutex and the synchronization object are NULL unless they go with an NT handle.
    OpenedResource {
        resource: Handle,
        allocations: Vec<Handle>,
        runtime_data: Vec<u8>,
        keyed_mutex: Handle,
        sync_object: Handle,
    },
    /// The address in the caller's own address space.
    Locked {
        address: u64,
    },
    /// `D3DDDI_ALLOCATIONPRIORITY` of each allocation.
    AllocationPriorities(Vec<u32>),
    /// 0 as fence value: nothing to wait for. Over budget nothing was done: STATUS_NO_MEMORY.
    Residency {
        paging_fence_value: u64,
        /// How many bytes the process has over its budget, or would have.
        bytes_to_trim: u64,
        over_budget: bool,
    },
    VideoMemoryInfo(VideoMemoryInfo),
    PagingQueue {
        queue: Handle,
        fence: CreatedSyncObject,
    },
    /// 0 as fence value: nothing to wait for.
    GpuVirtualAddress {
        address: u64,
        paging_fence_value: u64,
    },
    HwQueue {
        queue: Handle,
        progress_fence: CreatedSyncObject,
    },
    /// Where the guest reads the doorbell's status (SCH-027).
    Doorbell {
        status_slot: u32,
    },
    PageFault(PageFaultState),
    Priority(i32),
    /// What the caller's buffer holds after it.
    Escape(Vec<u8>),
    Feature(FeatureResult),
    /// Nothing was done: the process has no free fence slot. The guest brings more fence memory
    /// and asks again; callers never see this.
    FenceMemoryExhausted,
}

/// `DXGK_ISFEATUREENABLED_RESULT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
