//! Driver-private escapes of the simulated KMD about command lists: a user-mode driver describes resources and fences
//! with them, and reads the debug layer. For C in `guest/umd/include/gpupv_escape.h`. Little-endian:
//!
//! ```text
//!   5 CREATE_RESOURCE   4 u32: filled with its number   8 the 96 bytes of a `ResourceDesc`
//!   6 DESTROY_RESOURCE  4 u32 number
//!   7 SET_DEBUG         4 u32 level: 0 off, 1 hazards and errors, 2 all
//!   8 READ_MESSAGES     4 u32: filled with how many   8 u64: with how many were lost   16 .. messages
//!  10 DESCRIBE_FENCE    4 u32 D3D12_FENCE_FLAGS   8 u64 GPU address of a native fence   16 32 bytes of name
//!
//!   a message   0 u32 bytes of it, a multiple of 8   4 u32 rule: n of R-n, or 0   8 u32 D3D12_MESSAGE_ID, or 0
//!              12 u32 severity: 1 warning, 2 hazard, 3 error, 4 error for which the list would be removed
//!              16 u32 list   20 u32 command   24 u32 barrier, or u32::MAX   28 u32 resource, or 0
//!              32 u32 bytes of the text   36 u32 0   40 the text, with zeros behind it
//! ```

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::isa::{ResourceDesc, ResourceName};

pub const CREATE_RESOURCE: u32 = 5;
pub const DESTROY_RESOURCE: u32 = 6;
pub const SET_DEBUG: u32 = 7;
pub const READ_MESSAGES: u32 = 8;
/// 9 was an older form, with other values of the flags.
pub const DESCRIBE_FENCE: u32 = 10;

/// Offset of the first message, behind their count and the number of lost ones.
pub const MESSAGES_AT: usize = 16;
/// Bytes of a message before its text.
const HEAD_BYTES: usize = 40;
/// Bytes of a message's text that are read.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Bytes of DESCRIBE_FENCE.
pub const DESCRIBE_FENCE_BYTES: usize = 16 + ResourceName::BYTES;

bitflags::bitflags! {
    /// `D3D12_FENCE_FLAGS`. The values of the two preview flags are not published; those here belong to these escapes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct FenceFlags: u32 {
        const SHARED = 0x1;
        const SHARED_CROSS_ADAPTER = 0x2;
        const NON_MONITORED = 0x4;
        const ALLOW_COMMAND_LIST_BARRIERS = 0x100;
        const ALLOW_QUEUE_AND_CPU_SYNC = 0x200;
    }
}

/// A message of the debug layer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DebugMessage {
    pub rule: u32,
    pub id: u32,
    pub severity: u32,
    pub list: u32,
    pub command: u32,
    pub barrier: Option<u32>,
    pub resource: u32,
    pub text: String,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// `CREATE_RESOURCE`.
pub fn create_resource(desc: &ResourceDesc) -> Vec<u8> {
    let mut data = command(CREATE_RESOURCE, 0);
    data.extend_from_slice(&desc.encode());
    data
}

/// An escape that is its command and one word.
pub fn command(command: u32, word: u32) -> Vec<u8> {
    [command, word].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// `READ_MESSAGES` with room for `bytes` bytes of messages.
pub fn read_messages(bytes: usize) -> Vec<u8> {
    let mut data = command(READ_MESSAGES, 0);
    data.resize(MESSAGES_AT + bytes, 0);
    data
}

/// `DESCRIBE_FENCE`.
pub fn describe_fence(gpu_address: u64, flags: FenceFlags, name: &str) -> Vec<u8> {
    let mut data = command(DESCRIBE_FENCE, flags.bits());
    data.extend_from_slice(&gpu_address.to_le_bytes());
    data.extend_from_slice(&ResourceName::new(name).to_bytes());
    data
}

/// Address, flags and name of a `DESCRIBE_FENCE`, unknown flags as they are. `None` if the name is not UTF-8.
pub fn described_fence(data: &[u8]) -> Option<(u64, FenceFlags, ResourceName)> {
    let flags = FenceFlags::from_bits_retain(word(data, 4)?);
    let gpu_address = u64::from_le_bytes(data.get(8..16)?.try_into().ok()?);
    let name = ResourceName::decode(data.get(16..DESCRIBE_FENCE_BYTES)?)?;
    Some((gpu_address, flags, name))
}

/// The number that the driver filled in: of the resource, or of messages.
pub fn number(data: &[u8]) -> Option<u32> {
    word(data, 4)
}

/// The messages that the driver wrote into a `READ_MESSAGES`.
pub fn messages(data: &[u8]) -> Vec<DebugMessage> {
    let mut rest = data.get(MESSAGES_AT..).unwrap_or_default();
    let mut messages = Vec::new();
    for _ in 0..number(data).unwrap_or_default() {
        let Some((message, bytes)) = DebugMessage::decode(rest) else { break };
        messages.push(message);
        rest = &rest[bytes..];
    }
    messages
}

impl DebugMessage {
    /// Encodes the message. The text is cut to [`TEXT_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let text = self.text.as_str();
        let length = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let text = &text[..length.unwrap_or(0)];
        let bytes = (HEAD_BYTES + text.len()).next_multiple_of(8);
        let words = [
            bytes as u32,
            self.rule,
            self.id,
            self.severity,
            self.list,
            self.command,
            self.barrier.unwrap_or(u32::MAX),
            self.resource,
            text.len() as u32,
            0,
        ];
        let mut message: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        message.extend_from_slice(text.as_bytes());
        message.resize(bytes, 0);
        message
    }

    /// The first message in these bytes, and its size.
    fn decode(data: &[u8]) -> Option<(DebugMessage, usize)> {
        let at = |number: usize| word(data, number * 4);
        let (bytes, length) = (at(0)? as usize, at(8)? as usize);
        let text = data.get(..bytes)?.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?;
        let message = DebugMessage {
            rule: at(1)?,
            id: at(2)?,
            severity: at(3)?,
            list: at(4)?,
            command: at(5)?,
            barrier: at(6).filter(|barrier| *barrier != u32::MAX),
            resource: at(7)?,
            text: core::str::from_utf8(text).ok()?.to_string(),
        };
        Some((message, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = |text: &str, barrier| DebugMessage {
            rule: 41,
            id: 1333,
            severity: 3,
            list: 1,
            command: 7,
            barrier,
            resource: 3,
            text: text.into(),
        };
        let all = vec![message("", None), message("SyncBefore \u{2260}", Some(0)), message("last", Some(2))];
        let mut data = read_messages(0);
        all.iter().for_each(|one| data.extend(one.encode()));
        data[4..8].copy_from_slice(&3u32.to_le_bytes());
        assert_eq!(messages(&data), all);
        // A cut buffer yields its complete messages.
        for end in 0..data.len() {
            assert!(messages(&data[..end]).len() < 3);
        }
        // A long text is cut at a character.
        let long = message(&"\u{2260}".repeat(1000), None).encode();
        let (read, _) = DebugMessage::decode(&long).unwrap();
        assert_eq!(read.text.len(), TEXT_BYTES_MAX / 3 * 3);
    }

    #[test]
    fn a_fence_is_described_as_it_was() {
        let flags = FenceFlags::SHARED | FenceFlags::ALLOW_QUEUE_AND_CPU_SYNC;
        let data = describe_fence(0x1234_5000, flags, "frame");
        let (address, found, name) = described_fence(&data).unwrap();
        assert_eq!((address, found, name.as_ref()), (0x1234_5000, flags, "frame"));
        let mut wrong = data.clone();
        wrong[4] |= 8;
        let unknown = flags | FenceFlags::from_bits_retain(8);
        assert_eq!(described_fence(&wrong).unwrap().1, unknown, "for the debug layer to report");
        assert_eq!(described_fence(&data[..47]), None);
    }
}
