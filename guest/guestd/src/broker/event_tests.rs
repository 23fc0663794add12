//! Registered events: the requests to the host, when an event channel is opened and closed, and which client is
//! answered.

use proto::attach::{HostToGuestd, Rung, host_to_guestd, rung};

use super::tests::{A, Harness};
use super::*;

const DONE: &str = "client 1: process 5 token 0 slots 0+0 []";

fn keep(harness: &mut Harness, event: u64) {
    harness.ask(A, broker_request::Body::RegisterEvent(event));
}

fn event_channel(number: u8) -> host_to_guestd::Body {
    host_to_guestd::Body::EventChannel(vec![number; 16])
}

/// Process 5 with event 1 and its event channel; request 4.
fn with_an_event_channel() -> Harness {
    let mut harness = Harness::attached();
    keep(&mut harness, 1);
    assert!(!harness.broker.listens_to(A), "one request at a time");
    harness.answer(4, event_channel(8));
    harness.expect(&["host #4: keep event 1 of 5", "client 1: event_channel 8 for event 1 of 5"]);
    harness
}

#[test]
fn an_event_is_forgotten_after_its_event_channel_is_closed() {
    let mut harness = with_an_event_channel();
    harness.ask(A, broker_request::Body::UnregisterEvent(1));
    harness.expect(&["no event_channel for event 1 of 5", "host #5: forget event 1 of 5"]);
    harness.answer(5, host_to_guestd::Body::Forgotten(true));
    harness.expect(&[DONE]);
    harness.ask(A, broker_request::Body::UnregisterEvent(1));
    harness.expect(&[DONE]);
}

#[test]
fn a_process_has_so_many_and_each_once() {
    let mut harness = with_an_event_channel();
    keep(&mut harness, 1);
    harness.expect(&["client 1: refused: event 1 is registered already"]);
    keep(&mut harness, 2);
    harness.answer_refused(5, "64 events of the VM are registered, the limit");
    harness.expect(&[
        "host #5: keep event 2 of 5",
        "client 1: refused: 64 events of the VM are registered, the limit",
    ]);
    keep(&mut harness, 3);
    harness.answer(6, event_channel(9));
    keep(&mut harness, 4);
    harness.expect(&[
        "host #6: keep event 3 of 5",
        "client 1: event_channel 9 for event 3 of 5",
        "client 1: refused: 2 events of the process are registered, the limit is 2",
    ]);
}

#[test]
fn event_channels_end_with_their_process_and_with_the_host() {
    let mut harness = with_an_event_channel();
    harness.input(Input::ClientGone { client: A });
    harness.expect(&["stream 1 dropped", "no event_channels for 5", "host #5: detach 5"]);
    let mut harness = with_an_event_channel();
    harness.input(Input::LinkLost { why: "killed".to_owned() });
    let log = std::mem::take(&mut *harness.log.borrow_mut());
    assert!(log.contains(&"no event_channels for 5".to_owned()), "{log:?}");
}

#[test]
fn an_event_channel_that_comes_too_late_is_not_opened() {
    let mut harness = Harness::attached();
    keep(&mut harness, 1);
    harness.input(Input::ClientGone { client: A });
    harness.answer(4, event_channel(8));
    harness.expect(&["host #4: keep event 1 of 5", "stream 1 dropped", "host #5: detach 5"]);
}

#[test]
fn a_event_channel_that_cannot_be_opened_is_forgotten_and_its_event_goes_by_the_stream() {
    let mut harness = with_an_event_channel();
    let why = "is it an eventfd?".to_owned();
    harness.input(Input::EventChannelNotOpened { client: A, process: 5, event: 1, why });
    harness.expect(&[
        "say event 1 of process 5 is not registered: is it an eventfd?",
        "host #5: forget event 1 of 5",
        "client 1: refused: is it an eventfd?",
    ]);
    harness.answer(5, host_to_guestd::Body::Forgotten(true));
    harness.expect(&[]);
    assert!(harness.broker.listens_to(A));
}

#[test]
fn events_settle_when_the_host_has_said_how_much_it_sent() {
    let mut harness = with_an_event_channel();
    harness.ask(A, broker_request::Body::Settle(true));
    let event_channels = vec![rung::EventChannel { event: 1, wakes: 70 }];
    harness.answer(5, host_to_guestd::Body::Rung(Rung { event_channels }));
    harness.expect(&["host #5: settle 5", "client 1: 5 settled at [(1, 70)]"]);
    harness.ask(A, broker_request::Body::Settle(true));
    harness.answer_refused(6, "process 5 is not attached in this VM");
    harness.expect(&["host #6: settle 5", "client 1: refused: process 5 is not attached in this VM"]);
}

#[test]
fn settle_does_not_wait_for_an_event_channel_that_was_closed() {
    let mut harness = with_an_event_channel();
    harness.input(Input::EventChannelNotOpened { client: A, process: 5, event: 1, why: "no".to_owned() });
    harness.ask(A, broker_request::Body::Settle(true));
    let log = std::mem::take(&mut *harness.log.borrow_mut());
    assert_eq!(log[1..], ["host #5: forget event 1 of 5", "client 1: refused: no", "host #6: settle 5"]);
    // The host answers this before it learns that the event is unregistered.
    let event_channels = vec![rung::EventChannel { event: 1, wakes: 1 }];
    harness.answer(6, host_to_guestd::Body::Rung(Rung { event_channels }));
    harness.expect(&["client 1: 5 settled at []"]);
}

#[test]
fn a_host_that_answers_something_else_is_given_up() {
    let requests = [broker_request::Body::RegisterEvent(2), broker_request::Body::Settle(true)];
    for body in requests {
        let mut harness = with_an_event_channel();
        harness.ask(A, body);
        harness.answer(5, host_to_guestd::Body::Detached(true));
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert_eq!(log.last().unwrap(), "finish link", "{log:?}");
    }
}

#[test]
fn events_are_registered_up_to_the_limit_of_host_and_broker() {
    for (host, kept) in [(0, 0), (1, 1), (9, 2)] {
        let mut harness = Harness::down();
        harness.input(Input::Deadline);
        harness.input(Input::LinkOpened);
        harness.welcome(host);
        harness.arrive(A, 100);
        harness.attach(A);
        harness.answer_attached(2, 5);
        let answer = HostToGuestd {
            request: 3,
            body: Some(host_to_guestd::Body::FirstSlot(0)),
            ..HostToGuestd::default()
        };
        let effects = harness.broker.handle(harness.now, Input::FromHost(answer));
        let Some(Effect::Reply { reply, .. }) = effects.last() else { panic!("{effects:?}") };
        assert_eq!(reply.events_max, kept);
    }
}
