//! Random inputs, valid and invalid, against the one guarantee that the guest's memory safety depends on: a region is
//! freed only when the host has answered the detach, has refused the memory, or is gone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use d3dkmt::limits::DEVICE_MEMORY_START;
use proptest::prelude::*;
use proto::attach::{
    Attached, DetachBacking, GuestdWelcome, HostToGuestd, KeptBacking, Resumed, Rung, SharedBacking,
    host_to_guestd, rung,
};

use super::*;

/// Regions that exist, by their first address.
type LivePages = Rc<RefCell<BTreeSet<u64>>>;

struct Region(u64, LivePages);

impl Drop for Region {
    fn drop(&mut self) {
        assert!(self.1.borrow_mut().remove(&self.0));
    }
}

struct Counting {
    live_pages: LivePages,
    last: u64,
}

impl Machine for Counting {
    type Region = Region;
    type Stream = ();
    type Descriptor = ();

    fn pages_total_max(&self) -> u32 {
        40
    }

    fn make_region(&mut self, _: Purpose, pages: u32) -> Result<MadeRegion<Self>, String> {
        self.last += 1;
        if self.last.is_multiple_of(11) {
            return Err("no memory".to_owned());
        }
        self.live_pages.borrow_mut().insert(self.last);
        let region = Region(self.last, self.live_pages.clone());
        Ok(MadeRegion { region, addresses: vec![self.last; pages as usize], descriptor: () })
    }

    fn share_region(&mut self, region: &Region) -> Result<(), String> {
        assert!(self.live_pages.borrow().contains(&region.0), "a region that is freed is given to a process");
        Ok(())
    }

    fn open_stream(&mut self) -> Result<MadeStream<Self>, String> {
        if self.last.is_multiple_of(7) {
            return Err("no stream".to_owned());
        }
        Ok(MadeStream { stream: (), descriptor: () })
    }
}

/// What the host knows: requests to answer, and the pages that it may store into.
#[derive(Default)]
struct Host {
    requests: Vec<GuestdToHost>,
    pages: BTreeMap<u32, BTreeSet<u64>>,
    /// First page of each backing range, by process and address.
    backing: BTreeMap<(u32, u64), u64>,
    /// The same of pages that it keeps, and of those that a host which was killed has kept.
    kept: BTreeMap<(u32, u64), u64>,
    kept_before: BTreeMap<(u32, u64), u64>,
    /// Events whose wakes it sends to their event channels.
    event_channels: BTreeSet<(u32, u64)>,
    next_process: u32,
    /// NT handles whose close was not reported to it.
    nt_handles: BTreeSet<[u8; 16]>,
    next_nt_handle: u8,
    /// It resumes no sessions of an earlier host.
    is_new: bool,
    /// Processes of the earlier host that still live.
    awaited: BTreeSet<u32>,
}

impl Host {
    /// Takes one request and accepts or refuses it; it forgets pages that it releases *before* the answer.
    #[expect(clippy::too_many_lines, reason = "an arm for each request")]
    fn answer(&mut self, pick: usize, refuse: bool) -> Option<HostToGuestd> {
        if self.requests.is_empty() {
            return None;
        }
        let message = self.requests.remove(self.next(pick % self.requests.len()));
        let body = match message.body.unwrap() {
            guestd_to_host::Body::Hello(_) => host_to_guestd::Body::Welcome(GuestdWelcome {
                version: proto::PROTOCOL_VERSION,
                vm: 1,
                events_max: 4,
                resuming: !std::mem::take(&mut self.is_new),
                features: Vec::new(),
                rings: true,
            }),
            guestd_to_host::Body::Attach(attach) => {
                self.next_process += u32::from(!refuse);
                if let Some(rings) = attach.rings.filter(|_| !refuse) {
                    let pages = self.pages.entry(self.next_process).or_default();
                    pages.extend([rings.host[0], rings.process[0]]);
                }
                // Each third process cannot be resumed.
                let resume_token = vec![1; usize::from(!self.next_process.is_multiple_of(3))];
                let process = self.next_process;
                host_to_guestd::Body::Attached(Attached { process, resume_token, ..Attached::default() })
            }
            guestd_to_host::Body::AddMemory(add) => {
                if refuse {
                    self.pages.entry(add.process).or_default().remove(&add.pages[0]);
                }
                host_to_guestd::Body::FirstSlot(0)
            }
            guestd_to_host::Body::AttachBacking(attach_backing) => {
                if refuse {
                    self.backing.remove(&(attach_backing.process, attach_backing.address));
                }
                host_to_guestd::Body::BackingAttached(true)
            }
            guestd_to_host::Body::ReleaseBacking(back)
                if back.address < DEVICE_MEMORY_START && refuse && pick.is_multiple_of(2) =>
            {
                return Some(answered(message.request, Ok(host_to_guestd::Body::InUse(true))));
            }
            guestd_to_host::Body::DetachBacking(back) | guestd_to_host::Body::ReleaseBacking(back) => {
                let at = (back.process, back.address);
                let taken =
                    self.backing.remove(&at).filter(|_| back.address >= DEVICE_MEMORY_START && !refuse);
                match taken {
                    Some(page) => {
                        self.kept.insert(at, page);
                        host_to_guestd::Body::Kept(KeptBacking { addresses: vec![back.address] })
                    }
                    None => host_to_guestd::Body::TakenBack(true),
                }
            }
            guestd_to_host::Body::Detach(process) => {
                self.pages.remove(&process);
                let is_kept = |(of, at): &(u32, u64)| *of == process && *at >= DEVICE_MEMORY_START && !refuse;
                self.kept
                    .extend(self.backing.iter().filter(|(at, _)| is_kept(at)).map(|(at, page)| (*at, *page)));
                self.backing.retain(|(of, _), _| *of != process);
                self.event_channels.retain(|(of, _)| *of != process);
                let of_it = self.kept.keys().filter(|(of, _)| *of == process);
                let addresses: Vec<u64> = of_it.map(|(_, at)| *at).collect();
                match addresses.is_empty() || refuse {
                    true => host_to_guestd::Body::Detached(true),
                    false => host_to_guestd::Body::Kept(KeptBacking { addresses }),
                }
            }
            guestd_to_host::Body::ShareBacking(share) => {
                // Of any pages that it has.
                let all: Vec<_> = self.backing.keys().chain(self.kept.keys()).collect();
                let Some((process, address)) = all.get(share.offset as usize % all.len().max(1)) else {
                    return Some(answered(message.request, Err(())));
                };
                let (process, address, bytes) = (*process, *address, 0x1000);
                host_to_guestd::Body::SharedBacking(SharedBacking { process, address, bytes })
            }
            guestd_to_host::Body::KeptBacking(kept) => {
                let at = (kept.process, kept.address);
                if !refuse && self.kept_before.remove(&at).is_some() {
                    self.kept.insert(at, kept.pages[0]);
                    host_to_guestd::Body::BackingAttached(true)
                } else {
                    return Some(answered(message.request, Err(())));
                }
            }
            guestd_to_host::Body::RegisterEvent(event) => {
                if !refuse {
                    assert!(
                        self.event_channels.insert((event.process, event.event)),
                        "two event channels of one event"
                    );
                }
                host_to_guestd::Body::EventChannel(vec![u8::from(event.event == 3); 16])
            }
            guestd_to_host::Body::UnregisterEvent(event) => {
                self.event_channels.remove(&(event.process, event.event));
                host_to_guestd::Body::Forgotten(true)
            }
            guestd_to_host::Body::Settle(process) => {
                let of = |(owner, _): &&(u32, u64)| *owner == process;
                let event_channel = |(_, event): &(u32, u64)| rung::EventChannel { event: *event, wakes: 1 };
                host_to_guestd::Body::Rung(Rung {
                    event_channels: self.event_channels.iter().filter(of).map(event_channel).collect(),
                })
            }
            guestd_to_host::Body::Returning(returning) => {
                self.awaited = returning.processes.into_iter().collect();
                return Some(answered(message.request, Ok(host_to_guestd::Body::Returned(true))));
            }
            guestd_to_host::Body::NtHandleHeld(_) => {
                return Some(answered(message.request, Ok(host_to_guestd::Body::NtHandleHeld(true))));
            }
            guestd_to_host::Body::Resume(resume) => {
                let is_known = self.awaited.contains(&resume.process) && !refuse;
                let resumed = Resumed { slots: 64, token: vec![2; 16] };
                let answer = if is_known { Ok(host_to_guestd::Body::Resumed(resumed)) } else { Err(()) };
                return Some(answered(message.request, answer));
            }
            guestd_to_host::Body::MakeNtHandle(_) => {
                self.next_nt_handle = self.next_nt_handle.wrapping_add(1);
                if !refuse {
                    self.nt_handles.insert([self.next_nt_handle; 16]);
                }
                host_to_guestd::Body::NtHandle(vec![self.next_nt_handle; 16])
            }
            guestd_to_host::Body::NtHandleClosed(token) => {
                let known = self.nt_handles.remove(&token[..]);
                assert!(known, "NT handle {} is closed, and was not made or closed before", token[0]);
                host_to_guestd::Body::NtHandleClosed(true)
            }
        };
        Some(answered(message.request, if refuse { Err(()) } else { Ok(body) }))
    }

    /// The request to answer instead of this one: a host handles requests in order, and an event that is registered
    /// again was unregistered before.
    fn next(&self, picked: usize) -> usize {
        let Some(guestd_to_host::Body::RegisterEvent(event)) = &self.requests[picked].body else {
            return picked;
        };
        let forgets = Some(guestd_to_host::Body::UnregisterEvent(*event));
        self.requests[..picked].iter().position(|message| message.body == forgets).unwrap_or(picked)
    }

    fn forget(&mut self) {
        self.requests.clear();
        self.pages.clear();
        self.backing.clear();
        self.kept_before = std::mem::take(&mut self.kept);
        self.event_channels.clear();
        self.nt_handles.clear();
        self.awaited.clear();
    }
}

fn answered(request: u64, answer: Result<host_to_guestd::Body, ()>) -> HostToGuestd {
    let refused = if answer.is_err() { "no".to_owned() } else { String::new() };
    HostToGuestd { request, refused, body: answer.ok() }
}

#[derive(Debug, Clone)]
enum Step {
    Answer {
        pick: usize,
        refuse: bool,
    },
    Arrive,
    Attach(u64),
    Grow(u64, u32),
    MakeNtHandle(u64),
    CloseNtHandle(usize),
    AttachBacking(u64, u64, u32),
    DetachBacking(u64, u64),
    ShareBacking(u64, u64),
    /// The host no longer needs pages that it keeps.
    Release(usize),
    RegisterEvent(u64, u64),
    UnregisterEvent(u64, u64),
    Settle(u64),
    Resume(u64, u32),
    Regain(u64, u32),
    ReattachBacking(u64, u64, u32),
    Garbage(u64),
    Gone(u64),
    Ended(u32),
    WrongAnswer(u64),
    /// Whether the next host resumes the sessions.
    LinkLost(bool),
    Time(u64),
}

/// Two addresses of a process, and two of memory of the device.
fn address() -> impl Strategy<Value = u64> {
    (0..4_u64).prop_map(|number| if number < 2 { number } else { DEVICE_MEMORY_START + number })
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..8_u64;
    prop_oneof![
        20 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(pick, refuse)| Step::Answer { pick, refuse }),
        6 => Just(Step::Arrive),
        8 => client.clone().prop_map(Step::Attach),
        6 => (client.clone(), 0..200_u32).prop_map(|(client, slots)| Step::Grow(client, slots)),
        6 => client.clone().prop_map(Step::MakeNtHandle),
        5 => any::<usize>().prop_map(Step::CloseNtHandle),
        6 => (client.clone(), address(), 1..8_u32).prop_map(|(client, address, pages)| Step::AttachBacking(client, address, pages)),
        3 => (client.clone(), any::<u64>()).prop_map(|(client, pick)| Step::ShareBacking(client, pick)),
        3 => any::<usize>().prop_map(Step::Release),
        5 => (client.clone(), address()).prop_map(|(client, address)| Step::DetachBacking(client, address)),
        6 => (client.clone(), 0..6_u64).prop_map(|(client, event)| Step::RegisterEvent(client, event)),
        4 => (client.clone(), 0..6_u64).prop_map(|(client, event)| Step::UnregisterEvent(client, event)),
        2 => client.clone().prop_map(Step::Settle),
        6 => (client.clone(), 0..8_u32).prop_map(|(client, process)| Step::Resume(client, process)),
        4 => (client.clone(), 1..200_u32).prop_map(|(client, slots)| Step::Regain(client, slots)),
        4 => (client.clone(), address(), 1..8_u32).prop_map(|(client, address, pages)| Step::ReattachBacking(client, address, pages)),
        1 => client.clone().prop_map(Step::Garbage),
        4 => client.prop_map(Step::Gone),
        2 => (0..8_u32).prop_map(Step::Ended),
        1 => (0..40_u64).prop_map(Step::WrongAnswer),
        1 => any::<bool>().prop_map(Step::LinkLost),
        6 => (0..3000_u64).prop_map(Step::Time),
    ]
}

struct World {
    broker: Broker<Counting>,
    live_pages: LivePages,
    host: Host,
    now: Duration,
    arrived: u64,
    link: bool,
    /// The broker is closing the link and sends nothing more on it.
    finishing: bool,
    /// NT handles that a process has open.
    held: Vec<ShareToken>,
    /// Event channels that are open here.
    open: BTreeSet<(u32, u64)>,
}

impl World {
    fn new() -> Self {
        let live_pages = LivePages::default();
        let machine = Counting { live_pages: live_pages.clone(), last: 0 };
        let config = Config { kernel: String::new(), unpin_time: None, events_max: 4 };
        let broker = Broker::new(config, machine);
        Self {
            broker,
            live_pages,
            host: Host::default(),
            now: Duration::ZERO,
            arrived: 0,
            link: false,
            finishing: false,
            held: Vec::new(),
            open: BTreeSet::new(),
        }
    }

    /// The client that is `back` arrivals ago.
    fn client(&self, back: u64) -> ClientId {
        ClientId(self.arrived.saturating_sub(back))
    }

    fn packet(&mut self, client: ClientId, body: broker_request::Body) {
        // The driver does not listen to a busy client.
        if self.broker.listens_to(client) {
            self.feed(Input::Packet { client, bytes: BrokerRequest { body: Some(body) }.encode_to_vec() });
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each effect")]
    fn feed(&mut self, input: Input) {
        if let Input::LinkLost { .. } = input {
            self.link = false;
            self.host.forget();
        }
        let mut failures = Vec::new();
        for effect in self.broker.handle(self.now, input) {
            match effect {
                Effect::OpenLink => (self.link, self.finishing) = (true, false),
                Effect::FinishLink => self.finishing = true,
                Effect::DropLink => {
                    self.link = false;
                    self.host.forget();
                }
                Effect::ToHost(message) => {
                    assert!(self.link, "nothing is sent without a link");
                    match &message.body {
                        Some(guestd_to_host::Body::AddMemory(add)) => {
                            self.host.pages.entry(add.process).or_default().insert(add.pages[0]);
                        }
                        Some(guestd_to_host::Body::AttachBacking(attach_backing)) => {
                            let other = self.host.backing.insert(
                                (attach_backing.process, attach_backing.address),
                                attach_backing.pages[0],
                            );
                            let is_other = other.is_some_and(|other| other != attach_backing.pages[0]);
                            assert!(!is_other, "two regions at one address");
                        }
                        Some(guestd_to_host::Body::NtHandleHeld(token)) => {
                            let held = token[..].try_into().unwrap();
                            assert!(self.host.nt_handles.insert(held), "NT handle {} twice", token[0]);
                        }
                        _ => {}
                    }
                    self.host.requests.push(message);
                }
                // The machine has no room for each eleventh.
                Effect::GiveNtHandle { client, token, .. } if token.0[0].is_multiple_of(11) => {
                    failures.push(Input::NtHandleNotMade { client, token, why: String::new() });
                }
                Effect::GiveNtHandle { token, .. } => self.held.push(token),
                // A descriptor that is no eventfd gets no event channel.
                Effect::OpenEventChannel { client, process, event, token } if token[0] == 1 => {
                    failures.push(Input::EventChannelNotOpened {
                        client,
                        process,
                        event,
                        why: String::new(),
                    });
                }
                Effect::OpenEventChannel { process, event, .. } => {
                    assert!(self.open.insert((process, event)), "two event channels of one event");
                }
                Effect::CloseEventChannel { process, event } => assert!(self.open.remove(&(process, event))),
                Effect::CloseEventChannels { process } => self.open.retain(|(of, _)| *of != process),
                Effect::Settle { process, event_channels, .. } => {
                    for (event, _) in event_channels {
                        assert!(self.open.contains(&(process, event)), "the event channel is not open");
                    }
                }
                Effect::RaiseSyncFile { .. }
                | Effect::Reply { .. }
                | Effect::Close { .. }
                | Effect::HangUp { .. }
                | Effect::Say(_) => {}
            }
        }
        // The pages that the host may store into still exist.
        let live_pages = self.live_pages.borrow();
        for page in self
            .host
            .pages
            .values()
            .flatten()
            .chain(self.host.backing.values())
            .chain(self.host.kept.values())
        {
            assert!(live_pages.contains(page), "page {page} was given back too early");
        }
        drop(live_pages);
        failures.into_iter().for_each(|input| self.feed(input));
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each step")]
    fn step(&mut self, step: Step) {
        match step {
            Step::Answer { pick, refuse } => {
                if let Some(answer) = self.host.answer(pick, refuse) {
                    self.feed(Input::FromHost(answer));
                }
            }
            Step::Arrive => {
                self.arrived += 1;
                let peer = Peer { pid: 1, user: Uid(self.arrived as u32 % 3) };
                self.feed(Input::ClientArrived { client: ClientId(self.arrived), peer });
            }
            Step::Attach(back) => {
                let attach = broker_request::Attach {
                    version: proto::PROTOCOL_VERSION,
                    name: String::new(),
                    rings: true,
                    ..broker_request::Attach::default()
                };
                self.packet(self.client(back), broker_request::Body::Attach(attach));
            }
            Step::Grow(back, slots) => {
                self.packet(self.client(back), broker_request::Body::Grow(broker_request::Grow { slots }));
            }
            Step::MakeNtHandle(back) => {
                let body = match back % 3 {
                    0 => broker_request::Body::MakeSyncFile(true),
                    _ => broker_request::Body::MakeNtHandle(true),
                };
                self.packet(self.client(back), body);
            }
            Step::AttachBacking(back, address, pages) => {
                let attach_backing = broker_request::AttachBacking { address, pages };
                self.packet(self.client(back), broker_request::Body::AttachBacking(attach_backing));
            }
            Step::DetachBacking(back, address) => {
                let body = match address.is_multiple_of(0x2000) {
                    true => broker_request::Body::DetachBacking(address),
                    false => broker_request::Body::ReleaseBacking(address),
                };
                self.packet(self.client(back), body);
            }
            Step::ShareBacking(back, offset) => {
                let share = broker_request::ShareBacking { allocation: 1, offset };
                self.packet(self.client(back), broker_request::Body::ShareBacking(share));
            }
            Step::Release(pick) => {
                let kept: Vec<_> = self.host.kept.keys().copied().collect();
                if let Some((process, address)) = kept.get(pick % kept.len().max(1)).filter(|_| self.link) {
                    self.host.kept.remove(&(*process, *address));
                    let released = DetachBacking { process: *process, address: *address };
                    let body = Some(host_to_guestd::Body::BackingReleased(released));
                    self.feed(Input::FromHost(HostToGuestd { request: 0, refused: String::new(), body }));
                }
            }
            Step::RegisterEvent(back, event) => {
                self.packet(self.client(back), broker_request::Body::RegisterEvent(event));
            }
            Step::UnregisterEvent(back, event) => {
                self.packet(self.client(back), broker_request::Body::UnregisterEvent(event));
            }
            Step::Resume(back, process) => {
                let process = self.host.next_process.saturating_sub(process);
                let (version, token) = (proto::PROTOCOL_VERSION, vec![1]);
                let resume =
                    broker_request::Resume { version, process, token, ..broker_request::Resume::default() };
                self.packet(self.client(back), broker_request::Body::Resume(resume));
            }
            Step::Regain(back, slots) => {
                let regain = broker_request::Regain { first_slot: 0, slots };
                self.packet(self.client(back), broker_request::Body::Regain(regain));
            }
            Step::ReattachBacking(back, address, pages) => {
                let attach_backing = broker_request::AttachBacking { address, pages };
                self.packet(self.client(back), broker_request::Body::ReattachBacking(attach_backing));
            }
            Step::Settle(back) => self.packet(self.client(back), broker_request::Body::Settle(true)),
            Step::CloseNtHandle(pick) => {
                if !self.held.is_empty() {
                    let token = self.held.remove(pick % self.held.len());
                    self.feed(Input::NtHandleClosed { token });
                }
            }
            Step::Garbage(back) => self.feed(Input::Packet { client: self.client(back), bytes: vec![0xff] }),
            Step::Gone(back) => self.feed(Input::ClientGone { client: self.client(back) }),
            Step::Ended(back) => {
                let body = Some(host_to_guestd::Body::Ended(self.host.next_process.saturating_sub(back)));
                self.feed(Input::FromHost(HostToGuestd { request: 0, refused: String::new(), body }));
            }
            Step::WrongAnswer(request) if self.link => {
                let body = Some(host_to_guestd::Body::Detached(false));
                self.host.requests.retain(|message| message.request != request);
                self.feed(Input::FromHost(HostToGuestd { request, refused: String::new(), body }));
            }
            Step::LinkLost(goes_on) if self.link => {
                self.feed(Input::LinkLost { why: "lost".to_owned() });
                self.host.is_new = !goes_on;
            }
            Step::WrongAnswer(_) | Step::LinkLost(_) => {}
            Step::Time(milliseconds) => {
                self.now += Duration::from_millis(milliseconds);
                let link_before = self.link;
                if self.broker.next_deadline().is_some_and(|deadline| deadline <= self.now) {
                    self.feed(Input::Deadline);
                }
                if self.link && !link_before {
                    self.feed(Input::LinkOpened);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_region_is_given_back_while_the_host_may_store_into_it(steps in prop::collection::vec(step(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        // All clients disconnect, and a host that answers frees everything.
        for client in 0..=world.arrived {
            world.feed(Input::ClientGone { client: ClientId(client) });
        }
        for token in std::mem::take(&mut world.held) {
            world.feed(Input::NtHandleClosed { token });
        }
        while let Some(answer) = world.host.answer(0, false) {
            world.feed(Input::FromHost(answer));
        }
        if world.link {
            prop_assert!(world.finishing || world.host.nt_handles.is_empty(), "a close was not reported to the host");
            world.feed(Input::LinkLost { why: "end".to_owned() });
        }
        while !world.broker.freed.is_empty() {
            world.broker.free_some();
        }
        prop_assert!(world.broker.kept.is_empty(), "pages are kept for a host that is gone");
        prop_assert!(world.live_pages.borrow().is_empty());
        prop_assert!(world.open.is_empty(), "event_channels without a process");
        prop_assert_eq!(world.broker.process_count(), 0);
        let Quotas { connections, processes, pages, regions, nt_handles, sync_files, event_channels } = &world.broker.quotas;
        for quota in [connections, processes, pages, regions, nt_handles, sync_files, event_channels] {
            prop_assert!(quota.held().is_empty(), "{:?}", quota);
        }
    }
}

/// The host handles requests in order, in whatever order it answers them.
#[test]
fn a_handle_is_closed_while_it_is_reported_to_a_restarted_host() {
    let answer = |pick| Step::Answer { pick, refuse: false };
    let mut world = World::new();
    let attached = [Step::Arrive, Step::Attach(0), Step::Time(0), answer(0), answer(0), answer(0)];
    let made = [answer(0), Step::MakeNtHandle(0), answer(0)];
    let resumed = [Step::LinkLost(true), Step::Time(50), answer(0)];
    attached.into_iter().chain(made).chain(resumed).for_each(|step| world.step(step));
    let is_held =
        |message: &GuestdToHost| matches!(message.body, Some(guestd_to_host::Body::NtHandleHeld(_)));
    assert!(world.host.requests.iter().any(is_held), "{:?}", world.host.requests);
    world.step(Step::CloseNtHandle(0));
    let last = world.host.requests.len() - 1;
    world.step(answer(last));
    while !world.host.requests.is_empty() {
        world.step(answer(0));
    }
    assert!(world.host.nt_handles.is_empty(), "a close was not reported to the host");
}
