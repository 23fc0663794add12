//! Fuzz targets: functions of bytes that may not panic, hang, or access memory that is not theirs, whatever the bytes.
//!
//! [`TARGETS`] lists them. `tests/replay.rs` runs each on its corpus, with stable Rust and in every `cargo test`;
//! `just fuzz TARGET` lets libFuzzer look for more inputs, by coverage. docs/FUZZING.md says what is a defect, and how to add
//! a target.

mod broker;
mod c_abi;
mod calls;
mod commands;
mod config;
mod frame_ring;
mod guestd;
mod model;
mod scenario;
mod session;
mod trace;
mod vhost_user;
mod vsock;

// The naive model and the sequences of calls are those of the model's tests.
#[allow(dead_code)]
#[path = "../../../host/dxgkrnl/tests/naive/mod.rs"]
mod naive;
#[allow(dead_code)]
#[path = "../../../host/dxgkrnl/tests/sequences/mod.rs"]
mod sequences;

pub use broker::broker;
pub use c_abi::c_abi;
pub use commands::commands;
pub use config::config;
pub use frame_ring::frame_ring;
pub use guestd::guestd;
pub use model::model;
pub use scenario::scenario;
pub use session::session;
pub use trace::{is_trace, trace};
pub use vhost_user::vhost_user;
pub use vsock::vsock;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// The folder of its corpus, and the word of `just fuzz`.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "frame_ring", run: frame_ring },
    Target { name: "vsock", run: vsock },
    Target { name: "vhost_user", run: vhost_user },
    Target { name: "broker", run: broker },
    Target { name: "c_abi", run: c_abi },
    Target { name: "guestd", run: guestd },
    Target { name: "session", run: session },
    Target { name: "commands", run: commands },
    Target { name: "trace", run: trace },
    Target { name: "scenario", run: scenario },
    Target { name: "config", run: config },
    Target { name: "model", run: model },
];

/// Defines what libFuzzer calls for each input: a target of this crate.
///
/// A panic that the tested code catches is its own affair; one that leaves the target ends the process. (The macro of
/// `libfuzzer-sys` would end it at the first panic of either kind.)
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! libfuzzer {
    ($target:ident) => {
        // Links its `main`.
        extern crate libfuzzer_sys as _;

        // SAFETY: the name that libFuzzer links; no other item has it.
        #[unsafe(no_mangle)]
        extern "C" fn LLVMFuzzerTestOneInput(bytes: *const u8, length: usize) -> i32 {
            // SAFETY: libFuzzer passes that many bytes, which stay as they are until this returns.
            let bytes =
                if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(bytes, length) } };
            if std::panic::catch_unwind(|| $crate::$target(bytes)).is_err() {
                std::process::abort();
            }
            0
        }
    };
}
