//! Matrices and `given` lines.

use crate::Case::{self, Complete};

#[rustfmt::skip]
pub const MATRICES_ARE_USED_AND_COMPLETE: &[(Case, &str)] = &[
(Complete(r#"scenario "x"
matrix v = 1 2
process p"#),
"x.scn:2:8: nothing uses the matrix v
  2 | matrix v = 1 2
    |        ^ write `$v` where its values stand"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v is 1
given c = INVALID_PARAMETER otherwise
process p"#),
"x.scn:3:7: nothing uses the matrix c
  3 | given c = ok when v is 1
    |       ^ write `$c` where its values stand"),

(Complete(r#"scenario "x"
matrix v = 1 2
process p
p  D = device -> $w"#),
"x.scn:2:8: nothing uses the matrix v
  2 | matrix v = 1 2
    |        ^ write `$v` where its values stand"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v is 1
process p
p  D = device -> $c"#),
"x.scn:3:7: nothing is given for c in the case v=2
  3 | given c = ok when v is 1
    |       ^ add a line with `otherwise`"),

(Complete(r#"scenario "x"
matrix v = ok INVALID_PARAMTER
process p
p  D = device -> $v"#),
"x.scn:4:18: `INVALID_PARAMTER` is not a status, in the case v=INVALID_PARAMTER
  4 | p  D = device -> $v
    |                  ^^ did you mean `INVALID_PARAMETER`?"),

(Complete(r#"scenario "x"
matrix v = 1 2 1
process p"#),
"x.scn:2:16: v has the value 1 twice
  2 | matrix v = 1 2 1
    |                ^"),

(Complete(r#"scenario "x"
matrix v = 1, 2
process p"#),
"x.scn:2:13: values are separated by spaces alone
  2 | matrix v = 1, 2
    |             ^"),

(Complete(r#"scenario "x"
matrix v =
process p"#),
"x.scn:2:8: v has 0 values, allowed are 1 to 1000
  2 | matrix v =
    |        ^"),

(Complete(r#"scenario "x"
matrix v
process p"#),
"x.scn:2:8: expected `matrix NAME = VALUE VALUE ..`
  2 | matrix v
    |        ^"),

(Complete(r#"scenario "x"
matrix v 1 2
process p"#),
"x.scn:2:10: expected `matrix NAME = VALUE VALUE ..`
  2 | matrix v 1 2
    |          ^"),

(Complete(r#"scenario "x"
matrix $v = 1 2
process p"#),
"x.scn:2:8: `$v` cannot be the name of a matrix
  2 | matrix $v = 1 2
    |        ^^ names begin with a letter; `$` stands where they are used"),

(Complete(r#"scenario "x"
matrix v = 1 2
matrix v = 3
process p"#),
"x.scn:3:8: there is a matrix v already, in line 2
  3 | matrix v = 3
    |        ^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given v = ok otherwise
process p"#),
"x.scn:3:7: v is a matrix already, in line 2
  3 | given v = ok otherwise
    |       ^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok otherwise
given c = INVALID_PARAMETER when v is 1
process p
p  D = device -> $c"#),
"x.scn:4:7: c is given for every other case in line 3
  4 | given c = INVALID_PARAMETER when v is 1
    |       ^ `otherwise` is the last line of a name"),

(Complete(r#"scenario "x"
given v = ok otherwise
matrix v = 1 2
process p"#),
"x.scn:3:8: v is given already, in line 2
  3 | matrix v = 1 2
    |        ^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when w is 1
process p"#),
"x.scn:3:19: there is no matrix w
  3 | given c = ok when w is 1
    |                   ^ there are: v"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v under 1
process p"#),
"x.scn:3:21: there is no relation `under`
  3 | given c = ok when v under 1
    |                     ^^^^^ there are: is, not, below, at_least"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v below ok
process p"#),
"x.scn:3:27: the condition needs one number at its end
  3 | given c = ok when v below ok
    |                           ^^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v is 3
process p"#),
"x.scn:3:24: v never is 3
  3 | given c = ok when v is 3
    |                        ^ there are: 1, 2"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when
process p"#),
"x.scn:3:14: expected a condition, as `value below 6`
  3 | given c = ok when
    |              ^^^^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok
process p"#),
"x.scn:3:11: expected `given NAME = VALUE when AXIS is VALUE and ..`, or `.. otherwise`
  3 | given c = ok
    |           ^^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = $v otherwise
process p"#),
"x.scn:3:11: `$v` cannot stand in a matrix
  3 | given c = $v otherwise
    |           ^^ conditions name a matrix without `$`"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok otherwise ok
process p"#),
"x.scn:3:24: nothing comes after `otherwise`
  3 | given c = ok otherwise ok
    |                        ^^"),

(Complete(r#"scenario "x"
matrix v = 1 2
given c = ok when v is 1
given c = blocks otherwise
process p
p  D = device -> ok
p  F = fence D -> ok
expect F = 77 when c is okay"#),
"x.scn:8:20: this line is in no case: no case meets its condition
  8 | expect F = 77 when c is okay
    |                    ^ leave it out, or correct the condition"),

(Complete(r#"scenario "x"
matrix v = 1 2
process p
p  D = device -> ok when v at_least 100"#),
"x.scn:4:26: this line is in no case: no case meets its condition
  4 | p  D = device -> ok when v at_least 100
    |                          ^ leave it out, or correct the condition"),
];
