//! Invariants of the kernel in random sessions of valid and invalid calls on hardware queues, doorbells and native fences.

use std::collections::BTreeMap;

use d3dkmt::random::Random;
use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, HwQueueFlags, Reply, ShareToken, SignalFlags, SyncObjectFlags,
    WaitFromCpuFlags, calls, isa,
};
use dxgkrnl::views::{Belongings, WaitingCall};
use dxgkrnl::{AdapterConfig, Config, Effects, EngineId, Fault, Input, Kernel, ProcessId, VidSchCaps, VmId};
use kmd::SimulatedMiniport;
use proptest::prelude::*;

const PROCESSES: u32 = 3;

#[derive(Default, Clone)]
struct Guest {
    devices: Vec<Handle>,
    contexts: Vec<Handle>,
    queues: Vec<Handle>,
    objects: Vec<Handle>,
    addresses: Vec<u64>,
    requests: u64,
}

struct Session {
    kernel: Kernel,
    random: Random,
    now: u64,
    guests: Vec<Guest>,
    events: u64,
}

fn config(seed: u64) -> Config {
    let mut first = AdapterConfig::default();
    let optimized = VidSchCaps::OPTIMIZED_NATIVE_FENCE_SIGNALED_INTERRUPT;
    first.caps.set(optimized, seed & 1 == 0);
    for (at, node) in first.nodes.iter_mut().enumerate() {
        node.doorbells = at as u32 % 3;
        node.max_in_flight_hw_queue_buffers = at as u32 % 4;
        node.ring_buffer_fence_release = seed & 2 == 0;
    }
    let mut second = AdapterConfig { luid: d3dkmt::Luid { low: 9, high: 0 }, ..AdapterConfig::default() };
    second.caps.set(VidSchCaps::NATIVE_GPU_FENCE, seed & 4 == 0);
    Config { adapters: vec![first, second], ..Config::default() }
}

impl Session {
    fn new(seed: u64) -> Self {
        let kernel = Kernel::new(config(seed), SimulatedMiniport::default());
        let guests = vec![Guest::default(); PROCESSES as usize];
        let mut session = Session { kernel, random: Random::new(seed), now: 0, guests, events: 0 };
        session.apply(Input::VmAttached { vm: VmId(1), name: String::new() });
        for process in 1..=PROCESSES {
            session.attach(process);
        }
        session
    }

    fn attach(&mut self, process: u32) {
        let process = ProcessId(process);
        let attached = Input::ProcessAttached { process, vm: VmId(1), pid: 1, name: String::new() };
        self.apply(attached);
        self.apply(Input::FenceMemoryAdded { process, slots: 256 });
    }

    fn apply(&mut self, input: Input) -> Effects {
        let mut effects = Effects::default();
        let is_end = matches!(input, Input::ProcessGone { .. } | Input::VmDetached { .. });
        self.kernel.handle(self.now, input, &mut effects);
        if is_end {
            // Much may be left for later steps.
            self.kernel.finish_backlog(&mut effects);
        }
        effects
    }

    fn pick(&mut self, list: &[Handle]) -> Handle {
        match self.random.below(40) {
            0 => Handle(self.random.number() as u32),
            _ if list.is_empty() => Handle::NULL,
            _ => list[self.random.below(list.len() as u64) as usize],
        }
    }

    fn commands(&mut self, guest: &Guest) -> Vec<u8> {
        let mut packets = Vec::new();
        for _ in 0..self.random.below(5) {
            let gpu_address = match guest.addresses.len() as u64 {
                0 => 0,
                count => guest.addresses[self.random.below(count) as usize],
            };
            let value = self.random.below(40);
            packets.push(match self.random.below(20) {
                0 => isa::Packet::Hang,
                1..6 => isa::Packet::Busy { duration_ns: self.random.below(100_000) },
                6..10 => isa::Packet::FenceWait { gpu_address, value },
                _ => isa::Packet::FenceWrite { gpu_address, value },
            });
        }
        isa::encode(&packets)
    }

    fn targets(&mut self, guest: &Guest) -> (Vec<Handle>, Vec<u64>) {
        let count = 1 + self.random.below(2);
        (0..count).map(|_| (self.pick(&guest.objects), self.random.below(40))).unzip()
    }

    fn input(&mut self) -> Input {
        let at = self.random.below(u64::from(PROCESSES)) as usize;
        let (process, guest) = (ProcessId(at as u32 + 1), self.guests[at].clone());
        let engine = EngineId { adapter: self.random.below(2) as u32, node: self.random.below(6) as u32 };
        let adapter = engine.adapter;
        match self.random.below(300) {
            0 => return Input::ProcessGone { process },
            1 => return Input::Fault(Fault::Hang { engine }),
            2 => return Input::Fault(Fault::LoseInterrupt { engine }),
            3..8 => return Input::Fault(Fault::Power { adapter, on: self.random.one_in(2) }),
            8..12 => return Input::Fault(Fault::EngineToF1 { engine }),
            12 if self.random.one_in(20) => return Input::Fault(Fault::StopAdapter { adapter }),
            13 => return Input::MemoryChanged { vm: VmId(1) },
            14..40 => {
                let queue = self.pick(&guest.queues);
                let buffers = (0..self.random.below(3)).map(|_| self.commands(&guest)).collect();
                let last_queued = self.random.below(40);
                return Input::DoorbellRung { process, queue, last_queued, buffers };
            }
            40..44 => {
                let token = ShareToken([self.random.below(6) as u8; 16]);
                return Input::NtHandleClosed { vm: VmId(1), token };
            }
            _ => {}
        }
        let call = self.call(&guest);
        self.guests[at].requests += 1;
        let request = if self.random.one_in(20) { 0 } else { self.guests[at].requests };
        Input::Call { process, request, call }
    }

    #[expect(clippy::too_many_lines, reason = "a line for each kind of call")]
    fn call(&mut self, guest: &Guest) -> Call {
        let (device, context) = (self.pick(&guest.devices), self.pick(&guest.contexts));
        let queue = self.pick(&guest.queues);
        let number = self.random.number();
        let flags = match number % 4 {
            0 => SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING,
            1 => {
                let cross = SyncObjectFlags::CROSS_ADAPTER;
                SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING | cross
            }
            _ => SyncObjectFlags::empty(),
        };
        let token = ShareToken([(number >> 8) as u8 % 6; 16]);
        match self.random.below(100) {
            _ if guest.devices.is_empty() => Call::CreateDevice { adapter: Handle(0x4000_0080), flags: 0 },
            0..4 => {
                Call::CreateDevice { adapter: Handle(0x4000_0080 + 0x40 * (number as u32 % 2)), flags: 0 }
            }
            4 if number.is_multiple_of(4) => Call::DestroyDevice { device },
            5..12 => calls::create_context(
                device,
                (number >> 16) as u32 % 4,
                CreateContextFlags::from_bits_retain((number >> 20) as u32 & 0x10),
            ),
            12 => Call::DestroyContext { context },
            13..22 => {
                let usual = [0, 0x20, 0x30, 0x2, number as u32 & 0xFF];
                let flags = HwQueueFlags::from_bits_retain(usual[(number >> 16) as usize % 5]);
                Call::CreateHwQueue { context, flags, private_data: Vec::new() }
            }
            22 | 23 => Call::DestroyHwQueue { queue },
            24..38 => {
                let (progress_fence_id, private_data) = (self.random.below(40), self.commands(guest));
                calls::submit_to_hw_queue(queue, progress_fence_id, private_data)
            }
            38..44 => {
                let (objects, values) = self.targets(guest);
                let queues = (0..1 + self.random.below(2)).map(|_| self.pick(&guest.queues)).collect();
                Call::SubmitSignalToHwQueue {
                    queues,
                    objects: objects.into(),
                    values: values.into(),
                    flags: SignalFlags::ALLOW_FENCE_REWIND,
                }
            }
            44..49 => {
                let (objects, values) = self.targets(guest);
                Call::SubmitWaitToHwQueue { queue, objects: objects.into(), values: values.into() }
            }
            49..55 => {
                let native_type = u32::from(number >> 60 == 0);
                let initial_value = (number >> 16) % 10;
                Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity: 0 }
            }
            55..59 => {
                let flags = SyncObjectFlags::empty();
                Call::OpenNativeFence { device, token, flags, engine_affinity: 0 }
            }
            59 | 60 => {
                let flags = SyncObjectFlags::empty();
                Call::OpenSyncObject { device, token, flags, engine_affinity: 0, legacy: false }
            }
            61..65 => calls::share(self.pick(&guest.objects), token, None),
            65..68 => Call::CreateDoorbell { queue, rings: vec![] },
            68..74 => Call::ConnectDoorbell { queue },
            74 => Call::DestroyDoorbell { queue },
            75..78 => Call::NotifyWorkSubmission { queue },
            78..83 => {
                let (objects, values) = self.targets(guest);
                Call::SignalFromCpu {
                    device,
                    objects: objects.into(),
                    values: values.into(),
                    flags: SignalFlags::ALLOW_FENCE_REWIND,
                }
            }
            83..90 => {
                let (objects, values) = self.targets(guest);
                self.events += 1;
                let event = EventId(self.events);
                Call::WaitFromCpu {
                    device,
                    objects: objects.into(),
                    values: values.into(),
                    flags: WaitFromCpuFlags::empty(),
                    event,
                }
            }
            90 => Call::DestroySynchronizationObject { object: self.pick(&guest.objects) },
            91..94 => {
                let (objects, values) = self.targets(guest);
                Call::WaitFromGpu { context, objects: objects.into(), values: values.into() }
            }
            94..98 => {
                let (contexts, private_data) = (vec![context], self.commands(guest));
                Call::SubmitCommand {
                    contexts: contexts.into(),
                    commands: 0,
                    length: 0,
                    flags: 0,
                    private_data,
                }
            }
            _ => Call::EnumAdapters { capacity: 34 },
        }
    }

    fn step(&mut self) -> (Input, Effects) {
        self.now += if self.random.one_in(3) { self.random.below(50_000) } else { 0 };
        let input = self.input();
        let effects = self.apply(input.clone());
        match &input {
            Input::Call { process, .. } => {
                let guest = &mut self.guests[process.0 as usize - 1];
                // A late answer, of a call that has waited for work, has no reply.
                let mut replies = effects.answers.iter().map(|answer| &answer.reply);
                match replies.find(|reply| **reply != Reply::None) {
                    Some(Reply::Device(device)) => guest.devices.push(*device),
                    Some(Reply::Context(context)) => guest.contexts.push(*context),
                    Some(Reply::SyncObject(created)) => {
                        guest.objects.push(created.object);
                        guest.addresses.push(created.gpu_address);
                    }
                    Some(Reply::HwQueue { queue, progress_fence }) => {
                        guest.queues.push(*queue);
                        guest.objects.push(progress_fence.object);
                        guest.addresses.push(progress_fence.gpu_address);
                    }
                    _ => {}
                }
            }
            Input::ProcessGone { process } => {
                assert_eq!(self.kernel.belongings(*process), Belongings::default());
                self.guests[process.0 as usize - 1] = Guest::default();
                self.attach(process.0);
                let call = Call::EnumAdapters { capacity: 34 };
                self.apply(Input::Call { process: *process, request: 1, call });
            }
            _ => {}
        }
        (input, effects)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hardware_calls_keep_the_laws(seed in any::<u64>()) {
        let mut session = Session::new(seed);
        let mut memory = BTreeMap::new();
        for process in 1..=PROCESSES {
            let call = Call::EnumAdapters { capacity: 34 };
            session.apply(Input::Call { process: ProcessId(process), request: 1, call });
        }
        let mut unanswered: BTreeMap<ProcessId, usize> = BTreeMap::new();
        for _ in 0..1500 {
            let (input, effects) = session.step();
            match input {
                Input::Call { process, request, .. } if request != 0 => {
                    *unanswered.entry(process).or_default() += 1;
                }
                Input::ProcessGone { process } => {
                    memory.retain(|(owner, _), _| *owner != process);
                    unanswered.remove(&process);
                }
                _ => {}
            }
            for answer in &effects.answers {
                let calls = unanswered.get_mut(&answer.process).filter(|calls| **calls > 0);
                prop_assert!(calls.is_some(), "{answer:?} answers nothing");
                *calls.unwrap() -= 1;
            }
            if !session.kernel.has_backlog() {
                let mut waiting: BTreeMap<ProcessId, usize> = BTreeMap::new();
                session.kernel.waiting_calls(&mut |WaitingCall { process, request, .. }| {
                    *waiting.entry(process).or_default() += usize::from(request != 0);
                });
                waiting.retain(|_, calls| *calls > 0);
                unanswered.retain(|_, calls| *calls > 0);
                prop_assert_eq!(&unanswered, &waiting);
            }
            memory.extend(effects.stores.iter().map(|store| ((store.process, store.slot), store.value)));
            prop_assert_eq!(session.kernel.miscounted(), None);
            let (kernel, mut unseen) = (&session.kernel, Vec::new());
            kernel.unseen_writes(&mut |object| unseen.push(object));
            // A daemon that resumes from a journal stores these values.
            let mut fence_memory = BTreeMap::new();
            for process in kernel.processes() {
                kernel.fence_memory(process, &mut |slot, value| _ = fence_memory.insert((process, slot), value));
            }
            for (key, value) in &fence_memory {
                // New fence memory is zero.
                prop_assert_eq!(memory.get(key).unwrap_or(&0), value);
            }
            kernel.fences(&mut |fence| {
                if let Some(slot) = fence.slot {
                    assert_eq!(fence_memory.get(&(fence.process, slot)), Some(&fence.value));
                }
            });
            kernel.hw_queues(&mut |queue| {
                if let Some((status, slot)) = queue.doorbell {
                    assert_eq!(fence_memory.get(&(queue.process, slot)), Some(&(status as u64)));
                }
            });
            // A value that reaches more waits than fit a step is seen by the rest in later ones.
            if !kernel.has_backlog() {
                kernel.pending_waits(&mut |wait| {
                    for item in wait.items().filter(|item| !item.satisfied && item.current >= item.value) {
                        assert!(unseen.contains(&item.object), "{:?} {:?}", wait.process, item);
                    }
                });
            }
            kernel.native_fences(&mut |fence| assert!(fence.monitored_value != u64::MAX || {
                let mut waited = false;
                kernel.pending_waits(&mut |wait| {
                    waited |= wait.items().any(|item| !item.satisfied && item.object == fence.object);
                });
                !waited || fence.always_signaled || kernel.snapshot().stopped_adapters.contains(&fence.adapter)
            }, "no MonitoredValue covers this wait: {fence:?}"));
        }
        session.apply(Input::VmDetached { vm: VmId(1) });
        let snapshot = session.kernel.snapshot();
        prop_assert!(snapshot.is_empty(), "{:?}", snapshot);
        prop_assert_eq!(session.kernel.next_deadline(), None);
    }

    #[test]
    fn the_same_hardware_inputs_give_the_same_effects_and_state(seed in any::<u64>()) {
        let mut session = Session::new(seed);
        let mut again = Session::new(seed);
        for _ in 0..600 {
            prop_assert_eq!(session.step(), again.step());
        }
        prop_assert_eq!(session.kernel.snapshot().digest(), again.kernel.snapshot().digest());
    }
}
