//! Periodic monitored fences: notifications begin, signal and end. See `notification.rs` for the rules.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, SyncObjectInfo, SyncObjectType, limits};

use super::notification::Notification;
use crate::ddi::{CreatePeriodicFrameNotification, NotificationRefused};
use crate::effects::{Effects, Note};
use crate::error::{Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

impl Kernel {
    /// Checks the members of a periodic fence; others have none to check.
    pub(crate) fn check_periodic(
        &self,
        process: ProcessId,
        device: u32,
        info: &SyncObjectInfo,
    ) -> Result<(), Refusal> {
        if info.object_type != SyncObjectType::PERIODIC_MONITORED_FENCE {
            return Ok(());
        }
        let ordinal = self.adapter(process, info.adapter)?;
        if ordinal != self.processes.devices()[device].adapter {
            return invalid(format!("hAdapter {} is another adapter than the device's", info.adapter));
        }
        let adapter = &self.config.adapters[ordinal as usize];
        let Some(target) = adapter.targets.iter().find(|target| target.id == info.vidpn_target) else {
            return invalid(format!("the adapter has no display target {}", info.vidpn_target));
        };
        if info.time_100ns.checked_mul(100).is_none_or(|time_ns| time_ns > target.vsync_ns) {
            let (time, interval) = (info.time_100ns, target.vsync_ns);
            return invalid(format!(
                "Time {time} (x 100 ns) before vsync is more than the vsync interval of {interval} ns"
            ));
        }
        Ok(())
    }

    /// Creates the notification of a new object at the driver, if it is a periodic fence.
    pub(crate) fn begin_notification(
        &mut self,
        process: ProcessId,
        object: u32,
        info: &SyncObjectInfo,
    ) -> Result<(), Refusal> {
        if info.object_type != SyncObjectType::PERIODIC_MONITORED_FENCE {
            return Ok(());
        }
        let id = self.events.notifications_begun + 1;
        let (adapter, vidpn_target) = (self.sync.objects()[object].adapter, info.vidpn_target);
        let vm = self.process(process).vm;
        self.require_share_of_target(vm, adapter, vidpn_target)?;
        let create = CreatePeriodicFrameNotification {
            adapter,
            vidpn_target,
            time_100ns: info.time_100ns,
            notification_id: id,
        };
        match self.miniport.create_periodic_frame_notification(self.now, create) {
            Ok(driver) => {
                self.events.notifications_begun = id;
                let new = Notification { vm, adapter, vidpn_target, object, driver };
                self.events.notifications.insert(id, new);
                Ok(())
            }
            Err(refused) => {
                let status = match refused {
                    NotificationRefused::NoMemory => NtStatus::NO_MEMORY,
                    NotificationRefused::InvalidParameter => NtStatus::INVALID_PARAMETER,
                    NotificationRefused::Unsuccessful => NtStatus::UNSUCCESSFUL,
                };
                refuse(status, "the driver refused the periodic frame notification")
            }
        }
    }

    /// Refuses a periodic fence of a target above the share of a VM.
    fn require_share_of_target(&self, vm: VmId, adapter: u32, vidpn_target: u32) -> Result<(), Refusal> {
        let most = limits::PERIODIC_FENCES_PER_TARGET_MAX;
        let all = self.events.notifications.values();
        let of_target = all.filter(|one| (one.adapter, one.vidpn_target) == (adapter, vidpn_target));
        let (total, own) =
            of_target.fold((0, 0), |(all, own), one| (all + 1, own + usize::from(one.vm == vm)));
        if total < most && limits::is_fair_share(own as u64 + 1, (most - total - 1) as u64) {
            return Ok(());
        }
        let why = format!(
            "the VM has {own} periodic fences of target {vidpn_target}, {total} of {most} are taken: no VM has more than \
             twice what it leaves"
        );
        refuse(NtStatus::NO_MEMORY, why)
    }

    /// Destroys the notification of an object that is destroyed.
    pub(crate) fn end_notification_of(&mut self, object: u32) {
        if self.sync.objects()[object].object_type != SyncObjectType::PERIODIC_MONITORED_FENCE {
            return;
        }
        let of_object =
            |(id, notification): (&u64, &Notification)| (notification.object == object).then_some(*id);
        let Some(id) = self.events.notifications.iter().find_map(of_object) else { return };
        if let Some(notification) = self.events.notifications.remove(&id) {
            self.miniport.destroy_periodic_frame_notification(notification.adapter, notification.driver);
        }
    }

    /// Drops the notifications of an adapter that stops, and its displays with it. The fences stay as they are.
    pub(crate) fn forget_notifications(&mut self, adapter: u32) {
        self.events.notifications.retain(|_, one| one.adapter != adapter);
    }

    /// Destroys the notifications of fences whose adapter was removed from the only VM that had them.
    pub(crate) fn end_removed_notifications(&mut self, adapter: u32) {
        let is_dead =
            |one: &Notification| one.adapter == adapter && self.sync.objects()[one.object].is_removed();
        let notifications = self.events.notifications.values();
        let dead: Vec<u32> = notifications.filter(|one| is_dead(one)).map(|one| one.object).collect();
        dead.into_iter().for_each(|object| self.end_notification_of(object));
    }

    /// Handles interrupt 14: the display counts a periodic fence up.
    pub(crate) fn periodic_fence_signaled(
        &mut self,
        adapter: u32,
        vidpn_target: u32,
        notification_id: u64,
        effects: &mut Effects,
    ) {
        let notification = self.events.notifications.get(&notification_id);
        let notification =
            notification.filter(|one| (one.adapter, one.vidpn_target) == (adapter, vidpn_target));
        let Some(object) = notification.map(|one| one.object) else {
            let text = format!(
                "interrupt 14 of adapter {adapter}, target {vidpn_target} names the unknown notification \
                 {notification_id}"
            );
            effects.notes.push(Note { process: None, text });
            return;
        };
        let value = self.sync.objects().value(object).wrapping_add(1);
        self.set_value(object, value, effects);
    }

    /// Refuses any signal of a periodic fence.
    pub(crate) fn check_not_periodic(&self, object: u32, handle: Handle) -> Result<(), Refusal> {
        if self.sync.objects()[object].object_type == SyncObjectType::PERIODIC_MONITORED_FENCE {
            return invalid(format!("{handle} is a periodic monitored fence: only its display counts it up"));
        }
        Ok(())
    }
}
