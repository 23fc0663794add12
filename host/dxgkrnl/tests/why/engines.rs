//! Engines that hang, whose interrupt was lost, or whose doorbell was not rung.

use super::{Q, acts, chain, comes_down_to, fence_with, is_waits_for, of, only, why};
use crate::allocations::create;
use crate::common::hardware::*;
use crate::common::scripted::paging_on;
use crate::common::{P, World, without_timeouts};
use d3dkmt::isa::Packet::Hang;
use d3dkmt::{Call, CreateAllocationFlags, DestroyAllocationFlags, Handle, HwQueueFlags, calls};
use dxgkrnl::ddi::EngineId;
use dxgkrnl::why::{Verdict, WaiterKind};
use dxgkrnl::{Fault, Input};

const BASIC_ENGINE: EngineId = EngineId { adapter: 0, node: BASIC };

#[test]
fn a_hang_without_timeout_detection_is_named_with_its_engine() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let (context, fence) = (world.context(device, ADVANCED), world.fence(device, 0).object);
    world.submit(context, &[Hang]);
    world.gpu_signal(&[context], fence, 1);
    world.pending(device, &[(fence, 1)], false);
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::Hang { engine: (0, ADVANCED), looked_at: None });
    // The submission itself and its waits.
    assert_eq!(cause.waiters_count, 2);
    let waiter = cause.waiters.iter().any(|waiter| matches!(waiter.kind, WaiterKind::Cpu { event: 1 }));
    assert!(waiter, "{cause:?}");
    let of_wait = world.kernel.why(&dxgkrnl::why::Question { event: Some(1), ..Default::default() });
    let cause = &of_wait.causes[0];
    assert_eq!(comes_down_to(cause), ("hang", (1, fence), 0, 1));
    assert!(
        chain(cause).contains(&format!("hangs in submission 1 of context {context} of p1")),
        "{}",
        chain(cause)
    );
    world.finish();
}

#[test]
fn a_hang_reports_when_timeout_detection_is_due() {
    let mut world = World::new();
    let device = world.device();
    let (context, fence) = (world.context(device, ADVANCED), world.fence(device, 0));
    world.submit(context, &[Hang, write(&fence, 1)]);
    world.pending(device, &[(fence.object, 1)], false);
    let Verdict::Hang { engine: (0, ADVANCED), looked_at: Some(at) } = only(&world).verdict else { panic!() };
    assert!(at > world.now, "{at}");
    world.advance(10_000_000_000);
    assert_eq!(why(&world).waiting, 0, "the reset ended the wait");
    world.finish();
}

/// Begins a SynchronousDestroy, whose thread then waits.
fn destroy(world: &mut World, device: Handle) -> u64 {
    let allocations = vec![create(world, device, CreateAllocationFlags::empty()).2];
    let flags = DestroyAllocationFlags::SYNCHRONOUS_DESTROY;
    let request = world.begin(Call::DestroyAllocation { device, resource: Handle::NULL, allocations, flags });
    assert_eq!(world.answered(request), None);
    request
}

#[test]
fn a_synchronous_destroy_waits_for_the_work_before_it_that_an_engine_has() {
    for is_hw_queue in [false, true] {
        for waits in [false, true] {
            let mut world = World::with_config(without_timeouts());
            let device = world.device();
            let fence = world.native(device);
            let packet = if waits { wait(&fence, 1) } else { Hang };
            if is_hw_queue {
                let queue = world.queue_on(device, ADVANCED, HwQueueFlags::empty());
                assert_eq!(world.submit_hw(queue, 1, &[packet, write(&queue.fence, 1)]), OK);
            } else {
                let context = world.context(device, ADVANCED);
                world.submit(context, &[packet]);
            }
            let request = destroy(&mut world, device);
            let cause = only(&world);
            assert_eq!(cause.waiters_count, 2, "the submission and the thread");
            if !waits {
                assert_eq!(cause.verdict, Verdict::Hang { engine: (0, ADVANCED), looked_at: None });
                continue;
            }
            assert!(matches!(cause.verdict, Verdict::Cycle { has_process: true, .. }), "{:?}", cause.verdict);
            assert_eq!(comes_down_to(&cause), ("cycle", (1, fence.object), 0, 1));
            world.input(Input::Call { process: P, request: 0, call: calls::signal(device, fence.object, 1) });
            world.advance(1_000_000);
            assert_eq!(world.answered(request).map(|answer| answer.0), Some(OK));
            world.finish();
        }
    }
}

#[test]
fn a_synchronous_destroy_does_not_wait_for_work_behind_it() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, HwQueueFlags::empty());
    assert_eq!(world.submit_hw(queue, 1, &[busy(500), write(&queue.fence, 1)]), OK);
    let request = destroy(&mut world, device);
    assert_eq!(world.submit_hw(queue, 2, &[Hang]), OK);
    assert_eq!(only(&world).verdict, Verdict::Progressing { due: Some(500) });
    world.advance(1_000);
    assert_eq!(world.answered(request).map(|answer| answer.0), Some(OK));
}

#[test]
fn an_interrupt_that_was_lost_is_named_with_the_submission() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let (context, fence) = (world.context(device, BASIC), world.fence(device, 0));
    world.input(Input::Fault(Fault::LoseInterrupt { engine: BASIC_ENGINE }));
    world.submit(context, &[busy(100), write(&fence, 3)]);
    world.pending(device, &[(fence.object, 3)], false);
    assert_eq!(only(&world).verdict, Verdict::Progressing { due: Some(100) });
    world.advance(1_000);
    assert_eq!(world.value(fence.object), 3, "the value is in memory");
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::LostInterrupt { engine: (0, BASIC), looked_at: None });
    let text = why(&world).to_string();
    assert!(text.contains("3 is in memory, which reaches 3"), "{text}");
    // The next submission of the engine will complete it, and the report says so.
    world.submit(context, &[busy(500)]);
    let other = world.context(device, BASIC);
    world.submit(other, &[busy(500)]);
    assert!(!of(&world, 1).verdict.is_stuck(), "{}", why(&world));
    world.advance(1_000);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

/// Not a lost interrupt: the engine has nothing to report.
#[test]
fn a_hardware_queue_whose_progress_fence_is_not_written_waits_for_who_can_write_it() {
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, BASIC, HwQueueFlags::empty());
    assert_eq!(world.submit_hw(queue, 7, &[busy(100)]), OK);
    assert_eq!(why(&world).waiting, 0, "it runs");
    // Past the time-out, which finds the engine idle.
    world.advance(5_000_000_000);
    let cause = only(&world);
    assert!(is_waits_for(&cause, 1) && cause.waiters[0].since.is_none(), "{cause:?}");
    assert_eq!(comes_down_to(&cause), ("waits-for", (1, queue.fence.object), 0, 7));
    let notes: Vec<&str> = world.effects.notes.iter().map(|note| &*note.text).collect();
    assert!(notes.iter().any(|note| note.contains("progress fence was not written")), "{notes:?}");
    let other = world.context(device, BASIC);
    world.submit(other, &[write(&queue.fence, 7)]);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

#[test]
fn a_wait_behind_another_processs_hang_is_traced_through_the_queue() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let other = world.other(2);
    world.process = P;
    let (fence, theirs) = fence_with(&mut world, device, (Q, other));
    let context = acts(&mut world, Q, |world| {
        let (context, own) = (world.context(other, ADVANCED), world.fence(other, 0).object);
        world.submit(context, &[Hang]);
        world.gpu_signal(&[context], own, 1);
        world.gpu_signal(&[context], theirs, 8);
        context
    });
    world.pending(device, &[(fence, 8)], false);
    let cause = of(&world, 1);
    assert_eq!(comes_down_to(&cause), ("hang", (1, fence), 0, 8));
    let chain = chain(&cause);
    assert!(chain.contains(&format!("a signal to 8 is packet 2 of 2 in context {context} of p2")), "{chain}");
    world.finish();
}

#[test]
fn a_hung_paging_engine_blocks_waits_for_its_paging_fence() {
    let config = dxgkrnl::Config { tdr: without_timeouts().tdr, ..paging_on(BASIC) };
    let mut world = World::with_config(config);
    let device = world.device();
    let (paging_queue, fence) = crate::paging::queue(&mut world, device, 0);
    world.input(Input::Fault(Fault::Hang { engine: BASIC_ENGINE }));
    let (_, value) = crate::paging::map(&mut world, paging_queue, 1);
    let context = world.context(device, ADVANCED);
    world.gpu_wait(context, fence.object, value);
    let of_wait = why(&world);
    assert_eq!(of_wait.causes.len(), 1);
    let cause = &of_wait.causes[0];
    assert_eq!(comes_down_to(cause), ("hang", (1, fence.object), 0, value));
    assert!(chain(cause).contains(&format!("paging queue {paging_queue} of p1")), "{}", chain(cause));
    world.finish();
}

#[test]
fn a_doorbell_that_was_not_rung_is_reported() {
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    world.doorbell(queue);
    // Never connected: the ring hits the dummy page.
    world.ring(queue, 5, &[&[write(&queue.fence, 5)]]);
    world.pending(device, &[(queue.fence.object, 5)], false);
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::NotRung { process: 1 });
    assert_eq!(comes_down_to(&cause), ("not-rung", (1, queue.fence.object), 0, 5));
    let chain = chain(&cause);
    assert!(chain.contains(&format!("hardware queue {} of p1 has work up to 5", queue.handle)), "{chain}");
    assert!(chain.contains("its doorbell's status is 2"), "{chain}");
    assert_eq!(world.connect(queue), OK);
    world.ring(queue, 5, &[&[write(&queue.fence, 5)]]);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

#[test]
fn a_suspended_context_is_reported_for_its_work() {
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NONE);
    world.submit_hw(queue, 1, &[busy(100), write(&queue.fence, 1)]);
    world.pending(device, &[(queue.fence.object, 1)], false);
    assert_eq!(only(&world).verdict, Verdict::Progressing { due: Some(100) });
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    world.advance(1_000_000);
    let cause = only(&world);
    assert_eq!(cause.verdict, Verdict::Suspended { process: 1, adapter: 0 });
    let wait = cause.waiters.iter().find(|waiter| matches!(waiter.kind, WaiterKind::Cpu { .. })).unwrap();
    assert_eq!((wait.missing[0].current, wait.missing[0].needed), (0, 1));
    world.input(Input::Fault(Fault::Power { adapter: 0, on: true }));
    world.advance(1_000_000);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}

#[test]
fn a_hardware_wait_is_reported_with_its_native_fence() {
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NATIVE);
    let native = world.native(device);
    world.submit_hw(queue, 1, &[wait(&native, 4), write(&queue.fence, 1)]);
    world.pending(device, &[(queue.fence.object, 1)], false);
    let cause = of(&world, 1);
    // The process itself waits on the CPU for a value that only it can signal.
    assert_eq!(comes_down_to(&cause).0, "cycle");
    let chain = chain(&cause);
    assert!(chain.contains(&format!("native fence {} of p1 is 0, needs 4", native.object)), "{chain}");
    assert!(chain.contains("which waits in hardware"), "{chain}");
    world.signal(device, native.object, 4);
    assert_eq!(why(&world).waiting, 0);
    world.finish();
}
