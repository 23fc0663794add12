//! Allocations of this process's own memory, residency and locks.
//!
//! `unsafe` here: memory is mapped, and the library is called.

use d3dkmt::{Call, CreateAllocation, DestroyAllocationFlags, Handle, NtStatus, Reply, ShareToken};

use super::Done;
use crate::ScenarioClient;
use crate::abi::sdk;

/// Maps memory for an allocation until the process exits, because the library and engines may access it that long. If
/// that fails, the runner's address is returned, which the library passes on unchanged.
fn memory(address: u64, bytes: u64) -> u64 {
    let Ok(length @ 1..) = usize::try_from(bytes) else { return address };
    let (protection, flags) = (
        rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
        rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
    );
    // SAFETY: at an address that the kernel chooses.
    let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
    mapped.map_or(address, |at| at.expose_provenance() as u64)
}

pub fn create(scenario_client: &ScenarioClient, create: &CreateAllocation) -> Done {
    // Scenarios have no words for other forms.
    let (Some(wanted), [info]) = (create.standard, &create.allocations[..]) else { return Done::no_c_form() };
    let mut standard =
        sdk::D3DKMT_CREATESTANDARDALLOCATION { Type: wanted.kind as i32, ..Default::default() };
    standard.Anonymous.ExistingHeapData.Size = wanted.size as usize;
    let mut allocation = sdk::D3DDDI_ALLOCATIONINFO2::default();
    let address = memory(info.system_memory, wanted.size);
    allocation.Anonymous1.pSystemMem = std::ptr::with_exposed_provenance(address as usize);
    let mut call = sdk::D3DKMT_CREATEALLOCATION {
        hDevice: create.device.0,
        hResource: create.resource.0,
        NumAllocations: 1,
        ..Default::default()
    };
    call.Anonymous1.pStandardAllocation = &raw mut standard;
    call.Anonymous2.pAllocationInfo2 = &raw mut allocation;
    call.Flags._bitfield = create.flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateAllocation2(&mut call) };
    if NtStatus(status as u32).is_success() {
        scenario_client.memory.created(Handle(allocation.hAllocation), address, wanted.size);
    }
    Done::reply(status, || Reply::Allocations {
        resource: Handle(call.hResource),
        shared_handle: Handle(call.hGlobalShare),
        allocations: vec![Handle(allocation.hAllocation)],
    })
}

/// Opens the resource of one standard allocation by NT handle. A token without an NT handle in this process gives an
/// invalid HANDLE.
pub fn open(scenario_client: &ScenarioClient, device: Handle, token: ShareToken) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut allocation = sdk::D3DDDI_OPENALLOCATIONINFO2::default();
    let mut open = sdk::D3DKMT_OPENRESOURCEFROMNTHANDLE {
        hDevice: device.0,
        hNtHandle: nt_handle,
        NumAllocations: 1,
        pOpenAllocationInfo2: &raw mut allocation,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenResourceFromNtHandle(&mut open) };
    Done::reply(status, || Reply::OpenedResource {
        resource: Handle(open.hResource),
        allocations: vec![Handle(allocation.hAllocation)],
        runtime_data: Vec::new(),
        keyed_mutex: Handle(open.hKeyedMutex),
        sync_object: Handle(open.hSyncObject),
    })
}

pub fn destroy(
    device: Handle,
    resource: Handle,
    allocations: &[Handle],
    flags: DestroyAllocationFlags,
) -> Done {
    let list: Vec<u32> = allocations.iter().map(|handle| handle.0).collect();
    let mut destroy = sdk::D3DKMT_DESTROYALLOCATION2 {
        hDevice: device.0,
        hResource: resource.0,
        phAllocationList: list.as_ptr(),
        AllocationCount: list.len() as u32,
        ..Default::default()
    };
    destroy.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyAllocation2(&destroy) })
}

/// Makes [`Call::MakeResident`] only. Over budget the library returns more than a status; scenarios do not use it.
pub fn make_resident(call: &Call) -> Done {
    let Call::MakeResident { paging_queue, allocations, priorities, flags } = call else {
        return Done::no_c_form();
    };
    let list: Vec<u32> = allocations.iter().map(|handle| handle.0).collect();
    let mut resident = sdk::D3DDDI_MAKERESIDENT {
        hPagingQueue: paging_queue.0,
        NumAllocations: list.len() as u32,
        AllocationList: list.as_ptr(),
        PriorityList: if priorities.is_empty() { std::ptr::null() } else { priorities.as_ptr() },
        ..Default::default()
    };
    resident.Flags.Anonymous.Value = *flags;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTMakeResident(&mut resident) };
    Done::reply(status, || Reply::Residency {
        paging_fence_value: resident.PagingFenceValue,
        bytes_to_trim: resident.NumBytesToTrim,
        over_budget: false,
    })
}

pub fn evict(device: Handle, allocations: &[Handle], flags: u32) -> Done {
    let list: Vec<u32> = allocations.iter().map(|handle| handle.0).collect();
    let mut evict = sdk::D3DKMT_EVICT {
        hDevice: device.0,
        NumAllocations: list.len() as u32,
        AllocationList: list.as_ptr(),
        ..Default::default()
    };
    evict.Flags.Anonymous.Value = flags;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTEvict(&mut evict) };
    Done::reply(status, || Reply::Residency {
        paging_fence_value: 0,
        bytes_to_trim: evict.NumBytesToTrim,
        over_budget: false,
    })
}
