//! The charges for each kind of object, and the check before more are created. See
//! `state_memory.rs` for the rules.

use d3dkmt::{Handle, NtStatus, SyncObjectType};

use super::state_memory::{Counted, PROCESS_BYTES};
use super::{HandleTarget, Process};
use crate::ProcessId;
use crate::error::{Refusal, refuse};
use crate::events::cpu_event::CPU_EVENT_BYTES;
use crate::kernel::Kernel;
use crate::sharing::Shared;
use crate::sync::keyed_mutex::ACQUIRE_BYTES;
use crate::sync::waits::wait_bytes;
use crate::vidmm::vaspace::PIECE_BYTES;

/// Charge for the kernel's and the driver's tables of an allocation with private driver data, beside the data.
const DRIVER_ALLOCATION_BYTES: u64 = 384;

impl Kernel {
    /// How many bytes of memory a process is charged.
    pub fn memory_bytes(&self, process: ProcessId) -> Option<u64> {
        Some(self.processes.get(process)?.memory.used)
    }

    /// How many bytes of memory all processes and NT handles are charged.
    pub fn charged_bytes(&self) -> u64 {
        self.processes.charged_bytes()
    }

    /// Refuses a request for more memory than the process may have.
    #[inline]
    pub(crate) fn require_memory(&self, process: ProcessId, bytes: u64) -> Result<(), Refusal> {
        self.processes.get(process).map_or(Ok(()), |owner| self.require_memory_of(owner, bytes))
    }

    /// The same for a process that was looked up.
    #[inline]
    pub(crate) fn require_memory_of(&self, owner: &Process, bytes: u64) -> Result<(), Refusal> {
        match self.processes.shortage(owner, bytes) {
            None => Ok(()),
            Some(why) => refuse(NtStatus::NO_MEMORY, why),
        }
    }

    /// Removes a handle of a process, and releases the charge for its object.
    pub(crate) fn remove_handle(&mut self, process: ProcessId, handle: Handle) -> Option<HandleTarget> {
        let target = self.process_mut(process).handles.remove(handle)?;
        self.processes.release(process, self.weight(target));
        Some(target)
    }

    /// Bytes that are charged for a handle: its entry, and the whole object, as if no other process had that open.
    /// Constant while the handle exists.
    pub(crate) fn weight(&self, target: HandleTarget) -> u64 {
        match target {
            HandleTarget::Adapter(_) => 16,
            HandleTarget::Device(_) => 512,
            HandleTarget::Context(_) => 768,
            HandleTarget::Sync(named) => match self.sync.objects()[named.object].object_type {
                SyncObjectType::NATIVE_FENCE => 2304,
                _ => 384,
            },
            // With private runtime data, which a release may change.
            HandleTarget::KeyedMutex(_) => 512 + d3dkmt::limits::KEYED_MUTEX_DATA_BYTES_MAX as u64,
            HandleTarget::HwQueue(_) => 768,
            HandleTarget::PagingQueue(_) => 768,
            HandleTarget::Resource(open) => {
                self.resource_weight(self.vidmm.memory().resource_opens[open].resource)
            }
            HandleTarget::Allocation(open) => {
                self.allocation_weight(self.vidmm.memory().allocation_opens[open].allocation)
            }
        }
    }

    fn resource_weight(&self, resource: u32) -> u64 {
        let resource = &self.vidmm.memory().resources[resource];
        let private_data = resource.driver.as_ref().map_or(0, |(_, data)| data.len());
        512 + (resource.runtime_data.len() + private_data) as u64
    }

    fn allocation_weight(&self, allocation: u32) -> u64 {
        let driver = self.vidmm.memory().allocations[allocation].driver.as_ref();
        384 + driver.map_or(0, |driver| DRIVER_ALLOCATION_BYTES + driver.private_data.len() as u64)
    }

    /// Bytes that are charged for an NT handle: everything that it keeps alive. Constant while it exists.
    pub(crate) fn share_bytes(&self, shared: Shared) -> u64 {
        const SHARE_BYTES: u64 = 512;
        let of_resource = |resource: u32| {
            let resource = &self.vidmm.memory().resources[resource];
            let allocations = resource.allocations.len() as u64;
            let of_driver = match resource.driver {
                None => 0,
                Some(_) => allocations * DRIVER_ALLOCATION_BYTES,
            };
            let data = resource.runtime_data.len() + self.vidmm.memory().private_data_bytes(resource);
            640 + allocations * 384 + of_driver + data as u64
        };
        SHARE_BYTES
            + match shared {
                Shared::Sync(_) => 384,
                Shared::SyncFile(_) => 384 + wait_bytes(1, false),
                Shared::Resource(resource) => of_resource(resource),
                Shared::Guarded { resource, .. } => {
                    of_resource(resource) + 1024 + d3dkmt::limits::KEYED_MUTEX_DATA_BYTES_MAX as u64
                }
            }
    }

    /// Memory of a process's command buffers that engines have: the driver's, and the kernel's entries for them. It is
    /// none if it was none after the last submission or ring, and the driver is not asked then.
    pub(crate) fn driver_bytes(&self, owner: &Process, process: ProcessId, adapter: u32) -> usize {
        match owner.counted.contains_key(&Counted::Driver(adapter)) {
            true => self.engine_bytes(process, adapter),
            false => 0,
        }
    }

    fn engine_bytes(&self, process: ProcessId, adapter: u32) -> usize {
        self.miniport.held_bytes(adapter, process) + self.vidsch.in_flight().hw_bytes(adapter, process)
    }

    /// Bytes that are charged for a ring that a doorbell keeps: the allocation and what its resource has. Constant while
    /// the doorbell exists.
    pub(crate) fn ring_weight(&self, allocation: u32) -> u64 {
        let resource = self.vidmm.memory().allocations[allocation].resource;
        self.allocation_weight(allocation) + resource.map_or(0, |resource| self.resource_weight(resource))
    }

    /// Updates the charge for the driver's memory of a process, and for its submissions.
    pub(crate) fn count_driver_bytes(&mut self, process: ProcessId, adapter: u32) {
        let bytes = self.engine_bytes(process, adapter) + self.miniport.kept_bytes(adapter, process);
        self.processes.note_bytes(process, Counted::Driver(adapter), bytes as u64);
    }

    /// Updates the charge for the address space of a process.
    pub(crate) fn count_address_bytes(&mut self, process: ProcessId, adapter: u32) {
        let Some(owner) = self.processes.get(process) else { return };
        let pieces = owner.address_spaces.get(&adapter).map_or(0, |space| space.pieces());
        self.processes.note_bytes(process, Counted::Addresses(adapter), pieces as u64 * PIECE_BYTES);
    }

    /// The charge of a process, counted anew from all its objects.
    pub(crate) fn charged(&self, id: ProcessId) -> u64 {
        let process = self.process(id);
        let handles = process.handles.iter().map(|(_, target)| self.weight(target)).sum::<u64>();
        let waits = self.sync.waits();
        let own = waits.values().filter(|wait| waits.payer(wait) == Some(id));
        let waiting = own.map(|wait| waits.bytes(wait)).sum::<u64>();
        let acquiring = process.acquires.len() as u64 * ACQUIRE_BYTES;
        let events = process.cpu_events as u64 * CPU_EVENT_BYTES;
        let idle_waits = self.vidsch.idle_waits().calls();
        let escaping = process.idle_waits.iter().map(|id| idle_waits[id].escape.weight()).sum::<u64>();
        let ending = self.waiting_end_bytes(id);
        let calls = self.vidsch.work().backlog().call_bytes(self.turn_of(id));
        let counted = process.counted.values().sum::<u64>();
        let rings = self.vidmm.held_by(id).map(|allocation| self.ring_weight(allocation)).sum::<u64>();
        PROCESS_BYTES
            + handles
            + waiting
            + acquiring
            + escaping
            + ending
            + calls
            + events
            + counted
            + rings
            + process.queued_bytes as u64
    }
}
