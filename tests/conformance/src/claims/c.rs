//! The functions of a C program, in the same form as those of a Rust file.

use super::source::{Item, Source};
use super::tokens::{Kind, tokens};

/// What makes a C program's exit code a verdict (`tests/c/check.h`, `tests/c/rows.h`).
pub fn is_assertion(word: &str, _next: &str) -> bool {
    ["CHECK", "EXPECT", "row", "status_row", "assert", "abort", "failures"].contains(&word)
}

pub fn source(file: String, text: &str) -> Source {
    let tokens = tokens(text);
    let mut items = Vec::new();
    let (mut depth, mut round, mut head) = (0_usize, 0_usize, 0);
    // A name before an opening bracket at the top level; the last one that was closed just now is a function's.
    let (mut name, mut open) = (None, None);
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            _ if token.kind != Kind::Mark => {}
            "(" => {
                if depth == 0 && round == 0 {
                    name = at.checked_sub(1).map(|before| tokens[before].text.clone());
                }
                round += 1;
            }
            ")" => round = round.saturating_sub(1),
            "{" => {
                if depth == 0 && at > 0 && tokens[at - 1].is_mark(")") {
                    open = name.take().map(|name| (name, head));
                }
                depth += 1;
            }
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    if let Some((name, from)) = open.take() {
                        let span = from..at + 1;
                        items.push(Item {
                            name,
                            modules: Vec::new(),
                            is_test: false,
                            wants_panic: false,
                            span,
                        });
                    }
                    head = at + 1;
                }
            }
            ";" if depth == 0 => head = at + 1,
            _ => {}
        }
    }
    Source { file, tokens, items, children: Vec::new() }
}
