/* What real Windows answers, row by row (reference windows-observed.md), as far as our calls go.
 * One line a row: "ok W-024 .." or "not ok W-024 ..". Exit code 1 if any is not ok. */
#include "check.h"

#define IP STATUS_INVALID_PARAMETER
#define IH STATUS_INVALID_HANDLE
#define OK STATUS_SUCCESS
#define POISON 0x1eadbeefu

static handle_t adapter, device, last;

static void row(const char *name, int good, const char *what)
{
    printf("%s %s %s\n", good ? "ok" : "not ok", name, what);
    failures += !good;
}

static void status_row(const char *name, NTSTATUS status, NTSTATUS wanted, const char *what)
{
    row(name, status == wanted, what);
    if (status != wanted)
        printf("# answered %#010x instead of %#010x\n", (unsigned)status, (unsigned)wanted);
}

static int is_local(handle_t handle)
{
    return (handle & 0xC0000000) && (handle & 0x3F) == 0;
}

static int is_global(handle_t handle)
{
    return (handle & 0xC0000000) && (handle & 0x3F) == 2;
}

/* A local handle, and the next of the sequence. */
static int is_next(handle_t handle)
{
    int next = is_local(handle) && handle == last + 0x40;
    last = handle;
    return next;
}

static D3DKMT_CREATESYNCHRONIZATIONOBJECT2 info2(UINT type, UINT flags)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device, .hSyncObject = POISON};
    args.Info.Type = type;
    args.Info.Flags.Value = flags;
    args.Info.SharedHandle = POISON;
    return args;
}

/* covers: W-001 W-003 W-005 W-280 W-281 W-282 W-283 W-287 W-288 W-289 W-290 W-291 */
static void adapters_and_devices(void)
{
    D3DKMT_ADAPTERINFO infos[34] = {{0}};
    D3DKMT_ENUMADAPTERS2 args = {0};
    status_row("W-287", D3DKMTEnumAdapters2(NULL), IP, "EnumAdapters2(NULL)");
    NTSTATUS status = D3DKMTEnumAdapters2(&args);
    row("W-288", status == OK && args.NumAdapters == 34, "no array: the most there may be");
    args = (D3DKMT_ENUMADAPTERS2){0, infos};
    status_row("W-289", D3DKMTEnumAdapters2(&args), STATUS_BUFFER_TOO_SMALL, "an array without room");
    args = (D3DKMT_ENUMADAPTERS2){1, infos};
    status = D3DKMTEnumAdapters2(&args);
    LUID luid = infos[0].AdapterLuid;
    int named = infos[0].hAdapter && (luid.LowPart || luid.HighPart);
    row("W-290", status == OK && args.NumAdapters == 1 && named, "an adapter has a handle and a LUID");
    adapter = infos[0].hAdapter;
    row("W-001", (adapter & 0xC0000000) != 0, "a handle has a top bit set");
    row("W-003", is_local(adapter), "a local handle ends in six zero bits");
    last = adapter;

    status_row("W-280", D3DKMTCloseAdapter(NULL), IP, "CloseAdapter(NULL)");
    status_row("W-280", D3DKMTCloseAdapter(&(D3DKMT_CLOSEADAPTER){0}), IP, "CloseAdapter of zero");
    UINT caps[2];
    D3DKMT_QUERYADAPTERINFO query = {adapter, KMTQAITYPE_ADAPTERTYPE, caps, 3};
    status_row("W-291", D3DKMTQueryAdapterInfo(&query), IP, "QueryAdapterInfo one byte short");
    query.PrivateDriverDataSize = 4;
    status_row("W-291", D3DKMTQueryAdapterInfo(&query), OK, "QueryAdapterInfo of the right size");

    D3DKMT_CREATEDEVICE create = {.hAdapter = 0};
    status_row("W-281", D3DKMTCreateDevice(NULL), IP, "CreateDevice(NULL)");
    status_row("W-281", D3DKMTCreateDevice(&create), IP, "CreateDevice without an adapter");
    memset(&create, 0xEE, sizeof create);
    memset(&create.Flags, 0, sizeof create.Flags);
    create.pAdapter = NULL;
    create.hAdapter = adapter;
    status = D3DKMTCreateDevice(&create);
    int empty = !create.pCommandBuffer && !create.CommandBufferSize && !create.pAllocationList &&
                !create.AllocationListSize && !create.pPatchLocationList && !create.PatchLocationListSize;
    row("W-282", status == OK && empty, "CreateDevice: no command buffer, no lists");
    device = create.hDevice;
    row("W-005", is_next(device), "handles go up by 0x40, adapter then device");
    status_row("W-283", D3DKMTDestroyDevice(NULL), IP, "DestroyDevice(NULL)");
    status_row("W-283", D3DKMTDestroyDevice(&(D3DKMT_DESTROYDEVICE){0}), IP, "DestroyDevice of zero");
}

/* covers: W-020 W-021 W-022 W-023 W-024 W-025 W-026 W-027 W-028 W-029 */
static void create_v1(void)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT args = {0};
    status_row("W-020", D3DKMTCreateSynchronizationObject(NULL), IP, "v1 create: NULL");
    status_row("W-021", D3DKMTCreateSynchronizationObject(&args), IP, "v1 create: all zero");
    args.hDevice = device;
    status_row("W-022", D3DKMTCreateSynchronizationObject(&args), IP, "v1 create: type 0");
    args.hDevice = 0;
    args.Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX;
    status_row("W-023", D3DKMTCreateSynchronizationObject(&args), IP, "v1 create: no device");
    args.hDevice = device;
    args.hSyncObject = POISON;
    NTSTATUS status = D3DKMTCreateSynchronizationObject(&args);
    handle_t first = args.hSyncObject;
    row("W-024", status == OK && is_next(first), "v1 create: mutex; refused calls took no handle (W-007)");
    status = D3DKMTCreateSynchronizationObject(&args);
    handle_t second = args.hSyncObject;
    row("W-025", status == OK && is_next(second), "v1 create: a second one");
    status_row("W-026", destroy_object(first), OK, "destroy");
    status_row("W-027", destroy_object(first), IP, "destroy again");
    args.Info.Type = D3DDDI_SEMAPHORE;
    args.Info.Semaphore.MaxCount = args.Info.Semaphore.InitialCount = 0;
    status = D3DKMTCreateSynchronizationObject(&args);
    row("W-028", status == OK && is_next(args.hSyncObject), "v1 create: semaphore; no handle reused (W-006)");
    status_row("W-026", destroy_object(args.hSyncObject), OK, "destroy");
    status_row("W-026", destroy_object(second), OK, "destroy");
    args.Info.Type = D3DDDI_FENCE;
    status_row("W-029", D3DKMTCreateSynchronizationObject(&args), IP, "v1 create: fence");
}

/* covers: W-040 W-041 W-042 W-043 W-044 W-045 W-046 W-047 W-048 W-049 W-050 */
static void create_v2(void)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {0};
    status_row("W-040", D3DKMTCreateSynchronizationObject2(NULL), IP, "create: NULL");
    status_row("W-041", D3DKMTCreateSynchronizationObject2(&args), IP, "create: all zero");
    args = info2(0, 0);
    status_row("W-042", D3DKMTCreateSynchronizationObject2(&args), IP, "create: type 0");
    args = info2(D3DDDI_SYNCHRONIZATION_MUTEX, 0);
    args.hDevice = 0;
    status_row("W-043", D3DKMTCreateSynchronizationObject2(&args), IP, "create: no device");
    static const struct {
        const char *name;
        UINT type;
        const char *what;
    } kinds[] = {{"W-044", D3DDDI_SYNCHRONIZATION_MUTEX, "create: mutex"},
                 {"W-045", D3DDDI_SEMAPHORE, "create: semaphore"},
                 {"W-046", D3DDDI_FENCE, "create: fence"},
                 {"W-049", D3DDDI_MONITORED_FENCE, "create: monitored fence"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        args = info2(kinds[i].type, 0);
        NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
        row(kinds[i].name, status == OK && is_next(args.hSyncObject), kinds[i].what);
        status_row("W-050", destroy_object(args.hSyncObject), OK, "destroy it");
    }
    args = info2(D3DDDI_CPU_NOTIFICATION, 0);
    status_row("W-047", D3DKMTCreateSynchronizationObject2(&args), IH, "create: notification without event");
    args = info2(D3DDDI_CPU_NOTIFICATION, 0);
    int event = new_event();
    args.Info.CPUNotification.Event = (HANDLE)(intptr_t)event;
    NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
    row("W-048", status == OK && is_next(args.hSyncObject), "create: notification with an event");
    row("W-048", args.Info.CPUNotification.Event == (HANDLE)(intptr_t)event, "the event stays as given");
    status_row("W-050", destroy_object(args.hSyncObject), OK, "destroy it");
    close(event);
}

/* covers: W-065 */
static handle_t shared(const char *name, UINT flags, int global, const char *what)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(D3DDDI_SYNCHRONIZATION_MUTEX, flags);
    NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
    handle_t handle = args.Info.SharedHandle;
    int right = global ? is_global(handle) : handle == 0 || handle == POISON;
    row(name, status == OK && is_next(args.hSyncObject) && right, what);
    if (global)
        status_row("W-065", destroy_object(handle), IP, "a global handle cannot be destroyed");
    EXPECT(destroy_object(args.hSyncObject), OK);
    return handle;
}

/* covers: W-004 W-060 W-061 W-062 W-063 W-064 */
static void sharing(void)
{
    handle_t first = shared("W-060", 0x1, 1, "shared: local and global handle");
    row("W-004", is_global(first), "a global handle ends in exactly 2");
    handle_t second = shared("W-061", 0x1, 1, "shared again: others; no local handle taken (W-008)");
    row("W-061", first != second, "the global handles differ");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(D3DDDI_SYNCHRONIZATION_MUTEX, 0x2);
    status_row("W-062", D3DKMTCreateSynchronizationObject2(&args), IP, "NT sharing without Shared");
    shared("W-063", 0x3, 0, "NT sharing: no global handle");
    shared("W-064", 0x1, 1, "shared by global handle once more");
}

/* covers: W-100 W-101 W-102 W-103 */
static void wrong_types(void)
{
    static const struct {
        const char *name;
        UINT type;
    } kinds[] = {{"W-100", D3DDDI_SYNCHRONIZATION_MUTEX}, {"W-102", D3DDDI_SEMAPHORE}, {"W-103", D3DDDI_FENCE}};
    int event = new_event();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(kinds[i].type, 0);
        EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
        status_row(kinds[i].name, cpu_wait(device, args.hSyncObject, 0, event), IP, "CPU wait: wrong type");
        const char *name = i == 0 ? "W-101" : kinds[i].name;
        status_row(name, cpu_signal(device, args.hSyncObject, 0, 0), IP, "CPU signal: wrong type");
        EXPECT(destroy_object(args.hSyncObject), OK);
    }
    row("W-100", take_event(event, 0) == 0, "a refused wait sets no event");
    close(event);
}

/* covers: W-104 W-105 W-106 W-107 W-108 W-109 W-110 W-111 W-112 W-113 */
static void waits_and_signals(void)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(D3DDDI_MONITORED_FENCE, 0);
    args.Info.Fence.FenceValue = 1;
    status_row("W-104", D3DKMTCreateSynchronizationObject2(&args), OK, "initial value through the alias");
    handle_t fence = args.hSyncObject;
    int event = new_event();
    status_row("W-105", cpu_wait(device, fence, 0, event), OK, "wait 0 at 1");
    row("W-105", take_event(event, 0) == 1, "the event is set at once");
    status_row("W-106", cpu_wait(device, fence, 1, event), OK, "wait 1 at 1");
    row("W-106", take_event(event, 0) == 1, "the event is set at once");
    status_row("W-107", cpu_wait(device, fence, 2, event), OK, "wait 2 at 1");
    row("W-107", take_event(event, 100) == 0, "the event stays clear");
    status_row("W-108", cpu_signal(device, fence, 2, 0), OK, "signal 2");
    row("W-108", take_event(event, LONG_MS) == 1, "the event is set");
    status_row("W-109", cpu_signal(device, fence, 1, 0), IP, "signal 1 at 2");
    status_row("W-110", cpu_signal(device, fence, 1, 0x4), OK, "signal 1 at 2 with AllowFenceRewind");
    status_row("W-111", cpu_wait(device, fence, 2, event), OK, "wait 2 after the rewind");
    row("W-111", take_event(event, 100) == 0, "the event stays clear");
    status_row("W-112", cpu_signal(device, fence, 2, 0), OK, "signal 2 again");
    row("W-112", take_event(event, LONG_MS) == 1, "the event is set");
    status_row("W-113", destroy_object(fence), OK, "destroy");
    close(event);
}

/* covers: W-002 W-123 W-142 W-143 W-144 W-145 */
static void nt_handles(void)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(D3DDDI_MONITORED_FENCE, 0x3);
    args.Info.MonitoredFence.InitialFenceValue = 3;
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
    HANDLE nt_handle = NULL;
    NTSTATUS status =
        D3DKMTShareObjects(1, &args.hSyncObject, NULL, D3DDDI_SYNC_OBJECT_ALL_ACCESS, &nt_handle);
    row("W-123", status == OK, "ShareObjects");
    row("W-002", ((uintptr_t)nt_handle & 0xC0000000) == 0 && nt_handle, "an NT handle has no top bit");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {0};
    status_row("W-143", D3DKMTOpenSyncObjectFromNtHandle2(&open), IP, "open: all zero");
    open.hNtHandle = nt_handle;
    status_row("W-144", D3DKMTOpenSyncObjectFromNtHandle2(&open), IP, "open: no device");
    open.hNtHandle = NULL;
    open.hDevice = device;
    status_row("W-144", D3DKMTOpenSyncObjectFromNtHandle2(&open), IH, "open: a device, no NT handle");
    EXPECT(destroy_object(args.hSyncObject), OK);
    open.hNtHandle = nt_handle;
    status_row("W-145", D3DKMTOpenSyncObjectFromNtHandle2(&open), OK, "open: lives on (W-127)");
    const uint64_t *value = open.MonitoredFence.FenceValueCPUVirtualAddress;
    row("W-145", is_local(open.hSyncObject) && !open.Flags.Value && value && *value == 3, "its value");
    status_row("W-142", destroy_object(open.hSyncObject), OK, "destroy it");
    close((int)(intptr_t)nt_handle);
}

int main(void)
{
    adapters_and_devices();
    if (!device)
        return 1;
    create_v1();
    create_v2();
    sharing();
    wrong_types();
    waits_and_signals();
    nt_handles();
    destroy_device(device);
    close_adapter(adapter);
    printf("windows_rows: %d not ok\n", failures);
    return failures != 0;
}
