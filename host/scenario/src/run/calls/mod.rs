//! An act as a request: every name replaced by what it stands for.

mod lists;
mod objects;
mod pieces;
mod queues;

use d3dkmt::{Call, EventId, Handle, Handles, Luid, ShareToken, Values, isa};

use crate::program::{Act, Address, Binding, Command, HandleRef, Operation, WriteMode};
use crate::world::{Request, World};

use super::Run;

impl<W: World> Run<'_, W> {
    pub(super) fn handle(&self, handle: HandleRef) -> Handle {
        match handle {
            HandleRef::Bound(binding) => self.bound[binding.index()].handle,
            HandleRef::Raw(raw) => Handle(raw),
        }
    }

    fn address(&self, address: Address) -> u64 {
        match address {
            Address::Bound(binding) => self.bound[binding.index()].number.unwrap_or_default(),
            Address::Number(number) => number,
        }
    }

    pub(super) fn handles<L: FromIterator<Handle>>(&self, handles: &[HandleRef]) -> L {
        handles.iter().map(|handle| self.handle(*handle)).collect()
    }

    pub(super) fn pairs(&self, pairs: &[(HandleRef, u64)]) -> (Handles, Values) {
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
            Operation::CloseShare { share } => return Request::CloseShare { token: token(*share) },
            Operation::RingDoorbell { queue, id, commands } => {
                let buffers = vec![self.private_data(commands)];
                return Request::Ring { queue: self.handle(*queue), last_queued: *id, buffers };
            }
            Operation::Store { allocation, first, count, word } => {
                let allocation = self.bound[allocation.index()].handle;
                return Request::Store { allocation, first: *first, count: *count, word: *word };
            }
            Operation::CreateObject { spec, .. } => (self.call(act), event_of(&spec.event)),
            Operation::Wait { event, .. } => (self.call(act), event_of(event)),
            Operation::GpuSignalEvent { event, .. } => (self.call(act), Some(event.0)),
            _ => (self.call(act), None),
        };
        Request::Call { call, event }
    }

    pub(super) fn call(&self, act: &Act) -> Call {
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
            Operation::Completed { device, .. } => {
                /// `D3DKMT_DEVICESTATE_EXECUTION`.
                const EXECUTION: u32 = 1;
                Call::GetDeviceState { device: self.handle(*device), state_type: EXECUTION }
            }
            Operation::MarkError { device, reason } => {
                Call::MarkDeviceAsError { device: self.handle(*device), reason: *reason }
            }
            Operation::Escape { adapter, device, context, kind, flags, data } => Call::Escape {
                adapter: self.handle(*adapter),
                device: self.handle(*device),
                context: self.handle(*context),
                kind: *kind,
                flags: *flags,
                data: self.bytes(data),
            },
            Operation::Feature { adapter, feature } => {
                Call::IsFeatureEnabled { adapter: self.handle(*adapter), feature_id: *feature }
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
            Operation::SetPriority { context, priority, in_process } => Call::SetContextPriority {
                context: self.handle(*context),
                priority: *priority,
                in_process: *in_process,
            },
            Operation::Priority { context, in_process } => {
                Call::ContextPriority { context: self.handle(*context), in_process: *in_process }
            }
            Operation::SetPriorityClass { class } => Call::SetProcessPriorityClass { class: *class },
            Operation::PriorityClass => Call::ProcessPriorityClass,
            other => {
                let call = self.call_of_objects(act).or_else(|| self.call_of_queues(other));
                let call = call.or_else(|| self.call_of_memory(act));
                let call = call.or_else(|| self.call_of_paging(other)).or_else(|| self.call_of_lists(act));
                call.expect("what is no call makes none")
            }
        }
    }

    pub(super) fn private_data(&self, commands: &[Command]) -> Vec<u8> {
        if let [Command::Opaque { bytes }] = commands {
            return vec![0; *bytes as usize];
        }
        let packets = commands.iter().flat_map(|command| match *command {
            Command::List(list) => self.bound[list.index()].list.clone(),
            Command::Write { object, value, mode } => {
                let gpu_address = match object {
                    HandleRef::Bound(binding) => self.bound[binding.index()].gpu_address,
                    HandleRef::Raw(raw) => raw.into(),
                };
                vec![match mode {
                    WriteMode::Default => isa::Packet::FenceWrite { gpu_address, value },
                    WriteMode::MarkerIn => isa::Packet::MarkerIn { gpu_address, value },
                    WriteMode::MarkerOut => isa::Packet::MarkerOut { gpu_address, value },
                }]
            }
            Command::Busy { duration_ns } => vec![isa::Packet::Busy { duration_ns }],
            Command::Hang => vec![isa::Packet::Hang],
            Command::Opaque { .. } => Vec::new(),
        });
        isa::encode(&packets.collect::<Vec<_>>())
    }
}

/// The arm fills in the ids of events.
const NO_EVENT: EventId = EventId(u64::MAX);

/// The runner's name for what an NT handle stands for.
fn token(share: Binding) -> ShareToken {
    let mut bytes = [0x5C; 16];
    bytes[..4].copy_from_slice(&share.0.to_le_bytes());
    ShareToken(bytes)
}
