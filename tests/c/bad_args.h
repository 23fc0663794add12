/* The method of bad_args.c: each call has good arguments. The test spoils one field, makes the call, and repeats it with
 * good arguments to show that nothing else was wrong. */
#ifndef BAD_ARGS_H
#define BAD_ARGS_H

#include "check.h"

#define POISON 0x1eadbeefu

/* Kinds of handles, as bits. */
enum {
    ADAPTER = 0x1,
    DEVICE = 0x2,
    CONTEXT = 0x4,
    HW_CONTEXT = 0x8, /* a context with HwQueueSupported */
    HW_QUEUE = 0x10,
    FENCE = 0x20,
    SEMAPHORE = 0x40,
    KEYED_MUTEX = 0x80,
    PAGING_QUEUE = 0x100,
    GLOBAL = 0x200, /* of a semaphore */
    GLOBAL_MUTEX = 0x400,
    DESTROYED = 0x800,
    FOREIGN = 0x1000, /* of another live process */
    ALLOCATION = 0x2000,
    NO_HANDLE = 0x4000,
    KINDS = 15
};
#define ANY_CONTEXT (CONTEXT | HW_CONTEXT)
#define ANY_OBJECT (FENCE | SEMAPHORE)

/* One of each kind, in the order of the bits. */
static handle_t handles[KINDS];

static inline handle_t handle_of(unsigned kind)
{
    return handles[__builtin_ctz(kind)];
}

/* The arguments of a call, and what they point to. */
static struct block {
    _Alignas(16) unsigned char args[512];
    handle_t objects[2], contexts[2];
    uint64_t values[2];
    unsigned char data[64];
    D3DKMT_ADAPTERINFO infos[34];
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION operation;
    LARGE_INTEGER timeout;
} b;

enum what {
    NOTHING,
    HANDLE_FIELD, /* `with` are the kinds that are good here */
    BITS,         /* `with` are bits to set in a word */
    COUNT,        /* `with` is a number for a word */
    POINTER       /* NULL */
};

struct bad {
    enum what what;
    size_t at;
    unsigned with;
};

struct call {
    const char *name;
    NTSTATUS (*call)(void *);
    void (*good)(void);
    void (*undo)(void);
    NTSTATUS good_status;
    struct bad bads[8];
};

/* Calls with good arguments, and destroys the created objects. */
static inline void call_well(const struct call *call)
{
    NTSTATUS status = call->call(b.args);
    CHECK(status == call->good_status, "%s with good arguments answered %#010x", call->name, (unsigned)status);
    if (NT_SUCCESS(status))
        call->undo();
}

/* One bad word of 4 bytes, or a NULL pointer. */
static inline void try_bad(const struct call *call, size_t at, const void *bad, size_t bytes, const char *how)
{
    unsigned char good[sizeof(void *)];
    call->good();
    unsigned char *field = (unsigned char *)&b + at;
    memcpy(good, field, bytes);
    memcpy(field, bad, bytes);
    struct block before = b;
    NTSTATUS status = call->call(b.args);
    CHECK(status == STATUS_INVALID_PARAMETER, "%s, %s at %zu: answered %#010x", call->name, how, at,
          (unsigned)status);
    CHECK(memcmp(&before, &b, sizeof b) == 0, "%s, %s at %zu: wrote into the caller's struct", call->name, how, at);
    memcpy(field, good, bytes);
    call_well(call);
}

static inline int try_handles(const struct call *call, const struct bad *bad)
{
    int tried = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        char how[32];
        snprintf(how, sizeof how, "handle of kind %#x", 1u << kind);
        if (!(bad->with & 1u << kind)) {
            try_bad(call, bad->at, &handles[kind], sizeof *handles, how);
            tried++;
        }
    }
    return tried;
}

/* Tries all bad arguments of a call; returns their number. */
static inline int try_call(const struct call *call)
{
    EXPECT(call->call(NULL), STATUS_INVALID_PARAMETER);
    int tried = 1;
    for (const struct bad *bad = call->bads; bad->what != NOTHING; bad++) {
        const void *nothing = NULL;
        call->good();
        UINT word;
        memcpy(&word, (unsigned char *)&b + bad->at, sizeof word);
        word = bad->what == BITS ? word | bad->with : bad->with;
        call_well(call);
        if (bad->what == HANDLE_FIELD)
            tried += try_handles(call, bad);
        else if (bad->what == POINTER)
            try_bad(call, bad->at, &nothing, sizeof nothing, "NULL");
        else
            try_bad(call, bad->at, &word, sizeof word, "bad word");
        tried += bad->what != HANDLE_FIELD;
    }
    return tried;
}

/* A call, its good arguments in `a`, and the cleanup of its objects. */
#define CALL(name, type, good, undo)                                          \
    static NTSTATUS call_##name(void *args)                                   \
    {                                                                         \
        return D3DKMT##name(args);                                            \
    }                                                                         \
    static void good_##name(void)                                             \
    {                                                                         \
        type *a = (type *)b.args;                                             \
        memset(&b, 0, sizeof b);                                              \
        good;                                                                 \
    }                                                                         \
    static void undo_##name(void)                                             \
    {                                                                         \
        type *a = (type *)b.args;                                             \
        (void)a;                                                              \
        undo;                                                                 \
    }                                                                         \
    typedef type type_##name

/* Its line in the table. */
#define LINE(name, status, ...) {#name, call_##name, good_##name, undo_##name, status, {__VA_ARGS__}}
#define H(name, field, kinds) {HANDLE_FIELD, offsetof(type_##name, field), kinds}
#define IN(array, kinds) {HANDLE_FIELD, offsetof(struct block, array), kinds}
#define SET(name, field, bits) {BITS, offsetof(type_##name, field), bits}
#define N(name, field, number) {COUNT, offsetof(type_##name, field), number}
#define P(name, field) {POINTER, offsetof(type_##name, field), 0}

#endif
