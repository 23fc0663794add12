//! A device with a few resources, and short words for packets.

use barriers::{Capabilities, Device, FenceFlags, Message, Outcome, Policy, Rule, Severity};
use d3dkmt::isa::{
    self, Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout as L, BarrierSync as S, BufferBarrier,
    FenceValue, HeapType, Kernel, ListFlags, Packet, QueueType, Reader, ResourceDesc, ResourceFlags as F,
    SubresourceRange, TextureBarrier, TextureFlags, Use, WorkKind,
};

/// Textures: one of four subresources, one with simultaneous access, the back buffer.
pub const TEXTURE: u32 = 1;
pub const SHARED: u32 = 2;
pub const BACK: u32 = 3;
/// Buffers: in a default heap, upload, readback, for acceleration structures.
pub const BUFFER: u32 = 4;
pub const UPLOAD: u32 = 5;
pub const READBACK: u32 = 6;
pub const RTAS: u32 = 7;

pub const FENCE: u64 = 0x9000;

pub struct World {
    pub device: Device,
}

pub fn desc(id: u32) -> ResourceDesc {
    let everything = F::ALLOW_RENDER_TARGET | F::ALLOW_UNORDERED_ACCESS | F::ALLOW_DEPTH_STENCIL;
    let rtas = F::RAYTRACING_ACCELERATION_STRUCTURE;
    let address = u64::from(id) << 20;
    let texture = |name, flags| ResourceDesc { flags, ..ResourceDesc::texture(name, address, (16, 16)) };
    let buffer =
        |name, heap, flags| ResourceDesc { heap, flags, ..ResourceDesc::buffer(name, address, 4096) };
    match id {
        TEXTURE => {
            let whole = texture("albedo", everything);
            ResourceDesc { mips: 2, array_size: 2, ..whole }.with_packed_bytes()
        }
        SHARED => texture("shared", everything | F::ALLOW_SIMULTANEOUS_ACCESS),
        BACK => texture("back buffer", everything),
        BUFFER => buffer("vertices", HeapType::Default, everything),
        UPLOAD => buffer("upload", HeapType::Upload, everything),
        READBACK => buffer("readback", HeapType::Readback, everything),
        _ => buffer("scene", HeapType::Default, everything | rtas),
    }
}

impl World {
    pub fn new() -> Self {
        World::with(Capabilities::default(), Policy::default())
    }

    pub fn policy(policy: Policy) -> Self {
        World::with(Capabilities::default(), policy)
    }

    pub fn with(capabilities: Capabilities, policy: Policy) -> Self {
        let mut device = Device::new(capabilities, policy);
        for id in TEXTURE..=RTAS {
            device.add_resource(id, desc(id)).expect("a resource");
        }
        World { device }
    }

    /// A device on which a texture is in a layout already.
    pub fn in_layout(layout: L) -> Self {
        let mut world = World::new();
        let packets = [textures(vec![texture(
            TEXTURE,
            "NONE -> NONE",
            "NO_ACCESS -> NO_ACCESS",
            ("UNDEFINED", layout),
        )])];
        assert_eq!(rules(&world.submit(&packets)), []);
        world
    }

    pub fn fence(&mut self, allow_queue_and_cpu_sync: bool) {
        let flags = FenceFlags {
            allow_command_list_barriers: true,
            allow_queue_and_cpu_sync,
            ..FenceFlags::default()
        };
        self.device.add_fence(FENCE, flags, "progress", 0).expect("a fence");
    }

    pub fn submit(&mut self, packets: &[Packet]) -> Outcome {
        self.submit_to(QueueType::Direct, packets)
    }

    pub fn submit_to(&mut self, queue: QueueType, packets: &[Packet]) -> Outcome {
        let bytes = isa::encode(packets);
        self.device.submit(queue, &Reader::new(&bytes).unwrap().unwrap()).expect("packets")
    }

    pub fn record(&mut self, packets: &[Packet]) -> Outcome {
        self.record_to(QueueType::Direct, packets)
    }

    pub fn record_to(&mut self, queue: QueueType, packets: &[Packet]) -> Outcome {
        let bytes = isa::encode(packets);
        self.device.record(queue, &Reader::new(&bytes).unwrap().unwrap()).expect("packets")
    }
}

/// The rules that were broken, without warnings of AccessBefore COMMON and of submissions that do no work, which most
/// programs here have.
pub fn rules(outcome: &Outcome) -> Vec<Rule> {
    let dull = [Rule::R021, Rule::R072];
    outcome.messages.iter().map(|message| message.rule).filter(|rule| !dull.contains(rule)).collect()
}

/// The one message of a rule.
#[track_caller]
pub fn the(outcome: &Outcome, rule: Rule) -> Message {
    let found: Vec<_> = outcome.messages.iter().filter(|message| message.rule == rule).collect();
    assert_eq!(found.len(), 1, "messages of {rule}: {:#?}", outcome.messages);
    assert!(found[0].severity > Severity::Fine);
    found[0].clone()
}

fn sync(names: &str) -> S {
    let one = |name: &str| match name {
        "NONE" => S::NONE,
        name => S::from_name(name).unwrap_or_else(|| panic!("no sync {name}")),
    };
    names.split('|').map(|name| one(name.trim())).fold(S::NONE, |sum, bit| sum | bit)
}

pub fn access(names: &str) -> A {
    let one = |name: &str| match name {
        "COMMON" => A::COMMON,
        name => A::from_name(name).unwrap_or_else(|| panic!("no access {name}")),
    };
    names.split('|').map(|name| one(name.trim())).fold(A::COMMON, |sum, bit| sum | bit)
}

/// A layout, by its name or itself.
pub trait Named {
    fn layout(self) -> L;
}

impl Named for L {
    fn layout(self) -> L {
        self
    }
}

impl Named for &str {
    fn layout(self) -> L {
        L::ALL.iter().find(|(_, name)| *name == self).unwrap_or_else(|| panic!("no layout {self}")).0
    }
}

/// `"COPY -> DRAW"`, `"COPY_DEST -> SHADER_RESOURCE"`.
pub fn words(syncs: &str, accesses: &str) -> Barrier {
    let (before, after) = syncs.split_once("->").expect("an arrow");
    let (from, to) = accesses.split_once("->").expect("an arrow");
    Barrier {
        sync_before: sync(before),
        sync_after: sync(after),
        access_before: access(from),
        access_after: access(to),
    }
}

pub fn texture<B: Named, T: Named>(
    resource: u32,
    syncs: &str,
    accesses: &str,
    (before, after): (B, T),
) -> TextureBarrier {
    TextureBarrier {
        barrier: words(syncs, accesses),
        layout_before: before.layout(),
        layout_after: after.layout(),
        resource,
        flags: TextureFlags::empty(),
        subresources: SubresourceRange::ALL,
    }
}

pub fn textures(barriers: Vec<TextureBarrier>) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Texture(barriers)] }
}

/// One texture barrier in a packet.
pub fn move_to<B: Named, T: Named>(syncs: &str, accesses: &str, layouts: (B, T)) -> Packet {
    textures(vec![texture(TEXTURE, syncs, accesses, layouts)])
}

pub fn buffer_words(resource: u32, syncs: &str, accesses: &str) -> BufferBarrier {
    BufferBarrier { barrier: words(syncs, accesses), resource, offset: 0, bytes: u64::MAX }
}

/// One buffer barrier in a packet.
pub fn buffer(syncs: &str, accesses: &str) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Buffer(vec![buffer_words(BUFFER, syncs, accesses)])] }
}

pub fn global(syncs: &str, accesses: &str) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Global(vec![words(syncs, accesses)])] }
}

pub fn list(name: &str) -> Packet {
    Packet::BeginList { queue: QueueType::Direct, flags: ListFlags::empty(), name: name.into() }
}

pub fn work(kind: WorkKind, uses: Vec<Use>) -> Packet {
    Packet::Work { kind, kernel: Kernel::None, operand: 0, duration_ns: 10, uses }
}

/// A command that uses all of one resource.
pub fn uses(kind: WorkKind, resource: u32, names: &str) -> Packet {
    work(kind, vec![Use::whole(resource, access(names))])
}

pub fn range(resource: u32, names: &str, offset: u64, bytes: u64) -> Use {
    Use::range(resource, access(names), offset, bytes)
}

pub fn value(value: u64) -> FenceValue {
    FenceValue { gpu_address: FENCE, value }
}
