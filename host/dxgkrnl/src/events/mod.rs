//! What drivers signal by themselves: CPU events, and the display's periodic notifications.

pub(crate) mod cpu_event;
mod cpu_event_signals;
mod notification;
mod periodic;

use alloc::collections::BTreeMap;

use cpu_event::CpuEvents;
use notification::Notification;
use serde::{Deserialize, Serialize};

/// CPU events and periodic notifications.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Events {
    pub(crate) cpu_events: CpuEvents,
    /// Periodic frame notifications by NotificationID.
    pub(crate) notifications: BTreeMap<u64, Notification>,
    pub(crate) notifications_begun: u64,
}
