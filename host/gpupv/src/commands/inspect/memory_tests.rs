//! Tests of what people see of a kernel's memory and paging, with the default driver.

use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::{AllocationInfo, Call, CreateAllocation, Handle, Reply, calls};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};

use super::render_kernel;
use crate::daemon::inspection::of_kernel;

const P: ProcessId = ProcessId(1);

/// A kernel with one local process, which has a device and a paging queue.
struct World {
    kernel: Kernel,
    request: u64,
    device: Handle,
    paging_queue: Handle,
}

impl World {
    fn new() -> Self {
        let config = Config::default();
        let drivers = Drivers::new(&Registry::default(), &config);
        let kernel = Kernel::new(config, drivers);
        let mut world = World { kernel, request: 0, device: Handle::NULL, paging_queue: Handle::NULL };
        world.input(0, Input::ProcessAttached { process: P, vm: VmId::HOST, pid: 7, name: "game".into() });
        world.input(0, Input::FenceMemoryAdded { process: P, slots: 64 });
        let Reply::Adapters(adapters) = world.call(Call::EnumAdapters { capacity: 4 }) else { panic!() };
        let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = world.call(create) else { panic!() };
        let Reply::PagingQueue { queue, .. } = world.call(calls::create_paging_queue(device)) else {
            panic!()
        };
        World { device, paging_queue: queue, ..world }
    }

    fn input(&mut self, now: u64, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.kernel.handle(now, input, &mut effects);
        effects
    }

    /// Makes a call that must succeed.
    fn call(&mut self, call: Call) -> Reply {
        self.request += 1;
        let (now, request) = (self.kernel.now(), self.request);
        let mut effects = self.input(now, Input::Call { process: P, request, call });
        let answer = effects.answers.pop().expect("an answer");
        assert!(answer.status.is_success(), "{answer} {:?}", effects.notes);
        answer.reply
    }

    /// Allocates a page of memory of the device in LOCAL.
    fn allocate(&mut self) -> Handle {
        let (segment, flags) = (SEGMENT_LOCAL, AllocationDataFlags::CPU_VISIBLE);
        let data = AllocationData { size: 4096, segment, flags, ..AllocationData::default() };
        let info = AllocationInfo { private_data: data.encode().to_vec(), ..AllocationInfo::default() };
        let create =
            CreateAllocation { device: self.device, allocations: vec![info], ..CreateAllocation::default() };
        let create = Box::new(create);
        match self.call(Call::CreateAllocation { create }) {
            Reply::Allocations { allocations, .. } => allocations[0],
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self) {
        while let Some(due) = self.kernel.next_deadline() {
            self.input(due, Input::Deadline);
        }
    }

    fn text(&self) -> String {
        render_kernel(&of_kernel(&self.kernel))
    }
}

#[test]
fn an_engine_that_runs_paging_buffers_is_listed_with_the_queue_that_it_runs() {
    let mut world = World::new();
    let engines = of_kernel(&world.kernel).engines;
    let of_adapter: Vec<_> = engines.iter().filter(|engine| engine.adapter == 0).collect();
    assert_eq!(of_adapter.iter().filter(|engine| engine.kind == "paging").count(), 1);
    assert!(!world.text().contains("paging): "), "it is idle");
    let queue = world.paging_queue;
    world.call(calls::map(queue, 0x10_0000, Handle::NULL, 16, d3dkmt::gpu_va::protection::ZERO));
    let engine = of_kernel(&world.kernel).engines.into_iter().find(|engine| engine.kind == "paging").unwrap();
    assert_eq!(engine.running, Some(1));
    let line = format!("engine 0 (paging): {}\n", engine.state);
    assert!(engine.state.ends_with(&format!("process 1 paging queue {queue}")), "{}", engine.state);
    assert!(world.text().contains(&line), "{}", world.text());
    world.run();
    assert!(!world.text().contains("engine 0 (paging)"), "{}", world.text());
}

#[test]
fn memory_is_shown_by_what_is_resident_offered_locked_and_mapped_the_largest_first() {
    let mut world = World::new();
    assert_eq!(of_kernel(&world.kernel).memory, []);
    let allocations: Vec<Handle> = (0..12).map(|_| world.allocate()).collect();
    let (device, paging_queue) = (world.device, world.paging_queue);
    let (list, priorities) = (allocations.clone(), Vec::new());
    world.call(Call::MakeResident { paging_queue, allocations: list, priorities, flags: 0 });
    let text = world.text();
    assert!(
        text.contains("  process 1 wants resident in LOCAL of adapter 0: 49152 of "),
        "none is there yet: {text}"
    );
    for allocation in &allocations[..2] {
        world.call(Call::Lock { device, allocation: *allocation, flags: 0 });
    }
    world.call(Call::Lock { device, allocation: allocations[1], flags: 0 });
    for pages in 1..=10 {
        let zero = d3dkmt::gpu_va::protection::ZERO;
        world.call(calls::map(paging_queue, pages * 0x10_0000, Handle::NULL, pages, zero));
    }
    let offer = Call::OfferAllocations {
        device,
        allocations: allocations[3..].to_vec(),
        resources: false,
        priority: 2,
        flags: 0,
    };
    world.call(offer);
    world.run();
    let [memory] = &of_kernel(&world.kernel).memory[..] else { panic!() };
    let [group] = &memory.groups[..] else { panic!("{memory:?}") };
    assert_eq!((group.adapter, group.local, group.resident_bytes), (0, true, 3 * 4096));
    assert_eq!((memory.offered, memory.offered_bytes, memory.largest_offered.len()), (9, 9 * 4096, 8));
    let locks: Vec<_> = memory.largest_locked.iter().map(|one| (Handle(one.handle), one.locks)).collect();
    assert_eq!(locks, [(allocations[0], 1), (allocations[1], 2)]);
    assert_eq!((memory.ranges, memory.mapped_bytes), (10, 55 * 4096));
    let pages: Vec<u64> = memory.largest_ranges.iter().map(|range| range.zero_bytes / 4096).collect();
    assert_eq!(pages, [10, 9, 8, 7, 6, 5, 4, 3]);
    let text = world.text();
    for line in [
        format!("  process 1 wants resident in LOCAL of adapter 0: 12288 of {} bytes\n", group.budget_bytes),
        format!("  process 1 offered: 9 allocations of 0x9000 bytes: {} (0x1000), ", allocations[3]),
        format!(
            "  process 1 locked: 2 allocations of 0x2000 bytes: {} (0x1000), {} (0x1000, 2 locks)\n",
            allocations[0], allocations[1]
        ),
        "  process 1 GPU addresses: 10 ranges of 0x37000 bytes, 0x37000 mapped: 0xa00000 on adapter 0 (0xa000, 0xa000 mapped), "
            .into(),
        "(0x3000, 0x3000 mapped), and 2 more\n".into(),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
}
