//! Limits of a driver in a process of its own.

use std::time::Duration;

/// How long a driver may take for one DDI. Time in which its process waits for a CPU or a disk does not count. The
/// kernel of the daemon stands still meanwhile: a driver that hangs costs every client this time, once.
pub const DDI_MAX: Duration = Duration::from_millis(5);
/// How long one DDI may take in all, whatever the process waits for.
pub const DDI_WALL_MAX: Duration = Duration::from_secs(1);
/// How long a driver may take to be loaded, or to save or restore its state.
pub const LOAD_MAX: Duration = Duration::from_secs(2);
/// Bytes of one message, either way: a command buffer, a driver's saved state.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Callbacks in one DDI.
pub const CALLBACKS_PER_DDI_MAX: usize = 1024;
/// Bytes of one `SimDebugPrint` that are kept.
pub const DEBUG_PRINT_BYTES_MAX: usize = 512;
/// Bytes of a paging buffer that a driver may write.
pub const PAGING_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Bytes of the private data of a standard allocation.
pub const STANDARD_DATA_BYTES_MAX: usize = 4 << 10;
