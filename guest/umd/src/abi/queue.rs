//! Packets for contexts: GPU signals, GPU waits, command buffers.

use d3dkmt::limits::BROADCAST_CONTEXTS_MAX;
use d3dkmt::{Call, GpuSignal, Handle, Handles, NtStatus, SignalFlags, Values};

use super::memory::{handle_list, probe_values, read_bytes, value_list};
use super::thunk::ThunkResult;
use crate::client::{CallerEvent, Session, ValueForm, block_on};
use abi::types::{
    D3DDDI_MAX_WRITTEN_PRIMARIES, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2, D3DKMT_SUBMITCOMMAND,
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
};

/// `D3DKMTSignalSynchronizationObjectFromGpu`.
pub(super) fn signal_synchronization_object_from_gpu(
    session: &Session,
    arguments: &D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU,
) -> ThunkResult {
    let objects = handle_list(arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let contexts = Handles::from_slice(&[Handle(arguments.hContext)]);
    let signal = signal_of_union(session, objects, arguments.values)?;
    Ok(block_on(session.submit(&Call::SignalFromGpu { contexts, signal, flags: SignalFlags::empty() })))
}

/// `D3DKMTSignalSynchronizationObjectFromGpu2`. With EnqueueCpuEvent the union is an event and there
/// are no objects (FEN-036).
pub(super) fn signal_synchronization_object_from_gpu2(
    session: &Session,
    arguments: &D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2,
) -> ThunkResult {
    let flags = SignalFlags::from_bits_retain(arguments.Flags);
    let contexts = handle_list(arguments.BroadcastContextArray, arguments.BroadcastContextCount)?;
    if !(1..=BROADCAST_CONTEXTS_MAX).contains(&contexts.len()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if flags.contains(SignalFlags::ENQUEUE_CPU_EVENT) {
        if arguments.ObjectCount != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let event = CallerEvent::from_handle(arguments.values)?;
        return Ok(block_on(session.signal_event_from_gpu(contexts, flags, event)));
    }
    let objects = handle_list(arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let signal = signal_of_union(session, objects, arguments.values)?;
    Ok(block_on(session.submit(&Call::SignalFromGpu { contexts, signal, flags })))
}

/// `D3DKMTWaitForSynchronizationObjectFromGpu`.
pub(super) fn wait_for_synchronization_object_from_gpu(
    session: &Session,
    arguments: &D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU,
) -> ThunkResult {
    let objects = handle_list(arguments.ObjectHandleArray, arguments.ObjectCount)?;
    let context = Handle(arguments.hContext);
    Ok(block_on(session.submit(&match union(session, &objects, arguments.values)? {
        Union::Array(values) => Call::WaitFromGpu { context, objects, values },
        Union::InPlace(fence_value) => Call::WaitFromGpuLegacy { context, objects, fence_value },
    })))
}

/// The contents of the value union beside the objects.
enum Union {
    /// One value for each object.
    Array(Values),
    /// The one value of the legacy types.
    InPlace(u64),
}

/// Reads the union: a pointer for monitored fences, the value itself for legacy objects; the first object decides. The
/// host refuses a handle that is not known here. Its union counts as a pointer if it is readable, because a bad pointer
/// must not crash the process.
fn union(session: &Session, objects: &[Handle], union: u64) -> Result<Union, NtStatus> {
    let count = objects.len() as u32;
    Ok(match session.value_form(objects) {
        ValueForm::Array => Union::Array(value_list(union as *const u64, count)?),
        ValueForm::Inline => Union::InPlace(union),
        ValueForm::Unknown => {
            probe_values(union, count).map_or(Union::InPlace(union), |values| Union::Array(values.into()))
        }
    })
}

fn signal_of_union(session: &Session, objects: Handles, value: u64) -> Result<GpuSignal, NtStatus> {
    Ok(match union(session, &objects, value)? {
        Union::Array(values) => GpuSignal::Monitored { objects, values },
        Union::InPlace(fence_value) => GpuSignal::Legacy { objects, fence_value },
    })
}

/// Handles of history buffers of one submission.
const HISTORY_BUFFERS_MAX: u32 = 1024;

/// Refuses more written primaries than a submission may have.
pub(super) fn require_few_primaries(count: u32) -> Result<(), NtStatus> {
    match count as usize <= D3DDDI_MAX_WRITTEN_PRIMARIES {
        true => Ok(()),
        false => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// `D3DKMTSubmitCommand`. The command buffer travels in the private driver data. Written primaries and history buffers
/// mean nothing here, because nothing is displayed.
pub(super) fn submit_command(session: &Session, arguments: &D3DKMT_SUBMITCOMMAND) -> ThunkResult {
    let count = arguments.BroadcastContextCount as usize;
    if count > BROADCAST_CONTEXTS_MAX || arguments.NumHistoryBuffers > HISTORY_BUFFERS_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    require_few_primaries(arguments.NumPrimaries)?;
    Ok(block_on(session.submit(&Call::SubmitCommand {
        contexts: arguments.BroadcastContext[..count].iter().copied().map(Handle).collect(),
        commands: arguments.Commands,
        length: arguments.CommandLength,
        flags: arguments.Flags,
        private_data: read_bytes(arguments.pPrivateDriverData, arguments.PrivateDriverDataSize)?,
    })))
}
