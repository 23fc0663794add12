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

use crate::ProcessId;
use crate::ddi::Agent;
use crate::effects::{Effects, FenceStore};
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::policy::CpuSignal;
use crate::process::Process;
use crate::sync::ordered::Entry;
use crate::sync::waits::{CpuWait, Wait, WaitId, WaitItem, WaitOwner, wait_bytes};
use crate::sync::{Open, is_mapped};

/// Waits that are prefetched at once: as many loads as a processor has outstanding.
const FETCHED_MAX: usize = 16;

/// Checks both arrays of a call against each other and the limit.
fn check_counts(what: &str, objects: usize, values: usize, most: usize) -> Result<(), Refusal> {
    if objects == 0 || objects > most {
        return invalid(format!("{what} takes 1 to {most} objects, not {objects}"));
    }
    if objects != values {
        return invalid(format!("{objects} objects but {values} values"));
    }
    Ok(())
}

/// Units of work of sweeping a chunk of stale names.
const UNITS_OF_A_CHUNK: u32 = 16;

impl Kernel {
    /// `SignalSynchronizationObjectFromCpu`: all or nothing.
    pub(crate) fn signal_from_cpu(
        &mut self,
        process: ProcessId,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        flags: SignalFlags,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let owner = self.attached(process)?;
        let device = owner.device(device)?;
        self.require_active(device)?;
        if !SignalFlags::ALLOW_FENCE_REWIND.contains(flags) {
            return invalid(format!("signal flags {:#x} are not for a CPU signal", flags.bits()));
        }
        check_counts("a signal", objects.len(), values.len(), limits::OBJECTS_SIGNALED_MAX)?;
        let adapter = self.processes.devices()[device].adapter;
        let mut targets = [0u32; limits::OBJECTS_SIGNALED_MAX];
        for (at, handle) in objects.iter().enumerate() {
            let (open, object) = owner.sync_object(*handle)?;
            targets[at] = object;
            if !self.sync.objects.is_plain_on(object, adapter) {
                self.check_monitored(open, object, device, *handle)?;
                self.check_not_periodic(object, *handle)?;
                self.check_right(open, object, SyncObjectFlags::NO_SIGNAL)?;
            }
            // An object may be named twice: the value it has by then counts.
            let earlier = targets[..at].iter().rposition(|other| *other == object);
            let current = earlier.map_or(self.sync.objects.value(object), |earlier| values[earlier]);
            let may_go_back =
                || flags.contains(SignalFlags::ALLOW_FENCE_REWIND) || self.is_beyond_signals(object);
            if values[at] < current && !may_go_back() {
                let why = format!("signal {} of {handle} is below its value {current}", values[at]);
                return invalid(why);
            }
            self.check_signal_window((object, adapter), current, values[at], *handle)?;
        }
        self.report_fence_use(process, objects, effects);
        for (object, value) in targets.iter().zip(values) {
            match self.config.policy.cpu_signal {
                CpuSignal::AtOnce => self.apply_cpu_signal(process, *object, *value, effects),
                // Nothing comes between the answer and the effect, so what was checked here still holds then.
                CpuSignal::AfterAnswer => {
                    self.sync.objects.hold(*object);
                    self.sync.answered.push((process, *object, *value));
                }
            }
        }
        Ok(())
    }

    /// Applies a signal from the CPU that was checked.
    #[inline(always)]
    fn apply_cpu_signal(&mut self, process: ProcessId, object: u32, value: u64, effects: &mut Effects) {
        self.note_unusual(process, object, value, effects);
        self.report_signal(Agent::Process(process), object, value);
        self.set_value(object, value, effects);
    }

    /// Applies the signals from the CPU that were answered before.
    #[inline]
    pub(crate) fn apply_answered_signal(&mut self, effects: &mut Effects) {
        for (process, object, value) in core::mem::take(&mut self.sync.answered) {
            self.act_for(process);
            self.apply_cpu_signal(process, object, value, effects);
            self.release_reference(object);
        }
    }

    /// `WaitForSynchronizationObjectFromCpu`.
    pub(crate) fn wait_from_cpu(
        &mut self,
        process: ProcessId,
        device: Handle,
        objects: &[Handle],
        values: &[u64],
        CpuWait { flags, event }: CpuWait,
        effects: &mut Effects,
    ) -> CallResult {
        let owner = self.attached(process)?;
        let device = owner.device(device)?;
        self.require_active(device)?;
        if flags.unknown() != 0 {
            return invalid(format!("wait flags {:#x} have reserved bits set", flags.bits()));
        }
        check_counts("a wait", objects.len(), values.len(), limits::OBJECTS_WAITED_ON_MAX)?;
        let adapter = self.processes.devices()[device].adapter;
        let item = |(handle, value): (&Handle, &u64)| {
            let (open, object) = owner.sync_object(*handle)?;
            if !self.sync.objects.is_plain_on(object, adapter) {
                self.check_monitored(open, object, device, *handle)?;
                if !self.may_wait_beyond_adapter(open, object) {
                    self.check_right(open, object, SyncObjectFlags::NO_WAIT)?;
                }
            }
            self.check_wait_window((object, adapter), *value, *handle)?;
            let (handle, value) = (*handle, *value);
            Ok(WaitItem { object, open: Some(open), handle, value, satisfied: false })
        };
        // Most waits are for one object and need no list.
        let (mut single, mut list);
        let items: &mut [WaitItem] = if let ([handle], [value]) = (objects, values) {
            single = [item((handle, value))?];
            &mut single
        } else {
            list = objects.iter().zip(values).map(item).collect::<Result<Vec<_>, _>>()?;
            &mut list
        };
        self.require_free_event(process, owner, event)?;
        // A process with one device has opened its fences there.
        let is_own =
            |item: &WaitItem| item.open.is_some_and(|open| self.sync.opens[open].device == Some(device));
        let is_foreign = owner.devices.len() > 1 && !items.iter().all(is_own);
        self.require_memory(process, wait_bytes(items.len(), is_foreign))?;
        let any = flags.contains(WaitFromCpuFlags::WAIT_ANY);
        self.note_zero_wait(process, items, effects);
        self.report_fence_use(process, objects, effects);
        let foreign_device = is_foreign.then_some(device);
        match self.begin_wait_through(WaitOwner::Cpu { process, event }, foreign_device, any, &mut *items) {
            None => {
                items.iter().for_each(|item| self.publish_engine_write(item.object, effects));
                Ok(Reply::Wait(WaitOutcome::Satisfied))
            }
            Some(wait) => {
                let owner = self.processes.get_mut(process).expect("it makes the call");
                owner.waits.insert(process, event, wait.slot, &self.sync.waits);
                Ok(Reply::Wait(WaitOutcome::Registered))
            }
        }
    }

    /// Notes a wait for the value 0, which every fence has reached: the D3D12 debug layer warns of it (FEN-132).
    #[inline]
    pub(crate) fn note_zero_wait(&self, process: ProcessId, items: &[WaitItem], effects: &mut Effects) {
        if let Some(item) = items.iter().find(|item| item.value == 0) {
            let text = format!("FENCE_ZERO_WAIT 1424: a wait for 0 of {} never waits", item.handle);
            self.note(process, text, effects);
        }
    }

    /// Refuses a wait, or the acquire of a keyed mutex, whose name is in use, and one above the limit.
    pub(crate) fn require_free_event(
        &self,
        process: ProcessId,
        owner: &Process,
        event: EventId,
    ) -> Result<(), Refusal> {
        let Process { waits, acquires, .. } = owner;
        if waits.find(process, event, &self.sync.waits).is_some() || acquires.contains_key(&event) {
            return invalid(format!("event {} already names a pending wait", event.0));
        }
        let pending = waits.len() + acquires.len();
        if pending >= limits::WAITS_PER_PROCESS_MAX {
            let why = format!("the process has {pending} pending waits, the limit");
            return refuse(NtStatus::NO_MEMORY, why);
        }
        Ok(())
    }

    /// Cancels a wait. A wait that has just ended is no error: the wake-up is under way.
    pub(crate) fn cancel_wait(&mut self, process: ProcessId, event: EventId) -> CallResult {
        self.cancel_acquire(process, event);
        if let Some(slot) = self.process(process).waits.find(process, event, &self.sync.waits) {
            self.end_wait(self.sync.waits.id(slot));
        }
        Ok(Reply::None)
    }

    /// CPU operations accept monitored fences only, periodic and native ones included, whatever the value (W-100 to
    /// W-103).
    ///
    /// An open may be on another adapter than its object (FEN-047); most are not, and are not fetched for this.
    pub(crate) fn check_monitored(
        &self,
        open: u32,
        object: u32,
        device: u32,
        handle: Handle,
    ) -> Result<(), Refusal> {
        let object = &self.sync.objects[object];
        if !is_mapped(object.object_type) {
            return invalid(format!("{handle} is a {}, not a monitored fence", object.object_type.name()));
        }
        if object.adapter == self.processes.devices()[device].adapter
            && !object.flags.contains(SyncObjectFlags::CROSS_ADAPTER)
        {
            return Ok(());
        }
        self.check_adapter(self.sync.opens[open].adapter, device, handle)
    }

    pub(crate) fn check_adapter(&self, adapter: u32, device: u32, handle: Handle) -> Result<(), Refusal> {
        if adapter != self.processes.devices()[device].adapter {
            return invalid(format!("{handle} is on another adapter than the device"));
        }
        Ok(())
    }

    /// NoSignal and NoWait of an open (FEN-050, FEN-051).
    pub(crate) fn check_right(
        &self,
        open: u32,
        object: u32,
        denied_by: SyncObjectFlags,
    ) -> Result<(), Refusal> {
        self.require_present_open(open, object)?;
        if self.sync.objects.may(object, open, denied_by, &self.sync.opens) {
            return Ok(());
        }
        let Open { handle, mapping, .. } = &self.sync.opens[open];
        let why = match mapping.paging_queue {
            Some(_) => format!("{handle} is the fence of a paging queue, which the kernel alone signals"),
            None => format!(
                "{handle} has no such right: created or opened with {denied_by:?}, or by an NT handle without it"
            ),
        };
        refuse(NtStatus::ACCESS_DENIED, why)
    }

    /// Registers a wait, or finds that it is satisfied: `None`.
    pub(crate) fn begin_wait(
        &mut self,
        owner: WaitOwner,
        any: bool,
        items: impl AsMut<[WaitItem]>,
    ) -> Option<WaitId> {
        self.begin_wait_through(owner, None, any, items)
    }

    /// [`Kernel::begin_wait`], with the device of the call if an item was opened on another one.
    fn begin_wait_through(
        &mut self,
        owner: WaitOwner,
        foreign_device: Option<u32>,
        any: bool,
        mut items: impl AsMut<[WaitItem]>,
    ) -> Option<WaitId> {
        let items = items.as_mut();
        let mut unsatisfied = 0;
        let is_queued = matches!(owner, WaitOwner::Gpu { .. });
        for item in &mut *items {
            item.satisfied = self.sync.objects.value(item.object) >= item.value
                || self.sync.objects.is_poisoned(item.object)
                || (is_queued && self.sync.objects[item.object].is_destroyed());
            unsatisfied += u32::from(!item.satisfied);
        }
        if unsatisfied == 0 || (any && (unsatisfied as usize) < items.len()) {
            if self.happens_before.is_on() {
                self.wait_is_over(None, owner, items);
            }
            return None;
        }
        let payer = match owner {
            WaitOwner::Cpu { process, .. } => Some(process),
            WaitOwner::Gpu { queue } => Some(self.vidsch.queues()[queue].process),
            WaitOwner::SyncFile { .. } => None,
        };
        let id = self.sync.waits.insert(owner, foreign_device, payer, any, items, self.now);
        if let Some(device) = foreign_device {
            self.processes.device_mut(device).foreign_waits.insert(id);
        }
        if let Some(payer) = payer {
            self.processes.charge(payer, wait_bytes(items.len(), foreign_device.is_some()));
        }
        for (at, item) in items.iter().enumerate() {
            if !item.satisfied {
                if let Some(open) = item.open.filter(|_| !self.sync.objects.is_plain(item.object))
                    && let Some(open) = self.sync.opens.get_mut(open)
                {
                    open.is_without_waits = false;
                }
                let entry = Entry { key: item.value, wait: id.slot, item: at as u32 };
                self.sync.objects.add_waiter(item.object, entry);
            }
            if is_queued {
                self.sync.objects.hold(item.object);
            }
            self.mark_monitored(item.object);
        }
        Some(id)
    }

    /// Removes a wait from every table. The caller notifies its owner.
    pub(crate) fn end_wait(&mut self, id: WaitId) -> Option<Wait> {
        let pending = self.sync.waits.get(id)?;
        let (payer, bytes) = (self.sync.waits.payer(pending), self.sync.waits.bytes(pending));
        if let Some(device) = self.sync.waits.foreign_device(pending)
            && let Some(device) = self.processes.find_device_mut(device)
        {
            device.foreign_waits.remove(&id);
        }
        let (wait, items) = self.sync.waits.remove(id)?;
        for (at, item) in items.as_ref().iter().enumerate() {
            if !item.satisfied {
                let compare = |entry: &Entry| self.sync.waits.compare(entry, id, at as u32);
                self.sync.objects.remove_waiter(item.object, item.value, compare);
                self.mark_monitored(item.object);
            }
        }
        if let WaitOwner::Gpu { .. } = wait.owner() {
            if let Some(payer) = payer {
                self.processes.release(payer, bytes);
            }
            for item in items.as_ref() {
                self.release_reference(item.object);
            }
        } else {
            self.release_wait(&wait, bytes);
        }
        Some(wait)
    }

    /// Releases the name and the charge of a CPU wait that was removed.
    fn release_wait(&mut self, wait: &Wait, bytes: u64) {
        // The share or the open of a sync file keeps the object of its wait alive, and pays for it.
        let WaitOwner::Cpu { process, .. } = wait.owner() else { return };
        let chunks = self.processes.forget_wait(process, bytes, &self.sync.waits);
        if chunks > 0 {
            self.spend(chunks * UNITS_OF_A_CHUNK);
        }
    }

    /// The one place where the kernel changes the value of a fence: it stores the value for every process
    /// that has the fence open, then evaluates waits.
    #[inline(always)]
    pub(crate) fn set_value(&mut self, object: u32, value: u64, effects: &mut Effects) {
        if self.ignores_value(object, value, effects) {
            return;
        }
        self.store_value(object, value, effects);
        if self.sync.objects.is_watched(object) {
            self.update_current_value(object, effects);
        }
        self.evaluate(object, effects);
    }

    /// Sets the value and stores it, without evaluating waits, as an engine's write does (FEN-018).
    #[inline]
    pub(crate) fn store_value(&mut self, object: u32, value: u64, effects: &mut Effects) {
        if self.planted.is_some() && self.stores_stale(object, value, effects) {
            return;
        }
        self.sync.objects.set_value(object, value);
        self.publish_value(object, value, effects);
    }

    /// An engine of this adapter wrote a fence. Without I/O coherency the CPU's caches keep the old value of a
    /// monitored fence until the interrupt (FEN-007, [`Self::publish_engine_write`]).
    pub(crate) fn store_from_engine(&mut self, adapter: u32, object: u32, value: u64, effects: &mut Effects) {
        let is_monitored = self.sync.objects[object].object_type == SyncObjectType::MONITORED_FENCE;
        if is_monitored && !self.config.adapters[adapter as usize].io_coherent {
            self.sync.objects.set_value(object, value);
        } else {
            self.store_value(object, value, effects);
        }
    }

    /// Stores the value of a fence that an engine without I/O coherency may have written past the CPU's caches.
    #[inline]
    pub(crate) fn publish_engine_write(&mut self, object: u32, effects: &mut Effects) {
        if !self.is_io_coherent() {
            self.publish_value(object, self.sync.objects.value(object), effects);
        }
    }

    /// Stores the value of a fence in the memory of each process that has it open.
    fn publish_value(&mut self, object: u32, value: u64, effects: &mut Effects) {
        if self.happens_before.is_on() {
            self.report_readers(object, value);
        }
        if let Some(stored) = self.sync.stored.of(object) {
            for store in &mut effects.stores[stored] {
                store.value = value;
            }
            return;
        }
        let begin = effects.stores.len();
        if let Some((process, slot)) = self.sync.objects.first_slot(object) {
            effects.stores.push(FenceStore { process, slot, value });
        }
        for open in self.sync.objects.other_opens(object) {
            let open = &self.sync.opens[*open];
            if let Some(slot) = open.slot {
                effects.stores.push(FenceStore { process: open.process, slot, value });
            }
        }
        self.sync.stored.note(object, begin..effects.stores.len());
    }

    /// Reports that each process with the fence in its memory may read the value from now on, without a call.
    fn report_readers(&mut self, object: u32, value: u64) {
        let first = self.sync.objects.first_slot(object).map(|(process, _)| process);
        let others = self.sync.objects.other_opens(object).iter().map(|open| &self.sync.opens[*open]);
        let others = others.filter(|open| open.slot.is_some()).map(|open| open.process);
        for process in first.into_iter().chain(others).collect::<Vec<_>>() {
            self.report_wait(Agent::Process(process), object, value);
        }
    }

    /// Latches every wait that the object's present value satisfies, and ends those that are complete.
    #[inline(always)]
    pub(crate) fn evaluate(&mut self, object: u32, effects: &mut Effects) {
        let is_watched = self.sync.objects.is_watched(object);
        if self.sync.objects.may_wake(object) || is_watched || self.planted.is_some() {
            self.evaluate_waits(object, is_watched, effects);
        }
    }

    fn evaluate_waits(&mut self, object: u32, is_watched: bool, effects: &mut Effects) {
        let events = effects.events.len();
        let mut fetched = 0;
        while !self.is_left_reached(object)
            && let Some(entry) = self.sync.objects.pop_reached(object)
        {
            self.spend(1);
            if fetched == 0 && self.sync.objects.may_wake(object) {
                fetched = self.fetch_reached(object);
            }
            fetched = fetched.saturating_sub(1);
            // Most waits are for one object: each table is visited once for these.
            if !self.happens_before.is_on()
                && let Some(wait) = self.sync.waits.remove_single(entry.wait)
            {
                self.release_wait(&wait, wait_bytes(1, false));
                self.wake_owner(&wait, effects);
            } else if self.sync.waits.latch(entry.wait, entry.item) {
                self.complete_wait(self.sync.waits.id(entry.wait), effects);
            }
        }
        if self.planted.is_some() {
            self.evaluate_wrongly(object, events, effects);
        }
        if is_watched {
            self.complete_progress(object);
            self.mark_monitored(object);
        }
    }

    /// Whether waits that a value has reached are left for later steps.
    #[inline]
    fn is_left_reached(&mut self, object: u32) -> bool {
        let is_left = self.is_spent()
            && self
                .sync
                .objects
                .waiters(object)
                .next()
                .is_some_and(|first| first.key <= self.sync.objects.value(object));
        if is_left {
            self.leave_reached(object);
        }
        is_left
    }

    /// Prefetches the next of the waits that this object's value has reached; returns how many. Of a million waits
    /// those of one fence are scattered over the table, and each would take longer to load than to end.
    fn fetch_reached(&self, object: u32) -> usize {
        let value = self.sync.objects.value(object);
        let reached = self.sync.objects.waiters(object).take_while(|entry| entry.key <= value);
        reached.take(FETCHED_MAX).map(|entry| self.sync.waits.fetch(entry.wait)).count()
    }

    pub(crate) fn complete_wait(&mut self, id: WaitId, effects: &mut Effects) {
        if self.happens_before.is_on()
            && let Some(wait) = self.sync.waits.get(id)
        {
            let (owner, items) = (wait.owner(), self.sync.waits.items(wait).as_ref().to_vec());
            self.wait_is_over(Some(id), owner, &items);
        }
        if let Some(wait) = self.end_wait(id) {
            self.wake_owner(&wait, effects);
        }
    }

    /// Notifies the owner of a wait that has ended with its values reached.
    fn wake_owner(&mut self, wait: &Wait, effects: &mut Effects) {
        match wait.owner() {
            WaitOwner::Cpu { process, event } => self.wake(process, event, NtStatus::SUCCESS, effects),
            WaitOwner::Gpu { queue } => self.vidsch.work_mut().run_queue(queue),
            WaitOwner::SyncFile { sync_file } => self.sync_file_ready(sync_file, effects),
        }
    }
}
