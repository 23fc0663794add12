//! Names: declared once, and of the right kind where they are used.

use crate::Case::{self, After};

#[rustfmt::skip]
pub const NAMES_ARE_GIVEN_ONCE_AND_MEAN_ONE_THING: &[(Case, &str)] = &[
(After("p  F = fence D -> ok"),
"x.scn:5:4: the name F is taken: a synchronization object of line 4 has it
  5 | p  F = fence D -> ok
    |    ^ every name is given once"),

(After("process D"),
"x.scn:5:9: the name D is taken: a device of line 3 has it
  5 | process D
    |         ^ every name is given once"),

(After("vm p"),
"x.scn:5:4: the name p is taken: a process of line 2 has it
  5 | vm p
    |    ^ every name is given once"),

(After("p  signal = fence D -> ok"),
"x.scn:5:4: `signal` is a word of the language, not a name
  5 | p  signal = fence D -> ok
    |    ^^^^^^"),

(After("p  9F = fence D -> ok"),
"x.scn:5:4: `9F` cannot be a name
  5 | p  9F = fence D -> ok
    |    ^^ names begin with a letter, as F, D0 or gpu_fence"),

(After("p  F.1 = fence D -> ok"),
"x.scn:5:4: `F.1` cannot be a name
  5 | p  F.1 = fence D -> ok
    |    ^^^ names begin with a letter, as F, D0 or gpu_fence"),

(After("p  flags = fence D -> ok"),
"x.scn:5:4: `flags` is a word of the language, not a name
  5 | p  flags = fence D -> ok
    |    ^^^^^"),

(After("p  NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN = fence D -> ok"),
"x.scn:5:4: the name has 65 characters, the limit is 64
  5 | p  NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN = fence D -> ok
    |    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"),

(After("p  signal D D=1 event=F -> ok"),
"x.scn:5:17: there is no synchronization object named event here
  5 | p  signal D D=1 event=F -> ok
    |                 ^^^^^ there are: D, F"),

(After("p  gpu_signal D event=F -> ok"),
"x.scn:5:23: F is a synchronization object, not an event
  5 | p  gpu_signal D event=F -> ok
    |                       ^ there is none yet"),

(After("p  e = event
process q
q  E = device -> ok
q  wait E F>=1 event=e -> ok"),
"x.scn:8:22: e is an event of p: q cannot use it
  8 | q  wait E F>=1 event=e -> ok
    |                      ^"),

(After("process q
q  r = read F"),
"x.scn:6:13: F is a synchronization object of p: q cannot use it
  6 | q  r = read F
    |             ^"),

(After("p  close_share F -> ok"),
"x.scn:5:16: F is a synchronization object, not an NT handle
  5 | p  close_share F -> ok
    |                ^ there is none yet"),

(After("fault fill F"),
"x.scn:5:12: F is a synchronization object, not a context
  5 | fault fill F
    |            ^ there is none yet"),

(After("thread t in F"),
"x.scn:5:13: F is a synchronization object, not a process
  5 | thread t in F
    |             ^ there are: p"),

(After("expect p = 1"),
"x.scn:5:8: `p` is not a name, nor a word that can be expected
  5 | expect p = 1
    |        ^ there are: D, F, engine, report, no, race, messages, wakes, waits, why, nothing"),

(After("expect F blockd"),
"x.scn:5:10: expected `= VALUE`, found `blockd`
  5 | expect F blockd
    |          ^^^^^^"),

(After("expect D = 1"),
"x.scn:5:10: expected `state STATE`, found `=`
  5 | expect D = 1
    |          ^"),

(After("p  e = event
expect e blocked"),
"x.scn:6:10: expected `set`, `set N` or `clear`, found `blocked`
  6 | expect e blocked
    |          ^^^^^^^"),
];
