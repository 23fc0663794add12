//! Sync objects as they are described, and what a GPU signal does.

use d3dkmt::{
    Call, EventId, GpuSignal, Handle, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType,
};

use super::ConvertError;
use super::lists::{handles_from_wire, handles_to_wire, values_from_wire, values_to_wire};
use crate::channel as wire;

pub(super) fn create_to_wire(
    device: Handle,
    info: &SyncObjectInfo,
    legacy: bool,
) -> wire::CreateSynchronizationObject {
    wire::CreateSynchronizationObject {
        device: device.0,
        object_type: info.object_type.0,
        flags: info.flags.bits(),
        initial_state: info.initial_state,
        max_count: info.max_count,
        initial_count: info.initial_count,
        initial_value: info.initial_value,
        engine_affinity: info.engine_affinity,
        event: info.event.map_or(0, |event| event.0),
        legacy,
        adapter: info.adapter.0,
        vidpn_target: info.vidpn_target,
        time_100ns: info.time_100ns,
    }
}

pub(super) fn create_from_wire(wire: wire::CreateSynchronizationObject) -> Call {
    let info = SyncObjectInfo {
        object_type: SyncObjectType(wire.object_type),
        flags: SyncObjectFlags::from_bits_retain(wire.flags),
        initial_state: wire.initial_state,
        max_count: wire.max_count,
        initial_count: wire.initial_count,
        initial_value: wire.initial_value,
        engine_affinity: wire.engine_affinity,
        adapter: Handle(wire.adapter),
        vidpn_target: wire.vidpn_target,
        time_100ns: wire.time_100ns,
        event: (wire.event != 0).then_some(EventId(wire.event)),
    };
    Call::CreateSynchronizationObject { device: Handle(wire.device), info, legacy: wire.legacy }
}

pub(super) fn signal_to_wire(
    contexts: &[Handle],
    signal: &GpuSignal,
    flags: SignalFlags,
) -> wire::SignalFromGpu {
    let (first_context, contexts) = handles_to_wire(contexts);
    let flags = flags.bits();
    let base = wire::SignalFromGpu { first_context, contexts, flags, ..Default::default() };
    match signal {
        GpuSignal::Monitored { objects, values } => {
            let (first_object, objects) = handles_to_wire(objects);
            let (first_value, values) = values_to_wire(values);
            wire::SignalFromGpu { first_object, objects, first_value, values, ..base }
        }
        GpuSignal::Legacy { objects, fence_value } => {
            let (first_object, objects) = handles_to_wire(objects);
            wire::SignalFromGpu { first_object, objects, fence_value: Some(*fence_value), ..base }
        }
        GpuSignal::CpuEvent { event } => wire::SignalFromGpu { event: event.0, ..base },
    }
}

pub(super) fn signal_from_wire(wire: wire::SignalFromGpu) -> Result<Call, ConvertError> {
    let bad = |field, value| ConvertError::BadValue { message: "SignalFromGpu", field, value };
    let objects = handles_from_wire(wire.first_object, wire.objects);
    let values = values_from_wire(wire.first_value, wire.values);
    let signal = match (wire.event, wire.fence_value) {
        (0, None) => GpuSignal::Monitored { objects, values },
        (0, Some(fence_value)) if values.is_empty() => GpuSignal::Legacy { objects, fence_value },
        (event, None) if objects.is_empty() && values.is_empty() => {
            GpuSignal::CpuEvent { event: EventId(event) }
        }
        (0, Some(value)) => return Err(bad("fence_value", value)),
        (event, _) => return Err(bad("event", event)),
    };
    let flags = SignalFlags::from_bits_retain(wire.flags);
    let contexts = handles_from_wire(wire.first_context, wire.contexts);
    Ok(Call::SignalFromGpu { contexts, signal, flags })
}
