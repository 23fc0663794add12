//! Maps each call to the method that executes it.
//!
//! The lists below name each kind of call once, by topic. A kind that is in no list is a compile error.

use alloc::vec;

use d3dkmt::{Call, Reply, SyncObjectFlags, calls_by_topic};

use crate::ProcessId;
use crate::effects::Effects;
use crate::error::CallResult;
use crate::escape::EscapeHandles;
use crate::kernel::Kernel;
use crate::native::NewFence;
use crate::sync::legacy::Form;
use crate::sync::waits::CpuWait;
use crate::vidmm::address::GpuVaUpdate;
use crate::vidmm::offer::Listed;
use crate::vidmm::vaspace::AddressBounds;

impl Kernel {
    calls_by_topic! {
        pub(crate) fn dispatch(&mut self, process: ProcessId, call: Call, effects: &mut Effects) -> CallResult,
            by self.(process, call, effects) on call;

        of_adapters_and_devices {
            EnumAdapters { capacity } => self.enum_adapters(process, capacity),
            OpenAdapterFromLuid { luid } => self.open_adapter_from_luid(process, luid),
            WatchAdapters { event } => self.watch_adapters(process, event),
            CloseAdapter { adapter } => self.close_adapter(process, adapter, effects),
            QueryAdapterInfo { adapter, kind, data } => self.query_adapter_info(process, adapter, kind, data),
            CreateDevice { adapter, flags } => self.create_device(process, adapter, flags, effects),
            DestroyDevice { device } => self.destroy_device(process, device, effects),
            GetDeviceState { device, state_type } => self.device_state(process, device, state_type),
            Escape { adapter, device, context, kind, flags, data } => {
                let handles = EscapeHandles { adapter, device, context };
                self.escape(process, handles, kind, flags, data, effects)
            },
            QueryStatistics { luid, kind, query } => self.statistics(process, luid, kind, query),
            QueryClockCalibration { adapter, node_ordinal, physical_adapter } =>
                self.clock_calibration(process, adapter, node_ordinal, physical_adapter),
            FlushHeapTransitions { adapter } => self.require_adapter(process, adapter),
            SetStablePowerState { adapter, .. } => self.require_adapter(process, adapter),
            IsFeatureEnabled { adapter, feature_id } => self.is_feature_enabled(process, adapter, feature_id),
            MarkDeviceAsError { device, reason } => self.mark_device_as_error(process, device, reason, effects),
        }

        of_contexts {
            CreateContextVirtual { device, node_ordinal, engine_affinity, flags, .. } =>
                self.create_context(process, device, node_ordinal, engine_affinity, flags),
            DestroyContext { context } => self.destroy_context(process, context, effects),
            SubmitCommand { contexts, private_data, flags, .. } =>
                self.submit_command(process, &contexts, private_data, flags, effects),
            SignalFromGpu { contexts, signal, flags } =>
                self.signal_from_gpu(process, &contexts, &signal, flags, effects).map(|()| Reply::None),
            WaitFromGpu { context, objects, values } =>
                self.wait_from_gpu(process, context, &objects, &values, Form::ValueArray, effects),
            WaitFromGpuLegacy { context, objects, fence_value } => {
                let values = vec![fence_value; objects.len()];
                self.wait_from_gpu(process, context, &objects, &values, Form::OneValue, effects)
            },
            SetContextPriority { context, priority, in_process } =>
                self.set_context_priority(process, context, priority, in_process),
            ContextPriority { context, in_process } => self.context_priority(process, context, in_process),
            SetProcessPriorityClass { class } => self.set_process_priority_class(process, class, effects),
            ProcessPriorityClass {} => self.process_priority_class(process),
        }

        of_sync_objects {
            CreateSynchronizationObject { device, info, legacy } =>
                self.create_sync_object(process, device, &info, legacy, effects),
            DestroySynchronizationObject { object } => {
                self.require_own_fence(process, object)?;
                self.destroy_sync_object(process, object, effects)
            },
            SignalFromCpu { device, objects, values, flags } =>
                self.signal_from_cpu(process, device, &objects, &values, flags, effects).map(|()| Reply::None),
            WaitFromCpu { device, objects, values, flags, event } =>
                self.wait_from_cpu(process, device, &objects, &values, CpuWait { flags, event }, effects),
            CancelWait { event } => self.cancel_wait(process, event),
            CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => {
                let new = NewFence { initial_value, native_type, flags, engine_affinity };
                self.create_native_fence(process, device, new, effects)
            },
        }

        of_sharing {
            ShareObjects { objects, desired_access, name, token } =>
                self.share_objects(process, &objects, desired_access, name.as_deref(), token),
            OpenSyncObject { device, token, flags, engine_affinity, legacy } => match legacy {
                true => self.open_sync_object(process, None, token, SyncObjectFlags::empty(), 0, effects),
                false => self.open_sync_object(process, Some(device), token, flags, engine_affinity, effects),
            },
            OpenNativeFence { device, token, flags, engine_affinity } =>
                self.open_native_fence(process, device, token, flags, engine_affinity, effects),
            OpenSynchronizationObject { shared_handle } => self.open_by_global(process, shared_handle, effects),
            OpenNtHandleFromName { name, desired_access, token, sync_object } =>
                self.open_nt_handle_from_name(process, &name, desired_access, token, sync_object),
            CreateSyncFile { device, fence, fence_value, token } =>
                self.create_sync_file(process, device, fence, fence_value, token, effects),
            WaitSyncFile { context, token } => self.wait_sync_file(process, context, token, effects),
            OpenSyncFile { device, token } => self.open_sync_file(process, device, token, effects),
        }

        of_keyed_mutexes {
            CreateKeyedMutex { initial_value, private_data, flags } =>
                self.create_keyed_mutex(process, initial_value, private_data, flags),
            OpenKeyedMutex { shared_handle, buffer } => self.open_keyed_mutex(process, shared_handle, buffer),
            OpenKeyedMutexFromNtHandle { token, buffer } =>
                self.open_keyed_mutex_by_token(process, token, buffer),
            DestroyKeyedMutex { mutex } => self.destroy_keyed_mutex(process, mutex, effects),
            AcquireKeyedMutex { mutex, key, timeout, event } =>
                self.acquire_keyed_mutex(process, mutex, key, timeout, event),
            ReadKeyedMutex { mutex } => self.read_keyed_mutex(process, mutex),
            ReleaseKeyedMutex { mutex, key, fence_value, private_data } =>
                self.release_keyed_mutex(process, mutex, key, fence_value, private_data, effects),
        }

        of_allocations {
            CreateAllocation { create } => self.create_allocation(process, *create, effects),
            DestroyAllocation { device, resource, allocations, flags } =>
                self.destroy_allocation(process, device, resource, &allocations, flags, effects),
            QueryResourceInfo { device, shared_handle } =>
                self.query_resource_info(process, device, shared_handle),
            OpenResource { device, shared_handle, info } =>
                self.open_resource(process, device, shared_handle, info, effects),
            QueryResourceInfoFromNtHandle { device, token } =>
                self.query_resource_info_by_token(process, device, token),
            SharedResourceAdapter { shared_handle } => self.adapter_of_global(process, shared_handle),
            SharedResourceAdapterFromNtHandle { token } => self.adapter_of_token(process, token),
            OpenResourceFromNtHandle { device, token, info, mutex_buffer } =>
                self.open_resource_by_token(process, device, token, info, mutex_buffer, effects),
            Lock { device, allocation, flags } => self.lock(process, device, allocation, flags),
            Unlock { device, allocation } => self.unlock(process, device, allocation),
            SetAllocationPriority { device, resource, allocations, priorities } =>
                self.set_allocation_priority(process, device, resource, &allocations, &priorities),
            AllocationPriority { device, resource, allocations } =>
                self.allocation_priority(process, device, resource, &allocations),
            MakeResident { paging_queue, allocations, priorities: _, flags } =>
                self.make_resident(process, paging_queue, allocations, flags, effects),
            Evict { device, allocations, flags } => self.evict(process, device, allocations, flags, effects),
            QueryVideoMemoryInfo { adapter, segment_group, physical_adapter } =>
                self.video_memory_info(process, adapter, segment_group, physical_adapter),
            OfferAllocations { device, allocations, resources, priority, flags } => {
                let listed = Listed { list: &allocations, resources };
                self.offer_allocations(process, device, listed, priority, flags, effects)
            },
            ReclaimAllocations { device, allocations, resources } =>
                self.reclaim_allocations(process, device, Listed { list: &allocations, resources }, effects),
            ReclaimAllocations2 { paging_queue, allocations, resources } =>
                self.reclaim_allocations2(process, paging_queue, Listed { list: &allocations, resources }, effects),
            ChangeVideoMemoryReservation { adapter, segment_group, reservation, physical_adapter } =>
                self.reserve_video_memory(process, adapter, segment_group, reservation, physical_adapter),
            QueryAllocationResidency { device, resource, allocations } =>
                self.allocation_residency(process, device, resource, &allocations),
            InvalidateCache { device, allocation, offset, length } =>
                self.invalidate_cache(process, device, allocation, offset, length),
        }

        of_paging {
            CreatePagingQueue { device, priority, physical_adapter } =>
                self.create_paging_queue(process, device, priority, physical_adapter, effects),
            DestroyPagingQueue { queue } => self.destroy_paging_queue(process, queue, effects),
            ReserveGpuVirtualAddress { owner, base, minimum, maximum, size } => {
                let bounds = AddressBounds { base, minimum, maximum };
                self.reserve_gpu_virtual_address(process, owner, bounds, size)
            },
            MapGpuVirtualAddress {
                paging_queue, base, minimum, maximum, allocation, offset_pages, size_pages, protection,
            } => {
                let bounds = AddressBounds { base, minimum, maximum };
                let pages = (allocation, offset_pages, size_pages);
                self.map_gpu_virtual_address(process, paging_queue, bounds, pages, protection)
            },
            FreeGpuVirtualAddress { adapter, base, size } =>
                self.free_gpu_virtual_address(process, adapter, base, size),
            UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } =>
                self.update_gpu_virtual_address(process, GpuVaUpdate { device, context, fence, fence_value, operations, flags }),
        }

        of_hw_queues {
            CreateHwQueue { context, flags, .. } => self.create_hw_queue(process, context, flags, effects),
            DestroyHwQueue { queue } => self.destroy_hw_queue(process, queue, effects),
            SubmitCommandToHwQueue { queue, progress_fence_id, private_data, .. } =>
                self.submit_to_hw_queue(process, queue, progress_fence_id, private_data, effects),
            SubmitSignalToHwQueue { queues, objects, values, flags } =>
                self.signal_hw_queues(process, &queues, &objects, &values, flags, effects),
            SubmitWaitToHwQueue { queue, objects, values } =>
                self.wait_in_hw_queue(process, queue, &objects, &values, effects),
            CreateDoorbell { queue, rings } => self.create_doorbell(process, queue, &rings, effects),
            ConnectDoorbell { queue } => self.connect_doorbell(process, queue, effects),
            DestroyDoorbell { queue } => self.destroy_doorbell(process, queue, effects),
            NotifyWorkSubmission { queue } => self.notify_work_submission(process, queue, effects),
        }
    }
}
