//! CPU events that a kernel-mode driver signals: CPU_NOTIFICATION objects with SignalByKmd.
//!
//! ```text
//!   create, device D              DxgkDdiCreateCpuEvent(hKmdDevice of D, hDxgCpuEvent); its failure is the create's
//!   DxgkCbSignalEvent             the creator's event is set: as often as the driver likes
//!   the creator's handle ends,    DxgkDdiDestroyCpuEvent, once. What the driver signals before that returns still
//!   D ends, the process ends,     counts; nothing after it does (E-7)
//!   the adapter stops
//! ```
//! Whichever comes first ends the event; the object itself lives on without one while it has a handle, as every
//! legacy object outlives its device. A lost device (TDR) keeps its events: that an object went bad is what they
//! are for.
//!
//! An event does not count (EVT-025): signals within one step, in which no user's code runs, set it once. A signal
//! that is not as `DXGKARGCB_SIGNALEVENT` wants it sets nothing and is recorded as a violation of the driver's
//! contract: a note says which, and [`crate::Snapshot::contract_violations`] counts them (E-8, E-11).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{EventId, Handle, NtStatus, SyncObjectFlags, SyncObjectInfo, limits};

use crate::ddi::{CreateCpuEvent, DxgCpuEvent, KmdCpuEvent, KmdProcess, Miniport, ProcessKind, SignalEvent};
use crate::effects::Effects;
use crate::kernel::{Kernel, Refusal, refuse};
use crate::policy::CpuEventOfDevice;
use crate::{FeatureId, ProcessId};

/// A CPU event that its driver knows.
pub(crate) struct CpuEvent {
    pub process: ProcessId,
    pub adapter: u32,
    /// The device that created the object.
    pub device: u32,
    /// The creator's handle of the object.
    pub handle: Handle,
    pub event: EventId,
    pub kmd: KmdCpuEvent,
    /// How often the driver signaled it.
    pub signals: u64,
}

/// Every CPU event, and what drivers did wrong with them.
#[derive(Default)]
pub(crate) struct CpuEvents {
    last: u64,
    pub events: BTreeMap<DxgCpuEvent, CpuEvent>,
    of_handle: BTreeMap<(ProcessId, Handle), DxgCpuEvent>,
    /// Those that were set in this step.
    set: Vec<DxgCpuEvent>,
    /// Events of guests that drivers set in this step.
    set_in_guests: Vec<(ProcessId, EventId)>,
    /// What drivers did against their contract, by all calls of theirs.
    pub violations: u64,
}

impl CpuEvents {
    /// A step begins.
    #[inline]
    pub fn begin_step(&mut self) {
        self.set.clear();
        self.set_in_guests.clear();
    }
}

impl<M: Miniport> Kernel<M> {
    /// Events that drivers set in the last step by a guest's own name for them (guest-event mode).
    pub fn guest_events_set(&self) -> &[(ProcessId, EventId)] {
        &self.cpu_events.set_in_guests
    }

    /// A driver did what its contract does not allow: nothing comes of it but a line and a number.
    pub(crate) fn violation(&mut self, adapter: u32, what: &str, effects: &mut Effects) {
        self.cpu_events.violations += 1;
        let text = format!("contract violation by the driver of adapter {adapter}: {what}");
        self.note_host(text, effects);
    }

    /// A DDI failed: its status is the call's. One that fails with success is a violation.
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

    /// Whether CPU events of drivers are there for a process: the system, the guest's kernel and the driver all have
    /// feature 3 (E-9).
    fn require_cpu_events(&self, process: ProcessId, adapter: u32) -> Result<(), Refusal> {
        let feature = FeatureId::KMD_SIGNAL_CPU_EVENT;
        let lacks = if !self.config.features.offers(feature) {
            "the system"
        } else if !self.features_of(process).offers(feature) {
            "the guest's kernel"
        } else if !self.miniport.advertised_features(adapter).contains(&feature) {
            "the driver"
        } else {
            return Ok(());
        };
        refuse(NtStatus::NOT_SUPPORTED, format!("{lacks} has no feature 3 (KMD_SIGNAL_CPU_EVENT)"))
    }

    /// Asks the driver for the CPU event of a new object, if it is to signal it.
    pub(crate) fn begin_cpu_event(
        &mut self,
        process: ProcessId,
        device: u32,
        info: &SyncObjectInfo,
        effects: &mut Effects,
    ) -> Result<Option<DxgCpuEvent>, Refusal> {
        let by_kmd = info.flags.contains(SyncObjectFlags::SIGNAL_BY_KMD);
        let Some(event) = info.event.filter(|_| by_kmd) else { return Ok(None) };
        let adapter = self.devices[device].adapter;
        self.require_cpu_events(process, adapter)?;
        let most = limits::CPU_EVENTS_PER_PROCESS_MAX;
        if self.process(process).cpu_events >= most {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {most} CPU events, the limit"));
        }
        let id = DxgCpuEvent(self.cpu_events.last + 1);
        let create = CreateCpuEvent { device: self.devices[device].kmd, event: id };
        let kmd = match self.miniport.create_cpu_event(adapter, &create) {
            Ok(kmd) => kmd,
            Err(status) => {
                return Err(self.driver_refused(adapter, "DxgkDdiCreateCpuEvent", status, effects));
            }
        };
        self.cpu_events.last = id.0;
        let (handle, signals) = (Handle::NULL, 0);
        let new = CpuEvent { process, adapter, device, handle, event, kmd, signals };
        self.cpu_events.events.insert(id, new);
        self.process_mut(process).cpu_events += 1;
        self.devices[device].cpu_events.insert(id);
        Ok(Some(id))
    }

    /// The object has its handle.
    pub(crate) fn name_cpu_event(&mut self, id: Option<DxgCpuEvent>, process: ProcessId, handle: Handle) {
        if let Some(id) = id
            && let Some(event) = self.cpu_events.events.get_mut(&id)
        {
            event.handle = handle;
            self.cpu_events.of_handle.insert((process, handle), id);
        }
    }

    /// The CPU event of the object that a process created under this handle.
    pub(crate) fn cpu_event(&self, process: ProcessId, handle: Handle) -> Option<&CpuEvent> {
        let id = self.cpu_events.of_handle.get(&(process, handle))?;
        self.cpu_events.events.get(id)
    }

    /// A handle ends, and with it the CPU event that was created with it.
    pub(crate) fn end_cpu_event_of(&mut self, process: ProcessId, handle: Handle, effects: &mut Effects) {
        if let Some(id) = self.cpu_events.of_handle.get(&(process, handle)).copied() {
            self.end_cpu_event(id, effects);
        }
    }

    /// `DxgkDdiDestroyCpuEvent`.
    pub(crate) fn end_cpu_event(&mut self, id: DxgCpuEvent, effects: &mut Effects) {
        let Some(event) = self.cpu_events.events.get(&id) else { return };
        let CpuEvent { process, adapter, device, handle, kmd, .. } = *event;
        self.cpu_events.of_handle.remove(&(process, handle));
        self.with_miniport(effects, |miniport, _, callbacks| {
            miniport.destroy_cpu_event(adapter, kmd, callbacks);
        });
        self.cpu_events.events.remove(&id);
        self.process_mut(process).cpu_events -= 1;
        self.devices[device].cpu_events.remove(&id);
    }

    /// A device ends: its driver hears of its CPU events and of itself, in the order that the policy says.
    pub(crate) fn end_cpu_events_and_kmd_device(&mut self, device: u32, effects: &mut Effects) {
        let (adapter, kmd) = (self.devices[device].adapter, self.devices[device].kmd);
        let order = self.config.policy.cpu_event_of_device;
        if order == CpuEventOfDevice::EndsAfter {
            self.end_kmd_device(adapter, kmd, effects);
        }
        for id in core::mem::take(&mut self.devices[device].cpu_events) {
            self.end_cpu_event(id, effects);
        }
        if order == CpuEventOfDevice::EndsBefore {
            self.end_kmd_device(adapter, kmd, effects);
        }
    }

    /// The adapter stops (EVT-030).
    pub(crate) fn end_cpu_events_on(&mut self, adapter: u32, effects: &mut Effects) {
        let here = self.cpu_events.events.iter().filter(|(_, event)| event.adapter == adapter);
        let events: Vec<DxgCpuEvent> = here.map(|(id, _)| *id).collect();
        for id in events {
            self.end_cpu_event(id, effects);
        }
    }

    /// `DxgkCbSignalEvent`.
    pub(crate) fn driver_signals(&mut self, adapter: u32, signal: SignalEvent, effects: &mut Effects) {
        let target = match self.signaled(adapter, &signal) {
            Ok(target) => target,
            Err(why) => {
                let text = format!("DxgkCbSignalEvent of event {:#x}: {why}", signal.event);
                self.violation(adapter, &text, effects);
                return;
            }
        };
        match target {
            Target::CpuEvent(id) => {
                let Some(event) = self.cpu_events.events.get_mut(&id) else { return };
                event.signals += 1;
                let (process, event) = (event.process, event.event);
                if !self.cpu_events.set.contains(&id) {
                    self.cpu_events.set.push(id);
                    self.wake(process, event, NtStatus::SUCCESS, effects);
                }
            }
            Target::GuestEvent(process, event) => {
                self.cpu_events.set_in_guests.push((process, event));
                self.wake(process, event, NtStatus::SUCCESS, effects);
            }
        }
    }

    /// What a signal is about, or what is wrong with it.
    fn signaled(&self, adapter: u32, signal: &SignalEvent) -> Result<Target, String> {
        let SignalEvent { process, event, cpu_event_object, reserved, at_interrupt } = *signal;
        if at_interrupt {
            return Err("an interrupt service routine may not: IRQL <= DISPATCH_LEVEL".into());
        }
        if reserved != 0 {
            return Err(format!("Reserved is {reserved:#x} and must be 0"));
        }
        match (cpu_event_object, process) {
            (true, Some(KmdProcess(process))) => {
                Err(format!("hDxgkProcess is {process:#x}: with CpuEventObject it must be 0"))
            }
            (true, None) => {
                let known = self.cpu_events.events.get(&DxgCpuEvent(event));
                match known.filter(|known| known.adapter == adapter) {
                    Some(_) => Ok(Target::CpuEvent(DxgCpuEvent(event))),
                    None => Err("the adapter has no CPU event of this hDxgCpuEvent, or no more".into()),
                }
            }
            (false, None) => Err("neither CpuEventObject nor hDxgkProcess is given".into()),
            (false, Some(process)) => self.guest_event(adapter, process, event),
        }
    }

    /// Guest-event mode: an event by the number that a guest process, or one of the host, gave its driver (EVT-019,
    /// E-14).
    fn guest_event(&self, adapter: u32, process: KmdProcess, event: u64) -> Result<Target, String> {
        let known = self.guests.processes.get(&process).filter(|(_, of)| *of == adapter);
        let Some((owner, _)) = known else {
            return Err(format!("hDxgkProcess {:#x} is no process of this adapter, or no more", process.0));
        };
        match self.process_kind(*owner) {
            _ if event == 0 => Err("hEvent is NULL".into()),
            ProcessKind::VirtualMachineWorker { .. } => {
                Err("the worker process of a VM has no events".into())
            }
            ProcessKind::Host | ProcessKind::VirtualMachine { .. } => {
                Ok(Target::GuestEvent(*owner, EventId(event)))
            }
        }
    }

    /// CPU events that the table has of a process.
    pub(crate) fn cpu_events_of(&self, process: ProcessId) -> u32 {
        self.cpu_events.events.values().filter(|event| event.process == process).count() as u32
    }

    /// What the tables of CPU events say differently.
    pub(crate) fn cpu_events_miscounted(&self) -> Option<&'static str> {
        let CpuEvents { events, of_handle, .. } = &self.cpu_events;
        let is_whole = |(id, event): (&DxgCpuEvent, &CpuEvent)| {
            let names_it = of_handle.get(&(event.process, event.handle)) == Some(id);
            let owner = self.processes.get(&event.process);
            let handle = owner.is_some_and(|owner| owner.find_sync_object(event.handle).is_some());
            let device = self.devices.get(event.device).is_some_and(|one| one.cpu_events.contains(id));
            names_it && handle && device && !self.stopped_adapters.contains(&event.adapter)
        };
        let of_devices: usize = self.devices.iter().map(|(_, device)| device.cpu_events.len()).sum();
        let of_processes: usize = self.processes.values().map(|process| process.cpu_events).sum();
        let counts = [of_handle.len(), of_devices, of_processes];
        let agree = counts.iter().all(|count| *count == events.len()) && events.iter().all(is_whole);
        (!agree).then_some("the CPU events of drivers")
    }
}

/// What a signal sets.
enum Target {
    CpuEvent(DxgCpuEvent),
    GuestEvent(ProcessId, EventId),
}
