//! Races: columns, cells, outcomes.

use crate::Case::{self, After, InLitmus};

#[rustfmt::skip]
pub const RACES_HAVE_COLUMNS_AND_OUTCOMES: &[(Case, &str)] = &[
(After("race p | p"),
"x.scn:5:1: a race needs a file that begins with `litmus`
  5 | race p | p
    | ^^^^"),

(InLitmus(""),
"x.scn:5:1: a litmus file needs a `race`
  5 | p  F = fence D -> ok
    | ^"),

(InLitmus("race p"),
"x.scn:6:1: a race needs two columns at least
  6 | race p
    | ^^^^"),

(InLitmus("race p | p"),
"x.scn:6:10: p has a column already
  6 | race p | p
    |          ^"),

(InLitmus("race p | x"),
"x.scn:6:10: `x` is no statement, and no process or thread of that name is declared
  6 | race p | x
    |          ^ actors: p, q"),

(InLitmus("race p | q"),
"x.scn:6:1: the race has no outcomes
  6 | race p | q
    | ^^^^ add `allowed TERM ..` or `forbidden TERM ..`"),

(InLitmus("race p | q
 r = read F | q = read F
allowed r=0"),
"x.scn:7:24: F is a synchronization object of p: q cannot use it
  7 |  r = read F | q = read F
    |                        ^"),

(InLitmus("race p | q
 r = read F | |
allowed r=0"),
"x.scn:7:15: the row has 3 cells, the race 2 columns
  7 |  r = read F | |
    |               ^"),

(InLitmus("race p | q
 W = wait D F>=1 -> blocks
allowed W=asleep"),
"x.scn:7:21: a race says with `allowed` whether a call sleeps
  7 |  W = wait D F>=1 -> blocks
    |                     ^^^^^^ write the status it returns once it does"),

(InLitmus("race p | q
 D = device -> ok
allowed F=0"),
"x.scn:7:6: `device` is two calls, a step of a race is one
  7 |  D = device -> ok
    |      ^^^^^^ write `open_adapter` and `create_device`"),

(InLitmus("race p | q
 r = read F
allowed"),
"x.scn:8:8: expected terms, as `r0=1 W=asleep`, with a comma between outcomes, found the end of the line
  8 | allowed
    |        ^"),

(InLitmus("race p | q
 r = read F
allowed r=0,"),
"x.scn:8:13: expected terms, as `r0=1 W=asleep`, with a comma between outcomes, found the end of the line
  8 | allowed r=0,
    |             ^"),

(InLitmus("race p | q
 r = read F
allowed x=0"),
"x.scn:8:9: there is no register, call or fence named x here
  8 | allowed x=0
    |         ^ there are: F, r"),

(InLitmus("race p | q
 r = read D
forbidden r=1"),
"x.scn:7:11: D is a device, not a fence
  7 |  r = read D
    |           ^ there are: F"),

(InLitmus("race p | q
 r = read null
forbidden r=1"),
"x.scn:7:11: there is no fence named null here
  7 |  r = read null
    |           ^^^^ there are: F"),

(InLitmus("race p | q
 r = read F
forbidden r=0 F=1 r=1"),
"x.scn:8:19: the outcome has a term for r already
  8 | forbidden r=0 F=1 r=1
    |                   ^ every term of an outcome has to hold: write other outcomes behind a comma"),

(InLitmus("race p | q
 W = wait D F>=1 -> ok
forbidden W=asleep, W=asleep W=returned"),
"x.scn:8:30: the outcome has a term for W already
  8 | forbidden W=asleep, W=asleep W=returned
    |                              ^ every term of an outcome has to hold: write other outcomes behind a comma"),

(InLitmus("race p | q
 W = wait D F>=1 -> ok
allowed W=sleeping"),
"x.scn:8:11: `sleeping` is not a status
  8 | allowed W=sleeping
    |           ^^^^^^^^ there are: SUCCESS, ABANDONED, TIMEOUT, PENDING, DEVICE_BUSY, UNSUCCESSFUL, NOT_IMPLEMENTED, INVALID_HANDLE, INVALID_PARAMETER, NO_MEMORY, ILLEGAL_INSTRUCTION, ACCESS_DENIED, BUFFER_TOO_SMALL, OBJECT_TYPE_MISMATCH, OBJECT_NAME_INVALID, OBJECT_NAME_NOT_FOUND, OBJECT_NAME_COLLISION, NOT_SUPPORTED, INTERNAL_ERROR, DEVICE_REMOVED, GRAPHICS_ALLOCATION_BUSY, ok, asleep, returned"),

(InLitmus("race p | q
 r = read F
allowed r=0
expect F = 1"),
"x.scn:9:1: a race must be the last part of its file
  9 | expect F = 1
    | ^^^^^^"),

(InLitmus("race p | q
 r = read F -> ok
allowed r=0"),
"x.scn:7:13: `read` is no call of the kernel: it has no status
  7 |  r = read F -> ok
    |             ^^ leave `->` and the status out"),

(InLitmus("race p | q
allowed F=0
race p | q"),
"x.scn:8:1: a race must be the last part of its file
  8 | race p | q
    | ^^^^"),

(InLitmus("allowed F=0"),
"x.scn:6:1: `allowed` belongs to a race
  6 | allowed F=0
    | ^^^^^^^"),

(InLitmus("fault kill q
race p | q
allowed F=0"),
"x.scn:7:10: process q was killed in line 6
  7 | race p | q
    |          ^"),
];
