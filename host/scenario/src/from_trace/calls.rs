//! Calls as operations.

use d3dkmt::isa::{CommandBuffer, Packet, decode};
use d3dkmt::{Call, CreateAllocationFlags, GpuSignal, Handle};
use dxgkrnl::ProcessId;

use super::{Builder, Called};
use crate::program::{
    Address, Binding, Command, HandleRef, Kind, ObjectSpec, Operation, Piece, Space, Timeout, WriteMode,
};

const NO_WORD: &str = "a call that scenarios have no word for";

impl Builder<'_> {
    pub(super) fn operation(&mut self, process: ProcessId, call: &Call) -> Called {
        let of = |operation| Ok((operation, None));
        let giving = |kind, operation| Ok((operation, Some(kind)));
        let handle = |handle: Handle| self.handle(process, handle);
        match call {
            Call::EnumAdapters { capacity } => {
                giving(Kind::Adapter, Operation::EnumAdapters { capacity: *capacity })
            }
            Call::OpenAdapterFromLuid { luid } => {
                let found = self.config.adapters.iter().position(|adapter| adapter.luid == *luid);
                let adapter = found.ok_or("the LUID of no adapter")? as u32;
                giving(Kind::Adapter, Operation::OpenAdapter { adapter })
            }
            Call::CloseAdapter { adapter } => of(Operation::CloseAdapter { adapter: handle(*adapter) }),
            Call::QueryAdapterInfo { adapter, kind, data } => of(Operation::QueryAdapter {
                adapter: handle(*adapter),
                kind: *kind,
                bytes: data.len() as u32,
            }),
            Call::CreateDevice { adapter, .. } => {
                giving(Kind::Device, Operation::CreateDevice { adapter: handle(*adapter) })
            }
            Call::DestroyDevice { device } => of(Operation::DestroyDevice { device: handle(*device) }),
            Call::GetDeviceState { device, state_type } => {
                of(Operation::DeviceState { device: handle(*device), state_type: *state_type })
            }
            Call::CreateContextVirtual { device, node_ordinal, flags, .. } => giving(
                Kind::Context,
                Operation::CreateContext { device: handle(*device), node: *node_ordinal, flags: *flags },
            ),
            Call::DestroyContext { context } => of(Operation::DestroyContext { context: handle(*context) }),
            Call::MarkDeviceAsError { device, reason } => {
                of(Operation::MarkError { device: handle(*device), reason: *reason })
            }
            Call::SetContextPriority { context, priority, in_process } => of(Operation::SetPriority {
                context: handle(*context),
                priority: *priority,
                in_process: *in_process,
            }),
            Call::ContextPriority { context, in_process } => {
                of(Operation::Priority { context: handle(*context), in_process: *in_process })
            }
            Call::SetProcessPriorityClass { class } => of(Operation::SetPriorityClass { class: *class }),
            Call::ProcessPriorityClass => of(Operation::PriorityClass),
            Call::Escape { adapter, device, context, kind, flags, data } => of(Operation::Escape {
                adapter: handle(*adapter),
                device: handle(*device),
                context: handle(*context),
                kind: *kind,
                flags: *flags,
                data: pieces(data)?,
            }),
            Call::IsFeatureEnabled { adapter, feature_id } => {
                of(Operation::Feature { adapter: handle(*adapter), feature: *feature_id })
            }
            _ => self.of_objects(process, call),
        }
    }

    /// Synchronization objects, shares, signals and waits.
    fn of_objects(&mut self, process: ProcessId, call: &Call) -> Called {
        let of = |operation| Ok((operation, None));
        let giving = |kind, operation| Ok((operation, Some(kind)));
        match call {
            Call::CreateSynchronizationObject { device, info, legacy } => {
                let event = info.event.map(|event| self.event(process, event)).transpose()?;
                let adapter = (info.adapter != Handle::NULL).then(|| self.handle(process, info.adapter));
                let spec = ObjectSpec {
                    object_type: info.object_type,
                    flags: info.flags,
                    initial_state: info.initial_state,
                    max_count: info.max_count,
                    initial_count: info.initial_count,
                    initial_value: info.initial_value,
                    engine_affinity: info.engine_affinity,
                    event,
                    adapter,
                    target: info.vidpn_target,
                    time_100ns: info.time_100ns,
                    legacy: *legacy,
                };
                giving(Kind::Object, Operation::CreateObject { device: self.handle(process, *device), spec })
            }
            Call::DestroySynchronizationObject { object } => {
                of(Operation::DestroyObject { object: self.handle(process, *object) })
            }
            Call::ShareObjects { objects, desired_access, name, .. } => giving(
                Kind::Share,
                Operation::Share {
                    objects: self.handles(process, objects),
                    access: *desired_access,
                    name: name.clone(),
                },
            ),
            Call::OpenNtHandleFromName { name, desired_access, .. } => {
                giving(Kind::Share, Operation::OpenName { name: name.clone(), access: *desired_access })
            }
            Call::OpenSyncObject { device, token, flags, engine_affinity, legacy } => giving(
                Kind::Object,
                Operation::Open {
                    device: self.handle(process, *device),
                    share: self.share(*token)?,
                    flags: *flags,
                    engine_affinity: *engine_affinity,
                    legacy: *legacy,
                },
            ),
            Call::OpenSynchronizationObject { shared_handle } => {
                giving(Kind::Object, Operation::OpenGlobal { object: self.global(*shared_handle)? })
            }
            Call::SignalFromCpu { device, objects, values, flags } => of(Operation::Signal {
                device: self.handle(process, *device),
                targets: self.pairs(process, objects, values),
                flags: *flags,
            }),
            Call::WaitFromCpu { device, objects, values, flags, event } => {
                let event = Some(self.event(process, *event)?);
                let items = self.pairs(process, objects, values);
                of(Operation::Wait { device: self.handle(process, *device), items, flags: *flags, event })
            }
            Call::SignalFromGpu { contexts, signal, flags } => {
                let contexts = self.handles(process, contexts);
                of(match signal {
                    GpuSignal::Monitored { objects, values } => Operation::GpuSignal {
                        contexts,
                        targets: self.pairs(process, objects, values),
                        flags: *flags,
                    },
                    GpuSignal::Legacy { objects, fence_value } => Operation::GpuSignalLegacy {
                        contexts,
                        objects: self.handles(process, objects),
                        value: *fence_value,
                        flags: *flags,
                    },
                    GpuSignal::CpuEvent { event } => Operation::GpuSignalEvent {
                        contexts,
                        event: self.event(process, *event)?,
                        flags: *flags,
                    },
                })
            }
            Call::WaitFromGpu { context, objects, values } => of(Operation::GpuWait {
                context: self.handle(process, *context),
                items: self.pairs(process, objects, values),
            }),
            Call::WaitFromGpuLegacy { context, objects, fence_value } => of(Operation::GpuWaitLegacy {
                context: self.handle(process, *context),
                objects: self.handles(process, objects),
                value: *fence_value,
            }),
            Call::SubmitCommand { contexts, private_data, .. } => of(Operation::Submit {
                contexts: self.handles(process, contexts),
                commands: self.commands(process, private_data)?,
            }),
            Call::CreateNativeFence { device, initial_value, native_type, flags, engine_affinity } => giving(
                Kind::Object,
                Operation::CreateNativeFence {
                    device: self.handle(process, *device),
                    initial: *initial_value,
                    native_type: *native_type,
                    flags: *flags,
                    engine_affinity: *engine_affinity,
                },
            ),
            Call::OpenNativeFence { device, token, flags, .. } => giving(
                Kind::Object,
                Operation::OpenNativeFence {
                    device: self.handle(process, *device),
                    share: self.share(*token)?,
                    flags: *flags,
                },
            ),
            _ => self.of_queues(process, call),
        }
    }

    /// Hardware queues and keyed mutexes.
    fn of_queues(&mut self, process: ProcessId, call: &Call) -> Called {
        let of = |operation| Ok((operation, None));
        let giving = |kind, operation| Ok((operation, Some(kind)));
        match call {
            Call::CreateHwQueue { context, flags, .. } => giving(
                Kind::HwQueue,
                Operation::CreateHwQueue { context: self.handle(process, *context), flags: *flags },
            ),
            Call::DestroyHwQueue { queue } => {
                of(Operation::DestroyHwQueue { queue: self.handle(process, *queue) })
            }
            Call::SubmitCommandToHwQueue { queue, progress_fence_id, private_data, .. } => {
                of(Operation::SubmitHw {
                    queue: self.handle(process, *queue),
                    id: *progress_fence_id,
                    commands: self.commands(process, private_data)?,
                })
            }
            Call::SubmitSignalToHwQueue { queues, objects, values, flags } => of(Operation::HwSignal {
                queues: self.handles(process, queues),
                targets: self.pairs(process, objects, values),
                flags: *flags,
            }),
            Call::SubmitWaitToHwQueue { queue, objects, values } => of(Operation::HwWait {
                queue: self.handle(process, *queue),
                items: self.pairs(process, objects, values),
            }),
            Call::CreateDoorbell { queue, .. } => {
                giving(Kind::Doorbell, Operation::CreateDoorbell { queue: self.handle(process, *queue) })
            }
            Call::ConnectDoorbell { queue } => {
                of(Operation::ConnectDoorbell { queue: self.handle(process, *queue) })
            }
            Call::DestroyDoorbell { queue } => {
                of(Operation::DestroyDoorbell { queue: self.handle(process, *queue) })
            }
            Call::NotifyWorkSubmission { queue } => {
                of(Operation::NotifyWork { queue: self.handle(process, *queue) })
            }
            Call::CreateKeyedMutex { initial_value, private_data, flags } => giving(
                Kind::KeyedMutex,
                Operation::CreateKeyedMutex { key: *initial_value, data: text(private_data), flags: *flags },
            ),
            Call::OpenKeyedMutex { shared_handle, buffer } => giving(
                Kind::KeyedMutex,
                Operation::OpenKeyedMutex {
                    mutex: self.global(*shared_handle)?,
                    buffer: buffer.size,
                    data: text(&buffer.data),
                },
            ),
            Call::OpenKeyedMutexFromNtHandle { token, buffer } => giving(
                Kind::KeyedMutex,
                Operation::OpenSharedKeyedMutex {
                    share: self.share(*token)?,
                    buffer: buffer.size,
                    data: text(&buffer.data),
                },
            ),
            Call::DestroyKeyedMutex { mutex } => {
                of(Operation::DestroyKeyedMutex { mutex: self.handle(process, *mutex) })
            }
            Call::AcquireKeyedMutex { mutex, key, timeout, .. } => {
                let timeout = match timeout {
                    None => Timeout::Forever,
                    Some(0) => Timeout::Poll,
                    Some(relative @ ..0) => Timeout::Within(relative.unsigned_abs().saturating_mul(100)),
                    Some(_) => return Err("an acquire until a time of the system's clock"),
                };
                of(Operation::Acquire { mutex: self.handle(process, *mutex), key: *key, timeout })
            }
            Call::ReadKeyedMutex { .. } => Err("what the library behind an acquire reads by itself"),
            Call::ReleaseKeyedMutex { mutex, key, fence_value, private_data } => of(Operation::Release {
                mutex: self.handle(process, *mutex),
                key: *key,
                value: *fence_value,
                data: private_data.as_deref().and_then(text),
            }),
            _ => self.of_memory(process, call),
        }
    }

    fn of_memory(&mut self, process: ProcessId, call: &Call) -> Called {
        let of = |operation| Ok((operation, None));
        let giving = |kind, operation| Ok((operation, Some(kind)));
        match call {
            Call::CreatePagingQueue { device, priority, .. } => giving(
                Kind::PagingQueue,
                Operation::CreatePagingQueue { device: self.handle(process, *device), priority: *priority },
            ),
            Call::DestroyPagingQueue { queue } => {
                of(Operation::DestroyPagingQueue { queue: self.handle(process, *queue) })
            }
            Call::ReserveGpuVirtualAddress { owner, base, minimum, maximum, size } => giving(
                Kind::Address,
                Operation::Reserve {
                    owner: self.handle(process, *owner),
                    space: self.space(process, *base, *minimum, *maximum),
                    bytes: *size,
                },
            ),
            Call::MapGpuVirtualAddress {
                paging_queue,
                base,
                minimum,
                maximum,
                allocation,
                offset_pages,
                size_pages,
                protection,
            } => giving(
                Kind::Address,
                Operation::Map {
                    queue: self.handle(process, *paging_queue),
                    allocation: self.handle(process, *allocation),
                    space: self.space(process, *base, *minimum, *maximum),
                    offset: *offset_pages,
                    pages: *size_pages,
                    protection: *protection,
                },
            ),
            Call::FreeGpuVirtualAddress { adapter, base, size } => of(Operation::FreeAddress {
                adapter: self.handle(process, *adapter),
                base: self.address(process, *base),
                bytes: *size,
            }),
            Call::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, .. } => {
                let operations =
                    operations.iter().map(|one| (one.operation, self.address(process, one.base), one.size));
                of(Operation::UpdateAddress {
                    device: self.handle(process, *device),
                    context: self.handle(process, *context),
                    fence: self.handle(process, *fence),
                    value: *fence_value,
                    operations: operations.collect(),
                })
            }
            Call::CreateAllocation { create } => {
                let bytes = create.standard.as_ref().map(|standard| standard.size);
                let bytes = bytes.filter(|_| create.allocations.len() == 1);
                let bytes = bytes.ok_or("an allocation that is not one existing heap")?;
                let device = self.handle(process, create.device);
                let shared = create.flags.contains(CreateAllocationFlags::CREATE_SHARED);
                giving(Kind::Allocation, Operation::Allocate { device, bytes, shared })
            }
            Call::DestroyAllocation { device, allocations, .. } => match allocations.as_slice() {
                [allocation] => of(Operation::DestroyAllocation {
                    device: self.handle(process, *device),
                    allocation: self.handle(process, *allocation),
                }),
                _ => Err("the end of a resource, or of several allocations"),
            },
            Call::MakeResident { paging_queue, allocations, flags, .. } => of(Operation::MakeResident {
                queue: self.handle(process, *paging_queue),
                allocations: self.handles(process, allocations),
                flags: *flags,
            }),
            Call::Evict { device, allocations, .. } => of(Operation::Evict {
                device: self.handle(process, *device),
                allocations: self.handles(process, allocations),
            }),
            Call::Lock { device, allocation, .. } => of(Operation::Lock {
                device: self.handle(process, *device),
                allocation: self.handle(process, *allocation),
            }),
            Call::Unlock { device, allocation } => of(Operation::Unlock {
                device: self.handle(process, *device),
                allocation: self.handle(process, *allocation),
            }),
            _ => Err(NO_WORD),
        }
    }

    fn space(&self, process: ProcessId, base: u64, minimum: u64, maximum: u64) -> Space {
        Space { base: self.address(process, base), minimum, maximum }
    }

    fn address(&self, process: ProcessId, address: u64) -> Address {
        self.addresses.get(&(process, address)).map_or(Address::Number(address), |name| Address::Bound(*name))
    }

    fn share(&self, token: d3dkmt::ShareToken) -> Result<Binding, &'static str> {
        self.shares.get(&token).copied().ok_or("an NT handle that nobody made")
    }

    fn global(&self, shared: Handle) -> Result<HandleRef, &'static str> {
        let known = self.globals.get(&shared).ok_or("a global handle that nobody made")?;
        Ok(self.handle(known.0, known.1))
    }

    /// What a command buffer has. Bytes of no format of ours are that many bytes.
    pub(super) fn commands(&self, process: ProcessId, bytes: &[u8]) -> Result<Vec<Command>, &'static str> {
        let opaque = vec![Command::Opaque { bytes: bytes.len() as u32 }];
        let Ok(CommandBuffer::Packets(packets)) = decode(bytes) else { return Ok(opaque) };
        let command = |packet: &Packet| {
            let write = |address: u64, value, mode| {
                let object = HandleRef::Bound(*self.fences.get(&(process, address))?);
                Some(Command::Write { object, value, mode })
            };
            match *packet {
                Packet::FenceWrite { gpu_address, value } => write(gpu_address, value, WriteMode::Default),
                Packet::MarkerIn { gpu_address, value } => write(gpu_address, value, WriteMode::MarkerIn),
                Packet::MarkerOut { gpu_address, value } => write(gpu_address, value, WriteMode::MarkerOut),
                Packet::Busy { duration_ns } => Some(Command::Busy { duration_ns }),
                Packet::Hang => Some(Command::Hang),
                _ => None,
            }
        };
        let commands = packets.iter().map(command).collect::<Option<Vec<_>>>();
        commands.ok_or("a command buffer with more than writes, time and hangs")
    }
}

/// Numbers that a line has room for.
const WORDS_MAX: usize = 500;

/// Bytes as numbers of 32 bits, zeros in one.
fn pieces(data: &[u8]) -> Result<Vec<Piece>, &'static str> {
    let zeros = |count: usize| (count > 0).then_some(Piece::Zeros(count as u32));
    if data.iter().all(|byte| *byte == 0) {
        return Ok(zeros(data.len()).into_iter().collect());
    }
    let (words, rest) = data.as_chunks::<4>();
    if words.len() > WORDS_MAX || rest.iter().any(|byte| *byte != 0) {
        return Err("private data that no line has room for");
    }
    let words: Vec<_> = words.iter().map(|word| HandleRef::Raw(u32::from_le_bytes(*word))).collect();
    let numbers = (!words.is_empty()).then_some(Piece::U32(words));
    Ok(numbers.into_iter().chain(zeros(rest.len())).collect())
}

/// Private data as text, if it is such.
fn text(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok().filter(|text| !text.is_empty())?;
    text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ').then(|| text.to_owned())
}
