//! What the documents leave open: each a named switch with its default and the reason.

use d3dkmt::isa::ScopeReading;
use serde::{Deserialize, Serialize};

/// `RTAS_READ` with a sync of graphics shaders (an inline ray query), which no published list of syncs has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum InlineRayQuery {
    /// Default: such shaders exist, and the lists have other gaps.
    #[default]
    Warning,
    /// As the table of accesses says, word for word.
    Refused,
}

/// What AccessBefore must be after a barrier in the same ExecuteCommandLists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AccessBefore {
    /// Default: some of the access types of the AccessAfter before it. Whoever was given two and used one has nothing
    /// to say of the other.
    #[default]
    Within,
    /// The same bits.
    Equal,
}

/// Whether an acceleration structure, or a buffer of video, needs a barrier before its first use in an
/// ExecuteCommandLists: they are not on the list of accesses that need none, and yet the end of the one before was a
/// full flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum UnlistedFirstAccess {
    /// Default: programs build, trace and decode without one.
    #[default]
    Free,
    NeedsBarrier,
}

/// Depth and stencil accesses of two draws, or two stream outputs, without a barrier between them; and depth tests where an
/// AccessAfter named depth writes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FixedFunctionWrites {
    /// Default: the pipeline keeps them in the order of the draws, as it does with blending. Documents except render
    /// targets alone from "sequential writes need a barrier", but no program has barriers inside of a depth pass.
    #[default]
    InOrder,
    /// Word for word.
    NeedBarrier,
}

/// The layout 30, VIDEO_QUEUE_COMMON: the DDI has it, no queue's list does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum VideoQueueCommon {
    /// Default: what no list has may not be used.
    #[default]
    NoQueue,
    /// The three kinds of video queues may use it, for their own accesses.
    VideoQueues,
}

/// Which access must be NO_ACCESS when SyncBefore is NONE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SyncNoneAccess {
    /// Default: AccessBefore, as the D3D12 specification says.
    #[default]
    SameSide,
    /// AccessAfter, as the page of `D3D12DDI_BARRIER_SYNC` says.
    After,
}

/// Which barriers may not come between the halves of a split barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SplitBarriers {
    /// Default: other barriers of the same subresource. Barriers of other subresources change nothing that the split is of.
    #[default]
    BySubresource,
    /// Other barriers of the same resource, as the page of `D3D12DDI_BARRIER_SYNC` says.
    ByResource,
}

/// What BUILD_RTAS or COPY_RTAS is whose side has no RTAS_WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RtasWrite {
    /// Default: worth a warning, but with COMMON and NO_ACCESS. Builds read geometry, and scratch memory is no structure.
    #[default]
    Warned,
    /// An error with every access: "must have the RTAS_WRITE bit set", word for word.
    Required,
}

/// See each switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Policy {
    pub inline_ray_query: InlineRayQuery,
    pub access_before: AccessBefore,
    pub unlisted_first_access: UnlistedFirstAccess,
    pub fixed_function_writes: FixedFunctionWrites,
    pub video_queue_common: VideoQueueCommon,
    pub sync_none_access: SyncNoneAccess,
    pub split_barriers: SplitBarriers,
    pub rtas_write: RtasWrite,
    /// What EXECUTE_INDIRECT and INPUT_ASSEMBLER are the scopes of: engines go by the same.
    pub scope_reading: ScopeReading,
}

/// `D3D12_FENCE_BARRIER_TIER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum FenceBarrierTier {
    #[default]
    NotSupported,
    /// No wait for fences that queues and the CPU may use.
    Tier1,
    Tier2,
}

/// What the device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// `D3D12_FEATURE_DATA_D3D12_OPTIONS12::EnhancedBarriersSupported`.
    pub enhanced_barriers: bool,
    pub fence_barriers: FenceBarrierTier,
    /// The stream is a driver's (DDI): there are ranged barriers. An application has none.
    pub ranged_barriers: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        let fence_barriers = FenceBarrierTier::Tier2;
        Capabilities { enhanced_barriers: true, fence_barriers, ranged_barriers: true }
    }
}
