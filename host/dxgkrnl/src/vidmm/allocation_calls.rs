//! The calls of allocations and resources, except their creation (`create_calls.rs`). See `allocation.rs` for the
//! rules.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use d3dkmt::{
    DestroyAllocationFlags, Handle, NtStatus, Reply, ResourceInfo, RuntimeBuffer, ShareToken, limits,
};

use super::after_work::{Action, AfterWorkCall};
use super::allocation::{Allocation, AllocationOpen, NO_ARRIVAL, Resource, ResourceOpen};
use super::long_call::RestOfCall;
use crate::ddi::{self, HappensBefore, LocalAllocationId};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::sharing::{Global, Shared, denied_by_rights, require_readable};
use crate::sync::NewOpen;
use crate::vidsch::Task;
use crate::{ProcessId, VmId};

/// Handles of a list that are looked up for one unit of work.
pub(super) const NAMED_PER_UNIT: usize = 16;

impl Kernel {
    /// Creates a handle to a resource, then one to each of its allocations.
    pub(super) fn new_resource_open(
        &mut self,
        process: ProcessId,
        device: u32,
        resource: u32,
        is_creators: bool,
        effects: &mut Effects,
    ) -> Result<(Handle, Vec<Handle>), Refusal> {
        let open = self.vidmm.memory.resource_opens.insert(ResourceOpen {
            process,
            handle: Handle::NULL,
            device,
            resource,
            allocations: BTreeSet::new(),
        });
        let handle = match self.insert_handle(process, HandleTarget::Resource(open)) {
            Ok(handle) => handle,
            Err(refusal) => {
                self.vidmm.memory.resource_opens.remove(open);
                return Err(refusal);
            }
        };
        self.vidmm.memory.resources[resource].opens += 1;
        self.vidmm.memory.resource_opens[open].handle = handle;
        self.processes.device_mut(device).children.insert(handle);
        for allocation in self.vidmm.memory.resources[resource].allocations.clone() {
            match self.new_allocation_open((process, device), allocation, Some(open), is_creators, effects) {
                Ok(handle) => _ = self.vidmm.memory.resource_opens[open].allocations.insert(handle),
                Err(refusal) => {
                    self.end_resource(process, handle);
                    return Err(refusal);
                }
            }
        }
        Ok((handle, self.vidmm.memory.resource_opens[open].allocations.iter().copied().collect()))
    }

    pub(super) fn new_allocation_open(
        &mut self,
        (process, device): (ProcessId, u32),
        allocation: u32,
        resource: Option<u32>,
        is_creators: bool,
        effects: &mut Effects,
    ) -> Result<Handle, Refusal> {
        let local = self.open_at_driver(device, allocation, is_creators, effects)?;
        let open = AllocationOpen::new(process, device, allocation);
        let open = self.vidmm.memory.allocation_opens.insert(AllocationOpen {
            resource,
            is_creators,
            local,
            ..open
        });
        match self.insert_handle(process, HandleTarget::Allocation(open)) {
            Ok(handle) => {
                self.vidmm.memory.allocation_opens[open].handle = handle;
                self.vidmm.memory.allocations[allocation].opens.insert(open);
                self.process_mut(process).allocations += 1;
                Ok(handle)
            }
            Err(refusal) => {
                self.close_at_driver(open);
                self.vidmm.memory.allocation_opens.remove(open);
                Err(refusal)
            }
        }
    }

    /// `D3DKMTDestroyAllocation` and `..2`: a resource with what it has left, or allocations.
    pub(crate) fn destroy_allocation(
        &mut self,
        process: ProcessId,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
        flags: DestroyAllocationFlags,
        effects: &mut Effects,
    ) -> CallResult {
        let (device, name) = (self.device(process, device)?, device);
        if flags.unknown() != 0 {
            return invalid(format!("destroy flags {:#x} have reserved bits set", flags.bits()));
        }
        let rest = |handles: VecDeque<Handle>| {
            if flags.contains(DestroyAllocationFlags::ASSUME_NOT_IN_USE) {
                return RestOfCall::Destroy(handles);
            }
            let synchronous = flags.contains(DestroyAllocationFlags::SYNCHRONOUS_DESTROY);
            RestOfCall::AfterWork(AfterWorkCall::new(name, Action::Destroy { handles, synchronous }))
        };
        if resource != Handle::NULL {
            if !allocations.is_empty() {
                return invalid(
                    "a resource and a list of allocations are given: a call destroys one of the two",
                );
            }
            self.resource_open(process, device, resource)?;
            return self.begin_call(process, rest([resource].into()), effects);
        }
        let most = limits::ALLOCATIONS_PER_CALL_MAX;
        if allocations.len() > most {
            return invalid(format!("{} allocations, the limit is {most}", allocations.len()));
        }
        let (mut distinct, mut of_list) = (BTreeSet::new(), None);
        for handle in allocations {
            let open = self.allocation_open(process, device, *handle)?;
            let resource = self.resource_of(open);
            if *of_list.get_or_insert(resource) != resource {
                return invalid(
                    "the list has allocations of a resource and others: it is of one resource or of none",
                );
            }
            if !distinct.insert(*handle) {
                return invalid(format!("{handle} is named twice"));
            }
        }
        self.spend((allocations.len() / NAMED_PER_UNIT) as u32);
        self.begin_call(process, rest(allocations.to_vec().into()), effects)
    }

    /// The resource that an open of an allocation is of.
    fn resource_of(&self, open: u32) -> Option<u32> {
        self.vidmm.memory.allocations[self.vidmm.memory.allocation_opens[open].allocation].resource
    }

    /// Destroys allocations and resources, or those of them that are condemned: others have ended, and their handles may
    /// name something else. False if some are beyond the units of the step.
    pub(super) fn end_allocations(
        &mut self,
        process: ProcessId,
        handles: &mut VecDeque<Handle>,
        condemned: bool,
    ) -> bool {
        while !self.is_spent() {
            let Some(handle) = handles.front().copied() else { return true };
            let ends = !condemned || self.vidmm.after_work.is_condemned(process, handle);
            if !ends || self.end_memory(process, handle) {
                handles.pop_front();
                self.spend(1);
            }
        }
        false
    }

    /// Destroys an allocation or a resource, with what is mapped of it. False if the units of the step do not reach for
    /// all; then its handle still exists.
    pub(crate) fn end_memory(&mut self, process: ProcessId, handle: Handle) -> bool {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::Allocation(open)) => {
                let is_unmapped = self.unmap_open(open);
                if is_unmapped {
                    self.end_allocation(process, handle);
                }
                is_unmapped
            }
            Some(HandleTarget::Resource(open)) => {
                while let Some(allocation) =
                    self.vidmm.memory.resource_opens[open].allocations.first().copied()
                {
                    if self.is_spent() || !self.end_memory(process, allocation) {
                        return false;
                    }
                    self.spend(1);
                }
                self.end_resource(process, handle);
                true
            }
            Some(
                HandleTarget::Adapter(_)
                | HandleTarget::Device(_)
                | HandleTarget::Context(_)
                | HandleTarget::Sync(_)
                | HandleTarget::PagingQueue(_)
                | HandleTarget::HwQueue(_)
                | HandleTarget::KeyedMutex(_),
            )
            | None => true,
        }
    }

    /// Removes the handle of a resource, and those of the allocations that are left in it, of which nothing is mapped.
    fn end_resource(&mut self, process: ProcessId, handle: Handle) -> Reply {
        let Some(HandleTarget::Resource(open)) = self.remove_handle(process, handle) else {
            return Reply::None;
        };
        let was_condemned = self.vidmm.after_work.remove_handle(process, handle);
        let allocations = self.vidmm.memory.resource_opens[open].allocations.clone();
        self.spend(allocations.len() as u32);
        for allocation in allocations {
            self.end_allocation(process, allocation);
        }
        let ended = self.vidmm.memory.resource_opens.remove(open).expect("a handle names a live open");
        self.processes.device_mut(ended.device).children.remove(&handle);
        let resource = &mut self.vidmm.memory.resources[ended.resource];
        resource.opens -= 1;
        resource.condemned -= usize::from(was_condemned);
        self.drop_resource_if_unused(ended.resource);
        Reply::None
    }

    /// Drops the unused allocations of a resource without an NT handle, and a resource that has nothing left.
    pub(crate) fn drop_resource_if_unused(&mut self, resource: u32) {
        if self.vidmm.memory.resources[resource].shares == 0 {
            for allocation in self.vidmm.memory.resources[resource].allocations.clone() {
                self.leave_resource_if_condemned(allocation);
                self.drop_allocation_if_unused(allocation);
            }
            self.end_global_if_condemned(resource);
        }
        self.remove_resource_if_empty(resource);
    }

    /// A resource lives while it has an open, an NT handle, or an allocation, which a doorbell may keep as its ring.
    fn remove_resource_if_empty(&mut self, resource: u32) {
        let Resource { opens, shares, ref allocations, .. } = self.vidmm.memory.resources[resource];
        if opens + shares == 0 && allocations.is_empty() {
            self.remove_resource(resource);
        }
    }

    /// Marks the resources on an adapter that no VM has but the one from which the adapter was removed.
    pub(crate) fn mark_removed_resources(&mut self, vm: VmId, adapter: u32) {
        let memory = &self.vidmm.memory;
        let vm_of = |process| self.processes.get(process).map_or(VmId::HOST, |one| one.vm);
        let opens = memory.resource_opens.iter().map(|(_, open)| (open.resource, vm_of(open.process)));
        let shares = self.sharing.shares().values().filter_map(|share| match share.shared {
            Shared::Resource(resource) | Shared::Guarded { resource, .. } => Some((resource, share.vm)),
            Shared::Sync(_) | Shared::SyncFile(_) => None,
        });
        let others: BTreeSet<u32> =
            opens.chain(shares).filter(|(_, of)| *of != vm).map(|(resource, _)| resource).collect();
        let own = memory.resources.iter().filter(|(id, resource)| {
            (resource.vm, resource.adapter) == (vm, adapter) && !others.contains(id)
        });
        let own: Vec<u32> = own.map(|(id, _)| id).collect();
        for resource in own {
            self.vidmm.memory.resources[resource].arrival = NO_ARRIVAL;
        }
    }

    pub(super) fn is_kept(&self, allocation: &Allocation) -> bool {
        allocation.resource.is_some_and(|resource| self.vidmm.memory.resources[resource].shares > 0)
    }

    /// An allocation lives while it has an open, or its resource an NT handle.
    fn drop_allocation_if_unused(&mut self, allocation: u32) {
        let Allocation { resource, ref opens, .. } = self.vidmm.memory.allocations[allocation];
        if !opens.is_empty() || self.is_kept(&self.vidmm.memory.allocations[allocation]) {
            return;
        }
        self.remove_allocation(allocation);
        if let Some(resource) = resource {
            self.forget_in_resource(resource, allocation);
        }
    }

    /// Removes an allocation from the list of its resource.
    pub(super) fn forget_in_resource(&mut self, resource: u32, allocation: u32) {
        let allocations = &mut self.vidmm.memory.resources[resource].allocations;
        if let Some(at) = allocations.iter().position(|one| *one == allocation) {
            allocations.remove(at);
        }
    }

    /// Removes the handle of an allocation of which nothing is mapped.
    pub(crate) fn end_allocation(&mut self, process: ProcessId, handle: Handle) -> Reply {
        let Some(HandleTarget::Allocation(open)) = self.remove_handle(process, handle) else {
            return Reply::None;
        };
        let was_condemned = self.vidmm.after_work.remove_handle(process, handle);
        let AllocationOpen { device, resource, allocation, .. } = self.vidmm.memory.allocation_opens[open];
        self.vidmm.memory.allocations[allocation].condemned -= usize::from(was_condemned);
        match resource {
            Some(resource) => self.vidmm.memory.resource_opens[resource].allocations.remove(&handle),
            None => self.processes.device_mut(device).children.remove(&handle),
        };
        self.end_open(open);
        Reply::None
    }

    /// Ends the kernel's own open of a ring, as far as the units of the step reach.
    pub(crate) fn end_ring(&mut self, process: ProcessId, open: u32) {
        match self.unmap_open(open) {
            true => self.end_open(open),
            false => self.leave(process, Task::EndRing(open)),
        }
    }

    /// Ends an open of an allocation that has mapped nothing any more, and releases its counts.
    pub(crate) fn end_open(&mut self, open: u32) {
        let AllocationOpen { process, allocation, is_creators, .. } =
            self.vidmm.memory.allocation_opens[open];
        self.process_mut(process).allocations -= 1;
        if self.vidmm.held.remove(&(allocation, process, open)) {
            self.processes.release(process, self.ring_weight(allocation));
        }
        self.drop_residency(open);
        self.vidmm.after_work.forget_offer(open);
        self.close_at_driver(open);
        self.vidmm.memory.allocation_opens.remove(open);
        let state = &mut self.vidmm.memory.allocations[allocation];
        state.opens.remove(&open);
        let (resource, is_used) = (state.resource, !state.opens.is_empty());
        if is_used {
            self.leave_resource_if_condemned(allocation);
        }
        self.drop_allocation_if_unused(allocation);
        if is_creators {
            self.vidmm.memory.creator_leaves(allocation);
        }
        if let Some(resource) = resource {
            self.remove_resource_if_empty(resource);
        }
    }

    /// `D3DKMTQueryResourceInfo`: by global handle; a local one is refused (W-263).
    pub(crate) fn query_resource_info(
        &mut self,
        process: ProcessId,
        device: Handle,
        shared: Handle,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let resource = self.shared_resource(process, device, shared)?;
        Ok(Reply::ResourceInfo(self.resource_info(resource)))
    }

    /// `D3DKMTGetSharedResourceAdapterLuid` by global handle.
    pub(crate) fn adapter_of_global(&self, process: ProcessId, shared: Handle) -> CallResult {
        let resource = self.resource_of_global(process, shared)?;
        self.adapter_luid(resource)
    }

    /// `D3DKMTOpenResource` and `..2`: the caller's buffers must have the sizes that the query returned (W-266).
    pub(crate) fn open_resource(
        &mut self,
        process: ProcessId,
        device: Handle,
        shared: Handle,
        buffers: ResourceInfo,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let resource = self.shared_resource(process, device, shared)?;
        self.open_for((process, device), resource, buffers, effects)
    }

    fn open_for(
        &mut self,
        (process, device): (ProcessId, u32),
        resource: u32,
        buffers: ResourceInfo,
        effects: &mut Effects,
    ) -> CallResult {
        let (adapter, arrival) =
            (self.vidmm.memory.resources[resource].adapter, self.vidmm.memory.resources[resource].arrival);
        self.require_present_resource(adapter, arrival)?;
        self.require_reach(process, resource)?;
        let info = self.resource_info(resource);
        let differ = |what: &str, has: u32, is: u32| match has == is {
            true => Ok(()),
            false => invalid(format!("{what}: {has} was given, the resource has {is}")),
        };
        if buffers.allocations == 0 {
            return invalid("no room for allocations");
        }
        differ("allocations", buffers.allocations, info.allocations)?;
        differ("bytes of private runtime data", buffers.runtime_data_size, info.runtime_data_size)?;
        differ(
            "bytes of the resource's private driver data",
            buffers.private_data_size,
            info.private_data_size,
        )?;
        if buffers.total_private_data_size < info.total_private_data_size {
            let (has, is) = (buffers.total_private_data_size, info.total_private_data_size);
            return invalid(format!(
                "{has} bytes for the private driver data of all allocations, which is {is}"
            ));
        }
        let opened = self.process(process).allocations;
        if opened + info.allocations as usize > limits::ALLOCATIONS_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {opened} allocations, the limit"));
        }
        let (handle, allocations) = self.new_resource_open(process, device, resource, false, effects)?;
        let (private_data, private_data_sizes) = self.resource_private_data(resource);
        Ok(Reply::OpenedResource {
            resource: handle,
            allocations,
            runtime_data: self.vidmm.memory.resources[resource].runtime_data.clone(),
            keyed_mutex: Handle::NULL,
            sync_object: Handle::NULL,
            private_data,
            private_data_sizes,
        })
    }

    /// Memory of the device is in pages of a VM, which no process of another VM can get.
    fn require_reach(&self, process: ProcessId, resource: u32) -> Result<(), Refusal> {
        let (memory, vm) = (&self.vidmm.memory, self.process(process).vm);
        let of = memory.resources[resource].allocations.iter();
        match of.filter_map(|one| memory.allocations[*one].shared_in).find(|of| *of != vm) {
            Some(other) => {
                let why = format!(
                    "the resource has memory of the device, in pages of vm {}: no process of vm {} can open it",
                    other.0, vm.0
                );
                refuse(NtStatus::NOT_SUPPORTED, why)
            }
            None => Ok(()),
        }
    }

    /// The private driver data of a resource and of its allocations, and the sizes of the latter if there are any.
    fn resource_private_data(&self, resource: u32) -> (Vec<u8>, Vec<u32>) {
        let memory = &self.vidmm.memory;
        let resource = &memory.resources[resource];
        let mut data = resource.driver.as_ref().map(|(_, data)| data.clone()).unwrap_or_default();
        let mut sizes = Vec::new();
        for allocation in &resource.allocations {
            let of_allocation = memory.allocations[*allocation].private_data();
            data.extend_from_slice(of_allocation);
            sizes.push(of_allocation.len() as u32);
        }
        if sizes.iter().all(|size| *size == 0) {
            sizes.clear();
        }
        (data, sizes)
    }

    /// `D3DKMTQueryResourceInfoFromNtHandle`.
    pub(crate) fn query_resource_info_by_token(
        &mut self,
        process: ProcessId,
        device: Handle,
        token: ShareToken,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let (resource, ..) = self.resource_of_token(process, device, token)?;
        Ok(Reply::ResourceInfo(self.resource_info(resource)))
    }

    /// `D3DKMTOpenResourceFromNtHandle`: with the keyed mutex and the synchronization object that go with it.
    pub(crate) fn open_resource_by_token(
        &mut self,
        process: ProcessId,
        device: Handle,
        token: ShareToken,
        buffers: ResourceInfo,
        mutex_buffer: RuntimeBuffer,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.active_device(process, device)?;
        let (resource, shared, rights) = self.resource_of_token(process, id, token)?;
        let mut opened = self.open_for((process, id), resource, buffers, effects)?;
        let Reply::OpenedResource { resource, ref mut keyed_mutex, ref mut sync_object, .. } = opened else {
            return Ok(opened);
        };
        if let Shared::Guarded { mutex, sync, .. } = shared {
            match self.open_guards(process, (id, mutex, sync), rights, mutex_buffer, effects) {
                Ok(guards) => (*keyed_mutex, *sync_object) = guards,
                Err(refusal) => {
                    self.end_resource(process, resource);
                    return Err(refusal);
                }
            }
        }
        Ok(opened)
    }

    fn open_guards(
        &mut self,
        process: ProcessId,
        (device, mutex, sync): (u32, u32, u32),
        rights: u32,
        mutex_buffer: RuntimeBuffer,
        effects: &mut Effects,
    ) -> Result<(Handle, Handle), Refusal> {
        let mutex = match self.open_mutex(process, mutex, mutex_buffer)? {
            Reply::KeyedMutex { mutex, .. } => mutex,
            other => unreachable!("a keyed mutex opens as {other:?}"),
        };
        let new = NewOpen { denied: denied_by_rights(rights), ..NewOpen::default() };
        match self.open_object(process, Some(device), sync, new, effects) {
            Ok(opened) => Ok((mutex, opened.object)),
            Err(refusal) => {
                self.destroy_keyed_mutex(process, mutex, effects)?;
                Err(refusal)
            }
        }
    }

    /// `D3DKMTGetSharedResourceAdapterLuid` by NT handle.
    pub(crate) fn adapter_of_token(&self, process: ProcessId, token: ShareToken) -> CallResult {
        let (resource, ..) = self.any_resource_of_token(process, token)?;
        self.adapter_luid(resource)
    }

    /// The adapter of a resource. A resource of an earlier arrival has none: no device of the new one can open it.
    fn adapter_luid(&self, resource: u32) -> CallResult {
        let Resource { adapter, arrival, .. } = self.vidmm.memory.resources[resource];
        self.require_started(adapter)?;
        self.require_present_resource(adapter, arrival)?;
        Ok(Reply::AdapterLuid { luid: self.config.adapters[adapter as usize].luid })
    }

    /// The resource of an NT handle, with all that the handle names and its rights.
    fn any_resource_of_token(
        &self,
        process: ProcessId,
        token: ShareToken,
    ) -> Result<(u32, Shared, u32), Refusal> {
        let share = self.share(process, token)?;
        let (Shared::Resource(resource) | Shared::Guarded { resource, .. }) = share.shared else {
            let why = format!("the NT handle is of {}, not of a resource", share.shared.name());
            return refuse(NtStatus::OBJECT_TYPE_MISMATCH, why);
        };
        require_readable(share.access)?;
        Ok((resource, share.shared, share.access))
    }

    /// The resource of an NT handle, for a device, with all that the handle names and its rights.
    fn resource_of_token(
        &self,
        process: ProcessId,
        device: u32,
        token: ShareToken,
    ) -> Result<(u32, Shared, u32), Refusal> {
        let (resource, shared, access) = self.any_resource_of_token(process, token)?;
        let (adapter, of) =
            (self.processes.devices()[device].adapter, self.vidmm.memory.resources[resource].adapter);
        if adapter != of {
            return invalid(format!("the resource is of adapter {of}, the device is of adapter {adapter}"));
        }
        Ok((resource, shared, access))
    }

    /// The resource that a handle names, or whose allocation it names, if it may be shared by NT handles.
    pub(crate) fn shareable_resource(&self, process: ProcessId, handle: Handle) -> Result<u32, Refusal> {
        let memory = &self.vidmm.memory;
        let is_there = !self.vidmm.after_work.is_condemned(process, handle);
        let resource = match self.process(process).handles.get(handle).filter(|_| is_there) {
            Some(HandleTarget::Resource(open)) => Some(memory.resource_opens[open].resource),
            Some(HandleTarget::Allocation(open)) => self.resource_of(open),
            _ => {
                return invalid(format!(
                    "{handle} is no allocation and no resource of this process (FEN-066)"
                ));
            }
        };
        match resource.filter(|resource| memory.resources[*resource].nt_shared) {
            Some(resource) => Ok(resource),
            None => invalid(format!("{handle} was not created with CreateShared and NtSecuritySharing")),
        }
    }

    fn resource_info(&self, resource: u32) -> ResourceInfo {
        let resource = &self.vidmm.memory.resources[resource];
        let own = resource.driver.as_ref().map_or(0, |(_, data)| data.len());
        let all = self.vidmm.memory.private_data_bytes(resource);
        ResourceInfo {
            runtime_data_size: resource.runtime_data.len() as u32,
            private_data_size: own as u32,
            total_private_data_size: (all - own) as u32,
            allocations: resource.allocations.len() as u32,
        }
    }

    /// The resource of a global handle.
    fn resource_of_global(&self, process: ProcessId, shared: Handle) -> Result<u32, Refusal> {
        let vm = self.process(process).vm;
        match self.global(shared) {
            Some(Global::Resource(resource)) if self.vidmm.memory.resources[resource].vm == vm => {
                Ok(resource)
            }
            _ => invalid(format!("{shared} is no global handle of a resource")),
        }
    }

    /// The resource of a global handle, for a device.
    fn shared_resource(&self, process: ProcessId, device: u32, shared: Handle) -> Result<u32, Refusal> {
        let resource = self.resource_of_global(process, shared)?;
        let adapter = self.processes.devices()[device].adapter;
        let state = &self.vidmm.memory.resources[resource];
        if state.adapter != adapter {
            return invalid(format!(
                "{shared} is of adapter {}, the device is of adapter {adapter}",
                state.adapter
            ));
        }
        Ok(resource)
    }

    pub(crate) fn resource_open(
        &self,
        process: ProcessId,
        device: u32,
        handle: Handle,
    ) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::Resource(open))
                if self.vidmm.memory.resource_opens[open].device == device
                    && !self.vidmm.after_work.is_condemned(process, handle) =>
            {
                Ok(open)
            }
            _ => invalid(format!("{handle} is no resource of this device")),
        }
    }

    pub(crate) fn allocation_open(
        &self,
        process: ProcessId,
        device: u32,
        handle: Handle,
    ) -> Result<u32, Refusal> {
        match self.process(process).handles.get(handle) {
            Some(HandleTarget::Allocation(open))
                if self.vidmm.memory.allocation_opens[open].device == device
                    && !self.vidmm.after_work.is_condemned(process, handle) =>
            {
                Ok(open)
            }
            _ => invalid(format!("{handle} is no allocation of this device")),
        }
    }

    /// Removes an allocation, also at its driver.
    pub(super) fn remove_allocation(&mut self, allocation: u32) {
        let Some(removed) = self.vidmm.memory.remove(allocation) else { return };
        if self.happens_before.is_on() {
            let Allocation { owner, address, size, .. } = removed;
            let range = address..address.saturating_add(size);
            for Range { start, end } in self.vidmm.memory.without_allocation(owner, range) {
                self.edge(HappensBefore::MemoryGone { owner, address: start, bytes: end - start });
            }
        }
        if let Some(driver) = &removed.driver {
            let destroy = ddi::DestroyAllocation { allocations: [removed.id()].into(), resource: None };
            self.miniport.destroy_allocation(driver.adapter, &destroy);
        }
    }

    /// Removes a resource, with its global handle, also at its driver.
    pub(super) fn remove_resource(&mut self, resource: u32) {
        let Some(removed) = self.vidmm.memory.resources.remove(resource) else { return };
        if let Some((id, _)) = removed.driver {
            let destroy = ddi::DestroyAllocation { allocations: Vec::new(), resource: Some(id) };
            self.miniport.destroy_allocation(removed.adapter, &destroy);
        }
        if let Some(global) = removed.global {
            self.end_global(global);
        }
    }

    /// Opens an allocation at its driver, if that knows it.
    fn open_at_driver(
        &mut self,
        device: u32,
        allocation: u32,
        create: bool,
        effects: &mut Effects,
    ) -> Result<Option<LocalAllocationId>, Refusal> {
        if self.vidmm.memory.allocations[allocation].driver.is_none() {
            return Ok(None);
        }
        let opened = LocalAllocationId(self.vidmm.memory.next_driver_id());
        let state = &self.vidmm.memory.allocations[allocation];
        let open = ddi::OpenAllocation {
            device: self.processes.devices()[device].kmd,
            allocation: state.id(),
            opened,
            create,
            private_data: state.private_data(),
        };
        let adapter = self.processes.devices()[device].adapter;
        match self.miniport.open_allocation(adapter, &open) {
            Ok(()) => Ok(Some(opened)),
            Err(status) => Err(self.driver_refused(adapter, "DxgkDdiOpenAllocation", status, effects)),
        }
    }

    fn close_at_driver(&mut self, open: u32) {
        let AllocationOpen { device, local, .. } = self.vidmm.memory.allocation_opens[open];
        if let Some(opened) = local {
            let device = &self.processes.devices()[device];
            self.miniport.close_allocation(device.adapter, device.kmd, opened);
        }
    }

    /// Reports redundant counts of the tables that disagree.
    pub(crate) fn memory_miscounted(&self) -> Option<&'static str> {
        let memory = &self.vidmm.memory;
        let opens = |(index, one): (u32, &Allocation)| {
            one.opens.iter().map(move |open| (*open, index)).collect::<Vec<_>>()
        };
        let opens: BTreeSet<(u32, u32)> = memory.allocations.iter().flat_map(opens).collect();
        let of_opens = memory.allocation_opens.iter().map(|(index, open)| (index, open.allocation));
        if memory.allocations.iter().any(|(_, one)| one.opens.is_empty() && !self.is_kept(one))
            || opens != of_opens.collect()
        {
            return Some("the opens of an allocation");
        }
        let opens_of_resources = tally(memory.resource_opens.iter().map(|(_, open)| open.resource));
        let alive = |(index, one): (u32, &Resource)| {
            opens_of_resources.get(&index).map_or(0, |opens| *opens) == one.opens
                && (one.opens + one.shares > 0 || !one.allocations.is_empty())
        };
        if !memory.resources.iter().all(alive) {
            return Some("the opens of a resource");
        }
        let members = |(index, one): (u32, &Resource)| {
            one.allocations.iter().map(move |allocation| (index, *allocation)).collect::<Vec<_>>()
        };
        let of_resources: BTreeSet<(u32, u32)> = memory.resources.iter().flat_map(members).collect();
        let of_allocation = |(index, one): (u32, &Allocation)| one.resource.map(|resource| (resource, index));
        if of_resources != memory.allocations.iter().filter_map(of_allocation).collect() {
            return Some("the allocations of a resource");
        }
        let opened = |(index, one): (u32, &ResourceOpen)| {
            one.allocations.iter().map(move |handle| (index, *handle)).collect::<Vec<_>>()
        };
        let of_opens: BTreeSet<(u32, Handle)> = memory.resource_opens.iter().flat_map(opened).collect();
        let of_open = |(_, one): (u32, &AllocationOpen)| one.resource.map(|open| (open, one.handle));
        if of_opens != memory.allocation_opens.iter().filter_map(of_open).collect() {
            return Some("the allocations of an opened resource");
        }
        if memory.shared_is_miscounted() {
            return Some("the shared memory of the device");
        }
        if memory.without_creator_is_miscounted() {
            return Some("the memory whose creator has destroyed its handle");
        }
        let of_processes = tally(memory.allocation_opens.iter().map(|(_, open)| open.process));
        let counted = self.processes.by_id().iter().filter(|(_, process)| process.allocations > 0);
        let counted = counted.map(|(id, process)| (id, &process.allocations));
        if !counted.eq(&of_processes) {
            return Some("the allocations of a process");
        }
        if self.after_work_is_miscounted() {
            return Some("the marks of memory that waits for work");
        }
        self.residency_miscounted()
    }
}

/// Counts how often each key occurs.
fn tally<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut tally = BTreeMap::new();
    for key in keys {
        *tally.entry(key).or_default() += 1;
    }
    tally
}
