//! User-mode submission: doorbells, their statuses, and the effects of rings.

use std::collections::BTreeSet;

use covers::covers;

use crate::allocations::{create, destroy};
use crate::common::hardware::*;
use crate::common::scripted::{calls, inject, scripted};
use crate::common::{P, World};
use crate::gpu_memory::{Mapped, bring, map, page_table_updates};
use d3dkmt::{Call, CreateAllocationFlags, Handle, NtStatus, Reply, SignalFlags, isa};
use dxgkrnl::ddi::{Callback, DisconnectReason, EngineId};
use dxgkrnl::{AdapterConfig, Config, Fault, Features, Input, ProcessId, VidSchCaps, VmId};

const CONNECTED: u64 = 0;
const RETRY: u64 = 2;
const ABORT: u64 = 3;
const DEVICE_REMOVED: NtStatus = NtStatus::DEVICE_REMOVED;

/// The default adapter with this number of doorbells for each node.
fn with_doorbells(doorbells: u32) -> Config {
    let mut adapter = AdapterConfig::default();
    adapter.nodes.iter_mut().for_each(|node| node.doorbells = doorbells);
    Config { adapters: vec![adapter], ..Config::default() }
}

fn statuses(world: &mut World, slot: u32) -> Vec<u64> {
    world.stores().into_iter().filter(|(at, _)| *at == slot).map(|(_, status)| status).collect()
}

/// A connected queue of user-mode submission, and the slot of its doorbell's status.
fn connected(world: &mut World, node: u32) -> (Queue, u32) {
    let device = world.device();
    let queue = world.queue_on(device, node, USER_MODE);
    let slot = world.doorbell(queue);
    assert_eq!(world.connect(queue), OK);
    world.stores();
    (queue, slot)
}

#[test]
fn user_mode_submission_is_for_systems_and_nodes_that_have_it() {
    let mut without_node = Config::default();
    without_node.adapters[0].nodes[0].user_mode_submission = false;
    let features = Features::HARDWARE_SCHEDULING | Features::NATIVE_FENCE;
    let without_feature = Config { features, ..Config::default() };
    let mut without_native = Config::default();
    without_native.adapters[0].caps.remove(VidSchCaps::NATIVE_GPU_FENCE);
    for config in [without_node, without_feature, without_native] {
        let mut world = World::with_config(config);
        let device = world.device();
        let context = world.hw_context(device, ADVANCED);
        assert_eq!(world.try_hw_queue(context, USER_MODE).err(), Some(UNSUPPORTED));
        world.finish();
    }
}

#[test]
fn each_kind_of_queue_refuses_the_other_kind_of_submission_and_both_work_side_by_side() {
    covers!("SCH-025", "SCH-036");
    let mut world = World::new();
    let (user, _) = connected(&mut world, ADVANCED);
    let device = world.device();
    let kernel = world.queue_on(device, ADVANCED, NATIVE);
    let fence = world.native(device).object;
    assert_eq!(world.submit_hw(user, 1, &[]), IP);
    assert_eq!(world.signal_hw(&[user], fence, 1), IP);
    assert_eq!(world.wait_hw(user, fence, 1), IP);
    for call in [
        Call::CreateDoorbell { queue: kernel.handle, rings: vec![] },
        Call::ConnectDoorbell { queue: kernel.handle },
        Call::NotifyWorkSubmission { queue: kernel.handle },
        Call::DestroyDoorbell { queue: kernel.handle },
    ] {
        assert_eq!(world.status(call), IP);
    }
    world.notes();
    world.ring(kernel, 1, &[&[write(&kernel.fence, 1)]]);
    assert!(world.notes()[0].contains("UserModeSubmission"));
    assert_eq!(world.view(kernel).progress, 0);
    world.ring(user, 1, &[&[busy(100), write(&user.fence, 1)]]);
    assert_eq!(world.submit_hw(kernel, 1, &[busy(100), write(&kernel.fence, 1)]), OK);
    world.advance(200);
    assert_eq!((world.view(user).progress, world.view(kernel).progress), (1, 1));
    world.finish();
}

#[test]
fn user_mode_queues_reach_native_fences_only() {
    covers!("FEN-118");
    let mut world = World::new();
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let monitored_progress = d3dkmt::HwQueueFlags::USER_MODE_SUBMISSION;
    assert_eq!(world.try_hw_queue(context, monitored_progress).err(), Some(IP));
    let queue = world.hw_queue(context, USER_MODE);
    world.doorbell(queue);
    assert_eq!(world.connect(queue), OK);
    let (monitored, native) = (world.fence(device, 0), world.native(device));
    world.ring(queue, 1, &[&[write(&monitored, 1), write(&native, 1)]]);
    assert_eq!((world.value(monitored.object), world.value(native.object)), (0, 1));
    let kernel = world.hw_queue(context, NATIVE);
    assert_eq!(world.submit_hw(kernel, 1, &[write(&monitored, 1)]), OK);
    assert_eq!(world.value(monitored.object), 1);
    world.finish();
}

#[test]
fn only_the_kernel_writes_the_status_of_a_doorbell_which_keeps_its_slot() {
    covers!("SCH-026", "SCH-027");
    let mut world = World::new();
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    world.stores();
    let slot = world.doorbell(queue);
    assert_eq!(world.stores(), [(slot, RETRY)]);
    assert_eq!(world.connect(queue), OK);
    assert_eq!(world.stores(), [(slot, CONNECTED)]);
    assert_eq!((world.connect(queue), world.stores()), (OK, vec![]), "the doorbell is already connected");
    // Engines cannot write the status slot.
    let status_address =
        queue.fence.gpu_address - u64::from(queue.fence.slot.unwrap()) * 64 + u64::from(slot) * 64;
    let poke = isa::Packet::FenceWrite { gpu_address: status_address, value: ABORT };
    world.ring(queue, 1, &[&[poke, write(&queue.fence, 1)]]);
    assert_eq!(world.stores(), [(queue.fence.slot.unwrap(), 1)]);
    // A doorbell keeps its status slot, and another doorbell has another slot.
    world.input(Input::Fault(Fault::EngineToF1 { engine: EngineId { adapter: 0, node: ADVANCED } }));
    assert_eq!(world.connect(queue), OK);
    assert_eq!(world.stores(), [(slot, RETRY), (slot, CONNECTED)]);
    let other = world.queue_on(device, ADVANCED, USER_MODE);
    assert_ne!(world.doorbell(other), slot);
    // After a loss of the mapping the kernel stores the status again.
    world.stores();
    world.input(Input::MemoryChanged { vm: VmId::HOST });
    assert_eq!(statuses(&mut world, slot), [CONNECTED]);
    world.finish();
}

#[test]
fn progress_beyond_the_last_queued_value_is_noted() {
    covers!("SCH-030");
    let mut world = World::new();
    let (queue, _) = connected(&mut world, ADVANCED);
    world.notes();
    world.ring(queue, 1, &[&[write(&queue.fence, 1)]]);
    world.ring(queue, 3, &[&[write(&queue.fence, 2)], &[write(&queue.fence, 3)]]);
    assert_eq!(world.notes(), Vec::<String>::new());
    world.ring(queue, 3, &[&[write(&queue.fence, 4)]]);
    assert!(world.notes()[0].contains("store it before the buffer"));
    world.ring(queue, 1, &[]);
    assert!(world.notes()[0].contains("went from 3 to 1"));
    world.finish();
}

#[test]
fn a_disconnect_by_the_driver_returns_its_status() {
    covers!("SCH-031");
    let (mut world, script) = scripted(Config::default());
    let (queue, slot) = connected(&mut world, ADVANCED);
    let device = world.device();
    let bare = world.queue_on(device, ADVANCED, USER_MODE);
    let (queue_id, bare_id) = (world.view(queue).hw_queue, world.view(bare).hw_queue);
    let disconnect = |world: &mut World, hw_queue, reason| {
        world.effects.clear();
        calls(&script, &[]);
        inject(world, &script, vec![Callback::DisconnectDoorbell { hw_queue, reason }]);
        (world.stores(), calls(&script, &["doorbell_disconnected"]))
    };
    let returned = |hw_queue: dxgkrnl::ddi::HwQueueId, status: &str| {
        vec![format!("doorbell_disconnected {}: STATUS_{status}", hw_queue.0)]
    };
    let (retry, abort) = (DisconnectReason::Retry, DisconnectReason::Abort);
    let success = returned(queue_id, "SUCCESS");
    assert_eq!(disconnect(&mut world, queue_id, retry), (vec![(slot, RETRY)], success.clone()));
    world.ring(queue, 1, &[&[write(&queue.fence, 1)]]);
    assert_eq!(world.view(queue).progress, 0, "the address is the dummy page");
    assert_eq!(
        disconnect(&mut world, queue_id, retry),
        (vec![], success.clone()),
        "the doorbell was already disconnected"
    );
    assert_eq!(disconnect(&mut world, queue_id, abort), (vec![(slot, ABORT)], success.clone()));
    assert_eq!(disconnect(&mut world, queue_id, retry), (vec![], success), "ABORT is final");
    assert_eq!(world.status(Call::ConnectDoorbell { queue: queue.handle }), IP, "for its client, too");
    assert_eq!(disconnect(&mut world, bare_id, retry), (vec![], returned(bare_id, "INVALID_PARAMETER")));
    world.finish();
}

#[test]
fn a_doorbell_that_its_driver_aborts_while_it_connects_it_is_not_connected() {
    covers!("SCH-031");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    let slot = world.doorbell(queue);
    world.stores();
    let (hw_queue, reason) = (world.view(queue).hw_queue, DisconnectReason::Abort);
    script.borrow().call_back("connect_doorbell", [Callback::DisconnectDoorbell { hw_queue, reason }]);
    assert_eq!((world.connect(queue), world.stores()), (IP, vec![(slot, ABORT)]));
    assert_eq!((world.connect(queue), world.stores()), (IP, vec![]), "ABORT is final");
    world.finish();
}

#[test]
fn a_queue_is_disconnected_before_its_doorbell_is_reused() {
    covers!("SCH-032");
    let (mut world, script) = scripted(with_doorbells(1));
    let (first, first_slot) = connected(&mut world, ADVANCED);
    let device = world.device();
    let second = world.queue_on(device, ADVANCED, USER_MODE);
    let second_slot = world.doorbell(second);
    world.stores();
    calls(&script, &[]);
    assert_eq!(world.connect(second), OK);
    assert_eq!(world.stores(), [(first_slot, RETRY), (second_slot, CONNECTED)]);
    let (victim, taker) = (world.view(first).hw_queue.0, world.view(second).hw_queue.0);
    let expected = [
        format!("connect_doorbell {taker}: Retry"),
        format!("doorbell_disconnected {victim}: STATUS_SUCCESS"),
        format!("connect_doorbell {taker}: Connected"),
    ];
    assert_eq!(calls(&script, &["connect", "disconnect", "doorbell"]), expected);
    world.finish();
}

#[test]
fn a_node_without_physical_doorbells_connects_none() {
    let mut world = World::with_config(with_doorbells(0));
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    world.doorbell(queue);
    assert_eq!(world.connect(queue), NtStatus::NO_MEMORY);
    world.finish();
}

#[test]
fn contexts_are_suspended_and_doorbells_disconnected_before_d3_and_connecting_wakes() {
    covers!("SCH-033", "TDR-040");
    let (mut world, script) = scripted(Config::default());
    let (queue, slot) = connected(&mut world, ADVANCED);
    let (elsewhere, _) = connected(&mut world, OTHER);
    // On the way to D3, with the suspend not acknowledged: the doorbell stays connected and work queues up.
    world.stores();
    calls(&script, &[]);
    script.borrow().holds_suspends = true;
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    assert_eq!(world.stores(), []);
    assert_eq!(world.connect(queue), OK);
    world.input(Input::Fault(Fault::Power { adapter: 0, on: true }));
    // In D3.
    script.borrow().holds_suspends = false;
    calls(&script, &[]);
    world.stores();
    world.input(Input::Fault(Fault::Power { adapter: 0, on: false }));
    let slots: Vec<_> = world.stores();
    assert!(
        slots.contains(&(slot, RETRY))
            && slots.len() == 2
            && slots.iter().all(|(_, status)| *status == RETRY)
    );
    let (first, second) = (world.view(queue).hw_queue.0, world.view(elsewhere).hw_queue.0);
    let order = calls(&script, &["suspend", "disconnect", "set_power", "resume", "connect"]);
    let expected = [
        "suspend_context 0 2".to_string(),
        format!("disconnect_doorbell {first}"),
        "suspend_context 1 2".to_string(),
        format!("disconnect_doorbell {second}"),
        "set_power_state 0 false".to_string(),
    ];
    assert_eq!(order, expected);
    assert_eq!(world.connect(queue), OK);
    let order = calls(&script, &["suspend", "disconnect", "set_power", "resume", "connect"]);
    let connect = format!("connect_doorbell {first}: Connected");
    assert_eq!(order, ["set_power_state 0 true", "resume_context 0", "resume_context 1", connect.as_str()]);
    assert_eq!(world.stores(), [(slot, CONNECTED)]);
    world.finish();
}

#[test]
fn rung_work_without_progress_times_out_and_its_device_is_lost() {
    covers!("TDR-001", "TDR-039", "SCH-016");
    const TIMEOUT: u64 = 2_000_000_000;
    for per_engine in [true, false] {
        let mut config = Config::default();
        config.adapters[0].caps.set(VidSchCaps::SUPPORT_PER_ENGINE_TDR, per_engine);
        let mut world = World::with_config(config);
        let (queue, slot) = connected(&mut world, ADVANCED);
        let (other, other_slot) = connected(&mut world, OTHER);
        let device = world.view(queue).device;
        let wait = world.pending(device, &[(queue.fence.object, 3)], false);
        let steps = [busy(TIMEOUT - 1), write(&queue.fence, 1)];
        world.ring(queue, 1, &[&steps]);
        world.ring(queue, 3, &[&[busy(1), write(&queue.fence, 2)], &[isa::Packet::Hang]]);
        world.advance(TIMEOUT);
        world.stores();
        world.advance(TIMEOUT - 1);
        assert_eq!((world.execution_state(device), world.value(queue.fence.object)), (1, 2), "progress");
        assert_eq!(world.ended(), []);
        world.advance(1);
        assert_eq!(world.execution_state(device), 3, "HUNG");
        let stores = world.stores();
        let stored = |at: u32| stores.iter().filter(move |(slot, _)| *slot == at).map(|(_, value)| *value);
        assert_eq!(stored(slot).collect::<Vec<_>>(), [ABORT]);
        assert_eq!(stored(other_slot).collect::<Vec<_>>(), if per_engine { vec![] } else { vec![ABORT] });
        assert_eq!(world.ended(), [(wait, DEVICE_REMOVED)]);
        assert_eq!(world.connect(queue), DEVICE_REMOVED);
        let snapshot = world.kernel.snapshot();
        assert_eq!(
            (snapshot.engine_resets, snapshot.adapter_resets),
            (u64::from(per_engine), u64::from(!per_engine))
        );
        assert_eq!(world.kernel.next_deadline(), None);
        if per_engine {
            world.ring(other, 1, &[&[write(&other.fence, 1)]]);
            assert_eq!(world.value(other.fence.object), 1, "another engine's queue continues");
        }
        world.finish();
    }
    // No timeout for a queue with DisableGpuTimeout, for work that waits in hardware, and for work that has not reached
    // the engine.
    let mut world = World::new();
    let device = world.device();
    let exempt = world.queue_on(device, ADVANCED, USER_MODE | d3dkmt::HwQueueFlags::DISABLE_GPU_TIMEOUT);
    world.doorbell(exempt);
    assert_eq!(world.connect(exempt), OK);
    world.ring(exempt, 1, &[&[isa::Packet::Hang]]);
    let (waits, _) = connected(&mut world, OTHER);
    let gate = world.native(world.view(waits).device);
    world.ring(waits, 1, &[&[wait(&gate, 1), isa::Packet::Hang]]);
    let (unnoticed, _) = connected(&mut world, BASIC);
    world.ring(unnoticed, 1, &[&[write(&unnoticed.fence, 1)]]);
    world.advance(10 * TIMEOUT);
    assert_eq!((world.kernel.snapshot().engine_resets, world.kernel.next_deadline()), (0, None));
    let owner = world.view(waits).device;
    assert_eq!(world.signal(owner, gate.object, 1), OK);
    world.advance(TIMEOUT);
    assert_eq!((world.kernel.snapshot().engine_resets, world.execution_state(owner)), (1, 3));
    world.finish();
}

/// Work that is exempt from timeouts has TdrDelay once another VM has work for its engine.
#[test]
fn a_ring_that_made_its_last_progress_is_no_work_of_its_vm() {
    covers!("SCH-016", "SCH-030");
    for last_queued in [1, 2] {
        let mut world = World::new();
        world.guest(1, ProcessId(2));
        let (queue, _) = connected(&mut world, ADVANCED);
        world.ring(queue, last_queued, &[&[busy(100), write(&queue.fence, 1)]]);
        world.advance(100);
        world.process = P;
        let adapter = world.adapter();
        let disable_gpu_timeout = 4;
        let create = Call::CreateDevice { adapter, flags: disable_gpu_timeout };
        let Reply::Device(device) = world.ok(create) else { panic!("no device") };
        let context = world.context(device, ADVANCED);
        assert_eq!(world.submit(context, &[isa::Packet::Hang]), OK);
        world.advance(20_000_000_000);
        assert_eq!(world.execution_state(device), if last_queued == 1 { 1 } else { 3 });
    }
}

#[test]
fn a_destroyed_queue_first_drains_to_its_last_queued_value() {
    covers!("SCH-035");
    let (mut world, script) = scripted(Config::default());
    let (queue, _) = connected(&mut world, ADVANCED);
    let id = world.view(queue).hw_queue.0;
    world.ring(queue, 2, &[&[busy(100), write(&queue.fence, 1)], &[busy(100), write(&queue.fence, 2)]]);
    calls(&script, &[]);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), IP, "the handle is destroyed");
    let names = ["disconnect_doorbell", "destroy_doorbell", "destroy_hw_queue"];
    assert_eq!(calls(&script, &names), [format!("disconnect_doorbell {id}")]);
    let fence = queue.fence.object;
    world.advance(199);
    assert_eq!((world.value(fence), calls(&script, &names)), (1, vec![]));
    world.advance(1);
    assert_eq!(world.stores().last(), Some(&(queue.fence.slot.unwrap(), 2)));
    assert_eq!(calls(&script, &names), [format!("destroy_doorbell {id}"), format!("destroy_hw_queue {id}")]);
    assert_eq!(
        world.status(Call::DestroySynchronizationObject { object: fence }),
        IP,
        "the fence ended with the queue"
    );
    assert_eq!(world.kernel.miscounted(), None);
    // The queue does not wait for a stored value that never reached the engine.
    let (queue, _) = connected(&mut world, ADVANCED);
    assert_eq!(world.status(Call::DestroyDoorbell { queue: queue.handle }), OK);
    world.ring(queue, 1, &[&[write(&queue.fence, 1)]]);
    calls(&script, &names);
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
    assert_eq!(calls(&script, &names).len(), 1);
    world.finish();
}

#[test]
fn contexts_of_a_stopped_adapter_are_not_suspended_when_their_process_dies() {
    for (stops, expected) in [(false, vec!["suspend_context 0 1"]), (true, vec![])] {
        let (mut world, script) = scripted(Config::default());
        connected(&mut world, ADVANCED);
        if stops {
            world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
        }
        calls(&script, &[]);
        world.input(Input::ProcessGone { process: P });
        assert_eq!(calls(&script, &["suspend_context"]), expected, "stops: {stops}");
    }
}

#[test]
fn a_cpu_signal_that_drains_a_queue_still_signals_its_other_objects() {
    covers!("SCH-035");
    // Found by a random sequence: the first value ended the queue, and its progress fence, which was named again.
    for (first, second) in [(2, 1), (2, 2), (1, 2)] {
        let (mut world, script) = scripted(Config::default());
        let device = world.device();
        let other = world.fence(device, 0);
        let (queue, _) = connected(&mut world, ADVANCED);
        let fence = queue.fence.object;
        world.ring(queue, 2, &[&[busy(100), write(&queue.fence, 1)], &[isa::Packet::Hang]]);
        assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
        calls(&script, &[]);
        let (objects, values) = (vec![fence, other.object, fence], vec![first, 5, second]);
        let flags = SignalFlags::ALLOW_FENCE_REWIND;
        let status = world.status(Call::SignalFromCpu {
            device,
            objects: objects.into(),
            values: values.into(),
            flags,
        });
        assert_eq!((status, world.value(other.object)), (OK, 5));
        assert_eq!(calls(&script, &["destroy_hw_queue"]).len(), 1, "the queue is destroyed exactly once");
        assert_eq!(
            world.status(Call::DestroySynchronizationObject { object: fence }),
            IP,
            "its fence is destroyed, too"
        );
        assert_eq!(world.kernel.miscounted(), None);
        world.finish();
    }
}

/// Destroys a queue that has work: it ends once its progress fence reaches the last queued value.
fn drains(world: &mut World, queue: Queue) {
    assert_eq!(world.status(Call::DestroyHwQueue { queue: queue.handle }), OK);
    let note = &world.effects.notes.last().expect("a note").text;
    assert!(note.contains("ends when its progress fence has"), "{note}");
}

#[test]
fn destroying_a_context_destroys_both_of_its_interdependent_queues() {
    covers!("SCH-035");
    let (mut world, script) = scripted(crate::common::dropping(Config::default()));
    let device = world.device();
    let context = world.hw_context(device, ADVANCED);
    let queues = [(); 2].map(|()| {
        let queue = world.hw_queue(context, USER_MODE);
        world.doorbell(queue);
        assert_eq!(world.connect(queue), OK);
        queue
    });
    world.ring(queues[0], 1, &[&[busy(100), write(&queues[0].fence, 1)]]);
    world.ring(queues[1], 1, &[&[write(&queues[1].fence, 1)]]);
    queues.iter().for_each(|queue| drains(&mut world, *queue));
    calls(&script, &[]);
    assert_eq!(world.status(Call::DestroyContext { context }), OK);
    assert_eq!(calls(&script, &["destroy_hw_queue"]).len(), 2);
    assert_eq!(world.kernel.miscounted(), None);
    world.finish();
}

#[test]
fn interrupts_of_one_ddi_may_name_a_fence_that_the_first_of_them_ended() {
    covers!("SCH-035", "FEN-109");
    let (mut world, _) = scripted(Config::default());
    let (queue, _) = connected(&mut world, ADVANCED);
    world.ring(queue, 1, &[&[busy(100), write(&queue.fence, 1), write(&queue.fence, 1)]]);
    drains(&mut world, queue);
    world.advance(100);
    assert_eq!((world.kernel.bugchecked().is_some(), world.kernel.miscounted()), (false, None));
    world.finish();
}

#[test]
fn a_cpu_signal_may_resume_a_ring_that_then_destroys_the_signaled_fence() {
    covers!("SCH-035");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (queue, _) = connected(&mut world, ADVANCED);
    world.ring(queue, 2, &[&[wait(&queue.fence, 1), write(&queue.fence, 2)]]);
    drains(&mut world, queue);
    calls(&script, &[]);
    assert_eq!(world.signal(device, queue.fence.object, 1), OK);
    assert_eq!(calls(&script, &["destroy_hw_queue"]).len(), 1);
    assert_eq!(world.kernel.miscounted(), None);
    world.finish();
}

#[test]
fn a_process_that_dies_has_its_contexts_suspended_before_doorbells_and_queues_go() {
    covers!("SCH-035");
    let (mut world, script) = scripted(Config::default());
    world.process = ProcessId(2);
    world.attach(ProcessId(2));
    let (queue, _) = connected(&mut world, ADVANCED);
    world.ring(queue, 1, &[&[busy(100), write(&queue.fence, 1)]]);
    calls(&script, &[]);
    world.input(Input::ProcessGone { process: ProcessId(2) });
    let names = ["suspend_context", "disconnect_doorbell", "destroy"];
    let expected = [
        "suspend_context 0 1",
        "disconnect_doorbell 0",
        "destroy_doorbell 0",
        "destroy_hw_queue 0",
        "destroy_native_fence 1",
        "destroy_context 0",
        "destroy_device 0 2",
        "destroy_process 0 1",
    ];
    assert_eq!(calls(&script, &names), expected);
    world.advance(1000);
    world.process = P;
    world.finish();
}

#[test]
fn a_ring_has_a_limited_size() {
    let mut world = World::new();
    let (queue, _) = connected(&mut world, ADVANCED);
    world.ring(queue, 1, &[&[isa::Packet::Hang]]);
    world.notes();
    let buffers = vec![vec![7; 1 << 20]; 16];
    let ring = |world: &mut World, buffers: &Vec<Vec<u8>>| {
        let (process, queue, buffers) = (P, queue.handle, buffers.clone());
        world.input(Input::DoorbellRung { process, queue, last_queued: 2, buffers });
        world.notes().len()
    };
    assert_eq!(ring(&mut world, &buffers), 0);
    assert_eq!(ring(&mut world, &buffers), 1, "32 MiB are the limit of a process");
    assert_eq!(ring(&mut world, &vec![isa::encode(&[isa::Packet::Hang])[..9].to_vec()]), 1, "damaged");
    world.finish();
    // Buffers that are complete count no more.
    let mut world = World::new();
    connected(&mut world, ADVANCED);
    for _ in 0..3 {
        assert_eq!(ring(&mut world, &buffers), 0);
        world.advance(2_000_000);
    }
}

#[test]
fn a_doorbell_needs_a_slot_for_its_status() {
    let mut world = World::new();
    world.process = ProcessId(2);
    let attached =
        Input::ProcessAttached { process: ProcessId(2), vm: VmId::HOST, pid: 1, name: "two".into() };
    world.input(attached);
    world.input(Input::FenceMemoryAdded { process: ProcessId(2), slots: 2 });
    let device = world.device();
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    let create = Call::CreateDoorbell { queue: queue.handle, rings: vec![] };
    assert_eq!(world.ok(create.clone()), Reply::FenceMemoryExhausted);
    world.input(Input::FenceMemoryAdded { process: ProcessId(2), slots: 1 });
    assert_eq!(world.ok(create), Reply::Doorbell { status_slot: 2 });
    world.finish();
}

#[test]
fn a_ring_is_referenced_while_its_doorbell_lives_and_destroyed_by_its_owner_only() {
    covers!("SCH-034");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (paging_queue, _) = crate::paging::queue(&mut world, device, 0);
    let [ring, control] = [0; 2].map(|_| create(&mut world, device, CreateAllocationFlags::empty()).2);
    let queue = world.queue_on(device, ADVANCED, USER_MODE);
    let doorbell = |rings: &[Handle]| Call::CreateDoorbell { queue: queue.handle, rings: rings.to_vec() };
    map(&mut world, Mapped::whole(ring).by(paging_queue));
    bring(&mut world, paging_queue, ring);
    assert_eq!(world.status(doorbell(&[ring, control])), IP, "the control is not resident");
    bring(&mut world, paging_queue, control);
    let elsewhere = world.device();
    let theirs = create(&mut world, elsewhere, CreateAllocationFlags::empty()).2;
    for wrong in [&[ring, device][..], &[ring, theirs], &[ring, control, ring]] {
        assert_eq!(world.status(doorbell(wrong)), IP);
    }
    world.ok(doorbell(&[ring, control]));
    assert_eq!(world.connect(queue), OK);
    page_table_updates(&script);
    let alive = |world: &World| {
        let allocations = world.kernel.snapshot().allocations;
        let numbers: BTreeSet<u32> = allocations.iter().map(|one| one.allocation).collect();
        (numbers.len(), allocations.iter().filter(|one| one.resident).count())
    };
    // The ring stays mapped after its owner evicts and destroys it, also after a disconnect.
    world.ok(Call::Evict { device, allocations: vec![ring], flags: 0 });
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[ring]), OK);
    world.input(Input::Fault(Fault::EngineToF1 { engine: EngineId { adapter: 0, node: ADVANCED } }));
    assert_eq!(
        (page_table_updates(&script), alive(&world)),
        (vec![], (3, 3)),
        "engines get no page-table update"
    );
    world.ok(Call::DestroyDoorbell { queue: queue.handle });
    let updates = page_table_updates(&script);
    assert!(matches!(&updates[..], [line] if line.contains("NoAccess")), "{updates:?}");
    // The control allocation still belongs to its owner: destroying a doorbell destroys no allocation.
    assert_eq!(alive(&world), (2, 1));
    world.ok(doorbell(&[control]));
    world.ok(Call::DestroyDevice { device });
    assert_eq!(alive(&world), (1, 0), "the end of the device destroys it");
    world.input(Input::ProcessGone { process: P });
    assert!(world.kernel.snapshot().is_empty());
}

#[test]
fn a_ring_in_a_resource_keeps_the_resource_until_its_doorbell_ends() {
    covers!("SCH-034");
    for ends_by_exit in [false, true] {
        let mut world = World::new();
        let device = world.device();
        let (paging_queue, _) = crate::paging::queue(&mut world, device, 0);
        let (resource, _, ring) = create(&mut world, device, CreateAllocationFlags::CREATE_RESOURCE);
        bring(&mut world, paging_queue, ring);
        let queue = world.queue_on(device, ADVANCED, USER_MODE);
        world.ok(Call::CreateDoorbell { queue: queue.handle, rings: vec![ring] });
        if !ends_by_exit {
            assert_eq!(destroy(&mut world, device, resource, &[]), OK);
            assert_eq!(world.kernel.snapshot().allocations.len(), 1, "the doorbell keeps its ring");
            let charged = |world: &World| world.kernel.memory_bytes(P).unwrap();
            let with_ring = charged(&world);
            world.ok(Call::DestroyDoorbell { queue: queue.handle });
            assert!(charged(&world) + 384 + 512 <= with_ring, "a doorbell pays for its ring");
            assert!(world.kernel.snapshot().allocations.is_empty());
            let (other, _, _) = create(&mut world, device, CreateAllocationFlags::CREATE_RESOURCE);
            assert_eq!(destroy(&mut world, device, other, &[]), OK);
        }
        world.finish();
    }
}

#[test]
fn a_ring_of_two_doorbells_stays_mapped_until_both_are_gone() {
    covers!("SCH-034");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (paging_queue, _) = crate::paging::queue(&mut world, device, 0);
    let ring = create(&mut world, device, CreateAllocationFlags::empty()).2;
    map(&mut world, Mapped::whole(ring).by(paging_queue));
    bring(&mut world, paging_queue, ring);
    let queues = [(); 2].map(|()| world.queue_on(device, ADVANCED, USER_MODE));
    for queue in queues {
        world.ok(Call::CreateDoorbell { queue: queue.handle, rings: vec![ring] });
    }
    assert_eq!(destroy(&mut world, device, Handle::NULL, &[ring]), OK);
    page_table_updates(&script);
    world.ok(Call::DestroyDoorbell { queue: queues[0].handle });
    assert_eq!(
        page_table_updates(&script),
        Vec::<String>::new(),
        "the other doorbell's engine still reads the ring"
    );
    world.ok(Call::DestroyDoorbell { queue: queues[1].handle });
    let updates = page_table_updates(&script);
    assert!(matches!(&updates[..], [line] if line.contains("NoAccess")), "{updates:?}");
    world.finish();
}
