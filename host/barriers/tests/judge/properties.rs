//! Properties of random command lists.

use crate::world::*;
use barriers::{Message, Outcome, Rule, Severity};
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout as L, BarrierSync as S, Packet,
    SubresourceRange, TextureBarrier, TextureFlags, Use, WorkKind,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const SYNCS: [S; 8] =
    [S::NONE, S::ALL, S::DRAW, S::PIXEL_SHADING, S::COMPUTE_SHADING, S::ALL_SHADING, S::COPY, S::SPLIT];
const ACCESSES: [A; 7] = [
    A::COMMON,
    A::RENDER_TARGET,
    A::UNORDERED_ACCESS,
    A::SHADER_RESOURCE,
    A::COPY_DEST,
    A::COPY_SOURCE,
    A::NO_ACCESS,
];
const LAYOUTS: [L; 7] = [
    L::COMMON,
    L::RENDER_TARGET,
    L::UNORDERED_ACCESS,
    L::SHADER_RESOURCE,
    L::COPY_DEST,
    L::DIRECT_QUEUE_COMMON,
    L::UNDEFINED,
];
const WORK: [(WorkKind, A); 7] = [
    (WorkKind::Draw, A::RENDER_TARGET),
    (WorkKind::Draw, A::SHADER_RESOURCE),
    (WorkKind::Dispatch, A::UNORDERED_ACCESS),
    (WorkKind::Dispatch, A::SHADER_RESOURCE),
    (WorkKind::ClearUnorderedAccess, A::UNORDERED_ACCESS),
    (WorkKind::Copy, A::COPY_DEST),
    (WorkKind::Copy, A::COPY_SOURCE),
];

fn barrier() -> impl Strategy<Value = Barrier> {
    (select(&SYNCS[..]), select(&SYNCS[..]), select(&ACCESSES[..]), select(&ACCESSES[..])).prop_map(
        |(sync_before, sync_after, access_before, access_after)| Barrier {
            sync_before,
            sync_after,
            access_before,
            access_after,
        },
    )
}

fn texture() -> impl Strategy<Value = TextureBarrier> {
    (barrier(), select(&LAYOUTS[..]), select(&LAYOUTS[..]), any::<bool>()).prop_map(
        |(barrier, layout_before, layout_after, discard)| TextureBarrier {
            barrier,
            layout_before,
            layout_after,
            resource: TEXTURE,
            flags: if discard { TextureFlags::DISCARD } else { TextureFlags::empty() },
            subresources: SubresourceRange::ALL,
        },
    )
}

fn command() -> impl Strategy<Value = Packet> {
    (select(&WORK[..]), select(&[TEXTURE, BUFFER, SHARED][..]))
        .prop_map(|((kind, access), resource)| work(kind, vec![Use::whole(resource, access)]))
}

fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        3 => command(),
        1 => Just(list("")),
        3 => texture().prop_map(|texture| textures(vec![texture])),
        1 => (texture(), 0..4u32).prop_map(|(texture, index)| {
            textures(vec![TextureBarrier { subresources: SubresourceRange::one(index), ..texture }])
        }),
        1 => barrier().prop_map(|barrier| Packet::Barrier { groups: vec![BarrierGroup::Global(vec![barrier])] }),
        2 => barrier().prop_map(|barrier| {
            let buffer = d3dkmt::isa::BufferBarrier { barrier, resource: BUFFER, offset: 0, bytes: u64::MAX };
            Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![buffer])] }
        }),
    ]
}

/// Packets with fence barriers and waits.
fn fenced() -> impl Strategy<Value = Packet> {
    let groups = || {
        prop_oneof![Just(vec![]), texture().prop_map(|texture| vec![BarrierGroup::Texture(vec![texture])]),]
    };
    prop_oneof![
        6 => packet(),
        1 => (0..3u64, groups()).prop_map(|(to, groups)| Packet::SignalBarrier { fence: value(to), groups }),
        1 => (0..3u64, groups()).prop_map(|(to, groups)| Packet::WaitBarrier { fences: vec![value(to)], groups }),
        1 => (0..3u64).prop_map(|value| Packet::FenceWait { gpu_address: FENCE, value }),
    ]
}

fn all(outcome: &Outcome) -> Vec<Message> {
    outcome.messages.iter().cloned().collect()
}

/// The same packet, split into one barrier for each subresource.
fn apart(packet: &Packet) -> Packet {
    let Packet::Barrier { groups } = packet else { return packet.clone() };
    let group = |group: &BarrierGroup| match group {
        BarrierGroup::Texture(barriers) => {
            let each = |barrier: &TextureBarrier| {
                let barrier = *barrier;
                let all = barrier.subresources == SubresourceRange::ALL;
                let one =
                    move |index| TextureBarrier { subresources: SubresourceRange::one(index), ..barrier };
                (0..4).map(one).filter(move |one| all || one.subresources == barrier.subresources)
            };
            BarrierGroup::Texture(barriers.iter().flat_map(each).collect())
        }
        other => other.clone(),
    };
    Packet::Barrier { groups: groups.iter().map(group).collect() }
}

/// Rules by command, each once.
fn by_command(outcome: &Outcome) -> Vec<(u32, u32, Rule)> {
    let position = |message: &Message| (message.place.list, message.place.command, message.rule);
    let mut found: Vec<_> = outcome.messages.iter().map(position).collect();
    found.sort();
    found.dedup();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_submission_that_waits_alone_gets_the_messages_of_one_that_does_not(packets in vec(fenced(), 0..30)) {
        let (mut one, mut other) = (World::new(), World::new());
        one.fence(true);
        other.fence(true);
        for _ in 0..2 {
            let mut at_once = all(&one.submit(&packets));
            let mut in_parts = other.submit_waiting(&packets, |_| {});
            at_once.sort_by_key(|message| format!("{message:?}"));
            in_parts.sort_by_key(|message| format!("{message:?}"));
            prop_assert_eq!(in_parts, at_once);
        }
        prop_assert_eq!(one.device.held_bytes(), other.device.held_bytes());
    }

    #[test]
    fn a_texture_whole_is_its_subresources_one_by_one(
        first in vec(packet(), 1..8),
        second in vec(packet(), 1..8),
    ) {
        let (mut whole, mut single) = (World::new(), World::new());
        for packets in [first, second] {
            let one_by_one: Vec<Packet> = packets.iter().map(apart).collect();
            let (left, right) = (whole.submit(&packets), single.submit(&one_by_one));
            prop_assert_eq!(by_command(&left), by_command(&right));
            for index in 0..4 {
                prop_assert_eq!(whole.device.layout(TEXTURE, index), single.device.layout(TEXTURE, index));
            }
        }
    }

    #[test]
    fn with_a_full_barrier_between_all_commands_nothing_races(commands in vec(command(), 1..12)) {
        let full = global("ALL -> ALL", "COMMON -> COMMON");
        let packets: Vec<Packet> = commands.into_iter().flat_map(|command| [command, full.clone()]).collect();
        let outcome = World::new().submit(&packets);
        for message in outcome.messages.iter() {
            let races = message.severity == Severity::Hazard || message.rule == Rule::R059;
            prop_assert!(!races, "{}", message);
        }
    }
}
