//! Translation of the legacy `ResourceBarrier` into enhanced barriers. A driver with enhanced barriers never gets the
//! legacy call, and its entry may be NULL (BAR-015). Each state is one row of the equivalence table (BAR-016).

use crate::tables;
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierLayout as L, BarrierSync as S, BufferBarrier, LegacyBarrier,
    LegacyFlags, LegacyState as T, QueueType, ResourceDesc, SubresourceRange, TextureBarrier, TextureFlags,
};

/// The enhanced equivalent of a legacy state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Equivalent {
    pub sync: S,
    pub access: A,
    /// `None` for a state of buffers only.
    pub layout: Option<L>,
}

/// The scopes beside shaders that unordered accesses share: work on acceleration structures, as published, and clears,
/// which the published tables lack. A legacy barrier completes all unordered accesses, and a clear is one.
const UNORDERED: S = S::BUILD_RTAS
    .union(S::COPY_RTAS)
    .union(S::EMIT_RTAS_POSTBUILD_INFO)
    .union(S::CLEAR_UNORDERED_ACCESS_VIEW);
/// The scopes of NON_PIXEL_SHADER_RESOURCE: builds of acceleration structures read their inputs in this state, too. The
/// published table lacks them.
const NON_PIXEL: S = S::NON_PIXEL_SHADING.union(S::BUILD_RTAS);

const ROWS: [(T, S, A, Option<L>); 22] = [
    (T::VERTEX_AND_CONSTANT_BUFFER, S::ALL_SHADING, A::VERTEX_BUFFER.union(A::CONSTANT_BUFFER), None),
    (T::INDEX_BUFFER, S::INDEX_INPUT, A::INDEX_BUFFER, None),
    (T::RENDER_TARGET, S::RENDER_TARGET, A::RENDER_TARGET, Some(L::RENDER_TARGET)),
    (T::UNORDERED_ACCESS, S::ALL_SHADING.union(UNORDERED), A::UNORDERED_ACCESS, Some(L::UNORDERED_ACCESS)),
    (T::DEPTH_WRITE, S::DEPTH_STENCIL, A::DEPTH_STENCIL_WRITE, Some(L::DEPTH_STENCIL_WRITE)),
    (T::DEPTH_READ, S::DEPTH_STENCIL, A::DEPTH_STENCIL_READ, Some(L::DEPTH_STENCIL_READ)),
    (T::NON_PIXEL_SHADER_RESOURCE, NON_PIXEL, A::SHADER_RESOURCE, Some(L::LEGACY_SHADER_RESOURCE)),
    (T::PIXEL_SHADER_RESOURCE, S::PIXEL_SHADING, A::SHADER_RESOURCE, Some(L::LEGACY_SHADER_RESOURCE)),
    (T::STREAM_OUT, S::VERTEX_SHADING, A::STREAM_OUTPUT, None),
    (T::INDIRECT_ARGUMENT, S::EXECUTE_INDIRECT, A::INDIRECT_ARGUMENT, None),
    (T::COPY_DEST, S::COPY, A::COPY_DEST, Some(L::LEGACY_COPY_DEST)),
    (T::COPY_SOURCE, S::COPY, A::COPY_SOURCE, Some(L::LEGACY_COPY_SOURCE)),
    (T::RESOLVE_DEST, S::RESOLVE, A::RESOLVE_DEST, Some(L::RESOLVE_DEST)),
    (T::RESOLVE_SOURCE, S::RESOLVE, A::RESOLVE_SOURCE, Some(L::RESOLVE_SOURCE)),
    // The documents name an access that does not exist; this takes both RTAS accesses.
    (T::RAYTRACING_ACCELERATION_STRUCTURE, S::RAYTRACING, A::RTAS_READ.union(A::RTAS_WRITE), None),
    (T::SHADING_RATE_SOURCE, S::PIXEL_SHADING, A::SHADING_RATE_SOURCE, Some(L::SHADING_RATE_SOURCE)),
    (T::VIDEO_DECODE_READ, S::VIDEO_DECODE, A::VIDEO_DECODE_READ, Some(L::VIDEO_DECODE_READ)),
    (T::VIDEO_DECODE_WRITE, S::VIDEO_DECODE, A::VIDEO_DECODE_WRITE, Some(L::VIDEO_DECODE_WRITE)),
    (T::VIDEO_PROCESS_READ, S::VIDEO_PROCESS, A::VIDEO_PROCESS_READ, Some(L::VIDEO_PROCESS_READ)),
    (T::VIDEO_PROCESS_WRITE, S::VIDEO_PROCESS, A::VIDEO_PROCESS_WRITE, Some(L::VIDEO_PROCESS_WRITE)),
    (T::VIDEO_ENCODE_READ, S::VIDEO_ENCODE, A::VIDEO_ENCODE_READ, Some(L::VIDEO_ENCODE_READ)),
    (T::VIDEO_ENCODE_WRITE, S::VIDEO_ENCODE, A::VIDEO_ENCODE_WRITE, Some(L::VIDEO_ENCODE_WRITE)),
];

/// The equivalent of a state, or of a combination of read states.
pub fn equivalent(state: T) -> Equivalent {
    if state == T::COMMON {
        return Equivalent { sync: S::ALL, access: A::COMMON, layout: Some(L::COMMON) };
    }
    let rows = ROWS.iter().filter(|(of, ..)| state.contains(*of));
    let none = Equivalent { sync: S::NONE, access: A::COMMON, layout: None };
    let mut sum = rows.fold(none, |sum, (_, sync, access, layout)| Equivalent {
        sync: sum.sync | *sync,
        access: sum.access | *access,
        layout: sum.layout.or(*layout),
    });
    let others = state - T::NON_PIXEL_SHADER_RESOURCE;
    if state.contains(T::NON_PIXEL_SHADER_RESOURCE) && !others.is_empty() {
        sum.layout = Some(L::DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE);
    }
    sum
}

/// The part of a resource's state that a list of this type cannot have. Query data is resolved into a buffer on video lists,
/// and predicates are read from one; the tables of enhanced barriers have neither there.
pub(crate) fn foreign_to(queue: QueueType, desc: &ResourceDesc, state: T) -> T {
    let is_video = tables::accesses_of_queue(queue).intersects(tables::VIDEO);
    let of_queries = if is_video && !desc.is_texture() { T::COPY_DEST | T::PREDICATION } else { T::COMMON };
    let state = state - of_queries;
    let (accesses, syncs) = (tables::accesses_of_queue(queue), tables::syncs_of_queue(queue));
    let rows = ROWS.iter().filter(|(of, sync, access, _)| {
        state.contains(*of) && !(access.intersects(accesses) && syncs.contains(*sync))
    });
    rows.fold(T::COMMON, |sum, (of, ..)| sum | *of)
}

/// The enhanced barrier that a driver gets for a `ResourceBarrier`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translated {
    Global(Barrier),
    Texture(TextureBarrier),
    Buffer(BufferBarrier),
}

/// Translates a legacy barrier. `describe` looks up resources; `None` if a resource is unknown.
pub fn translate<'r>(
    barrier: &LegacyBarrier,
    describe: impl Fn(u32) -> Option<&'r ResourceDesc>,
) -> Option<Translated> {
    match *barrier {
        LegacyBarrier::Transition { flags, resource, subresource, before, after } => {
            let desc = describe(resource)?;
            let (words, layouts) = transition(flags, (before, after));
            Some(of_resource(words, resource, desc, subresource, layouts))
        }
        // The driver cannot know what was in the memory before.
        LegacyBarrier::Aliasing { .. } => Some(Translated::Global(full_stall())),
        LegacyBarrier::UnorderedAccess { resource, .. } => {
            let words = unordered_access();
            if resource == 0 {
                return Some(Translated::Global(words));
            }
            let layout = L::UNORDERED_ACCESS;
            Some(of_resource(words, resource, describe(resource)?, u32::MAX, (layout, layout)))
        }
    }
}

/// What a transition is translated to: a barrier, and the layouts of a texture.
pub(crate) fn transition(flags: LegacyFlags, (before, after): (T, T)) -> (Barrier, (L, L)) {
    let (from, to) = (equivalent(before), equivalent(after));
    let begins = flags.contains(LegacyFlags::BEGIN_ONLY);
    let ends = flags.contains(LegacyFlags::END_ONLY);
    let words = Barrier {
        sync_before: if ends { S::SPLIT } else { from.sync },
        sync_after: if begins { S::SPLIT } else { to.sync },
        access_before: from.access,
        access_after: to.access,
    };
    (words, (from.layout.unwrap_or(L::COMMON), to.layout.unwrap_or(L::COMMON)))
}

/// What an aliasing barrier is translated to.
pub(crate) fn full_stall() -> Barrier {
    both_sides(S::ALL, A::COMMON)
}

/// What a barrier of unordered access is translated to.
pub(crate) fn unordered_access() -> Barrier {
    both_sides(S::ALL_SHADING | UNORDERED, A::UNORDERED_ACCESS | A::RTAS_WRITE | A::RTAS_READ)
}

fn both_sides(sync: S, access: A) -> Barrier {
    Barrier { sync_before: sync, sync_after: sync, access_before: access, access_after: access }
}

fn of_resource(
    barrier: Barrier,
    resource: u32,
    desc: &ResourceDesc,
    subresource: u32,
    (layout_before, layout_after): (L, L),
) -> Translated {
    if !desc.is_texture() {
        return Translated::Buffer(BufferBarrier { barrier, resource, offset: 0, bytes: u64::MAX });
    }
    Translated::Texture(TextureBarrier {
        barrier,
        layout_before,
        layout_after,
        resource,
        flags: TextureFlags::empty(),
        subresources: SubresourceRange::one(subresource),
    })
}
