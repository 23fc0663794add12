//! Policies, where the published pages and the D3D12 specification differ: each with both values.

use covers::covers;

use crate::world::*;
use barriers::policy::{RtasWrite, SplitBarriers, SyncNoneAccess};
use barriers::{Policy, Rule, Severity};
use d3dkmt::isa::{
    BarrierGroup, Packet, QueueType, ScopeReading, SubresourceRange, TextureBarrier, WorkKind,
};

fn found(policy: Policy, packets: &[Packet]) -> Vec<Rule> {
    rules(&World::policy(policy).submit(packets))
}

fn reading(scope_reading: ScopeReading) -> Policy {
    Policy { scope_reading, ..Policy::default() }
}

#[test]
fn sync_before_none_is_about_one_access_or_the_other() {
    covers!("BAR-032", "BAR-034");
    let after = Policy { sync_none_access: SyncNoneAccess::After, ..Policy::default() };
    let first = |accesses| [buffer("NONE -> COPY", accesses)];
    // The page refuses what the specification permits, and vice versa.
    assert_eq!(found(Policy::default(), &first("NO_ACCESS -> COPY_DEST")), []);
    assert_eq!(found(after, &first("NO_ACCESS -> COPY_DEST")), [Rule::R015]);
    assert_eq!(found(Policy::default(), &first("COPY_SOURCE -> NO_ACCESS")), [Rule::R015]);
    assert_eq!(found(after, &first("COPY_SOURCE -> NO_ACCESS")), []);
    let text = the(&World::policy(after).submit(&first("NO_ACCESS -> COPY_DEST")), Rule::R015).text;
    assert!(text.starts_with("SyncBefore is NONE and AccessAfter is COPY_DEST"), "{text}");
    // Both apply SyncAfter NONE to AccessAfter and exempt fence barriers.
    for policy in [Policy::default(), after] {
        let last = [buffer("COPY -> NONE", "COPY_DEST -> COPY_SOURCE")];
        assert_eq!(found(policy, &last), [Rule::R016]);
        assert_eq!(found(policy, &[buffer("NONE -> NONE", "NO_ACCESS -> NO_ACCESS")]), []);
        let barriers = vec![buffer_words(BUFFER, "NONE -> COPY", "COPY_DEST -> COPY_SOURCE")];
        let groups = vec![BarrierGroup::Buffer(barriers)];
        let mut world = World::policy(policy);
        world.fence(true);
        world.device.fence_stored(FENCE, 1);
        assert_eq!(rules(&world.submit(&[Packet::WaitBarrier { fences: vec![value(1)], groups }])), []);
    }
}

#[test]
fn a_build_without_a_write_is_an_error_where_the_page_is_followed() {
    covers!("BAR-045");
    let required = Policy { rtas_write: RtasWrite::Required, ..Policy::default() };
    let of = |policy, syncs: &str, accesses: &str| {
        let barriers = vec![buffer_words(RTAS, syncs, accesses)];
        let groups = vec![BarrierGroup::Buffer(barriers)];
        let outcome = World::policy(policy).submit(&[Packet::Barrier { groups }]);
        let messages = outcome.messages.iter().filter(|message| message.rule == Rule::R028);
        messages.map(|message| message.severity).collect::<Vec<_>>()
    };
    for build in ["BUILD_RTAS", "COPY_RTAS"] {
        let syncs = format!("{build} -> RAYTRACING");
        let both = |accesses: &str| (of(Policy::default(), &syncs, accesses), of(required, &syncs, accesses));
        assert_eq!(both("RTAS_READ -> RTAS_READ"), (vec![Severity::Warning], vec![Severity::Error]));
        assert_eq!(both("COMMON -> RTAS_READ"), (vec![], vec![Severity::Error]));
        assert_eq!(both("NO_ACCESS -> RTAS_READ"), (vec![], vec![Severity::Error]));
        assert_eq!(both("RTAS_WRITE -> RTAS_READ"), (vec![], vec![]));
    }
    // Each side by itself.
    assert_eq!(of(required, "RAYTRACING -> BUILD_RTAS", "RTAS_READ -> RTAS_READ"), [Severity::Error]);
    assert_eq!(of(required, "BUILD_RTAS -> BUILD_RTAS", "RTAS_READ -> RTAS_READ"), [Severity::Error; 2]);
    assert_eq!(of(required, "RAYTRACING -> RAYTRACING", "RTAS_READ -> RTAS_READ"), []);
}

const TO: (&str, &str) = ("COMMON", "RENDER_TARGET");

/// A barrier of one mip of the texture.
fn of_mip(mip: u32, syncs: &str, accesses: &str, layouts: (&str, &str)) -> TextureBarrier {
    let subresources =
        SubresourceRange { first_mip: mip, mips: 1, first_slice: 0, slices: 1, first_plane: 0, planes: 1 };
    TextureBarrier { subresources, ..texture(TEXTURE, syncs, accesses, layouts) }
}

#[test]
fn another_subresource_comes_between_the_halves_of_a_split_or_does_not() {
    covers!("BAR-070");
    let by_resource = Policy { split_barriers: SplitBarriers::ByResource, ..Policy::default() };
    let begin = |mip| textures(vec![of_mip(mip, "COPY -> SPLIT", "COPY_DEST -> RENDER_TARGET", TO)]);
    let end = |mip| textures(vec![of_mip(mip, "SPLIT -> RENDER_TARGET", "COPY_DEST -> RENDER_TARGET", TO)]);
    let other =
        |mip| textures(vec![of_mip(mip, "COPY -> COPY", "COPY_DEST -> COPY_SOURCE", ("COMMON", "COMMON"))]);
    assert_eq!(found(Policy::default(), &[begin(0), other(1), end(0)]), []);
    assert_eq!(found(by_resource, &[begin(0), other(1), end(0)]), [Rule::R053]);
    assert_eq!(found(by_resource, &[begin(0), begin(1), end(0), end(1)]), [Rule::R053]);
    assert_eq!(found(by_resource, &[begin(0), end(0), other(1)]), []);
    // Other resources are never affected, and a barrier on the split subresource itself is reported once.
    let elsewhere = buffer("COPY -> VERTEX_SHADING", "COPY_DEST -> VERTEX_BUFFER");
    assert_eq!(found(by_resource, &[begin(0), elsewhere, end(0)]), []);
    for policy in [Policy::default(), by_resource] {
        let broken_rules = found(policy, &[begin(0), other(0)]);
        assert_eq!(broken_rules.iter().filter(|rule| **rule == Rule::R053).count(), 1, "{broken_rules:?}");
    }
    // Whether the begin is in the same list or in an earlier submission.
    assert_eq!(found(by_resource, &[begin(0), other(1)]), [Rule::R053]);
    let mut world = World::policy(by_resource);
    assert_eq!(rules(&world.submit(&[begin(0)])), []);
    assert_eq!(rules(&world.submit(&[other(1)])), [Rule::R053]);
}

#[test]
fn execute_indirect_is_the_fetch_of_its_arguments_or_all_of_it() {
    covers!("BAR-039");
    let execution = reading(ScopeReading { indirect_execution: true, ..ScopeReading::default() });
    let program = |syncs, kind| {
        let accesses = "UNORDERED_ACCESS -> COPY_SOURCE";
        [
            uses(kind, BUFFER, "UNORDERED_ACCESS"),
            buffer(syncs, accesses),
            uses(WorkKind::Copy, BUFFER, "COPY_SOURCE"),
        ]
    };
    let indirect = |syncs| program(syncs, WorkKind::ExecuteIndirect);
    assert_eq!(found(Policy::default(), &indirect("EXECUTE_INDIRECT -> COPY")), [Rule::R022, Rule::R027]);
    assert_eq!(found(execution, &indirect("EXECUTE_INDIRECT -> COPY")), []);
    // Its scopes as a draw and a dispatch remain, and so do those of other commands.
    for policy in [Policy::default(), execution] {
        assert_eq!(found(policy, &indirect("ALL_SHADING -> COPY")), []);
        assert_eq!(found(policy, &indirect("COMPUTE_SHADING -> COPY")), [Rule::R027]);
        let dispatch = program("EXECUTE_INDIRECT -> COPY", WorkKind::Dispatch);
        assert!(found(policy, &dispatch).contains(&Rule::R027));
        assert_eq!(found(policy, &program("COMPUTE_SHADING -> COPY", WorkKind::Dispatch)), []);
    }
    // SyncAfter blocks all of it.
    let after = |policy| {
        let barrier = buffer("COPY -> EXECUTE_INDIRECT", "COPY_DEST -> UNORDERED_ACCESS");
        let draw = uses(WorkKind::ExecuteIndirect, BUFFER, "UNORDERED_ACCESS");
        found(policy, &[uses(WorkKind::Copy, BUFFER, "COPY_DEST"), barrier, draw])
    };
    assert_eq!(after(Policy::default()), [Rule::R022, Rule::R027]);
    assert_eq!(after(execution), []);
    // A global barrier waits for it, too.
    let all = |policy| {
        let barrier = global("EXECUTE_INDIRECT -> COPY", "UNORDERED_ACCESS -> COPY_SOURCE");
        let [first, _, last] = indirect("NONE -> NONE");
        found(policy, &[first, barrier, last])
    };
    assert_eq!(all(Policy::default()), [Rule::R022, Rule::R091]);
    assert_eq!(all(execution), []);
}

#[test]
fn input_assembler_is_index_buffers_or_vertex_buffers_as_well() {
    covers!("BAR-039");
    let vertices = reading(ScopeReading { vertex_buffers: true, ..ScopeReading::default() });
    for kind in [WorkKind::Draw, WorkKind::DrawIndexed, WorkKind::ExecuteIndirect] {
        let program = |syncs| {
            let barrier = buffer(syncs, "COPY_DEST -> VERTEX_BUFFER");
            [uses(WorkKind::Copy, BUFFER, "COPY_DEST"), barrier, uses(kind, BUFFER, "VERTEX_BUFFER")]
        };
        assert_eq!(found(Policy::default(), &program("COPY -> INDEX_INPUT")), [Rule::R022, Rule::R027]);
        assert_eq!(found(vertices, &program("COPY -> INDEX_INPUT")), []);
        for policy in [Policy::default(), vertices] {
            assert_eq!(found(policy, &program("COPY -> VERTEX_SHADING")), []);
            assert_eq!(found(policy, &program("COPY -> DRAW")), []);
            assert_eq!(found(policy, &program("COPY -> PIXEL_SHADING")), [Rule::R022, Rule::R027]);
        }
        // A write after the fetch.
        let overwritten = |policy, syncs| {
            let barrier = buffer(syncs, "VERTEX_BUFFER -> COPY_DEST");
            let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
            found(policy, &[uses(kind, BUFFER, "VERTEX_BUFFER"), barrier, copy])
        };
        assert_eq!(overwritten(Policy::default(), "INDEX_INPUT -> COPY"), [Rule::R022, Rule::R027]);
        assert_eq!(overwritten(vertices, "INDEX_INPUT -> COPY"), []);
        assert_eq!(overwritten(vertices, "VERTEX_SHADING -> COPY"), []);
    }
    // Neither policy permits it on a compute list.
    let compute = |policy| {
        let barrier = buffer("COMPUTE_SHADING -> INDEX_INPUT", "UNORDERED_ACCESS -> VERTEX_BUFFER");
        rules(&World::policy(policy).submit_to(QueueType::Compute, &[barrier]))
    };
    assert!(compute(vertices).contains(&Rule::R085), "{:?}", compute(vertices));
}
