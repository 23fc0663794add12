//! Every limit of the device, in one place. Sizes are bytes unless the name says otherwise.
//!
//! A guest that reaches one of them gets RST or waits for credit; the daemon gets [`crate::SendError::Full`].
//! Nobody else is slowed.

/// Connections one VM may hold at a time, offered and half-closed ones included.
pub const CONNECTIONS_PER_VM_MAX: usize = 4096;

/// Bytes the device holds for one connection while the guest gives no credit or no buffers.
pub const QUEUED_BYTES_PER_CONNECTION_MAX: usize = 256 * 1024;

/// Bytes the device holds for all connections of one VM together.
pub const QUEUED_BYTES_PER_VM_MAX: usize =
    QUEUED_BYTES_SHARED_MAX + CONNECTIONS_PER_VM_MAX * QUEUED_BYTES_OWN;

/// Of those, what each connection may hold however much the others do: a guest that reads some of its connections and
/// not others has no program whose answers wait for what another one does not read.
pub const QUEUED_BYTES_OWN: usize = 4 * 1024;

/// Bytes that the connections of one VM hold beyond their own, together.
pub const QUEUED_BYTES_SHARED_MAX: usize = 16 * 1024 * 1024;

/// Queue memory a connection keeps once its queue has run empty, so that ten thousand idle connections cost little.
pub const QUEUE_KEPT_BYTES: usize = 8 * 1024;

/// Payload of one packet, both ways. Linux sends at most 64 KiB and offers 4 KiB receive buffers.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;

/// `buf_alloc` we grant each connection: what a guest may send before we have consumed any of it.
pub const WINDOW_BYTES: u32 = 256 * 1024;

/// We tell the guest about consumed bytes once this many are untold. A quarter of the window, so that an endpoint
/// with manual credit can gather a message of three quarters of the window before it consumes any of it.
pub const CREDIT_UPDATE_BYTES: u32 = WINDOW_BYTES / 4;

/// The most window we believe of a guest. Also keeps "behind" and "ahead" of the wrapping counters apart.
pub const PEER_WINDOW_BYTES_MAX: u32 = 256 * 1024 * 1024;

/// RST answers that wait for receive buffers. More are dropped: a guest that floods us can wait for its timeout.
pub const RESETS_QUEUED_MAX: usize = 256;

/// Packets taken from the transmit ring before `Endpoint::idle` runs and other events get their turn.
pub const PACKETS_PER_TURN_MAX: usize = 128;

/// Turns of endpoints that have put something off before other events get theirs. Packets are looked at before each.
pub const BACKLOG_TURNS_MAX: usize = 16;

/// Receive buffers that a thread fills at a time, and bytes that it puts into them, before the VM's own worker goes on.
pub const BUFFERS_PER_PASS_MAX: usize = 256;

/// See [`BUFFERS_PER_PASS_MAX`]. More than a ring of Linux holds.
pub const BYTES_PER_PASS_MAX: usize = 1 << 20;

/// Entries of one virtqueue. QEMU offers 128.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Descriptors of one chain that the device follows.
pub const DESCRIPTORS_PER_CHAIN_MAX: usize = 64;

/// How long a second QEMU on a socket waits before it is turned away, because the first may have died just now.
pub const SECOND_QEMU_WAIT_NS: i64 = 250_000_000;

/// A holder that waits for a daemon looks again after so long at the latest, if nothing tells that it is back.
pub const PROXY_RETRY_NS: i64 = 250_000_000;

/// Memory regions of one VM. QEMU sends at most 8 in SET_MEM_TABLE.
pub const MEMORY_REGIONS_MAX: u64 = 32;

/// Complaints about one VM that are logged in [`COMPLAINT_PERIOD_SECONDS`]; the rest are counted.
pub const COMPLAINTS_PER_PERIOD_MAX: u32 = 8;

/// See [`COMPLAINTS_PER_PERIOD_MAX`].
pub const COMPLAINT_PERIOD_SECONDS: u64 = 10;
/// Packets taken from the guest before it is told that their buffers are free. It does not wait for that: telling
/// it of each packet costs it an interrupt for each.
pub const TAKEN_UNTOLD_MAX: usize = 16;
/// How long fewer packets than that may go untold.
pub const TAKEN_UNTOLD_NS: i64 = 1_000_000;
