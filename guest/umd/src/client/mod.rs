//! The client core of this process: the sessions of crate `client` over a stream that is read by the
//! threads that wait, without C.

mod attach;
mod backing;
mod channel;
mod event;
mod fence_memory;
mod helper;
mod link;
mod notification;
mod parker;
mod port;
mod reading;
mod resume;
mod rings;
mod session;
mod times;

pub use ::client::{Acquired, Answer, EventError, NewContext, SendError, TRANSPORT_LOST, ValueForm, hello};

pub use attach::{AttachError, Attachment, Broker, broker_path, greet, process_name};
pub use backing::Parents;
pub use channel::Wakes;
pub use event::{CallerEvent, Event};
pub use fence_memory::{FenceLocation, FenceMemory, MemoryError};
pub use helper::start_thread;
pub use notification::Notification;
pub use session::{CreatedFence, Session, attach, block_on};
