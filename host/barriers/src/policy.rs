//! Policies for points that the documents leave open: each a named option with its default and the reason.

use d3dkmt::isa::ScopeReading;
use serde::{Deserialize, Serialize};

/// `RTAS_READ` with a sync of graphics shaders (an inline ray query), which no published list of syncs has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum InlineRayQuery {
    /// Default: such shaders exist, and the lists have other gaps.
    #[default]
    Warning,
    /// Literally as in the table of accesses.
    Refused,
}

/// Required AccessBefore after another barrier in the same ExecuteCommandLists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AccessBefore {
    /// Default: a subset of the previous AccessAfter. A program that got two types and used one need not name the
    /// other.
    #[default]
    Within,
    /// The same bits.
    Equal,
}

/// Whether an acceleration structure, a buffer of video, or a simultaneous-access image of shading rates needs a barrier
/// before its first use in an ExecuteCommandLists: they are not in the list of accesses that need none, although the
/// previous one ended with a full flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum UnlistedFirstAccess {
    /// Default: programs build, trace and decode without one.
    #[default]
    Free,
    NeedsBarrier,
}

/// Depth and stencil accesses of two draws, two stream outputs, two copies or two resolves, without a barrier between
/// them; and depth tests where an AccessAfter named depth writes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FixedFunctionWrites {
    /// Default: the pipeline keeps them in draw order, as it does with blending, and copies and resolves run one after the
    /// other. The documents except only render targets from "sequential writes need a barrier", but no program has
    /// barriers inside a depth pass, and "all Copy, Discard and Resolve commands execute synchronously".
    #[default]
    InOrder,
    /// Literally as in the documents on enhanced barriers. Resources in a legacy state have no such barriers.
    NeedBarrier,
}

/// Layout 30, VIDEO_QUEUE_COMMON: the DDI has it, but no queue's list of layouts does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum VideoQueueCommon {
    /// Default: a layout that no list has may not be used.
    #[default]
    NoQueue,
    /// The three kinds of video queues may use it, for their own accesses.
    VideoQueues,
}

/// Which access must be NO_ACCESS when SyncBefore is NONE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SyncNoneAccess {
    /// Default: AccessBefore, as in the D3D12 specification.
    #[default]
    SameSide,
    /// AccessAfter, as on the page of `D3D12DDI_BARRIER_SYNC`.
    After,
}

/// Which barriers may not come between the halves of a split barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SplitBarriers {
    /// Default: other barriers on the same subresource. Barriers on other subresources do not affect the split.
    #[default]
    BySubresource,
    /// Other barriers on the same resource, as on the page of `D3D12DDI_BARRIER_SYNC`.
    ByResource,
}

/// Severity of BUILD_RTAS or COPY_RTAS without RTAS_WRITE on the same side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RtasWrite {
    /// Default: a warning, except with COMMON and NO_ACCESS. Builds read geometry, and scratch memory is no
    /// acceleration structure.
    #[default]
    Warned,
    /// An error with every access, as the documents read literally: "must have the RTAS_WRITE bit set".
    Required,
}

/// The policies of a validator.
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
    /// Interpretation of the scopes EXECUTE_INDIRECT and INPUT_ASSEMBLER; engines use the same.
    pub scope_reading: ScopeReading,
}

/// `D3D12_FENCE_BARRIER_TIER`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum FenceBarrierTier {
    #[default]
    NotSupported,
    /// WaitBarrier is not supported for fences that queues and the CPU may use.
    Tier1,
    Tier2,
}

/// Capabilities that the device reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// `D3D12_FEATURE_DATA_D3D12_OPTIONS12::EnhancedBarriersSupported`.
    pub enhanced_barriers: bool,
    pub fence_barriers: FenceBarrierTier,
}

impl Default for Capabilities {
    fn default() -> Self {
        let fence_barriers = FenceBarrierTier::Tier2;
        Capabilities { enhanced_barriers: true, fence_barriers }
    }
}
