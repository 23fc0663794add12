/* Sections 9 and 10 of windows-observed.md: keyed mutexes. They belong to the process, so the program opens no adapter
 * and creates no device. */
#include "rows.h"

static NTSTATUS destroy(handle_t mutex)
{
    return D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){mutex});
}

/* Opens by global handle; returns the local handle, POISON if it was refused. */
static NTSTATUS open_mutex(handle_t global, handle_t *local)
{
    D3DKMT_OPENKEYEDMUTEX args = {.hSharedHandle = global, .hKeyedMutex = POISON};
    NTSTATUS status = D3DKMTOpenKeyedMutex(&args);
    *local = args.hKeyedMutex;
    return status;
}

static void first_form(void)
{
    COVERS("W-160 W-161 W-162 W-163 W-164 W-165 W-166 W-167 W-168");
    status_row("W-160", D3DKMTCreateKeyedMutex(NULL), IP, "create: NULL");
    D3DKMT_CREATEKEYEDMUTEX create = {.hSharedHandle = POISON, .hKeyedMutex = POISON};
    NTSTATUS status = D3DKMTCreateKeyedMutex(&create);
    handle_t local = create.hKeyedMutex, global = create.hSharedHandle;
    row("W-161", status == OK && is_local(local) && is_global(global), "create: local and global handle");
    last = local;

    D3DKMT_OPENKEYEDMUTEX open = {0};
    status_row("W-162", D3DKMTOpenKeyedMutex(&open), IP, "open: all zero");
    open.hKeyedMutex = local;
    status_row("W-163", D3DKMTOpenKeyedMutex(&open), IP, "open: only the output is set");
    row("W-163", open.hKeyedMutex == local, "it stays");
    handle_t opened;
    status = open_mutex(global, &opened);
    row("W-164", status == OK && is_next(opened), "open: a new local handle");

    status_row("W-165", destroy(0), IP, "destroy: zero");
    status_row("W-166", destroy(global), IP, "destroy: a global handle (expected, never run on Windows)");
    status_row("W-167", destroy(opened), OK, "destroy what was opened");
    status_row("W-167", destroy(opened), IP, "destroy it again");
    status_row("W-168", destroy(local), OK, "destroy the creator's");
    status_row("W-168", open_mutex(global, &opened), IP, "nothing is left to open");
    row("W-168", opened == POISON, "no handle");
}

static void second_form(void)
{
    COVERS("W-169 W-170 W-171 W-172 W-173");
    status_row("W-169", D3DKMTCreateKeyedMutex2(NULL), IP, "create 2: NULL");
    D3DKMT_CREATEKEYEDMUTEX2 create[2];
    for (int i = 0; i < 2; i++) {
        create[i] = (D3DKMT_CREATEKEYEDMUTEX2){.hSharedHandle = POISON, .hKeyedMutex = POISON};
        NTSTATUS status = D3DKMTCreateKeyedMutex2(&create[i]);
        int right = is_next(create[i].hKeyedMutex) && is_global(create[i].hSharedHandle);
        row("W-170", status == OK && right, "create 2: local and global handle");
    }
    row("W-170", create[0].hSharedHandle != create[1].hSharedHandle, "they differ");

    D3DKMT_OPENKEYEDMUTEX2 open = {0};
    status_row("W-171", D3DKMTOpenKeyedMutex2(&open), IP, "open 2: all zero");
    open.hKeyedMutex = create[0].hKeyedMutex;
    status_row("W-171", D3DKMTOpenKeyedMutex2(&open), IP, "open 2: only the output is set");
    open = (D3DKMT_OPENKEYEDMUTEX2){.hSharedHandle = create[1].hSharedHandle, .hKeyedMutex = POISON};
    NTSTATUS status = D3DKMTOpenKeyedMutex2(&open);
    row("W-172", status == OK && is_next(open.hKeyedMutex), "open 2: a new local handle");

    status_row("W-173", destroy(create[0].hKeyedMutex), OK, "destroy the first");
    status_row("W-173", destroy(create[1].hKeyedMutex), OK, "destroy the second, which is open elsewhere");
    status_row("W-173", destroy(open.hKeyedMutex), OK, "destroy the opener's");
}

/* Opens with or without a buffer; returns the size in the struct. The buffer must stay unchanged. */
static NTSTATUS open_with(const char *name, handle_t global, void *data, UINT *size)
{
    unsigned char before[64];
    if (data)
        memcpy(before, data, sizeof before);
    D3DKMT_OPENKEYEDMUTEX2 open = {global, POISON, data, *size};
    NTSTATUS status = D3DKMTOpenKeyedMutex2(&open);
    *size = open.PrivateRuntimeDataSize;
    if (data)
        row(name, memcmp(before, data, sizeof before) == 0, "the buffer is not written");
    if (status == OK)
        EXPECT(destroy(open.hKeyedMutex), OK);
    else
        row(name, open.hKeyedMutex == POISON, "refused: no handle");
    return status;
}

static void runtime_data(void)
{
    COVERS("W-174 W-175 W-176 W-177 W-178 W-179");
    /* A new mutex has no data, and the first opener's data are stored, so each row uses its own mutex. */
    unsigned char buffer[64];
    memset(buffer, 0x5A, sizeof buffer);
    D3DKMT_CREATEKEYEDMUTEX2 none = {.hSharedHandle = POISON};
    EXPECT(D3DKMTCreateKeyedMutex2(&none), OK);
    UINT size = 64;
    status_row("W-174", open_with("W-174", none.hSharedHandle, NULL, &size), IP, "none stored: 64 bytes, no buffer");
    size = 64;
    status_row("W-175", open_with("W-175", none.hSharedHandle, buffer, &size), OK, "none stored: a buffer of 64");
    row("W-175", size == 64, "the size stays 64");
    EXPECT(destroy(none.hKeyedMutex), OK);

    char stored[6] = "gpupv";
    D3DKMT_CREATEKEYEDMUTEX2 six = {.hSharedHandle = POISON};
    six.pPrivateRuntimeData = stored;
    six.PrivateRuntimeDataSize = sizeof stored;
    EXPECT(D3DKMTCreateKeyedMutex2(&six), OK);
    static const struct {
        const char *name;
        int buffer;
        UINT size;
        NTSTATUS status;
        const char *what;
    } opens[] = {{"W-176", 0, 0, OK, "6 stored: no buffer, size 0"},
                 {"W-177", 0, 64, IP, "6 stored: 64 bytes, no buffer"},
                 {"W-178", 1, 5, IP, "6 stored: a buffer of 5"},
                 {"W-179", 1, 6, OK, "6 stored: a buffer of 6"}};
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
        size = opens[i].size;
        NTSTATUS status = open_with(opens[i].name, six.hSharedHandle, opens[i].buffer ? buffer : NULL, &size);
        status_row(opens[i].name, status, opens[i].status, opens[i].what);
        row(opens[i].name, size == opens[i].size, "the size stays");
    }
    EXPECT(destroy(six.hKeyedMutex), OK);
}

static void nt_sharing(void)
{
    COVERS("W-180");
    D3DKMT_CREATEKEYEDMUTEX2 create = {.hSharedHandle = POISON, .hKeyedMutex = POISON};
    create.Flags.NtSecuritySharing = 1;
    NTSTATUS status = D3DKMTCreateKeyedMutex2(&create);
    row("W-180", status == OK && is_local(create.hKeyedMutex), "NT sharing: a local handle");
    row("W-180", create.hSharedHandle == 0, "NT sharing: 0 is written where the global handle would be");
    EXPECT(destroy(create.hKeyedMutex), OK);
}

static const uint64_t BOGUS_KEY = 0xdeadbeef, POISON_VALUE = 0x1eadbeef;

/* Acquires with a timeout of 10 ms; returns status and the struct's outputs. */
static NTSTATUS acquire(handle_t mutex, uint64_t key, D3DKMT_ACQUIREKEYEDMUTEX *args)
{
    LARGE_INTEGER timeout = {.QuadPart = -100000};
    *args = (D3DKMT_ACQUIREKEYEDMUTEX){mutex, key, &timeout, POISON_VALUE};
    NTSTATUS status = D3DKMTAcquireKeyedMutex(args);
    args->pTimeout = NULL;
    return status;
}

/* One row of an acquire: its status, the unchanged key, and the returned fence value. */
static void acquire_row(const char *name, handle_t mutex, uint64_t key, NTSTATUS wanted, uint64_t value,
                        const char *what)
{
    D3DKMT_ACQUIREKEYEDMUTEX args;
    status_row(name, acquire(mutex, key, &args), wanted, what);
    row(name, args.Key == key && args.FenceValue == value, "its key and fence value");
}

static void release_row(const char *name, handle_t mutex, uint64_t key, uint64_t value, NTSTATUS wanted,
                        const char *what)
{
    D3DKMT_RELEASEKEYEDMUTEX args = {mutex, key, value};
    status_row(name, D3DKMTReleaseKeyedMutex(&args), wanted, what);
    row(name, args.hKeyedMutex == mutex && args.Key == key && args.FenceValue == value, "nothing is written");
}

static void acquire_and_release(void)
{
    COVERS("W-190 W-191 W-192 W-193 W-194 W-195 W-196 W-197 W-198 W-199");
    D3DKMT_CREATEKEYEDMUTEX create = {.InitialValue = 0};
    EXPECT(D3DKMTCreateKeyedMutex(&create), OK);
    handle_t mutex = create.hKeyedMutex;
    status_row("W-190", D3DKMTAcquireKeyedMutex(NULL), IP, "acquire: NULL");
    acquire_row("W-191", 0x1eadbeed, BOGUS_KEY, IP, POISON_VALUE, "acquire: no such mutex");
    acquire_row("W-192", mutex, BOGUS_KEY, TO, 0, "acquire: another key than the state's");
    acquire_row("W-193", mutex, 0, OK, 0, "acquire: the state's key");
    status_row("W-194", D3DKMTReleaseKeyedMutex(NULL), IP, "release: NULL");
    release_row("W-195", 0x1eadbeed, BOGUS_KEY, POISON_VALUE, IP, "release: no such mutex");
    release_row("W-196", mutex, 1, 1234, OK, "release by its owner");
    release_row("W-197", mutex, 2, 4321, IP, "release again: not owned");
    acquire_row("W-198", mutex, 0, TO, 0, "acquire: the key before");
    acquire_row("W-199", mutex, 1, OK, 1234, "acquire: the key of the release, with its fence value");
    EXPECT(destroy(mutex), OK);
}

int main(void)
{
    first_form();
    second_form();
    runtime_data();
    nt_sharing();
    acquire_and_release();
    return end_of_rows("rows_keyed_mutex");
}
