//! Areas of rings: who gets them, and when they are freed.

use proto::attach::{Attached, GuestdWelcome, Resumed, host_to_guestd};

use super::tests::{A, Harness, all_features};
use super::*;

const LATER: ClientId = ClientId(3);

/// A host that uses rings; request 1.
fn up() -> Harness {
    let mut harness = Harness::down();
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    welcome(&mut harness, 1, false);
    harness.take_log();
    harness.arrive(A, 100);
    harness
}

fn welcome(harness: &mut Harness, request: u64, resuming: bool) {
    let (version, features) = (proto::PROTOCOL_VERSION, all_features());
    let welcome = GuestdWelcome { version, vm: 7, events_max: 0, resuming, features, rings: true };
    harness.answer(request, host_to_guestd::Body::Welcome(welcome));
}

fn attach(harness: &mut Harness, rings: bool) {
    let (version, name) = (proto::PROTOCOL_VERSION, "app".to_owned());
    let attach = broker_request::Attach { version, name, version_min: 0, rings };
    harness.ask(A, broker_request::Body::Attach(attach));
}

/// Process 5 with rings; requests 2 and 3.
fn attached() -> Harness {
    let mut harness = up();
    attach(&mut harness, true);
    harness.expect(&["host #2: attach pid 100 app, rings of 9+9 pages"]);
    let token = vec![9; 16];
    let attached = Attached { process: 5, token, resume_token: vec![4], resume_ms: None };
    harness.answer(2, host_to_guestd::Body::Attached(attached));
    harness.answer(3, host_to_guestd::Body::FirstSlot(0));
    harness.expect(&[
        "host #3: process 5 pages 1",
        r#"client 1: process 5 token 16 slots 0+64 rings ["stream 3", "memory 3", "memory 1", "memory 2"]"#,
    ]);
    harness
}

#[test]
fn a_process_gets_both_areas_and_they_are_freed_when_the_host_has_answered_the_detach() {
    let mut harness = attached();
    harness.input(Input::ClientGone { client: A });
    harness.expect(&["stream 3 dropped", "host #4: detach 5"]);
    harness.answer(4, host_to_guestd::Body::Detached(true));
    harness.expect(&["region 3 dropped", "region 1 dropped", "region 2 dropped"]);
}

#[test]
fn a_process_that_does_not_ask_and_one_without_memory_to_spare_get_none() {
    let mut harness = up();
    attach(&mut harness, false);
    harness.expect(&["host #2: attach pid 100 app"]);

    let mut harness = up();
    *harness.refuse_memory.borrow_mut() = true;
    attach(&mut harness, true);
    *harness.refuse_memory.borrow_mut() = false;
    harness.expect(&["say a process gets no rings: no memory", "host #2: attach pid 100 app"]);
    harness.answer_attached(2, 5);
    harness.answer(3, host_to_guestd::Body::FirstSlot(0));
    harness.expect(&[
        "host #3: process 5 pages 1",
        r#"client 1: process 5 token 16 slots 0+64 ["stream 1", "memory 1"]"#,
    ]);
}

#[test]
fn areas_of_an_attach_that_the_host_refuses_are_freed() {
    let mut harness = up();
    attach(&mut harness, true);
    harness.take_log();
    harness.answer_refused(2, "no");
    let log = harness.take_log();
    assert!(
        log.contains(&"region 1 dropped".to_owned()) && log.contains(&"region 2 dropped".to_owned()),
        "{log:?}"
    );
}

#[test]
fn a_resumed_process_has_new_areas() {
    let mut harness = attached();
    harness.input(Input::LinkLost { why: "reset".to_owned() });
    let log = harness.take_log();
    for area in ["region 1 dropped", "region 2 dropped"] {
        assert!(log.contains(&area.to_owned()), "no host knows its pages: {log:?}");
    }
    harness.now += Duration::from_secs(1);
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.arrive(LATER, 100);
    let (version, token) = (proto::PROTOCOL_VERSION, vec![4]);
    let resume = broker_request::Resume { version, process: 5, token, version_min: 0, rings: true };
    // Before the host is connected, the request is held.
    harness.ask(LATER, broker_request::Body::Resume(resume));
    harness.take_log();
    welcome(&mut harness, 4, true);
    harness.answer(5, host_to_guestd::Body::Returned(true));
    harness.answer(6, host_to_guestd::Body::Resumed(Resumed { slots: 64, token: vec![8; 16] }));
    harness.expect(&[
        "say connected to the host as VM 7",
        "host #5: back are [5]",
        "host #6: resume 5 pid 100 [4], rings of 9+9 pages",
        "close 1",
        r#"client 3: process 5 token 16 slots 0+64 rings ["stream 5", "memory 4", "memory 5"]"#,
    ]);
    harness.input(Input::ClientGone { client: LATER });
    harness.answer(7, host_to_guestd::Body::Detached(true));
    harness.expect(&["stream 5 dropped", "host #7: detach 5", "region 4 dropped", "region 5 dropped"]);
}

#[test]
fn rings_leave_a_user_as_much_as_it_holds() {
    let quota = Quota::new("pages", 160);
    let user = Uid(7);
    let rings: Vec<_> = std::iter::from_fn(|| quota.take_spare(user, 9).ok()).collect();
    assert_eq!(rings.len(), 4);
    assert!((0..39).all(|_| quota.take(user, 1).map(std::mem::forget).is_ok()));
}
