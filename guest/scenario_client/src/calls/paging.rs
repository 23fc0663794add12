//! Paging queues and GPU virtual addresses.

use d3dkmt::gpu_va::operation;
use d3dkmt::{CreatedSyncObject, GpuVaOperation, Handle, Reply, SyncObjectType};

use super::Done;
use crate::ScenarioClient;
use crate::abi::sdk;
use crate::objects::Object;

pub fn create_queue(
    scenario_client: &ScenarioClient,
    device: Handle,
    priority: i32,
    physical_adapter: u32,
) -> Done {
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
        scenario_client
            .objects
            .created(object, Object::new(device, kind, create.FenceValueCPUVirtualAddress));
        let fence = CreatedSyncObject { object, ..CreatedSyncObject::default() };
        Reply::PagingQueue { queue: Handle(create.hPagingQueue), fence }
    })
}

pub fn destroy_queue(queue: Handle) -> Done {
    let mut destroy = sdk::D3DDDI_DESTROYPAGINGQUEUE { hPagingQueue: queue.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyPagingQueue(&mut destroy) })
}

/// The member of the union that the operation has. For an unknown one the library reads no more than address and size.
fn fields(from: &GpuVaOperation) -> sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0 {
    let mut fields = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0::default();
    let protection = |value| sdk::D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE {
        Anonymous: sdk::D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE_0 { Value: value },
    };
    match from.operation {
        operation::MAP => {
            fields.Map = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_0 {
                BaseAddress: from.base,
                SizeInBytes: from.size,
                hAllocation: from.allocation.0,
                AllocationOffsetInBytes: from.allocation_offset,
                AllocationSizeInBytes: from.allocation_size,
            };
        }
        operation::MAP_PROTECT => {
            fields.MapProtect = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_1 {
                BaseAddress: from.base,
                SizeInBytes: from.size,
                hAllocation: from.allocation.0,
                AllocationOffsetInBytes: from.allocation_offset,
                AllocationSizeInBytes: from.allocation_size,
                Protection: protection(from.protection),
                DriverProtection: 0,
            };
        }
        operation::COPY => {
            fields.Copy = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_3 {
                SourceAddress: from.base,
                SizeInBytes: from.size,
                DestAddress: from.destination,
            };
        }
        _ => {
            fields.Unmap = sdk::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_2 {
                BaseAddress: from.base,
                SizeInBytes: from.size,
                Protection: protection(from.protection),
            };
        }
    }
    fields
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
        operation.Anonymous = fields(from);
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
