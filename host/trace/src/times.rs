//! When what happened, by the clocks of the host and of guests: data about a run, and no input of the model. A replay
//! never looks at them, and programs that do not know them skip them.

use prost::Message as _;
use proto::channel as wire_channel;
use proto::trace as wire;

use crate::encode::Length;

/// Kind of a record that is a message `Times`.
pub(crate) const TIMES: u8 = 0x01;

/// Of one step, or of what a process told outside of its calls. In nanoseconds of CLOCK_MONOTONIC; 0 is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Number of the step; 0 for none.
    pub step: u64,
    /// Who made the call, or tells this; 0 for nobody.
    pub process: u32,
    /// Whose clock that process has: 0 for the host's, else that of the VM of this number.
    pub clock: u32,
    /// By that clock: the program made the call, and its frame was written.
    pub called_ns: u64,
    pub sent_ns: u64,
    /// By the host's, as all that follow: a thread of the daemon had woken up, and has worked since.
    pub awake_ns: u64,
    /// The call was read by that thread; a deadline was due.
    pub read_ns: u64,
    /// The kernel was told.
    pub recorded_ns: u64,
    /// The kernel came back.
    pub handled_ns: u64,
    /// Fence memory had the new values.
    pub stored_ns: u64,
    /// Of what the process read of the host since it last said so, that which came soonest: when that was asked for by
    /// the host's clock, and read by its own.
    pub heard: Option<(u64, u64)>,
    /// Waits of this process that ended, and events that were set.
    pub woken: Vec<Woken>,
}

/// The guest's end of a wake, by its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Woken {
    pub event: u64,
    /// `stored_ns` of the step that asked for it.
    pub host_ns: u64,
    /// The process read its bytes.
    pub read_ns: u64,
    /// The thread that waited went on, or the event was set.
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
        let (received_host_ns, received_ns) = self.heard.unwrap_or_default();
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

    /// Reads the content of a record; `None` if it is none of ours.
    pub(crate) fn read(content: &[u8]) -> Option<Times> {
        let message = wire::Times::decode(content).ok()?;
        let heard = (message.received_host_ns, message.received_ns);
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
            heard: (heard != (0, 0)).then_some(heard),
            woken: message.woken.into_iter().map(Woken::from).collect(),
        })
    }
}
