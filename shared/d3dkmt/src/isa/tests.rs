use super::*;
use crate::limits::LIST_NAME_BYTES_MAX;
use alloc::{format, vec};
use proptest::collection::vec as several;
use proptest::prelude::*;
use proptest::sample::select;

fn barrier() -> impl Strategy<Value = Barrier> {
    any::<[u32; 4]>().prop_map(|words| Barrier {
        sync_before: BarrierSync::from_bits_retain(words[0]),
        sync_after: BarrierSync::from_bits_retain(words[1]),
        access_before: BarrierAccess::from_bits_retain(words[2]),
        access_after: BarrierAccess::from_bits_retain(words[3]),
    })
}

fn texture_barrier() -> impl Strategy<Value = TextureBarrier> {
    (barrier(), any::<[u32; 10]>()).prop_map(|(barrier, words)| TextureBarrier {
        barrier,
        layout_before: BarrierLayout(words[0]),
        layout_after: BarrierLayout(words[1]),
        resource: words[2],
        flags: TextureFlags::from_bits_retain(words[3]),
        subresources: SubresourceRange {
            first_mip: words[4],
            mips: words[5],
            first_slice: words[6],
            slices: words[7],
            first_plane: words[8],
            planes: words[9],
        },
    })
}

fn buffer_barrier() -> impl Strategy<Value = BufferBarrier> {
    (barrier(), any::<(u32, u64, u64)>()).prop_map(|(barrier, (resource, offset, bytes))| BufferBarrier {
        barrier,
        resource,
        offset,
        bytes,
    })
}

fn ranged_barrier() -> impl Strategy<Value = RangedBarrier> {
    (barrier(), any::<(u32, u32, u64, u64)>()).prop_map(|(barrier, (resource, flags, offset, bytes))| {
        let flags = RangedFlags::from_bits_retain(flags);
        RangedBarrier { barrier, resource, flags, offset, bytes }
    })
}

fn group() -> impl Strategy<Value = BarrierGroup> {
    prop_oneof![
        several(barrier(), 0..4).prop_map(BarrierGroup::Global),
        several(texture_barrier(), 0..4).prop_map(BarrierGroup::Texture),
        several(buffer_barrier(), 0..4).prop_map(BarrierGroup::Buffer),
        several(ranged_barrier(), 0..4).prop_map(BarrierGroup::Ranged),
        (4u32.., any::<u32>()).prop_map(|(kind, barriers)| BarrierGroup::Unknown { kind, barriers }),
    ]
}

fn a_use() -> impl Strategy<Value = Use> {
    (any::<[u32; 4]>(), any::<[u64; 2]>(), 0..16u32).prop_map(|(words, longs, flags)| Use {
        resource: words[0],
        access: BarrierAccess::from_bits_retain(words[1]),
        first_subresource: words[2],
        count: words[3],
        offset: longs[0],
        bytes: longs[1],
        flags: UseFlags::from_bits_retain(flags),
    })
}

fn legacy() -> impl Strategy<Value = LegacyBarrier> {
    (0..3, any::<[u32; 5]>()).prop_map(|(kind, [flags, resource, second, before, after])| {
        let flags = LegacyFlags::from_bits_retain(flags);
        let (state_before, state_after) =
            (LegacyState::from_bits_retain(before), LegacyState::from_bits_retain(after));
        match kind {
            0 => LegacyBarrier::Transition {
                flags,
                resource,
                subresource: second,
                before: state_before,
                after: state_after,
            },
            1 => LegacyBarrier::Aliasing { flags, before: resource, after: second },
            _ => LegacyBarrier::UnorderedAccess { flags, resource },
        }
    })
}

fn fence() -> impl Strategy<Value = FenceValue> {
    any::<(u64, u64)>().prop_map(|(gpu_address, value)| FenceValue { gpu_address, value })
}

fn packet() -> impl Strategy<Value = Packet> {
    let pair = any::<(u64, u64)>();
    prop_oneof![
        pair.prop_map(|(gpu_address, value)| Packet::FenceWrite { gpu_address, value }),
        any::<u64>().prop_map(|duration_ns| Packet::Busy { duration_ns }),
        Just(Packet::Hang),
        pair.prop_map(|(gpu_address, value)| Packet::FenceWait { gpu_address, value }),
        pair.prop_map(|(gpu_address, value)| Packet::MarkerIn { gpu_address, value }),
        pair.prop_map(|(gpu_address, value)| Packet::MarkerOut { gpu_address, value }),
        (select(&QueueType::ALL[..]), any::<bool>(), "\\PC{0,20}").prop_map(|(queue, bundle, name)| {
            let flags = if bundle { ListFlags::BUNDLE } else { ListFlags::empty() };
            Packet::BeginList { queue, flags, name }
        }),
        (select(WorkKind::ALL), select(Kernel::ALL), any::<(u32, u64)>(), several(a_use(), 0..5)).prop_map(
            |(kind, kernel, (operand, duration_ns), uses)| {
                Packet::Work { kind, kernel, operand, duration_ns, uses }
            }
        ),
        several(group(), 0..4).prop_map(|groups| Packet::Barrier { groups }),
        several(legacy(), 0..4).prop_map(|barriers| Packet::LegacyBarrier { barriers }),
        (fence(), several(group(), 0..3)).prop_map(|(fence, groups)| Packet::SignalBarrier { fence, groups }),
        (several(fence(), 0..3), several(group(), 0..3))
            .prop_map(|(fences, groups)| Packet::WaitBarrier { fences, groups }),
        any::<[u32; 3]>().prop_map(|[resource, subresource, access]| Packet::AssertResourceAccess {
            resource,
            subresource,
            access: BarrierAccess::from_bits_retain(access),
        }),
        any::<[u32; 3]>().prop_map(|[resource, subresource, layout]| Packet::AssertTextureLayout {
            resource,
            subresource,
            layout: BarrierLayout(layout),
        }),
        any::<u64>().prop_map(|gpu_address| Packet::Timestamp { gpu_address }),
        any::<(u64, u64)>()
            .prop_map(|(gpu_address, destination)| Packet::FenceRead { gpu_address, destination }),
    ]
}

proptest! {
    #[test]
    fn packets_survive_a_round_trip(packets in several(packet(), 0..8)) {
        prop_assert_eq!(decode(&encode(&packets)), Ok(CommandBuffer::Packets(packets)));
    }

    #[test]
    fn decoded_packets_encode_to_the_same_bytes_and_decoding_never_panics(
        packets in several(packet(), 1..4),
        changes in several((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = encode(&packets);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(CommandBuffer::Packets(read)) = decode(&bytes) {
            prop_assert_eq!(encode(&read), bytes);
        }
    }

    #[test]
    fn a_cut_is_always_refused(packets in several(packet(), 1..3), at in any::<proptest::sample::Index>()) {
        let mut bytes = encode(&packets);
        bytes.truncate(8 + at.index(bytes.len() - 8));
        prop_assert!(decode(&bytes).is_err());
        // Also if the header has the new length, unless the cut is between two packets.
        let length = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        if let Ok(CommandBuffer::Packets(read)) = decode(&bytes) {
            prop_assert_eq!(&read[..], &packets[..read.len()]);
        }
    }
}

#[test]
fn an_error_names_the_byte_and_what_is_wrong_with_it() {
    let list = |name: &str| Packet::BeginList {
        queue: QueueType::Copy,
        flags: ListFlags::empty(),
        name: name.into(),
    };
    let mut bytes = encode(&[list("upload"), Packet::Hang]);
    bytes[16] = 1;
    let bundle = IsaError::Word { offset: 16, what: "type of a list", value: 1 };
    assert_eq!(decode(&bytes), Err(bundle));
    assert_eq!(format!("{bundle}"), "byte 16 of the command buffer: the type of a list cannot be 0x1");

    let long = encode(&[list(&"x".repeat(LIST_NAME_BYTES_MAX + 1))]);
    assert_eq!(decode(&long), Err(IsaError::Count { offset: 24, what: "bytes of a name", count: 257 }));
    assert!(decode(&encode(&[list(&"x".repeat(LIST_NAME_BYTES_MAX))])).is_ok());

    let uses = vec![Use::whole(1, BarrierAccess::COPY_SOURCE)];
    let work = Packet::Work { kind: WorkKind::Copy, kernel: Kernel::Copy, operand: 0, duration_ns: 1, uses };
    let mut bytes = encode(&[Packet::Hang, work]);
    bytes[16 + 20] = 2;
    assert_eq!(decode(&bytes), Err(IsaError::Count { offset: 36, what: "uses of a command", count: 2 }));
    bytes[16 + 20] = 1;
    bytes[16 + 32 + 36] = 9;
    assert_eq!(decode(&bytes), Err(IsaError::Word { offset: 84, what: "reserved word", value: 9 }));
}

#[test]
fn a_group_of_an_unknown_type_is_kept_for_the_validator() {
    let groups = vec![BarrierGroup::Unknown { kind: 9, barriers: 3 }, BarrierGroup::Global(vec![])];
    let packets = vec![Packet::Barrier { groups }];
    assert_eq!(decode(&encode(&packets)), Ok(CommandBuffer::Packets(packets)));
}

/// A texture of every kind: subresources neither overlap nor leave a hole.
#[test]
fn subresources_are_packed_in_the_order_of_their_index() {
    let base = ResourceDesc::texture("t", 0x1000, (20, 7));
    let volume = ResourceDesc { kind: ResourceKind::Texture3D, depth: 9, mips: 5, ..base };
    let array = ResourceDesc { mips: 3, array_size: 4, planes: 2, ..base };
    let line = ResourceDesc { kind: ResourceKind::Texture1D, height: 1, array_size: 3, ..base };
    for desc in [base, volume, array, line].map(ResourceDesc::with_packed_bytes) {
        assert_eq!(desc.check(), Ok(()));
        let mut at = 0;
        for index in 0..desc.subresources() {
            let (offset, bytes) = desc.subresource(index).unwrap();
            assert_eq!(offset, at, "{desc:?} {index}");
            at += bytes;
        }
        assert_eq!(at, desc.bytes);
        assert_eq!(desc.subresource(desc.subresources()), None);
    }
    assert_eq!(volume.subresource(0), Some((0, 20 * 7 * 9 * 4)));
    assert_eq!(volume.subresource(4).map(|(_, bytes)| bytes), Some(4), "1 by 1 by 1");
    assert_eq!(array.subresource_index(1, 2, 1), 1 + (2 + 4) * 3);
}

#[test]
fn a_resource_says_what_is_wrong_with_it() {
    let right = ResourceDesc { mips: 3, ..ResourceDesc::texture("albedo", 0x1000, (16, 16)) };
    let right = right.with_packed_bytes();
    assert_eq!(ResourceDesc::decode(&right.encode()), Ok(right));
    let wrong = |desc: ResourceDesc| format!("{}", ResourceDesc::decode(&desc.encode()).unwrap_err());
    assert_eq!(
        wrong(ResourceDesc { mips: 6, ..right }),
        "the resource's mips is 0x6; it must be one for each halving at most"
    );
    assert_eq!(
        wrong(ResourceDesc { bytes: right.bytes - 1, ..right }),
        "the resource's subresources need 1344 bytes, but it has 1343"
    );
    assert_eq!(
        wrong(ResourceDesc { array_size: u32::MAX, ..right }),
        "the resource's array size is 0xffffffff; it must be 1 to 2048"
    );
    let mut bytes = right.encode();
    bytes[64] = 0xFF;
    assert_eq!(ResourceDesc::decode(&bytes), Err(DescError::Name));
    assert_eq!(ResourceDesc::decode(&bytes[1..]), Err(DescError::Length { actual: 95 }));
}

proptest! {
    #[test]
    fn whatever_describes_a_resource_its_places_are_inside_of_it(data in several(any::<u8>(), 96..97)) {
        if let Ok(desc) = ResourceDesc::decode(&data) {
            let last = desc.subresource(desc.subresources() - 1).unwrap();
            prop_assert!(last.0 + last.1 <= desc.bytes);
        }
    }

    #[test]
    fn resources_survive_a_round_trip(
        (width, height, mips, slices, planes) in (1..300u32, 1..300u32, 1..9u32, 1..9u32, 1..4u32),
        texel_bytes in 1..17u32, flags in 0..0x200u32, name in "\\PC{0,40}",
    ) {
        let desc = ResourceDesc {
            mips, array_size: slices, planes, texel_bytes, flags: ResourceFlags::from_bits_retain(flags),
            ..ResourceDesc::texture(&name, 64, (width, height))
        }.with_packed_bytes();
        let read = ResourceDesc::decode(&desc.encode());
        match desc.check() {
            Ok(()) => prop_assert_eq!(read, Ok(desc)),
            Err(error) => prop_assert_eq!(read, Err(error)),
        }
        prop_assert!(name.starts_with(desc.name.as_ref()));
    }

    /// Any numbers at all: no panic.
    #[test]
    fn placement_never_panics(words in any::<[u32; 8]>(), index in any::<u32>()) {
        let [width, height, depth, mips, array_size, planes, texel_bytes, kind] = words;
        let kind = ResourceKind::ALL[kind as usize % 4];
        let desc = ResourceDesc {
            kind, width, height, depth, mips, array_size, planes, texel_bytes, ..ResourceDesc::buffer("", 1, 1)
        };
        let _ = (desc.check(), desc.subresource(index), desc.with_packed_bytes());
        desc.subresource_index(index, width, height);
    }
}
