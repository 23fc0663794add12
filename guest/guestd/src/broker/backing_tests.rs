//! Backing pages: when they are attached, freed, kept, and refused.

use d3dkmt::limits::DEVICE_MEMORY_START;
use proto::attach::{DetachBacking, KeptBacking, SharedBacking, host_to_guestd};
use proto::limits::{BACKING_PAGES_MAX, PAGES_PER_MESSAGE_MAX};

use super::tests::{A, B, Harness};
use super::*;

#[test]
fn backing_pages_are_freed_when_the_host_has_given_them_back() {
    let mut harness = Harness::attached();
    harness.attach_backing(A, 0x7000, 3);
    assert!(!harness.broker.listens_to(A), "one request at a time");
    harness.answer(4, host_to_guestd::Body::BackingAttached(true));
    harness.expect(&[
        "host #4: process 5 attaches 3 at 0x7000",
        r#"client 1: process 5 token 0 slots 0+0 ["memory 2"]"#,
    ]);
    harness.ask(A, broker_request::Body::DetachBacking(0x7000));
    harness.expect(&["host #5: process 5 takes 0x7000 back"]);
    harness.answer(5, host_to_guestd::Body::TakenBack(true));
    harness.expect(&["region 2 dropped", "client 1: process 5 token 0 slots 0+0 []"]);
    harness.ask(A, broker_request::Body::DetachBacking(0x7000));
    harness.expect(&["client 1: refused: no backing pages are attached at 0x7000"]);
}

#[test]
fn backing_pages_that_the_host_does_not_detach_stay_the_processs() {
    let mut harness = Harness::attached();
    harness.attach_backing(A, 0x7000, 3);
    harness.answer(4, host_to_guestd::Body::BackingAttached(true));
    harness.take_log();
    harness.ask(A, broker_request::Body::ReleaseBacking(0x7000));
    harness.answer(5, host_to_guestd::Body::InUse(true));
    harness
        .expect(&["host #5: process 5 releases 0x7000", "client 1: process 5 token 0 slots 0+0 in use []"]);
    harness.ask(A, broker_request::Body::ReleaseBacking(0x7000));
    harness.answer(6, host_to_guestd::Body::TakenBack(true));
    harness.expect(&[
        "host #6: process 5 releases 0x7000",
        "region 2 dropped",
        "client 1: process 5 token 0 slots 0+0 []",
    ]);
}

/// Process 5 of client A has created shared memory of the device, process 6 of client B opens it.
#[test]
fn shared_pages_are_given_to_who_the_host_says_and_freed_when_it_releases_them() {
    const START: u64 = DEVICE_MEMORY_START;
    let share = |harness: &mut Harness, request| {
        let share = broker_request::ShareBacking { allocation: 0x40, offset: 0 };
        harness.ask(B, broker_request::Body::ShareBacking(share));
        let shared = SharedBacking { process: 5, address: START, bytes: 0x3000 };
        harness.answer(request, host_to_guestd::Body::SharedBacking(shared));
        harness.expect(&[
            &format!("host #{request}: process 6 opens 0x40 at 0x0"),
            r#"client 2: process 6 token 0 slots 0+0 ["memory 2 again"]"#,
        ]);
    };
    let mut harness = Harness::attached();
    harness.attach_backing(A, START, 3);
    harness.answer(4, host_to_guestd::Body::BackingAttached(true));
    harness.arrive(B, 101);
    harness.attach(B);
    harness.answer_attached(5, 6);
    harness.answer(6, host_to_guestd::Body::FirstSlot(0));
    harness.take_log();
    share(&mut harness, 7);

    harness.input(Input::ClientGone { client: A });
    harness.answer(8, host_to_guestd::Body::Kept(KeptBacking { addresses: vec![START] }));
    harness.expect(&["stream 1 dropped", "host #8: detach 5", "region 1 dropped"]);
    share(&mut harness, 9);
    let released = DetachBacking { process: 5, address: START };
    harness.answer(0, host_to_guestd::Body::BackingReleased(released));
    harness.expect(&["region 2 dropped"]);
    harness.answer(0, host_to_guestd::Body::BackingReleased(released));
    // A host that names pages that are gone gives none.
    let share = broker_request::ShareBacking { allocation: 0x40, offset: 0 };
    harness.ask(B, broker_request::Body::ShareBacking(share));
    let shared = SharedBacking { process: 5, address: START, bytes: 0x3000 };
    harness.answer(10, host_to_guestd::Body::SharedBacking(shared));
    let words = format!("client 2: refused: process 5 has no pages at {START:#x}");
    harness.expect(&["host #10: process 6 opens 0x40 at 0x0", &words]);
}

#[test]
fn backing_pages_of_a_killed_process_wait_for_the_host_in_every_state() {
    for answered in [false, true] {
        let mut harness = Harness::attached();
        harness.attach_backing(A, 0x7000, 3);
        if answered {
            harness.answer(4, host_to_guestd::Body::BackingAttached(true));
            harness.ask(A, broker_request::Body::DetachBacking(0x7000));
        }
        harness.log.borrow_mut().clear();
        harness.input(Input::ClientGone { client: A });
        let detach = if answered { 6 } else { 5 };
        harness.expect(&["stream 1 dropped", &format!("host #{detach}: detach 5")]);
        harness.answer(detach, host_to_guestd::Body::Detached(true));
        harness.expect(&["region 1 dropped", "region 2 dropped"]);
        // The client is gone when the pending answer arrives.
        let late = if answered {
            host_to_guestd::Body::TakenBack(true)
        } else {
            host_to_guestd::Body::BackingAttached(true)
        };
        harness.answer(detach - 1, late);
        harness.expect(&[]);
    }
}

#[test]
fn pages_that_cannot_be_backing_are_refused_and_the_process_lives() {
    let mut harness = Harness::attached();
    harness.attach_backing(A, 0x7000, 1);
    harness.answer_refused(4, "page 0x200000 is outside");
    harness.expect(&[
        "host #4: process 5 attaches 1 at 0x7000",
        "region 2 dropped",
        "client 1: refused: page 0x200000 is outside",
    ]);
    harness.attach_backing(A, 0x7000, 0);
    harness.attach_backing(A, 0x7000, PAGES_PER_MESSAGE_MAX as u32 + 1);
    harness.broker.quotas.pages.set_total(2);
    harness.attach_backing(A, 0x7000, 2);
    harness.attach_backing(A, 0x7000, 1);
    harness.answer(5, host_to_guestd::Body::BackingAttached(true));
    harness.attach_backing(A, 0x7000, 1);
    let log = std::mem::take(&mut *harness.log.borrow_mut());
    let refused: Vec<_> = log.iter().filter_map(|line| line.strip_prefix("client 1: refused: ")).collect();
    assert_eq!(
        refused,
        [
            "0 pages at once, allowed are 1 to 4096",
            "4097 pages at once, allowed are 1 to 4096",
            "the guest's users hold 1 of at most 2 pages of pinned memory, 1 of them user 0, who may hold half of what the \
             others leave and asks for 2 more",
            "backing pages are attached at 0x7000 already",
        ]
    );
    assert!(harness.broker.listens_to(A));
}

#[test]
fn one_process_attaches_a_gib_at_most() {
    let mut harness = Harness::attached();
    harness.broker.quotas.pages.set_total(u32::MAX);
    let each = PAGES_PER_MESSAGE_MAX as u32;
    for number in 0..u64::from(BACKING_PAGES_MAX / each) {
        harness.attach_backing(A, number << 32, each);
        harness.answer(4 + number, host_to_guestd::Body::BackingAttached(true));
    }
    harness.log.borrow_mut().clear();
    harness.attach_backing(A, 1, 1);
    let words = "client 1: refused: the process has 262144 of at most 262144 backing pages";
    assert_eq!(harness.log.borrow().last().unwrap(), words);
}
