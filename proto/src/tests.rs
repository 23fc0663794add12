//! Round trips of every conversion, and frames under hostile bytes.

mod any;
mod contract;

use covers::covers;
use d3dkmt::{GuestEvent, NtStatus, WakeTarget};
use proptest::collection::vec;
use proptest::prelude::*;

use any::{call, event, handle, reply, token};

use crate::convert::{
    FromHost, answer_into_frame, answer_to_frame, call_from_body, call_to_frame, from_host, wake_to_frame,
};
use crate::frame::{FrameBuffer, FrameError, append, append_call, decode};
use crate::limits::FRAME_BYTES_MAX;
use crate::scenario_client::{Order, Outcome, Report, Task, Words};

fn words() -> impl Strategy<Value = Words> {
    let all = (handle(), any::<u64>(), any::<Option<u64>>(), any::<u32>());
    all.prop_map(|(allocation, first, count, word)| Words { allocation, first, count, word })
}

fn task() -> impl Strategy<Value = Task> {
    let event = || proptest::option::of(1..=u64::MAX);
    prop_oneof![
        4 => (call(), event()).prop_map(|(call, event)| Task::Call { call, event }),
        1 => Just(Task::StartThread),
        1 => any::<u64>().prop_map(Task::NewEvent),
        1 => any::<u64>().prop_map(Task::TakeEvent),
        1 => any::<u64>().prop_map(Task::AwaitEvent),
        1 => any::<u64>().prop_map(Task::CloseEvent),
        1 => handle().prop_map(Task::ReadValue),
        1 => Just(Task::MessagesSent),
        1 => Just(Task::Barrier),
        1 => any::<String>().prop_map(Task::OpenMailbox),
        1 => (token(), any::<String>()).prop_map(|(token, mailbox)| Task::SendShare { token, mailbox }),
        1 => words().prop_map(Task::StoreWords),
        1 => words().prop_map(Task::FindOther),
        1 => token().prop_map(Task::CloseShare),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        1 => Just(Outcome::Nothing),
        4 => reply().prop_map(Outcome::Reply),
        1 => any::<u64>().prop_map(Outcome::Value),
        1 => Just(Outcome::NoCForm),
    ]
}

proptest! {
    #[test]
    fn every_call_survives_the_wire(request in any::<u64>(), call in call()) {
        covers!("GPV-001");
        let mut bytes = Vec::new();
        append_call(request, &call, &mut bytes).unwrap();
        let mut as_message = Vec::new();
        append(&call_to_frame(request, &call), &mut as_message);
        prop_assert_eq!(&bytes, &as_message);
        let mut buffer = FrameBuffer::default();
        buffer.extend(&bytes);
        let frame: crate::channel::ToHost = decode(buffer.next_frame().unwrap().unwrap()).unwrap();
        prop_assert_eq!(frame.request, request);
        prop_assert_eq!(call_from_body(frame.body.unwrap()).unwrap(), call);
        prop_assert_eq!(buffer.pending(), 0);
    }

    #[test]
    fn every_answer_survives_the_wire(request in 1..=u64::MAX, status in any::<u32>(), reply in reply()) {
        let frame = answer_to_frame(request, NtStatus(status), &reply);
        prop_assert_eq!(&answer_into_frame(request, NtStatus(status), reply.clone()), &frame);
        let read = from_host(decode(&crate::Message::encode_to_vec(&frame)).unwrap()).unwrap();
        prop_assert_eq!(read, FromHost::Answer { request, status: NtStatus(status), reply });
    }

    #[test]
    fn a_gpu_signal_that_says_two_things_is_refused(
        event in 1..=u64::MAX, fence_value in any::<u64>(), value in any::<u64>()
    ) {
        use prost::encoding::{fixed32, uint64};
        let event = |bytes: &mut Vec<u8>| uint64::encode(5, &event, bytes);
        let fence_value = |bytes: &mut Vec<u8>| uint64::encode(6, &fence_value, bytes);
        let object = |bytes: &mut Vec<u8>| fixed32::encode(8, &1, bytes);
        let objects = |bytes: &mut Vec<u8>| fixed32::encode_packed(2, &[1], bytes);
        let first_value = |bytes: &mut Vec<u8>| uint64::encode(9, &value, bytes);
        let values = |bytes: &mut Vec<u8>| uint64::encode_packed(3, &[value], bytes);
        type Says<'a> = &'a dyn Fn(&mut Vec<u8>);
        let says: [[Says; 2]; 7] = [
            [&event, &fence_value],
            [&event, &objects],
            [&event, &values],
            [&event, &object],
            [&event, &first_value],
            [&fence_value, &first_value],
            [&fence_value, &values],
        ];
        for both in says {
            let mut message = Vec::new();
            both.iter().for_each(|field| field(&mut message));
            let mut frame = Vec::new();
            prost::encoding::bytes::encode(17, &message, &mut frame);
            let frame: crate::channel::ToHost = decode(&frame).unwrap();
            prop_assert!(call_from_body(frame.body.unwrap()).is_err());
        }
    }

    #[test]
    fn every_wake_survives_the_wire(event in event(), status in any::<u32>()) {
        let read = from_host(wake_to_frame(event, NtStatus(status))).unwrap();
        prop_assert_eq!(read, FromHost::Wake { event, status: NtStatus(status) });
    }

    #[test]
    fn a_guest_event_never_reads_as_a_wake(number in 1..=u64::MAX, status in any::<u32>()) {
        let (event, status) = (GuestEvent(number), NtStatus(status));
        let read = from_host(wake_to_frame(WakeTarget::GuestEvent(event), status)).unwrap();
        prop_assert_eq!(read, FromHost::GuestEvent { event, status });
    }

    #[test]
    fn every_order_survives_the_pipe(tag in any::<u64>(), thread in any::<u32>(), task in task()) {
        let order = Order { tag, thread, task };
        let mut bytes = Vec::new();
        order.append(&mut bytes);
        let mut frames = FrameBuffer::default();
        frames.extend(&bytes);
        prop_assert_eq!(Order::next(&mut frames), Ok(Some(order)));
        prop_assert_eq!(Order::next(&mut frames), Ok(None));
    }

    #[test]
    fn every_report_survives_the_pipe(tag in any::<u64>(), status in any::<u32>(), outcome in outcome()) {
        let report = Report { tag, status: NtStatus(status), outcome };
        let mut bytes = Vec::new();
        report.append(&mut bytes);
        let mut frames = FrameBuffer::default();
        frames.extend(&bytes);
        prop_assert_eq!(Report::next(&mut frames), Ok(Some(report)));
        prop_assert_eq!(Report::next(&mut frames), Ok(None));
    }

    #[test]
    fn frames_are_found_however_the_stream_is_cut(
        bodies in vec(vec(any::<u8>(), 0..300), 1..10),
        cuts in vec(1..50usize, 1..100),
    ) {
        let mut stream = Vec::new();
        for body in &bodies {
            prost::encoding::encode_varint(body.len() as u64, &mut stream);
            stream.extend_from_slice(body);
        }
        let mut buffer = FrameBuffer::default();
        let mut found = Vec::new();
        let (mut rest, mut cut) = (&stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(*cut.next().unwrap()));
            buffer.extend(head);
            while let Some(frame) = buffer.next_frame().unwrap() {
                found.push(frame.to_vec());
            }
            rest = tail;
        }
        prop_assert_eq!(found, bodies);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&bytes);
        while let Ok(Some(frame)) = buffer.next_frame() {
            if let Ok(frame) = decode::<crate::channel::ToHost>(frame) {
                let _ = frame.body.map(call_from_body);
            }
        }
        if let Ok(frame) = decode::<crate::channel::ToGuest>(&bytes) {
            let _ = from_host(frame);
        }
        let mut buffer = FrameBuffer::default();
        buffer.extend(&bytes);
        while let Ok(Some(_)) = Order::next(&mut buffer) {}
        while let Ok(Some(_)) = Report::next(&mut buffer) {}
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_from_its_length_alone() {
    covers!("GPV-009");
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(FRAME_BYTES_MAX as u64 + 1, &mut bytes);
    let mut buffer = FrameBuffer::default();
    buffer.extend(&bytes);
    assert_eq!(buffer.next_frame(), Err(FrameError::TooLong { length: FRAME_BYTES_MAX as u64 + 1 }));
}

#[test]
fn a_length_that_never_ends_is_refused() {
    let mut buffer = FrameBuffer::default();
    buffer.extend(&[0xFF; 9]);
    assert_eq!(buffer.next_frame(), Ok(None));
    buffer.extend(&[0xFF; 2]);
    assert_eq!(buffer.next_frame(), Err(FrameError::BadLength));
}

#[test]
fn data_of_an_escape_move_from_its_message_to_its_answer() {
    use crate::channel::{to_guest, to_host};
    use d3dkmt::{Call, EscapeFlags, Handle, Reply};
    let data = vec![7; 64 * 1024];
    let place = data.as_ptr();
    let (adapter, flags) = (Handle(1), EscapeFlags::empty());
    let escape = Call::Escape { adapter, device: Handle::NULL, context: Handle::NULL, kind: 0, flags, data };
    let Ok(Call::Escape { data, .. }) = call_from_body(to_host::Body::Call(escape)) else { panic!() };
    let frame = answer_into_frame(1, NtStatus::SUCCESS, Reply::Escape(data));
    let Some(to_guest::Body::Reply(Reply::Escape(data))) = &frame.body else { panic!("{:?}", frame.status) };
    assert_eq!((data.as_ptr(), data.len()), (place, 64 * 1024));
    let read = from_host(frame).unwrap();
    let FromHost::Answer { reply: Reply::Escape(data), .. } = read else { panic!() };
    assert_eq!(data.as_ptr(), place);
}

#[test]
fn there_is_room_for_all_of_a_frame_once_its_length_is_known() {
    const BODY_BYTES: usize = 60_000;
    let mut stream = Vec::new();
    append(&vec![5u8; BODY_BYTES], &mut stream);
    let mut buffer = FrameBuffer::default();
    buffer.extend(&stream[..3]);
    for piece in stream[3..].chunks(7_001) {
        let tail = buffer.tail(1);
        let (place, room) = (tail.as_ptr(), tail.capacity() - tail.len());
        assert!(room >= piece.len(), "{room} bytes of room for {}", piece.len());
        buffer.extend(piece);
        assert_eq!(buffer.tail(0).as_ptr(), place, "what is there does not move");
    }
    assert_eq!(buffer.next_frame().unwrap().map(<[u8]>::len), Some(stream.len() - 3));
    assert_eq!(buffer.pending(), 0);
    // An invalid prefix reserves no memory, and is refused as before.
    buffer.extend(&[0xFF; 20]);
    assert!(buffer.tail(1).capacity() < 2 * stream.len());
    assert_eq!(buffer.next_frame(), Err(FrameError::BadLength));
}
