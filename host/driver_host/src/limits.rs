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
/// Interrupts, signals of events and disconnected doorbells that a driver reports in one step of the kernel. Each DDI with
/// new work of clients allows [`CALLBACKS_PER_DDI_MAX`] more. The kernel calls further DDIs for each of them.
pub const REPORTS_PER_STEP: usize = 8 * CALLBACKS_PER_DDI_MAX;
/// Kernel time from one `SimTimerExpired` to the next, on average: about what a call costs the daemon.
pub const EXPIRY_NS: u64 = 50_000;
/// How much of that a driver may be ahead: 32 calls.
pub const EXPIRY_BURST_NS: u64 = 32 * EXPIRY_NS;
/// Kernel time from one `SimTimerExpired` to the next at least.
pub const EXPIRY_DISTANCE_NS: u64 = 1_000;
/// A DDI that takes less is not slow.
pub const SLOW_DDI: Duration = Duration::from_millis(1);
/// Time of slow DDIs in all, less a tenth of the time that has passed. A driver that exceeds it is lost: each of its DDIs
/// is in time, and all of them together stop the daemon.
pub const SLOW_DDIS_MAX: Duration = Duration::from_millis(200);
/// Time of the slow DDIs of one VM. A VM that exceeds it is refused while those of all exceed half of their limit.
pub const SLOW_DDIS_OF_VM: Duration = Duration::from_millis(6);
/// Bytes of one `SimDebugPrint` that are kept, and of a list of `SimNativeFenceSignaled`.
pub const DEBUG_PRINT_BYTES_MAX: usize = 512;
/// Bytes of one line that a driver prints to standard output or standard error. The rest of a longer one is cut off.
pub const OUTPUT_LINE_BYTES_MAX: usize = 1024;
/// Lines that one driver's process may print into a daemon's log in a second: its author reads bursts of them.
pub const OUTPUT_LINES_PER_SECOND_MAX: u64 = 100;
/// Lines beyond that which are logged when the process ends.
pub const LAST_LINES: usize = 20;
/// Bytes that a driver prints before it waits for the thread that reads them: what the system allows any user.
pub const OUTPUT_BYTES_WAITING: usize = 1 << 20;
/// How long the end of a process waits until its last lines are written to standard error.
pub const LAST_LINES_MAX: Duration = Duration::from_millis(100);
/// Bytes of a paging buffer that a driver may write.
pub const PAGING_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Bytes of the private data of a standard allocation.
pub const STANDARD_DATA_BYTES_MAX: usize = 4 << 10;
