//! Calls and replies on the wire. `field.rs` encodes each type, `messages.rs` the structs that are messages,
//! `bodies.rs` calls and replies by their rows, and `frames.rs` the frames around them.

mod bodies;
mod field;
mod frames;
mod messages;

pub use frames::{ToGuest, ToHost, encode_answer_frame, encode_call_frame, to_guest, to_host};
