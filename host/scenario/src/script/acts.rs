//! Parses acts: `[NAME =] VERB OPERANDS -> EXPECTED`.

use d3dkmt::CallOf;
use proto::scenario_client::BARRIER_STATE_TYPE;

use crate::program::{
    Act, AdapterNumber, Binding, Expected, GpuSignalSpec, HandleRef, Kind, Operation, Thread,
};
use crate::script::cursor::{Cursor, Parsed};
use crate::script::error::{ScriptError, shortened, suggestion};
use crate::script::names::Names;
use crate::script::operands::{adapter_number, share};
use crate::script::token::Token;
use crate::script::verbs::VERBS;
use crate::script::{by_hand, forms, lists};

/// Context of an act: the acts of a race may expect only statuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActContext {
    Steps,
    Race,
}

/// Parses an act after the actor's name.
pub(crate) fn act(
    names: &mut Names,
    thread: Thread,
    cursor: &mut Cursor<'_>,
    context: ActContext,
) -> Parsed<Act> {
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
    check_no_barrier(verb, &operation)?;
    let kind = operation.result_kind();
    let expected = expected(&operation, verb, cursor, context)?;
    cursor.end()?;
    check_binding(verb, name, kind, expected)?;
    let binding = match name {
        Some(name) => Some(names.add_binding(name, kind, thread)?),
        None => None,
    };
    if let (Expected::Blocks, Some(call)) = (expected, binding) {
        names.block(thread, call, verb.span.line);
    }
    Ok(Act { thread, binding, operation, expected })
}

/// Checks that events and fence memory belong to the thread's process.
fn check_own(names: &Names, thread: Thread, operation: &Operation, cursor: &Cursor<'_>) -> Parsed<()> {
    let own = match operation {
        Operation::Read { object: HandleRef::Bound(object) } => Some(*object),
        Operation::Store { allocation, .. } => Some(*allocation),
        Operation::Call(CallOf::WaitFromCpu { event, .. }) => *event,
        Operation::Call(CallOf::CreateSynchronizationObject { info, .. }) => info.event,
        Operation::Call(CallOf::SignalFromGpu { signal: GpuSignalSpec::CpuEvent { event }, .. }) => {
            Some(*event)
        }
        _ => None,
    };
    match own.and_then(|own| Some((own, cursor.find(names.program.name(own))?))) {
        Some((own, token)) => names.check_own(own, thread, token),
        None => Ok(()),
    }
}

/// Checks that a call is not mistaken for a barrier of the live backends.
fn check_no_barrier(verb: &Token, operation: &Operation) -> Parsed<()> {
    let Operation::Call(CallOf::GetDeviceState { state_type: BARRIER_STATE_TYPE, .. }) = operation else {
        return Ok(());
    };
    let message = format!("`{}` of type {BARRIER_STATE_TYPE:#x} is the runner's own call", verb.text);
    Err(ScriptError::new(verb.span, message).help("write another type: the kernel knows 1, 2, 3 and 5"))
}

fn check_binding(verb: &Token, name: Option<&Token>, kind: Kind, expected: Expected) -> Parsed<()> {
    match (name, kind) {
        (None, Kind::Event | Kind::Register | Kind::List | Kind::Messages) => {
            let message = format!("`{}` gives something that needs a name", verb.text);
            Err(ScriptError::new(verb.span, message).help(format!("write `NAME = {}`", verb.text)))
        }
        (None, _) if expected == Expected::Blocks => {
            let message = "a call that blocks needs a name, so that its end can be expected";
            Err(ScriptError::new(verb.span, message).help(format!("write `W = {} ..`", verb.text)))
        }
        _ => Ok(()),
    }
}

/// Parses `-> STATUS`, `-> blocks` or `-> anything`. An operation that is no kernel call has none.
fn expected(
    operation: &Operation,
    verb: &Token,
    cursor: &mut Cursor<'_>,
    context: ActContext,
) -> Parsed<Expected> {
    let arrow = cursor.span();
    if !operation.is_call() {
        if cursor.is_symbol("->") {
            let message = format!("`{}` is no call of the kernel: it has no status", verb.text);
            return Err(ScriptError::new(arrow, message).help("leave `->` and the status out"));
        }
        return Ok(Expected::Status(d3dkmt::NtStatus::SUCCESS));
    }
    if matches!(operation, Operation::Device { .. }) && context == ActContext::Race {
        let message = "`device` is two calls, a step of a race is one";
        return Err(ScriptError::new(verb.span, message).help("write `open_adapter` and `create_device`"));
    }
    if !cursor.take_symbol("->") {
        return cursor.expected("`-> STATUS`: what the call answers, as `-> ok` or `-> INVALID_PARAMETER`");
    }
    let at = cursor.span();
    if cursor.take_word("anything") {
        return Ok(Expected::Any);
    }
    if !cursor.take_word("blocks") {
        let status = cursor.status("a status, `blocks` or `anything`", &["blocks", "anything"])?;
        return Ok(Expected::Status(status));
    }
    match operation {
        _ if context == ActContext::Race => {
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
    if let Some(call) = forms::read(names, verb, cursor)? {
        return Ok(Operation::Call(call));
    }
    if let Some(call) = by_hand::read(names, &verb.text, cursor)? {
        return Ok(Operation::Call(call));
    }
    Ok(match verb.text.as_str() {
        "device" => {
            let adapter =
                if cursor.take_word("on") { adapter_number(names, cursor)? } else { AdapterNumber(0) };
            Operation::Device { adapter }
        }
        "close_share" => Operation::CloseShare { share: share(names, cursor)? },
        "ring" => {
            let (queue, id, commands) = by_hand::queued_buffer(names, cursor)?;
            Operation::RingDoorbell { queue, id, commands }
        }
        "event" => Operation::NewEvent,
        "read" => Operation::Read { object: HandleRef::Bound(fence(names, cursor)?) },
        word => lists::operation(names, word, cursor)?.ok_or_else(|| no_verb(verb))?,
    })
}

/// Parses the name of an object, whose value is in memory if it is a fence.
fn fence(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Binding> {
    names.binding(cursor.atom("the name of a fence")?, "a fence", |kind| kind == Kind::Object)
}

fn no_verb(verb: &Token) -> ScriptError {
    let error = ScriptError::new(verb.span, format!("there is no verb `{}`", shortened(&verb.text)));
    let is_call =
        |about: &str| about.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == verb.text);
    let calls = || VERBS.iter().filter(|word| verb.text.starts_with("D3DKMT") && is_call(&word.about));
    let called = calls().find(|word| word.about.starts_with(verb.text.as_str())).or_else(|| calls().next());
    error.help(match called {
        Some(word) => format!("the call is written `{}`", word.name),
        None => suggestion(&verb.text, VERBS.iter().map(|word| word.name)),
    })
}
