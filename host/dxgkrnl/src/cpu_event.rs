//! CPU events that a kernel-mode driver signals.

use alloc::format;

use crate::ddi::{Miniport, SignalEvent};
use crate::effects::Effects;
use crate::kernel::Kernel;

impl<M: Miniport> Kernel<M> {
    /// `DxgkCbSignalEvent`.
    pub(crate) fn driver_signals(&mut self, adapter: u32, signal: SignalEvent, effects: &mut Effects) {
        let text =
            format!("contract violation: adapter {adapter} signals event {:#x}, which is none", signal.event);
        self.note_host(text, effects);
    }
}
