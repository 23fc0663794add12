//! Doorbells: how a process submits to a hardware queue without a call.
//!
//! The process writes its buffers into a ring and then to the doorbell's address. The write reaches the engine only
//! while a *physical* doorbell is connected. Otherwise the address is a dummy page, and nothing happens. So the process
//! reads the doorbell's status again after each ring (SCH-028). The status is in a slot of its fence memory that only
//! the kernel writes (SCH-027).
//!
//! ```text
//!                      ConnectDoorbell              CONNECTED 0
//!   created: RETRY 2 -------------------------->    CONNECTED_NOTIFY 1 (each ring wants NotifyWorkSubmission)
//!               ^                                        |
//!               `---- made a victim (SCH-032), F1, D3 ---+--- device lost ---> ABORT 3: create everything again
//! ```
//! The status is stored before the physical doorbell is used for another queue.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// `D3DDDI_DOORBELLSTATUS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum DoorbellStatus {
    Connected = 0,
    ConnectedNotify = 1,
    DisconnectedRetry = 2,
    DisconnectedAbort = 3,
}

impl DoorbellStatus {
    pub fn is_connected(self) -> bool {
        matches!(self, DoorbellStatus::Connected | DoorbellStatus::ConnectedNotify)
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Doorbell {
    pub status: DoorbellStatus,
    /// The slot where the process reads the status, for the life of the doorbell (SCH-026).
    pub slot: u32,
    /// The kernel's opens of its ring buffer and of the memory that controls it: see `ring.rs`.
    pub rings: Vec<u32>,
}
