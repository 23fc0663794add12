//! Reports happens-before relations to drivers, if the configuration asks one to detect races
//! (`AdapterConfig::hazards`).
//!
//! A signal or wait in a queue is reported when the queue passes its packet. The wait may latch long before, but
//! earlier work in its queue is not ordered after the signal. A signal at submission (FEN-048) orders nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Config;
use crate::sync::waits::WaitId;

/// State of the reports: completed waits, and the drivers' notes.
#[derive(Serialize, Deserialize)]
pub(crate) struct HappensBeforeLog {
    pub(super) on: bool,
    /// Fences and values of completed GPU waits whose packets their queues have not passed yet.
    pub(super) ended: BTreeMap<WaitId, Vec<(u32, u64)>>,
    /// Notes from drivers, until the input is handled.
    pub(super) notes: Vec<String>,
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
            notes: Vec::new(),
        }
    }

    /// Reports, or does not, as this configuration says: a tool that observes a recorded state may look for races that
    /// the recorded kernel did not look for.
    pub fn configure(&mut self, config: &Config) {
        self.on = HappensBeforeLog::new(config).on;
    }

    /// Forgets a wait whose packet is dropped.
    pub fn forget(&mut self, wait: WaitId) {
        self.ended.remove(&wait);
    }

    /// Number of completed waits that their queues have not reached yet.
    pub fn ended(&self) -> usize {
        self.ended.len()
    }
}
