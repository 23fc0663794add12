//! Displays: the periodic frame notifications of each target.
//!
//! A target has a vsync every `vsync_ns`, the first at time 0. A notification is due its `Time` before each vsync,
//! starting with the first due time after its creation. A display without notifications has no deadline. A notification
//! that is processed late fires once for each vsync that it missed, but at most for the last [`MISSED_MAX`] of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use d3dkmt::limits;
use dxgkrnl::ddi::{Callback, CreatePeriodicFrameNotification, Interrupt, NotificationRefused};
use dxgkrnl::{Config, Nanos};
use serde::{Deserialize, Serialize};

const MISSED_MAX: u64 = 1 << 16;

/// One periodic frame notification.
#[derive(Serialize, Deserialize)]
struct Notification {
    adapter: u32,
    vidpn_target: u32,
    notification_id: u64,
    vsync_ns: Nanos,
    due: Nanos,
}

/// The displays of all adapters.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Displays {
    /// Vsync period in nanoseconds, by adapter and target.
    targets: BTreeMap<(u32, u32), Nanos>,
    /// By `hNotification`.
    notifications: BTreeMap<u64, Notification>,
    created: u64,
}

impl Displays {
    pub fn new(config: &Config) -> Self {
        let adapters = (0..).zip(&config.adapters);
        let targets = adapters.flat_map(|(adapter, config)| {
            config.targets.iter().map(move |target| ((adapter, target.id), target.vsync_ns))
        });
        Displays { targets: targets.collect(), ..Displays::default() }
    }

    pub fn create(
        &mut self,
        now: Nanos,
        create: CreatePeriodicFrameNotification,
    ) -> Result<u64, NotificationRefused> {
        let CreatePeriodicFrameNotification { adapter, vidpn_target, time_100ns, notification_id } = create;
        let vsync_ns = match self.targets.get(&(adapter, vidpn_target)) {
            None => return Err(NotificationRefused::InvalidParameter),
            // A display that is off has no vsync.
            Some(0) => return Err(NotificationRefused::Unsuccessful),
            Some(vsync_ns) => *vsync_ns,
        };
        let time_ns = match time_100ns.checked_mul(100) {
            Some(time_ns) if time_ns <= vsync_ns => time_ns,
            _ => return Err(NotificationRefused::InvalidParameter),
        };
        let of_target = |notification: &&Notification| {
            (notification.adapter, notification.vidpn_target) == (adapter, vidpn_target)
        };
        if self.notifications.values().filter(of_target).count() >= limits::PERIODIC_FENCES_PER_TARGET_MAX {
            return Err(NotificationRefused::NoMemory);
        }
        // The first k * vsync - time that is after now.
        let vsyncs = (now.saturating_add(time_ns) / vsync_ns).saturating_add(1);
        let due = vsyncs.checked_mul(vsync_ns).map_or(Nanos::MAX, |vsync| vsync - time_ns);
        self.created += 1;
        let notification = Notification { adapter, vidpn_target, notification_id, vsync_ns, due };
        self.notifications.insert(self.created, notification);
        Ok(self.created)
    }

    pub fn destroy(&mut self, notification: u64) {
        self.notifications.remove(&notification);
    }

    pub fn stop(&mut self, adapter: u32) {
        self.notifications.retain(|_, notification| notification.adapter != adapter);
    }

    pub fn next_due(&self) -> Option<Nanos> {
        self.notifications.values().map(|notification| notification.due).min()
    }

    /// Raises the interrupt of the earliest notification that is due by `now`, if there is one.
    pub fn notify(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        let first = self
            .notifications
            .values_mut()
            .filter(|notification| notification.due <= now)
            .min_by_key(|notification| notification.due);
        let Some(notification) = first else { return };
        let missed = (now - notification.due) / notification.vsync_ns;
        notification.due += missed.saturating_sub(MISSED_MAX) * notification.vsync_ns;
        let Notification { adapter, vidpn_target, notification_id, .. } = *notification;
        let interrupt = Interrupt::PeriodicMonitoredFenceSignaled { adapter, vidpn_target, notification_id };
        callbacks.push(Callback::NotifyInterrupt(interrupt));
        match notification.due.checked_add(notification.vsync_ns) {
            Some(due) => notification.due = due,
            // The next vsync is beyond the range of Nanos.
            None => self.notifications.retain(|_, other| other.notification_id != notification_id),
        }
    }
}
