//! The driver's side of periodic frame notifications: what the DDIs carry.

/// `DXGKARG_CREATEPERIODICFRAMENOTIFICATION`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatePeriodicFrameNotification {
    pub adapter: u32,
    /// `VidPnTargetId`.
    pub vidpn_target: u32,
    /// `Time`: how long before each vsync, in units of 100 ns; at most one vsync interval.
    pub time_100ns: u64,
    /// `NotificationID`: carried by the interrupts. Unique.
    pub notification_id: u64,
}

/// Errors that `DxgkDdiCreatePeriodicFrameNotification` may return (FEN-087).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotificationRefused {
    /// STATUS_NO_MEMORY.
    NoMemory,
    /// STATUS_INVALID_PARAMETER.
    InvalidParameter,
    /// STATUS_UNSUCCESSFUL.
    Unsuccessful,
}
