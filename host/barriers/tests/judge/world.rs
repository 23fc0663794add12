//! A device with a few resources, and shorthands for packets.

use barriers::{Capabilities, Device, FenceFlags, Message, Outcome, Policy, Rule, Severity};
use d3dkmt::isa::{
    self, Barrier, BarrierAccess as A, BarrierGroup, BarrierLayout as L, BarrierSync as S, BufferBarrier,
    FenceValue, HeapType, Kernel, LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType,
    Reader, ResourceDesc, ResourceFlags as F, SubresourceRange, TextureBarrier, TextureFlags, Use, WorkKind,
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

    /// A device with a texture in this layout.
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

    /// Checks a submission that waits in hardware. Calls `meanwhile` before each wait, and returns all messages.
    pub fn submit_waiting(
        &mut self,
        packets: &[Packet],
        mut meanwhile: impl FnMut(&mut World),
    ) -> Vec<Message> {
        let bytes = isa::encode(packets);
        let mut reader = Reader::new(&bytes).unwrap().unwrap();
        let waits = |packet: &Packet<isa::Viewed<'_>>| packet.waits_in_hardware();
        let mut outcome = self.device.begin(QueueType::Direct, &reader, &|_| true).expect("packets");
        let mut messages: Vec<Message> = outcome.messages.iter().cloned().collect();
        while outcome.is_suspended {
            // The reader before the next packet that waits.
            let mut here = reader.clone();
            while !waits(&reader.next().expect("a wait").unwrap()) {
                here = reader.clone();
            }
            meanwhile(self);
            outcome = self.device.resume(outcome.submission, &here, &|_| true).expect("it is suspended");
            messages.extend(outcome.messages.iter().cloned());
        }
        messages
    }
}

/// Published severities by rule number: an error if it is in none of these. Rules in FINE are never reported.
const WARNINGS: &str = "3 21 28 56 72 108";
const HAZARDS: &str = "27 60 62 91";
const REMOVES_THE_LIST: &str = "13";
const FINE: &str = "8 9 17 18 20 23 25 26 32 34 42 46 49 55 61 63 79 81 82 88 90 101 103";

/// Rules and their published message ids.
pub const IDS: &str = "1:1343 3:954 4:1335 6:1335 7:1336 10:1340 11:1333 12:1417 13:1341 14:1333 15:1331 16:1331 \
    19:1332 22:1333 24:1333 30:1334 31:1331 33:1436 35:1436 36:1341 39:1431 40:537 41:1333 47:1334 48:1332 52:534 \
    56:1329 64:998 66:741 68:1342 70:1351 71:1350 72:1356 80:1333 86:1341 89:1334 98:1007 99:1007 100:1078 \
    107:1007 108:1424";

/// The severity of a rule, by the text above.
pub fn severity_of(rule: Rule) -> Severity {
    let is_in = |table: &str| table.split(' ').any(|number| number == (rule as u8).to_string());
    let tables = [
        (WARNINGS, Severity::Warning),
        (HAZARDS, Severity::Hazard),
        (REMOVES_THE_LIST, Severity::Removed),
        (FINE, Severity::Fine),
    ];
    tables.iter().find(|(table, _)| is_in(table)).map_or(Severity::Error, |(_, severity)| *severity)
}

/// The message id of a rule, by the text above.
pub fn id_of(rule: Rule) -> Option<u32> {
    let mut ids = IDS.split_whitespace().map(|pair| pair.split_once(':').expect("a pair"));
    let id = ids.find(|(number, _)| *number == (rule as u8).to_string())?.1;
    Some(id.parse().expect("a number"))
}

/// Asserts that a message has the published id and severity of its rule. A policy turns one case of R-022 into a
/// warning.
#[track_caller]
fn check_published(message: &Message) {
    let switched = message.rule == Rule::R022 && message.text.contains("inline ray query");
    if message.rule == Rule::Command || switched {
        return;
    }
    let published = (id_of(message.rule), severity_of(message.rule));
    assert_eq!((message.id, message.severity), published, "{message}");
}

/// The broken rules. Leaves out warnings about AccessBefore COMMON, submissions without work and waits for 0, which
/// most programs here cause.
#[track_caller]
pub fn rules(outcome: &Outcome) -> Vec<Rule> {
    outcome.messages.iter().for_each(check_published);
    let dull = [Rule::R021, Rule::R072, Rule::R108];
    outcome.messages.iter().map(|message| message.rule).filter(|rule| !dull.contains(rule)).collect()
}

/// The only message of a rule.
#[track_caller]
pub fn the(outcome: &Outcome, rule: Rule) -> Message {
    let found: Vec<_> = outcome.messages.iter().filter(|message| message.rule == rule).collect();
    assert_eq!(found.len(), 1, "messages of {rule}: {:#?}", outcome.messages);
    check_published(found[0]);
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

/// A layout, or its name.
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
    buffers(vec![buffer_words(BUFFER, syncs, accesses)])
}

pub fn buffers(barriers: Vec<BufferBarrier>) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Buffer(barriers)] }
}

pub fn global(syncs: &str, accesses: &str) -> Packet {
    Packet::Barrier { groups: vec![BarrierGroup::Global(vec![words(syncs, accesses)])] }
}

/// A transition of all subresources.
pub fn transition(resource: u32, before: LegacyState, after: LegacyState) -> LegacyBarrier {
    LegacyBarrier::Transition { flags: LegacyFlags::empty(), resource, subresource: u32::MAX, before, after }
}

pub fn legacy(barrier: LegacyBarrier) -> Packet {
    Packet::LegacyBarrier { barriers: vec![barrier] }
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
