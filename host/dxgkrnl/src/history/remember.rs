//! Writes the history: opens that ended, signals that were dropped, values that were set back.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{Handle, SyncObjectFlags, limits};

use super::{Ending, KEYED_MUTEX, Remembered};
use crate::ProcessId;
use crate::ddi::{HwQueueId, PendingWrite};
use crate::kernel::Kernel;
use crate::sync::Open;
use crate::vidsch::Packet;

/// Packets of an emptied queue that are inspected, at most: the history decides nothing.
const SCANNED_MAX: usize = 256;

/// Submissions in the engine that are inspected: fewer, because each may be as long as a message.
const SUBMISSIONS_MAX: usize = 16;

/// Writes and waits of command buffers after which no further submission is inspected.
const WRITES_MAX: usize = 16 * SCANNED_MAX;

/// Bytes of command buffers that are inspected, about.
const BYTES_MAX: usize = 64 << 10;

/// Bytes of command buffers that are inspected for a unit of work.
const BYTES_PER_UNIT: usize = 1024;

impl Kernel {
    fn remember(&mut self, object: u32, process: ProcessId, would_signal: Option<u64>, text: String) {
        let Some(owner) = self.processes.get(process) else { return };
        let vm_name = self.guests.vms().get(&owner.vm).map_or_else(String::new, |vm| vm.config.name.clone());
        let (pid, name, vm, at) = (owner.pid, owner.name.clone(), owner.vm, self.now);
        let past = &mut self.history.remembered;
        if past.len() >= limits::REMEMBERED_ENDS_MAX {
            past.pop_front();
        }
        past.push_back(Remembered { at, object, process, pid, name, vm, vm_name, would_signal, text });
    }

    /// Records an open that ended, if its object lives.
    pub(crate) fn remember_open(&mut self, open: &Open) {
        let object = &self.sync.objects()[open.object];
        if !object.is_open() && object.references == 0 {
            return;
        }
        let signals = !open.flags.contains(SyncObjectFlags::NO_SIGNAL);
        let right = if signals { "with" } else { "without" };
        let (handle, how) = (open.handle, self.history.ending.words());
        let text = format!("had it open as {handle}, {right} the right to signal: {how}");
        // A process that closed its handle has met its obligation; a process that was ended has not.
        let would_signal = (signals && self.history.ending != Ending::Call).then_some(u64::MAX);
        self.remember(open.object, open.process, would_signal, text);
    }

    /// Records a handle of a keyed mutex that ended, if other handles are left.
    pub(crate) fn remember_mutex_open(&mut self, process: ProcessId, handle: Handle, mutex: u32) {
        if self.keyed.mutexes()[mutex].opens < 2 {
            return;
        }
        let text = format!("had it open as {handle}: {}", self.history.ending.words());
        let would_signal = (self.history.ending != Ending::Call).then_some(u64::MAX);
        self.remember(KEYED_MUTEX | mutex, process, would_signal, text);
    }

    /// Records the signals of a queue that is about to lose its packets and what the engine has of it.
    pub(crate) fn remember_queue(&mut self, id: u32) {
        let Some(queue) = self.vidsch.queues().get(id) else { return };
        if queue.is_idle() && queue.packets.is_empty() {
            return;
        }
        // Of each object the greatest value.
        let mut lost: BTreeMap<u32, u64> = BTreeMap::new();
        let mut lose = |(object, value): (u32, u64)| {
            let most = lost.entry(object).or_default();
            *most = value.max(*most);
        };
        let of_commands = |commands: &[u8]| self.miniport.pending_writes(queue.engine.adapter, commands);
        let mut pending_writes: Vec<PendingWrite> = Vec::new();
        let submissions = queue.in_flight.iter().map(|one| one.submission_fence_id);
        let hw_queue = queue.hw_queue.map(HwQueueId);
        for id in submissions.chain(queue.running).take(SUBMISSIONS_MAX) {
            if pending_writes.len() >= WRITES_MAX {
                break;
            }
            pending_writes.extend(
                self.miniport.pending_writes_of_submission(queue.engine, hw_queue, id).unwrap_or_default(),
            );
        }
        pending_writes.extend(queue.ready.iter().filter_map(|ready| of_commands(&ready.commands)).flatten());
        let mut bytes = 0;
        for packet in queue.packets.iter().take(SCANNED_MAX) {
            match packet {
                Packet::Signal(signal) => signal.targets.iter().for_each(|target| lose(*target)),
                Packet::Broadcast(id) => {
                    self.vidsch.broadcasts()[*id].signal.targets.iter().for_each(|target| lose(*target));
                }
                Packet::Command(_) | Packet::HwCommand { .. } if bytes >= BYTES_MAX => {}
                Packet::Command(commands) | Packet::HwCommand { commands, .. } => {
                    bytes += commands.len();
                    pending_writes.extend(of_commands(commands).into_iter().flatten());
                }
                Packet::Wait(_)
                | Packet::Acquire(_)
                | Packet::WaitAtHead(_)
                | Packet::Mark(_)
                | Packet::PageTables(_) => {}
            }
        }
        let units = bytes / BYTES_PER_UNIT + pending_writes.len() / SCANNED_MAX;
        for write in pending_writes {
            if let PendingWrite::Store { gpu_address, value } = write
                && let Some(open) = self.open_at(queue.engine, queue.process, gpu_address)
            {
                lose((self.sync.opens()[open].object, value));
            }
        }
        let of_hw_queue =
            queue.hw_queue.and_then(|id| self.vidsch.hw_queues().get(id)).map(|queue| queue.handle);
        let handle =
            of_hw_queue.or_else(|| self.vidsch.contexts().get(queue.context).map(|context| context.handle));
        let (process, how) = (queue.process, self.history.ending.words());
        let queue = handle.filter(|handle| *handle != Handle::NULL);
        let queue = queue.map_or_else(|| "a queue".into(), |handle| format!("queue {handle}"));
        self.spend(units as u32);
        for (object, value) in lost.into_iter().take(limits::REMEMBERED_ENDS_MAX) {
            let text = format!("had a signal to {value} in {queue}, and the queue was emptied: {how}");
            self.remember(object, process, Some(value), text);
        }
    }

    /// Records a fence whose value is set back.
    #[inline]
    pub(crate) fn remember_back(&mut self, object: u32, process: ProcessId, value: u64) {
        let was = self.sync.objects().value(object);
        if value < was {
            self.remember(object, process, None, format!("set it back from {was} to {value}"));
        }
    }

    /// Records a mutex that stays owned after its owner ended.
    pub(crate) fn remember_owner(&mut self, object: u32, process: ProcessId, by: Handle) {
        let how = self.history.ending.words();
        let text = format!("owned it by {by}, which ended without releasing it: {how}");
        self.remember(object, process, Some(u64::MAX), text);
    }
}
