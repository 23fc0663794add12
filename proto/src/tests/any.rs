//! Any call and any reply.

use std::fmt::Debug;

use d3dkmt::{
    AcquireOutcome, Adapter, Call, CreateContextFlags, CreatedSyncObject, EscapeFlags, EventId,
    FeatureResult, GpuSignal, GpuVaOperation, Handle, HwQueueFlags, KeyedMutexFlags, Luid, PageFaultState,
    Reply, ResourceInfo, RuntimeBuffer, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType, Values, VideoMemoryInfo, WaitFromCpuFlags, WaitOutcome,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn handles<L: FromIterator<Handle> + Debug>() -> impl Strategy<Value = L> {
    vec(handle(), 0..40).prop_map(L::from_iter)
}

fn values() -> impl Strategy<Value = Values> {
    vec(any::<u64>(), 0..40).prop_map(Values::from)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn sync_flags() -> impl Strategy<Value = SyncObjectFlags> {
    any::<u32>().prop_map(SyncObjectFlags::from_bits_retain)
}

pub(super) fn handle() -> impl Strategy<Value = Handle> {
    any::<u32>().prop_map(Handle)
}

fn luid() -> impl Strategy<Value = Luid> {
    any::<(u32, i32)>().prop_map(|(low, high)| Luid { low, high })
}

pub(super) fn event() -> impl Strategy<Value = EventId> {
    (1..=u64::MAX).prop_map(EventId)
}

pub(super) fn token() -> impl Strategy<Value = ShareToken> {
    any::<[u8; 16]>().prop_map(ShareToken)
}

fn info() -> impl Strategy<Value = SyncObjectInfo> {
    (any::<(u32, u32, bool, u32, u32, u64, u32, u32, u32, u64)>(), option::of(event())).prop_map(
        |(raw, event)| SyncObjectInfo {
            object_type: SyncObjectType(raw.0),
            flags: SyncObjectFlags::from_bits_retain(raw.1),
            initial_state: raw.2,
            max_count: raw.3,
            initial_count: raw.4,
            initial_value: raw.5,
            engine_affinity: raw.6,
            event,
            adapter: Handle(raw.7),
            vidpn_target: raw.8,
            time_100ns: raw.9,
        },
    )
}

fn first_calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        any::<u32>().prop_map(|capacity| Call::EnumAdapters { capacity }),
        luid().prop_map(|luid| Call::OpenAdapterFromLuid { luid }),
        handle().prop_map(|adapter| Call::CloseAdapter { adapter }),
        (handle(), any::<u32>(), bytes()).prop_map(|(adapter, kind, data)| Call::QueryAdapterInfo {
            adapter,
            kind,
            data
        }),
        (handle(), any::<u32>()).prop_map(|(adapter, flags)| Call::CreateDevice { adapter, flags }),
        handle().prop_map(|device| Call::DestroyDevice { device }),
        (handle(), any::<u32>()).prop_map(|(device, state_type)| Call::GetDeviceState { device, state_type }),
        (handle(), any::<[u32; 4]>(), bytes()).prop_map(|(device, raw, private_data)| {
            Call::CreateContextVirtual {
                device,
                node_ordinal: raw[0],
                engine_affinity: raw[1],
                flags: CreateContextFlags::from_bits_retain(raw[2]),
                client_hint: raw[3],
                private_data,
            }
        }),
        handle().prop_map(|context| Call::DestroyContext { context }),
        (handle(), info(), any::<bool>())
            .prop_map(|(device, info, legacy)| Call::CreateSynchronizationObject { device, info, legacy }),
        handle().prop_map(|object| Call::DestroySynchronizationObject { object }),
        (handle(), handles(), values(), any::<u32>()).prop_map(|(device, objects, values, flags)| {
            Call::SignalFromCpu { device, objects, values, flags: SignalFlags::from_bits_retain(flags) }
        }),
        (handle(), handles(), values(), any::<u32>(), event()).prop_map(
            |(device, objects, values, flags, event)| Call::WaitFromCpu {
                device,
                objects,
                values,
                flags: WaitFromCpuFlags::from_bits_retain(flags),
                event
            }
        ),
        event().prop_map(|event| Call::CancelWait { event }),
        (handles(), handles(), values(), any::<u32>()).prop_map(|(contexts, objects, values, flags)| {
            Call::SignalFromGpu {
                contexts,
                signal: GpuSignal::Monitored { objects, values },
                flags: SignalFlags::from_bits_retain(flags),
            }
        }),
        (handles(), event(), any::<u32>()).prop_map(|(contexts, event, flags)| Call::SignalFromGpu {
            contexts,
            signal: GpuSignal::CpuEvent { event },
            flags: SignalFlags::from_bits_retain(flags),
        }),
        (handles(), handles(), any::<(u64, u32)>()).prop_map(|(contexts, objects, (fence_value, flags))| {
            Call::SignalFromGpu {
                contexts,
                signal: GpuSignal::Legacy { objects, fence_value },
                flags: SignalFlags::from_bits_retain(flags),
            }
        }),
        (handle(), handles(), any::<u64>()).prop_map(|(context, objects, fence_value)| {
            Call::WaitFromGpuLegacy { context, objects, fence_value }
        }),
        (handle(), handles(), values()).prop_map(|(context, objects, values)| Call::WaitFromGpu {
            context,
            objects,
            values
        }),
        (handles(), any::<(u64, u32, u32)>(), bytes()).prop_map(|(contexts, raw, private_data)| {
            Call::SubmitCommand { contexts, commands: raw.0, length: raw.1, flags: raw.2, private_data }
        }),
    ]
}

fn sharing() -> impl Strategy<Value = Call> {
    prop_oneof![
        handle().prop_map(|shared_handle| Call::OpenSynchronizationObject { shared_handle }),
        (handles(), any::<u32>(), option::of(any::<String>()), token()).prop_map(
            |(objects, desired_access, name, token)| Call::ShareObjects {
                objects,
                desired_access,
                name,
                token
            }
        ),
        (handle(), token(), sync_flags(), any::<u32>(), any::<bool>()).prop_map(
            |(device, token, flags, engine_affinity, legacy)| {
                Call::OpenSyncObject { device, token, flags, engine_affinity, legacy }
            }
        ),
        (any::<String>(), any::<u32>(), token()).prop_map(|(name, desired_access, token)| {
            Call::OpenNtHandleFromName { name, desired_access, token }
        }),
    ]
}

fn keyed_mutexes() -> impl Strategy<Value = Call> {
    let buffer = || {
        (any::<(u32, bool)>(), bytes()).prop_map(|((size, present), data)| RuntimeBuffer {
            size,
            present,
            data,
        })
    };
    prop_oneof![
        (any::<u64>(), bytes(), any::<u32>()).prop_map(|(initial_value, private_data, flags)| {
            let flags = KeyedMutexFlags::from_bits_retain(flags);
            Call::CreateKeyedMutex { initial_value, private_data, flags }
        }),
        (handle(), buffer())
            .prop_map(|(shared_handle, buffer)| Call::OpenKeyedMutex { shared_handle, buffer }),
        (token(), buffer()).prop_map(|(token, buffer)| Call::OpenKeyedMutexFromNtHandle { token, buffer }),
        (handle(), token()).prop_map(|(device, token)| Call::QueryResourceInfoFromNtHandle { device, token }),
        (handle(), token(), any::<[u32; 4]>(), buffer()).prop_map(|(device, token, raw, mutex_buffer)| {
            let [runtime_data_size, private_data_size, total_private_data_size, allocations] = raw;
            let info =
                ResourceInfo { runtime_data_size, private_data_size, total_private_data_size, allocations };
            Call::OpenResourceFromNtHandle { device, token, info, mutex_buffer }
        }),
        handle().prop_map(|mutex| Call::DestroyKeyedMutex { mutex }),
        (handle(), any::<u64>(), option::of(any::<i64>()), event())
            .prop_map(|(mutex, key, timeout, event)| Call::AcquireKeyedMutex { mutex, key, timeout, event }),
        handle().prop_map(|mutex| Call::ReadKeyedMutex { mutex }),
        (handle(), any::<[u64; 2]>(), option::of(bytes())).prop_map(|(mutex, raw, private_data)| {
            Call::ReleaseKeyedMutex { mutex, key: raw[0], fence_value: raw[1], private_data }
        }),
    ]
}

fn paging() -> impl Strategy<Value = Call> {
    let operation = (any::<u32>(), handle(), any::<[u64; 6]>()).prop_map(|(operation, allocation, raw)| {
        let [base, size, allocation_offset, allocation_size, protection, destination] = raw;
        GpuVaOperation {
            operation,
            base,
            size,
            allocation,
            allocation_offset,
            allocation_size,
            protection,
            destination,
        }
    });
    prop_oneof![
        (handle(), any::<i32>(), any::<u32>()).prop_map(|(device, priority, physical_adapter)| {
            Call::CreatePagingQueue { device, priority, physical_adapter }
        }),
        handle().prop_map(|queue| Call::DestroyPagingQueue { queue }),
        (handle(), any::<[u64; 4]>()).prop_map(|(owner, [base, minimum, maximum, size])| {
            Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size }
        }),
        (handle(), handle(), any::<[u64; 6]>()).prop_map(|(paging_queue, allocation, raw)| {
            let [base, minimum, maximum, offset_pages, size_pages, protection] = raw;
            Call::MapGpuVirtualAddress {
                paging_queue,
                base,
                minimum,
                maximum,
                allocation,
                offset_pages,
                size_pages,
                protection,
            }
        }),
        (handle(), any::<[u64; 2]>()).prop_map(|(adapter, [base, size])| Call::FreeGpuVirtualAddress {
            adapter,
            base,
            size
        }),
        (any::<[u32; 4]>(), any::<u64>(), vec(operation, 0..20)).prop_map(
            |([device, context, fence, flags], fence_value, operations)| {
                let (device, context, fence) = (Handle(device), Handle(context), Handle(fence));
                Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags }
            }
        ),
    ]
}

fn memory() -> impl Strategy<Value = Call> {
    let words = || vec(any::<u32>(), 0..40);
    prop_oneof![
        (handle(), handle(), any::<u32>()).prop_map(|(device, allocation, flags)| Call::Lock {
            device,
            allocation,
            flags
        }),
        (handle(), handle()).prop_map(|(device, allocation)| Call::Unlock { device, allocation }),
        (handle(), handle(), handles(), words()).prop_map(|(device, resource, allocations, priorities)| {
            Call::SetAllocationPriority { device, resource, allocations, priorities }
        }),
        (handle(), handle(), handles()).prop_map(|(device, resource, allocations)| {
            Call::AllocationPriority { device, resource, allocations }
        }),
        (handle(), handles(), words(), any::<u32>()).prop_map(
            |(paging_queue, allocations, priorities, flags)| {
                Call::MakeResident { paging_queue, allocations, priorities, flags }
            }
        ),
        (handle(), handles(), any::<u32>()).prop_map(|(device, allocations, flags)| Call::Evict {
            device,
            allocations,
            flags
        }),
        (handle(), any::<[u32; 2]>()).prop_map(|(adapter, [segment_group, physical_adapter])| {
            Call::QueryVideoMemoryInfo { adapter, segment_group, physical_adapter }
        }),
    ]
}

fn hw_queues() -> impl Strategy<Value = Call> {
    prop_oneof![
        (handle(), any::<u32>(), bytes()).prop_map(|(context, flags, private_data)| {
            let flags = HwQueueFlags::from_bits_retain(flags);
            Call::CreateHwQueue { context, flags, private_data }
        }),
        handle().prop_map(|queue| Call::DestroyHwQueue { queue }),
        (handle(), any::<(u64, u64, u32)>(), bytes()).prop_map(|(queue, raw, private_data)| {
            let (progress_fence_id, commands, length) = raw;
            Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands, length, private_data }
        }),
        (handles(), handles(), values(), any::<u32>()).prop_map(|(queues, objects, values, flags)| {
            let flags = SignalFlags::from_bits_retain(flags);
            Call::SubmitSignalToHwQueue { queues, objects, values, flags }
        }),
        (handle(), handles(), values()).prop_map(|(queue, objects, values)| Call::SubmitWaitToHwQueue {
            queue,
            objects,
            values
        }),
        (handle(), any::<(u64, u32, u32)>(), sync_flags()).prop_map(|(device, raw, flags)| {
            let (initial_value, native_type, engine_affinity) = raw;
            Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity }
        }),
        (handle(), token(), sync_flags(), any::<u32>()).prop_map(
            |(device, token, flags, engine_affinity)| {
                Call::OpenNativeFence { device, token, flags, engine_affinity }
            }
        ),
        (handle(), handles()).prop_map(|(queue, rings)| Call::CreateDoorbell { queue, rings }),
        handle().prop_map(|queue| Call::ConnectDoorbell { queue }),
        handle().prop_map(|queue| Call::DestroyDoorbell { queue }),
        handle().prop_map(|queue| Call::NotifyWorkSubmission { queue }),
    ]
}

fn scheduling() -> impl Strategy<Value = Call> {
    prop_oneof![
        (handle(), any::<(i32, bool)>()).prop_map(|(context, (priority, in_process))| {
            Call::SetContextPriority { context, priority, in_process }
        }),
        (handle(), any::<bool>())
            .prop_map(|(context, in_process)| Call::ContextPriority { context, in_process }),
        any::<u32>().prop_map(|class| Call::SetProcessPriorityClass { class }),
        Just(Call::ProcessPriorityClass),
        (handle(), any::<u32>()).prop_map(|(device, reason)| Call::MarkDeviceAsError { device, reason }),
        ([handle(), handle(), handle()], any::<u32>(), any::<u32>(), bytes()).prop_map(
            |([adapter, device, context], kind, flags, data)| Call::Escape {
                adapter,
                device,
                context,
                kind,
                flags: EscapeFlags::from_bits_retain(flags),
                data,
            }
        ),
        (handle(), any::<u32>())
            .prop_map(|(adapter, feature_id)| Call::IsFeatureEnabled { adapter, feature_id }),
    ]
}

/// Any call at all.
pub(super) fn call() -> impl Strategy<Value = Call> {
    prop_oneof![4 => first_calls(), 1 => sharing(), 2 => keyed_mutexes(), 2 => paging(), 2 => memory(), 2 => hw_queues(), 1 => scheduling()]
}

fn created() -> impl Strategy<Value = CreatedSyncObject> {
    (handle(), handle(), option::of(0..u32::MAX - 1), any::<[u64; 2]>()).prop_map(
        |(object, shared_handle, slot, [gpu_address, paging_fence_value])| CreatedSyncObject {
            object,
            shared_handle,
            slot,
            gpu_address,
            paging_fence_value,
        },
    )
}

fn acquired() -> impl Strategy<Value = AcquireOutcome> {
    prop_oneof![
        any::<u64>().prop_map(|fence_value| AcquireOutcome::Acquired { fence_value }),
        any::<u64>().prop_map(|fence_value| AcquireOutcome::TimedOut { fence_value }),
        any::<u64>().prop_map(|fence_value| AcquireOutcome::Abandoned { fence_value }),
        Just(AcquireOutcome::Registered),
    ]
}

/// Any reply at all.
pub(super) fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::None),
        vec((handle(), luid(), any::<u32>()), 0..5).prop_map(|list| Reply::Adapters(
            list.into_iter().map(|(handle, luid, sources)| Adapter { handle, luid, sources }).collect()
        )),
        handle().prop_map(Reply::Adapter),
        vec(any::<u8>(), 0..100).prop_map(Reply::AdapterInfo),
        handle().prop_map(Reply::Device),
        any::<u64>().prop_map(|address| Reply::Locked { address }),
        (any::<[u32; 3]>(), handles(), bytes()).prop_map(|(raw, allocations, runtime_data)| {
            let [resource, keyed_mutex, sync_object] = raw.map(Handle);
            Reply::OpenedResource { resource, allocations, runtime_data, keyed_mutex, sync_object }
        }),
        vec(any::<u32>(), 0..40).prop_map(Reply::AllocationPriorities),
        (any::<[u64; 2]>(), any::<bool>()).prop_map(|([paging_fence_value, bytes_to_trim], over_budget)| {
            Reply::Residency { paging_fence_value, bytes_to_trim, over_budget }
        }),
        any::<[u64; 4]>().prop_map(
            |[budget, current_usage, current_reservation, available_for_reservation]| {
                Reply::VideoMemoryInfo(VideoMemoryInfo {
                    budget,
                    current_usage,
                    current_reservation,
                    available_for_reservation,
                })
            }
        ),
        any::<u32>().prop_map(Reply::DeviceState),
        vec(any::<u8>(), 0..100).prop_map(Reply::Escape),
        (any::<u16>(), 0..16u16)
            .prop_map(|(version, value)| Reply::Feature(FeatureResult::from_value(version, value))),
        handle().prop_map(Reply::Context),
        created().prop_map(Reply::SyncObject),
        prop_oneof![Just(WaitOutcome::Satisfied), Just(WaitOutcome::Registered)].prop_map(Reply::Wait),
        (handle(), handle(), bytes()).prop_map(|(mutex, shared_handle, private_data)| {
            Reply::KeyedMutex { mutex, shared_handle, private_data }
        }),
        (acquired(), bytes())
            .prop_map(|(outcome, private_data)| Reply::KeyedMutexAcquire { outcome, private_data }),
        (any::<u64>(), bytes())
            .prop_map(|(fence_value, private_data)| Reply::KeyedMutexData { fence_value, private_data }),
        (handle(), created()).prop_map(|(queue, fence)| Reply::PagingQueue { queue, fence }),
        any::<[u64; 2]>().prop_map(|[address, paging_fence_value]| Reply::GpuVirtualAddress {
            address,
            paging_fence_value
        }),
        (handle(), created()).prop_map(|(queue, progress_fence)| Reply::HwQueue { queue, progress_fence }),
        any::<u32>().prop_map(|status_slot| Reply::Doorbell { status_slot }),
        any::<(u32, u64)>()
            .prop_map(|(flags, gpu_address)| Reply::PageFault(PageFaultState { flags, gpu_address })),
        any::<i32>().prop_map(Reply::Priority),
        Just(Reply::FenceMemoryExhausted),
    ]
}
