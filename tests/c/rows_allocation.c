/* Section 12 of windows-observed.md: allocations of the process's own memory, and resources. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

enum { HEAP_BYTES = 0x10000 };

static handle_t device;
static void *heap;

/* A call that succeeds; each row changes one thing. */
struct creation {
    D3DKMT_CREATEALLOCATION args;
    D3DKMT_CREATESTANDARDALLOCATION standard;
    D3DDDI_ALLOCATIONINFO info[2];
    D3DDDI_ALLOCATIONINFO2 info2[2];
};

static void prepare(struct creation *it)
{
    memset(it, 0, sizeof *it);
    it->standard.Type = D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP;
    it->standard.ExistingHeapData.Size = HEAP_BYTES;
    for (int i = 0; i < 2; i++) {
        it->info[i].hAllocation = it->info2[i].hAllocation = POISON;
        it->info[i].pSystemMem = it->info2[i].pSystemMem = heap;
    }
    it->args.hDevice = device;
    it->args.hGlobalShare = POISON;
    it->args.pStandardAllocation = &it->standard;
    it->args.NumAllocations = 1;
    it->args.pAllocationInfo = it->info;
    it->args.Flags.ExistingSysMem = 1;
    it->args.Flags.StandardAllocation = 1;
    it->args.hPrivateRuntimeResourceHandle = (HANDLE)0x1eadbeef;
}

static NTSTATUS destroy(handle_t resource, const handle_t *allocations, UINT count)
{
    return D3DKMTDestroyAllocation(&(D3DKMT_DESTROYALLOCATION){device, resource, allocations, count});
}

static void standard_allocations(void)
{
    COVERS("W-251 W-252 W-253");
    D3DKMT_CREATEALLOCATION zero = {0};
    status_row("W-251", D3DKMTCreateAllocation(&zero), IP, "create: all zero");

    struct creation it;
    prepare(&it);
    it.args.hResource = 0;
    NTSTATUS status = D3DKMTCreateAllocation(&it.args);
    handle_t allocation = it.info[0].hAllocation;
    row("W-252", status == OK && is_local(allocation), "create: an allocation of the existing heap");
    row("W-252", it.args.hGlobalShare == 0 && it.args.hResource == 0, "no global handle, no resource");
    row("W-252", it.args.hPrivateRuntimeResourceHandle == (HANDLE)0x1eadbeef, "the runtime's handle is untouched");
    row("W-252", it.info[1].hAllocation == POISON, "one entry is written");
    status_row("W-252", destroy(0, &allocation, 1), OK, "destroy it");

    static const char *const wrong[] = {
        "private driver data", "no device", "no allocation", "two allocations", "type 0", "no memory",
        "a size of no whole pages", "ExistingSysMem cleared", "StandardAllocation cleared",
    };
    for (int fault = 0; fault < 9; fault++) {
        prepare(&it);
        switch (fault) {
        case 0: it.args.PrivateDriverDataSize = 64; break;
        case 1: it.args.hDevice = 0; break;
        case 2: it.args.NumAllocations = 0; break;
        case 3: it.args.NumAllocations = 2; break;
        case 4: it.standard.Type = 0; break;
        case 5: it.info[0].pSystemMem = NULL; break;
        case 6: it.standard.ExistingHeapData.Size = 0x1100; break;
        case 7: it.args.Flags.ExistingSysMem = 0; break;
        case 8: it.args.Flags.StandardAllocation = 0; break;
        }
        status_row("W-253", D3DKMTCreateAllocation(&it.args), IP, wrong[fault]);
        row("W-253", it.info[0].hAllocation == POISON && it.args.hGlobalShare == POISON, "nothing is written");
    }
}

static void resources(void)
{
    COVERS("W-010 W-254 W-255 W-256 W-257 W-258 W-259 W-260 W-261");
    struct creation it;
    for (UINT create = 0; create < 2; create++) {
        prepare(&it);
        it.args.hResource = 0x1eadbe00;
        it.args.Flags.CreateResource = create;
        status_row("W-254", D3DKMTCreateAllocation(&it.args), IH, create ? "a bogus resource, to create one" : "a bogus resource");
    }
    prepare(&it);
    it.args.Flags.CreateShared = 1;
    status_row("W-255", D3DKMTCreateAllocation(&it.args), IP, "shared, but no resource");

    /* The last created handle: the next handles follow it. */
    prepare(&it);
    NTSTATUS status = D3DKMTCreateAllocation(&it.args);
    handle_t lone = last = it.info[0].hAllocation;
    row("W-256", status == OK, "an allocation before");
    prepare(&it);
    it.args.Flags.CreateResource = 1;
    status = D3DKMTCreateAllocation(&it.args);
    handle_t resource = it.args.hResource, allocation = it.info[0].hAllocation;
    row("W-256", status == OK && is_next(resource) && it.args.hGlobalShare == 0, "a resource");
    row("W-010", is_next(allocation), "its allocation's handle is the next");

    prepare(&it);
    it.args.hResource = resource;
    status_row("W-258", D3DKMTCreateAllocation(&it.args), IP, "one more allocation for a resource");

    status_row("W-257", destroy(0, &allocation, 1), OK, "destroy the allocation");
    status_row("W-257", destroy(resource, NULL, 0), OK, "the resource is still there: destroy it");
    status_row("W-257", destroy(resource, NULL, 0), IP, "destroy it again");

    prepare(&it);
    it.args.Flags.CreateResource = 1;
    status = D3DKMTCreateAllocation(&it.args);
    resource = it.args.hResource, allocation = it.info[0].hAllocation;
    status_row("W-259", destroy(resource, NULL, 0), OK, "destroy a resource that has an allocation");
    status_row("W-259", destroy(0, &allocation, 1), IP, "the allocation went with it");

    prepare(&it);
    it.args.Flags.CreateResource = 1;
    it.args.NumAllocations = 0;
    status_row("W-260", D3DKMTCreateAllocation(&it.args), IP, "a resource of no allocations");

    status_row("W-261", destroy(0, NULL, 0), OK, "destroy nothing");
    status_row("W-261", destroy(0, NULL, 1), IP, "destroy one of no list");
    status_row("W-261", destroy(0, &lone, 1), OK, "destroy the first");
}

static void second_form(void)
{
    COVERS("W-262");
    struct creation it;
    prepare(&it);
    it.args.Flags.CreateResource = 1;
    it.args.pAllocationInfo2 = it.info2;
    status_row("W-262", D3DKMTCreateAllocation2(&it.args), OK, "create 2");
    handle_t allocation = it.info2[0].hAllocation;
    row("W-262", is_local(allocation) && it.info2[1].hAllocation == POISON, "create 2: its handle");
    D3DKMT_DESTROYALLOCATION2 destroy2 = {device, 0, &allocation, 1, {{{0}}}};
    status_row("W-262", D3DKMTDestroyAllocation2(&destroy2), OK, "destroy 2: the allocation");
    destroy2 = (D3DKMT_DESTROYALLOCATION2){device, it.args.hResource, NULL, 0, {{{0}}}};
    status_row("W-262", D3DKMTDestroyAllocation2(&destroy2), OK, "destroy 2: the resource");
    status_row("W-262", D3DKMTDestroyAllocation2(&destroy2), IP, "destroy 2: again");
}

static D3DKMT_OPENRESOURCE opening(handle_t global, void *data, UINT size)
{
    return (D3DKMT_OPENRESOURCE){
        .hDevice = device, .hGlobalShare = global, .NumAllocations = 1,
        .pPrivateRuntimeData = data, .PrivateRuntimeDataSize = size, .hResource = POISON,
    };
}

static void shared_resources(void)
{
    COVERS("W-263 W-264 W-265 W-266 W-267");
    static const char data[] = "runtime data";
    struct creation it;
    prepare(&it);
    it.args.Flags.CreateResource = it.args.Flags.CreateShared = 1;
    it.args.pPrivateRuntimeData = data;
    it.args.PrivateRuntimeDataSize = sizeof data;
    NTSTATUS status = D3DKMTCreateAllocation(&it.args);
    handle_t resource = it.args.hResource, global = it.args.hGlobalShare;
    row("W-263", status == OK && is_local(resource) && is_global(global), "a shared resource");

    char buffer[64];
    memset(buffer, 0x55, sizeof buffer);
    D3DKMT_QUERYRESOURCEINFO query = {.hDevice = device, .hGlobalShare = resource};
    status_row("W-263", D3DKMTQueryResourceInfo(&query), IP, "query: a local handle");
    query.hGlobalShare = global;
    query.pPrivateRuntimeData = buffer;
    query.PrivateRuntimeDataSize = sizeof buffer;
    status = D3DKMTQueryResourceInfo(&query);
    row("W-264", status == OK && query.PrivateRuntimeDataSize == sizeof data && query.NumAllocations == 1, "query: sizes");
    row("W-264", buffer[0] == 0x55 && !memcmp(buffer, buffer + 1, sizeof buffer - 1), "query: the buffer is not filled");

    D3DDDI_OPENALLOCATIONINFO info = {.hAllocation = POISON};
    D3DDDI_OPENALLOCATIONINFO2 info2 = {.hAllocation = POISON};
    D3DKMT_OPENRESOURCE open = opening(resource, buffer, sizeof data);
    open.pOpenAllocationInfo = &info;
    status_row("W-263", D3DKMTOpenResource(&open), IP, "open: a local handle");
    char total[16];
    memset(total, 0x55, sizeof total);
    open = opening(global, buffer, sizeof data);
    open.pOpenAllocationInfo = &info;
    open.pTotalPrivateDriverDataBuffer = total;
    open.TotalPrivateDriverDataBufferSize = query.TotalPrivateDriverDataSize;
    status = D3DKMTOpenResource(&open);
    row("W-265", status == OK && is_local(open.hResource) && is_local(info.hAllocation), "open: handles");
    row("W-265", !memcmp(buffer, data, sizeof data), "open: the runtime data");
    row("W-265", total[0] == 0x55 && !memcmp(total, total + 1, sizeof total - 1), "open: no driver data");
    handle_t first = open.hResource;
    memset(buffer, 0x55, sizeof buffer);
    open = opening(global, buffer, sizeof data);
    open.pOpenAllocationInfo2 = &info2;
    status = D3DKMTOpenResource2(&open);
    row("W-265", status == OK && is_local(open.hResource) && is_local(info2.hAllocation), "open 2: handles");
    row("W-265", open.hResource != first && !memcmp(buffer, data, sizeof data), "open 2: the runtime data");
    handle_t second = open.hResource;

    open = opening(global, buffer, sizeof data);
    open.pOpenAllocationInfo = &info;
    open.NumAllocations = 0;
    status_row("W-266", D3DKMTOpenResource(&open), IP, "open: no allocations");
    open = opening(global, buffer, sizeof data + 1);
    open.pOpenAllocationInfo = &info;
    status_row("W-266", D3DKMTOpenResource(&open), IP, "open: a byte more of runtime data");
    open = opening(global, buffer, sizeof data);
    open.pOpenAllocationInfo = &info;
    open.pResourcePrivateDriverData = total;
    open.ResourcePrivateDriverDataSize = query.ResourcePrivateDriverDataSize + 1;
    status_row("W-266", D3DKMTOpenResource(&open), IP, "open: a byte more of driver data");
    row("W-266", open.hResource == POISON, "nothing is written");

    status_row("W-265", destroy(resource, NULL, 0), OK, "destroy the creator's");
    status_row("W-265", destroy(first, NULL, 0), OK, "destroy an opened one");
    query.hGlobalShare = global;
    status_row("W-265", D3DKMTQueryResourceInfo(&query), OK, "the other keeps it");
    status_row("W-265", destroy(second, NULL, 0), OK, "destroy the last");
    status_row("W-265", D3DKMTQueryResourceInfo(&query), IP, "nothing is left");

    prepare(&it);
    it.args.Flags.CreateResource = it.args.Flags.CreateShared = it.args.Flags.NtSecuritySharing = 1;
    status_row("W-267", D3DKMTCreateAllocation(&it.args), OK, "shared by NT handle");
    row("W-267", it.args.hGlobalShare == 0, "no global handle");
    status_row("W-267", destroy(it.args.hResource, NULL, 0), OK, "destroy it");
}

int main(void)
{
    heap = aligned_alloc(4096, HEAP_BYTES);
    device = create_device(open_adapter(NULL));
    standard_allocations();
    resources();
    second_form();
    shared_resources();
    return end_of_rows("rows_allocation");
}
