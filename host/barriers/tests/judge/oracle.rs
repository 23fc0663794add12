//! Every sync with every access in every layout on every kind of queue, on either side of a barrier, against an oracle
//! that knows the published tables as text and nothing else.

use covers::covers;

use crate::world::{World, id_of, severity_of};
use barriers::{Phase, Rule, Severity};
use d3dkmt::isa::{
    Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, Packet, QueueType, ResourceFlags,
    SubresourceRange, TextureBarrier, TextureFlags,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

const SYNCS: &str = "NONE=0 ALL=1 DRAW=2 INDEX_INPUT=4 VERTEX_SHADING=8 PIXEL_SHADING=10 DEPTH_STENCIL=20 \
    RENDER_TARGET=40 COMPUTE_SHADING=80 RAYTRACING=100 COPY=200 RESOLVE=400 EXECUTE_INDIRECT=800 \
    ALL_SHADING=1000 NON_PIXEL_SHADING=2000 EMIT_RTAS_POSTBUILD_INFO=4000 CLEAR_UNORDERED_ACCESS_VIEW=8000 \
    VIDEO_DECODE=100000 VIDEO_PROCESS=200000 VIDEO_ENCODE=400000 BUILD_RTAS=800000 COPY_RTAS=1000000 \
    SPLIT=80000000";

const ACCESSES: &str = "COMMON=0 VERTEX_BUFFER=1 CONSTANT_BUFFER=2 INDEX_BUFFER=4 RENDER_TARGET=8 \
    UNORDERED_ACCESS=10 DEPTH_STENCIL_WRITE=20 DEPTH_STENCIL_READ=40 SHADER_RESOURCE=80 STREAM_OUTPUT=100 \
    INDIRECT_ARGUMENT=200 COPY_DEST=400 COPY_SOURCE=800 RESOLVE_DEST=1000 RESOLVE_SOURCE=2000 RTAS_READ=4000 \
    RTAS_WRITE=8000 SHADING_RATE_SOURCE=10000 VIDEO_DECODE_READ=20000 VIDEO_DECODE_WRITE=40000 \
    VIDEO_PROCESS_READ=80000 VIDEO_PROCESS_WRITE=100000 VIDEO_ENCODE_READ=200000 VIDEO_ENCODE_WRITE=400000 \
    GLOBAL=40000000 NO_ACCESS=80000000";

/// Umbrella: the syncs that it contains. ALL contains everything.
const UMBRELLAS: &str = "\
DRAW: INDEX_INPUT VERTEX_SHADING PIXEL_SHADING DEPTH_STENCIL RENDER_TARGET
ALL_SHADING: VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING RAYTRACING
NON_PIXEL_SHADING: VERTEX_SHADING COMPUTE_SHADING RAYTRACING";

/// Access: its permitted syncs, as published.
const SYNCS_OF_ACCESS: &str = "\
VERTEX_BUFFER: ALL VERTEX_SHADING DRAW ALL_SHADING
CONSTANT_BUFFER: ALL VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING DRAW ALL_SHADING
INDEX_BUFFER: ALL INDEX_INPUT DRAW
RENDER_TARGET: ALL DRAW RENDER_TARGET
UNORDERED_ACCESS: ALL VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING DRAW ALL_SHADING CLEAR_UNORDERED_ACCESS_VIEW \
EMIT_RTAS_POSTBUILD_INFO RAYTRACING
DEPTH_STENCIL_WRITE: ALL DRAW DEPTH_STENCIL
DEPTH_STENCIL_READ: ALL DRAW DEPTH_STENCIL
SHADER_RESOURCE: ALL VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING DRAW ALL_SHADING BUILD_RTAS RAYTRACING
STREAM_OUTPUT: ALL VERTEX_SHADING DRAW ALL_SHADING
INDIRECT_ARGUMENT: ALL EXECUTE_INDIRECT
COPY_DEST: ALL COPY
COPY_SOURCE: ALL COPY
RESOLVE_DEST: ALL RESOLVE
RESOLVE_SOURCE: ALL RESOLVE
RTAS_READ: ALL COMPUTE_SHADING RAYTRACING ALL_SHADING BUILD_RTAS COPY_RTAS EMIT_RTAS_POSTBUILD_INFO
RTAS_WRITE: ALL COMPUTE_SHADING RAYTRACING ALL_SHADING BUILD_RTAS COPY_RTAS
SHADING_RATE_SOURCE: ALL PIXEL_SHADING ALL_SHADING
VIDEO_DECODE_READ: ALL VIDEO_DECODE
VIDEO_DECODE_WRITE: ALL VIDEO_DECODE
VIDEO_PROCESS_READ: ALL VIDEO_PROCESS
VIDEO_PROCESS_WRITE: ALL VIDEO_PROCESS
VIDEO_ENCODE_READ: ALL VIDEO_ENCODE
VIDEO_ENCODE_WRITE: ALL VIDEO_ENCODE";

/// Number, layout: accesses; queues (Direct, Compute, copY, Decode.. are v, p, e).
const LAYOUTS: &str = "\
0 COMMON: SHADER_RESOURCE COPY_DEST COPY_SOURCE; D C Y v p e
1 GENERIC_READ: SHADER_RESOURCE COPY_SOURCE; D C
2 RENDER_TARGET: RENDER_TARGET; D
3 UNORDERED_ACCESS: UNORDERED_ACCESS; D C
4 DEPTH_STENCIL_WRITE: DEPTH_STENCIL_READ DEPTH_STENCIL_WRITE; D
5 DEPTH_STENCIL_READ: DEPTH_STENCIL_READ; D
6 SHADER_RESOURCE: SHADER_RESOURCE; D C
7 COPY_SOURCE: COPY_SOURCE; D C
8 COPY_DEST: COPY_DEST; D C
9 RESOLVE_SOURCE: RESOLVE_SOURCE; D
10 RESOLVE_DEST: RESOLVE_DEST; D
11 SHADING_RATE_SOURCE: SHADING_RATE_SOURCE; D
12 VIDEO_DECODE_READ: VIDEO_DECODE_READ; v
13 VIDEO_DECODE_WRITE: VIDEO_DECODE_WRITE; v
14 VIDEO_PROCESS_READ: VIDEO_PROCESS_READ; p
15 VIDEO_PROCESS_WRITE: VIDEO_PROCESS_WRITE; p
16 VIDEO_ENCODE_READ: VIDEO_ENCODE_READ; e
17 VIDEO_ENCODE_WRITE: VIDEO_ENCODE_WRITE; e
18 DIRECT_QUEUE_COMMON: COPY_SOURCE COPY_DEST SHADER_RESOURCE UNORDERED_ACCESS; D
19 DIRECT_QUEUE_GENERIC_READ: SHADER_RESOURCE COPY_SOURCE DEPTH_STENCIL_READ SHADING_RATE_SOURCE RESOLVE_SOURCE; D
20 DIRECT_QUEUE_UNORDERED_ACCESS: UNORDERED_ACCESS; D
21 DIRECT_QUEUE_SHADER_RESOURCE: SHADER_RESOURCE; D
22 DIRECT_QUEUE_COPY_SOURCE: COPY_SOURCE; D
23 DIRECT_QUEUE_COPY_DEST: COPY_DEST; D
24 COMPUTE_QUEUE_COMMON: COPY_SOURCE COPY_DEST SHADER_RESOURCE UNORDERED_ACCESS; C
25 COMPUTE_QUEUE_GENERIC_READ: SHADER_RESOURCE COPY_SOURCE; C
26 COMPUTE_QUEUE_UNORDERED_ACCESS: UNORDERED_ACCESS; C
27 COMPUTE_QUEUE_SHADER_RESOURCE: SHADER_RESOURCE; C
28 COMPUTE_QUEUE_COPY_SOURCE: COPY_SOURCE; C
29 COMPUTE_QUEUE_COPY_DEST: COPY_DEST; C
30 VIDEO_QUEUE_COMMON: ;
31 DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE: SHADER_RESOURCE COPY_SOURCE DEPTH_STENCIL_READ \
SHADING_RATE_SOURCE RESOLVE_SOURCE; D C";

/// Additional accesses that COMMON permits for a simultaneous-access texture.
const SIMULTANEOUS: &str = "RENDER_TARGET UNORDERED_ACCESS RESOLVE_DEST RESOLVE_SOURCE";

/// Queue: accesses; syncs.
const QUEUES: &str = "\
D: VERTEX_BUFFER CONSTANT_BUFFER INDEX_BUFFER RENDER_TARGET UNORDERED_ACCESS DEPTH_STENCIL_WRITE \
DEPTH_STENCIL_READ SHADER_RESOURCE STREAM_OUTPUT INDIRECT_ARGUMENT COPY_DEST COPY_SOURCE RESOLVE_DEST \
RESOLVE_SOURCE RTAS_READ RTAS_WRITE SHADING_RATE_SOURCE; ALL DRAW INDEX_INPUT VERTEX_SHADING PIXEL_SHADING \
DEPTH_STENCIL RENDER_TARGET COMPUTE_SHADING RAYTRACING COPY RESOLVE EXECUTE_INDIRECT ALL_SHADING \
NON_PIXEL_SHADING BUILD_RTAS COPY_RTAS EMIT_RTAS_POSTBUILD_INFO CLEAR_UNORDERED_ACCESS_VIEW SPLIT
C: CONSTANT_BUFFER UNORDERED_ACCESS SHADER_RESOURCE INDIRECT_ARGUMENT COPY_DEST COPY_SOURCE RTAS_READ \
RTAS_WRITE; ALL COMPUTE_SHADING RAYTRACING COPY EXECUTE_INDIRECT ALL_SHADING NON_PIXEL_SHADING BUILD_RTAS \
COPY_RTAS EMIT_RTAS_POSTBUILD_INFO CLEAR_UNORDERED_ACCESS_VIEW SPLIT
Y: COPY_DEST COPY_SOURCE; ALL COPY SPLIT
v: VIDEO_DECODE_READ VIDEO_DECODE_WRITE; ALL VIDEO_DECODE SPLIT
p: VIDEO_PROCESS_READ VIDEO_PROCESS_WRITE; ALL VIDEO_PROCESS SPLIT
e: VIDEO_ENCODE_READ VIDEO_ENCODE_WRITE; ALL VIDEO_ENCODE SPLIT";

/// `NAME=hex` pairs.
fn values(text: &'static str) -> Vec<(&'static str, u32)> {
    let pair = |pair: &'static str| pair.split_once('=').expect("a value");
    text.split_whitespace()
        .map(pair)
        .map(|(name, value)| (name, u32::from_str_radix(value, 16).unwrap()))
        .collect()
}

/// Names by table and row: nothing but the texts above, split.
type Rows = HashMap<(usize, &'static str), &'static str>;

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let heads = [UMBRELLAS, SYNCS_OF_ACCESS, LAYOUTS, QUEUES].into_iter().flat_map(|table| {
        let rows = table.lines().map(|line| line.split_once(':').expect("a row"));
        rows.map(move |(head, rest)| ((table.as_ptr() as usize, head.rsplit(' ').next().unwrap()), rest))
    });
    heads.collect()
});

fn row(table: &'static str, name: &'static str) -> &'static str {
    ROWS.get(&(table.as_ptr() as usize, name)).copied().unwrap_or_default()
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|one| one == name)
}

/// A row of LAYOUTS: accesses and queues.
fn layout_row(name: &'static str) -> (&'static str, &'static str) {
    row(LAYOUTS, name).split_once(';').expect("a layout")
}

/// One barrier: names, and the side under test.
#[derive(Clone, Copy, Debug)]
struct Case {
    queue: &'static str,
    simultaneous: bool,
    before: bool,
    sync: &'static str,
    access: &'static str,
    /// Layouts of the side under test, and of the other side, which has ALL and COMMON.
    layout: &'static str,
    other_layout: &'static str,
}

type Found = BTreeSet<(Rule, Severity)>;

fn expected(case: &Case) -> Found {
    let mut found = Found::new();
    let mut broken = |rule: Rule| found.insert((rule, severity_of(rule)));
    let Case { queue, access, sync, layout, other_layout, before, .. } = *case;
    if !before || access == "COMMON" && sync != "NONE" {
        broken(Rule::R021);
    }
    if access == "GLOBAL" {
        broken(Rule::R078);
    }
    if sync == "NONE" {
        if access != "NO_ACCESS" {
            broken(if before { Rule::R015 } else { Rule::R016 });
        }
    } else {
        let builds = sync == "BUILD_RTAS" || sync == "COPY_RTAS";
        if builds && !["RTAS_WRITE", "COMMON", "NO_ACCESS"].contains(&access) {
            broken(Rule::R028);
        }
    }
    let (accesses, syncs) = row(QUEUES, queue).split_once(';').unwrap();
    if sync != "NONE" && !has(syncs, sync) {
        let direct = row(QUEUES, "D").split_once(';').unwrap().1;
        broken(if queue == "C" && has(direct, sync) { Rule::R085 } else { Rule::R040 });
    }
    if !["COMMON", "NO_ACCESS", "GLOBAL"].contains(&access) && !has(accesses, access) {
        let video = ["v", "p", "e"].contains(&queue) && !access.starts_with("VIDEO");
        broken(if video { Rule::R087 } else { Rule::R040 });
    }
    for layout in [layout, other_layout] {
        if layout != "UNDEFINED" && !has(layout_row(layout).1, queue) {
            let foreign = (queue == "C" && layout.starts_with("DIRECT_QUEUE_"))
                || (queue == "D" && layout.starts_with("COMPUTE_QUEUE_"));
            broken(if foreign { Rule::R086 } else { Rule::R036 });
        }
    }
    if layout != other_layout {
        let accessible = "DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE";
        if queue == "C" && [layout, other_layout].contains(&accessible) {
            broken(Rule::R037);
        }
        if queue == "Y" {
            broken(Rule::R038);
        }
        let after = if before { other_layout } else { layout };
        if case.simultaneous && after != "COMMON" {
            broken(Rule::R084);
        }
    }
    match pair(case) {
        Pair::Fine => {}
        Pair::Warned => {
            found.insert((Rule::R022, Severity::Warning));
        }
        Pair::Wrong => {
            found.insert((Rule::R022, Severity::Error));
        }
    }
    found.extend(in_layout(case).map(|rule| (rule, severity_of(rule))));
    found
}

enum Pair {
    Fine,
    Warned,
    Wrong,
}

/// Sync against access.
fn pair(case: &Case) -> Pair {
    let Case { sync, access, .. } = *case;
    if ["NONE", "SPLIT"].contains(&sync) || ["COMMON", "NO_ACCESS", "GLOBAL"].contains(&access) {
        return Pair::Fine;
    }
    let right = row(SYNCS_OF_ACCESS, access);
    let below = row(UMBRELLAS, sync);
    if has(right, sync) || below.split_whitespace().any(|sync| has(right, sync)) {
        return Pair::Fine;
    }
    // An inline ray query of a graphics shader, which no published list has.
    let graphics = ["DRAW", "VERTEX_SHADING", "PIXEL_SHADING"].contains(&sync);
    if access == "RTAS_READ" && graphics { Pair::Warned } else { Pair::Wrong }
}

/// Access against layout.
fn in_layout(case: &Case) -> Option<Rule> {
    let Case { access, layout, other_layout, simultaneous, .. } = *case;
    if layout == "UNDEFINED" {
        let one_sided = other_layout != "UNDEFINED" && access != "NO_ACCESS";
        return one_sided.then_some(Rule::R031);
    }
    if ["COMMON", "NO_ACCESS", "GLOBAL"].contains(&access)
        || has(layout_row(layout).0, access)
        || (layout == "COMMON" && simultaneous && has(SIMULTANEOUS, access))
    {
        return None;
    }
    let writes = access.ends_with("WRITE")
        || access.ends_with("DEST")
        || ["RENDER_TARGET", "UNORDERED_ACCESS", "STREAM_OUTPUT"].contains(&access);
    let generic = layout.contains("GENERIC_READ");
    Some(if generic && writes { Rule::R093 } else { Rule::R030 })
}

fn barrier(case: &Case, sync: u32, access: u32, layouts: (u32, u32)) -> TextureBarrier {
    let (sync, access) = (BarrierSync::from_bits_retain(sync), BarrierAccess::from_bits_retain(access));
    let (all, common) = (BarrierSync::from_bits_retain(1), BarrierAccess::from_bits_retain(0));
    let turned = |mine: u32, other: u32| if case.before { (mine, other) } else { (other, mine) };
    let (layout_before, layout_after) = turned(layouts.0, layouts.1);
    TextureBarrier {
        barrier: Barrier {
            sync_before: if case.before { sync } else { all },
            sync_after: if case.before { all } else { sync },
            access_before: if case.before { access } else { common },
            access_after: if case.before { common } else { access },
        },
        layout_before: BarrierLayout(layout_before),
        layout_after: BarrierLayout(layout_after),
        resource: 100 + u32::from(case.simultaneous),
        flags: TextureFlags::empty(),
        subresources: SubresourceRange::ALL,
    }
}

fn layouts() -> Vec<(&'static str, u32)> {
    let number = |line: &'static str| {
        let (number, rest) = line.split_once(' ').unwrap();
        (rest.split_once(':').unwrap().0, number.parse().unwrap())
    };
    LAYOUTS.lines().map(number).chain([("UNDEFINED", u32::MAX)]).collect()
}

/// The cross product for one queue type: 22 syncs and NONE, 25 accesses and COMMON, 33 layouts, two textures, two
/// sides, with the same layout on the other side and with another one.
fn cross(queue: QueueType, letter: &'static str) {
    let mut world = World::new();
    let rtas = ResourceFlags::RAYTRACING_ACCELERATION_STRUCTURE;
    for simultaneous in [false, true] {
        let access =
            if simultaneous { ResourceFlags::ALLOW_SIMULTANEOUS_ACCESS } else { ResourceFlags::empty() };
        let desc = d3dkmt::isa::ResourceDesc {
            flags: rtas | access,
            ..d3dkmt::isa::ResourceDesc::texture("t", 64, (4, 4))
        };
        world.device.add_resource(100 + u32::from(simultaneous), desc).unwrap();
    }
    let mut looked = 0;
    for (sync, sync_bits) in values(SYNCS) {
        for (access, access_bits) in values(ACCESSES) {
            for (layout, layout_value) in layouts() {
                for variant in 0..8 {
                    let (before, simultaneous, same) = (variant & 1 == 0, variant & 2 == 0, variant & 4 == 0);
                    let other = if same { (layout, layout_value) } else { ("COMMON", 0) };
                    let case = Case {
                        queue: letter,
                        simultaneous,
                        before,
                        sync,
                        access,
                        layout,
                        other_layout: other.0,
                    };
                    let texture = barrier(&case, sync_bits, access_bits, (layout_value, other.1));
                    let packet = Packet::Barrier { groups: vec![BarrierGroup::Texture(vec![texture])] };
                    let outcome = world.submit_to(queue, &[packet]);
                    // Others depend on what the barriers before it left.
                    let of_list = outcome.messages.iter().filter(|message| message.phase == Phase::Record);
                    let found: Found = of_list.map(|message| (message.rule, message.severity)).collect();
                    assert_eq!(found, expected(&case), "{case:?}\n{:#?}", outcome.messages);
                    assert!(
                        outcome.messages.iter().all(|message| message.id == id_of(message.rule)),
                        "{case:?}"
                    );
                    looked += 1;
                }
            }
        }
    }
    assert_eq!(looked, 23 * 26 * 33 * 8);
}

#[test]
fn every_barrier_of_a_direct_queue_is_judged_as_published() {
    covers!(
        "BAR-037", "BAR-039", "BAR-040", "BAR-042", "BAR-043", "BAR-047", "BAR-048", "BAR-049", "BAR-053",
        "BAR-110"
    );
    cross(QueueType::Direct, "D");
}

#[test]
fn every_barrier_of_a_compute_queue_is_judged_as_published() {
    covers!("BAR-032", "BAR-033", "BAR-035", "BAR-054", "BAR-102", "BAR-103");
    cross(QueueType::Compute, "C");
}

#[test]
fn every_barrier_of_a_copy_queue_is_judged_as_published() {
    covers!("BAR-055", "BAR-057", "BAR-101");
    cross(QueueType::Copy, "Y");
}

#[test]
fn every_barrier_of_a_video_queue_is_judged_as_published() {
    covers!("BAR-104");
    cross(QueueType::VideoDecode, "v");
    cross(QueueType::VideoProcess, "p");
    cross(QueueType::VideoEncode, "e");
}
