//! Paging queues and GPU virtual addresses.

use d3dkmt::{Call, GpuVaOperation as Operation, Handle, NtStatus};
use fence_page::PAGE_BYTES;

use super::memory::{cpu_address, read_array};
use super::thunk::ThunkResult;
use crate::client::{Session, block_on};
use abi::types::{
    D3DDDI_DESTROYPAGINGQUEUE, D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY, D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_UPDATEGPUVIRTUALADDRESS,
};

/// `D3DKMTCreatePagingQueue`.
pub(super) fn create_paging_queue(
    session: &Session,
    arguments: &mut D3DKMT_CREATEPAGINGQUEUE,
) -> ThunkResult {
    let (device, physical_adapter) = (Handle(arguments.hDevice), arguments.PhysicalAdapterIndex);
    let created = block_on(session.create_paging_queue(device, arguments.Priority, physical_adapter))?;
    arguments.hPagingQueue = created.queue.0;
    arguments.hSyncObject = created.fence.object.0;
    arguments.FenceValueCPUVirtualAddress = cpu_address(&created.fence);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTDestroyPagingQueue`.
pub(super) fn destroy_paging_queue(session: &Session, arguments: &D3DDDI_DESTROYPAGINGQUEUE) -> ThunkResult {
    Ok(block_on(session.destroy_paging_queue(Handle(arguments.hPagingQueue))))
}

/// Reads the union by the type of the operation. For an unknown type no member is known.
fn operation(raw: D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION) -> Operation {
    let plain =
        Operation { operation: raw.OperationType, base: raw.base, size: raw.size, ..Operation::default() };
    let map = Operation {
        allocation: Handle(raw.allocation as u32),
        allocation_offset: raw.allocation_offset,
        allocation_size: raw.allocation_size,
        ..plain
    };
    match raw.OperationType {
        D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP => map,
        D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT => Operation { protection: raw.protection, ..map },
        D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP => Operation { protection: raw.allocation, ..plain },
        D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY => Operation { destination: raw.allocation, ..plain },
        _ => plain,
    }
}

/// Attaches the memory of allocations that a call maps, before the call is sent. What a refused call attached stays so
/// until the allocation ends.
pub(super) fn attach_mapped(session: &Session, call: &Call) -> Result<(), NtStatus> {
    let attach = |allocation: Handle, offset: Option<u64>, bytes: Option<u64>| {
        // The host refuses what overflows.
        let Some(offset) = offset else { return Ok(()) };
        match bytes.and_then(|bytes| offset.checked_add(bytes)) {
            Some(end) => session.port().attach_mapped(allocation, offset..end),
            None => Ok(()),
        }
    };
    match call {
        Call::MapGpuVirtualAddress { allocation, offset_pages, size_pages, .. } => {
            let bytes = |pages: u64| pages.checked_mul(PAGE_BYTES as u64);
            attach(*allocation, bytes(*offset_pages), bytes(*size_pages))
        }
        Call::UpdateGpuVirtualAddress { operations, .. } => operations.iter().try_for_each(|one| {
            // Operations that map nothing name no allocation.
            attach(one.allocation, Some(one.allocation_offset), Some(one.mapped_span()))
        }),
        _ => Ok(()),
    }
}

/// `D3DKMTUpdateGpuVirtualAddress`.
pub(super) fn update_gpu_virtual_address(
    session: &Session,
    arguments: &D3DKMT_UPDATEGPUVIRTUALADDRESS,
) -> ThunkResult {
    let operations = read_array(arguments.Operations, arguments.NumOperations as usize)?;
    let call = Call::UpdateGpuVirtualAddress {
        device: Handle(arguments.hDevice),
        context: Handle(arguments.hContext),
        fence: Handle(arguments.hFenceObject),
        fence_value: arguments.FenceValue,
        operations: operations.into_iter().map(operation).collect(),
        flags: arguments.flags,
    };
    attach_mapped(session, &call)?;
    Ok(block_on(session.call(&call)).status)
}
