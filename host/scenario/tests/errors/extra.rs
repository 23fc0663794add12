//! Extra operands, and numbers that do not fit.

use crate::Case::{self, After};

#[rustfmt::skip]
pub const WHAT_IS_TOO_MUCH_IS_SAID: &[(Case, &str)] = &[
(After("p  signal D F=1 -> ok ok"),
"x.scn:5:23: expected the end of the line, found `ok`
  5 | p  signal D F=1 -> ok ok
    |                       ^^"),

(After("p  e = event -> ok"),
"x.scn:5:14: `event` is no call of the kernel: it has no status
  5 | p  e = event -> ok
    |              ^^ leave `->` and the status out"),

(After(r#"p  signal D F=1 -> "ok""#),
r#"x.scn:5:20: expected a status, `blocks` or `anything`, found a text
  5 | p  signal D F=1 -> "ok"
    |                    ^^^^"#),

(After("expect F = 1 2"),
"x.scn:5:14: expected the end of the line, found `2`
  5 | expect F = 1 2
    |              ^"),

(After("exit p q"),
"x.scn:5:8: expected the end of the line, found `q`
  5 | exit p q
    |        ^"),

(After("process q r"),
"x.scn:5:11: expected the end of the line, found `r`
  5 | process q r
    |           ^"),

(After(r#"scenario "y""#),
r#"x.scn:5:1: the file has a title already
  5 | scenario "y"
    | ^^^^^^^^ one scenario a file"#),

(After("covers FEN-030"),
"x.scn:5:1: `covers` stands before the first VM, process or step
  5 | covers FEN-030
    | ^^^^^^"),

(After("p  signal D F=18446744073709551616 -> ok"),
"x.scn:5:15: `18446744073709551616` is no number for a fence value
  5 | p  signal D F=18446744073709551616 -> ok
    |               ^^^^^^^^^^^^^^^^^^^^ numbers are 7, 0x40, 2^63 or max, which is 2^64-1"),

(After("p  signal D F=2^64 -> ok"),
"x.scn:5:15: `2^64` is no number for a fence value
  5 | p  signal D F=2^64 -> ok
    |               ^^^^ numbers are 7, 0x40, 2^63 or max, which is 2^64-1"),

(After("p  signal D F=-1 -> ok"),
"x.scn:5:15: the character `-` means nothing here
  5 | p  signal D F=-1 -> ok
    |               ^ numbers have no sign; the status of a call is written after `->`"),

(After("p  destroy 0x100000000 -> ok"),
"x.scn:5:12: `0x100000000` is no handle: handles have 32 bits
  5 | p  destroy 0x100000000 -> ok
    |            ^^^^^^^^^^^"),

(After("p  query_adapter D kind=4294967296 bytes=0 -> ok"),
"x.scn:5:25: 4294967296 does not fit 32 bits, as a kind must
  5 | p  query_adapter D kind=4294967296 bytes=0 -> ok
    |                         ^^^^^^^^^^"),

(After("p  query_adapter D kind=1 bytes=4294967295 -> ok"),
"x.scn:5:33: private data has at most 130048 bytes
  5 | p  query_adapter D kind=1 bytes=4294967295 -> ok
    |                                 ^^^^^^^^^^"),

(After("p  submit D opaque(130049) -> ok"),
"x.scn:5:20: an opaque buffer stands alone and has at most 130048 bytes
  5 | p  submit D opaque(130049) -> ok
    |                    ^^^^^^"),

(After("p  submit D opaque(8) hang -> ok"),
"x.scn:5:23: expected no further command, as an opaque buffer stands alone, found `hang`
  5 | p  submit D opaque(8) hang -> ok
    |                       ^^^^"),

(After("p  gpu_signal D F=1 event=F -> ok"),
"x.scn:5:27: F is a synchronization object, not an event
  5 | p  gpu_signal D F=1 event=F -> ok
    |                           ^ there is none yet"),

(After("p  A = device on 1 -> ok"),
"x.scn:5:18: there is no adapter 1: the scenario has 1, numbered from 0
  5 | p  A = device on 1 -> ok
    |                  ^ `config adapters = N` makes more"),

(After("fault stop_adapter 1"),
"x.scn:5:20: there is no adapter 1: the scenario has 1, numbered from 0
  5 | fault stop_adapter 1
    |                    ^ `config adapters = N` makes more"),

(After("p  G = device -> blocks"),
"x.scn:5:18: `device` is two calls, one of them blocks
  5 | p  G = device -> blocks
    |                  ^^^^^^ write `open_adapter` and `create_device`"),
];
