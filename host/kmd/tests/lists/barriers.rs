//! The effect of barriers, and the bytes that are read where one is missing.

use covers::covers;
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout, BarrierSync as S, BufferBarrier, Kernel,
    LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType, RangedBarrier, RangedFlags,
    ResourceDesc, SubresourceRange, TextureBarrier, TextureFlags, Use, UseFlags, WorkKind,
};
use d3dkmt::limits::{CACHE_BYTES_MAX, CACHE_RANGES_MAX, CACHED_BYTES_PER_USE_MAX, RANGES_PER_BARRIER_MAX};
use dxgkrnl::Config;
use dxgkrnl::policy::{ExecuteIndirectScope, InputAssemblerScope, Policy};

use crate::gpu::{GPU, Gpu, PAGE, copy, fill, full, global, on_buffer, words, work};

const TO_COPY: ((S, S), (A, A)) = ((S::COMPUTE_SHADING, S::COPY), (A::UNORDERED_ACCESS, A::COPY_SOURCE));

/// A dispatch, a copy, a dispatch, a copy, a draw and a copy, each of what the one before it wrote; and the five
/// barriers between them.
pub fn chain(gpu: &mut Gpu) -> (Vec<Packet>, Vec<(u32, Barrier)>) {
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|number| gpu.buffer(number * 64, 64));
    let add = [Use::whole(b, A::SHADER_RESOURCE), Use::whole(c, A::UNORDERED_ACCESS)];
    let xor = [Use::whole(d, A::SHADER_RESOURCE), Use::whole(e, A::RENDER_TARGET)];
    let commands = vec![
        fill(a, 5, 100),
        copy(a, b, 100),
        work(WorkKind::Dispatch, Kernel::Add, 7, 100, &add),
        copy(c, d, 100),
        work(WorkKind::Draw, Kernel::Xor, 3, 100, &xor),
        copy(e, f, 100),
    ];
    let from_copy = |to| words((S::COPY, to), (A::COPY_DEST, A::SHADER_RESOURCE));
    let barriers = vec![
        (a, words(TO_COPY.0, TO_COPY.1)),
        (b, from_copy(S::COMPUTE_SHADING)),
        (c, words(TO_COPY.0, TO_COPY.1)),
        (d, from_copy(S::PIXEL_SHADING | S::VERTEX_SHADING)),
        (e, words((S::RENDER_TARGET, S::COPY), (A::RENDER_TARGET, A::COPY_SOURCE))),
    ];
    (commands, barriers)
}

/// Runs the chain with each barrier replaced by `with`. Returns the last word.
fn result(seed: u64, with: impl Fn(usize, Barrier) -> Option<Barrier>) -> u32 {
    let mut gpu = Gpu::with_seed(1, seed);
    let (commands, barriers) = chain(&mut gpu);
    let mut packets = Vec::new();
    for (number, command) in commands.into_iter().enumerate() {
        packets.push(command);
        if let Some((resource, barrier)) = barriers.get(number) {
            packets.extend(with(number, *barrier).map(|barrier| on_buffer(*resource, barrier)));
        }
    }
    gpu.run(&packets);
    assert_eq!(gpu.word(5 * 64), gpu.word(5 * 64 + 60));
    gpu.word(5 * 64)
}

pub const RIGHT: u32 = (5 + 7) ^ 3;

#[test]
fn right_barriers_give_right_bytes_in_any_order_that_they_allow() {
    for seed in 0..40 {
        assert_eq!(result(seed, |_, barrier| Some(barrier)), RIGHT, "seed {seed}");
    }
}

#[test]
fn without_any_one_of_the_five_barriers_the_bytes_are_wrong() {
    type Break = fn(Barrier) -> Option<Barrier>;
    let breaks: [(&str, Break); 6] = [
        ("removed", |_| None),
        ("no SyncBefore", |barrier| Some(Barrier { sync_before: S::NONE, ..barrier })),
        ("no SyncAfter", |barrier| Some(Barrier { sync_after: S::NONE, ..barrier })),
        ("another SyncBefore", |barrier| Some(Barrier { sync_before: S::RESOLVE, ..barrier })),
        ("no AccessBefore", |barrier| Some(Barrier { access_before: A::NO_ACCESS, ..barrier })),
        ("another AccessBefore", |barrier| Some(Barrier { access_before: A::RESOLVE_DEST, ..barrier })),
    ];
    for broken in 0..5 {
        for (how, change) in breaks {
            let with = |number, barrier| if number == broken { change(barrier) } else { Some(barrier) };
            assert_ne!(result(0, with), RIGHT, "barrier {broken}: {how}");
        }
    }
}

#[test]
fn cached_reads_stay_until_a_barrier_names_their_type() {
    let reads_again = |access_after| {
        let mut gpu = Gpu::new(1);
        let [from, read, first, second] = [0, 1, 2, 3].map(|number| gpu.buffer(number * 64, 64));
        gpu.set_word(0, 9);
        let to = |to| [Use::whole(read, A::SHADER_RESOURCE), Use::whole(to, A::UNORDERED_ACCESS)];
        let read_to = |at| work(WorkKind::Dispatch, Kernel::Copy, 0, 0, &to(at));
        let back = words((S::COPY, S::ALL), (A::COPY_DEST, access_after));
        let order = global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS)));
        gpu.run(&[read_to(first), order, copy(from, read, 0), on_buffer(read, back), read_to(second)]);
        assert_eq!((gpu.word(64), gpu.word(128)), (9, 0));
        gpu.word(192)
    };
    assert_eq!(reads_again(A::COPY_SOURCE), 0, "the barrier does not name the shader's cache");
    assert_eq!(reads_again(A::COPY_SOURCE | A::SHADER_RESOURCE), 9);
    assert_eq!(reads_again(A::COMMON), 9);
}

#[test]
fn access_type_reads_its_own_writes() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let again = [Use::whole(a, A::UNORDERED_ACCESS)];
    let other = [
        Use { flags: d3dkmt::isa::UseFlags::ONLY_READS, ..Use::whole(a, A::UNORDERED_ACCESS) },
        Use::whole(b, A::UNORDERED_ACCESS),
    ];
    let order = || global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS)));
    let add = |uses: &[Use]| work(WorkKind::Dispatch, Kernel::Add, 1, 0, uses);
    gpu.run(&[fill(a, 5, 0), order(), add(&again), order(), add(&other)]);
    assert_eq!((gpu.word(0), gpu.word(64)), (6, 7));
}

#[test]
fn the_end_of_a_submission_writes_everything_back_and_forgets_what_was_read() {
    covers!("BAR-012", "BAR-107");
    let mut gpu = Gpu::new(1);
    let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
    gpu.run(&[copy(a, c, 0), fill(a, 5, 10)]);
    assert_eq!((gpu.word(0), gpu.word(128)), (5, 0));
    gpu.run(&[copy(a, b, 0)]);
    assert_eq!(gpu.word(64), 5);
}

#[test]
fn two_lists_of_a_submission_are_one_scope() {
    covers!("BAR-108");
    let list = |name: &str| Packet::BeginList {
        queue: QueueType::Direct,
        flags: ListFlags::empty(),
        name: name.into(),
    };
    for (barrier, expected) in [(false, 0), (true, 5)] {
        let mut gpu = Gpu::new(1);
        let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        let mut packets = vec![list("first"), fill(a, 5, 10)];
        packets.extend(barrier.then(|| on_buffer(a, words(TO_COPY.0, TO_COPY.1))));
        packets.extend([list("second"), copy(a, b, 0)]);
        gpu.run(&packets);
        assert_eq!(gpu.word(64), expected);
    }
}

/// Runs a command of 100 ns, a barrier with this SyncBefore that blocks copies, and a copy. Returns 1 if the copy
/// waited.
fn waited(kind: WorkKind, access: A, sync_before: S) -> u32 {
    waited_by(Policy::default(), kind, access, sync_before)
}

fn waited_by(policy: Policy, kind: WorkKind, access: A, sync_before: S) -> u32 {
    let mut gpu = Gpu::with(1, &Config { policy, ..Config::default() });
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let uses = if access == A::COMMON { vec![] } else { vec![Use::whole(a, access)] };
    let long = work(kind, Kernel::None, 0, 100, &uses);
    let barrier = global(words((sync_before, S::COPY), (A::NO_ACCESS, A::NO_ACCESS)));
    gpu.submit(crate::gpu::ENGINE, 1, &[long, barrier, copy(a, b, 0)]);
    gpu.advance(50);
    gpu.set_word(0, 1);
    gpu.advance(100);
    gpu.word(64)
}

/// Returns 1 if work of this kind waits for a barrier with this SyncAfter after a long dispatch.
fn held_up(kind: WorkKind, accesses: (A, A), sync_after: S) -> u32 {
    held_up_by(Policy::default(), kind, accesses, sync_after)
}

fn held_up_by(policy: Policy, kind: WorkKind, accesses: (A, A), sync_after: S) -> u32 {
    let mut gpu = Gpu::with(1, &Config { policy, ..Config::default() });
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let long = work(WorkKind::Dispatch, Kernel::None, 0, 100, &[]);
    let barrier = global(words((S::COMPUTE_SHADING, sync_after), (A::NO_ACCESS, A::NO_ACCESS)));
    let uses = [Use::whole(a, accesses.0), Use::whole(b, accesses.1)];
    gpu.submit(crate::gpu::ENGINE, 1, &[long, barrier, work(kind, Kernel::Copy, 0, 0, &uses)]);
    gpu.advance(50);
    gpu.set_word(0, 1);
    gpu.advance(100);
    gpu.word(64)
}

#[test]
fn sync_after_all_holds_up_work_of_every_kind_and_another_scope_only_its_own() {
    covers!("BAR-007");
    let kinds = [
        (WorkKind::Copy, (A::COPY_SOURCE, A::COPY_DEST), S::COPY),
        (WorkKind::Resolve, (A::RESOLVE_SOURCE, A::RESOLVE_DEST), S::RESOLVE),
        (WorkKind::Draw, (A::SHADER_RESOURCE, A::UNORDERED_ACCESS), S::DRAW),
        (WorkKind::Dispatch, (A::SHADER_RESOURCE, A::UNORDERED_ACCESS), S::COMPUTE_SHADING),
        (WorkKind::DispatchRays, (A::SHADER_RESOURCE, A::UNORDERED_ACCESS), S::RAYTRACING),
    ];
    for (kind, accesses, own) in kinds {
        let held = |sync_after| held_up(kind, accesses, sync_after);
        assert_eq!((held(S::ALL), held(own), held(S::NONE)), (1, 1, 0), "{kind:?}");
        for (_, _, other) in kinds.iter().filter(|(_, _, other)| *other != own) {
            assert_eq!(held(*other), 0, "{kind:?}, SyncAfter {other:?}");
        }
    }
}

#[test]
fn a_barrier_waits_for_the_scopes_that_it_names_and_for_no_others() {
    covers!("BAR-004", "BAR-005", "BAR-007", "BAR-008");
    let expected = [
        (WorkKind::Draw, A::COMMON, S::DRAW, 1),
        (WorkKind::Draw, A::RENDER_TARGET, S::DRAW, 1),
        (WorkKind::Draw, A::RENDER_TARGET, S::RENDER_TARGET, 1),
        (WorkKind::Draw, A::RENDER_TARGET, S::PIXEL_SHADING, 0),
        (WorkKind::DrawIndexed, A::INDEX_BUFFER, S::INDEX_INPUT, 1),
        (WorkKind::DrawIndexed, A::INDEX_BUFFER, S::DRAW, 1),
        (WorkKind::Draw, A::DEPTH_STENCIL_WRITE, S::DRAW, 1),
        (WorkKind::Draw, A::VERTEX_BUFFER, S::DRAW, 1),
        (WorkKind::Draw, A::SHADER_RESOURCE, S::DRAW, 1),
        (WorkKind::Draw, A::SHADER_RESOURCE, S::PIXEL_SHADING, 0),
        (WorkKind::Draw, A::SHADER_RESOURCE, S::PIXEL_SHADING | S::VERTEX_SHADING, 1),
        (WorkKind::Draw, A::SHADER_RESOURCE, S::ALL_SHADING, 1),
        (WorkKind::Draw, A::SHADER_RESOURCE, S::COMPUTE_SHADING, 0),
        (WorkKind::SetGraphicsRoot, A::SHADER_RESOURCE, S::DRAW, 1),
        (WorkKind::SetGraphicsRoot, A::SHADER_RESOURCE, S::PIXEL_SHADING, 0),
        (WorkKind::Dispatch, A::COMMON, S::COMPUTE_SHADING, 1),
        (WorkKind::Dispatch, A::SHADER_RESOURCE, S::NON_PIXEL_SHADING, 1),
        (WorkKind::Dispatch, A::SHADER_RESOURCE, S::DRAW, 0),
        (WorkKind::SetComputeRoot, A::SHADER_RESOURCE, S::COMPUTE_SHADING, 1),
        (WorkKind::SetComputeRoot, A::SHADER_RESOURCE, S::DRAW, 0),
        (WorkKind::ClearUnorderedAccess, A::UNORDERED_ACCESS, S::ALL_SHADING, 0),
        (WorkKind::ClearUnorderedAccess, A::UNORDERED_ACCESS, S::CLEAR_UNORDERED_ACCESS_VIEW, 1),
        (WorkKind::BuildRtas, A::RTAS_WRITE, S::BUILD_RTAS, 1),
        (WorkKind::BuildRtas, A::RTAS_WRITE, S::COPY_RTAS, 0),
        (WorkKind::Resolve, A::RESOLVE_SOURCE, S::RESOLVE, 1),
        (WorkKind::Present, A::COMMON, S::DRAW, 0),
    ];
    for (kind, access, sync, waits) in expected {
        assert_eq!(waited(kind, access, sync), waits, "{kind:?} {access:?}, SyncBefore {sync:?}");
        assert_eq!(waited(kind, access, S::ALL), 1, "{kind:?} {access:?}");
        assert_eq!(waited(kind, access, S::NONE), 0, "{kind:?} {access:?}");
    }
}

#[test]
fn policies_put_indirect_calls_and_vertex_buffers_into_one_more_scope() {
    let execution = Policy { execute_indirect_scope: ExecuteIndirectScope::Execution, ..Policy::default() };
    let vertices = Policy { input_assembler_scope: InputAssemblerScope::VertexBuffers, ..Policy::default() };
    let writes = (A::SHADER_RESOURCE, A::UNORDERED_ACCESS);
    let indirect = |policy, sync| {
        let kind = WorkKind::ExecuteIndirect;
        (waited_by(policy, kind, A::UNORDERED_ACCESS, sync), held_up_by(policy, kind, writes, sync))
    };
    assert_eq!(indirect(Policy::default(), S::EXECUTE_INDIRECT), (0, 0));
    assert_eq!(indirect(execution, S::EXECUTE_INDIRECT), (1, 1));
    assert_eq!(indirect(vertices, S::EXECUTE_INDIRECT), (0, 0));
    assert_eq!(indirect(execution, S::ALL_SHADING), (1, 1), "its own scopes stand");
    assert_eq!(indirect(execution, S::COPY), (0, 0));
    for kind in [WorkKind::Draw, WorkKind::DrawIndexed, WorkKind::ExecuteIndirect] {
        let fetch = |policy, sync| {
            let accesses = (A::VERTEX_BUFFER, A::UNORDERED_ACCESS);
            (waited_by(policy, kind, A::VERTEX_BUFFER, sync), held_up_by(policy, kind, accesses, sync))
        };
        assert_eq!(fetch(Policy::default(), S::INDEX_INPUT), (0, 0), "{kind:?}");
        assert_eq!(fetch(vertices, S::INDEX_INPUT), (1, 1), "{kind:?}");
        assert_eq!(fetch(vertices, S::VERTEX_SHADING), (1, 1), "{kind:?}");
        assert_eq!(fetch(vertices, S::COPY), (0, 0), "{kind:?}");
    }
}

/// The resource of a stage after a barrier with this SyncBefore, and whether one with this SyncAfter blocks the stage.
fn by_stage(kind: WorkKind, stage: UseFlags, sync: S) -> (u32, u32) {
    let written = |flags| {
        let mut gpu = Gpu::new(1);
        let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        let uses = [Use { flags, ..Use::whole(a, A::UNORDERED_ACCESS) }];
        gpu.run(&[
            work(kind, Kernel::Fill, 5, 100, &uses),
            on_buffer(a, words((sync, S::COPY), (A::UNORDERED_ACCESS, A::COPY_SOURCE))),
            copy(a, b, 0),
        ]);
        gpu.word(64)
    };
    let read = |flags| {
        let mut gpu = Gpu::new(1);
        let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        gpu.set_word(0, 5);
        let uses = [A::SHADER_RESOURCE, A::UNORDERED_ACCESS];
        let uses = [(b, uses[0]), (c, uses[1])].map(|(of, access)| Use { flags, ..Use::whole(of, access) });
        gpu.run(&[
            copy(a, b, 100),
            on_buffer(b, words((S::COPY, sync), (A::COPY_DEST, A::SHADER_RESOURCE))),
            work(kind, Kernel::Copy, 0, 0, &uses),
        ]);
        gpu.word(128)
    };
    (written(stage), read(stage))
}

#[test]
fn vertex_shading_is_the_scope_of_every_stage_before_the_rasterizer() {
    covers!("BAR-006");
    let stages = [
        (WorkKind::Draw, UseFlags::VERTEX_STAGE),
        (WorkKind::Draw, UseFlags::HULL_STAGE),
        (WorkKind::DrawIndexed, UseFlags::DOMAIN_STAGE),
        (WorkKind::Draw, UseFlags::HULL_STAGE | UseFlags::DOMAIN_STAGE),
        (WorkKind::Draw, UseFlags::GEOMETRY_STAGE),
        (WorkKind::DispatchMesh, UseFlags::AMPLIFICATION_STAGE),
        (WorkKind::DispatchMesh, UseFlags::MESH_STAGE),
        (WorkKind::ExecuteIndirect, UseFlags::MESH_STAGE),
    ];
    let ordered = [S::VERTEX_SHADING, S::NON_PIXEL_SHADING, S::ALL_SHADING, S::DRAW, S::ALL];
    let not = [
        S::PIXEL_SHADING,
        S::COMPUTE_SHADING,
        S::RAYTRACING,
        S::INDEX_INPUT,
        S::RENDER_TARGET,
        S::DEPTH_STENCIL,
        S::EXECUTE_INDIRECT,
        S::RESOLVE,
    ];
    for (kind, stage) in stages {
        for sync in ordered {
            assert_eq!(by_stage(kind, stage, sync), (5, 5), "{kind:?} {stage:?}, {sync:?}");
        }
        for sync in not {
            assert_eq!(by_stage(kind, stage, sync), (0, 0), "{kind:?} {stage:?}, {sync:?}");
        }
    }
    // Pixel shaders are in another scope; a mesh dispatch without a stage flag is in both.
    assert_eq!(by_stage(WorkKind::DispatchMesh, UseFlags::PIXEL_STAGE, S::PIXEL_SHADING), (5, 5));
    assert_eq!(by_stage(WorkKind::DispatchMesh, UseFlags::PIXEL_STAGE, S::VERTEX_SHADING), (0, 0));
    assert_eq!(by_stage(WorkKind::DispatchMesh, UseFlags::empty(), S::VERTEX_SHADING), (0, 5));
    assert_eq!(by_stage(WorkKind::DispatchMesh, UseFlags::empty(), S::DRAW), (5, 5));
}

#[test]
fn a_clear_of_an_unordered_access_view_is_not_in_the_scope_of_shaders() {
    covers!("BAR-044");
    let read = |sync_before| {
        let mut gpu = Gpu::new(1);
        let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        let clear = [Use::whole(a, A::UNORDERED_ACCESS)];
        let reads = [Use::whole(a, A::SHADER_RESOURCE), Use::whole(b, A::UNORDERED_ACCESS)];
        let access = (A::UNORDERED_ACCESS, A::SHADER_RESOURCE);
        gpu.run(&[
            work(WorkKind::ClearUnorderedAccess, Kernel::Fill, 5, 100, &clear),
            on_buffer(a, words((sync_before, S::COMPUTE_SHADING), access)),
            work(WorkKind::Dispatch, Kernel::Copy, 0, 0, &reads),
        ]);
        gpu.word(64)
    };
    assert_eq!((read(S::COMPUTE_SHADING), read(S::CLEAR_UNORDERED_ACCESS_VIEW)), (0, 5));
}

/// Two chained barriers: COPY to RESOLVE, then RESOLVE to COMPUTE_SHADING, without a resolve command.
#[test]
fn a_barrier_waits_for_the_one_that_holds_up_what_it_waits_for() {
    for (second, expected) in [(S::RESOLVE, 5), (S::PIXEL_SHADING, 0)] {
        let mut gpu = Gpu::new(1);
        let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        gpu.set_word(0, 5);
        let reads = [Use::whole(b, A::SHADER_RESOURCE), Use::whole(c, A::UNORDERED_ACCESS)];
        gpu.run(&[
            copy(a, b, 100),
            global(words((S::COPY, S::RESOLVE), (A::COPY_DEST, A::RESOLVE_SOURCE))),
            global(words((second, S::COMPUTE_SHADING), (A::NO_ACCESS, A::SHADER_RESOURCE))),
            work(WorkKind::Dispatch, Kernel::Copy, 0, 0, &reads),
        ]);
        assert_eq!(gpu.word(128), expected);
    }
}

#[test]
fn adjacent_barriers_of_one_buffer_hold_up_what_any_of_them_does() {
    covers!("BAR-099");
    for (same, expected) in [(true, 5), (false, 0)] {
        let mut gpu = Gpu::new(1);
        let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        gpu.set_word(0, 5);
        let reads = [Use::whole(b, A::SHADER_RESOURCE), Use::whole(c, A::UNORDERED_ACCESS)];
        let none = (A::NO_ACCESS, A::NO_ACCESS);
        gpu.run(&[
            copy(a, b, 100),
            on_buffer(b, words((S::RESOLVE, S::COMPUTE_SHADING), none)),
            on_buffer(
                if same { b } else { a },
                words((S::COPY, S::DRAW), (A::COPY_DEST, A::SHADER_RESOURCE)),
            ),
            work(WorkKind::Dispatch, Kernel::Copy, 0, 0, &reads),
        ]);
        assert_eq!(gpu.word(128), expected);
    }
}

#[test]
fn adjacent_barriers_of_overlapping_parts_hold_up_what_any_of_them_does() {
    covers!("BAR-099");
    for (offset, expected) in [(0, 5), (31, 5), (32, 0)] {
        let mut gpu = Gpu::new(1);
        let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        gpu.set_word(0, 5);
        let reads = [Use::whole(b, A::SHADER_RESOURCE), Use::whole(c, A::UNORDERED_ACCESS)];
        let part = |offset, bytes, (before, after)| {
            let barrier = words((before, after), (A::COPY_DEST, A::SHADER_RESOURCE));
            let flags = RangedFlags::empty();
            let ranged = RangedBarrier { barrier, resource: b, flags, offset, bytes };
            Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![ranged])] }
        };
        gpu.run(&[
            copy(a, b, 100),
            part(offset, 32, (S::RESOLVE, S::COMPUTE_SHADING)),
            part(0, 32, (S::COPY, S::DRAW)),
            work(WorkKind::Dispatch, Kernel::Copy, 0, 0, &reads),
        ]);
        assert_eq!(gpu.word(128), expected, "{offset}");
    }
}

#[test]
fn a_ranged_barrier_is_about_a_part_or_about_the_whole_cache() {
    covers!("BAR-013");
    let read = |resource: u32, (offset, bytes): (u64, u64), halves: &[RangedFlags]| {
        let mut gpu = Gpu::with_hazards(1);
        let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        let barrier = words(TO_COPY.0, TO_COPY.1);
        let resource = if resource == 9 { a } else { resource };
        let ranged = |flags: &RangedFlags| RangedBarrier { barrier, resource, flags: *flags, offset, bytes };
        let ranged = BarrierGroup::Ranged(halves.iter().map(ranged).collect());
        gpu.run(&[fill(a, 5, 10), Packet::Barrier { groups: vec![ranged] }, copy(a, b, 0)]);
        ([64, 80, 84].map(|at| gpu.word(at)), gpu.notes.len())
    };
    let both = [RangedFlags::empty()];
    let (acquire, release) = (RangedFlags::ACQUIRE, RangedFlags::RELEASE);
    assert_eq!(read(0, (0, 0), &both), ([5, 5, 5], 0), "the whole cache");
    assert_eq!(read(9, (0, 20), &both), ([5, 5, 0], 1));
    assert_eq!(read(9, (20, u64::MAX), &both), ([0, 0, 5], 1));
    assert_eq!(read(9, (100, 20), &both), ([0, 0, 0], 1));
    assert_eq!(read(9, (0, 64), &[acquire | release]), ([5, 5, 5], 0));
    for resource in [0, 9] {
        assert_eq!(read(resource, (0, 64), &[release]), ([5, 5, 5], 1), "nothing was kept to be dropped");
        assert_eq!(read(resource, (0, 64), &[acquire]), ([0, 0, 0], 1));
        assert_eq!(read(resource, (0, 64), &[acquire, release]), ([5, 5, 5], 1));
        assert_eq!(read(resource, (0, 64), &[release, acquire]), ([5, 5, 5], 0));
        assert_eq!(read(resource, (0, 64), &[both[0], acquire]), ([5, 5, 5], 0));
    }
}

#[test]
fn a_barrier_of_another_resource_or_subresource_writes_nothing_back() {
    let read = |subresources: SubresourceRange, other: bool| {
        let mut gpu = Gpu::new(1);
        let desc = ResourceDesc { array_size: 3, mips: 2, ..ResourceDesc::texture("t", GPU, (4, 2)) };
        let texture = gpu.resource(&desc.with_packed_bytes());
        let [aside, copied] = [(1024, 120), (2048, 120)].map(|(offset, bytes)| gpu.buffer(offset, bytes));
        let resource = if other { aside } else { texture };
        let isa_barrier = TextureBarrier {
            barrier: words(TO_COPY.0, TO_COPY.1),
            layout_before: BarrierLayout::COMMON,
            layout_after: BarrierLayout::COMMON,
            resource,
            flags: TextureFlags::empty(),
            subresources,
        };
        let barrier = Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![isa_barrier])] };
        gpu.run(&[fill(texture, 1, 10), barrier, copy(texture, copied, 0)]);
        // Each slice: 32 bytes of mip 0, 8 of mip 1.
        [0, 32, 40, 72, 80, 112].map(|at| gpu.word(2048 + at))
    };
    let range = |first_mip, mips, first_slice, slices| SubresourceRange {
        first_mip,
        mips,
        first_slice,
        slices,
        first_plane: 0,
        planes: 1,
    };
    assert_eq!(read(SubresourceRange::ALL, false), [1; 6]);
    assert_eq!(read(SubresourceRange::ALL, true), [0; 6]);
    assert_eq!(read(SubresourceRange::one(3), false), [0, 0, 0, 1, 0, 0]);
    assert_eq!(read(SubresourceRange::one(6), false), [0; 6]);
    assert_eq!(read(range(0, 1, 0, 2), false), [1, 0, 1, 0, 0, 0]);
    assert_eq!(read(range(1, 9, 1, u32::MAX), false), [0, 0, 0, 1, 0, 1]);
    assert_eq!(read(range(0, 2, 1, 2), false), [0, 0, 1, 1, 1, 1]);
}

#[test]
fn a_split_barrier_waits_at_its_begin_and_holds_up_at_its_end() {
    for (ends, expected) in [(true, 5), (false, 0)] {
        let mut gpu = Gpu::new(1);
        let [a, b, c] = [0, 64, 128].map(|offset| gpu.buffer(offset, 64));
        let split = |sync| on_buffer(a, words(sync, TO_COPY.1));
        let mut packets = vec![fill(a, 5, 100), split((S::COMPUTE_SHADING, S::SPLIT)), fill(c, 1, 500)];
        packets.extend(ends.then(|| split((S::SPLIT, S::COPY))));
        packets.push(copy(a, b, 0));
        gpu.submit(crate::gpu::ENGINE, 1, &packets);
        gpu.advance(100);
        // The dispatch between the two continues: nothing waits for it. Each barrier takes a nanosecond.
        gpu.advance(2);
        gpu.set_word(0, 77);
        gpu.advance(1000);
        assert_eq!((gpu.word(64), gpu.word(128)), (expected, 1));
    }
}

#[test]
fn the_older_barrier_does_what_its_translation_does() {
    covers!("BAR-015");
    let read = |barrier: fn(u32) -> LegacyBarrier| {
        let mut gpu = Gpu::new(1);
        let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
        gpu.run(&[fill(a, 5, 100), Packet::LegacyBarrier { barriers: vec![barrier(a)] }, copy(a, b, 0)]);
        gpu.word(64)
    };
    fn transition(resource: u32, after: LegacyState) -> LegacyBarrier {
        let before = LegacyState::UNORDERED_ACCESS;
        LegacyBarrier::Transition {
            flags: LegacyFlags::empty(),
            resource,
            subresource: u32::MAX,
            before,
            after,
        }
    }
    let flags = LegacyFlags::empty();
    assert_eq!(read(|a| transition(a, LegacyState::COPY_SOURCE)), 5);
    assert_eq!(read(|a| transition(a, LegacyState::RESOLVE_SOURCE)), 0, "the copy is not held up");
    assert_eq!(read(|a| transition(a + 1, LegacyState::COPY_SOURCE)), 0, "another resource");
    assert_eq!(read(|a| transition(a + 9, LegacyState::COPY_SOURCE)), 0, "no resource");
    assert_eq!(read(|a| LegacyBarrier::UnorderedAccess { flags: LegacyFlags::empty(), resource: a }), 0);
    assert_eq!(read(|_| LegacyBarrier::Aliasing { flags: LegacyFlags::empty(), before: 0, after: 0 }), 5);
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let add = || work(WorkKind::Dispatch, Kernel::Add, 7, 20, &[Use::whole(a, A::UNORDERED_ACCESS)]);
    let between =
        Packet::LegacyBarrier { barriers: vec![LegacyBarrier::UnorderedAccess { flags, resource: 0 }] };
    gpu.run(&[fill(a, 5, 100), between, add()]);
    assert_eq!(gpu.word(0), 12);
}

#[test]
fn discard_leaves_garbage() {
    let mut gpu = Gpu::new(1);
    let texture = gpu.resource(&ResourceDesc::texture("t", GPU, (4, 4)));
    let isa_barrier = TextureBarrier {
        barrier: words((S::ALL, S::ALL), (A::NO_ACCESS, A::RENDER_TARGET)),
        layout_before: BarrierLayout::UNDEFINED,
        layout_after: BarrierLayout::RENDER_TARGET,
        resource: texture,
        flags: TextureFlags::DISCARD,
        subresources: SubresourceRange::ALL,
    };
    gpu.set_word(64, 3);
    gpu.run(&[
        fill(texture, 5, 100),
        Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![isa_barrier])] },
    ]);
    assert_eq!((gpu.word(0), gpu.word(60), gpu.word(64)), (0xDEAD_C0DE, 0xDEAD_C0DE, 3));
    let target = [Use::whole(texture, A::RENDER_TARGET)];
    gpu.set_word(0, 1);
    gpu.run(&[work(WorkKind::Discard, Kernel::None, 0, 0, &target)]);
    assert_eq!(gpu.word(0), 0xDEAD_C0DE);
}

/// Only evictions write back: the copies run after everything and read memory.
fn pushed_out(gpu: &mut Gpu, mut packets: Vec<Packet>, copies: &[(u32, u32)]) {
    packets.push(global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS))));
    packets.extend(copies.iter().map(|(from, to)| copy(*from, *to, 0)));
    gpu.run(&packets);
}

#[test]
fn a_cache_has_so_many_ranges_and_pushes_out_the_oldest() {
    let mut gpu = Gpu::new(4);
    let all = gpu.buffer(0, 2 * PAGE);
    let to = |number: u64| [Use::range(all, A::UNORDERED_ACCESS, number * 8, 4)];
    for (count, first) in [(CACHE_RANGES_MAX as u64, 0), (CACHE_RANGES_MAX as u64 + 1, 5)] {
        let mut packets: Vec<Packet> = Vec::new();
        for number in 0..count {
            packets.push(work(WorkKind::Dispatch, Kernel::Fill, 5, 0, &to(number)));
        }
        let copies = [(0, 3 * PAGE), (8, 3 * PAGE + 8)];
        let copies = copies.map(|(from, to)| (gpu.buffer(from, 4), gpu.buffer(to, 4)));
        gpu.memory.0.fill(0);
        pushed_out(&mut gpu, packets, &copies);
        assert_eq!((gpu.word(3 * PAGE), gpu.word(3 * PAGE + 8)), (first, 0), "{count} ranges");
        assert_eq!((gpu.word(0), gpu.word(8 * (count - 1))), (5, 5));
    }
}

#[test]
fn a_cache_that_has_taken_so_many_bytes_is_written_back_whole() {
    let most = CACHE_BYTES_MAX / CACHED_BYTES_PER_USE_MAX;
    for (count, expected) in [(most, 0), (most + 1, 5)] {
        let mut gpu = Gpu::new(256);
        let mut packets = Vec::new();
        for number in 0..count {
            let to = gpu.buffer(number * CACHED_BYTES_PER_USE_MAX, CACHED_BYTES_PER_USE_MAX);
            packets.push(fill(to, 5, 0));
        }
        let copies = [((most - 1) * CACHED_BYTES_PER_USE_MAX, 240 * PAGE)];
        let copies = copies.map(|(from, to)| (gpu.buffer(from, 4), gpu.buffer(to, 4)));
        pushed_out(&mut gpu, packets, &copies);
        assert_eq!(gpu.word(240 * PAGE), expected, "{count} fills");
    }
}

#[test]
fn a_fence_write_and_a_full_barrier_see_to_the_bytes_first() {
    let mut gpu = Gpu::new(1);
    let a = gpu.buffer(0, 64);
    let fence = Packet::FenceWrite { gpu_address: 0x1000, value: 7 };
    gpu.run(&[fill(a, 5, 100), fence.clone(), fill(a, 6, 100), full(), fence]);
    assert_eq!(gpu.stores, [(0x1000, 7, 5), (0x1000, 7, 6)]);
}

#[test]
fn a_barrier_of_a_resource_that_is_not_there_touches_no_cache() {
    let mut gpu = Gpu::new(1);
    let [a, b] = [0, 64].map(|offset| gpu.buffer(offset, 64));
    let unknown = BufferBarrier { barrier: words(TO_COPY.0, TO_COPY.1), resource: 99, offset: 0, bytes: 4 };
    let groups = vec![
        BarrierGroup::Unknown { kind: 8, barriers: 3 },
        BarrierGroup::Buffer(vec![unknown]),
        BarrierGroup::Global(vec![]),
    ];
    gpu.run(&[fill(a, 5, 100), Packet::Barrier { groups }, copy(a, b, 0)]);
    assert_eq!(gpu.word(64), 0);
}

/// The first mip of several slices: pieces with the second mips between them.
#[test]
fn a_barrier_of_more_pieces_than_there_may_be_is_about_what_is_between_them_too() {
    for (slices, between) in [(RANGES_PER_BARRIER_MAX as u32, 0), (RANGES_PER_BARRIER_MAX as u32 + 1, 1)] {
        let mut gpu = Gpu::new(4);
        let desc = ResourceDesc { array_size: 70, mips: 2, ..ResourceDesc::texture("t", GPU, (4, 2)) };
        let texture = gpu.resource(&desc.with_packed_bytes());
        let copied = gpu.buffer(2 * PAGE, 2800);
        let isa_barrier = TextureBarrier {
            barrier: words(TO_COPY.0, TO_COPY.1),
            layout_before: BarrierLayout::COMMON,
            layout_after: BarrierLayout::COMMON,
            resource: texture,
            flags: TextureFlags::empty(),
            subresources: SubresourceRange {
                first_mip: 0,
                mips: 1,
                first_slice: 0,
                slices,
                first_plane: 0,
                planes: 1,
            },
        };
        let barrier = Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![isa_barrier])] };
        gpu.run(&[fill(texture, 1, 10), barrier, copy(texture, copied, 0)]);
        let last = u64::from(slices - 1) * 40;
        let read = [0, 32, last, last + 32, last + 40].map(|at| gpu.word(2 * PAGE + at));
        assert_eq!(read, [1, between, 1, 0, 0], "{slices} slices");
    }
}

/// A barrier splits one cache range into many; ranges above the limit are evicted.
#[test]
fn a_cache_that_barriers_cut_into_pieces_has_no_more_ranges() {
    let mut gpu = Gpu::new(2);
    let [a, b] = [0, PAGE].map(|offset| gpu.buffer(offset, PAGE));
    let mut packets = vec![fill(a, 5, 0), global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS)))];
    let none = words((S::NONE, S::NONE), (A::UNORDERED_ACCESS, A::NO_ACCESS));
    for piece in 0..CACHE_RANGES_MAX as u64 {
        let (resource, flags, offset) = (a, RangedFlags::empty(), 8 + piece * 8);
        let isa_barrier = RangedBarrier { barrier: none, resource, flags, offset, bytes: 4 };
        packets.push(Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![isa_barrier])] });
    }
    packets.extend([global(words((S::ALL, S::ALL), (A::NO_ACCESS, A::NO_ACCESS))), copy(a, b, 0)]);
    gpu.run(&packets);
    // The ranges of the barriers are written back, and so are the evicted ones. All were written at once, so the lowest
    // addresses are evicted first.
    let read = [0, 4, 8, 12, 2044, 2052, 4092].map(|at| gpu.word(PAGE + at));
    assert_eq!(read, [5, 5, 5, 5, 0, 0, 0]);
    assert_eq!(gpu.word(4092), 5);
}
