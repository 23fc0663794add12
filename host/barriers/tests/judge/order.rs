//! A barrier after another one, and after the commands between them.

use covers::covers;

use crate::world::*;
use barriers::{Phase, Policy, Rule, Severity, policy::AccessBefore};
use d3dkmt::isa::{BarrierLayout as L, Packet, Use, UseFlags, WorkKind};

fn found(packets: &[Packet]) -> Vec<Rule> {
    rules(&World::new().submit(packets))
}

const READ: &str = "SHADER_RESOURCE -> SHADER_RESOURCE";

#[test]
fn a_barrier_waits_for_all_that_the_one_before_let_go() {
    covers!("BAR-058");
    let first = buffer("COPY -> PIXEL_SHADING | COMPUTE_SHADING", "COPY_DEST -> SHADER_RESOURCE");
    let second = |syncs| buffer(syncs, READ);
    let outcome = World::new().submit(&[first.clone(), second("PIXEL_SHADING -> ALL_SHADING")]);
    let message = the(&outcome, Rule::R041);
    assert_eq!((message.id, message.phase), (Some(1333), Phase::Record));
    assert!(message.text.contains("it lacks COMPUTE_SHADING"), "{message}");
    assert_eq!(found(&[first.clone(), second("PIXEL_SHADING | COMPUTE_SHADING -> ALL_SHADING")]), []);
    // Across lists it is known at submission; across ExecuteCommandLists nothing is carried over.
    let outcome =
        World::new().submit(&[list("a"), first.clone(), list("b"), second("PIXEL_SHADING -> ALL_SHADING")]);
    assert_eq!(the(&outcome, Rule::R041).phase, Phase::Submission);
    let mut world = World::new();
    world.submit(&[first]);
    assert_eq!(rules(&world.submit(&[second("PIXEL_SHADING -> ALL_SHADING")])), []);
}

#[test]
fn draw_is_its_five_stages() {
    covers!("BAR-096");
    let first = buffer("COPY -> DRAW", "COPY_DEST -> COMMON");
    let stages = "INDEX_INPUT | VERTEX_SHADING | PIXEL_SHADING | DEPTH_STENCIL | RENDER_TARGET -> DRAW";
    assert_eq!(found(&[first.clone(), buffer(stages, READ)]), []);
    let four = "VERTEX_SHADING | PIXEL_SHADING | DEPTH_STENCIL | RENDER_TARGET -> DRAW";
    assert_eq!(found(&[first, buffer(four, READ)]), [Rule::R041]);
}

#[test]
fn containing_is_of_expanded_words() {
    covers!("BAR-097", "BAR-098");
    let first = |after| buffer(&format!("COPY -> {after}"), "COPY_DEST -> SHADER_RESOURCE");
    let second = |before| buffer(&format!("{before} -> ALL_SHADING"), READ);
    let outcome = World::new().submit(&[first("ALL_SHADING"), second("PIXEL_SHADING")]);
    assert_eq!(the(&outcome, Rule::R041).id, Some(1333));
    assert_eq!(found(&[first("PIXEL_SHADING"), second("ALL")]), []);
}

#[test]
fn after_none_there_is_no_barrier() {
    covers!("BAR-060");
    let closes = buffer("COPY -> NONE", "COPY_DEST -> NO_ACCESS");
    let again = buffer("ALL -> ALL", "NO_ACCESS -> COPY_DEST");
    assert_eq!(found(&[closes.clone(), again.clone()]), [Rule::R043]);
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[closes])), []);
    assert_eq!(rules(&world.submit(&[again])), [], "the next ExecuteCommandLists");
}

#[test]
fn after_none_there_is_no_access() {
    covers!("BAR-061");
    let closes = buffer("COPY -> NONE", "COPY_DEST -> NO_ACCESS");
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE");
    assert_eq!(found(&[closes.clone(), copy.clone()]), [Rule::R044]);
    let mut world = World::new();
    world.submit(&[closes]);
    assert_eq!(rules(&world.submit(&[copy])), []);
}

#[test]
fn before_none_there_is_neither_access_nor_barrier_in_the_same_scope() {
    covers!("BAR-062", "BAR-063");
    let opens = buffer("NONE -> COPY", "NO_ACCESS -> COPY_DEST");
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE");
    assert_eq!(the(&World::new().submit(&[copy.clone(), opens.clone()]), Rule::R045).phase, Phase::Record);
    let across = World::new().submit(&[list("a"), copy.clone(), list("b"), opens.clone()]);
    assert_eq!(the(&across, Rule::R045).phase, Phase::Submission);
    let barrier = buffer("COPY -> COPY", "COPY_SOURCE -> COPY_DEST");
    assert_eq!(found(&[barrier.clone(), opens.clone()])[0], Rule::R045);
    let mut world = World::new();
    world.submit(&[copy, barrier]);
    assert_eq!(rules(&world.submit(&[opens])), [], "a new scope");
}

#[test]
fn access_before_is_what_is_known() {
    covers!("BAR-065");
    let first = buffer("COPY -> ALL_SHADING", "COPY_DEST -> SHADER_RESOURCE | CONSTANT_BUFFER");
    let second = |before: &str| buffer("ALL -> COPY", &format!("{before} -> COPY_DEST"));
    let outcome = World::new().submit(&[first.clone(), second("UNORDERED_ACCESS")]);
    assert_eq!(the(&outcome, Rule::R048).id, Some(1332));
    for right in ["SHADER_RESOURCE | CONSTANT_BUFFER", "SHADER_RESOURCE", "COMMON"] {
        assert_eq!(found(&[first.clone(), second(right)]), [], "{right}");
    }
    let equal = Policy { access_before: AccessBefore::Equal, ..Policy::default() };
    let strictly = |before| rules(&World::policy(equal).submit(&[first.clone(), second(before)]));
    assert_eq!(strictly("SHADER_RESOURCE"), [Rule::R048]);
    assert_eq!(strictly("SHADER_RESOURCE | CONSTANT_BUFFER"), []);
    // The writes of commands count too.
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let flushes = |before: &str| buffer("ALL -> DRAW", &format!("{before} -> VERTEX_BUFFER"));
    assert_eq!(found(&[copy.clone(), flushes("UNORDERED_ACCESS")]), [Rule::R048]);
    assert_eq!(found(&[copy, flushes("COPY_DEST")]), []);
}

#[test]
fn a_command_has_an_access_that_the_barrier_before_it_named() {
    let barrier = buffer("COPY -> ALL", "COPY_DEST -> VERTEX_BUFFER");
    let then = |access| found(&[barrier.clone(), uses(WorkKind::Draw, BUFFER, access)]);
    assert_eq!(then("VERTEX_BUFFER"), []);
    assert_eq!(then("SHADER_RESOURCE"), [Rule::R048]);
}

#[test]
fn a_clear_has_a_scope_of_its_own() {
    covers!("BAR-044");
    let clear = uses(WorkKind::ClearUnorderedAccess, BUFFER, "UNORDERED_ACCESS");
    let then = |before: &str| {
        let barrier = buffer(&format!("{before} -> PIXEL_SHADING"), "UNORDERED_ACCESS -> SHADER_RESOURCE");
        World::new().submit(&[clear.clone(), barrier, uses(WorkKind::Draw, BUFFER, "SHADER_RESOURCE")])
    };
    let message = the(&then("COMPUTE_SHADING"), Rule::R027);
    assert_eq!(message.severity, Severity::Hazard);
    assert!(message.text.contains("CLEAR_UNORDERED_ACCESS_VIEW"), "{message}");
    assert_eq!(rules(&then("CLEAR_UNORDERED_ACCESS_VIEW")), []);
    assert_eq!(rules(&then("ALL")), []);
}

#[test]
fn a_command_that_a_barrier_does_not_hold_up_races_with_it() {
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let then = |after: &str| {
        let barrier = buffer(&format!("COPY -> {after}"), "COPY_DEST -> SHADER_RESOURCE");
        found(&[copy.clone(), barrier, uses(WorkKind::Dispatch, BUFFER, "SHADER_RESOURCE")])
    };
    assert_eq!(then("PIXEL_SHADING"), [Rule::R027]);
    assert_eq!(then("COMPUTE_SHADING"), []);
    // With nothing to wait for there is no race.
    let barrier = buffer("COPY -> PIXEL_SHADING", "COPY_DEST -> SHADER_RESOURCE");
    assert_eq!(found(&[barrier, uses(WorkKind::Dispatch, BUFFER, "SHADER_RESOURCE")]), []);
}

#[test]
fn barriers_with_nothing_between_them_act_as_one() {
    covers!("BAR-099");
    let mut world = World::new();
    let first =
        move_to("COPY -> COMPUTE_SHADING", "COPY_DEST -> SHADER_RESOURCE", ("COMMON", "SHADER_RESOURCE"));
    let second = move_to(
        "COMPUTE_SHADING -> PIXEL_SHADING",
        READ,
        ("SHADER_RESOURCE", "DIRECT_QUEUE_SHADER_RESOURCE"),
    );
    let copy = uses(WorkKind::Copy, TEXTURE, "COPY_DEST");
    let both = [WorkKind::Dispatch, WorkKind::Draw].map(|kind| uses(kind, TEXTURE, "SHADER_RESOURCE"));
    let [dispatch, draw] = both;
    let packets = [copy.clone(), first.clone(), second.clone(), dispatch.clone(), draw.clone()];
    assert_eq!(rules(&world.submit(&packets)), [], "both wait: what follows is in one scope or the other");
    assert_eq!(world.device.layout(TEXTURE, 0), L::DIRECT_QUEUE_SHADER_RESOURCE, "the second one's");
    // With a command between them the second one blocks only pixel shaders.
    assert_eq!(found(&[copy, first, dispatch.clone(), second, dispatch, draw]), [Rule::R027]);
}

#[test]
fn groups_and_barriers_take_effect_in_their_order() {
    covers!("BAR-011");
    let mut world = World::new();
    let one = texture(TEXTURE, "ALL -> ALL", "COMMON -> COPY_DEST", ("COMMON", "COPY_DEST"));
    let two = texture(TEXTURE, "ALL -> ALL", "COPY_DEST -> COPY_SOURCE", ("COPY_DEST", "COPY_SOURCE"));
    let three =
        texture(TEXTURE, "ALL -> ALL", "COPY_SOURCE -> RENDER_TARGET", ("COPY_SOURCE", "RENDER_TARGET"));
    use d3dkmt::isa::BarrierGroup::Texture;
    let packet = |groups| Packet::Barrier { groups };
    assert_eq!(rules(&world.submit(&[packet(vec![Texture(vec![one, two]), Texture(vec![three])])])), []);
    assert_eq!(world.device.layout(TEXTURE, 0), L::RENDER_TARGET);
    let outcome = World::new().submit(&[packet(vec![Texture(vec![two, one])])]);
    assert!(rules(&outcome).contains(&Rule::R089), "the first one comes from where nothing is");
    let outcome = World::new().submit(&[packet(vec![Texture(vec![one]), Texture(vec![three, two])])]);
    let message = outcome.messages.iter().find(|message| message.rule == Rule::R047).expect("a wrong layout");
    assert_eq!(message.place.barrier, Some(1), "counted over the groups, as the DDI has one array");
}

#[test]
fn the_end_of_a_submission_flushes_and_layouts_stay() {
    covers!("BAR-012");
    let mut world = World::in_layout(L::UNORDERED_ACCESS);
    let writes = |id| uses(WorkKind::Dispatch, id, "UNORDERED_ACCESS");
    assert_eq!(rules(&world.submit(&[writes(BUFFER), writes(TEXTURE)])), []);
    // In the same submission this would be two writes without a barrier.
    assert_eq!(rules(&world.submit(&[writes(BUFFER), writes(TEXTURE)])), []);
    assert_eq!(world.device.layout(TEXTURE, 0), L::UNORDERED_ACCESS);
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER")])), []);
}

#[test]
fn a_global_barrier_leaves_layouts_alone() {
    covers!("BAR-014");
    let mut world = World::in_layout(L::RENDER_TARGET);
    world.submit(&[global("ALL -> ALL", "RENDER_TARGET -> SHADER_RESOURCE")]);
    assert_eq!(world.device.layout(TEXTURE, 0), L::RENDER_TARGET);
}

#[test]
fn a_global_barrier_orders_what_it_names() {
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let draw = uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER");
    let through = |syncs, accesses| found(&[copy.clone(), global(syncs, accesses), draw.clone()]);
    assert_eq!(through("COPY -> DRAW", "COPY_DEST -> VERTEX_BUFFER"), []);
    assert_eq!(
        through("RESOLVE -> DRAW", "RESOLVE_DEST -> VERTEX_BUFFER"),
        [Rule::R091],
        "it waits for nothing of it"
    );
}

/// It orders a use before the scopes of its SyncAfter, and shows it to the types of its AccessAfter.
#[test]
fn a_global_barrier_orders_no_more_than_it_names() {
    let written = uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    let copied = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE");
    let one = global("COMPUTE_SHADING -> PIXEL_SHADING", "UNORDERED_ACCESS -> SHADER_RESOURCE");
    let behind = |barriers: &[&Packet], last: &Packet| {
        let packets = [&[&written], barriers, &[last]].concat();
        found(&packets.into_iter().cloned().collect::<Vec<_>>())
    };
    let pixel = work(
        WorkKind::Draw,
        vec![Use { flags: UseFlags::PIXEL_STAGE, ..Use::whole(BUFFER, access("SHADER_RESOURCE")) }],
    );
    assert_eq!(behind(&[&one], &pixel), []);
    assert_eq!(behind(&[&one], &copied), [Rule::R091], "neither held up nor shown");
    let unseen = global("COMPUTE_SHADING -> COPY | PIXEL_SHADING", "UNORDERED_ACCESS -> SHADER_RESOURCE");
    assert_eq!(behind(&[&unseen], &copied), [Rule::R091], "not shown");
    let next = global("PIXEL_SHADING -> COPY", "SHADER_RESOURCE -> COPY_SOURCE");
    assert_eq!(behind(&[&one, &next], &copied), [], "the second goes on with the first");
    assert_eq!(behind(&[&next, &one], &copied), [Rule::R091]);
    // A write behind a read needs order alone.
    let read = uses(WorkKind::Dispatch, BUFFER, "SHADER_RESOURCE");
    let draw = global("COMPUTE_SHADING -> PIXEL_SHADING", "NO_ACCESS -> NO_ACCESS");
    let stored = |stage| {
        let flags = UseFlags::PIXEL_STAGE;
        work(stage, vec![Use { flags, ..Use::whole(BUFFER, access("UNORDERED_ACCESS")) }])
    };
    assert_eq!(found(&[read.clone(), draw.clone(), stored(WorkKind::Draw)]), []);
    assert_eq!(found(&[read, draw, stored(WorkKind::Dispatch)]), [Rule::R091]);
    // A barrier of the buffer need not wait for what the global one waited for.
    let to_copy = buffer("PIXEL_SHADING -> COPY", "SHADER_RESOURCE -> COPY_SOURCE");
    assert_eq!(behind(&[&one, &to_copy], &copied), []);
    let from_copy = buffer("RESOLVE -> COPY", "RESOLVE_DEST -> COPY_SOURCE");
    assert_eq!(behind(&[&one, &from_copy], &copied), [Rule::R027]);
}

/// Behind a barrier of the buffer, a global one goes on with it only if it waits for what that blocks.
#[test]
fn a_global_barrier_goes_on_with_the_barrier_before_if_it_waits_for_it() {
    let behind = |between: Packet| {
        let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
        let first = buffer("COPY -> PIXEL_SHADING", "COPY_DEST -> SHADER_RESOURCE");
        found(&[copy, first, between, uses(WorkKind::Dispatch, BUFFER, "SHADER_RESOURCE")])
    };
    let other = global("INDEX_INPUT -> COMPUTE_SHADING", "INDEX_BUFFER -> SHADER_RESOURCE");
    assert_eq!(behind(other), [Rule::R027]);
    assert_eq!(behind(global("PIXEL_SHADING -> COMPUTE_SHADING", "NO_ACCESS -> NO_ACCESS")), []);
}

#[test]
fn a_barrier_behind_a_global_one_contains_what_that_let_go() {
    let behind = |between: &str, last: &str| {
        let first = buffer("COPY -> PIXEL_SHADING", "COPY_DEST -> SHADER_RESOURCE");
        let last = buffer(&format!("{last} -> COPY"), "SHADER_RESOURCE -> COPY_SOURCE");
        found(&[uses(WorkKind::Copy, BUFFER, "COPY_DEST"), first, global(between, READ), last])
    };
    assert_eq!(behind("PIXEL_SHADING -> COMPUTE_SHADING", "COMPUTE_SHADING"), []);
    assert_eq!(behind("PIXEL_SHADING -> COMPUTE_SHADING", "PIXEL_SHADING"), [Rule::R041]);
    assert_eq!(behind("VERTEX_SHADING -> COMPUTE_SHADING", "COMPUTE_SHADING"), [Rule::R041]);
}

#[test]
fn a_global_barrier_cannot_do_what_needs_a_layout() {
    covers!("BAR-067");
    let mut world = World::in_layout(L::RENDER_TARGET);
    let draw = uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET");
    let read = uses(WorkKind::Draw, TEXTURE, "SHADER_RESOURCE");
    let between = global("RENDER_TARGET -> PIXEL_SHADING", "RENDER_TARGET -> SHADER_RESOURCE");
    assert!(rules(&world.submit(&[draw, between, read])).contains(&Rule::R050));
    // A simultaneous-access texture has no layout to change.
    let [draw, read] =
        ["RENDER_TARGET", "SHADER_RESOURCE"].map(|access| uses(WorkKind::Draw, SHARED, access));
    let between = global("RENDER_TARGET -> PIXEL_SHADING", "RENDER_TARGET -> SHADER_RESOURCE");
    assert_eq!(rules(&world.submit(&[draw, between, read])), []);
}

#[test]
fn a_root_call_is_waited_for_by_its_umbrella() {
    let root = uses(WorkKind::SetGraphicsRoot, BUFFER, "SHADER_RESOURCE");
    let write = |before: &str| buffer(&format!("{before} -> COPY"), "SHADER_RESOURCE -> COPY_DEST");
    assert_eq!(found(&[root.clone(), write("DRAW")]), []);
    assert_eq!(found(&[root.clone(), write("ALL")]), []);
    assert_eq!(found(&[root.clone(), write("PIXEL_SHADING")]), [Rule::R027]);
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let between = |before: &str| global(&format!("{before} -> COPY"), "SHADER_RESOURCE -> COPY_DEST");
    assert_eq!(found(&[root.clone(), between("DRAW"), copy.clone()]), []);
    assert_eq!(found(&[root, between("PIXEL_SHADING"), copy]), [Rule::R091]);
}

/// A read waits for the write, which an earlier barrier has ordered before its scope. A write waits for the reads, too.
#[test]
fn a_barrier_between_two_reads_takes_nothing_from_the_one_before() {
    let read = |kind| uses(kind, BUFFER, "SHADER_RESOURCE");
    let in_stage =
        |access, flags| work(WorkKind::Draw, vec![Use { flags, ..Use::whole(BUFFER, self::access(access)) }]);
    let first = buffer("COPY -> PIXEL_SHADING", "COPY_DEST -> SHADER_RESOURCE");
    let second =
        |access: &str| buffer("PIXEL_SHADING -> COMPUTE_SHADING", &format!("SHADER_RESOURCE -> {access}"));
    let pixel = |access| in_stage(access, UseFlags::PIXEL_STAGE);
    let behind = |after: &str, last: Packet| {
        let written = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
        let packets = [written, first.clone(), pixel("SHADER_RESOURCE"), second(after), last];
        rules(&World::new().submit(&packets))
    };
    assert_eq!(behind("SHADER_RESOURCE", read(WorkKind::Dispatch)), []);
    assert_eq!(behind("SHADER_RESOURCE", pixel("SHADER_RESOURCE")), []);
    let vertex = in_stage("SHADER_RESOURCE", UseFlags::VERTEX_STAGE);
    assert_eq!(behind("SHADER_RESOURCE", vertex), [Rule::R027]);
    assert_eq!(behind("UNORDERED_ACCESS", uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS")), []);
    assert_eq!(
        behind("UNORDERED_ACCESS", pixel("UNORDERED_ACCESS")),
        [Rule::R027],
        "the draw reads meanwhile"
    );
}
