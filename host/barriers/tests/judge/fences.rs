//! Fence barriers.

use covers::covers;

use crate::world::*;
use barriers::{Capabilities, FenceBarrierTier, FenceFlags, Policy, Rule, Severity};
use d3dkmt::isa::{
    self, BarrierGroup, FenceValue, Packet, QueueType, Reader, ResourceDesc, ResourceFlags, SubresourceRange,
    TextureBarrier, WorkKind,
};

fn tier(fence_barriers: FenceBarrierTier) -> World {
    World::with(Capabilities { fence_barriers, ..Capabilities::default() }, Policy::default())
}

fn signal(to: u64, groups: Vec<BarrierGroup>) -> Packet {
    Packet::SignalBarrier { fence: value(to), groups }
}

fn wait(to: u64, groups: Vec<BarrierGroup>) -> Packet {
    Packet::WaitBarrier { fences: vec![value(to)], groups }
}

fn group(texture: TextureBarrier) -> Vec<BarrierGroup> {
    vec![BarrierGroup::Texture(vec![texture])]
}

#[test]
fn without_the_tier_there_are_none() {
    covers!("BAR-113");
    for packet in [signal(1, vec![]), wait(0, vec![])] {
        let mut without = tier(FenceBarrierTier::NotSupported);
        without.fence(false);
        assert_eq!(rules(&without.submit(std::slice::from_ref(&packet))), [Rule::R096]);
        let mut with = tier(FenceBarrierTier::Tier1);
        with.fence(false);
        assert_eq!(rules(&with.submit(&[packet])), []);
    }
}

#[test]
fn tier_1_has_no_wait_for_fences_that_queues_may_signal() {
    covers!("BAR-114");
    let found = |level, queues| {
        let mut world = tier(level);
        world.fence(queues);
        rules(&world.submit(&[wait(0, vec![])]))
    };
    assert_eq!(found(FenceBarrierTier::Tier1, true), [Rule::R097]);
    assert_eq!(found(FenceBarrierTier::Tier1, false), []);
    assert_eq!(found(FenceBarrierTier::Tier2, true), []);
    let mut world = tier(FenceBarrierTier::Tier1);
    world.fence(true);
    assert_eq!(rules(&world.submit(&[signal(1, vec![])])), [], "signals may be");
}

fn created(
    shared: bool,
    allow_command_list_barriers: bool,
    allow_queue_and_cpu_sync: bool,
) -> Option<(Rule, u32)> {
    let flags =
        FenceFlags { shared, allow_command_list_barriers, allow_queue_and_cpu_sync, ..FenceFlags::default() };
    let refused = World::new().device.add_fence(FENCE, flags, "f", 0).err()?;
    Some((refused.rule, refused.id.unwrap_or_default()))
}

#[test]
fn some_flags_of_fences_need_others() {
    covers!("BAR-115", "BAR-116");
    assert_eq!(created(false, false, true), Some((Rule::R098, 1007)));
    assert_eq!(created(true, false, true), Some((Rule::R098, 1007)));
    assert_eq!(created(true, true, false), Some((Rule::R099, 1007)));
    for (shared, lists, queues) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (false, true, true),
        (true, true, true),
    ] {
        assert_eq!(created(shared, lists, queues), None, "{shared} {lists} {queues}");
    }
}

#[test]
fn flags_that_fences_do_not_have_are_refused_first() {
    covers!("FEN-131");
    for (allow_queue_and_cpu_sync, unknown) in [(false, 8), (true, 1 << 31)] {
        let flags = FenceFlags { allow_queue_and_cpu_sync, unknown, ..FenceFlags::default() };
        let refused = World::new().device.add_fence(FENCE, flags, "f", 0).unwrap_err();
        assert_eq!((refused.rule, refused.id), (Rule::R107, Some(1007)));
        assert!(refused.text.contains(&format!("{unknown:#x}")), "{refused}");
    }
}

#[test]
fn a_wait_for_zero_is_a_warning_known_fence_or_not() {
    covers!("FEN-132");
    let zero = |packets: &[Packet], known: bool| {
        let mut world = World::new();
        if known {
            world.fence(true);
        }
        let outcome = world.submit(packets);
        let messages = outcome.messages.iter().filter(|message| message.rule == Rule::R108);
        messages.map(|message| (message.id, message.severity, message.text.clone())).collect::<Vec<_>>()
    };
    let hardware = |value| Packet::FenceWait { gpu_address: FENCE, value };
    for (known, name) in [(true, "fence \"progress\"".to_string()), (false, format!("fence at {FENCE:#x}"))] {
        for packet in [wait(0, vec![]), hardware(0)] {
            let messages = zero(&[packet], known);
            assert_eq!(messages.len(), 1);
            assert_eq!((messages[0].0, messages[0].1), (Some(1424), Severity::Warning));
            assert!(messages[0].2.contains(&name), "{messages:?}");
        }
        assert_eq!(zero(&[wait(1, vec![]), hardware(1)], known), []);
    }
}

#[test]
fn command_list_fence_is_for_command_lists_only() {
    covers!("BAR-117");
    let mut world = World::new();
    world.fence(false);
    let message = world.device.check_queue_operation(FENCE).unwrap_err();
    assert_eq!((message.rule, message.id), (Rule::R100, Some(1078)));
    let mut world = World::new();
    world.fence(true);
    assert_eq!(world.device.check_queue_operation(FENCE), Ok(()));
}

#[test]
fn a_wait_on_a_fence_of_command_lists_comes_after_its_signal() {
    covers!("BAR-119");
    let mut world = World::new();
    world.fence(false);
    assert_eq!(rules(&world.submit(&[wait(1, vec![])])), [Rule::R102]);
    let mut world = World::new();
    world.fence(false);
    assert_eq!(rules(&world.submit(&[signal(1, vec![]), wait(1, vec![])])), []);
    assert_eq!(rules(&world.submit(&[wait(2, vec![])])), [Rule::R102]);
    let mut world = World::new();
    world.fence(true);
    assert_eq!(rules(&world.submit(&[wait(1, vec![])])), [], "somebody else may signal this one");
}

#[test]
fn a_signal_that_holds_up_nothing_may_name_an_access() {
    covers!("BAR-032", "BAR-120");
    let mut world = World::new();
    world.fence(false);
    let splits =
        BarrierGroup::Buffer(vec![buffer_words(BUFFER, "COPY -> NONE", "COPY_DEST -> SHADER_RESOURCE")]);
    let ends =
        BarrierGroup::Buffer(vec![buffer_words(BUFFER, "NONE -> DRAW", "COPY_DEST -> SHADER_RESOURCE")]);
    assert_eq!(rules(&world.submit(&[signal(1, vec![splits.clone()]), wait(1, vec![ends])])), []);
    assert_eq!(rules(&World::new().submit(&[Packet::Barrier { groups: vec![splits] }])), [Rule::R016]);
}

fn moved(from: &'static str, to: &'static str) -> Vec<BarrierGroup> {
    group(texture(TEXTURE, "ALL -> ALL", "COMMON -> COMMON", (from, to)))
}

#[test]
fn a_layout_that_a_signal_changed_is_taken_over_by_a_wait() {
    covers!("BAR-121");
    let submit = |packets: &[Packet]| {
        let mut world = World::new();
        world.fence(false);
        rules(&world.submit(packets))
    };
    let first = signal(1, moved("COMMON", "COPY_DEST"));
    let second = signal(2, moved("COPY_DEST", "COPY_SOURCE"));
    assert_eq!(submit(&[first.clone(), second.clone()]), [Rule::R104]);
    assert_eq!(submit(&[first.clone(), wait(1, moved("UNDEFINED", "UNDEFINED")), second]), []);
    let waits = [wait(0, moved("COMMON", "COPY_DEST")), wait(0, moved("COPY_DEST", "COPY_SOURCE"))];
    assert_eq!(submit(&waits), [Rule::R104]);
}

#[test]
fn a_wait_takes_the_layout_that_the_signal_left() {
    covers!("BAR-122");
    let found = |from| {
        let mut world = World::new();
        world.fence(false);
        world.submit(&[signal(1, moved("COMMON", "COPY_DEST"))]);
        let to = group(texture(TEXTURE, "ALL -> ALL", "NO_ACCESS -> COMMON", (from, "COPY_SOURCE")));
        rules(&world.submit(&[wait(1, to)]))
    };
    assert_eq!(found("COPY_DEST"), []);
    assert_eq!(found("UNDEFINED"), []);
    assert_eq!(found("RENDER_TARGET"), [Rule::R105]);
}

#[test]
fn a_chain_that_comes_back_is_found() {
    covers!("BAR-123");
    const OTHER: u64 = FENCE + 64;
    let both = FenceFlags {
        allow_command_list_barriers: true,
        allow_queue_and_cpu_sync: true,
        ..FenceFlags::default()
    };
    let other_fence = |value| FenceValue { gpu_address: OTHER, value };
    let fences = || {
        let mut world = World::new();
        world.fence(true);
        world.device.add_fence(OTHER, both, "back", 0).unwrap();
        world
    };
    // The first submission signals and then waits for a signal that the second one makes after it waited for the first.
    let leaves = [signal(1, vec![]), Packet::WaitBarrier { fences: vec![other_fence(1)], groups: vec![] }];
    let returns = [wait(1, vec![]), Packet::SignalBarrier { fence: other_fence(1), groups: vec![] }];
    let mut world = fences();
    assert_eq!(rules(&world.submit(&leaves)), []);
    let message = the(&world.submit(&returns), Rule::R106);
    assert!(message.text.contains("the chain leaves a queue and comes back"), "{message}");
    // A chain that does not return.
    let mut world = fences();
    let [out, _] = leaves.clone();
    assert_eq!(rules(&world.submit(&[out])), []);
    assert_eq!(rules(&world.submit(&returns)), []);
    // Once the first one is complete, no chain passes through it.
    let mut world = fences();
    let first = world.submit(&leaves);
    world.device.retire(first.submission);
    assert_eq!(rules(&world.submit(&returns)), []);
    // A submission that waits for more than it has signaled itself needs an outside signal.
    assert_eq!(rules(&fences().submit(&[signal(1, vec![]), wait(2, vec![])])), [Rule::R106]);
}

#[test]
fn the_global_bit_is_on_the_outer_sides() {
    let found = |packet: fn(Vec<BarrierGroup>) -> Packet, accesses| {
        let mut world = World::new();
        world.fence(true);
        rules(&world.submit(&[packet(vec![BarrierGroup::Global(vec![words("ALL -> ALL", accesses)])])]))
    };
    assert_eq!(found(|groups| signal(1, groups), "COMMON -> GLOBAL | COPY_SOURCE"), []);
    assert_eq!(found(|groups| signal(1, groups), "GLOBAL -> COPY_SOURCE"), [Rule::R078]);
    assert_eq!(found(|groups| wait(0, groups), "GLOBAL -> COPY_SOURCE"), []);
    assert_eq!(found(|groups| wait(0, groups), "COMMON -> GLOBAL"), [Rule::R078]);
}

#[test]
fn fence_without_list_flag_is_refused_and_unknown_fence_is_ignored() {
    assert_eq!(rules(&World::new().submit(&[signal(1, vec![]), wait(5, vec![])])), []);
    let mut world = World::new();
    world.device.add_fence(FENCE, FenceFlags::default(), "plain", 0).unwrap();
    assert_eq!(rules(&world.submit(&[signal(1, vec![]), wait(1, vec![])])), [Rule::Command, Rule::Command]);
    assert!(world.device.remove_fence(FENCE));
    world.device.fence_stored(FENCE, 1);
    assert!(!world.device.remove_fence(FENCE));
}

/// Another queue moves the texture and signals; only then this one goes on.
#[test]
fn what_follows_a_wait_is_judged_with_the_layouts_that_are_there_after_it() {
    let moved = |from: &str, to: &str| {
        let accesses = |layout: &str| if layout == "COMMON" { "COMMON".into() } else { layout.to_string() };
        let accesses = format!("{} -> {}", accesses(from), accesses(to));
        textures(vec![texture(TEXTURE, "ALL -> ALL", &accesses, (from.layout(), to.layout()))])
    };
    let waits = [wait(1, vec![]), moved("COPY_DEST", "RENDER_TARGET")];
    let mut world = World::new();
    world.fence(true);
    let meanwhile = |world: &mut World| {
        let packets = [moved("COMMON", "COPY_DEST"), signal(1, vec![])];
        assert!(!rules(&world.submit(&packets)).contains(&Rule::R089));
    };
    let found: Vec<Rule> = world.submit_waiting(&waits, meanwhile).iter().map(|one| one.rule).collect();
    assert!(!found.contains(&Rule::R089), "{found:?}");
    // The same without a wait begins with the wrong layout.
    let mut world = World::new();
    world.fence(true);
    assert!(rules(&world.submit(&waits)).contains(&Rule::R089));
}

/// What the other queue did to the state of a resource causes no message about this one.
#[test]
fn a_resource_that_another_queue_uses_meanwhile_has_an_unknown_history() {
    let write = || uses(WorkKind::Dispatch, BUFFER, "UNORDERED_ACCESS");
    let to_vertices = || buffer("COMPUTE_SHADING -> DRAW", "UNORDERED_ACCESS -> VERTEX_BUFFER");
    let waits = [write(), to_vertices(), wait(1, vec![]), uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER")];
    let mut world = World::new();
    world.fence(true);
    let alone = world.submit_waiting(&waits, |_| {});
    let mut world = World::new();
    world.fence(true);
    let beside = world.submit_waiting(&waits, |world| {
        world.submit(&[uses(WorkKind::Copy, BUFFER, "COPY_SOURCE"), signal(1, vec![])]);
    });
    assert_eq!(beside, alone);
}

#[test]
fn a_submission_that_waits_is_charged_and_one_too_many_is_checked_as_a_whole() {
    let mut world = World::new();
    world.fence(true);
    let before = world.device.held_bytes();
    let bytes = d3dkmt::isa::encode(&[uses(WorkKind::Copy, BUFFER, "COPY_DEST"), wait(1, vec![])]);
    let packets = d3dkmt::isa::Reader::new(&bytes).unwrap().unwrap();
    let mut begin = || world.device.begin(QueueType::Direct, &packets, &|_| true).unwrap().submission;
    let first = begin();
    for _ in 1..barriers::limits::SUSPENDED_MAX {
        begin();
    }
    let last = begin();
    assert!(world.device.held_bytes() > before);
    assert!(world.device.resume(last, &packets, &|_| true).is_none());
    assert!(world.device.resume(first, &packets, &|_| true).is_some());
    (first..first + 100).for_each(|submission| world.device.retire(submission));
    assert_eq!(world.device.held_bytes(), before);
}

/// Subresources of a texture of [`many_uses`].
const SLICES: u32 = 2048;

/// A list that uses a texture of many subresources as often as uses are compared. A barrier then tells one of them from
/// the others, and the list waits in hardware.
fn many_uses(world: &mut World, id: u32) -> Vec<u8> {
    let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
    let texture_of = ResourceDesc::texture("big", u64::from(id) << 24, (4, 4));
    let desc = ResourceDesc { flags, array_size: SLICES, ..texture_of }.with_packed_bytes();
    world.device.add_resource(id, desc).expect("a resource");
    let both = [(WorkKind::Copy, "COPY_SOURCE"), (WorkKind::Dispatch, "UNORDERED_ACCESS")];
    let alternating = both.iter().cycle().take(barriers::limits::USES_COMPARED_MAX);
    let mut packets: Vec<Packet> = alternating.map(|(kind, access)| uses(*kind, id, access)).collect();
    let whole = texture(id, "NONE -> COPY", "NO_ACCESS -> COPY_SOURCE", ("COMMON", "COMMON"));
    packets.push(textures(vec![TextureBarrier { subresources: SubresourceRange::one(0), ..whole }]));
    packets.push(wait(1, vec![]));
    isa::encode(&packets)
}

#[test]
fn the_uses_of_submissions_that_wait_are_charged_and_limited() {
    const USE_BYTES: usize = 48;
    let mut world = World::new();
    world.fence(true);
    let (before, mut charged, mut submissions) = (world.device.held_bytes(), Vec::new(), Vec::new());
    for id in 100..160 {
        let bytes = many_uses(&mut world, id);
        let packets = Reader::new(&bytes).unwrap().unwrap();
        let held = world.device.held_bytes();
        submissions.push(world.device.begin(QueueType::Direct, &packets, &|_| true).unwrap().submission);
        charged.push(world.device.held_bytes() - held);
    }
    let all_uses = SLICES as usize * barriers::limits::USES_COMPARED_MAX * USE_BYTES;
    assert!(charged[0] >= all_uses, "{} bytes are charged for {all_uses} bytes of uses", charged[0]);
    let most = 2 * barriers::limits::SUSPENDED_VISITS_MAX * 2 * USE_BYTES + charged.len() * (32 << 10);
    let held: usize = charged.iter().sum();
    assert!(held < most, "{held} bytes of {} submissions", charged.len());
    submissions.into_iter().for_each(|submission| world.device.retire(submission));
    (100..160).for_each(|id| _ = world.device.remove_resource(id));
    assert_eq!(world.device.held_bytes(), before);
}
