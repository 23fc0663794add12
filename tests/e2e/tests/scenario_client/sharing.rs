//! NT handles between scenario clients.

use covers::covers;
use d3dkmt::{Call, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags, calls};
use e2e::embedded::Embedded;
use e2e::polling::until;
use proto::scenario_client::{Outcome, Task};

use crate::process::{ScenarioClient, wait};

const TOKEN: ShareToken = ShareToken([7; 16]);

fn open(device: Handle) -> Call {
    calls::open(device, TOKEN)
}

/// A fence of `sender` that `receiver` has opened; returns both handles.
#[track_caller]
pub fn shared_fence(
    daemon: &Embedded,
    sender: &mut ScenarioClient,
    receiver: &mut ScenarioClient,
    [sender_device, receiver_device]: [Handle; 2],
) -> (Handle, Handle) {
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = sender.create_fence(sender_device, flags).object;
    sender.call_ok(calls::share(fence, TOKEN, None));
    let mailbox = daemon.file("mailbox").display().to_string();
    receiver.must(Task::OpenMailbox(mailbox.clone()));
    sender.must(Task::SendShare { token: TOKEN, mailbox });
    match receiver.call_ok(open(receiver_device)) {
        Reply::SyncObject(opened) => (fence, opened.object),
        other => panic!("not opened: {other:?}"),
    }
}

#[test]
fn two_scenario_clients_share_a_fence() {
    let daemon = Embedded::start();
    let [mut sender, mut receiver] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    let devices = [sender.open_device(), receiver.open_device()];
    // An unknown name gives an invalid HANDLE.
    assert_eq!(receiver.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    let (fence, opened) = shared_fence(&daemon, &mut sender, &mut receiver, devices);
    sender.call_ok(calls::signal(devices[0], fence, 5));
    assert_eq!(receiver.value(Task::ReadValue(opened)), 5);
    receiver.call_ok(wait(devices[1], opened, 5));
    receiver.call_ok(calls::signal(devices[1], opened, 6));
    assert_eq!(sender.value(Task::ReadValue(fence)), 6);
    // Closing an NT handle affects its own process only.
    assert_eq!(receiver.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::SUCCESS);
    assert_eq!(receiver.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::INVALID_HANDLE);
    assert_eq!(receiver.call(open(devices[1])).0, NtStatus::INVALID_HANDLE);
    assert_eq!(sender.call(open(devices[0])).0, NtStatus::SUCCESS);
    drop([sender, receiver]);
    daemon.end();
}

#[test]
fn a_sent_handle_outlives_its_sender() {
    let daemon = Embedded::start();
    let [mut sender, mut receiver] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    let device = sender.open_device();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let object = sender.create_fence(device, flags).object;
    sender.call_ok(Call::ShareObjects { objects: vec![object], desired_access: 3, name: None, token: TOKEN });
    let mailbox = daemon.file("mailbox").display().to_string();
    let send = Task::SendShare { token: TOKEN, mailbox: mailbox.clone() };
    assert_eq!(sender.ask(0, send.clone()), (NtStatus::OBJECT_NAME_NOT_FOUND, Outcome::Nothing));
    receiver.must(Task::OpenMailbox(mailbox.clone()));
    assert_eq!(sender.ask(0, Task::OpenMailbox(mailbox)).0, NtStatus::OBJECT_NAME_COLLISION);
    sender.must(send);
    sender.kill();
    // The handle is valid in its process; the kernel decides whether it still names an object.
    assert_eq!(receiver.ask(0, Task::CloseShare(TOKEN)).0, NtStatus::SUCCESS);
    let unknown = Task::SendShare { token: TOKEN, mailbox: "nobody".into() };
    assert_eq!(receiver.ask(0, unknown).0, NtStatus::INVALID_HANDLE);
    drop(receiver);
    daemon.end();
}

/// A named fence of `sender`, with its NT handle in the mailbox of `receiver`.
#[track_caller]
fn send_named_fence(
    daemon: &Embedded,
    sender: &mut ScenarioClient,
    receiver: &mut ScenarioClient,
    name: &str,
) {
    let device = sender.open_device();
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let fence = sender.create_fence(device, flags).object;
    sender.call_ok(calls::share(fence, TOKEN, Some(name)));
    sender.call_ok(calls::signal(device, fence, 5));
    let mailbox = daemon.file("mailbox").display().to_string();
    receiver.must(Task::OpenMailbox(mailbox.clone()));
    sender.must(Task::SendShare { token: TOKEN, mailbox });
}

fn by_name(token: ShareToken) -> Call {
    Call::OpenNtHandleFromName {
        name: "frame done".into(),
        desired_access: 0x1F_0003,
        token,
        sync_object: true,
    }
}

#[test]
fn an_object_and_its_name_live_until_the_last_nt_handle_is_closed() {
    covers!("W-127", "FEN-064", "FEN-065", "FEN-070");
    const FOUND: ShareToken = ShareToken([8; 16]);
    let daemon = Embedded::start();
    let [mut sender, mut receiver, mut third] = [(); 3].map(|()| ScenarioClient::start(&daemon));
    let [device, other] = [receiver.open_device(), third.open_device()];
    send_named_fence(&daemon, &mut sender, &mut receiver, "Frame done");
    // The handle in the mailbox is not received yet; the only process that had it is killed.
    sender.kill();
    until("the giver has ended", || daemon.inspection().processes.len() == 2);
    assert_eq!(daemon.kernel_host().views().snapshot().shares, 1);
    let Reply::SyncObject(fence) = receiver.call_ok(open(device)) else {
        panic!("the NT handle was not opened")
    };
    assert_eq!(receiver.value(Task::ReadValue(fence.object)), 5);
    third.call_ok(by_name(FOUND));
    let Reply::SyncObject(found) = third.call_ok(calls::open(other, FOUND)) else { panic!("not opened") };
    third.call_ok(calls::signal(other, found.object, 6));
    receiver.call_ok(wait(device, fence.object, 6));
    // The name ends at once with the last NT handle, also with open local handles.
    receiver.must(Task::CloseShare(TOKEN));
    third.call_ok(by_name(ShareToken([9; 16])));
    third.must(Task::CloseShare(FOUND));
    third.must(Task::CloseShare(ShareToken([9; 16])));
    assert_eq!(third.call(by_name(FOUND)).0, NtStatus::OBJECT_NAME_NOT_FOUND);
    receiver.call_ok(calls::signal(device, fence.object, 7));
    assert_eq!(third.value(Task::ReadValue(found.object)), 7);
    drop([receiver, third]);
    daemon.end();
}

#[test]
fn an_unreceived_nt_handle_is_closed_with_its_socket() {
    let daemon = Embedded::start();
    let [mut sender, mut receiver] = [ScenarioClient::start(&daemon), ScenarioClient::start(&daemon)];
    send_named_fence(&daemon, &mut sender, &mut receiver, "frame done");
    sender.kill();
    until("the giver has ended", || daemon.inspection().processes.is_empty());
    let state = daemon.kernel_host().views().snapshot();
    assert_eq!((state.shares, state.objects_alive), (1, 1));
    receiver.kill();
    daemon.end();
}
