//! A cursor over the tokens of a line.

use d3dkmt::NtStatus;
use dxgkrnl::duration;

use crate::script::error::{ScriptError, Span, shortened, suggestion};
use crate::script::token::{Token, TokenKind};
use crate::script::words;

pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
}

pub(crate) type Parsed<T> = Result<T, ScriptError>;

impl<'a> Cursor<'a> {
    pub fn new(tokens: &'a [Token]) -> Cursor<'a> {
        Cursor { tokens, at: 0 }
    }

    pub fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    pub fn peek_second(&self) -> Option<&'a Token> {
        self.tokens.get(self.at + 1)
    }

    pub fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    /// Returns the place of the next word, or where it would be.
    pub fn span(&self) -> Span {
        match (self.peek(), self.tokens.last()) {
            (Some(token), _) => token.span,
            (None, Some(last)) => {
                let Span { line, column, width } = last.span;
                Span { line, column: column + width, width: 1 }
            }
            (None, None) => Span { line: 1, column: 1, width: 1 },
        }
    }

    /// Returns the place of the previous word.
    pub fn last_span(&self) -> Span {
        match self.at.checked_sub(1).and_then(|before| self.tokens.get(before)) {
            Some(token) => token.span,
            None => self.span(),
        }
    }

    /// Returns the last occurrence of this word in the line.
    pub fn find(&self, word: &str) -> Option<&'a Token> {
        self.tokens.iter().rfind(|token| token.is_word(word))
    }

    pub fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = match self.peek() {
            Some(Token { kind: TokenKind::Text, .. }) => "a text".into(),
            Some(token) => format!("`{}`", shortened(&token.text)),
            None => "the end of the line".into(),
        };
        Err(ScriptError::new(self.span(), format!("expected {what}, found {found}")))
    }

    /// Returns the next word; `what` describes it in errors.
    pub fn atom(&mut self, what: &str) -> Parsed<&'a Token> {
        self.next_of(TokenKind::Atom, what)
    }

    pub fn text(&mut self, what: &str) -> Parsed<&'a Token> {
        self.next_of(TokenKind::Text, what)
    }

    fn next_of(&mut self, kind: TokenKind, what: &str) -> Parsed<&'a Token> {
        match self.peek() {
            Some(token) if token.kind == kind => {
                self.at += 1;
                Ok(token)
            }
            _ => self.expected(what),
        }
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.peek().is_some_and(|token| token.is_symbol(symbol))
    }

    /// Consumes the symbol if it is next.
    pub fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_next = self.is_symbol(symbol);
        self.at += usize::from(is_next);
        is_next
    }

    pub fn symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) { Ok(()) } else { self.expected(&format!("`{symbol}`")) }
    }

    /// Consumes the word if it is next.
    pub fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|token| token.kind == TokenKind::Atom && token.text == word);
        self.at += usize::from(is_next);
        is_next
    }

    pub fn word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    pub fn number(&mut self, what: &str) -> Parsed<u64> {
        let token = self.atom(what)?;
        words::number(&token.text).ok_or_else(|| {
            let message = format!("`{}` is no number for {what}", shortened(&token.text));
            ScriptError::new(token.span, message).help("numbers are 7, 0x40, 2^63 or max, which is 2^64-1")
        })
    }

    pub fn number32(&mut self, what: &str) -> Parsed<u32> {
        let span = self.span();
        let number = self.number(what)?;
        u32::try_from(number)
            .map_err(|_| ScriptError::new(span, format!("{number} does not fit 32 bits, as {what} must")))
    }

    pub fn duration(&mut self) -> Parsed<u64> {
        let token = self.atom("a duration, as 2ms")?;
        duration::parse(&token.text).ok_or_else(|| {
            ScriptError::new(token.span, format!("`{}` is no duration", shortened(&token.text)))
                .help(format!("durations are a number and a unit: {}", duration::FORMS))
        })
    }

    /// Parses a status by name or number; `others` are also accepted.
    pub fn status(&mut self, what: &str, others: &[&'static str]) -> Parsed<NtStatus> {
        let token = self.atom(what)?;
        words::status(&token.text).ok_or_else(|| {
            let known = words::status_names().chain(others.iter().copied());
            let error = unknown(token, "a status", known);
            let bare = token.text.strip_prefix("STATUS_").filter(|bare| words::status(bare).is_some());
            match bare {
                Some("SUCCESS") => error.help("write `ok`"),
                Some(bare) => error.help(format!("write `{bare}`, without `STATUS_`")),
                None => error,
            }
        })
    }

    /// Parses one of the known words.
    pub fn choice<T: Copy>(&mut self, what: &str, known: &[(&'static str, T)]) -> Parsed<T> {
        let token = self.atom(what)?;
        let found = known.iter().find(|(name, _)| *name == token.text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            unknown(token, what, names)
        })
    }

    /// Fails unless the line is at its end.
    pub fn end(&self) -> Parsed<()> {
        if self.peek().is_none() { Ok(()) } else { self.expected("the end of the line") }
    }
}

/// Returns the error for an unknown word.
pub(crate) fn unknown<'a>(
    token: &Token,
    what: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> ScriptError {
    let message = format!("`{}` is not {what}", shortened(&token.text));
    ScriptError::new(token.span, message).help(suggestion(&token.text, known))
}
