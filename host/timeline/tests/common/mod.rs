//! Traces recorded from the model: a small one with all kinds of events, and a long one.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;

use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, EventId, Handle, HwQueueFlags, KeyedMutexFlags, Reply,
    ShareToken, SyncObjectFlags, WaitFromCpuFlags, calls, isa,
};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, EngineId, Fault, Input, Kernel, ProcessId, VmId};
use timeline::{Options, Timeline};
use trace::{Reader, Recorder};

/// A recorded kernel.
pub struct Session {
    pub kernel: Kernel,
    recorder: Recorder,
    pub now: u64,
    requests: BTreeMap<ProcessId, u64>,
    event: u64,
    pub steps: u64,
}

#[derive(Clone, Copy)]
pub struct ClientProcess {
    pub process: ProcessId,
    pub device: Handle,
}

impl Session {
    pub fn new(path: &Path) -> Self {
        Session::with_config(path, Config::default())
    }

    pub fn with_config(path: &Path, config: Config) -> Self {
        let drivers = Drivers::new(&Registry::default(), &config);
        let recorder = Recorder::create(path, &config, "sample 1.0").unwrap();
        let requests = BTreeMap::new();
        Session { kernel: Kernel::new(config, drivers), recorder, now: 0, requests, event: 0, steps: 0 }
    }

    pub fn input(&mut self, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.recorder.begin(self.now, &input).unwrap();
        self.kernel.handle(self.now, input, &mut effects);
        self.recorder.end(&effects).unwrap();
        self.steps += 1;
        effects
    }

    /// One call, which must succeed.
    pub fn call(&mut self, process: ProcessId, call: Call) -> Reply {
        let (mut effects, request) = self.try_call(process, call);
        let answer = effects.answers.pop().unwrap();
        assert!(answer.status.is_success() && answer.request == request, "{answer} {:?}", effects.notes);
        answer.reply
    }

    pub fn try_call(&mut self, process: ProcessId, call: Call) -> (Effects, u64) {
        let request = self.requests.entry(process).or_default();
        *request += 1;
        let request = *request;
        (self.input(Input::Call { process, request, call }), request)
    }

    /// Advances the time; each deadline is handled `late` nanoseconds after it is due.
    pub fn advance(&mut self, nanos: u64, late: u64) {
        let end = self.now + nanos;
        while let Some(due) = self.kernel.next_deadline().filter(|due| due + late <= end) {
            self.now = self.now.max(due + late);
            self.input(Input::Deadline);
        }
        self.now = end;
    }

    pub fn vm(&mut self, vm: u32, name: &str) {
        self.input(Input::VmAttached { vm: VmId(vm), name: name.into() });
    }

    pub fn guest(&mut self, vm: u32, process: u32, name: &str) -> ClientProcess {
        let process = ProcessId(process);
        self.input(Input::ProcessAttached { process, vm: VmId(vm), pid: 100 + process.0, name: name.into() });
        self.input(Input::FenceMemoryAdded { process, slots: 256 });
        let Reply::Adapters(adapters) = self.call(process, Call::EnumAdapters { capacity: 4 }) else {
            panic!()
        };
        let device = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = self.call(process, device) else { panic!() };
        ClientProcess { process, device }
    }

    pub fn fence(&mut self, guest: ClientProcess, flags: SyncObjectFlags) -> CreatedSyncObject {
        let call = calls::create_fence(guest.device, 0, flags);
        let Reply::SyncObject(created) = self.call(guest.process, call) else { panic!() };
        created
    }

    /// A fence of one process that another process of its VM opens too. Returns both handles.
    pub fn shared_fence(
        &mut self,
        owner: ClientProcess,
        other: ClientProcess,
        name: &str,
    ) -> (Handle, Handle) {
        let mut token = [0; 16];
        token.iter_mut().zip(name.bytes()).for_each(|(byte, letter)| *byte = letter);
        let fence = self.share_fence(owner, name, token);
        (fence, self.open_fence(other, token))
    }

    /// A fence that its process shares by an NT handle with this token.
    pub fn share_fence(&mut self, owner: ClientProcess, name: &str, token: [u8; 16]) -> Handle {
        let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let fence = self.fence(owner, flags).object;
        self.call(owner.process, calls::share(fence, ShareToken(token), Some(name)));
        fence
    }

    pub fn open_fence(&mut self, other: ClientProcess, token: [u8; 16]) -> Handle {
        let open = calls::open(other.device, ShareToken(token));
        let Reply::SyncObject(opened) = self.call(other.process, open) else { panic!() };
        opened.object
    }

    pub fn context(&mut self, guest: ClientProcess, node_ordinal: u32, flags: CreateContextFlags) -> Handle {
        let call = calls::create_context(guest.device, node_ordinal, flags);
        let Reply::Context(context) = self.call(guest.process, call) else { panic!() };
        context
    }

    pub fn hw_queue(&mut self, guest: ClientProcess, node_ordinal: u32) -> (Handle, CreatedSyncObject) {
        let context = self.context(guest, node_ordinal, CreateContextFlags::HW_QUEUE_SUPPORTED);
        let call = calls::create_hw_queue(context, HwQueueFlags::empty());
        let Reply::HwQueue { queue, progress_fence } = self.call(guest.process, call) else { panic!() };
        (queue, progress_fence)
    }

    pub fn signal(&mut self, guest: ClientProcess, fence: Handle, value: u64) {
        self.call(guest.process, calls::signal(guest.device, fence, value));
    }

    pub fn wait(&mut self, guest: ClientProcess, targets: &[(Handle, u64)]) -> EventId {
        self.event += 1;
        let event = EventId(self.event);
        let (objects, values) = targets.iter().copied().unzip();
        let flags = WaitFromCpuFlags::empty();
        self.call(guest.process, Call::WaitFromCpu { device: guest.device, objects, values, flags, event });
        event
    }

    pub fn submit(&mut self, guest: ClientProcess, context: Handle, packets: &[isa::Packet]) {
        self.call(guest.process, calls::submit(context, isa::encode(packets)));
    }

    pub fn gpu_signal(&mut self, guest: ClientProcess, context: Handle, fence: Handle, value: u64) {
        self.call(guest.process, calls::gpu_signal(context, fence, value));
    }

    pub fn gpu_wait(&mut self, guest: ClientProcess, context: Handle, fence: Handle, value: u64) {
        self.call(guest.process, calls::gpu_wait(context, fence, value));
    }

    pub fn submit_hw(&mut self, guest: ClientProcess, queue: Handle, id: u64, packets: &[isa::Packet]) {
        self.call(guest.process, calls::submit_to_hw_queue(queue, id, isa::encode(packets)));
    }

    /// The times of the last step, which a process signaled, and of the process that it woke.
    pub fn times(&mut self, signaler: ClientProcess, waiter: ClientProcess, event: EventId) {
        let at = 1_000 * self.steps;
        let [called_ns, sent_ns, read_ns, recorded_ns, handled_ns, stored_ns] =
            [1, 2, 3, 4, 5, 6].map(|part| at + part);
        let (step, process) = (self.steps, signaler.process.0);
        let times = trace::Times {
            step,
            process,
            called_ns,
            sent_ns,
            read_ns,
            recorded_ns,
            handled_ns,
            stored_ns,
            ..trace::Times::default()
        };
        self.recorder.times(&times).unwrap();
        let woken = trace::Woken { event: event.0, host_ns: stored_ns, read_ns: at + 7, ran_ns: at + 8 };
        let times = trace::Times { process: waiter.process.0, woken: vec![woken], ..trace::Times::default() };
        self.recorder.times(&times).unwrap();
    }

    pub fn finish(self) {
        let digest = self.kernel.snapshot().digest();
        self.recorder.finish(digest).unwrap();
    }
}

pub fn busy(duration_ns: u64) -> isa::Packet {
    isa::Packet::Busy { duration_ns }
}

pub fn write(fence: &CreatedSyncObject, value: u64) -> isa::Packet {
    isa::Packet::FenceWrite { gpu_address: fence.gpu_address, value }
}

/// Two VMs, three processes; CPU and GPU signals and waits, a hardware queue, a refused call, a lost interrupt, a
/// hang that is reset, a keyed mutex, a process that dies; and three waits that are pending at the end.
pub fn small(path: &Path) {
    let mut session = Session::new(path);
    session.vm(1, "red");
    session.vm(2, "blue");
    let client = session.guest(1, 1, "client");
    let server = session.guest(1, 2, "server");
    let other = session.guest(2, 3, "other");
    let (frames, frames_of_server) = session.shared_fence(client, server, "frames");
    let done = session.fence(client, SyncObjectFlags::empty());
    let context = session.context(client, 0, CreateContextFlags::empty());
    let second = session.context(server, 0, CreateContextFlags::empty());
    let (queue, progress) = session.hw_queue(client, 1);
    session.now = 10_000;
    // A CPU wait that another process's signal releases.
    session.wait(server, &[(frames_of_server, 1)]);
    session.advance(25_000, 0);
    session.signal(client, frames, 1);
    // Work: a CPU wait for an engine's write; two processes share the engine.
    session.advance(5_000, 0);
    session.submit(client, context, &[busy(40_000), write(&done, 1)]);
    session.submit(client, context, &[busy(30_000)]);
    session.gpu_signal(client, context, done.object, 2);
    session.submit(server, second, &[busy(20_000)]);
    session.wait(client, &[(done.object, 2)]);
    session.gpu_wait(server, second, frames_of_server, 2);
    session.submit(server, second, &[busy(15_000)]);
    session.advance(110_000, 700);
    session.signal(client, frames, 2);
    session.advance(40_000, 300);
    // A hardware queue.
    session.submit_hw(client, queue, 1, &[busy(12_000), write(&progress, 1)]);
    session.submit_hw(client, queue, 2, &[busy(9_000), write(&progress, 2)]);
    session.wait(client, &[(progress.object, 2)]);
    session.advance(40_000, 100);
    faults(&mut session, [client, server, other], [context, second], frames);
    // Waits that are pending at the end: for a value that is never signaled, on a CPU and in a queue.
    session.wait(client, &[(done.object, 9), (frames, 3)]);
    session.advance(50_000, 0);
    session.gpu_wait(client, context, done.object, 7);
    session.submit(client, context, &[busy(1_000)]);
    session.input(Input::ProcessGone { process: server.process });
    session.advance(1_000_000, 0);
    session.input(Input::Deadline);
    session.finish();
}

/// A refused call, a keyed mutex, a lost interrupt, and a hang that is reset.
fn faults(
    session: &mut Session,
    [client, server, other]: [ClientProcess; 3],
    [context, second]: [Handle; 2],
    frames: Handle,
) {
    session.try_call(client.process, calls::signal(client.device, frames, 1));
    let create = Call::CreateKeyedMutex {
        initial_value: 0,
        private_data: Vec::new(),
        flags: KeyedMutexFlags::empty(),
    };
    let Reply::KeyedMutex { mutex, .. } = session.call(other.process, create) else { panic!() };
    let acquire = |key, event| Call::AcquireKeyedMutex { mutex, key, timeout: None, event: EventId(event) };
    session.call(other.process, acquire(0, 900));
    session.call(other.process, acquire(1, 901));
    session.advance(20_000, 0);
    // A lost interrupt, then a hang that is reset.
    let engine = EngineId { adapter: 0, node: 0 };
    session.input(Input::Fault(Fault::LoseInterrupt { engine }));
    session.submit(client, context, &[busy(10_000)]);
    session.advance(30_000, 0);
    session.submit(server, second, &[busy(10_000)]);
    session.advance(30_000, 0);
    session.input(Input::Fault(Fault::Hang { engine }));
    session.submit(server, second, &[busy(5_000), busy(1_000)]);
    session.advance(3_000_000_000, 1_000);
}

/// A guest that boots for 2.5 s, and then 3 ms of a process that signals and waits.
pub fn booted(path: &Path) {
    let mut session = Session::new(path);
    session.now = 10_000_000;
    session.vm(1, "red");
    session.now = 2_500_000_000;
    let client = session.guest(1, 1, "client");
    let fence = session.fence(client, SyncObjectFlags::empty()).object;
    for value in 1..60 {
        session.now += 25_000;
        session.wait(client, &[(fence, value)]);
        session.now += 25_000;
        session.signal(client, fence, value);
    }
    session.finish();
}

/// A context whose commands all wait behind a wait, and then end at once.
pub fn deep(path: &Path, commands: u64) {
    let mut session = Session::new(path);
    session.vm(1, "red");
    let client = session.guest(1, 1, "client");
    let fence = session.fence(client, SyncObjectFlags::empty()).object;
    let context = session.context(client, 0, CreateContextFlags::empty());
    session.gpu_wait(client, context, fence, 1);
    for _ in 0..commands {
        session.now += 1_000;
        session.submit(client, context, &[busy(1_000)]);
    }
    session.signal(client, fence, 1);
    session.advance(100 * commands * 1_000, 0);
    session.finish();
}

/// A random program: four processes of two VMs that signal, wait and submit.
pub fn long(path: &Path, steps: u64) {
    let mut session = Session::new(path);
    session.vm(1, "red");
    session.vm(2, "blue");
    let names = ["producer", "consumer", "compositor", "probe"];
    let guests: Vec<ClientProcess> =
        (0..4).map(|at| session.guest(1 + at / 2, at + 1, names[at as usize])).collect();
    let mut state = 0x1234_5678_9ABC_DEF0_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % below
    };
    // Each pair shares fences; each process has contexts.
    let mut fences = Vec::new();
    for pair in [[guests[0], guests[1]], [guests[2], guests[3]]] {
        for _ in 0..6 {
            let (one, other) = session.shared_fence(pair[0], pair[1], &format!("fence {}", fences.len()));
            fences.push((pair, [one, other], 0u64));
        }
    }
    let contexts: Vec<(ClientProcess, Handle)> = (0..8)
        .map(|at| {
            let guest = guests[at % 4];
            (guest, session.context(guest, (at as u32 / 4) * 3, CreateContextFlags::empty()))
        })
        .collect();
    let mut backlog = 0;
    while session.steps < steps {
        session.now += 200 + random(4_000);
        if session.kernel.next_deadline().is_some_and(|due| due <= session.now) {
            session.input(Input::Deadline);
            backlog = 0;
            continue;
        }
        let at = random(fences.len() as u64) as usize;
        let (pair, handles, value) = &mut fences[at];
        match random(20) {
            0..9 => {
                *value += 1;
                let (guest, handle, value) = (pair[0], handles[0], *value);
                session.signal(guest, handle, value);
            }
            9..17 => {
                let (guest, handle, value) = (pair[1], handles[1], *value + 1 + random(2));
                session.wait(guest, &[(handle, value)]);
            }
            _ if backlog < 24 => {
                backlog += 1;
                let (guest, context) = contexts[random(8) as usize];
                session.submit(guest, context, &[busy(1_000 + random(9_000))]);
            }
            _ => {}
        }
    }
    session.finish();
}

pub fn timeline_of(path: &Path) -> Timeline {
    timeline_with(path, &Options::default())
}

pub fn timeline_with(path: &Path, options: &Options) -> Timeline {
    timeline::read(Reader::open(path).unwrap(), &Registry::default(), options, &mut |_, _| {}).unwrap()
}

/// The small trace's timeline.
pub fn small_timeline() -> Timeline {
    let file = tempfile::NamedTempFile::new().unwrap();
    small(file.path());
    timeline_of(file.path())
}

/// Copies a trace from a step on, with the state before it, as a flight recorder's dump has them.
pub fn cut(whole: &Path, cut: &Path, first_step: u64) {
    let reader = Reader::open(whole).unwrap();
    let config = reader.header().config.clone();
    let mut kernel = Kernel::new(config.clone(), Drivers::new(&Registry::default(), &config));
    let recording = trace::Recording { first_step: Some(first_step), ..trace::Recording::default() };
    let mut recorder = Recorder::create_as(cut, &config, "sample 1.0", recording).unwrap();
    for record in reader {
        let trace::Record::Step { sequence, now, input, effects } = record.unwrap() else { continue };
        if sequence == first_step {
            recorder.snapshot(&kernel.save().unwrap(), kernel.snapshot().digest()).unwrap();
        }
        if sequence >= first_step {
            recorder.begin(now, &input).unwrap();
            recorder.end(&effects.unwrap()).unwrap();
        } else {
            kernel.handle(now, input, &mut Effects::default());
        }
    }
    recorder.finish(0).unwrap();
}

#[path = "../../../dxgkrnl/tests/common/session.rs"]
pub mod session;

/// Steps of a random session that makes all kinds of calls.
pub fn random(path: &Path, seed: u64, steps: u64) {
    let config = Config { gpu_virtualization_flags: 5, ..Config::default() };
    let mut session = session::Session::new(seed, config.clone());
    let mut recorder = Recorder::create(path, &config, "sample 1.0").unwrap();
    for _ in 0..steps {
        let step = session.step();
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    recorder.finish(session.kernel.snapshot().digest()).unwrap();
}

/// Compares bytes with a golden file; `GPUPV_BLESS=1` rewrites it.
pub fn golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    let expected = std::fs::read(&path).unwrap_or_default();
    if expected != bytes {
        let difference = expected.iter().zip(bytes).position(|(one, other)| one != other);
        let difference = difference.unwrap_or(expected.len().min(bytes.len()));
        let around = |bytes: &[u8]| {
            let part =
                &bytes[difference.saturating_sub(60).min(bytes.len())..(difference + 60).min(bytes.len())];
            String::from_utf8_lossy(part).into_owned()
        };
        panic!(
            "{name} differs at byte {difference}; GPUPV_BLESS=1 writes it anew\nexpected: {}\n  actual: {}",
            around(&expected),
            around(bytes)
        );
    }
}

/// Records two processes of one VM that share a fence, with these calls.
pub fn pair(path: &Path, calls: impl Fn(&mut Session, ClientProcess, ClientProcess, [Handle; 2])) {
    let mut session = Session::new(path);
    session.vm(1, "red");
    let (client, server) = (session.guest(1, 1, "client"), session.guest(1, 2, "server"));
    let (frames, server_frames) = session.shared_fence(client, server, "frames");
    calls(&mut session, client, server, [frames, server_frames]);
    session.finish();
}
