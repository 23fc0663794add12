//! Size, alignment and every offset of the C ABI on x86-64, asserted at compile time (reference
//! abi.md sections 2 to 10).

use std::mem::offset_of;

use super::types;

macro_rules! layout {
    ($name:ident $size:literal / $align:literal: $($field:ident $(. $inner:ident)? $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<types::$name>() == $size && align_of::<types::$name>() == $align);
            $(assert!(offset_of!(types::$name, $field $(. $inner)?) == $offset);)+
        };
    };
}

layout!(AdapterInfo 20 / 4: adapter 0, luid_low 4, luid_high 8, sources 12, precise_present_regions_preferred 16);
layout!(EnumAdapters2 16 / 8: count 0, adapters 8);
layout!(EnumAdapters3 24 / 8: filter 0, count 8, adapters 16);
layout!(OpenAdapterFromLuid 12 / 4: luid_low 0, luid_high 4, adapter 8);
layout!(OpenAdapterFromGdiDisplayName 144 / 4: device_name 0, adapter 128, luid_low 132, luid_high 136, source 140);
layout!(OpenAdapterFromDeviceName 24 / 8: device_name 0, adapter 8, luid_low 12, luid_high 16);
layout!(OpenAdapterFromHdc 24 / 8: hdc 0, adapter 8, luid_low 12, luid_high 16, source 20);
layout!(Escape 32 / 8: adapter 0, device 4, kind 8, flags 12, private_data 16, private_data_size 24, context 28);
layout!(IsFeatureEnabled 12 / 4: adapter 0, feature_id 4, version 8, value 10);
layout!(OneHandle 4 / 4: handle 0);
layout!(QueryAdapterInfo 24 / 8: adapter 0, kind 4, private_data 8, private_data_size 16);
layout!(CreateDevice 64 / 8: adapter 0, flags 8, device 12, command_buffer 16, command_buffer_size 24,
    allocation_list 32, allocation_list_size 40, patch_location_list 48, patch_location_list_size 56);
layout!(GetDeviceState 56 / 8: device 0, state_type 4, state 8);
layout!(CreateContextVirtual 40 / 8: device 0, node_ordinal 4, engine_affinity 8, flags 12, private_data 16,
    private_data_size 24, client_hint 28, context 32);
layout!(SyncObjectInfo1 68 / 4: object_type 0, words 4);
layout!(CreateSynchronizationObject 76 / 4: device 0, info 4, object 72);
layout!(SyncObjectUnion 64 / 8: first 0, cpu_address 8, gpu_address 16, engine_affinity 24, padding 28);
layout!(SyncObjectInfo2 80 / 8: object_type 0, flags 4, union 8, union.cpu_address 16, union.gpu_address 24,
    union.engine_affinity 32, shared_handle 72);
layout!(CreateSynchronizationObject2 96 / 8: device 0, info 8, object 88);
layout!(OpenSyncObjectFromNtHandle2 88 / 8: nt_handle 0, device 8, flags 12, object 16, cpu_address 24,
    gpu_address 32, engine_affinity 40);
layout!(SignalFromCpu 32 / 8: device 0, object_count 4, objects 8, values 16, flags 24);
layout!(WaitFromCpu 40 / 8: device 0, object_count 4, objects 8, values 16, async_event 24, flags 32);
layout!(FromGpu 80 / 8: context 0, object_count 4, objects 8, values 16);
layout!(SignalFromGpu2 96 / 8: object_count 0, objects 8, flags 16, context_count 20, contexts 24, values 32);
layout!(SubmitCommand 384 / 8: commands 0, command_length 8, flags 12, present_history_token 16,
    context_count 24, contexts 28, private_data 288, private_data_size 296, primary_count 300,
    written_primaries 304, history_buffer_count 368, history_buffers 376);

layout!(OpenSynchronizationObject 72 / 8: shared_handle 0, object 4, reserved 8);
layout!(WaitForSynchronizationObject 136 / 4: context 0, object_count 4, objects 8);
layout!(WaitForSynchronizationObject2 200 / 8: context 0, object_count 4, objects 8, fence_value 136);
layout!(SignalSynchronizationObject 140 / 4: context 0, object_count 4, objects 8, flags 136);
layout!(SignalSynchronizationObject2 464 / 8: context 0, object_count 4, objects 8, flags 136, context_count 140,
    contexts 144, value 400);

layout!(OpenSyncObjectFromNtHandle 16 / 8: nt_handle 0, object 8);
layout!(OpenNtHandleFromName 24 / 8: desired_access 0, attributes 8, nt_handle 16);
layout!(ObjectAttributes 48 / 8: length 0, root_directory 8, object_name 16, attributes 24,
    security_descriptor 32, security_quality_of_service 40);
layout!(UnicodeString 16 / 8: length 0, maximum_length 2, buffer 8);
layout!(CreateSyncFile 24 / 8: device 0, fence 4, fence_value 8, sync_file 16);
layout!(WaitSyncFile 16 / 8: sync_file 0, context 8, reserved 12);
layout!(OpenSyncObjectFromSyncFile 40 / 8: sync_file 0, device 8, object 12, fence_value 16, cpu_address 24,
    gpu_address 32);

layout!(CreateKeyedMutex 16 / 8: initial_value 0, shared_handle 8, mutex 12);
layout!(CreateKeyedMutex2 32 / 8: initial_value 0, shared_handle 8, mutex 12, data 16, data_size 24, flags 28);
layout!(OpenKeyedMutex 8 / 4: shared_handle 0, mutex 4);
layout!(OpenKeyedMutex2 24 / 8: shared_handle 0, mutex 4, data 8, data_size 16);
layout!(OpenKeyedMutexFromNtHandle 32 / 8: nt_handle 0, mutex 8, data 16, data_size 24);
layout!(AcquireKeyedMutex 32 / 8: mutex 0, key 8, timeout 16, fence_value 24);
layout!(AcquireKeyedMutex2 48 / 8: mutex 0, key 8, timeout 16, fence_value 24, data 32, data_size 40);
layout!(ReleaseKeyedMutex 24 / 8: mutex 0, key 8, fence_value 16);
layout!(ReleaseKeyedMutex2 40 / 8: mutex 0, key 8, fence_value 16, data 24, data_size 32);

layout!(CreateAllocation 72 / 8: device 0, resource 4, shared_handle 8, runtime_data 16, runtime_data_size 24,
    private_data 32, private_data_size 40, count 44, allocations 48, flags 56, runtime_resource 64);
layout!(StandardAllocation 24 / 8: kind 0, size 8, flags 16);
layout!(AllocationInfo 40 / 8: allocation 0, system_memory 8, private_data 16, private_data_size 24,
    vidpn_source 28, flags 32);
layout!(AllocationInfo2 96 / 8: info 0, gpu_address 40, priority 48, reserved 56);
layout!(DestroyAllocation 24 / 8: device 0, resource 4, allocations 8, count 16);
layout!(DestroyAllocation2 24 / 8: device 0, resource 4, allocations 8, count 16, flags 20);
layout!(QueryResourceInfo 32 / 8: device 0, shared_handle 4, runtime_data 8, runtime_data_size 16,
    total_private_data_size 20, private_data_size 24, count 28);
layout!(OpenResource 72 / 8: device 0, shared_handle 4, count 8, allocations 16, runtime_data 24,
    runtime_data_size 32, private_data 40, private_data_size 48, total_private_data 56,
    total_private_data_size 64, resource 68);
layout!(QueryResourceInfoFromNtHandle 40 / 8: device 0, nt_handle 8, runtime_data 16, runtime_data_size 24,
    total_private_data_size 28, private_data_size 32, count 36);
layout!(OpenResourceFromNtHandle 104 / 8: device 0, nt_handle 8, count 16, allocations 24, runtime_data_size 32,
    runtime_data 40, private_data_size 48, private_data 56, total_private_data_size 64, total_private_data 72,
    resource 80, keyed_mutex 84, mutex_data 88, mutex_data_size 96, sync_object 100);
layout!(OpenAllocationInfo 24 / 8: allocation 0, private_data 8, private_data_size 16);
layout!(OpenAllocationInfo2 80 / 8: allocation 0, private_data 8, private_data_size 16, gpu_address 24,
    reserved 32);

layout!(CreatePagingQueue 32 / 8: device 0, priority 4, queue 8, object 12, cpu_address 16, physical_adapter 24);
layout!(ReserveGpuVirtualAddress 72 / 8: owner 0, base 8, minimum 16, maximum 24, size 32, reservation_type 40,
    driver_protection 48, address 56, paging_fence_value 64);
layout!(MapGpuVirtualAddress 104 / 8: paging_queue 0, base 8, minimum 16, maximum 24, allocation 32,
    offset_pages 40, size_pages 48, protection 56, driver_protection 64, reserved_0 72, reserved_1 80,
    address 88, paging_fence_value 96);
layout!(FreeGpuVirtualAddress 24 / 8: adapter 0, base 8, size 16);
layout!(UpdateGpuVirtualAddress 56 / 8: device 0, context 4, fence 8, operation_count 12, operations 16,
    reserved_0 24, reserved_1 32, fence_value 40, flags 48);
layout!(GpuVaOperation 64 / 8: operation 0, base 8, size 16, allocation 24, allocation_offset 32, allocation_size 40,
    protection 48, driver_protection 56);
layout!(MakeResident 48 / 8: paging_queue 0, count 4, allocations 8, priorities 16, flags 24,
    paging_fence_value 32, bytes_to_trim 40);
layout!(Evict 32 / 8: device 0, count 4, allocations 8, flags 16, bytes_to_trim 24);
layout!(Lock2 24 / 8: device 0, allocation 4, flags 8, data 16);
layout!(Unlock2 8 / 4: device 0, allocation 4);
layout!(AllocationPriority 32 / 8: device 0, resource 4, allocations 8, count 16, priorities 24);
layout!(QueryVideoMemoryInfo 56 / 8: process 0, adapter 8, segment_group 12, budget 16, current_usage 24,
    current_reservation 32, available_for_reservation 40, physical_adapter 48);

layout!(CreateHwQueue 48 / 8: context 0, flags 4, private_data_size 8, private_data 16, queue 24,
    progress_fence 28, cpu_address 32, gpu_address 40);
layout!(SubmitCommandToHwQueue 56 / 8: queue 0, progress_fence_id 8, commands 16, length 24,
    private_data_size 28, private_data 32, primary_count 40, written_primaries 48);
layout!(SubmitSignalToHwQueue 40 / 8: flags 0, queue_count 4, queues 8, object_count 16, objects 24, values 32);
layout!(SubmitWaitToHwQueue 24 / 8: queue 0, object_count 4, objects 8, values 16);
layout!(NativeFenceMapping 56 / 8: current_value_cpu_address 0, current_value_gpu_address 8,
    monitored_value_gpu_address 16, reserved 24);
layout!(NativeFenceInfo 112 / 8: initial_value 0, engine_affinity 8, native_type 12, flags 16, mapping 24,
    reserved 80);
layout!(CreateNativeFence 216 / 8: device 0, object 4, private_data 8, info 72, flags 184, reserved 188);
layout!(OpenNativeFenceFromNtHandle 176 / 8: nt_handle 0, device 8, engine_affinity 12, flags 16, object 20,
    mapping 24, private_data 80, reserved 144);

layout!(ContextPriority 8 / 4: context 0, priority 4);
layout!(MarkDeviceAsError 8 / 4: device 0, reason 4);
