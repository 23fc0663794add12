//! The broker against a scripted host and a machine that logs what it gives out and what is dropped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proto::attach::{
    AttachBacking, Attached, DetachBacking, GuestdWelcome, HostToGuestd, RegisteredEvent, RingPages,
    ShareBacking, host_to_guestd,
};

use super::*;
use crate::limits::{GREETING_MAX, PROCESS_PAGES_MAX};

pub(super) type Log = Rc<RefCell<Vec<String>>>;

/// Logs its name when it is dropped.
pub(super) struct Traced(&'static str, u32, Log);

impl Drop for Traced {
    fn drop(&mut self) {
        self.2.borrow_mut().push(format!("{} {} dropped", self.0, self.1));
    }
}

pub(super) struct FakeMachine {
    log: Log,
    made: u32,
    pages_total_max: Rc<Cell<u32>>,
    refuse_memory: Rc<RefCell<bool>>,
    refuse_stream: Rc<RefCell<bool>>,
}

impl Machine for FakeMachine {
    type Region = Traced;
    type Stream = Traced;
    type Descriptor = String;

    fn pages_total_max(&self) -> u32 {
        self.pages_total_max.get()
    }

    fn make_region(&mut self, _: Purpose, pages: u32) -> Result<MadeRegion<Self>, String> {
        if *self.refuse_memory.borrow() {
            return Err("no memory".to_owned());
        }
        self.made += 1;
        let region = Traced("region", self.made, self.log.clone());
        let addresses = (0..pages).map(|page| u64::from(self.made << 20 | page << 12)).collect();
        Ok(MadeRegion { region, addresses, descriptor: format!("memory {}", self.made) })
    }

    fn share_region(&mut self, region: &Traced) -> Result<String, String> {
        Ok(format!("memory {} again", region.1))
    }

    fn open_stream(&mut self) -> Result<MadeStream<Self>, String> {
        if *self.refuse_stream.borrow() {
            return Err("no stream".to_owned());
        }
        let stream = Traced("stream", self.made, self.log.clone());
        Ok(MadeStream { stream, descriptor: format!("stream {}", self.made) })
    }
}

/// A broker whose effects are lines in a log, in order with the machine's drops.
pub(super) struct Harness {
    pub(super) broker: Broker<FakeMachine>,
    pub(super) log: Log,
    pub(super) now: Duration,
    pub(super) pages_total_max: Rc<Cell<u32>>,
    pub(super) refuse_memory: Rc<RefCell<bool>>,
    refuse_stream: Rc<RefCell<bool>>,
}

pub(super) const A: ClientId = ClientId(1);
pub(super) const B: ClientId = ClientId(2);

#[expect(clippy::too_many_lines, reason = "an arm for each effect")]
fn render(effect: &Effect<String>) -> String {
    match effect {
        Effect::OpenLink => "open link".to_owned(),
        Effect::FinishLink => "finish link".to_owned(),
        Effect::DropLink => "drop link".to_owned(),
        Effect::ToHost(message) => {
            let request = message.request;
            match message.body.as_ref().unwrap() {
                guestd_to_host::Body::Hello(hello) => {
                    assert_eq!(hello.version, proto::PROTOCOL_VERSION);
                    format!("host #{request}: hello")
                }
                guestd_to_host::Body::Attach(attach) => {
                    let rings = rings(attach.rings.as_ref());
                    format!("host #{request}: attach pid {} {}{rings}", attach.pid, attach.name)
                }
                guestd_to_host::Body::AddMemory(add) => {
                    let from = add.first_slot.map(|slot| format!(" from slot {slot}")).unwrap_or_default();
                    format!("host #{request}: process {} pages {}{from}", add.process, add.pages.len())
                }
                guestd_to_host::Body::Detach(process) => format!("host #{request}: detach {process}"),
                guestd_to_host::Body::MakeNtHandle(process) => {
                    format!("host #{request}: NT handle for {process}")
                }
                guestd_to_host::Body::NtHandleClosed(token) => {
                    format!("host #{request}: closed {}", token[0])
                }
                guestd_to_host::Body::AttachBacking(attach_backing) => {
                    let AttachBacking { process, address, pages } = attach_backing;
                    format!("host #{request}: process {process} attaches {} at {address:#x}", pages.len())
                }
                guestd_to_host::Body::DetachBacking(DetachBacking { process, address }) => {
                    format!("host #{request}: process {process} takes {address:#x} back")
                }
                guestd_to_host::Body::ReleaseBacking(DetachBacking { process, address }) => {
                    format!("host #{request}: process {process} releases {address:#x}")
                }
                guestd_to_host::Body::ShareBacking(ShareBacking { process, allocation, offset }) => {
                    format!("host #{request}: process {process} opens {allocation:#x} at {offset:#x}")
                }
                guestd_to_host::Body::KeptBacking(AttachBacking { process, address, pages }) => {
                    format!("host #{request}: kept are {} of {process} at {address:#x}", pages.len())
                }
                guestd_to_host::Body::RegisterEvent(RegisteredEvent { process, event }) => {
                    format!("host #{request}: keep event {event} of {process}")
                }
                guestd_to_host::Body::UnregisterEvent(RegisteredEvent { process, event }) => {
                    format!("host #{request}: forget event {event} of {process}")
                }
                guestd_to_host::Body::Settle(process) => format!("host #{request}: settle {process}"),
                guestd_to_host::Body::Returning(returning) => {
                    format!("host #{request}: back are {:?}", returning.processes)
                }
                guestd_to_host::Body::NtHandleHeld(token) => format!("host #{request}: held {}", token[0]),
                guestd_to_host::Body::Resume(resume) => {
                    let rings = rings(resume.rings.as_ref());
                    format!(
                        "host #{request}: resume {} pid {} {:?}{rings}",
                        resume.process, resume.pid, resume.token
                    )
                }
            }
        }
        Effect::Reply { client, reply, descriptors } if reply.refused.is_empty() => format!(
            "client {}: process {} token {} slots {}+{}{}{} {descriptors:?}",
            client.0,
            reply.process,
            reply.token.len(),
            reply.first_slot,
            reply.slots,
            if reply.rings { " rings" } else { "" },
            if reply.in_use { " in use" } else { "" }
        ),
        Effect::Reply { client, reply, .. } => format!("client {}: refused: {}", client.0, reply.refused),
        Effect::GiveNtHandle { client, process, token, is_sync_file } => {
            let what = if *is_sync_file { "sync file" } else { "NT handle" };
            format!("client {}: process {process} {what} {}", client.0, token.0[0])
        }
        Effect::RaiseSyncFile { token } => format!("raise sync file {}", token.0[0]),
        Effect::OpenEventChannel { client, process, event, token } => {
            format!("client {}: event_channel {} for event {event} of {process}", client.0, token[0])
        }
        Effect::CloseEventChannel { process, event } => {
            format!("no event_channel for event {event} of {process}")
        }
        Effect::CloseEventChannels { process } => format!("no event_channels for {process}"),
        Effect::Settle { client, process, event_channels } => {
            format!("client {}: {process} settled at {event_channels:?}", client.0)
        }
        Effect::Close { client } => format!("close {}", client.0),
        Effect::HangUp { client } => format!("hang up {}", client.0),
        Effect::Say(words) => format!("say {words}"),
    }
}

fn rings(pages: Option<&RingPages>) -> String {
    pages.map_or_else(String::new, |RingPages { host, process }| {
        format!(", rings of {}+{} pages", host.len(), process.len())
    })
}

impl Harness {
    pub(super) fn down() -> Self {
        let log = Log::default();
        let (refuse_memory, refuse_stream) = (Rc::default(), Rc::default());
        let pages_total_max = Rc::new(Cell::new(100_000));
        let machine = FakeMachine {
            log: log.clone(),
            made: 0,
            pages_total_max: Rc::clone(&pages_total_max),
            refuse_memory: Rc::clone(&refuse_memory),
            refuse_stream: Rc::clone(&refuse_stream),
        };
        let config = Config { kernel: "6.1".to_owned(), unpin_time: None, events_max: 2 };
        let broker = Broker::new(config, machine);
        Self { broker, log, now: Duration::ZERO, pages_total_max, refuse_memory, refuse_stream }
    }

    pub(super) fn up() -> Self {
        let mut harness = Self::down();
        harness.input(Input::Deadline);
        harness.input(Input::LinkOpened);
        harness.welcome(4);
        harness.expect(&["open link", "host #1: hello", "say connected to the host as VM 7"]);
        assert_eq!(harness.broker.next_deadline(), None, "nothing is to be done at rest");
        harness
    }

    pub(super) fn welcome(&mut self, events_max: u32) {
        let version = proto::PROTOCOL_VERSION;
        self.answer(
            1,
            host_to_guestd::Body::Welcome(GuestdWelcome {
                version,
                vm: 7,
                events_max,
                resuming: false,
                features: all_features(),
                rings: false,
            }),
        );
    }

    /// Client A with process 5, its first page and its stream; requests 2 and 3.
    pub(super) fn attached() -> Self {
        let mut harness = Self::up();
        harness.arrive(A, 100);
        harness.attach(A);
        harness.answer_attached(2, 5);
        harness.answer(3, host_to_guestd::Body::FirstSlot(0));
        harness.expect(&[
            "host #2: attach pid 100 app",
            "host #3: process 5 pages 1",
            r#"client 1: process 5 token 16 slots 0+64 ["stream 1", "memory 1"]"#,
        ]);
        harness
    }

    pub(super) fn input(&mut self, input: Input) {
        let effects = self.broker.handle(self.now, input);
        self.log.borrow_mut().extend(effects.iter().map(render));
        // Memory is freed in later turns.
        while !self.broker.freed.is_empty() {
            let effects = self.broker.handle(self.now, Input::Deadline);
            self.log.borrow_mut().extend(effects.iter().map(render));
        }
    }

    pub(super) fn arrive(&mut self, client: ClientId, pid: u32) {
        self.arrive_as(client, Peer { pid, user: Uid::ROOT });
    }

    pub(super) fn arrive_as(&mut self, client: ClientId, peer: Peer) {
        self.input(Input::ClientArrived { client, peer });
    }

    pub(super) fn ask(&mut self, client: ClientId, body: broker_request::Body) {
        let bytes = BrokerRequest { body: Some(body) }.encode_to_vec();
        self.input(Input::Packet { client, bytes });
    }

    pub(super) fn attach(&mut self, client: ClientId) {
        let attach = broker_request::Attach {
            version: proto::PROTOCOL_VERSION,
            name: "app".to_owned(),
            ..broker_request::Attach::default()
        };
        self.ask(client, broker_request::Body::Attach(attach));
    }

    fn grow(&mut self, client: ClientId, slots: u32) {
        self.ask(client, broker_request::Body::Grow(broker_request::Grow { slots }));
    }

    pub(super) fn attach_backing(&mut self, client: ClientId, address: u64, pages: u32) {
        self.ask(
            client,
            broker_request::Body::AttachBacking(broker_request::AttachBacking { address, pages }),
        );
    }

    pub(super) fn answer(&mut self, request: u64, body: host_to_guestd::Body) {
        let message = HostToGuestd { request, body: Some(body), ..HostToGuestd::default() };
        self.input(Input::FromHost(message));
    }

    pub(super) fn answer_attached(&mut self, request: u64, process: u32) {
        let attached = Attached { process, token: vec![9; 16], ..Attached::default() };
        self.answer(request, host_to_guestd::Body::Attached(attached));
    }

    pub(super) fn answer_refused(&mut self, request: u64, words: &str) {
        self.input(Input::FromHost(HostToGuestd { request, refused: words.to_owned(), body: None }));
    }

    /// The log lines since the last call.
    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut *self.log.borrow_mut())
    }

    /// Compares the log lines since the last call, and removes them.
    #[track_caller]
    pub(super) fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.take_log(), lines);
    }
}

#[test]
fn a_process_gets_its_stream_and_memory_once_the_host_has_taken_the_pages() {
    let harness = Harness::attached();
    assert!(harness.broker.listens_to(A));
    assert_eq!(harness.broker.process_count(), 1);
}

#[test]
fn pages_are_freed_only_when_the_host_has_answered_the_detach() {
    let mut harness = Harness::attached();
    harness.input(Input::ClientGone { client: A });
    harness.expect(&["stream 1 dropped", "host #4: detach 5"]);
    harness.answer(4, host_to_guestd::Body::Detached(true));
    harness.expect(&["region 1 dropped"]);
    assert_eq!(harness.broker.process_count(), 0);
    assert_eq!(harness.broker.next_deadline(), None);
}

#[test]
fn a_detach_that_the_host_refuses_frees_too() {
    let mut harness = Harness::attached();
    harness.input(Input::ClientGone { client: A });
    harness.answer_refused(4, "no process 5");
    harness.expect(&[
        "stream 1 dropped",
        "host #4: detach 5",
        "say process 5 is freed; the host refused to detach it: no process 5",
        "region 1 dropped",
    ]);
}

#[test]
fn memory_grows_by_doubling_and_every_region_waits_for_the_host() {
    let mut harness = Harness::attached();
    for (request, pages, first_slot) in [(4, 1, 64), (5, 2, 128), (6, 4, 256)] {
        harness.grow(A, 1);
        assert!(!harness.broker.listens_to(A), "one request at a time");
        harness.answer(request, host_to_guestd::Body::FirstSlot(first_slot));
        let number = request - 2;
        harness.expect(&[
            &format!("host #{request}: process 5 pages {pages}"),
            &format!(r#"client 1: process 5 token 0 slots {first_slot}+{} ["memory {number}"]"#, pages * 64),
        ]);
    }
    harness.input(Input::ClientGone { client: A });
    harness.answer(7, host_to_guestd::Body::Detached(true));
    harness.expect(&[
        "stream 1 dropped",
        "host #7: detach 5",
        "region 1 dropped",
        "region 2 dropped",
        "region 3 dropped",
        "region 4 dropped",
    ]);
}

#[test]
fn a_client_that_goes_while_the_host_is_asked_for_a_process_is_detached_after() {
    let mut harness = Harness::up();
    harness.arrive(A, 100);
    harness.attach(A);
    harness.input(Input::ClientGone { client: A });
    harness.expect(&["host #2: attach pid 100 app"]);
    harness.answer_attached(2, 5);
    harness.expect(&["host #3: detach 5"]);
    harness.answer(3, host_to_guestd::Body::Detached(true));
    assert_eq!(harness.broker.process_count(), 0);
}

#[test]
fn pages_of_a_client_that_goes_during_an_attach_are_kept_until_detached() {
    let mut harness = Harness::up();
    harness.arrive(A, 100);
    harness.attach(A);
    harness.answer_attached(2, 5);
    harness.input(Input::ClientGone { client: A });
    harness.answer(3, host_to_guestd::Body::FirstSlot(0));
    harness.expect(&["host #2: attach pid 100 app", "host #3: process 5 pages 1", "host #4: detach 5"]);
    harness.answer(4, host_to_guestd::Body::Detached(true));
    harness.expect(&["region 1 dropped"]);
}

#[test]
fn a_process_that_the_host_ends_is_closed_and_its_pages_still_wait_for_the_detach() {
    let mut harness = Harness::attached();
    harness.answer(0, host_to_guestd::Body::Ended(5));
    harness.expect(&[
        "stream 1 dropped",
        "say process 5 is ended by the host",
        "close 1",
        "host #4: detach 5",
    ]);
    // The host's message and the broker's detach may cross.
    harness.answer(0, host_to_guestd::Body::Ended(5));
    harness.answer(4, host_to_guestd::Body::Detached(true));
    harness.expect(&["region 1 dropped"]);
}

#[test]
fn a_lost_host_ends_every_process_and_is_tried_again_with_longer_pauses() {
    let mut harness = Harness::attached();
    harness.arrive(B, 200);
    harness.attach(B);
    harness.expect(&["host #4: attach pid 200 app"]);
    harness.input(Input::LinkLost { why: "closed".to_owned() });
    harness.expect(&[
        "stream 1 dropped",
        "close 1",
        "close 2",
        "say the host is gone (closed); processes ended: 1",
        "region 1 dropped",
    ]);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let retry = harness.broker.next_deadline().unwrap();
        pauses.push((retry - harness.now).as_millis());
        harness.now = retry;
        harness.input(Input::Deadline);
        harness.input(Input::LinkLost { why: "nobody listens".to_owned() });
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
    let said_lines = harness.log.borrow().iter().filter(|line| line.starts_with("say")).count();
    assert_eq!(said_lines, 1, "the same words are said once");
}

#[test]
fn an_attach_is_held_until_the_host_is_there() {
    let mut harness = Harness::down();
    harness.arrive(A, 100);
    harness.attach(A);
    harness.expect(&[]);
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.answer(
        1,
        host_to_guestd::Body::Welcome(GuestdWelcome {
            version: proto::PROTOCOL_VERSION,
            vm: 7,
            events_max: 4,
            resuming: false,
            features: all_features(),
            rings: false,
        }),
    );
    harness.expect(&[
        "open link",
        "host #1: hello",
        "say connected to the host as VM 7",
        "host #2: attach pid 100 app",
    ]);
    assert_eq!(harness.broker.next_deadline(), None);
}

#[test]
fn an_attach_that_was_held_too_long_is_refused_with_the_reason() {
    let mut harness = Harness::down();
    harness.input(Input::Deadline);
    harness.input(Input::LinkLost { why: "nobody listens".to_owned() });
    harness.expect(&["open link", "say no connection to the host, trying again: nobody listens"]);
    harness.arrive(A, 100);
    harness.attach(A);
    harness.now += HOST_WAIT_MAX;
    harness.input(Input::Deadline);
    harness.expect(&[
        "open link",
        "say process with pid 100 is refused: the host is not there: nobody listens",
        "client 1: refused: the host is not there: nobody listens",
        "close 1",
    ]);
}

#[test]
fn a_client_that_misbehaves_is_refused_and_closed_and_others_are_not_touched() {
    let attach = |version| {
        broker_request::Body::Attach(broker_request::Attach {
            version,
            name: String::new(),
            ..broker_request::Attach::default()
        })
    };
    let encoded = |body| BrokerRequest { body: Some(body) }.encode_to_vec();
    let cases: [(Vec<u8>, &str); 6] = [
        (vec![0xff; 7], "is not a message"),
        (Vec::new(), "has no body"),
        (vec![0; BROKER_PACKET_BYTES_MAX + 1], "is over 4096 bytes"),
        (encoded(attach(99)), "libdxcore.so speaks protocol version 99, this side speaks versions 7 to "),
        (encoded(broker_request::Body::Grow(broker_request::Grow { slots: 1 })), "attach before you ask"),
        (encoded(attach(proto::PROTOCOL_VERSION)), ""),
    ];
    for (bytes, words) in cases {
        let mut harness = Harness::attached();
        harness.arrive(B, 200);
        harness.input(Input::Packet { client: B, bytes });
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        match words {
            "" => assert_eq!(log, ["host #4: attach pid 200 "]),
            _ => {
                assert!(log[1].starts_with("client 2: refused: ") && log[1].contains(words), "{log:?}");
                assert_eq!(log[2..], ["close 2"]);
            }
        }
        assert_eq!(harness.broker.process_count(), 1);
        assert!(harness.broker.listens_to(A));
    }
}

#[test]
fn a_flood_of_refusals_does_not_flood_the_console() {
    let mut harness = Harness::up();
    let flood = |harness: &mut Harness, first: u64| {
        for number in first..first + 100 {
            harness.arrive(ClientId(number), 1);
            harness.input(Input::Packet { client: ClientId(number), bytes: vec![0xff] });
        }
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert_eq!(log.iter().filter(|line| line.contains(": refused: ")).count(), 100);
        log.iter().filter(|line| line.starts_with("say ")).count()
    };
    assert_eq!(flood(&mut harness, 0), REFUSALS_SAID_MAX as usize + 1);
    assert_eq!(flood(&mut harness, 100), 0);
    harness.now += REFUSALS_SAID_WINDOW;
    assert_eq!(flood(&mut harness, 200), REFUSALS_SAID_MAX as usize + 1);
}

#[test]
fn a_second_attach_or_resume_and_a_request_of_an_unknown_kind_are_refused_without_an_end_of_the_process() {
    let mut harness = Harness::attached();
    harness.attach(A);
    harness.expect(&["client 1: refused: this connection has attached its process already"]);
    let body = broker_request::Body::Resume(broker_request::Resume::default());
    let resume = BrokerRequest { body: Some(body) }.encode_to_vec();
    // A field that no broker knows yet.
    let of_a_later_version = vec![0xfa, 0x01, 0x00];
    for (bytes, why) in [(resume, "has its process already"), (of_a_later_version, "unknown to this guestd")]
    {
        harness.input(Input::Packet { client: A, bytes });
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert!(matches!(&log[..], [one] if one.contains(why)), "{log:?}");
        assert!(harness.broker.listens_to(A));
    }
    assert_eq!(harness.broker.process_count(), 1);
}

#[test]
fn a_request_too_big_is_refused_and_the_sixteenth_refusal_closes() {
    let mut harness = Harness::attached();
    for _ in 1..REFUSALS_MAX {
        harness.grow(A, PROCESS_PAGES_MAX * 64 + 1);
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert!(log.len() == 1 && log[0].starts_with("client 1: refused: "), "{log:?}");
        assert!(harness.broker.listens_to(A));
    }
    harness.grow(A, u32::MAX);
    let log = std::mem::take(&mut *harness.log.borrow_mut());
    assert_eq!(log[3..], ["close 1", "host #4: detach 5"]);
}

#[test]
fn memory_that_cannot_be_made_or_that_the_host_does_not_take_is_refused() {
    let mut harness = Harness::attached();
    *harness.refuse_memory.borrow_mut() = true;
    harness.grow(A, 1);
    harness.expect(&["say process 5 gets no fence memory: no memory", "client 1: refused: no memory"]);
    *harness.refuse_memory.borrow_mut() = false;
    harness.grow(A, 1);
    harness.answer_refused(4, "address 0x200000 is not in the memory of the VM");
    harness.expect(&[
        "host #4: process 5 pages 1",
        "region 2 dropped",
        "client 1: refused: address 0x200000 is not in the memory of the VM",
    ]);
    assert!(harness.broker.listens_to(A));
}

#[test]
fn an_attach_that_fails_half_way_is_taken_back() {
    for (memory, stream, words) in [(true, false, "no memory"), (false, true, "no stream")] {
        let mut harness = Harness::up();
        *harness.refuse_memory.borrow_mut() = memory;
        *harness.refuse_stream.borrow_mut() = stream;
        harness.arrive(A, 100);
        harness.attach(A);
        harness.answer_attached(2, 5);
        if stream {
            harness.answer(3, host_to_guestd::Body::FirstSlot(0));
        }
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert!(log.contains(&format!("client 1: refused: {words}")), "{log:?}");
        assert!(log.last().unwrap().ends_with("detach 5"), "{log:?}");
        assert_eq!(harness.broker.process_count(), 1, "until the host has answered");
    }
}

#[test]
fn the_memory_of_all_processes_has_a_limit() {
    let mut harness = Harness::attached();
    harness.broker.quotas.pages.set_total(2);
    harness.grow(A, 128);
    let words = "the guest's users hold 1 of at most 2 pages of pinned memory, 1 of them user 0, who may hold half of what \
                 the others leave and asks for 2 more";
    harness.expect(&[
        &format!("say process 5 gets no fence memory: {words}"),
        &format!("client 1: refused: {words}"),
    ]);
}

#[test]
fn a_host_that_refuses_an_attach_says_why_to_the_client() {
    let mut harness = Harness::up();
    harness.arrive(A, 100);
    harness.attach(A);
    harness.answer_refused(2, "4096 processes already");
    harness.expect(&[
        "host #2: attach pid 100 app",
        "say process with pid 100 is refused: 4096 processes already",
        "client 1: refused: 4096 processes already",
        "close 1",
    ]);
}

#[test]
fn a_host_that_breaks_the_protocol_is_left_and_pages_stay_until_it_has_closed() {
    let wrong: [(u64, host_to_guestd::Body); 4] = [
        (99, host_to_guestd::Body::Detached(true)),
        (0, host_to_guestd::Body::FirstSlot(1)),
        (4, host_to_guestd::Body::FirstSlot(1)),
        (4, host_to_guestd::Body::Attached(Attached { process: 5, ..Attached::default() })),
    ];
    for (request, body) in wrong {
        let mut harness = Harness::attached();
        harness.arrive(B, 200);
        harness.attach(B);
        harness.log.borrow_mut().clear();
        harness.answer(request, body);
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert!(log[0].starts_with("say the host breaks the protocol"), "{log:?}");
        assert_eq!(log[1..], ["finish link"]);
        // The broker no longer sends it what happens meanwhile.
        harness.input(Input::ClientGone { client: A });
        harness.expect(&["stream 1 dropped"]);
        harness.input(Input::LinkLost { why: "closed".to_owned() });
        let log = std::mem::take(&mut *harness.log.borrow_mut());
        assert_eq!(log.last().map(String::as_str), Some("region 1 dropped"));
    }
}

#[test]
fn a_host_that_does_not_answer_is_dropped_and_tried_again() {
    let mut harness = Harness::down();
    harness.input(Input::Deadline);
    harness.input(Input::LinkOpened);
    harness.now += GREETING_MAX;
    harness.input(Input::Deadline);
    harness.expect(&[
        "open link",
        "host #1: hello",
        "drop link",
        "say no connection to the host, trying again: it does not answer",
    ]);
    assert!(harness.broker.next_deadline().is_some());
}

pub(super) fn all_features() -> Vec<u32> {
    d3dkmt::FeatureId::MODELLED.map(|feature| feature.0).to_vec()
}

#[test]
fn a_long_name_is_cut_at_a_character() {
    assert_eq!(kept_name("é".repeat(200)), "é".repeat(130));
    assert_eq!(kept_name(format!("x{}", "é".repeat(200))).len(), 259);
    assert_eq!(kept_name("short".to_owned()), "short");
    assert_eq!(kept_name(String::new()), "");
}
