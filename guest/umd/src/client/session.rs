//! The session of this library: that of crate `client` over a port that blocks.

use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use ::client::poll_once;

use super::attach::AttachError;
use super::fence_memory::FenceLocation;
use super::port::ProcessPort;

/// A client process's session with the host. Any thread may use it; [`block_on`] runs its operations.
pub type Session = ::client::Session<ProcessPort>;

/// A created or opened sync object, with the location of its value.
pub type CreatedFence = ::client::CreatedFence<FenceLocation>;

/// Attaches this process at the broker of `path`.
pub fn attach(path: &Path, name: &str) -> Result<Session, AttachError> {
    let (port, welcome) = ProcessPort::attach(path, name)?;
    Ok(Session::new(port, welcome))
}

/// Runs an operation of a [`Session`] and returns its output. The port blocks until the operation completes.
// Always inlined, because a future passed to a function is copied into its frame. With that copy of some hundred bytes
// a satisfied wait takes half as long again.
#[inline(always)]
pub fn block_on<F: Future>(operation: F) -> F::Output {
    match poll_once(pin!(operation)) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("every future of a blocking port is complete at its first poll"),
    }
}
