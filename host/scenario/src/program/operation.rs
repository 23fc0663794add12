//! Operations of actors, with their operands.

use d3dkmt::isa::{ListFlags, QueueType, ResourceDesc};
use d3dkmt::list_escape::FenceFlags;
use d3dkmt::{CallEffect, ReplyValueKind};
use dxgkrnl::Nanos;

use super::{AdapterNumber, Address, Binding, HandleRef, Kind, NamedCall, Share};

/// `D3D12_WRITEBUFFERIMMEDIATE_MODE`: the time of a write of a command buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WriteMode {
    /// In order.
    #[default]
    Default,
    /// When all earlier commands have started.
    MarkerIn,
    /// When all earlier commands are complete.
    MarkerOut,
}

impl WriteMode {
    pub const ALL: [WriteMode; 3] = [WriteMode::Default, WriteMode::MarkerIn, WriteMode::MarkerOut];

    /// Returns the word in scenarios.
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
    /// The commands that a list has recorded.
    List(Binding),
    /// A whole command buffer in an unknown format, of this many bytes.
    Opaque {
        bytes: u32,
    },
    /// 4 bytes of a command buffer in a format of the driver's own, which consists of words alone.
    Word {
        value: u32,
    },
}

/// An operation of an actor: a D3DKMT call, or an action of the program itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    Call(NamedCall),
    /// `D3DKMTOpenAdapterFromLuid` and `D3DKMTCreateDevice`.
    Device {
        adapter: AdapterNumber,
    },
    /// `CloseHandle` of an NT handle.
    CloseShare {
        share: Share,
    },
    /// A command buffer in the ring and the store to the doorbell.
    RingDoorbell {
        queue: HandleRef,
        id: u64,
        commands: Vec<Command>,
    },
    /// An escape that creates a resource, `desc.gpu_address` bytes after the address.
    CreateResource {
        device: HandleRef,
        at: Address,
        desc: ResourceDesc,
    },
    DestroyResource {
        device: HandleRef,
        resource: Binding,
    },
    /// An escape that declares a native fence's flags.
    DescribeFence {
        device: HandleRef,
        fence: HandleRef,
        flags: FenceFlags,
    },
    /// An escape that sets the level of the debug layer.
    SetDebug {
        device: HandleRef,
        level: u32,
    },
    /// An escape that reads the messages of the debug layer.
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
    /// An empty command list.
    NewList {
        queue: QueueType,
        flags: ListFlags,
        label: Option<String>,
    },
    /// A new event of the program (`eventfd`).
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
    /// Returns the kind of the operation's result.
    pub const fn result_kind(&self) -> Kind {
        match self {
            Operation::Call(call) => kind_of_call(call),
            Operation::Device { .. } => Kind::Device,
            Operation::CreateResource { .. } => Kind::Resource,
            Operation::NewList { .. } => Kind::List,
            Operation::ReadMessages { .. } => Kind::Messages,
            Operation::NewEvent => Kind::Event,
            Operation::Read { .. } => Kind::Register,
            Operation::CloseShare { .. }
            | Operation::RingDoorbell { .. }
            | Operation::DestroyResource { .. }
            | Operation::DescribeFence { .. }
            | Operation::SetDebug { .. }
            | Operation::Store { .. } => Kind::Call,
        }
    }

    /// Whether it is a call, with a status.
    pub const fn is_call(&self) -> bool {
        !matches!(
            self,
            Operation::NewEvent
                | Operation::NewList { .. }
                | Operation::Read { .. }
                | Operation::Store { .. }
        )
    }

    /// Whether its result needs a name.
    pub const fn needs_name(&self) -> bool {
        matches!(self, Operation::NewEvent | Operation::NewList { .. } | Operation::Read { .. })
    }
}

/// Returns the kind of a call's result.
pub(crate) const fn kind_of_call(call: &NamedCall) -> Kind {
    match call.reply().value_kind() {
        ReplyValueKind::Adapter => Kind::Adapter,
        ReplyValueKind::Device => Kind::Device,
        ReplyValueKind::Context => Kind::Context,
        ReplyValueKind::SyncObject => Kind::Object,
        ReplyValueKind::KeyedMutex => Kind::KeyedMutex,
        ReplyValueKind::PagingQueue => Kind::PagingQueue,
        ReplyValueKind::HwQueue => Kind::HwQueue,
        ReplyValueKind::Allocation => Kind::Allocation,
        ReplyValueKind::Doorbell => Kind::Doorbell,
        ReplyValueKind::Address => Kind::Address,
        ReplyValueKind::Nothing | ReplyValueKind::Number | ReplyValueKind::Data => match call.effect() {
            CallEffect::MakesNtHandle => Kind::Share,
            CallEffect::None | CallEffect::Destroys => Kind::Call,
        },
    }
}
