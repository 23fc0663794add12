//! Bugchecks: what Windows has no way back from.
//!
//! The first one is kept. The host is down from there on: every adapter is stopped for its users, so devices are
//! STOPPED, waits end as removed, queued work is dropped, and calls answer DEVICE_REMOVED.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::ddi::Miniport;
use crate::effects::{Effects, Note};
use crate::kernel::Kernel;
use crate::tdr::Recovery;

/// A bugcheck: code and parameters as on the blue screen, and the reason in words.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Bugcheck {
    pub code: u32,
    pub parameters: [u64; 4],
    pub why: String,
}

/// `VIDEO_SCHEDULER_INTERNAL_ERROR`: a driver told the scheduler what cannot be.
pub(crate) const VIDEO_SCHEDULER_INTERNAL_ERROR: u32 = 0x119;

impl<M: Miniport> Kernel<M> {
    /// The host goes down. What is left to do about it is done when the present DDI is over.
    pub(crate) fn bugcheck(&mut self, code: u32, parameters: [u64; 4], why: String, effects: &mut Effects) {
        let [first, second, third, fourth] = parameters;
        let text = format!("bugcheck {code:#x} ({first:#x}, {second:#x}, {third:#x}, {fourth:#x}): {why}");
        effects.notes.push(Note { process: None, text });
        if self.bugcheck.is_none() {
            self.bugcheck = Some(Bugcheck { code, parameters, why });
            self.tdr.due.push_front(Recovery::StopEverything);
        }
    }

    /// The bugcheck that took the host down, if one did.
    pub fn bugchecked(&self) -> Option<&Bugcheck> {
        self.bugcheck.as_ref()
    }
}
