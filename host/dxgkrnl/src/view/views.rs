//! Cheap views of the state, for checkers that run after every step: no snapshot, and no allocation but one list where
//! there are waits.
//!
//! Objects of a process are counted in the tables themselves, not in the process's record, so that leaks show. An index
//! identifies an object while the object lives, and is reused after it.

use core::fmt;

use d3dkmt::{EventId, Handle, HwQueueFlags, SyncObjectType};

use crate::DoorbellStatus;
use crate::ProcessId;
use crate::ddi::{
    Agent, EngineId, EngineState, HwContext, HwQueueId, NativeFenceId, NativeFenceLogHeader,
    NativeFenceStorage,
};
use crate::kernel::Kernel;
use crate::process::Device;
use crate::process::HandleTarget;
use crate::slab::Slab;
use crate::sync::object::SyncObject;
use crate::sync::objects::Objects;
use crate::sync::waits::{Wait, WaitId, WaitItem, WaitItems, WaitOwner};
use crate::sync::{Open, is_mapped};
use crate::vidsch::{Context, Packet};

/// One open of a fence: monitored, periodic or legacy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceView {
    pub process: ProcessId,
    pub handle: Handle,
    /// Where the process reads the value; legacy fences have none.
    pub slot: Option<u32>,
    /// Which fence: the same number for each open of it.
    pub object: u32,
    pub value: u64,
    /// Set to its largest value by a reset. Its storage may have any value.
    pub poisoned: bool,
}

/// What a handle of a process names, if it is a synchronization object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectView {
    /// As [`FenceView::object`].
    pub object: u32,
    pub object_type: SyncObjectType,
    /// As [`FenceView::slot`].
    pub slot: Option<u32>,
    pub value: u64,
    /// Whether it is a TopOfPipeline fence, whose signals by queues order no work and are not reported to drivers.
    pub is_top_of_pipeline: bool,
}

/// A call that is answered once work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingCall {
    pub process: ProcessId,
    /// 0 of a one-way call.
    pub request: u64,
    pub waits_for: AwaitedWork,
}

/// The work that a [`WaitingCall`] waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AwaitedWork {
    /// All of an adapter: an escape with HardwareAccess.
    OfGpu,
    /// The context's, which is destroyed.
    OfContext(Handle),
    /// The paging queue's, which is destroyed.
    OfPagingQueue(Handle),
    /// The device's whose memory a call with SynchronousDestroy destroys: what is before the marks of this round.
    OfDevice { round: u64 },
}

impl fmt::Display for AwaitedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AwaitedWork::OfContext(context) => write!(f, "DestroyContext, for the work of context {context}"),
            AwaitedWork::OfPagingQueue(queue) => {
                write!(f, "DestroyPagingQueue, for the work of paging queue {queue}")
            }
            AwaitedWork::OfGpu => f.write_str("an escape with HardwareAccess, for an idle GPU"),
            AwaitedWork::OfDevice { .. } => {
                f.write_str("DestroyAllocation with SynchronousDestroy, for the work of its device")
            }
        }
    }
}

/// A context that a process has created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextView {
    pub process: ProcessId,
    /// NULL for one of the system, as that of a paging queue.
    pub handle: Handle,
    pub context: HwContext,
    pub engine: EngineId,
}

/// A hardware queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwQueueView {
    pub process: ProcessId,
    /// NULL for one that was destroyed and ends when its last work is done.
    pub handle: Handle,
    pub hw_queue: HwQueueId,
    pub device: Handle,
    pub context: Handle,
    pub engine: EngineId,
    pub flags: HwQueueFlags,
    /// The greatest `HwQueueProgressFenceId` submitted.
    pub submitted: u64,
    /// The value of the progress fence.
    pub progress: u64,
    /// Submissions of the kernel that the engine has.
    pub in_flight: u32,
    /// Status and the slot in which the process reads it.
    pub doorbell: Option<(DoorbellStatus, u32)>,
    pub last_queued: u64,
    /// The headers of the logs of waits and signals.
    pub logged: Option<(NativeFenceLogHeader, NativeFenceLogHeader)>,
}

/// A native fence on one adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeFenceView {
    /// As [`FenceView::object`].
    pub object: u32,
    pub adapter: u32,
    pub fence: NativeFenceId,
    pub storage: NativeFenceStorage,
    pub current_value: u64,
    pub monitored_value: u64,
    pub always_signaled: bool,
}

/// A pending wait.
#[derive(Clone, Copy)]
pub struct WaitView<'a> {
    pub process: ProcessId,
    /// The guest's name for it; `None` for the wait of a context.
    pub event: Option<EventId>,
    /// The context whose queue it blocks; `None` for a CPU wait.
    pub context: Option<Handle>,
    pub any: bool,
    items: WaitItems<&'a [WaitItem]>,
    objects: &'a Objects,
    opens: &'a Slab<Open>,
}

/// One item of a pending wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitItemView {
    /// As [`FenceView::object`]. The object of a satisfied item may be gone.
    pub object: u32,
    /// The handle it was made through; NULL if that is gone.
    pub handle: Handle,
    /// The slot where the process reads the value, while the handle lives.
    pub slot: Option<u32>,
    pub value: u64,
    /// The value now. For a satisfied item whose object may be gone, the value that it waited for.
    pub current: u64,
    /// The value was reached once, whatever it is now.
    pub satisfied: bool,
}

/// Counts of the objects of a process; all zero for an unknown process that left nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Belongings {
    pub handles: u32,
    pub devices: u32,
    pub contexts: u32,
    pub hw_queues: u32,
    /// Opens of synchronization objects.
    pub opens: u32,
    /// Pending waits, CPU and context, acquires of keyed mutexes, and escapes that wait for an idle GPU.
    pub waits: u32,
    pub keyed_mutexes: u32,
    /// Mutexes that its contexts or devices own.
    pub owned_mutexes: u32,
    pub slots_used: u32,
    pub paging_queues: u32,
    /// Ranges of its GPU address spaces.
    pub gpu_va_ranges: u32,
    pub resources: u32,
    pub allocations: u32,
    /// CPU events that drivers signal.
    pub cpu_events: u32,
    /// Adapters whose driver knows the process.
    pub kmd_processes: u32,
    /// Wake-ups that are held back for a frozen process.
    pub held_wakes: u32,
}

impl<'a> WaitView<'a> {
    pub fn items(&self) -> impl Iterator<Item = WaitItemView> + 'a {
        let WaitView { process, items, objects, opens, .. } = *self;
        items.iter().map(move |item| {
            let same = |open: &&Open| {
                let has_handle = item.handle == Handle::NULL || item.handle == open.handle;
                has_handle && (open.process, open.object) == (process, item.object)
            };
            let open = item.open.and_then(|open| opens.get(open)).filter(same);
            // A CPU wait holds no object that it no longer needs, so the object of a latched item may be gone.
            let is_live = open.is_some() || !item.satisfied;
            WaitItemView {
                object: item.object,
                handle: open.map_or(Handle::NULL, |open| open.handle),
                slot: open.and_then(|open| open.slot),
                value: item.value,
                current: if is_live { objects.value(item.object) } else { item.value },
                satisfied: item.satisfied,
            }
        })
    }
}

impl Kernel {
    /// Every open of a fence.
    pub fn fences(&self, each: &mut impl FnMut(FenceView)) {
        for (_, open) in self.sync.opens().iter() {
            let object = &self.sync.objects()[open.object];
            if is_mapped(object.object_type) || object.object_type == SyncObjectType::FENCE {
                let Open { process, handle, object: number, slot, .. } = *open;
                let (value, poisoned) =
                    (self.sync.objects().value(number), self.sync.objects().is_poisoned(number));
                each(FenceView { process, handle, slot, object: number, value, poisoned });
            }
        }
    }

    /// The synchronization object that a handle of a process names.
    pub fn object(&self, process: ProcessId, handle: Handle) -> Option<ObjectView> {
        let sync_ref = self.processes.get(process)?.find_sync_object(handle)?;
        let object_type = self.sync.objects().get(sync_ref.object)?.object_type;
        let (slot, value) =
            (self.sync.opens().get(sync_ref.open)?.slot, self.sync.objects().value(sync_ref.object));
        let is_top_of_pipeline = self.signals_early(sync_ref.object);
        Some(ObjectView { object: sync_ref.object, object_type, slot, value, is_top_of_pipeline })
    }

    /// Number of a queue's packets and of its submissions that the engine has; `None` if its context or hardware queue
    /// is gone.
    pub fn queue_length(&self, of: Agent) -> Option<usize> {
        let queue = match of {
            Agent::Process(_) => return None,
            Agent::Context(HwContext(context)) => self.vidsch.contexts().get(context)?.queue,
            Agent::HwQueue(HwQueueId(number)) => self.vidsch.hw_queues().get(number)?.queue,
        };
        let queue = self.vidsch.queues().get(queue)?;
        let submitted = usize::from(queue.running.is_some() || queue.ready.is_some()) + queue.in_flight.len();
        Some(queue.packets.len() + submitted)
    }

    /// Every pending wait, in the order they came.
    pub fn pending_waits(&self, each: &mut impl FnMut(WaitView<'_>)) {
        for (_, wait) in self.waits_in_order() {
            each(self.wait_view(wait));
        }
    }

    /// The pending waits of processes, without those of queues that are gone.
    pub(crate) fn waits_in_order(&self) -> impl Iterator<Item = (WaitId, &Wait)> {
        self.sync.waits().iter().filter(|(_, wait)| match wait.owner() {
            WaitOwner::Cpu { .. } => true,
            WaitOwner::Gpu { queue } => self.vidsch.queues().get(queue).is_some(),
            WaitOwner::SyncFile { .. } => false,
        })
    }

    pub(crate) fn wait_view<'a>(&'a self, wait: &'a Wait) -> WaitView<'a> {
        let (process, event, context) = match wait.owner() {
            WaitOwner::Cpu { process, event } => (process, Some(event), None),
            WaitOwner::Gpu { queue } => {
                let context = &self.vidsch.contexts()[self.vidsch.queues()[queue].context];
                (context.process, None, Some(context.handle))
            }
            WaitOwner::SyncFile { .. } => unreachable!("no wait of a process"),
        };
        let (objects, opens) = (&self.sync.objects(), &self.sync.opens());
        WaitView {
            process,
            event,
            context,
            any: wait.any,
            items: self.sync.waits().items(wait),
            objects,
            opens,
        }
    }

    /// Every fence that an engine wrote and that no interrupt has reported since. Its waits are not evaluated yet
    /// (FEN-017), or never if the interrupt was lost. As [`FenceView::object`]; it may be gone.
    pub fn unseen_writes(&self, each: &mut impl FnMut(u32)) {
        self.sync.written().fences().chain(self.native.written().iter().copied()).for_each(each);
    }

    /// Whether client processes see engines' writes at once, on all adapters. If not, the memory of fences of
    /// [`Self::unseen_writes`] may be behind their values.
    pub fn is_io_coherent(&self) -> bool {
        self.config.adapters.iter().all(|adapter| adapter.io_coherent)
    }

    /// All calls that are answered once work is done.
    pub fn waiting_calls(&self, each: &mut dyn FnMut(WaitingCall)) {
        for (context, end) in self.vidsch.waiting_ends() {
            let Context { process, handle, ref paging, .. } = self.vidsch.contexts()[*context];
            let waits_for = match paging {
                Some(_) => AwaitedWork::OfPagingQueue(handle),
                None => AwaitedWork::OfContext(handle),
            };
            each(WaitingCall { process, request: end.request, waits_for });
        }
        for wait in self.vidsch.idle_waits().calls().values() {
            let (process, request) = (wait.process, wait.request);
            each(WaitingCall { process, request, waits_for: AwaitedWork::OfGpu });
        }
        self.vidmm.after_work().synchronous(&mut |process, request, round| {
            each(WaitingCall { process, request, waits_for: AwaitedWork::OfDevice { round } });
        });
    }

    /// Counts of a process's objects in the tables.
    pub fn belongings(&self, process: ProcessId) -> Belongings {
        let owner = self.processes.get(process);
        let of_wait = |wait: &&Wait| match wait.owner() {
            WaitOwner::Cpu { process: owner, .. } => owner == process,
            WaitOwner::Gpu { queue } => {
                self.vidsch.queues().get(queue).is_some_and(|queue| queue.process == process)
            }
            WaitOwner::SyncFile { .. } => false,
        };
        Belongings {
            handles: owner.map_or(0, |owner| owner.handles.len() as u32),
            devices: count(self.processes.devices().iter().filter(|(_, device)| device.process == process)),
            contexts: count(self.vidsch.contexts().iter().filter(|(_, context)| context.process == process)),
            hw_queues: count(self.vidsch.hw_queues().iter().filter(|(_, queue)| queue.process == process)),
            opens: count(self.sync.opens().iter().filter(|(_, open)| open.process == process)),
            waits: count(self.sync.waits().values().filter(of_wait))
                + count(self.keyed.acquires().values().filter(|acquire| acquire.process == process))
                + count(self.vidsch.idle_waits().calls().values().filter(|wait| wait.process == process)),
            keyed_mutexes: count(self.keyed.opens().iter().filter(|(_, open)| open.process == process)),
            owned_mutexes: self.owned_mutexes(process),
            slots_used: owner.map_or(0, |owner| owner.slots.used()),
            paging_queues: count(
                self.vidmm.paging_queues().iter().filter(|(_, queue)| queue.process == process),
            ),
            gpu_va_ranges: owner
                .map_or(0, |owner| owner.address_spaces.values().map(|space| space.len() as u32).sum()),
            resources: count(
                self.vidmm.memory().resource_opens.iter().filter(|(_, open)| open.process == process),
            ),
            allocations: count(
                self.vidmm.memory().allocation_opens.iter().filter(|(_, open)| open.process == process),
            ),
            cpu_events: self.cpu_events_of(process),
            kmd_processes: self.kmd_processes_of(process),
            held_wakes: self.guests.frozen().get(&process).map_or(0, |deferred| deferred.len() as u32),
        }
    }

    /// Names a count that is kept twice, in a table and in the record of its owner, and that does not agree.
    #[expect(clippy::too_many_lines, reason = "a line for each count")]
    pub fn miscounted(&self) -> Option<&'static str> {
        if let Some(wrong) = self.misscheduled() {
            return Some(wrong);
        }
        let packets = self.vidsch.queues().iter().flat_map(|(_, queue)| &queue.packets);
        let packets = packets.chain(self.vidsch.work().backlog().packets());
        let waiting = packets.filter(|packet| matches!(packet, Packet::Wait(_))).count();
        if self.happens_before.ended() > waiting {
            return Some("waits that are over");
        }
        if self.processes.is_misaccounted() {
            return Some("the accounts of memory");
        }
        if self.sync.written_fences_are_wrong() {
            return Some("the fences that engines wrote");
        }
        let is_foreign = |device: u32, wait: WaitId| {
            let wait = self.sync.waits().get(wait);
            wait.is_some_and(|wait| self.sync.waits().foreign_device(wait) == Some(device))
        };
        let mut devices = self.processes.devices().iter();
        if devices.any(|(id, device)| !device.foreign_waits.iter().all(|wait| is_foreign(id, *wait))) {
            return Some("the waits of a device for fences of other devices");
        }
        for (id, process) in self.processes.by_id() {
            if process.memory.used != self.charged(*id) {
                return Some("the memory of a process");
            }
            let own_wait = |wait: &&Wait| wait.is_of(*id);
            let contexts =
                || self.vidsch.contexts().iter().map(|(_, context)| context).filter(|one| one.process == *id);
            let queues = self.vidsch.queues().iter().map(|(_, queue)| queue).filter(|one| one.process == *id);
            let weights = queues.flat_map(|queue| &queue.packets).map(Packet::weight);
            if process.waits.len() != self.sync.waits().values().filter(own_wait).count() {
                return Some("the waits of a process");
            }
            if process.contexts != contexts().count() {
                return Some("the contexts of a process");
            }
            if process.hw_queues
                != self.vidsch.hw_queues().iter().filter(|(_, queue)| queue.process == *id).count()
            {
                return Some("the hardware queues of a process");
            }
            let is_exempt = |queue: &u32| {
                self.vidsch.hw_queues()[*queue].flags.contains(HwQueueFlags::DISABLE_GPU_TIMEOUT)
            };
            let exempt_of =
                |context: &Context| context.hardware.queues.iter().filter(|id| is_exempt(id)).count();
            if contexts().any(|context| context.hardware.exempt_queues != exempt_of(context)) {
                return Some("the exempt hardware queues of a context");
            }
            let paging_queues = self.vidmm.paging_queues().iter().filter(|(_, queue)| queue.process == *id);
            if process.paging_queues != paging_queues.count() {
                return Some("the paging queues of a process");
            }
            let drained_bytes = self.vidsch.work().backlog().drained_bytes(self.turn_of(*id));
            let paging_bytes = self.vidmm.pending_bytes(*id) + drained_bytes;
            if process.queued_bytes != weights.sum::<usize>() + paging_bytes {
                return Some("the queued bytes of a process");
            }
        }
        let lives = |device: &Device, child: &Handle| {
            let handles = &self.processes.get(device.process)?.handles;
            Some(match handles.get(*child)? {
                HandleTarget::Context(context) => self.vidsch.contexts().get(context)?.handle == *child,
                HandleTarget::Sync(sync_ref) => self.sync.opens().get(sync_ref.open)?.handle == *child,
                HandleTarget::PagingQueue(queue) => self.vidmm.paging_queues().get(queue)?.handle == *child,
                HandleTarget::Resource(open) => {
                    self.vidmm.memory().resource_opens.get(open)?.handle == *child
                }
                HandleTarget::Allocation(open) => {
                    self.vidmm.memory().allocation_opens.get(open)?.handle == *child
                }
                HandleTarget::Adapter(_)
                | HandleTarget::Device(_)
                | HandleTarget::HwQueue(_)
                | HandleTarget::KeyedMutex(_) => false,
            })
        };
        let is_whole = |device: &Device| device.children.iter().all(|one| lives(device, one) == Some(true));
        if !self.processes.devices().iter().all(|(_, device)| is_whole(device)) {
            return Some("what belongs to a device");
        }
        if self.sync.objects().miscounted(self.sync.opens()) {
            return Some("what is kept of objects for signals");
        }
        if self.sync.has_unnoted_waits() {
            return Some("the opens without waits");
        }
        if self.waiting_ends_are_miscounted() {
            return Some("the calls that wait for contexts");
        }
        if self.vidsch.progress_fences().len() != self.vidsch.hw_queues().len() {
            return Some("the progress fences");
        }
        if self.native.fences().keys().any(|object| self.sync.objects().get(*object).is_none()) {
            return Some("the native fences");
        }
        if !self.vidmm.paging_contexts().iter().all(|(one, other)| {
            self.vidsch.contexts().get(*one).is_some() && self.vidsch.contexts().get(*other).is_some()
        }) {
            return Some("the paging contexts of contexts");
        }
        let periodic = |object: &SyncObject| {
            object.object_type == SyncObjectType::PERIODIC_MONITORED_FENCE
                && !self.tdr.stopped_adapters().contains(&object.adapter)
                && !object.is_removed()
        };
        if self.events.notifications().len()
            != self.sync.objects().iter().filter(|(_, object)| periodic(object)).count()
        {
            return Some("the periodic frame notifications");
        }
        self.legacy_miscounted()
            .or_else(|| self.sharing_miscounted())
            .or_else(|| self.keyed_miscounted())
            .or_else(|| self.memory_miscounted())
            .or_else(|| self.addresses_miscounted())
            .or_else(|| self.guests_miscounted())
            .or_else(|| self.cpu_events_miscounted())
            .or_else(|| self.virtual_machines_miscounted())
    }

    /// Names a mismatch between the queues and the scheduler's engines.
    fn misscheduled(&self) -> Option<&'static str> {
        let (mut ready, mut in_flight) = (0, 0);
        for (_, queue) in self.vidsch.queues().iter() {
            let engine = self.vidsch.in_flight().engines.get(&queue.engine);
            // A submission that a reset dropped stays with its queue until the lost device's queue is emptied.
            let is_lost = self.vidsch.work().backlog().is_losing(queue.device);
            if !is_lost && queue.running.is_some_and(|id| engine.is_none_or(|engine| !engine.has(id))) {
                return Some("what runs of a queue");
            }
            if queue.running.is_some() && queue.ready.is_some() {
                return Some("a queue both ready and running");
            }
            ready += usize::from(queue.ready.is_some());
            in_flight += queue.in_flight.len();
        }
        let engines = || self.vidsch.in_flight().engines.values();
        if in_flight != engines().map(|engine| engine.hw_work.submissions_count()).sum::<usize>() {
            return Some("what the engines have of hardware queues");
        }
        let mut rings = engines().flat_map(|engine| engine.hw_work.rings());
        if rings.any(|queue| self.vidsch.queues().get(queue).is_none()) {
            return Some("the rings with work");
        }
        if !engines().all(|engine| engine.ready.is_sound()) {
            return Some("the turns of what is ready");
        }
        let of_engines = engines().map(|engine| engine.ready.len()).sum::<usize>();
        (of_engines != ready).then_some("the ready queues of the engines")
    }

    /// Every context.
    pub fn contexts(&self, each: &mut impl FnMut(ContextView)) {
        for (number, context) in self.vidsch.contexts().iter() {
            let Context { process, handle, engine, .. } = *context;
            each(ContextView { process, handle, context: HwContext(number), engine });
        }
    }

    /// Every hardware queue.
    pub fn hw_queues(&self, each: &mut impl FnMut(HwQueueView)) {
        for (number, queue) in self.vidsch.hw_queues().iter() {
            each(HwQueueView {
                process: queue.process,
                handle: queue.handle,
                hw_queue: HwQueueId(number),
                device: self.processes.devices()[self.vidsch.contexts()[queue.context].device].handle,
                context: self.vidsch.contexts()[queue.context].handle,
                engine: self.vidsch.contexts()[queue.context].engine,
                flags: queue.flags,
                submitted: queue.submitted,
                progress: self.sync.objects().value(queue.progress),
                in_flight: self.vidsch.queues()[queue.queue].in_flight.len() as u32,
                doorbell: queue.doorbell.as_ref().map(|doorbell| (doorbell.status, doorbell.slot)),
                last_queued: queue.last_queued,
                logged: queue.logs.as_ref().map(|logs| (logs.waits.header, logs.signals.header)),
            });
        }
    }

    /// Every native fence, once for each adapter that has it.
    pub fn native_fences(&self, each: &mut impl FnMut(NativeFenceView)) {
        for (object, fence) in self.native.fences() {
            for (adapter, on_adapter) in &fence.adapters {
                each(NativeFenceView {
                    object: *object,
                    adapter: *adapter,
                    fence: on_adapter.fence,
                    storage: fence.storage,
                    current_value: self.sync.objects().value(*object),
                    monitored_value: on_adapter.monitored_value,
                    always_signaled: self.sync.objects().is_poisoned(*object),
                });
            }
        }
    }

    /// The slot in which a process reads how many of its devices are not ACTIVE; none without fence memory.
    pub fn status_slot(&self, process: ProcessId) -> Option<u32> {
        self.processes.get(process)?.slots.status()
    }

    /// The attached processes, in the order of their numbers.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.processes.by_id().keys().copied()
    }

    /// NT handles of shared objects, in all VMs.
    pub fn nt_handles(&self) -> usize {
        self.sharing.shares().len()
    }

    /// Number of resets of engines and adapters.
    pub fn resets(&self) -> u64 {
        self.tdr.engine_resets() + self.tdr.adapter_resets()
    }

    /// True if no engine has anything to run.
    pub fn engines_idle(&self) -> bool {
        let adapters = (0..).zip(&self.config.adapters);
        let mut engines = adapters.flat_map(|(adapter, config)| config.engines(adapter));
        engines.all(|(engine, _)| self.miniport.engine_state(engine) == EngineState::Idle)
    }
}

fn count(items: impl Iterator) -> u32 {
    items.count() as u32
}
