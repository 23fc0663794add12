//! Virtual machines and their processes.

use crate::ProcessId;
use crate::ddi::Miniport;
use crate::effects::Effects;
use crate::kernel::Kernel;

impl<M: Miniport> Kernel<M> {
    /// The guest's kernel froze a process, or thawed it.
    pub(crate) fn freeze(&mut self, process: ProcessId, frozen: bool, effects: &mut Effects) {
        self.set_frozen(process, frozen, effects);
    }
}
