//! Opcodes, and the lengths of their packets.

pub const FENCE_WRITE: u32 = 1;
pub const BUSY: u32 = 2;
pub const HANG: u32 = 3;
pub const FENCE_WAIT: u32 = 4;
pub const MARKER_IN: u32 = 5;
pub const MARKER_OUT: u32 = 6;
pub const FENCE_READ: u32 = 7;
pub const BEGIN_LIST: u32 = 16;
pub const WORK: u32 = 17;
pub const BARRIER: u32 = 18;
pub const LEGACY_BARRIER: u32 = 19;
pub const SIGNAL_BARRIER: u32 = 20;
pub const WAIT_BARRIER: u32 = 21;
pub const ASSERT_RESOURCE_ACCESS: u32 = 22;
pub const ASSERT_TEXTURE_LAYOUT: u32 = 23;
pub const TIMESTAMP: u32 = 24;

/// The length of a packet.
pub(super) struct Length {
    /// All of it, or the part before its arrays.
    pub bytes: usize,
    pub grows: bool,
}

/// Length of a packet by its opcode; `None` for an unknown opcode.
pub(super) fn bytes(opcode: u32) -> Option<Length> {
    let fixed = |bytes| Some(Length { bytes, grows: false });
    let grows = |bytes| Some(Length { bytes, grows: true });
    match opcode {
        HANG => fixed(8),
        BUSY | TIMESTAMP => fixed(16),
        FENCE_WRITE | FENCE_WAIT | FENCE_READ | MARKER_IN | MARKER_OUT => fixed(24),
        ASSERT_RESOURCE_ACCESS | ASSERT_TEXTURE_LAYOUT => fixed(24),
        BARRIER | LEGACY_BARRIER | WAIT_BARRIER => grows(16),
        BEGIN_LIST => grows(24),
        WORK | SIGNAL_BARRIER => grows(32),
        _ => None,
    }
}
