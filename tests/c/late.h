/* Calls of a library that the program loads itself, instead of one that it is linked with. Include before check.h. */
#ifndef LATE_H
#define LATE_H

#define _GNU_SOURCE
#include <d3dkmthk.h>
#include <dlfcn.h>

static void *library;

static void load(void)
{
    library = dlopen("libdxcore.so", RTLD_NOW);
}

#define LATE_CALL(name) ((__typeof__(&name))dlsym(library, #name))
#define D3DKMTEnumAdapters2 LATE_CALL(D3DKMTEnumAdapters2)
#define D3DKMTCloseAdapter LATE_CALL(D3DKMTCloseAdapter)
#define D3DKMTCreateDevice LATE_CALL(D3DKMTCreateDevice)
#define D3DKMTDestroyDevice LATE_CALL(D3DKMTDestroyDevice)
#define D3DKMTGetDeviceState LATE_CALL(D3DKMTGetDeviceState)
#define D3DKMTCreateSynchronizationObject2 LATE_CALL(D3DKMTCreateSynchronizationObject2)
#define D3DKMTSignalSynchronizationObjectFromCpu LATE_CALL(D3DKMTSignalSynchronizationObjectFromCpu)
#define D3DKMTWaitForSynchronizationObjectFromCpu LATE_CALL(D3DKMTWaitForSynchronizationObjectFromCpu)

#endif
