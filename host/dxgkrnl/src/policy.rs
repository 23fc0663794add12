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

/// From when on a wait in a queue counts the values that its fences come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum GpuWait {
    /// Default: from when it is queued. A pulse that comes while packets before it run releases it, as real D3D12
    /// releases waits that a brief high signal satisfied (F-58); and what is reached already holds nobody up.
    #[default]
    LatchesWhenQueued,
    /// From when it is reached, everything before it being done: the strict reading of "waits are packets of the same
    /// FIFO" (SCH-001, F-41).
    LooksAtHead,
}

/// When a signal from the CPU takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum CpuSignal {
    /// Default: before the call is answered. The kernel stores the value so that readers see it at once (F-44).
    #[default]
    AtOnce,
    /// After it, in the step that comes next: the same page says that a caller may not assume completion on return
    /// and must wait to know (FEN-026, F-45). For finding callers that assume it.
    AfterAnswer,
}

/// Every switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Policy {
    pub lower_gpu_signal: LowerGpuSignal,
    pub destroyed_wait: DestroyedWait,
    pub refused_one_way: RefusedOneWay,
    pub gpu_wait: GpuWait,
    pub cpu_signal: CpuSignal,
}

impl Policy {
    /// Each switch by name, with its values by name: the first is bit 0, the default; in the order of the bits.
    pub const SWITCHES: [(&'static str, [&'static str; 2]); 5] = [
        ("lower_gpu_signal", ["ignored", "applied"]),
        ("destroyed_wait", ["success", "device-removed"]),
        ("refused_one_way", ["stops-device", "note-only"]),
        ("gpu_wait", ["latches-when-queued", "looks-at-head"]),
        ("cpu_signal", ["at-once", "after-answer"]),
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
            | (matches!(self.gpu_wait, GpuWait::LooksAtHead) as u32) << 3
            | (matches!(self.cpu_signal, CpuSignal::AfterAnswer) as u32) << 4
    }

    /// The switches from a trace's header; `None` if a bit is unknown.
    pub const fn from_bits(bits: u32) -> Option<Policy> {
        if bits & !0b1_1111 != 0 {
            return None;
        }
        Some(Policy {
            lower_gpu_signal: if bits & 1 != 0 { LowerGpuSignal::Applied } else { LowerGpuSignal::Ignored },
            destroyed_wait: if bits & 2 != 0 { DestroyedWait::DeviceRemoved } else { DestroyedWait::Success },
            refused_one_way: if bits & 4 != 0 { RefusedOneWay::NoteOnly } else { RefusedOneWay::StopsDevice },
            gpu_wait: if bits & 8 != 0 { GpuWait::LooksAtHead } else { GpuWait::LatchesWhenQueued },
            cpu_signal: if bits & 16 != 0 { CpuSignal::AfterAnswer } else { CpuSignal::AtOnce },
        })
    }
}
