/* Lists adapters as clients do before their first D3DKMT call: by the COM interfaces of DXCore. The vtables are written
 * here in C, method by method, as dxcore_interface.h declares them in C++. */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

typedef int32_t hresult;
typedef struct {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
} guid;

enum {
    S_OK_ = 0,
    NO_INTERFACE = (int)0x80004002,
    BAD_POINTER = (int)0x80004003,
    INVALID_ARG = (int)0x80070057,
    INVALID_CALL = (int)0x887a0001,
    UNSUPPORTED = (int)0x887a0004,
    DEVICE_REMOVED = (int)0x887a0005,
};

static const guid iid_unknown = {0, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
static const guid iid_factory = {0x78ee5945, 0xc36e, 0x4b13, {0xa6, 0x69, 0x00, 0x5d, 0xd1, 0x1c, 0x0f, 0x06}};
static const guid iid_list = {0x526c7776, 0x40e9, 0x459b, {0xb7, 0x11, 0xf3, 0x2a, 0xd7, 0x6d, 0xfc, 0x28}};
static const guid iid_adapter = {0xf0db4c7f, 0xfe5a, 0x42a2, {0xbd, 0x62, 0xf2, 0xa6, 0xcf, 0x6f, 0xc8, 0x3e}};
static const guid d3d11_graphics = {0x8c47866b, 0x7583, 0x450d, {0xf0, 0xf0, 0x6b, 0xad, 0xa8, 0x95, 0xaf, 0x4b}};
static const guid d3d12_graphics = {0x0c9ece4d, 0x2f6e, 0x4f01, {0x8c, 0x96, 0xe8, 0x9e, 0x33, 0x1b, 0x47, 0xb1}};
static const guid core_compute = {0x248e2800, 0xa793, 0x4724, {0xab, 0xaa, 0x23, 0xa6, 0xde, 0x1b, 0xe0, 0x90}};

#define UNKNOWN(type)                                                         \
    hresult (*QueryInterface)(type *, const guid *, void **);                 \
    uint32_t (*AddRef)(type *);                                               \
    uint32_t (*Release)(type *)

typedef struct adapter {
    const struct {
        UNKNOWN(struct adapter);
        bool (*IsValid)(struct adapter *);
        bool (*IsAttributeSupported)(struct adapter *, const guid *);
        bool (*IsPropertySupported)(struct adapter *, uint32_t);
        hresult (*GetProperty)(struct adapter *, uint32_t, size_t, void *);
        hresult (*GetPropertySize)(struct adapter *, uint32_t, size_t *);
        bool (*IsQueryStateSupported)(struct adapter *, uint32_t);
        hresult (*QueryState)(struct adapter *, uint32_t, size_t, const void *, size_t, void *);
        bool (*IsSetStateSupported)(struct adapter *, uint32_t);
        hresult (*SetState)(struct adapter *, uint32_t, size_t, const void *, size_t, const void *);
        hresult (*GetFactory)(struct adapter *, const guid *, void **);
    } *vtable;
} adapter_t;

typedef struct list {
    const struct {
        UNKNOWN(struct list);
        hresult (*GetAdapter)(struct list *, uint32_t, const guid *, void **);
        uint32_t (*GetAdapterCount)(struct list *);
        bool (*IsStale)(struct list *);
        hresult (*GetFactory)(struct list *, const guid *, void **);
        hresult (*Sort)(struct list *, uint32_t, const uint32_t *);
        bool (*IsAdapterPreferenceSupported)(struct list *, uint32_t);
    } *vtable;
} list_t;

typedef void (*callback)(uint32_t, void *, void *);
typedef struct factory {
    const struct {
        UNKNOWN(struct factory);
        hresult (*CreateAdapterList)(struct factory *, uint32_t, const guid *, const guid *, void **);
        hresult (*GetAdapterByLuid)(struct factory *, const LUID *, const guid *, void **);
        bool (*IsNotificationTypeSupported)(struct factory *, uint32_t);
        hresult (*RegisterEventNotification)(struct factory *, void *, uint32_t, callback, void *, uint32_t *);
        hresult (*UnregisterEventNotification)(struct factory *, uint32_t);
    } *vtable;
} factory_t;

hresult DXCoreCreateAdapterFactory(const guid *interface, void **factory);

#define RESULT(call, wanted)                                                  \
    do {                                                                      \
        hresult result_ = (call);                                             \
        CHECK(result_ == (int)(wanted), "answered %#010x instead of %#010x",  \
              (unsigned)result_, (unsigned)(wanted));                         \
    } while (0)

static factory_t *factory;

static list_t *list_of(uint32_t count, const guid *filter)
{
    void *list = NULL;
    RESULT(factory->vtable->CreateAdapterList(factory, count, filter, &iid_list, &list), S_OK_);
    return list;
}

static void create(void)
{
    COVERS("MEM-022");
    void *out = &out;
    RESULT(DXCoreCreateAdapterFactory(&iid_factory, NULL), BAD_POINTER);
    RESULT(DXCoreCreateAdapterFactory(&iid_adapter, &out), NO_INTERFACE);
    CHECK(!out, "an object for an unknown interface");
    RESULT(DXCoreCreateAdapterFactory(NULL, &out), NO_INTERFACE);
    void *unknown = NULL;
    RESULT(DXCoreCreateAdapterFactory(&iid_factory, &out), S_OK_);
    factory = out;
    RESULT(factory->vtable->QueryInterface(factory, &iid_unknown, &unknown), S_OK_);
    CHECK(unknown == (void *)factory, "another object");
    CHECK(factory->vtable->AddRef(factory) == 3, "one of each interface, and one more");
    CHECK(factory->vtable->Release(factory) == 2 && factory->vtable->Release(factory) == 1, "references");
}

/* The properties that D3DKMT calls answer too. */
static void properties(adapter_t *adapter)
{
    static const size_t sizes[15] = {8, 8, 0, 16, 4, 0, 0, 8, 8, 8, 1, 1, 1, 1, 20};
    unsigned char data[8192], zeros[64] = {0};
    for (uint32_t property = 0; property < 15; property++) {
        size_t size = 77;
        bool is_there = property != 5 && property != 6;
        CHECK(adapter->vtable->IsPropertySupported(adapter, property) == is_there, "property %u", property);
        RESULT(adapter->vtable->GetPropertySize(adapter, property, &size), is_there ? S_OK_ : UNSUPPORTED);
        memset(data, 0xaa, sizeof data);
        RESULT(adapter->vtable->GetProperty(adapter, property, sizeof data, data), is_there ? S_OK_ : UNSUPPORTED);
        if (!is_there)
            continue;
        CHECK(sizes[property] == size || property == 2, "property %u has %zu bytes", property, size);
        CHECK(!memcmp(data + size, zeros, sizeof zeros), "the rest of the buffer is not 0");
        RESULT(adapter->vtable->GetProperty(adapter, property, size - 1, data), INVALID_ARG);
        RESULT(adapter->vtable->GetProperty(adapter, property, size, NULL), BAD_POINTER);
        RESULT(adapter->vtable->GetPropertySize(adapter, property, NULL), BAD_POINTER);
    }
    CHECK(!adapter->vtable->IsPropertySupported(adapter, 15), "a property of no document");
    RESULT(adapter->vtable->GetProperty(adapter, 15, sizeof data, data), INVALID_CALL);

    LUID luid;
    RESULT(adapter->vtable->GetProperty(adapter, 0, sizeof luid, &luid), S_OK_);
    D3DKMT_OPENADAPTERFROMLUID open = {luid, 0};
    EXPECT(D3DKMTOpenAdapterFromLuid(&open), STATUS_SUCCESS);
    static D3DKMT_DRIVER_DESCRIPTION wide;
    D3DKMT_QUERYADAPTERINFO query = {open.hAdapter, KMTQAITYPE_DRIVER_DESCRIPTION, &wide, sizeof wide};
    EXPECT(D3DKMTQueryAdapterInfo(&query), STATUS_SUCCESS);
    RESULT(adapter->vtable->GetProperty(adapter, 2, sizeof data, data), S_OK_);
    for (size_t i = 0; data[i] || wide.DriverDescription[i]; i++)
        if ((WCHAR)data[i] != wide.DriverDescription[i]) {
            CHECK(0, "the description is \"%s\"", (char *)data);
            break;
        }
    uint32_t ids[7] = {0}, short_ids[4], parts[5], model = 0, version = 1;
    query = (D3DKMT_QUERYADAPTERINFO){open.hAdapter, KMTQAITYPE_PHYSICALADAPTERDEVICEIDS, ids, sizeof ids};
    EXPECT(D3DKMTQueryAdapterInfo(&query), STATUS_SUCCESS);
    RESULT(adapter->vtable->GetProperty(adapter, 3, sizeof short_ids, short_ids), S_OK_);
    RESULT(adapter->vtable->GetProperty(adapter, 14, sizeof parts, parts), S_OK_);
    CHECK(ids[1] == short_ids[0] && ids[2] == short_ids[1] && ids[5] == short_ids[3], "HardwareID");
    CHECK(short_ids[2] == (ids[4] << 16 | ids[3]), "the subsystem is %#x", short_ids[2]);
    CHECK(ids[1] == parts[0] && ids[2] == parts[1] && ids[4] == parts[2] && ids[3] == parts[3] && ids[5] == parts[4],
          "HardwareIDParts");
    query = (D3DKMT_QUERYADAPTERINFO){open.hAdapter, KMTQAITYPE_DRIVERVERSION, &version, sizeof version};
    EXPECT(D3DKMTQueryAdapterInfo(&query), STATUS_SUCCESS);
    RESULT(adapter->vtable->GetProperty(adapter, 4, sizeof model, &model), S_OK_);
    CHECK(model == version, "driver model %u and %u", model, version);
    uint64_t of_package = 0, of_adapter = 1;
    query = (D3DKMT_QUERYADAPTERINFO){open.hAdapter, KMTQAITYPE_UMD_DRIVER_VERSION, &of_package, sizeof of_package};
    EXPECT(D3DKMTQueryAdapterInfo(&query), STATUS_SUCCESS);
    RESULT(adapter->vtable->GetProperty(adapter, 1, sizeof of_adapter, &of_adapter), S_OK_);
    CHECK(of_package == of_adapter && of_package == 1ull << 48, "version %#lx", (unsigned long)of_package);
    bool is_hardware = false;
    RESULT(adapter->vtable->GetProperty(adapter, 11, sizeof is_hardware, &is_hardware), S_OK_);
    CHECK(is_hardware, "a software adapter");

    /* The state of its memory, and the two properties that come from it. */
    for (uint32_t group = 0; group < 2; group++) {
        D3DKMT_QUERYVIDEOMEMORYINFO info = {.hAdapter = open.hAdapter, .MemorySegmentGroup = group};
        EXPECT(D3DKMTQueryVideoMemoryInfo(&info), STATUS_SUCCESS);
        uint32_t input[2] = {0, group};
        uint64_t budget[4] = {0}, bytes = 0;
        RESULT(adapter->vtable->QueryState(adapter, 1, sizeof input, input, sizeof budget, budget), S_OK_);
        CHECK(budget[0] == info.Budget && budget[1] == info.CurrentUsage, "budget %lu", (unsigned long)budget[0]);
        CHECK(budget[2] == info.AvailableForReservation && budget[3] == info.CurrentReservation, "reservation");
        RESULT(adapter->vtable->GetProperty(adapter, group ? 9 : 7, sizeof bytes, &bytes), S_OK_);
        CHECK(bytes == info.Budget, "%lu bytes", (unsigned long)bytes);
        RESULT(adapter->vtable->QueryState(adapter, 1, sizeof input, input, sizeof budget - 1, budget), INVALID_ARG);
        RESULT(adapter->vtable->QueryState(adapter, 1, sizeof input - 1, input, sizeof budget, budget), INVALID_ARG);
        RESULT(adapter->vtable->QueryState(adapter, 1, sizeof input, input, sizeof budget, NULL), BAD_POINTER);
        input[1] = 2;
        RESULT(adapter->vtable->QueryState(adapter, 1, sizeof input, input, sizeof budget, budget), INVALID_ARG);
    }
    close_adapter(open.hAdapter);
    bool updates = true;
    RESULT(adapter->vtable->QueryState(adapter, 0, 0, NULL, sizeof updates, &updates), S_OK_);
    CHECK(!updates, "the driver is updated");
    CHECK(adapter->vtable->IsQueryStateSupported(adapter, 0) && adapter->vtable->IsQueryStateSupported(adapter, 1) &&
              !adapter->vtable->IsQueryStateSupported(adapter, 2),
          "states");
    RESULT(adapter->vtable->QueryState(adapter, 2, 0, NULL, sizeof updates, &updates), INVALID_CALL);
    CHECK(!adapter->vtable->IsSetStateSupported(adapter, 1), "a state that can be set");
    RESULT(adapter->vtable->SetState(adapter, 1, 0, NULL, 0, NULL), UNSUPPORTED);
    RESULT(adapter->vtable->SetState(adapter, 2, 0, NULL, 0, NULL), INVALID_CALL);
}

static void lists(void)
{
    COVERS("MEM-022");
    D3DKMT_ENUMADAPTERS all = {0};
    EXPECT(D3DKMTEnumAdapters(&all), STATUS_SUCCESS);
    for (ULONG i = 0; i < all.NumAdapters; i++)
        close_adapter(all.Adapters[i].hAdapter);

    void *out = &out;
    RESULT(factory->vtable->CreateAdapterList(factory, 0, &core_compute, &iid_list, &out), INVALID_ARG);
    CHECK(!out, "a list of a failed call");
    RESULT(factory->vtable->CreateAdapterList(factory, 1, NULL, &iid_list, &out), INVALID_ARG);
    RESULT(factory->vtable->CreateAdapterList(factory, 0xffffffff, &core_compute, &iid_list, &out), INVALID_ARG);
    RESULT(factory->vtable->CreateAdapterList(factory, 1, &core_compute, &iid_adapter, &out), NO_INTERFACE);
    RESULT(factory->vtable->CreateAdapterList(factory, 1, &core_compute, &iid_list, NULL), BAD_POINTER);

    const guid both[] = {d3d12_graphics, core_compute}, other[] = {core_compute, iid_unknown};
    list_t *compute = list_of(1, &core_compute), *graphics = list_of(2, both), *old = list_of(1, &d3d11_graphics);
    list_t *nothing = list_of(2, other);
    uint32_t count = compute->vtable->GetAdapterCount(compute);
    CHECK(count == all.NumAdapters, "%u of %u adapters", count, all.NumAdapters);
    CHECK(graphics->vtable->GetAdapterCount(graphics) == count && old->vtable->GetAdapterCount(old) == count, "graphics");
    CHECK(nothing->vtable->GetAdapterCount(nothing) == 0, "adapters with an unknown attribute");

    for (uint32_t i = 0; i < count; i++) {
        void *first = NULL, *second = NULL, *third = NULL;
        RESULT(compute->vtable->GetAdapter(compute, i, &iid_adapter, &first), S_OK_);
        RESULT(graphics->vtable->GetAdapter(graphics, i, &iid_adapter, &second), S_OK_);
        RESULT(factory->vtable->GetAdapterByLuid(factory, &all.Adapters[i].AdapterLuid, &iid_adapter, &third), S_OK_);
        CHECK(first == second && second == third, "one adapter has several objects");
        adapter_t *adapter = first;
        CHECK(adapter->vtable->IsValid(adapter), "not valid");
        CHECK(adapter->vtable->IsAttributeSupported(adapter, &core_compute) &&
                  !adapter->vtable->IsAttributeSupported(adapter, &iid_list) &&
                  !adapter->vtable->IsAttributeSupported(adapter, NULL),
              "attributes");
        properties(adapter);
        RESULT(adapter->vtable->GetFactory(adapter, &iid_factory, &out), S_OK_);
        CHECK(out == (void *)factory, "another factory");
        factory->vtable->Release(factory);
        CHECK(adapter->vtable->Release(adapter) == 2 && adapter->vtable->Release(adapter) == 1, "references");
        adapter->vtable->Release(adapter);
    }
    RESULT(compute->vtable->GetAdapter(compute, count, &iid_adapter, &out), INVALID_ARG);
    RESULT(compute->vtable->GetAdapter(compute, 0, &iid_list, &out), NO_INTERFACE);
    RESULT(compute->vtable->GetAdapter(compute, 0, &iid_adapter, NULL), BAD_POINTER);
    LUID unknown = {0xffffffff, -1};
    RESULT(factory->vtable->GetAdapterByLuid(factory, &unknown, &iid_adapter, &out), INVALID_ARG);
    CHECK(!out, "an adapter with an unknown LUID");
    RESULT(factory->vtable->GetAdapterByLuid(factory, NULL, &iid_adapter, &out), INVALID_ARG);

    const uint32_t preferences[] = {0, 7, 2, 2, 1};
    RESULT(compute->vtable->Sort(compute, 5, preferences), S_OK_);
    RESULT(compute->vtable->Sort(compute, 0, preferences), INVALID_ARG);
    RESULT(compute->vtable->Sort(compute, 1, NULL), INVALID_ARG);
    CHECK(compute->vtable->IsAdapterPreferenceSupported(compute, 2), "HighPerformance");
    CHECK(!compute->vtable->IsAdapterPreferenceSupported(compute, 3), "a preference of no document");
    CHECK(compute->vtable->GetAdapterCount(compute) == count && !compute->vtable->IsStale(compute), "stale");

    /* A list is an object of its own, whose last reference ends it. */
    RESULT(graphics->vtable->QueryInterface(graphics, &iid_list, &out), S_OK_);
    RESULT(graphics->vtable->QueryInterface(graphics, &iid_factory, &out), NO_INTERFACE);
    CHECK(graphics->vtable->Release(graphics) == 1, "references");
    for (list_t **list = (list_t *[]){compute, graphics, old, nothing, NULL}; *list; list++)
        CHECK((*list)->vtable->Release(*list) == 0, "the last reference");
    printf("adapters by attribute, by LUID and by preference\n");
}

static void never(uint32_t type, void *object, void *context)
{
    CHECK(0, "notification %u of %p for %p", type, object, context);
}

static void notifications(void)
{
    COVERS("MEM-024");
    uint32_t cookie = 77;
    list_t *list = list_of(1, &core_compute);
    void *first = NULL;
    RESULT(list->vtable->GetAdapter(list, 0, &iid_adapter, &first), S_OK_);
    adapter_t *adapter = first;
    for (uint32_t type = 0; type < 5; type++)
        CHECK(factory->vtable->IsNotificationTypeSupported(factory, type) == (type < 2), "notification %u", type);
    for (uint32_t type = 2; type < 5; type++) {
        cookie = 77;
        RESULT(factory->vtable->RegisterEventNotification(factory, adapter, type, never, NULL, &cookie), INVALID_CALL);
        CHECK(cookie == 0, "cookie %u", cookie);
    }
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 1, never, NULL, &cookie), INVALID_ARG);
    RESULT(factory->vtable->RegisterEventNotification(factory, adapter, 0, never, NULL, &cookie), INVALID_ARG);
    RESULT(factory->vtable->RegisterEventNotification(factory, factory, 0, never, NULL, &cookie), INVALID_ARG);
    RESULT(factory->vtable->RegisterEventNotification(factory, NULL, 0, never, NULL, &cookie), INVALID_ARG);
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, NULL, NULL, &cookie), BAD_POINTER);
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, never, NULL, NULL), BAD_POINTER);
    RESULT(factory->vtable->UnregisterEventNotification(factory, 12345), INVALID_ARG);
    /* What is neither stale nor invalid raises nothing. */
    uint32_t others[2] = {0};
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, never, NULL, &others[0]), S_OK_);
    RESULT(factory->vtable->RegisterEventNotification(factory, adapter, 1, never, NULL, &others[1]), S_OK_);
    CHECK(others[0] && others[1] && others[0] != others[1], "cookies %u and %u", others[0], others[1]);
    for (int i = 0; i < 2; i++)
        RESULT(factory->vtable->UnregisterEventNotification(factory, others[i]), S_OK_);
    RESULT(factory->vtable->UnregisterEventNotification(factory, others[0]), INVALID_ARG);
    adapter->vtable->Release(adapter);
    list->vtable->Release(list);
}

/* Threads that meet the adapters at the same time get the same objects. */
static void *first_adapter(void *unused)
{
    (void)unused;
    void *adapter = NULL;
    list_t *list = list_of(1, &core_compute);
    RESULT(list->vtable->GetAdapter(list, 0, &iid_adapter, &adapter), S_OK_);
    list->vtable->Release(list);
    return adapter;
}

static void threads(void)
{
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    void *adapter[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, first_adapter, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], &adapter[i]);
    for (int i = 0; i < THREADS; i++)
        CHECK(adapter[i] && adapter[i] == adapter[0], "one adapter has several objects");
    for (int i = 0; i < THREADS; i++)
        ((adapter_t *)adapter[i])->vtable->Release(adapter[i]);
}

/* A forked child has the objects, and a session of its own. */
static void child(void)
{
    list_t *list = list_of(1, &core_compute);
    fflush(stdout);
    pid_t forked = fork();
    if (forked == 0) {
        uint32_t count = list->vtable->GetAdapterCount(list);
        adapter_t *adapter = first_adapter(NULL);
        CHECK(count > 0 && !list->vtable->IsStale(list), "the parent's list is stale");
        CHECK(adapter && adapter->vtable->IsValid(adapter), "the adapter is not valid");
        fflush(stdout);
        _exit(failures != 0);
    }
    CHECK(child_end(forked) == 0, "the child failed");
    list->vtable->Release(list);
}

/* Says when it has a list; its adapters stop before the input continues. */
static int stops(void)
{
    void *first = NULL;
    list_t *list = list_of(1, &core_compute);
    RESULT(list->vtable->GetAdapter(list, 0, &iid_adapter, &first), S_OK_);
    adapter_t *adapter = first;
    CHECK(adapter->vtable->IsValid(adapter) && !list->vtable->IsStale(list), "stopped already");
    printf("ready\n");
    fflush(stdout);
    getchar();
    unsigned char data[64];
    void *out = NULL;
    CHECK(!adapter->vtable->IsValid(adapter) && list->vtable->IsStale(list) && list->vtable->IsStale(list), "valid");
    RESULT(list->vtable->GetAdapter(list, 0, &iid_adapter, &out), DEVICE_REMOVED);
    RESULT(adapter->vtable->QueryState(adapter, 0, 0, NULL, sizeof data, data), DEVICE_REMOVED);
    RESULT(adapter->vtable->GetProperty(adapter, 0, sizeof data, data), S_OK_);
    RESULT(factory->vtable->GetAdapterByLuid(factory, (LUID *)data, &iid_adapter, &out), INVALID_ARG);
    list_t *later = list_of(1, &core_compute);
    CHECK(later->vtable->GetAdapterCount(later) + 1 == list->vtable->GetAdapterCount(list), "counts");
    later->vtable->Release(later);
    list->vtable->Release(list);
    if (!failures)
        printf("stopped, and the list is stale\n");
    return failures != 0;
}

/* Callbacks that were raised, of a list and of an adapter. */
static sem_t raised[2];
static int times[2];
static uint32_t own_cookie;

static void on_event(uint32_t type, void *object, void *context)
{
    CHECK(type < 2 && object == context, "notification %u of %p for %p", type, object, context);
    times[type]++;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    CHECK(!sigismember(&blocked, SIGSEGV) && !sigismember(&blocked, SIGTERM), "a callback without the program's signals");
    CHECK(sigismember(&blocked, SIGUSR2), "a callback with a signal that the program has blocked");
    sem_post(&raised[type]);
}

/* Unregisters itself. */
static void on_event_once(uint32_t type, void *object, void *context)
{
    RESULT(factory->vtable->UnregisterEventNotification(factory, own_cookie), S_OK_);
    on_event(type, object, context);
}

static volatile int slow_is_over;

/* Takes a while after it has begun. */
static void on_event_slowly(uint32_t type, void *object, void *context)
{
    CHECK(type == 0 && object == context, "notification %u of %p for %p", type, object, context);
    sem_post(&raised[0]);
    nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    slow_is_over = 1;
}

static uint32_t enumerated(D3DKMT_HANDLE *first)
{
    D3DKMT_ENUMADAPTERS all = {0};
    EXPECT(D3DKMTEnumAdapters(&all), STATUS_SUCCESS);
    for (ULONG i = 1; i < all.NumAdapters; i++)
        close_adapter(all.Adapters[i].hAdapter);
    if (all.NumAdapters)
        *first = all.Adapters[0].hAdapter;
    return all.NumAdapters;
}

/* Waits until its only adapter is removed from its VM, and until it arrives again. */
static int watches(void)
{
    void *found = NULL;
    uint32_t cookies[3];
    sem_init(&raised[0], 0, 0);
    sem_init(&raised[1], 0, 0);
    D3DKMT_HANDLE handle = 0, later_handle = 0;
    CHECK(enumerated(&handle) == 1, "not one adapter");
    D3DKMT_CREATEDEVICE device = {.hAdapter = handle};
    EXPECT(D3DKMTCreateDevice(&device), STATUS_SUCCESS);
    list_t *list = list_of(1, &core_compute);
    RESULT(list->vtable->GetAdapter(list, 0, &iid_adapter, &found), S_OK_);
    adapter_t *adapter = found;
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, on_event, list, &cookies[0]), S_OK_);
    RESULT(factory->vtable->RegisterEventNotification(factory, adapter, 1, on_event, adapter, &cookies[1]), S_OK_);
    printf("ready\n");
    fflush(stdout);

    sem_wait(&raised[0]);
    sem_wait(&raised[1]);
    CHECK(list->vtable->IsStale(list) && !adapter->vtable->IsValid(adapter), "the adapter is still there");
    CHECK(enumerated(&later_handle) == 0, "the adapter is enumerated");
    D3DKMT_CREATEDEVICE refused = {.hAdapter = handle};
    EXPECT(D3DKMTCreateDevice(&refused), STATUS_DEVICE_REMOVED);
    D3DKMT_GETDEVICESTATE state = {.hDevice = device.hDevice, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT(D3DKMTGetDeviceState(&state), STATUS_SUCCESS);
    CHECK(state.ExecutionState == D3DKMT_DEVICEEXECUTION_STOPPED, "state %d", state.ExecutionState);
    list_t *empty = list_of(1, &core_compute);
    CHECK(empty->vtable->GetAdapterCount(empty) == 0, "a list without adapters");
    RESULT(factory->vtable->RegisterEventNotification(factory, empty, 0, on_event_once, empty, &own_cookie), S_OK_);
    printf("removed\n");
    fflush(stdout);

    sem_wait(&raised[0]);
    CHECK(empty->vtable->IsStale(empty) && !adapter->vtable->IsValid(adapter), "an adapter is valid again");
    CHECK(enumerated(&later_handle) == 1, "the adapter is not enumerated");
    EXPECT(D3DKMTCreateDevice(&refused), STATUS_DEVICE_REMOVED);
    D3DKMT_CREATEDEVICE new_device = {.hAdapter = later_handle};
    EXPECT(D3DKMTCreateDevice(&new_device), STATUS_SUCCESS);
    list_t *full = list_of(1, &core_compute);
    RESULT(full->vtable->GetAdapter(full, 0, &iid_adapter, &found), S_OK_);
    adapter_t *arrived = found;
    CHECK(arrived != adapter && arrived->vtable->IsValid(arrived), "not another adapter object");
    /* What is stale already is raised, too; each registration once. */
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, on_event, list, &cookies[2]), S_OK_);
    sem_wait(&raised[0]);
    uint32_t slow;
    RESULT(factory->vtable->RegisterEventNotification(factory, list, 0, on_event_slowly, list, &slow), S_OK_);
    sem_wait(&raised[0]);
    RESULT(factory->vtable->UnregisterEventNotification(factory, slow), S_OK_);
    CHECK(slow_is_over, "the callback runs although it is unregistered");
    for (int i = 0; i < 3; i++)
        RESULT(factory->vtable->UnregisterEventNotification(factory, cookies[i]), S_OK_);
    RESULT(factory->vtable->UnregisterEventNotification(factory, own_cookie), INVALID_ARG);
    CHECK(times[0] == 3 && times[1] == 1, "raised %d and %d times", times[0], times[1]);
    for (list_t **one = (list_t *[]){list, empty, full, NULL}; *one; one++)
        CHECK((*one)->vtable->Release(*one) == 0, "the last reference");
    if (!failures)
        printf("arrived, and each notification came once\n");
    return failures != 0;
}

/* Registers before there is a broker, and is notified once there is one, and when its adapter stops. */
static int late(void)
{
    uint32_t cookies[2];
    const char *set = getenv("GPUPV_BROKER");
    char *broker = set ? strdup(set) : NULL;
    sem_init(&raised[0], 0, 0);
    setenv("GPUPV_BROKER", "/nowhere/broker", 1);
    create();
    list_t *empty = list_of(1, &core_compute);
    CHECK(empty->vtable->GetAdapterCount(empty) == 0, "adapters without a broker");
    RESULT(factory->vtable->RegisterEventNotification(factory, empty, 0, on_event, empty, &cookies[0]), S_OK_);
    if (broker)
        setenv("GPUPV_BROKER", broker, 1);
    else
        unsetenv("GPUPV_BROKER");
    close_adapter(open_adapter(NULL));
    sem_wait(&raised[0]);
    CHECK(empty->vtable->IsStale(empty), "adapters have come");
    list_t *full = list_of(1, &core_compute);
    CHECK(full->vtable->GetAdapterCount(full) == 1, "not one adapter");
    RESULT(factory->vtable->RegisterEventNotification(factory, full, 0, on_event, full, &cookies[1]), S_OK_);
    printf("ready\n");
    fflush(stdout);
    sem_wait(&raised[0]);
    CHECK(full->vtable->IsStale(full), "the adapter has stopped");
    for (int i = 0; i < 2; i++)
        RESULT(factory->vtable->UnregisterEventNotification(factory, cookies[i]), S_OK_);
    full->vtable->Release(full);
    empty->vtable->Release(empty);
    free(broker);
    if (!failures)
        printf("notified of what came later\n");
    return failures != 0;
}

int main(int argc, char **argv)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    if (argc > 1 && !strcmp(argv[1], "late"))
        return late();
    create();
    if (argc > 1 && !strcmp(argv[1], "watches"))
        return watches();
    if (argc > 1 && !strcmp(argv[1], "stops"))
        return stops();
    threads();
    lists();
    notifications();
    child();
    if (!failures)
        printf("dxcore: all as expected\n");
    return failures != 0;
}
