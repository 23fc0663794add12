//! Calls on lists of allocations that take several steps. Others see them as one slow call.

use crate::allocations::{create, open};
use crate::common::hardware::busy;
use crate::common::scripted::{ScriptRef, scripted};
use crate::common::{P, World};
use crate::gpu_memory::{Mapped, PAGING_NS, map, page_table_updates};
use crate::paging::queue;
use d3dkmt::{
    Call, CreateAllocationFlags as F, CreatedSyncObject, DestroyAllocationFlags, Handle, NtStatus, Reply,
    calls, isa,
};
use dxgkrnl::ddi::PageFaultFlags;
use dxgkrnl::{Config, Effects, EngineId, Fault, Input, ProcessId, VmId};

const Q: ProcessId = ProcessId(2);
/// Allocations of a list.
const COUNT: usize = 20;

/// Handles one input, without what it leaves.
fn step(world: &mut World, input: Input) -> Effects {
    let mut effects = Effects::default();
    world.kernel.handle(world.now, input, &mut effects);
    assert_eq!(world.kernel.miscounted(), None);
    effects
}

fn call(world: &mut World, process: ProcessId, call: Call) -> Effects {
    step(world, Input::Call { process, request: 7, call })
}

/// Does what steps have left.
fn finish(world: &mut World) -> Effects {
    let mut effects = Effects::default();
    while world.kernel.has_backlog() {
        effects.append(step(world, Input::Deadline));
    }
    effects
}

fn make_resident(paging_queue: Handle, allocations: &[Handle]) -> Call {
    Call::MakeResident { paging_queue, allocations: allocations.to_vec(), priorities: vec![], flags: 0 }
}

fn evict(device: Handle, allocations: &[Handle]) -> Call {
    Call::Evict { device, allocations: allocations.to_vec(), flags: 0 }
}

/// The only answer to a process, of a call that changes residency: its status and its fence value.
fn residency(process: ProcessId, effects: &Effects) -> (NtStatus, u64) {
    let answers: Vec<_> = effects.answers.iter().filter(|answer| answer.process == process).collect();
    let [answer] = answers[..] else { panic!("{:?}", effects.answers) };
    match answer.reply {
        Reply::Residency { paging_fence_value, .. } => (answer.status, paging_fence_value),
        ref other => panic!("{other:?}"),
    }
}

/// A process with a device, a paging queue, and mapped allocations.
struct Lists {
    world: World,
    script: ScriptRef,
    device: Handle,
    paging_queue: Handle,
    fence: CreatedSyncObject,
    all: Vec<Handle>,
    shared: Handle,
}

impl Lists {
    /// The first allocation is shared.
    fn new() -> Lists {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let (paging_queue, fence) = queue(&mut world, device, 0);
        let (_, shared, first) = create(&mut world, device, F::CREATE_RESOURCE | F::CREATE_SHARED);
        let mut all = vec![first];
        all.extend((1..COUNT).map(|_| create(&mut world, device, F::empty()).2));
        all.iter().for_each(|one| _ = map(&mut world, Mapped::whole(*one).by(paging_queue)));
        world.advance(2 * COUNT as u64 * PAGING_NS);
        page_table_updates(&script);
        Lists { world, script, device, paging_queue, fence, all, shared }
    }

    fn in_small_steps(&mut self) {
        self.world.kernel.set_work_units_per_step(4, 1000);
    }

    /// Makes the list resident.
    fn make_resident(&mut self) {
        call(&mut self.world, P, make_resident(self.paging_queue, &self.all));
        self.run();
    }

    /// Lets the paging engine do what it has.
    fn run(&mut self) {
        while let Some(due) = self.world.kernel.next_deadline() {
            self.world.now = self.world.now.max(due);
            step(&mut self.world, Input::Deadline);
        }
    }

    /// How many allocations engines have seen appear, and how many vanish, since the last call.
    fn seen(&self) -> (usize, usize) {
        let lines = page_table_updates(&self.script);
        let appeared = lines.iter().filter(|line| line.contains("Memory")).count();
        (appeared, lines.len() - appeared)
    }

    fn resident(&mut self) -> bool {
        let (device, allocations) = (self.device, self.all.clone());
        let query = Call::QueryAllocationResidency { device, resource: Handle::NULL, allocations };
        let mut effects = call(&mut self.world, P, query);
        effects.append(finish(&mut self.world));
        match &effects.answers[0].reply {
            Reply::AllocationResidency(statuses) => statuses.iter().all(|status| *status != 3),
            other => panic!("{other:?}"),
        }
    }

    /// Another process with an open of the shared allocation.
    fn other(&mut self) -> (Handle, Handle, Handle) {
        self.world.attach(Q);
        self.world.process = Q;
        let device = self.world.device();
        let (paging_queue, _) = queue(&mut self.world, device, 0);
        let (_, opened) = open(&mut self.world, device, self.shared);
        self.world.call(make_resident(paging_queue, &[opened]));
        self.world.advance(10 * PAGING_NS);
        self.world.process = P;
        self.seen();
        (device, paging_queue, opened)
    }
}

#[test]
fn a_long_list_becomes_resident_before_its_fence_value_is_stored() {
    let mut lists = Lists::new();
    let expected = lists.fence.slot.map(|slot| (slot, COUNT as u64 + 1));
    lists.in_small_steps();
    let begun = call(&mut lists.world, P, make_resident(lists.paging_queue, &lists.all));
    assert!(begun.answers.is_empty() && lists.world.kernel.is_behind(P));
    assert_eq!(residency(P, &finish(&mut lists.world)), (NtStatus::PENDING, COUNT as u64 + 1));
    lists.world.now = lists.world.kernel.next_deadline().expect("a paging buffer runs");
    let (mut steps, mut appeared) = (0, 0);
    loop {
        let effects = step(&mut lists.world, Input::Deadline);
        appeared += lists.seen().0;
        steps += 1;
        if let Some(store) = effects.stores.iter().find(|store| Some(store.slot) == lists.fence.slot) {
            assert_eq!((Some((store.slot, store.value)), appeared), (expected, COUNT));
            break;
        }
        assert!(lists.world.kernel.has_backlog(), "the value is left for a later step");
    }
    assert!(steps > 3, "{steps} steps");
    assert!(lists.resident());
}

/// The engine is done with the queue steps before all of the list is resident.
#[test]
fn a_paging_queue_ends_behind_the_last_step_of_a_long_list() {
    let mut lists = Lists::new();
    lists.in_small_steps();
    call(&mut lists.world, P, make_resident(lists.paging_queue, &lists.all));
    finish(&mut lists.world);
    let destroy = Call::DestroyPagingQueue { queue: lists.paging_queue };
    assert!(call(&mut lists.world, P, destroy).answers.is_empty());
    lists.world.now = lists.world.kernel.next_deadline().expect("a paging buffer runs");
    let mut effects = step(&mut lists.world, Input::Deadline);
    assert!(effects.answers.is_empty() && lists.world.kernel.has_backlog());
    effects.append(finish(&mut lists.world));
    let values = effects.stores.iter().filter(|store| Some(store.slot) == lists.fence.slot);
    assert_eq!(values.map(|store| store.value).collect::<Vec<_>>(), [COUNT as u64 + 1]);
    let answers = effects.answers.iter().map(|answer| (answer.process, answer.status));
    assert_eq!(answers.collect::<Vec<_>>(), [(P, NtStatus::SUCCESS)]);
    assert!(lists.resident());
}

/// Its engine wrote the value before it stopped, but not all of the list was resident by then.
#[test]
fn the_paging_fence_of_an_adapter_that_stops_gets_no_late_value() {
    let mut lists = Lists::new();
    lists.in_small_steps();
    call(&mut lists.world, P, make_resident(lists.paging_queue, &lists.all));
    finish(&mut lists.world);
    lists.world.now = lists.world.kernel.next_deadline().expect("a paging buffer runs");
    let mut effects = step(&mut lists.world, Input::Deadline);
    assert!(lists.world.kernel.has_backlog());
    effects.append(step(&mut lists.world, Input::Fault(Fault::StopAdapter { adapter: 0 })));
    effects.append(finish(&mut lists.world));
    assert!(effects.stores.iter().all(|store| Some(store.slot) != lists.fence.slot), "{:?}", effects.stores);
}

#[test]
fn a_long_list_of_a_device_that_is_lost_meanwhile_is_not_made_resident() {
    let mut lists = Lists::new();
    lists.world.attach(Q);
    lists.world.process = Q;
    let device = lists.world.device();
    let context = lists.world.context(device, 0);
    let flags = PageFaultFlags::ADAPTER_RESET_REQUIRED.bits();
    let engine = EngineId { adapter: 0, node: 0 };
    lists.world.input(Input::Fault(Fault::PageFault { engine, gpu_address: 0xF000, flags }));
    lists.in_small_steps();
    let begun = call(&mut lists.world, P, make_resident(lists.paging_queue, &lists.all));
    assert!(begun.answers.is_empty());
    call(&mut lists.world, Q, calls::submit(context, isa::encode(&[busy(1)])));
    let rest = finish(&mut lists.world);
    let answers: Vec<_> = rest.answers.iter().filter(|answer| answer.process == P).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [NtStatus::DEVICE_REMOVED]);
    assert_eq!((lists.world.kernel.snapshot().adapter_resets, lists.seen()), (1, (0, 0)));
}

#[test]
fn a_long_list_is_evicted_in_steps_and_answered_once() {
    let mut lists = Lists::new();
    lists.make_resident();
    assert_eq!((lists.seen(), lists.resident()), ((COUNT, 0), true));
    lists.in_small_steps();
    let begun = call(&mut lists.world, P, evict(lists.device, &lists.all));
    assert!(begun.answers.is_empty());
    let rest = finish(&mut lists.world);
    assert_eq!(
        (residency(P, &rest), lists.seen(), lists.resident()),
        ((NtStatus::SUCCESS, 0), (0, COUNT), false)
    );
    // The last of the list has no count any more: nothing of it is evicted.
    lists.make_resident();
    call(&mut lists.world, P, evict(lists.device, &lists.all[COUNT - 1..]));
    finish(&mut lists.world);
    lists.seen();
    let mut refused = call(&mut lists.world, P, evict(lists.device, &lists.all));
    refused.append(finish(&mut lists.world));
    assert_eq!((refused.answers.len(), refused.answers[0].status), (1, NtStatus::INVALID_PARAMETER));
    assert_eq!(lists.seen(), (0, 0));
}

/// The other process has the last count for a while, and drops it at each possible point.
#[test]
fn an_evict_of_another_process_between_the_steps_changes_nothing_of_the_result() {
    for steps in 0..60 {
        let mut lists = Lists::new();
        let (device, _, opened) = lists.other();
        lists.in_small_steps();
        let mut all = call(&mut lists.world, P, make_resident(lists.paging_queue, &lists.all));
        for _ in 0..steps {
            if lists.world.kernel.has_backlog() {
                all.append(step(&mut lists.world, Input::Deadline));
            }
        }
        call(&mut lists.world, Q, evict(device, &[opened]));
        all.append(finish(&mut lists.world));
        assert_eq!(residency(P, &all), (NtStatus::PENDING, COUNT as u64 + 1));
        lists.run();
        assert!(lists.resident(), "after {steps} steps");
        let mut gone = call(&mut lists.world, P, evict(lists.device, &lists.all));
        gone.append(finish(&mut lists.world));
        assert_eq!((residency(P, &gone), lists.resident()), ((NtStatus::SUCCESS, 0), false));
    }
}

#[test]
fn destroyed_allocations_are_unmapped_in_steps() {
    let mut lists = Lists::new();
    lists.make_resident();
    lists.seen();
    lists.in_small_steps();
    let (device, resource, allocations) = (lists.device, Handle::NULL, lists.all[1..].to_vec());
    let flags = DestroyAllocationFlags::empty();
    let destroy = Call::DestroyAllocation { device, resource, allocations, flags };
    let begun = call(&mut lists.world, P, destroy.clone());
    assert!(begun.answers.is_empty() && lists.world.kernel.is_behind(P));
    let both = call(&mut lists.world, P, destroy);
    let statuses: Vec<NtStatus> = both.answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [NtStatus::SUCCESS, NtStatus::INVALID_PARAMETER], "they go before the next call");
    assert_eq!(lists.seen(), (0, COUNT - 1));
}

#[test]
fn an_adapter_may_be_removed_and_a_process_may_end_between_the_steps() {
    for steps in 0..40 {
        for ends in [false, true] {
            let mut world = World::with_config(Config::default());
            world.guest(3, ProcessId(5));
            let device = world.device();
            let (paging_queue, _) = queue(&mut world, device, 0);
            let all: Vec<Handle> = (0..COUNT).map(|_| create(&mut world, device, F::empty()).2).collect();
            world.call(make_resident(paging_queue, &all));
            world.advance(10 * PAGING_NS);
            world.kernel.set_work_units_per_step(2, 1000);
            let mut effects = call(&mut world, ProcessId(5), evict(device, &all));
            for _ in 0..steps {
                effects.append(step(&mut world, Input::Deadline));
            }
            let input = match ends {
                true => Input::ProcessGone { process: ProcessId(5) },
                false => Input::VmAdapter { vm: VmId(3), adapter: 0, added: false },
            };
            effects.append(step(&mut world, input));
            effects.append(finish(&mut world));
            assert!(
                ends || residency(ProcessId(5), &effects) == (NtStatus::SUCCESS, 0),
                "{:?}",
                effects.answers
            );
            assert!(!ends || world.kernel.processes().all(|process| process == P));
        }
    }
}

#[test]
fn a_reclaim_whose_adapter_is_removed_between_its_steps_is_refused() {
    let process = ProcessId(5);
    for steps in 0..20 {
        let mut world = World::with_config(Config::default());
        world.guest(3, process);
        let device = world.device();
        let all: Vec<Handle> = (0..COUNT).map(|_| create(&mut world, device, F::empty()).2).collect();
        let (allocations, resources, priority, flags) = (all, false, 2, 0);
        let list = allocations.clone();
        world.ok(Call::OfferAllocations { device, allocations: list, resources, priority, flags });
        world.kernel.set_work_units_per_step(2, 1000);
        let mut effects =
            call(&mut world, process, Call::ReclaimAllocations { device, allocations, resources });
        for _ in 0..steps {
            effects.append(step(&mut world, Input::Deadline));
        }
        let is_over = !effects.answers.is_empty();
        effects.append(step(&mut world, Input::VmAdapter { vm: VmId(3), adapter: 0, added: false }));
        effects.append(finish(&mut world));
        let [answer] = &effects.answers[..] else { panic!("{:?}", effects.answers) };
        let expected = if is_over { NtStatus::SUCCESS } else { NtStatus::DEVICE_REMOVED };
        assert_eq!(answer.status, expected, "after {steps} steps");
        assert!(steps > 0 || !is_over);
    }
}
