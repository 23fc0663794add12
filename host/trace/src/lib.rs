//! Traces: the list of `(now, Input, Effects)` of one run of the kernel, in a file that ends in `.gvt`.
//!
//! [`Recorder`] appends while the daemon runs, [`Reader`] reads, [`replay`] feeds a new kernel with the
//! inputs and compares what it asks for.
//!
//! # The file, byte by byte
//!
//! A file is a sequence of blocks and nothing else. All numbers are little-endian.
//!
//! ```text
//! offset 0   8 bytes  "GPVTRACE"
//!        8   u32      length of the payload, not 0
//!       12   u32      CRC32C of the payload
//!       16   u32      number of this block: 0, 1, 2, ..
//!       20   u32      CRC32C of the 20 bytes before
//!       24   payload  whole records, one after the other:
//!                       varint  length of the record
//!                       bytes   a protobuf message gpupv.trace.Record (proto/trace.proto)
//! ```
//!
//! Records are numbered 0, 1, 2, .. through the whole file. Record 0 is the header: format version,
//! semantic version of the model, the program that wrote it, the kernel's configuration with its policy
//! switches. It is alone in block 0, which is written when the file is created. Then comes one record for
//! each step. The last record is the end, with the number of steps and the digest of the kernel's state;
//! nothing follows it. A file without an end is what a killed daemon leaves: it is whole up to its last
//! block. A block is closed after the step with which its payload reaches 64 KiB, or by a flush, and is
//! written with one write(2), so a record never spans two blocks.
//!
//! A step's input is in the open block before the kernel is told it ([`Recorder::begin`]), and the block is
//! a valid payload between any two calls of the recorder. A step without effects is the call that the
//! kernel did not come back from; only the last record of a file may be one.
//!
//! Every byte is under a checksum, every block and record is numbered, so damage is found before anything
//! is decoded: see [`Damage`] for what is told.
//!
//! # Replay
//!
//! Bit-identical: the same inputs at the same times give the same effects, lane by lane, and in the end
//! the same state digest. [`dxgkrnl::SEMANTIC_VERSION`] says when that promise is void.
#![forbid(unsafe_code)]

mod block;
mod convert;
mod encode;
mod error;
mod header;
mod moves;
mod reader;
mod recorder;
mod replay;
mod report;

pub use error::{Damage, TraceError};
pub use reader::{Header, Reader, Record};
pub use recorder::Recorder;
pub use replay::{replay, replay_from};
pub use report::{Difference, Lane, Report, Verdict};

/// Version of the file's layout. Other layouts are refused.
pub const FORMAT_VERSION: u32 = 2;
