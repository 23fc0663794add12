/* One process waits and another signals, and both print their progress, for tests of the parts of a wake's time.
 * `wakes wait N` shares a fence by name, prints "shared", and waits for 1, 2, .. N, each time printing "waits" and "woken".
 * `wakes signal` opens it, prints "opened", and for each byte of its input signals the next value and prints "signaled". */
#include "check.h"

static handle_t device;
static const uint16_t path[] = u"\\BaseNamedObjects\\wakes";

static OBJECT_ATTRIBUTES *attributes(void)
{
    static UNICODE_STRING text = {sizeof path - 2, sizeof path, path};
    static OBJECT_ATTRIBUTES attributes = {.Length = sizeof attributes, .ObjectName = &text};
    return &attributes;
}

static void say(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

static void waits(uint64_t times)
{
    struct fence fence = create_fence(device, 0, 3 /* Shared, NtSecuritySharing */);
    HANDLE shared = NULL;
    EXPECT(D3DKMTShareObjects(1, &fence.handle, attributes(), D3DDDI_SYNC_OBJECT_ALL_ACCESS, &shared), STATUS_SUCCESS);
    say("shared");
    for (uint64_t value = 1; value <= times; value++) {
        say("waits");
        EXPECT(cpu_wait(device, fence.handle, value, 0), STATUS_SUCCESS);
        say("woken");
    }
}

static void signals_each(void)
{
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME by_name = {D3DDDI_SYNC_OBJECT_ALL_ACCESS, attributes(), NULL};
    EXPECT(D3DKMTOpenSyncObjectNtHandleFromName(&by_name), STATUS_SUCCESS);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = by_name.hNtHandle, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_SUCCESS);
    say("opened");
    char byte;
    for (uint64_t value = 1; read(0, &byte, 1) == 1; value++) {
        EXPECT(cpu_signal(device, open.hSyncObject, value, 0), STATUS_SUCCESS);
        say("signaled");
    }
}

/* Ends without another call: unsent timestamps are sent at the exit. */
int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    device = create_device(open_adapter(NULL));
    if (strcmp(argv[1], "wait") == 0)
        waits(strtoull(argv[2], NULL, 10));
    else
        signals_each();
    return failures != 0;
}
