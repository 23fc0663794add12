//! Calls and replies on the wire. `field.rs` encodes each type, `messages.rs` the structs that are messages,
//! `bodies.rs` calls and replies by their rows, and `frames.rs` the frames around them. `short.rs` writes and reads the
//! most frequent frames faster.

mod bodies;
mod field;
mod frames;
mod messages;
mod short;

use frames::request_len;
pub use frames::{ToGuest, ToHost, encode_answer_frame, encode_call_frame, to_guest, to_host};
pub use short::{append_call, read_short_call};
