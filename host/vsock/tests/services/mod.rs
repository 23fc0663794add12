//! A daemon that records all calls of its services and endpoints.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use vsock_device::{
    CloseReason, ConnectRequest, Connection, Credit, Device, DeviceConfig, Endpoint, GuestMemory, Services,
};

/// A call of a service or an endpoint, with the guest's port.
#[derive(Debug)]
pub enum Event {
    Accepted(Connection),
    Connected(u32),
    Received(u32, Vec<u8>),
    Idle(u32),
    Turn(u32),
    PeerFinished(u32),
    Writable(u32),
    Closed(u32, CloseReason),
    Memory(GuestMemory),
    Disconnected,
}

/// The behaviour of connections to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behavior {
    /// Records received bytes.
    Record,
    /// Records received bytes, with manual credit.
    Hoard,
    /// Echoes received bytes, and finishes when the guest does.
    Echo,
    /// Answers in `idle` with one packet for all received bytes.
    Gather,
    /// Resets its own connection from `received`.
    Abort,
    /// Resets its own connection before it is accepted.
    AbortInAccept,
    /// Panics in `received`.
    Panic,
    /// Defers received bytes: a turn for each byte, and turns without end for [`STUCK`].
    PutOff,
}

pub const RECORD: u32 = 1;
pub const HOARD: u32 = 2;
pub const ECHO: u32 = 3;
pub const GATHER: u32 = 4;
pub const ABORT: u32 = 5;
pub const ABORT_IN_ACCEPT: u32 = 6;
pub const PANIC: u32 = 7;
pub const PUT_OFF: u32 = 8;
pub const REFUSED: u32 = 99;
/// A byte of which [`PUT_OFF`] has endless turns.
pub const STUCK: u8 = 0xff;

pub struct Daemon {
    events: Mutex<Sender<Event>>,
    /// Connections to which port [`RECORD`] relays bytes, by guest port.
    pub relays: Mutex<HashMap<u32, Connection>>,
}

impl Services for Daemon {
    fn accept(&self, request: ConnectRequest, connection: Connection) -> Option<Box<dyn Endpoint>> {
        let behavior = match request.local_port {
            RECORD => Behavior::Record,
            HOARD => Behavior::Hoard,
            ECHO => Behavior::Echo,
            GATHER => Behavior::Gather,
            ABORT => Behavior::Abort,
            ABORT_IN_ACCEPT => Behavior::AbortInAccept,
            PANIC => Behavior::Panic,
            PUT_OFF => Behavior::PutOff,
            _ => return None,
        };
        if behavior == Behavior::AbortInAccept {
            connection.reset();
        }
        let relay = self.relays.lock().unwrap().get(&request.peer_port).cloned();
        let events = self.events.lock().unwrap().clone();
        events.send(Event::Accepted(connection.clone())).unwrap();
        let port = request.peer_port;
        Some(Box::new(Note { events, port, behavior, connection: Some(connection), relay, held: Vec::new() }))
    }

    fn memory_changed(&self, memory: GuestMemory) {
        self.events.lock().unwrap().send(Event::Memory(memory)).unwrap();
    }

    fn disconnected(&self) {
        self.events.lock().unwrap().send(Event::Disconnected).unwrap();
    }
}

pub struct Note {
    pub events: Sender<Event>,
    pub port: u32,
    pub behavior: Behavior,
    pub connection: Option<Connection>,
    pub relay: Option<Connection>,
    pub held: Vec<u8>,
}

impl Note {
    fn note(&self, event: Event) {
        // The test may be over.
        let _ = self.events.send(event);
    }
}

impl Endpoint for Note {
    fn connected(&mut self) {
        self.note(Event::Connected(self.port));
    }

    fn received(&mut self, bytes: &[u8]) {
        if let Some(relay) = &self.relay {
            let _ = relay.send(bytes);
            return;
        }
        match self.behavior {
            Behavior::Record | Behavior::Hoard => self.note(Event::Received(self.port, bytes.to_vec())),
            Behavior::Echo => self.connection.as_ref().unwrap().send(bytes).unwrap(),
            Behavior::PutOff | Behavior::Gather => self.held.extend(bytes),
            Behavior::Abort | Behavior::AbortInAccept => self.connection.as_ref().unwrap().reset(),
            Behavior::Panic => panic!("a bug of an endpoint, made by a test"),
        }
    }

    fn idle(&mut self) {
        if self.behavior == Behavior::Gather {
            self.connection.as_ref().unwrap().send(&std::mem::take(&mut self.held)).unwrap();
        }
        if self.behavior == Behavior::Record && self.relay.is_none() {
            self.note(Event::Idle(self.port));
        }
    }

    fn peer_finished(&mut self) {
        if self.behavior == Behavior::Echo {
            self.connection.as_ref().unwrap().finish();
        }
        self.note(Event::PeerFinished(self.port));
    }

    fn writable(&mut self) {
        self.note(Event::Writable(self.port));
    }

    fn has_backlog(&self) -> bool {
        self.behavior == Behavior::PutOff && !self.held.is_empty()
    }

    fn process_backlog(&mut self) {
        if self.held[0] != STUCK {
            self.note(Event::Turn(self.port));
            self.held.remove(0);
        }
    }

    fn closed(&mut self, reason: CloseReason) {
        self.note(Event::Closed(self.port, reason));
    }

    fn credit(&self) -> Credit {
        if self.behavior == Behavior::Hoard { Credit::Manual } else { Credit::Automatic }
    }
}

/// A device and the recorded calls of its daemon.
pub struct Rig {
    pub device: Device,
    pub daemon: Arc<Daemon>,
    pub events: Receiver<Event>,
    pub sender: Sender<Event>,
    pub socket: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_cid(front_end::CID)
    }

    pub fn with_cid(guest_cid: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rig = Self::serve(guest_cid, directory.path().join("vsock"));
        Self { _directory: Some(directory), ..rig }
    }

    /// Creates a rig with the caller's socket.
    pub fn at(socket: PathBuf) -> Self {
        Self::serve(front_end::CID, socket)
    }

    fn serve(guest_cid: u64, socket: PathBuf) -> Self {
        let (sender, events) = channel();
        let daemon =
            Arc::new(Daemon { events: Mutex::new(sender.clone()), relays: Mutex::new(HashMap::new()) });
        let config = DeviceConfig { guest_cid, socket: socket.clone(), connections_copy: None };
        let device = Device::serve(config, Arc::clone(&daemon) as Arc<dyn Services>).unwrap();
        Self { device, daemon, events, sender, socket, _directory: None }
    }

    /// Returns the next recorded call, skipping memory tables and idle calls.
    pub fn next(&self) -> Event {
        loop {
            match self.events.recv_timeout(front_end::PATIENCE).expect("nothing was recorded") {
                Event::Memory(_) | Event::Idle(_) => {}
                event => return event,
            }
        }
    }

    pub fn accepted(&self) -> Connection {
        match self.next() {
            Event::Accepted(connection) => connection,
            other => panic!("not accepted but {other:?}"),
        }
    }

    pub fn note(&self, port: u32) -> Box<Note> {
        Box::new(Note {
            events: self.sender.clone(),
            port,
            behavior: Behavior::Record,
            connection: None,
            relay: None,
            held: Vec::new(),
        })
    }

    pub fn assert_closed(&self, port: u32, reason: CloseReason) {
        match self.next() {
            Event::Closed(told_port, told_reason) => assert_eq!((told_port, told_reason), (port, reason)),
            other => panic!("not closed but {other:?}"),
        }
    }
}
