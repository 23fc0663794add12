//! One output pipe of a program, forwarded as it is written.
//!
//! A program's last output is in the pipe when it exits, but background children may keep the pipe open. So after the
//! exit only the bytes *in* the pipe are read, without waiting for the end of the pipe.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use proto::agent::{ExecOutput, exec_output};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use crate::limits::{PIPE_BYTES_MAX, READ_BYTES};

pub(super) type Sender = mpsc::Sender<Result<ExecOutput, Status>>;

/// The reading end of a pipe.
pub(super) struct Output {
    pipe: Receiver,
    wrap: fn(Vec<u8>) -> exec_output::Body,
}

impl Output {
    /// A pipe whose bytes are forwarded in the message that `wrap` makes, and its writing end.
    pub(super) fn new(wrap: fn(Vec<u8>) -> exec_output::Body) -> std::io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self { pipe: Receiver::from_owned_fd(read)?, wrap }, write))
    }

    /// Forwards everything until the pipe or the receiver closes, or the program has `ended` and the pipe is empty.
    pub(super) async fn send_on(self, sender: Sender, mut ended: watch::Receiver<bool>) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            tokio::select! {
                biased;
                _ = self.pipe.readable() => {}
                _ = ended.wait_for(|ended| *ended) => break,
            }
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if !self.send(&sender, &buffer[..count]).await {
                        return;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
            if *ended.borrow() {
                break;
            }
        }
        self.send_rest(&sender, &mut buffer).await;
    }

    /// Forwards what the pipe holds after the exit, and no more, because another process may keep writing.
    async fn send_rest(&self, sender: &Sender, buffer: &mut [u8]) {
        let mut left = PIPE_BYTES_MAX;
        while left > 0 {
            let most = left.min(buffer.len());
            match rustix::io::read(&self.pipe, &mut buffer[..most]) {
                Ok(0) => return,
                Ok(count) => {
                    left -= count;
                    if !self.send(sender, &buffer[..count]).await {
                        return;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    async fn send(&self, sender: &Sender, bytes: &[u8]) -> bool {
        sender.send(Ok(ExecOutput { body: Some((self.wrap)(bytes.to_vec())) })).await.is_ok()
    }
}
