//! Hardware queues, paging queues, GPU addresses, priorities.

use d3dkmt::{Call, CreatedSyncObject, Handle, HwQueueFlags, NtStatus, Reply, SignalFlags, SyncObjectType};

use super::{Done, raw, value_array};
use crate::Actor;
use crate::abi::sdk;
use crate::objects::Object;

/// The fence of a queue; its device is not known here, so it is forgotten with the process.
fn fence(actor: &Actor, object: u32, address: *mut core::ffi::c_void, gpu_address: u64) -> CreatedSyncObject {
    let object = Handle(object);
    let known = Object::new(Handle::NULL, Some(SyncObjectType::MONITORED_FENCE), address);
    actor.objects.created(object, known);
    CreatedSyncObject { object, gpu_address, ..CreatedSyncObject::default() }
}

pub fn create(actor: &Actor, context: Handle, flags: HwQueueFlags, private_data: &[u8]) -> Done {
    let mut data = private_data.to_vec();
    let mut create = sdk::D3DKMT_CREATEHWQUEUE {
        hHwContext: context.0,
        PrivateDriverDataSize: data.len() as u32,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        ..Default::default()
    };
    create.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateHwQueue(&mut create) };
    Done::reply(status, || Reply::HwQueue {
        queue: Handle(create.hHwQueue),
        progress_fence: fence(
            actor,
            create.hHwQueueProgressFence,
            create.HwQueueProgressFenceCPUVirtualAddress,
            create.HwQueueProgressFenceGPUVirtualAddress,
        ),
    })
}

pub fn destroy(queue: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYHWQUEUE { hHwQueue: queue.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyHwQueue(&destroy) })
}

pub fn submit(queue: Handle, id: u64, commands: u64, length: u32, private_data: &[u8]) -> Done {
    let mut data = private_data.to_vec();
    let submit = sdk::D3DKMT_SUBMITCOMMANDTOHWQUEUE {
        hHwQueue: queue.0,
        HwQueueProgressFenceId: id,
        CommandBuffer: commands,
        CommandLength: length,
        PrivateDriverDataSize: data.len() as u32,
        pPrivateDriverData: data.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSubmitCommandToHwQueue(&submit) })
}

pub fn signal(queues: &[Handle], objects: &[Handle], values: &[u64], flags: SignalFlags) -> Done {
    let Some(array) = value_array(objects, values) else { return Done::no_c_form() };
    let (queues, objects) = (raw(queues), raw(objects));
    let mut signal = sdk::D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE {
        BroadcastHwQueueCount: queues.len() as u32,
        BroadcastHwQueueArray: queues.as_ptr(),
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        FenceValueArray: array,
        ..Default::default()
    };
    signal.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSubmitSignalSyncObjectsToHwQueue(&signal) })
}

pub fn wait(queue: Handle, objects: &[Handle], values: &[u64]) -> Done {
    let Some(array) = value_array(objects, values) else { return Done::no_c_form() };
    let objects = raw(objects);
    let wait = sdk::D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE {
        hHwQueue: queue.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        FenceValueArray: array,
    };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSubmitWaitForSyncObjectsToHwQueue(&wait) })
}

pub fn create_paging_queue(actor: &Actor, device: Handle, priority: i32, physical_adapter: u32) -> Done {
    let mut create = sdk::D3DKMT_CREATEPAGINGQUEUE {
        hDevice: device.0,
        Priority: priority,
        PhysicalAdapterIndex: physical_adapter,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreatePagingQueue(&mut create) };
    Done::reply(status, || Reply::PagingQueue {
        queue: Handle(create.hPagingQueue),
        fence: fence(actor, create.hSyncObject, create.FenceValueCPUVirtualAddress, 0),
    })
}

pub fn destroy_paging_queue(queue: Handle) -> Done {
    let mut destroy = sdk::D3DDDI_DESTROYPAGINGQUEUE { hPagingQueue: queue.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyPagingQueue(&mut destroy) })
}

/// Calls about GPU addresses; `None` for others.
pub fn of_addresses(call: &Call) -> Option<Done> {
    Some(match call {
        Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size } => {
            let mut reserve = sdk::D3DDDI_RESERVEGPUVIRTUALADDRESS {
                BaseAddress: *base,
                MinimumAddress: *minimum,
                MaximumAddress: *maximum,
                Size: *size,
                ..Default::default()
            };
            reserve.Anonymous1.hPagingQueue = owner.0;
            // SAFETY: see the module above.
            let status = unsafe { sdk::D3DKMTReserveGpuVirtualAddress(&mut reserve) };
            let address = reserve.VirtualAddress;
            Done::reply(status, || Reply::GpuVirtualAddress { address, paging_fence_value: 0 })
        }
        Call::MapGpuVirtualAddress {
            paging_queue,
            base,
            minimum,
            maximum,
            allocation,
            offset_pages,
            size_pages,
            protection,
        } => {
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
            let (address, paging_fence_value) = (map.VirtualAddress, map.PagingFenceValue);
            Done::reply(status, || Reply::GpuVirtualAddress { address, paging_fence_value })
        }
        Call::FreeGpuVirtualAddress { adapter, base, size } => {
            let free =
                sdk::D3DKMT_FREEGPUVIRTUALADDRESS { hAdapter: adapter.0, BaseAddress: *base, Size: *size };
            // SAFETY: see the module above.
            Done::status(unsafe { sdk::D3DKMTFreeGpuVirtualAddress(&free) })
        }
        _ => return None,
    })
}

/// Calls about priorities and errors of devices; `None` for others.
pub fn of_scheduling(call: &Call) -> Option<Done> {
    // The caller itself: GetCurrentProcess().
    let this_process = -1_isize as *mut core::ffi::c_void;
    Some(match call {
        Call::SetContextPriority { context, priority, in_process: false } => {
            let set = sdk::D3DKMT_SETCONTEXTSCHEDULINGPRIORITY { hContext: context.0, Priority: *priority };
            // SAFETY: see the module above.
            Done::status(unsafe { sdk::D3DKMTSetContextSchedulingPriority(&set) })
        }
        Call::SetContextPriority { context, priority, in_process: true } => {
            let (hContext, Priority) = (context.0, *priority);
            let set = sdk::D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext, Priority };
            // SAFETY: see the module above.
            Done::status(unsafe { sdk::D3DKMTSetContextInProcessSchedulingPriority(&set) })
        }
        Call::ContextPriority { context, in_process: false } => {
            let mut get =
                sdk::D3DKMT_GETCONTEXTSCHEDULINGPRIORITY { hContext: context.0, ..Default::default() };
            // SAFETY: see the module above.
            let status = unsafe { sdk::D3DKMTGetContextSchedulingPriority(&mut get) };
            Done::reply(status, || Reply::Priority(get.Priority))
        }
        Call::ContextPriority { context, in_process: true } => {
            let mut get = sdk::D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY {
                hContext: context.0,
                ..Default::default()
            };
            // SAFETY: see the module above.
            let status = unsafe { sdk::D3DKMTGetContextInProcessSchedulingPriority(&mut get) };
            Done::reply(status, || Reply::Priority(get.Priority))
        }
        Call::SetProcessPriorityClass { class } => {
            // SAFETY: see the module above.
            Done::status(unsafe { sdk::D3DKMTSetProcessSchedulingPriorityClass(this_process, *class as i32) })
        }
        Call::ProcessPriorityClass => {
            let mut class = 0;
            // SAFETY: see the module above.
            let status = unsafe { sdk::D3DKMTGetProcessSchedulingPriorityClass(this_process, &mut class) };
            Done::reply(status, || Reply::Priority(class))
        }
        Call::MarkDeviceAsError { device, reason } => {
            let mark = sdk::D3DKMT_MARKDEVICEASERROR { hDevice: device.0, Reason: *reason as i32 };
            // SAFETY: see the module above.
            Done::status(unsafe { sdk::D3DKMTMarkDeviceAsError(&mark) })
        }
        _ => return None,
    })
}

/// The one value of the older calls, for objects that fit their arrays; else C cannot say it.
pub fn wait_legacy(context: Handle, objects: &[Handle], fence_value: u64) -> Done {
    let mut wait = sdk::D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2 { hContext: context.0, ..Default::default() };
    wait.ObjectCount = objects.len() as u32;
    wait.Anonymous.Fence.FenceValue = fence_value;
    for (place, object) in wait.ObjectHandleArray.iter_mut().zip(objects) {
        *place = object.0;
    }
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTWaitForSynchronizationObject2(&wait) })
}

pub fn signal_legacy(contexts: &[Handle], objects: &[Handle], fence_value: u64, flags: SignalFlags) -> Done {
    let Some((first, others)) = contexts.split_first() else {
        return Done::nothing(NtStatus::INVALID_PARAMETER);
    };
    let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 { hContext: first.0, ..Default::default() };
    signal.ObjectCount = objects.len() as u32;
    signal.BroadcastContextCount = others.len() as u32;
    signal.Flags.Anonymous.Value = flags.bits();
    signal.Anonymous.Fence.FenceValue = fence_value;
    for (place, object) in signal.ObjectHandleArray.iter_mut().zip(objects) {
        *place = object.0;
    }
    for (place, context) in signal.BroadcastContext.iter_mut().zip(others) {
        *place = context.0;
    }
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSignalSynchronizationObject2(&signal) })
}
