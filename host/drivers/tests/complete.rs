//! A DDI that [`dxgkrnl::ddi::Miniport`] has a default for is easily forgotten here: the default would answer for all.

use covers::covers;

/// Names of functions with a receiver in a piece of source.
fn methods(source: &str) -> Vec<&str> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("    fn "));
    lines.filter_map(|line| line.split(['(', ' ']).next()).collect()
}

#[test]
fn every_ddi_is_routed_and_can_be_wrapped() {
    let ddi = include_str!("../../dxgkrnl/src/ddi/mod.rs");
    let (_, body) = ddi.split_once("pub trait Miniport {").expect("the trait");
    let methods_of_trait = methods(body);
    assert!(methods_of_trait.len() > 70, "the trait is read: {methods_of_trait:?}");
    let (_, list) = include_str!("../src/filter_driver.rs").split_once("\nddis! {").expect("the list");
    // Not handed on: what is around a driver may have a state of its own.
    let handed_on = methods_of_trait.iter().copied().filter(|name| !matches!(*name, "save" | "restore"));
    assert_eq!(methods(list), handed_on.collect::<Vec<_>>(), "around.rs has another list");
    let routed = include_str!("../src/ddis.rs");
    for name in methods_of_trait {
        let is_there = |line: &str| {
            let line = line.trim_start();
            line.strip_prefix("fn ")
                .unwrap_or(line)
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('('))
        };
        assert!(routed.lines().any(is_there), "ddis.rs routes no {name}");
    }
}

/// Methods without a function in `dxgk_miniport.h`, and why.
const NOT_IN_C: [(&str, &str); 27] = [
    ("start", "DxgkDdiStartDevice comes with the first DDI"),
    ("advertised_features", "known without the driver, so that a replay needs none: `process/exchange.rs`"),
    ("per_engine_tdr_ddis", "a driver without them fails the reset, and the adapter is reset"),
    ("memory_evicted", "is DxgkDdiBuildPagingBuffer, DXGK_OPERATION_TRANSFER of no bytes"),
    ("fail_reset", "the daemon does it: the driver is not called"),
    ("lose_interrupt", "the daemon does it: the interrupt is dropped"),
    ("hang_engine", "the daemon does it: the engine reports nothing"),
    (
        "update_page_table",
        "the daemon keeps page tables: SimFillMemory and its kin name GPU virtual addresses",
    ),
    ("held_bytes", "the daemon counts submissions that have not completed"),
    ("kept_bytes", "what a driver in C keeps is in its own process"),
    ("ring_bytes", "the daemon counts, by SimRingDoorbell and SimRingBufferCompleted"),
    ("next_deadline", "SimSetTimer"),
    ("has_begun", "the daemon: every submission counts as begun"),
    ("running_context", "the daemon: unknown"),
    ("engine_state", "the daemon's view of its submissions: a query costs no message"),
    ("pending_faults", "the daemon injects them"),
    ("has_died", "the daemon sees the process"),
    ("take_died", "the daemon sees the process"),
    ("runs_outside", "true"),
    ("take_answers", "what the driver answered"),
    ("supply_answers", "what the driver answered"),
    ("act_for", "`Now` of its DDIs; the daemon charges its time to the VM"),
    ("work", "for `why`: the commands are in a format of the driver's own"),
    ("pending_writes_of_submission", "as `work`"),
    ("pending_writes", "as `work`"),
    ("native_fence_used", "for debug layers of command lists: the simulated driver has one"),
    ("happens_before", "for race detectors, which need every access: the simulated driver has one"),
];

/// A new DDI gets a row for drivers in C, or stands in the list above.
#[test]
fn every_ddi_has_a_function_in_c_or_is_known_to_have_none() {
    covers!("GPV-053");
    let ddi = include_str!("../../dxgkrnl/src/ddi/mod.rs");
    let (_, body) = ddi.split_once("pub trait Miniport {").expect("the trait");
    let methods = methods(body);
    for name in &methods {
        let in_c = driver_host::abi::DDIS.iter().any(|row| row.model == *name);
        let absent = NOT_IN_C.iter().any(|(absent, _)| absent == name);
        assert!(in_c || absent, "{name}: a row in driver_host's ddis.rs, or a line in NOT_IN_C");
        assert!(!(in_c && absent), "{name} has a function in C");
    }
    for row in driver_host::abi::DDIS.iter() {
        assert!(methods.contains(&row.model), "{}: there is no method {}", row.name, row.model);
    }
    for (name, _) in NOT_IN_C {
        assert!(methods.contains(&name), "there is no method {name}");
    }
}

/// Variants of an enum in a piece of source.
fn variants<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()));
    lines.filter_map(|line| line.split([' ', '(', ',']).next()).collect()
}

/// Callbacks without a function in `dxgk_miniport.h`, and why.
const CALLBACKS_NOT_IN_C: [(&str, &str); 3] = [
    ("HwQueueStore", "is SimStore with hHwQueue"),
    ("Stuck", "the daemon measures how long the process takes"),
    ("Violation", "the daemon's own"),
];

#[test]
fn every_callback_has_a_function_in_c_or_is_known_to_have_none() {
    covers!("GPV-053");
    let callbacks = variants(include_str!("../../dxgkrnl/src/ddi/mod.rs"), "Callback");
    assert!(callbacks.len() > 10, "the enum is read: {callbacks:?}");
    for name in callbacks {
        let in_c = driver_host::abi::CALLBACKS.iter().any(|row| row.model == name);
        let absent = CALLBACKS_NOT_IN_C.iter().any(|(absent, _)| *absent == name);
        assert!(
            in_c != absent,
            "{name}: a row in driver_host's callbacks.rs, or a line in CALLBACKS_NOT_IN_C"
        );
    }
}
