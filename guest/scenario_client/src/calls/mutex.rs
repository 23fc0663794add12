//! Keyed mutexes.

use d3dkmt::{AcquireOutcome, Handle, KeyedMutexFlags, NtStatus, Reply, RuntimeBuffer, ShareToken};

use super::Done;
use crate::ScenarioClient;
use crate::abi::sdk;

/// Room for the runtime data of an acquire.
const DATA_BYTES: usize = 4096;

fn make_mutex(status: i32, mutex: u32, shared_handle: u32) -> Done {
    let (mutex, shared_handle) = (Handle(mutex), Handle(shared_handle));
    Done::reply(status, || Reply::KeyedMutex { mutex, shared_handle, private_data: Vec::new() })
}

pub fn create(initial_value: u64, private_data: &[u8], flags: KeyedMutexFlags) -> Done {
    let mut data = private_data.to_vec();
    let mut create = sdk::D3DKMT_CREATEKEYEDMUTEX2 { InitialValue: initial_value, ..Default::default() };
    create.pPrivateRuntimeData = data.as_mut_ptr().cast();
    create.PrivateRuntimeDataSize = data.len() as u32;
    create.Flags.Anonymous.Value = flags.bits();
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTCreateKeyedMutex2(&mut create) };
    make_mutex(status, create.hKeyedMutex, create.hSharedHandle)
}

/// A buffer that has `size` bytes, or is NULL.
pub fn buffer_of(buffer: &RuntimeBuffer) -> Vec<u8> {
    let mut data = buffer.data.clone();
    data.resize(if buffer.present { buffer.size as usize } else { 0 }, 0);
    data
}

pub fn open(shared_handle: Handle, buffer: &RuntimeBuffer) -> Done {
    let mut data = buffer_of(buffer);
    let mut open = sdk::D3DKMT_OPENKEYEDMUTEX2 {
        hSharedHandle: shared_handle.0,
        PrivateRuntimeDataSize: buffer.size,
        ..Default::default()
    };
    if buffer.present {
        open.pPrivateRuntimeData = data.as_mut_ptr().cast();
    }
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenKeyedMutex2(&mut open) };
    make_mutex(status, open.hKeyedMutex, 0)
}

pub fn open_nt_handle(scenario_client: &ScenarioClient, token: ShareToken, buffer: &RuntimeBuffer) -> Done {
    let (nt_handle, _kept) = scenario_client.nt_handle(token);
    let mut data = buffer_of(buffer);
    let mut open = sdk::D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE {
        hNtHandle: nt_handle,
        PrivateRuntimeDataSize: buffer.size,
        ..Default::default()
    };
    if buffer.present {
        open.pPrivateRuntimeData = data.as_mut_ptr().cast();
    }
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTOpenKeyedMutexFromNtHandle(&mut open) };
    make_mutex(status, open.hKeyedMutex, 0)
}

/// Acquires a mutex. C does not return the length of the runtime data; scenarios store text, so trailing zeros are cut.
pub fn acquire(mutex: Handle, key: u64, timeout: Option<i64>) -> Done {
    let mut data = vec![0; DATA_BYTES];
    let mut timeout = timeout;
    let mut acquire = sdk::D3DKMT_ACQUIREKEYEDMUTEX2 {
        hKeyedMutex: mutex.0,
        Key: key,
        pTimeout: timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut),
        FenceValue: 0,
        pPrivateRuntimeData: data.as_mut_ptr().cast(),
        PrivateRuntimeDataSize: DATA_BYTES as u32,
    };
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTAcquireKeyedMutex2(&mut acquire) };
    let fence_value = acquire.FenceValue;
    let outcome = match NtStatus(status as u32) {
        NtStatus::TIMEOUT => AcquireOutcome::TimedOut { fence_value },
        NtStatus::ABANDONED => AcquireOutcome::Abandoned { fence_value },
        _ => AcquireOutcome::Acquired { fence_value },
    };
    let length = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    data.truncate(length);
    Done::reply(status, || Reply::KeyedMutexAcquire { outcome, private_data: data })
}

pub fn release(mutex: Handle, key: u64, fence_value: u64, private_data: Option<&[u8]>) -> Done {
    let Some(data) = private_data else {
        let mut release =
            sdk::D3DKMT_RELEASEKEYEDMUTEX { hKeyedMutex: mutex.0, Key: key, FenceValue: fence_value };
        // SAFETY: see the module above.
        return Done::status(unsafe { sdk::D3DKMTReleaseKeyedMutex(&mut release) });
    };
    let mut data = data.to_vec();
    let mut release = sdk::D3DKMT_RELEASEKEYEDMUTEX2 {
        hKeyedMutex: mutex.0,
        Key: key,
        FenceValue: fence_value,
        pPrivateRuntimeData: data.as_mut_ptr().cast(),
        PrivateRuntimeDataSize: data.len() as u32,
    };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTReleaseKeyedMutex2(&mut release) })
}
