//! Calls: one arm for each, both ways.

use d3dkmt::{
    Call, CreateContextFlags, DestroyAllocationFlags, EscapeFlags, Handle, HwQueueFlags, KeyedMutexFlags,
    RuntimeBuffer, SignalFlags, SyncObjectFlags, WaitFromCpuFlags,
};

use super::lists::{handles, handles_from_wire, handles_to_wire, raw, values_from_wire, values_to_wire};
use super::{ConvertError, allocation, event, luid_from, luid_to_wire, memory, sync, token};
use crate::channel::{self as wire, to_host};

/// The frame that makes a call; `request` 0 makes it one-way.
pub fn call_to_frame(request: u64, call: &Call) -> wire::ToHost {
    use to_host::Body;
    let body = match call {
        Call::EnumAdapters { capacity } => Body::EnumAdapters(wire::EnumAdapters { capacity: *capacity }),
        Call::OpenAdapterFromLuid { luid } => {
            Body::OpenAdapterFromLuid(wire::OpenAdapterFromLuid { luid: Some(luid_to_wire(*luid)) })
        }
        Call::CloseAdapter { adapter } => Body::CloseAdapter(adapter.0),
        Call::QueryAdapterInfo { adapter, kind, data } => Body::QueryAdapterInfo(wire::QueryAdapterInfo {
            adapter: adapter.0,
            kind: *kind,
            data: data.clone(),
        }),
        Call::CreateDevice { adapter, flags } => {
            Body::CreateDevice(wire::CreateDevice { adapter: adapter.0, flags: *flags })
        }
        Call::DestroyDevice { device } => Body::DestroyDevice(device.0),
        Call::GetDeviceState { device, state_type } => {
            Body::GetDeviceState(wire::GetDeviceState { device: device.0, state_type: *state_type })
        }
        Call::CreateContextVirtual {
            device,
            node_ordinal,
            engine_affinity,
            flags,
            client_hint,
            private_data,
        } => Body::CreateContextVirtual(wire::CreateContextVirtual {
            device: device.0,
            node_ordinal: *node_ordinal,
            engine_affinity: *engine_affinity,
            flags: flags.bits(),
            client_hint: *client_hint,
            private_data: private_data.clone(),
        }),
        Call::DestroyContext { context } => Body::DestroyContext(context.0),
        Call::CreateSynchronizationObject { device, info, legacy } => {
            Body::CreateSynchronizationObject(sync::create_to_wire(*device, info, *legacy))
        }
        Call::DestroySynchronizationObject { object } => Body::DestroySynchronizationObject(object.0),
        Call::SignalFromCpu { device, objects, values, flags } => {
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            let (device, flags) = (device.0, flags.bits());
            Body::SignalFromCpu(wire::SignalFromCpu {
                device,
                objects,
                values,
                flags,
                first_object,
                first_value,
            })
        }
        Call::WaitFromCpu { device, objects, values, flags, event } => {
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            let (device, flags, event) = (device.0, flags.bits(), event.0);
            Body::WaitFromCpu(wire::WaitFromCpu {
                device,
                objects,
                values,
                flags,
                event,
                first_object,
                first_value,
            })
        }
        Call::CancelWait { event } => Body::CancelWait(event.0),
        Call::SignalFromGpu { contexts, signal, flags } => {
            Body::SignalFromGpu(sync::signal_to_wire(contexts, signal, *flags))
        }
        Call::WaitFromGpu { context, objects, values } => {
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            let context = context.0;
            Body::WaitFromGpu(wire::WaitFromGpu { context, objects, values, first_object, first_value })
        }
        Call::SubmitCommand { contexts, commands, length, flags, private_data } => {
            let (first_context, contexts) = handles_to_wire(contexts);
            Body::SubmitCommand(wire::SubmitCommand {
                first_context,
                contexts,
                commands: *commands,
                length: *length,
                flags: *flags,
                private_data: private_data.clone(),
            })
        }
        Call::WaitFromGpuLegacy { context, objects, fence_value } => {
            let (first_object, objects) = handles_to_wire(objects);
            Body::WaitFromGpuLegacy(wire::WaitFromGpuLegacy {
                context: context.0,
                first_object,
                objects,
                fence_value: *fence_value,
            })
        }
        Call::OpenSynchronizationObject { shared_handle } => Body::OpenSynchronizationObject(shared_handle.0),
        Call::ShareObjects { objects, desired_access, name, token } => {
            Body::ShareObjects(wire::ShareObjects {
                objects: raw(objects),
                desired_access: *desired_access,
                name: name.clone(),
                token: token.0.to_vec(),
            })
        }
        Call::OpenSyncObject { device, token, flags, engine_affinity, legacy } => {
            Body::OpenSyncObject(wire::OpenSyncObject {
                device: device.0,
                token: token.0.to_vec(),
                flags: flags.bits(),
                engine_affinity: *engine_affinity,
                legacy: *legacy,
            })
        }
        Call::OpenNtHandleFromName { name, desired_access, token } => {
            Body::OpenNtHandleFromName(wire::OpenNtHandleFromName {
                name: name.clone(),
                desired_access: *desired_access,
                token: token.0.to_vec(),
            })
        }
        Call::CreateKeyedMutex { initial_value, private_data, flags } => {
            Body::CreateKeyedMutex(wire::CreateKeyedMutex {
                initial_value: *initial_value,
                private_data: private_data.clone(),
                flags: flags.bits(),
            })
        }
        Call::OpenKeyedMutex { shared_handle, buffer } => Body::OpenKeyedMutex(wire::OpenKeyedMutex {
            shared_handle: shared_handle.0,
            buffer: Some(buffer_to_wire(buffer)),
        }),
        Call::OpenKeyedMutexFromNtHandle { token, buffer } => {
            Body::OpenKeyedMutexFromNtHandle(wire::OpenKeyedMutexFromNtHandle {
                token: token.0.to_vec(),
                buffer: Some(buffer_to_wire(buffer)),
            })
        }
        Call::DestroyKeyedMutex { mutex } => Body::DestroyKeyedMutex(mutex.0),
        Call::AcquireKeyedMutex { mutex, key, timeout, event } => {
            Body::AcquireKeyedMutex(wire::AcquireKeyedMutex {
                mutex: mutex.0,
                key: *key,
                timeout_100ns: *timeout,
                event: event.0,
            })
        }
        Call::ReadKeyedMutex { mutex } => Body::ReadKeyedMutex(mutex.0),
        Call::ReleaseKeyedMutex { mutex, key, fence_value, private_data } => {
            Body::ReleaseKeyedMutex(wire::ReleaseKeyedMutex {
                mutex: mutex.0,
                key: *key,
                fence_value: *fence_value,
                private_data: private_data.clone(),
            })
        }
        Call::CreateAllocation { create } => Body::CreateAllocation(allocation::create_to_wire(create)),
        Call::DestroyAllocation { device, resource, allocations, flags } => {
            Body::DestroyAllocation(wire::DestroyAllocation {
                device: device.0,
                resource: resource.0,
                allocations: raw(allocations),
                flags: flags.bits(),
            })
        }
        Call::QueryResourceInfo { device, shared_handle } => {
            let (device, shared_handle) = (device.0, shared_handle.0);
            Body::QueryResourceInfo(wire::QueryResourceInfo { device, shared_handle })
        }
        Call::OpenResource { device, shared_handle, info } => Body::OpenResource(wire::OpenResource {
            device: device.0,
            shared_handle: shared_handle.0,
            info: Some(allocation::info_to_wire(info)),
        }),
        Call::QueryResourceInfoFromNtHandle { device, token } => {
            Body::QueryResourceInfoFromNtHandle(wire::QueryResourceInfoFromNtHandle {
                device: device.0,
                token: token.0.to_vec(),
            })
        }
        Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer } => {
            Body::OpenResourceFromNtHandle(wire::OpenResourceFromNtHandle {
                device: device.0,
                token: token.0.to_vec(),
                info: Some(allocation::info_to_wire(info)),
                mutex_buffer: Some(buffer_to_wire(mutex_buffer)),
            })
        }
        Call::Lock { device, allocation, flags } => {
            Body::Lock(wire::Lock { device: device.0, allocation: allocation.0, flags: *flags })
        }
        Call::Unlock { device, allocation } => {
            Body::Unlock(wire::Unlock { device: device.0, allocation: allocation.0 })
        }
        Call::SetAllocationPriority { device, resource, allocations, priorities } => {
            Body::SetAllocationPriority(wire::SetAllocationPriority {
                device: device.0,
                resource: resource.0,
                allocations: raw(allocations),
                priorities: priorities.clone(),
            })
        }
        Call::AllocationPriority { device, resource, allocations } => {
            let (device, resource) = (device.0, resource.0);
            Body::AllocationPriority(wire::AllocationPriority {
                device,
                resource,
                allocations: raw(allocations),
            })
        }
        Call::MakeResident { paging_queue, allocations, priorities, flags } => {
            Body::MakeResident(wire::MakeResident {
                paging_queue: paging_queue.0,
                allocations: raw(allocations),
                priorities: priorities.clone(),
                flags: *flags,
            })
        }
        Call::Evict { device, allocations, flags } => {
            Body::Evict(wire::Evict { device: device.0, allocations: raw(allocations), flags: *flags })
        }
        Call::QueryVideoMemoryInfo { adapter, segment_group, physical_adapter } => {
            Body::QueryVideoMemoryInfo(wire::QueryVideoMemoryInfo {
                adapter: adapter.0,
                segment_group: *segment_group,
                physical_adapter: *physical_adapter,
            })
        }
        Call::CreatePagingQueue { device, priority, physical_adapter } => {
            Body::CreatePagingQueue(wire::CreatePagingQueue {
                device: device.0,
                priority: *priority,
                physical_adapter: *physical_adapter,
            })
        }
        Call::DestroyPagingQueue { queue } => Body::DestroyPagingQueue(queue.0),
        Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size } => {
            Body::ReserveGpuVirtualAddress(wire::ReserveGpuVirtualAddress {
                owner: owner.0,
                base: *base,
                minimum: *minimum,
                maximum: *maximum,
                size: *size,
            })
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
        } => Body::MapGpuVirtualAddress(wire::MapGpuVirtualAddress {
            paging_queue: paging_queue.0,
            base: *base,
            minimum: *minimum,
            maximum: *maximum,
            allocation: allocation.0,
            offset_pages: *offset_pages,
            size_pages: *size_pages,
            protection: *protection,
        }),
        Call::FreeGpuVirtualAddress { adapter, base, size } => {
            let (base, size) = (*base, *size);
            Body::FreeGpuVirtualAddress(wire::FreeGpuVirtualAddress { adapter: adapter.0, base, size })
        }
        Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } => {
            Body::UpdateGpuVirtualAddress(wire::UpdateGpuVirtualAddress {
                device: device.0,
                context: context.0,
                fence: fence.0,
                fence_value: *fence_value,
                operations: operations.iter().map(memory::operation_to_wire).collect(),
                flags: *flags,
            })
        }
        Call::CreateHwQueue { context, flags, private_data } => Body::CreateHwQueue(wire::CreateHwQueue {
            context: context.0,
            flags: flags.bits(),
            private_data: private_data.clone(),
        }),
        Call::DestroyHwQueue { queue } => Body::DestroyHwQueue(queue.0),
        Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands, length, private_data } => {
            Body::SubmitCommandToHwQueue(wire::SubmitCommandToHwQueue {
                queue: queue.0,
                progress_fence_id: *progress_fence_id,
                commands: *commands,
                length: *length,
                private_data: private_data.clone(),
            })
        }
        Call::SubmitSignalToHwQueue { queues, objects, values, flags } => {
            let (first_queue, queues) = handles_to_wire(queues);
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            Body::SubmitSignalToHwQueue(wire::SubmitSignalToHwQueue {
                first_queue,
                queues,
                first_object,
                objects,
                first_value,
                values,
                flags: flags.bits(),
            })
        }
        Call::SubmitWaitToHwQueue { queue, objects, values } => {
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            let queue = queue.0;
            Body::SubmitWaitToHwQueue(wire::SubmitWaitToHwQueue {
                queue,
                objects,
                values,
                first_object,
                first_value,
            })
        }
        Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => {
            Body::CreateNativeFence(wire::CreateNativeFence {
                device: device.0,
                initial_value: *initial_value,
                native_type: *native_type,
                flags: flags.bits(),
                engine_affinity: *engine_affinity,
            })
        }
        Call::OpenNativeFence { device, token, flags, engine_affinity } => {
            Body::OpenNativeFence(wire::OpenNativeFence {
                device: device.0,
                token: token.0.to_vec(),
                flags: flags.bits(),
                engine_affinity: *engine_affinity,
            })
        }
        Call::CreateDoorbell { queue, rings } => {
            Body::CreateDoorbell(wire::CreateDoorbell { queue: queue.0, rings: raw(rings) })
        }
        Call::ConnectDoorbell { queue } => Body::ConnectDoorbell(queue.0),
        Call::DestroyDoorbell { queue } => Body::DestroyDoorbell(queue.0),
        Call::NotifyWorkSubmission { queue } => Body::NotifyWorkSubmission(queue.0),
        Call::SetContextPriority { context, priority, in_process } => {
            let (priority, in_process) = (*priority, *in_process);
            Body::SetContextPriority(wire::SetContextPriority { context: context.0, priority, in_process })
        }
        Call::ContextPriority { context, in_process } => {
            Body::ContextPriority(wire::ContextPriority { context: context.0, in_process: *in_process })
        }
        Call::SetProcessPriorityClass { class } => Body::SetProcessPriorityClass(*class),
        Call::ProcessPriorityClass => Body::ProcessPriorityClass(true),
        Call::MarkDeviceAsError { device, reason } => {
            Body::MarkDeviceAsError(wire::MarkDeviceAsError { device: device.0, reason: *reason })
        }
        Call::Escape { adapter, device, context, kind, flags, data } => Body::Escape(wire::Escape {
            adapter: adapter.0,
            device: device.0,
            context: context.0,
            kind: *kind,
            flags: flags.bits(),
            data: data.clone().into(),
        }),
        Call::IsFeatureEnabled { adapter, feature_id } => {
            Body::IsFeatureEnabled(wire::IsFeatureEnabled { adapter: adapter.0, feature_id: *feature_id })
        }
    };
    wire::ToHost { request, body: Some(body) }
}

/// The call that a frame makes. Hello is none: the stream's owner takes it before.
pub fn call_from_body(body: to_host::Body) -> Result<Call, ConvertError> {
    use to_host::Body;
    Ok(match body {
        Body::Hello(_) => return Err(ConvertError::Unexpected("a second Hello")),
        Body::Times(_) => return Err(ConvertError::Unexpected("times")),
        Body::Received(_) => return Err(ConvertError::Unexpected("a count of what was read")),
        Body::EnumAdapters(wire) => Call::EnumAdapters { capacity: wire.capacity },
        Body::OpenAdapterFromLuid(wire) => {
            Call::OpenAdapterFromLuid { luid: luid_from(wire.luid, "OpenAdapterFromLuid")? }
        }
        Body::CloseAdapter(adapter) => Call::CloseAdapter { adapter: Handle(adapter) },
        Body::QueryAdapterInfo(wire) => {
            Call::QueryAdapterInfo { adapter: Handle(wire.adapter), kind: wire.kind, data: wire.data }
        }
        Body::CreateDevice(wire) => Call::CreateDevice { adapter: Handle(wire.adapter), flags: wire.flags },
        Body::DestroyDevice(device) => Call::DestroyDevice { device: Handle(device) },
        Body::GetDeviceState(wire) => {
            Call::GetDeviceState { device: Handle(wire.device), state_type: wire.state_type }
        }
        Body::CreateContextVirtual(wire) => Call::CreateContextVirtual {
            device: Handle(wire.device),
            node_ordinal: wire.node_ordinal,
            engine_affinity: wire.engine_affinity,
            flags: CreateContextFlags::from_bits_retain(wire.flags),
            client_hint: wire.client_hint,
            private_data: wire.private_data,
        },
        Body::DestroyContext(context) => Call::DestroyContext { context: Handle(context) },
        Body::CreateSynchronizationObject(wire) => sync::create_from_wire(wire),
        Body::DestroySynchronizationObject(object) => {
            Call::DestroySynchronizationObject { object: Handle(object) }
        }
        Body::SignalFromCpu(wire) => Call::SignalFromCpu {
            device: Handle(wire.device),
            objects: handles_from_wire(wire.first_object, wire.objects),
            values: values_from_wire(wire.first_value, wire.values),
            flags: SignalFlags::from_bits_retain(wire.flags),
        },
        Body::WaitFromCpu(wire) => Call::WaitFromCpu {
            device: Handle(wire.device),
            objects: handles_from_wire(wire.first_object, wire.objects),
            values: values_from_wire(wire.first_value, wire.values),
            flags: WaitFromCpuFlags::from_bits_retain(wire.flags),
            event: event(wire.event, "WaitFromCpu")?,
        },
        Body::CancelWait(name) => Call::CancelWait { event: event(name, "CancelWait")? },
        Body::SignalFromGpu(wire) => sync::signal_from_wire(wire)?,
        Body::WaitFromGpu(wire) => Call::WaitFromGpu {
            context: Handle(wire.context),
            objects: handles_from_wire(wire.first_object, wire.objects),
            values: values_from_wire(wire.first_value, wire.values),
        },
        Body::SubmitCommand(wire) => Call::SubmitCommand {
            contexts: handles_from_wire(wire.first_context, wire.contexts),
            commands: wire.commands,
            length: wire.length,
            flags: wire.flags,
            private_data: wire.private_data,
        },
        Body::WaitFromGpuLegacy(wire) => Call::WaitFromGpuLegacy {
            context: Handle(wire.context),
            objects: handles_from_wire(wire.first_object, wire.objects),
            fence_value: wire.fence_value,
        },
        Body::OpenSynchronizationObject(shared_handle) => {
            Call::OpenSynchronizationObject { shared_handle: Handle(shared_handle) }
        }
        Body::ShareObjects(wire) => Call::ShareObjects {
            objects: handles(wire.objects),
            desired_access: wire.desired_access,
            name: wire.name,
            token: token(&wire.token, "ShareObjects")?,
        },
        Body::OpenSyncObject(wire) => Call::OpenSyncObject {
            device: Handle(wire.device),
            token: token(&wire.token, "OpenSyncObject")?,
            flags: SyncObjectFlags::from_bits_retain(wire.flags),
            engine_affinity: wire.engine_affinity,
            legacy: wire.legacy,
        },
        Body::OpenNtHandleFromName(wire) => Call::OpenNtHandleFromName {
            name: wire.name,
            desired_access: wire.desired_access,
            token: token(&wire.token, "OpenNtHandleFromName")?,
        },
        Body::CreateKeyedMutex(wire) => Call::CreateKeyedMutex {
            initial_value: wire.initial_value,
            private_data: wire.private_data,
            flags: KeyedMutexFlags::from_bits_retain(wire.flags),
        },
        Body::OpenKeyedMutex(wire) => Call::OpenKeyedMutex {
            shared_handle: Handle(wire.shared_handle),
            buffer: buffer_from_wire(wire.buffer, "OpenKeyedMutex")?,
        },
        Body::OpenKeyedMutexFromNtHandle(wire) => Call::OpenKeyedMutexFromNtHandle {
            token: token(&wire.token, "OpenKeyedMutexFromNtHandle")?,
            buffer: buffer_from_wire(wire.buffer, "OpenKeyedMutexFromNtHandle")?,
        },
        Body::DestroyKeyedMutex(mutex) => Call::DestroyKeyedMutex { mutex: Handle(mutex) },
        Body::AcquireKeyedMutex(wire) => Call::AcquireKeyedMutex {
            mutex: Handle(wire.mutex),
            key: wire.key,
            timeout: wire.timeout_100ns,
            event: event(wire.event, "AcquireKeyedMutex")?,
        },
        Body::ReadKeyedMutex(mutex) => Call::ReadKeyedMutex { mutex: Handle(mutex) },
        Body::ReleaseKeyedMutex(wire) => Call::ReleaseKeyedMutex {
            mutex: Handle(wire.mutex),
            key: wire.key,
            fence_value: wire.fence_value,
            private_data: wire.private_data,
        },
        Body::CreateAllocation(wire) => allocation::create_from_wire(wire),
        Body::DestroyAllocation(wire) => Call::DestroyAllocation {
            device: Handle(wire.device),
            resource: Handle(wire.resource),
            allocations: handles(wire.allocations),
            flags: DestroyAllocationFlags::from_bits_retain(wire.flags),
        },
        Body::QueryResourceInfo(wire) => {
            Call::QueryResourceInfo { device: Handle(wire.device), shared_handle: Handle(wire.shared_handle) }
        }
        Body::OpenResource(wire) => allocation::open_from_wire(&wire)?,
        Body::QueryResourceInfoFromNtHandle(wire) => Call::QueryResourceInfoFromNtHandle {
            device: Handle(wire.device),
            token: token(&wire.token, "QueryResourceInfoFromNtHandle")?,
        },
        Body::OpenResourceFromNtHandle(wire) => {
            const MESSAGE: &str = "OpenResourceFromNtHandle";
            let missing = ConvertError::Missing { message: MESSAGE, field: "info" };
            Call::OpenResourceFromNtHandle {
                device: Handle(wire.device),
                token: token(&wire.token, MESSAGE)?,
                info: allocation::info_from_wire(&wire.info.ok_or(missing)?),
                mutex_buffer: buffer_from_wire(wire.mutex_buffer, MESSAGE)?,
            }
        }
        Body::Lock(wire::Lock { device, allocation, flags }) => {
            Call::Lock { device: Handle(device), allocation: Handle(allocation), flags }
        }
        Body::Unlock(wire::Unlock { device, allocation }) => {
            Call::Unlock { device: Handle(device), allocation: Handle(allocation) }
        }
        Body::SetAllocationPriority(wire) => Call::SetAllocationPriority {
            device: Handle(wire.device),
            resource: Handle(wire.resource),
            allocations: handles(wire.allocations),
            priorities: wire.priorities,
        },
        Body::AllocationPriority(wire) => Call::AllocationPriority {
            device: Handle(wire.device),
            resource: Handle(wire.resource),
            allocations: handles(wire.allocations),
        },
        Body::MakeResident(wire) => Call::MakeResident {
            paging_queue: Handle(wire.paging_queue),
            allocations: handles(wire.allocations),
            priorities: wire.priorities,
            flags: wire.flags,
        },
        Body::Evict(wire) => Call::Evict {
            device: Handle(wire.device),
            allocations: handles(wire.allocations),
            flags: wire.flags,
        },
        Body::QueryVideoMemoryInfo(wire) => Call::QueryVideoMemoryInfo {
            adapter: Handle(wire.adapter),
            segment_group: wire.segment_group,
            physical_adapter: wire.physical_adapter,
        },
        Body::CreatePagingQueue(wire) => Call::CreatePagingQueue {
            device: Handle(wire.device),
            priority: wire.priority,
            physical_adapter: wire.physical_adapter,
        },
        Body::DestroyPagingQueue(queue) => Call::DestroyPagingQueue { queue: Handle(queue) },
        Body::ReserveGpuVirtualAddress(wire) => Call::ReserveGpuVirtualAddress {
            owner: Handle(wire.owner),
            base: wire.base,
            minimum: wire.minimum,
            maximum: wire.maximum,
            size: wire.size,
        },
        Body::MapGpuVirtualAddress(wire) => Call::MapGpuVirtualAddress {
            paging_queue: Handle(wire.paging_queue),
            base: wire.base,
            minimum: wire.minimum,
            maximum: wire.maximum,
            allocation: Handle(wire.allocation),
            offset_pages: wire.offset_pages,
            size_pages: wire.size_pages,
            protection: wire.protection,
        },
        Body::FreeGpuVirtualAddress(wire) => {
            Call::FreeGpuVirtualAddress { adapter: Handle(wire.adapter), base: wire.base, size: wire.size }
        }
        Body::UpdateGpuVirtualAddress(wire) => Call::UpdateGpuVirtualAddress {
            device: Handle(wire.device),
            context: Handle(wire.context),
            fence: Handle(wire.fence),
            fence_value: wire.fence_value,
            operations: wire.operations.into_iter().map(memory::operation_from_wire).collect(),
            flags: wire.flags,
        },
        Body::CreateHwQueue(wire) => Call::CreateHwQueue {
            context: Handle(wire.context),
            flags: HwQueueFlags::from_bits_retain(wire.flags),
            private_data: wire.private_data,
        },
        Body::DestroyHwQueue(queue) => Call::DestroyHwQueue { queue: Handle(queue) },
        Body::SubmitCommandToHwQueue(wire) => Call::SubmitCommandToHwQueue {
            queue: Handle(wire.queue),
            progress_fence_id: wire.progress_fence_id,
            commands: wire.commands,
            length: wire.length,
            private_data: wire.private_data,
        },
        Body::SubmitSignalToHwQueue(wire) => Call::SubmitSignalToHwQueue {
            queues: handles_from_wire(wire.first_queue, wire.queues),
            objects: handles_from_wire(wire.first_object, wire.objects),
            values: values_from_wire(wire.first_value, wire.values),
            flags: SignalFlags::from_bits_retain(wire.flags),
        },
        Body::SubmitWaitToHwQueue(wire) => Call::SubmitWaitToHwQueue {
            queue: Handle(wire.queue),
            objects: handles_from_wire(wire.first_object, wire.objects),
            values: values_from_wire(wire.first_value, wire.values),
        },
        Body::CreateNativeFence(wire) => Call::CreateNativeFence {
            device: Handle(wire.device),
            initial_value: wire.initial_value,
            native_type: wire.native_type,
            flags: SyncObjectFlags::from_bits_retain(wire.flags),
            engine_affinity: wire.engine_affinity,
        },
        Body::OpenNativeFence(wire) => Call::OpenNativeFence {
            device: Handle(wire.device),
            token: token(&wire.token, "OpenNativeFence")?,
            flags: SyncObjectFlags::from_bits_retain(wire.flags),
            engine_affinity: wire.engine_affinity,
        },
        Body::CreateDoorbell(wire) => {
            Call::CreateDoorbell { queue: Handle(wire.queue), rings: handles(wire.rings) }
        }
        Body::ConnectDoorbell(queue) => Call::ConnectDoorbell { queue: Handle(queue) },
        Body::DestroyDoorbell(queue) => Call::DestroyDoorbell { queue: Handle(queue) },
        Body::NotifyWorkSubmission(queue) => Call::NotifyWorkSubmission { queue: Handle(queue) },
        Body::SetContextPriority(wire) => Call::SetContextPriority {
            context: Handle(wire.context),
            priority: wire.priority,
            in_process: wire.in_process,
        },
        Body::ContextPriority(wire) => {
            Call::ContextPriority { context: Handle(wire.context), in_process: wire.in_process }
        }
        Body::SetProcessPriorityClass(class) => Call::SetProcessPriorityClass { class },
        Body::ProcessPriorityClass(_) => Call::ProcessPriorityClass,
        Body::MarkDeviceAsError(wire) => {
            Call::MarkDeviceAsError { device: Handle(wire.device), reason: wire.reason }
        }
        Body::Escape(wire) => Call::Escape {
            adapter: Handle(wire.adapter),
            device: Handle(wire.device),
            context: Handle(wire.context),
            kind: wire.kind,
            flags: EscapeFlags::from_bits_retain(wire.flags),
            data: wire.data.into(),
        },
        Body::IsFeatureEnabled(wire) => {
            Call::IsFeatureEnabled { adapter: Handle(wire.adapter), feature_id: wire.feature_id }
        }
    })
}

/// The same of a call that is not needed any more: the data of an escape are not copied.
pub fn call_into_frame(request: u64, call: Call) -> wire::ToHost {
    let Call::Escape { adapter, device, context, kind, flags, data } = call else {
        return call_to_frame(request, &call);
    };
    let (adapter, device, context, flags) = (adapter.0, device.0, context.0, flags.bits());
    let escape = wire::Escape { adapter, device, context, kind, flags, data: data.into() };
    wire::ToHost { request, body: Some(to_host::Body::Escape(escape)) }
}

fn buffer_to_wire(buffer: &RuntimeBuffer) -> wire::RuntimeBuffer {
    wire::RuntimeBuffer { size: buffer.size, present: buffer.present, data: buffer.data.clone() }
}

fn buffer_from_wire(
    buffer: Option<wire::RuntimeBuffer>,
    message: &'static str,
) -> Result<RuntimeBuffer, ConvertError> {
    let buffer = buffer.ok_or(ConvertError::Missing { message, field: "buffer" })?;
    Ok(RuntimeBuffer { size: buffer.size, present: buffer.present, data: buffer.data })
}
