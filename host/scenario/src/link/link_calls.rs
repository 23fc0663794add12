//! Makes calls of the link backend as the C ABI does: through the client core.

use std::rc::Rc;

use client::simulated::{SimulatedEvent, SimulatedLocation, SimulatedPort};
use client::{Acquired, CreatedFence, NewContext, Session};
use d3dkmt::{AcquireOutcome, Call, CreatedSyncObject, GpuSignal, NtStatus, Reply};

use crate::world::Answer;

fn only(status: NtStatus) -> Answer {
    Answer { status, reply: Reply::None }
}

fn answer_of<T>(result: Result<T, NtStatus>, reply: impl FnOnce(T) -> Reply) -> Answer {
    match result {
        Ok(value) => Answer { status: NtStatus::SUCCESS, reply: reply(value) },
        Err(status) => only(status),
    }
}

fn of_fence(fence: CreatedFence<SimulatedLocation>) -> CreatedSyncObject {
    let CreatedFence { object, shared_handle, location, gpu_address, paging_fence_value, no_wait } = fence;
    let slot = location.map(|location| location.slot());
    CreatedSyncObject { object, shared_handle, slot, gpu_address, paging_fence_value, no_wait }
}

fn created(fence: CreatedFence<SimulatedLocation>) -> Reply {
    Reply::SyncObject(of_fence(fence))
}

fn acquired(acquired: Acquired) -> Answer {
    let Acquired { status, fence_value, private_data } = acquired;
    let outcome = match status {
        NtStatus::TIMEOUT => AcquireOutcome::TimedOut { fence_value },
        NtStatus::ABANDONED => AcquireOutcome::Abandoned { fence_value },
        _ => AcquireOutcome::Acquired { fence_value },
    };
    Answer { status, reply: Reply::KeyedMutexAcquire { outcome, private_data } }
}

pub(super) async fn perform(
    session: Rc<Session<SimulatedPort>>,
    call: Call,
    event: Option<SimulatedEvent>,
) -> Answer {
    match call {
        Call::EnumAdapters { capacity } => answer_of(session.enum_adapters(capacity).await, Reply::Adapters),
        Call::OpenAdapterFromLuid { luid } => answer_of(session.open_adapter(luid).await, Reply::Adapter),
        Call::CloseAdapter { adapter } => only(session.close_adapter(adapter).await),
        Call::CreateDevice { adapter, flags } => {
            answer_of(session.create_device(adapter, flags).await, Reply::Device)
        }
        Call::DestroyDevice { device } => only(session.destroy_device(device).await),
        Call::GetDeviceState { device, state_type } => {
            let client::Answer { status, reply } = session.device_state(device, state_type).await;
            Answer { status, reply }
        }
        Call::SignalFromCpu { device, objects, values, flags } => {
            only(session.signal_from_cpu(device, &objects, &values, flags).await)
        }
        Call::WaitFromCpu { device, objects, values, flags, .. } => {
            only(session.wait_from_cpu(device, &objects, &values, flags, event).await)
        }
        Call::AcquireKeyedMutex { mutex, key, timeout, .. } => {
            session.acquire_keyed_mutex(mutex, key, timeout).await.map_or_else(only, acquired)
        }
        Call::SignalFromGpu { contexts, signal: GpuSignal::CpuEvent { .. }, flags } => match event {
            Some(event) => only(session.signal_event_from_gpu(contexts, flags, event).await),
            None => only(NtStatus::INVALID_PARAMETER),
        },
        Call::SignalFromGpu { .. }
        | Call::WaitFromGpu { .. }
        | Call::WaitFromGpuLegacy { .. }
        | Call::SubmitCommand { .. }
        | Call::SubmitCommandToHwQueue { .. }
        | Call::SubmitSignalToHwQueue { .. }
        | Call::SubmitWaitToHwQueue { .. } => only(session.submit(&call).await),
        other => with_objects(&session, other, event).await,
    }
}

/// Makes calls that create or destroy objects of the client core, and calls that it only forwards.
async fn with_objects(session: &Session<SimulatedPort>, call: Call, event: Option<SimulatedEvent>) -> Answer {
    match call {
        Call::CreateSynchronizationObject { device, info, legacy } => {
            answer_of(session.create_sync_object(device, info, legacy, event).await, created)
        }
        Call::DestroySynchronizationObject { object } => only(session.destroy_sync_object(object).await),
        Call::OpenSyncObject { device, token, flags, engine_affinity, legacy } => {
            let opened = session.open_sync_object(device, token, flags, engine_affinity, legacy).await;
            answer_of(opened, created)
        }
        Call::OpenSyncFile { device, token } => {
            let opened = session.open_sync_file(device, token).await;
            answer_of(opened, |(fence, fence_value)| Reply::OpenedSyncFile {
                object: of_fence(fence),
                fence_value,
            })
        }
        Call::OpenSynchronizationObject { shared_handle } => {
            let opened = session.open_legacy_sync_object(shared_handle).await;
            answer_of(opened, |object| {
                Reply::SyncObject(CreatedSyncObject { object, ..CreatedSyncObject::default() })
            })
        }
        Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => {
            let answer =
                session.create_native_fence(device, initial_value, native_type, flags, engine_affinity).await;
            answer_of(answer, created)
        }
        Call::OpenNativeFence { device, token, flags, engine_affinity } => {
            answer_of(session.open_native_fence(device, token, flags, engine_affinity).await, created)
        }
        Call::CreateContextVirtual {
            device,
            node_ordinal,
            engine_affinity,
            flags,
            client_hint,
            private_data,
        } => {
            let new = NewContext { device, node_ordinal, engine_affinity, flags, client_hint, private_data };
            answer_of(session.create_context(new).await, Reply::Context)
        }
        Call::DestroyContext { context } => only(session.destroy_context(context).await),
        Call::CreateHwQueue { context, flags, private_data } => {
            let answer = session.create_hw_queue(context, flags, private_data).await;
            answer_of(answer, |answer| Reply::HwQueue {
                queue: answer.queue,
                progress_fence: of_fence(answer.fence),
            })
        }
        Call::DestroyHwQueue { queue } => only(session.destroy_hw_queue(queue).await),
        Call::CreatePagingQueue { device, priority, physical_adapter } => {
            let answer = session.create_paging_queue(device, priority, physical_adapter).await;
            answer_of(answer, |answer| Reply::PagingQueue {
                queue: answer.queue,
                fence: of_fence(answer.fence),
            })
        }
        Call::DestroyPagingQueue { queue } => only(session.destroy_paging_queue(queue).await),
        // The client core keeps no state of these.
        other => {
            let client::Answer { status, reply } = session.call(&other).await;
            Answer { status, reply }
        }
    }
}
