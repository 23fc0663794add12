//! A kernel with one process and many fences, and the calls on it.

use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, Handles, NtStatus, Reply, SyncObjectFlags, Values,
    WaitFromCpuFlags, calls, limits,
};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmConfig, VmId};
use kmd::SimulatedMiniport;

const PROCESS: ProcessId = ProcessId(1);

pub struct World {
    kernel: Kernel,
    pub effects: Effects,
    device: Handle,
    context: Handle,
    pub fences: Vec<Handle>,
}

impl World {
    pub fn new(fences: usize) -> Self {
        // Enough memory for a million fences.
        let host = VmConfig { name: "host".into(), memory_bytes: 1 << 40, ..VmConfig::default() };
        let config = Config { vms: vec![host], ..Config::default() };
        let kernel = Kernel::new(config, SimulatedMiniport::default());
        let effects = Effects::default();
        let (device, context) = (Handle::NULL, Handle::NULL);
        let mut world = World { kernel, effects, device, context, fences: Vec::new() };
        let name = String::from("bench");
        world.take(Input::ProcessAttached { process: PROCESS, vm: VmId::HOST, pid: 1, name });
        let slots = limits::FENCE_SLOTS_PER_PROCESS_MAX;
        world.take(Input::FenceMemoryAdded { process: PROCESS, slots });
        let Reply::Adapters(adapters) = world.call(Call::EnumAdapters { capacity: 1 }) else { panic!() };
        let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = world.call(create) else { panic!() };
        world.device = device;
        let create = calls::create_context(device, 0, CreateContextFlags::empty());
        let Reply::Context(context) = world.call(create) else { panic!() };
        world.context = context;
        for _ in 0..fences {
            let create = calls::create_fence(device, 0, SyncObjectFlags::empty());
            let Reply::SyncObject(fence) = world.call(create) else { panic!() };
            world.fences.push(fence.object);
        }
        world
    }

    /// Passes one input to the kernel, and runs it until no work is left; the results are in `effects`.
    #[inline]
    pub fn take(&mut self, input: Input) {
        self.effects.clear();
        self.kernel.handle(0, input, &mut self.effects);
        while self.kernel.has_backlog() {
            self.kernel.handle(0, Input::Deadline, &mut self.effects);
        }
    }

    /// Prefetches for the calls that come next.
    #[inline]
    pub fn expect(&self, inputs: &[Input]) {
        let calls = inputs.iter().filter_map(|input| match input {
            Input::Call { call, .. } => Some(call),
            _ => None,
        });
        self.kernel.prefetch(PROCESS, calls);
    }

    fn call(&mut self, call: Call) -> Reply {
        self.take(Input::Call { process: PROCESS, request: 1, call });
        let answer = self.effects.answers.pop().expect("an answer");
        assert_eq!(answer.status, NtStatus::SUCCESS, "{:?}", self.effects.notes);
        answer.reply
    }

    /// Number of pending waits; panics if the tables disagree.
    pub fn pending(&self) -> usize {
        assert_eq!(self.kernel.miscounted(), None);
        self.kernel.belongings(PROCESS).waits as usize
    }

    pub fn signal(&self, fence: usize, value: u64) -> Input {
        let call = calls::signal(self.device, self.fences[fence], value);
        Input::Call { process: PROCESS, request: 1, call }
    }

    /// A one-way signal by a context, whose queue is empty.
    pub fn gpu_signal(&self, fence: usize, value: u64) -> Input {
        let call = calls::gpu_signal(self.context, self.fences[fence], value);
        Input::Call { process: PROCESS, request: 0, call }
    }

    pub fn wait(&self, fence: usize, value: u64, event: u64) -> Input {
        self.wait_all(fence..fence + 1, value, event)
    }

    pub fn wait_all(&self, fences: std::ops::Range<usize>, value: u64, event: u64) -> Input {
        let (objects, values) =
            (Handles::from_slice(&self.fences[fences.clone()]), Values::from_elem(value, fences.len()));
        let (flags, event) = (WaitFromCpuFlags::empty(), EventId(event));
        let call = Call::WaitFromCpu { device: self.device, objects, values, flags, event };
        Input::Call { process: PROCESS, request: 1, call }
    }

    pub fn cancel(&self, event: u64) -> Input {
        Input::Call { process: PROCESS, request: 1, call: Call::CancelWait { event: EventId(event) } }
    }
}
