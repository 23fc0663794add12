//! Callbacks that the process has registered, by handle.

use std::collections::BTreeMap;

use d3dkmt::{Handle, NtStatus};

use crate::limits::NOTIFICATIONS_MAX;

/// A registered callback, with its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification {
    Trim(usize),
    BudgetChange(usize),
}

#[derive(Default, Debug)]
pub(super) struct Notifications {
    /// With the device of each; NULL for one of an adapter.
    registered: BTreeMap<usize, (Handle, Notification)>,
    last_handle: usize,
}

impl Notifications {
    pub fn register(&mut self, device: Handle, notification: Notification) -> Result<usize, NtStatus> {
        if self.registered.len() >= NOTIFICATIONS_MAX {
            return Err(NtStatus::NO_MEMORY);
        }
        self.last_handle += 1;
        self.registered.insert(self.last_handle, (device, notification));
        Ok(self.last_handle)
    }

    /// Removes the first registration that this is true of, by handle and notification.
    pub fn unregister(&mut self, is_it: impl Fn(usize, Notification) -> bool) -> Result<NtStatus, NtStatus> {
        let mut found = self.registered.iter().filter(|(handle, (_, one))| is_it(**handle, *one));
        let handle = found.next().map(|(handle, _)| *handle).ok_or(NtStatus::INVALID_PARAMETER)?;
        self.registered.remove(&handle);
        Ok(NtStatus::SUCCESS)
    }
    /// Registrations end with their device.
    pub fn devices_ended(&mut self, is_alive: impl Fn(Handle) -> bool) {
        self.registered.retain(|_, (device, _)| *device == Handle::NULL || is_alive(*device));
    }
}
