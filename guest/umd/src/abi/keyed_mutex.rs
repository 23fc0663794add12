//! Keyed mutexes. What fails leaves the caller's struct as it was (W-191, W-195); opening never writes into the
//! buffer for runtime data (W-179); a time-out writes the fence value all the same (W-192).

use std::ffi::c_void;

use d3dkmt::{Call, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer};

use super::memory::{read, read_bytes, write, write_bytes};
use super::thunk::{CStatus, enter, failure};
use super::types::{
    AcquireKeyedMutex, AcquireKeyedMutex2, CreateKeyedMutex, CreateKeyedMutex2, OneHandle, OpenKeyedMutex,
    OpenKeyedMutex2, OpenKeyedMutexFromNtHandle, ReleaseKeyedMutex, ReleaseKeyedMutex2,
};
use crate::client::{Acquired, Answer, Session};
use crate::nt_handle;
use crate::process::Starts;

/// The local handle, and the global one: NULL for a mutex that is shared by NT handle (W-180).
fn made(session: &Session, call: &Call) -> Result<(Handle, Handle), NtStatus> {
    match session.call(call) {
        Answer { status, reply: Reply::KeyedMutex { mutex, shared_handle, .. } } if status.is_success() => {
            Ok((mutex, shared_handle))
        }
        answer => Err(failure(&answer)),
    }
}

/// The caller's buffer, with what is in it (FEN-082).
pub(super) fn buffer(data: *const c_void, size: u32) -> Result<RuntimeBuffer, NtStatus> {
    let present = !data.is_null();
    Ok(RuntimeBuffer { size, present, data: if present { read_bytes(data, size)? } else { Vec::new() } })
}

/// `D3DKMTCreateKeyedMutex`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateKeyedMutex(argument: *mut CreateKeyedMutex) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let (private_data, flags) = (Vec::new(), KeyedMutexFlags::empty());
        let call = Call::CreateKeyedMutex { initial_value: arguments.initial_value, private_data, flags };
        let (mutex, shared_handle) = made(session, &call)?;
        (arguments.mutex, arguments.shared_handle) = (mutex.0, shared_handle.0);
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTCreateKeyedMutex2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateKeyedMutex2(argument: *mut CreateKeyedMutex2) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let call = Call::CreateKeyedMutex {
            initial_value: arguments.initial_value,
            private_data: read_bytes(arguments.data, arguments.data_size)?,
            flags: KeyedMutexFlags::from_bits_retain(arguments.flags),
        };
        let (mutex, shared_handle) = made(session, &call)?;
        (arguments.mutex, arguments.shared_handle) = (mutex.0, shared_handle.0);
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTOpenKeyedMutex`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenKeyedMutex(argument: *mut OpenKeyedMutex) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let shared_handle = Handle(arguments.shared_handle);
        let call = Call::OpenKeyedMutex { shared_handle, buffer: RuntimeBuffer::default() };
        arguments.mutex = made(session, &call)?.0.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTOpenKeyedMutex2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenKeyedMutex2(argument: *mut OpenKeyedMutex2) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let shared_handle = Handle(arguments.shared_handle);
        let buffer = buffer(arguments.data, arguments.data_size)?;
        arguments.mutex = made(session, &Call::OpenKeyedMutex { shared_handle, buffer })?.0.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTOpenKeyedMutexFromNtHandle`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenKeyedMutexFromNtHandle(argument: *mut OpenKeyedMutexFromNtHandle) -> CStatus {
    enter(Starts::Session, |session| {
        let mut arguments = read(argument)?;
        let token = nt_handle::token_of(arguments.nt_handle).ok_or(NtStatus::INVALID_HANDLE)?;
        let buffer = buffer(arguments.data, arguments.data_size)?;
        arguments.mutex = made(session, &Call::OpenKeyedMutexFromNtHandle { token, buffer })?.0.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTDestroyKeyedMutex`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyKeyedMutex(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| {
        Ok(session.call(&Call::DestroyKeyedMutex { mutex: Handle(read(argument)?.handle) }).status)
    })
}

/// Sleeps in the caller's thread until the mutex is its own or its time is up.
fn acquire(session: &Session, mutex: u32, key: u64, timeout: *const i64) -> Result<Acquired, NtStatus> {
    let timeout = if timeout.is_null() { None } else { Some(read(timeout)?) };
    session.acquire_keyed_mutex(Handle(mutex), key, timeout)
}

/// `D3DKMTAcquireKeyedMutex`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTAcquireKeyedMutex(argument: *mut AcquireKeyedMutex) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let acquired = acquire(session, arguments.mutex, arguments.key, arguments.timeout)?;
        arguments.fence_value = acquired.fence_value;
        write(argument, arguments);
        Ok(acquired.status)
    })
}

/// `D3DKMTAcquireKeyedMutex2`. Runtime data is written as far as the buffer goes, if the mutex was acquired.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTAcquireKeyedMutex2(argument: *mut AcquireKeyedMutex2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        if arguments.data_size > 0 && arguments.data.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let acquired = acquire(session, arguments.mutex, arguments.key, arguments.timeout)?;
        arguments.fence_value = acquired.fence_value;
        if acquired.status == NtStatus::SUCCESS {
            write_bytes(arguments.data, arguments.data_size, &acquired.private_data);
        }
        write(argument, arguments);
        Ok(acquired.status)
    })
}

fn release(
    session: &Session,
    mutex: u32,
    key: u64,
    fence_value: u64,
    private_data: Option<Vec<u8>>,
) -> NtStatus {
    session.call(&Call::ReleaseKeyedMutex { mutex: Handle(mutex), key, fence_value, private_data }).status
}

/// `D3DKMTReleaseKeyedMutex`. Nothing is written (W-196).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTReleaseKeyedMutex(argument: *const ReleaseKeyedMutex) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        Ok(release(session, arguments.mutex, arguments.key, arguments.fence_value, None))
    })
}

/// `D3DKMTReleaseKeyedMutex2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTReleaseKeyedMutex2(argument: *const ReleaseKeyedMutex2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let data = Some(read_bytes(arguments.data, arguments.data_size)?);
        Ok(release(session, arguments.mutex, arguments.key, arguments.fence_value, data))
    })
}
