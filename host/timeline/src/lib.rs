//! Timelines, statistics and differences of traces.
//!
//! ```text
//!   trace::Reader ──steps──▶ build ──▶ Timeline ──▶ perfetto (.pftrace)  html  lanes (text)  vmbus (text)
//!                              │  ▲        └──────▶ stats
//!                       replay ▼  │ observe.rs: runs of engines, signals
//!                           Kernel
//!   trace::Reader x 2 ──▶ diff
//! ```
//!
//! A trace has the kernel's inputs and effects. It does not have the object behind a handle, the work of an engine or
//! the content of a queue, so [`read`] replays the trace and observes the kernel. The result is plain data
//! ([`Timeline`]). The same trace gives the same timeline and the same output files, byte for byte.
//!
//! Memory is bounded: the latest [`Options::rows_max`] rows of each kind are kept, and the others are counted
//! ([`Integrity::left_out`]). Statistics ([`Stats`]) always cover the whole trace.
#![forbid(unsafe_code)]

mod build;
pub mod diff;
mod format;
pub mod html;
pub mod lanes;
pub mod latency;
mod observe;
mod parts;
pub mod perfetto;
mod stats;
mod timeline;
pub mod vmbus;
pub mod why_picture;

pub use build::{Options, TimelineError, read};
pub use format::{cells, cut, duration, escaped, status_name};
pub use parts::{PART_NAMES, WaitPart, parts};
pub use stats::{Stats, Summary};
pub use timeline::{
    Blocked, Cause, Event, Fence, FenceId, Integrity, Mark, MarkKind, Moment, NONE, OPENS_KEPT, Outcome,
    Packet, PacketKind, Reason, Run, Sample, StoredBy, Timeline, Track, TrackId, TrackKind, Wait, WaitKind,
    Word,
};
