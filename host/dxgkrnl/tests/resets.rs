//! Resets of adapters, poisoned fences, page faults and devices in error.

use covers::covers;

use crate::common::hardware::busy;
use crate::common::scripted::{inject, interrupt, paging_on, scripted};
use crate::common::{IP, OK, P, World, share};
use crate::paging::{map, queue};
use d3dkmt::isa::{self, Packet::*};
use d3dkmt::{
    Call, CreatedSyncObject, Handle, HwQueueFlags, NtStatus, PageFaultState, Reply, ShareToken, SignalFlags,
    SyncObjectFlags as F,
};
use dxgkrnl::ddi::{Callback, EngineState, FaultedWork, HwContext, HwQueueId, Interrupt, PageFaultFlags};
use dxgkrnl::policy::{FaultedDevicePoisons, PoisonedFence};
use dxgkrnl::{AdapterConfig, Config, EngineId, Fault, Input, Policy, ProcessId, VidSchCaps};

const ENGINE: EngineId = EngineId { adapter: 0, node: 0 };
const Q: ProcessId = ProcessId(2);
const TIMEOUT: u64 = 2_100_000_000;
const MAX: u64 = u64::MAX;
const ACTIVE: u32 = 1;
const RESET: u32 = 2;
const HUNG: u32 = 3;
const PAGE_FAULT: u32 = 7;

fn write(fence: CreatedSyncObject, value: u64) -> isa::Packet {
    FenceWrite { gpu_address: fence.gpu_address, value }
}

fn fault(world: &mut World, fault: Fault) {
    world.input(Input::Fault(fault));
}

fn page_fault(world: &mut World, flags: PageFaultFlags) {
    fault(world, Fault::PageFault { engine: ENGINE, gpu_address: 0xF000, flags: flags.bits() });
}

fn hang(world: &mut World, device: Handle) {
    let context = world.context(device, 0);
    assert_eq!(world.submit(context, &[Hang]), OK);
}

/// Value and poisoned state of a fence of [`P`].
fn state(world: &World, object: Handle) -> (u64, bool) {
    let objects = world.kernel.snapshot().objects;
    let found = objects.iter().find(|one| (one.process, one.handle) == (P.0, object)).unwrap();
    (found.value, found.poisoned)
}

#[test]
fn a_fault_of_a_context_or_queue_that_ends_before_its_report_hits_no_other_of_its_index() {
    covers!("TDR-035");
    for of_context in [true, false] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let queue = world.queue_on(device, ENGINE.node, HwQueueFlags::empty());
        script.borrow().forgets_dpc = true;
        let (work, flags) = match of_context {
            true => (
                FaultedWork::Context(HwContext(0)),
                PageFaultFlags::FENCE_INVALID | PageFaultFlags::HW_CONTEXT_VALID,
            ),
            false => {
                let hw_queue = world.view(queue).hw_queue;
                (FaultedWork::Queue { hw_queue, progress_fence_id: 1 }, PageFaultFlags::empty())
            }
        };
        let faulted = Interrupt::HwQueuePageFaulted { engine: ENGINE, work, gpu_address: 0xF000, flags };
        inject(&mut world, &script, vec![interrupt(faulted)]);
        assert_eq!(world.execution_state(device), ACTIVE, "no DPC has processed the report");
        world.ok(Call::DestroyDevice { device });
        let device = world.other(Q.0);
        let queue = world.queue_on(device, ENGINE.node, HwQueueFlags::empty());
        assert_eq!(world.view(queue).hw_queue, HwQueueId(0), "the index is reused");
        inject(&mut world, &script, vec![Callback::NotifyDpc { adapter: 0 }]);
        assert_eq!(world.execution_state(device), ACTIVE);
    }
}

#[test]
fn between_reset_and_restart_the_driver_is_called_for_evictions_only() {
    covers!("TDR-010");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    hang(&mut world, device);
    let contexts = [0, 1, 2].map(|node| world.context(device, node));
    for context in contexts {
        world.submit(context, &[busy(100), busy(100)]);
        world.submit(context, &[busy(100)]);
    }
    fault(&mut world, Fault::ResetFails { engine: ENGINE });
    // Later interrupts and their DPCs have no effect.
    let late = |id| vec![interrupt(Interrupt::DmaCompleted { engine: ENGINE, submission_fence_id: id })];
    script.borrow().call_back("reset_from_timeout", late(1));
    script.borrow().call_back("memory_evicted", late(2));
    world.advance(TIMEOUT - 1);
    script.borrow().take();
    world.advance(1);
    let log = script.borrow().take();
    let from = log.iter().position(|line| line == "reset_from_timeout").unwrap();
    let reset = ["reset_from_timeout", "dpc", "memory_evicted", "dpc", "restart_from_timeout"];
    assert_eq!(log[from..from + reset.len()], reset);
    let notes = world.notes();
    let ignored =
        notes.iter().filter(|note| note.contains("interrupt 1 of an engine under reset is ignored"));
    assert_eq!(ignored.count(), 2, "{notes:?}");
    assert_eq!(world.execution_state(device), HUNG);
}

#[test]
fn a_reset_of_an_adapter_that_fails_is_a_bugcheck() {
    for ddi in ["reset_from_timeout", "restart_from_timeout"] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        hang(&mut world, device);
        fault(&mut world, Fault::ResetFails { engine: ENGINE });
        script.borrow().failing = Some((ddi, NtStatus::UNSUCCESSFUL));
        world.advance(TIMEOUT);
        let bugcheck = world.kernel.bugchecked().expect("a bugcheck");
        assert_eq!((bugcheck.code, bugcheck.parameters), (0x116, [0, 0, 0xC000_0001, 0]), "{ddi}");
        assert_eq!(world.execution_state(device), 4, "{ddi}");
    }
}

/// The parameters of the bugcheck after this interrupt about an engine that was given ids 1 to 3 and completed two of them.
fn parameters_after(report: Interrupt) -> Option<[u64; 4]> {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[]);
    world.submit(context, &[]);
    script.borrow().call_back("submit_command", vec![interrupt(report)]);
    world.submit(context, &[busy(10)]);
    let bugcheck = world.kernel.bugchecked();
    assert!(bugcheck.is_none_or(|bugcheck| bugcheck.code == 0x119), "{bugcheck:?}");
    bugcheck.map(|bugcheck| bugcheck.parameters)
}

#[test]
fn a_report_of_an_id_before_the_last_completed_one_is_a_bugcheck() {
    covers!("SCH-005");
    let (engine, gpu_address, flags) = (ENGINE, 0, PageFaultFlags::WRITE);
    let completed = |submission_fence_id| Interrupt::DmaCompleted { engine, submission_fence_id };
    let faulted = |faulted_fence_id| Interrupt::DmaFaulted { engine, faulted_fence_id };
    let page_faulted =
        |faulted_fence_id| Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags };
    for report in [completed(1), faulted(1), page_faulted(1)] {
        assert_eq!(parameters_after(report.clone()), Some([1, 1, 3, 2]), "{report:?}");
    }
    // Once more, and the next one.
    for report in [completed(2), completed(3), faulted(2), faulted(3), page_faulted(3)] {
        assert_eq!(parameters_after(report.clone()), None, "{report:?}");
    }
    // The last id that the hardware completed itself: faults and resets complete further ones.
    let (preemption_fence_id, last_completed_fence_id) = (0, 1);
    let preempted = Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id };
    assert_eq!(parameters_after(preempted), None);
}

#[test]
fn a_paging_buffer_that_a_reset_gave_back_completes_under_its_old_id() {
    covers!("SCH-008");
    let (mut world, script) = scripted(paging_on(0));
    script.borrow().paging = Some(vec![busy(50)]);
    let device = world.device();
    // With a hardware queue the engine resets contexts, not all that was submitted.
    let queue_device = world.device();
    let _ = world.queue_on(queue_device, 0, HwQueueFlags::empty());
    let (paging_queue, fence) = queue(&mut world, device, 0);
    // Those of its fence and of its end.
    for _ in 0..2 {
        fault(&mut world, Fault::LoseInterrupt { engine: ENGINE });
    }
    map(&mut world, paging_queue, 1);
    let guilty = world.device();
    hang(&mut world, guilty);
    world.advance(2 * TIMEOUT);
    assert_eq!(world.kernel.bugchecked(), None);
    assert_eq!((world.execution_state(guilty), world.execution_state(device)), (HUNG, ACTIVE));
    assert_eq!((world.value(fence.object), world.kernel.engines_idle()), (1, true));
}

#[test]
fn after_the_reset_of_an_adapter_its_gpu_writes_nothing() {
    covers!("TDR-009");
    let mut world = World::new();
    let [guilty, other] = [0; 2].map(|_| world.device());
    hang(&mut world, guilty);
    let context = world.context(other, 1);
    let fence = world.fence_with(other, 5, F::NO_SIGNAL_MAX_VALUE_ON_TDR);
    world.advance(TIMEOUT - 100);
    world.submit(context, &[busy(200), write(fence, 9)]);
    fault(&mut world, Fault::ResetFails { engine: ENGINE });
    world.advance(10 * TIMEOUT);
    assert_eq!((world.value(fence.object), world.kernel.engines_idle()), (5, true));
    // The kernel ignores writes that a driver still reports.
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    hang(&mut world, device);
    let fence = world.fence_with(device, 5, F::NO_SIGNAL_MAX_VALUE_ON_TDR);
    let store = Callback::GpuStore { engine: ENGINE, process: P, gpu_address: fence.gpu_address, value: 9 };
    script.borrow().call_back("memory_evicted", vec![store]);
    fault(&mut world, Fault::ResetFails { engine: ENGINE });
    world.notes();
    world.advance(TIMEOUT);
    assert_eq!(world.value(fence.object), 5);
    assert!(world.notes().iter().any(|note| note.contains("stored to memory after its reset: ignored")));
}

#[test]
fn an_adapter_reset_loses_preempted_work_saved_in_video_memory() {
    covers!("TDR-011");
    let run = |resets: bool| {
        let (mut world, script) = scripted(paging_on(1));
        script.borrow().paging = Some(vec![busy(50), busy(50)]);
        let device = world.device();
        let context = world.context(device, 1);
        let fence = world.fence_with(device, 0, F::NO_SIGNAL_MAX_VALUE_ON_TDR);
        world.submit(context, &[busy(10), busy(10), write(fence, 1)]);
        let (paging_queue, _) = queue(&mut world, device, 0);
        map(&mut world, paging_queue, 1);
        world.advance(20);
        if resets {
            page_fault(&mut world, PageFaultFlags::ADAPTER_RESET_REQUIRED);
            let faulting = world.context(device, 0);
            world.submit(faulting, &[busy(1)]);
        }
        script.borrow().submissions.clear();
        world.advance(1000);
        let again = script.borrow().submissions.iter().any(|one| one.resubmits.is_some());
        (world.value(fence.object), again, world.kernel.snapshot().adapter_resets)
    };
    assert_eq!(run(false), (1, false, 0));
    assert_eq!(run(true), (0, false, 1));
}

#[test]
fn the_status_of_the_process_changes_before_a_fence_is_poisoned() {
    covers!("TDR-022");
    let mut world = World::new();
    let device = world.device();
    world.fence(device, 3);
    hang(&mut world, device);
    world.stores();
    world.advance(TIMEOUT);
    assert_eq!(world.stores(), [(0, 1), (1, MAX)]);
}

#[test]
fn poison_is_sticky_unless_the_policy_lets_signals_through() {
    for (poisoned_fence, sticky) in [(PoisonedFence::Sticky, true), (PoisonedFence::Signalable, false)] {
        let policy = Policy { poisoned_fence, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let device = world.device();
        let token = ShareToken([3; 16]);
        let shared = world.fence_with(device, 0, F::SHARED | F::NT_SECURITY_SHARING);
        world.ok(share(shared.object, token));
        hang(&mut world, device);
        world.advance(TIMEOUT);
        let healthy = world.device();
        let opened = world.open(healthy, token);
        let context = world.context(healthy, 0);
        world.notes();
        world.stores();
        if sticky {
            // Lower values are not refused; they have no effect.
            assert_eq!(world.signal(healthy, opened.object, 7), OK);
            assert_eq!(world.gpu_signal(&[context], opened.object, 8), OK);
            world.submit(context, &[write(opened, 9)]);
            assert_eq!(
                world.notes().iter().filter(|note| note.contains("poisoned fence: ignored")).count(),
                3
            );
            assert_eq!((world.stores(), state(&world, opened.object)), (vec![], (MAX, true)));
            assert!(world.wait(healthy, &[(opened.object, MAX)], false).is_ok());
        } else {
            assert_eq!(world.signal(healthy, opened.object, 7), IP, "the value is below the fence's");
            let rewind = SignalFlags::ALLOW_FENCE_REWIND;
            assert_eq!(world.signal_flags(healthy, opened.object, 7, rewind), OK);
            assert_eq!(state(&world, opened.object), (7, false));
        }
    }
}

#[test]
fn a_fence_in_32_bits_of_storage_is_known_to_be_poisoned() {
    covers!("TDR-026");
    let caps = AdapterConfig::default().caps | VidSchCaps::NO_64_BIT_ATOMICS;
    let adapters = vec![AdapterConfig { caps, ..AdapterConfig::default() }];
    let mut world = World::with_config(Config { adapters, ..Config::default() });
    let device = world.device();
    let token = ShareToken([3; 16]);
    let shared = world.fence_with(device, 0xFFFF_FFF0, F::SHARED | F::NT_SECURITY_SHARING);
    world.ok(share(shared.object, token));
    hang(&mut world, device);
    world.stores();
    world.advance(TIMEOUT);
    let stored = world.stores().into_iter().find(|(slot, _)| Some(*slot) == shared.slot).unwrap().1;
    assert_eq!(stored as u32, u32::MAX, "all ones in its storage");
    assert!(state(&world, shared.object).1);
    let mut views = 0;
    world.kernel.fences(&mut |fence| views += u32::from(fence.poisoned));
    assert_eq!(views, 1);
    // A value beyond the 32-bit window: reached, because the fence is poisoned.
    let healthy = world.device();
    let opened = world.open(healthy, token);
    let (_, outcome) = world.wait(healthy, &[(opened.object, 0x1_5000_0000)], false).unwrap();
    assert_eq!(outcome, d3dkmt::WaitOutcome::Satisfied);
    // A fence that was signaled to all ones is not poisoned.
    let plain = world.fence(healthy, 0xFFFF_FFFF).object;
    assert!(!state(&world, plain).1);
}

#[test]
fn a_page_fault_completes_earlier_work_and_sets_the_completed_id() {
    covers!("TDR-027");
    let (mut world, script) = scripted(Config::default());
    let [first, second, third] = [0; 3].map(|_| world.device());
    let contexts = [first, second, third].map(|device| world.context(device, 0));
    let fences = [first, second, third].map(|device| world.fence(device, 0));
    let behind = world.fence(first, 0).object;
    // The first buffer's interrupt is lost: the fault report completes it.
    fault(&mut world, Fault::LoseInterrupt { engine: ENGINE });
    world.submit(contexts[0], &[busy(10)]);
    world.gpu_signal(&[contexts[0]], behind, 1);
    world.submit(contexts[1], &[busy(10), busy(10), write(fences[1], 1)]);
    world.submit(contexts[2], &[write(fences[2], 1)]);
    world.advance(15);
    assert_eq!(world.kernel.snapshot().engines[0].last_completed, 0);
    script.borrow().take();
    page_fault(&mut world, PageFaultFlags::WRITE);
    let engine = &world.kernel.snapshot().engines[0];
    assert_eq!(
        (engine.last_completed, engine.state.clone()),
        (3, EngineState::Idle),
        "and the third ran after it"
    );
    assert_eq!(world.value(behind), 1);
    assert_eq!([1, 2].map(|at| world.value(fences[at].object)), [0, 1]);
    assert_eq!(
        [first, second, third].map(|device| world.execution_state(device)),
        [ACTIVE, PAGE_FAULT, ACTIVE]
    );
    assert_eq!(world.kernel.snapshot().engine_resets, 0);
}

#[test]
fn ids_grow_over_resets_and_ends_of_contexts() {
    covers!("SCH-005");
    let (mut world, script) = scripted(crate::common::dropping(Config::default()));
    for resets_adapter in [false, true, false] {
        let device = world.device();
        let context = world.context(device, 0);
        world.submit(context, &[busy(10)]);
        world.advance(10);
        hang(&mut world, device);
        if resets_adapter {
            fault(&mut world, Fault::ResetFails { engine: ENGINE });
        }
        world.advance(TIMEOUT);
    }
    let snapshot = world.kernel.snapshot();
    assert_eq!((snapshot.engine_resets, snapshot.adapter_resets), (2, 1));
    // The id of a buffer that ends with its context is not reused either.
    let device = world.device();
    for _ in 0..2 {
        let context = world.context(device, 0);
        world.submit(context, &[busy(10)]);
        world.ok(Call::DestroyContext { context });
    }
    let submissions =
        script.borrow().submissions.iter().map(|one| one.submission_fence_id).collect::<Vec<_>>();
    assert_eq!(submissions, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn page_fault_flags_have_their_bits_and_are_seen_in_the_state_of_the_device() {
    covers!("TDR-028", "TDR-030");
    use PageFaultFlags as Flags;
    let bits = [
        (Flags::WRITE, 0x1),
        (Flags::FENCE_INVALID, 0x2),
        (Flags::ADAPTER_RESET_REQUIRED, 0x4),
        (Flags::ENGINE_RESET_REQUIRED, 0x8),
        (Flags::FATAL_HARDWARE_ERROR, 0x10),
        (Flags::IOMMU, 0x20),
        (Flags::HW_CONTEXT_VALID, 0x40),
        (Flags::PROCESS_HANDLE_VALID, 0x80),
    ];
    for (flag, bit) in bits {
        assert_eq!(flag.bits(), bit);
    }
    // Flags; state of the device and of another device; resets of engines and adapters.
    let cases = [
        (Flags::WRITE, PAGE_FAULT, ACTIVE, (0, 0)),
        (Flags::IOMMU, PAGE_FAULT, ACTIVE, (0, 0)),
        (Flags::ENGINE_RESET_REQUIRED, PAGE_FAULT, ACTIVE, (1, 0)),
        (Flags::ADAPTER_RESET_REQUIRED, PAGE_FAULT, RESET, (0, 1)),
        (Flags::FENCE_INVALID | Flags::ENGINE_RESET_REQUIRED, PAGE_FAULT, ACTIVE, (1, 0)),
        (Flags::FENCE_INVALID | Flags::ADAPTER_RESET_REQUIRED, PAGE_FAULT, RESET, (0, 1)),
    ];
    for (flags, own, others, resets) in cases {
        let mut world = World::new();
        let [device, other] = [0; 2].map(|_| world.device());
        let nothing = Reply::PageFault(PageFaultState::default());
        assert_eq!(world.ok(Call::GetDeviceState { device, state_type: 5 }), nothing);
        let contexts = [device, other].map(|device| world.context(device, 0));
        // The next packet to run faults.
        page_fault(&mut world, flags);
        assert_eq!(world.kernel.snapshot().engines[0].faults.page_fault, Some((0xF000, flags.bits())));
        world.submit(contexts[0], &[busy(10)]);
        assert_eq!([device, other].map(|device| world.execution_state(device)), [own, others], "{flags:?}");
        let snapshot = world.kernel.snapshot();
        assert_eq!((snapshot.engine_resets, snapshot.adapter_resets), resets, "{flags:?}");
        let found = Reply::PageFault(PageFaultState { flags: flags.bits(), gpu_address: 0xF000 });
        assert_eq!(world.ok(Call::GetDeviceState { device, state_type: 5 }), found);
        assert_eq!(world.ok(Call::GetDeviceState { device: other, state_type: 5 }), nothing);
        if others == ACTIVE {
            world.submit(contexts[1], &[busy(10)]);
            world.advance(10);
        }
        assert!(world.kernel.engines_idle(), "the engine continues: {flags:?}");
        assert_eq!(world.kernel.miscounted(), None);
    }
}

#[test]
fn a_fatal_hardware_error_is_a_bugcheck() {
    covers!("TDR-029");
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    world.submit(context, &[busy(10)]);
    page_fault(&mut world, PageFaultFlags::FATAL_HARDWARE_ERROR);
    let bugcheck = world.kernel.bugchecked().expect("a bugcheck");
    assert_eq!((bugcheck.code, bugcheck.parameters), (0x119, [0xC, 0x10, 0, 0]));
    assert_eq!(world.execution_state(device), 4);
}

#[test]
fn fence_invalid_goes_with_id_0_and_a_reset() {
    covers!("TDR-035");
    use PageFaultFlags as Flags;
    // The fault input refuses these flags; from a driver they are a bugcheck.
    let mut world = World::new();
    world.notes();
    page_fault(&mut world, Flags::FENCE_INVALID);
    fault(&mut world, Fault::PageFault { engine: ENGINE, gpu_address: 0, flags: 1 << 8 });
    let notes = world.notes();
    assert!(notes[0].contains("FENCE_INVALID needs ENGINE_RESET_REQUIRED"), "{notes:?}");
    assert!(notes[1].contains("reserved bits"), "{notes:?}");
    let cases = [
        (0, Flags::FENCE_INVALID, Some(0xD)),
        (1, Flags::FENCE_INVALID | Flags::ENGINE_RESET_REQUIRED, Some(0xD)),
        (0, Flags::FENCE_INVALID | Flags::ENGINE_RESET_REQUIRED, None),
        (0, Flags::FENCE_INVALID | Flags::ADAPTER_RESET_REQUIRED, None),
        (1, Flags::WRITE, None),
        (2, Flags::WRITE, Some(1)),
    ];
    for (faulted_fence_id, flags, subtype) in cases {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let context = world.context(device, 0);
        let fault = Interrupt::DmaPageFaulted { engine: ENGINE, faulted_fence_id, gpu_address: 0, flags };
        script.borrow().call_back("submit_command", vec![interrupt(fault)]);
        world.submit(context, &[busy(10)]);
        let bugcheck = world.kernel.bugchecked().map(|bugcheck| (bugcheck.code, bugcheck.parameters[0]));
        assert_eq!(bugcheck, subtype.map(|subtype| (0x119, subtype)), "id {faulted_fence_id}, {flags:?}");
    }
}

#[test]
fn a_hardware_queue_fault_names_the_queue_or_with_fence_invalid_the_context_or_process() {
    covers!("TDR-036");
    use PageFaultFlags as Flags;
    let unnamed = Flags::FENCE_INVALID | Flags::ENGINE_RESET_REQUIRED;
    let queue = FaultedWork::Queue { hw_queue: HwQueueId(1), progress_fence_id: 5 };
    let context = FaultedWork::Context(HwContext(1));
    let process = FaultedWork::Process(P);
    // Named work; flags; states of the running, the named and another process's device, or `None` for a bugcheck.
    let cases = [
        (queue, Flags::WRITE, Some([ACTIVE, PAGE_FAULT, ACTIVE])),
        (queue, unnamed, None),
        (context, unnamed | Flags::HW_CONTEXT_VALID, Some([PAGE_FAULT, PAGE_FAULT, ACTIVE])),
        (context, unnamed, None),
        (context, Flags::HW_CONTEXT_VALID, None),
        (process, unnamed | Flags::PROCESS_HANDLE_VALID, Some([PAGE_FAULT, PAGE_FAULT, ACTIVE])),
        (process, unnamed | Flags::HW_CONTEXT_VALID, None),
        (FaultedWork::Unknown, unnamed, Some([PAGE_FAULT, ACTIVE, ACTIVE])),
    ];
    for (work, flags, states) in cases {
        let (mut world, script) = scripted(Config::default());
        let [running, named] = [0; 2].map(|_| world.device());
        let none = HwQueueFlags::empty();
        let queues = [running, named].map(|device| world.queue_on(device, 0, none));
        world.attach(Q);
        world.process = Q;
        let other = world.device();
        let trigger = world.context(other, 1);
        world.process = P;
        for queue in queues {
            world.submit_hw(queue, 5, &[busy(10)]);
        }
        let fault = Interrupt::HwQueuePageFaulted { engine: ENGINE, work, gpu_address: 0xF000, flags };
        script.borrow().call_back("submit_command", vec![interrupt(fault)]);
        world.process = Q;
        world.submit(trigger, &[busy(10)]);
        world.process = P;
        assert_eq!(world.kernel.bugchecked().is_none(), states.is_some(), "{work:?} {flags:?}");
        if let Some(states) = states {
            let own = [running, named].map(|device| world.execution_state(device));
            world.process = Q;
            assert_eq!([own[0], own[1], world.execution_state(other)], states, "{work:?} {flags:?}");
        }
    }
}

#[test]
fn a_fault_without_reset_poisons_fences_only_by_policy() {
    for (faulted_device_poisons, value) in
        [(FaultedDevicePoisons::Keeps, 3), (FaultedDevicePoisons::Poisons, MAX)]
    {
        let policy = Policy { faulted_device_poisons, ..Policy::default() };
        let mut world = World::with_config(Config { policy, ..Config::default() });
        let [faulted, marked, reset] = [0; 3].map(|_| world.device());
        let fences = [faulted, marked, reset].map(|device| world.fence(device, 3).object);
        let contexts = [faulted, reset].map(|device| world.context(device, 0));
        page_fault(&mut world, PageFaultFlags::WRITE);
        world.submit(contexts[0], &[busy(10)]);
        world.ok(Call::MarkDeviceAsError { device: marked, reason: 0 });
        page_fault(&mut world, PageFaultFlags::ENGINE_RESET_REQUIRED);
        world.submit(contexts[1], &[busy(10)]);
        assert_eq!(fences.map(|fence| world.value(fence)), [value, value, MAX]);
    }
}

#[test]
fn a_dma_fault_is_an_error_of_its_own() {
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let context = world.context(device, 0);
    let fault = Interrupt::DmaFaulted { engine: ENGINE, faulted_fence_id: 1 };
    script.borrow().call_back("submit_command", vec![interrupt(fault)]);
    world.submit(context, &[busy(10)]);
    assert_eq!(world.execution_state(device), 6);
    let why = format!("device {device} is lost: submission 1 of engine 0.0 faulted (ERROR_DMA_FAULT)");
    assert_eq!(world.notes(), [why]);
}

#[test]
fn the_status_of_a_process_counts_every_device_that_is_lost() {
    let mut world = World::new();
    let devices = [0; 3].map(|_| world.device());
    world.stores();
    hang(&mut world, devices[0]);
    world.advance(TIMEOUT);
    assert_eq!(world.stores(), [(0, 1)]);
    world.ok(Call::MarkDeviceAsError { device: devices[1], reason: 0 });
    world.ok(Call::MarkDeviceAsError { device: devices[1], reason: 0 });
    assert_eq!(world.stores(), [(0, 2)]);
    for device in devices {
        world.ok(Call::DestroyDevice { device });
    }
    assert_eq!(world.stores(), [(0, 1), (0, 0)]);
}
