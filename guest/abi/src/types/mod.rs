//! The types of the C ABI, under their C names. `declare` describes the notation of the tables.
#![allow(
    non_camel_case_types,
    non_snake_case,
    clippy::upper_case_acronyms,
    reason = "these are the names that C has"
)]
#![allow(clippy::wildcard_imports, reason = "C has one namespace for all headers, and so have these tables")]

mod declare;
#[cfg(test)]
mod sdk;

use std::ffi::c_void;

use super::plain::{plain_call_impls, plain_call_reply, plain_call_taken, plain_calls};
use declare::{c_abi, declared, laid_out, written};
#[cfg(test)]
use declare::{compared, compared_number, compared_row};

/// The files of declarations, in the order of the header.
macro_rules! files {
    ($($file:ident)*) => {
        $(pub mod $file; pub use $file::*;)*

        /// Writes the C text of all declarations.
        pub fn write_c(header: &mut super::header::Header) {
            $($file::write_c(header);)*
        }

        /// The layouts of all declarations.
        #[doc(hidden)]
        pub fn layouts() -> Vec<super::layout::Layout> {
            let mut layouts = Vec::new();
            $($file::add_layouts(&mut layouts);)*
            layouts
        }

        /// Compares all declarations with the types of the Windows SDK.
        #[cfg(test)]
        pub fn compare_with_sdk() {
            $($file::compare_with_sdk();)*
        }
    };
}
files!(words adapters devices sync_objects submission keyed_mutexes allocations residency offers hw_queues);

#[cfg(test)]
#[test]
fn every_declaration_has_the_layout_and_the_numbers_of_windows() {
    compare_with_sdk();
}

/// Bytes of the field that a function of its struct names.
#[cfg(test)]
fn width_of<S, F>(_: impl FnOnce(&S) -> *const F) -> usize {
    size_of::<F>()
}
