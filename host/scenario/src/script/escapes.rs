//! Escapes and features, and bytes that are written piece by piece.

use std::fmt::Write as _;

use d3dkmt::EscapeFlags;
use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;

use crate::program::{HandleRef, Kind, Operation, Piece, USAGE_WORDS};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::names::Names;
use crate::script::operands::{handle, value32};
use crate::script::print::quoted;
use crate::script::token::TokenKind;
use crate::script::words::{self, ESCAPE_KINDS, FEATURES, named_or_number, write_number};

/// Where bytes are written: only what is expected may be left open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Given,
    Expected,
}

const GIVEN: [&str; 5] = ["u32", "u64", "zeros", "cpu_event_usage", "kmd_cpu_event"];
const EXPECTED: [&str; 7] = ["u32", "u64", "zeros", "cpu_event_usage", "kmd_cpu_event", "any", "some"];

/// Reads the operands of an escape or a feature; `None` if the verb is another.
pub(super) fn operation(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    Ok(Some(match verb {
        "escape" => escape(names, cursor)?,
        "feature" => {
            let adapter = handle(names, cursor, Kind::Adapter)?;
            Operation::Feature { adapter, feature: name_or_number(cursor, "a feature", &FEATURES)? }
        }
        _ => return Ok(None),
    }))
}

fn name_or_number(cursor: &mut Cursor<'_>, what: &str, known: &[(&'static str, u32)]) -> Parsed<u32> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => cursor.number32(what),
        None => cursor.choice(what, known),
    }
}

fn escape(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let adapter = handle(names, cursor, Kind::Adapter)?;
    let (mut device, mut context) = (HandleRef::Raw(0), HandleRef::Raw(0));
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
                    let names = EscapeFlags::all().iter_names().map(|(name, _)| name);
                    let options = ["device", "context", "kind", "flags"].into_iter().chain(GIVEN);
                    let known: Vec<&str> = names.chain(options).collect();
                    return Err(unknown(token, "a flag, an option or data", known));
                }
            },
        }
    }
    let data = pieces(names, cursor, Bytes::Given)?;
    Ok(Operation::Escape { adapter, device, context, kind, flags, data })
}

/// Pieces as far as they go.
pub(super) fn pieces(names: &Names, cursor: &mut Cursor<'_>, bytes: Bytes) -> Parsed<Vec<Piece>> {
    let (mut pieces, mut total) = (Vec::new(), 0);
    while let Some(token) = cursor.peek().filter(|token| token.kind != TokenKind::Symbol) {
        cursor.next();
        let piece = match token.kind {
            TokenKind::Text => Piece::Text(token.text.clone()),
            _ => {
                let known: &[&str] = if bytes == Bytes::Given { &GIVEN } else { &EXPECTED };
                if !known.contains(&token.text.as_str()) {
                    return Err(unknown(token, "a piece of data", known.iter().copied()));
                }
                cursor.symbol("(")?;
                let piece = piece(names, &token.text, cursor)?;
                cursor.symbol(")")?;
                piece
            }
        };
        total += piece.bytes();
        if total > PRIVATE_DATA_BYTES_MAX {
            let message = format!("private data has at most {PRIVATE_DATA_BYTES_MAX} bytes");
            return Err(ScriptError::new(token.place, message));
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

/// What stands between the brackets.
fn piece(names: &Names, word: &str, cursor: &mut Cursor<'_>) -> Parsed<Piece> {
    Ok(match word {
        "u32" => {
            let mut words = vec![word32(names, cursor)?];
            while cursor.take_symbol(",") {
                words.push(word32(names, cursor)?);
            }
            Piece::U32(words)
        }
        "u64" => Piece::U64(cursor.number("64 bits")?),
        "zeros" => Piece::Zeros(cursor.number32("a count of bytes")?),
        "any" => Piece::Any(cursor.number32("a count of bytes")?),
        "some" => Piece::Some(cursor.number32("a count of bytes")?),
        "kmd_cpu_event" => {
            let token = cursor.atom("the name of a call")?;
            Piece::KmdCpuEvent(names.binding(token, "a call", |kind| kind == Kind::Call)?)
        }
        _ => {
            let object = handle(names, cursor, Kind::Object)?;
            let mut usage = Vec::new();
            while usage.len() < USAGE_WORDS && cursor.take_symbol(",") {
                usage.push(cursor.number32("a number of `Usage`")?);
            }
            Piece::CpuEventUsage { object, usage }
        }
    })
}

fn word32(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<HandleRef> {
    match cursor.peek().and_then(|token| words::number(&token.text)) {
        Some(_) => cursor.number32("32 bits").map(HandleRef::Raw),
        None => handle(names, cursor, Kind::Object),
    }
}

/// An escape or a feature as it is written, with `name` for the names of handles and calls; `None` if it is another.
pub(super) fn write(operation: &Operation, name: &dyn Fn(HandleRef) -> String) -> Option<String> {
    match operation {
        Operation::Escape { adapter, device, context, kind, flags, data } => {
            let mut text = format!("escape {}", name(*adapter));
            for (key, handle) in [("device", device), ("context", context)] {
                if *handle != HandleRef::Raw(0) {
                    let _ = write!(text, " {key}={}", name(*handle));
                }
            }
            if *kind != d3dkmt::escape::kind::DRIVER_PRIVATE {
                let _ = write!(text, " kind={}", named_or_number(&ESCAPE_KINDS, *kind));
            }
            if !flags.difference(EscapeFlags::all()).is_empty() {
                let _ = write!(text, " flags={:#x}", flags.bits());
            } else {
                text.extend(flags.iter_names().map(|(name, _)| format!(" {name}")));
            }
            Some(text + &write_pieces(data, name))
        }
        Operation::Feature { adapter, feature } => {
            Some(format!("feature {} {}", name(*adapter), named_or_number(&FEATURES, *feature)))
        }
        _ => None,
    }
}

/// Pieces as they are written, each with a space before it.
pub(super) fn write_pieces(pieces: &[Piece], name: &dyn Fn(HandleRef) -> String) -> String {
    let list = |words: &[u32]| words.iter().map(|word| format!(", {word}")).collect::<String>();
    let word = |word: &HandleRef| match word {
        HandleRef::Bound(_) => name(*word),
        HandleRef::Raw(number) => number.to_string(),
    };
    let piece = |piece: &Piece| match piece {
        Piece::U32(words) => {
            format!(" u32({})", words.iter().map(word).collect::<Vec<_>>().join(", "))
        }
        Piece::U64(number) => format!(" u64({})", write_number(*number)),
        Piece::Zeros(bytes) => format!(" zeros({bytes})"),
        Piece::Text(text) => format!(" {}", quoted(text)),
        Piece::CpuEventUsage { object, usage } => {
            format!(" cpu_event_usage({}{})", name(*object), list(usage))
        }
        Piece::KmdCpuEvent(call) => format!(" kmd_cpu_event({})", name(HandleRef::Bound(*call))),
        Piece::Any(bytes) => format!(" any({bytes})"),
        Piece::Some(bytes) => format!(" some({bytes})"),
    };
    pieces.iter().map(piece).collect()
}
