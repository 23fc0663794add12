//! Context suspends, here caused by power changes: acknowledged, late, or never acknowledged.

use covers::covers;

use crate::common::World;
use crate::common::hardware::*;
use crate::common::scripted::{ScriptRef, calls, inject, scripted};
use d3dkmt::isa::Packet::Hang;
use dxgkrnl::ddi::{Callback, EngineId, HwContext, Interrupt};
use dxgkrnl::{Config, Fault, Input};

const RETRY: u64 = 2;

fn power(world: &mut World, on: bool) {
    world.input(Input::Fault(Fault::Power { adapter: 0, on }));
}

/// Interrupt 17.
fn acknowledge(world: &mut World, script: &ScriptRef, suspend_fence: u64) {
    let engine = EngineId { adapter: 0, node: ADVANCED };
    let context = HwContext(0);
    let interrupt = Interrupt::SuspendContextCompleted { engine, context, suspend_fence };
    inject(world, script, vec![Callback::NotifyInterrupt(interrupt)]);
}

const NAMES: [&str; 3] = ["suspend_context", "resume_context", "set_power_state"];

#[test]
fn a_pending_suspend_ends_with_its_own_acknowledgement_and_not_with_an_older_one() {
    covers!("SCH-020");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    let slot = world.doorbell(queue);
    assert_eq!(world.connect(queue), OK);
    script.borrow().holds_suspends = true;
    power(&mut world, false);
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 1"], "D3 waits");
    power(&mut world, true);
    assert_eq!(calls(&script, &NAMES), ["set_power_state 0 true", "resume_context 0"]);
    power(&mut world, false);
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 2"], "suspend numbers grow");
    world.stores();
    acknowledge(&mut world, &script, 1);
    assert_eq!((world.stores(), calls(&script, &NAMES)), (vec![], vec![]));
    assert!(world.notes().iter().any(|note| note.contains("late")));
    acknowledge(&mut world, &script, 2);
    assert_eq!(world.stores(), [(slot, RETRY)]);
    assert_eq!(calls(&script, &NAMES), ["set_power_state 0 false"]);
    acknowledge(&mut world, &script, 2);
    assert_eq!((world.stores(), world.notes()), (vec![], vec![]), "a second acknowledgement has no effect");
    script.borrow().holds_suspends = false;
    power(&mut world, true);
    // A driver that returns SUCCESS at once needs no interrupt.
    power(&mut world, false);
    let expected =
        ["set_power_state 0 true", "resume_context 0", "suspend_context 0 3", "set_power_state 0 false"];
    assert_eq!(calls(&script, &NAMES), expected);
    world.finish();
}

#[test]
fn the_simulated_engine_acknowledges_when_the_packet_that_runs_is_over() {
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[busy(100), write(&queue.fence, 1)]), OK);
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    world.advance(1_000_000);
    assert_eq!(world.view(queue).progress, 0, "the rest of the buffer waits");
    world.input(Input::Fault(Fault::Power { adapter: 0, on: true }));
    assert_eq!(world.view(queue).progress, 1);
    world.finish();
}

#[test]
fn contexts_are_created_resumed() {
    covers!("SCH-022");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[write(&queue.fence, 1)]), OK);
    assert_eq!(world.view(queue).progress, 1);
    assert_eq!(calls(&script, &NAMES), Vec::<String>::new(), "the driver gets no suspend or resume call");
    world.finish();
}

#[test]
fn a_suspend_that_is_not_acknowledged_is_noticed_after_tdr_delay() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[Hang]), OK);
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 1"]);
    let delay = Config::default().tdr.delay_ns;
    world.advance(delay - 1);
    assert_eq!(world.notes(), Vec::<String>::new());
    world.advance(1);
    assert!(world.notes().iter().any(|note| note.contains("did not acknowledge suspend 1")));
    assert_eq!(world.kernel.next_deadline(), None, "the missing acknowledgement is reported once");
    // SCH-021: the engine is reset, and with that the context is suspended.
    assert_eq!((world.execution_state(device), world.kernel.snapshot().engine_resets), (3, 1));
    assert_eq!(calls(&script, &NAMES), ["set_power_state 0 false"], "nothing else keeps the adapter in D0");
    world.finish();
}

#[test]
fn work_of_a_software_context_keeps_an_adapter_in_d0_and_new_work_wakes_it() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    let context = world.context(device, ADVANCED);
    assert_eq!(world.submit(context, &[busy(100)]), OK);
    power(&mut world, false);
    assert_eq!(calls(&script, &NAMES), Vec::<String>::new());
    world.advance(100);
    power(&mut world, false);
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 1", "set_power_state 0 false"]);
    assert_eq!(world.submit_hw(queue, 1, &[write(&queue.fence, 1)]), OK);
    assert_eq!(calls(&script, &NAMES), ["set_power_state 0 true", "resume_context 0"]);
    assert_eq!(world.view(queue).progress, 1);
    world.finish();
}

#[test]
fn a_submission_behind_a_signal_of_work_that_d3_suspended_wakes_the_adapter() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, NONE);
    let fence = world.fence(device, 0);
    assert_eq!(world.submit_hw(queue, 1, &[busy(100), write(&queue.fence, 1)]), OK);
    power(&mut world, false);
    world.advance(1000);
    assert_eq!(world.signal_hw(&[queue], fence.object, 1), OK);
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 1", "set_power_state 0 false"]);
    assert_eq!(world.submit_hw(queue, 2, &[write(&queue.fence, 2)]), OK);
    assert_eq!(calls(&script, &NAMES), ["set_power_state 0 true", "resume_context 0"]);
    world.advance(1000);
    assert_eq!((world.view(queue).progress, world.value(fence.object)), (2, 1));
    world.finish();
}

#[test]
fn a_submission_behind_a_wait_for_work_that_d3_suspended_wakes_the_adapter() {
    for of_context in [false, true] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let [first, second] = [0; 2].map(|_| world.queue_on(device, ADVANCED, NONE));
        let context = world.context(device, 0);
        let fence = world.fence(device, 0);
        assert_eq!(world.submit_hw(first, 1, &[busy(100), write(&first.fence, 1)]), OK);
        power(&mut world, false);
        world.advance(1000);
        assert_eq!(world.signal_hw(&[first], fence.object, 1), OK);
        calls(&script, &NAMES);
        if of_context {
            assert_eq!(world.gpu_wait(context, fence.object, 1), OK);
            assert_eq!(world.submit(context, &[busy(1)]), OK);
        } else {
            assert_eq!(world.wait_hw(second, fence.object, 1), OK);
            assert_eq!(world.submit_hw(second, 1, &[write(&second.fence, 1)]), OK);
        }
        assert!(calls(&script, &NAMES).contains(&"set_power_state 0 true".to_owned()));
        world.advance(1000);
        assert_eq!((world.value(fence.object), world.kernel.engines_idle()), (1, true));
        world.finish();
    }
}

#[test]
fn a_suspend_is_acknowledged_when_the_buffer_that_runs_is_dropped() {
    covers!("SCH-020");
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queue = world.hw_queue(context, NONE);
    assert_eq!(world.submit_hw(queue, 1, &[busy(10_000_000_000)]), OK);
    power(&mut world, false);
    assert!(world.kernel.next_deadline().is_some(), "the acknowledgement is awaited");
    world.ok(d3dkmt::Call::DestroyHwQueue { queue: queue.handle });
    assert_eq!(world.kernel.next_deadline(), None, "it came with the end of the buffer");
    assert_eq!(world.notes(), Vec::<String>::new());
    assert_eq!(world.kernel.snapshot().engine_resets, 0);
    world.finish();
}

#[test]
fn a_context_may_be_destroyed_while_its_suspend_is_pending() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    world.queue_on(device, ADVANCED, USER_MODE);
    script.borrow().holds_suspends = true;
    power(&mut world, false);
    assert_eq!(calls(&script, &NAMES), ["suspend_context 0 1"]);
    assert_eq!(world.status(d3dkmt::Call::DestroyDevice { device }), OK);
    assert_eq!(world.kernel.next_deadline(), None);
    assert_eq!(
        calls(&script, &NAMES),
        ["set_power_state 0 false"],
        "no other context keeps the adapter in D0"
    );
    acknowledge(&mut world, &script, 1);
    power(&mut world, true);
    world.finish();
}
