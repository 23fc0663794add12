//! Parses and writes data piece by piece.

use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;

use crate::program::{HandleRef, Kind, Piece, USAGE_WORDS};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::names::Names;
use crate::script::operands::handle;
use crate::script::print::quoted;
use crate::script::token::TokenKind;
use crate::script::words::{self, write_number};

/// Context of data: only expected data may have open parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Given,
    Expected,
}

pub(super) const GIVEN: [&str; 5] = ["u32", "u64", "zeros", "cpu_event_usage", "kmd_cpu_event"];
const EXPECTED: [&str; 7] = ["u32", "u64", "zeros", "cpu_event_usage", "kmd_cpu_event", "any", "some"];

/// Parses as many pieces as there are.
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
            return Err(ScriptError::new(token.span, message));
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Parses the contents of the parentheses.
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

/// Writes pieces, each with a space before it.
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
