//! Allocations and resources. What fails leaves the caller's structs as they were; the sizes of what
//! `D3DKMTOpenResource` is given are judged by the kernel.

use std::ffi::c_void;

use d3dkmt::{Call, CreateAllocationFlags, DestroyAllocationFlags, Handle, NtStatus, Reply, ResourceInfo};

use super::keyed_mutex::buffer;
use super::memory::{Array, read, read_bytes, read_handles, write, write_bytes};
use super::thunk::{CStatus, enter, failure};
use super::types::{
    AllocationInfo, AllocationInfo2, CreateAllocation, DestroyAllocation, DestroyAllocation2,
    OpenAllocationInfo, OpenAllocationInfo2, OpenResource, OpenResourceFromNtHandle, QueryResourceInfo,
    QueryResourceInfoFromNtHandle, StandardAllocation,
};
use crate::client::{Answer, Session};
use crate::limits::ARRAY_ENTRIES_MAX;
use crate::nt_handle;
use crate::process::Starts;

/// Where entries of the caller's array are.
fn entries<T>(array: *mut c_void, count: u32) -> Result<Vec<*mut T>, NtStatus> {
    let count = count as usize;
    if count > ARRAY_ENTRIES_MAX || (count > 0 && array.is_null()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok((0..count).map(|at| array.cast::<T>().wrapping_add(at)).collect())
}

/// `T` is the form of the array's entries; both begin alike.
fn create<T>(session: &Session, argument: *mut CreateAllocation) -> Result<NtStatus, NtStatus> {
    let mut arguments = read(argument)?;
    let flags = CreateAllocationFlags::from_bits_retain(arguments.flags);
    let (standard, private_data) = match flags.contains(CreateAllocationFlags::STANDARD_ALLOCATION) {
        true => {
            let standard = read(arguments.private_data.cast::<StandardAllocation>())?;
            let StandardAllocation { kind, size, flags } = standard;
            let private_data_size = arguments.private_data_size;
            (Some(d3dkmt::StandardAllocation { kind, size, flags, private_data_size }), Vec::new())
        }
        false => (None, read_bytes(arguments.private_data, arguments.private_data_size)?),
    };
    let infos: Vec<*mut AllocationInfo> =
        entries::<T>(arguments.allocations, arguments.count)?.into_iter().map(<*mut T>::cast).collect();
    let info = |info: &*mut AllocationInfo| {
        let info = read(*info)?;
        Ok(d3dkmt::AllocationInfo {
            system_memory: info.system_memory,
            private_data: read_bytes(info.private_data, info.private_data_size)?,
            flags: info.flags,
        })
    };
    let call = Call::CreateAllocation {
        create: Box::new(d3dkmt::CreateAllocation {
            device: Handle(arguments.device),
            resource: Handle(arguments.resource),
            flags,
            standard,
            private_data,
            runtime_data: read_bytes(arguments.runtime_data, arguments.runtime_data_size)?,
            allocations: infos.iter().map(info).collect::<Result<_, NtStatus>>()?,
        }),
    };
    let (status, resource, shared_handle, allocations) = match session.call(&call) {
        Answer { status, reply: Reply::Allocations { resource, shared_handle, allocations } }
            if status.is_success() =>
        {
            (status, resource, shared_handle, allocations)
        }
        answer => return Err(failure(&answer)),
    };
    if let Err(status) = lend(session, &call, resource, &allocations) {
        session.call(&Call::DestroyAllocation {
            device: Handle(arguments.device),
            resource,
            allocations: if resource == Handle::NULL { allocations } else { Vec::new() },
            flags: DestroyAllocationFlags::empty(),
        });
        return Err(status);
    }
    for (info, handle) in infos.iter().zip(allocations) {
        write(info.cast::<u32>(), handle.0);
    }
    (arguments.resource, arguments.shared_handle) = (resource.0, shared_handle.0);
    write(argument, arguments);
    Ok(status)
}

/// The memory of new allocations becomes what engines touch.
fn lend(session: &Session, call: &Call, resource: Handle, allocations: &[Handle]) -> Result<(), NtStatus> {
    let Call::CreateAllocation { create } = call else { unreachable!("this is what was called") };
    let Some(standard) = &create.standard else { return Ok(()) };
    for (info, allocation) in create.allocations.iter().zip(allocations) {
        let end = info.system_memory.saturating_add(standard.size);
        session.lend(create.device, resource, *allocation, info.system_memory..end)?;
    }
    Ok(())
}

/// `D3DKMTCreateAllocation`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateAllocation(argument: *mut CreateAllocation) -> CStatus {
    enter(Starts::Nothing, |session| create::<AllocationInfo>(session, argument))
}

/// `D3DKMTCreateAllocation2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateAllocation2(argument: *mut CreateAllocation) -> CStatus {
    enter(Starts::Nothing, |session| create::<AllocationInfo2>(session, argument))
}

fn destroy(session: &Session, arguments: &DestroyAllocation2) -> Result<NtStatus, NtStatus> {
    let mut copy = Array::default();
    let allocations = read_handles(&mut copy, arguments.allocations, arguments.count)?.to_vec();
    let resource = Handle(arguments.resource);
    let call = Call::DestroyAllocation {
        device: Handle(arguments.device),
        resource,
        allocations: allocations.clone(),
        flags: DestroyAllocationFlags::from_bits_retain(arguments.flags),
    };
    let status = session.call(&call).status;
    if status.is_success() {
        session.allocations_ended(resource, &allocations);
    }
    Ok(status)
}

/// `D3DKMTDestroyAllocation`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyAllocation(argument: *const DestroyAllocation) -> CStatus {
    enter(Starts::Nothing, |session| {
        let DestroyAllocation { device, resource, allocations, count } = read(argument)?;
        destroy(session, &DestroyAllocation2 { device, resource, allocations, count, flags: 0 })
    })
}

/// `D3DKMTDestroyAllocation2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyAllocation2(argument: *const DestroyAllocation2) -> CStatus {
    enter(Starts::Nothing, |session| destroy(session, &read(argument)?))
}

fn resource_info(session: &Session, call: &Call) -> Result<(NtStatus, ResourceInfo), NtStatus> {
    match session.call(call) {
        Answer { status, reply: Reply::ResourceInfo(info) } if status.is_success() => Ok((status, info)),
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTQueryResourceInfo`: sizes only, the buffer is not filled (W-264).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTQueryResourceInfo(argument: *mut QueryResourceInfo) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (device, shared_handle) = (Handle(arguments.device), Handle(arguments.shared_handle));
        let (status, info) = resource_info(session, &Call::QueryResourceInfo { device, shared_handle })?;
        arguments.runtime_data_size = info.runtime_data_size;
        arguments.total_private_data_size = info.total_private_data_size;
        arguments.private_data_size = info.private_data_size;
        arguments.count = info.allocations;
        write(argument, arguments);
        Ok(status)
    })
}

/// As in [`create`].
fn open<T>(session: &Session, argument: *mut OpenResource) -> Result<NtStatus, NtStatus> {
    let mut arguments = read(argument)?;
    let infos = entries::<T>(arguments.allocations, arguments.count)?;
    if arguments.runtime_data_size > 0 && arguments.runtime_data.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let info = ResourceInfo {
        runtime_data_size: arguments.runtime_data_size,
        private_data_size: arguments.private_data_size,
        total_private_data_size: arguments.total_private_data_size,
        allocations: arguments.count,
    };
    let (device, shared_handle) = (Handle(arguments.device), Handle(arguments.shared_handle));
    let (status, resource, allocations, runtime_data) =
        match session.call(&Call::OpenResource { device, shared_handle, info }) {
            Answer { status, reply: Reply::OpenedResource { resource, allocations, runtime_data, .. } }
                if status.is_success() =>
            {
                (status, resource, allocations, runtime_data)
            }
            answer => return Err(failure(&answer)),
        };
    for (info, handle) in infos.into_iter().zip(allocations) {
        write(info.cast::<u32>(), handle.0);
    }
    write_bytes(arguments.runtime_data, arguments.runtime_data_size, &runtime_data);
    arguments.resource = resource.0;
    write(argument, arguments);
    Ok(status)
}

/// `D3DKMTOpenResource`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenResource(argument: *mut OpenResource) -> CStatus {
    enter(Starts::Nothing, |session| open::<OpenAllocationInfo>(session, argument))
}

/// `D3DKMTOpenResource2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenResource2(argument: *mut OpenResource) -> CStatus {
    enter(Starts::Nothing, |session| open::<OpenAllocationInfo2>(session, argument))
}

/// `D3DKMTQueryResourceInfoFromNtHandle`: sizes only.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTQueryResourceInfoFromNtHandle(
    argument: *mut QueryResourceInfoFromNtHandle,
) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let device = Handle(arguments.device);
        let token = nt_handle::token_for(session, device, arguments.nt_handle)?;
        let call = Call::QueryResourceInfoFromNtHandle { device, token };
        let (status, info) = resource_info(session, &call)?;
        arguments.runtime_data_size = info.runtime_data_size;
        arguments.total_private_data_size = info.total_private_data_size;
        arguments.private_data_size = info.private_data_size;
        arguments.count = info.allocations;
        write(argument, arguments);
        Ok(status)
    })
}

/// `D3DKMTOpenResourceFromNtHandle`: hKeyedMutex and hSyncObject are 0 unless they go with the NT handle.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenResourceFromNtHandle(argument: *mut OpenResourceFromNtHandle) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let infos = entries::<OpenAllocationInfo2>(arguments.allocations.cast(), arguments.count)?;
        if arguments.runtime_data_size > 0 && arguments.runtime_data.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let device = Handle(arguments.device);
        let token = nt_handle::token_for(session, device, arguments.nt_handle)?;
        let info = ResourceInfo {
            runtime_data_size: arguments.runtime_data_size,
            private_data_size: arguments.private_data_size,
            total_private_data_size: arguments.total_private_data_size,
            allocations: arguments.count,
        };
        let mutex_buffer = buffer(arguments.mutex_data, arguments.mutex_data_size)?;
        let call = Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer };
        let Answer { status, reply } = session.call(&call);
        let Reply::OpenedResource { resource, allocations, runtime_data, keyed_mutex, sync_object } = reply
        else {
            return Err(failure(&Answer { status, reply }));
        };
        for (info, handle) in infos.into_iter().zip(allocations) {
            write(info.cast::<u32>(), handle.0);
        }
        write_bytes(arguments.runtime_data, arguments.runtime_data_size, &runtime_data);
        arguments.resource = resource.0;
        (arguments.keyed_mutex, arguments.sync_object) = (keyed_mutex.0, sync_object.0);
        write(argument, arguments);
        Ok(status)
    })
}
