//! Processes and devices are created and destroyed at drivers. See `driver_ids.rs` for the
//! rules.

use alloc::vec::Vec;

use super::driver_ids::DriverIds;
use crate::ddi::{KmdDevice, KmdProcess, NewProcess, ProcessKind};
use crate::effects::Effects;
use crate::error::Refusal;
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

impl Kernel {
    /// The kind of a process, for drivers.
    pub(crate) fn process_kind(&self, process: ProcessId) -> ProcessKind {
        match self.process(process).vm {
            VmId::HOST => ProcessKind::Host,
            vm => {
                let worker = self.guests.vms.get(&vm).map_or(KmdProcess(0), |vm| vm.worker);
                ProcessKind::VirtualMachine { vm, worker }
            }
        }
    }

    /// `hKmdProcess`, from the process's first device on the adapter on.
    pub(crate) fn kmd_process(&self, process: ProcessId, adapter: u32) -> Option<KmdProcess> {
        self.guests.driver_ids.of_process.get(&(process, adapter)).copied()
    }

    /// Creates a device at the driver, and its process if that is its first device there.
    pub(crate) fn begin_kmd_device(
        &mut self,
        process: ProcessId,
        adapter: u32,
        effects: &mut Effects,
    ) -> Result<KmdDevice, Refusal> {
        let existing = self.kmd_process(process, adapter);
        let owner = match existing {
            Some(owner) => owner,
            None => self.begin_kmd_process(process, adapter, effects)?,
        };
        let device = KmdDevice(self.guests.driver_ids.next_id());
        match self.miniport.create_device(adapter, owner, device) {
            Ok(()) => Ok(device),
            Err(status) => {
                if existing.is_none() {
                    self.end_kmd_process(process, adapter, effects);
                }
                Err(self.driver_refused(adapter, "DxgkDdiCreateDevice", status, effects))
            }
        }
    }

    fn begin_kmd_process(
        &mut self,
        process: ProcessId,
        adapter: u32,
        effects: &mut Effects,
    ) -> Result<KmdProcess, Refusal> {
        let id = KmdProcess(self.guests.driver_ids.next_id());
        let name = &self.process(process).name;
        let name = (!name.is_empty()).then(|| name.clone());
        let (address_space, kind) = (Some(process), self.process_kind(process));
        let new = NewProcess { process: id, address_space, kind, name };
        if let Err(status) = self.miniport.create_process(adapter, &new) {
            return Err(self.driver_refused(adapter, "DxgkDdiCreateProcess", status, effects));
        }
        self.guests.driver_ids.processes.insert(id, (process, adapter));
        self.guests.driver_ids.of_process.insert((process, adapter), id);
        Ok(id)
    }

    pub(crate) fn end_kmd_device(&mut self, adapter: u32, device: KmdDevice, effects: &mut Effects) {
        self.run_ddi(effects, |miniport, _, callbacks| miniport.destroy_device(adapter, device, callbacks));
    }

    /// Destroys a process at the driver of an adapter of which it has no handle any more. Signals of the driver before
    /// `DxgkDdiDestroyProcess` returns still count, later ones do not (E-13).
    pub(crate) fn end_kmd_process(&mut self, process: ProcessId, adapter: u32, effects: &mut Effects) {
        let Some(id) = self.guests.driver_ids.of_process.remove(&(process, adapter)) else { return };
        self.run_ddi(effects, |miniport, _, callbacks| miniport.destroy_process(adapter, id, callbacks));
        self.guests.driver_ids.processes.remove(&id);
        self.events.forget_guest_events(id);
        if let Some(vm) = self.processes.get(process).map(|process| process.vm) {
            self.end_unused_worker(vm, adapter, effects);
        }
    }

    /// Destroys a process at the driver of every adapter.
    pub(crate) fn end_kmd_processes(&mut self, process: ProcessId, effects: &mut Effects) {
        let known = self.guests.driver_ids.of_process.range((process, 0)..=(process, u32::MAX));
        let adapters: Vec<u32> = known.map(|((_, adapter), _)| *adapter).collect();
        for adapter in adapters {
            self.end_kmd_process(process, adapter, effects);
        }
    }

    /// Number of adapters whose drivers have a process.
    pub(crate) fn kmd_processes_of(&self, process: ProcessId) -> u32 {
        self.guests.driver_ids.processes.values().filter(|(owner, _)| *owner == process).count() as u32
    }

    /// Reports processes that drivers have and the kernel has not, or the other way round.
    pub(crate) fn guests_miscounted(&self) -> Option<&'static str> {
        let DriverIds { processes, of_process, .. } = &self.guests.driver_ids;
        let agrees = |(id, key): (&KmdProcess, &(ProcessId, u32))| {
            of_process.get(key) == Some(id) && self.processes.by_id().contains_key(&key.0)
        };
        if processes.len() != of_process.len() || !processes.iter().all(agrees) {
            return Some("the processes that drivers know");
        }
        let is_registered =
            |device: &crate::process::Device| of_process.contains_key(&(device.process, device.adapter));
        let all_known = self.processes.devices().iter().all(|(_, device)| is_registered(device));
        (!all_known).then_some("the processes of devices")
    }
}
