//! Paging queues, their fences, and the address spaces behind them.

use covers::covers;

use crate::common::scripted::{paging_on, scripted};
use crate::common::{IP, OK, P, World, share};
use d3dkmt::gpu_va::operation::UNMAP;
use d3dkmt::gpu_va::protection::ZERO;
use d3dkmt::{
    Call, CreatedSyncObject, GpuVaOperation, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags as F,
    calls,
    isa::Packet::{Busy, FenceWrite},
    limits,
};
use dxgkrnl::{Config, Fault, Input, ProcessId};

/// Duration of a paging buffer on the default adapter.
const PAGING_NS: u64 = 100_000;

pub(crate) fn queue(world: &mut World, device: Handle, priority: i32) -> (Handle, CreatedSyncObject) {
    match world.ok(Call::CreatePagingQueue { device, priority, physical_adapter: 0 }) {
        Reply::PagingQueue { queue, fence } => (queue, fence),
        other => panic!("{other:?}"),
    }
}

fn map_call(paging_queue: Handle, base: u64, size_pages: u64, protection: u64) -> Call {
    calls::map(paging_queue, base, Handle::NULL, size_pages, protection)
}

/// Maps Zero pages anywhere: address and value.
pub(crate) fn map(world: &mut World, paging_queue: Handle, pages: u64) -> (u64, u64) {
    match world.call(map_call(paging_queue, 0, pages, ZERO)).1 {
        Reply::GpuVirtualAddress { address, paging_fence_value } => (address, paging_fence_value),
        other => panic!("{other:?} {:?}", world.effects.notes.last()),
    }
}

fn reserve(owner: Handle, base: u64, size: u64) -> Call {
    Call::ReserveGpuVirtualAddress { owner, base, minimum: 0, maximum: 0, size }
}

fn reserved(world: &mut World, owner: Handle, size: u64) -> u64 {
    match world.ok(reserve(owner, 0, size)) {
        Reply::GpuVirtualAddress { address, paging_fence_value: 0 } => address,
        other => panic!("{other:?}"),
    }
}

/// Maps Zero pages in a range of Reserve, where updates may change them.
fn reserve_and_map(world: &mut World, paging_queue: Handle, pages: u64) -> u64 {
    let base = reserved(world, paging_queue, 0x1_0000);
    assert_eq!(world.status(map_call(paging_queue, base, pages, ZERO)), NtStatus::PENDING);
    base
}

fn update(device: Handle, context: Handle, fence: (Handle, u64), base: u64, flags: u32) -> Call {
    let operations = vec![GpuVaOperation { operation: UNMAP, base, size: 4096, ..GpuVaOperation::default() }];
    Call::UpdateGpuVirtualAddress { device, context, fence: fence.0, fence_value: fence.1, operations, flags }
}

/// Bytes that are mapped as Zero, in all ranges.
fn zero_bytes(world: &World) -> u64 {
    world.kernel.snapshot().gpu_va_ranges.iter().map(|range| range.zero_bytes).sum()
}

#[test]
fn a_driver_that_writes_page_tables_by_cpu_completes_operations_at_once() {
    covers!("FEN-089");
    let (mut world, script) = scripted(Config::default());
    script.borrow().pages_by_cpu = true;
    let device = world.device();
    let (paging_queue, _) = queue(&mut world, device, 0);
    assert_eq!(world.status(map_call(paging_queue, 0, 1, ZERO)), OK);
    assert_eq!(world.kernel.next_deadline(), None);
}

#[test]
fn only_paging_buffers_signal_the_fence_of_a_paging_queue() {
    for config in [Config::default(), paging_on(0)] {
        only_paging_signals(World::with_config(config));
    }
}

fn only_paging_signals(mut world: World) {
    let device = world.device();
    let context = world.context(device, 0);
    let (paging_queue, fence) = queue(&mut world, device, 0);
    assert_eq!(world.signal(device, fence.object, 5), NtStatus::ACCESS_DENIED);
    assert_eq!(world.gpu_signal(&[context], fence.object, 5), NtStatus::ACCESS_DENIED);
    world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value: 5 }]);
    assert_eq!(world.value(fence.object), 0);
    map(&mut world, paging_queue, 1);
    world.submit(context, &[FenceWrite { gpu_address: fence.gpu_address, value: 6 }]);
    world.advance(PAGING_NS);
    assert_eq!(world.value(fence.object), 1);
}

#[test]
fn a_paging_queue_has_one_of_three_priorities_on_a_physical_adapter() {
    covers!("FEN-092");
    let mut world = World::new();
    let device = world.device();
    for (priority, physical_adapter) in [(-2, 0), (2, 0), (i32::MIN, 0), (0, 1)] {
        assert_eq!(world.status(Call::CreatePagingQueue { device, priority, physical_adapter }), IP);
    }
    for priority in [-1, 0, 1] {
        queue(&mut world, device, priority);
    }
}

#[test]
fn an_update_waits_on_the_paging_context_for_its_value_and_signals_the_next() {
    covers!("FEN-093");
    let mut world = World::new();
    let device = world.device();
    let (context, other) = (world.context(device, 0), world.context(device, 0));
    let (paging_queue, _) = queue(&mut world, device, 0);
    let base = reserve_and_map(&mut world, paging_queue, 2);
    world.advance(PAGING_NS);
    let (fence, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
    world.ok(update(device, context, (fence, 5), base, 0));
    // The context itself is not blocked.
    world.gpu_signal(&[context], done, 1);
    world.advance(PAGING_NS);
    assert_eq!((world.value(done), world.value(fence), zero_bytes(&world)), (1, 0, 8192));
    world.submit(other, &[Busy { duration_ns: 50 }]);
    world.gpu_signal(&[other], fence, 5);
    world.advance(50);
    assert_eq!((world.value(fence), zero_bytes(&world)), (5, 8192), "the update is still running");
    world.advance(PAGING_NS - 1);
    assert_eq!((world.value(fence), zero_bytes(&world)), (5, 8192));
    world.advance(1);
    assert_eq!((world.value(fence), zero_bytes(&world)), (6, 4096), "updated, then signaled");
    // DoNotWait.
    world.ok(update(device, context, (fence, 40), base + 4096, 1));
    world.advance(PAGING_NS);
    assert_eq!((world.value(fence), zero_bytes(&world)), (41, 0));
}

#[test]
fn a_context_ends_with_its_buffer_behind_its_paging_contexts_while_another_wants_the_engine() {
    covers!("FEN-093");
    for priority in [0, 7] {
        let (mut world, _) = scripted(crate::common::dropping(paging_on(0)));
        let device = world.device();
        let (context, other) = (world.context(device, 0), world.context(device, 0));
        let (paging_queue, _) = queue(&mut world, device, 0);
        let base = reserve_and_map(&mut world, paging_queue, 2);
        world.advance(PAGING_NS);
        let (fence, done) = (world.fence(device, 0).object, world.fence(device, 0).object);
        // DoNotWait: the paging context's buffer runs, and the context's buffer is behind it in the engine.
        world.ok(update(device, context, (fence, 0), base, 1));
        world.submit(context, &[Busy { duration_ns: 50 }]);
        world.ok(Call::SetContextPriority { context: other, priority, in_process: false });
        world.submit(other, &[Busy { duration_ns: 50 }]);
        world.gpu_signal(&[other], done, 1);
        world.ok(Call::DestroyContext { context });
        world.advance(PAGING_NS);
        assert_eq!((world.value(done), world.kernel.miscounted()), (1, None));
        world.finish();
    }
}

#[test]
fn an_invalid_update_is_refused_with_its_reason() {
    let mut world = World::new();
    let device = world.device();
    let (context, stranger) = (world.context(device, 0), world.device());
    let (paging_queue, paging_fence) = queue(&mut world, device, 0);
    let base = reserve_and_map(&mut world, paging_queue, 2);
    let (mapped, _) = map(&mut world, paging_queue, 2);
    let fence = world.fence(device, 0).object;
    let no_wait = world.fence_with(device, 0, F::NO_WAIT).object;
    let mut expect = |call: Call, status, words: &str| {
        assert_eq!(world.status(call), status, "{words}");
        let note = world.effects.notes.last().unwrap();
        assert!(note.text.contains(words), "{}", note.text);
    };
    expect(update(stranger, context, (fence, 0), base, 0), IP, "not of this device");
    expect(update(device, paging_queue, (fence, 0), base, 0), IP, "no context handle");
    expect(update(device, context, (fence, 0), base, 2), IP, "reserved bits");
    expect(update(device, context, (fence, u64::MAX), base, 0), IP, "has no successor");
    expect(
        update(device, context, (paging_fence.object, 0), base, 0),
        NtStatus::ACCESS_DENIED,
        "paging queue",
    );
    expect(update(device, context, (no_wait, 0), base, 0), NtStatus::ACCESS_DENIED, "NO_WAIT");
    expect(update(device, context, (fence, 0), mapped, 0), IP, "of a range that Map made, not Reserve");
    expect(update(device, context, (fence, 0), base + 0x2_0000, 0), IP, "no pages of a range");
    expect(update(device, context, (fence, 0), base + 1, 0), IP, "no pages of a range");
    expect(update(device, context, (fence, 0), u64::MAX - 4095, 0), IP, "no pages of a range");
    let with = |operations: Vec<GpuVaOperation>| {
        let (fence_value, flags) = (0, 0);
        Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags }
    };
    let one = |operation| GpuVaOperation { operation, base, size: 4096, ..GpuVaOperation::default() };
    for (operation, status, words) in [
        (0, IP, "no allocation of this device"),
        (3, IP, "no allocation of this device"),
        (2, IP, "no pages of a range"),
        (4, IP, "operation 4 is unknown"),
    ] {
        expect(with(vec![one(operation)]), status, words);
    }
    expect(with(vec![]), IP, "1 to 256 operations, not 0");
    expect(with(vec![one(UNMAP); limits::GPU_VA_OPERATIONS_MAX + 1]), IP, "not 257");
    assert_eq!(world.status(with(vec![one(UNMAP); limits::GPU_VA_OPERATIONS_MAX])), OK);
}

#[test]
fn the_driver_builds_a_paging_buffer_and_appends_the_fence_write_to_it() {
    covers!("FEN-094");
    let (mut world, script) = scripted(Config::default());
    let device = world.device();
    let (paging_queue, fence) = queue(&mut world, device, 0);
    script.borrow().take();
    let (address, value) = map(&mut world, paging_queue, 2);
    let gpu_address = fence.gpu_address;
    let commands: Result<_, d3dkmt::isa::IsaError> = Ok(d3dkmt::isa::CommandBuffer::Packets(vec![
        Busy { duration_ns: PAGING_NS },
        FenceWrite { gpu_address, value },
    ]));
    assert_eq!(
        script.borrow().log,
        [
            format!(
                "build_paging_buffer PagingOperation {{ adapter: 0, process: ProcessId(1), work: UpdatePageTable {{ base: {address}, size: 8192 }} }}"
            ),
            format!(
                "signal_monitored_fence SignalMonitoredFence {{ adapter: 0, process: ProcessId(1), gpu_address: {gpu_address}, value: 1 }}"
            ),
            "submit_command".to_owned(),
        ]
    );
    let submitted = &script.borrow().submissions[0];
    assert_eq!(submitted.engine.node as i32, -1);
    assert_eq!(d3dkmt::isa::decode(&submitted.commands), commands);
}

#[test]
fn engines_see_an_opened_fence_once_the_paging_fence_reaches_the_opens_value() {
    covers!("FEN-062");
    let mut world = World::new();
    let device = world.device();
    let shared = world.fence_with(device, 0, F::SHARED | F::NT_SECURITY_SHARING);
    assert_eq!(shared.paging_fence_value, 0, "the creator's engines see it at once");
    let token = ShareToken([1; 16]);
    world.ok(share(shared.object, token));
    world.process = ProcessId(2);
    world.attach(ProcessId(2));
    let device = world.device();
    let context = world.context(device, 0);
    let open = |flags| Call::OpenSyncObject { device, token, flags, engine_affinity: 0, legacy: false };
    let Reply::SyncObject(without_queue) = world.ok(open(F::empty())) else { panic!() };
    assert_eq!(without_queue.paging_fence_value, 0, "no paging queue, nothing to wait for");
    let (paging_queue, fence) = queue(&mut world, device, 0);
    map(&mut world, paging_queue, 1);
    let Reply::SyncObject(opened) = world.ok(open(F::empty())) else { panic!() };
    let Reply::SyncObject(unmapped) = world.ok(open(F::NO_GPU_ACCESS)) else { panic!() };
    assert_eq!((opened.paging_fence_value, unmapped.paging_fence_value), (2, 0));
    let write = |value| [FenceWrite { gpu_address: opened.gpu_address, value }];
    world.advance(2 * PAGING_NS - 1);
    assert_eq!(world.value(fence.object), 1);
    world.submit(context, &write(7));
    assert_eq!(world.value(opened.object), 0, "too early");
    assert!(world.effects.notes.last().unwrap().text.contains("is mapped when the paging fence has 2"));
    // Waits and CPU signals need no GPU mapping.
    assert_eq!(world.signal(device, opened.object, 1), OK);
    // As FEN-062 requires: wait for the paging fence, then write.
    world.gpu_wait(context, fence.object, opened.paging_fence_value);
    world.submit(context, &write(8));
    world.advance(1);
    assert_eq!((world.value(opened.object), world.value(shared.object)), (8, 8));
    // Requests of a queue that is being destroyed still complete.
    let Reply::SyncObject(third) = world.ok(open(F::empty())) else { panic!() };
    assert_eq!(third.paging_fence_value, 3);
    let destroys = world.begin(Call::DestroyPagingQueue { queue: paging_queue });
    world.advance(PAGING_NS);
    assert_eq!(world.answered(destroys), Some((OK, Reply::None)));
    world.submit(context, &[FenceWrite { gpu_address: third.gpu_address, value: 9 }]);
    assert_eq!(world.value(third.object), 9);
}

#[test]
fn ranges_are_reserved_mapped_and_freed() {
    let mut world = World::new();
    let device = world.device();
    let adapter = world.adapter();
    let (paging_queue, _) = queue(&mut world, device, 0);
    let first = reserved(&mut world, adapter, 0x2_0000);
    let second = reserved(&mut world, paging_queue, 0x1_0000);
    assert_eq!((first, second), (0x1_0000, 0x3_0000));
    for (base, size, status) in [
        (0, 0, IP),
        (0, 4096, IP),
        (0x1000, 0x1_0000, IP),
        (0x2_0000, 0x1_0000, IP),
        (0x1_0000_0000, 0x1_0000, IP),
        (0xFFFF_0000, 0x2_0000, IP),
        (1 << 47, 0x1_0000, IP),
        (0, 1 << 47, NtStatus::NO_MEMORY),
        (u64::MAX - 0xFFFF, 0x1_0000, IP),
        (0x4_0000, 0x1_0000, OK),
    ] {
        assert_eq!(world.status(reserve(adapter, base, size)), status, "{base:#x} {size:#x}");
    }
    assert_eq!(world.status(reserve(device, 0, 0x1_0000)), IP);
    // Within bounds, around the fence memory.
    let (minimum, size) = (0xFFFF_0000, 0x2_0000);
    let bounded =
        |maximum| Call::ReserveGpuVirtualAddress { owner: adapter, base: 0, minimum, maximum, size };
    assert_eq!(world.status(bounded(0x1_8000_0000)), NtStatus::NO_MEMORY);
    let unaligned =
        Call::ReserveGpuVirtualAddress { owner: adapter, base: 0, minimum: 0xFFFF_0800, maximum: 0, size };
    assert_eq!(world.status(unaligned), IP);
    let Reply::GpuVirtualAddress { address: 0x2_0000_0000, .. } = world.ok(bounded(0x3_0000_0000)) else {
        panic!()
    };
    for (call, status) in [
        (map_call(paging_queue, first + 0x1_8000, 16, ZERO), IP),
        (map_call(paging_queue, first + 1, 1, ZERO), IP),
        (map_call(paging_queue, 0, 0, ZERO), IP),
        (map_call(paging_queue, 0, u64::MAX, ZERO), IP),
        (map_call(paging_queue, 0, 1, 0), IP),
        (map_call(paging_queue, 0, 1, ZERO | 1), IP),
        (map_call(paging_queue, 0, 1, 16), IP),
        (map_call(adapter, 0, 1, ZERO), IP),
        (map_call(paging_queue, first + 0x1_F000, 1, ZERO), NtStatus::PENDING),
    ] {
        assert_eq!(world.status(call.clone()), status, "{call:?}");
    }
    let free = |base, size| Call::FreeGpuVirtualAddress { adapter, base, size };
    assert_eq!(world.status(free(first, 0x1_0000)), IP, "a range is freed whole");
    assert_eq!(world.status(free(first, 0x2_0000)), OK);
    assert_eq!((world.status(free(first, 0x2_0000)), zero_bytes(&world)), (IP, 0));
    assert_eq!(reserved(&mut world, adapter, 0x1_0000), first, "the freed address range can be used again");
}

#[test]
fn a_store_to_an_address_without_a_fence_notes_what_is_mapped_there() {
    let mut world = World::new();
    let device = world.device();
    let context = world.context(device, 0);
    let (paging_queue, _) = queue(&mut world, device, 0);
    let (zero, _) = map(&mut world, paging_queue, 1);
    let no_access = reserved(&mut world, paging_queue, 0x1_0000);
    for (gpu_address, words) in
        [(zero, "page is Zero"), (no_access, "page is NoAccess"), (zero + 4096, "no fence is mapped there")]
    {
        world.submit(context, &[FenceWrite { gpu_address, value: 1 }]);
        assert!(world.effects.notes.last().unwrap().text.contains(words), "{words}");
    }
}

#[test]
fn every_table_of_paging_has_a_limit() {
    let mut world = World::new();
    world.input(Input::FenceMemoryAdded { process: P, slots: 64 });
    let device = world.device();
    let adapter = world.adapter();
    let queues: Vec<_> =
        (0..limits::PAGING_QUEUES_PER_PROCESS_MAX).map(|_| queue(&mut world, device, 0).0).collect();
    let create = Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 };
    assert_eq!(world.status(create.clone()), NtStatus::NO_MEMORY);
    world.ok(Call::DestroyPagingQueue { queue: queues[0] });
    assert_eq!(world.status(create), OK);
    world.filling(|world| {
        for _ in 0..limits::GPU_VA_RANGES_MAX {
            reserved(world, adapter, 0x1_0000);
        }
    });
    assert_eq!(world.status(reserve(adapter, 0, 0x1_0000)), NtStatus::NO_MEMORY);
    assert_eq!(world.status(map_call(queues[1], 0, 1, ZERO)), NtStatus::NO_MEMORY);
    world.ok(Call::FreeGpuVirtualAddress { adapter, base: 0x1_0000, size: 0x1_0000 });
    assert_eq!(world.status(reserve(adapter, 0, 0x1_0000)), OK);
}

#[test]
fn a_paging_queue_without_fence_memory_requests_more() {
    let mut world = World::new();
    let device = world.device();
    for _ in 0..63 {
        world.fence(device, 0);
    }
    let create = Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 };
    assert_eq!(world.call(create.clone()), (OK, Reply::FenceMemoryExhausted));
    assert_eq!((world.kernel.snapshot().paging_queues.len(), world.kernel.miscounted()), (0, None));
    world.input(Input::FenceMemoryAdded { process: P, slots: 64 });
    world.ok(create);
}

#[test]
fn a_paging_queue_is_destroyed_behind_its_operations() {
    covers!("FEN-091");
    let mut world = World::new();
    let device = world.device();
    let (paging_queue, fence) = queue(&mut world, device, 0);
    map(&mut world, paging_queue, 1);
    map(&mut world, paging_queue, 1);
    let event = world.pending(device, &[(fence.object, 2)], false);
    let destroy = Call::DestroyPagingQueue { queue: paging_queue };
    let destroys = world.begin(destroy.clone());
    assert_eq!(world.status(destroy.clone()), IP, "one call destroys it");
    world.advance(2 * PAGING_NS - 1);
    assert_eq!((world.answered(destroys), world.value(fence.object)), (None, 1));
    let mut waiting = Vec::new();
    world.kernel.waiting_calls(&mut |call| waiting.push((call.process, call.request)));
    assert_eq!(waiting, [(P, destroys)]);
    world.advance(1);
    assert_eq!((world.answered(destroys), world.woken()), (Some((OK, Reply::None)), vec![event]));
    assert_eq!(world.status(destroy), IP);
    world.finish();
}

#[test]
fn a_lost_device_keeps_no_call_that_destroys_its_paging_queue() {
    let ends: [fn(Handle) -> Input; 2] = [
        |device| {
            let call = Call::MarkDeviceAsError { device, reason: 0 };
            Input::Call { process: P, request: 0, call }
        },
        |_| Input::Fault(Fault::StopAdapter { adapter: 0 }),
    ];
    for end in ends {
        let mut world = World::new();
        let device = world.device();
        let (paging_queue, _) = queue(&mut world, device, 0);
        map(&mut world, paging_queue, 1);
        let destroys = world.begin(Call::DestroyPagingQueue { queue: paging_queue });
        world.input(end(device));
        assert_eq!(world.answered(destroys), Some((OK, Reply::None)));
        world.finish();
    }
}

#[test]
fn nothing_of_paging_stays_behind() {
    for end in 0..4 {
        let mut world = World::with_config(crate::common::dropping(Config::default()));
        let (device, adapter) = (world.device(), world.adapter());
        let context = world.context(device, 0);
        let (paging_queue, fence) = queue(&mut world, device, 1);
        let base = reserve_and_map(&mut world, paging_queue, 2);
        map(&mut world, paging_queue, 2);
        let gate = world.fence(device, 0).object;
        world.ok(update(device, context, (gate, 5), base, 0));
        world.ok(update(device, context, (gate, 5), base, 1));
        let event = world.pending(device, &[(fence.object, 1)], false);
        world.advance(PAGING_NS / 2);
        match end {
            0 => world.input(Input::ProcessGone { process: P }),
            1 => {
                world.ok(Call::DestroyDevice { device });
                assert_eq!(world.woken(), [event]);
            }
            2 => {
                world.input(Input::Fault(Fault::StopAdapter { adapter: 0 }));
                assert_eq!(world.woken(), [event]);
                assert_eq!(world.status(map_call(paging_queue, 0, 1, ZERO)), NtStatus::DEVICE_REMOVED);
                world.ok(Call::DestroyPagingQueue { queue: paging_queue });
                world.ok(Call::DestroyDevice { device });
            }
            _ => {
                world.ok(Call::DestroyContext { context });
                world.ok(Call::DestroyPagingQueue { queue: paging_queue });
                world.ok(Call::DestroySynchronizationObject { object: gate });
                assert_eq!(world.kernel.snapshot().contexts.len(), 0);
            }
        }
        assert_eq!((world.kernel.next_deadline(), world.kernel.miscounted()), (None, None), "{end}");
        assert_eq!(world.kernel.snapshot().objects_alive, 0);
        if end > 0 {
            assert_eq!(world.kernel.belongings(P).gpu_va_ranges, 2);
            world.ok(Call::CloseAdapter { adapter });
            world.input(Input::ProcessGone { process: P });
        }
        assert_eq!(world.kernel.belongings(P), dxgkrnl::views::Belongings::default());
        assert!(world.kernel.snapshot().is_empty());
    }
}
