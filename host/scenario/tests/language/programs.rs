//! Draws programs by number: every operation, flag, fault, expectation and race that a file can express.

use d3dkmt::query::DriverVersion;
use d3dkmt::{Luid, NtStatus, limits};
use dxgkrnl::{
    AdapterConfig, EngineType, Fault as Hardware, Features, Grant, NodeConfig, Policy, RegistryData,
    RegistryKey, RegistryValue, TargetConfig, TdrConfig, VidSchCaps, VmConfig,
};
use scenario::choose::Random;
use scenario::program::*;

/// Returns a program for these numbers: one for its head, one for each step, one for its race (no race if even).
pub fn program(head: u64, steps: &[u64], race: u64) -> Program {
    let mut drawing = Drawing::new(head);
    for step in steps {
        drawing.random = Random::new(*step);
        drawing.step();
    }
    if race % 2 == 1 {
        drawing.random = Random::new(race);
        drawing.race();
    }
    drawing.program
}

pub struct Drawing {
    pub program: Program,
    pub random: Random,
    /// Whether each process has ended.
    ended: Vec<bool>,
    crashed: Vec<Vm>,
    frozen: Vec<bool>,
    held: Vec<bool>,
    /// The call that each thread is in.
    pub blocked: Vec<Option<Binding>>,
    time: u64,
}

const ODD_VALUES: [u64; 10] =
    [0, 1, 5, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];

impl Drawing {
    fn new(seed: u64) -> Drawing {
        let program = Program::default();
        let random = Random::new(seed);
        let (ended, crashed, frozen, held, blocked) = Default::default();
        let mut drawing = Drawing { program, random, ended, crashed, frozen, held, blocked, time: 0 };
        drawing.head();
        drawing.process();
        drawing
    }

    fn head(&mut self) {
        self.program.title = format!("t{}", self.text());
        for _ in 0..self.below(30) {
            let rule = format!("FEN-{:03}", 1 + self.below(132));
            if !self.program.covers.contains(&rule) {
                self.program.covers.push(rule);
            }
        }
        self.program.tags =
            ["quick", "a-b", "2x"][..self.below(4) as usize].iter().map(|tag| (*tag).into()).collect();
        for backend in Backend::ALL {
            if self.random.one_in(6) {
                let reason = format!("r{}", self.text());
                self.program.not_on.push((backend, reason));
            }
        }
        let first = AdapterConfig::default();
        let adapters = 1 + if self.random.one_in(3) { self.below(limits::ADAPTERS_MAX as u64) } else { 0 };
        let luid = |number: u64| Luid { low: first.luid.low + number as u32, high: 0 };
        self.program.setting.kernel.adapters =
            (0..adapters).map(|number| AdapterConfig { luid: luid(number), ..first.clone() }).collect();
        self.program.setting.kernel.policy = Policy::from_bits(self.below(8) as u32).expect("three switches");
        self.program.setting.async_submission = self.random.one_in(2);
        if self.random.one_in(2) {
            self.hardware();
        }
    }

    /// Draws settings of adapters, engines, targets, features, VMs, the system, TDR and grants.
    fn hardware(&mut self) {
        let random = &mut self.random;
        let kernel = &mut self.program.setting.kernel;
        let which = random.below(kernel.adapters.len() as u64) as usize;
        let adapter = &mut kernel.adapters[which];
        adapter.caps = VidSchCaps::from_bits_truncate(random.number() as u32);
        (adapter.iommu, adapter.io_coherent) = (random.one_in(2), random.one_in(2));
        adapter.hazards = random.one_in(4);
        adapter.physical_adapters = 1 + random.below(32) as u32;
        adapter.paging_node = random.one_in(2).then(|| random.below(6) as u32);
        adapter.targets[0].vsync_ns = 1 + random.below(1 << 40);
        if random.one_in(3) {
            adapter.targets = vec![TargetConfig { id: 3, vsync_ns: 1 }, TargetConfig { id: 0, vsync_ns: 2 }];
        }
        adapter.targets.push(TargetConfig { id: 7, vsync_ns: 8_000_000 });
        if random.one_in(3) {
            adapter.luid = Luid { low: random.number() as u32, high: random.number() as i32 };
            (adapter.vendor, adapter.device) = (random.number() as u32, random.number() as u32);
            (adapter.description, adapter.kmd) = ("an \"adapter\"".into(), "not a word".into());
        }
        if random.one_in(3) {
            let count = 6 + random.below(4);
            let any = |_| NodeConfig::of(*random.pick(&EngineType::ALL).expect("there are some"));
            adapter.nodes = (0..count).map(any).collect();
        }
        let values = [
            RegistryData::Dword(random.number() as u32),
            RegistryData::Qword(random.number()),
            RegistryData::Text("C:\\a \"b\"".into()),
            RegistryData::Binary(vec![0, 10, 255]),
        ];
        let named = |data| RegistryValue { key: RegistryKey::Adapter, name: "a value".into(), data };
        adapter.registry = values.into_iter().take(random.below(5) as usize).map(named).collect();
        let nodes = adapter.nodes.len() as u64;
        let node = &mut adapter.nodes[random.below(nodes) as usize];
        (node.hw_queues, node.signals_at_write) = (random.one_in(2), random.one_in(2));
        (node.ring_buffer_fence_release, node.user_mode_submission) = (random.one_in(2), random.one_in(2));
        node.max_in_flight_hw_queue_buffers = random.below(9) as u32;
        node.doorbells = random.below(9) as u32;
        node.opaque_packet_ns = random.number();
        node.overlap_seed = random.number();
        node.writes_fences = adapter.paging_node.is_some() || random.one_in(2);
        kernel.features = Features::from_bits_truncate(random.number() as u32);
        kernel.tdr = TdrConfig {
            level: random.below(4) as u32,
            delay_ns: random.number(),
            limit_count: random.number() as u32,
            test_mode: random.one_in(2),
            ..TdrConfig::default()
        };
        let ordinal = random.below(kernel.adapters.len() as u64) as u32;
        kernel.adapters[which].paravirtualization = random.one_in(2);
        kernel.adapters[which].virtual_functions = random.below(40) as u32;
        kernel.adapters[which].local_budget_bytes = random.number();
        kernel.adapters[which].non_local_budget_bytes = random.number();
        kernel.adapters[which].wddm_version = 2900 + random.below(400) as u32;
        let new = vm(random, ordinal);
        kernel.vms.push(new);
        (kernel.test_signing, kernel.gpu_virtualization_flags) = (random.one_in(2), random.below(9) as u32);
        // They may force VMs to be secure.
        kernel.vms[0].iommu_isolation |= kernel.vm_refusal("A0").is_some();
        kernel.vms.push(VmConfig { name: "A1".into(), ..VmConfig::default() });
        let granted = ["A1", "A0", "host"].map(String::from).into();
        kernel.grants.push(Grant { name: "a \" name".into(), vms: granted });
        (0..2).for_each(|_| self.vm());
    }

    fn vm(&mut self) {
        let vm = Vm(self.program.vms.len() as u32);
        self.program.vms.push(format!("A{}", vm.0));
        self.push(Action::StartVm(vm));
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    pub fn value(&mut self) -> u64 {
        let odd = *self.random.pick(&ODD_VALUES).expect("there are some");
        if self.random.one_in(2) { odd } else { self.random.number() }
    }

    pub fn value32(&mut self) -> u32 {
        let odd = *self.random.pick(&[0, 1, 34, u32::MAX]).expect("there are some");
        if self.random.one_in(2) { odd } else { self.random.number() as u32 }
    }

    /// Draws flags, some with undefined bits.
    pub fn bits(&mut self, known: u32) -> u32 {
        match self.below(3) {
            0 => 0,
            1 => self.random.number() as u32 & known,
            _ => self.random.number() as u32,
        }
    }

    pub fn text(&mut self) -> String {
        let letters = ['a', ' ', '"', '\\', '#', '$', '\u{e9}', '|', '\'', '-'];
        (0..self.below(8)).map(|_| *self.random.pick(&letters).expect("there are some")).collect()
    }

    pub fn status(&mut self) -> NtStatus {
        let named = *self.random.pick(NtStatus::NAMED).expect("there are some");
        if self.random.one_in(4) { NtStatus(self.random.number() as u32) } else { named }
    }

    fn process(&mut self) {
        let number = self.program.processes.len() as u32;
        if number >= 20 {
            return;
        }
        let vms = self.vms();
        let vm = self.random.pick(&vms).copied();
        let (process, main) = (Process(number), Thread(self.program.threads.len() as u32));
        let name = format!("p{number}");
        self.program.threads.push(ThreadInfo { name: name.clone(), process });
        self.program.processes.push(ProcessInfo { name, vm, main });
        self.ended.push(false);
        self.frozen.push(false);
        self.held.push(false);
        self.blocked.push(None);
        self.push(Action::StartProcess(process));
    }

    /// The VMs that have not crashed.
    fn vms(&self) -> Vec<Vm> {
        (0..self.program.vms.len() as u32).map(Vm).filter(|vm| !self.crashed.contains(vm)).collect()
    }

    fn push(&mut self, action: Action) {
        self.program.steps.push(Step { line: 0, action });
    }

    fn alive(&self) -> Vec<Process> {
        (0..self.ended.len()).filter(|at| !self.ended[*at]).map(|at| Process(at as u32)).collect()
    }

    fn able(&self) -> Vec<Thread> {
        let is_able = |thread: &Thread| {
            let process = self.program.process_of(*thread).index();
            !self.ended[process] && !self.frozen[process] && self.blocked[thread.index()].is_none()
        };
        (0..self.blocked.len() as u32).map(Thread).filter(is_able).collect()
    }

    fn end(&mut self, process: Process) {
        let at = process.index();
        (self.ended[at], self.frozen[at], self.held[at]) = (true, false, false);
    }

    fn step(&mut self) {
        let alive = self.alive();
        let one = self.random.pick(&alive).copied();
        match (self.below(13), one) {
            (0, _) if self.program.vms.len() < 20 => self.vm(),
            (1, _) => self.process(),
            (2, Some(process)) if self.blocked.len() < 40 => {
                let thread = Thread(self.blocked.len() as u32);
                self.program.threads.push(ThreadInfo { name: format!("t{}", thread.0), process });
                self.blocked.push(None);
                self.push(Action::StartThread(thread));
            }
            (3, Some(process)) if self.random.one_in(4) && !self.frozen[process.index()] => {
                self.end(process);
                self.push(Action::Exit(process));
            }
            (4, _) => {
                let units = [1, 1_000, 1_000_000, 1_000_000_000];
                let time = self.below(2000) * self.random.pick(&units).expect("there are some");
                if self.time + time <= scenario::limits::TIME_MAX_NS {
                    self.time += time;
                    self.push(Action::Advance(time));
                }
            }
            (5, Some(process)) => self.fault(process),
            (6 | 7, _) => self.expect(),
            (8, _) if self.random.one_in(2) => {
                let recorded = self.record();
                recorded.into_iter().for_each(|action| self.push(action));
            }
            _ => {
                let able = self.able();
                if let Some(thread) = self.random.pick(&able).copied() {
                    let act = self.act(thread, false);
                    self.push(Action::Act(act));
                }
            }
        }
    }

    fn engine(&mut self) -> Engine {
        let adapter = self.below(self.program.setting.kernel.adapters.len() as u64) as u32;
        let nodes = self.program.setting.kernel.adapters[adapter as usize].nodes.len() as u64;
        Engine { adapter, node: self.below(nodes) as u32 }
    }

    fn fault(&mut self, process: Process) {
        let at = process.index();
        let context = self.own(Kind::Context, self.program.processes[at].main);
        let vm = self.vms();
        let fault = match self.below(22) {
            0 if self.random.one_in(3) => {
                self.end(process);
                Fault::Kill(process)
            }
            1 if !self.frozen[at] => {
                self.frozen[at] = true;
                Fault::Freeze(process)
            }
            2 if self.frozen[at] => {
                self.frozen[at] = false;
                Fault::Thaw(process)
            }
            3 => Fault::Cut(process),
            4 if !self.held[at] => {
                self.held[at] = true;
                Fault::Hold(process)
            }
            5 if self.held[at] => {
                self.held[at] = false;
                Fault::Release(process)
            }
            6 => Fault::Delay(process, self.below(1 << 40)),
            7 => Fault::Reorder,
            8 if !vm.is_empty() => {
                let vm = *self.random.pick(&vm).expect("there are some");
                for at in 0..self.ended.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.end(Process(at as u32));
                    }
                }
                self.crashed.push(vm);
                Fault::CrashVm(vm)
            }
            9 => Fault::Hardware(Hardware::LoseInterrupt { engine: self.engine() }),
            10 => Fault::Hardware(Hardware::Hang { engine: self.engine() }),
            11 => Fault::Hardware(Hardware::StopAdapter { adapter: self.engine().adapter }),
            12 if context.is_some_and(|context| self.can_fill(context)) => {
                Fault::Fill(context.expect("just seen"))
            }
            14 => {
                let (engine, gpu_address) = (self.engine(), self.value());
                Fault::Hardware(Hardware::PageFault { engine, gpu_address, flags: self.bits(0xFF) })
            }
            15 => Fault::Hardware(Hardware::ResetFails { engine: self.engine() }),
            16 => {
                let (adapter, on) = (self.engine().adapter, self.random.one_in(2));
                Fault::Hardware(Hardware::Power { adapter, on })
            }
            17 => Fault::Hardware(Hardware::EngineToF1 { engine: self.engine() }),
            18 => Fault::SetClock(self.below(1 << 40)),
            19 if !vm.is_empty() => {
                let vm = *self.random.pick(&vm).expect("there are some");
                let (adapter, added) = (self.engine().adapter, self.random.one_in(2));
                Fault::VmAdapter { vm, adapter, added }
            }
            20 => {
                let (adapter, version) = (self.engine().adapter, DriverVersion(self.value()));
                Fault::Hardware(Hardware::UpdateDriver { adapter, version })
            }
            21 => Fault::Hardware(Hardware::StartAdapter { adapter: self.engine().adapter }),
            13 => Fault::RestartDaemon,
            _ => return,
        };
        self.push(Action::Fault(fault));
    }

    /// Whether `fill` is legal: the context's process submits, so its first thread must be able to.
    fn can_fill(&self, context: Binding) -> bool {
        let owner = self.program.owner(context);
        let main = self.program.processes[owner.index()].main;
        let at = owner.index();
        !self.ended[at] && !self.frozen[at] && self.blocked[main.index()].is_none()
    }

    pub fn binding(&mut self, fits: impl Fn(&Named) -> bool) -> Option<Binding> {
        let fitting: Vec<u32> = (0..self.program.bindings.len() as u32)
            .filter(|at| fits(&self.program.bindings[*at as usize]))
            .collect();
        self.random.pick(&fitting).copied().map(Binding)
    }

    /// Draws a binding whose process is alive.
    pub fn alive_binding(&mut self, kind: Kind) -> Option<Binding> {
        let (ended, program) = (self.ended.clone(), self.program.clone());
        self.binding(|named| named.kind == kind && !ended[program.process_of(named.thread).index()])
    }

    pub fn handle(&mut self) -> HandleRef {
        match self.binding(|named| named.kind.is_handle()) {
            Some(binding) if !self.random.one_in(6) => HandleRef::Bound(binding),
            _ => HandleRef::Raw(self.value32()),
        }
    }

    pub fn handles(&mut self) -> Vec<HandleRef> {
        let count = 1 + if self.random.one_in(20) { 80 } else { self.below(3) };
        (0..count).map(|_| self.handle()).collect()
    }

    pub fn own(&mut self, kind: Kind, thread: Thread) -> Option<Binding> {
        let process = self.program.process_of(thread);
        let of: Vec<Process> = self.program.threads.iter().map(|thread| thread.process).collect();
        self.binding(|named| named.kind == kind && of[named.thread.index()] == process)
    }

    fn expect(&mut self) {
        let ended = self.ended.clone();
        let of: Vec<usize> = self.program.threads.iter().map(|thread| thread.process.index()).collect();
        let is_alive = |named: &Named| !ended[of[named.thread.index()]];
        let process = Process(self.below(self.program.processes.len() as u64) as u32);
        let (value, status) = (self.value(), self.status());
        let memory = self
            .binding(|named| named.kind == Kind::Register || named.kind == Kind::Object && is_alive(named));
        let call = self.binding(|named| !matches!(named.kind, Kind::Event | Kind::Register | Kind::List));
        let event = self.binding(|named| named.kind == Kind::Event && is_alive(named));
        let device = self.binding(|named| named.kind == Kind::Device && is_alive(named));
        if self.random.one_in(4) {
            let expectation = self.expect_of_lists();
            expectation.into_iter().for_each(|one| self.push(Action::Expect(one)));
            return;
        }
        let expectation = match (self.below(12), memory, call, event, device) {
            (0, Some(object), ..) => Expectation::Value { object, value },
            (11, _, Some(call), ..) => Expectation::Data { call, data: self.pieces(true) },
            (1, _, Some(call), ..) if is_alive(&self.program.bindings[call.index()]) => {
                Expectation::Blocked { call }
            }
            (2, _, Some(call), ..) => {
                for blocked in &mut self.blocked {
                    *blocked = blocked.filter(|other| *other != call);
                }
                Expectation::Returned { call, status }
            }
            (3, _, _, Some(event), _) => {
                let counts = [EventCount::Clear, EventCount::Set, EventCount::Times(value)];
                Expectation::Event { event, count: *self.random.pick(&counts).expect("there are some") }
            }
            (4, _, _, _, Some(device)) => {
                Expectation::DeviceState { device, state: 1 + self.below(7) as u32 }
            }
            (5, ..) => {
                let states = [EngineIs::Idle, EngineIs::Running, EngineIs::Hung];
                let is = *self.random.pick(&states).expect("there are some");
                Expectation::Engine { engine: self.engine(), is }
            }
            (6, ..) => Expectation::Report { text: self.text() },
            (7, ..) => Expectation::NoReport,
            (8, ..) if !ended[process.index()] => Expectation::Messages { process, count: value },
            (9, ..) if !ended[process.index()] => Expectation::Wakes { process, count: value },
            (10, ..) => Expectation::Waits { count: value },
            _ => Expectation::NothingLeft { process: Some(process).filter(|_| value % 2 == 0) },
        };
        self.push(Action::Expect(expectation));
    }

    fn race(&mut self) {
        let threads: Vec<Thread> = self.able().into_iter().take(2 + self.below(3) as usize).collect();
        if threads.len() < 2 {
            return;
        }
        let lengths: Vec<u64> = threads.iter().map(|_| self.below(4)).collect();
        let column = |thread: &Thread| Column { thread: *thread, steps: Vec::new() };
        let mut race = Race { columns: threads.iter().map(column).collect(), ..Race::default() };
        for row in 0..lengths.iter().copied().max().unwrap_or(0) {
            for at in (0..threads.len()).filter(|at| row < lengths[*at]) {
                let act = self.act(threads[at], true);
                race.columns[at].steps.push((0, act));
            }
        }
        race.allowed = self.outcomes();
        race.forbidden = self.outcomes();
        let bindings =
            race.columns.iter().flat_map(|column| &column.steps).filter(|(_, act)| act.binding.is_some());
        // A race needs an outcome, and an outcome needs a term.
        match race.allowed.is_empty() && race.forbidden.is_empty() {
            true => self.program.bindings.truncate(self.program.bindings.len() - bindings.count()),
            false => self.program.race = Some(race),
        }
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let count = 1 + self.below(3);
        let outcomes = (0..count).map(|_| {
            let mut terms: Vec<Term> = Vec::new();
            for _ in 0..1 + self.below(3) {
                let is_new = |term: &Term| terms.iter().all(|other| other.binding() != term.binding());
                if let Some(term) = self.term().filter(is_new) {
                    terms.push(term);
                }
            }
            Outcome { line: 0, terms }
        });
        outcomes.filter(|outcome| !outcome.terms.is_empty()).collect()
    }

    fn term(&mut self) -> Option<Term> {
        let binding =
            self.binding(|named| matches!(named.kind, Kind::Register | Kind::Object | Kind::Call))?;
        let (value, status) = (self.value(), self.status());
        Some(match (self.program.bindings[binding.index()].kind, self.below(3)) {
            (Kind::Register, _) => Term::Register { register: binding, value },
            (Kind::Object, _) => Term::Value { object: binding, value },
            (_, 0) => Term::Status { call: binding, status },
            (_, way) => Term::Asleep { call: binding, asleep: way == 1 },
        })
    }
}

/// Draws a VM with any settings, which may have this adapter.
fn vm(random: &mut Random, ordinal: u32) -> VmConfig {
    VmConfig {
        name: "A0".into(),
        secure: random.one_in(2),
        iommu_isolation: random.one_in(2),
        linux: random.one_in(2),
        escapes: random.one_in(2),
        asynchronous: random.one_in(2),
        memory_bytes: random.number(),
        raised_priorities: random.one_in(2),
        disable_gpu_timeout: random.one_in(2),
        adapters: [None, Some(vec![]), Some(vec![ordinal])][random.below(3) as usize].clone(),
        features: Features::from_bits_truncate(random.number() as u32),
    }
}
