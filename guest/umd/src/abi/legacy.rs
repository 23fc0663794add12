//! The calls of WDDM 1: GPU signals and waits of the legacy types, and objects opened by their global handles.

use d3dkmt::limits::{BROADCAST_CONTEXTS_MAX, OBJECTS_WAITED_ON_MAX};
use d3dkmt::{Call, GpuSignal, Handle, Handles, NtStatus, SignalFlags};

use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Session, block_on};
use abi::types::{
    D3DDDI_MAX_BROADCAST_CONTEXT, D3DKMT_OPENSYNCHRONIZATIONOBJECT, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2,
};

/// The first `count` entries of an inline array; INVALID_PARAMETER if `count` exceeds its length.
fn first(array: &[u32], count: u32) -> Result<Handles, NtStatus> {
    let entries = array.get(..count as usize).ok_or(NtStatus::INVALID_PARAMETER)?;
    Ok(entries.iter().copied().map(Handle).collect())
}

/// `D3DKMTOpenSynchronizationObject`.
pub(super) fn open_synchronization_object(
    session: &Session,
    arguments: &mut D3DKMT_OPENSYNCHRONIZATIONOBJECT,
) -> ThunkResult {
    arguments.hSyncObject = block_on(session.open_legacy_sync_object(Handle(arguments.hSharedHandle)))?.0;
    Ok(NtStatus::SUCCESS)
}

fn wait(
    session: &Session,
    context: u32,
    objects: &[u32; OBJECTS_WAITED_ON_MAX],
    count: u32,
    fence_value: u64,
) -> ThunkResult {
    let (context, objects) = (Handle(context), first(objects, count)?);
    Ok(block_on(session.submit(&Call::WaitFromGpuLegacy { context, objects, fence_value })))
}

/// `D3DKMTWaitForSynchronizationObject`.
pub(super) fn wait_for_synchronization_object(
    session: &Session,
    arguments: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECT,
) -> ThunkResult {
    wait(session, arguments.hContext, &arguments.ObjectHandleArray, arguments.ObjectCount, 0)
}

/// `D3DKMTWaitForSynchronizationObject2`.
pub(super) fn wait_for_synchronization_object2(
    session: &Session,
    arguments: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2,
) -> ThunkResult {
    let fence_value = arguments.fence_value;
    wait(session, arguments.hContext, &arguments.ObjectHandleArray, arguments.ObjectCount, fence_value)
}

/// `D3DKMTSignalSynchronizationObject`.
pub(super) fn signal_synchronization_object(
    session: &Session,
    arguments: &D3DKMT_SIGNALSYNCHRONIZATIONOBJECT,
) -> ThunkResult {
    let contexts = Handles::from_slice(&[Handle(arguments.hContext)]);
    let objects = first(&arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let flags = SignalFlags::from_bits_retain(arguments.Flags);
    let signal = GpuSignal::Legacy { objects, fence_value: 0 };
    Ok(block_on(session.submit(&Call::SignalFromGpu { contexts, signal, flags })))
}

/// `D3DKMTSignalSynchronizationObject2`. The context is first, then the broadcast contexts.
pub(super) fn signal_synchronization_object2(
    session: &Session,
    arguments: &D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2,
) -> ThunkResult {
    const { assert!(BROADCAST_CONTEXTS_MAX == D3DDDI_MAX_BROADCAST_CONTEXT) };
    let mut contexts = Handles::from_slice(&[Handle(arguments.hContext)]);
    contexts.extend(first(&arguments.BroadcastContext, arguments.BroadcastContextCount)?);
    let objects = first(&arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let flags = SignalFlags::from_bits_retain(arguments.Flags);
    if flags.contains(SignalFlags::ENQUEUE_CPU_EVENT) {
        if !objects.is_empty() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let event = CallerEvent::from_handle(arguments.value)?;
        return Ok(block_on(session.signal_event_from_gpu(contexts, flags, event)));
    }
    let signal = GpuSignal::Legacy { objects, fence_value: arguments.value };
    Ok(block_on(session.submit(&Call::SignalFromGpu { contexts, signal, flags })))
}
