//! The calls of WDDM 1: GPU signals and waits of the legacy types, and objects opened by their global handles.

use d3dkmt::limits::{BROADCAST_CONTEXTS_MAX, OBJECTS_WAITED_ON_MAX};
use d3dkmt::{Call, GpuSignal, Handle, Handles, NtStatus, SignalFlags};

use super::memory::{read, write};
use super::thunk::{CStatus, enter};
use super::types::{
    OpenSynchronizationObject, SignalSynchronizationObject, SignalSynchronizationObject2,
    WaitForSynchronizationObject, WaitForSynchronizationObject2,
};
use crate::client::{CallerEvent, Session};
use crate::process::Starts;

/// The first entries of an array in place; a count that it has no room for is INVALID_PARAMETER.
fn first(array: &[u32], count: u32) -> Result<Handles, NtStatus> {
    let entries = array.get(..count as usize).ok_or(NtStatus::INVALID_PARAMETER)?;
    Ok(entries.iter().copied().map(Handle).collect())
}

/// `D3DKMTOpenSynchronizationObject`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenSynchronizationObject(argument: *mut OpenSynchronizationObject) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        arguments.object = session.open_legacy_sync_object(Handle(arguments.shared_handle))?.0;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

fn wait(
    session: &Session,
    context: u32,
    objects: &[u32; OBJECTS_WAITED_ON_MAX],
    count: u32,
    fence_value: u64,
) -> Result<NtStatus, NtStatus> {
    let (context, objects) = (Handle(context), first(objects, count)?);
    Ok(session.submit(&Call::WaitFromGpuLegacy { context, objects, fence_value }))
}

/// `D3DKMTWaitForSynchronizationObject`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTWaitForSynchronizationObject(
    argument: *const WaitForSynchronizationObject,
) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        wait(session, arguments.context, &arguments.objects, arguments.object_count, 0)
    })
}

/// `D3DKMTWaitForSynchronizationObject2`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTWaitForSynchronizationObject2(
    argument: *const WaitForSynchronizationObject2,
) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let fence_value = arguments.fence_value;
        wait(session, arguments.context, &arguments.objects, arguments.object_count, fence_value)
    })
}

/// `D3DKMTSignalSynchronizationObject`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSignalSynchronizationObject(argument: *const SignalSynchronizationObject) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let contexts = Handles::from_slice(&[Handle(arguments.context)]);
        let objects = first(&arguments.objects, arguments.object_count)?;
        let flags = SignalFlags::from_bits_retain(arguments.flags);
        let signal = GpuSignal::Legacy { objects, fence_value: 0 };
        Ok(session.submit(&Call::SignalFromGpu { contexts, signal, flags }))
    })
}

/// `D3DKMTSignalSynchronizationObject2`. The context comes first, then those of the broadcast.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSignalSynchronizationObject2(
    argument: *const SignalSynchronizationObject2,
) -> CStatus {
    const { assert!(BROADCAST_CONTEXTS_MAX == 64) };
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let mut contexts = Handles::from_slice(&[Handle(arguments.context)]);
        contexts.extend(first(&arguments.contexts, arguments.context_count)?);
        let objects = first(&arguments.objects, arguments.object_count)?;
        let flags = SignalFlags::from_bits_retain(arguments.flags);
        if flags.contains(SignalFlags::ENQUEUE_CPU_EVENT) {
            if !objects.is_empty() {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let event = CallerEvent::from_handle(arguments.value).map_err(|_| NtStatus::INVALID_PARAMETER)?;
            return Ok(session.signal_event_from_gpu(contexts, flags, event));
        }
        let signal = GpuSignal::Legacy { objects, fence_value: arguments.value };
        Ok(session.submit(&Call::SignalFromGpu { contexts, signal, flags }))
    })
}
