//! Synchronization objects of the legacy types in queues: mutexes, semaphores, CPU notifications.
//!
//! ```text
//!                  a queued wait                              a queued signal
//!   MUTEX          owns it, if free or owned by the same      frees it, if its context or its device
//!                  context; no count: one signal frees it     owns it
//!   SEMAPHORE      counts down, if above 0                    counts up, never above MaxCount (FEN-072)
//!   FENCE          as a monitored fence, alone in its call    sets the value (FEN-043, FEN-073)
//!   CPU_NOTIF.     refused (FEN-074)                          sets the event of its creator, each time (F-81)
//! ```
//! Unlike a wait for a value, which latches from the moment it is queued, a mutex or semaphore is taken when its
//! packet is at the head of its queue and the work before it is done: what is taken must be taken for what follows.
//! Several objects of one wait are taken together or not at all. A wait for values in the same call comes first.
//!
//! What cannot be had at once stands in the *line* of each of its objects. When one of them can be had again, its
//! line is asked in the order of arrival, and whoever can have everything it needs has it there and then: first come,
//! first served among those that can be (F-78). One that still lacks another object does not hold up the line, or
//! a queue that owns that other object could wait behind it for ever.
//!
//! A mutex created owned (FEN-071) belongs to the device that created it, as there is no context yet: any context of
//! that device releases it. A mutex whose owner ends is free, unless the policy says otherwise.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle, NtStatus, SyncObjectFlags, SyncObjectInfo, SyncObjectType};
use serde::{Deserialize, Serialize};

use crate::ddi::Miniport;
use crate::effects::Effects;
use crate::error::{Refusal, invalid};
use crate::kernel::Kernel;
use crate::object::SyncObject;
use crate::policy::{AbandonedMutex, ForeignMutexRelease, SemaphoreOverflow};
use crate::vidsch::{Packet, Queue, Signal};
use crate::waits::WaitId;
use crate::{Nanos, ProcessId};

/// Who owns a mutex: the context, or the device, of this handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct MutexOwner {
    pub process: ProcessId,
    /// NULL for an owner that is gone.
    pub by: Handle,
}

/// What an object has beside its value, by its type.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The value is 1 while it is owned.
    Mutex {
        owner: Option<MutexOwner>,
    },
    /// The value is the count.
    Semaphore {
        max_count: u32,
    },
    Notification {
        process: ProcessId,
        event: EventId,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LegacyObject {
    pub kind: Kind,
    /// Queues whose head waits for it, in the order they came to it.
    pub line: BTreeMap<u64, u32>,
}

/// The objects of legacy types, by their index, and who owns the mutexes among them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Legacy {
    pub objects: BTreeMap<u32, LegacyObject>,
    owned: BTreeSet<(MutexOwner, u32)>,
    arrivals: u64,
}

/// A packet that takes mutexes and semaphores.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Acquire {
    /// Values that are waited for in the same call.
    pub wait: Option<WaitId>,
    /// Kept alive by the packet. One may be there twice.
    pub objects: Vec<u32>,
    /// Its place in the lines of its objects, once it stands there.
    pub place: Option<u64>,
    /// Since when it stands there.
    pub since: Nanos,
}

/// How a call gives the values of its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Form {
    /// One for each object.
    ValueArray,
    /// One for all: the legacy calls.
    OneValue,
}

impl Legacy {
    /// A new object of this index, created on the device of this handle.
    pub fn add(&mut self, object: u32, info: &SyncObjectInfo, process: ProcessId, device: Handle) {
        let kind = match (info.object_type, info.event) {
            (SyncObjectType::MUTEX, _) => {
                let owner = MutexOwner { process, by: device };
                if info.initial_state {
                    self.owned.insert((owner, object));
                }
                Kind::Mutex { owner: info.initial_state.then_some(owner) }
            }
            (SyncObjectType::SEMAPHORE, _) => Kind::Semaphore { max_count: info.max_count },
            (SyncObjectType::CPU_NOTIFICATION, Some(event)) => Kind::Notification { process, event },
            _ => return,
        };
        self.objects.insert(object, LegacyObject { kind, line: BTreeMap::new() });
    }

    /// The object is gone.
    pub fn remove(&mut self, object: u32) {
        if let Some(LegacyObject { kind: Kind::Mutex { owner: Some(owner) }, .. }) =
            self.objects.remove(&object)
        {
            self.owned.remove(&(owner, object));
        }
    }

    pub fn owner(&self, object: u32) -> Option<MutexOwner> {
        match self.objects.get(&object)?.kind {
            Kind::Mutex { owner } => owner,
            Kind::Semaphore { .. } | Kind::Notification { .. } => None,
        }
    }

    fn set_owner(&mut self, object: u32, new: Option<MutexOwner>) {
        let Some(LegacyObject { kind: Kind::Mutex { owner }, .. }) = self.objects.get_mut(&object) else {
            return;
        };
        if let Some(old) = core::mem::replace(owner, new) {
            self.owned.remove(&(old, object));
        }
        if let Some(new) = new.filter(|owner| owner.by != Handle::NULL) {
            self.owned.insert((new, object));
        }
    }

    fn leave_lines(&mut self, acquire: &Acquire) {
        let Some(place) = acquire.place else { return };
        for object in &acquire.objects {
            if let Some(state) = self.objects.get_mut(object) {
                state.line.remove(&place);
            }
        }
    }
}

/// Taken by a queued wait, rather than waited for by value.
pub(crate) fn is_acquired(object_type: SyncObjectType) -> bool {
    matches!(object_type, SyncObjectType::MUTEX | SyncObjectType::SEMAPHORE)
}

/// Whether a packet of a context may name this object, one of `count`.
pub(crate) fn queueable(object: &SyncObject, count: usize, form: Form, wait: bool) -> Result<(), Refusal> {
    use SyncObjectType as T;
    match object.object_type {
        T::MUTEX | T::SEMAPHORE => Ok(()),
        T::FENCE if count == 1 => Ok(()),
        T::FENCE => invalid("a legacy FENCE must be the only object (FEN-043)"),
        T::CPU_NOTIFICATION if wait => invalid("a CPU_NOTIFICATION cannot be waited for (FEN-074)"),
        T::CPU_NOTIFICATION if object.flags.contains(SyncObjectFlags::SIGNAL_BY_KMD) => {
            invalid("a CPU_NOTIFICATION with SignalByKmd is signaled by the driver only (F-81)")
        }
        T::CPU_NOTIFICATION => Ok(()),
        T::MONITORED_FENCE | T::PERIODIC_MONITORED_FENCE | T::NATIVE_FENCE if form == Form::OneValue => {
            invalid("the call has one value for all: a monitored fence takes a value array (F-36)")
        }
        T::MONITORED_FENCE | T::PERIODIC_MONITORED_FENCE | T::NATIVE_FENCE => Ok(()),
        other => invalid(format!("a {} cannot be named by a packet of a context", other.name())),
    }
}

impl<M: Miniport> Kernel<M> {
    /// The head of a queue is a packet that takes objects: true if it did.
    pub(crate) fn try_acquire(&mut self, queue: u32, effects: &mut Effects) -> bool {
        let state = &self.queues[queue];
        let Some(Packet::Acquire(acquire)) = state.packets.front() else { return false };
        let values_missing = acquire.wait.is_some_and(|wait| self.waits.contains(wait));
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
        let Some(Packet::Acquire(Acquire { objects, .. })) = self.queues[queue].packets.front() else {
            return false;
        };
        let me = self.mutex_owner(queue);
        objects.iter().all(|object| match self.legacy.objects[object].kind {
            Kind::Mutex { owner } => owner.is_none_or(|owner| owner == me),
            Kind::Semaphore { .. } => {
                let wanted = objects.iter().filter(|other| *other == object).count() as u64;
                self.objects.value(*object) >= wanted
            }
            Kind::Notification { .. } => false,
        })
    }

    fn mutex_owner(&self, queue: u32) -> MutexOwner {
        let Queue { process, context, .. } = self.queues[queue];
        MutexOwner { process, by: self.contexts[context].handle }
    }

    /// Takes what the head of this queue takes, and the packet out of the queue.
    fn acquire(&mut self, queue: u32, effects: &mut Effects) {
        let owner = self.mutex_owner(queue);
        let Some(packet @ Packet::Acquire(_)) = self.queues[queue].packets.pop_front() else { return };
        self.process_mut(owner.process).queued_bytes -= packet.weight();
        let Packet::Acquire(acquire) = packet else { return };
        let by = self.orderer(queue);
        acquire.objects.iter().for_each(|object| self.tell_waited(by, *object, 0));
        if let Some(wait) = acquire.wait {
            self.tell_ended(by, wait);
        }
        for object in &acquire.objects {
            match self.legacy.objects[object].kind {
                Kind::Mutex { .. } => {
                    self.legacy.set_owner(*object, Some(owner));
                    self.store_value(*object, 1, effects);
                }
                Kind::Semaphore { .. } => {
                    let count = self.objects.value(*object) - 1;
                    self.store_value(*object, count, effects);
                }
                Kind::Notification { .. } => {}
            }
        }
        self.drop_acquire(acquire, effects);
    }

    fn line_up(&mut self, queue: u32) {
        let Some(Packet::Acquire(acquire)) = self.queues[queue].packets.front_mut() else { return };
        let place = self.legacy.arrivals;
        self.legacy.arrivals += 1;
        (acquire.place, acquire.since) = (Some(place), self.now);
        for object in &acquire.objects {
            if let Some(state) = self.legacy.objects.get_mut(object) {
                state.line.insert(place, queue);
            }
        }
    }

    /// The packet is over: it stands in no line and keeps nothing alive.
    pub(crate) fn drop_acquire(&mut self, acquire: Acquire, effects: &mut Effects) {
        self.legacy.leave_lines(&acquire);
        if let Some(wait) = acquire.wait {
            self.end_wait(wait, effects);
            self.edges.forget(wait);
        }
        for object in acquire.objects {
            self.release_reference(object, effects);
        }
    }

    /// An object can be had again: those that stand in its line are asked in order.
    fn look_at_line(&mut self, object: u32, effects: &mut Effects) {
        let Some(state) = self.legacy.objects.get(&object) else { return };
        let line: Vec<u32> = state.line.values().copied().collect();
        for queue in line {
            if self.can_acquire(queue) {
                self.acquire(queue, effects);
                self.runnable.push_back(queue);
            }
        }
    }

    /// What a signal does to an object of these types; false if it is of none of them.
    pub(crate) fn signal_legacy(&mut self, object: u32, signal: &Signal, effects: &mut Effects) -> bool {
        let Some(state) = self.legacy.objects.get(&object) else { return false };
        match state.kind {
            Kind::Mutex { owner } => self.release_mutex(object, owner, signal, effects),
            Kind::Semaphore { max_count } => self.count_up(object, max_count, signal, effects),
            Kind::Notification { process, event } if self.processes.contains_key(&process) => {
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
        self.legacy.set_owner(object, None);
        self.store_value(object, 0, effects);
        self.look_at_line(object, effects);
    }

    fn count_up(&mut self, object: u32, max_count: u32, signal: &Signal, effects: &mut Effects) {
        let count = self.objects.value(object);
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
        let abandoned = self.legacy.owned.range((owner, 0)..=(owner, u32::MAX));
        let abandoned: Vec<u32> = abandoned.map(|(_, object)| *object).collect();
        for object in abandoned {
            if self.legacy.owner(object) != Some(owner) {
                continue;
            }
            self.note(process, format!("{by} ended and owned a mutex"), effects);
            match self.config.policy.abandoned_mutex {
                AbandonedMutex::Freed => self.free_mutex(object, effects),
                AbandonedMutex::StaysOwned => {
                    self.remember_owner(object, process, by);
                    self.legacy.set_owner(object, Some(MutexOwner { process, by: Handle::NULL }));
                }
            }
        }
    }

    /// How many mutexes the contexts and devices of a process own.
    pub(crate) fn owned_mutexes(&self, process: ProcessId) -> u32 {
        let owners = self.legacy.objects.keys().filter_map(|object| self.legacy.owner(*object));
        owners.filter(|owner| owner.process == process && owner.by != Handle::NULL).count() as u32
    }

    /// What is kept twice and does not agree, or a queue that waits for what it could have.
    pub(crate) fn legacy_miscounted(&self) -> Option<&'static str> {
        let kept = |object_type| is_acquired(object_type) || object_type == SyncObjectType::CPU_NOTIFICATION;
        let alive = self.objects.iter().filter(|(_, object)| kept(object.object_type));
        if !alive.map(|(index, _)| index).eq(self.legacy.objects.keys().copied()) {
            return Some("the objects of legacy types");
        }
        let owners =
            self.legacy.objects.keys().filter_map(|object| Some((self.legacy.owner(*object)?, *object)));
        let owners = owners.filter(|(owner, _)| owner.by != Handle::NULL);
        if owners.collect::<BTreeSet<_>>() != self.legacy.owned {
            return Some("the owners of mutexes");
        }
        for (object, state) in &self.legacy.objects {
            for (place, queue) in &state.line {
                let head = self.queues.get(*queue).and_then(|queue| queue.packets.front());
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
