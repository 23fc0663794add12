//! Queued acquires and releases of mutexes and semaphores. See `legacy.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;

use d3dkmt::{DeviceExecutionState, Handle, NtStatus, SyncObjectType};

use super::legacy::{Acquire, Kind, MutexOwner, is_acquired};
use crate::ProcessId;
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::policy::{AbandonedMutex, ForeignMutexRelease, SemaphoreOverflow};
use crate::vidsch::{Packet, Queue, Signal, Task};

impl Kernel {
    /// Acquires the objects of the head of a queue, if it is an acquire; true if it did.
    pub(crate) fn try_acquire(&mut self, queue: u32, effects: &mut Effects) -> bool {
        let state = &self.vidsch.queues()[queue];
        let Some(Packet::Acquire(acquire)) = state.packets.front() else { return false };
        let values_missing = acquire.wait.is_some_and(|wait| self.sync.waits.contains(wait));
        if !state.is_idle() || values_missing {
            return false;
        }
        let of_others =
            || acquire.objects.iter().find(|one| self.sync.legacy.is_being_served(**one)).copied();
        let stands_in_line = acquire.position.is_some();
        let Some(lacks) = self.lacks(queue).or_else(of_others) else { return self.acquire(queue, effects) };
        if !stands_in_line {
            self.line_up(queue, lacks);
        }
        false
    }

    /// The first object that the head of this queue cannot acquire now; `None` if it can acquire all.
    fn lacks(&self, queue: u32) -> Option<u32> {
        let Some(Packet::Acquire(acquire)) = self.vidsch.queues()[queue].packets.front() else { return None };
        let me = self.mutex_owner(queue);
        let has = |object: &u32| match self.sync.legacy.objects[object].kind {
            Kind::Mutex { owner } => owner.is_none_or(|owner| owner == me),
            Kind::Semaphore { .. } => self.sync.objects.value(*object) >= acquire.takes(*object),
            Kind::Notification { .. } => false,
        };
        acquire.objects.iter().find(|object| !has(object)).copied()
    }

    fn mutex_owner(&self, queue: u32) -> MutexOwner {
        let Queue { process, context, .. } = self.vidsch.queues()[queue];
        MutexOwner { process, by: self.vidsch.contexts()[context].handle }
    }

    /// Acquires the objects of the head of this queue, and removes the packet. False if the head is no acquire.
    fn acquire(&mut self, queue: u32, effects: &mut Effects) -> bool {
        let owner = self.mutex_owner(queue);
        let packets = &mut self.vidsch.queue_mut(queue).packets;
        if !matches!(packets.front(), Some(Packet::Acquire(_))) {
            return false;
        }
        let Some(packet) = packets.pop_front() else { return false };
        self.processes.unqueue_bytes(owner.process, packet.weight());
        let Packet::Acquire(acquire) = packet else { return false };
        let by = self.agent(queue);
        acquire.objects.iter().for_each(|object| self.report_wait(by, *object, 0));
        if let Some(wait) = acquire.wait {
            self.report_ended_wait(by, wait);
        }
        for object in &acquire.objects {
            match self.sync.legacy.objects[object].kind {
                Kind::Mutex { .. } => {
                    self.sync.legacy.set_owner(*object, Some(owner));
                    self.store_value(*object, 1, effects);
                }
                Kind::Semaphore { .. } => {
                    let count = self.sync.objects.value(*object) - 1;
                    self.store_value(*object, count, effects);
                }
                Kind::Notification { .. } => {}
            }
        }
        self.drop_acquire(acquire);
        true
    }

    fn line_up(&mut self, queue: u32, lacks: u32) {
        let Some(Packet::Acquire(acquire)) = self.vidsch.queue_mut(queue).packets.front_mut() else { return };
        let position = self.sync.legacy.arrivals;
        self.sync.legacy.arrivals += 1;
        (acquire.position, acquire.since) = (Some(position), self.now);
        for object in &acquire.objects {
            if let Some(state) = self.sync.legacy.objects.get_mut(object) {
                state.line.insert(position, queue);
            }
        }
        self.watch(queue, lacks);
    }

    /// Registers a queue in line to be tried again when this object becomes available.
    fn watch(&mut self, queue: u32, lacks: u32) {
        let Some(Packet::Acquire(acquire)) = self.vidsch.queue_mut(queue).packets.front_mut() else { return };
        self.sync.legacy.unwatch(acquire);
        acquire.watches = Some(lacks);
        if let Some(position) = acquire.position {
            self.sync.legacy.watch(lacks, acquire.takes(lacks), position, queue);
        }
    }

    /// Drops an acquire: it leaves all lines and releases its objects.
    pub(crate) fn drop_acquire(&mut self, acquire: Acquire) {
        self.sync.legacy.leave_lines(&acquire);
        if let Some(wait) = acquire.wait {
            self.end_wait(wait);
            self.happens_before.forget(wait);
        }
        for object in acquire.objects {
            self.release_reference(object);
        }
    }

    /// Tries the queues in line for an object that became available, in order, as long as it is available. A queue that
    /// lacks another object as well is registered with that one.
    fn try_line(&mut self, object: u32, payer: ProcessId, effects: &mut Effects) {
        while let Some(queue) = self.sync.legacy.first_watcher(object, self.there_is(object)) {
            if self.is_spent() {
                self.leave_line(object, payer);
                return;
            }
            self.spend(1);
            if self.leaves_line_at_its_end(queue) {
                continue;
            }
            match self.lacks(queue) {
                None => {
                    if !self.acquire(queue, effects) {
                        debug_assert!(false, "a queue is in line and its head is no acquire");
                        return;
                    }
                    self.vidsch.work_mut().run_queue(queue);
                }
                Some(lacks) => self.watch(queue, lacks),
            }
        }
    }

    fn leave_line(&mut self, object: u32, payer: ProcessId) {
        if let Some(state) = self.sync.legacy.objects.get_mut(&object)
            && !core::mem::replace(&mut state.is_being_served, true)
        {
            self.sync.hold(object);
            self.leave(payer, Task::ServeLine(object));
        }
    }

    /// Whether the head of a queue is a signal of an object whose line is still being tried. The queue waits for that.
    pub(crate) fn parks(&mut self, queue: u32) -> bool {
        let signal = match self.vidsch.queues()[queue].packets.front() {
            Some(Packet::Signal(signal)) => signal,
            Some(Packet::Broadcast(broadcast)) => &self.vidsch.broadcasts()[*broadcast].signal,
            _ => return false,
        };
        let mut objects = signal.targets.iter().map(|(object, _)| *object);
        let Some(object) = objects.find(|object| self.sync.legacy.is_being_served(*object)) else {
            return false;
        };
        if let Some(state) = self.sync.legacy.objects.get_mut(&object) {
            state.parked.insert(queue);
        }
        true
    }

    /// Continues to try the queues in the line of an object.
    pub(crate) fn continue_line(&mut self, object: u32, payer: ProcessId, effects: &mut Effects) {
        if let Some(state) = self.sync.legacy.objects.get_mut(&object) {
            state.is_being_served = false;
        }
        self.try_line(object, payer, effects);
        if let Some(state) = self.sync.legacy.objects.get_mut(&object)
            && !state.is_being_served
        {
            for queue in core::mem::take(&mut state.parked) {
                self.vidsch.work_mut().run_queue(queue);
            }
        }
        self.release_reference(object);
    }

    /// Drops the head of a queue whose process or device is being destroyed, so that it acquires nothing; true if so.
    fn leaves_line_at_its_end(&mut self, queue: u32) -> bool {
        let Queue { process, device, .. } = self.vidsch.queues()[queue];
        if !self.vidsch.work().backlog().is_ending(process, device) {
            return false;
        }
        let packets = &mut self.vidsch.queue_mut(queue).packets;
        let Some(packet) = packets.pop_front() else { return false };
        self.processes.unqueue_bytes(process, packet.weight());
        if let Packet::Acquire(acquire) = packet {
            self.drop_acquire(acquire);
        }
        true
    }

    /// How often an object can be acquired; a mutex any number of times by one owner.
    fn there_is(&self, object: u32) -> u64 {
        match self.sync.legacy.objects.get(&object).map(|state| &state.kind) {
            Some(Kind::Mutex { owner: None }) => u64::MAX,
            Some(Kind::Semaphore { .. }) => self.sync.objects.value(object),
            Some(Kind::Mutex { owner: Some(_) } | Kind::Notification { .. }) | None => 0,
        }
    }

    /// Applies a signal to an object of these types; false if it is of none of them.
    pub(crate) fn signal_legacy(&mut self, object: u32, signal: &Signal, effects: &mut Effects) -> bool {
        let Some(state) = self.sync.legacy.objects.get(&object) else { return false };
        match state.kind {
            Kind::Mutex { owner } => self.release_mutex(object, owner, signal, effects),
            Kind::Semaphore { max_count } => self.count_up(object, max_count, signal, effects),
            Kind::Notification { process, event } if self.processes.by_id().contains_key(&process) => {
                self.wake(process, event, NtStatus::SUCCESS, effects);
            }
            Kind::Notification { .. } => {}
        }
        true
    }

    fn release_mutex(
        &mut self,
        object: u32,
        owner: Option<MutexOwner>,
        signal: &Signal,
        effects: &mut Effects,
    ) {
        let Some(owner) = owner else {
            self.note(signal.process, "queued signal of a mutex that nobody owns: ignored".into(), effects);
            return;
        };
        let own = owner.process == signal.process && signal.by.contains(&owner.by);
        if !own && self.config.policy.foreign_mutex_release == ForeignMutexRelease::Ignored {
            let MutexOwner { process, by } = owner;
            let text = format!("queued signal of a mutex that {by} of process {} owns: ignored", process.0);
            self.note(signal.process, text, effects);
            return;
        }
        self.free_mutex(object, signal.process, effects);
    }

    fn free_mutex(&mut self, object: u32, payer: ProcessId, effects: &mut Effects) {
        self.sync.legacy.set_owner(object, None);
        self.store_value(object, 0, effects);
        self.try_line(object, payer, effects);
    }

    fn count_up(&mut self, object: u32, max_count: u32, signal: &Signal, effects: &mut Effects) {
        let count = self.sync.objects.value(object);
        if count < u64::from(max_count) {
            self.store_value(object, count + 1, effects);
            self.try_line(object, signal.process, effects);
            return;
        }
        let text = format!("queued signal of a semaphore at its MaxCount {max_count}: the count stays");
        self.note(signal.process, text, effects);
        let stops = self.config.policy.semaphore_overflow == SemaphoreOverflow::StopsDevice;
        let device = signal.by.iter().find_map(|handle| self.device(signal.process, *handle).ok());
        if let Some(device) = device.filter(|_| stops) {
            self.lose_soon(device, DeviceExecutionState::STOPPED, false);
        }
    }

    /// Frees the mutexes that a destroyed context or device owns, or keeps them owned, as the policy says.
    pub(crate) fn abandon_mutexes(&mut self, process: ProcessId, by: Handle, effects: &mut Effects) {
        let owner = MutexOwner { process, by };
        let first = |kernel: &Self| {
            let mut abandoned = kernel.sync.legacy.owned.range((owner, 0)..=(owner, u32::MAX));
            abandoned.next().map(|(_, object)| *object)
        };
        while let Some(object) = first(self) {
            if self.is_spent() {
                self.leave(process, Task::AbandonMutexes(by));
                return;
            }
            self.spend(1);
            self.note(process, format!("{by} ended and owned a mutex"), effects);
            match self.config.policy.abandoned_mutex {
                AbandonedMutex::Freed => self.free_mutex(object, process, effects),
                AbandonedMutex::StaysOwned => {
                    self.remember_owner(object, process, by);
                    self.sync.legacy.set_owner(object, Some(MutexOwner { process, by: Handle::NULL }));
                }
            }
        }
    }

    pub(crate) fn owns_mutex(&self, process: ProcessId, by: Handle) -> bool {
        let owner = MutexOwner { process, by };
        self.sync.legacy.owned.range((owner, 0)..=(owner, u32::MAX)).next().is_some()
    }

    /// How many mutexes the contexts and devices of a process own.
    pub(crate) fn owned_mutexes(&self, process: ProcessId) -> u32 {
        let owners = self.sync.legacy.objects.keys().filter_map(|object| self.sync.legacy.owner(*object));
        owners.filter(|owner| owner.process == process && owner.by != Handle::NULL).count() as u32
    }

    /// Reports redundant state that disagrees, or a queue that waits for objects that it could acquire.
    pub(crate) fn legacy_miscounted(&self) -> Option<&'static str> {
        let has_state =
            |object_type| is_acquired(object_type) || object_type == SyncObjectType::CPU_NOTIFICATION;
        let alive = self.sync.objects.iter().filter(|(_, object)| has_state(object.object_type));
        if !alive.map(|(index, _)| index).eq(self.sync.legacy.objects.keys().copied()) {
            return Some("the objects of legacy types");
        }
        let owners = self
            .sync
            .legacy
            .objects
            .keys()
            .filter_map(|object| Some((self.sync.legacy.owner(*object)?, *object)));
        let owners = owners.filter(|(owner, _)| owner.by != Handle::NULL);
        if owners.collect::<BTreeSet<_>>() != self.sync.legacy.owned {
            return Some("the owners of mutexes");
        }
        for (object, state) in &self.sync.legacy.objects {
            for (position, queue) in &state.line {
                let head = self.vidsch.queues().get(*queue).and_then(|queue| queue.packets.front());
                let Some(Packet::Acquire(acquire)) = head else { return Some("a line") };
                if acquire.position != Some(*position) || !acquire.objects.contains(object) {
                    return Some("a place in a line");
                }
                let lacks = self.lacks(*queue);
                let is_served = || acquire.watches.is_some_and(|one| self.sync.legacy.is_being_served(one));
                if is_served() {
                    continue;
                }
                if lacks.is_none() {
                    return Some("a queue that waits for objects that it could acquire");
                }
                let lacks_what_it_watches = acquire.watches.is_some_and(|object| {
                    self.there_is(object) < acquire.takes(object)
                        && self.sync.legacy.is_watched(object, *position)
                });
                if !lacks_what_it_watches {
                    return Some("a queue in line that would never be tried");
                }
            }
        }
        None
    }
}
