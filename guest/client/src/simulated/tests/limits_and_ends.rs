//! Calls that need no message, calls that need more memory, and the loss of the transport.

use covers::covers;

use super::*;
use d3dkmt::{Handles, Values};

/// The wait is sent to the host, which accepts it.
fn assert_asked(
    session: &Session<SimulatedPort>,
    device: Handle,
    objects: &[Handle],
    values: &[u64],
    flags: u32,
) {
    let flags = WaitFromCpuFlags::from_bits_retain(flags);
    let waiting = session.wait_from_cpu(device, objects, values, flags, None);
    assert_eq!(serve(session, waiting, |_, _| SATISFIED), NtStatus::SUCCESS);
}

#[test]
fn a_reached_value_costs_no_message() {
    covers!("FEN-031", "W-105", "W-106");
    let (session, fences) = session_with_fences(welcome(), &[5, 9]);
    let port = session.port();
    let objects = [fences[0].object, fences[1].object];
    let sent = port.messages_sent();
    let event = SimulatedEvent::default();
    let any = WaitFromCpuFlags::WAIT_ANY;
    for (values, flags, event) in
        [([5, 9], ALL, None), ([6, 9], any, None), ([0, 0], ALL, Some(event.clone()))]
    {
        let waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &values, flags, event));
        assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
    }
    port.memory().store(0, 6);
    let waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[6, 9], ALL, None));
    assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
    assert_eq!((port.messages_sent(), port.take_outbound(), event.take()), (sent, vec![], 1));
    assert_eq!(fences[0].location.as_ref().map(Location::value), Some(6));
}

#[test]
fn whatever_is_not_known_for_sure_is_asked() {
    covers!("FEN-051");
    let (session, fences) = session_with_fences(welcome(), &[5]);
    let fence = fences[0].object;
    let no_wait = create_fence(&session, 1, 5, SyncObjectFlags::NO_WAIT.bits()).object;
    assert_asked(&session, DEVICE, &[fence], &[6], 0);
    assert_asked(&session, DEVICE, &[no_wait], &[5], 0);
    assert_asked(&session, DEVICE, &[fence, no_wait], &[5, 5], WaitFromCpuFlags::WAIT_ANY.bits());
    assert_asked(&session, DEVICE, &[Handle(0x4000_4000)], &[0], 0);
    assert_asked(&session, DEVICE, &[fence], &[5], 2);
    assert_asked(&session, Handle(DEVICE.0 + 0x40), &[fence], &[5], 0);
    let (recorded, fences) = session_with_fences(Welcome { recording: true, ..welcome() }, &[5]);
    assert_asked(&recorded, DEVICE, &[fences[0].object], &[1], 0);
}

/// Calls that enqueue something, with these numbers of contexts or queues, objects and values. A signal of legacy
/// objects has one context more.
fn queued(queues: usize, objects: usize, values: usize) -> Vec<Call> {
    let contexts = Handles::from_slice(&vec![Handle(7); queues]);
    let (context, queue, flags) = (Handle(7), Handle(7), SignalFlags::empty());
    let (objects, values) =
        (Handles::from_slice(&vec![Handle(8); objects]), Values::from_slice(&vec![0; values]));
    let monitored = GpuSignal::Monitored { objects: objects.clone(), values: values.clone() };
    let legacy = GpuSignal::Legacy { objects: objects.clone(), fence_value: 0 };
    let gpu_signal = |signal| Call::SignalFromGpu { contexts: contexts.clone(), signal, flags };
    let mut calls = vec![
        gpu_signal(monitored),
        Call::SubmitSignalToHwQueue {
            queues: contexts.clone(),
            objects: objects.clone(),
            values: values.clone(),
            flags,
        },
    ];
    if objects.len() == values.len() {
        let contexts = Handles::from_slice(&vec![Handle(7); queues + usize::from(queues > 0)]);
        calls.push(Call::SignalFromGpu { contexts, signal: legacy, flags });
    }
    if queues == 1 {
        let (waited, of) = (objects.clone(), values.clone());
        calls.push(Call::WaitFromGpu { context, objects: waited.clone(), values: of.clone() });
        calls.push(Call::SubmitWaitToHwQueue { queue, objects: waited, values: of });
        if objects.len() == values.len() {
            calls.push(Call::WaitFromGpuLegacy { context, objects, fence_value: 0 });
        }
    } else {
        let (commands, length, private_data) = (0, 0, vec![]);
        calls.push(Call::SubmitCommand { contexts, commands, length, flags: 0, private_data });
    }
    calls
}

#[test]
fn counts_that_no_host_takes_are_refused_without_a_message() {
    covers!("GPV-025");
    for async_submission in [false, true] {
        let (session, fences) = session_with_fences(Welcome { async_submission, ..welcome() }, &[5]);
        let (port, fence) = (session.port(), fences[0].object);
        let sent = port.messages_sent();
        let event = SimulatedEvent::default();
        for count in [0, 33, 64] {
            let (objects, values) = (vec![fence; count], vec![0; count]);
            for event in [None, Some(event.clone())] {
                let waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &values, ALL, event));
                assert_eq!(finished(poll_once(waiting)), NtStatus::INVALID_PARAMETER);
            }
            let signaling = pin!(session.signal_from_cpu(DEVICE, &objects, &values, SignalFlags::empty()));
            assert_eq!(finished(poll_once(signaling)), NtStatus::INVALID_PARAMETER);
        }
        let counts = [(1, 0, 0), (1, 33, 33), (1, 2, 1), (0, 1, 1), (65, 1, 1)];
        for call in counts.into_iter().flat_map(|(queues, objects, values)| queued(queues, objects, values)) {
            let submitting = pin!(session.submit(&call));
            assert_eq!(finished(poll_once(submitting)), NtStatus::INVALID_PARAMETER, "{call:?}");
        }
        for contexts in [0, 65] {
            let contexts = Handles::from_slice(&vec![Handle(7); contexts]);
            let flags = SignalFlags::ENQUEUE_CPU_EVENT;
            let signaling = pin!(session.signal_event_from_gpu(contexts, flags, event.clone()));
            assert_eq!(finished(poll_once(signaling)), NtStatus::INVALID_PARAMETER);
        }
        assert_eq!((port.messages_sent(), port.pending(), event.take()), (sent, 0, 0));
        // At the limits the host is asked.
        let most = [(64, 32, 32), (1, 32, 32), (1, 1, 1)];
        for call in most.into_iter().flat_map(|(queues, objects, values)| queued(queues, objects, values)) {
            let _ = poll_once(pin!(session.submit(&call)));
            assert_eq!(calls(port).len(), 1, "{call:?}");
        }
    }
}

#[test]
fn a_reached_value_is_asked_about_while_a_device_is_stopped() {
    covers!("FEN-095");
    const STATUS: u32 = 9;
    let welcome = Welcome { status_slot_plus_one: STATUS + 1, ..welcome() };
    let (session, fences) = session_with_fences(welcome, &[5]);
    let port = session.port();
    let objects = [fences[0].object];
    let waits_alone = || {
        let sent = port.messages_sent();
        let waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[5], ALL, None));
        assert_eq!(finished(poll_once(waiting)), NtStatus::SUCCESS);
        assert_eq!(port.messages_sent(), sent);
    };
    waits_alone();
    port.memory().store(STATUS, 1);
    let mut waiting = pin!(session.wait_from_cpu(DEVICE, &objects, &[5], ALL, None));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let (request, _) = one_wait(port);
    port.receive(&answer(request, NtStatus::DEVICE_REMOVED, &Reply::None));
    assert_eq!(finished(poll_once(waiting)), NtStatus::DEVICE_REMOVED);
    assert_asked(&session, DEVICE, &objects, &[5], 0);
    port.memory().store(STATUS, 0);
    waits_alone();
}

/// The state of a device, and whether the host was asked for it: it says HUNG.
fn state_of(session: &Session<SimulatedPort>, device: Handle, state_type: u32) -> (Reply, bool) {
    let mut asking = pin!(session.device_state(device, state_type));
    if let Poll::Ready(answer) = poll_once(asking.as_mut()) {
        assert_eq!(answer.status, NtStatus::SUCCESS);
        return (answer.reply, false);
    }
    let (request, _) = one_call(session.port());
    session.port().receive(&answer(request, NtStatus::SUCCESS, &Reply::DeviceState(3)));
    (finished(poll_once(asking)).reply, true)
}

#[test]
fn an_active_device_is_known_to_be_active_until_the_host_stores_that_one_is_not() {
    covers!("GPV-026");
    const STATUS: u32 = 9;
    let with_status = |welcome| Welcome { status_slot_plus_one: STATUS + 1, ..welcome };
    let (active, asked) = ((Reply::DeviceState(1), false), (Reply::DeviceState(3), true));
    let (session, _) = session_with_fences(with_status(welcome()), &[]);
    assert_eq!(state_of(&session, DEVICE, 1), active);
    session.port().memory().store(STATUS, 1);
    assert_eq!(state_of(&session, DEVICE, 1), asked, "a device is not, and which one only the host knows");
    session.port().memory().store(STATUS, 0);
    assert_eq!(state_of(&session, DEVICE, 1), active);
    // Other states, and devices that are not this process's, or no longer.
    assert_eq!(state_of(&session, DEVICE, 3), asked);
    assert_eq!(state_of(&session, Handle(DEVICE.0 + 0x40), 1), asked);
    assert_eq!(serve(&session, session.destroy_device(DEVICE), |_, _| Reply::None), NtStatus::SUCCESS);
    assert_eq!(state_of(&session, DEVICE, 1), asked);
    // A host without a status slot is asked. So is one with asynchronous submission, and one that records.
    let asynchronous = Welcome { async_submission: true, ..welcome() };
    let recording = Welcome { recording: true, ..welcome() };
    for welcome in [welcome(), with_status(asynchronous), with_status(recording)] {
        let (session, _) = session_with_fences(welcome, &[]);
        assert_eq!(state_of(&session, DEVICE, 1), asked);
    }
}

#[test]
fn an_unknown_status_slot_is_the_hosts_defect_and_every_wait_is_forwarded() {
    let welcome = Welcome { status_slot_plus_one: 65, ..welcome() };
    let (session, fences) = session_with_fences(welcome, &[5]);
    let lines = session.port().take_lines();
    assert!(matches!(&lines[..], [line] if line.contains("status slot 64")), "{lines:?}");
    assert_asked(&session, DEVICE, &[fences[0].object], &[5], 0);
}

#[test]
fn a_wait_on_a_destroyed_handle_is_forwarded_before_the_host_destroys_it() {
    covers!("GPV-034");
    let (session, fences) = session_with_fences(welcome(), &[5, 5]);
    let destroying = session.destroy_sync_object(fences[0].object);
    let status = serve(&session, destroying, |_, _| {
        assert_asked(&session, DEVICE, &[fences[0].object], &[5], 0);
        Reply::None
    });
    assert_eq!(status, NtStatus::SUCCESS);
    let status = serve(&session, session.destroy_device(DEVICE), |_, _| {
        assert!(!session.knows_device(DEVICE));
        assert_asked(&session, DEVICE, &[fences[1].object], &[5], 0);
        Reply::None
    });
    assert_eq!(status, NtStatus::SUCCESS);
}

#[test]
fn a_create_call_is_made_again_when_there_is_more_memory() {
    let (session, _) = session_with_fences(welcome(), &[]);
    let port = session.port();
    let mut one = pin!(session.create_sync_object(DEVICE, fence_info(7, 0), false, None));
    let mut other = pin!(session.create_sync_object(DEVICE, fence_info(8, 0), false, None));
    for creating in [&mut one, &mut other] {
        assert!(poll_once(creating.as_mut()).is_pending());
        let (request, _) = one_call(port);
        port.receive(&answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted));
    }
    assert!(poll_once(one.as_mut()).is_pending());
    assert!(poll_once(other.as_mut()).is_pending());
    assert_eq!((port.growth_wanted(), port.take_outbound()), (Some(64), vec![]), "one asks for both");
    port.grant_growth();
    assert_eq!((port.growth_wanted(), port.memory().slots()), (None, 128));
    // The operation that asked gets the memory first, whichever is polled first; then the other finds it.
    assert!(poll_once(other.as_mut()).is_pending());
    for (creating, slot) in [(&mut one, 64), (&mut other, 65)] {
        assert!(poll_once(creating.as_mut()).is_pending());
        let (request, _) = one_call(port);
        port.receive(&answer(request, NtStatus::SUCCESS, &created(slot)));
        let fence = finished(poll_once(creating.as_mut())).expect("creates");
        assert_eq!(fence.location.map(|location| location.slot()), Some(slot));
    }
    assert_eq!((port.growth_wanted(), port.pending()), (None, 0));

    // The next growth doubles; the refusal of a create call may carry a failing status.
    let mut refused = pin!(session.create_sync_object(DEVICE, fence_info(7, 0), false, None));
    assert!(poll_once(refused.as_mut()).is_pending());
    let (request, _) = one_call(port);
    port.receive(&answer(request, NtStatus::NO_MEMORY, &Reply::FenceMemoryExhausted));
    assert!(poll_once(refused.as_mut()).is_pending());
    assert_eq!(port.growth_wanted(), Some(128));
    port.refuse_growth();
    assert_eq!(finished(poll_once(refused)).err(), Some(NtStatus::NO_MEMORY));
    assert_eq!((port.growth_wanted(), port.pending()), (None, 0));
}

#[test]
fn a_create_call_gives_up_when_others_always_take_the_memory() {
    let (session, _) = session_with_fences(welcome(), &[]);
    let port = session.port();
    let mut creating = pin!(session.create_sync_object(DEVICE, fence_info(7, 0), false, None));
    for _ in 0..crate::limits::GROW_ATTEMPTS_MAX {
        assert!(poll_once(creating.as_mut()).is_pending());
        let (request, _) = one_call(port);
        port.receive(&answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted));
        assert!(poll_once(creating.as_mut()).is_pending());
        port.grant_growth();
    }
    assert_eq!(finished(poll_once(creating)).err(), Some(NtStatus::NO_MEMORY));
}

#[test]
fn a_lost_transport_completes_everything() {
    let (session, fences) = session_with_fences(welcome(), &[0]);
    let port = session.port();
    let objects = [fences[0].object];
    let event = SimulatedEvent::default();
    let armed = session.wait_from_cpu(DEVICE, &objects, &[1], ALL, Some(event.clone()));
    assert_eq!(serve(&session, armed, |_, _| REGISTERED), NtStatus::SUCCESS);
    let mut calling = pin!(session.call(&STATE));
    let mut asked = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
    let mut registered = pin!(session.wait_from_cpu(DEVICE, &objects, &[1], ALL, None));
    let mut growing = pin!(session.create_sync_object(DEVICE, fence_info(7, 0), false, None));
    assert!(poll_once(calling.as_mut()).is_pending());
    assert!(poll_once(asked.as_mut()).is_pending());
    calls(port);
    assert!(poll_once(registered.as_mut()).is_pending());
    let (request, _) = one_wait(port);
    port.receive(&answer(request, NtStatus::SUCCESS, &REGISTERED));
    assert!(poll_once(registered.as_mut()).is_pending());
    assert!(poll_once(growing.as_mut()).is_pending());
    let (request, _) = one_call(port);
    port.receive(&answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted));
    assert!(poll_once(growing.as_mut()).is_pending());
    assert_eq!((port.growth_wanted(), port.pending()), (Some(64), 5));

    port.lose();
    assert_eq!(event.take(), 1);
    assert_eq!(finished(poll_once(calling)), Answer::refused(TRANSPORT_LOST));
    assert_eq!(finished(poll_once(asked)), TRANSPORT_LOST);
    assert_eq!(finished(poll_once(registered)), TRANSPORT_LOST);
    assert_eq!(finished(poll_once(growing)).err(), Some(TRANSPORT_LOST));
    assert_eq!((port.growth_wanted(), port.pending(), port.take_outbound()), (None, 0, vec![]));

    // Later calls fail too, even those that the fence memory could answer.
    let sent = port.messages_sent();
    let reached = pin!(session.wait_from_cpu(DEVICE, &objects, &[0], ALL, None));
    assert_eq!(finished(poll_once(reached)), TRANSPORT_LOST);
    assert_eq!(finished(poll_once(pin!(session.call(&STATE)))).status, TRANSPORT_LOST);
    assert!(session.is_lost());
    assert_eq!((port.messages_sent(), event.take()), (sent, 0));
    port.lose();
    assert_eq!((event.take(), port.take_lines()), (0, vec![]));
}

#[test]
fn messages_before_the_goodbye_are_delivered() {
    let session = new_session(welcome());
    let port = session.port();
    let (mut answered, mut lost) = (pin!(session.call(&STATE)), pin!(session.call(&STATE)));
    assert!(poll_once(answered.as_mut()).is_pending());
    assert!(poll_once(lost.as_mut()).is_pending());
    let goodbye = to_guest::Body::Goodbye("the test says so".to_owned());
    let goodbye = bytes(&ToGuest { request: 0, status: 0, body: Some(goodbye) });
    port.receive(&[answer(1, NtStatus::SUCCESS, &Reply::DeviceState(1)), goodbye].concat());
    assert_eq!(finished(poll_once(answered)).reply, Reply::DeviceState(1));
    assert_eq!(finished(poll_once(lost)).status, TRANSPORT_LOST);
    let lines = port.take_lines();
    assert!(matches!(&lines[..], [line] if line.contains("the test says so")), "{lines:?}");
    for invalid_bytes in [&[0xFF, 0xFF, 0xFF, 0x7F][..], &[3, 0xFF, 0xFF, 0xFF], &bytes(&ToGuest::default())]
    {
        let session = new_session(welcome());
        session.port().receive(invalid_bytes);
        assert!(session.is_lost());
    }
}

/// The host's refusal would stop the device, and the program would not learn why.
#[test]
fn reserved_flags_of_a_one_way_submission_are_refused_without_a_message() {
    let submit = |flags| Call::SubmitCommand {
        contexts: vec![Handle(1)].into(),
        commands: 0,
        length: 0,
        flags,
        private_data: vec![],
    };
    let (session, _) = session_with_fences(Welcome { async_submission: true, ..welcome() }, &[]);
    for (flags, status) in [(0b111, NtStatus::SUCCESS), (8, NtStatus::INVALID_PARAMETER)] {
        let sent = session.port().messages_sent();
        assert_eq!(finished(poll_once(pin!(session.submit(&submit(flags))))), status);
        assert_eq!(session.port().messages_sent() - sent, u64::from(status.is_success()));
    }
}

#[test]
fn one_way_submissions_are_over_at_once() {
    covers!("GPV-015");
    let (session, _) = session_with_fences(Welcome { async_submission: true, ..welcome() }, &[]);
    let port = session.port();
    let wait = Call::WaitFromGpu { context: Handle(1), objects: vec![DEVICE].into(), values: vec![1].into() };
    assert_eq!(finished(poll_once(pin!(session.submit(&wait)))), NtStatus::SUCCESS);
    assert_eq!(one_call(port), (0, wait));
    let event = SimulatedEvent::default();
    let flags = SignalFlags::ENQUEUE_CPU_EVENT;
    let signal = || session.signal_event_from_gpu(vec![Handle(1)].into(), flags, event.clone());
    assert_eq!(finished(poll_once(pin!(signal()))), NtStatus::SUCCESS);
    let (0, Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event: name }, .. }) = one_call(port) else {
        panic!("not the signal")
    };
    port.receive(&wake(name, NtStatus::SUCCESS));
    assert_eq!((event.take(), port.pending()), (1, 0));
    port.lose();
    assert_eq!(finished(poll_once(pin!(signal()))), TRANSPORT_LOST);
    assert_eq!((event.take(), port.pending()), (0, 0));
}

#[test]
fn a_message_over_the_limit_is_refused_and_not_sent() {
    covers!("GPV-009");
    let session = new_session(welcome());
    let private_data = vec![0; d3dkmt::limits::MESSAGE_BYTES_MAX];
    let call =
        Call::SubmitCommand { contexts: vec![].into(), commands: 0, length: 0, flags: 0, private_data };
    assert_eq!(finished(poll_once(pin!(session.submit(&call)))), NtStatus::INVALID_PARAMETER);
    assert_eq!((session.port().messages_sent(), session.port().pending()), (0, 0));
}

#[test]
fn the_greeting_gives_the_welcome_and_keeps_what_came_behind_it() {
    let port = SimulatedPort::new(SimulatedMemory::new(64));
    let mut greeting = pin!(port.greet(b"token".to_vec()));
    assert!(poll_once(greeting.as_mut()).is_pending());
    let mut frames = proto::frame::FrameBuffer::default();
    frames.extend(&port.take_outbound());
    let hello: ToHost = decode(frames.next_frame().unwrap().unwrap()).unwrap();
    assert!(matches!(hello.body, Some(to_host::Body::Hello(hello)) if hello.token == b"token"));
    let body = Some(to_guest::Body::Welcome(welcome()));
    let frame = bytes(&ToGuest { request: 0, status: 0, body });
    let (first, rest) = frame.split_at(2);
    port.receive(first);
    assert!(poll_once(greeting.as_mut()).is_pending());
    port.receive(&[rest, &wake(EventId(1), NtStatus::SUCCESS), &frame[..1]].concat());
    assert_eq!(finished(poll_once(greeting)), Ok(welcome()));
    assert!(!port.is_lost());
    port.receive(&frame[1..]);
    assert!(port.is_lost(), "a second Welcome");

    let port = SimulatedPort::new(SimulatedMemory::new(64));
    let mut greeting = pin!(port.greet(vec![]));
    assert!(poll_once(greeting.as_mut()).is_pending());
    port.lose();
    assert!(finished(poll_once(greeting)).is_err());
}
