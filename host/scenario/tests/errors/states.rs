//! Time, and the steps that an actor can take in each state.

use crate::Case::{self, After, Complete};

#[rustfmt::skip]
pub const TIME_GOES_ON: &[(Case, &str)] = &[
(After("+5ms
at 4ms"),
"x.scn:6:4: time does not go back: it is 5ms here
  6 | at 4ms
    |    ^^^"),

(After("at 4"),
"x.scn:5:4: `4` is no duration
  5 | at 4
    |    ^ durations are a number and a unit: 500ns, 20us, 1.5ms, 2s, 3m"),

(After("+4min"),
"x.scn:5:2: `4min` is no duration
  5 | +4min
    |  ^^^^ durations are a number and a unit: 500ns, 20us, 1.5ms, 2s, 3m"),

(After("+-4ms"),
"x.scn:5:2: the character `-` means nothing here
  5 | +-4ms
    |  ^ numbers have no sign; the status of a call is written after `->`"),

(After("+315360001s"),
"x.scn:5:2: a scenario lasts ten years at most
  5 | +315360001s
    |  ^^^^^^^^^^"),

(After("fault delay p 315360001s"),
"x.scn:5:15: a scenario lasts ten years at most
  5 | fault delay p 315360001s
    |               ^^^^^^^^^^"),
];

#[rustfmt::skip]
pub const ACTORS_DO_ONLY_WHAT_THEY_CAN: &[(Case, &str)] = &[
(After("p  W = wait D F>=1 -> blocks
p  signal D F=1 -> ok"),
"x.scn:6:1: p is in the call W since line 5
  6 | p  signal D F=1 -> ok
    | ^ let another thread do this, or `expect W returned ..` first"),

(After("exit p
p  signal D F=1 -> ok"),
"x.scn:6:1: process p ended in line 5
  6 | p  signal D F=1 -> ok
    | ^"),

(After("fault kill p
thread t in p"),
"x.scn:6:13: process p was killed in line 5
  6 | thread t in p
    |             ^"),

(After("fault kill p
expect F = 0"),
"x.scn:6:8: process p was killed in line 5
  6 | expect F = 0
    |        ^"),

(After("p  C = context D 3D -> ok
fault kill p
fault fill C"),
"x.scn:7:12: process p was killed in line 6
  7 | fault fill C
    |            ^"),

(After("fault kill p
fault kill p"),
"x.scn:6:12: process p was killed in line 5
  6 | fault kill p
    |            ^"),

(After("vm A
process q in A
fault crash A
exit q"),
"x.scn:8:6: process q was in a VM that crashed in line 7
  8 | exit q
    |      ^"),

(After("fault freeze p
p  signal D F=1 -> ok"),
"x.scn:6:1: p is frozen since line 5
  6 | p  signal D F=1 -> ok
    | ^ thaw its process first"),

(After("fault freeze p
exit p"),
"x.scn:6:6: p is frozen
  6 | exit p
    |      ^ thaw it first, or `fault kill` it"),

(After("fault freeze p
fault freeze p"),
"x.scn:6:14: p is frozen since line 5
  6 | fault freeze p
    |              ^"),

(After("fault thaw p"),
"x.scn:5:12: p is not frozen
  5 | fault thaw p
    |            ^"),

(After("fault hold p
fault hold p"),
"x.scn:6:12: p is held since line 5
  6 | fault hold p
    |            ^"),

(After("fault release p"),
"x.scn:5:15: p is not held
  5 | fault release p
    |               ^"),

(After("fault kill p
expect wakes p = 0"),
"x.scn:6:14: process p was killed in line 5
  6 | expect wakes p = 0
    |              ^"),

(After("fault kill p
expect messages p = 0"),
"x.scn:6:17: process p was killed in line 5
  6 | expect messages p = 0
    |                 ^"),

(After("p  W = wait D F>=1 -> blocks
exit p
expect W blocked"),
"x.scn:7:8: process p ended in line 6
  7 | expect W blocked
    |        ^"),

(After("vm A
fault crash A
process q in A"),
"x.scn:7:14: VM A crashed in line 6
  7 | process q in A
    |              ^"),

(After("vm A
fault crash A
fault add_adapter 0 A
fault pause A
fault crash A"),
"x.scn:7:21: VM A crashed in line 6
  7 | fault add_adapter 0 A
    |                     ^
x.scn:8:13: VM A crashed in line 6
  8 | fault pause A
    |             ^
x.scn:9:13: VM A crashed in line 6
  9 | fault crash A
    |             ^"),

(After("vm host"),
"x.scn:5:4: `host` is the host itself, and names no VM
  5 | vm host
    |    ^^^^ give the VM another name"),

(Complete("scenario \"x\"
config vm firts not escapes
vm first
process p in first"),
"x.scn:2:11: there is no VM named firts here
  2 | config vm firts not escapes
    |           ^^^^^ did you mean `first`?"),

(Complete("scenario \"x\"
config grant \"g\" A host B
vm A
process p in A"),
"x.scn:2:25: there is no VM named B here
  2 | config grant \"g\" A host B
    |                         ^ there are: A"),

(Complete("scenario \"x\"
config vm V secure not iommu_isolation
vm V
process p in V"),
"x.scn:3:4: VM V is secure, and that needs IoMmu isolation: set iommu_isolation
  3 | vm V
    |    ^"),

(After("p  C = context D COPY -> ok
fault freeze p
fault fill C"),
"x.scn:7:12: p is frozen since line 6
  7 | fault fill C
    |            ^ thaw its process first"),

(After("p  C = context D COPY -> ok
p  W = wait D F>=1 -> blocks
fault fill C"),
"x.scn:7:12: p is in the call W since line 6
  7 | fault fill C
    |            ^ let another thread do this, or `expect W returned ..` first"),
];
