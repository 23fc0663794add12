//! CPU events are created, signaled by drivers, and destroyed. See `cpu_event.rs` for the rules.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{FeatureId, GuestEvent, Handle, NtStatus, SyncObjectFlags, SyncObjectInfo, WakeTarget, limits};
use serde::{Deserialize, Serialize};

use super::cpu_event::{CPU_EVENT_BYTES, CpuEvent, CpuEvents};
use crate::ddi::{CreateCpuEvent, DEBUG_PRINT_BYTES_MAX, DxgCpuEvent, KmdProcess, ProcessKind, SignalEvent};
use crate::effects::Effects;
use crate::error::{Refusal, refuse};
use crate::kernel::Kernel;
use crate::policy::CpuEventOfDevice;
use crate::{ProcessId, VmId};

impl Kernel {
    /// Notes and counts a violation of a driver's contract, which has no other effect.
    pub(crate) fn violation(&mut self, adapter: u32, problem: &str, effects: &mut Effects) {
        self.events.cpu_events.violations += 1;
        let text = format!("contract violation by the driver of adapter {adapter}: {problem}");
        self.note_host(text, effects);
    }

    /// Notes a debug print of a driver, cut to [`DEBUG_PRINT_BYTES_MAX`].
    pub(crate) fn debug_print(
        &mut self,
        adapter: u32,
        process: Option<ProcessId>,
        text: &str,
        effects: &mut Effects,
    ) {
        let bytes = (0..=DEBUG_PRINT_BYTES_MAX.min(text.len())).rev();
        let bytes = bytes.into_iter().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let text = format!("driver of adapter {adapter}: {}", &text[..bytes]);
        match process.filter(|process| self.processes.by_id().contains_key(process)) {
            Some(process) => self.note(process, text, effects),
            None => self.note_host(text, effects),
        }
    }

    /// The refusal of a call whose DDI failed, with the DDI's status. A failure with a success status is a violation.
    pub(crate) fn driver_refused(
        &mut self,
        adapter: u32,
        ddi: &str,
        status: NtStatus,
        effects: &mut Effects,
    ) -> Refusal {
        if status.is_success() {
            self.violation(adapter, &format!("{ddi} fails with {status}, which is no failure"), effects);
            return Refusal { status: NtStatus::UNSUCCESSFUL, why: format!("{ddi} failed") };
        }
        Refusal { status, why: format!("the driver refused it in {ddi}") }
    }

    /// Creates the CPU event of a new object at the driver, if the driver is to signal it.
    pub(crate) fn begin_cpu_event(
        &mut self,
        process: ProcessId,
        device: u32,
        info: &SyncObjectInfo,
        effects: &mut Effects,
    ) -> Result<Option<DxgCpuEvent>, Refusal> {
        let by_kmd = info.flags.contains(SyncObjectFlags::SIGNAL_BY_KMD);
        let Some(event) = info.event.filter(|_| by_kmd) else { return Ok(None) };
        let adapter = self.processes.devices()[device].adapter;
        let feature = (FeatureId::KMD_SIGNAL_CPU_EVENT, "KMD_SIGNAL_CPU_EVENT");
        self.require_feature(process, adapter, feature)?;
        let most = limits::CPU_EVENTS_PER_PROCESS_MAX;
        if self.process(process).cpu_events >= most {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {most} CPU events, the limit"));
        }
        self.require_memory(process, CPU_EVENT_BYTES)?;
        let id = DxgCpuEvent(self.events.cpu_events.last + 1);
        let create = CreateCpuEvent { device: self.processes.devices()[device].kmd, event: id, flags: 0 };
        let kmd = match self.miniport.create_cpu_event(adapter, &create) {
            Ok(kmd) => kmd,
            Err(status) => {
                return Err(self.driver_refused(adapter, "DxgkDdiCreateCpuEvent", status, effects));
            }
        };
        self.events.cpu_events.last = id.0;
        let (handle, signals, set_in) = (Handle::NULL, 0, 0);
        let new = CpuEvent { process, adapter, device, handle, event, kmd, signals, set_in };
        self.events.cpu_events.events.insert(id, new);
        self.process_mut(process).cpu_events += 1;
        self.processes.charge(process, CPU_EVENT_BYTES);
        self.processes.device_mut(device).cpu_events.insert(id);
        Ok(Some(id))
    }

    /// Sets the handle of the object that a CPU event belongs to.
    pub(crate) fn name_cpu_event(&mut self, id: Option<DxgCpuEvent>, process: ProcessId, handle: Handle) {
        if let Some(id) = id
            && let Some(event) = self.events.cpu_events.events.get_mut(&id)
        {
            event.handle = handle;
            self.events.cpu_events.of_handle.insert((process, handle), id);
        }
    }

    /// The CPU event of the object that a process created under this handle.
    pub(crate) fn cpu_event(&self, process: ProcessId, handle: Handle) -> Option<&CpuEvent> {
        let id = self.events.cpu_events.of_handle.get(&(process, handle))?;
        self.events.cpu_events.events.get(id)
    }

    /// Ends the CPU event that was created with a handle, which ends.
    pub(crate) fn end_cpu_event_of(&mut self, process: ProcessId, handle: Handle, effects: &mut Effects) {
        if let Some(id) = self.events.cpu_events.of_handle.get(&(process, handle)).copied() {
            self.end_cpu_event(id, effects);
        }
    }

    /// `DxgkDdiDestroyCpuEvent`.
    pub(crate) fn end_cpu_event(&mut self, id: DxgCpuEvent, effects: &mut Effects) {
        let Some(event) = self.events.cpu_events.events.get(&id) else { return };
        let CpuEvent { process, adapter, device, handle, kmd, .. } = *event;
        self.events.cpu_events.of_handle.remove(&(process, handle));
        self.run_ddi(effects, |miniport, _, callbacks| {
            miniport.destroy_cpu_event(adapter, kmd, callbacks);
        });
        self.events.cpu_events.events.remove(&id);
        self.process_mut(process).cpu_events -= 1;
        self.processes.release(process, CPU_EVENT_BYTES);
        self.processes.device_mut(device).cpu_events.remove(&id);
    }

    /// Destroys a device and its CPU events at the driver, in the order that the policy sets.
    pub(crate) fn end_cpu_events_and_kmd_device(&mut self, device: u32, effects: &mut Effects) {
        let (adapter, kmd) = (self.processes.devices()[device].adapter, self.processes.devices()[device].kmd);
        let order = self.config.policy.cpu_event_of_device;
        if order == CpuEventOfDevice::EndsAfter {
            self.end_kmd_device(adapter, kmd, effects);
        }
        for id in core::mem::take(&mut self.processes.device_mut(device).cpu_events) {
            self.end_cpu_event(id, effects);
        }
        if order == CpuEventOfDevice::EndsBefore {
            self.end_kmd_device(adapter, kmd, effects);
        }
        // The driver destroys the resources of the device.
        self.count_driver_bytes(self.processes.devices()[device].process, adapter);
    }

    /// Ends the CPU events of an adapter that stops (EVT-030): all, or those of a VM from which it is removed.
    pub(crate) fn end_cpu_events_on(&mut self, adapter: u32, vm: Option<VmId>, effects: &mut Effects) {
        let is_of = |event: &CpuEvent| {
            event.adapter == adapter
                && vm.is_none_or(|vm| self.processes.get(event.process).is_some_and(|one| one.vm == vm))
        };
        let on_adapter = self.events.cpu_events.events.iter().filter(|(_, event)| is_of(event));
        let events: Vec<DxgCpuEvent> = on_adapter.map(|(id, _)| *id).collect();
        for id in events {
            self.end_cpu_event(id, effects);
        }
    }

    /// `DxgkCbSignalEvent`.
    pub(crate) fn driver_signals(&mut self, adapter: u32, signal: SignalEvent, effects: &mut Effects) {
        match self.signaled(adapter, &signal) {
            Ok(target) => {
                self.set_target(target, signal, effects);
                self.miniport.event_signaled(adapter, &signal, NtStatus::SUCCESS);
            }
            Err(why) => self.refuse_signal(adapter, &signal, &why, effects),
        }
    }

    /// `DxgkCbSignalEvent` from an interrupt service routine (EVT-010).
    pub(crate) fn isr_signals(&mut self, adapter: u32, signal: SignalEvent, effects: &mut Effects) {
        let why = "an interrupt service routine calls it: IRQL must be DISPATCH_LEVEL or lower; signal from the DPC";
        self.refuse_signal(adapter, &signal, why, effects);
    }

    fn refuse_signal(&mut self, adapter: u32, signal: &SignalEvent, why: &str, effects: &mut Effects) {
        let text = format!("DxgkCbSignalEvent of event {:#x}: {why}", signal.event);
        self.violation(adapter, &text, effects);
        self.miniport.event_signaled(adapter, signal, NtStatus::INVALID_PARAMETER);
    }

    fn set_target(&mut self, target: Target, signal: SignalEvent, effects: &mut Effects) {
        match target {
            Target::CpuEvent(id) => {
                let step = self.events.cpu_events.steps;
                let Some(event) = self.events.cpu_events.events.get_mut(&id) else { return };
                event.signals += 1;
                if core::mem::replace(&mut event.set_in, step) != step {
                    let (process, event) = (event.process, event.event);
                    self.wake(process, event, NtStatus::SUCCESS, effects);
                }
            }
            Target::GuestEvent(process, event) => {
                if let Some(of) = signal.process.filter(|_| signal.last_use) {
                    self.events.cpu_events.last_used.insert((of, event));
                }
                self.wake(process, WakeTarget::GuestEvent(event), NtStatus::SUCCESS, effects);
            }
        }
    }

    /// The target of a signal, or why the signal is refused.
    fn signaled(&self, adapter: u32, signal: &SignalEvent) -> Result<Target, String> {
        let SignalEvent { process, event, cpu_event_object, last_use, reserved } = *signal;
        if reserved != 0 {
            return Err(format!("Reserved is {reserved:#x} and must be 0"));
        }
        match (cpu_event_object, process) {
            (true, Some(KmdProcess(process))) => {
                Err(format!("hDxgkProcess is {process:#x}: with CpuEventObject it must be 0"))
            }
            (true, None) if last_use => {
                Err("LastUse is for events of a guest: a CPU event ends with its object".into())
            }
            (true, None) => {
                let cpu_event = self.events.cpu_events.events.get(&DxgCpuEvent(event));
                match cpu_event.filter(|cpu_event| cpu_event.adapter == adapter) {
                    Some(_) => Ok(Target::CpuEvent(DxgCpuEvent(event))),
                    None => Err("the adapter has no live CPU event of this hDxgCpuEvent".into()),
                }
            }
            (false, None) => Err("neither CpuEventObject nor hDxgkProcess is given".into()),
            (false, Some(process)) => self.guest_event(adapter, process, GuestEvent(event), last_use),
        }
    }

    /// Guest-event mode: an event by the number that a guest process, or one of the host, gave its driver (EVT-019,
    /// E-14). LastUse marks the last signal of an event (EVT-020), which sets it as any other. It is optional, because
    /// the published structure has no such bit (E-13), and DxgkDdiDestroyProcess ends all events of the process.
    fn guest_event(
        &self,
        adapter: u32,
        process: KmdProcess,
        event: GuestEvent,
        last_use: bool,
    ) -> Result<Target, String> {
        let owner_entry = self.guests.driver_ids().processes.get(&process).filter(|(_, of)| *of == adapter);
        let Some((owner, _)) = owner_entry else {
            return Err(format!("hDxgkProcess {:#x} is no live process of this adapter", process.0));
        };
        match self.process_kind(*owner) {
            _ if event.0 == 0 => Err("hEvent is NULL".into()),
            _ if self.events.cpu_events.last_used.contains(&(process, event)) => {
                Err("the last use of the event was an earlier signal".into())
            }
            _ if last_use
                && self.events.cpu_events.last_used_count(process)
                    >= limits::LAST_USED_EVENTS_PER_PROCESS_MAX =>
            {
                let most = limits::LAST_USED_EVENTS_PER_PROCESS_MAX;
                Err(format!("{most} events of the process had their LastUse, the limit"))
            }
            ProcessKind::VirtualMachineWorker { .. } => {
                Err("the worker process of a VM has no events".into())
            }
            ProcessKind::Host | ProcessKind::VirtualMachine { .. } => Ok(Target::GuestEvent(*owner, event)),
        }
    }

    /// Number of CPU events in the table for a process.
    pub(crate) fn cpu_events_of(&self, process: ProcessId) -> u32 {
        self.events.cpu_events.events.values().filter(|event| event.process == process).count() as u32
    }

    /// Reports tables of CPU events that disagree.
    pub(crate) fn cpu_events_miscounted(&self) -> Option<&'static str> {
        let CpuEvents { events, of_handle, .. } = &self.events.cpu_events;
        let is_whole = |(id, event): (&DxgCpuEvent, &CpuEvent)| {
            let names_it = of_handle.get(&(event.process, event.handle)) == Some(id);
            let owner = self.processes.get(event.process);
            let handle = owner.is_some_and(|owner| owner.find_sync_object(event.handle).is_some());
            let device =
                self.processes.devices().get(event.device).is_some_and(|one| one.cpu_events.contains(id));
            names_it && handle && device && !self.tdr.stopped_adapters().contains(&event.adapter)
        };
        let of_devices: usize =
            self.processes.devices().iter().map(|(_, device)| device.cpu_events.len()).sum();
        let of_processes: usize = self.processes.by_id().values().map(|process| process.cpu_events).sum();
        let counts = [of_handle.len(), of_devices, of_processes];
        let all_known = self
            .events
            .cpu_events
            .last_used
            .iter()
            .all(|(of, _)| self.guests.driver_ids().processes.contains_key(of));
        let agree =
            all_known && counts.iter().all(|count| *count == events.len()) && events.iter().all(is_whole);
        (!agree).then_some("the CPU events of drivers")
    }
}

/// Event that a signal sets.
#[derive(Serialize, Deserialize)]
enum Target {
    CpuEvent(DxgCpuEvent),
    GuestEvent(ProcessId, GuestEvent),
}
