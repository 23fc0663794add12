//! Limits and times of guestd.

use std::time::Duration;

/// How long an attach is held while the host is not connected; then it is refused.
pub const HOST_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the host may take to answer the hello, and to close its end of a link that the broker closes.
pub const GREETING_MAX: Duration = Duration::from_secs(10);
/// First pause before the next attempt to connect to the host; it doubles up to [`RETRY_PAUSE_MAX`].
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Different lines that are logged about a link that cannot be established.
pub const LINK_WORDS_MAX: usize = 16;
/// Connections to the broker at a time, attached or not: every process that a VM may have, and some more.
pub const CLIENTS_MAX: usize = d3dkmt::limits::PROCESSES_PER_VM_MAX + 64;
/// One part in this many of each shared resource is reserved for root: see [`crate::broker`].
pub const ROOT_PART: u32 = 16;
/// How long a connection may take to send its first request: as long as the library waits for a session. A thousand
/// processes that start at once on one slow processor may each wait seconds between `connect` and `send`. Idle
/// connections count against their user's share.
pub const INTRODUCTION_MAX: Duration = Duration::from_secs(30);
/// Connections that are accepted before other work is done.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Clients whose deadline is reached that are handled before other work is done: pages for one take milliseconds.
pub const DEADLINES_AT_ONCE_MAX: usize = 16;
/// Regions of ended processes that are freed before other work is done: the kernel takes some time to unpin each.
pub const REGIONS_FREED_AT_ONCE_MAX: usize = 16;
/// How long a request for pages waits for others' to be freed, besides the time that the kernel takes to unpin them.
pub const FREE_TIME_MAX: Duration = Duration::from_secs(1);
/// Messages of the host that are handled before other work is done: memory for the answer to an attach takes milliseconds.
pub const HOST_MESSAGES_PER_TURN_MAX: usize = 16;
/// Closed NT handles that the host is told of before other work is done.
pub const NT_HANDLES_CLOSED_PER_TURN_MAX: usize = 64;
/// Descriptors of a user's clients that are still being closed; at this number the clients are not read.
pub const UNCLOSED_PER_USER_MAX: usize = 256;
/// Threads that close them: one for each user that has some, and one for the users beyond the limit.
pub const CLOSERS_MAX: usize = 64;
/// Refused requests after which a connection is closed. A request over a limit does not count.
pub const REFUSALS_MAX: u32 = 16;
/// Pages of one region of fence memory, unless a process asks for more at once.
pub const REGION_PAGES_MAX: u32 = 256;
/// Pages that one process may hold.
pub const PROCESS_PAGES_MAX: u32 = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX / fence_page::SLOTS_PER_PAGE;
/// Pages of one Grow: as many as one message to the host can list.
pub const GROW_PAGES_MAX: u32 = proto::limits::PAGES_PER_MESSAGE_MAX as u32;
/// Regions that are pinned at a time: the size of the io_uring buffer table.
pub const PINNED_REGIONS_MAX: u32 = 8192;
/// How long unpinned pages count as pinned: the kernel's second, and some time for its worker.
pub const UNPIN_TIME: Duration = Duration::from_millis(1200);
/// Open descriptors of `guestd serve`: three for each process, two for each event channel, one for each sync file, and
/// the agent's.
pub const DESCRIPTORS_MAX: u64 = 32 * 1024 + SYNC_FILES_MAX as u64;
/// Sync files of the guest.
pub const SYNC_FILES_MAX: u32 = 4096;
/// NT handles that the broker of the bundled guest may watch (`fs.inotify.max_user_watches`): all that the host allows
/// a VM, and some for other programs.
pub const WATCHES_MAX: usize = d3dkmt::limits::SHARES_PER_VM_MAX + 1024;
/// Refusals that are logged in one [`REFUSALS_SAID_WINDOW`], because a serial console is slow and the broker waits for
/// it.
pub const REFUSALS_SAID_MAX: u32 = 20;
pub const REFUSALS_SAID_WINDOW: Duration = Duration::from_secs(60);
/// Packets discarded from a connection before it is closed, so that the peer still sees the reason.
pub const DISCARDED_PACKETS_MAX: usize = 64;
/// Bytes read at once from the host's link, a pipe or a file.
pub const READ_BYTES: usize = 64 * 1024;

/// Chunks of a program's output, or of its input, that wait for their reader.
pub const CHUNKS_QUEUED_MAX: usize = 8;
/// Bytes read from a program's pipe after its exit: the pipe's capacity. Its background children may keep writing.
pub const PIPE_BYTES_MAX: usize = 64 * 1024;
/// How long sending answers may take before the guest is powered off.
pub const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// First pause of PID 1 before it starts `serve` again; it doubles up to [`RESTART_PAUSE_MAX`].
pub const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);
/// A `serve` that ran this long was healthy: the next restart is quick again.
pub const RESTART_PAUSE_RESET: Duration = Duration::from_secs(10);
