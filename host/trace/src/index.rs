//! The index of a trace's blocks, collected while they are written.

use std::collections::BTreeMap;

use dxgkrnl::{Effects, Input};
use prost::Message as _;
use proto::trace as wire;

use crate::block::HEADER_BYTES;

/// Entries of a full index.
pub(crate) const ENTRIES_FULL: usize = 64;
/// An entry stores a block's header from this offset on, without the magic, so that a scan for blocks finds none in an
/// index.
pub(crate) const ENTRY_FROM: usize = 16;
/// Most processes that an entry lists; if there are more, it only says so.
const PROCESSES_LISTED_MAX: usize = 64;

/// Processes that a block's steps concern.
#[derive(Default)]
pub(crate) struct BlockProcesses {
    last: Option<u32>,
    processes: Vec<u32>,
    more: bool,
}

impl BlockProcesses {
    #[inline]
    pub fn process(&mut self, process: u32) {
        if self.last != Some(process) {
            self.last = Some(process);
            self.insert(process);
        }
    }

    fn insert(&mut self, process: u32) {
        let Err(at) = self.processes.binary_search(&process) else { return };
        if self.processes.len() < PROCESSES_LISTED_MAX {
            self.processes.insert(at, process);
        } else {
            self.more = true;
        }
    }

    #[inline]
    pub fn input(&mut self, input: &Input) {
        match input {
            Input::Call { process, .. }
            | Input::ProcessAttached { process, .. }
            | Input::FenceMemoryAdded { process, .. }
            | Input::FenceMemoryMapped { process, .. }
            | Input::ProcessGone { process }
            | Input::ProcessFrozen { process, .. }
            | Input::DoorbellRung { process, .. } => self.process(process.0),
            Input::VmAttached { .. }
            | Input::VmDetached { .. }
            | Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::MemoryChanged { .. }
            | Input::GuestFeatures { .. }
            | Input::NtHandleClosed { .. }
            | Input::Deadline
            | Input::Fault(_)
            | Input::SystemTime { .. } => {}
        }
    }

    /// Adds the processes of stores and events. An answer goes to the calling process, which is listed already.
    #[inline]
    pub fn effects(&mut self, effects: &Effects) {
        effects.stores.iter().for_each(|store| self.process(store.process.0));
        effects.events.iter().for_each(|event| self.process(event.process.0));
    }

    pub fn clear(&mut self) {
        self.last = None;
        self.processes.clear();
        self.more = false;
    }
}

/// The VM of each process that is attached, and of those that have ended in the open block.
#[derive(Default)]
pub(crate) struct Vms {
    of: BTreeMap<u32, u32>,
    ended: Vec<u32>,
}

impl Vms {
    pub fn input(&mut self, input: &Input) {
        if let Input::ProcessAttached { process, vm, .. } = input {
            self.of.insert(process.0, vm.0);
        } else if let Input::ProcessGone { process } = input {
            self.ended.push(process.0);
        } else if let Input::VmDetached { vm } = input {
            let of_vm = self.of.iter().filter(|(_, of)| **of == vm.0);
            self.ended.extend(of_vm.map(|(process, _)| *process));
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.of.len()
    }

    /// The open block has its entry.
    pub fn forget_ended(&mut self) {
        for process in self.ended.drain(..) {
            self.of.remove(&process);
        }
    }

    fn of(&self, processes: &[u32]) -> Vec<u32> {
        let mut vms: Vec<u32> =
            processes.iter().filter_map(|process| self.of.get(process).copied()).collect();
        vms.sort_unstable();
        vms.dedup();
        vms
    }
}

/// Entries since the last index, and the offsets that the next index links to.
#[derive(Default)]
pub(crate) struct Entries {
    entries: Vec<wire::IndexEntry>,
    last_index: u64,
    last_snapshot: u64,
}

impl Entries {
    pub fn block(&mut self, offset: u64, header: &[u8; HEADER_BYTES], listed: &BlockProcesses, vms: &Vms) {
        self.entries.push(wire::IndexEntry {
            offset,
            header: header[ENTRY_FROM..].to_vec(),
            processes: listed.processes.clone(),
            vms: vms.of(&listed.processes),
            more: listed.more,
        });
    }

    pub fn snapshot(&mut self, offset: u64) {
        self.last_snapshot = offset;
    }

    pub fn are_full(&self) -> bool {
        self.entries.len() >= ENTRIES_FULL
    }

    pub fn last_index(&self) -> u64 {
        self.last_index
    }

    /// The content of an index block to be written at `offset`.
    pub fn take(&mut self, offset: u64) -> Vec<u8> {
        let index = wire::Index {
            entries: std::mem::take(&mut self.entries),
            previous_index: std::mem::replace(&mut self.last_index, offset),
            last_snapshot: self.last_snapshot,
        };
        index.encode_to_vec()
    }
}
