//! NT handles between scenario clients.

use covers::covers;
use d3dkmt::{Call, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags};
use e2e::embedded::Embedded;
use e2e::polling::until;
use proto::scenario_client::{Outcome, Task};

use crate::process::{ScenarioClient, signal, wait};

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

/// A fence of `giver` that `taker` has opened; returns both handles.
#[track_caller]
pub fn shared_fence(
    daemon: &Embedded,
    giver: &mut ScenarioClient,
    taker: &mut ScenarioClient,
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
fn two_scenario_clients_share_a_fence() {
    let daemon = Embedded::start();
    let [mut giver, mut taker] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    let devices = [giver.open_device(), taker.open_device()];
    // An unknown name gives an invalid HANDLE.
    assert_eq!(taker.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    let (fence, opened) = shared_fence(&daemon, &mut giver, &mut taker, devices);
    giver.given(signal(devices[0], fence, 5));
    assert_eq!(taker.value(Task::ReadValue(opened)), 5);
    taker.given(wait(devices[1], opened, 5));
    taker.given(signal(devices[1], opened, 6));
    assert_eq!(giver.value(Task::ReadValue(fence)), 6);
    // Closing an NT handle affects its own process only.
    assert_eq!(taker.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::SUCCESS);
    assert_eq!(taker.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::INVALID_HANDLE);
    assert_eq!(taker.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    assert_eq!(giver.call(open(devices[0])).0, NtStatus::SUCCESS);
    drop([giver, taker]);
    daemon.end();
}

#[test]
fn a_sent_handle_outlives_its_sender() {
    let daemon = Embedded::start();
    let [mut giver, mut taker] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
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
    // The handle is valid in its process; the kernel decides whether it still names an object.
    assert_eq!(taker.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::SUCCESS);
    let unknown = Task::SendShare { token: TOKEN, mailbox: "nobody".into() };
    assert_eq!(taker.ask(0, unknown).0, NtStatus::INVALID_HANDLE);
    drop(taker);
    daemon.end();
}

/// A named fence of `giver`, with its NT handle in the mailbox of `taker`.
#[track_caller]
fn send_named_fence(daemon: &Embedded, giver: &mut ScenarioClient, taker: &mut ScenarioClient, name: &str) {
    let device = giver.open_device();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = giver.create_fence(device, flags).object;
    let name = Some(name.to_owned());
    giver.given(Call::ShareObjects { objects: vec![fence], desired_access: 0x1F_0003, name, token: TOKEN });
    giver.given(signal(device, fence, 5));
    let mailbox = daemon.file("mailbox").display().to_string();
    taker.must(Task::OpenMailbox(mailbox.clone()));
    giver.must(Task::SendShare { token: TOKEN, mailbox });
}

fn by_name(token: ShareToken) -> Call {
    Call::OpenNtHandleFromName { name: "frame done".into(), desired_access: 0x1F_0003, token }
}

#[test]
fn an_object_and_its_name_live_until_the_last_nt_handle_is_closed() {
    covers!("W-127", "FEN-064", "FEN-065", "FEN-070");
    const FOUND: ShareToken = ShareToken([8; 16]);
    let daemon = Embedded::start();
    let [mut giver, mut taker, mut third] = [(); 3].map(|()| ScenarioClient::start(&daemon));
    let [device, other] = [taker.open_device(), third.open_device()];
    send_named_fence(&daemon, &mut giver, &mut taker, "Frame done");
    // The handle in the mailbox is not received yet; the only process that had it is killed.
    giver.kill();
    until("the giver has ended", || daemon.inspection().processes.len() == 2);
    assert_eq!(daemon.kernel_host().views().snapshot().shares, 1);
    let Reply::SyncObject(fence) = taker.given(open(device)) else { panic!("the NT handle was not opened") };
    assert_eq!(taker.value(Task::ReadValue(fence.object)), 5);
    third.given(by_name(FOUND));
    let Reply::SyncObject(found) = third.given(Call::OpenSyncObject {
        device: other,
        token: FOUND,
        flags: SyncObjectFlags::empty(),
        engine_affinity: 0,
        legacy: false,
    }) else {
        panic!("not opened")
    };
    third.given(signal(other, found.object, 6));
    taker.given(wait(device, fence.object, 6));
    // The name ends at once with the last NT handle, also with open local handles.
    taker.must(Task::CloseShare(TOKEN));
    third.given(by_name(ShareToken([9; 16])));
    third.must(Task::CloseShare(FOUND));
    third.must(Task::CloseShare(ShareToken([9; 16])));
    assert_eq!(third.call(by_name(FOUND)).0, NtStatus::OBJECT_NAME_NOT_FOUND);
    taker.given(signal(device, fence.object, 7));
    assert_eq!(third.value(Task::ReadValue(found.object)), 7);
    drop([taker, third]);
    daemon.end();
}

#[test]
fn an_unreceived_nt_handle_is_closed_with_its_socket() {
    let daemon = Embedded::start();
    let [mut giver, mut taker] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    send_named_fence(&daemon, &mut giver, &mut taker, "frame done");
    giver.kill();
    until("the giver has ended", || daemon.inspection().processes.is_empty());
    let state = daemon.kernel_host().views().snapshot();
    assert_eq!((state.shares, state.objects_alive), (1, 1));
    taker.kill();
    daemon.end();
}
