//! Differences between two traces, by cause and not by time.
//!
//! Processes are matched by VM name and process name, among equal names by their calls: the pair that agrees for the most
//! calls comes first. Calls are matched by their position in the process.
//! So two runs of one program are equal however the calls of their processes interleave: handles that are numbers of the
//! whole daemon are compared by the process that made them. The first difference is
//! reported first: a process made a different call, or got a different answer. Consequences follow: ends of processes, faults and resets,
//! waits that ended with another status, wake-ups of one trace only, different numbers of calls, waits that took longer.

mod text;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;

use d3dkmt::names::{Numbers, Visit};
use d3dkmt::random::Fnv;
use d3dkmt::text::printable;
use d3dkmt::{Call, CreateAllocation, EventId, Handle, NtStatus, Reply, ShareToken};
use dxgkrnl::{Answer, HostEvent, Input, Nanos, ProcessId, VmId};
use trace::{Reader, TraceError};

use crate::build::{Next, Step, next_step};

/// Differences of one kind that are listed.
const LISTED_MAX: usize = 20;

/// Processes of one name that are paired by their calls, at most; more are paired in the order in which they attached.
const NAMESAKES_MAX: usize = 64;

/// Different faults, resets and the like that are compared, at most.
const DISRUPTIONS_MAX: usize = 4096;

/// A call as hashes, which show whether two calls differ.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CallSummary {
    sequence: u64,
    call_hash: u64,
    /// The same without the processes that made what the call names.
    nameless_hash: u64,
    answer_hash: u64,
}

/// A wait: when it was registered, and when it was woken with which status.
#[derive(Clone, Copy)]
struct WaitSummary {
    begin: Nanos,
    end: Option<(Nanos, NtStatus)>,
    is_cancelled: bool,
}

impl WaitSummary {
    fn is_pending(&self) -> bool {
        self.end.is_none() && !self.is_cancelled
    }
}

/// How a process ended.
#[derive(Clone, Copy)]
struct End {
    /// Its VM was detached.
    with_vm: bool,
    /// Its waits that were pending.
    pending: usize,
}

/// A process of one trace.
#[derive(Default)]
struct ProcessSummary {
    calls: Vec<CallSummary>,
    /// By event: each wait with it.
    waits: BTreeMap<EventId, Vec<WaitSummary>>,
    wakes: u64,
    numbered: Numbered,
    /// The step of its last call.
    last_call: u64,
    end: Option<End>,
}

impl ProcessSummary {
    fn ends(&mut self, with_vm: bool) {
        if self.end.is_none() {
            let pending = self.waits.values().flatten().filter(|wait| wait.is_pending()).count();
            self.end = Some(End { with_vm, pending });
        }
    }
}

/// Numbers that replace values which differ in every run of a program: NT handles are random, and addresses of a process
/// depend on where the system puts its memory.
#[derive(Default)]
struct Numbered {
    /// NT handles that the process has made.
    made: usize,
    /// Global handles that the process has made.
    made_global: usize,
    /// NT handles that no process of the trace has made, in the order of their first appearance in the process.
    unknown: BTreeMap<ShareToken, usize>,
    /// Addresses in the order of their first appearance.
    addresses: BTreeMap<u64, u64>,
}

impl Numbered {
    fn replace_address(&mut self, address: &mut u64) {
        // 0 is no address.
        if *address != 0 {
            let next = self.addresses.len() as u64 + 1;
            *address = *self.addresses.entry(*address).or_insert(next);
        }
    }
}

/// Each NT handle and each global handle of a trace: the process that made it, and the number there.
#[derive(Default)]
struct Made {
    nt: BTreeMap<ShareToken, (String, usize)>,
    global: BTreeMap<Handle, (String, usize)>,
}

/// Visitor that replaces such values in a call.
struct Replacing<'a> {
    process: &'a str,
    numbered: &'a mut Numbered,
    made: &'a mut Made,
    /// The NT handles and the global handles of the call.
    named: Vec<(String, usize)>,
    /// The call opens an object by its global handle.
    opens: bool,
}

impl Replacing<'_> {
    /// The hashes of a call: with the processes that made what it names, and without them.
    fn call_hashes(&mut self, call: &Call) -> (u64, u64) {
        let mut call = call.clone();
        call.visit_names(self);
        let mut hasher = Fnv::default();
        let _ = write!(hasher, "{call:?}");
        let nameless = hasher.finish();
        let _ = write!(hasher, " {:?}", self.named);
        (hasher.finish(), nameless)
    }

    /// The hash of the answer to that call.
    fn answer_hash(&mut self, answer: &Answer) -> u64 {
        let mut reply = answer.reply.clone();
        match &mut reply {
            Reply::Locked { address } => self.numbered.replace_address(address),
            Reply::Allocations { addresses, shared_handle, .. } => {
                addresses.iter_mut().for_each(|address| self.numbered.replace_address(address));
                self.global_handle(shared_handle);
            }
            Reply::SyncObject(created) => self.global_handle(&mut created.shared_handle),
            Reply::KeyedMutex { shared_handle, .. } => self.global_handle(shared_handle),
            _ => {}
        }
        hash(format_args!("{} {reply:?} {:?}", answer.status, self.named))
    }

    /// Replaces the global handle of an object that the call has made or opened.
    fn global_handle(&mut self, handle: &mut Handle) {
        if *handle == Handle::NULL {
            return;
        }
        if !self.opens {
            self.numbered.made_global += 1;
            // The number of an object that has ended may be used again.
            let name = (self.process.to_owned(), self.numbered.made_global);
            self.made.global.insert(*handle, name);
        }
        self.shared_handle(handle);
    }
}

impl Visit<Numbers> for Replacing<'_> {
    fn token(&mut self, token: &mut ShareToken) {
        let name = self.made.nt.get(token).cloned().unwrap_or_else(|| {
            let next = self.numbered.unknown.len() + 1;
            (String::new(), *self.numbered.unknown.entry(*token).or_insert(next))
        });
        self.named.push(name);
        *token = ShareToken([0; 16]);
    }

    fn new_token(&mut self, token: &mut ShareToken) {
        self.numbered.made += 1;
        let name = (self.process.to_owned(), self.numbered.made);
        self.made.nt.insert(*token, name.clone());
        self.named.push(name);
        *token = ShareToken([0; 16]);
    }

    fn shared_handle(&mut self, handle: &mut Handle) {
        // One that no process of the trace has made is a number of the program's own.
        if let Some(name) = self.made.global.get(handle) {
            self.named.push(name.clone());
            (*handle, self.opens) = (Handle::NULL, true);
        }
    }

    fn new_allocation(&mut self, create: &mut Box<CreateAllocation>) {
        for allocation in &mut create.allocations {
            self.numbered.replace_address(&mut allocation.system_memory);
        }
    }
}

/// A call without an answer so far: its process, its position among the process's calls, and the handles that it names.
struct Unanswered {
    process: String,
    at: usize,
    named: Vec<(String, usize)>,
}

/// The compared data of one trace.
#[derive(Default)]
struct Side {
    steps: u64,
    processes: BTreeMap<String, ProcessSummary>,
    /// Number of processes with this name in this VM.
    namesakes: BTreeMap<String, u64>,
    made: Made,
    calls: BTreeMap<String, u64>,
    /// Calls that a later step answers.
    unanswered: BTreeMap<(ProcessId, u64), Unanswered>,
    /// How often each fault was injected, each adapter or engine was reset, stopped or started, and each VM or process was
    /// paused or frozen.
    disruptions: BTreeMap<String, u64>,
    wakes: u64,
    /// The VMs of processes that have not ended.
    vm_of: BTreeMap<ProcessId, VmId>,
    /// The step of the last call of any process.
    last_call: u64,
    stopped: Option<String>,
}

/// The first difference of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    pub process: String,
    /// Index among the process's calls, from 0.
    pub call: usize,
    /// Its steps in the first and the second trace; `None` if there is no such call.
    pub steps: (Option<u64>, Option<u64>),
    /// Whether the calls are equal and only the answers differ.
    pub same_call: bool,
    /// Texts of both.
    pub words: (String, String),
}

/// A wait of both traces that took longer in the second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Longer {
    pub process: String,
    pub event: u64,
    pub nanos: (Nanos, Nanos),
}

/// A process that ended otherwise than in the other trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub process: String,
    /// How, in words.
    pub words: (String, String),
}

/// A wait of both traces that ended with different statuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedOtherwise {
    pub process: String,
    pub event: u64,
    pub statuses: (NtStatus, NtStatus),
}

/// All differences. Pairs are for the first and the second trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Diff {
    pub steps: (u64, u64),
    /// Sorted by step.
    pub divergences: Vec<Divergence>,
    /// Processes in only one of the traces.
    pub only: (Vec<String>, Vec<String>),
    /// Call names with different counts.
    pub calls: Vec<(String, u64, u64)>,
    pub ends: Vec<Ended>,
    /// Faults, resets and stops of adapters, pauses of VMs and freezes of processes with different counts.
    pub disruptions: Vec<(String, u64, u64)>,
    pub wakes: (u64, u64),
    pub ended_otherwise: Vec<EndedOtherwise>,
    /// Waits that were woken in the first trace only: process and event.
    pub missing: Vec<(String, u64)>,
    pub extra: Vec<(String, u64)>,
    /// The greatest difference first.
    pub longer: Vec<Longer>,
    pub left_out: LeftOut,
    /// Why a trace was not read to its end.
    pub stopped: (Option<String>, Option<String>),
}

/// How many differences of each kind are not listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    pub divergences: usize,
    pub ends: usize,
    pub disruptions: usize,
    pub ended_otherwise: usize,
    pub missing: usize,
    pub extra: usize,
    pub longer: usize,
}

/// Cuts a list. Returns how many differences it had beyond that.
fn cut<T>(list: &mut Vec<T>) -> usize {
    let left_out = list.len().saturating_sub(LISTED_MAX);
    list.truncate(LISTED_MAX);
    left_out
}

impl Diff {
    fn cut(&mut self) {
        self.left_out = LeftOut {
            divergences: cut(&mut self.divergences),
            ends: cut(&mut self.ends),
            disruptions: cut(&mut self.disruptions),
            ended_otherwise: cut(&mut self.ended_otherwise),
            missing: cut(&mut self.missing),
            extra: cut(&mut self.extra),
            longer: cut(&mut self.longer),
        };
    }

    /// Whether nothing differs except times.
    pub fn is_same(&self) -> bool {
        let Diff { divergences, only, calls, ends, disruptions, wakes, ended_otherwise, .. } = self;
        let Diff { missing, extra, stopped, .. } = self;
        divergences.is_empty()
            && only.0.is_empty()
            && only.1.is_empty()
            && calls.is_empty()
            && ends.is_empty()
            && disruptions.is_empty()
            && ended_otherwise.is_empty()
            && wakes.0 == wakes.1
            && missing.is_empty()
            && extra.is_empty()
            && *stopped == (None, None)
    }
}

/// Opens a trace.
pub type Open<'a> = dyn Fn() -> Result<Reader, TraceError> + 'a;

/// Compares two traces. Each is opened twice: a second pass gets the texts of the differences. The second is opened once
/// more if its processes of one name have another order than those of the first.
pub fn diff(left: &Open, right: &Open) -> Result<Diff, TraceError> {
    let open = (left, right);
    let as_attached = BTreeMap::new();
    let (left, mut right) = (Side::read((open.0)()?, &as_attached)?, Side::read((open.1)()?, &as_attached)?);
    let renamed = renamed(&left, &right);
    if !renamed.is_empty() {
        right = Side::read((open.1)()?, &renamed)?;
    }
    let mut diff = Diff {
        steps: (left.steps, right.steps),
        wakes: (left.wakes, right.wakes),
        stopped: (left.stopped.clone(), right.stopped.clone()),
        ..Diff::default()
    };
    for (name, summary) in &left.processes {
        match right.processes.get(name) {
            Some(right_summary) => {
                compare(name, summary, right_summary, &mut diff);
                let goes_on = (summary.last_call < left.last_call, right_summary.last_call < right.last_call);
                diff.ends.extend(compare_ends(name, (summary.end, right_summary.end), goes_on));
            }
            None => diff.only.0.push(name.clone()),
        }
    }
    diff.only.1.extend(right.processes.keys().filter(|name| !left.processes.contains_key(*name)).cloned());
    diff.calls = different_counts(&left.calls, &right.calls);
    diff.disruptions = different_counts(&left.disruptions, &right.disruptions);
    // The earliest difference is the likely cause of the others.
    let first = |divergence: &Divergence| divergence.steps.0.or(divergence.steps.1);
    diff.divergences.sort_by_key(first);
    diff.longer.sort_by_key(|divergence| std::cmp::Reverse(divergence.nanos.1 - divergence.nanos.0));
    diff.cut();
    words(
        (open.0)()?,
        &mut diff.divergences,
        |divergence| divergence.steps.0,
        |divergence| &mut divergence.words.0,
    )?;
    words(
        (open.1)()?,
        &mut diff.divergences,
        |divergence| divergence.steps.1,
        |divergence| &mut divergence.words.1,
    )?;
    Ok(diff)
}

/// New names for those processes of the second trace that agree longer with another process of their name in the first.
fn renamed(left: &Side, right: &Side) -> BTreeMap<String, String> {
    let mut renamed = BTreeMap::new();
    for (name, count) in right.namesakes.iter().filter(|(_, count)| **count > 1) {
        let (ours, theirs) = (left.namesakes.get(name).copied().unwrap_or(0), *count);
        if ours.max(theirs) > NAMESAKES_MAX as u64 {
            continue;
        }
        let agree = |one: u64, other: u64| {
            let (one, other) =
                (left.processes.get(&numbered(name, one))?, right.processes.get(&numbered(name, other))?);
            let is_same =
                |(one, other): &(&CallSummary, &CallSummary)| one.nameless_hash == other.nameless_hash;
            Some(one.calls.iter().zip(&other.calls).take_while(is_same).count())
        };
        let pairs = (1..=ours).flat_map(|one| (1..=theirs).map(move |other| (one, other)));
        let mut pairs: Vec<_> = pairs.map(|(one, other)| (agree(one, other), one, other)).collect();
        // Among equal ones, those that attached in the same order.
        pairs.sort_by_key(|(agree, one, other)| (std::cmp::Reverse(*agree), one.abs_diff(*other), *one));
        let mut free: Vec<u64> = (1..=ours.max(theirs)).collect();
        let mut named = BTreeMap::new();
        for (_, one, other) in pairs {
            if free.contains(&one) && !named.contains_key(&other) {
                free.retain(|number| *number != one);
                named.insert(other, one);
            }
        }
        // Those without a partner get the numbers that are left.
        for other in 1..=theirs {
            let number = *named.entry(other).or_insert_with(|| free.remove(0));
            if number != other {
                renamed.insert(numbered(name, other), numbered(name, number));
            }
        }
    }
    renamed
}

/// `red/client#2`.
fn numbered(name: &str, number: u64) -> String {
    format!("{name}#{number}")
}

/// Returns what the two traces have differently often.
fn different_counts(left: &BTreeMap<String, u64>, right: &BTreeMap<String, u64>) -> Vec<(String, u64, u64)> {
    let count = |side: &BTreeMap<String, u64>, name: &str| side.get(name).copied().unwrap_or(0);
    let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
    let counts = names.map(|name| (name.clone(), count(left, name), count(right, name)));
    counts.filter(|(_, left, right)| left != right).collect()
}

fn compare(name: &str, left: &ProcessSummary, right: &ProcessSummary, diff: &mut Diff) {
    let longest = left.calls.len().max(right.calls.len());
    let differs = |at: &usize| {
        let key =
            |process: &ProcessSummary| process.calls.get(*at).map(|call| (call.call_hash, call.answer_hash));
        key(left) != key(right)
    };
    if let Some(call) = (0..longest).find(differs) {
        let (left_call, right_call) = (left.calls.get(call), right.calls.get(call));
        let same_call = left_call.map(|call| call.call_hash) == right_call.map(|call| call.call_hash);
        diff.divergences.push(Divergence {
            process: name.to_owned(),
            call,
            steps: (left_call.map(|call| call.sequence), right_call.map(|call| call.sequence)),
            same_call,
            words: Default::default(),
        });
    }
    compare_waits(name, left, right, diff);
}

/// The difference of how a process ended. An end of one trace only counts if it had a pending wait, or if others made
/// calls after the last one of the process in the other trace (`others_go_on`): a recording may stop before it ends. So a
/// recording that stops before an idle process ends is a difference.
fn compare_ends(name: &str, ends: (Option<End>, Option<End>), others_go_on: (bool, bool)) -> Option<Ended> {
    let differs = match ends {
        (None, None) => false,
        (Some(one), Some(other)) => (one.with_vm, one.pending > 0) != (other.with_vm, other.pending > 0),
        (Some(one), None) => one.pending > 0 || others_go_on.1,
        (None, Some(other)) => other.pending > 0 || others_go_on.0,
    };
    let words = |end: Option<End>| {
        let Some(End { with_vm, pending }) = end else { return "goes on".to_owned() };
        let vm = if with_vm { " with its VM" } else { "" };
        match pending {
            0 => format!("ends{vm}"),
            1 => format!("ends{vm} with a pending wait"),
            _ => format!("ends{vm} with {pending} pending waits"),
        }
    };
    differs.then(|| Ended { process: name.to_owned(), words: (words(ends.0), words(ends.1)) })
}

fn compare_waits(name: &str, left: &ProcessSummary, right: &ProcessSummary, diff: &mut Diff) {
    for (event, waits) in &left.waits {
        let right_waits = right.waits.get(event).map_or(&[][..], Vec::as_slice);
        for (at, wait) in waits.iter().enumerate() {
            let right_wait = right_waits.get(at);
            let right_end = right_wait.and_then(|wait| Some((wait.begin, wait.end?)));
            let (process, event) = (name.to_owned(), event.0);
            match (wait.end, right_end) {
                (Some(_), None) => diff.missing.push((process, event)),
                (None, Some(_)) => diff.extra.push((process, event)),
                (Some((end, status)), Some((right_begin, (right_end, right_status)))) => {
                    let nanos = (end - wait.begin, right_end - right_begin);
                    if status != right_status {
                        let statuses = (status, right_status);
                        diff.ended_otherwise.push(EndedOtherwise { process, event, statuses });
                    } else if nanos.1 > nanos.0 {
                        diff.longer.push(Longer { process, event, nanos });
                    }
                }
                (None, None) => {}
            }
        }
    }
    for (event, waits) in &right.waits {
        let known = left.waits.get(event).map_or(0, Vec::len);
        let unmatched = waits.iter().skip(known).filter(|wait| wait.end.is_some());
        diff.extra.extend(unmatched.map(|_| (name.to_owned(), event.0)));
    }
}

impl Side {
    /// Reads a trace, with these other names of processes.
    fn read(mut reader: Reader, renamed: &BTreeMap<String, String>) -> Result<Self, TraceError> {
        let mut side = Side::default();
        let mut vms: BTreeMap<VmId, String> = BTreeMap::new();
        let mut names: BTreeMap<ProcessId, String> = BTreeMap::new();
        loop {
            let Step { sequence, now, input, effects } = match next_step(&mut reader)? {
                Next::Step(step) => step,
                Next::Snapshot { .. } | Next::Times(_) => continue,
                Next::End => return Ok(side),
                Next::Lost(why) => {
                    side.stopped = Some(why);
                    return Ok(side);
                }
            };
            side.steps += 1;
            let effects = effects.unwrap_or_default();
            match &input {
                Input::VmAttached { vm, name } => drop(vms.insert(*vm, printable(name))),
                Input::ProcessAttached { process, vm: vm_number, name, .. } => {
                    let vm = vms.get(vm_number).map_or("host", String::as_str);
                    let name = side.attached(format!("{vm}/{}", printable(name)), renamed);
                    names.insert(*process, name);
                    side.vm_of.insert(*process, *vm_number);
                }
                Input::Call { process, request, call } => {
                    let name = names.get(process).map_or("?", String::as_str);
                    let answer = effects.answer_to(*process, *request);
                    let unanswered = side.called(name, sequence, now, call, answer);
                    if answer.is_none() && *request != 0 {
                        side.unanswered.insert((*process, *request), unanswered);
                    }
                }
                Input::Fault(fault) => side.disrupted(format!("fault: {fault}")),
                Input::ProcessGone { process } => side.ends(&names, *process, false),
                Input::VmDetached { vm } => {
                    let its = side.vm_of.iter().filter(|(_, of)| *of == vm).map(|(process, _)| *process);
                    let its: Vec<ProcessId> = its.collect();
                    its.into_iter().for_each(|process| side.ends(&names, process, true));
                }
                Input::ProcessFrozen { process, frozen } => {
                    let name = names.get(process).map_or("?", String::as_str);
                    side.disrupted(format!("{name} {}", if *frozen { "frozen" } else { "thawed" }));
                }
                Input::VmPaused { vm, paused } => {
                    let name = vms.get(vm).map_or("?", String::as_str);
                    side.disrupted(format!("VM {name} {}", if *paused { "paused" } else { "resumed" }));
                }
                Input::VmAdapter { vm, adapter, added } => {
                    let name = vms.get(vm).map_or("?", String::as_str);
                    let what = if *added { "added to" } else { "removed from" };
                    side.disrupted(format!("adapter {adapter} {what} VM {name}"));
                }
                // They differ between any two runs, or follow from calls.
                Input::MemoryChanged { .. }
                | Input::FenceMemoryAdded { .. }
                | Input::FenceMemoryMapped { .. }
                | Input::GuestFeatures { .. }
                | Input::Deadline
                | Input::SystemTime { .. }
                | Input::DoorbellRung { .. }
                | Input::NtHandleClosed { .. } => {}
            }
            effects.answers.iter().for_each(|answer| side.answered_late(answer));
            // Notes of no process are about adapters and engines. What follows the colon are counts.
            for note in effects.notes.iter().filter(|note| note.process.is_none()) {
                side.disrupted(printable(note.text.split(':').next().unwrap_or_default()));
            }
            for woken in &effects.events {
                side.woken(names.get(&woken.process).map_or("?", String::as_str), woken, now);
            }
        }
    }

    /// Adds a process. Returns its name with a number.
    fn attached(&mut self, name: String, renamed: &BTreeMap<String, String>) -> String {
        let number = self.namesakes.entry(name.clone()).or_default();
        *number += 1;
        let name = numbered(&name, *number);
        let name = renamed.get(&name).cloned().unwrap_or(name);
        self.processes.insert(name.clone(), ProcessSummary::default());
        name
    }

    fn ends(&mut self, names: &BTreeMap<ProcessId, String>, process: ProcessId, with_vm: bool) {
        self.vm_of.remove(&process);
        let summary = names.get(&process).and_then(|name| self.processes.get_mut(name));
        summary.into_iter().for_each(|summary| summary.ends(with_vm));
    }

    fn disrupted(&mut self, what: String) {
        if self.disruptions.len() < DISRUPTIONS_MAX || self.disruptions.contains_key(&what) {
            *self.disruptions.entry(what).or_default() += 1;
        }
    }

    fn woken(&mut self, process: &str, woken: &HostEvent, now: Nanos) {
        self.wakes += 1;
        let summary = self.processes.entry(process.to_owned()).or_default();
        summary.wakes += 1;
        let Some(event) = woken.target.event() else { return };
        let mut waits = summary.waits.entry(event).or_default().iter_mut().rev();
        if let Some(wait) = waits.find(|wait| wait.is_pending()) {
            wait.end = Some((now, woken.status));
        }
    }

    /// Adds the answer to a call of an earlier step.
    fn answered_late(&mut self, answer: &Answer) {
        let call = self.unanswered.remove(&(answer.process, answer.request));
        let Some(Unanswered { process, at, named }) = call else { return };
        let Side { processes, made, .. } = self;
        let summary = processes.entry(process.clone()).or_default();
        let numbered = &mut summary.numbered;
        let mut replacing = Replacing { process: &process, numbered, made, named, opens: false };
        summary.calls[at].answer_hash = replacing.answer_hash(answer);
    }

    fn called(
        &mut self,
        process: &str,
        sequence: u64,
        now: Nanos,
        call: &Call,
        answer: Option<&Answer>,
    ) -> Unanswered {
        *self.calls.entry(call.name().to_owned()).or_default() += 1;
        self.last_call = sequence;
        let Side { processes, made, .. } = self;
        let summary = processes.entry(process.to_owned()).or_default();
        summary.last_call = sequence;
        if let Call::CancelWait { event } = call {
            let last = summary.waits.get_mut(event).and_then(|waits| waits.last_mut());
            last.into_iter().for_each(|wait| wait.is_cancelled = true);
        }
        let (numbered, named) = (&mut summary.numbered, Vec::new());
        let mut replacing = Replacing { process, numbered, made, named, opens: false };
        let (call_hash, nameless_hash) = replacing.call_hashes(call);
        let answer_hash = answer.map_or(0, |answer| replacing.answer_hash(answer));
        let named = replacing.named;
        summary.calls.push(CallSummary { sequence, call_hash, nameless_hash, answer_hash });
        if let (Call::WaitFromCpu { event, .. } | Call::AcquireKeyedMutex { event, .. }, Some(answer)) =
            (call, answer)
            && is_registered(answer)
        {
            summary.waits.entry(*event).or_default().push(WaitSummary {
                begin: now,
                end: None,
                is_cancelled: false,
            });
        }
        Unanswered { process: process.to_owned(), at: summary.calls.len() - 1, named }
    }
}

fn is_registered(answer: &Answer) -> bool {
    use d3dkmt::{AcquireOutcome, WaitOutcome};
    matches!(
        answer.reply,
        Reply::Wait(WaitOutcome::Registered)
            | Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. }
    )
}

/// FNV-1a of formatted text, without allocating it.
fn hash(text: fmt::Arguments<'_>) -> u64 {
    let mut hasher = Fnv::default();
    let _ = hasher.write_fmt(text);
    hasher.finish()
}

/// Fills in the texts of the steps that differ.
fn words(
    mut reader: Reader,
    divergences: &mut [Divergence],
    step_of: impl Fn(&Divergence) -> Option<u64>,
    text_of: impl Fn(&mut Divergence) -> &mut String,
) -> Result<(), TraceError> {
    for divergence in divergences.iter_mut().filter(|divergence| step_of(divergence).is_none()) {
        *text_of(divergence) = "(it has no such call)".into();
    }
    let last = divergences.iter().filter_map(&step_of).max().unwrap_or(0);
    // Calls that a later step answers, and which divergence each is of.
    let mut unanswered: BTreeMap<(ProcessId, u64), usize> = BTreeMap::new();
    loop {
        let Step { sequence, input, effects, .. } = match next_step(&mut reader)? {
            Next::Step(step) if step.sequence <= last || !unanswered.is_empty() => step,
            Next::Snapshot { .. } | Next::Times(_) => continue,
            Next::Step(_) | Next::End | Next::Lost(_) => return Ok(()),
        };
        let effects = effects.unwrap_or_default();
        for answer in &effects.answers {
            if let Some(at) = unanswered.remove(&(answer.process, answer.request)) {
                *text_of(&mut divergences[at]) += &format!("\n      {answer}, in step #{sequence}");
            }
        }
        for (at, divergence) in divergences.iter_mut().enumerate() {
            if step_of(divergence) != Some(sequence) {
                continue;
            }
            let mut text = input.to_string();
            if let Input::Call { process, request, .. } = &input {
                // A step may answer earlier calls of the process first.
                match effects.answer_to(*process, *request) {
                    Some(answer) => text += &format!("\n      {answer}"),
                    None if *request != 0 => drop(unanswered.insert((*process, *request), at)),
                    None => {}
                }
            }
            effects.notes.iter().for_each(|note| text += &format!("\n      {note}"));
            *text_of(divergence) = text;
        }
    }
}
