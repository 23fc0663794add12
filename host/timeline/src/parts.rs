//! The parts of a wait's duration.
//!
//! ```text
//!   wait begins .... no work yet .... submitted  queued  given  in hardware  begun  runs  over  signal  reported late  woken
//! ```
//! All times are the kernel's, from the daemon's one clock: differences have no error, and each time is late by at most
//! one kernel step. The guest's time and the link, before the signal reached the daemon and after the wake-up left it, are
//! in [`crate::latency`], if the trace has them.

use std::collections::BTreeMap;

use dxgkrnl::Nanos;
use dxgkrnl::ddi::EngineId;

use crate::timeline::{Outcome, Packet, Wait};

/// One part of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPart {
    pub name: &'static str,
    pub nanos: Nanos,
}

/// Names of the parts, in order.
pub const PART_NAMES: [&str; 7] = [
    "not submitted yet",
    "in its queue",
    "in the hardware queue",
    "on the engine",
    "signal in its queue",
    "not signaled yet",
    "daemon told late",
];

/// The parts of a released wait, in order, without empty parts. Empty if the cause is unknown. `submissions` are those
/// of [`crate::Timeline::submissions`].
pub fn parts(wait: &Wait, submissions: &BTreeMap<(EngineId, u64), &Packet>) -> Vec<WaitPart> {
    let Some(cause) = wait.cause else { return Vec::new() };
    let packet = cause.submission.and_then(|submission| submissions.get(&submission));
    let [unsubmitted, queued, given, runs, signal_queued, unsignaled, late] = PART_NAMES;
    let mut parts = Vec::new();
    let mut from = wait.begin.at;
    let mut until = |name, at: Nanos| {
        let at = at.clamp(from, wait.end.at);
        if at > from {
            parts.push(WaitPart { name, nanos: at - from });
            from = at;
        }
    };
    match packet {
        Some(packet) => {
            until(unsubmitted, packet.begin.at);
            packet.submitted.into_iter().for_each(|at| until(queued, at));
            packet.ran.into_iter().for_each(|at| until(given, at));
            // After its last work, a signal may stand behind waits of its queue.
            let is_over = packet.ran.is_some() && packet.outcome == Outcome::Done;
            until(runs, if is_over { packet.end.at.min(cause.moment.at) } else { cause.moment.at });
            until(signal_queued, cause.moment.at);
        }
        None => until(unsignaled, cause.moment.at),
    }
    until(late, wait.end.at);
    parts
}
