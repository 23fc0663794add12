//! Which commands run in parallel, in which order, and when.

use covers::covers;
use d3dkmt::isa::{BarrierAccess as A, BarrierSync as S, FenceValue, Kernel, Packet, Use, WorkKind};
use d3dkmt::limits::{COMMANDS_AT_ONCE_MAX, LIST_WINDOW_MAX, ORDERED_USES_PER_COMMAND_MAX};
use dxgkrnl::ddi::{
    CurrentValueUpdate, EngineState, Interrupt, LocalNativeFenceId, Miniport, NativeFenceId,
    NativeFenceStorage, NewNativeFence, OpenedNativeFence,
};

use crate::gpu::{ENGINE, Gpu, copy, fill, full, global, on_buffer, words, work};

fn none(duration_ns: u64) -> Packet {
    work(WorkKind::Dispatch, Kernel::None, 0, duration_ns, &[])
}

fn in_order() -> Packet {
    global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS)))
}

/// When the engine has completed all packets.
fn time_of(packets: &[Packet]) -> u64 {
    let mut gpu = Gpu::new(1);
    gpu.submit(ENGINE, 1, packets);
    while let Some(due) = gpu.miniport.next_deadline() {
        gpu.advance(due - gpu.now);
    }
    assert!(matches!(gpu.interrupts[..], [Interrupt::DmaCompleted { .. }]));
    gpu.now
}

#[test]
fn commands_that_nothing_orders_run_at_once_as_many_as_may() {
    assert_eq!(time_of(&[none(100), none(70), none(30)]), 100);
    assert_eq!(time_of(&[none(100), in_order(), none(70), in_order(), none(30)]), 200 + 2);
    assert_eq!(time_of(&vec![none(100); COMMANDS_AT_ONCE_MAX]), 100);
    assert_eq!(time_of(&vec![none(100); COMMANDS_AT_ONCE_MAX + 1]), 200);
    assert_eq!(time_of(&[none(u64::MAX), none(1)]), u64::MAX);
    assert_eq!(time_of(&[none(0), in_order(), none(0)]), 1);
}

#[test]
fn the_engine_says_when_the_next_command_ends() {
    let mut gpu = Gpu::new(1);
    let submission_fence_id = gpu.submit(ENGINE, 1, &[none(100), none(70), in_order(), none(30)]);
    for until in [70, 100, 101, 131] {
        let running = EngineState::Running { submission_fence_id, until, queued: 0 };
        assert_eq!(gpu.miniport.engine_state(ENGINE), running);
        gpu.advance(until - gpu.now);
    }
    assert_eq!(gpu.miniport.engine_state(ENGINE), EngineState::Idle);
}

/// Runs a long copy, `waiting` copies that a barrier blocks, and a dispatch that nothing blocks. Returns whether the
/// dispatch starts with the first copy.
fn starts_at_once(waiting: usize) -> bool {
    let mut gpu = Gpu::new(1);
    let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
    let unblocked = [Use::whole(c, A::SHADER_RESOURCE), Use::range(b, A::UNORDERED_ACCESS, 32, 4)];
    let mut packets = vec![copy(a, a, 1000), global(words((S::COPY, S::COPY), (A::NO_ACCESS, A::NO_ACCESS)))];
    packets.extend(vec![copy(a, a, 0); waiting]);
    packets.push(work(WorkKind::Dispatch, Kernel::Copy, 0, 5000, &unblocked));
    gpu.set_word(128, 1);
    gpu.submit(ENGINE, 1, &packets);
    gpu.advance(500);
    gpu.set_word(128, 2);
    gpu.advance(10_000);
    gpu.word(96) == 1
}

#[test]
fn the_engine_looks_so_far_ahead_and_no_further() {
    assert!(starts_at_once(LIST_WINDOW_MAX - 3));
    assert!(!starts_at_once(LIST_WINDOW_MAX - 2));
}

#[test]
fn stages_keep_the_order_of_the_list_without_barriers() {
    covers!("BAR-077");
    let stages = [
        (WorkKind::Draw, A::RENDER_TARGET),
        (WorkKind::Draw, A::DEPTH_STENCIL_WRITE),
        (WorkKind::Draw, A::STREAM_OUTPUT),
        (WorkKind::Copy, A::COPY_DEST),
        (WorkKind::Resolve, A::RESOLVE_DEST),
    ];
    for ((kind, access), seed) in stages.into_iter().flat_map(|stage| (0..30).map(move |seed| (stage, seed)))
    {
        let mut gpu = Gpu::with_seed(1, seed);
        let [target, other] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        let on_target = |kernel, operand, duration_ns| {
            work(kind, kernel, operand, duration_ns, &[Use::whole(target, access)])
        };
        gpu.run(&[
            on_target(Kernel::Fill, 5, 100),
            work(kind, Kernel::Fill, 1, 10, &[Use::whole(other, access)]),
            on_target(Kernel::Add, 7, 10),
            on_target(Kernel::Xor, 1, 50),
        ]);
        assert_eq!((gpu.word(0), gpu.word(64)), (13, 1), "{access:?}, seed {seed}");
    }
}

#[test]
fn a_depth_test_sees_what_draws_before_it_wrote() {
    let mut gpu = Gpu::new(1);
    let [depth, target] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let test = [Use::whole(depth, A::DEPTH_STENCIL_READ), Use::whole(target, A::RENDER_TARGET)];
    let back = on_buffer(depth, words((S::ALL, S::ALL), (A::DEPTH_STENCIL_READ, A::NO_ACCESS)));
    let shade = [Use::whole(depth, A::SHADER_RESOURCE), Use::range(target, A::UNORDERED_ACCESS, 4, 4)];
    gpu.run(&[
        work(WorkKind::Draw, Kernel::Fill, 5, 100, &[Use::whole(depth, A::DEPTH_STENCIL_WRITE)]),
        work(WorkKind::Draw, Kernel::Copy, 0, 10, &test),
        back,
        work(WorkKind::Dispatch, Kernel::Copy, 0, 10, &shade),
    ]);
    assert_eq!((gpu.word(64), gpu.word(68)), (5, 0), "reading it writes nothing back");
}

#[test]
fn unordered_writes_come_in_an_order_that_the_seed_decides() {
    let outcome = |seed| {
        let mut gpu = Gpu::with_seed(1, seed);
        let a = gpu.buffer(0, 4);
        let fills: Vec<Packet> = (1..=6).map(|number| fill(a, number, 10)).collect();
        let first = fills.clone();
        gpu.run(&first);
        let once = gpu.word(0);
        gpu.run(&fills);
        (once, gpu.word(0))
    };
    assert_eq!(outcome(0), (6, 6), "without a seed, the order of the list");
    let outcomes: Vec<(u32, u32)> = (1..60).map(outcome).collect();
    for last in 1..=6 {
        assert!(outcomes.iter().any(|(once, _)| *once == last), "{last} is never the last");
    }
    assert!(outcomes.iter().any(|(once, again)| once != again), "each submission has its own order");
    assert_eq!(outcomes, (1..60).map(outcome).collect::<Vec<_>>(), "and always the same");
}

#[test]
fn markers_between_commands_say_what_has_started_and_what_is_done() {
    covers!("SCH-045");
    let mut gpu = Gpu::new(1);
    let marker_in = |value| Packet::MarkerIn { gpu_address: 0x2000, value };
    let marker_out = |value| Packet::MarkerOut { gpu_address: 0x3000, value };
    let packets =
        [none(100), marker_in(1), marker_out(2), none(50), marker_in(3), in_order(), none(10), marker_in(4)];
    gpu.submit(ENGINE, 1, &packets);
    let stores = |gpu: &mut Gpu| {
        std::mem::take(&mut gpu.stores).into_iter().map(|(_, value, _)| value).collect::<Vec<_>>()
    };
    assert_eq!(stores(&mut gpu), [1, 3], "both have started");
    gpu.advance(99);
    assert_eq!(stores(&mut gpu), []);
    gpu.advance(1);
    assert_eq!(stores(&mut gpu), [2]);
    gpu.advance(1);
    assert_eq!(stores(&mut gpu), [4]);
    gpu.advance(10);
    assert!(matches!(gpu.interrupts[..], [Interrupt::DmaCompleted { .. }]));
}

#[test]
fn non_list_packets_wait_for_earlier_and_block_later_ones() {
    let mut gpu = Gpu::new(1);
    let fence = Packet::FenceWrite { gpu_address: 0x1000, value: 7 };
    let busy = Packet::Busy { duration_ns: 40 };
    gpu.submit(ENGINE, 1, &[none(100), fence.clone(), none(20), busy, none(30), fence]);
    let mut times = Vec::new();
    while let Some(due) = gpu.miniport.next_deadline() {
        gpu.advance(due - gpu.now);
        times.push((gpu.now, gpu.stores.len()));
    }
    assert_eq!(times, [(100, 1), (120, 1), (160, 1), (190, 2)]);
}

#[test]
fn a_timestamp_is_the_time_when_all_before_it_is_done() {
    let mut gpu = Gpu::new(1);
    gpu.now = 5 << 32;
    let stamp = |offset| Packet::Timestamp { gpu_address: crate::gpu::GPU + offset };
    gpu.run(&[stamp(8), none(100), stamp(16), none(70), in_order(), none(1), stamp(24)]);
    let times = [8, 16, 24].map(|at| u64::from(gpu.word(at + 4)) << 32 | u64::from(gpu.word(at)));
    assert_eq!(times, [5 << 32, (5 << 32) + 100, (5 << 32) + 102]);
}

#[test]
fn what_touches_a_timestamp_comes_after_it_and_no_cache_hides_it() {
    let stamp = Packet::Timestamp { gpu_address: crate::gpu::GPU + 8 };
    let words = |packets: &dyn Fn([u32; 3]) -> Vec<Packet>| {
        let mut gpu = Gpu::new(1);
        gpu.now = 1_000;
        let buffers = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        gpu.run(&packets(buffers));
        [8, 12, 16].map(|offset| [0, 64, 128].map(|of| gpu.word(of + offset)))
    };
    let written = |[a, ..]: [u32; 3]| vec![fill(a, 5, 10), stamp.clone()];
    assert_eq!(words(&written), [[1_010, 0, 0], [0, 0, 0], [5, 0, 0]]);
    let read = |[a, b, _]: [u32; 3]| vec![none(100), stamp.clone(), copy(a, b, 10)];
    assert_eq!(words(&read), [[1_100, 1_100, 0], [0, 0, 0], [0, 0, 0]]);
    let read_before = |[a, b, c]: [u32; 3]| vec![copy(a, b, 10), none(100), stamp.clone(), copy(a, c, 10)];
    assert_eq!(words(&read_before), [[1_100, 0, 1_100], [0, 0, 0], [0, 0, 0]]);
    let overwritten = |[a, ..]: [u32; 3]| vec![none(100), stamp.clone(), fill(a, 5, 10)];
    assert_eq!(words(&overwritten), [[5, 0, 0], [5, 0, 0], [5, 0, 0]]);
    // Nothing else waits.
    assert_eq!(time_of(&[none(100), stamp.clone(), none(100)]), 100);
}

#[test]
fn a_signal_barrier_signals_when_its_barriers_are_done() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let Packet::Barrier { groups } =
        on_buffer(a, words((S::COMPUTE_SHADING, S::NONE), (A::UNORDERED_ACCESS, A::NO_ACCESS)))
    else {
        unreachable!()
    };
    let fence = FenceValue { gpu_address: 0x1000, value: 3 };
    let signal = Packet::SignalBarrier { fence, groups };
    let long = work(WorkKind::Copy, Kernel::None, 0, 500, &[Use::whole(a, A::COPY_SOURCE)]);
    gpu.submit(ENGINE, 1, &[long, fill(a, 9, 100), signal]);
    gpu.advance(99);
    assert_eq!(gpu.stores, []);
    gpu.advance(1);
    assert_eq!(gpu.stores, [], "the barrier takes a nanosecond");
    gpu.advance(1);
    assert_eq!(gpu.stores, [(0x1000, 3, 9)], "not held up by the copy");
}

#[test]
fn a_present_comes_after_everything_before_it() {
    let present = work(WorkKind::Present, Kernel::None, 0, 10, &[]);
    assert_eq!(time_of(&[none(100), present.clone()]), 110);
    assert_eq!(time_of(&[present, none(100)]), 100);
}

#[test]
fn results_are_in_memory_when_the_submission_is_reported() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    gpu.submit(ENGINE, 1, &[fill(a, 5, 10), none(50), full()]);
    gpu.advance(10);
    assert_eq!((gpu.word(0), gpu.interrupts.len()), (0, 0), "in a cache");
    gpu.advance(40 + 1);
    assert_eq!((gpu.word(0), gpu.interrupts.len()), (5, 1));
}

/// A buffer that waits for a fence is set aside: its writes are in memory, and other buffers run meanwhile.
#[test]
fn a_wait_barrier_waits_for_all_its_fences_and_then_does_its_barriers() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let fences = [1, 2].map(NativeFenceId);
    for fence in fences {
        let storage = NativeFenceStorage { page: fence.0, offset_bytes: 0 };
        let (adapter, native_type, current_value, monitored_value) = (0, 0, 0, u64::MAX);
        let new = NewNativeFence {
            fence,
            adapter,
            native_type,
            current_value,
            monitored_value,
            storage,
            number: fence.0,
        };
        gpu.miniport.create_native_fence(&new).unwrap();
        let (local, gpu_address) = (LocalNativeFenceId(fence.0), fence.0 * 0x1000);
        let opened = OpenedNativeFence { local, fence, process: crate::gpu::P, gpu_address, writable: true };
        gpu.miniport.open_native_fence(&opened);
    }
    let Packet::Barrier { groups } =
        on_buffer(a, words((S::NONE, S::COPY), (A::UNORDERED_ACCESS, A::COPY_SOURCE)))
    else {
        unreachable!()
    };
    let wait = |value| FenceValue { gpu_address: value * 0x1000, value };
    let waits = Packet::WaitBarrier { fences: vec![wait(1), wait(2)], groups };
    gpu.submit(ENGINE, 1, &[fill(a, 5, 100), waits, copy(a, b, 10)]);
    gpu.advance(100);
    assert_eq!((gpu.miniport.engine_state(ENGINE), gpu.word(0)), (EngineState::Idle, 5));
    assert_eq!(gpu.dma_executor.staging_buffers(), 0);
    for (fence, value, until) in [(fences[1], 2, None), (fences[0], 1, Some(101))] {
        let update = CurrentValueUpdate { fence, value, always_signaled: false, notification_only: false };
        gpu.with_callbacks(|miniport, now, callbacks| {
            miniport.update_current_values_from_cpu(now, &[update], callbacks);
        });
        assert_eq!(gpu.miniport.next_deadline(), until);
    }
    gpu.advance(1 + 10);
    assert_eq!(gpu.word(64), 5);
    assert!(matches!(gpu.interrupts[..], [Interrupt::DmaCompleted { .. }]));
}

#[test]
fn so_many_targets_of_a_draw_keep_the_order_one_by_one() {
    for (count, done) in
        [(ORDERED_USES_PER_COMMAND_MAX as u64, 100), (ORDERED_USES_PER_COMMAND_MAX as u64 + 1, 150)]
    {
        let mut gpu = Gpu::new(1);
        let all = gpu.buffer(0, 1024);
        let target = |number: u64| Use::range(all, A::RENDER_TARGET, number * 16, 4);
        let many: Vec<Use> = (0..count).map(target).collect();
        let between = Use::range(all, A::RENDER_TARGET, 8, 4);
        gpu.submit(
            ENGINE,
            1,
            &[
                work(WorkKind::Draw, Kernel::Fill, 1, 100, &many),
                work(WorkKind::Draw, Kernel::Fill, 2, 50, &[between]),
            ],
        );
        while let Some(due) = gpu.miniport.next_deadline() {
            gpu.advance(due - gpu.now);
        }
        assert_eq!(gpu.now, done, "{count} targets");
    }
}
