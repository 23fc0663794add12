//! Hardware queues and native fences.
//!
//! The doorbell calls of user-mode submission have no documented C layout and are not exported.

use d3dkmt::{Call, Handle, HwQueueFlags, NtStatus, SignalFlags, SyncObjectFlags};

use super::memory::{cpu_address, handle_list, read_bytes, value_list};
use super::queue::require_few_primaries;
use super::thunk::ThunkResult;
use crate::client::{CreatedFence, Session, block_on};
use crate::nt_handle;
use abi::types::{
    D3DDDI_NATIVEFENCEMAPPING, D3DKMT_CREATEHWQUEUE, D3DKMT_CREATENATIVEFENCE, D3DKMT_DESTROYHWQUEUE,
    D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
    D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
};

/// `D3DKMTCreateHwQueue`.
pub(super) fn create_hw_queue(session: &Session, arguments: &mut D3DKMT_CREATEHWQUEUE) -> ThunkResult {
    let private_data = read_bytes(arguments.pPrivateDriverData, arguments.PrivateDriverDataSize)?;
    let flags = HwQueueFlags::from_bits_retain(arguments.Flags);
    let created = block_on(session.create_hw_queue(Handle(arguments.hHwContext), flags, private_data))?;
    arguments.hHwQueue = created.queue.0;
    arguments.hHwQueueProgressFence = created.fence.object.0;
    arguments.HwQueueProgressFenceCPUVirtualAddress = cpu_address(&created.fence);
    arguments.HwQueueProgressFenceGPUVirtualAddress = created.fence.gpu_address;
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTDestroyHwQueue`.
pub(super) fn destroy_hw_queue(session: &Session, arguments: &D3DKMT_DESTROYHWQUEUE) -> ThunkResult {
    Ok(block_on(session.destroy_hw_queue(Handle(arguments.hHwQueue))))
}

/// `D3DKMTSubmitCommandToHwQueue`. The command buffer travels in the private driver data.
pub(super) fn submit_command_to_hw_queue(
    session: &Session,
    arguments: &D3DKMT_SUBMITCOMMANDTOHWQUEUE,
) -> ThunkResult {
    require_few_primaries(arguments.NumPrimaries)?;
    Ok(block_on(session.submit(&Call::SubmitCommandToHwQueue {
        queue: Handle(arguments.hHwQueue),
        progress_fence_id: arguments.HwQueueProgressFenceId,
        commands: arguments.CommandBuffer,
        length: arguments.CommandLength,
        private_data: read_bytes(arguments.pPrivateDriverData, arguments.PrivateDriverDataSize)?,
    })))
}

/// `D3DKMTSubmitSignalSyncObjectsToHwQueue`.
pub(super) fn submit_signal_sync_objects_to_hw_queue(
    session: &Session,
    arguments: &D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
) -> ThunkResult {
    let count = arguments.ObjectCount;
    Ok(block_on(session.submit(&Call::SubmitSignalToHwQueue {
        queues: handle_list(arguments.BroadcastHwQueueArray, arguments.BroadcastHwQueueCount)?,
        objects: handle_list(arguments.ObjectHandleArray, count)?,
        values: value_list(arguments.FenceValueArray, count)?,
        flags: SignalFlags::from_bits_retain(arguments.Flags),
    })))
}

/// `D3DKMTSubmitWaitForSyncObjectsToHwQueue`.
pub(super) fn submit_wait_for_sync_objects_to_hw_queue(
    session: &Session,
    arguments: &D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
) -> ThunkResult {
    let count = arguments.ObjectCount;
    Ok(block_on(session.submit(&Call::SubmitWaitToHwQueue {
        queue: Handle(arguments.hHwQueue),
        objects: handle_list(arguments.ObjectHandleArray, count)?,
        values: value_list(arguments.FenceValueArray, count)?,
    })))
}

/// The addresses of a native fence. The monitored value is not mapped for user mode (FEN-097), and an INTRA_GPU fence
/// has no CPU value either.
fn mapping(fence: &CreatedFence) -> D3DDDI_NATIVEFENCEMAPPING {
    D3DDDI_NATIVEFENCEMAPPING {
        CurrentValueCpuVa: cpu_address(fence),
        CurrentValueGpuVa: fence.gpu_address,
        MonitoredValueGpuVa: 0,
        Reserved: [0; 32],
    }
}

/// `D3DKMTCreateNativeFence`. Its own flag word has no known bits; the fence's flags are in the description.
pub(super) fn create_native_fence(
    session: &Session,
    arguments: &mut D3DKMT_CREATENATIVEFENCE,
) -> ThunkResult {
    if arguments.Flags != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let info = arguments.Info;
    let flags = SyncObjectFlags::from_bits_retain(info.Flags);
    let device = Handle(arguments.hDevice);
    let (initial_value, native_type) = (info.InitialFenceValue, info.Type);
    let affinity = info.EngineAffinity;
    let created = block_on(session.create_native_fence(device, initial_value, native_type, flags, affinity))?;
    arguments.hSyncObject = created.object.0;
    arguments.Info.NativeFenceMapping = mapping(&created);
    Ok(NtStatus::SUCCESS)
}

/// `D3DKMTOpenNativeFenceFromNtHandle`. Checks the device before the NT handle, as for monitored fences.
pub(super) fn open_native_fence_from_nt_handle(
    session: &Session,
    arguments: &mut D3DKMT_OPENNATIVEFENCEFROMNTHANDLE,
) -> ThunkResult {
    let device = Handle(arguments.hDevice);
    let token = nt_handle::token_for(session, device, arguments.hNtHandle)?;
    let flags = SyncObjectFlags::from_bits_retain(arguments.Flags);
    let opened = block_on(session.open_native_fence(device, token, flags, arguments.EngineAffinity))?;
    arguments.hSyncObject = opened.object.0;
    arguments.NativeFenceMapping = mapping(&opened);
    Ok(NtStatus::SUCCESS)
}
