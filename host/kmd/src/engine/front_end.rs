//! The front end of an engine: a limit on the rate at which it fetches packets.
//!
//! Most packets take time. Without a limit, any number of fence writes, markers and empty buffers would run at one
//! point in time, and simulated time would not advance for any engine. The same holds for packets of one nanosecond.

use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// Most packets fetched within [`WINDOW_NS`]: one each 250 ns, which is about the time of a write to memory.
const PACKETS_PER_WINDOW: u32 = 64;

const WINDOW_NS: Nanos = 16_000;

/// Counts the packets fetched in the current window.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct FrontEnd {
    /// When the first packet of the window was fetched.
    since: Nanos,
    fetched: u32,
}

impl FrontEnd {
    /// Fetches a packet. The error is the time at which the next packet can be fetched.
    pub fn fetch(&mut self, clock: Nanos) -> Result<(), Nanos> {
        let end = self.since.saturating_add(WINDOW_NS);
        if self.fetched == 0 || clock >= end {
            (self.since, self.fetched) = (clock, 1);
            return Ok(());
        }
        if self.fetched == PACKETS_PER_WINDOW {
            return Err(end);
        }
        self.fetched += 1;
        Ok(())
    }
}
