//! Rules that the documents leave open: each a named switch with its default and the reason.

use serde::{Deserialize, Serialize};

macro_rules! switches {
    ($($(#[$doc:meta])* $field:ident: $switch:ident {
        $(#[$default_doc:meta])* $default:ident = $default_name:literal,
        $(#[$other_doc:meta])* $other:ident = $other_name:literal,
    })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, Serialize, Deserialize)]
        pub enum $switch {
            $(#[$default_doc])*
            #[default]
            #[serde(rename = $default_name)]
            $default,
            $(#[$other_doc])*
            #[serde(rename = $other_name)]
            $other,
        })+

        /// Every switch.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default, expecting = "a table, `[policy]`")]
        pub struct Policy {
            $(pub $field: $switch,)+
        }

        impl Policy {
            /// Each switch by name, with its values by name: the first is bit 0, the default; in the order of the
            /// bits.
            pub const SWITCHES: [(&'static str, [&'static str; 2]); [$($default_name),+].len()] =
                [$((stringify!($field), [$default_name, $other_name])),+];

            /// The switches as bits, for a trace's header.
            pub const fn to_bits(self) -> u32 {
                let (mut bits, mut bit) = (0, 1);
                $(
                    if matches!(self.$field, $switch::$other) {
                        bits |= bit;
                    }
                    bit <<= 1;
                )+
                // `bit` is the first unassigned one.
                bits & (bit - 1)
            }

            /// The switches from a trace's header; `None` if a bit is unknown.
            pub const fn from_bits(bits: u32) -> Option<Policy> {
                if bits >> Policy::SWITCHES.len() != 0 {
                    return None;
                }
                let [$($field),+] = Policy::set_bits(bits);
                Some(Policy { $($field: if $field { $switch::$other } else { $switch::$default },)+ })
            }
        }
    };
}

// A new switch comes last: its bit is in the headers of traces.
switches! {
    /// What a queued GPU signal does when its value is below the fence's and AllowFenceRewind is not set.
    lower_gpu_signal: LowerGpuSignal {
        /// Default: a packet-based signal without the flag is not meant to go back (F-57).
        Ignored = "ignored",
        /// As a raw GPU write would.
        Applied = "applied",
    }
    /// How a CPU wait ends when its fence is destroyed.
    destroyed_wait: DestroyedWait {
        /// Default: documents say that waiters are released, and name no error (FEN-058).
        Success = "success",
        /// The waiter learns that the value was not reached.
        DeviceRemoved = "device-removed",
    }
    /// What a refused one-way call does to its device.
    refused_one_way: RefusedOneWay {
        /// Default: the status is lost on the wire, so the error appears as device state (GPV-016).
        StopsDevice = "stops-device",
        /// Only a note.
        NoteOnly = "note-only",
    }
    /// Whether a mutex is freed when its owner (a context, or the device that created it owned) is destroyed.
    abandoned_mutex: AbandonedMutex {
        /// Default: it is freed, and the next in line acquires it. Documents name no status for the waiting queue
        /// (F-78), and a destroyed context must not block another for ever (FEN-024).
        Freed = "freed",
        /// It can never be released.
        StaysOwned = "stays-owned",
    }
    /// What a queued signal does to a mutex that neither its context nor its device owns.
    foreign_mutex_release: ForeignMutexRelease {
        /// Default: a mutex is its owner's to release (F-78); a packet has no status, so there is a note.
        Ignored = "ignored",
        /// Any signal frees it.
        Releases = "releases",
    }
    /// What a queued signal does to a semaphore that is at its MaxCount.
    semaphore_overflow: SemaphoreOverflow {
        /// Default: the count stays (FEN-072), with a note.
        Ignored = "ignored",
        /// The count stays, and the device of the signal is stopped: an error of queued work has nowhere else to show
        /// (F-79).
        StopsDevice = "stops-device",
    }
    /// What a signal of a poisoned fence does (TDR-022).
    poisoned_fence: PoisonedFence {
        /// Default: nothing, as with a native fence whose parent device is in error (F-66).
        Sticky = "sticky",
        /// The signal makes it an ordinary fence again.
        Signalable = "signalable",
    }
    /// What a device that goes into error without a reset - a page fault, MarkDeviceAsError - does to its fences.
    faulted_device_poisons: FaultedDevicePoisons {
        /// Default: nothing; documents speak of resets only (F-61).
        Keeps = "keeps",
        /// As a reset does.
        Poisons = "poisons",
    }
    /// From when on a queued wait counts the values of its fences.
    gpu_wait: GpuWait {
        /// Default: from when it is queued. A pulse while earlier packets run releases it, as real D3D12 releases waits
        /// that a brief high signal satisfied (F-58). A value that was reached before delays nothing.
        LatchesWhenQueued = "latches-when-queued",
        /// From when it is at the head of its queue and earlier packets are complete: the strict reading of "waits are
        /// packets of the same FIFO" (SCH-001, F-41).
        LooksAtHead = "looks-at-head",
    }
    /// When a signal from the CPU takes effect.
    cpu_signal: CpuSignal {
        /// Default: before the call is answered. The kernel stores the value so that readers see it at once (F-44).
        AtOnce = "at-once",
        /// After it, in the step that comes next: the same page says that a caller may not assume completion on return
        /// and must wait to know (FEN-026, F-45). For finding callers that assume it.
        AfterAnswer = "after-answer",
    }
    /// Order in which a device and the CPU events that were created on it are destroyed at the driver.
    cpu_event_of_device: CpuEventOfDevice {
        /// Default: the events first. The page of `DXGKARG_CREATECPUEVENT` says that they are destroyed with the
        /// device, and a driver that reaches its device through the event still finds it (E-6, EVT-017).
        EndsBefore = "ends-before",
        /// The device first: the same page says that an event does not depend on its device and may be destroyed after
        /// it. For finding drivers that reach for the device from the event (EVT-018).
        EndsAfter = "ends-after",
    }
    /// What an engine does with a command that its kind of engine does not have (a draw on a copy engine), or that
    /// names a resource that is not there.
    illegal_command: IllegalCommand {
        /// Default: it faults. D3D12's debug layer refuses such a list, and no page says how hardware treats it. Of the
        /// interrupts, DMA_FAULTED is the one for commands that cannot be run (SCH-002). A hardware queue has no such
        /// interrupt: there it is a page fault at address 0.
        Faults = "faults",
        /// The engine hangs, as on a command that it cannot decode: TDR detects it.
        Hangs = "hangs",
    }
    /// Whether queued waits are released when the last handle of their monitored fence is destroyed, NT handles
    /// included.
    destroyed_queued_wait: DestroyedQueuedWait {
        /// Default: they are released, wherever in their queues they are, and no device is lost. Observed of native
        /// D3D12. Packets behind them run, and CPU waits that were kept until the destruction of the fence are released
        /// too.
        Released = "released",
        /// Packets keep the fence alive: the wait blocks its queue until a queued signal satisfies it.
        KeepsFence = "keeps-fence",
    }
    /// Which access must be NO_ACCESS when SyncBefore is NONE. The driver's debug layer reads this.
    sync_none_access: SyncNoneAccess {
        /// Default: AccessBefore, as the D3D12 specification says.
        SameSide = "same-side",
        /// AccessAfter, as the page of `D3D12DDI_BARRIER_SYNC` says.
        After = "after",
    }
    /// Which part of an ExecuteIndirect the scope EXECUTE_INDIRECT covers. The driver's engines, its debug layer and
    /// its search for races read this.
    execute_indirect_scope: ExecuteIndirectScope {
        /// Default: the fetch of its arguments. The specification's table of accesses has the scope for these alone.
        Arguments = "arguments",
        /// All of it, as the page of `D3D12DDI_BARRIER_SYNC` says.
        Execution = "execution",
    }
    /// What the scope INPUT_ASSEMBLER fetches; read as `execute_indirect_scope` is.
    input_assembler_scope: InputAssemblerScope {
        /// Default: index buffers; the API's name of the value is INDEX_INPUT, and vertex buffers are in
        /// VERTEX_SHADING.
        IndexBuffers = "index-buffers",
        /// Vertex buffers as well: they are the input of that stage.
        VertexBuffers = "vertex-buffers",
    }
    /// Which barriers may not come between the halves of a split barrier. The driver's debug layer reads this.
    split_barriers: SplitBarriers {
        /// Default: other barriers of the same subresource. Other subresources are independent.
        BySubresource = "by-subresource",
        /// Other barriers of the same resource, as the page of `D3D12DDI_BARRIER_SYNC` says.
        ByResource = "by-resource",
    }
    /// What BUILD_RTAS and COPY_RTAS without RTAS_WRITE on their side are. The driver's debug layer reads this.
    rtas_write: RtasWrite {
        /// Default: a warning, and right with COMMON or NO_ACCESS: the specification's tables let both read.
        Warned = "warned",
        /// An error, whatever the access is: "must have the RTAS_WRITE bit set".
        Required = "required",
    }
    /// What DestroyContext does with the work that is queued in the context, and DestroyPagingQueue with its operations.
    destroyed_context: DestroyedContext {
        /// Default: the call waits until it is done, and fails if the context then owns a mutex, as the page of
        /// `pfnDestroyContextCb` says. That page names no limit: a queued wait that nothing satisfies keeps the call.
        Waits = "waits",
        /// It is dropped, and mutexes are abandoned, as when the device is destroyed. What a paging queue has outstanding
        /// takes effect at once.
        AtOnce = "at-once",
    }
}

impl Policy {
    /// For each switch whether its bit is set.
    const fn set_bits(bits: u32) -> [bool; Policy::SWITCHES.len()] {
        let mut set = [false; Policy::SWITCHES.len()];
        let mut bit = 0;
        while bit < set.len() {
            set[bit] = bits >> bit & 1 != 0;
            bit += 1;
        }
        set
    }

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
}
