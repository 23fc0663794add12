//! A timeout loses the device whose work hangs; a preemption whose answer was lost is requested again.

use covers::covers;

use crate::common::hardware::{NONE, busy, wait, write};
use crate::common::scripted::{inject, interrupt, scripted};
use crate::common::{OK, World};
use d3dkmt::escape::{kind, tdr_debug_control as tdr};
use d3dkmt::isa::Packet::*;
use d3dkmt::{Call, EscapeFlags, Handle};
use dxgkrnl::ddi::Interrupt;
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Input, TdrConfig, VidSchCaps};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const MS: u64 = 1_000_000;
const TDR_DELAY: u64 = 2000 * MS;
const ACTIVE: u32 = 1;
const HUNG: u32 = 3;

fn engine_resets(world: &World) -> u64 {
    world.kernel.snapshot().engine_resets
}

fn force(world: &mut World, adapter: Handle, value: u32) {
    let call = Call::Escape {
        adapter,
        device: Handle::NULL,
        context: Handle::NULL,
        kind: kind::TDR_DEBUG_CONTROL,
        flags: EscapeFlags::empty(),
        data: value.to_le_bytes().to_vec(),
    };
    assert_eq!(world.status(call), OK);
}

/// A hardware queue with a wait that no signal satisfies, on an idle engine, since 100 ms before TdrDelay.
fn old_wait(world: &mut World) -> Handle {
    let device = world.device();
    let queue = world.queue_on(device, 0, NONE);
    let gate = world.native(device);
    assert_eq!(world.submit_hw(queue, 1, &[wait(&gate, 1)]), OK);
    world.advance(TDR_DELAY - 100 * MS);
    device
}

#[test]
fn work_that_is_begun_late_is_not_the_culprit_of_an_old_wait_in_hardware() {
    covers!("TDR-012");
    for in_hardware in [false, true] {
        let mut world = World::new();
        let waiting = old_wait(&mut world);
        let device = world.device();
        let fence = world.fence(device, 0);
        let packets = [busy(1000 * MS), write(&fence, 1)];
        if in_hardware {
            let queue = world.queue_on(device, 0, NONE);
            world.submit_hw(queue, 1, &packets);
        } else {
            let context = world.context(device, 0);
            world.submit(context, &packets);
        }
        world.advance(1000 * MS);
        let states = [waiting, device].map(|device| world.execution_state(device));
        assert_eq!((engine_resets(&world), states), (0, [ACTIVE, ACTIVE]), "in hardware: {in_hardware}");
        assert_eq!(world.value(fence.object), 1);
    }
}

#[test]
fn a_preemption_whose_interrupt_is_lost_is_asked_for_again() {
    let (mut world, script) = scripted(Config::default());
    script.borrow().responsive = None;
    let device = world.device();
    let fence = world.fence(device, 0);
    let context = world.context(device, 0);
    world.submit(context, &[busy(100 * MS + 1), busy(1), write(&fence, 1)]);
    world.advance(100 * MS);
    world.input(Input::Fault(Fault::LoseInterrupt { engine: ENGINE }));
    world.advance(TDR_DELAY - 1);
    assert_eq!(world.value(fence.object), 0, "the engine was preempted, and the interrupt was lost");
    world.advance(10 * MS);
    assert_eq!((world.value(fence.object), world.execution_state(device)), (1, ACTIVE));
    assert_eq!(world.kernel.next_deadline(), None);
}

#[test]
fn a_preemption_that_is_answered_with_another_id_times_out_though_the_engine_reports_progress() {
    covers!("TDR-001");
    for (answered, hides_what_runs) in [(0, false), (999, false), (999, true)] {
        let (mut world, script) = scripted(Config::default());
        script.borrow().responsive = Some(true);
        script.borrow().hides_what_runs = hides_what_runs;
        let (engine, last_completed_fence_id) = (ENGINE, 0);
        let answer = interrupt(Interrupt::DmaPreempted {
            engine,
            preemption_fence_id: answered,
            last_completed_fence_id,
        });
        let device = world.device();
        let context = world.context(device, 0);
        world.submit(context, &[busy(100 * MS + 1), busy(1)]);
        // The engine stops, and its right answers are lost.
        world.advance(100 * MS);
        for _ in 0..2 {
            world.input(Input::Fault(Fault::LoseInterrupt { engine: ENGINE }));
        }
        for _ in 0..2 {
            world.advance(1000 * MS);
            inject(&mut world, &script, vec![answer.clone()]);
            assert!(
                world.notes().iter().any(|note| note.contains(&format!("reports preemption {answered}")))
            );
            assert_eq!((engine_resets(&world), world.execution_state(device)), (0, ACTIVE));
            world.advance(1000 * MS);
        }
        assert_eq!(engine_resets(&world), 1, "{answered}");
        // The driver had aborted nothing, so the work is submitted again.
        world.advance(10 * MS);
        assert_eq!((world.kernel.engines_idle(), world.execution_state(device)), (true, ACTIVE));
        assert_eq!(world.kernel.next_deadline(), None);
    }
}

#[test]
fn an_engine_is_asked_twice_to_preempt_also_with_a_short_delay() {
    covers!("TDR-001");
    const DELAY: u64 = 50 * MS;
    let tdr = TdrConfig { delay_ns: DELAY, ..TdrConfig::default() };
    let (mut world, script) = scripted(Config { tdr, ..Config::default() });
    script.borrow().responsive = Some(true);
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(100 * MS + 1), busy(1)]);
    world.advance(100 * MS);
    // The first answer is lost, the second comes.
    world.input(Input::Fault(Fault::LoseInterrupt { engine: ENGINE }));
    world.advance(DELAY + 10 * MS);
    assert_eq!((engine_resets(&world), world.execution_state(device)), (0, ACTIVE));
    assert!(world.kernel.engines_idle());
}

#[test]
fn an_interrupt_from_before_the_reset_of_its_adapter_is_void() {
    covers!("TDR-012");
    let tdr = TdrConfig { test_mode: true, ..TdrConfig::default() };
    let (mut world, script) = scripted(Config { tdr, ..Config::default() });
    let adapter = world.adapter();
    let device = world.device();
    // Completions are recorded, and no DPC asks for them.
    script.borrow().forgets_dpc = true;
    for duration in [1, 100 * MS] {
        let context = world.context(device, 0);
        world.submit(context, &[busy(duration)]);
    }
    world.advance(10);
    force(&mut world, adapter, tdr::FORCE_TDR);
    script.borrow().forgets_dpc = false;
    assert_eq!(world.kernel.snapshot().adapter_resets, 1);
    let later = world.device();
    let context = world.context(later, 0);
    world.submit(context, &[busy(1)]);
    world.advance(10);
    assert_eq!((world.kernel.bugchecked(), world.kernel.engines_idle()), (None, true));
}

#[test]
fn an_engine_is_reset_by_force_after_its_adapter_was() {
    covers!("TDR-013", "TDR-038");
    let values = [tdr::FORCE_TDR, tdr::ENGINE_TDR];
    for (order, between) in [([0, 1, 0], false), ([0, 1, 1], true), ([1, 0, 1], true), ([0, 0, 1], false)] {
        let config =
            Config { tdr: TdrConfig { test_mode: true, ..TdrConfig::default() }, ..Config::default() };
        let mut world = World::with_config(config);
        let adapter = world.adapter();
        for (round, at) in order.into_iter().enumerate() {
            if round == 0 || between {
                let device = world.device();
                let [first, second] = [0; 2].map(|_| world.context(device, 0));
                world.submit(first, &[]);
                world.submit(first, &[Hang]);
                world.submit(second, &[Hang]);
            }
            force(&mut world, adapter, values[at]);
            assert_eq!(world.kernel.bugchecked(), None, "{order:?}");
        }
    }
}

#[test]
fn an_engine_is_reset_by_force_after_a_hardware_queue_took_its_contexts_own_work_along() {
    covers!("TDR-013");
    let config = Config { tdr: TdrConfig { test_mode: true, ..TdrConfig::default() }, ..Config::default() };
    let mut world = World::with_config(config);
    let adapter = world.adapter();
    let device = world.device();
    let context = world.hw_context(device, 0);
    let queue = world.hw_queue(context, NONE);
    world.submit_hw(queue, 1, &[Hang]);
    world.submit(context, &[]);
    world.advance(2 * TDR_DELAY);
    assert_eq!((engine_resets(&world), world.execution_state(device)), (1, HUNG));
    world.ok(Call::DestroyDevice { device });
    force(&mut world, adapter, tdr::ENGINE_TDR);
    assert_eq!(world.kernel.bugchecked(), None);
}

#[test]
fn an_engine_that_cannot_be_preempted_is_asked_once_for_each_delay() {
    let caps = VidSchCaps::MULTI_ENGINE_AWARE | VidSchCaps::SUPPORT_PER_ENGINE_TDR;
    let adapter = AdapterConfig { caps, ..AdapterConfig::default() };
    let (mut world, script) = scripted(Config { adapters: vec![adapter], ..Config::default() });
    script.borrow().responsive = None;
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(10)]);
    world.input(Input::Fault(Fault::LoseInterrupt { engine: ENGINE }));
    world.advance(TDR_DELAY + 100 * MS);
    assert_eq!(
        world.kernel.next_deadline(),
        Some(2 * TDR_DELAY),
        "the engine is idle, and the kernel does not know it"
    );
    // The completion of the next buffer also completes this one.
    let other = world.context(device, 0);
    world.submit(other, &[]);
    assert_eq!((world.kernel.next_deadline(), world.execution_state(device)), (None, ACTIVE));
}
