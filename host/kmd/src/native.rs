//! Native fences as the hardware has them: memory, MonitoredValues, what is mapped where.
//!
//! The simulated GPU has no memory of its own to read; what stands in the CurrentValues is kept here, by storage: the
//! global handles of a cross-adapter fence have one. A wait in hardware is looked at when something is stored from
//! its own adapter, or when the kernel says so: a store of another adapter changes the memory and nothing else.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{
    CurrentValueUpdate, LocalNativeFenceId, NativeFenceId, NativeFenceStorage, NewNativeFence,
    OpenedNativeFence,
};

struct Fence {
    adapter: u32,
    storage: NativeFenceStorage,
    monitored_value: u64,
    /// Stores do nothing any more.
    always_signaled: bool,
}

/// A place in a process's GPU address space, on one adapter.
type Place = (u32, ProcessId, u64);

#[derive(Default)]
pub(crate) struct NativeFences {
    fences: BTreeMap<NativeFenceId, Fence>,
    /// CurrentValues, and how many global handles have each.
    memory: BTreeMap<NativeFenceStorage, (u64, u32)>,
    locals: BTreeMap<LocalNativeFenceId, Place>,
    /// With whether engines may store there.
    mapped: BTreeMap<Place, (NativeFenceId, bool)>,
    /// Fences whose waits in hardware are to be looked at, in the order of what happened.
    pub touched: VecDeque<NativeFenceId>,
}

/// What a store by an engine leads to.
pub(crate) enum Stored {
    /// No native fence is mapped there to be written: memory of another kind, or a store that comes to nothing.
    Elsewhere,
    /// Nothing: the fence is signaled for ever.
    Ignored,
    Native {
        fence: NativeFenceId,
        interrupts: bool,
    },
}

impl NativeFences {
    pub fn create(&mut self, new: &NewNativeFence) {
        let NewNativeFence { fence, adapter, storage, monitored_value, .. } = *new;
        let memory = self.memory.entry(storage).or_insert((new.current_value, 0));
        memory.1 += 1;
        self.fences.insert(fence, Fence { adapter, storage, monitored_value, always_signaled: false });
    }

    pub fn destroy(&mut self, fence: NativeFenceId) {
        let Some(state) = self.fences.remove(&fence) else { return };
        if let Some(memory) = self.memory.get_mut(&state.storage) {
            memory.1 -= 1;
            if memory.1 == 0 {
                self.memory.remove(&state.storage);
            }
        }
    }

    pub fn open(&mut self, opened: &OpenedNativeFence) {
        let Some(fence) = self.fences.get(&opened.fence) else { return };
        let place = (fence.adapter, opened.process, opened.gpu_address);
        self.locals.insert(opened.local, place);
        self.mapped.insert(place, (opened.fence, opened.writable));
    }

    pub fn close(&mut self, local: LocalNativeFenceId) {
        if let Some(place) = self.locals.remove(&local) {
            self.mapped.remove(&place);
        }
    }

    pub fn at(&self, adapter: u32, process: ProcessId, gpu_address: u64) -> Option<NativeFenceId> {
        self.mapped.get(&(adapter, process, gpu_address)).map(|(fence, _)| *fence)
    }

    pub fn adapter_of(&self, fence: NativeFenceId) -> Option<u32> {
        Some(self.fences.get(&fence)?.adapter)
    }

    /// The CurrentValue; all ones for a fence that is signaled for ever.
    pub fn value(&self, fence: NativeFenceId) -> Option<u64> {
        let state = self.fences.get(&fence)?;
        if state.always_signaled {
            return Some(u64::MAX);
        }
        Some(self.memory.get(&state.storage)?.0)
    }

    /// An engine stores: the value first, then the comparison (FEN-099).
    pub fn store(&mut self, adapter: u32, process: ProcessId, gpu_address: u64, value: u64) -> Stored {
        let Some((fence, true)) = self.mapped.get(&(adapter, process, gpu_address)).copied() else {
            return Stored::Elsewhere;
        };
        let Some(state) = self.fences.get(&fence) else { return Stored::Elsewhere };
        if state.always_signaled {
            return Stored::Ignored;
        }
        if let Some(memory) = self.memory.get_mut(&state.storage) {
            memory.0 = value;
        }
        self.touched.push_back(fence);
        Stored::Native { fence, interrupts: value > state.monitored_value }
    }

    /// Another adapter's engine stored: the memory is one.
    pub fn written_elsewhere(&mut self, storage: NativeFenceStorage, value: u64) {
        if let Some(memory) = self.memory.get_mut(&storage) {
            memory.0 = value;
        }
    }

    /// `DxgkDdiUpdateMonitoredValues`: stores the MonitoredValues, a barrier, reads the CurrentValues; gives the fences
    /// that are above (FEN-100).
    pub fn update_monitored_values(&mut self, values: &[(NativeFenceId, u64)]) -> Vec<(u32, NativeFenceId)> {
        for (fence, value) in values {
            if let Some(state) = self.fences.get_mut(fence) {
                state.monitored_value = *value;
            }
        }
        let above = values.iter().filter(|(fence, value)| self.value(*fence).is_some_and(|now| now > *value));
        above.filter_map(|(fence, _)| Some((self.adapter_of(*fence)?, *fence))).collect()
    }

    /// `DxgkDdiUpdateCurrentValuesFromCpu`. With `notification_only` the memory was written by the kernel: here too it
    /// takes what stands there.
    pub fn update_current_value(&mut self, update: &CurrentValueUpdate) {
        let Some(state) = self.fences.get_mut(&update.fence) else { return };
        state.always_signaled |= update.always_signaled;
        if let Some(memory) = self.memory.get_mut(&state.storage) {
            memory.0 = update.value;
        }
        self.touched.push_back(update.fence);
    }
}
