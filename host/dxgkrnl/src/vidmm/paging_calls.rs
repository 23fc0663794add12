//! Paging queues are created and destroyed, and paging work begins and ends. See `paging.rs` for the rules.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{CreateContextFlags, Handle, NtStatus, Reply, SyncObjectFlags, SyncObjectType, limits};

use super::paging::{DrainedQueue, MappedFence, PagingQueue, Pending};
use crate::ProcessId;
use crate::ddi::{EngineId, PagingOperation, PagingWork, SignalMonitoredFence};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::{HandleTarget, Slots};
use crate::sync::mapping::Mapping;
use crate::sync::written::Mark;
use crate::sync::{NewOpen, Open};
use crate::vidmm::vaspace::PAGE_BYTES;
use crate::vidsch::{Context, EngineWrite, Level, Packet, Task};

impl Kernel {
    /// `D3DKMTCreatePagingQueue`.
    pub(crate) fn create_paging_queue(
        &mut self,
        process: ProcessId,
        device: Handle,
        priority: i32,
        physical_adapter: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let adapter = self.processes.devices()[device].adapter;
        if !(-1..=1).contains(&priority) {
            return invalid(format!("paging queue priority {priority} is none of -1, 0 and 1"));
        }
        self.require_linked(process, adapter, physical_adapter)?;
        let paging_queues = self.process(process).paging_queues;
        if paging_queues >= limits::PAGING_QUEUES_PER_PROCESS_MAX {
            let why = format!("the process has {paging_queues} paging queues, the limit");
            return refuse(NtStatus::NO_MEMORY, why);
        }
        if let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        let number = self.vidmm.paging_queues_created + 1;
        let context = self.new_system_context(device, Level::paging(priority))?;
        self.vidmm.paging_queues_created = number;
        let id = self.vidmm.paging_queues.insert(PagingQueue {
            process,
            handle: Handle::NULL,
            device,
            priority,
            number,
            context,
            fence: Handle::NULL,
            fence_slot: 0,
            last_value: 0,
            pending: VecDeque::new(),
            reached: VecDeque::new(),
            becoming_resident: BTreeSet::new(),
        });
        self.processes.device_mut(device).paging_queues.insert(id);
        self.process_mut(process).paging_queues += 1;
        let object = self.new_object(SyncObjectType::MONITORED_FENCE, SyncObjectFlags::empty(), 0, adapter);
        let created = self.insert_handle(process, HandleTarget::PagingQueue(id)).and_then(|handle| {
            let mapping = Mapping { paging_queue: Some(id), ..Mapping::default() };
            let new = NewOpen { flags: SyncObjectFlags::NO_SIGNAL, mapping, ..NewOpen::default() };
            match self.open_object(process, Some(device), object, new, effects) {
                Ok(fence) => Ok((handle, fence)),
                Err(refusal) => {
                    self.remove_handle(process, handle);
                    Err(refusal)
                }
            }
        });
        let (handle, fence) = match created {
            Ok(created) => created,
            Err(refusal) => {
                self.sync.remove_unopened(object);
                self.vidmm.paging_queues.remove(id);
                self.processes.device_mut(device).paging_queues.remove(&id);
                self.process_mut(process).paging_queues -= 1;
                self.end_system_context(context, effects);
                return Err(refusal);
            }
        };
        // The fence goes with the queue, the queue with the device.
        let children = &mut self.processes.device_mut(device).children;
        children.remove(&fence.object);
        children.insert(handle);
        self.vidsch.context_mut(context).handle = handle;
        let queue = &mut self.vidmm.paging_queues[id];
        (queue.handle, queue.fence, queue.fence_slot) = (handle, fence.object, fence.slot.unwrap_or(0));
        Ok(Reply::PagingQueue { queue: handle, fence })
    }

    /// Ends a paging queue with its fence. What it has outstanding takes effect. Answers the call that waits for its end.
    /// If an operation takes effect over several steps, the task that ends the queue behind it comes after its task.
    pub(crate) fn end_paging_queue(&mut self, id: u32, effects: &mut Effects) {
        let PagingQueue { process, handle, context, .. } = self.vidmm.paging_queues[id];
        let waiting = self.take_waiting_end(context);
        self.remove_handle(process, handle);
        let queue = self.vidmm.paging_queues.remove(id).expect("its owner is live");
        let device = self.processes.device_mut(queue.device);
        device.children.remove(&handle);
        device.paging_queues.remove(&id);
        self.process_mut(process).paging_queues -= 1;
        let adapter = self.processes.devices()[queue.device].adapter;
        let pending = queue.pending.into_iter().map(|(_, pending)| pending).collect();
        self.drain(process, DrainedQueue { adapter, pending });
        self.end_system_context(context, effects);
        let ended = self.destroy_sync_object(process, queue.fence, effects);
        debug_assert!(ended.is_ok(), "the fence goes with its queue");
        self.answer_waiting_end(process, waiting, effects);
    }

    /// Lets all of a destroyed queue take effect, as far as the units of the step reach.
    pub(crate) fn drain(&mut self, process: ProcessId, mut drained: DrainedQueue) {
        while let Some(pending) = drained.pending.pop_front() {
            self.processes.unqueue_bytes(process, pending.weight());
            if let Some(rest) = self.take_effect(process, drained.adapter, pending, None) {
                self.processes.queue_bytes(process, rest.weight());
                drained.pending.push_front(rest);
                self.leave(process, Task::Drain(drained));
                return;
            }
        }
    }

    /// Begins the operation that makes allocations resident, all of `size` bytes; returns its fence value, or 0 if it is
    /// done.
    pub(super) fn begin_transfer(&mut self, id: u32, size: u64, mut missing: Vec<(u32, u64)>) -> u64 {
        if missing.is_empty() {
            return 0;
        }
        let becoming_resident = &mut self.vidmm.paging_queues[id].becoming_resident;
        missing.retain(|allocation| becoming_resident.insert(*allocation));
        self.begin_transfer_of_all(id, size, missing)
    }

    /// The same for allocations that no other operation of the queue makes resident.
    pub(super) fn begin_transfer_of_all(&mut self, id: u32, size: u64, missing: Vec<(u32, u64)>) -> u64 {
        let adapter = self.processes.devices()[self.vidmm.paging_queues[id].device].adapter;
        let then = self.becoming_resident(adapter, missing);
        self.begin_paging(id, PagingWork::Transfer { size }, then)
    }

    /// Lets an operation that needs no paging buffer take effect at once: its process makes no call before all of it has.
    pub(super) fn take_effect_at_once(&mut self, process: ProcessId, adapter: u32, pending: Pending) {
        self.processes.queue_bytes(process, pending.weight());
        self.drain(process, DrainedQueue { adapter, pending: [pending].into() });
    }

    /// Begins an operation of a paging queue; returns its fence value, or 0 if it is done.
    pub(crate) fn begin_paging(&mut self, id: u32, work: PagingWork, then: Pending) -> u64 {
        let PagingQueue { process, device, context, fence_slot, last_value, .. } =
            self.vidmm.paging_queues[id];
        let adapter = self.processes.devices()[device].adapter;
        let Some(mut buffer) = self.miniport.build_paging_buffer(&PagingOperation { adapter, process, work })
        else {
            self.take_effect_at_once(process, adapter, then);
            return 0;
        };
        let value = last_value + 1;
        let gpu_address = self.engine_address(process, adapter, fence_slot);
        let signal = SignalMonitoredFence { adapter, process, gpu_address, value };
        self.miniport.signal_monitored_fence(&mut buffer, signal);
        self.processes.queue_bytes(process, then.weight());
        let queue = &mut self.vidmm.paging_queues[id];
        queue.last_value = value;
        queue.pending.push_back((value, then));
        let packets = self.vidsch.contexts()[context].queue;
        self.enqueue(packets, Packet::Command(buffer));
        value
    }

    /// Lets an operation take effect, of this queue unless that is destroyed. Returns what is beyond the units of the step.
    fn take_effect(
        &mut self,
        process: ProcessId,
        adapter: u32,
        pending: Pending,
        queue: Option<u32>,
    ) -> Option<Pending> {
        match pending {
            Pending::Fence(fence) => {
                self.fence_is_mapped(process, fence);
                self.spend(1);
                None
            }
            Pending::Pages(change) => {
                let rest = self.pages_change(process, adapter, change);
                self.spend(1);
                rest.map(Pending::Pages)
            }
            Pending::Resident(mut becoming) => {
                while let Some(allocation) = becoming.allocations.pop_front() {
                    if self.is_spent() {
                        becoming.allocations.push_front(allocation);
                        return Some(Pending::Resident(becoming));
                    }
                    self.spend(1);
                    if let Some(queue) = queue.and_then(|queue| self.vidmm.paging_queues.get_mut(queue)) {
                        queue.becoming_resident.remove(&allocation);
                    }
                    self.become_resident(process, allocation, becoming.resets);
                }
                None
            }
        }
    }

    /// The paging queue through which a device maps fences that it opens: its oldest. Refuses if that has no room.
    pub(crate) fn mapping_queue(&self, device: u32) -> Result<Option<u32>, Refusal> {
        let of_device = self.processes.devices()[device].paging_queues.iter().copied();
        let oldest = of_device.min_by_key(|id| self.vidmm.paging_queues[*id].number);
        let Some(id) = oldest else { return Ok(None) };
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        Ok(Some(id))
    }

    /// Maps an opened fence for engines; returns the value of the paging fence from which on it is mapped (FEN-062).
    pub(crate) fn map_opened_fence(&mut self, id: u32, open: u32, slot: u32) -> u64 {
        let fence = MappedFence { open, handle: self.sync.opens()[open].handle };
        let page = Slots::gpu_address(slot) / PAGE_BYTES * PAGE_BYTES;
        let work = PagingWork::UpdatePageTable { base: page, size: PAGE_BYTES };
        let value = self.begin_paging(id, work, Pending::Fence(fence));
        self.sync.open_mut(open).mapping.pending = Some(value).filter(|value| *value > 0);
        value
    }

    /// Completes the operations up to a value that the paging engine writes to the fence of their queue. False if that
    /// takes longer than the step: then a task does it and stores the value.
    pub(crate) fn paging_reached(&mut self, id: u32, value: u64) -> bool {
        let Some(queue) = self.vidmm.paging_queues.get_mut(id) else { return true };
        let process = queue.process;
        queue.reached.push_back(value);
        if queue.reached.len() > 1 {
            return false;
        }
        if self.complete_operations(id) {
            self.vidmm.paging_queues[id].reached.pop_front();
            return true;
        }
        self.leave(process, Task::Paging(id));
        false
    }

    /// Continues with what the paging engine has done of a queue, and stores the values that it wrote.
    pub(crate) fn continue_paging(&mut self, process: ProcessId, id: u32, effects: &mut Effects) {
        let is_of = |queue: &PagingQueue| queue.process == process && !queue.reached.is_empty();
        while self.vidmm.paging_queues.get(id).is_some_and(is_of) {
            if !self.complete_operations(id) {
                self.leave(process, Task::Paging(id));
                return;
            }
            if let Some(value) = self.vidmm.paging_queues[id].reached.pop_front() {
                self.store_paging_value(id, value, effects);
            }
        }
    }

    /// Completes the operations up to the first value that was reached; false if the units of the step do not suffice.
    fn complete_operations(&mut self, id: u32) -> bool {
        while let Some(queue) = self.vidmm.paging_queues.get_mut(id)
            && queue.pending.front().map(|(value, _)| value) <= queue.reached.front()
            && let Some((value, pending)) = queue.pending.pop_front()
        {
            let (process, adapter) = (queue.process, self.processes.devices()[queue.device].adapter);
            self.processes.unqueue_bytes(process, pending.weight());
            if let Some(rest) = self.take_effect(process, adapter, pending, Some(id)) {
                self.processes.queue_bytes(process, rest.weight());
                self.vidmm.paging_queues[id].pending.push_front((value, rest));
                return false;
            }
        }
        true
    }

    /// Stores a value that the paging engine wrote to the fence of a queue in an earlier step.
    fn store_paging_value(&mut self, id: u32, value: u64, effects: &mut Effects) {
        let PagingQueue { process, device, fence, fence_slot, context, .. } = self.vidmm.paging_queues[id];
        let Ok((open, object)) = self.sync_object(process, fence) else { return };
        // The device may have been lost since, or its adapter have left.
        if self.sync.objects().is_poisoned(object) || !self.is_on_adapter(device) {
            return;
        }
        let queue = self.vidsch.contexts()[context].queue;
        let (engine, by) = (self.vidsch.queues()[queue].engine, Some(self.agent(queue)));
        let gpu_address = self.engine_address(process, engine.adapter, fence_slot);
        let write = EngineWrite { engine, process, open, gpu_address, value, hw_queue: None, by };
        self.apply_engine_write(write, effects);
        // The interrupt behind the write has come already.
        self.evaluate_written(process, Mark::Wrote, effects);
    }

    fn fence_is_mapped(&mut self, process: ProcessId, fence: MappedFence) {
        if let Some(open) = self.sync.find_open_mut(fence.open)
            && (open.process, open.handle) == (process, fence.handle)
        {
            open.mapping.pending = None;
        }
    }

    /// Whether a write of this engine to the fence of a paging queue is from a buffer of that queue.
    pub(crate) fn is_paging_write(&self, open: &Open, engine: EngineId) -> bool {
        let queue = open.mapping.paging_queue.and_then(|id| self.vidmm.paging_queues.get(id));
        let Some(queue) = queue.and_then(|queue| self.vidsch.contexts().get(queue.context)) else {
            return false;
        };
        let runs = self.vidsch.queues()[queue.queue].running.is_some();
        queue.engine == engine && runs && self.running_has_begun(queue.queue)
    }

    /// The context in which a context's address space is updated, created when it is first needed.
    pub(crate) fn paging_context(&mut self, context: u32) -> Result<u32, Refusal> {
        if let Some(paging_context) = self.vidmm.paging_contexts.get(&context) {
            return Ok(*paging_context);
        }
        let Context { device, handle, .. } = self.vidsch.contexts()[context];
        let paging_context = self.new_system_context(device, Level::PAGING_CONTEXT)?;
        self.vidsch.context_mut(paging_context).handle = handle;
        self.vidmm.paging_contexts.insert(context, paging_context);
        Ok(paging_context)
    }

    /// Destroys the paging context of a context that ends.
    pub(crate) fn end_paging_context(&mut self, context: u32, effects: &mut Effects) {
        if let Some(paging_context) = self.vidmm.paging_contexts.remove(&context) {
            self.end_system_context(paging_context, effects);
        }
    }

    /// Creates a context of the system for work of a device: no handle of the process names it.
    fn new_system_context(&mut self, device: u32, level: Level) -> Result<u32, Refusal> {
        let (process, adapter) =
            (self.processes.devices()[device].process, self.processes.devices()[device].adapter);
        let engine = self.config.adapters[adapter as usize].paging_engine(adapter);
        let context = self.new_context(device, engine, CreateContextFlags::empty())?;
        if let Err(refusal) = self.announce_context(context) {
            self.vidsch.remove_context(context);
            return Err(refusal);
        }
        self.vidsch.context_mut(context).paging = Some(level);
        self.vidsch.context_mut(context).queue = self.new_queue(device, engine, context);
        self.process_mut(process).contexts += 1;
        Ok(context)
    }

    fn end_system_context(&mut self, context: u32, effects: &mut Effects) {
        if let Some(state) = self.vidsch.contexts().get(context) {
            self.remember_queue(state.queue);
        }
        let Some(context) = self.vidsch.remove_context(context) else { return };
        self.process_mut(context.process).contexts -= 1;
        self.end_queue(context.queue, effects);
    }

    pub(crate) fn paging_queue(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::PagingQueue(queue)) => Ok(queue),
            _ => invalid(format!("{handle} is no paging queue of this process")),
        }
    }

    /// Refuses the fence of a paging queue, which ends with the queue only.
    pub(crate) fn require_own_fence(&self, process: ProcessId, handle: Handle) -> Result<(), Refusal> {
        let (open, _) = self.sync_object(process, handle)?;
        match self.sync.opens()[open].mapping.paging_queue {
            None => Ok(()),
            Some(_) => invalid(format!("{handle} is the fence of a paging queue: it goes with the queue")),
        }
    }
}
