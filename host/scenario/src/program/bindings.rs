//! Parameters of calls with names of the scenario instead of numbers.

use d3dkmt::names::Names;
use d3dkmt::{CallOf, SyncObjectFlags, SyncObjectType, Values};
use dxgkrnl::Nanos;

use super::{Binding, Command, Piece};

/// A call whose handles, NT handles, events and addresses are names of the scenario.
pub type NamedCall = CallOf<Bindings>;

/// The parameter types of a scenario.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Bindings {}

impl Names for Bindings {
    type Handle = HandleRef;
    type Handles = Vec<HandleRef>;
    type HandleList = Vec<HandleRef>;
    /// The object whose global handle is meant.
    type SharedHandle = HandleRef;
    type Luid = AdapterNumber;
    /// `None`: the call returns when the wait ends.
    type WaitEvent = Option<Binding>;
    type Token = Share;
    /// The call's own name stands for the new NT handle.
    type NewToken = ();
    type FenceValue = u64;
    type FenceValues = Values;
    type GpuAddress = Address;
    type ObjectInfo = ObjectSpec;
    type GpuSignal = GpuSignalSpec;
    type Commands = Vec<Command>;
    type OutBuffer = BufferSize;
    type EscapeData = Vec<Piece>;
    type MutexData = MutexText;
    type NewMutexData = MutexText;
    type MutexBuffer = MutexBuffer;
    type Timeout = Timeout;
    type NewAllocation = AllocationSpec;
    type GpuVaOperations = Vec<GpuVaRange>;
}

/// A D3DKMT handle operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandleRef {
    Bound(Binding),
    /// A literal number; 0 is `null`.
    Raw(u32),
}

impl HandleRef {
    pub const NULL: HandleRef = HandleRef::Raw(0);
}

impl Default for HandleRef {
    fn default() -> HandleRef {
        HandleRef::NULL
    }
}

/// The number of an adapter in the scenario's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AdapterNumber(pub u32);

/// An NT handle operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Share(pub Binding);

impl Default for Share {
    /// No NT handle of any scenario.
    fn default() -> Share {
        Share(Binding(u32::MAX))
    }
}

/// Size of a zeroed buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BufferSize(pub u32);

/// Private runtime data of a keyed mutex, as text.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MutexText(pub Option<String>);

/// A buffer for private runtime data of a keyed mutex.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MutexBuffer {
    /// Minimum size in bytes.
    pub size: u32,
    pub data: MutexText,
}

/// A GPU virtual address operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    Bound(Binding),
    /// A literal number; 0 is any address.
    Number(u64),
}

impl Default for Address {
    fn default() -> Address {
        Address::Number(0)
    }
}

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION`, with the fields of [`d3dkmt::GpuVaOperation`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GpuVaRange {
    /// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`.
    pub operation: u32,
    pub base: Address,
    pub bytes: u64,
    pub allocation: HandleRef,
    /// `AllocationOffsetInBytes`.
    pub offset: u64,
    /// `AllocationSizeInBytes`.
    pub span: u64,
    pub protection: u64,
    /// Of a copy.
    pub to: Address,
}

/// Private driver data of an allocation, and with them what memory it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PrivateData {
    /// None: a standard allocation, of an existing heap.
    #[default]
    None,
    /// In the simulated driver's format.
    Described,
    /// This many bytes of a driver that the host does not know.
    Foreign(u32),
    /// In the simulated driver's format, of memory of the device: in LOCAL or else in NON_LOCAL, and whether the CPU may
    /// lock it.
    Device { local: bool, cpu_visible: bool },
}

/// An allocation of the process's memory, or of the device's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AllocationSpec {
    pub device: HandleRef,
    pub bytes: u64,
    pub private_data: PrivateData,
    /// It is part of a resource that can have NT handles.
    pub shared: bool,
}

/// Action of a GPU signal packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum GpuSignalSpec {
    Monitored { objects: Vec<HandleRef>, values: Values },
    Legacy { objects: Vec<HandleRef>, fence_value: u64 },
    CpuEvent { event: Binding },
}

impl Default for GpuSignalSpec {
    fn default() -> GpuSignalSpec {
        GpuSignalSpec::Monitored { objects: Vec::new(), values: Values::new() }
    }
}

/// The object that `object` and `fence` create.
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
    /// For a periodic fence: the adapter of its display target.
    pub adapter: Option<HandleRef>,
    pub target: u32,
    /// For a periodic fence: lead time before each vsync, in units of 100 ns.
    pub time_100ns: u64,
}

/// Time-out of an acquire of a keyed mutex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Timeout {
    #[default]
    Forever,
    Poll,
    /// Relative to now.
    Within(Nanos),
    /// Absolute: this time after the scenario's start by the system's clock.
    Until(Nanos),
}
