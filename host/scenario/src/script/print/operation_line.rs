//! Writes operations, as they follow the actor's name.

use std::fmt::Write as _;

use d3dkmt::gpu_va::DO_NOT_WAIT;
use d3dkmt::{CallOf, CreateContextFlags, EscapeFlags, SignalFlags, SyncObjectType, WaitFromCpuFlags};

use super::{Printer, quoted};
use crate::program::{
    AdapterNumber, Address, AllocationSpec, Command, Engine, GpuSignalSpec, GpuVaRange, HandleRef,
    MutexBuffer, NamedCall, ObjectSpec, Operation, PrivateData,
};
use crate::script::words::{
    ESCAPE_KINDS, OBJECT_TYPES, PRIORITY_CLASSES, VA_OPERATIONS, named_or_number, number_names,
    write_duration, write_engine, write_flags, write_number, write_object_flags,
};
use crate::script::{escapes, forms};

impl Printer<'_> {
    pub(in crate::script) fn handle(&self, handle: HandleRef) -> String {
        match handle {
            HandleRef::Bound(binding) => self.program.name(binding).into(),
            HandleRef::Raw(0) => "null".into(),
            HandleRef::Raw(raw) => format!("{raw:#x}"),
        }
    }

    fn handles(&self, handles: &[HandleRef]) -> String {
        handles.iter().map(|handle| format!(" {}", self.handle(*handle))).collect()
    }

    fn pairs(&self, objects: &[HandleRef], values: &[u64], relation: &str) -> String {
        let pair = |(object, value): (&HandleRef, &u64)| {
            format!(" {}{relation}{}", self.handle(*object), write_number(*value))
        };
        objects.iter().zip(values).map(pair).collect()
    }

    pub(in crate::script) fn address(&self, address: Address) -> String {
        match address {
            Address::Bound(binding) => self.program.name(binding).into(),
            Address::Number(number) => format!("{number:#x}"),
        }
    }

    pub(super) fn operation(&self, operation: &Operation) -> String {
        match operation {
            Operation::Call(call) => {
                forms::write(self, call).unwrap_or_else(|| self.call_by_hand(call).unwrap_or_default())
            }
            Operation::Device { adapter: AdapterNumber(0) } => "device".into(),
            Operation::Device { adapter } => format!("device on {}", adapter.0),
            Operation::CloseShare { share } => format!("close_share {}", self.program.name(share.0)),
            Operation::RingDoorbell { queue, id, commands } => {
                let id = write_number(*id);
                format!("ring {} id={id}{}", self.handle(*queue), self.commands(commands))
            }
            Operation::NewEvent => "event".into(),
            Operation::Read { object } => format!("read {}", self.handle(*object)),
            Operation::CreateResource { .. }
            | Operation::DestroyResource { .. }
            | Operation::DescribeFence { .. }
            | Operation::SetDebug { .. }
            | Operation::ReadMessages { .. }
            | Operation::Store { .. }
            | Operation::NewList { .. } => self.of_lists(operation).unwrap_or_default(),
        }
    }

    /// Writes a call whose form is `VERB ..`.
    pub(in crate::script) fn call_by_hand(&self, call: &NamedCall) -> Option<String> {
        Some(match call {
            CallOf::CreateContextVirtual { device, node_ordinal, flags, .. } => {
                let engine = Engine { adapter: 0, node: *node_ordinal };
                let engine = write_engine(engine, &self.program.setting.kernel);
                format!(
                    "context {} {engine}{}",
                    self.handle(*device),
                    write_flags(*flags, CreateContextFlags::empty())
                )
            }
            CallOf::CreateSynchronizationObject { device, info, legacy } => {
                self.object(*device, info, *legacy)
            }
            CallOf::SignalFromCpu { device, objects, values, flags } => {
                let targets = self.pairs(objects, values, "=");
                format!("signal {}{targets}{}", self.handle(*device), signal_flags(*flags))
            }
            CallOf::WaitFromCpu { device, objects, values, flags, event } => {
                let any = match *flags {
                    WaitFromCpuFlags::WAIT_ANY => " any".into(),
                    flags if flags.is_empty() => String::new(),
                    flags => format!(" flags={:#x}", flags.bits()),
                };
                let event =
                    event.map(|event| format!(" event={}", self.program.name(event))).unwrap_or_default();
                format!("wait {}{}{any}{event}", self.handle(*device), self.pairs(objects, values, ">="))
            }
            CallOf::SignalFromGpu { contexts, signal, flags } => self.gpu_signal(contexts, signal, *flags),
            CallOf::WaitFromGpu { context, objects, values } => {
                format!("gpu_wait {}{}", self.handle(*context), self.pairs(objects, values, ">="))
            }
            CallOf::WaitFromGpuLegacy { context, objects, fence_value } => {
                let value = option_number("value", *fence_value);
                format!("gpu_wait {} legacy{}{value}", self.handle(*context), self.handles(objects))
            }
            CallOf::SubmitCommand { contexts, flags, private_data, .. } => {
                let flags = if *flags == 0 { String::new() } else { format!(" flags={flags:#x}") };
                format!("submit{}{flags}{}", self.handles(contexts), self.commands(private_data))
            }
            CallOf::OpenKeyedMutex { shared_handle, buffer } => {
                format!("open_keyed_mutex {}{}", self.handle(*shared_handle), mutex_buffer(buffer))
            }
            CallOf::OpenKeyedMutexFromNtHandle { token, buffer } => {
                format!("open_keyed_mutex {}{}", self.program.name(token.0), mutex_buffer(buffer))
            }
            CallOf::CreateAllocation { create: AllocationSpec { device, bytes, private_data, shared } } => {
                let private_data = match private_data {
                    PrivateData::None => String::new(),
                    PrivateData::Described => " described".to_owned(),
                    PrivateData::Foreign(bytes) => format!(" private={bytes}"),
                    PrivateData::Device { local, cpu_visible } => {
                        let group = if *local { " local" } else { " non_local" };
                        format!("{group}{}", if *cpu_visible { "" } else { " invisible" })
                    }
                };
                let shared = if *shared { " shared" } else { "" };
                format!("allocate {} bytes={bytes:#x}{private_data}{shared}", self.handle(*device))
            }
            CallOf::OpenResourceFromNtHandle { device, token, info, .. } => {
                let private_data = match info.total_private_data_size {
                    0 => String::new(),
                    bytes => format!(" private={bytes}"),
                };
                let (device, share) = (self.handle(*device), self.program.name(token.0));
                format!("open_allocation {device} {share}{private_data}")
            }
            _ => return self.queued_by_hand(call),
        })
    }

    fn queued_by_hand(&self, call: &NamedCall) -> Option<String> {
        Some(match call {
            CallOf::SubmitCommandToHwQueue { queue, progress_fence_id, private_data, .. } => {
                let id = write_number(*progress_fence_id);
                format!("submit_hw {} id={id}{}", self.handle(*queue), self.commands(private_data))
            }
            CallOf::SubmitSignalToHwQueue { queues, objects, values, flags } => {
                let (queues, targets) = (self.handles(queues), self.pairs(objects, values, "="));
                format!("hw_signal{queues}{targets}{}", signal_flags(*flags))
            }
            CallOf::SubmitWaitToHwQueue { queue, objects, values } => {
                format!("hw_wait {}{}", self.handle(*queue), self.pairs(objects, values, ">="))
            }
            CallOf::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags } => {
                let (device, context) = (self.handle(*device), self.handle(*context));
                let (fence, value) = (self.handle(*fence), write_number(*fence_value));
                let mut text = format!("update_address {device} {context} fence={fence} value={value}");
                operations.iter().for_each(|range| text += &self.gpu_va_range(range));
                if *flags & DO_NOT_WAIT != 0 {
                    text += " DO_NOT_WAIT";
                }
                if *flags & !DO_NOT_WAIT != 0 {
                    let _ = write!(text, " flags={:#x}", *flags & !DO_NOT_WAIT);
                }
                text
            }
            CallOf::SetContextPriority { context, priority, in_process } => {
                format!("priority {} {priority}{}", self.handle(*context), in_process_word(*in_process))
            }
            CallOf::ContextPriority { context, in_process } => {
                format!("priority {}{}", self.handle(*context), in_process_word(*in_process))
            }
            CallOf::SetProcessPriorityClass { class } => {
                format!("priority_class {}", named_or_number(&PRIORITY_CLASSES, *class))
            }
            CallOf::ProcessPriorityClass => "priority_class".into(),
            CallOf::Escape { adapter, device, context, kind, flags, data } => {
                let mut text = format!("escape {}", self.handle(*adapter));
                for (key, handle) in [("device", device), ("context", context)] {
                    if *handle != HandleRef::NULL {
                        let _ = write!(text, " {key}={}", self.handle(*handle));
                    }
                }
                if *kind != d3dkmt::escape::kind::DRIVER_PRIVATE {
                    let _ = write!(text, " kind={}", named_or_number(&ESCAPE_KINDS, *kind));
                }
                text += &write_flags(*flags, EscapeFlags::empty());
                text + &escapes::write_pieces(data, &|handle| self.handle(handle))
            }
            _ => return None,
        })
    }

    fn gpu_va_range(&self, range: &GpuVaRange) -> String {
        let GpuVaRange { operation, base, bytes, allocation, offset, span, protection, to } = *range;
        let operation = named_or_number(&VA_OPERATIONS, operation);
        let mut text = format!(" {operation}({}, {bytes:#x}", self.address(base));
        let has_allocation = allocation != HandleRef::NULL;
        if has_allocation {
            let _ = write!(text, ", {}", self.handle(allocation));
        }
        if offset != 0 {
            let _ = write!(text, " offset={offset:#x}");
        }
        if span != (if has_allocation { bytes } else { 0 }) {
            let _ = write!(text, " span={span:#x}");
        }
        if to != Address::default() {
            let _ = write!(text, " to={}", self.address(to));
        }
        let mut rest = protection;
        for (name, bit) in number_names("PROTECTIONS") {
            if protection & bit.unsigned_abs() != 0 {
                let _ = write!(text, " {name}");
                rest &= !bit.unsigned_abs();
            }
        }
        if rest != 0 {
            let _ = write!(text, " protection={rest:#x}");
        }
        text + ")"
    }

    fn gpu_signal(&self, contexts: &[HandleRef], signal: &GpuSignalSpec, flags: SignalFlags) -> String {
        let contexts = self.handles(contexts);
        match signal {
            GpuSignalSpec::Monitored { objects, values } => {
                let targets = self.pairs(objects, values, "=");
                format!("gpu_signal{contexts}{targets}{}", signal_flags(flags))
            }
            GpuSignalSpec::Legacy { objects, fence_value } => {
                let value = option_number("value", *fence_value);
                let flags = signal_flags(flags);
                format!("gpu_signal{contexts} legacy{}{value}{flags}", self.handles(objects))
            }
            GpuSignalSpec::CpuEvent { event } => {
                let flags = write_flags(flags, SignalFlags::ENQUEUE_CPU_EVENT);
                format!("gpu_signal{contexts} event={}{flags}", self.program.name(*event))
            }
        }
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
            Command::Word { value } => format!("u32({value})"),
        }
    }

    fn object(&self, device: HandleRef, spec: &ObjectSpec, legacy: bool) -> String {
        let mut text = match spec.object_type {
            SyncObjectType::MONITORED_FENCE if !legacy => format!("fence {}", self.handle(device)),
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
        if legacy {
            text += " legacy";
        }
        text
    }
}

/// Writes ` KEY=NUMBER`; nothing for 0.
fn option_number(key: &str, number: u64) -> String {
    if number == 0 { String::new() } else { format!(" {key}={}", write_number(number)) }
}

fn in_process_word(in_process: bool) -> &'static str {
    if in_process { " in_process" } else { "" }
}

fn mutex_buffer(buffer: &MutexBuffer) -> String {
    let data = buffer.data.0.as_ref().map(|data| format!(" data={}", quoted(data))).unwrap_or_default();
    option_number("buffer", buffer.size.into()) + &data
}

fn signal_flags(flags: SignalFlags) -> String {
    if flags.contains(SignalFlags::ALLOW_FENCE_REWIND) && flags.unknown() == 0 {
        let rest = flags - SignalFlags::ALLOW_FENCE_REWIND;
        format!(" rewind{}", write_flags(rest, SignalFlags::empty()))
    } else {
        write_flags(flags, SignalFlags::empty())
    }
}
