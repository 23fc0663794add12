//! virtio-vsock on the wire.
//!
//! # Primer
//!
//! A virtio socket device (virtio 1.2, section 5.10) carries many byte streams over three queues: *rx* (device to
//! guest), *tx* (guest to device) and *event* (device to guest, only "the transport was reset"). An address is a
//! context id and a port; the host is CID 2 and the guest's CID is in configuration space. Everything on rx and tx
//! is a packet: the 44 byte header below, little-endian, and after it `len` bytes of payload.
//!
//! ```text
//!   guest                     device        op            meaning
//!     | ------ REQUEST ----------> |        REQUEST       open a connection between these two ports
//!     | <----- RESPONSE ---------- |        RESPONSE      accepted
//!     | ------ RW (len bytes) ---> |        RW            payload
//!     | <----- CREDIT_UPDATE ----- |        SHUTDOWN      flags: the sender will not receive (1), not send (2)
//!     | ------ SHUTDOWN(3) ------> |        RST           no such connection, refused, or the end of one
//!     | <----- RST --------------- |        CREDIT_*      request, or report, buf_alloc and fwd_cnt
//! ```
//!
//! *Credit.* Each header has two numbers of its sender: `buf_alloc`, the size of its receive buffer, and `fwd_cnt`, how
//! many bytes it has taken out of that buffer so far (wrapping). With `tx_cnt` bytes sent so far the other side may
//! have at most `buf_alloc - (tx_cnt - fwd_cnt)` more in flight.
//!
//! *Closing.* SHUTDOWN with both flags is answered by RST; an unexpected RST is an abort; an RST is never answered.

/// The context id of the host.
pub const HOST_CID: u64 = 2;
/// Size of [`Header`] on the wire.
pub const HEADER_BYTES: usize = 44;
/// The only socket type this device offers (`VIRTIO_VSOCK_TYPE_STREAM`).
pub const TYPE_STREAM: u16 = 1;
/// SHUTDOWN flag: the sender will receive no more.
pub const SHUTDOWN_RECEIVE: u32 = 1;
/// SHUTDOWN flag: the sender will send no more.
pub const SHUTDOWN_SEND: u32 = 2;

/// `VIRTIO_VSOCK_OP_*`. An open enum: the number comes from the guest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation(pub u16);

impl Operation {
    /// Open a connection.
    pub const REQUEST: Self = Self(1);
    /// The connection is accepted.
    pub const RESPONSE: Self = Self(2);
    /// Refuse or end a connection at once.
    pub const RST: Self = Self(3);
    /// Half-close or close.
    pub const SHUTDOWN: Self = Self(4);
    /// Payload.
    pub const RW: Self = Self(5);
    /// Report `buf_alloc` and `fwd_cnt`.
    pub const CREDIT_UPDATE: Self = Self(6);
    /// Request a CREDIT_UPDATE.
    pub const CREDIT_REQUEST: Self = Self(7);
}

/// `struct virtio_vsock_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Sender's context id.
    pub src_cid: u64,
    /// Receiver's context id.
    pub dst_cid: u64,
    /// Sender's port.
    pub src_port: u32,
    /// Receiver's port.
    pub dst_port: u32,
    /// Payload bytes that follow the header.
    pub len: u32,
    /// Socket type, [`TYPE_STREAM`].
    pub socket_type: u16,
    /// What the packet does.
    pub operation: Operation,
    /// SHUTDOWN flags.
    pub flags: u32,
    /// The sender's receive buffer, bytes.
    pub buf_alloc: u32,
    /// Bytes the sender has taken out of its receive buffer, wrapping.
    pub fwd_cnt: u32,
}

impl Header {
    /// The wire form.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.src_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.dst_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.src_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.dst_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.socket_type.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.operation.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// Decodes the wire form. Every bit pattern is a header; the muxer validates it.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            src_cid: u64::from_le_bytes(part(bytes, 0)),
            dst_cid: u64::from_le_bytes(part(bytes, 8)),
            src_port: u32::from_le_bytes(part(bytes, 16)),
            dst_port: u32::from_le_bytes(part(bytes, 20)),
            len: u32::from_le_bytes(part(bytes, 24)),
            socket_type: u16::from_le_bytes(part(bytes, 28)),
            operation: Operation(u16::from_le_bytes(part(bytes, 30))),
            flags: u32::from_le_bytes(part(bytes, 32)),
            buf_alloc: u32::from_le_bytes(part(bytes, 36)),
            fwd_cnt: u32::from_le_bytes(part(bytes, 40)),
        }
    }
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_bit_pattern_is_a_header_and_comes_back(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES)) {
            let bytes: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Header::decode(&bytes).encode(), bytes);
        }
    }
}
