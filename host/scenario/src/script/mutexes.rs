//! Operands of what is shared: NT handles, names, keyed mutexes.

use d3dkmt::{KeyedMutexFlags, limits};

use crate::limits::TIME_MAX_NS;
use crate::program::{HandleRef, Kind, Operation, Timeout};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::ScriptError;
use crate::script::names::{Meaning, Names};
use crate::script::operands::{handle, handles, object_flag, share, value32, value64};
use crate::script::token::{Token, TokenKind};
use crate::script::words;

/// Reads the operands of a verb of sharing; `None` if it is none.
pub(super) fn operation(names: &Names, verb: &str, cursor: &mut Cursor<'_>) -> Parsed<Option<Operation>> {
    Ok(Some(match verb {
        "share" => {
            let objects = handles(names, cursor, Kind::Object)?;
            let (access, name) = access_and_name(cursor, true)?;
            Operation::Share { objects, access, name }
        }
        "open_name" => {
            let name = cursor.text("the name, in quotes")?.text.clone();
            let (access, _) = access_and_name(cursor, false)?;
            Operation::OpenName { name, access }
        }
        "open" => open(names, cursor)?,
        "open_global" => Operation::OpenGlobal { object: handle(names, cursor, Kind::Object)? },
        "close_share" => Operation::CloseShare { share: share(names, cursor)? },
        "keyed_mutex" => keyed_mutex(cursor)?,
        "open_keyed_mutex" => open_keyed_mutex(names, cursor)?,
        "destroy_keyed_mutex" => {
            Operation::DestroyKeyedMutex { mutex: handle(names, cursor, Kind::KeyedMutex)? }
        }
        "acquire" => acquire(names, cursor)?,
        "release" => release(names, cursor)?,
        _ => return Ok(None),
    }))
}

/// The options of a verb, each a word that `each` knows.
fn options<'a>(
    cursor: &mut Cursor<'a>,
    what: &str,
    known: &[&'static str],
    mut each: impl FnMut(&'a Token, &mut Cursor<'a>) -> Parsed<()>,
) -> Parsed<()> {
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        cursor.next();
        if !known.contains(&token.text.as_str()) {
            return Err(unknown(token, what, known.iter().copied()));
        }
        each(token, cursor)?;
    }
    Ok(())
}

fn access_and_name(cursor: &mut Cursor<'_>, named: bool) -> Parsed<(u32, Option<String>)> {
    let (mut access, mut name) = (words::GENERIC_ALL, None);
    let known: &[&str] = if named { &["access", "name"] } else { &["access"] };
    options(cursor, "an option", known, |token, cursor| {
        cursor.symbol("=")?;
        if token.text == "name" {
            name = Some(cursor.text("the name, in quotes")?.text.clone());
            return Ok(());
        }
        access = match cursor.peek().and_then(|token| words::number(&token.text)) {
            Some(_) => cursor.number32("rights")?,
            None => cursor.choice("a right", &words::ACCESS)?,
        };
        Ok(())
    })?;
    Ok((access, name))
}

fn open(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let device = handle(names, cursor, Kind::Device)?;
    let share = share(names, cursor)?;
    let (mut flags, mut engine_affinity, mut legacy) = (d3dkmt::SyncObjectFlags::empty(), 0, false);
    while let Some(token) = cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        match token.text.as_str() {
            "affinity" => {
                cursor.next();
                engine_affinity = value32(cursor, "an affinity")?;
            }
            "legacy" => {
                cursor.next();
                legacy = true;
            }
            _ => flags |= object_flag(cursor)?,
        }
    }
    Ok(Operation::Open { device, share, flags, engine_affinity, legacy })
}

/// A text that stands for bytes.
fn data(cursor: &mut Cursor<'_>) -> Parsed<String> {
    cursor.symbol("=")?;
    let text = cursor.text("the data, in quotes")?;
    if text.text.len() > limits::PRIVATE_DATA_BYTES_MAX {
        return Err(ScriptError::new(text.place, "the data is longer than any private data"));
    }
    Ok(text.text.clone())
}

fn keyed_mutex(cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let (mut key, mut bytes, mut flags) = (0, None, KeyedMutexFlags::empty());
    let known = ["key", "data", "shared", "flags"];
    options(cursor, "an option of a keyed mutex", &known, |token, cursor| {
        match token.text.as_str() {
            "key" => key = value64(cursor, "a key")?,
            "data" => bytes = Some(data(cursor)?),
            "shared" => flags |= KeyedMutexFlags::NT_SECURITY_SHARING,
            _ => flags |= KeyedMutexFlags::from_bits_retain(value32(cursor, "flags")?),
        }
        Ok(())
    })?;
    Ok(Operation::CreateKeyedMutex { key, data: bytes, flags })
}

fn open_keyed_mutex(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let token = cursor.peek().filter(|token| token.kind == TokenKind::Atom);
    let by_share = token.and_then(|token| match names.look_up(&token.text)? {
        Meaning::Binding(binding) => (names.kind(binding) == Kind::Share).then_some(binding),
        Meaning::Vm(_) | Meaning::Process(_) | Meaning::Thread(_) => None,
    });
    let mutex = match by_share {
        Some(_) => {
            cursor.next();
            HandleRef::Raw(0)
        }
        None => handle(names, cursor, Kind::KeyedMutex)?,
    };
    let (mut buffer, mut bytes) = (0, None);
    options(cursor, "an option", &["buffer", "data"], |token, cursor| {
        match token.text.as_str() {
            "buffer" => buffer = value32(cursor, "a size in bytes")?,
            _ => bytes = Some(data(cursor)?),
        }
        Ok(())
    })?;
    Ok(match by_share {
        Some(share) => Operation::OpenSharedKeyedMutex { share, buffer, data: bytes },
        None => Operation::OpenKeyedMutex { mutex, buffer, data: bytes },
    })
}

fn acquire(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let mutex = handle(names, cursor, Kind::KeyedMutex)?;
    cursor.word("key")?;
    let key = value64(cursor, "a key")?;
    let mut timeout = Timeout::Forever;
    options(cursor, "an option of an acquire", &["poll", "timeout", "until"], |token, cursor| {
        if token.text == "poll" {
            timeout = Timeout::Poll;
            return Ok(());
        }
        cursor.symbol("=")?;
        let place = cursor.place();
        let time = cursor.duration()?;
        if time > TIME_MAX_NS || time % 100 != 0 {
            return Err(ScriptError::new(place, "a time-out has steps of 100 ns, and ends within ten years"));
        }
        timeout = if token.text == "until" { Timeout::Until(time) } else { Timeout::Within(time) };
        Ok(())
    })?;
    Ok(Operation::Acquire { mutex, key, timeout })
}

fn release(names: &Names, cursor: &mut Cursor<'_>) -> Parsed<Operation> {
    let mutex = handle(names, cursor, Kind::KeyedMutex)?;
    cursor.word("key")?;
    let key = value64(cursor, "a key")?;
    let (mut value, mut bytes) = (0, None);
    options(cursor, "an option of a release", &["value", "data"], |token, cursor| {
        match token.text.as_str() {
            "value" => value = value64(cursor, "a fence value")?,
            _ => bytes = Some(data(cursor)?),
        }
        Ok(())
    })?;
    Ok(Operation::Release { mutex, key, value, data: bytes })
}
