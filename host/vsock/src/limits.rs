//! Every limit of the device, in one place. Sizes are bytes unless the name says otherwise.
//!
//! A guest that reaches one of them gets RST or waits for credit; the daemon gets [`crate::SendError::Full`]. Other VMs
//! are not slowed.

use std::time::Duration;

/// Connections that one VM may have at a time, including offered and half-closed ones.
pub const CONNECTIONS_PER_VM_MAX: usize = 4096;

/// Bytes that the device queues for one connection while the guest gives no credit or no buffers.
pub const QUEUED_BYTES_PER_CONNECTION_MAX: usize = 256 * 1024;

/// Bytes that the device queues for all connections of one VM together.
pub const QUEUED_BYTES_PER_VM_MAX: usize =
    QUEUED_BYTES_SHARED_MAX + CONNECTIONS_PER_VM_MAX * QUEUED_BYTES_OWN;

/// Of those, bytes that each connection may queue however much the others do. So if a guest reads some connections and
/// not others, no process waits for another one's unread bytes.
pub const QUEUED_BYTES_OWN: usize = 4 * 1024;

/// Bytes that the connections of one VM queue beyond their own, together.
pub const QUEUED_BYTES_SHARED_MAX: usize = 16 * 1024 * 1024;

/// Queue memory that a connection keeps once its queue is empty, so that ten thousand idle connections cost little.
pub const QUEUE_KEPT_BYTES: usize = 8 * 1024;

/// Payload of one packet, both ways. Linux sends at most 64 KiB and offers 4 KiB receive buffers.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;

/// `buf_alloc` of each connection: bytes that a guest may send before any of them is consumed.
pub const WINDOW_BYTES: u32 = 256 * 1024;

/// Consumed bytes after which the guest is sent credit. A quarter of the window, so that an endpoint with manual credit
/// can gather a message of three quarters of the window before it consumes any of it.
pub const CREDIT_UPDATE_BYTES: u32 = WINDOW_BYTES / 4;

/// The largest window that is accepted from a guest. Also distinguishes "behind" from "ahead" of the wrapping counters.
pub const PEER_WINDOW_BYTES_MAX: u32 = 256 * 1024 * 1024;

/// RST answers that wait for receive buffers. More are dropped; a flooding guest then waits for its own timeout.
pub const RESETS_QUEUED_MAX: usize = 256;

/// Packets taken from the transmit ring before `Endpoint::idle` runs and other events have their turn.
pub const PACKETS_PER_TURN_MAX: usize = 128;

/// Turns of endpoints with a backlog before other events have theirs. Packets are handled before each.
pub const BACKLOG_TURNS_MAX: usize = 16;

/// Rings of one guest at which its worker looks by itself.
pub const BUSY_RINGS_MAX: usize = 64;

/// How long a worker looks at busy rings before it sleeps. An emulated guest that was interrupted for a reply needs 100
/// to 200 us to its next call. With 50 us, as locally, each call was kicked; with 120, one run in two.
pub const LOOK_MAX: Duration = Duration::from_micros(250);

/// A look that ends within this time costs less than the packet that it replaces.
pub const LOOK_FREE: Duration = Duration::from_micros(50);

/// Longer looks take one part in this many of the time.
pub const LOOK_SHARE: i64 = 2;

/// The time that they may take at once, after a while without.
pub const LOOK_NS_SAVED_MAX: i64 = 10_000_000;

/// How long a worker with busy rings goes on before the thread asks for other events.
pub const TURNS_NS_MAX: u64 = 1_000_000;

/// Receive buffers that a thread fills at a time, before the VM's own worker continues.
pub const BUFFERS_PER_PASS_MAX: usize = 256;

/// Bytes that a thread puts into them at a time. More than a ring of Linux holds.
pub const BYTES_PER_PASS_MAX: usize = 1 << 20;

/// Entries of one virtqueue. QEMU offers 128.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Descriptors of one chain that the device follows.
pub const DESCRIPTORS_PER_CHAIN_MAX: usize = 64;

/// How long a second QEMU on a socket waits before it is refused, because the first may have just died.
pub const SECOND_QEMU_WAIT_NS: i64 = 250_000_000;

/// Interval at which a proxy without a daemon tries to connect, if inotify reports nothing.
pub const PROXY_RETRY_NS: i64 = 250_000_000;
/// How long the socket that a proxy connects to may take for its first answers. A device needs microseconds.
pub const PROXY_ANSWER_MAX: Duration = Duration::from_secs(2);
/// Connections that a daemon's device may end at one request of QEMU's, before a proxy takes that for a refusal.
pub const PROXY_REFUSALS_MAX: u32 = 3;
/// Milliseconds after which a device serves a waiting QEMU again that it could not serve, for want of descriptors say.
pub const SERVE_RETRY_MS: i32 = 1000;

/// Memory regions of one VM. QEMU sends at most 8 in SET_MEM_TABLE.
pub const MEMORY_REGIONS_MAX: u64 = 32;

/// Complaints about one VM that are logged in [`COMPLAINT_PERIOD_SECONDS`]; the rest are counted.
pub const COMPLAINTS_PER_PERIOD_MAX: u32 = 8;

/// See [`COMPLAINTS_PER_PERIOD_MAX`].
pub const COMPLAINT_PERIOD_SECONDS: u64 = 10;
/// Packets taken from the guest before it is notified that their buffers are free. The guest does not wait for that,
/// and a notification for each packet would cost an interrupt for each.
pub const TAKEN_UNNOTIFIED_MAX: usize = 16;
/// How long the notification of fewer packets may be delayed.
pub const TAKEN_UNNOTIFIED_NS: i64 = 1_000_000;
