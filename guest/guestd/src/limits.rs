//! Limits and times of guestd.

use std::time::Duration;

/// How long an attach is held while the host is not connected; then it is refused.
pub const HOST_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the host may take to answer our hello, and to close its end of a link that we gave up.
pub const GREETING_MAX: Duration = Duration::from_secs(10);
/// First pause before the host is tried again; it doubles up to [`RETRY_PAUSE_MAX`].
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Different lines that are said about a link that does not come up.
pub const LINK_WORDS_MAX: usize = 16;
/// Connections to the broker at a time, attached or not: every process a VM may have, and some that ask.
pub const CLIENTS_MAX: usize = d3dkmt::limits::PROCESSES_PER_VM_MAX + 64;
/// Of what the users of the guest share, one part in so many is root's alone: see [`crate::broker`].
pub const ROOT_PART: u32 = 16;
/// How long a connection may take to say what it wants: as long as the library waits for a session. A thousand processes
/// that start at once on one slow processor may each wait for seconds between `connect` and `send`, and a user has no
/// more connections than its share, however long they say nothing.
pub const INTRODUCTION_MAX: Duration = Duration::from_secs(30);
/// Connections that are accepted before others have their turn.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Descriptors that a user's clients sent and that are still being closed; while there are as many, they are not read.
pub const UNCLOSED_PER_USER_MAX: usize = 256;
/// Threads that close them: one for each user, and one for those that are left.
pub const CLOSERS_MAX: usize = 64;
/// Refused requests after which a connection is closed.
pub const REFUSALS_MAX: u32 = 16;
/// Pages of one region of fence memory, unless a process asks for more at once.
pub const REGION_PAGES_MAX: u32 = 256;
/// Pages that one process may hold.
pub const PROCESS_PAGES_MAX: u32 = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX / fence_page::SLOTS_PER_PAGE;
/// Pages of one Grow: what one message to the host can name.
pub const GROW_PAGES_MAX: u32 = proto::limits::PAGES_PER_MESSAGE_MAX as u32;
/// Regions that are pinned at a time: the size of the io_uring buffer table.
pub const PINNED_REGIONS_MAX: u32 = 8192;
/// Open descriptors of `guestd serve`: three for each process, two for each event channel, and the agent's.
pub const DESCRIPTORS_MAX: u64 = 32 * 1024;
/// NT handles that the bundled guest lets a broker watch (`fs.inotify.max_user_watches`): all that the host allows a VM,
/// and some of others.
pub const WATCHES_MAX: usize = d3dkmt::limits::SHARES_PER_VM_MAX + 1024;
/// Refusals that the console is told of in one [`REFUSALS_SAID_WINDOW`]: a serial console is slow, and the broker waits
/// for it.
pub const REFUSALS_SAID_MAX: u32 = 20;
pub const REFUSALS_SAID_WINDOW: Duration = Duration::from_secs(60);
/// Packets thrown away from a connection before it is closed, so that the peer still sees why.
pub const DISCARDED_PACKETS_MAX: usize = 64;
/// Bytes read at once from the host's link, a pipe or a file.
pub const READ_BYTES: usize = 64 * 1024;

/// Chunks of a program's output, or of its input, that wait for their reader.
pub const CHUNKS_QUEUED_MAX: usize = 8;
/// Bytes read from a program's pipe after its end: what the pipe can hold. Its background children may write on.
pub const PIPE_BYTES_MAX: usize = 64 * 1024;
/// How long answers may take to leave before the guest is powered off.
pub const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// First pause of PID 1 before it starts `serve` again; it doubles up to [`RESTART_PAUSE_MAX`].
pub const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);
/// A `serve` that ran this long was well: the next restart is quick again.
pub const RESTART_PAUSE_RESET: Duration = Duration::from_secs(10);
