//! A source file as words, texts, marks and comments, each with its line. Rust, and C as well: what the two
//! write differently (nested comments, lifetimes) does not occur in our C programs.

use std::borrow::Cow;

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Comment,
    /// A name or a keyword.
    Word,
    /// What a string literal says, escapes as they are written.
    Text,
    /// One character, such as a brace.
    Mark,
    Other,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is_mark(&self, mark: &str) -> bool {
        self.kind == Kind::Mark && self.text == mark
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    pub fn last_line(&self) -> usize {
        self.line + self.text.matches('\n').count()
    }
}

pub fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let written = &text[at..at + token.len as usize];
        at += token.len as usize;
        let (kind, said) = read(token.kind, written);
        if let Some(kind) = kind {
            tokens.push(Token { kind, text: said.into_owned(), line });
        }
        line += written.matches('\n').count();
    }
    tokens
}

fn read(kind: TokenKind, written: &str) -> (Option<Kind>, Cow<'_, str>) {
    let kind = match kind {
        TokenKind::Whitespace => None,
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => Some(Kind::Comment),
        TokenKind::Ident => Some(Kind::Word),
        TokenKind::RawIdent => return (Some(Kind::Word), written.trim_start_matches("r#").into()),
        TokenKind::Literal { kind: LiteralKind::Char { .. } | LiteralKind::Byte { .. }, .. } => {
            Some(Kind::Other)
        }
        TokenKind::Literal { .. } => match (written.find('"'), written.rfind('"')) {
            (Some(first), Some(last)) if first < last => {
                return (Some(Kind::Text), written[first + 1..last].into());
            }
            _ => Some(Kind::Other),
        },
        _ if written.len() == 1 => Some(Kind::Mark),
        _ => Some(Kind::Other),
    };
    (kind, written.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(Kind, String, usize)> {
        tokens(text).into_iter().map(|token| (token.kind, token.text, token.line)).collect()
    }

    #[test]
    fn what_looks_like_a_comment_in_a_text_is_a_text_and_the_other_way_round() {
        let wanted = [
            (Kind::Text, "// no".to_owned(), 1),
            (Kind::Comment, "// \"yes".to_owned(), 1),
            (Kind::Text, "a\n}\"".to_owned(), 2),
            (Kind::Other, "'{'".to_owned(), 3),
            (Kind::Comment, "/* { */".to_owned(), 3),
        ];
        assert_eq!(shown("\"// no\" // \"yes\nr#\"a\n}\"\"# '{' /* { */"), wanted);
    }

    #[test]
    fn a_lifetime_opens_no_character() {
        let words: Vec<String> = tokens("fn a<'x>(b: &'x str) {}")
            .into_iter()
            .filter(|token| token.kind == Kind::Word)
            .map(|token| token.text)
            .collect();
        assert_eq!(words, ["fn", "a", "b", "str"]);
    }
}
