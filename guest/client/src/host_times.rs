//! What was heard of the host by its own clock, for a process that tells times (`Times` in `channel.proto`).

use d3dkmt::EventId;

/// An answer or wake of which the host said when it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedMessage {
    /// By the host's clock.
    pub host_ns: u64,
    /// A wake that ended a wait or set an event.
    pub woken: Option<Woken>,
}

/// What a wake was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A thread that waits goes on.
    Waiter(EventId),
    /// An event is set.
    Event(EventId),
}

/// Keeps what is heard until somebody takes it; nothing unless the host says when things were asked for.
#[derive(Debug, Default)]
pub(crate) struct HostTimes {
    /// Of the answer or wake that comes next.
    asked_ns: Option<u64>,
    heard: Vec<TimedMessage>,
}

/// So much is kept for who never takes it.
const HEARD_MAX: usize = 1024;

impl HostTimes {
    pub fn asked(&mut self, nanos: u64) {
        self.asked_ns = Some(nanos);
    }

    /// An answer or a wake came.
    pub fn came(&mut self, woken: Option<Woken>) {
        if let Some(host_ns) = self.asked_ns.take().filter(|_| self.heard.len() < HEARD_MAX) {
            self.heard.push(TimedMessage { host_ns, woken });
        }
    }

    pub fn take(&mut self) -> Vec<TimedMessage> {
        std::mem::take(&mut self.heard)
    }
}
