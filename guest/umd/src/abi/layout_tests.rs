//! The structs against the crate `windows-sys`, which is generated from the Windows SDK.

use std::mem::offset_of;

use windows_sys::Wdk::Graphics::Direct3D as windows;

use super::types as ours;

macro_rules! same {
    ($ours:ident, $theirs:ident: $($field:ident $(. $inner:ident)* = $their_field:ident),+ $(,)?) => {
        assert_eq!(size_of::<ours::$ours>(), size_of::<windows::$theirs>(), stringify!($theirs));
        assert_eq!(align_of::<ours::$ours>(), align_of::<windows::$theirs>(), stringify!($theirs));
        $(assert_eq!(
            offset_of!(ours::$ours, $field $(. $inner)*),
            offset_of!(windows::$theirs, $their_field),
            concat!(stringify!($theirs), ".", stringify!($their_field))
        );)+
    };
}

#[test]
fn adapter_structs_have_the_layout_of_windows() {
    same!(AdapterInfo, D3DKMT_ADAPTERINFO: adapter = hAdapter, luid_low = AdapterLuid, sources = NumOfSources,
        precise_present_regions_preferred = bPrecisePresentRegionsPreferred);
    same!(EnumAdapters2, D3DKMT_ENUMADAPTERS2: count = NumAdapters, adapters = pAdapters);
    same!(EnumAdapters3, D3DKMT_ENUMADAPTERS3: filter = Filter, count = NumAdapters, adapters = pAdapters);
    same!(OpenAdapterFromLuid, D3DKMT_OPENADAPTERFROMLUID: luid_low = AdapterLuid, adapter = hAdapter);
    same!(OpenAdapterFromDeviceName, D3DKMT_OPENADAPTERFROMDEVICENAME: device_name = pDeviceName,
        adapter = hAdapter, luid_low = AdapterLuid);
    same!(OpenAdapterFromHdc, D3DKMT_OPENADAPTERFROMHDC: hdc = hDc, adapter = hAdapter, luid_low = AdapterLuid,
        source = VidPnSourceId);
    // Its WCHARs have 4 bytes here: what follows them stands as far behind them as there.
    type Display = windows::D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME;
    let (ours_end, theirs_end) = (size_of::<[u32; 32]>(), size_of::<[u16; 32]>());
    for (ours, theirs) in [
        (offset_of!(ours::OpenAdapterFromGdiDisplayName, adapter), offset_of!(Display, hAdapter)),
        (offset_of!(ours::OpenAdapterFromGdiDisplayName, luid_low), offset_of!(Display, AdapterLuid)),
        (offset_of!(ours::OpenAdapterFromGdiDisplayName, source), offset_of!(Display, VidPnSourceId)),
        (size_of::<ours::OpenAdapterFromGdiDisplayName>(), size_of::<Display>()),
    ] {
        assert_eq!(ours - ours_end, theirs - theirs_end);
    }
    same!(Escape, D3DKMT_ESCAPE: adapter = hAdapter, device = hDevice, kind = Type, flags = Flags,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize, context = hContext);
    // Sent as the caller wrote them: what the two sides read is the structure of the SDK.
    type Usage = windows::D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE;
    assert_eq!((size_of::<Usage>(), offset_of!(Usage, hSyncObject)), (d3dkmt::CpuEventUsage::SIZE, 4));
    assert_eq!((offset_of!(Usage, hKmdCpuEvent), offset_of!(Usage, Usage)), (8, 16));
    assert_eq!(size_of::<windows::D3DDDI_ESCAPEFLAGS>(), size_of::<d3dkmt::EscapeFlags>());
    same!(OneHandle, D3DKMT_CLOSEADAPTER: handle = hAdapter);
    same!(QueryAdapterInfo, D3DKMT_QUERYADAPTERINFO: adapter = hAdapter, kind = Type,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize);
}

#[test]
fn queries_of_adapters_have_the_numbers_of_windows() {
    use d3dkmt::query::kind;
    for (ours, theirs) in [
        (kind::UM_DRIVER_PRIVATE, windows::KMTQAITYPE_UMDRIVERPRIVATE),
        (kind::DRIVER_VERSION, windows::KMTQAITYPE_DRIVERVERSION),
        (kind::ADAPTER_TYPE, windows::KMTQAITYPE_ADAPTERTYPE),
        (kind::PHYSICAL_ADAPTER_COUNT, windows::KMTQAITYPE_PHYSICALADAPTERCOUNT),
        (kind::PHYSICAL_ADAPTER_DEVICE_IDS, windows::KMTQAITYPE_PHYSICALADAPTERDEVICEIDS),
        (kind::QUERY_REGISTRY, windows::KMTQAITYPE_QUERYREGISTRY),
        (kind::DRIVER_VERSION_RENDER, windows::KMTQAITYPE_DRIVERVERSION_RENDER),
        (kind::ADAPTER_TYPE_RENDER, windows::KMTQAITYPE_ADAPTERTYPE_RENDER),
        (kind::DRIVER_DESCRIPTION, windows::KMTQAITYPE_DRIVER_DESCRIPTION),
        (kind::WDDM_2_7_CAPS, windows::KMTQAITYPE_WDDM_2_7_CAPS),
    ] {
        assert_eq!(ours as i32, theirs);
    }
}

#[test]
fn a_query_of_the_registry_has_the_layout_and_the_numbers_of_windows() {
    use d3dkmt::query::registry;
    type Info = windows::D3DDDI_QUERYREGISTRY_INFO;
    assert_eq!((offset_of!(Info, QueryType), offset_of!(Info, QueryFlags)), (0, 4));
    for (ours, theirs) in [
        (registry::NAME.start, offset_of!(Info, ValueName)),
        (registry::NAME.end, offset_of!(Info, ValueType)),
        (registry::VALUE_TYPE, offset_of!(Info, ValueType)),
        (registry::PHYSICAL_ADAPTER, offset_of!(Info, PhysicalAdapterIndex)),
        (registry::OUTPUT_SIZE, offset_of!(Info, OutputValueSize)),
        (registry::STATUS, offset_of!(Info, Status)),
        (registry::OUTPUT, offset_of!(Info, Anonymous)),
    ] {
        assert_eq!(ours, theirs);
    }
    for (ours, theirs) in [
        (registry::kind::SERVICE_KEY, windows::D3DDDI_QUERYREGISTRY_SERVICEKEY),
        (registry::kind::ADAPTER_KEY, windows::D3DDDI_QUERYREGISTRY_ADAPTERKEY),
        (registry::kind::DRIVER_STORE_PATH, windows::D3DDDI_QUERYREGISTRY_DRIVERSTOREPATH),
        (registry::kind::DRIVER_IMAGE_PATH, windows::D3DDDI_QUERYREGISTRY_DRIVERIMAGEPATH),
        (registry::status::SUCCESS, windows::D3DDDI_QUERYREGISTRY_STATUS_SUCCESS),
        (registry::status::BUFFER_OVERFLOW, windows::D3DDDI_QUERYREGISTRY_STATUS_BUFFER_OVERFLOW),
        (registry::status::FAIL, windows::D3DDDI_QUERYREGISTRY_STATUS_FAIL),
    ] {
        assert_eq!(ours as i32, theirs);
    }
}

#[test]
fn device_and_context_structs_have_the_layout_of_windows() {
    same!(CreateDevice, D3DKMT_CREATEDEVICE: adapter = Anonymous, flags = Flags, device = hDevice,
        command_buffer = pCommandBuffer, command_buffer_size = CommandBufferSize,
        allocation_list = pAllocationList, allocation_list_size = AllocationListSize,
        patch_location_list = pPatchLocationList, patch_location_list_size = PatchLocationListSize);
    same!(OneHandle, D3DKMT_DESTROYDEVICE: handle = hDevice);
    same!(GetDeviceState, D3DKMT_GETDEVICESTATE: device = hDevice, state_type = StateType, state = Anonymous);
    same!(CreateContextVirtual, D3DKMT_CREATECONTEXTVIRTUAL: device = hDevice, node_ordinal = NodeOrdinal,
        engine_affinity = EngineAffinity, flags = Flags, private_data = pPrivateDriverData,
        private_data_size = PrivateDriverDataSize, client_hint = ClientHint, context = hContext);
    same!(OneHandle, D3DKMT_DESTROYCONTEXT: handle = hContext);
}

#[test]
fn sync_object_structs_have_the_layout_of_windows() {
    same!(SyncObjectInfo1, D3DDDI_SYNCHRONIZATIONOBJECTINFO: object_type = Type, words = Anonymous);
    same!(CreateSynchronizationObject, D3DKMT_CREATESYNCHRONIZATIONOBJECT: device = hDevice, info = Info,
        object = hSyncObject);
    same!(SyncObjectInfo2, D3DDDI_SYNCHRONIZATIONOBJECTINFO2: object_type = Type, flags = Flags,
        union = Anonymous, shared_handle = SharedHandle);
    assert_eq!(size_of::<ours::SyncObjectUnion>(), size_of::<windows::D3DDDI_SYNCHRONIZATIONOBJECTINFO2_0>());
    // The member of monitored fences; the union as a whole is longer.
    type Monitored = windows::D3DDDI_SYNCHRONIZATIONOBJECTINFO2_0_4;
    assert_eq!(offset_of!(ours::SyncObjectUnion, first), offset_of!(Monitored, InitialFenceValue));
    assert_eq!(
        offset_of!(ours::SyncObjectUnion, cpu_address),
        offset_of!(Monitored, FenceValueCPUVirtualAddress)
    );
    assert_eq!(
        offset_of!(ours::SyncObjectUnion, gpu_address),
        offset_of!(Monitored, FenceValueGPUVirtualAddress)
    );
    assert_eq!(offset_of!(ours::SyncObjectUnion, engine_affinity), offset_of!(Monitored, EngineAffinity));
    same!(CreateSynchronizationObject2, D3DKMT_CREATESYNCHRONIZATIONOBJECT2: device = hDevice, info = Info,
        object = hSyncObject);
    same!(OneHandle, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT: handle = hSyncObject);
    same!(OpenSyncObjectFromNtHandle2, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2: nt_handle = hNtHandle,
        device = hDevice, flags = Flags, object = hSyncObject, cpu_address = Anonymous);
    type Opened = windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2_0_0;
    let union = offset_of!(windows::D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, Anonymous);
    assert_eq!(
        offset_of!(ours::OpenSyncObjectFromNtHandle2, gpu_address),
        union + offset_of!(Opened, FenceValueGPUVirtualAddress)
    );
    assert_eq!(
        offset_of!(ours::OpenSyncObjectFromNtHandle2, engine_affinity),
        union + offset_of!(Opened, EngineAffinity)
    );
}

#[test]
fn signal_wait_and_submit_structs_have_the_layout_of_windows() {
    same!(SignalFromCpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU: device = hDevice,
        object_count = ObjectCount, objects = ObjectHandleArray, values = FenceValueArray, flags = Flags);
    same!(WaitFromCpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU: device = hDevice,
        object_count = ObjectCount, objects = ObjectHandleArray, values = FenceValueArray,
        async_event = hAsyncEvent, flags = Flags);
    same!(FromGpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray, values = Anonymous);
    same!(FromGpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray, values = Anonymous);
    same!(SignalFromGpu2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2: object_count = ObjectCount,
        objects = ObjectHandleArray, flags = Flags, context_count = BroadcastContextCount,
        contexts = BroadcastContextArray, values = Anonymous);
    same!(SubmitCommand, D3DKMT_SUBMITCOMMAND: commands = Commands, command_length = CommandLength,
        flags = Flags, present_history_token = PresentHistoryToken, context_count = BroadcastContextCount,
        contexts = BroadcastContext, private_data = pPrivateDriverData,
        private_data_size = PrivateDriverDataSize, primary_count = NumPrimaries,
        written_primaries = WrittenPrimaries, history_buffer_count = NumHistoryBuffers,
        history_buffers = HistoryBufferArray);
}

#[test]
fn the_structs_of_wddm_1_have_the_layout_of_windows() {
    same!(OpenSynchronizationObject, D3DKMT_OPENSYNCHRONIZATIONOBJECT: shared_handle = hSharedHandle,
        object = hSyncObject, reserved = Reserved);
    same!(WaitForSynchronizationObject, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray);
    same!(WaitForSynchronizationObject2, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray, fence_value = Anonymous);
    same!(SignalSynchronizationObject, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray, flags = Flags);
    same!(SignalSynchronizationObject2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2: context = hContext,
        object_count = ObjectCount, objects = ObjectHandleArray, flags = Flags,
        context_count = BroadcastContextCount, contexts = BroadcastContext, value = Anonymous);
}

#[test]
fn sharing_structs_have_the_layout_of_windows() {
    same!(OpenSyncObjectFromNtHandle, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE: nt_handle = hNtHandle,
        object = hSyncObject);
    same!(OpenNtHandleFromName, D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME: desired_access = dwDesiredAccess,
        attributes = pObjAttrib, nt_handle = hNtHandle);
    same!(OpenNtHandleFromName, D3DKMT_OPENNTHANDLEFROMNAME: desired_access = dwDesiredAccess,
        attributes = pObjAttrib, nt_handle = hNtHandle);
}

#[test]
fn allocation_structs_have_the_layout_of_windows() {
    same!(CreateAllocation, D3DKMT_CREATEALLOCATION: device = hDevice, resource = hResource,
        shared_handle = hGlobalShare, runtime_data = pPrivateRuntimeData,
        runtime_data_size = PrivateRuntimeDataSize, private_data = Anonymous1,
        private_data_size = PrivateDriverDataSize, count = NumAllocations, allocations = Anonymous2,
        flags = Flags, runtime_resource = hPrivateRuntimeResourceHandle);
    same!(StandardAllocation, D3DKMT_CREATESTANDARDALLOCATION: kind = Type, size = Anonymous, flags = Flags);
    same!(AllocationInfo, D3DDDI_ALLOCATIONINFO: allocation = hAllocation, system_memory = pSystemMem,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize,
        vidpn_source = VidPnSourceId, flags = Flags);
    same!(AllocationInfo2, D3DDDI_ALLOCATIONINFO2: info.allocation = hAllocation,
        info.system_memory = Anonymous1, info.private_data = pPrivateDriverData,
        info.private_data_size = PrivateDriverDataSize, info.vidpn_source = VidPnSourceId, info.flags = Flags,
        gpu_address = GpuVirtualAddress, priority = Anonymous2, reserved = Reserved);
    same!(DestroyAllocation, D3DKMT_DESTROYALLOCATION: device = hDevice, resource = hResource,
        allocations = phAllocationList, count = AllocationCount);
    same!(DestroyAllocation2, D3DKMT_DESTROYALLOCATION2: device = hDevice, resource = hResource,
        allocations = phAllocationList, count = AllocationCount, flags = Flags);
    same!(QueryResourceInfo, D3DKMT_QUERYRESOURCEINFO: device = hDevice, shared_handle = hGlobalShare,
        runtime_data = pPrivateRuntimeData, runtime_data_size = PrivateRuntimeDataSize,
        total_private_data_size = TotalPrivateDriverDataSize,
        private_data_size = ResourcePrivateDriverDataSize, count = NumAllocations);
    same!(OpenResource, D3DKMT_OPENRESOURCE: device = hDevice, shared_handle = hGlobalShare,
        count = NumAllocations, allocations = Anonymous, runtime_data = pPrivateRuntimeData,
        runtime_data_size = PrivateRuntimeDataSize, private_data = pResourcePrivateDriverData,
        private_data_size = ResourcePrivateDriverDataSize,
        total_private_data = pTotalPrivateDriverDataBuffer,
        total_private_data_size = TotalPrivateDriverDataBufferSize, resource = hResource);
    same!(QueryResourceInfoFromNtHandle, D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE: device = hDevice,
        nt_handle = hNtHandle, runtime_data = pPrivateRuntimeData, runtime_data_size = PrivateRuntimeDataSize,
        total_private_data_size = TotalPrivateDriverDataSize,
        private_data_size = ResourcePrivateDriverDataSize, count = NumAllocations);
    same!(OpenResourceFromNtHandle, D3DKMT_OPENRESOURCEFROMNTHANDLE: device = hDevice, nt_handle = hNtHandle,
        count = NumAllocations, allocations = pOpenAllocationInfo2,
        runtime_data_size = PrivateRuntimeDataSize, runtime_data = pPrivateRuntimeData,
        private_data_size = ResourcePrivateDriverDataSize, private_data = pResourcePrivateDriverData,
        total_private_data_size = TotalPrivateDriverDataBufferSize,
        total_private_data = pTotalPrivateDriverDataBuffer, resource = hResource, keyed_mutex = hKeyedMutex,
        mutex_data = pKeyedMutexPrivateRuntimeData, mutex_data_size = KeyedMutexPrivateRuntimeDataSize,
        sync_object = hSyncObject);
    same!(OpenAllocationInfo, D3DDDI_OPENALLOCATIONINFO: allocation = hAllocation,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize);
    same!(OpenAllocationInfo2, D3DDDI_OPENALLOCATIONINFO2: allocation = hAllocation,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize,
        gpu_address = GpuVirtualAddress, reserved = Reserved);
}

#[test]
fn keyed_mutex_structs_have_the_layout_of_windows() {
    same!(CreateKeyedMutex, D3DKMT_CREATEKEYEDMUTEX: initial_value = InitialValue,
        shared_handle = hSharedHandle, mutex = hKeyedMutex);
    same!(CreateKeyedMutex2, D3DKMT_CREATEKEYEDMUTEX2: initial_value = InitialValue,
        shared_handle = hSharedHandle, mutex = hKeyedMutex, data = pPrivateRuntimeData,
        data_size = PrivateRuntimeDataSize, flags = Flags);
    same!(OpenKeyedMutex, D3DKMT_OPENKEYEDMUTEX: shared_handle = hSharedHandle, mutex = hKeyedMutex);
    same!(OpenKeyedMutex2, D3DKMT_OPENKEYEDMUTEX2: shared_handle = hSharedHandle, mutex = hKeyedMutex,
        data = pPrivateRuntimeData, data_size = PrivateRuntimeDataSize);
    same!(OpenKeyedMutexFromNtHandle, D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE: nt_handle = hNtHandle,
        mutex = hKeyedMutex, data = pPrivateRuntimeData, data_size = PrivateRuntimeDataSize);
    same!(OneHandle, D3DKMT_DESTROYKEYEDMUTEX: handle = hKeyedMutex);
    same!(AcquireKeyedMutex, D3DKMT_ACQUIREKEYEDMUTEX: mutex = hKeyedMutex, key = Key, timeout = pTimeout,
        fence_value = FenceValue);
    same!(AcquireKeyedMutex2, D3DKMT_ACQUIREKEYEDMUTEX2: mutex = hKeyedMutex, key = Key, timeout = pTimeout,
        fence_value = FenceValue, data = pPrivateRuntimeData, data_size = PrivateRuntimeDataSize);
    same!(ReleaseKeyedMutex, D3DKMT_RELEASEKEYEDMUTEX: mutex = hKeyedMutex, key = Key,
        fence_value = FenceValue);
    same!(ReleaseKeyedMutex2, D3DKMT_RELEASEKEYEDMUTEX2: mutex = hKeyedMutex, key = Key,
        fence_value = FenceValue, data = pPrivateRuntimeData, data_size = PrivateRuntimeDataSize);
}

#[test]
fn paging_structs_have_the_layout_of_windows() {
    same!(CreatePagingQueue, D3DKMT_CREATEPAGINGQUEUE: device = hDevice, priority = Priority,
        queue = hPagingQueue, object = hSyncObject, cpu_address = FenceValueCPUVirtualAddress,
        physical_adapter = PhysicalAdapterIndex);
    same!(OneHandle, D3DDDI_DESTROYPAGINGQUEUE: handle = hPagingQueue);
    same!(ReserveGpuVirtualAddress, D3DDDI_RESERVEGPUVIRTUALADDRESS: owner = Anonymous1, base = BaseAddress,
        minimum = MinimumAddress, maximum = MaximumAddress, size = Size, reservation_type = Anonymous2,
        driver_protection = Anonymous3, address = VirtualAddress, paging_fence_value = Anonymous4);
    same!(MapGpuVirtualAddress, D3DDDI_MAPGPUVIRTUALADDRESS: paging_queue = hPagingQueue, base = BaseAddress,
        minimum = MinimumAddress, maximum = MaximumAddress, allocation = hAllocation,
        offset_pages = OffsetInPages, size_pages = SizeInPages, protection = Protection,
        driver_protection = DriverProtection, address = VirtualAddress, paging_fence_value = PagingFenceValue);
    same!(FreeGpuVirtualAddress, D3DKMT_FREEGPUVIRTUALADDRESS: adapter = hAdapter, base = BaseAddress,
        size = Size);
    same!(UpdateGpuVirtualAddress, D3DKMT_UPDATEGPUVIRTUALADDRESS: device = hDevice, context = hContext,
        fence = hFenceObject, operation_count = NumOperations, operations = Operations,
        fence_value = FenceValue, flags = Flags);
    same!(GpuVaOperation, D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION: operation = OperationType, base = Anonymous);
    type Copied = windows::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_3;
    type Mapped = windows::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_1;
    type Unmapped = windows::D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_0_2;
    for (ours, theirs) in [
        (offset_of!(ours::GpuVaOperation, size), offset_of!(Copied, SizeInBytes)),
        (offset_of!(ours::GpuVaOperation, allocation), offset_of!(Copied, DestAddress)),
        (offset_of!(ours::GpuVaOperation, allocation), offset_of!(Unmapped, Protection)),
        (offset_of!(ours::GpuVaOperation, allocation), offset_of!(Mapped, hAllocation)),
        (offset_of!(ours::GpuVaOperation, allocation_offset), offset_of!(Mapped, AllocationOffsetInBytes)),
        (offset_of!(ours::GpuVaOperation, allocation_size), offset_of!(Mapped, AllocationSizeInBytes)),
        (offset_of!(ours::GpuVaOperation, protection), offset_of!(Mapped, Protection)),
    ] {
        assert_eq!(ours, 8 + theirs);
    }
    same!(MakeResident, D3DDDI_MAKERESIDENT: paging_queue = hPagingQueue, count = NumAllocations,
        allocations = AllocationList, priorities = PriorityList, flags = Flags,
        paging_fence_value = PagingFenceValue, bytes_to_trim = NumBytesToTrim);
    same!(Evict, D3DKMT_EVICT: device = hDevice, count = NumAllocations, allocations = AllocationList,
        flags = Flags, bytes_to_trim = NumBytesToTrim);
    same!(Lock2, D3DKMT_LOCK2: device = hDevice, allocation = hAllocation, flags = Flags, data = pData);
    same!(Unlock2, D3DKMT_UNLOCK2: device = hDevice, allocation = hAllocation);
    same!(AllocationPriority, D3DKMT_SETALLOCATIONPRIORITY: device = hDevice, resource = hResource,
        allocations = phAllocationList, count = AllocationCount, priorities = pPriorities);
    same!(AllocationPriority, D3DKMT_GETALLOCATIONPRIORITY: device = hDevice, resource = hResource,
        allocations = phAllocationList, count = AllocationCount, priorities = pPriorities);
    same!(QueryVideoMemoryInfo, D3DKMT_QUERYVIDEOMEMORYINFO: process = hProcess, adapter = hAdapter,
        segment_group = MemorySegmentGroup, budget = Budget, current_usage = CurrentUsage,
        current_reservation = CurrentReservation, available_for_reservation = AvailableForReservation,
        physical_adapter = PhysicalAdapterIndex);
}

#[test]
fn hw_queue_and_scheduling_structs_have_the_layout_of_windows() {
    same!(CreateHwQueue, D3DKMT_CREATEHWQUEUE: context = hHwContext, flags = Flags,
        private_data_size = PrivateDriverDataSize, private_data = pPrivateDriverData, queue = hHwQueue,
        progress_fence = hHwQueueProgressFence, cpu_address = HwQueueProgressFenceCPUVirtualAddress,
        gpu_address = HwQueueProgressFenceGPUVirtualAddress);
    same!(OneHandle, D3DKMT_DESTROYHWQUEUE: handle = hHwQueue);
    same!(SubmitCommandToHwQueue, D3DKMT_SUBMITCOMMANDTOHWQUEUE: queue = hHwQueue,
        progress_fence_id = HwQueueProgressFenceId, commands = CommandBuffer, length = CommandLength,
        private_data_size = PrivateDriverDataSize, private_data = pPrivateDriverData,
        primary_count = NumPrimaries, written_primaries = WrittenPrimaries);
    same!(SubmitSignalToHwQueue, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE: flags = Flags,
        queue_count = BroadcastHwQueueCount, queues = BroadcastHwQueueArray, object_count = ObjectCount,
        objects = ObjectHandleArray, values = FenceValueArray);
    same!(SubmitWaitToHwQueue, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE: queue = hHwQueue,
        object_count = ObjectCount, objects = ObjectHandleArray, values = FenceValueArray);
    same!(ContextPriority, D3DKMT_SETCONTEXTSCHEDULINGPRIORITY: context = hContext, priority = Priority);
    same!(ContextPriority, D3DKMT_GETCONTEXTSCHEDULINGPRIORITY: context = hContext, priority = Priority);
    same!(ContextPriority, D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY: context = hContext,
        priority = Priority);
    same!(ContextPriority, D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY: context = hContext,
        priority = Priority);
    same!(MarkDeviceAsError, D3DKMT_MARKDEVICEASERROR: device = hDevice, reason = Reason);
    // The page fault state stands over the second word and what follows it.
    type Fault = windows::D3DKMT_DEVICEPAGEFAULT_STATE;
    let rest = offset_of!(ours::GetDeviceState, rest) - offset_of!(ours::GetDeviceState, state);
    assert_eq!(offset_of!(Fault, PageFaultFlags), rest + 8);
    assert_eq!(offset_of!(Fault, FaultedVirtualAddress), rest + 16);
}

#[test]
fn the_periodic_member_of_the_union_has_the_layout_of_windows() {
    type Periodic = windows::D3DDDI_SYNCHRONIZATIONOBJECTINFO2_0_5;
    assert_eq!((offset_of!(Periodic, hAdapter), offset_of!(Periodic, VidPnTargetId)), (0, 4));
    assert_eq!(offset_of!(Periodic, Time), offset_of!(ours::SyncObjectUnion, cpu_address));
    assert_eq!(
        offset_of!(Periodic, FenceValueCPUVirtualAddress),
        offset_of!(ours::SyncObjectUnion, gpu_address)
    );
    assert_eq!(
        offset_of!(Periodic, FenceValueGPUVirtualAddress),
        offset_of!(ours::SyncObjectUnion, engine_affinity)
    );
    assert_eq!(offset_of!(Periodic, EngineAffinity), offset_of!(ours::SyncObjectUnion, rest));
}
