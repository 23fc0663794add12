//! One block's header: see the crate's documentation for the layout.

/// First bytes of every block.
pub(crate) const MAGIC: [u8; 8] = *b"GPVTRACE";
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 24;
/// A block is closed when its payload has reached this length.
pub(crate) const PAYLOAD_BYTES_FULL: usize = 64 * 1024;

const CHECKED_BYTES: usize = 20;

/// What a block's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    pub payload_length: u32,
    pub payload_crc: u32,
    pub number: u32,
}

impl BlockHeader {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.payload_length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; the error says in words what is wrong with it.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<BlockHeader, String> {
        if bytes[..8] != MAGIC {
            return Err("it does not begin with GPVTRACE".into());
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (expected, actual) = (word(20), crc32c::crc32c(&bytes[..CHECKED_BYTES]));
        if expected != actual {
            return Err(format!("its header has checksum {actual:#010x}, not {expected:#010x}"));
        }
        Ok(BlockHeader { payload_length: word(8), payload_crc: word(12), number: word(16) })
    }
}
