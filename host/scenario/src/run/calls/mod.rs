//! Converts an act to a request: every name is replaced by its number.

mod driver_escapes;
mod numbers;
mod pieces;

use d3dkmt::{Call, CallOf, CreatedSyncObject, Handle, Luid, ShareToken, isa};

use crate::program::{
    Act, AdapterNumber, Address, Binding, Command, GpuSignalSpec, HandleRef, NamedCall, Operation, Share,
    WriteMode,
};
use crate::world::{Request, World};

pub(super) use self::numbers::memory_addresses;

use self::numbers::NumbersOf;

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

    pub(super) fn luid(&self, adapter: AdapterNumber) -> Luid {
        self.program.setting.kernel.adapters[adapter.0 as usize].luid
    }

    pub(super) fn request(&mut self, act: &Act) -> Request {
        let call = match &act.operation {
            Operation::Call(call) => {
                let new_token = self.new_token(act.binding);
                let names = &mut NumbersOf { run: self, binding: act.binding, new_token };
                let Ok(renamed) = call.rename(names);
                return Request::Call { call: renamed, event: event_of(call).map(|event| event.0) };
            }
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
            Operation::Device { adapter } => Call::OpenAdapterFromLuid { luid: self.luid(*adapter) },
            Operation::CreateResource { .. }
            | Operation::DestroyResource { .. }
            | Operation::DescribeFence { .. }
            | Operation::SetDebug { .. }
            | Operation::ReadMessages { .. } => self.escape_of_lists(act),
            Operation::NewList { .. } | Operation::Read { .. } => {
                unreachable!("a list and a load are the runner's own")
            }
        };
        Request::Call { call, event: None }
    }

    /// Returns the token of an NT handle that an act of this name may create. Acts without a name have one each, as
    /// each creates another NT handle.
    fn new_token(&mut self, binding: Option<Binding>) -> ShareToken {
        if let Some(binding) = binding {
            return token(Share(binding));
        }
        self.unnamed_acts += 1;
        let mut unnamed = token(Share::default());
        unnamed.0[4..8].copy_from_slice(&self.unnamed_acts.to_le_bytes());
        unnamed
    }

    /// Stores the results of an object's creation.
    pub(super) fn keep_object(&mut self, binding: Binding, created: &CreatedSyncObject) {
        let bound = &mut self.bound[binding.index()];
        bound.handle = created.object;
        bound.global = created.shared_handle;
        bound.gpu_address = created.gpu_address;
    }

    pub(super) fn private_data(&self, commands: &[Command]) -> Vec<u8> {
        if let [Command::Opaque { bytes }] = commands {
            return vec![0; *bytes as usize];
        }
        if let [Command::Word { .. }, ..] = commands {
            let word = |command: &Command| match command {
                Command::Word { value } => Some(value.to_le_bytes()),
                Command::Write { .. }
                | Command::Busy { .. }
                | Command::Hang
                | Command::List(_)
                | Command::Opaque { .. } => None,
            };
            return commands.iter().filter_map(word).flatten().collect();
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
            Command::Opaque { .. } | Command::Word { .. } => Vec::new(),
        });
        isa::encode(&packets.collect::<Vec<_>>())
    }
}

/// Returns the program's event that a call names.
pub(super) fn event_of(call: &NamedCall) -> Option<Binding> {
    match call {
        CallOf::CreateSynchronizationObject { info, .. } => info.event,
        CallOf::WaitFromCpu { event, .. } => *event,
        CallOf::SignalFromGpu { signal: GpuSignalSpec::CpuEvent { event }, .. } => Some(*event),
        _ => None,
    }
}

/// Returns the runner's token of an NT handle.
fn token(share: Share) -> ShareToken {
    let mut bytes = [0x5C; 16];
    bytes[..4].copy_from_slice(&share.0.0.to_le_bytes());
    ShareToken(bytes)
}
