//! Pages of shared memory that the host uses after their process has detached them.

use d3dkmt::limits::DEVICE_MEMORY_START;
use proto::attach::{DetachBacking, KeptBacking, host_to_guestd};

use super::tests::{A, Harness};
use super::*;

const START: u64 = DEVICE_MEMORY_START;

/// Process 5 with three pages of memory of the device; requests 2 to 4.
fn with_shared_memory() -> Harness {
    let mut harness = Harness::attached();
    harness.attach_backing(A, START, 3);
    harness.answer(4, host_to_guestd::Body::BackingAttached(true));
    harness.take_log();
    harness
}

fn release(harness: &mut Harness) {
    harness.answer(0, host_to_guestd::Body::BackingReleased(DetachBacking { process: 5, address: START }));
}

#[test]
fn pages_that_the_host_keeps_keep_their_address_until_it_releases_them() {
    let mut harness = with_shared_memory();
    harness.ask(A, broker_request::Body::DetachBacking(START));
    harness.answer(5, host_to_guestd::Body::Kept(KeptBacking { addresses: vec![START] }));
    harness.take_log();
    harness.attach_backing(A, START, 3);
    let log = harness.take_log();
    let refused = format!("client 1: refused: backing pages are attached at {START:#x} already");
    assert!(log.contains(&refused), "{log:?}");
    release(&mut harness);
    harness.expect(&["region 2 dropped"]);
    harness.attach_backing(A, START, 3);
    harness.expect(&[&format!("host #6: process 5 attaches 3 at {START:#x}")]);
}

/// The process has them mapped.
#[test]
fn a_host_releases_no_pages_that_their_process_has_not_detached() {
    let mut harness = with_shared_memory();
    release(&mut harness);
    harness.expect(&[]);
    harness.ask(A, broker_request::Body::DetachBacking(START));
    harness.expect(&[&format!("host #5: process 5 takes {START:#x} back")]);
    // The host may release them before it answers.
    release(&mut harness);
    harness.expect(&["region 2 dropped"]);
    harness.answer(5, host_to_guestd::Body::Kept(KeptBacking { addresses: vec![START] }));
    harness.expect(&["client 1: process 5 token 0 slots 0+0 []"]);
}
