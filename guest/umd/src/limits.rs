//! Limits of the guest library, beside those of the crate `client`. The length of a wait has none.

use proto::limits::FRAME_BYTES_MAX;

/// Entries of a caller's array that are read at most: more could not be sent in one message.
pub const ARRAY_ENTRIES_MAX: usize = FRAME_BYTES_MAX / size_of::<u32>();
/// Bytes asked of the stream in one read.
pub const READ_BYTES: usize = 4096;
/// Write buffer kept between two frames: what any frame needs. To get as much from the system each time, and give it
/// back, takes longer than all else about a big escape.
pub const WRITE_BUFFER_KEPT_BYTES: usize = FRAME_BYTES_MAX + 16;
/// How long attaching may take (the broker's answer, then the host's Welcome).
pub const ATTACH_SECONDS_MAX: u64 = 30;
/// Descriptors that a fork must not leave open in the child: two for each session of the process.
pub const SESSION_DESCRIPTORS_MAX: usize = 256;
/// One-way calls of a session that can be resumed that the host has not said to have made: whoever makes more waits.
pub const ONE_WAY_AHEAD_MAX: u64 = 256;
/// Answers and wakes after which the host of such a session is told that they were read.
pub const RECEIVED_TOLD_EVERY: u64 = 64;
/// Bytes read after which it is told all the same: it keeps 8 MiB, and answers of 128 KiB would be over that before.
pub const RECEIVED_TOLD_BYTES: u64 = 1 << 20;
/// Wakes that wait to be told to a host that asks for times; those beyond are not told.
pub const WOKEN_TOLD_MAX: usize = 256;
/// Stack of the helper thread that delivers asynchronous events.
pub const HELPER_STACK_BYTES: usize = 128 * 1024;
