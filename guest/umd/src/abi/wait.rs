//! CPU signals and CPU waits.

use d3dkmt::{Handle, SignalFlags, WaitFromCpuFlags};

use super::memory::{Array, read_handles, read_values};
use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Session, block_on};
use abi::types::{
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, D3DKMT_WAITFORIDLE, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
};

/// `D3DKMTSignalSynchronizationObjectFromCpu`.
pub(super) fn signal_synchronization_object_from_cpu(
    session: &Session,
    arguments: &D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU,
) -> ThunkResult {
    let (mut objects, mut values) = (Array::default(), Array::default());
    let objects = read_handles(&mut objects, arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let values = read_values(&mut values, arguments.FenceValueArray, arguments.ObjectCount)?;
    let flags = SignalFlags::from_bits_retain(arguments.Flags);
    Ok(block_on(session.signal_from_cpu(Handle(arguments.hDevice), objects, values, flags)))
}

/// `D3DKMTWaitForSynchronizationObjectFromCpu`. With a NULL event, returns when the wait completes.
pub(super) fn wait_for_synchronization_object_from_cpu(
    session: &Session,
    arguments: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
) -> ThunkResult {
    let (mut objects, mut values) = (Array::default(), Array::default());
    let objects = read_handles(&mut objects, arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let values = read_values(&mut values, arguments.FenceValueArray, arguments.ObjectCount)?;
    let event = match arguments.hAsyncEvent {
        0 => None,
        handle => Some(CallerEvent::from_handle(handle)?),
    };
    let flags = WaitFromCpuFlags::from_bits_retain(arguments.Flags);
    Ok(block_on(session.wait_from_cpu(Handle(arguments.hDevice), objects, values, flags, event)))
}

/// `D3DKMTWaitForIdle`: blocks the caller's thread.
pub(super) fn wait_for_idle(session: &Session, arguments: &D3DKMT_WAITFORIDLE) -> ThunkResult {
    Ok(block_on(session.wait_for_idle(Handle(arguments.hDevice))))
}
