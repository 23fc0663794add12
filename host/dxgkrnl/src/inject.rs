//! The effect of each [`Fault`].

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, NtStatus, SyncObjectFlags};

use super::fault::Fault;
use crate::ddi::PageFaultFlags;
use crate::effects::{Effects, Note};
use crate::error::{Refusal, refuse};
use crate::history::Ending;
use crate::kernel::Kernel;
use crate::sync::Open;
use crate::sync::object::SyncObject;
use crate::sync::waits::{Wait, WaitId, WaitOwner};
use crate::sync::written::Mark;
use crate::tdr::{Loss, LostFences};
use crate::vidmm::allocation::NO_ARRIVAL;
use crate::vidsch::DroppedPackets;
use crate::{ProcessId, VmId};

impl Kernel {
    pub(crate) fn fault(&mut self, fault: Fault, effects: &mut Effects) {
        if let Err(why) = self.fault_can_happen(fault) {
            effects.notes.push(Note { process: None, text: format!("{fault}: {why}") });
            return;
        }
        match fault {
            Fault::LoseInterrupt { engine } => self.miniport.lose_interrupt(engine),
            Fault::Hang { engine } => self.miniport.hang_engine(engine),
            Fault::StopAdapter { adapter } => self.stop_adapter(adapter, effects),
            Fault::StartAdapter { adapter } => self.start_adapter(adapter, effects),
            Fault::UpdateDriver { adapter, version } => {
                self.stop_adapter(adapter, effects);
                self.tdr.set_driver_version(adapter, version);
                self.start_adapter(adapter, effects);
            }
            Fault::PageFault { engine, gpu_address, flags } => {
                let flags = PageFaultFlags::from_bits_retain(flags);
                self.call_isr(effects, |miniport, now, callbacks| {
                    miniport.page_fault(now, engine, gpu_address, flags, callbacks);
                });
            }
            Fault::ResetFails { engine } => self.miniport.fail_reset(engine),
            Fault::Power { adapter, on } => self.set_power(adapter, on, effects),
            Fault::EngineToF1 { engine } => self.call_isr(effects, |miniport, _, callbacks| {
                miniport.engine_to_f1(engine, callbacks);
            }),
            Fault::ObjectGoesBad { adapter, usage } => {
                self.call_ddi(effects, |miniport, _, callbacks| {
                    miniport.fail_object(adapter, usage, callbacks);
                });
            }
        }
    }

    /// Refuses a fault that cannot happen. [`Kernel::handle`] notes the reason and does nothing.
    pub fn fault_can_happen(&self, fault: Fault) -> Result<(), &'static str> {
        let (adapter, node) = match fault {
            Fault::LoseInterrupt { engine }
            | Fault::Hang { engine }
            | Fault::PageFault { engine, .. }
            | Fault::ResetFails { engine }
            | Fault::EngineToF1 { engine } => (engine.adapter, Some(engine.node)),
            Fault::StopAdapter { adapter }
            | Fault::StartAdapter { adapter }
            | Fault::UpdateDriver { adapter, .. }
            | Fault::Power { adapter, .. }
            | Fault::ObjectGoesBad { adapter, .. } => (adapter, None),
        };
        match self.config.adapters.get(adapter as usize) {
            None => Err("there is no such adapter"),
            Some(_) if matches!(fault, Fault::StartAdapter { .. }) => {
                self.start_refusal(adapter).map_or(Ok(()), Err)
            }
            Some(_) if self.tdr.stopped_adapters().contains(&adapter) => {
                Err("the adapter is stopped already")
            }
            Some(config) if node.is_some_and(|node| node as usize >= config.engine_count()) => {
                Err("there is no such engine")
            }
            Some(_) => match fault {
                Fault::UpdateDriver { adapter, .. } if self.arrivals_are_used_up(adapter) => {
                    Err("the adapter was started again too often")
                }
                Fault::PageFault { flags, .. } => {
                    PageFaultFlags::from_bits_retain(flags).flaw(0).map_or(Ok(()), Err)
                }
                _ => Ok(()),
            },
        }
    }

    /// Whether an adapter is stopped, did not start or has a driver that died.
    pub fn is_stopped(&self, adapter: u32) -> bool {
        self.tdr.stopped_adapters().contains(&adapter)
    }

    /// Refuses calls on an adapter that is stopped.
    pub(crate) fn require_started(&self, adapter: u32) -> Result<(), Refusal> {
        if !self.is_stopped(adapter) {
            return Ok(());
        }
        refuse(NtStatus::DEVICE_REMOVED, format!("adapter {adapter} is stopped"))
    }

    /// The same, and calls on one that was removed from the process's VM.
    pub(crate) fn require_started_for(&self, process: ProcessId, adapter: u32) -> Result<(), Refusal> {
        self.require_started(adapter)?;
        match self.has_adapter(process, adapter) {
            true => Ok(()),
            false => refuse(NtStatus::DEVICE_REMOVED, format!("adapter {adapter} is removed from the VM")),
        }
    }

    pub(crate) fn stop_adapter(&mut self, adapter: u32, effects: &mut Effects) {
        self.tdr.stop_adapter(adapter);
        self.end_cpu_events_on(adapter, None, effects);
        self.run_ddi(effects, |miniport, _, callbacks| miniport.stop_device(adapter, callbacks));
        self.release_staging_buffers(adapter, effects);
        let on_adapter = self.processes.devices().iter().filter(|(_, device)| device.adapter == adapter);
        let devices: Vec<u32> = on_adapter.map(|(id, _)| id).collect();
        // Hardware that is gone is not told of native fences.
        self.set_device_state(&devices, DeviceExecutionState::STOPPED, effects);
        self.forget_notifications(adapter);
        self.vidsch.forget_interrupts(adapter);
        let waits = self.end_waits_on(adapter, None, effects);
        let queues = self.drop_work_of(adapter, effects);
        self.end_cross_adapter_objects(adapter, effects);
        self.wake_watchers(adapter, None, effects);
        let text = format!("adapter {adapter} is stopped: {waits} waits ended, {queues} queues emptied");
        effects.notes.push(Note { process: None, text });
    }

    /// Stops an adapter for the processes of one VM, from which it was removed. Returns the number of waits that ended.
    pub(crate) fn stop_adapter_in(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) -> usize {
        self.end_cpu_events_on(adapter, Some(vm), effects);
        self.end_idle_waits_of(vm, adapter, effects);
        let devices = self.processes.devices().iter();
        let of_vm = |process: ProcessId| self.processes.get(process).is_some_and(|one| one.vm == vm);
        let devices = devices
            .filter(|(_, device)| device.adapter == adapter && of_vm(device.process))
            .map(|(id, _)| id);
        let (devices, state): (Vec<u32>, _) = (devices.collect(), DeviceExecutionState::STOPPED);
        self.set_device_state(&devices, state, effects);
        let waits = self.end_waits_on(adapter, Some(vm), effects);
        self.lose(Loss { devices: devices.clone(), state, page_fault: None, poisons: false }, effects);
        // The waits for the native fences that these devices could signal would have no end otherwise (decision 59).
        for device in devices {
            self.begin_loss(device, LostFences::NativeOnesAreSignaled, effects);
        }
        self.mark_removed_in(vm, adapter, effects);
        self.end_gpu_memory(adapter, Some(vm));
        waits
    }

    /// Marks the objects with CrossAdapter of an adapter that stopped: other adapters have opens of them too.
    fn end_cross_adapter_objects(&mut self, adapter: u32, effects: &mut Effects) {
        let of_adapter = |object: &SyncObject| {
            object.adapter == adapter && object.flags.contains(SyncObjectFlags::CROSS_ADAPTER)
        };
        let objects = self.sync.objects().iter().filter(|(_, object)| of_adapter(object));
        let objects: Vec<u32> = objects.map(|(id, _)| id).collect();
        for object in objects {
            self.sync.set_removed(object, true);
            self.poison_removed(object, effects);
        }
    }

    /// Marks what a VM has on an adapter that was removed from it. What no other VM has is dead; of the rest, this VM's
    /// opens are, on whatever adapter.
    fn mark_removed_in(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) {
        let vm_of = |process: ProcessId| self.processes.get(process).map_or(VmId::HOST, |one| one.vm);
        let is_on = |object: u32| self.sync.objects()[object].adapter == adapter;
        let of_vm = |open: &Open| vm_of(open.process) == vm && is_on(open.object);
        let dead = self.sync.opens().iter().filter(|(_, open)| of_vm(open));
        let dead: Vec<u32> = dead.map(|(id, _)| id).collect();
        let opens = self.sync.opens().iter().map(|(_, open)| (open.object, vm_of(open.process)));
        let shares = self.sharing.shares().values();
        let shared = shares.filter_map(|share| Some((self.sharing.object_of(share.shared)?, share.vm)));
        let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
        for (object, of) in opens.chain(shared) {
            if is_on(object) {
                if of == vm {
                    own.insert(object)
                } else {
                    others.insert(object)
                };
            }
        }
        for open in dead {
            self.sync.open_mut(open).arrival = NO_ARRIVAL;
        }
        for object in own {
            let for_all = !others.contains(&object);
            self.sync.set_removed(object, for_all);
            if for_all && self.sync.objects()[object].flags.contains(SyncObjectFlags::CROSS_ADAPTER) {
                self.poison_removed(object, effects);
            }
        }
        self.end_removed_notifications(adapter);
        self.mark_removed_resources(vm, adapter);
    }

    /// Stops the adapters whose drivers died by themselves, before another DDI is called on them.
    pub(crate) fn stop_dead_drivers(&mut self, effects: &mut Effects) {
        while self.miniport.has_died() {
            let Some((adapter, why)) = self.miniport.take_died() else { return };
            self.note_host(format!("the driver of adapter {adapter} died: {why}"), effects);
            if !self.tdr.stopped_adapters().contains(&adapter) {
                self.stop_adapter(adapter, effects);
            }
        }
    }

    /// Sets the state of active devices, and updates the status of each process that has one of them.
    pub(crate) fn set_device_state(
        &mut self,
        devices: &[u32],
        state: DeviceExecutionState,
        effects: &mut Effects,
    ) {
        let mut concerned = BTreeSet::new();
        for id in devices {
            let device = self.processes.device_mut(*id);
            if device.state == DeviceExecutionState::ACTIVE {
                device.state = state;
                let process = device.process;
                concerned.insert(process);
                if let Some(owner) = self.processes.get_mut(process) {
                    owner.devices_stopped += 1;
                }
            }
        }
        for process in concerned {
            self.store_status(process, effects);
        }
        for device in devices {
            self.abort_doorbells(*device, effects);
        }
    }

    /// Ends every CPU wait for fences of this adapter or opened on it, and those of sync files: all, or those of one VM.
    fn end_waits_on(&mut self, adapter: u32, vm: Option<VmId>, effects: &mut Effects) -> usize {
        let of_adapter = |wait: &Wait| {
            // An unsatisfied item keeps its object alive.
            let items = self.sync.waits().items(wait);
            let is_on_adapter = items.as_ref().iter().filter(|item| !item.satisfied).any(|item| {
                self.adapter_of(item) == adapter || self.sync.objects()[item.object].adapter == adapter
            });
            let of = match wait.owner() {
                WaitOwner::Cpu { process, .. } => self.processes.get(process).map(|process| process.vm),
                WaitOwner::SyncFile { sync_file } => Some(self.sharing.sync_files()[sync_file].vm),
                WaitOwner::Gpu { .. } => return false,
            };
            is_on_adapter && (vm.is_none() || of == vm)
        };
        let ended: Vec<WaitId> =
            self.sync.waits().iter().filter_map(|(id, wait)| of_adapter(wait).then_some(id)).collect();
        for id in &ended {
            match self.end_wait(*id).map(|wait| wait.owner()) {
                Some(WaitOwner::Cpu { process, event }) => {
                    self.wake(process, event, NtStatus::DEVICE_REMOVED, effects);
                }
                Some(WaitOwner::SyncFile { sync_file }) => self.sync_file_ready(sync_file, effects),
                Some(WaitOwner::Gpu { .. }) | None => {}
            }
        }
        ended.len()
    }

    /// Drops what is queued in the contexts of this adapter or runs on its engines.
    fn drop_work_of(&mut self, adapter: u32, effects: &mut Effects) -> usize {
        let before = self.history.begin(Ending::DeviceLost);
        self.vidsch.forget_adapter(adapter);
        self.forget_suspends(adapter);
        self.tdr.forget_adapter(adapter);
        let of_adapter = self.vidsch.queues().iter().filter(|(_, queue)| queue.engine.adapter == adapter);
        let queues: Vec<u32> = of_adapter.map(|(id, _)| id).collect();
        let mut processes = BTreeSet::new();
        for id in queues.iter().copied() {
            self.remember_queue(id);
            self.unready(id);
            let queue = self.vidsch.queue_mut(id);
            queue.running = None;
            queue.in_flight.clear();
            let (process, packets) = (queue.process, core::mem::take(&mut queue.packets));
            let status = Some(NtStatus::DEVICE_REMOVED);
            self.drop_passed_mark(id);
            self.await_no_longer(id);
            self.drop_packets(process, DroppedPackets { packets, queue: None, status }, effects);
            processes.insert(process);
        }
        // Dropped buffers will not complete, so their writes are evaluated now: others may wait for them.
        for process in processes {
            self.evaluate_written(process, Mark::Wrote, effects);
            self.count_driver_bytes(process, adapter);
        }
        self.history.set_ending(before);
        queues.len()
    }
}
