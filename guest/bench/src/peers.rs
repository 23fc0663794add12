//! The raw peers: streams of the same kind as gpupv's, without gpupv's protocol.
//!
//! Locally they are Unix sockets of blocking threads in the `gpupv bench` process; in a VM they are ports of gpupv's
//! vsock device.
//!
//! `unsafe`: rustix has no vsock address, so one is laid out here as the kernel's `struct sockaddr_vm`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use guest_bench::Service;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Where the peers are.
#[derive(Clone, Copy, Debug)]
pub enum Peers {
    /// Sockets `echo`, `sink`, `relay` and `driver` in this folder.
    Unix(&'static str),
    Vsock,
}

/// A connection to a peer.
#[derive(Debug)]
pub struct Raw(File);

impl Peers {
    pub fn parse(text: &str) -> anyhow::Result<Peers> {
        match text.split_once(':') {
            None if text == "vsock" => Ok(Peers::Vsock),
            Some(("unix", folder)) => Ok(Peers::Unix(folder.to_owned().leak())),
            _ => bail!("expected the peers unix:FOLDER or vsock, not {text}"),
        }
    }

    /// The peers as a command-line argument.
    pub fn word(&self) -> String {
        match self {
            Peers::Unix(folder) => format!("unix:{folder}"),
            Peers::Vsock => "vsock".into(),
        }
    }

    pub fn connect(&self, service: Service) -> anyhow::Result<Raw> {
        let descriptor = match self {
            Peers::Unix(folder) => {
                let path = Path::new(folder).join(service.socket());
                let stream = UnixStream::connect(&path);
                OwnedFd::from(stream.with_context(|| format!("no peer at {}", path.display()))?)
            }
            Peers::Vsock => {
                let port = service.port();
                connect_vsock(port).with_context(|| format!("no peer at vsock port {port}"))?
            }
        };
        Ok(Raw(descriptor.into()))
    }
}

impl Raw {
    pub fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.0.write_all(bytes)?)
    }

    pub fn receive(&mut self, bytes: &mut [u8]) -> anyhow::Result<()> {
        Ok(self.0.read_exact(bytes)?)
    }

    /// Sends bytes and reads them back.
    pub fn echo(&mut self, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.send(bytes)?;
        self.receive(bytes)
    }
}

fn connect_vsock(port: u32) -> rustix::io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &HostPort(port))?;
    Ok(socket)
}

/// A vsock port of the host.
struct HostPort(u32);

// SAFETY: `f` gets a pointer to an initialised `sockaddr_vm` that lives across the call, and its size.
unsafe impl SocketAddrArg for HostPort {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        let address = libc::sockaddr_vm {
            svm_family: AddressFamily::VSOCK.as_raw(),
            svm_reserved1: 0,
            svm_port: self.0,
            svm_cid: libc::VMADDR_CID_HOST,
            svm_zero: [0; 4],
        };
        f((&raw const address).cast(), size_of::<libc::sockaddr_vm>() as SocketAddrLen)
    }
}
