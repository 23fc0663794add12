//! Calls about what is queued, and about GPU addresses.

use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, DestroyAllocationFlags, GpuSignal,
    GpuVaOperation, Handle, ResourceInfo, RuntimeBuffer, StandardAllocation,
};

use super::{NO_EVENT, token};
use crate::program::{Act, Binding, Operation};
use crate::run::Run;
use crate::world::World;

/// What NT handles can be of.
const SHARED: CreateAllocationFlags = CreateAllocationFlags::CREATE_RESOURCE
    .union(CreateAllocationFlags::CREATE_SHARED)
    .union(CreateAllocationFlags::NT_SECURITY_SHARING);

impl<W: World> Run<'_, W> {
    /// The call of an operation about queues; `None` if it is about something else.
    pub(super) fn call_of_queues(&self, operation: &Operation) -> Option<Call> {
        Some(match operation {
            Operation::GpuSignal { contexts, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                let signal = GpuSignal::Monitored { objects, values };
                Call::SignalFromGpu { contexts: self.handles(contexts), signal, flags: *flags }
            }
            Operation::GpuSignalEvent { contexts, flags, .. } => Call::SignalFromGpu {
                contexts: self.handles(contexts),
                signal: GpuSignal::CpuEvent { event: NO_EVENT },
                flags: *flags,
            },
            Operation::GpuSignalLegacy { contexts, objects, value, flags } => {
                let signal = GpuSignal::Legacy { objects: self.handles(objects), fence_value: *value };
                Call::SignalFromGpu { contexts: self.handles(contexts), signal, flags: *flags }
            }
            Operation::GpuWait { context, items } => {
                let (objects, values) = self.pairs(items);
                Call::WaitFromGpu { context: self.handle(*context), objects, values }
            }
            Operation::GpuWaitLegacy { context, objects, value } => Call::WaitFromGpuLegacy {
                context: self.handle(*context),
                objects: self.handles(objects),
                fence_value: *value,
            },
            Operation::Submit { contexts, commands } => Call::SubmitCommand {
                contexts: self.handles(contexts),
                commands: 0,
                length: 0,
                flags: 0,
                private_data: self.private_data(commands),
            },
            Operation::CreateHwQueue { context, flags } => Call::CreateHwQueue {
                context: self.handle(*context),
                flags: *flags,
                private_data: Vec::new(),
            },
            Operation::DestroyHwQueue { queue } => Call::DestroyHwQueue { queue: self.handle(*queue) },
            Operation::SubmitHw { queue, id, commands } => Call::SubmitCommandToHwQueue {
                queue: self.handle(*queue),
                progress_fence_id: *id,
                commands: 0,
                length: 0,
                private_data: self.private_data(commands),
            },
            Operation::HwSignal { queues, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                Call::SubmitSignalToHwQueue { queues: self.handles(queues), objects, values, flags: *flags }
            }
            Operation::HwWait { queue, items } => {
                let (objects, values) = self.pairs(items);
                Call::SubmitWaitToHwQueue { queue: self.handle(*queue), objects, values }
            }
            Operation::CreateDoorbell { queue } => {
                Call::CreateDoorbell { queue: self.handle(*queue), rings: Vec::new() }
            }
            Operation::ConnectDoorbell { queue } => Call::ConnectDoorbell { queue: self.handle(*queue) },
            Operation::DestroyDoorbell { queue } => Call::DestroyDoorbell { queue: self.handle(*queue) },
            Operation::NotifyWork { queue } => Call::NotifyWorkSubmission { queue: self.handle(*queue) },
            _ => return None,
        })
    }

    /// The call of an operation about allocations; `None` if it is about something else.
    pub(super) fn call_of_memory(&self, act: &Act) -> Option<Call> {
        Some(match &act.operation {
            Operation::Allocate { device, bytes, shared } => {
                let mut create = existing_heap(self.handle(*device), *bytes, act.binding);
                create.flags.set(SHARED, *shared);
                Call::CreateAllocation { create: Box::new(create) }
            }
            // A resource of one standard allocation has no private data.
            Operation::OpenAllocation { device, share } => Call::OpenResourceFromNtHandle {
                device: self.handle(*device),
                token: token(*share),
                info: ResourceInfo { allocations: 1, ..ResourceInfo::default() },
                mutex_buffer: RuntimeBuffer::default(),
            },
            Operation::DestroyAllocation { device, allocation } => Call::DestroyAllocation {
                device: self.handle(*device),
                resource: Handle::NULL,
                allocations: vec![self.handle(*allocation)],
                flags: DestroyAllocationFlags::empty(),
            },
            Operation::MakeResident { queue, allocations, flags } => Call::MakeResident {
                paging_queue: self.handle(*queue),
                allocations: self.handles(allocations),
                priorities: Vec::new(),
                flags: *flags,
            },
            Operation::Evict { device, allocations } => {
                let allocations = self.handles(allocations);
                Call::Evict { device: self.handle(*device), allocations, flags: 0 }
            }
            Operation::Lock { device, allocation } => {
                let (device, allocation) = (self.handle(*device), self.handle(*allocation));
                Call::Lock { device, allocation, flags: 0 }
            }
            Operation::Unlock { device, allocation } => {
                Call::Unlock { device: self.handle(*device), allocation: self.handle(*allocation) }
            }
            _ => return None,
        })
    }

    /// The call of an operation about GPU addresses; `None` if it is about something else.
    pub(super) fn call_of_paging(&self, operation: &Operation) -> Option<Call> {
        Some(match operation {
            Operation::CreatePagingQueue { device, priority } => Call::CreatePagingQueue {
                device: self.handle(*device),
                priority: *priority,
                physical_adapter: 0,
            },
            Operation::DestroyPagingQueue { queue } => {
                Call::DestroyPagingQueue { queue: self.handle(*queue) }
            }
            Operation::Reserve { owner, space, bytes } => Call::ReserveGpuVirtualAddress {
                owner: self.handle(*owner),
                base: self.address(space.base),
                minimum: space.minimum,
                maximum: space.maximum,
                size: *bytes,
            },
            Operation::Map { queue, allocation, space, offset, pages, protection } => {
                Call::MapGpuVirtualAddress {
                    paging_queue: self.handle(*queue),
                    base: self.address(space.base),
                    minimum: space.minimum,
                    maximum: space.maximum,
                    allocation: self.handle(*allocation),
                    offset_pages: *offset,
                    size_pages: *pages,
                    protection: *protection,
                }
            }
            Operation::FreeAddress { adapter, base, bytes } => Call::FreeGpuVirtualAddress {
                adapter: self.handle(*adapter),
                base: self.address(*base),
                size: *bytes,
            },
            Operation::UpdateAddress { device, context, fence, value, operations } => {
                let operation = |(operation, base, size): &(u32, _, u64)| GpuVaOperation {
                    operation: *operation,
                    base: self.address(*base),
                    size: *size,
                    ..GpuVaOperation::default()
                };
                Call::UpdateGpuVirtualAddress {
                    device: self.handle(*device),
                    context: self.handle(*context),
                    fence: self.handle(*fence),
                    fence_value: *value,
                    operations: operations.iter().map(operation).collect(),
                    flags: 0,
                }
            }
            _ => return None,
        })
    }
}

/// An allocation of the process's own memory. Where nobody has memory its address is the runner's; a process that has
/// some takes its own.
fn existing_heap(device: Handle, bytes: u64, binding: Option<Binding>) -> CreateAllocation {
    const FIRST: u64 = 0x7E00_0000_0000;
    const APART: u64 = 1 << 32;
    let number = binding.map_or(0, |binding| u64::from(binding.0) + 1);
    CreateAllocation {
        device,
        flags: CreateAllocationFlags::EXISTING_SYS_MEM | CreateAllocationFlags::STANDARD_ALLOCATION,
        standard: Some(StandardAllocation {
            kind: StandardAllocation::EXISTING_HEAP,
            size: bytes,
            ..StandardAllocation::default()
        }),
        allocations: vec![AllocationInfo {
            system_memory: FIRST + number * APART,
            ..AllocationInfo::default()
        }],
        ..CreateAllocation::default()
    }
}
