//! A session that resumes after its daemon was killed.

mod host;

use std::sync::Arc;
use std::thread;

use d3dkmt::{NtStatus, Reply, SyncObjectFlags};
use dxcore::client::{attach, block_on};
use host::{ADAPTER, DEVICE, Listener, Memory, create_fence, welcome};
use proto::attach::BrokerReply;

/// The daemon moves the bytes that a value stands for when all its clients are back, and then sends Welcome.
#[test]
fn a_value_of_the_restarted_daemon_is_seen_from_its_welcome_on() {
    let listener = Listener::new();
    let resume_token = b"a right to resume".to_vec();
    let reply = BrokerReply { resume_token, resume_ms: Some(60_000), ..BrokerReply::default() };
    let (session, mut host) = thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&listener.path, "test").expect("attaches"));
        let host = listener.accept_with(reply, welcome(), 64);
        (Arc::new(attaching.join().unwrap()), host)
    });
    let creating = thread::spawn({
        let session = session.clone();
        move || {
            assert_eq!(block_on(session.create_device(ADAPTER, 0)), Ok(DEVICE));
            create_fence(&session, 1, SyncObjectFlags::empty())
        }
    });
    let (request, _) = host.call();
    host.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    host.answer_create(0, 1);
    let fence = creating.join().unwrap();
    let value = || fence.location.as_ref().unwrap().value();
    let memory = Memory::new(0, 64);
    memory.slot(0).unwrap().publish(2);
    let mut host = listener.restart_with(host, memory, welcome(), || assert_eq!(value(), 1));
    // Answered once the session is resumed.
    let destroying = thread::spawn({
        let session = session.clone();
        let object = fence.object;
        move || block_on(session.destroy_sync_object(object))
    });
    let (request, _) = host.call();
    assert_eq!(value(), 2);
    host.answer(request, NtStatus::SUCCESS, &Reply::None);
    assert_eq!(destroying.join().unwrap(), NtStatus::SUCCESS);
}
