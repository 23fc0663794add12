//! Parses operands of verbs: handles, NT handles, addresses, numbers.

use d3dkmt::limits;

use crate::program::{AdapterNumber, Address, HandleRef, Kind, Share};
use crate::script::cursor::{Cursor, Parsed};
use crate::script::error::{ScriptError, Span, shortened};
use crate::script::names::{Meaning, Names, OwnerOfAdapters};
use crate::script::token::{Token, TokenKind};
use crate::script::words;

/// Maximum operands of one list: more than the interface accepts, so that its limit can be tested.
const OPERANDS_MAX: usize = 4 * limits::BROADCAST_CONTEXTS_MAX;

/// Parses `=N` after a key.
pub(super) fn value32(cursor: &mut Cursor<'_>, what: &str) -> Parsed<u32> {
    cursor.symbol("=")?;
    cursor.number32(what)
}

pub(super) fn value64(cursor: &mut Cursor<'_>, what: &str) -> Parsed<u64> {
    cursor.symbol("=")?;
    cursor.number(what)
}

pub(super) fn adapter_number(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<AdapterNumber> {
    let span = cursor.span();
    let number = cursor.number32("an adapter's number")?;
    let count = names.program.setting.kernel.adapters.len();
    if (number as usize) < count {
        return Ok(AdapterNumber(number));
    }
    Err(no_adapter(span, number.into(), names.owner_of_adapters, count))
}

/// Returns the error for an adapter beyond the `count` of the scenario or the daemon.
pub(super) fn no_adapter(span: Span, number: u64, owner: OwnerOfAdapters, count: usize) -> ScriptError {
    let error = |owner| {
        ScriptError::new(span, format!("there is no adapter {number}: {owner} has {count}, numbered from 0"))
    };
    match owner {
        OwnerOfAdapters::Scenario => error("the scenario").help("`config adapters = N` makes more"),
        OwnerOfAdapters::Daemon => error("the daemon"),
    }
}

/// Parses a handle operand. Any kind of handle is accepted, because the refusal of a wrong kind is worth a test.
pub(super) fn handle(names: &Names, cursor: &mut Cursor<'_>, kind: Kind) -> Parsed<HandleRef> {
    let token = cursor.atom(&format!("the name of {}", kind.name()))?;
    if token.text == "null" {
        return Ok(HandleRef::Raw(0));
    }
    if token.text.starts_with("0x") {
        let raw = words::number(&token.text).and_then(|raw| u32::try_from(raw).ok());
        return raw.map(HandleRef::Raw).ok_or_else(|| {
            let message = format!("`{}` is no handle: handles have 32 bits", shortened(&token.text));
            ScriptError::new(token.span, message)
        });
    }
    names.binding(token, kind.name(), Kind::is_handle).map(HandleRef::Bound)
}

pub(super) fn share(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Share> {
    let token = cursor.atom("the name of an NT handle")?;
    names.binding(token, "an NT handle", |kind| kind == Kind::Share).map(Share)
}

pub(super) fn check_count(token: &Token, count: usize) -> Parsed<()> {
    if count <= OPERANDS_MAX {
        return Ok(());
    }
    Err(ScriptError::new(token.span, format!("a call takes at most {OPERANDS_MAX} operands of a kind here")))
}

/// Parses one or more handles without values.
pub(super) fn handles(names: &Names, cursor: &mut Cursor<'_>, kind: Kind) -> Parsed<Vec<HandleRef>> {
    let mut handles = vec![handle(names, cursor, kind)?];
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        let alone = !cursor.peek_second().is_some_and(|next| next.is_symbol("=") || next.is_symbol("("));
        let is_handle = match names.look_up(&token.text) {
            Some(Meaning::Binding(binding)) => names.kind(binding).is_handle(),
            Some(Meaning::Vm(_) | Meaning::Process(_) | Meaning::Thread(_)) => false,
            None => token.text == "null" || token.text.starts_with("0x"),
        };
        if !alone || !is_handle {
            break;
        }
        handles.push(handle(names, cursor, kind)?);
        check_count(token, handles.len())?;
    }
    Ok(handles)
}

pub(super) fn address(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Address> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => Ok(Address::Number(cursor.number("an address")?)),
        None => {
            let token = cursor.atom("a GPU address")?;
            names.binding(token, "a GPU address", |kind| kind == Kind::Address).map(Address::Bound)
        }
    }
}

pub(super) fn name_or_number(
    cursor: &mut Cursor<'_>,
    what: &str,
    known: &[(&'static str, u32)],
) -> Parsed<u32> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => cursor.number32(what),
        None => cursor.choice(what, known),
    }
}

/// A text that stands for bytes.
pub(super) fn mutex_data(cursor: &mut Cursor<'_>) -> Parsed<String> {
    let text = cursor.text("the data, in quotes")?;
    if text.text.len() > limits::PRIVATE_DATA_BYTES_MAX {
        return Err(ScriptError::new(text.span, "the data is longer than any private data"));
    }
    Ok(text.text.clone())
}
