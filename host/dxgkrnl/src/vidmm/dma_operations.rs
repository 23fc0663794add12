//! DMA operations of engines, and the release of an adapter's staging buffers when it is stopped or reset.

use alloc::format;

use crate::ProcessId;
use crate::ddi::EngineId;
use crate::dma::DmaOp;
use crate::effects::Effects;
use crate::kernel::Kernel;

impl Kernel {
    /// `Callback::Dma`.
    pub(crate) fn move_data(&mut self, engine: EngineId, moved: DmaOp, effects: &mut Effects) {
        if self.tdr.is_resetting(engine.adapter) {
            let text = format!("adapter {} touched memory after its reset: ignored: {moved}", engine.adapter);
            self.note_host(text, effects);
            return;
        }
        let is_gone = |(process, address): &(ProcessId, u64)| {
            !self.processes.by_id().contains_key(process)
                && !self.vidmm.memory.outlives_owner(*process, *address)
        };
        if let Some((ProcessId(ended), _)) = moved.addresses().find(is_gone) {
            let text =
                format!("node {} touched memory of process {ended}, which is gone: {moved}", engine.node);
            self.note_host(text, effects);
            return;
        }
        if moved.adapters().next().is_some() {
            self.vidmm.mark_staged(engine.adapter);
        }
        effects.moves.push(moved);
    }

    /// Releases the staging buffers of an adapter, whose engines have lost their content.
    pub(crate) fn release_staging_buffers(&mut self, adapter: u32, effects: &mut Effects) {
        if self.vidmm.take_staged(adapter) {
            effects.moves.push(DmaOp::ReleaseAll { adapter });
        }
    }
}
