/* CPU events that a kernel-mode driver signals: creation, registration and signals as user-mode drivers do them. */
#ifndef CPU_EVENT_H
#define CPU_EVENT_H

#include "check.h"
#include <gpupv_escape.h>

/* A CPU_NOTIFICATION object of this event; `flags` 0x100 is SignalByKmd. */
static inline NTSTATUS create_notification(handle_t device, int event, UINT flags, handle_t *object)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device};
    args.Info.Type = D3DDDI_CPU_NOTIFICATION;
    args.Info.Flags.Value = flags;
    args.Info.CPUNotification.Event = (HANDLE)(intptr_t)event;
    NTSTATUS status = D3DKMTCreateSynchronizationObject2(&args);
    *object = args.hSyncObject;
    return status;
}

#define SIGNAL_BY_KMD 0x100u
#define NO_ADAPTER_SYNCHRONIZATION 0x8u
#define DRIVER_KNOWN_ESCAPE 0x40u

static inline NTSTATUS escape(handle_t adapter, handle_t device, UINT flags, void *data, UINT size)
{
    D3DKMT_ESCAPE args = {.hAdapter = adapter, .hDevice = device, .Type = D3DKMT_ESCAPE_DRIVERPRIVATE};
    args.Flags.Value = flags;
    args.pPrivateDriverData = data;
    args.PrivateDriverDataSize = size;
    return D3DKMTEscape(&args);
}

/* Lets the driver signal the event this many times, by the driver's name from its registration. */
static inline NTSTATUS driver_signals(handle_t adapter, uint64_t kmd_cpu_event, uint32_t count)
{
    struct gpupv_escape_signal_event command = {GPUPV_ESCAPE_SIGNAL_EVENT, count, kmd_cpu_event};
    return escape(adapter, 0, 0, &command, sizeof command);
}

/* Lets the driver find a bad object and signal the events registered for this usage. */
static inline NTSTATUS object_goes_bad(handle_t adapter, uint32_t usage, uint32_t *signaled)
{
    struct gpupv_escape_object_bad command = {GPUPV_ESCAPE_OBJECT_BAD, usage};
    NTSTATUS status = escape(adapter, 0, 0, &command, sizeof command);
    *signaled = command.usage;
    return status;
}

/* Lets the driver signal this number as an event of the process. */
static inline NTSTATUS driver_signals_number(handle_t adapter, uint64_t number)
{
    struct gpupv_escape_guest_event command = {GPUPV_ESCAPE_GUEST_EVENT, 0, number};
    return escape(adapter, 0, 0, &command, sizeof command);
}

/* Waits until the event is set, without resetting it. */
static inline int becomes_set(int event)
{
    struct pollfd ready = {event, POLLIN, 0};
    int found;
    do
        found = poll(&ready, 1, LONG_MS);
    while (found < 0 && errno == EINTR);
    return found == 1;
}

#endif
