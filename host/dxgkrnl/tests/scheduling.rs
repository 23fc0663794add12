//! Priorities, preemption, ids and interrupts: submissions to an engine and their results.

use covers::covers;

use crate::common::hardware::busy;
use crate::common::scripted::{ScriptRef, inject, interrupt, paging_on, scripted, scripted_by};
use crate::common::{IP, P, World, without_timeouts};
use crate::paging::{map, queue};
use d3dkmt::isa::Packet::*;
use d3dkmt::{Call, CreateContextFlags as C, FeatureId, Handle, Luid, NtStatus, Reply, SignalFlags};
use dxgkrnl::ddi::{Callback, EngineState, HwContext, Interrupt, Invalidation, PageFaultFlags};
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Features, Input, NodeConfig, ProcessId, VidSchCaps};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };

fn prioritize(world: &mut World, context: Handle, priority: i32, in_process: bool) {
    world.ok(Call::SetContextPriority { context, priority, in_process });
}

/// Last completed and last submitted id of the first engine.
fn ids(world: &World) -> (u64, u64) {
    let engine = &world.kernel.snapshot().engines[0];
    (engine.last_completed, engine.last_submitted)
}

#[test]
fn priorities_that_do_not_exist_are_refused() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    for priority in [-8, 8, i32::MIN, i32::MAX] {
        for in_process in [false, true] {
            assert_eq!(world.status(Call::SetContextPriority { context, priority, in_process }), IP);
        }
    }
    assert_eq!(
        world.status(Call::SetContextPriority { context: device, priority: 0, in_process: false }),
        IP
    );
    assert_eq!(world.status(Call::ContextPriority { context: device, in_process: false }), IP);
    assert_eq!(world.ok(Call::ContextPriority { context, in_process: false }), Reply::Priority(0));
}

#[test]
fn an_answer_to_an_earlier_preemption_request_gives_no_work_back() {
    covers!("SCH-008");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let [low, high] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, high, 1, false);
    world.submit(low, &[busy(100), busy(100)]);
    world.advance(50);
    world.submit(high, &[busy(100)]);
    assert_eq!(script.borrow().submissions.len(), 1, "the engine is asked to preempt the first");
    let (engine, preemption_fence_id, last_completed_fence_id) = (ENGINE, 0, 0);
    let late = Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id };
    inject(&mut world, &script, vec![interrupt(late)]);
    assert_eq!(script.borrow().submissions.len(), 1);
    world.advance(50);
    assert_eq!(script.borrow().submissions.len(), 3, "its own answer gives it back");
    world.advance(200);
    assert!(world.kernel.engines_idle());
}

#[test]
fn a_higher_priority_splits_a_buffer_between_two_of_its_packets() {
    covers!("SCH-011");
    let mut world = World::new();
    let device = world.device();
    let [low, high] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, high, 1, false);
    let [before, middle, after] = [0; 3].map(|_| world.fence(device, 0));
    let write = |gpu_address| FenceWrite { gpu_address, value: 1 };
    let parts = [busy(100), write(before.gpu_address), busy(100), write(after.gpu_address)];
    world.submit(low, &parts);
    world.submit(low, &[busy(100)]);
    world.advance(50);
    world.submit(high, &[busy(100), write(middle.gpu_address)]);
    let values = |world: &World| [before, middle, after].map(|fence| world.value(fence.object));
    world.advance(50);
    // The boundary before the first write.
    assert_eq!(values(&world), [0, 0, 0]);
    world.advance(99);
    assert_eq!(values(&world), [0, 0, 0]);
    world.advance(1);
    assert_eq!(values(&world), [1, 1, 0], "the other context ran between the parts");
    world.advance(100);
    assert_eq!(values(&world), [1, 1, 1], "the second part was not started again");
}

#[test]
fn preempted_paging_buffers_are_resubmitted_first_with_their_ids_and_others_with_new_ones() {
    covers!("SCH-007", "SCH-008");
    let (mut world, script) = scripted(paging_on(0));
    let device = world.device();
    let [low, high] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, high, 7, false);
    let paging_queue = queue(&mut world, device, 0).0;
    script.borrow().paging = Some(vec![busy(100), busy(100)]);
    world.submit(low, &[busy(100), busy(100)]);
    map(&mut world, paging_queue, 1);
    // The paging buffer has the highest priority: the kernel requests a preemption for it.
    assert_eq!(script.borrow().submissions.len(), 1);
    world.advance(100);
    let submissions_of = |script: &ScriptRef| -> Vec<_> {
        let submissions = &script.borrow().submissions;
        submissions.iter().map(|one| (one.submission_fence_id, one.paging, one.resubmits)).collect()
    };
    assert_eq!(submissions_of(&script), [(1, false, None), (2, true, None), (3, false, Some(1))]);
    assert_eq!(ids(&world), (0, 3), "a preemption completes nothing");
    // A high-priority buffer arrives while the paging buffer runs: both submitted buffers are preempted.
    script.borrow().submissions.clear();
    world.submit(high, &[busy(10)]);
    assert_eq!(submissions_of(&script), [], "the preemption waits for the boundary");
    world.advance(100);
    assert_eq!(submissions_of(&script), [(2, true, Some(2)), (4, false, None)]);
    assert_eq!(ids(&world), (0, 4));
    world.advance(100);
    assert_eq!(
        ids(&world),
        (2, 5),
        "the paging buffer is complete, the low one is submitted behind the high one"
    );
    world.advance(110);
    assert_eq!(submissions_of(&script)[2], (5, false, Some(3)));
    assert_eq!(ids(&world), (5, 5));
}

#[test]
fn a_preempted_paging_buffer_goes_before_a_fresh_one_of_another_vm() {
    covers!("SCH-008", "TDR-019");
    const MS: u64 = 1_000_000;
    let (mut world, script) = scripted(paging_on(0));
    script.borrow().paging = Some(vec![busy(20 * MS), busy(20 * MS)]);
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    map(&mut world, paging_queue, 1);
    world.guest(1, ProcessId(7));
    let device = world.device();
    let paging_queue = queue(&mut world, device, 0).0;
    map(&mut world, paging_queue, 1);
    world.advance(100 * MS);
    let submissions = &script.borrow().submissions;
    let mut submissions: Vec<_> =
        submissions.iter().map(|one| (one.submission_fence_id, one.resubmits)).collect();
    submissions.dedup();
    assert_eq!(submissions, [(1, None), (1, Some(1)), (2, None)], "ids complete in their order");
}

#[test]
fn ids_of_new_submissions_grow_whatever_was_preempted() {
    covers!("SCH-005");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let contexts = [0; 3].map(|_| world.context(device, 0));
    for round in 0..20 {
        for (at, context) in contexts.iter().enumerate() {
            prioritize(&mut world, *context, (round * 5 + at as i32 * 3) % 7, false);
            world.submit(*context, &[busy(30), busy(30)]);
            world.advance(17);
        }
    }
    world.advance(100_000);
    let submissions =
        script.borrow().submissions.iter().map(|one| one.submission_fence_id).collect::<Vec<_>>();
    assert!(submissions.len() > 60, "some were preempted");
    assert!(submissions.is_sorted_by(|one, next| one < next), "{submissions:?}");
}

#[test]
fn an_unsatisfied_wait_holds_no_engine_even_with_signal_at_submission() {
    covers!("SCH-010");
    let mut world = World::new();
    let device = world.device();
    let [waiting, other] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, waiting, 7, false);
    let [gate, early, done] = [0; 3].map(|_| world.fence(device, 0));
    world.gpu_wait(waiting, gate.object, 1);
    world.submit(waiting, &[busy(50)]);
    world.ok(Call::SignalFromGpu {
        contexts: vec![waiting].into(),
        signal: d3dkmt::GpuSignal::Monitored { objects: vec![early.object].into(), values: vec![1].into() },
        flags: SignalFlags::SIGNAL_AT_SUBMISSION,
    });
    // Far longer than any timeout: lower priorities use the engine, and nothing is reset.
    world.advance(10_000_000_000);
    world.submit(other, &[busy(100), FenceWrite { gpu_address: done.gpu_address, value: 1 }]);
    world.advance(100);
    assert_eq!((world.value(done.object), world.value(early.object)), (1, 0));
    world.signal(device, gate.object, 1);
    assert_eq!(world.value(early.object), 1, "at submission of the buffer before it");
    assert_eq!(world.kernel.snapshot().engine_resets, 0);
}

#[test]
fn a_preemption_request_that_finds_an_idle_engine_is_answered_by_an_interrupt_at_once() {
    covers!("TDR-034");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    world.input(Input::Fault(Fault::LoseInterrupt { engine: ENGINE }));
    world.submit(context, &[busy(100)]);
    world.advance(1000);
    assert_eq!(
        (world.kernel.engines_idle(), ids(&world)),
        (true, (0, 1)),
        "the hardware is idle, and the kernel does not know it"
    );
    script.borrow().take();
    world.advance(100_000_000);
    assert_eq!(script.borrow().take(), ["preempt_command", "interrupt 2", "dpc"]);
    assert_eq!(ids(&world), (1, 1), "the answer names the last completed id");
}

#[test]
fn the_last_completed_id_moves_by_completion_engine_reset_and_adapter_reset_only() {
    covers!("SCH-007");
    let mut world = World::with_config(crate::common::dropping(Config::default()));
    let device = world.device();
    let other = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(100)]);
    assert_eq!(ids(&world), (0, 1));
    world.advance(100);
    assert_eq!(ids(&world), (1, 1), "completion");
    // A destroyed context's buffer is dropped and completes nothing.
    world.submit(context, &[Hang]);
    world.ok(Call::DestroyContext { context });
    assert_eq!(ids(&world), (1, 2));
    let context = world.context(device, 0);
    world.submit(context, &[Hang]);
    world.advance(2_000_000_000);
    assert_eq!(ids(&world), (1, 3), "preemption");
    world.advance(100_000_000);
    assert_eq!(ids(&world), (3, 3), "engine reset");
    let contexts = [0; 2].map(|_| world.context(other, 0));
    world.submit(contexts[0], &[Hang]);
    world.submit(contexts[1], &[busy(1)]);
    world.input(Input::Fault(Fault::ResetFails { engine: ENGINE }));
    world.advance(2_100_000_000);
    assert_eq!(ids(&world), (5, 5), "adapter reset, to the last submitted one");
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    assert_eq!(ids(&world), (5, 5));
}

#[test]
fn patch_and_submit_share_one_id_and_no_dma_patching_omits_patch() {
    covers!("SCH-006");
    let caps = AdapterConfig::default().caps - VidSchCaps::NO_DMA_PATCHING;
    let adapters = vec![AdapterConfig { caps, ..AdapterConfig::default() }];
    let (mut world, script) = scripted(Config { adapters, ..Config::default() });
    let device = world.device();
    let context = world.context(device, 0);
    for id in 1..4 {
        script.borrow().log.clear();
        world.submit(context, &[]);
        assert_eq!(script.borrow().log[..2], [format!("patch {id}"), "submit_command".to_owned()]);
        assert_eq!(script.borrow().submissions.last().unwrap().submission_fence_id, id);
    }
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    script.borrow().take();
    world.submit(context, &[]);
    assert_eq!(script.borrow().take()[0], "submit_command");
}

/// The published `DXGK_INTERRUPT_TYPE`, with the payload of each type. A type that is not listed does not compile.
fn published_number(interrupt: &Interrupt) -> u32 {
    match *interrupt {
        Interrupt::DmaCompleted { engine: _, submission_fence_id: _ } => 1,
        Interrupt::DmaPreempted { engine: _, preemption_fence_id: _, last_completed_fence_id: _ } => 2,
        Interrupt::CrtcVsync { adapter: _, target: _ } => 3,
        Interrupt::DmaFaulted { engine: _, faulted_fence_id: _ } => 4,
        Interrupt::DmaPageFaulted { engine: _, faulted_fence_id: _, gpu_address: _, flags: _ } => 9,
        Interrupt::MonitoredFenceSignaled { engine: _ } => 11,
        Interrupt::HwQueuePageFaulted { engine: _, work: _, gpu_address: _, flags: _ } => 12,
        Interrupt::PeriodicMonitoredFenceSignaled { adapter: _, vidpn_target: _, notification_id: _ } => 14,
        Interrupt::SchedulingLog { engine: _ } => 15,
        Interrupt::GpuEngineTimeout { engine: _ } => 16,
        Interrupt::SuspendContextCompleted { engine: _, context: _, suspend_fence: _ } => 17,
        Interrupt::NativeFenceSignaled { engine: _, signaled: _ } => 19,
        Interrupt::EngineToF1 { engine: _ } => 20,
    }
}

#[test]
fn interrupts_have_the_numbers_of_their_types() {
    covers!("SCH-002");
    let (engine, flags) = (EngineId { adapter: 1, node: 0 }, PageFaultFlags::empty());
    let work = dxgkrnl::ddi::FaultedWork::Unknown;
    let signaled = dxgkrnl::ddi::SignaledNativeFences::These(vec![]);
    let interrupts = [
        Interrupt::DmaCompleted { engine, submission_fence_id: 1 },
        Interrupt::DmaPreempted { engine, preemption_fence_id: 1, last_completed_fence_id: 1 },
        Interrupt::CrtcVsync { adapter: 1, target: 0 },
        Interrupt::DmaFaulted { engine, faulted_fence_id: 1 },
        Interrupt::DmaPageFaulted { engine, faulted_fence_id: 1, gpu_address: 0, flags },
        Interrupt::MonitoredFenceSignaled { engine },
        Interrupt::HwQueuePageFaulted { engine, work, gpu_address: 0, flags },
        Interrupt::PeriodicMonitoredFenceSignaled { adapter: 1, vidpn_target: 0, notification_id: 1 },
        Interrupt::SchedulingLog { engine },
        Interrupt::GpuEngineTimeout { engine },
        Interrupt::SuspendContextCompleted { engine, context: HwContext(1), suspend_fence: 1 },
        Interrupt::NativeFenceSignaled { engine, signaled },
        Interrupt::EngineToF1 { engine },
    ];
    for interrupt in &interrupts {
        assert_eq!(interrupt.number(), published_number(interrupt), "{interrupt:?}");
        assert_eq!(interrupt.adapter(), 1, "{interrupt:?}");
    }
    let numbers = interrupts.each_ref().map(published_number);
    assert_eq!(numbers, [1, 2, 3, 4, 9, 11, 12, 14, 15, 16, 17, 19, 20], "each type once");
}

#[test]
fn an_interrupt_is_recorded_and_takes_effect_at_notify_dpc() {
    covers!("SCH-003");
    let (mut world, script) = scripted(without_timeouts());
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(100)]);
    script.borrow().take();
    world.advance(100);
    assert_eq!(script.borrow().take(), ["interrupt 1", "dpc"], "never inside of each other");
    assert_eq!(ids(&world), (1, 1));
    // Without NotifyDpc in the DPC, the interrupt stays recorded and takes effect with the next one.
    script.borrow().forgets_dpc = true;
    world.submit(context, &[busy(100)]);
    world.advance(100);
    assert_eq!(ids(&world), (1, 2));
    script.borrow().forgets_dpc = false;
    let other = world.context(device, 0);
    world.submit(other, &[busy(100)]);
    world.advance(100);
    assert_eq!(ids(&world), (3, 3));
}

#[test]
fn interrupts_that_no_dpc_takes_are_bounded() {
    let (mut world, script) = scripted(without_timeouts());
    let device = world.device();
    script.borrow().forgets_dpc = true;
    let reported = || interrupt(Interrupt::SchedulingLog { engine: ENGINE });
    for (count, dropped) in [(4000, 0), (4000, 3904)] {
        let context = world.context(device, 0);
        script.borrow().call_back("submit_command", (0..count).map(|_| reported()));
        world.notes();
        world.submit(context, &[busy(100)]);
        let notes = world.notes();
        let notes =
            notes.iter().filter(|note| note.contains("interrupt 15 is dropped, because 4096 earlier"));
        assert_eq!(notes.count(), dropped);
    }
}

#[test]
fn interrupts_that_no_dpc_takes_leave_those_of_another_adapter() {
    let second = AdapterConfig { luid: Luid { low: 2, high: 0 }, ..AdapterConfig::default() };
    let luid = second.luid;
    let adapters = vec![AdapterConfig::default(), second];
    let (mut world, script) = scripted(Config { adapters, ..without_timeouts() });
    let [device, other] = [AdapterConfig::default().luid, luid].map(|luid| world.device_on(luid));
    let contexts = [device, other].map(|device| world.context(device, 0));
    script.borrow().forgets_dpc = true;
    let reported = || interrupt(Interrupt::SchedulingLog { engine: ENGINE });
    script.borrow().call_back("submit_command", (0..4096).map(|_| reported()));
    world.submit(contexts[0], &[busy(200)]);
    script.borrow().forgets_dpc = false;
    let fence = world.fence(other, 0).object;
    world.submit(contexts[1], &[busy(100)]);
    world.gpu_signal(&[contexts[1]], fence, 1);
    world.advance(100);
    assert_eq!(world.value(fence), 1);
    world.notes();
    world.advance(100);
    assert!(world.notes().iter().any(|note| note.contains("interrupt 1 is dropped")), "that of the first");
}

#[test]
fn contexts_are_invalidated_by_the_reset_of_an_engine_alone() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    let callback =
        |id| Callback::InvalidateHwContext { context: HwContext(id), reason: Invalidation::Culprit };
    script.borrow().call_back("submit_command", vec![callback(0), callback(7)]);
    world.submit(context, &[]);
    let notes = world.notes();
    for why in ["context 0 is not called by DxgkDdiResetHwEngine", "there is no context 7"] {
        assert!(notes.iter().any(|note| note.contains(why)), "{notes:?}");
    }
}

#[test]
fn dma_interrupts_are_reported_before_crtc_interrupts() {
    covers!("SCH-004");
    let vsync = || interrupt(Interrupt::CrtcVsync { adapter: 0, target: 0 });
    let fence = || interrupt(Interrupt::MonitoredFenceSignaled { engine: ENGINE });
    for (callbacks, wrong) in [(vec![fence(), vsync()], 0), (vec![vsync(), fence()], 1)] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let context = world.context(device, 0);
        world.notes();
        // Both at one time, by one ISR; the buffer's completion comes first.
        world.submit(context, &[busy(100)]);
        script.borrow().call_back("interrupt", callbacks);
        world.advance(100);
        let notes = world.notes();
        assert_eq!(notes.len(), wrong, "{notes:?}");
        assert!(notes.iter().all(|note| note.contains("interrupt 11 after CRTC_VSYNC")));
        assert_eq!(ids(&world), (1, 1));
    }
}

#[test]
fn one_function_of_the_scheduler_class_runs_at_a_time() {
    // The miniport asserts that no other DDI is on the stack; this test calls all of them.
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let [low, high] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, high, 7, false);
    let fence = world.fence(device, 0);
    for _ in 0..4 {
        world.submit(low, &[busy(10), FenceWrite { gpu_address: fence.gpu_address, value: 1 }, busy(10)]);
        world.submit(high, &[]);
        world.advance(7);
    }
    world.submit(low, &[Hang]);
    world.advance(5_000_000_000);
    let called = script.borrow().ddis();
    for ddi in [
        "submit_command",
        "preempt_command",
        "query_engine_status",
        "query_dependent_engine_group",
        "reset_engine 0",
    ] {
        assert!(called.iter().any(|one| one == ddi), "{ddi} in {called:?}");
    }
}

#[test]
fn an_adapter_whose_caps_lack_a_prerequisite_does_not_start() {
    covers!("SCH-009");
    use VidSchCaps as V;
    let all = V::MULTI_ENGINE_AWARE | V::PREEMPTION_AWARE | V::NO_DMA_PATCHING | V::CANCEL_COMMAND_AWARE;
    let cases = [
        (V::empty(), true),
        (all, true),
        (V::PREEMPTION_AWARE, false),
        (V::PREEMPTION_AWARE | V::MULTI_ENGINE_AWARE, true),
        (V::CANCEL_COMMAND_AWARE, false),
        (V::CANCEL_COMMAND_AWARE | V::MULTI_ENGINE_AWARE, true),
        (V::NO_DMA_PATCHING | V::MULTI_ENGINE_AWARE, false),
        (V::NO_DMA_PATCHING, false),
        (all - V::MULTI_ENGINE_AWARE, false),
    ];
    for (caps, starts) in cases {
        let first = AdapterConfig { caps, ..AdapterConfig::default() };
        let luid = first.luid;
        let second = AdapterConfig { luid: d3dkmt::Luid { low: 7, high: 7 }, ..AdapterConfig::default() };
        let mut world = World::with_config(Config { adapters: vec![first, second], ..Config::default() });
        assert_eq!(world.kernel.start_failures().is_empty(), starts, "{caps:?}");
        assert_eq!(world.kernel.snapshot().start_failures.is_empty(), starts);
        let status = world.status(Call::OpenAdapterFromLuid { luid });
        assert_eq!(status, if starts { NtStatus::SUCCESS } else { NtStatus::DEVICE_REMOVED });
        let Reply::Adapters(list) = world.ok(Call::EnumAdapters { capacity: 2 }) else { panic!() };
        assert_eq!(list.len(), if starts { 2 } else { 1 }, "an adapter that did not start is not enumerated");
    }
}

#[test]
fn a_driver_advertising_a_feature_the_system_lacks_does_not_start() {
    covers!("SCH-043");
    let other_category = FeatureId(FeatureId::NATIVE_FENCE.0 | 3 << 28);
    assert_eq!((other_category.category(), other_category.sub_id()), (3, 37));
    assert_eq!((FeatureId::NATIVE_FENCE.category(), FeatureId(u32::MAX).sub_id()), (0, 0x0FFF_FFFF));
    let ids = [
        (FeatureId::HWSCH, Features::HARDWARE_SCHEDULING),
        (FeatureId::KMD_SIGNAL_CPU_EVENT, Features::KMD_SIGNAL_CPU_EVENT),
        (FeatureId::USER_MODE_SUBMISSION, Features::USER_MODE_SUBMISSION),
        (FeatureId::NATIVE_FENCE, Features::NATIVE_FENCE),
        (FeatureId::HWFLIPQUEUE, Features::empty()),
        (FeatureId::GPUVAIOMMU, Features::empty()),
        (other_category, Features::empty()),
    ];
    for (feature, system) in ids {
        for features in [Features::all(), Features::all() - system] {
            let mut config = Config { features, ..Config::default() };
            // With the cap, FEN-106 would be another reason.
            config.adapters[0].caps.remove(VidSchCaps::NATIVE_GPU_FENCE);
            let (_, script) = scripted(config.clone());
            script.borrow().advertised = vec![feature];
            let world = scripted_by(config, &script);
            let starts = !system.is_empty() && features.contains(system);
            assert_eq!(world.kernel.start_failures().is_empty(), starts, "{feature} {features:?}");
            if !starts {
                let why = &world.kernel.start_failures()[&0];
                assert!(
                    why.contains(&format!("feature {feature}, which the system does not offer")),
                    "{why}"
                );
            }
        }
    }
}

#[test]
fn an_engine_affinity_is_the_bit_of_one_physical_adapter() {
    covers!("SCH-037");
    let adapters = vec![AdapterConfig { physical_adapters: 3, ..AdapterConfig::default() }];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let device = world.device();
    let nodes = AdapterConfig::default().nodes.len();
    assert_eq!(world.kernel.snapshot().engines.len(), 3 * nodes, "equally many nodes on each");
    let create = |engine_affinity| Call::CreateContextVirtual {
        device,
        node_ordinal: 2,
        engine_affinity,
        flags: C::empty(),
        client_hint: 0,
        private_data: vec![],
    };
    for wrong in [3, 8, 1 << 31, 0b101] {
        assert_eq!(world.status(create(wrong)), IP, "{wrong:#x}");
    }
    for (affinity, ordinal) in [(0, 0), (1, 0), (2, 1), (4, 2)] {
        let Reply::Context(context) = world.ok(create(affinity)) else { panic!() };
        world.submit(context, &[busy(10)]);
        let snapshot = world.kernel.snapshot();
        let at_work: Vec<usize> = (0..)
            .zip(&snapshot.engines)
            .filter(|(_, engine)| engine.state != EngineState::Idle)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(at_work, [ordinal * nodes + 2]);
        world.advance(10);
    }
}

#[test]
fn a_driver_that_ignores_preemption_finishes_and_gets_more_work() {
    // Like a KMD without preemption: it never answers the request.
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let [low, high] = [0; 2].map(|_| world.context(device, 0));
    prioritize(&mut world, high, 7, false);
    world.submit(low, &[busy(100)]);
    world.submit(high, &[busy(100)]);
    // Interrupt 1 first, then 2: at the second nothing is in flight to return.
    world.advance(100);
    assert_eq!(ids(&world), (1, 2));
    let stale =
        Interrupt::DmaPreempted { engine: ENGINE, preemption_fence_id: 1, last_completed_fence_id: 1 };
    script.borrow().call_back("submit_command", vec![interrupt(stale)]);
    let another = world.context(device, 0);
    world.submit(another, &[busy(1)]);
    assert_eq!(ids(&world), (1, 3), "an answer to an old request preempts nothing");
    world.advance(101);
    assert_eq!(ids(&world), (3, 3));
}

#[test]
fn a_late_deadline_finds_everything_as_if_it_had_come_in_time() {
    let run = |late: bool| {
        let mut world = World::new();
        let device = world.device();
        let contexts = [0; 5].map(|_| world.context(device, 0));
        for context in contexts {
            world.submit(context, &[busy(100)]);
            world.submit(context, &[busy(100), busy(50)]);
        }
        if late {
            world.now = 10_000;
            world.input(Input::Deadline);
        } else {
            world.advance(10_000);
        }
        (world.kernel.snapshot(), world.now)
    };
    assert_eq!(run(true).0.engines, run(false).0.engines);
}

#[test]
fn a_long_buffer_gives_way_to_others_of_its_priority_when_its_quantum_is_over() {
    const MS: u64 = 1_000_000;
    let mut world = World::new();
    let device = world.device();
    let [long, short] = [0; 2].map(|_| world.context(device, 0));
    let fence = world.fence(device, 0);
    world.submit(long, &[busy(60 * MS), busy(60 * MS), busy(60 * MS)]);
    world.submit(short, &[FenceWrite { gpu_address: fence.gpu_address, value: 1 }]);
    world.advance(119 * MS);
    assert_eq!(world.value(fence.object), 0);
    world.advance(MS);
    assert_eq!(world.value(fence.object), 1, "at the first boundary after 100 ms");
    world.advance(60 * MS);
    assert!(world.kernel.engines_idle(), "nothing was done twice");
}

#[test]
fn a_node_of_a_linked_adapter_is_configured_alike_on_each_engine() {
    let nodes = vec![NodeConfig::default(), NodeConfig { signals_at_write: false, ..NodeConfig::default() }];
    let adapter = AdapterConfig { nodes, physical_adapters: 2, ..AdapterConfig::default() };
    let kinds: Vec<bool> = adapter.engines(0).map(|(_, node)| node.signals_at_write).collect();
    assert_eq!(kinds, [true, false, true, false]);
    assert_eq!(adapter.engine(0, 1, 2), Some(EngineId { adapter: 0, node: 3 }));
}

#[test]
fn an_adapter_that_starts_again_gets_its_scheduling_logs() {
    let (mut world, script) = scripted(Config::default());
    let logs = script.borrow().scheduling_logs.clone();
    assert!(!logs.is_empty());
    world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
    script.borrow().scheduling_logs.clear();
    world.input(Input::Fault(Fault::StartAdapter { adapter: 0 }));
    assert!(script.borrow().scheduling_logs == logs, "each engine gets its log again");
}

#[test]
fn a_scheduling_log_begins_with_a_zero_header_and_entries_of_no_defined_content() {
    covers!("SCH-044");
    let adapter = AdapterConfig {
        nodes: vec![NodeConfig { hw_queues: false, ..NodeConfig::default() }, NodeConfig::default()],
        ..AdapterConfig::default()
    };
    let (mut world, script) = scripted(Config { adapters: vec![adapter], ..Config::default() });
    {
        let logs = &script.borrow().scheduling_logs;
        let [(engine, buffer)] = &logs[..] else { panic!("{logs:?}") };
        assert_eq!(*engine, EngineId { adapter: 0, node: 1 }, "hardware scheduling only");
        assert_eq!(buffer.header, dxgkrnl::ddi::SchedulingLogHeader::default());
        let header = &buffer.header;
        assert_eq!(
            (header.first_free_entry_index, header.wraparound_count, header.number_of_entries),
            (0, 0, 0)
        );
        assert!(
            buffer.entries.iter().flatten().all(|word| *word != 0),
            "the kernel does not clear the entries"
        );
    }
    // Its interrupt changes nothing.
    let device = world.device();
    let context = world.context(device, 0);
    let news = Interrupt::SchedulingLog { engine: ENGINE };
    script.borrow().call_back("submit_command", vec![interrupt(news)]);
    world.notes();
    world.submit(context, &[]);
    assert_eq!((ids(&world), world.notes()), ((1, 1), vec![]));
}

#[test]
fn iommu_mappings_change_in_a_frame_of_exclusive_access() {
    covers!("TDR-042");
    let mapped = |iommu| {
        let adapters = vec![AdapterConfig { iommu, ..AdapterConfig::default() }];
        let (mut world, script) = scripted(Config { adapters, ..Config::default() });
        world.input(Input::FenceMemoryAdded { process: P, slots: 7 });
        world.input(Input::ProcessGone { process: P });
        script.borrow().take()
    };
    let frame = |change| {
        [
            "begin_exclusive_access".to_owned(),
            format!("mapping of 1 changes: {change}"),
            "end_exclusive_access".to_owned(),
        ]
    };
    assert_eq!(mapped(true), [frame("Some(64)"), frame("Some(7)"), frame("None")].concat());
    assert_eq!(mapped(false), Vec::<String>::new());
}

#[test]
fn a_preempted_context_that_used_anothers_turn_costs_no_turn() {
    covers!("SCH-042");
    let mut world = World::with_config(without_timeouts());
    let device = world.device();
    let [x, y, b, a, h] = [(); 5].map(|()| world.context(device, 0));
    prioritize(&mut world, a, 1, true);
    prioritize(&mut world, h, 1, false);
    for (context, duration_ns) in [(x, 1_000_000), (y, 10_000_000), (b, 1_000), (a, 1_000)] {
        world.submit(context, &[busy(duration_ns)]);
    }
    // A runs before B, in B's turn.
    world.advance(1_000_000);
    // H preempts A, whose own turn B now has.
    world.submit(h, &[busy(1_000)]);
    assert_eq!(world.kernel.miscounted(), None);
    let done = [x, y, b, a, h].map(|context| {
        let fence = world.fence(device, 0).object;
        world.gpu_signal(&[context], fence, 1);
        fence
    });
    world.advance(100_000_000);
    assert_eq!((done.map(|fence| world.value(fence)), world.kernel.miscounted()), ([1; 5], None));
    world.finish();
}
