//! CPU signals and waits, and the effect of a new value on waits.

use d3dkmt::{
    EventId, Handle, NtStatus, Reply, ShareToken, SignalFlags, SyncObjectFlags, WaitFromCpuFlags, WaitOutcome,
};

use super::{IP, Kind, Naive, Verdict};

/// A waiter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Owner {
    Cpu {
        process: u32,
        event: u64,
    },
    /// A packet of a context.
    Gpu {
        context: usize,
    },
    SyncFile {
        vm: u32,
        token: ShareToken,
    },
}

impl Owner {
    pub fn is_packet(self) -> bool {
        matches!(self, Owner::Gpu { .. })
    }
}

/// One object of a call, with its value.
#[derive(Clone, Copy)]
pub struct Item {
    pub open: usize,
    pub object: usize,
    pub adapter: usize,
    pub value: u64,
    /// The value was reached at some time since the wait began (F-54, F-58).
    pub reached: bool,
}

pub struct Wait {
    pub owner: Owner,
    pub any: bool,
    pub items: Vec<Item>,
    /// The device of a CPU wait's call.
    pub device: Option<usize>,
    pub over: bool,
}

impl Wait {
    /// FEN-029
    pub fn is_satisfied(&self) -> bool {
        let reached = self.items.iter().filter(|item| item.reached).count();
        reached == self.items.len() || (self.any && reached > 0)
    }

    /// A packet keeps its objects alive; a CPU wait does not.
    pub fn holds(&self, object: usize) -> bool {
        self.owner.is_packet() && !self.over && self.items.iter().any(|item| item.object == object)
    }
}

impl Naive {
    /// The objects of a call and their errors. `forbidden` is the handle flag that denies the call (FEN-053).
    pub(super) fn items(
        &self,
        process: u32,
        adapter: Option<usize>,
        (objects, values): (&[Handle], &[u64]),
        forbidden: SyncObjectFlags,
    ) -> (Vec<Item>, Vec<NtStatus>) {
        let (mut items, mut mistakes) = (vec![], vec![]);
        // FEN-041, GPV-025
        if objects.is_empty() || objects.len() > 32 || objects.len() != values.len() {
            mistakes.push(IP);
        }
        for (handle, value) in objects.iter().zip(values) {
            let Some(open) = self.open_of(process, *handle) else {
                mistakes.push(IP);
                continue;
            };
            // FEN-042
            if adapter.is_some_and(|adapter| adapter != self.opens[open].adapter) {
                mistakes.push(IP);
            }
            // FEN-050, FEN-051
            if self.opens[open].flags.contains(forbidden) {
                mistakes.push(NtStatus::ACCESS_DENIED);
            }
            let object = self.opens[open].object;
            // EVT-005, EVT-006: only its driver signals it.
            if self.objects[object].flags.contains(SyncObjectFlags::SIGNAL_BY_KMD) {
                mistakes.push(IP);
            }
            let reached = self.objects[object].value >= *value;
            items.push(Item { open, object, adapter: self.opens[open].adapter, value: *value, reached });
        }
        (items, mistakes)
    }

    /// W-100 to W-103: CPUs signal and wait for monitored fences only.
    pub(super) fn not_monitored(&self, items: &[Item]) -> Vec<NtStatus> {
        let others = items.iter().any(|item| self.objects[item.object].kind != Kind::Monitored);
        if others { vec![IP] } else { vec![] }
    }

    /// An event id names one pending wait at a time.
    pub(super) fn is_waiting(&self, process: u32, event: u64) -> bool {
        self.waits.iter().any(|wait| !wait.over && wait.owner == Owner::Cpu { process, event })
            || self.acquires.iter().any(|one| !one.over && (one.process, one.event) == (process, event))
    }

    /// FEN-025: each value is stored and its waits are released before the next.
    pub(super) fn signal_from_cpu(
        &mut self,
        process: u32,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        let (items, wrong) = self.items(process, adapter, (objects, values), SyncObjectFlags::NO_SIGNAL);
        mistakes.extend(wrong);
        mistakes.extend(self.not_monitored(&items));
        // F-46: what a flag says of packets and their events means nothing here.
        if !SignalFlags::ALLOW_FENCE_REWIND.contains(flags) {
            mistakes.push(IP);
        }
        // W-109, also against values that the call itself signaled before (W-110).
        for (at, item) in items.iter().enumerate() {
            let before = items[..at].iter().rev().find(|before| before.object == item.object);
            let current = before.map_or(self.objects[item.object].value, |before| before.value);
            let lower = item.value < current && !self.is_beyond_signals(item.object);
            if lower && !flags.contains(SignalFlags::ALLOW_FENCE_REWIND) {
                mistakes.push(IP);
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        if self.rules.cpu_signal_after_answer {
            self.answered.extend(items.iter().map(|item| (item.object, item.value)));
            return Ok(Reply::None);
        }
        for item in items {
            self.set(item.object, item.value);
        }
        Ok(Reply::None)
    }

    pub(super) fn wait_from_cpu(
        &mut self,
        process: u32,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
        EventId(event): EventId,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let adapter = device.map(|device| self.devices[device].adapter);
        let (items, wrong) = self.items(process, adapter, (objects, values), SyncObjectFlags::NO_WAIT);
        mistakes.extend(wrong);
        mistakes.extend(self.not_monitored(&items));
        let owner = Owner::Cpu { process, event };
        if flags.unknown() != 0 || self.is_waiting(process, event) {
            mistakes.push(IP);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let Some(wait) = self.begin_wait(owner, flags.contains(WaitFromCpuFlags::WAIT_ANY), items) else {
            return Ok(Reply::Wait(WaitOutcome::Satisfied));
        };
        self.waits[wait].device = device;
        Ok(Reply::Wait(WaitOutcome::Registered))
    }

    /// A canceled wait never wakes; canceling an unknown wait has no effect.
    pub(super) fn cancel(&mut self, process: u32, EventId(event): EventId) -> Verdict {
        for wait in &mut self.waits {
            wait.over |= wait.owner == Owner::Cpu { process, event };
        }
        for acquire in &mut self.acquires {
            acquire.over |= (acquire.process, acquire.event) == (process, event);
        }
        Ok(Reply::None)
    }

    /// `None`: already satisfied (FEN-031).
    pub(super) fn begin_wait(&mut self, owner: Owner, any: bool, items: Vec<Item>) -> Option<usize> {
        let wait = Wait { owner, any, items, device: None, over: false };
        if wait.is_satisfied() {
            return None;
        }
        self.waits.push(wait);
        Some(self.waits.len() - 1)
    }

    pub(super) fn set(&mut self, object: usize, value: u64) {
        if self.is_beyond_signals(object) {
            return;
        }
        self.objects[object].poisoned = false;
        self.store_and_evaluate(object, value);
    }

    /// The hardware is notified of a native fence first (FEN-112).
    pub(super) fn store_and_evaluate(&mut self, object: usize, value: u64) {
        self.objects[object].value = value;
        self.notify_hardware(object, None);
        self.check_hardware_waits(self.now);
        self.evaluate_waits(object);
    }

    /// Releases waits for reached values (FEN-030): lowest value first, then order of arrival.
    pub(super) fn evaluate_waits(&mut self, object: usize) {
        let value = self.objects[object].value;
        let mut reached = vec![];
        for (number, wait) in self.waits.iter().enumerate() {
            for (at, item) in wait.items.iter().enumerate() {
                if !wait.over && item.object == object && !item.reached && item.value <= value {
                    reached.push((item.value, number, at));
                }
            }
        }
        reached.sort();
        for (_, wait, at) in reached {
            self.waits[wait].items[at].reached = true;
            if !self.waits[wait].over && self.waits[wait].is_satisfied() {
                self.end_wait(wait, NtStatus::SUCCESS);
            }
        }
        self.progress_is_made(object);
    }

    /// FEN-027, FEN-028: sets an event once, or lets a context proceed.
    pub(super) fn end_wait(&mut self, wait: usize, status: NtStatus) {
        self.waits[wait].over = true;
        match self.waits[wait].owner {
            Owner::Cpu { process, event } => self.woken.push((process, event, status)),
            Owner::Gpu { context } => self.able.push(context),
            Owner::SyncFile { vm, token } => self.ready.push((vm, token)),
        }
    }
}
