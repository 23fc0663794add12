//! CurrentValue and MonitoredValue, and the handling of interrupt 19.
//!
//! ```text
//!   MonitoredValue = the least value that is waited for in software, less 1;  UINT64_MAX: none (FEN-098)
//! ```
//! "In software" are CPU waits, waits in context queues, and the kernel's own interest in progress fences. A wait for 0
//! is always satisfied and never among them, so the difference does not wrap (FEN-128).
//!
//! When waits were added or have ended, the kernel passes the new MonitoredValues to the driver, once for each input.
//! Meanwhile the GPU may still store by the old MonitoredValue, and so without an interrupt. Therefore the kernel
//! evaluates the CurrentValues again afterwards (FEN-101, FEN-103).

use alloc::format;
use alloc::vec::Vec;

use crate::ddi::{CurrentValueUpdate, EngineId, NativeFenceId, SignaledNativeFences};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::tdr::bugcheck::VIDEO_SCHEDULER_INTERNAL_ERROR;

impl Kernel {
    /// Marks a native fence whose waits changed.
    pub(crate) fn mark_monitored(&mut self, object: u32) {
        if self.sync.objects().is_watched(object) && self.native.fences.contains_key(&object) {
            self.native.dirty.insert(object);
        }
    }

    fn monitored_value_of(&self, object: u32) -> u64 {
        let least =
            self.sync.objects().least_waited(object).into_iter().chain(self.awaited_progress(object)).min();
        least.map_or(u64::MAX, |value| value - 1)
    }

    /// Updates MonitoredValues at the drivers; true if some changed.
    pub(crate) fn update_monitored_values(&mut self, effects: &mut Effects) -> bool {
        let mut updates: Vec<(NativeFenceId, u64)> = Vec::new();
        let mut updated = Vec::new();
        while let Some(object) = self.native.dirty.pop_first() {
            let monitored_value = self.monitored_value_of(object);
            let Some(fence) = self.native.fences.get_mut(&object) else { continue };
            if fence.cross_adapter || self.sync.objects().is_poisoned(object) {
                continue;
            }
            for (adapter, on_adapter) in &mut fence.adapters {
                if on_adapter.monitored_value != monitored_value
                    && !self.tdr.stopped_adapters().contains(adapter)
                {
                    on_adapter.monitored_value = monitored_value;
                    updates.push((on_adapter.fence, monitored_value));
                    updated.push(object);
                }
            }
        }
        if updates.is_empty() {
            return false;
        }
        self.run_ddi(effects, |miniport, now, callbacks| {
            miniport.update_monitored_values(now, &updates, callbacks);
        });
        for object in updated {
            self.evaluate_if_live(object, effects);
        }
        true
    }

    /// Evaluates the waits on a native fence, if it lives.
    fn evaluate_if_live(&mut self, object: u32, effects: &mut Effects) {
        self.native.written.remove(&object);
        if self.native.fences.contains_key(&object) {
            self.evaluate(object, effects);
        }
    }

    /// Notifies the hardware of a value that the kernel changed. The hardware writes it. For a fence that several
    /// adapters share, whose memory the kernel has written, it only evaluates its waits (FEN-112, FEN-117).
    #[inline]
    pub(crate) fn update_current_value(&mut self, object: u32, effects: &mut Effects) {
        if self.sync.objects().is_watched(object) && self.native.fences.contains_key(&object) {
            self.send_current_value(object, effects);
            self.process_callbacks(effects);
        }
    }

    /// The same while a callback is processed: further callbacks of drivers are left as work.
    pub(crate) fn send_current_value(&mut self, object: u32, effects: &mut Effects) {
        let Some(fence) = self.native.fences.get(&object) else { return };
        let notification_only = fence.cross_adapter && !self.sync.objects().is_poisoned(object);
        self.notify_current_value(object, None, notification_only, effects);
    }

    /// Lets the other adapters evaluate their waits, after an engine of one changed a value in memory (FEN-115). They
    /// are notified when all callbacks are processed, so that their stores come after it, in memory and here.
    pub(crate) fn propagate_current_value(&mut self, object: u32, from: Option<u32>) {
        if self.native.fences.get(&object).is_some_and(|fence| fence.cross_adapter) {
            self.vidsch.work_mut().notify_adapters(object, from);
        }
    }

    /// Writes the memory of a cross-adapter fence, after a store of an engine whose adapter has it as a monitored one:
    /// all adapters share the memory (FEN-114).
    pub(crate) fn write_native_memory(&mut self, open: u32, object: u32, value: u64) {
        if let Some(fence) = self.native.fences.get(&object)
            && !fence.opens.contains_key(&open)
        {
            self.miniport.memory_written(fence.storage, value);
        }
    }

    pub(crate) fn notify_current_value(
        &mut self,
        object: u32,
        except: Option<u32>,
        notification_only: bool,
        effects: &mut Effects,
    ) {
        let Some(fence) = self.native.fences.get(&object) else { return };
        let value = self.sync.objects().value(object);
        let always_signaled = self.sync.objects().is_poisoned(object);
        let notified = fence.adapters.iter().filter(|(adapter, _)| {
            Some(**adapter) != except && !self.tdr.stopped_adapters().contains(adapter)
        });
        let updates: Vec<_> = notified
            .map(|(_, on_adapter)| CurrentValueUpdate {
                fence: on_adapter.fence,
                value,
                always_signaled,
                notification_only,
            })
            .collect();
        for adapter in fence.adapters.keys() {
            self.vidsch.in_flight_mut().expect_hw_progress(*adapter, self.now);
        }
        if !updates.is_empty() {
            self.call_ddi(effects, |miniport, now, callbacks| {
                miniport.update_current_values_from_cpu(now, &updates, callbacks);
            });
        }
    }

    /// What an adapter's driver is told of a native fence that it has not followed.
    pub(super) fn value_on(&self, fence: NativeFenceId, object: u32) -> CurrentValueUpdate {
        CurrentValueUpdate {
            fence,
            value: self.sync.objects().value(object),
            always_signaled: self.sync.objects().is_poisoned(object),
            notification_only: false,
        }
    }

    /// Notifies an adapter that starts again of the values that its native fences have got.
    pub(crate) fn update_native_fences_of(&mut self, adapter: u32, effects: &mut Effects) {
        let mut updates = Vec::new();
        for (object, fence) in &self.native.fences {
            if let Some(place) = fence.adapters.get(&adapter) {
                updates.push(self.value_on(place.fence, *object));
            }
        }
        if !updates.is_empty() {
            self.call_ddi(effects, |miniport, now, callbacks| {
                miniport.update_current_values_from_cpu(now, &updates, callbacks);
            });
        }
    }

    /// Whether hardware that works must be notified that a fence is signaled for ever, because a device that is lost
    /// has this open of it (FEN-111).
    pub(crate) fn is_native_on(&self, device: u32, object: u32, open: u32) -> bool {
        let adapter = self.processes.devices()[device].adapter;
        !self.tdr.stopped_adapters().contains(&adapter) && self.native.of_open(object, open).is_some()
    }

    /// Records a store of an engine to a fence, whose waits are evaluated later.
    pub(crate) fn written_by_gpu(&mut self, open: u32, object: u32, adapter: u32, value: u64) {
        let process = self.sync.opens()[open].process;
        match self.native.of_open(object, open).and_then(|fence| fence.adapters.get(&adapter)) {
            Some(on_adapter) if value > on_adapter.monitored_value => {
                self.native.written.insert(object);
            }
            Some(_) => {}
            None => self.sync.note_engine_write(object, process),
        }
    }

    /// Handles interrupt 19: engines stored above the MonitoredValue of native fences.
    pub(crate) fn native_fences_signaled(
        &mut self,
        engine: EngineId,
        signaled: SignaledNativeFences,
        effects: &mut Effects,
    ) {
        match signaled {
            SignaledNativeFences::These(fences) => {
                for fence in fences {
                    match self.native.globals.get(&fence).copied() {
                        Some(object) => self.signaled_on(object, engine.adapter, effects),
                        None => self.signaled_after_its_end(engine, fence, effects),
                    }
                }
            }
            SignaledNativeFences::All { evaluate_legacy_monitored_fences } => {
                self.scan_native_fences(engine.adapter, effects);
                if evaluate_legacy_monitored_fences {
                    self.evaluate_all_written(effects);
                }
            }
            SignaledNativeFences::Logged { hw_queue } => self.logs_are_to_be_read(engine, hw_queue, effects),
        }
    }

    pub(super) fn signaled_on(&mut self, object: u32, adapter: u32, effects: &mut Effects) {
        self.propagate_current_value(object, Some(adapter));
        self.evaluate_if_live(object, effects);
    }

    /// Evaluates all native fences of an adapter.
    pub(super) fn scan_native_fences(&mut self, adapter: u32, effects: &mut Effects) {
        let on_adapter = self.native.fences.iter().filter(|(_, fence)| fence.adapters.contains_key(&adapter));
        let objects: Vec<u32> = on_adapter.map(|(object, _)| *object).collect();
        for object in objects {
            self.signaled_on(object, adapter, effects);
        }
    }

    /// Bugchecks, because the driver named a global handle that it has destroyed (FEN-109). The documents name no code:
    /// this is the scheduler's own.
    fn signaled_after_its_end(&mut self, engine: EngineId, fence: NativeFenceId, effects: &mut Effects) {
        let parameters = [19, fence.0, u64::from(engine.adapter), u64::from(engine.node)];
        let why = format!("NATIVE_FENCE_SIGNALED names {}, which is no live global handle", fence.0);
        self.bugcheck(VIDEO_SCHEDULER_INTERNAL_ERROR, parameters, why, effects);
    }
}
