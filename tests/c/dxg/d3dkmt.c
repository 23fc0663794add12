/* D3DKMT functions as bare ioctls of /dev/dxg, as clients have them that link a static library: one descriptor for the
 * process, opened when the program starts, and errno mapped to NTSTATUS. Written from the documented codes and layouts,
 * for programs that are compiled with and without it. */
#define _GNU_SOURCE
#include "dxg.h"
#include <d3dkmthk.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int dxg_descriptor = -1;

static int open_device(void)
{
    dxg_descriptor = open("/dev/dxg", O_RDONLY | O_CLOEXEC);
    return dxg_descriptor;
}

__attribute__((constructor)) static void at_start(void)
{
    open_device();
}

NTSTATUS dxg_status(int error)
{
    switch (error) {
    case EEXIST: return STATUS_OBJECT_NAME_COLLISION;
    case ENOMEM: return STATUS_NO_MEMORY;
    case EINVAL: return STATUS_INVALID_PARAMETER;
    case ENOENT: return STATUS_OBJECT_NAME_INVALID;
    case EAGAIN: return STATUS_TIMEOUT;
    case EOVERFLOW: return STATUS_BUFFER_TOO_SMALL;
    case ENODEV: return STATUS_DEVICE_REMOVED;
    case EACCES: return STATUS_ACCESS_DENIED;
    case ENOSYS:
    case EPERM: return STATUS_NOT_SUPPORTED;
    case EOPNOTSUPP: return (NTSTATUS)0xC000001D; /* ILLEGAL_INSTRUCTION */
    case EBADF: return STATUS_INVALID_HANDLE;
    case EINPROGRESS: return (NTSTATUS)0xC01E0102; /* GRAPHICS_ALLOCATION_BUSY */
    case EPROTOTYPE: return STATUS_OBJECT_TYPE_MISMATCH;
    default: return STATUS_UNSUCCESSFUL;
    }
}

static NTSTATUS call(unsigned long code, const void *argument)
{
    if (dxg_descriptor == -1)
        return STATUS_UNSUCCESSFUL;
    int result = ioctl(dxg_descriptor, code, argument);
    return result < 0 ? dxg_status(errno) : result;
}

/* The same; with a descriptor of another process, or one that is closed, once more with a descriptor of its own. */
static NTSTATUS call_that_reopens(unsigned long code, const void *argument)
{
    int result = ioctl(dxg_descriptor, code, argument);
    if (result < 0 && (errno == ENOTTY || errno == EBADF)) {
        if (open_device() < 0)
            return STATUS_UNSUCCESSFUL;
        result = ioctl(dxg_descriptor, code, argument);
    }
    return result < 0 ? dxg_status(errno) : result;
}

#define IOCTL(name, type, code, call)                                         \
    NTSTATUS D3DKMT##name(type *argument)                                     \
    {                                                                         \
        return call(code, argument);                                          \
    }

/* Where the code is documented it stands here, else the layout alone decides it. */
#define OF(number, type) _IOWR('G', number, type)

IOCTL(OpenAdapterFromLuid, D3DKMT_OPENADAPTERFROMLUID, 0xC00C4701, call_that_reopens)
IOCTL(CreateDevice, D3DKMT_CREATEDEVICE, 0xC0404702, call)
IOCTL(CreateContextVirtual, D3DKMT_CREATECONTEXTVIRTUAL, 0xC0284704, call)
IOCTL(DestroyContext, const D3DKMT_DESTROYCONTEXT, 0xC0044705, call)
IOCTL(CreateAllocation2, D3DKMT_CREATEALLOCATION, OF(0x06, D3DKMT_CREATEALLOCATION), call)
IOCTL(CreatePagingQueue, D3DKMT_CREATEPAGINGQUEUE, 0xC0204707, call)
IOCTL(ReserveGpuVirtualAddress, D3DDDI_RESERVEGPUVIRTUALADDRESS, OF(0x08, D3DDDI_RESERVEGPUVIRTUALADDRESS), call)
IOCTL(QueryVideoMemoryInfo, D3DKMT_QUERYVIDEOMEMORYINFO, OF(0x0a, D3DKMT_QUERYVIDEOMEMORYINFO), call)
IOCTL(MakeResident, D3DDDI_MAKERESIDENT, OF(0x0b, D3DDDI_MAKERESIDENT), call)
IOCTL(MapGpuVirtualAddress, D3DDDI_MAPGPUVIRTUALADDRESS, OF(0x0c, D3DDDI_MAPGPUVIRTUALADDRESS), call)
IOCTL(Escape, const D3DKMT_ESCAPE, 0xC020470D, call)
IOCTL(GetDeviceState, D3DKMT_GETDEVICESTATE, OF(0x0e, D3DKMT_GETDEVICESTATE), call)
IOCTL(SubmitCommand, const D3DKMT_SUBMITCOMMAND, 0xC180470F, call)
IOCTL(CreateSynchronizationObject2, D3DKMT_CREATESYNCHRONIZATIONOBJECT2, 0xC0604710, call)
IOCTL(SignalSynchronizationObject2, const D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2, 0xC1D04711, call)
IOCTL(WaitForSynchronizationObject2, const D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2, 0xC0C84712, call)
IOCTL(DestroyAllocation2, const D3DKMT_DESTROYALLOCATION2, OF(0x13, D3DKMT_DESTROYALLOCATION2), call)
IOCTL(EnumAdapters2, D3DKMT_ENUMADAPTERS2, 0xC0104714, call_that_reopens)
IOCTL(CloseAdapter, const D3DKMT_CLOSEADAPTER, 0xC0044715, call)
IOCTL(CreateHwQueue, D3DKMT_CREATEHWQUEUE, 0xC0304718, call)
IOCTL(DestroyDevice, const D3DKMT_DESTROYDEVICE, 0xC0044719, call)
IOCTL(DestroyHwQueue, const D3DKMT_DESTROYHWQUEUE, 0xC004471B, call)
IOCTL(DestroyPagingQueue, D3DDDI_DESTROYPAGINGQUEUE, 0xC004471C, call)
IOCTL(DestroySynchronizationObject, const D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, 0xC004471D, call)
IOCTL(Evict, D3DKMT_EVICT, OF(0x1e, D3DKMT_EVICT), call)
IOCTL(FreeGpuVirtualAddress, const D3DKMT_FREEGPUVIRTUALADDRESS, OF(0x20, D3DKMT_FREEGPUVIRTUALADDRESS), call)
IOCTL(Lock2, D3DKMT_LOCK2, OF(0x25, D3DKMT_LOCK2), call)
IOCTL(MarkDeviceAsError, const D3DKMT_MARKDEVICEASERROR, OF(0x26, D3DKMT_MARKDEVICEASERROR), call)
IOCTL(SignalSynchronizationObjectFromCpu, const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, 0xC0204731, call)
IOCTL(SignalSynchronizationObjectFromGpu, const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, 0xC0504732, call)
IOCTL(SignalSynchronizationObjectFromGpu2, const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2, 0xC0604733, call)
IOCTL(SubmitCommandToHwQueue, const D3DKMT_SUBMITCOMMANDTOHWQUEUE, 0xC0384734, call)
IOCTL(SubmitSignalSyncObjectsToHwQueue, const D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, 0xC0284735, call)
IOCTL(SubmitWaitForSyncObjectsToHwQueue, const D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, 0xC0184736, call)
IOCTL(Unlock2, const D3DKMT_UNLOCK2, OF(0x37, D3DKMT_UNLOCK2), call)
IOCTL(UpdateGpuVirtualAddress, const D3DKMT_UPDATEGPUVIRTUALADDRESS, 0xC0384739, call)
IOCTL(WaitForSynchronizationObjectFromCpu, const D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, 0xC028473A, call)
IOCTL(WaitForSynchronizationObjectFromGpu, const D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, 0xC050473B, call)
IOCTL(EnumAdapters3, D3DKMT_ENUMADAPTERS3, 0xC018473E, call_that_reopens)
IOCTL(OpenSyncObjectFromNtHandle2, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, 0xC0584740, call)
IOCTL(CreateSyncFile, D3DKMT_CREATESYNCFILE, 0xC0184745, call)

/* D3DDDI_QUERYREGISTRY_INFO, as the kernel has it. */
struct registry {
    UINT type, flags;
    uint16_t name[260];
    UINT value_type, physical_adapter, size, status;
    unsigned char output[];
};

/* Of the units that the texts in this program have, none is a surrogate. */
static NTSTATUS query_registry(D3DKMT_QUERYADAPTERINFO *argument)
{
    D3DDDI_QUERYREGISTRY_INFO *wide = argument->pPrivateDriverData;
    UINT room = argument->PrivateDriverDataSize - (UINT)offsetof(D3DDDI_QUERYREGISTRY_INFO, OutputString);
    struct registry *narrow = calloc(1, sizeof *narrow + room);
    D3DKMT_QUERYADAPTERINFO copy = *argument;
    copy.pPrivateDriverData = narrow;
    copy.PrivateDriverDataSize = (UINT)sizeof *narrow + room;
    narrow->type = wide->QueryType;
    narrow->flags = wide->QueryFlags;
    for (int at = 0; at < 260; at++)
        narrow->name[at] = (uint16_t)wide->ValueName[at];
    narrow->value_type = wide->ValueType;
    narrow->physical_adapter = wide->PhysicalAdapterIndex;
    NTSTATUS status = call(0xC0184709, &copy);
    int is_text = wide->ValueType == 1 || wide->QueryType > 1;
    UINT size = is_text ? narrow->size * 2 : narrow->size;
    if (status >= 0) {
        wide->OutputValueSize = size;
        wide->Status = narrow->status == 0 && size > room ? 1 : narrow->status;
        if (wide->Status == 0 && !is_text)
            memcpy(wide->OutputBinary, narrow->output, size);
        for (UINT at = 0; wide->Status == 0 && is_text && at < size / sizeof(WCHAR); at++)
            wide->OutputString[at] = ((uint16_t *)narrow->output)[at];
    }
    free(narrow);
    return status;
}

/* The kernel's WCHAR has 2 bytes. */
NTSTATUS D3DKMTQueryAdapterInfo(D3DKMT_QUERYADAPTERINFO *argument)
{
    D3DKMT_QUERYADAPTERINFO copy = *argument;
    if (argument->Type == KMTQAITYPE_QUERYREGISTRY)
        return query_registry(argument);
    if (argument->Type != KMTQAITYPE_DRIVER_DESCRIPTION)
        return call(0xC0184709, argument);
    size_t count = argument->PrivateDriverDataSize / sizeof(WCHAR);
    uint16_t *text = calloc(count, sizeof *text);
    copy.pPrivateDriverData = text;
    copy.PrivateDriverDataSize = (UINT)(count * sizeof *text);
    NTSTATUS status = call(0xC0184709, &copy);
    for (size_t at = 0; status >= 0 && at < count; at++)
        ((WCHAR *)argument->pPrivateDriverData)[at] = text[at];
    free(text);
    return status;
}

NTSTATUS D3DKMTShareObjects(UINT count, const D3DKMT_HANDLE *objects, OBJECT_ATTRIBUTES *attributes, DWORD access,
                            HANDLE *nt_handle)
{
    struct dxg_share_objects block = {count, 0, objects, attributes, access, 0, nt_handle};
    return call(DXG_SHARE_OBJECTS, &block);
}
