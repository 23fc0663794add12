//! What the daemon and the driver's process exchange, in postcard's encoding. A [`Record`] is also what a trace keeps:
//! its variants and fields are only appended.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::abi::{Callback, DXGK_ALLOCATIONINFO, Ddi, NTSTATUS};
use crate::limits::MESSAGE_BYTES_MAX;

/// Version of the messages: daemon and driver host are of one build.
pub const PROTOCOL_VERSION: u32 = 1;

/// A call of a DDI.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    pub now: u64,
    pub ddi: Ddi,
    /// What the DDI's buffer contains.
    pub buffer: Vec<u8>,
    /// `pAllocationInfo`.
    pub allocations: Vec<Allocation>,
}

/// An element of `pAllocationInfo`, with its private data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Allocation {
    pub info: DXGK_ALLOCATIONINFO,
    pub private_data: Vec<u8>,
}

/// What a driver did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// It was loaded: which DDIs it has, by rows.
    Loaded(Vec<bool>),
    Answered(Answer),
    /// It is gone, for this reason.
    Died(String),
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The row of the DDI.
    pub row: u32,
    pub status: NTSTATUS,
    /// The arguments and the buffer, if the driver changed them.
    pub ddi: Option<Ddi>,
    pub buffer: Option<Vec<u8>>,
    pub allocations: Vec<Allocation>,
    pub callbacks: Vec<Called>,
}

/// A callback of a driver, with the text of `SimDebugPrint`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Called {
    pub callback: Callback,
    pub text: Vec<u8>,
}

/// The first message of the driver's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// [`Record::Loaded`], or why the driver was not loaded.
    pub loaded: Result<Vec<bool>, String>,
}

/// Writes a message: its length in 4 bytes, little-endian, then its bytes.
pub fn write(socket: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
    let length = bytes.len() - 4;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long(length));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    socket.write_all(&bytes)
}

/// Reads a message; blocks until it is whole.
pub fn read<T: DeserializeOwned>(socket: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long(length));
    }
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

fn too_long(bytes: usize) -> io::Error {
    io::Error::other(format!("a message has {bytes} bytes, at most {MESSAGE_BYTES_MAX} are possible"))
}
