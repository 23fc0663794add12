//! The wire format: framing, calls and replies by their rows in [`d3dkmt`], and generated messages for everything else.
//! The kernel model never sees a message: conversions happen in this crate.
#![deny(unsafe_code)]

pub mod bulk;
pub mod convert;
pub mod frame;
pub mod limits;
pub mod scenario_client;
pub mod session_frames;
mod wire;

/// The data channel. Its two frames are written by the rows of the tables of calls and replies.
pub mod channel {
    #![allow(clippy::all, clippy::too_many_lines)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.channel.rs"));

    pub use crate::wire::{ToGuest, ToHost, encode_answer_frame, encode_call_frame, to_guest, to_host};
}

/// The attach protocol: how a process gets its stream and its memory.
pub mod attach {
    #![allow(clippy::all, clippy::too_many_lines)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.attach.rs"));
}

/// Trace records.
pub mod trace {
    #![allow(clippy::all, clippy::too_many_lines)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.trace.rs"));
}

/// Daemon administration.
#[cfg(feature = "services")]
pub mod control {
    #![allow(clippy::all, clippy::too_many_lines)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.control.v1.rs"));
}

/// The guest agent.
#[cfg(feature = "services")]
pub mod agent {
    #![allow(clippy::all, clippy::too_many_lines)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.agent.v1.rs"));
}

/// File descriptor set of every message and service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub mod version;

pub use version::{PROTOCOL_VERSION, Versions};

pub use prost::Message;

#[cfg(test)]
mod tests;
