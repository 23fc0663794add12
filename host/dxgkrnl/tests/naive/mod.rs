//! A second, naive model of the whole kernel, to be read as a specification. It states each rule in the simplest way,
//! over lists that it searches from end to end. It was written from the rules (`FEN-..`, `F-..`, `SCH-..`, `TDR-..`
//! and `W-..`) and shares no code with the kernel, except the call and status types of `d3dkmt`.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the state; processes, devices and adapters, and their ends |
//! | `objects.rs` | creation and destruction of synchronization objects |
//! | `sharing.rs` | NT handles: creation, names, opens, closing |
//! | `sync_files.rs` | sync files |
//! | `queued.rs` | mutexes, semaphores and CPU notifications in queues |
//! | `keyed.rs` | keyed mutexes |
//! | `waits.rs` | CPU signals and waits; effects of a new value |
//! | `packets.rs` | contexts and their queued packets |
//! | `engines.rs` | engines and the timing of their work |
//! | `hardware.rs` | hardware queues, their progress fences and packets |
//! | `arrivals.rs` | adapters that start again |
//! | `cpu_events.rs` | CPU notifications that a driver signals |
//! | `memory.rs` | memory of the device: creation, opens, locks |
//! | `native.rs` | native fences: opens, several adapters, notification of hardware |
//! | `pause.rs` | paused VMs |
//! | `paging.rs` | paging queues and the address spaces behind them |
//! | `lost.rs` | timeouts, and the effects of a lost device |
//!
//! It does not predict two things, because no rule does:
//!
//! - **names**: it uses the handles, slots and GPU addresses of the kernel's answer, after a check that they are free;
//! - **which of several errors** a call is refused for: it accepts any of them.
//!
//! Nothing is ever removed from the lists. An ended item is marked as ended, and its number is not reused.

mod arrivals;
mod cpu_events;
mod engines;
mod hardware;
mod keyed;
mod lost;
mod memory;
mod native;
mod objects;
mod packets;
mod paging;
mod pause;
mod queued;
mod shares;
mod sharing;
mod sync_files;
mod waits;

use std::collections::BTreeSet;

use d3dkmt::{Call, DeviceExecutionState, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F};

pub use cpu_events::CpuEvent;
pub use engines::Engine;
pub use hardware::{ADVANCED_NODE, BASIC_NODE};
pub use keyed::{Acquire, KeyedMutex, KeyedOpen};
pub use objects::{Kind, Object, Open};
pub use packets::{Context, Later};
pub use paging::{PAGE_BYTES, PAGING_NODE, PAGING_NS, PagingQueue, Range};
use queued::{MutexOwner, Take};
pub use sharing::Share;
pub use waits::{Owner, Wait};

const IP: NtStatus = NtStatus::INVALID_PARAMETER;

/// Result of a call: success with this reply, or refusal with one of these statuses.
pub type Verdict = Result<Reply, Vec<NtStatus>>;

/// Policies where the documents leave a choice, as the kernel under test is configured.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// F-57: a queued signal below the value, without AllowFenceRewind.
    pub lower_gpu_signal_applies: bool,
    /// FEN-058: how a wait ends when its fence is destroyed.
    pub destroyed_wait: NtStatus,
    /// Observed with D3D12: destroying a fence's last handle releases all of its waits, also those in queues.
    pub destroyed_releases_queued: bool,
    /// GPV-016: a refused one-way call stops its device.
    pub refused_one_way_stops: bool,
    /// F-78: a mutex is released when its owner ends.
    pub abandoned_mutex_freed: bool,
    /// F-78: any context's signal releases a mutex.
    pub foreign_mutex_release: bool,
    /// F-79: a signal beyond the maximum count stops its device.
    pub semaphore_overflow_stops: bool,
    /// F-66: signals of a poisoned fence have no effect.
    pub poison_is_sticky: bool,
    /// F-61: a device error without a reset poisons fences as well.
    pub faults_poison: bool,
    /// F-58, F-41: a queued wait observes values from when its queue reaches it, not from when it is queued.
    pub waits_look_at_head: bool,
    /// FEN-026, F-45: a CPU signal takes effect after its answer.
    pub cpu_signal_after_answer: bool,
    /// DestroyContext waits for the work of the context, and fails if that owns a mutex.
    pub destroyed_context_waits: bool,
    /// TdrLevel 3 if true, else 0: no timeout detection.
    pub timeouts: bool,
}

/// A process of a VM.
pub struct Process {
    pub id: u32,
    pub vm: u32,
    pub ended: bool,
}

/// A device of a process on an adapter.
pub struct Device {
    pub process: u32,
    pub handle: Handle,
    pub adapter: usize,
    pub state: DeviceExecutionState,
    pub ended: bool,
}

/// An item that ends with a device.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Open(usize),
    Context(usize),
    PagingQueue(usize),
}

/// A set event and the status of its wait.
pub type Wake = (u32, u64, NtStatus);

/// The model's state.
pub struct Naive {
    pub rules: Rules,
    /// The last call waits; its answer comes with a later step.
    pub call_waits: bool,
    /// Answers of calls that waited: the process and the status.
    late: Vec<(u32, NtStatus)>,
    /// Adapters that have native fences.
    native: Vec<usize>,
    pub now: u64,
    pub processes: Vec<Process>,
    pub devices: Vec<Device>,
    pub contexts: Vec<Context>,
    pub objects: Vec<Object>,
    pub opens: Vec<Open>,
    pub shares: Vec<Share>,
    /// Sync files that became ready since the last check: VM and token.
    ready: Vec<(u32, ShareToken)>,
    pub waits: Vec<Wait>,
    pub signals: Vec<packets::Signal>,
    /// Queued waits that begin when their queue reaches them.
    pub later: Vec<Later>,
    /// Answered CPU signals that take effect at the next step.
    answered: Vec<(usize, u64)>,
    pub takes: Vec<Take>,
    /// Those of `takes` that wait in line, in order of arrival.
    line: Vec<usize>,
    pub keyed: Vec<KeyedMutex>,
    pub keyed_opens: Vec<KeyedOpen>,
    pub acquires: Vec<Acquire>,
    /// When the system time was last set, and to which value.
    pub system_time: (u64, i64),
    pub engines: Vec<Engine>,
    /// VMs whose work has hung.
    hung: Vec<shares::Hung>,
    /// Stopped adapters (R03).
    pub stopped_adapters: Vec<usize>,
    /// Devices and objects of adapters that were stopped and started since.
    /// Adapters that VMs have lost.
    pub lost_adapters: Vec<(u32, usize)>,
    dead_devices: Vec<usize>,
    dead_objects: Vec<usize>,
    /// Engine writes and their processes, since the last check.
    unseen: Vec<(u32, usize)>,
    pub cpu_events: Vec<CpuEvent>,
    pub memories: Vec<memory::Memory>,
    pub memory_opens: Vec<memory::MemoryOpen>,
    pub paging_queues: Vec<PagingQueue>,
    pub ranges: Vec<Range>,
    /// Native fences whose hardware waits on an adapter are to be checked.
    touched: Vec<(usize, usize)>,
    /// Cross-adapter fences that one adapter's hardware wrote natively; the other adapters are to be notified.
    to_notify: Vec<(usize, Option<usize>)>,
    /// System contexts whose paging buffer has completed.
    paged: Vec<usize>,
    /// Contexts that may be able to proceed, in order.
    able: Vec<usize>,
    /// Engine and queue of each buffer that became ready in the present input.
    heads: Vec<(usize, usize)>,
    /// Engines whose running buffer the present input dropped, and that have other buffers.
    freed: Vec<usize>,
    /// Fences that contexts set in the present input, and whether each signal may lower the value.
    signaled: Vec<(usize, usize, bool)>,
    /// Whether one input ever made buffers of two queues ready for one engine, freed two engines for others, or let two
    /// queues set one fence to values of which the last counts.
    pub order_is_open: bool,
    /// Events set since the last check: those that are not sorted yet, those of paused VMs, and the others.
    pub woken: Vec<Wake>,
    held: Vec<Wake>,
    delivered: Vec<Wake>,
    /// Paused VMs, and since when.
    paused: Vec<(u32, u64)>,
}

impl Naive {
    /// `engines`: adapter, node, and whether it interrupts at each write. `native`: adapters with native fences.
    pub fn new(rules: Rules, engines: &[(usize, u32, bool)], native: &[usize]) -> Self {
        Naive {
            rules,
            native: native.to_vec(),
            now: 0,
            processes: vec![],
            devices: vec![],
            contexts: vec![],
            objects: vec![],
            opens: vec![],
            shares: vec![],
            ready: vec![],
            waits: vec![],
            signals: vec![],
            later: vec![],
            answered: vec![],
            takes: vec![],
            line: vec![],
            keyed: vec![],
            keyed_opens: vec![],
            acquires: vec![],
            system_time: (0, 0),
            engines: engines.iter().map(|engine| Engine::new(*engine)).collect(),
            hung: vec![],
            stopped_adapters: vec![],
            lost_adapters: vec![],
            dead_devices: vec![],
            dead_objects: vec![],
            unseen: vec![],
            cpu_events: vec![],
            memories: vec![],
            memory_opens: vec![],
            paging_queues: vec![],
            ranges: vec![],
            touched: vec![],
            to_notify: vec![],
            paged: vec![],
            able: vec![],
            heads: vec![],
            freed: vec![],
            signaled: vec![],
            order_is_open: false,
            call_waits: false,
            late: vec![],
            woken: vec![],
            held: vec![],
            delivered: vec![],
            paused: vec![],
        }
    }

    pub fn attach(&mut self, process: u32, vm: u32) {
        self.processes.push(Process { id: process, vm, ended: false });
    }

    /// Executes answered CPU signals before any other input.
    pub fn do_answered(&mut self) {
        let answered = std::mem::take(&mut self.answered);
        for at in 0..answered.len() {
            let (object, value) = answered[at];
            self.set(object, value);
            self.answered = answered[at + 1..].to_vec();
            self.end_waits_of_the_dead();
        }
        self.run_contexts();
    }

    /// Executes a call. `kernel_reply` is the kernel's reply, which has the names of new items.
    pub fn call(&mut self, process: u32, one_way: bool, call: &Call, kernel_reply: &Reply) -> Verdict {
        let stoppable = self.device_of_one_way(process, call);
        let verdict = match self.names_dead(process, call) {
            true => Err(vec![
                NtStatus::DEVICE_REMOVED,
                NtStatus::ACCESS_DENIED,
                NtStatus::NOT_SUPPORTED,
                // A sync file of a dead fence is no more a fence than any other.
                NtStatus::OBJECT_TYPE_MISMATCH,
                IP,
            ]),
            false => self.dispatch(process, call, kernel_reply),
        };
        if let (Err(_), Some(device), true) =
            (&verdict, stoppable, one_way && self.rules.refused_one_way_stops)
        {
            self.lose_all(&[device], DeviceExecutionState::STOPPED, false);
        }
        self.run_contexts();
        verdict
    }

    #[expect(clippy::too_many_lines, reason = "a line for each call")]
    fn dispatch(&mut self, process: u32, call: &Call, kernel_reply: &Reply) -> Verdict {
        match call.clone() {
            Call::CreateDevice { .. } => unreachable!("devices come by `create_device`"),
            Call::MarkDeviceAsError { device, reason } => self.mark_device(process, device, reason),
            Call::DestroyDevice { device } => self.destroy_device_of(process, device),
            Call::CreateSynchronizationObject { device, info, legacy } => {
                self.create_object(process, device, &info, legacy, kernel_reply)
            }
            Call::OpenSynchronizationObject { shared_handle } => {
                self.open_global(process, shared_handle, kernel_reply)
            }
            Call::DestroySynchronizationObject { object } => self.destroy_object(process, object),
            Call::ShareObjects { objects, desired_access, name, token } => {
                self.share(process, &objects, desired_access, name, token)
            }
            // Only synchronization objects are shared here.
            Call::OpenNtHandleFromName { name, desired_access, token, sync_object: _ } => {
                self.open_name(process, &name, desired_access, token)
            }
            Call::OpenSyncObject { device, token, flags, .. } => {
                self.open(process, device, token, flags, kernel_reply)
            }
            Call::CreateSyncFile { device, fence, fence_value, token } => {
                self.create_sync_file(process, device, fence, fence_value, token)
            }
            Call::OpenSyncFile { device, token } => self.open_sync_file(process, device, token, kernel_reply),
            Call::WaitSyncFile { context, token } => self.wait_sync_file(process, context, token),
            Call::SignalFromCpu { device, objects, values, flags } => {
                self.signal_from_cpu(process, device, &objects, &values, flags)
            }
            Call::WaitFromCpu { device, objects, values, flags, event } => {
                self.wait_from_cpu(process, device, &objects, &values, flags, event)
            }
            Call::WaitFromGpuLegacy { context, objects, fence_value } => {
                self.wait_from_gpu_legacy(process, context, &objects, fence_value)
            }
            Call::CreateKeyedMutex { initial_value, flags, .. } => {
                let nt = flags.contains(d3dkmt::KeyedMutexFlags::NT_SECURITY_SHARING);
                self.create_keyed(process, initial_value, nt, kernel_reply)
            }
            Call::OpenKeyedMutex { shared_handle, .. } => {
                self.open_keyed(process, shared_handle, kernel_reply)
            }
            Call::DestroyKeyedMutex { mutex } => self.destroy_keyed(process, mutex),
            Call::AcquireKeyedMutex { mutex, key, timeout, event } => {
                self.acquire(process, mutex, key, timeout, event)
            }
            Call::ReadKeyedMutex { mutex } => self.read_keyed(process, mutex),
            Call::ReleaseKeyedMutex { mutex, key, fence_value, .. } => {
                self.release(process, mutex, key, fence_value)
            }
            Call::CancelWait { event } => self.cancel(process, event),
            Call::CreateContextVirtual { device, node_ordinal, flags, .. } => {
                self.create_context(process, device, node_ordinal, flags, kernel_reply)
            }
            Call::CreateNativeFence { device, initial_value, flags, .. } => {
                self.create_native(process, device, initial_value, flags, kernel_reply)
            }
            Call::OpenNativeFence { device, token, flags, .. } => {
                self.open_native(process, device, token, flags, kernel_reply)
            }
            Call::CreatePagingQueue { device, priority, .. } => {
                self.create_paging_queue(process, device, priority, kernel_reply)
            }
            Call::DestroyPagingQueue { queue } => self.destroy_paging_queue(process, queue),
            Call::ReserveGpuVirtualAddress { owner, size, .. } => {
                self.reserve(process, owner, size, kernel_reply)
            }
            Call::MapGpuVirtualAddress { paging_queue, base, size_pages, protection, .. } => {
                self.map(process, paging_queue, (base, size_pages), protection == paging::ZERO, kernel_reply)
            }
            Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } => {
                let waits = flags & paging::DO_NOT_WAIT == 0;
                let fence = (fence, fence_value);
                self.update_addresses(process, (device, context), fence, &operations, waits)
            }
            Call::CreateHwQueue { context, flags, .. } => {
                self.create_hw_queue(process, context, flags, kernel_reply)
            }
            Call::DestroyHwQueue { queue } => self.destroy_hw_queue(process, queue),
            Call::SubmitCommandToHwQueue { queue, progress_fence_id, private_data, .. } => {
                self.submit_to_hw_queue(process, queue, progress_fence_id, &private_data)
            }
            Call::SubmitSignalToHwQueue { queues, objects, values, flags } => {
                self.signal_hw_queues(process, &queues, (&objects, &values), flags)
            }
            Call::SubmitWaitToHwQueue { queue, objects, values } => {
                self.wait_in_hw_queue(process, queue, (&objects, &values))
            }
            Call::CreateAllocation { create } => self.create_memory(process, &create, kernel_reply),
            Call::OpenResource { device, shared_handle, info } => {
                self.open_memory(process, device, shared_handle, info, kernel_reply)
            }
            Call::Lock { device, allocation, .. } => self.lock_memory(process, device, allocation),
            Call::Unlock { device, allocation } => self.unlock_memory(process, device, allocation),
            Call::DestroyAllocation { device, resource, allocations, .. } => {
                self.destroy_memory(process, device, resource, &allocations)
            }
            Call::DestroyContext { context } => self.destroy_context_of(process, context),
            Call::SignalFromGpu { contexts, signal, flags } => {
                self.signal_from_gpu(process, &contexts, &signal, flags)
            }
            Call::WaitFromGpu { context, objects, values } => {
                self.wait_from_gpu(process, context, &objects, &values)
            }
            Call::SubmitCommand { contexts, private_data, .. } => {
                self.submit(process, &contexts, &private_data)
            }
            other => unreachable!("no operation makes {other:?}"),
        }
    }

    pub fn create_device(&mut self, process: u32, adapter: usize, kernel_reply: &Reply) -> Verdict {
        if self.stopped_adapters.contains(&adapter) || self.lacks(process, adapter) {
            return Err(vec![NtStatus::DEVICE_REMOVED]);
        }
        let Reply::Device(handle) = *kernel_reply else { return Ok(Reply::Device(Handle::NULL)) };
        let state = DeviceExecutionState::ACTIVE;
        self.devices.push(Device { process, handle, adapter, state, ended: false });
        Ok(Reply::Device(handle))
    }

    pub fn device(&self, process: u32, handle: Handle) -> Option<usize> {
        let mine = |device: &Device| !device.ended && device.process == process && device.handle == handle;
        self.devices.iter().position(mine)
    }

    fn destroy_device_of(&mut self, process: u32, handle: Handle) -> Verdict {
        let device = self.device(process, handle).ok_or(vec![IP])?;
        self.end_device(device);
        Ok(Reply::None)
    }

    /// TDR-037: GENERIC 0 and DRIVER_ERROR 1.
    fn mark_device(&mut self, process: u32, handle: Handle, reason: u32) -> Verdict {
        let device = self.device(process, handle).filter(|_| reason <= 1).ok_or(vec![IP])?;
        self.lose(device, DeviceExecutionState::RESET, self.rules.faults_poison);
        Ok(Reply::None)
    }

    /// Fences and contexts end with their device, in handle order; legacy objects belong to the process.
    fn end_device(&mut self, device: usize) {
        let mut ends = vec![];
        for (number, open) in self.opens.iter().enumerate() {
            if !open.ended && open.device == Some(device) && !self.is_paging_fence(number) {
                ends.push((open.handle, End::Open(number)));
            }
        }
        for (number, context) in self.contexts.iter().enumerate() {
            let is_own = context.hardware.is_none() && context.system.is_none();
            if !context.ended && context.device == device && is_own {
                ends.push((context.handle, End::Context(number)));
            }
        }
        for (number, queue) in self.paging_queues.iter().enumerate() {
            if !queue.ended && queue.device == device {
                ends.push((queue.handle, End::PagingQueue(number)));
            }
        }
        ends.sort();
        for (_, end) in ends {
            match end {
                End::Context(number) => self.end_context(number),
                End::PagingQueue(number) => self.end_paging_queue(number),
                // Progress fences ended with their hardware queues.
                End::Open(number) if self.opens[number].ended => {}
                End::Open(number) => self.end_open(number),
            }
        }
        self.devices[device].ended = true;
        self.end_memory_of(device);
        self.end_cpu_events_of_device(device);
        self.free_mutexes_of(MutexOwner::Device(device));
    }

    /// Ends a process and all of its items. No client is left to notify.
    pub fn end_process(&mut self, process: u32) {
        for wait in &mut self.waits {
            wait.over |= matches!(wait.owner, Owner::Cpu { process: owner, .. } if owner == process);
        }
        for acquire in &mut self.acquires {
            acquire.over |= acquire.process == process;
        }
        let of_process = |device: &Device| !device.ended && device.process == process;
        let devices = (0..self.devices.len()).filter(|number| of_process(&self.devices[*number]));
        for device in devices.collect::<Vec<_>>() {
            self.end_device(device);
        }
        for open in 0..self.opens.len() {
            if !self.opens[open].ended && self.opens[open].process == process {
                self.end_open(open);
            }
        }
        for open in 0..self.keyed_opens.len() {
            if !self.keyed_opens[open].ended && self.keyed_opens[open].process == process {
                self.end_keyed_open(open);
            }
        }
        self.end_ranges_of(process);
        for one in &mut self.processes {
            one.ended |= one.id == process;
        }
        for wakes in [&mut self.woken, &mut self.held, &mut self.delivered] {
            wakes.retain(|(owner, ..)| *owner != process);
        }
        self.late.retain(|(owner, _)| *owner != process);
        self.run_contexts();
    }

    pub fn end_vm(&mut self, vm: u32) {
        for number in 0..self.processes.len() {
            if self.processes[number].vm == vm && !self.processes[number].ended {
                self.end_process(self.processes[number].id);
            }
        }
        self.end_shares_of(vm);
        self.forget_pause(vm);
        self.lost_adapters.retain(|(of, _)| *of != vm);
        self.hung.retain(|hung| !hung.is_of(vm));
        self.engines.iter_mut().for_each(|engine| engine.forget_vm(vm));
        let is_live = |id: u32| self.processes.iter().any(|process| process.id == id && !process.ended);
        let woken = std::mem::take(&mut self.woken);
        self.woken = woken.into_iter().filter(|(owner, ..)| is_live(*owner)).collect();
    }

    /// Stops a device (TDR-030). A device that stopped earlier keeps its state.
    fn put_into(&mut self, device: usize, state: DeviceExecutionState) {
        if self.devices[device].state == DeviceExecutionState::ACTIVE {
            self.devices[device].state = state;
        }
    }

    /// Stops the adapter (FEN-095, TDR-031, TDR-032, F-67): devices stop, CPU waits end, work is dropped.
    pub fn stop_adapter(&mut self, adapter: usize) {
        if self.stopped_adapters.contains(&adapter) {
            return;
        }
        self.stopped_adapters.push(adapter);
        for device in 0..self.devices.len() {
            if !self.devices[device].ended && self.devices[device].adapter == adapter {
                self.put_into(device, DeviceExecutionState::STOPPED);
                self.end_cpu_events_of_device(device);
            }
        }
        for engine in self.engines.iter_mut().filter(|engine| engine.adapter == adapter) {
            engine.clear();
        }
        for wait in 0..self.waits.len() {
            let held_up = self.is_held_up_by(wait, adapter);
            if !self.waits[wait].over && held_up && !self.waits[wait].owner.is_packet() {
                self.end_wait(wait, NtStatus::DEVICE_REMOVED);
            }
        }
        let mut processes = BTreeSet::new();
        for context in 0..self.contexts.len() {
            let device = self.contexts[context].device;
            if !self.contexts[context].ended && self.devices[device].adapter == adapter {
                self.contexts[context].on_engine = false;
                if let Some(hardware) = &mut self.contexts[context].hardware {
                    hardware.in_flight.clear();
                }
                self.drop_work(context, Some(NtStatus::DEVICE_REMOVED));
                processes.insert(self.contexts[context].process);
            }
        }
        // FEN-025: no interrupt will tell of what its engines have written.
        for process in processes {
            self.evaluate_writes_of(process);
        }
        let crosses = |object: &usize| {
            let object = &self.objects[*object];
            object.adapter == adapter && object.flags.contains(F::CROSS_ADAPTER)
        };
        let crossing: Vec<usize> = (0..self.objects.len()).filter(crosses).collect();
        self.lose_objects(&crossing);
        self.run_contexts();
    }

    /// Expected fence memory: process, slot, value. Slot 0 counts the stopped devices.
    pub fn memory(&self) -> Vec<(u32, u32, u64)> {
        let mut memory = vec![];
        for process in self.processes.iter().filter(|process| !process.ended) {
            let broken = self.devices.iter().filter(|device| {
                !device.ended && device.process == process.id && device.state != DeviceExecutionState::ACTIVE
            });
            memory.push((process.id, 0, broken.count() as u64));
        }
        for open in self.opens.iter().filter(|open| !open.ended) {
            if let Some(slot) = open.slot {
                memory.push((open.process, slot, self.objects[open.object].value));
            }
        }
        memory.sort();
        memory
    }

    /// Number of live objects: those that a handle, an NT handle or a packet names.
    pub fn objects_alive(&self) -> usize {
        (0..self.objects.len()).filter(|object| self.is_alive(*object)).count()
    }

    fn is_alive(&self, object: usize) -> bool {
        self.opens.iter().any(|open| !open.ended && open.object == object)
            || self.shares.iter().any(|share| share.keeps(object))
            || self.signals.iter().any(|signal| signal.holds(object))
            || self.takes.iter().any(|take| !take.over && take.objects.contains(&object))
            || self.waits.iter().any(|wait| wait.holds(object))
            || self.later.iter().any(|later| later.holds(object))
            || self.answered.iter().any(|(signaled, _)| *signaled == object)
    }

    /// Ends CPU waits of fences that no name is left for (F-52).
    fn end_waits_of_the_dead(&mut self) {
        for wait in 0..self.waits.len() {
            let Wait { owner, ref items, over, .. } = self.waits[wait];
            let needs_dead = items.iter().any(|item| !item.reached && !self.is_alive(item.object));
            if !owner.is_packet() && !over && needs_dead {
                self.end_wait(wait, self.rules.destroyed_wait);
            }
        }
    }
}
