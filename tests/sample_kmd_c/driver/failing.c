/* The sample driver, which fails at its call of number FAILS_AT: SIGKILL, or with SPINS it never returns. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <unistd.h>

#define DxgkMiniportEntry SampleEntry
#include "sample.c"
#undef DxgkMiniportEntry

typedef NTSTATUS (*ddi)(void *, UINT64, void *);
#define COUNT ((sizeof table - 8) / sizeof(ddi))

static ddi inner[COUNT];

static NTSTATUS counted(UINT n, void *context, UINT64 now, void *args)
{
    static UINT calls;
    if (++calls == FAILS_AT) {
#ifdef SPINS
        fail_for_tests(SPIN);
#else
        kill(getpid(), SIGKILL);
#endif
    }
    return inner[n](context, now, args);
}

#define ONE(n) static NTSTATUS call_##n(void *context, UINT64 now, void *args) { return counted(n, context, now, args); }
#define EACH(X, t) X(t##0) X(t##1) X(t##2) X(t##3) X(t##4) X(t##5) X(t##6) X(t##7) X(t##8) X(t##9)
#define ALL(X) EACH(X, ) EACH(X, 1) EACH(X, 2) EACH(X, 3) EACH(X, 4) EACH(X, 5) EACH(X, 6) EACH(X, 7)
#define NAME(n) call_##n,
ALL(ONE)

static const ddi outer[] = { ALL(NAME) };
static union { DRIVER_INITIALIZATION_DATA table; struct { UINT size, version; ddi call[COUNT]; } raw; } failing;

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    _Static_assert(COUNT <= sizeof outer / sizeof outer[0], "a function for each DDI");
    failing.table = *SampleEntry(pDxgkrnl, pContext);
    for (UINT n = 0; n < COUNT; n++) {
        inner[n] = failing.raw.call[n];
        if (inner[n])
            failing.raw.call[n] = outer[n];
    }
    return &failing.table;
}
