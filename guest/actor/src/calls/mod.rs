//! Calls, each through its C entry point, with the struct filled as a C client fills it.
//!
//! `unsafe` in the modules below: C is spoken. Every pointer handed over points to a local or to a
//! `Vec` that outlives the call, and has as many entries as its count says.

mod adapter;
mod escape;
mod hw_queue;
mod memory;
mod mutex;
mod paging;
mod queue;
mod scheduling;
mod share;
mod sync;

use d3dkmt::{Call, Handle, NtStatus, Reply};
use proto::actor::{EventNumber, Outcome};

use crate::Actor;

/// What became of an order.
pub struct Done {
    pub status: NtStatus,
    pub outcome: Outcome,
}

impl Done {
    pub fn success(outcome: Outcome) -> Done {
        Done { status: NtStatus::SUCCESS, outcome }
    }

    /// Of an order that is no call.
    pub fn nothing(status: NtStatus) -> Done {
        Done { status, outcome: Outcome::Nothing }
    }

    pub fn value(value: Result<u64, NtStatus>) -> Done {
        match value {
            Ok(value) => Done::success(Outcome::Value(value)),
            Err(status) => Done::nothing(status),
        }
    }

    /// A call that gives back its status only.
    fn status(status: i32) -> Done {
        Done { status: NtStatus(status as u32), outcome: Outcome::Reply(Reply::None) }
    }

    /// A call that gives back more if it succeeds.
    fn reply(status: i32, reply: impl FnOnce() -> Reply) -> Done {
        let status = NtStatus(status as u32);
        let reply = if status.is_success() { reply() } else { Reply::None };
        Done { status, outcome: Outcome::Reply(reply) }
    }

    fn no_c_form() -> Done {
        Done { status: NtStatus::NOT_SUPPORTED, outcome: Outcome::NoCForm }
    }
}

fn raw(handles: &[Handle]) -> Vec<u32> {
    handles.iter().map(|handle| handle.0).collect()
}

/// The array of one value for each object: NULL for none at all. `None` if the counts differ, for C has
/// one count for both arrays.
fn value_array(objects: &[Handle], values: &[u64]) -> Option<*const u64> {
    if values.is_empty() {
        return Some(std::ptr::null());
    }
    (values.len() == objects.len()).then_some(values.as_ptr())
}

#[expect(
    clippy::too_many_lines,
    reason = "an arm for each call, and none for the rest: a new call is thought about"
)]
pub fn perform(actor: &Actor, call: &Call, event: Option<EventNumber>) -> Done {
    match call {
        Call::EnumAdapters { capacity } => adapter::enumerate(*capacity),
        Call::OpenAdapterFromLuid { luid } => adapter::open(*luid),
        Call::CloseAdapter { adapter } => adapter::close(*adapter),
        Call::QueryAdapterInfo { adapter, kind, data } => adapter::query(*adapter, *kind, data),
        Call::CreateDevice { adapter, flags } => adapter::create_device(*adapter, *flags),
        Call::DestroyDevice { device } => adapter::destroy_device(actor, *device),
        Call::GetDeviceState { device, state_type } => adapter::device_state(*device, *state_type),
        Call::CreateContextVirtual {
            device,
            node_ordinal,
            engine_affinity,
            flags,
            client_hint,
            private_data,
        } => queue::create_context(&queue::NewContext {
            device: *device,
            node_ordinal: *node_ordinal,
            engine_affinity: *engine_affinity,
            flags: *flags,
            client_hint: *client_hint,
            private_data,
        }),
        Call::DestroyContext { context } => queue::destroy_context(*context),
        Call::CreateSynchronizationObject { device, info, legacy: true } => {
            sync::create_legacy(actor, *device, info)
        }
        Call::CreateSynchronizationObject { device, info, legacy: false } => {
            sync::create(actor, *device, info, event)
        }
        Call::DestroySynchronizationObject { object } => sync::destroy(actor, *object),
        Call::SignalFromCpu { device, objects, values, flags } => {
            sync::signal(*device, objects, values, *flags)
        }
        Call::WaitFromCpu { device, objects, values, flags, event: _ } => {
            sync::wait(actor, *device, objects, values, *flags, event)
        }
        // The library cancels waits itself.
        Call::CancelWait { event: _ } => Done::no_c_form(),
        Call::SignalFromGpu { contexts, signal, flags } => {
            queue::signal(actor, contexts, signal, *flags, event)
        }
        Call::WaitFromGpu { context, objects, values } => queue::wait(actor, *context, objects, values),
        Call::SubmitCommand { contexts, commands, length, flags, private_data } => {
            queue::submit(contexts, *commands, *length, *flags, private_data)
        }
        Call::WaitFromGpuLegacy { context, objects, fence_value } => {
            queue::wait_legacy(*context, objects, *fence_value)
        }
        Call::ShareObjects { objects, desired_access, name, token } => {
            share::share(actor, objects, *desired_access, name.as_deref(), *token)
        }
        Call::OpenSyncObject { device, token, flags, engine_affinity, legacy: false } => {
            share::open(actor, *device, *token, *flags, *engine_affinity)
        }
        Call::OpenSyncObject { token, legacy: true, .. } => share::open_first(actor, *token),
        Call::OpenSynchronizationObject { shared_handle } => share::open_global(actor, *shared_handle),
        Call::OpenNtHandleFromName { name, desired_access, token } => {
            share::open_name(actor, name, *desired_access, *token)
        }
        Call::CreateKeyedMutex { initial_value, private_data, flags } => {
            mutex::create(*initial_value, private_data, *flags)
        }
        Call::OpenKeyedMutex { shared_handle, buffer } => mutex::open(*shared_handle, buffer),
        Call::OpenKeyedMutexFromNtHandle { token, buffer } => mutex::open_nt_handle(actor, *token, buffer),
        Call::DestroyKeyedMutex { mutex } => mutex::destroy(*mutex),
        Call::AcquireKeyedMutex { mutex, key, timeout, event: _ } => mutex::acquire(*mutex, *key, *timeout),
        Call::ReleaseKeyedMutex { mutex, key, fence_value, private_data } => {
            mutex::release(*mutex, *key, *fence_value, private_data.as_deref())
        }
        Call::CreatePagingQueue { device, priority, physical_adapter } => {
            paging::create_queue(actor, *device, *priority, *physical_adapter)
        }
        Call::DestroyPagingQueue { queue } => paging::destroy_queue(*queue),
        Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size } => {
            paging::reserve(*owner, *base, *minimum, *maximum, *size)
        }
        Call::MapGpuVirtualAddress { .. } => paging::map(call),
        Call::FreeGpuVirtualAddress { adapter, base, size } => paging::free(*adapter, *base, *size),
        Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } => {
            paging::update(*device, *context, *fence, *fence_value, operations, *flags)
        }
        Call::CreateAllocation(create) => memory::create(actor, create),
        Call::OpenResourceFromNtHandle { device, token, .. } => memory::open(actor, *device, *token),
        Call::DestroyAllocation { device, resource, allocations, flags } => {
            memory::destroy(*device, *resource, allocations, *flags)
        }
        Call::MakeResident { .. } => memory::make_resident(call),
        Call::Evict { device, allocations, flags } => memory::evict(*device, allocations, *flags),
        Call::Lock { device, allocation, flags } => memory::lock(*device, *allocation, *flags),
        Call::Unlock { device, allocation } => memory::unlock(*device, *allocation),
        Call::CreateHwQueue { context, flags, private_data } => {
            hw_queue::create(actor, *context, *flags, private_data)
        }
        Call::DestroyHwQueue { queue } => hw_queue::destroy(*queue),
        Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands, length, private_data } => {
            hw_queue::submit(*queue, *progress_fence_id, *commands, *length, private_data)
        }
        Call::SubmitSignalToHwQueue { queues, objects, values, flags } => {
            hw_queue::signal(queues, objects, values, *flags)
        }
        Call::SubmitWaitToHwQueue { queue, objects, values } => hw_queue::wait(*queue, objects, values),
        Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => {
            hw_queue::create_native_fence(
                actor,
                *device,
                *initial_value,
                *native_type,
                *flags,
                *engine_affinity,
            )
        }
        Call::OpenNativeFence { device, token, flags, engine_affinity } => {
            hw_queue::open_native_fence(actor, *device, *token, *flags, *engine_affinity)
        }
        Call::SetContextPriority { context, priority, in_process } => {
            scheduling::set_context(*context, *priority, *in_process)
        }
        Call::ContextPriority { context, in_process } => scheduling::of_context(*context, *in_process),
        Call::SetProcessPriorityClass { class } => scheduling::set_process(*class),
        Call::ProcessPriorityClass => scheduling::of_process(),
        Call::MarkDeviceAsError { device, reason } => scheduling::mark(*device, *reason),
        Call::Escape { adapter, device, context, kind, flags, data } => {
            let owner = escape::Owner { adapter: *adapter, device: *device, context: *context };
            escape::escape(&owner, *kind, *flags, data)
        }
        Call::IsFeatureEnabled { adapter, feature_id } => escape::feature(*adapter, *feature_id),
        // Doorbells have no documented C layout, and a keyed mutex is read by the library itself.
        Call::CreateDoorbell { .. }
        | Call::ConnectDoorbell { .. }
        | Call::DestroyDoorbell { .. }
        | Call::NotifyWorkSubmission { .. }
        | Call::ReadKeyedMutex { .. } => Done::no_c_form(),
        // No scenario has a word for these.
        Call::QueryResourceInfo { .. }
        | Call::QueryResourceInfoFromNtHandle { .. }
        | Call::OpenResource { .. }
        | Call::SetAllocationPriority { .. }
        | Call::AllocationPriority { .. }
        | Call::QueryVideoMemoryInfo { .. } => Done::no_c_form(),
    }
}
