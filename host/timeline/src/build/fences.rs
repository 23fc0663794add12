//! The fences behind handles, slots and object numbers, and their values.

use std::collections::{BTreeMap, BTreeSet};

use d3dkmt::{Handle, SyncObjectType};
use dxgkrnl::{Kernel, ProcessId};

use crate::timeline::{Fence, FenceId, OPENS_KEPT};

#[derive(Default)]
pub(super) struct Fences {
    pub fences: Vec<Fence>,
    /// By the kernel's object number, which is reused after the object is destroyed.
    live: BTreeMap<u32, FenceId>,
    handles: BTreeMap<(ProcessId, Handle), FenceId>,
    slots: BTreeMap<(ProcessId, u32), FenceId>,
    /// Fences whose signals by queues the kernel does not report.
    unreported: BTreeSet<FenceId>,
}

impl Fences {
    /// Records a new handle of an object. `kind` overrides the object type's name.
    pub fn opened(
        &mut self,
        kernel: &Kernel,
        process: ProcessId,
        handle: Handle,
        kind: Option<&'static str>,
    ) -> Option<FenceId> {
        let view = kernel.object(process, handle)?;
        let fence = *self.live.entry(view.object).or_insert_with(|| {
            let kind = kind.unwrap_or_else(|| type_name(view.object_type));
            let opens = Vec::new();
            self.fences.push(Fence { kind, shared_as: None, opens, value: view.value, signals: 0, wakes: 0 });
            self.fences.len() as FenceId - 1
        });
        let opens = &mut self.fences[fence as usize].opens;
        if opens.len() < OPENS_KEPT {
            opens.push((process, handle.0));
        }
        self.handles.insert((process, handle), fence);
        if view.is_top_of_pipeline {
            self.unreported.insert(fence);
        }
        if let Some(slot) = view.slot {
            self.slots.insert((process, slot), fence);
        }
        Some(fence)
    }

    pub fn of_handle(&self, process: ProcessId, handle: Handle) -> Option<FenceId> {
        self.handles.get(&(process, handle)).copied()
    }

    pub fn of_slot(&self, process: ProcessId, slot: u32) -> Option<FenceId> {
        self.slots.get(&(process, slot)).copied()
    }

    /// Whether the kernel reports a signal by a queue of at least one of these.
    pub fn are_reported(&self, targets: &[(FenceId, u64)]) -> bool {
        targets.iter().any(|(fence, _)| !self.unreported.contains(fence))
    }

    /// The fence with this object number.
    pub fn of_object(&self, object: u64) -> Option<FenceId> {
        self.live.get(&u32::try_from(object).ok()?).copied()
    }

    pub fn gone(&mut self, object: u64) {
        if let Ok(object) = u32::try_from(object) {
            self.live.remove(&object);
        }
    }

    pub fn closed(&mut self, process: ProcessId, handle: Handle) {
        self.handles.remove(&(process, handle));
    }

    pub fn process_gone(&mut self, process: ProcessId) {
        let (from, to) = (Handle(0), Handle(u32::MAX));
        let handles: Vec<_> =
            self.handles.range((process, from)..=(process, to)).map(|(key, _)| *key).collect();
        for key in handles {
            self.handles.remove(&key);
        }
        let slots: Vec<_> =
            self.slots.range((process, 0)..=(process, u32::MAX)).map(|(key, _)| *key).collect();
        for key in slots {
            self.slots.remove(&key);
        }
    }
}

fn type_name(object_type: SyncObjectType) -> &'static str {
    match object_type {
        SyncObjectType::MUTEX => "mutex",
        SyncObjectType::SEMAPHORE => "semaphore",
        SyncObjectType::FENCE => "legacy fence",
        SyncObjectType::CPU_NOTIFICATION => "CPU notification",
        SyncObjectType::MONITORED_FENCE => "monitored fence",
        SyncObjectType::PERIODIC_MONITORED_FENCE => "periodic monitored fence",
        SyncObjectType::NATIVE_FENCE => "native fence",
        _ => "object",
    }
}
