/* A client that looks the calls up by name, as real ones do: each documented name is there, and answers NULL and a
 * struct of zeros or of ones with a documented status. No name needs a header. */
#include "check.h"
#include <dlfcn.h>

/* The functions of the Windows SDK (windows-sys 0.61). */
static const char *const windows_names[] = {
    "AcquireKeyedMutex", "AcquireKeyedMutex2", "AdjustFullscreenGamma", "CancelPresents",
    "ChangeSurfacePointer", "ChangeVideoMemoryReservation", "CheckExclusiveOwnership",
    "CheckMonitorPowerState", "CheckMultiPlaneOverlaySupport", "CheckMultiPlaneOverlaySupport2",
    "CheckMultiPlaneOverlaySupport3", "CheckOcclusion", "CheckSharedResourceAccess",
    "CheckVidPnExclusiveOwnership", "CloseAdapter", "ConfigureSharedResource", "CreateAllocation",
    "CreateAllocation2", "CreateContext", "CreateContextVirtual", "CreateDCFromMemory", "CreateDevice",
    "CreateHwContext", "CreateHwQueue", "CreateKeyedMutex", "CreateKeyedMutex2", "CreateOutputDupl",
    "CreateOverlay", "CreatePagingQueue", "CreateProtectedSession", "CreateSynchronizationObject",
    "CreateSynchronizationObject2", "DestroyAllocation", "DestroyAllocation2", "DestroyContext",
    "DestroyDCFromMemory", "DestroyDevice", "DestroyHwContext", "DestroyHwQueue", "DestroyKeyedMutex",
    "DestroyOutputDupl", "DestroyOverlay", "DestroyPagingQueue", "DestroyProtectedSession",
    "DestroySynchronizationObject", "EnumAdapters", "EnumAdapters2", "EnumAdapters3", "Escape", "Evict",
    "FlipOverlay", "FlushHeapTransitions", "FreeGpuVirtualAddress", "GetAllocationPriority",
    "GetContextInProcessSchedulingPriority", "GetContextSchedulingPriority", "GetDWMVerticalBlankEvent",
    "GetDeviceState", "GetDisplayModeList", "GetMultiPlaneOverlayCaps", "GetMultisampleMethodList",
    "GetOverlayState", "GetPostCompositionCaps", "GetPresentHistory", "GetPresentQueueEvent",
    "GetProcessDeviceRemovalSupport", "GetProcessSchedulingPriorityClass",
    "GetResourcePresentPrivateDriverData", "GetRuntimeData", "GetScanLine", "GetSharedPrimaryHandle",
    "GetSharedResourceAdapterLuid", "InvalidateActiveVidPn", "InvalidateCache", "Lock", "Lock2",
    "MakeResident", "MapGpuVirtualAddress", "MarkDeviceAsError", "OfferAllocations",
    "OpenAdapterFromDeviceName", "OpenAdapterFromGdiDisplayName", "OpenAdapterFromHdc", "OpenAdapterFromLuid",
    "OpenKeyedMutex", "OpenKeyedMutex2", "OpenKeyedMutexFromNtHandle", "OpenNtHandleFromName",
    "OpenProtectedSessionFromNtHandle", "OpenResource", "OpenResource2", "OpenResourceFromNtHandle",
    "OpenSyncObjectFromNtHandle", "OpenSyncObjectFromNtHandle2", "OpenSyncObjectNtHandleFromName",
    "OpenSynchronizationObject", "OutputDuplGetFrameInfo", "OutputDuplGetMetaData",
    "OutputDuplGetPointerShapeData", "OutputDuplPresent", "OutputDuplPresentToHwQueue",
    "OutputDuplReleaseFrame", "PollDisplayChildren", "Present", "PresentMultiPlaneOverlay",
    "PresentMultiPlaneOverlay2", "PresentMultiPlaneOverlay3", "PresentRedirected", "QueryAdapterInfo",
    "QueryAllocationResidency", "QueryClockCalibration", "QueryFSEBlock", "QueryProcessOfferInfo",
    "QueryProtectedSessionInfoFromNtHandle", "QueryProtectedSessionStatus",
    "QueryRemoteVidPnSourceFromGdiDisplayName", "QueryResourceInfo", "QueryResourceInfoFromNtHandle",
    "QueryStatistics", "QueryVidPnExclusiveOwnership", "QueryVideoMemoryInfo", "ReclaimAllocations",
    "ReclaimAllocations2", "RegisterTrimNotification", "RegisterVailProcess", "ReleaseKeyedMutex",
    "ReleaseKeyedMutex2", "ReleaseProcessVidPnSourceOwners", "Render", "ReserveGpuVirtualAddress",
    "SetAllocationPriority", "SetContextInProcessSchedulingPriority", "SetContextSchedulingPriority",
    "SetDisplayMode", "SetDisplayPrivateDriverFormat", "SetFSEBlock", "SetGammaRamp",
    "SetHwProtectionTeardownRecovery", "SetMonitorColorSpaceTransform", "SetProcessSchedulingPriorityClass",
    "SetQueuedLimit", "SetStablePowerState", "SetSyncRefreshCountWaitTarget", "SetVidPnSourceHwProtection",
    "SetVidPnSourceOwner", "SetVidPnSourceOwner1", "SetVidPnSourceOwner2", "ShareObjects",
    "SharedPrimaryLockNotification", "SharedPrimaryUnLockNotification", "SignalSynchronizationObject",
    "SignalSynchronizationObject2", "SignalSynchronizationObjectFromCpu",
    "SignalSynchronizationObjectFromGpu", "SignalSynchronizationObjectFromGpu2", "SubmitCommand",
    "SubmitCommandToHwQueue", "SubmitPresentBltToHwQueue", "SubmitPresentToHwQueue",
    "SubmitSignalSyncObjectsToHwQueue", "SubmitWaitForSyncObjectsToHwQueue", "TrimProcessCommitment",
    "Unlock", "Unlock2", "UnregisterTrimNotification", "UpdateAllocationProperty", "UpdateGpuVirtualAddress",
    "UpdateOverlay", "WaitForIdle", "WaitForSynchronizationObject", "WaitForSynchronizationObject2",
    "WaitForSynchronizationObjectFromCpu", "WaitForSynchronizationObjectFromGpu", "WaitForVerticalBlankEvent",
    "WaitForVerticalBlankEvent2",
};

/* What libdxg exports, names without C linkage included. */
static const char *const libdxg_names[] = {
    "OpenAdapterFromLuid", "CreateDevice", "CreateContext", "CreateContextVirtual", "DestroyContext",
    "CreateAllocation2", "CreatePagingQueue", "ReserveGpuVirtualAddress", "QueryVideoMemoryInfo",
    "MakeResident", "MapGpuVirtualAddress", "Escape", "GetDeviceState", "SubmitCommand",
    "CreateSynchronizationObject2", "SignalSynchronizationObject2", "WaitForSynchronizationObject2",
    "DestroyAllocation2", "EnumAdapters2", "CloseAdapter", "ChangeVideoMemoryReservation", "CreateHwContext",
    "CreateHwQueue", "DestroyDevice", "DestroyHwContext", "DestroyHwQueue", "DestroyPagingQueue",
    "DestroySynchronizationObject", "Evict", "FlushHeapTransitions", "FreeGpuVirtualAddress",
    "GetContextInProcessSchedulingPriority", "GetContextSchedulingPriority", "GetSharedResourceAdapterLuid",
    "InvalidateCache", "Lock2", "MarkDeviceAsError", "OfferAllocations", "OpenSynchronizationObject",
    "QueryAllocationResidency", "QueryResourceInfo", "ReclaimAllocations2", "Render", "SetAllocationPriority",
    "SetContextInProcessSchedulingPriority", "SetContextSchedulingPriority",
    "SignalSynchronizationObjectFromCpu", "SignalSynchronizationObjectFromGpu",
    "SignalSynchronizationObjectFromGpu2", "SubmitCommandToHwQueue", "SubmitSignalSyncObjectsToHwQueue",
    "SubmitWaitForSyncObjectsToHwQueue", "Unlock2", "UpdateAllocationProperty", "UpdateGpuVirtualAddress",
    "WaitForSynchronizationObjectFromCpu", "WaitForSynchronizationObjectFromGpu", "GetAllocationPriority",
    "QueryClockCalibration", "EnumAdapters3", "OpenSyncObjectFromNtHandle2", "QueryResourceInfoFromNtHandle",
    "OpenResourceFromNtHandle", "QueryStatistics", "ShareObjectWithHost", "CreateSyncFile",
    "GetMultisampleMethodList", "SetQueuedLimit", "OpenNtHandleFromName", "OpenSyncObjectNtHandleFromName",
    "OpenProtectedSessionFromNtHandle", "Lock", "Unlock", "SetDisplayPrivateDriverFormat",
    "CreateProtectedSession", "DestroyProtectedSession", "QueryProtectedSessionStatus", "CreateKeyedMutex2",
    "OpenKeyedMutex2", "DestroyKeyedMutex", "AcquireKeyedMutex2", "ReleaseKeyedMutex2",
    "QueryProtectedSessionInfoFromNtHandle", "Present", "SubmitPresentToHwQueue", "PinResources",
    "UnpinResources", "SetStablePowerState", "ShareObjects", "OpenResource", "DestroyAllocation",
    "CreateSynchronizationObject", "WaitForSynchronizationObject", "SignalSynchronizationObject",
    "QueryAdapterInfo", "CreateTrackedWorkload", "DestroyTrackedWorkload", "GetTrackedWorkloadStatistics",
    "ResetTrackedWorkloadStatistics", "UpdateTrackedWorkload", "GetAvailableTrackedWorkloadIndex",
};

/* The 32 names without which the loader of ROCm on WSL fails, and 3 that it can do without. */
static const char *const rocr_names[] = {
    "CreateAllocation2", "DestroyAllocation2", "MapGpuVirtualAddress", "ReserveGpuVirtualAddress",
    "FreeGpuVirtualAddress", "CreateDevice", "DestroyDevice", "EnumAdapters2", "QueryAdapterInfo",
    "CreateContextVirtual", "DestroyContext", "SubmitCommand", "CreateSynchronizationObject2",
    "DestroySynchronizationObject", "QueryStatistics", "Escape", "Lock2", "Unlock2", "CreatePagingQueue",
    "DestroyPagingQueue", "WaitForSynchronizationObjectFromGpu", "SignalSynchronizationObjectFromGpu",
    "WaitForSynchronizationObjectFromCpu", "QueryClockCalibration", "MakeResident", "Evict", "ShareObjects",
    "QueryResourceInfoFromNtHandle", "OpenResourceFromNtHandle", "CreateHwQueue", "DestroyHwQueue",
    "SubmitCommandToHwQueue", "EnumProcesses", "QueryVideoMemoryInfo", "SignalSynchronizationObjectFromCpu",
};

/* Names of documentation pages, of the SDK's function pointer types, and of the Linux driver. */
static const char *const other_names[] = {
    "ConnectDoorbell", "CreateDoorbell", "CreateNativeFence", "DestroyDoorbell",
    "GetProcessDeviceLostSupport", "IsFeatureEnabled", "NotifyWorkSubmission", "OpenNativeFenceFromNtHandle",
    "OpenSyncObjectFromSyncFile", "PinDirectFlipResources", "QueryHybridListValue",
    "RegisterBudgetChangeNotification", "SetHybridListVValue", "SetStereoEnabled", "UnpinDirectFlipResources",
    "UnregisterBudgetChangeNotification", "WaitSyncFile",
};

#define COUNT(names) (sizeof names / sizeof *names)

typedef NTSTATUS (*call_fn)(const void *, const void *, const void *, const void *, const void *);

/* Answers to NULL, and to an argument that points to zeros. */
struct answer {
    const char *name;
    NTSTATUS to_null, to_zeros;
};

/* Calls of which NULL or zeros are no error, or which have no argument or another one than a struct. */
static const struct answer exceptions[] = {
    {"CheckExclusiveOwnership", 0, 0},
    {"OpenAdapterFromGdiDisplayName", STATUS_UNSUCCESSFUL, STATUS_UNSUCCESSFUL},
    {"EnumAdapters", STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
    {"EnumAdapters2", STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
    {"EnumAdapters3", STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
    {"SetProcessSchedulingPriorityClass", STATUS_INVALID_HANDLE, STATUS_INVALID_HANDLE},
    {"OpenSyncObjectFromNtHandle", STATUS_INVALID_PARAMETER, STATUS_INVALID_HANDLE},
    {"OpenKeyedMutexFromNtHandle", STATUS_INVALID_PARAMETER, STATUS_INVALID_HANDLE},
    /* Keyed mutexes belong to no device. */
    {"CreateKeyedMutex", STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
    {"CreateKeyedMutex2", STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};

static const struct answer *exception(const char *name)
{
    for (size_t i = 0; i < COUNT(exceptions); i++)
        if (!strcmp(exceptions[i].name, name))
            return &exceptions[i];
    return NULL;
}

/* Calls that such a struct is no error for: it is a number only, or all of it is output. */
static NTSTATUS to_ones(const char *name)
{
    static const char *const without_error[] = {"CheckExclusiveOwnership", "CreateKeyedMutex", "EnumAdapters"};
    for (size_t i = 0; i < COUNT(without_error); i++)
        if (!strcmp(without_error[i], name))
            return STATUS_SUCCESS;
    return strcmp(name, "OpenAdapterFromGdiDisplayName") ? STATUS_INVALID_PARAMETER : STATUS_UNSUCCESSFUL;
}

/* Absurd arguments: each number and each pointer in the struct is all ones, and the struct itself is on page 0. */
static void try_absurd(call_fn call, const char *name, const char *symbol)
{
    static _Alignas(16) unsigned char ones[1024];
    memset(ones, 0xff, sizeof ones);
    NTSTATUS status = call(ones, NULL, NULL, NULL, NULL), wanted = to_ones(name);
    if (!strcmp(name, "CheckExclusiveOwnership"))
        status &= 0xff;
    int is_refused = wanted == STATUS_INVALID_PARAMETER &&
                     (status == STATUS_NOT_SUPPORTED || status == STATUS_INVALID_HANDLE);
    CHECK(status == wanted || is_refused, "%s of ones answered %#010x", symbol, (unsigned)status);
    status = call((const void *)0x10, NULL, NULL, NULL, NULL);
    CHECK(status != STATUS_SUCCESS || !strcmp(name, "CheckExclusiveOwnership"), "%s of page 0 answered %#010x", symbol,
          (unsigned)status);
}

static void try_name(void *library, const char *name)
{
    static _Alignas(16) unsigned char zeros[1024];
    char symbol[128];
    snprintf(symbol, sizeof symbol, "D3DKMT%s", name);
    call_fn call = (call_fn)dlsym(library, symbol);
    CHECK(call, "%s is missing", symbol);
    if (!call)
        return;
    const struct answer *known = exception(name);
    NTSTATUS status = call(NULL, NULL, NULL, NULL, NULL);
    if (!strcmp(name, "CheckExclusiveOwnership"))
        status &= 0xff; /* a BOOLEAN */
    NTSTATUS wanted = known ? known->to_null : STATUS_INVALID_PARAMETER;
    CHECK(status == wanted, "%s(NULL) answered %#010x instead of %#010x", symbol, (unsigned)status, (unsigned)wanted);
    memset(zeros, 0, sizeof zeros);
    status = call(zeros, NULL, NULL, NULL, NULL);
    if (!strcmp(name, "CheckExclusiveOwnership"))
        status &= 0xff;
    if (known)
        CHECK(status == known->to_zeros, "%s of zeros answered %#010x", symbol, (unsigned)status);
    else
        CHECK(status == STATUS_INVALID_PARAMETER || status == STATUS_NOT_SUPPORTED, "%s of zeros answered %#010x",
              symbol, (unsigned)status);
    try_absurd(call, name, symbol);
}

static void try_names(void *library, const char *source, const char *const *names, size_t count)
{
    int before = failures;
    for (size_t i = 0; i < count; i++)
        try_name(library, names[i]);
    if (failures == before)
        printf("%s: %zu names\n", source, count);
}

int main(void)
{
    COVERS("MEM-019 MEM-020");
    /* The notices would not be the same in every environment. */
    setenv("GPUPV_QUIET", "1", 1);
    void *library = dlopen("libdxcore.so", RTLD_LAZY);
    CHECK(library, "dlopen: %s", dlerror());
    if (!library)
        return 1;
    try_names(library, "Windows SDK", windows_names, COUNT(windows_names));
    try_names(library, "libdxg", libdxg_names, COUNT(libdxg_names));
    try_names(library, "ROCm", rocr_names, COUNT(rocr_names));
    try_names(library, "others", other_names, COUNT(other_names));
    CHECK(dlsym(library, "DXCoreCreateAdapterFactory"), "DXCoreCreateAdapterFactory is missing");
    CHECK(!dlsym(library, "D3DKMTNoSuchCall"), "a name that no document has was found");
    if (!failures)
        printf("loader: all as expected\n");
    return failures != 0;
}
