/* Sections 1 to 4 of windows-observed.md: creation of sync objects, and their handles. */
#include "rows.h"

static handle_t adapter, device;

static void one_sequence(void)
{
    COVERS("W-005");
    last = adapter = open_adapter(NULL);
    device = create_device(adapter);
    row("W-005", is_next(device), "one sequence: adapter, device ..");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_MONITORED_FENCE, 0);
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
    row("W-005", is_next(args.hSyncObject), ".. sync object ..");
    D3DKMT_CREATEKEYEDMUTEX mutex = {.InitialValue = 11};
    EXPECT(D3DKMTCreateKeyedMutex(&mutex), OK);
    row("W-005", is_next(mutex.hKeyedMutex), ".. keyed mutex ..");
    handle_t context = create_context(device, 0);
    row("W-005", is_next(context), ".. and context");
    destroy_context(context);
    EXPECT(D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){mutex.hKeyedMutex}), OK);
    EXPECT(destroy_object(args.hSyncObject), OK);
}

static void create_v1(void)
{
    COVERS("W-006 W-007 W-020 W-021 W-022 W-023 W-024 W-025 W-026 W-027 W-028 W-029");
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
    row("W-024", status == OK && is_local(first), "v1 create: mutex");
    row("W-007", is_next(first), "the refused calls took no handle, and ..");
    status = D3DKMTCreateSynchronizationObject(&args);
    handle_t second = args.hSyncObject;
    row("W-025", status == OK && is_next(second), "v1 create: a second one");
    status_row("W-026", destroy_object(first), OK, "destroy");
    status_row("W-027", destroy_object(first), IP, "destroy again");
    args.Info.Type = D3DDDI_SEMAPHORE;
    args.Info.Semaphore.MaxCount = args.Info.Semaphore.InitialCount = 0;
    status = D3DKMTCreateSynchronizationObject(&args);
    row("W-028", status == OK && is_local(args.hSyncObject), "v1 create: semaphore");
    row("W-006", is_next(args.hSyncObject), "the destroyed handle is not handed out again");
    EXPECT(destroy_object(args.hSyncObject), OK);
    EXPECT(destroy_object(second), OK);
    args.Info.Type = D3DDDI_FENCE;
    args.hSyncObject = POISON;
    status_row("W-029", D3DKMTCreateSynchronizationObject(&args), IP, "v1 create: fence");
    row("W-029", args.hSyncObject == POISON, "no handle");
}

/* One failure of each call that creates or opens, and then a success that gets the next handle. */
static void failures_take_no_handle(void)
{
    COVERS("W-007");
    handle_t context = create_context(device, 0);
    last = context;
    D3DKMT_CREATEDEVICE second = {.hAdapter = adapter, .Flags = {.Reserved = 1}};
    EXPECT(D3DKMTCreateDevice(&second), IP);
    D3DKMT_CREATECONTEXTVIRTUAL no_node = {.hDevice = device, .NodeOrdinal = 999};
    EXPECT(D3DKMTCreateContextVirtual(&no_node), IP);
    D3DKMT_CREATEPAGINGQUEUE priority = {.hDevice = device, .Priority = 9};
    EXPECT(D3DKMTCreatePagingQueue(&priority), IP);
    D3DKMT_CREATEHWQUEUE software = {.hHwContext = context};
    EXPECT(D3DKMTCreateHwQueue(&software), IP);
    D3DKMT_CREATENATIVEFENCE native = {.hDevice = device, .Info = {.Flags = {.Reserved0 = 1}}};
    EXPECT(D3DKMTCreateNativeFence(&native), IP);
    D3DKMT_CREATEKEYEDMUTEX2 flags = {.Flags = {.Reserved = 1}};
    EXPECT(D3DKMTCreateKeyedMutex2(&flags), IP);
    EXPECT(D3DKMTOpenKeyedMutex(&(D3DKMT_OPENKEYEDMUTEX){.hSharedHandle = device}), IP);
    EXPECT(D3DKMTOpenSynchronizationObject(&(D3DKMT_OPENSYNCHRONIZATIONOBJECT){.hSharedHandle = device}), IP);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 no_handle = {.hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&no_handle), IH);
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_SEMAPHORE, 0);
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
    row("W-007", is_next(args.hSyncObject), "nine calls failed and took no handle");
    EXPECT(destroy_object(args.hSyncObject), OK);
    destroy_context(context);
}

/* Many handles, destroyed in another order: none is reused. */
static void no_reuse(void)
{
    COVERS("W-006");
    enum { COUNT = 24 };
    handle_t handles[COUNT];
    int next = 1;
    for (int i = 0; i < COUNT; i++) {
        D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_SEMAPHORE, 0);
        args.Info.Semaphore.MaxCount = 3;
        EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
        next &= is_next(args.hSyncObject);
        handles[i] = args.hSyncObject;
        if (i % 3 == 2)
            EXPECT(destroy_object(handles[i - 1]), OK);
    }
    row("W-006", next, "two dozen handles, every third destroyed meanwhile: + 0x40 each");
    for (int i = 0; i < COUNT; i++)
        EXPECT(destroy_object(handles[i]), i % 3 == 1 ? IP : OK);
}

static void create_v2(void)
{
    COVERS("W-040 W-041 W-042 W-043 W-044 W-045 W-046 W-049 W-050");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {0};
    status_row("W-040", D3DKMTCreateSynchronizationObject2(NULL), IP, "create: NULL");
    status_row("W-041", D3DKMTCreateSynchronizationObject2(&args), IP, "create: all zero");
    args = info2(device, 0, 0);
    status_row("W-042", D3DKMTCreateSynchronizationObject2(&args), IP, "create: type 0");
    args = info2(0, D3DDDI_SYNCHRONIZATION_MUTEX, 0);
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
        args = info2(device, kinds[i].type, 0);
        NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
        row(kinds[i].name, status == OK && is_next(args.hSyncObject), kinds[i].what);
        status_row("W-050", destroy_object(args.hSyncObject), OK, "destroy it");
    }
}

static void create_notification(void)
{
    COVERS("W-047 W-048 W-050");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_CPU_NOTIFICATION, 0);
    status_row("W-047", D3DKMTCreateSynchronizationObject2(&args), IH, "create: notification without event");
    row("W-047", args.hSyncObject == POISON, "no handle");
    args = info2(device, D3DDDI_CPU_NOTIFICATION, 0);
    int event = new_event();
    args.Info.CPUNotification.Event = (HANDLE)(intptr_t)event;
    NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
    row("W-048", status == OK && is_next(args.hSyncObject), "create: notification with an event");
    row("W-048", args.Info.CPUNotification.Event == (HANDLE)(intptr_t)event, "the event stays as given");
    status_row("W-050", destroy_object(args.hSyncObject), OK, "destroy it");
    row("W-048", close(event) == 0, "its event is closed after it");
}

/* Creates and destroys a mutex; returns its global handle. */
static handle_t shared(const char *name, UINT flags, int global, const char *what)
{
    COVERS("W-065");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_SYNCHRONIZATION_MUTEX, flags);
    NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
    handle_t handle = args.Info.SharedHandle;
    int right = global ? is_global(handle) : handle == 0 || handle == POISON;
    row(name, status == OK && is_next(args.hSyncObject) && right, what);
    if (global)
        status_row("W-065", destroy_object(handle), IP, "a global handle cannot be destroyed");
    EXPECT(destroy_object(args.hSyncObject), OK);
    return handle;
}

static void sharing_flags(void)
{
    COVERS("W-001 W-004 W-060 W-061 W-062 W-063 W-064");
    handle_t first = shared("W-060", SHARED, 1, "shared: local and global handle");
    row("W-001", (first & 0xC0000000) != 0, "a global handle has a top bit set");
    row("W-004", is_global(first), "a global handle ends in exactly 2");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 one = info2(device, D3DDDI_SYNCHRONIZATION_MUTEX, SHARED);
    EXPECT(D3DKMTCreateSynchronizationObject2(&one), OK);
    last = one.hSyncObject;
    handle_t second = shared("W-061", SHARED, 1, "shared again");
    row("W-061", second != one.Info.SharedHandle, "two at a time: the global handles differ");
    EXPECT(destroy_object(one.hSyncObject), OK);
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args =
        info2(device, D3DDDI_SYNCHRONIZATION_MUTEX, NT_SECURITY_SHARING);
    status_row("W-062", D3DKMTCreateSynchronizationObject2(&args), IP, "NT sharing without Shared");
    shared("W-063", SHARED | NT_SECURITY_SHARING, 0, "NT sharing: no global handle");
    shared("W-064", SHARED, 1, "shared by global handle once more");
}

static void global_beside_locals(void)
{
    COVERS("W-008");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_SEMAPHORE, SHARED);
    args.Info.Semaphore.MaxCount = args.Info.Semaphore.InitialCount = 1;
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
    handle_t local = args.hSyncObject, global = args.Info.SharedHandle;
    D3DKMT_OPENSYNCHRONIZATIONOBJECT open = {.hSharedHandle = global, .hSyncObject = POISON};
    EXPECT(D3DKMTOpenSynchronizationObject(&open), OK);
    row("W-008", open.hSyncObject == local + 0x40, "local, global, and the open is the next local");
    EXPECT(destroy_object(open.hSyncObject), OK);
    EXPECT(destroy_object(local), OK);
}

int main(void)
{
    one_sequence();
    create_v1();
    failures_take_no_handle();
    no_reuse();
    create_v2();
    create_notification();
    sharing_flags();
    global_beside_locals();
    destroy_device(device);
    close_adapter(adapter);
    return end_of_rows("rows_create");
}
