//! What actors do, with its operands.

use d3dkmt::isa::{ListFlags, QueueType, ResourceDesc};
use d3dkmt::list_escape::FenceFlags;
use d3dkmt::{
    CreateContextFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, SignalFlags, SyncObjectFlags,
    SyncObjectType, WaitFromCpuFlags,
};
use dxgkrnl::Nanos;

use super::{Binding, Piece};

/// A D3DKMT handle operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandleRef {
    Bound(Binding),
    /// A number written out; 0 is `null`.
    Raw(u32),
}

/// `D3D12_WRITEBUFFERIMMEDIATE_MODE`: when a write of a command buffer is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WriteMode {
    /// Where it stands.
    #[default]
    Default,
    /// When all that is before it has started.
    MarkerIn,
    /// When all that is before it is complete.
    MarkerOut,
}

impl WriteMode {
    pub const ALL: [WriteMode; 3] = [WriteMode::Default, WriteMode::MarkerIn, WriteMode::MarkerOut];

    /// The word of scenarios.
    pub const fn name(self) -> &'static str {
        match self {
            WriteMode::Default => "write",
            WriteMode::MarkerIn => "marker_in",
            WriteMode::MarkerOut => "marker_out",
        }
    }
}

/// One command of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Store the value into the fence.
    Write {
        object: HandleRef,
        value: u64,
        mode: WriteMode,
    },
    Busy {
        duration_ns: Nanos,
    },
    Hang,
    /// What a command list has recorded.
    List(Binding),
    /// A whole command buffer of somebody else's format, of that many bytes.
    Opaque {
        bytes: u32,
    },
}

/// What `object` and `fence` create.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ObjectSpec {
    pub object_type: SyncObjectType,
    pub flags: SyncObjectFlags,
    pub initial_state: bool,
    pub max_count: u32,
    pub initial_count: u32,
    pub initial_value: u64,
    pub engine_affinity: u32,
    pub event: Option<Binding>,
    /// Of a periodic fence: the adapter of its display target.
    pub adapter: Option<HandleRef>,
    pub target: u32,
    /// Of a periodic fence: how long before each vsync, in units of 100 ns.
    pub time_100ns: u64,
    /// Through `D3DKMTCreateSynchronizationObject` instead of `..2`.
    pub legacy: bool,
}

/// A GPU virtual address operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    Bound(Binding),
    /// A number written out; 0 is anywhere.
    Number(u64),
}

impl Default for Address {
    fn default() -> Address {
        Address::Number(0)
    }
}

/// Where a range of GPU virtual addresses may lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Space {
    pub base: Address,
    pub minimum: u64,
    pub maximum: u64,
}

/// How long an acquire of a keyed mutex waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timeout {
    Forever,
    Poll,
    /// From now on.
    Within(Nanos),
    /// Until the system's clock is that far after the scenario's start.
    Until(Nanos),
}

/// What an actor does: one D3DKMT call, or something of the program's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// `D3DKMTEnumAdapters2`; binds the first.
    EnumAdapters {
        capacity: u32,
    },
    /// `D3DKMTOpenAdapterFromLuid`, of the adapter with this number.
    OpenAdapter {
        adapter: u32,
    },
    CloseAdapter {
        adapter: HandleRef,
    },
    QueryAdapter {
        adapter: HandleRef,
        kind: u32,
        bytes: u32,
    },
    /// `D3DKMTOpenAdapterFromLuid` and `D3DKMTCreateDevice`.
    Device {
        adapter: u32,
    },
    CreateDevice {
        adapter: HandleRef,
    },
    DestroyDevice {
        device: HandleRef,
    },
    DeviceState {
        device: HandleRef,
        state_type: u32,
    },
    /// What the D3D12 runtime does for `ID3D12Fence::GetCompletedValue`: `D3DKMTGetDeviceState` and a load.
    Completed {
        device: HandleRef,
        object: HandleRef,
    },
    CreateContext {
        device: HandleRef,
        node: u32,
        flags: CreateContextFlags,
    },
    DestroyContext {
        context: HandleRef,
    },
    CreateObject {
        device: HandleRef,
        spec: ObjectSpec,
    },
    DestroyObject {
        object: HandleRef,
    },
    /// `D3DKMTShareObjects`.
    Share {
        objects: Vec<HandleRef>,
        access: u32,
        name: Option<String>,
    },
    /// `D3DKMTOpenSyncObjectNtHandleFromName`: binds an NT handle.
    OpenName {
        name: String,
        access: u32,
    },
    /// `D3DKMTOpenSyncObjectFromNtHandle2`, or `legacy` the first form of it.
    Open {
        device: HandleRef,
        share: Binding,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        legacy: bool,
    },
    /// `D3DKMTOpenSynchronizationObject`, by the global handle of this object.
    OpenGlobal {
        object: HandleRef,
    },
    /// `CloseHandle` of an NT handle.
    CloseShare {
        share: Binding,
    },
    Signal {
        device: HandleRef,
        targets: Vec<(HandleRef, u64)>,
        flags: SignalFlags,
    },
    Wait {
        device: HandleRef,
        items: Vec<(HandleRef, u64)>,
        flags: WaitFromCpuFlags,
        event: Option<Binding>,
    },
    GpuSignal {
        contexts: Vec<HandleRef>,
        targets: Vec<(HandleRef, u64)>,
        flags: SignalFlags,
    },
    /// `D3DKMTSignalSynchronizationObjectFromGpu2` with EnqueueCpuEvent.
    GpuSignalEvent {
        contexts: Vec<HandleRef>,
        event: Binding,
        flags: SignalFlags,
    },
    GpuWait {
        context: HandleRef,
        items: Vec<(HandleRef, u64)>,
    },
    /// `D3DKMTSignalSynchronizationObject2`: the types before the monitored fence, with one value for all.
    GpuSignalLegacy {
        contexts: Vec<HandleRef>,
        objects: Vec<HandleRef>,
        value: u64,
        flags: SignalFlags,
    },
    /// `D3DKMTWaitForSynchronizationObject2`.
    GpuWaitLegacy {
        context: HandleRef,
        objects: Vec<HandleRef>,
        value: u64,
    },
    Submit {
        contexts: Vec<HandleRef>,
        commands: Vec<Command>,
    },
    CreateKeyedMutex {
        key: u64,
        data: Option<String>,
        flags: KeyedMutexFlags,
    },
    /// `D3DKMTOpenKeyedMutex2`, by the global handle of this mutex. `buffer` is the size of the
    /// runtime's buffer, at least; `data` what is in it.
    OpenKeyedMutex {
        mutex: HandleRef,
        buffer: u32,
        data: Option<String>,
    },
    /// `D3DKMTOpenKeyedMutexFromNtHandle`.
    OpenSharedKeyedMutex {
        share: Binding,
        buffer: u32,
        data: Option<String>,
    },
    DestroyKeyedMutex {
        mutex: HandleRef,
    },
    Acquire {
        mutex: HandleRef,
        key: u64,
        timeout: Timeout,
    },
    Release {
        mutex: HandleRef,
        key: u64,
        value: u64,
        data: Option<String>,
    },
    CreatePagingQueue {
        device: HandleRef,
        /// -1, 0 or 1.
        priority: i32,
    },
    DestroyPagingQueue {
        queue: HandleRef,
    },
    /// Of a paging queue or an adapter.
    Reserve {
        owner: HandleRef,
        space: Space,
        bytes: u64,
    },
    Map {
        queue: HandleRef,
        /// NULL for none.
        allocation: HandleRef,
        space: Space,
        /// Of the allocation, in pages.
        offset: u64,
        pages: u64,
        protection: u64,
    },
    /// `D3DKMTCreateAllocation2` of so much of the process's own memory; `shared`: of a resource that NT handles can be of.
    Allocate {
        device: HandleRef,
        bytes: u64,
        shared: bool,
    },
    /// `D3DKMTOpenResourceFromNtHandle`: binds its allocation.
    OpenAllocation {
        device: HandleRef,
        share: Binding,
    },
    DestroyAllocation {
        device: HandleRef,
        allocation: HandleRef,
    },
    MakeResident {
        queue: HandleRef,
        allocations: Vec<HandleRef>,
        flags: u32,
    },
    Evict {
        device: HandleRef,
        allocations: Vec<HandleRef>,
    },
    Lock {
        device: HandleRef,
        allocation: HandleRef,
    },
    Unlock {
        device: HandleRef,
        allocation: HandleRef,
    },
    FreeAddress {
        adapter: HandleRef,
        base: Address,
        bytes: u64,
    },
    UpdateAddress {
        device: HandleRef,
        context: HandleRef,
        fence: HandleRef,
        value: u64,
        /// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`, address, bytes.
        operations: Vec<(u32, Address, u64)>,
    },
    CreateHwQueue {
        context: HandleRef,
        flags: HwQueueFlags,
    },
    DestroyHwQueue {
        queue: HandleRef,
    },
    SubmitHw {
        queue: HandleRef,
        id: u64,
        commands: Vec<Command>,
    },
    HwSignal {
        queues: Vec<HandleRef>,
        targets: Vec<(HandleRef, u64)>,
        flags: SignalFlags,
    },
    HwWait {
        queue: HandleRef,
        items: Vec<(HandleRef, u64)>,
    },
    CreateNativeFence {
        device: HandleRef,
        initial: u64,
        /// 0 DEFAULT, 1 INTRA_GPU.
        native_type: u32,
        flags: SyncObjectFlags,
        engine_affinity: u32,
    },
    OpenNativeFence {
        device: HandleRef,
        share: Binding,
        flags: SyncObjectFlags,
    },
    CreateDoorbell {
        queue: HandleRef,
    },
    ConnectDoorbell {
        queue: HandleRef,
    },
    DestroyDoorbell {
        queue: HandleRef,
    },
    /// The store to the doorbell, behind one command buffer in the ring.
    RingDoorbell {
        queue: HandleRef,
        id: u64,
        commands: Vec<Command>,
    },
    NotifyWork {
        queue: HandleRef,
    },
    SetPriority {
        context: HandleRef,
        priority: i32,
        in_process: bool,
    },
    Priority {
        context: HandleRef,
        in_process: bool,
    },
    SetPriorityClass {
        class: u32,
    },
    PriorityClass,
    MarkError {
        device: HandleRef,
        reason: u32,
    },
    /// `D3DKMTEscape`: `kind` is `D3DKMT_ESCAPETYPE`.
    Escape {
        adapter: HandleRef,
        device: HandleRef,
        context: HandleRef,
        kind: u32,
        flags: EscapeFlags,
        data: Vec<Piece>,
    },
    /// `D3DKMTIsFeatureEnabled`, of a `DXGK_FEATURE_ID`.
    Feature {
        adapter: HandleRef,
        feature: u32,
    },
    /// An escape of the driver: a resource, `desc.gpu_address` bytes behind the address.
    CreateResource {
        device: HandleRef,
        at: Address,
        desc: ResourceDesc,
    },
    DestroyResource {
        device: HandleRef,
        resource: Binding,
    },
    /// What the process says of a native fence's flags.
    DescribeFence {
        device: HandleRef,
        fence: HandleRef,
        flags: FenceFlags,
    },
    /// Turns the debug layer on or off.
    SetDebug {
        device: HandleRef,
        level: u32,
    },
    /// Reads what it said.
    ReadMessages {
        device: HandleRef,
    },
    /// The process writes words of 32 bits of its memory.
    Store {
        allocation: Binding,
        first: u64,
        count: Option<u64>,
        word: u32,
    },
    /// A command list, with no line yet.
    NewList {
        queue: QueueType,
        flags: ListFlags,
        label: Option<String>,
    },
    /// An event of the program (`eventfd`).
    NewEvent,
    /// One load of a fence value.
    Read {
        object: HandleRef,
    },
}

impl Operation {
    /// It is a call, with a status; else the program's own affair.
    pub const fn is_call(&self) -> bool {
        !matches!(
            self,
            Operation::NewEvent
                | Operation::NewList { .. }
                | Operation::Read { .. }
                | Operation::Store { .. }
        )
    }

    /// It gives something that is of no use without a name.
    pub const fn needs_name(&self) -> bool {
        matches!(self, Operation::NewEvent | Operation::NewList { .. } | Operation::Read { .. })
    }
}
