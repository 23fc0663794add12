//! The connection to the host: length-delimited messages over a non-blocking stream.

use std::os::fd::{AsFd, OwnedFd};

use proto::attach::{GuestdToHost, HostToGuestd};
use proto::frame::{self, FrameBuffer};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::LINK;
use crate::broker::Input;
use crate::limits::HOST_MESSAGES_PER_TURN_MAX;

/// A connected stream with the buffered bytes of both directions.
pub(super) struct LinkSocket {
    socket: OwnedFd,
    received: FrameBuffer,
    unsent: Vec<u8>,
    has_more: bool,
    /// The broker has asked to send nothing more, and to read until the host closes its end.
    finishing: bool,
}

impl LinkSocket {
    pub(super) fn new(socket: OwnedFd, epoll: impl AsFd) -> Result<Self, Errno> {
        ioctl_fionbio(&socket, true)?;
        epoll::add(epoll, &socket, EventData::new_u64(LINK), EventFlags::IN)?;
        let (received, unsent) = Default::default();
        Ok(Self { socket, received, unsent, has_more: false, finishing: false })
    }

    pub(super) fn close(self, epoll: impl AsFd) {
        let _ = epoll::delete(epoll, &self.socket);
    }

    pub(super) fn finish(&mut self) {
        self.finishing = true;
        self.has_more = false;
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

    /// Whether received messages may be left for the next turn.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Some received messages, or how the link ended. Reads once, unless messages are left of an earlier read.
    pub(super) fn read(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut bytes = [0; READ_BYTES];
        let lost = |why: String| vec![Input::LinkLost { why }];
        if !self.has_more {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return lost("it closed the connection".to_owned()),
                Ok((count, _)) => self.received.extend(&bytes[..count]),
                Err(Errno::INTR | Errno::AGAIN) => return inputs,
                Err(error) => return lost(error.to_string()),
            }
        }
        if self.finishing {
            self.received = FrameBuffer::default();
            return inputs;
        }
        if let Err(error) = self.take_messages(&mut inputs) {
            self.finishing = true;
            inputs.push(Input::LinkGarbled { why: error.to_string() });
        }
        self.has_more = inputs.len() == HOST_MESSAGES_PER_TURN_MAX && !self.finishing;
        if !self.has_more {
            self.received.release();
        }
        inputs
    }

    fn take_messages(&mut self, inputs: &mut Vec<Input>) -> Result<(), frame::FrameError> {
        while inputs.len() < HOST_MESSAGES_PER_TURN_MAX
            && let Some(bytes) = self.received.next_frame()?
        {
            inputs.push(Input::FromHost(frame::decode::<HostToGuestd>(bytes)?));
        }
        Ok(())
    }
}

/// Bytes read at once: the host's messages are small.
const READ_BYTES: usize = 4096;
