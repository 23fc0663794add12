//! The calls that share objects and open what is shared. See `mod.rs` for the rules.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use d3dkmt::{
    Handle, HandleKind, NtStatus, Reply, ShareToken, SyncObjectFlags, SyncObjectType, access, limits,
};

use super::{Global, Share, Shared, SharedName, denied_by_rights, folded, require_readable};
use crate::config::HOST_NAME;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::sync::mapping::Mapping;
use crate::sync::waits::WaitItem;
use crate::sync::{NewOpen, check_flags, is_mapped};
use crate::{ProcessId, VmId};

/// The rights that a desired access grants: generic ones stand for those of the object's type.
fn granted(desired_access: u32) -> u32 {
    let generic = [
        (access::GENERIC_ALL, access::SYNC_OBJECT_ALL_ACCESS),
        (access::GENERIC_READ, access::STANDARD_RIGHTS_READ | access::SYNC_OBJECT_WAIT),
        (access::GENERIC_WRITE, access::STANDARD_RIGHTS_WRITE | access::SYNC_OBJECT_SIGNAL),
    ];
    let asked = generic.iter().filter(|(right, _)| desired_access & right != 0);
    asked.fold(desired_access, |rights, (_, of_type)| rights | of_type)
}

impl Kernel {
    // Global handles.

    pub(crate) fn new_global(&mut self, global: Global) -> Result<Handle, Refusal> {
        match self.sharing.globals.insert(global) {
            // Same table shape, other instance bits (W-004); the local sequence is untouched (W-008).
            Some(handle) => Ok(Handle::global(handle.index(), handle.unique())),
            None => refuse(NtStatus::NO_MEMORY, "there are no global handles left"),
        }
    }

    pub(crate) fn global(&self, handle: Handle) -> Option<Global> {
        if handle.kind() != HandleKind::Global {
            return None;
        }
        self.sharing.globals.get(Handle::local(handle.index(), handle.unique()))
    }

    pub(crate) fn end_global(&mut self, handle: Handle) {
        self.sharing.globals.remove(Handle::local(handle.index(), handle.unique()));
    }

    /// Ends the global handle of an object without local handles, whatever packets still name it.
    pub(crate) fn end_global_of(&mut self, object: u32) {
        if !self.sync.objects()[object].is_open()
            && let Some(global) = self.sync.take_global(object)
        {
            self.end_global(global);
        }
    }

    /// `D3DKMTOpenSynchronizationObject`: by global handle; that of an object of another VM is refused.
    pub(crate) fn open_by_global(
        &mut self,
        process: ProcessId,
        shared: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let object = match self.global(shared) {
            Some(Global::Sync(object)) if self.is_of_vm(object, self.process(process).vm) => object,
            _ => return invalid(format!("{shared} is no global handle of a synchronization object")),
        };
        self.require_started_for(process, self.sync.objects()[object].adapter)?;
        self.require_present(object)?;
        Ok(Reply::SyncObject(self.open_object(process, None, object, NewOpen::default(), effects)?))
    }

    /// Whether an object with a global handle is of this VM. It has an open, and all its opens are of one VM.
    fn is_of_vm(&self, object: u32, vm: VmId) -> bool {
        let open = self.sync.objects()[object].opens().next().map(|open| self.sync.opens()[open].process);
        open.and_then(|process| self.processes.get(process)).is_some_and(|process| process.vm == vm)
    }

    // NT handles.

    /// `D3DKMTShareObjects`: {sync object}, {allocation}, or {allocation, keyed mutex, sync object} (FEN-066). An
    /// allocation is named by itself or by its resource.
    pub(crate) fn share_objects(
        &mut self,
        process: ProcessId,
        objects: &[Handle],
        desired_access: u32,
        name: Option<&str>,
        token: ShareToken,
    ) -> CallResult {
        let shared = match *objects {
            [one] => self.shareable_alone(process, one, desired_access)?,
            [resource, mutex, sync] => {
                self.shareable_together(process, [resource, mutex, sync], desired_access)?
            }
            _ => return refuse_bundle(objects),
        };
        let vm = self.process(process).vm;
        let name = match name {
            Some(name) => Some((folded(name)?, String::from(name))),
            None => None,
        };
        if name.as_ref().is_some_and(|(key, _)| self.sharing.names.contains_key(&(vm, key.clone()))) {
            return refuse(NtStatus::OBJECT_NAME_COLLISION, "an object of this VM has this name");
        }
        self.add_share(vm, token, shared, desired_access, name)
    }

    fn shareable_alone(
        &self,
        process: ProcessId,
        handle: Handle,
        desired_access: u32,
    ) -> Result<Shared, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::KeyedMutex(_)) => {
                invalid(format!("{handle} is a keyed mutex: it is shared with an allocation only (FEN-066)"))
            }
            Some(HandleTarget::Resource(_) | HandleTarget::Allocation(_)) => {
                Ok(Shared::Resource(self.shareable_resource(process, handle)?))
            }
            _ => Ok(Shared::Sync(self.shareable_object(process, handle, desired_access)?)),
        }
    }

    fn shareable_together(
        &self,
        process: ProcessId,
        [resource, mutex, sync]: [Handle; 3],
        desired_access: u32,
    ) -> Result<Shared, Refusal> {
        let resource = self.shareable_resource(process, resource)?;
        let (_, mutex_index) = self.keyed_mutex(process, mutex)?;
        if self.keyed.mutexes()[mutex_index].global.is_some() {
            return invalid(format!("{mutex} was not created with NtSecuritySharing"));
        }
        let object = self.shareable_object(process, sync, desired_access)?;
        let object_type = self.sync.objects()[object].object_type;
        if is_mapped(object_type) {
            return invalid(format!(
                "{sync} is a {}: only a type without a value in memory is shared with an allocation",
                object_type.name()
            ));
        }
        Ok(Shared::Guarded { resource, mutex: mutex_index, sync: object })
    }

    fn shareable_object(
        &self,
        process: ProcessId,
        handle: Handle,
        desired_access: u32,
    ) -> Result<u32, Refusal> {
        let (open, object) = self.sync_object(process, handle)?;
        let nt_shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        if !self.sync.objects()[object].flags.contains(nt_shared) {
            return invalid(format!("{handle} was not created with Shared and NtSecuritySharing"));
        }
        let beyond = self.sync.opens()[open].denied - denied_by_rights(granted(desired_access));
        if !beyond.is_empty() {
            let why = format!(
                "access {desired_access:#x} has a right that {handle} was opened without: its NT handle or sync file \
                 means {beyond:?}"
            );
            return refuse(NtStatus::ACCESS_DENIED, why);
        }
        Ok(object)
    }

    /// `D3DKMTOpenSyncObjectNtHandleFromName`: adds an NT handle, with rights of its own.
    pub(crate) fn open_nt_handle_from_name(
        &mut self,
        process: ProcessId,
        name: &str,
        desired_access: u32,
        token: ShareToken,
        sync_object: bool,
    ) -> CallResult {
        let vm = self.process(process).vm;
        let name = folded(name)?;
        let key = (vm, name);
        let Some(shared_name) = self.sharing.names.get(&key).or_else(|| self.granted_by_other_vm(&key))
        else {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "no object that this VM may open has this name");
        };
        if sync_object && !matches!(shared_name.shared, Shared::Sync(_)) {
            return refuse(
                NtStatus::OBJECT_TYPE_MISMATCH,
                "the object of this name is no synchronization object",
            );
        }
        require_readable(granted(desired_access))?;
        let (shared, spelling) = (shared_name.shared, shared_name.spelling.clone());
        self.add_share(vm, token, shared, desired_access, Some((key.1, spelling)))
    }

    /// The object that a grant lets this VM open by a name of another VM.
    fn granted_by_other_vm(&self, (vm, name): &(VmId, String)) -> Option<&SharedName> {
        let of_name = |grant: &&crate::Grant| folded(&grant.name).as_ref() == Ok(name);
        let grants = self.config.grants.iter().filter(of_name);
        let mut granting_vms = grants
            .filter(|grant| grant.vms.iter().any(|vm_name| self.is_called(*vm, vm_name)))
            .flat_map(|grant| &grant.vms);
        granting_vms.find_map(|granting_vm| {
            let owners = core::iter::once(VmId::HOST).chain(self.guests.vms().keys().copied());
            let mut called = owners.filter(|owner| self.is_called(*owner, granting_vm));
            called.find_map(|owner| self.sharing.names.get(&(owner, name.clone())))
        })
    }

    fn is_called(&self, vm: VmId, name: &str) -> bool {
        match vm {
            VmId::HOST => name == HOST_NAME,
            vm => {
                name != HOST_NAME
                    && self.guests.vms().get(&vm).is_some_and(|vm_state| vm_state.config.name == name)
            }
        }
    }

    /// Adds an NT handle. `name` is the name folded for comparison, and as it was given.
    pub(super) fn add_share(
        &mut self,
        vm: VmId,
        token: ShareToken,
        shared: Shared,
        desired_access: u32,
        name: Option<(String, String)>,
    ) -> CallResult {
        if self.sharing.shares.contains_key(&token) {
            return invalid("this share token is in use");
        }
        let shares = self.sharing.of_vm.get(&vm).map_or(0, BTreeSet::len);
        if shares >= limits::SHARES_PER_VM_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the VM has {shares} NT handles, the limit"));
        }
        if let Some(why) = self.processes.shortage_for_share(vm, self.share_bytes(shared)) {
            return refuse(NtStatus::NO_MEMORY, why);
        }
        self.processes.charge_share(vm, self.share_bytes(shared));
        self.sharing.of_vm.entry(vm).or_default().insert(token);
        let name = name.map(|(name, spelling)| {
            let shared_name = SharedName { shared, spelling, handles: 0 };
            self.sharing.names.entry((vm, name.clone())).or_insert(shared_name).handles += 1;
            name
        });
        self.sharing.shares.insert(token, Share { shared, vm, access: granted(desired_access), name });
        if let Some(object) = self.sharing.object_of(shared) {
            self.sync.add_share(object);
        }
        if let Shared::Resource(resource) | Shared::Guarded { resource, .. } = shared {
            self.vidmm.resource_mut(resource).shares += 1;
        }
        if let Shared::Guarded { mutex, .. } = shared {
            self.keyed.add_share(mutex);
        }
        Ok(Reply::None)
    }

    /// Releases the objects of an NT handle that is gone.
    fn release_shared(&mut self, shared: Shared) {
        if let Shared::Guarded { mutex, .. } = shared {
            self.keyed.remove_share(mutex);
            self.drop_mutex_if_unused(mutex);
        }
        if let Shared::Resource(resource) | Shared::Guarded { resource, .. } = shared {
            self.vidmm.resource_mut(resource).shares -= 1;
            self.drop_resource_if_unused(resource);
        }
        let object = match shared {
            Shared::SyncFile(id) => self.end_sync_file(id),
            Shared::Sync(_) | Shared::Resource(_) | Shared::Guarded { .. } => self.sharing.object_of(shared),
        };
        if let Some(object) = object {
            self.sync.remove_share(object);
            self.release_reference(object);
        }
    }

    /// `D3DKMTOpenSyncObjectFromNtHandle2`, and the first form of it without a device.
    pub(crate) fn open_sync_object(
        &mut self,
        process: ProcessId,
        device: Option<Handle>,
        token: ShareToken,
        flags: SyncObjectFlags,
        engine_affinity: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let device = device.map(|device| self.active_device(process, device)).transpose()?;
        let (object, rights) = self.shared_sync_object(process, token)?;
        require_readable(rights)?;
        let (object_type, adapter) =
            (self.sync.objects()[object].object_type, self.sync.objects()[object].adapter);
        // The opener need not repeat the sharing flags of the object (W-145).
        if flags.contains(SyncObjectFlags::SIGNAL_BY_KMD) {
            return invalid(
                "SignalByKmd is for the creator of the object only: the driver signals one event",
            );
        }
        let own = flags | SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        check_flags(object_type, own)?;
        match device {
            None => {
                self.require_started_for(process, adapter)?;
                if !is_of_no_device(object_type) {
                    return invalid(format!("a {} is opened on a device (FEN-064)", object_type.name()));
                }
            }
            Some(device) => self.check_opens_on(process, object, device)?,
        }
        let own = device.map_or(adapter, |device| self.processes.devices()[device].adapter);
        self.check_affinity(process, own, engine_affinity)?;
        if is_mapped(object_type)
            && let Some(reply) = self.fence_memory_missing(process)?
        {
            return Ok(reply);
        }
        let mapping = Mapping { engine_affinity, ..Mapping::default() };
        let new = NewOpen { flags, denied: denied_by_rights(rights), mapping, slot: None };
        let paging_queue = device.map(|device| self.mapping_queue(device)).transpose()?.flatten();
        let mut opened = self.open_object(process, device, object, new, effects)?;
        let (open, _) = self.sync_object(process, opened.object)?;
        if let (Some(paging_queue), Some(slot)) = (paging_queue, opened.slot)
            && !self.sync.opens()[open].flags.contains(SyncObjectFlags::NO_GPU_ACCESS)
        {
            opened.paging_fence_value = self.map_opened_fence(paging_queue, open, slot);
        }
        Ok(Reply::SyncObject(opened))
    }

    /// Refuses an object of another adapter than the device's, unless it crosses adapters.
    pub(super) fn check_same_adapter(&self, object: u32, device: u32) -> Result<(), Refusal> {
        let object = &self.sync.objects()[object];
        if object.adapter == self.processes.devices()[device].adapter
            || object.flags.contains(SyncObjectFlags::CROSS_ADAPTER)
        {
            return Ok(());
        }
        invalid("the shared object is on another adapter and has no CrossAdapter")
    }

    /// Whether an object is a native fence that opens as one on the adapter of a device.
    pub(super) fn opens_as_native(&self, process: ProcessId, object: u32, device: u32) -> bool {
        let own = self.processes.devices()[device].adapter;
        self.sync.objects()[object].object_type == SyncObjectType::NATIVE_FENCE
            && self.adapter_has_native_fences(process, own)
    }

    /// Refuses to open an object on a device that cannot use it as a plain one.
    pub(super) fn check_opens_on(&self, process: ProcessId, object: u32, device: u32) -> Result<(), Refusal> {
        self.check_same_adapter(object, device)?;
        if self.opens_as_native(process, object, device) {
            return invalid(
                "a native fence opens by OpenNativeFenceFromNtHandle on an adapter that has them",
            );
        }
        Ok(())
    }

    /// The synchronization object of an NT handle, and the rights that the handle gives.
    pub(crate) fn shared_sync_object(
        &self,
        process: ProcessId,
        token: ShareToken,
    ) -> Result<(u32, u32), Refusal> {
        let share = self.share(process, token)?;
        match share.shared {
            Shared::Sync(object) => {
                self.require_present(object)?;
                Ok((object, share.access))
            }
            other => {
                let why =
                    format!("the NT handle is of {}, not of a synchronization object alone", other.name());
                refuse(NtStatus::OBJECT_TYPE_MISMATCH, why)
            }
        }
    }

    /// The NT handle of this token, for processes of its VM.
    pub(crate) fn share(&self, process: ProcessId, token: ShareToken) -> Result<&Share, Refusal> {
        let share = self.sharing.shares.get(&token).filter(|share| share.vm == self.process(process).vm);
        share.map_or_else(
            || refuse(NtStatus::INVALID_HANDLE, "the NT handle names no shared object of this VM"),
            Ok,
        )
    }

    /// Ends an NT handle whose last descriptor is closed. Ignores a token without shared objects, whose call was
    /// refused.
    pub(crate) fn nt_handle_closed(&mut self, vm: VmId, token: ShareToken) {
        if self.sharing.shares.get(&token).is_some_and(|share| share.vm == vm) {
            self.end_share(token);
        }
    }

    pub(crate) fn end_share(&mut self, token: ShareToken) {
        let Some(Share { shared, vm, name, .. }) = self.sharing.shares.remove(&token) else { return };
        self.processes.release_share(vm, self.share_bytes(shared));
        if let Some(shares) = self.sharing.of_vm.get_mut(&vm) {
            shares.remove(&token);
            if shares.is_empty() {
                self.sharing.of_vm.remove(&vm);
            }
        }
        if let Some(key) = name.map(|name| (vm, name))
            && let Some(shared_name) = self.sharing.names.get_mut(&key)
        {
            shared_name.handles -= 1;
            if shared_name.handles == 0 {
                self.sharing.names.remove(&key);
            }
        }
        self.release_shared(shared);
    }

    /// The adapter that an item of a wait is on: that of its open, while it has one.
    pub(crate) fn adapter_of(&self, item: &WaitItem) -> u32 {
        let open = item.open.and_then(|open| self.sync.opens().get(open));
        open.map_or_else(|| self.sync.objects()[item.object].adapter, |open| open.adapter)
    }

    /// Reports redundant counts that disagree.
    pub(crate) fn sharing_miscounted(&self) -> Option<&'static str> {
        let mut names = BTreeMap::new();
        let mut of_vm = BTreeMap::new();
        for (token, share) in &self.sharing.shares {
            of_vm.entry(share.vm).or_insert_with(BTreeSet::new).insert(*token);
            if let Some(name) = &share.name {
                *names.entry((share.vm, name.clone())).or_insert(0) += 1;
            }
        }
        if of_vm != self.sharing.of_vm {
            return Some("the shares of a VM");
        }
        let shares_of = |is_it: &dyn Fn(Shared) -> bool| {
            self.sharing.shares.values().filter(|share| is_it(share.shared)).count()
        };
        let of_resource = |index: u32| {
            shares_of(&|shared| match shared {
                Shared::Resource(resource) | Shared::Guarded { resource, .. } => resource == index,
                Shared::Sync(_) | Shared::SyncFile(_) => false,
            })
        };
        let of_mutex = |index: u32| {
            shares_of(&|shared| matches!(shared, Shared::Guarded { mutex, .. } if mutex == index))
        };
        if self.vidmm.memory().resources.iter().any(|(index, one)| one.shares != of_resource(index))
            || self.keyed.mutexes().iter().any(|(index, one)| one.shares != of_mutex(index))
        {
            return Some("the NT handles of a resource or of a keyed mutex");
        }
        let kept = self.sharing.names.iter().map(|(key, shared_name)| (key, shared_name.handles));
        if !kept.eq(names.iter().map(|(key, handles)| (key, *handles))) {
            return Some("the names of shared objects");
        }
        if let Some(what) = self.sync_files_miscounted() {
            return Some(what);
        }
        let sync = self.sync.objects().iter().filter(|(_, object)| object.global().is_some()).count();
        (self.sharing.globals.len() != sync + self.keyed.globals() + self.vidmm.memory().globals())
            .then_some("the global handles")
    }
}

/// Why several objects, or none, are not shared by one NT handle.
fn refuse_bundle(objects: &[Handle]) -> CallResult {
    let most = limits::OBJECTS_PER_SHARE_MAX;
    let count = objects.len();
    if count == 0 || count > most {
        return invalid(format!("an NT handle is of 1 to {most} objects, not {count} (FEN-041)"));
    }
    invalid(format!(
        "{count} objects: only {{allocation, keyed mutex, sync object}} are shared together (FEN-066)"
    ))
}

/// Legacy types need no device to be opened (W-141).
fn is_of_no_device(object_type: SyncObjectType) -> bool {
    use SyncObjectType as T;
    matches!(object_type, T::MUTEX | T::SEMAPHORE | T::FENCE | T::CPU_NOTIFICATION)
}
