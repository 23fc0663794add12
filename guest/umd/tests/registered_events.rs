//! Registered events of a driver: what the library requests from the broker, and that the stream delivers refused ones.

mod host;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use covers::covers;
use d3dkmt::{
    Call, CreatedSyncObject, EventId, Handle, NtStatus, Reply, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType,
};
use dxcore::client::{CallerEvent, CreatedFence, Session, attach, block_on};
use host::event::{new_event, taken};
use host::{DEVICE, Listener, Peer, connect, connect_keeping, point_environment_to, send_packet, welcome};
use proto::attach::BrokerReply;
use proto::attach::broker_request::Body;
use rustix::net::sockopt;

const NO_FLAGS: SyncObjectFlags = SyncObjectFlags::empty();
const BY_DRIVER: SyncObjectFlags = SyncObjectFlags::SIGNAL_BY_KMD;

unsafe extern "C" {
    fn D3DKMTCreateSynchronizationObject2(argument: *mut CreateSyncObject) -> i32;
    safe fn gpupv_settle_events();
}

/// `D3DKMT_CREATESYNCHRONIZATIONOBJECT2` of a CPU_NOTIFICATION.
#[repr(C)]
#[derive(Default)]
struct CreateSyncObject {
    device: u64,
    object_type: u32,
    flags: u32,
    event: u64,
    rest: [u64; 9],
}

fn set(event: &OwnedFd) {
    rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
}

type Creating = thread::JoinHandle<Result<CreatedFence, NtStatus>>;

fn begin(session: &Arc<Session>, flags: SyncObjectFlags, event: &OwnedFd) -> Creating {
    let kept = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap().keep().unwrap();
    let object_type = SyncObjectType::CPU_NOTIFICATION;
    let info = SyncObjectInfo { object_type, flags, ..SyncObjectInfo::default() };
    let session = session.clone();
    thread::spawn(move || block_on(session.create_sync_object(DEVICE, info, false, Some(kept))))
}

/// Answers the create call. Returns its event's name.
fn answer_create(host: &mut Peer, status: NtStatus, object: Handle) -> EventId {
    let (request, call) = host.call();
    let Call::CreateSynchronizationObject { info, .. } = call else { panic!("{call:?}") };
    let created = CreatedSyncObject { object, ..CreatedSyncObject::default() };
    let reply = if status.is_success() { Reply::SyncObject(created) } else { Reply::None };
    host.answer(request, status, &reply);
    info.event.unwrap()
}

fn answer_destroy(host: &mut Peer, object: Handle) {
    let (request, call) = host.call();
    assert_eq!(call, Call::DestroySynchronizationObject { object });
    host.answer(request, NtStatus::SUCCESS, &Reply::None);
}

#[test]
fn the_broker_has_the_event_from_before_its_begin_to_after_its_end() {
    covers!("EVT-026", "EVT-027");
    let (session, mut host) = connect_keeping(2, welcome(), 64);
    let event = new_event();
    let creating = begin(&session, BY_DRIVER, &event);
    let (Body::RegisterEvent(kept), Some(brokers)) = host.serve_broker("") else { panic!("no event") };
    let object = Handle::local(7, 1);
    assert_eq!(answer_create(&mut host, NtStatus::SUCCESS, object), EventId(kept));
    creating.join().unwrap().unwrap();
    set(&brokers);
    assert_eq!(taken(&event), 1, "it is the caller's own");
    // The stream may deliver it as well: a broker may lose an event channel silently.
    host.wake(EventId(kept), NtStatus::SUCCESS);
    assert_eq!(taken(&event), 1);
    let guest = session.clone();
    let destroying = thread::spawn(move || block_on(guest.destroy_sync_object(object)));
    answer_destroy(&mut host, object);
    assert_eq!(host.serve_broker("").0, Body::UnregisterEvent(kept));
    assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
}

#[test]
fn a_refused_event_comes_by_the_stream_and_is_not_requested_again() {
    let (session, mut host) = connect_keeping(2, welcome(), 64);
    let event = new_event();
    let creating = begin(&session, BY_DRIVER, &event);
    assert!(matches!(
        host.serve_broker("64 events of the VM are registered"),
        (Body::RegisterEvent(_), Some(_))
    ));
    let object = Handle::local(7, 1);
    let name = answer_create(&mut host, NtStatus::SUCCESS, object);
    creating.join().unwrap().unwrap();
    host.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&event), 1);
    let guest = session.clone();
    let destroying = thread::spawn(move || block_on(guest.destroy_sync_object(object)));
    answer_destroy(&mut host, object);
    assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
    // Without a registered event there is nothing to settle.
    session.port().settle_events();
}

#[test]
fn a_refused_object_has_no_event_at_the_broker() {
    let (session, mut host) = connect_keeping(2, welcome(), 64);
    let event = new_event();
    for status in [NtStatus::INVALID_PARAMETER, NtStatus::NOT_SUPPORTED] {
        let creating = begin(&session, BY_DRIVER, &event);
        let (Body::RegisterEvent(kept), _) = host.serve_broker("") else { panic!("no event") };
        answer_create(&mut host, status, Handle::NULL);
        assert_eq!(host.serve_broker("").0, Body::UnregisterEvent(kept));
        assert_eq!(creating.join().unwrap().unwrap_err(), status);
    }
}

#[test]
fn only_a_drivers_events_are_registered_up_to_the_brokers_limit() {
    // An older broker sends no limit, which means none.
    for events_max in [0, 1] {
        let (session, mut host) = match events_max {
            0 => connect(welcome(), 64),
            _ => connect_keeping(events_max, welcome(), 64),
        };
        let event = new_event();
        if events_max == 1 {
            let creating = begin(&session, BY_DRIVER, &event);
            assert!(matches!(host.serve_broker(""), (Body::RegisterEvent(_), Some(_))));
            answer_create(&mut host, NtStatus::SUCCESS, Handle::local(7, 1));
            creating.join().unwrap().unwrap();
        }
        for (at, flags) in [(8, NO_FLAGS), (9, BY_DRIVER)] {
            // The broker is not asked: the test would not answer.
            let creating = begin(&session, flags, &event);
            answer_create(&mut host, NtStatus::SUCCESS, Handle::local(at, 1));
            creating.join().unwrap().unwrap();
        }
    }
}

#[test]
fn settling_asks_the_broker_while_it_keeps_anything() {
    let (session, mut host) = connect_keeping(1, welcome(), 64);
    let event = new_event();
    let creating = begin(&session, BY_DRIVER, &event);
    host.serve_broker("");
    answer_create(&mut host, NtStatus::SUCCESS, Handle::local(7, 1));
    creating.join().unwrap().unwrap();
    let guest = session.clone();
    let settling = thread::spawn(move || guest.port().settle_events());
    assert_eq!(host.serve_broker("").0, Body::Settle(true));
    settling.join().unwrap();
}

#[test]
fn a_restarted_broker_has_room_for_events_and_is_not_asked_to_unregister_earlier_ones() {
    let listener = Listener::new();
    let reply = BrokerReply {
        events_max: 1,
        resume_token: b"a right to resume".to_vec(),
        resume_ms: Some(60_000),
        ..BrokerReply::default()
    };
    let (session, mut host) = thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&listener.path, "test").expect("attaches"));
        let host = listener.accept_with(reply, welcome(), 64);
        (Arc::new(attaching.join().unwrap()), host)
    });
    let event = new_event();
    let create = |host: &mut Peer, object| {
        let creating = begin(&session, BY_DRIVER, &event);
        assert!(matches!(host.serve_broker(""), (Body::RegisterEvent(_), Some(_))));
        answer_create(host, NtStatus::SUCCESS, object);
        creating.join().unwrap().unwrap();
    };
    let destroy = |host: &mut Peer, object| {
        let guest = session.clone();
        let destroying = thread::spawn(move || block_on(guest.destroy_sync_object(object)));
        answer_destroy(host, object);
        destroying
    };
    let [earlier, later] = [Handle::local(7, 1), Handle::local(8, 1)];
    create(&mut host, earlier);
    let mut host = listener.restart(host, welcome());
    let limit = Some(Duration::from_secs(60));
    sockopt::set_socket_timeout(&host.broker, sockopt::Timeout::Recv, limit).unwrap();
    // Answered once the session is resumed.
    assert_eq!(destroy(&mut host, Handle::local(9, 1)).join().unwrap(), NtStatus::SUCCESS);
    create(&mut host, later);
    assert_eq!(destroy(&mut host, earlier).join().unwrap(), NtStatus::SUCCESS);
    let destroying = destroy(&mut host, later);
    assert!(matches!(host.serve_broker("").0, Body::UnregisterEvent(_)));
    assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
}

#[test]
fn a_signal_handler_that_settles_events_does_not_wait_for_the_call_that_it_interrupts() {
    static SETTLED: OnceLock<Sender<()>> = OnceLock::new();
    extern "C" fn settle(_: i32) {
        gpupv_settle_events();
        SETTLED.get().unwrap().send(()).unwrap();
    }
    let ((settled, is_settled), (thread_of, its_thread)) = (channel(), channel());
    SETTLED.set(settled).unwrap();
    // SAFETY: the handler interrupts a thread in a read, which has no lock of the C library or of the channel.
    unsafe { libc::signal(libc::SIGUSR1, settle as *const () as libc::sighandler_t) };
    let (listener, event) = (Listener::new(), new_event());
    point_environment_to(&listener.path);
    let number = event.as_raw_fd() as u64;
    let creating = thread::spawn(move || {
        // SAFETY: names the thread that calls it.
        thread_of.send(unsafe { libc::pthread_self() }).unwrap();
        let (object_type, flags) = (SyncObjectType::CPU_NOTIFICATION.0, BY_DRIVER.bits());
        let device = DEVICE.0.into();
        let mut create =
            CreateSyncObject { device, object_type, flags, event: number, ..CreateSyncObject::default() };
        // SAFETY: a local struct of the layout that the library expects.
        unsafe { D3DKMTCreateSynchronizationObject2(&raw mut create) }
    });
    let mut host = listener.accept_keeping(2, welcome(), 64);
    assert!(matches!(host.broker_request().0, Body::RegisterEvent(_)));
    // SAFETY: the thread has not been joined.
    assert_eq!(unsafe { libc::pthread_kill(its_thread.recv().unwrap(), libc::SIGUSR1) }, 0);
    assert_eq!(is_settled.recv_timeout(Duration::from_secs(10)), Ok(()));
    send_packet(&host.broker, &BrokerReply { process: 1, ..BrokerReply::default() }, &[]);
    answer_create(&mut host, NtStatus::SUCCESS, Handle::local(7, 1));
    assert_eq!(creating.join().unwrap(), 0);
}
