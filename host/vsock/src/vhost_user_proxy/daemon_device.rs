//! The daemon's device, to which the proxy is connected as QEMU would be.
//!
//! Most requests have no answer, so a device that refuses one ends the connection later, when the next request is on
//! its way. The proxy has to know which request that was. So GET_FEATURES follows each request without an answer: it
//! is allowed at any time and changes nothing, and QEMU itself uses it so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::io::Errno;

use super::setup::Setup;
use super::wire::{Message, Request};
use crate::limits::PROXY_ANSWER_MAX;

/// A connection to the daemon's device.
pub(super) struct DaemonDevice(UnixStream);

impl AsFd for DaemonDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why the proxy is not connected to a device.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(
        "nobody listens there ({0}): start `gpupv serve`, or name a socket that it prints, such as vm1.sock"
    )]
    NoDaemon(io::Error),
    /// For lack of a right to the socket, for example.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// It exits, has not closed the last connection yet, or is no device.
    #[error(
        "it ends the connection at once: end another QEMU or proxy of this VM, or name a VM's socket, such as vm1.sock"
    )]
    Ended,
    #[error(
        "no answer: continue a stopped daemon, or name a VM's socket that `gpupv serve` prints, such as vm1.sock"
    )]
    Silent,
    #[error("it does not speak vhost-user: name a VM's socket that `gpupv serve` prints, such as vm1.sock")]
    NoDevice,
    /// The device cannot be brought to the state of the last one.
    #[error("{0}")]
    Refused(String),
}

impl DaemonDevice {
    /// Connects to a device and brings it to the state of the last one.
    pub fn connect(path: &Path, setup: &Setup) -> Result<DaemonDevice, ConnectError> {
        let connection = UnixStream::connect(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::CONNREFUSED) => ConnectError::NoDaemon(error),
            // A socket of packets, as a broker has.
            Some(Errno::PROTOTYPE) => ConnectError::NoDevice,
            _ => ConnectError::Unreachable(error),
        });
        let device = DaemonDevice(connection?);
        device.0.set_read_timeout(Some(PROXY_ANSWER_MAX)).map_err(ConnectError::Unreachable)?;
        device.check_features(setup)?;
        device.0.set_read_timeout(None).map_err(ConnectError::Unreachable)?;
        let refused = |error: io::Error| ConnectError::Refused(error.to_string());
        for replayed in setup.replay_messages().map_err(refused)? {
            let message = replayed.message();
            let number = message.request.0;
            match device.exchange(message, setup.acknowledges(message)) {
                Ok(reply) => {
                    if let Some(status @ 1..) = reply.map(|reply| reply.u64_at(0)) {
                        let words = format!("the daemon's device refuses request {number} ({status})");
                        return Err(ConnectError::Refused(words));
                    }
                }
                Err(error) => {
                    let words = format!("the daemon's device has failed at request {number}: {error}");
                    return Err(ConnectError::Refused(words));
                }
            }
        }
        for event in setup.events() {
            // A full counter is readable already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        Ok(device)
    }

    /// An error if the device lacks features that QEMU has accepted. No device refuses these two requests.
    fn check_features(&self, setup: &Setup) -> Result<(), ConnectError> {
        let accepted = [
            (Request::GET_FEATURES, setup.features()),
            (Request::GET_PROTOCOL_FEATURES, setup.protocol_features()),
        ];
        for (request, features) in accepted {
            let offered = self.exchange(&Message::new(request, Vec::new()), false);
            let offered = offered.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => ConnectError::Silent,
                io::ErrorKind::InvalidData => ConnectError::NoDevice,
                _ => ConnectError::Ended,
            })?;
            let missing = features & !offered.map_or(0, |offered| offered.u64_at(0));
            if missing != 0 {
                let words = format!(
                    "the daemon's device lacks features {missing:#x} that QEMU has accepted: start a daemon of the last one's version, or QEMU anew"
                );
                return Err(ConnectError::Refused(words));
            }
        }
        Ok(())
    }

    /// Sends a request and waits until the device has executed it; returns its answer, if it has one. `acknowledged`:
    /// both sides have agreed on REPLY_ACK.
    pub fn exchange(&self, message: &Message, acknowledged: bool) -> io::Result<Option<Message>> {
        message.write(&self.0)?;
        if message.is_answered(acknowledged) {
            return self.read_reply(message.request).map(Some);
        }
        Message::new(Request::GET_FEATURES, Vec::new()).write(&self.0)?;
        self.read_reply(Request::GET_FEATURES).map(|_| None)
    }

    fn read_reply(&self, request: Request) -> io::Result<Message> {
        let reply = Message::read(&self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match reply.is_reply_to(request) {
            true => Ok(reply),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the daemon's device answered another request",
            )),
        }
    }
}

/// Whether the other side has ended the connection. A device also does that if it refuses a request.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
