//! Keyed mutexes. A call that fails leaves the caller's struct unchanged (W-191, W-195). Opening never writes into the
//! buffer for runtime data (W-179). A timed-out acquire still writes the fence value (W-192).

use std::ffi::c_void;

use d3dkmt::{Call, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer};

use super::memory::{read, read_bytes, write_bytes};
use super::thunk::{ThunkResult, failure};
use crate::client::{Acquired, Answer, Session, block_on};
use crate::nt_handle;
use abi::types::{
    D3DKMT_ACQUIREKEYEDMUTEX, D3DKMT_ACQUIREKEYEDMUTEX2, D3DKMT_CREATEKEYEDMUTEX, D3DKMT_CREATEKEYEDMUTEX2,
    D3DKMT_OPENKEYEDMUTEX, D3DKMT_OPENKEYEDMUTEX2, D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE,
    D3DKMT_RELEASEKEYEDMUTEX, D3DKMT_RELEASEKEYEDMUTEX2,
};

/// Makes a create or open call. Returns the local handle and the global one: NULL for a mutex that is shared by NT
/// handle (W-180).
fn make_mutex(session: &Session, call: &Call) -> Result<(Handle, Handle), NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::KeyedMutex { mutex, shared_handle, .. } } if status.is_success() => {
            Ok((mutex, shared_handle))
        }
        answer => Err(failure(&answer)),
    }
}

/// The caller's buffer and its contents (FEN-082).
pub(super) fn buffer(data: *const c_void, size: u32) -> Result<RuntimeBuffer, NtStatus> {
    let present = !data.is_null();
    Ok(RuntimeBuffer { size, present, data: if present { read_bytes(data, size)? } else { Vec::new() } })
}

/// `D3DKMTCreateKeyedMutex`.
pub(super) fn create_keyed_mutex(session: &Session, arguments: &mut D3DKMT_CREATEKEYEDMUTEX) -> ThunkResult {
    let (private_data, flags) = (Vec::new(), KeyedMutexFlags::empty());
    let call = Call::CreateKeyedMutex { initial_value: arguments.InitialValue, private_data, flags };
    let (mutex, shared_handle) = make_mutex(session, &call)?;
    (arguments.hKeyedMutex, arguments.hSharedHandle) = (mutex.0, shared_handle.0);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTCreateKeyedMutex2`.
pub(super) fn create_keyed_mutex2(
    session: &Session,
    arguments: &mut D3DKMT_CREATEKEYEDMUTEX2,
) -> ThunkResult {
    let call = Call::CreateKeyedMutex {
        initial_value: arguments.InitialValue,
        private_data: read_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize)?,
        flags: KeyedMutexFlags::from_bits_retain(arguments.Flags),
    };
    let (mutex, shared_handle) = make_mutex(session, &call)?;
    (arguments.hKeyedMutex, arguments.hSharedHandle) = (mutex.0, shared_handle.0);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTOpenKeyedMutex`.
pub(super) fn open_keyed_mutex(session: &Session, arguments: &mut D3DKMT_OPENKEYEDMUTEX) -> ThunkResult {
    let shared_handle = Handle(arguments.hSharedHandle);
    let call = Call::OpenKeyedMutex { shared_handle, buffer: RuntimeBuffer::default() };
    arguments.hKeyedMutex = make_mutex(session, &call)?.0.0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTOpenKeyedMutex2`.
pub(super) fn open_keyed_mutex2(session: &Session, arguments: &mut D3DKMT_OPENKEYEDMUTEX2) -> ThunkResult {
    let shared_handle = Handle(arguments.hSharedHandle);
    let buffer = buffer(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize)?;
    arguments.hKeyedMutex = make_mutex(session, &Call::OpenKeyedMutex { shared_handle, buffer })?.0.0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTOpenKeyedMutexFromNtHandle`.
pub(super) fn open_keyed_mutex_from_nt_handle(
    session: &Session,
    arguments: &mut D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE,
) -> ThunkResult {
    let token = nt_handle::token_of(arguments.hNtHandle).ok_or(NtStatus::INVALID_HANDLE)?;
    let buffer = buffer(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize)?;
    arguments.hKeyedMutex = make_mutex(session, &Call::OpenKeyedMutexFromNtHandle { token, buffer })?.0.0;
    Ok(NtStatus::SUCCESS)
}

/// Blocks the calling thread until it owns the mutex or the timeout expires.
fn acquire(session: &Session, mutex: u32, key: u64, timeout: *const i64) -> Result<Acquired, NtStatus> {
    let timeout = if timeout.is_null() { None } else { Some(read(timeout)?) };
    block_on(session.acquire_keyed_mutex(Handle(mutex), key, timeout))
}

/// `D3DKMTAcquireKeyedMutex`.
pub(super) fn acquire_keyed_mutex(
    session: &Session,
    arguments: &mut D3DKMT_ACQUIREKEYEDMUTEX,
) -> ThunkResult {
    let acquired = acquire(session, arguments.hKeyedMutex, arguments.Key, arguments.pTimeout)?;
    arguments.FenceValue = acquired.fence_value;
    Ok(acquired.status)
}

/// `D3DKMTAcquireKeyedMutex2`. If the mutex was acquired, writes as much runtime data as the buffer can hold.
pub(super) fn acquire_keyed_mutex2(
    session: &Session,
    arguments: &mut D3DKMT_ACQUIREKEYEDMUTEX2,
) -> ThunkResult {
    if arguments.PrivateRuntimeDataSize > 0 && arguments.pPrivateRuntimeData.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let acquired = acquire(session, arguments.hKeyedMutex, arguments.Key, arguments.pTimeout)?;
    arguments.FenceValue = acquired.fence_value;
    if acquired.status == NtStatus::SUCCESS {
        write_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize, &acquired.private_data);
    }
    Ok(acquired.status)
}

fn release(
    session: &Session,
    mutex: u32,
    key: u64,
    fence_value: u64,
    private_data: Option<Vec<u8>>,
) -> NtStatus {
    block_on(session.call(&Call::ReleaseKeyedMutex { mutex: Handle(mutex), key, fence_value, private_data }))
        .status
}

/// `D3DKMTReleaseKeyedMutex`. Nothing is written (W-196).
pub(super) fn release_keyed_mutex(session: &Session, arguments: &D3DKMT_RELEASEKEYEDMUTEX) -> ThunkResult {
    Ok(release(session, arguments.hKeyedMutex, arguments.Key, arguments.FenceValue, None))
}

/// `D3DKMTReleaseKeyedMutex2`.
pub(super) fn release_keyed_mutex2(session: &Session, arguments: &D3DKMT_RELEASEKEYEDMUTEX2) -> ThunkResult {
    let data = Some(read_bytes(arguments.pPrivateRuntimeData, arguments.PrivateRuntimeDataSize)?);
    Ok(release(session, arguments.hKeyedMutex, arguments.Key, arguments.FenceValue, data))
}
