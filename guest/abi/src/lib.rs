//! The C ABI of D3DKMT, declared once: `types` has every struct, enum and flag word, `functions` every function with a
//! thunk of its own. Plain calls are declared beside their structs; one row gives both thunk and caller (`plain`).
//! `refused` names the calls that answer NOT_SUPPORTED. `d3dkmthk.h` is generated from all of them (`header`).
//!
//! The library (`guest/umd`) exports the functions; the scenario client (`guest/scenario_client`) calls the plain ones.
//! `notice` prints what the user of a program is told; `cancellation` keeps a call from being cancelled.

pub mod cancellation;
mod functions;
pub mod header;
#[doc(hidden)]
pub mod layout;
pub mod notice;
mod plain;
pub mod refused;
pub mod types;
pub mod wchar;

pub use plain::{CValue, PlainCall};

/// A C struct or word: any bytes are a valid value.
///
/// # Safety
/// Only for types without padding-sensitive or invalid bit patterns.
pub unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for i32 {}
// SAFETY: integers.
unsafe impl Plain for i64 {}
// SAFETY: integers.
unsafe impl Plain for u16 {}
// SAFETY: integers.
unsafe impl Plain for u8 {}

// SAFETY: addresses; nothing is assumed about their targets.
unsafe impl<T> Plain for *const T {}
// SAFETY: addresses; nothing is assumed about their targets.
unsafe impl<T> Plain for *mut T {}
// SAFETY: plain elements without padding between them.
unsafe impl<T: Plain, const LENGTH: usize> Plain for [T; LENGTH] {}
// SAFETY: a handle is one integer.
unsafe impl Plain for d3dkmt::Handle {}

/// Compiles for plain types only.
pub const fn assert_plain<T: Plain>() {}

/// A value whose bytes are 0.
pub fn zeroed<T: Plain>() -> T {
    // SAFETY: any bytes are a valid value.
    unsafe { std::mem::zeroed() }
}
