//! A device to try a guest against: `echo SOCKET CID GUEST_PORT`.
//!
//! The guest finds on CID 2: port 1 counts bytes and tells the count at the end, port 3 echoes, port 4 sends 64 MiB.
//! A connection to port 5 makes the host connect to GUEST_PORT and echo there.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vsock_device::{
    CloseReason, ConnectRequest, Connection, Device, DeviceConfig, Endpoint, SendError, Services,
};

struct Echo(Arc<OnceLock<Connection>>);

impl Endpoint for Echo {
    fn received(&mut self, bytes: &[u8]) {
        let Some(connection) = self.0.get() else { return };
        if let Err(error) = connection.send(bytes) {
            eprintln!("echo: {error}");
            connection.reset();
        }
    }

    fn connected(&mut self) {
        eprintln!("the guest accepted");
    }

    fn peer_finished(&mut self) {
        self.0.get().inspect(|connection| connection.finish());
    }

    fn closed(&mut self, reason: CloseReason) {
        if reason != CloseReason::Finished {
            eprintln!("echo closed: {reason:?}");
        }
    }
}

struct Count(Connection, u64);

impl Endpoint for Count {
    fn received(&mut self, bytes: &[u8]) {
        self.1 += bytes.len() as u64;
    }

    fn peer_finished(&mut self) {
        let _ = self.0.send(&self.1.to_le_bytes());
        self.0.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {}
}

struct Source(Connection, usize);

impl Source {
    fn pour(&mut self) {
        let chunk = [0x5a; 65536];
        while self.1 > 0 {
            match self.0.send(&chunk) {
                Ok(()) => self.1 -= chunk.len(),
                Err(SendError::Full) => return,
                Err(SendError::Closed) => break,
            }
        }
        self.0.finish();
    }
}

impl Endpoint for Source {
    fn received(&mut self, _bytes: &[u8]) {
        self.pour();
    }

    fn writable(&mut self) {
        self.pour();
    }

    fn closed(&mut self, _reason: CloseReason) {}
}

struct Ports(Sender<()>);

impl Services for Ports {
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>> {
        match request.local_port {
            1 => Some(Box::new(Count(connection, 0))),
            3 => Some(Box::new(Echo(Arc::new(OnceLock::from(connection))))),
            4 => Some(Box::new(Source(connection, 64 << 20))),
            5 => {
                let _ = self.0.send(());
                Some(Box::new(Count(connection, 0)))
            }
            _ => None,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, cid, guest_port] = &arguments[..] else {
        return Err("usage: echo SOCKET CID GUEST_PORT".into());
    };
    let guest_port = guest_port.parse()?;
    let (waker, wakes) = channel();
    let config = DeviceConfig { guest_cid: cid.parse()?, socket: socket.into(), connections_copy: None };
    let device = Device::serve(config, Arc::new(Ports(waker)))?;
    eprintln!("serving on {socket}");
    loop {
        match wakes.recv_timeout(Duration::from_secs(5)) {
            Ok(()) => {
                let connection = Arc::new(OnceLock::new());
                let _ = connection.set(device.connect(guest_port, Box::new(Echo(Arc::clone(&connection))))?);
            }
            Err(_) => eprintln!("{:?}", device.stats()),
        }
    }
}
