//! Resources, command lists, the debug layer, memory and races.

use crate::Case::{self, After};

#[rustfmt::skip]
pub const LISTS_ARE_REFUSED_WHERE_THEY_ARE_WRONG: &[(Case, &str)] = &[
(After("p  L = list
L  dispach fill=5"),
"x.scn:6:4: `dispach` is not a command of a list
  6 | L  dispach fill=5
    |    ^^^^^^^ did you mean `dispatch`?"),

(After("p  L = list
L  dispatch UNORDERED_ACCES=1"),
"x.scn:6:13: `UNORDERED_ACCES` is not an access or a setting of a command
  6 | L  dispatch UNORDERED_ACCES=1
    |             ^^^^^^^^^^^^^^^ did you mean `UNORDERED_ACCESS`?"),

(After("p  L = list
L  dispatch UNORDERED_ACCESS=R"),
"x.scn:6:30: there is no resource named R here
  6 | L  dispatch UNORDERED_ACCESS=R
    |                              ^ there is none yet"),

(After("p  L = list
L  barrier 1 COPY -> COPI COPY_DEST -> COPY_SOURCE"),
"x.scn:6:22: `COPI` is not a scope of synchronization
  6 | L  barrier 1 COPY -> COPI COPY_DEST -> COPY_SOURCE
    |                      ^^^^ did you mean `COPY`?"),

(After("p  L = list
L  barrier 1 COPY COPY_DEST"),
"x.scn:6:19: expected `->`, found `COPY_DEST`
  6 | L  barrier 1 COPY COPY_DEST
    |                   ^^^^^^^^^"),

(After("p  L = list
L  barrier F COPY -> COPY COPY_DEST -> COPY_DEST"),
"x.scn:6:12: F is a synchronization object, not a resource
  6 | L  barrier F COPY -> COPY COPY_DEST -> COPY_DEST
    |            ^ there is none yet"),

(After("p  L = list
L  copy COPY_SOURCE=1(ofset=3)"),
"x.scn:6:23: `ofset` is not an option of a use
  6 | L  copy COPY_SOURCE=1(ofset=3)
    |                       ^^^^^ did you mean `offset`?"),

(After("p  L = list
L  transition 1 COPY_DEST -> COPY_SOURC"),
"x.scn:6:30: `COPY_SOURC` is not a resource state
  6 | L  transition 1 COPY_DEST -> COPY_SOURC
    |                              ^^^^^^^^^^ did you mean `COPY_SOURCE`?"),

(After("p  L = list
L  barrier 1 ALL -> ALL COMMON -> COMMON COMMON -> COPY_DST"),
"x.scn:6:52: `COPY_DST` is not a layout
  6 | L  barrier 1 ALL -> ALL COMMON -> COMMON COMMON -> COPY_DST
    |                                                    ^^^^^^^^ did you mean `COPY_DEST`?"),

(After("p  L = list
L  barrier 1 ALL -> ALL COMMON -> COMMON COMMON -> COMMON mips=2..1"),
"x.scn:6:64: `2..1` is no range, as 0..2
  6 | L  barrier 1 ALL -> ALL COMMON -> COMMON COMMON -> COMMON mips=2..1
    |                                                                ^^^^"),

(After("p  L = list -> ok"),
"x.scn:5:13: `list` is no call of the kernel: it has no status
  5 | p  L = list -> ok
    |             ^^ leave `->` and the status out"),

(After("p  list"),
"x.scn:5:4: `list` gives something that needs a name
  5 | p  list
    |    ^^^^ write `NAME = list`"),

(After("p  L = list COPPY"),
"x.scn:5:13: `COPPY` is not a type of command list
  5 | p  L = list COPPY
    |             ^^^^^ did you mean `COPY`?"),

(After("p  store F words = 7"),
"x.scn:5:10: F is a synchronization object, not an allocation
  5 | p  store F words = 7
    |          ^ there is none yet"),

(After("p  A = allocate D bytes=0x1000 -> ok
p  store A words 4..2 = 7"),
"x.scn:6:18: `4..2` is no range of words
  6 | p  store A words 4..2 = 7
    |                  ^^^^ write `0..16` for the first 16"),

(After("p  A = allocate D bytes=0x1000 -> ok
expect A words = no"),
"x.scn:6:18: `no` is no number for a word of 32 bits
  6 | expect A words = no
    |                  ^^ numbers are 7, 0x40, 2^63 or max, which is 2^64-1"),

(After("p  M = debug_messages D -> ok
expect M message R-109"),
"x.scn:6:18: `R-109` is no rule of barriers
  6 | expect M message R-109
    |                  ^^^^^ they are R-001 to R-108; R-000 is a command that cannot be"),

(After("p  M = debug_messages D -> ok
expect M mesage R-001"),
"x.scn:6:10: expected `message R-041 ..` or `no message`, found `mesage`
  6 | expect M mesage R-001
    |          ^^^^^^"),

(After("p  debug_messages D -> ok"),
"x.scn:5:4: `debug_messages` gives something that needs a name
  5 | p  debug_messages D -> ok
    |    ^^^^^^^^^^^^^^ write `NAME = debug_messages`"),

(After("p  debug D loud -> ok"),
"x.scn:5:12: `loud` is not a level
  5 | p  debug D loud -> ok
    |            ^^^^ there are: off, errors, all"),

(After("p  describe_fence D F ALLOW_LISTS -> ok"),
"x.scn:5:23: `ALLOW_LISTS` is not a flag of a fence
  5 | p  describe_fence D F ALLOW_LISTS -> ok
    |                       ^^^^^^^^^^^ there are: SHARED, SHARED_CROSS_ADAPTER, NON_MONITORED, ALLOW_COMMAND_LIST_BARRIERS, ALLOW_QUEUE_AND_CPU_SYNC"),

(After("p  R = resource D bufer at=0 -> ok"),
"x.scn:5:19: `bufer` is not a kind of resource
  5 | p  R = resource D bufer at=0 -> ok
    |                   ^^^^^ did you mean `buffer`?"),

(After("p  R = resource D buffer at=0 widht=3 -> ok"),
"x.scn:5:31: `widht` is not an option or a flag of a resource
  5 | p  R = resource D buffer at=0 widht=3 -> ok
    |                               ^^^^^ did you mean `width`?"),

(After(r#"p  R = resource D buffer at=0 name="a name that has more than 32 bytes" -> ok"#),
r#"x.scn:5:36: a resource's name has at most 32 bytes
  5 | p  R = resource D buffer at=0 name="a name that has more than 32 bytes" -> ok
    |                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"#),

(After("p  C = context D 3D -> ok
p  submit C list(F) -> ok"),
"x.scn:6:18: F is a synchronization object, not a command list
  6 | p  submit C list(F) -> ok
    |                  ^ there is none yet"),

(After("L = list"),
"x.scn:5:1: `L` is no statement, and no process or thread of that name is declared
  5 | L = list
    | ^ actors: p"),

(After("expect race"),
"x.scn:5:12: expected a text of the race, in quotes, found the end of the line
  5 | expect race
    |            ^"),

(After("expect no rac"),
"x.scn:5:11: `rac` is not `report` or `race`
  5 | expect no rac
    |           ^^^ did you mean `race`?"),

(After("p  signal D F=1 -> ok when v is 1"),
"x.scn:5:28: there is no matrix v
  5 | p  signal D F=1 -> ok when v is 1
    |                            ^ there is none yet"),
];
