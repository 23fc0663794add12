//! Bugchecks: what the system does not survive. The first is kept.

use alloc::string::String;

use crate::ddi::Miniport;
use crate::effects::{Effects, Note};
use crate::kernel::Kernel;

/// The system stopped.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bugcheck {
    pub code: u32,
    pub parameters: [u64; 4],
    pub why: String,
}

/// `VIDEO_SCHEDULER_INTERNAL_ERROR`: a driver told the scheduler what cannot be.
pub(crate) const VIDEO_SCHEDULER_INTERNAL_ERROR: u32 = 0x119;

impl<M: Miniport> Kernel<M> {
    pub(crate) fn bugcheck(&mut self, code: u32, parameters: [u64; 4], why: String, effects: &mut Effects) {
        let text = alloc::format!("bugcheck {code:#x}: {why}");
        effects.notes.push(Note { process: None, text });
        self.bugcheck.get_or_insert(Bugcheck { code, parameters, why });
    }

    /// The bugcheck that stopped the system, if any.
    pub fn bugchecked(&self) -> Option<&Bugcheck> {
        self.bugcheck.as_ref()
    }
}
