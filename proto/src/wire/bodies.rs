//! The `body` of a frame: calls and replies, encoded and decoded by their rows.

use d3dkmt::names::kind::{
    Commands, EscapeData, FenceValue, FenceValues, GpuAddress, GpuSignal, GpuVaOperations, Handle,
    HandleList, Handles, Luid, MutexBuffer, MutexData, NewAllocation, NewMutexData, NewToken, ObjectInfo,
    OutBuffer, SharedHandle, Timeout, Token, WaitEvent,
};
use d3dkmt::names::{Kind, Numbers};
use d3dkmt::{
    Call, CreateContextFlags, DestroyAllocationFlags, EscapeFlags, EventId, HwQueueFlags, KeyedMutexFlags,
    Reply, ResourceInfo, SignalFlags, SyncObjectFlags, WaitFromCpuFlags,
};
use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{self as pb, DecodeContext, WireType};

use super::field::{Field, Named, merge_bytes};
use super::messages::{Fields, encode_message_head, merge_message, message_len, read_message};
use crate::convert::ConvertError;

/// The result of reading a body; `None` if its kind is unknown.
type Body<T> = Result<Option<Result<T, ConvertError>>, DecodeError>;

/// A body that is one value, which is written even if it is the default.
trait Bare: Sized {
    fn bare_len(&self, tag: u32) -> usize;
    fn encode_bare(&self, tag: u32, buf: &mut impl BufMut);
    fn read_bare<B: Buf>(
        wire_type: WireType,
        buf: &mut B,
        context: DecodeContext,
        named: Named,
    ) -> Result<Result<Self, ConvertError>, DecodeError>;
}

macro_rules! bare_scalars {
    ($($type:ty => $module:ident, |$value:ident| $to:expr, |$decoded:ident, $named:ident| $from:expr;)+) => {
        $(impl Bare for $type {
            fn bare_len(&self, tag: u32) -> usize {
                let $value = self;
                pb::$module::encoded_len(tag, &$to)
            }

            fn encode_bare(&self, tag: u32, buf: &mut impl BufMut) {
                let $value = self;
                pb::$module::encode(tag, &$to, buf);
            }

            fn read_bare<B: Buf>(
                wire_type: WireType,
                buf: &mut B,
                context: DecodeContext,
                $named: Named,
            ) -> Result<Result<$type, ConvertError>, DecodeError> {
                let mut $decoded = Default::default();
                pb::$module::merge(wire_type, &mut $decoded, buf, context)?;
                Ok($from)
            }
        })+
    };
}

bare_scalars! {
    d3dkmt::Handle => fixed32, |value| value.0, |decoded, _named| Ok(d3dkmt::Handle(decoded));
    EventId => uint64, |value| value.0, |decoded, named| if decoded == 0 { Err(named.bad(0)) } else { Ok(EventId(decoded)) };
    u32 => uint32, |value| *value, |decoded, _named| Ok(decoded);
    u64 => uint64, |value| *value, |decoded, _named| Ok(decoded);
    i32 => sint32, |value| *value, |decoded, _named| Ok(decoded);
    d3dkmt::WaitOutcome => bool, |value| *value == d3dkmt::WaitOutcome::Satisfied, |decoded, _named| {
        Ok(if decoded { d3dkmt::WaitOutcome::Satisfied } else { d3dkmt::WaitOutcome::Registered })
    };
}

impl Bare for Vec<u8> {
    fn bare_len(&self, tag: u32) -> usize {
        pb::bytes::encoded_len(tag, self)
    }

    fn encode_bare(&self, tag: u32, buf: &mut impl BufMut) {
        pb::bytes::encode(tag, self, buf);
    }

    fn read_bare<B: Buf>(
        wire_type: WireType,
        buf: &mut B,
        context: DecodeContext,
        _: Named,
    ) -> Result<Result<Vec<u8>, ConvertError>, DecodeError> {
        let mut bytes = Vec::new();
        merge_bytes(wire_type, &mut bytes, buf, context)?;
        Ok(Ok(bytes))
    }
}

macro_rules! bare_messages {
    ($($type:ty),+) => {
        $(impl Bare for $type {
            fn bare_len(&self, tag: u32) -> usize {
                message_len(tag, self.fields_len())
            }

            fn encode_bare(&self, tag: u32, buf: &mut impl BufMut) {
                encode_message_head(tag, self.fields_len(), buf);
                self.encode_fields(buf);
            }

            fn read_bare<B: Buf>(
                wire_type: WireType,
                buf: &mut B,
                context: DecodeContext,
                _: Named,
            ) -> Result<Result<$type, ConvertError>, DecodeError> {
                read_message(wire_type, buf, context)
            }
        })+
    };
}

bare_messages!(
    d3dkmt::CreatedSyncObject,
    d3dkmt::PageFaultState,
    d3dkmt::FeatureResult,
    ResourceInfo,
    Vec<d3dkmt::Adapter>,
    Vec<u32>
);

/// A message with one list.
macro_rules! lists {
    ($($type:ty),+) => {
        $(impl Fields for $type {
            type Read = <$type as Field>::Read;

            fn fields_len(&self) -> usize {
                Field::encoded_len(self, 1)
            }

            fn encode_fields(&self, buf: &mut impl BufMut) {
                self.encode(1, buf);
            }

            fn merge_field<B: Buf>(
                read: &mut Self::Read,
                incoming: &mut super::field::Incoming<'_, B>,
            ) -> Result<bool, DecodeError> {
                <$type>::merge(read, 1, incoming)
            }

            fn finish_fields(read: Self::Read) -> Result<$type, ConvertError> {
                <$type as Field>::finish(read, Named { message: "list", field: "entry" })
            }
        })+
    };
}

lists!(Vec<d3dkmt::Adapter>, Vec<u32>);

/// `DXGK_ISFEATUREENABLED_RESULT`: two halves of a word.
impl Fields for d3dkmt::FeatureResult {
    type Read = (u32, u32);

    fn fields_len(&self) -> usize {
        u32::from(self.version).encoded_len(1) + u32::from(self.value()).encoded_len(2)
    }

    fn encode_fields(&self, buf: &mut impl BufMut) {
        u32::from(self.version).encode(1, buf);
        u32::from(self.value()).encode(2, buf);
    }

    fn merge_field<B: Buf>(
        (version, value): &mut (u32, u32),
        incoming: &mut super::field::Incoming<'_, B>,
    ) -> Result<bool, DecodeError> {
        Ok(u32::merge(version, 1, incoming)? || u32::merge(value, 2, incoming)?)
    }

    fn finish_fields((version, value): (u32, u32)) -> Result<Self, ConvertError> {
        let half =
            |word: u32| u16::try_from(word).map_err(|_| ConvertError::Unexpected("a feature's result"));
        Ok(d3dkmt::FeatureResult::from_value(half(version)?, half(value)?))
    }
}

/// Length of one row's body.
macro_rules! row_len {
    ($tag:literal { $($field_tag:tt $field:ident),+ }) => {
        message_len($tag, 0 $(+ Field::encoded_len($field, $field_tag))+)
    };
    ($tag:literal ($bare:ident)) => { $bare.bare_len($tag) };
    ($tag:literal [$value:ident $tuple:ty]) => { Bare::bare_len($value, $tag) };
    ($tag:literal) => { pb::bool::encoded_len($tag, &true) };
}

macro_rules! encode_row {
    ($buf:ident, $tag:literal { $($field_tag:tt $field:ident),+ }) => {
        encode_message_head($tag, 0 $(+ Field::encoded_len($field, $field_tag))+, $buf);
        $($field.encode($field_tag, $buf);)+
        $($field.encode_late($field_tag, $buf);)+
        $($field.encode_first($field_tag, $buf);)+
    };
    ($buf:ident, $tag:literal ($bare:ident)) => { $bare.encode_bare($tag, $buf) };
    ($buf:ident, $tag:literal [$value:ident $tuple:ty]) => { Bare::encode_bare($value, $tag, $buf) };
    ($buf:ident, $tag:literal) => { pb::bool::encode($tag, &true, $buf) };
}

macro_rules! read_row {
    ($of:ident, $name:ident, $wire_type:ident, $buf:ident, $context:ident; { $($field_tag:tt $field:ident $type:ty),+ }) => {{
        $(let mut $field = <$type as Field>::Read::default();)+
        merge_message($wire_type, $buf, $context, |incoming| {
            $(if <$type as Field>::merge(&mut $field, $field_tag, incoming)? {
                return Ok(true);
            })+
            Ok(false)
        })?;
        (|| Ok($of::$name {
            $($field: <$type as Field>::finish(
                $field,
                Named { message: stringify!($name), field: stringify!($field) },
            )?),+
        }))()
    }};
    ($of:ident, $name:ident, $wire_type:ident, $buf:ident, $context:ident; ($bare:ident $type:ty)) => {{
        let named = Named { message: stringify!($name), field: stringify!($bare) };
        <$type as Bare>::read_bare($wire_type, $buf, $context, named)?.map(|$bare| $of::$name { $bare })
    }};
    ($of:ident, $name:ident, $wire_type:ident, $buf:ident, $context:ident; [$index:tt $type:ty]) => {{
        let named = Named { message: stringify!($name), field: "value" };
        <$type as Bare>::read_bare($wire_type, $buf, $context, named)?.map($of::$name)
    }};
    ($of:ident, $name:ident, $wire_type:ident, $buf:ident, $context:ident;) => {{
        let mut value = false;
        pb::bool::merge($wire_type, &mut value, $buf, $context)?;
        Ok($of::$name)
    }};
}

macro_rules! calls {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// Length of a call as the body of a frame.
        pub(crate) fn call_len(call: &Call) -> usize {
            match call {
                $(Call::$name { $($($field),+)? $($bare)? } => {
                    row_len!($tag $({ $($field_tag $field),+ })? $(($bare))?)
                })+
            }
        }

        /// Writes a call as the body of a frame.
        pub(crate) fn encode_call(call: &Call, buf: &mut impl BufMut) {
            match call {
                $(Call::$name { $($($field),+)? $($bare)? } => {
                    encode_row!(buf, $tag $({ $($field_tag $field),+ })? $(($bare))?);
                })+
            }
        }

        /// Reads a call from the body of a frame.
        pub(crate) fn read_call<B: Buf>(
            number: u32,
            wire_type: WireType,
            buf: &mut B,
            context: DecodeContext,
        ) -> Body<Call> {
            Ok(Some(match number {
                $($tag => read_row!(
                    Call, $name, wire_type, buf, context;
                    $({ $($field_tag $field <$kind as Kind<Numbers>>::Type),+ })?
                    $(($bare <$bare_kind as Kind<Numbers>>::Type))?
                ),)+
                _ => return Ok(None),
            }))
        }
    };
}

macro_rules! replies {
    ($($(#[$doc:meta])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $type:ty),+ $(,)? })?
        $(($bare:ident: $bare_type:ty))?
        $([$index:tt: $tuple:ty])?
        $(=> $value_kind:ident $value:tt)?;)+) => {
        /// Length of a reply as the body of a frame.
        pub(crate) fn reply_len(reply: &Reply) -> usize {
            match reply {
                Reply::None => 0,
                $(Reply::$name { $($($field),+)? $($bare)? $($index: value)? } => {
                    row_len!($tag $({ $($field_tag $field),+ })? $(($bare))? $([value $tuple])?)
                })+
            }
        }

        /// Writes a reply as the body of a frame.
        pub(crate) fn encode_reply(reply: &Reply, buf: &mut impl BufMut) {
            match reply {
                Reply::None => {}
                $(Reply::$name { $($($field),+)? $($bare)? $($index: value)? } => {
                    encode_row!(buf, $tag $({ $($field_tag $field),+ })? $(($bare))? $([value $tuple])?);
                })+
            }
        }

        /// Reads a reply from the body of a frame.
        pub(crate) fn read_reply<B: Buf>(
            number: u32,
            wire_type: WireType,
            buf: &mut B,
            context: DecodeContext,
        ) -> Body<Reply> {
            Ok(Some(match number {
                $($tag => read_row!(
                    Reply, $name, wire_type, buf, context;
                    $({ $($field_tag $field $type),+ })?
                    $(($bare $bare_type))?
                    $([$index $tuple])?
                ),)+
                _ => return Ok(None),
            }))
        }
    };
}

d3dkmt::for_each_call!(calls);

/// The types of the rows of replies, which are not kinds.
mod of_replies {
    use d3dkmt::{
        AcquireOutcome, Adapter, CreatedSyncObject, FeatureResult, Handle, Luid, PageFaultState,
        ResourceInfo, WaitOutcome,
    };

    use super::{
        Bare, Body, Buf, BufMut, DecodeContext, Field, Named, Reply, WireType, encode_message_head,
        merge_message, message_len, pb,
    };

    d3dkmt::for_each_reply!(replies);
}

pub(crate) use of_replies::{encode_reply, read_reply, reply_len};
