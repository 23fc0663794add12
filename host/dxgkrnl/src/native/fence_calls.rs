//! Native fences are created, opened, closed and destroyed. See `mod.rs` for the rules.

use alloc::collections::BTreeMap;
use alloc::format;

use d3dkmt::{
    CreatedSyncObject, FeatureId, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags, SyncObjectType,
};

use super::{LocalFence, NativeFence, NewFence, OnAdapter};
use crate::ddi::{LocalNativeFenceId, NativeFenceId, NewNativeFence, OpenedNativeFence};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::sharing::{denied_by_rights, require_readable};
use crate::sync::mapping::Mapping;
use crate::sync::{NewOpen, Open, check_flags};
use crate::{Features, ProcessId, VidSchCaps};

/// `DXGK_NATIVE_FENCE_TYPE`.
mod native_type {
    pub const DEFAULT: u32 = 0;
    pub const INTRA_GPU: u32 = 1;
}

impl Kernel {
    pub(crate) fn adapter_has_native_fences(&self, process: ProcessId, adapter: u32) -> bool {
        let config = &self.config.adapters[adapter as usize];
        self.features_of(process).contains(Features::NATIVE_FENCE)
            && config.caps.contains(VidSchCaps::NATIVE_GPU_FENCE)
            && self.driver_is_new_enough(adapter, FeatureId::NATIVE_FENCE)
    }

    fn require_native_fences(&self, process: ProcessId, adapter: u32) -> Result<(), Refusal> {
        if self.adapter_has_native_fences(process, adapter) {
            return Ok(());
        }
        let config = &self.config.adapters[adapter as usize];
        let why = match config.caps.contains(VidSchCaps::NATIVE_GPU_FENCE) {
            true => self.age_of_driver(adapter, FeatureId::NATIVE_FENCE),
            false => alloc::string::String::new(),
        };
        refuse(NtStatus::NOT_SUPPORTED, format!("adapter {adapter} has no native fences{why}"))
    }

    /// `D3DKMTCreateNativeFence`.
    pub(crate) fn create_native_fence(
        &mut self,
        process: ProcessId,
        device: Handle,
        new: NewFence,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let adapter = self.processes.devices()[device].adapter;
        self.require_native_fences(process, adapter)?;
        check_flags(SyncObjectType::NATIVE_FENCE, new.flags)?;
        require_gpu_access(new.flags)?;
        match new.native_type {
            native_type::DEFAULT => {}
            native_type::INTRA_GPU if new.flags.contains(SyncObjectFlags::CROSS_ADAPTER) => {
                return invalid("a cross-adapter native fence is of type DEFAULT");
            }
            native_type::INTRA_GPU => {
                let why = "the system does not report SupportIntraGpuFenceType";
                return refuse(NtStatus::NOT_SUPPORTED, why);
            }
            other => return invalid(format!("native fence type {other} is unknown")),
        }
        self.check_affinity(process, adapter, new.engine_affinity)?;
        let mapping = Mapping { engine_affinity: new.engine_affinity, ..Mapping::default() };
        if let Some(reply) = self.fence_memory_missing(process)? {
            return Ok(reply);
        }
        let object = self.new_object(SyncObjectType::NATIVE_FENCE, new.flags, new.initial_value, adapter);
        match self.create_native(process, device, object, new.native_type, mapping, effects) {
            Ok(created) => Ok(Reply::SyncObject(created)),
            Err(refusal) => {
                self.sync.remove_unopened(object);
                Err(refusal)
            }
        }
    }

    /// Makes a new object a native fence and opens it.
    pub(crate) fn create_native(
        &mut self,
        process: ProcessId,
        device: u32,
        object: u32,
        native_type: u32,
        mapping: Mapping,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        self.make_native(process, object);
        let new = NewOpen { flags: self.sync.objects()[object].flags, mapping, ..NewOpen::default() };
        let opened = self
            .put_on_adapter(object, self.processes.devices()[device].adapter, native_type, effects)
            .and_then(|()| self.open_natively(process, device, object, new, effects));
        if opened.is_err() {
            self.native_object_ended(object);
        }
        opened
    }

    fn make_native(&mut self, process: ProcessId, object: u32) {
        let flags = self.sync.objects()[object].flags;
        let storage = self.native.storage.allocate(process, flags.contains(SyncObjectFlags::SHARED));
        let fence = NativeFence {
            cross_adapter: flags.contains(SyncObjectFlags::CROSS_ADAPTER),
            storage,
            adapters: BTreeMap::new(),
            locals: BTreeMap::new(),
            opens: BTreeMap::new(),
        };
        self.native.fences.insert(object, fence);
        self.sync.watch(object);
    }

    /// Creates a global handle on an adapter, if there is none yet. The driver learns there that a poisoned fence is
    /// signaled for ever (FEN-111).
    fn put_on_adapter(
        &mut self,
        object: u32,
        adapter: u32,
        native_type: u32,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if self.native.fences[&object].adapters.contains_key(&adapter) {
            return Ok(());
        }
        let fence = NativeFenceId(self.native.next_handle());
        let current_value = self.sync.objects().value(object);
        let state = self.native.fences.get_mut(&object).expect("the caller made it");
        let monitored_value = if state.cross_adapter { 0 } else { u64::MAX };
        let storage = state.storage;
        let number = object.into();
        let new =
            NewNativeFence { fence, adapter, native_type, current_value, monitored_value, storage, number };
        if let Err(status) = self.miniport.create_native_fence(&new) {
            return refuse(status, format!("the driver makes no native fence of type {native_type}"));
        }
        state.adapters.insert(adapter, OnAdapter { fence, monitored_value });
        self.native.globals.insert(fence, object);
        if self.sync.objects().is_poisoned(object) {
            let update = self.value_on(fence, object);
            self.call_ddi(effects, |miniport, now, callbacks| {
                miniport.update_current_values_from_cpu(now, &[update], callbacks);
            });
        }
        Ok(())
    }

    /// Adds a native open, with the slot that the process has of the fence, or a new one.
    fn open_natively(
        &mut self,
        process: ProcessId,
        device: u32,
        object: u32,
        new: NewOpen,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        let adapter = self.processes.devices()[device].adapter;
        let new = NewOpen { slot: self.native_slot(process, object), ..new };
        let created = self.open_object(process, Some(device), object, new, effects)?;
        let (open, _) = self.sync_object(process, created.object)?;
        let slot = created.slot.expect("a native fence has one");
        let state = self.native.fences.get_mut(&object).expect("the caller made it");
        state.opens.insert(open, adapter);
        match state.locals.get_mut(&(process, adapter)) {
            Some(local) => {
                local.opens += 1;
                self.remap_natively(process, object, adapter);
            }
            None => self.map_natively(process, object, adapter, 1, slot),
        }
        Ok(created)
    }

    /// Creates a local handle.
    fn map_natively(&mut self, process: ProcessId, object: u32, adapter: u32, opens: u32, slot: u32) {
        let writable = self.is_natively_writable(process, object, adapter);
        let local = LocalNativeFenceId(self.native.next_handle());
        let gpu_address = self.engine_address(process, adapter, slot);
        let state = self.native.fences.get_mut(&object).expect("it is open");
        let fence = state.adapters[&adapter].fence;
        state.locals.insert((process, adapter), LocalFence { local, opens, slot, writable });
        self.miniport.open_native_fence(&OpenedNativeFence { local, fence, process, gpu_address, writable });
    }

    /// Reports waits and signals of these objects by queues or the CPU to the drivers of native fences, whose debug layers
    /// check them.
    #[inline]
    pub(crate) fn report_fence_use(&mut self, process: ProcessId, objects: &[Handle], effects: &mut Effects) {
        if !self.native.fences.is_empty() {
            self.report_native_fence_use(process, objects, effects);
        }
    }

    fn report_native_fence_use(&mut self, process: ProcessId, objects: &[Handle], effects: &mut Effects) {
        for handle in objects {
            let Ok((open, object)) = self.sync_object(process, *handle) else { continue };
            let Some((adapter, local)) = self.native.local_of_open(process, object, open) else { continue };
            let mut has_said = false;
            self.run_ddi(effects, |miniport, _, callbacks| {
                miniport.native_fence_used(local, callbacks);
                has_said = !callbacks.is_empty();
            });
            if has_said {
                self.count_driver_bytes(process, adapter);
            }
        }
    }

    /// Whether engines may write the mapping that all opens of a process share: if one of the opens may signal.
    fn is_natively_writable(&self, process: ProcessId, object: u32, adapter: u32) -> bool {
        let mut opens = self.native.fences[&object].opens.iter().filter(|(_, on)| **on == adapter);
        opens.any(|(open, _)| {
            let open = &self.sync.opens()[*open];
            open.process == process && !open.flags.contains(SyncObjectFlags::NO_SIGNAL)
        })
    }

    /// Replaces the local handle, if a new or a removed open changes whether engines may store.
    fn remap_natively(&mut self, process: ProcessId, object: u32, adapter: u32) {
        let writable = self.is_natively_writable(process, object, adapter);
        let state = self.native.fences.get_mut(&object).expect("it is open");
        let Some(local) = state.locals.get(&(process, adapter)) else { return };
        if local.writable != writable {
            let (opens, slot) = (local.opens, local.slot);
            self.miniport.close_native_fence(local.local);
            self.map_natively(process, object, adapter, opens, slot);
        }
    }

    /// The slot in which a process has this fence natively open.
    pub(crate) fn native_slot(&self, process: ProcessId, object: u32) -> Option<u32> {
        let locals = &self.native.fences.get(&object)?.locals;
        locals.iter().find(|((owner, _), _)| *owner == process).map(|(_, local)| local.slot)
    }

    /// `D3DKMTOpenNativeFenceFromNtHandle`.
    pub(crate) fn open_native_fence(
        &mut self,
        process: ProcessId,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let adapter = self.processes.devices()[device].adapter;
        self.require_native_fences(process, adapter)?;
        let (object, rights) = self.shared_sync_object(process, token)?;
        require_readable(rights)?;
        let shared = &self.sync.objects()[object];
        let elsewhere = shared.adapter != adapter;
        match shared.object_type {
            SyncObjectType::NATIVE_FENCE => {}
            SyncObjectType::MONITORED_FENCE if elsewhere => {}
            other => return invalid(format!("a {} does not open as a native fence here", other.name())),
        }
        if elsewhere && !shared.flags.contains(SyncObjectFlags::CROSS_ADAPTER) {
            return invalid("the shared fence is on another adapter and was created without CrossAdapter");
        }
        let own = flags | SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        check_flags(SyncObjectType::NATIVE_FENCE, own)?;
        require_gpu_access(flags | shared.flags & SyncObjectFlags::NO_GPU_ACCESS)?;
        self.check_affinity(process, adapter, engine_affinity)?;
        let mapping = Mapping { engine_affinity, ..Mapping::default() };
        if self.native_slot(process, object).is_none()
            && let Some(reply) = self.fence_memory_missing(process)?
        {
            return Ok(reply);
        }
        let new = NewOpen { flags, denied: denied_by_rights(rights), mapping, slot: None };
        Ok(Reply::SyncObject(self.open_as_native(process, device, object, new, effects)?))
    }

    /// Opens a shared fence as a native one, and makes it one on the adapter of the device if it is none yet.
    pub(crate) fn open_as_native(
        &mut self,
        process: ProcessId,
        device: u32,
        object: u32,
        new: NewOpen,
        effects: &mut Effects,
    ) -> Result<CreatedSyncObject, Refusal> {
        if !self.native.fences.contains_key(&object) {
            self.make_native(process, object);
        }
        let adapter = self.processes.devices()[device].adapter;
        self.put_on_adapter(object, adapter, native_type::DEFAULT, effects)?;
        self.open_natively(process, device, object, new, effects)
    }

    /// Removes an open; the last one of a process closes its local handle.
    pub(crate) fn native_open_ended(&mut self, id: u32, open: &Open) {
        let Some(state) = self.native.fences.get_mut(&open.object) else { return };
        let Some(adapter) = state.opens.remove(&id) else { return };
        let key = (open.process, adapter);
        let Some(entry) = state.locals.get_mut(&key) else { return };
        entry.opens -= 1;
        if entry.opens == 0 {
            let local = entry.local;
            state.locals.remove(&key);
            self.miniport.close_native_fence(local);
            return;
        }
        self.remap_natively(open.process, open.object, adapter);
    }

    /// Frees the slot of an open that is gone, or transfers it to another of the same process.
    pub(crate) fn release_slot(&mut self, slot: u32, open: &Open) {
        let same = |other: &u32| {
            let other = &self.sync.opens()[*other];
            other.process == open.process && other.slot == Some(slot)
        };
        let heir = self.sync.objects()[open.object].opens().find(same);
        let slots = &mut self.process_mut(open.process).slots;
        match heir {
            Some(heir) => slots.hand_over(slot, heir),
            None => slots.release(slot),
        }
    }

    /// Destroys the global handles of an object that is gone.
    pub(crate) fn native_object_ended(&mut self, object: u32) {
        let Some(fence) = self.native.fences.remove(&object) else { return };
        self.native.storage.free(fence.storage);
        self.native.dirty.remove(&object);
        self.native.written.remove(&object);
        for on_adapter in fence.adapters.into_values() {
            self.native.globals.remove(&on_adapter.fence);
            // A driver may have reported it before it gets to know of the end.
            self.vidsch.forget_reports_of(on_adapter.fence);
            self.miniport.destroy_native_fence(on_adapter.fence);
        }
    }

    /// The open by which an engine of this adapter reaches the slot of `open`, which opens of one process may share.
    /// One that may signal, if there is one.
    pub(crate) fn open_on_adapter(&self, open: u32, adapter: u32) -> Option<u32> {
        let Open { process, slot, object, .. } = self.sync.opens()[open];
        let same = |other: &u32| {
            let state = &self.sync.opens()[*other];
            state.process == process && state.slot == slot && state.adapter == adapter
        };
        let may_signal = |other: &u32| !self.sync.opens()[*other].flags.contains(SyncObjectFlags::NO_SIGNAL);
        let on_slot = || self.sync.objects()[object].opens().filter(same);
        on_slot().find(may_signal).or_else(|| on_slot().next())
    }
}

fn require_gpu_access(flags: SyncObjectFlags) -> Result<(), Refusal> {
    if flags.contains(SyncObjectFlags::NO_GPU_ACCESS) {
        return invalid("a native fence needs GPU access");
    }
    Ok(())
}
