//! Synchronization objects are created, opened and destroyed. See `open.rs` for the rules.

use alloc::format;

use d3dkmt::{
    CreatedSyncObject, Handle, NtStatus, Reply, SyncObjectFlags, SyncObjectInfo, SyncObjectType, limits,
};

use super::open::{NewOpen, Open, check_flags, is_mapped};
use crate::ProcessId;
use crate::ddi::HappensBefore;
use crate::effects::{Effects, FenceStore};
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::policy::DestroyedQueuedWait;
use crate::process::{HandleTarget, Process, SyncRef};
use crate::sharing::Global;
use crate::sync::legacy::is_acquired;
use crate::sync::mapping::Mapping;
use crate::sync::object::SyncObject;

/// The initial value of a new object, by its type; refuses parameters that are not allowed.
fn initial_value(info: &SyncObjectInfo, legacy: bool) -> Result<u64, Refusal> {
    use SyncObjectType as T;
    let name = info.object_type.name();
    if legacy && !matches!(info.object_type, T::MUTEX | T::SEMAPHORE) {
        return invalid(format!("{name} cannot be created by the first form of the call"));
    }
    if legacy && !info.flags.is_empty() {
        return invalid("the first form of the call has no flags");
    }
    match info.object_type {
        T::MUTEX => Ok(u64::from(info.initial_state)),
        T::SEMAPHORE if info.initial_count > info.max_count => {
            invalid(format!("InitialCount {} is above MaxCount {}", info.initial_count, info.max_count))
        }
        T::SEMAPHORE => Ok(u64::from(info.initial_count)),
        T::FENCE | T::MONITORED_FENCE => Ok(info.initial_value),
        T::CPU_NOTIFICATION if info.event.is_none() => {
            refuse(NtStatus::INVALID_HANDLE, "CPU_NOTIFICATION needs an event")
        }
        T::CPU_NOTIFICATION => Ok(0),
        // The display counts from 0.
        T::PERIODIC_MONITORED_FENCE => Ok(0),
        _ => invalid(format!("synchronization object type {} is unknown here", info.object_type.0)),
    }
}

impl Kernel {
    pub(crate) fn create_sync_object(
        &mut self,
        process: ProcessId,
        device: Handle,
        info: &SyncObjectInfo,
        legacy: bool,
        effects: &mut Effects,
    ) -> CallResult {
        let device_handle = device;
        let device = self.active_device(process, device)?;
        let value = initial_value(info, legacy)?;
        check_flags(info.object_type, info.flags)?;
        self.check_affinity(process, self.processes.devices()[device].adapter, info.engine_affinity)?;
        self.check_periodic(process, device, info)?;
        if is_mapped(info.object_type)
            && let Some(reply) = self.fence_memory_missing(process)?
        {
            return Ok(reply);
        }
        let adapter = self.processes.devices()[device].adapter;
        let cpu_event = self.begin_cpu_event(process, device, info, effects)?;
        let object = self.new_object(info.object_type, info.flags, value, adapter);
        if let Err(refusal) = self.begin_notification(process, object, info) {
            self.sync.objects.remove(object);
            return Err(refusal);
        }
        let mapping = Mapping { engine_affinity: info.engine_affinity, ..Mapping::default() };
        let new = NewOpen { flags: info.flags, mapping, ..NewOpen::default() };
        let mut created = match self.open_object(process, Some(device), object, new, effects) {
            Ok(created) => created,
            Err(refusal) => {
                self.end_notification_of(object);
                self.sync.objects.remove(object);
                if let Some(cpu_event) = cpu_event {
                    self.end_cpu_event(cpu_event, effects);
                }
                return Err(refusal);
            }
        };
        self.name_cpu_event(cpu_event, process, created.object);
        self.sync.legacy.add(object, info, process, device_handle);
        let global = info.flags.contains(SyncObjectFlags::SHARED)
            && !info.flags.contains(SyncObjectFlags::NT_SECURITY_SHARING);
        if global {
            match self.new_global(Global::Sync(object)) {
                Ok(handle) => {
                    self.sync.objects.set_global(object, handle);
                    created.shared_handle = handle;
                }
                Err(refusal) => {
                    self.destroy_sync_object(process, created.object, effects)?;
                    return Err(refusal);
                }
            }
        }
        Ok(Reply::SyncObject(created))
    }

    /// Creates an object that has no handle yet.
    pub(crate) fn new_object(
        &mut self,
        object_type: SyncObjectType,
        flags: SyncObjectFlags,
        value: u64,
        adapter: u32,
    ) -> u32 {
        let object = self.sync.objects.insert(SyncObject::new(object_type, flags, adapter), value);
        if value > 0 && !is_acquired(object_type) {
            self.edge(HappensBefore::FenceCreated { fence: object.into(), value });
        }
        object
    }

    /// The reply if the process has no fence slot left: it is to add memory, or is refused at the limit.
    pub(crate) fn fence_memory_missing(&self, process: ProcessId) -> Result<Option<Reply>, Refusal> {
        let slots = &self.process(process).slots;
        if slots.has_room() {
            return Ok(None);
        }
        if slots.capacity() >= limits::FENCE_SLOTS_PER_PROCESS_MAX {
            let why = format!("the process has {} fences, the limit", slots.capacity());
            return refuse(NtStatus::NO_MEMORY, why);
        }
        Ok(Some(Reply::FenceMemoryExhausted))
    }

    /// Gives a process a handle to an object, with a slot that has the value before the handle is returned.
    pub(crate) fn open_object(
        &mut self,
        process: ProcessId,
        device: Option<u32>,
        object: u32,
        NewOpen { flags, denied, mapping, slot: at }: NewOpen,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        let monitored = is_mapped(self.sync.objects[object].object_type);
        // An object that was created without GPU access has none by any open (FEN-054).
        let flags = flags | denied | self.sync.objects[object].flags & SyncObjectFlags::NO_GPU_ACCESS;
        if self.sync.objects[object].opens_count() >= limits::OPENS_PER_OBJECT_MAX {
            let why = format!("the object is open {} times, the limit", limits::OPENS_PER_OBJECT_MAX);
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let adapter = device
            .map_or(self.sync.objects[object].adapter, |device| self.processes.devices()[device].adapter);
        let open = self.sync.opens.insert(Open {
            process,
            handle: Handle::NULL,
            object,
            device: device.filter(|_| monitored),
            adapter,
            arrival: self.arrival_for(process, adapter),
            flags,
            denied,
            slot: None,
            mapping,
            is_without_waits: self.sync.objects[object].is_open(),
        });
        let handle = match self.insert_handle(process, HandleTarget::Sync(SyncRef { open, object })) {
            Ok(handle) => handle,
            Err(refusal) => {
                self.sync.opens.remove(open);
                return Err(refusal);
            }
        };
        let slot = match at {
            None if monitored => self.process_mut(process).slots.allocate(open),
            at => at,
        };
        self.sync.opens[open].handle = handle;
        self.sync.opens[open].slot = slot;
        self.sync.objects.add_open(object, open, &self.sync.opens);
        self.sync.written.note_open(object, process);
        if let Some(device) = self.sync.opens[open].device {
            self.processes.device_mut(device).children.insert(handle);
        }
        let mut gpu_address = 0;
        if let Some(slot) = slot {
            effects.stores.push(FenceStore { process, slot, value: self.sync.objects.value(object) });
            if !flags.contains(SyncObjectFlags::NO_GPU_ACCESS) {
                gpu_address = self.engine_address(process, self.sync.opens[open].adapter, slot);
            }
        }
        Ok(CreatedSyncObject {
            object: handle,
            shared_handle: Handle::NULL,
            slot,
            gpu_address,
            paging_fence_value: 0,
            no_wait: flags.contains(SyncObjectFlags::NO_WAIT),
        })
    }

    /// Destroys a local handle. CPU waits made through it are released (FEN-058). Waits and signals in queues keep the
    /// object alive; the waits are released when its last handle and NT handle are gone (policy
    /// `destroyed_queued_wait`).
    pub(crate) fn destroy_sync_object(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        if self.is_progress_fence(process, handle) {
            return invalid(format!("{handle} is the progress fence of a hardware queue and goes with it"));
        }
        self.end_sync_object(process, handle, effects)
    }

    /// Whether a handle is the progress fence of a hardware queue.
    pub(crate) fn is_progress_fence(&self, process: ProcessId, handle: Handle) -> bool {
        self.sync_object(process, handle)
            .is_ok_and(|(_, object)| self.vidsch.progress_fences().contains_key(&object))
    }

    /// Ends an open, also that of a progress fence.
    pub(crate) fn end_sync_object(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let (id, _) = self.sync_object(process, handle)?;
        self.end_cpu_event_of(process, handle, effects);
        self.remove_handle(process, handle);
        let open = self.sync.opens[id];
        self.native_open_ended(id, &open);
        if let Some(device) = open.device {
            self.processes.device_mut(device).children.remove(&handle);
        }
        self.sync.objects.remove_open(open.object, id, &self.sync.opens);
        if let Some(oldest) = self.sync.objects[open.object].opens().next() {
            self.sync.opens[oldest].is_without_waits = false;
        }
        self.sync.written_fence_closed(open.object, process);
        self.remember_open(&open);
        if let Some(slot) = open.slot {
            self.release_slot(slot, &open);
        }
        let object = &self.sync.objects[open.object];
        let is_done = match object.flags.contains(SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY) {
            true => self.forget_open(open.object, id, effects),
            false => self.release_cpu_waiters(open.object, id, effects),
        };
        if is_done {
            self.sync.opens.remove(id);
        } else {
            // Its waits end in later steps. Values are not stored for it until then, because the slot may be reused.
            self.sync.opens[id].slot = None;
        }
        self.end_global_of(open.object);
        self.end_object_if_unused(open.object);
        Ok(Reply::None)
    }

    /// Releases the waits on an object that no handle names any more, and takes it out if no packet keeps it either.
    pub(crate) fn end_object(&mut self, object: u32, effects: &mut Effects) {
        // It may be in the list twice: for its waits, and because the last packet released it.
        let Some(state) = self.sync.objects.get(object) else { return };
        let is_unused = state.references == 0;
        if !self.sync.objects.take_release_due(object) && !is_unused {
            return;
        }
        // Packets whose waits end must not destroy it meanwhile.
        self.sync.hold(object);
        let is_done = self.release_waiters(object, effects);
        self.sync.objects.release(object);
        if !is_done || self.sync.objects[object].references > 0 {
            return;
        }
        self.native_object_ended(object);
        self.end_notification_of(object);
        self.sync.take_written(object);
        self.sync.objects.remove(object);
        self.sync.legacy.remove(object);
        self.history.forget(object);
        self.edge(HappensBefore::FenceGone { fence: object.into() });
    }

    /// Destroys unused objects, so that drivers see the end of fences before that of their devices and processes.
    pub(crate) fn end_unused_objects(&mut self, effects: &mut Effects) {
        while let Some(object) = self.vidsch.work_mut().next_ended_object() {
            self.end_object(object, effects);
        }
    }

    pub(crate) fn release_reference(&mut self, object: u32) {
        self.sync.objects.release(object);
        self.end_object_if_unused(object);
    }

    /// Schedules the end of an object without handles. If packets keep it alive, its waits are released.
    fn end_object_if_unused(&mut self, object: u32) {
        let state = &self.sync.objects[object];
        if state.has_handles() {
            return;
        }
        let is_unused = state.references == 0;
        let releases = is_mapped(state.object_type)
            && self.config.policy.destroyed_queued_wait == DestroyedQueuedWait::Released;
        let is_due = releases && self.sync.objects.set_destroyed(object);
        if is_unused || is_due {
            self.vidsch.work_mut().end_object(object);
        }
    }

    /// The open and the object that a handle of this process names.
    pub(crate) fn sync_object(&self, process: ProcessId, handle: Handle) -> Result<(u32, u32), Refusal> {
        self.process(process).sync_object(handle)
    }
}

impl Process {
    /// The open and the object that a handle names.
    #[inline]
    pub(crate) fn sync_object(&self, handle: Handle) -> Result<(u32, u32), Refusal> {
        match self.find_sync_object(handle) {
            Some(SyncRef { open, object }) => Ok((open, object)),
            None => invalid(format!("{handle} is no synchronization object of this process")),
        }
    }

    /// The same without a reason.
    #[inline]
    pub(crate) fn find_sync_object(&self, handle: Handle) -> Option<SyncRef> {
        match self.handles.get(handle) {
            Some(HandleTarget::Sync(named)) => Some(named),
            _ => None,
        }
    }
}
