//! What an actor does: `[NAME =] VERB OPERANDS -> EXPECTED`.

use d3dkmt::SyncObjectType;
use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;

use crate::program::{Act, Expected, HandleRef, Kind, Operation, Thread};
use crate::script::cursor::{Cursor, Parsed};
use crate::script::error::{ScriptError, shortened, suggestion};
use crate::script::names::Names;
use crate::script::operands::{
    adapter_number, context, gpu_signal, gpu_wait, handle, object, object_type, submit, targets, value32,
    wait,
};
use crate::script::token::Token;
use crate::script::verbs::VERBS;
use crate::script::{escapes, lists, mutexes, queues};

/// Where an act stands: a race asks for statuses only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Steps,
    Race,
}

/// Reads what comes after the actor's name.
pub(crate) fn act(names: &mut Names, thread: Thread, cursor: &mut Cursor<'_>, place: Place) -> Parsed<Act> {
    let named = cursor.peek_second().is_some_and(|token| token.is_symbol("="));
    let name = if named {
        let name = cursor.atom("a name")?;
        cursor.symbol("=")?;
        Some(name)
    } else {
        None
    };
    let verb = cursor.atom("a verb")?;
    let operation = operation(names, verb, cursor)?;
    check_own(names, thread, &operation, cursor)?;
    let kind = kind_of(&operation);
    let expected = expected(&operation, verb, cursor, place)?;
    cursor.end()?;
    check_binding(verb, name, kind, expected)?;
    let binding = match name {
        Some(name) => Some(names.add_binding(name, kind, thread)?),
        None => None,
    };
    if let (Expected::Blocks, Some(call)) = (expected, binding) {
        names.block(thread, call, verb.place.line);
    }
    Ok(Act { thread, binding, operation, expected })
}

/// Events and fence memory are the process's own.
fn check_own(names: &Names, thread: Thread, operation: &Operation, cursor: &Cursor<'_>) -> Parsed<()> {
    let own = match operation {
        Operation::Read { object: HandleRef::Bound(object) } => Some(*object),
        Operation::Wait { event, .. } => *event,
        Operation::CreateObject { spec, .. } => spec.event,
        Operation::GpuSignalEvent { event, .. } => Some(*event),
        Operation::Store { allocation, .. } => Some(*allocation),
        _ => None,
    };
    match own.and_then(|own| Some((own, cursor.find(names.program.name(own))?))) {
        Some((own, token)) => names.check_own(own, thread, token),
        None => Ok(()),
    }
}

fn check_binding(verb: &Token, name: Option<&Token>, kind: Kind, expected: Expected) -> Parsed<()> {
    match (name, kind) {
        (None, Kind::Event | Kind::Register | Kind::List | Kind::Messages) => {
            let message = format!("`{}` gives something that needs a name", verb.text);
            Err(ScriptError::new(verb.place, message).help(format!("write `NAME = {}`", verb.text)))
        }
        (None, _) if expected == Expected::Blocks => {
            let message = "a call that blocks needs a name, so that its end can be expected";
            Err(ScriptError::new(verb.place, message).help(format!("write `W = {} ..`", verb.text)))
        }
        _ => Ok(()),
    }
}

/// What a name before `=` stands for.
pub(crate) const fn kind_of(operation: &Operation) -> Kind {
    match operation {
        Operation::EnumAdapters { .. } | Operation::OpenAdapter { .. } => Kind::Adapter,
        Operation::Device { .. } | Operation::CreateDevice { .. } => Kind::Device,
        Operation::CreateContext { .. } => Kind::Context,
        Operation::CreateObject { .. }
        | Operation::Open { .. }
        | Operation::OpenGlobal { .. }
        | Operation::CreateNativeFence { .. }
        | Operation::OpenNativeFence { .. } => Kind::Object,
        Operation::Share { .. } | Operation::OpenName { .. } => Kind::Share,
        Operation::CreateKeyedMutex { .. }
        | Operation::OpenKeyedMutex { .. }
        | Operation::OpenSharedKeyedMutex { .. } => Kind::KeyedMutex,
        Operation::CreatePagingQueue { .. } => Kind::PagingQueue,
        Operation::CreateHwQueue { .. } => Kind::HwQueue,
        Operation::Allocate { .. } | Operation::OpenAllocation { .. } => Kind::Allocation,
        Operation::CreateResource { .. } => Kind::Resource,
        Operation::NewList { .. } => Kind::List,
        Operation::ReadMessages { .. } => Kind::Messages,
        Operation::CreateDoorbell { .. } => Kind::Doorbell,
        Operation::Reserve { .. } | Operation::Map { .. } => Kind::Address,
        Operation::NewEvent => Kind::Event,
        Operation::Read { .. } => Kind::Register,
        Operation::CloseAdapter { .. }
        | Operation::QueryAdapter { .. }
        | Operation::DestroyDevice { .. }
        | Operation::DeviceState { .. }
        | Operation::Completed { .. }
        | Operation::DestroyContext { .. }
        | Operation::DestroyObject { .. }
        | Operation::CloseShare { .. }
        | Operation::Signal { .. }
        | Operation::Wait { .. }
        | Operation::GpuSignal { .. }
        | Operation::GpuSignalEvent { .. }
        | Operation::GpuWait { .. }
        | Operation::GpuSignalLegacy { .. }
        | Operation::GpuWaitLegacy { .. }
        | Operation::Submit { .. }
        | Operation::DestroyKeyedMutex { .. }
        | Operation::Acquire { .. }
        | Operation::Release { .. }
        | Operation::DestroyPagingQueue { .. }
        | Operation::FreeAddress { .. }
        | Operation::UpdateAddress { .. }
        | Operation::DestroyAllocation { .. }
        | Operation::MakeResident { .. }
        | Operation::Evict { .. }
        | Operation::Lock { .. }
        | Operation::Unlock { .. }
        | Operation::DestroyHwQueue { .. }
        | Operation::SubmitHw { .. }
        | Operation::HwSignal { .. }
        | Operation::HwWait { .. }
        | Operation::ConnectDoorbell { .. }
        | Operation::DestroyDoorbell { .. }
        | Operation::RingDoorbell { .. }
        | Operation::NotifyWork { .. }
        | Operation::SetPriority { .. }
        | Operation::Priority { .. }
        | Operation::SetPriorityClass { .. }
        | Operation::PriorityClass
        | Operation::MarkError { .. }
        | Operation::DestroyResource { .. }
        | Operation::DescribeFence { .. }
        | Operation::SetDebug { .. }
        | Operation::Store { .. }
        | Operation::Escape { .. }
        | Operation::Feature { .. } => Kind::Call,
    }
}

/// `-> STATUS`, `-> blocks`, `-> anything`. What is no call to the kernel has none.
fn expected(operation: &Operation, verb: &Token, cursor: &mut Cursor<'_>, place: Place) -> Parsed<Expected> {
    let arrow = cursor.place();
    if !operation.is_call() {
        if cursor.is_symbol("->") {
            let message = format!("`{}` is no call of the kernel: it has no status", verb.text);
            return Err(ScriptError::new(arrow, message).help("leave `->` and the status out"));
        }
        return Ok(Expected::Status(d3dkmt::NtStatus::SUCCESS));
    }
    if matches!(operation, Operation::Device { .. }) && place == Place::Race {
        let message = "`device` is two calls, a step of a race is one";
        return Err(ScriptError::new(verb.place, message).help("write `open_adapter` and `create_device`"));
    }
    if !cursor.take_symbol("->") {
        return cursor.expected("`-> STATUS`: what the call answers, as `-> ok` or `-> INVALID_PARAMETER`");
    }
    let at = cursor.place();
    if cursor.take_word("anything") {
        return Ok(Expected::Any);
    }
    if !cursor.take_word("blocks") {
        let status = cursor.status("a status, `blocks` or `anything`", &["blocks", "anything"])?;
        return Ok(Expected::Status(status));
    }
    match operation {
        _ if place == Place::Race => {
            let message = "a race says with `allowed` whether a call sleeps";
            Err(ScriptError::new(at, message).help("write the status it returns once it does"))
        }
        Operation::Device { .. } => {
            let message = "`device` is two calls, one of them blocks";
            Err(ScriptError::new(at, message).help("write `open_adapter` and `create_device`"))
        }
        _ => Ok(Expected::Blocks),
    }
}

fn operation(names: &Names, verb: &Token, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    Ok(match verb.text.as_str() {
        "adapters" => {
            let capacity = if cursor.take_word("capacity") { value32(cursor, "a capacity")? } else { 34 };
            Operation::EnumAdapters { capacity }
        }
        "open_adapter" => Operation::OpenAdapter { adapter: adapter_number(names, cursor)? },
        "close_adapter" => Operation::CloseAdapter { adapter: handle(names, cursor, Kind::Adapter)? },
        "query_adapter" => {
            let adapter = handle(names, cursor, Kind::Adapter)?;
            cursor.word("kind")?;
            let kind = value32(cursor, "a kind")?;
            cursor.word("bytes")?;
            let bytes = value32(cursor, "a size")?;
            if bytes as usize > PRIVATE_DATA_BYTES_MAX {
                let message = format!("private data has at most {PRIVATE_DATA_BYTES_MAX} bytes");
                return Err(ScriptError::new(cursor.last_place(), message));
            }
            Operation::QueryAdapter { adapter, kind, bytes }
        }
        "device" => {
            let adapter = if cursor.take_word("on") { adapter_number(names, cursor)? } else { 0 };
            Operation::Device { adapter }
        }
        "create_device" => Operation::CreateDevice { adapter: handle(names, cursor, Kind::Adapter)? },
        "destroy_device" => Operation::DestroyDevice { device: handle(names, cursor, Kind::Device)? },
        "device_state" => {
            let device = handle(names, cursor, Kind::Device)?;
            let state_type = if cursor.take_word("type") { value32(cursor, "a state type")? } else { 1 };
            Operation::DeviceState { device, state_type }
        }
        "completed" => {
            let device = handle(names, cursor, Kind::Device)?;
            Operation::Completed { device, object: handle(names, cursor, Kind::Object)? }
        }
        "context" => context(names, cursor)?,
        "destroy_context" => Operation::DestroyContext { context: handle(names, cursor, Kind::Context)? },
        "fence" => {
            let device = handle(names, cursor, Kind::Device)?;
            Operation::CreateObject { device, spec: object(names, cursor, SyncObjectType::MONITORED_FENCE)? }
        }
        "object" => {
            let device = handle(names, cursor, Kind::Device)?;
            let kind = object_type(cursor)?;
            Operation::CreateObject { device, spec: object(names, cursor, kind)? }
        }
        "destroy" => Operation::DestroyObject { object: handle(names, cursor, Kind::Object)? },
        "signal" => {
            let device = handle(names, cursor, Kind::Device)?;
            let (targets, flags, _) = targets(names, cursor, "=", false)?;
            Operation::Signal { device, targets, flags }
        }
        "wait" => wait(names, cursor)?,
        "gpu_signal" => gpu_signal(names, cursor)?,
        "gpu_wait" => gpu_wait(names, cursor)?,
        "submit" => submit(names, cursor)?,
        "event" => Operation::NewEvent,
        "read" => Operation::Read { object: handle(names, cursor, Kind::Object)? },
        word => {
            let read = match mutexes::operation(names, word, cursor)? {
                None => queues::operation(names, word, cursor)?,
                read => read,
            };
            let read = match read {
                None => escapes::operation(names, word, cursor)?,
                read => read,
            };
            let read = match read {
                None => lists::operation(names, word, cursor)?,
                read => read,
            };
            read.ok_or_else(|| no_verb(verb))?
        }
    })
}

fn no_verb(verb: &Token) -> ScriptError {
    let error = ScriptError::new(verb.place, format!("there is no verb `{}`", shortened(&verb.text)));
    let is_call =
        |about: &str| about.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == verb.text);
    let calls = || VERBS.iter().filter(|word| verb.text.starts_with("D3DKMT") && is_call(word.about));
    let called = calls().find(|word| word.about.starts_with(&verb.text)).or_else(|| calls().next());
    error.help(match called {
        Some(word) => format!("the call is written `{}`", word.name),
        None => suggestion(&verb.text, VERBS.iter().map(|word| word.name)),
    })
}
