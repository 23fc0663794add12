//! Limits of the daemon. A wait has no limit of its duration.

use std::time::Duration;

/// Bytes read from one stream before others have their turn. The rest of a large frame is then read into its buffer;
/// these are copied there.
pub const READ_BYTES: usize = 16 * 1024;
/// Bytes taken from one ring before others have their turn, or the rest of a longer frame: what a few turns' calls
/// have. A process that has filled its ring waits for them, and goes on by its stream if they take long.
pub const RING_BYTES_PER_TURN_MAX: usize = 1024;
/// Rings at which a thread looks by itself.
pub const BUSY_RINGS_MAX: usize = 64;
/// Calls of one stream that are made before other users and VMs have their turn. A read of small calls has hundreds, a
/// millisecond's work.
pub const CALLS_PER_TURN_MAX: usize = 16;
/// The same while streams or rings of several users or VMs are busy: a call then waits for so many of another one.
pub const CALLS_PER_SHARED_TURN_MAX: usize = 2;
/// Turns in a pass, at most, before the thread looks for new calls: for the streams of one user while only they have
/// calls, else for those of all users together.
pub const TURNS_PER_PASS_MAX: usize = 16;
/// NT handles of local processes that are closed in the kernel before others have their turn: each is a step.
pub const HANDLES_CLOSED_AT_ONCE_MAX: usize = 64;
/// With a journal: one-way calls after which a client is sent the number of those applied.
pub const ONE_WAY_ACKNOWLEDGED_EVERY: u64 = 64;
/// Bytes that may wait for a client that does not read; a client over it is cut off.
pub const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pages by which a local process's fence memory grows at most at once.
pub const GROW_PAGES_MAX: u32 = 256;
/// Time that a connection has to identify itself.
pub const INTRODUCTION_NS: u64 = 5_000_000_000;
/// Pending connections of one user or one VM. One more closes the oldest.
pub const PENDING_CONNECTIONS_PER_PEER_MAX: usize = 1024;
/// Pending connections that are closed at once because their time is over.
pub const EXPIRED_AT_ONCE_MAX: usize = 16;
/// Bytes of the first frame of a stream, which is Hello.
pub const HELLO_BYTES_MAX: usize = 4096;
/// Unprocessed bytes of the processes of one VM or of one user: two thousand of them may each have sent half of their
/// longest call.
pub const UNPROCESSED_BYTES_PER_PEER_MAX: usize = 128 * 1024 * 1024;
/// Unread bytes of the same, with what a journal retains of them. A process has [`OUTBOX_BYTES_MAX`] alone.
pub const UNREAD_BYTES_PER_PEER_MAX: usize = 64 * 1024 * 1024;
/// A process with fewer unread bytes does not count for that limit, as nearly all do at nearly all times: also not one
/// that has read everything and has nothing to report.
pub const UNREAD_BYTES_COUNTED: usize = 2 * proto::limits::RECEIVED_BYTES_UNREPORTED_MAX;
/// Time that connections of the control socket have to end once the daemon is asked to stop.
pub const CONNECTIONS_END_WITHIN: Duration = Duration::from_millis(500);
/// VMs that one daemon serves.
pub const VMS_MAX: u32 = 64;
/// Local VMs that one daemon serves.
pub const LOCAL_VMS_MAX: u32 = 64;
/// Identity of the first local VM; those of VMs with a machine are at most [`VMS_MAX`].
pub const LOCAL_VM_FIRST: u32 = 1001;
/// Notes, and bytes of them, in the answer to an injection. A status of gRPC is a header of HTTP/2, which has a limit.
pub const INJECTION_NOTES_MAX: usize = 16;
pub const INJECTION_NOTE_BYTES_MAX: usize = 2048;
/// Notes queued for a slow reader of the note stream.
pub const NOTES_QUEUED_MAX: usize = 1024;
/// Processed bytes of a stream after which its guest is sent credit. Together with the credit that the device withholds
/// and the longest frame, less than the window.
pub const CREDIT_BYTES: usize = 16 * 1024;
/// Warnings that one client, a VM or a local process, may cause in a second. The first few say what is wrong, and 8
/// lines of 120 bytes a second are 80 MiB of log a day.
pub const LOG_LINES_PER_SECOND_MAX: u32 = 8;
/// The same for lines that only `--verbose` shows, including every refused call: its reader expects bursts.
pub const DEBUG_LINES_PER_SECOND_MAX: u32 = 1000;
/// Clients whose lines are counted separately in a second; lines of further clients are counted together.
pub const PEERS_IN_LOG_MAX: usize = 64;
/// Lines queued for a log that is slow or not read. More are dropped and counted.
pub const LOG_LINES_QUEUED_MAX: usize = 4096;
/// Descriptors that are not for local clients: of the daemon itself, of [`VMS_MAX`] VMs with 16 each, and of two
/// messages with the most descriptors, which are read although fewer are left.
pub const DESCRIPTORS_RESERVED: usize = 2048;
/// One part in this many of each resource that clients share is reserved for root and the daemon's own user.
pub const OWNER_PART: usize = 16;
/// Mappings that are not for local clients: the program's own, its threads' stacks, large blocks of the allocator, and
/// the memory of VMs.
pub const MAPPINGS_RESERVED: usize = 4096;
/// Pieces of backing memory that one local process may have at a time, each a mapping: a quarter of what the kernel's
/// default leaves for all.
pub const MAPPINGS_PER_PROCESS_MAX: usize = 1 << 14;
/// Pieces of backing pages and fence memory that the processes of one VM may have at a time: twice what guestd pins. Each
/// takes about 300 bytes here.
pub const PIECES_PER_VM_MAX: usize = 1 << 14;
/// `vm.max_map_count` if it cannot be read: the kernel's default.
pub const MAPPINGS_ASSUMED_MAX: usize = 65_530;
/// Number of a client's descriptors waiting to be closed at which its messages with further ones are no longer read: as
/// many as one message has.
pub const CLOSING_PER_PEER_MAX: usize = 253;
/// Bytes that are recorded before a failed snapshot is tried again; doubled after each further failure.
pub const SNAPSHOT_RETRY_BYTES: u64 = 1 << 20;
/// Number of those doublings: to 1 GiB.
pub const SNAPSHOT_DOUBLINGS_MAX: u32 = 10;
