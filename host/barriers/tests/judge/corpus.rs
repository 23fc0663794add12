//! Damaged command buffers: every truncation and each flipped byte of some valid ones. Each gives an error or messages;
//! an unreadable one leaves no state.

use crate::world::*;
use d3dkmt::isa::{
    self, BarrierGroup, BarrierLayout as L, IsaError, LegacyBarrier, LegacyFlags, LegacyState, Packet,
    QueueType, RangedBarrier, RangedFlags, Reader, WorkKind,
};
use proptest::prelude::*;

fn corpus() -> Vec<Vec<u8>> {
    let ranged = RangedBarrier {
        barrier: words("COPY -> ALL", "COPY_DEST -> COMMON"),
        resource: BUFFER,
        flags: RangedFlags::RELEASE,
        offset: 0,
        bytes: 64,
    };
    let groups = vec![
        BarrierGroup::Global(vec![words("ALL -> ALL", "COMMON -> COMMON")]),
        BarrierGroup::Texture(vec![texture(
            TEXTURE,
            "COPY -> DRAW",
            "COPY_DEST -> COMMON",
            ("COMMON", "COPY_DEST"),
        )]),
        BarrierGroup::Buffer(vec![buffer_words(BUFFER, "COPY -> DRAW", "COPY_DEST -> VERTEX_BUFFER"); 2]),
        BarrierGroup::Ranged(vec![ranged]),
        BarrierGroup::Unknown { kind: 7, barriers: 1 },
    ];
    let flags = LegacyFlags::empty();
    let transition = LegacyBarrier::Transition {
        flags,
        resource: BACK,
        subresource: 0,
        before: LegacyState::COMMON,
        after: LegacyState::RENDER_TARGET,
    };
    let lists = vec![
        list("first"),
        work(WorkKind::Copy, vec![range(UPLOAD, "COPY_SOURCE", 0, 64), range(BUFFER, "COPY_DEST", 64, 64)]),
        Packet::Barrier { groups: groups.clone() },
        uses(WorkKind::Draw, TEXTURE, "SHADER_RESOURCE"),
        list("second"),
        Packet::LegacyBarrier {
            barriers: vec![transition, LegacyBarrier::Aliasing { flags, before: 1, after: 2 }],
        },
        Packet::AssertTextureLayout { resource: TEXTURE, subresource: 1, layout: L::COPY_DEST },
        Packet::AssertResourceAccess { resource: TEXTURE, subresource: 1, access: access("COPY_DEST") },
    ];
    let fences = vec![
        Packet::SignalBarrier { fence: value(2), groups: groups.clone() },
        Packet::WaitBarrier { fences: vec![value(1), value(2)], groups },
        Packet::Timestamp { gpu_address: 0x1000 },
        Packet::FenceWrite { gpu_address: FENCE, value: 3 },
        Packet::Busy { duration_ns: 9 },
    ];
    vec![isa::encode(&lists), isa::encode(&fences)]
}

/// Checks bytes on any queue. Unreadable bytes leave the device unchanged.
fn judge(world: &mut World, bytes: &[u8], queue: QueueType) -> Result<(), IsaError> {
    let Some(reader) = Reader::new(bytes)? else { return Ok(()) };
    let before = format!("{:?}", world.device);
    let submitted = world.device.submit(queue, &reader);
    if submitted.is_err() {
        assert_eq!(format!("{:?}", world.device), before);
    }
    submitted.map(drop)
}

#[test]
fn every_truncation_is_refused() {
    for bytes in corpus() {
        let mut world = World::new();
        for cut in 8..bytes.len() {
            assert!(judge(&mut world, &bytes[..cut], QueueType::Direct).is_err(), "cut at {cut}");
            // With an adjusted header, it is refused unless it is cut between two packets.
            let mut known = bytes[..cut].to_vec();
            known[4..8].copy_from_slice(&(cut as u32).to_le_bytes());
            let _ = judge(&mut world, &known, QueueType::Direct);
        }
        assert_eq!(judge(&mut world, &bytes, QueueType::Direct), Ok(()));
    }
}

#[test]
fn each_byte_flipped_is_judged_or_refused() {
    for bytes in corpus() {
        for (at, flip) in (8..bytes.len()).flat_map(|at| [(at, 0xFF), (at, 0x01), (at, 0x80)]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let mut world = World::new();
            world.fence(true);
            let queue = QueueType::ALL[at % QueueType::ALL.len()];
            let _ = judge(&mut world, &damaged, queue);
        }
    }
}

proptest! {
    #[test]
    fn any_barrier_words_never_panic(
        which in 0..2usize,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u32>()), 1..6),
    ) {
        let mut bytes = corpus().swap_remove(which);
        for (at, value) in changes {
            let at = 8 + at.index(bytes.len() / 4 - 2) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let mut world = World::new();
        world.fence(false);
        let _ = judge(&mut world, &bytes, QueueType::Direct);
        let _ = judge(&mut world, &bytes, QueueType::Compute);
    }
}
