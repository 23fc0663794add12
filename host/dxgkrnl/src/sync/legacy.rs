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
//! Unlike a wait for a value, which latches from the moment it is queued, a mutex or semaphore is acquired when its
//! packet is at the head of its queue and earlier work is complete, because it protects the work that follows.
//! Several objects of one wait are acquired together or not at all. A wait for values in the same call comes first.
//!
//! A packet that cannot acquire all its objects waits in the *line* of each of them. When one of them becomes
//! available, the packets in its line are tried in the order of arrival, and each that can acquire all its objects does
//! so at once: first come, first served among those that can proceed (F-78). A packet that still lacks another object
//! does not block the line, because a queue that owns that other object could wait behind it for ever.
//!
//! A mutex created owned (FEN-071) belongs to the device that created it, as there is no context yet: any context of
//! that device releases it. A mutex whose owner is destroyed is freed, unless the policy keeps it owned.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle, SyncObjectFlags, SyncObjectInfo, SyncObjectType};
use serde::{Deserialize, Serialize};

use crate::error::{Refusal, invalid};
use crate::sync::object::SyncObject;
use crate::sync::waits::WaitId;
use crate::{Nanos, ProcessId};

/// Owner of a mutex: the context, or the device, of this handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct MutexOwner {
    pub process: ProcessId,
    /// NULL for an owner that is gone.
    pub by: Handle,
}

/// State of an object beside its value, by its type.
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
    /// Queues whose head waits for it, in the order of arrival.
    pub line: BTreeMap<u64, u32>,
    /// Those of them that lack this object, and are tried when it becomes available: by the amount that they acquire,
    /// then by position.
    watched: BTreeMap<u64, BTreeMap<u64, u32>>,
    /// It is available, but its line did not fit one step. Until the line is done, no other queue acquires it and no
    /// signal of it is applied.
    pub(super) is_being_served: bool,
    /// Queues whose head is such a signal.
    pub(super) parked: BTreeSet<u32>,
}

/// The objects of legacy types, by their index, and the owners of the mutexes among them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Legacy {
    pub objects: BTreeMap<u32, LegacyObject>,
    pub(super) owned: BTreeSet<(MutexOwner, u32)>,
    pub(super) arrivals: u64,
}

/// A packet that acquires mutexes and semaphores.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Acquire {
    /// Values that are waited for in the same call.
    pub wait: Option<WaitId>,
    /// Kept alive by the packet. One may be there twice.
    pub objects: Vec<u32>,
    /// Its position in the lines of its objects, once it waits there.
    pub position: Option<u64>,
    /// The object that it lacks: it is tried again when that becomes available.
    pub watches: Option<u32>,
    /// Since when it waits in line.
    pub since: Nanos,
}

impl Acquire {
    /// How often it acquires an object: once for each time that it names it.
    pub fn takes(&self, object: u32) -> u64 {
        self.objects.iter().filter(|other| **other == object).count() as u64
    }
}

/// How a call passes the values of its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Form {
    /// One for each object.
    ValueArray,
    /// One for all: the legacy calls.
    OneValue,
}

impl Legacy {
    /// Adds an object of this index, created on the device of this handle.
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
        let new = LegacyObject { kind, line, watched, is_being_served: false, parked: BTreeSet::new() };
        self.objects.insert(object, new);
    }

    /// Removes an object that is destroyed.
    pub fn remove(&mut self, object: u32) {
        if let Some(LegacyObject { kind: Kind::Mutex { owner: Some(owner) }, .. }) =
            self.objects.remove(&object)
        {
            self.owned.remove(&(owner, object));
        }
    }

    /// Whether the line of an object is still being tried.
    pub fn is_being_served(&self, object: u32) -> bool {
        self.objects.get(&object).is_some_and(|state| state.is_being_served)
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
        let Some(position) = acquire.position else { return };
        for object in &acquire.objects {
            if let Some(state) = self.objects.get_mut(object) {
                state.line.remove(&position);
            }
        }
        self.unwatch(acquire);
    }

    /// Registers a queue in line to be tried when `object` becomes available; it acquires that `takes` times.
    pub(super) fn watch(&mut self, object: u32, takes: u64, position: u64, queue: u32) {
        if let Some(state) = self.objects.get_mut(&object) {
            state.watched.entry(takes).or_default().insert(position, queue);
        }
    }

    pub(super) fn unwatch(&mut self, acquire: &Acquire) {
        let (Some(position), Some(object)) = (acquire.position, acquire.watches) else { return };
        let takes = acquire.takes(object);
        let Some(state) = self.objects.get_mut(&object) else { return };
        if let Some(queues) = state.watched.get_mut(&takes) {
            queues.remove(&position);
            if queues.is_empty() {
                state.watched.remove(&takes);
            }
        }
    }

    pub(super) fn is_watched(&self, object: u32, position: u64) -> bool {
        let state = self.objects.get(&object);
        state.is_some_and(|state| state.watched.values().any(|queues| queues.contains_key(&position)))
    }

    /// The first queue in line that lacks this object and acquires no more of it than there is.
    pub(super) fn first_watcher(&self, object: u32, there_is: u64) -> Option<u32> {
        let watched = self.objects.get(&object)?.watched.range(..=there_is);
        let firsts = watched.filter_map(|(_, queues)| queues.first_key_value());
        firsts.min_by_key(|(position, _)| **position).map(|(_, queue)| *queue)
    }
}

/// Whether a queued wait acquires objects of this type, rather than waiting for a value.
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
