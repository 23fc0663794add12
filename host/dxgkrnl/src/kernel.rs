//! The kernel value: its tables, and the one entrance.
//!
//! ```text
//! handle(now, input)
//!   engines move on to `now`                      (ddi callbacks: stores, interrupts)
//!   the input is applied                          adapter.rs sync.rs wait.rs vidsch.rs
//!   queues that became runnable run               vidsch, until none is left
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{Call, Handle, NtStatus, Reply, ShareToken, limits};

use crate::bugcheck::Bugcheck;
use crate::ddi::{Callback, Miniport};
use crate::effects::{Answer, Effects, FenceStore, HostEvent, Note};
use crate::handles::HandleTable;
use crate::native::{NativeFences, NewFence};
use crate::planted::PlantedBug;
use crate::policy::RefusedOneWay;
use crate::process::{Local, Process};
use crate::slab::Slab;
use crate::sync::{Open, SyncObject};
use crate::vidsch::{Broadcast, Context, HwQueue, InFlight, Queue};
use crate::wait::{Wait, WaitId};
use crate::{Config, Input, Nanos, ProcessId, VmId};

/// A call that is refused: the status for the guest, the reason for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: NtStatus,
    pub why: String,
}

pub(crate) fn refuse<T>(status: NtStatus, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { status, why: why.into() })
}

/// Refusal with STATUS_INVALID_PARAMETER, by far the commonest.
pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T, Refusal> {
    refuse(NtStatus::INVALID_PARAMETER, why)
}

/// A call that the model has no behaviour for yet.
fn not_modelled(what: &str) -> Called {
    refuse(NtStatus::NOT_SUPPORTED, format!("{what} is not modelled yet"))
}

pub(crate) type Called = Result<Reply, Refusal>;

/// A device: what a process does on one adapter.
pub(crate) struct Device {
    pub process: ProcessId,
    pub handle: Handle,
    pub adapter: u32,
    pub state: d3dkmt::DeviceExecutionState,
    /// Contexts and fences that die with the device.
    pub children: BTreeSet<Handle>,
}

/// The model of dxgkrnl over a miniport. See the crate's documentation for its laws.
pub struct Kernel<M: Miniport> {
    pub(crate) config: Config,
    pub(crate) miniport: M,
    pub(crate) now: Nanos,
    /// Counts the calls of `handle`: what was stored in this one can be stored over.
    pub(crate) step: u64,
    pub(crate) vms: BTreeMap<VmId, String>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) devices: Slab<Device>,
    pub(crate) contexts: Slab<Context>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) objects: Slab<SyncObject>,
    pub(crate) opens: Slab<Open>,
    pub(crate) waits: BTreeMap<WaitId, Wait>,
    pub(crate) waits_begun: u64,
    pub(crate) broadcasts: Slab<Broadcast>,
    /// Global (shared) handles of legacy objects.
    pub(crate) globals: HandleTable<u32>,
    pub(crate) shares: BTreeMap<ShareToken, crate::sync::Share>,
    pub(crate) in_flight: InFlight,
    /// Queues that may be able to go on.
    pub(crate) runnable: VecDeque<u32>,
    /// Adapters that are gone for their users, by ordinal.
    pub(crate) stopped_adapters: BTreeSet<u32>,
    /// Adapters that never started, and why.
    pub(crate) start_failures: BTreeMap<u32, String>,
    pub(crate) bugcheck: Option<Bugcheck>,
    pub(crate) hw_queues: Slab<HwQueue>,
    /// Hardware queues by the object of their progress fence.
    pub(crate) progress_fences: BTreeMap<u32, u32>,
    /// When suspends that are not acknowledged are overdue, and their contexts.
    pub(crate) suspend_deadlines: BTreeSet<(Nanos, u32)>,
    /// Adapters on their way to D3, and whether they are there.
    pub(crate) powered_down: BTreeMap<u32, bool>,
    pub(crate) native: NativeFences,
    pub(crate) planted: Option<PlantedBug>,
    callbacks: Vec<Callback>,
}

impl<M: Miniport> Kernel<M> {
    pub fn new(config: Config, mut miniport: M) -> Self {
        miniport.start(&config);
        let start_failures = crate::start::failures(&config);
        Kernel {
            config,
            miniport,
            now: 0,
            step: 0,
            vms: BTreeMap::new(),
            processes: BTreeMap::new(),
            devices: Slab::default(),
            contexts: Slab::default(),
            queues: Slab::default(),
            objects: Slab::default(),
            opens: Slab::default(),
            waits: BTreeMap::new(),
            waits_begun: 0,
            broadcasts: Slab::default(),
            globals: HandleTable::new(limits::HANDLES_PER_PROCESS_MAX),
            shares: BTreeMap::new(),
            in_flight: InFlight::default(),
            runnable: VecDeque::new(),
            stopped_adapters: start_failures.keys().copied().collect(),
            start_failures,
            bugcheck: None,
            hw_queues: Slab::default(),
            progress_fences: BTreeMap::new(),
            suspend_deadlines: BTreeSet::new(),
            powered_down: BTreeMap::new(),
            native: NativeFences::default(),
            planted: None,
            callbacks: Vec::new(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When [`Input::Deadline`] is next due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        [self.miniport.next_deadline(), self.suspend_deadline()].into_iter().flatten().min()
    }

    /// Applies one input. `effects` is added to, never read. Time does not go back: an earlier `now`
    /// counts as the latest one seen.
    pub fn handle(&mut self, now: Nanos, input: Input, effects: &mut Effects) {
        self.now = self.now.max(now);
        self.step += 1;
        if self.miniport.next_deadline().is_some_and(|due| due <= self.now) {
            self.with_miniport(effects, |miniport, now, callbacks| miniport.deadline(now, callbacks));
            self.run_queues(effects);
        }
        self.suspends_due(effects);
        self.apply(input, effects);
        self.run_queues(effects);
    }

    fn apply(&mut self, input: Input, effects: &mut Effects) {
        match input {
            Input::VmAttached { vm, name } => {
                self.vms.insert(vm, name);
            }
            Input::VmDetached { vm } => {
                self.vms.remove(&vm);
                let of_vm = |(id, process): (&ProcessId, &Process)| (process.vm == vm).then_some(*id);
                let gone: Vec<ProcessId> = self.processes.iter().filter_map(of_vm).collect();
                for process in gone {
                    self.end_process(process, effects);
                }
            }
            Input::MemoryChanged { vm } => self.store_again(vm, effects),
            Input::ProcessAttached { process, vm, pid, name } => {
                self.processes.insert(process, Process::new(vm, pid, name));
            }
            Input::FenceMemoryAdded { process, slots } => {
                if let Some(state) = self.processes.get_mut(&process) {
                    let had_status = state.slots.status().is_some();
                    state.slots.add(slots);
                    if !had_status {
                        self.store_status(process, effects);
                    }
                }
            }
            Input::Call { process, request, call } if self.planted.is_some() => {
                self.call_wrongly(process, request, call, effects);
            }
            Input::Call { process, request, call } => self.call(process, request, call, effects),
            Input::ProcessGone { process } => self.end_process(process, effects),
            Input::Deadline => {}
            Input::Fault(fault) => self.fault(fault, effects),
            Input::SystemTime { .. } => {}
            Input::DoorbellRung { process, queue, last_queued, buffers } => {
                self.doorbell_rung(process, queue, last_queued, buffers, effects);
            }
        }
    }

    pub(crate) fn call(&mut self, process: ProcessId, request: u64, call: Call, effects: &mut Effects) {
        let one_way_device = if request == 0 { self.device_of_call(process, &call) } else { None };
        let result = if self.processes.contains_key(&process) {
            self.dispatch(process, call, effects)
        } else {
            invalid("the process is not attached")
        };
        let (status, reply) = match result {
            Ok(reply) => (reply.status(), reply),
            Err(Refusal { status, why }) => {
                effects.notes.push(Note { process: Some(process), text: format!("{status}: {why}") });
                if let Some(device) = one_way_device {
                    self.stop_device_of_one_way(device, effects);
                }
                (status, Reply::None)
            }
        };
        if request != 0 {
            effects.answers.push(Answer { process, request, status, reply });
        }
    }

    fn dispatch(&mut self, process: ProcessId, call: Call, effects: &mut Effects) -> Called {
        match call {
            Call::EnumAdapters { capacity } => self.enum_adapters(process, capacity),
            Call::OpenAdapterFromLuid { luid } => self.open_adapter_from_luid(process, luid),
            Call::CloseAdapter { adapter } => self.close_adapter(process, adapter, effects),
            Call::QueryAdapterInfo { adapter, kind, data } => {
                self.query_adapter_info(process, adapter, kind, data)
            }
            Call::CreateDevice { adapter, flags } => self.create_device(process, adapter, flags),
            Call::DestroyDevice { device } => self.destroy_device(process, device, effects),
            Call::GetDeviceState { device, state_type } => self.device_state(process, device, state_type),
            Call::CreateContextVirtual { device, node_ordinal, engine_affinity, flags, .. } => {
                self.create_context(process, device, node_ordinal, engine_affinity, flags)
            }
            Call::DestroyContext { context } => self.destroy_context(process, context, effects),
            Call::CreateSynchronizationObject { device, info, legacy } => {
                self.create_sync_object(process, device, &info, legacy, effects)
            }
            Call::DestroySynchronizationObject { object } => {
                self.destroy_sync_object(process, object, effects)
            }
            Call::SignalFromCpu { device, objects, values, flags } => {
                self.signal_from_cpu(process, device, &objects, &values, flags, effects)
            }
            Call::WaitFromCpu { device, objects, values, flags, event } => {
                self.wait_from_cpu(process, device, &objects, &values, flags, event)
            }
            Call::CancelWait { event } => self.cancel_wait(process, event),
            Call::SignalFromGpu { contexts, signal, flags } => {
                self.signal_from_gpu(process, &contexts, signal, flags)
            }
            Call::WaitFromGpu { context, objects, values } => {
                self.wait_from_gpu(process, context, &objects, &values)
            }
            Call::SubmitCommand { contexts, private_data, .. } => {
                self.submit_command(process, &contexts, private_data)
            }
            Call::ShareObjects { objects, desired_access, name, token } => {
                self.share_objects(process, &objects, desired_access, name, token)
            }
            Call::OpenSyncObject { device, token, flags, engine_affinity, legacy: _ } => {
                self.open_sync_object(process, device, token, flags, engine_affinity, effects)
            }
            Call::CloseShare { token } => self.close_share(process, token, effects),
            Call::WaitFromGpuLegacy { context, objects, fence_value } => {
                let values = alloc::vec![fence_value; objects.len()];
                self.wait_from_gpu(process, context, &objects, &values)
            }
            Call::OpenSynchronizationObject { .. }
            | Call::OpenNtHandleFromName { .. }
            | Call::CreateKeyedMutex { .. }
            | Call::OpenKeyedMutex { .. }
            | Call::OpenKeyedMutexFromNtHandle { .. }
            | Call::DestroyKeyedMutex { .. }
            | Call::AcquireKeyedMutex { .. }
            | Call::ReadKeyedMutex { .. }
            | Call::ReleaseKeyedMutex { .. } => not_modelled("sharing"),
            Call::CreatePagingQueue { .. }
            | Call::DestroyPagingQueue { .. }
            | Call::ReserveGpuVirtualAddress { .. }
            | Call::MapGpuVirtualAddress { .. }
            | Call::FreeGpuVirtualAddress { .. }
            | Call::UpdateGpuVirtualAddress { .. } => not_modelled("paging"),
            hardware @ (Call::CreateHwQueue { .. }
            | Call::DestroyHwQueue { .. }
            | Call::SubmitCommandToHwQueue { .. }
            | Call::SubmitSignalToHwQueue { .. }
            | Call::SubmitWaitToHwQueue { .. }
            | Call::CreateNativeFence { .. }
            | Call::OpenNativeFence { .. }
            | Call::CreateDoorbell { .. }
            | Call::ConnectDoorbell { .. }
            | Call::DestroyDoorbell { .. }
            | Call::NotifyWorkSubmission { .. }) => self.dispatch_hardware(process, hardware, effects),
            Call::SetContextPriority { .. }
            | Call::ContextPriority { .. }
            | Call::SetProcessPriorityClass { .. }
            | Call::ProcessPriorityClass
            | Call::MarkDeviceAsError { .. } => not_modelled("scheduling"),
        }
    }

    fn dispatch_hardware(&mut self, process: ProcessId, call: Call, effects: &mut Effects) -> Called {
        match call {
            Call::CreateHwQueue { context, flags, private_data: _ } => {
                self.create_hw_queue(process, context, flags, effects)
            }
            Call::DestroyHwQueue { queue } => self.destroy_hw_queue(process, queue, effects),
            Call::SubmitCommandToHwQueue { queue, progress_fence_id, private_data, .. } => {
                self.submit_to_hw_queue(process, queue, progress_fence_id, private_data)
            }
            Call::SubmitSignalToHwQueue { queues, objects, values, flags } => {
                self.signal_hw_queues(process, &queues, &objects, &values, flags)
            }
            Call::SubmitWaitToHwQueue { queue, objects, values } => {
                self.wait_in_hw_queue(process, queue, &objects, &values)
            }
            Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => {
                let new = NewFence { initial_value, native_type, flags, engine_affinity };
                self.create_native_fence(process, device, new, effects)
            }
            Call::OpenNativeFence { device, token, flags, engine_affinity } => {
                self.open_native_fence(process, device, token, flags, engine_affinity, effects)
            }
            Call::CreateDoorbell { queue } => self.create_doorbell(process, queue, effects),
            Call::ConnectDoorbell { queue } => self.connect_doorbell(process, queue, effects),
            Call::DestroyDoorbell { queue } => self.destroy_doorbell(process, queue, effects),
            Call::NotifyWorkSubmission { queue } => self.notify_work_submission(process, queue, effects),
            _ => not_modelled("this call"),
        }
    }

    /// Runs a DDI and works off what it asked for.
    pub(crate) fn with_miniport(
        &mut self,
        effects: &mut Effects,
        ddi: impl FnOnce(&mut M, Nanos, &mut Vec<Callback>),
    ) {
        let mut callbacks = core::mem::take(&mut self.callbacks);
        ddi(&mut self.miniport, self.now, &mut callbacks);
        for callback in callbacks.drain(..) {
            self.callback(callback, effects);
        }
        self.callbacks = callbacks;
    }

    /// Everything a process has ends, in the order of its handles; nothing stays behind.
    fn end_process(&mut self, id: ProcessId, effects: &mut Effects) {
        let Some(process) = self.processes.get(&id) else { return };
        let waits: Vec<WaitId> = process.waits.values().copied().collect();
        for wait in waits {
            self.end_wait(wait, effects);
        }
        self.abandon_user_mode_queues(id, effects);
        for handle in self.process(id).handles_where(|local| matches!(local, Local::Device(_))) {
            let _ = self.destroy_device(id, handle, effects);
        }
        for handle in self.process(id).handles_where(|local| matches!(local, Local::Sync(_))) {
            let _ = self.destroy_sync_object(id, handle, effects);
        }
        self.end_shares_of(id, effects);
        self.processes.remove(&id);
        // Nobody is left to hear of it. What is stored from here on finds its stores elsewhere.
        self.step += 1;
        effects.stores.retain(|store| store.process != id);
        effects.events.retain(|event| event.process != id);
    }

    /// Stores how many devices of a process are not ACTIVE, if it has memory.
    pub(crate) fn store_status(&self, process: ProcessId, effects: &mut Effects) {
        if let Some(state) = self.processes.get(&process)
            && let Some(slot) = state.slots.status()
        {
            effects.stores.push(FenceStore { process, slot, value: state.devices_stopped });
        }
    }

    /// The VM's memory was mapped anew: every value is stored once more.
    fn store_again(&mut self, vm: VmId, effects: &mut Effects) {
        for (id, _) in self.processes.iter().filter(|(_, process)| process.vm == vm) {
            self.store_status(*id, effects);
        }
        for (_, open) in self.opens.iter() {
            let Some(slot) = open.slot else { continue };
            if self.processes.get(&open.process).is_some_and(|process| process.vm == vm) {
                let value = self.objects[open.object].value;
                effects.stores.push(FenceStore { process: open.process, slot, value });
            }
        }
        for (id, queue) in self.hw_queues.iter() {
            if self.processes.get(&queue.process).is_some_and(|process| process.vm == vm) {
                self.store_doorbell(id, effects);
            }
        }
    }

    /// The device that a one-way call is about, for its error to appear on.
    fn device_of_call(&self, process: ProcessId, call: &Call) -> Option<u32> {
        let context = match call {
            Call::SignalFromGpu { contexts, .. } | Call::SubmitCommand { contexts, .. } => {
                *contexts.first()?
            }
            Call::WaitFromGpu { context, .. } => *context,
            Call::SubmitSignalToHwQueue { queues, .. } => *queues.first()?,
            Call::SubmitCommandToHwQueue { queue, .. } | Call::SubmitWaitToHwQueue { queue, .. } => *queue,
            _ => return None,
        };
        match self.processes.get(&process)?.handles.get(context)? {
            Local::Context(context) => Some(self.contexts[*context].device),
            Local::HwQueue(queue) => Some(self.contexts[self.hw_queues[*queue].context].device),
            _ => None,
        }
    }

    fn stop_device_of_one_way(&mut self, device: u32, effects: &mut Effects) {
        match self.config.policy.refused_one_way {
            RefusedOneWay::NoteOnly => {}
            RefusedOneWay::StopsDevice => {
                let (process, handle) = (self.devices[device].process, self.devices[device].handle);
                self.stop_devices(&[device], effects);
                let text = format!("device {handle} is stopped: a one-way call on it was refused");
                self.note(process, text, effects);
            }
        }
    }

    pub(crate) fn note(&self, process: ProcessId, text: String, effects: &mut Effects) {
        effects.notes.push(Note { process: Some(process), text });
    }

    pub(crate) fn wake(
        &self,
        process: ProcessId,
        event: d3dkmt::EventId,
        status: NtStatus,
        effects: &mut Effects,
    ) {
        effects.events.push(HostEvent { process, event, status });
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        self.processes.get(&id).expect("calls are dispatched for attached processes only")
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).expect("calls are dispatched for attached processes only")
    }
}
