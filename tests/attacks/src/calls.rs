//! Calls with the fields that attacks need, and packets of command buffers.

use d3dkmt::isa::{self, Packet, ResourceDesc};
use d3dkmt::list_escape::create_resource;
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags, EscapeFlags, EventId,
    GpuSignal, Handle, HwQueueFlags, NtStatus, SignalFlags, StandardAllocation, SyncObjectFlags,
    SyncObjectInfo, SyncObjectType, WaitOutcome, escape,
};
use e2e::wire::Client;
use proto::convert::FromHost;

/// `D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE`.
const WRITE: u64 = 0x1;
const ZERO: u64 = 0x4;
const NO_ACCESS: u64 = 0x8;

/// Address that an attacker claims for its memory. It is never read.
pub const MEMORY: u64 = 0x7E00_0000_0000;

pub fn busy(duration_ns: u64) -> Packet {
    Packet::Busy { duration_ns }
}

pub fn fence_write(gpu_address: u64, value: u64) -> Packet {
    Packet::FenceWrite { gpu_address, value }
}

pub fn context(device: Handle, node_ordinal: u32, flags: CreateContextFlags) -> Call {
    Call::CreateContextVirtual {
        device,
        node_ordinal,
        engine_affinity: 0,
        flags,
        client_hint: 0,
        private_data: Vec::new(),
    }
}

pub fn hw_queue(context: Handle) -> Call {
    Call::CreateHwQueue { context, flags: HwQueueFlags::empty(), private_data: Vec::new() }
}

pub fn paging_queue(device: Handle) -> Call {
    Call::CreatePagingQueue { device, priority: 0, physical_adapter: 0 }
}

pub fn object(device: Handle, info: SyncObjectInfo) -> Call {
    Call::CreateSynchronizationObject { device, info, legacy: false }
}

pub fn monitored_fence(device: Handle) -> Call {
    let object_type = SyncObjectType::MONITORED_FENCE;
    object(device, SyncObjectInfo { object_type, ..SyncObjectInfo::default() })
}

pub fn semaphore(device: Handle, max_count: u32) -> Call {
    let object_type = SyncObjectType::SEMAPHORE;
    object(device, SyncObjectInfo { object_type, max_count, ..SyncObjectInfo::default() })
}

pub fn native_fence(device: Handle) -> Call {
    Call::CreateNativeFence {
        device,
        initial_value: 0,
        native_type: 0,
        flags: SyncObjectFlags::empty(),
        engine_affinity: 0,
    }
}

pub fn submit(context: Handle, packets: &[Packet]) -> Call {
    Call::SubmitCommand {
        contexts: vec![context].into(),
        commands: 0,
        length: 0,
        flags: 0,
        private_data: isa::encode(packets),
    }
}

pub fn submit_hw(queue: Handle, progress_fence_id: u64, packets: &[Packet]) -> Call {
    let private_data = isa::encode(packets);
    Call::SubmitCommandToHwQueue { queue, progress_fence_id, commands: 0, length: 0, private_data }
}

pub fn signal(device: Handle, object: Handle, value: u64) -> Call {
    let (objects, values) = (vec![object].into(), vec![value].into());
    Call::SignalFromCpu { device, objects, values, flags: SignalFlags::empty() }
}

pub fn gpu_wait(context: Handle, object: Handle, value: u64) -> Call {
    Call::WaitFromGpu { context, objects: vec![object].into(), values: vec![value].into() }
}

pub fn gpu_signal(context: Handle, object: Handle, value: u64, flags: SignalFlags) -> Call {
    let signal = GpuSignal::Monitored { objects: vec![object].into(), values: vec![value].into() };
    Call::SignalFromGpu { contexts: vec![context].into(), signal, flags }
}

pub fn acquire(context: Handle, objects: &[Handle]) -> Call {
    Call::WaitFromGpuLegacy { context, objects: objects.into(), fence_value: 0 }
}

pub fn release(context: Handle, objects: &[Handle]) -> Call {
    let signal = GpuSignal::Legacy { objects: objects.into(), fence_value: 0 };
    Call::SignalFromGpu { contexts: vec![context].into(), signal, flags: SignalFlags::empty() }
}

fn map(paging_queue: Handle, base: u64, allocation: Handle, size_pages: u64, protection: u64) -> Call {
    let (minimum, maximum, offset_pages) = (0, 0, 0);
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
}

/// Maps Zero pages at `base`; anywhere if it is 0.
pub fn map_zero(paging_queue: Handle, base: u64, pages: u64) -> Call {
    map(paging_queue, base, Handle::NULL, pages, ZERO)
}

/// Maps NoAccess pages at `base`.
pub fn map_nothing(paging_queue: Handle, base: u64, pages: u64) -> Call {
    map(paging_queue, base, Handle::NULL, pages, NO_ACCESS)
}

pub fn map_allocation(paging_queue: Handle, allocation: Handle, pages: u64) -> Call {
    map(paging_queue, 0, allocation, pages, WRITE)
}

/// Allocation of the process's own memory from this address on.
pub fn allocate(device: Handle, system_memory: u64, bytes: u64) -> Call {
    let kind = StandardAllocation::EXISTING_HEAP;
    let standard = StandardAllocation { kind, size: bytes, ..StandardAllocation::default() };
    let create = CreateAllocation {
        device,
        flags: CreateAllocationFlags::EXISTING_SYS_MEM | CreateAllocationFlags::STANDARD_ALLOCATION,
        standard: Some(standard),
        allocations: vec![AllocationInfo { system_memory, ..AllocationInfo::default() }],
        ..CreateAllocation::default()
    };
    Call::CreateAllocation { create: Box::new(create) }
}

/// A driver-private escape.
pub fn escape(adapter: Handle, device: Handle, data: Vec<u8>) -> Call {
    let (kind, context, flags) = (escape::kind::DRIVER_PRIVATE, Handle::NULL, EscapeFlags::empty());
    Call::Escape { adapter, device, context, kind, flags, data }
}

pub fn resource(adapter: Handle, device: Handle, desc: &ResourceDesc) -> Call {
    escape(adapter, device, create_resource(desc))
}

/// Waits until a fence has a value, which an engine or a paging operation stores.
pub fn come_to(client: &mut Client, device: Handle, object: Handle, value: u64) {
    match client.wait(device, object, value, value) {
        Some(WaitOutcome::Registered) => {
            let wake = client.stream.read();
            assert_eq!(wake, Ok(FromHost::Wake { event: EventId(value), status: NtStatus::SUCCESS }));
        }
        Some(WaitOutcome::Satisfied) => {}
        other => panic!("no wait for {value}: {other:?}"),
    }
}
