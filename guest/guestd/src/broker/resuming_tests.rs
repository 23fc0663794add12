//! A host that is killed and restarted: which clients wait for it, which are resumed, and what is freed when.

use d3dkmt::limits::DEVICE_MEMORY_START;
use proto::attach::{Attached, GuestdWelcome, Resumed, host_to_guestd};

use super::tests::{A, Harness, all_features};
use super::*;

const LATER: ClientId = ClientId(3);
const TOKEN: [u8; 2] = [4, 2];

/// Process 5 with a resume token, a page of fences and two backing pages; requests 2 to 4.
fn attached() -> Harness {
    let mut harness = Harness::up();
    harness.arrive(A, 100);
    harness.attach(A);
    let attached =
        Attached { process: 5, token: vec![9; 16], resume_token: TOKEN.to_vec(), resume_ms: Some(7) };
    harness.answer(2, host_to_guestd::Body::Attached(attached));
    harness.answer(3, host_to_guestd::Body::FirstSlot(0));
    harness.attach_backing(A, 0x1000, 2);
    harness.answer(4, host_to_guestd::Body::BackingAttached(true));
    harness.expect(&[
        "host #2: attach pid 100 app",
        "host #3: process 5 pages 1",
        r#"client 1: process 5 token 16 slots 0+64 ["stream 1", "memory 1"]"#,
        "host #4: process 5 attaches 2 at 0x1000",
        r#"client 1: process 5 token 0 slots 0+0 ["memory 2"]"#,
    ]);
    harness
}

/// The host is lost, and the next one is greeted; request 5.
fn killed() -> Harness {
    let mut harness = attached();
    harness.input(Input::LinkLost { why: "reset".to_owned() });
    harness.expect(&[
        "stream 1 dropped",
        "region 1 dropped",
        "hang up 1",
        "say the host is gone (reset); processes ended: 0, 1 wait for it",
    ]);
    harness.now += Duration::from_secs(1);
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.expect(&["open link", "host #5: hello"]);
    harness
}

fn welcome_body(resuming: bool) -> host_to_guestd::Body {
    let version = proto::PROTOCOL_VERSION;
    let welcome =
        GuestdWelcome { version, vm: 7, events_max: 0, resuming, features: all_features(), rings: false };
    host_to_guestd::Body::Welcome(welcome)
}

fn welcome(harness: &mut Harness, resuming: bool) {
    harness.answer(5, welcome_body(resuming));
}

fn resume(harness: &mut Harness, client: ClientId) {
    let (version, token) = (proto::PROTOCOL_VERSION, TOKEN.to_vec());
    harness.ask(
        client,
        broker_request::Body::Resume(broker_request::Resume {
            version,
            process: 5,
            token,
            ..broker_request::Resume::default()
        }),
    );
}

/// Process 5 returns by another connection; requests 6 and 7.
fn back() -> Harness {
    let mut harness = killed();
    harness.arrive(LATER, 100);
    // Before the host is connected, the request is held.
    resume(&mut harness, LATER);
    harness.expect(&[]);
    welcome(&mut harness, true);
    harness.answer(6, host_to_guestd::Body::Returned(true));
    harness.answer(7, host_to_guestd::Body::Resumed(Resumed { slots: 64, token: vec![8; 16] }));
    harness.expect(&[
        "say connected to the host as VM 7",
        "host #6: back are [5]",
        "host #7: resume 5 pid 100 [4, 2]",
        "close 1",
        r#"client 3: process 5 token 16 slots 0+64 ["stream 2"]"#,
    ]);
    harness
}

#[test]
fn a_process_resumes_with_its_memory_and_its_backing_pages() {
    let mut harness = back();
    harness.ask(LATER, broker_request::Body::Regain(broker_request::Regain { first_slot: 0, slots: 64 }));
    harness.answer(8, host_to_guestd::Body::FirstSlot(0));
    let attach_backing = |pages| {
        broker_request::Body::ReattachBacking(broker_request::AttachBacking { address: 0x1000, pages })
    };
    harness.ask(LATER, attach_backing(1));
    harness.ask(LATER, attach_backing(2));
    harness.answer(9, host_to_guestd::Body::BackingAttached(true));
    harness.ask(LATER, broker_request::Body::HaveNtHandle(true));
    harness.expect(&[
        "host #8: process 5 pages 1 from slot 0",
        r#"client 3: process 5 token 0 slots 0+64 ["memory 3"]"#,
        "client 3: refused: no 1 backing pages were attached at 0x1000",
        "host #9: process 5 attaches 2 at 0x1000",
        "client 3: process 5 token 0 slots 0+0 []",
        "client 3: process 5 token 0 slots 0+0 []",
    ]);
    harness.input(Input::ClientGone { client: LATER });
    harness.answer(10, host_to_guestd::Body::Detached(true));
    harness.expect(&["stream 2 dropped", "host #10: detach 5", "region 3 dropped", "region 2 dropped"]);
}

/// The next host may still use them, so their process attaches them to it and asks again.
#[test]
fn pages_that_were_being_released_when_the_host_was_lost_are_attached_again() {
    for (release, is_kept) in [(true, true), (false, false)] {
        let mut harness = attached();
        harness.ask(
            A,
            match release {
                true => broker_request::Body::ReleaseBacking(0x1000),
                false => broker_request::Body::DetachBacking(0x1000),
            },
        );
        harness.take_log();
        harness.input(Input::LinkLost { why: "reset".to_owned() });
        let log = harness.take_log();
        assert_eq!(!log.contains(&"region 2 dropped".to_owned()), is_kept, "{log:?}");
        if is_kept {
            harness.now += Duration::from_secs(1);
            harness.input(Input::Deadline);
            harness.input(Input::LinkOpened);
            harness.arrive(LATER, 100);
            resume(&mut harness, LATER);
            harness.answer(6, welcome_body(true));
            harness.answer(7, host_to_guestd::Body::Returned(true));
            harness.answer(8, host_to_guestd::Body::Resumed(Resumed { slots: 64, token: vec![8; 16] }));
            harness.take_log();
            let pages = broker_request::AttachBacking { address: 0x1000, pages: 2 };
            harness.ask(LATER, broker_request::Body::ReattachBacking(pages));
            harness.expect(&["host #9: process 5 attaches 2 at 0x1000"]);
        }
    }
}

#[test]
fn a_resumed_process_may_unregister_the_events_of_the_killed_host() {
    let mut harness = back();
    for event in 1..=2 * u64::from(REFUSALS_MAX) {
        harness.ask(LATER, broker_request::Body::UnregisterEvent(event));
        harness.expect(&["client 3: process 5 token 0 slots 0+0 []"]);
    }
    assert!(harness.broker.listens_to(LATER));
}

#[test]
fn a_process_that_was_held_too_long_is_let_go_without_a_word_and_asks_again() {
    let mut harness = killed();
    harness.input(Input::LinkLost { why: "killed once more".to_owned() });
    harness.arrive(LATER, 100);
    resume(&mut harness, LATER);
    harness.now += HOST_WAIT_MAX;
    harness.input(Input::Deadline);
    let log = harness.take_log();
    // A refusal would look like the host's, which is final.
    assert!(
        log.contains(&"close 3".to_owned()) && !log.iter().any(|line| line.contains("refused")),
        "{log:?}"
    );
}

#[test]
fn the_host_may_be_killed_again_at_any_point() {
    let mut harness = back();
    harness.ask(LATER, broker_request::Body::Regain(broker_request::Regain { first_slot: 0, slots: 64 }));
    harness.input(Input::LinkLost { why: "reset".to_owned() });
    harness.expect(&[
        "host #8: process 5 pages 1 from slot 0",
        "stream 2 dropped",
        "region 3 dropped",
        "hang up 3",
        "say the host is gone (reset); processes ended: 0, 1 wait for it",
    ]);
}

#[test]
fn a_host_that_does_not_resume_ends_the_waiting_processes() {
    let mut harness = killed();
    welcome(&mut harness, false);
    harness.expect(&["say connected to the host as VM 7", "close 1", "region 2 dropped"]);
    harness.arrive(LATER, 100);
    resume(&mut harness, LATER);
    harness.answer_refused(6, "it does not go on here");
    harness.expect(&[
        "host #6: resume 5 pid 100 [4, 2]",
        "say process with pid 100 is refused: it does not go on here",
        "client 3: refused: it does not go on here",
        "close 3",
    ]);
}

#[test]
fn a_process_that_ends_meanwhile_is_not_waited_for() {
    let mut harness = killed();
    harness.input(Input::ClientGone { client: A });
    harness.expect(&["region 2 dropped"]);
    welcome(&mut harness, true);
    harness.expect(&["say connected to the host as VM 7", "host #6: back are []"]);

    let mut harness = killed();
    welcome(&mut harness, true);
    harness.input(Input::ClientGone { client: A });
    harness.answer(7, host_to_guestd::Body::Detached(true));
    harness.expect(&[
        "say connected to the host as VM 7",
        "host #6: back are [5]",
        "host #7: detach 5",
        "region 2 dropped",
    ]);
}

#[test]
fn a_process_cannot_resume_the_session_of_another() {
    let mut harness = killed();
    welcome(&mut harness, true);
    harness.arrive(LATER, 101);
    resume(&mut harness, LATER);
    harness.expect(&[
        "say connected to the host as VM 7",
        "host #6: back are [5]",
        "host #7: resume 5 pid 101 [4, 2]",
    ]);
    harness.answer_refused(7, "not yours");
    harness.expect(&[
        "say process with pid 101 is refused: not yours",
        "client 3: refused: not yours",
        "close 3",
    ]);
    // The right process can still return.
    harness.arrive(ClientId(4), 100);
    resume(&mut harness, ClientId(4));
    harness.expect(&["host #8: resume 5 pid 100 [4, 2]"]);
}

#[test]
fn a_host_that_gives_a_session_to_another_process_or_its_number_twice_breaks_the_protocol() {
    let mut harness = killed();
    welcome(&mut harness, true);
    harness.arrive(LATER, 101);
    resume(&mut harness, LATER);
    harness.take_log();
    harness.answer(7, host_to_guestd::Body::Resumed(Resumed { slots: 64, token: vec![8; 16] }));
    harness.expect(&[
        "say the host breaks the protocol, its connection is closed: it gives the session of one process to another",
        "finish link",
    ]);

    let mut harness = killed();
    welcome(&mut harness, true);
    harness.arrive(LATER, 101);
    harness.attach(LATER);
    harness.take_log();
    harness.answer_attached(7, 5);
    harness.expect(&[
        "say the host breaks the protocol, its connection is closed: it gives a process the number of one that waits \
         for it",
        "finish link",
    ]);
}

#[test]
fn a_session_that_the_host_refuses_to_its_own_process_ends() {
    let mut harness = killed();
    welcome(&mut harness, true);
    harness.arrive(LATER, 100);
    resume(&mut harness, LATER);
    harness.take_log();
    harness.answer_refused(7, "its memory is lost");
    harness.expect(&[
        "close 1",
        "say process with pid 100 is refused: its memory is lost",
        "client 3: refused: its memory is lost",
        "close 3",
        "region 2 dropped",
    ]);
}

/// Others may have it open: the host that was killed had not answered the detach.
#[test]
fn memory_of_the_device_of_a_process_that_leaves_is_kept_for_the_next_host() {
    let mut harness = attached();
    harness.arrive(LATER, 101);
    harness.attach(LATER);
    harness.answer_attached(5, 6);
    harness.answer(6, host_to_guestd::Body::FirstSlot(0));
    for (request, address) in [(7, DEVICE_MEMORY_START), (8, 0x9000)] {
        harness.attach_backing(LATER, address, 3);
        harness.answer(request, host_to_guestd::Body::BackingAttached(true));
    }
    harness.input(Input::ClientGone { client: LATER });
    harness.take_log();
    harness.input(Input::LinkLost { why: "reset".to_owned() });
    let log = harness.take_log();
    assert!(
        log.contains(&"region 5 dropped".to_owned()) && !log.contains(&"region 4 dropped".to_owned()),
        "{log:?}"
    );
    harness.now += Duration::from_secs(1);
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    let version = proto::PROTOCOL_VERSION;
    let welcome =
        GuestdWelcome { version, vm: 7, resuming: true, features: all_features(), ..Default::default() };
    harness.take_log();
    harness.answer(10, host_to_guestd::Body::Welcome(welcome));
    let kept = format!("host #12: kept are 3 of 6 at {DEVICE_MEMORY_START:#x}");
    harness.expect(&["say connected to the host as VM 7", "host #11: back are [5]", &kept]);
    // The next host does not know it.
    harness.answer_refused(12, "it is no shared memory");
    harness.expect(&["region 4 dropped"]);
}

#[test]
fn a_request_under_way_is_over_with_the_host() {
    let mut harness = attached();
    harness.attach_backing(A, 0x9000, 1);
    harness.expect(&["host #5: process 5 attaches 1 at 0x9000"]);
    harness.input(Input::LinkLost { why: "reset".to_owned() });
    harness.expect(&[
        "region 3 dropped",
        "stream 1 dropped",
        "region 1 dropped",
        "hang up 1",
        "say the host is gone (reset); processes ended: 0, 1 wait for it",
    ]);
}
