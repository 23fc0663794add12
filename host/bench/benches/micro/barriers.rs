//! The debug layer of command lists alone.
//!
//! Shaped like a frame: for each of many buffers and textures an upload, a barrier, a draw that reads it, a barrier
//! back. Half of the packets are barriers. Submissions of 1000 commands each go through `Device::submit`, including
//! decoding.

use barriers::{Capabilities, Device, Policy};
use d3dkmt::isa::{
    self, Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout as L, BarrierSync as S, BufferBarrier,
    Kernel, Packet, QueueType, Reader, ResourceDesc, ResourceFlags, SubresourceRange, TextureBarrier,
    TextureFlags, Use, WorkKind,
};
use divan::Bencher;
use divan::counter::ItemsCount;

const RESOURCES: u32 = 125;

fn words(sync_before: S, sync_after: S, access_before: A, access_after: A) -> Barrier {
    Barrier { sync_before, sync_after, access_before, access_after }
}

fn work(kind: WorkKind, resource: u32, access: A) -> Packet {
    let uses = vec![Use::whole(resource, access)];
    Packet::Work { kind, kernel: Kernel::None, operand: 0, duration_ns: 1, uses }
}

fn texture(resource: u32, barrier: Barrier, layout_before: L, layout_after: L) -> Packet {
    let (flags, subresources) = (TextureFlags::empty(), SubresourceRange::ALL);
    let texture = TextureBarrier { barrier, layout_before, layout_after, resource, flags, subresources };
    Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![texture])] }
}

fn buffer(resource: u32, barrier: Barrier) -> Packet {
    let buffer = BufferBarrier { barrier, resource, offset: 0, bytes: u64::MAX };
    Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![buffer])] }
}

/// 1000 packets.
fn submission() -> Vec<u8> {
    let upload = words(S::COPY, S::DRAW, A::COPY_DEST, A::SHADER_RESOURCE);
    let reverse = words(S::DRAW, S::COPY, A::SHADER_RESOURCE, A::COPY_DEST);
    let mut packets = Vec::new();
    for id in 1..=RESOURCES {
        packets.push(work(WorkKind::Copy, id, A::COPY_DEST));
        packets.push(texture(id, upload, L::COMMON, L::SHADER_RESOURCE));
        packets.push(work(WorkKind::Draw, id, A::SHADER_RESOURCE));
        packets.push(texture(
            id,
            words(S::DRAW, S::COPY, A::SHADER_RESOURCE, A::COPY_DEST),
            L::SHADER_RESOURCE,
            L::COMMON,
        ));
        packets.push(work(WorkKind::Copy, RESOURCES + id, A::COPY_DEST));
        packets.push(buffer(RESOURCES + id, upload));
        packets.push(work(WorkKind::Draw, RESOURCES + id, A::SHADER_RESOURCE));
        packets.push(buffer(RESOURCES + id, reverse));
    }
    isa::encode(&packets)
}

#[divan::bench]
fn commands_judged(bencher: Bencher) {
    let mut device = Device::new(Capabilities::default(), Policy::default());
    let flags = ResourceFlags::ALLOW_UNORDERED_ACCESS;
    for id in 1..=RESOURCES {
        let desc = ResourceDesc { flags, mips: 5, ..ResourceDesc::texture("texture", 1 << 30, (16, 16)) };
        device.add_resource(id, desc.with_packed_bytes()).expect("a texture");
        let desc = ResourceDesc { flags, ..ResourceDesc::buffer("buffer", 1 << 31, 4096) };
        device.add_resource(RESOURCES + id, desc).expect("a buffer");
    }
    let bytes = submission();
    let reader = Reader::new(&bytes).expect("a header").expect("the magic");
    bencher.counter(ItemsCount::new(reader.clone().count())).bench_local(|| {
        let outcome = device.submit(QueueType::Direct, &reader).expect("packets");
        assert_eq!(outcome.messages.total(), 0, "{:#?}", outcome.messages);
    });
}
