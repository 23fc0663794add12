//! The tables of calls and replies: a row for each call that a guest can make and each reply that it can get.
//!
//! Macros generate from a row: the variant with its fields and docs; the message and both conversions (`proto`); the
//! visitors of names; the operands in scenarios; the strategies of property tests. `channel.proto` is the published
//! contract, and a test of `proto` compares the two. `table.rs` has the macros.

use alloc::string::String;
use alloc::vec::Vec;

use crate::names::kind::{
    Commands, EscapeData, FenceValue, FenceValues, GpuAddress, GpuSignal, GpuVaOperations, Handle,
    HandleList, Handles, Luid, MutexBuffer, MutexData, NewAllocation, NewMutexData, NewToken, ObjectInfo,
    OutBuffer, SharedHandle, Timeout, Token, WaitEvent,
};
use crate::names::{Kind, Names, Numbers, Rename, RenamedKind, Visit};
use crate::{
    CreateContextFlags, DestroyAllocationFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, ResourceInfo,
    SignalFlags, SyncObjectFlags, WaitFromCpuFlags,
};

/// A call in the form that the kernel and the wire use.
pub type Call = CallOf<Numbers>;

/// Side effect of a call, beside its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEffect {
    None,
    /// It may destroy objects, and with them waits.
    Destroys,
    /// It gives its process an NT handle if it succeeds.
    MakesNtHandle,
}

calls! {
    $
    /// `D3DKMTEnumAdapters2` / `3`: opens a handle for each adapter, `capacity` at most.
    3 EnumAdapters { 1 capacity: u32 } -> Adapters => "adapters [capacity={capacity:34}]";
    /// `D3DKMTOpenAdapterFromLuid`.
    4 OpenAdapterFromLuid { 1 luid: Luid } -> Adapter => "open_adapter {luid}";
    /// `D3DKMTCloseAdapter`.
    5 CloseAdapter(adapter: Handle), destroys => "close_adapter {adapter}";
    /// `D3DKMTQueryAdapterInfo`: `data` is the caller's buffer, in and out.
    6 QueryAdapterInfo { 1 adapter: Handle, 2 kind: u32, 3 data: OutBuffer } -> AdapterInfo
        => "query_adapter {adapter} kind={kind} bytes={data}";
    /// Sets an event each time an adapter comes or goes for the process, in place of one that was named before: DXCore's
    /// notifications.
    120 WatchAdapters(event: WaitEvent) => "- DXCore watches adapters by itself";
    /// `D3DKMTCreateDevice`.
    7 CreateDevice { 1 adapter: Handle, 2 flags: u32 } -> Device => "create_device {adapter} [flags={flags}]";
    /// `D3DKMTDestroyDevice`.
    8 DestroyDevice(device: Handle), destroys => "destroy_device {device}";
    /// `D3DKMTGetDeviceState`.
    9 GetDeviceState { 1 device: Handle, 2 state_type: u32 } -> DeviceState
        => "device_state {device} [type={state_type:1}]";
    /// `D3DKMTCreateContextVirtual`.
    10 CreateContextVirtual {
        1 device: Handle,
        2 node_ordinal: u32,
        3 engine_affinity: u32,
        4 flags: CreateContextFlags,
        5 client_hint: u32,
        6 private_data: Vec<u8>,
    } -> Context => "context ..";
    /// `D3DKMTDestroyContext`.
    11 DestroyContext(context: Handle), destroys => "destroy_context {context}";
    /// `D3DKMTCreateSynchronizationObject` (`legacy`) and `D3DKMTCreateSynchronizationObject2`.
    12 CreateSynchronizationObject { 1 device: Handle, () info: ObjectInfo, 10 legacy: bool } -> SyncObject
        => "object ..";
    /// `D3DKMTDestroySynchronizationObject`.
    13 DestroySynchronizationObject(object: Handle), destroys => "destroy {object}";
    /// `D3DKMTSignalSynchronizationObjectFromCpu`.
    14 SignalFromCpu { 1 device: Handle, (2, 5) objects: Handles, (3, 6) values: FenceValues, 4 flags: SignalFlags }
        => "signal ..";
    /// `D3DKMTWaitForSynchronizationObjectFromCpu`. `event` names the wake-up; whether the caller
    /// blocks or passed an event handle concerns the guest alone.
    15 WaitFromCpu {
        1 device: Handle,
        (2, 6) objects: Handles,
        (3, 7) values: FenceValues,
        4 flags: WaitFromCpuFlags,
        5 event: WaitEvent,
    } -> Wait => "wait ..";
    /// Cancels the wait of this name, because the guest no longer waits (the thread was interrupted).
    16 CancelWait(event: WaitEvent) => "- the library cancels waits by itself";
    /// `D3DKMTSignalSynchronizationObjectFromGpu` and `..FromGpu2`: a packet in each context.
    17 SignalFromGpu { (1, 7) contexts: Handles, () signal: GpuSignal, 4 flags: SignalFlags } => "gpu_signal ..";
    /// `D3DKMTWaitForSynchronizationObjectFromGpu`: a packet in the context's queue.
    18 WaitFromGpu { 1 context: Handle, (2, 4) objects: Handles, (3, 5) values: FenceValues } => "gpu_wait ..";
    /// `D3DKMTSubmitCommand`. The command buffer travels in the private driver data.
    19 SubmitCommand {
        (1, 6) contexts: Handles,
        2 commands: u64,
        3 length: u32,
        4 flags: u32,
        5 private_data: Commands,
    } => "submit ..";
    /// `D3DKMTWaitForSynchronizationObject` and `..2`, and `..FromGpu` where the union is one value: the legacy
    /// types. A mutex is acquired, a semaphore counted down, a FENCE waited for at `fence_value` (F-77 to F-80).
    23 WaitFromGpuLegacy { 1 context: Handle, (2, 4) objects: Handles, 3 fence_value: FenceValue } => "gpu_wait ..";
    /// `D3DKMTOpenSynchronizationObject`: by the global handle of a legacy object.
    24 OpenSynchronizationObject(shared_handle: SharedHandle) -> SyncObject => "open_global {shared_handle}";
    /// `D3DKMTShareObjects`. The guest gets the NT handle from its broker; the handle carries the token. `name` is the
    /// last part of the object's name, if it has one.
    20 ShareObjects { 1 objects: HandleList, 2 desired_access: u32, 4 name: Option<String>, 3 token: NewToken }, makes_nt_handle
        => "share {objects} [access={desired_access|ACCESS:GENERIC_ALL}] [name={name}]";
    /// `D3DKMTOpenSyncObjectFromNtHandle2`, or with `legacy` `D3DKMTOpenSyncObjectFromNtHandle`: then only the token
    /// counts.
    21 OpenSyncObject {
        1 device: Handle,
        2 token: Token,
        3 flags: SyncObjectFlags,
        4 engine_affinity: u32,
        5 legacy: bool,
    } -> SyncObject => "open {device} {token} [affinity={engine_affinity}] [{flags}] [{legacy}]";
    /// `D3DKMTOpenNtHandleFromName`: `token` is what the guest's new NT handle will carry. With `sync_object`
    /// `D3DKMTOpenSyncObjectNtHandleFromName`, which refuses a resource.
    25 OpenNtHandleFromName {
        1 name: String,
        2 desired_access: u32,
        3 token: NewToken,
        4 sync_object: bool,
    }, makes_nt_handle => "open_name {name} [access={desired_access|ACCESS:GENERIC_ALL}] [{sync_object}]";
    /// `D3DKMTCreateSyncFile`: `token` is what the guest's new sync file will carry.
    110 CreateSyncFile { 1 device: Handle, 2 fence: Handle, 3 fence_value: FenceValue, 4 token: NewToken }, makes_nt_handle
        => "sync_file {device} {fence} value={fence_value}";
    /// `D3DKMTWaitSyncFile`: a packet in the context's queue.
    111 WaitSyncFile { 1 context: Handle, 2 token: Token } => "wait_sync_file {context} {token}";
    /// `D3DKMTOpenSyncObjectFromSyncFile`.
    112 OpenSyncFile { 1 device: Handle, 2 token: Token } -> OpenedSyncFile => "open_sync_file {device} {token}";
    /// `D3DKMTCreateKeyedMutex` (no data, no flags) and `..2`.
    26 CreateKeyedMutex { 1 initial_value: u64, 2 private_data: MutexData, 3 flags: KeyedMutexFlags } -> KeyedMutex
        => "keyed_mutex [key={initial_value}] [data={private_data}] [{flags}]";
    /// `D3DKMTOpenKeyedMutex` (no buffer) and `..2`: by global handle.
    27 OpenKeyedMutex { 1 shared_handle: SharedHandle, 2 buffer: MutexBuffer } -> KeyedMutex => "open_keyed_mutex ..";
    /// `D3DKMTOpenKeyedMutexFromNtHandle`.
    28 OpenKeyedMutexFromNtHandle { 1 token: Token, 2 buffer: MutexBuffer } -> KeyedMutex => "open_keyed_mutex ..";
    /// `D3DKMTDestroyKeyedMutex`.
    29 DestroyKeyedMutex(mutex: Handle), destroys => "destroy_keyed_mutex {mutex}";
    /// `D3DKMTAcquireKeyedMutex` and `..2`. `timeout` in units of 100 ns: positive = absolute since 1601, negative =
    /// relative, 0 = poll, `None` = for ever (FEN-077). The wake-up of a registered one says how it ended:
    /// SUCCESS, TIMEOUT or ABANDONED; after SUCCESS what the mutex holds is read with [`Call::ReadKeyedMutex`].
    30 AcquireKeyedMutex { 1 mutex: Handle, 2 key: u64, 3 timeout: Timeout, 4 event: WaitEvent } -> KeyedMutexAcquire
        => "acquire {mutex} key={key} [{timeout}]";
    /// Fence value and data of a keyed mutex: the library reads them after a registered acquire ended with SUCCESS.
    31 ReadKeyedMutex(mutex: Handle) -> KeyedMutexData
        => "- the library reads a mutex by itself when an acquire has ended";
    /// `D3DKMTReleaseKeyedMutex` (`None`: the data stays) and `..2`.
    32 ReleaseKeyedMutex { 1 mutex: Handle, 2 key: u64, 3 fence_value: FenceValue, 4 private_data: NewMutexData }
        => "release {mutex} key={key} [value={fence_value}] [data={private_data}]";
    /// `D3DKMTCreateAllocation` and `..2`.
    60 CreateAllocation { () create: NewAllocation } -> Allocations => "allocate ..";
    /// `D3DKMTDestroyAllocation` and `..2`: a resource with all it has, or allocations by their handles.
    61 DestroyAllocation {
        1 device: Handle,
        2 resource: Handle,
        3 allocations: HandleList,
        4 flags: DestroyAllocationFlags,
    } => "destroy_allocation {device} {allocations} [resource={resource}] [{flags}]";
    /// `D3DKMTQueryResourceInfo`: by global handle.
    62 QueryResourceInfo { 1 device: Handle, 2 shared_handle: SharedHandle } -> ResourceInfo
        => "- global handles of resources are for C programs";
    /// `D3DKMTOpenResource` and `..2`: by global handle; the caller's buffers have the sizes of `info`.
    63 OpenResource { 1 device: Handle, 2 shared_handle: SharedHandle, 3 info: ResourceInfo } -> OpenedResource
        => "- global handles of resources are for C programs";
    /// `D3DKMTQueryResourceInfoFromNtHandle`.
    71 QueryResourceInfoFromNtHandle { 1 device: Handle, 2 token: Token } -> ResourceInfo
        => "- `open_allocation` knows the sizes";
    /// `D3DKMTGetSharedResourceAdapterLuid` by global handle.
    90 SharedResourceAdapter(shared_handle: SharedHandle) -> AdapterLuid
        => "- global handles of resources are for C programs";
    /// `D3DKMTGetSharedResourceAdapterLuid` by NT handle.
    91 SharedResourceAdapterFromNtHandle { 1 token: Token } -> AdapterLuid => "resource_adapter {token}";
    /// `D3DKMTOpenResourceFromNtHandle`: the caller's buffers have the sizes of `info`, and `mutex_buffer` is the one
    /// for the private runtime data of a keyed mutex that goes with it.
    72 OpenResourceFromNtHandle {
        1 device: Handle,
        2 token: Token,
        3 info: ResourceInfo,
        4 mutex_buffer: MutexBuffer,
    } -> OpenedResource => "open_allocation ..";
    /// `D3DKMTLock2`: `flags` is reserved.
    64 Lock { 1 device: Handle, 2 allocation: Handle, 3 flags: u32 } -> Locked
        => "lock {device} {allocation} [flags={flags}]";
    /// `D3DKMTUnlock2`.
    65 Unlock { 1 device: Handle, 2 allocation: Handle } => "unlock {device} {allocation}";
    /// `D3DKMTSetAllocationPriority`: one priority for all of a resource, or one for each allocation.
    66 SetAllocationPriority {
        1 device: Handle,
        2 resource: Handle,
        3 allocations: HandleList,
        4 priorities: Vec<u32>,
    } => "- nothing depends on priorities of allocations";
    /// `D3DKMTGetAllocationPriority`.
    67 AllocationPriority { 1 device: Handle, 2 resource: Handle, 3 allocations: HandleList } -> AllocationPriorities
        => "- nothing depends on priorities of allocations";
    /// `D3DKMTMakeResident`. `priorities` are ignored; `flags`: CantTrimFurther 1, MustSucceed 2.
    68 MakeResident { 1 paging_queue: Handle, 2 allocations: HandleList, 3 priorities: Vec<u32>, 4 flags: u32 } -> Residency
        => "make_resident {paging_queue} {allocations} [{flags&RESIDENT_FLAGS}]";
    /// `D3DKMTEvict`. `flags`: EvictOnlyIfNecessary 1, NotWrittenTo 2.
    69 Evict { 1 device: Handle, 2 allocations: HandleList, 3 flags: u32 } -> Residency
        => "evict {device} {allocations} [flags={flags}]";
    /// `D3DKMTQueryVideoMemoryInfo` for the caller itself. `segment_group`: LOCAL 0, NON_LOCAL 1.
    70 QueryVideoMemoryInfo { 1 adapter: Handle, 2 segment_group: u32, 3 physical_adapter: u32 } -> VideoMemoryInfo
        => "- budgets are for C programs";
    /// `D3DKMTOfferAllocations`. With `resources` the list is of resources; `priority` is `D3DKMT_OFFER_PRIORITY`:
    /// LOW 1, NORMAL 2, HIGH 3, AUTO 4; `flags`: OfferImmediately 1, AllowDecommit 2.
    82 OfferAllocations { 1 device: Handle, 2 allocations: HandleList, 3 resources: bool, 4 priority: u32, 5 flags: u32 }
        => "offer {device} {allocations} [{resources}] [priority={priority:2}] [flags={flags}]";
    /// `D3DKMTReclaimAllocations`: returns when engines find the allocations again.
    83 ReclaimAllocations { 1 device: Handle, 2 allocations: HandleList, 3 resources: bool } -> Reclaimed
        => "reclaim_now {device} {allocations} [{resources}]";
    /// `D3DKMTReclaimAllocations2`: engines find the allocations again once the queue's fence has the value.
    84 ReclaimAllocations2 { 1 paging_queue: Handle, 2 allocations: HandleList, 3 resources: bool } -> Reclaimed
        => "reclaim {paging_queue} {allocations} [{resources}]";
    /// `D3DKMTChangeVideoMemoryReservation` for the caller itself.
    85 ChangeVideoMemoryReservation { 1 adapter: Handle, 2 segment_group: u32, 3 reservation: u64, 4 physical_adapter: u32 }
        => "reserve_memory {adapter} bytes={reservation} [group={segment_group}] [physical_adapter={physical_adapter}]";
    /// `D3DKMTQueryAllocationResidency`: of a resource, or of each allocation of a list.
    86 QueryAllocationResidency { 1 device: Handle, 2 resource: Handle, 3 allocations: HandleList } -> AllocationResidency
        => "residency {device} {allocations} [resource={resource}]";
    /// `D3DKMTInvalidateCache`.
    87 InvalidateCache { 1 device: Handle, 2 allocation: Handle, 3 offset: u64, 4 length: u64 }
        => "invalidate_cache {device} {allocation} bytes={length} [offset={offset}]";
    /// `D3DKMTFlushHeapTransitions`.
    88 FlushHeapTransitions(adapter: Handle) => "flush_heap_transitions {adapter}";
    /// `D3DKMTSetStablePowerState`.
    89 SetStablePowerState { 1 adapter: Handle, 2 enabled: bool } => "stable_power {adapter} [{enabled}]";
    /// `D3DKMTCreatePagingQueue`. `priority` is `D3DDDI_PAGINGQUEUE_PRIORITY`: -1, 0 or 1 (FEN-092).
    33 CreatePagingQueue { 1 device: Handle, 2 priority: i32, 3 physical_adapter: u32 } -> PagingQueue
        => "paging_queue {device} [{priority|PAGING_PRIORITIES}]";
    /// `D3DKMTDestroyPagingQueue`.
    34 DestroyPagingQueue(queue: Handle), destroys => "destroy_paging_queue {queue}";
    /// `D3DKMTReserveGpuVirtualAddress`. `owner` is a paging queue or an adapter; `base` 0 = anywhere.
    35 ReserveGpuVirtualAddress { 1 owner: Handle, 2 base: GpuAddress, 3 minimum: u64, 4 maximum: u64, 5 size: u64 } -> GpuVirtualAddress
        => "reserve {owner} bytes={size} [base={base}] [min={minimum}] [max={maximum}]";
    /// `D3DKMTMapGpuVirtualAddress`. `allocation` NULL with a protection of Zero or NoAccess.
    36 MapGpuVirtualAddress {
        1 paging_queue: Handle,
        2 base: GpuAddress,
        3 minimum: u64,
        4 maximum: u64,
        5 allocation: Handle,
        6 offset_pages: u64,
        7 size_pages: u64,
        8 protection: u64,
    } -> GpuVirtualAddress
        => "map {paging_queue} [{allocation}] pages={size_pages} [base={base}] [min={minimum}] [max={maximum}] [offset={offset_pages}] [{protection&PROTECTIONS}]";
    /// `D3DKMTFreeGpuVirtualAddress`.
    37 FreeGpuVirtualAddress { 1 adapter: Handle, 2 base: GpuAddress, 3 size: u64 }
        => "free_address {adapter} base={base} bytes={size}";
    /// `D3DKMTUpdateGpuVirtualAddress`: waits for `fence_value` on `fence`, updates, signals the next (FEN-093).
    38 UpdateGpuVirtualAddress {
        1 device: Handle,
        2 context: Handle,
        3 fence: Handle,
        4 fence_value: FenceValue,
        5 operations: GpuVaOperations,
        6 flags: u32,
    } => "update_address ..";
    /// `D3DKMTCreateHwQueue`.
    39 CreateHwQueue { 1 context: Handle, 2 flags: HwQueueFlags, 3 private_data: Vec<u8> } -> HwQueue
        => "hw_queue {context} [{flags}]";
    /// `D3DKMTDestroyHwQueue`.
    40 DestroyHwQueue(queue: Handle), destroys => "destroy_hw_queue {queue}";
    /// `D3DKMTSubmitCommandToHwQueue`.
    41 SubmitCommandToHwQueue {
        1 queue: Handle,
        2 progress_fence_id: FenceValue,
        3 commands: u64,
        4 length: u32,
        5 private_data: Commands,
    } => "submit_hw ..";
    /// `D3DKMTSubmitSignalSyncObjectsToHwQueue`.
    42 SubmitSignalToHwQueue {
        (1, 5) queues: Handles,
        (2, 6) objects: Handles,
        (3, 7) values: FenceValues,
        4 flags: SignalFlags,
    } => "hw_signal ..";
    /// `D3DKMTSubmitWaitForSyncObjectsToHwQueue`.
    43 SubmitWaitToHwQueue { 1 queue: Handle, (2, 4) objects: Handles, (3, 5) values: FenceValues } => "hw_wait ..";
    /// `D3DKMTCreateNativeFence`. `native_type`: 0 DEFAULT, 1 INTRA_GPU (FEN-105).
    44 CreateNativeFence {
        1 device: Handle,
        2 initial_value: FenceValue,
        3 native_type: u32,
        4 flags: SyncObjectFlags,
        5 engine_affinity: u32,
    } -> SyncObject
        => "native_fence {device} [initial={initial_value}] [affinity={engine_affinity}] [{native_type as type|NATIVE_TYPES}] [{flags}]";
    /// `D3DKMTOpenNativeFenceFromNtHandle`.
    45 OpenNativeFence { 1 device: Handle, 2 token: Token, 3 flags: SyncObjectFlags, 4 engine_affinity: u32 } -> SyncObject
        => "open_native {device} {token} [affinity={engine_affinity}] [{flags}]";
    /// `D3DKMTCreateDoorbell` for a hardware queue of user-mode submission. `rings`: `hRingBuffer` and
    /// `hRingBufferControl`, as far as they are given.
    46 CreateDoorbell { 1 queue: Handle, 2 rings: HandleList } -> Doorbell => "doorbell {queue}";
    /// `D3DKMTConnectDoorbell`.
    47 ConnectDoorbell(queue: Handle) => "connect {queue}";
    /// `D3DKMTDestroyDoorbell`.
    48 DestroyDoorbell(queue: Handle) => "destroy_doorbell {queue}";
    /// `D3DKMTNotifyWorkSubmission`: the doorbell was rung while its status is CONNECTED_NOTIFY (SCH-029).
    49 NotifyWorkSubmission(queue: Handle) => "notify {queue}";
    /// `D3DKMTSetContextSchedulingPriority` and `D3DKMTSetContextInProcessSchedulingPriority`.
    50 SetContextPriority { 1 context: Handle, 2 priority: i32, 3 in_process: bool } => "priority ..";
    /// `D3DKMTGetContextSchedulingPriority` and `D3DKMTGetContextInProcessSchedulingPriority`.
    51 ContextPriority { 1 context: Handle, 2 in_process: bool } -> Priority => "priority ..";
    /// `D3DKMTSetProcessSchedulingPriorityClass` for the caller itself: IDLE 0 to REALTIME 5 (SCH-042).
    52 SetProcessPriorityClass(class: u32) => "priority_class ..";
    /// `D3DKMTGetProcessSchedulingPriorityClass` for the caller itself.
    53 ProcessPriorityClass -> Priority => "priority_class ..";
    /// `D3DKMTMarkDeviceAsError`. `reason`: 0 GENERIC, 1 DRIVER_ERROR (TDR-037).
    54 MarkDeviceAsError { 1 device: Handle, 2 reason: u32 }, destroys
        => "mark_error {device} {reason|ERROR_REASONS}";
    /// `D3DKMTEscape`: `kind` is `D3DKMT_ESCAPETYPE` ([`crate::escape::kind`]), `data` the caller's buffer, in and out.
    55 Escape {
        1 adapter: Handle,
        2 device: Handle,
        3 context: Handle,
        4 kind: u32,
        5 flags: EscapeFlags,
        6 data: EscapeData,
    } -> Escape, destroys => "escape ..";
    /// `D3DKMTIsFeatureEnabled`: `feature_id` is `DXGK_FEATURE_ID`.
    56 IsFeatureEnabled { 1 adapter: Handle, 2 feature_id: u32 } -> Feature
        => "feature {adapter} {feature_id|FEATURES}";
    /// `D3DKMTQueryStatistics`, for the caller itself. `kind` is `D3DKMT_QUERYSTATISTICS_TYPE`, `query` the segment or
    /// the group of segments that it is about.
    74 QueryStatistics { 1 luid: Luid, 2 kind: u32, 3 query: u32 } -> Statistics
        => "statistics {luid} type={kind} [query={query}]";
    /// `D3DKMTQueryClockCalibration`: a node's clock beside that of the CPU.
    73 QueryClockCalibration { 1 adapter: Handle, 2 node_ordinal: u32, 3 physical_adapter: u32 } -> ClockCalibration
        => "clock_calibration {adapter} [node={node_ordinal}] [physical_adapter={physical_adapter}]";
}

pub use replies::{Reply, ReplyKind};

/// The table of replies, in a module of its own because the kinds of call fields have the same names as its types.
mod replies {
    use alloc::vec::Vec;

    use crate::reply::{HasValue, NamesHandles};
    use crate::{
        AcquireOutcome, Adapter, CreatedSyncObject, FeatureResult, Handle, Luid, PageFaultState, ReplyValue,
        ReplyValueKind, ResourceInfo, WaitOutcome,
    };

    replies! {
        $
        6 Adapters[0: Vec<Adapter>] => Adapter 0;
        7 Adapter[0: Handle] => Adapter 0;
        8 AdapterInfo[0: Vec<u8>] => Data 0;
        9 Device[0: Handle] => Device 0;
        10 DeviceState[0: u32] => Number 0;
        11 Context[0: Handle] => Context 0;
        12 SyncObject[0: CreatedSyncObject] => SyncObject 0;
        13 Wait[0: WaitOutcome];
        /// Nothing was done, because the process has no free fence slot. The guest adds fence memory
        /// and repeats the call; callers never see this.
        14 FenceMemoryExhausted;
        /// The global handle is NULL for a mutex that is shared by NT handle.
        15 KeyedMutex { 1 mutex: Handle, 2 shared_handle: Handle, 3 private_data: Vec<u8> } => KeyedMutex mutex;
        16 KeyedMutexAcquire { () outcome: AcquireOutcome, 5 private_data: Vec<u8> };
        17 KeyedMutexData { 1 fence_value: u64, 2 private_data: Vec<u8> } => Number fence_value;
        18 PagingQueue { 1 queue: Handle, 2 fence: CreatedSyncObject } => PagingQueue queue;
        /// 0 as fence value: nothing to wait for.
        19 GpuVirtualAddress { 1 address: u64, 2 paging_fence_value: u64 } => Address address;
        20 HwQueue { 1 queue: Handle, 2 progress_fence: CreatedSyncObject } => HwQueue queue;
        /// Where the guest reads the doorbell's status (SCH-027).
        21 Doorbell(status_slot: u32) => Doorbell status_slot;
        22 PageFault[0: PageFaultState] => Number 0;
        23 Priority[0: i32] => Number 0;
        /// Content of the caller's buffer after the escape.
        24 Escape[0: Vec<u8>] => Data 0;
        25 Feature[0: FeatureResult] => Number 0;
        /// The resource is NULL without one, the global handle if it has none. If the driver has changed the private
        /// driver data of an allocation: those of all allocations, in the sizes of the call; else none. `sizes`: bytes
        /// of each allocation with private driver data, 0 if it grows. `addresses`: of each allocation, if any is memory
        /// of the device, the address at which the library attaches that, or 0.
        30 Allocations {
            1 resource: Handle,
            2 shared_handle: Handle,
            3 allocations: Vec<Handle>,
            4 private_data: Vec<u8>,
            5 sizes: Vec<u64>,
            6 addresses: Vec<u64>,
        } => Allocation allocations;
        31 ResourceInfo[0: ResourceInfo];
        /// The keyed mutex and the synchronization object are NULL unless they go with an NT handle. The private
        /// driver data of the resource, then those of each allocation; the sizes are those of the allocations, and there
        /// are none if no allocation has data.
        32 OpenedResource {
            1 resource: Handle,
            2 allocations: Vec<Handle>,
            3 runtime_data: Vec<u8>,
            4 keyed_mutex: Handle,
            5 sync_object: Handle,
            6 private_data: Vec<u8>,
            7 private_data_sizes: Vec<u32>,
        } => Allocation allocations;
        /// The address in the caller's own address space, or of memory of the device, which the library has mapped.
        33 Locked(address: u64) => Number address;
        /// `D3DDDI_ALLOCATIONPRIORITY` of each allocation.
        34 AllocationPriorities[0: Vec<u32>] => Number 0;
        /// 0 as fence value: nothing to wait for. Over budget nothing was done: STATUS_NO_MEMORY. `bytes_to_trim` is
        /// how many bytes the process has over its budget, or would have.
        35 Residency { 1 paging_fence_value: u64, 2 bytes_to_trim: u64, 3 over_budget: bool } => Number paging_fence_value;
        /// In bytes.
        36 VideoMemoryInfo {
            1 budget: u64,
            2 current_usage: u64,
            3 current_reservation: u64,
            4 available_for_reservation: u64,
        } => Number current_usage;
        /// The frequency in Hz, and both clocks at one moment.
        37 ClockCalibration { 1 gpu_frequency: u64, 2 gpu_clock_counter: u64, 3 cpu_clock_counter: u64 }
            => Number gpu_clock_counter;
        /// `D3DKMT_QUERYSTATISTICS_RESULT`.
        38 Statistics[0: Vec<u8>] => Data 0;
        /// `D3DDDI_RECLAIM_RESULT` of each entry of the list, and when engines find them: 0 as fence value: already.
        50 Reclaimed { 1 results: Vec<u32>, 2 paging_fence_value: u64 } => Number paging_fence_value;
        /// `D3DKMT_ALLOCATIONRESIDENCYSTATUS` of each allocation, or of the resource.
        51 AllocationResidency[0: Vec<u32>] => Number 0;
        /// The adapter on which a shared resource was created.
        52 AdapterLuid { 1 luid: Luid } => Number luid;
        60 OpenedSyncFile { 1 object: CreatedSyncObject, 2 fence_value: u64 } => SyncObject object;
    }
}
