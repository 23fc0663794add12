//! Limits of the preload object.

/// Open files of the device in one process; one more is ENFILE.
pub const OPEN_FILES_MAX: usize = 64;
/// `D3DKMT_ADAPTERS_MAX`: what EnumAdapters2 may ask for.
pub const ADAPTERS2_MAX: u32 = 64;
/// What EnumAdapters3 may ask for.
pub const ADAPTERS3_MAX: u32 = 0xFFFF;
/// Objects of a CPU wait or of a signal by a context: what one message of the driver has room for.
pub const MESSAGE_OBJECTS_MAX: u32 = 10_916;
/// Bytes of an escape, by the driver's check.
pub const ESCAPE_BYTES_MAX: u32 = 131_072;
/// The ends of socket pairs that the client does not see have numbers from here on.
pub const HIDDEN_DESCRIPTORS_FROM: i32 = 128;
/// Descriptors that are looked at for a file whose hidden end a client has closed.
pub const DESCRIPTORS_SEARCHED_MAX: u64 = 1 << 16;
