//! One of everything that a process can have on an adapter, and each call on it.

use std::collections::BTreeSet;

use super::hardware::*;
use super::{World, share};
use crate::allocations::creation;
use d3dkmt::{
    Call, CreateAllocationFlags, CreateContextFlags, CreatedSyncObject, DestroyAllocationFlags, EventId,
    GpuVaOperation, Handle, KeyedMutexFlags, Luid, Reply, ResourceInfo, RuntimeBuffer, ShareToken,
    SignalFlags, SyncObjectFlags, SyncObjectInfo, SyncObjectType, calls, isa,
};

/// That of the default adapter.
pub const LUID: Luid = Luid { low: 0x6770_0001, high: 0 };
pub const NT: SyncObjectFlags = SyncObjectFlags::SHARED.union(SyncObjectFlags::NT_SECURITY_SHARING);
pub const FENCE: ShareToken = token(1);
pub const NATIVE: ShareToken = token(2);
pub const GUARDED: ShareToken = token(3);
pub const RESOURCE: ShareToken = token(4);
pub const SYNC_FILE: ShareToken = token(5);
pub const NEW: ShareToken = token(6);
pub const NEW_NAME: ShareToken = token(7);
pub const NEW_FILE: ShareToken = token(8);

const fn token(number: u8) -> ShareToken {
    ShareToken([number; 16])
}

/// One of everything that a process can have on an adapter.
pub struct Things {
    pub adapter: Handle,
    pub device: Handle,
    pub context: Handle,
    pub hw_context: Handle,
    pub queue: Handle,
    pub ring: Handle,
    pub ring_without_doorbell: Handle,
    pub progress: CreatedSyncObject,
    pub fence: CreatedSyncObject,
    pub mutex_object: Handle,
    pub global_object: Handle,
    pub keyed: Handle,
    pub global_keyed: Handle,
    pub free_keyed: Handle,
    pub allocation: Handle,
    pub resource: Handle,
    pub global_resource: Handle,
    pub paging_queue: Handle,
    pub base: u64,
    pub pending: EventId,
}

fn legacy(flags: SyncObjectFlags) -> SyncObjectInfo {
    SyncObjectInfo { object_type: SyncObjectType::MUTEX, flags, ..SyncObjectInfo::default() }
}

fn share_all(objects: &[Handle], token: ShareToken) -> Call {
    Call::ShareObjects { objects: objects.to_vec(), desired_access: 0x1F_0003, name: None, token }
}

fn keyed(world: &mut World, flags: KeyedMutexFlags) -> (Handle, Handle) {
    let call = Call::CreateKeyedMutex { initial_value: 0, private_data: vec![], flags };
    let Reply::KeyedMutex { mutex, shared_handle, .. } = world.ok(call) else { panic!() };
    (mutex, shared_handle)
}

fn allocate(world: &mut World, device: Handle, flags: CreateAllocationFlags) -> (Handle, Handle, Handle) {
    let create = Box::new(creation(device, flags));
    let Reply::Allocations { resource, shared_handle, allocations, .. } =
        world.ok(Call::CreateAllocation { create })
    else {
        panic!()
    };
    (resource, shared_handle, allocations[0])
}

impl Things {
    pub fn new(world: &mut World) -> Things {
        use CreateAllocationFlags as A;
        let adapter = world.adapter();
        let Reply::Device(device) = world.ok(Call::CreateDevice { adapter, flags: 0 }) else { panic!() };
        let fence = world.fence_with(device, 0, NT);
        world.ok(share(fence.object, FENCE));
        world.ok(calls::share(fence.object, NEW_NAME, Some("thing")));
        let native = world.try_native(device, 0, NT).expect("the adapter has native fences");
        world.ok(share(native.object, NATIVE));
        let queue = world.queue_on(device, ADVANCED, d3dkmt::HwQueueFlags::empty());
        let ring = world.queue_on(device, ADVANCED, USER_MODE);
        let ring_without_doorbell = world.queue_on(device, ADVANCED, USER_MODE).handle;
        world.doorbell(ring);
        let (free_keyed, global_keyed) = keyed(world, KeyedMutexFlags::empty());
        let (guard, _) = keyed(world, KeyedMutexFlags::NT_SECURITY_SHARING);
        let mutex_object = world.object(device, legacy(NT)).object;
        let global = world.object(device, legacy(SyncObjectFlags::SHARED));
        let nt = A::CREATE_RESOURCE | A::CREATE_SHARED | A::NT_SECURITY_SHARING;
        let (resource, _, allocation) = allocate(world, device, nt);
        world.ok(share_all(&[resource], RESOURCE));
        let (_, _, guarded) = allocate(world, device, nt);
        world.ok(share_all(&[guarded, guard, mutex_object], GUARDED));
        let (_, global_resource, _) = allocate(world, device, A::CREATE_RESOURCE | A::CREATE_SHARED);
        let (paging_queue, _) = crate::paging::queue(world, device, 0);
        let reserve = Call::ReserveGpuVirtualAddress {
            owner: paging_queue,
            base: 0,
            minimum: 0,
            maximum: 0,
            size: 0x1_0000,
        };
        let Reply::GpuVirtualAddress { address: base, .. } = world.ok(reserve) else { panic!() };
        world.ok(Call::CreateSyncFile { device, fence: fence.object, fence_value: 9, token: SYNC_FILE });
        let hw_context = world.hw_context(device, ADVANCED);
        Things {
            context: world.context(device, BASIC),
            pending: world.pending(device, &[(fence.object, 5)], false),
            keyed: keyed(world, KeyedMutexFlags::empty()).0,
            queue: queue.handle,
            progress: queue.fence,
            ring: ring.handle,
            global_object: global.shared_handle,
            adapter,
            device,
            hw_context,
            ring_without_doorbell,
            fence,
            mutex_object,
            global_keyed,
            free_keyed,
            allocation,
            resource,
            global_resource,
            paging_queue,
            base,
        }
    }

    fn of_adapters(&self) -> Vec<Call> {
        let Things { adapter, device, context, .. } = *self;
        let none = Handle::NULL;
        // The simulated driver's ECHO escape.
        let data = [vec![0; 32], vec![5, 6]].concat();
        vec![
            Call::EnumAdapters { capacity: 34 },
            Call::OpenAdapterFromLuid { luid: LUID },
            Call::QueryStatistics { luid: LUID, kind: 0, query: 0 },
            Call::QueryAdapterInfo { adapter, kind: 15, data: vec![0; 4] },
            Call::CreateDevice { adapter, flags: 0 },
            Call::IsFeatureEnabled { adapter, feature_id: 32 },
            Call::QueryClockCalibration { adapter, node_ordinal: 0, physical_adapter: 0 },
            Call::FlushHeapTransitions { adapter },
            Call::SetStablePowerState { adapter, enabled: true },
            Call::QueryVideoMemoryInfo { adapter, segment_group: 0, physical_adapter: 0 },
            Call::ChangeVideoMemoryReservation {
                adapter,
                segment_group: 0,
                reservation: 0,
                physical_adapter: 0,
            },
            calls::escape(adapter, none, data),
            Call::WatchAdapters { event: EventId(76) },
            Call::GetDeviceState { device, state_type: 1 },
            Call::MarkDeviceAsError { device, reason: 0 },
            Call::SetContextPriority { context, priority: 1, in_process: false },
            Call::ContextPriority { context, in_process: false },
            Call::SetProcessPriorityClass { class: 2 },
            Call::ProcessPriorityClass {},
            Call::DestroyContext { context },
            Call::DestroyDevice { device },
            Call::CloseAdapter { adapter },
        ]
    }

    fn of_contexts_and_objects(&self) -> Vec<Call> {
        let Things { device, context, fence, pending: event, mutex_object, .. } = *self;
        let flags = SyncObjectFlags::empty();
        let private_data = isa::encode(&[busy(1)]);
        vec![
            calls::create_context(device, 0, CreateContextFlags::empty()),
            calls::submit(context, private_data),
            calls::gpu_signal(context, fence.object, 1),
            calls::gpu_wait(context, fence.object, 1),
            calls::acquire(context, &[mutex_object]),
            Call::CreateSynchronizationObject { device, info: legacy(flags), legacy: false },
            calls::signal(device, fence.object, 1),
            calls::wait(device, fence.object, 1, EventId(77)),
            Call::CancelWait { event },
            calls::create_native_fence(device, flags),
            Call::DestroySynchronizationObject { object: fence.object },
        ]
    }

    fn of_sharing(&self) -> Vec<Call> {
        let Things { device, context, fence, keyed: mutex, .. } = *self;
        let (flags, buffer) = (SyncObjectFlags::empty(), RuntimeBuffer::default());
        let desired_access = d3dkmt::access::SYNC_OBJECT_ALL_ACCESS;
        let event = EventId(78);
        vec![
            share(fence.object, NEW),
            Call::OpenSyncObject { device, token: FENCE, flags, engine_affinity: 0, legacy: false },
            Call::OpenNativeFence { device, token: NATIVE, flags, engine_affinity: 0 },
            Call::OpenSynchronizationObject { shared_handle: self.global_object },
            Call::OpenNtHandleFromName {
                name: "thing".into(),
                desired_access,
                token: NEW,
                sync_object: true,
            },
            Call::CreateSyncFile { device, fence: fence.object, fence_value: 3, token: NEW_FILE },
            Call::WaitSyncFile { context, token: SYNC_FILE },
            Call::OpenSyncFile { device, token: SYNC_FILE },
            Call::CreateKeyedMutex {
                initial_value: 0,
                private_data: vec![],
                flags: KeyedMutexFlags::empty(),
            },
            Call::OpenKeyedMutex { shared_handle: self.global_keyed, buffer: buffer.clone() },
            Call::OpenKeyedMutexFromNtHandle { token: GUARDED, buffer },
            Call::AcquireKeyedMutex { mutex: self.free_keyed, key: 0, timeout: Some(0), event },
            Call::ReadKeyedMutex { mutex },
            Call::ReleaseKeyedMutex { mutex, key: 1, fence_value: 1, private_data: None },
            Call::DestroyKeyedMutex { mutex },
        ]
    }

    fn of_allocations(&self) -> Vec<Call> {
        let Things { device, allocation, resource, global_resource: shared_handle, paging_queue, .. } = *self;
        let (one, none) = (vec![allocation], Handle::NULL);
        let create = Box::new(creation(device, CreateAllocationFlags::empty()));
        let info = ResourceInfo { allocations: 1, ..ResourceInfo::default() };
        let mutex_buffer = RuntimeBuffer::default();
        vec![
            Call::CreateAllocation { create },
            Call::QueryResourceInfo { device, shared_handle },
            Call::OpenResource { device, shared_handle, info },
            Call::QueryResourceInfoFromNtHandle { device, token: RESOURCE },
            Call::SharedResourceAdapter { shared_handle },
            Call::SharedResourceAdapterFromNtHandle { token: RESOURCE },
            Call::OpenResourceFromNtHandle { device, token: RESOURCE, info, mutex_buffer },
            Call::Lock { device, allocation, flags: 0 },
            Call::Unlock { device, allocation },
            Call::SetAllocationPriority {
                device,
                resource: none,
                allocations: one.clone(),
                priorities: vec![0x7800_0000],
            },
            Call::AllocationPriority { device, resource: none, allocations: one.clone() },
            Call::MakeResident { paging_queue, allocations: one.clone(), priorities: vec![], flags: 0 },
            Call::Evict { device, allocations: one.clone(), flags: 0 },
            Call::OfferAllocations {
                device,
                allocations: one.clone(),
                resources: false,
                priority: 2,
                flags: 0,
            },
            Call::ReclaimAllocations { device, allocations: one.clone(), resources: false },
            Call::ReclaimAllocations2 { paging_queue, allocations: one.clone(), resources: false },
            Call::QueryAllocationResidency { device, resource: none, allocations: one },
            Call::InvalidateCache { device, allocation, offset: 0, length: 64 },
            Call::DestroyAllocation {
                device,
                resource,
                allocations: vec![],
                flags: DestroyAllocationFlags::empty(),
            },
        ]
    }

    fn of_addresses_and_queues(&self) -> Vec<Call> {
        let Things { adapter, device, context, fence, base, queue, paging_queue, hw_context, .. } = *self;
        let (objects, values): (d3dkmt::Handles, d3dkmt::Values) =
            (vec![fence.object].into(), vec![1].into());
        let unmap = GpuVaOperation { operation: 1, base, size: 4096, ..GpuVaOperation::default() };
        vec![
            Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 },
            Call::ReserveGpuVirtualAddress {
                owner: adapter,
                base: 0,
                minimum: 0,
                maximum: 0,
                size: 0x1_0000,
            },
            calls::map(paging_queue, base, Handle::NULL, 1, 4),
            Call::UpdateGpuVirtualAddress {
                device,
                context,
                fence: fence.object,
                fence_value: 1,
                operations: vec![unmap],
                flags: 0,
            },
            Call::FreeGpuVirtualAddress { adapter, base, size: 0x1_0000 },
            Call::DestroyPagingQueue { queue: paging_queue },
            calls::create_hw_queue(hw_context, d3dkmt::HwQueueFlags::empty()),
            calls::submit_to_hw_queue(queue, 1, isa::encode(&[busy(1)])),
            Call::SubmitSignalToHwQueue {
                queues: vec![queue].into(),
                objects: objects.clone(),
                values: values.clone(),
                flags: SignalFlags::empty(),
            },
            Call::SubmitWaitToHwQueue { queue, objects, values },
            Call::CreateDoorbell { queue: self.ring_without_doorbell, rings: vec![] },
            Call::ConnectDoorbell { queue: self.ring },
            Call::NotifyWorkSubmission { queue: self.ring },
            Call::DestroyDoorbell { queue: self.ring },
            Call::DestroyHwQueue { queue },
        ]
    }

    /// Each call once, with arguments that are right.
    pub fn calls(&self) -> Vec<Call> {
        let calls = [
            self.of_adapters(),
            self.of_contexts_and_objects(),
            self.of_sharing(),
            self.of_allocations(),
            self.of_addresses_and_queues(),
        ]
        .concat();
        let named: BTreeSet<&str> = calls.iter().map(Call::name).collect();
        let all: BTreeSet<&str> = Call::FORMS.iter().map(|(name, _)| *name).collect();
        let lacking: Vec<_> = all.difference(&named).collect();
        assert!(lacking.is_empty(), "one_of_each.rs lacks {lacking:?}: add them with right arguments");
        assert_eq!(calls.len(), all.len());
        calls
    }
}
