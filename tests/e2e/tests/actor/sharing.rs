//! NT handles between actors.

use d3dkmt::{Call, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags};
use e2e::embedded::Embedded;
use proto::actor::{Outcome, Task};

use crate::process::{Actor, signal, wait};

const TOKEN: ShareToken = ShareToken([7; 16]);

fn open(device: Handle) -> Call {
    Call::OpenSyncObject {
        device,
        token: TOKEN,
        flags: SyncObjectFlags::empty(),
        engine_affinity: 0,
        legacy: false,
    }
}

/// A fence of `giver` that `taker` has opened: the handle of each.
#[track_caller]
pub fn shared_fence(
    daemon: &Embedded,
    giver: &mut Actor,
    taker: &mut Actor,
    [givers, takers]: [Handle; 2],
) -> (Handle, Handle) {
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = giver.create_fence(givers, flags).object;
    giver.given(Call::ShareObjects {
        objects: vec![fence],
        desired_access: 0x1F_0003,
        name: None,
        token: TOKEN,
    });
    let mailbox = daemon.file("mailbox").display().to_string();
    taker.must(Task::OpenMailbox(mailbox.clone()));
    giver.must(Task::SendShare { token: TOKEN, mailbox });
    match taker.given(open(takers)) {
        Reply::SyncObject(opened) => (fence, opened.object),
        other => panic!("not opened: {other:?}"),
    }
}

#[test]
fn two_actors_share_a_fence() {
    let daemon = Embedded::start();
    let [mut giver, mut taker] = [Actor::start(&daemon), Actor::start(&daemon)];
    let devices = [giver.open_device(), taker.open_device()];
    // A name that nobody gave is a HANDLE that is none.
    assert_eq!(taker.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    let (fence, opened) = shared_fence(&daemon, &mut giver, &mut taker, devices);
    giver.given(signal(devices[0], fence, 5));
    assert_eq!(taker.value(Task::ReadValue(opened)), 5);
    taker.given(wait(devices[1], opened, 5));
    taker.given(signal(devices[1], opened, 6));
    assert_eq!(giver.value(Task::ReadValue(fence)), 6);
    // A closed NT handle is gone for its process alone.
    assert_eq!(taker.call(Call::CloseShare { token: TOKEN }).0, NtStatus::SUCCESS);
    assert_eq!(taker.call(Call::CloseShare { token: TOKEN }).0, NtStatus::INVALID_HANDLE);
    assert_eq!(taker.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    assert_eq!(giver.call(open(devices[0])).0, NtStatus::SUCCESS);
    drop([giver, taker]);
    daemon.end();
}

#[test]
fn a_sent_handle_outlives_its_sender() {
    let daemon = Embedded::start();
    let [mut giver, mut taker] = [Actor::start(&daemon), Actor::start(&daemon)];
    let device = giver.open_device();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let object = giver.create_fence(device, flags).object;
    giver.given(Call::ShareObjects { objects: vec![object], desired_access: 3, name: None, token: TOKEN });
    let mailbox = daemon.file("mailbox").display().to_string();
    let send = Task::SendShare { token: TOKEN, mailbox: mailbox.clone() };
    assert_eq!(giver.ask(0, send.clone()), (NtStatus::OBJECT_NAME_NOT_FOUND, Outcome::Nothing));
    taker.must(Task::OpenMailbox(mailbox.clone()));
    assert_eq!(giver.ask(0, Task::OpenMailbox(mailbox)).0, NtStatus::OBJECT_NAME_COLLISION);
    giver.must(send);
    giver.kill();
    // The handle is there; whether it still stands for something is the kernel's affair.
    assert_eq!(taker.call(Call::CloseShare { token: TOKEN }).0, NtStatus::SUCCESS);
    let unknown = Task::SendShare { token: TOKEN, mailbox: "nobody".into() };
    assert_eq!(taker.ask(0, unknown).0, NtStatus::INVALID_HANDLE);
    drop(taker);
    daemon.end();
}
