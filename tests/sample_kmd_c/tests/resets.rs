//! Drivers in C whose resets, interrupts or doorbells are out of the ordinary.

mod common;

use common::{driver, passes_in_the_model, program};
use covers::covers;
use scenario::model::ModelWorld;

/// Runs a scenario with the driver of `driver/resets.c` that does this. Returns its notes.
fn notes(does: &str, text: &str) -> String {
    let driver = driver("resets", &does.to_lowercase(), &[&format!("-DDOES={does}")]);
    let program = program(text, &driver);
    let world = passes_in_the_model(&program, ModelWorld::new(&program, None).recording());
    let notes = world.steps().iter().flat_map(|(_, _, effects)| &effects.notes).map(|note| note.text.clone());
    notes.collect::<Vec<_>>().join("\n")
}

const LEFT_RING: &str = r#"
config adapter 0 kmd="DRIVER"
process p
process q
thread t in q
p  D = device                                                -> ok
p  C = context D 3D HW_QUEUE_SUPPORTED                       -> ok
p  Q = hw_queue C                                            -> ok
q  A = open_adapter 0                                        -> ok
q  E = device                                                -> ok
q  K = context E 3D HW_QUEUE_SUPPORTED                       -> ok
q  R = hw_queue K USER_MODE_SUBMISSION NATIVE_PROGRESS_FENCE -> ok
q  B = doorbell R                                            -> ok
q  connect R                                                 -> ok
p  submit_hw Q id=1 u32(1)                                   -> ok
q  ring R id=1 u32(1)                                        -> ok
at 3s
expect D state HUNG
expect E state ACTIVE
"#;

#[test]
fn a_ring_that_outlives_the_reset_of_its_engine_and_hangs_then_is_reset_as_well() {
    covers!("TDR-021");
    notes(
        "LEAVES_RINGS",
        &format!("scenario \"a ring hangs after a reset\"\n{LEFT_RING}at 60s\nexpect E state HUNG\n"),
    );
}

#[test]
fn an_escape_that_needs_an_idle_gpu_waits_for_a_ring_that_outlives_a_reset() {
    covers!("ESC-017");
    notes(
        "LEAVES_RINGS",
        &format!(
            "scenario \"a ring is work after a reset\"\n{LEFT_RING}t  X = escape A HARDWARE_ACCESS u32(1, 0) -> blocks\n"
        ),
    );
}

/// Hardware queues Q and R of two devices.
const QUEUES: &str = r#"
config adapter 0 kmd="DRIVER"
process p
process q
p  D = device                                                -> ok
p  C = context D 3D HW_QUEUE_SUPPORTED                       -> ok
p  Q = hw_queue C                                            -> ok
q  E = device                                                -> ok
q  K = context E 3D HW_QUEUE_SUPPORTED                       -> ok
q  R = hw_queue K                                            -> ok
"#;

/// Queue Q hangs. A report of queue R is lost.
const HANG: &str = r#"
fault hang 3D
p  submit_hw Q id=1 u32(1)                                   -> ok
q  submit_hw R id=1 u32(1)                                   -> ok
"#;

#[test]
fn an_injected_hang_of_a_hardware_queue_loses_its_device_though_the_driver_has_done_the_work() {
    let rest = r#"
q  F = device                                                -> ok
q  L = context F 3D HW_QUEUE_SUPPORTED                       -> ok
q  S = hw_queue L                                            -> ok
p  submit_hw Q id=1 u32(1)                                   -> ok
q  submit_hw S id=1 u32(1)                                   -> ok
expect Q.fence = 1
fault hang 3D
p  submit_hw Q id=2 u32(1)                                   -> ok
q  submit_hw R id=1 u32(1)                                   -> ok
expect R.fence = 0
at 60s
expect engine 3D idle
expect D state HUNG
expect E state RESET
expect F state ACTIVE
q  submit_hw S id=2 u32(1)                                   -> ok
expect S.fence = 2
"#;
    notes("IS_ALWAYS_DONE", &format!("scenario \"a hang that the driver does not know of\"{QUEUES}{rest}"));
}

#[test]
fn work_whose_report_an_injected_hang_swallowed_is_lost_also_if_the_hang_ends_with_its_queue() {
    let rest = r#"
p  destroy_hw_queue Q                                        -> ok
expect R.fence = 0
at 60s
expect engine 3D idle
expect E state RESET
"#;
    notes("IS_ALWAYS_DONE", &format!("scenario \"a report is lost\"{QUEUES}{HANG}{rest}"));
}

#[test]
fn a_queue_with_the_number_of_one_whose_report_was_lost_loses_nothing() {
    let rest = r#"
q  destroy_hw_queue R                                        -> ok
q  F = device                                                -> ok
q  L = context F 3D HW_QUEUE_SUPPORTED                       -> ok
q  S = hw_queue L                                            -> ok
at 60s
expect D state HUNG
expect F state ACTIVE
"#;
    notes("IS_ALWAYS_DONE", &format!("scenario \"a number is used again\"{QUEUES}{HANG}{rest}"));
}

#[test]
fn a_driver_that_dies_in_a_reset_stops_its_own_adapter_and_is_no_recovery() {
    let notes = notes(
        "DIES",
        r#"
scenario "a driver dies in ResetEngine"
config adapters = 2
config tdr limit_count=1
config adapter 0 kmd="DRIVER"
process p
process q
p  D = device                     -> ok
p  C = context D COPY             -> ok
p  submit C u32(1)                -> ok
q  A = open_adapter 1             -> ok
q  E = create_device A            -> ok
at 10s
p  G = device                     -> ok
p  K = context G COPY             -> ok
p  submit K u32(1)                -> ok
at 20s
expect E state ACTIVE
expect G state STOPPED
"#,
    );
    assert!(notes.contains("the driver of adapter 0 died"), "{notes}");
}

#[test]
fn a_report_about_a_queue_that_has_ended_is_about_no_other() {
    notes(
        "NOTIFIES_LATE",
        r#"
scenario "a page fault waits for NotifyDpc"
config adapter 0 kmd="DRIVER"
vm one
vm two
process p in one
process q in two
p  D = device                             -> ok
p  C = context D COPY HW_QUEUE_SUPPORTED  -> ok
p  Q = hw_queue C                         -> ok
q  E = device                             -> ok
q  K = context E COPY HW_QUEUE_SUPPORTED  -> ok
p  submit_hw Q id=1 u32(1)                -> ok
p  destroy_hw_queue Q                     -> ok
q  R = hw_queue K                         -> ok
q  submit_hw R id=1 u32(1)                -> ok
expect D state ACTIVE
expect E state ACTIVE
"#,
    );
}

#[test]
fn now_is_the_kernels_time_in_each_ddi_and_a_reset_may_set_the_timer() {
    let notes = notes(
        "SAYS_NOW",
        r#"
scenario "the driver says the time"
config adapter 0 kmd="DRIVER"
process p
p  D = device                     -> ok
at 10s
p  C = context D COPY             -> ok
at 11s
p  submit C u32(1)                -> ok
at 20s
"#,
    );
    let said: Vec<&str> = notes.lines().filter(|line| line.contains(" at ")).collect();
    let said: Vec<&str> =
        said.iter().filter_map(|line| line.rsplit_once(": ")).map(|(_, said)| said).collect();
    assert_eq!(said.first(), Some(&"a context at 10000 ms"), "{notes}");
    assert_eq!(said.get(1), Some(&"the timer at 10500 ms"), "{notes}");
    let reset = said.iter().position(|said| said.starts_with("a reset at")).expect("a reset");
    assert!(said.get(reset + 1).is_some_and(|said| said.starts_with("the timer at")), "{notes}");
}

#[test]
fn abort_is_final_also_inside_of_connect_doorbell() {
    covers!("SCH-031");
    notes(
        "ABORTS_DOORBELLS",
        r#"
scenario "ABORT inside of ConnectDoorbell"
config adapter 0 kmd="DRIVER"
process q
q  E = device                                                -> ok
q  K = context E 3D HW_QUEUE_SUPPORTED                       -> ok
q  R = hw_queue K USER_MODE_SUBMISSION NATIVE_PROGRESS_FENCE -> ok
q  B = doorbell R                                            -> ok
q  connect R                                                 -> INVALID_PARAMETER
expect B status DISCONNECTED_ABORT
"#,
    );
}
