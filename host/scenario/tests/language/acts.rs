//! Draws acts by number.

use d3dkmt::{
    CallOf, CreateContextFlags, DestroyAllocationFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, NtStatus,
    ResourceInfo, SignalFlags, SyncObjectFlags, SyncObjectType, Values, WaitFromCpuFlags, limits,
};
use scenario::program::*;
use scenario::script::as_written;

use crate::programs::Drawing;

impl Drawing {
    pub fn act(&mut self, thread: Thread, in_race: bool) -> Act {
        let operation = self.operation(thread, in_race);
        let kind = operation.result_kind();
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
        let share = self.binding(|named| named.kind == Kind::Share).map(Share);
        match self.below(46) {
            40.. => self.of_lists(thread),
            0 if !in_race => Operation::Device { adapter: AdapterNumber(self.below(adapters) as u32) },
            1 => Operation::Call(CallOf::GetDeviceState { device: self.handle(), state_type: 1 }),
            2 if share.is_some() => Operation::CloseShare { share: share.expect("just seen") },
            3 => match self.own(Kind::Object, thread) {
                Some(object) => Operation::Read { object: HandleRef::Bound(object) },
                None => Operation::NewEvent,
            },
            4 => {
                Operation::RingDoorbell { queue: self.handle(), id: self.value(), commands: self.commands() }
            }
            5 => Operation::NewEvent,
            _ => Operation::Call(self.any_call(thread)),
        }
    }

    /// Draws a call that a scenario can write.
    fn any_call(&mut self, thread: Thread) -> NamedCall {
        loop {
            let row = self.below(NamedCall::FORMS.len() as u64) as usize;
            let (name, form) = NamedCall::FORMS[row];
            let by_share = name.ends_with("FromNtHandle")
                || matches!(name, "OpenSyncObject" | "OpenNativeFence" | "OpenSyncFile" | "WaitSyncFile");
            let has_share = self.binding(|named| named.kind == Kind::Share).is_some();
            if !form.starts_with("- ") && (has_share || !by_share) {
                return as_written(&drawn(name, self, thread));
            }
        }
    }

    fn object_flags(&mut self) -> SyncObjectFlags {
        SyncObjectFlags::from_bits_retain(self.bits(SyncObjectFlags::all().bits()))
    }

    fn address(&mut self) -> Address {
        match self.binding(|named| named.kind == Kind::Address) {
            Some(binding) if self.random.one_in(2) => Address::Bound(binding),
            _ => Address::Number(self.value()),
        }
    }

    fn data(&mut self) -> Option<String> {
        self.random.one_in(2).then(|| self.text())
    }

    /// Draws data for a call, or expected data, which has at least one piece.
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

    /// Draws a handle by its name, or any number.
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
        if self.random.one_in(6) {
            return (0..=self.below(4)).map(|_| Command::Word { value: self.value32() }).collect();
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

/// A field of a call that can be drawn.
trait Draw {
    fn draw(drawing: &mut Drawing, thread: Thread) -> Self;
}

macro_rules! draws {
    ($($type:ty: |$drawing:ident, $thread:pat_param| $value:expr;)+) => {
        $(impl Draw for $type {
            fn draw($drawing: &mut Drawing, $thread: Thread) -> $type {
                $value
            }
        })+
    };
}

draws! {
    (): |_drawing, _| ();
    bool: |drawing, _| drawing.random.one_in(2);
    u32: |drawing, _| drawing.value32();
    // Priorities of a queue and of a context; others have no written form.
    i32: |drawing, _| drawing.below(3) as i32 - 1;
    u64: |drawing, _| drawing.value();
    String: |drawing, _| drawing.text();
    Option<String>: |drawing, _| drawing.data();
    Vec<u8>: |_drawing, _| Vec::new();
    Vec<u32>: |_drawing, _| Vec::new();
    ResourceInfo: |_drawing, _| ResourceInfo::default();
    Values: |drawing, _| (0..drawing.below(4)).map(|_| drawing.value()).collect();
    HandleRef: |drawing, _| drawing.handle();
    Vec<HandleRef>: |drawing, _| drawing.handles();
    AdapterNumber: |drawing, _| {
        let adapters = drawing.program.setting.kernel.adapters.len() as u64;
        AdapterNumber(drawing.below(adapters) as u32)
    };
    Option<Binding>: |drawing, thread| drawing.own(Kind::Event, thread).filter(|_| drawing.random.one_in(2));
    Share: |drawing, _| drawing.binding(|named| named.kind == Kind::Share).map(Share).unwrap_or_default();
    Address: |drawing, _| drawing.address();
    BufferSize: |drawing, _| BufferSize(drawing.below(limits::PRIVATE_DATA_BYTES_MAX as u64 + 1) as u32);
    MutexText: |drawing, _| MutexText(drawing.data());
    MutexBuffer: |drawing, _| MutexBuffer { size: drawing.value32(), data: MutexText(drawing.data()) };
    Timeout: |drawing, _| {
        let time = drawing.below(1 << 40) * 100;
        let timeouts = [Timeout::Forever, Timeout::Poll, Timeout::Within(time), Timeout::Until(time)];
        *drawing.random.pick(&timeouts).expect("there are some")
    };
    AllocationSpec: |drawing, _| AllocationSpec {
        device: drawing.handle(),
        bytes: drawing.value(),
        private_data: match drawing.below(4) {
            0 => PrivateData::None,
            1 => PrivateData::Described,
            2 => PrivateData::Device { local: drawing.below(2) == 0, cpu_visible: drawing.below(2) == 0 },
            _ => PrivateData::Foreign(12 + drawing.below(1000) as u32),
        },
        shared: drawing.random.one_in(2),
    };
    Vec<GpuVaRange>: |drawing, _| {
        let count = drawing.below(4);
        let range = |drawing: &mut Drawing| GpuVaRange {
            operation: drawing.below(4) as u32,
            base: drawing.address(),
            bytes: drawing.value(),
            allocation: drawing.handle(),
            offset: drawing.value(),
            span: drawing.value(),
            protection: drawing.value(),
            to: drawing.address(),
        };
        (0..count).map(|_| range(drawing)).collect()
    };
    Vec<Command>: |drawing, _| drawing.commands();
    Vec<Piece>: |drawing, _| drawing.pieces(false);
    GpuSignalSpec: |drawing, thread| match (drawing.below(3), drawing.own(Kind::Event, thread)) {
        (0, Some(event)) => GpuSignalSpec::CpuEvent { event },
        (1, _) => GpuSignalSpec::Legacy { objects: drawing.handles(), fence_value: drawing.value() },
        _ => GpuSignalSpec::Monitored { objects: drawing.handles(), values: Draw::draw(drawing, thread) },
    };
    ObjectSpec: |drawing, thread| {
        let object_type = if drawing.random.one_in(4) { drawing.value32() } else { drawing.below(9) as u32 };
        ObjectSpec {
            object_type: SyncObjectType(object_type),
            flags: drawing.object_flags(),
            initial_state: drawing.random.one_in(3),
            max_count: drawing.value32(),
            initial_count: drawing.value32(),
            initial_value: drawing.value(),
            engine_affinity: drawing.value32(),
            event: Draw::draw(drawing, thread),
            adapter: if drawing.random.one_in(3) { Some(drawing.handle()) } else { None },
            target: drawing.value32(),
            time_100ns: drawing.below(1 << 40),
        }
    };
}

macro_rules! draws_flags {
    ($($flags:ty),+) => {
        $(impl Draw for $flags {
            fn draw(drawing: &mut Drawing, _: Thread) -> $flags {
                <$flags>::from_bits_retain(drawing.bits(<$flags>::all().bits()))
            }
        })+
    };
}

draws_flags!(
    CreateContextFlags,
    DestroyAllocationFlags,
    EscapeFlags,
    HwQueueFlags,
    KeyedMutexFlags,
    SignalFlags,
    SyncObjectFlags,
    WaitFromCpuFlags
);

macro_rules! drawn_calls {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// Draws the call of this name, with any operands.
        fn drawn(name: &str, drawing: &mut Drawing, thread: Thread) -> NamedCall {
            match name {
                $(stringify!($name) => CallOf::$name {
                    $($($field: Draw::draw(drawing, thread)),+)?
                    $($bare: Draw::draw(drawing, thread))?
                },)+
                other => panic!("there is no call {other}"),
            }
        }
    };
}

d3dkmt::for_each_call!(drawn_calls);
