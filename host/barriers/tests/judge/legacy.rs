//! Legacy ResourceBarriers: their translation, and mixing them with enhanced barriers.

use covers::covers;

use crate::world::*;
use barriers::legacy::{Equivalent, Translated, equivalent, translate};
use barriers::policy::FixedFunctionWrites;
use barriers::{Phase, Policy, Rule, limits};
use d3dkmt::isa::{
    BarrierLayout as L, BarrierSync as S, LegacyBarrier, LegacyFlags, LegacyState as T, ListFlags, Packet,
    QueueType, ResourceDesc, WorkKind,
};

/// State: syncs, accesses, layout, as published, and the scopes that the tables lack: clears are unordered accesses, and
/// builds of acceleration structures read shader resources. Both need no more than these states in a legacy program.
const ROWS: &str = "\
VERTEX_AND_CONSTANT_BUFFER; ALL_SHADING; VERTEX_BUFFER | CONSTANT_BUFFER; -
INDEX_BUFFER; INDEX_INPUT; INDEX_BUFFER; -
RENDER_TARGET; RENDER_TARGET; RENDER_TARGET; RENDER_TARGET
UNORDERED_ACCESS; ALL_SHADING | BUILD_RTAS | COPY_RTAS | EMIT_RTAS_POSTBUILD_INFO | CLEAR_UNORDERED_ACCESS_VIEW; UNORDERED_ACCESS; UNORDERED_ACCESS
DEPTH_WRITE; DEPTH_STENCIL; DEPTH_STENCIL_WRITE; DEPTH_STENCIL_WRITE
DEPTH_READ; DEPTH_STENCIL; DEPTH_STENCIL_READ; DEPTH_STENCIL_READ
NON_PIXEL_SHADER_RESOURCE; NON_PIXEL_SHADING | BUILD_RTAS; SHADER_RESOURCE; LEGACY_SHADER_RESOURCE
PIXEL_SHADER_RESOURCE; PIXEL_SHADING; SHADER_RESOURCE; LEGACY_SHADER_RESOURCE
STREAM_OUT; VERTEX_SHADING; STREAM_OUTPUT; -
INDIRECT_ARGUMENT; EXECUTE_INDIRECT; INDIRECT_ARGUMENT; -
COPY_DEST; COPY; COPY_DEST; LEGACY_COPY_DEST
COPY_SOURCE; COPY; COPY_SOURCE; LEGACY_COPY_SOURCE
RESOLVE_DEST; RESOLVE; RESOLVE_DEST; RESOLVE_DEST
RESOLVE_SOURCE; RESOLVE; RESOLVE_SOURCE; RESOLVE_SOURCE
RAYTRACING_ACCELERATION_STRUCTURE; RAYTRACING; RTAS_READ | RTAS_WRITE; -
SHADING_RATE_SOURCE; PIXEL_SHADING; SHADING_RATE_SOURCE; SHADING_RATE_SOURCE";

#[test]
fn every_state_is_a_row_of_the_table() {
    covers!("BAR-016");
    for line in ROWS.lines() {
        let [state, syncs, accesses, layout] = line.split("; ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let words = words(&format!("{syncs} -> NONE"), &format!("{accesses} -> COMMON"));
        let layout = (layout != "-").then(|| layout.layout());
        let right = Equivalent { sync: words.sync_before, access: words.access_before, layout };
        assert_eq!(equivalent(T::from_name(state).expect(state)), right, "{line}");
    }
    let common = Equivalent { sync: S::ALL, access: access("COMMON"), layout: Some(L::COMMON) };
    assert_eq!(equivalent(T::COMMON), common);
    assert_eq!(equivalent(T::PREDICATION), equivalent(T::INDIRECT_ARGUMENT));
    // A combination: the union, and one layout for all reads.
    let reads = equivalent(T::NON_PIXEL_SHADER_RESOURCE | T::PIXEL_SHADER_RESOURCE | T::COPY_SOURCE);
    assert_eq!(reads.sync, S::NON_PIXEL_SHADING | S::BUILD_RTAS | S::PIXEL_SHADING | S::COPY);
    assert_eq!(reads.access, access("SHADER_RESOURCE | COPY_SOURCE"));
    assert_eq!(reads.layout, Some(L::DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE));
}

#[test]
fn a_driver_gets_enhanced_barriers_only() {
    covers!("BAR-015");
    let descs = [desc(TEXTURE), desc(BUFFER)];
    let describe = |id| descs.iter().find(|desc| u64::from(id) << 20 == desc.gpu_address);
    let of = |barrier| translate(&barrier, describe).expect("a resource that is known");
    let expected = texture(
        TEXTURE,
        "COPY -> RENDER_TARGET",
        "COPY_DEST -> RENDER_TARGET",
        ("LEGACY_COPY_DEST", "RENDER_TARGET"),
    );
    assert_eq!(of(transition(TEXTURE, T::COPY_DEST, T::RENDER_TARGET)), Translated::Texture(expected));
    let expected = buffer_words(BUFFER, "COPY -> INDEX_INPUT", "COPY_DEST -> INDEX_BUFFER");
    assert_eq!(of(transition(BUFFER, T::COPY_DEST, T::INDEX_BUFFER)), Translated::Buffer(expected));
    let split = |flags| split(BUFFER, flags, T::COPY_DEST, T::INDEX_BUFFER);
    let begins = buffer_words(BUFFER, "COPY -> SPLIT", "COPY_DEST -> INDEX_BUFFER");
    assert_eq!(of(split(BEGIN)), Translated::Buffer(begins));
    let ends = buffer_words(BUFFER, "SPLIT -> INDEX_INPUT", "COPY_DEST -> INDEX_BUFFER");
    assert_eq!(of(split(END)), Translated::Buffer(ends));
    let scopes =
        "ALL_SHADING | BUILD_RTAS | COPY_RTAS | EMIT_RTAS_POSTBUILD_INFO | CLEAR_UNORDERED_ACCESS_VIEW";
    let both = |what: &str| format!("{what} -> {what}");
    let unordered = words(&both(scopes), &both("UNORDERED_ACCESS | RTAS_WRITE | RTAS_READ"));
    let flags = LegacyFlags::empty();
    assert_eq!(of(LegacyBarrier::UnorderedAccess { flags, resource: 0 }), Translated::Global(unordered));
    let Translated::Texture(of_one) = of(LegacyBarrier::UnorderedAccess { flags, resource: TEXTURE }) else {
        panic!()
    };
    assert_eq!(of_one.barrier, unordered);
    assert_eq!((of_one.layout_before, of_one.layout_after), (L::UNORDERED_ACCESS, L::UNORDERED_ACCESS));
    let stall = words("ALL -> ALL", "COMMON -> COMMON");
    assert_eq!(of(LegacyBarrier::Aliasing { flags, before: 0, after: 0 }), Translated::Global(stall));
    assert_eq!(translate(&transition(99, T::COMMON, T::COPY_DEST), describe), None);
}

fn common_to_copy() -> Packet {
    move_to("ALL -> COPY", "COMMON -> COPY_DEST", ("COMMON", "COPY_DEST"))
}

#[test]
fn an_enhanced_barrier_finds_the_resource_in_no_legacy_state() {
    covers!("BAR-087");
    let mut world = World::new();
    world.submit(&[legacy(transition(TEXTURE, T::COMMON, T::RENDER_TARGET))]);
    let message = the(&world.submit(&[common_to_copy()]), Rule::R070);
    assert_eq!((message.id, message.phase), (Some(1351), Phase::Submission));
    let mut world = World::new();
    world.submit(&[legacy(transition(TEXTURE, T::COMMON, T::RENDER_TARGET))]);
    world.submit(&[legacy(transition(TEXTURE, T::RENDER_TARGET, T::COMMON))]);
    assert_eq!(rules(&world.submit(&[common_to_copy()])), []);
}

#[test]
fn a_legacy_barrier_finds_the_texture_in_common() {
    covers!("BAR-088");
    let mut world = World::in_layout(L::RENDER_TARGET);
    let back = legacy(transition(TEXTURE, T::COMMON, T::COPY_DEST));
    assert_eq!(the(&world.submit(std::slice::from_ref(&back)), Rule::R071).id, Some(1350));
    assert_eq!(rules(&World::new().submit(std::slice::from_ref(&back))), []);
    assert_eq!(the(&World::new().submit(&[common_to_copy(), back]), Rule::R071).phase, Phase::Record);
}

#[test]
fn a_legacy_state_says_what_may_be_used() {
    let mut world = World::new();
    let packets = [
        legacy(transition(TEXTURE, T::COMMON, T::RENDER_TARGET)),
        uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET"),
    ];
    assert_eq!(rules(&world.submit(&packets)), []);
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, TEXTURE, "COPY_DEST")])), [Rule::Command]);
    assert_eq!(
        rules(&world.submit(&[legacy(transition(TEXTURE, T::COPY_DEST, T::COMMON))])),
        [Rule::Command]
    );
    // A use may have promoted it to the state, but not to this one.
    for (before, messages) in [(T::COPY_SOURCE, vec![]), (T::RENDER_TARGET, vec![Rule::Command])] {
        let outcome = World::new().submit(&[legacy(transition(TEXTURE, before, T::COMMON))]);
        assert_eq!(rules(&outcome), messages, "{before:?}");
    }
    // Until the first transition after the layer was turned on, it may be in any.
    let mut world = World::new();
    world.device.forget_legacy_states(u32::MAX);
    let from_target = [legacy(transition(TEXTURE, T::RENDER_TARGET, T::COPY_DEST))];
    assert_eq!(rules(&world.submit(&from_target)), []);
    assert_eq!(rules(&world.submit(&from_target)), [Rule::Command]);
    let mut world = World::new();
    for (before, messages) in [(T::UNORDERED_ACCESS, vec![]), (T::DEPTH_WRITE, vec![Rule::Command])] {
        let outcome = World::new().submit(&[legacy(transition(BUFFER, before, T::COMMON))]);
        assert_eq!(rules(&outcome), messages, "{before:?}");
    }
    // A buffer's state decays at the end of its submission.
    let to = legacy(transition(BUFFER, T::COMMON, T::COPY_DEST));
    assert_eq!(rules(&world.submit(std::slice::from_ref(&to))), []);
    assert_eq!(rules(&world.submit(&[to])), []);
}

/// The layer was turned on later: the layout COMMON may be a legacy state, until a barrier or a transition names one.
#[test]
fn an_unknown_legacy_state_allows_every_use() {
    let draw = || uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET");
    let behind = |packet: Option<Packet>, last: u32| {
        let mut world = World::new();
        world.device.forget_legacy_states(last);
        rules(&world.submit(&packet.into_iter().chain([draw()]).collect::<Vec<_>>()))
    };
    assert_eq!(behind(None, TEXTURE), []);
    assert_eq!(behind(None, TEXTURE - 1), [Rule::R095], "it was in no list before");
    let to_copy = legacy(transition(TEXTURE, T::RENDER_TARGET, T::COPY_DEST));
    assert_eq!(behind(Some(to_copy), TEXTURE), [Rule::Command]);
    let moved = |layouts| move_to("RENDER_TARGET -> COPY", "RENDER_TARGET -> COPY_DEST", layouts);
    assert_eq!(behind(Some(moved(("RENDER_TARGET", "COPY_DEST"))), TEXTURE), [Rule::R030]);
    let asserts = |layout| Packet::AssertTextureLayout { resource: TEXTURE, subresource: 0, layout };
    assert_eq!(behind(Some(asserts(L::RENDER_TARGET)), TEXTURE), []);
    // A transition behind the use may name its state.
    let mut world = World::new();
    world.device.forget_legacy_states(TEXTURE);
    let back = legacy(transition(TEXTURE, T::RENDER_TARGET, T::COMMON));
    assert_eq!(rules(&world.submit(&[draw(), back, draw()])), [Rule::R095]);
}

#[test]
fn a_draw_may_test_depth_in_the_state_depth_write() {
    let policies = [FixedFunctionWrites::InOrder, FixedFunctionWrites::NeedBarrier];
    for fixed_function_writes in policies {
        let mut world = World::policy(Policy { fixed_function_writes, ..Policy::default() });
        let packets = [
            legacy(transition(TEXTURE, T::COMMON, T::DEPTH_WRITE)),
            uses(WorkKind::ClearDepthStencil, TEXTURE, "DEPTH_STENCIL_WRITE"),
            uses(WorkKind::Draw, TEXTURE, "DEPTH_STENCIL_READ"),
        ];
        assert_eq!(rules(&world.submit(&packets)), [], "{fixed_function_writes:?}");
        let message = the(&world.submit(&[uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET")]), Rule::Command);
        let state = "in the legacy state DEPTH_WRITE, which allows DEPTH_STENCIL_WRITE | DEPTH_STENCIL_READ";
        assert!(message.text.contains(state), "{message}");
    }
    let mut world = World::new();
    let packets = [
        legacy(transition(TEXTURE, T::COMMON, T::DEPTH_READ)),
        uses(WorkKind::Draw, TEXTURE, "DEPTH_STENCIL_WRITE"),
    ];
    assert_eq!(rules(&world.submit(&packets)), [Rule::Command]);
}

/// A world with one more resource, created in this state.
fn with_initial_state(id: u32, of: u32, initial_state: T) -> World {
    let mut world = World::new();
    let desc = ResourceDesc { initial_state, ..desc(of) };
    world.device.add_resource(id, desc).expect("a resource");
    world
}

const CREATED: u32 = 20;

#[test]
fn a_buffer_is_in_common_whatever_state_it_was_created_in() {
    for of in [BUFFER, SHARED, UPLOAD] {
        let created = || with_initial_state(CREATED, of, T::COPY_SOURCE);
        let other = if of == UPLOAD { "INDEX_BUFFER" } else { "UNORDERED_ACCESS" };
        let kind = if of == UPLOAD { WorkKind::DrawIndexed } else { WorkKind::Dispatch };
        let mut world = created();
        for _ in 0..2 {
            assert_eq!(rules(&world.submit(&[uses(kind, CREATED, other)])), [], "{of}");
        }
        let barrier = match of {
            SHARED => textures(vec![texture(
                CREATED,
                "NONE -> COPY",
                "NO_ACCESS -> COPY_SOURCE",
                ("COMMON", "COMMON"),
            )]),
            _ => buffers(vec![buffer_words(CREATED, "NONE -> COPY", "NO_ACCESS -> COPY_SOURCE")]),
        };
        assert_eq!(rules(&created().submit(&[barrier])), [], "{of}");
    }
    // A texture stays in its state.
    let mut world = with_initial_state(CREATED, TEXTURE, T::COPY_SOURCE);
    for _ in 0..2 {
        assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, CREATED, "COPY_DEST")])), [Rule::Command]);
    }
}

#[test]
fn a_use_promotes_a_texture_with_simultaneous_access_to_any_state_but_those_of_depth() {
    let cases = [
        (T::VIDEO_DECODE_WRITE, QueueType::VideoDecode, WorkKind::VideoDecode, "VIDEO_DECODE_WRITE"),
        (T::VIDEO_ENCODE_READ, QueueType::VideoEncode, WorkKind::VideoEncode, "VIDEO_ENCODE_READ"),
        (T::VIDEO_PROCESS_READ, QueueType::VideoProcess, WorkKind::VideoProcess, "VIDEO_PROCESS_READ"),
        (T::SHADING_RATE_SOURCE, QueueType::Direct, WorkKind::Draw, "SHADING_RATE_SOURCE"),
        (T::RENDER_TARGET, QueueType::Direct, WorkKind::Draw, "RENDER_TARGET"),
    ];
    for (state, queue, kind, access) in cases {
        for created_in in [state, T::COMMON] {
            let mut world = with_initial_state(CREATED, SHARED, created_in);
            let back = legacy(transition(CREATED, state, T::COMMON));
            for _ in 0..2 {
                let found = rules(&world.submit_to(queue, &[uses(kind, CREATED, access), back.clone()]));
                assert_eq!(found, [], "{access} {created_in:?}");
            }
        }
    }
    let depth = uses(WorkKind::Draw, SHARED, "DEPTH_STENCIL_READ");
    assert_eq!(rules(&World::new().submit(&[depth])), [Rule::R058]);
}

#[test]
fn an_acceleration_structure_stays_in_its_state() {
    let created = || with_initial_state(CREATED, BUFFER, T::RAYTRACING_ACCELERATION_STRUCTURE);
    let build = || uses(WorkKind::BuildRtas, CREATED, "RTAS_WRITE");
    let trace = || uses(WorkKind::DispatchRays, CREATED, "RTAS_READ");
    for queue in [QueueType::Direct, QueueType::Compute] {
        let mut world = created();
        for _ in 0..2 {
            let all =
                legacy(LegacyBarrier::UnorderedAccess { flags: LegacyFlags::empty(), resource: CREATED });
            assert_eq!(rules(&world.submit_to(queue, &[build(), all, trace()])), []);
            let copy = uses(WorkKind::Copy, CREATED, "COPY_DEST");
            assert_eq!(rules(&world.submit_to(queue, &[copy])), [Rule::Command]);
        }
    }
    let out = transition(CREATED, T::RAYTRACING_ACCELERATION_STRUCTURE, T::COMMON);
    let mut world = created();
    assert_eq!(rules(&world.submit(&[legacy(out)])), [Rule::Command]);
    assert_eq!(rules(&world.submit(&[build()])), []);
    // It has no other state from which an enhanced barrier could find it in COMMON.
    let barrier = |access: &str| {
        let words = format!("RTAS_WRITE -> {access}");
        buffers(vec![buffer_words(CREATED, "BUILD_RTAS -> RAYTRACING", &words)])
    };
    assert_eq!(rules(&created().submit(&[build(), barrier("RTAS_READ"), trace()])), []);
    assert_eq!(rules(&created().submit(&[build(), barrier("UNORDERED_ACCESS"), trace()])), [Rule::R048]);
}

#[test]
fn a_message_names_states_as_d3d12_does() {
    let mut world = World::new();
    let reads = T::COPY_SOURCE | T::PIXEL_SHADER_RESOURCE;
    world.submit(&[legacy(transition(TEXTURE, T::COMMON, reads))]);
    let message = the(&world.submit(&[legacy(transition(TEXTURE, T::COMMON, T::COPY_DEST))]), Rule::Command);
    assert!(
        message.text.ends_with("is COMMON, but it is in PIXEL_SHADER_RESOURCE | COPY_SOURCE"),
        "{message}"
    );
    let mut world = World::new();
    world.submit(&[legacy(transition(TEXTURE, T::COMMON, reads))]);
    let message = the(&world.submit(&[common_to_copy()]), Rule::R070);
    assert!(message.text.contains("in the legacy state PIXEL_SHADER_RESOURCE | COPY_SOURCE;"), "{message}");
}

#[test]
fn a_transition_names_the_state_that_a_write_has_promoted_to() {
    let copy = || uses(WorkKind::Copy, TEXTURE, "COPY_DEST");
    let from = |id, before| legacy(transition(id, before, T::PIXEL_SHADER_RESOURCE));
    for (before, messages) in [(T::COPY_DEST, vec![]), (T::COMMON, vec![Rule::Command])] {
        assert_eq!(rules(&World::new().submit(&[copy(), from(TEXTURE, before)])), messages, "{before:?}");
        // The copy of an earlier submission may be one of an enhanced program, which promotes nothing.
        let mut world = World::new();
        assert_eq!(rules(&world.submit(&[copy()])), []);
        assert_eq!(rules(&world.submit(&[uses(WorkKind::Draw, TEXTURE, "SHADER_RESOURCE")])), []);
        assert_eq!(rules(&world.submit(&[from(TEXTURE, before)])), [], "{before:?}");
    }
    // An enhanced barrier is one of a program without promotion.
    let flush = ("COPY -> PIXEL_SHADING", "COPY_DEST -> SHADER_RESOURCE");
    for barrier in [move_to(flush.0, flush.1, ("COMMON", "COMMON")), global(flush.0, flush.1)] {
        assert_eq!(rules(&World::new().submit(&[copy(), barrier, from(TEXTURE, T::COMMON)])), []);
    }
    // Another state is as wrong as COMMON.
    let dispatch = || uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    for (before, messages) in [(T::UNORDERED_ACCESS, vec![]), (T::COPY_DEST, vec![Rule::Command])] {
        assert_eq!(rules(&World::new().submit(&[dispatch(), from(BUFFER, before)])), messages, "{before:?}");
        let mut world = World::new();
        world.submit(&[dispatch()]);
        assert_eq!(rules(&world.submit(&[from(BUFFER, before)])), [], "a buffer decays");
    }
    // Reads promote to many states, and decay.
    let draw = || uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER");
    for before in [T::COMMON, T::VERTEX_AND_CONSTANT_BUFFER] {
        assert_eq!(rules(&World::new().submit(&[draw(), from(BUFFER, before)])), [], "{before:?}");
    }
}

const BEGIN: LegacyFlags = LegacyFlags::BEGIN_ONLY;
const END: LegacyFlags = LegacyFlags::END_ONLY;

fn split(resource: u32, flags: LegacyFlags, before: T, after: T) -> LegacyBarrier {
    LegacyBarrier::Transition { flags, resource, subresource: u32::MAX, before, after }
}

#[test]
fn a_split_transition_ends_as_it_began_and_nothing_uses_the_resource_meanwhile() {
    let target = || {
        let to_target = legacy(transition(TEXTURE, T::COMMON, T::RENDER_TARGET));
        vec![to_target, uses(WorkKind::ClearRenderTarget, TEXTURE, "RENDER_TARGET")]
    };
    let part = |flags| legacy(split(TEXTURE, flags, T::RENDER_TARGET, T::PIXEL_SHADER_RESOURCE));
    let reads = || uses(WorkKind::Draw, TEXTURE, "SHADER_RESOURCE");
    let found = |packets: Vec<Packet>| rules(&World::new().submit(&[target(), packets].concat()));
    assert_eq!(found(vec![part(BEGIN), part(END), reads()]), []);
    let draw = uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET");
    assert_eq!(found(vec![part(BEGIN), draw, part(END), reads()]), [Rule::R057]);
    let other = legacy(split(TEXTURE, END, T::COPY_DEST, T::COPY_SOURCE));
    assert_eq!(found(vec![part(BEGIN), other]), [Rule::R054]);
    let another = legacy(transition(TEXTURE, T::RENDER_TARGET, T::COPY_DEST));
    assert_eq!(found(vec![part(BEGIN), another]), [Rule::R053]);
    assert_eq!(found(vec![part(BEGIN), part(BEGIN), part(END)]), [Rule::R053]);
    assert_eq!(found(vec![part(END)]), [Rule::R052]);
    // A begin is no end, and both together begin nothing.
    assert_eq!(found(vec![part(BEGIN | END), reads()]), [Rule::R083]);
    // Over two submissions.
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[target(), vec![part(BEGIN)]].concat())), []);
    assert_eq!(rules(&world.submit(&[part(END), reads()])), []);
    // The state before it is named at its begin.
    let wrong = legacy(split(TEXTURE, BEGIN, T::COPY_DEST, T::PIXEL_SHADER_RESOURCE));
    assert_eq!(found(vec![wrong]), [Rule::Command]);
    // It may have begun before the layer was turned on.
    let mut world = World::new();
    world.device.forget_legacy_states(TEXTURE);
    assert_eq!(rules(&world.submit(&[part(END), reads()])), []);
    // A buffer decays at the end of a submission: what is split over it does nothing.
    let part = |flags| legacy(split(BUFFER, flags, T::COMMON, T::COPY_DEST));
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[part(BEGIN), part(END)])), []);
    assert_eq!(rules(&world.submit(&[part(BEGIN)])), [Rule::R056]);
    assert_eq!(rules(&world.submit(&[part(END)])), [Rule::R056]);
}

#[test]
fn a_list_has_legacy_states_of_its_own_type_and_a_bundle_has_none() {
    let to = |queue, state: T| {
        // A texture, but for states that no texture has.
        let of_buffer = T::VERTEX_AND_CONSTANT_BUFFER | T::INDIRECT_ARGUMENT | T::INDEX_BUFFER;
        let id = if state.intersects(of_buffer) { BUFFER } else { TEXTURE };
        rules(&World::new().submit_to(queue, &[legacy(transition(id, T::COMMON, state))]))
    };
    let graphics =
        [T::RENDER_TARGET, T::PIXEL_SHADER_RESOURCE, T::INDEX_BUFFER, T::RESOLVE_SOURCE, T::DEPTH_READ];
    let compute = [T::UNORDERED_ACCESS, T::NON_PIXEL_SHADER_RESOURCE, T::VERTEX_AND_CONSTANT_BUFFER];
    for state in graphics {
        assert_eq!(to(QueueType::Direct, state), [], "{state:?}");
        assert_eq!(to(QueueType::Compute, state), [Rule::R040], "{state:?}");
    }
    for state in compute.into_iter().chain([T::INDIRECT_ARGUMENT]) {
        assert_eq!(to(QueueType::Direct, state), [], "{state:?}");
        assert_eq!(to(QueueType::Compute, state), [], "{state:?}");
        assert_eq!(to(QueueType::Copy, state), [Rule::R040], "{state:?}");
    }
    for state in [T::COPY_DEST, T::COPY_SOURCE] {
        for queue in [QueueType::Direct, QueueType::Compute, QueueType::Copy] {
            assert_eq!(to(queue, state), [], "{state:?} {queue:?}");
        }
        assert_eq!(to(QueueType::VideoDecode, state), [Rule::R040], "{state:?}");
    }
    // Query data is resolved into a buffer on a video list, and predicates are read from one.
    for queue in [QueueType::VideoDecode, QueueType::VideoProcess, QueueType::VideoEncode] {
        for (state, messages) in
            [(T::COPY_DEST, vec![]), (T::PREDICATION, vec![]), (T::COPY_SOURCE, vec![Rule::R040])]
        {
            let to = [legacy(transition(BUFFER, T::COMMON, state))];
            assert_eq!(rules(&World::new().submit_to(queue, &to)), messages, "{state:?} {queue:?}");
        }
    }
    assert_eq!(to(QueueType::VideoDecode, T::VIDEO_DECODE_READ), []);
    assert_eq!(to(QueueType::Direct, T::VIDEO_DECODE_READ), [Rule::R040]);
    let states = T::PIXEL_SHADER_RESOURCE | T::NON_PIXEL_SHADER_RESOURCE;
    let on_compute = legacy(transition(TEXTURE, T::COMMON, states));
    let message = the(&World::new().submit_to(QueueType::Compute, &[on_compute]), Rule::R040);
    assert!(message.text.starts_with("StateAfter PIXEL_SHADER_RESOURCE of texture"), "{message}");
    let bundle =
        Packet::BeginList { queue: QueueType::Direct, flags: ListFlags::BUNDLE, name: "bundle".into() };
    let to_copy = legacy(transition(TEXTURE, T::COMMON, T::COPY_DEST));
    assert_eq!(rules(&World::new().submit(&[bundle, to_copy])), [Rule::R002]);
}

#[test]
fn a_transition_is_from_one_state_to_another_that_resource_and_heap_can_have() {
    let found = |id, before, after| rules(&World::new().submit(&[legacy(transition(id, before, after))]));
    assert_eq!(found(TEXTURE, T::COMMON, T::COMMON), [Rule::Command]);
    let reads = T::COPY_SOURCE | T::PIXEL_SHADER_RESOURCE;
    assert_eq!(found(TEXTURE, reads, reads), [Rule::Command]);
    assert_eq!(found(TEXTURE, T::COMMON, reads), []);
    assert_eq!(found(BUFFER, T::COMMON, T::GENERIC_READ), []);
    for write in [T::COPY_DEST, T::UNORDERED_ACCESS, T::RENDER_TARGET, T::DEPTH_WRITE] {
        assert_eq!(found(TEXTURE, T::COMMON, T::PIXEL_SHADER_RESOURCE | write), [Rule::Command], "{write:?}");
    }
    for after in [T::UNORDERED_ACCESS, T::COPY_DEST] {
        assert_eq!(found(UPLOAD, T::GENERIC_READ, after), [Rule::R066], "{after:?}");
    }
    assert_eq!(found(READBACK, T::COPY_DEST, T::COPY_SOURCE), [Rule::R067]);
    assert_eq!(found(BUFFER, T::COMMON, T::RAYTRACING_ACCELERATION_STRUCTURE), [Rule::R029]);
}

#[test]
fn a_texture_is_presented_in_the_state_present() {
    let present = || uses(WorkKind::Present, BACK, "COMMON");
    let mut world = World::new();
    let to_target =
        [legacy(transition(BACK, T::PRESENT, T::RENDER_TARGET)), uses(WorkKind::Draw, BACK, "RENDER_TARGET")];
    assert_eq!(rules(&world.submit(&to_target)), []);
    let message = the(&world.submit(&[present()]), Rule::R069);
    assert!(message.text.contains("in the legacy state RENDER_TARGET;"), "{message}");
    let back = legacy(transition(BACK, T::RENDER_TARGET, T::PRESENT));
    assert_eq!(rules(&world.submit(&[back, present()])), []);
}

#[test]
fn the_state_of_a_texture_decays_at_the_end_of_a_submission_of_a_copy_queue() {
    let to = legacy(transition(TEXTURE, T::COMMON, T::COPY_DEST));
    for (queue, messages) in [(QueueType::Copy, vec![]), (QueueType::Direct, vec![Rule::Command])] {
        let mut world = World::new();
        assert_eq!(rules(&world.submit_to(queue, std::slice::from_ref(&to))), []);
        assert_eq!(rules(&world.submit_to(queue, std::slice::from_ref(&to))), messages, "{queue:?}");
    }
}

#[test]
fn a_barrier_of_unordered_access_is_for_unordered_accesses_and_acceleration_structures() {
    let flags = LegacyFlags::empty();
    let unordered = ["UNORDERED_ACCESS", "UNORDERED_ACCESS"];
    let order = [
        (RTAS, [(WorkKind::Dispatch, unordered[0]), (WorkKind::Dispatch, unordered[1])], None),
        (RTAS, [(WorkKind::ClearUnorderedAccess, unordered[0]), (WorkKind::Draw, unordered[1])], None),
        (RTAS, [(WorkKind::BuildRtas, "RTAS_WRITE"), (WorkKind::DispatchRays, "RTAS_READ")], None),
        (RTAS, [(WorkKind::Dispatch, "SHADER_RESOURCE"), (WorkKind::Dispatch, "UNORDERED_ACCESS")], None),
        (BUFFER, [(WorkKind::Copy, "COPY_DEST"), (WorkKind::Dispatch, "UNORDERED_ACCESS")], Some(Rule::R059)),
        (BUFFER, [(WorkKind::Copy, "COPY_DEST"), (WorkKind::Draw, "VERTEX_BUFFER")], Some(Rule::R091)),
        (
            BUFFER,
            [(WorkKind::Dispatch, "UNORDERED_ACCESS"), (WorkKind::Draw, "VERTEX_BUFFER")],
            Some(Rule::R091),
        ),
        (
            BUFFER,
            [(WorkKind::Dispatch, "UNORDERED_ACCESS"), (WorkKind::Copy, "COPY_SOURCE")],
            Some(Rule::R091),
        ),
    ];
    for (id, [first, second], broken) in order {
        for resource in [id, 0] {
            let barrier = legacy(LegacyBarrier::UnorderedAccess { flags, resource });
            let packets = [uses(first.0, id, first.1), barrier, uses(second.0, id, second.1)];
            let found = rules(&World::new().submit(&packets));
            assert_eq!(found, Vec::from_iter(broken), "{first:?} {second:?} {resource}");
        }
    }
}

#[test]
fn a_legacy_barrier_waits_for_clears_and_for_builds_of_acceleration_structures() {
    let flags = LegacyFlags::empty();
    let Some(Translated::Global(all)) =
        translate(&LegacyBarrier::UnorderedAccess { flags, resource: 0 }, |_| None)
    else {
        panic!()
    };
    for sync in [all.sync_before, all.sync_after, equivalent(T::UNORDERED_ACCESS).sync] {
        assert!(sync.contains(S::CLEAR_UNORDERED_ACCESS_VIEW), "{sync:?}");
    }
    assert!(equivalent(T::NON_PIXEL_SHADER_RESOURCE).sync.contains(S::BUILD_RTAS));
}

/// Middleware's legacy barriers between enhanced barriers of a program that does not know of them.
#[test]
fn the_next_enhanced_barrier_need_not_contain_the_scopes_of_a_legacy_one() {
    let flags = LegacyFlags::empty();
    let uav = |resource| legacy(LegacyBarrier::UnorderedAccess { flags, resource });
    let aliasing = legacy(LegacyBarrier::Aliasing { flags, before: 0, after: BUFFER });
    let dispatch = || uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    let around = |middle: &[Packet]| {
        let to_dispatch = buffer("COPY -> COMPUTE_SHADING", "COPY_DEST -> UNORDERED_ACCESS");
        let to_copy = buffer("COMPUTE_SHADING -> COPY", "UNORDERED_ACCESS -> COPY_SOURCE");
        let first = [uses(WorkKind::Copy, BUFFER, "COPY_DEST"), to_dispatch, dispatch()];
        rules(&World::new().submit(&[&first[..], middle, &[dispatch(), to_copy]].concat()))
    };
    let to_draws = global("COMPUTE_SHADING -> DRAW", "UNORDERED_ACCESS -> UNORDERED_ACCESS");
    let to_dispatches =
        global("DRAW -> COMPUTE_SHADING", "UNORDERED_ACCESS -> UNORDERED_ACCESS | SHADER_RESOURCE");
    for middle in [uav(BUFFER), uav(0), aliasing] {
        assert_eq!(around(std::slice::from_ref(&middle)), [], "{middle:?}");
        let many = vec![middle.clone(); limits::GLOBALS_APPLIED_MAX + 5];
        assert_eq!(around(&many), [], "{middle:?}");
        let between = [std::slice::from_ref(&to_draws), &many, std::slice::from_ref(&to_dispatches)].concat();
        assert_eq!(around(&between), [], "{middle:?}");
    }
    // An enhanced one must be contained, however many legacy ones follow.
    let rest = vec![uav(0); limits::GLOBALS_APPLIED_MAX + 5];
    assert_eq!(around(&[&[to_draws][..], &rest].concat()), [Rule::R041]);
}

#[test]
fn a_legacy_barrier_is_no_global_barrier_that_should_have_set_a_layout() {
    let flags = LegacyFlags::empty();
    let uav = legacy(LegacyBarrier::UnorderedAccess { flags, resource: 0 });
    let global = global("COMPUTE_SHADING -> COMPUTE_SHADING", "UNORDERED_ACCESS -> UNORDERED_ACCESS");
    let behind = |barriers: &[Packet]| {
        let dispatch = [uses(WorkKind::Dispatch, TEXTURE, "UNORDERED_ACCESS")];
        rules(&World::new().submit(&[barriers, &dispatch].concat()))
    };
    assert_eq!(behind(std::slice::from_ref(&uav)), [Rule::R095]);
    assert_eq!(behind(std::slice::from_ref(&global)), [Rule::R050]);
    let rest = vec![uav; limits::GLOBALS_APPLIED_MAX + 5];
    assert_eq!(behind(&rest), [Rule::R095]);
    assert_eq!(behind(&[&[global][..], &rest].concat()), [Rule::R050]);
}
