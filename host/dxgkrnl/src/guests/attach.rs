//! VMs attach and detach; processes are frozen and thawed. See `virtual_machine.rs` for the rules, `adapters.rs` for
//! adapters that come and go, and `pause.rs` for paused VMs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, NtStatus, limits};

use super::virtual_machine::{DeferredWakes, VirtualMachine};
use crate::config::HOST_NAME;
use crate::config::virtualization_flags::FORCE_PARAVIRTUALIZATION;
use crate::ddi::{KmdProcess, NewProcess, ProcessKind, VirtualMachineData};
use crate::effects::{Effects, HostEvent};
use crate::error::{Refusal, refuse};
use crate::kernel::Kernel;
use crate::{Features, ProcessId, VmConfig, VmId};

impl Kernel {
    /// Why a VM of this name may not attach, if it may not.
    pub fn vm_refusal(&self, name: &str) -> Option<String> {
        self.config.vm_refusal(name)
    }

    /// The settings of a VM that is attached.
    pub fn attached_vm(&self, vm: VmId) -> Option<&VmConfig> {
        self.guests.vms.get(&vm).map(|vm| &vm.config)
    }

    pub(crate) fn attach_vm(&mut self, vm: VmId, name: &str, effects: &mut Effects) {
        if vm == VmId::HOST || self.guests.vms.contains_key(&vm) {
            return self.note_host(format!("VM {} ({name}) is attached already", vm.0), effects);
        }
        if let Some(why) = self.vm_refusal(name) {
            return self.note_host(format!("VM {} is not created: {why}", vm.0), effects);
        }
        let worker = KmdProcess(self.guests.driver_ids.next_id());
        // The settings under the host's name are those of its own processes, also beside a VM of that name.
        let mut config = self.config.vm(name);
        if name == HOST_NAME {
            config = VmConfig { secure: config.secure, name: config.name, ..VmConfig::default() };
        }
        let mut new = VirtualMachine::new(config, worker);
        for adapter in 0..self.config.adapters.len() as u32 {
            if !self.is_offered(&new, adapter) {
                continue;
            }
            match self.give_adapter(vm, &new, adapter) {
                Ok(()) => new.insert_adapter(adapter),
                Err(why) => {
                    self.note_host(format!("VM {} ({name}) has no adapter {adapter}: {why}", vm.0), effects);
                }
            }
        }
        self.guests.vms.insert(vm, new);
    }

    /// Whether a VM gets an adapter without being asked for it: it is configured for it, and did not lose it.
    fn is_offered(&self, new: &VirtualMachine, adapter: u32) -> bool {
        let is_configured = new.config.adapters.as_ref().is_none_or(|adapters| adapters.contains(&adapter));
        is_configured && !new.lacks_removed(adapter) && !self.tdr.stopped_adapters().contains(&adapter)
    }

    /// Why no further VM can have an adapter, if none can.
    pub(super) fn adapter_shortage(&self, adapter: u32) -> Option<String> {
        let config = &self.config.adapters[adapter as usize];
        let forced = self.config.gpu_virtualization_flags & FORCE_PARAVIRTUALIZATION != 0;
        if !config.paravirtualization && !forced {
            return Some("its driver does not set ParavirtualizationSupported (GPV-007)".into());
        }
        let in_use = self.virtual_functions_taken(adapter);
        (in_use >= config.virtual_functions as usize)
            .then(|| format!("its {in_use} virtual functions (NumVirtualFunctions) are taken (GPV-008)"))
    }

    /// Gives a VM an adapter that is started. An error is why it could not be given.
    pub(super) fn give_adapter(
        &mut self,
        vm: VmId,
        new: &VirtualMachine,
        adapter: u32,
    ) -> Result<(), String> {
        self.adapter_shortage(adapter).map_or(Ok(()), Err)?;
        if new.workers.contains(&adapter) {
            return Ok(());
        }
        let kind = ProcessKind::VirtualMachineWorker { vm };
        // A worker is no process of the guest: there is no name to give.
        let process = NewProcess { process: new.worker, address_space: None, kind, name: None };
        let created = self.miniport.create_process(adapter, &process);
        created.map_err(|status| format!("DxgkDdiCreateProcess of its worker process: {status}"))?;
        let VmConfig { secure, linux, .. } = new.config;
        let data = VirtualMachineData { vm, worker: new.worker, secure, linux };
        self.miniport.set_virtual_machine_data(adapter, &data);
        Ok(())
    }

    /// Gives an adapter that starts to the VMs that want it and do not have it. Returns their number.
    pub(crate) fn offer_adapter(&mut self, adapter: u32, effects: &mut Effects) -> usize {
        let without = self.guests.vms.iter().filter(|(_, vm)| !vm.adapters.contains(&adapter));
        let without: Vec<VmId> =
            without.filter(|(_, vm)| self.is_offered(vm, adapter)).map(|(vm, _)| *vm).collect();
        without.into_iter().filter(|vm| self.give_attached(*vm, adapter, effects)).count()
    }

    /// Gives an adapter to a VM that is attached; false, with a note, if it cannot have it.
    pub(super) fn give_attached(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) -> bool {
        let Some(new) = self.guests.vms.remove(&vm) else { return false };
        let given = self.give_adapter(vm, &new, adapter);
        let attached = self.guests.vms.entry(vm).or_insert(new);
        match given {
            Ok(()) => {
                attached.insert_adapter(adapter);
                true
            }
            Err(why) => {
                self.note_host(format!("VM {} has no adapter {adapter}: {why}", vm.0), effects);
                false
            }
        }
    }

    fn virtual_functions_taken(&self, adapter: u32) -> usize {
        self.guests.vms.values().filter(|vm| vm.adapters.contains(&adapter)).count()
    }

    /// Removes a VM whose processes have ended, and destroys its worker process at the drivers.
    pub(crate) fn forget_vm(&mut self, vm: VmId, effects: &mut Effects) {
        let Some(VirtualMachine { worker, workers, .. }) = self.guests.vms.remove(&vm) else { return };
        self.guests.paused.remove(&vm);
        self.vidsch.forget_vm(vm);
        self.tdr.forget_vm(vm);
        for adapter in workers {
            self.run_ddi(effects, |miniport, _, callbacks| {
                miniport.destroy_process(adapter, worker, callbacks);
            });
        }
    }

    /// Why no process can attach to this VM, if none can.
    pub fn process_refusal(&self, vm: VmId) -> Option<String> {
        match self.may_attach(vm) {
            true => self.processes.shortage_for_process(vm),
            false => Some(format!("there is no VM {}", vm.0)),
        }
    }

    /// Whether a process may attach: one of the host, or of a VM that is attached.
    pub(crate) fn may_attach(&self, vm: VmId) -> bool {
        vm == VmId::HOST || (self.guests.vms.contains_key(&vm) && !self.is_clearing(vm))
    }

    /// The VM that a process is in; `None` for one of the host.
    pub(crate) fn vm_of(&self, process: ProcessId) -> Option<&VirtualMachine> {
        self.guests.vms.get(&self.processes.get(process)?.vm)
    }

    /// The settings of a VM; for the host, those of its own processes.
    pub(crate) fn vm_config(&self, vm: VmId) -> VmConfig {
        match self.guests.vms.get(&vm) {
            Some(vm) => vm.config.clone(),
            None => self.config.vm(HOST_NAME),
        }
    }

    /// Refuses DisableGpuTimeout, if that is wanted, to a VM that may not have it.
    pub(crate) fn may_disable_timeout(&self, process: ProcessId, disabled: bool) -> Result<(), Refusal> {
        if !disabled || self.vm_config(self.process(process).vm).disable_gpu_timeout {
            return Ok(());
        }
        refuse(
            NtStatus::ACCESS_DENIED,
            "the VM may not disable the GPU timeout: its `disable_gpu_timeout` is off",
        )
    }

    /// Whether this process has this adapter.
    pub(crate) fn has_adapter(&self, process: ProcessId, adapter: u32) -> bool {
        self.vm_of(process).is_none_or(|vm| vm.adapters.contains(&adapter))
    }

    /// The features of a process. A guest has those that both the host and its own kernel know, whichever of the two is
    /// the older one (GPV-029).
    pub(crate) fn features_of(&self, process: ProcessId) -> Features {
        let host = self.config.features;
        self.vm_of(process).map_or(host, |vm| host & vm.config.features)
    }

    /// Sets the features that the guest's kernel knows. A later kernel of the VM reports them anew.
    pub(crate) fn guest_features(&mut self, vm: VmId, features: Features) {
        let allowed = self.allowed_features(vm, features);
        if let Some(attached) = self.guests.vms.get_mut(&vm) {
            attached.config.features = allowed;
        }
    }

    /// The features among these that the host's configuration of the VM has.
    fn allowed_features(&self, vm: VmId, features: Features) -> Features {
        features & self.config.vm(&self.vm_config(vm).name).features
    }

    /// The features that processes of a VM would have if its kernel knew these.
    pub fn vm_features_with(&self, vm: VmId, features: Features) -> Features {
        self.config.features & self.allowed_features(vm, features)
    }

    /// The features that processes of a VM have.
    pub fn vm_features(&self, vm: VmId) -> Features {
        self.config.features & self.vm_config(vm).features
    }

    // Frozen processes.

    /// Whether a process gets no wake-ups, because the guest's kernel froze it or its VM is paused.
    pub fn is_frozen(&self, process: ProcessId) -> bool {
        self.guests.frozen.contains_key(&process)
    }

    /// Freezes a process, or thaws it and delivers its deferred wake-ups.
    pub(crate) fn set_frozen(&mut self, process: ProcessId, frozen: bool, effects: &mut Effects) {
        if !self.processes.by_id().contains_key(&process) {
            return;
        }
        if frozen {
            self.guests.frozen.entry(process).or_default().is_frozen = true;
        } else {
            self.release_wakes(process, |deferred| deferred.is_frozen = false, effects);
        }
    }

    /// Ends one reason to hold the wake-ups of a process, and delivers them if it was the last.
    pub(super) fn release_wakes(
        &mut self,
        process: ProcessId,
        end: impl FnOnce(&mut DeferredWakes),
        effects: &mut Effects,
    ) {
        let Some(deferred) = self.guests.frozen.get_mut(&process) else { return };
        end(deferred);
        if !deferred.is_frozen
            && !deferred.is_paused
            && let Some(deferred) = self.guests.frozen.remove(&process)
        {
            effects.events.extend(deferred.events);
        }
    }

    /// Delivers a wake-up to a process, now or when it is thawed or its VM is resumed. At the limit of deferred wake-ups a
    /// process is treated as if it could receive them, so that none is lost.
    pub(crate) fn deliver(&mut self, event: HostEvent, effects: &mut Effects) {
        let process = event.process;
        let Some(deferred) = self.guests.frozen.get_mut(&process) else { return effects.events.push(event) };
        deferred.add(event);
        if deferred.len() >= limits::HELD_WAKES_PER_PROCESS_MAX {
            let text = format!(
                "{} wake-ups are held for a frozen process, the limit: they are delivered",
                deferred.len()
            );
            self.note(process, text, effects);
            let end = |held: &mut DeferredWakes| (held.is_frozen, held.is_paused) = (false, false);
            self.release_wakes(process, end, effects);
        }
    }

    /// As [`Kernel::miscounted`].
    pub(crate) fn virtual_machines_miscounted(&self) -> Option<&'static str> {
        let over = |(adapter, config): (u32, &crate::AdapterConfig)| {
            self.virtual_functions_taken(adapter) > config.virtual_functions as usize
        };
        if (0..).zip(&self.config.adapters).any(over) {
            return Some("the virtual functions of an adapter");
        }
        // The processes that a detached VM still has are ending.
        let ending = self.vidsch.work().backlog().ending_processes();
        let mut processes = self.processes.by_id().iter();
        if !processes.all(|(id, process)| self.may_attach(process.vm) || ending.contains_key(id)) {
            return Some("the VM of a process");
        }
        let not_its = |(_, device): (u32, &crate::process::Device)| {
            !self.processes.by_id().contains_key(&device.process)
                || device.state == DeviceExecutionState::ACTIVE
                    && !self.has_adapter(device.process, device.adapter)
        };
        if self.processes.devices().iter().any(not_its) {
            return Some("an active device on an adapter that its process has not");
        }
        if self.workers_miscounted() {
            return Some("the worker processes of VMs");
        }
        let is_gone = |process: &ProcessId| !self.processes.by_id().contains_key(process);
        if self.guests.frozen.keys().any(is_gone) {
            return Some("the frozen processes");
        }
        self.pauses_miscounted()
    }
}
