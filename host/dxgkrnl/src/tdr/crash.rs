//! Raises bugchecks.

use alloc::format;
use alloc::string::String;

use super::bugcheck::Bugcheck;
use crate::effects::{Effects, Note};
use crate::kernel::Kernel;

impl Kernel {
    /// Raises a bugcheck. The adapters are stopped when the present DDI has returned.
    pub(crate) fn bugcheck(&mut self, code: u32, parameters: [u64; 4], why: String, effects: &mut Effects) {
        let [first, second, third, fourth] = parameters;
        let text = format!("bugcheck {code:#x} ({first:#x}, {second:#x}, {third:#x}, {fourth:#x}): {why}");
        effects.notes.push(Note { process: None, text });
        if self.tdr.bugcheck.is_none() {
            self.tdr.bugcheck = Some(Bugcheck { code, parameters, why });
            self.vidsch.work_mut().stop_everything();
        }
    }

    /// The bugcheck that took the host down, if one did.
    pub fn bugchecked(&self) -> Option<&Bugcheck> {
        self.tdr.bugcheck.as_ref()
    }
}
