//! Correct programs as real applications have them: no message, not even a warning. Each of their barriers is needed.

use crate::world::*;
use barriers::Rule;
use d3dkmt::isa::{
    BarrierGroup, BarrierLayout as L, HeapType, Packet, QueueType, ResourceDesc, ResourceFlags as F,
    SubresourceRange, TextureBarrier, TextureFlags, Use, UseFlags, WorkKind,
};

fn a_use(resource: u32, names: &str, flags: UseFlags) -> Use {
    Use { flags, ..Use::whole(resource, access(names)) }
}

fn pixel(resource: u32) -> Use {
    a_use(resource, "SHADER_RESOURCE", UseFlags::PIXEL_STAGE)
}

fn draw(uses: Vec<Use>) -> Packet {
    work(WorkKind::Draw, uses)
}

fn of(resource: u32, names: &str) -> Use {
    Use::whole(resource, access(names))
}

fn change(resource: u32, syncs: &str, accesses: &str, layouts: (&'static str, &'static str)) -> Packet {
    textures(vec![texture(resource, syncs, accesses, layouts)])
}

#[track_caller]
fn assert_no_messages(world: &mut World, packets: &[Packet]) {
    assert_no_messages_on(world, QueueType::Direct, packets);
}

#[track_caller]
fn assert_no_messages_on(world: &mut World, queue: QueueType, packets: &[Packet]) {
    let outcome = world.submit_to(queue, packets);
    let messages: Vec<_> = outcome.messages.iter().map(ToString::to_string).collect();
    assert!(messages.is_empty(), "{messages:#?}");
}

const DEPTH: u32 = 20;
const COLOR: u32 = 21;
const OCCLUSION: u32 = 22;

fn frame_world() -> World {
    let mut world = World::new();
    let texture = |id: u32, name, flags| {
        let desc = ResourceDesc::texture(name, u64::from(id) << 20, (64, 64));
        ResourceDesc { flags, ..desc }
    };
    for (id, name, flags) in [
        (DEPTH, "depth", F::ALLOW_DEPTH_STENCIL),
        (COLOR, "color", F::ALLOW_RENDER_TARGET),
        (OCCLUSION, "occlusion", F::ALLOW_UNORDERED_ACCESS),
    ] {
        world.device.add_resource(id, texture(id, name, flags)).unwrap();
    }
    world
}

/// A depth pass, a color pass, a compute pass, and a last pass to the back buffer, which is presented.
fn frame() -> Vec<Packet> {
    let new = |id, sync: &str, to: &str, layout: &'static str| {
        let flags = TextureFlags::DISCARD;
        let one =
            texture(id, &format!("NONE -> {sync}"), &format!("NO_ACCESS -> {to}"), ("UNDEFINED", layout));
        textures(vec![TextureBarrier { flags, ..one }])
    };
    vec![
        list("depth"),
        new(DEPTH, "DEPTH_STENCIL", "DEPTH_STENCIL_WRITE", "DEPTH_STENCIL_WRITE"),
        uses(WorkKind::ClearDepthStencil, DEPTH, "DEPTH_STENCIL_WRITE"),
        draw(vec![of(BUFFER, "VERTEX_BUFFER"), of(DEPTH, "DEPTH_STENCIL_WRITE")]),
        draw(vec![of(BUFFER, "VERTEX_BUFFER"), of(DEPTH, "DEPTH_STENCIL_WRITE")]),
        list("color"),
        new(COLOR, "RENDER_TARGET", "RENDER_TARGET", "RENDER_TARGET"),
        uses(WorkKind::ClearRenderTarget, COLOR, "RENDER_TARGET"),
        draw(vec![of(BUFFER, "VERTEX_BUFFER"), of(DEPTH, "DEPTH_STENCIL_READ"), of(COLOR, "RENDER_TARGET")]),
        draw(vec![of(BUFFER, "VERTEX_BUFFER"), of(DEPTH, "DEPTH_STENCIL_READ"), of(COLOR, "RENDER_TARGET")]),
        list("occlusion"),
        change(
            DEPTH,
            "DEPTH_STENCIL -> COMPUTE_SHADING",
            "DEPTH_STENCIL_WRITE -> SHADER_RESOURCE",
            ("DEPTH_STENCIL_WRITE", "SHADER_RESOURCE"),
        ),
        new(OCCLUSION, "COMPUTE_SHADING", "UNORDERED_ACCESS", "UNORDERED_ACCESS"),
        work(WorkKind::Dispatch, vec![of(DEPTH, "SHADER_RESOURCE"), of(OCCLUSION, "UNORDERED_ACCESS")]),
        list("last"),
        Packet::Barrier {
            groups: vec![BarrierGroup::Texture(vec![
                texture(
                    COLOR,
                    "RENDER_TARGET -> PIXEL_SHADING",
                    "RENDER_TARGET -> SHADER_RESOURCE",
                    ("RENDER_TARGET", "SHADER_RESOURCE"),
                ),
                texture(
                    OCCLUSION,
                    "COMPUTE_SHADING -> PIXEL_SHADING",
                    "UNORDERED_ACCESS -> SHADER_RESOURCE",
                    ("UNORDERED_ACCESS", "SHADER_RESOURCE"),
                ),
                texture(
                    BACK,
                    "NONE -> RENDER_TARGET",
                    "NO_ACCESS -> RENDER_TARGET",
                    ("COMMON", "RENDER_TARGET"),
                ),
            ])],
        },
        draw(vec![pixel(COLOR), pixel(OCCLUSION), of(BACK, "RENDER_TARGET")]),
        change(BACK, "RENDER_TARGET -> NONE", "RENDER_TARGET -> NO_ACCESS", ("RENDER_TARGET", "COMMON")),
    ]
}

#[test]
fn a_frame_is_right_and_so_is_the_next() {
    let mut world = frame_world();
    for _ in 0..3 {
        assert_no_messages(&mut world, &frame());
        assert_no_messages(&mut world, &[uses(WorkKind::Present, BACK, "COMMON")]);
    }
}

#[test]
fn each_barrier_of_the_frame_is_missed() {
    let frame = frame();
    let barriers = frame.iter().enumerate().filter(|(_, packet)| matches!(packet, Packet::Barrier { .. }));
    let mut looked = 0;
    for (at, _) in barriers {
        let mut world = frame_world();
        assert_no_messages(&mut world, &frame);
        let without: Vec<Packet> = frame
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, packet)| packet.clone())
            .collect();
        let mut found = rules(&world.submit(&without));
        found.extend(rules(&world.submit(&[uses(WorkKind::Present, BACK, "COMMON")])));
        assert!(!found.is_empty(), "packet {at} of the frame");
        looked += 1;
    }
    assert_eq!(looked, 6);
}

#[test]
fn mips_are_made_one_from_the_other() {
    let mut world = World::new();
    let desc = ResourceDesc {
        mips: 4,
        flags: F::ALLOW_UNORDERED_ACCESS,
        ..ResourceDesc::texture("chain", 1 << 30, (8, 8))
    };
    world.device.add_resource(30, desc.with_packed_bytes()).unwrap();
    let of_mip = |mip, syncs: &str, accesses: &str, layouts: (&'static str, &'static str)| {
        textures(vec![TextureBarrier {
            subresources: SubresourceRange::one(mip),
            ..texture(30, syncs, accesses, layouts)
        }])
    };
    let mut packets = vec![
        change(
            30,
            "NONE -> COMPUTE_SHADING",
            "NO_ACCESS -> UNORDERED_ACCESS",
            ("UNDEFINED", "UNORDERED_ACCESS"),
        ),
        work(WorkKind::Dispatch, vec![Use::subresource(30, access("UNORDERED_ACCESS"), 0)]),
    ];
    for mip in 1..4 {
        let read = ("UNORDERED_ACCESS", "SHADER_RESOURCE");
        let accesses = "UNORDERED_ACCESS -> SHADER_RESOURCE";
        packets.push(of_mip(mip - 1, "COMPUTE_SHADING -> COMPUTE_SHADING", accesses, read));
        let uses = vec![
            Use::subresource(30, access("SHADER_RESOURCE"), mip - 1),
            Use::subresource(30, access("UNORDERED_ACCESS"), mip),
        ];
        packets.push(work(WorkKind::Dispatch, uses));
    }
    assert_no_messages(&mut world, &packets);
    let layouts: Vec<L> = (0..4).map(|mip| world.device.layout(30, mip)).collect();
    assert_eq!(layouts, [L::SHADER_RESOURCE, L::SHADER_RESOURCE, L::SHADER_RESOURCE, L::UNORDERED_ACCESS]);
}

#[test]
fn a_copy_queue_uploads_and_a_direct_queue_draws() {
    let mut world = World::new();
    let upload = [
        work(WorkKind::Copy, vec![range(UPLOAD, "COPY_SOURCE", 0, 1024), of(TEXTURE, "COPY_DEST")]),
        work(WorkKind::Copy, vec![range(UPLOAD, "COPY_SOURCE", 1024, 64), range(BUFFER, "COPY_DEST", 0, 64)]),
    ];
    assert_no_messages_on(&mut world, QueueType::Copy, &upload);
    assert_no_messages(&mut world, &[draw(vec![of(BUFFER, "VERTEX_BUFFER"), pixel(TEXTURE)])]);
}

#[test]
fn a_split_barrier_has_work_between_its_ends() {
    let mut world = frame_world();
    let to_target =
        change(COLOR, "NONE -> RENDER_TARGET", "NO_ACCESS -> RENDER_TARGET", ("UNDEFINED", "RENDER_TARGET"));
    let (accesses, layouts) = ("RENDER_TARGET -> SHADER_RESOURCE", ("RENDER_TARGET", "SHADER_RESOURCE"));
    let packets = [
        to_target,
        draw(vec![of(COLOR, "RENDER_TARGET")]),
        change(COLOR, "RENDER_TARGET -> SPLIT", accesses, layouts),
        uses(WorkKind::Copy, BUFFER, "COPY_DEST"),
        change(COLOR, "SPLIT -> PIXEL_SHADING", accesses, layouts),
        draw(vec![pixel(COLOR)]),
    ];
    assert_no_messages(&mut world, &packets);
}

#[test]
fn one_memory_is_two_textures_in_turn() {
    let mut world = frame_world();
    let alias = |before: u32, after: u32| {
        let off = texture(
            before,
            "RENDER_TARGET -> RENDER_TARGET",
            "RENDER_TARGET -> NO_ACCESS",
            ("RENDER_TARGET", "UNDEFINED"),
        );
        let on = texture(
            after,
            "RENDER_TARGET -> RENDER_TARGET",
            "NO_ACCESS -> RENDER_TARGET",
            ("UNDEFINED", "RENDER_TARGET"),
        );
        textures(vec![off, TextureBarrier { flags: TextureFlags::DISCARD, ..on }])
    };
    let first =
        change(COLOR, "NONE -> RENDER_TARGET", "NO_ACCESS -> RENDER_TARGET", ("UNDEFINED", "RENDER_TARGET"));
    let target = |id| draw(vec![of(id, "RENDER_TARGET")]);
    assert_no_messages(
        &mut world,
        &[first.clone(), target(COLOR), alias(COLOR, BACK), target(BACK), alias(BACK, COLOR), target(COLOR)],
    );
    // Without the barrier back, the first one stays deactivated.
    let found = rules(&world.submit(&[first, target(COLOR), alias(COLOR, TEXTURE), target(COLOR)]));
    assert!(found.contains(&Rule::R073) || found.contains(&Rule::R030), "{found:?}");
}

#[test]
fn acceleration_structures_are_built_and_traced() {
    let mut world = World::new();
    let scratch =
        ResourceDesc { flags: F::ALLOW_UNORDERED_ACCESS, ..ResourceDesc::buffer("scratch", 1 << 30, 4096) };
    world.device.add_resource(40, scratch).unwrap();
    let image =
        ResourceDesc { flags: F::ALLOW_UNORDERED_ACCESS, ..ResourceDesc::texture("image", 1 << 31, (8, 8)) };
    world.device.add_resource(41, image).unwrap();
    let built = buffer_words(RTAS, "BUILD_RTAS -> RAYTRACING", "RTAS_WRITE -> RTAS_READ");
    let packets = [
        change(41, "NONE -> RAYTRACING", "NO_ACCESS -> UNORDERED_ACCESS", ("UNDEFINED", "UNORDERED_ACCESS")),
        work(
            WorkKind::BuildRtas,
            vec![of(BUFFER, "SHADER_RESOURCE"), of(40, "UNORDERED_ACCESS"), of(RTAS, "RTAS_WRITE")],
        ),
        Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![built])] },
        work(WorkKind::DispatchRays, vec![of(RTAS, "RTAS_READ"), of(41, "UNORDERED_ACCESS")]),
    ];
    assert_no_messages(&mut world, &packets);
    assert_eq!(rules(&world.submit(&[packets[1].clone(), packets[3].clone()])), [Rule::R091]);
}

#[test]
fn arguments_are_counted_and_then_fetched() {
    let mut world = World::new();
    let packets = [
        uses(WorkKind::ClearUnorderedAccess, BUFFER, "UNORDERED_ACCESS"),
        buffer("CLEAR_UNORDERED_ACCESS_VIEW -> COMPUTE_SHADING", "UNORDERED_ACCESS -> UNORDERED_ACCESS"),
        uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS"),
        buffer("COMPUTE_SHADING -> EXECUTE_INDIRECT", "UNORDERED_ACCESS -> INDIRECT_ARGUMENT"),
        uses(WorkKind::ExecuteIndirect, BUFFER, "INDIRECT_ARGUMENT"),
    ];
    assert_no_messages(&mut world, &packets);
}

#[test]
fn compute_beside_graphics_reads_what_both_may() {
    let mut world = frame_world();
    let both = "DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE";
    let drawn = [
        change(COLOR, "NONE -> RENDER_TARGET", "NO_ACCESS -> RENDER_TARGET", ("UNDEFINED", "RENDER_TARGET")),
        draw(vec![of(COLOR, "RENDER_TARGET")]),
        change(COLOR, "RENDER_TARGET -> ALL", "RENDER_TARGET -> SHADER_RESOURCE", ("RENDER_TARGET", both)),
        draw(vec![pixel(COLOR)]),
    ];
    assert_no_messages(&mut world, &drawn);
    let reads = [uses(WorkKind::Dispatch, COLOR, "SHADER_RESOURCE")];
    assert_no_messages_on(&mut world, QueueType::Compute, &reads);
    assert_no_messages(&mut world, &[draw(vec![pixel(COLOR)])]);
}

#[test]
fn a_picture_is_decoded_and_shown() {
    let mut world = World::new();
    let bits = ResourceDesc { heap: HeapType::Default, ..ResourceDesc::buffer("bits", 1 << 30, 4096) };
    world.device.add_resource(50, bits).unwrap();
    let decoded = [
        change(
            BACK,
            "NONE -> VIDEO_DECODE",
            "NO_ACCESS -> VIDEO_DECODE_WRITE",
            ("COMMON", "VIDEO_DECODE_WRITE"),
        ),
        work(WorkKind::VideoDecode, vec![of(50, "VIDEO_DECODE_READ"), of(BACK, "VIDEO_DECODE_WRITE")]),
        change(
            BACK,
            "VIDEO_DECODE -> NONE",
            "VIDEO_DECODE_WRITE -> NO_ACCESS",
            ("VIDEO_DECODE_WRITE", "COMMON"),
        ),
    ];
    for _ in 0..2 {
        assert_no_messages_on(&mut world, QueueType::VideoDecode, &decoded);
        assert_no_messages(&mut world, &[draw(vec![pixel(BACK)])]);
    }
}
