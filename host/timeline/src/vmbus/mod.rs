//! Our calls beside the messages of the VM bus, as an engineer of the Linux guest driver (dxgkrnl) knows them.
//!
//! ```text
//!   channel       channel_type          from, to          what it carries
//!   one a vGPU    0 VGPU_TO_HOST        guest to host     calls on an adapter's objects
//!   one a VM      1 VM_TO_HOST          guest to host     processes, shared objects
//!   one a VM      2 HOST_TO_VM          host to guest     events, data; never a reply
//! ```
//!
//! A message to the host has a `command_type`, named `DXGK_VMBCOMMAND_..`. The guest waits for the reply packet, unless the
//! message may be asynchronous and the host reported `async_msg_enabled`: then the call succeeds before the host has
//! the message. `table.rs` has a row for each call, input and effect of ours, and `lines.rs` prints a trace by it.
//!
//! Names and numbers are facts from public sources. A message whose number we do not know is said to be unlisted.

mod lines;
mod table;

pub use lines::{heading, lines};
pub use table::{CALLS, EFFECTS, INPUTS, SYNC_FILE_READY, of_call, of_event, of_input, of_store};

/// What the guest driver does where we have this call, input or effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counterpart {
    /// Numbers of the ioctls of `/dev/dxg` that lead to it.
    pub ioctls: &'static [u8],
    pub there: There,
    /// Where ours differs, and why; empty if it does not.
    pub differs: &'static str,
}

/// How the guest driver does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum There {
    /// By a message.
    Message(Message),
    /// By a message whose number our sources do not give.
    Unlisted,
    /// Without a message: the guest driver answers by itself, or memory is shared.
    InGuest,
    /// Not at all.
    Nothing,
    /// It is of the host alone.
    InHost,
}

impl There {
    /// The message, or why there is none.
    pub fn name(self) -> String {
        match self {
            There::Message(message) => format!("{} ({})", message.name, message.id),
            There::Unlisted => "(message not listed)".into(),
            There::InGuest => "(no message: in the guest)".into(),
            There::Nothing => "(no message)".into(),
            There::InHost => "(no message: in the host)".into(),
        }
    }

    pub fn message(self) -> Option<Message> {
        match self {
            There::Message(message) => Some(message),
            There::Unlisted | There::InGuest | There::Nothing | There::InHost => None,
        }
    }
}

/// A message of the VM bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Without the prefix `DXGK_VMBCOMMAND_`.
    pub name: &'static str,
    /// `command_type` in its header.
    pub id: u32,
    pub channel: Channel,
    pub mode: Mode,
}

/// `channel_type` in the header of a message: its channel and direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    VgpuToHost,
    VmToHost,
    HostToVm,
}

impl Channel {
    pub fn name(self) -> &'static str {
        match self {
            Channel::VgpuToHost => "VGPU_TO_HOST",
            Channel::VmToHost => "VM_TO_HOST",
            Channel::HostToVm => "HOST_TO_VM",
        }
    }

    pub fn direction(self) -> &'static str {
        match self {
            Channel::VgpuToHost | Channel::VmToHost => "VM to host",
            Channel::HostToVm => "host to VM",
        }
    }
}

/// Whether the guest waits for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The guest waits for the reply.
    Sync,
    /// The guest does not wait if the host reported `async_msg_enabled`.
    AsyncCapable,
    /// A message of the host, which has no reply.
    NoReply,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::AsyncCapable => "async-capable",
            Mode::NoReply => "no reply",
        }
    }
}
