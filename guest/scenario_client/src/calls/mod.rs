//! Makes each call through its C entry point, with the struct filled as a C client fills it.
//!
//! `unsafe` in the modules below: they call C functions. Every pointer that is passed points to a local or to a `Vec`
//! that outlives the call, and has as many entries as its count says.

mod adapter;
mod allocations;
mod escape;
mod hw_queue;
mod mutex;
mod paging;
mod queue;
mod scheduling;
mod share;
mod sync;
mod sync_file;

use abi::PlainCall;
use d3dkmt::{Call, Handle, NtStatus, Reply, calls_by_topic};
use proto::scenario_client::{EventNumber, Outcome};

use crate::ScenarioClient;

/// The result of an order.
pub struct Done {
    pub status: NtStatus,
    pub outcome: Outcome,
}

impl Done {
    pub fn success(outcome: Outcome) -> Done {
        Done { status: NtStatus::SUCCESS, outcome }
    }

    /// The result of an order that is no call.
    pub fn nothing(status: NtStatus) -> Done {
        Done { status, outcome: Outcome::Nothing }
    }

    pub fn value(value: Result<u64, NtStatus>) -> Done {
        match value {
            Ok(value) => Done::success(Outcome::Value(value)),
            Err(status) => Done::nothing(status),
        }
    }

    /// A call that returns its status only.
    fn status(status: i32) -> Done {
        Done { status: NtStatus(status as u32), outcome: Outcome::Reply(Reply::None) }
    }

    /// A call that returns outputs if it succeeds.
    fn reply(status: i32, reply: impl FnOnce() -> Reply) -> Done {
        let status = NtStatus(status as u32);
        let reply = if status.is_success() { reply() } else { Reply::None };
        Done { status, outcome: Outcome::Reply(reply) }
    }

    fn no_c_form() -> Done {
        Done { status: NtStatus::NOT_SUPPORTED, outcome: Outcome::NoCForm }
    }
}

/// Makes a call whose struct has a member for each of its fields.
fn plain<T: PlainCall>(call: &Call, function: unsafe extern "C" fn(*mut T) -> i32) -> Done {
    let Some(mut arguments) = T::of(call) else { return Done::no_c_form() };
    // SAFETY: see the module above.
    let status = unsafe { function(&raw mut arguments) };
    Done::reply(status, || arguments.reply())
}

fn raw(handles: &[Handle]) -> Vec<u32> {
    handles.iter().map(|handle| handle.0).collect()
}

/// The array of one value for each object: NULL for none at all. `None` if the counts differ, because C has one count
/// for both arrays.
fn value_array(objects: &[Handle], values: &[u64]) -> Option<*const u64> {
    if values.is_empty() {
        return Some(std::ptr::null());
    }
    (values.len() == objects.len()).then_some(values.as_ptr())
}

/// The C functions of the plain calls, and one function over all calls.
macro_rules! calls {
    ($($(#[doc = $doc:literal])* $starts:ident fn $name:ident($mode:ident $struct:ident $(of $process:ident)?)
        = $call:ident $fields:tt $(-> $reply:ident $outputs:tt)?;)*) => {
        mod plain {
            use abi::types;

            unsafe extern "C" {
                $(pub fn $name(argument: *mut types::$struct) -> i32;)*
            }
        }

        calls_by_topic! {
            /// Makes a call as a C client does.
            pub fn perform(scenario_client: &ScenarioClient, call: &Call, event: Option<EventNumber>) -> Done,
                by (scenario_client, call, event) on call;

            of_adapters {
                EnumAdapters { capacity } => adapter::enumerate(*capacity),
                OpenAdapterFromLuid { luid } => adapter::open(*luid),
                // DXCore watches adapters itself.
                WatchAdapters { event: _ } => Done::no_c_form(),
                CloseAdapter { adapter } => adapter::close(*adapter),
                QueryAdapterInfo { adapter, kind, data } => adapter::query(*adapter, *kind, data),
                CreateDevice { adapter, flags } => adapter::create_device(*adapter, *flags),
                DestroyDevice { device } => adapter::destroy_device(scenario_client, *device),
                GetDeviceState { device, state_type } => adapter::device_state(*device, *state_type),
                MarkDeviceAsError { device, reason } => scheduling::mark(*device, *reason),
                Escape { adapter, device, context, kind, flags, data } => {
                    let owner = escape::Owner { adapter: *adapter, device: *device, context: *context };
                    escape::escape(&owner, *kind, *flags, data)
                },
            }

            of_objects {
                CreateSynchronizationObject { device, info, legacy } => match legacy {
                    true => sync::create_legacy(scenario_client, *device, info),
                    false => sync::create(scenario_client, *device, info, event),
                },
                DestroySynchronizationObject { object } => sync::destroy(scenario_client, *object),
                SignalFromCpu { device, objects, values, flags } => sync::signal(*device, objects, values, *flags),
                WaitFromCpu { device, objects, values, flags, event: _ } =>
                    sync::wait(scenario_client, *device, objects, values, *flags, event),
                // The library cancels waits itself.
                CancelWait { event: _ } => Done::no_c_form(),
                CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } =>
                    hw_queue::create_native_fence(
                        scenario_client, *device, *initial_value, *native_type, *flags, *engine_affinity),
            }

            of_sharing {
                ShareObjects { objects, desired_access, name, token } =>
                    share::share(scenario_client, objects, *desired_access, name.as_deref(), *token),
                OpenSyncObject { device, token, flags, engine_affinity, legacy } => match legacy {
                    true => share::open_first(scenario_client, *token),
                    false => share::open(scenario_client, *device, *token, *flags, *engine_affinity),
                },
                OpenSynchronizationObject { shared_handle } => share::open_global(scenario_client, *shared_handle),
                OpenNtHandleFromName { name, desired_access, token, sync_object } =>
                    share::open_name(scenario_client, name, *desired_access, *token, *sync_object),
                CreateSyncFile { device, fence, fence_value, token } =>
                    sync_file::create(scenario_client, *device, *fence, *fence_value, *token),
                WaitSyncFile { context, token } => sync_file::wait(scenario_client, *context, *token),
                OpenSyncFile { device, token } => sync_file::open(scenario_client, *device, *token),
                OpenNativeFence { device, token, flags, engine_affinity } =>
                    hw_queue::open_native_fence(scenario_client, *device, *token, *flags, *engine_affinity),
            }

            of_keyed_mutexes {
                CreateKeyedMutex { initial_value, private_data, flags } =>
                    mutex::create(*initial_value, private_data, *flags),
                OpenKeyedMutex { shared_handle, buffer } => mutex::open(*shared_handle, buffer),
                OpenKeyedMutexFromNtHandle { token, buffer } => mutex::open_nt_handle(scenario_client, *token, buffer),
                AcquireKeyedMutex { mutex, key, timeout, event: _ } => mutex::acquire(*mutex, *key, *timeout),
                // The library reads it itself after a completed acquire.
                ReadKeyedMutex { mutex: _ } => Done::no_c_form(),
                ReleaseKeyedMutex { mutex, key, fence_value, private_data } =>
                    mutex::release(*mutex, *key, *fence_value, private_data.as_deref()),
            }

            of_queues {
                CreateContextVirtual { device, node_ordinal, engine_affinity, flags, client_hint, private_data } =>
                    queue::create_context(&queue::NewContext {
                        device: *device,
                        node_ordinal: *node_ordinal,
                        engine_affinity: *engine_affinity,
                        flags: *flags,
                        client_hint: *client_hint,
                        private_data,
                    }),
                DestroyContext { context } => queue::destroy_context(*context),
                SignalFromGpu { contexts, signal, flags } => queue::signal(scenario_client, contexts, signal, *flags, event),
                WaitFromGpu { context, objects, values } => queue::wait(scenario_client, *context, objects, values),
                WaitFromGpuLegacy { context, objects, fence_value } =>
                    queue::wait_legacy(*context, objects, *fence_value),
                SubmitCommand { contexts, commands, length, flags, private_data } =>
                    queue::submit(contexts, *commands, *length, *flags, private_data),
                SetContextPriority { context, priority, in_process } =>
                    scheduling::set_context(*context, *priority, *in_process),
                ContextPriority { context, in_process } => scheduling::of_context(*context, *in_process),
                SetProcessPriorityClass { class } => scheduling::set_process(*class),
                ProcessPriorityClass {} => scheduling::of_process(),
            }

            of_hw_queues {
                CreateHwQueue { context, flags, private_data } =>
                    hw_queue::create(scenario_client, *context, *flags, private_data),
                DestroyHwQueue { queue } => hw_queue::destroy(*queue),
                SubmitCommandToHwQueue { queue, progress_fence_id, commands, length, private_data } =>
                    hw_queue::submit(*queue, *progress_fence_id, *commands, *length, private_data),
                SubmitSignalToHwQueue { queues, objects, values, flags } =>
                    hw_queue::signal(queues, objects, values, *flags),
                SubmitWaitToHwQueue { queue, objects, values } => hw_queue::wait(*queue, objects, values),
                // Doorbells have no documented C layout.
                CreateDoorbell { .. } => Done::no_c_form(),
                ConnectDoorbell { queue: _ } => Done::no_c_form(),
                DestroyDoorbell { queue: _ } => Done::no_c_form(),
                NotifyWorkSubmission { queue: _ } => Done::no_c_form(),
            }

            of_memory {
                CreateAllocation { create } => allocations::create(scenario_client, create),
                DestroyAllocation { device, resource, allocations, flags } =>
                    allocations::destroy(scenario_client, *device, *resource, allocations, *flags),
                QueryResourceInfo { device, shared_handle } => allocations::query(*device, *shared_handle),
                OpenResource { device, shared_handle, info } =>
                    allocations::open_global(scenario_client, *device, *shared_handle, info),
                QueryResourceInfoFromNtHandle { device, token } =>
                    allocations::query_nt_handle(scenario_client, *device, *token),
                OpenResourceFromNtHandle { device, token, info, mutex_buffer } =>
                    allocations::open(scenario_client, *device, *token, info, mutex_buffer),
                SharedResourceAdapter { shared_handle } => allocations::adapter_luid(*shared_handle),
                SharedResourceAdapterFromNtHandle { token } =>
                    allocations::adapter_luid_of_nt_handle(scenario_client, *token),
                SetAllocationPriority { device, resource, allocations, priorities } =>
                    allocations::set_priority(*device, *resource, allocations, priorities),
                AllocationPriority { device, resource, allocations } =>
                    allocations::priority(*device, *resource, allocations),
                Lock { device, allocation, flags } =>
                    allocations::lock(scenario_client, *device, *allocation, *flags),
                Unlock { device, allocation } => allocations::unlock(*device, *allocation),
                MakeResident { .. } => allocations::make_resident(call),
                Evict { device, allocations, flags } => allocations::evict(*device, allocations, *flags),
                OfferAllocations { .. } => allocations::offer(call),
                ReclaimAllocations { device, allocations, resources } =>
                    allocations::reclaim_now(*device, allocations, *resources),
                ReclaimAllocations2 { paging_queue, allocations, resources } =>
                    allocations::reclaim(*paging_queue, allocations, *resources),
                QueryAllocationResidency { device, resource, allocations } =>
                    allocations::residency(*device, *resource, allocations),
            }

            of_paging {
                CreatePagingQueue { device, priority, physical_adapter } =>
                    paging::create_queue(scenario_client, *device, *priority, *physical_adapter),
                DestroyPagingQueue { queue } => paging::destroy_queue(*queue),
                UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } =>
                    paging::update(*device, *context, *fence, *fence_value, operations, *flags),
            }

            of_plain_calls {
                $($call { .. } => plain(call, plain::$name),)*
            }
        }
    };
}

abi::for_each_plain_call!(calls);
