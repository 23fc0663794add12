//! Calls with the fields that attacks need, and packets of command buffers.

use d3dkmt::calls::{self, map};
pub use d3dkmt::calls::{
    acquire, create_context, create_fence, create_hw_queue, create_native_fence, create_object,
    create_paging_queue, escape, gpu_wait, open, release, share, signal, wait,
};
use d3dkmt::gpu_va::protection::{NO_ACCESS, WRITE, ZERO};
use d3dkmt::isa::{self, Packet, ResourceDesc};
use d3dkmt::list_escape::create_resource;
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, EventId, GpuSignal, Handle, NtStatus,
    SignalFlags, StandardAllocation, SyncObjectInfo, SyncObjectType, WaitOutcome,
};
use e2e::wire::Client;
use proto::convert::FromHost;

/// Address that an attacker claims for its memory. It is never read.
pub const MEMORY: u64 = 0x7E00_0000_0000;

pub fn busy(duration_ns: u64) -> Packet {
    Packet::Busy { duration_ns }
}

pub fn fence_write(gpu_address: u64, value: u64) -> Packet {
    Packet::FenceWrite { gpu_address, value }
}

pub fn semaphore(device: Handle, max_count: u32) -> Call {
    let object_type = SyncObjectType::SEMAPHORE;
    create_object(device, SyncObjectInfo { object_type, max_count, ..SyncObjectInfo::default() })
}

pub fn submit(context: Handle, packets: &[Packet]) -> Call {
    calls::submit(context, isa::encode(packets))
}

pub fn submit_hw(queue: Handle, progress_fence_id: u64, packets: &[Packet]) -> Call {
    calls::submit_to_hw_queue(queue, progress_fence_id, isa::encode(packets))
}

pub fn gpu_signal(context: Handle, object: Handle, value: u64, flags: SignalFlags) -> Call {
    let signal = GpuSignal::Monitored { objects: vec![object].into(), values: vec![value].into() };
    Call::SignalFromGpu { contexts: vec![context].into(), signal, flags }
}

/// Reserves a range of at least so many bytes at `base`; anywhere if it is 0.
pub fn reserve(owner: Handle, base: u64, bytes: u64) -> Call {
    let size = bytes.next_multiple_of(0x1_0000);
    Call::ReserveGpuVirtualAddress { owner, base, minimum: 0, maximum: 0, size }
}

/// Maps Zero pages at `base`, in a range that was reserved; anywhere if it is 0.
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
