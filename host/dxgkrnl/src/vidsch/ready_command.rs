//! Command buffers that are ready, and the rules of their submission and preemption.
//!
//! While an engine has room, it gets the buffer with the highest priority. The kernel asks it to preempt when a buffer
//! with a higher priority than one of its submissions is ready, or when a submission has run for [`QUANTUM_NS`]. Until
//! it answers it gets no work. Buffers that it gives back are ready again: in their old place, or at the end of the
//! round if the time was up.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ready::ReadyPosition;
use crate::Nanos;

/// How long a submission may run before its engine is asked to preempt it. The documents name no number: it is long
/// compared with the packets of a correct client, and short compared with TdrDelay.
pub(crate) const QUANTUM_NS: Nanos = 100_000_000;

/// A command buffer of a queue that waits for its engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyCommand {
    pub position: ReadyPosition,
    /// Empty if the miniport has them.
    pub commands: Vec<u8>,
    /// The id under which the engine gave it back.
    pub resubmits: Option<u64>,
}
