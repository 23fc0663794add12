//! Traces: the list of `(now, Input, Effects)` of one run of the kernel, in a file that ends in `.gvt`.
//!
//! [`Recorder`] appends while the daemon runs, [`Reader`] reads, [`replay`] feeds a new kernel with the
//! inputs and compares what it asks for.
//!
//! # The file
//!
//! docs/TRACE.md has it byte by byte. In short:
//!
//! ```text
//!   FILE.gvt        blocks, one after the other; each has a header with the trace's random number, its own number, kind,
//!                   steps, times, the checksum of its content and of itself, and what the header before it had for one
//!     header        who recorded what kernel
//!     data          steps: an input, compact (`compact.rs`) or a message (`encode.rs`), and then its effects
//!     snapshot      the kernel's state between two steps, and a copy of the header before it
//!     index         where the last 64 blocks are and what they have
//!     end           the number of steps, and the digest of the state
//!   FILE.gvt.open   while it is recorded: the block of data that is not full yet, in shared memory
//! ```
//!
//! A block needs no other to be read, so a reader goes on behind whatever is damaged ([`Lost`] says what and why). A
//! step never spans two blocks. Its input is in the trace before the kernel is told it ([`Recorder::begin`]); a step
//! without effects is the call that the kernel did not come back from, and only the last one may be such a step.
//!
//! # Replay
//!
//! Bit-identical: the same inputs at the same times give the same effects, lane by lane, and in the end
//! the same state digest. [`dxgkrnl::SEMANTIC_VERSION`] says when that promise is void.
#![deny(unsafe_code)]

mod block;
mod causes;
mod compact;
mod convert;
mod encode;
mod error;
mod file;
mod header;
mod index;
mod mapping;
mod moves;
mod pack;
mod player;
mod reader;
mod recorder;
mod replay;
mod report;
mod ring;
mod scan;
mod sink;
mod staging;
mod steps;
mod stop;
mod times;
mod verify;
mod writer;

pub use block::Kind;
pub use causes::{CAUSES_MAX, Cause, Causes};
pub use error::{Lost, TraceError};
pub use file::{Durable, beside};
pub use mapping::Mapping;
pub use pack::{Packed, pack};
pub use player::{Player, PlayerStep, Unchecked};
pub use reader::{BlockInfo, Header, Next, Reader, Record, state_path};
pub use recorder::{RECORDED_BYTES_MIN, Recorder, Recording};
pub use replay::{ReplayRange, explain, replay, replay_from, replay_part};
pub use report::{Difference, Lane, Report, Verdict};
pub use steps::Step;
pub use stop::{NoStop, Stop};
pub use times::{Times, Woken};
pub use verify::{Findings, verify};

/// Version of the file's layout. Blocks of [`FORMAT_VERSION_MIN`] are read as well; other layouts are refused.
pub const FORMAT_VERSION: u32 = 4;
/// A block is written in the oldest version that has its kind and content: most are of this one.
pub const FORMAT_VERSION_MIN: u32 = 3;
