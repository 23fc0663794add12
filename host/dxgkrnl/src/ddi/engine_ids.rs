//! Ids of engines, contexts and hardware queues at the driver interface.

use serde::{Deserialize, Serialize};

/// A hardware context for the miniport: an index that is unique while the context lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct HwContext(pub u32);

/// An engine: adapter and node, by ordinal. On linked adapters (SCH-037) each physical adapter has the same nodes:
/// those of engine ordinal `n` follow here those of `n - 1`, see [`crate::AdapterConfig::engine`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct EngineId {
    pub adapter: u32,
    pub node: u32,
}

/// `hHwQueue` for the miniport: an index that is unique while the queue lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct HwQueueId(pub u32);
