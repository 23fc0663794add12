//! What the daemon and the driver's process exchange, in postcard's encoding. A [`Record`] is also what a trace keeps:
//! its variants and fields are only appended.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::abi::{Callback, DXGK_ALLOCATIONINFO, Ddi, NTSTATUS};
use crate::limits::MESSAGE_BYTES_MAX;

/// Version of the messages: daemon and driver host are of one build.
pub const PROTOCOL_VERSION: u32 = 3;

/// A call of a DDI.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    pub now: u64,
    pub ddi: Ddi,
    /// What the DDI's buffer contains.
    #[serde(with = "bytes")]
    pub buffer: Vec<u8>,
    /// `pAllocationInfo`.
    pub allocations: Vec<Allocation>,
}

/// An element of `pAllocationInfo`, with its private data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Allocation {
    pub info: DXGK_ALLOCATIONINFO,
    #[serde(with = "bytes")]
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
    /// It was not asked, for this reason: a DDI, by its row.
    Refused {
        row: u32,
        why: String,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The row of the DDI.
    pub row: u32,
    pub status: NTSTATUS,
    /// The arguments and the buffer, if the driver changed them.
    pub ddi: Option<Ddi>,
    #[serde(with = "bytes::optional")]
    pub buffer: Option<Vec<u8>>,
    pub allocations: Vec<Allocation>,
    pub callbacks: Vec<Called>,
}

/// A callback of a driver, with the text of `SimDebugPrint`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Called {
    pub callback: Callback,
    #[serde(with = "bytes")]
    pub text: Vec<u8>,
}

/// The first message of the driver's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// Restrictions that are not in force in the process, each with the reason.
    pub missing: Vec<String>,
    /// [`Record::Loaded`], or why the driver was not loaded.
    pub loaded: Result<Vec<bool>, String>,
}

/// Bytes as one piece, instead of one by one: the encoding is the same.
mod bytes {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    struct Piece;

    impl Visitor<'_> for Piece {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_bytes(Piece)
    }

    pub mod optional {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Deserialize)]
        struct Owned(#[serde(deserialize_with = "super::deserialize")] Vec<u8>);

        #[derive(Serialize)]
        struct Borrowed<'a>(#[serde(serialize_with = "super::serialize")] &'a [u8]);

        #[allow(clippy::ref_option, reason = "serde calls it so")]
        pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
            bytes.as_deref().map(Borrowed).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
            Ok(Option::<Owned>::deserialize(deserializer)?.map(|bytes| bytes.0))
        }
    }
}

/// A message as it is sent: its length in 4 bytes, little-endian, then its bytes.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LENGTH_BYTES];
    bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
    let length = bytes.len() - LENGTH_BYTES;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long(length));
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Writes a message.
pub fn write(socket: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&encode(message)?)
}

const LENGTH_BYTES: usize = 4;
/// Bytes that are read at once: most messages are whole then.
const READ_BYTES: usize = 4096;

/// A message that is being received. Its memory serves for the next one.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
}

impl Incoming {
    /// Reads once. Returns the message if it is whole.
    pub fn read<T: DeserializeOwned>(&mut self, socket: &mut impl Read) -> io::Result<Option<T>> {
        self.bytes.resize(self.bytes.len().max(READ_BYTES), 0);
        match socket.read(&mut self.bytes[self.filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => self.filled += read,
        }
        let Some(length) = self.bytes[..self.filled].first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(too_long(length));
        }
        let needed = LENGTH_BYTES + length;
        if self.filled > needed {
            return Err(io::Error::other("bytes follow a message to which there is no answer yet"));
        }
        if self.filled < needed {
            self.bytes.resize(needed.max(READ_BYTES), 0);
            return Ok(None);
        }
        let message = postcard::from_bytes(&self.bytes[LENGTH_BYTES..needed]).map_err(io::Error::other);
        // The memory of a big message is not kept.
        self.bytes.truncate(READ_BYTES);
        self.bytes.shrink_to(READ_BYTES);
        self.filled = 0;
        message.map(Some)
    }
}

/// Reads a message; blocks until it is whole.
pub fn read<T: DeserializeOwned>(socket: &mut impl Read) -> io::Result<T> {
    let mut incoming = Incoming::default();
    loop {
        if let Some(message) = incoming.read(socket)? {
            return Ok(message);
        }
    }
}

fn too_long(bytes: usize) -> io::Error {
    io::Error::other(format!("a message has {bytes} bytes, at most {MESSAGE_BYTES_MAX} are possible"))
}
