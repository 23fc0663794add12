//! Hardware queues and native fences.
//!
//! The doorbell calls of user-mode submission have no documented C layout and are not exported.

use d3dkmt::{Call, Handle, HwQueueFlags, NtStatus, SignalFlags, SyncObjectFlags};

use super::memory::{Array, read, read_bytes, read_handles, read_values, write};
use super::thunk::{CStatus, enter};
use super::types::{
    CreateHwQueue, CreateNativeFence, NativeFenceMapping, OneHandle, OpenNativeFenceFromNtHandle,
    SubmitCommandToHwQueue, SubmitSignalToHwQueue, SubmitWaitToHwQueue,
};
use crate::client::CreatedFence;
use crate::nt_handle;
use crate::process::Starts;

/// `D3DKMTCreateHwQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateHwQueue(argument: *mut CreateHwQueue) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let private_data = read_bytes(arguments.private_data, arguments.private_data_size)?;
        let flags = HwQueueFlags::from_bits_retain(arguments.flags);
        let created = session.create_hw_queue(Handle(arguments.context), flags, private_data)?;
        arguments.queue = created.queue.0;
        arguments.progress_fence = created.fence.object.0;
        arguments.cpu_address = created.fence.location.map_or(0, |location| location.address());
        arguments.gpu_address = created.fence.gpu_address;
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTDestroyHwQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTDestroyHwQueue(argument: *const OneHandle) -> CStatus {
    enter(Starts::Nothing, |session| Ok(session.destroy_hw_queue(Handle(read(argument)?.handle))))
}

/// `D3DKMTSubmitCommandToHwQueue`. The command buffer travels in the private driver data.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSubmitCommandToHwQueue(argument: *const SubmitCommandToHwQueue) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        Ok(session.submit(&Call::SubmitCommandToHwQueue {
            queue: Handle(arguments.queue),
            progress_fence_id: arguments.progress_fence_id,
            commands: arguments.commands,
            length: arguments.length,
            private_data: read_bytes(arguments.private_data, arguments.private_data_size)?,
        }))
    })
}

/// `D3DKMTSubmitSignalSyncObjectsToHwQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSubmitSignalSyncObjectsToHwQueue(argument: *const SubmitSignalToHwQueue) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let count = arguments.object_count;
        Ok(session.submit(&Call::SubmitSignalToHwQueue {
            queues: read_handles(&mut Array::default(), arguments.queues, arguments.queue_count)?.into(),
            objects: read_handles(&mut Array::default(), arguments.objects, count)?.into(),
            values: read_values(&mut Array::default(), arguments.values, count)?.into(),
            flags: SignalFlags::from_bits_retain(arguments.flags),
        }))
    })
}

/// `D3DKMTSubmitWaitForSyncObjectsToHwQueue`.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTSubmitWaitForSyncObjectsToHwQueue(argument: *const SubmitWaitToHwQueue) -> CStatus {
    enter(Starts::Nothing, |session| {
        let arguments = read(argument)?;
        let count = arguments.object_count;
        Ok(session.submit(&Call::SubmitWaitToHwQueue {
            queue: Handle(arguments.queue),
            objects: read_handles(&mut Array::default(), arguments.objects, count)?.into(),
            values: read_values(&mut Array::default(), arguments.values, count)?.into(),
        }))
    })
}

/// Where the fence is seen. The monitored value is not mapped for user mode (FEN-097), and an INTRA_GPU fence has no
/// value for the CPU either.
fn mapping(fence: &CreatedFence) -> NativeFenceMapping {
    NativeFenceMapping {
        current_value_cpu_address: fence.location.as_ref().map_or(0, |location| location.address()),
        current_value_gpu_address: fence.gpu_address,
        monitored_value_gpu_address: 0,
        reserved: [0; 32],
    }
}

/// `D3DKMTCreateNativeFence`. Its own flag word has no bit that is known; those of the fence are in the description.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTCreateNativeFence(argument: *mut CreateNativeFence) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        if arguments.flags != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let info = arguments.info;
        let flags = SyncObjectFlags::from_bits_retain(info.flags);
        let device = Handle(arguments.device);
        let (initial_value, native_type) = (info.initial_value, info.native_type);
        let affinity = info.engine_affinity;
        let created = session.create_native_fence(device, initial_value, native_type, flags, affinity)?;
        arguments.object = created.object.0;
        arguments.info.mapping = mapping(&created);
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}

/// `D3DKMTOpenNativeFenceFromNtHandle`. The device is looked at before the NT handle, as with monitored fences.
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenNativeFenceFromNtHandle(argument: *mut OpenNativeFenceFromNtHandle) -> CStatus {
    enter(Starts::Nothing, |session| {
        let mut arguments = read(argument)?;
        let device = Handle(arguments.device);
        let token = nt_handle::token_for(session, device, arguments.nt_handle)?;
        let flags = SyncObjectFlags::from_bits_retain(arguments.flags);
        let opened = session.open_native_fence(device, token, flags, arguments.engine_affinity)?;
        arguments.object = opened.object.0;
        arguments.mapping = mapping(&opened);
        write(argument, arguments);
        Ok(NtStatus::SUCCESS)
    })
}
