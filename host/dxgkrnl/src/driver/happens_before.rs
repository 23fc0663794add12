//! Tells drivers what comes before what, if the configuration has one look for races (`AdapterConfig::hazards`).
//!
//! Signals and waits in queues count from when their packets are passed: a wait may be latched long before, but what is
//! before it in its queue does not come after the signal. A signal at submission (FEN-048) orders nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Config;
use crate::sync::waits::WaitId;

/// What is kept for it.
#[derive(Serialize, Deserialize)]
pub(crate) struct HappensBeforeLog {
    pub(super) on: bool,
    /// What GPU waits have waited for that are over and whose packets are not passed.
    pub(super) ended: BTreeMap<WaitId, Vec<(u32, u64)>>,
    /// What drivers made of it, until the input is over.
    pub(super) told: Vec<String>,
}

impl HappensBeforeLog {
    /// Whether a driver looks for races.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    pub fn new(config: &Config) -> Self {
        HappensBeforeLog {
            on: config.adapters.iter().any(|adapter| adapter.hazards),
            ended: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// The packet of a wait is dropped.
    pub fn forget(&mut self, wait: WaitId) {
        self.ended.remove(&wait);
    }

    /// Waits that are over and whose queues have not come to them.
    pub fn ended(&self) -> usize {
        self.ended.len()
    }
}
