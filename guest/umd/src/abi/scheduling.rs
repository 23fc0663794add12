//! Scheduling priorities, and marking a device as in error.

use d3dkmt::{Call, Handle, NtStatus, Reply};

use super::memory::write;
use super::thunk::{CURRENT_PROCESS, ThunkResult, failure};
use crate::client::{Answer, Session, block_on};
use abi::types::{
    D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR, D3DKMT_DEVICE_ERROR_REASON_GENERIC,
    D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY, D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
    D3DKMT_MARKDEVICEASERROR, D3DKMT_SCHEDULINGPRIORITYCLASS, D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY,
    D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, HANDLE,
};

fn set(session: &Session, arguments: &D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, in_process: bool) -> ThunkResult {
    let (context, priority) = (Handle(arguments.hContext), arguments.Priority);
    Ok(block_on(session.call(&Call::SetContextPriority { context, priority, in_process })).status)
}

fn priority(session: &Session, call: &Call) -> Result<i32, NtStatus> {
    match block_on(session.call(call)) {
        Answer { status, reply: Reply::Priority(priority) } if status.is_success() => Ok(priority),
        answer => Err(failure(&answer)),
    }
}

fn get(
    session: &Session,
    arguments: &mut D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
    in_process: bool,
) -> ThunkResult {
    let context = Handle(arguments.hContext);
    arguments.Priority = priority(session, &Call::ContextPriority { context, in_process })?;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTSetContextSchedulingPriority`.
pub(super) fn set_context_scheduling_priority(
    session: &Session,
    arguments: &D3DKMT_SETCONTEXTSCHEDULINGPRIORITY,
) -> ThunkResult {
    set(session, arguments, false)
}

/// `D3DKMTSetContextInProcessSchedulingPriority`.
pub(super) fn set_context_in_process_scheduling_priority(
    session: &Session,
    arguments: &D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY,
) -> ThunkResult {
    set(session, arguments, true)
}

/// `D3DKMTGetContextSchedulingPriority`.
pub(super) fn get_context_scheduling_priority(
    session: &Session,
    arguments: &mut D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
) -> ThunkResult {
    get(session, arguments, false)
}

/// `D3DKMTGetContextInProcessSchedulingPriority`.
pub(super) fn get_context_in_process_scheduling_priority(
    session: &Session,
    arguments: &mut D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY,
) -> ThunkResult {
    get(session, arguments, true)
}

/// `D3DKMTSetProcessSchedulingPriorityClass`, for the calling process: no other can be named.
pub(super) fn set_process_scheduling_priority_class(
    session: &Session,
    process: HANDLE,
    class: D3DKMT_SCHEDULINGPRIORITYCLASS,
) -> ThunkResult {
    if process != CURRENT_PROCESS {
        return Err(NtStatus::INVALID_HANDLE);
    }
    Ok(block_on(session.call(&Call::SetProcessPriorityClass { class })).status)
}

/// `D3DKMTGetProcessSchedulingPriorityClass`, of the calling process.
pub(super) fn get_process_scheduling_priority_class(
    session: &Session,
    process: HANDLE,
    class: *mut D3DKMT_SCHEDULINGPRIORITYCLASS,
) -> ThunkResult {
    if class.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if process != CURRENT_PROCESS {
        return Err(NtStatus::INVALID_HANDLE);
    }
    write(class, priority(session, &Call::ProcessPriorityClass)? as u32);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTMarkDeviceAsError`. A reason without a C name is sent as one that the host does not know.
pub(super) fn mark_device_as_error(session: &Session, arguments: &D3DKMT_MARKDEVICEASERROR) -> ThunkResult {
    let reason = match arguments.Reason {
        D3DKMT_DEVICE_ERROR_REASON_GENERIC => 0,
        D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR => 1,
        _ => u32::MAX,
    };
    Ok(block_on(session.call(&Call::MarkDeviceAsError { device: Handle(arguments.hDevice), reason })).status)
}
