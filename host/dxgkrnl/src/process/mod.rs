//! A client process as the kernel sees it: its handles, its fence slots, its pending waits by name.
//!
//! The first slot of its fence memory is no fence but its *status*: how many of its devices are not ACTIVE.
//! It is stored before any other effect of a stopped device is visible. So a process that finds a value
//! reached and then reads 0 there needs no call (FEN-095).

mod adapter;
mod charges;
mod device;
pub(crate) mod end;
mod ending;
pub(crate) mod handles;
pub(crate) mod pending_waits;
pub(crate) mod slots;
pub(crate) mod state_memory;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;

use d3dkmt::{EventId, limits};
use serde::{Deserialize, Serialize};

pub(crate) use device::Device;
pub(crate) use slots::Slots;
pub use slots::{STATUS_SLOT, is_fence_address};

use crate::ddi::SegmentGroup;
use crate::process::handles::{HandleTable, REFERENT_BITS, Referent};
use crate::process::pending_waits::Names;
use crate::process::state_memory::{Account, Counted, PROCESS_BYTES, VmAccount};
use crate::slab::Slab;
use crate::vidmm::vaspace::AddressSpace;
use crate::vidsch::priority::CLASS_NORMAL;
use crate::{Nanos, ProcessId, VmId};

/// Processes, and the devices that they have.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Processes {
    by_id: BTreeMap<ProcessId, Process>,
    devices: Slab<Device>,
    /// Accounts of VMs that have processes. See `state_memory.rs`.
    accounts: BTreeMap<VmId, VmAccount>,
}

impl Processes {
    #[inline]
    pub fn get(&self, id: ProcessId) -> Option<&Process> {
        self.by_id.get(&id)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.by_id.get_mut(&id)
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.devices.shorten(most)
    }

    /// Adds a process to a VM whose processes may take `vm_memory_bytes` of memory.
    pub fn insert(&mut self, id: ProcessId, process: Process, vm_memory_bytes: u64) {
        self.open_account(process.vm, vm_memory_bytes);
        self.by_id.insert(id, process);
        self.charge(id, PROCESS_BYTES);
    }

    pub fn remove(&mut self, id: ProcessId) {
        if let Some(Process { vm, memory, .. }) = self.by_id.remove(&id) {
            self.close_account(vm, memory);
        }
    }

    /// The processes of one VM, or all.
    pub fn of_vm_mut(&mut self, vm: Option<VmId>) -> impl Iterator<Item = &mut Process> {
        self.by_id.values_mut().filter(move |process| vm.is_none_or(|vm| process.vm == vm))
    }

    #[inline]
    pub fn device_mut(&mut self, id: u32) -> &mut Device {
        &mut self.devices[id]
    }

    pub fn find_device_mut(&mut self, id: u32) -> Option<&mut Device> {
        self.devices.get_mut(id)
    }

    #[inline]
    pub fn by_id(&self) -> &BTreeMap<ProcessId, Process> {
        &self.by_id
    }

    #[inline]
    pub fn devices(&self) -> &Slab<Device> {
        &self.devices
    }
}

/// What a local handle names: an index in one of the kernel's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum HandleTarget {
    Adapter(AdapterRef),
    Device(u32),
    Context(u32),
    Sync(SyncRef),
    /// An open of a keyed mutex.
    KeyedMutex(u32),
    HwQueue(u32),
    PagingQueue(u32),
    /// An open of a resource, on a device.
    Resource(u32),
    /// An open of an allocation, on a device.
    Allocation(u32),
}

/// An adapter, and which of its arrivals it was opened in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AdapterRef {
    pub ordinal: u32,
    /// At most `limits::ADAPTER_ARRIVALS_MAX`.
    pub arrival: u32,
}

/// An open of a sync object; and the object, so that both can be fetched at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SyncRef {
    pub open: u32,
    pub object: u32,
}

/// Bits of the index of an open beside that of its object.
const OPEN_BITS: u32 = 29;

const OBJECT_BITS: u32 = REFERENT_BITS - OPEN_BITS;

impl Referent for HandleTarget {
    fn pack(self) -> Option<(u64, u64)> {
        let (kind, bits) = match self {
            HandleTarget::Adapter(AdapterRef { ordinal, arrival }) => {
                (1, u64::from(arrival) << u32::BITS | u64::from(ordinal))
            }
            HandleTarget::Device(index) => (2, u64::from(index)),
            HandleTarget::Context(index) => (3, u64::from(index)),
            // Half a billion objects do not fit any host: their tables alone are 60 GB.
            HandleTarget::Sync(SyncRef { open, object })
                if open >> OPEN_BITS != 0 || object >> OBJECT_BITS != 0 =>
            {
                return None;
            }
            HandleTarget::Sync(SyncRef { open, object }) => {
                (4, u64::from(object) << OPEN_BITS | u64::from(open))
            }
            HandleTarget::KeyedMutex(index) => (5, u64::from(index)),
            HandleTarget::HwQueue(index) => (6, u64::from(index)),
            HandleTarget::PagingQueue(index) => (7, u64::from(index)),
            HandleTarget::Resource(index) => (8, u64::from(index)),
            HandleTarget::Allocation(index) => (9, u64::from(index)),
        };
        Some((kind, bits))
    }

    #[inline]
    fn unpack(kind: u64, bits: u64) -> Option<Self> {
        let index = bits as u32;
        Some(match kind {
            1 => HandleTarget::Adapter(AdapterRef { ordinal: index, arrival: (bits >> u32::BITS) as u32 }),
            2 => HandleTarget::Device(index),
            3 => HandleTarget::Context(index),
            4 => {
                let open = (bits & ((1 << OPEN_BITS) - 1)) as u32;
                HandleTarget::Sync(SyncRef { open, object: (bits >> OPEN_BITS) as u32 })
            }
            5 => HandleTarget::KeyedMutex(index),
            6 => HandleTarget::HwQueue(index),
            7 => HandleTarget::PagingQueue(index),
            8 => HandleTarget::Resource(index),
            9 => HandleTarget::Allocation(index),
            _ => return None,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Process {
    pub vm: VmId,
    pub pid: u32,
    pub name: String,
    pub handles: HandleTable<HandleTarget>,
    /// Its charge of the daemon's memory.
    pub memory: Account,
    /// Parts of it, as last counted.
    pub counted: BTreeMap<Counted, u64>,
    pub slots: Slots,
    /// Pending CPU waits by the guest's name for them.
    pub waits: Names,
    /// Pending acquires of keyed mutexes by the guest's name for them.
    pub acquires: BTreeMap<EventId, u64>,
    /// The event that is set when an adapter comes or goes.
    pub adapter_watch: Option<EventId>,
    /// Its calls that wait for an idle GPU.
    pub idle_waits: BTreeSet<u64>,
    /// Devices in the order of their handles, by the index of the handle.
    pub devices: BTreeMap<u32, u32>,
    /// Handles of each adapter, by its ordinal.
    pub adapter_opens: BTreeMap<u32, usize>,
    pub keyed_mutexes: usize,
    pub allocations: usize,
    pub contexts: usize,
    pub hw_queues: usize,
    pub paging_queues: usize,
    /// CPU events that drivers signal.
    pub cpu_events: usize,
    /// `D3DKMT_SCHEDULINGPRIORITYCLASS`.
    pub priority_class: u32,
    /// Times of the engine timeouts of its work that still count.
    pub engine_timeouts: VecDeque<Nanos>,
    /// It timed out too often, and may create no device (TDR-004).
    pub is_blocked: bool,
    /// Devices that are not ACTIVE: what its status slot holds.
    pub devices_stopped: u64,
    /// Bytes in the queues of its contexts: see [`crate::vidsch::Packet::weight`].
    pub queued_bytes: usize,
    /// The process is ending, and engines find nothing of its own memory any more.
    pub memory_is_gone: bool,
    /// Bytes that it has made resident, by ordinal of the adapter and memory segment group.
    pub resident_bytes: BTreeMap<(u32, SegmentGroup), u64>,
    /// Address of the next memory of the device that it creates. Addresses are not reused.
    pub next_device_memory: u64,
    /// Bytes that it has reserved, by ordinal of the adapter and memory segment group.
    pub reserved_bytes: BTreeMap<(u32, u32), u64>,
    /// GPU address spaces by ordinal of the adapter.
    pub address_spaces: BTreeMap<u32, AddressSpace>,
}

impl Process {
    pub fn new(vm: VmId, pid: u32, name: String) -> Self {
        Process {
            vm,
            pid,
            name,
            handles: HandleTable::new(limits::HANDLES_PER_PROCESS_MAX),
            memory: Account::default(),
            counted: BTreeMap::new(),
            slots: Slots::default(),
            waits: Names::default(),
            acquires: BTreeMap::new(),
            adapter_watch: None,
            idle_waits: BTreeSet::new(),
            devices: BTreeMap::new(),
            adapter_opens: BTreeMap::new(),
            keyed_mutexes: 0,
            allocations: 0,
            contexts: 0,
            paging_queues: 0,
            hw_queues: 0,
            cpu_events: 0,
            priority_class: CLASS_NORMAL,
            engine_timeouts: VecDeque::new(),
            is_blocked: false,
            devices_stopped: 0,
            queued_bytes: 0,
            memory_is_gone: false,
            resident_bytes: BTreeMap::new(),
            next_device_memory: limits::DEVICE_MEMORY_START,
            reserved_bytes: BTreeMap::new(),
            address_spaces: BTreeMap::new(),
        }
    }

    /// How many handles of this adapter the process has open.
    pub fn opens_of_adapter(&self, adapter: u32) -> usize {
        self.adapter_opens.get(&adapter).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{AdapterRef, HandleTarget, OBJECT_BITS, OPEN_BITS, SyncRef};
    use crate::process::handles::{HandleTable, Referent};
    use d3dkmt::limits::ADAPTER_ARRIVALS_MAX as ARRIVALS_MAX;

    #[test]
    fn the_target_of_a_handle_is_packed_without_loss() {
        let (open_most, object_most) = ((1 << OPEN_BITS) - 1, (1_u64 << OBJECT_BITS) as u32 - 1);
        let mut table = HandleTable::new(100);
        for index in [0, 1, u32::MAX] {
            for local in [
                |ordinal| HandleTarget::Adapter(AdapterRef { ordinal, arrival: ARRIVALS_MAX }),
                HandleTarget::Device,
                HandleTarget::Context,
                HandleTarget::KeyedMutex,
                HandleTarget::HwQueue,
            ] {
                let handle = table.insert(local(index)).unwrap();
                assert_eq!(table.get(handle), Some(local(index)));
            }
            let handle = table.insert(HandleTarget::PagingQueue(index)).unwrap();
            assert_eq!(table.remove(handle), Some(HandleTarget::PagingQueue(index)));
            assert_eq!((table.get(handle), table.remove(handle)), (None, None));
        }
        for (open, object) in [(0, 0), (open_most, 0), (0, object_most), (open_most, object_most)] {
            let local = HandleTarget::Sync(SyncRef { open, object });
            let handle = table.insert(local).unwrap();
            assert_eq!(table.get(handle), Some(local));
        }
        for (open, object) in [(open_most + 1, 0), (0, object_most + 1)] {
            let too_high = HandleTarget::Sync(SyncRef { open, object });
            assert_eq!((too_high.pack(), table.insert(too_high)), (None, None));
        }
    }

    #[test]
    fn a_full_table_reuses_what_is_free_and_does_not_grow() {
        let mut table = HandleTable::new(100);
        let handles: Vec<_> =
            (0..100).map(|index| table.insert(HandleTarget::Device(index)).unwrap()).collect();
        assert_eq!(table.insert(HandleTarget::Device(100)), None);
        assert_eq!(table.remove(handles[7]), Some(HandleTarget::Device(7)));
        let again = table.insert(HandleTarget::Device(100)).unwrap();
        assert_eq!((again.index(), table.get(handles[7])), (handles[7].index(), None));
        assert_eq!(table.insert(HandleTarget::Device(101)), None);
    }
}
