//! Paging queues and GPU virtual addresses.

use d3dkmt::{Call, GpuVaOperation as Operation, Handle, NtStatus, Reply};

use super::memory::{cpu_address, read_array};
use super::thunk::{ThunkResult, failure};
use super::types::{
    D3DDDI_DESTROYPAGINGQUEUE, D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_RESERVEGPUVIRTUALADDRESS,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY, D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP, D3DKMT_CREATEPAGINGQUEUE, D3DKMT_FREEGPUVIRTUALADDRESS,
    D3DKMT_UPDATEGPUVIRTUALADDRESS,
};
use crate::client::{Answer, Session, block_on};

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

/// The status, which may be PENDING, the address, and the value of the paging fence from which on it holds.
fn place(session: &Session, call: &Call) -> Result<(NtStatus, u64, u64), NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::GpuVirtualAddress { address, paging_fence_value } }
            if status.is_success() =>
        {
            Ok((status, address, paging_fence_value))
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTReserveGpuVirtualAddress`.
pub(super) fn reserve_gpu_virtual_address(
    session: &Session,
    arguments: &mut D3DDDI_RESERVEGPUVIRTUALADDRESS,
) -> ThunkResult {
    let (status, address, paging_fence_value) = place(
        session,
        &Call::ReserveGpuVirtualAddress {
            owner: Handle(arguments.owner),
            base: arguments.BaseAddress,
            minimum: arguments.MinimumAddress,
            maximum: arguments.MaximumAddress,
            size: arguments.Size,
        },
    )?;
    (arguments.VirtualAddress, arguments.paging_fence_value) = (address, paging_fence_value);
    Ok(status)
}

/// `D3DKMTMapGpuVirtualAddress`. The driver's own protection bits are no affair of the model.
pub(super) fn map_gpu_virtual_address(
    session: &Session,
    arguments: &mut D3DDDI_MAPGPUVIRTUALADDRESS,
) -> ThunkResult {
    let (status, address, paging_fence_value) = place(
        session,
        &Call::MapGpuVirtualAddress {
            paging_queue: Handle(arguments.hPagingQueue),
            base: arguments.BaseAddress,
            minimum: arguments.MinimumAddress,
            maximum: arguments.MaximumAddress,
            allocation: Handle(arguments.hAllocation),
            offset_pages: arguments.OffsetInPages,
            size_pages: arguments.SizeInPages,
            protection: arguments.Protection,
        },
    )?;
    (arguments.VirtualAddress, arguments.PagingFenceValue) = (address, paging_fence_value);
    Ok(status)
}

/// `D3DKMTFreeGpuVirtualAddress`.
pub(super) fn free_gpu_virtual_address(
    session: &Session,
    arguments: &D3DKMT_FREEGPUVIRTUALADDRESS,
) -> ThunkResult {
    let call = Call::FreeGpuVirtualAddress {
        adapter: Handle(arguments.hAdapter),
        base: arguments.BaseAddress,
        size: arguments.Size,
    };
    Ok(block_on(session.call(&call)).status)
}

/// What the union says, by the type of the operation. Of a type that C has no name for nobody knows.
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
    Ok(block_on(session.call(&call)).status)
}
