//! Splits a line into tokens.

use d3dkmt::text::is_printable;

use crate::limits::LINE_CHARACTERS_MAX;
use crate::script::error::{ScriptError, Span};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// A name, a number, a duration, a rule id: letters, digits and `_ . ^ $`, with `-` inside.
    Atom,
    /// A text in double quotes, without them; `\"` and `\\` stand for `"` and `\`.
    Text,
    Symbol,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub text: String,
    pub span: Span,
}

impl Token {
    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Atom && self.text == word
    }
}

const SYMBOLS: [&str; 10] = ["->", ">=", "=", ">", "<", "|", ",", "(", ")", "+"];

/// Characters that editors and habits produce instead of those of the language.
const MISTAKEN: [(&[char], &str); 7] = [
    (&['\u{201C}', '\u{201D}', '\u{201E}', '\'', '`'], "a text stands between `\"` and `\"`"),
    (&['\u{2192}'], "write `->`"),
    (&['\u{2265}'], "write `>=`"),
    (&['\u{2013}', '\u{2014}', '\u{2212}'], "write `-`"),
    (&['-'], "numbers have no sign; the status of a call is written after `->`"),
    (&[';'], "one statement a line"),
    (&['/'], "a comment begins with `#`"),
];

fn in_atom(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '^' | '$')
}

/// Splits a line into words; text after `#` is a comment.
pub(crate) fn tokens(line: u32, text: &str) -> Result<Vec<Token>, ScriptError> {
    let count = text.chars().count();
    if count > LINE_CHARACTERS_MAX {
        let span = Span { line, column: LINE_CHARACTERS_MAX as u32 + 1, width: 1 };
        let message = format!("the line has {count} characters, the limit is {LINE_CHARACTERS_MAX}");
        return Err(ScriptError::new(span, message));
    }
    let mut scanner = Scanner { line, letters: text.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = scanner.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Scanner {
    line: u32,
    letters: Vec<char>,
    at: usize,
}

impl Scanner {
    fn token(&mut self) -> Result<Option<Token>, ScriptError> {
        while self.letters.get(self.at).is_some_and(|letter| matches!(letter, ' ' | '\t')) {
            self.at += 1;
        }
        let begin = self.at;
        let (kind, text) = match self.letters.get(begin) {
            None | Some('#') => return Ok(None),
            Some('"') => (TokenKind::Text, self.text()?),
            Some(letter) if in_atom(*letter) => (TokenKind::Atom, self.atom()),
            Some('-') if self.begins_a_sign() => {
                self.at += 1;
                (TokenKind::Symbol, String::from("-"))
            }
            Some(letter) => (TokenKind::Symbol, self.symbol(*letter)?),
        };
        Ok(Some(Token { kind, text, span: self.span(begin, self.at) }))
    }

    /// A negative number: only priorities have them, and they are words of their own.
    fn begins_a_sign(&self) -> bool {
        let after_space = self.at.checked_sub(1).is_some_and(|before| self.letters[before] == ' ');
        after_space && self.letters.get(self.at + 1).is_some_and(char::is_ascii_digit)
    }

    fn span(&self, begin: usize, end: usize) -> Span {
        Span { line: self.line, column: begin as u32 + 1, width: (end - begin).max(1) as u32 }
    }

    fn text(&mut self) -> Result<String, ScriptError> {
        let begin = self.at;
        let mut text = String::new();
        loop {
            self.at += 1;
            match (self.letters.get(self.at), self.letters.get(self.at + 1)) {
                (None, _) => {
                    let span = self.span(begin, self.letters.len());
                    return Err(ScriptError::new(span, "the text has no closing quote").help("add `\"`"));
                }
                (Some('"'), _) => break,
                (Some('\\'), Some(letter @ ('"' | '\\'))) => {
                    self.at += 1;
                    text.push(*letter);
                }
                (Some('\\'), _) => {
                    let span = self.span(self.at, self.at + 1);
                    let message = "a `\\` in a text stands before `\"` or `\\`";
                    return Err(ScriptError::new(span, message).help("write `\\\\` for one"));
                }
                (Some(letter), _) if !is_printable(*letter) => {
                    let span = self.span(self.at, self.at + 1);
                    let message =
                        format!("the character {} cannot stand in a text", describe_character(*letter));
                    return Err(ScriptError::new(span, message));
                }
                (Some(letter), _) => text.push(*letter),
            }
        }
        self.at += 1;
        Ok(text)
    }

    fn atom(&mut self) -> String {
        let begin = self.at;
        let letter_at = |at: usize| self.letters.get(at).copied().unwrap_or(' ');
        let mut end = begin;
        while in_atom(letter_at(end)) || (letter_at(end) == '-' && in_atom(letter_at(end + 1))) {
            end += 1;
        }
        self.at = end;
        self.letters[begin..end].iter().collect()
    }

    fn symbol(&mut self, letter: char) -> Result<String, ScriptError> {
        let rest: String = self.letters[self.at..self.letters.len().min(self.at + 2)].iter().collect();
        let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) else {
            let span = self.span(self.at, self.at + 1);
            let error = ScriptError::new(
                span,
                format!("the character {} means nothing here", describe_character(letter)),
            );
            let habit = MISTAKEN.into_iter().find(|(letters, _)| letters.contains(&letter));
            return Err(match habit {
                Some((_, help)) => error.help(help),
                None if letter.is_whitespace() => error.help("spaces and tabs stand between words"),
                None => error,
            });
        };
        self.at += symbol.len();
        Ok(symbol.into())
    }
}

/// Returns a character for a message: itself, or its number.
fn describe_character(letter: char) -> String {
    if is_printable(letter) && !letter.is_whitespace() {
        format!("`{letter}`")
    } else {
        format!("U+{:04X}", u32::from(letter))
    }
}
