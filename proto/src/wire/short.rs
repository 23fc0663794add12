//! Signals and waits of one object by one queue or device, as `call_to_frame` writes them: nearly all frames of a busy
//! process. They differ in a few bytes at known places, so they are read in a fifth of the time that the general decoder
//! takes. It reads whatever looks different, such as the same fields in another order.

use d3dkmt::{Call, GpuSignal, Handle, Handles, SignalFlags, Values};
use prost::encoding::decode_varint;

use super::{ToHost, to_host};
use crate::frame::{FrameError, decode};

/// Key of a varint field, of one with 32 bits, of a message.
const fn key_of(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

const REQUEST: u8 = key_of(1, 0);

/// A call with three fields: a queue or device, an object, a value.
struct Short {
    /// Number of the call.
    call: u64,
    keys: [u8; 3],
    make: fn(Handle, Handle, u64) -> Call,
}

const fn short(call: u64, [queue, object, value]: [u8; 3], make: fn(Handle, Handle, u64) -> Call) -> Short {
    Short { call, keys: [key_of(queue, 5), key_of(object, 5), key_of(value, 0)], make }
}

const SHORT: [Short; 5] = [
    short(14, [1, 5, 6], |device, object, value| {
        let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
        Call::SignalFromCpu { device, objects, values, flags: SignalFlags::empty() }
    }),
    short(17, [7, 8, 9], |context, object, value| {
        let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
        let (contexts, flags) = (Handles::from_slice(&[context]), SignalFlags::empty());
        Call::SignalFromGpu { contexts, signal: GpuSignal::Monitored { objects, values }, flags }
    }),
    short(18, [1, 4, 5], |context, object, value| Call::WaitFromGpu {
        context,
        objects: Handles::from_slice(&[object]),
        values: Values::from_slice(&[value]),
    }),
    short(42, [5, 6, 7], |queue, object, value| {
        let (objects, values) = (Handles::from_slice(&[object]), Values::from_slice(&[value]));
        let (queues, flags) = (Handles::from_slice(&[queue]), SignalFlags::empty());
        Call::SubmitSignalToHwQueue { queues, objects, values, flags }
    }),
    short(43, [1, 4, 5], |queue, object, value| Call::SubmitWaitToHwQueue {
        queue,
        objects: Handles::from_slice(&[object]),
        values: Values::from_slice(&[value]),
    }),
];

fn read_short(mut bytes: &[u8]) -> Option<ToHost> {
    let mut request = 0;
    if let [REQUEST, rest @ ..] = bytes {
        bytes = rest;
        request = decode_varint(&mut bytes).ok()?;
    }
    let key = decode_varint(&mut bytes).ok()?;
    let short = SHORT.iter().find(|short| short.call << 3 | 2 == key)?;
    let (length, fields) = bytes.split_first()?;
    let [queue_key, q0, q1, q2, q3, object_key, o0, o1, o2, o3, value_key, value @ ..] = fields else {
        return None;
    };
    let mut value = value;
    if usize::from(*length) != fields.len() || [*queue_key, *object_key, *value_key] != short.keys {
        return None;
    }
    let (queue, object) = ([*q0, *q1, *q2, *q3], [*o0, *o1, *o2, *o3]);
    let (queue, object) = (Handle(u32::from_le_bytes(queue)), Handle(u32::from_le_bytes(object)));
    let number = decode_varint(&mut value).ok()?;
    let call = value.is_empty().then(|| (short.make)(queue, object, number))?;
    Some(ToHost { request, body: Some(to_host::Body::Call(call)) })
}

impl ToHost {
    /// Reads a frame of a client process, without its length.
    ///
    /// # Errors
    ///
    /// Bytes that are no such message.
    pub fn read(bytes: &[u8]) -> Result<ToHost, FrameError> {
        match read_short(bytes) {
            Some(frame) => Ok(frame),
            None => decode(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Message as _;
    use crate::convert::call_to_frame;

    /// A frame of a short call, and up to three bytes to change, insert or remove.
    fn damaged() -> impl Strategy<Value = (Vec<u8>, bool)> {
        let edits = prop::collection::vec((0..32_usize, any::<u8>(), 0..3_u8), 0..4);
        let request = prop_oneof![Just(0_u64), any::<u64>()];
        let value = prop_oneof![0..400_u64, any::<u64>()];
        (0..SHORT.len(), any::<[u32; 2]>(), value, request, edits).prop_map(
            |(at, [queue, object], value, request, edits)| {
                let call = (SHORT[at].make)(Handle(queue), Handle(object), value);
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
            },
        )
    }

    proptest! {
        #[test]
        fn a_short_frame_is_read_as_the_general_decoder_reads_it((bytes, is_whole) in damaged()) {
            let short = read_short(&bytes);
            prop_assert!(short.is_some() || !is_whole, "{bytes:02x?} takes the long way");
            if let Some(short) = short {
                prop_assert_eq!(Ok(short), decode::<ToHost>(&bytes), "{:02x?}", bytes);
            }
        }
    }
}
