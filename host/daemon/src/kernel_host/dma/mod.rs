//! DMA of engines on the backing pages of processes.

use dxgkrnl::{DmaError, DmaOp, ProcessId, ProcessMemory};

use super::HostState;
use super::process_table::ProcessTable;
use crate::backing::{BackingFault, ProcessBacking};

/// The memory that engines may access. A process that is gone has none but what it shares, even if an operation is under
/// way.
pub(super) struct BackingAccess<'a>(pub &'a ProcessTable);

impl BackingAccess<'_> {
    fn done(
        &self,
        process: ProcessId,
        act: impl FnOnce(&ProcessBacking) -> Result<(), BackingFault>,
    ) -> bool {
        let Some(backing) = self.0.backing(process) else { return false };
        let failed = |error: &BackingFault| format!("process {}: {error}", process.0);
        act(backing).inspect_err(|error| self.0.log.debug(self.0.peer(process), || failed(error))).is_ok()
    }
}

impl ProcessMemory for BackingAccess<'_> {
    fn read(&mut self, process: ProcessId, address: u64, to: &mut [u8]) -> bool {
        self.done(process, |backing| backing.read(address, to))
    }

    fn write(&mut self, process: ProcessId, address: u64, from: &[u8]) -> bool {
        self.done(process, |backing| backing.write(address, from))
    }

    fn copy(&mut self, from: (ProcessId, u64), to: (ProcessId, u64), bytes: u64) -> Option<bool> {
        let (source, target) = (self.0.backing(from.0)?, self.0.backing(to.0)?);
        let done = source.copy(from.1, target, to.1, usize::try_from(bytes).ok()?);
        done.then_some(true)
    }
}

impl HostState {
    /// Performs the DMA operations of a step.
    pub(super) fn perform_moves(&mut self, moves: &[DmaOp]) {
        let HostState { dma_executor, process_table, taps, .. } = self;
        let process_table = &*process_table;
        let failed = &mut |op: &DmaOp, why: DmaError| process_table.move_failed(op, why);
        match (&mut taps.recording, &taps.session_cursors) {
            // A daemon that resumes from this journal skips the operations counted here.
            (Some(recording), Some(_)) => {
                for (done, op) in moves.iter().enumerate() {
                    dma_executor
                        .perform(op, &mut BackingAccess(process_table))
                        .unwrap_or_else(|why| failed(op, why));
                    recording.performed(done + 1);
                }
            }
            _ => dma_executor.perform_all(moves, &mut BackingAccess(process_table), failed),
        }
    }
}

#[cfg(test)]
mod tests;
