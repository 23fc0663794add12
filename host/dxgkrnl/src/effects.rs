//! Everything the kernel asks its host to do, in lists that are drained in this order: moves, stores, answers, events,
//! sync files, notes. Memory comes first, then the answer, then the wake-up.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use d3dkmt::text::printable;
use d3dkmt::{EventId, NtStatus, Reply, ShareToken, WakeTarget};
use serde::{Deserialize, Serialize};

use crate::{DmaOp, ProcessId, VmId};

/// Store a value into a slot of a process's fence memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceStore {
    pub process: ProcessId,
    pub slot: u32,
    pub value: u64,
}

/// Answer a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub process: ProcessId,
    pub request: u64,
    pub status: NtStatus,
    pub reply: Reply,
}

/// Notifies a client process: a registered wait ended, or an event was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostEvent {
    pub process: ProcessId,
    pub target: WakeTarget,
    /// What a blocking wait returns.
    pub status: NtStatus,
}

/// Make the descriptor of a sync file readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncFileReady {
    pub vm: VmId,
    pub token: ShareToken,
}

/// A line for people: why a call was refused, what a policy decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    pub process: Option<ProcessId>,
    pub text: String,
}

/// What a driver outside of this program did in a DDI of the step. No host performs it; a trace keeps it, so that a replay
/// needs no driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverAnswer {
    pub adapter: u32,
    /// In the encoding of the crate `driver-host`.
    pub answer: Vec<u8>,
}

/// The effects of one input.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    pub moves: Vec<DmaOp>,
    pub stores: Vec<FenceStore>,
    pub answers: Vec<Answer>,
    pub events: Vec<HostEvent>,
    pub sync_files: Vec<SyncFileReady>,
    pub notes: Vec<Note>,
    pub driver_answers: Vec<DriverAnswer>,
}

impl Effects {
    #[inline]
    pub fn clear(&mut self) {
        let Effects { moves, stores, answers, events, sync_files, notes, driver_answers } = self;
        moves.clear();
        stores.clear();
        answers.clear();
        events.clear();
        sync_files.clear();
        notes.clear();
        driver_answers.clear();
    }

    /// Appends the effects of a later input.
    pub fn append(&mut self, later: Effects) {
        let Effects { moves, stores, answers, events, sync_files, notes, driver_answers } = later;
        self.moves.extend(moves);
        self.stores.extend(stores);
        self.answers.extend(answers);
        self.events.extend(events);
        self.sync_files.extend(sync_files);
        self.notes.extend(notes);
        self.driver_answers.extend(driver_answers);
    }

    /// The answer to this call. Calls of earlier steps may be answered beside it: see `escape/idle.rs`.
    pub fn answer_to(&self, process: ProcessId, request: u64) -> Option<&Answer> {
        self.answers.iter().find(|answer| (answer.process, answer.request) == (process, request))
    }

    /// Drops the moves, stores and events of processes that are gone, but moves of memory that outlives them.
    pub(crate) fn forget_processes(
        &mut self,
        is_gone: impl Fn(ProcessId) -> bool,
        outlives: impl Fn(ProcessId, u64) -> bool,
    ) {
        let is_there = |(process, address)| !is_gone(process) || outlives(process, address);
        self.moves.retain(|moved| moved.addresses().all(is_there));
        self.stores.retain(|store| !is_gone(store.process));
        self.events.retain(|event| !is_gone(event.process));
    }

    pub fn is_empty(&self) -> bool {
        // A driver's answer is nothing that the kernel asks for.
        let Effects { moves, stores, answers, events, sync_files, notes, driver_answers: _ } = self;
        let is_quiet = stores.is_empty() && answers.is_empty() && events.is_empty() && sync_files.is_empty();
        is_quiet && moves.is_empty() && notes.is_empty()
    }
}

impl fmt::Display for FenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store p{} slot {} = {}", self.process.0, self.slot, self.value)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answer p{} #{}: {} {:?}", self.process.0, self.request, self.status, self.reply)
    }
}

impl fmt::Display for HostEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wake p{} {}: {}", self.process.0, self.target, self.status)
    }
}

impl fmt::Display for SyncFileReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vm {} sync file {:?} is ready", self.vm.0, self.token)
    }
}

impl fmt::Display for DriverAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver of adapter {}: {} bytes", self.adapter, self.answer.len())
    }
}

impl Note {
    /// Why a call was refused. [`Note::refused_with`] reads the status.
    pub(crate) fn refusal(process: ProcessId, status: NtStatus, why: &str) -> Note {
        Note { process: Some(process), text: format!("{status}: {why}") }
    }

    /// The event of a wait that ended without its value, if this is the note of that.
    pub fn ended_wait(&self) -> Option<EventId> {
        let (event, _) = self.text.strip_prefix("wait ")?.split_once(" ended: ")?;
        event.parse().ok().map(EventId)
    }

    /// The status with which a call was refused, if this is the note of that.
    pub fn refused_with(&self) -> Option<NtStatus> {
        self.process?;
        let (status, _) = self.text.split_once(": ")?;
        let named = || {
            let name = status.strip_prefix("STATUS_")?;
            NtStatus::NAMED.iter().copied().find(|status| status.name() == Some(name))
        };
        let numbered = || Some(NtStatus(u32::from_str_radix(status.strip_prefix("0x")?, 16).ok()?));
        named().or_else(numbered).filter(|status| !status.is_success())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = printable(&self.text);
        match self.process {
            Some(process) => write!(f, "note p{}: {text}", process.0),
            None => write!(f, "note: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_a_refusal_has_its_status_whether_or_not_that_has_a_name() {
        for status in [NtStatus::DEVICE_REMOVED, NtStatus(0xC01E_0123)] {
            let note = Note::refusal(ProcessId(1), status, "a reason: words");
            assert_eq!(note.refused_with(), Some(status), "{note}");
        }
        for text in ["device 0x40 is stopped: a call was refused", "STATUS_SUCCESS: words", "words"] {
            assert_eq!(Note { process: Some(ProcessId(1)), text: text.into() }.refused_with(), None);
        }
    }
}
