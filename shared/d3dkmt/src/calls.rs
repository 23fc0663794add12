//! Calls in their usual form: on one object, without options. Where a call needs another field, build its variant of
//! [`Call`].

use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use crate::{
    Call, CreateContextFlags, EscapeFlags, EventId, GpuSignal, Handle, Handles, HwQueueFlags, ShareToken,
    SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, Values, WaitFromCpuFlags, access, escape,
};

/// `D3DKMTCreateContextVirtual` on the first physical adapter.
pub fn create_context(device: Handle, node_ordinal: u32, flags: CreateContextFlags) -> Call {
    Call::CreateContextVirtual {
        device,
        node_ordinal,
        engine_affinity: 0,
        flags,
        client_hint: 0,
        private_data: Vec::new(),
    }
}

/// `D3DKMTCreateHwQueue`.
pub fn create_hw_queue(context: Handle, flags: HwQueueFlags) -> Call {
    Call::CreateHwQueue { context, flags, private_data: Vec::new() }
}

/// `D3DKMTCreatePagingQueue` of normal priority.
pub fn create_paging_queue(device: Handle) -> Call {
    Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 }
}

/// `D3DKMTCreateSynchronizationObject2`.
pub fn create_object(device: Handle, info: SyncObjectInfo) -> Call {
    Call::CreateSynchronizationObject { device, info, legacy: false }
}

/// `D3DKMTCreateSynchronizationObject2` of a monitored fence.
pub fn create_fence(device: Handle, initial_value: u64, flags: SyncObjectFlags) -> Call {
    let object_type = SyncObjectType::MONITORED_FENCE;
    create_object(device, SyncObjectInfo { object_type, flags, initial_value, ..SyncObjectInfo::default() })
}

/// `D3DKMTCreateNativeFence` with the value 0.
pub fn create_native_fence(device: Handle, flags: SyncObjectFlags) -> Call {
    Call::CreateNativeFence { device, initial_value: 0, native_type: 0, flags, engine_affinity: 0 }
}

/// `D3DKMTSubmitCommand` of a buffer that is all in the private data, as [`isa::encode`](crate::isa::encode) makes it.
pub fn submit(context: Handle, private_data: Vec<u8>) -> Call {
    let contexts = Handles::from_slice(&[context]);
    Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data }
}

/// `D3DKMTSubmitCommandToHwQueue`, as [`submit`].
pub fn submit_to_hw_queue(queue: Handle, progress_fence_id: u64, private_data: Vec<u8>) -> Call {
    Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands: 0, length: 0, private_data }
}

/// `D3DKMTSignalSynchronizationObjectFromCpu`.
pub fn signal(device: Handle, object: Handle, value: u64) -> Call {
    let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
    Call::SignalFromCpu { device, objects, values, flags: SignalFlags::empty() }
}

/// `D3DKMTWaitForSynchronizationObjectFromCpu`.
pub fn wait(device: Handle, object: Handle, value: u64, event: EventId) -> Call {
    let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
    Call::WaitFromCpu { device, objects, values, flags: WaitFromCpuFlags::empty(), event }
}

/// `D3DKMTSignalSynchronizationObjectFromGpu2` of a monitored fence.
pub fn gpu_signal(context: Handle, object: Handle, value: u64) -> Call {
    let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
    let (contexts, signal) = (Handles::from_slice(&[context]), GpuSignal::Monitored { objects, values });
    Call::SignalFromGpu { contexts, signal, flags: SignalFlags::empty() }
}

/// `D3DKMTWaitForSynchronizationObjectFromGpu`.
pub fn gpu_wait(context: Handle, object: Handle, value: u64) -> Call {
    let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
    Call::WaitFromGpu { context, objects, values }
}

/// `D3DKMTWaitForSynchronizationObject2` for mutexes and semaphores.
pub fn acquire(context: Handle, objects: &[Handle]) -> Call {
    Call::WaitFromGpuLegacy { context, objects: objects.into(), fence_value: 0 }
}

/// `D3DKMTSignalSynchronizationObject2` of mutexes and semaphores.
pub fn release(context: Handle, objects: &[Handle]) -> Call {
    let signal = GpuSignal::Legacy { objects: objects.into(), fence_value: 0 };
    Call::SignalFromGpu { contexts: Handles::from_slice(&[context]), signal, flags: SignalFlags::empty() }
}

/// `D3DKMTShareObjects` of one synchronization object, with every right.
pub fn share(object: Handle, token: ShareToken, name: Option<&str>) -> Call {
    let (desired_access, name) = (access::SYNC_OBJECT_ALL_ACCESS, name.map(|name| name.to_string()));
    Call::ShareObjects { objects: vec![object], desired_access, name, token }
}

/// `D3DKMTOpenSyncObjectFromNtHandle2`.
pub fn open(device: Handle, token: ShareToken) -> Call {
    Call::OpenSyncObject { device, token, flags: SyncObjectFlags::empty(), engine_affinity: 0, legacy: false }
}

/// `D3DKMTMapGpuVirtualAddress` from the start of the allocation; anywhere if `base` is 0. `size_pages` has the unit
/// 4 KiB, `protection` the bits of [`protection`](crate::gpu_va::protection).
pub fn map(paging_queue: Handle, base: u64, allocation: Handle, size_pages: u64, protection: u64) -> Call {
    Call::MapGpuVirtualAddress {
        paging_queue,
        base,
        minimum: 0,
        maximum: 0,
        allocation,
        offset_pages: 0,
        size_pages,
        protection,
    }
}

/// `D3DKMTEscape` to the driver; without a device if that is [`Handle::NULL`].
pub fn escape(adapter: Handle, device: Handle, data: Vec<u8>) -> Call {
    let (kind, context, flags) = (escape::kind::DRIVER_PRIVATE, Handle::NULL, EscapeFlags::empty());
    Call::Escape { adapter, device, context, kind, flags, data }
}
