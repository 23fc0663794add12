//! Work that does not end: detection, and engine resets.

use covers::covers;

use crate::common::hardware::busy;
use crate::common::scripted::{ScriptRef, inject, interrupt, paging_on, scripted, scripted_by};
use crate::common::{OK, P, World};
use crate::paging::{map, queue};
use d3dkmt::isa::Packet::*;
use d3dkmt::{Call, CreateContextFlags as C, Handle, HwQueueFlags, NtStatus};
use dxgkrnl::ddi::{
    Callback, EngineState, HwContext, Interrupt, Invalidation, PageFaultFlags, PerEngineTdrDdis,
};
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Input, TdrConfig, VidSchCaps};

const REMOVED: NtStatus = NtStatus::DEVICE_REMOVED;
const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const OTHER: EngineId = EngineId { adapter: 0, node: 1 };
const MS: u64 = 1_000_000;
/// From the submission to the request, and to the timeout.
const REQUEST: u64 = 100 * MS;
const TIMEOUT: u64 = 2100 * MS;
const ACTIVE: u32 = 1;
const RESET: u32 = 2;
const HUNG: u32 = 3;
const STOPPED: u32 = 4;

fn config(tdr: TdrConfig) -> Config {
    Config { tdr, ..Config::default() }
}

fn with_caps(caps: VidSchCaps) -> Config {
    Config { adapters: vec![AdapterConfig { caps, ..AdapterConfig::default() }], ..Config::default() }
}

fn fault(world: &mut World, fault: Fault) {
    world.input(Input::Fault(fault));
}

/// Number of engine and adapter resets, and the bugcheck code.
fn resets(world: &World) -> (u64, u64, Option<u32>) {
    let snapshot = world.kernel.snapshot();
    (snapshot.engine_resets, snapshot.adapter_resets, snapshot.bugcheck.map(|bugcheck| bugcheck.code))
}

/// A device with a context of this node that hangs.
fn hung(world: &mut World, node: u32) -> (Handle, Handle) {
    let device = world.device();
    let context = world.context(device, node);
    assert_eq!(world.submit(context, &[Hang]), OK);
    (device, context)
}

fn in_order(script: &ScriptRef, expected: &[&str]) {
    assert_eq!(script.borrow().ddis(), expected);
}

#[test]
fn an_engine_that_does_not_answer_a_preemption_request_for_two_seconds_has_timed_out() {
    covers!("TDR-001");
    let (mut world, script) = scripted(Config::default());
    let (device, context) = hung(&mut world, 0);
    script.borrow().take();
    world.advance(REQUEST - 1);
    in_order(&script, &[]);
    world.advance(1);
    in_order(&script, &["preempt_command"]);
    world.advance(TIMEOUT - REQUEST - 1);
    in_order(&script, &[]);
    assert_eq!((resets(&world), world.execution_state(device)), ((0, 0, None), ACTIVE));
    world.advance(1);
    assert_eq!((resets(&world), world.execution_state(device)), ((1, 0, None), HUNG));
    assert!(world.notes().iter().any(|note| note.contains("engine 0.0 is reset (0x141, timeout)")));
    assert_eq!(world.submit(context, &[]), REMOVED);
    assert_eq!(world.kernel.next_deadline(), None);
}

#[test]
fn the_steps_of_an_engine_reset_come_in_their_order() {
    covers!("TDR-012");
    let (mut world, script) = scripted(Config::default());
    hung(&mut world, 0);
    world.advance(REQUEST - 1);
    script.borrow().take();
    world.advance(TIMEOUT);
    let steps =
        ["preempt_command", "query_engine_status", "dpc", "query_dependent_engine_group", "reset_engine 0"];
    assert_eq!(script.borrow().take(), steps, "only the flushed DPC runs");
}

#[test]
fn nothing_is_reset_if_the_queue_turns_out_to_be_empty() {
    covers!("TDR-012");
    let (mut world, script) = scripted(Config::default());
    let (device, _) = hung(&mut world, 0);
    let completed = Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id: 1 };
    script.borrow().call_back("query_engine_status", vec![interrupt(completed)]);
    world.advance(TIMEOUT);
    in_order(&script, &["submit_command", "preempt_command", "query_engine_status"]);
    assert_eq!((resets(&world), world.execution_state(device)), ((0, 0, None), ACTIVE));
}

#[test]
fn an_engine_that_reports_progress_gets_another_delay() {
    let (mut world, script) = scripted(Config::default());
    hung(&mut world, 0);
    script.borrow().responsive = Some(true);
    world.advance(TIMEOUT);
    assert_eq!(resets(&world), (0, 0, None));
    script.borrow().responsive = Some(false);
    world.advance(2000 * MS - 1);
    assert_eq!(resets(&world), (0, 0, None));
    world.advance(1);
    assert_eq!(resets(&world), (1, 0, None));
}

#[test]
fn work_completed_between_snapshot_and_reset_is_lost() {
    covers!("TDR-012", "TDR-015");
    let (mut world, script) = scripted(Config::default());
    // The dependent engine does not stop for 500 ms; meanwhile the packet that timed out completes.
    script.borrow().dependents = Some(1 << OTHER.node);
    let [device, bystander] = [0; 2].map(|_| world.device());
    let (context, dependent) = (world.context(device, 0), world.context(bystander, OTHER.node));
    let behind = world.fence(device, 0).object;
    world.submit(context, &[busy(TIMEOUT + 100 * MS)]);
    world.gpu_signal(&[context], behind, 1);
    world.advance(2000 * MS);
    world.submit(dependent, &[busy(1500 * MS)]);
    world.advance(100 * MS);
    world.notes();
    world.advance(100 * MS);
    assert_eq!(world.kernel.snapshot().engines[0].state, EngineState::Idle, "the engine is in fact idle");
    assert!(world.notes().iter().any(|note| note == "interrupt 1 of an engine under reset is ignored"));
    assert_eq!(world.execution_state(device), ACTIVE, "not yet");
    world.advance(400 * MS - 1);
    assert_eq!(resets(&world), (0, 0, None));
    world.advance(1);
    assert_eq!((resets(&world), world.execution_state(device)), ((2, 0, None), HUNG));
    assert_eq!(world.value(behind), u64::MAX, "the signal behind it never happened; the fence is poisoned");
}

#[test]
fn faults_and_timeouts_that_an_engine_under_reset_reports_are_ignored() {
    covers!("TDR-012");
    let (engine, faulted_fence_id, gpu_address, flags) = (ENGINE, 1, 0x1000, PageFaultFlags::empty());
    for late in [
        Interrupt::DmaFaulted { engine, faulted_fence_id },
        Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags },
        Interrupt::GpuEngineTimeout { engine },
    ] {
        let (mut world, script) = scripted(Config::default());
        script.borrow().dependents = Some(1 << OTHER.node);
        let [device, bystander] = [hung(&mut world, 0).0, world.device()];
        let dependent = world.context(bystander, OTHER.node);
        world.advance(2000 * MS);
        world.submit(dependent, &[busy(1500 * MS)]);
        world.advance(100 * MS);
        world.notes();
        let ignored = format!("interrupt {} of an engine under reset is ignored", late.number());
        inject(&mut world, &script, vec![interrupt(late)]);
        assert_eq!((world.notes(), world.execution_state(device)), (vec![ignored], ACTIVE));
        world.advance(500 * MS);
        assert_eq!((resets(&world), world.execution_state(device)), ((2, 0, None), HUNG));
    }
}

#[test]
fn dependent_engines_get_half_a_second_and_are_reset_in_order() {
    covers!("TDR-018");
    // Node 2 stops in time, node 4 does not.
    let (mut world, script) = scripted(Config::default());
    script.borrow().dependents = Some(1 << 2 | 1 << 4);
    let (guilty, _) = hung(&mut world, 3);
    let [polite, rude] = [0; 2].map(|_| world.device());
    let (two, four) = (world.context(polite, 2), world.context(rude, 4));
    world.advance(2000 * MS);
    let fence = world.fence(polite, 0);
    world.submit(
        two,
        &[busy(200 * MS), busy(200 * MS), FenceWrite { gpu_address: fence.gpu_address, value: 1 }],
    );
    world.submit(four, &[busy(1000 * MS), busy(MS)]);
    script.borrow().take();
    world.advance(100 * MS + 500 * MS - 1);
    assert_eq!(resets(&world), (0, 0, None));
    // Their own quantum ended at the same time: one preemption request each.
    in_order(
        &script,
        &["preempt_command", "preempt_command", "query_engine_status", "query_dependent_engine_group"],
    );
    world.advance(1);
    let order = ["reset_engine 2", "reset_engine 3", "reset_engine 4", "submit_command"];
    in_order(&script, &order);
    let states = [guilty, polite, rude].map(|device| world.execution_state(device));
    assert_eq!(states, [HUNG, ACTIVE, HUNG], "an engine that stopped in time keeps its work");
    world.advance(1000 * MS);
    assert_eq!(world.value(fence.object), 1);
}

#[test]
fn dependent_engines_without_the_engine_itself_are_a_bugcheck() {
    covers!("TDR-018");
    let (mut world, script) = scripted(Config::default());
    script.borrow().dependents = None;
    hung(&mut world, 3);
    world.advance(TIMEOUT);
    assert_eq!(resets(&world), (0, 0, Some(0x119)));
    assert_eq!(world.kernel.bugchecked().map(|bugcheck| bugcheck.parameters), Some([8, 0, 3, 0]));
}

#[test]
fn an_engine_that_is_about_to_be_reset_gets_no_buffer_of_a_hardware_queue() {
    covers!("TDR-012");
    let (mut world, script) = scripted(Config::default());
    script.borrow().dependents = Some(1 << OTHER.node);
    hung(&mut world, 0);
    let [bystander, rude] = [0; 2].map(|_| world.device());
    let queue = world.queue_on(bystander, 0, HwQueueFlags::empty());
    let dependent = world.context(rude, OTHER.node);
    world.advance(2000 * MS);
    world.submit(dependent, &[busy(1500 * MS)]);
    world.advance(100 * MS);
    script.borrow().take();
    assert_eq!(world.submit_hw(queue, 1, &[busy(100)]), OK);
    in_order(&script, &[]);
    world.advance(500 * MS);
    let resets = ["reset_hw_engine 0", "resume_hw_engine 0", "reset_engine 1"];
    in_order(&script, &[&resets[..], &["submit_command_to_hw_queue 0 1"]].concat());
}

#[test]
fn two_engines_of_one_group_that_hang_together_are_reset_together() {
    covers!("TDR-012", "TDR-018");
    let (mut world, script) = scripted(Config::default());
    script.borrow().dependents = Some(1 | 1 << OTHER.node);
    let devices = [0, OTHER.node].map(|node| hung(&mut world, node).0);
    world.advance(TIMEOUT - 1);
    world.now += 1;
    world.input(Input::Deadline);
    let due = world.kernel.next_deadline();
    assert_eq!(due, Some(world.now + 500 * MS), "the other engine's watch stands still");
    world.advance(500 * MS);
    assert_eq!(resets(&world), (2, 0, None));
    assert_eq!(devices.map(|device| world.execution_state(device)), [HUNG, HUNG]);
    world.finish();
}

#[test]
fn a_device_lost_before_its_page_fault_has_no_record_of_it() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (hangs, faults) = (world.context(device, 0), world.context(device, OTHER.node));
    assert_eq!(world.submit(hangs, &[Hang]), OK);
    world.advance(1000 * MS);
    assert_eq!(world.submit(faults, &[busy(3000 * MS)]), OK);
    world.advance(TIMEOUT - 1000 * MS);
    assert_eq!(world.execution_state(device), HUNG);
    let faulted = Interrupt::DmaPageFaulted {
        engine: OTHER,
        faulted_fence_id: 1,
        gpu_address: 0x1000,
        flags: PageFaultFlags::empty(),
    };
    inject(&mut world, &script, vec![interrupt(faulted)]);
    let status = world.kernel.snapshot().devices.into_iter().find(|one| one.handle == device).unwrap();
    assert_eq!(status.page_fault_address, 0);
}

#[test]
fn a_last_aborted_id_outside_of_what_is_in_flight_is_a_bugcheck() {
    covers!("TDR-013");
    for (aborted, bugcheck) in [(1, Some(0x119)), (2, None), (3, None), (4, None), (5, Some(0x119))] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let contexts = [0; 2].map(|_| world.context(device, 0));
        for _ in 0..2 {
            world.submit(contexts[0], &[]);
        }
        world.submit(contexts[0], &[Hang]);
        world.submit(contexts[1], &[]);
        script.borrow().aborted = Some(aborted);
        world.advance(TIMEOUT);
        assert_eq!(resets(&world).2, bugcheck, "LastAbortedFenceId {aborted}, in flight are 3 and 4");
        if let Some(bugcheck) = world.kernel.bugchecked() {
            assert_eq!(bugcheck.parameters, [0xA, aborted, 2, 4]);
        }
    }
}

#[test]
fn after_a_reset_unaffected_work_is_resubmitted_with_paging_first_and_its_id_kept() {
    covers!("TDR-019");
    // An engine without preemption: the paging buffer is submitted behind the hanging one.
    let mut config = with_caps(VidSchCaps::MULTI_ENGINE_AWARE | VidSchCaps::SUPPORT_PER_ENGINE_TDR);
    config.adapters[0].paging_node = Some(0);
    let (mut world, script) = scripted(config);
    hung(&mut world, 0);
    let bystander = world.device();
    let context = world.context(bystander, 0);
    let fence = world.fence(bystander, 0);
    script.borrow().paging = Some(vec![busy(10)]);
    let paging_queue = queue(&mut world, bystander, 0).0;
    map(&mut world, paging_queue, 1);
    world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value: 1 }]);
    script.borrow().submissions.clear();
    world.advance(2000 * MS);
    let resubmitted: Vec<_> = {
        let submissions = &script.borrow().submissions;
        submissions.iter().map(|one| (one.submission_fence_id, one.paging, one.resubmits)).collect()
    };
    assert_eq!(resubmitted, [(2, true, Some(2)), (3, false, None)]);
    world.advance(10);
    assert_eq!((world.value(fence.object), world.execution_state(bystander)), (1, ACTIVE));
    assert_eq!(resets(&world), (1, 0, None));

    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (context, bystander) = (world.context(device, 0), world.device());
    let bystanding = world.context(bystander, 0);
    world.submit(context, &[Hang]);
    world.submit(bystanding, &[]);
    world.advance(TIMEOUT - 1);
    script.borrow().aborted = Some(1);
    script.borrow().submissions.clear();
    world.advance(1);
    let ids: Vec<_> = {
        let submissions = &script.borrow().submissions;
        submissions.iter().map(|one| (one.submission_fence_id, one.resubmits)).collect()
    };
    assert_eq!(ids, [(3, Some(2))], "render work gets a new id");
}

#[test]
fn an_engine_reset_that_hits_a_paging_buffer_becomes_an_adapter_reset() {
    covers!("TDR-014");
    // On a node that paging shares with contexts, and on an engine of its own.
    for (config, engine_resets) in [(paging_on(0), 1), (Config::default(), 0)] {
        let (mut world, script) = scripted(config);
        let [owner, other] = [0; 2].map(|_| world.device());
        let (paging_queue, fence) = queue(&mut world, owner, 0);
        script.borrow().paging = Some(vec![Hang]);
        map(&mut world, paging_queue, 1);
        let wait = world.pending(owner, &[(fence.object, 1)], false);
        world.advance(TIMEOUT);
        assert_eq!(resets(&world), (engine_resets, 1, None));
        assert_eq!([owner, other].map(|device| world.execution_state(device)), [HUNG, RESET]);
        assert_eq!(world.ended(), [(wait, REMOVED)]);
        // The system device survives: its next buffer runs.
        script.borrow().paging = Some(Vec::new());
        let next = world.device();
        let (paging_queue, fence) = queue(&mut world, next, 0);
        map(&mut world, paging_queue, 1);
        assert_eq!((world.value(fence.object), world.execution_state(next)), (1, ACTIVE));
    }
}

#[test]
fn a_reset_of_an_engine_that_fails_becomes_an_adapter_reset() {
    covers!("TDR-016");
    let (mut world, script) = scripted(Config::default());
    let (device, _) = hung(&mut world, 0);
    let other = world.device();
    fault(&mut world, Fault::ResetFails { engine: ENGINE });
    assert_eq!(world.kernel.snapshot().engines[0].faults.resets_failing, 1);
    world.advance(REQUEST);
    script.borrow().take();
    world.notes();
    world.advance(TIMEOUT - REQUEST);
    assert_eq!(resets(&world), (0, 1, None));
    assert!(world.notes().iter().any(|note| note.contains("TdrReason 9")));
    assert_eq!([device, other].map(|device| world.execution_state(device)), [HUNG, RESET]);
    let called = script.borrow().ddis();
    assert_eq!(
        called[2..],
        ["reset_engine 0", "reset_from_timeout", "memory_evicted", "restart_from_timeout"]
    );
}

#[test]
fn per_engine_tdr_stands_on_three_ddis() {
    covers!("TDR-017");
    for missing in PerEngineTdrDdis::all().iter() {
        let (_, script) = scripted(Config::default());
        script.borrow().ddis = PerEngineTdrDdis::all() - missing;
        let world = scripted_by(Config::default(), &script);
        assert_eq!(world.kernel.start_failures().len(), 1, "{missing:?}");
        // Without the cap the DDIs are not needed.
        let caps = AdapterConfig::default().caps - VidSchCaps::SUPPORT_PER_ENGINE_TDR;
        let mut world = scripted_by(with_caps(caps), &script);
        assert_eq!(world.kernel.start_failures().len(), 0);
        hung(&mut world, 0);
        world.advance(TIMEOUT);
        assert_eq!(resets(&world), (0, 1, None), "the whole adapter is reset then");
    }
}

#[test]
fn the_debug_mode_asks_ignores_recovers_or_recovers_without_limit() {
    covers!("TDR-006");
    assert_eq!(TdrConfig::default().debug_mode, 2);
    let run = |debug_mode, limit_count| {
        let tdr = TdrConfig { debug_mode, limit_count, ..TdrConfig::default() };
        let mut world = World::with_config(config(tdr));
        hung(&mut world, 0);
        fault(&mut world, Fault::ResetFails { engine: ENGINE });
        world.notes();
        world.advance(10 * TIMEOUT);
        let breaks = world.notes().iter().any(|note| note.contains("a debugger would break in"));
        (resets(&world), breaks)
    };
    assert_eq!(run(0, 5), ((0, 1, None), true));
    assert_eq!(run(1, 5), ((0, 0, None), false));
    assert_eq!(run(2, 5), ((0, 1, None), false));
    assert_eq!(run(2, 0), ((0, 0, Some(0x116)), false));
    assert_eq!(run(3, 0), ((0, 1, None), false));
}

#[test]
fn the_sixth_recovery_within_a_minute_is_a_bugcheck() {
    covers!("TDR-003");
    let recover = |world: &mut World, times: usize| {
        for _ in 0..times {
            hung(world, 0);
            fault(world, Fault::ResetFails { engine: ENGINE });
            world.advance(TIMEOUT);
        }
    };
    let mut world = World::new();
    recover(&mut world, 5);
    assert_eq!(resets(&world), (0, 5, None));
    recover(&mut world, 1);
    assert_eq!(resets(&world), (0, 5, Some(0x116)));
    // After a minute the first recoveries no longer count.
    let mut world = World::new();
    recover(&mut world, 5);
    world.advance(60_000 * MS - 5 * TIMEOUT);
    recover(&mut world, 1);
    assert_eq!(resets(&world), (0, 6, None));
}

#[test]
fn engine_timeouts_are_not_counted_with_recoveries_and_block_the_process_that_has_too_many() {
    covers!("TDR-004");
    let mut world = World::new();
    let innocent_device = {
        world.attach(dxgkrnl::ProcessId(2));
        world.process = dxgkrnl::ProcessId(2);
        let device = world.device();
        world.process = P;
        device
    };
    let healthy = world.device();
    for round in 1..=5 {
        let (device, _) = hung(&mut world, 0);
        world.advance(TIMEOUT);
        assert_eq!((resets(&world), world.execution_state(device)), ((round, 0, None), HUNG));
        let blocked = world.kernel.snapshot().processes[0].blocked;
        assert_eq!(blocked, round == 5, "four timeouts are allowed");
    }
    assert!(world.notes().iter().any(|note| note.starts_with("0x142")));
    assert_eq!(world.execution_state(healthy), HUNG, "the process's other devices are lost as well");
    let adapter = world.adapter();
    assert_eq!(world.status(Call::CreateDevice { adapter, flags: 0 }), NtStatus::ACCESS_DENIED);
    world.process = dxgkrnl::ProcessId(2);
    assert_eq!(world.execution_state(innocent_device), ACTIVE);
    world.device();
    // Recoveries of the adapter still have their own count, untouched.
    for _ in 0..5 {
        hung(&mut world, 0);
        fault(&mut world, Fault::ResetFails { engine: ENGINE });
        world.advance(TIMEOUT);
    }
    assert_eq!(resets(&world), (5, 5, None));
}

/// With TdrLimitCount 1 the first timeout of a process blocks it.
#[test]
fn resets_of_dependent_engines_and_faults_do_not_count_as_timeouts_of_a_process() {
    covers!("TDR-004");
    let (mut world, script) = scripted(config(TdrConfig { limit_count: 1, ..TdrConfig::default() }));
    script.borrow().dependents = Some(1 << OTHER.node);
    let bystander = world.other(2);
    let dependent = world.context(bystander, OTHER.node);
    world.process = P;
    hung(&mut world, 0);
    world.advance(2000 * MS);
    world.process = dxgkrnl::ProcessId(2);
    world.submit(dependent, &[busy(1500 * MS)]);
    world.advance(600 * MS);
    assert_eq!((resets(&world), world.execution_state(bystander)), ((2, 0, None), HUNG));
    let blocked =
        |world: &World| world.kernel.snapshot().processes.iter().map(|one| one.blocked).collect::<Vec<_>>();
    assert_eq!(blocked(&world), [true, false]);
    let device = world.device();
    let faulting = world.context(device, 0);
    world.submit(faulting, &[busy(MS)]);
    let flags = PageFaultFlags::ENGINE_RESET_REQUIRED.bits();
    fault(&mut world, Fault::PageFault { engine: ENGINE, gpu_address: 0x1000, flags });
    assert_eq!(resets(&world), (4, 0, None));
    assert_ne!(world.execution_state(device), ACTIVE);
    assert_eq!(blocked(&world), [true, false]);
}

#[test]
fn work_behind_a_destroyed_context_has_its_own_time() {
    covers!("TDR-001");
    // An engine without preemption has both buffers.
    let mut world = scripted(crate::common::dropping(with_caps(
        VidSchCaps::MULTI_ENGINE_AWARE | VidSchCaps::SUPPORT_PER_ENGINE_TDR,
    )))
    .0;
    let (_, context) = hung(&mut world, 0);
    let (device, _) = hung(&mut world, 0);
    world.advance(1900 * MS);
    world.ok(Call::DestroyContext { context });
    world.advance(2000 * MS - 1);
    assert_eq!((resets(&world), world.execution_state(device)), ((0, 0, None), ACTIVE));
    world.advance(1);
    assert_eq!((resets(&world), world.execution_state(device)), ((1, 0, None), HUNG));
}

#[test]
fn timeouts_of_a_process_count_for_less_than_tdr_limit_time() {
    covers!("TDR-004");
    for (limit_time_ns, blocked) in [(TIMEOUT, false), (TIMEOUT + 1, true)] {
        let mut world =
            World::with_config(config(TdrConfig { limit_count: 2, limit_time_ns, ..TdrConfig::default() }));
        for _ in 0..2 {
            hung(&mut world, 0);
            world.advance(TIMEOUT);
        }
        assert_eq!(resets(&world), (2, 0, None));
        assert_eq!(world.kernel.snapshot().processes[0].blocked, blocked, "{limit_time_ns}");
    }
}

#[test]
fn a_thread_stuck_in_the_driver_is_a_bugcheck() {
    covers!("TDR-002");
    for (nanos, bugcheck) in [(5000 * MS, None), (5000 * MS + 1, Some(0x116))] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let context = world.context(device, 0);
        script.borrow().call_back("submit_command", vec![Callback::Stuck { nanos }]);
        world.submit(context, &[]);
        assert_eq!(resets(&world).2, bugcheck, "{nanos}");
    }
}

#[test]
fn errors_of_the_scheduler_class_are_bugchecks() {
    covers!("TDR-033");
    let failed = |caps: VidSchCaps, ddi: &'static str, name: &str, act: fn(&mut World, Handle, Handle)| {
        let (mut world, script) = scripted(crate::common::dropping(with_caps(caps)));
        let device = world.device();
        let context = world.context(device, 0);
        script.borrow().failing = Some((ddi, NtStatus::UNSUCCESSFUL));
        act(&mut world, device, context);
        let bugcheck = world.kernel.bugchecked().unwrap_or_else(|| panic!("{ddi}"));
        assert!(bugcheck.why.contains(name), "{bugcheck:?}");
        let found = (bugcheck.code, bugcheck.parameters[0]);
        assert_eq!(world.execution_state(device), STOPPED);
        found
    };
    let caps = AdapterConfig::default().caps;
    let submit = |world: &mut World, _: Handle, context: Handle| {
        world.submit(context, &[]);
    };
    assert_eq!(failed(caps, "submit_command", "SubmitCommand", submit), (0x119, 2));
    assert_eq!(failed(caps - VidSchCaps::NO_DMA_PATCHING, "patch", "Patch", submit), (0x119, 3));
    assert_eq!(
        failed(caps, "preempt_command", "PreemptCommand", |world, _, context| {
            world.submit(context, &[Hang]);
            world.advance(REQUEST);
        }),
        (0x119, 2)
    );
    assert_eq!(
        failed(caps, "cancel_command", "CancelCommand", |world, device, context| {
            let gate = world.fence(device, 0).object;
            world.gpu_wait(context, gate, 1);
            world.submit(context, &[]);
            world.ok(Call::DestroyContext { context });
        }),
        (0x119, 9)
    );
    // The kernel does not call CancelCommand of a driver that is not CancelCommandAware.
    let (mut world, script) =
        scripted(crate::common::dropping(with_caps(caps - VidSchCaps::CANCEL_COMMAND_AWARE)));
    let device = world.device();
    let context = world.context(device, 0);
    let gate = world.fence(device, 0).object;
    world.gpu_wait(context, gate, 1);
    world.submit(context, &[]);
    world.ok(Call::DestroyContext { context });
    in_order(&script, &["destroy_context 0"]);
}

#[test]
fn hardware_scheduled_contexts_are_culprits_or_collateral_and_wait_for_resume() {
    covers!("TDR-020", "TDR-021");
    let (mut world, script) = scripted(Config::default());
    let [guilty, near, far] = [0; 3].map(|_| world.device());
    let contexts = [guilty, near, far].map(|device| world.context_with(device, 0, C::HW_QUEUE_SUPPORTED));
    let fence = world.fence(far, 0);
    world.submit(contexts[0], &[Hang]);
    world.submit(contexts[1], &[]);
    world.submit(contexts[2], &[FenceWrite { gpu_address: fence.gpu_address, value: 1 }]);
    world.advance(REQUEST);
    script.borrow().take();
    // The second context's work is also submitted, and blocks the engine.
    let collateral =
        Callback::InvalidateHwContext { context: HwContext(1), reason: Invalidation::Collateral };
    script.borrow().call_back("reset_hw_engine", vec![collateral]);
    world.advance(TIMEOUT - REQUEST);
    let called = script.borrow().ddis();
    assert_eq!(
        called[2..],
        ["reset_hw_engine 0", "resume_hw_engine 0", "submit_command"],
        "nothing between the two"
    );
    let states = [guilty, near, far].map(|device| world.execution_state(device));
    assert_eq!((states, resets(&world)), ([HUNG, RESET, ACTIVE], (1, 0, None)));
    assert_eq!(world.value(fence.object), 1);
    assert_eq!((Invalidation::Culprit as u32, Invalidation::Collateral as u32), (0, 1));
    // Resume fails: a full reset.
    let (mut world, script) = scripted(Config::default());
    let [device, other] = [0; 2].map(|_| world.device());
    let context = world.context_with(device, 0, C::HW_QUEUE_SUPPORTED);
    world.submit(context, &[Hang]);
    script.borrow().resume_fails = true;
    world.advance(TIMEOUT);
    assert_eq!(resets(&world), (0, 1, None));
    assert_eq!([device, other].map(|device| world.execution_state(device)), [HUNG, RESET]);
}

#[test]
fn a_timeout_that_the_hardware_reports_needs_no_waiting() {
    for (level, expected) in [(3, 1), (0, 0)] {
        let (mut world, script) = scripted(config(TdrConfig { level, ..TdrConfig::default() }));
        hung(&mut world, 0);
        let other = world.device();
        let context = world.context(other, OTHER.node);
        let timeout = Interrupt::GpuEngineTimeout { engine: ENGINE };
        script.borrow().call_back("submit_command", vec![interrupt(timeout)]);
        world.submit(context, &[]);
        assert_eq!(resets(&world), (expected, 0, None));
    }
}

#[test]
fn an_engine_without_preemption_times_out_after_the_delay_alone() {
    let caps = VidSchCaps::MULTI_ENGINE_AWARE | VidSchCaps::SUPPORT_PER_ENGINE_TDR;
    let (mut world, script) = scripted(with_caps(caps));
    hung(&mut world, 0);
    world.advance(2000 * MS - 1);
    assert_eq!(resets(&world), (0, 0, None));
    world.advance(1);
    assert_eq!(resets(&world), (1, 0, None));
    assert!(!script.borrow().ddis().contains(&"preempt_command".to_owned()));
}

#[test]
fn a_bugcheck_stops_the_host_once() {
    let mut world = World::with_config(config(TdrConfig { level: 1, ..TdrConfig::default() }));
    let (device, context) = hung(&mut world, 0);
    let fence = world.fence(device, 0).object;
    let wait = world.pending(device, &[(fence, 1)], false);
    let (_, second) = hung(&mut world, 1);
    world.ended();
    world.advance(TIMEOUT);
    assert_eq!(world.ended(), [(wait, REMOVED)]);
    let first = world.kernel.bugchecked().cloned().unwrap();
    assert!(first.why.contains("engine 0.0"), "the first bugcheck is kept: {first:?}");
    assert_eq!(world.kernel.snapshot().bugcheck, Some(first));
    assert_eq!([context, second].map(|context| world.submit(context, &[])), [REMOVED; 2]);
    let adapter = Call::OpenAdapterFromLuid { luid: AdapterConfig::default().luid };
    assert_eq!(world.status(adapter), REMOVED);
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_process_that_dies_while_a_reset_waits_leaves_nothing() {
    for moment in [0, REQUEST, TIMEOUT - MS, TIMEOUT + 100 * MS, TIMEOUT + 600 * MS] {
        let (mut world, script) = scripted(paging_on(OTHER.node));
        script.borrow().dependents = Some(1 << OTHER.node);
        let (_, _) = hung(&mut world, 0);
        let device = world.device();
        let dependent = world.context(device, OTHER.node);
        world.submit(dependent, &[busy(20_000 * MS), busy(MS)]);
        let paging_queue = queue(&mut world, device, 0).0;
        map(&mut world, paging_queue, 1);
        world.advance(moment);
        world.input(Input::ProcessGone { process: P });
        assert!(world.kernel.snapshot().is_empty());
        assert_eq!(world.kernel.miscounted(), None);
        world.advance(10_000 * MS);
        assert_eq!((world.kernel.next_deadline(), world.kernel.engines_idle()), (None, true));
    }
}

#[test]
fn a_hardware_queue_without_progress_is_lost_and_those_of_other_contexts_go_on() {
    covers!("SCH-016", "SCH-021", "TDR-020", "TDR-021");
    let none = HwQueueFlags::empty();
    let mut world = World::new();
    let [guilty, other] = [0; 2].map(|_| world.device());
    let [hangs, goes_on] = [guilty, other].map(|device| world.queue_on(device, 0, none));
    let event = world.pending(guilty, &[(hangs.fence.object, 2)], false);
    world.submit_hw(hangs, 1, &[Hang]);
    world.submit_hw(hangs, 2, &[]);
    let write = FenceWrite { gpu_address: goes_on.fence.gpu_address, value: 1 };
    world.submit_hw(goes_on, 1, &[write]);
    world.advance(2000 * MS - 1);
    assert_eq!(resets(&world), (0, 0, None));
    world.advance(1);
    assert_eq!(resets(&world), (1, 0, None));
    assert_eq!([guilty, other].map(|device| world.execution_state(device)), [HUNG, ACTIVE]);
    assert_eq!((world.view(goes_on).progress, world.view(hangs).in_flight), (1, 0));
    assert_eq!(world.ended(), [(event, NtStatus::DEVICE_REMOVED)]);
    assert_eq!(world.kernel.next_deadline(), None);
    world.finish();
    // No timeout for a queue with DisableGpuTimeout, and for a queue that waits in hardware.
    let mut world = World::new();
    let device = world.device();
    let exempt = world.queue_on(device, 0, HwQueueFlags::DISABLE_GPU_TIMEOUT);
    let waits = world.queue_on(device, 1, none);
    let gate = world.native(device);
    world.submit_hw(exempt, 1, &[Hang]);
    world.submit_hw(waits, 1, &[FenceWait { gpu_address: gate.gpu_address, value: 1 }, Hang]);
    world.advance(10_000 * MS);
    assert_eq!((resets(&world), world.kernel.next_deadline()), ((0, 0, None), None));
    world.signal(device, gate.object, 1);
    world.advance(2000 * MS);
    assert_eq!(resets(&world), (1, 0, None), "the queue hangs after its hardware wait");
    world.finish();
}
