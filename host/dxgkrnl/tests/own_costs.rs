//! The cost of a call depends on its caller's objects only. With many more objects of other clients, each step of a
//! random session visits exactly as many table entries. No step is long, however many objects a client owns. The tests
//! count entries, and are alone in their program because the count covers the whole program.
#![cfg(debug_assertions)]

#[path = "common/owner.rs"]
mod owner;
#[path = "common/owner_memory.rs"]
mod owner_memory;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;
use std::sync::Mutex;

use d3dkmt::isa::{self, Packet};
use d3dkmt::limits::WORK_UNITS_PER_STEP;
use d3dkmt::{
    Call, CreateContextFlags, DestroyAllocationFlags, EventId, Handle, HwQueueFlags, Reply, ShareToken,
    SyncObjectFlags, calls,
};
use dxgkrnl::why::Question;
use dxgkrnl::{Config, Effects, Input, ProcessId, VmId, visited};
use owner::{Owner, World, first_luid};
use session::{Session, Step};

/// Serializes the tests, because the count of entries covers all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// A VM that no session uses.
const STRANGERS: VmId = VmId(9);

impl World {
    /// Attaches processes with `count` objects of each kind that costs no engine time.
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
            let call = calls::create_context(device, node_ordinal, flags);
            let Reply::Context(context) = self.ok(process, call) else { panic!("no context") };
            if flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED) {
                self.ok(process, calls::create_hw_queue(context, HwQueueFlags::empty()));
            }
        }
        self.ok(process, calls::create_paging_queue(device));
        let create = calls::create_fence(device, 0, SyncObjectFlags::empty());
        let Reply::SyncObject(created) = self.ok(process, create) else { panic!("no fence") };
        self.ok(process, calls::wait(device, created.object, 1, EventId(event)));
    }

    /// Table entries that each step visits, and its effects.
    fn replay(&mut self, steps: &[Step]) -> Vec<(u64, Effects)> {
        let mut costs = Vec::new();
        for Step { now, input, .. } in steps {
            let (mut effects, before) = (Effects::default(), visited());
            self.kernel.handle(*now, input.clone(), &mut effects);
            costs.push((visited() - before, effects));
        }
        costs
    }
}

/// Short name of a step, for messages.
fn name_of(input: &Input) -> String {
    match input {
        Input::Call { call, .. } => call.name().to_owned(),
        other => format!("{other:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned(),
    }
}

/// Steps of a random session without inputs that affect all clients: adapter faults and timeouts.
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
fn the_cost_of_a_step_does_not_depend_on_objects_of_others() {
    let _alone = ALONE.lock();
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
            // The simulated driver's answer to an escape has its device numbers, which count all clients' devices.
            if !matches!(step.input, Input::Call { call: Call::Escape { .. }, .. }) {
                let input = &step.input;
                assert_eq!(
                    alone, among,
                    "step {at} of seed {seed}, {input:?}: effects differ with objects of other clients present"
                );
            }
            // A reset of an engine or adapter affects all of its clients. Deadlines and escapes may cause one.
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
        "steps that visit more entries with objects of other clients (additional, without): {worse:#?}"
    );
}

/// A kind of object that a client may own in large numbers, and the input that ends or releases all of them.
struct Case {
    name: &'static str,
    make: fn(&mut Owner, u32),
    end: fn(&Owner) -> Input,
    /// Limit of one process, where it is lower than the test's number.
    most: u32,
    /// False: the work is still one step, and only its number of visited entries is bounded.
    is_cut: bool,
}

fn destroy_allocations(owner: &Owner) -> Input {
    destroy(owner, DestroyAllocationFlags::empty())
}

fn destroy(owner: &Owner, flags: DestroyAllocationFlags) -> Input {
    let (device, resource, allocations) = (owner.device, Handle::NULL, owner.objects.clone());
    owner.call(Call::DestroyAllocation { device, resource, allocations, flags })
}

const CASES: [Case; 39] = [
    Case {
        name: "a signal that many wait for",
        make: Owner::waits,
        end: |owner| owner.signal(3),
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "a fence that many wait for",
        make: Owner::waits,
        end: |owner| owner.call(Call::DestroySynchronizationObject { object: owner.fence }),
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "a fence that many queues wait for",
        make: Owner::queue_waits,
        end: |owner| owner.call(Call::DestroySynchronizationObject { object: owner.fence }),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "a process with many waits",
        make: Owner::waits,
        end: Owner::process_gone,
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "many released signals",
        make: Owner::packets,
        end: |owner| owner.signal(1),
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a device with many packets",
        make: Owner::packets,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a process with many packets",
        make: Owner::packets,
        end: Owner::process_gone,
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "many released queues",
        make: Owner::queue_waits,
        end: |owner| owner.signal(1),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "a signal that the ends of many contexts wait for",
        make: Owner::ending_contexts,
        end: |owner| owner.signal(1),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "a device with many contexts",
        make: Owner::contexts,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "the class of a process with many contexts",
        make: Owner::contexts,
        end: |owner| owner.call(Call::SetProcessPriorityClass { class: 1 }),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "the class of a process with many devices",
        make: Owner::devices,
        end: |owner| owner.call(Call::SetProcessPriorityClass { class: 1 }),
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a device with many fences",
        make: Owner::fences,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "a device with many fences is lost",
        make: Owner::fences,
        end: |owner| owner.call(Call::MarkDeviceAsError { device: owner.device, reason: 0 }),
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "a process with many fences",
        make: Owner::fences,
        end: Owner::process_gone,
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "the VM of a process with many fences",
        make: Owner::fences,
        end: |_| Input::VmDetached { vm: VmId(1) },
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "an adapter with many devices is closed",
        make: Owner::devices,
        end: |owner| owner.call(Call::CloseAdapter { adapter: owner.adapter }),
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a device with many queues is lost",
        make: Owner::queue_waits,
        end: |owner| owner.call(Call::MarkDeviceAsError { device: owner.device, reason: 0 }),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "an adapter with much memory in LOCAL is reset",
        make: Owner::in_local,
        end: |owner| {
            let buffer = isa::encode(&[Packet::Busy { duration_ns: 1000 }]);
            owner.call(calls::submit(owner.context, buffer))
        },
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a semaphore with a long line",
        make: Owner::line,
        end: |owner| owner.call(calls::release(owner.context, &[owner.fence])),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "a device with many buffers in hardware",
        make: Owner::hw_buffers,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: 50_000,
        is_cut: false,
    },
    Case {
        name: "a VM with many NT handles",
        make: Owner::nt_handles,
        end: |_| Input::VmDetached { vm: VmId(1) },
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "a buffer that wrote many fences completes",
        make: Owner::written_fences,
        end: |_| Input::Deadline,
        most: 3500,
        is_cut: true,
    },
    Case {
        name: "a process with many native fences",
        make: Owner::native_fences,
        end: Owner::process_gone,
        most: u32::MAX,
        is_cut: true,
    },
    Case {
        name: "a process with many devices",
        make: Owner::devices,
        end: Owner::process_gone,
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "opens of one allocation are offered",
        make: Owner::opens,
        end: |owner| {
            let (device, resources) = (owner.device, false);
            let allocations = owner.objects.iter().rev().take(1024).copied().collect();
            let (priority, flags) = (1, 0);
            owner.call(Call::OfferAllocations { device, resources, allocations, priority, flags })
        },
        most: 16_000,
        is_cut: false,
    },
    Case {
        name: "a device with many opens of one allocation",
        make: Owner::opens,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "allocations are evicted beside many pieces",
        make: Owner::resident,
        end: |owner| {
            let (device, allocations) = (owner.device, owner.objects.clone());
            owner.call(Call::Evict { device, allocations, flags: 0 })
        },
        most: 10_240,
        is_cut: true,
    },
    Case {
        name: "allocations are to become resident",
        make: Owner::evicted,
        end: |owner| {
            let (paging_queue, allocations) = (owner.queue, owner.objects.clone());
            owner.call(Call::MakeResident { paging_queue, allocations, priorities: Vec::new(), flags: 0 })
        },
        most: 10_240,
        is_cut: true,
    },
    Case {
        name: "allocations become resident",
        make: Owner::becoming_resident,
        end: |_| Input::Deadline,
        most: 10_240,
        is_cut: true,
    },
    Case {
        name: "an allocation that many have mapped is evicted",
        make: Owner::mapped_by_many,
        end: |owner| {
            let (device, allocations) = (owner.device, owner.objects.clone());
            owner.call(Call::Evict { device, allocations, flags: 0 })
        },
        most: 20_000,
        is_cut: true,
    },
    Case {
        name: "a process whose allocation many have mapped",
        make: Owner::mapped_by_many,
        end: Owner::process_gone,
        most: 20_000,
        is_cut: true,
    },
    Case {
        name: "allocations are destroyed behind the work of many queues",
        make: Owner::behind_many_queues,
        end: destroy_allocations,
        most: 16_000,
        is_cut: true,
    },
    Case {
        name: "allocations are destroyed with many pieces",
        make: Owner::mapped,
        end: destroy_allocations,
        most: 1024,
        is_cut: true,
    },
    Case {
        name: "allocations are destroyed with ranges of their own",
        make: Owner::ranges,
        end: destroy_allocations,
        most: 1024,
        is_cut: true,
    },
    Case {
        name: "an allocation is destroyed that hides many pieces",
        make: Owner::hidden_pieces,
        end: |owner| destroy(owner, DestroyAllocationFlags::ASSUME_NOT_IN_USE),
        most: 16_000,
        is_cut: false,
    },
    Case {
        name: "a process with many allocations beside many pieces",
        make: Owner::resident,
        end: Owner::process_gone,
        most: 60_000,
        is_cut: true,
    },
    Case {
        name: "a device whose paging queue has many maps of many pieces",
        make: Owner::maps,
        end: |owner| owner.call(Call::DestroyDevice { device: owner.device }),
        most: 8000,
        is_cut: true,
    },
    Case {
        name: "an update that copies many pieces many times",
        make: Owner::copies,
        end: |_| Input::Deadline,
        most: 256,
        is_cut: false,
    },
];

/// Cost of a case: most entries and work units of one step, entries of all steps, and number of steps.
#[derive(Debug, Default)]
struct Cost {
    entries: u64,
    units: u64,
    all_entries: u64,
    steps: u64,
    longest: std::time::Duration,
}

fn cost(case: &Case, count: u32) -> Cost {
    let mut owner = Owner::new(count);
    (case.make)(&mut owner, count);
    let mut input = (case.end)(&owner);
    let world = &mut owner.world;
    let mut cost = Cost::default();
    loop {
        let (entries, units, begun) = (visited(), world.kernel.work_units(), std::time::Instant::now());
        world.kernel.handle(owner.now, input, &mut Effects::default());
        let elapsed = begun.elapsed();
        let entries = visited() - entries;
        cost.entries = cost.entries.max(entries);
        cost.units = cost.units.max(world.kernel.work_units() - units);
        cost.all_entries += entries;
        cost.steps += 1;
        cost.longest = cost.longest.max(elapsed);
        if !world.kernel.has_backlog() {
            return cost;
        }
        input = Input::Deadline;
    }
}

/// Entries of tables that one step may visit: a call may name a thousand allocations.
const ENTRIES_MAX: u64 = 9000;

/// However many objects of one client end, wake or are released, no step is long and the total cost is linear.
/// `GPUPV_OBJECTS=1000000` is the long run (`just soak`).
#[test]
fn no_step_is_long_however_many_objects_end() {
    let _alone = ALONE.lock();
    let count = std::env::var("GPUPV_OBJECTS").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    for case in &CASES {
        let many = count.min(case.most);
        let (few, all) = (cost(case, many / 4), cost(case, many));
        println!(
            "{:40} {many:8} {:6} steps, at most {:5} units, {:6} entries, {:?}",
            case.name, all.steps, all.units, all.entries, all.longest
        );
        let most = u64::from(WORK_UNITS_PER_STEP);
        assert!(all.units <= 2 * most + 64, "{}: {all:?}", case.name);
        assert!(all.entries <= ENTRIES_MAX, "{}: a step visits too many entries: {all:?}", case.name);
        assert!(
            !case.is_cut || all.steps >= u64::from(many) / most,
            "{}: the work was not split into steps: {all:?}",
            case.name
        );
        assert!(
            all.all_entries <= 5 * few.all_entries,
            "{}: not linear: all objects cost {all:?}, a quarter of them {few:?}",
            case.name
        );
    }
}

/// A process of another VM with this many objects, and then the owner.
fn beside_a_stranger(make: fn(&mut Owner, u32), count: u32) -> Owner {
    let mut stranger = Owner::attach(World::new(), ProcessId(1000), STRANGERS, count + 64);
    make(&mut stranger, count);
    Owner::attach(stranger.world, owner::OWNER, VmId(1), 64)
}

/// Entries and units of work of one step.
fn cost_of_step(owner: &mut Owner, now: u64, input: Input) -> (u64, u64) {
    let (entries, units) = (visited(), owner.world.kernel.work_units());
    owner.world.kernel.handle(now, input, &mut Effects::default());
    (visited() - entries, owner.world.kernel.work_units() - units)
}

/// FEN-017: a completed buffer has the fences of its own process evaluated.
#[test]
fn a_completed_buffer_costs_nothing_for_fences_that_engines_wrote_for_others() {
    let _alone = ALONE.lock();
    let costs = [1, 1500].map(|count| {
        let mut owner = beside_a_stranger(Owner::written_fences, count);
        owner.submit(2, &[Packet::Busy { duration_ns: 1000 }]);
        let due = owner.world.kernel.next_deadline().expect("its buffer runs");
        cost_of_step(&mut owner, due, Input::Deadline)
    });
    assert_eq!(costs[0], costs[1]);
}

/// The list of them is not charged on its own, so it must not be longer than the process has opens.
#[test]
fn a_fence_that_an_engine_writes_again_and_again_is_listed_once() {
    let _alone = ALONE.lock();
    let mut owner = Owner::new(500);
    owner.written_fences(500);
    let mut listed = 0;
    owner.world.kernel.unseen_writes(&mut |_| listed += 1);
    assert_eq!(listed, 500);
}

#[test]
fn a_native_fence_costs_nothing_for_those_of_others() {
    let _alone = ALONE.lock();
    let costs = [1, 1500].map(|count| {
        let mut owner = beside_a_stranger(Owner::native_fences, count);
        let create = owner.call(calls::create_native_fence(owner.device, SyncObjectFlags::empty()));
        cost_of_step(&mut owner, 0, create)
    });
    assert_eq!(costs[0], costs[1]);
}

/// A signal of a plain fence reads the device and nothing of the object beside what is laid out for it
/// (`sync/objects.rs`): with 100,000 fences each further entry is a miss of the processor's caches.
#[test]
fn a_signal_of_a_plain_fence_reads_two_entries_of_tables() {
    let _alone = ALONE.lock();
    let mut owner = Owner::new(1);
    for value in 1..4 {
        let (signal, before) = (owner.signal(value), visited());
        owner.world.kernel.handle(0, signal, &mut Effects::default());
        assert_eq!(visited() - before, 2, "the device, for its state and for its adapter");
    }
}

/// A handle through which nobody waits is closed without a look at the waits through other handles.
#[test]
fn closing_a_fence_costs_nothing_for_waits_through_other_handles() {
    let _alone = ALONE.lock();
    const STRANGER: ProcessId = ProcessId(1000);
    let costs = [1, 1500].map(|count| {
        let mut stranger = Owner::attach(World::new(), STRANGER, VmId(1), 64);
        let shared = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        let (fence, token) = (stranger.create_fence(shared).object, ShareToken([7; 16]));
        stranger.ok(calls::share(fence, token, None));
        for event in 1..=count {
            stranger.ok(calls::wait(stranger.device, fence, event, EventId(event)));
        }
        let mut owner = Owner::attach(stranger.world, owner::OWNER, VmId(1), 64);
        let Reply::SyncObject(opened) = owner.ok(calls::open(owner.device, token)) else {
            panic!("no fence")
        };
        let destroy = owner.call(Call::DestroySynchronizationObject { object: opened.object });
        cost_of_step(&mut owner, 0, destroy)
    });
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn an_answer_of_why_visits_entries_in_proportion_to_the_contexts_that_calls_destroy() {
    let _alone = ALONE.lock();
    let entries = |count: u32| {
        let mut owner = Owner::new(count);
        for request in 1..=u64::from(count) {
            let context = owner.new_context();
            owner.ok(calls::gpu_wait(context, owner.fence, 1));
            let (process, call) = (owner.process, Call::DestroyContext { context });
            let input = Input::Call { process, request, call };
            owner.world.kernel.handle(0, input, &mut Effects::default());
        }
        let before = visited();
        let why = owner.world.kernel.why(&Question::default());
        assert_eq!(why.waiting, 2 * count as usize, "{why}");
        visited() - before
    };
    let (few, many) = (entries(200), entries(400));
    assert!(many < few * 5 / 2, "{few} entries, and {many} for twice as many");
}

#[test]
fn an_answer_of_why_visits_entries_in_proportion_to_the_waits_that_steps_have_left() {
    let _alone = ALONE.lock();
    let entries = |count: u32| {
        let mut owner = Owner::new(0);
        for event in 1..=u64::from(count) {
            owner.ok(calls::wait(owner.device, owner.fence, 1, EventId(event)));
        }
        let (process, call) = (owner.process, calls::signal(owner.device, owner.fence, 1));
        owner.world.kernel.handle(0, Input::Call { process, request: 0, call }, &mut Effects::default());
        let before = visited();
        let why = owner.world.kernel.why(&Question::default());
        assert!(why.waiting > count as usize / 2 && why.causes.len() == 1, "{why}");
        (visited() - before, why.waiting as u64)
    };
    let ((few, some), (many, more)) = (entries(500), entries(1_000));
    assert!(many * some < few * more * 6 / 5, "{few} entries for {some} waits, and {many} for {more}");
}
