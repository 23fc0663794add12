//! Engines and command buffers: their effects on fences, and when they wake waiters.

use covers::covers;

use crate::common::hardware::busy;
use crate::common::{IP, OK, World};
use d3dkmt::isa::{self, Packet::*};
use d3dkmt::{Call, Handle, Handles, NtStatus, Reply, calls};
use dxgkrnl::Input;
use dxgkrnl::ddi::EngineState;

/// Nodes of the default adapter: an engine of the advanced kind and one of the basic kind.
const ADVANCED: u32 = 0;
const BASIC: u32 = 2;

fn write(gpu_address: u64, value: u64) -> isa::Packet {
    FenceWrite { gpu_address, value }
}

fn submit_bytes(world: &mut World, context: Handle, private_data: Vec<u8>) -> NtStatus {
    world.status(calls::submit(context, private_data))
}

fn engine(world: &World, node: u32) -> EngineState {
    world.kernel.snapshot().engines[node as usize].state.clone()
}

#[test]
fn queued_packets_outlive_the_handles_they_name() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let (gate, fence) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.gpu_wait(context, gate, 1);
    world.gpu_signal(&[context], fence, 1);
    world.ok(Call::DestroySynchronizationObject { object: fence });
    assert_eq!(world.kernel.snapshot().objects_alive, 2);
    world.signal(device, gate, 1);
    assert_eq!(world.kernel.snapshot().objects_alive, 1, "the packet was the last reference to the fence");
}

#[test]
fn a_submission_with_a_reserved_flag_is_refused() {
    let mut world = World::new();
    let device = world.device();
    let contexts = Handles::from_slice(&[world.context(device, ADVANCED)]);
    for (flags, status) in [(0b111, OK), (0b1000, IP), (1 << 31, IP)] {
        let (contexts, private_data) = (contexts.clone(), isa::encode(&[busy(100)]));
        let call = Call::SubmitCommand { contexts, commands: 0, length: 0, flags, private_data };
        assert_eq!(world.status(call), status, "{flags:#x}");
    }
}

#[test]
fn submission_fence_ids_grow_by_one_on_each_engine() {
    covers!("SCH-005");
    let mut world = World::new();
    let device = world.device();
    let contexts = [ADVANCED, ADVANCED, BASIC].map(|node| world.context(device, node));
    let id = |world: &World, node| match engine(world, node) {
        EngineState::Running { submission_fence_id, queued, .. } => (submission_fence_id, queued),
        other => panic!("{other:?}"),
    };
    for context in contexts {
        world.submit(context, &[busy(100)]);
        world.submit(context, &[busy(100)]);
    }
    // A context has one buffer on its engine at a time; the other context's is queued behind it.
    assert_eq!((id(&world, ADVANCED), id(&world, BASIC)), ((1, 1), (1, 0)));
    world.advance(100);
    assert_eq!((id(&world, ADVANCED), id(&world, BASIC)), ((2, 1), (2, 0)));
    world.advance(200);
    assert_eq!((id(&world, ADVANCED), engine(&world, BASIC)), ((4, 0), EngineState::Idle));
}

#[test]
fn a_full_queue_refuses_packets_until_it_drains() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let gate = world.fence(device, 0).object;
    world.filling(|world| {
        for _ in 0..d3dkmt::limits::PACKETS_PER_CONTEXT_MAX {
            assert_eq!(world.gpu_wait(context, gate, 1), OK);
        }
    });
    assert_eq!(world.gpu_wait(context, gate, 1), NtStatus::NO_MEMORY);
    assert_eq!(world.submit(context, &[]), NtStatus::NO_MEMORY);
    assert_eq!(world.gpu_signal(&[context], gate, 1), NtStatus::NO_MEMORY);
    assert!(world.effects.notes.last().unwrap().text.contains("is full: 65536 packets"));
    assert_eq!(world.signal(device, gate, 1), OK);
    assert_eq!(world.submit(context, &[]), OK);
    assert!(world.kernel.snapshot().contexts[0].queue.is_empty());
}

#[test]
fn a_command_buffer_in_an_unknown_format_runs_for_a_fixed_time() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let fence = world.fence(device, 0).object;
    for bytes in [b"a vendor's packets".to_vec(), Vec::new()] {
        let begun = world.now;
        assert_eq!(submit_bytes(&mut world, context, bytes), OK);
        assert_eq!(world.kernel.next_deadline(), Some(begun + 100_000));
        world.gpu_signal(&[context], fence, begun + 1);
        world.advance(100_000);
        assert_eq!(world.value(fence), begun + 1);
    }
}

#[test]
fn a_damaged_command_buffer_is_refused_whole() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let fence = world.fence(device, 0);
    let bytes = isa::encode(&[write(fence.gpu_address, 1), busy(5)]);
    for cut in 8..bytes.len() {
        assert_eq!(submit_bytes(&mut world, context, bytes[..cut].to_vec()), IP, "cut at {cut}");
    }
    let mut unknown = bytes.clone();
    unknown[32] = 200;
    assert_eq!(submit_bytes(&mut world, context, unknown), IP);
    assert!(world.effects.notes.last().unwrap().text.contains("unknown opcode 200"));
    assert_eq!((world.value(fence.object), engine(&world, ADVANCED)), (0, EngineState::Idle));
    assert_eq!(submit_bytes(&mut world, context, bytes), OK);
}

#[test]
fn a_store_to_an_address_without_a_fence_only_logs_a_note() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let destroyed = world.fence(device, 0);
    let private = world.fence_with(device, 0, d3dkmt::SyncObjectFlags::NO_GPU_ACCESS);
    let hidden = destroyed.gpu_address + 64;
    world.ok(Call::DestroySynchronizationObject { object: destroyed.object });
    world.effects.clear();
    for address in [0, destroyed.gpu_address, hidden, hidden + 8, u64::MAX] {
        assert_eq!(world.submit(context, &[write(address, 9)]), OK);
        let note = world.effects.notes.pop().unwrap();
        assert!(note.text.contains(&format!("{address:#x}: nothing it may write is there")), "{}", note.text);
    }
    assert_eq!((world.stores(), world.value(private.object)), (vec![], 0));
}

#[test]
fn destroying_a_hung_context_frees_the_engine() {
    let mut world = World::with_config(crate::common::dropping(crate::common::without_timeouts()));
    let device = world.device();
    let [hung, waiting] = [0; 2].map(|_| world.context(device, ADVANCED));
    let fence = world.fence(device, 0);
    world.submit(hung, &[Hang, write(fence.gpu_address, 66)]);
    world.submit(waiting, &[busy(10), write(fence.gpu_address, 1)]);
    world.advance(1_000_000_000);
    assert!(matches!(engine(&world, ADVANCED), EngineState::Hung { submission_fence_id: 1, queued: 1 }));
    assert_eq!(world.kernel.next_deadline(), None);
    world.ok(Call::DestroyContext { context: hung });
    world.advance(10);
    assert_eq!((world.value(fence.object), engine(&world, ADVANCED)), (1, EngineState::Idle));
}

#[test]
fn a_process_queues_bytes_up_to_the_limit_and_again_once_they_have_run() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let fence = world.fence(device, 0).object;
    world.gpu_wait(context, fence, 1);
    let opaque = |private_data| calls::submit(context, private_data);
    let piece = 64 * 1024;
    // Each buffer with its packet.
    let most = d3dkmt::limits::QUEUED_BYTES_PER_PROCESS_MAX.div_ceil(piece + 144);
    let accepted =
        (0..=most).take_while(|_| world.status(opaque(vec![0; piece])) == NtStatus::SUCCESS).count();
    assert_eq!(accepted, most);
    assert_eq!(world.status(opaque(vec![0; 1])), NtStatus::NO_MEMORY);
    assert_eq!(world.signal(device, fence, 1), NtStatus::SUCCESS);
    assert_eq!(world.status(opaque(vec![0; 1])), NtStatus::SUCCESS);
}

#[test]
fn a_command_buffer_that_writes_a_fence_often_stores_it_once_with_the_last_value() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, ADVANCED);
    let (first, second) = (world.fence(device, 0), world.fence(device, 0));
    // As many packets as an engine fetches at a time.
    let waits = [7, 31].map(|value| world.pending(device, &[(first.object, value)], false));
    world.stores();
    let writes: Vec<isa::Packet> = (1..=31)
        .flat_map(|value| [first, second].map(|fence| FenceWrite { gpu_address: fence.gpu_address, value }))
        .collect();
    world.submit(context, &writes);
    assert_eq!(world.stores(), [(first.slot.unwrap(), 31), (second.slot.unwrap(), 31)]);
    assert_eq!(world.woken(), waits);
}

#[test]
fn a_process_has_no_more_devices_than_the_limit() {
    let mut world = World::new();
    let adapter = world.adapter();
    let create = Call::CreateDevice { adapter, flags: 0 };
    let last = world.filling(|world| {
        (0..d3dkmt::limits::DEVICES_PER_PROCESS_MAX)
            .map(|_| world.ok(create.clone()))
            .last()
            .expect("the limit of devices is above 0")
    });
    assert_eq!(world.status(create.clone()), NtStatus::NO_MEMORY);
    let Reply::Device(device) = last else { panic!("{last:?}") };
    world.ok(Call::DestroyDevice { device });
    world.ok(create);
    world.finish();
}

#[test]
fn a_process_with_thousands_of_contexts_and_opens_ends_without_quadratic_work() {
    // Quadratic work would take minutes here.
    let mut world = World::new();
    let device = world.device();
    world.filling(|world| {
        for _ in 0..d3dkmt::limits::CONTEXTS_PER_PROCESS_MAX {
            let context = world.context(device, ADVANCED);
            world.submit(context, &[Hang]);
        }
    });
    let call = calls::create_context(device, 0, d3dkmt::CreateContextFlags::empty());
    assert_eq!(world.status(call), NtStatus::NO_MEMORY);
    world.input(Input::ProcessGone { process: crate::common::P });
    assert!(world.kernel.snapshot().is_empty());
}
