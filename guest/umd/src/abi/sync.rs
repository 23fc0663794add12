//! Sync objects: create and destroy.

use d3dkmt::{Handle, NtStatus, SyncObjectFlags, SyncObjectInfo, SyncObjectType};

use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Event, EventError, Session, block_on};
use abi::types::{
    D3DDDI_SYNCHRONIZATIONOBJECTINFO2, D3DKMT_CREATESYNCHRONIZATIONOBJECT,
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT,
};

/// `D3DKMTCreateSynchronizationObject`: mutexes and semaphores only; the host is not asked about other types (W-029;
/// libdxg does the same).
pub(super) fn create_synchronization_object(
    session: &Session,
    arguments: &mut D3DKMT_CREATESYNCHRONIZATIONOBJECT,
) -> ThunkResult {
    let words = arguments.Info.words;
    let object_type = SyncObjectType(arguments.Info.Type);
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
    let created = block_on(session.create_sync_object(Handle(arguments.hDevice), info, true, None))?;
    arguments.hSyncObject = created.object.0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTCreateSynchronizationObject2`.
pub(super) fn create_synchronization_object2(
    session: &Session,
    arguments: &mut D3DKMT_CREATESYNCHRONIZATIONOBJECT2,
) -> ThunkResult {
    let (info, event) = info2(&arguments.Info)?;
    let created = block_on(session.create_sync_object(Handle(arguments.hDevice), info, false, event))?;
    arguments.hSyncObject = created.object.0;
    if let Some(location) = &created.location {
        write_addresses(&mut arguments.Info, location.address(), created.gpu_address);
    }
    if info.flags.contains(SyncObjectFlags::SHARED) {
        // The global handle, or 0 if the object is shared by NT handles (W-060, W-063).
        arguments.Info.SharedHandle = created.shared_handle.0;
    }
    Ok(NtStatus::SUCCESS)
}

/// Writes the addresses at which the value of a fence of this type can be read.
fn write_addresses(info: &mut D3DDDI_SYNCHRONIZATIONOBJECTINFO2, cpu_address: u64, gpu_address: u64) {
    if SyncObjectType(info.Type) == SyncObjectType::PERIODIC_MONITORED_FENCE {
        info.gpu_address = cpu_address;
        (info.engine_affinity, info.padding) = (gpu_address as u32, (gpu_address >> 32) as u32);
    } else {
        (info.cpu_address, info.gpu_address) = (cpu_address, gpu_address);
    }
}

/// Reads the members that the type defines, and duplicates the event of a CPU_NOTIFICATION. No event, or a number that
/// is no event, is sent to the host as NULL: the host answers INVALID_HANDLE, in its own order of checks (W-047).
fn info2(info: &D3DDDI_SYNCHRONIZATIONOBJECTINFO2) -> Result<(SyncObjectInfo, Option<Event>), NtStatus> {
    let object_type = SyncObjectType(info.Type);
    let flags = SyncObjectFlags::from_bits_retain(info.Flags);
    let base = SyncObjectInfo { object_type, flags, ..SyncObjectInfo::default() };
    let first = info.first;
    Ok(match object_type {
        SyncObjectType::MUTEX => (SyncObjectInfo { initial_state: first as u32 != 0, ..base }, None),
        SyncObjectType::SEMAPHORE => {
            let (max_count, initial_count) = (first as u32, (first >> 32) as u32);
            (SyncObjectInfo { max_count, initial_count, ..base }, None)
        }
        SyncObjectType::FENCE => (SyncObjectInfo { initial_value: first, ..base }, None),
        SyncObjectType::MONITORED_FENCE => {
            let engine_affinity = info.engine_affinity;
            (SyncObjectInfo { initial_value: first, engine_affinity, ..base }, None)
        }
        SyncObjectType::PERIODIC_MONITORED_FENCE => {
            let periodic = SyncObjectInfo {
                adapter: Handle(first as u32),
                vidpn_target: (first >> 32) as u32,
                time_100ns: info.cpu_address,
                engine_affinity: info.rest[0] as u32,
                ..base
            };
            (periodic, None)
        }
        SyncObjectType::CPU_NOTIFICATION => {
            match CallerEvent::from_handle(first).and_then(|event| event.keep()) {
                Ok(event) => (base, Some(event)),
                Err(EventError::NotAnEvent) => (base, None),
                Err(error @ EventError::NoDescriptor) => return Err(error.into()),
            }
        }
        SyncObjectType(_) => (base, None),
    })
}

/// `D3DKMTDestroySynchronizationObject`.
pub(super) fn destroy_synchronization_object(
    session: &Session,
    arguments: &D3DKMT_DESTROYSYNCHRONIZATIONOBJECT,
) -> ThunkResult {
    Ok(block_on(session.destroy_sync_object(Handle(arguments.hSyncObject))))
}
