//! What this process knows of its own handles: enough to answer a satisfied wait without a message and to choose the
//! right member of a C union. The host decides; a call with a handle that is not known here is forwarded.
//!
//! A handle leaves this table *before* the destroy call is sent (F-69), so a lookup here never finds a number that the
//! host has reused. A context or paging queue and what is its own leave it afterwards: its number comes back after
//! thousands of others, and a new one replaces it here. The fence of a queue leaves it with its queue: the host refuses to destroy it.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use d3dkmt::{EventId, Handle, Luid, SyncObjectType};

use crate::port::Location;

/// A sync object of this process.
#[derive(Clone, Debug)]
pub(crate) struct Object<L> {
    /// `None` for an object that was opened and has no value in this process.
    pub object_type: Option<SyncObjectType>,
    pub device: Handle,
    /// The host answers each wait on it.
    pub no_wait: bool,
    /// Where its value is stored: monitored fences only.
    pub location: Option<L>,
    /// CPU_NOTIFICATION: the name under which its event is armed.
    pub event: Option<EventId>,
    /// Its event ends with its device.
    pub signal_by_kmd: bool,
    /// Whether it is the fence of a queue, which ends with the queue.
    pub of_queue: bool,
}

/// Which member of their value union `WaitFromGpu` and `SignalFromGpu` use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueForm {
    /// A pointer to one value for each object.
    Array,
    /// One value in place, for all objects.
    Inline,
    /// Not known here.
    Unknown,
}

/// The host chooses handles, so nobody can make them collide on purpose.
type ByHandle<T> = HashMap<Handle, T, foldhash::fast::RandomState>;

#[derive(Debug)]
struct Tables<L> {
    adapters: ByHandle<Luid>,
    /// The adapter of each device.
    devices: ByHandle<Option<Luid>>,
    objects: ByHandle<Object<L>>,
    /// The device of each context.
    contexts: ByHandle<Handle>,
    /// Contexts that calls destroy, and how many of them.
    ending_contexts: ByHandle<u32>,
    /// Paging queues and hardware queues: the owner and the progress fence of each.
    queues: ByHandle<Queue>,
}

/// Events and contexts that are destroyed with devices.
#[derive(Debug, Default)]
pub(crate) struct EndingWithDevices {
    /// The events that the driver signals (EVT-017).
    pub events: Vec<EventId>,
    pub contexts: Vec<Handle>,
}

/// A context, or a hardware queue and its context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DeviceQueue {
    Context(Handle),
    HwQueue(Handle, Handle),
}

/// Which calls a queue is of: those of the other kind refuse it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueKind {
    Hw,
    /// A hardware queue of user-mode submission.
    UserMode,
    Paging,
}

impl QueueKind {
    pub const OF_HARDWARE: &[QueueKind] = &[QueueKind::Hw, QueueKind::UserMode];
}

#[derive(Debug)]
struct Queue {
    kind: QueueKind,
    /// A device or a context.
    owner: Handle,
    fence: Handle,
}

/// The tables of one session.
#[derive(Debug)]
pub(crate) struct Objects<L>(RwLock<Tables<L>>);

impl<L> Default for Objects<L> {
    fn default() -> Objects<L> {
        Objects(RwLock::new(Tables {
            adapters: ByHandle::default(),
            devices: ByHandle::default(),
            objects: ByHandle::default(),
            contexts: ByHandle::default(),
            ending_contexts: ByHandle::default(),
            queues: ByHandle::default(),
        }))
    }
}

impl<L: Location> Objects<L> {
    fn read(&self) -> RwLockReadGuard<'_, Tables<L>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables<L>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn adapter_opened(&self, adapter: Handle, luid: Luid) {
        self.write().adapters.insert(adapter, luid);
    }

    /// Closing the last handle of an adapter destroys its devices. Returns the events that are destroyed with them.
    pub fn adapter_closing(&self, adapter: Handle) -> EndingWithDevices {
        let (mut tables, mut ending) = (self.write(), EndingWithDevices::default());
        let Some(luid) = tables.adapters.remove(&adapter) else { return ending };
        if tables.adapters.values().any(|other| *other == luid) {
            return ending;
        }
        let devices = tables.devices.iter().filter(|(_, made_on)| **made_on == Some(luid));
        let devices: Vec<Handle> = devices.map(|(device, _)| *device).collect();
        devices.into_iter().for_each(|device| tables.forget_device(device, &mut ending));
        ending
    }

    pub fn device_created(&self, device: Handle, adapter: Handle) {
        let mut tables = self.write();
        let luid = tables.adapters.get(&adapter).copied();
        tables.devices.insert(device, luid);
    }

    /// Forgets a device and its monitored fences; other objects outlive it.
    pub fn device_destroying(&self, device: Handle) -> EndingWithDevices {
        let mut ending = EndingWithDevices::default();
        self.write().forget_device(device, &mut ending);
        ending
    }

    pub fn context_created(&self, context: Handle, device: Handle) {
        self.write().contexts.insert(context, device);
    }

    pub fn device_of_context(&self, context: Handle) -> Option<Handle> {
        self.read().contexts.get(&context).copied()
    }

    /// A call destroys a context, which may take until its work is done, and may be refused.
    pub fn context_destroying(&self, context: Handle) {
        *self.write().ending_contexts.entry(context).or_default() += 1;
    }

    /// The call is over. Forgets the context if it is destroyed, and its hardware queues. A device also owns queues, but the
    /// host refuses its handle here.
    pub fn context_answered(&self, context: Handle, is_destroyed: bool) {
        let mut tables = self.write();
        if let Some(calls) = tables.ending_contexts.get_mut(&context) {
            *calls -= 1;
            if *calls == 0 {
                tables.ending_contexts.remove(&context);
            }
        }
        if is_destroyed && tables.contexts.remove(&context).is_some() {
            tables.forget_queues_of(context);
        }
    }

    /// Records a queue of this device or context and its fence, which is in the table of objects.
    pub fn queue_created(&self, queue: Handle, kind: QueueKind, owner: Handle, fence: Handle) {
        let mut tables = self.write();
        tables.queues.insert(queue, Queue { kind, owner, fence });
        if let Some(fence) = tables.objects.get_mut(&fence) {
            fence.of_queue = true;
        }
    }

    /// Forgets a queue of these kinds and its fence (FEN-091).
    pub fn forget_queue(&self, handle: Handle, kinds: &[QueueKind]) {
        let Tables { queues, objects, .. } = &mut *self.write();
        if queues.get(&handle).is_some_and(|queue| kinds.contains(&queue.kind))
            && let Some(Queue { fence, .. }) = queues.remove(&handle)
        {
            objects.remove(&fence);
        }
    }

    /// The contexts and hardware queues of a device that take packets of the kernel. A queue of user-mode submission is
    /// always at its last-queued value here: no call of the library rings a doorbell.
    pub fn queues_of(&self, device: Handle) -> Vec<DeviceQueue> {
        let Tables { contexts, queues, .. } = &*self.read();
        let is_of_device = |context: &Handle| contexts.get(context) == Some(&device);
        let contexts = contexts.keys().copied().filter(is_of_device);
        let hw_queues =
            queues.iter().filter(|(_, queue)| queue.kind == QueueKind::Hw && is_of_device(&queue.owner));
        let hw_queues = hw_queues.map(|(queue, Queue { owner, .. })| DeviceQueue::HwQueue(*queue, *owner));
        contexts.map(DeviceQueue::Context).chain(hw_queues).collect()
    }

    /// Whether this is a queue that no call destroys.
    pub fn knows_queue(&self, queue: DeviceQueue) -> bool {
        let tables = self.read();
        let (is_there, context) = match queue {
            DeviceQueue::Context(context) => (tables.contexts.contains_key(&context), context),
            DeviceQueue::HwQueue(queue, context) => (tables.queues.contains_key(&queue), context),
        };
        is_there && !tables.ending_contexts.contains_key(&context)
    }

    /// The device of a paging queue.
    pub fn device_of_paging_queue(&self, queue: Handle) -> Option<Handle> {
        let tables = self.read();
        tables.queues.get(&queue).map(|queue| queue.owner).filter(|owner| tables.devices.contains_key(owner))
    }

    pub fn has_adapter(&self, luid: Luid) -> bool {
        self.read().adapters.values().any(|opened| *opened == luid)
    }

    pub fn knows_device(&self, device: Handle) -> bool {
        self.read().devices.contains_key(&device)
    }

    pub fn object_created(&self, handle: Handle, object: Object<L>) {
        self.write().objects.insert(handle, object);
    }

    /// Forgets an object, unless it is the fence of a queue.
    pub fn object_destroying(&self, handle: Handle) -> Option<Object<L>> {
        let objects = &mut self.write().objects;
        if objects.get(&handle).is_some_and(|object| object.of_queue) {
            None
        } else {
            objects.remove(&handle)
        }
    }

    /// Which member of the value union is used for these objects: the first object decides.
    pub fn value_form(&self, objects: &[Handle]) -> ValueForm {
        const MONITORED_FENCE: SyncObjectType = SyncObjectType::MONITORED_FENCE;
        const NATIVE_FENCE: SyncObjectType = SyncObjectType::NATIVE_FENCE;
        let tables = self.read();
        match objects.first().and_then(|first| tables.objects.get(first)) {
            Some(Object { location: Some(_), .. }) => ValueForm::Array,
            Some(Object { object_type: Some(MONITORED_FENCE | NATIVE_FENCE), .. }) => ValueForm::Array,
            Some(Object { object_type: Some(_), .. }) => ValueForm::Inline,
            Some(_) | None => ValueForm::Unknown,
        }
    }

    /// True if the fence memory alone shows that the wait is satisfied. False: ask the host. Allocates nothing.
    pub fn reached(&self, device: Handle, objects: &[Handle], values: &[u64], any: bool) -> bool {
        let tables = self.read();
        if !tables.devices.contains_key(&device) {
            return false;
        }
        let mut all_reached = true;
        let mut any_reached = false;
        for (handle, value) in objects.iter().zip(values) {
            // Unless all are fences that this device may wait for, the host decides.
            let Some(location) = tables.objects.get(handle).and_then(|object| waitable(object, device))
            else {
                return false;
            };
            let reached = location.value() >= *value;
            all_reached &= reached;
            any_reached |= reached;
        }
        if any { any_reached } else { all_reached }
    }
}

fn waitable<L>(object: &Object<L>, device: Handle) -> Option<&L> {
    let allowed = object.device == device && !object.no_wait;
    object.location.as_ref().filter(|_| allowed)
}

impl<L> Tables<L> {
    fn forget_device(&mut self, device: Handle, ending: &mut EndingWithDevices) {
        if self.devices.remove(&device).is_none() {
            return;
        }
        self.objects.retain(|_, object| {
            let is_its = object.device == device;
            if is_its && object.signal_by_kmd {
                ending.events.extend(object.event.take());
            }
            !is_its || object.location.is_none()
        });
        let contexts = self.contexts.iter().filter(|(_, made_on)| **made_on == device);
        for context in contexts.map(|(context, _)| *context).collect::<Vec<_>>() {
            self.contexts.remove(&context);
            self.forget_queues_of(context);
            ending.contexts.push(context);
        }
        self.forget_queues_of(device);
    }

    /// Removes the queues of a device or context and their fences.
    fn forget_queues_of(&mut self, owner: Handle) {
        let Tables { queues, objects, .. } = self;
        for (_, Queue { fence, .. }) in queues.extract_if(|_, queue| queue.owner == owner) {
            objects.remove(&fence);
        }
    }
}
