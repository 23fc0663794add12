//! Pictures, figures and differences of traces.
//!
//! ```text
//!   trace::Reader ──steps──▶ build ──▶ Timeline ──▶ perfetto (.pftrace)  html  svg  lanes (text)  json
//!                              │  ▲        └──────▶ stats
//!                       replay ▼  │ observe.rs: what engines run, who signals
//!                           Kernel<Observer>
//!   trace::Reader x 2 ──▶ diff
//! ```
//!
//! A trace has what the kernel was told and what it asked for. Which object a handle names, what an engine runs and
//! what a queue holds is not in it, so [`read`] replays the trace beside and looks. What is drawn is
//! plain data ([`Timeline`]), the same for the same trace, byte for byte; and so is every picture of it.
//!
//! Memory is bounded: of each kind of row so many are kept as [`Options::rows_max`] says, the latest; what is left out
//! is counted ([`Integrity::left_out`]). Figures ([`Stats`]) are of the whole trace whatever is kept.
#![forbid(unsafe_code)]

mod build;
pub mod diff;
mod format;
pub mod html;
mod json;
pub mod lanes;
pub mod latency;
mod observe;
mod parts;
pub mod perfetto;
mod stats;
pub mod svg;
mod timeline;

pub use build::{Options, TimelineError, read};
pub use format::{duration, escaped, status_name};
pub use json::to_json;
pub use parts::{PART_NAMES, WaitPart, parts};
pub use stats::{Stats, Summary};
pub use timeline::{
    Blocked, BlockedItem, Cause, Event, Fence, FenceId, Integrity, Mark, MarkKind, Moment, NONE, OPENS_KEPT,
    Outcome, Packet, PacketKind, Reason, Run, Sample, Timeline, Track, TrackId, TrackKind, Wait, WaitKind,
    Word,
};
