//! Limits of the daemon. The length of a wait has none.

/// Bytes read from one stream before the others get their turn. What is missing of a big frame then comes to its
/// place at once; these are copied there.
pub const READ_BYTES: usize = 16 * 1024;
/// Calls of one stream that are worked off before other VMs get their turn. A read of small calls
/// has hundreds, a millisecond's work.
pub const CALLS_PER_TURN_MAX: usize = 16;
/// One-way calls after which a guest of a journal is told that they were made.
pub const ONE_WAY_TOLD_EVERY: u64 = 64;
/// Bytes that may wait for a guest that does not read; a guest over it is cut off.
pub const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pages by which a local process's fence memory grows at most at once.
pub const GROW_PAGES_MAX: u32 = 256;
/// How long a connection may take to say what it is.
pub const INTRODUCTION_NS: u64 = 5_000_000_000;
/// Connections of one user, or of one VM, that have not said what they are. One more ends the oldest.
pub const NEWCOMERS_PER_PEER_MAX: usize = 1024;
/// Bytes of the first frame of a stream, which is Hello.
pub const HELLO_BYTES_MAX: usize = 4096;
/// Bytes that the processes of one VM have sent and that are not worked off: two thousand of them may send half of their
/// longest call at the same time.
pub const HELD_BYTES_PER_VM_MAX: usize = 128 * 1024 * 1024;
/// VMs that one daemon serves.
pub const VMS_MAX: u32 = 64;
/// VMs without a machine that one daemon serves.
pub const LOCAL_VMS_MAX: u32 = 64;
/// Identity of the first of them; those of VMs with a machine are at most [`VMS_MAX`].
pub const LOCAL_VM_FIRST: u32 = 1001;
/// Notes kept for a reader of the note stream that is slow.
pub const NOTES_QUEUED_MAX: usize = 1024;
/// Bytes of a stream that are worked off before its guest has credit for them again. With what the device leaves untold, and
/// the longest frame, less than its window.
pub const CREDIT_BYTES: usize = 16 * 1024;
/// Bytes given to a vsock connection at once.
pub const VSOCK_PIECE_BYTES: usize = 16 * 1024;
/// Warnings that one client, a VM or a local process, may cause in a second. Someone reads them: the first few tell what is
/// wrong, and 8 lines of 120 bytes a second are 80 MiB of log a day.
pub const LOG_LINES_PER_SECOND_MAX: u32 = 8;
/// The same of what only `--verbose` shows, every refused call among it: who asked for it may read a burst of them.
pub const DEBUG_LINES_PER_SECOND_MAX: u32 = 1000;
/// Clients whose lines are told from one another in a second; lines of yet others are counted together.
pub const PEERS_IN_LOG_MAX: usize = 64;
/// Lines that wait for a log that is not read, or is slow. More are counted.
pub const LOG_LINES_QUEUED_MAX: usize = 4096;
/// Descriptors that are not for local clients: of the daemon itself, of [`VMS_MAX`] VMs with 16 each, and two messages of
/// clients with as many as come along, which wait to be closed.
pub const DESCRIPTORS_RESERVED: usize = 2048;
/// Stretches of memory that are not for local clients: the program's own, its threads' stacks, what the allocator maps for
/// big blocks, and the memory of VMs.
pub const MAPPINGS_RESERVED: usize = 4096;
/// Pieces of memory that one local process may have lent to engines at a time, each a mapping: a quarter of what the
/// kernel's default leaves for all.
pub const MAPPINGS_PER_PROCESS_MAX: usize = 1 << 14;
/// vm.max_map_count of a machine that does not say: the kernel's default.
pub const MAPPINGS_ASSUMED_MAX: usize = 65_530;
/// Descriptors that a client sent and that wait to be closed, while more of it are read: as many as one message has.
pub const CLOSING_PER_PEER_MAX: usize = 253;
/// Bytes that are recorded before a snapshot that failed is tried again; twice as many after each further failure.
pub const SNAPSHOT_RETRY_BYTES: u64 = 1 << 20;
/// So often they are doubled: to 1 GiB.
pub const SNAPSHOT_DOUBLINGS_MAX: u32 = 10;
