//! Unknown words: the error names the nearest known word, or lists all.

use crate::Case::{self, After, Complete};

#[rustfmt::skip]
pub const UNKNOWN_WORDS_NAME_THE_NEAREST: &[(Case, &str)] = &[
(After("p  singal D F=1 -> ok"),
"x.scn:5:4: there is no verb `singal`
  5 | p  singal D F=1 -> ok
    |    ^^^^^^ did you mean `signal`?"),

(After("p  D3DKMTCreateDevice D -> ok"),
"x.scn:5:4: there is no verb `D3DKMTCreateDevice`
  5 | p  D3DKMTCreateDevice D -> ok
    |    ^^^^^^^^^^^^^^^^^^ the call is written `create_device`"),

(After("p  device_state D type=0x67707576 -> INVALID_PARAMETER"),
"x.scn:5:4: `device_state` of type 0x67707576 is the runner's own call
  5 | p  device_state D type=0x67707576 -> INVALID_PARAMETER
    |    ^^^^^^^^^^^^ write another type: the kernel knows 1, 2, 3 and 5"),

(After("P2 signal D F=1 -> ok"),
"x.scn:5:1: `P2` is no statement, and no process or thread of that name is declared
  5 | P2 signal D F=1 -> ok
    | ^^ actors: p"),

(After("signal D F=1 -> ok"),
"x.scn:5:1: `signal` is a verb: write the name of an actor before it
  5 | signal D F=1 -> ok
    | ^^^^^^ actors: p"),

(After("F  signal D F=1 -> ok"),
"x.scn:5:1: F is a synchronization object, it takes no steps
  5 | F  signal D F=1 -> ok
    | ^ actors: p"),

(After("expct F = 1"),
"x.scn:5:1: `expct` is no statement, and no process or thread of that name is declared
  5 | expct F = 1
    | ^^^^^ did you mean `expect`?"),

(After("expect G = 1"),
"x.scn:5:8: `G` is not a name, nor a word that can be expected
  5 | expect G = 1
    |        ^ there are: D, F, engine, report, no, race, messages, wakes, waits, why, nothing"),

(After("expect f = 1"),
"x.scn:5:8: `f` is not a name, nor a word that can be expected
  5 | expect f = 1
    |        ^ did you mean `F`?"),

(After("expect engines 3D idle"),
"x.scn:5:8: `engines` is not a name, nor a word that can be expected
  5 | expect engines 3D idle
    |        ^^^^^^^ did you mean `engine`?"),

(After("fault kil p"),
"x.scn:5:7: `kil` is not a fault
  5 | fault kil p
    |       ^^^ did you mean `kill`?"),

(After("fault kill P"),
"x.scn:5:12: there is no process named P here
  5 | fault kill P
    |            ^ did you mean `p`?"),

(After("p  signal D X=1 -> ok"),
"x.scn:5:13: there is no synchronization object named X here
  5 | p  signal D X=1 -> ok
    |             ^ there are: D, F"),

(After("p  signal D F=1 -> INVALID_PARAMTER"),
"x.scn:5:20: `INVALID_PARAMTER` is not a status
  5 | p  signal D F=1 -> INVALID_PARAMTER
    |                    ^^^^^^^^^^^^^^^^ did you mean `INVALID_PARAMETER`?"),

(After("p  signal D F=1 -> STATUS_INVALID_PARAMETER"),
"x.scn:5:20: `STATUS_INVALID_PARAMETER` is not a status
  5 | p  signal D F=1 -> STATUS_INVALID_PARAMETER
    |                    ^^^^^^^^^^^^^^^^^^^^^^^^ write `INVALID_PARAMETER`, without `STATUS_`"),

(After("p  signal D F=1 -> STATUS_SUCCESS"),
"x.scn:5:20: `STATUS_SUCCESS` is not a status
  5 | p  signal D F=1 -> STATUS_SUCCESS
    |                    ^^^^^^^^^^^^^^ write `ok`"),

(After("p  signal D F=1 -> 0x1c000000d"),
"x.scn:5:20: `0x1c000000d` is not a status
  5 | p  signal D F=1 -> 0x1c000000d
    |                    ^^^^^^^^^^^ there are: SUCCESS, ABANDONED, TIMEOUT, PENDING, DEVICE_BUSY, UNSUCCESSFUL, NOT_IMPLEMENTED, INVALID_HANDLE, INVALID_PARAMETER, NO_MEMORY, ILLEGAL_INSTRUCTION, ACCESS_DENIED, BUFFER_TOO_SMALL, OBJECT_TYPE_MISMATCH, OBJECT_NAME_INVALID, OBJECT_NAME_NOT_FOUND, OBJECT_NAME_COLLISION, NOT_SUPPORTED, INTERNAL_ERROR, DEVICE_REMOVED, GRAPHICS_ALLOCATION_BUSY, ok, blocks, anything"),

(After("p  signal D F=1 REWIND -> ok"),
"x.scn:5:17: `REWIND` is not a signal flag, nor `FENCE=VALUE`
  5 | p  signal D F=1 REWIND -> ok
    |                 ^^^^^^ did you mean `rewind`?"),

(After("p  G = fence D NO_WIAT -> ok"),
"x.scn:5:16: `NO_WIAT` is not a flag or option
  5 | p  G = fence D NO_WIAT -> ok
    |                ^^^^^^^ did you mean `NO_WAIT`?"),

(After("p  G = object D SEMAPHOR -> ok"),
"x.scn:5:17: `SEMAPHOR` is not a type of synchronization object
  5 | p  G = object D SEMAPHOR -> ok
    |                 ^^^^^^^^ did you mean `SEMAPHORE`?"),

(After("p  C = context D 3D1 -> ok"),
"x.scn:5:18: `3D1` is not an engine
  5 | p  C = context D 3D1 -> ok
    |                  ^^^ there are: 3D, COMPUTE, COPY, VIDEO_DECODE, VIDEO_PROCESS, VIDEO_ENCODE"),

(After("p  C = context D COPY.1 -> ok"),
"x.scn:5:18: a context is on its device's adapter
  5 | p  C = context D COPY.1 -> ok
    |                  ^^^^^^ write `COPY`"),

(After("p  C = context D COPY TEST -> ok"),
"x.scn:5:23: `TEST` is not a context flag
  5 | p  C = context D COPY TEST -> ok
    |                       ^^^^ there are: NULL_RENDERING, INITIAL_DATA, DISABLE_GPU_TIMEOUT, SYNCHRONIZATION_ONLY, HW_QUEUE_SUPPORTED, NO_KMD_ACCESS, TEST_CONTEXT"),

(After("expect engine COPY.3 idle"),
"x.scn:5:15: there is no adapter 3: the scenario has 1, numbered from 0
  5 | expect engine COPY.3 idle
    |               ^^^^^^ `config adapters = N` makes more"),

(After("expect D state HANGED"),
"x.scn:5:16: `HANGED` is not a device state
  5 | expect D state HANGED
    |                ^^^^^^ there are: ACTIVE, RESET, HUNG, STOPPED, ERROR_OUT_OF_MEMORY, ERROR_DMA_FAULT, ERROR_DMA_PAGE_FAULT"),

(After("p  wait D F>=1 evnt=e -> ok"),
"x.scn:5:16: `evnt` is not an option of a wait, nor `FENCE>=VALUE`
  5 | p  wait D F>=1 evnt=e -> ok
    |                ^^^^ did you mean `event`?"),

(After("process q in B"),
"x.scn:5:14: there is no VM named B here
  5 | process q in B
    |              ^ there is none yet"),

(Complete(r#"scenario "x"
covers FEN-030 FEN-148
covers FENCE-1
covers FEN
covers FEN-030"#),
"x.scn:2:16: `FEN-148` is no rule id
  2 | covers FEN-030 FEN-148
    |                ^^^^^^^ group FEN has rows FEN-001 to FEN-147
x.scn:3:8: `FENCE-1` is no rule id
  3 | covers FENCE-1
    |        ^^^^^^^ there is no group FENCE; groups are FEN, EVT, ESC, GPV, SCH, TDR, BAR, MEM, W
x.scn:4:8: `FEN` is no rule id
  4 | covers FEN
    |        ^^^ a rule id is a group and three digits, as FEN-030; groups are FEN, EVT, ESC, GPV, SCH, TDR, BAR, MEM, W
x.scn:5:8: FEN-030 is named twice
  5 | covers FEN-030
    |        ^^^^^^^"),

(Complete(r#"scenario "x"
config adaptors = 2
config lower_gpu_signal = ignore
config adapters = 35
config async_submission
config async_submission"#),
"x.scn:2:8: `adaptors` is not a setting
  2 | config adaptors = 2
    |        ^^^^^^^^ did you mean `adapters`?
x.scn:3:27: `ignore` is not a value of lower_gpu_signal
  3 | config lower_gpu_signal = ignore
    |                           ^^^^^^ did you mean `ignored`?
x.scn:4:19: 35 adapters: there can be 1 to 34
  4 | config adapters = 35
    |                   ^^
x.scn:6:8: async_submission is set already, in line 5
  6 | config async_submission
    |        ^^^^^^^^^^^^^^^^"),

(Complete(r#"scenario "x"
skip remote "no"
skip local
skip local ""
skip vm "a"
skip vm "b""#),
r#"x.scn:2:6: `remote` is not a backend
  2 | skip remote "no"
    |      ^^^^^^ there are: model, link, local, vm
x.scn:3:11: expected the reason, in quotes, found the end of the line
  3 | skip local
    |           ^
x.scn:4:12: the reason is empty
  4 | skip local ""
    |            ^^
x.scn:6:6: the vm backend is skipped already
  6 | skip vm "b"
    |      ^^"#),
];
