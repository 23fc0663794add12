//! Rules that the documents leave open: each a named switch with its default and the reason.

/// What a queued GPU signal does when its value is below the fence's and AllowFenceRewind is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum LowerGpuSignal {
    /// Default: a packet-based signal without the flag is not meant to go back (F-57).
    #[default]
    Ignored,
    /// As a raw GPU write would.
    Applied,
}

/// How a CPU wait ends when its fence is destroyed under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum DestroyedWait {
    /// Default: documents say that waiters are released, and name no error (FEN-058).
    #[default]
    Success,
    /// The waiter learns that the value was not reached.
    DeviceRemoved,
}

/// What a refused one-way call does to its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum RefusedOneWay {
    /// Default: the status is lost on the wire, so the error appears as device state (GPV-016).
    #[default]
    StopsDevice,
    /// Only a note.
    NoteOnly,
}

/// What becomes of a mutex whose owner (a context, or the device that created it owned) ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum AbandonedMutex {
    /// Default: it is free, and the next in line has it. Documents name no status that a queue could be told by
    /// (F-78), and no other context may be held up for ever by one that is gone (FEN-024).
    #[default]
    Freed,
    /// Nobody can release it any more.
    StaysOwned,
}

/// What a queued signal does to a mutex that neither its context nor its device owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum ForeignMutexRelease {
    /// Default: a mutex is its owner's to release (F-78); a packet has no status, so there is a note.
    #[default]
    Ignored,
    /// Whoever signals it frees it.
    Releases,
}

/// What a queued signal does to a semaphore that is at its MaxCount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum SemaphoreOverflow {
    /// Default: the count stays (FEN-072), with a note.
    #[default]
    Ignored,
    /// The count stays, and the device of the signal is stopped: an error of queued work has nowhere else to show
    /// (F-79).
    StopsDevice,
}

/// Every switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Policy {
    pub lower_gpu_signal: LowerGpuSignal,
    pub destroyed_wait: DestroyedWait,
    pub refused_one_way: RefusedOneWay,
    pub abandoned_mutex: AbandonedMutex,
    pub foreign_mutex_release: ForeignMutexRelease,
    pub semaphore_overflow: SemaphoreOverflow,
}

impl Policy {
    /// Each switch by name, with its values by name: the first is bit 0, the default; in the order of the bits.
    pub const SWITCHES: [(&'static str, [&'static str; 2]); 6] = [
        ("lower_gpu_signal", ["ignored", "applied"]),
        ("destroyed_wait", ["success", "device-removed"]),
        ("refused_one_way", ["stops-device", "note-only"]),
        ("abandoned_mutex", ["freed", "stays-owned"]),
        ("foreign_mutex_release", ["ignored", "releases"]),
        ("semaphore_overflow", ["ignored", "stops-device"]),
    ];

    /// This policy with one switch set by name; `None` if there is no such switch or value.
    pub fn with(self, switch: &str, value: &str) -> Option<Policy> {
        let bit = Policy::SWITCHES.iter().position(|(name, _)| *name == switch)?;
        let set = Policy::SWITCHES[bit].1.iter().position(|name| *name == value)? as u32;
        Policy::from_bits(self.to_bits() & !(1 << bit) | set << bit)
    }

    /// Every switch by name, with its value by name.
    pub fn values(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let bits = self.to_bits();
        Policy::SWITCHES
            .into_iter()
            .enumerate()
            .map(move |(bit, (name, values))| (name, values[(bits >> bit & 1) as usize]))
    }

    /// The switches as bits, for a trace's header.
    pub const fn to_bits(self) -> u32 {
        (matches!(self.lower_gpu_signal, LowerGpuSignal::Applied) as u32)
            | (matches!(self.destroyed_wait, DestroyedWait::DeviceRemoved) as u32) << 1
            | (matches!(self.refused_one_way, RefusedOneWay::NoteOnly) as u32) << 2
            | (matches!(self.abandoned_mutex, AbandonedMutex::StaysOwned) as u32) << 3
            | (matches!(self.foreign_mutex_release, ForeignMutexRelease::Releases) as u32) << 4
            | (matches!(self.semaphore_overflow, SemaphoreOverflow::StopsDevice) as u32) << 5
    }

    /// The switches from a trace's header; `None` if a bit is unknown.
    pub const fn from_bits(bits: u32) -> Option<Policy> {
        if bits & !0b11_1111 != 0 {
            return None;
        }
        Some(Policy {
            lower_gpu_signal: if bits & 1 != 0 { LowerGpuSignal::Applied } else { LowerGpuSignal::Ignored },
            destroyed_wait: if bits & 2 != 0 { DestroyedWait::DeviceRemoved } else { DestroyedWait::Success },
            refused_one_way: if bits & 4 != 0 { RefusedOneWay::NoteOnly } else { RefusedOneWay::StopsDevice },
            abandoned_mutex: if bits & 8 != 0 { AbandonedMutex::StaysOwned } else { AbandonedMutex::Freed },
            foreign_mutex_release: if bits & 16 != 0 {
                ForeignMutexRelease::Releases
            } else {
                ForeignMutexRelease::Ignored
            },
            semaphore_overflow: if bits & 32 != 0 {
                SemaphoreOverflow::StopsDevice
            } else {
                SemaphoreOverflow::Ignored
            },
        })
    }
}
