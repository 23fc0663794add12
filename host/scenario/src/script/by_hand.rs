//! Parses calls whose operands no form of a row can express: lists of fences with their values, command buffers, two
//! calls of one verb.

use d3dkmt::allocation_data::FOREIGN_BYTES_MIN;
use d3dkmt::gpu_va::DO_NOT_WAIT;
use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;
use d3dkmt::{
    CallOf, CreateContextFlags, EscapeFlags, ResourceInfo, SignalFlags, SyncObjectFlags, SyncObjectType,
    Values, WaitFromCpuFlags,
};

use crate::program::{
    AllocationSpec, Binding, Command, GpuSignalSpec, GpuVaRange, HandleRef, Kind, MutexBuffer, MutexText,
    NamedCall, ObjectSpec, PrivateData, Share, WriteMode,
};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::{ScriptError, shortened};
use crate::script::escapes::{Bytes, GIVEN, pieces};
use crate::script::names::{Meaning, Names};
use crate::script::operands::{
    address, check_count, handle, handles, mutex_data, name_or_number, share, value32, value64,
};
use crate::script::token::TokenKind;
use crate::script::words::{self, ESCAPE_KINDS};

/// Parses the operands of a verb; `None` if its call has a form.
pub(super) fn read(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<NamedCall>> {
    Ok(Some(match verb {
        "context" => context(names, cursor)?,
        "fence" => {
            let device = handle(names, cursor, Kind::Device)?;
            create_object(device, object(names, cursor, SyncObjectType::MONITORED_FENCE)?)
        }
        "object" => {
            let device = handle(names, cursor, Kind::Device)?;
            let object_type = object_type(cursor)?;
            create_object(device, object(names, cursor, object_type)?)
        }
        "signal" => {
            let device = handle(names, cursor, Kind::Device)?;
            let Targets { objects, values, flags, .. } = targets(names, cursor, false)?;
            CallOf::SignalFromCpu { device, objects, values, flags }
        }
        "wait" => wait(names, cursor)?,
        "gpu_signal" => gpu_signal(names, cursor)?,
        "gpu_wait" => gpu_wait(names, cursor)?,
        "submit" => {
            let contexts = handles(names, cursor, Kind::Context)?;
            let flags = if cursor.take_word("flags") { value32(cursor, "flags")? } else { 0 };
            let private_data = commands(names, cursor)?;
            CallOf::SubmitCommand { contexts, commands: 0, length: 0, flags, private_data }
        }
        "open_keyed_mutex" => open_keyed_mutex(names, cursor)?,
        "allocate" => {
            let device = handle(names, cursor, Kind::Device)?;
            cursor.word("bytes")?;
            let bytes = value64(cursor, "a size")?;
            let private_data = private_data(cursor)?;
            let shared = cursor.take_word("shared");
            CallOf::CreateAllocation { create: AllocationSpec { device, bytes, private_data, shared } }
        }
        "open_allocation" => {
            let device = handle(names, cursor, Kind::Device)?;
            let share = share(names, cursor)?;
            let private_data = match cursor.take_word("private") {
                true => value32(cursor, "a size of private data")?,
                false => 0,
            };
            open_allocation(device, share, private_data)
        }
        "update_address" => update_address(names, cursor)?,
        "submit_hw" => {
            let (queue, progress_fence_id, private_data) = queued_buffer(names, cursor)?;
            CallOf::SubmitCommandToHwQueue { queue, progress_fence_id, commands: 0, length: 0, private_data }
        }
        "hw_signal" => {
            let queues = handles(names, cursor, Kind::HwQueue)?;
            let Targets { objects, values, flags, .. } = targets(names, cursor, false)?;
            CallOf::SubmitSignalToHwQueue { queues, objects, values, flags }
        }
        "hw_wait" => {
            let queue = handle(names, cursor, Kind::HwQueue)?;
            let (objects, values) = items(names, cursor)?;
            CallOf::SubmitWaitToHwQueue { queue, objects, values }
        }
        "priority" => priority(names, cursor)?,
        "priority_class" => match cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
            None => CallOf::ProcessPriorityClass,
            Some(_) => {
                let class = name_or_number(cursor, "a priority class", &words::PRIORITY_CLASSES)?;
                CallOf::SetProcessPriorityClass { class }
            }
        },
        "escape" => escape(names, cursor)?,
        _ => return Ok(None),
    }))
}

fn context(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let device = handle(names, cursor, Kind::Device)?;
    let token = cursor.atom("an engine, as 3D or COPY, or a node's number")?;
    let config = &names.program.setting.kernel;
    if let Some((bare, _)) = token.text.split_once('.') {
        let error = ScriptError::new(token.span, "a context is on its device's adapter");
        return Err(error.help(format!("write `{}`", shortened(bare))));
    }
    // A number without a node is a useful test case; a name must be one.
    let node = match words::engine(&token.text, config).map(|engine| engine.node) {
        Some(node) => node,
        None => {
            let number = words::number(&token.text).and_then(|node| u32::try_from(node).ok());
            let nodes = config.adapters[0].nodes.iter().map(|node| node.engine_type.name());
            number.ok_or_else(|| unknown(token, "an engine", nodes))?
        }
    };
    let mut flags = CreateContextFlags::empty();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        flags |= match token.text.as_str() {
            "flags" => CreateContextFlags::from_bits_retain(value32(cursor, "flags")?),
            word => CreateContextFlags::from_name(word)
                .ok_or_else(|| unknown(token, "a context flag", words::flag_names::<CreateContextFlags>()))?,
        };
    }
    Ok(new_context(device, node, flags))
}

/// Returns a call that creates a context without private data.
pub(crate) fn new_context(device: HandleRef, node: u32, flags: CreateContextFlags) -> NamedCall {
    CallOf::CreateContextVirtual {
        device,
        node_ordinal: node,
        engine_affinity: 0,
        flags,
        client_hint: 0,
        private_data: Vec::new(),
    }
}

/// Returns the call as its verb can express it.
pub(super) fn as_written(call: &NamedCall) -> NamedCall {
    let mut written = call.clone();
    match &mut written {
        CallOf::CreateContextVirtual { device, node_ordinal, flags, .. } => {
            return new_context(*device, *node_ordinal, *flags);
        }
        CallOf::OpenResourceFromNtHandle { device, token, info, .. } => {
            return open_allocation(*device, *token, info.total_private_data_size);
        }
        CallOf::SubmitCommand { commands, length, .. }
        | CallOf::SubmitCommandToHwQueue { commands, length, .. } => (*commands, *length) = (0, 0),
        CallOf::SignalFromGpu { signal: GpuSignalSpec::CpuEvent { .. }, flags, .. } => {
            *flags |= SignalFlags::ENQUEUE_CPU_EVENT;
        }
        // Objects are written with their values.
        CallOf::SignalFromCpu { objects, values, .. }
        | CallOf::WaitFromCpu { objects, values, .. }
        | CallOf::WaitFromGpu { objects, values, .. }
        | CallOf::SubmitSignalToHwQueue { objects, values, .. }
        | CallOf::SubmitWaitToHwQueue { objects, values, .. }
        | CallOf::SignalFromGpu { signal: GpuSignalSpec::Monitored { objects, values }, .. } => {
            let count = objects.len().min(values.len());
            objects.truncate(count);
            values.truncate(count);
        }
        _ => {}
    }
    written
}

/// Parses the private driver data of an allocation, or what memory of the device it is.
fn private_data(cursor: &mut Cursor<'_>) -> Parsed<PrivateData> {
    if cursor.take_word("described") {
        return Ok(PrivateData::Described);
    }
    for (word, local) in [("local", true), ("non_local", false)] {
        if cursor.take_word(word) {
            return Ok(PrivateData::Device { local, cpu_visible: !cursor.take_word("invisible") });
        }
    }
    let span = cursor.span();
    if !cursor.take_word("private") {
        return Ok(PrivateData::None);
    }
    let bytes = value32(cursor, "a size of private data")?;
    match (FOREIGN_BYTES_MIN..=PRIVATE_DATA_BYTES_MAX).contains(&(bytes as usize)) {
        true => Ok(PrivateData::Foreign(bytes)),
        false => {
            let message = format!(
                "{bytes} bytes of private data: it is {FOREIGN_BYTES_MIN} to {PRIVATE_DATA_BYTES_MAX}"
            );
            Err(ScriptError::new(span, message))
        }
    }
}

/// Returns the call that opens a resource of one allocation, which has this many bytes of private data.
pub(crate) fn open_allocation(device: HandleRef, token: Share, private_data: u32) -> NamedCall {
    let info =
        ResourceInfo { allocations: 1, total_private_data_size: private_data, ..ResourceInfo::default() };
    CallOf::OpenResourceFromNtHandle { device, token, info, mutex_buffer: MutexBuffer::default() }
}

fn create_object(device: HandleRef, (info, legacy): (ObjectSpec, bool)) -> NamedCall {
    CallOf::CreateSynchronizationObject { device, info, legacy }
}

fn event(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Binding> {
    cursor.symbol("=")?;
    let token = cursor.atom("the name of an event")?;
    names.binding(token, "an event", |kind| kind == Kind::Event)
}

fn object_type(cursor: &mut Cursor<'_>) -> Parsed<SyncObjectType> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => Ok(SyncObjectType(cursor.number32("a type")?)),
        None => cursor.choice("a type of synchronization object", &words::OBJECT_TYPES),
    }
}

/// Parses the created object, and whether the first form of the call creates it.
fn object(names: &Names, cursor: &mut Cursor<'_>, object_type: SyncObjectType) -> Parsed<(ObjectSpec, bool)> {
    let mut spec = ObjectSpec { object_type, ..ObjectSpec::default() };
    let mut legacy = false;
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "initial" => spec.initial_value = value64(cursor, "an initial value")?,
            "count" => spec.initial_count = value32(cursor, "an initial count")?,
            "max" => spec.max_count = value32(cursor, "a maximum")?,
            "affinity" => spec.engine_affinity = value32(cursor, "an affinity")?,
            "owned" => spec.initial_state = true,
            "legacy" => legacy = true,
            "event" => spec.event = Some(event(names, cursor)?),
            "adapter" => {
                cursor.symbol("=")?;
                spec.adapter = Some(handle(names, cursor, Kind::Adapter)?);
            }
            "target" => spec.target = value32(cursor, "a display target")?,
            "time" => {
                cursor.symbol("=")?;
                spec.time_100ns = cursor.duration()? / 100;
            }
            "flags" => spec.flags |= SyncObjectFlags::from_bits_retain(value32(cursor, "flags")?),
            word => match words::object_flag(word) {
                Some(flag) => spec.flags |= flag,
                None => {
                    let keys = [
                        "initial", "count", "max", "affinity", "owned", "legacy", "event", "flags",
                        "adapter", "target", "time",
                    ];
                    return Err(unknown(
                        token,
                        "a flag or option",
                        words::object_flag_names().into_iter().chain(keys),
                    ));
                }
            },
        }
    }
    Ok((spec, legacy))
}

/// The operands of a signal.
struct Targets {
    objects: Vec<HandleRef>,
    values: Values,
    flags: SignalFlags,
    event: Option<Binding>,
}

/// Parses `F=V G=V ..` and flags; with `events`, also `event=E`.
fn targets(names: &Names, cursor: &mut Cursor<'_>, events: bool) -> Parsed<Targets> {
    let (mut objects, mut values) = (Vec::new(), Values::new());
    let (mut flags, mut set) = (SignalFlags::empty(), None);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        let is_value = cursor.peek_second().is_some_and(|next| next.is_symbol("="));
        match token.text.as_str() {
            "flags" if is_value => {
                cursor.next();
                flags |= SignalFlags::from_bits_retain(value32(cursor, "flags")?);
            }
            "event" if is_value && events => {
                cursor.next();
                set = Some(event(names, cursor)?);
            }
            _ if is_value => {
                objects.push(handle(names, cursor, Kind::Object)?);
                values.push(value64(cursor, "a fence value")?);
            }
            _ if names.look_up(&token.text).is_some() => {
                cursor.next();
                return cursor.expected(&format!("`=` and a value after {}", token.text));
            }
            _ => {
                cursor.next();
                flags |= signal_flag(token, "a signal flag, nor `FENCE=VALUE`", &[])?;
            }
        }
        check_count(token, objects.len())?;
    }
    Ok(Targets { objects, values, flags, event: set })
}

fn signal_flag(
    token: &crate::script::token::Token,
    what: &str,
    others: &[&'static str],
) -> Parsed<SignalFlags> {
    match token.text.as_str() {
        "rewind" => Ok(SignalFlags::ALLOW_FENCE_REWIND),
        word => SignalFlags::from_name(word).ok_or_else(|| {
            let names = words::flag_names::<SignalFlags>().into_iter();
            let known: Vec<&str> = names.chain(["rewind"]).chain(others.iter().copied()).collect();
            unknown(token, what, known)
        }),
    }
}

/// Parses `F>=V G>=V ..`.
fn items(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<(Vec<HandleRef>, Values)> {
    let (mut objects, mut values) = (Vec::new(), Values::new());
    while cursor.peek_second().is_some_and(|next| next.is_symbol(">=")) {
        let token = cursor.peek().expect("there is one after it");
        objects.push(handle(names, cursor, Kind::Object)?);
        cursor.symbol(">=")?;
        values.push(cursor.number("a fence value")?);
        check_count(token, objects.len())?;
    }
    Ok((objects, values))
}

fn wait(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    if cursor.peek_second().is_some_and(|next| next.is_symbol(">=")) {
        return cursor.expected("the device that waits, as in `wait D F>=1`");
    }
    let device = handle(names, cursor, Kind::Device)?;
    let (objects, values) = items(names, cursor)?;
    let (mut flags, mut set) = (WaitFromCpuFlags::empty(), None);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "any" => flags |= WaitFromCpuFlags::WAIT_ANY,
            "flags" => flags |= WaitFromCpuFlags::from_bits_retain(value32(cursor, "flags")?),
            "event" => set = Some(event(names, cursor)?),
            _ if names.look_up(&token.text).is_some() => {
                return cursor.expected(&format!("`>=` and a value after {}", token.text));
            }
            _ => {
                return Err(unknown(
                    token,
                    "an option of a wait, nor `FENCE>=VALUE`",
                    ["any", "event", "flags"],
                ));
            }
        }
    }
    Ok(CallOf::WaitFromCpu { device, objects, values, flags, event: set })
}

/// Operands of the object types before the monitored fence.
struct Legacy {
    objects: Vec<HandleRef>,
    fence_value: u64,
    flags: SignalFlags,
}

/// Parses `S [T ..] [value=V] [FLAG ..]` after `legacy`.
fn legacy(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Legacy> {
    let objects = handles(names, cursor, Kind::Object)?;
    let (mut fence_value, mut flags) = (0, SignalFlags::empty());
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "value" => fence_value = value64(cursor, "a fence value")?,
            "flags" => flags |= SignalFlags::from_bits_retain(value32(cursor, "flags")?),
            _ => flags |= signal_flag(token, "a signal flag", &["value"])?,
        }
    }
    Ok(Legacy { objects, fence_value, flags })
}

fn gpu_wait(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let context = handle(names, cursor, Kind::Context)?;
    if cursor.take_word("legacy") {
        let span = cursor.span();
        let Legacy { objects, fence_value, flags } = legacy(names, cursor)?;
        return match flags.is_empty() {
            true => Ok(CallOf::WaitFromGpuLegacy { context, objects, fence_value }),
            false => Err(ScriptError::new(span, "a wait has no signal flags")),
        };
    }
    let (objects, values) = items(names, cursor)?;
    Ok(CallOf::WaitFromGpu { context, objects, values })
}

fn gpu_signal(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let contexts = handles(names, cursor, Kind::Context)?;
    if cursor.take_word("legacy") {
        let Legacy { objects, fence_value, flags } = legacy(names, cursor)?;
        let signal = GpuSignalSpec::Legacy { objects, fence_value };
        return Ok(CallOf::SignalFromGpu { contexts, signal, flags });
    }
    let span = cursor.span();
    let Targets { objects, values, flags, event } = targets(names, cursor, true)?;
    match event {
        Some(event) if objects.is_empty() => {
            let (signal, flags) = (GpuSignalSpec::CpuEvent { event }, flags | SignalFlags::ENQUEUE_CPU_EVENT);
            Ok(CallOf::SignalFromGpu { contexts, signal, flags })
        }
        Some(_) => Err(ScriptError::new(span, "a packet signals fences or sets an event, not both")),
        None => {
            let signal = GpuSignalSpec::Monitored { objects, values };
            Ok(CallOf::SignalFromGpu { contexts, signal, flags })
        }
    }
}

/// Parses `Q id=N COMMAND ..`: the queue, the value of its progress fence, the command buffer.
pub(super) fn queued_buffer(
    names: &Names,
    cursor: &mut Cursor<'_>,
) -> Parsed<(HandleRef, u64, Vec<Command>)> {
    let queue = handle(names, cursor, Kind::HwQueue)?;
    cursor.word("id")?;
    let id = value64(cursor, "a progress fence value")?;
    Ok((queue, id, commands(names, cursor)?))
}

/// Parses a command buffer, up to the end of the operands.
pub(super) fn commands(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Vec<Command>> {
    const COMMANDS: [&str; 8] = ["list", "write", "marker_in", "marker_out", "busy", "hang", "opaque", "u32"];
    let mut commands = Vec::new();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        if let [Command::Opaque { .. }] = commands[..] {
            return cursor.expected("no further command, as an opaque buffer stands alone");
        }
        cursor.next();
        let is_word = token.text == "u32";
        let has_words = commands.first().map(|first| matches!(first, Command::Word { .. }));
        if has_words.is_some_and(|has_words| has_words != is_word) {
            return Err(ScriptError::new(token.span, "a buffer with u32(N, ..) has words alone"));
        }
        if is_word {
            words_of(cursor, &mut commands)?;
            check_count(token, commands.len())?;
            continue;
        }
        let mode = WriteMode::ALL.into_iter().find(|mode| mode.name() == token.text);
        commands.push(match (token.text.as_str(), mode) {
            (_, Some(mode)) => {
                cursor.symbol("(")?;
                let object = handle(names, cursor, Kind::Object)?;
                cursor.symbol(",")?;
                let value = cursor.number("a fence value")?;
                cursor.symbol(")")?;
                Command::Write { object, value, mode }
            }
            ("busy", None) => {
                cursor.symbol("(")?;
                let duration_ns = cursor.duration()?;
                cursor.symbol(")")?;
                Command::Busy { duration_ns }
            }
            ("list", None) => {
                cursor.symbol("(")?;
                let list = cursor.atom("the name of a command list")?;
                let list = names.binding(list, "a command list", |kind| kind == Kind::List)?;
                cursor.symbol(")")?;
                Command::List(list)
            }
            ("hang", None) => Command::Hang,
            ("opaque", None) => {
                cursor.symbol("(")?;
                let span = cursor.span();
                let bytes = cursor.number32("a size in bytes")?;
                if bytes as usize > PRIVATE_DATA_BYTES_MAX || !commands.is_empty() {
                    let most = PRIVATE_DATA_BYTES_MAX;
                    let message = format!("an opaque buffer stands alone and has at most {most} bytes");
                    return Err(ScriptError::new(span, message));
                }
                cursor.symbol(")")?;
                Command::Opaque { bytes }
            }
            (_, None) => return Err(unknown(token, "a command", COMMANDS)),
        });
        check_count(token, commands.len())?;
    }
    Ok(commands)
}

/// Parses `(N, N, ..)`: words of a buffer in a format of the driver's own.
fn words_of(cursor: &mut Cursor<'_>, commands: &mut Vec<Command>) -> Parsed<()> {
    cursor.symbol("(")?;
    loop {
        commands.push(Command::Word { value: cursor.number32("32 bits")? });
        if !cursor.take_symbol(",") {
            return cursor.symbol(")");
        }
    }
}

fn open_keyed_mutex(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let token = cursor.peek().filter(|token| token.kind == TokenKind::Atom);
    let is_share = token.is_some_and(|token| match names.look_up(&token.text) {
        Some(Meaning::Binding(binding)) => names.kind(binding) == Kind::Share,
        Some(Meaning::Vm(_) | Meaning::Process(_) | Meaning::Thread(_)) | None => false,
    });
    if is_share {
        let token = share(names, cursor)?;
        return Ok(CallOf::OpenKeyedMutexFromNtHandle { token, buffer: mutex_buffer(cursor)? });
    }
    let shared_handle = handle(names, cursor, Kind::KeyedMutex)?;
    Ok(CallOf::OpenKeyedMutex { shared_handle, buffer: mutex_buffer(cursor)? })
}

fn mutex_buffer(cursor: &mut Cursor<'_>) -> Parsed<MutexBuffer> {
    let mut buffer = MutexBuffer::default();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "buffer" => buffer.size = value32(cursor, "a size in bytes")?,
            "data" => {
                cursor.symbol("=")?;
                buffer.data = MutexText(Some(mutex_data(cursor)?));
            }
            _ => return Err(unknown(token, "an option", ["buffer", "data"])),
        }
    }
    Ok(buffer)
}

fn update_address(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let device = handle(names, cursor, Kind::Device)?;
    let context = handle(names, cursor, Kind::Context)?;
    cursor.word("fence")?;
    cursor.symbol("=")?;
    let fence = handle(names, cursor, Kind::Object)?;
    cursor.word("value")?;
    let fence_value = value64(cursor, "a fence value")?;
    let (mut operations, mut flags) = (Vec::new(), 0);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        if cursor.take_word("DO_NOT_WAIT") {
            flags |= DO_NOT_WAIT;
            continue;
        }
        if cursor.take_word("flags") {
            flags |= value32(cursor, "flags")?;
            continue;
        }
        operations.push(gpu_va_range(names, cursor)?);
        check_count(token, operations.len())?;
    }
    Ok(CallOf::UpdateGpuVirtualAddress { device, context, fence, fence_value, operations, flags })
}

/// Of an allocation as many bytes are mapped as the range has, unless `span` says otherwise.
fn gpu_va_range(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<GpuVaRange> {
    let operation = cursor.choice("an operation", &words::VA_OPERATIONS)?;
    cursor.symbol("(")?;
    let base = address(names, cursor)?;
    cursor.symbol(",")?;
    let bytes = cursor.number("a size in bytes")?;
    let mut range = GpuVaRange { operation, base, bytes, ..GpuVaRange::default() };
    if cursor.take_symbol(",") {
        (range.allocation, range.span) = (handle(names, cursor, Kind::Allocation)?, bytes);
    }
    let protections = words::number_names("PROTECTIONS");
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        if let Some((_, bit)) = protections.iter().find(|(name, _)| *name == token.text) {
            range.protection |= bit.unsigned_abs();
            continue;
        }
        match token.text.as_str() {
            "offset" => range.offset = value64(cursor, "an offset in bytes")?,
            "span" => range.span = value64(cursor, "a size in bytes")?,
            "protection" => range.protection |= value64(cursor, "a protection")?,
            "to" => {
                cursor.symbol("=")?;
                range.to = address(names, cursor)?;
            }
            _ => {
                let names = protections.iter().map(|(name, _)| *name);
                return Err(unknown(token, "an option", names.chain(["offset", "span", "protection", "to"])));
            }
        }
    }
    cursor.symbol(")")?;
    Ok(range)
}

fn priority(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let context = handle(names, cursor, Kind::Context)?;
    let is_number =
        cursor.is_symbol("-") || cursor.peek().is_some_and(|token| words::number(&token.text).is_some());
    let priority = if is_number { Some(signed(cursor)?) } else { None };
    let in_process = cursor.take_word("in_process");
    Ok(match priority {
        Some(priority) => CallOf::SetContextPriority { context, priority, in_process },
        None => CallOf::ContextPriority { context, in_process },
    })
}

/// Parses a number that may be negative.
fn signed(cursor: &mut Cursor<'_>) -> Parsed<i32> {
    let span = cursor.span();
    let below_zero = cursor.take_symbol("-");
    let number = i64::from(cursor.number32("a priority")?);
    let number = if below_zero { -number } else { number };
    i32::try_from(number)
        .map_err(|_| ScriptError::new(span, format!("{number} does not fit 32 bits with a sign")))
}

fn escape(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<NamedCall> {
    let adapter = handle(names, cursor, Kind::Adapter)?;
    let (mut device, mut context) = (HandleRef::NULL, HandleRef::NULL);
    let (mut kind, mut flags) = (d3dkmt::escape::kind::DRIVER_PRIVATE, EscapeFlags::empty());
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        if cursor.peek_second().is_some_and(|next| next.is_symbol("(")) {
            break;
        }
        cursor.next();
        match token.text.as_str() {
            "device" => {
                cursor.symbol("=")?;
                device = handle(names, cursor, Kind::Device)?;
            }
            "context" => {
                cursor.symbol("=")?;
                context = handle(names, cursor, Kind::Context)?;
            }
            "kind" => {
                cursor.symbol("=")?;
                kind = name_or_number(cursor, "a kind of escape", &ESCAPE_KINDS)?;
            }
            "flags" => flags |= EscapeFlags::from_bits_retain(value32(cursor, "flags")?),
            word => match EscapeFlags::from_name(word) {
                Some(flag) => flags |= flag,
                None => {
                    let names = words::flag_names::<EscapeFlags>().into_iter();
                    let options = ["device", "context", "kind", "flags"].into_iter().chain(GIVEN);
                    let known: Vec<&str> = names.chain(options).collect();
                    return Err(unknown(token, "a flag, an option or data", known));
                }
            },
        }
    }
    let data = pieces(names, cursor, Bytes::Given)?;
    Ok(CallOf::Escape { adapter, device, context, kind, flags, data })
}
