//! Round trips of every conversion, and frames under hostile bytes.

use d3dkmt::{
    Adapter, Call, CreateContextFlags, CreatedSyncObject, EventId, GpuSignal, Handle, Luid, NtStatus, Reply,
    ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags, WaitOutcome,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::actor::{Order, Outcome, Report, Task};
use crate::convert::{FromHost, answer_to_frame, call_from_body, call_to_frame, from_host, wake_to_frame};
use crate::frame::{FrameBuffer, FrameError, append, decode};
use crate::limits::FRAME_BYTES_MAX;

fn handle() -> impl Strategy<Value = Handle> {
    any::<u32>().prop_map(Handle)
}

fn luid() -> impl Strategy<Value = Luid> {
    any::<(u32, i32)>().prop_map(|(low, high)| Luid { low, high })
}

fn event() -> impl Strategy<Value = EventId> {
    (1..=u64::MAX).prop_map(EventId)
}

fn token() -> impl Strategy<Value = ShareToken> {
    any::<[u8; 16]>().prop_map(ShareToken)
}

fn info() -> impl Strategy<Value = SyncObjectInfo> {
    (any::<(u32, u32, bool, u32, u32, u64, u32)>(), proptest::option::of(event())).prop_map(|(raw, event)| {
        SyncObjectInfo {
            object_type: SyncObjectType(raw.0),
            flags: SyncObjectFlags::from_bits_retain(raw.1),
            initial_state: raw.2,
            max_count: raw.3,
            initial_count: raw.4,
            initial_value: raw.5,
            engine_affinity: raw.6,
            event,
        }
    })
}

fn call() -> impl Strategy<Value = Call> {
    let handles = || vec(handle(), 0..40);
    let values = || vec(any::<u64>(), 0..40);
    let bytes = || vec(any::<u8>(), 0..200);
    prop_oneof![
        any::<u32>().prop_map(|capacity| Call::EnumAdapters { capacity }),
        luid().prop_map(|luid| Call::OpenAdapterFromLuid { luid }),
        handle().prop_map(|adapter| Call::CloseAdapter { adapter }),
        (handle(), any::<u32>(), bytes()).prop_map(|(adapter, kind, data)| Call::QueryAdapterInfo {
            adapter,
            kind,
            data
        }),
        (handle(), any::<u32>()).prop_map(|(adapter, flags)| Call::CreateDevice { adapter, flags }),
        handle().prop_map(|device| Call::DestroyDevice { device }),
        (handle(), any::<u32>()).prop_map(|(device, state_type)| Call::GetDeviceState { device, state_type }),
        (handle(), any::<[u32; 4]>(), bytes()).prop_map(|(device, raw, private_data)| {
            Call::CreateContextVirtual {
                device,
                node_ordinal: raw[0],
                engine_affinity: raw[1],
                flags: CreateContextFlags::from_bits_retain(raw[2]),
                client_hint: raw[3],
                private_data,
            }
        }),
        handle().prop_map(|context| Call::DestroyContext { context }),
        (handle(), info(), any::<bool>())
            .prop_map(|(device, info, legacy)| Call::CreateSynchronizationObject { device, info, legacy }),
        handle().prop_map(|object| Call::DestroySynchronizationObject { object }),
        (handle(), handles(), values(), any::<u32>()).prop_map(|(device, objects, values, flags)| {
            Call::SignalFromCpu { device, objects, values, flags: SignalFlags::from_bits_retain(flags) }
        }),
        (handle(), handles(), values(), any::<u32>(), event()).prop_map(
            |(device, objects, values, flags, event)| Call::WaitFromCpu {
                device,
                objects,
                values,
                flags: WaitFromCpuFlags::from_bits_retain(flags),
                event
            }
        ),
        event().prop_map(|event| Call::CancelWait { event }),
        (handles(), handles(), values(), any::<u32>()).prop_map(|(contexts, objects, values, flags)| {
            Call::SignalFromGpu {
                contexts,
                signal: GpuSignal::Monitored { objects, values },
                flags: SignalFlags::from_bits_retain(flags),
            }
        }),
        (handles(), event(), any::<u32>()).prop_map(|(contexts, event, flags)| Call::SignalFromGpu {
            contexts,
            signal: GpuSignal::CpuEvent { event },
            flags: SignalFlags::from_bits_retain(flags),
        }),
        (handle(), handles(), values()).prop_map(|(context, objects, values)| Call::WaitFromGpu {
            context,
            objects,
            values
        }),
        (handles(), any::<(u64, u32, u32)>(), bytes()).prop_map(|(contexts, raw, private_data)| {
            Call::SubmitCommand { contexts, commands: raw.0, length: raw.1, flags: raw.2, private_data }
        }),
        (handle(), any::<u32>(), token()).prop_map(|(object, desired_access, token)| Call::ShareObject {
            object,
            desired_access,
            token
        }),
        (handle(), token(), any::<u32>(), any::<u32>()).prop_map(
            |(device, token, flags, engine_affinity)| {
                Call::OpenSyncObject {
                    device,
                    token,
                    flags: SyncObjectFlags::from_bits_retain(flags),
                    engine_affinity,
                }
            }
        ),
        token().prop_map(|token| Call::CloseShare { token }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::None),
        vec((handle(), luid(), any::<u32>()), 0..5).prop_map(|list| Reply::Adapters(
            list.into_iter().map(|(handle, luid, sources)| Adapter { handle, luid, sources }).collect()
        )),
        handle().prop_map(Reply::Adapter),
        vec(any::<u8>(), 0..100).prop_map(Reply::AdapterInfo),
        handle().prop_map(Reply::Device),
        any::<u32>().prop_map(Reply::DeviceState),
        handle().prop_map(Reply::Context),
        (handle(), handle(), proptest::option::of(0..u32::MAX - 1), any::<u64>()).prop_map(
            |(object, shared_handle, slot, gpu_address)| Reply::SyncObject(CreatedSyncObject {
                object,
                shared_handle,
                slot,
                gpu_address
            })
        ),
        prop_oneof![Just(WaitOutcome::Satisfied), Just(WaitOutcome::Registered)].prop_map(Reply::Wait),
        Just(Reply::FenceMemoryExhausted),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    let event = || proptest::option::of(1..=u64::MAX);
    prop_oneof![
        4 => (call(), event()).prop_map(|(call, event)| Task::Call { call, event }),
        1 => Just(Task::StartThread),
        1 => any::<u64>().prop_map(Task::NewEvent),
        1 => any::<u64>().prop_map(Task::TakeEvent),
        1 => any::<u64>().prop_map(Task::CloseEvent),
        1 => handle().prop_map(Task::ReadValue),
        1 => Just(Task::MessagesSent),
        1 => Just(Task::Barrier),
        1 => any::<String>().prop_map(Task::OpenMailbox),
        1 => (token(), any::<String>()).prop_map(|(token, mailbox)| Task::SendShare { token, mailbox }),
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
        let mut bytes = Vec::new();
        append(&call_to_frame(request, &call), &mut bytes);
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
        let read = from_host(decode(&crate::Message::encode_to_vec(&frame)).unwrap()).unwrap();
        prop_assert_eq!(read, FromHost::Answer { request, status: NtStatus(status), reply });
    }

    #[test]
    fn every_wake_survives_the_wire(event in event(), status in any::<u32>()) {
        let read = from_host(wake_to_frame(event, NtStatus(status))).unwrap();
        prop_assert_eq!(read, FromHost::Wake { event, status: NtStatus(status) });
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
    // covers: GPV-009
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
