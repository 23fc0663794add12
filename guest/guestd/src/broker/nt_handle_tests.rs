//! NT handles and sync files: what the host is asked and told, what the driver makes, and when a signal is raised.

use proto::attach::{HostToGuestd, host_to_guestd};

use super::tests::{A, Harness};
use super::*;

#[test]
fn an_nt_handle_carries_the_hosts_token_and_the_host_hears_of_its_last_close() {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    assert!(!harness.broker.listens_to(A), "one request at a time");
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 16]));
    assert!(harness.broker.listens_to(A));
    harness.expect(&["host #4: NT handle for 5", "client 1: process 5 NT handle 42"]);
    // The process exits, the handle may stay open elsewhere.
    harness.input(Input::ClientGone { client: A });
    harness.answer(5, host_to_guestd::Body::Detached(true));
    harness.expect(&["stream 1 dropped", "host #5: detach 5", "region 1 dropped"]);
    let closed = || Input::NtHandleClosed { token: ShareToken([42; 16]) };
    harness.input(closed());
    harness.expect(&["host #6: closed 42"]);
    harness.answer(6, host_to_guestd::Body::NtHandleClosed(true));
    harness.input(closed());
    harness.expect(&[]);
}

#[test]
fn an_nt_handle_for_a_client_that_has_gone_is_closed_again() {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    harness.input(Input::ClientGone { client: A });
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 16]));
    harness.expect(&[
        "host #4: NT handle for 5",
        "stream 1 dropped",
        "host #5: detach 5",
        "host #6: closed 42",
    ]);
}

#[test]
fn a_process_that_gets_no_nt_handle_lives_on_however_often_it_asks() {
    let mut harness = Harness::attached();
    for request in 4..4 + u64::from(REFUSALS_MAX) * 2 {
        harness.ask(A, broker_request::Body::MakeNtHandle(true));
        harness.answer_refused(request, "too many");
        harness.expect(&[&format!("host #{request}: NT handle for 5"), "client 1: refused: too many"]);
    }
    // The guest itself has no room for it: the host's token is released.
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    harness.answer(36, host_to_guestd::Body::NtHandle(vec![42; 16]));
    let token = ShareToken([42; 16]);
    harness.input(Input::NtHandleNotMade { client: A, token, why: "no watch".to_owned() });
    harness.expect(&[
        "host #36: NT handle for 5",
        "client 1: process 5 NT handle 42",
        "host #37: closed 42",
        "say a process gets no NT handle: no watch",
        "client 1: refused: no watch",
    ]);
    assert!(harness.broker.listens_to(A));
}

#[test]
fn nt_handles_end_with_the_link_that_they_came_by() {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 16]));
    harness.input(Input::LinkLost { why: "gone".to_owned() });
    harness.log.borrow_mut().clear();
    harness.input(Input::NtHandleClosed { token: ShareToken([42; 16]) });
    harness.expect(&[]);
}

#[test]
fn a_token_of_the_wrong_length_breaks_the_protocol() {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 15]));
    let log = harness.log.borrow();
    assert!(log.iter().any(|line| line.contains("the token of an NT handle is not 16 bytes")), "{log:?}");
    assert_eq!(log.last().unwrap(), "finish link");
}

/// Process 5 with sync file 42; request 4.
fn with_a_sync_file() -> Harness {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeSyncFile(true));
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 16]));
    harness.expect(&["host #4: NT handle for 5", "client 1: process 5 sync file 42"]);
    harness
}

fn ready(harness: &mut Harness, token: u8) {
    let body = Some(host_to_guestd::Body::SyncFileReady(vec![token; 16]));
    harness.input(Input::FromHost(HostToGuestd { body, ..HostToGuestd::default() }));
}

#[test]
fn a_sync_file_is_raised_when_the_host_says_so_also_without_its_process() {
    let mut harness = with_a_sync_file();
    harness.input(Input::ClientGone { client: A });
    harness.answer(5, host_to_guestd::Body::Detached(true));
    harness.log.borrow_mut().clear();
    ready(&mut harness, 42);
    harness.expect(&["raise sync file 42"]);
    // Closed on the way.
    harness.input(Input::NtHandleClosed { token: ShareToken([42; 16]) });
    ready(&mut harness, 42);
    ready(&mut harness, 43);
    harness.expect(&["host #6: closed 42"]);
}

#[test]
fn a_plain_nt_handle_is_never_raised() {
    let mut harness = Harness::attached();
    harness.ask(A, broker_request::Body::MakeNtHandle(true));
    harness.answer(4, host_to_guestd::Body::NtHandle(vec![42; 16]));
    harness.log.borrow_mut().clear();
    ready(&mut harness, 42);
    harness.expect(&[]);
}

/// What the users of the guest hold of NT handles and of sync files.
fn charged(harness: &Harness) -> (u32, u32) {
    let held = |quota: &quotas::Quota| quota.held().values().sum();
    (held(&harness.broker.quotas.nt_handles), held(&harness.broker.quotas.sync_files))
}

#[test]
fn sync_files_of_a_host_that_is_gone_are_raised_and_charged_until_they_are_closed() {
    let mut harness = with_a_sync_file();
    assert_eq!(charged(&harness), (1, 1));
    harness.input(Input::LinkLost { why: "gone".to_owned() });
    assert!(
        harness.log.borrow().iter().any(|line| line == "raise sync file 42"),
        "{:?}",
        harness.log.borrow()
    );
    // The driver still watches it.
    assert_eq!(charged(&harness), (1, 1));
    harness.log.borrow_mut().clear();
    harness.input(Input::NtHandleClosed { token: ShareToken([42; 16]) });
    harness.expect(&[]);
    assert_eq!(charged(&harness), (0, 0));
}

#[test]
fn a_ready_sync_file_without_a_whole_token_breaks_the_protocol() {
    let mut harness = with_a_sync_file();
    let body = Some(host_to_guestd::Body::SyncFileReady(vec![42; 15]));
    harness.input(Input::FromHost(HostToGuestd { body, ..HostToGuestd::default() }));
    let log = harness.log.borrow();
    assert!(log.iter().any(|line| line.contains("the token of a sync file is not 16 bytes")), "{log:?}");
}
