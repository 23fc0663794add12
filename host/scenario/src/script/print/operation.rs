//! What an actor does, as it is written after its name.

use std::fmt::Write as _;

use d3dkmt::{KeyedMutexFlags, SignalFlags, SyncObjectType, WaitFromCpuFlags};

use super::{Printer, quoted};
use crate::program::{Address, Command, Engine, HandleRef, ObjectSpec, Operation, Space, Timeout};
use crate::script::escapes;
use crate::script::words::{
    ACCESS, ERROR_REASONS, GENERIC_ALL, OBJECT_TYPES, PAGING_PRIORITIES, PRIORITY_CLASSES, PROTECTIONS,
    RESIDENT_FLAGS, VA_OPERATIONS, named_or_number, write_context_flags, write_duration, write_engine,
    write_hw_queue_flags, write_number, write_object_flags, write_signal_flags,
};

impl Printer<'_> {
    pub(super) fn handle(&self, handle: HandleRef) -> String {
        match handle {
            HandleRef::Bound(binding) => self.program.name(binding).into(),
            HandleRef::Raw(0) => "null".into(),
            HandleRef::Raw(raw) => format!("{raw:#x}"),
        }
    }

    fn handles(&self, handles: &[HandleRef]) -> String {
        handles.iter().map(|handle| format!(" {}", self.handle(*handle))).collect()
    }

    fn pairs(&self, pairs: &[(HandleRef, u64)], relation: &str) -> String {
        let pair = |(object, value): &(HandleRef, u64)| {
            format!(" {}{relation}{}", self.handle(*object), write_number(*value))
        };
        pairs.iter().map(pair).collect()
    }

    pub(super) fn address(&self, address: Address) -> String {
        match address {
            Address::Bound(binding) => self.program.name(binding).into(),
            Address::Number(number) => format!("{number:#x}"),
        }
    }

    fn space(&self, space: &Space) -> String {
        let base = match space.base {
            Address::Number(0) => String::new(),
            base => format!(" base={}", self.address(base)),
        };
        let range = option_number("min", space.minimum) + &option_number("max", space.maximum);
        base + &range
    }

    pub(super) fn operation(&self, operation: &Operation) -> String {
        match operation {
            Operation::EnumAdapters { capacity: 34 } => "adapters".into(),
            Operation::EnumAdapters { capacity } => format!("adapters capacity={capacity}"),
            Operation::OpenAdapter { adapter } => format!("open_adapter {adapter}"),
            Operation::CloseAdapter { adapter } => format!("close_adapter {}", self.handle(*adapter)),
            Operation::QueryAdapter { adapter, kind, bytes } => {
                format!("query_adapter {} kind={kind} bytes={bytes}", self.handle(*adapter))
            }
            Operation::Device { adapter: 0 } => "device".into(),
            Operation::Device { adapter } => format!("device on {adapter}"),
            Operation::CreateDevice { adapter } => format!("create_device {}", self.handle(*adapter)),
            Operation::DestroyDevice { device } => format!("destroy_device {}", self.handle(*device)),
            Operation::DeviceState { device, state_type } => {
                let state_type = if *state_type == 1 { String::new() } else { format!(" type={state_type}") };
                format!("device_state {}{state_type}", self.handle(*device))
            }
            Operation::Completed { device, object } => {
                format!("completed {} {}", self.handle(*device), self.handle(*object))
            }
            Operation::MarkError { device, reason } => {
                format!("mark_error {} {}", self.handle(*device), named_or_number(&ERROR_REASONS, *reason))
            }
            Operation::CreateContext { device, node, flags } => {
                let engine = Engine { adapter: 0, node: *node };
                let engine = write_engine(engine, &self.program.setting.kernel);
                format!("context {} {engine}{}", self.handle(*device), write_context_flags(*flags))
            }
            Operation::DestroyContext { context } => format!("destroy_context {}", self.handle(*context)),
            Operation::SetPriority { context, priority, in_process } => {
                format!("priority {} {priority}{}", self.handle(*context), in_process_word(*in_process))
            }
            Operation::Priority { context, in_process } => {
                format!("priority {}{}", self.handle(*context), in_process_word(*in_process))
            }
            Operation::SetPriorityClass { class } => {
                format!("priority_class {}", named_or_number(&PRIORITY_CLASSES, *class))
            }
            Operation::PriorityClass => "priority_class".into(),
            Operation::NewEvent => "event".into(),
            Operation::Read { object } => format!("read {}", self.handle(*object)),
            other => {
                let text =
                    self.of_objects(other).or_else(|| self.of_queues(other)).or_else(|| self.of_lists(other));
                text.or_else(|| escapes::write(other, &|handle| self.handle(handle))).unwrap_or_default()
            }
        }
    }

    /// Objects, their sharing, and what the CPU does with them.
    fn of_objects(&self, operation: &Operation) -> Option<String> {
        Some(match operation {
            Operation::CreateObject { device, spec } => self.object(*device, spec),
            Operation::DestroyObject { object } => format!("destroy {}", self.handle(*object)),
            Operation::Share { objects, access, name } => {
                let name = name.as_ref().map(|name| format!(" name={}", quoted(name))).unwrap_or_default();
                format!("share{}{}{name}", self.handles(objects), write_access(*access))
            }
            Operation::OpenName { name, access } => {
                format!("open_name {}{}", quoted(name), write_access(*access))
            }
            Operation::Open { device, share, flags, engine_affinity, legacy } => {
                let share = self.program.name(*share);
                let affinity = option_number("affinity", (*engine_affinity).into());
                let legacy = if *legacy { " legacy" } else { "" };
                format!(
                    "open {} {share}{affinity}{}{legacy}",
                    self.handle(*device),
                    write_object_flags(*flags)
                )
            }
            Operation::OpenGlobal { object } => format!("open_global {}", self.handle(*object)),
            Operation::CloseShare { share } => format!("close_share {}", self.program.name(*share)),
            Operation::CreateNativeFence { device, initial, native_type, flags, engine_affinity } => {
                let native_type = match native_type {
                    0 => String::new(),
                    1 => " INTRA_GPU".into(),
                    other => format!(" type={other}"),
                };
                let options = option_number("initial", *initial)
                    + &option_number("affinity", (*engine_affinity).into());
                let flags = write_object_flags(*flags);
                format!("native_fence {}{options}{native_type}{flags}", self.handle(*device))
            }
            Operation::OpenNativeFence { device, share, flags } => {
                let share = self.program.name(*share);
                format!("open_native {} {share}{}", self.handle(*device), write_object_flags(*flags))
            }
            Operation::Signal { device, targets, flags } => {
                format!("signal {}{}{}", self.handle(*device), self.pairs(targets, "="), signal_flags(*flags))
            }
            Operation::Wait { device, items, flags, event } => {
                let any = match *flags {
                    WaitFromCpuFlags::WAIT_ANY => " any".into(),
                    flags if flags.is_empty() => String::new(),
                    flags => format!(" flags={:#x}", flags.bits()),
                };
                let event =
                    event.map(|event| format!(" event={}", self.program.name(event))).unwrap_or_default();
                format!("wait {}{}{any}{event}", self.handle(*device), self.pairs(items, ">="))
            }
            other => return self.of_keyed_mutexes(other),
        })
    }

    fn of_keyed_mutexes(&self, operation: &Operation) -> Option<String> {
        let option_data = |data: &Option<String>| {
            data.as_ref().map(|data| format!(" data={}", quoted(data))).unwrap_or_default()
        };
        Some(match operation {
            Operation::CreateKeyedMutex { key, data, flags } => {
                let flags = match *flags {
                    KeyedMutexFlags::NT_SECURITY_SHARING => " shared".into(),
                    flags if flags.is_empty() => String::new(),
                    flags => format!(" flags={:#x}", flags.bits()),
                };
                format!("keyed_mutex{}{}{flags}", option_number("key", *key), option_data(data))
            }
            Operation::OpenKeyedMutex { mutex, buffer, data } => {
                let buffer = option_number("buffer", (*buffer).into()) + &option_data(data);
                format!("open_keyed_mutex {}{buffer}", self.handle(*mutex))
            }
            Operation::OpenSharedKeyedMutex { share, buffer, data } => {
                let buffer = option_number("buffer", (*buffer).into()) + &option_data(data);
                format!("open_keyed_mutex {}{buffer}", self.program.name(*share))
            }
            Operation::DestroyKeyedMutex { mutex } => format!("destroy_keyed_mutex {}", self.handle(*mutex)),
            Operation::Acquire { mutex, key, timeout } => {
                let timeout = match *timeout {
                    Timeout::Forever => String::new(),
                    Timeout::Poll => " poll".into(),
                    Timeout::Within(time) => format!(" timeout={}", write_duration(time)),
                    Timeout::Until(time) => format!(" until={}", write_duration(time)),
                };
                format!("acquire {} key={}{timeout}", self.handle(*mutex), write_number(*key))
            }
            Operation::Release { mutex, key, value, data } => format!(
                "release {} key={}{}{}",
                self.handle(*mutex),
                write_number(*key),
                option_number("value", *value),
                option_data(data)
            ),
            _ => return None,
        })
    }

    /// What is queued, and the queues.
    fn of_queues(&self, operation: &Operation) -> Option<String> {
        Some(match operation {
            Operation::GpuSignal { contexts, targets, flags } => {
                let (contexts, targets) = (self.handles(contexts), self.pairs(targets, "="));
                format!("gpu_signal{contexts}{targets}{}", signal_flags(*flags))
            }
            Operation::GpuSignalEvent { contexts, event, flags } => {
                let flags = write_signal_flags(*flags, SignalFlags::ENQUEUE_CPU_EVENT);
                format!("gpu_signal{} event={}{flags}", self.handles(contexts), self.program.name(*event))
            }
            Operation::GpuSignalLegacy { contexts, objects, value, flags } => {
                let (contexts, objects) = (self.handles(contexts), self.handles(objects));
                let value = option_number("value", *value);
                format!("gpu_signal{contexts} legacy{objects}{value}{}", signal_flags(*flags))
            }
            Operation::GpuWait { context, items } => {
                format!("gpu_wait {}{}", self.handle(*context), self.pairs(items, ">="))
            }
            Operation::GpuWaitLegacy { context, objects, value } => {
                let value = option_number("value", *value);
                format!("gpu_wait {} legacy{}{value}", self.handle(*context), self.handles(objects))
            }
            Operation::Submit { contexts, commands } => {
                format!("submit{}{}", self.handles(contexts), self.commands(commands))
            }
            Operation::CreateHwQueue { context, flags } => {
                format!("hw_queue {}{}", self.handle(*context), write_hw_queue_flags(*flags))
            }
            Operation::DestroyHwQueue { queue } => format!("destroy_hw_queue {}", self.handle(*queue)),
            Operation::SubmitHw { queue, id, commands } => {
                let id = write_number(*id);
                format!("submit_hw {} id={id}{}", self.handle(*queue), self.commands(commands))
            }
            Operation::HwSignal { queues, targets, flags } => {
                let (queues, targets) = (self.handles(queues), self.pairs(targets, "="));
                format!("hw_signal{queues}{targets}{}", signal_flags(*flags))
            }
            Operation::HwWait { queue, items } => {
                format!("hw_wait {}{}", self.handle(*queue), self.pairs(items, ">="))
            }
            Operation::CreateDoorbell { queue } => format!("doorbell {}", self.handle(*queue)),
            Operation::ConnectDoorbell { queue } => format!("connect {}", self.handle(*queue)),
            Operation::DestroyDoorbell { queue } => format!("destroy_doorbell {}", self.handle(*queue)),
            Operation::RingDoorbell { queue, id, commands } => {
                let id = write_number(*id);
                format!("ring {} id={id}{}", self.handle(*queue), self.commands(commands))
            }
            Operation::NotifyWork { queue } => format!("notify {}", self.handle(*queue)),
            other => return self.of_paging(other),
        })
    }

    fn of_paging(&self, operation: &Operation) -> Option<String> {
        Some(match operation {
            Operation::CreatePagingQueue { device, priority: 0 } => {
                format!("paging_queue {}", self.handle(*device))
            }
            Operation::CreatePagingQueue { device, priority } => {
                let priority = named_or_number(&PAGING_PRIORITIES, *priority);
                format!("paging_queue {} {priority}", self.handle(*device))
            }
            Operation::DestroyPagingQueue { queue } => {
                format!("destroy_paging_queue {}", self.handle(*queue))
            }
            Operation::Reserve { owner, space, bytes } => {
                format!("reserve {} bytes={bytes:#x}{}", self.handle(*owner), self.space(space))
            }
            Operation::Map { queue, allocation, space, offset, pages, protection } => {
                let named = PROTECTIONS.into_iter().filter(|(_, bit)| protection & bit != 0);
                let names: String = named.clone().map(|(name, _)| format!(" {name}")).collect();
                let rest = named.fold(*protection, |rest, (_, bit)| rest & !bit);
                let rest = option_number("offset", *offset) + &names + &option_number("protection", rest);
                let allocation = match allocation {
                    HandleRef::Raw(0) => String::new(),
                    other => format!(" {}", self.handle(*other)),
                };
                let queue = self.handle(*queue);
                format!("map {queue}{allocation} pages={pages}{}{rest}", self.space(space))
            }
            Operation::FreeAddress { adapter, base, bytes } => {
                let (adapter, base) = (self.handle(*adapter), self.address(*base));
                format!("free_address {adapter} base={base} bytes={bytes:#x}")
            }
            Operation::UpdateAddress { device, context, fence, value, operations } => {
                let (device, context) = (self.handle(*device), self.handle(*context));
                let (fence, value) = (self.handle(*fence), write_number(*value));
                let mut text = format!("update_address {device} {context} fence={fence} value={value}");
                for (operation, base, bytes) in operations {
                    let operation = named_or_number(&VA_OPERATIONS, *operation);
                    let _ = write!(text, " {operation}({}, {bytes:#x})", self.address(*base));
                }
                text
            }
            other => return self.of_memory(other),
        })
    }

    fn of_memory(&self, operation: &Operation) -> Option<String> {
        let both =
            |one: &HandleRef, other: &HandleRef| format!("{} {}", self.handle(*one), self.handle(*other));
        Some(match operation {
            Operation::Allocate { device, bytes, shared } => {
                let shared = if *shared { " shared" } else { "" };
                format!("allocate {} bytes={bytes:#x}{shared}", self.handle(*device))
            }
            Operation::OpenAllocation { device, share } => {
                format!("open_allocation {} {}", self.handle(*device), self.program.name(*share))
            }
            Operation::DestroyAllocation { device, allocation } => {
                format!("destroy_allocation {}", both(device, allocation))
            }
            Operation::MakeResident { queue, allocations, flags } => {
                let named = RESIDENT_FLAGS.into_iter().filter(|(_, bit)| flags & bit != 0);
                let names: String = named.clone().map(|(name, _)| format!(" {name}")).collect();
                let rest = named.fold(*flags, |rest, (_, bit)| rest & !bit);
                let rest = option_number("flags", rest.into());
                format!("make_resident {}{}{names}{rest}", self.handle(*queue), self.handles(allocations))
            }
            Operation::Evict { device, allocations } => {
                format!("evict {}{}", self.handle(*device), self.handles(allocations))
            }
            Operation::Lock { device, allocation } => format!("lock {}", both(device, allocation)),
            Operation::Unlock { device, allocation } => format!("unlock {}", both(device, allocation)),
            _ => return None,
        })
    }

    fn commands(&self, commands: &[Command]) -> String {
        commands.iter().map(|command| format!(" {}", self.command(command))).collect()
    }

    fn command(&self, command: &Command) -> String {
        match command {
            Command::Write { object, value, mode } => {
                format!("{}({}, {})", mode.name(), self.handle(*object), write_number(*value))
            }
            Command::Busy { duration_ns } => format!("busy({})", write_duration(*duration_ns)),
            Command::List(list) => format!("list({})", self.program.name(*list)),
            Command::Hang => "hang".into(),
            Command::Opaque { bytes } => format!("opaque({bytes})"),
        }
    }

    fn object(&self, device: HandleRef, spec: &ObjectSpec) -> String {
        let mut text = match spec.object_type {
            SyncObjectType::MONITORED_FENCE if !spec.legacy => format!("fence {}", self.handle(device)),
            other => {
                let named = OBJECT_TYPES.into_iter().find(|(_, known)| *known == other);
                let name = named.map_or_else(|| other.0.to_string(), |(name, _)| name.into());
                format!("object {} {name}", self.handle(device))
            }
        };
        text += &option_number("initial", spec.initial_value);
        text += &option_number("count", spec.initial_count.into());
        text += &option_number("max", spec.max_count.into());
        text += &option_number("affinity", spec.engine_affinity.into());
        if let Some(adapter) = spec.adapter {
            let _ = write!(text, " adapter={}", self.handle(adapter));
        }
        text += &option_number("target", spec.target.into());
        if spec.time_100ns != 0 {
            let _ = write!(text, " time={}", write_duration(spec.time_100ns.saturating_mul(100)));
        }
        if spec.initial_state {
            text += " owned";
        }
        if let Some(event) = spec.event {
            let _ = write!(text, " event={}", self.program.name(event));
        }
        text += &write_object_flags(spec.flags);
        if spec.legacy {
            text += " legacy";
        }
        text
    }
}

/// ` KEY=NUMBER`, nothing for 0.
fn option_number(key: &str, number: u64) -> String {
    if number == 0 { String::new() } else { format!(" {key}={}", write_number(number)) }
}

fn in_process_word(in_process: bool) -> &'static str {
    if in_process { " in_process" } else { "" }
}

fn write_access(access: u32) -> String {
    match access {
        GENERIC_ALL => String::new(),
        other => match ACCESS.into_iter().find(|(_, known)| *known == other) {
            Some((name, _)) => format!(" access={name}"),
            None => format!(" access={other:#x}"),
        },
    }
}

fn signal_flags(flags: SignalFlags) -> String {
    if flags.contains(SignalFlags::ALLOW_FENCE_REWIND) && flags.unknown() == 0 {
        let rest = flags - SignalFlags::ALLOW_FENCE_REWIND;
        format!(" rewind{}", write_signal_flags(rest, SignalFlags::empty()))
    } else {
        write_signal_flags(flags, SignalFlags::empty())
    }
}
