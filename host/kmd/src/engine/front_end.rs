//! The front end of an engine: it fetches packets no faster than this.
//!
//! Most packets take time of their own. Those that do not - fence writes, markers, buffers without packets - would be one
//! moment however many there are, and so would packets of a nanosecond: time of all engines would stand still for them.

use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// So many packets are fetched within [`WINDOW_NS`] at most: 250 ns for each, about what a write to memory takes.
const PACKETS_PER_WINDOW: u32 = 64;

const WINDOW_NS: Nanos = 16_000;

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct FrontEnd {
    /// When the first packet of the window was fetched.
    since: Nanos,
    fetched: u32,
}

impl FrontEnd {
    /// Fetches a packet; or says when the next one can be fetched.
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
