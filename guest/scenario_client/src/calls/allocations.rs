//! Allocations, residency and locks.
//!
//! `unsafe` here: memory is mapped, and the library is called.

use std::ffi::c_void;

use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, DestroyAllocationFlags, Handle, Luid,
    NtStatus, Reply, ResourceInfo, RuntimeBuffer, ShareToken, allocation_data, limits,
};

use super::mutex::buffer_of;
use super::{Done, raw};
use crate::ScenarioClient;
use crate::abi::sdk;

const PAGE_BYTES: u64 = 4096;

/// More memory than any process has at user addresses.
const IMPOSSIBLE_BYTES: u64 = 1 << 47;

/// Maps memory for an allocation until the process exits, because the library and engines may access it that long. The
/// address has the runner's place in its page, because one in the middle of a page is refused. Of memory that no process
/// can have, the runner's address is returned, which the library passes on unchanged. `None`: there is no room, and
/// the runner's address may be other memory of this process.
fn memory(address: u64, bytes: u64) -> Option<u64> {
    let place = address % PAGE_BYTES;
    let length = match bytes.saturating_add(place) {
        0 | IMPOSSIBLE_BYTES.. => return Some(address),
        length => length as usize,
    };
    let (protection, flags) = (
        rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
        rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
    );
    // SAFETY: at an address that the kernel chooses.
    let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
    Some(mapped.ok()?.expose_provenance() as u64 + place)
}

/// Bytes of address space for memory of this process of which the call does not say how much it is.
const UNKNOWN_BYTES: u64 = 256 << 20;

/// Bytes of memory behind an allocation.
fn bytes_of(create: &CreateAllocation, info: &AllocationInfo) -> u64 {
    let unknown = if info.system_memory == 0 { 0 } else { UNKNOWN_BYTES };
    match create.standard {
        Some(standard) => standard.size,
        None => allocation_data::memory_bytes(&info.private_data).unwrap_or(unknown),
    }
}

/// A pointer to data; NULL without any.
fn data_pointer(data: &mut [u8]) -> *mut c_void {
    if data.is_empty() { std::ptr::null_mut() } else { data.as_mut_ptr().cast() }
}

pub fn create(scenario_client: &ScenarioClient, create: &CreateAllocation) -> Done {
    // The flag says what the one pointer for both points to.
    if create.standard.is_some() != create.flags.contains(CreateAllocationFlags::STANDARD_ALLOCATION) {
        return Done::no_c_form();
    }
    let bytes: Vec<u64> = create.allocations.iter().map(|info| bytes_of(create, info)).collect();
    let sent = create.allocations.iter().flat_map(|info| info.private_data.iter().copied());
    let sent: Vec<u8> = sent.collect();
    let mut private_data: Vec<Vec<u8>> =
        create.allocations.iter().map(|info| info.private_data.clone()).collect();
    let addresses =
        std::iter::zip(&create.allocations, &bytes).map(|(info, bytes)| match info.system_memory {
            0 => Some(0),
            address => memory(address, *bytes),
        });
    let Some(addresses) = addresses.collect::<Option<Vec<u64>>>() else { return Done::no_c_form() };
    let infos = create.allocations.iter().zip(&mut private_data).zip(&addresses);
    let mut infos: Vec<_> = infos
        .map(|((info, data), address)| {
            let mut allocation = sdk::D3DDDI_ALLOCATIONINFO2::default();
            allocation.Anonymous1.pSystemMem = std::ptr::with_exposed_provenance(*address as usize);
            allocation.pPrivateDriverData = data_pointer(data);
            allocation.PrivateDriverDataSize = data.len() as u32;
            allocation.Flags.Value = info.flags;
            allocation
        })
        .collect();
    let (mut standard, mut of_resource) =
        (sdk::D3DKMT_CREATESTANDARDALLOCATION::default(), create.private_data.clone());
    let mut call = sdk::D3DKMT_CREATEALLOCATION {
        hDevice: create.device.0,
        hResource: create.resource.0,
        pPrivateRuntimeData: create.runtime_data.as_ptr().cast(),
        PrivateRuntimeDataSize: create.runtime_data.len() as u32,
        NumAllocations: infos.len() as u32,
        ..Default::default()
    };
    if let Some(wanted) = create.standard {
        standard.Type = wanted.kind as i32;
        standard.Anonymous.ExistingHeapData.Size = wanted.size as usize;
        standard.Flags.Anonymous.Value = wanted.flags;
        call.Anonymous1.pStandardAllocation = &raw mut standard;
        call.PrivateDriverDataSize = wanted.private_data_size;
    } else {
        call.Anonymous1.pPrivateDriverData = data_pointer(&mut of_resource);
        call.PrivateDriverDataSize = of_resource.len() as u32;
    }
    call.Anonymous2.pAllocationInfo2 = infos.as_mut_ptr();
    call.Flags._bitfield = create.flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateAllocation2(&mut call) };
    let handles: Vec<Handle> = infos.iter().map(|info| Handle(info.hAllocation)).collect();
    let (memory, resource) = (&scenario_client.memory, Handle(call.hResource));
    for ((handle, address), bytes) in handles.iter().zip(addresses).zip(bytes) {
        match (NtStatus(status as u32).is_success(), address) {
            (false, _) => {}
            (true, 0) => memory.created_on_device(*handle, create.device, resource, bytes),
            (true, address) if address % PAGE_BYTES == 0 => memory.created(*handle, address, bytes),
            (true, _) => {}
        }
    }
    let private_data = private_data.concat();
    Done::reply(status, || Reply::Allocations {
        resource,
        shared_handle: Handle(call.hGlobalShare),
        allocations: handles,
        private_data: if private_data == sent { Vec::new() } else { private_data },
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

/// Sizes of a resource, from the struct of a call that returned this status.
macro_rules! resource_info {
    ($status:expr, $query:expr) => {
        Done::reply($status, || {
            Reply::ResourceInfo(ResourceInfo {
                runtime_data_size: $query.PrivateRuntimeDataSize,
                private_data_size: $query.ResourcePrivateDriverDataSize,
                total_private_data_size: $query.TotalPrivateDriverDataSize,
                allocations: $query.NumAllocations,
            })
        })
    };
}

pub fn query(device: Handle, shared_handle: Handle) -> Done {
    let mut query = sdk::D3DKMT_QUERYRESOURCEINFO {
        hDevice: device.0,
        hGlobalShare: shared_handle.0,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTQueryResourceInfo(&mut query) };
    resource_info!(status, query)
}

/// A token without an NT handle in this process gives an invalid HANDLE.
pub fn query_nt_handle(scenario_client: &ScenarioClient, device: Handle, token: ShareToken) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut query = sdk::D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE {
        hDevice: device.0,
        hNtHandle: nt_handle,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTQueryResourceInfoFromNtHandle(&mut query) };
    resource_info!(status, query)
}

/// The buffers that a call opens a resource with.
struct OpenBuffers {
    allocations: Vec<sdk::D3DDDI_OPENALLOCATIONINFO2>,
    runtime_data: Vec<u8>,
    private_data: Vec<u8>,
    total_private_data: Vec<u8>,
}

impl OpenBuffers {
    /// Buffers of these sizes, each as far as a resource may have that much.
    fn new(info: &ResourceInfo) -> OpenBuffers {
        let buffer = |bytes: u32| vec![0_u8; (bytes as usize).min(limits::PRIVATE_DATA_BYTES_MAX)];
        let count = (info.allocations as usize).min(limits::ALLOCATIONS_PER_RESOURCE_MAX);
        OpenBuffers {
            allocations: vec![sdk::D3DDDI_OPENALLOCATIONINFO2::default(); count],
            runtime_data: buffer(info.runtime_data_size),
            private_data: buffer(info.private_data_size),
            total_private_data: buffer(info.total_private_data_size),
        }
    }

    /// The reply of a call that has filled them.
    fn reply(
        self,
        scenario_client: &ScenarioClient,
        device: Handle,
        [resource, keyed_mutex, sync_object]: [Handle; 3],
    ) -> Reply {
        let (mut data, mut at) = (self.private_data, 0);
        let mut private_data_sizes = Vec::new();
        for allocation in &self.allocations {
            let end = (at + allocation.PrivateDriverDataSize as usize).min(self.total_private_data.len());
            let own = &self.total_private_data[at..end];
            if let Some(bytes) = allocation_data::memory_bytes(own) {
                let handle = Handle(allocation.hAllocation);
                scenario_client.memory.created_on_device(handle, device, resource, bytes);
            }
            private_data_sizes.push(own.len() as u32);
            at = end;
        }
        data.extend_from_slice(&self.total_private_data[..at]);
        Reply::OpenedResource {
            resource,
            allocations: self.allocations.iter().map(|allocation| Handle(allocation.hAllocation)).collect(),
            runtime_data: self.runtime_data,
            keyed_mutex,
            sync_object,
            private_data_sizes: if at == 0 { Vec::new() } else { private_data_sizes },
            private_data: data,
        }
    }
}

pub fn open_global(
    scenario_client: &ScenarioClient,
    device: Handle,
    shared_handle: Handle,
    info: &ResourceInfo,
) -> Done {
    let mut buffers = OpenBuffers::new(info);
    let mut open = sdk::D3DKMT_OPENRESOURCE {
        hDevice: device.0,
        hGlobalShare: shared_handle.0,
        NumAllocations: info.allocations,
        pPrivateRuntimeData: data_pointer(&mut buffers.runtime_data),
        PrivateRuntimeDataSize: info.runtime_data_size,
        pResourcePrivateDriverData: data_pointer(&mut buffers.private_data),
        ResourcePrivateDriverDataSize: info.private_data_size,
        pTotalPrivateDriverDataBuffer: data_pointer(&mut buffers.total_private_data),
        TotalPrivateDriverDataBufferSize: info.total_private_data_size,
        ..Default::default()
    };
    open.Anonymous.pOpenAllocationInfo2 = buffers.allocations.as_mut_ptr();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenResource2(&mut open) };
    let handles = [Handle(open.hResource), Handle::NULL, Handle::NULL];
    Done::reply(status, || buffers.reply(scenario_client, device, handles))
}

/// A token without an NT handle in this process gives an invalid HANDLE.
pub fn open(
    scenario_client: &ScenarioClient,
    device: Handle,
    token: ShareToken,
    info: &ResourceInfo,
    mutex_buffer: &RuntimeBuffer,
) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut buffers = OpenBuffers::new(info);
    let mut of_mutex = buffer_of(mutex_buffer);
    let mut open = sdk::D3DKMT_OPENRESOURCEFROMNTHANDLE {
        hDevice: device.0,
        hNtHandle: nt_handle,
        NumAllocations: info.allocations,
        pOpenAllocationInfo2: buffers.allocations.as_mut_ptr(),
        pPrivateRuntimeData: data_pointer(&mut buffers.runtime_data),
        PrivateRuntimeDataSize: info.runtime_data_size,
        pResourcePrivateDriverData: data_pointer(&mut buffers.private_data),
        ResourcePrivateDriverDataSize: info.private_data_size,
        pTotalPrivateDriverDataBuffer: data_pointer(&mut buffers.total_private_data),
        TotalPrivateDriverDataBufferSize: info.total_private_data_size,
        KeyedMutexPrivateRuntimeDataSize: mutex_buffer.size,
        ..Default::default()
    };
    if mutex_buffer.present {
        open.pKeyedMutexPrivateRuntimeData = of_mutex.as_mut_ptr().cast();
    }
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenResourceFromNtHandle(&mut open) };
    let handles = [open.hResource, open.hKeyedMutex, open.hSyncObject].map(Handle);
    Done::reply(status, || buffers.reply(scenario_client, device, handles))
}

fn luid_of(mut query: sdk::D3DKMT_GETSHAREDRESOURCEADAPTERLUID) -> Done {
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTGetSharedResourceAdapterLuid(&mut query) };
    let luid = query.AdapterLuid;
    Done::reply(status, || Reply::AdapterLuid { luid: Luid { low: luid.LowPart, high: luid.HighPart } })
}

pub fn adapter_luid(shared_handle: Handle) -> Done {
    luid_of(sdk::D3DKMT_GETSHAREDRESOURCEADAPTERLUID { hGlobalShare: shared_handle.0, ..Default::default() })
}

pub fn adapter_luid_of_nt_handle(scenario_client: &ScenarioClient, token: ShareToken) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    luid_of(sdk::D3DKMT_GETSHAREDRESOURCEADAPTERLUID { hNtHandle: nt_handle, ..Default::default() })
}

pub fn set_priority(device: Handle, resource: Handle, allocations: &[Handle], priorities: &[u32]) -> Done {
    let list = raw(allocations);
    let count = if resource == Handle::NULL { list.len() } else { 1 };
    if priorities.len() != count {
        return Done::no_c_form();
    }
    let set = sdk::D3DKMT_SETALLOCATIONPRIORITY {
        hDevice: device.0,
        hResource: resource.0,
        phAllocationList: list.as_ptr(),
        AllocationCount: list.len() as u32,
        pPriorities: priorities.as_ptr(),
    };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSetAllocationPriority(&set) })
}

pub fn priority(device: Handle, resource: Handle, allocations: &[Handle]) -> Done {
    let list = raw(allocations);
    let mut priorities = vec![0; if resource == Handle::NULL { list.len() } else { 1 }];
    let query = sdk::D3DKMT_GETALLOCATIONPRIORITY {
        hDevice: device.0,
        hResource: resource.0,
        phAllocationList: list.as_ptr(),
        AllocationCount: list.len() as u32,
        pPriorities: priorities.as_mut_ptr(),
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTGetAllocationPriority(&query) };
    Done::reply(status, || Reply::AllocationPriorities(priorities))
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
