//! Documented calls that always answer NOT_SUPPORTED, by the reason: a client that links or loads them starts. The
//! exports, their prototypes in `d3dkmthk.h` and the table in docs/ABI.md come from these rows.
//!
//! ```text
//! "REASON" {
//!     NAME,                                  NTSTATUS NAME(const void *), because no struct of it is declared here
//!     NAME(PARAMETER: TYPE, ..),             a call with other parameters
//! }
//! ```
//!
//! A NULL argument, or one that is 0, answers INVALID_PARAMETER. Nothing else of the arguments is read.

use crate::header::Prototype;

/// Calls that are not supported for the same reason.
pub struct RefusedGroup {
    pub why: &'static str,
    pub calls: &'static [Prototype],
}

macro_rules! refused_calls {
    ($d:tt $($rows:tt)*) => {
        refused_prototypes! { $($rows)* }

        /// Calls `expand!` with the rows of the calls that answer NOT_SUPPORTED.
        #[macro_export]
        macro_rules! for_each_refused_call {
            ($d($d expand:ident)::+) => { $d($d expand)::+! { $($rows)* } };
        }
    };
}

macro_rules! refused_prototypes {
    ($($why:literal { $($name:ident $(($($parameter:ident: $type:ty),+))?,)+ })+) => {
        /// Every call that answers NOT_SUPPORTED, by the reason.
        pub const REFUSED: &[RefusedGroup] = &[$(RefusedGroup {
            why: $why,
            calls: &[$(Prototype {
                name: stringify!($name),
                docs: &[],
                parameters: refused_parameters!($($($type),+)?),
            }),+],
        }),+];
    };
}

macro_rules! refused_parameters {
    () => { &["*const c_void"] };
    ($($type:ty),+) => { &[$(stringify!($type)),+] };
}

refused_calls! {
    $
    "no adapter drives a display" {
        D3DKMTAdjustFullscreenGamma,
        D3DKMTCancelPresents,
        D3DKMTChangeSurfacePointer,
        D3DKMTCheckMonitorPowerState,
        D3DKMTCheckMultiPlaneOverlaySupport,
        D3DKMTCheckMultiPlaneOverlaySupport2,
        D3DKMTCheckMultiPlaneOverlaySupport3,
        D3DKMTCheckOcclusion,
        D3DKMTCheckVidPnExclusiveOwnership,
        D3DKMTCreateOverlay,
        D3DKMTDestroyOverlay,
        D3DKMTFlipOverlay,
        D3DKMTGetDisplayModeList,
        D3DKMTGetDWMVerticalBlankEvent,
        D3DKMTGetMultiPlaneOverlayCaps,
        D3DKMTGetMultisampleMethodList,
        D3DKMTGetOverlayState,
        D3DKMTGetPostCompositionCaps,
        D3DKMTGetPresentHistory,
        D3DKMTGetPresentQueueEvent(adapter: D3DKMT_HANDLE, event: *mut HANDLE),
        D3DKMTGetResourcePresentPrivateDriverData,
        D3DKMTGetScanLine,
        D3DKMTGetSharedPrimaryHandle,
        D3DKMTInvalidateActiveVidPn,
        D3DKMTPinDirectFlipResources,
        D3DKMTPollDisplayChildren,
        D3DKMTPresent,
        D3DKMTPresentMultiPlaneOverlay,
        D3DKMTPresentMultiPlaneOverlay2,
        D3DKMTPresentMultiPlaneOverlay3,
        D3DKMTPresentRedirected,
        D3DKMTQueryFSEBlock,
        D3DKMTQueryRemoteVidPnSourceFromGdiDisplayName,
        D3DKMTQueryVidPnExclusiveOwnership,
        D3DKMTReleaseProcessVidPnSourceOwners(process: HANDLE),
        D3DKMTSetDisplayMode,
        D3DKMTSetDisplayPrivateDriverFormat,
        D3DKMTSetFSEBlock,
        D3DKMTSetGammaRamp,
        D3DKMTSetMonitorColorSpaceTransform,
        D3DKMTSetQueuedLimit,
        D3DKMTSetStereoEnabled,
        D3DKMTSetSyncRefreshCountWaitTarget,
        D3DKMTSetVidPnSourceOwner,
        D3DKMTSetVidPnSourceOwner1,
        D3DKMTSetVidPnSourceOwner2,
        D3DKMTSharedPrimaryLockNotification,
        D3DKMTSharedPrimaryUnLockNotification,
        D3DKMTSubmitPresentBltToHwQueue,
        D3DKMTSubmitPresentToHwQueue,
        D3DKMTUnpinDirectFlipResources,
        D3DKMTUpdateOverlay,
        D3DKMTWaitForVerticalBlankEvent,
        D3DKMTWaitForVerticalBlankEvent2,
    }
    "there is no desktop to duplicate" {
        D3DKMTCreateOutputDupl,
        D3DKMTDestroyOutputDupl,
        D3DKMTOutputDuplGetFrameInfo,
        D3DKMTOutputDuplGetMetaData,
        D3DKMTOutputDuplGetPointerShapeData,
        D3DKMTOutputDuplPresent,
        D3DKMTOutputDuplPresentToHwQueue,
        D3DKMTOutputDuplReleaseFrame,
    }
    "no adapter protects content" {
        D3DKMTCreateProtectedSession,
        D3DKMTDestroyProtectedSession,
        D3DKMTOpenProtectedSessionFromNtHandle,
        D3DKMTQueryProtectedSessionInfoFromNtHandle,
        D3DKMTQueryProtectedSessionStatus,
        D3DKMTSetHwProtectionTeardownRecovery,
        D3DKMTSetVidPnSourceHwProtection,
    }
    "there is no GDI" {
        D3DKMTCreateDCFromMemory,
        D3DKMTDestroyDCFromMemory,
    }
    "there is no hybrid of an integrated and a discrete adapter" {
        D3DKMTQueryHybridListValue,
        D3DKMTSetHybridListVValue,
    }
    "contexts have GPU virtual addresses; use CreateContextVirtual and SubmitCommand" {
        D3DKMTCreateContext,
        D3DKMTCreateHwContext,
        D3DKMTDestroyHwContext,
        D3DKMTRender,
    }
    "the host is no Windows session" {
        D3DKMTRegisterVailProcess,
        D3DKMTShareObjectWithHost,
    }
    "a store to mapped memory notifies no host" {
        D3DKMTConnectDoorbell,
        D3DKMTCreateDoorbell,
        D3DKMTDestroyDoorbell,
        D3DKMTNotifyWorkSubmission,
    }
    "tracked workloads are not modelled" {
        D3DKMTCreateTrackedWorkload,
        D3DKMTDestroyTrackedWorkload,
        D3DKMTGetAvailableTrackedWorkloadIndex,
        D3DKMTGetTrackedWorkloadStatistics,
        D3DKMTResetTrackedWorkloadStatistics,
        D3DKMTUpdateTrackedWorkload,
    }
    "rights to shared resources and pins of resources are not modelled" {
        D3DKMTCheckSharedResourceAccess,
        D3DKMTConfigureSharedResource,
        D3DKMTGetRuntimeData,
        D3DKMTPinResources,
        D3DKMTUnpinResources,
    }
    "use Lock2 and Unlock2" {
        D3DKMTLock,
        D3DKMTUnlock,
    }
}

/// The table of docs/ABI.md: a row for each reason.
pub fn markdown() -> String {
    let mut rows = String::from("| calls | why |\n|---|---|\n");
    for RefusedGroup { why, calls } in REFUSED {
        let names: Vec<&str> = calls.iter().map(|call| call.name.trim_start_matches("D3DKMT")).collect();
        rows.push_str(&format!("| {} | {why} |\n", names.join(", ")));
    }
    rows
}
