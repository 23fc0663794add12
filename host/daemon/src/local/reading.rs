//! Reading the streams of local processes.

use rustix::io::Errno;

use crate::channel::Channel;
use crate::closing::ClientFd;

/// One read of a stream, and one more for the rest of a big frame under way, which as a rule is there as well.
pub(super) fn read(stream: &ClientFd, channel: &mut Channel, scratch: &mut [u8]) -> Result<usize, ReadError> {
    if let Some(read) = read_rest(stream, channel) {
        return read;
    }
    let count = only_bytes(stream.receive(scratch))?;
    channel.take_in(&scratch[..count]);
    let is_full = count == scratch.len();
    let more = if is_full { read_rest(stream, channel) } else { None };
    match more {
        // What else it comes to the next read sees as well.
        None | Some(Err(ReadError::Ended(_))) => Ok(count),
        Some(more) => Ok(count + more?),
    }
}

/// Why nothing was read of a stream.
pub(super) enum ReadError {
    Ended(Errno),
    /// So many descriptors came along.
    Descriptors(usize),
}

/// The bytes that were read, if no descriptors came with them.
fn only_bytes(read: Result<(usize, Vec<ClientFd>), Errno>) -> Result<usize, ReadError> {
    match read {
        Ok((count, came)) if came.is_empty() => Ok(count),
        Ok((_, came)) => Err(ReadError::Descriptors(came.len())),
        Err(error) => Err(ReadError::Ended(error)),
    }
}

/// The rest of a big frame under way comes to its place at once.
fn read_rest(stream: &ClientFd, channel: &mut Channel) -> Option<Result<usize, ReadError>> {
    let tail = channel.tail()?;
    let read = only_bytes(stream.receive_behind(tail));
    if read.is_ok() {
        channel.was_read();
    }
    Some(read)
}
