//! Creation of allocations: standard ones, and those with private driver data.
//!
//! ```text
//!   StandardAllocation ──▶ GetStandardAllocationDriverData ──▶ no data: the driver is not asked about it
//!                                        │ data
//!   private driver data ─────────────────┴──▶ DxgkDdiCreateAllocation ──▶ size, alignment, segment group, visibility
//!        pSystemMem     memory of the process; its size is the driver's, or grows by what is mapped (`growth.rs`)
//!        without        memory of the device, at an address of the kernel's choice; the driver says its size. With
//!                       CreateShared it counts against what the VM may have of it
//!        hSection       a Linux process has no section objects: NOT_SUPPORTED
//! ```
//! A call creates all of its allocations or none. The caller gets the data of allocations as the driver left them; later
//! opens get them too. Data of the resource are an input. A resource gets more allocations only if it has private
//! driver data and is not shared.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{
    AllocationInfo, CreateAllocation, CreateAllocationFlags, Handle, NtStatus, Reply, StandardAllocation,
    limits,
};

use super::allocation::{Allocation, DriverAllocation, Resource};
use crate::ProcessId;
use crate::ddi::{self, AllocationId, ResourceId, SegmentGroup};
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::sharing::Global;
use crate::vidmm::vaspace::PAGE_BYTES;

use CreateAllocationFlags as F;

/// An allocation that a call wants.
struct Wanted {
    /// An address of the process, or 0.
    system_memory: u64,
    /// Of a standard allocation.
    size: Option<u64>,
    private_data: Vec<u8>,
}

/// The allocations of a call in the kernel's table, and what the driver has made of their data.
struct Created {
    allocations: Vec<u32>,
    /// `hResource` at the driver, of a resource with private driver data, and the data.
    resource: Option<(ResourceId, Vec<u8>)>,
    /// The data of all allocations for the caller; empty if the driver has left them as they were.
    private_data: Vec<u8>,
}

/// Where the new allocations go.
#[derive(Clone, Copy)]
enum Target {
    Device,
    NewResource,
    /// The open of a resource.
    Resource(u32),
}

impl Kernel {
    /// `D3DKMTCreateAllocation` and `..2`.
    pub(crate) fn create_allocation(
        &mut self,
        process: ProcessId,
        create: CreateAllocation,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, create.device)?;
        check_flags(&create)?;
        let target = self.target_of(process, device, &create)?;
        let wanted = match create.standard.filter(|_| create.flags.contains(F::STANDARD_ALLOCATION)) {
            Some(standard) => vec![existing_heap(&create, standard)?],
            None => with_private_data(&create)?,
        };
        let opened = self.process(process).allocations;
        if opened + wanted.len() > limits::ALLOCATIONS_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {opened} allocations, the limit"));
        }
        let Created { allocations: created, resource, private_data } =
            self.make_allocations((process, device), &create, wanted, target, effects)?;
        let owner = (process, device);
        let opened = match target {
            Target::Device => self.open_in_device(owner, &created, effects),
            Target::NewResource => self.open_in_new_resource(owner, create, &created, resource, effects),
            Target::Resource(open) => self.open_in_resource(owner, open, &created, effects),
        };
        match opened {
            Ok((resource, shared_handle, allocations)) => {
                let (sizes, addresses) = self.attached_by_library(&created);
                Ok(Reply::Allocations {
                    resource,
                    shared_handle,
                    allocations,
                    private_data,
                    sizes,
                    addresses,
                })
            }
            Err(refusal) => {
                for allocation in created {
                    self.remove_allocation(allocation);
                }
                Err(refusal)
            }
        }
    }

    /// Sizes and addresses of new allocations, as the reply has them for the creator's library.
    fn attached_by_library(&self, created: &[u32]) -> (Vec<u64>, Vec<u64>) {
        let created = || created.iter().map(|one| &self.vidmm.memory.allocations[*one]);
        let size = |one: &Allocation| match &one.driver {
            Some(driver) if !driver.grows => one.size,
            Some(_) | None => 0,
        };
        let address = |one: &Allocation| if one.is_device_memory() { one.address } else { 0 };
        let (sizes, addresses) = (created().map(size), created().map(address));
        // An array of zeros is left out.
        let some = |numbers: Vec<u64>| if numbers.iter().all(|one| *one == 0) { Vec::new() } else { numbers };
        (some(sizes.collect()), some(addresses.collect()))
    }

    /// Where the allocations of a call go, if they may go there.
    fn target_of(
        &self,
        process: ProcessId,
        device: u32,
        create: &CreateAllocation,
    ) -> Result<Target, Refusal> {
        let (flags, handle) = (create.flags, create.resource);
        if handle != Handle::NULL {
            let open = self.resource_open(process, device, handle).map_err(as_handle)?;
            let resource = &self.vidmm.memory.resources[self.vidmm.memory.resource_opens[open].resource];
            if resource.driver.is_none() || flags.contains(F::STANDARD_ALLOCATION) {
                return invalid(format!(
                    "{handle} has its allocations: a standard allocation cannot be added (W-258)"
                ));
            }
            if flags.contains(F::CREATE_RESOURCE) {
                return invalid(format!("CreateResource, and {handle} to add allocations to"));
            }
            if flags.contains(F::CREATE_SHARED) {
                return invalid(format!(
                    "CreateShared, and {handle} to add allocations to, which is not shared"
                ));
            }
            if resource.global.is_some() || resource.nt_shared || resource.opens > 1 {
                return invalid(format!("{handle} is shared: it gets no more allocations"));
            }
            let (has, more) = (resource.allocations.len(), create.allocations.len());
            let most = limits::ALLOCATIONS_PER_RESOURCE_MAX;
            if has + more > most {
                return invalid(format!(
                    "{handle} has {has} allocations, {more} more are over the limit of {most}"
                ));
            }
            let bytes = self.vidmm.memory.private_data_bytes(resource) + data_bytes(create);
            require_data_room(bytes)?;
            return Ok(Target::Resource(open));
        }
        if flags.contains(F::CREATE_SHARED) && !flags.contains(F::CREATE_RESOURCE) {
            return invalid("CreateShared without CreateResource: only a resource can be shared");
        }
        if flags.contains(F::NT_SECURITY_SHARING) && !flags.contains(F::CREATE_SHARED) {
            return invalid("NtSecuritySharing without CreateShared");
        }
        Ok(if flags.contains(F::CREATE_RESOURCE) { Target::NewResource } else { Target::Device })
    }

    /// Enters new allocations into the table. Those with private data are created at the driver.
    fn make_allocations(
        &mut self,
        (process, device): (ProcessId, u32),
        create: &CreateAllocation,
        mut wanted: Vec<Wanted>,
        target: Target,
        effects: &mut Effects,
    ) -> Result<Created, Refusal> {
        let adapter = self.processes.devices()[device].adapter;
        let is_known = match (create.standard, &mut wanted[..]) {
            (Some(standard), [Wanted { size: Some(size), private_data, .. }]) => {
                let standard = ddi::StandardAllocationData { kind: standard.kind, size: *size };
                let data = self.miniport.get_standard_allocation_driver_data(adapter, &standard);
                let data = data.filter(|data| data.len() <= limits::ALLOCATION_DATA_BYTES_MAX);
                data.map(|data| *private_data = data).is_some()
            }
            _ => true,
        };
        self.spend(wanted.len().saturating_sub(1) as u32);
        let first = self.vidmm.memory.allocations_made + 1;
        self.vidmm.memory.allocations_made += wanted.len() as u64;
        let (drivers, resource, private_data) = match is_known {
            false => (Vec::new(), None, Vec::new()),
            true => {
                let mut request = self.request_of(process, create, &wanted, target, first);
                let before = all_data(&request);
                self.create_at_driver(adapter, &mut request, &wanted, effects)?;
                let after = all_data(&request);
                let is_changed = before != after && create.standard.is_none();
                let resource = request.resource.map(|id| (id, create.private_data.clone()));
                (request.allocations, resource, if is_changed { after } else { Vec::new() })
            }
        };
        let mut drivers = drivers.into_iter();
        let mut allocations = Vec::with_capacity(wanted.len());
        for (number, Wanted { system_memory, size, .. }) in (first..).zip(wanted) {
            let driver = drivers.next();
            let known_size = driver.as_ref().and_then(|info| info.size);
            let driver = driver.map(|info| driver_allocation(adapter, info, size.is_none()));
            let size = size.or(known_size).unwrap_or(0).next_multiple_of(PAGE_BYTES);
            let (address, shared_in) = match system_memory {
                0 => {
                    let is_shared = create.flags.contains(F::CREATE_SHARED);
                    let shared_in = is_shared.then_some(self.process(process).vm);
                    (self.new_device_memory(process, size), shared_in)
                }
                address => (address, None),
            };
            allocations.push(self.vidmm.memory.insert(Allocation {
                owner: process,
                address,
                size,
                number,
                resource: None,
                opens: BTreeSet::new(),
                condemned: 0,
                wanting: BTreeMap::new(),
                adapter,
                resident: None,
                priority: crate::vidmm::lock::PRIORITY_NORMAL,
                driver,
                shared_in,
            }));
        }
        Ok(Created { allocations, resource, private_data })
    }

    /// An address for memory of the device that [`can_be`] has accepted.
    fn new_device_memory(&mut self, process: ProcessId, size: u64) -> u64 {
        let next = &mut self.process_mut(process).next_device_memory;
        let address = *next;
        *next += size;
        address
    }

    fn request_of(
        &mut self,
        process: ProcessId,
        create: &CreateAllocation,
        wanted: &[Wanted],
        target: Target,
        first: u64,
    ) -> ddi::CreateAllocation {
        let resource = match target {
            Target::Device => None,
            Target::NewResource => Some(ResourceId(self.vidmm.memory.next_driver_id())),
            Target::Resource(open) => {
                let resource = self.vidmm.memory.resource_opens[open].resource;
                self.vidmm.memory.resources[resource].driver.as_ref().map(|(id, _)| *id)
            }
        };
        let info = |(number, wanted): (u64, &Wanted)| ddi::AllocationInfo {
            allocation: AllocationId(number),
            private_data: wanted.private_data.clone(),
            system_memory: wanted.system_memory != 0,
            size: None,
            alignment: 0,
            segment_group: SegmentGroup::NonLocal,
            cpu_visible: false,
        };
        ddi::CreateAllocation {
            process,
            flags: create.flags,
            resource,
            new_resource: matches!(target, Target::NewResource),
            private_data: create.private_data.clone(),
            allocations: (first..).zip(wanted).map(info).collect(),
        }
    }

    /// `DxgkDdiCreateAllocation`, and the check of its answer.
    fn create_at_driver(
        &mut self,
        adapter: u32,
        request: &mut ddi::CreateAllocation,
        wanted: &[Wanted],
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let sizes = |request: &ddi::CreateAllocation| {
            let each = request
                .allocations
                .iter()
                .map(|one| (one.allocation, one.system_memory, one.private_data.len()));
            (request.resource, each.collect::<Vec<_>>())
        };
        let (asked, known) = (sizes(&*request), (request.resource, request.new_resource));
        let mut answer = Err(NtStatus::UNSUCCESSFUL);
        self.run_ddi(effects, |miniport, _, callbacks| {
            answer = miniport.create_allocation(adapter, request, callbacks);
        });
        if let Err(status) = answer {
            return Err(self.driver_refused(adapter, "DxgkDdiCreateAllocation", status, effects));
        }
        let wrong = match sizes(&*request) == asked {
            false => Some("it changed handles, or the length of private data"),
            true => request.allocations.iter().find_map(wrong_answer),
        };
        let checked = match wrong {
            Some(what) => {
                self.violation(adapter, &format!("DxgkDdiCreateAllocation: {what}"), effects);
                refuse(NtStatus::UNSUCCESSFUL, "DxgkDdiCreateAllocation failed")
            }
            None => {
                let budgets = self.config.adapters[adapter as usize].budget_bytes();
                let next = self.process(request.process).next_device_memory;
                let can_be = |(one, info)| can_be(one, info, budgets, next);
                let each = wanted.iter().zip(&request.allocations).try_for_each(can_be);
                each.and_then(|()| self.require_shared_room(request))
            }
        };
        if checked.is_err() {
            let allocations = asked.1.iter().map(|(id, ..)| *id).collect();
            let resource = known.0.filter(|_| known.1);
            self.miniport.destroy_allocation(adapter, &ddi::DestroyAllocation { allocations, resource });
        }
        checked
    }

    /// Checks that the VM may have as much more memory of the device in shared resources.
    fn require_shared_room(&self, request: &ddi::CreateAllocation) -> Result<(), Refusal> {
        if !request.flags.contains(F::CREATE_SHARED) {
            return Ok(());
        }
        let of_device = request.allocations.iter().filter(|info| !info.system_memory);
        let more = of_device.map(|info| info.size.unwrap_or(0)).fold(0, u64::saturating_add);
        let vm = self.process(request.process).vm;
        let has = self.vidmm.memory.shared_bytes.get(&vm).copied().unwrap_or(0);
        match limits::SHARED_DEVICE_BYTES_PER_VM_MAX {
            most if more > 0 && has.saturating_add(more) > most => {
                let why = format!(
                    "{more} bytes more of shared memory of the device, of which the VM has {has} of {most}"
                );
                refuse(NtStatus::NO_MEMORY, why)
            }
            _ => Ok(()),
        }
    }

    /// Opens new allocations that are in no resource.
    fn open_in_device(
        &mut self,
        (process, device): (ProcessId, u32),
        created: &[u32],
        effects: &mut Effects,
    ) -> Result<(Handle, Handle, Vec<Handle>), Refusal> {
        let mut handles = Vec::with_capacity(created.len());
        for allocation in created {
            match self.new_allocation_open((process, device), *allocation, None, true, effects) {
                Ok(handle) => {
                    self.processes.device_mut(device).children.insert(handle);
                    handles.push(handle);
                }
                Err(refusal) => {
                    for handle in handles {
                        self.end_allocation(process, handle);
                    }
                    return Err(refusal);
                }
            }
        }
        Ok((Handle::NULL, Handle::NULL, handles))
    }

    /// Opens new allocations in a resource that exists.
    fn open_in_resource(
        &mut self,
        (process, device): (ProcessId, u32),
        open: u32,
        created: &[u32],
        effects: &mut Effects,
    ) -> Result<(Handle, Handle, Vec<Handle>), Refusal> {
        let resource = self.vidmm.memory.resource_opens[open].resource;
        let mut handles = Vec::with_capacity(created.len());
        for allocation in created {
            self.vidmm.memory.allocations[*allocation].resource = Some(resource);
            self.vidmm.memory.resources[resource].allocations.push(*allocation);
            match self.new_allocation_open((process, device), *allocation, Some(open), true, effects) {
                Ok(handle) => {
                    self.vidmm.memory.resource_opens[open].allocations.insert(handle);
                    handles.push(handle);
                }
                Err(refusal) => {
                    self.forget_in_resource(resource, *allocation);
                    for handle in handles {
                        self.end_allocation(process, handle);
                    }
                    return Err(refusal);
                }
            }
        }
        Ok((self.vidmm.memory.resource_opens[open].handle, Handle::NULL, handles))
    }

    /// Opens new allocations in a new resource: the resource's handle is the first (W-010).
    fn open_in_new_resource(
        &mut self,
        (process, device): (ProcessId, u32),
        create: CreateAllocation,
        created: &[u32],
        driver: Option<(ResourceId, Vec<u8>)>,
        effects: &mut Effects,
    ) -> Result<(Handle, Handle, Vec<Handle>), Refusal> {
        let flags = create.flags;
        let resource = self.vidmm.memory.resources.insert(Resource {
            vm: self.process(process).vm,
            adapter: self.processes.devices()[device].adapter,
            arrival: self.tdr.arrival(self.processes.devices()[device].adapter),
            global: None,
            runtime_data: create.runtime_data,
            driver,
            allocations: created.to_vec(),
            opens: 0,
            condemned: 0,
            shares: 0,
            nt_shared: flags.contains(F::CREATE_SHARED | F::NT_SECURITY_SHARING),
        });
        for allocation in created {
            self.vidmm.memory.allocations[*allocation].resource = Some(resource);
        }
        let by_global = flags.contains(F::CREATE_SHARED) && !flags.contains(F::NT_SECURITY_SHARING);
        let global = by_global.then(|| self.new_global(Global::Resource(resource))).transpose();
        let opened = global.and_then(|global| {
            self.vidmm.memory.resources[resource].global = global;
            self.new_resource_open(process, device, resource, true, effects)
        });
        match opened {
            Ok((handle, allocations)) => {
                let shared_handle = self.vidmm.memory.resources[resource].global.unwrap_or(Handle::NULL);
                Ok((handle, shared_handle, allocations))
            }
            Err(refusal) => {
                // At the driver the allocations end before their resource.
                for allocation in created {
                    self.remove_allocation(*allocation);
                }
                self.remove_resource(resource);
                Err(refusal)
            }
        }
    }
}

/// A handle that names nothing is INVALID_HANDLE where a resource may be named or not (W-254).
fn as_handle(refusal: Refusal) -> Refusal {
    Refusal { status: NtStatus::INVALID_HANDLE, ..refusal }
}

fn check_flags(create: &CreateAllocation) -> Result<(), Refusal> {
    let CreateAllocation { flags, runtime_data, .. } = create;
    if flags.unknown() != 0 {
        return invalid(format!("allocation flags {:#x} have reserved bits set", flags.bits()));
    }
    let most = limits::RESOURCE_DATA_BYTES_MAX;
    if runtime_data.len() > most {
        return invalid(format!("{} bytes of private runtime data, the limit is {most}", runtime_data.len()));
    }
    Ok(())
}

/// Bytes of all private driver data of a call.
fn data_bytes(create: &CreateAllocation) -> usize {
    create.private_data.len() + create.allocations.iter().map(|one| one.private_data.len()).sum::<usize>()
}

fn require_data_room(bytes: usize) -> Result<(), Refusal> {
    match limits::ALLOCATION_DATA_BYTES_MAX {
        most if bytes > most => {
            invalid(format!("{bytes} bytes of private driver data, the limit of a resource is {most}"))
        }
        _ => Ok(()),
    }
}

/// The private driver data of all allocations.
fn all_data(request: &ddi::CreateAllocation) -> Vec<u8> {
    request.allocations.iter().flat_map(|info| &info.private_data).copied().collect()
}

/// The allocations of a call with private driver data.
fn with_private_data(create: &CreateAllocation) -> Result<Vec<Wanted>, Refusal> {
    let CreateAllocation { flags, allocations, .. } = create;
    if flags.contains(F::STANDARD_ALLOCATION) || data_bytes(create) == 0 {
        return invalid("neither a standard allocation nor private data for the driver");
    }
    if flags.contains(F::EXISTING_SECTION) {
        let why = "ExistingSection: a process of a Linux guest has no section objects";
        return refuse(NtStatus::NOT_SUPPORTED, why);
    }
    let most = limits::ALLOCATIONS_PER_CALL_MAX;
    if allocations.is_empty() || allocations.len() > most {
        return invalid(format!("a call creates 1 to {most} allocations, not {}", allocations.len()));
    }
    require_data_room(data_bytes(create))?;
    allocations.iter().map(|info| wanted_by(*flags, info)).collect()
}

fn wanted_by(flags: CreateAllocationFlags, info: &AllocationInfo) -> Result<Wanted, Refusal> {
    /// Primary, Stereo, and OverridePriority of `D3DDDI_ALLOCATIONINFO2`.
    const KNOWN_FLAGS: u32 = 0x7;
    if info.flags & !KNOWN_FLAGS != 0 {
        return invalid(format!("flags {:#x} of an allocation have reserved bits set", info.flags));
    }
    if info.flags != 0 {
        let why = format!(
            "flags {:#x} of an allocation: there are no displays and no initial priorities",
            info.flags
        );
        return refuse(NtStatus::NOT_SUPPORTED, why);
    }
    let start = info.system_memory;
    if flags.contains(F::EXISTING_SYS_MEM) && start == 0 {
        return invalid("ExistingSysMem, and an allocation without pSystemMem");
    }
    if !start.is_multiple_of(PAGE_BYTES) || start >= limits::USER_END {
        return invalid(format!("pSystemMem {start:#x} is no page of the process"));
    }
    Ok(Wanted { system_memory: start, size: None, private_data: info.private_data.clone() })
}

/// Returns what is wrong with a driver's answer for an allocation; `None` if nothing is.
fn wrong_answer(info: &ddi::AllocationInfo) -> Option<&'static str> {
    if info.size == Some(0) {
        return Some("a size of 0");
    }
    if info.alignment != 0 && !info.alignment.is_power_of_two() {
        return Some("an alignment that is not a power of two");
    }
    if info.system_memory && info.segment_group == SegmentGroup::Local {
        return Some("memory of a process in the LOCAL segment group");
    }
    (!info.system_memory && info.size.is_none()).then_some("memory of the device without a size")
}

/// Checks that an allocation as the driver wants it can be made. `next`: the process's next address for memory of the
/// device.
fn can_be(wanted: &Wanted, info: &ddi::AllocationInfo, budgets: [u64; 2], next: u64) -> Result<(), Refusal> {
    let start = wanted.system_memory;
    if start == 0 {
        return device_memory_can_be(info, budgets[info.segment_group as usize], next);
    }
    let size = info.size.or(wanted.size).unwrap_or(PAGE_BYTES).checked_next_multiple_of(PAGE_BYTES);
    match size.and_then(|size| start.checked_add(size)).is_some_and(|end| end <= limits::USER_END) {
        true => Ok(()),
        false => invalid(format!("{size:#x?} bytes at {start:#x} are not memory of the process")),
    }
}

fn device_memory_can_be(info: &ddi::AllocationInfo, budget: u64, next: u64) -> Result<(), Refusal> {
    /// What one call can take of the addresses.
    const CALL_BYTES_MAX: u64 = limits::DEVICE_ALLOCATION_BYTES_MAX * limits::ALLOCATIONS_PER_CALL_MAX as u64;
    let size = info.size.unwrap_or(0);
    let most = limits::DEVICE_ALLOCATION_BYTES_MAX.min(budget);
    if size > most {
        let group = match info.segment_group {
            SegmentGroup::Local => "LOCAL",
            SegmentGroup::NonLocal => "NON_LOCAL",
        };
        let why = format!(
            "{size} bytes of memory of the device in {group}, where an allocation has {most} at most"
        );
        return refuse(NtStatus::NO_MEMORY, why);
    }
    if next > limits::DEVICE_MEMORY_END - CALL_BYTES_MAX {
        return refuse(NtStatus::NO_MEMORY, "the process has used up the addresses of memory of the device");
    }
    Ok(())
}

fn driver_allocation(adapter: u32, info: ddi::AllocationInfo, may_grow: bool) -> Box<DriverAllocation> {
    Box::new(DriverAllocation {
        adapter,
        private_data: info.private_data,
        alignment: info.alignment,
        segment_group: info.segment_group,
        cpu_visible: info.cpu_visible,
        grows: may_grow && info.size.is_none(),
    })
}

/// The one allocation of a standard allocation of the caller's own memory (W-252, W-253, W-260).
fn existing_heap(create: &CreateAllocation, standard: StandardAllocation) -> Result<Wanted, Refusal> {
    let CreateAllocation { flags, allocations, .. } = create;
    if standard.kind != StandardAllocation::EXISTING_HEAP {
        return invalid(format!("standard allocation type {} is not EXISTINGHEAP", standard.kind));
    }
    if !flags.contains(F::EXISTING_SYS_MEM) {
        return invalid("an existing heap without ExistingSysMem");
    }
    if standard.flags != 0 {
        return invalid(format!("standard allocation flags {:#x} have reserved bits set", standard.flags));
    }
    if standard.private_data_size != 0 || !create.private_data.is_empty() {
        let size = standard.private_data_size;
        return invalid(format!("{size} bytes of private driver data: a standard allocation has none"));
    }
    let [info] = &allocations[..] else {
        return invalid(format!("{} allocations: a standard allocation is one", allocations.len()));
    };
    let (start, size) = (info.system_memory, standard.size);
    if size == 0 || !size.is_multiple_of(PAGE_BYTES) {
        return invalid(format!("the size {size:#x} is not a multiple of 4 KiB"));
    }
    let is_user_memory = start.checked_add(size).is_some_and(|end| end <= limits::USER_END);
    if start == 0 || !start.is_multiple_of(PAGE_BYTES) || !is_user_memory {
        return invalid(format!("{size:#x} bytes at {start:#x} are not pages of the process"));
    }
    if !info.private_data.is_empty() || info.flags != 0 {
        return invalid("private driver data or flags of an allocation: a standard allocation has none");
    }
    Ok(Wanted { system_memory: start, size: Some(size), private_data: Vec::new() })
}
