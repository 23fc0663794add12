//! Parses and writes calls by the form in their row of the table of calls.
//!
//! A row's form is `verb` and operands: `"device_state {device} [type={state_type:1}]"`; `d3dkmt`'s `table.rs` explains
//! it. Each field type is an [`Operand`], which parses and writes itself; a form determines its position. The parent
//! module parses and writes the calls with the form `verb ..`.

use d3dkmt::CallOf;

use super::by_hand;
use super::operand::{Operand, Reader};
use crate::program::{Kind, NamedCall, kind_of_call};
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::names::Names;
use crate::script::print::Printer;
use crate::script::token::{Token, TokenKind};

/// An operand of a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// The field of the call.
    pub field: &'static str,
    /// Name of the field's word, if it has no key.
    pub word: &'static str,
    /// Its key, in `KEY=`.
    pub key: Option<&'static str>,
    /// It may be omitted.
    pub optional: bool,
    /// Its value if omitted.
    pub default: Option<&'static str>,
    /// Names of its numbers: a list in [`super::words::number_names`].
    pub names: Option<&'static str>,
    /// The names stand for bits.
    pub bits: bool,
}

impl Slot {
    fn new(text: &'static str) -> Slot {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let optional = bare.is_some();
        let (key, value) = match bare.unwrap_or(text).split_once('=') {
            Some((key, value)) => (Some(key), value),
            None => (None, bare.unwrap_or(text)),
        };
        let value = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
        let value = value.unwrap_or_else(|| panic!("`{text}` of a form has no {{FIELD}}"));
        let (value, default) = match value.split_once(':') {
            Some((value, default)) => (value, Some(default)),
            None => (value, None),
        };
        let (field, names) = match value.split_once(['|', '&']) {
            Some((field, names)) => (field, Some(names)),
            None => (value, None),
        };
        let (field, word) = field.split_once(" as ").unwrap_or((field, field));
        Slot { field, word, key, optional, default, names, bits: value.contains('&') }
    }

    /// Returns the field's name as words.
    pub fn what(&self) -> String {
        self.field.replace('_', " ")
    }
}

/// Returns the operands of a form. They are separated by spaces, except in ` as `.
fn slots(operands: &'static str) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut rest = operands;
    while !rest.is_empty() {
        let end = rest.find('}').unwrap_or_else(|| panic!("`{rest}` of a form has no {{FIELD}}"));
        let end = rest[end..].find(' ').map_or(rest.len(), |space| end + space);
        slots.push(Slot::new(&rest[..end]));
        rest = rest[end..].trim_start();
    }
    slots
}

/// Form of a call.
pub(crate) enum Form {
    /// No scenario can make the call; with the reason.
    None(&'static str),
    /// Its operands are parsed and written by hand.
    ByHand(&'static str),
    Operands(&'static str, Vec<Slot>),
}

impl Form {
    pub fn new(form: &'static str) -> Form {
        if let Some(why) = form.strip_prefix("- ") {
            return Form::None(why);
        }
        let (verb, operands) = form.split_once(' ').unwrap_or((form, ""));
        match form.strip_suffix(" ..") {
            Some(verb) => Form::ByHand(verb),
            None => Form::Operands(verb, slots(operands)),
        }
    }

    /// Returns the call's form on the reference page: `device_state D [type=N]`.
    pub fn page(&self, name: &str) -> Option<(&'static str, String)> {
        let Form::Operands(verb, slots) = self else { return None };
        let mut call = blank(name)?;
        let mut text = match kind_of_call(&call) {
            Kind::Call => (*verb).to_owned(),
            kind => format!("{} = {verb}", kind.letter()),
        };
        let fields = operands(&mut call);
        for slot in slots {
            let value = field(&fields, slot).form(slot);
            let written = slot.key.map_or(value.clone(), |key| format!("{key}={value}"));
            text += &if slot.optional { format!(" [{written}]") } else { format!(" {written}") };
        }
        Some((*verb, text))
    }

    /// What the reference page says of the call of this name in one paragraph: its C names, which begin the doc of its row; what
    /// options are if they are left out; and the words that the form does not show.
    pub fn summary(&self, name: &str, doc: &str) -> Option<String> {
        let Form::Operands(_, slots) = self else { return None };
        let mut call = blank(name)?;
        let fields = operands(&mut call);
        let end = [": ", ". ", " ("].iter().filter_map(|sign| doc.find(sign)).min();
        let names = &doc[..end.unwrap_or(doc.len())];
        let mut text = format!("{}.", names.trim_end_matches('.').replace('`', ""));
        for slot in slots {
            let word = slot.key.unwrap_or(slot.word);
            if let Some(default) = slot.default {
                text += &format!(" `{word}` is {default} if it is left out.");
            }
            let field = field(&fields, slot);
            let (form, words) = (field.form(slot), field.words(slot));
            let hidden: Vec<String> = words
                .iter()
                .filter(|word| ![slot.word, "flags"].contains(word))
                .filter(|word| !form.split(|sign: char| "|[] =".contains(sign)).any(|shown| shown == **word))
                .map(|word| format!("`{word}`"))
                .collect();
            if !hidden.is_empty() {
                text += &format!(" {}: {}.", form.trim_end_matches(" .."), hidden.join(", "));
            }
        }
        Some(text)
    }
}

/// The fields of a call with their names.
type Fields<'a> = Vec<(&'static str, &'a mut dyn Operand)>;

macro_rules! fields_of_calls {
    ($($(#[doc = $doc:literal])* $tag:literal $name:ident
        $({ $($field_tag:tt $field:ident: $kind:ty),+ $(,)? })?
        $(($bare:ident: $bare_kind:ty))?
        $(-> $reply:ident)?
        $(, $effect:ident)?
        => $form:literal;)+) => {
        /// Returns the call of this name, with every field at its default.
        fn blank(name: &str) -> Option<NamedCall> {
            Some(match name {
                $(stringify!($name) => CallOf::$name {
                    $($($field: Default::default()),+)?
                    $($bare: Default::default())?
                },)+
                _ => return None,
            })
        }

        /// Returns the fields of a call, in the order of its row.
        fn operands(call: &mut NamedCall) -> Fields<'_> {
            match call {
                $(CallOf::$name { $($($field),+)? $($bare)? } => vec![
                    $($((stringify!($field), $field as &mut dyn Operand)),+)?
                    $((stringify!($bare), $bare as &mut dyn Operand))?
                ],)+
            }
        }

        /// Descriptions of the calls: the docs of their rows.
        pub(super) const DOCS: &[(&str, &[&str])] = &[$((stringify!($name), &[$($doc),*])),+];
    };
}

d3dkmt::for_each_call!(fields_of_calls);

fn field<'a>(fields: &'a Fields<'_>, slot: &Slot) -> &'a dyn Operand {
    let found = fields.iter().find(|(name, _)| *name == slot.field);
    &*found.unwrap_or_else(|| panic!("a form names the field {}, which its call has not", slot.field)).1
}

fn field_mut<'a, 'f>(fields: &'a mut Fields<'f>, slot: &Slot) -> &'a mut (dyn Operand + 'f) {
    let found = fields.iter_mut().find(|(name, _)| *name == slot.field);
    &mut *found.unwrap_or_else(|| panic!("a form names the field {}, which its call has not", slot.field)).1
}

/// Parses the operands of a verb; `None` if no form has it.
pub(super) fn read(names: &Names, verb: &Token, cursor: &mut Cursor<'_>) -> Parsed<Option<NamedCall>> {
    let forms = NamedCall::FORMS.iter().map(|(name, form)| (*name, Form::new(form)));
    let found = forms.into_iter().find_map(|(name, form)| match form {
        Form::Operands(word, slots) if word == verb.text => Some((name, slots)),
        Form::Operands(..) | Form::ByHand(_) | Form::None(_) => None,
    });
    let Some((name, slots)) = found else { return Ok(None) };
    let mut call = blank(name).expect("the call of a row");
    let mut fields = operands(&mut call);
    let mut reader = Reader { names, cursor };
    for slot in &slots {
        let field = field_mut(&mut fields, slot);
        match slot.optional || slot.key.is_some() {
            true => field.set_default(slot),
            false => field.read(&mut reader, slot)?,
        }
    }
    options(&mut fields, &slots, verb, &mut reader)?;
    drop(fields);
    Ok(Some(call))
}

/// Parses keyed operands, and words that may be omitted.
fn options(
    fields: &mut Fields<'_>,
    slots: &[Slot],
    verb: &Token,
    reader: &mut Reader<'_, '_, '_>,
) -> Parsed<()> {
    let mut missing: Vec<&str> =
        slots.iter().filter(|slot| !slot.optional).filter_map(|slot| slot.key).collect();
    let slots = || slots.iter().filter(|slot| slot.optional || slot.key.is_some());
    while let Some(token) = reader.cursor.peek().filter(|token| token.kind == TokenKind::Atom) {
        if let Some(slot) = slots().find(|slot| slot.key == Some(token.text.as_str())) {
            reader.cursor.next();
            reader.cursor.symbol("=")?;
            field_mut(fields, slot).read(reader, slot)?;
            missing.retain(|key| Some(*key) != slot.key);
            continue;
        }
        let mut taken = false;
        for slot in slots().filter(|slot| slot.key.is_none()) {
            taken = taken || field_mut(fields, slot).accept(reader, slot)?;
        }
        if !taken {
            if let Some(key) = missing.first() {
                return reader.cursor.expected(&format!("`{key}`"));
            }
            let words = slots().filter(|slot| slot.key.is_none());
            let words = words.flat_map(|slot| field(fields, slot).words(slot));
            let known: Vec<&str> = slots().filter_map(|slot| slot.key).chain(words).collect();
            if known.is_empty() {
                return reader.cursor.end();
            }
            reader.cursor.next();
            return Err(unknown(token, &format!("an option of `{}`", verb.text), known));
        }
    }
    match missing.first() {
        Some(key) => reader.cursor.expected(&format!("`{key}`")),
        None => Ok(()),
    }
}

/// Writes a call in its form; `None` if it is written by hand.
pub(super) fn write(printer: &Printer<'_>, call: &NamedCall) -> Option<String> {
    let Form::Operands(verb, slots) = Form::new(call.form()) else { return None };
    let mut call = call.clone();
    let fields = operands(&mut call);
    let mut text = verb.to_owned();
    for slot in &slots {
        let field = field(&fields, slot);
        match slot.key {
            _ if slot.optional && field.is_default(slot) => {}
            Some(key) => text += &format!(" {key}={}", field.write(printer, slot)),
            None => text += &format!(" {}", field.write(printer, slot)),
        }
    }
    Some(text)
}

/// Returns the call with one option removed, for each option.
pub(crate) fn with_one_option_less(call: &NamedCall) -> Vec<NamedCall> {
    let Form::Operands(_, slots) = Form::new(call.form()) else { return Vec::new() };
    let less = slots.iter().filter(|slot| slot.optional).map(|slot| {
        let mut less = call.clone();
        field_mut(&mut operands(&mut less), slot).set_default(slot);
        less
    });
    less.filter(|less| less != call).collect()
}

/// Returns the call as a scenario can express it: fields outside its form have their defaults.
pub fn as_written(call: &NamedCall) -> NamedCall {
    let Form::Operands(_, slots) = Form::new(call.form()) else { return by_hand::as_written(call) };
    let mut plain = call.clone();
    for (name, field) in operands(&mut plain) {
        if !slots.iter().any(|slot| slot.field == name) {
            field.clear();
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use d3dkmt::names::Visit;

    use super::*;
    use crate::Program;
    use crate::program::{Binding, Bindings, Named, Share, Thread};

    /// Replaces NT handles by the first name of a program.
    struct FirstShare;

    impl Visit<Bindings> for FirstShare {
        fn token(&mut self, share: &mut Share) {
            *share = Share(Binding(0));
        }
    }

    #[test]
    fn every_form_names_fields_that_can_be_written() {
        for (name, form) in NamedCall::FORMS {
            if let Some((verb, page)) = Form::new(form).page(name) {
                assert!(page.contains(verb), "{name}: {form}");
            }
        }
    }

    #[test]
    fn calls_without_operands_in_their_form_are_read_and_written_by_hand() {
        let mut program = Program::default();
        let named = Named { name: "N".into(), kind: Kind::Share, thread: Thread(0) };
        program.bindings.push(named);
        let printer = Printer { program: &program };
        for (name, form) in NamedCall::FORMS {
            let Form::ByHand(verb) = Form::new(form) else { continue };
            let mut call = blank(name).expect("the call of a row");
            call.visit_names(&mut FirstShare);
            assert!(
                printer.call_by_hand(&call).is_some(),
                "{name} is not written: `{form}` has it done by hand"
            );
            let read = by_hand::read(&Names::default(), verb, &mut Cursor::new(&[]));
            assert!(!matches!(read, Ok(None)), "{name} is not read: `{form}` has it done by hand");
        }
    }

    #[test]
    fn verbs_are_one_call_each() {
        let mut verbs: Vec<&str> = NamedCall::FORMS
            .iter()
            .filter_map(|(_, form)| match Form::new(form) {
                Form::Operands(verb, _) => Some(verb),
                Form::ByHand(_) | Form::None(_) => None,
            })
            .collect();
        let count = verbs.len();
        verbs.sort_unstable();
        verbs.dedup();
        assert_eq!(verbs.len(), count);
    }
}
