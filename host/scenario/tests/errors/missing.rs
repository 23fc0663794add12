//! Missing operands and statements.

use crate::Case::{self, After, Complete};

#[rustfmt::skip]
pub const WHAT_IS_MISSING_IS_SAID: &[(Case, &str)] = &[
(After("p"),
"x.scn:5:2: expected a verb, found the end of the line
  5 | p
    |  ^"),

(After("p  G ="),
"x.scn:5:7: expected a verb, found the end of the line
  5 | p  G =
    |       ^"),

(After("p  signal"),
"x.scn:5:10: expected the name of a device, found the end of the line
  5 | p  signal
    |          ^"),

(After("p  wait F>=1 -> blocks"),
"x.scn:5:9: expected the device that waits, as in `wait D F>=1`, found `F`
  5 | p  wait F>=1 -> blocks
    |         ^"),

(After("p  signal D F=1"),
"x.scn:5:16: expected `-> STATUS`: what the call answers, as `-> ok` or `-> INVALID_PARAMETER`, found the end of the line
  5 | p  signal D F=1
    |                ^"),

(After("p  signal D F=1 ->"),
"x.scn:5:19: expected a status, `blocks` or `anything`, found the end of the line
  5 | p  signal D F=1 ->
    |                   ^"),

(After("p  signal D F= -> ok"),
"x.scn:5:16: expected a fence value, found `->`
  5 | p  signal D F= -> ok
    |                ^^"),

(After("p  signal D F -> ok"),
"x.scn:5:15: expected `=` and a value after F, found `->`
  5 | p  signal D F -> ok
    |               ^^"),

(After("p  wait D F=1 -> ok"),
"x.scn:5:12: expected `>=` and a value after F, found `=`
  5 | p  wait D F=1 -> ok
    |            ^"),

(After("p  wait D F>1 -> ok"),
"x.scn:5:12: expected `>=` and a value after F, found `>`
  5 | p  wait D F>1 -> ok
    |            ^"),

(After("p  signal D F>=1 -> ok"),
"x.scn:5:14: expected `=` and a value after F, found `>=`
  5 | p  signal D F>=1 -> ok
    |              ^^"),

(After("p  query_adapter D kind=1 -> ok"),
"x.scn:5:27: expected `bytes`, found `->`
  5 | p  query_adapter D kind=1 -> ok
    |                           ^^"),

(After("p  submit D write(F) -> ok"),
"x.scn:5:20: expected `,`, found `)`
  5 | p  submit D write(F) -> ok
    |                    ^"),

(After("p  submit D busy(2) -> ok"),
"x.scn:5:18: `2` is no duration
  5 | p  submit D busy(2) -> ok
    |                  ^ durations are a number and a unit: 500ns, 20us, 1.5ms, 2s, 3m"),

(After("p  e -> ok"),
"x.scn:5:4: there is no verb `e`
  5 | p  e -> ok
    |    ^ there are: adapters, open_adapter, close_adapter, query_adapter, create_device, destroy_device, device_state, context, destroy_context, object, destroy, signal, wait, gpu_signal, gpu_wait, submit, open_global, share, open, open_name, sync_file, wait_sync_file, open_sync_file, keyed_mutex and N more"),

(After("p  event"),
"x.scn:5:4: `event` gives something that needs a name
  5 | p  event
    |    ^^^^^ write `NAME = event`"),

(After("p  read F"),
"x.scn:5:4: `read` gives something that needs a name
  5 | p  read F
    |    ^^^^ write `NAME = read`"),

(After("p  wait D F>=1 -> blocks"),
"x.scn:5:4: a call that blocks needs a name, so that its end can be expected
  5 | p  wait D F>=1 -> blocks
    |    ^^^^ write `W = wait ..`"),

(After("expect"),
r#"x.scn:5:7: expected a condition, found the end of the line
  5 | expect
    |       ^ there are: expect F = V; expect W blocked; expect W returned STATUS; expect E set [N]; expect E clear; expect A data DATA ..; expect B status STATUS; expect D state STATE; expect engine ENGINE idle|running|hung; expect report "TEXT"; expect no report; expect A words [N..N] = N; expect M message R-NNN [list=N] [command=N] [barrier=N] [resource=R] ["TEXT"]; expect M no message; expect race "TEXT" ["TEXT" ..]; expect no race; expect messages PROCESS = N; expect wakes PROCESS = N; expect waits = N; expect why PROCESS VERDICT [F>=V]; expect nothing left [of PROCESS]"#),

(After("expect F"),
"x.scn:5:9: expected `= VALUE`, found the end of the line
  5 | expect F
    |         ^"),

(After("fault"),
"x.scn:5:6: expected a fault, found the end of the line
  5 | fault
    |      ^ there are: kill, freeze, thaw, cut, hold, release, delay, reorder, crash, pause, resume, lose_interrupt, hang, stop_adapter, start_adapter, remove_adapter, add_adapter, update_driver, page_fault, reset_fails, power, object_bad, f1, clock, fill, restart"),

(After("fault restart"),
"x.scn:5:14: expected `daemon`, found the end of the line
  5 | fault restart
    |              ^"),

(After("thread t"),
"x.scn:5:9: expected `in`, found the end of the line
  5 | thread t
    |         ^"),

(After("+"),
"x.scn:5:2: expected a duration, as 2ms, found the end of the line
  5 | +
    |  ^"),

(Complete("scenario"),
"x.scn:1:9: expected the title, in quotes, found the end of the line
  1 | scenario
    |         ^"),

(Complete("litmus \"\"\nprocess p\np  device -> ok\nthread t in p\nrace p | t\n  destroy null -> ok | destroy null -> ok\n"),
"x.scn:1:8: the title is empty
  1 | litmus \"\"
    |        ^^"),

(Complete("scenario title\nprocess p\np  devise -> ok"),
"x.scn:1:10: expected the title, in quotes, found `title`
  1 | scenario title
    |          ^^^^^
x.scn:3:4: there is no verb `devise`
  3 | p  devise -> ok
    |    ^^^^^^ did you mean `device`?"),

(Complete(r#"scenario """#),
r#"x.scn:1:10: the title is empty
  1 | scenario ""
    |          ^^"#),

(Complete("scenario title"),
"x.scn:1:10: expected the title, in quotes, found `title`
  1 | scenario title
    |          ^^^^^"),

(Complete(""),
r#"x.scn:1:1: the file has no `scenario "TITLE"`
  1 | 
    | ^ `gpupv scenario new FILE` writes a template"#),

(Complete("# nothing but a comment
"),
r#"x.scn:1:1: the file has no `scenario "TITLE"`
  1 | # nothing but a comment
    | ^ `gpupv scenario new FILE` writes a template"#),

(Complete("process p"),
r#"x.scn:1:1: the first statement must be `scenario "TITLE"` or `litmus "TITLE"`
  1 | process p
    | ^^^^^^^"#),

(Complete(r#"scenario "x"
covers"#),
"x.scn:2:7: expected a rule id, as FEN-030, found the end of the line
  2 | covers
    |       ^"),
];
