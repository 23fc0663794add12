//! The wrong behaviour of each [`PlantedBug`].

use d3dkmt::{Call, SignalFlags};

use super::planted::PlantedBug;
use crate::ProcessId;
use crate::effects::{Answer, Effects, FenceStore};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::sync::waits::{WaitId, WaitOwner};

impl Kernel {
    /// Makes this kernel wrong from here on. For tests of checkers only.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: PlantedBug) {
        self.planted = Some(bug);
    }

    /// [`PlantedBug::DoubleAnswer`].
    #[cold]
    pub(crate) fn call_wrongly(
        &mut self,
        process: ProcessId,
        request: u64,
        call: Call,
        effects: &mut Effects,
    ) {
        let doubled = self.planted == Some(PlantedBug::DoubleAnswer) && self.has_two_fences(process, &call);
        self.call(process, request, call, effects);
        let succeeded = |answer: &&Answer| answer.status.is_success();
        if doubled && let Some(answer) = effects.answers.last().filter(succeeded).cloned() {
            effects.answers.push(answer);
        }
    }

    /// Whether a CPU signal with AllowFenceRewind is made on a device with two or more fences.
    fn has_two_fences(&self, process: ProcessId, call: &Call) -> bool {
        let Call::SignalFromCpu { device, flags: SignalFlags::ALLOW_FENCE_REWIND, .. } = call else {
            return false;
        };
        let Some(owner) = self.processes.get(process) else { return false };
        let Some(HandleTarget::Device(device)) = owner.handles.get(*device) else { return false };
        let children = self.processes.devices()[device].children.iter();
        let fences =
            children.filter(|child| matches!(owner.handles.get(**child), Some(HandleTarget::Sync(_))));
        fences.count() >= 2
    }

    /// [`PlantedBug::StaleValue`]: true if it stored the value itself.
    #[cold]
    pub(crate) fn stores_stale(&mut self, object: u32, value: u64, effects: &mut Effects) -> bool {
        let lower =
            value < self.sync.objects().value(object) && self.sync.objects()[object].opens_count() >= 2;
        if self.planted != Some(PlantedBug::StaleValue) || !lower || self.sync.stored().of(object).is_some() {
            return false;
        }
        self.sync.set_value(object, value);
        let begin = effects.stores.len();
        let opens = self.sync.objects()[object].opens();
        for open in opens.enumerate().filter_map(|(at, open)| (at != 1).then_some(open)) {
            let open = &self.sync.opens()[open];
            if let Some(slot) = open.slot {
                effects.stores.push(FenceStore { process: open.process, slot, value });
            }
        }
        self.sync.note_stores(object, begin..effects.stores.len());
        true
    }

    /// [`PlantedBug::LostWake`] and [`PlantedBug::EarlyWake`], after the waits on an object were evaluated,
    /// which set the events from index `events` on.
    #[cold]
    pub(crate) fn evaluate_wrongly(&mut self, object: u32, events: usize, effects: &mut Effects) {
        if self.planted == Some(PlantedBug::LostWake) && effects.events.len() >= events + 2 {
            effects.events.pop();
        }
        if self.planted == Some(PlantedBug::EarlyWake) {
            while let Some(wait) = self.almost_satisfied(object) {
                self.complete_wait(wait, effects);
            }
        }
    }

    fn almost_satisfied(&self, object: u32) -> Option<WaitId> {
        let one_below = |value: u64| value.checked_sub(1) == Some(self.sync.objects().value(object));
        let mut keys = self.sync.objects().waiters(object).take_while(|entry| one_below(entry.key));
        let entry = keys.find(|entry| {
            let wait = self.sync.waits().at(entry.wait);
            let items = self.sync.waits().items(wait);
            items.as_ref().len() >= 2 && matches!(wait.owner(), WaitOwner::Cpu { .. })
        });
        entry.map(|entry| self.sync.waits().id(entry.wait))
    }
}
