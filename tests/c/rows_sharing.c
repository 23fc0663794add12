/* Sections 7 and 8 of windows-observed.md: NT handles of sync objects, and names. */
#include "rows.h"
#include <fcntl.h>

static handle_t device;

static HANDLE poison_handle(void)
{
    return (HANDLE)(uintptr_t)POISON;
}

static int is_nt_handle(HANDLE handle)
{
    return handle && handle != poison_handle() && ((uintptr_t)handle & 0xC0000000) == 0;
}

/* Object attributes of a path; the text must outlive them. */
struct path {
    UNICODE_STRING text;
    OBJECT_ATTRIBUTES attributes;
};

static OBJECT_ATTRIBUTES *attributes_of(struct path *path, const uint16_t *text)
{
    size_t units = 0;
    while (text[units])
        units++;
    path->text = (UNICODE_STRING){units * 2, units * 2 + 2, text};
    path->attributes = (OBJECT_ATTRIBUTES){.Length = sizeof path->attributes, .ObjectName = &path->text};
    return &path->attributes;
}

/* Shares one object without a name. */
static NTSTATUS share(handle_t object, HANDLE *nt_handle)
{
    *nt_handle = poison_handle();
    return D3DKMTShareObjects(1, &object, NULL, STANDARD_RIGHTS_WRITE, nt_handle);
}

/* One object that cannot be shared. */
static void refused_row(const char *name, handle_t object, const char *what)
{
    HANDLE nt_handle;
    status_row(name, share(object, &nt_handle), IP, what);
    row(name, nt_handle == poison_handle(), "no NT handle");
}

static void not_for_sharing(void)
{
    COVERS("W-120 W-121 W-122");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT first = {.hDevice = device};
    first.Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX;
    EXPECT(D3DKMTCreateSynchronizationObject(&first), OK);
    refused_row("W-120", first.hSyncObject, "share: made by v1 create");
    EXPECT(destroy_object(first.hSyncObject), OK);
    for (UINT flags = 0; flags <= SHARED; flags++) {
        D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_SYNCHRONIZATION_MUTEX, flags);
        EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
        refused_row(flags ? "W-122" : "W-121", args.hSyncObject, flags ? "share: Shared only" : "share: no flags");
        EXPECT(destroy_object(args.hSyncObject), OK);
    }
}

static void keyed_mutexes(void)
{
    COVERS("W-130 W-131 W-132");
    D3DKMT_CREATEKEYEDMUTEX first = {.InitialValue = 5};
    EXPECT(D3DKMTCreateKeyedMutex(&first), OK);
    refused_row("W-130", first.hKeyedMutex, "share: a keyed mutex alone");
    refused_row("W-131", first.hSharedHandle, "share: a keyed mutex's global handle alone");
    EXPECT(D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){first.hKeyedMutex}), OK);
    D3DKMT_CREATEKEYEDMUTEX2 second = {.Flags = {.NtSecuritySharing = 1}};
    EXPECT(D3DKMTCreateKeyedMutex2(&second), OK);
    refused_row("W-132", second.hKeyedMutex, "share: a keyed mutex with NT sharing alone");
    EXPECT(D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){second.hKeyedMutex}), OK);
}

#define NAME u"Rows-\u00e4\u20ac of Sharing"
#define NAME_IN_OTHER_CASE u"rOWS-\u00c4\u20ac OF sHARING"

/* The file name behind an NT handle, which shows its kind on this system. */
static void object_type(HANDLE nt_handle)
{
    COVERS("W-124");
    char link[64], type[256] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", (int)(intptr_t)nt_handle);
    ssize_t length = readlink(link, type, sizeof type - 1);
    row("W-124", length > 0 && strstr(type, ":DxgkSharedSyncObject ") != NULL, "its kernel object type");
}

/* Shares a mutex under NAME. */
static HANDLE share_by_name(void)
{
    COVERS("W-002 W-123 W-126 W-127");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args =
        info2(device, D3DDDI_SYNCHRONIZATION_MUTEX, SHARED | NT_SECURITY_SHARING);
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
    struct path path;
    OBJECT_ATTRIBUTES *attributes = attributes_of(&path, u"\\BaseNamedObjects\\" NAME);
    HANDLE nt_handle = poison_handle();
    status_row("W-123", D3DKMTShareObjects(1, &args.hSyncObject, attributes, STANDARD_RIGHTS_WRITE, &nt_handle),
               OK, "share: Shared and NtSecuritySharing, by name");
    row("W-002", is_nt_handle(nt_handle), "an NT handle has no top bit");
    object_type(nt_handle);
    status_row("W-126", destroy_object((handle_t)(uintptr_t)nt_handle), IP, "an NT handle is no object's handle");
    status_row("W-127", destroy_object(args.hSyncObject), OK, "destroy what is shared");
    return nt_handle;
}

static void open_first_form(HANDLE nt_handle)
{
    COVERS("W-009 W-127 W-140 W-141 W-142");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE open = {0};
    status_row("W-140", D3DKMTOpenSyncObjectFromNtHandle(&open), IH, "open: all zero");
    open = (D3DKMT_OPENSYNCOBJECTFROMNTHANDLE){nt_handle, POISON};
    status_row("W-141", D3DKMTOpenSyncObjectFromNtHandle(&open), OK, "open: an NT handle");
    row("W-009", is_local(open.hSyncObject), "a local handle");
    row("W-127", open.hSyncObject != POISON, "the object lives on without its creator's handle");
    status_row("W-142", destroy_object(open.hSyncObject), OK, "destroy it");
}

static void open_second_form(HANDLE nt_handle)
{
    COVERS("W-009 W-143 W-144 W-145");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {0};
    status_row("W-143", D3DKMTOpenSyncObjectFromNtHandle2(&open), IP, "open 2: all zero");
    open.hNtHandle = nt_handle;
    status_row("W-144", D3DKMTOpenSyncObjectFromNtHandle2(&open), IP, "open 2: no device");
    int stale = dup((int)(intptr_t)nt_handle);
    close(stale);
    open.hNtHandle = (HANDLE)(intptr_t)stale;
    status_row("W-144", D3DKMTOpenSyncObjectFromNtHandle2(&open), IP, "open 2: no device, and a stale NT handle");
    open.hDevice = device;
    status_row("W-144", D3DKMTOpenSyncObjectFromNtHandle2(&open), IH, "open 2: a device, and a stale NT handle");
    open.hNtHandle = nt_handle;
    open.hSyncObject = POISON;
    status_row("W-145", D3DKMTOpenSyncObjectFromNtHandle2(&open), OK, "open 2: an NT handle and a device");
    row("W-145", open.Flags.Value == 0, "its flags are not reported");
    row("W-009", is_local(open.hSyncObject), "a local handle");
    EXPECT(destroy_object(open.hSyncObject), OK);
}

static D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME by_name(struct path *path, const uint16_t *text, DWORD access)
{
    return (D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME){access, attributes_of(path, text), poison_handle()};
}

static void open_by_name(void)
{
    COVERS("W-002 W-146 W-147 W-148 W-149");
    struct path path;
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME open = {0};
    status_row("W-146", D3DKMTOpenSyncObjectNtHandleFromName(&open), IP, "by name: all zero");
    open = by_name(&path, u"\\BaseNamedObjects\\nobody's name", 0);
    status_row("W-147", D3DKMTOpenSyncObjectNtHandleFromName(&open), NF, "by name: unknown, no access wanted");
    row("W-147", open.hNtHandle == poison_handle(), "no NT handle");
    open = by_name(&path, u"\\BaseNamedObjects\\" NAME_IN_OTHER_CASE, 0);
    status_row("W-148", D3DKMTOpenSyncObjectNtHandleFromName(&open), AD, "by name: other case, no access wanted");
    row("W-148", open.hNtHandle == poison_handle(), "no NT handle");
    open = by_name(&path, u"\\BaseNamedObjects\\" NAME_IN_OTHER_CASE, STANDARD_RIGHTS_WRITE);
    status_row("W-149", D3DKMTOpenSyncObjectNtHandleFromName(&open), OK, "by name: other case, and an access");
    row("W-149", is_nt_handle(open.hNtHandle), "an NT handle");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE object = {open.hNtHandle, POISON};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle(&object), OK);
    EXPECT(destroy_object(object.hSyncObject), OK);
    close((int)(intptr_t)open.hNtHandle);
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    not_for_sharing();
    keyed_mutexes();
    HANDLE nt_handle = share_by_name();
    open_first_form(nt_handle);
    open_second_form(nt_handle);
    open_by_name();
    close((int)(intptr_t)nt_handle);
    destroy_device(device);
    close_adapter(adapter);
    return end_of_rows("rows_sharing");
}
