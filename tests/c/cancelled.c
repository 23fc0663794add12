/* A cancelled thread makes calls: each returns as it would, and the thread ends at its next own cancellation point. */
#include "check.h"
#include <pthread.h>

static handle_t adapter, device;
static struct fence fence;
static HANDLE shared;

/* The session starts in it. */
static void opens(void)
{
    adapter = open_adapter(NULL);
}

/* The library closes its copy of the event. */
static void waits_with_an_event(void)
{
    int event = new_event();
    EXPECT(cpu_wait(device, fence.handle, 1, event), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, 2, event), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, fence.handle, 2, 0), STATUS_SUCCESS);
}

static void waits(void)
{
    EXPECT(cpu_wait(device, fence.handle, 2, 0), STATUS_SUCCESS);
}

/* The library reads the maps of the process, and writes the memory to what takes its place. */
static void allocates(void)
{
    void *memory = aligned_alloc(4096, 4096);
    allocate_heap(device, memory, 4096, NULL);
}

static void shares(void)
{
    struct fence own = create_fence(device, 0, 3 /* Shared, NtSecuritySharing */);
    EXPECT(D3DKMTShareObjects(1, &own.handle, NULL, 0x1f0003, &shared), STATUS_SUCCESS);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 opened = {.hDevice = device, .hNtHandle = shared};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&opened), STATUS_SUCCESS);
}

static void *cancelled(void *body)
{
    pthread_cancel(pthread_self());
    ((void (*)(void))body)();
    int state = -1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    CHECK(state == PTHREAD_CANCEL_ENABLE, "a call has left the thread uncancelled");
    pthread_testcancel();
    return NULL;
}

static void in_cancelled_thread(void (*body)(void))
{
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, cancelled, (void *)body) == 0, "no thread");
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED, "the thread was not cancelled");
}

int main(void)
{
#ifdef DEV_DXG
    /* To open the device is a cancellation point, as each open is. */
    opens();
#else
    in_cancelled_thread(opens);
#endif
    device = create_device(adapter);
    fence = create_fence(device, 1, 0);
    in_cancelled_thread(waits_with_an_event);
    in_cancelled_thread(waits);
    in_cancelled_thread(allocates);
    in_cancelled_thread(shares);
    close((int)(intptr_t)shared);
    printf("cancelled: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
