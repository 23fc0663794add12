//! Scheduling priorities, and marking a device as in error.

use d3dkmt::{Handle, Reply};

use super::Done;
use crate::abi::{NtHandle, sdk};

/// `GetCurrentProcess()`.
const CURRENT_PROCESS: NtHandle = usize::MAX as NtHandle;

pub fn set_context(context: Handle, priority: i32, in_process: bool) -> Done {
    // SAFETY: see the module above.
    Done::status(unsafe {
        if in_process {
            let set =
                sdk::D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: context.0, Priority: priority };
            sdk::D3DKMTSetContextInProcessSchedulingPriority(&set)
        } else {
            let set = sdk::D3DKMT_SETCONTEXTSCHEDULINGPRIORITY { hContext: context.0, Priority: priority };
            sdk::D3DKMTSetContextSchedulingPriority(&set)
        }
    })
}

pub fn of_context(context: Handle, in_process: bool) -> Done {
    let mut get = sdk::D3DKMT_GETCONTEXTSCHEDULINGPRIORITY { hContext: context.0, Priority: 0 };
    let mut within = sdk::D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY { hContext: context.0, Priority: 0 };
    // SAFETY: see the module above.
    let status = unsafe {
        if in_process {
            sdk::D3DKMTGetContextInProcessSchedulingPriority(&mut within)
        } else {
            sdk::D3DKMTGetContextSchedulingPriority(&mut get)
        }
    };
    Done::reply(status, || Reply::Priority(if in_process { within.Priority } else { get.Priority }))
}

pub fn set_process(class: u32) -> Done {
    // SAFETY: no pointer is followed.
    Done::status(unsafe { sdk::D3DKMTSetProcessSchedulingPriorityClass(CURRENT_PROCESS, class as i32) })
}

pub fn of_process() -> Done {
    let mut class = 0;
    // SAFETY: see the module above.
    let status = unsafe { sdk::D3DKMTGetProcessSchedulingPriorityClass(CURRENT_PROCESS, &mut class) };
    Done::reply(status, || Reply::Priority(class))
}

/// Marks a device as in error. C has names for the first two reasons; any other number is passed as an unknown one.
pub fn mark(device: Handle, reason: u32) -> Done {
    let reason = match reason {
        0 => sdk::D3DKMT_DEVICE_ERROR_REASON_GENERIC,
        1 => sdk::D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR,
        other => other as i32,
    };
    let mark = sdk::D3DKMT_MARKDEVICEASERROR { hDevice: device.0, Reason: reason };
    // SAFETY: see the module above.
    Done::status(unsafe { sdk::D3DKMTMarkDeviceAsError(&mark) })
}
