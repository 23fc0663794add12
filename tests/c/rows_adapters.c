/* Sections 1 and 13 of windows-observed.md: adapters, devices, and calls that need no object. */
#include "rows.h"

static handle_t adapter, device;

static void enumeration(void)
{
    COVERS("W-001 W-003 W-287 W-288 W-289 W-290");
    D3DKMT_ADAPTERINFO infos[34] = {{0}};
    D3DKMT_ENUMADAPTERS2 args = {.NumAdapters = POISON};
    status_row("W-287", D3DKMTEnumAdapters2(NULL), IP, "EnumAdapters2(NULL)");
    NTSTATUS status = D3DKMTEnumAdapters2(&args);
    row("W-288", status == OK && args.NumAdapters == 34, "no array: the most there may be");
    args = (D3DKMT_ENUMADAPTERS2){0, infos};
    status_row("W-289", D3DKMTEnumAdapters2(&args), STATUS_BUFFER_TOO_SMALL, "an array without room");
    args = (D3DKMT_ENUMADAPTERS2){34, infos};
    status = D3DKMTEnumAdapters2(&args);
    row("W-290", status == OK && args.NumAdapters >= 1 && args.NumAdapters < 34, "the real count");
    for (UINT i = 0; i < args.NumAdapters && i < 34; i++) {
        LUID luid = infos[i].AdapterLuid;
        row("W-290", infos[i].hAdapter && (luid.LowPart || luid.HighPart), "an adapter has a handle and a LUID");
        row("W-001", (infos[i].hAdapter & 0xC0000000) != 0, "a handle has a top bit set");
        row("W-003", is_local(infos[i].hAdapter), "a local handle ends in six zero bits");
        if (i > 0)
            status_row("W-290", D3DKMTCloseAdapter(&(D3DKMT_CLOSEADAPTER){infos[i].hAdapter}), OK, "it is closed");
    }
    adapter = infos[0].hAdapter;
}

static void closing_and_asking(void)
{
    COVERS("W-280 W-291");
    status_row("W-280", D3DKMTCloseAdapter(NULL), IP, "CloseAdapter(NULL)");
    status_row("W-280", D3DKMTCloseAdapter(&(D3DKMT_CLOSEADAPTER){0}), IP, "CloseAdapter of zero");
    UINT caps[2] = {POISON, POISON};
    D3DKMT_QUERYADAPTERINFO query = {adapter, KMTQAITYPE_ADAPTERTYPE, caps, 3};
    status_row("W-291", D3DKMTQueryAdapterInfo(&query), IP, "QueryAdapterInfo one byte short");
    row("W-291", caps[0] == POISON, "the buffer is as it was");
    query.PrivateDriverDataSize = 4;
    status_row("W-291", D3DKMTQueryAdapterInfo(&query), OK, "QueryAdapterInfo of the right size");
    row("W-291", caps[0] != POISON && caps[1] == POISON, "it is filled, and no more");
}

static void devices(void)
{
    COVERS("W-281 W-282 W-283");
    D3DKMT_CREATEDEVICE create = {.hAdapter = 0};
    status_row("W-281", D3DKMTCreateDevice(NULL), IP, "CreateDevice(NULL)");
    status_row("W-281", D3DKMTCreateDevice(&create), IP, "CreateDevice without an adapter");
    memset(&create, 0xEE, sizeof create);
    memset(&create.Flags, 0, sizeof create.Flags);
    create.pAdapter = NULL;
    create.hAdapter = adapter;
    NTSTATUS status = D3DKMTCreateDevice(&create);
    int empty = !create.pCommandBuffer && !create.CommandBufferSize && !create.pAllocationList &&
                !create.AllocationListSize && !create.pPatchLocationList && !create.PatchLocationListSize;
    row("W-282", status == OK && empty, "CreateDevice: no command buffer, no lists");
    device = create.hDevice;
    row("W-282", is_local(device), "CreateDevice: a device");
    status_row("W-283", D3DKMTDestroyDevice(NULL), IP, "DestroyDevice(NULL)");
    status_row("W-283", D3DKMTDestroyDevice(&(D3DKMT_DESTROYDEVICE){0}), IP, "DestroyDevice of zero");
}

static void other_ways_to_open(void)
{
    COVERS("W-284 W-285 W-286");
    status_row("W-284", D3DKMTOpenAdapterFromGdiDisplayName(NULL), STATUS_UNSUCCESSFUL, "by display: NULL");
    D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME display = {.hAdapter = POISON};
    status_row("W-284", D3DKMTOpenAdapterFromGdiDisplayName(&display), STATUS_UNSUCCESSFUL, "by display: no name");
    wcscpy(display.DeviceName, L"\\\\.\\DISPLAY7");
    status_row("W-284", D3DKMTOpenAdapterFromGdiDisplayName(&display), STATUS_UNSUCCESSFUL, "by display: detached");
    row("W-284", display.hAdapter == POISON, "no handle");
    D3DKMT_OPENADAPTERFROMDEVICENAME name = {.hAdapter = 0};
    status_row("W-285", D3DKMTOpenAdapterFromDeviceName(NULL), IP, "by device: NULL");
    status_row("W-285", D3DKMTOpenAdapterFromDeviceName(&name), IP, "by device: all zero");
    D3DKMT_OPENADAPTERFROMHDC hdc = {.hAdapter = 0};
    status_row("W-286", D3DKMTOpenAdapterFromHdc(&hdc), IP, "by device context: all zero");
}

static void escapes(void)
{
    COVERS("W-293");
    D3DKMT_ESCAPE escape = {.hAdapter = 0};
    status_row("W-293", D3DKMTEscape(&escape), IP, "escape: all zero");
    escape.hAdapter = adapter;
    row("W-293", D3DKMTEscape(&escape) != IP, "it is the adapter that is wrong");
}

static void the_end(void)
{
    COVERS("W-290");
    destroy_device(device);
    status_row("W-290", D3DKMTCloseAdapter(&(D3DKMT_CLOSEADAPTER){adapter}), OK, "the adapter is closed");
}

int main(void)
{
    enumeration();
    closing_and_asking();
    devices();
    other_ways_to_open();
    escapes();
    the_end();
    return end_of_rows("rows_adapters");
}
