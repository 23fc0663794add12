//! Paging queues and GPU virtual addresses.

use d3dkmt::{Call, CreatedSyncObject, GpuVaOperation, Handle, Reply, SyncObjectType};

use super::Done;
use crate::Actor;
use crate::abi::sdk;
use crate::objects::Object;

pub fn create_queue(actor: &Actor, device: Handle, priority: i32, physical_adapter: u32) -> Done {
    let mut create = sdk::D3DKMT_CREATEPAGINGQUEUE {
        hDevice: device.0,
        Priority: priority,
        PhysicalAdapterIndex: physical_adapter,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreatePagingQueue(&mut create) };
    Done::reply(status, || {
        let object = Handle(create.hSyncObject);
        let kind = Some(SyncObjectType::MONITORED_FENCE);
        actor.objects.created(object, Object::new(device, kind, create.FenceValueCPUVirtualAddress));
        let fence = CreatedSyncObject { object, ..CreatedSyncObject::default() };
        Reply::PagingQueue { queue: Handle(create.hPagingQueue), fence }
    })
}

pub fn destroy_queue(queue: Handle) -> Done {
    let mut destroy = sdk::D3DDDI_DESTROYPAGINGQUEUE { hPagingQueue: queue.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyPagingQueue(&mut destroy) })
}

fn place(status: i32, address: u64, paging_fence_value: u64) -> Done {
    Done::reply(status, || Reply::GpuVirtualAddress { address, paging_fence_value })
}

pub fn reserve(owner: Handle, base: u64, minimum: u64, maximum: u64, size: u64) -> Done {
    let mut reserve = sdk::D3DDDI_RESERVEGPUVIRTUALADDRESS {
        BaseAddress: base,
        MinimumAddress: minimum,
        MaximumAddress: maximum,
        Size: size,
        ..Default::default()
    };
    reserve.Anonymous1.hPagingQueue = owner.0;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTReserveGpuVirtualAddress(&mut reserve) };
    // SAFETY: zeroed before the call; both members are one word.
    place(status, reserve.VirtualAddress, unsafe { reserve.Anonymous4.PagingFenceValue })
}

/// Of [`Call::MapGpuVirtualAddress`] alone.
pub fn map(call: &Call) -> Done {
    let Call::MapGpuVirtualAddress {
        paging_queue,
        base,
        minimum,
        maximum,
        allocation,
        offset_pages,
        size_pages,
        protection,
    } = call
    else {
        return Done::no_c_form();
    };
    let mut map = sdk::D3DDDI_MAPGPUVIRTUALADDRESS {
        hPagingQueue: paging_queue.0,
        BaseAddress: *base,
        MinimumAddress: *minimum,
        MaximumAddress: *maximum,
        hAllocation: allocation.0,
        OffsetInPages: *offset_pages,
        SizeInPages: *size_pages,
        ..Default::default()
    };
    map.Protection.Anonymous.Value = *protection;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTMapGpuVirtualAddress(&mut map) };
    place(status, map.VirtualAddress, map.PagingFenceValue)
}

pub fn free(adapter: Handle, base: u64, size: u64) -> Done {
    let free = sdk::D3DKMT_FREEGPUVIRTUALADDRESS { hAdapter: adapter.0, BaseAddress: base, Size: size };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTFreeGpuVirtualAddress(&free) })
}

pub fn update(
    device: Handle,
    context: Handle,
    fence: Handle,
    fence_value: u64,
    operations: &[GpuVaOperation],
    flags: u32,
) -> Done {
    let operation = |from: &GpuVaOperation| {
        let mut operation = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION {
            OperationType: from.operation as i32,
            ..Default::default()
        };
        operation.Anonymous.Unmap.BaseAddress = from.base;
        operation.Anonymous.Unmap.SizeInBytes = from.size;
        // No word of scenarios says more of an operation than that.
        operation
    };
    let mut operations: Vec<_> = operations.iter().map(operation).collect();
    let mut update = sdk::D3DKMT_UPDATEGPUVIRTUALADDRESS {
        hDevice: device.0,
        hContext: context.0,
        hFenceObject: fence.0,
        NumOperations: operations.len() as u32,
        Operations: operations.as_mut_ptr(),
        FenceValue: fence_value,
        ..Default::default()
    };
    update.Flags.Value = flags;
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTUpdateGpuVirtualAddress(&update) })
}
