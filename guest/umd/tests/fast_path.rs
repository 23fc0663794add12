//! A CPU wait whose value is reached already: no message, no allocation. And the cases in which the host is asked.

mod counting;
mod host;

use std::os::fd::AsRawFd;
use std::thread;

use counting::ALLOCATIONS;
use covers::covers;
use d3dkmt::{
    Call, GpuSignal, Handle, Handles, NtStatus, SignalFlags, SyncObjectFlags, Values, WaitFromCpuFlags,
    WaitOutcome,
};
use dxcore::client::{CallerEvent, Session, block_on};
use host::{ADAPTER, DEVICE, Peer, connect_with_fences, create_fence, welcome};
use proto::channel::Welcome;
use rustix::event::{EventfdFlags, eventfd};

const ALL: WaitFromCpuFlags = WaitFromCpuFlags::empty();
const ANY: WaitFromCpuFlags = WaitFromCpuFlags::WAIT_ANY;

#[test]
fn a_reached_value_costs_no_message_and_no_allocation() {
    covers!("FEN-031", "W-105", "W-106");
    let (session, peer, fences) = connect_with_fences(welcome(), &[5, 9]);
    let objects = [fences[0].object, fences[1].object];
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let sent = session.port().channel().messages_sent();
    let wait = |objects: &[Handle], values: &[u64], flags| {
        let before = ALLOCATIONS.get();
        assert_eq!(block_on(session.wait_from_cpu(DEVICE, objects, values, flags, None)), NtStatus::SUCCESS);
        assert_eq!(ALLOCATIONS.get(), before);
    };
    wait(&objects[..1], &[5], ALL);
    wait(&objects, &[4, 9], ALL);
    wait(&objects, &[6, 9], ANY);
    peer.store(0, u64::MAX);
    wait(&objects, &[u64::MAX, 0], ALL);
    let many = [objects[0]; 32];
    wait(&many, &[1; 32], ALL);

    let before = ALLOCATIONS.get();
    let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
    assert_eq!(
        block_on(session.wait_from_cpu(DEVICE, &objects, &[1, 1], ALL, Some(caller))),
        NtStatus::SUCCESS
    );
    assert_eq!(ALLOCATIONS.get(), before);
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    assert_eq!(session.port().channel().messages_sent(), sent);
}

#[test]
fn a_one_way_packet_allocates_no_memory() {
    let asynchronous = Welcome { async_submission: true, ..welcome() };
    let (session, mut peer, fences) = connect_with_fences(asynchronous, &[0]);
    let (context, fence) = (Handle(0x4000_0400), fences[0].object);
    let one = |handle| Handles::from_slice(&[handle]);
    let packets = |value: u64| {
        let monitored = GpuSignal::Monitored { objects: one(fence), values: Values::from_slice(&[value]) };
        [
            Call::SignalFromGpu { contexts: one(context), signal: monitored, flags: SignalFlags::empty() },
            Call::WaitFromGpu { context, objects: one(fence), values: Values::from_slice(&[value]) },
        ]
    };
    for value in 0..3 {
        let before = ALLOCATIONS.get();
        for packet in packets(value) {
            assert_eq!(block_on(session.submit(&packet)), NtStatus::SUCCESS);
        }
        // The write buffer is allocated once.
        assert!(value == 0 || ALLOCATIONS.get() == before);
        assert_eq!([peer.call(), peer.call()], packets(value).map(|packet| (0, packet)));
    }
}

/// The wait is forwarded, and the host accepts it.
fn assert_asked(
    session: &Session,
    peer: &mut Peer,
    device: Handle,
    objects: &[Handle],
    values: &[u64],
    flags: u32,
) {
    let flags = WaitFromCpuFlags::from_bits_retain(flags);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(session.wait_from_cpu(device, objects, values, flags, None)));
        let (request, _) = peer.wait_call();
        peer.answer_wait(request, WaitOutcome::Satisfied);
        assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    });
}

#[test]
fn whatever_is_not_known_for_sure_is_asked() {
    covers!("FEN-051");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[5]);
    let fence = fences[0].object;
    let no_wait = thread::scope(|scope| {
        let creating = scope.spawn(|| create_fence(&session, 5, SyncObjectFlags::NO_WAIT));
        peer.answer_create(1, 5);
        creating.join().unwrap().object
    });
    let other_device = Handle(DEVICE.0 + 0x40);
    assert_asked(&session, &mut peer, DEVICE, &[fence], &[6], 0);
    assert_asked(&session, &mut peer, DEVICE, &[no_wait], &[5], 0);
    assert_asked(&session, &mut peer, DEVICE, &[fence, no_wait], &[5, 5], 1);
    assert_asked(&session, &mut peer, DEVICE, &[Handle(0x4000_4000)], &[0], 0);
    assert_asked(&session, &mut peer, DEVICE, &[fence], &[5], 2);
    assert_asked(&session, &mut peer, other_device, &[fence], &[5], 0);
}

#[test]
fn a_wait_on_a_destroyed_handle_is_forwarded_before_the_host_destroys_it() {
    covers!("GPV-034");
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[5, 5]);
    thread::scope(|scope| {
        let destroying = scope.spawn(|| block_on(session.destroy_sync_object(fences[0].object)));
        let (request, _) = peer.call();
        // The host has the call; the caller has no answer yet.
        assert_asked(&session, &mut peer, DEVICE, &[fences[0].object], &[5], 0);
        peer.answer(request, NtStatus::SUCCESS, &d3dkmt::Reply::None);
        assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
        let destroying = scope.spawn(|| block_on(session.destroy_device(DEVICE)));
        let (request, _) = peer.call();
        peer.answer(request, NtStatus::SUCCESS, &d3dkmt::Reply::None);
        assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
    });
    assert!(!session.knows_device(DEVICE));
    assert_asked(&session, &mut peer, DEVICE, &[fences[1].object], &[5], 0);
}

#[test]
fn closing_the_last_handle_of_an_adapter_forgets_its_devices() {
    let (session, mut peer) = host::connect(welcome(), 64);
    thread::scope(|scope| {
        let setting_up = scope.spawn(|| {
            let luid = d3dkmt::Luid { low: 1, high: 0 };
            assert_eq!(block_on(session.open_adapter(luid)), Ok(ADAPTER));
            assert_eq!(block_on(session.create_device(ADAPTER, 0)), Ok(DEVICE));
            assert!(session.knows_device(DEVICE));
            assert_eq!(block_on(session.close_adapter(ADAPTER)), NtStatus::SUCCESS);
            assert!(!session.knows_device(DEVICE));
        });
        for reply in [d3dkmt::Reply::Adapter(ADAPTER), d3dkmt::Reply::Device(DEVICE), d3dkmt::Reply::None] {
            let (request, _) = peer.call();
            peer.answer(request, NtStatus::SUCCESS, &reply);
        }
        setting_up.join().unwrap();
    });
}

#[test]
fn a_recorded_session_forwards_every_wait() {
    let recording = proto::channel::Welcome { recording: true, ..welcome() };
    let (session, mut peer, fences) = connect_with_fences(recording, &[5]);
    assert!(session.is_recording());
    assert_asked(&session, &mut peer, DEVICE, &[fences[0].object], &[1], 0);
}
