//! Drivers whose answers cause further DDIs without end: a step stays bounded, and its driver is lost.

mod common;

use common::{driver, program, replays_without_the_driver};
use covers::covers;

/// Runs calls beside the endless driver, and then work of another adapter.
fn endless(does: u32, output: &str, config: &str, calls: &str) -> String {
    let path = driver("endless", output, &[&format!("-DDOES={does}")]);
    let text = format!(
        r#"
scenario "a driver whose answers cause DDIs without end"
config adapters = 3
config adapter 0 kmd="DRIVER"
{config}process p
process q
p  A = open_adapter 0                -> ok
p  D = device on 0                   -> ok
q  E = device on 2                   -> ok
q  G = fence E                       -> ok
q  Y = context E COPY                -> ok
{calls}
q  submit Y busy(1ms) write(G, 1)    -> ok
+2ms
expect G = 1
"#
    );
    replays_without_the_driver(&program(&text, &path), &path)
}

fn is_lost(notes: &str) {
    let died = "the driver of adapter 0 died: it reported more than";
    assert!(notes.contains(died), "{}", notes.lines().take(50).collect::<Vec<_>>().join("\n"));
}

#[test]
fn an_engine_that_reports_its_timeout_whenever_it_is_asked_loses_its_driver() {
    covers!("GPV-057");
    let calls = "p X = context D 3D -> ok\np submit X u32(1) -> ok\n+1ms";
    is_lost(&endless(1, "hangs", "", calls));
}

#[test]
fn an_engine_whose_reset_aborts_nothing_and_that_hangs_again_loses_its_driver() {
    let calls = "p X = context D 3D -> ok\np submit X u32(1) -> ok\n+1ms";
    is_lost(&endless(2, "resets", "", calls));
}

#[test]
fn logs_whose_update_reports_logs_lose_their_driver() {
    let calls = "p C = context D 3D HW_QUEUE_SUPPORTED -> ok\n\
                 p Q = hw_queue C USER_MODE_SUBMISSION NATIVE_PROGRESS_FENCE -> ok\n\
                 p escape A u32(1, 0) -> anything\n";
    is_lost(&endless(3, "logs", "", calls));
}

#[test]
fn drivers_that_answer_each_other_about_a_fence_are_lost() {
    let calls = "p B = device on 1 -> ok\n\
                 p F = native_fence D shared CROSS_ADAPTER -> ok\n\
                 p N = share F -> ok\n\
                 p H = open_native B N -> ok\n\
                 p signal D F=1 -> anything\n";
    is_lost(&endless(4, "fences", "config adapter 1 kmd=\"DRIVER\"\n", calls));
}

#[test]
fn interrupts_whose_dpcs_signal_as_much_as_they_may_lose_their_driver() {
    let calls = "p X = context D 3D -> ok\np submit X u32(1) -> ok\n+1ms";
    let notes = endless(5, "burst", "", calls);
    is_lost(&notes);
    let signals = notes.lines().filter(|line| line.contains("DxgkCbSignalEvent of event 0x1")).count();
    assert!(signals < 16 * 1024, "{signals} signals in one step");
}
