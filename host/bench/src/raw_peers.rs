//! The raw peers: services without any gpupv code in between, which figures are compared with. The same code serves
//! blocking threads on Unix sockets, for local processes, and ports of the daemon's vsock device, for a VM. On order a
//! driver's peer also executes the host's side of a wake: it sends raw bytes or has the driver signal.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use daemon::PortServices;
use daemon::kernel_host::KernelHost;
use dxgkrnl::Fault;
use guest_bench::{DRIVER_USAGE, Order, Service};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};
use vsock_device::{CloseReason, Connection, Endpoint};

const BUFFER_BYTES: usize = 64 * 1024;

/// Sends bytes on a connection; an error ends the connection they were sent for.
type Send<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// One connection to a service.
enum Peer {
    Echo,
    Sink { header: Vec<u8>, remaining: u64 },
    Relay,
    Driver { kernel_host: Arc<KernelHost>, received: Vec<u8>, begun_ns: u64 },
}

impl Peer {
    fn new(service: Service, kernel_host: &Arc<KernelHost>) -> Peer {
        match service {
            Service::Echo | Service::EchoMany => Peer::Echo,
            Service::Sink => Peer::Sink { header: Vec::new(), remaining: 0 },
            Service::Relay => Peer::Relay,
            Service::Driver => {
                Peer::Driver { kernel_host: kernel_host.clone(), received: Vec::new(), begun_ns: 0 }
            }
        }
    }

    /// Handles received bytes. `reply` sends on this connection, `forward` on the other one of a pair.
    fn received(&mut self, bytes: &[u8], reply: Send<'_>, forward: Send<'_>) -> io::Result<()> {
        match self {
            Peer::Echo => reply(bytes),
            Peer::Relay => forward(bytes),
            Peer::Sink { header, remaining } => discard(header, remaining, bytes, reply),
            Peer::Driver { kernel_host, received, begun_ns } => {
                received.extend_from_slice(bytes);
                let complete = received.len() / Order::BYTES * Order::BYTES;
                for order in received.drain(..complete).as_slice().chunks_exact(Order::BYTES) {
                    let order = order.try_into().ok().and_then(Order::parse);
                    match order.ok_or(io::ErrorKind::InvalidData)? {
                        Order::Signal => {
                            *begun_ns = monotonic_ns();
                            kernel_host.fault(Fault::ObjectGoesBad { adapter: 0, usage: DRIVER_USAGE });
                        }
                        Order::Raw(count) => {
                            let bytes = vec![0x5A; count.into()];
                            *begun_ns = monotonic_ns();
                            forward(&bytes)?;
                        }
                        Order::When => reply(&begun_ns.to_le_bytes())?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Discards as many bytes as the 8 bytes before them say, and replies with one byte once all have arrived.
fn discard(header: &mut Vec<u8>, remaining: &mut u64, mut bytes: &[u8], reply: Send<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        if *remaining == 0 {
            let (head, rest) = bytes.split_at((8 - header.len()).min(bytes.len()));
            header.extend_from_slice(head);
            bytes = rest;
            let Ok(length) = <[u8; 8]>::try_from(&header[..]) else { return Ok(()) };
            *remaining = u64::from_le_bytes(length);
            header.clear();
            continue;
        }
        let taken = (bytes.len() as u64).min(*remaining);
        *remaining -= taken;
        bytes = &bytes[taken as usize..];
        if *remaining == 0 {
            reply(&[1])?;
        }
    }
    Ok(())
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The peers of local processes: a socket for each service, in a folder. Their threads exit when their connections
/// close.
pub struct LocalPeers {
    sockets: Vec<PathBuf>,
    stopped: Arc<AtomicBool>,
}

impl LocalPeers {
    pub fn start(folder: &Path, kernel_host: &Arc<KernelHost>) -> anyhow::Result<LocalPeers> {
        let mut peers = LocalPeers { sockets: Vec::new(), stopped: Arc::default() };
        for service in Service::ALL {
            let path = folder.join(service.socket());
            let listener =
                UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
            peers.sockets.push(path);
            let (stopped, kernel_host) = (peers.stopped.clone(), kernel_host.clone());
            let serve = move || match service {
                Service::EchoMany => drop(echo_many(&listener, &stopped)),
                Service::Echo | Service::Sink | Service::Relay | Service::Driver => {
                    accept(service, &listener, &stopped, &kernel_host);
                }
            };
            std::thread::Builder::new().name("raw-peer".into()).spawn(serve)?;
        }
        Ok(peers)
    }
}

impl Drop for LocalPeers {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        for socket in &self.sockets {
            // Wakes the accepting thread, which then sees `stopped`.
            let _ = UnixStream::connect(socket);
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Serves connections, or pairs of them, in a thread each. The first of a pair is the one that sends.
fn accept(service: Service, listener: &UnixListener, stopped: &AtomicBool, kernel_host: &Arc<KernelHost>) {
    let next = || {
        let (stream, _) = listener.accept().ok()?;
        (!stopped.load(Ordering::Acquire)).then_some(stream)
    };
    while let Some(stream) = next() {
        let other = match service {
            Service::Echo | Service::EchoMany | Service::Sink => None,
            Service::Relay | Service::Driver => match next() {
                Some(other) => Some(other),
                None => return,
            },
        };
        let peer = Peer::new(service, kernel_host);
        // A closed connection is no error here.
        std::thread::spawn(move || drop(serve(peer, &stream, other.as_ref())));
    }
}

/// Echoes on all connections, from one epoll loop.
fn echo_many(listener: &UnixListener, stopped: &AtomicBool) -> io::Result<()> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&ready, listener, epoll::EventData::new_u64(u64::MAX), epoll::EventFlags::IN)?;
    let mut streams: Vec<Option<UnixStream>> = Vec::new();
    let (mut events, mut buffer) = (Vec::with_capacity(64), vec![0; BUFFER_BYTES]);
    loop {
        events.clear();
        epoll::wait(&ready, spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == u64::MAX {
                let (stream, _) = listener.accept()?;
                if stopped.load(Ordering::Acquire) {
                    return Ok(());
                }
                let key = epoll::EventData::new_u64(streams.len() as u64);
                epoll::add(&ready, &stream, key, epoll::EventFlags::IN)?;
                streams.push(Some(stream));
                continue;
            }
            let place = &mut streams[event.data.u64() as usize];
            let Some(mut stream) = place.as_ref() else { continue };
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                *place = None;
            } else {
                stream.write_all(&buffer[..count])?;
            }
        }
    }
}

fn serve(mut peer: Peer, mut stream: &UnixStream, other: Option<&UnixStream>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let (mut writer, mut forward) = (stream, other);
        peer.received(&buffer[..count], &mut |bytes| writer.write_all(bytes), &mut |bytes| {
            forward.as_mut().map_or(Ok(()), |other| other.write_all(bytes))
        })?;
    }
}

/// The peers of a VM's processes, on ports of its vsock device.
#[derive(Debug, Default)]
pub struct VmPeers(Arc<Mutex<Vec<Connection>>>);

impl PortServices for VmPeers {
    fn accept(
        &self,
        kernel_host: &Arc<KernelHost>,
        port: u32,
        connection: &Connection,
    ) -> Option<Box<dyn Endpoint>> {
        let service = Service::ALL.into_iter().find(|service| service.port() == port)?;
        let endpoint = VmPeer {
            peer: Peer::new(service, kernel_host),
            connection: connection.clone(),
            all: self.0.clone(),
        };
        endpoint.all.lock().unwrap_or_else(PoisonError::into_inner).push(connection.clone());
        Some(Box::new(endpoint))
    }
}

/// One connection of a VM.
struct VmPeer {
    peer: Peer,
    connection: Connection,
    all: Arc<Mutex<Vec<Connection>>>,
}

impl Endpoint for VmPeer {
    fn received(&mut self, bytes: &[u8]) {
        let VmPeer { peer, connection, all } = self;
        let mut forward = |bytes: &[u8]| {
            let is_other = |other: &&Connection| {
                other.local_port() == connection.local_port() && other.peer_port() != connection.peer_port()
            };
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let others: Vec<Connection> = all.iter().filter(is_other).cloned().collect();
            drop(all);
            for other in others {
                // A peer that has disconnected is ignored.
                let _ = other.send(bytes);
            }
            Ok(())
        };
        let mut reply = |bytes: &[u8]| connection.send(bytes).map_err(io::Error::other);
        if peer.received(bytes, &mut reply, &mut forward).is_err() {
            connection.reset();
        }
    }

    fn peer_finished(&mut self) {
        self.connection.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.peer_port() != self.connection.peer_port());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let kernel_host = KernelHost::new(&daemon::Options::default()).unwrap();
        let peers = LocalPeers::start(folder.path(), &kernel_host).unwrap();
        let connect = |service: Service| UnixStream::connect(folder.path().join(service.socket())).unwrap();
        let mut buffer = [0; 3];
        let mut echo = connect(Service::Echo);
        echo.write_all(b"abc").unwrap();
        echo.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, *b"abc");
        let mut echoes = [(); 2].map(|()| connect(Service::EchoMany));
        for echo in &mut echoes {
            echo.write_all(b"def").unwrap();
        }
        for echo in &mut echoes {
            echo.read_exact(&mut buffer).unwrap();
            assert_eq!(buffer, *b"def");
        }
        let mut sink = connect(Service::Sink);
        for _ in 0..2 {
            sink.write_all(&5u64.to_le_bytes()).unwrap();
            sink.write_all(b"abcde").unwrap();
            sink.read_exact(&mut buffer[..1]).unwrap();
        }
        let (mut from, mut to) = (connect(Service::Relay), connect(Service::Relay));
        from.write_all(b"xyz").unwrap();
        to.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, *b"xyz");
        let (mut from, mut to) = (connect(Service::Driver), connect(Service::Driver));
        for order in [Order::Raw(3), Order::Signal, Order::When] {
            from.write_all(&order.bytes()).unwrap();
        }
        to.read_exact(&mut buffer).unwrap();
        let mut timestamp = [0; 8];
        from.read_exact(&mut timestamp).unwrap();
        assert_ne!(u64::from_le_bytes(timestamp), 0);
        drop(peers);
    }
}
