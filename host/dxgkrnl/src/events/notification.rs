//! Periodic monitored fences (type 6): counted up by the display.
//!
//! One belongs to a display target, `VidPnTargetId` of the adapter `hAdapter`, which must be the device's. The driver
//! creates a periodic frame notification; each of its interrupts 14 adds 1 to the value, `Time` before a vsync
//! (F-83 to F-87). Nothing else changes it: a signal is refused as one of the wrong type (FEN-084, in the order of
//! W-100), and engines may not write it (FEN-085). Waits are as for any fence.
//!
//! Their number is limited for each target. A VM may have at most twice what it leaves, so that another always gets
//! some.
//!
//! The notification belongs to the object, not to an open: it ends with the last reference, or when the adapter stops.
//! Resets and losses of engines, devices and contexts do not stop the display (F-87).

use serde::{Deserialize, Serialize};

use crate::VmId;

/// A notification that the driver has, by its NotificationID.
#[derive(Serialize, Deserialize)]
pub(crate) struct Notification {
    /// The VM of the fence's creator: the fence counts against its share of the target's.
    pub vm: VmId,
    pub adapter: u32,
    pub vidpn_target: u32,
    pub object: u32,
    /// `hNotification`: the driver's name for it.
    pub driver: u64,
}
