//! The waits on one object that end together: those that its value has reached, those made through a handle that is
//! gone.
//!
//! There may be a million of them, so they are processed in their order, and the next step continues where this one
//! stopped. Whatever is added or removed meanwhile, each wait that there was at the start ends as it would have ended
//! then, and no other.

use alloc::format;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::ordered::Entry;
use super::reached::{EndOfWaits, Reached, Waiter, WaiterAction, WaiterScan};
use super::waits::WaitOwner;
use crate::ProcessId;
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::policy::DestroyedWait;
use crate::vidsch::Task;
use d3dkmt::{EventId, NtStatus};

/// Waits that are processed as a batch.
const WAITERS_PER_BATCH: usize = 64;

impl Kernel {
    /// Ends the CPU waits on an object that were made through an open, because that is destroyed. False if a later step
    /// continues.
    pub(super) fn release_cpu_waiters(&mut self, object: u32, open: u32, effects: &mut Effects) -> bool {
        let action = WaiterAction::End { open: Some(open), why: EndOfWaits::FenceDestroyed };
        self.process_waiters_of(object, action, true, effects)
    }

    /// Releases all waits on an object that is destroyed, those in queues as well. False if a later step continues.
    pub(super) fn release_waiters(&mut self, object: u32, effects: &mut Effects) -> bool {
        let action = WaiterAction::End { open: None, why: EndOfWaits::FenceDestroyed };
        self.process_waiters_of(object, action, false, effects)
    }

    /// Ends the CPU waits through a lost device for a fence that was opened on it. The open stays.
    pub(crate) fn end_waits_of_lost(&mut self, object: u32, open: u32, effects: &mut Effects) {
        let action = WaiterAction::End { open: Some(open), why: EndOfWaits::DeviceLost };
        self.process_waiters_of(object, action, false, effects);
    }

    /// Removes an open that is gone from the waits on an object. False if a later step continues.
    pub(super) fn forget_open(&mut self, object: u32, open: u32, effects: &mut Effects) -> bool {
        self.process_waiters_of(object, WaiterAction::Forget { open }, true, effects)
    }

    fn process_waiters_of(
        &mut self,
        object: u32,
        action: WaiterAction,
        ends_open: bool,
        effects: &mut Effects,
    ) -> bool {
        if action.open().is_some_and(|open| self.sync.opens[open].is_without_waits) {
            return true;
        }
        let before = self.sync.waits.begun();
        let scan = WaiterScan { object, action, before, behind: None, is_left: false, ends_open };
        self.process_waiters(scan, effects)
    }

    /// Processes waits until the step is spent; true if all were processed.
    pub(crate) fn process_waiters(&mut self, mut scan: WaiterScan, effects: &mut Effects) -> bool {
        let mut batch = Vec::new();
        loop {
            self.take_waiters(scan.object, scan.behind, &mut batch);
            if batch.is_empty() {
                break;
            }
            for (waiter, open) in batch.drain(..) {
                if self.is_spent() {
                    self.leave_waiters(scan);
                    return false;
                }
                self.spend(1);
                scan.behind = Some(waiter);
                if waiter.wait.number < scan.before {
                    self.process_waiter(scan.object, scan.action, waiter, open, effects);
                }
            }
        }
        if scan.is_left {
            if let Some(open) = scan.action.open().filter(|_| scan.ends_open) {
                self.sync.opens.remove(open);
            }
            self.release_reference(scan.object);
        }
        true
    }

    fn leave_waiters(&mut self, mut scan: WaiterScan) {
        if !scan.is_left {
            scan.is_left = true;
            self.sync.hold(scan.object);
        }
        // The waits through an open are its process's own. The open may be gone since the scan began.
        let payer = scan.action.open().and_then(|open| Some(self.sync.opens.get(open)?.process));
        self.leave(payer.unwrap_or_else(|| self.payer_for(scan.object)), Task::Waiters(scan));
    }

    fn process_waiter(
        &mut self,
        object: u32,
        action: WaiterAction,
        waiter: Waiter,
        open: Option<u32>,
        effects: &mut Effects,
    ) {
        match action {
            WaiterAction::Forget { open } => self.sync.waits.forget_open(waiter.wait.slot, waiter.item, open),
            WaiterAction::End { open: through, why } => {
                let Some(wait) = self.sync.waits.get(waiter.wait) else { return };
                if through.is_some() && open != through {
                    return;
                }
                // A call through another device: if the loss poisons the fence, the value ends the wait.
                let is_foreign = self.sync.waits.foreign_device(wait).is_some_and(|device| {
                    through.and_then(|open| self.sync.opens.get(open)?.device) != Some(device)
                });
                if why == EndOfWaits::DeviceLost && is_foreign {
                    return;
                }
                let (process, event) = match wait.owner() {
                    WaitOwner::Cpu { process, event } => (process, event),
                    WaitOwner::Gpu { queue } if through.is_none() => {
                        return self.release_queued(object, waiter, queue, effects);
                    }
                    // The object lives, and packets do not need the open.
                    WaitOwner::Gpu { .. } => return,
                    WaitOwner::SyncFile { sync_file } => {
                        self.end_wait(waiter.wait);
                        return self.sync_file_ready(sync_file, effects);
                    }
                };
                self.end_wait(waiter.wait);
                self.wake_early(process, event, why, effects);
            }
        }
    }

    /// Ends the CPU waits through a lost device for fences that were opened on other devices, in their order. False if the
    /// units of the step do not reach.
    pub(crate) fn end_foreign_waits(&mut self, device: u32, effects: &mut Effects) -> bool {
        while let Some(id) = self.processes.devices()[device].foreign_waits.first().copied() {
            if self.is_spent() {
                return false;
            }
            self.spend(1);
            if let Some(WaitOwner::Cpu { process, event }) = self.end_wait(id).map(|wait| wait.owner()) {
                self.wake_early(process, event, EndOfWaits::DeviceLost, effects);
            }
        }
        true
    }

    /// Notifies the owner of a CPU wait that has ended without its value.
    fn wake_early(&mut self, process: ProcessId, event: EventId, why: EndOfWaits, effects: &mut Effects) {
        let status = match (why, self.config.policy.destroyed_wait) {
            (EndOfWaits::FenceDestroyed, DestroyedWait::Success) => NtStatus::SUCCESS,
            (EndOfWaits::FenceDestroyed, DestroyedWait::DeviceRemoved) | (EndOfWaits::DeviceLost, _) => {
                NtStatus::DEVICE_REMOVED
            }
        };
        self.note(process, format!("wait {} ended: {}", event.0, why.words()), effects);
        self.wake(process, event, status, effects);
    }

    /// Marks the item of a queued wait as satisfied, because its fence is destroyed.
    fn release_queued(&mut self, object: u32, waiter: Waiter, queue: u32, effects: &mut Effects) {
        let compare = |entry: &Entry| self.sync.waits.compare(entry, waiter.wait, waiter.item);
        self.sync.objects.remove_waiter(object, waiter.value, compare);
        self.mark_monitored(object);
        if let Some(process) = self.vidsch.queues().get(queue).map(|queue| queue.process) {
            let text = format!("a queued wait for {} was released: its fence was destroyed", waiter.value);
            self.note(process, text, effects);
        }
        if self.sync.waits.latch(waiter.wait.slot, waiter.item) {
            self.complete_wait(waiter.wait, effects);
        }
    }

    /// The next waiters behind a position, each with the open that it was made through. A wait that ended meanwhile, as
    /// one that names the object twice does, is not among them.
    fn take_waiters(&self, object: u32, behind: Option<Waiter>, batch: &mut Vec<(Waiter, Option<u32>)>) {
        let waits = &self.sync.waits;
        let waiter_of = |entry: Entry| {
            let items = waits.items(waits.at(entry.wait));
            let waiter = Waiter { value: entry.key, wait: waits.id(entry.wait), item: entry.item };
            (waiter, items.as_ref()[entry.item as usize].open)
        };
        match behind {
            None => batch.extend(self.sync.objects.waiters(object).take(WAITERS_PER_BATCH).map(waiter_of)),
            Some(last) => {
                // The slot of the last may have another wait by now.
                let of_last = (last.wait.number, last.item);
                let compare = |entry: &Entry| (waits.id(entry.wait).number, entry.item).cmp(&of_last);
                let is_behind = |entry: &Entry| {
                    entry.key.cmp(&last.value).then_with(|| compare(entry)) == Ordering::Greater
                };
                let waiters = self.sync.objects.waiters_from(object, last.value, compare);
                batch.extend(waiters.filter(is_behind).take(WAITERS_PER_BATCH).map(waiter_of));
            }
        }
    }

    /// Leaves waits that the value of an object has reached to later steps, because they do not fit this one.
    #[cold]
    pub(super) fn leave_reached(&mut self, object: u32) {
        let (value, before) = (self.sync.objects.value(object), self.sync.waits.begun());
        let reached = Reached { value, before, behind: None };
        if self.vidsch.work_mut().backlog_mut().note_reached(object, reached) {
            self.sync.hold(object);
            self.leave(self.payer_for(object), Task::Wake(object));
        }
    }

    /// The process that pays for processing the waits on an object: the one whose task releases them, or the oldest
    /// open's.
    fn payer_for(&self, object: u32) -> ProcessId {
        let backlog = self.vidsch.work().backlog();
        let owner = || self.sync.objects.first_slot(object).map(|(process, _)| process);
        backlog.on_behalf_of().or_else(owner).unwrap_or(ProcessId(0))
    }

    /// Continues with the oldest value that reached more waits than fitted a step.
    pub(crate) fn wake_reached(&mut self, object: u32, effects: &mut Effects) {
        let Some(mut reached) = self.vidsch.work_mut().backlog_mut().take_reached(object) else { return };
        let mut batch = Vec::new();
        'waits: loop {
            self.take_waiters(object, reached.behind, &mut batch);
            if batch.is_empty() {
                break;
            }
            for (waiter, _) in batch.drain(..) {
                if waiter.value > reached.value {
                    break 'waits;
                }
                if self.is_spent() {
                    self.vidsch.work_mut().backlog_mut().keep_reached(object, reached);
                    self.leave(self.payer_for(object), Task::Wake(object));
                    return;
                }
                self.spend(1);
                if waiter.wait.number >= reached.before {
                    reached.behind = Some(waiter);
                    continue;
                }
                // One that names the object twice may have ended with the first of these.
                if !self.sync.waits.contains(waiter.wait) {
                    continue;
                }
                let compare = |entry: &Entry| self.sync.waits.compare(entry, waiter.wait, waiter.item);
                self.sync.objects.remove_waiter(object, waiter.value, compare);
                if self.sync.waits.latch(waiter.wait.slot, waiter.item) {
                    self.complete_wait(waiter.wait, effects);
                }
            }
        }
        self.mark_monitored(object);
        self.release_reference(object);
    }
}
