//! How the fields of calls and replies are encoded: each Rust type has one form, as `channel.proto` declares it.
//!
//! | type | protobuf |
//! |---|---|
//! | `Handle` | `fixed32` |
//! | `u32`, flag words, `SyncObjectType` | `uint32` |
//! | `u64` | `uint64` |
//! | `i32` | `sint32` |
//! | `bool`, `String`, `Vec<u8>` | `bool`, `string`, `bytes` |
//! | `EventId` | `uint64`, never 0; `Option<EventId>`: 0 is none |
//! | `ShareToken` | `bytes`, 16 of them |
//! | `Vec<Handle>`, `Vec<u32>` | packed `fixed32` |
//! | `Vec<u64>` | packed `uint64` |
//! | `Handles`, `Values` | the first entry is an optional field of its own, the others are packed |
//! | `Option<..>` | `optional` |
//! | a struct of `messages.rs` | a message that must be there |

use d3dkmt::{
    CreateAllocationFlags, CreateContextFlags, DestroyAllocationFlags, EscapeFlags, EventId, Handle, Handles,
    HwQueueFlags, KeyedMutexFlags, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectType, Values,
    WaitFromCpuFlags,
};
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{self as pb, DecodeContext, WireType};

use crate::bulk::PIECE_BYTES;
use crate::convert::ConvertError;

/// The names of a message and its field, for errors.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub message: &'static str,
    pub field: &'static str,
}

impl Named {
    pub fn missing(self) -> ConvertError {
        ConvertError::Missing { message: self.message, field: self.field }
    }

    pub fn bad(self, value: u64) -> ConvertError {
        ConvertError::BadValue { message: self.message, field: self.field, value }
    }
}

/// The field to read: its decoded key, and the buffer with its value.
pub(crate) struct Incoming<'b, B> {
    pub number: u32,
    pub wire_type: WireType,
    pub buf: &'b mut B,
    pub context: DecodeContext,
}

/// A field of a message.
pub(crate) trait Field: Sized {
    /// Its number or numbers; `()` if its fields are spread into the message.
    type Tag: Copy;
    /// The part of it that has been read so far.
    type Read: Default;

    fn encoded_len(&self, tag: Self::Tag) -> usize;

    /// Writes the field. Fields of a message are written by ascending number. A field whose number comes after those of
    /// later rows is written by [`Field::encode_late`], the last ones by [`Field::encode_first`].
    fn encode(&self, tag: Self::Tag, buf: &mut impl BufMut);

    fn encode_late(&self, _: Self::Tag, _: &mut impl BufMut) {}

    /// Writes the first entry of a list.
    fn encode_first(&self, _: Self::Tag, _: &mut impl BufMut) {}

    /// Reads the incoming field if it is this one.
    fn merge<B: Buf>(
        read: &mut Self::Read,
        tag: Self::Tag,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError>;

    /// The value, once the message is read.
    fn finish(read: Self::Read, named: Named) -> Result<Self, ConvertError>;
}

/// Types that prost encodes: the prost module, the conversion to its value, and the conversion back.
macro_rules! scalars {
    ($($type:ty => $module:ident as $raw:ty, |$value:ident| $to:expr, |$decoded:ident| $from:expr;)+) => {
        $(impl Field for $type {
            type Tag = u32;
            type Read = $raw;

            #[inline]
            fn encoded_len(&self, tag: u32) -> usize {
                let $value = self;
                let raw: $raw = $to;
                if raw == <$raw>::default() { 0 } else { pb::$module::encoded_len(tag, &raw) }
            }

            #[inline]
            fn encode(&self, tag: u32, buf: &mut impl BufMut) {
                let $value = self;
                let raw: $raw = $to;
                if raw != <$raw>::default() {
                    pb::$module::encode(tag, &raw, buf);
                }
            }

            #[inline]
            fn merge<B: Buf>(read: &mut $raw, tag: u32, incoming: &mut Incoming<'_, B>) -> Result<bool, DecodeError> {
                if incoming.number != tag {
                    return Ok(false);
                }
                pb::$module::merge(incoming.wire_type, read, incoming.buf, incoming.context.clone())?;
                Ok(true)
            }

            #[inline]
            fn finish($decoded: $raw, _: Named) -> Result<$type, ConvertError> {
                Ok($from)
            }
        })+
    };
}

scalars! {
    u32 => uint32 as u32, |value| *value, |decoded| decoded;
    u64 => uint64 as u64, |value| *value, |decoded| decoded;
    i32 => sint32 as i32, |value| *value, |decoded| decoded;
    bool => bool as bool, |value| *value, |decoded| decoded;
    Handle => fixed32 as u32, |value| value.0, |decoded| Handle(decoded);
    Option<EventId> => uint64 as u64, |value| value.map_or(0, |event| event.0), |decoded| (decoded != 0).then_some(EventId(decoded));
    SyncObjectType => uint32 as u32, |value| value.0, |decoded| SyncObjectType(decoded);
    CreateAllocationFlags => uint32 as u32, |value| value.bits(), |decoded| CreateAllocationFlags::from_bits_retain(decoded);
    CreateContextFlags => uint32 as u32, |value| value.bits(), |decoded| CreateContextFlags::from_bits_retain(decoded);
    DestroyAllocationFlags => uint32 as u32, |value| value.bits(), |decoded| DestroyAllocationFlags::from_bits_retain(decoded);
    EscapeFlags => uint32 as u32, |value| value.bits(), |decoded| EscapeFlags::from_bits_retain(decoded);
    HwQueueFlags => uint32 as u32, |value| value.bits(), |decoded| HwQueueFlags::from_bits_retain(decoded);
    KeyedMutexFlags => uint32 as u32, |value| value.bits(), |decoded| KeyedMutexFlags::from_bits_retain(decoded);
    SignalFlags => uint32 as u32, |value| value.bits(), |decoded| SignalFlags::from_bits_retain(decoded);
    SyncObjectFlags => uint32 as u32, |value| value.bits(), |decoded| SyncObjectFlags::from_bits_retain(decoded);
    WaitFromCpuFlags => uint32 as u32, |value| value.bits(), |decoded| WaitFromCpuFlags::from_bits_retain(decoded);
}

impl Field for EventId {
    type Tag = u32;
    type Read = u64;

    #[inline]
    fn encoded_len(&self, tag: u32) -> usize {
        self.0.encoded_len(tag)
    }

    #[inline]
    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        self.0.encode(tag, buf);
    }

    #[inline]
    fn merge<B: Buf>(read: &mut u64, tag: u32, incoming: &mut Incoming<'_, B>) -> Result<bool, DecodeError> {
        u64::merge(read, tag, incoming)
    }

    #[inline]
    fn finish(read: u64, named: Named) -> Result<EventId, ConvertError> {
        if read == 0 { Err(named.bad(0)) } else { Ok(EventId(read)) }
    }
}

impl Field for String {
    type Tag = u32;
    type Read = String;

    fn encoded_len(&self, tag: u32) -> usize {
        if self.is_empty() { 0 } else { pb::string::encoded_len(tag, self) }
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        if !self.is_empty() {
            pb::string::encode(tag, self, buf);
        }
    }

    fn merge<B: Buf>(
        read: &mut String,
        tag: u32,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        if incoming.number != tag {
            return Ok(false);
        }
        pb::string::merge(incoming.wire_type, read, incoming.buf, incoming.context.clone())?;
        Ok(true)
    }

    fn finish(read: String, _: Named) -> Result<String, ConvertError> {
        Ok(read)
    }
}

/// Reads bytes, in pieces if they are large: see `bulk.rs`.
pub(crate) fn merge_bytes<B: Buf>(
    wire_type: WireType,
    read: &mut Vec<u8>,
    buf: &mut B,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    // Peeks the length that prost is about to read: sees only the first chunk, which normally is the only one.
    let length = pb::decode_varint(&mut buf.chunk()).unwrap_or_default() as usize;
    if length < PIECE_BYTES || wire_type != WireType::LengthDelimited {
        return pb::bytes::merge(wire_type, read, buf, context);
    }
    let mut bytes = prost::bytes::Bytes::new();
    pb::bytes::merge(wire_type, &mut bytes, buf, context)?;
    *read = bytes.into();
    Ok(())
}

impl Field for Vec<u8> {
    type Tag = u32;
    type Read = Vec<u8>;

    fn encoded_len(&self, tag: u32) -> usize {
        if self.is_empty() { 0 } else { pb::bytes::encoded_len(tag, self) }
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        if !self.is_empty() {
            pb::bytes::encode(tag, self, buf);
        }
    }

    fn merge<B: Buf>(
        read: &mut Vec<u8>,
        tag: u32,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        if incoming.number != tag {
            return Ok(false);
        }
        merge_bytes(incoming.wire_type, read, incoming.buf, incoming.context.clone())?;
        Ok(true)
    }

    fn finish(read: Vec<u8>, _: Named) -> Result<Vec<u8>, ConvertError> {
        Ok(read)
    }
}

/// `optional` fields: present even if their value is the default.
macro_rules! optional {
    ($($when:ident $type:ty => $module:ident;)+) => {
        $(impl Field for Option<$type> {
            type Tag = u32;
            type Read = Option<$type>;

            fn encoded_len(&self, tag: u32) -> usize {
                self.as_ref().map_or(0, |value| pb::$module::encoded_len(tag, value))
            }

            optional!(@encode $when $module);

            fn merge<B: Buf>(
                read: &mut Option<$type>,
                tag: u32,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                if incoming.number != tag {
                    return Ok(false);
                }
                let value = read.get_or_insert_default();
                pb::$module::merge(incoming.wire_type, value, incoming.buf, incoming.context.clone())?;
                Ok(true)
            }

            fn finish(read: Option<$type>, _: Named) -> Result<Option<$type>, ConvertError> {
                Ok(read)
            }
        })+
    };
    (@encode in_order $module:ident) => {
        fn encode(&self, tag: u32, buf: &mut impl BufMut) {
            if let Some(value) = self {
                pb::$module::encode(tag, value, buf);
            }
        }
    };
    (@encode late $module:ident) => {
        fn encode(&self, _: u32, _: &mut impl BufMut) {}

        fn encode_late(&self, tag: u32, buf: &mut impl BufMut) {
            if let Some(value) = self {
                pb::$module::encode(tag, value, buf);
            }
        }
    };
}

optional! {
    in_order u64 => uint64;
    in_order i64 => sint64;
    in_order Vec<u8> => bytes;
    // The name of a share, whose token has a lower number.
    late String => string;
}

impl Field for ShareToken {
    type Tag = u32;
    type Read = Vec<u8>;

    fn encoded_len(&self, tag: u32) -> usize {
        pb::key_len(tag) + 1 + self.0.len()
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        pb::encode_key(tag, WireType::LengthDelimited, buf);
        pb::encode_varint(self.0.len() as u64, buf);
        buf.put_slice(&self.0);
    }

    fn merge<B: Buf>(
        read: &mut Vec<u8>,
        tag: u32,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        Vec::<u8>::merge(read, tag, incoming)
    }

    fn finish(read: Vec<u8>, named: Named) -> Result<ShareToken, ConvertError> {
        let value = read.len() as u64;
        read.try_into().map(ShareToken).map_err(|_| named.bad(value))
    }
}

/// Packed 32-bit numbers.
macro_rules! packed {
    ($($type:ty, |$value:ident| $to:expr, |$decoded:ident| $from:expr;)+) => {
        $(impl Field for Vec<$type> {
            type Tag = u32;
            type Read = Vec<u32>;

            fn encoded_len(&self, tag: u32) -> usize {
                packed_len(tag, self.len())
            }

            fn encode(&self, tag: u32, buf: &mut impl BufMut) {
                encode_packed(tag, self.iter().map(|$value| $to), buf);
            }

            fn merge<B: Buf>(
                read: &mut Vec<u32>,
                tag: u32,
                incoming: &mut Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                merge_packed(read, tag, incoming)
            }

            fn finish(read: Vec<u32>, _: Named) -> Result<Vec<$type>, ConvertError> {
                Ok(read.into_iter().map(|$decoded| $from).collect())
            }
        })+
    };
}

packed! {
    u32, |value| *value, |decoded| decoded;
    Handle, |value| value.0, |decoded| Handle(decoded);
}

impl Field for Vec<u64> {
    type Tag = u32;
    type Read = Vec<u64>;

    fn encoded_len(&self, tag: u32) -> usize {
        pb::uint64::encoded_len_packed(tag, self)
    }

    fn encode(&self, tag: u32, buf: &mut impl BufMut) {
        pb::uint64::encode_packed(tag, self, buf);
    }

    fn merge<B: Buf>(
        read: &mut Vec<u64>,
        tag: u32,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        if incoming.number != tag {
            return Ok(false);
        }
        pb::uint64::merge_repeated(incoming.wire_type, read, incoming.buf, incoming.context.clone())?;
        Ok(true)
    }

    fn finish(read: Vec<u64>, _: Named) -> Result<Vec<u64>, ConvertError> {
        Ok(read)
    }
}

fn packed_len(tag: u32, count: usize) -> usize {
    let bytes = 4 * count;
    if count == 0 { 0 } else { pb::key_len(tag) + pb::encoded_len_varint(bytes as u64) + bytes }
}

fn encode_packed(tag: u32, values: impl ExactSizeIterator<Item = u32>, buf: &mut impl BufMut) {
    if values.len() > 0 {
        pb::encode_key(tag, WireType::LengthDelimited, buf);
        pb::encode_varint(4 * values.len() as u64, buf);
        values.for_each(|value| buf.put_u32_le(value));
    }
}

fn merge_packed<B: Buf>(
    read: &mut Vec<u32>,
    tag: u32,
    incoming: &mut Incoming<'_, B>,
) -> Result<bool, DecodeError> {
    if incoming.number != tag {
        return Ok(false);
    }
    pb::fixed32::merge_repeated(incoming.wire_type, read, incoming.buf, incoming.context.clone())?;
    Ok(true)
}

/// A list whose first entry is a field of its own; the two fields may arrive in any order.
#[derive(Default)]
pub(crate) struct ListRead<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl Field for Handles {
    /// The numbers of the other entries' field and of the first entry's.
    type Tag = (u32, u32);
    type Read = ListRead<u32>;

    #[inline]
    fn encoded_len(&self, (others, first): (u32, u32)) -> usize {
        let first = if self.is_empty() { 0 } else { pb::key_len(first) + 4 };
        first + packed_len(others, self.as_slice().len().saturating_sub(1))
    }

    #[inline]
    fn encode(&self, (tag, _): (u32, u32), buf: &mut impl BufMut) {
        if let [_, others @ ..] = self.as_slice() {
            encode_packed(tag, others.iter().map(|handle| handle.0), buf);
        }
    }

    #[inline]
    fn encode_first(&self, (_, tag): (u32, u32), buf: &mut impl BufMut) {
        if let Some(first) = self.first() {
            pb::fixed32::encode(tag, &first.0, buf);
        }
    }

    #[inline]
    fn merge<B: Buf>(
        read: &mut ListRead<u32>,
        (others, first): (u32, u32),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        if incoming.number == first {
            let value = read.first.get_or_insert_default();
            pb::fixed32::merge(incoming.wire_type, value, incoming.buf, incoming.context.clone())?;
            return Ok(true);
        }
        merge_packed(&mut read.others, others, incoming)
    }

    #[inline]
    fn finish(read: ListRead<u32>, _: Named) -> Result<Handles, ConvertError> {
        Ok(match read {
            // Most have one entry.
            ListRead { first: Some(first), others } if others.is_empty() => {
                Handles::from_slice(&[Handle(first)])
            }
            ListRead { first, others } => first.into_iter().chain(others).map(Handle).collect(),
        })
    }
}

impl Field for Values {
    /// The numbers of the other entries' field and of the first entry's.
    type Tag = (u32, u32);
    type Read = ListRead<u64>;

    #[inline]
    fn encoded_len(&self, (tag, first_tag): (u32, u32)) -> usize {
        match self.as_slice() {
            [] => 0,
            [first] => pb::uint64::encoded_len(first_tag, first),
            [first, others @ ..] => {
                pb::uint64::encoded_len_packed(tag, others) + pb::uint64::encoded_len(first_tag, first)
            }
        }
    }

    #[inline]
    fn encode(&self, (tag, _): (u32, u32), buf: &mut impl BufMut) {
        if let [_, others @ ..] = self.as_slice()
            && !others.is_empty()
        {
            pb::uint64::encode_packed(tag, others, buf);
        }
    }

    #[inline]
    fn encode_first(&self, (_, tag): (u32, u32), buf: &mut impl BufMut) {
        if let Some(first) = self.first() {
            pb::uint64::encode(tag, first, buf);
        }
    }

    #[inline]
    fn merge<B: Buf>(
        read: &mut ListRead<u64>,
        (others, first): (u32, u32),
        incoming: &mut Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        let Incoming { number, wire_type, buf, context } = incoming;
        if *number == first {
            pb::uint64::merge(*wire_type, read.first.get_or_insert_default(), *buf, context.clone())?;
        } else if *number == others {
            pb::uint64::merge_repeated(*wire_type, &mut read.others, *buf, context.clone())?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    #[inline]
    fn finish(read: ListRead<u64>, _: Named) -> Result<Values, ConvertError> {
        Ok(match read {
            ListRead { first: Some(first), others } if others.is_empty() => Values::from_slice(&[first]),
            ListRead { first, others } => first.into_iter().chain(others).collect(),
        })
    }
}
