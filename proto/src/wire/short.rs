//! Signals and waits of one object by one queue or device: nearly all frames of a busy process. They differ in a few
//! bytes at known places, so they are written and read in a fifth of the time that the general encoder and decoder take.
//! These do whatever looks different, such as the same fields in another order.

use d3dkmt::{Call, GpuSignal, Handle, Handles, SignalFlags, Values};
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

use super::bodies::call_len;
use super::{encode_call_frame, request_len};
use crate::frame::{TooLong, append_encoded};
use crate::limits::FRAME_BYTES_MAX;

/// Key of a varint field, of one with 32 bits, of a message.
const fn key_of(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

const REQUEST: u8 = key_of(1, 0);
/// Bytes of the fields of a short call, but for the value.
const FIXED_BYTES: usize = 11;
/// Bytes of the longest short frame, with its length.
const SHORT_BYTES_MAX: usize = 1 + 1 + 10 + 2 + 1 + FIXED_BYTES + 10;

/// A call with three fields: a queue or device, an object, a value.
#[derive(Clone, Copy)]
enum Short {
    SignalFromCpu,
    SignalFromGpu,
    WaitFromGpu,
    SubmitSignal,
    SubmitWait,
}

impl Short {
    const ALL: [Short; 5] =
        [Self::SignalFromCpu, Self::SignalFromGpu, Self::WaitFromGpu, Self::SubmitSignal, Self::SubmitWait];

    /// Number of the call.
    const fn call(self) -> u64 {
        match self {
            Short::SignalFromCpu => 14,
            Short::SignalFromGpu => 17,
            Short::WaitFromGpu => 18,
            Short::SubmitSignal => 42,
            Short::SubmitWait => 43,
        }
    }

    const fn keys(self) -> [u8; 3] {
        let [queue, object, value] = match self {
            Short::SignalFromCpu => [1, 5, 6],
            Short::SignalFromGpu => [7, 8, 9],
            Short::SubmitSignal => [5, 6, 7],
            Short::WaitFromGpu | Short::SubmitWait => [1, 4, 5],
        };
        [key_of(queue, 5), key_of(object, 5), key_of(value, 0)]
    }

    /// Inlined, so that the call is made where it is kept.
    #[inline(always)]
    fn make(self, queue: Handle, object: Handle, value: u64) -> Call {
        let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
        let flags = SignalFlags::empty();
        match self {
            Short::SignalFromCpu => Call::SignalFromCpu { device: queue, objects, values, flags },
            Short::SignalFromGpu => {
                let contexts = Handles::from_slice(&[queue]);
                Call::SignalFromGpu { contexts, signal: GpuSignal::Monitored { objects, values }, flags }
            }
            Short::WaitFromGpu => Call::WaitFromGpu { context: queue, objects, values },
            Short::SubmitSignal => {
                Call::SubmitSignalToHwQueue { queues: Handles::from_slice(&[queue]), objects, values, flags }
            }
            Short::SubmitWait => Call::SubmitWaitToHwQueue { queue, objects, values },
        }
    }
}

/// How a call is written short, and its fields.
fn fields_of(call: &Call) -> Option<(Short, Handle, Handle, u64)> {
    let (short, queue, objects, values) = match call {
        Call::SignalFromCpu { device, objects, values, flags } if flags.is_empty() => {
            (Short::SignalFromCpu, *device, objects, values)
        }
        Call::SignalFromGpu { contexts, signal: GpuSignal::Monitored { objects, values }, flags }
            if flags.is_empty() && contexts.len() == 1 =>
        {
            (Short::SignalFromGpu, contexts[0], objects, values)
        }
        Call::WaitFromGpu { context, objects, values } => (Short::WaitFromGpu, *context, objects, values),
        Call::SubmitSignalToHwQueue { queues, objects, values, flags }
            if flags.is_empty() && queues.len() == 1 =>
        {
            (Short::SubmitSignal, queues[0], objects, values)
        }
        Call::SubmitWaitToHwQueue { queue, objects, values } => (Short::SubmitWait, *queue, objects, values),
        // Any other call takes the general encoder.
        _ => return None,
    };
    match (&objects[..], &values[..]) {
        ([object], [value]) => Some((short, queue, *object, *value)),
        _ => None,
    }
}

fn append_short(request: u64, call: &Call, bytes: &mut Vec<u8>) -> Option<()> {
    let (short, queue, object, value) = fields_of(call)?;
    let fields = FIXED_BYTES + encoded_len_varint(value);
    let key = short.call() << 3 | 2;
    let length = request_len(request) + encoded_len_varint(key) + 1 + fields;
    bytes.reserve(SHORT_BYTES_MAX);
    bytes.push(length as u8);
    if request != 0 {
        bytes.push(REQUEST);
        encode_varint(request, bytes);
    }
    encode_varint(key, bytes);
    let ([q0, q1, q2, q3], [o0, o1, o2, o3]) = (queue.0.to_le_bytes(), object.0.to_le_bytes());
    let [queue_key, object_key, value_key] = short.keys();
    bytes.extend_from_slice(&[
        fields as u8,
        queue_key,
        q0,
        q1,
        q2,
        q3,
        object_key,
        o0,
        o1,
        o2,
        o3,
        value_key,
    ]);
    encode_varint(value, bytes);
    Some(())
}

/// Appends the frame that makes a call, with its length; `request` 0 makes it one-way.
///
/// # Errors
///
/// A frame longer than the host accepts (GPV-009); then nothing is appended.
pub fn append_call(request: u64, call: &Call, bytes: &mut Vec<u8>) -> Result<(), TooLong> {
    if append_short(request, call, bytes).is_some() {
        return Ok(());
    }
    let length = request_len(request) + call_len(call);
    if length > FRAME_BYTES_MAX {
        return Err(TooLong { bytes: length });
    }
    append_encoded(length, bytes, |bytes| encode_call_frame(request, call, bytes));
    Ok(())
}

/// Reads the frame of such a call, without its length: the request, 0 for a one-way call, and the call. `None` for any
/// other bytes, which may be a frame in the general form.
#[inline]
pub fn read_short_call(mut bytes: &[u8]) -> Option<(u64, Call)> {
    let mut request = 0;
    if let [REQUEST, rest @ ..] = bytes {
        bytes = rest;
        request = decode_varint(&mut bytes).ok()?;
    }
    let key = decode_varint(&mut bytes).ok()?;
    let short = Short::ALL.into_iter().find(|short| short.call() << 3 | 2 == key)?;
    let (length, fields) = bytes.split_first()?;
    let [queue_key, q0, q1, q2, q3, object_key, o0, o1, o2, o3, value_key, value @ ..] = fields else {
        return None;
    };
    let mut value = value;
    if usize::from(*length) != fields.len() || [*queue_key, *object_key, *value_key] != short.keys() {
        return None;
    }
    let (queue, object) = ([*q0, *q1, *q2, *q3], [*o0, *o1, *o2, *o3]);
    let (queue, object) = (Handle(u32::from_le_bytes(queue)), Handle(u32::from_le_bytes(object)));
    let number = decode_varint(&mut value).ok()?;
    value.is_empty().then(|| (request, short.make(queue, object, number)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Message as _;
    use crate::convert::call_to_frame;
    use crate::frame::{append, decode};
    use crate::wire::{ToHost, to_host};

    /// A call of each row.
    fn short_call() -> impl Strategy<Value = Call> {
        let value = prop_oneof![0..400_u64, any::<u64>()];
        (0..Short::ALL.len(), any::<[u32; 2]>(), value).prop_map(|(at, [queue, object], value)| {
            Short::ALL[at].make(Handle(queue), Handle(object), value)
        })
    }

    fn request() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0_u64), any::<u64>()]
    }

    /// A frame of a short call, and up to three bytes to change, insert or remove.
    fn damaged() -> impl Strategy<Value = (Vec<u8>, bool)> {
        let edits = prop::collection::vec((0..32_usize, any::<u8>(), 0..3_u8), 0..4);
        (short_call(), request(), edits).prop_map(|(call, request, edits)| {
            let mut bytes = call_to_frame(request, &call).encode_to_vec();
            let is_whole = edits.is_empty();
            for (at, byte, edit) in edits {
                let at = at % (bytes.len() + 1);
                match edit {
                    0 => bytes.insert(at, byte),
                    1 if at < bytes.len() => bytes[at] = byte,
                    _ => bytes.truncate(at.max(1)),
                }
            }
            (bytes, is_whole)
        })
    }

    /// A short call, or one that a flag, a second queue or a second object makes long.
    fn nearly_short() -> impl Strategy<Value = Call> {
        (short_call(), 0..6_u8).prop_map(|(mut call, change)| {
            let more = |list: &mut Handles| list.push(Handle(7));
            match (&mut call, change) {
                (Call::SignalFromCpu { flags, .. }, 0)
                | (Call::SignalFromGpu { flags, .. }, 0)
                | (Call::SubmitSignalToHwQueue { flags, .. }, 0) => *flags = SignalFlags::ALLOW_FENCE_REWIND,
                (Call::SignalFromGpu { contexts: queues, .. }, 1)
                | (Call::SubmitSignalToHwQueue { queues, .. }, 1) => more(queues),
                (
                    Call::SignalFromCpu { objects, values, .. }
                    | Call::SignalFromGpu { signal: GpuSignal::Monitored { objects, values }, .. }
                    | Call::SubmitWaitToHwQueue { objects, values, .. },
                    2,
                ) => {
                    more(objects);
                    values.push(7);
                }
                (Call::WaitFromGpu { values, .. }, 2) => values.clear(),
                (call, 3) => *call = Call::EnumAdapters { capacity: 3 },
                _ => {}
            }
            call
        })
    }

    proptest! {
        #[test]
        fn a_call_is_appended_as_the_general_encoder_writes_it(call in nearly_short(), request in request()) {
            let mut bytes = vec![1, 2, 3];
            append_call(request, &call, &mut bytes).unwrap();
            let mut expected = vec![1, 2, 3];
            append(&call_to_frame(request, &call), &mut expected);
            prop_assert_eq!(bytes, expected);
        }

        #[test]
        fn a_short_call_takes_the_short_way(call in short_call(), request in request()) {
            let mut bytes = Vec::new();
            prop_assert!(append_short(request, &call, &mut bytes).is_some());
            prop_assert!(bytes.len() <= SHORT_BYTES_MAX);
        }

        #[test]
        fn a_short_frame_is_read_as_the_general_decoder_reads_it((bytes, is_whole) in damaged()) {
            let short = read_short_call(&bytes);
            prop_assert!(short.is_some() || !is_whole, "{bytes:02x?} takes the long way");
            if let Some((request, call)) = short {
                let short = ToHost { request, body: Some(to_host::Body::Call(call)) };
                prop_assert_eq!(Ok(short), decode::<ToHost>(&bytes), "{:02x?}", bytes);
            }
        }
    }
}
