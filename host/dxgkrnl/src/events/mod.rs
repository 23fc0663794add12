//! Events that drivers signal by themselves: CPU events, and the display's periodic notifications.

pub(crate) mod cpu_event;
mod cpu_event_signals;
mod notification;
mod periodic;

use alloc::collections::BTreeMap;

use crate::ddi::KmdProcess;
use cpu_event::CpuEvents;
use notification::Notification;
use serde::{Deserialize, Serialize};

/// CPU events and periodic notifications.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Events {
    cpu_events: CpuEvents,
    /// Periodic frame notifications by NotificationID.
    notifications: BTreeMap<u64, Notification>,
    notifications_begun: u64,
}

impl Events {
    /// Begins a step.
    #[inline]
    pub fn begin_step(&mut self) {
        self.cpu_events.begin_step();
    }

    /// Removes the guest events of a process that the driver has destroyed.
    pub fn forget_guest_events(&mut self, process: KmdProcess) {
        self.cpu_events.forget_guest_events(process);
    }

    #[inline]
    pub fn cpu_events(&self) -> &CpuEvents {
        &self.cpu_events
    }

    #[inline]
    pub fn notifications(&self) -> &BTreeMap<u64, Notification> {
        &self.notifications
    }
}
