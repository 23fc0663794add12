//! A random session from a seed: processes of several VMs attach, make valid and invalid calls, and end.
#![allow(dead_code)]

use d3dkmt::random::Random;
use d3dkmt::{
    Call, CpuEventUsage, CreateContextFlags, EscapeFlags, EventId, GpuSignal, GpuVaOperation, Handle,
    Handles, KeyedMutexFlags, Luid, NtStatus, Reply, RuntimeBuffer, ShareToken, SignalFlags, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType, Values, WaitFromCpuFlags, calls, isa,
};
use dxgkrnl::{Config, Effects, EngineId, Fault, Input, Kernel, ProcessId, VmId};
use kmd::SimulatedMiniport;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub now: u64,
    pub input: Input,
    pub effects: Effects,
}

/// A process's record of its own handles.
struct Guest {
    process: ProcessId,
    vm: VmId,
    adapters: Vec<Handle>,
    devices: Vec<Handle>,
    contexts: Vec<Handle>,
    objects: Vec<Handle>,
    /// Those that are not monitored fences.
    legacy: Vec<Handle>,
    keyed: Vec<Handle>,
    paging_queues: Vec<Handle>,
    gpu_addresses: Vec<u64>,
    stale: Vec<Handle>,
    events: u64,
}

pub struct Session {
    pub kernel: Kernel,
    random: Random,
    now: u64,
    request: u64,
    processes: u32,
    guests: Vec<Guest>,
    tokens: Vec<ShareToken>,
    /// Global handles, of any VM.
    globals: Vec<Handle>,
    /// Inputs to handle before the next random one.
    pending: Vec<Input>,
}

/// Gives steps few work units for most seeds, so that many steps leave a backlog.
pub fn set_units(kernel: &mut Kernel, seed: u64) {
    if let Some(units) = [None, Some(1), Some(3), Some(20)][(seed % 4) as usize] {
        kernel.set_work_units_per_step(units, units);
    }
}

impl Session {
    /// The same session, and most of them in small steps: see [`set_units`].
    pub fn in_small_steps(seed: u64, config: Config) -> Self {
        let mut session = Session::new(seed, config);
        set_units(&mut session.kernel, seed);
        session
    }

    pub fn new(seed: u64, config: Config) -> Self {
        let mut session = Session {
            kernel: Kernel::new(config, SimulatedMiniport::default()),
            random: Random::new(seed),
            now: 0,
            request: 0,
            processes: 0,
            guests: Vec::new(),
            tokens: Vec::new(),
            globals: vec![Handle::NULL],
            pending: Vec::new(),
        };
        for vm in [1, 2] {
            session.pending.push(Input::VmAttached { vm: VmId(vm), name: format!("vm-{vm}") });
        }
        for vm in [1, 1, 2] {
            session.attach(VmId(vm));
        }
        session.pending.reverse();
        session
    }

    fn attach(&mut self, vm: VmId) {
        self.processes += 1;
        let process = ProcessId(self.processes);
        let pid = 1000 + self.processes;
        self.pending.push(Input::ProcessAttached { process, vm, pid, name: format!("program {pid}") });
        self.pending.push(Input::FenceMemoryAdded { process, slots: 64 });
        self.guests.push(Guest {
            process,
            vm,
            adapters: Vec::new(),
            devices: Vec::new(),
            contexts: Vec::new(),
            objects: Vec::new(),
            legacy: Vec::new(),
            keyed: Vec::new(),
            paging_queues: Vec::new(),
            gpu_addresses: vec![0],
            stale: vec![Handle::NULL],
            events: 0,
        });
    }

    /// One input and its effects.
    pub fn step(&mut self) -> Step {
        self.now += match self.random.below(300) {
            // Long enough for a timeout.
            0 => self.random.below(4_000_000_000),
            1..100 => self.random.below(50_000),
            _ => 0,
        };
        let deadline = self.kernel.next_deadline().filter(|due| *due <= self.now);
        let input = match self.pending.pop() {
            Some(input) => input,
            None if deadline.is_some() && self.random.one_in(2) => Input::Deadline,
            None => self.random_input(),
        };
        let mut effects = Effects::default();
        self.kernel.handle(self.now, input.clone(), &mut effects);
        if let Input::Call { process, call, .. } = &input {
            self.learn(*process, call, &effects);
        }
        Step { now: self.now, input, effects }
    }

    fn random_input(&mut self) -> Input {
        let at = self.random.below(self.guests.len() as u64) as usize;
        match self.random.below(400) {
            0 => {
                let guest = self.guests.remove(at);
                self.attach(guest.vm);
                // The new process attaches after this.
                self.pending.reverse();
                Input::ProcessGone { process: guest.process }
            }
            1 => Input::MemoryChanged { vm: self.guests[at].vm },
            2 => Input::FenceMemoryAdded { process: self.guests[at].process, slots: 64 },
            3 => Input::Call { process: ProcessId(99), request: 1, call: Call::EnumAdapters { capacity: 1 } },
            4 => Input::Fault(self.fault()),
            6..16 => Input::NtHandleClosed { vm: self.guests[at].vm, token: self.token() },
            5 => Input::SystemTime { utc_100ns: self.random.below(1 << 20) as i64 },
            _ => {
                let call = self.call(at);
                self.request += 1;
                let request = if self.random.one_in(8) { 0 } else { self.request };
                Input::Call { process: self.guests[at].process, request, call }
            }
        }
    }

    /// Faults, mostly of existing engines; a few sessions stop an adapter.
    fn fault(&mut self) -> Fault {
        let engine =
            EngineId { adapter: self.random.below(20) as u32 / 19, node: self.random.below(7) as u32 };
        match self.random.below(14) {
            0 => Fault::StopAdapter { adapter: self.random.below(2) as u32 },
            1..4 => Fault::Hang { engine },
            4..7 => {
                let flags = [1, 0, 8, 4, 2 | 8, 2 | 4, 2, 0x10][self.random.below(8) as usize];
                Fault::PageFault { engine, gpu_address: self.random.number(), flags }
            }
            7 => Fault::ResetFails { engine },
            8..10 => Fault::ObjectGoesBad { adapter: engine.adapter, usage: self.random.below(3) as u32 },
            _ => Fault::LoseInterrupt { engine },
        }
    }

    /// A handle: mostly a live one of the wanted kind.
    fn pick(&mut self, at: usize, kind: fn(&Guest) -> &Vec<Handle>) -> Handle {
        let guest = &self.guests[at];
        let list = match self.random.below(60) {
            0 => &guest.stale,
            1 => &guest.devices,
            2 => &guest.objects,
            3 => return Handle(self.random.number() as u32),
            _ => kind(guest),
        };
        if list.is_empty() { Handle::NULL } else { list[self.random.below(list.len() as u64) as usize] }
    }

    fn targets(&mut self, at: usize) -> (Handles, Values) {
        let count = if self.random.one_in(20) { self.random.below(40) } else { 1 + self.random.below(3) };
        let objects = (0..count).map(|_| self.pick(at, |guest| &guest.objects)).collect();
        let mut values: Values = (0..count).map(|_| self.random.below(60)).collect();
        if self.random.one_in(30) {
            values.pop();
        }
        (objects, values)
    }

    fn contexts(&mut self, at: usize) -> Handles {
        let count = if self.random.one_in(4) { self.random.below(4) } else { 1 };
        (0..count).map(|_| self.pick(at, |guest| &guest.contexts)).collect()
    }

    fn event(&mut self, at: usize) -> EventId {
        let guest = &mut self.guests[at];
        if self.random.one_in(6) {
            EventId(1 + self.random.below(guest.events + 1))
        } else {
            guest.events += 1;
            EventId(guest.events)
        }
    }

    fn token(&mut self) -> ShareToken {
        if self.tokens.is_empty() || self.random.one_in(2) {
            self.tokens.push(ShareToken([self.random.number() as u8; 16]));
        }
        self.tokens[self.random.below(self.tokens.len() as u64) as usize]
    }

    fn call(&mut self, at: usize) -> Call {
        let guest = &self.guests[at];
        if guest.devices.is_empty() && !guest.adapters.is_empty() {
            return Call::CreateDevice { adapter: guest.adapters[0], flags: 0 };
        }
        match self.random.below(100) {
            _ if self.guests[at].adapters.is_empty() => Call::EnumAdapters { capacity: 34 },
            0..8 => self.create_object(at),
            8..11 => Call::DestroySynchronizationObject { object: self.pick(at, |guest| &guest.objects) },
            11..38 => self.signal(at),
            38..54 => self.wait(at),
            54..57 => Call::CancelWait { event: self.event(at) },
            57..63 => {
                let contexts = self.contexts(at);
                let (objects, values) = self.targets(at);
                let flags = SignalFlags::from_bits_retain(self.random.below(9) as u32 & !2);
                let signal = GpuSignal::Monitored { objects, values };
                Call::SignalFromGpu { contexts, signal, flags }
            }
            63..65 => {
                let (contexts, event) = (self.contexts(at), self.event(at));
                let flags = SignalFlags::ENQUEUE_CPU_EVENT;
                Call::SignalFromGpu { contexts, signal: GpuSignal::CpuEvent { event }, flags }
            }
            65..70 => {
                let context = self.pick(at, |guest| &guest.contexts);
                let (objects, values) = self.targets(at);
                Call::WaitFromGpu { context, objects, values }
            }
            70..82 => {
                let (contexts, private_data) = (self.contexts(at), self.commands(at));
                Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data }
            }
            82..87 => self.legacy_call(at),
            87..93 => self.keyed_call(at),
            _ => self.rare_call(at),
        }
    }

    /// Mutexes and semaphores in queues, mostly.
    fn legacy_call(&mut self, at: usize) -> Call {
        let count = 1 + self.random.below(3);
        let objects = (0..count).map(|_| self.pick(at, |guest| &guest.legacy)).collect();
        let fence_value = self.random.below(20);
        if self.random.one_in(2) {
            let context = self.pick(at, |guest| &guest.contexts);
            return Call::WaitFromGpuLegacy { context, objects, fence_value };
        }
        let signal = GpuSignal::Legacy { objects, fence_value };
        Call::SignalFromGpu { contexts: self.contexts(at), signal, flags: SignalFlags::empty() }
    }

    fn keyed_call(&mut self, at: usize) -> Call {
        let random = self.random.number();
        let (mutex, key) = (self.pick(at, |guest| &guest.keyed), (random >> 8) % 2);
        match random % 12 {
            0 => Call::CreateKeyedMutex {
                initial_value: 0,
                private_data: vec![1; (random >> 16) as usize % 9],
                flags: KeyedMutexFlags::from_bits_retain((random >> 60) as u32 / 8),
            },
            1 | 2 => {
                let buffer = RuntimeBuffer {
                    size: (random >> 16) as u32 % 9,
                    present: random >> 61 != 0,
                    data: vec![2; (random >> 24) as usize % 4],
                };
                Call::OpenKeyedMutex { shared_handle: self.shared_handle(), buffer }
            }
            11 => Call::OpenKeyedMutexFromNtHandle { token: self.token(), buffer: RuntimeBuffer::default() },
            3 | 4 => Call::DestroyKeyedMutex { mutex },
            5 => Call::ReadKeyedMutex { mutex },
            6 | 7 => Call::ReleaseKeyedMutex { mutex, key, fence_value: random, private_data: None },
            _ => {
                let timeout = [None, Some(0), Some(-500), Some(1 << 19)][(random >> 16) as usize % 4];
                Call::AcquireKeyedMutex { mutex, key, timeout, event: self.event(at) }
            }
        }
    }

    fn shared_handle(&mut self) -> Handle {
        let recent = self.globals.len().saturating_sub(6);
        let recent = &self.globals[recent..];
        recent[self.random.below(recent.len() as u64) as usize]
    }

    fn name(&mut self) -> String {
        ["n0", "N0", "n0", "n1", "bad\\name"][self.random.below(5) as usize].into()
    }

    /// Every right mostly, or some.
    fn rights(&mut self) -> u32 {
        let some = [0, 0x2_0000, 0x2_0001, 0x2_0002][self.random.below(4) as usize];
        if self.random.one_in(3) { some } else { d3dkmt::access::SYNC_OBJECT_ALL_ACCESS }
    }

    fn signal(&mut self, at: usize) -> Call {
        let device = self.pick(at, |guest| &guest.devices);
        let (objects, values) = self.targets(at);
        let flags = [SignalFlags::empty(), SignalFlags::ALLOW_FENCE_REWIND, SignalFlags::all()];
        let flags = flags[[0, 0, 1, 1, 1, 1, 1, 2][self.random.below(8) as usize]];
        Call::SignalFromCpu { device, objects, values, flags }
    }

    fn wait(&mut self, at: usize) -> Call {
        let (device, event) = (self.pick(at, |guest| &guest.devices), self.event(at));
        let (objects, values) = self.targets(at);
        let flags = WaitFromCpuFlags::from_bits_retain(u32::from(self.random.one_in(3)));
        Call::WaitFromCpu { device, objects, values, flags, event }
    }

    fn rare_call(&mut self, at: usize) -> Call {
        let random = self.random.number();
        match random % 23 {
            19 | 20 => Call::SetContextPriority {
                context: self.pick(at, |guest| &guest.contexts),
                priority: (random >> 8) as i32 % 9,
                in_process: random >> 63 == 0,
            },
            21 => Call::SetProcessPriorityClass { class: (random >> 8) as u32 % 7 },
            22 if random >> 61 == 0 => Call::MarkDeviceAsError {
                device: self.pick(at, |guest| &guest.devices),
                reason: (random >> 8) as u32 % 3,
            },
            22 => Call::ContextPriority {
                context: self.pick(at, |guest| &guest.contexts),
                in_process: random >> 63 == 0,
            },
            0 => Call::EnumAdapters { capacity: (random >> 8) as u32 % 3 },
            1 => Call::OpenAdapterFromLuid { luid: Luid { low: 0x6770_0001, high: (random >> 63) as i32 } },
            2 if random >> 60 == 0 => Call::CloseAdapter { adapter: self.pick(at, |guest| &guest.adapters) },
            3 => Call::QueryAdapterInfo {
                adapter: self.pick(at, |guest| &guest.adapters),
                kind: [15, 31, 57, 70, 99][(random >> 8) as usize % 5],
                data: vec![0; (random >> 16) as usize % 40],
            },
            4 if random >> 61 == 0 => Call::DestroyDevice { device: self.pick(at, |guest| &guest.devices) },
            5 => Call::CreateDevice { adapter: self.pick(at, |guest| &guest.adapters), flags: 0 },
            6 => Call::GetDeviceState {
                device: self.pick(at, |guest| &guest.devices),
                state_type: random as u32 % 7,
            },
            7 => Call::DestroyContext { context: self.pick(at, |guest| &guest.contexts) },
            8 | 9 => {
                let object = self.pick(at, |guest| &guest.objects);
                let name = if random >> 63 == 0 { Some(self.name()) } else { None };
                let desired_access = self.rights();
                Call::ShareObjects { objects: vec![object], desired_access, name, token: self.token() }
            }
            10 | 11 => Call::OpenSyncObject {
                device: self.pick(at, |guest| &guest.devices),
                token: self.token(),
                flags: SyncObjectFlags::empty(),
                engine_affinity: 0,
                legacy: random >> 61 == 0,
            },
            16 => Call::OpenSynchronizationObject { shared_handle: self.shared_handle() },
            17 | 18 => {
                let (name, desired_access) = (self.name(), self.rights());
                Call::OpenNtHandleFromName { name, desired_access, token: self.token(), sync_object: false }
            }
            12 | 14 => self.escape_call(at, random >> 8),
            13 => self.paging_call(at, random >> 8),
            _ => Call::CreateContextVirtual {
                device: self.pick(at, |guest| &guest.devices),
                node_ordinal: (random >> 8) as u32 % 7,
                engine_affinity: 0,
                flags: CreateContextFlags::empty(),
                client_hint: 0,
                private_data: vec![7; 3],
            },
        }
    }

    /// Mostly known escapes, and among them mostly CPU event usages.
    fn escape_call(&mut self, at: usize, random: u64) -> Call {
        let object = self.pick(at, |guest| &guest.legacy);
        let usage = [(random >> 8) as u32 % 3, 0, 0, 0, 0, 0, 0, 0];
        let word = (random >> 16) as u32;
        let (kind, flags, data) = match random % 16 {
            0..8 => (0, 0x40, CpuEventUsage { object, kmd_cpu_event: random, usage }.encode()),
            8 => (2, 0, (word % 16).to_le_bytes().to_vec()),
            9 => (word % 50, word & 0x1FF, vec![1; word as usize % 60]),
            10 => (0, 0x40, (word % 6).to_le_bytes().repeat(word as usize % 40)),
            11 | 12 => (0, 8, [3, word % 3].map(u32::to_le_bytes).concat()),
            _ => (0, word & 1, [[0; 4], word.to_le_bytes()].concat().repeat(word as usize % 8)),
        };
        let maybe_handle = |handle: Handle, chance: u64| if chance == 0 { handle } else { Handle::NULL };
        Call::Escape {
            adapter: self.pick(at, |guest| &guest.adapters),
            device: maybe_handle(self.pick(at, |guest| &guest.devices), (random >> 48) % 2),
            context: maybe_handle(self.pick(at, |guest| &guest.contexts), (random >> 50) % 8),
            kind,
            flags: EscapeFlags::from_bits_retain(flags),
            data,
        }
    }

    fn paging_call(&mut self, at: usize, random: u64) -> Call {
        let queue = self.pick(at, |guest| &guest.paging_queues);
        let (base, size) = ((random >> 8) % 8 * 0x1_0000, (random >> 12) % 4 * 0x1_0000);
        match random % 8 {
            0 | 1 => Call::CreatePagingQueue {
                device: self.pick(at, |guest| &guest.devices),
                priority: (random >> 8) as i32 % 3,
                physical_adapter: 0,
            },
            2 if random >> 50 == 0 => Call::DestroyPagingQueue { queue },
            3 => Call::ReserveGpuVirtualAddress { owner: queue, base, minimum: 0, maximum: 0, size },
            4 => Call::FreeGpuVirtualAddress { adapter: self.pick(at, |guest| &guest.adapters), base, size },
            5 => Call::UpdateGpuVirtualAddress {
                device: self.pick(at, |guest| &guest.devices),
                context: self.pick(at, |guest| &guest.contexts),
                fence: self.pick(at, |guest| &guest.objects),
                fence_value: (random >> 20) % 40,
                operations: vec![GpuVaOperation { operation: 1, base, size, ..GpuVaOperation::default() }],
                flags: (random >> 30) as u32 % 2,
            },
            _ => calls::map(queue, base, Handle::NULL, (random >> 12) % 20, 4 << ((random >> 30) % 2)),
        }
    }

    fn create_object(&mut self, at: usize) -> Call {
        let random = self.random.number();
        let monitored = !random.is_multiple_of(4);
        let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let flags = match (random >> 8) % 16 {
            0..9 => SyncObjectFlags::empty(),
            9 if !monitored => SyncObjectFlags::SHARED,
            10..13 => shared,
            13 => SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY | shared,
            14 => SyncObjectFlags::NO_SIGNAL,
            _ => SyncObjectFlags::from_bits_retain((random >> 32) as u32),
        };
        let info = SyncObjectInfo {
            object_type: SyncObjectType(if monitored { 5 } else { (random >> 16) as u32 % 9 }),
            flags,
            initial_value: (random >> 24) % 20,
            adapter: self.pick(at, |guest| &guest.adapters),
            time_100ns: (random >> 40) % 200_000,
            max_count: 4,
            initial_count: (random >> 40) as u32 % 4,
            initial_state: random >> 63 == 0,
            event: (random >> 62 == 0).then_some(EventId(1)),
            ..SyncObjectInfo::default()
        };
        let by_kmd =
            info.object_type == SyncObjectType::CPU_NOTIFICATION && !(random >> 20).is_multiple_of(4);
        let info = match by_kmd {
            true => {
                let flags = SyncObjectFlags::SIGNAL_BY_KMD | flags & SyncObjectFlags::SHARED;
                SyncObjectInfo { flags, event: Some(EventId(2)), ..info }
            }
            false => info,
        };
        Call::CreateSynchronizationObject {
            device: self.pick(at, |guest| &guest.devices),
            info,
            legacy: false,
        }
    }

    fn commands(&mut self, at: usize) -> Vec<u8> {
        let addresses = &self.guests[at].gpu_addresses;
        let mut packets = Vec::new();
        for _ in 0..self.random.below(4) {
            packets.push(match self.random.below(30) {
                0 => isa::Packet::Hang,
                1..15 => isa::Packet::Busy { duration_ns: self.random.below(200_000) },
                _ => isa::Packet::FenceWrite {
                    gpu_address: addresses[self.random.below(addresses.len() as u64) as usize],
                    value: self.random.below(60),
                },
            });
        }
        let mut bytes = isa::encode(&packets);
        if self.random.one_in(10) {
            let damaged = self.random.below(bytes.len() as u64) as usize;
            bytes[damaged] ^= self.random.number() as u8;
        }
        bytes
    }

    /// Adds handles from answers, and drops destroyed ones.
    fn learn(&mut self, process: ProcessId, call: &Call, effects: &Effects) {
        let Some(guest) = self.guests.iter_mut().find(|guest| guest.process == process) else { return };
        // Earlier calls may be answered before it.
        let Some(answer) = effects.answers.last() else { return };
        match &answer.reply {
            Reply::Adapters(list) => guest.adapters.extend(list.iter().map(|adapter| adapter.handle)),
            Reply::Adapter(handle) => guest.adapters.push(*handle),
            Reply::Device(handle) => guest.devices.push(*handle),
            Reply::Context(handle) => guest.contexts.push(*handle),
            Reply::PagingQueue { queue, fence } => {
                guest.paging_queues.push(*queue);
                guest.objects.push(fence.object);
            }
            Reply::SyncObject(created) => {
                guest.objects.push(created.object);
                guest.gpu_addresses.push(created.gpu_address);
                if created.slot.is_none() {
                    guest.legacy.push(created.object);
                }
                self.globals.extend(Some(created.shared_handle).filter(|handle| *handle != Handle::NULL));
            }
            Reply::KeyedMutex { mutex, shared_handle, .. } => {
                guest.keyed.push(*mutex);
                self.globals.extend(Some(*shared_handle).filter(|handle| *handle != Handle::NULL));
            }
            _ => {}
        }
        let stale_handle = match call {
            Call::DestroyDevice { device } => *device,
            Call::DestroyContext { context } => *context,
            Call::DestroySynchronizationObject { object } => *object,
            Call::CloseAdapter { adapter } => *adapter,
            Call::DestroyKeyedMutex { mutex } => *mutex,
            // A stopped device accepts no calls: use other devices.
            _ if answer.status == NtStatus::DEVICE_REMOVED => match call {
                Call::SignalFromGpu { contexts, .. } | Call::SubmitCommand { contexts, .. } => {
                    // After a bugcheck a call without contexts answers so, too.
                    let Some(context) = contexts.first() else { return };
                    *context
                }
                Call::WaitFromGpu { context, .. } => *context,
                Call::SignalFromCpu { device, .. }
                | Call::WaitFromCpu { device, .. }
                | Call::CreateContextVirtual { device, .. }
                | Call::CreateSynchronizationObject { device, .. }
                | Call::OpenSyncObject { device, .. } => *device,
                _ => return,
            },
            _ => return,
        };
        if answer.status.is_success() || answer.status == NtStatus::DEVICE_REMOVED {
            let Guest { adapters, devices, contexts, objects, legacy, keyed, .. } = guest;
            for list in [adapters, devices, contexts, objects, legacy, keyed] {
                list.retain(|handle| *handle != stale_handle);
            }
            guest.stale.push(stale_handle);
        }
    }
}

/// The first steps of the session of a seed, and the digest of the state after them.
pub fn run(seed: u64, config: Config, steps: usize) -> (Vec<Step>, u64) {
    run_session(Session::new(seed, config), steps)
}

pub fn run_session(mut session: Session, steps: usize) -> (Vec<Step>, u64) {
    let steps = (0..steps).map(|_| session.step()).collect();
    (steps, session.kernel.snapshot().digest())
}
