//! Layouts: what the list itself knows, and what only earlier ones do.

use covers::covers;

use crate::world::*;
use barriers::{Phase, Policy, Rule, policy::VideoQueueCommon};
use d3dkmt::isa::{BarrierLayout as L, Packet, QueueType, WorkKind};

fn draws(access: &str) -> Packet {
    uses(WorkKind::Draw, TEXTURE, access)
}

fn to_target(from: &str) -> Packet {
    move_to("ALL -> RENDER_TARGET", "COMMON -> RENDER_TARGET", (from, "RENDER_TARGET"))
}

#[test]
fn a_layout_unlike_the_known_one_is_an_error() {
    covers!("BAR-064");
    let wrong =
        [to_target("COMMON"), move_to("ALL -> COPY", "COMMON -> COPY_DEST", ("COPY_SOURCE", "COPY_DEST"))];
    let message = the(&World::new().submit(&wrong), Rule::R047);
    assert_eq!((message.id, message.phase), (Some(1334), Phase::Record));
    assert!(message.text.ends_with("its layout is RENDER_TARGET"), "{message}");
    // Across lists of one submission, the list alone does not know it.
    let [first, second] = wrong;
    let lists = [list("a"), first, list("b"), second];
    assert_eq!(the(&World::new().submit(&lists), Rule::R047).phase, Phase::Submission);
}

#[test]
fn first_layout_is_the_one_that_the_texture_has() {
    covers!("BAR-066");
    let read = draws("SHADER_RESOURCE");
    assert_eq!(rules(&World::new().submit(std::slice::from_ref(&read))), [], "COMMON allows it");
    assert_eq!(
        rules(&World::in_layout(L::SHADER_RESOURCE).submit(std::slice::from_ref(&read))),
        [],
        "so does this"
    );
    assert_eq!(rules(&World::in_layout(L::RENDER_TARGET).submit(std::slice::from_ref(&read))), [Rule::R092]);
    // A use leaves a set of possible layouts; a LayoutBefore outside of it is an error of the list alone.
    let from =
        |layout: &str| [read.clone(), move_to("ALL -> COPY", "COMMON -> COPY_DEST", (layout, "COPY_DEST"))];
    for possible in ["COMMON", "SHADER_RESOURCE", "GENERIC_READ", "DIRECT_QUEUE_COMMON"] {
        let mut world = World::in_layout(possible.layout());
        assert_eq!(rules(&world.submit(&from(possible))), [], "{possible}");
    }
    let message = the(&World::new().submit(&from("RENDER_TARGET")), Rule::R047);
    assert_eq!(message.phase, Phase::Record);
    // Two uses without a common layout.
    let both = [read, draws("RENDER_TARGET")];
    assert_eq!(the(&World::new().submit(&both), Rule::R030).phase, Phase::Record);
}

#[test]
fn the_next_submission_goes_on_from_the_layout_that_the_last_one_left() {
    covers!("BAR-105", "BAR-106");
    let mut world = World::new();
    world.submit(&[to_target("COMMON")]);
    let next = move_to("ALL -> DRAW", "COMMON -> SHADER_RESOURCE", ("RENDER_TARGET", "SHADER_RESOURCE"));
    assert_eq!(rules(&world.submit(std::slice::from_ref(&next))), []);
    let message = the(&world.submit(&[next]), Rule::R089);
    assert_eq!((message.id, message.phase), (Some(1334), Phase::Submission));
    assert!(
        message.text.ends_with("it was, when this ExecuteCommandLists began, in SHADER_RESOURCE"),
        "{message}"
    );
    // No list left the texture in its first layout.
    let message = the(&World::new().submit(&[to_target("RENDER_TARGET")]), Rule::R089);
    assert!(message.text.ends_with("when this ExecuteCommandLists began, in COMMON"), "{message}");
    let discards = move_to("ALL -> DRAW", "NO_ACCESS -> SHADER_RESOURCE", ("UNDEFINED", "SHADER_RESOURCE"));
    assert_eq!(rules(&world.submit(&[discards])), [], "UNDEFINED is always right");
}

#[test]
fn the_flush_between_submissions_is_implied_and_the_layout_is_not() {
    covers!("BAR-109");
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[to_target("COMMON"), draws("RENDER_TARGET")])), []);
    let message = the(&world.submit(&[draws("SHADER_RESOURCE")]), Rule::R092);
    assert!(message.text.contains("in the layout RENDER_TARGET"), "{message}");
    let moved = move_to("NONE -> DRAW", "NO_ACCESS -> SHADER_RESOURCE", ("RENDER_TARGET", "SHADER_RESOURCE"));
    assert_eq!(rules(&world.submit(&[moved, draws("SHADER_RESOURCE")])), []);
}

#[test]
fn nothing_is_promoted() {
    covers!("BAR-075", "BAR-112");
    assert_eq!(rules(&World::new().submit(&[draws("RENDER_TARGET")])), [Rule::R095]);
    assert_eq!(rules(&World::new().submit(&[draws("DEPTH_STENCIL_READ")])), [Rule::R058]);
    let outcome = World::new().submit(&[uses(WorkKind::Resolve, TEXTURE, "RESOLVE_SOURCE")]);
    let message = the(&outcome, Rule::R058);
    assert!(message.text.contains("in the layout COMMON; it can be in RESOLVE_SOURCE"), "{message}");
    let unordered = uses(WorkKind::Dispatch, TEXTURE, "UNORDERED_ACCESS");
    assert_eq!(rules(&World::new().submit(&[unordered])), [Rule::R095]);
}

/// The first uses that each common layout permits, and those that buffers and simultaneous-access textures permit.
const FREE: &str = "\
Draw SHADER_RESOURCE: COMMON DIRECT_QUEUE_COMMON buffer shared
Copy COPY_SOURCE: COMMON DIRECT_QUEUE_COMMON buffer shared
Copy COPY_DEST: COMMON DIRECT_QUEUE_COMMON buffer shared
Dispatch UNORDERED_ACCESS: DIRECT_QUEUE_COMMON buffer shared
Draw RENDER_TARGET: buffer shared
Draw VERTEX_BUFFER: buffer
Draw CONSTANT_BUFFER: buffer
DrawIndexed INDEX_BUFFER: buffer
Draw STREAM_OUTPUT: buffer
ExecuteIndirect INDIRECT_ARGUMENT: buffer
Resolve RESOLVE_DEST: buffer shared
Resolve RESOLVE_SOURCE: buffer shared
Draw DEPTH_STENCIL_WRITE:
Draw DEPTH_STENCIL_READ:";

#[test]
fn first_accesses_that_need_no_barrier() {
    covers!("BAR-017");
    let kinds = WorkKind::ALL.iter();
    let kind = |name: &str| *kinds.clone().find(|kind| format!("{kind:?}") == name).expect("a kind");
    for line in FREE.lines() {
        let (kind_and_access, free_states) = line.split_once(':').unwrap();
        let (name, access) = kind_and_access.split_once(' ').unwrap();
        let found = |world: &mut World, id| rules(&world.submit(&[uses(kind(name), id, access)]));
        let free_states: Vec<&str> = free_states.split_whitespace().collect();
        let free = [
            ("COMMON", found(&mut World::new(), TEXTURE)),
            ("DIRECT_QUEUE_COMMON", found(&mut World::in_layout(L::DIRECT_QUEUE_COMMON), TEXTURE)),
            ("buffer", found(&mut World::new(), BUFFER)),
            ("shared", found(&mut World::new(), SHARED)),
        ];
        for (state, found) in free {
            assert_eq!(found.is_empty(), free_states.contains(&state), "{line} / {state}: {found:?}");
        }
    }
}

#[test]
fn on_a_copy_queue_everything_is_common() {
    covers!("BAR-056");
    let copy = uses(WorkKind::Copy, TEXTURE, "COPY_DEST");
    let mut world = World::in_layout(L::COPY_DEST);
    let message = the(&world.submit_to(QueueType::Copy, std::slice::from_ref(&copy)), Rule::R039);
    assert_eq!(message.id, Some(1431));
    assert_eq!(rules(&World::new().submit_to(QueueType::Copy, &[copy])), []);
    let read = [uses(WorkKind::Copy, TEXTURE, "COPY_SOURCE")];
    assert_eq!(rules(&World::in_layout(L::COPY_SOURCE).submit_to(QueueType::Copy, &read)), [Rule::R039]);
    assert_eq!(rules(&World::new().submit_to(QueueType::Copy, &read)), []);
}

#[test]
fn a_copy_goes_to_where_a_copy_may_go() {
    covers!("BAR-082");
    let copy = |world: &mut World, access| rules(&world.submit(&[uses(WorkKind::Copy, TEXTURE, access)]));
    assert_eq!(copy(&mut World::in_layout(L::COPY_SOURCE), "COPY_DEST"), [Rule::R065]);
    assert_eq!(copy(&mut World::in_layout(L::COPY_SOURCE), "COPY_SOURCE"), []);
    assert_eq!(copy(&mut World::in_layout(L::COPY_DEST), "COPY_DEST"), []);
}

#[test]
fn a_layout_of_generic_reads_is_never_written_in() {
    let mut world = World::in_layout(L::GENERIC_READ);
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, TEXTURE, "COPY_DEST")])), [Rule::R093]);
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, TEXTURE, "COPY_SOURCE")])), []);
}

#[test]
fn presented_texture_must_be_common() {
    covers!("BAR-086", "BAR-111");
    let present = [uses(WorkKind::Present, TEXTURE, "COMMON")];
    assert_eq!(rules(&World::new().submit(&present)), []);
    assert_eq!(rules(&World::in_layout(L::RENDER_TARGET).submit(&present)), [Rule::R069]);
    assert_eq!(rules(&World::in_layout(L::DIRECT_QUEUE_COMMON).submit(&present)), [Rule::R094]);
}

#[test]
fn a_layout_of_another_queue_is_not_used_here() {
    let mut world = World::in_layout(L::DIRECT_QUEUE_COMMON);
    let dispatch = uses(WorkKind::Dispatch, TEXTURE, "SHADER_RESOURCE");
    assert_eq!(rules(&world.submit(std::slice::from_ref(&dispatch))), []);
    assert_eq!(rules(&world.submit_to(QueueType::Compute, std::slice::from_ref(&dispatch))), [Rule::R036]);
    // The one layout that a direct queue sets for both queue types.
    let mut world = World::in_layout(L::DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE);
    assert_eq!(rules(&world.submit_to(QueueType::Compute, &[dispatch])), []);
}

#[test]
fn the_layout_that_only_the_ddi_has_is_a_switch() {
    let layouts = ("COMMON", "VIDEO_QUEUE_COMMON");
    let packets = [move_to("ALL -> VIDEO_DECODE", "COMMON -> VIDEO_DECODE_READ", layouts)];
    let found = rules(&World::new().submit_to(QueueType::VideoDecode, &packets));
    assert_eq!(found, [Rule::R036, Rule::R030]);
    let policy = Policy { video_queue_common: VideoQueueCommon::VideoQueues, ..Policy::default() };
    assert_eq!(rules(&World::policy(policy).submit_to(QueueType::VideoDecode, &packets)), []);
    let decode = uses(WorkKind::VideoDecode, TEXTURE, "VIDEO_DECODE_READ");
    let mut world = World::policy(policy);
    let [barrier] = packets;
    assert_eq!(rules(&world.submit_to(QueueType::VideoDecode, &[barrier, decode])), []);
}

#[test]
fn subresources_have_layouts_of_their_own() {
    use d3dkmt::isa::{SubresourceRange, TextureBarrier};
    let one = |index, from: &'static str| {
        let barrier =
            texture(TEXTURE, "ALL -> RENDER_TARGET", "COMMON -> RENDER_TARGET", (from, "RENDER_TARGET"));
        textures(vec![TextureBarrier { subresources: SubresourceRange::one(index), ..barrier }])
    };
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[one(1, "COMMON")])), []);
    let outcome = world.submit(&[to_target("COMMON")]);
    let message = the(&outcome, Rule::R089);
    assert!(message.text.contains("texture \"albedo\" (1) subresource 1 is"), "{message}");
    assert_eq!(rules(&world.submit(&[to_target("RENDER_TARGET")])), [], "all are the same again");
}

#[test]
fn a_layout_that_was_given_up_is_not_named_again() {
    let gives_up = move_to("ALL -> ALL", "COMMON -> NO_ACCESS", ("COMMON", "UNDEFINED"));
    let from = |layout| move_to("ALL -> COPY", "NO_ACCESS -> COPY_DEST", (layout, "COPY_DEST"));
    assert_eq!(rules(&World::new().submit(&[gives_up.clone(), from("COMMON")])), [Rule::R047]);
    assert_eq!(rules(&World::new().submit(&[gives_up.clone(), from("UNDEFINED")])), []);
    let mut world = World::new();
    world.submit(&[gives_up]);
    assert_eq!(world.device.layout(TEXTURE, 0), L::UNDEFINED);
    assert_eq!(rules(&world.submit(&[draws("SHADER_RESOURCE")])), [Rule::R030]);
    let message = the(&world.submit(&[from("COMMON")]), Rule::R089);
    assert!(message.text.ends_with("began, in UNDEFINED"), "{message}");
    // The same holds for a texture that never had a layout.
    let new = d3dkmt::isa::ResourceDesc { initial_layout: L::UNDEFINED, ..desc(BACK) };
    world.device.add_resource(80, new).unwrap();
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, 80, "COPY_DEST")])), [Rule::R030]);
}

#[test]
fn the_common_layout_of_compute_queues_is_free_for_more() {
    let layouts = ("UNDEFINED", "COMPUTE_QUEUE_COMMON");
    let latch = move_to("NONE -> NONE", "NO_ACCESS -> NO_ACCESS", layouts);
    let on = |kind, access| {
        let mut world = World::new();
        world.submit_to(QueueType::Compute, std::slice::from_ref(&latch));
        rules(&world.submit_to(QueueType::Compute, &[uses(kind, TEXTURE, access)]))
    };
    assert_eq!(on(WorkKind::Dispatch, "UNORDERED_ACCESS"), []);
    assert_eq!(on(WorkKind::Dispatch, "SHADER_RESOURCE"), []);
    assert_eq!(on(WorkKind::Copy, "COPY_DEST"), []);
}
