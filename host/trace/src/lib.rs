//! Traces: the list of `(now, Input, Effects)` of one run of the kernel, in a file that ends in `.gvt`.
//!
//! [`Recorder`] writes a trace while the daemon runs, [`Reader`] reads it, and [`replay()`] feeds the inputs to a new
//! kernel and compares the effects.
//!
//! # The file
//!
//! docs/TRACE.md has it byte by byte. In short:
//!
//! ```text
//!   FILE.gvt        blocks, one after the other; each has a header with the trace's random number, its own number,
//!                   kind, steps, times, the checksums of its content and of itself, and that of the previous header
//!     header        the recording program and the kernel's configuration
//!     data          steps: an input, compact (`compact.rs`) or a message (`encode.rs`), and then its effects
//!     snapshot      the kernel's state between two steps; a copy of the header precedes it
//!     index         positions and contents of the last 64 blocks
//!     end           the number of steps, and the digest of the state
//!   FILE.gvt.open   during recording: the data block that is not full yet, in shared memory
//! ```
//!
//! Each block can be read on its own, so a reader continues after a damaged one ([`Lost`] describes the damage). A step
//! never spans two blocks. Its input is in the trace before the kernel handles it ([`Recorder::begin`]). Only the last
//! step of a trace may have no effects: the kernel did not return from that call.
//!
//! # Replay
//!
//! Replay is bit-identical: the same inputs at the same times give the same effects, lane by lane, and the same state
//! digest at the end. This holds only between programs with the same [`dxgkrnl::SEMANTIC_VERSION`].
//!
//! ```
//! use drivers::{Drivers, Registry};
//! use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
//! use trace::{Recorder, Verdict, replay};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("one.gvt");
//! let (registry, config) = (Registry::default(), Config::default());
//! let mut kernel = Kernel::new(config.clone(), Drivers::new(&registry, &config));
//! let mut recorder = Recorder::create(&path, &config, "example 1.0")?;
//! let name = "client".to_owned();
//! let input = Input::ProcessAttached { process: ProcessId(1), vm: VmId::HOST, pid: 42, name };
//! // The input is in the trace before the kernel handles it.
//! recorder.begin(1_000, &input)?;
//! let mut effects = Effects::default();
//! kernel.handle(1_000, input, &mut effects);
//! recorder.end(&effects)?;
//! recorder.finish(kernel.snapshot().digest())?;
//!
//! let report = replay(&path, &registry, &mut |_done, _all| {})?;
//! assert!(matches!(report.verdict, Verdict::Identical { .. }) && report.steps == 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Stability
//!
//! The API of this crate is 0.x: a minor version may change it, and the changelog says so. Stable is the file: a release reads the
//! formats from [`FORMAT_VERSION_MIN`] to [`FORMAT_VERSION`], and refuses others by their number.
#![deny(unsafe_code)]

mod block;
mod causes;
mod compact;
mod convert;
pub mod dma;
mod encode;
mod error;
mod file;
mod header;
mod index;
mod mapping;
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
mod stored;
mod times;
mod verify;
mod writer;

pub use block::Kind;
pub use causes::{CAUSES_MAX, Cause, Causes};
pub use error::{Lost, TraceError};
pub use file::{Durable, beside, open_regular};
pub use mapping::Mapping;
pub use pack::{Packed, pack};
pub use player::{Player, PlayerStep, Unchecked, restored};
pub use reader::{BlockInfo, Header, Next, Reader, Record, state_path};
pub use recorder::{RECORDED_BYTES_MIN, Recorder, Recording, record_steps};
pub use replay::{ReplayRange, explain, replay, replay_from, replay_part};
pub use report::{Difference, Lane, Report, Verdict, counted};
pub use ring::Dump;
pub use staging::{MissingOpenBlock, NoOpenBlock};
pub use steps::Step;
pub use stop::{NoStop, Stop};
pub use times::{Times, Woken};
pub use verify::{Findings, has_end, verify};

/// Version of the file's layout. Blocks of [`FORMAT_VERSION_MIN`] are read as well; other layouts are refused.
pub const FORMAT_VERSION: u32 = 4;
/// Oldest readable version. A block is written in the oldest version that has its kind and content; most blocks use
/// this one.
pub const FORMAT_VERSION_MIN: u32 = 3;
