//! The scenario language: parses text to [`Program`](crate::program::Program)s, and prints them.
//!
//! One statement per line. Names are declared before use, so a file is read once, from top to bottom, for each case of
//! its matrix. docs/SCENARIOS.md is the reference, with an example for each construct.

mod acts;
pub(crate) mod by_hand;
mod cursor;
mod error;
mod escapes;
mod expects;
pub(crate) mod forms;
mod head;
mod inject;
mod lists;
mod matrix;
pub(crate) mod names;
mod operand;
mod operands;
mod parse;
mod print;
mod race;
pub(crate) mod settings;
mod template;
mod token;
pub(crate) mod verbs;
pub(crate) mod words;

pub use error::{ScriptError, Span, suggestion};
pub use forms::as_written;
pub use inject::injection;
pub use parse::{parse, parse_bytes};
pub(crate) use print::{
    head_lines, write_act, write_action, write_data, write_outcome, write_wanted_message,
};
pub use print::{print, write_barrier, write_packet};
pub use template::template;
pub use verbs::{EXPECTATIONS, FAULTS, STATEMENTS, VERBS, Word};
