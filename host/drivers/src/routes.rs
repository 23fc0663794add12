//! The adapter of each object that a DDI names without its adapter: recorded at creation, removed at destruction.

use std::collections::BTreeMap;

use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{
    Callback, FaultedWork, HwContext, HwQueueId, Interrupt, LocalNativeFenceId, NativeFenceId,
    NativeFenceStorage, NewHwQueue, NewNativeFence, OpenedNativeFence, SignaledNativeFences,
};
use serde::{Deserialize, Serialize};

/// Adapter, process and GPU virtual address.
type GpuLocation = (u32, ProcessId, u64);

/// Adapters of contexts, hardware queues and native fences.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Routes {
    contexts: BTreeMap<HwContext, u32>,
    hw_queues: BTreeMap<HwQueueId, (u32, ProcessId)>,
    fences: BTreeMap<NativeFenceId, (u32, NativeFenceStorage)>,
    locals: BTreeMap<LocalNativeFenceId, GpuLocation>,
    mapped: BTreeMap<GpuLocation, NativeFenceStorage>,
    /// Adapters that share a storage.
    sharers: BTreeMap<NativeFenceStorage, Vec<u32>>,
    /// Number of storages that several adapters share: mostly 0.
    shared: usize,
}

impl Routes {
    pub fn context(&self, context: HwContext) -> Option<u32> {
        self.contexts.get(&context).copied()
    }

    pub fn hw_queue(&self, hw_queue: HwQueueId) -> Option<u32> {
        self.hw_queues.get(&hw_queue).map(|(adapter, _)| *adapter)
    }

    pub fn fence(&self, fence: NativeFenceId) -> Option<u32> {
        self.fences.get(&fence).map(|(adapter, _)| *adapter)
    }

    pub fn local(&self, local: LocalNativeFenceId) -> Option<u32> {
        self.locals.get(&local).map(|(adapter, ..)| *adapter)
    }

    pub fn context_created(&mut self, context: HwContext, adapter: u32) {
        self.contexts.insert(context, adapter);
    }

    pub fn context_destroyed(&mut self, context: HwContext) {
        self.contexts.remove(&context);
    }

    pub fn hw_queue_created(&mut self, new: &NewHwQueue) {
        self.hw_queues.insert(new.hw_queue, (new.engine.adapter, new.process));
    }

    pub fn hw_queue_destroyed(&mut self, hw_queue: HwQueueId) {
        self.hw_queues.remove(&hw_queue);
    }

    pub fn fence_created(&mut self, new: &NewNativeFence) {
        self.fences.insert(new.fence, (new.adapter, new.storage));
        let sharers = self.sharers.entry(new.storage).or_default();
        sharers.push(new.adapter);
        self.shared += usize::from(sharers.len() == 2);
    }

    pub fn fence_destroyed(&mut self, fence: NativeFenceId) {
        let Some((adapter, storage)) = self.fences.remove(&fence) else { return };
        let Some(sharers) = self.sharers.get_mut(&storage) else { return };
        self.shared -= usize::from(sharers.len() == 2);
        if let Some(at) = sharers.iter().position(|other| *other == adapter) {
            sharers.remove(at);
        }
        if sharers.is_empty() {
            self.sharers.remove(&storage);
        }
    }

    pub fn fence_opened(&mut self, opened: &OpenedNativeFence) {
        let Some((adapter, storage)) = self.fences.get(&opened.fence) else { return };
        let location = (*adapter, opened.process, opened.gpu_address);
        self.locals.insert(opened.local, location);
        if opened.writable {
            self.mapped.insert(location, *storage);
        }
    }

    pub fn fence_closed(&mut self, local: LocalNativeFenceId) {
        if let Some(location) = self.locals.remove(&local) {
            self.mapped.remove(&location);
        }
    }

    pub fn sharers(&self, storage: NativeFenceStorage) -> Vec<u32> {
        self.sharers.get(&storage).cloned().unwrap_or_default()
    }

    /// Storage and value of a store by this adapter, if other adapters share the storage.
    pub fn shared_store(&self, adapter: u32, callback: &Callback) -> Option<(NativeFenceStorage, u64)> {
        if self.shared == 0 {
            return None;
        }
        let (process, gpu_address, value) = match callback {
            Callback::GpuStore { process, gpu_address, value, .. } => (*process, *gpu_address, *value),
            Callback::HwQueueStore { hw_queue, gpu_address, value, .. } => {
                (self.hw_queues.get(hw_queue)?.1, *gpu_address, *value)
            }
            _ => return None,
        };
        let storage = *self.mapped.get(&(adapter, process, gpu_address))?;
        (self.sharers.get(&storage)?.len() > 1).then_some((storage, value))
    }

    /// Describes the object of another adapter that a callback of this adapter's driver names. Unknown objects are left
    /// to the kernel.
    pub fn foreign(&self, adapter: u32, callback: &Callback) -> Option<String> {
        let other = |of: u32| (of != adapter).then(|| format!("adapter {of}"));
        let foreign_object = |of: Option<u32>, what: &str| {
            of.filter(|of| *of != adapter).map(|of| format!("a {what} of adapter {of}"))
        };
        let queue = |hw_queue: &HwQueueId| foreign_object(self.hw_queue(*hw_queue), "hardware queue");
        let context = |context: &HwContext| foreign_object(self.context(*context), "context");
        match callback {
            Callback::NotifyInterrupt(interrupt) => other(interrupt.adapter()).or_else(|| match interrupt {
                Interrupt::SuspendContextCompleted { context: of, .. } => context(of),
                Interrupt::HwQueuePageFaulted { work, .. } => match work {
                    FaultedWork::Queue { hw_queue, .. } => queue(hw_queue),
                    FaultedWork::Context(of) => context(of),
                    FaultedWork::Process(_) | FaultedWork::Unknown => None,
                },
                Interrupt::NativeFenceSignaled { signaled, .. } => match signaled {
                    SignaledNativeFences::These(fences) => {
                        fences.iter().find_map(|fence| foreign_object(self.fence(*fence), "native fence"))
                    }
                    SignaledNativeFences::Logged { hw_queue } => hw_queue.as_ref().and_then(queue),
                    SignaledNativeFences::All { .. } => None,
                },
                _ => None,
            }),
            Callback::NotifyDpc { adapter: of } | Callback::SignalEvent { adapter: of, .. } => other(*of),
            Callback::GpuStore { engine, .. } | Callback::GpuLoad { engine, .. } => other(engine.adapter),
            Callback::Dma { engine, moved } => other(engine.adapter).or_else(|| {
                let foreign = moved.adapters().find(|of| *of != adapter);
                foreign.map(|of| format!("a staging buffer of adapter {of}"))
            }),
            Callback::HwQueueStore { engine, hw_queue, .. } => {
                other(engine.adapter).or_else(|| queue(hw_queue))
            }
            Callback::InvalidateHwContext { context: of, .. } => context(of),
            Callback::NativeFenceLogWrite(write) => queue(&write.hw_queue),
            Callback::DisconnectDoorbell { hw_queue, .. } => queue(hw_queue),
            Callback::Violation { adapter: of, .. } | Callback::DebugPrint { adapter: of, .. } => other(*of),
            Callback::Stuck { .. } => None,
        }
    }
}
