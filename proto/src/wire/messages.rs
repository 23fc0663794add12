//! Structs that are messages: a row for each field, with its number.

use d3dkmt::{
    AcquireOutcome, Adapter, AllocationInfo, CreateAllocation, CreateAllocationFlags, CreatedSyncObject,
    EventId, GpuSignal, GpuVaOperation, Handle, Handles, Luid, PageFaultState, ResourceInfo, RuntimeBuffer,
    StandardAllocation, SyncObjectFlags, SyncObjectInfo, SyncObjectType, Values,
};
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{self as pb, DecodeContext, WireType};

use super::field::{Field, Incoming, Named};
use crate::convert::ConvertError;

/// A struct whose fields form one message.
pub(crate) trait Fields: Sized {
    type Read: Default;

    fn fields_len(&self) -> usize;
    fn encode_fields(&self, buf: &mut impl BufMut);
    fn merge_field<B: Buf>(
        read: &mut Self::Read,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError>;
    fn finish_fields(read: Self::Read) -> Result<Self, ConvertError>;
}

/// Length of a message with its key and length.
pub(crate) fn message_len(tag: u32, bytes: usize) -> usize {
    pb::key_len(tag) + pb::encoded_len_varint(bytes as u64) + bytes
}

pub(crate) fn encode_message_head(tag: u32, bytes: usize, buf: &mut impl BufMut) {
    pb::encode_key(tag, WireType::LengthDelimited, buf);
    pb::encode_varint(bytes as u64, buf);
}

/// Passes each field of a message to `field`, which returns whether it knew the field.
pub(crate) fn merge_message<B: Buf>(
    wire_type: WireType,
    buf: &mut B,
    context: DecodeContext,
    mut field: impl FnMut(&mut Incoming<'_, B>) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    pb::check_wire_type(WireType::LengthDelimited, wire_type)?;
    pb::merge_loop(&mut (), buf, context, |(), buf: &mut B, context| {
        let (number, wire_type) = pb::decode_key(buf)?;
        let mut incoming = Incoming { number, wire_type, buf, context };
        if field(&mut incoming)? {
            return Ok(());
        }
        pb::skip_field(wire_type, number, incoming.buf, incoming.context)
    })
}

/// Reads a whole message.
pub(crate) fn read_message<T: Fields, B: Buf>(
    wire_type: WireType,
    buf: &mut B,
    context: DecodeContext,
) -> Result<Result<T, ConvertError>, DecodeError> {
    let mut read = T::Read::default();
    merge_message(wire_type, buf, context, |incoming| T::merge_field(&mut read, incoming))?;
    Ok(T::finish_fields(read))
}

macro_rules! messages {
    ($($name:ident $message:ident { $($tag:tt $field:ident: $type:ty,)+ })+) => {
        $(#[derive(Default)]
        pub(crate) struct $message {
            $($field: <$type as Field>::Read,)+
        }

        impl Fields for $name {
            type Read = $message;

            fn fields_len(&self) -> usize {
                0 $(+ self.$field.encoded_len($tag))+
            }

            fn encode_fields(&self, buf: &mut impl BufMut) {
                $(self.$field.encode($tag, buf);)+
            }

            fn merge_field<B: Buf>(
                read: &mut $message,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                $(if <$type as Field>::merge(&mut read.$field, $tag, incoming)? {
                    return Ok(true);
                })+
                Ok(false)
            }

            fn finish_fields(read: $message) -> Result<$name, ConvertError> {
                Ok($name {
                    $($field: Field::finish(
                        read.$field,
                        Named { message: stringify!($name), field: stringify!($field) },
                    )?,)+
                })
            }
        })+
    };
}

messages! {
    RuntimeBuffer RuntimeBufferRead { 1 size: u32, 2 present: bool, 3 data: Vec<u8>, }
    ResourceInfo ResourceInfoRead {
        1 runtime_data_size: u32,
        2 private_data_size: u32,
        3 total_private_data_size: u32,
        4 allocations: u32,
    }
    StandardAllocation StandardAllocationRead { 1 kind: u32, 2 size: u64, 3 flags: u32, 4 private_data_size: u32, }
    AllocationInfo AllocationInfoRead { 1 system_memory: u64, 2 private_data: Vec<u8>, 3 flags: u32, }
    CreateAllocation CreateAllocationRead {
        1 device: Handle,
        2 resource: Handle,
        3 flags: CreateAllocationFlags,
        4 standard: Option<StandardAllocation>,
        5 private_data: Vec<u8>,
        6 runtime_data: Vec<u8>,
        7 allocations: Vec<AllocationInfo>,
    }
    SyncObjectInfo SyncObjectInfoRead {
        2 object_type: SyncObjectType,
        3 flags: SyncObjectFlags,
        4 initial_state: bool,
        5 max_count: u32,
        6 initial_count: u32,
        7 initial_value: u64,
        8 engine_affinity: u32,
        9 event: Option<EventId>,
        11 adapter: Handle,
        12 vidpn_target: u32,
        13 time_100ns: u64,
    }
    GpuVaOperation GpuVaOperationRead {
        1 operation: u32,
        2 base: u64,
        3 size: u64,
        4 allocation: Handle,
        5 allocation_offset: u64,
        6 allocation_size: u64,
        7 protection: u64,
        8 destination: u64,
    }
    Adapter AdapterRead { 1 handle: Handle, 2 luid: Luid, 3 sources: u32, 4 arrival: u32, }
    CreatedSyncObject CreatedSyncObjectRead {
        1 object: Handle,
        2 shared_handle: Handle,
        3 slot: Option<u32>,
        4 gpu_address: u64,
        5 paging_fence_value: u64,
        6 no_wait: bool,
    }
    PageFaultState PageFaultStateRead { 1 flags: u32, 2 gpu_address: u64, }
}

/// The low half is `fixed32`, like a handle.
impl Fields for Luid {
    type Read = (u32, i32);

    fn fields_len(&self) -> usize {
        Handle(self.low).encoded_len(1) + self.high.encoded_len(2)
    }

    fn encode_fields(&self, buf: &mut impl BufMut) {
        Handle(self.low).encode(1, buf);
        self.high.encode(2, buf);
    }

    fn merge_field<B: Buf>(
        (low, high): &mut (u32, i32),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        Ok(Handle::merge(low, 1, incoming)? || i32::merge(high, 2, incoming)?)
    }

    fn finish_fields((low, high): (u32, i32)) -> Result<Luid, ConvertError> {
        Ok(Luid { low, high })
    }
}

/// A slot of fence memory, plus one: 0 is none.
impl Field for Option<u32> {
    type Tag = u32;
    type Read = u32;

    fn encoded_len(&self, tag: u32) -> usize {
        self.map_or(0, |slot| slot + 1).encoded_len(tag)
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        self.map_or(0, |slot| slot + 1).encode(tag, buf);
    }

    fn merge<B: Buf>(read: &mut u32, tag: u32, incoming: &mut Incoming<'_, B>) -> Result<bool, DecodeError> {
        u32::merge(read, tag, incoming)
    }

    fn finish(read: u32, _: Named) -> Result<Option<u32>, ConvertError> {
        Ok(read.checked_sub(1))
    }
}

/// Message fields: `$required` ones must be present, `$optional` ones may be, `$repeated` ones are lists.
macro_rules! fields_of_messages {
    (required $($required:ty),+; optional $($optional:ty),+; repeated $($repeated:ty),+;) => {
        $(impl Field for $required {
            type Tag = u32;
            type Read = Option<Result<$required, ConvertError>>;

            fn encoded_len(&self, tag: u32) -> usize {
                message_len(tag, self.fields_len())
            }

            fn encode(&self, tag: u32, buf: &mut impl BufMut) {
                encode_message_head(tag, self.fields_len(), buf);
                self.encode_fields(buf);
            }

            fn merge<B: Buf>(
                read: &mut Self::Read,
                tag: u32,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                let is_it = incoming.number == tag;
                if is_it {
                    let context = incoming.context.clone();
                    *read = Some(read_message(incoming.wire_type, incoming.buf, context)?);
                }
                Ok(is_it)
            }

            fn finish(read: Self::Read, named: Named) -> Result<$required, ConvertError> {
                read.unwrap_or_else(|| Err(named.missing()))
            }
        })+

        $(impl Field for Option<$optional> {
            type Tag = u32;
            type Read = Option<Result<$optional, ConvertError>>;

            fn encoded_len(&self, tag: u32) -> usize {
                self.as_ref().map_or(0, |value| message_len(tag, value.fields_len()))
            }

            fn encode(&self, tag: u32, buf: &mut impl BufMut) {
                if let Some(value) = self {
                    encode_message_head(tag, value.fields_len(), buf);
                    value.encode_fields(buf);
                }
            }

            fn merge<B: Buf>(
                read: &mut Self::Read,
                tag: u32,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                let is_it = incoming.number == tag;
                if is_it {
                    let context = incoming.context.clone();
                    *read = Some(read_message(incoming.wire_type, incoming.buf, context)?);
                }
                Ok(is_it)
            }

            fn finish(read: Self::Read, _: Named) -> Result<Option<$optional>, ConvertError> {
                read.transpose()
            }
        })+

        $(impl Field for Vec<$repeated> {
            type Tag = u32;
            type Read = Vec<Result<$repeated, ConvertError>>;

            fn encoded_len(&self, tag: u32) -> usize {
                self.iter().map(|value| message_len(tag, value.fields_len())).sum()
            }

            fn encode(&self, tag: u32, buf: &mut impl BufMut) {
                for value in self {
                    encode_message_head(tag, value.fields_len(), buf);
                    value.encode_fields(buf);
                }
            }

            fn merge<B: Buf>(
                read: &mut Self::Read,
                tag: u32,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                let is_it = incoming.number == tag;
                if is_it {
                    let context = incoming.context.clone();
                    read.push(read_message(incoming.wire_type, incoming.buf, context)?);
                }
                Ok(is_it)
            }

            fn finish(read: Self::Read, _: Named) -> Result<Vec<$repeated>, ConvertError> {
                read.into_iter().collect()
            }
        })+
    };
}

fields_of_messages! {
    required Luid, RuntimeBuffer, ResourceInfo, CreatedSyncObject;
    optional StandardAllocation;
    repeated GpuVaOperation, AllocationInfo, Adapter;
}

/// Its fields are spread into the message of the call.
impl Field for SyncObjectInfo {
    type Tag = ();
    type Read = SyncObjectInfoRead;

    fn encoded_len(&self, (): ()) -> usize {
        self.fields_len()
    }

    fn encode(&self, (): (), buf: &mut impl BufMut) {
        SyncObjectInfo { adapter: Handle::NULL, vidpn_target: 0, time_100ns: 0, ..*self }.encode_fields(buf);
    }

    /// The fields of periodic fences only.
    fn encode_late(&self, (): (), buf: &mut impl BufMut) {
        let SyncObjectInfo { adapter, vidpn_target, time_100ns, .. } = *self;
        SyncObjectInfo { adapter, vidpn_target, time_100ns, ..SyncObjectInfo::default() }.encode_fields(buf);
    }

    fn merge<B: Buf>(
        read: &mut Self::Read,
        (): (),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        SyncObjectInfo::merge_field(read, incoming)
    }

    fn finish(read: Self::Read, _: Named) -> Result<SyncObjectInfo, ConvertError> {
        SyncObjectInfo::finish_fields(read)
    }
}

/// Its fields are spread into the message of the call.
impl Field for Box<CreateAllocation> {
    type Tag = ();
    type Read = CreateAllocationRead;

    fn encoded_len(&self, (): ()) -> usize {
        self.fields_len()
    }

    fn encode(&self, (): (), buf: &mut impl BufMut) {
        self.encode_fields(buf);
    }

    fn merge<B: Buf>(
        read: &mut Self::Read,
        (): (),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        CreateAllocation::merge_field(read, incoming)
    }

    fn finish(read: Self::Read, _: Named) -> Result<Box<CreateAllocation>, ConvertError> {
        CreateAllocation::finish_fields(read).map(Box::new)
    }
}

/// Objects and values, an event, or objects and one value (legacy types): each has its own fields in the message.
#[derive(Default)]
pub(crate) struct GpuSignalRead {
    objects: <Handles as Field>::Read,
    values: <Values as Field>::Read,
    event: u64,
    fence_value: Option<u64>,
}

const SIGNAL_OBJECTS: (u32, u32) = (2, 8);
const SIGNAL_VALUES: (u32, u32) = (3, 9);
const SIGNAL_EVENT: u32 = 5;
const SIGNAL_FENCE_VALUE: u32 = 6;

impl Field for GpuSignal {
    type Tag = ();
    type Read = GpuSignalRead;

    fn encoded_len(&self, (): ()) -> usize {
        match self {
            GpuSignal::Monitored { objects, values } => {
                objects.encoded_len(SIGNAL_OBJECTS) + values.encoded_len(SIGNAL_VALUES)
            }
            GpuSignal::Legacy { objects, fence_value } => {
                objects.encoded_len(SIGNAL_OBJECTS) + Some(*fence_value).encoded_len(SIGNAL_FENCE_VALUE)
            }
            GpuSignal::CpuEvent { event } => event.encoded_len(SIGNAL_EVENT),
        }
    }

    fn encode(&self, (): (), buf: &mut impl BufMut) {
        match self {
            GpuSignal::Monitored { objects, values } => {
                objects.encode(SIGNAL_OBJECTS, buf);
                values.encode(SIGNAL_VALUES, buf);
            }
            GpuSignal::Legacy { objects, .. } => objects.encode(SIGNAL_OBJECTS, buf),
            GpuSignal::CpuEvent { .. } => {}
        }
    }

    fn encode_late(&self, (): (), buf: &mut impl BufMut) {
        match self {
            GpuSignal::Monitored { .. } => {}
            GpuSignal::Legacy { fence_value, .. } => Some(*fence_value).encode(SIGNAL_FENCE_VALUE, buf),
            GpuSignal::CpuEvent { event } => event.encode(SIGNAL_EVENT, buf),
        }
    }

    fn encode_first(&self, (): (), buf: &mut impl BufMut) {
        match self {
            GpuSignal::Monitored { objects, values } => {
                objects.encode_first(SIGNAL_OBJECTS, buf);
                values.encode_first(SIGNAL_VALUES, buf);
            }
            GpuSignal::Legacy { objects, .. } => objects.encode_first(SIGNAL_OBJECTS, buf),
            GpuSignal::CpuEvent { .. } => {}
        }
    }

    fn merge<B: Buf>(
        read: &mut GpuSignalRead,
        (): (),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        Ok(Handles::merge(&mut read.objects, SIGNAL_OBJECTS, incoming)?
            || Values::merge(&mut read.values, SIGNAL_VALUES, incoming)?
            || u64::merge(&mut read.event, SIGNAL_EVENT, incoming)?
            || Option::<u64>::merge(&mut read.fence_value, SIGNAL_FENCE_VALUE, incoming)?)
    }

    fn finish(read: GpuSignalRead, named: Named) -> Result<GpuSignal, ConvertError> {
        let objects = Handles::finish(read.objects, named)?;
        let values = Values::finish(read.values, named)?;
        let of = |field| Named { field, ..named };
        match (read.event, read.fence_value) {
            (0, None) => Ok(GpuSignal::Monitored { objects, values }),
            (0, Some(fence_value)) if values.is_empty() => Ok(GpuSignal::Legacy { objects, fence_value }),
            (event, None) if objects.is_empty() && values.is_empty() => {
                Ok(GpuSignal::CpuEvent { event: EventId(event) })
            }
            (0, Some(value)) => Err(of("fence_value").bad(value)),
            (event, _) => Err(of("event").bad(event)),
        }
    }
}

/// One of four fields.
impl Field for AcquireOutcome {
    type Tag = ();
    type Read = Option<AcquireOutcome>;

    fn encoded_len(&self, (): ()) -> usize {
        match self {
            AcquireOutcome::Acquired { fence_value } => pb::uint64::encoded_len(1, fence_value),
            AcquireOutcome::TimedOut { fence_value } => pb::uint64::encoded_len(2, fence_value),
            AcquireOutcome::Abandoned { fence_value } => pb::uint64::encoded_len(3, fence_value),
            AcquireOutcome::Registered => pb::bool::encoded_len(4, &true),
        }
    }

    fn encode(&self, (): (), buf: &mut impl BufMut) {
        match self {
            AcquireOutcome::Acquired { fence_value } => pb::uint64::encode(1, fence_value, buf),
            AcquireOutcome::TimedOut { fence_value } => pb::uint64::encode(2, fence_value, buf),
            AcquireOutcome::Abandoned { fence_value } => pb::uint64::encode(3, fence_value, buf),
            AcquireOutcome::Registered => pb::bool::encode(4, &true, buf),
        }
    }

    fn merge<B: Buf>(
        read: &mut Option<AcquireOutcome>,
        (): (),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        let number = incoming.number;
        if !(1..=4).contains(&number) {
            return Ok(false);
        }
        // All four are varints.
        let mut fence_value = 0;
        u64::merge(&mut fence_value, number, incoming)?;
        *read = Some(match number {
            1 => AcquireOutcome::Acquired { fence_value },
            2 => AcquireOutcome::TimedOut { fence_value },
            3 => AcquireOutcome::Abandoned { fence_value },
            _ => AcquireOutcome::Registered,
        });
        Ok(true)
    }

    fn finish(read: Option<AcquireOutcome>, named: Named) -> Result<AcquireOutcome, ConvertError> {
        read.ok_or(named.missing())
    }
}
