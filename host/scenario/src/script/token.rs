//! Words of a line.

use crate::limits::LINE_CHARACTERS_MAX;
use crate::script::error::{Place, ScriptError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// A name, a number, a duration, a rule id: letters, digits and `_ . ^ $`, with `-` inside.
    Atom,
    /// Between double quotes, without them.
    Text,
    Symbol,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub text: String,
    pub place: Place,
}

impl Token {
    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }
}

const SYMBOLS: [&str; 10] = ["->", ">=", "=", ">", "<", "|", ",", "(", ")", "+"];

fn in_atom(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '^' | '$')
}

/// Cuts a line into words; what comes after `#` is a comment.
pub(crate) fn tokens(line: u32, text: &str) -> Result<Vec<Token>, ScriptError> {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() > LINE_CHARACTERS_MAX {
        let place = Place { line, column: LINE_CHARACTERS_MAX as u32 + 1, width: 1 };
        let message =
            format!("the line has {} characters, the limit is {LINE_CHARACTERS_MAX}", letters.len());
        return Err(ScriptError::new(place, message));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let begin = at;
        let letter = letters[at];
        let place = |end: usize| Place { line, column: begin as u32 + 1, width: (end - begin).max(1) as u32 };
        if letter == '#' {
            break;
        } else if letter.is_whitespace() {
            at += 1;
        } else if letter == '"' {
            at += 1;
            while at < letters.len() && letters[at] != '"' {
                at += 1;
            }
            if at == letters.len() {
                return Err(ScriptError::new(place(at), "the text has no closing quote").help("add `\"`"));
            }
            let text = letters[begin + 1..at].iter().collect();
            at += 1;
            tokens.push(Token { kind: TokenKind::Text, text, place: place(at) });
        } else if in_atom(letter) {
            let dash_inside =
                |at: usize| letters[at] == '-' && letters.get(at + 1).is_some_and(|next| in_atom(*next));
            while at < letters.len() && (in_atom(letters[at]) || dash_inside(at)) {
                at += 1;
            }
            let text = letters[begin..at].iter().collect();
            tokens.push(Token { kind: TokenKind::Atom, text, place: place(at) });
        } else {
            let rest: String = letters[at..letters.len().min(at + 2)].iter().collect();
            let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) else {
                let message = format!("the character {letter:?} means nothing here");
                return Err(ScriptError::new(place(at + 1), message));
            };
            at += symbol.len();
            tokens.push(Token { kind: TokenKind::Symbol, text: symbol.into(), place: place(at) });
        }
    }
    Ok(tokens)
}
