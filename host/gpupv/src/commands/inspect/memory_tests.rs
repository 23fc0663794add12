//! Tests of what people see of a kernel's memory and paging, with the default driver.

use d3dkmt::{Call, Handle, Reply, calls};
use drivers::{Drivers, Registry};
use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};

use super::render_kernel;
use crate::daemon::inspection::of_kernel;

const P: ProcessId = ProcessId(1);

/// A kernel with one local process, which has a paging queue.
struct World {
    kernel: Kernel,
    request: u64,
    paging_queue: Handle,
}

impl World {
    fn new() -> Self {
        let config = Config::default();
        let drivers = Drivers::new(&Registry::default(), &config);
        let kernel = Kernel::new(config, drivers);
        let mut world = World { kernel, request: 0, paging_queue: Handle::NULL };
        world.input(0, Input::ProcessAttached { process: P, vm: VmId::HOST, pid: 7, name: "game".into() });
        world.input(0, Input::FenceMemoryAdded { process: P, slots: 64 });
        let Reply::Adapters(adapters) = world.call(Call::EnumAdapters { capacity: 4 }) else { panic!() };
        let create = Call::CreateDevice { adapter: adapters[0].handle, flags: 0 };
        let Reply::Device(device) = world.call(create) else { panic!() };
        let Reply::PagingQueue { queue, .. } = world.call(calls::create_paging_queue(device)) else {
            panic!()
        };
        World { paging_queue: queue, ..world }
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
    while let Some(due) = world.kernel.next_deadline() {
        world.input(due, Input::Deadline);
    }
    assert!(!world.text().contains("engine 0 (paging)"), "{}", world.text());
}
