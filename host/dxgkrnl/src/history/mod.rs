//! A short record of signalers that are gone: processes that had an object open that others still wait for, signals
//! that were dropped with their queue, values that were set back. It decides nothing, and no snapshot contains it.

mod remember;

use alloc::collections::VecDeque;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessId, VmId};

/// Keyed mutexes are numbered by themselves, far below this.
const KEYED_MUTEX: u32 = 1 << 31;

/// Why objects are being destroyed at present.
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
    /// An object, or `KEYED_MUTEX` and a keyed mutex.
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

/// Record of signalers that are gone.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct History {
    remembered: VecDeque<Remembered>,
    ending: Ending,
}

impl History {
    /// Sets the reason for the destruction of objects from now on.
    pub fn set_ending(&mut self, ending: Ending) {
        self.ending = ending;
    }

    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Sets the reason for the destruction of objects from now on, unless that is part of a larger one. Returns the
    /// previous reason.
    pub fn begin(&mut self, ending: Ending) -> Ending {
        let before = self.ending;
        if before == Ending::Call {
            self.ending = ending;
        }
        before
    }

    /// The records of an object, in chronological order.
    pub fn of(&self, object: u32) -> impl Iterator<Item = &Remembered> {
        self.remembered.iter().filter(move |one| one.object == object)
    }

    /// The records of a keyed mutex, in chronological order.
    pub fn of_keyed_mutex(&self, mutex: u32) -> impl Iterator<Item = &Remembered> {
        self.of(KEYED_MUTEX | mutex)
    }

    /// Removes the records of a keyed mutex that is gone.
    pub fn forget_keyed_mutex(&mut self, mutex: u32) {
        self.forget(KEYED_MUTEX | mutex);
    }

    /// Removes the records of an object that is gone, because its number may be reused.
    pub fn forget(&mut self, object: u32) {
        if !self.remembered.is_empty() {
            self.remembered.retain(|one| one.object != object);
        }
    }
}
