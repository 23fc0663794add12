//! Matrices: `matrix NAME = VALUE ..` lines define cases, `given NAME = VALUE when ..` lines compute what a case
//! expects. Other lines use their names as `$NAME`.
//!
//! ```text
//! matrix value = 4 5 6
//! given  comes = ok     when value below 6
//! given  comes = blocks otherwise
//! ```
//!
//! Any other line may end in `when AXIS is VALUE and ..`: it is then part of those cases only.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{AXES_MAX, AXIS_VALUES_MAX, CASES_MAX, NAME_CHARACTERS_MAX, WORDS_MAX};
use crate::script::error::{ScriptError, Span, shortened, suggestion};
use crate::script::token::{Token, TokenKind};
use crate::script::words::number;

/// One axis: `matrix NAME = VALUE ..`.
struct Axis {
    name: Token,
    values: Vec<Token>,
}

enum Relation {
    Is,
    Not,
    Below,
    AtLeast,
}

pub(super) struct Condition {
    name: Token,
    relation: Relation,
    values: Vec<String>,
}

/// `given NAME = VALUE when ..`; `otherwise` has no conditions.
struct Given {
    name: Token,
    value: Vec<Token>,
    conditions: Vec<Condition>,
}

/// All matrix and given lines of a file.
#[derive(Default)]
pub(crate) struct Matrix {
    axes: Vec<Axis>,
    given: Vec<Given>,
}

/// Another line of the file, with its conditions.
pub(super) struct Line {
    pub tokens: Vec<Token>,
    conditions: Vec<Condition>,
}

impl Line {
    /// The error of a line that no case has.
    pub fn is_in_no_case(&self) -> ScriptError {
        let span = self.conditions.first().map_or(self.tokens[0].span, |condition| condition.name.span);
        let error = ScriptError::new(span, "this line is in no case: no case meets its condition");
        error.help("leave it out, or correct the condition")
    }
}

/// The value of each name in one case.
#[derive(Clone, Default)]
pub(crate) struct Case {
    pub name: String,
    values: BTreeMap<String, Vec<Token>>,
}

const RELATIONS: [&str; 4] = ["is", "not", "below", "at_least"];
const FORM: &str = "`matrix NAME = VALUE VALUE ..`";
const GIVEN_FORM: &str = "`given NAME = VALUE when AXIS is VALUE and ..`, or `.. otherwise`";

fn name_and_rest<'a>(tokens: &'a [Token], form: &str) -> Result<(&'a Token, &'a [Token]), ScriptError> {
    match tokens {
        [_, name, equals, rest @ ..] if name.kind == TokenKind::Atom && equals.is_symbol("=") => {
            Ok((name, rest))
        }
        [first] => Err(ScriptError::new(first.span, format!("expected {form}"))),
        [_, name] => Err(ScriptError::new(name.span, format!("expected {form}"))),
        [_, _, third, ..] => Err(ScriptError::new(third.span, format!("expected {form}"))),
        [] => unreachable!("a line has a first word"),
    }
}

/// Checks the name of a matrix. These names are separate from those of actors and handles, so any word is allowed.
fn check_name(name: &Token) -> Result<(), ScriptError> {
    let fit = name.text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.text.len() <= NAME_CHARACTERS_MAX
        && !name.text.contains(['$', '^', '.']);
    if fit {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of a matrix", shortened(&name.text));
    Err(ScriptError::new(name.span, message)
        .help("names begin with a letter; `$` stands where they are used"))
}

/// Checks that values are literal words.
fn check_no_name(values: &[Token]) -> Result<(), ScriptError> {
    match values.iter().find(|value| value.kind == TokenKind::Atom && value.text.starts_with('$')) {
        None => Ok(()),
        Some(value) => {
            let message = format!("`{}` cannot stand in a matrix", shortened(&value.text));
            Err(ScriptError::new(value.span, message).help("conditions name a matrix without `$`"))
        }
    }
}

pub(crate) fn too_many_words(span: Span) -> ScriptError {
    let message = format!("the cases of the file have more than {WORDS_MAX} words together, the limit");
    ScriptError::new(span, message).help("make two files of it, or cases fewer")
}

impl Given {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|condition| condition.name.text.as_str())
    }

    fn words(&self) -> usize {
        self.value.len() + self.conditions.iter().map(|condition| 1 + condition.values.len()).sum::<usize>()
    }
}

impl Matrix {
    /// Checks that every name is used: in a line, or in a condition.
    pub fn check_used(&self, lines: &[Line]) -> Result<(), ScriptError> {
        let mut used: BTreeSet<&str> = self.given.iter().flat_map(Given::names).collect();
        used.extend(lines.iter().flat_map(|line| &line.conditions).map(|one| one.name.text.as_str()));
        used.extend(lines.iter().flat_map(|line| &line.tokens).filter_map(|token| match token.kind {
            TokenKind::Atom => token.text.strip_prefix('$'),
            TokenKind::Text | TokenKind::Symbol => None,
        }));
        let all = self.axes.iter().map(|axis| &axis.name).chain(self.given.iter().map(|given| &given.name));
        match all.into_iter().find(|name| !used.contains(name.text.as_str())) {
            None => Ok(()),
            Some(name) => {
                let error = ScriptError::new(name.span, format!("nothing uses the matrix {}", name.text));
                Err(error.help(format!("write `${}` where its values stand", name.text)))
            }
        }
    }

    /// Adds a line that begins with `matrix`.
    pub fn axis(&mut self, tokens: &[Token]) -> Result<(), ScriptError> {
        let (name, values) = name_and_rest(tokens, FORM)?;
        check_name(name)?;
        if let Some(first) = self.axes.iter().find(|axis| axis.name.text == name.text) {
            let message =
                format!("there is a matrix {} already, in line {}", name.text, first.name.span.line);
            return Err(ScriptError::new(name.span, message));
        }
        if let Some(given) = self.given.iter().find(|given| given.name.text == name.text) {
            let message = format!("{} is given already, in line {}", name.text, given.name.span.line);
            return Err(ScriptError::new(name.span, message));
        }
        if self.axes.len() >= AXES_MAX {
            return Err(ScriptError::new(name.span, format!("more than {AXES_MAX} matrices, the limit")));
        }
        if values.is_empty() || values.len() > AXIS_VALUES_MAX {
            let message =
                format!("{} has {} values, allowed are 1 to {AXIS_VALUES_MAX}", name.text, values.len());
            return Err(ScriptError::new(name.span, message));
        }
        if let Some(symbol) = values.iter().find(|value| value.kind == TokenKind::Symbol) {
            return Err(ScriptError::new(symbol.span, "values are separated by spaces alone"));
        }
        if let Some(twice) =
            (1..values.len()).find(|at| values[..*at].iter().any(|other| other.text == values[*at].text))
        {
            let message = format!("{} has the value {} twice", name.text, shortened(&values[twice].text));
            return Err(ScriptError::new(values[twice].span, message));
        }
        check_no_name(values)?;
        self.axes.push(Axis { name: name.clone(), values: values.to_vec() });
        Ok(())
    }

    /// Adds a line that begins with `given`.
    pub fn given(&mut self, tokens: &[Token]) -> Result<(), ScriptError> {
        let (name, rest) = name_and_rest(tokens, GIVEN_FORM)?;
        check_name(name)?;
        check_no_name(rest)?;
        if let Some(axis) = self.axes.iter().find(|axis| axis.name.text == name.text) {
            let message = format!("{} is a matrix already, in line {}", name.text, axis.name.span.line);
            return Err(ScriptError::new(name.span, message));
        }
        let all = |given: &&Given| given.name.text == name.text && given.conditions.is_empty();
        if let Some(last) = self.given.iter().find(all) {
            let message =
                format!("{} is given for every other case in line {}", name.text, last.name.span.line);
            return Err(ScriptError::new(name.span, message).help("`otherwise` is the last line of a name"));
        }
        let word =
            |word: &'static str| move |token: &Token| token.kind == TokenKind::Atom && token.text == word;
        if let Some(at) = rest.iter().position(word("otherwise")) {
            if let Some(more) = rest.get(at + 1) {
                return Err(ScriptError::new(more.span, "nothing comes after `otherwise`"));
            }
            self.given.push(Given { name: name.clone(), value: rest[..at].to_vec(), conditions: Vec::new() });
            return Ok(());
        }
        let Some(when) = rest.iter().position(word("when")) else {
            let last = tokens.last().expect("a line has a first word");
            return Err(ScriptError::new(last.span, format!("expected {GIVEN_FORM}")));
        };
        let conditions = self.conditions(&rest[when + 1..], &rest[when])?;
        self.given.push(Given { name: name.clone(), value: rest[..when].to_vec(), conditions });
        Ok(())
    }

    /// Parses `AXIS is VALUE and ..` after `when`.
    fn conditions(&self, tokens: &[Token], when: &Token) -> Result<Vec<Condition>, ScriptError> {
        tokens.split(|token| token.is_word("and")).map(|part| self.condition(part, when)).collect()
    }

    /// Splits a line from its conditions.
    pub fn line(&self, mut tokens: Vec<Token>) -> Result<Line, ScriptError> {
        let Some(at) = tokens.iter().skip(1).position(|token| token.is_word("when")).map(|at| at + 1) else {
            return Ok(Line { tokens, conditions: Vec::new() });
        };
        let rest = tokens.split_off(at);
        let conditions = self.conditions(&rest[1..], &rest[0])?;
        Ok(Line { tokens, conditions })
    }

    fn condition(&self, tokens: &[Token], when: &Token) -> Result<Condition, ScriptError> {
        let [name, relation, values @ ..] = tokens else {
            let span = tokens.first().unwrap_or(when).span;
            return Err(ScriptError::new(span, "expected a condition, as `value below 6`"));
        };
        let known: Vec<&str> = self.names().collect();
        if !known.contains(&name.text.as_str()) {
            let error = ScriptError::new(name.span, format!("there is no matrix {}", shortened(&name.text)));
            return Err(error.help(suggestion(&name.text, known)));
        }
        let relation = match relation.text.as_str() {
            "is" => Relation::Is,
            "not" => Relation::Not,
            "below" => Relation::Below,
            "at_least" => Relation::AtLeast,
            other => {
                let error =
                    ScriptError::new(relation.span, format!("there is no relation `{}`", shortened(other)));
                return Err(error.help(suggestion(other, RELATIONS)));
            }
        };
        let numeric = matches!(relation, Relation::Below | Relation::AtLeast);
        if values.is_empty() || (numeric && (values.len() != 1 || number(&values[0].text).is_none())) {
            let (expected, last) =
                (if numeric { "one number" } else { "a value" }, tokens.last().unwrap_or(name));
            return Err(ScriptError::new(last.span, format!("the condition needs {expected} at its end")));
        }
        if let Some(axis) = self.axes.iter().find(|axis| !numeric && axis.name.text == name.text) {
            let is_value = |value: &Token| axis.values.iter().any(|known| known.text == value.text);
            if let Some(never) = values.iter().find(|value| !is_value(value)) {
                let message = format!("{} never is {}", name.text, shortened(&never.text));
                let known = axis.values.iter().map(|value| value.text.as_str());
                return Err(ScriptError::new(never.span, message).help(suggestion(&never.text, known)));
            }
        }
        let values = values.iter().map(|value| value.text.clone()).collect();
        Ok(Condition { name: name.clone(), relation, values })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.axes
            .iter()
            .map(|axis| axis.name.text.as_str())
            .chain(self.given.iter().map(|given| given.name.text.as_str()))
    }

    /// Returns every combination of the axes' values; the last axis varies fastest.
    pub fn cases(&self) -> Result<Vec<Case>, ScriptError> {
        let mut cases = vec![Case::default()];
        for axis in &self.axes {
            if cases.len() * axis.values.len() > CASES_MAX {
                let message = format!("the matrices give more than {CASES_MAX} cases, the limit");
                return Err(ScriptError::new(axis.name.span, message));
            }
            let grown = cases
                .iter()
                .flat_map(|case| axis.values.iter().map(move |value| case.with(&axis.name.text, value)));
            cases = grown.collect();
        }
        let words: usize = self.given.iter().map(Given::words).sum();
        if let Some(given) = self.given.first().filter(|_| cases.len() * words > WORDS_MAX) {
            return Err(too_many_words(given.name.span));
        }
        for case in &mut cases {
            for given in &self.given {
                if !case.values.contains_key(&given.name.text)
                    && given.conditions.iter().all(|one| one.holds(case))
                {
                    case.values.insert(given.name.text.clone(), given.value.clone());
                }
            }
        }
        for given in &self.given {
            if let Some(case) = cases.iter().find(|case| !case.values.contains_key(&given.name.text)) {
                let message = format!("nothing is given for {} in the case {}", given.name.text, case.name);
                return Err(ScriptError::new(given.name.span, message).help("add a line with `otherwise`"));
            }
        }
        Ok(cases)
    }
}

impl Condition {
    fn holds(&self, case: &Case) -> bool {
        let Some(value) = case.values.get(&self.name.text) else { return false };
        let text = value.first().map_or("none", |token| token.text.as_str());
        let ordered = |below: bool| match (number(text), number(&self.values[0])) {
            (Some(value), Some(bound)) => (value < bound) == below,
            _ => false,
        };
        match self.relation {
            Relation::Is => self.values.iter().any(|wanted| wanted == text),
            Relation::Not => self.values.iter().all(|wanted| wanted != text),
            Relation::Below => ordered(true),
            Relation::AtLeast => ordered(false),
        }
    }
}

impl Case {
    fn with(&self, axis: &str, value: &Token) -> Case {
        let mut case = self.clone();
        if !case.name.is_empty() {
            case.name.push(',');
        }
        case.name += &format!("{axis}={}", value.text);
        // `none` stands for no word at all.
        let tokens = if value.text == "none" { Vec::new() } else { vec![value.clone()] };
        case.values.insert(axis.into(), tokens);
        case
    }

    /// Whether the line is part of this case.
    pub fn has(&self, line: &Line) -> bool {
        line.conditions.iter().all(|one| one.holds(self))
    }

    /// Returns the tokens with every `$NAME` replaced; the words of a value get the place of their `$NAME`. `words` is
    /// the rest of the file's limit.
    pub fn substitute(&self, tokens: &[Token], words: &mut usize) -> Result<Vec<Token>, ScriptError> {
        let mut replaced = Vec::with_capacity(tokens.len());
        for token in tokens {
            let Some(name) = token.text.strip_prefix('$').filter(|_| token.kind == TokenKind::Atom) else {
                replaced.push(token.clone());
                continue;
            };
            let Some(value) = self.values.get(name) else {
                let error = ScriptError::new(token.span, format!("there is no matrix {}", shortened(name)));
                return Err(error.help(suggestion(name, self.values.keys().map(String::as_str))));
            };
            if replaced.len() + value.len() > *words {
                *words = 0;
                return Err(too_many_words(token.span));
            }
            replaced.extend(value.iter().map(|value| Token { span: token.span, ..value.clone() }));
        }
        match words.checked_sub(replaced.len()) {
            Some(left) => *words = left,
            None => {
                *words = 0;
                return Err(too_many_words(tokens[0].span));
            }
        }
        Ok(replaced)
    }
}
