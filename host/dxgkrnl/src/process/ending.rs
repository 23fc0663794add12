//! The ends of processes, of their devices, and of VMs. Work that does not fit one step is left as a task.

use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, Handle, Reply};

use super::HandleTarget;
use super::end::{EndOfProcess, EndStage};
use crate::ddi::{Agent, HappensBefore};
use crate::effects::Effects;
use crate::error::CallResult;
use crate::history::Ending;
use crate::kernel::Kernel;
use crate::sync::waits::WaitId;
use crate::vidmm::address::GoneMemory;
use crate::vidsch::{Task, Turn};
use crate::{ProcessId, VmId};

/// Entries of a handle table that are searched for one unit of work.
const ENTRIES_PER_UNIT: usize = 64;

impl Kernel {
    /// Destroys a process that has ended and everything that it has, in the order of its handles.
    pub(crate) fn end_process(&mut self, id: ProcessId, ending: Ending, effects: &mut Effects) {
        let Some(process) = self.processes.get(id) else { return };
        let vm = process.vm;
        let backlog = self.vidsch.work_mut().backlog_mut();
        if backlog.ending_processes().contains_key(&id) {
            return;
        }
        backlog.begin_end_of_process(id, vm);
        let before = backlog.act_for(Some(id));
        let end = EndOfProcess { part: EndStage::Acquires, ending };
        if self.is_behind(id) {
            // Its earlier tasks come before its end.
            self.leave(id, Task::EndProcess(end));
        } else {
            self.vidsch.work_mut().backlog_mut().begin_turn(Turn { vm, process: id });
            self.continue_end(id, end, effects);
            self.vidsch.work_mut().backlog_mut().end_task();
        }
        self.vidsch.work_mut().backlog_mut().act_for(before);
    }

    /// Continues to destroy a process that has ended.
    pub(crate) fn continue_end(&mut self, id: ProcessId, mut end: EndOfProcess, effects: &mut Effects) {
        self.history.set_ending(end.ending);
        let is_over = self.end_parts(id, &mut end.part, effects);
        self.history.set_ending(Ending::default());
        if !is_over {
            self.leave(id, Task::EndProcess(end));
            return;
        }
        let Some(vm) = self.processes.get(id).map(|process| process.vm) else { return };
        self.processes.remove(id);
        self.guests.thaw(id);
        self.edge(HappensBefore::Gone(Agent::Process(id)));
        self.sync.forget_written_for(id);
        self.change_iommu_mapping(id, None);
        self.vidsch.work_mut().backlog_mut().process_ended(id);
        // Removing its effects moves the stores that were recorded by position.
        self.sync.forget_stores();
        let memory = self.vidmm.memory();
        let outlives = |process, address| memory.outlives_owner(process, address);
        effects.forget_processes(|process| process == id, outlives);
        self.forget_cleared_vm(vm, effects);
    }

    /// Destroys what a process has until the step is spent; true if nothing is left.
    fn end_parts(&mut self, id: ProcessId, part: &mut EndStage, effects: &mut Effects) -> bool {
        loop {
            if self.is_spent() {
                return false;
            }
            *part = match *part {
                EndStage::Acquires if self.end_next_acquire(id) => EndStage::Acquires,
                EndStage::Acquires => EndStage::Waits,
                EndStage::Waits => match self.pop_wait_of(id) {
                    Some(wait) => {
                        self.spend(1);
                        self.end_wait(wait);
                        EndStage::Waits
                    }
                    None => {
                        self.abandon_user_mode_queues(id, effects);
                        EndStage::Devices
                    }
                },
                EndStage::Devices => match self.process(id).devices.first_key_value() {
                    Some((_, device)) => {
                        self.end_device(*device, effects);
                        EndStage::Devices
                    }
                    None => EndStage::SyncObjects(0),
                },
                EndStage::SyncObjects(from) => {
                    let is_kind = |local: &HandleTarget| matches!(local, HandleTarget::Sync(_));
                    match self.next_handle(id, from, is_kind) {
                        Ok(handle) => {
                            let _ = self.destroy_sync_object(id, handle, effects);
                            EndStage::SyncObjects(from)
                        }
                        Err(behind) => behind.map_or(EndStage::KeyedMutexes(0), EndStage::SyncObjects),
                    }
                }
                EndStage::KeyedMutexes(from) => {
                    let is_kind = |local: &HandleTarget| matches!(local, HandleTarget::KeyedMutex(_));
                    match self.next_handle(id, from, is_kind) {
                        Ok(handle) => {
                            let _ = self.destroy_keyed_mutex(id, handle, effects);
                            EndStage::KeyedMutexes(from)
                        }
                        Err(behind) => behind.map_or(EndStage::UnusedObjects, EndStage::KeyedMutexes),
                    }
                }
                // Drivers see the end of fences before that of their process.
                EndStage::UnusedObjects => {
                    self.end_unused_objects(effects);
                    if self.is_spent() {
                        EndStage::UnusedObjects
                    } else {
                        EndStage::Memory(GoneMemory::default())
                    }
                }
                EndStage::Memory(from) => match self.take_memory_from_others(id, from) {
                    Some(rest) => EndStage::Memory(rest),
                    None => EndStage::Tables,
                },
                EndStage::Tables if self.shorten_tables() => EndStage::Tables,
                EndStage::Tables => EndStage::Rest,
                EndStage::Rest => {
                    self.end_address_spaces(id);
                    self.end_kmd_processes(id, effects);
                    return true;
                }
            };
        }
    }

    /// Ends a pending acquire of a process, or a wait of it for an idle GPU; false if it has none.
    fn end_next_acquire(&mut self, id: ProcessId) -> bool {
        if let Some(wait) = self.process(id).idle_waits.first().copied() {
            self.spend(1);
            self.forget_idle_wait(wait);
            return true;
        }
        let Some(event) = self.process(id).acquires.first_key_value().map(|(event, _)| *event) else {
            return false;
        };
        self.spend(1);
        self.cancel_acquire(id, event);
        true
    }

    /// Removes some free entries from the ends of all tables. Whether more may be left.
    fn shorten_tables(&mut self) -> bool {
        /// Entries of each table at a time. A removed entry accesses two others anywhere in its table.
        const MOST: usize = 16;
        const REMOVED_PER_UNIT: usize = 4;
        let removed = self.processes.shorten(MOST)
            + self.sync.shorten(MOST)
            + self.keyed.shorten(MOST)
            + self.sharing.shorten(MOST)
            + self.vidmm.shorten(MOST)
            + self.vidsch.shorten(MOST);
        self.spend(1 + (removed / REMOVED_PER_UNIT) as u32);
        removed > 0
    }

    fn pop_wait_of(&mut self, id: ProcessId) -> Option<WaitId> {
        let waits = self.sync.waits();
        self.processes.get_mut(id)?.waits.pop(id, waits)
    }

    /// The first matching handle from this index of the table on; or the index to continue from, `None` at the end.
    fn next_handle(
        &mut self,
        id: ProcessId,
        from: usize,
        is_match: impl Fn(&HandleTarget) -> bool,
    ) -> Result<Handle, Option<usize>> {
        self.spend(1);
        self.process(id).handles.find_from(from, ENTRIES_PER_UNIT, is_match)
    }

    /// `D3DKMTDestroyDevice`.
    pub(crate) fn destroy_device(
        &mut self,
        process: ProcessId,
        device: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.device(process, device)?;
        self.end_device(id, effects);
        Ok(Reply::None)
    }

    fn end_device(&mut self, id: u32, effects: &mut Effects) {
        self.spend(1);
        let before = self.history.begin(Ending::Device);
        self.continue_end_of_device(id, effects);
        self.history.set_ending(before);
    }

    /// Continues to destroy a device, for the reason that is set.
    pub(crate) fn continue_end_of_device(&mut self, id: u32, effects: &mut Effects) {
        let (process, device) = (self.processes.devices[id].process, self.processes.devices[id].handle);
        let is_left = |kernel: &mut Self| {
            if kernel.is_spent() {
                let ending = kernel.history.ending();
                kernel.vidsch.work_mut().backlog_mut().begin_end_of_device(id);
                kernel.leave(process, Task::EndDevice { device: id, ending });
                return true;
            }
            false
        };
        while let Some(child) = self.processes.devices[id].children.pop_first() {
            if !self.end_child(process, child, effects) {
                self.processes.device_mut(id).children.insert(child);
            }
            self.spend(1);
            if is_left(self) {
                return;
            }
        }
        self.abandon_mutexes(process, device, effects);
        if is_left(self) {
            return;
        }
        self.end_unused_objects(effects);
        if is_left(self) {
            return;
        }
        self.end_cpu_events_and_kmd_device(id, effects);
        self.vidsch.work_mut().backlog_mut().device_ended(id);
        self.remove_handle(process, device);
        self.process_mut(process).devices.remove(&device.index());
        let device = self.processes.devices.remove(id).expect("a handle names a live device");
        if let Some(round) = device.round {
            self.end_round(process, round, effects);
        }
        if device.state != DeviceExecutionState::ACTIVE {
            self.edge(HappensBefore::DeviceGone { device: id });
            self.process_mut(process).devices_stopped -= 1;
            self.store_status(process, effects);
        }
    }

    /// Destroys an object that ends with its device. False if the units of the step do not reach for all of it.
    fn end_child(&mut self, process: ProcessId, child: Handle, effects: &mut Effects) -> bool {
        let _ = match self.process(process).handles.get(child) {
            Some(HandleTarget::Context(context)) => {
                self.end_context(context, effects);
                Ok(Reply::None)
            }
            // A progress fence goes with its hardware queue.
            Some(HandleTarget::Sync(_)) if self.is_progress_fence(process, child) => Ok(Reply::None),
            Some(HandleTarget::Sync(_)) => self.destroy_sync_object(process, child, effects),
            Some(HandleTarget::PagingQueue(queue)) => {
                self.end_paging_queue(queue, effects);
                Ok(Reply::None)
            }
            Some(HandleTarget::Resource(_) | HandleTarget::Allocation(_)) => {
                return self.end_memory(process, child);
            }
            Some(
                HandleTarget::Adapter(_)
                | HandleTarget::Device(_)
                | HandleTarget::HwQueue(_)
                | HandleTarget::KeyedMutex(_),
            )
            | None => Ok(Reply::None),
        };
        true
    }

    /// Destroys a process's devices on an adapter whose last handle was closed: those with handles from this index on.
    pub(crate) fn end_devices_on(
        &mut self,
        process: ProcessId,
        adapter: u32,
        mut from: u32,
        effects: &mut Effects,
    ) {
        while let Some((index, device)) = self.process(process).devices.range(from..).next() {
            let (index, device) = (*index, *device);
            from = index + 1;
            match self.processes.devices[device].adapter == adapter {
                true => self.end_device(device, effects),
                false => self.spend(1),
            }
            if self.is_spent() {
                self.leave(process, Task::CloseAdapter { adapter, from });
                return;
            }
        }
        self.end_kmd_process(process, adapter, effects);
        self.end_address_space(process, adapter);
    }

    /// Destroys the processes and NT handles of a VM that is gone.
    pub(crate) fn end_vm(&mut self, vm: VmId, effects: &mut Effects) {
        if self.is_clearing(vm) {
            return;
        }
        let of_vm = self.processes.by_id().iter().filter(|(_, process)| process.vm == vm);
        let ended: Vec<ProcessId> = of_vm.map(|(id, _)| *id).collect();
        for process in ended {
            self.end_process(process, Ending::Vm, effects);
        }
        self.vidsch.work_mut().backlog_mut().detach(vm);
        self.end_shares_of(vm, effects);
    }

    /// Ends the NT handles of a VM that was detached until the step is spent. Forgets the VM if nothing of it is left.
    pub(crate) fn end_shares_of(&mut self, vm: VmId, effects: &mut Effects) {
        while let Some(token) = self.sharing.first_of(vm) {
            if self.is_spent() {
                let turn = Turn::of_vm(vm);
                return self.vidsch.work_mut().backlog_mut().leave(turn, Task::EndShares(vm));
            }
            self.spend(1);
            self.end_share(token);
        }
        self.forget_cleared_vm(vm, effects);
    }

    /// Forgets a VM that was detached, if its last process and NT handle are gone.
    pub(crate) fn forget_cleared_vm(&mut self, vm: VmId, effects: &mut Effects) {
        if self.sharing.first_of(vm).is_none() && self.vidsch.work_mut().backlog_mut().take_cleared(vm) {
            self.forget_vm(vm, effects);
        }
    }
}
