//! What an actor does, drawn by number.

use d3dkmt::{
    CreateContextFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, NtStatus, SignalFlags, SyncObjectFlags,
    SyncObjectType, WaitFromCpuFlags, limits,
};
use scenario::program::*;

use crate::programs::Drawing;

impl Drawing {
    pub fn act(&mut self, thread: Thread, in_race: bool) -> Act {
        let operation = self.operation(thread, in_race);
        let kind = kind_of(&operation);
        let own = !operation.is_call();
        let is_device = matches!(operation, Operation::Device { .. });
        let expected = match self.below(4) {
            _ if own => Expected::Status(NtStatus::SUCCESS),
            0 if !in_race && !is_device => Expected::Blocks,
            1 => Expected::Any,
            _ => Expected::Status(self.status()),
        };
        let named = operation.needs_name()
            || kind == Kind::Messages
            || expected == Expected::Blocks
            || self.random.one_in(2);
        let binding = named.then(|| {
            let binding = Binding(self.program.bindings.len() as u32);
            let name = format!("n{}", binding.0);
            let fence = Named { name: fence_name(&name), kind: Kind::Object, thread };
            self.program.bindings.push(Named { name, kind, thread });
            if kind.has_fence() {
                self.program.bindings.push(fence);
            }
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
        match self.below(46) {
            40.. => self.of_lists(thread),
            24..40 => self.of_queues(share),
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
            7 if self.random.one_in(2) => {
                Operation::Completed { device: self.handle(), object: self.handle() }
            }
            7 => Operation::DeviceState { device: self.handle(), state_type: self.value32() },
            8 => {
                let node = if self.random.one_in(3) { self.value32() } else { self.below(8) as u32 };
                let flags = CreateContextFlags::from_bits_retain(self.bits(CreateContextFlags::all().bits()));
                Operation::CreateContext { device: self.handle(), node, flags }
            }
            9 => Operation::DestroyContext { context: self.handle() },
            10 | 11 => Operation::CreateObject { device: self.handle(), spec: self.spec(event) },
            12 => Operation::DestroyObject { object: self.handle() },
            13 => Operation::Share {
                objects: self.handles(),
                access: self.value32(),
                name: self.random.one_in(2).then(|| self.text()),
            },
            14 if share.is_some() => {
                let (share, flags) = (share.expect("just seen"), self.object_flags());
                let (engine_affinity, legacy) = (self.value32(), self.random.one_in(3));
                Operation::Open { device: self.handle(), share, flags, engine_affinity, legacy }
            }
            23 if share.is_some() => {
                Operation::OpenAllocation { device: self.handle(), share: share.expect("just seen") }
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
            adapter: if self.random.one_in(3) { Some(self.handle()) } else { None },
            target: self.value32(),
            time_100ns: self.below(1 << 40),
            legacy: self.random.one_in(3),
        }
    }

    fn address(&mut self) -> Address {
        match self.binding(|named| named.kind == Kind::Address) {
            Some(binding) if self.random.one_in(2) => Address::Bound(binding),
            _ => Address::Number(self.value()),
        }
    }

    fn space(&mut self) -> Space {
        Space { base: self.address(), minimum: self.value(), maximum: self.value() }
    }

    fn data(&mut self) -> Option<String> {
        self.random.one_in(2).then(|| self.text())
    }

    fn of_queues(&mut self, share: Option<Binding>) -> Operation {
        match self.below(46) {
            40.. => self.of_memory(),
            36 | 37 => self.escape(),
            38 => Operation::Feature { adapter: self.handle(), feature: self.value32() },
            0 => Operation::OpenName { name: self.text(), access: self.value32() },
            1 => Operation::OpenGlobal { object: self.handle() },
            2 => Operation::GpuSignalLegacy {
                contexts: self.handles(),
                objects: self.handles(),
                value: self.value(),
                flags: self.signal_flags(),
            },
            3 => Operation::GpuWaitLegacy {
                context: self.handle(),
                objects: self.handles(),
                value: self.value(),
            },
            4 => Operation::CreateKeyedMutex {
                key: self.value(),
                data: self.data(),
                flags: KeyedMutexFlags::from_bits_retain(self.bits(1)),
            },
            5 => {
                Operation::OpenKeyedMutex { mutex: self.handle(), buffer: self.value32(), data: self.data() }
            }
            6 if share.is_some() => Operation::OpenSharedKeyedMutex {
                share: share.expect("just seen"),
                buffer: self.value32(),
                data: self.data(),
            },
            7 => Operation::DestroyKeyedMutex { mutex: self.handle() },
            8 | 9 => {
                let time = self.below(1 << 40) * 100;
                let timeouts = [Timeout::Forever, Timeout::Poll, Timeout::Within(time), Timeout::Until(time)];
                let timeout = *self.random.pick(&timeouts).expect("there are some");
                Operation::Acquire { mutex: self.handle(), key: self.value(), timeout }
            }
            10 => Operation::Release {
                mutex: self.handle(),
                key: self.value(),
                value: self.value(),
                data: self.data(),
            },
            11 => {
                let priority = self.below(3) as i32 - 1;
                Operation::CreatePagingQueue { device: self.handle(), priority }
            }
            12 => Operation::DestroyPagingQueue { queue: self.handle() },
            13 => Operation::Reserve { owner: self.handle(), space: self.space(), bytes: self.value() },
            14 => Operation::Map {
                queue: self.handle(),
                allocation: self.handle(),
                space: self.space(),
                offset: self.value(),
                pages: self.value(),
                protection: self.value(),
            },
            15 => {
                Operation::FreeAddress { adapter: self.handle(), base: self.address(), bytes: self.value() }
            }
            16 => {
                let count = self.below(4);
                let operations =
                    (0..count).map(|_| (self.below(4) as u32, self.address(), self.value())).collect();
                let (device, context, fence) = (self.handle(), self.handle(), self.handle());
                Operation::UpdateAddress { device, context, fence, value: self.value(), operations }
            }
            other => self.of_hardware(other, share),
        }
    }

    fn of_memory(&mut self) -> Operation {
        let device = self.handle();
        match self.below(6) {
            0 => Operation::Allocate { device, bytes: self.value(), shared: self.random.one_in(2) },
            1 => Operation::DestroyAllocation { device, allocation: self.handle() },
            2 => {
                Operation::MakeResident { queue: device, allocations: self.handles(), flags: self.value32() }
            }
            3 => Operation::Evict { device, allocations: self.handles() },
            4 => Operation::Lock { device, allocation: self.handle() },
            _ => Operation::Unlock { device, allocation: self.handle() },
        }
    }

    fn of_hardware(&mut self, which: u64, share: Option<Binding>) -> Operation {
        match which {
            17 | 18 => {
                let flags = HwQueueFlags::from_bits_retain(self.bits(HwQueueFlags::all().bits()));
                Operation::CreateHwQueue { context: self.handle(), flags }
            }
            19 => Operation::DestroyHwQueue { queue: self.handle() },
            20 => Operation::SubmitHw { queue: self.handle(), id: self.value(), commands: self.commands() },
            21 => Operation::HwSignal {
                queues: self.handles(),
                targets: self.pairs(),
                flags: self.signal_flags(),
            },
            22 => Operation::HwWait { queue: self.handle(), items: self.pairs() },
            23 => Operation::CreateNativeFence {
                device: self.handle(),
                initial: self.value(),
                native_type: self.value32(),
                flags: self.object_flags(),
                engine_affinity: self.value32(),
            },
            24 if share.is_some() => Operation::OpenNativeFence {
                device: self.handle(),
                share: share.expect("just seen"),
                flags: self.object_flags(),
            },
            25 => Operation::CreateDoorbell { queue: self.handle() },
            26 => Operation::ConnectDoorbell { queue: self.handle() },
            27 => Operation::DestroyDoorbell { queue: self.handle() },
            28 => {
                Operation::RingDoorbell { queue: self.handle(), id: self.value(), commands: self.commands() }
            }
            29 => Operation::NotifyWork { queue: self.handle() },
            30 => Operation::SetPriority {
                context: self.handle(),
                priority: self.value32() as i32,
                in_process: self.random.one_in(2),
            },
            31 => Operation::Priority { context: self.handle(), in_process: self.random.one_in(2) },
            32 => Operation::SetPriorityClass { class: self.value32() },
            33 => Operation::PriorityClass,
            _ => Operation::MarkError { device: self.handle(), reason: self.value32() },
        }
    }

    fn escape(&mut self) -> Operation {
        Operation::Escape {
            adapter: self.handle(),
            device: self.handle(),
            context: self.handle(),
            kind: self.value32(),
            flags: EscapeFlags::from_bits_retain(self.value32()),
            data: self.pieces(false),
        }
    }

    /// Data for a call, or expected of one: at least a piece then.
    pub fn pieces(&mut self, expected: bool) -> Vec<Piece> {
        let call = self.binding(|named| named.kind == Kind::Call);
        let count = u64::from(expected) + self.below(4);
        let kinds = if expected { 8 } else { 6 };
        let piece = |drawing: &mut Drawing| match (drawing.below(kinds), call) {
            (0, _) => Piece::U32((0..=drawing.below(4)).map(|_| drawing.word32()).collect()),
            (1, _) => Piece::U64(drawing.value()),
            (2, _) => Piece::Zeros(drawing.below(100) as u32),
            (3, Some(call)) => Piece::KmdCpuEvent(call),
            (4, _) => Piece::CpuEventUsage {
                object: drawing.handle(),
                usage: (0..drawing.below(USAGE_WORDS as u64 + 1)).map(|_| drawing.value32()).collect(),
            },
            (6, _) => Piece::Any(drawing.below(100) as u32),
            (7, _) => Piece::Some(drawing.below(100) as u32),
            _ => Piece::Text(drawing.text()),
        };
        (0..count).map(|_| piece(self)).collect()
    }

    /// A handle by its name, or any number.
    fn word32(&mut self) -> HandleRef {
        match self.handle() {
            HandleRef::Raw(_) => HandleRef::Raw(self.value32()),
            bound => bound,
        }
    }

    fn commands(&mut self) -> Vec<Command> {
        if self.random.one_in(5) {
            let bytes = self.below(limits::PRIVATE_DATA_BYTES_MAX as u64 + 1) as u32;
            return vec![Command::Opaque { bytes }];
        }
        let list = self.binding(|named| named.kind == Kind::List);
        let command = |drawing: &mut Drawing| match (drawing.below(4), list) {
            (3, Some(list)) => Command::List(list),
            (which, _) => drawing.command(which),
        };
        (0..self.below(4)).map(|_| command(self)).collect()
    }

    fn command(&mut self, which: u64) -> Command {
        let drawing = self;
        match which {
            0 => Command::Write {
                object: drawing.handle(),
                value: drawing.value(),
                mode: WriteMode::ALL[drawing.below(3) as usize],
            },
            1 => Command::Busy { duration_ns: drawing.value() },
            _ => Command::Hang,
        }
    }
}

/// What a name before `=` stands for.
const fn kind_of(operation: &Operation) -> Kind {
    match operation {
        Operation::EnumAdapters { .. } | Operation::OpenAdapter { .. } => Kind::Adapter,
        Operation::Device { .. } | Operation::CreateDevice { .. } => Kind::Device,
        Operation::CreateContext { .. } => Kind::Context,
        Operation::CreateObject { .. }
        | Operation::Open { .. }
        | Operation::OpenGlobal { .. }
        | Operation::CreateNativeFence { .. }
        | Operation::OpenNativeFence { .. } => Kind::Object,
        Operation::Share { .. } | Operation::OpenName { .. } => Kind::Share,
        Operation::CreateKeyedMutex { .. }
        | Operation::OpenKeyedMutex { .. }
        | Operation::OpenSharedKeyedMutex { .. } => Kind::KeyedMutex,
        Operation::CreatePagingQueue { .. } => Kind::PagingQueue,
        Operation::CreateHwQueue { .. } => Kind::HwQueue,
        Operation::Allocate { .. } | Operation::OpenAllocation { .. } => Kind::Allocation,
        Operation::CreateResource { .. } => Kind::Resource,
        Operation::NewList { .. } => Kind::List,
        Operation::ReadMessages { .. } => Kind::Messages,
        Operation::CreateDoorbell { .. } => Kind::Doorbell,
        Operation::Reserve { .. } | Operation::Map { .. } => Kind::Address,
        Operation::NewEvent => Kind::Event,
        Operation::Read { .. } => Kind::Register,
        _ => Kind::Call,
    }
}
