//! Events that a process's broker has registered. The daemon sets them directly, without the process's stream, whose
//! reader would be another wake-up.
//!
//! ```text
//!   RegisterEvent ──▶ registered ──wake──▶ owed: n ────flush──▶ the eventfd is set n times (local), or n bytes go
//!                  │ ▲                                │     to its event channel, and guestd sets the eventfd (VM)
//!                  │ └────────────────────────────────┘ the event channel has no room: the rest stays owed
//!                  └─ UnregisterEvent, or the event channel is gone: wakes are frames again, first those owed
//! ```
//! The wakes of an eventfd that the system could not set, for lack of memory, go by the stream: nothing would say when to
//! try again. A full counter is no failure, because its readers wake up anyway. An event channel reports when it has room.
//!
//! Registered events belong to the outbox of their process, so that the kernel's order is kept: owed wakes are
//! delivered before the bytes that were appended after them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use d3dkmt::EventId;
use d3dkmt::limits::REGISTERED_EVENTS_PER_PROCESS_MAX;
use vsock_device::Connection;
use vsock_device::limits::QUEUED_BYTES_PER_CONNECTION_MAX;

use super::event_channels::ChannelCharge;
use super::eventfd::Setter;
use super::shares::Share;

/// The way in which an event is set.
#[derive(Debug)]
pub enum EventSink {
    /// The eventfd itself, and its share of the client's descriptors.
    Eventfd(Arc<Setter>, OwnedFd, Share),
    /// A stream to guestd, a byte for each wake; `None` until guestd has connected it. It counts for its VM.
    EventChannel(Option<Connection>, ChannelCharge),
}

impl EventSink {
    /// Sets the event up to `times` times; returns how often. An event channel that has no room for the rest reports when it
    /// has; it is not tried again here, because its guest may make room as fast.
    fn set(&self, times: u64) -> u64 {
        const USUAL_MAX: usize = 256;
        match self {
            EventSink::Eventfd(setter, event, _) => {
                (0..times).take_while(|_| setter.set(event.as_fd()).is_ok()).count() as u64
            }
            EventSink::EventChannel(None, _) => 0,
            EventSink::EventChannel(Some(connection), _) => {
                // A byte more than it ever has room for, so that it reports room for what is left.
                let count = times.min(QUEUED_BYTES_PER_CONNECTION_MAX as u64 + 1) as usize;
                let sent = match [1; USUAL_MAX].get(..count) {
                    Some(bytes) => connection.send_some(bytes),
                    None => connection.send_some(&vec![1; count]),
                };
                // If it is closed, the endpoint is notified.
                sent.unwrap_or(0) as u64
            }
        }
    }

    /// Whether something will report that an event can be set which could not be.
    fn reports_room(&self) -> bool {
        match self {
            EventSink::Eventfd(..) => false,
            EventSink::EventChannel(..) => true,
        }
    }

    fn end(&self) {
        if let EventSink::EventChannel(Some(connection), _) = self {
            connection.finish();
        }
    }
}

#[derive(Debug)]
struct RegisteredEvent {
    sink: EventSink,
    owed: u64,
    /// It could not be set as often as it was owed, and will report room.
    is_full: bool,
    /// All wakes so far, including those owed.
    wakes: u64,
}

/// Why an event cannot be registered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("the process has {REGISTERED_EVENTS_PER_PROCESS_MAX} registered events, the limit")]
    Full,
    #[error("an event of this name is already registered")]
    Known,
}

/// Registered events of one process, by name.
#[derive(Debug, Default)]
pub struct RegisteredEvents {
    events: BTreeMap<EventId, RegisteredEvent>,
    /// Some are owed wakes and not full.
    has_owed_wakes: bool,
}

impl RegisteredEvents {
    pub fn register(&mut self, name: EventId, sink: EventSink) -> Result<(), RegisterError> {
        if self.events.contains_key(&name) {
            return Err(RegisterError::Known);
        }
        if self.events.len() >= REGISTERED_EVENTS_PER_PROCESS_MAX {
            return Err(RegisterError::Full);
        }
        self.events.insert(name, RegisteredEvent { sink, owed: 0, is_full: false, wakes: 0 });
        Ok(())
    }

    /// Connects the stream of an event channel. False if no event waits for one.
    pub fn connect(&mut self, name: EventId, connection: Connection) -> bool {
        match self.events.get_mut(&name) {
            Some(RegisteredEvent { sink: EventSink::EventChannel(stream @ None, _), is_full, .. }) => {
                *stream = Some(connection);
                *is_full = false;
                self.has_owed_wakes = true;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The event channel of an event has room again.
    pub fn reported_room(&mut self, name: EventId) {
        if let Some(event) = self.events.get_mut(&name) {
            event.is_full = false;
            self.has_owed_wakes = true;
        }
    }

    /// Unregisters an event. Returns how many wakes it was owed; `None` if it is not registered.
    pub fn unregister(&mut self, name: EventId) -> Option<u64> {
        let event = self.events.remove(&name)?;
        event.sink.end();
        Some(event.owed)
    }

    /// Adds a wake to an event. False if it is not registered.
    pub fn wake(&mut self, name: EventId) -> bool {
        let Some(event) = self.events.get_mut(&name) else { return false };
        event.owed = event.owed.saturating_add(1);
        event.wakes = event.wakes.wrapping_add(1);
        self.has_owed_wakes = true;
        true
    }

    /// Sets the events that are owed wakes, as far as there is room. Returns one that could not be set and must be woken by
    /// the stream: call it again then.
    pub fn ring(&mut self) -> Option<EventId> {
        if !self.has_owed_wakes {
            return None;
        }
        for (name, event) in self.events.iter_mut().filter(|(_, event)| event.owed > 0 && !event.is_full) {
            event.owed -= event.sink.set(event.owed);
            event.is_full = event.owed > 0 && event.sink.reports_room();
            if event.owed > 0 && !event.is_full {
                event.owed = 0;
                return Some(*name);
            }
        }
        self.has_owed_wakes = false;
        None
    }

    /// Unregisters an event whose stream is this one and is closed.
    pub fn event_channel_gone(&mut self, name: EventId, stream: &Connection) -> Option<u64> {
        match &self.events.get(&name)?.sink {
            EventSink::EventChannel(Some(event_channel), _)
                if event_channel.peer_port() == stream.peer_port() =>
            {
                self.unregister(name)
            }
            EventSink::EventChannel(..) | EventSink::Eventfd(..) => None,
        }
    }

    pub fn contains(&self, name: EventId) -> bool {
        self.events.contains_key(&name)
    }

    /// Number of wakes of each event so far.
    pub fn wakes(&self) -> impl Iterator<Item = (EventId, u64)> + '_ {
        self.events.iter().map(|(name, event)| (*name, event.wakes))
    }

    /// Closes all: the process is gone.
    pub fn end(&mut self) {
        std::mem::take(&mut self.events).into_values().for_each(|event| event.sink.end());
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::peer::Peer;
    use crate::shares::Budget;

    fn count(event: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    fn event() -> (EventSink, OwnedFd) {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let share = Budget::new("descriptors", "", 3).take(Peer::Uid(0), 1).unwrap();
        (EventSink::Eventfd(Arc::new(Setter::new().unwrap()), event.try_clone().unwrap(), share), event)
    }

    fn event_channel() -> EventSink {
        EventSink::EventChannel(None, ChannelCharge::uncounted())
    }

    #[test]
    fn an_event_is_set_as_often_as_it_was_woken_and_not_before_the_flush() {
        let mut registered = RegisteredEvents::default();
        let ((first, first_seen), (second, second_seen)) = (event(), event());
        registered.register(EventId(1), first).unwrap();
        registered.register(EventId(2), second).unwrap();
        assert!(registered.wake(EventId(1)) && registered.wake(EventId(2)) && registered.wake(EventId(1)));
        assert!(!registered.wake(EventId(3)), "it is not registered");
        assert_eq!((count(&first_seen), count(&second_seen)), (0, 0));
        assert_eq!(registered.ring(), None);
        assert_eq!((count(&first_seen), count(&second_seen)), (2, 1));
        assert_eq!(registered.ring(), None);
        assert_eq!(count(&first_seen), 0);
        assert_eq!(registered.unregister(EventId(1)), Some(0));
        assert_eq!(registered.unregister(EventId(1)), None);
        assert!(!registered.wake(EventId(1)));
    }

    #[test]
    fn an_eventfd_that_cannot_be_set_is_woken_by_the_stream_and_delays_no_other() {
        let mut registered = RegisteredEvents::default();
        let ((good, good_seen), (EventSink::Eventfd(setter, _, share), _)) = (event(), event()) else {
            unreachable!("both are eventfds")
        };
        // It is none, so the system refuses as it does without memory.
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        registered.register(EventId(1), EventSink::Eventfd(setter, pipe, share)).unwrap();
        registered.register(EventId(2), good).unwrap();
        (0..3).for_each(|_| assert!(registered.wake(EventId(1)) && registered.wake(EventId(2))));
        assert_eq!((registered.ring(), registered.ring()), (Some(EventId(1)), None));
        assert_eq!(count(&good_seen), 3);
        assert_eq!(registered.unregister(EventId(1)), Some(0), "nothing waits for another flush");
    }

    #[test]
    fn an_event_channel_that_is_not_connected_yet_is_owed_earlier_wakes() {
        let mut registered = RegisteredEvents::default();
        registered.register(EventId(1), event_channel()).unwrap();
        for _ in 0..3 {
            assert!(registered.wake(EventId(1)));
            assert_eq!(registered.ring(), None);
        }
        assert_eq!(registered.wakes().collect::<Vec<_>>(), [(EventId(1), 3)]);
        assert_eq!(registered.unregister(EventId(1)), Some(3), "they are left for the stream");
    }

    #[test]
    fn a_process_has_so_many_and_each_name_once() {
        let mut registered = RegisteredEvents::default();
        for name in 0..REGISTERED_EVENTS_PER_PROCESS_MAX as u64 {
            registered.register(EventId(name), event_channel()).unwrap();
        }
        assert_eq!(registered.register(EventId(0), event_channel()), Err(RegisterError::Known));
        assert_eq!(registered.register(EventId(99), event_channel()), Err(RegisterError::Full));
        registered.unregister(EventId(0));
        assert_eq!(registered.register(EventId(99), event_channel()), Ok(()));
    }
}
