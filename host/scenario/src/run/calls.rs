//! An act as a request: every name replaced by what it stands for.

use d3dkmt::{Call, EventId, GpuSignal, Handle, Luid, ShareToken, SyncObjectInfo, isa};

use crate::program::{Act, Binding, Command, HandleRef, ObjectSpec, Operation};
use crate::world::{Request, World};

use super::Run;

impl<W: World> Run<'_, W> {
    pub(super) fn handle(&self, handle: HandleRef) -> Handle {
        match handle {
            HandleRef::Bound(binding) => self.bound[binding.index()].handle,
            HandleRef::Raw(raw) => Handle(raw),
        }
    }

    pub(super) fn handles(&self, handles: &[HandleRef]) -> Vec<Handle> {
        handles.iter().map(|handle| self.handle(*handle)).collect()
    }

    pub(super) fn pairs(&self, pairs: &[(HandleRef, u64)]) -> (Vec<Handle>, Vec<u64>) {
        pairs.iter().map(|(object, value)| (self.handle(*object), *value)).unzip()
    }

    pub(super) fn luid(&self, adapter: u32) -> Luid {
        self.program.setting.kernel.adapters[adapter as usize].luid
    }

    pub(super) fn request(&self, act: &Act) -> Request {
        let event_of = |event: &Option<Binding>| event.map(|event| event.0);
        let (call, event) = match &act.operation {
            Operation::NewEvent => {
                let event = act.binding.expect("an event has a name").0;
                return Request::NewEvent { event };
            }
            Operation::CreateObject { spec, .. } => (self.call(act), event_of(&spec.event)),
            Operation::Wait { event, .. } => (self.call(act), event_of(event)),
            Operation::GpuSignalEvent { event, .. } => (self.call(act), Some(event.0)),
            _ => (self.call(act), None),
        };
        Request::Call { call, event }
    }

    pub(super) fn call(&self, act: &Act) -> Call {
        // The arm fills in the ids of events.
        let no_event = EventId(u64::MAX);
        match &act.operation {
            Operation::EnumAdapters { capacity } => Call::EnumAdapters { capacity: *capacity },
            Operation::OpenAdapter { adapter } | Operation::Device { adapter } => {
                Call::OpenAdapterFromLuid { luid: self.luid(*adapter) }
            }
            Operation::CloseAdapter { adapter } => Call::CloseAdapter { adapter: self.handle(*adapter) },
            Operation::QueryAdapter { adapter, kind, bytes } => {
                let data = vec![0; *bytes as usize];
                Call::QueryAdapterInfo { adapter: self.handle(*adapter), kind: *kind, data }
            }
            Operation::CreateDevice { adapter } => {
                Call::CreateDevice { adapter: self.handle(*adapter), flags: 0 }
            }
            Operation::DestroyDevice { device } => Call::DestroyDevice { device: self.handle(*device) },
            Operation::DeviceState { device, state_type } => {
                Call::GetDeviceState { device: self.handle(*device), state_type: *state_type }
            }
            Operation::CreateContext { device, node, flags } => Call::CreateContextVirtual {
                device: self.handle(*device),
                node_ordinal: *node,
                engine_affinity: 0,
                flags: *flags,
                client_hint: 0,
                private_data: Vec::new(),
            },
            Operation::DestroyContext { context } => Call::DestroyContext { context: self.handle(*context) },
            Operation::CreateObject { device, spec } => {
                let info = info(spec, spec.event.map(|_| no_event));
                Call::CreateSynchronizationObject { device: self.handle(*device), info, legacy: spec.legacy }
            }
            Operation::DestroyObject { object } => {
                Call::DestroySynchronizationObject { object: self.handle(*object) }
            }
            Operation::Share { object } => {
                let token = token(act.binding.unwrap_or(Binding(u32::MAX)));
                let objects = vec![self.handle(*object)];
                Call::ShareObjects { objects, desired_access: 0x1000_0000, name: None, token }
            }
            Operation::Open { device, share, flags } => {
                let (device, flags) = (self.handle(*device), *flags);
                let token = token(*share);
                Call::OpenSyncObject { device, token, flags, engine_affinity: 0, legacy: false }
            }
            Operation::CloseShare { share } => Call::CloseShare { token: token(*share) },
            Operation::Signal { device, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                Call::SignalFromCpu { device: self.handle(*device), objects, values, flags: *flags }
            }
            Operation::Wait { device, items, flags, .. } => {
                let (objects, values) = self.pairs(items);
                Call::WaitFromCpu {
                    device: self.handle(*device),
                    objects,
                    values,
                    flags: *flags,
                    event: no_event,
                }
            }
            Operation::GpuSignal { contexts, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                let signal = GpuSignal::Monitored { objects, values };
                Call::SignalFromGpu { contexts: self.handles(contexts), signal, flags: *flags }
            }
            Operation::GpuSignalEvent { contexts, flags, .. } => Call::SignalFromGpu {
                contexts: self.handles(contexts),
                signal: GpuSignal::CpuEvent { event: no_event },
                flags: *flags,
            },
            Operation::GpuWait { context, items } => {
                let (objects, values) = self.pairs(items);
                Call::WaitFromGpu { context: self.handle(*context), objects, values }
            }
            Operation::Submit { contexts, commands } => Call::SubmitCommand {
                contexts: self.handles(contexts),
                commands: 0,
                length: 0,
                flags: 0,
                private_data: self.private_data(commands),
            },
            Operation::NewEvent | Operation::Read { .. } => unreachable!("these are no calls"),
        }
    }

    pub(super) fn private_data(&self, commands: &[Command]) -> Vec<u8> {
        if let [Command::Opaque { bytes }] = commands {
            return vec![0; *bytes as usize];
        }
        let packets = commands.iter().filter_map(|command| match *command {
            Command::Write { object, value } => {
                let gpu_address = match object {
                    HandleRef::Bound(binding) => self.bound[binding.index()].gpu_address,
                    HandleRef::Raw(raw) => raw.into(),
                };
                Some(isa::Packet::FenceWrite { gpu_address, value })
            }
            Command::Busy { duration_ns } => Some(isa::Packet::Busy { duration_ns }),
            Command::Hang => Some(isa::Packet::Hang),
            Command::Opaque { .. } => None,
        });
        isa::encode(&packets.collect::<Vec<_>>())
    }
}

/// The runner's name for what an NT handle stands for.
pub(super) fn token(share: Binding) -> ShareToken {
    let mut bytes = [0x5C; 16];
    bytes[..4].copy_from_slice(&share.0.to_le_bytes());
    ShareToken(bytes)
}

pub(super) fn info(spec: &ObjectSpec, event: Option<EventId>) -> SyncObjectInfo {
    SyncObjectInfo {
        object_type: spec.object_type,
        flags: spec.flags,
        initial_state: spec.initial_state,
        max_count: spec.max_count,
        initial_count: spec.initial_count,
        initial_value: spec.initial_value,
        engine_affinity: spec.engine_affinity,
        event,
        ..SyncObjectInfo::default()
    }
}
