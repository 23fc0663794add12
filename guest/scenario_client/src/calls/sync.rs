//! Sync objects, CPU signals and CPU waits.

use d3dkmt::{
    CreatedSyncObject, Handle, Reply, SignalFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags,
};
use proto::scenario_client::EventNumber;

use super::{Done, raw, value_array};
use crate::ScenarioClient;
use crate::abi::{NtHandle, sdk};
use crate::objects::Object;

pub fn create_legacy(scenario_client: &ScenarioClient, device: Handle, info: &SyncObjectInfo) -> Done {
    let mut create = sdk::D3DKMT_CREATESYNCHRONIZATIONOBJECT { hDevice: device.0, ..Default::default() };
    create.Info.Type = info.object_type.0 as i32;
    match info.object_type {
        SyncObjectType::MUTEX => {
            create.Info.Anonymous.SynchronizationMutex.InitialState = info.initial_state.into();
        }
        SyncObjectType::SEMAPHORE => {
            create.Info.Anonymous.Semaphore.MaxCount = info.max_count;
            create.Info.Anonymous.Semaphore.InitialCount = info.initial_count;
        }
        SyncObjectType(_) => {}
    }
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateSynchronizationObject(&mut create) };
    Done::reply(status, || {
        let object = Handle(create.hSyncObject);
        scenario_client
            .objects
            .created(object, Object::new(device, Some(info.object_type), std::ptr::null_mut()));
        Reply::SyncObject(CreatedSyncObject { object, ..CreatedSyncObject::default() })
    })
}

pub fn create(
    scenario_client: &ScenarioClient,
    device: Handle,
    info: &SyncObjectInfo,
    event: Option<EventNumber>,
) -> Done {
    let event = scenario_client.events.handle(event);
    let mut create = sdk::D3DKMT_CREATESYNCHRONIZATIONOBJECT2 { hDevice: device.0, ..Default::default() };
    fill(&mut create.Info, info, event.raw());
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateSynchronizationObject2(&mut create) };
    Done::reply(status, || {
        let object = Handle(create.hSyncObject);
        let (cpu_address, gpu_address) = match info.object_type {
            SyncObjectType::MONITORED_FENCE => {
                // SAFETY: the call filled in the member of the type that was asked for.
                let fence = unsafe { create.Info.Anonymous.MonitoredFence };
                (fence.FenceValueCPUVirtualAddress, fence.FenceValueGPUVirtualAddress)
            }
            SyncObjectType::PERIODIC_MONITORED_FENCE => {
                // SAFETY: as above.
                let fence = unsafe { create.Info.Anonymous.PeriodicMonitoredFence };
                (fence.FenceValueCPUVirtualAddress, fence.FenceValueGPUVirtualAddress)
            }
            SyncObjectType(_) => (std::ptr::null_mut(), 0),
        };
        let known = Object::new(device, Some(info.object_type), cpu_address);
        scenario_client.objects.created(object, known);
        Reply::SyncObject(CreatedSyncObject {
            object,
            shared_handle: Handle(create.Info.SharedHandle),
            gpu_address,
            ..CreatedSyncObject::default()
        })
    })
}

fn fill(target: &mut sdk::D3DDDI_SYNCHRONIZATIONOBJECTINFO2, info: &SyncObjectInfo, event: NtHandle) {
    target.Type = info.object_type.0 as i32;
    target.Flags.Anonymous.Value = info.flags.bits();
    let members = &mut target.Anonymous;
    match info.object_type {
        SyncObjectType::MUTEX => members.SynchronizationMutex.InitialState = info.initial_state.into(),
        SyncObjectType::SEMAPHORE => {
            members.Semaphore.MaxCount = info.max_count;
            members.Semaphore.InitialCount = info.initial_count;
        }
        SyncObjectType::FENCE => members.Fence.FenceValue = info.initial_value,
        SyncObjectType::CPU_NOTIFICATION => members.CPUNotification.Event = event,
        SyncObjectType::MONITORED_FENCE => {
            members.MonitoredFence.InitialFenceValue = info.initial_value;
            members.MonitoredFence.EngineAffinity = info.engine_affinity;
        }
        SyncObjectType::PERIODIC_MONITORED_FENCE => {
            members.PeriodicMonitoredFence.hAdapter = info.adapter.0;
            members.PeriodicMonitoredFence.VidPnTargetId = info.vidpn_target;
            members.PeriodicMonitoredFence.Time = info.time_100ns;
            members.PeriodicMonitoredFence.EngineAffinity = info.engine_affinity;
        }
        // A type that this library's header has no members for.
        SyncObjectType(_) => {}
    }
}

pub fn destroy(scenario_client: &ScenarioClient, object: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYSYNCHRONIZATIONOBJECT { hSyncObject: object.0 };
    // SAFETY: see the module above.
    let done = Done::status(unsafe { sdk::D3DKMTDestroySynchronizationObject(&destroy) });
    if done.status.is_success() {
        scenario_client.objects.destroyed(object);
    }
    done
}

pub fn signal(device: Handle, objects: &[Handle], values: &[u64], flags: SignalFlags) -> Done {
    let Some(array) = value_array(objects, values) else { return Done::no_c_form() };
    let objects = raw(objects);
    let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: device.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        FenceValueArray: array,
        ..Default::default()
    };
    signal.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSignalSynchronizationObjectFromCpu(&signal) })
}

pub fn wait(
    scenario_client: &ScenarioClient,
    device: Handle,
    objects: &[Handle],
    values: &[u64],
    flags: WaitFromCpuFlags,
    event: Option<EventNumber>,
) -> Done {
    let Some(array) = value_array(objects, values) else { return Done::no_c_form() };
    let objects = raw(objects);
    let event = scenario_client.events.handle(event);
    let mut wait = sdk::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
        hDevice: device.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        FenceValueArray: array,
        hAsyncEvent: event.raw(),
        ..Default::default()
    };
    wait.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTWaitForSynchronizationObjectFromCpu(&wait) })
}
