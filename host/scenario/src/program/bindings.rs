//! The names that a scenario has for the parameters of calls.

use d3dkmt::names::Names;
use d3dkmt::{CallOf, SyncObjectFlags, SyncObjectType, Values};
use dxgkrnl::Nanos;

use super::{Binding, Command, Piece};

/// A call whose handles, NT handles, events and addresses are names of the scenario.
pub type NamedCall = CallOf<Bindings>;

/// Parameters as a scenario gives them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Bindings {}

impl Names for Bindings {
    type Handle = HandleRef;
    type Handles = Vec<HandleRef>;
    type HandleList = Vec<HandleRef>;
    /// The object whose global handle it is.
    type SharedHandle = HandleRef;
    type Luid = AdapterNumber;
    /// `None`: the call returns when the wait is over.
    type WaitEvent = Option<Binding>;
    type Token = Share;
    /// What the call gives a name to.
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
    /// A number written out; 0 is `null`.
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

/// Bytes of a buffer that is all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BufferSize(pub u32);

/// Private runtime data of a keyed mutex, as text.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MutexText(pub Option<String>);

/// A buffer for such data.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MutexBuffer {
    /// At least.
    pub size: u32,
    pub data: MutexText,
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

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION` of an address and a size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GpuVaRange {
    /// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`.
    pub operation: u32,
    pub base: Address,
    pub bytes: u64,
}

/// An existing heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AllocationSpec {
    pub device: HandleRef,
    pub bytes: u64,
    /// Of a resource that NT handles can be of.
    pub shared: bool,
}

/// What a GPU signal packet does.
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
}

/// How long an acquire of a keyed mutex waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Timeout {
    #[default]
    Forever,
    Poll,
    /// From now on.
    Within(Nanos),
    /// Until the system's clock is that far after the scenario's start.
    Until(Nanos),
}
