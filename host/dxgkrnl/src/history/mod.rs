//! A short memory of what could have signaled and is gone: who had an object open that others still wait for, signals
//! that were dropped with their queue, values that were set back. Nothing is decided by it, and no snapshot has it.

mod remember;

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessId, VmId};

/// Why things end at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// By a call.
    #[default]
    Call,
    Device,
    /// The device is lost, or its adapter.
    DeviceLost,
    Process,
    Vm,
}

impl Ending {
    const fn words(self) -> &'static str {
        match self {
            Ending::Call => "it was destroyed",
            Ending::Device => "its device was destroyed",
            Ending::DeviceLost => "its device was lost",
            Ending::Process => "the process ended",
            Ending::Vm => "its VM ended",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub at: Nanos,
    pub object: u32,
    pub process: ProcessId,
    pub pid: u32,
    pub name: String,
    pub vm: VmId,
    pub vm_name: String,
    /// The value that it would have signaled, or the greatest if it could have signaled any.
    pub would_signal: Option<u64>,
    pub text: String,
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct History {
    remembered: VecDeque<Remembered>,
    ending: Ending,
}

impl History {
    /// What ends from here on ends for this reason.
    pub fn set_ending(&mut self, ending: Ending) {
        self.ending = ending;
    }

    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// What ends from here on ends for this reason, unless it is part of something bigger. What was so before.
    pub fn begin(&mut self, ending: Ending) -> Ending {
        let before = self.ending;
        if before == Ending::Call {
            self.ending = ending;
        }
        before
    }

    /// Of an object, in the order in which it happened.
    pub fn of(&self, object: u32) -> impl Iterator<Item = &Remembered> {
        self.remembered.iter().filter(move |one| one.object == object)
    }

    /// The object is gone; its number may be another's.
    pub fn forget(&mut self, object: u32) {
        if !self.remembered.is_empty() {
            self.remembered.retain(|one| one.object != object);
        }
    }
}
