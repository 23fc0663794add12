//! Timestamps within a step, if the daemon asks for times. They go into the trace beside the step; the kernel never
//! sees them.
//!
//! ```text
//!   read ──▶ kernel locked, input recorded ──▶ recorded ──▶ handled ──▶ effects recorded, values stored ──▶ stored
//!                                                           each answer and wake has this time ─────────────┘
//! ```

use dxgkrnl::{Input, Nanos, ProcessId};
use proto::channel::Times as GuestTimes;
use trace::{Times, Woken};

use super::HostState;
use crate::timer::monotonic;

/// The timestamps that a client sent with a call, and when it was read.
#[derive(Clone, Debug)]
pub struct ClientTimestamps {
    pub times: GuestTimes,
    /// 0 for the host's clock, else the number of the VM.
    pub clock: u32,
    /// When the thread that read it woke up, if that is known; else 0.
    pub awake_ns: u64,
    pub read_ns: u64,
}

impl ClientTimestamps {
    pub(super) fn into_times(self, process: ProcessId) -> Times {
        let GuestTimes { called_ns, sent_ns, received_host_ns, received_ns, woken } = self.times;
        Times {
            process: process.0,
            clock: self.clock,
            called_ns,
            sent_ns,
            awake_ns: self.awake_ns,
            read_ns: self.read_ns,
            received: (received_ns != 0).then_some((received_host_ns, received_ns)),
            woken: woken.into_iter().map(Woken::from).collect(),
            ..Times::default()
        }
    }
}

/// Timestamps of the current step.
pub(super) struct Timing {
    times: Times,
    /// Whether the client sent timestamps.
    has_client_times: bool,
}

impl Timing {
    /// Begins a step; `due` is the time since which the kernel has something to do.
    pub fn begin(
        timestamps: Option<ClientTimestamps>,
        input: &Input,
        now: Nanos,
        due: Option<Nanos>,
    ) -> Timing {
        let has_client_times = timestamps.is_some();
        let mut times = match (input, timestamps) {
            (Input::Call { process, .. }, Some(timestamps)) => timestamps.into_times(*process),
            (Input::Call { process, .. }, None) => Times { process: process.0, ..Times::default() },
            _ => Times::default(),
        };
        if let (Input::Deadline, Some(due)) = (input, due) {
            times.read_ns = monotonic().saturating_sub(now.saturating_sub(due));
        }
        Timing { times, has_client_times }
    }

    pub fn recorded(&mut self) {
        self.times.recorded_ns = monotonic();
    }

    pub fn handled(&mut self) {
        self.times.handled_ns = monotonic();
    }

    /// Records that fence values are stored; returns that time.
    pub fn stored(&mut self) -> u64 {
        self.times.stored_ns = monotonic();
        self.times.stored_ns
    }
}

impl HostState {
    /// Records a step's timestamps if a client sent some, or if the step woke a thread.
    pub(super) fn record_times(&mut self, timing: Timing, has_wakes: bool) {
        let Timing { times, has_client_times } = timing;
        if let Some(recording) = self.taps.recording.as_mut().filter(|_| has_wakes || has_client_times) {
            let step = recording.last_step();
            recording.times(&Times { step, ..times });
        }
    }
}
