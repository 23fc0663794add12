//! Native fences in the hardware: their memory, their MonitoredValues, and where they are mapped.
//!
//! The simulated GPU cannot read memory, so this module keeps the CurrentValues, by storage. The global handles of a
//! cross-adapter fence share one storage. The hardware checks a wait when an engine of its own adapter stores, or when
//! the kernel requests it. A store by another adapter changes only the memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use d3dkmt::isa::ResourceName;
use d3dkmt::list_escape::FenceFlags;
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{
    CurrentValueUpdate, LocalNativeFenceId, NativeFenceId, NativeFenceStorage, NewNativeFence,
    OpenedNativeFence,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Fence {
    adapter: u32,
    storage: NativeFenceStorage,
    monitored_value: u64,
    /// Its number in happens-before events.
    number: u64,
    /// The fence is signaled forever; stores have no effect.
    always_signaled: bool,
}

/// Adapter, process and GPU virtual address.
pub(crate) type GpuLocation = (u32, ProcessId, u64);

/// A process's description of a fence, for the debug layer only.
type Described = (FenceFlags, ResourceName);

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct NativeFences {
    fences: BTreeMap<NativeFenceId, Fence>,
    /// CurrentValue and number of global handles of each storage.
    memory: BTreeMap<NativeFenceStorage, (u64, u32)>,
    locals: BTreeMap<LocalNativeFenceId, GpuLocation>,
    /// Fence mapped at each location, and whether engines may store there.
    mapped: BTreeMap<GpuLocation, (NativeFenceId, bool)>,
    /// Locations where each fence is mapped.
    locations: BTreeMap<NativeFenceId, BTreeSet<GpuLocation>>,
    /// Debug-layer descriptions by location. A description survives when the kernel closes and reopens the fence.
    described: BTreeMap<GpuLocation, (NativeFenceId, Described)>,
    /// Locations with a description of each fence.
    described_at: BTreeMap<NativeFenceId, BTreeSet<GpuLocation>>,
    /// Fences by storage.
    sharers: BTreeMap<NativeFenceStorage, BTreeSet<NativeFenceId>>,
    /// Fences whose hardware waits must be checked, in order of the changes.
    pub touched: VecDeque<NativeFenceId>,
}

/// Result of a store by an engine.
pub(crate) enum Stored {
    /// No writable native fence is mapped there: other memory, or a store without effect.
    Elsewhere,
    /// The fence is signaled forever; the store has no effect.
    Ignored,
    Native {
        fence: NativeFenceId,
        interrupts: bool,
    },
}

impl NativeFences {
    pub fn create(&mut self, new: &NewNativeFence) {
        let NewNativeFence { fence, adapter, storage, monitored_value, number, .. } = *new;
        let memory = self.memory.entry(storage).or_insert((new.current_value, 0));
        memory.1 += 1;
        self.sharers.entry(storage).or_default().insert(fence);
        let new = Fence { adapter, storage, monitored_value, number, always_signaled: false };
        self.fences.insert(fence, new);
    }

    pub fn destroy(&mut self, fence: NativeFenceId) {
        let Some(state) = self.fences.remove(&fence) else { return };
        for location in self.described_at.remove(&fence).unwrap_or_default() {
            self.described.remove(&location);
        }
        if let Some(memory) = self.memory.get_mut(&state.storage) {
            memory.1 -= 1;
            if memory.1 == 0 {
                self.memory.remove(&state.storage);
            }
        }
        if let Some(sharers) = self.sharers.get_mut(&state.storage) {
            sharers.remove(&fence);
            if sharers.is_empty() {
                self.sharers.remove(&state.storage);
            }
        }
    }

    pub fn open(&mut self, opened: &OpenedNativeFence) {
        let Some(fence) = self.fences.get(&opened.fence) else { return };
        let location = (fence.adapter, opened.process, opened.gpu_address);
        self.locals.insert(opened.local, location);
        if self.described.get(&location).is_some_and(|(of, _)| *of != opened.fence) {
            self.forget_description(location);
        }
        self.unmap(location);
        self.mapped.insert(location, (opened.fence, opened.writable));
        self.locations.entry(opened.fence).or_default().insert(location);
    }

    fn forget_description(&mut self, location: GpuLocation) {
        let Some((fence, _)) = self.described.remove(&location) else { return };
        if let Some(locations) = self.described_at.get_mut(&fence) {
            locations.remove(&location);
            if locations.is_empty() {
                self.described_at.remove(&fence);
            }
        }
    }

    /// Forgets what an ended process has described, of fences that others have open.
    pub fn end_process(&mut self, (adapter, process): (u32, ProcessId)) {
        let all = (adapter, process, 0)..=(adapter, process, u64::MAX);
        let locations: Vec<GpuLocation> = self.described.range(all).map(|(location, _)| *location).collect();
        locations.into_iter().for_each(|location| self.forget_description(location));
    }

    /// Closes a local handle and returns where it was mapped.
    pub fn close(&mut self, local: LocalNativeFenceId) -> Option<GpuLocation> {
        let location = self.locals.remove(&local)?;
        self.unmap(location);
        Some(location)
    }

    /// Where a local handle is mapped.
    pub fn location(&self, local: LocalNativeFenceId) -> Option<GpuLocation> {
        self.locals.get(&local).copied()
    }

    fn unmap(&mut self, location: GpuLocation) {
        let Some((fence, _)) = self.mapped.remove(&location) else { return };
        if let Some(locations) = self.locations.get_mut(&fence) {
            locations.remove(&location);
            if locations.is_empty() {
                self.locations.remove(&fence);
            }
        }
    }

    /// Locations where a fence is mapped, in all processes.
    pub fn locations_of(&self, fence: NativeFenceId) -> impl Iterator<Item = GpuLocation> {
        self.locations.get(&fence).into_iter().flatten().copied()
    }

    /// Stores a process's description of the fence that is mapped there. False if none is.
    pub fn describe(&mut self, location: GpuLocation, described: Described) -> bool {
        let Some((fence, _)) = self.mapped.get(&location) else { return false };
        let fence = *fence;
        self.forget_description(location);
        self.described.insert(location, (fence, described));
        self.described_at.entry(fence).or_default().insert(location);
        true
    }

    /// Description and value of the fence that is mapped there.
    pub fn described(&self, location: GpuLocation) -> Option<(Option<Described>, u64)> {
        let (fence, _) = self.mapped.get(&location)?;
        let description = self.described.get(&location).filter(|(of, _)| of == fence);
        Some((description.map(|(_, described)| *described), self.value(*fence)?))
    }

    /// GPU addresses of the fences of a process on an adapter.
    pub fn addresses(&self, (adapter, process): (u32, ProcessId)) -> impl Iterator<Item = u64> + use<'_> {
        let first = (adapter, process, 0)..=(adapter, process, u64::MAX);
        self.mapped.range(first).map(|((_, _, gpu_address), _)| *gpu_address)
    }

    /// Every process that maps a fence, with its adapter; one that maps more is repeated.
    pub fn spaces(&self) -> impl Iterator<Item = (u32, ProcessId)> {
        self.mapped.keys().map(|(adapter, process, _)| (*adapter, *process))
    }

    /// Locations where a fence's storage is mapped, except `but`.
    pub fn storage_locations(&self, fence: NativeFenceId, except: Option<GpuLocation>) -> Vec<GpuLocation> {
        let Some(state) = self.fences.get(&fence) else { return Vec::new() };
        let sharers = self.sharers.get(&state.storage).into_iter().flatten();
        let locations = sharers.flat_map(|fence| self.locations_of(*fence));
        locations.filter(|location| Some(*location) != except).collect()
    }

    pub fn at(&self, adapter: u32, process: ProcessId, gpu_address: u64) -> Option<NativeFenceId> {
        self.mapped.get(&(adapter, process, gpu_address)).map(|(fence, _)| *fence)
    }

    pub fn adapter_of(&self, fence: NativeFenceId) -> Option<u32> {
        Some(self.fences.get(&fence)?.adapter)
    }

    /// The fence's number in happens-before events.
    pub fn number(&self, fence: NativeFenceId) -> Option<u64> {
        Some(self.fences.get(&fence)?.number)
    }

    /// The CurrentValue; all ones for a fence that is signaled forever.
    pub fn value(&self, fence: NativeFenceId) -> Option<u64> {
        let state = self.fences.get(&fence)?;
        if state.always_signaled {
            return Some(u64::MAX);
        }
        Some(self.memory.get(&state.storage)?.0)
    }

    /// Stores for an engine: the value first, then the comparison (FEN-099).
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

    /// Records a store by an engine of another adapter to shared storage. Returns a fence with this storage, if any.
    pub fn written_elsewhere(&mut self, storage: NativeFenceStorage, value: u64) -> Option<NativeFenceId> {
        self.memory.get_mut(&storage)?.0 = value;
        self.sharers.get(&storage)?.first().copied()
    }

    /// `DxgkDdiUpdateMonitoredValues`: stores the MonitoredValues, a barrier, reads the CurrentValues; returns the
    /// fences whose CurrentValue is greater (FEN-100).
    pub fn update_monitored_values(&mut self, values: &[(NativeFenceId, u64)]) -> Vec<(u32, NativeFenceId)> {
        for (fence, value) in values {
            if let Some(state) = self.fences.get_mut(fence) {
                state.monitored_value = *value;
            }
        }
        let above = values.iter().filter(|(fence, value)| self.value(*fence).is_some_and(|now| now > *value));
        above.filter_map(|(fence, _)| Some((self.adapter_of(*fence)?, *fence))).collect()
    }

    /// `DxgkDdiUpdateCurrentValuesFromCpu`. With `notification_only` the kernel has already written the memory; the
    /// value is recorded here either way.
    pub fn update_current_value(&mut self, update: &CurrentValueUpdate) {
        let Some(state) = self.fences.get_mut(&update.fence) else { return };
        state.always_signaled |= update.always_signaled;
        if let Some(memory) = self.memory.get_mut(&state.storage) {
            memory.0 = update.value;
        }
        self.touched.push_back(update.fence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCES: [NativeFenceId; 2] = [NativeFenceId(1), NativeFenceId(2)];

    fn opened(local: u64, fence: NativeFenceId, process: u32, gpu_address: u64) -> OpenedNativeFence {
        let local = LocalNativeFenceId(local);
        OpenedNativeFence { local, fence, process: ProcessId(process), gpu_address, writable: true }
    }

    fn described(native: &NativeFences) -> (usize, usize) {
        (native.described.len(), native.described_at.len())
    }

    #[test]
    fn a_description_ends_with_its_process_or_when_another_fence_is_mapped_there() {
        let mut native = NativeFences::default();
        for (fence, page) in FENCES.into_iter().zip(1..) {
            native.create(&NewNativeFence {
                fence,
                adapter: 0,
                native_type: 0,
                current_value: 0,
                monitored_value: 0,
                storage: NativeFenceStorage { page, offset_bytes: 0 },
                number: page,
            });
        }
        let description = (FenceFlags::empty(), ResourceName::default());
        // Each process opens the first fence, describes it and exits; the fence lives on.
        for process in 1..=3 {
            native.open(&opened(u64::from(process), FENCES[0], process, 0x1000));
            assert!(native.describe((0, ProcessId(process), 0x1000), description));
            native.close(LocalNativeFenceId(u64::from(process)));
            assert_eq!(
                described(&native),
                (1, 1),
                "it outlasts a close, because the kernel may open it again"
            );
            native.end_process((0, ProcessId(process)));
            assert_eq!(described(&native), (0, 0));
        }
        native.open(&opened(9, FENCES[0], 9, 0x1000));
        assert!(native.describe((0, ProcessId(9), 0x1000), description));
        native.close(LocalNativeFenceId(9));
        native.open(&opened(10, FENCES[1], 9, 0x1000));
        assert_eq!(described(&native), (0, 0));
    }
}
