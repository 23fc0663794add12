//! Rules about a single barrier that the cross product does not cover: groups, ranges, unknown bits.

use covers::covers;

use crate::world::*;
use barriers::{Capabilities, Device, Policy, Rule, Severity, policy::InlineRayQuery};
use d3dkmt::isa::{
    Barrier, BarrierAccess, BarrierGroup, BarrierLayout as L, BarrierSync, BufferBarrier, ListFlags, Packet,
    QueueType, RangedBarrier, RangedFlags, ResourceDesc, SubresourceRange, TextureBarrier, TextureFlags,
    WorkKind,
};

const ALL: &str = "ALL -> ALL";
const COPIED: &str = "COPY_DEST -> SHADER_RESOURCE";

fn usual() -> TextureBarrier {
    texture(TEXTURE, ALL, COPIED, ("COMMON", "SHADER_RESOURCE"))
}

fn found(packets: &[Packet]) -> Vec<Rule> {
    rules(&World::new().submit(packets))
}

#[test]
fn without_enhanced_barriers_there_is_neither_a_barrier_nor_an_initial_layout() {
    covers!("BAR-018");
    let capabilities = Capabilities { enhanced_barriers: false, ..Capabilities::default() };
    let mut world = World::with(capabilities, Policy::default());
    let message = the(&world.submit(&[textures(vec![usual()])]), Rule::R001);
    assert_eq!((message.id, message.severity), (Some(1343), Severity::Error));
    let layout = ResourceDesc { initial_layout: L::RENDER_TARGET, ..desc(BACK) };
    assert_eq!(world.device.add_resource(90, layout).unwrap_err().rule, Rule::R001);
    assert_eq!(World::new().device.add_resource(90, layout), Ok(()));
    assert_eq!(found(&[textures(vec![usual()])]), []);
}

#[test]
fn a_bundle_has_no_barriers() {
    covers!("BAR-019");
    let begin = |flags| Packet::BeginList { queue: QueueType::Direct, flags, name: "bundle".into() };
    let barrier = textures(vec![usual()]);
    assert_eq!(found(&[begin(ListFlags::BUNDLE), barrier.clone()]), [Rule::R002]);
    assert_eq!(found(&[begin(ListFlags::empty()), barrier]), []);
}

#[test]
fn no_groups_and_empty_groups_are_worth_a_warning() {
    covers!("BAR-020");
    let outcome = World::new().submit(&[Packet::Barrier { groups: vec![] }]);
    let message = the(&outcome, Rule::R003);
    assert_eq!((message.id, message.severity), (Some(954), Severity::Warning));
    let groups = vec![BarrierGroup::Global(vec![]), BarrierGroup::Buffer(vec![])];
    assert_eq!(found(&[Packet::Barrier { groups }]), [Rule::R003, Rule::R003]);
}

#[test]
fn there_are_four_types_of_groups() {
    covers!("BAR-021");
    let unknown = vec![BarrierGroup::Unknown { kind: 4, barriers: 1 }];
    let outcome = World::new().submit(&[Packet::Barrier { groups: unknown }]);
    assert_eq!(the(&outcome, Rule::R004).id, Some(1335));
    let flags = RangedFlags::ACQUIRE;
    let barrier = words("COPY -> COPY", "COPY_DEST -> COPY_SOURCE");
    let ranged = RangedBarrier { barrier, resource: BUFFER, flags, offset: 0, bytes: 64 };
    let packet = [Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![ranged])] }];
    assert_eq!(found(&packet), []);
}

#[test]
fn a_barrier_of_no_resource_is_an_error() {
    covers!("BAR-022");
    let null = TextureBarrier { resource: 0, ..usual() };
    let message = the(&World::new().submit(&[textures(vec![null])]), Rule::R005);
    assert!(message.text.contains("NULL"), "{message}");
    let groups =
        vec![BarrierGroup::Buffer(vec![BufferBarrier { resource: 99, ..buffer_words(BUFFER, ALL, COPIED) }])];
    assert_eq!(found(&[Packet::Barrier { groups }]), [Rule::R005]);
}

#[test]
fn the_type_of_barrier_must_fit_the_resource() {
    covers!("BAR-023");
    let outcome = World::new().submit(&[textures(vec![TextureBarrier { resource: BUFFER, ..usual() }])]);
    let message = the(&outcome, Rule::R006);
    assert_eq!(message.id, Some(1335));
    assert_eq!(message.text, "a texture barrier names buffer \"vertices\" (4); use a buffer barrier");
    let groups = vec![BarrierGroup::Buffer(vec![buffer_words(TEXTURE, ALL, COPIED)])];
    assert_eq!(found(&[Packet::Barrier { groups }]), [Rule::R006]);
}

fn of(subresources: SubresourceRange) -> Vec<Rule> {
    found(&[textures(vec![TextureBarrier { subresources, ..usual() }])])
}

#[test]
fn a_range_stays_inside_of_the_texture() {
    covers!("BAR-024");
    let all =
        SubresourceRange { first_mip: 0, mips: 2, first_slice: 0, slices: 2, first_plane: 0, planes: 1 };
    assert_eq!(of(all), []);
    for outside in [
        SubresourceRange { mips: 3, ..all },
        SubresourceRange { first_mip: 1, ..all },
        SubresourceRange { first_mip: u32::MAX, ..all },
        SubresourceRange { first_slice: 1, ..all },
        SubresourceRange { slices: u32::MAX, ..all },
        SubresourceRange { first_plane: 1, ..all },
        SubresourceRange { planes: 0, ..all },
        SubresourceRange::one(4),
    ] {
        assert_eq!(of(outside), [Rule::R007], "{outside:?}");
    }
    let outcome = World::new()
        .submit(&[textures(vec![TextureBarrier { subresources: SubresourceRange::one(4), ..usual() }])]);
    assert_eq!(the(&outcome, Rule::R007).id, Some(1336));
}

#[test]
fn without_mips_a_range_is_one_index_or_everything_and_the_rest_does_not_count() {
    covers!("BAR-025", "BAR-026");
    let garbage = SubresourceRange {
        first_slice: 77,
        slices: 78,
        first_plane: 79,
        planes: 80,
        ..SubresourceRange::ALL
    };
    assert_eq!(of(garbage), []);
    let mut world = World::new();
    let to = |range| textures(vec![TextureBarrier { subresources: range, ..usual() }]);
    world.submit(&[to(SubresourceRange { first_mip: 3, ..garbage })]);
    let layouts = (0..4).map(|index| world.device.layout(TEXTURE, index));
    assert_eq!(layouts.collect::<Vec<_>>(), [L::COMMON, L::COMMON, L::COMMON, L::SHADER_RESOURCE]);
    let mut world = World::new();
    world.submit(&[to(garbage)]);
    assert_eq!(world.device.layout(TEXTURE, 3), L::SHADER_RESOURCE);
    assert_eq!(world.device.layout(TEXTURE, 0), L::SHADER_RESOURCE);
}

#[test]
fn a_buffer_barrier_is_of_the_whole_buffer() {
    covers!("BAR-027");
    let of = |offset, bytes| {
        let buffer = BufferBarrier { offset, bytes, ..buffer_words(BUFFER, ALL, COPIED) };
        World::new().submit(&[Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![buffer])] }])
    };
    assert_eq!(rules(&of(0, u64::MAX)), []);
    assert_eq!(rules(&of(0, 4096)), [], "its exact size");
    assert_eq!(rules(&of(0, 4095)), [Rule::R010]);
    assert_eq!(the(&of(16, 4080), Rule::R010).id, Some(1340));
}

#[test]
fn bits_that_are_not_defined_are_named() {
    covers!("BAR-028", "BAR-029");
    let message_of = |rule, change: &dyn Fn(&mut Barrier)| {
        let mut wrong = usual();
        change(&mut wrong.barrier);
        the(&World::new().submit(&[textures(vec![wrong])]), rule)
    };
    for bit in [0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x200_0000, 0x4000_0000] {
        let sync = BarrierSync::from_bits_retain(bit);
        for message in [
            message_of(Rule::R011, &|barrier| barrier.sync_before |= sync),
            message_of(Rule::R011, &|barrier| barrier.sync_after |= sync),
        ] {
            assert_eq!(message.id, Some(1333));
            assert!(message.text.contains(&format!("{bit:#x}")), "{message}");
        }
    }
    for bit in [0x80_0000, 0x2000_0000] {
        let access = BarrierAccess::from_bits_retain(bit);
        for message in [
            message_of(Rule::R012, &|barrier| barrier.access_before |= access),
            message_of(Rule::R012, &|barrier| barrier.access_after |= access),
        ] {
            assert_eq!(message.id, Some(1417));
            assert!(message.text.contains(&format!("{bit:#x}")), "{message}");
        }
    }
}

#[test]
fn a_layout_that_no_application_may_name_removes_the_list() {
    covers!("BAR-030");
    for layout in [L::LEGACY_COPY_DEST, L::LEGACY_PIXEL_SHADER_RESOURCE, L(32), L(0xFFFF_FFFE)] {
        let mut world = World::new();
        let bad = TextureBarrier { layout_after: layout, ..usual() };
        let packets = [
            list("good"),
            move_to(ALL, "COMMON -> COPY_SOURCE", ("COMMON", "COPY_SOURCE")),
            list("bad"),
            move_to(ALL, "COPY_SOURCE -> COPY_DEST", ("COPY_SOURCE", "COPY_DEST")),
            textures(vec![bad]),
        ];
        let outcome = world.submit(&packets);
        let message = the(&outcome, Rule::R013);
        assert_eq!((message.id, message.severity), (Some(1341), Severity::Removed));
        assert_eq!((message.place.list, message.place.command), (1, 1));
        assert_eq!(outcome.dropped, [1]);
        assert_eq!(world.device.layout(TEXTURE, 0), L::COPY_SOURCE, "nothing of the second list has run");
    }
    assert_eq!(World::new().submit(&[textures(vec![usual()])]).dropped, []);
}

#[test]
fn split_stands_alone() {
    covers!("BAR-031");
    let outcome =
        World::new().submit(&[move_to("ALL -> SPLIT | COPY", COPIED, ("COMMON", "SHADER_RESOURCE"))]);
    let message = the(&outcome, Rule::R014);
    assert_eq!(message.id, Some(1333));
    assert!(message.text.contains("COPY"), "{message}");
    let before =
        World::new().submit(&[move_to("SPLIT | COPY -> ALL", COPIED, ("COMMON", "SHADER_RESOURCE"))]);
    assert!(the(&before, Rule::R014).text.starts_with("SyncBefore"));
}

#[test]
fn before_none_nothing_was_accessed_and_anything_may_be_after() {
    covers!("BAR-034");
    let after =
        |access| move_to("NONE -> ALL", &format!("NO_ACCESS -> {access}"), ("UNDEFINED", "COPY_DEST"));
    assert_eq!(found(&[after("COPY_DEST")]), []);
    assert_eq!(found(&[after("NO_ACCESS")]), []);
}

#[test]
fn no_access_stands_alone() {
    covers!("BAR-036");
    let outcome = World::new().submit(&[buffer(ALL, "COPY_DEST -> NO_ACCESS | COPY_SOURCE")]);
    assert_eq!(the(&outcome, Rule::R019).id, Some(1332));
    let before = World::new().submit(&[buffer(ALL, "NO_ACCESS | COPY_DEST -> COPY_SOURCE")]);
    assert!(the(&before, Rule::R019).text.starts_with("AccessBefore"));
    assert_eq!(found(&[buffer(ALL, "NO_ACCESS -> COPY_SOURCE")]), []);
}

#[test]
fn an_access_before_of_common_is_worth_a_warning() {
    covers!("BAR-038");
    let outcome = World::new().submit(&[buffer(ALL, "COMMON -> COPY_SOURCE")]);
    let message = the(&outcome, Rule::R021);
    assert_eq!(message.severity, Severity::Warning);
    let outcome = World::new().submit(&[buffer(ALL, "COPY_DEST -> COMMON")]);
    assert_eq!(outcome.messages.count(Rule::R021), 0);
}

#[test]
fn a_copy_is_not_in_the_scope_of_compute_shading() {
    covers!("BAR-041");
    let outcome = World::new().submit(&[buffer("COMPUTE_SHADING -> ALL", "COPY_DEST -> COMMON")]);
    let message = the(&outcome, Rule::R022);
    assert_eq!((message.id, message.severity), (Some(1333), Severity::Error));
    assert_eq!(
        message.text,
        "AccessBefore COPY_DEST needs a sync of COPY on its side, or an umbrella of one; SyncBefore is COMPUTE_SHADING"
    );
}

#[test]
fn a_build_without_a_write_is_worth_a_warning() {
    covers!("BAR-045");
    let of = |accesses| {
        let groups =
            vec![BarrierGroup::Buffer(vec![buffer_words(RTAS, "BUILD_RTAS -> RAYTRACING", accesses)])];
        World::new().submit(&[Packet::Barrier { groups }])
    };
    assert_eq!(the(&of("RTAS_READ -> RTAS_READ"), Rule::R028).severity, Severity::Warning);
    assert_eq!(rules(&of("RTAS_WRITE -> RTAS_READ")), []);
}

#[test]
fn only_acceleration_structures_are_accessed_as_such() {
    covers!("BAR-046");
    let syncs = "BUILD_RTAS -> RAYTRACING";
    let of = |id| BarrierGroup::Buffer(vec![buffer_words(id, syncs, "RTAS_WRITE -> RTAS_READ")]);
    let outcome = World::new().submit(&[Packet::Barrier { groups: vec![of(BUFFER)] }]);
    assert_eq!(outcome.messages.count(Rule::R029), 2, "on both sides");
    assert_eq!(found(&[Packet::Barrier { groups: vec![of(RTAS)] }]), []);
    assert_eq!(found(&[uses(WorkKind::DispatchRays, BUFFER, "RTAS_READ")]), [Rule::R029]);
}

#[test]
fn a_discard_comes_from_nowhere_and_goes_anywhere() {
    covers!("BAR-050", "BAR-051");
    let of = |before: L, after: L| {
        let accesses = "NO_ACCESS -> COMMON";
        let flags = TextureFlags::DISCARD;
        World::new().submit(&[textures(vec![TextureBarrier {
            flags,
            ..texture(TEXTURE, "NONE -> ALL", accesses, (before, after))
        }])])
    };
    let message = the(&of(L::COMMON, L::RENDER_TARGET), Rule::R033);
    assert_eq!(message.id, Some(1436));
    for after in
        ["RENDER_TARGET", "DEPTH_STENCIL_WRITE", "UNORDERED_ACCESS", "COPY_DEST", "COMMON", "RESOLVE_DEST"]
    {
        assert_eq!(rules(&of(L::UNDEFINED, after.layout())), [], "{after}");
    }
}

#[test]
fn a_texture_barrier_has_one_flag() {
    covers!("BAR-052");
    let flags = TextureFlags::from_bits_retain(2);
    let outcome = World::new().submit(&[textures(vec![TextureBarrier { flags, ..usual() }])]);
    assert_eq!(the(&outcome, Rule::R035).id, Some(1436));
}

#[test]
fn the_global_bit_is_for_fences() {
    covers!("BAR-095");
    assert_eq!(found(&[global(ALL, "COPY_DEST -> GLOBAL")]), [Rule::R078]);
    assert_eq!(found(&[buffer(ALL, "GLOBAL | COPY_DEST -> COPY_SOURCE")]), [Rule::R078]);
}

#[test]
fn a_barrier_is_not_both_ends_of_a_split() {
    covers!("BAR-100");
    let outcome = World::new().submit(&[move_to("SPLIT -> SPLIT", COPIED, ("COMMON", "SHADER_RESOURCE"))]);
    assert_eq!(outcome.messages.count(Rule::R083), 1);
}

#[test]
fn a_global_barrier_is_not_split() {
    covers!("BAR-068");
    assert_eq!(found(&[global("COPY -> SPLIT", "COPY_DEST -> SHADER_RESOURCE")]), [Rule::R051]);
    assert_eq!(found(&[global("COPY -> DRAW", "COPY_DEST -> SHADER_RESOURCE")]), []);
}

#[test]
fn a_buffer_has_no_initial_layout() {
    covers!("BAR-085");
    let wrong = ResourceDesc { initial_layout: L::COMMON, ..desc(BUFFER) };
    let message = Device::default().add_resource(1, wrong).unwrap_err();
    assert_eq!((message.rule, message.id), (Rule::R068, Some(1342)));
    assert_eq!(Device::default().add_resource(1, desc(BUFFER)), Ok(()));
}

#[test]
fn an_inline_ray_query_is_a_switch() {
    let groups = vec![BarrierGroup::Buffer(vec![buffer_words(
        RTAS,
        "ALL -> PIXEL_SHADING",
        "RTAS_WRITE -> RTAS_READ",
    )])];
    let packets = [Packet::Barrier { groups }];
    let default = World::new().submit(&packets);
    assert_eq!(the(&default, Rule::R022).severity, Severity::Warning);
    assert_eq!(default.messages.at_least(Severity::Error), 0);
    let strict = Policy { inline_ray_query: InlineRayQuery::Refused, ..Policy::default() };
    assert_eq!(the(&World::policy(strict).submit(&packets), Rule::R022).severity, Severity::Error);
}

#[test]
fn a_message_says_where_and_what_would_be_right() {
    let packets = [
        list("shadow pass"),
        uses(WorkKind::Copy, BUFFER, "COPY_DEST"),
        buffer("COPY -> PIXEL_SHADING", "COPY_DEST -> VERTEX_BUFFER"),
    ];
    let message = the(&World::new().submit(&packets), Rule::R022);
    assert_eq!(
        message.to_string(),
        "R-022 error #1333: list 0 \"shadow pass\" command 1 barrier 0: AccessAfter VERTEX_BUFFER needs a sync of \
         VERTEX_SHADING on its side, or an umbrella of one; SyncAfter is PIXEL_SHADING"
    );
}

#[test]
fn rules_have_the_published_ids_and_severities() {
    let with_id = Rule::ALL.iter().filter_map(|rule| Some(format!("{}:{}", *rule as u8, rule.message_id()?)));
    assert_eq!(with_id.collect::<Vec<_>>(), IDS.split_whitespace().collect::<Vec<_>>());
    assert_eq!(Rule::ALL.len(), 109, "106 rules of barriers, 2 of fences, and commands that cannot be");
    for (number, rule) in Rule::ALL.iter().enumerate() {
        assert_eq!(*rule as usize, number);
        assert_eq!(rule.severity(), severity_of(*rule), "{rule}");
    }
    assert_eq!(Rule::R041.to_string(), "R-041");
}
