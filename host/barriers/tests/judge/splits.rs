//! Split barriers.

use covers::covers;

use crate::world::*;
use barriers::{Phase, Rule, Severity};
use d3dkmt::isa::{BarrierLayout as L, Packet, WorkKind};

const TO: (&str, &str) = ("COMMON", "RENDER_TARGET");
const ACCESSES: &str = "COPY_DEST -> RENDER_TARGET";

fn begin() -> Packet {
    move_to("COPY -> SPLIT", ACCESSES, TO)
}

fn end() -> Packet {
    move_to("SPLIT -> RENDER_TARGET", ACCESSES, TO)
}

#[test]
fn a_split_begins_and_ends() {
    covers!("BAR-059");
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[begin(), end(), uses(WorkKind::Draw, TEXTURE, "RENDER_TARGET")])), []);
    assert_eq!(world.device.layout(TEXTURE, 0), L::RENDER_TARGET);
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[begin()])), []);
    assert_eq!(world.device.layout(TEXTURE, 0), L::COMMON, "only its end changes the layout");
}

#[test]
fn an_end_needs_a_begin() {
    covers!("BAR-069");
    let message = the(&World::new().submit(&[end()]), Rule::R052);
    assert_eq!((message.id, message.phase), (Some(534), Phase::Submission));
    let first = move_to("COPY -> COPY", "COPY_DEST -> COPY_DEST", ("COMMON", "COMMON"));
    assert_eq!(the(&World::new().submit(&[first, end()]), Rule::R052).phase, Phase::Record);
}

#[test]
fn nothing_comes_between_begin_and_end() {
    covers!("BAR-070");
    let other = move_to("ALL -> ALL", "COMMON -> COPY_SOURCE", ("COMMON", "COPY_SOURCE"));
    let found = rules(&World::new().submit(&[begin(), other]));
    assert!(found.contains(&Rule::R053), "{found:?}");
    let found = rules(&World::new().submit(&[begin(), begin()]));
    assert!(found.contains(&Rule::R053), "{found:?}");
}

#[test]
fn begin_and_end_say_the_same() {
    covers!("BAR-071");
    let accesses = "COPY_DEST -> RENDER_TARGET | SHADER_RESOURCE";
    let other_access = move_to("SPLIT -> RENDER_TARGET | PIXEL_SHADING", accesses, TO);
    assert!(rules(&World::new().submit(&[begin(), other_access])).contains(&Rule::R054));
    let layouts = ("COMMON", "COPY_DEST");
    let other_layout = move_to("SPLIT -> COPY", "COPY_DEST -> COPY_DEST", layouts);
    assert!(rules(&World::new().submit(&[begin(), other_layout])).contains(&Rule::R054));
}

#[test]
fn across_submissions_a_split_is_of_the_layout_alone() {
    covers!("BAR-072");
    let mut world = World::new();
    assert_eq!(rules(&world.submit(&[begin()])), []);
    let ends = move_to("SPLIT -> RENDER_TARGET", "NO_ACCESS -> RENDER_TARGET", TO);
    assert_eq!(rules(&world.submit(&[ends])), [], "other accesses do not count");
    assert_eq!(world.device.layout(TEXTURE, 0), L::RENDER_TARGET);
    let mut world = World::new();
    world.submit(&[begin()]);
    let other = move_to("SPLIT -> COPY", "COPY_DEST -> COPY_DEST", ("COMMON", "COPY_DEST"));
    assert_eq!(rules(&world.submit(&[other])), [Rule::R054], "other layouts do");
}

#[test]
fn across_submissions_a_split_without_layouts_does_nothing() {
    covers!("BAR-073");
    let mut world = World::new();
    let begin = buffer("COPY -> SPLIT", "COPY_DEST -> VERTEX_BUFFER");
    let end = buffer("SPLIT -> DRAW", "COPY_DEST -> VERTEX_BUFFER");
    let message = the(&world.submit(std::slice::from_ref(&begin)), Rule::R056);
    assert_eq!((message.id, message.severity), (Some(1329), Severity::Warning));
    assert_eq!(the(&world.submit(std::slice::from_ref(&end)), Rule::R056).severity, Severity::Warning);
    assert_eq!(rules(&world.submit(&[begin, end])), [], "in one it does");
    let common =
        |id, syncs| textures(vec![texture(id, syncs, "COPY_DEST -> COPY_SOURCE", ("COMMON", "COMMON"))]);
    for id in [SHARED, TEXTURE] {
        assert_eq!(rules(&world.submit(&[common(id, "COPY -> SPLIT")])), [Rule::R056]);
        assert_eq!(rules(&world.submit(&[common(id, "SPLIT -> COPY")])), [Rule::R056]);
    }
}

#[test]
fn subresource_is_not_used_between_begin_and_end() {
    covers!("BAR-074");
    let copy = uses(WorkKind::Copy, TEXTURE, "COPY_SOURCE");
    assert!(rules(&World::new().submit(&[begin(), copy.clone(), end()])).contains(&Rule::R057));
    let mut world = World::new();
    world.submit(&[begin()]);
    assert_eq!(the(&world.submit(std::slice::from_ref(&copy)), Rule::R057).phase, Phase::Submission);
    let other = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE");
    assert_eq!(rules(&World::new().submit(&[begin(), other, end()])), []);
}

#[test]
fn a_texture_that_goes_with_a_split_begun_is_worth_a_warning() {
    let mut world = World::new();
    world.submit(&[begin()]);
    let message = world.device.remove_resource(TEXTURE).expect("a warning");
    assert_eq!(message.severity, Severity::Warning);
    assert_eq!(world.device.remove_resource(BACK), None);
}
