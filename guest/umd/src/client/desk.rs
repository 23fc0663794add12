//! The desk: who waits for which answer or wake, and who reads the stream.
//!
//! ```text
//!            register                 dispatch                     collect
//!  (none) ─────────────▶ expected ──────────────▶ arrived ──────────────────▶ (none)
//!                            └── transport lost ──▶ arrived(DEVICE_REMOVED)
//! ```
//!
//! A plain value behind one lock; it never blocks, writes or wakes. What must happen outside the lock
//! it hands back as [`Delivery`].

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar};

use d3dkmt::{EventId, NtStatus, Reply};
use proto::convert::FromHost;

use super::event::Event;

/// What a call answers once the transport is lost. The one place that says so.
pub const TRANSPORT_LOST: NtStatus = NtStatus::DEVICE_REMOVED;

/// Where one waiting thread sleeps while another reads the stream.
pub(super) type Bell = Arc<Condvar>;

/// What to do once the lock is left.
#[derive(Debug)]
pub(super) enum Delivery {
    Set(Arc<Event>),
    Ring(Bell),
}

impl Delivery {
    pub fn perform(self) {
        match self {
            Delivery::Set(event) => event.set(),
            Delivery::Ring(bell) => bell.notify_one(),
        }
    }
}

/// The answer to one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: NtStatus,
    pub reply: Reply,
}

impl Answer {
    pub(super) fn refused(status: NtStatus) -> Answer {
        Answer { status, reply: Reply::None }
    }
}

/// A request whose answer is awaited.
#[derive(Debug)]
struct ExpectedAnswer {
    arrived: Option<Answer>,
    bell: Bell,
}

/// What a wake of one name does.
#[derive(Debug)]
enum ExpectedWake {
    /// Ends a blocking wait.
    Thread { arrived: Option<NtStatus>, bell: Bell },
    /// Sets an event once and is forgotten.
    EventOnce(Arc<Event>),
    /// Sets an event each time (CPU_NOTIFICATION).
    EventEachTime(Arc<Event>),
}

/// Wakes the owner of a bell if it sleeps; the leader does not, and a futex call is not free.
fn ring(followers: &[Bell], bell: &Bell, deliveries: &mut Vec<Delivery>) {
    if followers.iter().any(|follower| Arc::ptr_eq(follower, bell)) {
        deliveries.push(Delivery::Ring(bell.clone()));
    }
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Desk {
    // Few at a time, and looked at cold, right after a wake: no hashing.
    answers: BTreeMap<u64, ExpectedAnswer>,
    wakes: BTreeMap<EventId, ExpectedWake>,
    /// Wakes that set events: somebody must read the stream for them though no thread waits.
    pub armed: usize,
    /// A thread reads the stream.
    pub leading: bool,
    /// Threads that wait for the leader to leave or to bring their answer.
    pub followers: Vec<Bell>,
    pub helper_started: bool,
    /// The helper's watch is on.
    pub watched: bool,
    /// The stream is gone; nothing more will arrive.
    pub lost: bool,
}

impl Desk {
    /// Expects the answer to `request`; false when the transport is lost.
    pub fn expect_answer(&mut self, request: u64, bell: Bell) -> bool {
        if !self.lost {
            self.answers.insert(request, ExpectedAnswer { arrived: None, bell });
        }
        !self.lost
    }

    /// Expects the wake that ends a blocking wait.
    pub fn expect_wake(&mut self, event: EventId, bell: Bell) {
        self.wakes.insert(event, ExpectedWake::Thread { arrived: None, bell });
    }

    /// Lets the wakes of this name set an event.
    pub fn arm(&mut self, event: EventId, target: Arc<Event>, once: bool) {
        let wake = if once { ExpectedWake::EventOnce(target) } else { ExpectedWake::EventEachTime(target) };
        self.wakes.insert(event, wake);
        self.armed += 1;
    }

    /// Forgets a wake: its call was refused, its object destroyed, or its wait satisfied at once.
    pub fn forget_wake(&mut self, event: EventId) {
        match self.wakes.remove(&event) {
            Some(ExpectedWake::EventOnce(_) | ExpectedWake::EventEachTime(_)) => self.armed -= 1,
            Some(ExpectedWake::Thread { .. }) | None => {}
        }
    }

    /// Forgets a request that never left.
    pub fn forget_answer(&mut self, request: u64) {
        self.answers.remove(&request);
    }

    /// The answer, once it is there.
    pub fn collect_answer(&mut self, request: u64) -> Option<Answer> {
        let answer = self.answers.get_mut(&request).and_then(|expected| expected.arrived.take())?;
        self.answers.remove(&request);
        Some(answer)
    }

    /// The status of the wake, once it is there.
    pub fn collect_wake(&mut self, event: EventId) -> Option<NtStatus> {
        match self.wakes.get(&event) {
            Some(ExpectedWake::Thread { arrived: Some(status), .. }) => {
                let status = *status;
                self.wakes.remove(&event);
                Some(status)
            }
            Some(_) => None,
            // Never expected, or the transport was lost before.
            None => Some(TRANSPORT_LOST),
        }
    }

    /// Gives an answer or wake to whoever expects it; a name that nobody expects is ignored
    /// (EVT-027).
    pub fn dispatch(&mut self, message: FromHost, deliveries: &mut Vec<Delivery>) -> Result<(), String> {
        match message {
            FromHost::Answer { request, status, reply } => {
                if let Some(expected) = self.answers.get_mut(&request) {
                    expected.arrived = Some(Answer { status, reply });
                    ring(&self.followers, &expected.bell, deliveries);
                }
                Ok(())
            }
            FromHost::Wake { event, status } => {
                self.wake(event, status, deliveries);
                Ok(())
            }
            FromHost::Goodbye(reason) => Err(format!("the host closed the session: {reason}")),
            FromHost::Welcome(_) => Err("the host sent a second Welcome".to_owned()),
        }
    }

    fn wake(&mut self, event: EventId, status: NtStatus, deliveries: &mut Vec<Delivery>) {
        match self.wakes.get_mut(&event) {
            Some(ExpectedWake::Thread { arrived, bell }) => {
                *arrived = Some(status);
                ring(&self.followers, bell, deliveries);
            }
            Some(ExpectedWake::EventOnce(target)) => {
                deliveries.push(Delivery::Set(target.clone()));
                self.forget_wake(event);
            }
            Some(ExpectedWake::EventEachTime(target)) => deliveries.push(Delivery::Set(target.clone())),
            None => {}
        }
    }

    /// The stream is gone: every pending call and wait completes, every armed event is handed back
    /// to be set. True the first time.
    pub fn lose(&mut self, deliveries: &mut Vec<Delivery>) -> bool {
        if std::mem::replace(&mut self.lost, true) {
            return false;
        }
        for expected in self.answers.values_mut() {
            expected.arrived.get_or_insert_with(|| Answer::refused(TRANSPORT_LOST));
            deliveries.push(Delivery::Ring(expected.bell.clone()));
        }
        self.wakes.retain(|_, wake| match wake {
            ExpectedWake::Thread { arrived, bell } => {
                arrived.get_or_insert(TRANSPORT_LOST);
                deliveries.push(Delivery::Ring(bell.clone()));
                true
            }
            ExpectedWake::EventOnce(target) | ExpectedWake::EventEachTime(target) => {
                deliveries.push(Delivery::Set(target.clone()));
                false
            }
        });
        self.armed = 0;
        true
    }

    /// Answers and wakes that are expected.
    pub fn pending(&self) -> usize {
        self.answers.len() + self.wakes.len()
    }
}
