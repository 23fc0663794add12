//! Limits of the guest library, in addition to those of the crate `client`. The length of a wait is not limited.

use std::time::Duration;

use proto::limits::FRAME_BYTES_MAX;

/// Entries of a caller's array that are read at most: more could not be sent in one message.
pub const ARRAY_ENTRIES_MAX: usize = FRAME_BYTES_MAX / size_of::<u32>();
/// Bytes asked of the stream in one read.
pub const READ_BYTES: usize = 4096;
/// Write buffer kept between two frames: enough for any frame. Allocating and freeing it each time would take longer
/// than the rest of a big escape.
pub const WRITE_BUFFER_KEPT_BYTES: usize = FRAME_BYTES_MAX + 16;
/// How long attaching may take (the broker's answer, then the host's Welcome). As long as a restarted daemon awaits
/// the processes of before, by default; until then it answers no new one.
pub const ATTACH_SECONDS_MAX: u64 = 30;
/// Descriptors that a fork must not leave open in the child: up to three for each session that the process has or had.
pub const SESSION_DESCRIPTORS_MAX: usize = 256;
/// Files of backing pages that are kept open, one of each piece of up to 16 MiB, and the part of the descriptors that the
/// program may have: memory of a piece without one stays shared with later children.
pub const BACKING_FILES_MAX: usize = 256;
pub const BACKING_FILES_SHARE: u64 = 8;
/// The part of the program's descriptors that pending waits and signals with an event leave free, once they keep as many.
pub const EVENTS_SHARE: u64 = 8;
/// Areas of rings that a child must not miss: two for each session that the process has.
pub const RING_AREAS_MAX: usize = 128;
/// How long a thread that makes a descriptor waits for a fork to be over: most forks take less.
pub const GATE_WAIT_MAX: Duration = Duration::from_secs(1);
/// Unacknowledged one-way calls of a resumable session: a thread that makes more waits.
pub const ONE_WAY_AHEAD_MAX: u64 = 256;
/// Answers and wakes after which a resumable session reports what it has read; earlier after
/// [`proto::limits::RECEIVED_BYTES_UNREPORTED_MAX`].
pub const RECEIVED_REPORTED_EVERY: u64 = 64;
/// Wakes kept for the next report to a host that asks for times; further ones are dropped.
pub const WOKEN_REPORTED_MAX: usize = 256;
/// Callbacks that a process may have registered.
pub const NOTIFICATIONS_MAX: usize = 1024;
/// How long a thread sleeps until it asks again what the host did not say.
pub const NOTIFICATIONS_RETRIED_AFTER: Duration = Duration::from_secs(1);
/// Stack of the thread that calls back for DXCore: callbacks are the program's code.
pub const NOTIFICATION_STACK_BYTES: usize = 2 * 1024 * 1024;
/// Stack of the helper thread that delivers asynchronous events.
pub const HELPER_STACK_BYTES: usize = 128 * 1024;
