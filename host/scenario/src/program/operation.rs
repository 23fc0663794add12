//! What actors do, with its operands.

use d3dkmt::isa::{ListFlags, QueueType, ResourceDesc};
use d3dkmt::list_escape::FenceFlags;
use d3dkmt::{CallEffect, Gives};
use dxgkrnl::Nanos;

use super::{AdapterNumber, Address, Binding, HandleRef, Kind, NamedCall, Share};

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

/// What an actor does: one D3DKMT call, or something of the program's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    Call(NamedCall),
    /// `D3DKMTOpenAdapterFromLuid` and `D3DKMTCreateDevice`.
    Device {
        adapter: AdapterNumber,
    },
    /// What the D3D12 runtime does for `ID3D12Fence::GetCompletedValue`: `D3DKMTGetDeviceState` and a load.
    Completed {
        device: HandleRef,
        object: HandleRef,
    },
    /// `CloseHandle` of an NT handle.
    CloseShare {
        share: Share,
    },
    /// The store to the doorbell, behind one command buffer in the ring.
    RingDoorbell {
        queue: HandleRef,
        id: u64,
        commands: Vec<Command>,
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

impl From<NamedCall> for Operation {
    fn from(call: NamedCall) -> Operation {
        Operation::Call(call)
    }
}

impl Operation {
    /// What a name before `=` stands for.
    pub const fn gives(&self) -> Kind {
        match self {
            Operation::Call(call) => kind_of_call(call),
            Operation::Device { .. } => Kind::Device,
            Operation::CreateResource { .. } => Kind::Resource,
            Operation::NewList { .. } => Kind::List,
            Operation::ReadMessages { .. } => Kind::Messages,
            Operation::NewEvent => Kind::Event,
            Operation::Read { .. } => Kind::Register,
            Operation::Completed { .. }
            | Operation::CloseShare { .. }
            | Operation::RingDoorbell { .. }
            | Operation::DestroyResource { .. }
            | Operation::DescribeFence { .. }
            | Operation::SetDebug { .. }
            | Operation::Store { .. } => Kind::Call,
        }
    }

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

/// The kind of what a call gives.
pub(crate) const fn kind_of_call(call: &NamedCall) -> Kind {
    match call.reply().gives() {
        Gives::Adapter => Kind::Adapter,
        Gives::Device => Kind::Device,
        Gives::Context => Kind::Context,
        Gives::SyncObject => Kind::Object,
        Gives::KeyedMutex => Kind::KeyedMutex,
        Gives::PagingQueue => Kind::PagingQueue,
        Gives::HwQueue => Kind::HwQueue,
        Gives::Allocation => Kind::Allocation,
        Gives::Doorbell => Kind::Doorbell,
        Gives::Address => Kind::Address,
        Gives::Nothing | Gives::Number | Gives::Data => match call.effect() {
            CallEffect::MakesNtHandle => Kind::Share,
            CallEffect::None | CallEffect::Destroys => Kind::Call,
        },
    }
}
