//! Priorities, and devices that are marked.

use d3dkmt::{Call, Handle, NtStatus, Reply};

use super::memory::{read, write};
use super::thunk::{CStatus, enter, failure};
use super::types::{ContextPriority, MarkDeviceAsError};
use crate::client::{Answer, Session};
use crate::process::Starts;

/// The HANDLE that stands for the calling process, `GetCurrentProcess()`: the only process that can be named.
const CURRENT_PROCESS: u64 = u64::MAX;

/// `D3DKMT_DEVICE_ERROR_REASON_GENERIC` and `.._DRIVER_ERROR`.
const REASON_GENERIC: u32 = 0x8000_0000;
const REASON_DRIVER_ERROR: u32 = 0x8000_0006;

fn set(argument: *const ContextPriority, in_process: bool) -> CStatus {
    enter(Starts::Nothing, |session| {
        let ContextPriority { context, priority } = read(argument)?;
        let context = Handle(context);
        Ok(session.call(&Call::SetContextPriority { context, priority, in_process }).status)
    })
}

fn priority(session: &Session, call: &Call) -> Result<i32, NtStatus> {
    match session.call(call) {
        Answer { status, reply: Reply::Priority(priority) } if status.is_success() => Ok(priority),
        answer => Err(failure(&answer)),
    }
}

fn tell(argument: *mut ContextPriority, in_process: bool) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let context = Handle(arguments.context);
        arguments.priority = priority(session, &Call::ContextPriority { context, in_process })?;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTSetContextSchedulingPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSetContextSchedulingPriority(argument: *const ContextPriority) -> CStatus {
    set(argument, false)
}

/// `D3DKMTSetContextInProcessSchedulingPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSetContextInProcessSchedulingPriority(argument: *const ContextPriority) -> CStatus {
    set(argument, true)
}

/// `D3DKMTGetContextSchedulingPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTGetContextSchedulingPriority(argument: *mut ContextPriority) -> CStatus {
    tell(argument, false)
}

/// `D3DKMTGetContextInProcessSchedulingPriority`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTGetContextInProcessSchedulingPriority(argument: *mut ContextPriority) -> CStatus {
    tell(argument, true)
}

/// `D3DKMTSetProcessSchedulingPriorityClass`, for the calling process.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSetProcessSchedulingPriorityClass(process: u64, class: u32) -> CStatus {
    enter(Starts::Session, |session| {
        if process != CURRENT_PROCESS {
            return Err(NtStatus::INVALID_HANDLE);
        }
        Ok(session.call(&Call::SetProcessPriorityClass { class }).status)
    })
}

/// `D3DKMTGetProcessSchedulingPriorityClass`, of the calling process.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTGetProcessSchedulingPriorityClass(process: u64, class: *mut i32) -> CStatus {
    enter(Starts::Session, |session| {
        if class.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if process != CURRENT_PROCESS {
            return Err(NtStatus::INVALID_HANDLE);
        }
        write(class, priority(session, &Call::ProcessPriorityClass)?);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTMarkDeviceAsError`. A reason that C has no name for is none that the host has.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTMarkDeviceAsError(argument: *const MarkDeviceAsError) -> CStatus {
    enter(Starts::Nothing, |session| {
        let MarkDeviceAsError { device, reason } = read(argument)?;
        let reason = match reason {
            REASON_GENERIC => 0,
            REASON_DRIVER_ERROR => 1,
            _ => u32::MAX,
        };
        Ok(session.call(&Call::MarkDeviceAsError { device: Handle(device), reason }).status)
    })
}
