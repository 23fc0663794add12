//! `gpupv_end_session`, by which the last close of `/dev/dxg` ends the session of a process that goes on.

mod host;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use d3dkmt::{Call, NtStatus, Reply};
use host::{ADAPTER, DEVICE, Listener, Peer, point_environment_to, welcome};

unsafe extern "C" {
    fn D3DKMTCloseAdapter(argument: *const u32) -> i32;
    fn D3DKMTDestroyDevice(argument: *const u32) -> i32;
    fn gpupv_has_session() -> i32;
    fn gpupv_end_session();
}

fn close_adapter() -> u32 {
    // SAFETY: one handle.
    unsafe { D3DKMTCloseAdapter(&ADAPTER.0) as u32 }
}

fn has_session() -> bool {
    // SAFETY: no precondition.
    unsafe { gpupv_has_session() != 0 }
}

/// Answers every call but DestroyDevice, which it reports and leaves pending. Returns at the end of the stream.
fn serve(mut peer: Peer, reports: &mpsc::Sender<&'static str>) {
    while let Some(frame) = peer.frame() {
        match proto::convert::call_from_body(frame.body.unwrap()).unwrap() {
            Call::DestroyDevice { .. } => reports.send("pending").unwrap(),
            _ => peer.answer(frame.request, NtStatus::SUCCESS, &Reply::None),
        }
    }
    reports.send("ended").unwrap();
}

#[test]
fn an_ended_session_ends_calls_in_progress_and_the_next_call_starts_another() {
    let listener = Listener::new();
    point_environment_to(&listener.path);
    let (sender, reports) = mpsc::channel();
    thread::spawn(move || {
        for _ in 0..2 {
            serve(listener.accept(welcome(), 64), &sender);
        }
    });
    let next = || reports.recv_timeout(Duration::from_secs(60)).expect("the host sees something");
    assert!(!has_session());
    // SAFETY: no precondition.
    unsafe { gpupv_end_session() };
    assert_eq!((close_adapter(), has_session()), (NtStatus::SUCCESS.0, true));

    // SAFETY: one handle.
    let in_progress = thread::spawn(|| unsafe { D3DKMTDestroyDevice(&DEVICE.0) as u32 });
    assert_eq!(next(), "pending");
    // SAFETY: no precondition.
    unsafe { gpupv_end_session() };
    assert!(!has_session());
    assert_eq!(in_progress.join().unwrap(), NtStatus::DEVICE_REMOVED.0);
    assert_eq!(next(), "ended");

    assert_eq!((close_adapter(), has_session()), (NtStatus::SUCCESS.0, true));
    // SAFETY: no precondition.
    unsafe { gpupv_end_session() };
    assert_eq!(next(), "ended");
}
