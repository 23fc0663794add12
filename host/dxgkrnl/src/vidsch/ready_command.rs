//! From ready to submitted, and back by preemption.
//!
//! An engine is given the highest priority first while it has room. If something with a higher priority than
//! anything it has becomes ready, or a submission has run for [`QUANTUM_NS`], it is asked to preempt; until it
//! answers it is given nothing. What it gives back is ready again: in its old place if it had to make way, at
//! the end of its round if its time was up.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ready::ReadyPosition;
use crate::Nanos;

/// How long a submission may run before its engine is asked to preempt it. The documents name no number: long
/// beside the packets of a sound client, short beside TdrDelay.
pub(crate) const QUANTUM_NS: Nanos = 100_000_000;

/// A command buffer of a queue that waits for its engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyCommand {
    pub place: ReadyPosition,
    /// Empty if the miniport has them.
    pub commands: Vec<u8>,
    /// The id under which the engine gave it back.
    pub resubmits: Option<u64>,
}
