//! CPU signals and CPU waits.

use d3dkmt::{Handle, NtStatus, SignalFlags, WaitFromCpuFlags};

use super::memory::{Array, read, read_handles, read_values};
use super::thunk::{CStatus, enter};
use super::types::{SignalFromCpu, WaitFromCpu};
use crate::client::CallerEvent;
use crate::process::Starts;

/// `D3DKMTSignalSynchronizationObjectFromCpu`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSignalSynchronizationObjectFromCpu(argument: *const SignalFromCpu) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let (mut objects, mut values) = (Array::default(), Array::default());
        let objects = read_handles(&mut objects, arguments.objects, arguments.object_count)?;
        let values = read_values(&mut values, arguments.values, arguments.object_count)?;
        let flags = SignalFlags::from_bits_retain(arguments.flags);
        Ok(session.signal_from_cpu(Handle(arguments.device), objects, values, flags))
    })
}

/// `D3DKMTWaitForSynchronizationObjectFromCpu`. Event NULL: returns when the wait is over.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTWaitForSynchronizationObjectFromCpu(argument: *const WaitFromCpu) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let (mut objects, mut values) = (Array::default(), Array::default());
        let objects = read_handles(&mut objects, arguments.objects, arguments.object_count)?;
        let values = read_values(&mut values, arguments.values, arguments.object_count)?;
        let event = match arguments.async_event {
            0 => None,
            handle => Some(CallerEvent::from_handle(handle).map_err(|_| NtStatus::INVALID_PARAMETER)?),
        };
        let flags = WaitFromCpuFlags::from_bits_retain(arguments.flags);
        Ok(session.wait_from_cpu(Handle(arguments.device), objects, values, flags, event))
    })
}
