//! Host timestamps of answers and wakes, for a process that reports times (`Times` in `channel.proto`).

use d3dkmt::EventId;

/// An answer or wake that arrived with a host timestamp.
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
    /// A waiting thread resumes.
    Waiter(EventId),
    /// An event is set.
    Event(EventId),
}

/// The timed messages since the last `take`. Empty unless the host sends timestamps.
#[derive(Debug, Default)]
pub(crate) struct HostTimes {
    /// The host's timestamp for the next answer or wake.
    host_time_ns: Option<u64>,
    timed: Vec<TimedMessage>,
}

/// Messages kept at most, because a process may never take them.
const TIMED_MAX: usize = 1024;

impl HostTimes {
    pub fn set(&mut self, nanos: u64) {
        self.host_time_ns = Some(nanos);
    }

    /// Records an answer or a wake that arrived.
    pub fn record(&mut self, woken: Option<Woken>) {
        if let Some(host_ns) = self.host_time_ns.take().filter(|_| self.timed.len() < TIMED_MAX) {
            self.timed.push(TimedMessage { host_ns, woken });
        }
    }

    pub fn take(&mut self) -> Vec<TimedMessage> {
        std::mem::take(&mut self.timed)
    }
}
