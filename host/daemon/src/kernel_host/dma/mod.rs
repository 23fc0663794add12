//! DMA of engines on the backing pages of processes.

use dxgkrnl::{DmaError, DmaOp, ProcessId, ProcessMemory, VmId};
use vsock_device::{DriverRuns, GuestMemory};

use super::process_table::ProcessTable;
use super::recording::Recording;
use super::{FlushList, HostState, KernelHost, Taps};
use crate::backing::{BackingFault, ProcessBacking};
use crate::peer::Peer;

mod held;

pub(super) use held::HeldMoves;

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
    /// Performs the DMA operations of a step. Those of VMs that QEMU has stopped are held back; QEMU stops none meanwhile.
    pub(super) fn perform_moves(&mut self, moves: &[DmaOp]) {
        if moves.is_empty() {
            return;
        }
        if self.taps.recording.is_some() && self.taps.session_cursors.is_some() {
            self.perform_each(moves, Some(Recording::performed));
            return;
        }
        let HostState { dma_executor, process_table, held_moves, .. } = self;
        let process_table = &*process_table;
        let vms = Vms::of(moves, process_table);
        if !vms.stopped.is_empty() || moves.iter().any(|op| held_moves.concerns(op)) {
            drop(vms);
            self.perform_each(moves, None);
            return;
        }
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
        self.perform_each(&moves, Some(Recording::performed_earlier));
        let HostState { taps: Taps { recording, session_cursors, .. }, kernel, .. } = self;
        if let (Some(recording), Some(session_cursors)) = (recording, session_cursors) {
            recording.begin_segment(kernel.now(), kernel, session_cursors, true);
        }
    }

    /// Performs DMA operations one by one, or holds them back. A daemon that resumes from this journal skips those that are
    /// counted.
    fn perform_each(&mut self, moves: &[DmaOp], count: Option<fn(&mut Recording, usize)>) {
        let HostState { dma_executor, process_table, held_moves, taps, .. } = self;
        held_moves.drop_ended();
        let vms = Vms::of(moves, process_table);
        for (done, op) in moves.iter().enumerate() {
            if let DmaOp::ReleaseAll { adapter } = op {
                held_moves.release_all(*adapter);
            }
            if let Some((vm, memory)) = vms.stopped(op, process_table) {
                held_moves.hold(vm, memory, op, dma_executor);
            } else if let Some(vm) = held_moves.before(op) {
                held_moves.hold_behind(vm, op, dma_executor);
            } else if let Err(why) = dma_executor.perform(op, &mut BackingAccess(process_table)) {
                process_table.move_failed(op, why);
            }
            if let (Some(count), Some(recording)) = (count, &mut taps.recording) {
                count(recording, done + 1);
            }
        }
    }
}

impl KernelHost {
    /// A VM that QEMU had stopped goes on: performs some of what was held back for it, as much as a step may. Once nothing
    /// is left it calls `go_on` and returns true. Of a VM that has lost it, the processes end first.
    pub fn vm_goes_on(&self, vm: VmId, go_on: &dyn Fn()) -> bool {
        let is_lost = self.lock().held_moves.is_lost(vm);
        if is_lost {
            let line = || {
                "engines had more to write than is kept while QEMU has stopped a VM: its processes end".into()
            };
            self.log.warn(Peer::Vm(vm), line);
            for client in self.sessions().clients_of(vm) {
                self.sessions().detach(client.id);
                self.yield_to_waiters();
            }
        }
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let HostState { dma_executor, process_table, held_moves, .. } = &mut *host_state;
        let is_done = held_moves.perform_some(vm, &mut BackingAccess(process_table), dma_executor);
        host_state.release_ended_memory(&mut flush_list);
        if is_done {
            go_on();
        }
        is_done
    }

    /// A VM is gone: nothing is held back for it any more.
    pub fn drop_held_moves(&self) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        host_state.held_moves.drop_ended();
        host_state.release_ended_memory(&mut flush_list);
    }
}

/// The VMs whose guests' memory some operations name. QEMU stops none of those that run while this value lives.
struct Vms<'a> {
    running: Vec<(VmId, DriverRuns<'a>)>,
    stopped: Vec<(VmId, &'a GuestMemory)>,
}

impl<'a> Vms<'a> {
    fn of(moves: &[DmaOp], process_table: &'a ProcessTable) -> Vms<'a> {
        let mut vms = Vms { running: Vec::new(), stopped: Vec::new() };
        let processes = moves.iter().flat_map(DmaOp::processes);
        for (vm, memory) in processes.filter_map(|process| process_table.guest_of(process)) {
            if vms.running.iter().any(|(of, _)| *of == vm) || vms.memory(vm).is_some() {
                continue;
            }
            match memory.running() {
                Some(runs) => vms.running.push((vm, runs)),
                // Accesses fail, once the driver's life is over.
                None if memory.is_over() => {}
                None => vms.stopped.push((vm, memory)),
            }
        }
        vms
    }

    /// The memory of a stopped VM.
    fn memory(&self, vm: VmId) -> Option<&'a GuestMemory> {
        self.stopped.iter().find(|(of, _)| *of == vm).map(|(_, memory)| *memory)
    }

    /// The stopped VM whose memory an operation names.
    fn stopped(&self, op: &DmaOp, process_table: &ProcessTable) -> Option<(VmId, &'a GuestMemory)> {
        if self.stopped.is_empty() {
            return None;
        }
        op.processes().find_map(|process| {
            let (vm, _) = process_table.guest_of(process)?;
            Some((vm, self.memory(vm)?))
        })
    }
}

#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod tests;
