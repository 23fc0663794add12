//! Any call, drawn from an input by the rows of the table of calls, with names that the client has got.

use arbitrary::{Result, Unstructured};
use d3dkmt::names::kind::{
    Commands, EscapeData, FenceValue, FenceValues, GpuAddress, GpuSignal, GpuVaOperations, Handle,
    HandleList, Handles, Luid, MutexBuffer, MutexData, NewAllocation, NewMutexData, NewToken, ObjectInfo,
    OutBuffer, SharedHandle, Timeout, Token, WaitEvent,
};
use d3dkmt::names::{Kind, Numbers};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags,
    DestroyAllocationFlags, EscapeFlags, EventId, GpuVaOperation, HwQueueFlags, KeyedMutexFlags,
    ResourceInfo, RuntimeBuffer, ShareToken, SignalFlags, StandardAllocation, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType, WaitFromCpuFlags, isa,
};

/// Names that a client has got.
#[derive(Default)]
pub struct Known {
    pub handles: Vec<d3dkmt::Handle>,
    /// GPU virtual addresses, and other numbers of replies.
    pub numbers: Vec<u64>,
}

/// An input with what its client knows.
pub struct Drawn<'a, 'b> {
    pub input: &'a mut Unstructured<'b>,
    pub known: &'a Known,
}

impl Drawn<'_, '_> {
    fn list<T: Draw>(&mut self) -> Result<Vec<T>> {
        let count = *self.input.choose(&[1, 1, 1, 0, 2, 3, 33, 65])?;
        (0..count).map(|_| T::draw(self)).collect()
    }

    fn bits(&mut self) -> Result<u32> {
        Ok(match self.input.int_in_range(0..=3)? {
            0 => 0,
            1 => self.input.arbitrary()?,
            _ => 1 << self.input.int_in_range(0..=15)?,
        })
    }

    /// Commands for the simulated engines, at times damaged.
    fn commands(&mut self) -> Result<Vec<u8>> {
        let mut packets = Vec::new();
        for _ in 0..self.input.int_in_range(0..=3)? {
            let (gpu_address, value) = (u64::draw(self)?, u64::draw(self)?);
            packets.push(match self.input.int_in_range(0..=5)? {
                0 => isa::Packet::Busy { duration_ns: value },
                1 => isa::Packet::FenceWait { gpu_address, value },
                2 => isa::Packet::Hang,
                3 => isa::Packet::Timestamp { gpu_address },
                _ => isa::Packet::FenceWrite { gpu_address, value },
            });
        }
        let mut commands = isa::encode(&packets);
        if self.input.ratio(1, 8)? {
            let at = usize::from(self.input.arbitrary::<u8>()?) % commands.len();
            commands[at] ^= self.input.arbitrary::<u8>()?;
        }
        Ok(commands)
    }
}

/// A field that an input chooses.
pub trait Draw: Sized {
    fn draw(from: &mut Drawn<'_, '_>) -> Result<Self>;
}

macro_rules! draw {
    ($($type:ty: |$from:ident| $drawn:expr;)+) => {
        $(impl Draw for $type {
            fn draw($from: &mut Drawn<'_, '_>) -> Result<$type> {
                $drawn
            }
        })+
    };
}

draw! {
    bool: |from| from.input.arbitrary();
    u8: |from| from.input.arbitrary();
    i32: |from| from.input.arbitrary();
    u32: |from| match from.input.int_in_range(0..=3)? {
        0 => from.input.arbitrary(),
        _ => from.input.int_in_range(0..=40),
    };
    u64: |from| match from.input.int_in_range(0..=7)? {
        0 => from.input.arbitrary(),
        1 => Ok(u64::MAX - u64::from(from.input.arbitrary::<u8>()?)),
        2 => Ok(1 << from.input.int_in_range(0..=63)?),
        3 | 4 if !from.known.numbers.is_empty() => Ok(*from.input.choose(&from.known.numbers)?),
        _ => from.input.int_in_range(0..=20),
    };
    String: |from| from.input.arbitrary();
    d3dkmt::Handle: |from| match from.input.int_in_range(0..=7)? {
        0 => Ok(d3dkmt::Handle(from.input.arbitrary()?)),
        1 => Ok(d3dkmt::Handle::NULL),
        _ if from.known.handles.is_empty() => Ok(d3dkmt::Handle::NULL),
        _ => Ok(*from.input.choose(&from.known.handles)?),
    };
    d3dkmt::Handles: |from| from.list().map(d3dkmt::Handles::from);
    d3dkmt::Values: |from| from.list::<u64>().map(d3dkmt::Values::from);
    Vec<d3dkmt::Handle>: |from| from.list();
    Vec<u32>: |from| from.list();
    Vec<u64>: |from| from.list();
    Vec<u8>: |from| match from.input.int_in_range(0..=3)? {
        0 => from.commands(),
        // An escape of the simulated driver: its number, then words.
        1 => {
            let number = from.input.int_in_range(0..=12u32)?;
            Ok([&number.to_le_bytes()[..], from.input.arbitrary::<&[u8]>()?].concat())
        }
        _ => from.input.arbitrary(),
    };
    d3dkmt::Luid: |from| {
        let known = d3dkmt::Luid { low: 0x6770_0001, high: 0 };
        Ok(if from.input.arbitrary()? { known } else { d3dkmt::Luid { low: from.bits()?, high: 0 } })
    };
    EventId: |from| Ok(EventId(u64::from(from.input.arbitrary::<u8>()?) + 1));
    ShareToken: |from| Ok(ShareToken([from.input.int_in_range(0..=3)?; 16]));
    SyncObjectType: |from| Ok(SyncObjectType(from.input.int_in_range(0..=9)?));
    CreateAllocationFlags: |from| from.bits().map(CreateAllocationFlags::from_bits_retain);
    CreateContextFlags: |from| from.bits().map(CreateContextFlags::from_bits_retain);
    DestroyAllocationFlags: |from| from.bits().map(DestroyAllocationFlags::from_bits_retain);
    EscapeFlags: |from| from.bits().map(EscapeFlags::from_bits_retain);
    HwQueueFlags: |from| from.bits().map(HwQueueFlags::from_bits_retain);
    KeyedMutexFlags: |from| from.bits().map(KeyedMutexFlags::from_bits_retain);
    SignalFlags: |from| from.bits().map(SignalFlags::from_bits_retain);
    SyncObjectFlags: |from| from.bits().map(SyncObjectFlags::from_bits_retain);
    WaitFromCpuFlags: |from| from.bits().map(WaitFromCpuFlags::from_bits_retain);
    Vec<AllocationInfo>: |from| from.list();
    Vec<GpuVaOperation>: |from| from.list();
    Box<CreateAllocation>: |from| Draw::draw(from).map(Box::new);
    i64: |from| Ok(i64::from(from.input.arbitrary::<i16>()?));
    d3dkmt::GpuSignal: |from| Ok(match from.input.int_in_range(0..=3)? {
        0 => d3dkmt::GpuSignal::CpuEvent { event: Draw::draw(from)? },
        1 => d3dkmt::GpuSignal::Legacy { objects: Draw::draw(from)?, fence_value: Draw::draw(from)? },
        _ => d3dkmt::GpuSignal::Monitored { objects: Draw::draw(from)?, values: Draw::draw(from)? },
    });
}

impl<T: Draw> Draw for Option<T> {
    fn draw(from: &mut Drawn<'_, '_>) -> Result<Self> {
        Ok(if from.input.arbitrary()? { Some(T::draw(from)?) } else { None })
    }
}

macro_rules! draw_structs {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {
        $(impl Draw for $name {
            fn draw(from: &mut Drawn<'_, '_>) -> Result<$name> {
                Ok($name { $($field: Draw::draw(from)?),+ })
            }
        })+
    };
}

draw_structs! {
    RuntimeBuffer { size, present, data }
    ResourceInfo { runtime_data_size, private_data_size, total_private_data_size, allocations }
    StandardAllocation { kind, size, flags, private_data_size }
    AllocationInfo { system_memory, private_data, flags }
    CreateAllocation { device, resource, flags, standard, private_data, runtime_data, allocations }
    SyncObjectInfo {
        object_type, flags, initial_state, max_count, initial_count, initial_value, engine_affinity, event, adapter,
        vidpn_target, time_100ns,
    }
    GpuVaOperation {
        operation, base, size, allocation, allocation_offset, allocation_size, protection, destination,
    }
}

macro_rules! any_call {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// Any call.
        pub fn any_call(from: &mut Drawn<'_, '_>) -> Result<Call> {
            type Row = fn(&mut Drawn<'_, '_>) -> Result<Call>;
            const ROWS: &[Row] = &[$(|_from| {
                Ok(Call::$name {
                    $($($field: <<$kind as Kind<Numbers>>::Type as Draw>::draw(_from)?),+)?
                    $($bare: <<$bare_kind as Kind<Numbers>>::Type as Draw>::draw(_from)?)?
                })
            }),+];
            let row = usize::from(from.input.arbitrary::<u8>()?) % ROWS.len();
            ROWS[row](from)
        }
    };
}

d3dkmt::for_each_call!(any_call);
