//! Paging queues and GPU virtual addresses.

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
        // Scenarios have no words for other operations.
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
