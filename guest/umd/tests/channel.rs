//! The stream and its readers: leader and followers, wakes, events, growth.

mod host;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use client::Port;
use covers::covers;
use d3dkmt::limits::MESSAGE_BYTES_MAX;
use d3dkmt::{Call, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, CreatedFence, EventError, Parents, Session, block_on};
use host::event::{is_set, new_event, taken};
use host::{DEVICE, Peer, connect, connect_with_fences, create_fence, created, fence_handle, welcome};
use proto::attach::broker_request::Body;
use proto::convert::wake_to_frame;
use proto::frame::append;
use rustix::event::{EventfdFlags, eventfd};

fn state_of(session: &Session, device: Handle) -> (NtStatus, Reply) {
    let answer = block_on(session.call(&Call::GetDeviceState { device, state_type: 1 }));
    (answer.status, answer.reply)
}

fn wait_for(session: &Session, fence: &CreatedFence, value: u64, event: Option<CallerEvent>) -> NtStatus {
    block_on(session.wait_from_cpu(DEVICE, &[fence.object], &[value], WaitFromCpuFlags::empty(), event))
}

fn callers_event() -> (std::os::fd::OwnedFd, CallerEvent) {
    let event = new_event();
    let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
    (event, caller)
}

#[test]
fn eight_threads_get_their_own_answers_whatever_the_order() {
    const THREADS: u32 = 8;
    const CALLS: u32 = 500;
    let (session, mut peer) = connect(welcome(), 64);
    let callers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let session = session.clone();
            thread::spawn(move || {
                for call in 0..CALLS {
                    let device = thread << 16 | call;
                    assert_eq!(
                        state_of(&session, Handle(device)),
                        (NtStatus::SUCCESS, Reply::DeviceState(device))
                    );
                }
            })
        })
        .collect();
    let mut remaining = [CALLS; THREADS as usize];
    for round in 0.. {
        let active = remaining.iter().filter(|remaining| **remaining > 0).count();
        if active == 0 {
            break;
        }
        // The last call is answered first.
        let batch: Vec<_> = (0..active.min(1 + round % THREADS as usize)).map(|_| peer.call()).collect();
        for (request, call) in batch.into_iter().rev() {
            let Call::GetDeviceState { device, .. } = call else { panic!("{call:?}") };
            remaining[device.0 as usize >> 16] -= 1;
            peer.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(device.0));
        }
    }
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(session.port().channel().pending(), 0);
    assert_eq!(session.port().channel().messages_sent(), u64::from(THREADS * CALLS));
}

#[test]
fn a_blocking_wait_ends_with_its_wake_whatever_comes_first() {
    covers!("FEN-027");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let blocked = |session: &Arc<Session>| {
        let (session, fence) = (session.clone(), fences[0].clone());
        thread::spawn(move || wait_for(&session, &fence, 1, None))
    };
    for wake_first in [false, true] {
        for status in [NtStatus::SUCCESS, NtStatus::ABANDONED, NtStatus::DEVICE_REMOVED] {
            let waiter = blocked(&session);
            let (request, event) = peer.wait_call();
            if wake_first {
                peer.wake(event, status);
                peer.answer_wait(request, WaitOutcome::Registered);
            } else {
                peer.answer_wait(request, WaitOutcome::Registered);
                peer.wake(event, status);
            }
            assert_eq!(waiter.join().unwrap(), status);
        }
    }
    let waiter = blocked(&session);
    let (request, _) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Satisfied);
    assert_eq!(waiter.join().unwrap(), NtStatus::SUCCESS);
    let waiter = blocked(&session);
    let (request, _) = peer.wait_call();
    peer.answer(request, NtStatus::ACCESS_DENIED, &Reply::None);
    assert_eq!(waiter.join().unwrap(), NtStatus::ACCESS_DENIED);
    assert_eq!(session.port().channel().pending(), 0);
}

#[test]
fn a_blocked_leader_delivers_the_answers_of_others() {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let (guest, fence) = (session.clone(), fences[0].clone());
    let waiter = thread::spawn(move || wait_for(&guest, &fence, 1, None));
    let (request, event) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    let guest = session.clone();
    let caller = thread::spawn(move || {
        for device in 1..100 {
            assert_eq!(state_of(&guest, Handle(device)).1, Reply::DeviceState(device));
        }
    });
    for device in 1..100 {
        let (request, _) = peer.call();
        peer.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(device));
    }
    caller.join().unwrap();
    peer.wake(event, NtStatus::SUCCESS);
    assert_eq!(waiter.join().unwrap(), NtStatus::SUCCESS);
}

#[test]
fn an_event_is_set_once_though_the_caller_closed_it_and_nobody_waits() {
    covers!("W-107", "EVT-026", "FEN-028");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    for _ in 0..20 {
        let (event, caller) = callers_event();
        let watched = event.try_clone().unwrap();
        let (guest, fence) = (session.clone(), fences[0].clone());
        let waiting = thread::spawn(move || wait_for(&guest, &fence, 1, Some(caller)));
        let (request, name) = peer.wait_call();
        peer.answer_wait(request, WaitOutcome::Registered);
        assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
        drop(event);
        assert!(!is_set(&watched));
        peer.wake(name, NtStatus::SUCCESS);
        // A second wake of the same name is ignored.
        peer.wake(name, NtStatus::SUCCESS);
        assert_eq!(taken(&watched), 1);
    }
    exchange(&session, &mut peer);
    assert_eq!(session.port().channel().pending(), 0);
}

/// Makes one call and answers it: everything sent before has been dispatched.
fn exchange(session: &Arc<Session>, peer: &mut Peer) {
    let guest = session.clone();
    let caller = thread::spawn(move || state_of(&guest, DEVICE));
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::DeviceState(1));
    assert_eq!(caller.join().unwrap().0, NtStatus::SUCCESS);
}

#[test]
fn events_are_delivered_while_another_thread_makes_calls() {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let (event, caller) = callers_event();
    let (guest, fence) = (session.clone(), fences[0].clone());
    let waiting = thread::spawn(move || wait_for(&guest, &fence, 1, Some(caller)));
    let (request, name) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    waiting.join().unwrap();
    for _ in 0..200 {
        exchange(&session, &mut peer);
    }
    assert!(!is_set(&event));
    peer.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&event), 1);
}

#[test]
fn a_wait_satisfied_meanwhile_sets_its_event_before_it_returns() {
    covers!("W-105");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let (event, caller) = callers_event();
    let (guest, fence) = (session.clone(), fences[0].clone());
    let waiting = thread::spawn(move || wait_for(&guest, &fence, 1, Some(caller)));
    let (request, _) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Satisfied);
    assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    assert!(is_set(&event));
    assert_eq!((taken(&event), session.port().channel().pending()), (1, 0));
}

#[test]
fn an_event_at_its_limit_blocks_nobody() {
    let (event, caller) = callers_event();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert_eq!(caller.set(), Ok(()));
    let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&blocking, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let caller = CallerEvent::from_handle(blocking.as_raw_fd() as u64).unwrap();
    caller.keep().unwrap().set();
    assert_eq!(taken(&blocking), u64::MAX - 1);
}

#[test]
fn a_file_that_takes_an_events_number_during_the_call_is_not_written() {
    for is_kept in [false, true] {
        let (event, caller) = callers_event();
        let watched = event.try_clone().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut number = event;
        rustix::io::dup3(&writer, &mut number, rustix::io::DupFlags::CLOEXEC).unwrap();
        match is_kept {
            false => assert_eq!(caller.set(), Ok(())),
            true => caller.keep().unwrap().set(),
        }
        assert!(!is_set(&reader), "bytes were written into the pipe");
        assert_eq!(taken(&watched), 1);
    }
}

#[test]
fn a_descriptor_that_is_no_eventfd_is_refused() {
    covers!("W-047");
    let pipe = rustix::pipe::pipe().unwrap();
    for number in [0, 1 << 20, u64::MAX, pipe.1.as_raw_fd() as u64] {
        assert!(CallerEvent::from_handle(number).is_err(), "{number}");
    }
    // Also an anonymous inode, and noticed only when it is used.
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let caller = || CallerEvent::from_handle(epoll.as_raw_fd() as u64).unwrap();
    assert_eq!(caller().set(), Err(EventError::NotAnEvent));
    assert_eq!(caller().keep().err(), Some(EventError::NotAnEvent));
}

#[test]
fn more_fence_memory_is_brought_behind_the_callers_back() {
    let (session, mut peer, _) = connect_with_fences(welcome(), &[]);
    let guest = session.clone();
    let creating = thread::spawn(move || create_fence(&guest, 7, SyncObjectFlags::empty()));
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted);
    assert_eq!(peer.grow(), 64);
    peer.answer_create(64, 7);
    let fence = creating.join().unwrap();
    let location = fence.location.unwrap();
    assert_eq!((fence.object, location.value(), location.address() % 64), (fence_handle(64), 7, 0));
    peer.store(64, 8);
    assert_eq!(location.value(), 8);

    // The refusal may carry a failing status; the next growth doubles.
    let guest = session.clone();
    let creating = thread::spawn(move || create_fence(&guest, 1, SyncObjectFlags::empty()));
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::NO_MEMORY, &Reply::FenceMemoryExhausted);
    assert_eq!(peer.grow(), 128);
    peer.answer_create(128, 1);
    assert_eq!(creating.join().unwrap().object, fence_handle(128));

    // A thread that needed it at the same time finds it there, and does not ask the broker.
    rustix::net::shutdown(&peer.broker, rustix::net::Shutdown::Both).unwrap();
    assert_eq!(block_on(session.port().grow_memory(128, 64)), Ok(()));
    assert_eq!(session.port().slots(), 256);
}

#[test]
fn a_broker_without_memory_is_no_memory_for_the_caller() {
    let (session, mut peer, _) = connect_with_fences(welcome(), &[]);
    let guest = session.clone();
    let creating = thread::spawn(move || {
        block_on(guest.create_sync_object(DEVICE, d3dkmt::SyncObjectInfo::default(), false, None)).map(|_| ())
    });
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted);
    peer.refuse_grow("enough is enough");
    assert_eq!(creating.join().unwrap(), Err(NtStatus::NO_MEMORY));
    assert_eq!(session.port().channel().pending(), 0);
}

#[test]
fn a_message_of_the_host_is_taken_from_the_stream_and_from_nowhere_else() {
    covers!("GPV-027");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let (event, caller) = callers_event();
    let (guest, fence) = (session.clone(), fences[0].clone());
    let waiting = thread::spawn(move || wait_for(&guest, &fence, 1, Some(caller)));
    let (request, name) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    // The same wake on the broker's connection, where an answer of the broker is due.
    let guest = session.clone();
    let creating = thread::spawn(move || {
        block_on(guest.create_sync_object(DEVICE, d3dkmt::SyncObjectInfo::default(), false, None)).map(|_| ())
    });
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::FenceMemoryExhausted);
    peer.wake_through_the_broker(name);
    assert_eq!(creating.join().unwrap(), Err(NtStatus::NO_MEMORY));
    exchange(&session, &mut peer);
    assert!(!is_set(&event));
    peer.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&event), 1);
}

#[test]
fn submissions_are_one_way_when_the_host_says_so() {
    covers!("GPV-015");
    let one_way = proto::channel::Welcome { async_submission: true, ..welcome() };
    let (session, mut peer, fences) = connect_with_fences(one_way, &[0]);
    let contexts = vec![Handle(0x4000_0100)];
    let objects = vec![fences[0].object];
    let wait = Call::WaitFromGpu { context: contexts[0], objects: objects.into(), values: vec![1].into() };
    assert_eq!(block_on(session.submit(&wait)), NtStatus::SUCCESS);
    assert_eq!(peer.call(), (0, wait));
    let (event, caller) = callers_event();
    assert_eq!(
        block_on(session.signal_event_from_gpu(contexts.into(), SignalFlags::ENQUEUE_CPU_EVENT, caller)),
        NtStatus::SUCCESS
    );
    let (request, Call::SignalFromGpu { signal: d3dkmt::GpuSignal::CpuEvent { event: name }, .. }) =
        peer.call()
    else {
        panic!("not the signal")
    };
    assert_eq!(request, 0);
    peer.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&event), 1);
}

#[test]
fn a_message_over_the_limit_is_refused_and_not_sent() {
    covers!("GPV-009");
    let (session, mut peer) = connect(welcome(), 64);
    let private_data = vec![0; MESSAGE_BYTES_MAX];
    let call =
        Call::SubmitCommand { contexts: vec![].into(), commands: 0, length: 0, flags: 0, private_data };
    assert_eq!(block_on(session.submit(&call)), NtStatus::INVALID_PARAMETER);
    assert_eq!(session.port().channel().call_with(call).status, NtStatus::INVALID_PARAMETER);
    assert_eq!((session.port().channel().messages_sent(), session.port().channel().pending()), (0, 0));
    exchange(&session, &mut peer);
}

#[test]
fn a_fence_in_memory_that_the_process_does_not_have_is_left_and_the_next_one_is_used() {
    let (session, mut peer, _) = connect_with_fences(welcome(), &[]);
    let creating = thread::spawn(move || {
        block_on(session.create_sync_object(DEVICE, d3dkmt::SyncObjectInfo::default(), false, None))
            .map(|_| ())
    });
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(created(64)));
    // If it were destroyed, the host would give its slot to the next one.
    let (request, call) = peer.call();
    assert!(matches!(call, Call::CreateSynchronizationObject { .. }), "{call:?}");
    peer.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(created(1)));
    assert_eq!(creating.join().unwrap(), Ok(()));
}

#[test]
fn backing_pages_whose_descriptor_is_lost_are_detached() {
    let (session, peer) = connect(welcome(), 64);
    let memory = vec![0; 2 * fence_page::PAGE_BYTES];
    let address = (memory.as_ptr() as u64).next_multiple_of(fence_page::PAGE_BYTES as u64);
    let attaching = thread::spawn(move || {
        let parents = Parents { device: DEVICE, resource: Handle::NULL };
        session.port().attach_backing(parents, Handle(0x4000_0100), address..address + 1)
    });
    // The reply has no descriptor.
    assert!(matches!(peer.serve_broker("").0, Body::AttachBacking(_)));
    assert_eq!(peer.serve_broker("").0, Body::DetachBacking(address));
    assert_eq!(attaching.join().unwrap(), Err(NtStatus::NO_MEMORY));
}

#[test]
fn events_whose_wakes_another_thread_has_read_are_set_once_they_are_settled() {
    const EVENTS: usize = 150;
    let (session, mut host, fences) = connect_with_fences(welcome(), &[0]);
    for _ in 0..10 {
        let (events, mut wakes) = (Vec::from_iter((0..EVENTS).map(|_| new_event())), Vec::new());
        for event in &events {
            let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wait_for(&session, &fences[0], 1, Some(caller)));
                let (request, name) = host.wait_call();
                host.answer_wait(request, WaitOutcome::Registered);
                append(&wake_to_frame(name, NtStatus::SUCCESS), &mut wakes);
                assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
            });
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| wait_for(&session, &fences[0], 1, None));
            let (request, name) = host.wait_call();
            host.answer_wait(request, WaitOutcome::Registered);
            let (host, wakes) = (&mut host, &wakes);
            let sending = scope.spawn(move || {
                host.raw(wakes);
                host
            });
            // One read brings all wakes.
            while !is_set(&events[0]) {}
            session.port().settle_events();
            // The last one is set last.
            let set = events.iter().rev().filter(|event| is_set(event)).count();
            sending.join().unwrap().wake(name, NtStatus::SUCCESS);
            assert_eq!((reading.join().unwrap(), set), (NtStatus::SUCCESS, EVENTS));
        });
    }
}
