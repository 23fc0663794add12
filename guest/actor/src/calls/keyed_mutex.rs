//! Keyed mutexes.

use d3dkmt::{AcquireOutcome, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer, ShareToken};
use proto::actor::Outcome;

use super::Done;
use crate::Actor;
use crate::abi::{NO_HANDLE, NtHandle, sdk};
use std::os::fd::AsRawFd;

/// Room for the private runtime data that an acquire gives. C does not say how much it was: zeroes at the end are
/// taken for none.
const DATA_BYTES: usize = 256;

fn data_pointer(data: &mut [u8]) -> *mut core::ffi::c_void {
    if data.is_empty() { std::ptr::null_mut() } else { data.as_mut_ptr().cast() }
}

pub fn create(initial_value: u64, private_data: &[u8], flags: KeyedMutexFlags) -> Done {
    let mut data = private_data.to_vec();
    let mut create = sdk::D3DKMT_CREATEKEYEDMUTEX2 {
        InitialValue: initial_value,
        pPrivateRuntimeData: data_pointer(&mut data),
        PrivateRuntimeDataSize: data.len() as u32,
        ..Default::default()
    };
    create.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateKeyedMutex2(&mut create) };
    Done::reply(status, || Reply::KeyedMutex {
        mutex: Handle(create.hKeyedMutex),
        shared_handle: Handle(create.hSharedHandle),
        private_data: Vec::new(),
    })
}

/// The caller's buffer, of the size that it says.
fn buffer_of(buffer: &RuntimeBuffer) -> Vec<u8> {
    let mut bytes = buffer.data.clone();
    bytes.resize(if buffer.present { buffer.size as usize } else { 0 }, 0);
    bytes
}

fn opened(mutex: u32) -> Reply {
    Reply::KeyedMutex { mutex: Handle(mutex), shared_handle: Handle::NULL, private_data: Vec::new() }
}

pub fn open(shared_handle: Handle, buffer: &RuntimeBuffer) -> Done {
    let mut data = buffer_of(buffer);
    let mut open = sdk::D3DKMT_OPENKEYEDMUTEX2 {
        hSharedHandle: shared_handle.0,
        pPrivateRuntimeData: data_pointer(&mut data),
        PrivateRuntimeDataSize: buffer.size,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenKeyedMutex2(&mut open) };
    Done::reply(status, || opened(open.hKeyedMutex))
}

pub fn open_shared(actor: &Actor, token: ShareToken, buffer: &RuntimeBuffer) -> Done {
    let handle = actor.shares.find(token);
    let mut data = buffer_of(buffer);
    let mut open = sdk::D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE {
        hNtHandle: handle.as_ref().map_or(NO_HANDLE, |handle| handle.as_raw_fd() as usize as NtHandle),
        pPrivateRuntimeData: data_pointer(&mut data),
        PrivateRuntimeDataSize: buffer.size,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenKeyedMutexFromNtHandle(&mut open) };
    Done::reply(status, || opened(open.hKeyedMutex))
}

pub fn destroy(mutex: Handle) -> Done {
    let destroy = sdk::D3DKMT_DESTROYKEYEDMUTEX { hKeyedMutex: mutex.0 };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTDestroyKeyedMutex(&destroy) })
}

/// Returns when the mutex is the caller's, or its time is up.
pub fn acquire(mutex: Handle, key: u64, timeout: Option<i64>) -> Done {
    let (mut timeout, mut data) = (timeout, vec![0; DATA_BYTES]);
    let mut acquire = sdk::D3DKMT_ACQUIREKEYEDMUTEX2 {
        hKeyedMutex: mutex.0,
        Key: key,
        pTimeout: timeout.as_mut().map_or(std::ptr::null_mut(), |timeout| timeout),
        pPrivateRuntimeData: data_pointer(&mut data),
        PrivateRuntimeDataSize: data.len() as u32,
        ..Default::default()
    };
    // SAFETY: see the module above.
    let status = NtStatus(unsafe { sdk::D3DKMTAcquireKeyedMutex2(&mut acquire) } as u32);
    let fence_value = acquire.FenceValue;
    let outcome = match status {
        NtStatus::SUCCESS => AcquireOutcome::Acquired { fence_value },
        NtStatus::TIMEOUT => AcquireOutcome::TimedOut { fence_value },
        NtStatus::ABANDONED => AcquireOutcome::Abandoned { fence_value },
        _ => return Done { status, outcome: Outcome::Reply(Reply::None) },
    };
    let length = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    data.truncate(length);
    let reply = Reply::KeyedMutexAcquire { outcome, private_data: data };
    Done { status, outcome: Outcome::Reply(reply) }
}

pub fn release(mutex: Handle, key: u64, fence_value: u64, private_data: Option<&[u8]>) -> Done {
    let Some(private_data) = private_data else {
        let mut release =
            sdk::D3DKMT_RELEASEKEYEDMUTEX { hKeyedMutex: mutex.0, Key: key, FenceValue: fence_value };
        // SAFETY: see the module above.
        return Done::status(unsafe { sdk::D3DKMTReleaseKeyedMutex(&mut release) });
    };
    let mut data = private_data.to_vec();
    let mut release = sdk::D3DKMT_RELEASEKEYEDMUTEX2 {
        hKeyedMutex: mutex.0,
        Key: key,
        FenceValue: fence_value,
        pPrivateRuntimeData: data_pointer(&mut data),
        PrivateRuntimeDataSize: data.len() as u32,
    };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTReleaseKeyedMutex2(&mut release) })
}
