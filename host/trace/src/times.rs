//! Timestamps of a run, by the clocks of the host and of the guests. They are no inputs of the model: a replay ignores
//! them, and programs that do not know them skip them.

use prost::Message as _;
use proto::channel as wire_channel;
use proto::trace as wire;

use crate::encode::Length;

/// Kind of a record that is a message `Times`.
pub(crate) const TIMES: u8 = 0x01;

/// Timestamps of one step, or those that a process reported outside of its calls. In nanoseconds of CLOCK_MONOTONIC; 0
/// if unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Number of the step; 0 for none.
    pub step: u64,
    /// The process that made the call or reports the timestamps; 0 for none.
    pub process: u32,
    /// Clock of that process: 0 for the host's, else the number of its VM.
    pub clock: u32,
    /// When the process made the call, by that clock.
    pub called_ns: u64,
    /// When the call's frame was written, by that clock.
    pub sent_ns: u64,
    /// When the daemon's thread woke up and began to work, by the host's clock, as all that follow.
    pub awake_ns: u64,
    /// When that thread read the call, or when the deadline was due.
    pub read_ns: u64,
    /// When the kernel began to handle the input.
    pub recorded_ns: u64,
    /// When the kernel returned.
    pub handled_ns: u64,
    /// When fence memory had the new values.
    pub stored_ns: u64,
    /// Clock sample: the fastest message from the host since the last report, with its send time by the host's clock
    /// and its read time by the process's clock.
    pub received: Option<(u64, u64)>,
    /// Waits of this process that ended, and its events that were set.
    pub woken: Vec<Woken>,
}

/// The guest's timestamps of a wake, by its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Woken {
    pub event: u64,
    /// `stored_ns` of the step that caused it.
    pub host_ns: u64,
    /// When the process read the wake's bytes.
    pub read_ns: u64,
    /// When the waiting thread resumed, or the event was set.
    pub ran_ns: u64,
}

impl From<wire_channel::Woken> for Woken {
    fn from(wire_channel::Woken { event, host_ns, read_ns, ran_ns }: wire_channel::Woken) -> Woken {
        Woken { event, host_ns, read_ns, ran_ns }
    }
}

impl From<Woken> for wire_channel::Woken {
    fn from(Woken { event, host_ns, read_ns, ran_ns }: Woken) -> wire_channel::Woken {
        wire_channel::Woken { event, host_ns, read_ns, ran_ns }
    }
}

impl Times {
    /// Appends a record.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (received_host_ns, received_ns) = self.received.unwrap_or_default();
        let message = wire::Times {
            step: self.step,
            process: self.process,
            clock: self.clock,
            called_ns: self.called_ns,
            sent_ns: self.sent_ns,
            awake_ns: self.awake_ns,
            read_ns: self.read_ns,
            recorded_ns: self.recorded_ns,
            handled_ns: self.handled_ns,
            stored_ns: self.stored_ns,
            received_host_ns,
            received_ns,
            woken: self.woken.iter().map(|woken| (*woken).into()).collect(),
        };
        out.push(TIMES);
        let length = Length::reserve(out);
        message.encode_raw(out);
        length.set(out);
    }

    /// Reads the content of a record; `None` if it cannot be decoded.
    pub(crate) fn read(content: &[u8]) -> Option<Times> {
        let message = wire::Times::decode(content).ok()?;
        let received = (message.received_host_ns, message.received_ns);
        Some(Times {
            step: message.step,
            process: message.process,
            clock: message.clock,
            called_ns: message.called_ns,
            sent_ns: message.sent_ns,
            awake_ns: message.awake_ns,
            read_ns: message.read_ns,
            recorded_ns: message.recorded_ns,
            handled_ns: message.handled_ns,
            stored_ns: message.stored_ns,
            received: (received != (0, 0)).then_some(received),
            woken: message.woken.into_iter().map(Woken::from).collect(),
        })
    }
}
