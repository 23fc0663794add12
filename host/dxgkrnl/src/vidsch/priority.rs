//! Scheduling priorities (SCH-042).
//!
//! A new priority applies at once to buffers that wait for their engine. Submitted buffers keep their old one.

/// `D3DKMT_SCHEDULINGPRIORITYCLASS`: IDLE 0, BELOW_NORMAL, NORMAL 2, ABOVE_NORMAL, HIGH, REALTIME 5.
pub(crate) const CLASS_NORMAL: u32 = 2;
