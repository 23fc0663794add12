//! Characters that form no words; one mistake gives one error.

use crate::Case::{self, After, Complete};

#[rustfmt::skip]
pub const LETTERS_THAT_ARE_NO_WORDS: &[(Case, &str)] = &[
(Complete(r#"scenario "x"#),
r#"x.scn:1:10: the text has no closing quote
  1 | scenario "x
    |          ^^ add `"`"#),

(Complete("scenario \"a\tb\""),
r#"x.scn:1:12: the character U+0009 cannot stand in a text
  1 | scenario "a b"
    |            ^"#),

(Complete(r#"scenario "a\b""#),
r#"x.scn:1:12: a `\` in a text stands before `"` or `\`
  1 | scenario "a\b"
    |            ^ write `\\` for one"#),

(Complete("scenario “x”"),
r#"x.scn:1:10: the character `“` means nothing here
  1 | scenario “x”
    |          ^ a text stands between `"` and `"`"#),

(Complete("scenario 'x'"),
r#"x.scn:1:10: the character `'` means nothing here
  1 | scenario 'x'
    |          ^ a text stands between `"` and `"`"#),

(Complete("scenario \"\u{1b}[31mred\""),
r#"x.scn:1:11: the character U+001B cannot stand in a text
  1 | scenario "�[31mred"
    |           ^"#),

(Complete("scenario \"\u{202e}reversed\""),
r#"x.scn:1:11: the character U+202E cannot stand in a text
  1 | scenario "�reversed"
    |           ^"#),

(After("p  signal D F=1 → ok"),
"x.scn:5:17: the character `→` means nothing here
  5 | p  signal D F=1 → ok
    |                 ^ write `->`"),

(After("p  wait D F≥1 -> ok"),
"x.scn:5:12: the character `≥` means nothing here
  5 | p  wait D F≥1 -> ok
    |            ^ write `>=`"),

(After("p  signal D F=1 -> ok;"),
"x.scn:5:22: the character `;` means nothing here
  5 | p  signal D F=1 -> ok;
    |                      ^ one statement a line"),

(After("p\u{a0}signal D F=1 -> ok"),
"x.scn:5:2: the character U+00A0 means nothing here\n  5 | p\u{a0}signal D F=1 -> ok\n    |  ^ spaces and tabs stand between words"),

(After("p  signal D F=1 -> ok // done"),
"x.scn:5:23: the character `/` means nothing here
  5 | p  signal D F=1 -> ok // done
    |                       ^ a comment begins with `#`"),

(After("\tp\tsignal\tD\tX=1\t->\tok"),
"x.scn:5:13: there is no synchronization object named X here
  5 |  p signal D X=1 -> ok
    |             ^ there are: D, F"),

(After("p  signal D F=1 -> no # \u{1b}[2J \u{202e}"),
"x.scn:5:20: `no` is not a status
  5 | p  signal D F=1 -> no # �[2J �
    |                    ^^ there are: SUCCESS, ABANDONED, TIMEOUT, PENDING, DEVICE_BUSY, UNSUCCESSFUL, NOT_IMPLEMENTED, INVALID_HANDLE, INVALID_PARAMETER, NO_MEMORY, ILLEGAL_INSTRUCTION, ACCESS_DENIED, BUFFER_TOO_SMALL, OBJECT_TYPE_MISMATCH, OBJECT_NAME_INVALID, OBJECT_NAME_NOT_FOUND, OBJECT_NAME_COLLISION, NOT_SUPPORTED, INTERNAL_ERROR, DEVICE_REMOVED, GRAPHICS_ALLOCATION_BUSY, ok, blocks, anything"),

(After("p  \u{7}signal D F=1 -> ok"),
"x.scn:5:4: the character U+0007 means nothing here
  5 | p  �signal D F=1 -> ok
    |    ^"),

(After("@p signal D F=1 -> ok"),
"x.scn:5:1: the character `@` means nothing here
  5 | @p signal D F=1 -> ok
    | ^"),

(After(r#""p" signal D F=1 -> ok"#),
r#"x.scn:5:1: expected a statement or an actor, found a text
  5 | "p" signal D F=1 -> ok
    | ^^^"#),
];

#[rustfmt::skip]
pub const ONE_MISTAKE_IS_ONE_ERROR: &[(Case, &str)] = &[
(After("p  G = fense D -> ok
p  signal D G=1 -> ok
expect G = 1
p  H = fence D NO_WIAT -> ok
expect H = 0
p  signal D K=1 -> ok"),
"x.scn:5:8: there is no verb `fense`
  5 | p  G = fense D -> ok
    |        ^^^^^ did you mean `fence`?
x.scn:8:16: `NO_WIAT` is not a flag or option
  8 | p  H = fence D NO_WIAT -> ok
    |                ^^^^^^^ did you mean `NO_WAIT`?
x.scn:10:13: there is no synchronization object named K here
  10 | p  signal D K=1 -> ok
     |             ^ there are: D, F"),

(Complete("process p
p  D = device -> ok
expect waits = 0"),
r#"x.scn:1:1: the first statement must be `scenario "TITLE"` or `litmus "TITLE"`
  1 | process p
    | ^^^^^^^"#),
];
