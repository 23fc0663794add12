//! Residency and priorities of allocations.

use d3dkmt::{Call, Handle, NtStatus, Reply};

use super::memory::{Array, read_array, read_handles, write_array};
use super::thunk::{ThunkResult, failure};
use crate::client::{Answer, Session, block_on};
use abi::types::{
    D3DDDI_MAKERESIDENT, D3DDDI_UPDATEALLOCPROPERTY, D3DKMT_EVICT, D3DKMT_GETALLOCATIONPRIORITY,
    D3DKMT_HANDLE, D3DKMT_SETALLOCATIONPRIORITY, UINT,
};

pub(super) fn handles(array: *const u32, count: u32) -> Result<Vec<Handle>, NtStatus> {
    let mut copy = Array::default();
    Ok(read_handles(&mut copy, array, count)?.to_vec())
}

/// Returns the status, the paging fence value at which the change takes effect, and NumBytesToTrim, also over budget.
fn residency(session: &Session, call: &Call) -> Result<(NtStatus, u64, u64), NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::Residency { paging_fence_value, bytes_to_trim, .. } } => {
            Ok((status, paging_fence_value, bytes_to_trim))
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTMakeResident`. Over budget, NumAllocations and NumBytesToTrim are written although the call fails. PriorityList is
/// ignored, as on Windows.
pub(super) fn make_resident(session: &Session, arguments: &mut D3DDDI_MAKERESIDENT) -> ThunkResult {
    let call = Call::MakeResident {
        paging_queue: Handle(arguments.hPagingQueue),
        allocations: handles(arguments.AllocationList, arguments.NumAllocations)?,
        priorities: Vec::new(),
        flags: arguments.Flags,
    };
    let (status, paging_fence_value, bytes_to_trim) = residency(session, &call)?;
    if !status.is_success() {
        arguments.NumAllocations = 0;
    }
    (arguments.PagingFenceValue, arguments.NumBytesToTrim) = (paging_fence_value, bytes_to_trim);
    Ok(status)
}

/// `D3DKMTEvict`.
pub(super) fn evict(session: &Session, arguments: &mut D3DKMT_EVICT) -> ThunkResult {
    let call = Call::Evict {
        device: Handle(arguments.hDevice),
        allocations: handles(arguments.AllocationList, arguments.NumAllocations)?,
        flags: arguments.Flags,
    };
    let (status, _, bytes_to_trim) = residency(session, &call)?;
    arguments.NumBytesToTrim = bytes_to_trim;
    Ok(status)
}

/// How many priorities a call has: one for a resource, or else one for each allocation.
fn priority_count(
    resource: D3DKMT_HANDLE,
    allocations: UINT,
    priorities: *const UINT,
) -> Result<usize, NtStatus> {
    let count = if resource == 0 { allocations as usize } else { 1 };
    match count > 0 && priorities.is_null() {
        true => Err(NtStatus::INVALID_PARAMETER),
        false => Ok(count),
    }
}

/// `D3DKMTSetAllocationPriority`.
pub(super) fn set_allocation_priority(
    session: &Session,
    arguments: &D3DKMT_SETALLOCATIONPRIORITY,
) -> ThunkResult {
    let count = priority_count(arguments.hResource, arguments.AllocationCount, arguments.pPriorities)?;
    let call = Call::SetAllocationPriority {
        device: Handle(arguments.hDevice),
        resource: Handle(arguments.hResource),
        allocations: handles(arguments.phAllocationList, arguments.AllocationCount)?,
        priorities: read_array(arguments.pPriorities, count)?,
    };
    Ok(block_on(session.call(&call)).status)
}

/// `D3DKMTGetAllocationPriority`.
pub(super) fn get_allocation_priority(
    session: &Session,
    arguments: &D3DKMT_GETALLOCATIONPRIORITY,
) -> ThunkResult {
    let count = priority_count(arguments.hResource, arguments.AllocationCount, arguments.pPriorities)?;
    let call = Call::AllocationPriority {
        device: Handle(arguments.hDevice),
        resource: Handle(arguments.hResource),
        allocations: handles(arguments.phAllocationList, arguments.AllocationCount)?,
    };
    match block_on(session.call(&call)) {
        Answer { status, reply: Reply::AllocationPriorities(priorities) } if status.is_success() => {
            write_array(arguments.pPriorities, &priorities[..priorities.len().min(count)]);
            Ok(status)
        }
        answer => Err(failure(&answer)),
    }
}

/// SetAccessedPhysically, SetSupportedSegmentSet, SetPreferredSegment and SetUnmoveable.
const PROPERTIES: UINT = 0xF;
/// AccessedPhysically.
const PROPERTY_FLAGS: UINT = 1;

/// `D3DKMTUpdateAllocationProperty`: no property can be changed, because no driver here has
/// `DxgkDdiValidateUpdateAllocationProperty`. The handles are checked before that is said.
pub(super) fn update_allocation_property(
    session: &Session,
    arguments: &mut D3DDDI_UPDATEALLOCPROPERTY,
) -> ThunkResult {
    let D3DDDI_UPDATEALLOCPROPERTY { hPagingQueue, hAllocation, Flags, PropertyMaskValue, .. } = *arguments;
    if PropertyMaskValue & !PROPERTIES != 0 || Flags & !PROPERTY_FLAGS != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let device = session.device_of_paging_queue(Handle(hPagingQueue)).ok_or(NtStatus::INVALID_PARAMETER)?;
    let allocations = vec![Handle(hAllocation)];
    let call = Call::AllocationPriority { device, resource: Handle::NULL, allocations };
    let checked = block_on(session.call(&call)).status;
    if !checked.is_success() {
        return Err(checked);
    }
    if PropertyMaskValue != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    arguments.PagingFenceValue = 0;
    Ok(checked)
}
