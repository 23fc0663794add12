//! Native fences: created, opened, closed, destroyed.
//!
//! A native fence has a *global* handle on each adapter that has it, and a *local* one for each process and adapter
//! that has it open, however often (FEN-107):
//!
//! ```text
//!   create (A)       DxgkDdiCreateNativeFence(global), DxgkDdiOpenNativeFence(local of A)
//!   open (B)         DxgkDdiOpenNativeFence(local of B)
//!   A destroys its   DxgkDdiCloseNativeFence(local of A)
//!   B destroys its   DxgkDdiCloseNativeFence(local of B), DxgkDdiDestroyNativeFence(global)
//! ```
//! All native opens of one process share a slot of its fence memory, and with it both addresses (FEN-108).
//!
//! A fence with CrossAdapter may be opened on another adapter: natively if that has native fences, else as a monitored
//! one; and a monitored fence with CrossAdapter natively on another adapter (FEN-116). Its MonitoredValue is 0 for good
//! on each adapter, so that each signal interrupts (FEN-114).
//!
//! `values.rs` has the two values and interrupt 19, `log.rs` the log buffers, `storage.rs` the pages.

mod fence_calls;
mod log;
mod log_reads;
mod storage;
mod values;

use alloc::collections::{BTreeMap, BTreeSet};

use d3dkmt::SyncObjectFlags;
use serde::{Deserialize, Serialize};
use storage::Storage;

pub(crate) use log::NativeFenceLogs;

use crate::ProcessId;
use crate::ddi::{LocalNativeFenceId, NativeFenceId, NativeFenceStorage};

/// All native fences.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct NativeFences {
    /// Native fences by object.
    fences: BTreeMap<u32, NativeFence>,
    /// Objects by global handle.
    globals: BTreeMap<NativeFenceId, u32>,
    handles: u64,
    storage: Storage,
    /// Objects whose waits changed and whose MonitoredValue is not updated yet.
    dirty: BTreeSet<u32>,
    /// Objects that an engine stored above the MonitoredValue, without an interrupt since.
    written: BTreeSet<u32>,
}

/// State of a native fence, beside that of its object.
#[derive(Serialize, Deserialize)]
pub(crate) struct NativeFence {
    pub cross_adapter: bool,
    pub storage: NativeFenceStorage,
    pub adapters: BTreeMap<u32, OnAdapter>,
    locals: BTreeMap<(ProcessId, u32), LocalFence>,
    /// The native opens, each with its adapter.
    opens: BTreeMap<u32, u32>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct OnAdapter {
    pub fence: NativeFenceId,
    pub monitored_value: u64,
}

#[derive(Serialize, Deserialize)]
struct LocalFence {
    local: LocalNativeFenceId,
    opens: u32,
    slot: u32,
    /// As it was opened at the driver.
    writable: bool,
}

/// Parameters of `D3DKMTCreateNativeFence`.
pub(crate) struct NewFence {
    pub initial_value: u64,
    pub native_type: u32,
    pub flags: SyncObjectFlags,
    pub engine_affinity: u32,
}

impl NativeFences {
    /// Native fences by object.
    pub fn fences(&self) -> &BTreeMap<u32, NativeFence> {
        &self.fences
    }

    /// Objects that an engine stored above the MonitoredValue, without an interrupt since.
    pub fn written(&self) -> &BTreeSet<u32> {
        &self.written
    }

    /// Whether no MonitoredValue is to be updated.
    pub fn is_settled(&self) -> bool {
        self.dirty.is_empty()
    }

    fn next_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    /// The adapter and the local handle of an open in a process, if it is native.
    fn local_of_open(&self, process: ProcessId, object: u32, open: u32) -> Option<(u32, LocalNativeFenceId)> {
        let fence = self.fences.get(&object)?;
        let adapter = *fence.opens.get(&open)?;
        Some((adapter, fence.locals.get(&(process, adapter))?.local))
    }

    /// The fence of an object, if this open of it is native.
    pub fn of_open(&self, object: u32, open: u32) -> Option<&NativeFence> {
        self.fences.get(&object).filter(|fence| fence.opens.contains_key(&open))
    }
}
