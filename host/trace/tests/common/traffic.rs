//! The usual traffic of traces: fence signals and waits.
#![allow(dead_code)]

use std::ops::Range;

use d3dkmt::{Call, EventId, Handle, Reply, SyncObjectFlags, WaitFromCpuFlags, calls};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, Nanos, ProcessId, VmId};
use trace::Recorder;

const PROCESS: ProcessId = ProcessId(1);
/// Time between two steps.
const STEP_NS: Nanos = 1700;

/// A kind of traffic: records a range of its rounds.
pub type Rounds = fn(&mut Traffic, &mut Recorder, Range<u64>);

/// One process with its own fences, on a recorded kernel.
pub struct Traffic {
    pub kernel: Kernel,
    pub device: Handle,
    pub fences: Vec<Handle>,
    effects: Effects,
    steps: u64,
    events: u64,
}

impl Traffic {
    /// Attaches the process and creates its fences.
    pub fn new(recorder: &mut Recorder, fences: u32) -> Traffic {
        let config = Config::default();
        let drivers = Drivers::new(&Registry::default(), &config);
        let mut traffic = Traffic {
            kernel: Kernel::new(config, drivers),
            device: Handle::NULL,
            fences: Vec::new(),
            effects: Effects::default(),
            steps: 0,
            events: 0,
        };
        let attached =
            Input::ProcessAttached { process: PROCESS, vm: VmId::HOST, pid: 1, name: "one".into() };
        traffic.record(recorder, attached);
        for _ in 0..fences.div_ceil(64) {
            traffic.record(recorder, Input::FenceMemoryAdded { process: PROCESS, slots: 64 });
        }
        let adapters = traffic.call(recorder, Call::EnumAdapters { capacity: 1 });
        let Reply::Adapters(adapters) = adapters else { panic!("{adapters:?}") };
        let device = traffic.call(recorder, Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
        let Reply::Device(device) = device else { panic!("{device:?}") };
        traffic.device = device;
        for _ in 0..fences {
            let create = calls::create_fence(device, 0, SyncObjectFlags::empty());
            let created = traffic.call(recorder, create);
            let Reply::SyncObject(fence) = created else { panic!("{created:?}") };
            traffic.fences.push(fence.object);
        }
        traffic
    }

    /// Handles and records an input, as a daemon does.
    fn record(&mut self, recorder: &mut Recorder, input: Input) {
        self.steps += 1;
        let now = self.steps * STEP_NS;
        recorder.begin(now, &input).unwrap();
        self.effects.clear();
        self.kernel.handle(now, input, &mut self.effects);
        recorder.end(&self.effects).unwrap();
        if recorder.snapshot_is_due() {
            let digest = self.kernel.snapshot().digest();
            recorder.snapshot(&self.kernel.save().unwrap(), digest).unwrap();
        }
    }

    fn call(&mut self, recorder: &mut Recorder, call: Call) -> Reply {
        self.record(recorder, self.input(call));
        std::mem::replace(&mut self.effects.answers[0].reply, Reply::None)
    }

    /// The input of the next call.
    pub fn input(&self, call: Call) -> Input {
        Input::Call { process: PROCESS, request: self.steps + 1, call }
    }

    /// A signal of one of the fences, in turn.
    pub fn signal(&self, number: u64) -> Call {
        let fences = self.fences.len() as u64;
        calls::signal(self.device, self.fences[(number % fences) as usize], number / fences + 1)
    }

    /// Signals, one for each number.
    pub fn signals(&mut self, recorder: &mut Recorder, numbers: Range<u64>) {
        for number in numbers {
            self.record(recorder, self.input(self.signal(number)));
        }
    }

    /// As `signals`, with a wait before each signal that it ends.
    pub fn waits(&mut self, recorder: &mut Recorder, numbers: Range<u64>) {
        for number in numbers {
            let signal = self.signal(number);
            let Call::SignalFromCpu { device, objects, values, .. } = signal.clone() else { unreachable!() };
            self.events += 1;
            let event = EventId(self.events);
            let flags = WaitFromCpuFlags::empty();
            self.record(recorder, self.input(Call::WaitFromCpu { device, objects, values, flags, event }));
            self.record(recorder, self.input(signal));
        }
    }

    /// Finishes the trace.
    pub fn finish(self, recorder: Recorder) -> u64 {
        recorder.finish(self.kernel.snapshot().digest()).unwrap()
    }
}
