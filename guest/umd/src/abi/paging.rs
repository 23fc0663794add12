//! Paging queues and GPU virtual addresses.

use d3dkmt::{Call, GpuVaOperation as Operation, Handle, NtStatus, Reply};

use super::memory::{read, read_array, write};
use super::thunk::{CStatus, enter, failure};
use super::types::{
    CreatePagingQueue, FreeGpuVirtualAddress, GpuVaOperation, MapGpuVirtualAddress, OneHandle,
    ReserveGpuVirtualAddress, UpdateGpuVirtualAddress,
};
use crate::client::{Answer, Session};
use crate::process::Starts;

/// `D3DKMTCreatePagingQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreatePagingQueue(argument: *mut CreatePagingQueue) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (device, physical_adapter) = (Handle(arguments.device), arguments.physical_adapter);
        let created = session.create_paging_queue(device, arguments.priority, physical_adapter)?;
        arguments.queue = created.queue.0;
        arguments.object = created.fence.object.0;
        arguments.cpu_address = created.fence.location.map_or(0, |location| location.address());
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTDestroyPagingQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyPagingQueue(argument: *mut OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.destroy_paging_queue(Handle(read(argument)?.handle))))
}

/// The status, which may be PENDING, the address, and the value of the paging fence from which on it holds.
fn place(session: &Session, call: &Call) -> Result<(NtStatus, u64, u64), NtStatus> {
    match session.call(call) {
        Answer { status, reply: Reply::GpuVirtualAddress { address, paging_fence_value } }
            if status.is_success() =>
        {
            Ok((status, address, paging_fence_value))
        }
        answer => Err(failure(&answer)),
    }
}

/// `D3DKMTReserveGpuVirtualAddress`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTReserveGpuVirtualAddress(argument: *mut ReserveGpuVirtualAddress) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (status, address, paging_fence_value) = place(
            session,
            &Call::ReserveGpuVirtualAddress {
                owner: Handle(arguments.owner),
                base: arguments.base,
                minimum: arguments.minimum,
                maximum: arguments.maximum,
                size: arguments.size,
            },
        )?;
        (arguments.address, arguments.paging_fence_value) = (address, paging_fence_value);
        write(argument, arguments);
        Ok(status)
    })
}

/// `D3DKMTMapGpuVirtualAddress`. The driver's own protection bits are no affair of the model.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTMapGpuVirtualAddress(argument: *mut MapGpuVirtualAddress) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (status, address, paging_fence_value) = place(
            session,
            &Call::MapGpuVirtualAddress {
                paging_queue: Handle(arguments.paging_queue),
                base: arguments.base,
                minimum: arguments.minimum,
                maximum: arguments.maximum,
                allocation: Handle(arguments.allocation),
                offset_pages: arguments.offset_pages,
                size_pages: arguments.size_pages,
                protection: arguments.protection,
            },
        )?;
        (arguments.address, arguments.paging_fence_value) = (address, paging_fence_value);
        write(argument, arguments);
        Ok(status)
    })
}

/// `D3DKMTFreeGpuVirtualAddress`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTFreeGpuVirtualAddress(argument: *const FreeGpuVirtualAddress) -> CStatus {
    enter(Starts::Nothing, |session| {
        let FreeGpuVirtualAddress { adapter, base, size } = read(argument)?;
        let adapter = Handle(adapter);
        Ok(session.call(&Call::FreeGpuVirtualAddress { adapter, base, size }).status)
    })
}

/// What the union says, by the type of the operation. Of a type that C has no name for nobody knows.
fn operation(raw: GpuVaOperation) -> Operation {
    /// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE`.
    const MAP: u32 = 0;
    const UNMAP: u32 = 1;
    const COPY: u32 = 2;
    const MAP_PROTECT: u32 = 3;
    let GpuVaOperation { operation, base, size, allocation, allocation_offset, allocation_size, .. } = raw;
    let plain = Operation { operation, base, size, ..Operation::default() };
    let map =
        Operation { allocation: Handle(allocation as u32), allocation_offset, allocation_size, ..plain };
    match operation {
        MAP => map,
        MAP_PROTECT => Operation { protection: raw.protection, ..map },
        UNMAP => Operation { protection: allocation, ..plain },
        COPY => Operation { destination: allocation, ..plain },
        _ => plain,
    }
}

/// `D3DKMTUpdateGpuVirtualAddress`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTUpdateGpuVirtualAddress(argument: *const UpdateGpuVirtualAddress) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let operations = read_array(arguments.operations, arguments.operation_count as usize)?;
        let call = Call::UpdateGpuVirtualAddress {
            device: Handle(arguments.device),
            context: Handle(arguments.context),
            fence: Handle(arguments.fence),
            fence_value: arguments.fence_value,
            operations: operations.into_iter().map(operation).collect(),
            flags: arguments.flags,
        };
        Ok(session.call(&call).status)
    })
}
