//! Periodic monitored fences (type 6): counted up by the display.
//!
//! One belongs to a display target, `VidPnTargetId` of the adapter `hAdapter`, which must be the device's. The driver
//! is asked for a periodic frame notification; each of its interrupts 14 adds 1 to the value, `Time` before a vsync
//! (F-83 to F-87). Nobody else changes it: a signal is refused as one of the wrong type (FEN-084, in the order of
//! W-100), a write of an engine finds nothing it may write (FEN-085). Waits are those of any fence.
//!
//! A target has few of them, of which a VM has at most twice what it leaves: another one always gets some.
//!
//! The notification is the object's, not the open's: it ends with the last reference, or when the adapter stops. What
//! happens to engines, devices and contexts does not stop the display (F-87).

use serde::{Deserialize, Serialize};

use crate::VmId;

/// A notification that the driver keeps, by its NotificationID.
#[derive(Serialize, Deserialize)]
pub(crate) struct Notification {
    /// The VM of who created the fence: it has a share of the target's.
    pub vm: VmId,
    pub adapter: u32,
    pub vidpn_target: u32,
    pub object: u32,
    /// `hNotification`: the driver's name for it.
    pub driver: u64,
}
