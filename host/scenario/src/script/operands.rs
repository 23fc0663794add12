//! Operands of verbs: handles, flags, fences with their values, commands.

use d3dkmt::{CreateContextFlags, SignalFlags, SyncObjectFlags, SyncObjectType, WaitFromCpuFlags, limits};

use crate::program::{Binding, Command, HandleRef, Kind, ObjectSpec, Operation, WriteMode};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::{ScriptError, shortened};
use crate::script::names::Names;
use crate::script::token::{Token, TokenKind};
use crate::script::words;

/// Operands of one list: one more than the interface takes, and some.
const OPERANDS_MAX: usize = 4 * limits::BROADCAST_CONTEXTS_MAX;

/// `=N` after a key.
pub(super) fn value32(cursor: &mut Cursor<'_>, what: &str) -> Parsed<u32> {
    cursor.symbol("=")?;
    cursor.number32(what)
}

pub(super) fn value64(cursor: &mut Cursor<'_>, what: &str) -> Parsed<u64> {
    cursor.symbol("=")?;
    cursor.number(what)
}

pub(super) fn adapter_number(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<u32> {
    let place = cursor.place();
    let number = cursor.number32("an adapter's number")?;
    let count = names.program.setting.kernel.adapters.len();
    if (number as usize) < count {
        return Ok(number);
    }
    let message = format!("there is no adapter {number}: the scenario has {count}, numbered from 0");
    Err(ScriptError::new(place, message).help("`config adapters = N` makes more"))
}

/// A handle operand. Any handle will do: that the wrong kind is refused is worth a test.
pub(super) fn handle(names: &Names, cursor: &mut Cursor<'_>, meant: Kind) -> Parsed<HandleRef> {
    let token = cursor.atom(&format!("the name of {}", meant.name()))?;
    if token.text == "null" {
        return Ok(HandleRef::Raw(0));
    }
    if token.text.starts_with("0x") {
        let raw = words::number(&token.text).and_then(|raw| u32::try_from(raw).ok());
        return raw.map(HandleRef::Raw).ok_or_else(|| {
            let message = format!("`{}` is no handle: handles have 32 bits", shortened(&token.text));
            ScriptError::new(token.place, message)
        });
    }
    names.binding(token, meant.name(), Kind::is_handle).map(HandleRef::Bound)
}

pub(super) fn share(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Binding> {
    let token = cursor.atom("the name of an NT handle")?;
    names.binding(token, "an NT handle", |kind| kind == Kind::Share)
}

fn event(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Binding> {
    cursor.symbol("=")?;
    let token = cursor.atom("the name of an event")?;
    names.binding(token, "an event", |kind| kind == Kind::Event)
}

pub(super) fn object_type(cursor: &mut Cursor<'_>) -> Parsed<SyncObjectType> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => Ok(SyncObjectType(cursor.number32("a type")?)),
        None => cursor.choice("a type of synchronization object", &words::OBJECT_TYPES),
    }
}

pub(super) fn object(
    names: &Names,
    cursor: &mut Cursor<'_>,
    object_type: SyncObjectType,
) -> Parsed<ObjectSpec> {
    let mut spec = ObjectSpec { object_type, ..ObjectSpec::default() };
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "initial" => spec.initial_value = value64(cursor, "an initial value")?,
            "count" => spec.initial_count = value32(cursor, "an initial count")?,
            "max" => spec.max_count = value32(cursor, "a maximum")?,
            "affinity" => spec.engine_affinity = value32(cursor, "an affinity")?,
            "owned" => spec.initial_state = true,
            "legacy" => spec.legacy = true,
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
                    return Err(unknown(token, "a flag or option", words::object_flag_names().chain(keys)));
                }
            },
        }
    }
    Ok(spec)
}

pub(super) fn object_flags(cursor: &mut Cursor<'_>) -> Parsed<SyncObjectFlags> {
    let mut flags = SyncObjectFlags::empty();
    while cursor.peek().is_some_and(|token| token.kind == TokenKind::Atom) {
        flags |= object_flag(cursor)?;
    }
    Ok(flags)
}

/// The next word, which must be a flag of an object.
pub(super) fn object_flag(cursor: &mut Cursor<'_>) -> Parsed<SyncObjectFlags> {
    let token = cursor.atom("a flag")?;
    match token.text.as_str() {
        "flags" => Ok(SyncObjectFlags::from_bits_retain(value32(cursor, "flags")?)),
        word => words::object_flag(word).ok_or_else(|| unknown(token, "a flag", words::object_flag_names())),
    }
}

pub(super) fn context(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let token = cursor.atom("an engine, as 3D or COPY, or a node's number")?;
    let config = &names.program.setting.kernel;
    if let Some((bare, _)) = token.text.split_once('.') {
        let error = ScriptError::new(token.place, "a context is on its device's adapter");
        return Err(error.help(format!("write `{}`", shortened(bare))));
    }
    // A number that no node has is a case worth testing; a name is meant to be one.
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
                .ok_or_else(|| unknown(token, "a context flag", words::context_flag_names()))?,
        };
    }
    Ok(Operation::CreateContext { device, node, flags })
}

/// `F=V G=V ..` and flags; with `events`, `event=E` too.
#[allow(clippy::type_complexity)]
pub(super) fn targets(
    names: &Names,
    cursor: &mut Cursor<'_>,
    relation: &str,
    events: bool,
) -> Parsed<(Vec<(HandleRef, u64)>, SignalFlags, Option<Binding>)> {
    let (mut targets, mut flags, mut set) = (Vec::new(), SignalFlags::empty(), None);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        let is_value = cursor.peek_second().is_some_and(|next| next.is_symbol(relation));
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
                let object = handle(names, cursor, Kind::Object)?;
                cursor.symbol(relation)?;
                targets.push((object, cursor.number("a fence value")?));
            }
            "rewind" => {
                cursor.next();
                flags |= SignalFlags::ALLOW_FENCE_REWIND;
            }
            _ if names.look_up(&token.text).is_some() => {
                cursor.next();
                return cursor.expected(&format!("`{relation}` and a value after {}", token.text));
            }
            word => {
                cursor.next();
                flags |= SignalFlags::from_name(word).ok_or_else(|| {
                    let known = words::signal_flag_names().into_iter().chain(["rewind"]);
                    let known: Vec<&str> = known.collect();
                    unknown(token, "a signal flag, nor `FENCE=VALUE`", known)
                })?;
            }
        }
        check_count(token, targets.len())?;
    }
    Ok((targets, flags, set))
}

pub(super) fn check_count(token: &Token, count: usize) -> Parsed<()> {
    if count <= OPERANDS_MAX {
        return Ok(());
    }
    Err(ScriptError::new(token.place, format!("a call takes at most {OPERANDS_MAX} operands of a kind here")))
}

/// `F>=V G>=V ..`
pub(super) fn items(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Vec<(HandleRef, u64)>> {
    let mut items = Vec::new();
    while cursor.peek_second().is_some_and(|next| next.is_symbol(">=")) {
        let token = cursor.peek().expect("there is one after it");
        let object = handle(names, cursor, Kind::Object)?;
        cursor.symbol(">=")?;
        items.push((object, cursor.number("a fence value")?));
        check_count(token, items.len())?;
    }
    Ok(items)
}

pub(super) fn wait(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let items = items(names, cursor)?;
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
    Ok(Operation::Wait { device, items, flags, event: set })
}

/// `legacy S [T ..] [value=V] [FLAG ..]`, after `legacy`.
fn legacy(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<(Vec<HandleRef>, u64, SignalFlags)> {
    let objects = handles(names, cursor, Kind::Object)?;
    let (mut value, mut flags) = (0, SignalFlags::empty());
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        match token.text.as_str() {
            "value" => value = value64(cursor, "a fence value")?,
            "flags" => flags |= SignalFlags::from_bits_retain(value32(cursor, "flags")?),
            "rewind" => flags |= SignalFlags::ALLOW_FENCE_REWIND,
            word => {
                flags |= SignalFlags::from_name(word).ok_or_else(|| {
                    let known = words::signal_flag_names().into_iter().chain(["rewind", "value"]);
                    unknown(token, "a signal flag", known.collect::<Vec<&str>>())
                })?;
            }
        }
    }
    Ok((objects, value, flags))
}

pub(super) fn gpu_wait(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let context = handle(names, cursor, Kind::Context)?;
    if cursor.take_word("legacy") {
        let place = cursor.place();
        let (objects, value, flags) = legacy(names, cursor)?;
        return match flags.is_empty() {
            true => Ok(Operation::GpuWaitLegacy { context, objects, value }),
            false => Err(ScriptError::new(place, "a wait has no signal flags")),
        };
    }
    Ok(Operation::GpuWait { context, items: items(names, cursor)? })
}

/// Handles that stand by themselves, one at least.
pub(super) fn handles(names: &Names, cursor: &mut Cursor<'_>, meant: Kind) -> Parsed<Vec<HandleRef>> {
    let mut handles = vec![handle(names, cursor, meant)?];
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        let alone = !cursor.peek_second().is_some_and(|next| next.is_symbol("=") || next.is_symbol("("));
        let is_handle = match names.look_up(&token.text) {
            Some(crate::script::names::Meaning::Binding(binding)) => names.kind(binding).is_handle(),
            Some(_) => false,
            None => token.text == "null" || token.text.starts_with("0x"),
        };
        if !alone || !is_handle {
            break;
        }
        handles.push(handle(names, cursor, meant)?);
        check_count(token, handles.len())?;
    }
    Ok(handles)
}

pub(super) fn gpu_signal(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let contexts = handles(names, cursor, Kind::Context)?;
    if cursor.take_word("legacy") {
        let (objects, value, flags) = legacy(names, cursor)?;
        return Ok(Operation::GpuSignalLegacy { contexts, objects, value, flags });
    }
    let place = cursor.place();
    let (targets, flags, event) = targets(names, cursor, "=", true)?;
    match event {
        Some(event) if targets.is_empty() => {
            let flags = flags | SignalFlags::ENQUEUE_CPU_EVENT;
            Ok(Operation::GpuSignalEvent { contexts, event, flags })
        }
        Some(_) => Err(ScriptError::new(place, "a packet signals fences or sets an event, not both")),
        None => Ok(Operation::GpuSignal { contexts, targets, flags }),
    }
}

pub(super) fn submit(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let contexts = handles(names, cursor, Kind::Context)?;
    Ok(Operation::Submit { contexts, commands: commands(names, cursor)? })
}

/// A command buffer, to the end of the operands.
pub(super) fn commands(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Vec<Command>> {
    const COMMANDS: [&str; 7] = ["list", "write", "marker_in", "marker_out", "busy", "hang", "opaque"];
    let mut commands = Vec::new();
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        if let [Command::Opaque { .. }] = commands[..] {
            return cursor.expected("no further command, as an opaque buffer stands alone");
        }
        cursor.next();
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
                let place = cursor.place();
                let bytes = cursor.number32("a size in bytes")?;
                if bytes as usize > limits::PRIVATE_DATA_BYTES_MAX || !commands.is_empty() {
                    let most = limits::PRIVATE_DATA_BYTES_MAX;
                    let message = format!("an opaque buffer stands alone and has at most {most} bytes");
                    return Err(ScriptError::new(place, message));
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
