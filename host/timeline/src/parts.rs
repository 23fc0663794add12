//! Where the time of a wait went.
//!
//! ```text
//!   wait begins ....... no work yet ....... submitted  queued  given  in hardware  begun  runs  signal  told late  woken
//! ```
//! All of it is by the daemon's one clock, as it was told to the kernel: there is no error between two of these times,
//! and each is up to the length of one kernel step late. What is before the wait reached the daemon and after its
//! wake-up left - the guest's own time and the link - is not in the trace: docs/TIMELINE.md says what guests would have
//! to record for that.

use std::collections::BTreeMap;

use dxgkrnl::Nanos;
use dxgkrnl::ddi::EngineId;

use crate::timeline::{Packet, Wait};

/// One part of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPart {
    pub name: &'static str,
    pub nanos: Nanos,
}

/// Names of the parts, in their order.
pub const PART_NAMES: [&str; 6] = [
    "not submitted yet",
    "in its queue",
    "in the hardware queue",
    "on the engine",
    "not signaled yet",
    "daemon told late",
];

/// The parts of a wait that was released, in order; parts of no length are left out. Empty if nobody knows by what.
/// `submissions` are the timeline's ([`crate::Timeline::submissions`]).
pub fn parts(wait: &Wait, submissions: &BTreeMap<(EngineId, u64), &Packet>) -> Vec<WaitPart> {
    let Some(cause) = wait.cause else { return Vec::new() };
    let packet = cause.submission.and_then(|submission| submissions.get(&submission));
    let [unsubmitted, queued, given, runs, unsignaled, late] = PART_NAMES;
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
            until(runs, cause.moment.at);
        }
        None => until(unsignaled, cause.moment.at),
    }
    until(late, wait.end.at);
    parts
}
