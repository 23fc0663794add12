//! Calls and replies on the wire. `field.rs` says how each type is encoded, `messages.rs` which structs are messages,
//! `bodies.rs` takes calls and replies through their rows, and `frames.rs` has what is around them.

mod bodies;
mod field;
mod frames;
mod messages;

pub use frames::{ToGuest, ToHost, encode_answer_frame, encode_call_frame, to_guest, to_host};
