//! Contexts, and the packets for them.

use d3dkmt::{CreateContextFlags, GpuSignal, Handle, Reply, SignalFlags};
use proto::scenario_client::EventNumber;

use super::{Done, raw, value_array};
use crate::ScenarioClient;
use crate::abi::sdk;

pub struct NewContext<'a> {
    pub device: Handle,
    pub node_ordinal: u32,
    pub engine_affinity: u32,
    pub flags: CreateContextFlags,
    pub client_hint: u32,
    pub private_data: &'a [u8],
}

pub fn create_context(new: &NewContext<'_>) -> Done {
    let mut private_data = new.private_data.to_vec();
    let mut create = sdk::D3DKMT_CREATECONTEXTVIRTUAL {
        hDevice: new.device.0,
        NodeOrdinal: new.node_ordinal,
        EngineAffinity: new.engine_affinity,
        pPrivateDriverData: private_data.as_mut_ptr().cast(),
        PrivateDriverDataSize: private_data.len() as u32,
        ClientHint: new.client_hint as i32,
        ..Default::default()
    };
    create.Flags.Anonymous.Value = new.flags.bits();
    // The SDK's binding declares const, but hContext is written.
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateContextVirtual(&raw mut create) };
    Done::reply(status, || Reply::Context(Handle(create.hContext)))
}

pub fn destroy_context(context: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYCONTEXT { hContext: context.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyContext(&destroy) })
}

/// The union beside the objects of a GPU signal or wait.
enum Values {
    Array(*const u64),
    InPlace(u64),
}

/// `None` if C cannot express it: counts that differ, or several values for objects that share one.
fn values_of(scenario_client: &ScenarioClient, objects: &[Handle], values: &[u64]) -> Option<Values> {
    if !scenario_client.objects.take_value_in_place(objects) {
        return value_array(objects, values).map(Values::Array);
    }
    let first = values.first().copied()?;
    let same = values.len() == objects.len() && values.iter().all(|value| *value == first);
    same.then_some(Values::InPlace(first))
}

pub fn signal(
    scenario_client: &ScenarioClient,
    contexts: &[Handle],
    signal: &GpuSignal,
    flags: SignalFlags,
    event: Option<EventNumber>,
) -> Done {
    let (objects, values) = match signal {
        GpuSignal::Monitored { objects, values } => (objects, values),
        GpuSignal::Legacy { objects, fence_value } => {
            return signal_legacy(contexts, objects, *fence_value, flags);
        }
        GpuSignal::CpuEvent { event: _ } => return signal_event(scenario_client, contexts, flags, event),
    };
    match (values_of(scenario_client, objects, values), contexts) {
        (None, _) => Done::no_c_form(),
        (Some(Values::Array(array)), [context]) if flags.is_empty() => signal_one(*context, objects, array),
        (Some(values), _) => {
            let mut union = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2_0::default();
            match values {
                Values::Array(array) => union.MonitoredFenceValueArray = array,
                Values::InPlace(value) => union.FenceValue = value,
            }
            signal_many(contexts, objects, flags, union)
        }
    }
}

/// The first handles as an inline array; the count passed to C may exceed it.
fn in_place<const N: usize>(handles: &[Handle]) -> [u32; N] {
    let mut entries = [0; N];
    entries.iter_mut().zip(handles).for_each(|(entry, handle)| *entry = handle.0);
    entries
}

fn signal_legacy(contexts: &[Handle], objects: &[Handle], fence_value: u64, flags: SignalFlags) -> Done {
    let Some((context, broadcast)) = contexts.split_first() else { return Done::no_c_form() };
    let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 {
        hContext: context.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: in_place(objects),
        BroadcastContextCount: broadcast.len() as u32,
        BroadcastContext: in_place(broadcast),
        ..Default::default()
    };
    signal.Flags.Anonymous.Value = flags.bits();
    signal.Anonymous.Fence.FenceValue = fence_value;
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSignalSynchronizationObject2(&signal) })
}

pub fn wait_legacy(context: Handle, objects: &[Handle], fence_value: u64) -> Done {
    let mut wait = sdk::D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2 {
        hContext: context.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: in_place(objects),
        ..Default::default()
    };
    wait.Anonymous.Fence.FenceValue = fence_value;
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTWaitForSynchronizationObject2(&wait) })
}

fn signal_one(context: Handle, objects: &[Handle], array: *const u64) -> Done {
    let objects = raw(objects);
    let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU {
        hContext: context.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        ..Default::default()
    };
    signal.Anonymous.MonitoredFenceValueArray = array;
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSignalSynchronizationObjectFromGpu(&signal) })
}

fn signal_event(
    scenario_client: &ScenarioClient,
    contexts: &[Handle],
    flags: SignalFlags,
    event: Option<EventNumber>,
) -> Done {
    let event = scenario_client.events.handle(event);
    let mut union = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2_0::default();
    union.CpuEventHandle = event.raw();
    signal_many(contexts, &[], flags, union)
}

fn signal_many(
    contexts: &[Handle],
    objects: &[Handle],
    flags: SignalFlags,
    union: sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2_0,
) -> Done {
    let (contexts, objects) = (raw(contexts), raw(objects));
    let mut signal = sdk::D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 {
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        BroadcastContextCount: contexts.len() as u32,
        BroadcastContextArray: contexts.as_ptr(),
        Anonymous: union,
        ..Default::default()
    };
    signal.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSignalSynchronizationObjectFromGpu2(&signal) })
}

pub fn wait(scenario_client: &ScenarioClient, context: Handle, objects: &[Handle], values: &[u64]) -> Done {
    let Some(values) = values_of(scenario_client, objects, values) else { return Done::no_c_form() };
    let objects = raw(objects);
    let mut wait = sdk::D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU {
        hContext: context.0,
        ObjectCount: objects.len() as u32,
        ObjectHandleArray: objects.as_ptr(),
        ..Default::default()
    };
    match values {
        Values::Array(array) => wait.Anonymous.MonitoredFenceValueArray = array,
        Values::InPlace(value) => wait.Anonymous.FenceValue = value,
    }
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTWaitForSynchronizationObjectFromGpu(&wait) })
}

pub fn submit(contexts: &[Handle], commands: u64, length: u32, flags: u32, private_data: &[u8]) -> Done {
    let mut private_data = private_data.to_vec();
    let mut submit = sdk::D3DKMT_SUBMITCOMMAND {
        Commands: commands,
        CommandLength: length,
        // The count may exceed the array's length.
        BroadcastContextCount: contexts.len() as u32,
        pPrivateDriverData: private_data.as_mut_ptr().cast(),
        PrivateDriverDataSize: private_data.len() as u32,
        ..Default::default()
    };
    submit.Flags._bitfield = flags;
    for (slot, context) in submit.BroadcastContext.iter_mut().zip(contexts) {
        *slot = context.0;
    }
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTSubmitCommand(&submit) })
}
