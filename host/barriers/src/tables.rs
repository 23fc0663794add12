//! The published tables, as data: which access needs which sync, which layout allows which access, and what each queue
//! type may use. Source: D3D12EnhancedBarriers, sections on access, layout and queue compatibility.

use serde::{Deserialize, Serialize};

use crate::policy::{Policy, VideoQueueCommon};
use crate::state::is_rtas_by_state;
use d3dkmt::isa::{
    BarrierAccess as A, BarrierLayout as L, BarrierSync as S, HeapType, QueueType, ResourceDesc,
    ResourceFlags as F, ScopeReading, WorkKind, other_scopes,
};

/// Joins bits in a constant.
macro_rules! bits {
    ($type:ident: $($name:ident)*) => { $type::empty()$(.union($type::$name))* };
}

/// The syncs permitted with an access, without umbrellas, which are expanded before a comparison. Where the published
/// lists disagree, this is their union. COMMON, NO_ACCESS and GLOBAL are permitted with all.
pub fn syncs_of(access: A) -> S {
    match access {
        A::VERTEX_BUFFER => S::VERTEX_SHADING,
        A::CONSTANT_BUFFER => bits!(S: VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING),
        A::INDEX_BUFFER => S::INDEX_INPUT,
        A::RENDER_TARGET => S::RENDER_TARGET,
        A::UNORDERED_ACCESS => bits!(S: VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING
            CLEAR_UNORDERED_ACCESS_VIEW EMIT_RTAS_POSTBUILD_INFO RAYTRACING),
        A::DEPTH_STENCIL_WRITE | A::DEPTH_STENCIL_READ => S::DEPTH_STENCIL,
        A::SHADER_RESOURCE => {
            bits!(S: VERTEX_SHADING PIXEL_SHADING COMPUTE_SHADING BUILD_RTAS RAYTRACING)
        }
        A::STREAM_OUTPUT => S::VERTEX_SHADING,
        A::INDIRECT_ARGUMENT => S::EXECUTE_INDIRECT,
        A::COPY_DEST | A::COPY_SOURCE => S::COPY,
        A::RESOLVE_DEST | A::RESOLVE_SOURCE => S::RESOLVE,
        A::RTAS_READ => {
            bits!(S: COMPUTE_SHADING RAYTRACING BUILD_RTAS COPY_RTAS EMIT_RTAS_POSTBUILD_INFO)
        }
        A::RTAS_WRITE => bits!(S: COMPUTE_SHADING RAYTRACING BUILD_RTAS COPY_RTAS),
        A::SHADING_RATE_SOURCE => S::PIXEL_SHADING,
        A::VIDEO_DECODE_READ | A::VIDEO_DECODE_WRITE => S::VIDEO_DECODE,
        A::VIDEO_PROCESS_READ | A::VIDEO_PROCESS_WRITE => S::VIDEO_PROCESS,
        A::VIDEO_ENCODE_READ | A::VIDEO_ENCODE_WRITE => S::VIDEO_ENCODE,
        _ => S::SCOPES,
    }
}

/// [`syncs_of`] an access, with the scopes that a policy adds.
pub fn syncs_by(access: A, reading: ScopeReading) -> S {
    let alternatives = WorkKind::ALL.iter().map(|kind| other_scopes(*kind, access, reading));
    alternatives.fold(syncs_of(access), |syncs, other| syncs | other)
}

/// The graphics shader scopes of an inline ray query, see [`Policy::inline_ray_query`].
pub const INLINE_RAY_QUERY: S = bits!(S: VERTEX_SHADING PIXEL_SHADING);

const D: u8 = 1 << 0;
const C: u8 = 1 << 1;
const COPY: u8 = 1 << 2;
const DECODE: u8 = 1 << 3;
const PROCESS: u8 = 1 << 4;
const ENCODE: u8 = 1 << 5;

/// The accesses that each layout permits, and the queue types that have it.
const LAYOUTS: [(A, u8); 32] = [
    (bits!(A: SHADER_RESOURCE COPY_DEST COPY_SOURCE), D | C | COPY | DECODE | PROCESS | ENCODE),
    (bits!(A: SHADER_RESOURCE COPY_SOURCE), D | C),
    (A::RENDER_TARGET, D),
    (A::UNORDERED_ACCESS, D | C),
    (bits!(A: DEPTH_STENCIL_READ DEPTH_STENCIL_WRITE), D),
    (A::DEPTH_STENCIL_READ, D),
    (A::SHADER_RESOURCE, D | C),
    (A::COPY_SOURCE, D | C),
    (A::COPY_DEST, D | C),
    (A::RESOLVE_SOURCE, D),
    (A::RESOLVE_DEST, D),
    (A::SHADING_RATE_SOURCE, D),
    (A::VIDEO_DECODE_READ, DECODE),
    (A::VIDEO_DECODE_WRITE, DECODE),
    (A::VIDEO_PROCESS_READ, PROCESS),
    (A::VIDEO_PROCESS_WRITE, PROCESS),
    (A::VIDEO_ENCODE_READ, ENCODE),
    (A::VIDEO_ENCODE_WRITE, ENCODE),
    (QUEUE_COMMON, D),
    (bits!(A: SHADER_RESOURCE COPY_SOURCE DEPTH_STENCIL_READ SHADING_RATE_SOURCE RESOLVE_SOURCE), D),
    (A::UNORDERED_ACCESS, D),
    (A::SHADER_RESOURCE, D),
    (A::COPY_SOURCE, D),
    (A::COPY_DEST, D),
    (QUEUE_COMMON, C),
    (bits!(A: SHADER_RESOURCE COPY_SOURCE), C),
    (A::UNORDERED_ACCESS, C),
    (A::SHADER_RESOURCE, C),
    (A::COPY_SOURCE, C),
    (A::COPY_DEST, C),
    (A::empty(), 0),
    (bits!(A: SHADER_RESOURCE COPY_SOURCE DEPTH_STENCIL_READ SHADING_RATE_SOURCE RESOLVE_SOURCE), D | C),
];
const QUEUE_COMMON: A = bits!(A: COPY_SOURCE COPY_DEST SHADER_RESOURCE UNORDERED_ACCESS);

/// Accesses that barriers of a simultaneous-access texture can name in COMMON, its only layout, in addition to COMMON's.
pub const SIMULTANEOUS: A = bits!(A: RENDER_TARGET UNORDERED_ACCESS RESOLVE_DEST RESOLVE_SOURCE);

/// Accesses that commands can have to such a texture in COMMON, too: in a legacy program a use promotes it to any state but
/// those of depth.
const PROMOTED: A = SIMULTANEOUS.union(VIDEO).union(A::SHADING_RATE_SOURCE);

pub const VIDEO: A = bits!(A: VIDEO_DECODE_READ VIDEO_DECODE_WRITE VIDEO_PROCESS_READ
    VIDEO_PROCESS_WRITE VIDEO_ENCODE_READ VIDEO_ENCODE_WRITE);

fn column(queue: QueueType) -> u8 {
    match queue {
        QueueType::Direct => D,
        QueueType::Compute => C,
        QueueType::Copy => COPY,
        QueueType::VideoDecode => DECODE,
        QueueType::VideoProcess => PROCESS,
        QueueType::VideoEncode => ENCODE,
    }
}

/// A set of layouts: one bit for each of 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutSet(pub u32);

impl LayoutSet {
    pub const ALL: Self = LayoutSet(u32::MAX);

    pub fn one(layout: L) -> Self {
        LayoutSet(1u32.checked_shl(layout.0).unwrap_or(0))
    }

    pub fn contains(self, layout: L) -> bool {
        self.0 & Self::one(layout).0 != 0
    }

    pub fn and(self, other: Self) -> Self {
        LayoutSet(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = L> {
        (0..32).map(L).filter(move |layout| self.contains(*layout))
    }
}

/// For each access bit, the layouts that permit it.
static LAYOUTS_OF_ACCESS: [u32; 32] = {
    let mut sets = [0; 32];
    let (mut layout, mut bit) = (0, 0);
    while layout < 32 {
        while bit < 32 {
            if LAYOUTS[layout].0.bits() & (1 << bit) != 0 {
                sets[bit] |= 1 << layout;
            }
            bit += 1;
        }
        layout += 1;
        bit = 0;
    }
    sets
};

/// The layouts in which a texture permits a command an access type.
pub fn layouts_for(access: A, desc: &ResourceDesc, policy: &Policy) -> LayoutSet {
    let mut set = LAYOUTS_OF_ACCESS.get(access.bits().trailing_zeros() as usize).copied().unwrap_or(u32::MAX);
    if desc.has_simultaneous_access() && PROMOTED.intersects(access) {
        set |= LayoutSet::one(L::COMMON).0;
    }
    if VIDEO.contains(access) && policy.video_queue_common == VideoQueueCommon::VideoQueues {
        set |= LayoutSet::one(L::VIDEO_QUEUE_COMMON).0;
    }
    LayoutSet(set)
}

/// The accesses that a layout of 0 to 31 permits.
pub fn accesses_of(layout: L, desc: &ResourceDesc, policy: &Policy) -> A {
    let Some((allowed, _)) = LAYOUTS.get(layout.0 as usize) else { return A::empty() };
    match layout {
        L::COMMON if desc.has_simultaneous_access() => allowed.union(SIMULTANEOUS),
        L::VIDEO_QUEUE_COMMON if policy.video_queue_common == VideoQueueCommon::VideoQueues => VIDEO,
        _ => *allowed,
    }
}

/// Whether a queue type has a layout. UNDEFINED is valid on all queues.
pub fn queue_has_layout(queue: QueueType, layout: L, policy: &Policy) -> bool {
    if layout == L::VIDEO_QUEUE_COMMON && policy.video_queue_common == VideoQueueCommon::VideoQueues {
        return column(queue) & (DECODE | PROCESS | ENCODE) != 0;
    }
    layout == L::UNDEFINED
        || LAYOUTS.get(layout.0 as usize).is_some_and(|(_, queues)| queues & column(queue) != 0)
}

/// Whether an application may name the layout at all.
pub fn is_known(layout: L) -> bool {
    layout.0 < 32 || layout == L::UNDEFINED
}

const COMPUTE_ACCESS: A = bits!(A: CONSTANT_BUFFER UNORDERED_ACCESS SHADER_RESOURCE INDIRECT_ARGUMENT
    COPY_DEST COPY_SOURCE RTAS_READ RTAS_WRITE);
const DIRECT_ACCESS: A = COMPUTE_ACCESS.union(bits!(A: VERTEX_BUFFER INDEX_BUFFER RENDER_TARGET
    DEPTH_STENCIL_WRITE DEPTH_STENCIL_READ STREAM_OUTPUT RESOLVE_DEST RESOLVE_SOURCE SHADING_RATE_SOURCE));

/// The accesses of a queue type. COMMON, NO_ACCESS and a fence barrier's GLOBAL are valid on all queues.
pub fn accesses_of_queue(queue: QueueType) -> A {
    match queue {
        QueueType::Direct => DIRECT_ACCESS,
        QueueType::Compute => COMPUTE_ACCESS,
        QueueType::Copy => bits!(A: COPY_DEST COPY_SOURCE),
        QueueType::VideoDecode => bits!(A: VIDEO_DECODE_READ VIDEO_DECODE_WRITE),
        QueueType::VideoProcess => bits!(A: VIDEO_PROCESS_READ VIDEO_PROCESS_WRITE),
        QueueType::VideoEncode => bits!(A: VIDEO_ENCODE_READ VIDEO_ENCODE_WRITE),
    }
}

const COMPUTE_SYNC: S = bits!(S: ALL COMPUTE_SHADING RAYTRACING COPY EXECUTE_INDIRECT ALL_SHADING
    NON_PIXEL_SHADING BUILD_RTAS COPY_RTAS EMIT_RTAS_POSTBUILD_INFO CLEAR_UNORDERED_ACCESS_VIEW SPLIT);
const DIRECT_SYNC: S = COMPUTE_SYNC.union(bits!(S: DRAW INDEX_INPUT VERTEX_SHADING PIXEL_SHADING
    DEPTH_STENCIL RENDER_TARGET RESOLVE));

/// The syncs of a queue type, umbrellas not expanded. NONE is valid on all queues.
pub fn syncs_of_queue(queue: QueueType) -> S {
    match queue {
        QueueType::Direct => DIRECT_SYNC,
        QueueType::Compute => COMPUTE_SYNC,
        QueueType::Copy => bits!(S: ALL COPY SPLIT),
        QueueType::VideoDecode => bits!(S: ALL VIDEO_DECODE SPLIT),
        QueueType::VideoProcess => bits!(S: ALL VIDEO_PROCESS SPLIT),
        QueueType::VideoEncode => bits!(S: ALL VIDEO_ENCODE SPLIT),
    }
}

/// The accesses that a heap type permits for buffers.
pub fn accesses_of_heap(heap: HeapType) -> A {
    match heap {
        HeapType::Default => A::all(),
        HeapType::Upload => bits!(A: VERTEX_BUFFER CONSTANT_BUFFER INDEX_BUFFER SHADER_RESOURCE
            INDIRECT_ARGUMENT COPY_SOURCE RESOLVE_SOURCE),
        HeapType::Readback => bits!(A: COPY_DEST RESOLVE_DEST),
    }
}

/// Accesses that buffers and simultaneous-access textures permit without a barrier at their first use in an
/// ExecuteCommandLists (BAR-017). Other textures permit what their layout permits.
pub const FIRST_ACCESS: A = bits!(A: VERTEX_BUFFER CONSTANT_BUFFER INDEX_BUFFER RENDER_TARGET UNORDERED_ACCESS
    SHADER_RESOURCE STREAM_OUTPUT INDIRECT_ARGUMENT COPY_DEST COPY_SOURCE RESOLVE_DEST RESOLVE_SOURCE);

pub const RTAS: A = bits!(A: RTAS_READ RTAS_WRITE);

/// Accesses that the published list lacks: a policy says whether they need a barrier.
pub const UNLISTED: A = RTAS.union(VIDEO).union(A::SHADING_RATE_SOURCE);

/// The creation flag that a resource lacks for an access, if any.
pub fn access_without_flag(access: A, desc: &ResourceDesc) -> Option<&'static str> {
    let needs = [
        (A::RENDER_TARGET, F::ALLOW_RENDER_TARGET, "ALLOW_RENDER_TARGET"),
        (A::DEPTH_STENCIL_WRITE, F::ALLOW_DEPTH_STENCIL, "ALLOW_DEPTH_STENCIL"),
        (A::DEPTH_STENCIL_READ, F::ALLOW_DEPTH_STENCIL, "ALLOW_DEPTH_STENCIL"),
        (A::UNORDERED_ACCESS, F::ALLOW_UNORDERED_ACCESS, "ALLOW_UNORDERED_ACCESS"),
    ];
    if access.contains(A::SHADER_RESOURCE) && desc.flags.contains(F::DENY_SHADER_RESOURCE) {
        return Some("no DENY_SHADER_RESOURCE");
    }
    let lacks = |(bit, flag, _): &&(A, F, &str)| access.intersects(*bit) && !desc.flags.contains(*flag);
    needs.iter().find(lacks).map(|(.., name)| *name)
}

/// The creation flag that a resource lacks for an access by acceleration structures, if any. A legacy program has the
/// initial state of that name instead. Barriers and commands have a rule of their own for it.
pub fn rtas_without_flag(access: A, desc: &ResourceDesc) -> Option<&'static str> {
    let is_for_rtas = desc.flags.contains(F::RAYTRACING_ACCELERATION_STRUCTURE) || is_rtas_by_state(desc);
    (access.intersects(RTAS) && !is_for_rtas).then_some("RAYTRACING_ACCELERATION_STRUCTURE")
}

/// All layouts of a queue type.
pub fn layouts_of_queue(queue: QueueType, policy: &Policy) -> LayoutSet {
    let has = |layout: &L| queue_has_layout(queue, *layout, policy);
    LayoutSet((0..32).map(L).filter(has).fold(0, |set, layout| set | LayoutSet::one(layout).0))
}
