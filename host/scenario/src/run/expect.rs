//! `expect`: compares an expectation with the actual state.

use d3dkmt::Handle;
use d3dkmt::list_escape::DebugMessage;
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::EngineState;
use dxgkrnl::snapshot::EngineReport;
use dxgkrnl::why::{Cause, Missing};

use crate::program::{Binding, Engine, EngineIs, EventCount, Expectation, Kind, Process, WantedMessage};
use crate::script;
use crate::script::words::{write_number, write_status};
use crate::world::World;

use super::{Bound, Checked, Run, failed};

impl<W: World> Run<'_, W> {
    pub(super) fn expect(&mut self, expectation: &Expectation) -> Checked {
        match expectation {
            Expectation::Value { object, value } => self.expect_value(*object, *value),
            Expectation::Blocked { call } => self.expect_blocked(*call),
            Expectation::Returned { call, status } => {
                let found = self.bound[call.index()].answer;
                let expected =
                    format!("that {} returned {}", self.program.name(*call), write_status(*status));
                let shown = found.map_or_else(|| "it has not returned".into(), write_status);
                holds(found == Some(*status), &expected, shown)
            }
            Expectation::Event { event, count } => {
                let found = self.world.take_event(self.program.owner(*event), event.0)?;
                let is_so = match *count {
                    EventCount::Clear => found == 0,
                    EventCount::Set => found > 0,
                    EventCount::Times(times) => found == times,
                };
                let expected = format!("that {} is {}", self.program.name(*event), expected_count(*count));
                holds(is_so, &expected, format!("set {found} times"))
            }
            Expectation::Data { call, data } => {
                let found = self.bound[call.index()].data.as_deref();
                let is_so = found.is_some_and(|found| self.are(found, data));
                let expected = script::write_data(self.program, data);
                holds(is_so, &expected, found.map_or_else(|| "it returned none".into(), shown_bytes))
            }
            Expectation::Doorbell { doorbell, status } => self.expect_doorbell(*doorbell, *status),
            Expectation::DeviceState { device, state } => self.expect_device_state(*device, *state),
            Expectation::Engine { engine, is } => self.expect_engine(*engine, *is),
            Expectation::Words { .. }
            | Expectation::Message(_)
            | Expectation::NoMessage { .. }
            | Expectation::Race { .. }
            | Expectation::NoRace => self.expect_of_lists(expectation),
            Expectation::Report { text } => {
                let found = self.take_notes();
                let is_there = found.iter().any(|note| note.contains(text));
                holds(is_there, &format!("a report with {text:?}"), format!("{found:?}"))
            }
            Expectation::NoReport => {
                let found = self.take_notes();
                holds(found.is_empty(), "no report", format!("{found:?}"))
            }
            Expectation::Messages { process, count } => self.expect_messages(*process, *count),
            Expectation::Wakes { process, count } => {
                let total = self.world.wakes(*process);
                let before = std::mem::replace(&mut self.wakes[process.index()], total);
                // A new daemon starts its counters at 0.
                let found = total.checked_sub(before).unwrap_or(total);
                same("wakes", *count, found)
            }
            Expectation::Waits { count } => {
                let found = self.world.snapshot().waits.iter().filter(|wait| wait.event.is_some()).count();
                same("pending CPU waits", *count, found as u64)
            }
            Expectation::Why { process, verdict, root } => self.expect_why(*process, verdict, *root),
            Expectation::NothingLeft { process } => {
                let of = process.map(|process| self.world.process_number(process));
                let remains = remains(&self.world.snapshot(), of);
                holds(remains.is_empty(), "that nothing is left", remains.join("; "))
            }
        }
    }

    fn expect_blocked(&self, call: Binding) -> Checked {
        let name = self.program.name(call);
        match self.bound[call.index()].answer {
            None if self.is_under_way(call) => Ok(()),
            None => failed(format!("expected that {name} is blocked, found: no thread is in this call")),
            Some(status) => {
                let status = write_status(status);
                failed(format!("expected that {name} is blocked, found: it has returned {status}"))
            }
        }
    }

    fn expect_messages(&mut self, process: Process, count: u64) -> Checked {
        let total = match self.world.messages(process)? {
            Ok(total) => total,
            Err(why) => {
                self.unchecked.push((self.line, why));
                return Ok(());
            }
        };
        let found = total - std::mem::replace(&mut self.messages[process.index()], total);
        same("messages", count, found)
    }

    /// Checks expectations about memory, the debug layer and races.
    fn expect_of_lists(&mut self, expectation: &Expectation) -> Checked {
        match expectation {
            Expectation::Words { allocation, first, count, word } => {
                self.expect_words(*allocation, (*first, *count), *word)
            }
            Expectation::Message(expected) => self.expect_message(expected),
            Expectation::NoMessage { messages } => {
                let Bound { answer, messages: found, .. } = &self.bound[messages.index()];
                if let Some(status) = answer.filter(|status| !status.is_success()) {
                    let status = write_status(status);
                    return failed(format!("expected no message, found: `debug_messages` answered {status}"));
                }
                let texts: Vec<&str> = found.iter().map(|message| message.text.as_str()).collect();
                holds(found.is_empty(), "no message", format!("{texts:?}"))
            }
            Expectation::Race { texts } => {
                let found = self.take_races();
                let has_all = |race: &String| texts.iter().all(|text| race.contains(text));
                let expected = format!("a race with {texts:?}");
                holds(found.iter().any(has_all), &expected, format!("{found:?}"))
            }
            Expectation::NoRace => {
                if let Some(blind) = self.adapter_without_hazards() {
                    return failed(format!(
                        "expected no race, found: adapter {blind} does not look for races: add `config adapter {blind} \
                         hazards`"
                    ));
                }
                let found = self.take_races();
                holds(found.is_empty(), "no race", format!("{found:?}"))
            }
            _ => unreachable!("no expectation about lists"),
        }
    }

    /// Returns an adapter that looks for no races: one with resources of the program, or the first if none looks.
    fn adapter_without_hazards(&self) -> Option<u32> {
        let adapters = &self.program.setting.kernel.adapters;
        let looks = |number: u32| adapters.get(number as usize).is_some_and(|adapter| adapter.hazards);
        let none_looks = !adapters.iter().any(|adapter| adapter.hazards);
        let mut used = self.program.adapters_with_resources().into_iter();
        used.find(|number| !looks(*number)).or(none_looks.then_some(0))
    }

    /// Returns the notes since the last check.
    fn take_notes(&mut self) -> Vec<String> {
        self.collect_notes();
        std::mem::take(&mut self.notes).into_iter().map(|note| note.text).collect()
    }

    fn take_races(&mut self) -> Vec<String> {
        self.collect_notes();
        std::mem::take(&mut self.races)
    }

    fn expect_words(&mut self, allocation: Binding, range: (u64, Option<u64>), word: u32) -> Checked {
        let (process, handle) = (self.program.owner(allocation), self.bound[allocation.index()].handle);
        let name = self.program.name(allocation);
        match self.world.find_other(process, handle, range, word)? {
            Ok(None) => Ok(()),
            Ok(Some((at, found))) => failed(format!(
                "expected words of {word} in {name}, found: word {at} is {found} ({found:#x})"
            )),
            Err(status) => {
                let status = script::words::write_status(status);
                failed(format!("expected words in {name}, found: its memory cannot be read: {status}"))
            }
        }
    }

    fn expect_message(&mut self, expected: &WantedMessage) -> Checked {
        let resource = expected.resource.map(|of| self.bound[of.index()].number.unwrap_or_default() as u32);
        let fits = |expected: Option<u32>, found: u32| expected.is_none_or(|expected| expected == found);
        let is_it = |message: &&DebugMessage| {
            message.rule == expected.rule
                && fits(expected.list, message.list)
                && fits(expected.command, message.command)
                && expected.barrier.is_none_or(|barrier| message.barrier == Some(barrier))
                && fits(resource, message.resource)
                && expected.text.as_ref().is_none_or(|text| message.text.contains(text))
        };
        let found = &self.bound[expected.messages.index()].messages;
        let shown = |message: &DebugMessage| {
            let DebugMessage { rule, list, command, barrier, text, .. } = message;
            let barrier = barrier.map(|barrier| format!(" barrier={barrier}")).unwrap_or_default();
            format!("R-{rule:03} list={list} command={command}{barrier} {text:?}")
        };
        let shown: Vec<String> = found.iter().map(shown).collect();
        let words = script::write_wanted_message(self.program, expected);
        holds(found.iter().any(|message| is_it(&message)), &words, format!("[{}]", shown.join("; ")))
    }

    fn expect_device_state(&mut self, device: Binding, state: u32) -> Checked {
        let handle = self.bound[device.index()].handle;
        let process = self.world.process_number(self.program.owner(device));
        let devices = self.world.snapshot().devices;
        let found = devices.iter().find(|known| (known.process, known.handle) == (process, handle));
        match found.map(|found| found.state) {
            Some(found) => {
                holds(found == state, &format!("device state {}", state_name(state)), state_name(found))
            }
            None => failed("expected a device, found: no device has that handle"),
        }
    }

    fn expect_why(&mut self, process: Process, verdict: &str, root: Option<(Binding, u64)>) -> Checked {
        let why = self.world.why(process);
        let handle = root.map(|(object, value)| {
            let owner = ProcessId(self.world.process_number(self.program.owner(object)));
            ((owner, self.bound[object.index()].handle), value)
        });
        let comes_down_to = |cause: &Cause, (handle, value): ((ProcessId, Handle), u64)| {
            let is_it = |one: &Missing| one.object.handles.contains(&handle) && one.needed == value;
            // A cycle has no single root: each of its waits is one.
            let mut waiters = cause.waiters.iter().filter(|_| verdict == "cycle");
            cause.root.as_ref().is_some_and(is_it) || waiters.any(|waiter| waiter.missing.iter().any(is_it))
        };
        let is_so = why.causes.iter().any(|cause| {
            cause.verdict.name() == verdict && handle.is_none_or(|handle| comes_down_to(cause, handle))
        });
        let name = &self.program.processes[process.index()].name;
        let object = root.map_or_else(String::new, |(object, value)| {
            format!(", for {} to reach {}", self.program.name(object), write_number(value))
        });
        holds(is_so, &format!("that what {name} waits for is {verdict}{object}"), format!("\n{why}"))
    }

    fn expect_engine(&mut self, engine: Engine, is: EngineIs) -> Checked {
        let engines = self.world.snapshot().engines;
        let of_engine =
            |report: &&EngineReport| (report.adapter, report.node) == (engine.adapter, engine.node);
        let found = match engines.iter().find(of_engine).map(|report| &report.state) {
            Some(EngineState::Idle) => EngineIs::Idle,
            Some(EngineState::Running { .. }) => EngineIs::Running,
            Some(EngineState::Hung { .. }) => EngineIs::Hung,
            None => return failed("there is no such engine"),
        };
        holds(found == is, &format!("that the engine is {is:?}"), format!("{found:?}"))
    }

    fn expect_doorbell(&mut self, doorbell: Binding, status: u32) -> Checked {
        let Some(slot) = self.bound[doorbell.index()].status_slot else {
            return failed("expected a doorbell, found: the call gave none");
        };
        let found = self.world.slot(self.program.owner(doorbell), slot)?;
        let name = |status: u64| match u32::try_from(status) {
            Ok(status) => script::words::named_or_number(&script::words::DOORBELL_STATUSES, status),
            Err(_) => status.to_string(),
        };
        let shown = found.map_or_else(|| "it has no status".into(), name);
        holds(found == Some(status.into()), &format!("doorbell status {}", name(status.into())), shown)
    }

    fn expect_value(&mut self, binding: Binding, value: u64) -> Checked {
        let name = self.program.name(binding);
        let found = match self.program.bindings[binding.index()].kind {
            Kind::Register => self.bound[binding.index()].value,
            Kind::Call | Kind::Address => self.bound[binding.index()].number,
            _ => self.world.value(self.program.owner(binding), self.bound[binding.index()].handle)?,
        };
        match found {
            Some(found) if found == value => Ok(()),
            Some(found) => {
                failed(format!("expected {name} = {}, found: {}", write_number(value), write_number(found)))
            }
            None => {
                failed(format!("expected {name} = {}, found: it has no value in memory", write_number(value)))
            }
        }
    }
}

/// Succeeds if the expectation holds; otherwise fails with the actual state.
fn holds(is_so: bool, expected: &str, found: String) -> Checked {
    if is_so { Ok(()) } else { failed(format!("expected {expected}, found: {found}")) }
}

fn same(what: &str, expected: u64, found: u64) -> Checked {
    if expected == found { Ok(()) } else { failed(format!("expected {expected} {what}, found: {found}")) }
}

fn expected_count(count: EventCount) -> String {
    match count {
        EventCount::Clear => "clear".into(),
        EventCount::Set => "set".into(),
        EventCount::Times(times) => format!("set {times} times"),
    }
}

/// Formats bytes as text if they are text, otherwise as numbers.
fn shown_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => {
            let word = |word: &[u8]| word.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("data, in words of 32 bits: {}", bytes.chunks(4).map(word).collect::<Vec<_>>().join(" "))
        }
    }
}

fn state_name(state: u32) -> String {
    let named = script::words::DEVICE_STATES.into_iter().find(|(_, number)| *number == state);
    named.map_or_else(|| state.to_string(), |(name, _)| name.into())
}

/// Lists what the kernel still has, of one process or of all.
pub(super) fn remains(snapshot: &dxgkrnl::Snapshot, of: Option<u32>) -> Vec<String> {
    let counts = |what: &str, all: Vec<u32>| {
        let count = all.into_iter().filter(|process| of.is_none_or(|of| of == *process)).count();
        if count == 0 { None } else { Some(format!("{count} {what}")) }
    };
    let mut remains: Vec<String> = [
        counts("processes", snapshot.processes.iter().map(|process| process.process).collect()),
        counts("devices", snapshot.devices.iter().map(|device| device.process).collect()),
        counts("contexts", snapshot.contexts.iter().map(|context| context.process).collect()),
        counts("synchronization objects", snapshot.objects.iter().map(|object| object.process).collect()),
        counts("waits", snapshot.waits.iter().map(|wait| wait.process).collect()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if of.is_none() && remains.is_empty() && !snapshot.is_empty() {
        remains
            .push(format!("{} objects without an open, {} shares", snapshot.objects_alive, snapshot.shares));
    }
    remains
}
