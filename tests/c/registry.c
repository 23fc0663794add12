/* Reads the registry as a user-mode driver does: texts are in WCHARs of 4 bytes, sizes in bytes of those.
 * The adapter has a REG_SZ "Text", of the words "gp\u00fc one", and a REG_DWORD "Number" of 7. */
#include "check.h"
#include <wchar.h>

enum { SERVICE_KEY, ADAPTER_KEY, DRIVER_STORE_PATH, REG_SZ_ = 1, REG_DWORD_ = 4, OK_ = 0, OVERFLOW_ = 1, FAIL_ = 2 };

static handle_t adapter;
static union {
    D3DDDI_QUERYREGISTRY_INFO info;
    unsigned char bytes[4096];
} query;

/* Asks for a value, with room for so many bytes of it. */
static UINT ask(UINT type, const wchar_t *name, UINT value_type, UINT room)
{
    memset(&query, 0xa5, sizeof query);
    query.info.QueryType = type;
    query.info.QueryFlags = 0;
    wcscpy(query.info.ValueName, name);
    query.info.ValueType = value_type;
    query.info.PhysicalAdapterIndex = 0;
    D3DKMT_QUERYADAPTERINFO get = {
        .hAdapter = adapter,
        .Type = KMTQAITYPE_QUERYREGISTRY,
        .pPrivateDriverData = &query,
        .PrivateDriverDataSize = (UINT)offsetof(D3DDDI_QUERYREGISTRY_INFO, OutputString) + room,
    };
    EXPECT(D3DKMTQueryAdapterInfo(&get), STATUS_SUCCESS);
    CHECK(wcscmp(query.info.ValueName, name) == 0, "the name is %ls", query.info.ValueName);
    return query.info.Status;
}

int main(void)
{
    adapter = open_adapter(NULL);
    COVERS("GPV-028");
    const wchar_t *text = L"gp\u00fc one";
    UINT bytes = (UINT)((wcslen(text) + 1) * sizeof(wchar_t));
    CHECK(ask(ADAPTER_KEY, L"Text", REG_SZ_, 256) == OK_, "status %u", query.info.Status);
    CHECK(query.info.OutputValueSize == bytes, "%u bytes", query.info.OutputValueSize);
    CHECK(wcscmp(query.info.OutputString, text) == 0, "another text");
    CHECK(ask(ADAPTER_KEY, L"Text", REG_SZ_, bytes - 4) == OVERFLOW_, "status %u", query.info.Status);
    CHECK(query.info.OutputValueSize == bytes, "%u bytes are needed", query.info.OutputValueSize);
    CHECK(ask(ADAPTER_KEY, L"Number", REG_DWORD_, 4) == OK_, "status %u", query.info.Status);
    CHECK(query.info.OutputValueSize == 4 && query.info.OutputDword == 7, "%u", query.info.OutputDword);
    CHECK(ask(ADAPTER_KEY, L"Missing", REG_SZ_, 256) == FAIL_, "status %u", query.info.Status);
    CHECK(ask(SERVICE_KEY, L"Text", REG_SZ_, 256) == FAIL_, "status %u", query.info.Status);
    CHECK(ask(DRIVER_STORE_PATH, L"", REG_SZ_, 2048) == OK_, "status %u", query.info.Status);
    CHECK(wcsstr(query.info.OutputString, L"DriverStore\\FileRepository\\") != NULL, "another path");
    CHECK(query.info.OutputValueSize == (wcslen(query.info.OutputString) + 1) * sizeof(wchar_t), "another size");
    close_adapter(adapter);
    if (failures == 0)
        printf("registry: all as expected\n");
    return failures != 0;
}
