//! What drivers are told of processes and devices.
//!
//! ```text
//!   a process's first device on an adapter   DxgkDdiCreateProcess, then DxgkDdiCreateDevice
//!   its later devices there                  DxgkDdiCreateDevice
//!   a device ends                            DxgkDdiDestroyDevice
//!   its last handle of the adapter ends,     DxgkDdiDestroyDevice for each device, then DxgkDdiDestroyProcess
//!   or the process does
//! ```
//! So an escape may come of a process that its driver does not know yet (S-12, ESC-021). A stopped adapter ends
//! none of it: the driver is told as the handles go, as with contexts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ddi::{KmdDevice, KmdProcess, Miniport, NewProcess, ProcessKind};
use crate::effects::Effects;
use crate::error::Refusal;
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

/// The processes and devices that drivers know.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Guests {
    /// The last identity that was given: processes and devices have one sequence, so that no two are alike.
    last_id: u64,
    pub processes: BTreeMap<KmdProcess, (ProcessId, u32)>,
    of_process: BTreeMap<(ProcessId, u32), KmdProcess>,
}

impl Guests {
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl<M: Miniport> Kernel<M> {
    /// What kind a process is to drivers.
    pub(crate) fn process_kind(&self, process: ProcessId) -> ProcessKind {
        match self.process(process).vm {
            VmId::HOST => ProcessKind::Host,
            vm => {
                let worker = self.vms.get(&vm).map_or(KmdProcess(0), |vm| vm.worker);
                ProcessKind::VirtualMachine { vm, worker }
            }
        }
    }

    /// `hKmdProcess`, from the process's first device on the adapter on.
    pub(crate) fn kmd_process(&self, process: ProcessId, adapter: u32) -> Option<KmdProcess> {
        self.guests.of_process.get(&(process, adapter)).copied()
    }

    /// A new device: the driver is told of it, and of its process if that is its first one there.
    pub(crate) fn begin_kmd_device(
        &mut self,
        process: ProcessId,
        adapter: u32,
        effects: &mut Effects,
    ) -> Result<KmdDevice, Refusal> {
        let known = self.kmd_process(process, adapter);
        let owner = match known {
            Some(owner) => owner,
            None => self.begin_kmd_process(process, adapter, effects)?,
        };
        let device = KmdDevice(self.guests.next_id());
        match self.miniport.create_device(adapter, owner, device) {
            Ok(()) => Ok(device),
            Err(status) => {
                if known.is_none() {
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
        let id = KmdProcess(self.guests.next_id());
        let name = &self.process(process).name;
        let name = (!name.is_empty()).then(|| name.clone());
        let (address_space, kind) = (Some(process), self.process_kind(process));
        let new = NewProcess { process: id, address_space, kind, name };
        if let Err(status) = self.miniport.create_process(adapter, &new) {
            return Err(self.driver_refused(adapter, "DxgkDdiCreateProcess", status, effects));
        }
        self.guests.processes.insert(id, (process, adapter));
        self.guests.of_process.insert((process, adapter), id);
        Ok(id)
    }

    pub(crate) fn end_kmd_device(&mut self, adapter: u32, device: KmdDevice, effects: &mut Effects) {
        self.with_miniport(effects, |miniport, _, callbacks| {
            miniport.destroy_device(adapter, device, callbacks)
        });
    }

    /// The process has no handle of the adapter any more. What the driver signals before `DxgkDdiDestroyProcess`
    /// returns still counts, nothing after it (E-13).
    pub(crate) fn end_kmd_process(&mut self, process: ProcessId, adapter: u32, effects: &mut Effects) {
        let Some(id) = self.guests.of_process.remove(&(process, adapter)) else { return };
        self.with_miniport(effects, |miniport, _, callbacks| {
            miniport.destroy_process(adapter, id, callbacks)
        });
        self.guests.processes.remove(&id);
        self.cpu_events.forget_guest_events(id);
    }

    /// The process ends, on every adapter.
    pub(crate) fn end_kmd_processes(&mut self, process: ProcessId, effects: &mut Effects) {
        let known = self.guests.of_process.range((process, 0)..=(process, u32::MAX));
        let adapters: Vec<u32> = known.map(|((_, adapter), _)| *adapter).collect();
        for adapter in adapters {
            self.end_kmd_process(process, adapter, effects);
        }
    }

    /// How many adapters' drivers know a process.
    pub(crate) fn kmd_processes_of(&self, process: ProcessId) -> u32 {
        self.guests.processes.values().filter(|(owner, _)| *owner == process).count() as u32
    }

    /// Processes that drivers know and that are not there, or the other way round.
    pub(crate) fn guests_miscounted(&self) -> Option<&'static str> {
        let Guests { processes, of_process, .. } = &self.guests;
        let agrees = |(id, key): (&KmdProcess, &(ProcessId, u32))| {
            of_process.get(key) == Some(id) && self.processes.contains_key(&key.0)
        };
        if processes.len() != of_process.len() || !processes.iter().all(agrees) {
            return Some("the processes that drivers know");
        }
        let known =
            |device: &crate::kernel::Device| of_process.contains_key(&(device.process, device.adapter));
        let all_known = self.devices.iter().all(|(_, device)| known(device));
        (!all_known).then_some("the processes of devices")
    }
}
