//! Bugs on demand: the switch that proves that checkers can fail.
//!
//! A checker that never saw a failure proves nothing. [`crate::Kernel::plant`] makes this kernel wrong in one of
//! four ways, each only under a condition that a search must find. Nothing else sets the switch; neither
//! a trace nor a configuration contains it.

use serde::{Deserialize, Serialize};

/// A way for the kernel to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PlantedBug {
    /// Of two or more CPU waits that one store satisfies at once, the last is ended without its event.
    LostWake,
    /// A CPU wait on two or more items ends when the value of one reaches one below what it waits for.
    EarlyWake,
    /// A fence with two or more opens: a lower value is not stored for the second.
    StaleValue,
    /// A CPU signal with AllowFenceRewind, on a device with two or more fences, is answered twice.
    DoubleAnswer,
}

impl PlantedBug {
    pub const ALL: [PlantedBug; 4] =
        [PlantedBug::LostWake, PlantedBug::EarlyWake, PlantedBug::StaleValue, PlantedBug::DoubleAnswer];

    pub const fn name(self) -> &'static str {
        match self {
            PlantedBug::LostWake => "lost-wake",
            PlantedBug::EarlyWake => "early-wake",
            PlantedBug::StaleValue => "stale-value",
            PlantedBug::DoubleAnswer => "double-answer",
        }
    }

    pub fn from_name(name: &str) -> Option<PlantedBug> {
        PlantedBug::ALL.into_iter().find(|bug| bug.name() == name)
    }
}
