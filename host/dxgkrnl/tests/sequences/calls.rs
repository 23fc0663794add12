//! Converts an operation to a call with the handles of its process.

use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags, SEGMENT_LOCAL};
use d3dkmt::{
    AllocationInfo, Call, CreateAllocation, CreateAllocationFlags, CreateContextFlags,
    DestroyAllocationFlags, EventId, GpuSignal, GpuVaOperation, Handle, Handles, HwQueueFlags,
    KeyedMutexFlags, ResourceInfo, RuntimeBuffer, ShareToken, SignalFlags, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType, Values, WaitFromCpuFlags, isa,
};

use super::ops::{Command, Legacy, Op, Targets};
use super::pair::{Guest, Pair};
use crate::naive::{ADVANCED_NODE, BASIC_NODE, PAGE_BYTES};

impl Pair {
    #[expect(clippy::too_many_lines, reason = "a line for each operation")]
    pub(super) fn call_of(&mut self, at: usize, op: &Op) -> (Call, bool) {
        match op {
            Op::GpuSignal { .. }
            | Op::CpuEvent { .. }
            | Op::GpuWait { .. }
            | Op::Submit { .. }
            | Op::LegacySignal { .. }
            | Op::LegacyWait { .. } => return self.packet_of(at, op),
            Op::CreateKeyed { .. }
            | Op::OpenKeyed { .. }
            | Op::DestroyKeyed { .. }
            | Op::Acquire { .. }
            | Op::Release { .. }
            | Op::ReadKeyed { .. } => return (self.keyed_call_of(at, op), false),
            Op::CreateHwQueue { .. }
            | Op::DestroyHwQueue { .. }
            | Op::SubmitHw { .. }
            | Op::SignalHw { .. }
            | Op::WaitHw { .. } => return (self.hw_call_of(at, op), false),
            Op::CreatePagingQueue { .. }
            | Op::DestroyPagingQueue { .. }
            | Op::Map { .. }
            | Op::Update { .. } => return (self.paging_call_of(at, op), false),
            Op::CreateMemory { .. }
            | Op::OpenMemory { .. }
            | Op::LockMemory { .. }
            | Op::UnlockMemory { .. }
            | Op::DestroyMemory { .. } => return (self.memory_call_of(at, op), false),
            _ => {}
        }
        let guest = &mut self.guests[at];
        let device = |device: &usize| pick(&guest.devices, *device);
        let call = match op {
            Op::MarkDevice { device: number, reason, .. } => {
                Call::MarkDeviceAsError { device: device(number), reason: *reason }
            }
            Op::DestroyDevice { device: number, .. } => Call::DestroyDevice { device: device(number) },
            Op::CreateFence { device: number, value, flags, .. } => {
                let info = SyncObjectInfo {
                    object_type: SyncObjectType::MONITORED_FENCE,
                    flags: SyncObjectFlags::from_bits_retain(*flags),
                    initial_value: *value,
                    ..SyncObjectInfo::default()
                };
                Call::CreateSynchronizationObject { device: device(number), info, legacy: false }
            }
            Op::CreateLegacy { device: number, kind, flags, first, .. } => {
                let device = device(number);
                guest.events += 1;
                let info = legacy_info(*kind, *flags, EventId(guest.events));
                Call::CreateSynchronizationObject { device, info, legacy: *first }
            }
            Op::DestroyLegacy { object, .. } => {
                Call::DestroySynchronizationObject { object: pick(&guest.legacy, *object) }
            }
            Op::OpenGlobal { global, .. } => {
                Call::OpenSynchronizationObject { shared_handle: pick(&self.globals, *global) }
            }
            Op::CreateNative { device: number, value, flags, .. } => Call::CreateNativeFence {
                device: device(number),
                initial_value: *value,
                native_type: 0,
                flags: SyncObjectFlags::from_bits_retain(*flags),
                engine_affinity: 0,
            },
            Op::OpenNative { device: number, share, flags, .. } => Call::OpenNativeFence {
                device: device(number),
                token: token(*share),
                flags: SyncObjectFlags::from_bits_retain(*flags),
                engine_affinity: 0,
            },
            Op::DestroyFence { fence, .. } => {
                Call::DestroySynchronizationObject { object: pick(&guest.fences, *fence) }
            }
            Op::Share { fence, share, access, name, .. } => Call::ShareObjects {
                objects: vec![pick(&guest.fences, *fence)],
                desired_access: *access,
                name: (*name > 0).then(|| format!("name {name}")),
                token: token(*share),
            },
            Op::OpenName { share, access, name, .. } => Call::OpenNtHandleFromName {
                name: format!("NAME {name}"),
                desired_access: *access,
                token: token(*share),
                sync_object: true,
            },
            Op::Open { device: number, share, flags, .. } => Call::OpenSyncObject {
                device: device(number),
                token: token(*share),
                flags: SyncObjectFlags::from_bits_retain(*flags),
                engine_affinity: 0,
                legacy: false,
            },
            Op::CreateSyncFile { device: number, target: (fence, fence_value), share, .. } => {
                Call::CreateSyncFile {
                    device: device(number),
                    fence: pick(&guest.fences, *fence),
                    fence_value: *fence_value,
                    token: token(*share),
                }
            }
            Op::OpenSyncFile { device: number, share, .. } => {
                Call::OpenSyncFile { device: device(number), token: token(*share) }
            }
            Op::WaitSyncFile { context, share, .. } => {
                Call::WaitSyncFile { context: pick(&guest.contexts, *context), token: token(*share) }
            }
            Op::Signal { device: number, targets, flags, .. } => {
                let (objects, values) = targets_of(guest, targets);
                let flags = SignalFlags::from_bits_retain(*flags);
                Call::SignalFromCpu { device: device(number), objects, values, flags }
            }
            Op::Wait { device: number, targets, any, again, .. } => {
                let (device, (objects, values)) = (device(number), targets_of(guest, targets));
                guest.events += u64::from(!*again);
                let event = EventId(guest.events.max(1));
                let flags = if *any { WaitFromCpuFlags::WAIT_ANY } else { WaitFromCpuFlags::empty() };
                Call::WaitFromCpu { device, objects, values, flags, event }
            }
            Op::Cancel { event, .. } => Call::CancelWait { event: EventId(*event) },
            Op::CreateContext { device: number, node, .. } => Call::CreateContextVirtual {
                device: device(number),
                node_ordinal: *node,
                engine_affinity: 0,
                flags: match *node {
                    ADVANCED_NODE | BASIC_NODE => CreateContextFlags::HW_QUEUE_SUPPORTED,
                    _ => CreateContextFlags::empty(),
                },
                client_hint: 0,
                private_data: vec![],
            },
            Op::DestroyContext { context, .. } => {
                Call::DestroyContext { context: pick(&guest.contexts, *context) }
            }
            _ => unreachable!("`apply` does it"),
        };
        (call, false)
    }

    fn keyed_call_of(&mut self, at: usize, op: &Op) -> Call {
        let guest = &mut self.guests[at];
        match op {
            Op::CreateKeyed { key, nt, .. } => {
                let flags = if *nt { KeyedMutexFlags::NT_SECURITY_SHARING } else { KeyedMutexFlags::empty() };
                Call::CreateKeyedMutex { initial_value: *key, private_data: vec![], flags }
            }
            Op::OpenKeyed { global, .. } => {
                let shared_handle = pick(&self.keyed_globals, *global);
                Call::OpenKeyedMutex { shared_handle, buffer: RuntimeBuffer::default() }
            }
            Op::DestroyKeyed { mutex, .. } => Call::DestroyKeyedMutex { mutex: pick(&guest.keyed, *mutex) },
            Op::Acquire { mutex, key, timeout, .. } => {
                guest.events += 1;
                let (mutex, event) = (pick(&guest.keyed, *mutex), EventId(guest.events));
                Call::AcquireKeyedMutex { mutex, key: *key, timeout: *timeout, event }
            }
            Op::Release { mutex, key, value, .. } => {
                let mutex = pick(&guest.keyed, *mutex);
                Call::ReleaseKeyedMutex { mutex, key: *key, fence_value: *value, private_data: None }
            }
            Op::ReadKeyed { mutex, .. } => Call::ReadKeyedMutex { mutex: pick(&guest.keyed, *mutex) },
            _ => unreachable!("the others have no keyed mutex"),
        }
    }

    fn hw_call_of(&mut self, at: usize, op: &Op) -> Call {
        let guest = &mut self.guests[at];
        match op {
            Op::CreateHwQueue { context, flags, .. } => Call::CreateHwQueue {
                context: pick(&guest.contexts, *context),
                flags: HwQueueFlags::from_bits_retain(*flags),
                private_data: vec![],
            },
            Op::DestroyHwQueue { queue, .. } => {
                Call::DestroyHwQueue { queue: pick(&guest.hw_queues, *queue) }
            }
            Op::SubmitHw { queue: number, step, commands, .. } => {
                let queue = pick(&guest.hw_queues, *number);
                let number = number % guest.hw_ids.len().max(1);
                let id = guest.hw_ids.get(number).map_or(0, |id| id + step);
                guest.hw_ids.iter_mut().skip(number).take(1).for_each(|last| *last = id);
                Call::SubmitCommandToHwQueue {
                    queue,
                    progress_fence_id: id,
                    commands: 0,
                    length: 0,
                    private_data: buffer_of(guest, commands, true),
                }
            }
            Op::SignalHw { queues, targets, flags, .. } => {
                let (objects, values) = targets_of(guest, targets);
                Call::SubmitSignalToHwQueue {
                    queues: queues.iter().map(|queue| pick(&guest.hw_queues, *queue)).collect(),
                    objects,
                    values,
                    flags: SignalFlags::from_bits_retain(*flags),
                }
            }
            Op::WaitHw { queue, targets, .. } => {
                let (objects, values) = targets_of(guest, targets);
                Call::SubmitWaitToHwQueue { queue: pick(&guest.hw_queues, *queue), objects, values }
            }
            _ => unreachable!("the others have no hardware queue"),
        }
    }

    fn memory_call_of(&self, at: usize, op: &Op) -> Call {
        let guest = &self.guests[at];
        let device = |device: &usize| pick(&guest.devices, *device);
        let allocation = |number: &usize| pick(&guest.allocations, *number);
        match op {
            Op::CreateMemory { device: number, bytes, resource, shared, visible, .. } => {
                let (segment, mut data_flags) = (SEGMENT_LOCAL, AllocationDataFlags::empty());
                data_flags.set(AllocationDataFlags::CPU_VISIBLE, *visible);
                let data =
                    AllocationData { size: *bytes, segment, flags: data_flags, ..AllocationData::default() };
                let mut flags = CreateAllocationFlags::empty();
                flags.set(CreateAllocationFlags::CREATE_RESOURCE, *resource);
                flags.set(CreateAllocationFlags::CREATE_SHARED, *shared);
                let private_data = data.encode().to_vec();
                let allocations = vec![AllocationInfo { private_data, ..AllocationInfo::default() }];
                let create = CreateAllocation {
                    device: device(number),
                    flags,
                    allocations,
                    ..CreateAllocation::default()
                };
                Call::CreateAllocation { create: Box::new(create) }
            }
            Op::OpenMemory { device: number, global, short, .. } => Call::OpenResource {
                device: device(number),
                shared_handle: pick(&self.memory_globals, *global),
                info: ResourceInfo {
                    allocations: 1,
                    total_private_data_size: AllocationData::BYTES as u32 - u32::from(*short),
                    ..ResourceInfo::default()
                },
            },
            Op::LockMemory { device: number, allocation: named, .. } => {
                Call::Lock { device: device(number), allocation: allocation(named), flags: 0 }
            }
            Op::UnlockMemory { device: number, allocation: named, .. } => {
                Call::Unlock { device: device(number), allocation: allocation(named) }
            }
            Op::DestroyMemory { device: number, allocation: named, whole, .. } => {
                let resource = pick(&guest.resources, *named);
                let is_whole = *whole && resource != Handle::NULL;
                Call::DestroyAllocation {
                    device: device(number),
                    resource: if is_whole { resource } else { Handle::NULL },
                    allocations: if is_whole { vec![] } else { vec![allocation(named)] },
                    flags: DestroyAllocationFlags::empty(),
                }
            }
            _ => unreachable!("the others have no memory of the device"),
        }
    }

    fn paging_call_of(&mut self, at: usize, op: &Op) -> Call {
        let guest = &self.guests[at];
        let page = |(range, page): &(usize, u64)| {
            let range = guest.ranges.get(range % guest.ranges.len().max(1));
            range.copied().unwrap_or(0x5_0000) + page * PAGE_BYTES
        };
        match op {
            Op::CreatePagingQueue { device, priority, .. } => Call::CreatePagingQueue {
                device: pick(&guest.devices, *device),
                priority: *priority,
                physical_adapter: 0,
            },
            Op::DestroyPagingQueue { queue, .. } => {
                Call::DestroyPagingQueue { queue: pick(&guest.paging_queues, *queue) }
            }
            Op::Map { queue, again: None, zero: false, .. } => Call::ReserveGpuVirtualAddress {
                owner: pick(&guest.paging_queues, *queue),
                base: 0,
                minimum: 0,
                maximum: 0,
                size: 0x1_0000,
            },
            Op::Map { queue, again, pages, zero, .. } => Call::MapGpuVirtualAddress {
                paging_queue: pick(&guest.paging_queues, *queue),
                base: again.as_ref().map_or(0, page),
                minimum: 0,
                maximum: 0,
                allocation: Handle::NULL,
                offset_pages: 0,
                size_pages: *pages,
                protection: if *zero { ZERO } else { NO_ACCESS },
            },
            Op::Update { device, context, target: (fence, value), pages, waits, .. } => {
                let unmap = |base| GpuVaOperation {
                    operation: UNMAP,
                    base,
                    size: PAGE_BYTES,
                    ..GpuVaOperation::default()
                };
                Call::UpdateGpuVirtualAddress {
                    device: pick(&guest.devices, *device),
                    context: pick(&guest.contexts, *context),
                    fence: pick(&guest.fences, *fence),
                    fence_value: *value,
                    operations: pages.iter().map(|number| unmap(page(number))).collect(),
                    flags: u32::from(!*waits),
                }
            }
            _ => unreachable!("the others have no paging queue"),
        }
    }

    fn packet_of(&mut self, at: usize, op: &Op) -> (Call, bool) {
        let guest = &mut self.guests[at];
        let all =
            |contexts: &[usize]| contexts.iter().map(|context| pick(&guest.contexts, *context)).collect();
        match op {
            Op::GpuSignal { contexts, targets, flags, one_way, .. } => {
                let (objects, values) = targets_of(guest, targets);
                let signal = GpuSignal::Monitored { objects, values };
                let flags = SignalFlags::from_bits_retain(*flags);
                (Call::SignalFromGpu { contexts: all(contexts), signal, flags }, *one_way)
            }
            Op::LegacySignal { contexts, objects, value, array, .. } => {
                let contexts = all(contexts);
                let objects: Handles = objects.iter().map(|object| pick(&guest.legacy, *object)).collect();
                let signal = match array {
                    true => {
                        GpuSignal::Monitored { values: Values::from_elem(*value, objects.len()), objects }
                    }
                    false => GpuSignal::Legacy { objects, fence_value: *value },
                };
                (Call::SignalFromGpu { contexts, signal, flags: SignalFlags::empty() }, false)
            }
            Op::LegacyWait { context, objects, with, value, array, .. } => {
                let context = pick(&guest.contexts, *context);
                let mut objects: Handles =
                    objects.iter().map(|object| pick(&guest.legacy, *object)).collect();
                if *array && *with > 0 {
                    objects.push(pick(&guest.fences, with - 1));
                }
                let call = match array {
                    true => Call::WaitFromGpu {
                        context,
                        values: Values::from_elem(*value, objects.len()),
                        objects,
                    },
                    false => Call::WaitFromGpuLegacy { context, objects, fence_value: *value },
                };
                (call, false)
            }
            Op::CpuEvent { contexts, at_submission, .. } => {
                let contexts = all(contexts);
                guest.events += 1;
                let signal = GpuSignal::CpuEvent { event: EventId(guest.events) };
                let mut flags = SignalFlags::ENQUEUE_CPU_EVENT;
                flags.set(SignalFlags::SIGNAL_AT_SUBMISSION, *at_submission);
                (Call::SignalFromGpu { contexts, signal, flags }, false)
            }
            Op::GpuWait { context, targets, one_way, .. } => {
                let (objects, values) = targets_of(guest, targets);
                (Call::WaitFromGpu { context: pick(&guest.contexts, *context), objects, values }, *one_way)
            }
            Op::Submit { context, commands, .. } => {
                let context = pick(&guest.contexts, *context);
                let private_data = buffer_of(guest, commands, false);
                let contexts = Handles::from_slice(&[context]);
                (Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data }, false)
            }
            _ => unreachable!("the others have no queue"),
        }
    }
}

/// Protection types and update flags, as in the headers.
const ZERO: u64 = 4;
const NO_ACCESS: u64 = 8;
const UNMAP: u32 = 1;

fn legacy_info(kind: Legacy, flags: u32, event: EventId) -> SyncObjectInfo {
    let flags = SyncObjectFlags::from_bits_retain(flags);
    let info = SyncObjectInfo { flags, ..SyncObjectInfo::default() };
    match kind {
        Legacy::Mutex { owned } => {
            SyncObjectInfo { object_type: SyncObjectType::MUTEX, initial_state: owned, ..info }
        }
        Legacy::Semaphore { count, max } => SyncObjectInfo {
            object_type: SyncObjectType::SEMAPHORE,
            initial_count: count,
            max_count: max,
            ..info
        },
        Legacy::Fence { value } => {
            SyncObjectInfo { object_type: SyncObjectType::FENCE, initial_value: value, ..info }
        }
        Legacy::Notification => {
            SyncObjectInfo { object_type: SyncObjectType::CPU_NOTIFICATION, event: Some(event), ..info }
        }
    }
}

pub(super) fn pick(handles: &[Handle], number: usize) -> Handle {
    if handles.is_empty() { Handle::NULL } else { handles[number % handles.len()] }
}

/// Bytes of a command buffer.
fn buffer_of(guest: &Guest, commands: &[Command], of_hw_queue: bool) -> Vec<u8> {
    let address = |fence: &usize| {
        let addresses = &guest.addresses;
        addresses.get(fence % addresses.len().max(1)).copied().unwrap_or(0)
    };
    let packet = |command: &Command| match command {
        Command::Busy { nanos } => isa::Packet::Busy { duration_ns: *nanos },
        Command::Write { fence, value } => {
            isa::Packet::FenceWrite { gpu_address: address(fence), value: *value }
        }
        Command::Wait { fence, value } if of_hw_queue => {
            isa::Packet::FenceWait { gpu_address: address(fence), value: *value }
        }
        Command::Hang => isa::Packet::Hang,
        Command::Wait { .. } => isa::Packet::Busy { duration_ns: 40 },
    };
    isa::encode(&commands.iter().map(packet).collect::<Vec<_>>())
}

pub(super) fn token(share: usize) -> ShareToken {
    ShareToken([share as u8; 16])
}

fn targets_of(guest: &Guest, targets: &Targets) -> (Handles, Values) {
    targets.iter().map(|(fence, value)| (pick(&guest.fences, *fence), *value)).unzip()
}
