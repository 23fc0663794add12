//! The pending calls: which caller waits for which answer or wake.
//!
//! ```text
//!             begin                   dispatch                     collect
//!  (none) ─────────────▶ expected ──────────────▶ arrived ──────────────────▶ (none)
//!                            └── transport lost ──▶ arrived(DEVICE_REMOVED)
//! ```
//!
//! A call is one [`Exchange`]. A blocking wait goes through two such rounds, with one name each:
//!
//! ```text
//!   begin_wait ─▶ its answer ── refused, or satisfied ──▶ over: that answer, the wake forgotten
//!                     └── registered ─▶ its wake ───────▶ over: satisfied, with the wake's status
//! ```
//!
//! A plain value: it never blocks, writes or wakes. It returns as [`Delivery`] what the caller must do after it
//! releases the lock. `E` is an event that outlives the call; `B` is the parker of a waiting thread or task.

use std::collections::BTreeMap;

use d3dkmt::{AcquireOutcome, EventId, Handle, Handles, NtStatus, Reply, WaitOutcome};
use proto::channel::ToGuest;
use proto::convert::{FromHost, from_host};
use proto::frame::decode;
use proto::session_frames::SessionFrames;

use crate::host_times::{HostTimes, TimedMessage, Woken};
use crate::port::Wakes;

/// The status of every call once the transport is lost.
pub const TRANSPORT_LOST: NtStatus = NtStatus::DEVICE_REMOVED;

/// What to do after the lock around the pending calls is released.
#[derive(Debug)]
pub enum Delivery<E, B> {
    /// Set the event.
    Set(E),
    /// Wake the waiter with this parker, so that it checks the pending calls.
    Wake(B),
}

/// The answer to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: NtStatus,
    pub reply: Reply,
}

impl Answer {
    /// The answer of a call that failed.
    pub fn refused(status: NtStatus) -> Answer {
        Answer { status, reply: Reply::None }
    }
}

/// A call in progress: what its caller waits for next.
#[derive(Debug)]
pub struct Exchange {
    request: u64,
    awaited: Awaited,
}

#[derive(Debug)]
enum Awaited {
    /// The answer completes it; a refusal disarms the armed name.
    Answer { armed: Option<EventId> },
    /// The answer says whether a wake of this name will follow.
    AnswerBeforeWake(EventId),
    /// The wake of this name completes it.
    Wake(EventId),
}

impl Exchange {
    /// The request's number in its frame.
    pub fn request(&self) -> u64 {
        self.request
    }
}

/// A request whose answer is awaited.
#[derive(Debug)]
struct ExpectedAnswer<B> {
    arrived: Option<Answer>,
    parker: B,
}

/// What a wake of one name does.
#[derive(Debug)]
enum ExpectedWake<E, B> {
    /// Completes a blocking wait.
    Waiter { arrived: Option<NtStatus>, parker: B },
    /// Sets an event once and is then removed.
    EventOnce(E),
    /// The same, for an event in the queues of these contexts.
    EventQueued(E, Handles),
    /// Sets an event each time (CPU_NOTIFICATION).
    EventEachTime(E),
}

/// The calls and wakes that await a message of the host.
#[derive(Debug)]
pub struct PendingCalls<E, B> {
    // BTreeMap: there are few entries, and each lookup follows a wake with a cold cache, where hashing costs more.
    answers: BTreeMap<u64, ExpectedAnswer<B>>,
    wakes: BTreeMap<EventId, ExpectedWake<E, B>>,
    armed: usize,
    lost: bool,
    last_request: u64,
    /// Answers and wakes that were read.
    received: u64,
    /// One-way calls that the host has acknowledged, and the waiters for a higher count.
    applied: u64,
    awaits_applied: Vec<B>,
    host_times: HostTimes,
}

impl<E, B> Default for PendingCalls<E, B> {
    fn default() -> PendingCalls<E, B> {
        let (answers, wakes) = (BTreeMap::new(), BTreeMap::new());
        let awaits_applied = Vec::new();
        PendingCalls {
            answers,
            wakes,
            armed: 0,
            lost: false,
            last_request: 0,
            received: 0,
            applied: 0,
            awaits_applied,
            host_times: HostTimes::default(),
        }
    }
}

impl<E: Clone, B: Clone> PendingCalls<E, B> {
    /// Begins a call: expects its answer and arms its wakes. `None` if the transport is lost.
    pub fn begin_call(&mut self, wakes: &Wakes<E>, parker: B) -> Option<Exchange> {
        let request = self.expect_answer(parker)?;
        self.arm(wakes);
        Some(Exchange { request, awaited: Awaited::Answer { armed: wakes.name() } })
    }

    /// Begins a call that may register a wait: expects its answer and the wake of this name. `None` if the transport is
    /// lost.
    pub fn begin_wait(&mut self, event: EventId, parker: B) -> Option<Exchange> {
        let request = self.expect_answer(parker.clone())?;
        self.wakes.insert(event, ExpectedWake::Waiter { arrived: None, parker });
        Some(Exchange { request, awaited: Awaited::AnswerBeforeWake(event) })
    }

    /// Arms the wakes of a call that has no answer; false if the transport is lost.
    pub fn begin_post(&mut self, wakes: &Wakes<E>) -> bool {
        if !self.lost {
            self.arm(wakes);
        }
        !self.lost
    }

    fn expect_answer(&mut self, parker: B) -> Option<u64> {
        if self.lost {
            return None;
        }
        // Numbers begin at 1, because request 0 has no answer.
        self.last_request += 1;
        self.answers.insert(self.last_request, ExpectedAnswer { arrived: None, parker });
        Some(self.last_request)
    }

    fn arm(&mut self, wakes: &Wakes<E>) {
        let (name, wake) = match wakes {
            Wakes::None => return,
            Wakes::Once(name, target) => (*name, ExpectedWake::EventOnce(target.clone())),
            Wakes::Queued(name, target, contexts) => {
                (*name, ExpectedWake::EventQueued(target.clone(), contexts.clone()))
            }
            Wakes::EachTime(name, target) => (*name, ExpectedWake::EventEachTime(target.clone())),
        };
        self.wakes.insert(name, wake);
        self.armed += 1;
    }

    /// Forgets a wake: its call was refused, its object destroyed, or its wait satisfied at once.
    pub fn forget_wake(&mut self, event: EventId) {
        match self.wakes.remove(&event) {
            Some(
                ExpectedWake::EventOnce(_) | ExpectedWake::EventQueued(..) | ExpectedWake::EventEachTime(_),
            ) => self.armed -= 1,
            Some(ExpectedWake::Waiter { .. }) | None => {}
        }
    }

    /// Forgets the events in the queues of these contexts, and of contexts that ended before. What a context had reached
    /// was read before the answer to its destruction; the host drops the rest.
    pub fn contexts_ended(&mut self, ended: &[Handle]) {
        let before = self.wakes.len();
        self.wakes.retain(|_, wake| match wake {
            ExpectedWake::EventQueued(_, contexts) => {
                contexts.retain(|context| !ended.contains(context));
                !contexts.is_empty()
            }
            ExpectedWake::Waiter { .. } | ExpectedWake::EventOnce(_) | ExpectedWake::EventEachTime(_) => true,
        });
        self.armed -= before - self.wakes.len();
    }

    /// Forgets a call that was never sent.
    pub fn withdraw(&mut self, exchange: &Exchange) {
        self.answers.remove(&exchange.request);
        match exchange.awaited {
            Awaited::Answer { armed: None } => {}
            Awaited::Answer { armed: Some(event) }
            | Awaited::AnswerBeforeWake(event)
            | Awaited::Wake(event) => self.forget_wake(event),
        }
    }

    /// The outcome of the call, once everything that it waits for has arrived.
    pub fn collect(&mut self, exchange: &mut Exchange) -> Option<Answer> {
        match exchange.awaited {
            Awaited::Answer { armed } => {
                let answer = self.collect_answer(exchange.request)?;
                if let Some(event) = armed.filter(|_| !answer.status.is_success()) {
                    self.forget_wake(event);
                }
                Some(answer)
            }
            Awaited::AnswerBeforeWake(event) => {
                let answer = self.collect_answer(exchange.request)?;
                if !answer.status.is_success() || !is_registered(&answer.reply) {
                    self.forget_wake(event);
                    return Some(answer);
                }
                // The wake may have arrived already.
                exchange.awaited = Awaited::Wake(event);
                self.collect_wake(event)
            }
            Awaited::Wake(event) => self.collect_wake(event),
        }
    }

    fn collect_answer(&mut self, request: u64) -> Option<Answer> {
        let answer = self.answers.get_mut(&request).and_then(|expected| expected.arrived.take())?;
        self.answers.remove(&request);
        Some(answer)
    }

    fn collect_wake(&mut self, event: EventId) -> Option<Answer> {
        let status = match self.wakes.get(&event) {
            Some(ExpectedWake::Waiter { arrived: Some(status), .. }) => *status,
            Some(_) => return None,
            // Never expected, or the transport was lost before.
            None => TRANSPORT_LOST,
        };
        self.wakes.remove(&event);
        Some(Answer { status, reply: Reply::Wait(WaitOutcome::Satisfied) })
    }

    /// Delivers every complete frame to the call or wait that expects it; ignores a name without a waiter (EVT-027).
    /// Wakes the parkers that are `asleep`: the other waiters check the pending calls anyway. The error says why
    /// nothing more can be read.
    pub fn dispatch(
        &mut self,
        frames: &mut SessionFrames,
        asleep: impl Fn(&B) -> bool,
        deliveries: &mut Vec<Delivery<E, B>>,
    ) -> Result<(), String> {
        while let Some(frame) = frames.next_frame().map_err(malformed)? {
            match read_message(frame)? {
                FromHost::Answer { request, status, reply } => {
                    self.received += 1;
                    self.host_times.record(None);
                    if let Some(expected) = self.answers.get_mut(&request) {
                        expected.arrived = Some(Answer { status, reply });
                        wake_parker(&expected.parker, &asleep, deliveries);
                    }
                }
                FromHost::Wake { event, status } => {
                    self.received += 1;
                    self.wake(event, status, &asleep, deliveries);
                }
                // The process chose this number, so it names no wake of this table (EVT-022).
                FromHost::GuestEvent { .. } => {
                    self.received += 1;
                    self.host_times.record(None);
                }
                FromHost::Applied(calls) => {
                    self.applied = self.applied.max(calls);
                    self.awaits_applied.iter().for_each(|parker| wake_parker(parker, &asleep, deliveries));
                }
                FromHost::HostTime(nanos) => self.host_times.set(nanos),
                FromHost::InRing if frames.return_to_ring() => {}
                FromHost::InRing => return Err("the host returned to a ring that it had not left".to_owned()),
                FromHost::Goodbye(reason) => return Err(format!("the host closed the session: {reason}")),
                FromHost::Welcome(_) => return Err("the host sent a second Welcome".to_owned()),
            }
        }
        Ok(())
    }

    fn wake(
        &mut self,
        event: EventId,
        status: NtStatus,
        asleep: &impl Fn(&B) -> bool,
        deliveries: &mut Vec<Delivery<E, B>>,
    ) {
        let woken = match self.wakes.get_mut(&event) {
            Some(ExpectedWake::Waiter { arrived, parker }) => {
                *arrived = Some(status);
                wake_parker(parker, asleep, deliveries);
                Some(Woken::Waiter(event))
            }
            Some(ExpectedWake::EventOnce(target) | ExpectedWake::EventQueued(target, _)) => {
                deliveries.push(Delivery::Set(target.clone()));
                self.forget_wake(event);
                Some(Woken::Event(event))
            }
            Some(ExpectedWake::EventEachTime(target)) => {
                deliveries.push(Delivery::Set(target.clone()));
                Some(Woken::Event(event))
            }
            None => None,
        };
        self.host_times.record(woken);
    }

    /// True if the host has made `calls` one-way calls, or never will. Otherwise `parker` is woken when the host
    /// reports more.
    pub fn await_applied(&mut self, calls: u64, parker: &B, is_same: impl Fn(&B, &B) -> bool) -> bool {
        let is_over = self.lost || self.applied >= calls;
        let known = self.awaits_applied.iter().position(|other| is_same(other, parker));
        match (is_over, known) {
            (true, Some(at)) => drop(self.awaits_applied.swap_remove(at)),
            (false, None) => self.awaits_applied.push(parker.clone()),
            (true, None) | (false, Some(_)) => {}
        }
        is_over
    }

    /// The session is resumed over another stream, whose host has made `applied` one-way calls.
    pub fn resumed(&mut self, applied: u64) {
        self.applied = applied;
    }

    /// The stream is lost: every pending call and wait completes, and every armed event is returned to be set. True the
    /// first time.
    pub fn lose(&mut self, deliveries: &mut Vec<Delivery<E, B>>) -> bool {
        if std::mem::replace(&mut self.lost, true) {
            return false;
        }
        for expected in self.answers.values_mut() {
            expected.arrived.get_or_insert_with(|| Answer::refused(TRANSPORT_LOST));
            deliveries.push(Delivery::Wake(expected.parker.clone()));
        }
        deliveries.extend(self.awaits_applied.drain(..).map(Delivery::Wake));
        self.wakes.retain(|_, wake| match wake {
            ExpectedWake::Waiter { arrived, parker } => {
                arrived.get_or_insert(TRANSPORT_LOST);
                deliveries.push(Delivery::Wake(parker.clone()));
                true
            }
            ExpectedWake::EventOnce(target)
            | ExpectedWake::EventQueued(target, _)
            | ExpectedWake::EventEachTime(target) => {
                deliveries.push(Delivery::Set(target.clone()));
                false
            }
        });
        self.armed = 0;
        true
    }
}

impl<E, B> PendingCalls<E, B> {
    /// The stream is lost; nothing more will arrive.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Answers and wakes that were read so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The timed messages since the last call of this function.
    pub fn take_timed(&mut self) -> Vec<TimedMessage> {
        self.host_times.take()
    }

    /// One-way calls that the host has acknowledged.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Wakes that set events: a thread must read the stream for them even when no caller waits.
    pub fn armed(&self) -> usize {
        self.armed
    }

    /// Answers and wakes that are expected.
    pub fn pending(&self) -> usize {
        self.answers.len() + self.wakes.len()
    }
}

/// A wake of the wait's name will follow.
fn is_registered(reply: &Reply) -> bool {
    match reply {
        Reply::Wait(outcome) => *outcome == WaitOutcome::Registered,
        Reply::KeyedMutexAcquire { outcome, .. } => *outcome == AcquireOutcome::Registered,
        _ => false,
    }
}

fn wake_parker<E, B: Clone>(parker: &B, asleep: &impl Fn(&B) -> bool, deliveries: &mut Vec<Delivery<E, B>>) {
    if asleep(parker) {
        deliveries.push(Delivery::Wake(parker.clone()));
    }
}

fn malformed(error: impl std::fmt::Display) -> String {
    format!("the host sent a frame that cannot be decoded: {error}")
}

fn read_message(frame: &[u8]) -> Result<FromHost, String> {
    let message: ToGuest = decode(frame).map_err(malformed)?;
    from_host(message).map_err(malformed)
}
