//! Operands of calls: parses and writes each type of field.

use d3dkmt::limits::PRIVATE_DATA_BYTES_MAX;
use d3dkmt::{
    CreateContextFlags, DestroyAllocationFlags, EscapeFlags, HwQueueFlags, KeyedMutexFlags, ResourceInfo,
    SignalFlags, SyncObjectFlags, Values, WaitFromCpuFlags,
};

use super::cursor::{Cursor, Parsed};
use super::error::ScriptError;
use super::forms::Slot;
use super::names::{Meaning, Names};
use super::operands;
use super::print::{Printer, quoted};
use super::token::TokenKind;
use super::words::{self, number_names, write_duration, write_number};
use crate::limits::TIME_MAX_NS;
use crate::program::{
    AdapterNumber, Address, AllocationSpec, Binding, BufferSize, Command, GpuSignalSpec, GpuVaRange,
    HandleRef, Kind, MutexBuffer, MutexText, ObjectSpec, Piece, Share, Timeout,
};

/// The source of operands.
pub(super) struct Reader<'r, 'n, 'c> {
    pub names: &'n Names,
    pub cursor: &'r mut Cursor<'c>,
}

/// A field of a call. The default methods are those of a field that no form names.
pub(super) trait Operand {
    /// Parses the value that must be here.
    fn read(&mut self, _: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        panic!("a form names the field {}, which has no written form", slot.field)
    }

    /// Consumes the next word if it is an option of this field without a key.
    fn accept(&mut self, _: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<bool> {
        panic!("a form names the field {}, which needs a key", slot.field)
    }

    /// Returns the words that `accept` consumes, for suggestions.
    fn words(&self, _: &Slot) -> Vec<&'static str> {
        Vec::new()
    }

    fn write(&self, _: &Printer<'_>, slot: &Slot) -> String {
        panic!("a form names the field {}, which has no written form", slot.field)
    }

    /// Returns its placeholder on the reference page.
    fn form(&self, slot: &Slot) -> String {
        panic!("a form names the field {}, which has no written form", slot.field)
    }

    /// Whether it has the value of an omitted slot.
    fn is_default(&self, slot: &Slot) -> bool;

    fn set_default(&mut self, slot: &Slot);

    /// Resets it to the value of an empty call.
    fn clear(&mut self);
}

/// Implements the defaults of a field by its type's default.
macro_rules! plain_default {
    () => {
        fn is_default(&self, _: &Slot) -> bool {
            *self == Self::default()
        }

        fn set_default(&mut self, _: &Slot) {
            self.clear();
        }

        fn clear(&mut self) {
            *self = Self::default();
        }
    };
}

/// Implements types that only calls with a form by hand use.
macro_rules! by_hand {
    ($($type:ty),+ $(,)?) => {
        $(impl Operand for $type {
            plain_default!();
        })+
    };
}

by_hand! {
    (), Option<Binding>, Values, Vec<u8>, Vec<u32>, Vec<Command>, Vec<Piece>, Vec<GpuVaRange>, AllocationSpec,
    GpuSignalSpec, MutexBuffer, ObjectSpec, ResourceInfo,
}

impl Slot {
    /// Returns the kind of object that a handle of this field should name.
    fn kind(&self) -> Kind {
        match self.field {
            "adapter" => Kind::Adapter,
            "device" => Kind::Device,
            "context" => Kind::Context,
            "mutex" => Kind::KeyedMutex,
            "queue" => Kind::HwQueue,
            "paging_queue" | "owner" => Kind::PagingQueue,
            "allocation" | "allocations" | "resource" => Kind::Allocation,
            _ => Kind::Object,
        }
    }
}

impl Operand for HandleRef {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        *self = operands::handle(reader.names, reader.cursor, slot.kind())?;
        Ok(())
    }

    fn accept(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<bool> {
        let Some(token) = reader.cursor.peek() else { return Ok(false) };
        let is_option = reader.cursor.peek_second().is_some_and(|next| next.is_symbol("="));
        let is_handle = match reader.names.look_up(&token.text) {
            Some(Meaning::Binding(_)) => true,
            Some(Meaning::Vm(_) | Meaning::Process(_) | Meaning::Thread(_)) => false,
            None => token.text == "null" || token.text.starts_with("0x"),
        };
        if is_option || !is_handle {
            return Ok(false);
        }
        self.read(reader, slot).map(|()| true)
    }

    fn write(&self, printer: &Printer<'_>, _: &Slot) -> String {
        printer.handle(*self)
    }

    fn form(&self, slot: &Slot) -> String {
        slot.kind().letter().to_string()
    }
}

impl Operand for Vec<HandleRef> {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        *self = operands::handles(reader.names, reader.cursor, slot.kind())?;
        Ok(())
    }

    fn write(&self, printer: &Printer<'_>, _: &Slot) -> String {
        self.iter().map(|handle| printer.handle(*handle)).collect::<Vec<_>>().join(" ")
    }

    fn form(&self, slot: &Slot) -> String {
        {
            let letter = slot.kind().letter();
            format!("{letter} [{letter} ..]")
        }
    }
}

impl Operand for AdapterNumber {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<()> {
        *self = operands::adapter_number(reader.names, reader.cursor)?;
        Ok(())
    }

    fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
        self.0.to_string()
    }

    fn form(&self, _: &Slot) -> String {
        "N".into()
    }
}

impl Operand for Share {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<()> {
        *self = operands::share(reader.names, reader.cursor)?;
        Ok(())
    }

    fn write(&self, printer: &Printer<'_>, _: &Slot) -> String {
        printer.program.name(self.0).into()
    }

    fn form(&self, _: &Slot) -> String {
        "N".into()
    }
}

impl Operand for Address {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<()> {
        *self = operands::address(reader.names, reader.cursor)?;
        Ok(())
    }

    fn write(&self, printer: &Printer<'_>, _: &Slot) -> String {
        printer.address(*self)
    }

    fn form(&self, _: &Slot) -> String {
        "V".into()
    }
}

impl Operand for BufferSize {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<()> {
        let bytes = reader.cursor.number32("a size")?;
        if bytes as usize > PRIVATE_DATA_BYTES_MAX {
            let message = format!("private data has at most {PRIVATE_DATA_BYTES_MAX} bytes");
            return Err(ScriptError::new(reader.cursor.last_span(), message));
        }
        *self = BufferSize(bytes);
        Ok(())
    }

    fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
        self.0.to_string()
    }

    fn form(&self, _: &Slot) -> String {
        "N".into()
    }
}

impl Operand for String {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        self.clone_from(&reader.cursor.text(&format!("the {}, in quotes", slot.what()))?.text);
        Ok(())
    }

    fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
        quoted(self)
    }

    fn form(&self, _: &Slot) -> String {
        "\"TEXT\"".into()
    }
}

impl Operand for Option<String> {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        self.get_or_insert_default().read(reader, slot)
    }

    fn write(&self, printer: &Printer<'_>, slot: &Slot) -> String {
        self.as_ref().map(|text| text.write(printer, slot)).unwrap_or_default()
    }

    fn form(&self, slot: &Slot) -> String {
        String::new().form(slot)
    }
}

impl Operand for MutexText {
    plain_default!();

    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<()> {
        self.0 = Some(operands::mutex_data(reader.cursor)?);
        Ok(())
    }

    fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
        self.0.as_deref().map(quoted).unwrap_or_default()
    }

    fn form(&self, slot: &Slot) -> String {
        String::new().form(slot)
    }
}

impl Operand for bool {
    plain_default!();

    fn accept(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<bool> {
        let is_next = reader.cursor.take_word(slot.field);
        *self |= is_next;
        Ok(is_next)
    }

    fn words(&self, slot: &Slot) -> Vec<&'static str> {
        vec![slot.field]
    }

    fn write(&self, _: &Printer<'_>, slot: &Slot) -> String {
        slot.field.into()
    }

    fn form(&self, slot: &Slot) -> String {
        slot.field.into()
    }
}

impl Operand for Timeout {
    plain_default!();

    fn accept(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<bool> {
        if reader.cursor.take_word("poll") {
            *self = Timeout::Poll;
            return Ok(true);
        }
        let until = reader.cursor.take_word("until");
        if !until && !reader.cursor.take_word("timeout") {
            return Ok(false);
        }
        reader.cursor.symbol("=")?;
        let span = reader.cursor.span();
        let time = reader.cursor.duration()?;
        if time > TIME_MAX_NS || time % 100 != 0 {
            return Err(ScriptError::new(span, "a time-out has steps of 100 ns, and ends within ten years"));
        }
        *self = if until { Timeout::Until(time) } else { Timeout::Within(time) };
        Ok(true)
    }

    fn words(&self, _: &Slot) -> Vec<&'static str> {
        vec!["poll", "timeout", "until"]
    }

    fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
        match *self {
            Timeout::Forever => String::new(),
            Timeout::Poll => "poll".into(),
            Timeout::Within(time) => format!("timeout={}", write_duration(time)),
            Timeout::Until(time) => format!("until={}", write_duration(time)),
        }
    }

    fn form(&self, _: &Slot) -> String {
        "poll|timeout=TIME|until=TIME".into()
    }
}

/// A number of a certain width.
trait Number: Copy + TryFrom<i128> + Into<i128> + Default {
    const BITS: &'static str;
}

impl Number for u32 {
    const BITS: &'static str = "32 bits";
}

impl Number for u64 {
    const BITS: &'static str = "64 bits";
}

impl Number for i32 {
    const BITS: &'static str = "32 bits with a sign";
}

/// A number, or its name if the slot has names.
impl<T: Number> Operand for T {
    fn read(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<()> {
        let span = reader.cursor.span();
        let number = match slot.names.map(number_names) {
            Some(names) if reader.cursor.peek().is_some_and(|token| words::number(&token.text).is_none()) => {
                reader.cursor.choice(&format!("a {}", slot.what()), names)?.into()
            }
            Some(_) | None => i128::from(reader.cursor.number(&format!("a {}", slot.what()))?),
        };
        *self = T::try_from(number).map_err(|_| {
            ScriptError::new(span, format!("{number} does not fit {}, as a {} must", T::BITS, slot.what()))
        })?;
        Ok(())
    }

    fn accept(&mut self, reader: &mut Reader<'_, '_, '_>, slot: &Slot) -> Parsed<bool> {
        let Some(token) = reader.cursor.peek() else { return Ok(false) };
        let names = slot.names.map(number_names).unwrap_or_default();
        let named = names.iter().find(|(name, _)| *name == token.text).map(|(_, number)| i128::from(*number));
        let value = match named {
            Some(number) => {
                reader.cursor.next();
                number
            }
            None if token.text == slot.word => {
                reader.cursor.next();
                reader.cursor.symbol("=")?;
                let mut number = T::default();
                number.read(reader, slot)?;
                number.into()
            }
            None => return Ok(false),
        };
        let both = if slot.bits { (*self).into() | value } else { value };
        *self = T::try_from(both).unwrap_or_default();
        Ok(true)
    }

    fn words(&self, slot: &Slot) -> Vec<&'static str> {
        let names = slot.names.map(number_names).unwrap_or_default();
        names.iter().map(|(name, _)| *name).chain([slot.word]).collect()
    }

    fn write(&self, _: &Printer<'_>, slot: &Slot) -> String {
        let number: i128 = (*self).into();
        let names = slot.names.map(number_names).unwrap_or_default();
        if slot.bits {
            let named = names.iter().filter(|(_, bit)| number & i128::from(*bit) != 0);
            let rest = named.clone().fold(number, |rest, (_, bit)| rest & !i128::from(*bit));
            let rest = (rest != 0).then(|| format!("{}={rest:#x}", slot.word));
            let words = named.map(|(name, _)| (*name).to_owned()).chain(rest);
            return words.collect::<Vec<_>>().join(" ");
        }
        let plain = u64::try_from(number).map_or_else(|_| number.to_string(), write_number);
        match names.iter().find(|(_, known)| i128::from(*known) == number) {
            Some((name, _)) => (*name).to_owned(),
            None if slot.optional && slot.key.is_none() => format!("{}={plain}", slot.word),
            None => plain,
        }
    }

    fn form(&self, slot: &Slot) -> String {
        let names = slot.names.map(number_names).unwrap_or_default();
        let all = names.iter().map(|(name, _)| *name);
        match names.len() {
            0 => "N".into(),
            1..=4 if slot.bits => all.collect::<Vec<_>>().join("] ["),
            1..=4 => all.collect::<Vec<_>>().join("|"),
            _ => slot.key.unwrap_or(slot.field.trim_end_matches("_id")).to_ascii_uppercase(),
        }
    }

    fn is_default(&self, slot: &Slot) -> bool {
        (*self).into() == default_number(slot)
    }

    fn set_default(&mut self, slot: &Slot) {
        *self = T::try_from(default_number(slot)).unwrap_or_default();
    }

    fn clear(&mut self) {
        *self = T::default();
    }
}

fn default_number(slot: &Slot) -> i128 {
    let Some(default) = slot.default else { return 0 };
    let named = slot.names.map(number_names).unwrap_or_default().iter().find(|(name, _)| *name == default);
    let number = named.map(|(_, number)| i128::from(*number));
    number.or_else(|| default.parse().ok()).expect("the default of a form is a number or its name")
}

/// A flag word: names of its bits, and `flags=N`.
trait FlagWord: Copy + PartialEq + Default {
    /// Names of bits; names of several bits are first.
    fn names() -> Vec<(&'static str, Self)>;
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
    /// Returns the bits without a name.
    fn unknown(self) -> u32;
}

macro_rules! flag_words {
    ($($flags:ty $([$($word:literal = $bits:expr),+])?),+ $(,)?) => {
        $(impl FlagWord for $flags {
            fn names() -> Vec<(&'static str, $flags)> {
                let own: Vec<(&'static str, $flags)> = vec![$($(($word, $bits)),+)?];
                own.into_iter().chain(<$flags>::all().iter_names()).collect()
            }

            fn bits(self) -> u32 {
                <$flags>::bits(&self)
            }

            fn from_bits(bits: u32) -> $flags {
                <$flags>::from_bits_retain(bits)
            }

            fn unknown(self) -> u32 {
                <$flags>::unknown(self)
            }
        }

        impl Operand for $flags {
            plain_default!();

            fn accept(&mut self, reader: &mut Reader<'_, '_, '_>, _: &Slot) -> Parsed<bool> {
                let Some(flags) = accept_flags::<$flags>(reader)? else { return Ok(false) };
                *self |= flags;
                Ok(true)
            }

            fn words(&self, _: &Slot) -> Vec<&'static str> {
                <$flags as FlagWord>::names().into_iter().map(|(name, _)| name).chain(["flags"]).collect()
            }

            fn write(&self, _: &Printer<'_>, _: &Slot) -> String {
                write_flags(*self)
            }

            fn form(&self, _: &Slot) -> String {
                "FLAG ..".into()
            }
        })+
    };
}

flag_words! {
    SyncObjectFlags ["shared" = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING],
    KeyedMutexFlags ["shared" = KeyedMutexFlags::NT_SECURITY_SHARING],
    CreateContextFlags, DestroyAllocationFlags, EscapeFlags, HwQueueFlags, SignalFlags, WaitFromCpuFlags,
}

fn accept_flags<F: FlagWord>(reader: &mut Reader<'_, '_, '_>) -> Parsed<Option<F>> {
    let Some(token) = reader.cursor.peek().filter(|token| token.kind == TokenKind::Atom) else {
        return Ok(None);
    };
    if token.text == "flags" {
        reader.cursor.next();
        return operands::value32(reader.cursor, "flags").map(F::from_bits).map(Some);
    }
    let named = F::names().into_iter().find(|(name, _)| *name == token.text);
    if named.is_some() {
        reader.cursor.next();
    }
    Ok(named.map(|(_, flag)| flag))
}

fn write_flags<F: FlagWord>(flags: F) -> String {
    if flags.unknown() != 0 {
        return format!("flags={:#x}", flags.bits());
    }
    let mut rest = flags.bits();
    let mut words = Vec::new();
    for (name, flag) in F::names() {
        if flag.bits() & !rest == 0 && flag.bits() != 0 {
            rest &= !flag.bits();
            words.push(name);
        }
    }
    words.join(" ")
}
