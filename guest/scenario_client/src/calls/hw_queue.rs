//! Hardware queues and native fences.

use d3dkmt::{
    CreatedSyncObject, Handle, HwQueueFlags, Reply, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectType,
};

use super::{Done, raw, value_array};
use crate::ScenarioClient;
use crate::abi::{self, sdk};
use crate::objects::Object;

pub fn create(
    scenario_client: &ScenarioClient,
    context: Handle,
    flags: HwQueueFlags,
    private_data: &[u8],
) -> Done {
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
    Done::reply(status, || {
        let object = Handle(create.hHwQueueProgressFence);
        let kind = Some(SyncObjectType::MONITORED_FENCE);
        let address = create.HwQueueProgressFenceCPUVirtualAddress;
        scenario_client.objects.created(object, Object::new(Handle::NULL, kind, address));
        let gpu_address = create.HwQueueProgressFenceGPUVirtualAddress;
        let progress_fence = CreatedSyncObject { object, gpu_address, ..CreatedSyncObject::default() };
        Reply::HwQueue { queue: Handle(create.hHwQueue), progress_fence }
    })
}

pub fn destroy(queue: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYHWQUEUE { hHwQueue: queue.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyHwQueue(&destroy) })
}

pub fn submit(
    queue: Handle,
    progress_fence_id: u64,
    commands: u64,
    length: u32,
    private_data: &[u8],
) -> Done {
    let mut data = private_data.to_vec();
    let submit = sdk::D3DKMT_SUBMITCOMMANDTOHWQUEUE {
        hHwQueue: queue.0,
        HwQueueProgressFenceId: progress_fence_id,
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

fn native(
    scenario_client: &ScenarioClient,
    device: Handle,
    object: u32,
    mapping: &abi::NativeFenceMapping,
) -> Reply {
    let object = Handle(object);
    let kind = Some(SyncObjectType::NATIVE_FENCE);
    scenario_client.objects.created(object, Object::new(device, kind, mapping.current_value_cpu_address));
    let gpu_address = mapping.current_value_gpu_address;
    Reply::SyncObject(CreatedSyncObject { object, gpu_address, ..CreatedSyncObject::default() })
}

pub fn create_native_fence(
    scenario_client: &ScenarioClient,
    device: Handle,
    initial_value: u64,
    native_type: u32,
    flags: SyncObjectFlags,
    engine_affinity: u32,
) -> Done {
    let mut create = abi::CreateNativeFence::default();
    create.device = device.0;
    create.info.initial_value = initial_value;
    create.info.engine_affinity = engine_affinity;
    create.info.native_type = native_type;
    create.info.flags = flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { abi::D3DKMTCreateNativeFence(&mut create) };
    Done::reply(status, || native(scenario_client, device, create.object, &create.info.mapping))
}

pub fn open_native_fence(
    scenario_client: &ScenarioClient,
    device: Handle,
    token: ShareToken,
    flags: SyncObjectFlags,
    engine_affinity: u32,
) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut open = abi::OpenNativeFenceFromNtHandle::default();
    (open.nt_handle, open.device) = (nt_handle, device.0);
    (open.flags, open.engine_affinity) = (flags.bits(), engine_affinity);
    // SAFETY: see the module above.
    let status = unsafe { abi::D3DKMTOpenNativeFenceFromNtHandle(&mut open) };
    Done::reply(status, || native(scenario_client, device, open.object, &open.mapping))
}
