//! Allocations and resources. A call that fails leaves the caller's structs unchanged. The kernel checks the buffer
//! sizes that `D3DKMTOpenResource` passes.

use std::ffi::c_void;

use client::Port as _;
use d3dkmt::limits::DEVICE_MEMORY_START;
use d3dkmt::{Call, CreateAllocationFlags, DestroyAllocationFlags, Handle, NtStatus, Reply, ResourceInfo};

use super::keyed_mutex::buffer;
use super::memory::{Array, read, read_bytes, read_handles, write, write_bytes};
use super::thunk::{ThunkResult, failure};
use crate::client::{Answer, Parents, Session, Wakes, block_on};
use crate::limits::ARRAY_ENTRIES_MAX;
use crate::nt_handle;
use abi::CValue as _;
use abi::types::{
    D3DDDI_ALLOCATIONINFO, D3DDDI_ALLOCATIONINFO2, D3DDDI_OPENALLOCATIONINFO, D3DDDI_OPENALLOCATIONINFO2,
    D3DKMT_CREATEALLOCATION, D3DKMT_CREATESTANDARDALLOCATION, D3DKMT_DESTROYALLOCATION,
    D3DKMT_DESTROYALLOCATION2, D3DKMT_GETSHAREDRESOURCEADAPTERLUID, D3DKMT_LOCK2, D3DKMT_OPENRESOURCE,
    D3DKMT_OPENRESOURCEFROMNTHANDLE, D3DKMT_QUERYRESOURCEINFO, D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE,
    D3DKMT_UNLOCK2,
};

/// Pointers to the entries of the caller's array.
fn entries<T>(array: *mut c_void, count: u32) -> Result<Vec<*mut T>, NtStatus> {
    let count = count as usize;
    if count > ARRAY_ENTRIES_MAX || (count > 0 && array.is_null()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok((0..count).map(|at| array.cast::<T>().wrapping_add(at)).collect())
}

/// Creates allocations. `T` is the type of the array's entries; both types begin with the same members.
fn create<T>(session: &Session, arguments: &mut D3DKMT_CREATEALLOCATION) -> ThunkResult {
    let flags = CreateAllocationFlags::from_bits_retain(arguments.Flags);
    let (standard, private_data) = match flags.contains(CreateAllocationFlags::STANDARD_ALLOCATION) {
        true => {
            let standard = read(arguments.private_data.cast::<D3DKMT_CREATESTANDARDALLOCATION>())?;
            let standard = d3dkmt::StandardAllocation {
                kind: standard.Type,
                size: standard.size,
                flags: standard.Flags,
                private_data_size: arguments.PrivateDriverDataSize,
            };
            (Some(standard), Vec::new())
        }
        false => (None, read_bytes(arguments.private_data, arguments.PrivateDriverDataSize)?),
    };
    let infos: Vec<*mut D3DDDI_ALLOCATIONINFO> =
        entries::<T>(arguments.allocations, arguments.NumAllocations)?
            .into_iter()
            .map(<*mut T>::cast)
            .collect();
    let info = |info: &*mut D3DDDI_ALLOCATIONINFO| {
        let info = read(*info)?;
        Ok(d3dkmt::AllocationInfo {
            system_memory: info.pSystemMem as u64,
            private_data: read_bytes(info.pPrivateDriverData, info.PrivateDriverDataSize)?,
            flags: info.flags,
        })
    };
    let call = Call::CreateAllocation {
        create: Box::new(d3dkmt::CreateAllocation {
            device: Handle(arguments.hDevice),
            resource: Handle(arguments.hResource),
            flags,
            standard,
            private_data,
            runtime_data: read_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize)?,
            allocations: infos.iter().map(info).collect::<Result<_, NtStatus>>()?,
        }),
    };
    let Answer { status, reply } = block_on(session.call(&call));
    let Reply::Allocations { resource, shared_handle, allocations, private_data, sizes, addresses } = reply
    else {
        return Err(failure(&Answer { status, reply }));
    };
    let of_device = DeviceAddresses { sizes: &sizes, addresses: &addresses };
    if let Err(status) = attach_backing(session, &call, resource, &allocations, of_device) {
        destroy_new(session, Handle(arguments.hDevice), new_resource(arguments, resource), allocations);
        return Err(status);
    }
    write_private_data(&infos, &private_data);
    for (info, handle) in infos.iter().zip(allocations) {
        write(info.cast::<u32>(), handle.0);
    }
    (arguments.hResource, arguments.hGlobalShare) = (resource.0, shared_handle.0);
    Ok(status)
}

/// Writes the private driver data of allocations as the driver left them, if it has changed any.
fn write_private_data(infos: &[*mut D3DDDI_ALLOCATIONINFO], mut data: &[u8]) {
    for info in infos.iter().filter_map(|info| read(*info).ok()) {
        let size = info.PrivateDriverDataSize as usize;
        let Some((own, rest)) = data.split_at_checked(size) else { return };
        write_bytes(info.pPrivateDriverData, info.PrivateDriverDataSize, own);
        data = rest;
    }
}

/// The resource that a call has created, or NULL.
fn new_resource(arguments: &D3DKMT_CREATEALLOCATION, resource: Handle) -> Handle {
    if arguments.hResource == 0 { resource } else { Handle::NULL }
}

/// Destroys what a call has created, because it fails.
fn destroy_new(session: &Session, device: Handle, resource: Handle, allocations: Vec<Handle>) {
    block_on(session.call(&Call::DestroyAllocation {
        device,
        resource,
        allocations: if resource == Handle::NULL { allocations.clone() } else { Vec::new() },
        flags: DestroyAllocationFlags::empty(),
    }));
    session.port().allocations_ended(Handle::NULL, &allocations);
}

/// What the host has answered of each new allocation, as `Reply::Allocations` has it.
#[derive(Clone, Copy)]
struct DeviceAddresses<'a> {
    sizes: &'a [u64],
    addresses: &'a [u64],
}

/// Attaches the memory of new allocations that engines may access at once. Memory of the process with private driver
/// data, and memory of the device, are attached when they are first mapped or locked, unless they are shared.
fn attach_backing(
    session: &Session,
    call: &Call,
    resource: Handle,
    allocations: &[Handle],
    DeviceAddresses { sizes, addresses }: DeviceAddresses<'_>,
) -> Result<(), NtStatus> {
    let Call::CreateAllocation { create } = call else { unreachable!("this is what was called") };
    let (port, parents) = (session.port(), Parents { device: create.device, resource });
    let number = |numbers: &[u64], at: usize| numbers.get(at).copied().unwrap_or(0);
    // Engines of any process that opens it may access it before this process maps it.
    let is_shared = create.flags.contains(CreateAllocationFlags::CREATE_SHARED);
    for (at, (info, allocation)) in create.allocations.iter().zip(allocations).enumerate() {
        let (start, size, address) = (info.system_memory, number(sizes, at), number(addresses, at));
        match &create.standard {
            Some(standard) => {
                port.attach_backing(parents, *allocation, start..start.saturating_add(standard.size))?;
            }
            None if start != 0 => {
                // Without a known size only this process maps more of it.
                let known = Some(size).filter(|size| *size > 0);
                port.record_memory(parents, *allocation, start, known);
                if let Some(size) = known.filter(|_| is_shared) {
                    port.attach_mapped(*allocation, 0..size)?;
                }
            }
            None => {
                let end = address.checked_add(size).filter(|_| size > 0 && address >= DEVICE_MEMORY_START);
                let end = end.ok_or(NtStatus::INTERNAL_ERROR)?;
                port.record_device_memory(parents, *allocation, address..end);
                if is_shared {
                    port.attach_mapped(*allocation, 0..size)?;
                }
            }
        }
    }
    Ok(())
}

/// `D3DKMTCreateAllocation`.
pub(super) fn create_allocation(session: &Session, arguments: &mut D3DKMT_CREATEALLOCATION) -> ThunkResult {
    create::<D3DDDI_ALLOCATIONINFO>(session, arguments)
}

/// `D3DKMTCreateAllocation2`.
pub(super) fn create_allocation2(session: &Session, arguments: &mut D3DKMT_CREATEALLOCATION) -> ThunkResult {
    create::<D3DDDI_ALLOCATIONINFO2>(session, arguments)
}

/// `D3DKMTDestroyAllocation2`. Of a resource, AllocationCount is ignored.
pub(super) fn destroy_allocation2(session: &Session, arguments: &D3DKMT_DESTROYALLOCATION2) -> ThunkResult {
    let mut copy = Array::default();
    let resource = Handle(arguments.hResource);
    let count = match arguments.phAllocationList.is_null() && resource != Handle::NULL {
        true => 0,
        false => arguments.AllocationCount,
    };
    let allocations = read_handles(&mut copy, arguments.phAllocationList, count)?.to_vec();
    let call = Call::DestroyAllocation {
        device: Handle(arguments.hDevice),
        resource,
        allocations: allocations.clone(),
        flags: DestroyAllocationFlags::from_bits_retain(arguments.Flags),
    };
    let status = block_on(session.call(&call)).status;
    if status.is_success() || session.is_lost() {
        session.port().allocations_ended(resource, &allocations);
    }
    Ok(status)
}

/// `D3DKMTDestroyAllocation`.
pub(super) fn destroy_allocation(session: &Session, arguments: &D3DKMT_DESTROYALLOCATION) -> ThunkResult {
    destroy_allocation2(
        session,
        &D3DKMT_DESTROYALLOCATION2 {
            hDevice: arguments.hDevice,
            hResource: arguments.hResource,
            phAllocationList: arguments.phAllocationList,
            AllocationCount: arguments.AllocationCount,
            Flags: 0,
        },
    )
}

/// `D3DKMTLock2`. Another lock of an allocation that was locked before is a one-way message while no device has stopped:
/// the host accepts it, and the address is known. A device that an earlier one-way call stops meanwhile was locked before.
pub(super) fn lock2(session: &Session, arguments: &mut D3DKMT_LOCK2) -> ThunkResult {
    let (device, allocation) = (Handle(arguments.hDevice), Handle(arguments.hAllocation));
    let call = Call::Lock { device, allocation, flags: arguments.Flags };
    if arguments.Flags == 0
        && session.reports_no_stopped_device()
        // A program that makes no other call must still notice a lost transport.
        && !session.port().may_be_lost()
        && let Some(address) = session.port().lock_again(device, allocation)
    {
        session.port().channel().post(&call, &Wakes::None)?;
        arguments.pData = std::ptr::with_exposed_provenance_mut(address as usize);
        return Ok(NtStatus::SUCCESS);
    }
    match block_on(session.call(&call)) {
        Answer { status, reply: Reply::Locked { address } } if status.is_success() => {
            let locked = session.port().locked(device, allocation, address);
            let address = locked.inspect_err(|_| {
                // The host has counted a lock that the program does not get.
                let _ = session.port().channel().post(&Call::Unlock { device, allocation }, &Wakes::None);
            })?;
            let address = address.ok_or(NtStatus::INVALID_PARAMETER)?;
            arguments.pData = std::ptr::with_exposed_provenance_mut(address as usize);
            Ok(status)
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTUnlock2`. The end of a lock that is known here is a one-way message: the host accepts it.
pub(super) fn unlock2(session: &Session, arguments: &D3DKMT_UNLOCK2) -> ThunkResult {
    let (device, allocation) = (Handle(arguments.hDevice), Handle(arguments.hAllocation));
    let call = Call::Unlock { device, allocation };
    match session.port().unlock(device, allocation) {
        true => {
            session.port().channel().post(&call, &Wakes::None)?;
            Ok(NtStatus::SUCCESS)
        }
        false => Ok(block_on(session.call(&call)).status),
    }
}

fn resource_info(session: &Session, call: &Call) -> Result<(NtStatus, ResourceInfo), NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::ResourceInfo(info) } if status.is_success() => Ok((status, info)),
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTQueryResourceInfo`: sizes only, the buffer is not filled (W-264).
pub(super) fn query_resource_info(
    session: &Session,
    arguments: &mut D3DKMT_QUERYRESOURCEINFO,
) -> ThunkResult {
    let (device, shared_handle) = (Handle(arguments.hDevice), Handle(arguments.hGlobalShare));
    let (status, info) = resource_info(session, &Call::QueryResourceInfo { device, shared_handle })?;
    arguments.PrivateRuntimeDataSize = info.runtime_data_size;
    arguments.TotalPrivateDriverDataSize = info.total_private_data_size;
    arguments.ResourcePrivateDriverDataSize = info.private_data_size;
    arguments.NumAllocations = info.allocations;
    Ok(status)
}

/// Opens a resource. `T` as in [`create`].
fn open<T>(session: &Session, arguments: &mut D3DKMT_OPENRESOURCE) -> ThunkResult {
    let infos: Vec<*mut D3DDDI_OPENALLOCATIONINFO> =
        entries::<T>(arguments.allocations, arguments.NumAllocations)?
            .into_iter()
            .map(<*mut T>::cast)
            .collect();
    let total = (arguments.pTotalPrivateDriverDataBuffer, arguments.TotalPrivateDriverDataBufferSize);
    require_buffers(&[
        (arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize),
        (arguments.pResourcePrivateDriverData, arguments.ResourcePrivateDriverDataSize),
        total,
    ])?;
    let info = ResourceInfo {
        runtime_data_size: arguments.PrivateRuntimeDataSize,
        private_data_size: arguments.ResourcePrivateDriverDataSize,
        total_private_data_size: arguments.TotalPrivateDriverDataBufferSize,
        allocations: arguments.NumAllocations,
    };
    let (device, shared_handle) = (Handle(arguments.hDevice), Handle(arguments.hGlobalShare));
    let Answer { status, reply } =
        block_on(session.call(&Call::OpenResource { device, shared_handle, info }));
    let Reply::OpenedResource {
        resource, allocations, runtime_data, private_data, private_data_sizes, ..
    } = reply
    else {
        return Err(failure(&Answer { status, reply }));
    };
    let own = (arguments.pResourcePrivateDriverData, arguments.ResourcePrivateDriverDataSize);
    let written =
        write_opened(&infos, &allocations, (own, total), OpenedData { private_data, private_data_sizes });
    arguments.TotalPrivateDriverDataBufferSize = written.unwrap_or(total.1);
    write_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize, &runtime_data);
    session.port().opened(Parents { device, resource }, &allocations);
    arguments.hResource = resource.0;
    Ok(status)
}

/// A caller's buffer, with its size.
type Buffer = (*mut c_void, u32);

/// A size without a buffer is INVALID_PARAMETER.
fn require_buffers(buffers: &[Buffer]) -> Result<(), NtStatus> {
    match buffers.iter().any(|(buffer, size)| *size > 0 && buffer.is_null()) {
        true => Err(NtStatus::INVALID_PARAMETER),
        false => Ok(()),
    }
}

/// Private driver data of an opened resource: its own, then those of each allocation, whose sizes are given if any has
/// some.
struct OpenedData {
    private_data: Vec<u8>,
    private_data_sizes: Vec<u32>,
}

/// Writes the handles of an opened resource's allocations, and the private driver data of both. Those of an allocation
/// are in the buffer for all of them, and its entry points there; an allocation without data leaves its entry's members
/// as they are (W-265). Returns how many bytes of that buffer are used, if any.
fn write_opened(
    infos: &[*mut D3DDDI_OPENALLOCATIONINFO],
    allocations: &[Handle],
    ((own, own_size), (total, total_size)): (Buffer, Buffer),
    data: OpenedData,
) -> Option<u32> {
    let (of_resource, of_allocations) =
        data.private_data.split_at_checked(own_size as usize).unwrap_or((&data.private_data, &[]));
    write_bytes(own, own_size, of_resource);
    write_bytes(total, total_size, of_allocations);
    let sizes = data.private_data_sizes.into_iter().map(Some).chain(std::iter::repeat(None));
    let mut used = 0;
    for ((info, handle), size) in infos.iter().zip(allocations).zip(sizes) {
        write(info.cast::<u32>(), handle.0);
        let (Some(size @ 1..), Ok(mut entry)) = (size, read(*info)) else { continue };
        let Some(end) = size.checked_add(used).filter(|end| *end <= total_size) else { continue };
        entry.pPrivateDriverData = total.wrapping_byte_add(used as usize);
        entry.PrivateDriverDataSize = size;
        write(*info, entry);
        used = end;
    }
    Some(used).filter(|used| *used > 0)
}

/// `D3DKMTOpenResource`.
pub(super) fn open_resource(session: &Session, arguments: &mut D3DKMT_OPENRESOURCE) -> ThunkResult {
    open::<D3DDDI_OPENALLOCATIONINFO>(session, arguments)
}

/// `D3DKMTOpenResource2`.
pub(super) fn open_resource2(session: &Session, arguments: &mut D3DKMT_OPENRESOURCE) -> ThunkResult {
    open::<D3DDDI_OPENALLOCATIONINFO2>(session, arguments)
}

/// `D3DKMTQueryResourceInfoFromNtHandle`: sizes only.
pub(super) fn query_resource_info_from_nt_handle(
    session: &Session,
    arguments: &mut D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE,
) -> ThunkResult {
    let device = Handle(arguments.hDevice);
    let token = nt_handle::token_for(session, device, arguments.hNtHandle)?;
    let call = Call::QueryResourceInfoFromNtHandle { device, token };
    let (status, info) = resource_info(session, &call)?;
    arguments.PrivateRuntimeDataSize = info.runtime_data_size;
    arguments.TotalPrivateDriverDataSize = info.total_private_data_size;
    arguments.ResourcePrivateDriverDataSize = info.private_data_size;
    arguments.NumAllocations = info.allocations;
    Ok(status)
}

/// `D3DKMTGetSharedResourceAdapterLuid`: by the one handle that is given; with both it is refused.
pub(super) fn get_shared_resource_adapter_luid(
    session: &Session,
    arguments: &mut D3DKMT_GETSHAREDRESOURCEADAPTERLUID,
) -> ThunkResult {
    let call = match (Handle(arguments.hGlobalShare), arguments.hNtHandle) {
        (shared_handle, 0) => Call::SharedResourceAdapter { shared_handle },
        (Handle::NULL, nt_handle) => {
            let token = nt_handle::token_of(nt_handle).ok_or(NtStatus::INVALID_HANDLE)?;
            Call::SharedResourceAdapterFromNtHandle { token }
        }
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    let answer = block_on(session.call(&call));
    let Reply::AdapterLuid { luid } = answer.reply else { return Err(failure(&answer)) };
    arguments.AdapterLuid = luid.to_c();
    Ok(answer.status)
}

/// `D3DKMTOpenResourceFromNtHandle`: hKeyedMutex and hSyncObject are 0 unless the NT handle also names such objects.
pub(super) fn open_resource_from_nt_handle(
    session: &Session,
    arguments: &mut D3DKMT_OPENRESOURCEFROMNTHANDLE,
) -> ThunkResult {
    let infos = entries::<D3DDDI_OPENALLOCATIONINFO2>(
        arguments.pOpenAllocationInfo2.cast(),
        arguments.NumAllocations,
    )?;
    let infos: Vec<*mut D3DDDI_OPENALLOCATIONINFO> = infos.into_iter().map(<*mut _>::cast).collect();
    let own = (arguments.pResourcePrivateDriverData, arguments.ResourcePrivateDriverDataSize);
    let total = (arguments.pTotalPrivateDriverDataBuffer, arguments.TotalPrivateDriverDataBufferSize);
    require_buffers(&[(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize), own, total])?;
    let device = Handle(arguments.hDevice);
    let token = nt_handle::token_for(session, device, arguments.hNtHandle)?;
    let info = ResourceInfo {
        runtime_data_size: arguments.PrivateRuntimeDataSize,
        private_data_size: arguments.ResourcePrivateDriverDataSize,
        total_private_data_size: arguments.TotalPrivateDriverDataBufferSize,
        allocations: arguments.NumAllocations,
    };
    let mutex_buffer =
        buffer(arguments.pKeyedMutexPrivateRuntimeData, arguments.KeyedMutexPrivateRuntimeDataSize)?;
    let call = Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer };
    let Answer { status, reply } = block_on(session.call(&call));
    let Reply::OpenedResource {
        resource,
        allocations,
        runtime_data,
        keyed_mutex,
        sync_object,
        private_data,
        private_data_sizes,
    } = reply
    else {
        return Err(failure(&Answer { status, reply }));
    };
    let written =
        write_opened(&infos, &allocations, (own, total), OpenedData { private_data, private_data_sizes });
    arguments.TotalPrivateDriverDataBufferSize = written.unwrap_or(total.1);
    write_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize, &runtime_data);
    session.port().opened(Parents { device, resource }, &allocations);
    arguments.hResource = resource.0;
    (arguments.hKeyedMutex, arguments.hSyncObject) = (keyed_mutex.0, sync_object.0);
    Ok(status)
}
