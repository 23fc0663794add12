//! Allocations, residency and locks.
//!
//! `unsafe` here: memory is mapped, and the library is called.

use d3dkmt::{
    Call, CreateAllocation, DestroyAllocationFlags, Handle, Luid, NtStatus, Reply, ShareToken,
    allocation_data, limits,
};

use super::{Done, raw};
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
    let [info] = &create.allocations[..] else { return Done::no_c_form() };
    let bytes = match create.standard {
        Some(standard) => Some(standard.size),
        None => allocation_data::memory_bytes(&info.private_data),
    };
    let Some(bytes) = bytes else { return Done::no_c_form() };
    let mut standard = sdk::D3DKMT_CREATESTANDARDALLOCATION::default();
    let mut private_data = info.private_data.clone();
    let mut allocation = sdk::D3DDDI_ALLOCATIONINFO2::default();
    let address = match info.system_memory {
        0 => 0,
        address => memory(address, bytes),
    };
    allocation.Anonymous1.pSystemMem = std::ptr::with_exposed_provenance(address as usize);
    if !private_data.is_empty() {
        allocation.pPrivateDriverData = private_data.as_mut_ptr().cast();
        allocation.PrivateDriverDataSize = private_data.len() as u32;
    }
    let mut call = sdk::D3DKMT_CREATEALLOCATION {
        hDevice: create.device.0,
        hResource: create.resource.0,
        NumAllocations: 1,
        ..Default::default()
    };
    if let Some(wanted) = create.standard {
        standard.Type = wanted.kind as i32;
        standard.Anonymous.ExistingHeapData.Size = wanted.size as usize;
        call.Anonymous1.pStandardAllocation = &raw mut standard;
    }
    call.Anonymous2.pAllocationInfo2 = &raw mut allocation;
    call.Flags._bitfield = create.flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateAllocation2(&mut call) };
    if NtStatus(status as u32).is_success() {
        let (handle, memory) = (Handle(allocation.hAllocation), &scenario_client.memory);
        match (address, allocation_data::memory_bytes(&private_data)) {
            (0, Some(bytes)) => {
                memory.created_on_device(handle, create.device, Handle(call.hResource), bytes);
            }
            _ => memory.created(handle, address, bytes),
        }
    }
    Done::reply(status, || Reply::Allocations {
        resource: Handle(call.hResource),
        shared_handle: Handle(call.hGlobalShare),
        allocations: vec![Handle(allocation.hAllocation)],
        private_data: if private_data == info.private_data { Vec::new() } else { private_data },
        sizes: Vec::new(),
        addresses: Vec::new(),
    })
}

pub fn lock(scenario_client: &ScenarioClient, device: Handle, allocation: Handle, flags: u32) -> Done {
    let mut lock = sdk::D3DKMT_LOCK2 { hDevice: device.0, hAllocation: allocation.0, ..Default::default() };
    lock.Flags.Anonymous.Value = flags;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTLock2(&mut lock) };
    let address = lock.pData.expose_provenance() as u64;
    if NtStatus(status as u32).is_success() {
        scenario_client.memory.locked(allocation, address);
    }
    Done::reply(status, || Reply::Locked { address })
}

pub fn unlock(device: Handle, allocation: Handle) -> Done {
    let unlock = sdk::D3DKMT_UNLOCK2 { hDevice: device.0, hAllocation: allocation.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTUnlock2(&unlock) })
}

/// Opens the resource of one allocation by NT handle, with a buffer for this many bytes of private data. A token without an NT handle in this process gives an
/// invalid HANDLE.
pub fn open(scenario_client: &ScenarioClient, device: Handle, token: ShareToken, private_bytes: u32) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut allocation = sdk::D3DDDI_OPENALLOCATIONINFO2::default();
    let mut private_data = vec![0_u8; (private_bytes as usize).min(limits::PRIVATE_DATA_BYTES_MAX)];
    let mut open = sdk::D3DKMT_OPENRESOURCEFROMNTHANDLE {
        hDevice: device.0,
        hNtHandle: nt_handle,
        NumAllocations: 1,
        pOpenAllocationInfo2: &raw mut allocation,
        TotalPrivateDriverDataBufferSize: private_data.len() as u32,
        pTotalPrivateDriverDataBuffer: private_data.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenResourceFromNtHandle(&mut open) };
    let described =
        allocation_data::memory_bytes(&private_data).filter(|_| NtStatus(status as u32).is_success());
    if let Some(bytes) = described {
        let (handle, resource) = (Handle(allocation.hAllocation), Handle(open.hResource));
        scenario_client.memory.created_on_device(handle, device, resource, bytes);
    }
    Done::reply(status, || Reply::OpenedResource {
        resource: Handle(open.hResource),
        allocations: vec![Handle(allocation.hAllocation)],
        runtime_data: Vec::new(),
        keyed_mutex: Handle(open.hKeyedMutex),
        sync_object: Handle(open.hSyncObject),
        private_data_sizes: if private_data.is_empty() {
            vec![]
        } else {
            vec![allocation.PrivateDriverDataSize]
        },
        private_data,
    })
}

pub fn adapter_luid(scenario_client: &ScenarioClient, token: ShareToken) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut luid = sdk::D3DKMT_GETSHAREDRESOURCEADAPTERLUID { hNtHandle: nt_handle, ..Default::default() };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTGetSharedResourceAdapterLuid(&mut luid) };
    let sdk_luid = luid.AdapterLuid;
    Done::reply(status, || Reply::AdapterLuid {
        luid: Luid { low: sdk_luid.LowPart, high: sdk_luid.HighPart },
    })
}

pub fn destroy(
    scenario_client: &ScenarioClient,
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
    let status = unsafe { sdk::D3DKMTDestroyAllocation2(&destroy) };
    if NtStatus(status as u32).is_success() {
        scenario_client.memory.ended(|handle, of, _| {
            allocations.contains(&handle) || (resource != Handle::NULL && of == resource)
        });
    }
    Done::status(status)
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

/// The two arrays of a list, of which one is NULL: resources and allocations.
fn arrays(list: &[u32], resources: bool) -> (*mut u32, *const u32) {
    // The SDK's declaration lacks const. The library only reads.
    if resources {
        (list.as_ptr().cast_mut(), std::ptr::null())
    } else {
        (std::ptr::null_mut(), list.as_ptr())
    }
}

/// Makes [`Call::OfferAllocations`] only.
pub fn offer(call: &Call) -> Done {
    let Call::OfferAllocations { device, allocations, resources, priority, flags } = call else {
        return Done::no_c_form();
    };
    let list = raw(allocations);
    let (of_resources, of_allocations) = arrays(&list, *resources);
    let mut offer = sdk::D3DKMT_OFFERALLOCATIONS {
        hDevice: device.0,
        pResources: of_resources,
        HandleList: of_allocations,
        NumAllocations: list.len() as u32,
        Priority: *priority as i32,
        ..Default::default()
    };
    offer.Flags.Anonymous.Value = *flags;
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTOfferAllocations(&offer) })
}

pub fn reclaim_now(device: Handle, allocations: &[Handle], resources: bool) -> Done {
    let list = raw(allocations);
    let (of_resources, of_allocations) = arrays(&list, resources);
    let mut discarded = vec![0; list.len()];
    let mut reclaim = sdk::D3DKMT_RECLAIMALLOCATIONS {
        hDevice: device.0,
        pResources: of_resources,
        HandleList: of_allocations,
        pDiscarded: discarded.as_mut_ptr(),
        NumAllocations: list.len() as u32,
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTReclaimAllocations(&mut reclaim) };
    Done::reply(status, || Reply::Reclaimed {
        results: discarded.iter().map(|discarded| *discarded as u32).collect(),
        paging_fence_value: 0,
    })
}

pub fn reclaim(paging_queue: Handle, allocations: &[Handle], resources: bool) -> Done {
    let list = raw(allocations);
    let (of_resources, of_allocations) = arrays(&list, resources);
    let mut results = vec![0; list.len()];
    let mut reclaim = sdk::D3DKMT_RECLAIMALLOCATIONS2 {
        hPagingQueue: paging_queue.0,
        NumAllocations: list.len() as u32,
        pResources: of_resources,
        HandleList: of_allocations,
        ..Default::default()
    };
    reclaim.Anonymous.pResults = results.as_mut_ptr();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTReclaimAllocations2(&mut reclaim) };
    Done::reply(status, || Reply::Reclaimed {
        results: results.iter().map(|result| *result as u32).collect(),
        paging_fence_value: reclaim.PagingFenceValue,
    })
}

pub fn residency(device: Handle, resource: Handle, allocations: &[Handle]) -> Done {
    let list = raw(allocations);
    let mut found = vec![0; list.len().max(1)];
    let query = sdk::D3DKMT_QUERYALLOCATIONRESIDENCY {
        hDevice: device.0,
        hResource: resource.0,
        phAllocationList: list.as_ptr(),
        AllocationCount: list.len() as u32,
        pResidencyStatus: found.as_mut_ptr(),
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTQueryAllocationResidency(&query) };
    Done::reply(status, || Reply::AllocationResidency(found.iter().map(|status| *status as u32).collect()))
}
