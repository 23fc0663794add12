//! Reading the streams of local processes.

use rustix::io::Errno;

use crate::channel::Channel;
use crate::closing::ClientFd;

/// Reads a stream once, and once more for the rest of a large incomplete frame, which is usually available.
pub(super) fn read(stream: &ClientFd, channel: &mut Channel, scratch: &mut [u8]) -> Result<usize, ReadError> {
    if let Some(read) = read_rest(stream, channel) {
        return read;
    }
    let count = only_bytes(stream.receive(scratch))?;
    channel.take_in(&scratch[..count]);
    let is_full = count == scratch.len();
    let rest = if is_full { read_rest(stream, channel) } else { None };
    match rest {
        // The next read returns the same error.
        None | Some(Err(ReadError::Ended(_))) => Ok(count),
        Some(rest) => Ok(count + rest?),
    }
}

/// Why a stream was not read.
pub(super) enum ReadError {
    Ended(Errno),
    /// The number of descriptors that the message had.
    Descriptors(usize),
}

/// The number of bytes that were read, if no descriptors came with them.
fn only_bytes(read: Result<(usize, Vec<ClientFd>), Errno>) -> Result<usize, ReadError> {
    match read {
        Ok((count, came)) if came.is_empty() => Ok(count),
        Ok((_, came)) => Err(ReadError::Descriptors(came.len())),
        Err(error) => Err(ReadError::Ended(error)),
    }
}

/// Reads the rest of a large incomplete frame directly into its buffer.
fn read_rest(stream: &ClientFd, channel: &mut Channel) -> Option<Result<usize, ReadError>> {
    let tail = channel.tail()?;
    let read = only_bytes(stream.receive_behind(tail));
    if read.is_ok() {
        channel.was_read();
    }
    Some(read)
}
