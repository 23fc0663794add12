//! Synchronization objects: creation, opens, sharing, and the end of them.
//!
//! An *object* is the thing with the value. An *open* is one process's handle to it, with a slot of
//! that process's fence memory and flags of its own (NoSignal and NoWait belong to the open, FEN-053).
//! An object lives while it has an open, a share, or a queued packet that names it.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    CreatedSyncObject, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags, SyncObjectInfo, SyncObjectType,
    limits,
};

use crate::ddi::Miniport;
use crate::effects::{Effects, FenceStore};
use crate::kernel::{Called, Kernel, Refusal, invalid, refuse};
use crate::process::{Local, Slots};
use crate::wait::{WaitKey, WaitOwner};
use crate::{ProcessId, policy::DestroyedWait};

pub(crate) struct SyncObject {
    pub object_type: SyncObjectType,
    pub flags: SyncObjectFlags,
    /// Fences: the value. Semaphore: the count. Mutex: 1 = owned.
    pub value: u64,
    pub adapter: u32,
    pub opens: Vec<u32>,
    /// The step in which its value was last stored, and where its stores begin among the effects.
    pub stored: (u64, usize),
    /// How many stores those are.
    pub slots: usize,
    /// Waits that this object's value holds up, lowest value first, then in the order they came.
    pub waiters: BTreeSet<WaitKey>,
    /// Shares and queued packets that keep it alive.
    pub references: u32,
    /// Legacy sharing: its global handle.
    pub global: Option<Handle>,
}

pub(crate) struct Open {
    pub process: ProcessId,
    pub handle: Handle,
    pub object: u32,
    /// The device that owns it; legacy objects outlive theirs.
    pub device: Option<u32>,
    pub flags: SyncObjectFlags,
    pub slot: Option<u32>,
}

/// What a share token opens.
pub(crate) struct Share {
    pub object: u32,
    /// Who shared it: the share ends with that process.
    pub process: ProcessId,
}

const MONITORED_ONLY: SyncObjectFlags = SyncObjectFlags::TOP_OF_PIPELINE
    .union(SyncObjectFlags::NO_SIGNAL)
    .union(SyncObjectFlags::NO_WAIT)
    .union(SyncObjectFlags::NO_SIGNAL_MAX_VALUE_ON_TDR);

/// Monitored and native fences: they belong to a device and their value stands in fence memory.
fn has_slot(object_type: SyncObjectType) -> bool {
    matches!(object_type, SyncObjectType::MONITORED_FENCE | SyncObjectType::NATIVE_FENCE)
}

/// Rules that hold for the flags of any type (FEN-044 to FEN-057).
pub(crate) fn check_flags(object_type: SyncObjectType, flags: SyncObjectFlags) -> Result<(), Refusal> {
    use SyncObjectFlags as F;
    let monitored = has_slot(object_type);
    if flags.unknown() != 0 {
        return invalid(format!("flags {:#x} have reserved bits set", flags.bits()));
    }
    if flags.contains(F::NT_SECURITY_SHARING) && !flags.contains(F::SHARED) {
        return invalid("NtSecuritySharing needs Shared");
    }
    if flags.contains(F::CROSS_ADAPTER) && !flags.contains(F::SHARED) {
        return invalid("CrossAdapter needs Shared");
    }
    if flags.contains(F::NO_SIGNAL | F::NO_WAIT) {
        return invalid("NoSignal and NoWait exclude each other");
    }
    if !monitored && flags.intersects(MONITORED_ONLY) {
        return invalid("TopOfPipeline, NoSignal, NoWait and NoSignalMaxValueOnTdr are for monitored fences");
    }
    if monitored && flags.contains(F::SHARED) && !flags.contains(F::NT_SECURITY_SHARING) {
        return invalid("a shared monitored fence needs NtSecuritySharing");
    }
    if flags.contains(F::SIGNAL_BY_KMD) {
        if object_type != SyncObjectType::CPU_NOTIFICATION {
            return invalid("SignalByKmd is for CPU_NOTIFICATION");
        }
        return refuse(NtStatus::NOT_SUPPORTED, "this driver has no feature 3 (KMD_SIGNAL_CPU_EVENT)");
    }
    Ok(())
}

/// What a new object's value is, by type; refuses what cannot be created.
fn initial_value(info: &SyncObjectInfo, legacy: bool) -> Result<u64, Refusal> {
    use SyncObjectType as T;
    let name = info.object_type.name();
    if legacy && !matches!(info.object_type, T::MUTEX | T::SEMAPHORE) {
        return invalid(format!("{name} cannot be created by the first form of the call"));
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
        T::PERIODIC_MONITORED_FENCE => {
            refuse(NtStatus::NOT_SUPPORTED, "periodic monitored fences are not modelled yet")
        }
        _ => invalid(format!("synchronization object type {} is unknown here", info.object_type.0)),
    }
}

impl<M: Miniport> Kernel<M> {
    pub(crate) fn create_sync_object(
        &mut self,
        process: ProcessId,
        device: Handle,
        info: &SyncObjectInfo,
        legacy: bool,
        effects: &mut Effects,
    ) -> Called {
        let device = self.active_device(process, device)?;
        let value = initial_value(info, legacy)?;
        check_flags(info.object_type, info.flags)?;
        if info.engine_affinity > 1 {
            return invalid(format!(
                "EngineAffinity {:#x} names an adapter that is not linked",
                info.engine_affinity
            ));
        }
        let monitored = info.object_type == SyncObjectType::MONITORED_FENCE;
        if monitored && let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        let object = self.new_object(info.object_type, info.flags, value, self.devices[device].adapter);
        let mut created = match self.open_object(process, device, object, info.flags, effects) {
            Ok(created) => created,
            Err(refusal) => {
                self.objects.remove(object);
                return Err(refusal);
            }
        };
        let global = info.flags.contains(SyncObjectFlags::SHARED)
            && !info.flags.contains(SyncObjectFlags::NT_SECURITY_SHARING);
        if global {
            let Some(handle) = self.globals.insert(object) else {
                self.destroy_sync_object(process, created.object, effects)?;
                return refuse(NtStatus::NO_MEMORY, "there are no global handles left");
            };
            // Same table shape, other instance bits (W-004); the local sequence is untouched (W-008).
            let handle = Handle::global(handle.index(), handle.unique());
            self.objects[object].global = Some(handle);
            created.shared_handle = handle;
        }
        Ok(Reply::SyncObject(created))
    }

    /// An object that nobody has open yet.
    pub(crate) fn new_object(
        &mut self,
        object_type: SyncObjectType,
        flags: SyncObjectFlags,
        value: u64,
        adapter: u32,
    ) -> u32 {
        self.objects.insert(SyncObject {
            object_type,
            flags,
            value,
            adapter,
            opens: Vec::new(),
            stored: (0, 0),
            slots: 0,
            waiters: BTreeSet::new(),
            references: 0,
            global: None,
        })
    }

    /// What to say if the process has no fence slot left: bring memory, or the limit is reached.
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

    /// Gives a process a handle to an object, with a slot that holds the value before anybody hears of it.
    pub(crate) fn open_object(
        &mut self,
        process: ProcessId,
        device: u32,
        object: u32,
        flags: SyncObjectFlags,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        self.open_object_at(process, device, object, flags, None, effects)
    }

    /// The same with a slot that another open of the process has.
    pub(crate) fn open_object_at(
        &mut self,
        process: ProcessId,
        device: u32,
        object: u32,
        flags: SyncObjectFlags,
        at: Option<u32>,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        let monitored = has_slot(self.objects[object].object_type);
        if self.objects[object].opens.len() >= limits::OPENS_PER_OBJECT_MAX {
            let why = format!("the object is open {} times, the limit", limits::OPENS_PER_OBJECT_MAX);
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let open = self.opens.insert(Open {
            process,
            handle: Handle::NULL,
            object,
            device: monitored.then_some(device),
            flags,
            slot: None,
        });
        let handle = match self.insert_handle(process, Local::Sync(open)) {
            Ok(handle) => handle,
            Err(refusal) => {
                self.opens.remove(open);
                return Err(refusal);
            }
        };
        let slot = match at {
            None if monitored => self.process_mut(process).slots.allocate(open),
            at => at,
        };
        self.opens[open].handle = handle;
        self.opens[open].slot = slot;
        self.objects[object].opens.push(open);
        if monitored {
            self.devices[device].children.insert(handle);
        }
        let mut gpu_address = 0;
        if let Some(slot) = slot {
            effects.stores.push(FenceStore { process, slot, value: self.objects[object].value });
            if !flags.contains(SyncObjectFlags::NO_GPU_ACCESS) {
                gpu_address = Slots::gpu_address(slot);
            }
        }
        Ok(CreatedSyncObject {
            object: handle,
            shared_handle: Handle::NULL,
            slot,
            gpu_address,
            paging_fence_value: 0,
        })
    }

    /// Destroys a local handle. CPU waits made through it are released (FEN-058); waits and signals
    /// in context queues are not: they keep the object alive.
    pub(crate) fn destroy_sync_object(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> Called {
        if self.is_progress_fence(process, handle) {
            return invalid(format!("{handle} is the progress fence of a hardware queue and goes with it"));
        }
        self.end_sync_object(process, handle, effects)
    }

    /// Whether a handle is the progress fence of a hardware queue.
    pub(crate) fn is_progress_fence(&self, process: ProcessId, handle: Handle) -> bool {
        self.sync_object(process, handle).is_ok_and(|(_, object)| self.progress_fences.contains_key(&object))
    }

    /// Ends an open, whatever it is for.
    pub(crate) fn end_sync_object(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> Called {
        let (id, _) = self.sync_object(process, handle)?;
        self.process_mut(process).handles.remove(handle);
        let open = self.opens.remove(id).expect("a handle names a live open");
        self.native_open_ended(id, &open);
        if let Some(device) = open.device {
            self.devices[device].children.remove(&handle);
        }
        let object = &mut self.objects[open.object];
        object.opens.retain(|other| *other != id);
        if let Some(slot) = open.slot {
            self.release_slot(slot, &open);
        }
        let object = &mut self.objects[open.object];
        if object.flags.contains(SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY) {
            self.forget_open(open.object, id);
        } else {
            self.release_cpu_waiters(open.object, Some(id), effects);
        }
        self.drop_object_if_unused(open.object, effects);
        Ok(Reply::None)
    }

    /// Waits that outlive the open they were made through no longer name it: its index may be reused.
    fn forget_open(&mut self, object: u32, open: u32) {
        for key in &self.objects[object].waiters {
            let wait = self.waits.get_mut(&key.wait).expect("waiters name pending waits");
            let item = &mut wait.items[key.item as usize];
            item.open = item.open.filter(|other| *other != open);
        }
    }

    /// Ends the CPU waits on an object: those made through `open`, or all.
    fn release_cpu_waiters(&mut self, object: u32, open: Option<u32>, effects: &mut Effects) {
        let status = match self.config.policy.destroyed_wait {
            DestroyedWait::Success => NtStatus::SUCCESS,
            DestroyedWait::DeviceRemoved => NtStatus::DEVICE_REMOVED,
        };
        let released: Vec<_> = self.objects[object]
            .waiters
            .iter()
            .filter(|key| {
                let wait = &self.waits[&key.wait];
                let through = open.is_none_or(|open| wait.items[key.item as usize].open == Some(open));
                matches!(wait.owner, WaitOwner::Cpu { .. }) && through
            })
            .map(|key| key.wait)
            .collect();
        for wait in released {
            // One wait may name the object twice.
            let Some(wait) = self.end_wait(wait, effects) else { continue };
            if let WaitOwner::Cpu { process, event } = wait.owner {
                self.note(process, format!("wait {} ended: its fence was destroyed", event.0), effects);
                self.wake(process, event, status, effects);
            }
        }
    }

    /// Frees an object that nothing names any more.
    pub(crate) fn drop_object_if_unused(&mut self, object: u32, effects: &mut Effects) {
        let state = &self.objects[object];
        if !state.opens.is_empty() || state.references > 0 {
            return;
        }
        self.release_cpu_waiters(object, None, effects);
        self.native_object_ended(object);
        if let Some(state) = self.objects.remove(object)
            && let Some(global) = state.global
        {
            self.globals.remove(Handle::local(global.index(), global.unique()));
        }
    }

    pub(crate) fn share_objects(
        &mut self,
        process: ProcessId,
        objects: &[Handle],
        _desired_access: u32,
        _name: Option<alloc::string::String>,
        token: ShareToken,
    ) -> Called {
        let [handle] = objects[..] else {
            return invalid(format!("{} objects cannot be shared by one handle", objects.len()));
        };
        let (_, object) = self.sync_object(process, handle)?;
        let nt_shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        if !self.objects[object].flags.contains(nt_shared) {
            return invalid(format!("{handle} was not created with Shared and NtSecuritySharing"));
        }
        if self.shares.contains_key(&token) {
            return invalid("this share token is in use");
        }
        let shares = self.process(process).shares;
        if shares >= limits::SHARES_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process shares {shares} objects, the limit"));
        }
        self.process_mut(process).shares += 1;
        self.shares.insert(token, Share { object, process });
        self.objects[object].references += 1;
        Ok(Reply::None)
    }

    pub(crate) fn open_sync_object(
        &mut self,
        process: ProcessId,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        effects: &mut Effects,
    ) -> Called {
        let device = self.active_device(process, device)?;
        let object = self.shared_object(process, token)?;
        // What sharing it was created with is not asked again of the opener (W-145).
        let own = flags | SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        check_flags(self.objects[object].object_type, own)?;
        self.check_opens_on(object, self.devices[device].adapter)?;
        if engine_affinity > 1 {
            return invalid("the shared object is on another adapter");
        }
        if has_slot(self.objects[object].object_type)
            && let Some(reply) = self.fence_memory_missing(process)?
        {
            return Ok(reply);
        }
        Ok(Reply::SyncObject(self.open_object(process, device, object, flags, effects)?))
    }

    /// The object that a share token opens for this process.
    pub(crate) fn shared_object(&self, process: ProcessId, token: ShareToken) -> Result<u32, Refusal> {
        let Some(share) = self.shares.get(&token) else {
            return refuse(NtStatus::INVALID_HANDLE, "the NT handle names no shared object");
        };
        let same_vm =
            self.processes.get(&share.process).map(|owner| owner.vm) == Some(self.process(process).vm);
        if !same_vm {
            return refuse(NtStatus::INVALID_HANDLE, "the shared object belongs to another VM");
        }
        Ok(share.object)
    }

    /// Whether an object opens on an adapter as what it is, or a native fence as a monitored one (FEN-116).
    fn check_opens_on(&self, object: u32, adapter: u32) -> Result<(), Refusal> {
        let SyncObject { object_type, flags, adapter: own, .. } = self.objects[object];
        if own != adapter && !flags.contains(SyncObjectFlags::CROSS_ADAPTER) {
            return invalid("the shared object is on another adapter");
        }
        if object_type == SyncObjectType::NATIVE_FENCE && self.adapter_has_native_fences(adapter) {
            return invalid(
                "a native fence opens by OpenNativeFenceFromNtHandle on an adapter that has them",
            );
        }
        Ok(())
    }

    pub(crate) fn close_share(
        &mut self,
        process: ProcessId,
        token: ShareToken,
        effects: &mut Effects,
    ) -> Called {
        match self.shares.get(&token) {
            Some(share) if share.process == process => {
                let object = share.object;
                self.shares.remove(&token);
                self.process_mut(process).shares -= 1;
                self.release_reference(object, effects);
                Ok(Reply::None)
            }
            _ => refuse(NtStatus::INVALID_HANDLE, "this process has no such share"),
        }
    }

    pub(crate) fn end_shares_of(&mut self, process: ProcessId, effects: &mut Effects) {
        let of_process = |(token, share): (&ShareToken, &Share)| (share.process == process).then_some(*token);
        let tokens: Vec<ShareToken> = self.shares.iter().filter_map(of_process).collect();
        for token in tokens {
            let _ = self.close_share(process, token, effects);
        }
    }

    pub(crate) fn release_reference(&mut self, object: u32, effects: &mut Effects) {
        self.objects[object].references -= 1;
        self.drop_object_if_unused(object, effects);
    }

    /// The open and the object that a handle of this process names.
    pub(crate) fn sync_object(&self, process: ProcessId, handle: Handle) -> Result<(u32, u32), Refusal> {
        match self.process(process).handles.get(handle) {
            Some(Local::Sync(open)) => Ok((*open, self.opens[*open].object)),
            _ => invalid(format!("{handle} is no synchronization object of this process")),
        }
    }
}

/// Whether a packet of a context may name an object of this type, one of `count`.
pub(crate) fn queueable(object_type: SyncObjectType, count: usize) -> Result<(), Refusal> {
    match object_type {
        SyncObjectType::MONITORED_FENCE | SyncObjectType::NATIVE_FENCE => Ok(()),
        SyncObjectType::FENCE if count == 1 => Ok(()),
        SyncObjectType::FENCE => invalid("a legacy FENCE must be the only object (FEN-043)"),
        other => {
            let why = format!("{} in a context's queue is not modelled yet", other.name());
            refuse(NtStatus::NOT_SUPPORTED, why)
        }
    }
}
