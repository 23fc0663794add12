//! Hosts of another release.

use covers::covers;
use proto::attach::{GuestdWelcome, host_to_guestd};

use super::tests::{Harness, all_features};
use super::*;

#[test]
fn features_that_a_host_lacks_are_logged() {
    covers!("GPV-029");
    let connected = |features| {
        let mut harness = Harness::down();
        harness.input(Input::Deadline);
        harness.input(Input::LinkOpened);
        let version = proto::PROTOCOL_VERSION;
        let welcome = GuestdWelcome { version, vm: 7, features, ..GuestdWelcome::default() };
        harness.answer(1, host_to_guestd::Body::Welcome(welcome));
        harness.take_log().last().cloned().unwrap()
    };
    assert_eq!(connected(all_features()), "say connected to the host as VM 7");
    assert_eq!(
        connected(vec![0, 2, 3, 99]),
        "say connected to the host as VM 7, without feature 4, without feature 37"
    );
}

#[test]
fn a_host_of_another_version_is_named() {
    let mut harness = Harness::down();
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    let welcome = GuestdWelcome { version: 99, vm: 7, ..GuestdWelcome::default() };
    harness.answer(1, host_to_guestd::Body::Welcome(welcome));
    harness.expect(&[
        "open link",
        "host #1: hello",
        &format!("say the host speaks protocol version 99, guestd speaks {}", proto::Versions::OURS),
        "finish link",
    ]);
}
