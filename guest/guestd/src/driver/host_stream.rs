//! The connection to the host: length-delimited messages over a non-blocking stream.

use std::os::fd::{AsFd, OwnedFd};

use proto::attach::{GuestdToHost, HostToGuestd};
use proto::frame::{self, FrameBuffer};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::LINK;
use crate::broker::Input;

/// A connected stream with the buffered bytes of both directions.
pub(super) struct LinkSocket {
    socket: OwnedFd,
    received: FrameBuffer,
    unsent: Vec<u8>,
    /// The broker has asked to send nothing more, and to read until the host closes its end.
    finishing: bool,
}

impl LinkSocket {
    pub(super) fn new(socket: OwnedFd, epoll: impl AsFd) -> Result<Self, Errno> {
        ioctl_fionbio(&socket, true)?;
        epoll::add(epoll, &socket, EventData::new_u64(LINK), EventFlags::IN)?;
        Ok(Self { socket, received: FrameBuffer::default(), unsent: Vec::new(), finishing: false })
    }

    pub(super) fn close(self, epoll: impl AsFd) {
        let _ = epoll::delete(epoll, &self.socket);
    }

    pub(super) fn finish(&mut self) {
        self.finishing = true;
        self.unsent.clear();
        // If it fails the connection is closed already, which the next read reports.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    pub(super) fn send(&mut self, message: &GuestdToHost, epoll: impl AsFd) {
        frame::append(message, &mut self.unsent);
        self.flush(epoll);
    }

    /// Sends as much as the stream accepts now. The next read notices a failed stream.
    pub(super) fn flush(&mut self, epoll: impl AsFd) {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match send(&self.socket, &self.unsent[sent..], SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => sent = self.unsent.len(),
            }
        }
        self.unsent.drain(..sent);
        let interest = if self.unsent.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let _ = epoll::modify(epoll, &self.socket, EventData::new_u64(LINK), interest);
    }

    /// The received messages, and at last how the link ended if it did.
    pub(super) fn read(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut bytes = [0; READ_BYTES];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    inputs.push(Input::LinkLost { why: "it closed the connection".to_owned() });
                    return inputs;
                }
                Ok(_) if self.finishing => {}
                Ok((count, _)) => {
                    self.received.extend(&bytes[..count]);
                    if let Err(error) = self.take_messages(&mut inputs) {
                        self.finishing = true;
                        inputs.push(Input::LinkGarbled { why: error.to_string() });
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.received.release();
                    return inputs;
                }
                Err(error) => {
                    inputs.push(Input::LinkLost { why: error.to_string() });
                    return inputs;
                }
            }
        }
    }

    fn take_messages(&mut self, inputs: &mut Vec<Input>) -> Result<(), frame::FrameError> {
        while let Some(bytes) = self.received.next_frame()? {
            inputs.push(Input::FromHost(frame::decode::<HostToGuestd>(bytes)?));
        }
        Ok(())
    }
}

/// Bytes read at once: the host's messages are small.
const READ_BYTES: usize = 4096;
