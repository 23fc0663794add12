//! Enums and flags of barriers, with the values that are published: the API's and the DDI's are the same (BAR-001).
//! Unknown bits and unknown layouts are kept unchanged; the validator reports them.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// `D3D12DDI_BARRIER_SYNC`: where a barrier begins or ends to have an effect.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
    pub struct BarrierSync: u32 {
        /// Umbrella: all preceding, or all following, work of the GPU.
        const ALL = 0x1;
        /// Umbrella: every stage of a draw, and the calls `SetGraphicsRoot*`.
        const DRAW = 0x2;
        /// `INPUT_ASSEMBLER` in the DDI.
        const INDEX_INPUT = 0x4;
        /// Vertex, domain, hull, tessellation, geometry, amplification and mesh shaders.
        const VERTEX_SHADING = 0x8;
        const PIXEL_SHADING = 0x10;
        const DEPTH_STENCIL = 0x20;
        const RENDER_TARGET = 0x40;
        /// Dispatch, and the calls `SetComputeRoot*`.
        const COMPUTE_SHADING = 0x80;
        const RAYTRACING = 0x100;
        const COPY = 0x200;
        const RESOLVE = 0x400;
        /// The same value as `PREDICATION`: the two cannot be distinguished (BAR-002).
        const EXECUTE_INDIRECT = 0x800;
        /// Umbrella: every shader stage.
        const ALL_SHADING = 0x1000;
        /// Umbrella: every shader stage but the pixel shader.
        const NON_PIXEL_SHADING = 0x2000;
        const EMIT_RTAS_POSTBUILD_INFO = 0x4000;
        const CLEAR_UNORDERED_ACCESS_VIEW = 0x8000;
        const VIDEO_DECODE = 0x10_0000;
        const VIDEO_PROCESS = 0x20_0000;
        const VIDEO_ENCODE = 0x40_0000;
        const BUILD_RTAS = 0x80_0000;
        const COPY_RTAS = 0x100_0000;
        /// No scope: as SyncAfter the begin of a split barrier, as SyncBefore its end.
        const SPLIT = 0x8000_0000;
    }

    /// `D3D12_BARRIER_ACCESS`. No bit at all is [`COMMON`](BarrierAccess::COMMON).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
    pub struct BarrierAccess: u32 {
        const VERTEX_BUFFER = 0x1;
        const CONSTANT_BUFFER = 0x2;
        const INDEX_BUFFER = 0x4;
        const RENDER_TARGET = 0x8;
        const UNORDERED_ACCESS = 0x10;
        const DEPTH_STENCIL_WRITE = 0x20;
        const DEPTH_STENCIL_READ = 0x40;
        const SHADER_RESOURCE = 0x80;
        const STREAM_OUTPUT = 0x100;
        /// The same value as `PREDICATION`.
        const INDIRECT_ARGUMENT = 0x200;
        const COPY_DEST = 0x400;
        const COPY_SOURCE = 0x800;
        const RESOLVE_DEST = 0x1000;
        const RESOLVE_SOURCE = 0x2000;
        const RTAS_READ = 0x4000;
        const RTAS_WRITE = 0x8000;
        const SHADING_RATE_SOURCE = 0x1_0000;
        const VIDEO_DECODE_READ = 0x2_0000;
        const VIDEO_DECODE_WRITE = 0x4_0000;
        const VIDEO_PROCESS_READ = 0x8_0000;
        const VIDEO_PROCESS_WRITE = 0x10_0000;
        const VIDEO_ENCODE_READ = 0x20_0000;
        const VIDEO_ENCODE_WRITE = 0x40_0000;
        /// Fence barriers alone: the CPU, copy queues and video queues take part.
        const GLOBAL = 0x4000_0000;
        /// Not accessed; its data are not needed.
        const NO_ACCESS = 0x8000_0000;
    }

    /// `D3D12_TEXTURE_BARRIER_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct TextureFlags: u32 {
        const DISCARD = 0x1;
    }

    /// `D3D12DDI_RANGED_BARRIER_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct RangedFlags: u32 {
        const ATOMIC_COPY = 0x1;
        const ACQUIRE = 0x2;
        const RELEASE = 0x4;
    }

    /// `D3D12_RESOURCE_STATES`, of the older `ResourceBarrier`. No bit at all is `COMMON` and `PRESENT`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
    pub struct LegacyState: u32 {
        const VERTEX_AND_CONSTANT_BUFFER = 0x1;
        const INDEX_BUFFER = 0x2;
        const RENDER_TARGET = 0x4;
        const UNORDERED_ACCESS = 0x8;
        const DEPTH_WRITE = 0x10;
        const DEPTH_READ = 0x20;
        const NON_PIXEL_SHADER_RESOURCE = 0x40;
        const PIXEL_SHADER_RESOURCE = 0x80;
        const STREAM_OUT = 0x100;
        /// The same value as `PREDICATION`.
        const INDIRECT_ARGUMENT = 0x200;
        const COPY_DEST = 0x400;
        const COPY_SOURCE = 0x800;
        const RESOLVE_DEST = 0x1000;
        const RESOLVE_SOURCE = 0x2000;
        const VIDEO_DECODE_READ = 0x1_0000;
        const VIDEO_DECODE_WRITE = 0x2_0000;
        const VIDEO_PROCESS_READ = 0x4_0000;
        const VIDEO_PROCESS_WRITE = 0x8_0000;
        const VIDEO_ENCODE_READ = 0x20_0000;
        const RAYTRACING_ACCELERATION_STRUCTURE = 0x40_0000;
        const VIDEO_ENCODE_WRITE = 0x80_0000;
        const SHADING_RATE_SOURCE = 0x100_0000;
    }

    /// `D3D12_RESOURCE_BARRIER_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct LegacyFlags: u32 {
        const BEGIN_ONLY = 0x1;
        const END_ONLY = 0x2;
    }
}

impl BarrierSync {
    /// No synchronization is needed on that side. It is the value 0, so it cannot stand beside another (BAR-003).
    pub const NONE: Self = Self::empty();
    /// The DDI's name of `INDEX_INPUT`.
    pub const INPUT_ASSEMBLER: Self = Self::INDEX_INPUT;
    pub const PREDICATION: Self = Self::EXECUTE_INDIRECT;

    /// The umbrellas, and what each stands for (BAR-008). The specification's tables leave out of ALL the acceleration
    /// structures' scopes, and of the two of shaders RAYTRACING; its text says all work, and all shaders.
    pub const UMBRELLAS: [(Self, Self); 4] = [
        (Self::ALL, Self::SCOPES),
        (Self::DRAW, Self::DRAW_STAGES),
        (Self::ALL_SHADING, Self::NON_PIXEL_STAGES.union(Self::PIXEL_SHADING)),
        (Self::NON_PIXEL_SHADING, Self::NON_PIXEL_STAGES),
    ];
    const DRAW_STAGES: Self = Self::INDEX_INPUT
        .union(Self::VERTEX_SHADING)
        .union(Self::PIXEL_SHADING)
        .union(Self::DEPTH_STENCIL)
        .union(Self::RENDER_TARGET);
    const NON_PIXEL_STAGES: Self = Self::VERTEX_SHADING.union(Self::COMPUTE_SHADING).union(Self::RAYTRACING);
    /// Every scope that is not an umbrella.
    pub const SCOPES: Self = Self::DRAW_STAGES
        .union(Self::NON_PIXEL_STAGES)
        .union(Self::COPY)
        .union(Self::RESOLVE)
        .union(Self::EXECUTE_INDIRECT)
        .union(Self::EMIT_RTAS_POSTBUILD_INFO)
        .union(Self::CLEAR_UNORDERED_ACCESS_VIEW)
        .union(Self::VIDEO_DECODE)
        .union(Self::VIDEO_PROCESS)
        .union(Self::VIDEO_ENCODE)
        .union(Self::BUILD_RTAS)
        .union(Self::COPY_RTAS);

    /// The same scopes with umbrellas expanded, so that two sets can be compared. SPLIT is no scope.
    pub fn expanded(self) -> Self {
        let umbrellas = Self::UMBRELLAS.iter().filter(|(umbrella, _)| self.contains(*umbrella));
        umbrellas.fold(self & Self::SCOPES, |sum, (_, scopes)| sum | *scopes)
    }

    /// The bits that are not published.
    pub fn unknown(self) -> u32 {
        self.bits() & !Self::all().bits()
    }
}

impl BarrierAccess {
    /// Any access that layout and resource allow; the state of each resource at the start of an ExecuteCommandLists.
    pub const COMMON: Self = Self::empty();
    pub const PREDICATION: Self = Self::INDIRECT_ARGUMENT;
    /// Every type that may write. An unordered access may read too.
    pub const WRITES: Self = Self::RENDER_TARGET
        .union(Self::UNORDERED_ACCESS)
        .union(Self::DEPTH_STENCIL_WRITE)
        .union(Self::STREAM_OUTPUT)
        .union(Self::COPY_DEST)
        .union(Self::RESOLVE_DEST)
        .union(Self::RTAS_WRITE)
        .union(Self::VIDEO_DECODE_WRITE)
        .union(Self::VIDEO_PROCESS_WRITE)
        .union(Self::VIDEO_ENCODE_WRITE);

    /// Accesses that engines make in the order of the list, by stage: two of one stage need no barrier between them. The
    /// documents except only render targets from "sequential writes need a barrier"; depth, stencil and stream output are
    /// in order likewise. Copies and resolves are: "all Copy, Discard and Resolve commands execute synchronously", because
    /// no `ResourceBarrier` is between two writes of one state.
    pub const IN_ORDER: [Self; 5] = [
        Self::RENDER_TARGET,
        Self::DEPTH_STENCIL_WRITE.union(Self::DEPTH_STENCIL_READ),
        Self::STREAM_OUTPUT,
        Self::COPY_DEST,
        Self::RESOLVE_DEST,
    ];

    /// Whether one stage makes both accesses, and so in the order of the list.
    pub fn is_in_order_with(self, other: Self) -> bool {
        Self::IN_ORDER.iter().any(|stage| stage.intersects(self) && stage.intersects(other))
    }

    /// The bits that are not published.
    pub fn unknown(self) -> u32 {
        self.bits() & !Self::all().bits()
    }

    /// The types of access of a barrier's mask: COMMON is all of them, NO_ACCESS is none.
    pub fn types(self) -> Self {
        if self == Self::COMMON { Self::all() - Self::NO_ACCESS } else { self - Self::NO_ACCESS }
    }

    /// Whether a type of access may write.
    pub fn writes(self) -> bool {
        self.intersects(Self::WRITES)
    }
}

impl LegacyState {
    pub const COMMON: Self = Self::empty();
    pub const PRESENT: Self = Self::empty();
    pub const PREDICATION: Self = Self::INDIRECT_ARGUMENT;
    pub const ALL_SHADER_RESOURCE: Self = Self::NON_PIXEL_SHADER_RESOURCE.union(Self::PIXEL_SHADER_RESOURCE);
    pub const GENERIC_READ: Self = Self::VERTEX_AND_CONSTANT_BUFFER
        .union(Self::INDEX_BUFFER)
        .union(Self::ALL_SHADER_RESOURCE)
        .union(Self::INDIRECT_ARGUMENT)
        .union(Self::COPY_SOURCE);
}

/// `D3D12DDI_BARRIER_LAYOUT` (BAR-010).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BarrierLayout(pub u32);

macro_rules! layouts {
    ($($name:ident = $value:expr,)*) => {
        impl BarrierLayout {
            $(pub const $name: Self = Self($value);)*

            /// Every layout that is published, with its name.
            pub const ALL: &[(Self, &str)] = &[$((Self($value), stringify!($name)),)*];
        }
    };
}

layouts! {
    COMMON = 0,
    GENERIC_READ = 1,
    RENDER_TARGET = 2,
    UNORDERED_ACCESS = 3,
    DEPTH_STENCIL_WRITE = 4,
    DEPTH_STENCIL_READ = 5,
    SHADER_RESOURCE = 6,
    COPY_SOURCE = 7,
    COPY_DEST = 8,
    RESOLVE_SOURCE = 9,
    RESOLVE_DEST = 10,
    SHADING_RATE_SOURCE = 11,
    VIDEO_DECODE_READ = 12,
    VIDEO_DECODE_WRITE = 13,
    VIDEO_PROCESS_READ = 14,
    VIDEO_PROCESS_WRITE = 15,
    VIDEO_ENCODE_READ = 16,
    VIDEO_ENCODE_WRITE = 17,
    DIRECT_QUEUE_COMMON = 18,
    DIRECT_QUEUE_GENERIC_READ = 19,
    DIRECT_QUEUE_UNORDERED_ACCESS = 20,
    DIRECT_QUEUE_SHADER_RESOURCE = 21,
    DIRECT_QUEUE_COPY_SOURCE = 22,
    DIRECT_QUEUE_COPY_DEST = 23,
    COMPUTE_QUEUE_COMMON = 24,
    COMPUTE_QUEUE_GENERIC_READ = 25,
    COMPUTE_QUEUE_UNORDERED_ACCESS = 26,
    COMPUTE_QUEUE_SHADER_RESOURCE = 27,
    COMPUTE_QUEUE_COPY_SOURCE = 28,
    COMPUTE_QUEUE_COPY_DEST = 29,
    VIDEO_QUEUE_COMMON = 30,
    DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE = 31,
    LEGACY_COPY_SOURCE = 0x8000_0000,
    LEGACY_COPY_DEST = 0x8000_0001,
    LEGACY_SHADER_RESOURCE = 0x8000_0002,
    LEGACY_PIXEL_SHADER_RESOURCE = 0x8000_0003,
    UNDEFINED = 0xFFFF_FFFF,
}

impl BarrierLayout {
    /// Presentation needs the layout COMMON; this is its other name.
    pub const PRESENT: Self = Self::COMMON;
}

impl core::fmt::Debug for BarrierLayout {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Self::ALL.iter().find(|(layout, _)| layout == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// `D3D12_COMMAND_LIST_TYPE`, with its values. A bundle (1) is a direct list with a flag here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u32)]
pub enum QueueType {
    Direct = 0,
    Compute = 2,
    Copy = 3,
    VideoDecode = 4,
    VideoProcess = 5,
    VideoEncode = 6,
}

impl QueueType {
    pub const ALL: [Self; 6] =
        [Self::Direct, Self::Compute, Self::Copy, Self::VideoDecode, Self::VideoProcess, Self::VideoEncode];

    /// `None` for a value that is no queue's.
    pub fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|queue| *queue as u32 == word)
    }
}

bitflags! {
    /// Flags of [`Packet::BeginList`](super::Packet).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct ListFlags: u32 {
        /// `D3D12_COMMAND_LIST_TYPE_BUNDLE`: it may not have barriers.
        const BUNDLE = 0x1;
    }

    /// Flags of a [`Use`](super::Use).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct UseFlags: u32 {
        /// An unordered access that reads and does not write.
        const ONLY_READS = 0x1;
        /// The stages that use the range, if a command has several. Without a stage of the command: all its stages.
        const VERTEX_STAGE = 0x2;
        const PIXEL_STAGE = 0x4;
        const COMPUTE_STAGE = 0x8;
        const HULL_STAGE = 0x10;
        const DOMAIN_STAGE = 0x20;
        const GEOMETRY_STAGE = 0x40;
        /// A stage of `DispatchMesh`, as is the next.
        const AMPLIFICATION_STAGE = 0x80;
        const MESH_STAGE = 0x100;
    }
}
