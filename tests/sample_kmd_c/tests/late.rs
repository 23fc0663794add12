//! Callbacks about objects that the kernel does not have: not yet, or not any more.

mod common;

use std::fmt::Write as _;

use common::{driver, program, replays_without_the_driver};
use covers::covers;

/// The driver stores to the progress fence of a queue that is not created after all: the first packet queue is free.
const HALF_MADE: &str = r#"
scenario "a hardware queue without logs of native fences is not created"
config adapter 0 kmd="DRIVER"
process p
p  D = device                                                     -> ok
p  X = context D 3D HW_QUEUE_SUPPORTED                            -> ok
p  C = context D 3D HW_QUEUE_SUPPORTED                            -> ok
p  destroy_context X                                              -> ok
p  hw_queue C USER_MODE_SUBMISSION NATIVE_PROGRESS_FENCE          -> NO_MEMORY
p  Q = hw_queue C NATIVE_PROGRESS_FENCE                           -> ok
p  submit_hw Q id=1 u32(0x31435653)                               -> ok
expect Q.fence = 1
"#;

#[test]
fn a_store_by_a_hardware_queue_that_is_not_created_names_no_queue() {
    let path = driver("late", "half_made", &["-DDOES=1"]);
    let notes = replays_without_the_driver(&program(HALF_MADE, &path), &path);
    assert!(notes.contains("the driver does not log native fences"), "{notes}");
}

/// A process that has native fences and a buffer on an engine, and ends them by `ENDS` while ends of its VM wait. Then the
/// timer's interrupt reports all fences that the driver knows.
const WAITING_ENDS: &str = r#"
scenario "a driver reports native fences whose ends wait"
config adapter 0 kmd="DRIVER"
vm first
vm second
process p in first
process q in second
p  D = device                                      -> ok
p  E = device                                      -> ok
p  C = context D 3D HW_QUEUE_SUPPORTED             -> ok
p  Q = hw_queue C NATIVE_PROGRESS_FENCE            -> ok
p  F = native_fence D                              -> ok
q  V = device                                      -> ok
q  K = context V 3D                                -> ok
q  N = native_fence V                              -> ok
q  G = fence V                                     -> ok
CONTEXTS
p  submit_hw Q id=1 u32(0x31435653, 1, 1000000)    -> ok
p  destroy_device E                                -> ok
ENDS
+1ms
q  submit K u32(0x31435653)                        -> ok
q  gpu_signal K G=1                                -> ok
+1ms
expect G = 1
+10s
q  signal V N=1                                    -> ok
expect N = 1
"#;

#[test]
fn a_report_of_a_native_fence_whose_end_waits_does_not_name_it() {
    covers!("GPV-057");
    let mut contexts = String::new();
    for n in 0..100 {
        writeln!(contexts, "p X{n} = context E 3D -> ok").expect("a string takes it");
    }
    let text = WAITING_ENDS.replace("CONTEXTS\n", &contexts);
    let one_by_one = "p destroy_hw_queue Q -> ok\np destroy F -> ok";
    for (output, ends) in [("fences_that_end", one_by_one), ("a_process_that_ends", "fault kill p")] {
        let path = driver("late", output, &["-DDOES=2"]);
        let notes = replays_without_the_driver(&program(&text.replace("ENDS", ends), &path), &path);
        assert!(notes.contains("waits: calls of VM") && !notes.contains("died"), "{output}: {notes}");
    }
}

/// The driver reports a fence in a DDI without callbacks, and then the fence is destroyed.
const EARLIER_REPORT: &str = r#"
scenario "a report from before the end of a native fence"
config adapter 0 kmd="DRIVER"
process p
p  D = device                         -> ok
p  C = context D 3D                   -> ok
p  F = native_fence D                 -> ok
p  N = native_fence D                 -> ok
p  destroy F                          -> ok
p  G = fence D                        -> ok
p  submit C u32(0x31435653)           -> ok
p  gpu_signal C G=1                   -> ok
expect G = 1
"#;

#[test]
fn a_report_of_a_native_fence_from_before_its_end_does_not_name_it() {
    let path = driver("late", "earlier_report", &["-DDOES=3"]);
    replays_without_the_driver(&program(EARLIER_REPORT, &path), &path);
}
