//! Sync objects: create and destroy.

use d3dkmt::{Handle, NtStatus, SyncObjectFlags, SyncObjectInfo, SyncObjectType};

use super::memory::{read, write};
use super::thunk::{CStatus, enter};
use super::types::{CreateSynchronizationObject, CreateSynchronizationObject2, OneHandle, SyncObjectInfo2};
use crate::client::{CallerEvent, Event};
use crate::process::Starts;

/// `D3DKMTCreateSynchronizationObject`: mutexes and semaphores only, the others not even asked
/// about (W-029; so does libdxg).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateSynchronizationObject(argument: *mut CreateSynchronizationObject) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let words = arguments.info.words;
        let object_type = SyncObjectType(arguments.info.object_type);
        let info = match object_type {
            SyncObjectType::MUTEX => {
                SyncObjectInfo { object_type, initial_state: words[0] != 0, ..SyncObjectInfo::default() }
            }
            SyncObjectType::SEMAPHORE => SyncObjectInfo {
                object_type,
                max_count: words[0],
                initial_count: words[1],
                ..SyncObjectInfo::default()
            },
            SyncObjectType(_) => return Err(NtStatus::INVALID_PARAMETER),
        };
        let created = session.create_sync_object(Handle(arguments.device), info, true, None)?;
        arguments.object = created.object.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTCreateSynchronizationObject2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateSynchronizationObject2(argument: *mut CreateSynchronizationObject2) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let (info, event) = info2(&arguments.info);
        let created = session.create_sync_object(Handle(arguments.device), info, false, event)?;
        arguments.object = created.object.0;
        if let Some(location) = &created.location {
            arguments.info.union.place(info.object_type, location.address(), created.gpu_address);
        }
        if info.flags.contains(SyncObjectFlags::SHARED) {
            // The global handle, or 0 when sharing goes by NT handles (W-060, W-063).
            arguments.info.shared_handle = created.shared_handle.0;
        }
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// The members that the type gives a meaning, and our own reference of a CPU_NOTIFICATION's event.
/// No event, or a number that is none, is told to the host as NULL: it answers INVALID_HANDLE, in
/// its own order of checks (W-047).
fn info2(info: &SyncObjectInfo2) -> (SyncObjectInfo, Option<Event>) {
    let object_type = SyncObjectType(info.object_type);
    let flags = SyncObjectFlags::from_bits_retain(info.flags);
    let base = SyncObjectInfo { object_type, flags, ..SyncObjectInfo::default() };
    let first = info.union.first;
    match object_type {
        SyncObjectType::MUTEX => (SyncObjectInfo { initial_state: first as u32 != 0, ..base }, None),
        SyncObjectType::SEMAPHORE => {
            let (max_count, initial_count) = (first as u32, (first >> 32) as u32);
            (SyncObjectInfo { max_count, initial_count, ..base }, None)
        }
        SyncObjectType::FENCE => (SyncObjectInfo { initial_value: first, ..base }, None),
        SyncObjectType::MONITORED_FENCE => {
            let engine_affinity = info.union.engine_affinity;
            (SyncObjectInfo { initial_value: first, engine_affinity, ..base }, None)
        }
        SyncObjectType::PERIODIC_MONITORED_FENCE => {
            let periodic = SyncObjectInfo {
                adapter: Handle(first as u32),
                vidpn_target: (first >> 32) as u32,
                time_100ns: info.union.cpu_address,
                engine_affinity: info.union.rest[0] as u32,
                ..base
            };
            (periodic, None)
        }
        SyncObjectType::CPU_NOTIFICATION => {
            (base, CallerEvent::from_handle(first).and_then(|event| event.keep()).ok())
        }
        SyncObjectType(_) => (base, None),
    }
}

/// `D3DKMTDestroySynchronizationObject`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroySynchronizationObject(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.destroy_sync_object(Handle(read(argument)?.handle))))
}
