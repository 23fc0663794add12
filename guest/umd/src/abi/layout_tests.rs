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
    same!(OneHandle, D3DKMT_CLOSEADAPTER: handle = hAdapter);
    same!(QueryAdapterInfo, D3DKMT_QUERYADAPTERINFO: adapter = hAdapter, kind = Type,
        private_data = pPrivateDriverData, private_data_size = PrivateDriverDataSize);
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
