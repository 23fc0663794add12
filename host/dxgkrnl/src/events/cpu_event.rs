//! CPU events that a kernel-mode driver signals: CPU_NOTIFICATION objects with SignalByKmd.
//!
//! ```text
//!   create, device D              DxgkDdiCreateCpuEvent(hKmdDevice of D, hDxgCpuEvent); its failure is the create's
//!   DxgkCbSignalEvent             the creator's event is set: as often as the driver likes
//!   the creator's handle ends,    DxgkDdiDestroyCpuEvent, once. What the driver signals before that returns still
//!   D ends, the process ends,     counts; nothing after it does (E-7)
//!   the adapter stops
//! ```
//! The first of these ends the event; the object itself lives without one while it has a handle, as every
//! legacy object outlives its device. A lost device (TDR) keeps its events, because they report that an object failed.
//!
//! In guest-event mode a driver signals an event of a process by the number that the process gave it. The number is
//! valid until a signal with LastUse, or until `DxgkDdiDestroyProcess` of the process returns (EVT-020). Such a number
//! is a [`GuestEvent`]: the process chose it, and it never names a wait of the process (EVT-022).
//!
//! An event does not count (EVT-025): signals within one step, in which no user's code runs, set it once. A signal
//! that violates the rules of `DXGKARGCB_SIGNALEVENT` sets nothing and is a violation of the driver's contract: a note
//! describes it, and [`crate::Snapshot::contract_violations`] counts them (E-8, E-11).

use alloc::collections::{BTreeMap, BTreeSet};

use d3dkmt::{EventId, GuestEvent, Handle};
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::{DxgCpuEvent, KmdCpuEvent, KmdProcess};

/// Bytes that are charged for a CPU event, with the driver's part.
pub(crate) const CPU_EVENT_BYTES: u64 = 512;

/// A CPU event that its driver has created.
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

/// All CPU events, and the contract violations of drivers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CpuEvents {
    pub(super) last: u64,
    pub events: BTreeMap<DxgCpuEvent, CpuEvent>,
    pub(super) of_handle: BTreeMap<(ProcessId, Handle), DxgCpuEvent>,
    /// Steps so far: the present one's number.
    pub(super) steps: u64,
    /// Events of guests that their drivers have signaled with LastUse (EVT-020). Removed with the process.
    pub(super) last_used: BTreeSet<(KmdProcess, GuestEvent)>,
    /// Number of contract violations of drivers, in all their calls.
    pub violations: u64,
}

impl CpuEvents {
    /// Begins a step.
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

    /// Number of events of a guest process that its driver has signaled with LastUse.
    pub fn last_used_count(&self, process: KmdProcess) -> usize {
        self.last_used_of(process).count()
    }

    /// Removes the events of a process that the driver has destroyed.
    pub fn forget_guest_events(&mut self, process: KmdProcess) {
        self.last_used.retain(|(of, _)| *of != process);
    }
}
