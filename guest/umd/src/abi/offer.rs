//! Offers of allocations, and which allocations are resident.

use d3dkmt::{Call, Handle, NtStatus, Reply};

use super::memory::write_array;
use super::residency::handles;
use super::thunk::{ThunkResult, failure};
use crate::client::{Answer, Session, block_on};
use abi::types::{
    BOOL, D3DDDI_RECLAIM_RESULT_DISCARDED, D3DKMT_HANDLE, D3DKMT_OFFERALLOCATIONS,
    D3DKMT_QUERYALLOCATIONRESIDENCY, D3DKMT_RECLAIMALLOCATIONS, D3DKMT_RECLAIMALLOCATIONS2, UINT,
};

/// The handles of a call that is for resources or for allocations: one of the two arrays is NULL. Returns whether they
/// are of resources.
fn listed(
    resources: *const D3DKMT_HANDLE,
    allocations: *const D3DKMT_HANDLE,
    count: UINT,
) -> Result<(Vec<Handle>, bool), NtStatus> {
    match (resources.is_null(), allocations.is_null()) {
        (false, true) => Ok((handles(resources, count)?, true)),
        (true, false) => Ok((handles(allocations, count)?, false)),
        (true, true) | (false, false) => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// `D3DKMTOfferAllocations`.
pub(super) fn offer_allocations(session: &Session, arguments: &D3DKMT_OFFERALLOCATIONS) -> ThunkResult {
    let (allocations, resources) =
        listed(arguments.pResources, arguments.HandleList, arguments.NumAllocations)?;
    let (device, priority, flags) = (Handle(arguments.hDevice), arguments.Priority, arguments.Flags);
    Ok(block_on(session.call(&Call::OfferAllocations { device, allocations, resources, priority, flags }))
        .status)
}

/// Returns the status, the result of each entry, and the paging fence value.
fn reclaim(session: &Session, call: &Call) -> Result<(NtStatus, Vec<u32>, u64), NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::Reclaimed { results, paging_fence_value } } if status.is_success() => {
            Ok((status, results, paging_fence_value))
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTReclaimAllocations`.
pub(super) fn reclaim_allocations(session: &Session, arguments: &D3DKMT_RECLAIMALLOCATIONS) -> ThunkResult {
    let (allocations, resources) =
        listed(arguments.pResources, arguments.HandleList, arguments.NumAllocations)?;
    let count = allocations.len();
    let call = Call::ReclaimAllocations { device: Handle(arguments.hDevice), allocations, resources };
    let (status, results, _) = reclaim(session, &call)?;
    if !arguments.pDiscarded.is_null() {
        let is_discarded = |result: &u32| BOOL::from(*result == D3DDDI_RECLAIM_RESULT_DISCARDED);
        let discarded: Vec<BOOL> = results.iter().take(count).map(is_discarded).collect();
        write_array(arguments.pDiscarded, &discarded);
    }
    Ok(status)
}

/// `D3DKMTReclaimAllocations2`.
pub(super) fn reclaim_allocations2(
    session: &Session,
    arguments: &mut D3DKMT_RECLAIMALLOCATIONS2,
) -> ThunkResult {
    let (allocations, resources) =
        listed(arguments.pResources, arguments.HandleList, arguments.NumAllocations)?;
    let count = allocations.len();
    let paging_queue = Handle(arguments.hPagingQueue);
    let call = Call::ReclaimAllocations2 { paging_queue, allocations, resources };
    let (status, results, paging_fence_value) = reclaim(session, &call)?;
    if !arguments.results.is_null() {
        write_array(arguments.results, &results[..results.len().min(count)]);
    }
    arguments.PagingFenceValue = paging_fence_value;
    Ok(status)
}

/// `D3DKMTQueryAllocationResidency`.
pub(super) fn query_allocation_residency(
    session: &Session,
    arguments: &D3DKMT_QUERYALLOCATIONRESIDENCY,
) -> ThunkResult {
    let resource = Handle(arguments.hResource);
    let allocations = handles(arguments.phAllocationList, arguments.AllocationCount)?;
    let count = if resource == Handle::NULL { allocations.len() } else { 1 };
    if arguments.pResidencyStatus.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let device = Handle(arguments.hDevice);
    match block_on(session.call(&Call::QueryAllocationResidency { device, resource, allocations })) {
        Answer { status, reply: Reply::AllocationResidency(found) } if status.is_success() => {
            write_array(arguments.pResidencyStatus, &found[..found.len().min(count)]);
            Ok(status)
        }
        answer => Err(failure(&answer)),
    }
}
