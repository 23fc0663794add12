//! A kernel with one process, driven in virtual time. The scenario checker checks every step: no satisfied waiter
//! sleeps, every wake is justified, each call has one answer, memory matches the kernel's values, and an ended process
//! leaves nothing.
#![allow(dead_code)]

pub mod executed;
pub mod hardware;
pub mod one_of_each;
pub mod scripted;
pub mod session;

use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, EventId, GpuSignal, Handle, Luid, NtStatus, Reply,
    ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo, WaitFromCpuFlags, WaitOutcome, calls, isa,
};
use dxgkrnl::ddi::Miniport;
use dxgkrnl::policy::DestroyedContext;
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, TdrConfig, VmId};
use kmd::SimulatedMiniport;
use scenario::checker::{Checker, InputSummary};

pub const P: ProcessId = ProcessId(1);
pub const OK: NtStatus = NtStatus::SUCCESS;
pub const IP: NtStatus = NtStatus::INVALID_PARAMETER;

pub struct World {
    pub kernel: Kernel,
    pub now: u64,
    pub process: ProcessId,
    /// Effects since the last `take`.
    pub effects: Effects,
    checker: Checker,
    /// The checker follows each step without comparing the kernel's tables: see [`World::filling`].
    filling: bool,
    /// With a planted bug: the checker's findings, which then do not fail the test.
    pub violations: Option<Vec<String>>,
    request: u64,
    next_event: u64,
}

/// A config with which DestroyContext drops what is queued.
pub fn dropping(mut config: Config) -> Config {
    config.policy.destroyed_context = DestroyedContext::AtOnce;
    config
}

impl World {
    pub fn new() -> Self {
        Self::with_config(Config::default())
    }

    pub fn with_config(config: Config) -> Self {
        Self::with_miniport(config, SimulatedMiniport::default())
    }

    pub fn with_miniport(config: Config, miniport: impl Miniport + Send + 'static) -> Self {
        let mut world = World {
            kernel: Kernel::new(config, miniport),
            now: 0,
            process: P,
            effects: Effects::default(),
            checker: Checker::default(),
            filling: false,
            violations: None,
            request: 0,
            next_event: 0,
        };
        world.attach(P);
        world
    }

    /// Fills a table. The checker follows each step and compares the tables once, after the last step, because a
    /// comparison after each step would take minutes.
    pub fn filling<T>(&mut self, fill: impl FnOnce(&mut Self) -> T) -> T {
        self.filling = true;
        let filled = fill(self);
        self.filling = false;
        self.checker.check_tables(&self.kernel);
        self.judge();
        filled
    }

    fn judge(&mut self) {
        let found = self.checker.take_violations();
        match &mut self.violations {
            Some(violations) => violations.extend(found),
            None => assert!(found.is_empty(), "{found:#?}"),
        }
    }

    pub fn attach(&mut self, process: ProcessId) {
        self.input(Input::ProcessAttached { process, vm: VmId::HOST, pid: 100, name: "test".into() });
        self.input(Input::FenceMemoryAdded { process, slots: 64 });
    }

    /// Attaches a process of this VM, which makes the following calls. Attaches the VM as `vm-N` if it is new.
    pub fn guest(&mut self, vm: u32, process: ProcessId) {
        if self.kernel.snapshot().vms.iter().all(|(there, _)| *there != vm) {
            self.input(Input::VmAttached { vm: VmId(vm), name: format!("vm-{vm}") });
        }
        self.input(Input::ProcessAttached { process, vm: VmId(vm), pid: process.0, name: "guest".into() });
        self.input(Input::FenceMemoryAdded { process, slots: 64 });
        self.process = process;
    }

    /// One input, and the backlog that it leaves for later steps.
    pub fn input(&mut self, input: Input) {
        let summary = InputSummary::of(&input);
        self.step(&summary, |kernel, now, effects| kernel.handle(now, input, effects));
        while self.kernel.has_backlog() {
            let summary = InputSummary::of(&Input::Deadline);
            self.step(&summary, |kernel, now, effects| kernel.handle(now, Input::Deadline, effects));
        }
    }

    fn step(&mut self, summary: &InputSummary, step: impl FnOnce(&mut Kernel, u64, &mut Effects)) {
        let mut effects = Effects::default();
        step(&mut self.kernel, self.now, &mut effects);
        match self.filling {
            true => self.checker.follow(summary, &effects, &self.kernel),
            false => self.checker.step(summary, &effects, &self.kernel),
        }
        self.judge();
        self.effects.append(effects);
    }

    /// One synchronous call; exactly one answer is asserted.
    pub fn call(&mut self, call: Call) -> (NtStatus, Reply) {
        self.request += 1;
        let (process, request) = (self.process, self.request);
        self.input(Input::Call { process, request, call });
        let answers = std::mem::take(&mut self.effects.answers);
        assert_eq!(answers.len(), 1, "a call must have exactly one answer");
        assert_eq!((answers[0].process, answers[0].request), (process, request));
        let answer = answers.into_iter().next().unwrap();
        (answer.status, answer.reply)
    }

    /// Makes a call whose answer may come later; returns its request number.
    pub fn begin(&mut self, call: Call) -> u64 {
        self.request += 1;
        let (process, request) = (self.process, self.request);
        self.input(Input::Call { process, request, call });
        request
    }

    /// The answer of a begun call, once, if it has arrived.
    pub fn answered(&mut self, request: u64) -> Option<(NtStatus, Reply)> {
        let at = self.effects.answers.iter().position(|answer| answer.request == request)?;
        let answer = self.effects.answers.remove(at);
        Some((answer.status, answer.reply))
    }

    pub fn status(&mut self, call: Call) -> NtStatus {
        self.call(call).0
    }

    pub fn ok(&mut self, call: Call) -> Reply {
        let (status, reply) = self.call(call.clone());
        assert_eq!(status, NtStatus::SUCCESS, "{call:?}: {:?}", self.effects.notes.last());
        reply
    }

    /// Closes the last descriptor of an NT handle in the VM of [`World::process`].
    pub fn close_nt_handle(&mut self, token: ShareToken) {
        let vm = self
            .kernel
            .snapshot()
            .processes
            .iter()
            .find(|one| one.process == self.process.0)
            .map_or(0, |one| one.vm);
        self.input(Input::NtHandleClosed { vm: VmId(vm), token });
    }

    /// Lets virtual time pass, stopping at each deadline.
    pub fn advance(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(due) = self.kernel.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(Input::Deadline);
        }
        self.now = end;
    }

    pub fn adapter(&mut self) -> Handle {
        match self.ok(Call::EnumAdapters { capacity: 1 }) {
            Reply::Adapters(list) => list[0].handle,
            other => panic!("{other:?}"),
        }
    }

    /// Opens adapters until the process has no memory for another handle of one, which is the smallest charge there is.
    pub fn open_adapters_until_memory_is_full(&mut self) -> Vec<Handle> {
        let mut opened = Vec::new();
        while let (NtStatus::SUCCESS, Reply::Adapters(adapters)) =
            self.call(Call::EnumAdapters { capacity: 1 })
        {
            opened.push(adapters[0].handle);
        }
        opened
    }

    pub fn device(&mut self) -> Handle {
        let adapter = self.adapter();
        match self.ok(Call::CreateDevice { adapter, flags: 0 }) {
            Reply::Device(device) => device,
            other => panic!("{other:?}"),
        }
    }

    /// A device on the adapter of this LUID.
    pub fn device_on(&mut self, luid: Luid) -> Handle {
        let Reply::Adapter(adapter) = self.ok(Call::OpenAdapterFromLuid { luid }) else { panic!() };
        match self.ok(Call::CreateDevice { adapter, flags: 0 }) {
            Reply::Device(device) => device,
            other => panic!("{other:?}"),
        }
    }

    pub fn context(&mut self, device: Handle, node_ordinal: u32) -> Handle {
        self.context_with(device, node_ordinal, CreateContextFlags::empty())
    }

    pub fn context_with(&mut self, device: Handle, node_ordinal: u32, flags: CreateContextFlags) -> Handle {
        let call = calls::create_context(device, node_ordinal, flags);
        match self.ok(call) {
            Reply::Context(context) => context,
            other => panic!("{other:?}"),
        }
    }

    pub fn try_create(&mut self, device: Handle, info: SyncObjectInfo, legacy: bool) -> (NtStatus, Reply) {
        self.call(Call::CreateSynchronizationObject { device, info, legacy })
    }

    pub fn object(&mut self, device: Handle, info: SyncObjectInfo) -> CreatedSyncObject {
        match self.ok(Call::CreateSynchronizationObject { device, info, legacy: false }) {
            Reply::SyncObject(created) => created,
            other => panic!("{other:?}"),
        }
    }

    pub fn fence(&mut self, device: Handle, initial_value: u64) -> CreatedSyncObject {
        self.fence_with(device, initial_value, SyncObjectFlags::empty())
    }

    pub fn fence_with(
        &mut self,
        device: Handle,
        initial_value: u64,
        flags: SyncObjectFlags,
    ) -> CreatedSyncObject {
        match self.ok(calls::create_fence(device, initial_value, flags)) {
            Reply::SyncObject(created) => created,
            other => panic!("{other:?}"),
        }
    }

    /// A shared fence of [`P`], whose device is given, and process 2's device and handle of it.
    pub fn shared_fence(
        &mut self,
        device: Handle,
        flags: SyncObjectFlags,
        opened_with: SyncObjectFlags,
    ) -> (Handle, Handle, Handle) {
        let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let fence = self.fence_with(device, 0, shared | flags).object;
        let token = ShareToken([1; 16]);
        self.ok(share(fence, token));
        self.process = ProcessId(2);
        self.attach(ProcessId(2));
        let other_device = self.device();
        let opened = self.open_with(other_device, token, opened_with);
        self.process = P;
        self.close_nt_handle(token);
        (fence, other_device, opened.object)
    }

    /// Opens the object behind another process's NT handle.
    pub fn open(&mut self, device: Handle, token: ShareToken) -> CreatedSyncObject {
        self.open_with(device, token, SyncObjectFlags::empty())
    }

    pub fn open_with(
        &mut self,
        device: Handle,
        token: ShareToken,
        flags: SyncObjectFlags,
    ) -> CreatedSyncObject {
        let open = Call::OpenSyncObject { device, token, flags, engine_affinity: 0, legacy: false };
        let Reply::SyncObject(opened) = self.ok(open) else { panic!() };
        opened
    }

    pub fn signal(&mut self, device: Handle, object: Handle, value: u64) -> NtStatus {
        self.signal_flags(device, object, value, SignalFlags::empty())
    }

    pub fn signal_flags(
        &mut self,
        device: Handle,
        object: Handle,
        value: u64,
        flags: SignalFlags,
    ) -> NtStatus {
        self.status(Call::SignalFromCpu {
            device,
            objects: vec![object].into(),
            values: vec![value].into(),
            flags,
        })
    }

    /// Begins a CPU wait; returns its event id and whether the kernel registered it.
    pub fn wait(
        &mut self,
        device: Handle,
        items: &[(Handle, u64)],
        any: bool,
    ) -> Result<(EventId, WaitOutcome), NtStatus> {
        self.next_event += 1;
        let event = EventId(self.next_event);
        let flags = if any { WaitFromCpuFlags::WAIT_ANY } else { WaitFromCpuFlags::empty() };
        let (objects, values) = items.iter().copied().unzip();
        match self.call(Call::WaitFromCpu { device, objects, values, flags, event }) {
            (NtStatus::SUCCESS, Reply::Wait(outcome)) => Ok((event, outcome)),
            (status, _) => Err(status),
        }
    }

    /// Begins a wait that must be registered.
    pub fn pending(&mut self, device: Handle, items: &[(Handle, u64)], any: bool) -> EventId {
        let (event, outcome) = self.wait(device, items, any).unwrap();
        assert_eq!(outcome, WaitOutcome::Registered);
        event
    }

    /// Events set since the last call of this function.
    pub fn woken(&mut self) -> Vec<EventId> {
        std::mem::take(&mut self.effects.events)
            .into_iter()
            .filter_map(|event| event.target.event())
            .collect()
    }

    /// Events set since the last call of this function, with their status.
    pub fn ended(&mut self) -> Vec<(EventId, NtStatus)> {
        let events = std::mem::take(&mut self.effects.events);
        events.into_iter().filter_map(|event| Some((event.target.event()?, event.status))).collect()
    }

    /// Notes logged since the last call of this function.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.effects.notes).into_iter().map(|note| note.text).collect()
    }

    /// `D3DKMT_DEVICEEXECUTION_STATE`.
    pub fn execution_state(&mut self, device: Handle) -> u32 {
        match self.ok(Call::GetDeviceState { device, state_type: 1 }) {
            Reply::DeviceState(state) => state,
            other => panic!("{other:?}"),
        }
    }

    /// Values stored since the last call of this function: slot and value.
    pub fn stores(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.effects.stores).into_iter().map(|store| (store.slot, store.value)).collect()
    }

    pub fn submit(&mut self, context: Handle, packets: &[isa::Packet]) -> NtStatus {
        self.status(calls::submit(context, isa::encode(packets)))
    }

    pub fn gpu_signal(&mut self, contexts: &[Handle], object: Handle, value: u64) -> NtStatus {
        self.status(Call::SignalFromGpu {
            contexts: contexts.into(),
            signal: GpuSignal::Monitored { objects: vec![object].into(), values: vec![value].into() },
            flags: SignalFlags::empty(),
        })
    }

    pub fn gpu_wait(&mut self, context: Handle, object: Handle, value: u64) -> NtStatus {
        self.status(calls::gpu_wait(context, object, value))
    }

    /// Attaches another process, which makes the following calls; returns its device.
    pub fn other(&mut self, process: u32) -> Handle {
        self.process = ProcessId(process);
        self.attach(self.process);
        self.device()
    }

    pub fn end_process(&mut self, process: ProcessId) {
        self.input(Input::ProcessGone { process });
        assert_eq!(self.kernel.belongings(process), dxgkrnl::views::Belongings::default());
        assert_eq!(self.kernel.miscounted(), None);
    }

    /// Ends the test: all counts are right and nothing leaks.
    pub fn finish(mut self) {
        assert_eq!(self.kernel.miscounted(), None);
        let processes: Vec<ProcessId> = self.kernel.processes().collect();
        for process in processes {
            self.end_process(process);
        }
        let vms: Vec<u32> = self.kernel.snapshot().vms.iter().map(|(vm, _)| *vm).collect();
        for vm in vms.into_iter().chain([0]) {
            self.input(Input::VmDetached { vm: VmId(vm) });
        }
        let snapshot = self.kernel.snapshot();
        assert!(snapshot.is_empty() && self.kernel.miscounted().is_none(), "{snapshot:?}");
        assert_eq!(self.kernel.next_deadline(), None);
    }

    pub fn value(&self, object: Handle) -> u64 {
        let snapshot = self.kernel.snapshot();
        snapshot.objects.iter().find(|state| state.handle == object).expect("the object lives").value
    }
}

/// Hangs stay because timeout detection is off (TdrLevel 0).
pub fn without_timeouts() -> Config {
    Config { tdr: TdrConfig { level: 0, ..TdrConfig::default() }, ..Config::default() }
}

/// Shares one object without a name, with every right.
pub fn share(object: Handle, token: ShareToken) -> Call {
    calls::share(object, token, None)
}
