//! Signals and waits.
//!
//! A wait is registered with each object whose value it still needs. Each time an object's value
//! changes, the waits at or below the new value latch: what was reached once stays reached for that
//! wait, whatever the value does next (FEN-033). A wait for all ends with its last latch, a wait for
//! any with its first. CPU waits and the waits in context queues are the same thing with other owners.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{
    EventId, Handle, NtStatus, Reply, SignalFlags, SyncObjectFlags, SyncObjectType, WaitFromCpuFlags,
    WaitOutcome, limits,
};

use crate::ddi::Miniport;
use crate::effects::{Effects, FenceStore};
use crate::kernel::{Called, Kernel, Refusal, invalid, refuse};
use crate::{Nanos, ProcessId};

/// A pending wait: numbers only go up, so that waits for one value end in the order they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaitId(pub u64);

/// Place of one item of a wait among an object's waiters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WaitKey {
    pub value: u64,
    pub wait: WaitId,
    pub item: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOwner {
    /// A thread or an event of a process.
    Cpu { process: ProcessId, event: EventId },
    /// A queue of packets.
    Gpu { queue: u32 },
}

#[derive(Clone, Debug)]
pub(crate) struct WaitItem {
    pub object: u32,
    /// The open it was made through. Only while that open lives.
    pub open: Option<u32>,
    /// The handle it was made through, for people: the open's index may be reused.
    pub handle: Handle,
    pub value: u64,
    pub satisfied: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub owner: WaitOwner,
    pub any: bool,
    pub unsatisfied: u32,
    pub items: Vec<WaitItem>,
    pub since: Nanos,
}

/// Both arrays of a call, checked against each other and the limit.
fn check_counts(what: &str, objects: usize, values: usize, most: usize) -> Result<(), Refusal> {
    if objects == 0 || objects > most {
        return invalid(format!("{what} takes 1 to {most} objects, not {objects}"));
    }
    if objects != values {
        return invalid(format!("{objects} objects but {values} values"));
    }
    Ok(())
}

impl<M: Miniport> Kernel<M> {
    /// `SignalSynchronizationObjectFromCpu`: all or nothing.
    pub(crate) fn signal_from_cpu(
        &mut self,
        process: ProcessId,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
        effects: &mut Effects,
    ) -> Called {
        let device = self.active_device(process, device)?;
        if !SignalFlags::ALLOW_FENCE_REWIND.contains(flags) {
            return invalid(format!("signal flags {:#x} are not for a CPU signal", flags.bits()));
        }
        check_counts("a signal", objects.len(), values.len(), limits::OBJECTS_SIGNALED_MAX)?;
        let mut targets = [0u32; limits::OBJECTS_SIGNALED_MAX];
        for (at, handle) in objects.iter().enumerate() {
            let (open, object) = self.sync_object(process, *handle)?;
            targets[at] = object;
            self.check_monitored(open, object, device, *handle)?;
            self.check_right(open, SyncObjectFlags::NO_SIGNAL)?;
            // An object may be named twice: the value it has by then counts.
            let earlier = targets[..at].iter().rposition(|other| *other == object);
            let current = earlier.map_or(self.objects[object].value, |earlier| values[earlier]);
            if values[at] < current && !flags.contains(SignalFlags::ALLOW_FENCE_REWIND) {
                let why = format!("signal {} of {handle} is below its value {current}", values[at]);
                return invalid(why);
            }
        }
        for (object, value) in targets.iter().zip(values) {
            self.set_value(*object, *value, effects);
        }
        Ok(Reply::None)
    }

    /// `WaitForSynchronizationObjectFromCpu`.
    pub(crate) fn wait_from_cpu(
        &mut self,
        process: ProcessId,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: WaitFromCpuFlags,
        event: EventId,
    ) -> Called {
        let device = self.active_device(process, device)?;
        if flags.unknown() != 0 {
            return invalid(format!("wait flags {:#x} have reserved bits set", flags.bits()));
        }
        check_counts("a wait", objects.len(), values.len(), limits::OBJECTS_WAITED_ON_MAX)?;
        let mut items = Vec::with_capacity(objects.len());
        for (handle, value) in objects.iter().zip(values) {
            let (open, object) = self.sync_object(process, *handle)?;
            self.check_monitored(open, object, device, *handle)?;
            self.check_right(open, SyncObjectFlags::NO_WAIT)?;
            let (handle, value) = (*handle, *value);
            items.push(WaitItem { object, open: Some(open), handle, value, satisfied: false });
        }
        let pending = &self.process(process).waits;
        if pending.contains_key(&event) {
            return invalid(format!("event {} already names a pending wait", event.0));
        }
        if pending.len() >= limits::WAITS_PER_PROCESS_MAX {
            let why = format!("the process has {} pending waits, the limit", pending.len());
            return refuse(NtStatus::NO_MEMORY, why);
        }
        let any = flags.contains(WaitFromCpuFlags::WAIT_ANY);
        match self.begin_wait(WaitOwner::Cpu { process, event }, any, items) {
            None => Ok(Reply::Wait(WaitOutcome::Satisfied)),
            Some(wait) => {
                self.process_mut(process).waits.insert(event, wait);
                Ok(Reply::Wait(WaitOutcome::Registered))
            }
        }
    }

    /// The guest no longer waits. A wait that has just ended is no error: the wake-up is under way.
    pub(crate) fn cancel_wait(&mut self, process: ProcessId, event: EventId) -> Called {
        if let Some(wait) = self.process(process).waits.get(&event).copied() {
            // A CPU wait holds no reference, so nothing else can end by this.
            self.end_wait(wait, &mut Effects::default());
        }
        Ok(Reply::None)
    }

    /// CPU operations take monitored fences only, whatever the value (W-100 to W-103).
    fn check_monitored(&self, open: u32, object: u32, device: u32, handle: Handle) -> Result<(), Refusal> {
        let object = &self.objects[object];
        if !matches!(object.object_type, SyncObjectType::MONITORED_FENCE | SyncObjectType::NATIVE_FENCE) {
            return invalid(format!("{handle} is a {}, not a monitored fence", object.object_type.name()));
        }
        self.check_adapter(self.adapter_of_open(open), device, handle)
    }

    pub(crate) fn check_adapter(&self, adapter: u32, device: u32, handle: Handle) -> Result<(), Refusal> {
        if adapter != self.devices[device].adapter {
            return invalid(format!("{handle} is on another adapter than the device"));
        }
        Ok(())
    }

    /// NoSignal and NoWait of an open (FEN-050, FEN-051).
    pub(crate) fn check_right(&self, open: u32, denied_by: SyncObjectFlags) -> Result<(), Refusal> {
        let open = &self.opens[open];
        if open.flags.intersects(denied_by) {
            let why = format!("{} was created or opened with {denied_by:?}", open.handle);
            return refuse(NtStatus::ACCESS_DENIED, why);
        }
        Ok(())
    }

    /// Registers a wait, or finds that it is satisfied: `None`.
    pub(crate) fn begin_wait(
        &mut self,
        owner: WaitOwner,
        any: bool,
        mut items: Vec<WaitItem>,
    ) -> Option<WaitId> {
        let mut unsatisfied = 0;
        for item in &mut items {
            item.satisfied = self.objects[item.object].value >= item.value;
            unsatisfied += u32::from(!item.satisfied);
        }
        if unsatisfied == 0 || (any && (unsatisfied as usize) < items.len()) {
            return None;
        }
        let id = WaitId(self.waits_begun);
        self.waits_begun += 1;
        for (at, item) in items.iter().enumerate() {
            let object = &mut self.objects[item.object];
            if !item.satisfied {
                object.waiters.insert(WaitKey { value: item.value, wait: id, item: at as u32 });
            }
            if matches!(owner, WaitOwner::Gpu { .. }) {
                object.references += 1;
            }
            self.mark_monitored(item.object);
        }
        self.waits.insert(id, Wait { owner, any, unsatisfied, items, since: self.now });
        Some(id)
    }

    /// Takes a wait out of every table. Who is to be told is the caller's business.
    pub(crate) fn end_wait(&mut self, id: WaitId, effects: &mut Effects) -> Option<Wait> {
        let wait = self.waits.remove(&id)?;
        for (at, item) in wait.items.iter().enumerate() {
            if !item.satisfied {
                let key = WaitKey { value: item.value, wait: id, item: at as u32 };
                self.objects[item.object].waiters.remove(&key);
                self.mark_monitored(item.object);
            }
        }
        match wait.owner {
            WaitOwner::Cpu { process, event } => {
                self.process_mut(process).waits.remove(&event);
            }
            WaitOwner::Gpu { .. } => {
                for item in &wait.items {
                    self.release_reference(item.object, effects);
                }
            }
        }
        Some(wait)
    }

    /// The one place where a fence changes its value by the kernel's hand: every process that has it
    /// open gets the store, then waits are looked at.
    pub(crate) fn set_value(&mut self, object: u32, value: u64, effects: &mut Effects) {
        if self.is_always_signaled(object) {
            return;
        }
        self.store_value(object, value, effects);
        self.update_current_value(object, effects);
        self.evaluate(object, effects);
    }

    /// The value and its stores, waits not looked at: what an engine's write does (FEN-018).
    pub(crate) fn store_value(&mut self, object: u32, value: u64, effects: &mut Effects) {
        if self.planted.is_some() && self.stores_stale(object, value, effects) {
            return;
        }
        let state = &mut self.objects[object];
        state.value = value;
        let (step, begin) = state.stored;
        if step == self.step {
            // Nobody can see what stood there for no time at all: a step stores a fence once, however
            // often a command buffer writes it.
            for store in &mut effects.stores[begin..begin + state.slots] {
                store.value = value;
            }
            return;
        }
        let begin = effects.stores.len();
        for open in &state.opens {
            let open = &self.opens[*open];
            if let Some(slot) = open.slot {
                effects.stores.push(FenceStore { process: open.process, slot, value });
            }
        }
        state.stored = (self.step, begin);
        state.slots = effects.stores.len() - begin;
    }

    /// Latches every wait that the object's present value satisfies, and ends those that are complete.
    pub(crate) fn evaluate(&mut self, object: u32, effects: &mut Effects) {
        // Ending a wait may drop the last reference; hold one meanwhile.
        self.objects[object].references += 1;
        let events = effects.events.len();
        loop {
            let state = &mut self.objects[object];
            let Some(key) = state.waiters.first().copied().filter(|key| key.value <= state.value) else {
                break;
            };
            state.waiters.remove(&key);
            let wait = self.waits.get_mut(&key.wait).expect("waiters name pending waits");
            wait.items[key.item as usize].satisfied = true;
            wait.unsatisfied -= 1;
            if wait.any || wait.unsatisfied == 0 {
                self.complete_wait(key.wait, effects);
            }
        }
        if self.planted.is_some() {
            self.evaluate_wrongly(object, events, effects);
        }
        self.complete_progress(object, effects);
        self.mark_monitored(object);
        self.release_reference(object, effects);
    }

    /// The least value of an object that a registered wait needs.
    pub(crate) fn least_waited(&self, object: u32) -> Option<u64> {
        self.objects.get(object)?.waiters.first().map(|key| key.value)
    }

    pub(crate) fn complete_wait(&mut self, id: WaitId, effects: &mut Effects) {
        match self.end_wait(id, effects).map(|wait| wait.owner) {
            Some(WaitOwner::Cpu { process, event }) => self.wake(process, event, NtStatus::SUCCESS, effects),
            Some(WaitOwner::Gpu { queue }) => self.runnable.push_back(queue),
            None => {}
        }
    }
}
