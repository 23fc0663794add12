//! Keyed mutexes.

use super::*;

c_abi! {
    section keyed_mutexes("keyed mutexes") {}

    struct D3DKMT_CREATEKEYEDMUTEX(16) {
        0 InitialValue: UINT64,
        8 hSharedHandle: D3DKMT_HANDLE,
        12 hKeyedMutex: D3DKMT_HANDLE,
    }

    flags D3DKMT_CREATEKEYEDMUTEX2_FLAGS(UINT) {
        NtSecuritySharing 1,
        Reserved 31,
    }

    struct D3DKMT_CREATEKEYEDMUTEX2(32) {
        0 InitialValue: UINT64,
        8 hSharedHandle: D3DKMT_HANDLE,
        12 hKeyedMutex: D3DKMT_HANDLE,
        16 pPrivateRuntimeData: *mut c_void,
        24 PrivateRuntimeDataSize: UINT,
        28 Flags: D3DKMT_CREATEKEYEDMUTEX2_FLAGS,
    }

    struct D3DKMT_OPENKEYEDMUTEX(8) {
        0 hSharedHandle: D3DKMT_HANDLE,
        4 hKeyedMutex: D3DKMT_HANDLE,
    }

    struct D3DKMT_OPENKEYEDMUTEX2(24) {
        0 hSharedHandle: D3DKMT_HANDLE,
        4 hKeyedMutex: D3DKMT_HANDLE,
        8 pPrivateRuntimeData: *mut c_void,
        16 PrivateRuntimeDataSize: UINT,
    }

    struct D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE(32) {
        0 hNtHandle: HANDLE,
        8 hKeyedMutex: D3DKMT_HANDLE,
        16 pPrivateRuntimeData: *mut c_void,
        24 PrivateRuntimeDataSize: UINT,
    }

    struct D3DKMT_DESTROYKEYEDMUTEX(4) {
        0 hKeyedMutex: D3DKMT_HANDLE,
    }

    /// Timeouts in units of 100 ns: negative = from now, positive = since 1601, 0 = poll; NULL = for ever.
    struct D3DKMT_ACQUIREKEYEDMUTEX(32) {
        0 hKeyedMutex: D3DKMT_HANDLE,
        8 Key: UINT64,
        16 pTimeout: *mut LARGE_INTEGER,
        24 FenceValue: UINT64,
    }

    struct D3DKMT_ACQUIREKEYEDMUTEX2(48) {
        0 hKeyedMutex: D3DKMT_HANDLE,
        8 Key: UINT64,
        16 pTimeout: *mut LARGE_INTEGER,
        24 FenceValue: UINT64,
        32 pPrivateRuntimeData: *mut c_void,
        40 PrivateRuntimeDataSize: UINT,
    }

    struct D3DKMT_RELEASEKEYEDMUTEX(24) {
        0 hKeyedMutex: D3DKMT_HANDLE,
        8 Key: UINT64,
        16 FenceValue: UINT64,
    }

    struct D3DKMT_RELEASEKEYEDMUTEX2(40) {
        0 hKeyedMutex: D3DKMT_HANDLE,
        8 Key: UINT64,
        16 FenceValue: UINT64,
        24 pPrivateRuntimeData: *mut c_void,
        32 PrivateRuntimeDataSize: UINT,
    }
}

plain_calls! {
    $ plain_calls_of_keyed_mutexes

    Nothing fn D3DKMTDestroyKeyedMutex(in D3DKMT_DESTROYKEYEDMUTEX) = DestroyKeyedMutex { mutex: hKeyedMutex };
}
