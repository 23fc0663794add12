//! Poisoned fences (TDR-022 to TDR-026, F-61 to F-66).
//!
//! When a device is reset, each fence that it has open without NoSignal goes to the largest value, unless the fence was
//! created with NoSignalMaxValueOnTdr. That releases its waits in every process. Poisoned is a state of the object, not
//! its value: any process may signal a 64-bit fence to the largest value (F-60), and all ones in 32 bits of storage do
//! not unwrap to it.
//!
//! F-66 says that signals of a poisoned native fence have no effect, and assumes the same for monitored fences: policy
//! `poisoned_fence`. With `signalable` the next signal makes a monitored fence an ordinary one again. The driver marks
//! a native fence as always signaled, whatever put its device out of work (FEN-111).
//!
//! A fence with CrossAdapter is poisoned for good when its adapter stops, or is removed from the only VM that has it.

use alloc::{format, vec};

use d3dkmt::{Call, SyncObjectFlags, SyncObjectType};

use crate::ddi::HappensBefore;
use crate::effects::{Effects, Note};
use crate::ids::ProcessId;
use crate::kernel::Kernel;
use crate::policy::PoisonedFence;
use crate::sync::{Open, is_mapped};
use crate::tdr::LostFences;

impl Kernel {
    pub(crate) fn poison(&mut self, object: u32, device: u32, effects: &mut Effects) {
        self.report_end_of_work(device, object);
        self.poison_with(object, Self::update_current_value, effects);
    }

    /// Poisons a fence whose adapter is gone, whatever its flags: contexts of other adapters that wait for it would wait
    /// for ever.
    pub(crate) fn poison_removed(&mut self, object: u32, effects: &mut Effects) {
        self.poison_fence(object, Self::update_current_value, effects);
    }

    /// Poisons an object; `notify` passes the value to the drivers.
    fn poison_with(&mut self, object: u32, notify: fn(&mut Self, u32, &mut Effects), effects: &mut Effects) {
        let flags = self.sync.objects()[object].flags;
        if !flags.contains(SyncObjectFlags::NO_SIGNAL_MAX_VALUE_ON_TDR) {
            self.poison_fence(object, notify, effects);
        }
    }

    /// Reports that a fence of a lost device is about to be poisoned: whoever sees the largest value comes after the work
    /// of the device. [`Kernel::empty_queue`] has reported the end of that.
    fn report_end_of_work(&mut self, device: u32, object: u32) {
        let state = &self.sync.objects()[object];
        let is_kept = state.flags.contains(SyncObjectFlags::NO_SIGNAL_MAX_VALUE_ON_TDR);
        let is_over = self.sync.objects().is_poisoned(object);
        if !self.happens_before.is_on() || is_kept || is_over || !is_mapped(state.object_type) {
            return;
        }
        let all_work = !self.vidsch.work().backlog().is_losing(device);
        self.edge(HappensBefore::Poisoned { device, fence: object.into(), all_work });
    }

    fn poison_fence(&mut self, object: u32, notify: fn(&mut Self, u32, &mut Effects), effects: &mut Effects) {
        let object_type = self.sync.objects()[object].object_type;
        if !is_mapped(object_type) || self.sync.objects().is_poisoned(object) {
            return;
        }
        self.sync.set_poisoned(object, true);
        self.store_value(object, u64::MAX, effects);
        notify(self, object, effects);
        self.evaluate(object, effects);
    }

    /// If a lost device has yet to poison an object, poisons it now, before another signal of it.
    #[inline(always)]
    pub(crate) fn poison_if_lost(&mut self, object: u32, effects: &mut Effects) {
        if self.vidsch.work().backlog().is_losing_fences() {
            self.poison_pending_loss(object, effects);
        }
    }

    /// Poisons those fences of a call that a lost device has yet to poison: the call is checked against the values that
    /// they have once the device is lost.
    #[inline(always)]
    pub(crate) fn poison_lost_fences_of(&mut self, process: ProcessId, call: &Call, effects: &mut Effects) {
        if self.vidsch.work().backlog().is_losing_fences() {
            self.poison_named_fences(process, call, effects);
        }
    }

    #[cold]
    fn poison_named_fences(&mut self, process: ProcessId, call: &Call, effects: &mut Effects) {
        for handle in call.handles() {
            if let Ok((_, object)) = self.sync_object(process, handle) {
                self.poison_pending_loss(object, effects);
            }
        }
    }

    /// Whether a new value has no effect on this object because it is poisoned. What comes before the value happens first.
    #[inline(always)]
    pub(crate) fn ignores_value(&mut self, object: u32, value: u64, effects: &mut Effects) -> bool {
        self.evaluate_if_due(object, effects);
        self.poison_if_lost(object, effects);
        self.sync.objects().is_poisoned(object) && self.poisoned_ignores_value(object, value, effects)
    }

    /// Whether a loss poisons an object that the lost device has open: one that the device signals. The display signals a
    /// periodic fence (F-87), whatever devices have it open. The fence of a paging queue is signaled for its device,
    /// although the process has it with NoSignal.
    pub(super) fn is_poisoned_by(&self, loss: LostFences, device: u32, object: u32, open: u32) -> bool {
        let Open { flags, mapping, .. } = &self.sync.opens()[open];
        let may_signal = !flags.contains(SyncObjectFlags::NO_SIGNAL) || mapping.paging_queue.is_some();
        let is_of_display =
            self.sync.objects()[object].object_type == SyncObjectType::PERIODIC_MONITORED_FENCE;
        may_signal
            && !is_of_display
            && match loss {
                LostFences::WaitsEnd => false,
                LostFences::NativeOnesAreSignaled => self.is_native_on(device, object, open),
                LostFences::AllAreSignaled => true,
            }
    }

    /// Poisons an object if a lost device that has it open has yet to poison it. The loss came before the value at
    /// hand.
    #[cold]
    fn poison_pending_loss(&mut self, object: u32, effects: &mut Effects) {
        let backlog = self.vidsch.work().backlog();
        let mut lost = vec![];
        for open in self.sync.objects()[object].opens() {
            let at = &self.sync.opens()[open];
            let Some(device) = at.device else { continue };
            let queue = at.mapping.paging_queue.and_then(|queue| self.vidmm.paging_queues().get(queue));
            let child = queue.map_or(at.handle, |queue| queue.handle);
            for loss in [LostFences::NativeOnesAreSignaled, LostFences::AllAreSignaled] {
                if backlog.loses_fence(device, loss, child) && self.is_poisoned_by(loss, device, object, open)
                {
                    lost.push((device, loss, child));
                }
            }
        }
        if lost.is_empty() {
            return;
        }
        for (device, loss, child) in lost {
            self.report_end_of_work(device, object);
            self.vidsch.work_mut().backlog_mut().mark_early(device, loss, child);
        }
        // The value may come from an engine's callback, so the callbacks of this DDI are queued as work.
        self.poison_with(object, Self::send_current_value, effects);
    }

    fn poisoned_ignores_value(&mut self, object: u32, value: u64, effects: &mut Effects) -> bool {
        if self.is_beyond_signals(object) {
            let text = format!("signal {value} of a poisoned fence: ignored");
            effects.notes.push(Note { process: None, text });
            return true;
        }
        self.sync.set_poisoned(object, false);
        false
    }

    /// Whether signals of this object have no effect, so that none needs a check.
    pub(crate) fn is_beyond_signals(&self, object: u32) -> bool {
        if !self.sync.objects().is_poisoned(object) {
            return false;
        }
        match self.config.policy.poisoned_fence {
            PoisonedFence::Sticky => true,
            PoisonedFence::Signalable => {
                self.native.fences().contains_key(&object) || self.sync.objects()[object].is_removed()
            }
        }
    }
}
