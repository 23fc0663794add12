//! What a call costs depends on what its caller owns: with a hundred times as many objects of others about, each step of a
//! busy session looks at exactly as many entries of the kernel's tables. Counted, not timed; alone in its program, because
//! the count is the whole program's.
#![cfg(debug_assertions)]

#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;

use d3dkmt::{
    Call, CreateContextFlags, EventId, Handle, Handles, HwQueueFlags, Luid, NtStatus, Reply, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType, Values, WaitFromCpuFlags,
};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId, visited};
use kmd::SimulatedMiniport;
use session::{Session, Step};

/// A VM that no session has.
const STRANGERS: VmId = VmId(9);

struct World {
    kernel: Kernel<SimulatedMiniport>,
    request: u64,
}

impl World {
    fn new() -> Self {
        World { kernel: Kernel::new(Config::default(), SimulatedMiniport::default()), request: 1 << 32 }
    }

    fn ok(&mut self, process: ProcessId, call: Call) -> Reply {
        self.request += 1;
        let (request, mut effects) = (self.request, Effects::default());
        self.kernel.handle(0, Input::Call { process, request, call: call.clone() }, &mut effects);
        let answer = effects.answers.pop().expect("it is no one-way call");
        assert_eq!(answer.status, NtStatus::SUCCESS, "{call:?}: {:?}", effects.notes);
        answer.reply
    }

    /// Processes with `count` of everything that costs no engine time.
    fn strangers(&mut self, count: u32) {
        let name = || "strangers".to_owned();
        let mut input = |input| self.kernel.handle(0, input, &mut Effects::default());
        input(Input::VmAttached { vm: STRANGERS, name: name() });
        let processes = [1000, 1001].map(ProcessId);
        for process in processes {
            input(Input::ProcessAttached { process, vm: STRANGERS, pid: process.0, name: name() });
            input(Input::FenceMemoryAdded { process, slots: 3 * count + 64 });
        }
        for process in processes {
            let Reply::Adapter(adapter) = self.ok(process, Call::OpenAdapterFromLuid { luid: first_luid() })
            else {
                panic!("no adapter")
            };
            for event in 0..count {
                let Reply::Device(device) = self.ok(process, Call::CreateDevice { adapter, flags: 0 }) else {
                    panic!("no device")
                };
                self.belongings(process, device, u64::from(event) + 1);
            }
        }
    }

    fn belongings(&mut self, process: ProcessId, device: Handle, event: u64) {
        for (node_ordinal, flags) in
            [(0, CreateContextFlags::empty()), (2, CreateContextFlags::HW_QUEUE_SUPPORTED)]
        {
            let call = Call::CreateContextVirtual {
                device,
                node_ordinal,
                engine_affinity: 0,
                flags,
                client_hint: 0,
                private_data: Vec::new(),
            };
            let Reply::Context(context) = self.ok(process, call) else { panic!("no context") };
            if flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED) {
                let flags = HwQueueFlags::empty();
                self.ok(process, Call::CreateHwQueue { context, flags, private_data: Vec::new() });
            }
        }
        self.ok(process, Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 });
        let info = SyncObjectInfo {
            object_type: SyncObjectType::MONITORED_FENCE,
            flags: SyncObjectFlags::empty(),
            ..SyncObjectInfo::default()
        };
        let Reply::SyncObject(created) =
            self.ok(process, Call::CreateSynchronizationObject { device, info, legacy: false })
        else {
            panic!("no fence")
        };
        let (objects, values) = (Handles::from_slice(&[created.object]), Values::from_slice(&[1]));
        let (flags, event) = (WaitFromCpuFlags::empty(), EventId(event));
        self.ok(process, Call::WaitFromCpu { device, objects, values, flags, event });
    }

    /// Entries that each step looks at, and its effects.
    fn replay(&mut self, steps: &[Step]) -> Vec<(u64, Effects)> {
        let mut seen = Vec::new();
        for Step { now, input, .. } in steps {
            let (mut effects, before) = (Effects::default(), visited());
            self.kernel.handle(*now, input.clone(), &mut effects);
            seen.push((visited() - before, effects));
        }
        seen
    }
}

fn first_luid() -> Luid {
    Config::default().adapters[0].luid
}

/// What a step is, for people.
fn name_of(input: &Input) -> String {
    match input {
        Input::Call { call, .. } => call.name().to_owned(),
        other => format!("{other:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned(),
    }
}

/// Steps of a busy session without what concerns everybody: faults of an adapter, and time-outs.
fn steps(seed: u64) -> Vec<Step> {
    let mut session = Session::new(
        seed,
        Config { tdr: dxgkrnl::TdrConfig { level: 0, ..Default::default() }, ..Config::default() },
    );
    let mut steps: Vec<Step> = (0..600).map(|_| session.step()).collect();
    steps.retain(|step| !matches!(step.input, Input::Fault(_)));
    steps
}

#[test]
fn a_step_looks_at_nothing_that_strangers_own() {
    let mut worse: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for seed in 0..6 {
        let steps = steps(seed);
        let runs = [1, 60].map(|count| {
            let mut world = World::new();
            world.strangers(count);
            world.replay(&steps)
        });
        for (at, step) in steps.iter().enumerate() {
            let [(few, alone), (many, among)] = [&runs[0][at], &runs[1][at]];
            // The simulated driver answers an escape with its own numbers of devices, which count those of all.
            if !matches!(step.input, Input::Call { call: Call::Escape { .. }, .. }) {
                let input = &step.input;
                assert_eq!(
                    alone, among,
                    "step {at} of seed {seed}, {input:?}, is another with strangers about"
                );
            }
            // A reset of an engine or an adapter concerns all who use it: one that is due, or that an escape asks for.
            let resets =
                matches!(step.input, Input::Deadline | Input::Call { call: Call::Escape { .. }, .. });
            if many > few && !resets {
                let entry = worse.entry(name_of(&step.input)).or_default();
                *entry = (*entry).max((many - few, *few));
            }
        }
    }
    assert!(
        worse.is_empty(),
        "more entries looked at because of strangers, and how many without: {worse:#?}"
    );
}
