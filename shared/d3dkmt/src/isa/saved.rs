//! Packets in a saved state: each is encoded as a command buffer of its own.

use alloc::vec::Vec;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{CommandBuffer, Packet, decode, encode};

impl Serialize for Packet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        encode(core::slice::from_ref(self)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Packet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match decode(&Vec::deserialize(deserializer)?) {
            Ok(CommandBuffer::Packets(mut packets)) if packets.len() == 1 => Ok(packets.remove(0)),
            Ok(_) => Err(D::Error::custom("not one packet")),
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}
