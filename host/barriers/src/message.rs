//! What is said of command lists.

use crate::limits::MESSAGES_PER_RULE_MAX;
use crate::rules::{Rule, Severity};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use d3dkmt::isa::ResourceDesc;
use serde::{Deserialize, Serialize};

/// When it can be known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// From the command list alone.
    Record,
    /// Only with what the lists before it have left.
    Submission,
}

/// Where in a submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct CommandRef {
    /// The list, counted from 0. What stands before the first `BeginList` is a list if there is anything.
    pub list: u32,
    /// The packet, counted from 0 after `BeginList`.
    pub command: u32,
    /// The barrier of the packet, across its groups.
    pub barrier: Option<u32>,
}

/// One thing that is wrong.
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
    /// What is wrong, and what would be right.
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

/// The messages of one submission: [`MESSAGES_PER_RULE_MAX`] of each rule, and how many there were.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Messages {
    kept: Vec<Message>,
    /// By rule, those that were told.
    counts: BTreeMap<u32, u32>,
    severities: [u64; 5],
}

impl Messages {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Message> {
        self.kept.iter()
    }

    /// How often a rule was broken, kept or not.
    pub fn count(&self, rule: Rule) -> u32 {
        self.counts.get(&(rule as u32)).copied().unwrap_or(0)
    }

    /// How many messages there were, kept or not.
    pub fn total(&self) -> u64 {
        self.severities.iter().sum()
    }

    /// How many of that severity or a worse one.
    pub fn at_least(&self, severity: Severity) -> u64 {
        self.severities[severity as usize..].iter().sum()
    }

    /// Counts it, and says whether it is to be kept.
    fn admit(&mut self, rule: Rule, severity: Severity) -> bool {
        self.severities[severity as usize] += 1;
        let count = self.counts.entry(rule as u32).or_default();
        *count = count.saturating_add(1);
        *count as usize <= MESSAGES_PER_RULE_MAX
    }

    /// A message that is of no command list.
    pub(crate) fn one(rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) -> Message {
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

/// Says things of the place where a walk is.
#[derive(Default)]
pub(crate) struct Reporter {
    pub messages: Messages,
    pub place: CommandRef,
    pub list_name: String,
    /// Only what the list alone tells is said.
    pub record_only: bool,
    /// What was said of one subresource of a barrier or use is not said of the next.
    group: Option<Vec<(Rule, Phase)>>,
}

impl Reporter {
    pub fn new(record_only: bool) -> Self {
        Reporter { record_only, ..Reporter::default() }
    }

    /// Looks at several subresources for one barrier or use begin.
    pub fn begin_group(&mut self) {
        self.group = Some(Vec::new());
    }

    pub fn end_group(&mut self) {
        self.group = None;
    }

    /// What can be known when the list is recorded.
    #[cold]
    pub fn say(&mut self, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.say_in(Phase::Record, rule, resource, text);
    }

    /// What is only known with what was before the list, if it is of that phase.
    #[cold]
    pub fn say_in(&mut self, phase: Phase, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.put(phase, (rule, rule.severity()), resource, text);
    }

    /// Less than the rule itself says of it.
    #[cold]
    pub fn warn(&mut self, rule: Rule, resource: Option<u32>, text: fmt::Arguments<'_>) {
        self.put(Phase::Record, (rule, Severity::Warning), resource, text);
    }

    /// More than the rule itself says of it, when the list is recorded.
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
        if self.record_only && phase == Phase::Submission {
            return;
        }
        if let Some(said) = &mut self.group {
            if said.contains(&(rule, phase)) {
                return;
            }
            said.push((rule, phase));
        }
        if !self.messages.admit(rule, severity) {
            return;
        }
        let message = Message {
            phase,
            severity,
            place: self.place,
            list_name: self.list_name.clone(),
            ..Messages::one(rule, resource, text)
        };
        self.messages.kept.push(message);
    }
}

/// A resource as messages name it, or one subresource of it.
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

/// Bits by their names, or NONE, or COMMON.
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

/// As bitflags writes them in Debug, without the type's name around them.
fn write_bits(f: &mut fmt::Formatter<'_>, bits: &impl fmt::Debug) -> fmt::Result {
    let text = alloc::format!("{bits:?}");
    let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    f.write_str(inner.unwrap_or(&text))
}

/// Layouts, one behind the other.
pub(crate) struct Layouts(pub crate::tables::LayoutSet);

impl fmt::Display for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, layout) in self.0.iter().enumerate() {
            write!(f, "{}{layout:?}", if number == 0 { "" } else { ", " })?;
        }
        if self.0.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// A layout as it is known.
pub(crate) struct Shown(pub d3dkmt::isa::BarrierLayout);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == crate::state::LOST { f.write_str("UNDEFINED") } else { write!(f, "{:?}", self.0) }
    }
}
