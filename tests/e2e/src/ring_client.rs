//! A client process that writes the rings of its session itself, whatever its stream is.

use d3dkmt::{Call, CreateContextFlags, CreatedSyncObject, Handle, NtStatus, Reply, SyncObjectFlags, calls};
use frame_ring::{KICK, MappedArea, OwnMappedArea, Receiver, Sender};
use proto::PROTOCOL_VERSION;
use proto::channel::{ToGuest, ToHost, to_host};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use proto::session_frames::SessionFrames;

use crate::wire::hello_frame;

/// The stream of a session with rings.
pub trait RingStream {
    fn send(&mut self, bytes: &[u8]);

    /// Waits until the stream or the ring has bytes. Returns those of the stream; `None` if it has ended.
    fn receive(&mut self, ring_has_bytes: impl FnMut() -> bool) -> Option<Vec<u8>>;
}

/// A session with rings.
pub struct RingClient<S> {
    pub stream: S,
    pub own: OwnMappedArea,
    pub sender: Sender<OwnMappedArea, MappedArea>,
    pub receiver: Receiver<OwnMappedArea, MappedArea>,
    pub frames: SessionFrames,
    /// Number of the last request.
    pub requests: u64,
    /// Kicks that this side has sent.
    pub kicks: u32,
}

/// A Hello that asks for rings.
pub fn hello_with_rings(token: &[u8]) -> ToHost {
    let mut hello = hello_frame(PROTOCOL_VERSION, token);
    let Some(to_host::Body::Hello(body)) = &mut hello.body else { unreachable!("it is a Hello") };
    body.rings = true;
    hello
}

impl<S: RingStream> RingClient<S> {
    /// Begins a session, of which these are the daemon's area and the process's own.
    pub fn begin(stream: S, token: &[u8], host: MappedArea, own: OwnMappedArea) -> RingClient<S> {
        let sender = Sender::new(own.clone(), host.clone());
        let receiver = Receiver::new(own.clone(), host);
        let frames = SessionFrames::new(FrameBuffer::default(), false);
        let mut client = RingClient { stream, own, sender, receiver, frames, requests: 0, kicks: 0 };
        client.send_frame(&hello_with_rings(token));
        assert!(matches!(client.read(), Some(FromHost::Welcome(welcome)) if welcome.rings));
        client.frames.begin_ring();
        client
    }

    /// Sends a frame on the stream.
    pub fn send_frame(&mut self, frame: &ToHost) {
        let mut bytes = Vec::new();
        append(frame, &mut bytes);
        self.stream.send(&bytes);
    }

    pub fn publish(&mut self, bytes: &[u8]) {
        self.sender.publish(bytes);
        if self.sender.must_kick() {
            self.kicks += 1;
            self.stream.send(KICK);
        }
    }

    /// Publishes a frame; on the stream, announced and with its end, if the ring has no room for it.
    pub fn publish_or_send(&mut self, frame: &[u8]) {
        if frame.len() < self.sender.room().unwrap() {
            return self.publish(frame);
        }
        self.publish(&[0]);
        self.stream.send(frame);
        self.send_frame(&ToHost { request: 0, body: Some(to_host::Body::InRing) });
    }

    /// The next message; `None` at the end of the stream.
    pub fn read(&mut self) -> Option<FromHost> {
        let mut has_ended = false;
        loop {
            if let Some(frame) = self.frames.next_frame().unwrap() {
                match from_host(decode::<ToGuest>(frame).unwrap()).unwrap() {
                    FromHost::InRing => assert!(self.frames.return_to_ring()),
                    message => return Some(message),
                }
                continue;
            }
            if has_ended {
                return None;
            }
            let (receiver, awaits_stream, mut is_asleep) =
                (&mut self.receiver, self.frames.awaits_stream(), false);
            let received = self.stream.receive(|| {
                if !awaits_stream && !receiver.is_empty() {
                    return true;
                }
                // From here on it waits for a kick.
                is_asleep = is_asleep || receiver.sleep();
                !awaits_stream && !is_asleep
            });
            has_ended = received.is_none();
            self.frames.stream().extend(&received.unwrap_or_default());
            self.receiver.wake();
            if let Some(ring) = self.frames.ring() {
                self.receiver.take(ring.tail(0), usize::MAX).unwrap();
            }
        }
    }

    /// The frame of the next request.
    pub fn frame(&mut self, call: &Call) -> Vec<u8> {
        self.requests += 1;
        let mut bytes = Vec::new();
        append(&call_to_frame(self.requests, call), &mut bytes);
        bytes
    }

    pub fn answer(&mut self) -> (u64, NtStatus, Reply) {
        match self.read() {
            Some(FromHost::Answer { request, status, reply }) => (request, status, reply),
            other => panic!("no answer but {other:?}"),
        }
    }

    pub fn call(&mut self, call: &Call) -> Reply {
        let bytes = self.frame(call);
        self.publish(&bytes);
        let (request, status, reply) = self.answer();
        assert_eq!((request, status), (self.requests, NtStatus::SUCCESS));
        reply
    }

    pub fn open_device(&mut self) -> Handle {
        let Reply::Adapters(adapters) = self.call(&Call::EnumAdapters { capacity: 1 }) else { panic!() };
        let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = self.call(&create) else { panic!() };
        device
    }

    pub fn create_context(&mut self, device: Handle) -> Handle {
        let Reply::Context(context) =
            self.call(&calls::create_context(device, 0, CreateContextFlags::empty()))
        else {
            panic!()
        };
        context
    }

    pub fn create_fence(&mut self, device: Handle) -> CreatedSyncObject {
        let Reply::SyncObject(fence) = self.call(&calls::create_fence(device, 0, SyncObjectFlags::empty()))
        else {
            panic!()
        };
        fence
    }

    /// The reason with which the daemon ends the session.
    pub fn goodbye(&mut self) -> String {
        while let Some(message) = self.read() {
            if let FromHost::Goodbye(reason) = message {
                return reason;
            }
        }
        panic!("the session ended without a reason");
    }
}

/// An escape whose answer is as long.
pub fn echo(adapter: Handle, bytes: usize) -> Call {
    let mut data = vec![7; bytes];
    data[..4].fill(0);
    calls::escape(adapter, Handle::NULL, data)
}
