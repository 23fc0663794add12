//! Messages about command lists.

use crate::limits::MESSAGES_PER_RULE_MAX;
use crate::rules::{Rule, Severity};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use d3dkmt::isa::ResourceDesc;
use serde::{Deserialize, Serialize};

/// What determines a message. A barrier or use is reported once for each of the two. All messages come when the list
/// runs: the driver does not see a list before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// The command list alone, so that a D3D12 runtime has the message when the list is recorded.
    Record,
    /// The list with the state that earlier lists left.
    Submission,
}

/// A position in a submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct CommandRef {
    /// The list, counted from 0. Packets before the first `BeginList`, if any, count as a list.
    pub list: u32,
    /// The packet, counted from 0 after `BeginList`.
    pub command: u32,
    /// The barrier of the packet, across its groups.
    pub barrier: Option<u32>,
}

/// One message of the validator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    pub rule: Rule,
    /// `D3D12_MESSAGE_ID`.
    pub id: Option<u32>,
    pub severity: Severity,
    pub phase: Phase,
    pub place: CommandRef,
    /// The name of the list; may be empty.
    pub list_name: String,
    pub resource: Option<u32>,
    /// The problem and its correction.
    pub text: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Fine => "note",
            Severity::Warning => "warning",
            Severity::Hazard => "hazard",
            Severity::Error => "error",
            Severity::Removed => "error, list removed",
        };
        write!(f, "{} {severity}", self.rule)?;
        if let Some(id) = self.id {
            write!(f, " #{id}")?;
        }
        write!(f, ": list {}", self.place.list)?;
        if !self.list_name.is_empty() {
            write!(f, " {:?}", self.list_name)?;
        }
        write!(f, " command {}", self.place.command)?;
        if let Some(barrier) = self.place.barrier {
            write!(f, " barrier {barrier}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// The messages of one submission: the first [`MESSAGES_PER_RULE_MAX`] of each rule, and the number of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Messages {
    kept: Vec<Message>,
    /// Number of messages of each rule.
    counts: BTreeMap<u32, u32>,
    severities: [u64; 5],
}

impl Messages {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Message> {
        self.kept.iter()
    }

    /// Number of messages of a rule, kept or not.
    pub fn count(&self, rule: Rule) -> u32 {
        self.counts.get(&(rule as u32)).copied().unwrap_or(0)
    }

    /// Number of all messages, kept or not.
    pub fn total(&self) -> u64 {
        self.severities.iter().sum()
    }

    /// Number of messages of this or a higher severity.
    pub fn at_least(&self, severity: Severity) -> u64 {
        self.severities[severity as usize..].iter().sum()
    }

    /// Takes the kept messages; the counts stay, so that the limits hold for what follows.
    pub(crate) fn take(&mut self) -> Messages {
        let kept = core::mem::take(&mut self.kept);
        Messages { kept, counts: self.counts.clone(), severities: self.severities }
    }

    /// Counts a message. Returns whether it is to be kept.
    fn admit(&mut self, rule: Rule, severity: Severity) -> bool {
        self.severities[severity as usize] += 1;
        let count = self.counts.entry(rule as u32).or_default();
        *count = count.saturating_add(1);
        *count as usize <= MESSAGES_PER_RULE_MAX
    }

    /// A message that belongs to no command list.
    pub(crate) fn new_message(rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) -> Message {
        Message {
            rule,
            id: rule.message_id(),
            severity: rule.severity(),
            phase: Phase::Submission,
            place: CommandRef::default(),
            list_name: String::new(),
            resource,
            text: text.to_string(),
        }
    }
}

/// Collects messages, with the current position of a walk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reporter {
    pub messages: Messages,
    pub place: CommandRef,
    pub list_name: String,
    /// Rules that were reported for the current barrier or use, so that they are reported for one subresource only.
    group: Option<Vec<(Rule, Phase)>>,
}

impl Reporter {
    /// Begins a group: the subresources of one barrier or use.
    pub fn begin_group(&mut self) {
        self.group = Some(Vec::new());
    }

    pub fn end_group(&mut self) {
        self.group = None;
    }

    /// Reports a message that the list alone determines.
    #[cold]
    pub fn emit(&mut self, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.emit_in(Phase::Record, rule, resource, text);
    }

    /// Reports a message of the given phase.
    #[cold]
    pub fn emit_in(&mut self, phase: Phase, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.put(phase, (rule, rule.severity()), resource, text);
    }

    /// Reports a rule as a warning, whatever its own severity.
    #[cold]
    pub fn warn(&mut self, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.put(Phase::Record, (rule, Severity::Warning), resource, text);
    }

    /// Reports a rule as an error, whatever its own severity.
    #[cold]
    pub fn error(&mut self, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.put(Phase::Record, (rule, Severity::Error), resource, text);
    }

    fn put(
        &mut self,
        phase: Phase,
        (rule, severity): (Rule, Severity),
        resource: Option<u32>,
        text: fmt::Arguments<'_>,
    ) {
        if let Some(reported) = &mut self.group {
            if reported.contains(&(rule, phase)) {
                return;
            }
            reported.push((rule, phase));
        }
        if !self.messages.admit(rule, severity) {
            return;
        }
        let message = Message {
            phase,
            severity,
            place: self.place,
            list_name: self.list_name.clone(),
            ..Messages::new_message(rule, resource, text)
        };
        self.messages.kept.push(message);
    }
}

/// Displays a resource, or one subresource, as messages name it.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub id: u32,
    pub desc: &'a ResourceDesc,
    pub subresource: Option<u32>,
}

impl<'a> Named<'a> {
    pub fn new(id: u32, desc: &'a ResourceDesc) -> Self {
        Named { id, desc, subresource: None }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, kind) = (self.id, if self.desc.is_texture() { "texture" } else { "buffer" });
        match self.desc.name.as_ref() {
            "" => write!(f, "{kind} {id}")?,
            name => write!(f, "{kind} {name:?} ({id})")?,
        }
        match self.subresource {
            Some(index) => write!(f, " subresource {index}"),
            None => Ok(()),
        }
    }
}

/// Displays the names of sync, access or state bits, or NONE or COMMON if there are none.
pub(crate) struct Bits<T>(pub T);

impl fmt::Display for Bits<d3dkmt::isa::BarrierSync> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("NONE") } else { write_bits(f, &self.0) }
    }
}

impl fmt::Display for Bits<d3dkmt::isa::BarrierAccess> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("COMMON") } else { write_bits(f, &self.0) }
    }
}

impl fmt::Display for Bits<d3dkmt::isa::LegacyState> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("COMMON") } else { write_bits(f, &self.0) }
    }
}

/// Writes the bitflags Debug form without the type's name.
fn write_bits(f: &mut fmt::Formatter<'_>, bits: &impl fmt::Debug) -> fmt::Result {
    let text = alloc::format!("{bits:?}");
    let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    f.write_str(inner.unwrap_or(&text))
}

/// Displays a list of layouts.
pub(crate) struct Layouts(pub crate::tables::LayoutSet);

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, layout) in self.0.iter().enumerate() {
            write!(f, "{}{layout:?}", if number == 0 { "" } else { ", " })?;
        }
        if self.0.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// Displays a known layout; a lost one as UNDEFINED.
pub(crate) struct Shown(pub d3dkmt::isa::BarrierLayout);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == crate::state::LOST { f.write_str("UNDEFINED") } else { write!(f, "{:?}", self.0) }
    }
}
