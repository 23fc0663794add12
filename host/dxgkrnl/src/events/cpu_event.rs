//! CPU events that a kernel-mode driver signals: CPU_NOTIFICATION objects with SignalByKmd.
//!
//! ```text
//!   create, device D              DxgkDdiCreateCpuEvent(hKmdDevice of D, hDxgCpuEvent); its failure is the create's
//!   DxgkCbSignalEvent             the creator's event is set: as often as the driver likes
//!   the creator's handle ends,    DxgkDdiDestroyCpuEvent, once. What the driver signals before that returns still
//!   D ends, the process ends,     counts; nothing after it does (E-7)
//!   the adapter stops
//! ```
//! Whichever comes first ends the event; the object itself lives on without one while it has a handle, as every
//! legacy object outlives its device. A lost device (TDR) keeps its events: that an object went bad is what they
//! are for.
//!
//! In guest-event mode a driver signals an event of a process that it knows by the number that it was given, until it
//! says that this is the last use, or `DxgkDdiDestroyProcess` of the process returns (EVT-020). Such a number is a
//! [`GuestEvent`]: the program chose it, and it is never taken for the name of a wait of the process (EVT-022).
//!
//! An event does not count (EVT-025): signals within one step, in which no user's code runs, set it once. A signal
//! that is not as `DXGKARGCB_SIGNALEVENT` wants it sets nothing and is recorded as a violation of the driver's
//! contract: a note says which, and [`crate::Snapshot::contract_violations`] counts them (E-8, E-11).

use alloc::collections::{BTreeMap, BTreeSet};

use d3dkmt::{EventId, GuestEvent, Handle};
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::{DxgCpuEvent, KmdCpuEvent, KmdProcess};

/// What a CPU event is charged at, with the driver's part.
pub(crate) const CPU_EVENT_BYTES: u64 = 512;

/// A CPU event that its driver knows.
#[derive(Serialize, Deserialize)]
pub(crate) struct CpuEvent {
    pub process: ProcessId,
    pub adapter: u32,
    /// The device that created the object.
    pub device: u32,
    /// The creator's handle of the object.
    pub handle: Handle,
    pub event: EventId,
    pub kmd: KmdCpuEvent,
    /// How often the driver signaled it.
    pub signals: u64,
    /// The step in which it was set last.
    pub(super) set_in: u64,
}

/// Every CPU event, and what drivers did wrong with them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CpuEvents {
    pub(super) last: u64,
    pub events: BTreeMap<DxgCpuEvent, CpuEvent>,
    pub(super) of_handle: BTreeMap<(ProcessId, Handle), DxgCpuEvent>,
    /// Steps so far: the present one's number.
    pub(super) steps: u64,
    /// Events of guests that their drivers have done with (EVT-020). They go with the process.
    pub(super) last_used: BTreeSet<(KmdProcess, GuestEvent)>,
    /// What drivers did against their contract, by all calls of theirs.
    pub violations: u64,
}

impl CpuEvents {
    /// A step begins.
    #[inline]
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    pub(super) fn last_used_of(
        &self,
        process: KmdProcess,
    ) -> impl Iterator<Item = &(KmdProcess, GuestEvent)> {
        self.last_used.range((process, GuestEvent(0))..=(process, GuestEvent(u64::MAX)))
    }

    /// How many events of a guest process its driver has done with.
    pub fn last_used_count(&self, process: KmdProcess) -> usize {
        self.last_used_of(process).count()
    }

    /// The driver knows this process no more.
    pub fn forget_guest_events(&mut self, process: KmdProcess) {
        self.last_used.retain(|(of, _)| *of != process);
    }
}
