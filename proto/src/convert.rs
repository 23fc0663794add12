//! Conversions between wire messages and the types of [`d3dkmt`]: written by hand, total, and
//! property-tested both ways. What a message cannot say is a [`ConvertError`], never a default.

use d3dkmt::{
    Adapter, Call, CreateContextFlags, CreatedSyncObject, EventId, GpuSignal, Handle, Luid, NtStatus, Reply,
    ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags, WaitOutcome,
};

use crate::channel::{self as wire, to_guest, to_host};

/// Why a well-formed message is no call or reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("{message} has no {field}")]
    Missing { message: &'static str, field: &'static str },
    #[error("{message}.{field} is {value}, which is not allowed")]
    BadValue { message: &'static str, field: &'static str, value: u64 },
    #[error("{0} is not expected here")]
    Unexpected(&'static str),
}

fn handles(raw: Vec<u32>) -> Vec<Handle> {
    raw.into_iter().map(Handle).collect()
}

fn raw(handles: &[Handle]) -> Vec<u32> {
    handles.iter().map(|handle| handle.0).collect()
}

fn event(value: u64, message: &'static str) -> Result<EventId, ConvertError> {
    if value == 0 {
        Err(ConvertError::BadValue { message, field: "event", value })
    } else {
        Ok(EventId(value))
    }
}

pub(crate) fn token(bytes: &[u8], message: &'static str) -> Result<ShareToken, ConvertError> {
    let value = bytes.len() as u64;
    bytes.try_into().map(ShareToken).map_err(|_| ConvertError::BadValue { message, field: "token", value })
}

fn luid_from(luid: Option<wire::Luid>, message: &'static str) -> Result<Luid, ConvertError> {
    let luid = luid.ok_or(ConvertError::Missing { message, field: "luid" })?;
    Ok(Luid { low: luid.low, high: luid.high })
}

/// A LUID as a message.
pub fn luid_to_wire(luid: Luid) -> wire::Luid {
    wire::Luid { low: luid.low, high: luid.high }
}

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
            Body::CreateSynchronizationObject(create_sync_to_wire(*device, info, *legacy))
        }
        Call::DestroySynchronizationObject { object } => Body::DestroySynchronizationObject(object.0),
        Call::SignalFromCpu { device, objects, values, flags } => Body::SignalFromCpu(wire::SignalFromCpu {
            device: device.0,
            objects: raw(objects),
            values: values.clone(),
            flags: flags.bits(),
        }),
        Call::WaitFromCpu { device, objects, values, flags, event } => Body::WaitFromCpu(wire::WaitFromCpu {
            device: device.0,
            objects: raw(objects),
            values: values.clone(),
            flags: flags.bits(),
            event: event.0,
        }),
        Call::CancelWait { event } => Body::CancelWait(event.0),
        Call::SignalFromGpu { contexts, signal, flags } => {
            Body::SignalFromGpu(signal_to_wire(contexts, signal, *flags))
        }
        Call::WaitFromGpu { context, objects, values } => Body::WaitFromGpu(wire::WaitFromGpu {
            context: context.0,
            objects: raw(objects),
            values: values.clone(),
        }),
        Call::SubmitCommand { contexts, commands, length, flags, private_data } => {
            Body::SubmitCommand(wire::SubmitCommand {
                contexts: raw(contexts),
                commands: *commands,
                length: *length,
                flags: *flags,
                private_data: private_data.clone(),
            })
        }
        Call::ShareObject { object, desired_access, token } => Body::ShareObject(wire::ShareObject {
            object: object.0,
            desired_access: *desired_access,
            token: token.0.to_vec(),
        }),
        Call::OpenSyncObject { device, token, flags, engine_affinity } => {
            Body::OpenSyncObject(wire::OpenSyncObject {
                device: device.0,
                token: token.0.to_vec(),
                flags: flags.bits(),
                engine_affinity: *engine_affinity,
            })
        }
        Call::CloseShare { token } => Body::CloseShare(token.0.to_vec()),
    };
    wire::ToHost { request, body: Some(body) }
}

fn create_sync_to_wire(
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
    }
}

fn create_sync_from_wire(wire: wire::CreateSynchronizationObject) -> Call {
    let info = SyncObjectInfo {
        object_type: SyncObjectType(wire.object_type),
        flags: SyncObjectFlags::from_bits_retain(wire.flags),
        initial_state: wire.initial_state,
        max_count: wire.max_count,
        initial_count: wire.initial_count,
        initial_value: wire.initial_value,
        engine_affinity: wire.engine_affinity,
        event: (wire.event != 0).then_some(EventId(wire.event)),
    };
    Call::CreateSynchronizationObject { device: Handle(wire.device), info, legacy: wire.legacy }
}

fn signal_to_wire(contexts: &[Handle], signal: &GpuSignal, flags: SignalFlags) -> wire::SignalFromGpu {
    let (objects, values, event) = match signal {
        GpuSignal::Monitored { objects, values } => (raw(objects), values.clone(), 0),
        GpuSignal::CpuEvent { event } => (Vec::new(), Vec::new(), event.0),
    };
    wire::SignalFromGpu { contexts: raw(contexts), objects, values, flags: flags.bits(), event }
}

fn signal_from_wire(wire: wire::SignalFromGpu) -> Result<Call, ConvertError> {
    let signal = if wire.event == 0 {
        GpuSignal::Monitored { objects: handles(wire.objects), values: wire.values }
    } else if wire.objects.is_empty() && wire.values.is_empty() {
        GpuSignal::CpuEvent { event: EventId(wire.event) }
    } else {
        return Err(ConvertError::BadValue { message: "SignalFromGpu", field: "event", value: wire.event });
    };
    Ok(Call::SignalFromGpu {
        contexts: handles(wire.contexts),
        signal,
        flags: SignalFlags::from_bits_retain(wire.flags),
    })
}

/// The call that a frame makes. Hello is none: the stream's owner takes it before.
pub fn call_from_body(body: to_host::Body) -> Result<Call, ConvertError> {
    use to_host::Body;
    Ok(match body {
        Body::Hello(_) => return Err(ConvertError::Unexpected("a second Hello")),
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
        Body::CreateSynchronizationObject(wire) => create_sync_from_wire(wire),
        Body::DestroySynchronizationObject(object) => {
            Call::DestroySynchronizationObject { object: Handle(object) }
        }
        Body::SignalFromCpu(wire) => Call::SignalFromCpu {
            device: Handle(wire.device),
            objects: handles(wire.objects),
            values: wire.values,
            flags: SignalFlags::from_bits_retain(wire.flags),
        },
        Body::WaitFromCpu(wire) => Call::WaitFromCpu {
            device: Handle(wire.device),
            objects: handles(wire.objects),
            values: wire.values,
            flags: WaitFromCpuFlags::from_bits_retain(wire.flags),
            event: event(wire.event, "WaitFromCpu")?,
        },
        Body::CancelWait(name) => Call::CancelWait { event: event(name, "CancelWait")? },
        Body::SignalFromGpu(wire) => signal_from_wire(wire)?,
        Body::WaitFromGpu(wire) => Call::WaitFromGpu {
            context: Handle(wire.context),
            objects: handles(wire.objects),
            values: wire.values,
        },
        Body::SubmitCommand(wire) => Call::SubmitCommand {
            contexts: handles(wire.contexts),
            commands: wire.commands,
            length: wire.length,
            flags: wire.flags,
            private_data: wire.private_data,
        },
        Body::ShareObject(wire) => Call::ShareObject {
            object: Handle(wire.object),
            desired_access: wire.desired_access,
            token: token(&wire.token, "ShareObject")?,
        },
        Body::OpenSyncObject(wire) => Call::OpenSyncObject {
            device: Handle(wire.device),
            token: token(&wire.token, "OpenSyncObject")?,
            flags: SyncObjectFlags::from_bits_retain(wire.flags),
            engine_affinity: wire.engine_affinity,
        },
        Body::CloseShare(bytes) => Call::CloseShare { token: token(&bytes, "CloseShare")? },
    })
}

/// The frame that answers a request.
pub fn answer_to_frame(request: u64, status: NtStatus, reply: &Reply) -> wire::ToGuest {
    wire::ToGuest { request, status: status.0, body: reply_to_body(reply) }
}

/// What a frame says of a reply.
pub(crate) fn reply_to_body(reply: &Reply) -> Option<to_guest::Body> {
    use to_guest::Body;
    match reply {
        Reply::None => None,
        Reply::Adapters(adapters) => Some(Body::Adapters(wire::Adapters {
            adapters: adapters
                .iter()
                .map(|adapter| wire::Adapter {
                    handle: adapter.handle.0,
                    luid: Some(luid_to_wire(adapter.luid)),
                    sources: adapter.sources,
                })
                .collect(),
        })),
        Reply::Adapter(adapter) => Some(Body::Adapter(adapter.0)),
        Reply::AdapterInfo(data) => Some(Body::AdapterInfo(data.clone())),
        Reply::Device(device) => Some(Body::Device(device.0)),
        Reply::DeviceState(state) => Some(Body::DeviceState(*state)),
        Reply::Context(context) => Some(Body::Context(context.0)),
        Reply::SyncObject(created) => Some(Body::SyncObject(wire::SyncObject {
            object: created.object.0,
            shared_handle: created.shared_handle.0,
            slot_plus_one: created.slot.map_or(0, |slot| slot + 1),
            gpu_address: created.gpu_address,
        })),
        Reply::Wait(outcome) => Some(Body::WaitSatisfied(match outcome {
            WaitOutcome::Satisfied => true,
            WaitOutcome::Registered => false,
        })),
        Reply::FenceMemoryExhausted => Some(Body::FenceMemoryExhausted(true)),
    }
}

/// The frame that wakes a wait or sets an event.
pub fn wake_to_frame(event: EventId, status: NtStatus) -> wire::ToGuest {
    wire::ToGuest { request: 0, status: status.0, body: Some(to_guest::Body::Wake(event.0)) }
}

/// What a frame from the host says.
#[derive(Clone, PartialEq, Debug)]
pub enum FromHost {
    Welcome(wire::Welcome),
    Goodbye(String),
    Wake { event: EventId, status: NtStatus },
    Answer { request: u64, status: NtStatus, reply: Reply },
}

/// Reads a frame from the host.
pub fn from_host(frame: wire::ToGuest) -> Result<FromHost, ConvertError> {
    use to_guest::Body;
    let status = NtStatus(frame.status);
    let reply = match frame.body {
        Some(Body::Welcome(welcome)) => return Ok(FromHost::Welcome(welcome)),
        Some(Body::Goodbye(reason)) => return Ok(FromHost::Goodbye(reason)),
        Some(Body::Wake(name)) => return Ok(FromHost::Wake { event: event(name, "Wake")?, status }),
        body => reply_from_body(body)?,
    };
    if frame.request == 0 {
        return Err(ConvertError::Unexpected("an answer to request 0"));
    }
    Ok(FromHost::Answer { request: frame.request, status, reply })
}

/// The reply that a frame carries.
pub(crate) fn reply_from_body(body: Option<to_guest::Body>) -> Result<Reply, ConvertError> {
    use to_guest::Body;
    Ok(match body {
        None => Reply::None,
        Some(Body::Welcome(_)) => return Err(ConvertError::Unexpected("a Welcome")),
        Some(Body::Goodbye(_)) => return Err(ConvertError::Unexpected("a Goodbye")),
        Some(Body::Wake(_)) => return Err(ConvertError::Unexpected("a Wake")),
        Some(Body::Adapters(list)) => Reply::Adapters(
            list.adapters
                .into_iter()
                .map(|adapter| {
                    let luid = luid_from(adapter.luid, "Adapter")?;
                    Ok(Adapter { handle: Handle(adapter.handle), luid, sources: adapter.sources })
                })
                .collect::<Result<_, ConvertError>>()?,
        ),
        Some(Body::Adapter(adapter)) => Reply::Adapter(Handle(adapter)),
        Some(Body::AdapterInfo(data)) => Reply::AdapterInfo(data),
        Some(Body::Device(device)) => Reply::Device(Handle(device)),
        Some(Body::DeviceState(state)) => Reply::DeviceState(state),
        Some(Body::Context(context)) => Reply::Context(Handle(context)),
        Some(Body::SyncObject(wire)) => Reply::SyncObject(CreatedSyncObject {
            object: Handle(wire.object),
            shared_handle: Handle(wire.shared_handle),
            slot: wire.slot_plus_one.checked_sub(1),
            gpu_address: wire.gpu_address,
        }),
        Some(Body::WaitSatisfied(satisfied)) => {
            Reply::Wait(if satisfied { WaitOutcome::Satisfied } else { WaitOutcome::Registered })
        }
        Some(Body::FenceMemoryExhausted(_)) => Reply::FenceMemoryExhausted,
    })
}
