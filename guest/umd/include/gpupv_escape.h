/* Driver-private escapes of gpupv's simulated KMD: the contents of pPrivateDriverData of a D3DKMTEscape of Type
 * D3DKMT_ESCAPE_DRIVERPRIVATE without DriverKnownEscape. Little-endian; the first word is the command. No data
 * give STATUS_SUCCESS, too few STATUS_BUFFER_TOO_SMALL, another command STATUS_NOT_SUPPORTED.
 */
#ifndef GPUPV_ESCAPE_H
#define GPUPV_ESCAPE_H

#include <stdint.h>

#define GPUPV_ESCAPE_ECHO 0u         /* struct gpupv_escape_echo */
#define GPUPV_ESCAPE_SIGNAL_EVENT 1u /* struct gpupv_escape_signal_event */
#define GPUPV_ESCAPE_FAIL 2u         /* struct gpupv_escape_fail */
#define GPUPV_ESCAPE_OBJECT_BAD 3u   /* struct gpupv_escape_object_bad */
#define GPUPV_ESCAPE_GUEST_EVENT 4u  /* struct gpupv_escape_guest_event */
#define GPUPV_ESCAPE_CREATE_RESOURCE 5u  /* struct gpupv_escape_create_resource */
#define GPUPV_ESCAPE_DESTROY_RESOURCE 6u /* struct gpupv_escape_destroy_resource */
#define GPUPV_ESCAPE_SET_DEBUG 7u        /* struct gpupv_escape_set_debug */
#define GPUPV_ESCAPE_READ_MESSAGES 8u    /* struct gpupv_escape_read_messages */
#define GPUPV_ESCAPE_DESCRIBE_FENCE 10u  /* struct gpupv_escape_describe_fence */

#define GPUPV_ESCAPE_SIGNALS_MAX 1024u

#define GPUPV_PROCESS_HOST 0u
#define GPUPV_PROCESS_VIRTUAL_MACHINE_WORKER 1u
#define GPUPV_PROCESS_VIRTUAL_MACHINE 2u

/* The driver fills it in with its arguments; the caller's bytes after it come back unchanged. */
struct gpupv_escape_echo {
    uint32_t command;
    uint32_t flags;        /* D3DDDI_ESCAPEFLAGS as the driver got them */
    uint64_t kmd_process;  /* hKmdProcessHandle, 0 before the process has a device */
    uint64_t kmd_device;   /* 0 without hDevice */
    uint32_t has_context;  /* 1 with hContext */
    uint32_t process_kind; /* GPUPV_PROCESS_..; 0 without a process too */
};

/* Signals a CPU event of the calling process; STATUS_INVALID_PARAMETER for another process's. */
struct gpupv_escape_signal_event {
    uint32_t command;
    uint32_t count; /* how often, at most GPUPV_ESCAPE_SIGNALS_MAX */
    uint64_t kmd_cpu_event;
};

/* The escape returns this NTSTATUS. */
struct gpupv_escape_fail {
    uint32_t command;
    int32_t status;
};

/* An object of the calling process goes bad: its CPU events that were registered with Usage[0] = usage are signaled. */
struct gpupv_escape_object_bad {
    uint32_t command;
    uint32_t usage; /* in: Usage[0]; out: how many events were signaled */
};

/* The driver signals this event of the calling process in guest-event mode, by the number. The host sends the process
 * that number, which is no event of the library: a descriptor's number sets nothing and ends no wait. */
struct gpupv_escape_guest_event {
    uint32_t command;
    uint32_t reserved; /* 0 */
    uint64_t event;    /* not 0 */
};

/* Creates a resource for commands. It belongs to hDevice, and is destroyed with it. Its number is the process's on
 * this adapter, and is not used again. STATUS_INVALID_PARAMETER without a device or with an invalid description (a
 * note of the host gives the reason), STATUS_NO_MEMORY if the process has 16384. */
struct gpupv_escape_create_resource {
    uint32_t command;
    uint32_t number;   /* out; not 0 */
    uint8_t desc[96];  /* struct gpupv_resource_desc */
};

/* STATUS_INVALID_PARAMETER if it is no resource of hDevice. Later commands that name it fault. */
struct gpupv_escape_destroy_resource {
    uint32_t command;
    uint32_t number;
};

#define GPUPV_DEBUG_OFF 0u
#define GPUPV_DEBUG_ERRORS 1u /* hazards and errors */
#define GPUPV_DEBUG_ALL 2u    /* warnings too */

/* Sets the debug layer of the calling process on this adapter, which checks command lists when they begin to run. Needs
 * hDevice. STATUS_INVALID_PARAMETER for another level. */
struct gpupv_escape_set_debug {
    uint32_t command;
    uint32_t level; /* GPUPV_DEBUG_.. */
};

/* Reads the debug layer's unread messages, the oldest first: as many records as fit after this header; they are
 * removed. 1024 are kept, further ones are only counted. STATUS_INVALID_PARAMETER if the layer is off,
 * STATUS_BUFFER_TOO_SMALL if the first one does not fit. */
struct gpupv_escape_read_messages {
    uint32_t command;
    uint32_t count; /* out */
    uint64_t lost;  /* out: messages lost since the layer was turned on */
};

#define GPUPV_MESSAGE_WARNING 1u
#define GPUPV_MESSAGE_HAZARD 2u
#define GPUPV_MESSAGE_ERROR 3u
#define GPUPV_MESSAGE_LIST_REMOVED 4u /* an error for which a runtime removes the list */

/* One record; the text follows, UTF-8, zero-padded to 8 bytes. */
struct gpupv_message {
    uint32_t bytes;      /* of the record with its text */
    uint32_t rule;       /* n of R-n, docs/COMMANDS.md; 0: no rule of barriers */
    uint32_t message_id; /* D3D12_MESSAGE_ID, or 0 */
    uint32_t severity;   /* GPUPV_MESSAGE_.. */
    uint32_t list;       /* of the submission, from 0 */
    uint32_t packet;     /* of the list, from 0 */
    uint32_t barrier;    /* of the packet, from 0; UINT32_MAX: none */
    uint32_t resource;   /* or 0 */
    uint32_t text_bytes;
    uint32_t reserved;
};

/* D3D12_FENCE_FLAGS; no values of the two preview flags are published, so those here are gpupv's own. */
#define GPUPV_FENCE_SHARED 0x1u
#define GPUPV_FENCE_SHARED_CROSS_ADAPTER 0x2u
#define GPUPV_FENCE_NON_MONITORED 0x4u
#define GPUPV_FENCE_ALLOW_COMMAND_LIST_BARRIERS 0x100u
#define GPUPV_FENCE_ALLOW_QUEUE_AND_CPU_SYNC 0x200u

/* Describes a native fence of the process to the debug layer: its flags, which only the runtime knows, and its name.
 * Lists, queues and the CPU may use a fence without a description. STATUS_INVALID_PARAMETER if no native fence is
 * mapped there, for flags that exclude each other (rules ), and for unknown ones. Needs
 * hDevice. */
struct gpupv_escape_describe_fence {
    uint32_t command;
    uint32_t flags;       /* GPUPV_FENCE_.. */
    uint64_t gpu_address; /* of its current value */
    char name[32];        /* UTF-8, zero-padded */
};

#endif
