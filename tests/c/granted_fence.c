/* Two VMs share a fence by a name that the host grants to both. One creates it; the other, started with `open`, opens
 * it once the name is there. Each waits for the other's signals. */
#include "check.h"

enum { RIGHTS = 0x1F0003, FIRST = 1, REPLY = 2, LAST = 3, LOOK_AGAIN_US = 20000 };

static OBJECT_ATTRIBUTES *name(void)
{
    static const uint16_t text[] = u"\\BaseNamedObjects\\granted fence";
    static UNICODE_STRING path = {sizeof text - sizeof *text, sizeof text, text};
    static OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &path};
    return &attributes;
}

static void creates(handle_t device)
{
    struct fence fence = create_fence(device, 0, 3 /* Shared, NtSecuritySharing */);
    HANDLE shared = NULL;
    EXPECT(D3DKMTShareObjects(1, &fence.handle, name(), RIGHTS, &shared), STATUS_SUCCESS);
    printf("created\n");
    fflush(stdout);
    EXPECT(cpu_wait(device, fence.handle, FIRST, 0), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, fence.handle, REPLY, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, LAST, 0), STATUS_SUCCESS);
    CHECK(fence_value(&fence) == LAST, "value %llu", (unsigned long long)fence_value(&fence));
    close((int)(intptr_t)shared);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
}

static void opens(handle_t device)
{
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME named = {RIGHTS, name(), NULL};
    NTSTATUS status;
    while ((status = D3DKMTOpenSyncObjectNtHandleFromName(&named)) == STATUS_OBJECT_NAME_NOT_FOUND)
        usleep(LOOK_AGAIN_US);
    EXPECT(status, STATUS_SUCCESS);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = named.hNtHandle, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_SUCCESS);
    const volatile uint64_t *value = open.MonitoredFence.FenceValueCPUVirtualAddress;
    CHECK(value && *value == 0, "the fence does not begin with 0");
    EXPECT(cpu_signal(device, open.hSyncObject, FIRST, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, open.hSyncObject, REPLY, 0), STATUS_SUCCESS);
    CHECK(value && *value == REPLY, "the other VM's signal is not in this VM's memory");
    EXPECT(cpu_signal(device, open.hSyncObject, LAST, 0), STATUS_SUCCESS);
    close((int)(intptr_t)named.hNtHandle);
    EXPECT(destroy_object(open.hSyncObject), STATUS_SUCCESS);
}

int main(int argc, char **argv)
{
    handle_t adapter = open_adapter(NULL);
    handle_t device = create_device(adapter);
    if (argc == 2 && strcmp(argv[1], "open") == 0)
        opens(device);
    else
        creates(device);
    destroy_device(device);
    close_adapter(adapter);
    return failures != 0;
}
