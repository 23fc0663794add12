//! A port without an operating system: bytes in, bytes out, one thread, the same run each time.
//!
//! ```text
//!                      take_outbound                                 receive
//!   Session ─▶ call ─▶ [frames] ────▶ the simulator's link, host ──▶ [bytes] ─▶ PendingCalls ─▶ wakers, events
//!      │                                                                          ▲
//!      └─ grow_memory ─▶ growth_wanted ──▶ grant_growth, refuse_growth     lose ──┘
//! ```
//!
//! The simulator decides the order of everything: it takes the frames that the guest has written, delivers the host's
//! bytes in pieces of any size, and polls the session's futures in any order. It may use real wakers or
//! [`poll_once`](crate::poll_once). A future that is polled too often or too early stays pending.
//!
//! No borrow of the port's state outlasts one call of a port function, so a waker or the simulator may use the port in
//! between.

mod event;
mod memory;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use d3dkmt::{Call, EventId, Handle, NtStatus};
use proto::channel::Welcome;
use proto::frame::{append, append_call};
use proto::session_frames::SessionFrames;

pub use event::SimulatedEvent;
pub use memory::{SimulatedLocation, SimulatedMemory};

use crate::pending_calls::{Answer, Delivery, Exchange, PendingCalls, TRANSPORT_LOST};
use crate::port::{Port, RegisteredEvent, SendError, Wakes};
use crate::{hello, welcome_from};

/// A parked task: the waker of its last poll.
type Parker = Rc<RefCell<Option<Waker>>>;

/// The state of a request to the broker for more fence memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// No request is pending.
    Idle,
    /// An operation asks for `slots_wanted` slots; other operations that need slots wait for it.
    Asked { slots_wanted: u32 },
    /// Answered; the operation that asked has not been polled yet.
    Answered { granted: bool },
}

/// A client process's connection to a simulated host.
#[derive(Debug)]
pub struct SimulatedPort {
    pending_calls: RefCell<PendingCalls<SimulatedEvent, Parker>>,
    inbound: RefCell<SessionFrames>,
    outbound: RefCell<Vec<u8>>,
    messages_sent: Cell<u64>,
    memory: Rc<SimulatedMemory>,
    growth: Cell<Growth>,
    /// Tasks that wait for the Welcome or for memory: few, and all woken at once.
    waiting: RefCell<Vec<Waker>>,
    /// The host's first frame has not arrived yet.
    greeting: Cell<bool>,
    lines: RefCell<Vec<String>>,
}

impl SimulatedPort {
    /// A port at the start of its stream. Its fence memory is shared with the simulated host.
    pub fn new(memory: Rc<SimulatedMemory>) -> SimulatedPort {
        SimulatedPort {
            pending_calls: RefCell::default(),
            inbound: RefCell::default(),
            outbound: RefCell::default(),
            messages_sent: Cell::new(0),
            memory,
            growth: Cell::new(Growth::Idle),
            waiting: RefCell::default(),
            greeting: Cell::new(false),
            lines: RefCell::default(),
        }
    }

    /// Sends Hello and waits for the Welcome, as an attaching process does. A simulation that begins after the greeting
    /// may skip this and make its [`Session`](crate::Session) with a Welcome of its own.
    pub async fn greet(&self, token: Vec<u8>) -> Result<Welcome, String> {
        append(&hello(token, 0, 0, false), &mut self.outbound.borrow_mut());
        self.greeting.set(true);
        let welcome = poll_fn(|context| {
            let mut inbound = self.inbound.borrow_mut();
            match inbound.next_frame() {
                Ok(Some(frame)) => Poll::Ready(welcome_from(frame)),
                Ok(None) if self.is_lost() => Poll::Ready(Err("it closed the stream".to_owned())),
                Ok(None) => self.wait_here(context),
                Err(error) => Poll::Ready(Err(error.to_string())),
            }
        });
        let welcome = welcome.await;
        self.greeting.set(false);
        match &welcome {
            // Dispatch the bytes that arrived right after it.
            Ok(_) => self.receive(&[]),
            Err(_) => self.lose(),
        }
        welcome
    }

    /// Receives bytes from the host, in pieces of any size. Frames before an invalid frame or a Goodbye are delivered
    /// first; then the transport is lost. Ignored once it is lost.
    pub fn receive(&self, bytes: &[u8]) {
        if self.is_lost() {
            return;
        }
        self.inbound.borrow_mut().stream().extend(bytes);
        if self.greeting.get() {
            self.wake_waiting();
            return;
        }
        let mut deliveries = Vec::new();
        let dispatched = self.pending_calls.borrow_mut().dispatch(
            &mut self.inbound.borrow_mut(),
            |_| true,
            &mut deliveries,
        );
        deliveries.into_iter().for_each(perform);
        if let Err(reason) = dispatched {
            self.lose();
            self.log(format_args!("{reason}; every call now answers {TRANSPORT_LOST}"));
        }
    }

    /// The stream is lost: everything pending completes with [`TRANSPORT_LOST`], and every armed event is set. Outbound
    /// bytes that were not taken remain, because they were written before.
    pub fn lose(&self) {
        let mut deliveries = Vec::new();
        self.pending_calls.borrow_mut().lose(&mut deliveries);
        deliveries.into_iter().for_each(perform);
        self.wake_waiting();
    }

    /// The frames that the guest has written since the last call: each a [`ToHost`](proto::channel::ToHost) with its length.
    pub fn take_outbound(&self) -> Vec<u8> {
        self.outbound.take()
    }

    /// Frames sent since the Hello.
    pub fn messages_sent(&self) -> u64 {
        self.messages_sent.get()
    }

    /// Answers and wakes that are expected and have not arrived, armed events included.
    pub fn pending(&self) -> usize {
        self.pending_calls.borrow().pending()
    }

    /// The fence memory of this process.
    pub fn memory(&self) -> &Rc<SimulatedMemory> {
        &self.memory
    }

    /// Slots that an operation has asked the broker for, until the request is granted or refused.
    pub fn growth_wanted(&self) -> Option<u32> {
        match self.growth.get() {
            Growth::Asked { slots_wanted } => Some(slots_wanted),
            Growth::Idle | Growth::Answered { .. } => None,
        }
    }

    /// The broker grants the request: the host must know the new slots already. Panics if no request is pending.
    pub fn grant_growth(&self) {
        let slots_wanted = self.growth_wanted().expect("fence memory is asked for");
        self.memory.add_slots(slots_wanted);
        self.answer_growth(true);
    }

    /// The broker has no more memory for this process. Panics if no request is pending.
    pub fn refuse_growth(&self) {
        assert!(self.growth_wanted().is_some(), "fence memory is asked for");
        self.answer_growth(false);
    }

    /// The lines that the library has logged for the user of the program.
    pub fn take_lines(&self) -> Vec<String> {
        self.lines.take()
    }

    fn answer_growth(&self, granted: bool) {
        self.growth.set(Growth::Answered { granted });
        self.wake_waiting();
    }

    fn wait_here<T>(&self, context: &Context<'_>) -> Poll<T> {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn wake_waiting(&self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    fn send(&self, request: u64, call: &Call) -> Result<(), SendError> {
        if self.is_lost() {
            return Err(SendError::Lost);
        }
        append_call(request, call, &mut self.outbound.borrow_mut())?;
        self.messages_sent.set(self.messages_sent.get() + 1);
        Ok(())
    }

    async fn exchange(
        &self,
        call: &Call,
        begin: impl FnOnce(&mut PendingCalls<SimulatedEvent, Parker>, Parker) -> Option<Exchange>,
    ) -> Answer {
        let parker = Parker::default();
        let begun = begin(&mut self.pending_calls.borrow_mut(), parker.clone());
        let Some(mut exchange) = begun else { return Answer::refused(TRANSPORT_LOST) };
        if let Err(error) = self.send(exchange.request(), call) {
            self.pending_calls.borrow_mut().withdraw(&exchange);
            return Answer::refused(error.into());
        }
        let collected = poll_fn(|context| match self.pending_calls.borrow_mut().collect(&mut exchange) {
            Some(answer) => Poll::Ready(answer),
            None => {
                *parker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        });
        collected.await
    }
}

fn perform(delivery: Delivery<SimulatedEvent, Parker>) {
    match delivery {
        Delivery::Set(event) => event.set(),
        Delivery::Wake(parker) => {
            let waker = parker.borrow_mut().take();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Port for SimulatedPort {
    type Event = SimulatedEvent;
    type CallerEvent = SimulatedEvent;
    type Location = SimulatedLocation;

    async fn call(&self, call: &Call, wakes: &Wakes<SimulatedEvent>) -> Answer {
        self.exchange(call, |pending_calls, parker| pending_calls.begin_call(wakes, parker)).await
    }

    async fn call_and_wait(&self, call: &Call, event: EventId) -> Answer {
        self.exchange(call, |pending_calls, parker| pending_calls.begin_wait(event, parker)).await
    }

    async fn post(&self, call: &Call, wakes: &Wakes<SimulatedEvent>) -> Result<(), SendError> {
        if !self.pending_calls.borrow_mut().begin_post(wakes) {
            return Err(SendError::Lost);
        }
        let sent = self.send(0, call);
        if let (Err(_), Some(event)) = (sent, wakes.name()) {
            self.forget_wake(event);
        }
        sent
    }

    fn forget_wake(&self, event: EventId) {
        self.pending_calls.borrow_mut().forget_wake(event);
    }

    fn contexts_ended(&self, ended: &[Handle]) {
        self.pending_calls.borrow_mut().contexts_ended(ended);
    }

    fn is_lost(&self) -> bool {
        self.pending_calls.borrow().is_lost()
    }

    fn locate(&self, slot: u32) -> Option<SimulatedLocation> {
        SimulatedMemory::locate(&self.memory, slot)
    }

    fn slots(&self) -> u32 {
        self.memory.slots()
    }

    async fn grow_memory(&self, slots_before: u32, slots_wanted: u32) -> Result<(), NtStatus> {
        let mut asks = false;
        let grown = poll_fn(|context| match self.growth.get() {
            Growth::Answered { granted } if asks => {
                self.growth.set(Growth::Idle);
                // The operations that waited for this one run next.
                self.wake_waiting();
                Poll::Ready(if granted { Ok(()) } else { Err(NtStatus::NO_MEMORY) })
            }
            _ if self.is_lost() => {
                self.growth.set(Growth::Idle);
                Poll::Ready(Ok(()))
            }
            Growth::Idle if self.memory.slots() != slots_before => Poll::Ready(Ok(())),
            Growth::Idle => {
                asks = true;
                self.growth.set(Growth::Asked { slots_wanted });
                self.wait_here(context)
            }
            Growth::Asked { .. } | Growth::Answered { .. } => self.wait_here(context),
        });
        grown.await
    }

    fn log(&self, line: std::fmt::Arguments<'_>) {
        self.lines.borrow_mut().push(line.to_string());
    }
}
