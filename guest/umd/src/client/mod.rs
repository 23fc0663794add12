//! The client core: a session with the host, without C.

mod attach;
mod channel;
mod desk;
mod event;
mod helper;
mod memory;
mod objects;
mod reading;
mod session;
mod submit;
mod wait;

pub use attach::{AttachError, broker_path, process_name};
pub use channel::SendError;
pub use desk::{Answer, TRANSPORT_LOST};
pub use event::{CallerEvent, Event, NotAnEvent};
pub use memory::{FenceLocation, MemoryError};
pub use objects::ValueForm;
pub use session::{CreatedFence, Session};
