//! The debug layer: what crate `barriers` says of a process's command lists, kept until it is read.
//!
//! Off until the process turns it on. A submission is looked at when its turn comes to run: with the layouts that the
//! ones before it have left. Messages go to people as they come, [`NOTES_PER_SUBMISSION_MAX`] of a submission, and into a
//! queue of [`limits::DEBUG_MESSAGES_PER_PROCESS_MAX`] that an escape reads and empties; what finds it full is counted. It says
//! what is wrong and changes nothing: lists run as they would without it.
//!
//! A message is read as a record, little-endian:
//!
//! ```text
//!   0 u32 bytes of it, a multiple of 8   4 u32 rule: n of R-n, or 0   8 u32 D3D12_MESSAGE_ID, or 0
//!  12 u32 severity: 1 warning, 2 hazard, 3 error, 4 error for which the list would be removed
//!  16 u32 list   20 u32 command   24 u32 barrier, or u32::MAX   28 u32 resource, or 0
//!  32 u32 bytes of the text   36 u32 0   40 the text, with zeros behind it
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use barriers::{Capabilities, Device, Message, Policy, Severity};
use d3dkmt::isa::{QueueType, Reader, ResourceDesc};
use d3dkmt::{NtStatus, limits};
use dxgkrnl::EngineType;
use dxgkrnl::ddi::{Callback, EngineId, HwContext};

use crate::resources::Space;

/// Messages of one submission that are told at once.
const NOTES_PER_SUBMISSION_MAX: usize = 16;
/// Where records begin, behind the count and the number of lost ones.
const RECORDS_AT: usize = 16;
const RECORD_BYTES: usize = 40;
/// Bytes of a message's text that are read.
const TEXT_BYTES_MAX: usize = 1024;

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Off,
    /// Hazards, errors, and what is worse.
    Errors,
    All,
}

impl Level {
    pub fn from_word(word: u32) -> Option<Level> {
        [Level::Off, Level::Errors, Level::All].get(word as usize).copied()
    }

    fn says(self, severity: Severity) -> bool {
        match self {
            Level::Off => false,
            Level::Errors => severity >= Severity::Hazard,
            Level::All => true,
        }
    }
}

struct Layer {
    level: Level,
    device: Device,
    kept: VecDeque<Message>,
    lost: u64,
    /// What runs, or ran last, of each context.
    submissions: BTreeMap<(EngineId, HwContext), u64>,
}

/// The layers of all processes.
#[derive(Default)]
pub(crate) struct DebugLayers {
    layers: BTreeMap<Space, Layer>,
}

fn queue_type(engine: EngineType) -> QueueType {
    match engine {
        EngineType::ThreeD => QueueType::Direct,
        EngineType::Compute => QueueType::Compute,
        EngineType::Copy => QueueType::Copy,
        EngineType::VideoDecode => QueueType::VideoDecode,
        EngineType::VideoProcessing => QueueType::VideoProcess,
        EngineType::VideoEncode => QueueType::VideoEncode,
    }
}

impl Layer {
    /// Keeps what is to be said of this, and gives how much of it.
    fn keep<'m>(&mut self, messages: impl Iterator<Item = &'m Message>) -> Vec<&'m Message> {
        let said: Vec<_> = messages.filter(|message| self.level.says(message.severity)).collect();
        for message in &said {
            if self.kept.len() < limits::DEBUG_MESSAGES_PER_PROCESS_MAX {
                self.kept.push_back((*message).clone());
            } else {
                self.lost = self.lost.saturating_add(1);
            }
        }
        said
    }
}

fn note((adapter, process): Space, text: alloc::string::String, callbacks: &mut Vec<Callback>) {
    callbacks.push(Callback::DebugPrint { adapter, process: Some(process), text });
}

impl DebugLayers {
    pub fn is_on(&self, space: Space) -> bool {
        self.layers.contains_key(&space)
    }

    /// Turned on, it knows the resources that there are, each in the layout that it was created with.
    pub fn set<'a>(
        &mut self,
        space: Space,
        level: Level,
        resources: impl Iterator<Item = (u32, &'a ResourceDesc)>,
        callbacks: &mut Vec<Callback>,
    ) {
        if level == Level::Off {
            self.layers.remove(&space);
            return;
        }
        if let Some(layer) = self.layers.get_mut(&space) {
            layer.level = level;
            return;
        }
        let device = Device::new(Capabilities::default(), Policy::default());
        let (kept, submissions) = (VecDeque::new(), BTreeMap::new());
        self.layers.insert(space, Layer { level, device, kept, lost: 0, submissions });
        for (number, desc) in resources {
            self.created(space, number, desc, callbacks);
        }
    }

    pub fn created(&mut self, space: Space, number: u32, desc: &ResourceDesc, callbacks: &mut Vec<Callback>) {
        let Some(layer) = self.layers.get_mut(&space) else { return };
        if let Err(message) = layer.device.add_resource(number, *desc) {
            let said = layer.keep(core::iter::once(&message));
            said.iter().for_each(|message| note(space, message.to_string(), callbacks));
        }
    }

    pub fn destroyed(&mut self, space: Space, number: u32, callbacks: &mut Vec<Callback>) {
        let Some(layer) = self.layers.get_mut(&space) else { return };
        let message = layer.device.remove_resource(number);
        let said = layer.keep(message.iter());
        said.iter().for_each(|message| note(space, message.to_string(), callbacks));
    }

    /// A submission's turn has come.
    pub fn look(
        &mut self,
        space: Space,
        (engine, engine_type, context): (EngineId, EngineType, HwContext),
        commands: &[u8],
        callbacks: &mut Vec<Callback>,
    ) {
        let Some(layer) = self.layers.get_mut(&space) else { return };
        let Ok(Some(packets)) = Reader::new(commands) else { return };
        let Ok(outcome) = layer.device.submit(queue_type(engine_type), &packets) else { return };
        // One submission of a context is behind the other: the one before is over, or lost.
        if let Some(before) = layer.submissions.insert((engine, context), outcome.submission) {
            layer.device.retire(before);
        }
        let said = layer.keep(outcome.messages.iter());
        for message in said.iter().take(NOTES_PER_SUBMISSION_MAX) {
            note(space, message.to_string(), callbacks);
        }
        if let Some(more) = said.len().checked_sub(NOTES_PER_SUBMISSION_MAX).filter(|more| *more > 0) {
            note(space, alloc::format!("and {more} more messages of this submission"), callbacks);
        }
    }

    /// An engine has stored a fence value.
    pub fn stored(&mut self, space: Space, gpu_address: u64, value: u64) {
        if let Some(layer) = self.layers.get_mut(&space) {
            layer.device.fence_stored(gpu_address, value);
        }
    }

    /// A submission is over.
    pub fn ended(&mut self, space: Space, engine: EngineId, context: HwContext) {
        if let Some(layer) = self.layers.get_mut(&space)
            && let Some(submission) = layer.submissions.remove(&(engine, context))
        {
            layer.device.retire(submission);
        }
    }

    pub fn end_process(&mut self, space: Space) {
        self.layers.remove(&space);
    }

    /// As many messages as there is room for, the oldest first, which are kept no more.
    pub fn read(&mut self, space: Space, data: &mut [u8]) -> Result<(), NtStatus> {
        let layer = self.layers.get_mut(&space).ok_or(NtStatus::INVALID_PARAMETER)?;
        let (mut at, mut count) = (RECORDS_AT, 0u32);
        if data.len() < RECORDS_AT {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        while let Some(message) = layer.kept.front() {
            let record = record(message);
            match data.get_mut(at..at + record.len()) {
                Some(place) => place.copy_from_slice(&record),
                None if count == 0 => return Err(NtStatus::BUFFER_TOO_SMALL),
                None => break,
            }
            (at, count) = (at + record.len(), count + 1);
            layer.kept.pop_front();
        }
        data[4..8].copy_from_slice(&count.to_le_bytes());
        data[8..16].copy_from_slice(&layer.lost.to_le_bytes());
        Ok(())
    }
}

fn record(message: &Message) -> Vec<u8> {
    let text = message.text.as_str();
    let length =
        (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let bytes = (RECORD_BYTES + length).next_multiple_of(8);
    let place = message.place;
    let words = [
        bytes as u32,
        message.rule as u32,
        message.id.unwrap_or(0),
        message.severity as u32,
        place.list,
        place.command,
        place.barrier.unwrap_or(u32::MAX),
        message.resource.unwrap_or(0),
        length as u32,
        0,
    ];
    let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    record.extend_from_slice(&text.as_bytes()[..length]);
    record.resize(bytes, 0);
    record
}
