//! Timestamps of calls and wakes, for a host that asks for them: see `Times` in `channel.proto`.
//!
//! ```text
//!   a call begins ─▶ called_ns    its frame is written ─▶ sent_ns     ── in front of the frame, in the same write ─▶
//!   an answer or wake is read ─▶ read_ns    the waiting thread resumes, or the event is set ─▶ ran_ns
//!                                                                     ── with the next call, or at the exit ─▶
//! ```
//! So it costs bytes and a clock read, but no system call of its own, and nothing unless the host asks for it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ::client::{TimedMessage, Woken as Target};
use d3dkmt::EventId;
use proto::channel::{ToHost, Woken, to_host};
use proto::frame::append;
use rustix::time::{ClockId, clock_gettime};

use super::channel::lock;
use crate::limits::WOKEN_REPORTED_MAX;

/// The times that were not yet reported to the host.
#[derive(Debug, Default)]
pub(super) struct Times(Mutex<UnsentTimes>);

#[derive(Debug, Default)]
struct UnsentTimes {
    /// Host and local time of the message that arrived with the least delay.
    least_delayed: Option<(u64, u64)>,
    /// Completed waits whose threads do not run yet.
    asleep: BTreeMap<EventId, Woken>,
    woken: Vec<Woken>,
}

pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl UnsentTimes {
    /// Records a wake whose thread runs or whose event is set. A process that makes no calls reports the first ones at
    /// its exit.
    fn record_run(&mut self, woken: Woken) {
        if self.woken.len() < WOKEN_REPORTED_MAX {
            self.woken.push(woken);
        }
    }

    /// Records a message's times. Only differences are compared, so the two clocks may have different origins.
    fn record_delay(&mut self, host_ns: u64, read_ns: u64) {
        let took = |(host, read): (u64, u64)| i128::from(read) - i128::from(host);
        if self.least_delayed.is_none_or(|soonest| took((host_ns, read_ns)) < took(soonest)) {
            self.least_delayed = Some((host_ns, read_ns));
        }
    }
}

impl Times {
    /// Records messages that were read at this time. Runs under the lock of the pending calls, so no waiting thread
    /// resumes before. Returns the events that are still to be set.
    pub fn read(&self, messages: Vec<TimedMessage>, read_ns: u64) -> Vec<Woken> {
        let mut unsent = lock(&self.0);
        let mut to_set = Vec::new();
        for TimedMessage { host_ns, woken } in messages {
            unsent.record_delay(host_ns, read_ns);
            match woken {
                Some(Target::Waiter(event)) => {
                    let woken = Woken { event: event.0, host_ns, read_ns, ran_ns: 0 };
                    unsent.asleep.insert(event, woken);
                }
                Some(Target::Event(event)) => {
                    to_set.push(Woken { event: event.0, host_ns, read_ns, ran_ns: 0 });
                }
                None => {}
            }
        }
        to_set
    }

    /// Records that these events are set.
    pub fn record_set(&self, events: Vec<Woken>) {
        let mut unsent = lock(&self.0);
        let ran_ns = now();
        events.into_iter().for_each(|woken| unsent.record_run(Woken { ran_ns, ..woken }));
    }

    /// Records that the thread that waited under this name has resumed.
    pub fn resumed(&self, event: EventId) {
        let ran_ns = now();
        let mut unsent = lock(&self.0);
        if let Some(woken) = unsent.asleep.remove(&event) {
            unsent.record_run(Woken { ran_ns, ..woken });
        }
    }

    /// Appends the `Times` frame that precedes a call, which the program made at this time.
    pub fn append(&self, called_ns: u64, bytes: &mut Vec<u8>) {
        let (soonest, woken) = {
            let mut unsent = lock(&self.0);
            (unsent.least_delayed.take(), std::mem::take(&mut unsent.woken))
        };
        let (received_host_ns, received_ns) = soonest.unwrap_or_default();
        let times = proto::channel::Times { called_ns, sent_ns: now(), received_host_ns, received_ns, woken };
        append(&ToHost { request: 0, body: Some(to_host::Body::Times(times)) }, bytes);
    }

    pub fn has_woken(&self) -> bool {
        !lock(&self.0).woken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_wakes_than_the_limit_are_kept_for_the_next_report() {
        let times = Times::default();
        for event in 1..=WOKEN_REPORTED_MAX as u64 + 10 {
            let message = TimedMessage { host_ns: event, woken: Some(Target::Event(EventId(event))) };
            times.record_set(times.read(vec![message], now()));
        }
        let unsent = lock(&times.0);
        let events: Vec<u64> = unsent.woken.iter().map(|woken| woken.event).collect();
        assert_eq!(events, (1..=WOKEN_REPORTED_MAX as u64).collect::<Vec<_>>());
    }
}
