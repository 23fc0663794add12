//! The guest's client core: a session with the host as a value, over a [`Port`] that does the waiting.
//!
//! ```text
//!  caller ─▶ Session: what is known here, what goes to the host, what its answer means
//!              └─▶ Port: calls, waits, one-way calls, fence memory
//!                    ├ umd: one stream, read by the threads that wait; it blocks inside, so that each
//!                    │      future is complete at its first poll
//!                    └ simulated: bytes in, bytes out; a future is pending until they come
//!                          both ─▶ PendingCalls: which caller waits for which answer or wake
//! ```
//!
//! No thread, socket, descriptor, clock or async runtime: a port that needs them has its own. The futures are plain
//! state machines, neither boxed nor spawned, so a blocking port has no overhead.
#![forbid(unsafe_code)]

mod greeting;
mod host_times;
mod idle;
mod keyed_mutex;
pub mod limits;
mod objects;
mod pending_calls;
mod port;
mod queues;
mod session;
pub mod simulated;
mod submit;
mod wait;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub use greeting::{hello, welcome_from};
pub use host_times::{TimedMessage, Woken};
pub use keyed_mutex::Acquired;
pub use objects::ValueForm;
pub use pending_calls::{Answer, Delivery, Exchange, PendingCalls, TRANSPORT_LOST};
pub use port::{CallerEvent, EventError, Location, Port, RegisteredEvent, SendError, Wakes};
pub use queues::{CreatedQueue, NewContext};
pub use session::{CreatedFence, Session};

/// Polls once, with a waker that does nothing: for a port that blocks inside, and for a simulator that polls again
/// after each delivery.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
