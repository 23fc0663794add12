//! What an actor does, drawn by number.

use d3dkmt::{
    CreateContextFlags, NtStatus, SignalFlags, SyncObjectFlags, SyncObjectType, WaitFromCpuFlags, limits,
};
use scenario::program::*;

use crate::programs::Drawing;

impl Drawing {
    pub fn act(&mut self, thread: Thread, in_race: bool) -> Act {
        let operation = self.operation(thread, in_race);
        let kind = kind_of(&operation);
        let own = matches!(operation, Operation::NewEvent | Operation::Read { .. });
        let is_device = matches!(operation, Operation::Device { .. });
        let expected = match self.below(4) {
            _ if own => Expected::Status(NtStatus::SUCCESS),
            0 if !in_race && !is_device => Expected::Blocks,
            1 => Expected::Any,
            _ => Expected::Status(self.status()),
        };
        let named = own || expected == Expected::Blocks || self.random.one_in(2);
        let binding = named.then(|| {
            let binding = Binding(self.program.bindings.len() as u32);
            self.program.bindings.push(Named { name: format!("n{}", binding.0), kind, thread });
            binding
        });
        if expected == Expected::Blocks {
            self.blocked[thread.index()] = binding;
        }
        Act { thread, binding, operation, expected }
    }

    fn operation(&mut self, thread: Thread, in_race: bool) -> Operation {
        let adapters = self.program.setting.kernel.adapters.len() as u64;
        let share = self.binding(|named| named.kind == Kind::Share);
        let event = self.own(Kind::Event, thread);
        match self.below(24) {
            0 => Operation::EnumAdapters { capacity: self.value32() },
            1 => Operation::OpenAdapter { adapter: self.below(adapters) as u32 },
            2 => Operation::CloseAdapter { adapter: self.handle() },
            3 => {
                let bytes = self.below(limits::PRIVATE_DATA_BYTES_MAX as u64 + 1) as u32;
                Operation::QueryAdapter { adapter: self.handle(), kind: self.value32(), bytes }
            }
            4 if !in_race => Operation::Device { adapter: self.below(adapters) as u32 },
            5 => Operation::CreateDevice { adapter: self.handle() },
            6 => Operation::DestroyDevice { device: self.handle() },
            7 => Operation::DeviceState { device: self.handle(), state_type: self.value32() },
            8 => {
                let node = if self.random.one_in(3) { self.value32() } else { self.below(8) as u32 };
                let flags = CreateContextFlags::from_bits_retain(self.bits(CreateContextFlags::all().bits()));
                Operation::CreateContext { device: self.handle(), node, flags }
            }
            9 => Operation::DestroyContext { context: self.handle() },
            10 | 11 => Operation::CreateObject { device: self.handle(), spec: self.spec(event) },
            12 => Operation::DestroyObject { object: self.handle() },
            13 => Operation::Share { object: self.handle() },
            14 if share.is_some() => {
                let (share, flags) = (share.expect("just seen"), self.object_flags());
                Operation::Open { device: self.handle(), share, flags }
            }
            15 if share.is_some() => Operation::CloseShare { share: share.expect("just seen") },
            16 => {
                Operation::Signal { device: self.handle(), targets: self.pairs(), flags: self.signal_flags() }
            }
            17 => {
                let flags = WaitFromCpuFlags::from_bits_retain(self.bits(1));
                Operation::Wait { device: self.handle(), items: self.pairs(), flags, event }
            }
            18 => Operation::GpuSignal {
                contexts: self.handles(),
                targets: self.pairs(),
                flags: self.signal_flags(),
            },
            19 if event.is_some() => Operation::GpuSignalEvent {
                contexts: self.handles(),
                event: event.expect("just seen"),
                flags: self.signal_flags() | SignalFlags::ENQUEUE_CPU_EVENT,
            },
            20 => Operation::GpuWait { context: self.handle(), items: self.pairs() },
            21 => Operation::Submit { contexts: self.handles(), commands: self.commands() },
            22 => match self.own(Kind::Object, thread) {
                Some(object) => Operation::Read { object: HandleRef::Bound(object) },
                None => Operation::NewEvent,
            },
            _ => Operation::NewEvent,
        }
    }

    fn object_flags(&mut self) -> SyncObjectFlags {
        SyncObjectFlags::from_bits_retain(self.bits(SyncObjectFlags::all().bits()))
    }

    fn signal_flags(&mut self) -> SignalFlags {
        SignalFlags::from_bits_retain(self.bits(SignalFlags::all().bits()))
    }

    fn spec(&mut self, event: Option<Binding>) -> ObjectSpec {
        let object_type = if self.random.one_in(4) { self.value32() } else { self.below(9) as u32 };
        ObjectSpec {
            object_type: SyncObjectType(object_type),
            flags: self.object_flags(),
            initial_state: self.random.one_in(3),
            max_count: self.value32(),
            initial_count: self.value32(),
            initial_value: self.value(),
            engine_affinity: self.value32(),
            event: event.filter(|_| self.random.one_in(2)),
            legacy: self.random.one_in(3),
        }
    }

    fn commands(&mut self) -> Vec<Command> {
        if self.random.one_in(5) {
            let bytes = self.below(limits::PRIVATE_DATA_BYTES_MAX as u64 + 1) as u32;
            return vec![Command::Opaque { bytes }];
        }
        let command = |drawing: &mut Drawing| match drawing.below(3) {
            0 => Command::Write { object: drawing.handle(), value: drawing.value() },
            1 => Command::Busy { duration_ns: drawing.value() },
            _ => Command::Hang,
        };
        (0..self.below(4)).map(|_| command(self)).collect()
    }
}

/// What a name before `=` stands for.
const fn kind_of(operation: &Operation) -> Kind {
    match operation {
        Operation::EnumAdapters { .. } | Operation::OpenAdapter { .. } => Kind::Adapter,
        Operation::Device { .. } | Operation::CreateDevice { .. } => Kind::Device,
        Operation::CreateContext { .. } => Kind::Context,
        Operation::CreateObject { .. } | Operation::Open { .. } => Kind::Object,
        Operation::Share { .. } => Kind::Share,
        Operation::NewEvent => Kind::Event,
        Operation::Read { .. } => Kind::Register,
        _ => Kind::Call,
    }
}
