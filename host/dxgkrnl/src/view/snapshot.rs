//! The whole state as plain data, for `inspect`, for checkers, and for the digest at the end of a trace.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use d3dkmt::random::Fnv;
use d3dkmt::{Handle, SyncObjectType};

use crate::ddi::{AllocationDescription, DxgCpuEvent, EngineId, EngineState, PendingFaults, SegmentGroup};
use crate::kernel::Kernel;
use crate::sharing::Shared;
use crate::sync::keyed_mutex::{State, Until};
use crate::sync::waits::WaitId;
use crate::vidsch::Packet;
use crate::view::views::WaitItemView;
use crate::{Bugcheck, EngineType, Nanos, ProcessId, VmId};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshot {
    pub now: Nanos,
    pub vms: Vec<(u32, String)>,
    /// The state of each VM, in the same order.
    pub virtual_machines: Vec<VirtualMachineState>,
    pub processes: Vec<ProcessState>,
    pub devices: Vec<DeviceState>,
    pub contexts: Vec<ContextState>,
    pub hw_queues: Vec<HwQueueState>,
    pub native_fences: Vec<NativeFenceState>,
    pub objects: Vec<ObjectState>,
    pub keyed_mutexes: Vec<KeyedMutexState>,
    pub resources: Vec<ResourceState>,
    pub allocations: Vec<AllocationState>,
    pub acquires: Vec<AcquireState>,
    pub escapes: Vec<EscapeState>,
    pub nt_handles: Vec<NtHandleState>,
    pub waits: Vec<WaitState>,
    pub engines: Vec<EngineReport>,
    /// The bugcheck that took the host down, if any.
    pub bugcheck: Option<Bugcheck>,
    /// Adapters that did not start, and why.
    pub start_failures: Vec<(u32, String)>,
    pub engine_resets: u64,
    pub adapter_resets: u64,
    /// Ordinals of adapters that were stopped.
    pub stopped_adapters: Vec<u32>,
    /// Objects alive, with or without an open.
    pub objects_alive: u32,
    pub shares: u32,
    pub paging_queues: Vec<PagingQueueState>,
    pub gpu_va_ranges: Vec<GpuVaRangeState>,
    /// NotificationIDs of the periodic fences that displays count up.
    pub notifications: Vec<u64>,
    pub cpu_events: Vec<CpuEventState>,
    pub kmd_processes: Vec<KmdProcessState>,
    /// How often drivers broke their contract.
    pub contract_violations: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessState {
    pub process: u32,
    pub vm: u32,
    pub pid: u32,
    pub name: String,
    /// `D3DKMT_SCHEDULINGPRIORITYCLASS`.
    pub priority_class: u32,
    /// Blocked from the GPU, because its work timed out too often.
    pub blocked: bool,
    pub handles: u32,
    pub fence_slots: u32,
    pub fence_slots_used: u32,
    /// Wake-ups that it gets when it is thawed; `None` if it is not frozen.
    pub held_wakes: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VirtualMachineState {
    pub secure: bool,
    /// `hKmdVmWorkerProcess`.
    pub worker: u64,
    /// Ordinals of the adapters of which it has a virtual function.
    pub adapters: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeviceState {
    pub process: u32,
    pub handle: Handle,
    pub adapter: u32,
    pub state: u32,
    /// The page fault that took it down, or all zero.
    pub page_fault_flags: u32,
    pub page_fault_address: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContextState {
    pub process: u32,
    pub handle: Handle,
    pub node: u32,
    /// The submission on the engine, if any, then the packets in order, one line each.
    pub queue: Vec<String>,
    pub priority: i32,
    pub in_process_priority: i32,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HwQueueState {
    pub process: u32,
    /// NULL for one that was destroyed and only drains.
    pub handle: Handle,
    pub context: Handle,
    pub flags: u32,
    pub progress_fence: Handle,
    pub progress: u64,
    pub submitted: u64,
    pub last_queued: u64,
    /// `D3DDDI_DOORBELLSTATUS`.
    pub doorbell: Option<u64>,
    /// As [`ContextState::queue`].
    pub queue: Vec<String>,
}

/// A native fence on one adapter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NativeFenceState {
    pub adapter: u32,
    pub global: u64,
    pub current_value: u64,
    pub monitored_value: u64,
    pub always_signaled: bool,
}

/// A CPU event that a driver signals.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CpuEventState {
    pub process: u32,
    /// The creator's handle of the object, and its device.
    pub handle: Handle,
    pub device: Handle,
    pub adapter: u32,
    /// The guest's name for its event.
    pub event: u64,
    /// `hDxgCpuEvent` and `hKmdCpuEvent`.
    pub dxg: u64,
    pub kmd: u64,
    /// How often the driver signaled it.
    pub signals: u64,
}

/// A process as the driver of one adapter knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KmdProcessState {
    pub process: u32,
    pub adapter: u32,
    /// `hKmdProcess`.
    pub kmd: u64,
    /// Events of guest-event mode whose last use the driver has signaled.
    pub last_used_events: u32,
}

/// One open of a sync object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectState {
    pub process: u32,
    pub handle: Handle,
    pub object_type: SyncObjectType,
    pub flags: u32,
    pub value: u64,
    pub slot: Option<u32>,
    /// Waits for its value, and queues in its line.
    pub waiters: u32,
    /// The owner of a mutex: the process, and its context or device. A NULL handle if that is gone.
    pub owner: Option<(u32, Handle)>,
    pub poisoned: bool,
}

/// One open of a resource.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResourceState {
    pub process: u32,
    pub handle: Handle,
    pub device: Handle,
    /// Which resource: the same number for each open of it.
    pub resource: u32,
    /// NULL if it is not shared by one.
    pub shared_handle: Handle,
    pub runtime_data_bytes: u32,
    /// Its process has destroyed it, and work that was queued before may still use its memory.
    pub destroyed: bool,
}

/// One open of an allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AllocationState {
    pub process: u32,
    pub handle: Handle,
    pub device: Handle,
    /// The open of the resource that it goes with, or NULL.
    pub resource: Handle,
    /// Which allocation: the same number for each open of it.
    pub allocation: u32,
    /// Bytes.
    pub size: u64,
    /// An address of the process that created it; from `d3dkmt::limits::DEVICE_MEMORY_START` on of memory of the device.
    pub address: u64,
    /// How often its device made it resident and did not evict it again.
    pub residency: u32,
    /// Engines find it where it is mapped, unless it is memory of a process that has ended.
    pub resident: bool,
    /// How often it is locked.
    pub locks: u32,
    /// `D3DDDI_ALLOCATIONPRIORITY`, of the allocation.
    pub priority: u32,
    /// Its process has destroyed it, and work that was queued before may still use it.
    pub destroyed: bool,
    /// Of an allocation with private driver data.
    pub driver: Option<DriverAllocationState>,
}

/// What the driver has made of an allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DriverAllocationState {
    pub private_data_bytes: u32,
    pub alignment: u32,
    pub segment_group: SegmentGroup,
    pub cpu_visible: bool,
    /// Its driver does not know its size, which is that of what its creator has mapped.
    pub grows: bool,
    /// `DxgkDdiDescribeAllocation`: of a picture.
    pub description: Option<AllocationDescription>,
}

/// One open of a keyed mutex.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyedMutexState {
    pub process: u32,
    pub handle: Handle,
    /// Which mutex: the same number for each open of it.
    pub mutex: u32,
    pub key: u64,
    pub fence_value: u64,
    pub data_bytes: u32,
    /// This open owns it.
    pub owns: bool,
    pub abandoned: bool,
    /// Pending acquires through any open.
    pub waiters: u32,
}

/// A pending acquire of a keyed mutex.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AcquireState {
    pub process: u32,
    pub event: u64,
    pub handle: Handle,
    pub key: u64,
    /// When it times out, by the daemon's clock.
    pub relative: Option<Nanos>,
    /// The same by the system's clock.
    pub absolute_100ns: Option<i64>,
    pub since: Nanos,
}

/// An escape that waits for an idle GPU.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EscapeState {
    pub process: u32,
    pub adapter: u32,
    pub since: Nanos,
}

/// An NT handle of a shared object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NtHandleState {
    pub vm: u32,
    pub access: u32,
    /// The object's name as it was given to ShareObjects (W-125).
    pub name: Option<String>,
    /// `None`: of a resource, or a sync file of a fence that is not shared.
    pub object_type: Option<SyncObjectType>,
    pub value: u64,
    /// Of a sync file: the value that it waits for.
    pub awaited: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WaitState {
    pub process: u32,
    /// The guest's name for it; `None` for the wait of a context.
    pub event: Option<u64>,
    pub context: Option<Handle>,
    pub any: bool,
    pub since: Nanos,
    pub items: Vec<WaitItemState>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WaitItemState {
    /// NULL if the handle it was made through is gone.
    pub object: Handle,
    pub value: u64,
    pub current: u64,
    pub satisfied: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EngineReport {
    pub adapter: u32,
    pub node: u32,
    pub kind: EngineType,
    pub state: EngineState,
    pub faults: PendingFaults,
    /// The last completed `SubmissionFenceId`, and the last submitted one (SCH-007).
    pub last_completed: u64,
    pub last_submitted: u64,
    /// Command buffers that wait for it, paging buffers included.
    pub ready: u32,
}

/// A paging queue; its packets are those of the context with the same handle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PagingQueueState {
    pub process: u32,
    pub handle: Handle,
    pub fence: Handle,
    pub priority: i32,
    /// The value of the latest operation that has begun.
    pub last_value: u64,
}

/// A range of a process's GPU address space.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GpuVaRangeState {
    pub process: u32,
    pub adapter: u32,
    pub base: u64,
    pub size: u64,
    /// Bytes that are mapped as Zero.
    pub zero_bytes: u64,
    /// Bytes that are mapped to allocations. All other bytes are NoAccess.
    pub allocation_bytes: u64,
}

impl Snapshot {
    /// A 64-bit digest of the state.
    pub fn digest(&self) -> u64 {
        let mut hasher = Fnv::default();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// True if no process, device, context, object or wait is left.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.devices.is_empty()
            && self.contexts.is_empty()
            && self.hw_queues.is_empty()
            && self.native_fences.is_empty()
            && self.objects_alive == 0
            && self.waits.is_empty()
            && self.keyed_mutexes.is_empty()
            && self.resources.is_empty()
            && self.allocations.is_empty()
            && self.acquires.is_empty()
            && self.escapes.is_empty()
            && self.shares == 0
            && self.notifications.is_empty()
            && self.paging_queues.is_empty()
            && self.gpu_va_ranges.is_empty()
            && self.cpu_events.is_empty()
            && self.kmd_processes.is_empty()
    }
}

impl Kernel {
    /// The whole state, in the order of ids.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            now: self.now,
            vms: self.guests.vms().iter().map(|(VmId(id), vm)| (*id, vm.config.name.clone())).collect(),
            virtual_machines: self.virtual_machine_states(),
            processes: self.process_states(),
            devices: self.processes.devices().iter().map(|(_, device)| device_state(device)).collect(),
            contexts: self.vidsch.contexts().iter().map(|(_, context)| self.context_state(context)).collect(),
            hw_queues: self.vidsch.hw_queues().iter().map(|(_, queue)| self.hw_queue_state(queue)).collect(),
            native_fences: self.native_fence_states(),
            objects: self.object_states(),
            keyed_mutexes: self.keyed_mutex_states(),
            resources: self.resource_states(),
            allocations: self.allocation_states(),
            acquires: self.acquire_states(),
            escapes: self.escape_states(),
            nt_handles: self.nt_handle_states(),
            waits: self.waits_in_order().map(|(_, wait)| self.wait_state(wait)).collect(),
            engines: self.engine_reports(),
            bugcheck: self.tdr.bugcheck().clone(),
            start_failures: self.tdr.start_failures().iter().map(|(id, why)| (*id, why.clone())).collect(),
            engine_resets: self.tdr.engine_resets(),
            adapter_resets: self.tdr.adapter_resets(),
            stopped_adapters: self.tdr.stopped_adapters().iter().copied().collect(),
            objects_alive: self.sync.objects().len() as u32,
            shares: self.sharing.shares().len() as u32,
            paging_queues: self.paging_queue_states(),
            gpu_va_ranges: self.gpu_va_range_states(),
            notifications: self.events.notifications().keys().copied().collect(),
            cpu_events: self.cpu_event_states(),
            kmd_processes: self.kmd_process_states(),
            contract_violations: self.events.cpu_events().violations,
        }
    }

    fn hw_queue_state(&self, queue: &crate::vidsch::HwQueue) -> HwQueueState {
        HwQueueState {
            process: queue.process.0,
            handle: queue.handle,
            context: self.vidsch.contexts()[queue.context].handle,
            flags: queue.flags.bits(),
            progress_fence: queue.progress_fence,
            progress: self.sync.objects().value(queue.progress),
            submitted: queue.submitted,
            last_queued: queue.last_queued,
            doorbell: queue.doorbell.as_ref().map(|doorbell| doorbell.status as u64),
            queue: self.queue_lines(queue.queue),
        }
    }

    fn context_state(&self, context: &crate::vidsch::Context) -> ContextState {
        ContextState {
            process: context.process.0,
            handle: context.handle,
            node: context.engine.node,
            queue: self.queue_lines(context.queue),
            priority: context.priority,
            in_process_priority: context.in_process_priority,
        }
    }

    /// A line for each submission of a queue that the engine has, then for each of its packets.
    fn queue_lines(&self, queue: u32) -> Vec<String> {
        use alloc::format;
        let queue = &self.vidsch.queues()[queue];
        let of_hw_queue = queue.in_flight.iter().map(|submission| submission.submission_fence_id);
        let running =
            queue.running.into_iter().chain(of_hw_queue).map(|id| format!("running submission {id}"));
        let ready = queue.ready.as_ref().map(|command| match command.resubmits {
            None => format!("ready command buffer of {} bytes", command.commands.len()),
            Some(id) => format!("ready again after submission {id}"),
        });
        let packet = |packet: &Packet| match packet {
            Packet::Wait(wait) => format!("wait for {:?}", self.waited_values(*wait)),
            Packet::Acquire(acquire) => format!("acquire {} mutexes or semaphores", acquire.objects.len()),
            Packet::WaitAtHead(items) => {
                format!("wait for {:?} when reached", items.iter().map(|item| item.value).collect::<Vec<_>>())
            }
            Packet::Signal(signal) => match signal.event {
                Some(event) => format!("set CPU event {}", event.0),
                None => {
                    format!("signal {:?}", signal.targets.iter().map(|(_, value)| value).collect::<Vec<_>>())
                }
            },
            Packet::Broadcast(_) => String::from("broadcast signal"),
            Packet::Mark(_) => String::from("end or offer of memory"),
            Packet::PageTables(operations) => format!("update of {} address ranges", operations.len()),
            Packet::Command(bytes) => format!("command buffer of {} bytes", bytes.len()),
            Packet::HwCommand { progress_fence_id, commands } => {
                format!("command buffer of {} bytes up to progress {progress_fence_id}", commands.len())
            }
        };
        running.chain(ready).chain(queue.packets.iter().map(packet)).collect()
    }

    /// The values that a pending wait is for.
    fn waited_values(&self, wait: WaitId) -> Vec<u64> {
        let waits = self.sync.waits();
        let pending = waits.get(wait).map(|wait| waits.items(wait).iter());
        pending.into_iter().flatten().map(|item| item.value).collect()
    }

    fn native_fence_states(&self) -> Vec<NativeFenceState> {
        let mut states = Vec::new();
        self.native_fences(&mut |fence| {
            states.push(NativeFenceState {
                adapter: fence.adapter,
                global: fence.fence.0,
                current_value: fence.current_value,
                monitored_value: fence.monitored_value,
                always_signaled: fence.always_signaled,
            });
        });
        states
    }

    fn virtual_machine_states(&self) -> Vec<VirtualMachineState> {
        let state = |vm: &crate::guests::VirtualMachine| VirtualMachineState {
            secure: vm.config.secure,
            worker: vm.worker.0,
            adapters: vm.adapters.iter().copied().collect(),
        };
        self.guests.vms().values().map(state).collect()
    }

    fn process_states(&self) -> Vec<ProcessState> {
        let state = |(ProcessId(id), process): (&ProcessId, &crate::process::Process)| ProcessState {
            process: *id,
            vm: process.vm.0,
            pid: process.pid,
            name: process.name.clone(),
            priority_class: process.priority_class,
            blocked: process.is_blocked,
            handles: process.handles.len() as u32,
            fence_slots: process.slots.capacity(),
            fence_slots_used: process.slots.used(),
            held_wakes: self.guests.frozen().get(&ProcessId(*id)).map(|deferred| deferred.len() as u32),
        };
        self.processes.by_id().iter().map(state).collect()
    }

    fn object_states(&self) -> Vec<ObjectState> {
        let line = |object| self.sync.legacy().objects.get(&object).map_or(0, |state| state.line.len());
        let state = |(_, open): (u32, &crate::sync::Open)| {
            let object = &self.sync.objects()[open.object];
            ObjectState {
                process: open.process.0,
                handle: open.handle,
                object_type: object.object_type,
                flags: open.flags.bits(),
                value: self.sync.objects().value(open.object),
                slot: open.slot,
                waiters: (self.sync.objects().waiters_count(open.object) + line(open.object)) as u32,
                owner: self.sync.legacy().owner(open.object).map(|owner| (owner.process.0, owner.by)),
                poisoned: self.sync.objects().is_poisoned(open.object),
            }
        };
        self.sync.opens().iter().map(state).collect()
    }

    fn keyed_mutex_states(&self) -> Vec<KeyedMutexState> {
        let state = |(id, open): (u32, &crate::sync::keyed_mutex::MutexOpen)| {
            let mutex = &self.keyed.mutexes()[open.mutex];
            KeyedMutexState {
                process: open.process.0,
                handle: open.handle,
                mutex: open.mutex,
                key: mutex.key,
                fence_value: mutex.fence_value,
                data_bytes: mutex.data.len() as u32,
                owns: mutex.state == State::Owned(id),
                abandoned: mutex.state == State::Abandoned,
                waiters: mutex.waiters.len() as u32,
            }
        };
        self.keyed.opens().iter().map(state).collect()
    }

    fn acquire_states(&self) -> Vec<AcquireState> {
        let state = |acquire: &crate::sync::keyed_mutex::PendingAcquire| AcquireState {
            process: acquire.process.0,
            event: acquire.event.0,
            handle: self.keyed.opens()[acquire.open].handle,
            key: acquire.key,
            relative: if let Until::Relative(due) = acquire.until { Some(due) } else { None },
            absolute_100ns: if let Until::Absolute(due) = acquire.until { Some(due) } else { None },
            since: acquire.since,
        };
        self.keyed.acquires().values().map(state).collect()
    }

    fn escape_states(&self) -> Vec<EscapeState> {
        let waiting = self.vidsch.idle_waits().calls().values();
        let state = |wait: &crate::vidsch::IdleWait| EscapeState {
            process: wait.process.0,
            adapter: wait.adapter,
            since: wait.since,
        };
        waiting.map(state).collect()
    }

    fn nt_handle_states(&self) -> Vec<NtHandleState> {
        let sync_of = |shared: Shared| match shared {
            Shared::Sync(object) => Some(object),
            Shared::SyncFile(sync_file) => self.sharing.sync_files()[sync_file].object,
            Shared::Resource(_) | Shared::Guarded { .. } => None,
        };
        let awaited_of = |shared: Shared| match shared {
            Shared::SyncFile(sync_file) => Some(self.sharing.sync_files()[sync_file].value),
            Shared::Sync(_) | Shared::Resource(_) | Shared::Guarded { .. } => None,
        };
        let state = |share: &crate::sharing::Share| NtHandleState {
            vm: share.vm.0,
            access: share.access,
            name: share.name.as_ref().and_then(|name| {
                let shared_name = self.sharing.names().get(&(share.vm, name.clone()))?;
                Some(shared_name.spelling.clone())
            }),
            object_type: sync_of(share.shared).map(|object| self.sync.objects()[object].object_type),
            value: sync_of(share.shared).map_or(0, |object| self.sync.objects().value(object)),
            awaited: awaited_of(share.shared),
        };
        self.sharing.shares().values().map(state).collect()
    }

    fn wait_state(&self, wait: &crate::sync::waits::Wait) -> WaitState {
        let view = self.wait_view(wait);
        let item = |item: WaitItemView| WaitItemState {
            object: item.handle,
            value: item.value,
            current: item.current,
            satisfied: item.satisfied,
        };
        WaitState {
            process: view.process.0,
            event: view.event.map(|event| event.0),
            context: view.context,
            any: view.any,
            since: wait.since,
            items: view.items().map(item).collect(),
        }
    }

    fn paging_queue_states(&self) -> Vec<PagingQueueState> {
        let state = |(_, queue): (u32, &crate::vidmm::paging::PagingQueue)| PagingQueueState {
            process: queue.process.0,
            handle: queue.handle,
            fence: queue.fence,
            priority: queue.priority,
            last_value: queue.last_value,
        };
        self.vidmm.paging_queues().iter().map(state).collect()
    }

    pub(super) fn gpu_va_range_states(&self) -> Vec<GpuVaRangeState> {
        let mut states = Vec::new();
        for (ProcessId(process), owner) in self.processes.by_id() {
            for (adapter, space) in &owner.address_spaces {
                states.extend(space.ranges().map(|(base, size, zero_bytes, allocation_bytes)| {
                    let (process, adapter) = (*process, *adapter);
                    GpuVaRangeState { process, adapter, base, size, zero_bytes, allocation_bytes }
                }));
            }
        }
        states
    }

    fn cpu_event_states(&self) -> Vec<CpuEventState> {
        let state = |(dxg, event): (&DxgCpuEvent, &crate::events::cpu_event::CpuEvent)| CpuEventState {
            process: event.process.0,
            handle: event.handle,
            device: self.processes.devices()[event.device].handle,
            adapter: event.adapter,
            event: event.event.0,
            dxg: dxg.0,
            kmd: event.kmd.0,
            signals: event.signals,
        };
        self.events.cpu_events().events.iter().map(state).collect()
    }

    fn kmd_process_states(&self) -> Vec<KmdProcessState> {
        let kmd_processes = self.guests.driver_ids().processes.iter();
        kmd_processes
            .map(|(kmd, (ProcessId(process), adapter))| KmdProcessState {
                process: *process,
                adapter: *adapter,
                kmd: kmd.0,
                last_used_events: self.events.cpu_events().last_used_count(*kmd) as u32,
            })
            .collect()
    }

    fn engine_reports(&self) -> Vec<EngineReport> {
        let adapters = (0..).zip(&self.config.adapters);
        let engines = adapters.flat_map(|(adapter, config)| config.engines(adapter));
        engines.map(|(engine, node)| self.engine_report(engine, node.engine_type)).collect()
    }

    pub(super) fn engine_report(&self, engine: EngineId, kind: EngineType) -> EngineReport {
        let state = self.vidsch.in_flight().engines.get(&engine);
        EngineReport {
            adapter: engine.adapter,
            node: engine.node,
            kind,
            state: self.miniport.engine_state(engine),
            faults: self.miniport.pending_faults(engine),
            last_completed: state.map_or(0, |state| state.completed),
            last_submitted: state.map_or(0, |state| state.last),
            ready: state.map_or(0, |state| state.ready.len()) as u32,
        }
    }
}

fn device_state(device: &crate::process::Device) -> DeviceState {
    DeviceState {
        process: device.process.0,
        handle: device.handle,
        adapter: device.adapter,
        state: device.state.0,
        page_fault_flags: device.page_fault.flags,
        page_fault_address: device.page_fault.gpu_address,
    }
}
