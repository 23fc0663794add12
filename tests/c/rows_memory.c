/* W-292 of windows-observed.md: valid queries of video memory, and the reported residency. */
#include "rows.h"

#include <sys/syscall.h>

static handle_t adapter;

static D3DKMT_QUERYVIDEOMEMORYINFO about(HANDLE process)
{
    D3DKMT_QUERYVIDEOMEMORYINFO query = {.hProcess = process, .hAdapter = adapter};
    query.Budget = query.CurrentUsage = query.CurrentReservation = query.AvailableForReservation = POISON;
    return query;
}

static NTSTATUS ask(D3DKMT_QUERYVIDEOMEMORYINFO *query)
{
    NTSTATUS status = D3DKMTQueryVideoMemoryInfo(query);
    int is_written = query->Budget != POISON || query->CurrentUsage != POISON ||
                     query->CurrentReservation != POISON || query->AvailableForReservation != POISON;
    row("W-292", is_written == (status == OK), "written on success only");
    return status;
}

static HANDLE process_of(pid_t pid)
{
    return (HANDLE)(intptr_t)syscall(SYS_pidfd_open, pid, 0);
}

static void whose(void)
{
    COVERS("W-292");
    D3DKMT_QUERYVIDEOMEMORYINFO query = about(NULL);
    status_row("W-292", ask(&query), OK, "no process: the caller");
    row("W-292", query.Budget > 0 && query.CurrentUsage == 0, "a budget, and nothing used");
    query = about((HANDLE)-1);
    status_row("W-292", ask(&query), OK, "the current process");
    HANDLE own = process_of(getpid()), other = process_of(getppid());
    query = about(own);
    status_row("W-292", ask(&query), OK, "a handle of the caller itself");
    query = about(other);
    status_row("W-292", ask(&query), AD, "a process that it has no right to ask about");
    close((int)(intptr_t)own);
    close((int)(intptr_t)other);
    query = about(own);
    status_row("W-292", ask(&query), IH, "a handle that is closed");
    query = about((HANDLE)0x1eadbeef);
    status_row("W-292", ask(&query), IH, "a handle that never was");
    int event = new_event();
    query = about((HANDLE)(intptr_t)event);
    status_row("W-292", ask(&query), IH, "a handle of something else");
    close(event);
}

static void of_what(void)
{
    COVERS("W-292");
    D3DKMT_QUERYVIDEOMEMORYINFO query = about(NULL);
    query.hAdapter = 0;
    status_row("W-292", ask(&query), IP, "no adapter");
    query.hAdapter = 0x1eadbe00;
    status_row("W-292", ask(&query), IP, "a bogus adapter");
    query = about(NULL);
    query.PhysicalAdapterIndex = 7;
    status_row("W-292", ask(&query), IP, "an index that is not linked");
    query = about(NULL);
    query.MemorySegmentGroup = (D3DKMT_MEMORY_SEGMENT_GROUP)2;
    status_row("W-292", ask(&query), IP, "a segment group that is none");
    query.MemorySegmentGroup = D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL;
    status_row("W-292", ask(&query), OK, "the other group");
    status_row("W-292", D3DKMTQueryVideoMemoryInfo(NULL), IP, "no struct");
}

int main(void)
{
    adapter = open_adapter(NULL);
    whose();
    of_what();
    close_adapter(adapter);
    return end_of_rows("rows_memory");
}
