//! Queued acquires and releases of mutexes and semaphores. See `legacy.rs` for the rules.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, SyncObjectType};

use super::legacy::{Acquire, Kind, MutexOwner, is_acquired};
use crate::ProcessId;
use crate::ddi::Miniport;
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::policy::{AbandonedMutex, ForeignMutexRelease, SemaphoreOverflow};
use crate::vidsch::{Packet, Queue, Signal};

impl<M: Miniport> Kernel<M> {
    /// The head of a queue is a packet that takes objects: true if it did.
    pub(crate) fn try_acquire(&mut self, queue: u32, effects: &mut Effects) -> bool {
        let state = &self.vidsch.queues()[queue];
        let Some(Packet::Acquire(acquire)) = state.packets.front() else { return false };
        let values_missing = acquire.wait.is_some_and(|wait| self.sync.waits.contains(wait));
        if !state.is_idle() || values_missing {
            return false;
        }
        if self.can_acquire(queue) {
            self.acquire(queue, effects);
            return true;
        }
        if acquire.place.is_none() {
            self.line_up(queue);
        }
        false
    }

    /// Whether everything that the head of this queue takes can be had now.
    fn can_acquire(&self, queue: u32) -> bool {
        let Some(Packet::Acquire(Acquire { objects, .. })) = self.vidsch.queues()[queue].packets.front()
        else {
            return false;
        };
        let me = self.mutex_owner(queue);
        objects.iter().all(|object| match self.sync.legacy.objects[object].kind {
            Kind::Mutex { owner } => owner.is_none_or(|owner| owner == me),
            Kind::Semaphore { .. } => {
                let wanted = objects.iter().filter(|other| *other == object).count() as u64;
                self.sync.objects.value(*object) >= wanted
            }
            Kind::Notification { .. } => false,
        })
    }

    fn mutex_owner(&self, queue: u32) -> MutexOwner {
        let Queue { process, context, .. } = self.vidsch.queues()[queue];
        MutexOwner { process, by: self.vidsch.contexts()[context].handle }
    }

    /// Takes what the head of this queue takes, and the packet out of the queue.
    fn acquire(&mut self, queue: u32, effects: &mut Effects) {
        let owner = self.mutex_owner(queue);
        let Some(packet @ Packet::Acquire(_)) = self.vidsch.queue_mut(queue).packets.pop_front() else {
            return;
        };
        self.process_mut(owner.process).queued_bytes -= packet.weight();
        let Packet::Acquire(acquire) = packet else { return };
        let by = self.orderer(queue);
        acquire.objects.iter().for_each(|object| self.tell_waited(by, *object, 0));
        if let Some(wait) = acquire.wait {
            self.tell_ended(by, wait);
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
    }

    fn line_up(&mut self, queue: u32) {
        let Some(Packet::Acquire(acquire)) = self.vidsch.queue_mut(queue).packets.front_mut() else { return };
        let place = self.sync.legacy.arrivals;
        self.sync.legacy.arrivals += 1;
        (acquire.place, acquire.since) = (Some(place), self.now);
        for object in &acquire.objects {
            if let Some(state) = self.sync.legacy.objects.get_mut(object) {
                state.line.insert(place, queue);
            }
        }
    }

    /// The packet is over: it stands in no line and keeps nothing alive.
    pub(crate) fn drop_acquire(&mut self, acquire: Acquire) {
        self.sync.legacy.leave_lines(&acquire);
        if let Some(wait) = acquire.wait {
            self.end_wait(wait);
            self.edges.forget(wait);
        }
        for object in acquire.objects {
            self.release_reference(object);
        }
    }

    /// An object can be had again: those that stand in its line are asked in order.
    fn look_at_line(&mut self, object: u32, effects: &mut Effects) {
        let Some(state) = self.sync.legacy.objects.get(&object) else { return };
        let line: Vec<u32> = state.line.values().copied().collect();
        for queue in line {
            if self.can_acquire(queue) {
                self.acquire(queue, effects);
                self.vidsch.work_mut().run_queue(queue);
            }
        }
    }

    /// What a signal does to an object of these types; false if it is of none of them.
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
        self.free_mutex(object, effects);
    }

    fn free_mutex(&mut self, object: u32, effects: &mut Effects) {
        self.sync.legacy.set_owner(object, None);
        self.store_value(object, 0, effects);
        self.look_at_line(object, effects);
    }

    fn count_up(&mut self, object: u32, max_count: u32, signal: &Signal, effects: &mut Effects) {
        let count = self.sync.objects.value(object);
        if count < u64::from(max_count) {
            self.store_value(object, count + 1, effects);
            self.look_at_line(object, effects);
            return;
        }
        let text = format!("queued signal of a semaphore at its MaxCount {max_count}: the count stays");
        self.note(signal.process, text, effects);
        let stops = self.config.policy.semaphore_overflow == SemaphoreOverflow::StopsDevice;
        let device = signal.by.iter().find_map(|handle| self.device(signal.process, *handle).ok());
        if let Some(device) = device.filter(|_| stops) {
            self.stop_devices(&[device], effects);
        }
    }

    /// The context or device of this handle ends: what becomes of the mutexes that it owns.
    pub(crate) fn abandon_mutexes(&mut self, process: ProcessId, by: Handle, effects: &mut Effects) {
        let owner = MutexOwner { process, by };
        let abandoned = self.sync.legacy.owned.range((owner, 0)..=(owner, u32::MAX));
        let abandoned: Vec<u32> = abandoned.map(|(_, object)| *object).collect();
        for object in abandoned {
            if self.sync.legacy.owner(object) != Some(owner) {
                continue;
            }
            self.note(process, format!("{by} ended and owned a mutex"), effects);
            match self.config.policy.abandoned_mutex {
                AbandonedMutex::Freed => self.free_mutex(object, effects),
                AbandonedMutex::StaysOwned => {
                    self.remember_owner(object, process, by);
                    self.sync.legacy.set_owner(object, Some(MutexOwner { process, by: Handle::NULL }));
                }
            }
        }
    }

    /// How many mutexes the contexts and devices of a process own.
    pub(crate) fn owned_mutexes(&self, process: ProcessId) -> u32 {
        let owners = self.sync.legacy.objects.keys().filter_map(|object| self.sync.legacy.owner(*object));
        owners.filter(|owner| owner.process == process && owner.by != Handle::NULL).count() as u32
    }

    /// What is kept twice and does not agree, or a queue that waits for what it could have.
    pub(crate) fn legacy_miscounted(&self) -> Option<&'static str> {
        let kept = |object_type| is_acquired(object_type) || object_type == SyncObjectType::CPU_NOTIFICATION;
        let alive = self.sync.objects.iter().filter(|(_, object)| kept(object.object_type));
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
            for (place, queue) in &state.line {
                let head = self.vidsch.queues().get(*queue).and_then(|queue| queue.packets.front());
                let Some(Packet::Acquire(acquire)) = head else { return Some("a line") };
                if acquire.place != Some(*place) || !acquire.objects.contains(object) {
                    return Some("a place in a line");
                }
                if self.can_acquire(*queue) {
                    return Some("a queue that waits for what it could have");
                }
            }
        }
        None
    }
}
