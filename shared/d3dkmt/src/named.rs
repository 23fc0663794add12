//! What calls are called, and the handles that they and their replies name: to give them other values, and to see who
//! names what.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{Call, GpuSignal, Handle, Reply, ShareToken};

/// Takes the identifier at the beginning of what is printed, and then no more.
struct Head(String);

impl fmt::Write for Head {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if !letter.is_ascii_alphanumeric() {
                return Err(fmt::Error);
            }
            self.0.push(letter);
        }
        Ok(())
    }
}

impl Call {
    /// The name of the call, from how it prints itself: no second list of all calls.
    pub fn name(&self) -> String {
        let mut head = Head(String::new());
        // It stops printing after the name, on purpose.
        let _ = fmt::write(&mut head, format_args!("{self:?}"));
        head.0
    }

    /// The NT handle by which the call opens something.
    pub fn nt_handle_opened(&self) -> Option<ShareToken> {
        match self {
            Call::OpenSyncObject { token, .. }
            | Call::OpenNativeFence { token, .. }
            | Call::OpenResourceFromNtHandle { token, .. }
            | Call::OpenKeyedMutexFromNtHandle { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// The NT handle that the call gives its process, if it succeeds.
    pub fn nt_handle_made(&self) -> Option<ShareToken> {
        match self {
            Call::ShareObjects { token, .. } | Call::OpenNtHandleFromName { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// Each handle of the call, in the order of its fields; NULL where none is named.
    pub fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        let mut all = |lists: &mut [Handle]| lists.iter_mut().for_each(&mut *each);
        match self {
            Call::EnumAdapters { .. }
            | Call::OpenAdapterFromLuid { .. }
            | Call::CancelWait { .. }
            | Call::OpenNtHandleFromName { .. }
            | Call::CreateKeyedMutex { .. }
            | Call::OpenKeyedMutexFromNtHandle { .. }
            | Call::SetProcessPriorityClass { .. }
            | Call::ProcessPriorityClass => {}
            Call::CloseAdapter { adapter: one }
            | Call::QueryAdapterInfo { adapter: one, .. }
            | Call::CreateDevice { adapter: one, .. }
            | Call::DestroyDevice { device: one }
            | Call::GetDeviceState { device: one, .. }
            | Call::CreateContextVirtual { device: one, .. }
            | Call::DestroyContext { context: one }
            | Call::CreateSynchronizationObject { device: one, .. }
            | Call::DestroySynchronizationObject { object: one }
            | Call::OpenSynchronizationObject { shared_handle: one }
            | Call::OpenSyncObject { device: one, .. }
            | Call::OpenKeyedMutex { shared_handle: one, .. }
            | Call::DestroyKeyedMutex { mutex: one }
            | Call::AcquireKeyedMutex { mutex: one, .. }
            | Call::ReadKeyedMutex { mutex: one }
            | Call::ReleaseKeyedMutex { mutex: one, .. }
            | Call::QueryResourceInfoFromNtHandle { device: one, .. }
            | Call::OpenResourceFromNtHandle { device: one, .. }
            | Call::QueryVideoMemoryInfo { adapter: one, .. }
            | Call::CreatePagingQueue { device: one, .. }
            | Call::DestroyPagingQueue { queue: one }
            | Call::ReserveGpuVirtualAddress { owner: one, .. }
            | Call::FreeGpuVirtualAddress { adapter: one, .. }
            | Call::CreateHwQueue { context: one, .. }
            | Call::DestroyHwQueue { queue: one }
            | Call::SubmitCommandToHwQueue { queue: one, .. }
            | Call::CreateNativeFence { device: one, .. }
            | Call::OpenNativeFence { device: one, .. }
            | Call::ConnectDoorbell { queue: one }
            | Call::DestroyDoorbell { queue: one }
            | Call::NotifyWorkSubmission { queue: one }
            | Call::SetContextPriority { context: one, .. }
            | Call::ContextPriority { context: one, .. }
            | Call::MarkDeviceAsError { device: one, .. }
            | Call::IsFeatureEnabled { adapter: one, .. } => each(one),
            Call::QueryResourceInfo { device: one, shared_handle: two }
            | Call::OpenResource { device: one, shared_handle: two, .. }
            | Call::Lock { device: one, allocation: two, .. }
            | Call::Unlock { device: one, allocation: two }
            | Call::MapGpuVirtualAddress { paging_queue: one, allocation: two, .. } => {
                each(one);
                each(two);
            }
            Call::SignalFromCpu { device: one, objects: list, .. }
            | Call::WaitFromCpu { device: one, objects: list, .. }
            | Call::WaitFromGpu { context: one, objects: list, .. }
            | Call::WaitFromGpuLegacy { context: one, objects: list, .. }
            | Call::SubmitWaitToHwQueue { queue: one, objects: list, .. } => {
                each(one);
                list.iter_mut().for_each(each);
            }
            Call::SubmitCommand { contexts: list, .. } => all(list),
            Call::SubmitSignalToHwQueue { queues, objects, .. } => {
                all(queues);
                all(objects);
            }
            Call::SignalFromGpu { contexts, signal, .. } => {
                all(contexts);
                match signal {
                    GpuSignal::Monitored { objects, .. } | GpuSignal::Legacy { objects, .. } => all(objects),
                    GpuSignal::CpuEvent { .. } => {}
                }
            }
            Call::ShareObjects { objects, .. } => all(objects),
            Call::CreateAllocation(create) => {
                each(&mut create.device);
                each(&mut create.resource);
            }
            Call::DestroyAllocation { device, resource, allocations, .. }
            | Call::SetAllocationPriority { device, resource, allocations, .. }
            | Call::AllocationPriority { device, resource, allocations } => {
                each(device);
                each(resource);
                allocations.iter_mut().for_each(each);
            }
            Call::MakeResident { paging_queue: one, allocations: list, .. }
            | Call::Evict { device: one, allocations: list, .. }
            | Call::CreateDoorbell { queue: one, rings: list } => {
                each(one);
                list.iter_mut().for_each(each);
            }
            Call::UpdateGpuVirtualAddress { device, context, fence, operations, .. } => {
                each(device);
                each(context);
                each(fence);
                operations.iter_mut().for_each(|operation| each(&mut operation.allocation));
            }
            Call::Escape { adapter, device, context, .. } => {
                each(adapter);
                each(device);
                each(context);
            }
        }
    }

    /// The handles that the call names, as often as it does. Those in private data are the driver's business.
    pub fn handles(&self) -> Vec<Handle> {
        named(|each| self.clone().handles_mut(each))
    }
}

impl Reply {
    /// Each handle of the reply, in the order of its fields; NULL where there is none.
    pub fn handles_mut(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        match self {
            Reply::None
            | Reply::AdapterInfo(_)
            | Reply::DeviceState(_)
            | Reply::Wait(_)
            | Reply::KeyedMutexAcquire { .. }
            | Reply::KeyedMutexData { .. }
            | Reply::ResourceInfo(_)
            | Reply::Locked { .. }
            | Reply::AllocationPriorities(_)
            | Reply::Residency { .. }
            | Reply::VideoMemoryInfo(_)
            | Reply::GpuVirtualAddress { .. }
            | Reply::Doorbell { .. }
            | Reply::PageFault(_)
            | Reply::Priority(_)
            | Reply::Escape(_)
            | Reply::Feature(_)
            | Reply::FenceMemoryExhausted => {}
            Reply::Adapters(adapters) => adapters.iter_mut().for_each(|adapter| each(&mut adapter.handle)),
            Reply::Adapter(one) | Reply::Device(one) | Reply::Context(one) => each(one),
            Reply::SyncObject(object) => {
                each(&mut object.object);
                each(&mut object.shared_handle);
            }
            Reply::KeyedMutex { mutex, shared_handle, .. } => {
                each(mutex);
                each(shared_handle);
            }
            Reply::Allocations { resource, shared_handle, allocations } => {
                each(resource);
                each(shared_handle);
                allocations.iter_mut().for_each(each);
            }
            Reply::OpenedResource { resource, allocations, keyed_mutex, sync_object, .. } => {
                each(resource);
                allocations.iter_mut().for_each(&mut *each);
                each(keyed_mutex);
                each(sync_object);
            }
            Reply::PagingQueue { queue, fence: created }
            | Reply::HwQueue { queue, progress_fence: created } => {
                each(queue);
                each(&mut created.object);
                each(&mut created.shared_handle);
            }
        }
    }

    /// The handles that the reply gives.
    pub fn handles(&self) -> Vec<Handle> {
        named(|each| self.clone().handles_mut(each))
    }
}

fn named(look: impl FnOnce(&mut dyn FnMut(&mut Handle))) -> Vec<Handle> {
    let mut handles = Vec::new();
    look(&mut |handle| handles.push(*handle));
    handles.retain(|handle| *handle != Handle::NULL);
    handles
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use crate::{
        Call, CreateAllocation, CreateAllocationFlags, CreatedSyncObject, EscapeFlags, GpuSignal,
        GpuVaOperation, Handle, Reply, SignalFlags,
    };

    /// Handles 1, 2, .. in the order of the fields.
    const H: [Handle; 6] = [Handle(1), Handle(2), Handle(3), Handle(4), Handle(5), Handle(6)];

    #[test]
    fn calls_with_several_handles_give_all_in_order_and_take_others() {
        let operation = GpuVaOperation { allocation: H[3], ..GpuVaOperation::default() };
        let monitored = GpuSignal::Monitored { objects: H[2..4].into(), values: vec![7, 8].into() };
        let create = CreateAllocation {
            device: H[0],
            resource: H[1],
            flags: CreateAllocationFlags::empty(),
            standard: None,
            private_data: vec![],
            runtime_data: vec![],
            allocations: vec![],
        };
        let flags = SignalFlags::empty();
        let calls = [
            (2, Call::CreateAllocation(Box::new(create))),
            (4, Call::SignalFromGpu { contexts: H[..2].into(), signal: monitored, flags }),
            (
                3,
                Call::SubmitSignalToHwQueue {
                    queues: H[..1].into(),
                    objects: H[1..3].into(),
                    values: vec![1, 2].into(),
                    flags,
                },
            ),
            (
                4,
                Call::UpdateGpuVirtualAddress {
                    device: H[0],
                    context: H[1],
                    fence: H[2],
                    fence_value: 9,
                    operations: vec![operation],
                    flags: 0,
                },
            ),
            (
                4,
                Call::MakeResident {
                    paging_queue: H[0],
                    allocations: H[1..4].to_vec(),
                    priorities: vec![],
                    flags: 0,
                },
            ),
            (
                3,
                Call::Escape {
                    adapter: H[0],
                    device: H[1],
                    context: H[2],
                    kind: 0,
                    flags: EscapeFlags::empty(),
                    data: vec![],
                },
            ),
        ];
        for (count, mut call) in calls {
            assert_eq!(call.handles(), H[..count], "{call:?}");
            call.handles_mut(&mut |handle| handle.0 += 0x100);
            let moved = H[..count].iter().map(|handle| Handle(handle.0 + 0x100));
            assert_eq!(call.handles(), moved.collect::<vec::Vec<_>>(), "{call:?}");
        }
    }

    #[test]
    fn calls_have_names() {
        assert_eq!(Call::ProcessPriorityClass.name(), "ProcessPriorityClass");
        assert_eq!(Call::DestroyContext { context: H[0] }.name(), "DestroyContext");
    }

    #[test]
    fn replies_give_what_they_made_and_no_null() {
        let fence = CreatedSyncObject { object: H[1], ..CreatedSyncObject::default() };
        assert_eq!(Reply::HwQueue { queue: H[0], progress_fence: fence }.handles(), H[..2]);
        let opened = Reply::OpenedResource {
            resource: H[0],
            allocations: H[1..3].to_vec(),
            runtime_data: vec![],
            keyed_mutex: Handle::NULL,
            sync_object: H[3],
        };
        assert_eq!(opened.handles(), H[..4]);
        assert_eq!(Reply::None.handles(), []);
    }
}
