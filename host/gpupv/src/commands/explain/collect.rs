//! Collects what the driver reported of command buffers: each submission with its packets, their times, the messages of
//! the debug layer and the races. All of it comes from the driver that ran them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use d3dkmt::isa::{CommandBuffer, Packet, decode};
use drivers::Registry;
use dxgkrnl::Nanos;
use dxgkrnl::ddi::BoxedMiniport;
use kmd::SimulatedMiniport;
use kmd::engine_tracer::{Agent, Begun, CommandId, Ending, EngineEvent, Message, Report};

/// One command buffer that an engine began.
pub struct Submission {
    pub begun: Begun,
    pub packets: Vec<Shown>,
    pub ending: Option<(Nanos, Ending)>,
    pub races: Vec<Race>,
}

/// A packet, with the times at which it ran.
pub struct Shown {
    pub packet: Packet,
    /// List within the submission, and command within the list: messages count in the same way.
    pub list: u32,
    pub command: u32,
    pub start: Option<Nanos>,
    pub end: Option<Nanos>,
}

/// A race that a command of the submission is part of.
pub struct Race {
    /// The packet that the race is shown at.
    pub packet: u32,
    pub name: String,
    pub report: Report,
}

/// Events of engine tracers, each with the number of its tracer. Each driver has one tracer.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<LogState>>);

#[derive(Default)]
struct LogState {
    tracers: u32,
    events: Vec<(u32, EngineEvent)>,
    /// Events of the steps before the last one.
    before: usize,
}

/// Name under which the traced driver is registered.
pub const WITNESSED: &str = "simulated, traced";

impl Log {
    /// Returns a simulated driver that records its engine events in this log.
    pub fn driver(&self) -> BoxedMiniport {
        let number = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.tracers += 1;
            state.tracers
        };
        let log = self.clone();
        Box::new(SimulatedMiniport::traced(Box::new(move |event| {
            log.0.lock().unwrap_or_else(PoisonError::into_inner).events.push((number, event));
        })))
    }

    /// Ends a step: gives its time to what the driver reported without one.
    pub fn step_ended(&self, now: Nanos) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut state.before);
        for (_, event) in &mut state.events[before..] {
            if let EngineEvent::Over { at: at @ None, .. } = event {
                *at = Some(now);
            }
        }
        state.before = state.events.len();
    }

    /// Returns these drivers with the traced driver added.
    pub fn registry(&self, drivers: &Registry) -> Registry {
        let log = self.clone();
        drivers.clone().with(WITNESSED, move || log.driver())
    }

    /// Returns all recorded events by submission, in the order in which the submissions began.
    pub fn submissions(&self) -> Vec<Submission> {
        let events = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).events);
        let mut all: Vec<(u32, Submission)> = Vec::new();
        let mut at: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        for (tracer, event) in events {
            let index_of = |number: u64| at.get(&(tracer, number)).copied();
            match event {
                EngineEvent::Begun(begun) => {
                    at.insert((tracer, begun.number), all.len());
                    all.push((tracer, Submission::new(*begun)));
                }
                EngineEvent::Started { number, packet, at: start } => {
                    if let Some(shown) =
                        index_of(number).and_then(|at| all[at].1.packets.get_mut(packet as usize))
                    {
                        shown.start.get_or_insert(start);
                    }
                }
                EngineEvent::Ended { number, packet, at: end } => {
                    if let Some(shown) =
                        index_of(number).and_then(|at| all[at].1.packets.get_mut(packet as usize))
                    {
                        shown.end = Some(shown.end.map_or(end, |before| before.max(end)));
                    }
                }
                EngineEvent::Over { number, at: end, ending } => {
                    if let Some(at) = index_of(number) {
                        let end = end.unwrap_or(all[at].1.end());
                        all[at].1.ending = Some((end, ending));
                    }
                }
                EngineEvent::Messages { number, messages } => {
                    if let Some(at) = index_of(number) {
                        all[at].1.begun.messages.extend(messages);
                    }
                }
                EngineEvent::Race { name, report, .. } => add_race(&mut all, tracer, &name, &report),
            }
        }
        all.into_iter().map(|(_, submission)| submission).collect()
    }
}

/// Adds a race at its later command, and at its earlier command if that is of another submission.
fn add_race(all: &mut [(u32, Submission)], tracer: u32, name: &str, report: &Report) {
    let mut last = None;
    for accessed in [&report.later, &report.earlier] {
        let CommandId { submission: of_queue, packet } = accessed.command;
        let Agent::Queue(queue) = accessed.agent else { continue };
        let is_it = |(of, one): &(u32, Submission)| {
            *of == tracer && (one.begun.queue, one.begun.of_queue) == (queue, of_queue)
        };
        let Some(at) = all.iter().rposition(is_it).filter(|at| last != Some(*at)) else { continue };
        last = Some(at);
        all[at].1.races.push(Race { packet, name: name.into(), report: report.clone() });
    }
}

impl Submission {
    fn new(begun: Begun) -> Submission {
        let packets = match decode(&begun.commands) {
            Ok(CommandBuffer::Packets(packets)) => packets,
            Ok(CommandBuffer::Opaque(_)) | Err(_) => Vec::new(),
        };
        // Packets before the first BeginList form list 0.
        let (mut list, mut command, mut is_first) = (0, 0, true);
        let shown = |packet: Packet| {
            let is_list = matches!(packet, Packet::BeginList { .. });
            if is_list {
                (list, command) = (list + u32::from(!is_first), 0);
            }
            is_first = false;
            let shown = Shown { packet, list, command, start: None, end: None };
            command += u32::from(!is_list);
            shown
        };
        let packets = packets.into_iter().map(shown).collect();
        Submission { begun, packets, ending: None, races: Vec::new() }
    }

    /// Whether it has commands or barriers, not only stores and waits.
    pub fn has_lists(&self) -> bool {
        self.packets.iter().any(|shown| {
            matches!(
                shown.packet,
                Packet::Work { .. }
                    | Packet::Barrier { .. }
                    | Packet::LegacyBarrier { .. }
                    | Packet::SignalBarrier { .. }
                    | Packet::WaitBarrier { .. }
            )
        })
    }

    /// Time of the last event of the submission.
    pub fn end(&self) -> Nanos {
        let packets = self.packets.iter().flat_map(|shown| shown.start.into_iter().chain(shown.end));
        // A packet that never completes has `Nanos::MAX` as its end.
        let ends = packets.chain(self.ending.map(|(at, _)| at)).filter(|at| *at != Nanos::MAX);
        ends.max().unwrap_or(self.begun.at).max(self.begun.at)
    }

    /// Returns the name of a resource, or its number if it has none.
    pub fn resource(&self, number: u32) -> String {
        let known = self.begun.resources.iter().find(|(known, _)| *known == number);
        let name = known.map(|(_, desc)| desc.name.as_ref()).filter(|name| !name.is_empty());
        name.map_or_else(|| number.to_string(), one_word)
    }

    /// Returns the name of the range that two commands race on. If it has none: the resource at the packet where the
    /// race is shown.
    pub fn raced_on(&self, race: &Race) -> String {
        if !race.name.is_empty() {
            return one_word(&race.name);
        }
        let accessed = [&race.report.later, &race.report.earlier];
        let accessed = accessed.into_iter().find(|accessed| accessed.command.packet == race.packet);
        let used = match self.packets.get(race.packet as usize).map(|shown| &shown.packet) {
            Some(Packet::Work { uses, .. }) => {
                uses.iter().find(|one| accessed.is_some_and(|accessed| accessed.access == one.access))
            }
            _ => None,
        };
        used.map(|one| self.resource(one.resource)).unwrap_or_default()
    }

    /// Returns the debug layer's messages about a packet.
    pub fn messages(&self, shown: &Shown) -> impl Iterator<Item = &Message> {
        let place = (shown.list, shown.command);
        self.begun.messages.iter().filter(move |message| (message.place.list, message.place.command) == place)
    }
}

/// Returns the name as one word of a line, quoted if it has other characters than a word.
pub fn one_word(name: &str) -> String {
    let is_word = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '.'));
    if is_word { name.into() } else { format!("{name:?}") }
}
