//! The limits of the validator's memory.

use crate::world::*;
use barriers::{Device, Rule, Severity, limits};
use d3dkmt::isa::{Kernel, LegacyBarrier, LegacyFlags, LegacyState, Packet, ResourceDesc, Use, WorkKind};

#[test]
fn of_a_rule_broken_without_end_so_many_messages_are_kept() {
    let wrong = buffer("COMPUTE_SHADING -> ALL", "COPY_DEST -> COMMON");
    let mut packets = vec![wrong; limits::MESSAGES_PER_RULE_MAX + 10];
    packets.push(uses(WorkKind::Copy, 99, "COPY_DEST"));
    let outcome = World::new().submit(&packets);
    let kept = outcome.messages.iter().filter(|message| message.rule == Rule::R022).count();
    assert_eq!(kept, limits::MESSAGES_PER_RULE_MAX);
    assert_eq!(outcome.messages.count(Rule::R022) as usize, limits::MESSAGES_PER_RULE_MAX + 10);
    assert_eq!(outcome.messages.count(Rule::R005), 1, "one rule does not hide another");
    assert!(outcome.messages.iter().any(|message| message.rule == Rule::R005));
    let errors = outcome.messages.at_least(Severity::Error);
    assert!(errors > limits::MESSAGES_PER_RULE_MAX as u64, "{errors}");
}

#[test]
fn a_device_has_so_many_subresources() {
    let mut device = Device::default();
    let desc = ResourceDesc { array_size: 2048, mips: 5, ..ResourceDesc::texture("many", 4096, (16, 16)) };
    let desc = desc.with_packed_bytes();
    let fit = limits::SUBRESOURCES_PER_DEVICE_MAX / desc.subresources() as usize;
    for id in 1..=fit as u32 {
        assert_eq!(device.add_resource(id, desc), Ok(()));
    }
    let refused = device.add_resource(1000, desc).unwrap_err();
    assert!(refused.text.contains("subresources, at most 262144"), "{refused}");
    device.remove_resource(1);
    assert_eq!(device.add_resource(1000, desc), Ok(()));
    assert!(device.add_resource(2, desc).unwrap_err().text.contains("in use"));
    assert!(device.add_resource(0, desc).is_err());
}

#[test]
fn a_device_has_so_many_fences() {
    let mut device = Device::default();
    for address in 0..limits::FENCES_PER_DEVICE_MAX as u64 {
        assert_eq!(device.add_fence(address, Default::default(), "", 0), Ok(()));
    }
    assert!(device.add_fence(u64::MAX, Default::default(), "", 0).is_err());
    assert!(device.remove_fence(0));
    assert_eq!(device.add_fence(u64::MAX, Default::default(), "", 0), Ok(()));
}

#[test]
fn uses_beyond_the_window_are_not_compared() {
    let read = |offset| work(WorkKind::Dispatch, vec![range(BUFFER, "SHADER_RESOURCE", offset, 16)]);
    let write = work(WorkKind::Dispatch, vec![range(BUFFER, "UNORDERED_ACCESS", 4080, 16)]);
    let after = |reads: usize| {
        let reads = (0..reads as u64).map(|number| read(number * 16));
        let packets: Vec<Packet> = [write.clone()].into_iter().chain(reads).chain([read(4080)]).collect();
        rules(&World::new().submit(&packets))
    };
    assert_eq!(after(limits::USES_COMPARED_MAX - 1), [Rule::R091]);
    assert_eq!(after(limits::USES_COMPARED_MAX), []);
}

#[test]
fn of_many_global_barriers_the_oldest_count_as_one() {
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_DEST");
    let draw = uses(WorkKind::Draw, BUFFER, "VERTEX_BUFFER");
    let right = global("COPY -> DRAW", "COPY_DEST -> VERTEX_BUFFER");
    let other = global("RESOLVE -> DRAW", "RESOLVE_DEST -> VERTEX_BUFFER");
    let many = |first: &Packet| {
        let rest = vec![other.clone(); limits::GLOBALS_APPLIED_MAX + 5];
        let packets: Vec<Packet> =
            [copy.clone(), first.clone()].into_iter().chain(rest).chain([draw.clone()]).collect();
        rules(&World::new().submit(&packets))
    };
    assert_eq!(many(&right), [], "it is among those that count as one");
    assert_eq!(many(&other), [Rule::R091]);
}

#[test]
fn root_parameters_beyond_the_limit_are_not_followed() {
    let set = |operand, resource| {
        let uses = vec![Use::whole(resource, access("SHADER_RESOURCE"))];
        Packet::Work { kind: WorkKind::SetGraphicsRoot, kernel: Kernel::None, operand, duration_ns: 1, uses }
    };
    let barrier = buffer("COPY -> DRAW", "COPY_DEST -> SHADER_RESOURCE");
    let after = |others: u32| {
        let others = (0..others).map(|operand| set(operand, UPLOAD));
        let packets: Vec<Packet> =
            others.chain([set(1000, BUFFER), barrier.clone(), work(WorkKind::Draw, vec![])]).collect();
        rules(&World::new().submit(&packets))
    };
    assert_eq!(after(limits::ROOT_PARAMETERS_MAX as u32 - 1), [Rule::R077]);
    assert_eq!(after(limits::ROOT_PARAMETERS_MAX as u32), []);
}

#[test]
fn chains_of_fences_are_followed_through_so_many_submissions() {
    let mut world = World::new();
    world.fence(true);
    let wait = |to| Packet::WaitBarrier { fences: vec![value(to)], groups: vec![] };
    for to in 0..limits::OPEN_WAITS_MAX as u64 + 100 {
        world.submit(&[wait(to + 1)]);
    }
    let [.., in_flight] = world.device.remaining();
    assert_eq!(in_flight, limits::OPEN_WAITS_MAX + limits::CHAIN_MAX);
}

#[test]
fn when_all_has_ended_nothing_is_left() {
    let mut world = World::new();
    world.fence(true);
    let packets = [
        Packet::SignalBarrier { fence: value(1), groups: vec![] },
        uses(WorkKind::Copy, BUFFER, "COPY_DEST"),
    ];
    let outcome = world.submit(&packets);
    world.device.retire(outcome.submission);
    (TEXTURE..=RTAS).for_each(|id| drop(world.device.remove_resource(id)));
    world.device.remove_fence(FENCE);
    assert_eq!(world.device.remaining(), [0; 4]);
}

#[test]
fn a_submission_has_so_many_looks_at_subresources() {
    use d3dkmt::isa::{SubresourceRange, TextureBarrier};
    let mut world = World::new();
    let desc = ResourceDesc { array_size: 2048, mips: 5, ..ResourceDesc::texture("many", 4096, (16, 16)) };
    let desc = desc.with_packed_bytes();
    world.device.add_resource(50, desc).unwrap();
    let barrier = texture(50, "ALL -> ALL", "COPY_DEST -> COPY_DEST", ("COMMON", "COMMON"));
    let one = TextureBarrier { subresources: SubresourceRange::one(7), ..barrier };
    // Each pair splits the subresources and checks each.
    let pair = [textures(vec![one]), textures(vec![barrier])];
    let fit = limits::VISITS_PER_SUBMISSION_MAX / (2 * desc.subresources() as usize + 1);
    let copy = uses(WorkKind::Copy, BUFFER, "COPY_SOURCE");
    let many =
        |pairs| std::iter::repeat_n(pair.clone(), pairs).flatten().chain([copy.clone()]).collect::<Vec<_>>();
    assert_eq!(rules(&world.submit(&many(fit - 1))), []);
    let outcome = world.submit(&many(fit + 5));
    let found = rules(&outcome);
    assert!(!found.is_empty() && found.iter().all(|rule| *rule == Rule::Command), "{found:?}");
    assert_eq!(outcome.messages.at_least(Severity::Hazard), 0, "it is only a warning");
    // An acceleration structure stays in its legacy state, looked at or not.
    let state = LegacyState::RAYTRACING_ACCELERATION_STRUCTURE;
    world
        .device
        .add_resource(51, ResourceDesc { initial_state: state, ..crate::world::desc(BUFFER) })
        .unwrap();
    let build = uses(WorkKind::BuildRtas, 51, "RTAS_WRITE");
    world.submit(&[many(fit + 5), vec![build]].concat());
    assert_eq!(rules(&world.submit(&[uses(WorkKind::Copy, 51, "COPY_DEST")])), [Rule::Command]);
    // The state of the texture is unknown then, and no false message is reported.
    let moved = texture(50, "ALL -> ALL", "COPY_DEST -> COPY_DEST", ("COPY_DEST", "COPY_DEST"));
    assert_eq!(rules(&world.submit(&[textures(vec![moved]), copy.clone()])), []);
}

#[test]
fn error_of_all_subresources_is_reported_once() {
    let moved = move_to("ALL -> ALL", "COMMON -> COPY_DEST", ("COMMON", "COPY_DEST"));
    let mut world = World::new();
    let one = d3dkmt::isa::SubresourceRange::one(1);
    let other = texture(TEXTURE, "ALL -> ALL", "COMMON -> COPY_DEST", ("COMMON", "COPY_DEST"));
    world.submit(std::slice::from_ref(&moved));
    world.submit(&[textures(vec![d3dkmt::isa::TextureBarrier { subresources: one, ..other }])]);
    assert_eq!(rules(&world.submit(&[moved])), [Rule::R089]);
}

#[test]
fn what_a_submission_used_is_released_at_its_end() {
    use d3dkmt::isa::{SubresourceRange, TextureBarrier};
    let mut world = World::new();
    let desc = ResourceDesc { array_size: 2048, mips: 5, ..ResourceDesc::texture("many", 4096, (16, 16)) };
    let desc = desc.with_packed_bytes();
    world.device.add_resource(50, desc).unwrap();
    let before = world.device.held_bytes();
    let one = |sub, access: &str| {
        let use_of = Use { first_subresource: sub, count: 1, ..Use::whole(50, crate::world::access(access)) };
        work(WorkKind::Copy, vec![use_of])
    };
    let uses: Vec<Packet> =
        (0..100).flat_map(|sub| [one(sub, "COPY_DEST"), one(sub, "COPY_SOURCE")]).collect();
    world.submit(&uses);
    assert!(!format!("{:?}", world.device).contains("Used {"), "uses of a complete submission are kept");
    // The subresources stay equal unless their layouts differ; then there is a record for each.
    let all = [work(WorkKind::Copy, vec![Use::whole(50, crate::world::access("COPY_SOURCE"))])];
    world.submit(&all);
    assert_eq!(world.device.held_bytes(), before);
    let barrier = texture(50, "ALL -> ALL", "COMMON -> COPY_DEST", ("UNDEFINED", "COPY_DEST"));
    let one = TextureBarrier { subresources: SubresourceRange::one(7), ..barrier };
    world.submit(&[textures(vec![one])]);
    let records = (desc.subresources() - 1) as usize;
    assert!(world.device.held_bytes() >= before + records * 100, "each record is charged");
    world.submit(&[textures(vec![barrier])]);
    assert_eq!(world.device.held_bytes(), before);
    world.device.remove_resource(50);
    assert!(world.device.held_bytes() < before);
}

#[test]
fn between_barriers_of_unordered_access_a_repeated_use_counts_once() {
    for barrier_of_all in [false, true] {
        let mut world = World::new();
        for id in 50..60 {
            let desc = ResourceDesc { array_size: 2048, ..desc(TEXTURE) }.with_packed_bytes();
            let address = u64::from(id) << 20;
            let desc =
                ResourceDesc { gpu_address: address, initial_state: LegacyState::UNORDERED_ACCESS, ..desc };
            world.device.add_resource(id, desc).unwrap();
        }
        let mut packets = Vec::new();
        for id in 50..60 {
            let resource = if barrier_of_all { 0 } else { id };
            let barrier = legacy(LegacyBarrier::UnorderedAccess { flags: LegacyFlags::empty(), resource });
            for _ in 0..limits::USES_COMPARED_MAX {
                packets.extend([uses(WorkKind::Dispatch, id, "UNORDERED_ACCESS"), barrier.clone()]);
                packets
                    .extend([uses(WorkKind::ClearUnorderedAccess, id, "UNORDERED_ACCESS"), barrier.clone()]);
            }
            let one = Use { first_subresource: 3, count: 1, ..Use::whole(id, access("UNORDERED_ACCESS")) };
            packets.push(work(WorkKind::Dispatch, vec![one]));
        }
        assert_eq!(rules(&world.submit(&packets)), []);
        // The last of the uses is still compared.
        packets.push(uses(WorkKind::Dispatch, 59, "UNORDERED_ACCESS"));
        assert_eq!(rules(&world.submit(&packets)), [Rule::R060]);
    }
}
