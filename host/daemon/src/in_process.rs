//! Client processes without a socket of the daemon and without its threads: their owner passes bytes to their channel
//! and calls its turns. For tests and fuzz targets.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context as _;
use dxgkrnl::{ProcessId, VmId};
use frame_ring::{MappedArea, OwnMappedArea, Receiver, Sender};
use proto::channel::{Hello, ToHost, to_host};
use proto::frame::append;
use rustix::event::epoll;
use vsock_device::Services;

use super::broker::first_memory;
use super::channel::Channel;
use super::client_process::SinkStream;
use super::closing::ClientFd;
use super::kernel_host::KernelHost;
use super::peer::Peer;
use super::rings::Rings;
use super::vm::VmShared;

/// The sending end of the ring from a process.
pub type RingSender = Sender<OwnMappedArea, MappedArea>;
/// The receiving end of the ring to a process.
pub type RingReceiver = Receiver<OwnMappedArea, MappedArea>;

/// The services of a VM for a device of the caller's.
pub fn vm_services(kernel_host: &Arc<KernelHost>, vm: VmId, name: &str) -> Arc<dyn Services> {
    VmShared::new(vm, name, kernel_host, None).services()
}

/// A process with a channel that has had no Hello, and its end of the stream.
pub struct InProcessClient {
    pub process: ProcessId,
    pub channel: Channel,
    /// What the daemon sends.
    pub stream: UnixStream,
    /// The areas of its rings, if it has any: the daemon's and its own.
    pub areas: Option<(MappedArea, OwnMappedArea)>,
    token: Vec<u8>,
}

impl InProcessClient {
    /// Attaches a process of a VM.
    pub fn attach(
        kernel_host: &Arc<KernelHost>,
        vm: VmId,
        pid: u32,
        with_rings: bool,
    ) -> anyhow::Result<InProcessClient> {
        let (ours, stream) = UnixStream::pair().context("cannot make a stream")?;
        ours.set_nonblocking(true).context("cannot make a stream")?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?);
        let peer = Peer::Vm(vm);
        let (memory, _) = first_memory(&kernel_host.budgets, peer)?;
        let (client, token) = kernel_host.sessions().attach(vm, pid, "test".into(), memory)?;
        let mut areas = None;
        if with_rings {
            let (rings, [host, own]) = Rings::create(kernel_host.budgets.mappings.take(peer, 2)?)?;
            client.outbox.offer_rings(rings);
            areas = Some((MappedArea::map(host.as_fd())?, OwnMappedArea::map(own.as_fd())?));
        }
        let stream_of_daemon = ClientFd::socket(ours.into(), peer, None, &kernel_host.budgets.closers);
        let sink = SinkStream::Local { stream: Arc::new(stream_of_daemon), epoll, key: 1 }.into();
        let channel = Channel::new(kernel_host.clone(), vm, None, sink);
        Ok(InProcessClient { process: client.id, channel, stream, areas, token: token.to_vec() })
    }

    /// The bytes of its Hello.
    pub fn hello(&self) -> Vec<u8> {
        let (version, token, rings) = (proto::PROTOCOL_VERSION, self.token.clone(), self.areas.is_some());
        let hello = Hello { version, token, rings, ..Hello::default() };
        let mut bytes = Vec::new();
        append(&ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }, &mut bytes);
        bytes
    }

    /// The ends of its rings, if it has any.
    pub fn ends(&self) -> Option<(RingSender, RingReceiver)> {
        let (host, own) = self.areas.clone()?;
        Some((Sender::new(own.clone(), host.clone()), Receiver::new(own, host)))
    }
}
