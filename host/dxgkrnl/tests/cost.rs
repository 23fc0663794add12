//! Memory cost of waits, signals and a process's objects. This file counts allocations; `gpupv bench` measures times.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/owner.rs"]
mod owner;
#[path = "../../bench/src/kernel/world.rs"]
mod world;

use counting::{allocated_bytes, allocations, live_bytes};
use d3dkmt::allocation_data::AllocationData;
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags,
    DestroyAllocationFlags, EventId, Handle, Handles, HwQueueFlags, KeyedMutexFlags, NtStatus, Reply,
    ShareToken, StandardAllocation, SyncObjectFlags, SyncObjectInfo, SyncObjectType, Values,
    WaitFromCpuFlags, calls, limits,
};
use dxgkrnl::why::Question;
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmConfig, VmId};
use kmd::SimulatedMiniport;
use owner::{OWNER, Owner};
use world::World;

/// Bytes that one pending wait may cost on the host.
const WAIT_BYTES_MAX: f64 = 96.0;

/// A permutation of `0..count` for a `count` that the factor does not divide.
fn scattered(at: usize, count: usize) -> usize {
    (at * 7_919) % count
}

#[test]
fn a_pending_wait_costs_little_on_one_fence_and_on_many_in_any_order() {
    const WAITS: usize = 200_000;
    for fences in [1, 1000] {
        for random in [false, true] {
            let mut world = World::new(fences);
            let before = live_bytes();
            for at in 0..WAITS {
                let position = if random { scattered(at, WAITS) } else { at };
                let wait = world.wait(position % fences, (position / fences) as u64 + 1, at as u64 + 1);
                world.take(wait);
            }
            let each = (live_bytes() - before) as f64 / WAITS as f64;
            assert!(each <= WAIT_BYTES_MAX, "{each} bytes: {fences} fences, random: {random}");
            // Only buffers for the next few waits remain.
            for fence in 0..fences {
                let signal = world.signal(fence, u64::MAX);
                world.take(signal);
            }
            world.effects = Default::default();
            let remaining_bytes = live_bytes() - before;
            assert!(
                remaining_bytes <= 512 * fences as isize + 65_536,
                "{remaining_bytes} bytes stay: {fences} fences"
            );
        }
    }
}

#[test]
fn an_answer_of_why_allocates_in_proportion_to_the_calls_that_wait_and_to_the_queues() {
    let bytes = |count: u32| {
        let mut owner = Owner::new(count);
        owner.queue_waits(count);
        for request in 1..=u64::from(count) {
            let data = AllocationData { size: 0x1000, width: 8, height: 8, ..AllocationData::default() };
            let allocations = vec![described(&mut owner, &data)];
            let (device, resource, flags) =
                (owner.device, Handle::NULL, DestroyAllocationFlags::SYNCHRONOUS_DESTROY);
            let call = Call::DestroyAllocation { device, resource, allocations, flags };
            let input = Input::Call { process: OWNER, request, call };
            owner.world.kernel.handle(0, input, &mut Effects::default());
        }
        let before = allocated_bytes();
        let why = owner.world.kernel.why(&Question::default());
        assert_eq!(why.waiting, 2 * count as usize, "{why}");
        allocated_bytes() - before
    };
    let (few, many) = (bytes(200), bytes(400));
    assert!(many < few * 5 / 2, "{few} bytes, and {many} for twice as many");
}

#[test]
fn churning_waits_cost_no_more_memory_than_pending_ones() {
    const WAITS: usize = 50_000;
    let mut world = World::new(1);
    let before = live_bytes();
    let event = |round: u64, at: usize| (scattered(at * 3, WAITS) as u64) * 8 + round + 1;
    // Each round begins waits with names and values of all sizes, and cancels as many of those before.
    for round in 0..6_u64 {
        for at in 0..WAITS {
            let wait = world.wait(0, scattered(at * 7, WAITS) as u64 * 5 + round + 1, event(round, at));
            world.take(wait);
            if round > 0 {
                let cancel = world.cancel(event(round - 1, at * 11 % WAITS));
                world.take(cancel);
            }
        }
        let each = (live_bytes() - before) as f64 / WAITS as f64;
        assert!(each <= WAIT_BYTES_MAX, "{each} bytes in round {round}");
        assert_eq!(world.pending(), WAITS, "every canceled wait was found by its event id");
    }
    // The event ids of the last round are pending: none may be used twice.
    for at in 0..100 {
        let again = world.wait(0, u64::MAX, event(5, at));
        world.take(again);
        assert_eq!(world.effects.answers[0].status, NtStatus::INVALID_PARAMETER);
        let free = world.wait(0, u64::MAX, event(4, at));
        world.take(free);
        assert_eq!(world.effects.answers[0].status, NtStatus::SUCCESS);
    }
    assert_eq!(world.pending(), WAITS + 100);
}

/// Allocations while the call is built, prefetched and handled.
fn taking(world: &mut World, call: impl FnOnce(&World) -> dxgkrnl::Input) -> u64 {
    let before = allocations();
    let input = call(world);
    world.expect(std::slice::from_ref(&input));
    world.take(input);
    allocations() - before
}

#[test]
fn a_signal_allocates_nothing_with_any_waiters() {
    let mut world = World::new(64);
    for value in 1..100_u64 {
        let warm = value > 2;
        let check = |case: &str, count: u64| assert!(!warm || count == 0, "{case}: {count} allocations");
        // Without waiters.
        check("a signal", taking(&mut world, |world| world.signal(0, 10 * value)));
        // One waiter, then a few.
        for waiters in [1, 5] {
            for event in 0..waiters {
                let wait = |world: &World| world.wait(0, 10 * value + waiters, 1 + event);
                check("a wait", taking(&mut world, wait));
            }
            let signal = |world: &World| world.signal(0, 10 * value + waiters);
            check("a signal that wakes", taking(&mut world, signal));
            assert_eq!(world.effects.events.len() as u64, waiters);
        }
        // Two waits for all of 32 fences: the calls may allocate, the signals may not.
        for half in [0..32, 32..64] {
            let wait = world.wait_all(half.clone(), 10 * value + 9, 1 + half.start as u64);
            world.take(wait);
        }
        for fence in 0..64 {
            let signal = |world: &World| world.signal(fence, 10 * value + 9);
            check("a signal of a wait for all", taking(&mut world, signal));
            assert_eq!(world.effects.events.len(), usize::from(fence % 32 == 31));
        }
    }
}

#[test]
fn a_signal_by_a_context_allocates_nothing() {
    let mut world = World::new(1);
    for value in 1..100 {
        // Every other signal wakes a wait.
        for _ in 0..value % 2 {
            let wait = world.wait(0, value, 1);
            world.take(wait);
        }
        let count = taking(&mut world, |world| world.gpu_signal(0, value));
        assert!(value <= 4 || count == 0, "{count} allocations");
        assert_eq!((world.effects.stores.len(), world.effects.events.len() as u64), (1, value % 2));
    }
}

#[test]
fn waking_many_waits_allocates_nothing_in_any_order() {
    const WAITS: usize = 20_000;
    let mut world = World::new(1);
    // Grow the effect lists once.
    for input in [world.wait(0, 1, 1), world.signal(0, 1)] {
        world.take(input);
    }
    for round in 0..2_u64 {
        let base = round * WAITS as u64;
        for at in 0..WAITS {
            let wait = world.wait(0, base + scattered(at, WAITS) as u64 + 2, at as u64 + 1);
            world.take(wait);
        }
        let mut signalling = 0;
        for at in 0..WAITS {
            signalling += taking(&mut world, |world| world.signal(0, base + at as u64 + 2));
            assert_eq!(world.effects.events.len(), 1);
        }
        assert_eq!(signalling, 0);
    }
}

/// A kind of object, and how a process creates more of it.
struct Kind {
    name: &'static str,
    make: fn(&mut Owner, u32),
    count: u32,
    /// Largest allowed ratio of charged bytes to bytes in use.
    most: f64,
}

fn handle_of(reply: Reply) -> Handle {
    match reply {
        Reply::Context(handle) | Reply::KeyedMutex { mutex: handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}

fn legacy(owner: &mut Owner, info: SyncObjectInfo) -> Handle {
    let create = Call::CreateSynchronizationObject { device: owner.device, info, legacy: false };
    let Reply::SyncObject(created) = owner.ok(create) else { panic!("no object") };
    created.object
}

fn heap(owner: &mut Owner, flags: CreateAllocationFlags, runtime_data: Vec<u8>) {
    let flags = flags | CreateAllocationFlags::EXISTING_SYS_MEM | CreateAllocationFlags::STANDARD_ALLOCATION;
    let standard = StandardAllocation {
        kind: StandardAllocation::EXISTING_HEAP,
        size: 0x1000,
        ..StandardAllocation::default()
    };
    let create = CreateAllocation {
        device: owner.device,
        flags,
        standard: Some(standard),
        runtime_data,
        allocations: vec![AllocationInfo { system_memory: 0x7F00_0000_0000, ..Default::default() }],
        ..CreateAllocation::default()
    };
    owner.ok(Call::CreateAllocation { create: Box::new(create) });
}

fn described(owner: &mut Owner, data: &AllocationData) -> Handle {
    let info = AllocationInfo {
        system_memory: 0x7F00_0000_0000,
        private_data: data.encode().to_vec(),
        ..AllocationInfo::default()
    };
    let create =
        CreateAllocation { device: owner.device, allocations: vec![info], ..CreateAllocation::default() };
    let Reply::Allocations { allocations, .. } =
        owner.ok(Call::CreateAllocation { create: Box::new(create) })
    else {
        panic!("no allocation")
    };
    allocations[0]
}

fn keyed_mutex(owner: &mut Owner, bytes: usize) -> Handle {
    let (initial_value, private_data, flags) = (0, vec![7; bytes], KeyedMutexFlags::empty());
    handle_of(owner.ok(Call::CreateKeyedMutex { initial_value, private_data, flags }))
}

fn many(count: u32, mut make: impl FnMut()) {
    (0..count).for_each(|_| make());
}

const KINDS: [Kind; 23] = [
    Kind {
        name: "handles of an adapter",
        count: 4000,
        most: 4.0,
        make: |owner, count| {
            many(count, || _ = owner.ok(Call::OpenAdapterFromLuid { luid: owner::first_luid() }));
        },
    },
    Kind { name: "devices", count: 2000, most: 3.0, make: Owner::devices },
    Kind { name: "contexts", count: 2000, most: 3.0, make: Owner::contexts },
    Kind { name: "monitored fences", count: 4000, most: 3.0, make: Owner::fences },
    Kind { name: "native fences", count: 2000, most: 3.0, make: Owner::native_fences },
    Kind {
        name: "legacy semaphores",
        count: 2000,
        most: 3.0,
        make: |owner, count| {
            let info = SyncObjectInfo {
                object_type: SyncObjectType::SEMAPHORE,
                max_count: 9,
                ..SyncObjectInfo::default()
            };
            many(count, || _ = legacy(owner, info));
        },
    },
    Kind { name: "CPU waits", count: 4000, most: 3.0, make: Owner::waits },
    Kind {
        name: "CPU waits through another device than the fence's",
        count: 4000,
        most: 3.0,
        make: |owner, count| {
            let own = owner.device;
            owner.device = owner.new_device();
            owner.waits(count);
            owner.device = own;
        },
    },
    Kind {
        name: "CPU waits for 32 fences",
        count: 1000,
        most: 3.0,
        make: |owner, count| {
            let fences: Vec<Handle> = (0..32).map(|_| owner.new_fence(owner.device)).collect();
            many(count, || {
                owner.event += 1;
                let (device, flags, event) = (owner.device, WaitFromCpuFlags::empty(), EventId(owner.event));
                let (objects, values) = (Handles::from_slice(&fences), Values::from_slice(&[9; 32]));
                owner.ok(Call::WaitFromCpu { device, objects, values, flags, event });
            });
        },
    },
    Kind { name: "signals in a queue", count: 4000, most: 3.0, make: Owner::packets },
    Kind { name: "waits in queues", count: 2000, most: 3.0, make: Owner::queue_waits },
    Kind {
        name: "command buffers in a queue",
        count: 400,
        most: 1.5,
        make: |owner, count| {
            let context = owner.context;
            owner.ok(calls::gpu_wait(context, owner.fence, 1));
            many(count, || _ = owner.ok(calls::submit(context, vec![0xEE; 8000])));
        },
    },
    Kind { name: "command buffers in hardware", count: 4000, most: 3.0, make: Owner::hw_buffers },
    Kind {
        name: "hardware queues",
        count: 1000,
        most: 3.0,
        make: |owner, count| {
            let flags = CreateContextFlags::HW_QUEUE_SUPPORTED;
            let context = handle_of(owner.ok(calls::create_context(owner.device, 2, flags)));
            many(count, || _ = owner.ok(calls::create_hw_queue(context, HwQueueFlags::empty())));
        },
    },
    Kind {
        name: "paging queues",
        count: 31,
        most: 6.0,
        make: |owner, count| {
            let device = owner.device;
            many(count, || _ = owner.ok(calls::create_paging_queue(device)));
        },
    },
    Kind {
        name: "allocations",
        count: 2000,
        most: 3.0,
        make: |owner, count| {
            many(count, || heap(owner, CreateAllocationFlags::empty(), Vec::new()));
        },
    },
    Kind {
        name: "allocations with private driver data",
        count: 2000,
        most: 3.0,
        make: |owner, count| {
            let data = AllocationData { size: 0x1000, width: 8, height: 8, ..AllocationData::default() };
            many(count, || _ = described(owner, &data));
        },
    },
    Kind {
        name: "resources with data",
        count: 1000,
        most: 2.0,
        make: |owner, count| {
            many(count, || heap(owner, CreateAllocationFlags::CREATE_RESOURCE, vec![7; 4096]));
        },
    },
    Kind {
        name: "keyed mutexes with data",
        count: 1000,
        most: 2.0,
        make: |owner, count| {
            many(count, || _ = keyed_mutex(owner, limits::KEYED_MUTEX_DATA_BYTES_MAX));
        },
    },
    Kind {
        name: "acquires of a keyed mutex",
        count: 500,
        most: 3.0,
        make: |owner, count| {
            let mutex = keyed_mutex(owner, 0);
            many(count, || {
                owner.event += 1;
                let (key, timeout, event) = (99, None, EventId(owner.event));
                owner.ok(Call::AcquireKeyedMutex { mutex, key, timeout, event });
            });
        },
    },
    Kind {
        name: "ranges of the address space",
        count: 1000,
        most: 6.0,
        make: |owner, count| {
            let (base, minimum, maximum, size) = (0, 0, 0, 0x1_0000);
            let adapter = owner.adapter;
            many(count, || {
                owner.ok(Call::ReserveGpuVirtualAddress { owner: adapter, base, minimum, maximum, size });
            });
        },
    },
    Kind {
        name: "CPU events of a driver",
        count: 1000,
        most: 3.0,
        make: |owner, count| {
            many(count, || {
                owner.event += 1;
                let info = SyncObjectInfo {
                    object_type: SyncObjectType::CPU_NOTIFICATION,
                    flags: SyncObjectFlags::SIGNAL_BY_KMD,
                    event: Some(EventId(owner.event)),
                    ..SyncObjectInfo::default()
                };
                legacy(owner, info);
            });
        },
    },
    Kind {
        name: "pages that are Zero",
        count: 200,
        most: 6.0,
        make: |owner, count| {
            let queue = owner.ok(calls::create_paging_queue(owner.device));
            let Reply::PagingQueue { queue: paging_queue, .. } = queue else { panic!("{queue:?}") };
            many(count, || {
                let map = owner.call(calls::map(paging_queue, 0, Handle::NULL, 1, 0x4));
                owner.world.kernel.handle(0, map, &mut Effects::default());
            });
        },
    },
];

#[test]
fn objects_of_a_process_are_charged_at_the_memory_they_use() {
    let mut wrong = Vec::new();
    for kind in &KINDS {
        let mut owner = Owner::new(3 * kind.count);
        // Tables grow in proportion to their size, so the first batch is not measured.
        (kind.make)(&mut owner, kind.count);
        let measured = |owner: &Owner| (live_bytes(), owner.world.kernel.memory_bytes(OWNER).unwrap_or(0));
        let before = measured(&owner);
        (kind.make)(&mut owner, kind.count);
        let after = measured(&owner);
        let takes = (after.0 - before.0) as f64 / f64::from(kind.count);
        let charged = (after.1 - before.1) as f64 / f64::from(kind.count);
        println!("{:32} takes {takes:7.1} bytes, charged at {charged:7.1}", kind.name);
        if charged < takes || charged > takes * kind.most {
            wrong.push((kind.name, takes, charged));
        }
        // The end of the process frees all of it.
        owner.world.kernel.handle(0, Input::ProcessGone { process: OWNER }, &mut Effects::default());
        owner.world.kernel.finish_backlog(&mut Effects::default());
        assert_eq!(owner.world.kernel.miscounted(), None, "{}", kind.name);
    }
    assert!(
        wrong.is_empty(),
        "kinds charged below their memory use, or far above it (name, used, charged): {wrong:?}"
    );
}

/// Attack object_memory: tables kept the memory of what had ended, as long as others had an object in them.
#[test]
fn the_end_of_a_process_gives_its_memory_back_beside_others() {
    const STRANGER: ProcessId = ProcessId(2);
    /// Small tables keep their capacity, and that of global handles keeps their numbers, so that stale ones are refused.
    const REMAINING_BYTES_MAX: isize = 1 << 15;
    let mut wrong = Vec::new();
    for kind in &KINDS {
        let mut stranger = Owner::attach(owner::World::new(), STRANGER, VmId(2), 64);
        (kind.make)(&mut stranger, 1);
        let before = live_bytes();
        let mut owner = Owner::attach(stranger.world, OWNER, VmId(1), 3 * kind.count);
        (kind.make)(&mut owner, kind.count);
        let most = live_bytes() - before;
        let mut end = |input| owner.world.kernel.handle(0, input, &mut Effects::default());
        end(Input::ProcessGone { process: OWNER });
        owner.world.kernel.finish_backlog(&mut Effects::default());
        let remaining = live_bytes() - before;
        println!("{:40} took {most:9} bytes, {remaining:7} stay", kind.name);
        if remaining > REMAINING_BYTES_MAX {
            wrong.push((kind.name, most, remaining));
        }
        assert_eq!(owner.world.kernel.miscounted(), None, "{}", kind.name);
    }
    assert!(wrong.is_empty(), "memory stays after the end of its process (name, most, remaining): {wrong:?}");
}

/// The fences that an engine wrote are listed until their waits are evaluated. The charge for their handles covers that.
#[test]
fn fences_that_an_engine_wrote_are_charged_at_the_memory_they_use() {
    let count = 3000;
    let mut owner = Owner::new(count);
    let measured = |owner: &Owner| (live_bytes(), owner.world.kernel.memory_bytes(OWNER).unwrap_or(0));
    let before = measured(&owner);
    owner.written_fences(count);
    let mut listed = 0;
    owner.world.kernel.unseen_writes(&mut |_| listed += 1);
    assert_eq!(listed, count);
    let after = measured(&owner);
    let (takes, charged) = ((after.0 - before.0) as u64, after.1 - before.1);
    assert!(takes <= charged, "{takes} bytes in use, {charged} charged");
}

/// The kernel with two VMs of 1 MiB each.
struct Small {
    kernel: Kernel,
}

impl Small {
    fn new() -> Small {
        let vm = |name: &str| VmConfig { name: name.into(), memory_bytes: 1 << 20, ..VmConfig::default() };
        let config = Config { vms: vec![vm("one"), vm("two")], ..Config::default() };
        let mut small = Small { kernel: Kernel::new(config, SimulatedMiniport::default()) };
        for (number, name) in [(1, "one"), (2, "two")] {
            small.input(Input::VmAttached { vm: VmId(number), name: name.into() });
        }
        small
    }

    fn input(&mut self, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.kernel.handle(0, input, &mut effects);
        effects
    }

    fn call(&mut self, process: u32, call: Call) -> (NtStatus, Reply, String) {
        let process = ProcessId(process);
        let mut effects = self.input(Input::Call { process, request: 1, call });
        let note = effects.notes.pop().map(|note| note.text).unwrap_or_default();
        let answer = effects.answers.pop().expect("an answer");
        (answer.status, answer.reply, note)
    }

    /// A process with a device.
    fn attach(&mut self, process: u32, vm: u32) -> Handle {
        let (id, vm) = (ProcessId(process), VmId(vm));
        self.input(Input::ProcessAttached { process: id, vm, pid: process, name: String::new() });
        self.input(Input::FenceMemoryAdded { process: id, slots: 1 << 14 });
        let (_, reply, _) = self.call(process, Call::OpenAdapterFromLuid { luid: owner::first_luid() });
        let Reply::Adapter(adapter) = reply else { panic!("{reply:?}") };
        let (_, reply, _) = self.call(process, Call::CreateDevice { adapter, flags: 0 });
        let Reply::Device(device) = reply else { panic!("{reply:?}") };
        device
    }

    /// How many fences a process can create, and the note of the first refused call.
    fn fill(&mut self, process: u32, device: Handle) -> (u32, String) {
        for created in 0.. {
            match self.call(process, calls::create_fence(device, 0, SyncObjectFlags::empty())) {
                (NtStatus::SUCCESS, ..) => {}
                (NtStatus::NO_MEMORY, _, why) => return (created, why),
                other => panic!("{other:?}"),
            }
        }
        unreachable!()
    }
}

#[test]
fn a_greedy_process_leaves_a_third_of_the_budget_to_its_vm_and_all_of_theirs_to_other_vms() {
    let mut small = Small::new();
    let [a, b, c] = [(1, 1), (2, 1), (3, 2)].map(|(process, vm)| small.attach(process, vm));
    let (first, why) = small.fill(1, a);
    assert!(why.contains("memory_bytes"), "{why}");
    let used = small.kernel.memory_bytes(ProcessId(1)).unwrap();
    assert!((600_000..=700_000).contains(&used), "two thirds of a MiB: {used}");
    let (second, _) = small.fill(2, b);
    assert!((first / 4..first / 2).contains(&second), "two thirds of what is left: {first}, {second}");
    let (other, _) = small.fill(3, c);
    assert!(first.abs_diff(other) <= first / 20, "another VM has its own budget: {first}, {other}");
    // An ended process frees its share of the budget; a refused call creates nothing.
    assert_eq!(small.kernel.miscounted(), None);
    small.input(Input::ProcessGone { process: ProcessId(1) });
    small.kernel.finish_backlog(&mut Effects::default());
    let again = small.attach(4, 1);
    let (third, _) = small.fill(4, again);
    assert!((second..first).contains(&third), "two thirds of what is left: {second}, {third}");
    assert_eq!(small.kernel.miscounted(), None);
    for process in [2, 3, 4] {
        small.input(Input::ProcessGone { process: ProcessId(process) });
    }
    small.kernel.finish_backlog(&mut Effects::default());
    assert_eq!(small.kernel.miscounted(), None);
}

#[test]
fn an_nt_handle_is_charged_to_its_vm_until_it_is_closed() {
    let mut small = Small::new();
    let device = small.attach(1, 1);
    let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
    let (_, reply, _) = small.call(1, calls::create_fence(device, 0, flags));
    let Reply::SyncObject(created) = reply else { panic!("{reply:?}") };
    let token = |number: u64| ShareToken(u128::from(number).to_le_bytes());
    let mut shared = 0;
    let why = loop {
        match small.call(1, calls::share(created.object, token(shared), None)) {
            (NtStatus::SUCCESS, ..) => shared += 1,
            (NtStatus::NO_MEMORY, _, why) => break why,
            other => panic!("{other:?}"),
        }
    };
    assert!((300..2000).contains(&shared) && why.contains("memory_bytes"), "{shared}: {why}");
    // The process ends; its NT handles stay.
    small.input(Input::ProcessGone { process: ProcessId(1) });
    let device = small.attach(2, 1);
    let (beside, _) = small.fill(2, device);
    for number in 0..shared {
        small.input(Input::NtHandleClosed { vm: VmId(1), token: token(number) });
    }
    let (after, _) = small.fill(2, device);
    assert!(after > 0, "{beside} fences beside {shared} NT handles, {after} more without");
    assert_eq!(small.kernel.miscounted(), None);
}
