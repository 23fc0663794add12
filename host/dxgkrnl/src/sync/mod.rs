//! Synchronization objects: the table, its opens, and the waits for values.
//!
//! State: `objects.rs` and `object.rs` (the table), `open.rs`, `mapping.rs`, `waits.rs`, `ordered/mod.rs` (waiters by
//! value), `stored.rs` (stores of this step), `written.rs` (fences that engines wrote), `legacy.rs` (mutexes,
//! semaphores), `keyed_mutex.rs`. Behaviour: `create.rs` (creation, opens and their end), `wait.rs` (signals and waits),
//! `waiters.rs` (many waits that end together), `window.rs` (32-bit values), `acquire.rs` (mutexes and semaphores in
//! queues), `keyed_mutex_calls.rs`, `mapping_calls.rs`.

mod acquire;
mod create;
mod hot;
pub(crate) mod keyed_mutex;
mod keyed_mutex_calls;
pub(crate) mod legacy;
pub(crate) mod mapping;
mod mapping_calls;
pub(crate) mod object;
pub(crate) mod objects;
mod open;
pub(crate) mod ordered;
pub(crate) mod reached;
pub(crate) mod stored;
mod wait;
mod waiters;
pub(crate) mod waits;
pub(crate) mod window;
pub(crate) mod written;

use alloc::vec::Vec;
use core::ops::Range;

use d3dkmt::Handle;
use legacy::Legacy;
use object::SyncObject;
use objects::Objects;
use serde::{Deserialize, Serialize};
use stored::StoredNow;
use waits::{Wait, WaitItem, WaitOwner, Waits};
use written::{FirstWrite, Mark, WrittenFences};

pub(crate) use open::{NewOpen, Open, check_flags, is_mapped};

use crate::ProcessId;
use crate::slab::Slab;

/// All synchronization objects, their opens and their waits.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Sync {
    objects: Objects,
    opens: Slab<Open>,
    waits: Waits,
    legacy: Legacy,
    /// Signals from the CPU that were answered and take effect next (policy `cpu_signal`). They keep their objects
    /// alive.
    answered: Vec<(ProcessId, u32, u64)>,
    written: WrittenFences,
    /// Stores of this call of `handle`, which can be overwritten.
    #[serde(skip)]
    stored: StoredNow,
}

impl Sync {
    /// Marks all objects of an adapter that was stopped and starts again.
    pub fn mark_removed(&mut self, adapter: u32) {
        self.objects.mark_removed(adapter);
    }

    /// Marks an object whose adapter is gone for everyone who has it, or for some of its opens.
    pub fn set_removed(&mut self, object: u32, for_all: bool) {
        self.objects.set_removed(object, for_all);
    }

    /// Adds an NT handle, which names an object and keeps it alive.
    pub fn add_share(&mut self, object: u32) {
        self.objects.add_share(object);
    }

    /// Removes an NT handle. [`crate::Kernel::release_reference`] releases its reference.
    pub fn remove_share(&mut self, object: u32) {
        self.objects.remove_share(object);
    }

    /// Adds the reference of a queued packet or the like, which keeps an object alive.
    pub fn hold(&mut self, object: u32) {
        self.objects.hold(object);
    }

    pub fn set_value(&mut self, object: u32, value: u64) {
        self.objects.set_value(object, value);
    }

    /// Records the first stores of an object in this step, by their range in the effects.
    pub fn note_stores(&mut self, object: u32, stores: Range<usize>) {
        self.stored.note(object, stores);
    }

    /// Marks an object whose values are reported to drivers.
    pub fn watch(&mut self, object: u32) {
        self.objects.set_watched(object);
    }

    pub fn set_poisoned(&mut self, object: u32, poisoned: bool) {
        self.objects.set_poisoned(object, poisoned);
    }

    /// Removes an object whose creation failed before it was opened.
    pub fn remove_unopened(&mut self, object: u32) {
        self.objects.remove(object);
    }

    pub fn take_global(&mut self, object: u32) -> Option<Handle> {
        self.objects.take_global(object)
    }

    pub fn open_mut(&mut self, open: u32) -> &mut Open {
        &mut self.opens[open]
    }

    pub fn find_open_mut(&mut self, open: u32) -> Option<&mut Open> {
        self.opens.get_mut(open)
    }

    /// Forgets the stores so far, so that they are not overwritten.
    #[inline]
    pub fn forget_stores(&mut self) {
        self.stored.clear();
    }

    /// Records that an engine wrote a fence for a process. Its waits are evaluated later.
    pub fn note_engine_write(&mut self, object: u32, by: ProcessId) {
        let (objects, opens) = (&self.objects, &self.opens);
        let having_it_open = objects.get(object).into_iter().flat_map(SyncObject::opens);
        self.written.note_write(object, by, having_it_open.map(|open| opens[open].process));
    }

    /// Takes a fence that engines wrote, because its waits are evaluated now. Returns its first write since the last
    /// evaluation, and how many processes would have it evaluated.
    pub fn take_written(&mut self, object: u32) -> Option<(FirstWrite, u32)> {
        self.written.take(object)
    }

    /// Makes the written fences of a process due, up to these marks.
    pub fn set_due(&mut self, process: ProcessId, up_to: Mark) {
        self.written.set_due(process, up_to);
    }

    /// The written fences of a process, up to these marks, are evaluated.
    #[inline]
    pub fn end_due(&mut self, process: ProcessId, up_to: Mark) {
        self.written.end_due(process, up_to);
    }

    /// Forgets what engines wrote for a process that has ended.
    pub fn forget_written_for(&mut self, process: ProcessId) {
        self.written.forget_process(process);
    }

    /// Updates the marks of a written fence after a process has closed an open of it.
    fn written_fence_closed(&mut self, object: u32, process: ProcessId) {
        let is_its = |open: u32| self.opens[open].process == process;
        if self.written.contains(object) && !self.objects[object].opens().any(is_its) {
            self.written.note_close(object, process);
        }
    }

    /// Whether the marks of written fences are wrong.
    pub fn written_fences_are_wrong(&self) -> bool {
        let opens = |object: u32| {
            let opens = self.objects.get(object).into_iter().flat_map(SyncObject::opens);
            opens.map(|open| self.opens[open].process)
        };
        self.written.are_wrong(opens)
    }

    /// Whether a CPU wait is pending through an open that is said to have none.
    pub fn has_unnoted_waits(&self) -> bool {
        let is_unnoted = |item: WaitItem| {
            let open = item.open.and_then(|open| self.opens.get(open)).filter(|_| !item.satisfied);
            open.is_some_and(|open| open.object == item.object && open.is_without_waits)
        };
        let is_queued = |wait: &Wait| matches!(wait.owner(), WaitOwner::Gpu { .. });
        self.waits.values().any(|wait| !is_queued(wait) && self.waits.items(wait).iter().any(is_unnoted))
    }

    #[inline]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        self.objects.shorten(most) + self.opens.shorten(most) + self.waits.shorten(most)
    }

    #[inline]
    pub fn opens(&self) -> &Slab<Open> {
        &self.opens
    }

    #[inline]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    #[inline]
    pub fn legacy(&self) -> &Legacy {
        &self.legacy
    }

    #[inline]
    pub fn answered(&self) -> &Vec<(ProcessId, u32, u64)> {
        &self.answered
    }

    #[inline]
    pub fn written(&self) -> &WrittenFences {
        &self.written
    }

    #[inline]
    pub fn stored(&self) -> &StoredNow {
        &self.stored
    }
}
