//! How much one user of a guest can take, and what stays for the others.

use proto::attach::{HostToGuestd, host_to_guestd};

use super::tests::{A, B, Harness};
use super::*;
use crate::limits::{DEADLINES_AT_ONCE_MAX, FREE_TIME_MAX, REGIONS_FREED_AT_ONCE_MAX};

const ALICE: Uid = Uid(1000);
const BOB: Uid = Uid(1001);

impl Harness {
    /// Attaches a process of this user and its first page. `None` if that is refused.
    fn process_of(&mut self, user: Uid, number: u32) -> Option<ClientId> {
        let client = ClientId(u64::from(number));
        self.arrive_as(client, Peer { pid: number, user });
        self.attach(client);
        if self.broker.pending.is_empty() {
            return None;
        }
        self.answer_attached(self.broker.last_request, number);
        self.answer(self.broker.last_request, host_to_guestd::Body::FirstSlot(0));
        self.broker.clients.contains_key(&client).then_some(client)
    }

    /// Attaches backing pages, which the host accepts if it is asked.
    fn attach_backing_at_once(&mut self, client: ClientId, address: u64, pages: u32) {
        self.attach_backing(client, address, pages);
        if !self.broker.pending.is_empty() {
            self.answer(self.broker.last_request, host_to_guestd::Body::BackingAttached(true));
        }
    }

    /// The host has detached a process, whose memory has not had its turn yet.
    fn detached(&mut self, request: u64) {
        let body = Some(host_to_guestd::Body::Detached(true));
        let message = HostToGuestd { request, body, ..HostToGuestd::default() };
        self.broker.handle(self.now, Input::FromHost(message));
    }

    fn refusals(&mut self) -> Vec<String> {
        self.take_log().into_iter().filter(|line| line.contains("refused: ")).collect()
    }
}

#[test]
fn a_user_with_all_the_connections_it_can_get_keeps_nobody_else_out() {
    let mut harness = Harness::up();
    for number in 0..2 * CLIENTS_MAX as u64 {
        harness.arrive_as(ClientId(number), Peer { pid: 1, user: ALICE });
    }
    let refused = harness.refusals();
    assert!(refused.len() > CLIENTS_MAX, "half of all at most: {} are refused", refused.len());
    assert!(refused[0].contains("of them user 1000, who may hold half"), "{}", refused[0]);
    for (number, user) in [(1, BOB), (2, Uid::ROOT)] {
        harness.arrive_as(ClientId((1 << 20) + number), Peer { pid: 2, user });
        assert!(harness.broker.listens_to(ClientId((1 << 20) + number)), "{user:?} is kept out");
    }
    // A user at its limit gets another one when other users leave room for it.
    for number in 1..4 {
        harness.input(Input::ClientGone { client: ClientId(number) });
    }
    harness.arrive_as(ClientId(1 << 21), Peer { pid: 1, user: ALICE });
    assert!(harness.broker.listens_to(ClientId(1 << 21)));
}

#[test]
fn a_user_that_pins_all_it_can_leaves_pages_to_others() {
    let mut harness = Harness::up();
    harness.broker.quotas.pages.set_total(160);
    let alice = harness.process_of(ALICE, 5).unwrap();
    for number in 0..100 {
        harness.attach_backing_at_once(alice, number << 32, 1);
    }
    assert_eq!(harness.broker.quotas.pages.held()[&ALICE], 75, "half of what is not root's");
    assert!(harness.broker.listens_to(alice), "that it has its share is no misbehaviour");
    let bob = harness.process_of(BOB, 6).expect("its first page");
    harness.attach_backing_at_once(bob, 0, 36);
    assert_eq!(harness.broker.quotas.pages.held()[&BOB], 37);
    harness.refusals();
    harness.ask(alice, broker_request::Body::DetachBacking(0));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::TakenBack(true));
    assert_eq!(harness.broker.quotas.pages.held()[&ALICE], 74, "given back when the host has answered");
}

/// A DIMM is plugged in, and out again while its pages are held.
#[test]
fn the_limit_of_pages_follows_the_memory_of_the_guest() {
    let mut harness = Harness::up();
    harness.pages_total_max.set(8);
    let client = harness.process_of(Uid::ROOT, 5).unwrap();
    harness.attach_backing_at_once(client, 0x10_0000, 8);
    assert!(harness.refusals()[0].contains("1 of at most 8 pages"), "beside the page of its fences");
    harness.pages_total_max.set(16);
    harness.attach_backing_at_once(client, 0x10_0000, 8);
    assert!(harness.refusals().is_empty());
    harness.pages_total_max.set(4);
    harness.attach_backing_at_once(client, 0x20_0000, 1);
    assert!(harness.refusals()[0].contains("9 of at most 4 pages"));
    assert!(harness.broker.listens_to(client));
}

#[test]
fn a_process_stays_when_others_leave_no_page_for_its_fences() {
    let mut harness = Harness::up();
    harness.broker.quotas.pages.set_total(160);
    let alice = harness.process_of(ALICE, 5).unwrap();
    let other = harness.process_of(ALICE, 6).unwrap();
    for number in 0..100 {
        harness.attach_backing_at_once(other, number << 32, 1);
    }
    harness.refusals();
    for _ in 0..2 * REFUSALS_MAX {
        harness.ask(alice, broker_request::Body::Grow(broker_request::Grow { slots: 64 }));
        assert!(harness.broker.listens_to(alice), "that others have its share is no misbehaviour");
    }
    assert_eq!(harness.refusals().len(), 2 * REFUSALS_MAX as usize);
    harness.ask(other, broker_request::Body::DetachBacking(0));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::TakenBack(true));
    harness.ask(alice, broker_request::Body::Grow(broker_request::Grow { slots: 64 }));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::FirstSlot(64));
    assert!(harness.broker.listens_to(alice) && harness.refusals().is_empty());
}

#[test]
fn a_user_with_all_the_event_channels_it_can_get_leaves_some_to_others() {
    let mut harness = Harness::up();
    harness.broker.events_max = 32;
    let [alice, bob] = [(ALICE, 5), (BOB, 6)].map(|(user, number)| harness.process_of(user, number).unwrap());
    let mut register = |client, event| {
        harness.ask(client, broker_request::Body::RegisterEvent(event));
        if !harness.broker.pending.is_empty() {
            let token = host_to_guestd::Body::EventChannel(vec![1; 16]);
            harness.answer(harness.broker.last_request, token);
            // The driver answers the client itself.
            return true;
        }
        assert!(harness.refusals()[0].contains("of at most 64 event channels"));
        assert!(harness.broker.listens_to(client), "that it has its share is no misbehaviour");
        false
    };
    let of_alice = (0..32).filter(|event| register(alice, *event)).count();
    let of_bob = (0..32).filter(|event| register(bob, *event)).count();
    assert_eq!((of_alice, of_bob), (30, 15), "half of what is not root's, and half of what is left");
    harness.ask(alice, broker_request::Body::UnregisterEvent(0));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::Forgotten(true));
    harness.input(Input::ClientGone { client: bob });
    assert_eq!(harness.broker.quotas.event_channels.held().into_iter().collect::<Vec<_>>(), [(ALICE, 29)]);
}

const UNPIN_TIME: Duration = Duration::from_secs(1);

#[test]
fn a_process_that_begins_while_pages_return_waits_for_its_first_page() {
    let (mut harness, _) = with_returning_pages();
    harness.now += UNPIN_TIME / 2;
    let next = ClientId(9);
    harness.arrive_as(next, Peer { pid: 9, user: Uid::ROOT });
    harness.attach(next);
    harness.answer_attached(harness.broker.last_request, 9);
    assert!(harness.broker.pending.is_empty() && harness.refusals().is_empty(), "it waits");
    harness.now += UNPIN_TIME / 2;
    harness.input(Input::Deadline);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::FirstSlot(0));
    assert!(harness.broker.listens_to(next) && harness.refusals().is_empty());
}

#[test]
fn a_process_that_grows_while_pages_return_waits_for_them() {
    let (mut harness, client) = with_returning_pages();
    harness.ask(client, broker_request::Body::Grow(broker_request::Grow { slots: 64 }));
    assert!(harness.broker.pending.is_empty() && harness.refusals().is_empty(), "it waits");
    harness.now += UNPIN_TIME;
    harness.input(Input::Deadline);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::FirstSlot(64));
    assert!(harness.broker.listens_to(client) && harness.refusals().is_empty());
}

#[test]
fn a_process_that_waits_for_its_first_page_ends_with_the_link_or_with_its_connection() {
    for is_link_lost in [true, false] {
        let (mut harness, _) = with_returning_pages();
        let next = ClientId(9);
        harness.arrive_as(next, Peer { pid: 9, user: Uid::ROOT });
        harness.attach(next);
        harness.answer_attached(harness.broker.last_request, 9);
        match is_link_lost {
            true => harness.input(Input::LinkLost { why: "the host is gone".to_owned() }),
            false => harness.input(Input::ClientGone { client: next }),
        }
        assert!(!harness.broker.clients.contains_key(&next));
        harness.now += 2 * UNPIN_TIME;
        harness.input(Input::Deadline);
    }
}

#[test]
fn pages_that_were_never_pinned_are_free_at_once() {
    let quota = Quota::returning_after(Some(UNPIN_TIME), "pages", 160);
    let user = Uid(7);
    // Rings that a user cannot be spared leave no trace.
    let _held = quota.take(user, 60).unwrap();
    assert!(quota.take_spare(user, 9).is_err());
    drop(quota.take(user, 9).unwrap());
    assert_eq!(quota.held()[&user], 60);
    let mut pinned = quota.take(user, 9).unwrap();
    pinned.pin();
    drop(pinned);
    assert_eq!(quota.held()[&user], 69);
    quota.pass(Duration::ZERO);
    quota.pass(UNPIN_TIME);
    assert_eq!(quota.held()[&user], 60);
    // So does a region that the machine does not make.
    let mut harness = Harness::up();
    harness.broker.config.unpin_time = Some(UNPIN_TIME);
    harness.broker.quotas.pages = Quota::returning_after(Some(UNPIN_TIME), "pages", 100);
    let client = harness.process_of(ALICE, 5).unwrap();
    *harness.refuse_memory.borrow_mut() = true;
    harness.attach_backing(client, 0x7000, 9);
    assert_eq!(harness.broker.quotas.pages.held()[&ALICE], 1);
}

/// A process that has just given back nine of ten pages.
fn with_returning_pages() -> (Harness, ClientId) {
    let mut harness = Harness::up();
    harness.broker.config.unpin_time = Some(UNPIN_TIME);
    harness.broker.quotas.pages = Quota::returning_after(Some(UNPIN_TIME), "pages", 10);
    let client = harness.process_of(Uid::ROOT, 5).unwrap();
    harness.attach_backing_at_once(client, 0x7000, 9);
    harness.ask(client, broker_request::Body::DetachBacking(0x7000));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::TakenBack(true));
    (harness, client)
}

#[test]
fn pages_that_return_later_than_the_kernel_may_take_are_not_awaited() {
    let mut harness = Harness::up();
    harness.broker.config.unpin_time = Some(UNPIN_TIME);
    harness.broker.quotas.pages = Quota::returning_after(Some(UNPIN_TIME + FREE_TIME_MAX * 2), "pages", 10);
    let client = harness.process_of(Uid::ROOT, 5).unwrap();
    harness.attach_backing_at_once(client, 0x7000, 9);
    harness.ask(client, broker_request::Body::DetachBacking(0x7000));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::TakenBack(true));
    harness.attach_backing(client, 0x7000, 9);
    assert_eq!(harness.refusals().len(), 1);
    assert!(harness.broker.listens_to(client));
}

#[test]
fn pages_that_the_kernel_may_not_have_unpinned_are_awaited() {
    let (mut harness, client) = with_returning_pages();
    let given_back = harness.now;
    assert_eq!(harness.broker.quotas.pages.held()[&Uid::ROOT], 10, "they still count");
    harness.now += UNPIN_TIME / 2;
    harness.attach_backing(client, 0x7000, 9);
    assert!(harness.broker.pending.is_empty() && !harness.broker.listens_to(client), "it waits");
    assert_eq!(harness.broker.next_deadline(), Some(given_back + UNPIN_TIME));
    harness.now = given_back + UNPIN_TIME;
    harness.input(Input::Deadline);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::BackingAttached(true));
    assert!(harness.broker.listens_to(client) && harness.refusals().is_empty());
    // Nothing was given back, so there is nothing to wait for.
    harness.attach_backing(client, 0x70_0000, 1);
    assert_eq!((harness.refusals().len(), harness.broker.next_deadline()), (1, None));
}

#[test]
fn requests_with_one_deadline_are_handled_some_at_a_time_and_users_take_turns() {
    let (mut harness, root) = with_returning_pages();
    harness.broker.quotas.pages.set_total(800);
    let count = DEADLINES_AT_ONCE_MAX as u32 + 4;
    let of_alice: Vec<_> =
        (0..count).map(|number| harness.process_of(ALICE, 100 + number).unwrap()).collect();
    let of_bob = harness.process_of(BOB, 200).unwrap();
    harness.attach_backing_at_once(root, 0x9000, 700);
    harness.ask(root, broker_request::Body::DetachBacking(0x9000));
    harness.answer(harness.broker.last_request, host_to_guestd::Body::TakenBack(true));
    let before = harness.broker.last_request;
    for (clients, slots) in [(&of_alice[..], 320), (&[of_bob][..], 900)] {
        for client in clients {
            harness.ask(*client, broker_request::Body::Grow(broker_request::Grow { slots }));
        }
    }
    assert_eq!(harness.broker.last_request, before, "all wait");
    harness.now = harness.broker.next_deadline().unwrap();
    harness.input(Input::Deadline);
    assert_eq!(harness.broker.last_request, before + DEADLINES_AT_ONCE_MAX as u64);
    let is_served = |harness: &Harness, client: ClientId| {
        matches!(harness.broker.clients[&client].state, ClientState::Adding { .. })
    };
    assert!(is_served(&harness, of_bob), "its user's turn is the second");
    // The connection of one that waits for its turn closes.
    harness.input(Input::ClientGone { client: *of_alice.last().unwrap() });
    assert_eq!(harness.broker.next_deadline(), Some(harness.now), "others wait for their turn");
    harness.input(Input::Deadline);
    assert!(of_alice[..of_alice.len() - 1].iter().all(|client| is_served(&harness, *client)));
    assert!(harness.refusals().is_empty() && harness.broker.next_deadline().is_none());
}

#[test]
fn processes_that_wait_for_the_host_attach_some_at_a_time_and_users_take_turns() {
    let mut harness = Harness::down();
    let count = DEADLINES_AT_ONCE_MAX as u64 + 4;
    for (client, user) in (0..count).map(|client| (client, ALICE)).chain([(count, BOB)]) {
        harness.arrive_as(ClientId(client), Peer { pid: 1, user });
        harness.attach(ClientId(client));
    }
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.welcome(4);
    assert_eq!(harness.broker.pending.len(), DEADLINES_AT_ONCE_MAX);
    let bob = &harness.broker.clients[&ClientId(count)].state;
    assert!(matches!(bob, ClientState::Attaching), "its user's turn is the second");
    assert_eq!(harness.broker.next_deadline(), Some(harness.now));
    harness.input(Input::Deadline);
    assert_eq!((harness.broker.pending.len() as u64, harness.broker.next_deadline()), (count + 1, None));
}

#[test]
fn who_waits_for_a_host_that_goes_before_its_turn_waits_on() {
    let mut harness = Harness::down();
    let count = DEADLINES_AT_ONCE_MAX as u64 + 4;
    for client in (0..count).map(ClientId) {
        harness.arrive_as(client, Peer { pid: 1, user: ALICE });
        harness.attach(client);
    }
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.welcome(4);
    harness.input(Input::LinkLost { why: "gone".to_owned() });
    harness.broker.handle(harness.now, Input::Deadline);
    let held = |entry: &&Client<_>| matches!(entry.state, ClientState::Held { .. });
    assert_eq!(harness.broker.clients.values().filter(held).count(), 4);
}

#[test]
fn memory_of_ended_processes_is_freed_some_at_a_time_users_take_turns_and_who_needs_it_waits() {
    let mut harness = Harness::up();
    harness.broker.config.unpin_time = Some(UNPIN_TIME);
    harness.broker.quotas.pages = Quota::returning_after(Some(UNPIN_TIME), "pages", 200);
    let (alice, bob) = (harness.process_of(ALICE, 5).unwrap(), harness.process_of(BOB, 6).unwrap());
    let count = 2 * REGIONS_FREED_AT_ONCE_MAX as u32;
    (0..count).for_each(|number| harness.attach_backing_at_once(alice, u64::from(number) << 32, 1));
    let root = harness.process_of(Uid::ROOT, 7).unwrap();
    harness.attach_backing_at_once(root, 0, 200 - (count + 3));
    let regions = |harness: &Harness| {
        [ALICE, BOB].map(|user| harness.broker.quotas.regions.held().get(&user).copied().unwrap_or(0))
    };
    for client in [alice, bob] {
        harness.input(Input::ClientGone { client });
    }
    harness.detached(harness.broker.last_request - 1);
    harness.detached(harness.broker.last_request);
    assert_eq!(regions(&harness), [count + 1, 1], "nothing is freed before its turn");
    let grow = broker_request::Body::Grow(broker_request::Grow { slots: 64 });
    let bytes = BrokerRequest { body: Some(grow) }.encode_to_vec();
    harness.broker.handle(harness.now, Input::Packet { client: root, bytes });
    assert!(!harness.broker.listens_to(root), "it waits");
    for left in [[count + 2 - REGIONS_FREED_AT_ONCE_MAX as u32, 0], [2, 0], [0, 0]] {
        assert_eq!(harness.broker.next_deadline(), Some(harness.now));
        harness.broker.handle(harness.now, Input::Deadline);
        assert_eq!(regions(&harness), left);
    }
    assert_eq!(harness.broker.next_deadline(), Some(harness.now + UNPIN_TIME), "the kernel has its time");
    harness.now += UNPIN_TIME;
    harness.input(Input::Deadline);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::FirstSlot(64));
    assert!(harness.broker.listens_to(root) && harness.refusals().is_empty());
}

#[test]
fn a_request_that_waits_for_memory_to_be_freed_then_waits_for_the_kernel_too() {
    let mut harness = Harness::up();
    harness.broker.config.unpin_time = Some(UNPIN_TIME);
    harness.broker.quotas.pages = Quota::returning_after(Some(UNPIN_TIME), "pages", 10);
    let [first, second] = [5, 6].map(|number| harness.process_of(Uid::ROOT, number).unwrap());
    harness.attach_backing_at_once(first, 0x7000, 8);
    harness.input(Input::ClientGone { client: first });
    harness.detached(harness.broker.last_request);
    harness.attach_backing(second, 0x7000, 8);
    assert!(!harness.broker.listens_to(second) && harness.refusals().is_empty(), "it waits");
    harness.now += UNPIN_TIME;
    harness.input(Input::Deadline);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::BackingAttached(true));
    assert!(harness.broker.listens_to(second) && harness.refusals().is_empty());
}

#[test]
fn a_user_without_a_region_left_waits_for_those_that_are_being_freed() {
    let mut harness = Harness::up();
    let (alice, other) = (harness.process_of(ALICE, 5).unwrap(), harness.process_of(ALICE, 6).unwrap());
    (0..7).for_each(|number| harness.attach_backing_at_once(alice, number << 32, 1));
    harness.broker.quotas.regions.set_total(16);
    harness.input(Input::ClientGone { client: alice });
    harness.detached(harness.broker.last_request);
    harness.attach_backing(other, 0, 1);
    harness.answer(harness.broker.last_request, host_to_guestd::Body::BackingAttached(true));
    assert!(harness.broker.listens_to(other) && harness.refusals().is_empty());
}

#[test]
fn who_waits_for_pages_ends_with_the_link_or_with_its_connection() {
    for is_link_lost in [true, false] {
        let (mut harness, client) = with_returning_pages();
        harness.attach_backing(client, 0x7000, 9);
        assert!(!harness.broker.listens_to(client), "it waits");
        match is_link_lost {
            true => harness.input(Input::LinkLost { why: "the host is gone".to_owned() }),
            false => harness.input(Input::ClientGone { client }),
        }
        assert!(!harness.broker.clients.contains_key(&client));
        harness.now += 2 * UNPIN_TIME;
        harness.input(Input::Deadline);
    }
}

#[test]
fn regions_are_shared_like_pages() {
    let mut harness = Harness::up();
    harness.broker.quotas.regions.set_total(16);
    let alice = harness.process_of(ALICE, 5).unwrap();
    for number in 0..100 {
        harness.attach_backing_at_once(alice, number << 32, 1);
    }
    assert_eq!(harness.broker.quotas.regions.held()[&ALICE], 7);
    assert!(harness.process_of(BOB, 6).is_some());
}

#[test]
fn processes_count_until_the_host_has_let_go_of_them() {
    let mut harness = Harness::up();
    harness.broker.quotas.processes.set_total(32);
    for number in 1..100 {
        if let Some(client) = harness.process_of(ALICE, number) {
            harness.input(Input::ClientGone { client });
        }
    }
    assert_eq!(harness.broker.quotas.processes.held()[&ALICE], 15);
    assert_eq!(harness.broker.process_count(), 15, "all of them leave");
    assert!(harness.process_of(BOB, 100).is_some());
    let detaching = harness.broker.pending.keys().copied().collect::<Vec<_>>();
    for request in detaching {
        harness.answer(request, host_to_guestd::Body::Detached(true));
    }
    assert!(harness.process_of(ALICE, 101).is_some());
}

#[test]
fn an_attach_whose_client_goes_before_the_host_answers_counts_as_well() {
    let mut harness = Harness::up();
    harness.broker.quotas.processes.set_total(32);
    for number in 1..100 {
        let client = ClientId(number);
        harness.arrive_as(client, Peer { pid: 1, user: ALICE });
        harness.attach(client);
        harness.input(Input::ClientGone { client });
    }
    assert_eq!(harness.broker.pending.len(), 15, "so many are under way at a time");
}

#[test]
fn nt_handles_are_shared_and_count_until_their_last_close() {
    let mut harness = Harness::up();
    harness.broker.quotas.nt_handles.set_total(32);
    let (alice, bob) = (harness.process_of(ALICE, 5).unwrap(), harness.process_of(BOB, 6).unwrap());
    let make = |harness: &mut Harness, client, number| {
        let before = harness.broker.last_request;
        harness.ask(client, broker_request::Body::MakeNtHandle(true));
        if harness.broker.last_request > before {
            harness.answer(before + 1, host_to_guestd::Body::NtHandle(vec![number; 16]));
        }
        harness.broker.nt_handles.contains_key(&ShareToken([number; 16]))
    };
    let made = (0..100).filter(|number| make(&mut harness, alice, *number)).count();
    assert_eq!(made, 15);
    assert!(harness.broker.listens_to(alice), "that it has its share is no misbehaviour");
    assert!(make(&mut harness, bob, 200));
    for closed in [200, 0] {
        harness.input(Input::NtHandleClosed { token: ShareToken([closed; 16]) });
    }
    assert!(make(&mut harness, alice, 201));
}

#[test]
fn a_connection_without_a_request_is_closed_after_its_time() {
    let mut harness = Harness::up();
    harness.arrive(A, 100);
    harness.arrive(B, 101);
    harness.now += INTRODUCTION_MAX - Duration::from_nanos(1);
    assert_eq!(harness.broker.next_deadline(), Some(INTRODUCTION_MAX));
    harness.attach(B);
    harness.answer_attached(2, 5);
    harness.answer(3, host_to_guestd::Body::FirstSlot(0));
    harness.take_log();
    harness.now += Duration::from_nanos(1);
    harness.input(Input::Deadline);
    harness.expect(&[
        "say process with pid 100 is refused: it has asked for nothing in 30 s",
        "client 1: refused: it has asked for nothing in 30 s",
        "close 1",
    ]);
    assert!(harness.broker.listens_to(B), "who has attached may say nothing for ever");
    assert_eq!(harness.broker.next_deadline(), None);
}

#[test]
fn a_guest_full_of_connections_says_so() {
    let mut harness = Harness::up();
    for number in 0..CLIENTS_MAX as u64 {
        harness.arrive(ClientId(number), 1);
    }
    harness.expect(&[]);
    harness.arrive(ClientId(1 << 20), 1);
    let log = harness.take_log();
    let full = format!("refused: the guest's users hold {CLIENTS_MAX} of at most {CLIENTS_MAX} connections");
    assert!(log[0].contains(&full), "{log:?}");
    assert_eq!(log[1], format!("close {}", 1 << 20));
    harness.input(Input::ClientGone { client: ClientId(3) });
    harness.arrive(ClientId((1 << 20) + 1), 1);
    harness.expect(&[]);
}
