//! The calls that set and read scheduling priorities (SCH-042).
//!
//! A new priority holds at once for what waits for its engine; what the engine has keeps the one it came with.

/// `D3DKMT_SCHEDULINGPRIORITYCLASS`: IDLE 0, BELOW_NORMAL, NORMAL 2, ABOVE_NORMAL, HIGH, REALTIME 5.
pub(crate) const CLASS_NORMAL: u32 = 2;
