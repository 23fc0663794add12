//! Uses by commands: heaps, regions, hazards, static data, asserts.

use covers::covers;

use crate::world::*;
use barriers::{
    Phase, Policy, Rule, Severity,
    policy::{FixedFunctionWrites, UnlistedFirstAccess},
};
use d3dkmt::isa::{
    ALL_SUBRESOURCES, BarrierLayout as L, LegacyState as T, Packet, QueueType, Use, WHOLE, WorkKind,
};

fn found(packets: &[Packet]) -> Vec<Rule> {
    rules(&World::new().submit(packets))
}

fn severity(packets: &[Packet], rule: Rule) -> Severity {
    the(&World::new().submit(packets), rule).severity
}

fn dispatch(names: &str, offset: u64, bytes: u64) -> Packet {
    work(WorkKind::Dispatch, vec![range(BUFFER, names, offset, bytes)])
}

#[test]
fn two_types_of_write_need_a_barrier() {
    covers!("BAR-076");
    let writes = |kind, access| uses(kind, BUFFER, access);
    let two = [writes(WorkKind::Copy, "COPY_DEST"), writes(WorkKind::Dispatch, "UNORDERED_ACCESS")];
    assert_eq!(severity(&two, Rule::R059), Severity::Error);
    let [first, second] = two;
    let between = buffer("COPY -> COMPUTE_SHADING", "COPY_DEST -> UNORDERED_ACCESS");
    assert_eq!(found(&[first, between, second]), []);
}

#[test]
fn unordered_writes_race_and_blended_ones_do_not() {
    covers!("BAR-077");
    let unordered = uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    assert_eq!(severity(&[unordered.clone(), unordered.clone()], Rule::R060), Severity::Hazard);
    let between = buffer("COMPUTE_SHADING -> COMPUTE_SHADING", "UNORDERED_ACCESS -> UNORDERED_ACCESS");
    assert_eq!(found(&[unordered.clone(), between, unordered.clone()]), []);
    let draw = uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET");
    assert_eq!(rules(&World::in_layout(L::RENDER_TARGET).submit(&[draw.clone(), draw])), []);
    // An unordered access with the read-only flag is no write.
    let mut reads = Use::whole(BUFFER, access("UNORDERED_ACCESS"));
    reads.flags = d3dkmt::isa::UseFlags::ONLY_READS;
    let reads = work(WorkKind::Dispatch, vec![reads]);
    assert_eq!(found(&[reads.clone(), reads]), []);
}

#[test]
fn a_read_and_a_write_of_different_regions_need_nothing() {
    covers!("BAR-078");
    assert_eq!(found(&[dispatch("UNORDERED_ACCESS", 0, 64), dispatch("SHADER_RESOURCE", 64, 64)]), []);
    assert_eq!(found(&[dispatch("SHADER_RESOURCE", 64, 64), dispatch("UNORDERED_ACCESS", 0, 64)]), []);
    assert_eq!(
        found(&[dispatch("UNORDERED_ACCESS", 0, 65), dispatch("SHADER_RESOURCE", 64, 64)]),
        [Rule::R091]
    );
    assert_eq!(
        found(&[dispatch("SHADER_RESOURCE", 64, 64), dispatch("UNORDERED_ACCESS", 0, 65)]),
        [Rule::R091]
    );
}

#[test]
fn two_writers_share_cache_lines_even_of_different_regions() {
    covers!("BAR-079");
    let two = [dispatch("UNORDERED_ACCESS", 0, 64), dispatch("UNORDERED_ACCESS", 64, 64)];
    assert_eq!(severity(&two, Rule::R062), Severity::Hazard);
}

#[test]
fn a_copy_inside_of_a_subresource_does_not_meet_itself() {
    covers!("BAR-080", "BAR-081");
    let copy = |id, to| {
        let uses = vec![range(id, "COPY_SOURCE", 0, 64), range(id, "COPY_DEST", to, 64)];
        World::new().submit(&[work(WorkKind::Copy, uses)])
    };
    for id in [TEXTURE, BUFFER] {
        assert_eq!(rules(&copy(id, 64)), []);
        let message = the(&copy(id, 63), Rule::R064);
        assert_eq!((message.id, message.severity), (Some(998), Severity::Error));
    }
}

#[test]
fn a_command_that_updates_in_place_does_not_race_with_itself() {
    let both = |kind, one: Use, other: Use| {
        let forward = World::new().submit(&[work(kind, vec![one, other])]);
        let backward = World::new().submit(&[work(kind, vec![other, one])]);
        assert_eq!(rules(&forward), rules(&backward));
        forward
    };
    let [reads, writes] = ["RTAS_READ", "RTAS_WRITE"].map(|name| Use::whole(RTAS, access(name)));
    assert_eq!(rules(&both(WorkKind::BuildRtas, reads, writes)), []);
    let writes = Use::whole(BUFFER, access("UNORDERED_ACCESS"));
    let reads = Use { flags: d3dkmt::isa::UseFlags::ONLY_READS, ..writes };
    assert_eq!(rules(&both(WorkKind::Dispatch, reads, writes)), []);
    let through_view = both(WorkKind::Dispatch, Use::whole(BUFFER, access("SHADER_RESOURCE")), writes);
    let text = the(&through_view, Rule::R091).text;
    assert!(text.ends_with("must not meet") && !text.contains("barrier"), "{text}");
}

#[test]
fn heaps_of_the_cpu_have_few_uses() {
    covers!("BAR-083", "BAR-084");
    let copy = |id, access| World::new().submit(&[uses(WorkKind::Copy, id, access)]);
    assert_eq!(the(&copy(UPLOAD, "COPY_DEST"), Rule::R066).id, Some(741));
    assert_eq!(rules(&copy(UPLOAD, "COPY_SOURCE")), []);
    assert_eq!(found(&[uses(WorkKind::Dispatch, UPLOAD, "UNORDERED_ACCESS")]), [Rule::R066]);
    for access in ["VERTEX_BUFFER", "CONSTANT_BUFFER", "SHADER_RESOURCE"] {
        assert_eq!(found(&[uses(WorkKind::Draw, UPLOAD, access)]), [], "{access}");
    }
    assert_eq!(rules(&copy(READBACK, "COPY_SOURCE")), [Rule::R067]);
    assert_eq!(rules(&copy(READBACK, "COPY_DEST")), []);
}

#[test]
fn a_submission_of_barriers_alone_is_worth_a_warning() {
    covers!("BAR-089");
    let barrier = move_to("ALL -> ALL", "COPY_DEST -> COPY_SOURCE", ("COMMON", "COPY_SOURCE"));
    let message = the(&World::new().submit(std::slice::from_ref(&barrier)), Rule::R072);
    assert_eq!((message.id, message.severity), (Some(1356), Severity::Warning));
    let latch = move_to("NONE -> NONE", "NO_ACCESS -> NO_ACCESS", ("COMMON", "COPY_SOURCE"));
    assert_eq!(World::new().submit(&[latch]).messages.total(), 0, "layouts alone are what it is for");
    let copy = uses(WorkKind::Copy, TEXTURE, "COPY_SOURCE");
    assert_eq!(World::new().submit(&[barrier, copy]).messages.count(Rule::R072), 0);
}

#[test]
fn deactivated_resource_is_not_used() {
    covers!("BAR-090");
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let off = buffer("COPY -> INDEX_INPUT", "COPY_DEST -> NO_ACCESS");
    let on = buffer("INDEX_INPUT -> COPY", "NO_ACCESS -> COPY_DEST");
    assert_eq!(found(&[copy.clone(), off.clone(), copy.clone()]), [Rule::R073]);
    assert_eq!(found(&[copy.clone(), off.clone(), on, copy.clone()]), []);
    let wrong = buffer("ALL -> COPY", "COPY_DEST -> COPY_DEST");
    assert_eq!(found(&[copy, off, wrong]), [Rule::R048]);
}

fn asserts(world: &mut World, id: u32, names: &str) -> Vec<Rule> {
    let access = access(names);
    rules(&world.submit(&[Packet::AssertResourceAccess { resource: id, subresource: 0, access }]))
}

#[test]
fn an_assert_of_access_looks_at_layout_and_flags() {
    covers!("BAR-091");
    assert_eq!(asserts(&mut World::new(), TEXTURE, "RENDER_TARGET"), [Rule::R074]);
    assert_eq!(asserts(&mut World::new(), TEXTURE, "COPY_SOURCE"), []);
    assert_eq!(asserts(&mut World::in_layout(L::RENDER_TARGET), TEXTURE, "RENDER_TARGET"), []);
    assert_eq!(asserts(&mut World::new(), BUFFER, "UNORDERED_ACCESS"), []);
    let mut world = World::new();
    let plain = d3dkmt::isa::ResourceDesc::buffer("plain", 1 << 30, 64);
    world.device.add_resource(50, plain).unwrap();
    assert_eq!(asserts(&mut world, 50, "UNORDERED_ACCESS"), [Rule::R074]);
    assert_eq!(asserts(&mut world, 50, "RTAS_WRITE"), [Rule::R074]);
    assert_eq!(asserts(&mut World::new(), RTAS, "RTAS_WRITE"), []);
    assert_eq!(asserts(&mut World::new(), UPLOAD, "COPY_DEST"), [Rule::R074]);
    assert_eq!(asserts(&mut World::new(), UPLOAD, "COPY_SOURCE"), []);
    assert_eq!(asserts(&mut World::new(), READBACK, "COPY_SOURCE"), [Rule::R074]);
    // An unflushed write does not matter to an assert.
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let read =
        Packet::AssertResourceAccess { resource: BUFFER, subresource: 0, access: access("VERTEX_BUFFER") };
    assert_eq!(found(&[copy, read]), []);
}

#[test]
fn an_assert_of_a_layout_is_of_textures() {
    covers!("BAR-092");
    let asserted =
        |resource, layout| [Packet::AssertTextureLayout { resource, subresource: ALL_SUBRESOURCES, layout }];
    assert_eq!(found(&asserted(TEXTURE, L::COMMON)), []);
    let message = the(&World::new().submit(&asserted(TEXTURE, L::COPY_DEST)), Rule::R075);
    assert_eq!(message.text, "texture \"albedo\" (1) is said to be in COPY_DEST; it is in COMMON");
    assert_eq!(found(&asserted(BUFFER, L::COPY_DEST)), [], "buffers have none");
    let moved = move_to("ALL -> ALL", "COMMON -> COPY_DEST", ("COMMON", "COPY_DEST"));
    let [assert] = asserted(TEXTURE, L::COMMON);
    assert_eq!(the(&World::new().submit(&[moved, assert]), Rule::R075).phase, Phase::Record);
}

#[test]
fn asserted_resource_exists_until_the_assert_has_run() {
    covers!("BAR-093");
    let mut world = World::new();
    let assert =
        |resource| Packet::AssertResourceAccess { resource, subresource: 0, access: access("COPY_SOURCE") };
    let bytes = d3dkmt::isa::encode(&[assert(TEXTURE), assert(BUFFER)]);
    let packets = d3dkmt::isa::Reader::new(&bytes).unwrap().unwrap();
    let evicted = desc(TEXTURE).gpu_address;
    let mut asserts_without = |evicted: Option<u64>| {
        let is_resident = |desc: &d3dkmt::isa::ResourceDesc| Some(desc.gpu_address) != evicted;
        world.device.begin(QueueType::Direct, &packets, &is_resident).unwrap()
    };
    let message = the(&asserts_without(Some(evicted)), Rule::R076);
    assert_eq!((message.resource, message.severity), (Some(TEXTURE), Severity::Error));
    assert_eq!(rules(&asserts_without(None)), []);
    world.device.remove_resource(TEXTURE);
    assert_eq!(asserts(&mut world, TEXTURE, "COPY_SOURCE"), [Rule::R076]);
}

fn root(kind: WorkKind, parameter: u32) -> Packet {
    let uses = vec![Use::whole(BUFFER, access("SHADER_RESOURCE"))];
    let kernel = d3dkmt::isa::Kernel::None;
    Packet::Work { kind, kernel, operand: parameter, duration_ns: 1, uses }
}

#[test]
fn static_data_is_there_when_the_root_call_runs() {
    covers!("BAR-094");
    let barrier = |after: &str| buffer(&format!("COPY -> {after}"), "COPY_DEST -> SHADER_RESOURCE");
    let graphics = |after| found(&[barrier(after), root(WorkKind::SetGraphicsRoot, 0)]);
    assert_eq!(graphics("DRAW"), []);
    assert_eq!(graphics("ALL"), []);
    assert_eq!(graphics("PIXEL_SHADING"), [Rule::R077], "the stage alone is too late");
    let compute = |after| found(&[barrier(after), root(WorkKind::SetComputeRoot, 0)]);
    assert_eq!(compute("COMPUTE_SHADING"), []);
    assert_eq!(compute("PIXEL_SHADING"), [Rule::R077]);
    // After the root call it is too late for a draw, unless the parameter is set again.
    let draw = work(WorkKind::Draw, vec![]);
    let late = [root(WorkKind::SetGraphicsRoot, 0), barrier("DRAW"), draw.clone()];
    let message = the(&World::new().submit(&late), Rule::R077);
    assert!(message.text.contains("the barrier of command 1 came after that"), "{message}");
    assert_eq!(found(&late[..2]), [], "nobody reads it any more");
    assert_eq!(found(&[late[0].clone(), draw.clone(), barrier("DRAW")]), [], "nor then");
    assert_eq!(found(&[late[0].clone(), barrier("DRAW"), work(WorkKind::Dispatch, vec![])]), []);
    let mesh = work(WorkKind::DispatchMesh, vec![]);
    assert_eq!(found(&[late[0].clone(), barrier("DRAW"), mesh]), [Rule::R077]);
    let kernel = d3dkmt::isa::Kernel::None;
    let uses = vec![Use::whole(UPLOAD, access("SHADER_RESOURCE"))];
    let other = Packet::Work { kind: WorkKind::SetGraphicsRoot, kernel, operand: 0, duration_ns: 1, uses };
    assert_eq!(
        found(&[root(WorkKind::SetGraphicsRoot, 0), other.clone(), barrier("DRAW"), draw.clone()]),
        []
    );
    assert_eq!(found(&[root(WorkKind::SetGraphicsRoot, 1), other, barrier("DRAW"), draw]), [Rule::R077]);
}

#[test]
fn a_buffer_needs_nothing_between_submissions() {
    covers!("BAR-107");
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, BUFFER, "COPY_DEST")])), []);
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER")])), []);
}

#[test]
fn two_lists_of_one_submission_are_one_scope() {
    covers!("BAR-108");
    let packets = [
        list("upload"),
        uses(WorkKind::Copy, BUFFER, "COPY_DEST"),
        list("draw"),
        uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER"),
    ];
    let message = the(&World::new().submit(&packets), Rule::R091);
    assert_eq!((message.severity, message.phase), (Severity::Hazard, Phase::Submission));
    assert_eq!(
        message.text,
        "Draw touches buffer \"vertices\" (4) by VERTEX_BUFFER after command 0 of list 0 did by COPY_DEST, with no \
         barrier between them; one of COPY -> VERTEX_SHADING, COPY_DEST -> VERTEX_BUFFER would order them"
    );
}

#[test]
fn writes_of_fixed_functions_are_a_switch() {
    let draw = uses(WorkKind::Draw, TEXTURE, "DEPTH_STENCIL_WRITE");
    let twice = |policy| {
        let mut world = World::policy(policy);
        let layouts = ("UNDEFINED", "DEPTH_STENCIL_WRITE");
        world.submit(&[move_to("NONE -> NONE", "NO_ACCESS -> NO_ACCESS", layouts)]);
        rules(&world.submit(&[draw.clone(), draw.clone()]))
    };
    assert_eq!(twice(Policy::default()), []);
    let literal = Policy { fixed_function_writes: FixedFunctionWrites::NeedBarrier, ..Policy::default() };
    assert_eq!(twice(literal), [Rule::R060]);
    let output = uses(WorkKind::Draw, BUFFER, "STREAM_OUTPUT");
    assert_eq!(found(&[output.clone(), output.clone()]), []);
    assert_eq!(rules(&World::policy(literal).submit(&[output.clone(), output])), [Rule::R060]);
}

/// Two copies or resolves to one place, and to two places, with a legacy state and without.
#[test]
fn copies_and_resolves_run_one_after_the_other() {
    let kinds =
        [(WorkKind::Copy, T::COPY_DEST, "COPY_DEST"), (WorkKind::Resolve, T::RESOLVE_DEST, "RESOLVE_DEST")];
    let literal = Policy { fixed_function_writes: FixedFunctionWrites::NeedBarrier, ..Policy::default() };
    for (kind, state, access) in kinds {
        let write = |offset| work(kind, vec![range(BUFFER, access, offset, 64)]);
        let to = legacy(transition(BUFFER, T::COMMON, state));
        for (offset, rule) in [(0, Rule::R060), (64, Rule::R062)] {
            let two = [write(0), write(offset)];
            let in_state = [to.clone(), write(0), write(offset)];
            assert_eq!(found(&two), []);
            assert_eq!(found(&in_state), []);
            assert_eq!(rules(&World::policy(literal).submit(&two)), [rule], "word for word");
            assert_eq!(rules(&World::policy(literal).submit(&in_state)), [], "no barrier could be there");
        }
        let reads = work(WorkKind::Copy, vec![range(BUFFER, "COPY_SOURCE", 0, 64)]);
        assert_eq!(found(&[write(0), reads]), [Rule::R091]);
    }
}

#[test]
fn the_first_use_of_an_acceleration_structure_is_a_switch() {
    let rays = [uses(WorkKind::DispatchRays, RTAS, "RTAS_READ")];
    assert_eq!(found(&rays), []);
    let decode = [uses(WorkKind::VideoDecode, BUFFER, "VIDEO_DECODE_READ")];
    assert_eq!(rules(&World::new().submit_to(QueueType::VideoDecode, &decode)), []);
    let strict = Policy { unlisted_first_access: UnlistedFirstAccess::NeedsBarrier, ..Policy::default() };
    assert_eq!(rules(&World::policy(strict).submit(&rays)), [Rule::R058]);
    assert_eq!(rules(&World::policy(strict).submit_to(QueueType::VideoDecode, &decode)), [Rule::R058]);
    assert_eq!(rules(&World::policy(strict).submit(&[uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER")])), []);
}

#[test]
fn a_command_that_cannot_be_says_why() {
    let text = |packets: &[Packet]| the(&World::new().submit(packets), Rule::Command).text;
    assert_eq!(
        text(&[uses(WorkKind::Copy, BUFFER, "VERTEX_BUFFER")]),
        "Copy cannot use buffer \"vertices\" (4) by VERTEX_BUFFER; name one access that the command has"
    );
    let both = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE | COPY_DEST");
    assert!(text(&[both]).contains("name one access"));
    assert!(text(&[dispatch("SHADER_RESOURCE", 4000, 97)]).contains("it has 0x1000"));
    assert!(text(&[dispatch("SHADER_RESOURCE", 8, u64::MAX - 3)]).contains("it has 0x1000"));
    assert_eq!(found(&[dispatch("SHADER_RESOURCE", 8, WHOLE)]), [], "up to the end");
    let mut several = Use::whole(TEXTURE, access("COPY_DEST"));
    several.bytes = 16;
    assert!(text(&[work(WorkKind::Copy, vec![several])]).contains("must be of all their bytes"));
    let outside = Use::subresource(TEXTURE, access("COPY_DEST"), 4);
    assert!(text(&[work(WorkKind::Copy, vec![outside])]).contains("it has 4"));
    assert_eq!(found(&[uses(WorkKind::Copy, 99, "COPY_DEST")]), [Rule::R005]);
}

#[test]
fn a_queue_runs_what_it_can() {
    let on = |queue, kind, access| rules(&World::new().submit_to(queue, &[uses(kind, BUFFER, access)]));
    assert_eq!(on(QueueType::Compute, WorkKind::Draw, "VERTEX_BUFFER"), [Rule::R040]);
    assert_eq!(on(QueueType::Compute, WorkKind::Draw, "SHADER_RESOURCE"), [Rule::R040]);
    assert_eq!(on(QueueType::Compute, WorkKind::Dispatch, "SHADER_RESOURCE"), []);
    assert_eq!(on(QueueType::Copy, WorkKind::Dispatch, "UNORDERED_ACCESS"), [Rule::R040]);
    assert_eq!(on(QueueType::Copy, WorkKind::Copy, "COPY_DEST"), []);
    assert_eq!(on(QueueType::VideoDecode, WorkKind::VideoDecode, "VIDEO_DECODE_READ"), []);
    assert_eq!(on(QueueType::VideoDecode, WorkKind::Copy, "COPY_DEST"), [Rule::R087]);
    let wrong = Packet::BeginList {
        queue: QueueType::Compute,
        flags: d3dkmt::isa::ListFlags::empty(),
        name: "async".into(),
    };
    let message = the(&World::new().submit(&[wrong]), Rule::Command);
    assert_eq!(message.text, "a Compute list cannot run on a Direct queue; record it as Direct");
}

#[test]
fn a_depth_test_reads_where_depth_is_written() {
    let layouts = ("UNDEFINED", "DEPTH_STENCIL_WRITE");
    let write = move_to("NONE -> DEPTH_STENCIL", "NO_ACCESS -> DEPTH_STENCIL_WRITE", layouts);
    let packets = [
        write,
        uses(WorkKind::Draw, TEXTURE, "DEPTH_STENCIL_WRITE"),
        uses(WorkKind::Draw, TEXTURE, "DEPTH_STENCIL_READ"),
    ];
    assert_eq!(found(&packets), []);
    let literal = Policy { fixed_function_writes: FixedFunctionWrites::NeedBarrier, ..Policy::default() };
    assert_eq!(rules(&World::policy(literal).submit(&packets)), [Rule::R048, Rule::R091]);
}
