//! What the host answers.

use d3dkmt::{
    AcquireOutcome, Adapter, CreatedSyncObject, FeatureResult, Handle, PageFaultState, Reply, WaitOutcome,
};

use super::lists::{handles, raw};
use super::{ConvertError, allocation, luid_from, luid_to_wire, memory};
use crate::channel::{self as wire, to_guest};

/// What a frame says of a reply.
pub(crate) fn reply_to_body(reply: &Reply) -> Option<to_guest::Body> {
    use to_guest::Body;
    match reply {
        Reply::None => None,
        Reply::Adapters(adapters) => Some(Body::Adapters(wire::Adapters {
            adapters: adapters
                .iter()
                .map(|adapter| wire::Adapter {
                    handle: adapter.handle.0,
                    luid: Some(luid_to_wire(adapter.luid)),
                    sources: adapter.sources,
                })
                .collect(),
        })),
        Reply::Adapter(adapter) => Some(Body::Adapter(adapter.0)),
        Reply::AdapterInfo(data) => Some(Body::AdapterInfo(data.clone())),
        Reply::Device(device) => Some(Body::Device(device.0)),
        Reply::DeviceState(state) => Some(Body::DeviceState(*state)),
        Reply::Context(context) => Some(Body::Context(context.0)),
        Reply::SyncObject(created) => Some(Body::SyncObject(created_to_wire(created))),
        Reply::Wait(outcome) => Some(Body::WaitSatisfied(match outcome {
            WaitOutcome::Satisfied => true,
            WaitOutcome::Registered => false,
        })),
        Reply::KeyedMutex { mutex, shared_handle, private_data } => {
            Some(Body::KeyedMutex(wire::KeyedMutex {
                mutex: mutex.0,
                shared_handle: shared_handle.0,
                private_data: private_data.clone(),
            }))
        }
        Reply::KeyedMutexAcquire { outcome, private_data } => {
            Some(Body::KeyedMutexAcquire(acquire_to_wire(*outcome, private_data)))
        }
        Reply::KeyedMutexData { fence_value, private_data } => {
            let (fence_value, private_data) = (*fence_value, private_data.clone());
            Some(Body::KeyedMutexData(wire::KeyedMutexData { fence_value, private_data }))
        }
        Reply::Allocations { resource, shared_handle, allocations } => {
            Some(Body::Allocations(wire::Allocations {
                resource: resource.0,
                shared_handle: shared_handle.0,
                allocations: raw(allocations),
            }))
        }
        Reply::ResourceInfo(info) => Some(Body::ResourceInfo(allocation::info_to_wire(info))),
        Reply::OpenedResource { resource, allocations, runtime_data, keyed_mutex, sync_object } => {
            Some(Body::OpenedResource(wire::OpenedResource {
                resource: resource.0,
                allocations: raw(allocations),
                runtime_data: runtime_data.clone(),
                keyed_mutex: keyed_mutex.0,
                sync_object: sync_object.0,
            }))
        }
        Reply::Locked { address } => Some(Body::Locked(*address)),
        Reply::AllocationPriorities(priorities) => {
            Some(Body::AllocationPriorities(wire::AllocationPriorities { priorities: priorities.clone() }))
        }
        Reply::Residency { paging_fence_value, bytes_to_trim, over_budget } => {
            Some(Body::Residency(wire::Residency {
                paging_fence_value: *paging_fence_value,
                bytes_to_trim: *bytes_to_trim,
                over_budget: *over_budget,
            }))
        }
        Reply::VideoMemoryInfo(info) => Some(Body::VideoMemoryInfo(memory::info_to_wire(info))),
        Reply::PagingQueue { queue, fence } => {
            let fence = Some(created_to_wire(fence));
            Some(Body::PagingQueue(wire::PagingQueue { queue: queue.0, fence }))
        }
        Reply::GpuVirtualAddress { address, paging_fence_value } => {
            let (address, paging_fence_value) = (*address, *paging_fence_value);
            Some(Body::GpuVirtualAddress(wire::GpuVirtualAddress { address, paging_fence_value }))
        }
        Reply::HwQueue { queue, progress_fence } => {
            let progress_fence = Some(created_to_wire(progress_fence));
            Some(Body::HwQueue(wire::HwQueue { queue: queue.0, progress_fence }))
        }
        Reply::Doorbell { status_slot } => Some(Body::DoorbellStatusSlot(*status_slot)),
        Reply::Escape(data) => Some(Body::Escape(data.clone().into())),
        Reply::Feature(feature) => Some(Body::Feature(wire::Feature {
            version: feature.version.into(),
            value: feature.value().into(),
        })),
        Reply::PageFault(PageFaultState { flags, gpu_address }) => {
            Some(Body::PageFault(wire::PageFault { flags: *flags, gpu_address: *gpu_address }))
        }
        Reply::Priority(priority) => Some(Body::Priority(*priority)),
        Reply::FenceMemoryExhausted => Some(Body::FenceMemoryExhausted(true)),
    }
}

/// The reply that a frame carries.
pub(crate) fn reply_from_body(body: Option<to_guest::Body>) -> Result<Reply, ConvertError> {
    use to_guest::Body;
    Ok(match body {
        None => Reply::None,
        Some(Body::Welcome(_)) => return Err(ConvertError::Unexpected("a Welcome")),
        Some(Body::Applied(_)) => return Err(ConvertError::Unexpected("a count of calls")),
        Some(Body::AskedNs(_)) => return Err(ConvertError::Unexpected("a time")),
        Some(Body::Goodbye(_)) => return Err(ConvertError::Unexpected("a Goodbye")),
        Some(Body::Wake(_)) => return Err(ConvertError::Unexpected("a Wake")),
        Some(Body::Adapters(list)) => Reply::Adapters(
            list.adapters
                .into_iter()
                .map(|adapter| {
                    let luid = luid_from(adapter.luid, "Adapter")?;
                    Ok(Adapter { handle: Handle(adapter.handle), luid, sources: adapter.sources })
                })
                .collect::<Result<_, ConvertError>>()?,
        ),
        Some(Body::Adapter(adapter)) => Reply::Adapter(Handle(adapter)),
        Some(Body::AdapterInfo(data)) => Reply::AdapterInfo(data),
        Some(Body::Device(device)) => Reply::Device(Handle(device)),
        Some(Body::DeviceState(state)) => Reply::DeviceState(state),
        Some(Body::Context(context)) => Reply::Context(Handle(context)),
        Some(Body::SyncObject(wire)) => Reply::SyncObject(created_from_wire(wire)),
        Some(Body::WaitSatisfied(satisfied)) => {
            Reply::Wait(if satisfied { WaitOutcome::Satisfied } else { WaitOutcome::Registered })
        }
        Some(Body::KeyedMutex(wire)) => Reply::KeyedMutex {
            mutex: Handle(wire.mutex),
            shared_handle: Handle(wire.shared_handle),
            private_data: wire.private_data,
        },
        Some(Body::KeyedMutexAcquire(wire)) => acquire_from_wire(wire)?,
        Some(Body::KeyedMutexData(wire)) => {
            Reply::KeyedMutexData { fence_value: wire.fence_value, private_data: wire.private_data }
        }
        Some(Body::Allocations(wire)) => allocation::allocations_from_wire(wire),
        Some(Body::ResourceInfo(wire)) => Reply::ResourceInfo(allocation::info_from_wire(&wire)),
        Some(Body::OpenedResource(wire)) => Reply::OpenedResource {
            resource: Handle(wire.resource),
            allocations: handles(wire.allocations),
            runtime_data: wire.runtime_data,
            keyed_mutex: Handle(wire.keyed_mutex),
            sync_object: Handle(wire.sync_object),
        },
        Some(Body::Locked(address)) => Reply::Locked { address },
        Some(Body::AllocationPriorities(wire)) => Reply::AllocationPriorities(wire.priorities),
        Some(Body::Residency(wire)) => memory::residency_from_wire(&wire),
        Some(Body::VideoMemoryInfo(wire)) => Reply::VideoMemoryInfo(memory::info_from_wire(&wire)),
        Some(Body::PagingQueue(wire)) => {
            let fence = fence_of(wire.fence, "PagingQueue", "fence")?;
            Reply::PagingQueue { queue: Handle(wire.queue), fence }
        }
        Some(Body::GpuVirtualAddress(wire)) => {
            Reply::GpuVirtualAddress { address: wire.address, paging_fence_value: wire.paging_fence_value }
        }
        Some(Body::HwQueue(wire)) => {
            let progress_fence = fence_of(wire.progress_fence, "HwQueue", "progress_fence")?;
            Reply::HwQueue { queue: Handle(wire.queue), progress_fence }
        }
        Some(Body::DoorbellStatusSlot(status_slot)) => Reply::Doorbell { status_slot },
        Some(Body::Escape(data)) => Reply::Escape(data.into()),
        Some(Body::Feature(wire)) => {
            let half =
                |word: u32| u16::try_from(word).map_err(|_| ConvertError::Unexpected("a feature's result"));
            Reply::Feature(FeatureResult::from_value(half(wire.version)?, half(wire.value)?))
        }
        Some(Body::PageFault(wire)) => {
            Reply::PageFault(PageFaultState { flags: wire.flags, gpu_address: wire.gpu_address })
        }
        Some(Body::Priority(priority)) => Reply::Priority(priority),
        Some(Body::FenceMemoryExhausted(_)) => Reply::FenceMemoryExhausted,
    })
}

fn created_to_wire(created: &CreatedSyncObject) -> wire::SyncObject {
    wire::SyncObject {
        object: created.object.0,
        shared_handle: created.shared_handle.0,
        slot_plus_one: created.slot.map_or(0, |slot| slot + 1),
        gpu_address: created.gpu_address,
        paging_fence_value: created.paging_fence_value,
    }
}

fn created_from_wire(wire: wire::SyncObject) -> CreatedSyncObject {
    CreatedSyncObject {
        object: Handle(wire.object),
        shared_handle: Handle(wire.shared_handle),
        slot: wire.slot_plus_one.checked_sub(1),
        gpu_address: wire.gpu_address,
        paging_fence_value: wire.paging_fence_value,
    }
}

fn fence_of(
    fence: Option<wire::SyncObject>,
    message: &'static str,
    field: &'static str,
) -> Result<CreatedSyncObject, ConvertError> {
    fence.map(created_from_wire).ok_or(ConvertError::Missing { message, field })
}

/// The outcome is told beside the status: a report of an actor has a reply, and its status elsewhere.
fn acquire_to_wire(outcome: AcquireOutcome, private_data: &[u8]) -> wire::KeyedMutexAcquire {
    use wire::keyed_mutex_acquire::Outcome;
    let outcome = match outcome {
        AcquireOutcome::Acquired { fence_value } => Outcome::Acquired(fence_value),
        AcquireOutcome::TimedOut { fence_value } => Outcome::TimedOut(fence_value),
        AcquireOutcome::Abandoned { fence_value } => Outcome::Abandoned(fence_value),
        AcquireOutcome::Registered => Outcome::Registered(true),
    };
    wire::KeyedMutexAcquire { outcome: Some(outcome), private_data: private_data.to_vec() }
}

fn acquire_from_wire(wire: wire::KeyedMutexAcquire) -> Result<Reply, ConvertError> {
    use wire::keyed_mutex_acquire::Outcome;
    let missing = ConvertError::Missing { message: "KeyedMutexAcquire", field: "outcome" };
    let outcome = match wire.outcome.ok_or(missing)? {
        Outcome::Acquired(fence_value) => AcquireOutcome::Acquired { fence_value },
        Outcome::TimedOut(fence_value) => AcquireOutcome::TimedOut { fence_value },
        Outcome::Abandoned(fence_value) => AcquireOutcome::Abandoned { fence_value },
        Outcome::Registered(_) => AcquireOutcome::Registered,
    };
    Ok(Reply::KeyedMutexAcquire { outcome, private_data: wire.private_data })
}
