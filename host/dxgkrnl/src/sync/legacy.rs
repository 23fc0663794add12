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

use d3dkmt::{EventId, Handle, SyncObjectFlags, SyncObjectInfo, SyncObjectType};
use serde::{Deserialize, Serialize};

use crate::error::{Refusal, invalid};
use crate::sync::object::SyncObject;
use crate::sync::waits::WaitId;
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
    /// Of those, the ones to ask when it can be had: what they lack is this. By how much of it they take, then by place.
    watched: BTreeMap<u64, BTreeMap<u64, u32>>,
    /// It can be had, and more of its line was to be asked than fitted a step: nobody takes it out of turn, and no signal of
    /// it is applied before.
    pub(super) is_being_asked: bool,
    /// Queues whose head is such a signal.
    pub(super) parked: BTreeSet<u32>,
}

/// The objects of legacy types, by their index, and who owns the mutexes among them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Legacy {
    pub objects: BTreeMap<u32, LegacyObject>,
    pub(super) owned: BTreeSet<(MutexOwner, u32)>,
    pub(super) arrivals: u64,
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
    /// The one of them that it lacks and is asked about.
    pub watches: Option<u32>,
    /// Since when it stands there.
    pub since: Nanos,
}

impl Acquire {
    /// How much of an object it takes: once for each time that it names it.
    pub fn takes(&self, object: u32) -> u64 {
        self.objects.iter().filter(|other| **other == object).count() as u64
    }
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
        let (line, watched) = (BTreeMap::new(), BTreeMap::new());
        let new = LegacyObject { kind, line, watched, is_being_asked: false, parked: BTreeSet::new() };
        self.objects.insert(object, new);
    }

    /// The object is gone.
    pub fn remove(&mut self, object: u32) {
        if let Some(LegacyObject { kind: Kind::Mutex { owner: Some(owner) }, .. }) =
            self.objects.remove(&object)
        {
            self.owned.remove(&(owner, object));
        }
    }

    /// Whether the line of an object is still being asked.
    pub fn is_being_asked(&self, object: u32) -> bool {
        self.objects.get(&object).is_some_and(|state| state.is_being_asked)
    }

    pub fn owner(&self, object: u32) -> Option<MutexOwner> {
        match self.objects.get(&object)?.kind {
            Kind::Mutex { owner } => owner,
            Kind::Semaphore { .. } | Kind::Notification { .. } => None,
        }
    }

    pub(super) fn set_owner(&mut self, object: u32, new: Option<MutexOwner>) {
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

    pub(super) fn leave_lines(&mut self, acquire: &Acquire) {
        let Some(place) = acquire.place else { return };
        for object in &acquire.objects {
            if let Some(state) = self.objects.get_mut(object) {
                state.line.remove(&place);
            }
        }
        self.unwatch(acquire);
    }

    /// A queue that stands in line is asked when `object` can be had, of which it takes that much.
    pub(super) fn watch(&mut self, object: u32, takes: u64, place: u64, queue: u32) {
        if let Some(state) = self.objects.get_mut(&object) {
            state.watched.entry(takes).or_default().insert(place, queue);
        }
    }

    pub(super) fn unwatch(&mut self, acquire: &Acquire) {
        let (Some(place), Some(object)) = (acquire.place, acquire.watches) else { return };
        let takes = acquire.takes(object);
        let Some(state) = self.objects.get_mut(&object) else { return };
        if let Some(queues) = state.watched.get_mut(&takes) {
            queues.remove(&place);
            if queues.is_empty() {
                state.watched.remove(&takes);
            }
        }
    }

    pub(super) fn is_watched(&self, object: u32, place: u64) -> bool {
        let state = self.objects.get(&object);
        state.is_some_and(|state| state.watched.values().any(|queues| queues.contains_key(&place)))
    }

    /// The first in line of those that lack this object and take no more of it than there is.
    pub(super) fn first_watcher(&self, object: u32, there_is: u64) -> Option<u32> {
        let watched = self.objects.get(&object)?.watched.range(..=there_is);
        let firsts = watched.filter_map(|(_, queues)| queues.first_key_value());
        firsts.min_by_key(|(place, _)| **place).map(|(_, queue)| *queue)
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
