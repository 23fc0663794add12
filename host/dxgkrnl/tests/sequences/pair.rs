//! The kernel and the naive model side by side.

use std::collections::BTreeMap;

use d3dkmt::limits::WORK_UNITS_PER_STEP;
use d3dkmt::query::DriverVersion;
use d3dkmt::{Call, EscapeFlags, Handle, Luid, NtStatus, Reply};
use dxgkrnl::policy::{
    AbandonedMutex, CpuSignal, DestroyedContext, DestroyedQueuedWait, DestroyedWait, FaultedDevicePoisons,
    ForeignMutexRelease, GpuWait, LowerGpuSignal, PoisonedFence, RefusedOneWay, SemaphoreOverflow,
};
use dxgkrnl::{
    AdapterConfig, Answer, Config, Effects, EngineType, Fault, Input, Kernel, NodeConfig, Policy, ProcessId,
    TdrConfig, VidSchCaps, VmId,
};
use kmd::SimulatedMiniport;

use super::calls::{pick, token};
use super::ops::Op;
use crate::naive::{Naive, PAGING_NODE, PAGING_NS, Rules};

/// Fence slots of each process: more than any sequence needs.
const SLOTS: u32 = 256;

/// A process's record of every name that it ever got.
pub(super) struct Guest {
    pub(super) id: u32,
    pub(super) adapters: Vec<Handle>,
    pub(super) devices: Vec<Handle>,
    pub(super) contexts: Vec<Handle>,
    pub(super) hw_queues: Vec<Handle>,
    /// Last submitted id of each.
    pub(super) hw_ids: Vec<u64>,
    pub(super) fences: Vec<Handle>,
    pub(super) addresses: Vec<u64>,
    pub(super) paging_queues: Vec<Handle>,
    /// Address ranges that it got.
    pub(super) ranges: Vec<u64>,
    pub(super) legacy: Vec<Handle>,
    pub(super) keyed: Vec<Handle>,
    pub(super) allocations: Vec<Handle>,
    /// The resource of each, or NULL.
    pub(super) resources: Vec<Handle>,
    pub(super) events: u64,
    pub(super) last_handle: Handle,
}

pub struct Pair {
    pub kernel: Kernel,
    pub naive: Naive,
    pub(super) guests: Vec<Guest>,
    pub(super) vms: Vec<u32>,
    pub(super) now: u64,
    request: u64,
    /// Fence memory, from the kernel's stores.
    pub(super) memory: BTreeMap<(u32, u32), u64>,
    pub(super) effects: Effects,
    pub(super) steps_are_small: bool,
    /// Global handles of legacy objects, of keyed mutexes and of resources, of any VM.
    pub(super) globals: Vec<Handle>,
    pub(super) keyed_globals: Vec<Handle>,
    pub(super) memory_globals: Vec<Handle>,
}

pub(super) type Same = Result<(), String>;

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, kernel: T, naive: T) -> Same {
    if kernel == naive {
        Ok(())
    } else {
        Err(format!("{what}: the kernel {kernel:?}, the naive model {naive:?}"))
    }
}

pub(super) fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items
}

fn luid(adapter: usize) -> Luid {
    Luid { low: 100 + adapter as u32, high: 0 }
}

/// Private escape of the simulated driver that asks for signals of a CPU event.
const SIGNAL_EVENT: u32 = 1;
/// Adapters; the last has no native fences.
const ADAPTERS: usize = 3;

/// Each adapter has an engine of the advanced kind and one of the basic kind, and the same again for contexts with
/// hardware queues. Those write the progress fences themselves (SCH-017).
fn config(policy: Policy, timeouts: bool) -> Config {
    let node = |engine_type, signals_at_write, most| NodeConfig {
        engine_type,
        signals_at_write,
        ring_buffer_fence_release: true,
        max_in_flight_hw_queue_buffers: most,
        opaque_packet_ns: PAGING_NS,
        ..NodeConfig::default()
    };
    let without_native_fences = AdapterConfig::default().caps - VidSchCaps::NATIVE_GPU_FENCE;
    let adapter = |number| AdapterConfig {
        caps: if number + 1 < ADAPTERS { AdapterConfig::default().caps } else { without_native_fences },
        luid: luid(number),
        nodes: vec![
            node(EngineType::ThreeD, true, 0),
            node(EngineType::Copy, false, 0),
            node(EngineType::Compute, true, 0),
            node(EngineType::VideoDecode, false, 2),
        ],
        ..AdapterConfig::default()
    };
    let tdr = TdrConfig { level: if timeouts { 3 } else { 0 }, limit_count: 1000, ..TdrConfig::default() };
    Config { adapters: (0..ADAPTERS).map(adapter).collect(), policy, tdr, ..Config::default() }
}

impl Pair {
    /// Two processes of the host and one of a VM; each has a device, two contexts and a shared fence. The host's processes
    /// open each other's fences and a keyed mutex.
    pub fn new(policy: Policy, timeouts: bool) -> Self {
        let rules = Rules {
            lower_gpu_signal_applies: policy.lower_gpu_signal == LowerGpuSignal::Applied,
            destroyed_wait: match policy.destroyed_wait {
                DestroyedWait::Success => NtStatus::SUCCESS,
                DestroyedWait::DeviceRemoved => NtStatus::DEVICE_REMOVED,
            },
            destroyed_releases_queued: policy.destroyed_queued_wait == DestroyedQueuedWait::Released,
            refused_one_way_stops: policy.refused_one_way == RefusedOneWay::StopsDevice,
            destroyed_context_waits: policy.destroyed_context == DestroyedContext::Waits,
            abandoned_mutex_freed: policy.abandoned_mutex == AbandonedMutex::Freed,
            foreign_mutex_release: policy.foreign_mutex_release == ForeignMutexRelease::Releases,
            poison_is_sticky: policy.poisoned_fence == PoisonedFence::Sticky,
            faults_poison: policy.faulted_device_poisons == FaultedDevicePoisons::Poisons,
            timeouts,
            waits_look_at_head: policy.gpu_wait == GpuWait::LooksAtHead,
            cpu_signal_after_answer: policy.cpu_signal == CpuSignal::AfterAnswer,
            semaphore_overflow_stops: policy.semaphore_overflow == SemaphoreOverflow::StopsDevice,
        };
        let nodes = [0, 1, 2, 3, PAGING_NODE];
        let engines = (0..ADAPTERS)
            .flat_map(|adapter| nodes.map(|node| (adapter, node, node != PAGING_NODE && node % 2 == 0)));
        let engines: Vec<_> = engines.collect();
        Pair {
            kernel: Kernel::new(config(policy, timeouts), SimulatedMiniport::default()),
            naive: Naive::new(rules, &engines, &[0, 1]),
            guests: vec![],
            vms: vec![0],
            now: 0,
            request: 0,
            memory: BTreeMap::new(),
            effects: Effects::default(),
            steps_are_small: false,
            globals: vec![],
            keyed_globals: vec![],
            memory_globals: vec![],
        }
    }

    /// Setup of every sequence.
    pub fn prelude() -> Vec<Op> {
        let (mut ops, access) = (vec![], d3dkmt::access::SYNC_OBJECT_ALL_ACCESS);
        for (process, vm) in [0, 0, 1].into_iter().enumerate() {
            ops.push(Op::Attach { vm });
            for node in [0, 1] {
                ops.push(Op::CreateContext { process, device: 0, node });
            }
            ops.push(Op::CreateFence { process, device: 0, value: 0, flags: 0x3 });
            ops.push(Op::Share { process, fence: 0, share: process, access, name: 0 });
        }
        ops.push(Op::CreateKeyed { process: 0, key: 0, nt: false });
        ops.push(Op::OpenKeyed { process: 1, global: 0 });
        ops.push(Op::Open { process: 0, device: 0, share: 1, flags: 0 });
        ops.push(Op::Open { process: 1, device: 0, share: 0, flags: 0 });
        // A native fence open in both processes of the host, in one of them on both adapters.
        ops.push(Op::CreateNative { process: 0, device: 0, value: 0, flags: 0x7 });
        ops.push(Op::Share { process: 0, fence: 2, share: 3, access, name: 0 });
        ops.push(Op::CreateDevice { process: 0, adapter: 1 });
        ops.push(Op::CreateContext { process: 0, device: 1, node: 2 });
        ops.push(Op::CreateHwQueue { process: 0, context: 2, flags: 0 });
        ops.push(Op::OpenNative { process: 0, device: 1, share: 3, flags: 0 });
        ops.push(Op::OpenNative { process: 1, device: 0, share: 3, flags: 0 });
        ops.push(Op::CreatePagingQueue { process: 0, device: 0, priority: 0 });
        for (process, node) in [(0, 2), (1, 3), (2, 3)] {
            ops.push(Op::CreateContext { process, device: 0, node });
            let context = if process == 0 { 3 } else { 2 };
            ops.push(Op::CreateHwQueue { process, context, flags: 0 });
            ops.push(Op::CreateNative { process, device: 0, value: 0, flags: 0 });
        }
        ops
    }

    /// Executes an operation on both models and compares them, as long as the order of their work is the same.
    pub fn step(&mut self, op: &Op) -> Same {
        if self.order_is_open() {
            return Ok(());
        }
        let result = self.apply(op).and_then(|()| self.compare());
        if self.order_is_open() { Ok(()) } else { result }
    }

    /// Whether small steps may have let another queue run first on an engine for which two became ready at once. The wakes
    /// that a step leaves come after the next buffer of the queue that signaled: to others that process looks slower.
    pub fn order_is_open(&self) -> bool {
        self.steps_are_small && self.naive.order_is_open
    }

    /// Closes all NT handles and ends all processes; nothing may be left.
    pub fn finish(&mut self) -> Same {
        for share in 0..8 {
            self.step(&Op::CloseNtHandle { vm: 0, share })?;
        }
        for vm in self.vms.clone() {
            if vm != 0 {
                self.step(&Op::EndVm { vm })?;
            }
            // A step does nothing once the order is open.
            while vm == 0 && !self.order_is_open() && self.guest(0).is_some() {
                self.step(&Op::End { process: 0 })?;
            }
        }
        if self.order_is_open() {
            return Ok(());
        }
        let snapshot = self.kernel.snapshot();
        if !snapshot.is_empty() {
            return Err(format!("something is left: {snapshot:?}"));
        }
        same("objects alive at the end", 0, self.naive.objects_alive())?;
        same("engines idle at the end", self.kernel.engines_idle(), true)?;
        same("deadline at the end", self.kernel.next_deadline(), None)
    }

    /// Limits the kernel's steps to this many work units. Queue heads keep their order, because another order would also
    /// reorder writes of several queues to one fence.
    pub fn in_small_steps(&mut self, units: u32) {
        self.kernel.set_work_units_per_step(units, WORK_UNITS_PER_STEP);
        self.steps_are_small = true;
    }

    fn input(&mut self, input: Input) {
        self.naive.end_waiting_contexts();
        // In both models answered signals come first, then engines. What ends then is cleared away behind the input, or,
        // with small steps, in steps of its own.
        self.naive.begin_input();
        self.naive.do_answered();
        if self.steps_are_small {
            self.naive.end_waiting_contexts();
        }
        self.naive.now = self.now;
        self.naive.catch_up();
        if self.steps_are_small {
            self.naive.end_waiting_contexts();
        }
        self.come_to_now();
        self.kernel.handle(self.now, input, &mut self.effects);
        self.kernel.finish_backlog(&mut self.effects);
    }

    /// With small steps, time advances only after the kernel's backlog is empty.
    fn come_to_now(&mut self) {
        // Answered signals take effect first.
        if self.steps_are_small && self.kernel.next_deadline() == Some(self.kernel.now()) {
            self.kernel.handle(self.kernel.now(), Input::Deadline, &mut self.effects);
            self.kernel.finish_backlog(&mut self.effects);
        }
        let next = |kernel: &Kernel| kernel.next_event().filter(|due| *due > kernel.now());
        while let Some(due) = next(&self.kernel).filter(|due| self.steps_are_small && *due <= self.now) {
            self.kernel.handle(due, Input::Deadline, &mut self.effects);
            self.kernel.finish_backlog(&mut self.effects);
        }
    }

    /// The timeouts that the system's clock has reached are due now, as many as a step has units.
    fn expire_at_once(&mut self) {
        let now = self.kernel.now();
        while self.steps_are_small && self.kernel.next_event() == Some(now) {
            let before = self.effects.events.len();
            self.kernel.handle(now, Input::Deadline, &mut self.effects);
            self.kernel.finish_backlog(&mut self.effects);
            if self.effects.events.len() == before {
                return;
            }
        }
    }

    /// The live process of this number, modulo their count.
    fn guest(&self, process: usize) -> Option<usize> {
        let alive =
            |at: &usize| self.naive.processes.iter().any(|one| one.id == self.guests[*at].id && !one.ended);
        let alive: Vec<usize> = (0..self.guests.len()).filter(alive).collect();
        (!alive.is_empty()).then(|| alive[process % alive.len()])
    }

    fn apply(&mut self, op: &Op) -> Same {
        match op {
            Op::Attach { vm } => return self.attach(*vm),
            Op::EndVm { vm } => {
                self.input(Input::VmDetached { vm: VmId(*vm) });
                self.naive.end_vm(*vm);
                self.vms.retain(|one| one != vm);
                return Ok(());
            }
            Op::CloseNtHandle { vm, share } => {
                self.input(Input::NtHandleClosed { vm: VmId(*vm), token: token(*share) });
                self.naive.nt_handle_closed(*vm, token(*share));
                return Ok(());
            }
            Op::Advance { nanos } => return self.advance(*nanos),
            Op::StopAdapter { adapter } => {
                if *adapter < ADAPTERS {
                    self.input(Input::Fault(Fault::StopAdapter { adapter: *adapter as u32 }));
                    self.naive.stop_adapter(*adapter);
                }
                return Ok(());
            }
            Op::StartAdapter { adapter } => return self.start_adapter(*adapter),
            Op::UpdateDriver { adapter } => return self.update_driver(*adapter),
            Op::VmAdapter { vm, adapter, added } => return self.vm_adapter(*vm, *adapter, *added),
            Op::PauseVm { vm, paused } => {
                self.input(Input::VmPaused { vm: VmId(*vm), paused: *paused });
                match paused {
                    true if self.vms.contains(vm) => self.naive.pause_vm(*vm),
                    true => {}
                    false => self.naive.resume_vm(*vm),
                }
                return Ok(());
            }
            Op::SystemTime { utc_100ns } => {
                self.input(Input::SystemTime { utc_100ns: *utc_100ns });
                self.expire_at_once();
                self.naive.set_system_time(*utc_100ns);
                return Ok(());
            }
            _ => {}
        }
        let Some(at) = self.guest(process_of(op)) else { return Ok(()) };
        if let Op::End { .. } = op {
            let id = self.guests[at].id;
            self.input(Input::ProcessGone { process: ProcessId(id) });
            self.naive.end_process(id);
            return Ok(());
        }
        if let Op::CreateDevice { adapter, .. } = op {
            return self.create_device(at, *adapter);
        }
        if let Op::DriverSignals { object, times, .. } = op {
            return self.driver_signals(at, *object, *times);
        }
        let (call, one_way) = self.call_of(at, op);
        self.call(at, call, one_way)
    }

    /// A process asks its driver to signal one of its CPU events, by the driver's name for it.
    fn driver_signals(&mut self, at: usize, object: usize, times: u32) -> Same {
        let (id, handle) = (self.guests[at].id, pick(&self.guests[at].legacy, object));
        let events = self.kernel.snapshot().cpu_events;
        let Some(event) = events.iter().find(|one| (one.process, one.handle) == (id, handle)) else {
            return Ok(());
        };
        let words = [SIGNAL_EVENT, times].map(u32::to_le_bytes).concat();
        let data = [words, event.kmd.to_le_bytes().to_vec()].concat();
        let (adapter, device) = (self.guests[at].adapters[event.adapter as usize], Handle::NULL);
        let (context, kind, flags) = (Handle::NULL, 0, EscapeFlags::empty());
        let (status, reply) =
            self.call_once(at, Call::Escape { adapter, device, context, kind, flags, data: data.clone() })?;
        self.naive.driver_signals(id, handle, times);
        same("an escape", (status, reply), (NtStatus::SUCCESS, Reply::Escape(data)))
    }

    fn advance(&mut self, nanos: u64) -> Same {
        let end = self.now + nanos;
        loop {
            self.naive.end_waiting_contexts();
            // The kernel's deadline may be earlier, never later.
            let (kernel, naive) = (self.kernel.next_deadline(), self.naive.next_deadline());
            if naive.is_some() && kernel.is_none_or(|kernel| Some(kernel) > naive) {
                same("next deadline", kernel, naive)?;
            }
            let Some(due) = self.kernel.next_deadline().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.input(Input::Deadline);
        }
        self.now = end;
        Ok(())
    }

    fn attach(&mut self, vm: u32) -> Same {
        if !self.vms.contains(&vm) {
            self.vms.push(vm);
            self.input(Input::VmAttached { vm: VmId(vm), name: format!("vm {vm}") });
        }
        let id = self.guests.len() as u32 + 1;
        let process = ProcessId(id);
        self.input(Input::ProcessAttached { process, vm: VmId(vm), pid: id, name: format!("p{id}") });
        self.input(Input::FenceMemoryAdded { process, slots: SLOTS });
        self.naive.attach(id, vm);
        self.guests.push(Guest {
            id,
            adapters: vec![],
            devices: vec![],
            contexts: vec![],
            hw_queues: vec![],
            hw_ids: vec![],
            fences: vec![],
            addresses: vec![],
            paging_queues: vec![],
            ranges: vec![],
            legacy: vec![],
            keyed: vec![],
            allocations: vec![],
            resources: vec![],
            events: 0,
            last_handle: Handle::NULL,
        });
        let at = self.guests.len() - 1;
        for adapter in 0..ADAPTERS {
            let (_, reply) = self.call_once(at, Call::OpenAdapterFromLuid { luid: luid(adapter) })?;
            // A stopped adapter cannot be opened.
            let handle = if let Reply::Adapter(handle) = reply { handle } else { Handle::NULL };
            self.guests[at].adapters.push(handle);
        }
        self.create_device(at, 0)
    }

    /// The adapter starts again, if it was stopped.
    fn start_adapter(&mut self, adapter: usize) -> Same {
        let stopped = self.naive.stopped_adapters.contains(&adapter);
        self.input(Input::Fault(Fault::StartAdapter { adapter: adapter as u32 }));
        self.naive.start_adapter(adapter);
        if stopped { self.open_again(adapter, |_| true) } else { Ok(()) }
    }

    /// A driver's update is a stop and a start.
    fn update_driver(&mut self, adapter: usize) -> Same {
        if adapter >= ADAPTERS {
            return Ok(());
        }
        let (stopped, ordinal) = (self.naive.stopped_adapters.contains(&adapter), adapter as u32);
        let version = DriverVersion(self.now);
        self.input(Input::Fault(Fault::UpdateDriver { adapter: ordinal, version }));
        if stopped {
            return Ok(());
        }
        self.naive.stop_adapter(adapter);
        self.naive.start_adapter(adapter);
        self.open_again(adapter, |_| true)
    }

    /// A VM loses an adapter, or gets it back.
    fn vm_adapter(&mut self, vm: u32, adapter: usize, added: bool) -> Same {
        let order: Vec<(u32, Handle)> =
            self.kernel.snapshot().devices.iter().map(|device| (device.process, device.handle)).collect();
        self.input(Input::VmAdapter { vm: VmId(vm), adapter: adapter as u32, added });
        let is_attached = vm != 0 && self.vms.contains(&vm) && adapter < ADAPTERS;
        let lacks = self.naive.lost_adapters.contains(&(vm, adapter));
        let is_stopped = self.naive.stopped_adapters.contains(&adapter);
        match (is_attached, added) {
            (true, false) if !lacks => {
                self.naive.remove_adapter(vm, adapter, &order);
                Ok(())
            }
            (true, true) if lacks && !is_stopped => {
                self.naive.add_adapter(vm, adapter);
                self.open_again(adapter, |of| of == vm)
            }
            _ => Ok(()),
        }
    }

    /// Handles of an adapter from before answer DEVICE_REMOVED, so each process of these VMs that has the adapter opens it
    /// again.
    fn open_again(&mut self, adapter: usize, of_vm: impl Fn(u32) -> bool) -> Same {
        for at in 0..self.guests.len() {
            let id = self.guests[at].id;
            let mut live = self.naive.processes.iter().filter(|process| process.id == id && !process.ended);
            if live.next().is_none_or(|process| !of_vm(process.vm)) || self.naive.lacks(id, adapter) {
                continue;
            }
            let old = Call::CreateDevice { adapter: self.guests[at].adapters[adapter], flags: 0 };
            if self.guests[at].adapters[adapter] != Handle::NULL {
                same("a device by an old handle", self.call_once(at, old)?.0, NtStatus::DEVICE_REMOVED)?;
            }
            let (_, reply) = self.call_once(at, Call::OpenAdapterFromLuid { luid: luid(adapter) })?;
            let Reply::Adapter(handle) = reply else {
                return Err(format!("p{id} cannot open it: {reply:?}"));
            };
            self.guests[at].adapters[adapter] = handle;
            if self.guests[at].last_handle != Handle::NULL {
                self.guests[at].last_handle = handle;
            }
        }
        Ok(())
    }

    fn create_device(&mut self, at: usize, adapter: usize) -> Same {
        let call = Call::CreateDevice { adapter: self.guests[at].adapters[adapter], flags: 0 };
        if self.guests[at].adapters[adapter] == Handle::NULL {
            return Ok(());
        }
        let (status, reply) = self.call_once(at, call.clone())?;
        let verdict = self.naive.create_device(self.guests[at].id, adapter, &reply);
        self.judge(at, &call, status, &reply, verdict)
    }

    fn call(&mut self, at: usize, call: Call, one_way: bool) -> Same {
        let id = self.guests[at].id;
        if one_way {
            let process = ProcessId(id);
            self.input(Input::Call { process, request: 0, call: call.clone() });
            let _ = self.naive.call(id, true, &call, &Reply::None);
            return same("answers to a one-way call", self.take_answer(0)?, None);
        }
        let answer = self.make_call(at, call.clone())?;
        let reply = answer.as_ref().map_or(&Reply::None, |(_, reply)| reply);
        let verdict = self.naive.call(id, false, &call, reply);
        match (answer, std::mem::take(&mut self.naive.call_waits)) {
            (None, true) => Ok(()),
            (Some((status, reply)), false) => self.judge(at, &call, status, &reply, verdict),
            (answer, waits) => Err(format!("the kernel answers {answer:?}, the naive model waits: {waits}")),
        }
    }

    /// One answer for each call.
    fn call_once(&mut self, at: usize, call: Call) -> Result<(NtStatus, Reply), String> {
        self.make_call(at, call)?.ok_or_else(|| "the call has no answer".into())
    }

    fn make_call(&mut self, at: usize, call: Call) -> Result<Option<(NtStatus, Reply)>, String> {
        self.request += 1;
        let process = ProcessId(self.guests[at].id);
        self.input(Input::Call { process, request: self.request, call });
        self.take_answer(self.request)
    }

    /// The answer to this request, if there is one. The others are late ones, of calls that have waited.
    fn take_answer(&mut self, request: u64) -> Result<Option<(NtStatus, Reply)>, String> {
        let is_own = |answer: &Answer| answer.request == request;
        let own = self.effects.answers.iter().filter(|answer| is_own(answer)).count();
        same("no call has two answers", own > 1, false)?;
        let at = self.effects.answers.iter().position(is_own);
        let answer = at.map(|at| self.effects.answers.remove(at));
        Ok(answer.map(|answer| (answer.status, answer.reply)))
    }

    fn judge(
        &mut self,
        at: usize,
        call: &Call,
        status: NtStatus,
        reply: &Reply,
        verdict: Result<Reply, Vec<NtStatus>>,
    ) -> Same {
        match verdict {
            Ok(expected) => {
                same("status", status, expected.status())?;
                same("reply", reply, &expected)?;
                self.learn(at, reply)
            }
            Err(mistakes) if mistakes.contains(&status) => {
                same("reply of a refused call", reply, &Reply::None)
            }
            Err(mistakes) => {
                Err(format!("status: the kernel {status}, the naive model one of {mistakes:?} for {call:?}"))
            }
        }
    }

    fn learn(&mut self, at: usize, reply: &Reply) -> Same {
        let guest = &mut self.guests[at];
        let handle = match reply {
            Reply::Device(handle) => {
                guest.devices.push(*handle);
                *handle
            }
            Reply::Context(handle) => {
                guest.contexts.push(*handle);
                *handle
            }
            Reply::KeyedMutex { mutex, shared_handle, .. } => {
                guest.keyed.push(*mutex);
                if *shared_handle != Handle::NULL {
                    self.keyed_globals.push(*shared_handle);
                }
                *mutex
            }
            Reply::HwQueue { queue, progress_fence } => {
                guest.hw_queues.push(*queue);
                guest.hw_ids.push(0);
                guest.fences.push(progress_fence.object);
                guest.addresses.push(progress_fence.gpu_address);
                same("handle of a progress fence", progress_fence.object.0, guest.last_handle.0 + 0x40)?;
                guest.last_handle = progress_fence.object;
                *queue
            }
            Reply::PagingQueue { queue, fence } => {
                guest.paging_queues.push(*queue);
                guest.fences.push(fence.object);
                guest.addresses.push(fence.gpu_address);
                same("handle of a paging queue", queue.0, guest.last_handle.0 + 0x40)?;
                guest.last_handle = *queue;
                fence.object
            }
            Reply::GpuVirtualAddress { address, .. } => {
                if !guest.ranges.contains(address) {
                    guest.ranges.push(*address);
                }
                return Ok(());
            }
            Reply::Allocations { resource, shared_handle, allocations, .. } => {
                if *shared_handle != Handle::NULL {
                    self.memory_globals.push(*shared_handle);
                }
                return self.learn_memory(at, *resource, allocations[0]);
            }
            Reply::OpenedResource { resource, allocations, .. } => {
                return self.learn_memory(at, *resource, allocations[0]);
            }
            Reply::SyncObject(created) if created.slot.is_none() => {
                guest.legacy.push(created.object);
                if created.shared_handle != Handle::NULL {
                    self.globals.push(created.shared_handle);
                }
                created.object
            }
            Reply::SyncObject(created) | Reply::OpenedSyncFile { object: created, .. } => {
                guest.fences.push(created.object);
                guest.addresses.push(created.gpu_address);
                created.object
            }
            _ => return Ok(()),
        };
        // W-005, W-006, W-007: each new handle follows the last one, regardless of destroyed and refused ones.
        let guest = &mut self.guests[at];
        let last = std::mem::replace(&mut guest.last_handle, handle);
        if last == Handle::NULL { Ok(()) } else { same("handle", handle.0, last.0 + 0x40) }
    }

    /// W-010: the handle of a resource comes before that of its allocation.
    fn learn_memory(&mut self, at: usize, resource: Handle, allocation: Handle) -> Same {
        let guest = &mut self.guests[at];
        guest.allocations.push(allocation);
        guest.resources.push(resource);
        for handle in [resource, allocation].into_iter().filter(|handle| *handle != Handle::NULL) {
            let last = std::mem::replace(&mut guest.last_handle, handle);
            if last != Handle::NULL {
                same("handle of memory", handle.0, last.0 + 0x40)?;
            }
        }
        Ok(())
    }
}

fn process_of(op: &Op) -> usize {
    match op {
        Op::End { process }
        | Op::CreateDevice { process, .. }
        | Op::DestroyDevice { process, .. }
        | Op::MarkDevice { process, .. }
        | Op::CreateFence { process, .. }
        | Op::DestroyFence { process, .. }
        | Op::Share { process, .. }
        | Op::OpenName { process, .. }
        | Op::Open { process, .. }
        | Op::CreateSyncFile { process, .. }
        | Op::OpenSyncFile { process, .. }
        | Op::WaitSyncFile { process, .. }
        | Op::CreateLegacy { process, .. }
        | Op::DestroyLegacy { process, .. }
        | Op::OpenGlobal { process, .. }
        | Op::DriverSignals { process, .. }
        | Op::LegacySignal { process, .. }
        | Op::LegacyWait { process, .. }
        | Op::CreateKeyed { process, .. }
        | Op::OpenKeyed { process, .. }
        | Op::DestroyKeyed { process, .. }
        | Op::Acquire { process, .. }
        | Op::Release { process, .. }
        | Op::ReadKeyed { process, .. }
        | Op::Signal { process, .. }
        | Op::Wait { process, .. }
        | Op::Cancel { process, .. }
        | Op::CreateContext { process, .. }
        | Op::DestroyContext { process, .. }
        | Op::GpuSignal { process, .. }
        | Op::CpuEvent { process, .. }
        | Op::GpuWait { process, .. }
        | Op::Submit { process, .. }
        | Op::CreateNative { process, .. }
        | Op::OpenNative { process, .. }
        | Op::CreatePagingQueue { process, .. }
        | Op::DestroyPagingQueue { process, .. }
        | Op::Map { process, .. }
        | Op::Update { process, .. }
        | Op::CreateMemory { process, .. }
        | Op::OpenMemory { process, .. }
        | Op::LockMemory { process, .. }
        | Op::UnlockMemory { process, .. }
        | Op::DestroyMemory { process, .. }
        | Op::CreateHwQueue { process, .. }
        | Op::DestroyHwQueue { process, .. }
        | Op::SubmitHw { process, .. }
        | Op::SignalHw { process, .. }
        | Op::WaitHw { process, .. } => *process,
        Op::Attach { .. }
        | Op::EndVm { .. }
        | Op::CloseNtHandle { .. }
        | Op::Advance { .. }
        | Op::StopAdapter { .. }
        | Op::StartAdapter { .. }
        | Op::PauseVm { .. }
        | Op::UpdateDriver { .. }
        | Op::VmAdapter { .. }
        | Op::SystemTime { .. } => 0,
    }
}
