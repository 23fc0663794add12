//! Work commands: their kind, their effect on bytes, the ranges they use, and the synchronization scope of each use.

use serde::{Deserialize, Serialize};

use super::element::{Element, long, push, word};
use super::{BarrierAccess, BarrierSync, IsaError, UseFlags};
use alloc::vec::Vec;

macro_rules! open_words {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum $name { $($(#[$case_doc])* $case = $value,)* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$case,)*];

            /// `None` for a value that has no meaning.
            pub fn from_word(word: u32) -> Option<Self> {
                match word {
                    $($value => Some(Self::$case),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use open_words;

open_words! {
    /// Kind of a command: the D3D12 call that it stands for. It decides the scope of each use and the queues that may
    /// run it. The [`Kernel`] decides its effect on bytes.
    WorkKind {
        Draw = 0,
        DrawIndexed = 1,
        Dispatch = 2,
        DispatchRays = 3,
        /// `CopyResource`, `CopyTextureRegion`, `CopyBufferRegion`.
        Copy = 4,
        Resolve = 5,
        ClearRenderTarget = 6,
        ClearDepthStencil = 7,
        ClearUnorderedAccess = 8,
        /// Draws or dispatches whose arguments are in memory.
        ExecuteIndirect = 9,
        BuildRtas = 10,
        CopyRtas = 11,
        EmitRtasPostbuildInfo = 12,
        VideoDecode = 13,
        VideoProcess = 14,
        VideoEncode = 15,
        Present = 16,
        /// `SetGraphicsRoot*` of descriptors whose data are static while set at execute: it reads the data itself. The
        /// operand is the index of the root parameter.
        SetGraphicsRoot = 17,
        /// `SetComputeRoot*`, the same.
        SetComputeRoot = 18,
        /// `DiscardResource`: the old content is lost.
        Discard = 19,
        /// Amplification and mesh shaders in place of the input assembler and the vertex shaders.
        DispatchMesh = 20,
    }
}

open_words! {
    /// Effect of a command on bytes: arithmetic on little-endian words of 32 bits. *Source* is the command's first use
    /// that only reads ([`Use::reads`]), or, if there is none, the written range itself; each use that writes is a
    /// destination, one after the other. `n` is the number of whole words that fit both.
    Kernel {
        /// Nothing: time passes, accesses count, bytes stay.
        None = 0,
        /// `destination[i] = source[i]` for i < n.
        Copy = 1,
        /// `destination[i] = operand`, the whole destination; no source.
        Fill = 2,
        /// `destination[i] = source[i] + operand`, wrapping.
        Add = 3,
        /// `destination[i] = source[i] ^ operand`.
        Xor = 4,
        /// `destination[0] = operand + source[0] + source[1] + ..` over the whole source, wrapping.
        Sum = 5,
    }
}

/// [`Use::count`]: up to the last subresource.
pub const ALL_SUBRESOURCES: u32 = u32::MAX;
/// [`Use::bytes`]: up to the end.
pub const WHOLE: u64 = u64::MAX;

/// One range that a command accesses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Use {
    /// The resource's number; 0 is none.
    pub resource: u32,
    /// One type of access, a single bit; `COMMON` for `Present` alone.
    pub access: BarrierAccess,
    pub first_subresource: u32,
    /// Subresources by their flat index, or [`ALL_SUBRESOURCES`].
    pub count: u32,
    /// Bytes from the start of the subresource (as it is placed, see [`ResourceDesc`](super::ResourceDesc)) or of the
    /// buffer; 0 if there are several subresources.
    pub offset: u64,
    /// Bytes, or [`WHOLE`], as it must be if there are several subresources.
    pub bytes: u64,
    pub flags: UseFlags,
}

impl Use {
    /// All of a resource.
    pub fn whole(resource: u32, access: BarrierAccess) -> Self {
        let (first_subresource, count) = (0, ALL_SUBRESOURCES);
        Use { resource, access, first_subresource, count, offset: 0, bytes: WHOLE, flags: UseFlags::empty() }
    }

    /// Bytes of a buffer.
    pub fn range(resource: u32, access: BarrierAccess, offset: u64, bytes: u64) -> Self {
        Use { count: 1, offset, bytes, ..Use::whole(resource, access) }
    }

    /// One subresource.
    pub fn subresource(resource: u32, access: BarrierAccess, subresource: u32) -> Self {
        Use { first_subresource: subresource, count: 1, ..Use::whole(resource, access) }
    }

    /// Whether the command may write the range.
    pub fn writes(&self) -> bool {
        self.access.writes() && !self.flags.contains(UseFlags::ONLY_READS)
    }

    /// Whether the command only reads the range.
    pub fn reads(&self) -> bool {
        !self.writes()
    }

    /// The scope of this use: [`scope`], narrowed to the stages that the flags name.
    pub fn scope(&self, kind: WorkKind) -> BarrierSync {
        let all = scope(kind, self.access);
        let scopes = [
            (VERTEX_SHADERS, BarrierSync::VERTEX_SHADING),
            (UseFlags::PIXEL_STAGE, BarrierSync::PIXEL_SHADING),
            (UseFlags::COMPUTE_STAGE, BarrierSync::COMPUTE_SHADING),
        ];
        let named = self.flags & stages(kind);
        let scopes = scopes.iter().filter(|(stages, _)| named.intersects(*stages));
        let narrowed = scopes.fold(BarrierSync::NONE, |sum, (_, scope)| sum | *scope) & all;
        if narrowed.is_empty() { all } else { narrowed }
    }
}

/// The stages that VERTEX_SHADING is the scope of (BAR-006). The tessellator between hull and domain shaders uses no
/// resource.
const VERTEX_SHADERS: UseFlags = DRAW_SHADERS.union(MESH_SHADERS);
const DRAW_SHADERS: UseFlags = UseFlags::VERTEX_STAGE
    .union(UseFlags::HULL_STAGE)
    .union(UseFlags::DOMAIN_STAGE)
    .union(UseFlags::GEOMETRY_STAGE);
const MESH_SHADERS: UseFlags = UseFlags::AMPLIFICATION_STAGE.union(UseFlags::MESH_STAGE);

/// The stages of a command that a use can name.
fn stages(kind: WorkKind) -> UseFlags {
    match kind {
        WorkKind::Draw | WorkKind::DrawIndexed => DRAW_SHADERS.union(UseFlags::PIXEL_STAGE),
        WorkKind::DispatchMesh => MESH_SHADERS.union(UseFlags::PIXEL_STAGE),
        WorkKind::Dispatch => UseFlags::COMPUTE_STAGE,
        WorkKind::ExecuteIndirect => {
            VERTEX_SHADERS.union(UseFlags::PIXEL_STAGE).union(UseFlags::COMPUTE_STAGE)
        }
        WorkKind::DispatchRays
        | WorkKind::Copy
        | WorkKind::Resolve
        | WorkKind::ClearRenderTarget
        | WorkKind::ClearDepthStencil
        | WorkKind::ClearUnorderedAccess
        | WorkKind::BuildRtas
        | WorkKind::CopyRtas
        | WorkKind::EmitRtasPostbuildInfo
        | WorkKind::VideoDecode
        | WorkKind::VideoProcess
        | WorkKind::VideoEncode
        | WorkKind::Present
        | WorkKind::SetGraphicsRoot
        | WorkKind::SetComputeRoot
        | WorkKind::Discard => UseFlags::empty(),
    }
}

/// The synchronization scopes of an access of a command. A barrier before the access delays it if its SyncAfter has one
/// of them; a barrier after it waits for it if its SyncBefore has all of them. `NONE`: such a command has no such
/// access. Umbrellas are not named, except for `Present` and the root calls (BAR-004, BAR-005).
pub fn scope(kind: WorkKind, access: BarrierAccess) -> BarrierSync {
    use BarrierAccess as A;
    use BarrierSync as S;
    match kind {
        WorkKind::Draw => draw_scope(access),
        WorkKind::DrawIndexed if access == A::INDEX_BUFFER => S::INDEX_INPUT,
        WorkKind::DrawIndexed => draw_scope(access),
        WorkKind::DispatchMesh if matches!(access, A::VERTEX_BUFFER | A::STREAM_OUTPUT) => S::NONE,
        WorkKind::DispatchMesh => draw_scope(access),
        WorkKind::Dispatch => shader_scope(access, S::COMPUTE_SHADING),
        WorkKind::DispatchRays => shader_scope(access, S::RAYTRACING),
        WorkKind::ExecuteIndirect if access == A::INDIRECT_ARGUMENT => S::EXECUTE_INDIRECT,
        WorkKind::ExecuteIndirect if access == A::INDEX_BUFFER => S::INDEX_INPUT,
        WorkKind::ExecuteIndirect => draw_scope(access) | shader_scope(access, S::COMPUTE_SHADING),
        WorkKind::Copy => only(access, A::COPY_SOURCE | A::COPY_DEST, S::COPY),
        WorkKind::Resolve => only(access, A::RESOLVE_SOURCE | A::RESOLVE_DEST, S::RESOLVE),
        WorkKind::ClearRenderTarget => only(access, A::RENDER_TARGET, S::RENDER_TARGET),
        WorkKind::ClearDepthStencil => only(access, A::DEPTH_STENCIL_WRITE, S::DEPTH_STENCIL),
        WorkKind::ClearUnorderedAccess => only(access, A::UNORDERED_ACCESS, S::CLEAR_UNORDERED_ACCESS_VIEW),
        WorkKind::BuildRtas => {
            let inputs = A::SHADER_RESOURCE | A::UNORDERED_ACCESS;
            only(access, A::RTAS_READ | A::RTAS_WRITE | inputs, S::BUILD_RTAS)
        }
        WorkKind::CopyRtas => only(access, A::RTAS_READ | A::RTAS_WRITE, S::COPY_RTAS),
        WorkKind::EmitRtasPostbuildInfo => {
            only(access, A::RTAS_READ | A::UNORDERED_ACCESS, S::EMIT_RTAS_POSTBUILD_INFO)
        }
        WorkKind::VideoDecode => only(access, A::VIDEO_DECODE_READ | A::VIDEO_DECODE_WRITE, S::VIDEO_DECODE),
        WorkKind::VideoProcess => {
            only(access, A::VIDEO_PROCESS_READ | A::VIDEO_PROCESS_WRITE, S::VIDEO_PROCESS)
        }
        WorkKind::VideoEncode => only(access, A::VIDEO_ENCODE_READ | A::VIDEO_ENCODE_WRITE, S::VIDEO_ENCODE),
        WorkKind::Present if access == A::COMMON => S::ALL,
        WorkKind::Present => S::NONE,
        WorkKind::SetGraphicsRoot => only(access, ROOT, S::DRAW),
        WorkKind::SetComputeRoot => only(access, ROOT, S::COMPUTE_SHADING),
        WorkKind::Discard if access == A::RENDER_TARGET => S::RENDER_TARGET,
        WorkKind::Discard if access == A::DEPTH_STENCIL_WRITE => S::DEPTH_STENCIL,
        WorkKind::Discard => only(access, A::UNORDERED_ACCESS, S::COMPUTE_SHADING),
    }
}

/// Two readings of the specification that give a use scopes beside those of [`scope`]. Both are off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScopeReading {
    /// EXECUTE_INDIRECT is the execution of ExecuteIndirect, not its fetch of arguments alone.
    pub indirect_execution: bool,
    /// INPUT_ASSEMBLER fetches vertex buffers beside index buffers.
    pub vertex_buffers: bool,
}

/// The scopes of an access of a command under a reading, beside [`scope`]. Each covers the whole access: a barrier that
/// names one of them, and none of the others, waits for it or delays it.
pub fn other_scopes(kind: WorkKind, access: BarrierAccess, reading: ScopeReading) -> BarrierSync {
    let mut others = BarrierSync::NONE;
    if scope(kind, access).is_empty() {
        return others;
    }
    if reading.indirect_execution && kind == WorkKind::ExecuteIndirect {
        others |= BarrierSync::EXECUTE_INDIRECT;
    }
    if reading.vertex_buffers && access == BarrierAccess::VERTEX_BUFFER {
        others |= BarrierSync::INDEX_INPUT;
    }
    others
}

const ROOT: BarrierAccess = BarrierAccess::CONSTANT_BUFFER
    .union(BarrierAccess::SHADER_RESOURCE)
    .union(BarrierAccess::UNORDERED_ACCESS);

fn only(access: BarrierAccess, allowed: BarrierAccess, scope: BarrierSync) -> BarrierSync {
    if access.bits().is_power_of_two() && allowed.contains(access) { scope } else { BarrierSync::NONE }
}

fn shader_scope(access: BarrierAccess, stages: BarrierSync) -> BarrierSync {
    if access == BarrierAccess::PREDICATION {
        return BarrierSync::PREDICATION;
    }
    only(access, ROOT | BarrierAccess::RTAS_READ, stages)
}

fn draw_scope(access: BarrierAccess) -> BarrierSync {
    use BarrierAccess as A;
    use BarrierSync as S;
    match access {
        A::VERTEX_BUFFER | A::STREAM_OUTPUT => S::VERTEX_SHADING,
        A::RENDER_TARGET => S::RENDER_TARGET,
        A::DEPTH_STENCIL_WRITE | A::DEPTH_STENCIL_READ => S::DEPTH_STENCIL,
        A::SHADING_RATE_SOURCE => S::PIXEL_SHADING,
        access => shader_scope(access, S::VERTEX_SHADING | S::PIXEL_SHADING),
    }
}

impl Element for Use {
    const BYTES: usize = 40;

    fn read(bytes: &[u8]) -> Self {
        Use {
            resource: word(bytes, 0),
            access: BarrierAccess::from_bits_retain(word(bytes, 4)),
            first_subresource: word(bytes, 8),
            count: word(bytes, 12),
            offset: long(bytes, 16),
            bytes: long(bytes, 24),
            flags: UseFlags::from_bits_retain(word(bytes, 32)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Use { resource, access, first_subresource, count, offset, bytes, flags } = *self;
        push(out, &[resource, access.bits(), first_subresource, count]);
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        push(out, &[flags.bits(), 0]);
    }

    fn check(bytes: &[u8], offset: usize) -> Result<(), IsaError> {
        let (flags, reserved) = (word(bytes, 32), word(bytes, 36));
        if UseFlags::from_bits(flags).is_none() {
            return Err(IsaError::Word { offset: offset + 32, what: "flags of a use", value: flags });
        }
        if reserved != 0 {
            return Err(IsaError::Word { offset: offset + 36, what: "reserved word", value: reserved });
        }
        Ok(())
    }
}
