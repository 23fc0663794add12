//! A process of the link backend: a session of the client core, its threads as futures, its stream as bytes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use client::simulated::{SimulatedEvent, SimulatedMemory, SimulatedPort};
use client::{Session, poll_once};
use d3dkmt::{Call, Handle};
use dxgkrnl::{HostEvent, Nanos, ProcessId};
use proto::channel::{ToGuest, ToHost, Welcome};
use proto::convert::{answer_to_frame, call_from_body, wake_to_frame};
use proto::frame::{self, FrameBuffer};

use crate::fence_slots::{FenceCall, FenceSlots};
use crate::program::Thread;
use crate::world::Answer;

use super::Direction;
use super::link_calls::perform;

type Operation = Pin<Box<dyn Future<Output = Answer>>>;

/// Bytes in transit in one direction, each piece with its arrival time.
#[derive(Default)]
struct Stream(VecDeque<(Nanos, Vec<u8>)>);

impl Stream {
    fn push(&mut self, due: Nanos, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.0.push_back((due, bytes));
        }
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.0.front().is_some_and(|(due, _)| *due <= now)
    }

    /// Takes the first piece, or the head of it.
    fn take(&mut self, size: impl FnOnce(usize) -> usize) -> Vec<u8> {
        let Some((_, bytes)) = self.0.front_mut() else { return Vec::new() };
        let rest = bytes.split_off(size(bytes.len()));
        let head = std::mem::replace(bytes, rest);
        if bytes.is_empty() {
            self.0.pop_front();
        }
        head
    }
}

/// A client process.
pub(super) struct ClientProcess {
    session: Rc<Session<SimulatedPort>>,
    memory: Rc<SimulatedMemory>,
    slots: FenceSlots,
    threads: Vec<(Thread, FenceCall, Operation)>,
    events: Vec<(u32, SimulatedEvent)>,
    to_host: Stream,
    to_guest: Stream,
    /// The host's buffer of an incomplete frame.
    frames: FrameBuffer,
    pub attached: bool,
    pub frozen: bool,
    /// Its VM is paused.
    pub paused: bool,
    pub held: bool,
    pub delay: Nanos,
    pub wakes: u64,
}

impl ClientProcess {
    pub fn new(id: ProcessId, slots: u32, status_slot: Option<u32>, async_submission: bool) -> ClientProcess {
        let memory = SimulatedMemory::new(slots);
        let version = proto::PROTOCOL_VERSION;
        let status_slot_plus_one = status_slot.map_or(0, |slot| slot + 1);
        let welcome = Welcome {
            version,
            process: id.0,
            recording: false,
            async_submission,
            rings: false,
            status_slot_plus_one,
            applied: 0,
            times: false,
        };
        ClientProcess {
            session: Rc::new(Session::new(SimulatedPort::new(memory.clone()), welcome)),
            memory,
            slots: FenceSlots::default(),
            threads: Vec::new(),
            events: Vec::new(),
            to_host: Stream::default(),
            to_guest: Stream::default(),
            frames: FrameBuffer::default(),
            attached: true,
            frozen: false,
            paused: false,
            held: false,
            delay: 0,
            wakes: 0,
        }
    }

    /// Whether it takes steps.
    fn runs(&self) -> bool {
        !self.frozen && !self.paused
    }

    pub fn store(&self, slot: u32, value: u64) {
        self.memory.store(slot, value);
    }

    /// Returns a fence value as the process reads it from its memory, which stays after its stream is lost.
    pub fn value(&self, object: Handle) -> Option<u64> {
        self.slots.of(object).and_then(|slot| self.memory.load(slot))
    }

    /// Returns the value of a slot of the process's memory.
    pub fn slot(&self, slot: u32) -> Option<u64> {
        self.memory.load(slot)
    }

    pub fn answer(&mut self, now: Nanos, answer: &dxgkrnl::Answer) {
        self.send(now, &answer_to_frame(answer.request, answer.status, &answer.reply));
    }

    pub fn wake(&mut self, now: Nanos, event: &HostEvent) {
        self.wakes += 1;
        self.send(now, &wake_to_frame(event.target, event.status));
    }

    fn send(&mut self, now: Nanos, message: &ToGuest) {
        let mut bytes = Vec::new();
        frame::append(message, &mut bytes);
        self.to_guest.push(now + self.delay, bytes);
    }

    pub fn can_arrive(&self, direction: Direction, now: Nanos) -> bool {
        match direction {
            Direction::ToHost => !self.held && self.to_host.is_due(now),
            Direction::ToGuest => !self.held && self.runs() && self.to_guest.is_due(now),
        }
    }

    /// Returns the arrival time of the next piece that is not held.
    pub fn next_arrival(&self) -> Option<Nanos> {
        let first = |stream: &Stream| stream.0.front().map(|(due, _)| *due);
        let to_guest = if self.runs() { first(&self.to_guest) } else { None };
        if self.held { None } else { first(&self.to_host).into_iter().chain(to_guest).min() }
    }

    pub fn take_piece(
        &mut self,
        direction: Direction,
        now: Nanos,
        size: impl FnOnce(usize) -> usize,
    ) -> Vec<u8> {
        debug_assert!(self.can_arrive(direction, now));
        match direction {
            Direction::ToHost => self.to_host.take(size),
            Direction::ToGuest => self.to_guest.take(size),
        }
    }

    /// Delivers bytes from the host.
    pub fn receive(&self, bytes: &[u8]) {
        self.session.port().receive(bytes);
    }

    /// Delivers bytes of this process to the host; returns the calls that are now complete.
    pub fn calls(&mut self, bytes: &[u8]) -> Vec<(u64, Call)> {
        let mut calls = Vec::new();
        self.frames.extend(bytes);
        while let Some(bytes) = self.frames.next_frame().expect("the client core writes whole frames") {
            let message: ToHost = frame::decode(bytes).expect("the client core writes messages");
            let body = message.body.expect("the client core writes bodies");
            calls.push((message.request, call_from_body(body).expect("the client core writes calls")));
        }
        self.frames.release();
        calls
    }

    pub fn lose(&mut self) {
        self.session.port().lose();
        self.to_host.0.clear();
        self.to_guest.0.clear();
        self.session.port().take_outbound();
    }

    pub fn memory_wanted(&self) -> Option<u32> {
        self.session.port().growth_wanted()
    }

    pub fn grant_memory(&self) {
        self.session.port().grant_growth();
    }

    pub fn knows_device(&self, device: Handle) -> bool {
        self.session.knows_device(device)
    }

    pub fn messages_sent(&self) -> u64 {
        self.session.port().messages_sent()
    }

    pub fn new_event(&mut self, event: u32) {
        self.events.push((event, SimulatedEvent::default()));
    }

    pub fn take_event(&mut self, event: u32) -> u64 {
        self.event(event).map_or(0, |event| event.take())
    }

    fn event(&self, event: u32) -> Option<SimulatedEvent> {
        self.events.iter().find(|(known, _)| *known == event).map(|(_, event)| event.clone())
    }

    /// Starts a call on a thread.
    pub fn begin(&mut self, thread: Thread, call: Call, event: Option<u32>) {
        let event = event.and_then(|event| self.event(event));
        let of_fence = FenceCall::new(&call);
        self.threads.push((thread, of_fence, Box::pin(perform(self.session.clone(), call, event))));
    }

    /// Polls every thread until it blocks; what they write is in transit.
    pub fn poll(&mut self, now: Nanos, answers: &mut [Option<Answer>]) {
        if !self.runs() {
            return;
        }
        self.threads.retain_mut(|(thread, of_fence, operation)| match poll_once(operation.as_mut()) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                self.slots.answered(*of_fence, &answer);
                answers[thread.index()] = Some(answer);
                false
            }
        });
        self.to_host.push(now + self.delay, self.session.port().take_outbound());
    }
}
