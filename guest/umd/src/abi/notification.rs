//! What concerns a process rather than its objects: commitment, device removal, and callbacks that it registers.
//!
//! Callbacks are registered and never called. A budget is part of the adapter's configuration and does not change, and
//! the model asks no process to trim: it refuses MakeResident over the budget. Nor does it decommit offered memory,
//! because that is the process's own.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use d3dkmt::{Call, Handle, Luid, NtStatus};

use super::memory::write_array;
use super::thunk::{ThunkResult, own_process};
use crate::client::{Notification, Session, block_on};
use abi::CValue;
use abi::types::{
    D3DKMT_ENUMPROCESSES, D3DKMT_GETPROCESSDEVICELOSTSUPPORT, D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT,
    D3DKMT_HANDLE, D3DKMT_QUERYPROCESSOFFERINFO, D3DKMT_QUERYSTATISTICS_ADAPTER,
    D3DKMT_REGISTERBUDGETCHANGENOTIFICATION, D3DKMT_REGISTERTRIMNOTIFICATION, D3DKMT_TRIMPROCESSCOMMITMENT,
    D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION, D3DKMT_UNREGISTERTRIMNOTIFICATION, LUID, UINT,
};

/// Checks that a struct has the size that it says.
fn require_size<T>(size: UINT) -> Result<(), NtStatus> {
    if size as usize == size_of::<T>() { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// Checks that the process has an adapter with this LUID.
fn require_adapter(session: &Session, luid: LUID) -> Result<(), NtStatus> {
    let (luid, kind) = (Luid::from_c(luid), D3DKMT_QUERYSTATISTICS_ADAPTER);
    match block_on(session.call(&Call::QueryStatistics { luid, kind, query: 0 })).status {
        NtStatus::SUCCESS => Ok(()),
        status => Err(status),
    }
}

fn require_device(session: &Session, device: D3DKMT_HANDLE) -> Result<(), NtStatus> {
    if session.knows_device(Handle(device)) { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// `D3DKMTTrimProcessCommitment`: decommits nothing.
pub(super) fn trim_process_commitment(
    _: &Session,
    arguments: &mut D3DKMT_TRIMPROCESSCOMMITMENT,
) -> ThunkResult {
    require_size::<D3DKMT_TRIMPROCESSCOMMITMENT>(arguments.cbSize)?;
    own_process(arguments.hProcess)?;
    arguments.NumBytesDecommitted = 0;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTQueryProcessOfferInfo`: nothing can be decommitted, and nothing was.
pub(super) fn query_process_offer_info(
    _: &Session,
    arguments: &mut D3DKMT_QUERYPROCESSOFFERINFO,
) -> ThunkResult {
    require_size::<D3DKMT_QUERYPROCESSOFFERINFO>(arguments.cbSize)?;
    own_process(arguments.hProcess)?;
    (arguments.DecommitUniqueness, arguments.DecommittableBytes) = (0, 0);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTGetProcessDeviceRemovalSupport`: the process stays when an adapter is removed; its calls answer
/// DEVICE_REMOVED.
pub(super) fn get_process_device_removal_support(
    session: &Session,
    arguments: &mut D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT,
) -> ThunkResult {
    own_process(arguments.hProcess)?;
    require_adapter(session, arguments.AdapterLuid)?;
    arguments.Support = 1;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTGetProcessDeviceLostSupport`: the older name of the same question.
pub(super) fn get_process_device_lost_support(
    session: &Session,
    arguments: &mut D3DKMT_GETPROCESSDEVICELOSTSUPPORT,
) -> ThunkResult {
    let D3DKMT_GETPROCESSDEVICELOSTSUPPORT { hProcess, AdapterLuid, Support } = *arguments;
    let mut removal = D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT { hProcess, AdapterLuid, Support };
    let status = get_process_device_removal_support(session, &mut removal)?;
    arguments.Support = removal.Support;
    Ok(status)
}

/// `D3DKMTEnumProcesses`: of the processes that use an adapter, the calling one. A process learns nothing of others.
pub(super) fn enum_processes(session: &Session, arguments: &mut D3DKMT_ENUMPROCESSES) -> ThunkResult {
    require_adapter(session, arguments.AdapterLuid)?;
    let uses_adapter = session.has_adapter(Luid::from_c(arguments.AdapterLuid));
    let processes: &[UINT] = if uses_adapter { &[std::process::id()] } else { &[] };
    if !arguments.Buffer.is_null() {
        if arguments.BufferCount < processes.len() as u64 {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        write_array(arguments.Buffer, processes);
    }
    arguments.BufferCount = processes.len() as u64;
    Ok(NtStatus::SUCCESS)
}

fn register(
    session: &Session,
    device: D3DKMT_HANDLE,
    callback: *const c_void,
    kind: fn(usize) -> Notification,
) -> Result<*mut c_void, NtStatus> {
    if callback.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let handle = session.port().register_notification(Handle(device), kind(callback.addr()))?;
    Ok(without_provenance_mut(handle))
}

/// `D3DKMTRegisterTrimNotification`: for a device, or without one for an adapter.
pub(super) fn register_trim_notification(
    session: &Session,
    arguments: &mut D3DKMT_REGISTERTRIMNOTIFICATION,
) -> ThunkResult {
    match arguments.hDevice {
        0 => require_adapter(session, arguments.AdapterLuid)?,
        device => require_device(session, device)?,
    }
    arguments.Handle = register(session, arguments.hDevice, arguments.callback, Notification::Trim)?;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTUnregisterTrimNotification`: by its handle, or without one by its callback.
pub(super) fn unregister_trim_notification(
    session: &Session,
    arguments: &D3DKMT_UNREGISTERTRIMNOTIFICATION,
) -> ThunkResult {
    let (wanted, callback) = (arguments.Handle.addr(), arguments.callback.addr());
    session.port().unregister_notification(|handle, one| match one {
        Notification::Trim(address) if wanted == 0 => address == callback,
        Notification::Trim(_) => handle == wanted,
        Notification::BudgetChange(_) => false,
    })
}

/// `D3DKMTRegisterBudgetChangeNotification`.
pub(super) fn register_budget_change_notification(
    session: &Session,
    arguments: &mut D3DKMT_REGISTERBUDGETCHANGENOTIFICATION,
) -> ThunkResult {
    require_device(session, arguments.hDevice)?;
    arguments.Handle = register(session, arguments.hDevice, arguments.callback, Notification::BudgetChange)?;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTUnregisterBudgetChangeNotification`.
pub(super) fn unregister_budget_change_notification(
    session: &Session,
    arguments: &D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION,
) -> ThunkResult {
    session.port().unregister_notification(|handle, one| match one {
        Notification::BudgetChange(_) => handle == arguments.Handle.addr(),
        Notification::Trim(_) => false,
    })
}
