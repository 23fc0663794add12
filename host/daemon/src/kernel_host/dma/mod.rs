//! DMA of engines on the backing pages of processes.

use dxgkrnl::{DmaError, DmaOp, ProcessId, ProcessMemory};

use super::process_table::ProcessTable;
use super::recording::Recording;
use super::{HostState, Taps};
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
        if self.taps.recording.is_some() && self.taps.session_cursors.is_some() {
            self.perform_counted(moves, Recording::performed);
            return;
        }
        let HostState { dma_executor, process_table, .. } = self;
        let process_table = &*process_table;
        let failed = &mut |op: &DmaOp, why: DmaError| process_table.move_failed(op, why);
        dma_executor.perform_all(moves, &mut BackingAccess(process_table), failed);
    }

    /// Performs the DMA operations that earlier daemons left. The journal's next segment begins without them.
    pub(super) fn perform_earlier_moves(&mut self) {
        let Some(session_cursors) = &mut self.taps.session_cursors else { return };
        let moves = std::mem::take(&mut session_cursors.moves);
        if moves.is_empty() {
            return;
        }
        self.perform_counted(&moves, Recording::performed_earlier);
        let HostState { taps: Taps { recording, session_cursors, .. }, kernel, .. } = self;
        if let (Some(recording), Some(session_cursors)) = (recording, session_cursors) {
            recording.begin_segment(kernel.now(), kernel, session_cursors, true);
        }
    }

    /// Performs DMA operations one by one. A daemon that resumes from this journal skips those that are counted.
    fn perform_counted(&mut self, moves: &[DmaOp], count: fn(&mut Recording, usize)) {
        let HostState { dma_executor, process_table, taps, .. } = self;
        for (done, op) in moves.iter().enumerate() {
            if let Err(why) = dma_executor.perform(op, &mut BackingAccess(process_table)) {
                process_table.move_failed(op, why);
            }
            if let Some(recording) = &mut taps.recording {
                count(recording, done + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
